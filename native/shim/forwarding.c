/*
 * Output of other procs, and input for them. The library knows a pull by an id that it tells once its server has
 * answered; output can come before that, and is kept until it is known whose it is.
 */

#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ERR_PAST_END -50
#define ERR_COMM_FAILURE -49

/* Where in the number of what is asked stand the channels (from bit 0 on), the inbox, and Python's own for a pull. */
#define INBOX_SHIFT 8
#define NUMBER_SHIFT 32

/* The most pieces of output kept that came before the answer to their pull; further ones are dropped. */
#define MOST_EARLY 4096

typedef struct pull pull;
struct pull {
    size_t id;       /* the library's */
    uint64_t number; /* Python's */
    uint64_t inbox;
    pull *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pull *pulls;
static pypmix_message *early; /* oldest first */
static size_t early_count;
static size_t pending;

void pypmix_renew_forwarding(void)
{
    pthread_mutex_init(&lock, NULL);
}

/* With the lock held; the newest, since the library uses the ids of pulls that are over again. */
static const pull *find(size_t id)
{
    const pull *each = pulls;

    while (NULL != each && id != each->id) {
        each = each->next;
    }
    return each;
}

/* With the lock held. */
static void hand_on(const pull *to, pypmix_message *message)
{
    message->next = NULL;
    message->id = to->number;
    if (!pypmix_deliver(to->inbox, message)) {
        pypmix_return(message);
    }
}

static void on_output(
    size_t id, uint16_t channel, pmix_proc_t *source, pmix_byte_object_t *payload, pmix_info_t infos[], size_t ninfos)
{
    pypmix_message *message = pypmix_message_new(PYPMIX_OUTPUT, source, infos, ninfos);
    pypmix_message **place = &early;
    const pull *to;

    if (NULL == message) {
        return;
    }
    message->id = id;
    message->channel = channel;
    if (NULL != payload && NULL != payload->bytes && 0 < payload->size) {
        message->bytes = pypmix_copy(payload->bytes, payload->size);
        if (NULL == message->bytes) {
            pypmix_return(message);
            return;
        }
        message->size = payload->size;
    }
    pthread_mutex_lock(&lock);
    to = find(id);
    if (NULL != to) {
        hand_on(to, message);
    } else if (0 == pending || MOST_EARLY <= early_count) {
        pypmix_return(message);
    } else {
        while (NULL != *place) {
            place = &(*place)->next;
        }
        *place = message;
        early_count++;
    }
    pthread_mutex_unlock(&lock);
}

/* With the lock held: a pull is answered; early output without a pull is dropped with the last answer. */
static void sort_early(void)
{
    pypmix_message **place = &early;

    pending--;
    while (NULL != *place) {
        pypmix_message *message = *place;
        const pull *to = find(message->id);

        if (NULL == to && 0 < pending) {
            place = &message->next;
            continue;
        }
        *place = message->next;
        early_count--;
        if (NULL == to) {
            pypmix_return(message);
        } else {
            hand_on(to, message);
        }
    }
}

static uint64_t inbox_in(uint64_t number)
{
    return (number & ((UINT64_C(1) << NUMBER_SHIFT) - 1)) >> INBOX_SHIFT;
}

static void pulled(pmix_status_t status, size_t id, void *cbdata)
{
    pypmix_call *call = cbdata;
    uint64_t number = (uint64_t) call->given.number;
    pull *made = PMIX_SUCCESS == status ? malloc(sizeof(*made)) : NULL;

    if (PMIX_SUCCESS == status && NULL == made) {
        status = PMIX_ERR_NOMEM;
    }
    pthread_mutex_lock(&lock);
    if (NULL != made) {
        *made = (pull){.id = id, .number = number >> NUMBER_SHIFT, .inbox = inbox_in(number), .next = pulls};
        pulls = made;
    }
    sort_early();
    pthread_mutex_unlock(&lock);
    /* what it says when the connection breaks, to an answer that it finds empty */
    pypmix_op_done(ERR_PAST_END == status ? PMIX_ERR_LOST_CONNECTION : status, call);
}

/* `items` are the procs. */
pmix_status_t pypmix_ask_iof_pull(pypmix_call *call)
{
    pypmix_given *given = &call->given;
    pmix_status_t status;

    if (NULL == pypmix_lib.IOF_pull) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&lock);
    pending++;
    pthread_mutex_unlock(&lock);
    status = pypmix_lib.IOF_pull(
        given->items.array, given->items.size, given->infos, given->ninfos, (uint16_t) (given->number & 0xFF),
        on_output, pulled, call);
    if (PMIX_SUCCESS != status) {
        pthread_mutex_lock(&lock);
        sort_early();
        pthread_mutex_unlock(&lock);
    }
    return status;
}

/* `number` is Python's own. */
pmix_status_t pypmix_ask_iof_deregister(pypmix_call *call)
{
    pypmix_given *given = &call->given;
    pull **place = &pulls, *found;
    size_t id;

    if (NULL == pypmix_lib.IOF_deregister) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&lock);
    while (NULL != (found = *place) && (uint64_t) given->number != found->number) {
        place = &found->next;
    }
    if (NULL != found) {
        *place = found->next;
    }
    pthread_mutex_unlock(&lock);
    if (NULL == found) {
        return PMIX_ERR_NOT_FOUND;
    }
    id = found->id;
    free(found);
    return pypmix_lib.IOF_deregister(id, given->infos, given->ninfos, pypmix_op_done, call);
}

static void pushed(pmix_status_t status, void *cbdata)
{
    pypmix_op_done(ERR_COMM_FAILURE == status ? PMIX_ERR_LOST_CONNECTION : status, cbdata);
}

/* `items` are the procs, `more` is a byte object, an empty one for the end. */
pmix_status_t pypmix_ask_iof_push(pypmix_call *call)
{
    pypmix_given *given = &call->given;

    if (NULL == pypmix_lib.IOF_push) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    return pypmix_lib.IOF_push(
        given->items.array, given->items.size, given->more.array, given->infos, given->ninfos, pushed, call);
}
