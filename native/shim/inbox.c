/*
 * What comes unasked: events, and output of other procs. The library hands it over on its progress thread, or on that
 * of somebody who raises an event. It is copied into the inbox of the session that wants it, whose queue is woken.
 */

#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { INFO = 24, POINTER = 31 };

/* How much may wait for a reader: a job's output is megabytes in a moment, and a handler may take its time. */
#define MOST_LETTERS 65536
#define MOST_BYTES (64 * 1024 * 1024)

struct pypmix_inbox {
    uint64_t number;
    pypmix_queue *queue;
    pypmix_letter *first; /* not taken yet, oldest first */
    pypmix_letter *last;
    pypmix_letter *open; /* events that were taken and not answered yet */
    size_t count;
    size_t bytes;
    uint64_t lost;
    pypmix_inbox *other;
};

typedef void (*answer_t)(
    pmix_status_t status, pmix_info_t *results, size_t nresults, pmix_op_cbfunc_t cbfunc, void *thiscbdata,
    void *notification_cbdata);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pypmix_inbox *inboxes;
static uint64_t last_number;

void pypmix_renew_inbox(void)
{
    pthread_mutex_init(&lock, NULL);
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

pypmix_letter *pypmix_letter_new(int what, const pmix_proc_t *source, const pmix_info_t *infos, size_t ninfos)
{
    pypmix_letter *letter = calloc(1, sizeof(*letter));

    if (NULL != letter) {
        letter->what = what;
        if (NULL != source) {
            letter->source = *source;
        }
        if (!pypmix_copy_infos(&letter->infos, infos, ninfos)) {
            free(letter);
            return NULL;
        }
    }
    return letter;
}

static void destroy(pypmix_letter *letter)
{
    free(letter->bytes);
    pypmix_elements_free(letter->infos.type, letter->infos.array, letter->infos.size);
    pypmix_elements_free(letter->results.type, letter->results.array, letter->results.size);
    free(letter);
}

static void unneeded(pmix_status_t status, void *cbdata)
{
    pmix_data_array_t *results = cbdata;

    (void) status;
    pypmix_infos_free(results->array, results->size);
    free(results);
}

/*
 * Let the library's chain go on. It shifts that to its progress thread, so that it may be called under a lock; the
 * results are copied there, and given back.
 */
static void answer(pypmix_letter *letter, pmix_status_t status, pmix_info_t *infos, size_t ninfos)
{
    answer_t done = (answer_t) letter->answer;
    pmix_data_array_t *results = 0 < ninfos ? malloc(sizeof(*results)) : NULL;

    letter->answer = NULL;
    if (NULL == results) {
        pypmix_infos_free(infos, ninfos);
        if (NULL != done) {
            done(status, NULL, 0, NULL, NULL, letter->cbdata);
        }
        return;
    }
    *results = (pmix_data_array_t){.type = INFO, .size = ninfos, .array = infos};
    if (NULL == done) {
        unneeded(PMIX_SUCCESS, results);
    } else {
        done(status, infos, ninfos, unneeded, results, letter->cbdata);
    }
}

/* With the lock held. */
static pypmix_letter *take_first(pypmix_inbox *inbox)
{
    pypmix_letter *letter = inbox->first;

    if (NULL != letter) {
        inbox->first = letter->next;
        letter->next = NULL;
        inbox->count--;
        inbox->bytes -= letter->size;
    }
    return letter;
}

/* With the lock held. */
static void close_letter(pypmix_letter *letter)
{
    if (NULL != letter->previous) {
        letter->previous->next = letter->next;
    } else {
        letter->inbox->open = letter->next;
    }
    if (NULL != letter->next) {
        letter->next->previous = letter->previous;
    }
    letter->inbox = NULL;
    letter->next = letter->previous = NULL;
}

void pypmix_letter_drop(pypmix_letter *letter, pmix_status_t status, pmix_info_t *infos, size_t ninfos)
{
    pthread_mutex_lock(&lock);
    if (NULL != letter->inbox) {
        close_letter(letter);
    }
    /* under the lock, so that the library is not finalized meanwhile by somebody who has closed the inbox */
    answer(letter, status, infos, ninfos);
    pthread_mutex_unlock(&lock);
    destroy(letter);
}

bool pypmix_deliver(uint64_t number, pypmix_letter *letter)
{
    pypmix_letter *oldest = NULL;
    pypmix_inbox *inbox;

    pthread_mutex_lock(&lock);
    for (inbox = inboxes; NULL != inbox && number != inbox->number; inbox = inbox->other) {
    }
    if (NULL == inbox || NULL == inbox->queue) {
        pthread_mutex_unlock(&lock);
        return false;
    }
    while (MOST_LETTERS <= inbox->count || (0 < inbox->count && MOST_BYTES < inbox->bytes + letter->size)) {
        oldest = take_first(inbox);
        answer(oldest, PMIX_EVENT_NO_ACTION_TAKEN, NULL, 0);
        destroy(oldest);
        inbox->lost++;
    }
    if (NULL == inbox->first) {
        inbox->first = letter;
        pypmix_queue_wake(inbox->queue);
    } else {
        inbox->last->next = letter;
    }
    inbox->last = letter;
    inbox->count++;
    inbox->bytes += letter->size;
    pthread_mutex_unlock(&lock);
    return true;
}

void pypmix_return(pypmix_letter *letter)
{
    destroy(letter);
}

pypmix_letter *pypmix_inbox_take(pypmix_inbox *inbox)
{
    pypmix_letter *letter;

    pthread_mutex_lock(&lock);
    letter = take_first(inbox);
    if (NULL != letter && NULL != letter->answer) {
        letter->inbox = inbox;
        letter->next = inbox->open;
        if (NULL != inbox->open) {
            inbox->open->previous = letter;
        }
        inbox->open = letter;
    }
    pthread_mutex_unlock(&lock);
    return letter;
}

void pypmix_inbox_close(pypmix_inbox *inbox)
{
    pypmix_letter *letter;

    pthread_mutex_lock(&lock);
    inbox->queue = NULL;
    while (NULL != (letter = take_first(inbox))) {
        answer(letter, PMIX_EVENT_NO_ACTION_TAKEN, NULL, 0);
        destroy(letter);
    }
    while (NULL != (letter = inbox->open)) {
        close_letter(letter);
        answer(letter, PMIX_EVENT_NO_ACTION_TAKEN, NULL, 0);
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
