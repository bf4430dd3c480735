#ifndef PYPMIX_SHIM_H
#define PYPMIX_SHIM_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>

#include "../cdef/pmix.h"

#include "../cdef/asks.h"

/* far from every status that PMIx or a user can define as a small negative number */
#define PYPMIX_PENDING INT32_MIN

#define PMIX_SUCCESS 0
#define PMIX_ERROR -1
#define PMIX_ERR_TIMEOUT -24
#define PMIX_ERR_UNREACH -25
#define PMIX_ERR_BAD_PARAM -27
#define PMIX_ERR_NOMEM -32
#define PMIX_ERR_OUT_OF_RESOURCE -29
#define PMIX_ERR_NOT_FOUND -46
#define PMIX_ERR_NOT_SUPPORTED -47
#define PMIX_ERR_LOST_CONNECTION -61
#define PMIX_ERR_NOT_AVAILABLE -64
#define PMIX_OPERATION_SUCCEEDED -157
#define PMIX_EVENT_NO_ACTION_TAKEN -331

typedef void (*pmix_op_cbfunc_t)(pmix_status_t status, void *cbdata);
typedef void (*pmix_value_cbfunc_t)(pmix_status_t status, pmix_value_t *value, void *cbdata);
typedef void (*pmix_lookup_cbfunc_t)(pmix_status_t status, pmix_pdata_t data[], size_t ndata, void *cbdata);
typedef void (*pmix_release_cbfunc_t)(void *cbdata);
typedef void (*pmix_info_cbfunc_t)(
    pmix_status_t status, pmix_info_t *info, size_t ninfo, void *cbdata, pmix_release_cbfunc_t release_fn,
    void *release_cbdata);
typedef void (*pmix_credential_cbfunc_t)(
    pmix_status_t status, pmix_byte_object_t *credential, pmix_info_t info[], size_t ninfo, void *cbdata);
typedef void (*pmix_validation_cbfunc_t)(pmix_status_t status, pmix_info_t info[], size_t ninfo, void *cbdata);
typedef void (*pmix_device_dist_cbfunc_t)(
    pmix_status_t status, pmix_device_distance_t *dist, size_t ndist, void *cbdata, pmix_release_cbfunc_t release_fn,
    void *release_cbdata);
typedef void (*pmix_spawn_cbfunc_t)(pmix_status_t status, char nspace[], void *cbdata);
typedef void (*pmix_hdlr_reg_cbfunc_t)(pmix_status_t status, size_t refid, void *cbdata);
typedef void (*pmix_event_notification_cbfunc_fn_t)(
    pmix_status_t status, pmix_info_t *results, size_t nresults, pmix_op_cbfunc_t cbfunc, void *thiscbdata,
    void *notification_cbdata);
typedef void (*pmix_iof_cbfunc_t)(
    size_t id, uint16_t channel, pmix_proc_t *source, pmix_byte_object_t *payload, pmix_info_t info[], size_t ninfo);
typedef void (*pmix_notification_fn_t)(
    size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t ninfo, pmix_info_t *results,
    size_t nresults, pmix_event_notification_cbfunc_fn_t cbfunc, void *cbdata);

typedef void (*pmix_modex_cbfunc_t)(
    pmix_status_t status, const char *data, size_t ndata, void *cbdata, pmix_release_cbfunc_t release_fn,
    void *release_cbdata);
typedef void (*pmix_tool_connection_cbfunc_t)(pmix_status_t status, pmix_proc_t *proc, void *cbdata);
typedef void (*pmix_dmodex_response_fn_t)(pmix_status_t status, char *data, size_t ndata, void *cbdata);
typedef void (*pmix_setup_application_cbfunc_t)(
    pmix_status_t status, pmix_info_t info[], size_t ninfo, void *provided_cbdata, pmix_op_cbfunc_t cbfunc,
    void *cbdata);

/* a function of any type, as in the table of a server's upcalls */
typedef void (*pypmix_function)(void);

/*
 * The functions of the library, bound when it is opened; one that the release lacks is NULL.
 * A row is: return type, name without PMIx_, arguments.
 */
#define PYPMIX_SYMBOLS(ROW)                                                                                        \
    ROW(const char *, Get_version, (void))                                                                         \
    ROW(pmix_status_t, Init, (pmix_proc_t * proc, pmix_info_t * info, size_t ninfo))                               \
    ROW(pmix_status_t, Finalize, (const pmix_info_t *info, size_t ninfo))                                          \
    ROW(pmix_status_t, Abort, (int status, const char *msg, pmix_proc_t *procs, size_t nprocs))                    \
    ROW(pmix_status_t, Put, (pmix_scope_t scope, const char *key, pmix_value_t *value))                            \
    ROW(pmix_status_t, Commit, (void))                                                                             \
    ROW(pmix_status_t, Fence_nb,                                                                                   \
        (const pmix_proc_t *procs, size_t nprocs, const pmix_info_t *info, size_t ninfo, pmix_op_cbfunc_t cbfunc,  \
         void *cbdata))                                                                                            \
    ROW(pmix_status_t, Get,                                                                                        \
        (const pmix_proc_t *proc, const char *key, const pmix_info_t *info, size_t ninfo, pmix_value_t **value))   \
    ROW(pmix_status_t, Get_nb,                                                                                     \
        (const pmix_proc_t *proc, const char *key, const pmix_info_t *info, size_t ninfo,                          \
         pmix_value_cbfunc_t cbfunc, void *cbdata))                                                                \
    ROW(pmix_status_t, Publish_nb,                                                                                 \
        (const pmix_info_t *info, size_t ninfo, pmix_op_cbfunc_t cbfunc, void *cbdata))                            \
    ROW(pmix_status_t, Lookup_nb,                                                                                  \
        (char **keys, const pmix_info_t *info, size_t ninfo, pmix_lookup_cbfunc_t cbfunc, void *cbdata))           \
    ROW(pmix_status_t, Unpublish_nb,                                                                               \
        (char **keys, const pmix_info_t *info, size_t ninfo, pmix_op_cbfunc_t cbfunc, void *cbdata))               \
    ROW(pmix_status_t, Query_info_nb,                                                                              \
        (pmix_query_t queries[], size_t nqueries, pmix_info_cbfunc_t cbfunc, void *cbdata))                        \
    ROW(pmix_status_t, Resolve_peers,                                                                              \
        (const char *nodename, const char *nspace, pmix_proc_t **procs, size_t *nprocs))                           \
    ROW(pmix_status_t, Resolve_nodes, (const char *nspace, char **nodelist))                                       \
    ROW(pmix_status_t, Log_nb,                                                                                     \
        (const pmix_info_t data[], size_t ndata, const pmix_info_t directives[], size_t ndirs,                     \
         pmix_op_cbfunc_t cbfunc, void *cbdata))                                                                   \
    ROW(pmix_status_t, Job_control_nb,                                                                             \
        (const pmix_proc_t targets[], size_t ntargets, const pmix_info_t directives[], size_t ndirs,               \
         pmix_info_cbfunc_t cbfunc, void *cbdata))                                                                 \
    ROW(pmix_status_t, Allocation_request_nb,                                                                      \
        (uint8_t directive, pmix_info_t *info, size_t ninfo, pmix_info_cbfunc_t cbfunc, void *cbdata))             \
    ROW(pmix_status_t, Process_monitor_nb,                                                                         \
        (const pmix_info_t *monitor, pmix_status_t error, const pmix_info_t directives[], size_t ndirs,            \
         pmix_info_cbfunc_t cbfunc, void *cbdata))                                                                 \
    ROW(pmix_status_t, Get_credential_nb,                                                                          \
        (const pmix_info_t info[], size_t ninfo, pmix_credential_cbfunc_t cbfunc, void *cbdata))                   \
    ROW(pmix_status_t, Validate_credential_nb,                                                                     \
        (const pmix_byte_object_t *cred, const pmix_info_t info[], size_t ninfo, pmix_validation_cbfunc_t cbfunc,  \
         void *cbdata))                                                                                            \
    ROW(pmix_status_t, Fabric_register_nb,                                                                         \
        (pmix_fabric_t * fabric, const pmix_info_t directives[], size_t ndirs, pmix_op_cbfunc_t cbfunc,            \
         void *cbdata))                                                                                            \
    ROW(pmix_status_t, Fabric_update_nb, (pmix_fabric_t * fabric, pmix_op_cbfunc_t cbfunc, void *cbdata))          \
    ROW(pmix_status_t, Compute_distances_nb,                                                                       \
        (pmix_topology_t * topo, pmix_cpuset_t * cpuset, pmix_info_t info[], size_t ninfo,                         \
         pmix_device_dist_cbfunc_t cbfunc, void *cbdata))                                                          \
    ROW(pmix_status_t, Spawn_nb,                                                                                   \
        (const pmix_info_t job_info[], size_t ninfo, const pmix_app_t apps[], size_t napps,                        \
         pmix_spawn_cbfunc_t cbfunc, void *cbdata))                                                                \
    ROW(pmix_status_t, Connect_nb,                                                                                 \
        (const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo,                         \
         pmix_op_cbfunc_t cbfunc, void *cbdata))                                                                   \
    ROW(pmix_status_t, Disconnect_nb,                                                                              \
        (const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo,                         \
         pmix_op_cbfunc_t cbfunc, void *cbdata))                                                                   \
    ROW(pmix_status_t, Group_construct_nb,                                                                         \
        (const char group[], const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo,     \
         pmix_info_cbfunc_t cbfunc, void *cbdata))                                                                 \
    ROW(pmix_status_t, Group_destruct_nb,                                                                          \
        (const char group[], const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc, void *cbdata))       \
    ROW(pmix_status_t, Register_event_handler,                                                                     \
        (pmix_status_t codes[], size_t ncodes, pmix_info_t info[], size_t ninfo, pmix_notification_fn_t event_hdlr, \
         pmix_hdlr_reg_cbfunc_t cbfunc, void *cbdata))                                                             \
    ROW(pmix_status_t, Deregister_event_handler, (size_t id, pmix_op_cbfunc_t cbfunc, void *cbdata))               \
    ROW(pmix_status_t, Notify_event,                                                                               \
        (pmix_status_t status, const pmix_proc_t *source, uint8_t range, const pmix_info_t info[], size_t ninfo,   \
         pmix_op_cbfunc_t cbfunc, void *cbdata))                                                                   \
    ROW(pmix_status_t, Data_pack,                                                                                  \
        (const pmix_proc_t *target, pmix_data_buffer_t *buffer, void *source, int32_t count,                       \
         pmix_data_type_t type))                                                                                   \
    ROW(pmix_status_t, Data_unpack,                                                                                \
        (const pmix_proc_t *source, pmix_data_buffer_t *buffer, void *dest, int32_t *count,                        \
         pmix_data_type_t type))                                                                                   \
    ROW(pmix_status_t, IOF_pull,                                                                                   \
        (const pmix_proc_t procs[], size_t nprocs, const pmix_info_t directives[], size_t ndirs, uint16_t channel, \
         pmix_iof_cbfunc_t cbfunc, pmix_hdlr_reg_cbfunc_t regcbfunc, void *regcbdata))                             \
    ROW(pmix_status_t, IOF_deregister,                                                                             \
        (size_t id, const pmix_info_t directives[], size_t ndirs, pmix_op_cbfunc_t cbfunc, void *cbdata))          \
    ROW(pmix_status_t, IOF_push,                                                                                   \
        (const pmix_proc_t targets[], size_t ntargets, pmix_byte_object_t *bo, const pmix_info_t directives[],     \
         size_t ndirs, pmix_op_cbfunc_t cbfunc, void *cbdata))                                                     \
    ROW(pmix_status_t, tool_init, (pmix_proc_t * proc, pmix_info_t info[], size_t ninfo))                          \
    ROW(pmix_status_t, tool_finalize, (void))                                                                      \
    ROW(pmix_status_t, tool_attach_to_server,                                                                      \
        (pmix_proc_t * proc, pmix_proc_t * server, pmix_info_t info[], size_t ninfo))                              \
    ROW(pmix_status_t, tool_set_server, (const pmix_proc_t *server, pmix_info_t info[], size_t ninfo))             \
    ROW(pmix_status_t, tool_get_servers, (pmix_proc_t * servers[], size_t *nservers))                              \
    ROW(pmix_status_t, tool_disconnect, (const pmix_proc_t *server))                                               \
    ROW(pmix_status_t, server_init, (void *module, pmix_info_t info[], size_t ninfo))                              \
    ROW(pmix_status_t, server_finalize, (void))                                                                    \
    ROW(pmix_status_t, server_setup_fork, (const pmix_proc_t *proc, char ***env))                                  \
    ROW(pmix_status_t, server_register_nspace,                                                                     \
        (const char *nspace, int nlocalprocs, pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc,           \
         void *cbdata))                                                                                            \
    ROW(void, server_deregister_nspace, (const char *nspace, pmix_op_cbfunc_t cbfunc, void *cbdata))               \
    ROW(pmix_status_t, server_register_client,                                                                     \
        (const pmix_proc_t *proc, uid_t uid, gid_t gid, void *object, pmix_op_cbfunc_t cbfunc, void *cbdata))      \
    ROW(void, server_deregister_client, (const pmix_proc_t *proc, pmix_op_cbfunc_t cbfunc, void *cbdata))          \
    ROW(pmix_status_t, server_dmodex_request,                                                                      \
        (const pmix_proc_t *proc, pmix_dmodex_response_fn_t cbfunc, void *cbdata))                                 \
    ROW(pmix_status_t, server_setup_application,                                                                   \
        (const char *nspace, pmix_info_t info[], size_t ninfo, pmix_setup_application_cbfunc_t cbfunc,             \
         void *cbdata))                                                                                            \
    ROW(pmix_status_t, server_setup_local_support,                                                                 \
        (const char *nspace, pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc, void *cbdata))             \
    ROW(pmix_status_t, server_IOF_deliver,                                                                         \
        (const pmix_proc_t *source, uint16_t channel, const pmix_byte_object_t *bo, const pmix_info_t info[],      \
         size_t ninfo, pmix_op_cbfunc_t cbfunc, void *cbdata))                                                     \
    ROW(pmix_status_t, server_collect_inventory,                                                                   \
        (pmix_info_t directives[], size_t ndirs, pmix_info_cbfunc_t cbfunc, void *cbdata))                         \
    ROW(pmix_status_t, server_deliver_inventory,                                                                   \
        (pmix_info_t info[], size_t ninfo, pmix_info_t directives[], size_t ndirs, pmix_op_cbfunc_t cbfunc,        \
         void *cbdata))                                                                                            \
    ROW(pmix_status_t, server_register_resources,                                                                  \
        (pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc, void *cbdata))                                 \
    ROW(pmix_status_t, server_deregister_resources,                                                                \
        (pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc, void *cbdata))                                 \
    ROW(pmix_status_t, server_define_process_set,                                                                  \
        (const pmix_proc_t *members, size_t nmembers, const char *name))                                           \
    ROW(pmix_status_t, server_delete_process_set, (char *name))                                                    \
    ROW(pmix_status_t, Store_internal, (const pmix_proc_t *proc, const char key[], pmix_value_t *value))           \
    ROW(pmix_status_t, Value_xfer, (pmix_value_t * dest, const pmix_value_t *source))                              \
    ROW(pmix_status_t, Parse_cpuset_string, (const char *text, pmix_cpuset_t *cpuset))                             \
    ROW(pmix_status_t, server_generate_cpuset_string, (const pmix_cpuset_t *cpuset, char **text))                  \
    ROW(void, Cpuset_destruct, (pmix_cpuset_t * cpuset))                                                           \
    ROW(void, Topology_destruct, (pmix_topology_t * topology))

struct pypmix_table {
#define PYPMIX_MEMBER(ret, name, args) ret(*name) args;
    PYPMIX_SYMBOLS(PYPMIX_MEMBER)
#undef PYPMIX_MEMBER
};

extern struct pypmix_table pypmix_lib;

/* For fork.c: each file's locks and conditions are made, and none of its threads runs. */
void pypmix_renew_apart(void);
void pypmix_renew_calls(void);
void pypmix_renew_events(void);
void pypmix_renew_forwarding(void);
void pypmix_renew_inbox(void);
void pypmix_renew_upcalls(void);
void pypmix_renew_watch(void);

/* fork.c: a condition whose waits go by the monotonic clock, and that clock so many seconds from now. */
void pypmix_condition(pthread_cond_t *condition);
struct timespec pypmix_after(double seconds);

typedef struct pypmix_queue pypmix_queue;
typedef struct pypmix_call pypmix_call;

/*
 * One operation under way, with all that the library may still read of its inputs.
 *
 * It belongs to two parties: to libpmix until its callback has come, and to Python until it has taken the outcome or
 * lost interest. The last of the two frees it. `status` is what Python sees: it stays PYPMIX_PENDING until
 * the wait is over or the call was popped from its queue. `result` is what has happened; it and all that follows are
 * guarded by the lock of calls.c.
 */
struct pypmix_call {
    pmix_status_t status;
    pmix_data_type_t kind;
    uint64_t word;
    uint64_t token;
    pmix_value_t *value;
    pmix_data_array_t results;
    sem_t done;
    pmix_status_t result;
    bool waited;
    /* the limit of the waiting thread does not end it */
    bool lasting;
    /* no server is asked: the loss of one, which it may itself bring about, does not end it */
    atomic_bool serverless;
    bool library_holds;
    bool caller_holds;
    pypmix_queue *queue;
    pypmix_call *next;
    pypmix_call *previous;
    pmix_proc_t *procs;
    size_t nprocs;
    pmix_info_t *infos;
    size_t ninfos;
    pypmix_given given;
    pmix_fabric_t fabric;
    pmix_proc_t proc;
    pmix_key_t key;
};

#include "../cdef/inbox.h"

#include "../cdef/shim.h"

#include "../cdef/server.h"

/*
 * calls.c, for the files of other operations: a call begins, the library has taken it with a status, it has ended (its
 * value and its results are malloc's and become the call's), its inputs are no longer needed.
 */
void pypmix_begin(
    pypmix_call *call, pypmix_queue *queue, bool waited, pmix_proc_t *procs, size_t nprocs, pmix_info_t *infos,
    size_t ninfos);
void pypmix_begun(pypmix_call *call, pmix_status_t status);
void pypmix_done(pmix_status_t status, pmix_value_t *value, const pmix_data_array_t *results, pypmix_call *call);
void pypmix_op_done(pmix_status_t status, void *cbdata);
void pypmix_drop_inputs(pypmix_call *call);

/* calls.c, for watch.c: whether any call that has a server is under way, and an end to all of them. */
bool pypmix_pending(void);
void pypmix_fail(pmix_status_t status);

/*
 * inbox.c: a message, which copies its infos. It is delivered to the inbox of a number; if that is closed, the caller
 * has to return it.
 */
pypmix_message *pypmix_message_new(int what, const pmix_proc_t *source, const pmix_info_t *infos, size_t ninfos);
bool pypmix_is_nothing(const pmix_info_t *info);
bool pypmix_copy_infos(pmix_data_array_t *target, const pmix_info_t *infos, size_t count);
bool pypmix_copy_infos_but(
    pmix_data_array_t *target, const pmix_info_t *infos, size_t count, bool (*left_out)(const pmix_info_t *info));
bool pypmix_deliver(uint64_t number, pypmix_message *message);
void pypmix_return(pypmix_message *message);

/* inbox.c, for events.c: answers an event that no inbox takes */
void pypmix_pass_on(void *answer, void *cbdata);

/*
 * inbox.c, for events.c: whether a chain may stand at a handler of this session's, or come to it, so that the number of one
 * that is to be deregistered is kept; and the next one of those that were kept, now that no chain does, false if there is
 * none.
 */
bool pypmix_keep_handler(pypmix_inbox *inbox, size_t id);
bool pypmix_next_handler(size_t *id);

/* events.c, for inbox.c: have those that were kept looked at on the library's progress thread, where this is called */
void pypmix_look_at_handlers(void);

/* calls.c, for upcalls.c: see there */
void pypmix_queue_serve_by(pypmix_queue *queue, void (*wake)(void));

/* upcalls.c, for server.c: an upcall's function for the library's table, and the list's begin and end */
pypmix_function pypmix_trampoline(int what);
bool pypmix_upcalls_open(pypmix_queue *queue, const int *slots, size_t nslots);
void pypmix_upcalls_close(void);

/* events.c: have a function called on the progress thread of the library; its first two arguments say nothing. */
pmix_status_t pypmix_shift(pmix_hdlr_reg_cbfunc_t run, void *argument);

/* events.c, for library.c, server.c and tool.c: finalize the library by its own function, once what was raised before is out. */
pmix_status_t pypmix_end_raised(pmix_status_t (*end)(void));

/* asks.c, for serverasks.c: an end with infos, and what moves them out of the library's memory; a value of bytes */
void pypmix_infos_done(
    pmix_status_t status, pmix_info_t *info, size_t ninfo, void *cbdata, pmix_release_cbfunc_t release_fn,
    void *release_cbdata);
pmix_data_array_t pypmix_moved_infos(pmix_info_t *infos, size_t count, pmix_status_t *status);
pmix_value_t *pypmix_value_of(pmix_data_type_t type, const char *bytes, size_t size, pmix_status_t *status);

/* events.c, forwarding.c, tool.c and serverasks.c, for asks.c */
pmix_status_t pypmix_ask_register_event_handler(pypmix_call *call);
pmix_status_t pypmix_ask_notify_event(pypmix_call *call);
pmix_status_t pypmix_ask_iof_pull(pypmix_call *call);
pmix_status_t pypmix_ask_iof_deregister(pypmix_call *call);
pmix_status_t pypmix_ask_iof_push(pypmix_call *call);
pmix_status_t pypmix_ask_tool_attach(pypmix_call *call);
pmix_status_t pypmix_ask_tool_set_server(pypmix_call *call);
pmix_status_t pypmix_ask_tool_get_servers(pypmix_call *call);
pmix_status_t pypmix_ask_tool_disconnect(pypmix_call *call);
pmix_status_t pypmix_ask_register_nspace(pypmix_call *call);
pmix_status_t pypmix_ask_deregister_nspace(pypmix_call *call);
pmix_status_t pypmix_ask_register_client(pypmix_call *call);
pmix_status_t pypmix_ask_deregister_client(pypmix_call *call);
pmix_status_t pypmix_ask_dmodex_request(pypmix_call *call);
pmix_status_t pypmix_ask_setup_application(pypmix_call *call);
pmix_status_t pypmix_ask_setup_local_support(pypmix_call *call);
pmix_status_t pypmix_ask_iof_deliver(pypmix_call *call);
pmix_status_t pypmix_ask_collect_inventory(pypmix_call *call);
pmix_status_t pypmix_ask_deliver_inventory(pypmix_call *call);
pmix_status_t pypmix_ask_register_resources(pypmix_call *call);
pmix_status_t pypmix_ask_deregister_resources(pypmix_call *call);
pmix_status_t pypmix_ask_define_process_set(pypmix_call *call);
pmix_status_t pypmix_ask_delete_process_set(pypmix_call *call);
pmix_status_t pypmix_ask_store_internal(pypmix_call *call);

/* library.c: the callback for an end that is not waited for. */
void pypmix_ignore(pmix_status_t status, void *cbdata);

/* watch.c: a call that has a server has begun, and the library does not know of it yet. */
void pypmix_watch(void);

/* apart.c: start a detached thread. */
bool pypmix_thread(void *(*run)(void *), void *argument);

/* Whether a type is a mere number, held in the value itself. */
bool pypmix_is_word(pmix_data_type_t type);

/* The number that a value of such a type holds, zero-extended. */
uint64_t pypmix_word(const pmix_value_t *value);

#endif
