/* Rank 0 makes every request that a server passes on to its host, and notes what comes back. */
#include "common.h"

static void text_info(pmix_info_t *info, const char *key, const char *text)
{
    memset(info, 0, sizeof *info);
    strncpy(info->key, key, PMIX_MAX_KEYLEN);
    info->value.type = PMIX_STRING;
    info->value.data.string = (char *) text;
}

/* Append the infos of an answer: key=value. */
static const char *told(pmix_info_t *infos, size_t count)
{
    static char text[8192];
    size_t end = 0;

    text[0] = '\0';
    for (size_t n = 0; n < count && end < sizeof text - 600; n++) {
        pmix_value_t *value = &infos[n].value;

        end += snprintf(text + end, sizeof text - end, " %s=", infos[n].key);
        if (value->type == PMIX_STRING) {
            end += snprintf(text + end, sizeof text - end, "%s", value->data.string ? value->data.string : "(null)");
        } else if (value->type == PMIX_UINT32) {
            end += snprintf(text + end, sizeof text - end, "%u", value->data.uint32);
        } else if (value->type == PMIX_DATA_ARRAY && value->data.darray->type == PMIX_PROC_INFO) {
            pmix_proc_info_t *rows = value->data.darray->array;

            for (size_t row = 0; row < value->data.darray->size; row++) {
                end += snprintf(text + end, sizeof text - end, "%s%u@%s/%u", row ? "," : "", rows[row].proc.rank,
                                rows[row].hostname, rows[row].state);
            }
        } else {
            end += snprintf(text + end, sizeof text - end, "type %u", value->type);
        }
    }
    return text;
}

static void ask(const char *name, const char *const *keys, const char *nspace)
{
    pmix_query_t query;
    pmix_info_t *infos = NULL, qualifier;
    size_t count = 0;
    pmix_status_t status;

    memset(&query, 0, sizeof query);
    query.keys = (char **) keys;
    if (nspace) {
        text_info(&qualifier, PMIX_NSPACE, nspace);
        query.qualifiers = &qualifier;
        query.nqual = 1;
    }
    status = PMIx_Query_info(&query, 1, &infos, &count);
    note(name, "%d%s", status, told(infos, count));
}

static void queries(void)
{
    static const char *const namespaces[] = {PMIX_QUERY_NAMESPACES, NULL};
    static const char *const host[] = {"acme.host", NULL};
    static const char *const both[] = {PMIX_QUERY_NAMESPACES, "acme.host", NULL};
    static const char *const partial[] = {"acme.host", "acme.gone", NULL};
    static const char *const gone[] = {"acme.gone", NULL};
    static const char *const table[] = {PMIX_QUERY_PROC_TABLE, NULL};

    ask("namespaces", namespaces, NULL);
    ask("host", host, NULL);
    ask("both", both, NULL);
    ask("partial", partial, NULL);
    ask("gone", gone, NULL);
    ask("table", table, me.nspace);
    ask("table-gone", table, "gone");
}

static void resolutions(void)
{
    pmix_proc_t *procs = NULL;
    size_t count = 0;
    char *nodes = NULL;
    pmix_status_t status = PMIx_Resolve_peers(NULL, me.nspace, &procs, &count);

    note("peers", "%d %zu %u %u", status, count, count ? procs[0].rank : 99, count > 1 ? procs[1].rank : 99);
    status = PMIx_Resolve_peers("here", me.nspace, &procs, &count);
    note("peers-here", "%d %zu", status, count);
    status = PMIx_Resolve_nodes(me.nspace, &nodes);
    note("nodes", "%d %s", status, nodes ? nodes : "(null)");
}

static void control(void)
{
    pmix_info_t infos[3], *results = NULL;
    pmix_proc_t target;
    size_t count = 0;
    pmix_status_t status;

    text_info(&infos[0], PMIX_LOG_STDERR, "a line");
    flag_info(&infos[1], PMIX_LOG_GENERATE_TIMESTAMP);
    note("log", "%d", PMIx_Log(infos, 1, &infos[1], 1));
    text_info(&infos[0], "acme.refused", "x");
    note("log-refused", "%d", PMIx_Log(infos, 1, NULL, 0));

    name_proc(&target, me.nspace, 1);
    int_info(&infos[0], PMIX_JOB_CTRL_SIGNAL, 10);
    status = PMIx_Job_control(&target, 1, infos, 1, &results, &count);
    note("signal", "%d%s", status, told(results, count));
    results = NULL, count = 0;
    flag_info(&infos[0], PMIX_JOB_CTRL_PAUSE);
    status = PMIx_Job_control(NULL, 0, infos, 1, &results, &count);
    note("pause", "%d%s", status, told(results, count));

    results = NULL, count = 0;
    int_info(&infos[0], PMIX_ALLOC_NUM_NODES, 2);
    status = PMIx_Allocation_request(PMIX_ALLOC_NEW, infos, 1, &results, &count);
    note("allocation", "%d%s", status, told(results, count));

    results = NULL, count = 0;
    flag_info(&infos[0], PMIX_MONITOR_HEARTBEAT);
    text_info(&infos[1], PMIX_MONITOR_ID, "mine");
    status = PMIx_Process_monitor(infos, PMIX_MONITOR_HEARTBEAT_ALERT, infos + 1, 1, &results, &count);
    note("monitor", "%d%s", status, told(results, count));
    PMIx_Heartbeat();
}

static void security(void)
{
    pmix_byte_object_t credential = {NULL, 0};
    pmix_info_t infos[1], *results = NULL;
    size_t count = 0;
    pmix_status_t status;

    text_info(&infos[0], PMIX_CRED_TYPE, "token");
    status = PMIx_Get_credential(infos, 1, &credential);
    note("credential", "%d %.*s", status, (int) credential.size, credential.bytes ? credential.bytes : "");
    status = PMIx_Validate_credential(&credential, NULL, 0, &results, &count);
    note("validation", "%d%s", status, told(results, count));
    results = NULL, count = 0;
    credential.bytes = "forged";
    credential.size = 6;
    status = PMIx_Validate_credential(&credential, NULL, 0, &results, &count);
    note("forged", "%d%s", status, told(results, count));
}

static void fabric(void)
{
    pmix_fabric_t one;
    pmix_status_t status;

    memset(&one, 0, sizeof one);
    status = PMIx_Fabric_register(&one, NULL, 0);
    note("fabric", "%d%s", status, told(one.info, one.ninfo));
    one.index = 3;
    one.info = NULL;
    one.ninfo = 0;
    status = PMIx_Fabric_update(&one);
    note("update", "%d%s", status, told(one.info, one.ninfo));
}

int main(void)
{
    begin();
    if (me.rank == 0) {
        queries();
        resolutions();
        control();
        security();
        fabric();
    }
    must("last fence", meet(false));
    finish();
    return 0;
}
