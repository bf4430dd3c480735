/*
 * Events.
 *
 * Theory of operation. Each code that a session has handlers for is one handler of the library's, `on_event`. It runs
 * on the progress thread (up to release 6, also on the thread that raises an event), copies what comes into the
 * session's inbox, and returns: the library's chain stands still until Python has run its own handlers and drops the
 * message, which calls the library back (`inbox.c`). A handler of ours has a name of its session's own: by that, which
 * the library puts among the results of a chain, it knows an event that another handler of the session has had already,
 * and its object is the number of the inbox, so that nothing is read that is gone when an event comes late.
 *
 * An event that this process raises goes to the library on the caller's thread, or is shifted to the progress thread
 * (`shift`) for releases that do not look after their lists otherwise. While the library is finalized nothing is
 * shifted, and it is finalized when nothing is on its way: see `pypmix_end_raised`.
 */

#include "shim.h"
#include "types.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "pmix.evname"
#define OBJECT "pmix.evobject"
#define RANGE "pmix.range"
#define RANGE_PROC_LOCAL 7

#define NAME_SIZE 32

/* flags of an event that is raised: what the release does with it */
#define ANSWERED_TWICE (INT64_C(1) << 40)
#define RAISED_ANYWHERE (INT64_C(1) << 41)

static void name_of(char *name, uint64_t inbox)
{
    snprintf(name, NAME_SIZE, "pypmix.%" PRIu64, inbox);
}

static const pmix_info_t *find(const pmix_info_t *infos, size_t count, const char *key)
{
    for (size_t n = 0; NULL != infos && n < count; n++) {
        if (0 == strcmp(key, infos[n].key)) {
            return &infos[n];
        }
    }
    return NULL;
}

/* The library adds the name of the handler and its object behind what came with the event. */
static size_t without_ours(const pmix_info_t *infos, size_t count)
{
    while (0 < count && (0 == strcmp(OBJECT, infos[count - 1].key) || 0 == strcmp(NAME, infos[count - 1].key))) {
        count--;
    }
    return count;
}

static void on_event(
    size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t *infos, size_t ninfos, pmix_info_t *results,
    size_t nresults, pmix_event_notification_cbfunc_fn_t answer, void *cbdata)
{
    const pmix_info_t *object = find(infos, ninfos, OBJECT);
    pypmix_message *message = NULL;
    char name[NAME_SIZE];
    uint64_t number;

    if (NULL != object && POINTER == object->value.type) {
        number = (uint64_t) (uintptr_t) object->value.data.ptr;
        name_of(name, number);
        if (NULL == find(results, nresults, name)) {
            message = pypmix_message_new(PYPMIX_EVENT, source, infos, without_ours(infos, ninfos));
        }
        if (NULL != message) {
            message->id = id;
            message->code = code;
            message->answer = (void *) answer;
            message->cbdata = cbdata;
            if (pypmix_copy_infos(&message->results, results, nresults) && pypmix_deliver(number, message)) {
                return;
            }
            pypmix_return(message);
        }
    }
    if (NULL != answer) {
        pypmix_pass_on((void *) answer, cbdata);
    }
}

static void registered(pmix_status_t status, size_t id, void *cbdata)
{
    pmix_data_array_t none = {0};
    pmix_value_t *value = calloc(1, sizeof(*value));

    if (NULL != value) {
        value->type = SIZE;
        value->data.size = id;
    }
    pypmix_done(NULL == value ? PMIX_ERR_NOMEM : status, value, &none, cbdata);
}

/* `items` is the code, none for all, and `number` that of the inbox; negative where the server is not to know of it. */
pmix_status_t pypmix_ask_register_event_handler(pypmix_call *call)
{
    pypmix_given *given = &call->given;
    uint64_t inbox = (uint64_t) (0 < given->number ? given->number : -given->number);
    pmix_info_t *infos;
    char name[NAME_SIZE];

    if (NULL == pypmix_lib.Register_event_handler) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    infos = realloc(given->infos, (given->ninfos + 3) * sizeof(*infos));
    if (NULL == infos) {
        return PMIX_ERR_NOMEM;
    }
    given->infos = infos;
    infos += given->ninfos;
    memset(infos, 0, 3 * sizeof(*infos));
    name_of(name, inbox);
    strcpy(infos[0].key, NAME);
    infos[0].value.type = STRING;
    infos[0].value.data.string = strdup(name);
    strcpy(infos[1].key, OBJECT);
    infos[1].value.type = POINTER;
    infos[1].value.data.ptr = (void *) (uintptr_t) inbox;
    given->ninfos += 2;
    if (given->number < 0) {
        strcpy(infos[2].key, RANGE);
        infos[2].value.type = DATA_RANGE;
        infos[2].value.data.uint8 = RANGE_PROC_LOCAL;
        given->ninfos++;
    }
    return pypmix_lib.Register_event_handler(
        given->items.array, given->items.size, given->infos, given->ninfos, on_event, registered, call);
}

/* What is called back twice, for a call that ends once: with the failure, if one of the two is. */
typedef struct {
    pypmix_call *call;
    atomic_int left;
    atomic_int failure;
} twice_t;

static void one_of_two(pmix_status_t status, void *cbdata)
{
    twice_t *twice = cbdata;

    if (PMIX_SUCCESS != status && PMIX_OPERATION_SUCCEEDED != status) {
        atomic_store(&twice->failure, status);
    }
    if (1 == atomic_fetch_sub(&twice->left, 1)) {
        if (NULL != twice->call) {
            pypmix_op_done(atomic_load(&twice->failure), twice->call);
        }
        free(twice);
    }
}

static pmix_status_t notify_twice(pypmix_call *call, pmix_status_t code, uint8_t range)
{
    pypmix_given *given = &call->given;
    twice_t *twice = calloc(1, sizeof(*twice));
    pmix_status_t status;

    if (NULL == twice) {
        return PMIX_ERR_NOMEM;
    }
    /* the third is this function, which says last whether there is a call to end */
    atomic_init(&twice->left, 3);
    status = pypmix_lib.Notify_event(
        code, given->items.array, range, given->infos, given->ninfos, one_of_two, twice);
    if (PMIX_SUCCESS == status) {
        twice->call = call;
        one_of_two(PMIX_SUCCESS, twice);
    } else {
        /* then only the first of the two comes */
        one_of_two(PMIX_SUCCESS, twice);
        one_of_two(PMIX_SUCCESS, twice);
    }
    return status;
}

static pmix_status_t notify(pypmix_call *call)
{
    pypmix_given *given = &call->given;
    pmix_status_t code = (pmix_status_t) (uint32_t) given->number;
    uint8_t range = (uint8_t) (given->number >> 32);
    pmix_status_t status;

    /* no release sends this one to a server, and those before 7 forget to call back */
    if (PMIX_ERR_LOST_CONNECTION == code) {
        status = pypmix_lib.Notify_event(
            code, given->items.array, range, given->infos, given->ninfos, NULL, NULL);
        return PMIX_SUCCESS == status ? PMIX_OPERATION_SUCCEEDED : status;
    }
    if (given->number & ANSWERED_TWICE) {
        return notify_twice(call, code, range);
    }
    return pypmix_lib.Notify_event(
        code, given->items.array, range, given->infos, given->ninfos, pypmix_op_done, call);
}

/*
 * PMIx_Notify_event takes a lock that PMIx_Finalize of these releases holds while it waits for the progress thread: an
 * event that is raised there meanwhile would have both wait for ever. So what has come before the end is raised before
 * it, and what comes during it waits for it.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static unsigned shifting;
static unsigned finalizing;
static unsigned looking; /* of those that are shifted */

void pypmix_renew_events(void)
{
    pthread_mutex_init(&lock, NULL);
    pypmix_condition(&changed);
    shifting = finalizing = looking = 0;
}

static void one_less(unsigned *count)
{
    pthread_mutex_lock(&lock);
    --*count;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Calls the library's end when nothing is left to be raised on its progress thread. */
pmix_status_t pypmix_end_raised(pmix_status_t (*end)(void))
{
    pmix_status_t status;

    pthread_mutex_lock(&lock);
    finalizing++;
    while (0 < shifting) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    status = end();
    one_less(&finalizing);
    return status;
}

static void shifted(pmix_status_t status, size_t id, void *cbdata)
{
    (void) status;
    (void) id;
    pypmix_begun(cbdata, notify(cbdata));
    one_less(&shifting);
}

/* A registration that every release turns down on its progress thread, before it has looked at anything of its own. */
pmix_status_t pypmix_shift(pmix_hdlr_reg_cbfunc_t run, void *argument)
{
    static pmix_info_t nonsense = {.key = "pmix.evrange", .value = {.type = 1}};
    pmix_status_t invalid[] = {INT32_MIN + 1};

    return pypmix_lib.Register_event_handler(invalid, 1, &nonsense, 1, on_event, run, argument);
}

static pmix_status_t shift(pypmix_call *call)
{
    pmix_status_t status;

    pthread_mutex_lock(&lock);
    while (0 < finalizing) {
        pthread_cond_wait(&changed, &lock);
    }
    shifting++;
    pthread_mutex_unlock(&lock);
    status = pypmix_shift(shifted, call);
    if (PMIX_SUCCESS != status) {
        one_less(&shifting);
    }
    return status;
}

/*
 * `items` is the process itself, `number` the code; from bit 32 on, the range; and flags. Releases before 7 run the
 * handlers on the thread that raises an event, and look at their lists there while their progress thread changes them:
 * so for these it is raised on that.
 */
pmix_status_t pypmix_ask_notify_event(pypmix_call *call)
{
    if (NULL == pypmix_lib.Notify_event || NULL == pypmix_lib.Register_event_handler) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    return call->given.number & RAISED_ANYWHERE ? shift(call) : notify(call);
}

/*
 * The library frees a handler as soon as its progress thread deregisters it, also where the chain of an event stands at
 * it: the chain reads what is free then. So a handler is deregistered at once only where no chain may stand at it or come
 * to it: nothing of its session is unanswered, and each chain that was answered has gone on (`passing`). Otherwise its
 * number is kept. When the last chain goes on, the progress thread looks: by then that chain has come to the next handler,
 * and that may be one of these. What this process raises and is on its way to the progress thread (`shifting`) comes first.
 */
static void look(pmix_status_t status, size_t id, void *cbdata)
{
    size_t kept;
    bool others;

    (void) status;
    (void) id;
    (void) cbdata;
    pthread_mutex_lock(&lock);
    others = looking < shifting;
    pthread_mutex_unlock(&lock);
    if (others && PMIX_SUCCESS == pypmix_shift(look, NULL)) {
        return;
    }
    while (pypmix_next_handler(&kept)) {
        (void) pypmix_lib.Deregister_event_handler(kept, pypmix_ignore, NULL);
    }
    pthread_mutex_lock(&lock);
    looking--;
    pthread_mutex_unlock(&lock);
    one_less(&shifting);
}

void pypmix_look_at_handlers(void)
{
    bool begins;

    pthread_mutex_lock(&lock);
    /* while the library is finalized it frees them itself */
    begins = 0 == finalizing && 0 == looking;
    looking += begins;
    shifting += begins;
    pthread_mutex_unlock(&lock);
    if (begins && PMIX_SUCCESS != pypmix_shift(look, NULL)) {
        pthread_mutex_lock(&lock);
        looking--;
        pthread_mutex_unlock(&lock);
        one_less(&shifting);
    }
}

void pypmix_deregister_event_handler(pypmix_inbox *inbox, size_t id)
{
    if (NULL != pypmix_lib.Deregister_event_handler && !pypmix_keep_handler(inbox, id)) {
        (void) pypmix_lib.Deregister_event_handler(id, pypmix_ignore, NULL);
    }
}
