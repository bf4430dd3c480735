/* Rank 0 notes which events of ended procs it receives until rank 2, which is of another language, says that it has
 * received those of rank 1. */
#include "common.h"

#define SAYS_SO (-4242)

static volatile int over, terminated;

static void heard(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t infos[], size_t ninfos,
                  pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void) id;
    (void) source;
    (void) infos;
    (void) ninfos;
    (void) results;
    (void) nresults;
    if (status == SAYS_SO)
        over = 1;
    else
        terminated++;
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

int main(void)
{
    pmix_status_t codes[] = {PMIX_PROC_TERMINATED, -201, SAYS_SO};
    pmix_status_t id;
    double limit;

    begin();
    id = PMIx_Register_event_handler(codes, 3, NULL, 0, heard, NULL, NULL);
    if (id < 0)
        must("register", id);
    must("meet", meet(false));
    limit = now() + 20;
    while (me.rank == 0 && !over && now() < limit)
        usleep(2000);
    note("heard", "%d", terminated);
    note("over", "%d", over);
    finish();
    return 0;
}
