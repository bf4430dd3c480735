/*
 * The smallest host in C, to measure others against: a job of 2 N ranks of which N are here, so that each fence of the
 * job is put to the host, which answers it at once.
 *
 * Usage: host N CLIENT [ARGUMENT...]; the clients write what they measure.
 */

#include <pmix_server.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static volatile int outstanding;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void done(pmix_status_t status, void *cbdata)
{
    (void) status;
    (void) cbdata;
    pthread_mutex_lock(&lock);
    outstanding--;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void check(pmix_status_t status, const char *what)
{
    if (PMIX_SUCCESS != status && PMIX_OPERATION_SUCCEEDED != status) {
        fprintf(stderr, "%s: %d\n", what, status);
        exit(1);
    }
    pthread_mutex_lock(&lock);
    while (PMIX_SUCCESS == status && 0 < outstanding) {
        pthread_cond_wait(&changed, &lock);
    }
    outstanding = 0;
    pthread_mutex_unlock(&lock);
}

static pmix_status_t connected(
    const pmix_proc_t *proc, void *object, pmix_info_t infos[], size_t ninfos, pmix_op_cbfunc_t answer, void *cbdata)
{
    (void) proc;
    (void) object;
    (void) infos;
    (void) ninfos;
    (void) answer;
    (void) cbdata;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t answer, void *cbdata)
{
    (void) proc;
    (void) object;
    (void) answer;
    (void) cbdata;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t fence(
    const pmix_proc_t procs[], size_t nprocs, const pmix_info_t infos[], size_t ninfos, char *data, size_t size,
    pmix_modex_cbfunc_t answer, void *cbdata)
{
    (void) procs;
    (void) nprocs;
    (void) infos;
    (void) ninfos;
    answer(PMIX_SUCCESS, data, size, cbdata, NULL, NULL);
    return PMIX_SUCCESS;
}

static void ranks(char *text, size_t room, int first, int end)
{
    size_t length = strlen(text);

    for (int rank = first; rank < end; rank++) {
        length += (size_t) snprintf(text + length, room - length, rank == first ? "%d" : ",%d", rank);
    }
}

int main(int argc, char **argv)
{
    pmix_server_module_t module;
    pmix_info_t *infos;
    pmix_proc_t proc;
    char host[256], nodes[300], placed[16384] = "", *regex, *ppn;
    int n = 2 <= argc ? atoi(argv[1]) : 0, failed = 0;
    uint32_t size = 2 * (uint32_t) n;

    if (3 > argc || 1 > n) {
        fprintf(stderr, "usage: host N CLIENT [ARGUMENT...]\n");
        return 2;
    }
    memset(&module, 0, sizeof(module));
    module.client_connected2 = connected;
    module.client_finalized = finalized;
    module.fence_nb = fence;
    check(PMIx_server_init(&module, NULL, 0), "PMIx_server_init");

    gethostname(host, sizeof(host));
    snprintf(nodes, sizeof(nodes), "%s,elsewhere", host);
    ranks(placed, sizeof(placed), 0, n);
    strcat(placed, ";");
    ranks(placed, sizeof(placed), n, 2 * n);
    check(PMIx_generate_regex(nodes, &regex), "PMIx_generate_regex");
    check(PMIx_generate_ppn(placed, &ppn), "PMIx_generate_ppn");
    PMIX_INFO_CREATE(infos, 3);
    PMIX_INFO_LOAD(&infos[0], PMIX_JOB_SIZE, &size, PMIX_UINT32);
    PMIX_INFO_LOAD(&infos[1], PMIX_NODE_MAP, regex, PMIX_REGEX);
    PMIX_INFO_LOAD(&infos[2], PMIX_PROC_MAP, ppn, PMIX_REGEX);
    PMIX_LOAD_PROCID(&proc, "bench", 0);
    outstanding = 1;
    check(PMIx_server_register_nspace(proc.nspace, n, infos, 3, done, NULL), "PMIx_server_register_nspace");

    for (int rank = 0; rank < n; rank++) {
        char **env = NULL;

        proc.rank = (pmix_rank_t) rank;
        outstanding = 1;
        check(PMIx_server_register_client(&proc, geteuid(), getegid(), NULL, done, NULL), "PMIx_server_register_client");
        check(PMIx_server_setup_fork(&proc, &env), "PMIx_server_setup_fork");
        if (0 == fork()) {
            for (char **each = env; NULL != *each; each++) {
                putenv(*each);
            }
            execvp(argv[2], argv + 2);
            _exit(127);
        }
    }
    for (int rank = 0; rank < n; rank++) {
        int status;

        if (0 > wait(&status) || 0 != status) {
            failed = 1;
        }
    }
    PMIx_server_finalize();
    return failed;
}
