/*
 * Times fences of a whole job: microseconds, the median over COUNT of them, into a file of the folder BENCH_OUT.
 *
 * Usage: fencer COUNT [WARM [BYTES]]
 *
 * WARM fences come before those that are timed, 50 by default. With BYTES, each rank puts so many before each fence, which
 * collects them; the put is not timed.
 */

#include <pmix.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double) time.tv_sec * 1e6 + (double) time.tv_nsec / 1e3;
}

static int compare(const void *one, const void *other)
{
    double difference = *(const double *) one - *(const double *) other;

    return (0 < difference) - (0 > difference);
}

int main(int argc, char **argv)
{
    int count = 2 <= argc ? atoi(argv[1]) : 1000;
    int warm = 3 <= argc ? atoi(argv[2]) : 50;
    size_t bytes = 4 <= argc ? (size_t) atoi(argv[3]) : 0;
    char *text = calloc(bytes + 1, 1);
    bool collect = true;
    double *times = calloc((size_t) count, sizeof(*times));
    const char *folder = getenv("BENCH_OUT");
    char path[4096];
    pmix_value_t value;
    pmix_info_t info;
    pmix_proc_t me;
    FILE *file;

    if (NULL == times || NULL == text || NULL == folder || PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    memset(text, 'x', bytes);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    for (int n = -warm; n < count; n++) {
        double begin;

        if (bytes) {
            PMIX_VALUE_LOAD(&value, text, PMIX_STRING);
            if (PMIX_SUCCESS != PMIx_Put(PMIX_GLOBAL, "bench", &value) || PMIX_SUCCESS != PMIx_Commit()) {
                return 5;
            }
            PMIX_VALUE_DESTRUCT(&value);
        }
        begin = now();
        if (PMIX_SUCCESS != PMIx_Fence(NULL, 0, bytes ? &info : NULL, bytes ? 1 : 0)) {
            return 2;
        }
        if (0 <= n) {
            times[n] = now() - begin;
        }
    }
    qsort(times, (size_t) count, sizeof(*times), compare);
    snprintf(path, sizeof(path), "%s/%u.json", folder, me.rank);
    file = fopen(path, "w");
    if (NULL == file) {
        return 3;
    }
    fprintf(file, "{\"fence\": %.3f}\n", times[count / 2]);
    fclose(file);
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 4;
}
