/* Publish, lookup and unpublish. */

#include "shim.h"

#include <stdlib.h>
#include <string.h>

/*
 * The library frees what it hands to this callback when that returns. The values are moved out instead of copied: an
 * undefined value is left in the place of each, which owns nothing.
 */
static void found(pmix_status_t status, pmix_pdata_t data[], size_t ndata, void *cbdata)
{
    pmix_pdata_t *taken = NULL;

    if (NULL == data) {
        ndata = 0;
    }
    if (0 < ndata) {
        taken = pypmix_alloc(ndata, sizeof(*taken));
        if (NULL == taken) {
            status = PMIX_ERR_NOMEM;
            ndata = 0;
        } else {
            memcpy(taken, data, ndata * sizeof(*taken));
            for (size_t n = 0; n < ndata; n++) {
                memset(&data[n].value, 0, sizeof(data[n].value));
            }
        }
    }
    pypmix_data_done(status, taken, ndata, cbdata);
}

static void start_publish(pypmix_call *call)
{
    if (NULL == pypmix_lib.Publish_nb) {
        pypmix_begun(call, PMIX_ERR_NOT_SUPPORTED);
    } else {
        pypmix_begun(call, pypmix_lib.Publish_nb(call->infos, call->ninfos, pypmix_op_done, call));
    }
}

static void start_lookup(pypmix_call *call)
{
    if (NULL == pypmix_lib.Lookup_nb) {
        pypmix_begun(call, PMIX_ERR_NOT_SUPPORTED);
    } else {
        pypmix_begun(call, pypmix_lib.Lookup_nb(call->keys, call->infos, call->ninfos, found, call));
    }
}

static void start_unpublish(pypmix_call *call)
{
    if (NULL == pypmix_lib.Unpublish_nb) {
        pypmix_begun(call, PMIX_ERR_NOT_SUPPORTED);
    } else {
        pypmix_begun(call, pypmix_lib.Unpublish_nb(call->keys, call->infos, call->ninfos, pypmix_op_done, call));
    }
}

static void run(
    void (*start)(pypmix_call *), pypmix_call *call, pypmix_queue *queue, char **keys, pmix_info_t *infos,
    size_t ninfos, double timeout)
{
    pypmix_begin(call, queue, true, NULL, 0, keys, infos, ninfos);
    start(call);
    pypmix_wait(call, timeout);
    if (PMIX_SUCCESS == call->status) {
        pypmix_drop_inputs(call);
    }
}

static pmix_status_t submit(
    void (*start)(pypmix_call *), pypmix_queue *queue, uint64_t token, char **keys, pmix_info_t *infos, size_t ninfos)
{
    pypmix_call *call = pypmix_call_new();

    if (NULL == call) {
        pypmix_strings_free(keys);
        pypmix_infos_free(infos, ninfos);
        return PMIX_ERR_NOMEM;
    }
    call->token = token;
    pypmix_begin(call, queue, false, NULL, 0, keys, infos, ninfos);
    start(call);
    return PMIX_SUCCESS;
}

void pypmix_publish(
    pypmix_call *call, pypmix_queue *queue, char **keys, pmix_info_t *infos, size_t ninfos, double timeout)
{
    run(start_publish, call, queue, keys, infos, ninfos, timeout);
}

void pypmix_lookup(
    pypmix_call *call, pypmix_queue *queue, char **keys, pmix_info_t *infos, size_t ninfos, double timeout)
{
    run(start_lookup, call, queue, keys, infos, ninfos, timeout);
}

void pypmix_unpublish(
    pypmix_call *call, pypmix_queue *queue, char **keys, pmix_info_t *infos, size_t ninfos, double timeout)
{
    run(start_unpublish, call, queue, keys, infos, ninfos, timeout);
}

pmix_status_t pypmix_publish_submit(
    pypmix_queue *queue, uint64_t token, char **keys, pmix_info_t *infos, size_t ninfos)
{
    return submit(start_publish, queue, token, keys, infos, ninfos);
}

pmix_status_t pypmix_lookup_submit(
    pypmix_queue *queue, uint64_t token, char **keys, pmix_info_t *infos, size_t ninfos)
{
    return submit(start_lookup, queue, token, keys, infos, ninfos);
}

pmix_status_t pypmix_unpublish_submit(
    pypmix_queue *queue, uint64_t token, char **keys, pmix_info_t *infos, size_t ninfos)
{
    return submit(start_unpublish, queue, token, keys, infos, ninfos);
}
