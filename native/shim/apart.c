/*
 * Operations that the library has in a blocking form only: they run on threads of ours, so that the caller obeys
 * signals, and gets away when the library waits for a server that is lost.
 *
 * Ranks may commit often, and to start a thread takes as long as the commit: the one that has made it stays for the
 * next, which it gets unless a commit is under way.
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t given;

/* the commit that a thread which stays is to make, and has not taken yet */
static pypmix_call *next;

/* Of the threads that stay there is one more than that commit needs. */
static bool idle;

void pypmix_renew_apart(void)
{
    pthread_mutex_init(&lock, NULL);
    sem_init(&given, 0, 0);
    next = NULL;
    idle = false;
}

/* Start a detached thread. */
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

static pypmix_call *next_commit(void)
{
    pypmix_call *call;

    while (0 != sem_wait(&given)) {
    }
    pthread_mutex_lock(&lock);
    call = next;
    next = NULL;
    pthread_mutex_unlock(&lock);
    return call;
}

static void *run_commits(void *argument)
{
    pypmix_call *call = argument;
    bool stays = true;

    while (stays) {
        pmix_status_t status = pypmix_lib.Commit();

        /* before the caller goes on, so that its next commit finds this thread */
        pthread_mutex_lock(&lock);
        stays = !idle;
        idle = true;
        pthread_mutex_unlock(&lock);
        pypmix_op_done(status, call);
        if (stays) {
            call = next_commit();
        }
    }
    return NULL;
}

/* Have a thread make a commit. Returns false if there is none. */
static bool make_commit(pypmix_call *call)
{
    bool taken;

    pthread_mutex_lock(&lock);
    taken = idle && NULL == next;
    if (taken) {
        idle = false;
        next = call;
    }
    pthread_mutex_unlock(&lock);
    if (!taken) {
        return pypmix_thread(run_commits, call);
    }
    sem_post(&given);
    return true;
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
    } else if (!make_commit(call)) {
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
