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

/*
 * Added to the place of an upcall of which the host is told only: the library hears at once that it is done, and what
 * the host answers is dropped. For releases that forget an upcall as soon as it was taken, and then are called back
 * with memory that they have freed. With GROUP this means the destruct of a group of this server's clients alone, which
 * such releases ask for twice.
 */
enum { PYPMIX_UP_TOLD = 0x10000 };

/*
 * Added to the place of an upcall whose failure this release cannot take: it would crash, so it is not called back
 * then, and the caller waits until it gives up.
 */
enum { PYPMIX_UP_UNREFUSED = 0x20000 };

typedef struct pypmix_upcall pypmix_upcall;

/*
 * One upcall, copied, so that libpmix need not wait until it is read. It is answered once, by any thread. An
 * array that is not there is NULL. Infos are without what the library has added for itself, but for those of a tool,
 * which say whose it is. What each member means, and what an answer gives in `items` (see pypmix_given):
 *
 * CLIENT_CONNECTED, CLIENT_CONNECTED2: source, the client; infos. CLIENT_FINALIZED: source.
 * ABORT: source; number, the status; text, the message; items, the procs, none for all of the source's nspace.
 * FENCE: items, the procs; infos; bytes, what this server has collected. Answer: one byte object with everybody's.
 * DIRECT_MODEX: source, the proc that is asked for; infos. Answer: one byte object.
 * PUBLISH: source; infos, the data and the directives. LOOKUP, UNPUBLISH: source; items, the keys; infos.
 * Answer to LOOKUP: pdata.
 * SPAWN: source; infos, of the job; items, the apps. Answer: one string, the nspace.
 * CONNECT, DISCONNECT: items, the procs; infos.
 * REGISTER_EVENTS: items, the codes, none for all; infos. DEREGISTER_EVENTS: items.
 * LISTENER: never; no release calls it.
 * NOTIFY_EVENT: source; number, the code in the lower 32 bits and the range above; infos.
 * QUERY: source; items, the queries. Answer: infos.
 * TOOL_CONNECTED, TOOL_CONNECTED2: infos. Answer: one proc, the name of the tool.
 * LOG, LOG2: source; infos, the data; more, the directives.
 * ALLOCATE: source; number, the directive; infos. Answer: infos.
 * JOB_CONTROL: source; items, the targets, none for all; infos. Answer: infos.
 * MONITOR: source; more, one info, what to monitor; number, the error; infos. Answer: infos.
 * GET_CREDENTIAL: source; infos. Answer: one byte object, and infos.
 * VALIDATE_CREDENTIAL: source; bytes, the credential; infos. Answer: infos.
 * IOF_PULL: items, the procs; number, the channels; infos.
 * PUSH_STDIN: source; items, the targets; bytes, none at the end of the input; infos.
 * GROUP: number, the operation; text, the name; items, the procs; infos. Answer: infos.
 * FABRIC: source; number, the operation; infos. Answer: infos.
 * SESSION_CONTROL: source; number, the session; infos. Answer: infos.
 * RESOURCE_BLOCK: source; number, the directive; text, the name; items, the units; infos.
 */
struct pypmix_upcall {
    int what;
    bool sourced; /* whether there is a source */
    pmix_proc_t source;
    pmix_data_array_t items;
    pmix_data_array_t infos;
    pmix_data_array_t more;
    char *text;
    char *bytes;
    size_t size;
    int64_t number;
    /* of the shim */
    void *callback;
    void *cbdata;
    uint64_t server;
    size_t weight;
    pmix_status_t status;
    pypmix_given given;
    bool open;
    pypmix_upcall *next;
    pypmix_upcall *previous;
};

/*
 * server.c: the one server of this process. `slots` holds, for each upcall, its place in the table of this release's
 * server module, -1 for those that it lacks or that stay empty; infos stay the caller's. What the queue has wakes
 * pypmix_upcall_next; it has to last until the server is finalized, and is one that is not served (see
 * pypmix_queue_new), since the library has no connection that could be lost. At the end of the server the library hears
 * PMIX_ERR_LOST_CONNECTION for whatever was not answered; upcalls that were taken are still to be answered, which only
 * frees them then.
 */
pmix_status_t pypmix_server_init(
    pypmix_queue *queue, const int *slots, size_t nslots, pmix_info_t *infos, size_t ninfos);
pmix_status_t pypmix_server_finalize(void);
/*
 * The environment of a client: strings as NAME=VALUE with a NULL behind them, from pypmix_alloc, which grow; NULL for
 * none at first. They are the caller's, for pypmix_strings_free.
 */
pmix_status_t pypmix_server_setup_fork(const pmix_proc_t *proc, char ***env);

/*
 * upcalls.c: the upcalls that wait, oldest first. One that was taken is its taker's until it is answered; the answer
 * (see pypmix_given; NULL for none) becomes the shim's. A library that is called back hears PMIX_SUCCESS for
 * PMIX_OPERATION_SUCCEEDED.
 */
pypmix_upcall *pypmix_upcall_take(void);
void pypmix_upcall_answer(pypmix_upcall *upcall, pmix_status_t status, pypmix_given *given);
/* the answer to FENCE and DIRECT_MODEX in one call; a status other than PMIX_SUCCESS says that it is not answered yet */
pmix_status_t pypmix_upcall_answer_bytes(
    pypmix_upcall *upcall, pmix_status_t status, const char *bytes, size_t size);
/* the same as take, but waits; NULL says that the server's queue or its inbox may have something */
pypmix_upcall *pypmix_upcall_next(void);
/*
 * A watcher watches the descriptor of the server's queue from now on, drains it when it is readable, and takes all
 * upcalls. pypmix_upcall_next returns those then that the watcher leaves for a while.
 */
void pypmix_upcalls_watch(pypmix_queue *queue);
/* how many upcalls the host has not dealt with yet whose clients have been answered in its place */
uint64_t pypmix_upcalls_ahead(void);
/* how many upcalls were refused, since the last time that this was asked, because too many waited */
uint64_t pypmix_upcalls_lost(void);
