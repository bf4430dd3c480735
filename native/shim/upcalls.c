/*
 * Upcalls: what the library asks the host of a server.
 *
 * Theory of operation. An upcall is made by a trampoline (`on_...`), on the library's progress thread or on a thread
 * that uses the library in the server's process. The trampoline copies it and `put`s it into the list of those
 * that wait; it never waits itself, and refuses what is too much. It is taken either by the engine's thread,
 * which sleeps in `pypmix_upcall_next`, or by a watcher of the descriptor of a queue (`pypmix_upcalls_watch`), with
 * `pypmix_upcall_take`. The thread looks after a watcher as long as upcalls come: if it takes none for STALL seconds
 * although some wait, the thread takes them in its place until it does.
 *
 * An upcall waits (first ... last), then is open (taken: `opened`), then answered. Its taker answers it exactly once,
 * from any thread, by which it is the shim's again. An upcall of which the host is only told has no callback: the
 * library has been told success at once. `pypmix_upcalls_close` answers all that wait or are open with an error before
 * the library is finalized; an open one stays its taker's, whose answer is dropped then (`server` says which server it
 * was of).
 *
 * Most answers go back on the progress thread only (`first_answer` ... `last_answer`, brought there by `pypmix_shift`).
 * Every release lets a host call back from any thread, but many of the functions that it hands out for that (of
 * publish, lookup, queries, credentials, job control, ...) put their reply into the client's queue of messages there
 * and then, without a lock, while the progress thread sends from it. It also spares us that an answer comes before the
 * library has dealt with the upcall being taken. Those of fences and direct modexes do nothing but shift themselves to
 * the progress thread, in every release from 4.2 to 7: these are called at once, since to shift twice costs each fence
 * of a job some microseconds.
 *
 * One lock guards all of this. Nothing of the library is called with it held.
 */

#include "shim.h"
#include "types.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GROUP_DESTRUCT 1
#define LOCAL_ONLY "pmix.grp.lcl"
#define LOCAL_STATUS "pmix.loc.col.st"

/* How much may wait for the host: more is refused, since the library holds as much again for each of them. */
#define MOST_UPCALLS 65536
#define MOST_WEIGHT ((size_t) 256 * 1024 * 1024)

/* How long the end of a server waits for answers that are on their way, in seconds. */
#define LAST_ANSWERS 2

/* How long an upcall may wait for the watcher of the queue, in seconds, before the thread steps in. */
#define STALL 0.25

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered;
static pthread_cond_t arrived;

void pypmix_renew_upcalls(void)
{
    pthread_mutex_init(&lock, NULL);
    pypmix_condition(&answered);
    pypmix_condition(&arrived);
}

static bool hosted; /* whether there is a server */
static uint64_t server;
static bool told[PYPMIX_UPS];
static bool unrefused[PYPMIX_UPS];

/* the thread waits for upcalls; there is something else for it */
static bool awaited;
static bool nudged;

/*
 * The queue by which a watcher takes upcalls, NULL for none; whether the thread looks after the watcher, which it does
 * as long as upcalls come; whether the watcher does not come; how many upcalls and how often the watcher have come.
 */
static pypmix_queue *watched;
static bool guarded;
static bool stalled;
static uint64_t arrivals;
static uint64_t visits;
static uint64_t missed; /* the visits at which some waited already */

/* not taken yet, oldest first */
static pypmix_upcall *first;
static pypmix_upcall *last;
static size_t waiting;
static size_t weight;
static uint64_t lost;

/* taken or not, that the host is only told of, and has not dealt with yet */
static uint64_t ahead;

/* taken and not answered yet */
static pypmix_upcall *opened;

/* on their way to the progress thread, oldest first */
static pypmix_upcall *first_answer;
static pypmix_upcall *last_answer;
static bool shifting;

/* how many threads call the library back */
static size_t calling;

static void destroy(pypmix_upcall *upcall)
{
    if (NULL == upcall) {
        return;
    }
    pypmix_elements_free(upcall->items.type, upcall->items.array, upcall->items.size);
    pypmix_elements_free(upcall->infos.type, upcall->infos.array, upcall->infos.size);
    pypmix_elements_free(upcall->more.type, upcall->more.array, upcall->more.size);
    pypmix_given_free(&upcall->given);
    free(upcall->text);
    free(upcall->bytes);
    free(upcall);
}

static void destroy_all(pypmix_upcall *upcall)
{
    while (NULL != upcall) {
        pypmix_upcall *next = upcall->next;
        destroy(upcall);
        upcall = next;
    }
}

/* These make an upcall: each adds something to it and returns it, or frees it and returns NULL without memory. */

static pypmix_upcall *upcall_of(int what, const pmix_proc_t *source)
{
    pypmix_upcall *upcall = calloc(1, sizeof(*upcall));

    if (NULL != upcall) {
        upcall->what = what;
        upcall->weight = sizeof(*upcall);
        if (NULL != source) {
            upcall->sourced = true;
            upcall->source = *source;
        }
    }
    return upcall;
}

/* Free the upcall unless all is well. */
static pypmix_upcall *provided(pypmix_upcall *upcall, bool well)
{
    if (well) {
        return upcall;
    }
    destroy(upcall);
    return NULL;
}

static size_t weight_of(const pmix_info_t *infos, size_t count)
{
    size_t sum = count * sizeof(*infos);

    for (size_t n = 0; n < count; n++) {
        const pmix_value_t *value = &infos[n].value;
        const pmix_data_array_t *array = value->data.darray;

        switch (value->type) {
        case STRING:
            sum += NULL == value->data.string ? 0 : strlen(value->data.string);
            break;
        case BYTE_OBJECT:
        case COMPRESSED_STRING:
        case COMPRESSED_BYTE_OBJECT:
        case REGEX:
            sum += value->data.bo.size;
            break;
        case DATA_ARRAY:
            if (NULL != array && NULL != array->array) {
                sum += INFO == array->type ? weight_of(array->array, array->size)
                                           : array->size * pypmix_size_of(array->type);
            }
            break;
        default:
            break;
        }
    }
    return sum;
}

/*
 * What libraries add: the caller, which the upcall names, and notes to themselves. The status of the local part of a
 * collective is passed on only if it failed, since the others have to know that.
 */
static bool is_internal(const pmix_info_t *info)
{
    static const char *const keys[] = {"pmix.euid", "pmix.egid", "pmix.sorted.parr", "pmix.srvr.internal.notify"};

    for (size_t n = 0; n < sizeof(keys) / sizeof(*keys); n++) {
        if (0 == strcmp(keys[n], info->key)) {
            return true;
        }
    }
    return 0 == strcmp(LOCAL_STATUS, info->key) && PMIX_SUCCESS == info->value.data.status;
}

static bool copy_infos(
    pypmix_upcall *upcall, pmix_data_array_t *target, const pmix_info_t *infos, size_t count,
    bool (*left_out)(const pmix_info_t *info))
{
    if (!pypmix_copy_infos_but(target, infos, count, left_out)) {
        return false;
    }
    upcall->weight += weight_of(target->array, target->size);
    return true;
}

/* Only its infos tell which tool asks. */
static pypmix_upcall *with_infos(pypmix_upcall *upcall, const pmix_info_t *infos, size_t count)
{
    bool tool;

    if (NULL == upcall) {
        return NULL;
    }
    tool = PYPMIX_UP_TOOL_CONNECTED == upcall->what || PYPMIX_UP_TOOL_CONNECTED2 == upcall->what;
    return provided(upcall, copy_infos(upcall, &upcall->infos, infos, count, tool ? pypmix_is_nothing : is_internal));
}

static pypmix_upcall *with_more(pypmix_upcall *upcall, const pmix_info_t *infos, size_t count)
{
    return NULL == upcall ? NULL : provided(upcall, copy_infos(upcall, &upcall->more, infos, count, is_internal));
}

/* Items of a type that owns nothing. */
static pypmix_upcall *with_items(pypmix_upcall *upcall, pmix_data_type_t type, const void *items, size_t count)
{
    size_t size = pypmix_size_of(type);
    void *copies;

    if (NULL == upcall || NULL == items || 0 == count) {
        return upcall;
    }
    copies = pypmix_alloc(count, size);
    if (NULL != copies) {
        memcpy(copies, items, count * size);
        upcall->items = (pmix_data_array_t){.type = type, .size = count, .array = copies};
        upcall->weight += count * size;
    }
    return provided(upcall, NULL != copies);
}

/* Returns a copy of strings with a NULL behind them; there may be none. */
static bool copy_strings(pypmix_upcall *upcall, char ***target, size_t *count, char *const *strings)
{
    size_t size = 0;

    *count = 0;
    if (NULL == strings) {
        return true;
    }
    while (NULL != strings[size]) {
        size++;
    }
    *target = pypmix_alloc(size + 1, sizeof(char *));
    if (NULL == *target) {
        return false;
    }
    for (; *count < size; ++*count) {
        (*target)[*count] = strdup(strings[*count]);
        if (NULL == (*target)[*count]) {
            return false;
        }
        upcall->weight += sizeof(char *) + strlen(strings[*count]);
    }
    return true;
}

static pypmix_upcall *with_keys(pypmix_upcall *upcall, char *const *keys)
{
    char **copies = NULL;
    bool copied;

    if (NULL == upcall || NULL == keys) {
        return upcall;
    }
    copied = copy_strings(upcall, &copies, &upcall->items.size, keys);
    upcall->items.type = STRING;
    upcall->items.array = copies;
    return provided(upcall, copied);
}

static bool copy_text(pypmix_upcall *upcall, char **target, const char *text)
{
    if (NULL == text) {
        return true;
    }
    *target = strdup(text);
    upcall->weight += strlen(text);
    return NULL != *target;
}

static pypmix_upcall *with_text(pypmix_upcall *upcall, const char *text)
{
    return NULL == upcall ? NULL : provided(upcall, copy_text(upcall, &upcall->text, text));
}

static pypmix_upcall *with_bytes(pypmix_upcall *upcall, const pmix_byte_object_t *bytes)
{
    if (NULL == upcall || NULL == bytes || NULL == bytes->bytes) {
        return upcall;
    }
    upcall->bytes = pypmix_copy(bytes->bytes, bytes->size);
    upcall->size = bytes->size;
    upcall->weight += bytes->size;
    return provided(upcall, NULL != upcall->bytes);
}

static pypmix_upcall *with_number(pypmix_upcall *upcall, int64_t number)
{
    if (NULL != upcall) {
        upcall->number = number;
    }
    return upcall;
}

/* An array of infos that an app or a query owns. */
static bool copy_owned(
    pypmix_upcall *upcall, pmix_info_t **target, size_t *size, const pmix_info_t *infos, size_t count)
{
    pmix_data_array_t copies = {0};

    if (!copy_infos(upcall, &copies, infos, count, pypmix_is_nothing)) {
        return false;
    }
    *target = copies.array;
    *size = copies.size;
    return true;
}

static pypmix_upcall *with_apps(pypmix_upcall *upcall, const pmix_app_t *apps, size_t count)
{
    bool copied = true;
    size_t unused;
    pmix_app_t *copies;

    if (NULL == upcall || NULL == apps || 0 == count) {
        return upcall;
    }
    copies = pypmix_alloc(count, sizeof(*copies));
    if (NULL == copies) {
        return provided(upcall, false);
    }
    upcall->items = (pmix_data_array_t){.type = APP, .size = count, .array = copies};
    upcall->weight += count * sizeof(*copies);
    for (size_t n = 0; copied && n < count; n++) {
        copies[n].maxprocs = apps[n].maxprocs;
        copied = copy_text(upcall, &copies[n].cmd, apps[n].cmd)
            && copy_strings(upcall, &copies[n].argv, &unused, apps[n].argv)
            && copy_strings(upcall, &copies[n].env, &unused, apps[n].env)
            && copy_text(upcall, &copies[n].cwd, apps[n].cwd)
            && copy_owned(upcall, &copies[n].info, &copies[n].ninfo, apps[n].info, apps[n].ninfo);
    }
    return provided(upcall, copied);
}

static pypmix_upcall *with_queries(pypmix_upcall *upcall, const pmix_query_t *queries, size_t count)
{
    bool copied = true;
    size_t unused;
    pmix_query_t *copies;

    if (NULL == upcall || NULL == queries || 0 == count) {
        return upcall;
    }
    copies = pypmix_alloc(count, sizeof(*copies));
    if (NULL == copies) {
        return provided(upcall, false);
    }
    upcall->items = (pmix_data_array_t){.type = QUERY, .size = count, .array = copies};
    upcall->weight += count * sizeof(*copies);
    for (size_t n = 0; copied && n < count; n++) {
        copied = copy_strings(upcall, &copies[n].keys, &unused, queries[n].keys)
            && copy_owned(upcall, &copies[n].qualifiers, &copies[n].nqual, queries[n].qualifiers, queries[n].nqual);
    }
    return provided(upcall, copied);
}

/* Returns what the library is told of an upcall that is not taken: an error, but for what is only news. */
static pmix_status_t refusal(int what, pmix_status_t status)
{
    bool news = PYPMIX_UP_CLIENT_FINALIZED == what || PYPMIX_UP_DEREGISTER_EVENTS == what;

    return news ? PMIX_OPERATION_SUCCEEDED : status;
}

/* With the lock held. Of groups, a host is only told of the destruct of one that is this server's alone. */
static bool only_told(const pypmix_upcall *upcall)
{
    const pmix_info_t *infos = upcall->infos.array;

    if (!told[upcall->what] || PYPMIX_UP_GROUP != upcall->what) {
        return told[upcall->what];
    }
    for (size_t n = 0; GROUP_DESTRUCT == upcall->number && n < upcall->infos.size; n++) {
        if (0 == strcmp(LOCAL_ONLY, infos[n].key)) {
            return true;
        }
    }
    return false;
}

/*
 * The upcall is ready; returns what the library is to be told. The end of a client is taken however much waits: a host
 * that misses it would wait for it for ever, and there are no more of them than clients.
 */
static pmix_status_t put(int what, pypmix_upcall *upcall, void *callback, void *cbdata)
{
    pmix_status_t status = PMIX_SUCCESS;
    pypmix_queue *signalled = NULL;
    bool wake = false;

    if (NULL == upcall) {
        return refusal(what, PMIX_ERR_NOMEM);
    }
    pthread_mutex_lock(&lock);
    if (!hosted) {
        status = refusal(what, PMIX_ERR_NOT_AVAILABLE);
    } else if (PYPMIX_UP_CLIENT_FINALIZED != what
               && (MOST_UPCALLS <= waiting || (0 < waiting && MOST_WEIGHT < weight + upcall->weight))) {
        status = refusal(what, PMIX_ERR_OUT_OF_RESOURCE);
        lost++;
        nudged = true;
    } else {
        if (only_told(upcall)) {
            status = PMIX_OPERATION_SUCCEEDED;
            ahead++;
        } else {
            upcall->callback = callback;
            upcall->cbdata = cbdata;
        }
        upcall->server = server;
        if (NULL == first) {
            first = upcall;
            signalled = watched;
        } else {
            last->next = upcall;
        }
        last = upcall;
        waiting++;
        weight += upcall->weight;
        upcall = NULL;
        arrivals++;
        wake = awaited && (NULL == watched || !guarded || stalled);
        awaited = awaited && !wake;
        guarded = NULL != watched;
    }
    pthread_mutex_unlock(&lock);
    /* without the lock, which who wakes up needs at once */
    if (NULL != signalled) {
        pypmix_queue_signal(signalled);
    }
    if (wake) {
        pthread_cond_signal(&arrived);
    }
    destroy(upcall);
    return status;
}

/*
 * The library's table takes functions of many types. Each makes its upcall and puts it into the list: which, the
 * function's name, how it is made, and what the library calls it with, all but the last argument.
 */
#define OF(source) upcall_of(what, source)
#define TAKE_IN(kind, name, made, ...)                   \
    static pmix_status_t name(__VA_ARGS__, void *cbdata) \
    {                                                    \
        const int what = PYPMIX_UP_##kind;               \
                                                         \
        return put(what, made, (void *) cbfunc, cbdata); \
    }

static pmix_status_t on_client_connected(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    const int what = PYPMIX_UP_CLIENT_CONNECTED;

    (void) object;
    return put(what, upcall_of(what, proc), (void *) cbfunc, cbdata);
}

static pmix_status_t on_client_connected2(
    const pmix_proc_t *proc, void *object, pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    const int what = PYPMIX_UP_CLIENT_CONNECTED2;

    (void) object;
    return put(what, with_infos(upcall_of(what, proc), info, ninfo), (void *) cbfunc, cbdata);
}

static pmix_status_t on_client_finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    const int what = PYPMIX_UP_CLIENT_FINALIZED;

    (void) object;
    return put(what, upcall_of(what, proc), (void *) cbfunc, cbdata);
}

static pmix_status_t on_abort(
    const pmix_proc_t *proc, void *object, int status, const char msg[], pmix_proc_t procs[], size_t nprocs,
    pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    const int what = PYPMIX_UP_ABORT;
    pypmix_upcall *upcall = with_text(with_number(upcall_of(what, proc), status), msg);

    (void) object;
    return put(what, with_items(upcall, PROC, procs, nprocs), (void *) cbfunc, cbdata);
}

/* The data become the host's with the call, whatever it returns. */
static pmix_status_t on_fence(
    const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo, char *data, size_t ndata,
    pmix_modex_cbfunc_t cbfunc, void *cbdata)
{
    const int what = PYPMIX_UP_FENCE;
    pypmix_upcall *upcall = with_infos(with_items(upcall_of(what, NULL), PROC, procs, nprocs), info, ninfo);

    if (NULL == upcall) {
        free(data);
    } else {
        upcall->bytes = data;
        upcall->size = NULL == data ? 0 : ndata;
        upcall->weight += upcall->size;
    }
    return put(what, upcall, (void *) cbfunc, cbdata);
}

TAKE_IN(DIRECT_MODEX, on_direct_modex, with_infos(OF(proc), info, ninfo),
    const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo, pmix_modex_cbfunc_t cbfunc)

TAKE_IN(PUBLISH, on_publish, with_infos(OF(proc), info, ninfo),
    const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc)

TAKE_IN(LOOKUP, on_lookup, with_infos(with_keys(OF(proc), keys), info, ninfo),
    const pmix_proc_t *proc, char **keys, const pmix_info_t info[], size_t ninfo, pmix_lookup_cbfunc_t cbfunc)

TAKE_IN(UNPUBLISH, on_unpublish, with_infos(with_keys(OF(proc), keys), info, ninfo),
    const pmix_proc_t *proc, char **keys, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc)

TAKE_IN(SPAWN, on_spawn, with_apps(with_infos(OF(proc), info, ninfo), apps, napps),
    const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo, const pmix_app_t apps[], size_t napps,
    pmix_spawn_cbfunc_t cbfunc)

TAKE_IN(CONNECT, on_connect, with_infos(with_items(OF(NULL), PROC, procs, nprocs), info, ninfo),
    const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc)

TAKE_IN(DISCONNECT, on_disconnect, with_infos(with_items(OF(NULL), PROC, procs, nprocs), info, ninfo),
    const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc)

TAKE_IN(REGISTER_EVENTS, on_register_events, with_infos(with_items(OF(NULL), STATUS, codes, ncodes), info, ninfo),
    pmix_status_t *codes, size_t ncodes, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cbfunc)

TAKE_IN(DEREGISTER_EVENTS, on_deregister_events, with_items(OF(NULL), STATUS, codes, ncodes),
    pmix_status_t *codes, size_t ncodes, pmix_op_cbfunc_t cbfunc)

static pmix_status_t on_notify_event(
    pmix_status_t code, const pmix_proc_t *source, uint8_t range, pmix_info_t info[], size_t ninfo,
    pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    const int what = PYPMIX_UP_NOTIFY_EVENT;
    int64_t number = (int64_t) ((uint64_t) range << 32 | (uint32_t) code);

    return put(
        what, with_infos(with_number(upcall_of(what, source), number), info, ninfo), (void *) cbfunc, cbdata);
}

TAKE_IN(QUERY, on_query, with_queries(OF(proc), queries, nqueries),
    pmix_proc_t *proc, pmix_query_t *queries, size_t nqueries, pmix_info_cbfunc_t cbfunc)

TAKE_IN(TOOL_CONNECTED2, on_tool_connected2, with_infos(OF(NULL), info, ninfo),
    pmix_info_t *info, size_t ninfo, pmix_tool_connection_cbfunc_t cbfunc)

/*
 * Two return nothing, so that the library takes a refusal for an answer. Not at once: it may hold a lock here that
 * it takes there. And not while it is finalized, since it holds one then that is needed to shift.
 */
static void refuse(int what, pmix_status_t status, void *callback, void *cbdata)
{
    pypmix_upcall *upcall = PMIX_SUCCESS == status || NULL == callback ? NULL : upcall_of(what, NULL);

    if (NULL != upcall) {
        upcall->callback = callback;
        upcall->cbdata = cbdata;
        pthread_mutex_lock(&lock);
        upcall->server = server;
        pthread_mutex_unlock(&lock);
        pypmix_upcall_answer(upcall, status, NULL);
    }
}

static void on_tool_connected(pmix_info_t *info, size_t ninfo, pmix_tool_connection_cbfunc_t cbfunc, void *cbdata)
{
    const int what = PYPMIX_UP_TOOL_CONNECTED;
    pmix_status_t status = put(what, with_infos(upcall_of(what, NULL), info, ninfo), (void *) cbfunc, cbdata);

    refuse(what, status, (void *) cbfunc, cbdata);
}

static void on_log(
    const pmix_proc_t *proc, const pmix_info_t data[], size_t ndata, const pmix_info_t directives[], size_t ndirs,
    pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    const int what = PYPMIX_UP_LOG;
    pypmix_upcall *upcall = with_infos(upcall_of(what, proc), data, ndata);
    pmix_status_t status = put(what, with_more(upcall, directives, ndirs), (void *) cbfunc, cbdata);

    refuse(what, status, (void *) cbfunc, cbdata);
}

TAKE_IN(LOG2, on_log2, with_more(with_infos(OF(proc), data, ndata), directives, ndirs),
    const pmix_proc_t *proc, const pmix_info_t data[], size_t ndata, const pmix_info_t directives[], size_t ndirs,
    pmix_op_cbfunc_t cbfunc)

TAKE_IN(ALLOCATE, on_allocate, with_infos(with_number(OF(proc), directive), info, ninfo),
    const pmix_proc_t *proc, uint8_t directive, const pmix_info_t info[], size_t ninfo, pmix_info_cbfunc_t cbfunc)

TAKE_IN(JOB_CONTROL, on_job_control,
    with_infos(with_items(OF(proc), PROC, targets, ntargets), info, ninfo),
    const pmix_proc_t *proc, const pmix_proc_t targets[], size_t ntargets, const pmix_info_t info[], size_t ninfo,
    pmix_info_cbfunc_t cbfunc)

TAKE_IN(MONITOR, on_monitor,
    with_infos(with_more(with_number(OF(proc), error), monitor, NULL == monitor ? 0 : 1), info, ninfo),
    const pmix_proc_t *proc, const pmix_info_t *monitor, pmix_status_t error, const pmix_info_t info[], size_t
    ninfo, pmix_info_cbfunc_t cbfunc)

TAKE_IN(GET_CREDENTIAL, on_get_credential, with_infos(OF(proc), info, ninfo),
    const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo, pmix_credential_cbfunc_t cbfunc)

TAKE_IN(VALIDATE_CREDENTIAL, on_validate_credential, with_infos(with_bytes(OF(proc), credential), info, ninfo),
    const pmix_proc_t *proc, const pmix_byte_object_t *credential, const pmix_info_t info[], size_t ninfo,
    pmix_validation_cbfunc_t cbfunc)

TAKE_IN(IOF_PULL, on_iof_pull,
    with_infos(with_items(with_number(OF(NULL), channels), PROC, procs, nprocs), info, ninfo),
    const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo, uint16_t channels,
    pmix_op_cbfunc_t cbfunc)

TAKE_IN(PUSH_STDIN, on_push_stdin,
    with_infos(with_bytes(with_items(OF(source), PROC, targets, ntargets), bytes), info, ninfo),
    const pmix_proc_t *source, const pmix_proc_t targets[], size_t ntargets, const pmix_info_t info[], size_t ninfo,
    const pmix_byte_object_t *bytes, pmix_op_cbfunc_t cbfunc)

TAKE_IN(GROUP, on_group,
    with_infos(with_items(with_text(with_number(OF(NULL), operation), name), PROC, procs, nprocs), info, ninfo),
    uint8_t operation, char name[], const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t
    ninfo, pmix_info_cbfunc_t cbfunc)

TAKE_IN(FABRIC, on_fabric, with_infos(with_number(OF(proc), operation), info, ninfo),
    const pmix_proc_t *proc, uint8_t operation, const pmix_info_t info[], size_t ninfo, pmix_info_cbfunc_t cbfunc)

TAKE_IN(SESSION_CONTROL, on_session_control, with_infos(with_number(OF(proc), session), info, ninfo),
    const pmix_proc_t *proc, uint32_t session, const pmix_info_t info[], size_t ninfo, pmix_info_cbfunc_t cbfunc)

TAKE_IN(RESOURCE_BLOCK, on_resource_block,
    with_infos(
        with_items(with_text(with_number(OF(proc), directive), name), RESOURCE_UNIT, units, nunits), info, ninfo),
    const pmix_proc_t *proc, uint8_t directive, const char *name, const pmix_resource_unit_t *units, size_t nunits,
    const pmix_info_t *info, size_t ninfo, pmix_op_cbfunc_t cbfunc)

/* how the library is called back */
enum { OP, MODEX, LOOKED_UP, SPAWNED, INFOS, NAMED, CREDENTIAL, VALIDATION };

#define UPCALL(WHAT, name, way) [PYPMIX_UP_##WHAT] = {(pypmix_function) on_##name, way}

static const struct {
    pypmix_function function;
    int way;
} upcalls[PYPMIX_UPS] = {
    UPCALL(CLIENT_CONNECTED, client_connected, OP),
    UPCALL(CLIENT_FINALIZED, client_finalized, OP),
    UPCALL(ABORT, abort, OP),
    UPCALL(FENCE, fence, MODEX),
    UPCALL(DIRECT_MODEX, direct_modex, MODEX),
    UPCALL(PUBLISH, publish, OP),
    UPCALL(LOOKUP, lookup, LOOKED_UP),
    UPCALL(UNPUBLISH, unpublish, OP),
    UPCALL(SPAWN, spawn, SPAWNED),
    UPCALL(CONNECT, connect, OP),
    UPCALL(DISCONNECT, disconnect, OP),
    UPCALL(REGISTER_EVENTS, register_events, OP),
    UPCALL(DEREGISTER_EVENTS, deregister_events, OP),
    UPCALL(NOTIFY_EVENT, notify_event, OP),
    UPCALL(QUERY, query, INFOS),
    UPCALL(TOOL_CONNECTED, tool_connected, NAMED),
    UPCALL(LOG, log, OP),
    UPCALL(ALLOCATE, allocate, INFOS),
    UPCALL(JOB_CONTROL, job_control, INFOS),
    UPCALL(MONITOR, monitor, INFOS),
    UPCALL(GET_CREDENTIAL, get_credential, CREDENTIAL),
    UPCALL(VALIDATE_CREDENTIAL, validate_credential, VALIDATION),
    UPCALL(IOF_PULL, iof_pull, OP),
    UPCALL(PUSH_STDIN, push_stdin, OP),
    UPCALL(GROUP, group, INFOS),
    UPCALL(FABRIC, fabric, INFOS),
    UPCALL(CLIENT_CONNECTED2, client_connected2, OP),
    UPCALL(TOOL_CONNECTED2, tool_connected2, NAMED),
    UPCALL(LOG2, log2, OP),
    UPCALL(SESSION_CONTROL, session_control, INFOS),
    UPCALL(RESOURCE_BLOCK, resource_block, OP),
};

pypmix_function pypmix_trampoline(int what)
{
    return upcalls[what].function;
}

static void released(void *cbdata)
{
    destroy(cbdata);
}

/* On the progress thread. What the library does not copy before it returns is freed when it says so. */
static void call_back(pypmix_upcall *upcall)
{
    pypmix_given *given = &upcall->given;
    pmix_status_t status = PMIX_OPERATION_SUCCEEDED == upcall->status ? PMIX_SUCCESS : upcall->status;
    const int way = upcalls[upcall->what].way;
    bool whole = NULL != given->items.array && 0 < given->items.size;
    void *items = whole ? given->items.array : NULL;
    size_t count = whole ? given->items.size : 0;
    pmix_byte_object_t *bytes = items;
    /* releases up to 5.0 at least look at the name of a tool that was turned away */
    pmix_proc_t unnamed = {.rank = 0};

    if (PMIX_SUCCESS != status && unrefused[upcall->what]) {
        destroy(upcall);
        return;
    }
    switch (way) {
    case OP:
        ((pmix_op_cbfunc_t) upcall->callback)(status, upcall->cbdata);
        break;
    case MODEX:
        ((pmix_modex_cbfunc_t) upcall->callback)(
            status, whole ? bytes->bytes : NULL, whole ? bytes->size : 0, upcall->cbdata, released, upcall);
        return;
    case LOOKED_UP:
        ((pmix_lookup_cbfunc_t) upcall->callback)(status, items, count, upcall->cbdata);
        break;
    case SPAWNED:
        ((pmix_spawn_cbfunc_t) upcall->callback)(status, whole ? *(char **) items : NULL, upcall->cbdata);
        break;
    case INFOS:
        ((pmix_info_cbfunc_t) upcall->callback)(
            status, given->infos, given->ninfos, upcall->cbdata, released, upcall);
        return;
    case NAMED:
        ((pmix_tool_connection_cbfunc_t) upcall->callback)(
            status, whole ? items : &unnamed, upcall->cbdata);
        break;
    case CREDENTIAL:
        ((pmix_credential_cbfunc_t) upcall->callback)(
            status, bytes, given->infos, given->ninfos, upcall->cbdata);
        break;
    case VALIDATION:
        ((pmix_validation_cbfunc_t) upcall->callback)(status, given->infos, given->ninfos, upcall->cbdata);
        break;
    }
    destroy(upcall);
}

/* Take all answers. Without any, the way to the progress thread is free again. */
static pypmix_upcall *take_answers(void)
{
    pypmix_upcall *taken;

    pthread_mutex_lock(&lock);
    taken = first_answer;
    first_answer = NULL;
    if (NULL == taken) {
        shifting = false;
        pthread_cond_broadcast(&answered);
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

static void call_all_back(pmix_status_t unused_status, size_t unused_id, void *unused)
{
    pypmix_upcall *upcall;

    (void) unused_status;
    (void) unused_id;
    (void) unused;
    while (NULL != (upcall = take_answers())) {
        while (NULL != upcall) {
            pypmix_upcall *next = upcall->next;
            call_back(upcall);
            upcall = next;
        }
    }
}

/* With the lock held. Returns whether the caller has to bring the answers to the progress thread. */
static bool add_answer(pypmix_upcall *upcall, pmix_status_t status)
{
    bool shift = !shifting;

    upcall->status = status;
    upcall->next = NULL;
    if (NULL == first_answer) {
        first_answer = upcall;
    } else {
        last_answer->next = upcall;
    }
    last_answer = upcall;
    shifting = true;
    return shift;
}

static void called_back(void)
{
    pthread_mutex_lock(&lock);
    calling--;
    if (0 == calling) {
        pthread_cond_broadcast(&answered);
    }
    pthread_mutex_unlock(&lock);
}

static void shift_answers(void)
{
    pypmix_upcall *left;

    if (PMIX_SUCCESS != pypmix_shift(call_all_back, NULL)) {
        /* the library has no progress thread any more */
        while (NULL != (left = take_answers())) {
            destroy_all(left);
        }
    }
}

/* With the lock held. */
static void unlink_open(pypmix_upcall *upcall)
{
    if (!upcall->open) {
        return;
    }
    if (NULL != upcall->previous) {
        upcall->previous->next = upcall->next;
    } else {
        opened = upcall->next;
    }
    if (NULL != upcall->next) {
        upcall->next->previous = upcall->previous;
    }
    upcall->open = false;
    upcall->next = upcall->previous = NULL;
}

void pypmix_upcall_answer(pypmix_upcall *upcall, pmix_status_t status, pypmix_given *given)
{
    bool stale, shift = false, direct = MODEX == upcalls[upcall->what].way;

    if (NULL != given) {
        upcall->given = *given;
        memset(given, 0, sizeof(*given));
    }
    pthread_mutex_lock(&lock);
    unlink_open(upcall);
    stale = !hosted || server != upcall->server || NULL == upcall->callback;
    if (hosted && server == upcall->server && NULL == upcall->callback) {
        ahead--;
    }
    if (!stale && direct) {
        upcall->status = status;
        calling++;
    } else if (!stale) {
        shift = add_answer(upcall, status);
    }
    pthread_mutex_unlock(&lock);
    if (stale) {
        destroy(upcall);
    } else if (direct) {
        call_back(upcall);
        called_back();
    } else if (shift) {
        shift_answers();
    }
}

pmix_status_t pypmix_upcall_answer_bytes(pypmix_upcall *upcall, pmix_status_t status, const char *bytes, size_t size)
{
    pypmix_given given = {.number = 0};
    pmix_byte_object_t *object = NULL;

    if (0 < size) {
        object = pypmix_alloc(1, sizeof(*object));
        if (NULL == object) {
            return PMIX_ERR_NOMEM;
        }
        given.items = (pmix_data_array_t){.type = BYTE_OBJECT, .size = 1, .array = object};
        object->bytes = pypmix_copy(bytes, size);
        object->size = size;
        if (NULL == object->bytes) {
            free(object);
            return PMIX_ERR_NOMEM;
        }
    }
    pypmix_upcall_answer(upcall, status, &given);
    return PMIX_SUCCESS;
}

/* With the lock held. */
static pypmix_upcall *take_first(void)
{
    pypmix_upcall *upcall = first;

    if (NULL != upcall) {
        first = upcall->next;
        waiting--;
        weight -= upcall->weight;
        upcall->open = true;
        upcall->next = opened;
        if (NULL != opened) {
            opened->previous = upcall;
        }
        opened = upcall;
    }
    return upcall;
}

pypmix_upcall *pypmix_upcall_take(void)
{
    pypmix_upcall *upcall;

    pthread_mutex_lock(&lock);
    upcall = take_first();
    visits++;
    stalled = false;
    pthread_mutex_unlock(&lock);
    return upcall;
}

/* With the lock held, which is given back meanwhile: wait for upcalls, or for who watches to take them. */
static void wait_for_upcalls(void)
{
    struct timespec until;
    uint64_t came = arrivals;

    awaited = true;
    if (NULL == watched || !guarded || stalled) {
        pthread_cond_wait(&arrived, &lock);
        return;
    }
    until = pypmix_after(STALL);
    if (0 != pthread_cond_timedwait(&arrived, &lock, &until)) {
        stalled = NULL != first && missed == visits;
        missed = NULL == first ? UINT64_MAX : visits;
        guarded = NULL != first || came != arrivals;
    }
}

void pypmix_upcalls_watch(pypmix_queue *queue)
{
    pthread_mutex_lock(&lock);
    watched = queue;
    guarded = true;
    stalled = false;
    missed = UINT64_MAX;
    awaited = false;
    pthread_mutex_unlock(&lock);
    pypmix_queue_signal(queue);
    pthread_cond_signal(&arrived);
}

pypmix_upcall *pypmix_upcall_next(void)
{
    pypmix_upcall *upcall = NULL;

    pthread_mutex_lock(&lock);
    while (!nudged && (NULL == first || (NULL != watched && !stalled))) {
        wait_for_upcalls();
    }
    awaited = false;
    if (nudged) {
        nudged = false;
    } else {
        upcall = take_first();
    }
    pthread_mutex_unlock(&lock);
    return upcall;
}

/* The queue of a server has something. */
static void nudge(void)
{
    bool wake;

    pthread_mutex_lock(&lock);
    nudged = true;
    wake = awaited;
    awaited = false;
    pthread_mutex_unlock(&lock);
    if (wake) {
        pthread_cond_signal(&arrived);
    }
}

uint64_t pypmix_upcalls_ahead(void)
{
    uint64_t count;

    pthread_mutex_lock(&lock);
    count = ahead;
    pthread_mutex_unlock(&lock);
    return count;
}

uint64_t pypmix_upcalls_lost(void)
{
    uint64_t count;

    pthread_mutex_lock(&lock);
    count = lost;
    lost = 0;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Before the library is initialized; false if there is a server. */
bool pypmix_upcalls_open(pypmix_queue *queue, const int *slots, size_t nslots)
{
    bool opened;

    pthread_mutex_lock(&lock);
    opened = !hosted;
    if (opened) {
        pypmix_queue_serve_by(queue, nudge);
        watched = NULL;
        hosted = true;
        server++;
        lost = 0;
        ahead = 0;
        for (size_t n = 0; n < PYPMIX_UPS; n++) {
            int slot = n < nslots && 0 < slots[n] ? slots[n] : 0;

            told[n] = 0 != (slot & PYPMIX_UP_TOLD);
            unrefused[n] = 0 != (slot & PYPMIX_UP_UNREFUSED);
        }
    }
    pthread_mutex_unlock(&lock);
    return opened;
}

/* With the lock held: answer what was taken; it stays its taker's, so that something else has to stand in for it. */
static bool answer_open(void)
{
    bool shift = false;

    while (NULL != opened) {
        pypmix_upcall *upcall = opened;
        pypmix_upcall *instead = NULL == upcall->callback ? NULL : upcall_of(upcall->what, NULL);

        unlink_open(upcall);
        if (NULL != instead) {
            instead->callback = upcall->callback;
            instead->cbdata = upcall->cbdata;
            shift = add_answer(instead, refusal(upcall->what, PMIX_ERR_LOST_CONNECTION)) || shift;
        }
        upcall->callback = NULL;
    }
    return shift;
}

/* With the lock held: answer all that was not taken. Returns what needs no answer. */
static pypmix_upcall *answer_waiting(bool *shift)
{
    pypmix_upcall *dropped = NULL;

    while (NULL != first) {
        pypmix_upcall *upcall = first;

        first = upcall->next;
        if (NULL != upcall->callback) {
            *shift = add_answer(upcall, refusal(upcall->what, PMIX_ERR_LOST_CONNECTION)) || *shift;
        } else {
            upcall->next = dropped;
            dropped = upcall;
        }
    }
    waiting = weight = 0;
    return dropped;
}

/*
 * Before the library is finalized: nothing is taken from now on, and what was answered reaches the clients. The rest is
 * answered here, since the library lets go of a client's connection only when nothing is open for it.
 */
void pypmix_upcalls_close(void)
{
    pypmix_upcall *dropped;
    struct timespec until;
    int result = 0;
    bool shift;

    pthread_mutex_lock(&lock);
    hosted = false;
    shift = answer_open();
    dropped = answer_waiting(&shift);
    pthread_mutex_unlock(&lock);
    destroy_all(dropped);
    if (shift) {
        shift_answers();
    }
    until = pypmix_after(LAST_ANSWERS);
    pthread_mutex_lock(&lock);
    while ((shifting || 0 < calling) && 0 == result) {
        result = pthread_cond_timedwait(&answered, &lock, &until);
    }
    pthread_mutex_unlock(&lock);
}
