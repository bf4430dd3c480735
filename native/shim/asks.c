/*
 * Operations beyond get and fence. Each is one row: how it is put to the library, with which callback, and that takes
 * what it is handed. The library frees that when the callback has returned, or when it is told to; so that nothing of
 * it need be copied, values are moved out, and one that owns nothing is left in the place of each.
 */

#include "shim.h"
#include "types.h"

#include <stdlib.h>
#include <string.h>

/* a flag of infos whose values have another owner */
#define PERSISTENT 0x10

void pypmix_given_free(pypmix_given *given)
{
    if (NULL != given->items.array) {
        pypmix_elements_free(given->items.type, given->items.array, given->items.size);
    }
    if (NULL != given->more.array) {
        pypmix_elements_free(given->more.type, given->more.array, given->more.size);
    }
    pypmix_infos_free(given->infos, given->ninfos);
    memset(given, 0, sizeof(*given));
}

/* Returns an array for `count` elements as results; where there is no memory for it, the status says so. */
static pmix_data_array_t results_of(pmix_data_type_t type, const void *found, size_t count, pmix_status_t *status)
{
    pmix_data_array_t results = {.type = type};

    if (NULL != found && 0 < count) {
        results.array = pypmix_alloc(count, pypmix_size_of(type));
        if (NULL == results.array) {
            *status = PMIX_ERR_NOMEM;
        } else {
            results.size = count;
        }
    }
    return results;
}

pmix_data_array_t pypmix_moved_infos(pmix_info_t *infos, size_t count, pmix_status_t *status)
{
    pmix_data_array_t results = results_of(INFO, infos, count, status);
    pmix_info_t *taken = results.array;

    for (size_t n = 0; n < results.size; n++) {
        taken[n] = infos[n];
        if (0 == (infos[n].flags & PERSISTENT)) {
            memset(&infos[n].value, 0, sizeof(infos[n].value));
            continue;
        }
        memset(&taken[n].value, 0, sizeof(taken[n].value));
        if (NULL == pypmix_lib.Value_xfer || PMIX_SUCCESS != pypmix_lib.Value_xfer(&taken[n].value, &infos[n].value)) {
            *status = PMIX_ERR_NOMEM;
        }
    }
    return results;
}

/* Returns a value of a type that is held in the value itself, of malloc's memory. */
pmix_value_t *pypmix_value_of(pmix_data_type_t type, const char *bytes, size_t size, pmix_status_t *status)
{
    pmix_value_t *value = calloc(1, sizeof(*value));
    char *copy = pypmix_copy(bytes, size);

    if (NULL == value || NULL == copy) {
        free(value);
        free(copy);
        *status = PMIX_ERR_NOMEM;
        return NULL;
    }
    value->type = type;
    if (STRING == type) {
        value->data.string = copy;
    } else {
        value->data.bo.bytes = copy;
        value->data.bo.size = size;
    }
    return value;
}

static void published_done(pmix_status_t status, pmix_pdata_t data[], size_t ndata, void *cbdata)
{
    pmix_data_array_t results = results_of(PDATA, data, ndata, &status);
    pmix_pdata_t *taken = results.array;

    for (size_t n = 0; n < results.size; n++) {
        taken[n] = data[n];
        memset(&data[n].value, 0, sizeof(data[n].value));
    }
    pypmix_done(status, NULL, &results, cbdata);
}

static void validation_done(pmix_status_t status, pmix_info_t info[], size_t ninfo, void *cbdata)
{
    pmix_data_array_t results = pypmix_moved_infos(info, ninfo, &status);

    pypmix_done(status, NULL, &results, cbdata);
}

void pypmix_infos_done(
    pmix_status_t status, pmix_info_t *info, size_t ninfo, void *cbdata, pmix_release_cbfunc_t release_fn,
    void *release_cbdata)
{
    pmix_data_array_t results = pypmix_moved_infos(info, ninfo, &status);

    if (NULL != release_fn) {
        release_fn(release_cbdata);
    }
    pypmix_done(status, NULL, &results, cbdata);
}

/* Release 5.0 hands over infos with a failure as well, and has not filled all of them. */
static void group_done(
    pmix_status_t status, pmix_info_t *info, size_t ninfo, void *cbdata, pmix_release_cbfunc_t release_fn,
    void *release_cbdata)
{
    bool formed = PMIX_SUCCESS == status || PMIX_OPERATION_SUCCEEDED == status;

    pypmix_infos_done(status, formed ? info : NULL, formed ? ninfo : 0, cbdata, release_fn, release_cbdata);
}

static void credential_done(
    pmix_status_t status, pmix_byte_object_t *credential, pmix_info_t info[], size_t ninfo, void *cbdata)
{
    pmix_data_array_t results = pypmix_moved_infos(info, ninfo, &status);
    pmix_value_t *value = NULL;

    if (PMIX_SUCCESS == status && NULL != credential && NULL != credential->bytes) {
        value = pypmix_value_of(BYTE_OBJECT, credential->bytes, credential->size, &status);
    }
    pypmix_done(status, value, &results, cbdata);
}

static void distances_done(
    pmix_status_t status, pmix_device_distance_t *dist, size_t ndist, void *cbdata, pmix_release_cbfunc_t release_fn,
    void *release_cbdata)
{
    pmix_data_array_t results = results_of(DEVICE_DIST, dist, ndist, &status);
    pmix_device_distance_t *taken = results.array;

    for (size_t n = 0; n < results.size; n++) {
        taken[n] = dist[n];
        dist[n].uuid = dist[n].osname = NULL;
    }
    if (NULL != release_fn) {
        release_fn(release_cbdata);
    }
    pypmix_done(status, NULL, &results, cbdata);
}

static void spawn_done(pmix_status_t status, char nspace[], void *cbdata)
{
    pmix_data_array_t none = {0};
    pmix_value_t *value = NULL;

    if (PMIX_SUCCESS == status && NULL != nspace) {
        value = pypmix_value_of(STRING, nspace, strnlen(nspace, sizeof(pmix_nspace_t)), &status);
    }
    pypmix_done(status, value, &none, cbdata);
}

/* The library has filled the fabric, whose infos are the caller's from then on. */
static void fabric_done(pmix_status_t status, void *cbdata)
{
    pypmix_call *call = cbdata;
    pmix_data_array_t results = {.type = INFO, .size = call->fabric.ninfo, .array = call->fabric.info};

    memset(&call->fabric, 0, sizeof(call->fabric));
    pypmix_done(status, NULL, &results, call);
}

/*
 * The library has no form of these that does not block, so each has a thread for its time. `items` is a proc with the
 * nspace, empty for all, and `more` the node if it is another.
 */
static void *peers_work(void *cbdata)
{
    pypmix_call *call = cbdata;
    pmix_data_array_t results = {.type = PROC};
    pmix_proc_t *procs = NULL;
    const char *node = NULL == call->given.more.array ? NULL : ((char **) call->given.more.array)[0];
    pmix_status_t status = pypmix_lib.Resolve_peers(
        node, ((pmix_proc_t *) call->given.items.array)->nspace, &procs, &results.size);

    results.array = procs;
    pypmix_done(status, NULL, &results, call);
    return NULL;
}

static void *nodes_work(void *cbdata)
{
    pypmix_call *call = cbdata;
    pmix_data_array_t none = {0};
    pmix_value_t *value = NULL;
    char *nodes = NULL;
    pmix_status_t status = pypmix_lib.Resolve_nodes(((pmix_proc_t *) call->given.items.array)->nspace, &nodes);

    if (NULL != nodes) {
        value = pypmix_value_of(STRING, nodes, strlen(nodes), &status);
        free(nodes);
    }
    pypmix_done(status, value, &none, call);
    return NULL;
}

static pmix_status_t ask_resolve_peers(pypmix_call *call)
{
    if (NULL == pypmix_lib.Resolve_peers) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    return pypmix_thread(peers_work, call) ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
}

static pmix_status_t ask_resolve_nodes(pypmix_call *call)
{
    if (NULL == pypmix_lib.Resolve_nodes) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    return pypmix_thread(nodes_work, call) ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
}

/* One more use of a monitor; `items` is the info that says so. It is sent at once, and nothing answers it. */
static pmix_status_t ask_heartbeat(pypmix_call *call)
{
    pmix_status_t status = PMIX_ERR_NOT_SUPPORTED;

    if (NULL != pypmix_lib.Process_monitor_nb) {
        status = pypmix_lib.Process_monitor_nb(call->given.items.array, PMIX_SUCCESS, NULL, 0, NULL, NULL);
    }
    return PMIX_SUCCESS == status ? PMIX_OPERATION_SUCCEEDED : status;
}

#define ASK(name, symbol, ...)                                                                            \
    static pmix_status_t ask_##name(pypmix_call *call)                                                    \
    {                                                                                                     \
        return NULL == pypmix_lib.symbol ? PMIX_ERR_NOT_SUPPORTED : pypmix_lib.symbol(__VA_ARGS__, call); \
    }
#define ITEMS call->given.items.array, call->given.items.size
#define INFOS call->given.infos, call->given.ninfos
#define NAME (NULL == call->given.more.array ? NULL : ((char **) call->given.more.array)[0])

/* `items`: nothing; the keys; the keys */
ASK(publish, Publish_nb, INFOS, pypmix_op_done)
ASK(lookup, Lookup_nb, call->given.items.array, INFOS, published_done)
ASK(unpublish, Unpublish_nb, call->given.items.array, INFOS, pypmix_op_done)
/* the queries */
ASK(query_info, Query_info_nb, ITEMS, pypmix_infos_done)
/* infos with the data; the targets; nothing, `number` is the directive; the monitor, `number` is the error */
ASK(log, Log_nb, ITEMS, INFOS, pypmix_op_done)
ASK(job_control, Job_control_nb, ITEMS, INFOS, pypmix_infos_done)
ASK(allocation_request, Allocation_request_nb, (uint8_t) call->given.number, INFOS, pypmix_infos_done)
ASK(process_monitor, Process_monitor_nb, call->given.items.array, (pmix_status_t) call->given.number, INFOS,
    pypmix_infos_done)
/* nothing; the credential */
ASK(get_credential, Get_credential_nb, INFOS, credential_done)
ASK(validate_credential, Validate_credential_nb, call->given.items.array, INFOS, validation_done)
/* nothing; `number` is the fabric's index */
ASK(fabric_register, Fabric_register_nb, &call->fabric, INFOS, fabric_done)
ASK(fabric_update, Fabric_update_nb, &call->fabric, fabric_done)
/* the topology, and `more` the cpuset; the library takes its own for what is not given */
ASK(compute_distances, Compute_distances_nb, call->given.items.array, call->given.more.array, INFOS, distances_done)
/* the apps */
ASK(spawn, Spawn_nb, INFOS, ITEMS, spawn_done)
/* the procs */
ASK(connect, Connect_nb, ITEMS, INFOS, pypmix_op_done)
ASK(disconnect, Disconnect_nb, ITEMS, INFOS, pypmix_op_done)
/* the procs, and `more` the name of the group; nothing, and `more` the name */
ASK(group_construct, Group_construct_nb, NAME, ITEMS, INFOS, group_done)
ASK(group_destruct, Group_destruct_nb, NAME, INFOS, pypmix_op_done)

static pmix_status_t (*const asks[PYPMIX_ASKS])(pypmix_call *) = {
    [PYPMIX_PUBLISH] = ask_publish,
    [PYPMIX_LOOKUP] = ask_lookup,
    [PYPMIX_UNPUBLISH] = ask_unpublish,
    [PYPMIX_QUERY_INFO] = ask_query_info,
    [PYPMIX_RESOLVE_PEERS] = ask_resolve_peers,
    [PYPMIX_RESOLVE_NODES] = ask_resolve_nodes,
    [PYPMIX_LOG] = ask_log,
    [PYPMIX_JOB_CONTROL] = ask_job_control,
    [PYPMIX_ALLOCATION_REQUEST] = ask_allocation_request,
    [PYPMIX_PROCESS_MONITOR] = ask_process_monitor,
    [PYPMIX_HEARTBEAT] = ask_heartbeat,
    [PYPMIX_GET_CREDENTIAL] = ask_get_credential,
    [PYPMIX_VALIDATE_CREDENTIAL] = ask_validate_credential,
    [PYPMIX_FABRIC_REGISTER] = ask_fabric_register,
    [PYPMIX_FABRIC_UPDATE] = ask_fabric_update,
    [PYPMIX_COMPUTE_DISTANCES] = ask_compute_distances,
    [PYPMIX_SPAWN] = ask_spawn,
    [PYPMIX_CONNECT] = ask_connect,
    [PYPMIX_DISCONNECT] = ask_disconnect,
    [PYPMIX_REGISTER_EVENT_HANDLER] = pypmix_ask_register_event_handler,
    [PYPMIX_NOTIFY_EVENT] = pypmix_ask_notify_event,
    [PYPMIX_IOF_PULL] = pypmix_ask_iof_pull,
    [PYPMIX_IOF_DEREGISTER] = pypmix_ask_iof_deregister,
    [PYPMIX_IOF_PUSH] = pypmix_ask_iof_push,
    [PYPMIX_TOOL_ATTACH] = pypmix_ask_tool_attach,
    [PYPMIX_TOOL_SET_SERVER] = pypmix_ask_tool_set_server,
    [PYPMIX_TOOL_GET_SERVERS] = pypmix_ask_tool_get_servers,
    [PYPMIX_TOOL_DISCONNECT] = pypmix_ask_tool_disconnect,
    [PYPMIX_GROUP_CONSTRUCT] = ask_group_construct,
    [PYPMIX_GROUP_DESTRUCT] = ask_group_destruct,
    [PYPMIX_REGISTER_NSPACE] = pypmix_ask_register_nspace,
    [PYPMIX_DEREGISTER_NSPACE] = pypmix_ask_deregister_nspace,
    [PYPMIX_REGISTER_CLIENT] = pypmix_ask_register_client,
    [PYPMIX_DEREGISTER_CLIENT] = pypmix_ask_deregister_client,
    [PYPMIX_DMODEX_REQUEST] = pypmix_ask_dmodex_request,
    [PYPMIX_SETUP_APPLICATION] = pypmix_ask_setup_application,
    [PYPMIX_SETUP_LOCAL_SUPPORT] = pypmix_ask_setup_local_support,
    [PYPMIX_IOF_DELIVER] = pypmix_ask_iof_deliver,
    [PYPMIX_COLLECT_INVENTORY] = pypmix_ask_collect_inventory,
    [PYPMIX_DELIVER_INVENTORY] = pypmix_ask_deliver_inventory,
    [PYPMIX_REGISTER_RESOURCES] = pypmix_ask_register_resources,
    [PYPMIX_DEREGISTER_RESOURCES] = pypmix_ask_deregister_resources,
    [PYPMIX_DEFINE_PROCESS_SET] = pypmix_ask_define_process_set,
    [PYPMIX_DELETE_PROCESS_SET] = pypmix_ask_delete_process_set,
    [PYPMIX_STORE_INTERNAL] = pypmix_ask_store_internal,
};

static void start(pypmix_call *call, pypmix_queue *queue, bool waited, int what, const pypmix_given *given)
{
    pypmix_begin(call, queue, waited, NULL, 0, NULL, 0);
    call->given = *given;
    memset(&call->fabric, 0, sizeof(call->fabric));
    call->fabric.index = (size_t) given->number;
    pypmix_begun(call, asks[what](call));
}

void pypmix_ask(pypmix_call *call, pypmix_queue *queue, int what, const pypmix_given *given, double timeout)
{
    start(call, queue, true, what, given);
    pypmix_wait(call, timeout);
}

pmix_status_t pypmix_ask_submit(pypmix_queue *queue, uint64_t token, int what, const pypmix_given *given)
{
    pypmix_call *call = pypmix_call_new();
    pypmix_given copy = *given;

    if (NULL == call) {
        pypmix_given_free(&copy);
        return PMIX_ERR_NOMEM;
    }
    call->token = token;
    start(call, queue, false, what, given);
    return PMIX_SUCCESS;
}
