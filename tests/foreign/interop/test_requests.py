"""Unmodified C clients ask a Python server, and its host, for all that hosts offer, and get the host's answers."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from lib import machine
from pypmix import attrs
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.serving import ServerOptions
from pypmix.standard import ops
from pypmix.standard.errors import NotSupported, PermissionDenied
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.releases import parse_release
from pypmix.standard.types import Info, Proc, Query
from pypmix.standard.values import from_python

LIMIT = 60
SIZE = 2


class Host:
    """Answers what the program asks for, each upcall on a thread of its own and late."""

    def __init__(self):
        self.upcalls = []
        self.heartbeat = threading.Event()

    def __call__(self, upcall):
        self.upcalls.append((upcall.op, upcall.requestor, upcall.uid, upcall.gid))
        if isinstance(upcall.op, ops.Heartbeat):
            self.heartbeat.set()
        threading.Timer(0.01, self.answer, (upcall,)).start()

    def answer(self, upcall):
        op = upcall.op
        match op:
            case ops.QueryInfo():
                asked = [key for query in op.queries for key in query.keys]
                upcall.reply([Info(key, from_python("yes")) for key in asked if key == "acme.host"])
            case ops.Log() if op.data[0].key == "acme.refused":
                upcall.fail(NotSupported("no such channel"))
            case ops.JobControl(targets=(target,)):
                upcall.reply((Info("acme.target", from_python(str(target))),))
            case ops.AllocationRequest():
                upcall.reply((attrs.ALLOC_ID("a1"),))
            case ops.GetCredential():
                upcall.reply(ops.Credential(b"secret of 0", (attrs.CRED_TYPE("token"),)))
            case ops.ValidateCredential(credential=b"secret of 0"):
                upcall.reply((attrs.USERID(1000), attrs.CRED_TYPE("token")))
            case ops.ValidateCredential():
                upcall.fail(PermissionDenied("forged", status=-12))
            case ops.FabricRegister():
                upcall.reply((attrs.FABRIC_VENDOR("acme"),))
            case ops.FabricUpdate(index=3):
                upcall.reply((attrs.FABRIC_VENDOR("acme 2"),))
            case _:
                upcall.reply()

    def of(self, kind):
        return [op for op, *_ in self.upcalls if isinstance(op, kind)]


@pytest.fixture(scope="module")
def compiled(programs):
    return programs("requests")


@pytest.fixture
def job(compiled, libpmix, tmp_path):
    """Run the program with two ranks, and return the host and what rank 0 noted."""
    host = Host()
    session = ServerSession(host, ServerOptions(hostname="here"))
    try:
        ranks = range(SIZE)
        node = (attrs.HOSTNAME("here"), attrs.NODEID(0), attrs.LOCAL_PEERS("0,1"), attrs.LOCAL_SIZE(SIZE))
        procs = tuple((rank, (attrs.RANK(rank), attrs.LOCAL_RANK(rank), attrs.HOSTNAME("here"))) for rank in ranks)
        session.register_nspace(JobInfo("job", (attrs.JOB_SIZE(SIZE), attrs.NODE_LIST("here")), (node,), procs=procs))
        children = []
        for rank in ranks:
            session.register_client(Proc("job", rank), os.getuid(), os.getgid())
            environment = machine.clean_environment() | session.client_env(Proc("job", rank)) | libpmix
            environment["PYPMIX_TEST_RESULTS"] = str(tmp_path)
            children.append(
                subprocess.Popen(
                    [compiled], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
            )
        for child in children:
            try:
                output, _ = child.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                for each in children:
                    each.kill()
                    each.communicate()
                pytest.fail(f"it hangs with {session.pending()}, after {host.upcalls[-1:]}")
            assert child.returncode == 0, output
        assert not session.pending()
    finally:
        session.close()
    lines = (tmp_path / "0.txt").read_text().splitlines()
    return host, dict(line.split(" ", 1) for line in lines)


def test_requests(job, libpmix):
    _, noted = job
    release = parse_release(libpmix["INTEROP_RELEASE"])
    assert noted["namespaces"] == "0 pmix.qry.ns=job"
    assert noted["host"] == "0 acme.host=yes"
    assert noted["both"] == "0 pmix.qry.ns=job acme.host=yes"
    # Libraries before 5.0.7 drop the data of a partial success, so that the server tells them of a success.
    assert noted["partial"] == ("0" if release < (5, 0, 7) else "-52") + " acme.host=yes"
    assert noted["gone"] == "-46"
    assert noted["table"] == "0 pmix.qry.ptable=0@here/6,1@here/6"
    assert noted["table-gone"] == "-46"
    # Libraries before 5.0 resolve by themselves, and take no node for none at all.
    assert noted["peers"] == ("0 2 0 1" if release >= (5, 0, 0) else "-46 0 99 99")
    assert noted["peers-here"] == "0 2"
    assert noted["nodes"] == "0 here"
    assert noted["log"] == "0"
    assert noted["log-refused"] == "-47"
    assert noted["signal"] == "0 acme.target=job:1"
    assert noted["pause"] == "0"
    assert noted["allocation"] == "0 pmix.alloc.id=a1"
    assert noted["monitor"] == "0"
    assert noted["credential"] == "0 secret of 0"
    assert noted["validation"] == "0 pmix.euid=1000 pmix.sec.ctype=token"
    assert noted["forged"] == "-12"
    assert noted["fabric"] == "0 pmix.fab.vndr=acme"
    assert noted["update"] == "0 pmix.fab.vndr=acme 2"
    assert noted["finalize"] == "0"


def test_what_the_host_is_asked(job):
    host, _ = job
    asked = [entry for entry in host.upcalls if not type(entry[0]).__name__.startswith("Client")]
    assert {entry[1:] for entry in asked} == {(Proc("job", 0), os.getuid(), os.getgid())}
    first, refused = host.of(ops.Log)
    assert first.data == (attrs.LOG_STDERR("a line"),)
    assert [info.key for info in first.directives] == ["pmix.log.gtstmp"]
    assert first.timestamp > 1_600_000_000
    assert refused.timestamp == 0
    signal, pause = host.of(ops.JobControl)
    assert signal == ops.JobControl((Proc("job", 1),), (attrs.JOB_CTRL_SIGNAL(10),))
    assert pause == ops.JobControl((), (attrs.JOB_CTRL_PAUSE(True),))
    (monitor,) = host.of(ops.ProcessMonitor)
    assert monitor == ops.ProcessMonitor(attrs.MONITOR_HEARTBEAT(True), -109, (attrs.MONITOR_ID("mine"),))
    assert host.heartbeat.wait(10)
    assert Query(("acme.host",)) in [query for op in host.of(ops.QueryInfo) for query in op.queries]
    assert host.of(ops.GetCredential) == [ops.GetCredential((attrs.CRED_TYPE("token"),))]
    assert [op.credential for op in host.of(ops.ValidateCredential)] == [b"secret of 0", b"forged"]
    assert host.of(ops.FabricUpdate) == [ops.FabricUpdate(3)]
