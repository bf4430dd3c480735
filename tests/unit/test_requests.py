"""Proves what clients ask of hosts and how they understand the answers: the facade, and the Python engine's machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from lib.fake_server import get_reply
from lib.fake_session import FakeSession
from lib.recorded import messages
from pypmix import AllocDirective, Client, EventCode, Proc, Query, attrs
from pypmix.engine.python.client import Client as Machine
from pypmix.engine.python.client import ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.python.session import open_client
from pypmix.standard import codes, keys, ops, statuses
from pypmix.standard.errors import (
    LostConnection,
    NotFound,
    NotSupported,
    OperationTimeout,
    PartialSuccess,
    PermissionDenied,
    PMIxError,
    Unreachable,
)
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.structures import Cpuset, Topology
from pypmix.standard.types import DataArray, DeviceDistance, Info, ProcInfo, Value
from pypmix.types import Credential, DeviceType, Fabric
from pypmix.wire.frames import TAG_HEARTBEAT, FrameReader, frame
from pypmix.wire.messages import (
    Command,
    decode_get,
    encode_get_object,
    encode_kval,
    encode_status,
    reply_layout,
    request_layout,
)

ME, OTHER = Proc("job", 1), Proc("job", 2)
RELEASE = (5, 0, 11)
NO_NSPACE = -44


def text(value):
    return Value(codes.STRING, value)


WHAT = Info("acme.what", text("x"))


@pytest.fixture
def session(monkeypatch):
    fake = FakeSession()
    monkeypatch.setattr("pypmix.clientbase.open_client", lambda *_: fake)
    return fake


@pytest.fixture
def me(session):
    with Client() as client:
        yield client


# The facade: what its arguments mean.


def asked(session, kind):
    op = session.ops[-1]
    assert type(op) is kind
    return op


def test_a_query(me, session):
    session.answers[ops.QueryInfo] = (attrs.JOB_SIZE(4),)
    assert me.query(attrs.JOB_SIZE) == 4
    assert asked(session, ops.QueryInfo).queries == (Query(("pmix.job.size",)),)
    me.query("pmix.job.size", nspace="other", proc=OTHER, node="n0", refresh=True, info={attrs.DEVICE_TYPE: 4})
    assert asked(session, ops.QueryInfo).queries == (
        Query(
            ("pmix.job.size",),
            (
                attrs.DEVICE_TYPE(4),
                attrs.NSPACE("other"),
                attrs.PROCID(OTHER),
                attrs.HOSTNAME("n0"),
                attrs.QUERY_REFRESH_CACHE(True),
            ),
        ),
    )


@pytest.mark.parametrize("error", [NotFound("no"), NotSupported("no")])
def test_a_query_without_an_answer(me, session, error):
    session.answers[ops.QueryInfo] = error
    assert me.query("acme.what", default=None) is None
    with pytest.raises(type(error)):
        me.query("acme.what")


def test_a_default_hides_no_other_error(me, session):
    session.answers[ops.QueryInfo] = PermissionDenied("no")
    with pytest.raises(PermissionDenied):
        me.query("acme.what", default=None)
    with pytest.raises(PermissionDenied):
        me.query(["acme.what", "acme.else"])
    assert len(session.ops) == 2


def test_a_query_of_several_keys(me, session):
    session.answers[ops.QueryInfo] = (attrs.JOB_SIZE(4), WHAT)
    found = me.query([attrs.JOB_SIZE, "acme.what", attrs.JOB_SIZE, "acme.gone"])
    assert found == {"pmix.job.size": 4, "acme.what": "x"}
    assert (found[attrs.JOB_SIZE], found.missing, found.infos) == (4, {"acme.gone"}, (attrs.JOB_SIZE(4), WHAT))
    assert asked(session, ops.QueryInfo).queries[0].keys == ("pmix.job.size", "acme.what", "acme.gone")
    assert len(session.ops) == 1


class Stopping(FakeSession):
    """Answers a query up to the first key that it does not know, as `prterun` does, or fails as a whole."""

    def __init__(self, failure):
        super().__init__()
        self.failure = failure

    def run(self, op):
        self.ops.append(op)
        found = []
        for key in op.queries[0].keys:
            if "gone" in key:
                if self.failure or not found:
                    raise self.failure or NotSupported("no")
                break
            found.append(Info(key, text(key)))
        return tuple(found)


@pytest.mark.parametrize(
    "failure", [None, NotSupported("no"), PartialSuccess("some"), PMIxError("x", status=statuses.ERROR)]
)
def test_keys_behind_an_unknown_one_are_found_all_the_same(monkeypatch, failure):
    session = Stopping(failure)
    monkeypatch.setattr("pypmix.clientbase.open_client", lambda *_: session)
    me = Client().open()
    if failure is not None and not isinstance(failure, NotSupported):
        # Only the whole fails so; single keys have an answer or have none.
        original = session.run
        session.run = lambda op: original(op) if len(op.queries[0].keys) > 1 else single(op)

        def single(op):
            session.failure = None
            return original(op)

    found = me.query(["a", "gone.1", "b", "gone.2"])
    assert found == {"a": "a", "b": "b"}
    assert found.missing == {"gone.1", "gone.2"}


def test_queries_one_to_one(me, session):
    queries = Query(("a", "b"), (attrs.NSPACE("x"),)), Query(("a",))
    session.answers[ops.QueryInfo] = (WHAT,)
    assert me.raw.query_info(queries) == (WHAT,)
    assert asked(session, ops.QueryInfo) == ops.QueryInfo(queries)
    me.raw.query_info(queries[1])
    assert asked(session, ops.QueryInfo) == ops.QueryInfo(queries[1:])


def test_resolutions(me, session):
    session.answers[ops.ResolvePeers] = (OTHER,)
    assert me.raw.resolve_peers() == (OTHER,)
    assert asked(session, ops.ResolvePeers) == ops.ResolvePeers(None, None)
    me.raw.resolve_peers("n0", "job")
    assert asked(session, ops.ResolvePeers) == ops.ResolvePeers("n0", "job")
    session.answers[ops.ResolveNodes] = ("n0",)
    assert me.raw.resolve_nodes("job") == ("n0",)
    assert asked(session, ops.ResolveNodes) == ops.ResolveNodes("job")


@pytest.mark.parametrize(
    ("arguments", "data", "directives"),
    [
        (("hello",), (attrs.LOG_STDERR("hello"),), ()),
        (("hello", "stdout"), (attrs.LOG_STDOUT("hello"),), ()),
        (("hello", attrs.LOG_GLOBAL_SYSLOG), (attrs.LOG_GLOBAL_SYSLOG("hello"),), ()),
        (("hello", ["stderr", "syslog"]), (attrs.LOG_STDERR("hello"), attrs.LOG_SYSLOG("hello")), ()),
        (
            ({attrs.LOG_STDOUT: "a", attrs.LOG_JOB_RECORD: True},),
            (attrs.LOG_STDOUT("a"), attrs.LOG_JOB_RECORD(True)),
            (),
        ),
        (([attrs.LOG_STDOUT("a")],), (attrs.LOG_STDOUT("a"),), ()),
    ],
)
def test_a_log(me, session, arguments, data, directives):
    data_, *to = arguments
    me.log(data_, to=to[0]) if to else me.log(data_)
    assert asked(session, ops.Log) == ops.Log(data, directives)


def test_directives_of_a_log(me, session):
    me.log("x", tag=True, timestamp=True, once=True, timeout=2, info={attrs.LOG_XML_OUTPUT: True})
    assert {info.key for info in asked(session, ops.Log).directives} == {
        "pmix.log.tag",
        "pmix.log.gtstmp",
        "pmix.log.tsout",
        "pmix.log.once",
        "pmix.timeout",
        "pmix.log.xml",
    }


def test_job_control(me, session):
    session.answers[ops.JobControl] = (WHAT,)
    assert me.control().request(info={attrs.JOB_CTRL_ID: "x"}) == {"acme.what": "x"}
    assert asked(session, ops.JobControl) == ops.JobControl((), (attrs.JOB_CTRL_ID("x"),))
    for call, directive in (
        (lambda: me.control(OTHER).signal(signal.SIGUSR1), attrs.JOB_CTRL_SIGNAL(10)),
        (lambda: me.control(OTHER).kill(), attrs.JOB_CTRL_KILL(True)),
        (lambda: me.control([OTHER]).terminate(), attrs.JOB_CTRL_TERMINATE(True)),
        (lambda: me.control(OTHER).pause(), attrs.JOB_CTRL_PAUSE(True)),
        (lambda: me.control(OTHER).resume(), attrs.JOB_CTRL_RESUME(True)),
    ):
        assert call() is None
        assert asked(session, ops.JobControl) == ops.JobControl((OTHER,), (directive,))


def test_cleanup(me, session):
    me.control().register_cleanup(Path("/acme/x"))
    assert asked(session, ops.JobControl) == ops.JobControl((), (attrs.REGISTER_CLEANUP("/acme/x"),))
    me.control(OTHER).register_cleanup(
        "/acme/d", recursive=True, keep_top=True, ignore=["/acme/d/a", Path("/acme/d/b")]
    )
    assert asked(session, ops.JobControl) == ops.JobControl(
        (OTHER,),
        (
            attrs.REGISTER_CLEANUP_DIR("/acme/d"),
            attrs.CLEANUP_IGNORE("/acme/d/a"),
            attrs.CLEANUP_IGNORE("/acme/d/b"),
            attrs.CLEANUP_RECURSIVE(True),
            attrs.CLEANUP_LEAVE_TOPDIR(True),
        ),
    )


def test_allocations(me, session):
    session.answers[ops.AllocationRequest] = (attrs.ALLOC_ID("a1"),)
    found = me.allocate(nodes=2, cpus=8, memory=512.0, time="1:00:00", queue="fast", request_id="r", timeout=3)
    assert found[attrs.ALLOC_ID] == "a1"
    op = asked(session, ops.AllocationRequest)
    assert op.directive == AllocDirective.NEW
    assert op.directives == (
        attrs.ALLOC_REQ_ID("r"),
        attrs.ALLOC_NUM_NODES(2),
        attrs.ALLOC_NUM_CPUS(8),
        attrs.ALLOC_MEM_SIZE(512.0),
        attrs.ALLOC_TIME("1:00:00"),
        attrs.ALLOC_QUEUE("fast"),
        attrs.TIMEOUT(3),
    )
    me.allocate(AllocDirective.EXTEND, allocation_id="a1", time=60)
    assert asked(session, ops.AllocationRequest).directives == (attrs.ALLOC_ID("a1"), attrs.ALLOC_TIME(60))
    me.allocate(AllocDirective.RELEASE, info={attrs.ALLOC_ID: "a1"})
    assert asked(session, ops.AllocationRequest) == ops.AllocationRequest(3, (attrs.ALLOC_ID("a1"),))


def test_monitors(me, session):
    session.answers[ops.ProcessMonitor] = ()
    first, second = me.monitors.watch_heartbeat(5), me.monitors.watch_heartbeat(5)
    assert first != second
    name = me.monitors.watch_heartbeat(5, drops=2, error=-300, name="mine", info={attrs.MONITOR_APP_CONTROL: True})
    assert name == "mine"
    assert asked(session, ops.ProcessMonitor) == ops.ProcessMonitor(
        attrs.MONITOR_HEARTBEAT(True),
        -300,
        (
            attrs.MONITOR_ID("mine"),
            attrs.MONITOR_HEARTBEAT_TIME(5),
            attrs.MONITOR_HEARTBEAT_DROPS(2),
            attrs.MONITOR_APP_CONTROL(True),
        ),
    )
    name = me.monitors.watch_file(Path("/acme/x"), 3, size=True, modify=True)
    op = asked(session, ops.ProcessMonitor)
    assert (op.monitor, op.error) == (attrs.MONITOR_FILE("/acme/x"), EventCode.MONITOR_FILE_ALERT)
    assert op.directives == (
        attrs.MONITOR_ID(name),
        attrs.MONITOR_FILE_SIZE(True),
        attrs.MONITOR_FILE_MODIFY(True),
        attrs.MONITOR_FILE_CHECK_TIME(3),
        attrs.MONITOR_FILE_DROPS(0),
    )
    me.monitors.cancel(name)
    assert asked(session, ops.ProcessMonitor) == ops.ProcessMonitor(attrs.MONITOR_CANCEL(name), 0)
    me.monitors.cancel()
    assert asked(session, ops.ProcessMonitor).monitor == Info("pmix.monitor.cancel", Value(codes.STRING, None))
    assert me.monitors.watch(attrs.MONITOR_HEARTBEAT(True), -300, info=[WHAT]) == {}
    me.monitors.send_heartbeat()
    asked(session, ops.Heartbeat)


def test_credentials(me, session):
    session.answers[ops.GetCredential] = ops.Credential(b"secret", (attrs.CRED_TYPE("token"),))
    found = me.credentials.get(kinds="munge,token", timeout=2)
    assert asked(session, ops.GetCredential).directives == (attrs.CRED_TYPE("munge,token"), attrs.TIMEOUT(2))
    assert isinstance(found, Credential)
    assert (found.data, bytes(found), found.info) == (b"secret", b"secret", {"pmix.sec.ctype": "token"})
    session.answers[ops.ValidateCredential] = (attrs.USERID(1000),)
    for credential in (found, b"secret", bytearray(b"secret"), memoryview(b"secret")):
        assert me.credentials.validate(credential)[attrs.USERID] == 1000
        assert asked(session, ops.ValidateCredential) == ops.ValidateCredential(b"secret")


def test_fabrics(me, session):
    session.answers[ops.FabricRegister] = (attrs.FABRIC_INDEX(3), attrs.FABRIC_VENDOR("acme"))
    fabric = me.fabric.register(info={attrs.FABRIC_PLANE: "blue"})
    assert (fabric.index, fabric.info[attrs.FABRIC_VENDOR]) == (3, "acme")
    session.answers[ops.FabricUpdate] = (attrs.FABRIC_VENDOR("other"),)
    assert me.fabric.update(fabric) == Fabric(3, (attrs.FABRIC_VENDOR("other"),))
    assert asked(session, ops.FabricUpdate) == ops.FabricUpdate(3)
    assert me.fabric.update(4).index == 4


def test_distances(me, session, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {9, 0, 1, 2, 5})
    session.answers[ops.ComputeDistances] = (DeviceDistance("u", "eth0", 4, 1, 2),)
    assert me.fabric.compute_distances() == (DeviceDistance("u", "eth0", 4, 1, 2),)
    assert asked(session, ops.ComputeDistances) == ops.ComputeDistances(Topology(None), Cpuset("0-2,5,9"))
    me.fabric.compute_distances("3", topology=Topology("<x/>", b"1"), devices=DeviceType.NETWORK)
    assert asked(session, ops.ComputeDistances) == ops.ComputeDistances(
        Topology("<x/>", b"1"), Cpuset("3"), (attrs.DEVICE_TYPE(4),)
    )


@pytest.mark.parametrize(
    "mistake",
    [
        lambda me: me.query(""),
        lambda me: me.query(5),
        lambda me: me.query("k" * 600),
        lambda me: me.query("a", nspace=5),
        lambda me: me.query("a", proc="job"),
        lambda me: me.query([]),
        lambda me: me.raw.query_info([]),
        lambda me: me.raw.query_info(["a"]),
        lambda me: me.raw.query_info(Query(())),
        lambda me: me.raw.query_info(Query(("a",), ("b",))),
        lambda me: me.raw.resolve_peers(5),
        lambda me: me.raw.resolve_peers(nspace="n" * 256),
        lambda me: me.raw.resolve_nodes(5),
        lambda me: me.log(5),
        lambda me: me.log({}),
        lambda me: me.log("x", to="nowhere"),
        lambda me: me.log("x", to=[]),
        lambda me: me.log("x", to=5),
        lambda me: me.log("a\0b"),
        lambda me: me.log({attrs.LOG_STDERR: "x"}, to="stderr"),
        lambda me: me.log({attrs.LOG_STDERR: 5}),
        lambda me: me.control("job").request(),
        lambda me: me.control([]).request(),
        lambda me: me.control().request(info=5),
        lambda me: me.control(None).signal(15),
        lambda me: me.control(OTHER).signal("TERM"),
        lambda me: me.control(OTHER).signal(0),
        lambda me: me.control(OTHER).signal(True),
        lambda me: me.control(OTHER).signal(200),
        lambda me: me.control(None).kill(),
        lambda me: me.control([]).terminate(),
        lambda me: me.control().register_cleanup(5),
        lambda me: me.control().register_cleanup("a", ignore="b"),
        lambda me: me.allocate(300),
        lambda me: me.allocate("new"),
        lambda me: me.allocate(nodes=-1),
        lambda me: me.allocate(nodes="two"),
        lambda me: me.monitors.watch("pmix.monitor.mbeat", -109),
        lambda me: me.monitors.watch(attrs.MONITOR_HEARTBEAT(True), 2**31),
        lambda me: me.monitors.watch_heartbeat(0),
        lambda me: me.monitors.watch_heartbeat(0.5),
        lambda me: me.monitors.watch_heartbeat(5, drops=-1),
        lambda me: me.monitors.watch_file("x", 5),
        lambda me: me.monitors.watch_file(5, 5, size=True),
        lambda me: me.monitors.cancel(5),
        lambda me: me.credentials.get(kinds=5),
        lambda me: me.credentials.get(timeout=0),
        lambda me: me.credentials.validate("text"),
        lambda me: me.credentials.validate(None),
        lambda me: me.fabric.update(-1),
        lambda me: me.fabric.update("blue"),
        lambda me: me.fabric.compute_distances(5),
        lambda me: me.fabric.compute_distances("0", topology="<xml/>"),
    ],
)
def test_mistakes_are_errors_at_the_call(me, session, mistake):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        mistake(me)
    assert not session.ops


# The machine: what is sent, and what the answers mean.


def machine(release=RELEASE, buffer_type=1, alone=False):
    """Return a machine that is connected, as far as operations can tell, with the job info of three ranks."""
    store = DataStore(ME, "n0", release)
    nodes = ((attrs.HOSTNAME("n0"), attrs.LOCAL_PEERS("0,1")), (attrs.HOSTNAME("n1"), attrs.LOCAL_PEERS("2")))
    store.add_job(JobInfo("job", (attrs.JOB_SIZE(3),), nodes, procs=((2, (attrs.LOCAL_RANK(0),)),)))
    return Machine(ME, store, None if alone else ServerInfo("server.0", release, buffer_type))


def sent(client):
    """Return the tags and the payloads of what the machine has sent."""
    found = FrameReader().feed(bytes(client.unsent()))
    client.out = b"", []
    return found


def request(client, command):
    ((tag, payload),) = sent(client)
    return tag, request_layout(command, client.release).decode(payload, client.buffer_type, client.release)


def reply(client, tag, payload):
    client.intake.chunks.append(frame(0, tag, payload))
    client.take(0.0)


def answer(client, tag, command, **fields):
    layout = reply_layout(command, client.release)
    reply(client, tag, layout.encode(client.buffer_type, client.release, **fields))


DISTANCE = DeviceDistance("u", "eth0", 4, 1, 2)
EXCHANGES = [
    (ops.Log((WHAT,), (WHAT,), 5), Command.LOG, {"timestamp": 5, "data": (WHAT,), "directives": (WHAT,)}, {}, None),
    (
        ops.JobControl((OTHER,), (WHAT,)),
        Command.JOB_CONTROL,
        {"procs": (OTHER,), "infos": (WHAT,)},
        {"infos": (WHAT,)},
        (WHAT,),
    ),
    (ops.JobControl(), Command.JOB_CONTROL, {"procs": (), "infos": ()}, {"infos": ()}, ()),
    (ops.AllocationRequest(1, (WHAT,)), Command.ALLOC, {"directive": 1, "infos": (WHAT,)}, {"infos": (WHAT,)}, (WHAT,)),
    (
        ops.ProcessMonitor(WHAT, -109, (WHAT,)),
        Command.MONITOR,
        {"monitor": WHAT, "error": -109, "infos": (WHAT,)},
        {"infos": ()},
        (),
    ),
    (
        ops.GetCredential((WHAT,)),
        Command.GET_CREDENTIAL,
        {"infos": (WHAT,)},
        {"credential": b"c", "infos": (WHAT,)},
        ops.Credential(b"c", (WHAT,)),
    ),
    (
        ops.ValidateCredential(b"c", (WHAT,)),
        Command.VALIDATE_CRED,
        {"credential": b"c", "infos": (WHAT,)},
        {"infos": (WHAT,)},
        (WHAT,),
    ),
    (ops.FabricRegister((WHAT,)), Command.FABRIC_REGISTER, {"infos": (WHAT,)}, {"infos": (WHAT,)}, (WHAT,)),
    (ops.FabricUpdate(2), Command.FABRIC_UPDATE, {"index": 2}, {"infos": (WHAT,)}, (WHAT,)),
    (
        ops.ComputeDistances(Topology(None), Cpuset("0")),
        Command.COMPUTE_DEVICE_DISTANCES,
        {"topology": Topology(None), "cpuset": Cpuset("0"), "infos": ()},
        {"distances": (DISTANCE,)},
        (DISTANCE,),
    ),
    (
        ops.ResolvePeers("n0", "job"),
        Command.RESOLVE_PEERS,
        {"node": "n0", "nspace": "job"},
        {"procs": (OTHER,)},
        (OTHER,),
    ),
    (ops.ResolvePeers(), Command.RESOLVE_PEERS, {"node": None, "nspace": None}, {"procs": ()}, ()),
    (ops.ResolveNodes("job"), Command.RESOLVE_NODE, {"nspace": "job"}, {"nodes": "n0,n1"}, ("n0", "n1")),
    (ops.ResolveNodes(), Command.RESOLVE_NODE, {"nspace": None}, {"nodes": ""}, ()),
    (
        ops.QueryInfo((Query(("acme.what",)),)),
        Command.QUERY,
        {"queries": (Query(("acme.what",)),)},
        {"infos": (WHAT,)},
        (WHAT,),
    ),
]
NAMES = [type(op).__name__ for op, *_ in EXCHANGES]


@pytest.mark.parametrize("kind", [1, 2], ids=["plain", "described"])
@pytest.mark.parametrize(("op", "command", "fields", "told", "result"), EXCHANGES, ids=NAMES)
def test_an_operation_is_a_request_and_its_reply_the_result(kind, op, command, fields, told, result):
    client = machine(buffer_type=kind)
    call = client.start(op, None, 0.0)
    tag, asked_for = request(client, command)
    assert asked_for == fields
    assert call.outcome is None
    answer(client, tag, command, status=0, **told)
    assert call.outcome == (result, None)


@pytest.mark.parametrize(("op", "command", "fields", "told", "result"), EXCHANGES, ids=NAMES)
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (statuses.ERR_NOT_SUPPORTED, NotSupported),
        (statuses.ERR_NOT_FOUND, NotFound),
        (statuses.ERR_TIMEOUT, OperationTimeout),
        (statuses.ERR_PARTIAL_SUCCESS, PartialSuccess),
        (-23, PermissionDenied),
        (statuses.ERROR, PMIxError),
    ],
)
def test_a_status_is_an_error_that_tells_what_happened(op, command, fields, told, result, status, error):
    client = machine()
    call = client.start(op, None, 0.0)
    tag, _ = request(client, command)
    reply(client, tag, encode_status(1, status))
    problem = call.outcome[1]
    assert type(problem) is error
    assert (problem.operation, problem.engine) == (op.name, "python 5.0.11")
    assert client.closed is None


@pytest.mark.parametrize(("op", "command", "fields", "told", "result"), EXCHANGES, ids=NAMES)
def test_an_answer_that_does_not_parse_ends_the_connection(op, command, fields, told, result):
    client = machine()
    call = client.start(op, None, 0.0)
    tag, _ = request(client, command)
    reply(client, tag, encode_status(1, 0) + b"\2\x09\2\xff\xff" if told else b"\xff")
    assert client.closed is not None
    assert call.outcome[1] is not None


@pytest.mark.parametrize(("op", "command", "fields", "told", "result"), EXCHANGES, ids=NAMES)
def test_without_a_server(op, command, fields, told, result):
    client = machine(alone=True)
    call = client.start(op, None, 0.0)
    if isinstance(op, ops.ResolvePeers):
        assert call.outcome == ((Proc("job", 0), ME), None)
    elif isinstance(op, ops.ResolveNodes):
        assert call.outcome == (("n0", "n1"), None)
    else:
        assert type(call.outcome[1]) is Unreachable


@pytest.mark.parametrize(("op", "command", "fields", "told", "result"), EXCHANGES, ids=NAMES)
def test_a_lost_server_ends_it(op, command, fields, told, result):
    client = machine()
    call = client.start(op, None, 0.0)
    client.handle_disconnect("it died")
    assert type(call.outcome[1]) is LostConnection


@pytest.mark.parametrize(
    "op",
    [
        ops.GetCredential((attrs.TIMEOUT(2),)),
        ops.JobControl((), (attrs.TIMEOUT(2),)),
        ops.Log((WHAT,), (attrs.TIMEOUT(2),)),
    ],
)
def test_a_server_that_ignores_the_timeout_is_not_waited_for(op):
    client = machine()
    call = client.start(op, lambda *_: None, 0.0)
    client.tick(2.4)
    assert call.outcome is None
    client.tick(2.6)
    assert isinstance(call.outcome[1], OperationTimeout)


def test_a_heartbeat_is_an_empty_message_without_an_answer():
    client = machine()
    assert client.start(ops.Heartbeat(), None, 0.0).outcome == (None, None)
    assert client.start(ops.ProcessMonitor(attrs.SEND_HEARTBEAT(True), 0), None, 0.0).outcome == ((), None)
    assert sent(client) == [(TAG_HEARTBEAT, b"")] * 2
    assert type(machine(alone=True).start(ops.Heartbeat(), None, 0.0).outcome[1]) is Unreachable


def test_a_heartbeat_leaves_at_once():
    """No other message follows it, so it must not wait for one."""
    beaten = threading.Event()

    def on_upcall(upcall):
        if isinstance(upcall.op, ops.Heartbeat):
            assert (upcall.requestor, upcall.uid) == (Proc("job", 0), os.getuid())
            beaten.set()
        upcall.reply()

    server = ServerSession(on_upcall)
    try:
        server.register_nspace(JobInfo("job", (attrs.JOB_SIZE(1),)))
        server.register_client(Proc("job", 0), os.getuid(), os.getgid())
        session = open_client(server.client_env(Proc("job", 0)))
        session.run(ops.Heartbeat())
        assert beaten.wait(10)
        beaten.clear()
        done = threading.Event()
        session.submit(ops.Heartbeat(), lambda *_: done.set())
        assert done.wait(10)
        assert beaten.wait(10)
        session.close()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("op", "generated"),
    [
        (ops.Log((WHAT,)), False),
        (ops.Log((WHAT,), (attrs.LOG_GENERATE_TIMESTAMP(False),)), False),
        (ops.Log((WHAT,), (attrs.LOG_GENERATE_TIMESTAMP(True),)), True),
    ],
)
def test_the_time_of_a_log(op, generated):
    client = machine()
    before = int(time.time())
    client.start(op, None, 0.0)
    after = int(time.time())
    _, fields = request(client, Command.LOG)
    assert before <= fields["timestamp"] <= after if generated else fields["timestamp"] == 0


# Queries.


def query(*keys, qualifiers=()):
    return ops.QueryInfo((Query(tuple(map(str, keys)), qualifiers),))


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (query(attrs.JOB_SIZE), (attrs.JOB_SIZE(3),)),
        (query(attrs.JOB_SIZE, qualifiers=(attrs.NSPACE("job"),)), (attrs.JOB_SIZE(3),)),
        (query(attrs.JOB_SIZE, qualifiers=(attrs.QUERY_REFRESH_CACHE(False),)), (attrs.JOB_SIZE(3),)),
        (query(attrs.LOCAL_RANK, qualifiers=(attrs.PROCID(OTHER),)), (attrs.LOCAL_RANK(0),)),
        (query(attrs.LOCAL_RANK, qualifiers=(attrs.RANK(2),)), (attrs.LOCAL_RANK(0),)),
        (query(attrs.LOCAL_PEERS, qualifiers=(attrs.HOSTNAME("n1"), attrs.NODE_INFO(True))), (attrs.LOCAL_PEERS("2"),)),
    ],
)
def test_what_is_known_is_not_asked_for(op, expected):
    for client in (machine(), machine(alone=True)):
        assert client.start(op, None, 0.0).outcome == (expected, None)
        assert not sent(client)


@pytest.mark.parametrize(
    "qualifiers",
    [
        (attrs.QUERY_REFRESH_CACHE(True),),
        (attrs.NSPACE("other"),),
        (attrs.DEVICE_TYPE(4),),
        (attrs.PROCID(Proc("other", 0xFFFFFFFE)),),
    ],
)
def test_what_has_to_be_asked_for(qualifiers):
    client = machine()
    op = query(attrs.JOB_SIZE, qualifiers=qualifiers)
    call = client.start(op, None, 0.0)
    tag, fields = request(client, Command.QUERY)
    assert fields["queries"] == op.queries
    answer(client, tag, Command.QUERY, status=0, infos=(attrs.JOB_SIZE(9),))
    assert call.outcome == ((attrs.JOB_SIZE(9),), None)


def test_own_answers_and_those_of_the_server_come_in_the_order_of_the_questions():
    client = machine()
    qualified = Query(("pmix.job.size", "acme.b"), (attrs.NSPACE("other"),))
    op = ops.QueryInfo((Query(("acme.a", "pmix.job.size", "acme.gone")), qualified))
    call = client.start(op, None, 0.0)
    tag, fields = request(client, Command.QUERY)
    assert fields["queries"] == (Query(("acme.a", "acme.gone")), qualified)
    told = (Info("acme.b", text("b")), attrs.JOB_SIZE(9), Info("acme.a", text("a")), Info("acme.unasked", text("?")))
    answer(client, tag, Command.QUERY, status=statuses.ERR_PARTIAL_SUCCESS, infos=told)
    assert call.outcome[0] == (
        Info("acme.a", text("a")),
        attrs.JOB_SIZE(3),
        attrs.JOB_SIZE(9),
        Info("acme.b", text("b")),
    )


@pytest.mark.parametrize("status", [0, statuses.ERR_PARTIAL_SUCCESS, statuses.ERR_NOT_SUPPORTED, statuses.ERROR])
def test_an_answer_counts_whatever_the_status(status):
    """`prterun` reports what it lacks with the answers that it has, and `mpirun` a failure with all of them."""
    client = machine()
    call = client.start(query("acme.what", "acme.gone"), None, 0.0)
    tag, _ = request(client, Command.QUERY)
    answer(client, tag, Command.QUERY, status=status, infos=(WHAT,))
    assert call.outcome == ((WHAT,), None)


def test_own_answers_count_where_the_server_fails():
    client = machine()
    call = client.start(query("acme.what", attrs.JOB_SIZE), None, 0.0)
    tag, _ = request(client, Command.QUERY)
    reply(client, tag, encode_status(1, statuses.ERR_NOT_SUPPORTED))
    assert call.outcome == ((attrs.JOB_SIZE(3),), None)


def test_tables_come_in_one_form():
    """`mpirun` wraps each row in an info without a key, and some servers all answers in one array."""
    rows = tuple(ProcInfo(Proc("job", rank), "n0", "x", 1, 6) for rank in range(2))
    wrapped = DataArray(codes.INFO, tuple(Info("", Value(codes.PROC_INFO, row)) for row in rows))
    table = Info("pmix.qry.ptable", Value(codes.DATA_ARRAY, wrapped))
    nested = Info("pmix.qry.res", Value(codes.DATA_ARRAY, DataArray(codes.INFO, (attrs.NSPACE("job"), table))))
    for told in (table, nested):
        client = machine()
        call = client.start(query(attrs.QUERY_PROC_TABLE), None, 0.0)
        tag, _ = request(client, Command.QUERY)
        answer(client, tag, Command.QUERY, status=0, infos=(told,))
        ((key, value, _),) = call.outcome[0]
        assert (key, value.data) == ("pmix.qry.ptable", DataArray(codes.PROC_INFO, rows))


SUPPORT = "pmix.qry.attrs"


def support(call):
    ((key, value, _),) = call.outcome[0]
    assert key == SUPPORT
    return {info.key: info.value.data for info in value.data.items}


def test_the_client_tells_what_it_supports_itself():
    client = machine()
    call = client.start(query(SUPPORT, qualifiers=(attrs.CLIENT_ATTRIBUTES("PMIx_Fence,PMIx_None"),)), None, 0.0)
    assert not sent(client)
    (fence,) = support(call).values()
    assert {(attr.name, attr.key, attr.type) for attr in fence.items} == {
        ("PMIX_COLLECT_DATA", "pmix.collect", codes.BOOL),
        ("PMIX_TIMEOUT", "pmix.timeout", codes.INT),
    }
    call = client.start(query(SUPPORT, qualifiers=(attrs.CLIENT_FUNCTIONS(""),)), None, 0.0)
    assert "PMIx_Get" in support(call)["pmix.client.fns"].split(",")


def test_each_side_tells_what_it_supports():
    client = machine()
    call = client.start(query(SUPPORT), None, 0.0)
    tag, fields = request(client, Command.QUERY)
    assert [each.qualifiers[0].key for each in fields["queries"]] == [
        "pmix.srvr.attrs",
        "pmix.srvr.fns",
        "pmix.host.attrs",
        "pmix.host.fns",
    ]
    parts = [DataArray(codes.INFO, (Info(name, text("PMIx_Spawn")),)) for name in ("pmix.srvr.fns", "pmix.host.fns")]
    answer(client, tag, Command.QUERY, status=0, infos=[Info(SUPPORT, Value(codes.DATA_ARRAY, part)) for part in parts])
    found = support(call)
    assert found["pmix.srvr.fns"] == found["pmix.host.fns"] == "PMIx_Spawn"
    assert "PMIx_Fence" in found


def test_servers_that_would_crash_are_not_asked_what_they_support():
    client = machine((4, 2, 2))
    assert "PMIx_Fence" in support(client.start(query(SUPPORT), None, 0.0))
    call = client.start(query(SUPPORT, qualifiers=(attrs.HOST_FUNCTIONS(""),)), None, 0.0)
    assert type(call.outcome[1]) is NotSupported
    assert not sent(client)


# Peers and nodes, with servers that do not resolve them.


@pytest.mark.parametrize("release", [(4, 2, 2), (5, 0, 6)])
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ops.ResolvePeers(), (Proc("job", 0), ME)),
        (ops.ResolvePeers(None, "job"), (Proc("job", 0), ME)),
        (ops.ResolvePeers("n1", "job"), (OTHER,)),
        (ops.ResolvePeers("gone", "job"), ()),
        (ops.ResolveNodes(), ("n0", "n1")),
        (ops.ResolveNodes("job"), ("n0", "n1")),
    ],
)
def test_older_servers_are_not_asked(release, op, expected):
    client = machine(release)
    assert client.start(op, None, 0.0).outcome == (expected, None)
    assert not sent(client)


@pytest.mark.parametrize(
    ("op", "expected"),
    [(ops.ResolvePeers("n7", "other"), (Proc("other", 0), Proc("other", 5))), (ops.ResolveNodes("other"), ("n7",))],
)
def test_the_job_info_of_another_job_is_fetched(op, expected):
    client = machine((4, 2, 2))
    call = client.start(op, None, 0.0)
    ((tag, payload),) = sent(client)
    nspace, rank, infos, key = decode_get(payload, 1, (4, 2, 2))
    assert (nspace, rank, key) == ("other", 0xFFFFFFFE, "pmix.lpeers")
    assert [info.key for info in infos] == ["pmix.immediate"]
    node = DataArray(codes.INFO, (attrs.HOSTNAME("n7"), attrs.LOCAL_PEERS("5,0")))
    array = encode_kval(1, "pmix.node.arr", Value(codes.DATA_ARRAY, node), (4, 2, 2))
    reply(client, tag, get_reply(Proc("other", 0xFFFFFFFE), array))
    assert call.outcome == (expected, None)
    assert client.start(op, None, 0.0).outcome == (expected, None)


@pytest.mark.parametrize("op", [ops.ResolvePeers(None, "gone"), ops.ResolveNodes("gone")])
def test_an_unknown_nspace(op):
    old, new, alone = machine((4, 2, 2)), machine(), machine(alone=True)
    call = old.start(op, None, 0.0)
    ((tag, _),) = sent(old)
    reply(old, tag, encode_status(1, statuses.ERR_NOT_FOUND))
    calls = [call, alone.start(op, None, 0.0), new.start(op, None, 0.0)]
    ((tag, _),) = sent(new)
    reply(new, tag, encode_status(1, NO_NSPACE))
    for each in calls:
        error = each.outcome[1]
        assert isinstance(error, NotFound)
        assert "gone" in str(error)


# What natives send.


def operations(command, fields):
    """Return the operation that a native client carried out when it sent a recorded request."""
    return {
        Command.QUERY: lambda: ops.QueryInfo(fields["queries"]),
        Command.LOG: lambda: ops.Log(fields["data"], fields["directives"], fields["timestamp"]),
        Command.ALLOC: lambda: ops.AllocationRequest(fields["directive"], fields["infos"]),
        Command.JOB_CONTROL: lambda: ops.JobControl(fields["procs"], fields["infos"]),
        Command.MONITOR: lambda: ops.ProcessMonitor(fields["monitor"], fields["error"], fields["infos"]),
        Command.GET_CREDENTIAL: lambda: ops.GetCredential(fields["infos"]),
        Command.VALIDATE_CRED: lambda: ops.ValidateCredential(fields["credential"], fields["infos"]),
    }[command]()


def test_requests_are_the_bytes_that_natives_send():
    checked = {}
    for message in messages():
        if message.layout.command is None or message.command not in range(15, 22):
            continue
        client = machine(message.release)
        fields = message.layout.decode(message.data, 1, message.release)
        expected = message.data
        if message.command == Command.MONITOR and fields["monitor"].value.type == codes.POINTER:
            # A C program may name a heartbeat by a null pointer, for which there is a flag here.
            fields["monitor"] = attrs.MONITOR_HEARTBEAT(True)
            expected = message.layout.encode(1, message.release, **fields)
        client.start(operations(message.command, fields), None, 0.0)
        ((_, payload),) = sent(client)
        assert payload == expected, message.layout.name
        checked.setdefault(message.command, set()).add(message.release)
    assert checked.keys() == set(range(15, 22))
    assert all(len(releases) > 1 for releases in checked.values())


def test_job_data_that_a_get_brings_is_what_a_resolution_uses():
    client = machine((4, 2, 2))
    call = client.start(ops.Get(Proc("other", 0xFFFFFFFE), "pmix.job.size"), None, 0.0)
    ((tag, _),) = sent(client)
    size = encode_kval(1, "pmix.job.size", Value(codes.UINT32, 1), (4, 2, 2))
    node = DataArray(codes.INFO, (attrs.HOSTNAME("n0"), attrs.LOCAL_PEERS("0")))
    array = encode_kval(1, "pmix.node.arr", Value(codes.DATA_ARRAY, node), (4, 2, 2))
    objects = (encode_get_object(1, Proc("other", 0xFFFFFFFE), (size, array)),)
    answer(client, tag, Command.GETNB, status=0, objects=objects)
    assert call.outcome[0].data == 1
    found = client.start(ops.ResolvePeers(), None, 0.0).outcome[0]
    assert found == (Proc("job", 0), ME, Proc("other", 0))


def test_peers_of_a_node_that_a_server_names_badly_are_left_out():
    client = machine(release=(5, 0, 0))
    name = attrs.HOSTNAME("n2")
    client.store.add_job(JobInfo("job", (), ((name, attrs.LOCAL_PEERS("1,x,,0")),)))
    assert client.start(ops.ResolvePeers("n2", "job"), None, 0.0).outcome == ((Proc("job", 0), Proc("job", 1)), None)


def test_a_handler_asks_for_what_it_was_given_alone(me, session):
    session.answers[ops.RegisterEventHandler] = 1

    @me.on(EventCode.ERR_PROC_ABORTED)
    def plain(event):
        pass

    assert (session.ops[-1].codes, session.ops[-1].directives) == ((statuses.ERR_PROC_ABORTED,), ())
    plain.remove()

    @me.on(name="n", order="first", affected=OTHER, once=True)
    def first(event):
        pass

    assert [(item.key, item.value.data) for item in session.ops[-1].directives] == [
        (keys.EVENT_HDLR_FIRST, True),
        (keys.EVENT_HDLR_NAME, "n"),
        (keys.EVENT_AFFECTED_PROC, OTHER),
        (keys.EVENT_ONESHOT, True),
    ]
    first.remove()
