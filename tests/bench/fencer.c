/*
 * Times fences of a whole job: microseconds, the median over COUNT of them, into a file of the folder BENCH_OUT.
 *
 * Usage: fencer COUNT
 */

#include <pmix.h>

#include <stdio.h>
#include <stdlib.h>
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
    double *times = calloc((size_t) count, sizeof(*times));
    const char *folder = getenv("BENCH_OUT");
    char path[4096];
    pmix_proc_t me;
    FILE *file;

    if (NULL == times || NULL == folder || PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    for (int n = -50; n < count; n++) {
        double begin = now();

        if (PMIX_SUCCESS != PMIx_Fence(NULL, 0, NULL, 0)) {
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
