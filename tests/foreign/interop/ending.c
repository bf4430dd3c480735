/* The last rank ends in the way that the argument names while the others wait for it in a fence. */
#include "common.h"

#include <signal.h>

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "finalize";
    pmix_proc_t job;
    pmix_info_t info;
    double began;
    pmix_status_t status;

    begin();
    must("fence", meet(false));
    if (me.rank == job_size - 1) {
        usleep(300000);
        if (!strcmp(how, "exit"))
            _exit(0);
        if (!strcmp(how, "fail"))
            _exit(7);
        if (!strcmp(how, "kill"))
            kill(getpid(), SIGKILL);
        if (!strcmp(how, "abort")) {
            note("abort", "%d", PMIx_Abort(9, "the C rank gave up", NULL, 0));
            sleep(20);
        }
        if (!strcmp(how, "finalize")) {
            finish();
            return 0;
        }
        if (!strcmp(how, "absent")) {
            sleep(3);
            finish();
            return 0;
        }
    }
    name_proc(&job, me.nspace, PMIX_RANK_WILDCARD);
    int_info(&info, PMIX_TIMEOUT, 2);
    began = now();
    status = PMIx_Fence(&job, 1, strcmp(how, "absent") ? NULL : &info, strcmp(how, "absent") ? 0 : 1);
    note("fence", "%.3f %d", now() - began, status);
    if (argc > 2)
        usleep((useconds_t) atoi(argv[2]) * 1000);
    finish();
    return 0;
}
