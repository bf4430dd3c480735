/* All the ways to ask for what nobody has, and a value that comes late. */
#include "common.h"

int main(void)
{
    pmix_proc_t peer, other;
    pmix_info_t info;
    char text[64];

    begin();
    name_proc(&peer, me.nspace, (me.rank + 1) % job_size);
    snprintf(text, sizeof text, "of %u", me.rank);
    put_string(PMIX_GLOBAL, "something", text);
    must("commit", PMIx_Commit());
    must("fence", meet(true));

    note_get("plain", &peer, "no.such.key", NULL, 0);
    flag_info(&info, PMIX_IMMEDIATE);
    note_get("immediate", &peer, "no.such.key", &info, 1);
    flag_info(&info, PMIX_OPTIONAL);
    note_get("optional", &peer, "no.such.key", &info, 1);
    int_info(&info, PMIX_TIMEOUT, 1);
    note_get("timeout", &peer, "no.such.key", &info, 1);
    note_get("own", &me, "no.such.key", NULL, 0);
    flag_info(&info, PMIX_IMMEDIATE);
    name_proc(&other, "no.such.nspace", 0);
    note_get("nspace", &other, "key", &info, 1);
    name_proc(&other, me.nspace, job_size + 5);
    note_get("rank", &other, "key", &info, 1);
    name_proc(&other, me.nspace, PMIX_RANK_WILDCARD);
    note_get("job", &other, PMIX_PARENT_ID, NULL, 0);
    note_get("reserved", &peer, PMIX_FABRIC_ENDPT, NULL, 0);

    must("fence", meet(false));
    if (me.rank == 1) {
        usleep(300000);
        put_string(PMIX_GLOBAL, "late", "there");
        must("commit", PMIx_Commit());
    } else if (me.rank == 0) {
        name_proc(&peer, me.nspace, 1);
        int_info(&info, PMIX_TIMEOUT, 10);
        note_get("late", &peer, "late", &info, 1);
    }
    must("last fence", meet(false));

    /* A changed value: asked for plainly, and with a refresh. */
    put_string(PMIX_GLOBAL, "something", "changed");
    must("commit", PMIx_Commit());
    must("fence", meet(true));
    name_proc(&peer, me.nspace, (me.rank + 1) % job_size);
    note_get("changed-first-asked", &peer, "something", NULL, 0);
    must("fence", meet(false));
    put_string(PMIX_GLOBAL, "something", "again");
    must("commit", PMIx_Commit());
    must("fence", meet(true));
    note_get("changed-cached", &peer, "something", NULL, 0);
    flag_info(&info, PMIX_GET_REFRESH_CACHE);
    note_get("changed-refreshed", &peer, "something", &info, 1);
    must("last fence", meet(false));
    finish();
    return 0;
}
