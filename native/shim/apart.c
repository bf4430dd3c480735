/*
 * Operations that the library has in a blocking form only: each runs on a thread of its own, so that the caller heeds
 * signals, and gets away when the library waits for a server that is lost.
 */

#include "shim.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define STACK (1024 * 1024)

typedef struct {
    pypmix_call *call;
    int code;
    char *message;
} abort_t;

/* Start a thread that nobody joins. */
bool pypmix_thread(void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    bool started;

    if (0 != pthread_attr_init(&attributes)) {
        return false;
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    /* a signal has to interrupt the thread that waits for the outcome */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = 0 == pthread_create(&thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static void *run_commit(void *argument)
{
    pypmix_op_done(pypmix_lib.Commit(), argument);
    return NULL;
}

static void *run_abort(void *argument)
{
    abort_t *asked = argument;
    pypmix_call *call = asked->call;

    pypmix_op_done(pypmix_lib.Abort(asked->code, asked->message, call->procs, call->nprocs), call);
    free(asked->message);
    free(asked);
    return NULL;
}

void pypmix_commit(pypmix_call *call, pypmix_queue *queue)
{
    pypmix_begin(call, queue, true, NULL, 0, NULL, 0);
    if (NULL == pypmix_lib.Commit) {
        pypmix_begun(call, PMIX_ERR_NOT_SUPPORTED);
    } else if (!pypmix_thread(run_commit, call)) {
        pypmix_begun(call, PMIX_ERR_NOMEM);
    }
    pypmix_wait(call, -1);
}

void pypmix_abort(
    pypmix_call *call, pypmix_queue *queue, int code, const char *message, pmix_proc_t *procs, size_t nprocs)
{
    abort_t *asked = malloc(sizeof(*asked));

    pypmix_begin(call, queue, true, procs, nprocs, NULL, 0);
    if (NULL != asked) {
        *asked = (abort_t){.call = call, .code = code, .message = strdup(message)};
        if (NULL != asked->message && NULL != pypmix_lib.Abort && pypmix_thread(run_abort, asked)) {
            pypmix_wait(call, -1);
            return;
        }
        free(asked->message);
        free(asked);
    }
    pypmix_begun(call, NULL == pypmix_lib.Abort ? PMIX_ERR_NOT_SUPPORTED : PMIX_ERR_NOMEM);
    pypmix_wait(call, -1);
}
