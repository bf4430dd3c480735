/*
 * Tools: a process that no server has launched, or one that has several. The library has what they ask in a blocking
 * form only, so each runs on a thread of its own.
 */

#include "shim.h"
#include "types.h"

#include <stdlib.h>

pmix_status_t pypmix_tool_init(pmix_proc_t *proc, pmix_info_t *infos, size_t ninfos)
{
    return NULL == pypmix_lib.tool_init ? PMIX_ERR_NOT_SUPPORTED : pypmix_lib.tool_init(proc, infos, ninfos);
}

pmix_status_t pypmix_tool_finalize(void)
{
    return NULL == pypmix_lib.tool_finalize ? PMIX_ERR_NOT_SUPPORTED : pypmix_end_raised(pypmix_lib.tool_finalize);
}

static void *attach_work(void *cbdata)
{
    pypmix_call *call = cbdata;
    pmix_data_array_t results = {.type = PROC, .size = 1, .array = pypmix_alloc(1, sizeof(pmix_proc_t))};
    pmix_status_t status = PMIX_ERR_NOMEM;
    pmix_proc_t self;

    if (NULL != results.array) {
        status = pypmix_lib.tool_attach_to_server(&self, results.array, call->given.infos, call->given.ninfos);
    }
    pypmix_done(status, NULL, &results, call);
    return NULL;
}

/* `items` is the server */
static void *set_work(void *cbdata)
{
    pypmix_call *call = cbdata;

    pypmix_op_done(
        pypmix_lib.tool_set_server(call->given.items.array, call->given.infos, call->given.ninfos), call);
    return NULL;
}

static void *servers_work(void *cbdata)
{
    pmix_data_array_t results = {.type = PROC};
    pmix_proc_t *servers = NULL;
    pmix_status_t status = pypmix_lib.tool_get_servers(&servers, &results.size);

    results.array = servers;
    if (NULL == servers) {
        results.size = 0;
    }
    pypmix_done(status, NULL, &results, cbdata);
    return NULL;
}

/* `items` is the server */
static void *disconnect_work(void *cbdata)
{
    pypmix_call *call = cbdata;

    pypmix_op_done(pypmix_lib.tool_disconnect(call->given.items.array), call);
    return NULL;
}

#define APART(name, symbol, work)                               \
    pmix_status_t pypmix_ask_##name(pypmix_call *call)          \
    {                                                           \
        if (NULL == pypmix_lib.symbol) {                        \
            return PMIX_ERR_NOT_SUPPORTED;                      \
        }                                                       \
        atomic_store(&call->serverless, true);                  \
        return pypmix_thread(work, call) ? PMIX_SUCCESS : PMIX_ERR_NOMEM; \
    }

APART(tool_attach, tool_attach_to_server, attach_work)
APART(tool_set_server, tool_set_server, set_work)
APART(tool_get_servers, tool_get_servers, servers_work)
APART(tool_disconnect, tool_disconnect, disconnect_work)
