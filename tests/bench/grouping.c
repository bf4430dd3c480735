/*
 * Times groups of a whole job: constructed with a context id, and destructed. Microseconds, the medians over COUNT of
 * them, into a file of the folder BENCH_OUT.
 *
 * Usage: grouping collective COUNT
 */

#include <pmix.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WARM = 3 };

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double) time.tv_sec * 1e6 + (double) time.tv_nsec / 1e3;
}

/* What all threads of the server, our parent, have run so far, in microseconds. */
static double server_cpu(void)
{
    char path[512], folder[64];
    double total = 0;
    DIR *tasks;

    snprintf(folder, sizeof(folder), "/proc/%d/task", (int) getppid());
    tasks = opendir(folder);
    if (NULL == tasks) {
        return 0;
    }
    for (struct dirent *entry; NULL != (entry = readdir(tasks));) {
        unsigned long long ran;
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s/schedstat", folder, entry->d_name);
        file = '.' == entry->d_name[0] ? NULL : fopen(path, "r");
        if (NULL == file) {
            continue;
        }
        if (1 == fscanf(file, "%llu", &ran)) {
            total += (double) ran / 1e3;
        }
        fclose(file);
    }
    closedir(tasks);
    return total;
}

static int compare(const void *one, const void *other)
{
    double difference = *(const double *) one - *(const double *) other;

    return (0 < difference) - (0 > difference);
}

static double median(double *times, int count)
{
    qsort(times, (size_t) count, sizeof(*times), compare);
    return times[count / 2];
}

int main(int argc, char **argv)
{
    int count = 3 <= argc ? atoi(argv[2]) : 100;
    double *construct = calloc((size_t) count, sizeof(*construct));
    double *destruct = calloc((size_t) count, sizeof(*destruct));
    const char *folder = getenv("BENCH_OUT");
    double before = 0;
    char path[4096];
    pmix_proc_t me, all, *procs;
    pmix_value_t *size;
    pmix_info_t number;
    FILE *file;

    if (NULL == construct || NULL == destruct || NULL == folder || PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    if (PMIX_SUCCESS != PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &size)) {
        return 2;
    }
    procs = calloc(size->data.uint32, sizeof(*procs));
    for (uint32_t rank = 0; rank < size->data.uint32; rank++) {
        PMIX_LOAD_PROCID(&procs[rank], me.nspace, rank);
    }
    PMIX_INFO_LOAD(&number, PMIX_GROUP_ASSIGN_CONTEXT_ID, NULL, PMIX_BOOL);
    for (int n = -WARM; n < count; n++) {
        pmix_info_t *results = NULL;
        size_t nresults = 0;
        double begin, between;
        char name[32];

        if (0 == n) {
            before = server_cpu();
        }
        snprintf(name, sizeof(name), "bench.%d", n);
        begin = now();
        if (PMIX_SUCCESS != PMIx_Group_construct(name, procs, size->data.uint32, &number, 1, &results, &nresults)) {
            return 3;
        }
        between = now();
        if (PMIX_SUCCESS != PMIx_Group_destruct(name, NULL, 0)) {
            return 4;
        }
        if (0 <= n) {
            construct[n] = between - begin;
            destruct[n] = now() - between;
        }
    }
    before = (server_cpu() - before) / count / size->data.uint32;
    snprintf(path, sizeof(path), "%s/%u.json", folder, me.rank);
    file = fopen(path, "w");
    if (NULL == file) {
        return 5;
    }
    fprintf(file, "{\"construct\": %.3f, \"destruct\": %.3f, \"server cpu/member\": %.3f}\n", median(construct, count),
            median(destruct, count), before);
    fclose(file);
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 6;
}
