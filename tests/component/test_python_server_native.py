"""Proves that unmodified C clients of every libpmix at hand get what they expect from the Python server."""

from __future__ import annotations

import os
import subprocess
import threading
import time

import pytest

from lib import machine
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.serving import ServerOptions
from pypmix.server import accept
from pypmix.standard import attrs, ops
from pypmix.standard.errors import PermissionDenied
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.types import Proc

LIMIT = 60

PROGRAM = r"""
#include <pmix.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pmix_proc_t me, job;
static unsigned size;

#define CHECK(call) do { int s_ = (call); if (s_) { printf("FAILED %s: %d\n", #call, s_); exit(3); } } while (0)

static int put(const char *key, int value, int scope) {
    pmix_value_t v;
    v.type = PMIX_INT;
    v.data.integer = value;
    return PMIx_Put(scope, key, &v);
}

/* Returns the value, or the status where that is none of success. */
static int get(unsigned rank, const char *key, const char *directive, int number) {
    pmix_proc_t proc;
    pmix_value_t *v = NULL;
    pmix_info_t info;
    bool yes = true;
    PMIX_LOAD_PROCID(&proc, me.nspace, rank);
    PMIX_INFO_CONSTRUCT(&info);
    if (directive && number) PMIX_INFO_LOAD(&info, directive, &number, PMIX_INT);
    else if (directive) PMIX_INFO_LOAD(&info, directive, &yes, PMIX_BOOL);
    int status = PMIx_Get(&proc, key, directive ? &info : NULL, directive ? 1 : 0, &v);
    if (status) return status;
    return v->type == PMIX_INT ? v->data.integer : v->type == PMIX_UINT32 ? (int) v->data.uint32
        : v->type == PMIX_UINT16 ? v->data.uint16 : v->type == PMIX_STRING ? (int) strlen(v->data.string) : -9999;
}

static int fence(bool collect, int timeout) {
    pmix_info_t info[2];
    PMIX_INFO_CONSTRUCT(&info[0]);
    PMIX_INFO_CONSTRUCT(&info[1]);
    PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &timeout, PMIX_INT);
    return PMIx_Fence(NULL, 0, info, timeout ? 2 : 1);
}

static void *late(void *unused) { (void) unused; return NULL; }

int main(int argc, char **argv) {
    const char *what = argv[1];
    (void) argc; (void) late;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int status = PMIx_Init(&me, NULL, 0);
    if (!strcmp(what, "refused")) { printf("init %d\n", status); return 0; }
    if (status) { printf("FAILED init: %d\n", status); return 3; }
    size = get(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, NULL, 0);
    if (!strcmp(what, "modex")) {
        for (int round = 1; round <= 3; round++) {
            char key[32];
            sprintf(key, "global-%d", round);
            CHECK(put(key, 100 * round + me.rank, PMIX_GLOBAL));
            sprintf(key, "local-%d", round);
            CHECK(put(key, 1000 * round + me.rank, PMIX_LOCAL));
            sprintf(key, "remote-%d", round);
            CHECK(put(key, 1, PMIX_REMOTE));
            CHECK(PMIx_Commit());
            CHECK(fence(round % 2, 0));
            for (unsigned rank = 0; rank < size; rank++) {
                sprintf(key, "global-%d", round);
                if (get(rank, key, NULL, 0) != (int) (100 * round + rank)) printf("WRONG %s\n", key);
                sprintf(key, "local-%d", round);
                if (get(rank, key, NULL, 0) != (int) (1000 * round + rank)) printf("WRONG %s\n", key);
                sprintf(key, "remote-%d", round);
                if (rank != me.rank && get(rank, key, PMIX_IMMEDIATE, 0) >= 0) printf("WRONG %s is seen\n", key);
            }
        }
        printf("job %u lrank %d univ %d host %d missing %d\n", size, get(me.rank, PMIX_LOCAL_RANK, NULL, 0),
               get(PMIX_RANK_WILDCARD, PMIX_UNIV_SIZE, NULL, 0), get(me.rank, PMIX_HOSTNAME, NULL, 0),
               get(PMIX_RANK_WILDCARD, PMIX_ALLOC_ID, NULL, 0));
    } else if (!strcmp(what, "direct")) {
        if (me.rank == 0) {
            printf("immediate %d\n", get(1, "late", PMIX_IMMEDIATE, 0));
            printf("timeout %d\n", get(1, "never", PMIX_TIMEOUT, 1));
            CHECK(fence(false, 0));
            printf("value %d\n", get(1, "late", PMIX_TIMEOUT, 20));
        } else {
            CHECK(fence(false, 0));
            usleep(300000);
            CHECK(put("late", 42, PMIX_GLOBAL));
            CHECK(PMIx_Commit());
        }
        CHECK(fence(false, 0));
    } else if (!strcmp(what, "death")) {
        CHECK(fence(false, 0));
        if (me.rank == size - 1) raise(SIGKILL);
        printf("fence %d\n", fence(false, 0));
        printf("get %d\n", get(size - 1, "never", PMIX_TIMEOUT, 20));
    } else if (!strcmp(what, "late")) {
        if (me.rank == 0) printf("fence %d\n", fence(false, 1));
        else sleep(2);
        printf("next %d\n", fence(false, 20));
    } else if (!strcmp(what, "abort")) {
        if (me.rank == 0) printf("abort %d\n", PMIx_Abort(17, "enough", NULL, 0));
        CHECK(fence(false, 0));
    } else if (!strcmp(what, "unserved")) {
        pmix_info_t info;
        pmix_query_t query;
        uint32_t number = 1;
        PMIX_INFO_CONSTRUCT(&info);
        PMIX_INFO_LOAD(&info, "some-key", &number, PMIX_UINT32);
        printf("publish %d\n", PMIx_Publish(&info, 1));
        pmix_info_t *results = NULL;
        size_t count = 0;
        PMIX_QUERY_CONSTRUCT(&query);
        PMIX_ARGV_APPEND(status, query.keys, PMIX_QUERY_QUEUE_LIST);
        printf("query %d\n", PMIx_Query_info(&query, 1, &results, &count));
        printf("construct %d\n", PMIx_Group_construct("g", &me, 1, NULL, 0, &results, &count));
        CHECK(fence(false, 0));
    }
    CHECK(PMIx_Finalize(NULL, 0));
    printf("done\n");
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler, headers = machine.compiler(), machine.pmix_headers()
    if compiler is None:
        machine.lacking("a C compiler")
    if headers is None:
        machine.lacking("the headers of libpmix (Debian: libpmix-dev)")
    if not machine.libraries():
        machine.lacking("any libpmix")
    folder = tmp_path_factory.mktemp("native")
    source = folder / "client.c"
    source.write_text(PROGRAM)
    library = machine.libraries()[0].path
    command = [compiler, "-O1", "-o", folder / "client", source, f"-I{headers}", f"-I{headers}/pmix", library]
    subprocess.run(command, check=True, timeout=LIMIT)
    return folder / "client"


@pytest.fixture(params=machine.libraries() or [None], ids=lambda library: library.release if library else "none")
def library(request):
    return request.param


def folder(library):
    return os.path.dirname(os.path.realpath(library.path)) if library else ""


def job_info(nspace, size):
    ranks = range(size)
    node = (
        attrs.NODEID(0),
        attrs.HOSTNAME("here"),
        attrs.LOCAL_PEERS(",".join(map(str, ranks))),
        attrs.LOCAL_SIZE(size),
        attrs.LOCALLDR(0),
    )
    return JobInfo(
        nspace,
        (attrs.JOB_SIZE(size), attrs.UNIV_SIZE(size), attrs.JOBID(nspace), attrs.NUM_NODES(1)),
        nodes=(node,),
        apps=((attrs.APPNUM(0), attrs.APP_SIZE(size), attrs.APPLDR(0)),),
        procs=tuple(
            (rank, (attrs.RANK(rank), attrs.LOCAL_RANK(rank), attrs.NODEID(0), attrs.HOSTNAME("here"), attrs.APPNUM(0)))
            for rank in ranks
        ),
    )


class Job:
    """Processes under a server of their own; `libraries` gives each rank its libpmix in turn."""

    def __init__(self, program, what, libraries, size=3, change=None, answer=None):
        self.upcalls = []
        self.log = []
        self.answer = answer or (lambda upcall: upcall.reply())
        session = ServerSession(self.on_upcall, ServerOptions(hostname="here"), self.log.append)
        try:
            session.register_nspace(job_info("job", size))
            children = []
            for rank in range(size):
                session.register_client(Proc("job", rank), os.getuid(), os.getgid())
                env = machine.clean_environment() | session.client_env(Proc("job", rank)) | (change or {})
                env["LD_LIBRARY_PATH"] = folder(libraries[rank % len(libraries)])
                children.append(
                    subprocess.Popen(
                        [program, what], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                    )
                )
            self.output = []
            self.codes = []
            for rank, child in enumerate(children):
                try:
                    self.output.append(child.communicate(timeout=LIMIT)[0])
                except subprocess.TimeoutExpired:
                    child.kill()
                    self.output.append(f"HANG {child.communicate()[0]} with {session.pending()}")
                self.codes.append(child.returncode)
                session.deregister_client(Proc("job", rank))
            self.pending = session.pending()
        finally:
            session.close()

    def on_upcall(self, upcall):
        self.upcalls.append(upcall.op)
        self.answer(upcall)

    def lines(self, rank):
        return self.output[rank].splitlines()

    def kinds(self, kind):
        return [op for op in self.upcalls if isinstance(op, kind)]


def test_modex(program, library):
    job = Job(program, "modex", [library])
    for rank in range(3):
        assert job.lines(rank)[-2:] == [f"job 3 lrank {rank} univ 3 host 4 missing -46", "done"], job.output[rank]
        assert len(job.lines(rank)) == 2, job.output[rank]
    assert job.codes == [0, 0, 0]
    assert not job.pending
    assert len(job.kinds(ops.ClientConnected)) == len(job.kinds(ops.ClientFinalized)) == 3
    assert not job.kinds(ops.ClientLost)
    assert {op.release for op in job.kinds(ops.ClientConnected)} == {library.release}
    assert not job.log


def test_clients_of_all_releases_in_one_job(program):
    libraries = machine.libraries()
    if len(libraries) < 2:
        machine.lacking("a second release of libpmix")
    job = Job(program, "modex", libraries, size=2 * len(libraries))
    assert all(output.endswith("done\n") and "WRONG" not in output for output in job.output), job.output
    assert len({op.release for op in job.kinds(ops.ClientConnected)}) == len(libraries)


def test_described_buffers(program, library):
    job = Job(program, "modex", [library], change={"PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_FULLY_DESC"})
    assert all(output.endswith("done\n") and "WRONG" not in output for output in job.output), job.output


def test_direct_modex(program, library):
    job = Job(program, "direct", [library], size=2)
    assert job.lines(0) == ["immediate -46", "timeout -24", "value 42", "done"], job.output
    assert job.lines(1) == ["done"], job.output


def test_a_client_that_is_killed(program, library):
    job = Job(program, "death", [library])
    for rank in range(2):
        assert job.lines(rank) == ["fence -52", "get -46", "done"], job.output
    assert [op.proc for op in job.kinds(ops.ClientLost)] == [Proc("job", 2)]


def test_a_fence_that_is_late(program, library):
    job = Job(program, "late", [library], size=2)
    assert job.lines(0) == ["fence -24", "next 0", "done"], job.output
    assert job.lines(1) == ["next 0", "done"], job.output


def test_abort(program, library):
    job = Job(program, "abort", [library], size=2)
    assert job.lines(0)[0] == "abort 0", job.output
    (op,) = job.kinds(ops.ClientAborted)
    assert (op.proc, op.code, op.message) == (Proc("job", 0), 17, "enough")


def test_what_is_not_served_says_so(program, library):
    job = Job(program, "unserved", [library], size=1, answer=accept)
    assert job.lines(0) == ["publish -47", "query -47", "construct 0", "done"], job.output


@pytest.mark.parametrize(
    "change",
    [{"PMIX_NAMESPACE": "other"}, {"PMIX_RANK": "7"}, {"PMIX_MCA_psec": "none", "PMIX_SECURITY_MODE": "none"}],
    ids=["nspace", "rank", "no credential"],
)
def test_a_refused_client_ends(program, library, change):
    job = Job(program, "refused", [library], size=1, change=change)
    assert [line for line in job.lines(0) if line.startswith("init ") and line != "init 0"], job.output
    assert len(job.log) == 1
    assert not job.upcalls


@pytest.mark.timing
def test_a_host_that_refuses(program, library):
    def refuse(upcall):
        threading.Timer(0.1, upcall.fail, (PermissionDenied("full"),)).start()

    started = time.monotonic()
    job = Job(program, "refused", [library], size=1, answer=refuse)
    assert [line for line in job.lines(0) if line.startswith("init ") and line != "init 0"], job.output
    assert time.monotonic() - started < LIMIT / 2
