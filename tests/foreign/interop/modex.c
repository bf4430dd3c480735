/* Put, commit, fence and get of every rank by every rank, and the job info. */
#include "common.h"

int main(void)
{
    char text[64];
    pmix_proc_t proc;
    pmix_info_t node[2];
    static const char *const job_keys[] = {PMIX_JOB_SIZE, PMIX_UNIV_SIZE, PMIX_MAX_PROCS, PMIX_JOB_NUM_APPS,
                                           PMIX_NUM_NODES, PMIX_JOBID, PMIX_SESSION_ID, PMIX_LOCAL_PEERS,
                                           PMIX_LOCAL_SIZE, PMIX_NODE_LIST, PMIX_APP_SIZE, PMIX_PARENT_ID};
    static const char *const rank_keys[] = {PMIX_RANK, PMIX_LOCAL_RANK, PMIX_NODE_RANK, PMIX_APPNUM, PMIX_HOSTNAME,
                                            PMIX_NODEID, PMIX_GLOBAL_RANK, PMIX_APP_RANK};

    begin();
    snprintf(text, sizeof text, "of %u", me.rank);
    put_string(PMIX_GLOBAL, "global", text);
    put_string(PMIX_LOCAL, "local", text);
    put_string(PMIX_REMOTE, "remote", text);
    put_string(PMIX_INTERNAL, "internal", text);
    note_get("own-uncommitted", &me, "global", NULL, 0);
    must("commit", PMIx_Commit());
    must("fence", meet(true));
    for (uint32_t rank = 0; rank < job_size; rank++) {
        static const char *const keys[] = {"global", "local", "remote", "internal"};
        for (size_t k = 0; k < 4; k++) {
            pmix_info_t immediate;
            flag_info(&immediate, PMIX_IMMEDIATE);
            name_proc(&proc, me.nspace, rank);
            snprintf(text, sizeof text, "%s-%u", keys[k], rank);
            note_get(text, &proc, keys[k], &immediate, 1);
        }
        for (size_t k = 0; k < sizeof rank_keys / sizeof *rank_keys; k++) {
            name_proc(&proc, me.nspace, rank);
            snprintf(text, sizeof text, "%s-%u", rank_keys[k], rank);
            note_get(text, &proc, rank_keys[k], NULL, 0);
        }
    }
    name_proc(&proc, me.nspace, PMIX_RANK_WILDCARD);
    for (size_t k = 0; k < sizeof job_keys / sizeof *job_keys; k++)
        note_get(job_keys[k], &proc, job_keys[k], NULL, 0);
    flag_info(&node[0], PMIX_NODE_INFO);
    gethostname(text, sizeof text);
    memset(&node[1], 0, sizeof node[1]);
    strcpy(node[1].key, PMIX_HOSTNAME);
    node[1].value.type = PMIX_STRING;
    node[1].value.data.string = text;
    note_get("node-local-size", &proc, PMIX_LOCAL_SIZE, node, 2);
    note_get("node-local-peers", &proc, PMIX_LOCAL_PEERS, node, 2);
    flag_info(&node[0], PMIX_APP_INFO);
    memset(&node[1], 0, sizeof node[1]);
    strcpy(node[1].key, PMIX_APPNUM);
    node[1].value.type = PMIX_UINT32;
    note_get("app-size", &proc, PMIX_APP_SIZE, node, 2);
    must("last fence", meet(false));
    finish();
    return 0;
}
