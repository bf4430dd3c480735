/* What a server's host is asked, and what it is told. Read by cffi and by the shim: declarations only. */

/* The upcalls, in the order of the members of the library's table up to release 5.0; then the later ones. */
enum {
    PYPMIX_UP_CLIENT_CONNECTED,
    PYPMIX_UP_CLIENT_FINALIZED,
    PYPMIX_UP_ABORT,
    PYPMIX_UP_FENCE,
    PYPMIX_UP_DIRECT_MODEX,
    PYPMIX_UP_PUBLISH,
    PYPMIX_UP_LOOKUP,
    PYPMIX_UP_UNPUBLISH,
    PYPMIX_UP_SPAWN,
    PYPMIX_UP_CONNECT,
    PYPMIX_UP_DISCONNECT,
    PYPMIX_UP_REGISTER_EVENTS,
    PYPMIX_UP_DEREGISTER_EVENTS,
    PYPMIX_UP_LISTENER,
    PYPMIX_UP_NOTIFY_EVENT,
    PYPMIX_UP_QUERY,
    PYPMIX_UP_TOOL_CONNECTED,
    PYPMIX_UP_LOG,
    PYPMIX_UP_ALLOCATE,
    PYPMIX_UP_JOB_CONTROL,
    PYPMIX_UP_MONITOR,
    PYPMIX_UP_GET_CREDENTIAL,
    PYPMIX_UP_VALIDATE_CREDENTIAL,
    PYPMIX_UP_IOF_PULL,
    PYPMIX_UP_PUSH_STDIN,
    PYPMIX_UP_GROUP,
    PYPMIX_UP_FABRIC,
    PYPMIX_UP_CLIENT_CONNECTED2,
    PYPMIX_UP_TOOL_CONNECTED2,
    PYPMIX_UP_LOG2,
    PYPMIX_UP_SESSION_CONTROL,
    PYPMIX_UP_RESOURCE_BLOCK,
    PYPMIX_UPS
};

typedef struct pypmix_upcall pypmix_upcall;

/*
 * One upcall, copied, so that libpmix need not wait until somebody reads it. It is answered once, by any thread; what
 * each member means for which upcall is said where that is made, in upcalls.c.
 */
struct pypmix_upcall {
    int what;
    bool sourced; /* whether there is a source */
    pmix_proc_t source;
    pmix_data_array_t items; /* procs, queries, apps, resource units, codes, or keys with a NULL behind them */
    pmix_data_array_t infos;
    pmix_data_array_t more; /* a second array of infos */
    char *text;
    char *bytes;
    size_t size;
    int64_t number;
    /* of the shim */
    void *answer;
    void *cbdata;
    pypmix_upcall *next;
};

/*
 * server.c: the one server of this process. `slots` holds, for each upcall, its place in the table of this release's
 * server module, -1 for those that it lacks or that stay empty.
 */
pmix_status_t pypmix_server_init(
    pypmix_queue *queue, const int *slots, size_t nslots, pmix_info_t *infos, size_t ninfos);
pmix_status_t pypmix_server_finalize(void);
/* the environment of a client: strings as NAME=VALUE with a NULL behind them, from pypmix_alloc */
pmix_status_t pypmix_server_setup_fork(const pmix_proc_t *proc, char ***env);

/*
 * upcalls.c: the upcalls that wait, oldest first; the server's queue is woken for them. One that was taken is its
 * taker's until it is answered; the answer (see pypmix_given: infos, and in items what else the upcall returns) becomes
 * the shim's.
 */
pypmix_upcall *pypmix_upcall_take(void);
void pypmix_upcall_answer(pypmix_upcall *upcall, pmix_status_t status, pypmix_given *given);
