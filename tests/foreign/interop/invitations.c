/* Invites all others to a group, or joins or declines as the argument says, together with ranks of another language. */
#include "common.h"

#define GROUP "acme.mixed"

static volatile int ended;
static pmix_group_opt_t answer = PMIX_GROUP_ACCEPT;

#define ARGUMENTS                                                                                                      \
    size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t infos[], size_t ninfos,                    \
        pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *data

static void invited(ARGUMENTS)
{
    const char *group = "";
    size_t n;

    (void) id;
    (void) status;
    (void) results;
    (void) nresults;
    for (n = 0; n < ninfos; n++)
        if (!strcmp(infos[n].key, PMIX_GROUP_ID))
            group = infos[n].value.data.string;
    if (source->rank != me.rank) {
        note("invited", "%s %u", group, source->rank);
        note("answer", "%d", PMIx_Group_join_nb(group, source, answer, NULL, 0, NULL, NULL));
    }
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void over(ARGUMENTS)
{
    size_t n, used = 0, count = 0, each;
    pmix_proc_t *members = NULL;
    char text[256] = "";

    (void) id;
    (void) results;
    (void) nresults;
    for (n = 0; n < ninfos; n++)
        if (!strcmp(infos[n].key, PMIX_GROUP_MEMBERSHIP)) {
            members = infos[n].value.data.darray->array;
            count = infos[n].value.data.darray->size;
        }
    for (each = 0; each < count; each++)
        used += (size_t) snprintf(text + used, sizeof text - used, " %u", members[each].rank);
    note("over", "%d %u |%s", status, source->rank, text);
    ended = status;
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void on(pmix_status_t *codes, size_t ncodes, pmix_notification_fn_t handler)
{
    pmix_status_t id = PMIx_Register_event_handler(codes, ncodes, NULL, 0, handler, NULL, NULL);

    if (id < 0)
        must("register", id);
}

static void invite(bool optional)
{
    pmix_info_t info, *results = NULL;
    size_t nresults = 0;
    pmix_proc_t procs[16];
    uint32_t rank;

    flag_info(&info, PMIX_GROUP_OPTIONAL);
    for (rank = 0; rank < job_size; rank++)
        name_proc(&procs[rank], me.nspace, rank);
    note("invite", "%d", PMIx_Group_invite(GROUP, procs, job_size, &info, optional ? 1 : 0, &results, &nresults));
}

int main(int argc, char **argv)
{
    pmix_status_t outcomes[] = {PMIX_GROUP_CONSTRUCT_COMPLETE, PMIX_GROUP_CONSTRUCT_ABORT};
    pmix_status_t asked = PMIX_GROUP_INVITED;
    const char *role = argc > 1 ? argv[1] : "join";
    double limit;
    pmix_proc_t group;

    begin();
    if (!strcmp(role, "decline"))
        answer = PMIX_GROUP_DECLINE;
    on(&asked, 1, invited);
    on(outcomes, 2, over);
    must("meet", meet(false));
    if (!strncmp(role, "invite", 6))
        invite(!strcmp(role, "invite-some"));
    limit = now() + 15;
    while (!ended && answer == PMIX_GROUP_ACCEPT && now() < limit)
        usleep(2000);
    if (ended == PMIX_GROUP_CONSTRUCT_COMPLETE) {
        name_proc(&group, GROUP, PMIX_RANK_WILDCARD);
        note("fence", "%d", PMIx_Fence(&group, 1, NULL, 0));
        note("destruct", "%d", PMIx_Group_destruct(GROUP, NULL, 0));
    }
    must("meet", meet(false));
    finish();
    return 0;
}
