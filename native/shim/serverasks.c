/* What a host asks of the server library. What is given for each is said where it is asked. */

#include "shim.h"
#include "types.h"

#define GIVEN(name) call->given.name.array, call->given.name.size
#define INFOS call->given.infos, call->given.ninfos
#define NSPACE ((pmix_proc_t *) call->given.items.array)->nspace
#define NAME (NULL == call->given.more.array ? NULL : ((char **) call->given.more.array)[0])

#define ASK(name, symbol, ...)                                                                            \
    pmix_status_t pypmix_ask_##name(pypmix_call *call)                                                    \
    {                                                                                                     \
        return NULL == pypmix_lib.symbol ? PMIX_ERR_NOT_SUPPORTED : pypmix_lib.symbol(__VA_ARGS__, call); \
    }

/* of functions that return nothing, since their callback always comes */
#define TELL(name, symbol, ...)                            \
    pmix_status_t pypmix_ask_##name(pypmix_call *call)     \
    {                                                      \
        if (NULL == pypmix_lib.symbol) {                   \
            return PMIX_ERR_NOT_SUPPORTED;                 \
        }                                                  \
        pypmix_lib.symbol(__VA_ARGS__, call);              \
        return PMIX_SUCCESS;                               \
    }

/* of functions that block, each on a thread for its time */
#define APART(name, symbol, ...)                                          \
    static void *name##_work(void *cbdata)                                \
    {                                                                     \
        pypmix_call *call = cbdata;                                       \
                                                                          \
        pypmix_op_done(pypmix_lib.symbol(__VA_ARGS__), call);             \
        return NULL;                                                      \
    }                                                                     \
                                                                          \
    pmix_status_t pypmix_ask_##name(pypmix_call *call)                    \
    {                                                                     \
        if (NULL == pypmix_lib.symbol) {                                  \
            return PMIX_ERR_NOT_SUPPORTED;                                \
        }                                                                 \
        return pypmix_thread(name##_work, call) ? PMIX_SUCCESS : PMIX_ERR_NOMEM; \
    }

static void modex_done(pmix_status_t status, char *data, size_t ndata, void *cbdata)
{
    pmix_data_array_t none = {0};
    pmix_value_t *value = NULL;

    if (PMIX_SUCCESS == status && NULL != data) {
        value = pypmix_value_of(BYTE_OBJECT, data, ndata, &status);
    }
    pypmix_done(status, value, &none, cbdata);
}

static void setup_done(
    pmix_status_t status, pmix_info_t info[], size_t ninfo, void *cbdata, pmix_op_cbfunc_t release,
    void *release_cbdata)
{
    pmix_data_array_t results = pypmix_moved_infos(info, ninfo, &status);

    if (NULL != release) {
        release(PMIX_SUCCESS, release_cbdata);
    }
    pypmix_done(status, NULL, &results, cbdata);
}

static pmix_status_t store_all(pypmix_call *call)
{
    pmix_status_t status = PMIX_SUCCESS;

    for (size_t n = 0; PMIX_SUCCESS == status && n < call->given.ninfos; n++) {
        pmix_info_t *info = &call->given.infos[n];
        status = pypmix_lib.Store_internal(call->given.items.array, info->key, &info->value);
    }
    return status;
}

/* `items`: a proc with the nspace, and `number` that of its procs here; the same proc */
ASK(register_nspace, server_register_nspace, NSPACE, (int) call->given.number, INFOS, pypmix_op_done)
TELL(deregister_nspace, server_deregister_nspace, NSPACE, pypmix_op_done)
/* the client, and `number` its uid in the lower 32 bits and its gid above; the client */
ASK(register_client, server_register_client, call->given.items.array, (uid_t) (uint32_t) call->given.number,
    (gid_t) (uint32_t) ((uint64_t) call->given.number >> 32), NULL, pypmix_op_done)
TELL(deregister_client, server_deregister_client, call->given.items.array, pypmix_op_done)
/* the proc; the value is a byte object */
ASK(dmodex_request, server_dmodex_request, call->given.items.array, modex_done)
/* a proc with the nspace; the results are infos. The same, without results. */
ASK(setup_application, server_setup_application, NSPACE, INFOS, setup_done)
ASK(setup_local_support, server_setup_local_support, NSPACE, INFOS, pypmix_op_done)
/* the source, and `more` one byte object, and `number` the channel */
ASK(iof_deliver, server_IOF_deliver, call->given.items.array, (uint16_t) call->given.number, call->given.more.array,
    INFOS, pypmix_op_done)
/* nothing; the results are infos. Infos with the inventory. */
ASK(collect_inventory, server_collect_inventory, INFOS, pypmix_infos_done)
ASK(deliver_inventory, server_deliver_inventory, GIVEN(items), INFOS, pypmix_op_done)
/* nothing; the infos are the resources */
ASK(register_resources, server_register_resources, INFOS, pypmix_op_done)
ASK(deregister_resources, server_deregister_resources, INFOS, pypmix_op_done)
/* the members, and `more` the name; nothing, and `more` the name */
APART(define_process_set, server_define_process_set, GIVEN(items), NAME)
APART(delete_process_set, server_delete_process_set, NAME)

/* the proc; each info is a key and its value */
static void *store_internal_work(void *cbdata)
{
    pypmix_op_done(store_all(cbdata), cbdata);
    return NULL;
}

pmix_status_t pypmix_ask_store_internal(pypmix_call *call)
{
    if (NULL == pypmix_lib.Store_internal) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    return pypmix_thread(store_internal_work, call) ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
}
