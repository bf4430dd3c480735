/* The C side of the bench: the same operations as client.py, on the native library. */
#include <dirent.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, n, sizeof *v, compare);
    return v[n / 2];
}

/* What all threads of the server, our parent, have run so far, in microseconds. */
static double server_cpu(void)
{
    char path[512], folder[64];
    double total = 0;
    snprintf(folder, sizeof folder, "/proc/%d/task", (int)getppid());
    DIR *tasks = opendir(folder);
    if (!tasks) return 0;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        unsigned long long ran;
        snprintf(path, sizeof path, "%s/%s/schedstat", folder, entry->d_name);
        FILE *f = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!f) continue;
        if (fscanf(f, "%llu", &ran) == 1) total += ran / 1e3;
        fclose(f);
    }
    closedir(tasks);
    return total;
}

static void must(pmix_status_t rc, const char *what)
{
    if (rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED) return;
    fprintf(stderr, "%s: %d\n", what, rc);
    exit(3);
}

int main(int argc, char **argv)
{
    int local = atoi(argv[1]), fences = atoi(argv[2]), collects = atoi(argv[3]), n, i;
    int most = local > fences ? local : fences;
    double *v = malloc(sizeof *v * (most > collects ? most : collects)), t, started = now();
    pmix_proc_t me, all, peer;
    pmix_value_t value, *got;
    pmix_info_t collect;
    char path[512], key[64];
    (void)argc;

    must(PMIx_Init(&me, NULL, 0), "init");
    double init = now() - started;
    memset(&all, 0, sizeof all);
    strcpy(all.nspace, me.nspace);
    all.rank = PMIX_RANK_WILDCARD;
    must(PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &got), "job size");
    n = (int)got->data.uint32;
    peer = me;
    peer.rank = (me.rank + 1) % n;
    PMIX_INFO_CONSTRUCT(&collect);
    strcpy(collect.key, PMIX_COLLECT_DATA);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;

    snprintf(path, sizeof path, "%s/%u.json", getenv("BENCH_OUT"), me.rank);
    memset(&value, 0, sizeof value);
    value.type = PMIX_UINT32;
    value.data.uint32 = 7;
    must(PMIx_Put(PMIX_GLOBAL, "bench.key", &value), "put");
    must(PMIx_Commit(), "commit");
    must(PMIx_Fence(NULL, 0, &collect, 1), "fence");
    must(PMIx_Get(&peer, "bench.key", NULL, 0, &got), "get peer");
    must(PMIx_Fence(NULL, 0, NULL, 0), "fence");

    double put, own, job, other, fence, gather, cpu = 0;
    for (i = 0; i < local; i++) {
        t = now();
        must(PMIx_Put(PMIX_GLOBAL, "bench.key", &value), "put");
        v[i] = now() - t;
    }
    put = median(v, local);
    for (i = 0; i < local; i++) {
        t = now();
        must(PMIx_Get(&me, "bench.key", NULL, 0, &got), "get own");
        v[i] = now() - t;
        free(got);
    }
    own = median(v, local);
    for (i = 0; i < local; i++) {
        t = now();
        must(PMIx_Get(&peer, "bench.key", NULL, 0, &got), "get peer");
        v[i] = now() - t;
        free(got);
    }
    other = median(v, local);
    for (i = 0; i < local; i++) {
        t = now();
        must(PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &got), "get job");
        v[i] = now() - t;
        free(got);
    }
    job = median(v, local);
    must(PMIx_Fence(NULL, 0, NULL, 0), "fence");
    double before = server_cpu();
    for (i = 0; i < fences; i++) {
        t = now();
        must(PMIx_Fence(NULL, 0, NULL, 0), "fence");
        v[i] = now() - t;
    }
    cpu = (server_cpu() - before) / fences / n;
    fence = median(v, fences);
    pmix_value_t blob;
    memset(&blob, 0, sizeof blob);
    blob.type = PMIX_BYTE_OBJECT;
    blob.data.bo.bytes = calloc(1, 1024);
    blob.data.bo.size = 1024;
    for (i = 0; i < collects; i++) {
        snprintf(key, sizeof key, "bench.blob.%d", i % 4);
        must(PMIx_Put(PMIX_GLOBAL, key, &blob), "put");
        must(PMIx_Commit(), "commit");
        must(PMIx_Fence(NULL, 0, NULL, 0), "fence");
        t = now();
        must(PMIx_Fence(NULL, 0, &collect, 1), "fence collect");
        v[i] = now() - t;
    }
    gather = median(v, collects);

    FILE *out = fopen(path, "w");
    fprintf(out, "{\"init\": %f, \"put\": %f, \"get own\": %f, \"get peer\": %f, \"get job\": %f, \"fence\": %f,"
            " \"fence collect\": %f, \"server cpu/msg\": %f}\n", init, put, own, other, job, fence, gather, cpu);
    fclose(out);
    must(PMIx_Finalize(NULL, 0), "finalize");
    return 0;
}
