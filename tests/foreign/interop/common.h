/* What the interop programs share: the start and end of a client, and a file of results, one "key value" a line.
 *
 * The file is results/RANK.txt in the folder that PYPMIX_TEST_RESULTS names; stdout goes through the launcher, which
 * may mix the lines of several ranks.
 */
#ifndef INTEROP_COMMON_H
#define INTEROP_COMMON_H

#include <pmix.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pmix_proc_t me;
static uint32_t job_size;
static FILE *results;

static void note(const char *key, const char *format, ...)
{
    va_list arguments;

    fprintf(results, "%s ", key);
    va_start(arguments, format);
    vfprintf(results, format, arguments);
    va_end(arguments);
    fputc('\n', results);
    fflush(results);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static inline void name_proc(pmix_proc_t *proc, const char *nspace, pmix_rank_t rank)
{
    memset(proc, 0, sizeof *proc);
    strncpy(proc->nspace, nspace, PMIX_MAX_NSLEN);
    proc->rank = rank;
}

static inline void flag_info(pmix_info_t *info, const char *key)
{
    memset(info, 0, sizeof *info);
    strncpy(info->key, key, PMIX_MAX_KEYLEN);
    info->value.type = PMIX_BOOL;
    info->value.data.flag = true;
}

static inline void int_info(pmix_info_t *info, const char *key, int value)
{
    memset(info, 0, sizeof *info);
    strncpy(info->key, key, PMIX_MAX_KEYLEN);
    info->value.type = PMIX_INT;
    info->value.data.integer = value;
}

static void must(const char *what, pmix_status_t status)
{
    if (status != PMIX_SUCCESS) {
        note("failed", "%s %d", what, status);
        fprintf(stderr, "%s: %s (%d)\n", what, PMIx_Error_string(status), status);
        exit(70);
    }
}

/* Connect, and learn the size of the job. */
static void begin(void)
{
    char path[4096];
    pmix_proc_t job;
    pmix_value_t *value;
    pmix_status_t status = PMIx_Init(&me, NULL, 0);
    const char *folder = getenv("PYPMIX_TEST_RESULTS");

    if (status != PMIX_SUCCESS) {
        fprintf(stderr, "PMIx_Init: %s (%d)\n", PMIx_Error_string(status), status);
        exit(71);
    }
    snprintf(path, sizeof path, "%s/%u.txt", folder ? folder : ".", me.rank);
    results = fopen(path, "w");
    if (!results) {
        perror(path);
        exit(72);
    }
    note("library", "%s", PMIx_Get_version());
    note("proc", "%s %u", me.nspace, me.rank);
    name_proc(&job, me.nspace, PMIX_RANK_WILDCARD);
    must("get job size", PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value));
    job_size = value->data.uint32;
    note("size", "%u", job_size);
    free(value);
}

/* A fence of the whole job, with or without the exchange of data. */
static pmix_status_t meet(bool collect)
{
    pmix_proc_t job;
    pmix_info_t info;

    name_proc(&job, me.nspace, PMIX_RANK_WILDCARD);
    flag_info(&info, PMIX_COLLECT_DATA);
    return PMIx_Fence(&job, 1, collect ? &info : NULL, collect ? 1 : 0);
}

static inline void put_string(pmix_scope_t scope, const char *key, const char *text)
{
    pmix_value_t value;

    memset(&value, 0, sizeof value);
    value.type = PMIX_STRING;
    value.data.string = (char *) text;
    must(key, PMIx_Put(scope, key, &value));
}

/* Note what a get of a string or an unsigned number gives: "ok TEXT" or the status; and the seconds it took. */
static inline void note_get(const char *name, const pmix_proc_t *proc, const char *key, pmix_info_t *infos, size_t count)
{
    pmix_value_t *value = NULL;
    double began = now();
    pmix_status_t status = PMIx_Get(proc, key, infos, count, &value);
    double seconds = now() - began;

    if (status != PMIX_SUCCESS) {
        note(name, "%.3f status %d", seconds, status);
        return;
    }
    switch (value->type) {
    case PMIX_STRING: note(name, "%.3f ok %s", seconds, value->data.string); break;
    case PMIX_UINT16: note(name, "%.3f ok %u", seconds, value->data.uint16); break;
    case PMIX_UINT32: note(name, "%.3f ok %u", seconds, value->data.uint32); break;
    case PMIX_PROC_RANK: note(name, "%.3f ok %u", seconds, value->data.rank); break;
    default: note(name, "%.3f type %d", seconds, value->type);
    }
    free(value);
}

static void finish(void)
{
    note("finalize", "%d", PMIx_Finalize(NULL, 0));
    fclose(results);
}

#endif
