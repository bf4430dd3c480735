/* A C program starts a job, reads what it writes, writes what it reads, and learns of its failure.
 *
 * Started again by itself with the argument "child", it is that job.
 */
#include "common.h"

#include <pmix_tool.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char text[2][4096];
static int ends;

static void heard(size_t id, pmix_iof_channel_t channel, pmix_proc_t *source, pmix_byte_object_t *data,
                  pmix_info_t info[], size_t ninfo)
{
    char *mine = text[channel == PMIX_FWD_STDERR_CHANNEL];
    size_t room;

    (void) id, (void) source, (void) info, (void) ninfo;
    pthread_mutex_lock(&lock);
    room = sizeof text[0] - strlen(mine) - 1;
    if (data->size) {
        strncat(mine, data->bytes, data->size < room ? data->size : room);
    } else {
        ends++;
    }
    pthread_mutex_unlock(&lock);
}

static bool has_heard(int channels)
{
    bool done;

    pthread_mutex_lock(&lock);
    done = ends >= channels;
    pthread_mutex_unlock(&lock);
    return done;
}

/* With lines where newlines are, for a file of one line each. */
static void note_text(const char *key, const char *found)
{
    char line[4096];
    size_t n;

    for (n = 0; found[n] && n < sizeof line - 1; n++) {
        line[n] = found[n] == '\n' ? '|' : found[n];
    }
    line[n] = 0;
    note(key, "%s", line);
}

/* libpmix frees what it waits with twice where it is given no function to call. */
static volatile int called;
static volatile pmix_status_t outcome;

static void done(pmix_status_t status, void *data)
{
    (void) data;
    outcome = status;
    called = 1;
}

static pmix_status_t ended(pmix_status_t begun)
{
    double limit = now() + 10;

    if (begun != PMIX_SUCCESS) {
        return begun;
    }
    while (!called && now() < limit) {
        usleep(1000);
    }
    return called ? outcome : PMIX_ERR_TIMEOUT;
}

static pmix_status_t push(const pmix_proc_t *proc, const char *bytes)
{
    pmix_byte_object_t object = {(char *) bytes, strlen(bytes)};

    called = 0;
    return ended(PMIx_IOF_push(proc, 1, &object, NULL, 0, done, NULL));
}

static int child(void)
{
    pmix_proc_t self, *parent;
    pmix_value_t *value;
    char line[100] = "";

    if (PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS) {
        return 1;
    }
    if (PMIx_Get(&self, PMIX_PARENT_ID, NULL, 0, &value) == PMIX_SUCCESS) {
        parent = value->data.proc;
        printf("child %u of %u %s\n", self.rank, parent->rank, getenv("ACME_VARIABLE"));
    }
    fprintf(stderr, "complaint of %u\n", self.rank);
    if (self.rank == 0 && fgets(line, sizeof line, stdin)) {
        printf("read %s", line);
    }
    fflush(stdout);
    PMIx_Finalize(NULL, 0);
    return 0;
}

int main(int argc, char **argv)
{
    pmix_app_t app;
    pmix_proc_t job, first;
    pmix_info_t info, local;
    pmix_nspace_t nspace;
    pmix_value_t *value;
    pmix_status_t status;
    char *words[] = {argv[0], "child", NULL}, *nothing[] = {"/no/such/program", NULL};
    char *variables[] = {"ACME_VARIABLE=from C", NULL};
    double limit;

    if (argc > 1) {
        return child();
    }
    begin();
    memset(&app, 0, sizeof app);
    app.cmd = nothing[0];
    app.argv = nothing;
    app.maxprocs = 1;
    note("nothing", "%d", PMIx_Spawn(NULL, 0, &app, 1, nspace));

    memset(&app, 0, sizeof app);
    app.cmd = argv[0];
    app.argv = words;
    app.env = variables;
    app.maxprocs = 1;
    flag_info(&info, PMIX_FWD_STDIN);
    status = PMIx_Spawn(&info, 1, &app, 1, nspace);
    note("spawn", "%d", status);
    if (status == PMIX_SUCCESS) {
        name_proc(&job, nspace, PMIX_RANK_WILDCARD);
        name_proc(&first, nspace, 0);
        note("other", "%d", strcmp(nspace, me.nspace) != 0);
        /* Without a message to the server: the job info came with the answer. */
        flag_info(&local, PMIX_OPTIONAL);
        status = PMIx_Get(&job, PMIX_JOB_SIZE, &local, 1, &value);
        note("child-size", "%d %u", status, status == PMIX_SUCCESS ? value->data.uint32 : 0);
        /* libpmix returns the id of the handler, or an error. */
        status = PMIx_IOF_pull(&job, 1, NULL, 0, PMIX_FWD_STDOUT_CHANNEL | PMIX_FWD_STDERR_CHANNEL, heard, NULL, NULL);
        note("pull", "%d", status >= 0);
        note("push", "%d", push(&first, "input\n"));
        for (limit = now() + 10; !has_heard(2) && now() < limit;) {
            usleep(1000);
        }
        note_text("stdout", text[0]);
        note_text("stderr", text[1]);
        note("ends", "%d", ends);
        if (status >= 0) {
            called = 0;
            note("deregister", "%d", ended(PMIx_IOF_deregister((size_t) status, NULL, 0, done, NULL)));
        }
    }
    must("fence", meet(false));
    finish();
    return 0;
}
