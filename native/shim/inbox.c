/*
 * Events, and output of other procs. The library delivers them on its progress thread, or on the thread that raises an
 * event. Each becomes a message, copied into the inbox of the session that wants it, whose queue is woken.
 */

#include "shim.h"
#include "types.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* How much may wait for a reader: a job's output is megabytes in a moment, and a handler may take its time. */
#define MOST_MESSAGES 65536
#define MOST_BYTES (64 * 1024 * 1024)

struct pypmix_inbox {
    uint64_t number;
    pypmix_queue *queue;
    pypmix_message *first; /* not taken yet, oldest first */
    pypmix_message *last;
    pypmix_message *open; /* events that were taken and not answered yet */
    size_t count;
    size_t bytes;
    uint64_t lost;
    size_t *kept; /* numbers of the library's handlers that are to be deregistered */
    size_t nkept;
    pypmix_inbox *other;
};

typedef void (*answer_t)(
    pmix_status_t status, pmix_info_t *results, size_t nresults, pmix_op_cbfunc_t cbfunc, void *thiscbdata,
    void *notification_cbdata);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pypmix_inbox *inboxes;
static unsigned passing; /* events that were answered, and whose chain has not gone on yet */
static uint64_t last_number;

void pypmix_renew_inbox(void)
{
    pthread_mutex_init(&lock, NULL);
    passing = 0;
}

pypmix_inbox *pypmix_inbox_new(pypmix_queue *queue)
{
    pypmix_inbox *inbox = calloc(1, sizeof(*inbox));

    if (NULL != inbox) {
        inbox->queue = queue;
        pthread_mutex_lock(&lock);
        inbox->number = ++last_number;
        inbox->other = inboxes;
        inboxes = inbox;
        pthread_mutex_unlock(&lock);
    }
    return inbox;
}

uint64_t pypmix_inbox_number(pypmix_inbox *inbox)
{
    return inbox->number;
}

uint64_t pypmix_inbox_lost(pypmix_inbox *inbox)
{
    uint64_t lost;

    pthread_mutex_lock(&lock);
    lost = inbox->lost;
    inbox->lost = 0;
    pthread_mutex_unlock(&lock);
    return lost;
}

/*
 * Copies infos, but for pointers, which say nothing to Python, for those of types that the library cannot copy, and for
 * those that are left out.
 */
bool pypmix_copy_infos_but(
    pmix_data_array_t *target, const pmix_info_t *infos, size_t count, bool (*left_out)(const pmix_info_t *info))
{
    pmix_info_t *copies;

    while (NULL != infos && 0 < count && left_out(infos)) {
        infos++;
        count--;
    }
    if (NULL == infos || 0 == count) {
        return true;
    }
    target->type = INFO;
    target->array = copies = pypmix_alloc(count, sizeof(*copies));
    if (NULL == copies) {
        return false;
    }
    for (size_t n = 0; n < count; n++) {
        pmix_info_t *copy = copies + target->size;

        if (POINTER == infos[n].value.type || left_out(&infos[n])) {
            continue;
        }
        memcpy(copy->key, infos[n].key, sizeof(copy->key));
        copy->flags = infos[n].flags;
        if (PMIX_SUCCESS == pypmix_lib.Value_xfer(&copy->value, &infos[n].value)) {
            target->size++;
        } else {
            memset(copy, 0, sizeof(*copy));
        }
    }
    return true;
}

bool pypmix_is_nothing(const pmix_info_t *info)
{
    (void) info;
    return false;
}

bool pypmix_copy_infos(pmix_data_array_t *target, const pmix_info_t *infos, size_t count)
{
    return pypmix_copy_infos_but(target, infos, count, pypmix_is_nothing);
}

pypmix_message *pypmix_message_new(int what, const pmix_proc_t *source, const pmix_info_t *infos, size_t ninfos)
{
    pypmix_message *message = calloc(1, sizeof(*message));

    if (NULL != message) {
        message->what = what;
        if (NULL != source) {
            message->source = *source;
        }
        if (!pypmix_copy_infos(&message->infos, infos, ninfos)) {
            free(message);
            return NULL;
        }
    }
    return message;
}

static void destroy(pypmix_message *message)
{
    free(message->bytes);
    pypmix_elements_free(message->infos.type, message->infos.array, message->infos.size);
    pypmix_elements_free(message->results.type, message->results.array, message->results.size);
    free(message);
}

/* With the lock held. */
static bool awaited(const pypmix_inbox *inbox)
{
    for (const pypmix_message *message = inbox->first; NULL != message; message = message->next) {
        if (NULL != message->answer) {
            return true;
        }
    }
    return NULL != inbox->open;
}

/* With the lock held. An inbox whose handlers that were kept may be deregistered; NULL if there is none. */
static pypmix_inbox *deregisters(void)
{
    pypmix_inbox *inbox = 0 == passing ? inboxes : NULL;

    while (NULL != inbox && (0 == inbox->nkept || awaited(inbox))) {
        inbox = inbox->other;
    }
    return inbox;
}

/* On the progress thread: the library has copied what was answered, and its chain goes on when this returns. */
static void passed(pmix_status_t status, void *cbdata)
{
    pmix_data_array_t *results = cbdata;
    bool due;

    (void) status;
    if (NULL != results) {
        pypmix_infos_free(results->array, results->size);
        free(results);
    }
    pthread_mutex_lock(&lock);
    passing--;
    due = NULL != deregisters();
    pthread_mutex_unlock(&lock);
    if (due) {
        pypmix_look_at_handlers();
    }
}

/*
 * Let the library's chain go on. It shifts that to its progress thread, so that it may be called under a lock. With the lock
 * held.
 */
static void answer(pypmix_message *message, pmix_status_t status, pmix_info_t *infos, size_t ninfos)
{
    answer_t done = (answer_t) message->answer;
    pmix_data_array_t *results = 0 < ninfos ? malloc(sizeof(*results)) : NULL;

    message->answer = NULL;
    if (NULL == results || NULL == done) {
        pypmix_infos_free(infos, ninfos);
        free(results);
        results = NULL;
        infos = NULL;
        ninfos = 0;
    } else {
        *results = (pmix_data_array_t){.type = INFO, .size = ninfos, .array = infos};
    }
    if (NULL != done) {
        passing++;
        done(status, infos, ninfos, passed, results, message->cbdata);
    }
}

void pypmix_pass_on(void *answer, void *cbdata)
{
    pthread_mutex_lock(&lock);
    passing++;
    pthread_mutex_unlock(&lock);
    ((answer_t) answer)(PMIX_EVENT_NO_ACTION_TAKEN, NULL, 0, passed, NULL, cbdata);
}

bool pypmix_keep_handler(pypmix_inbox *inbox, size_t id)
{
    size_t *kept = NULL;

    pthread_mutex_lock(&lock);
    if (0 < passing || awaited(inbox)) {
        kept = realloc(inbox->kept, (inbox->nkept + 1) * sizeof(*kept));
        if (NULL != kept) {
            inbox->kept = kept;
            kept[inbox->nkept++] = id;
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL != kept;
}

bool pypmix_next_handler(size_t *id)
{
    pypmix_inbox *inbox;

    pthread_mutex_lock(&lock);
    inbox = deregisters();
    if (NULL != inbox) {
        *id = inbox->kept[--inbox->nkept];
    }
    pthread_mutex_unlock(&lock);
    return NULL != inbox;
}

/* With the lock held. */
static pypmix_message *take_first(pypmix_inbox *inbox)
{
    pypmix_message *message = inbox->first;

    if (NULL != message) {
        inbox->first = message->next;
        message->next = NULL;
        inbox->count--;
        inbox->bytes -= message->size;
    }
    return message;
}

/* With the lock held. */
static void close_message(pypmix_message *message)
{
    if (NULL != message->previous) {
        message->previous->next = message->next;
    } else {
        message->inbox->open = message->next;
    }
    if (NULL != message->next) {
        message->next->previous = message->previous;
    }
    message->inbox = NULL;
    message->next = message->previous = NULL;
}

void pypmix_message_drop(pypmix_message *message, pmix_status_t status, pmix_info_t *infos, size_t ninfos)
{
    pthread_mutex_lock(&lock);
    if (NULL != message->inbox) {
        close_message(message);
    }
    /* under the lock, so that the library is not finalized meanwhile by a thread that has closed the inbox */
    answer(message, status, infos, ninfos);
    pthread_mutex_unlock(&lock);
    destroy(message);
}

bool pypmix_deliver(uint64_t number, pypmix_message *message)
{
    pypmix_message *oldest = NULL;
    pypmix_inbox *inbox;

    pthread_mutex_lock(&lock);
    for (inbox = inboxes; NULL != inbox && number != inbox->number; inbox = inbox->other) {
    }
    if (NULL == inbox || NULL == inbox->queue) {
        pthread_mutex_unlock(&lock);
        return false;
    }
    while (MOST_MESSAGES <= inbox->count || (0 < inbox->count && MOST_BYTES < inbox->bytes + message->size)) {
        oldest = take_first(inbox);
        answer(oldest, PMIX_EVENT_NO_ACTION_TAKEN, NULL, 0);
        destroy(oldest);
        inbox->lost++;
    }
    if (NULL == inbox->first) {
        inbox->first = message;
        pypmix_queue_wake(inbox->queue);
    } else {
        inbox->last->next = message;
    }
    inbox->last = message;
    inbox->count++;
    inbox->bytes += message->size;
    pthread_mutex_unlock(&lock);
    return true;
}

void pypmix_return(pypmix_message *message)
{
    destroy(message);
}

pypmix_message *pypmix_inbox_take(pypmix_inbox *inbox)
{
    pypmix_message *message;

    pthread_mutex_lock(&lock);
    message = take_first(inbox);
    if (NULL != message && NULL != message->answer) {
        message->inbox = inbox;
        message->next = inbox->open;
        if (NULL != inbox->open) {
            inbox->open->previous = message;
        }
        inbox->open = message;
    }
    pthread_mutex_unlock(&lock);
    return message;
}

void pypmix_inbox_close(pypmix_inbox *inbox)
{
    pypmix_message *message;

    pthread_mutex_lock(&lock);
    inbox->queue = NULL;
    free(inbox->kept);
    inbox->kept = NULL;
    inbox->nkept = 0;
    while (NULL != (message = take_first(inbox))) {
        answer(message, PMIX_EVENT_NO_ACTION_TAKEN, NULL, 0);
        destroy(message);
    }
    while (NULL != (message = inbox->open)) {
        close_message(message);
        answer(message, PMIX_EVENT_NO_ACTION_TAKEN, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
}

/* After pypmix_inbox_close. */
void pypmix_inbox_free(pypmix_inbox *inbox)
{
    pypmix_inbox **place = &inboxes;

    pthread_mutex_lock(&lock);
    while (inbox != *place) {
        place = &(*place)->other;
    }
    *place = inbox->other;
    pthread_mutex_unlock(&lock);
    free(inbox);
}
