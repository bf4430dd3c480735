/* Carries out the script of one rank, as player.py does: see plans.py for its lines.
 *
 * player FOLDER LABEL: the script is FOLDER/LABEL.RANK, the results go to FOLDER/LABEL.RANK.out.
 */
#include <pmix.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 64, AT_ONCE = 32, OPS = 1024, HEARD = 1024, EVENT = -4711, LIMIT = 15 };

typedef struct {
    int batch, index, count, limit;
    char *words[WORDS];
} line_t;

static pmix_proc_t me;
static FILE *results, *begun;
static char others[4000];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *spawned[OPS];
static uint32_t heard[HEARD];
static size_t nheard;

static void tell(const line_t *line, const char *text)
{
    pthread_mutex_lock(&lock);
    fprintf(results, "%d %s\n", line->index, text);
    fflush(results);
    pthread_mutex_unlock(&lock);
}

static void tell_status(const line_t *line, pmix_status_t status)
{
    char text[32];

    snprintf(text, sizeof text, "status %d", status == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : status);
    tell(line, text);
}

static void fail(const char *what)
{
    fprintf(stderr, "player: %s\n", what);
    exit(70);
}

static void name_info(pmix_info_t *info, const char *key, pmix_data_type_t type)
{
    memset(info, 0, sizeof *info);
    strncpy(info->key, key, PMIX_MAX_KEYLEN);
    info->value.type = type;
}

static void flag(pmix_info_t *info, const char *key)
{
    name_info(info, key, PMIX_BOOL);
    info->value.data.flag = true;
}

static void limit(pmix_info_t *info, const line_t *line)
{
    name_info(info, PMIX_TIMEOUT, PMIX_INT);
    info->value.data.integer = line->limit ? line->limit : LIMIT;
}

/* "@:3" is a rank of the own job, "^:" the proc that has spawned it, "7:0" a rank of what the line 7 has spawned. */
static void read_proc(pmix_proc_t *proc, const char *word)
{
    const char *rank = strchr(word, ':');
    const char *nspace = me.nspace;
    char group[PMIX_MAX_NSLEN + 1] = "";

    memset(proc, 0, sizeof *proc);
    if (!rank)
        fail(word);
    rank++;
    if (*word == '^') {
        pmix_value_t *value;

        if (PMIx_Get(&me, PMIX_PARENT_ID, NULL, 0, &value) != PMIX_SUCCESS)
            fail("no parent");
        *proc = *value->data.proc;
        PMIX_VALUE_RELEASE(value);
        return;
    }
    if (*word == '=') {
        strncat(group, word + 1, (size_t) (rank - word - 2));
        nspace = group;
    } else if (*word != '@')
        nspace = spawned[atoi(word)];
    if (!nspace)
        fail("no such job");
    strncpy(proc->nspace, nspace, PMIX_MAX_NSLEN);
    proc->rank = *rank == '*' ? PMIX_RANK_WILDCARD : (pmix_rank_t) atoi(rank);
}

static size_t read_procs(pmix_proc_t *procs, const line_t *line, int first)
{
    size_t count = 0;

    for (int n = first; n < line->count; n++)
        read_proc(&procs[count++], line->words[n]);
    return count;
}

/* "s=text", "u=7", "x=00ff". */
static void read_value(pmix_value_t *value, const char *word)
{
    memset(value, 0, sizeof *value);
    switch (*word) {
    case 's':
        value->type = PMIX_STRING;
        value->data.string = (char *) word + 2;
        break;
    case 'u':
        value->type = PMIX_UINT32;
        value->data.uint32 = (uint32_t) strtoul(word + 2, NULL, 10);
        break;
    default: {
        size_t size = strlen(word + 2) / 2;

        value->type = PMIX_BYTE_OBJECT;
        value->data.bo.size = size;
        value->data.bo.bytes = malloc(size + 1);
        for (size_t n = 0; n < size; n++) {
            unsigned byte;

            sscanf(word + 2 + 2 * n, "%2x", &byte);
            value->data.bo.bytes[n] = (char) byte;
        }
    }
    }
}

static void tell_value(const line_t *line, const pmix_value_t *value)
{
    size_t room = 64;
    char *text;

    if (value->type == PMIX_STRING)
        room += strlen(value->data.string);
    if (value->type == PMIX_BYTE_OBJECT)
        room += 2 * value->data.bo.size;
    text = malloc(room);
    if (value->type == PMIX_STRING) {
        snprintf(text, room, "s=%s", value->data.string);
    } else if (value->type == PMIX_UINT32) {
        snprintf(text, room, "u=%u", value->data.uint32);
    } else if (value->type == PMIX_BYTE_OBJECT) {
        size_t at = (size_t) snprintf(text, room, "x=");

        for (size_t n = 0; n < value->data.bo.size; n++)
            at += (size_t) snprintf(text + at, room - at, "%02x", (unsigned char) value->data.bo.bytes[n]);
    } else {
        snprintf(text, room, "type %d", value->type);
    }
    tell(line, text);
    free(text);
}

static void put(const line_t *line)
{
    pmix_value_t value;
    const char *scope = line->words[2];

    read_value(&value, line->words[3]);
    tell_status(line, PMIx_Put(*scope == 'l' ? PMIX_LOCAL : *scope == 'r' ? PMIX_REMOTE : PMIX_GLOBAL, line->words[1], &value));
}

static void fence(const line_t *line)
{
    pmix_proc_t procs[WORDS];
    pmix_info_t infos[2];
    size_t count = read_procs(procs, line, 2);
    bool collect = *line->words[1] == 'y';

    limit(&infos[0], line);
    flag(&infos[1], PMIX_COLLECT_DATA);
    tell_status(line, PMIx_Fence(procs, count, infos, collect ? 2 : 1));
}

static void get(const line_t *line)
{
    pmix_proc_t proc;
    pmix_info_t info;
    pmix_value_t *value = NULL;
    pmix_status_t status;

    read_proc(&proc, line->words[1]);
    if (!strcmp(line->words[0], "peek"))
        flag(&info, PMIX_OPTIONAL);
    else
        limit(&info, line);
    status = PMIx_Get(&proc, line->words[2], &info, 1, &value);
    if (status != PMIX_SUCCESS) {
        tell_status(line, status);
        return;
    }
    tell_value(line, value);
    PMIX_VALUE_RELEASE(value);
}

static void publish(const line_t *line)
{
    pmix_info_t info;

    name_info(&info, line->words[1], PMIX_STRING);
    read_value(&info.value, line->words[2]);
    tell_status(line, PMIx_Publish(&info, 1));
}

static void lookup(const line_t *line)
{
    pmix_pdata_t data;
    pmix_status_t status;

    PMIX_PDATA_CONSTRUCT(&data);
    strncpy(data.key, line->words[1], PMIX_MAX_KEYLEN);
    status = PMIx_Lookup(&data, 1, NULL, 0);
    if (status == PMIX_SUCCESS)
        tell_value(line, &data.value);
    else
        tell_status(line, status);
}

static void unpublish(const line_t *line)
{
    char *keys[] = {line->words[1], NULL};

    tell_status(line, PMIx_Unpublish(keys, NULL, 0));
}

static int by_rank(const void *left, const void *right)
{
    pmix_rank_t a = ((const pmix_proc_t *) left)->rank, b = ((const pmix_proc_t *) right)->rank;

    return a < b ? -1 : a > b;
}

/* "group CONTEXT MEMBERS", as far as this library tells them. */
static void construct(const line_t *line)
{
    pmix_proc_t procs[WORDS];
    pmix_info_t infos[3], *found = NULL;
    size_t nfound = 0, ninfos = 1, count = read_procs(procs, line, 2);
    char id[32] = "?", members[1024] = "?";
    char text[1100];
    pmix_status_t status;

    flag(&infos[0], PMIX_GROUP_ASSIGN_CONTEXT_ID);
    /* libpmix 4.2's server does not survive a limit, so there is one only where the plan has it. */
    if (line->limit)
        limit(&infos[ninfos++], line);
    if (*line->words[0] == 't')
        flag(&infos[ninfos++], PMIX_GROUP_FT_COLLECTIVE);
    else if (*line->words[0] == 'n')
        flag(&infos[ninfos++], PMIX_GROUP_NOTIFY_TERMINATION);
    else if (*line->words[0] == 'l')
        flag(&infos[ninfos++], PMIX_GROUP_LOCAL_ONLY);
    status = PMIx_Group_construct(line->words[1], procs, count, infos, ninfos, &found, &nfound);
    if (status != PMIX_SUCCESS) {
        tell_status(line, status);
        return;
    }
    for (size_t n = 0; n < nfound; n++) {
        if (!strcmp(found[n].key, PMIX_GROUP_CONTEXT_ID) && found[n].value.type == PMIX_SIZE) {
            snprintf(id, sizeof id, "%zu", found[n].value.data.size);
        } else if (!strcmp(found[n].key, PMIX_GROUP_MEMBERSHIP) && found[n].value.type == PMIX_DATA_ARRAY) {
            pmix_data_array_t *array = found[n].value.data.darray;
            size_t at = 0;

            qsort(array->array, array->size, sizeof(pmix_proc_t), by_rank);
            for (size_t m = 0; m < array->size; m++)
                at += (size_t) snprintf(members + at, sizeof members - at, m ? ",%u" : "%u", ((pmix_proc_t *) array->array)[m].rank);
        }
    }
    snprintf(text, sizeof text, "group %s %s", id, members);
    tell(line, text);
}

static void destruct(const line_t *line)
{
    pmix_info_t info;

    limit(&info, line);
    tell_status(line, PMIx_Group_destruct(line->words[1], &info, line->limit ? 1 : 0));
}

static void connect(const line_t *line)
{
    pmix_proc_t procs[WORDS];
    pmix_info_t info;
    size_t count = read_procs(procs, line, 1);

    limit(&info, line);
    if (*line->words[0] == 'c')
        tell_status(line, PMIx_Connect(procs, count, &info, 1));
    else
        tell_status(line, PMIx_Disconnect(procs, count, &info, 1));
}

static void on_event(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t infos[], size_t ninfos,
                     pmix_info_t *prior, size_t nprior, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void) id, (void) status, (void) prior, (void) nprior;
    pthread_mutex_lock(&lock);
    for (size_t n = 0; n < ninfos && nheard < HEARD; n++)
        if (!strcmp(infos[n].key, "diff.serial") && (source->rank != me.rank || strcmp(source->nspace, me.nspace)))
            heard[nheard++] = infos[n].value.data.uint32;
    pthread_mutex_unlock(&lock);
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void notify(const line_t *line)
{
    pmix_proc_t targets[WORDS];
    pmix_data_array_t array = {PMIX_PROC, 0, targets};
    pmix_info_t infos[2];
    const char *range = line->words[2];

    name_info(&infos[0], "diff.serial", PMIX_UINT32);
    infos[0].value.data.uint32 = (uint32_t) strtoul(line->words[1], NULL, 10);
    name_info(&infos[1], PMIX_EVENT_CUSTOM_RANGE, PMIX_DATA_ARRAY);
    infos[1].value.data.darray = &array;
    array.size = read_procs(targets, line, 3);
    if (*range == 'c')
        tell_status(line, PMIx_Notify_event(EVENT, &me, PMIX_RANGE_CUSTOM, infos, 2, NULL, NULL));
    else
        tell_status(line, PMIx_Notify_event(EVENT, &me, *range == 'l' ? PMIX_RANGE_LOCAL : PMIX_RANGE_NAMESPACE, infos, 1, NULL, NULL));
}

static int by_number(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *) left, b = *(const uint32_t *) right;

    return a < b ? -1 : a > b;
}

/* Wait for so many events, and a moment for more than should come. */
static void hear(const line_t *line)
{
    size_t wanted = (size_t) atoi(line->words[1]), count = 0;
    char text[8192] = "heard";
    size_t at = strlen(text);

    for (int n = 0; n < LIMIT * 100; n++) {
        pthread_mutex_lock(&lock);
        count = nheard;
        pthread_mutex_unlock(&lock);
        if (count >= wanted)
            break;
        usleep(10000);
    }
    usleep(20000);
    pthread_mutex_lock(&lock);
    qsort(heard, nheard, sizeof heard[0], by_number);
    for (size_t n = 0; n < nheard && at < sizeof text - 16; n++)
        at += (size_t) snprintf(text + at, sizeof text - at, " %u", heard[n]);
    pthread_mutex_unlock(&lock);
    tell(line, text);
}

/* spawn COUNT WORD...: one application for all, or several after "+". */
static void spawn(const line_t *line)
{
    pmix_app_t apps[WORDS];
    char *argv[WORDS + 1];
    char nspace[PMIX_MAX_NSLEN + 1];
    size_t napps = 0;
    int nargs = 0, begin = 0;
    pmix_status_t status;

    memset(apps, 0, sizeof apps);
    for (int n = 1; n <= line->count; n++) {
        bool end = n == line->count || !strcmp(line->words[n], "+");

        if (!end) {
            argv[nargs++] = line->words[n];
            continue;
        }
        argv[nargs++] = NULL;
        apps[napps].maxprocs = 1;
        apps[napps].cmd = argv[begin];
        apps[napps++].argv = argv + begin;
        begin = nargs;
    }
    status = PMIx_Spawn(NULL, 0, apps, napps, nspace);
    if (status == PMIX_SUCCESS)
        spawned[line->index] = strdup(nspace);
    tell_status(line, status);
}

/* Wait until a rank's file has a line of this number, and return the number after that. */
static long wait_for(const char *rank, const char *kind, int number)
{
    char path[sizeof others + 64], text[1 << 13];

    snprintf(path, sizeof path, "%s.%s.%s", others, rank, kind);
    for (int n = 0; n < LIMIT * 100; n++) {
        FILE *file = fopen(path, "r");

        while (file && fgets(text, sizeof text, file)) {
            char *rest;

            if (strtol(text, &rest, 10) == number && *rest == ' ' && strchr(rest, '\n')) {
                fclose(file);
                return strtol(rest, NULL, 10);
            }
        }
        if (file)
            fclose(file);
        usleep(10000);
    }
    fail(path);
    return 0;
}

/* Return true if a process has ended; a launcher may keep it for a while. */
static bool has_ended(long pid)
{
    char path[64], state = 'Z';
    FILE *file;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = 'Z';
        fclose(file);
    }
    return state == 'Z';
}

static void await(const line_t *line)
{
    bool gone = *line->words[0] == 'g';
    bool after = *line->words[0] == 'a';
    long pid = wait_for(line->words[1], after ? "out" : "begun", gone ? -1 : atoi(line->words[2]));

    for (int n = 0; gone && !has_ended(pid); n++) {
        if (n == LIMIT * 100)
            fail("a rank that is to die does not");
        usleep(10000);
    }
    /* A call that has begun, or a death, comes to its server; an outcome must not depend on that. */
    if (!after)
        usleep(300000);
    tell_status(line, PMIX_SUCCESS);
}

static void *play(void *argument)
{
    const line_t *line = argument;
    const char *name = line->words[0];

    pthread_mutex_lock(&lock);
    fprintf(begun, "%d begun\n", line->index);
    fflush(begun);
    pthread_mutex_unlock(&lock);
    if (!strcmp(name, "put"))
        put(line);
    else if (!strcmp(name, "commit"))
        tell_status(line, PMIx_Commit());
    else if (!strcmp(name, "fence"))
        fence(line);
    else if (!strcmp(name, "get") || !strcmp(name, "peek"))
        get(line);
    else if (!strcmp(name, "publish"))
        publish(line);
    else if (!strcmp(name, "lookup"))
        lookup(line);
    else if (!strcmp(name, "unpublish"))
        unpublish(line);
    else if (!strcmp(name, "construct") || !strcmp(name, "tolerant") || !strcmp(name, "notified") ||
             !strcmp(name, "local"))
        construct(line);
    else if (!strcmp(name, "destruct"))
        destruct(line);
    else if (!strcmp(name, "connect") || !strcmp(name, "disconnect"))
        connect(line);
    else if (!strcmp(name, "notify"))
        notify(line);
    else if (!strcmp(name, "hear"))
        hear(line);
    else if (!strcmp(name, "spawn"))
        spawn(line);
    else if (!strcmp(name, "after") || !strcmp(name, "begun") || !strcmp(name, "gone"))
        await(line);
    else if (!strcmp(name, "die"))
        raise(SIGKILL);
    else
        fail(name);
    return NULL;
}

static void read_line(line_t *line, char *text)
{
    char *rest, *word;

    memset(line, 0, sizeof *line);
    line->batch = atoi(strtok_r(text, " \n", &rest));
    line->index = atoi(strtok_r(NULL, " \n", &rest));
    while ((word = strtok_r(NULL, " \n", &rest)) && line->count < WORDS)
        line->words[line->count++] = strdup(word);
    if (line->count && (word = strchr(line->words[0], '/'))) {
        *word = 0;
        line->limit = atoi(word + 1);
    }
}

static void play_batch(line_t *lines, int count)
{
    pthread_t threads[AT_ONCE];

    if (count == 1) {
        play(lines);
        return;
    }
    for (int n = 0; n < count; n++)
        if (pthread_create(&threads[n], NULL, play, &lines[n]))
            fail("no thread");
    for (int n = 0; n < count; n++)
        pthread_join(threads[n], NULL);
}

int main(int argc, char **argv)
{
    static line_t lines[AT_ONCE + 1];
    static char text[1 << 16];
    char path[4096];
    FILE *script;
    pmix_status_t code = EVENT, status = PMIx_Init(&me, NULL, 0);
    int count = 0;

    if (argc != 3 || status != PMIX_SUCCESS)
        fail(argc == 3 ? PMIx_Error_string(status) : "FOLDER LABEL");
    snprintf(path, sizeof path, "%s/%s.%u", argv[1], argv[2], me.rank);
    script = fopen(path, "r");
    strncat(path, ".out", sizeof path - strlen(path) - 1);
    results = fopen(path, "w");
    snprintf(others, sizeof others, "%s/%s", argv[1], argv[2]);
    snprintf(path, sizeof path, "%.4000s.%u.begun", others, me.rank);
    begun = fopen(path, "w");
    if (!script || !results || !begun)
        fail(path);
    fprintf(begun, "-1 %ld\n", (long) getpid());
    fflush(begun);
    fprintf(results, "-1 %s\n", PMIx_Get_version());
    if (PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, NULL, NULL) < 0)
        fail("no handler");
    while (fgets(text, sizeof text, script)) {
        read_line(&lines[count], text);
        if (count && (lines[count].batch != lines[0].batch || count == AT_ONCE)) {
            play_batch(lines, count);
            lines[0] = lines[count];
            count = 0;
        }
        count++;
    }
    play_batch(lines, count);
    status = PMIx_Finalize(NULL, 0);
    fprintf(results, "-2 status %d\n", status);
    fclose(results);
    return 0;
}
