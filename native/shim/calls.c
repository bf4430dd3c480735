/*
 * Operations with a completion: the library's callback comes on its progress thread, which never waits for Python. It
 * leaves the outcome in the call, and wakes the thread that waits for it or the descriptor of the queue that it is for.
 */

/* RTLD_DEFAULT */
#define _GNU_SOURCE

#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pypmix_queue {
    int read_fd;
    int write_fd;
    pypmix_call *active; /* started and not taken yet, linked by previous and next */
    pypmix_call *ready;  /* ended, oldest first, linked by next */
    pypmix_call *last;
    pypmix_queue *other;
    bool served;
    void (*wake)(void); /* instead of the pipe; NULL for none */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* all queues, linked by other */
static pypmix_queue *queues;

void pypmix_renew_calls(void)
{
    pthread_mutex_init(&lock, NULL);
}

/* `served` says that there is a server; for a singleton the library must not be asked about its connection. */
pypmix_queue *pypmix_queue_new(bool served)
{
    int ends[2];
    pypmix_queue *queue = calloc(1, sizeof(*queue));

    if (NULL == queue) {
        return NULL;
    }
    if (0 != pipe(ends)) {
        free(queue);
        return NULL;
    }
    for (int n = 0; n < 2; n++) {
        fcntl(ends[n], F_SETFL, O_NONBLOCK);
        fcntl(ends[n], F_SETFD, FD_CLOEXEC);
    }
    queue->read_fd = ends[0];
    queue->write_fd = ends[1];
    queue->served = served;
    pthread_mutex_lock(&lock);
    queue->other = queues;
    queues = queue;
    pthread_mutex_unlock(&lock);
    return queue;
}

/* A tool has found a server, or has none any more. */
void pypmix_queue_serve(pypmix_queue *queue, bool served)
{
    pthread_mutex_lock(&lock);
    queue->served = served;
    pthread_mutex_unlock(&lock);
}

/* From the beginning: the queue is of a thread that waits for something else as well, and is woken so. */
void pypmix_queue_serve_by(pypmix_queue *queue, void (*wake)(void))
{
    queue->wake = wake;
}

int pypmix_queue_fd(pypmix_queue *queue)
{
    return queue->read_fd;
}

void pypmix_queue_wake(pypmix_queue *queue)
{
    if (NULL != queue->wake) {
        queue->wake();
    } else {
        pypmix_queue_signal(queue);
    }
}

void pypmix_queue_signal(pypmix_queue *queue)
{
    char byte = 0;
    ssize_t written;

    /* a full pipe is awake already */
    do {
        written = write(queue->write_fd, &byte, 1);
    } while (written < 0 && EINTR == errno);
}

void pypmix_queue_drain(pypmix_queue *queue)
{
    char bytes[256];
    ssize_t size;

    do {
        size = read(queue->read_fd, bytes, sizeof(bytes));
    } while ((ssize_t) sizeof(bytes) == size || (size < 0 && EINTR == errno));
}

/* Returns when the queue may have something, or when a signal came. */
void pypmix_queue_wait(pypmix_queue *queue)
{
    struct pollfd watched = {.fd = queue->read_fd, .events = POLLIN};

    (void) poll(&watched, 1, -1);
}

static void unlink_active(pypmix_call *call)
{
    pypmix_queue *queue = call->queue;

    if (NULL == queue) {
        return;
    }
    if (NULL != call->previous) {
        call->previous->next = call->next;
    } else {
        queue->active = call->next;
    }
    if (NULL != call->next) {
        call->next->previous = call->previous;
    }
    call->queue = NULL;
    call->next = call->previous = NULL;
}

static void drop_value(pmix_value_t *value)
{
    if (NULL != value) {
        pypmix_value_clear(value);
        free(value);
    }
}

/* What the library may read no longer. */
void pypmix_drop_inputs(pypmix_call *call)
{
    free(call->procs);
    pypmix_infos_free(call->infos, call->ninfos);
    pypmix_given_free(&call->given);
    call->procs = NULL;
    call->infos = NULL;
    call->ninfos = 0;
}

static const pmix_data_array_t nothing;

static void drop_results(pypmix_call *call)
{
    drop_value(call->value);
    pypmix_elements_free(call->results.type, call->results.array, call->results.size);
    call->value = NULL;
    call->results = nothing;
}

static void destroy(pypmix_call *call)
{
    drop_results(call);
    pypmix_drop_inputs(call);
    sem_destroy(&call->done);
    free(call);
}

/* With the lock held: the next thing that is popped from a queue, if there is nothing else. */
static void push_ready(pypmix_queue *queue, pypmix_call *call)
{
    if (NULL == queue->ready) {
        queue->ready = call;
        pypmix_queue_wake(queue);
    } else {
        queue->last->next = call;
    }
    queue->last = call;
}

/*
 * With the lock held: note an outcome. Returns whether a thread waits for it in C. The caller wakes that by a post of
 * `done` after it has released the lock: a waiter that woke up to a held lock would sleep again at once.
 */
static bool settle(pypmix_call *call, pmix_status_t result)
{
    pypmix_queue *queue = call->queue;

    call->result = result;
    unlink_active(call);
    if (call->waited) {
        return true;
    }
    push_ready(queue, call);
    return false;
}

static void keep(pypmix_call *call, pmix_value_t *value)
{
    if (NULL != value && pypmix_is_word(value->type)) {
        call->kind = value->type;
        call->word = pypmix_word(value);
        free(value);
    } else {
        call->value = value;
    }
}

void pypmix_done(pmix_status_t status, pmix_value_t *value, const pmix_data_array_t *results, pypmix_call *call)
{
    bool orphan;
    bool wake = false;

    pthread_mutex_lock(&lock);
    call->library_holds = false;
    orphan = !call->caller_holds;
    if (PYPMIX_PENDING == call->result) {
        keep(call, value);
        call->results = *results;
        value = NULL;
        results = &nothing;
        wake = settle(call, PMIX_OPERATION_SUCCEEDED == status ? PMIX_SUCCESS : status);
    }
    pthread_mutex_unlock(&lock);
    drop_value(value);
    pypmix_elements_free(results->type, results->array, results->size);
    if (wake) {
        sem_post(&call->done);
    } else if (orphan) {
        destroy(call);
    }
}

void pypmix_op_done(pmix_status_t status, void *cbdata)
{
    pypmix_done(status, NULL, &nothing, cbdata);
}

/*
 * The value changes hands with the callback: no release from 4.2 to 7 frees it afterwards. Beside a failure
 * it may be one that another get of the same proc has been given just before.
 */
static void value_done(pmix_status_t status, pmix_value_t *value, void *cbdata)
{
    pypmix_done(status, PMIX_SUCCESS == status ? value : NULL, &nothing, cbdata);
}

/*
 * A call may be used again once it has ended and Python has read it: a get of what is in this process costs a few
 * microseconds, so that memory for each would show.
 */
pypmix_call *pypmix_call_new(void)
{
    pypmix_call *call = calloc(1, sizeof(*call));

    if (NULL != call) {
        sem_init(&call->done, 0, 0);
        call->caller_holds = true;
    }
    return call;
}

void pypmix_begin(
    pypmix_call *call, pypmix_queue *queue, bool waited, pmix_proc_t *procs, size_t nprocs, pmix_info_t *infos,
    size_t ninfos)
{
    bool served;

    drop_results(call);
    pypmix_drop_inputs(call);
    call->status = call->result = PYPMIX_PENDING;
    call->kind = 0;
    call->procs = procs;
    call->nprocs = nprocs;
    call->infos = infos;
    call->ninfos = ninfos;
    call->waited = waited;
    call->lasting = false;
    atomic_store(&call->serverless, false);
    call->library_holds = true;
    pthread_mutex_lock(&lock);
    call->queue = queue;
    call->next = queue->active;
    call->previous = NULL;
    if (NULL != queue->active) {
        queue->active->previous = call;
    }
    queue->active = call;
    served = queue->served;
    pthread_mutex_unlock(&lock);
    if (served) {
        pypmix_watch();
    }
}

/* The library took the call with `status`; unless that is success, its callback will not come. */
void pypmix_begun(pypmix_call *call, pmix_status_t status)
{
    if (PMIX_SUCCESS != status) {
        pypmix_op_done(status, call);
    }
}

/* As strncpy, which would clear the rest of the field as well. */
static void name(char *field, const char *text, size_t size)
{
    size_t length = strnlen(text, size - 1);

    memcpy(field, text, length);
    field[length] = '\0';
}

static void *run_get(void *argument)
{
    pypmix_call *call = argument;
    pmix_value_t *value = NULL;
    pmix_status_t status = pypmix_lib.Get(&call->proc, call->key, call->infos, call->ninfos, &value);

    value_done(status, value, call);
    return NULL;
}

/* The library refreshes its cache before it takes the call, and waits for that even without a server. */
static bool refreshes(const pypmix_call *call)
{
    for (size_t n = 0; n < call->ninfos; n++) {
        if (0 == strcmp("pmix.get.refresh", call->infos[n].key)) {
            return true;
        }
    }
    return false;
}

static void start_get(pypmix_call *call, const char *nspace, pmix_rank_t rank, const char *key)
{
    name(call->proc.nspace, nspace, sizeof(call->proc.nspace));
    call->proc.rank = rank;
    name(call->key, key, sizeof(call->key));
    if (NULL == pypmix_lib.Get_nb || NULL == pypmix_lib.Get) {
        pypmix_begun(call, PMIX_ERR_NOT_SUPPORTED);
    } else if (refreshes(call)) {
        if (!pypmix_thread(run_get, call)) {
            pypmix_begun(call, PMIX_ERR_NOMEM);
        }
    } else {
        pypmix_begun(call, pypmix_lib.Get_nb(&call->proc, call->key, call->infos, call->ninfos, value_done, call));
    }
}

static void start_fence(pypmix_call *call)
{
    if (NULL == pypmix_lib.Fence_nb) {
        pypmix_begun(call, PMIX_ERR_NOT_SUPPORTED);
    } else {
        pypmix_begun(call, pypmix_lib.Fence_nb(call->procs, call->nprocs, call->infos, call->ninfos, pypmix_op_done, call));
    }
}

typedef int (*clockwait_t)(sem_t *semaphore, clockid_t clock, const struct timespec *until);

/* Waits by the monotonic clock; NULL with a C library that is older than glibc 2.30, or another one. */
static clockwait_t clockwait;

__attribute__((constructor)) static void find_clockwait(void)
{
    clockwait = (clockwait_t) dlsym(RTLD_DEFAULT, "sem_clockwait");
}

static double seconds(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

/* Wait for at most so many seconds; returns as sem_timedwait does. */
static int wait_for(sem_t *semaphore, double left)
{
    struct timespec wake;
    double until;

    if (NULL != clockwait) {
        /* so that no sum leaves the range of time_t */
        wake = pypmix_after(left < 60 ? left : 60);
        return clockwait(semaphore, CLOCK_MONOTONIC, &wake);
    }
    until = seconds(CLOCK_REALTIME) + (left < 1 ? left : 1);
    wake.tv_sec = (time_t) until;
    wake.tv_nsec = (long) ((until - (double) wake.tv_sec) * 1e9);
    return sem_timedwait(semaphore, &wake);
}

/* The post of an outcome that is known has come or is about to; the call may be freed only after it was taken. */
static void take_post(pypmix_call *call)
{
    while (0 != sem_wait(&call->done)) {
    }
    call->status = call->result;
}

/*
 * Returns when the call has ended, when `timeout` seconds are over (a negative one never is), which ends it too unless it
 * is lasting, or when a signal came: then it is still pending, so that Python can run its handlers and wait again.
 */
void pypmix_wait(pypmix_call *call, double timeout)
{
    double deadline, left;
    bool ended;

    if (timeout < 0) {
        if (0 == sem_wait(&call->done)) {
            call->status = call->result;
        }
        return;
    }
    deadline = seconds(CLOCK_MONOTONIC) + timeout;
    while (0 < (left = deadline - seconds(CLOCK_MONOTONIC))) {
        if (0 == wait_for(&call->done, left)) {
            call->status = call->result;
            return;
        }
        if (EINTR == errno) {
            return;
        }
    }
    pthread_mutex_lock(&lock);
    ended = PYPMIX_PENDING != call->result;
    if (!ended && !call->lasting) {
        call->result = call->status = PMIX_ERR_TIMEOUT;
        unlink_active(call);
    }
    pthread_mutex_unlock(&lock);
    if (ended) {
        take_post(call);
    }
}

/*
 * The waiting thread gives a call up while it is pending for Python: it ends in the queue from now on, as if
 * it had been submitted under a token.
 */
void pypmix_call_leave(pypmix_call *call, pypmix_queue *queue, uint64_t token)
{
    bool ended;

    pthread_mutex_lock(&lock);
    call->token = token;
    call->waited = false;
    ended = PYPMIX_PENDING != call->result;
    pthread_mutex_unlock(&lock);
    if (ended) {
        take_post(call);
        pthread_mutex_lock(&lock);
        push_ready(queue, call);
        pthread_mutex_unlock(&lock);
    }
}

void pypmix_get(
    pypmix_call *call, pypmix_queue *queue, const char *nspace, pmix_rank_t rank, const char *key, pmix_info_t *infos,
    size_t ninfos, double timeout)
{
    pypmix_begin(call, queue, true, NULL, 0, infos, ninfos);
    start_get(call, nspace, rank, key);
    pypmix_wait(call, timeout);
    if (PMIX_SUCCESS == call->status) {
        pypmix_drop_inputs(call);
    }
}

/* A directive that is true; made here because those of most calls are. */
static pmix_info_t *directive(const char *key)
{
    pmix_info_t *info = calloc(1, sizeof(*info));

    if (NULL != info) {
        strcpy(info->key, key);
        info->value.type = 1;
        info->value.data.flag = true;
    }
    return info;
}

/* A get that asks no server. */
void pypmix_get_optional(
    pypmix_call *call, pypmix_queue *queue, const char *nspace, pmix_rank_t rank, const char *key)
{
    pmix_info_t *optional = directive("pmix.optional");

    if (NULL == optional) {
        call->status = PMIX_ERR_NOMEM;
        return;
    }
    pypmix_get(call, queue, nspace, rank, key, optional, 1, -1);
}

void pypmix_fence(
    pypmix_call *call, pypmix_queue *queue, pmix_proc_t *procs, size_t nprocs, pmix_info_t *infos, size_t ninfos,
    double timeout)
{
    pypmix_begin(call, queue, true, procs, nprocs, infos, ninfos);
    call->lasting = true;
    start_fence(call);
    pypmix_wait(call, timeout);
    if (PMIX_SUCCESS == call->status) {
        pypmix_drop_inputs(call);
    }
}

/* A fence with all of the job, and with their data or without, which is how it is called most. */
void pypmix_fence_all(pypmix_call *call, pypmix_queue *queue, bool collect)
{
    pmix_info_t *collects = collect ? directive("pmix.collect") : NULL;

    if (collect && NULL == collects) {
        call->status = PMIX_ERR_NOMEM;
        return;
    }
    pypmix_fence(call, queue, NULL, 0, collects, collect ? 1 : 0, -1);
}

pmix_status_t pypmix_get_submit(
    pypmix_queue *queue, uint64_t token, const char *nspace, pmix_rank_t rank, const char *key, pmix_info_t *infos,
    size_t ninfos)
{
    pypmix_call *call = pypmix_call_new();

    if (NULL == call) {
        pypmix_infos_free(infos, ninfos);
        return PMIX_ERR_NOMEM;
    }
    call->token = token;
    pypmix_begin(call, queue, false, NULL, 0, infos, ninfos);
    start_get(call, nspace, rank, key);
    return PMIX_SUCCESS;
}

pmix_status_t pypmix_fence_submit(
    pypmix_queue *queue, uint64_t token, pmix_proc_t *procs, size_t nprocs, pmix_info_t *infos, size_t ninfos)
{
    pypmix_call *call = pypmix_call_new();

    if (NULL == call) {
        free(procs);
        pypmix_infos_free(infos, ninfos);
        return PMIX_ERR_NOMEM;
    }
    call->token = token;
    pypmix_begin(call, queue, false, procs, nprocs, infos, ninfos);
    start_fence(call);
    return PMIX_SUCCESS;
}

/*
 * The last call that has ended takes the wake-up with it: one that ends while the others are taken leaves a byte in the
 * pipe, and the watcher of the descriptor would look for more and find nothing. The pipe of a queue that is woken by
 * other means is not about calls, and is drained by its reader.
 */
pypmix_call *pypmix_queue_pop(pypmix_queue *queue)
{
    pypmix_call *call;

    pthread_mutex_lock(&lock);
    call = queue->ready;
    if (NULL != call) {
        queue->ready = call->next;
        call->next = NULL;
        call->status = call->result;
    } else if (NULL == queue->wake) {
        pypmix_queue_drain(queue);
    }
    pthread_mutex_unlock(&lock);
    return call;
}

/* Whether an operation was submitted under a token and has not been popped. */
bool pypmix_queue_has(pypmix_queue *queue, uint64_t token)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (pypmix_call *call = queue->active; NULL != call && !found; call = call->next) {
        found = !call->waited && token == call->token;
    }
    for (pypmix_call *call = queue->ready; NULL != call && !found; call = call->next) {
        found = token == call->token;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Python is done with a call, whether it has ended or not. */
void pypmix_call_free(pypmix_call *call)
{
    bool ended, last;

    pthread_mutex_lock(&lock);
    ended = PYPMIX_PENDING != call->result;
    if (!ended) {
        call->result = PMIX_ERR_TIMEOUT;
        unlink_active(call);
    }
    pthread_mutex_unlock(&lock);
    if (ended && PYPMIX_PENDING == call->status) {
        take_post(call);
    }
    pthread_mutex_lock(&lock);
    call->caller_holds = false;
    last = !call->library_holds;
    pthread_mutex_unlock(&lock);
    if (last) {
        destroy(call);
    }
}

/*
 * With the lock held: end what is under way, or only what a server was asked; returns the calls that are to be posted,
 * linked by next to `waited`.
 */
static pypmix_call *settle_all(pypmix_queue *queue, pmix_status_t status, bool all, pypmix_call *waited)
{
    pypmix_call *following;

    for (pypmix_call *call = queue->active; NULL != call; call = following) {
        following = call->next;
        if ((all || !atomic_load(&call->serverless)) && settle(call, status)) {
            call->next = waited;
            waited = call;
        }
    }
    return waited;
}

static void post_all(pypmix_call *waited)
{
    while (NULL != waited) {
        pypmix_call *call = waited;
        waited = call->next;
        sem_post(&call->done);
    }
}

/* End everything that is under way; the library's own answers, if they still come, are dropped. */
void pypmix_queue_fail(pypmix_queue *queue, pmix_status_t status)
{
    pypmix_call *waited;

    pthread_mutex_lock(&lock);
    waited = settle_all(queue, status, true, NULL);
    pthread_mutex_unlock(&lock);
    post_all(waited);
}

/* The same for every queue that has a server, but for what the library answers without one. */
void pypmix_fail(pmix_status_t status)
{
    pypmix_call *waited = NULL;

    pthread_mutex_lock(&lock);
    for (pypmix_queue *queue = queues; NULL != queue; queue = queue->other) {
        if (queue->served) {
            waited = settle_all(queue, status, false, waited);
        }
    }
    pthread_mutex_unlock(&lock);
    post_all(waited);
}

/* Whether anything is under way that has a server. */
bool pypmix_pending(void)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (pypmix_queue *queue = queues; NULL != queue && !found; queue = queue->other) {
        found = queue->served && NULL != queue->active;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* The time of a submitted operation is over. */
void pypmix_queue_expire(pypmix_queue *queue, uint64_t token)
{
    pthread_mutex_lock(&lock);
    for (pypmix_call *call = queue->active; NULL != call; call = call->next) {
        if (!call->waited && token == call->token) {
            (void) settle(call, PMIX_ERR_TIMEOUT);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* After pypmix_queue_fail, when nothing is left to pop. */
void pypmix_queue_free(pypmix_queue *queue)
{
    pypmix_queue **place = &queues;

    pthread_mutex_lock(&lock);
    while (queue != *place) {
        place = &(*place)->other;
    }
    *place = queue->other;
    pthread_mutex_unlock(&lock);
    close(queue->read_fd);
    close(queue->write_fd);
    free(queue);
}
