/* The C side of the bench for two ranks: an event from one to the other, a query, and a spawn. */
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PING = -4001, PONG = -4002 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int came;

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

static void must(pmix_status_t rc, const char *what)
{
    if (rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED) return;
    fprintf(stderr, "%s: %d\n", what, rc);
    exit(3);
}

static void heard(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t ninfo,
                  pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *object)
{
    (void)id, (void)status, (void)source, (void)info, (void)ninfo, (void)results, (void)nresults;
    pthread_mutex_lock(&lock);
    came++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    done(PMIX_SUCCESS, NULL, 0, NULL, NULL, object);
}

static void await(int number)
{
    pthread_mutex_lock(&lock);
    while (came < number) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void raise_event(pmix_status_t code)
{
    pmix_info_t info;
    PMIX_INFO_CONSTRUCT(&info);
    strcpy(info.key, PMIX_EVENT_DO_NOT_CACHE);
    info.value.type = PMIX_BOOL;
    info.value.data.flag = true;
    must(PMIx_Notify_event(code, NULL, PMIX_RANGE_LOCAL, &info, 1, NULL, NULL), "notify");
}

int main(int argc, char **argv)
{
    int rounds = atoi(argv[1]), spawns = atoi(argv[2]), i;
    double *v = malloc(sizeof *v * rounds), t, event = 0, query = 0, spawn = 0;
    char path[512];
    pmix_proc_t me;
    (void)argc;

    must(PMIx_Init(&me, NULL, 0), "init");
    pmix_status_t mine = me.rank ? PING : PONG;
    pmix_status_t rc = PMIx_Register_event_handler(&mine, 1, NULL, 0, heard, NULL, NULL);
    if (rc < 0) must(rc, "register");
    must(PMIx_Fence(NULL, 0, NULL, 0), "fence");
    for (i = 0; i < rounds; i++) {
        t = now();
        if (me.rank) {
            await(i + 1);
            raise_event(PONG);
        } else {
            raise_event(PING);
            await(i + 1);
            v[i] = (now() - t) / 2;
        }
    }
    event = median(v, rounds);
    must(PMIx_Fence(NULL, 0, NULL, 0), "fence");
    if (!me.rank) {
        for (i = 0; i < rounds; i++) {
            pmix_query_t *question;
            pmix_info_t *found;
            size_t n;
            PMIX_QUERY_CREATE(question, 1);
            question->keys = calloc(2, sizeof *question->keys);
            question->keys[0] = strdup(PMIX_QUERY_NAMESPACES);
            t = now();
            must(PMIx_Query_info(question, 1, &found, &n), "query");
            v[i] = now() - t;
            PMIX_INFO_FREE(found, n);
            PMIX_QUERY_FREE(question, 1);
        }
        query = median(v, rounds);
        for (i = 0; i < spawns; i++) {
            pmix_app_t *app;
            char nspace[PMIX_MAX_NSLEN + 1];
            PMIX_APP_CREATE(app, 1);
            app->cmd = strdup("true");
            app->argv = calloc(2, sizeof *app->argv);
            app->argv[0] = strdup("true");
            app->maxprocs = 1;
            t = now();
            if (PMIx_Spawn(NULL, 0, app, 1, nspace) != PMIX_SUCCESS) break;
            v[i] = now() - t;
            PMIX_APP_FREE(app, 1);
        }
        if (i) spawn = median(v, i);
    }
    must(PMIx_Fence(NULL, 0, NULL, 0), "fence");
    snprintf(path, sizeof path, "%s/%u.json", getenv("BENCH_OUT"), me.rank);
    FILE *out = fopen(path, "w");
    if (!out) return 4;
    if (me.rank) fprintf(out, "{}");
    else {
        fprintf(out, "{\"event\": %f, \"query\": %f", event, query);
        if (spawn > 0) fprintf(out, ", \"spawn\": %f", spawn);
        fprintf(out, "}");
    }
    fclose(out);
    must(PMIx_Finalize(NULL, 0), "finalize");
    return 0;
}
