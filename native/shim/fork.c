/*
 * A process that forks, and clocks.
 *
 * A child has none of the threads, so that a lock or a condition that one of them used would stay as it was for ever.
 * All files have theirs made here, when the extension is loaded and anew in a child, with what says which threads run.
 * What they guard stays the parent's: Python calls nothing for a session of the parent's in the child, and libpmix
 * cannot be opened there (`session.py`). The conditions' waits go by the monotonic clock.
 */

#include "shim.h"

void pypmix_condition(pthread_cond_t *condition)
{
    pthread_condattr_t clock;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &clock);
    pthread_condattr_destroy(&clock);
}

struct timespec pypmix_after(double seconds)
{
    struct timespec until;
    double fraction;

    clock_gettime(CLOCK_MONOTONIC, &until);
    fraction = (double) until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t) fraction;
    until.tv_nsec = (long) ((fraction - (double) (time_t) fraction) * 1e9);
    return until;
}

static void renew(void)
{
    pypmix_renew_apart();
    pypmix_renew_calls();
    pypmix_renew_events();
    pypmix_renew_forwarding();
    pypmix_renew_inbox();
    pypmix_renew_upcalls();
    pypmix_renew_watch();
}

__attribute__((constructor)) static void prepare(void)
{
    renew();
    pthread_atfork(NULL, NULL, renew);
}
