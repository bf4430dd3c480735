/* Puts a value of every type under "c.NAME", and reads one of every type from another rank.
 *
 * usage: types RANK PREFIX      reads the keys "PREFIX.NAME" of that rank: "c" of a C rank, "py" of a Python rank
 * Every value that was read is noted as "type TYPE TEXT".
 */
#include "common.h"

#include <inttypes.h>

#define EACH_SIGNED(X)                                                                                               \
    X("pid", PMIX_PID, pid, 2147483647)                                                                              \
    X("int", PMIX_INT, integer, INT32_MIN)                                                                           \
    X("int8", PMIX_INT8, int8, INT8_MIN)                                                                             \
    X("int16", PMIX_INT16, int16, INT16_MIN)                                                                         \
    X("int32", PMIX_INT32, int32, INT32_MIN)                                                                         \
    X("int64", PMIX_INT64, int64, INT64_MIN)                                                                         \
    X("status", PMIX_STATUS, status, PMIX_ERR_TIMEOUT)

#define EACH_UNSIGNED(X)                                                                                             \
    X("byte", PMIX_BYTE, byte, 255)                                                                                  \
    X("size", PMIX_SIZE, size, SIZE_MAX)                                                                             \
    X("uint", PMIX_UINT, uint, UINT32_MAX)                                                                           \
    X("uint8", PMIX_UINT8, uint8, UINT8_MAX)                                                                         \
    X("uint16", PMIX_UINT16, uint16, UINT16_MAX)                                                                     \
    X("uint32", PMIX_UINT32, uint32, UINT32_MAX)                                                                     \
    X("uint64", PMIX_UINT64, uint64, UINT64_MAX)                                                                     \
    X("time", PMIX_TIME, time, 1234567890)                                                                           \
    X("rank", PMIX_PROC_RANK, rank, 3)                                                                               \
    X("persist", PMIX_PERSIST, persist, PMIX_PERSIST_APP)                                                            \
    X("scope", PMIX_SCOPE, scope, PMIX_REMOTE)                                                                       \
    X("range", PMIX_DATA_RANGE, range, PMIX_RANGE_SESSION)                                                           \
    X("state", PMIX_PROC_STATE, state, PMIX_PROC_STATE_CONNECTED)                                                    \
    X("bool", PMIX_BOOL, flag, true)

static char long_text[20001];

static void put(const char *name, pmix_value_t *value)
{
    char key[64];

    snprintf(key, sizeof key, "c.%s", name);
    must(key, PMIx_Put(PMIX_GLOBAL, key, value));
}

static void text_of(char *out, size_t room, const pmix_value_t *value);

static void array_text(char *out, size_t room, const pmix_data_array_t *array)
{
    size_t used = (size_t) snprintf(out, room, "[");

    for (size_t i = 0; i < array->size && used < room; i++) {
        pmix_value_t item;
        memset(&item, 0, sizeof item);
        item.type = array->type;
        if (i)
            used += (size_t) snprintf(out + used, room - used, ",");
        switch (array->type) {
        case PMIX_STRING: item.data.string = ((char **) array->array)[i]; break;
        case PMIX_UINT32: item.data.uint32 = ((uint32_t *) array->array)[i]; break;
        case PMIX_INT64: item.data.int64 = ((int64_t *) array->array)[i]; break;
        case PMIX_PROC: item.data.proc = &((pmix_proc_t *) array->array)[i]; break;
        case PMIX_INFO:
            used += (size_t) snprintf(out + used, room - used, "%s=", ((pmix_info_t *) array->array)[i].key);
            item = ((pmix_info_t *) array->array)[i].value;
            break;
        }
        text_of(out + used, room - used, &item);
        used += strlen(out + used);
    }
    snprintf(out + used, room - used, "]");
}

static void text_of(char *out, size_t room, const pmix_value_t *value)
{
    switch (value->type) {
#define AS_SIGNED(name, type, member, number)                                                                         \
    case type: snprintf(out, room, "%" PRId64, (int64_t) value->data.member); break;
        EACH_SIGNED(AS_SIGNED)
#define AS_UNSIGNED(name, type, member, number)                                                                       \
    case type: snprintf(out, room, "%" PRIu64, (uint64_t) value->data.member); break;
        EACH_UNSIGNED(AS_UNSIGNED)
    case PMIX_STRING: snprintf(out, room, "%s", value->data.string); break;
    case PMIX_FLOAT: snprintf(out, room, "%.9g", (double) value->data.fval); break;
    case PMIX_DOUBLE: snprintf(out, room, "%.17g", value->data.dval); break;
    case PMIX_TIMEVAL:
        snprintf(out, room, "%ld.%06ld", (long) value->data.tv.tv_sec, (long) value->data.tv.tv_usec);
        break;
    case PMIX_PROC: snprintf(out, room, "%s:%u", value->data.proc->nspace, value->data.proc->rank); break;
    case PMIX_BYTE_OBJECT:
        for (size_t i = 0; i < value->data.bo.size && 2 * i + 3 < room; i++)
            snprintf(out + 2 * i, room - 2 * i, "%02x", (unsigned char) value->data.bo.bytes[i]);
        if (!value->data.bo.size)
            *out = 0;
        break;
    case PMIX_ENVAR:
        snprintf(out, room, "%s=%s %c", value->data.envar.envar, value->data.envar.value,
                 value->data.envar.separator);
        break;
    case PMIX_DATA_ARRAY: array_text(out, room, value->data.darray); break;
    default: snprintf(out, room, "?");
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = {
        "byte",   "size",   "pid",    "int",   "int8",         "int16",       "int32",        "int64",      "uint",
        "uint8",  "uint16", "uint32", "uint64", "time",        "status",      "rank",         "persist",    "scope",
        "range",  "state",  "bool",   "string", "string.empty", "string.long", "string.unicode", "float",   "double",
        "bytes",  "timeval", "proc",  "envar",  "array.string", "array.uint32", "array.proc", "array.info"};
    static char out[50000];
    pmix_value_t value;
    pmix_proc_t proc, from;
    pmix_data_array_t array;
    const char *prefix = argc > 2 ? argv[2] : "c";

    begin();
#define PUT_NUMBER(name, kind, member, number)                                                                       \
    memset(&value, 0, sizeof value);                                                                                 \
    value.type = kind;                                                                                               \
    value.data.member = number;                                                                                      \
    put(name, &value);
    EACH_SIGNED(PUT_NUMBER)
    EACH_UNSIGNED(PUT_NUMBER)
#define PUT(name, kind, statement)                                                                                   \
    memset(&value, 0, sizeof value);                                                                                 \
    value.type = kind;                                                                                               \
    statement;                                                                                                       \
    put(name, &value);
    memset(long_text, 'x', sizeof long_text - 1);
    PUT("string", PMIX_STRING, value.data.string = "plain")
    PUT("string.empty", PMIX_STRING, value.data.string = "")
    PUT("string.long", PMIX_STRING, value.data.string = long_text)
    PUT("string.unicode", PMIX_STRING, value.data.string = "h\xc3\xa9llo")
    PUT("float", PMIX_FLOAT, value.data.fval = 1.5F)
    PUT("double", PMIX_DOUBLE, value.data.dval = -2.25)
    PUT("bytes", PMIX_BYTE_OBJECT, value.data.bo.bytes = "\x00\x01\xff"; value.data.bo.size = 3)
    PUT("timeval", PMIX_TIMEVAL, value.data.tv.tv_sec = 5; value.data.tv.tv_usec = 999999)
    name_proc(&proc, "somewhere", 7);
    PUT("proc", PMIX_PROC, value.data.proc = &proc)
    PUT("envar", PMIX_ENVAR, value.data.envar.envar = "PATH"; value.data.envar.value = "/opt/bin";
        value.data.envar.separator = ':')
    char *strings[] = {"a", "", "b"};
    array.type = PMIX_STRING, array.size = 3, array.array = strings;
    PUT("array.string", PMIX_DATA_ARRAY, value.data.darray = &array)
    uint32_t numbers[] = {0, 1, UINT32_MAX};
    array.type = PMIX_UINT32, array.size = 3, array.array = numbers;
    PUT("array.uint32", PMIX_DATA_ARRAY, value.data.darray = &array)
    pmix_proc_t procs[2];
    name_proc(&procs[0], "a", 0);
    name_proc(&procs[1], "b", 1);
    array.type = PMIX_PROC, array.size = 2, array.array = procs;
    PUT("array.proc", PMIX_DATA_ARRAY, value.data.darray = &array)
    pmix_info_t infos[2];
    int_info(&infos[0], "one", 1);
    memset(&infos[1], 0, sizeof infos[1]);
    strcpy(infos[1].key, "two");
    infos[1].value.type = PMIX_STRING;
    infos[1].value.data.string = "zwei";
    array.type = PMIX_INFO, array.size = 2, array.array = infos;
    PUT("array.info", PMIX_DATA_ARRAY, value.data.darray = &array)

    must("commit", PMIx_Commit());
    must("fence", meet(true));
    name_proc(&from, me.nspace, argc > 1 ? (pmix_rank_t) atoi(argv[1]) : 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pmix_value_t *got = NULL;
        char key[64];
        snprintf(key, sizeof key, "%s.%s", prefix, names[i]);
        pmix_status_t status = PMIx_Get(&from, key, NULL, 0, &got);
        if (status != PMIX_SUCCESS) {
            note(names[i], "status %d", status);
            continue;
        }
        if (got->type == PMIX_COMPRESSED_STRING) {
            note(names[i], "type %d compressed", got->type);
            continue;
        }
        text_of(out, sizeof out, got);
        note(names[i], "type %d %s", got->type, out);
    }
    must("last fence", meet(false));
    finish();
    return 0;
}
