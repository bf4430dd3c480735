/* Rank 0 hears and raises events together with rank 1, which is of another language; see event_rank.py.
 *
 * A note "heard-N" says: which handler, the code, the rank of the source, the keys of the event's infos that are not
 * the library's own, and the keys of the results.
 */
#include "common.h"

static volatile int count;
static volatile int last;

static void answer(pmix_status_t status, void *data)
{
    (void) status;
    (void) data;
}

static void heard(const char *label, pmix_status_t status, const pmix_proc_t *source, pmix_info_t infos[], size_t ninfos,
                  pmix_info_t results[], size_t nresults)
{
    char key[32], text[512];
    size_t n, used = 0;

    text[0] = 0;
    for (n = 0; n < ninfos; n++)
        if (strcmp(infos[n].key, PMIX_EVENT_HDLR_NAME) && strncmp(infos[n].key, "pmix.srvr", 9))
            used += (size_t) snprintf(text + used, sizeof text - used, " %s", infos[n].key);
    used += (size_t) snprintf(text + used, sizeof text - used, " |");
    for (n = 0; n < nresults; n++)
        used += (size_t) snprintf(text + used, sizeof text - used, " %s", results[n].key);
    snprintf(key, sizeof key, "heard-%d", count++);
    note(key, "%s %d %u%s", label, status, source->rank, text);
    last = status;
}

#define ARGUMENTS                                                                                                      \
    size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t infos[], size_t ninfos,                    \
        pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *data

static void single(ARGUMENTS)
{
    static pmix_info_t result;

    (void) id;
    heard("single", status, source, infos, ninfos, results, nresults);
    flag_info(&result, "c.result");
    done(PMIX_EVENT_PARTIAL_ACTION_TAKEN, &result, 1, answer, NULL, data);
}

static void multi(ARGUMENTS)
{
    (void) id;
    heard("multi", status, source, infos, ninfos, results, nresults);
    done(PMIX_EVENT_NO_ACTION_TAKEN, NULL, 0, NULL, NULL, data);
}

static void fallback(ARGUMENTS)
{
    (void) id;
    heard("default", status, source, infos, ninfos, results, nresults);
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static size_t on(pmix_status_t *codes, size_t ncodes, const char *name, pmix_notification_fn_t handler)
{
    pmix_info_t info;
    pmix_status_t id;

    memset(&info, 0, sizeof info);
    strncpy(info.key, PMIX_EVENT_HDLR_NAME, PMIX_MAX_KEYLEN);
    info.value.type = PMIX_STRING;
    info.value.data.string = (char *) name;
    id = PMIx_Register_event_handler(codes, ncodes, &info, 1, handler, NULL, NULL);
    if (id < 0)
        must(name, id);
    return (size_t) id;
}

static void raise(pmix_status_t code, pmix_data_range_t range, pmix_proc_t *targets, size_t ntargets)
{
    pmix_info_t infos[2];
    pmix_data_array_t array;
    pmix_status_t status;
    char key[32];

    flag_info(&infos[0], "c.flag");
    memset(&infos[1], 0, sizeof infos[1]);
    strncpy(infos[1].key, PMIX_EVENT_CUSTOM_RANGE, PMIX_MAX_KEYLEN);
    if (ntargets == 1) {
        infos[1].value.type = PMIX_PROC;
        infos[1].value.data.proc = targets;
    } else {
        array.type = PMIX_PROC;
        array.size = ntargets;
        array.array = targets;
        infos[1].value.type = PMIX_DATA_ARRAY;
        infos[1].value.data.darray = &array;
    }
    snprintf(key, sizeof key, "raise%d", code);
    status = PMIx_Notify_event(code, &me, range, infos, ntargets ? 2 : 1, NULL, NULL);
    note(key, "%d", status == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : status);
}

/* Wait until an event has come whose code says that it is the last one of its phase. */
static void await(int code)
{
    double end = now() + 10;

    while (last != code && now() < end)
        usleep(10000);
    note("await", "%d %s", code, last == code ? "ok" : "late");
}

int main(void)
{
    pmix_status_t one = -4242, two[] = {-4242, -4243}, end[] = {-4298, -4299};
    pmix_proc_t targets[2];
    size_t first;

    begin();
    raise(-4240, PMIX_RANGE_SESSION, NULL, 0);
    must("fence", meet(false));
    first = on(&one, 1, "c.single", single);
    on(two, 2, "c.multi", multi);
    on(NULL, 0, "c.default", fallback);
    on(end, 2, "c.end", multi);
    must("fence", meet(false));
    await(-4298);
    name_proc(&targets[0], me.nspace, 1);
    name_proc(&targets[1], "nowhere", PMIX_RANK_WILDCARD);
    raise(-4250, PMIX_RANGE_NAMESPACE, NULL, 0);
    raise(-4251, PMIX_RANGE_CUSTOM, targets, 1);
    raise(-4252, PMIX_RANGE_CUSTOM, targets, 2);
    name_proc(&targets[0], me.nspace, 0);
    raise(-4253, PMIX_RANGE_CUSTOM, targets, 2);
    name_proc(&targets[0], me.nspace, PMIX_RANK_WILDCARD);
    raise(-4254, PMIX_RANGE_CUSTOM, targets, 1);
    raise(-4259, PMIX_RANGE_LOCAL, NULL, 0);
    must("deregister", PMIx_Deregister_event_handler(first, NULL, NULL));
    must("fence", meet(false));
    await(-4299);
    must("fence", meet(false));
    finish();
    return 0;
}
