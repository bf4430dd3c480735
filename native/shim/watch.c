/*
 * Calls that libpmix forgets as it loses its server.
 *
 * Every release from 4.2 to 7 looks at its connection when it takes a call, and sends the request later, on its
 * progress thread; a request whose turn comes after the loss is dropped there, and its callback never comes. One that
 * was sent in time ends with the connection. So each call is looked after once it is FIRST_LOOK seconds old, by a
 * thread that sleeps otherwise, and then less and less often, for a progress thread that has not run for so long.
 */

#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define FIRST_LOOK 0.1
#define LAST_LOOKS 5.0

/* instead of a number of seconds */
#define UNTIL_ROUSED -1.0

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t roused;
static bool running;

static atomic_ulong begun;

/* The thread will not look within FIRST_LOOK seconds. */
static atomic_bool drowsy = true;

/* With the lock held. Returns false if a call has begun that cannot wait for so long. */
static bool nap(double seconds)
{
    struct timespec until = pypmix_after(0 < seconds ? seconds : 0);
    int result = 0;

    while (ETIMEDOUT != result) {
        if (FIRST_LOOK != seconds && !atomic_load(&drowsy)) {
            return false;
        }
        if (UNTIL_ROUSED == seconds) {
            pthread_cond_wait(&roused, &lock);
        } else {
            result = pthread_cond_timedwait(&roused, &lock, &until);
        }
    }
    return true;
}

static void *watch(void *unused)
{
    double seconds = FIRST_LOOK;
    unsigned long seen = 0;

    pthread_mutex_lock(&lock);
    for (;;) {
        unsigned long count;
        bool pending;

        if (!nap(seconds)) {
            seconds = FIRST_LOOK;
            continue;
        }
        /* in this order, since a call that begins counts first and then asks whether this thread looks soon */
        atomic_store(&drowsy, true);
        count = atomic_load(&begun);
        if (seen != count) {
            atomic_store(&drowsy, false);
            seconds = FIRST_LOOK;
            seen = count;
        } else {
            seconds = seconds * 2 < LAST_LOOKS ? seconds * 2 : LAST_LOOKS;
        }
        pthread_mutex_unlock(&lock);
        pending = pypmix_pending();
        /* without either lock, which the library's own threads may need to let go of theirs */
        if (pending && !pypmix_connected()) {
            pypmix_fail(PMIX_ERR_UNREACH);
        }
        pthread_mutex_lock(&lock);
        if (!pending && FIRST_LOOK != seconds) {
            seconds = UNTIL_ROUSED;
        }
    }
    return unused;
}

void pypmix_renew_watch(void)
{
    pthread_mutex_init(&lock, NULL);
    pypmix_condition(&roused);
    running = false;
    atomic_store(&drowsy, true);
}

/* After the call is among those that pypmix_fail ends, before the library gets it. */
void pypmix_watch(void)
{
    bool connected;

    atomic_fetch_add(&begun, 1);
    if (!atomic_load(&drowsy)) {
        return;
    }
    /* without a connection the library refuses the call, so that a first one needs no watch */
    connected = pypmix_connected();
    pthread_mutex_lock(&lock);
    if (!running && connected) {
        running = pypmix_thread(watch, NULL);
    }
    if (running) {
        atomic_store(&drowsy, false);
        pthread_cond_signal(&roused);
    }
    pthread_mutex_unlock(&lock);
}
