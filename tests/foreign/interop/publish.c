/* Rank 0 publishes, the last rank looks up, in the blocking forms; both try what must not work. */
#include "common.h"

static void info_of(pmix_info_t *info, const char *key, pmix_data_type_t type)
{
    memset(info, 0, sizeof *info);
    strncpy(info->key, key, PMIX_MAX_KEYLEN);
    info->value.type = type;
}

static void note_lookup(const char *name, const char *const *keys, size_t count, pmix_info_t *infos, size_t ninfos)
{
    pmix_pdata_t *data;
    pmix_status_t status;
    char text[1024] = "";

    PMIX_PDATA_CREATE(data, count);
    for (size_t n = 0; n < count; n++) {
        strncpy(data[n].key, keys[n], PMIX_MAX_KEYLEN);
    }
    status = PMIx_Lookup(data, count, infos, ninfos);
    for (size_t n = 0; n < count; n++) {
        size_t end = strlen(text);

        if (data[n].value.type == PMIX_STRING) {
            snprintf(text + end, sizeof text - end, " %s=%s@%u", keys[n], data[n].value.data.string, data[n].proc.rank);
        } else if (data[n].value.type == PMIX_UINT32) {
            snprintf(text + end, sizeof text - end, " %s=%u@%u", keys[n], data[n].value.data.uint32, data[n].proc.rank);
        }
    }
    note(name, "%d%s", status, text);
    PMIX_PDATA_FREE(data, count);
}

int main(void)
{
    static const char *const all[] = {"c.port", "c.number", "c.gone"};
    pmix_info_t infos[4], wait[2];
    char *taken[] = {"c.port", NULL};

    begin();
    int_info(&wait[0], PMIX_WAIT, 0);
    int_info(&wait[1], PMIX_TIMEOUT, 10);
    if (me.rank == 0) {
        usleep(200000);
        info_of(&infos[0], "c.port", PMIX_STRING);
        infos[0].value.data.string = "tcp://1";
        info_of(&infos[1], "c.number", PMIX_UINT32);
        infos[1].value.data.uint32 = 7;
        info_of(&infos[2], PMIX_RANGE, PMIX_DATA_RANGE);
        infos[2].value.data.range = PMIX_RANGE_SESSION;
        info_of(&infos[3], PMIX_PERSISTENCE, PMIX_PERSIST);
        infos[3].value.data.persist = PMIX_PERSIST_APP;
        note("publish", "%d", PMIx_Publish(infos, 4));
    }
    note_lookup("late", all, 2, wait, 2);
    must("fence", meet(false));
    note_lookup("partial", all, 3, NULL, 0);
    note_lookup("gone", all + 2, 1, NULL, 0);
    int_info(&wait[1], PMIX_TIMEOUT, 1);
    note_lookup("in-time", all + 2, 1, wait, 2);
    must("fence", meet(false));
    if (me.rank == 0) {
        note("again", "%d", PMIx_Publish(infos, 4));
    } else {
        note("foreign", "%d", PMIx_Unpublish(taken, NULL, 0));
    }
    must("fence", meet(false));
    if (me.rank == 0) {
        note("unpublish", "%d", PMIx_Unpublish(taken, NULL, 0));
    }
    must("fence", meet(false));
    note_lookup("after", all, 2, NULL, 0);
    must("fence", meet(false));
    if (me.rank == 0) {
        note("all", "%d", PMIx_Unpublish(NULL, NULL, 0));
    }
    must("fence", meet(false));
    note_lookup("end", all + 1, 1, NULL, 0);
    must("last fence", meet(false));
    finish();
    return 0;
}
