"""Proves how a Host answers upcalls: where handlers run, what they may return, and what happens where they do not."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import errno
import gc
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types

import pytest

from pypmix import (
    Client,
    Info,
    NotSupported,
    PMIxError,
    Proc,
    ProcSet,
    Query,
    Server,
    Status,
    attrs,
)
from pypmix.engine.python import reactor
from pypmix.host import LATER, Application, Host, JobLayout, NodeLayout
from pypmix.host.callbacks import dispatcher, workers
from pypmix.host.callbacks.upcalls import METHODS, ROUTES
from pypmix.oldnames import RENAMES
from pypmix.standard import ops, statuses
from pypmix.standard.errors import NotInitialized, WouldDeadlock
from pypmix.standard.types import RANK_WILDCARD, App
from pypmix.types import Cpuset, Pdata, Topology, uint32

pytestmark = pytest.mark.timeout(60)

WAIT = 10
ME = Proc("job", 0)
ALL = Proc("job", RANK_WILDCARD)


class Upcall:
    """An upcall that keeps its answer."""

    def __init__(self, op, requestor=ME, uid=1000, gid=1000):
        self.op, self.requestor, self.uid, self.gid = op, requestor, uid, gid
        self.answers = []
        self.thread = None
        self._answered = threading.Event()

    def reply(self, result=None):
        self._end(result)

    def fail(self, error):
        self._end(error)

    def _end(self, answer):
        self.answers.append(answer)
        self.thread = threading.current_thread()
        self._answered.set()

    def wait(self, timeout=WAIT):
        assert self._answered.wait(timeout), f"{self.op!r} was not answered"
        return self.answers[0]

    @property
    def status(self):
        error = self.wait()
        assert isinstance(error, BaseException), f"answered with {error!r}"
        return getattr(error, "code", None)


class Open:
    """A host that is open on a loop of its own, and what its server would call."""

    def __init__(self, kind=Host, **options):
        self.doors = []

        def wrap(on_upcall):
            self.doors.append(on_upcall)
            return on_upcall

        self.host = kind(wrap=wrap, engine="python", **options)

    def __enter__(self):
        self.host.__enter__()
        return self

    def __exit__(self, *args):
        self.host.__exit__(*args)

    def ask(self, op, **fields):
        upcall = Upcall(op, **fields)
        self.doors[0](upcall)
        return upcall


FENCE = ops.FenceUpcall((ALL,), (attrs.COLLECT_DATA(True), attrs.TIMEOUT(7)), b"mine")
LOOKUP = ops.Lookup(("a", "b"))

SAMPLES = {
    ops.ClientConnected: ops.ClientConnected(ME),
    ops.ClientFinalized: ops.ClientFinalized(ME),
    ops.ClientAborted: ops.ClientAborted(ME, 3, "over"),
    ops.ClientLost: ops.ClientLost(ME),
    ops.FenceUpcall: FENCE,
    ops.DirectModex: ops.DirectModex(ME),
    ops.Publish: ops.Publish((Info("acme.a", uint32(1)),)),
    ops.Lookup: LOOKUP,
    ops.Unpublish: ops.Unpublish(("acme.a",)),
    ops.Spawn: ops.Spawn((App("true"),)),
    ops.Connect: ops.Connect((ALL,)),
    ops.Disconnect: ops.Disconnect((ALL,)),
    ops.RegisterEvents: ops.RegisterEvents((-1,)),
    ops.DeregisterEvents: ops.DeregisterEvents((-1,)),
    ops.NotifyEvent: ops.NotifyEvent(-1),
    ops.ToolConnected: ops.ToolConnected(),
    ops.QueryInfo: ops.QueryInfo((Query(("pmix.a",)),)),
    ops.Log: ops.Log((attrs.LOG_STDERR("text"),)),
    ops.AllocationRequest: ops.AllocationRequest(1),
    ops.JobControl: ops.JobControl(),
    ops.ProcessMonitor: ops.ProcessMonitor(attrs.MONITOR_HEARTBEAT(True), -1),
    ops.Heartbeat: ops.Heartbeat(),
    ops.GetCredential: ops.GetCredential(),
    ops.ValidateCredential: ops.ValidateCredential(b"c"),
    ops.IOFPull: ops.IOFPull((ALL,), 2),
    ops.IOFDeregister: ops.IOFDeregister(1),
    ops.IOFPush: ops.IOFPush((ALL,), b"x"),
    ops.GroupUpcall: ops.GroupUpcall(0, "g", (ALL,)),
    ops.FabricRegister: ops.FabricRegister(),
    ops.FabricUpdate: ops.FabricUpdate(1),
    ops.ComputeDistances: ops.ComputeDistances(Topology(None), Cpuset(None)),
    ops.SessionControl: ops.SessionControl(1),
    ops.ResourceBlock: ops.ResourceBlock(1, "block"),
}

ACCEPTED = {"client_connected", "client_finalized", "client_lost"}


# What goes where


def test_there_is_a_sample_of_each_upcall():
    assert SAMPLES.keys() == ROUTES.keys()


def test_requests_declare_the_fields_that_their_operations_have():
    for op, (_, kind) in ROUTES.items():
        declared = {name for cls in kind.__mro__ for name in getattr(cls, "__annotations__", ())}
        assert declared <= {"op", *op.__fields__}, kind
        for name in op.__fields__:
            assert getattr(kind(Upcall(SAMPLES[op]), "x", None), name) == getattr(SAMPLES[op], name) or name in (
                "procs",
                "targets",
            )


@pytest.mark.parametrize("kind", ROUTES, ids=lambda kind: kind.__name__)
def test_where_no_answers_are_named_clients_come_and_go_and_nothing_is_offered(kind):
    with Open(answers=()) as rm:
        upcall = rm.ask(SAMPLES[kind])
        # On the engine's own thread, without a detour.
        assert upcall.thread is threading.current_thread()
        if ROUTES[kind][0] in ACCEPTED:
            assert upcall.wait() is None
        else:
            assert isinstance(upcall.wait(), NotSupported)
            assert upcall.status == statuses.ERR_NOT_SUPPORTED


NOT_OFFERED = (
    ops.FenceUpcall, ops.DirectModex, ops.ComputeDistances, ops.SessionControl, ops.ResourceBlock,
    ops.AllocationRequest, ops.FabricRegister, ops.FabricUpdate,
)  # fmt: skip
"""What takes other nodes, or what one node does not have."""


@pytest.mark.parametrize("kind", ROUTES, ids=lambda kind: kind.__name__)
def test_by_default_all_is_answered_that_one_node_has(kind):
    with Open() as rm:
        rm.host.job("job", np=2)
        upcall = rm.ask(SAMPLES[kind], uid=os.geteuid())
        answer = upcall.wait()
        if kind in NOT_OFFERED:
            assert isinstance(answer, NotSupported)
        elif isinstance(answer, PMIxError):
            # It was looked into, and does not fit these samples.
            assert kind in REFUSED and upcall.status == REFUSED[kind], answer
        else:
            assert kind not in REFUSED


REFUSED = {
    ops.ClientAborted: statuses.ERR_NOT_SUPPORTED,  # not started by this host
    ops.Lookup: statuses.ERR_NOT_FOUND,
    ops.Unpublish: statuses.ERR_NOT_FOUND,
    ops.QueryInfo: statuses.ERR_NOT_FOUND,
    ops.JobControl: statuses.ERR_NOT_SUPPORTED,  # no step
    ops.ProcessMonitor: Status.ERR_BAD_PARAM,  # no period
    ops.ValidateCredential: Status.ERR_INVALID_CRED,
    ops.IOFPull: statuses.ERR_NOT_SUPPORTED,  # not started by this host
    ops.IOFDeregister: statuses.ERR_NOT_FOUND,
    ops.IOFPush: statuses.ERR_NOT_SUPPORTED,  # no input
}


def test_answers_are_named():
    with Open(answers=["publishing"]) as rm:
        assert rm.ask(SAMPLES[ops.Publish]).wait() is None
        assert [pdata.key for pdata in rm.ask(ops.Lookup(("acme.a",))).wait()] == ["acme.a"]
        assert rm.ask(SAMPLES[ops.QueryInfo]).status == statuses.ERR_NOT_SUPPORTED
    with pytest.raises(ValueError, match="'magic'.*publishing"):
        Host(answers=["magic"])
    with pytest.raises(TypeError, match="'queries'"):
        Host(answers="queries")


def test_a_method_of_its_own_overrides_an_answer_and_may_end_with_it():
    class Mine(Host):
        async def publish(self, req):
            if req.infos[0].key == "acme.secret":
                raise NotSupported("not that one")
            return self.default(req)

        def get_credential(self, req):
            return b"mine"

    with Open(Mine) as rm:
        assert rm.ask(ops.Publish((Info("acme.secret", uint32(1)),))).status == statuses.ERR_NOT_SUPPORTED
        assert rm.ask(SAMPLES[ops.Publish]).wait() is None
        assert [pdata.key for pdata in rm.ask(ops.Lookup(("acme.a",))).wait()] == ["acme.a"]
        assert rm.ask(SAMPLES[ops.GetCredential]).wait().data == b"mine"


def test_other_users_do_nothing_in_the_name_of_this_one(tmp_path):
    stranger = 4242 if os.geteuid() != 4242 else 4243
    monitor = ops.ProcessMonitor(attrs.MONITOR_FILE("/etc/passwd"), -1, (attrs.MONITOR_FILE_CHECK_TIME(5),))
    others = Proc("other", 0)
    with Open() as rm:
        rm.host.job("job", np=2)
        asked = [ops.Spawn((App("touch", ("touch", str(tmp_path / "there"))),)), monitor, ops.IOFPush((others,), b"x")]
        for uid in (stranger, None):
            assert [rm.ask(op, uid=uid).status for op in asked] == [statuses.ERR_NO_PERMISSIONS] * 3
            assert isinstance(rm.ask(ops.Heartbeat(), uid=uid).wait(), type(None))
            # An empty nspace is that of all jobs, and not that of a proc which the server does not name.
            pushed = ops.IOFPush((Proc.unchecked("", RANK_WILDCARD),), b"x")
            assert rm.ask(pushed, uid=uid, requestor=None).status == statuses.ERR_NO_PERMISSIONS
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["async", "sync"])
@pytest.mark.parametrize("kind", ROUTES, ids=lambda kind: kind.__name__)
def test_each_upcall_has_its_method(kind, form):
    name, request = ROUTES[kind]
    seen = []

    async def asynchronous(self, req):
        seen.append((req, threading.current_thread()))
        return req.fail(Status.ERR_NOT_FOUND)

    def synchronous(self, req):
        seen.append((req, threading.current_thread()))
        return req.fail(Status.ERR_NOT_FOUND)

    mine = type("Mine", (Host,), {name: asynchronous if form == "async" else synchronous})
    with Open(mine) as rm:
        upcall = rm.ask(SAMPLES[kind])
        assert upcall.status == statuses.ERR_NOT_FOUND
        ((req, thread),) = seen
        assert type(req) is request
        assert req.name == name
        assert req.op is SAMPLES[kind]
        assert thread is not threading.current_thread()
        assert (thread.name == "pypmix-host") == (form == "async")


def test_an_operation_that_nobody_knows_is_not_supported_and_handle_sees_it():
    class Other(ops.Op):
        pass

    class All(Host):
        def handle(self, req):
            return req.fail(Status.ERR_NOT_FOUND)

    with Open() as rm:
        assert rm.ask(Other()).status == statuses.ERR_NOT_SUPPORTED
    with Open(All) as rm:
        assert rm.ask(Other()).status == statuses.ERR_NOT_FOUND


# What requests tell


def asked(op, look=lambda req: None):
    """Return the request that an upcall becomes, after `look` has seen it while the host is open."""
    found = []

    class Mine(Host):
        async def handle(self, req):
            look(req)
            found.append(req)

    with Open(Mine) as rm:
        rm.host.job("job", np=3)
        rm.ask(op, requestor=Proc("job", 1), uid=7, gid=8).wait()
    return found[0]


def test_a_request_has_the_fields_of_its_operation():
    req = asked(FENCE)
    assert (req.requestor, req.uid, req.gid) == (Proc("job", 1), 7, 8)
    assert (req.procs, req.data, req.collect, req.timeout) == ((ALL,), b"mine", True, 7)
    assert req.info[attrs.TIMEOUT] == 7
    assert attrs.COLLECT_DATA in req.info
    assert req.info.get(attrs.WAIT) is None
    assert "fence of job:* by job:1" in repr(req)
    with pytest.raises(AttributeError):
        req.nonsense  # noqa: B018


def test_of_several_timeouts_the_shortest_counts_and_nonsense_none():
    infos = (attrs.TIMEOUT(9), attrs.TIMEOUT(4), attrs.TIMEOUT(0))
    assert asked(ops.Connect((ALL,), infos)).timeout == 4
    assert asked(ops.Connect((ALL,), (attrs.TIMEOUT(0),))).timeout is None


def test_the_signature_does_not_depend_on_order_and_tells_operations_apart():
    a, b = Proc("job", 0), Proc("job", 2)
    one = asked(ops.Connect((a, b))).signature
    assert one == asked(ops.Connect((b, a, b))).signature
    assert one != asked(ops.Disconnect((a, b))).signature
    assert {one: 1}


def test_an_abort_without_targets_means_the_callers_job():
    req = asked(ops.ClientAborted(ME, 3, "over"))
    assert (req.targets, req.status, req.message) == ((ALL,), 3, "over")
    assert asked(ops.ClientAborted(ME, 3, "over", (ME,))).targets == (ME,)


def test_a_direct_modex_knows_the_key_that_is_waited_for():
    assert asked(ops.DirectModex(ME, (attrs.TIMEOUT(3), attrs.REQUIRED_KEY("acme.key")))).key == "acme.key"
    assert asked(ops.DirectModex(ME)).key == ""


def test_a_group_request_knows_its_members():
    late = Proc("other", 5)
    infos = (
        attrs.GROUP_ADD_MEMBERS([late]),
        attrs.GROUP_ASSIGN_CONTEXT_ID(True),
        attrs.GROUP_INFO([attrs.GROUP_LOCAL_CID(1)]),
    )
    req = asked(ops.GroupUpcall(0, "g", (Proc("job", 1), Proc("job", 0)), infos))
    assert req.procs | req.added == (Proc("job", 1), Proc("job", 0), late)
    assert isinstance(req.procs | req.added, ProcSet)
    assert req.wants_context_id
    assert req.construct and not req.destruct and not req.cancel
    assert [info.key for info in req.shared] == [attrs.GROUP_INFO.key]
    members = []
    asked(ops.GroupUpcall(0, "g", (ALL,)), lambda req: members.extend(req.members))
    assert members == [Proc("job", rank) for rank in range(3)]


def test_procsets_are_sets_in_an_order():
    a, b, c = (Proc("job", rank) for rank in range(3))
    assert ProcSet([b, a, b]) == (b, a)
    assert ProcSet([b, a]) | [c, a] == (b, a, c)
    assert ProcSet([b, a, c]) & {c, b} == (b, c)
    assert ProcSet([b, a, c]) - [a] == (b, c)


# What handlers return


@pytest.mark.parametrize(
    ("name", "op", "given", "sent"),
    [
        ("fence", FENCE, b"all", b"all"),
        ("fence", FENCE, bytearray(b"all"), b"all"),
        ("fence", FENCE, None, b""),
        ("direct_modex", SAMPLES[ops.DirectModex], b"d", b"d"),
        ("lookup", LOOKUP, [Pdata(ME, "a", uint32(1))], (Pdata(ME, "a", uint32(1)),)),
        ("spawn", SAMPLES[ops.Spawn], "other", "other"),
        ("query", SAMPLES[ops.QueryInfo], {"acme.a": 1}, None),
        ("query", SAMPLES[ops.QueryInfo], [attrs.TIMEOUT(1)], (attrs.TIMEOUT(1),)),
        ("job_control", SAMPLES[ops.JobControl], None, ()),
        ("get_credential", SAMPLES[ops.GetCredential], b"c", ops.Credential(b"c")),
        ("tool_connected", SAMPLES[ops.ToolConnected], Proc("tool", 0), Proc("tool", 0)),
        ("iof_pull", SAMPLES[ops.IOFPull], 7, 7),
        ("client_connected", SAMPLES[ops.ClientConnected], None, None),
        ("connect", SAMPLES[ops.Connect], Status.SUCCESS, None),
        ("connect", SAMPLES[ops.Connect], "both", ops.Connected("both")),
        ("connect", SAMPLES[ops.Connect], ops.Connected("both", (ME,)), ops.Connected("both", (ME,))),
        ("compute_distances", SAMPLES[ops.ComputeDistances], [], ()),
        ("group", ops.GroupUpcall(1, "g", (ALL,)), None, ()),
    ],
)
def test_what_a_handler_returns_is_the_answer(name, op, given, sent):
    with Open() as rm:

        @rm.host.on(name)
        async def handler(req):
            return given

        answer = rm.ask(op).wait()
        if sent is None and given is not None and not isinstance(given, Status):
            assert [info.key for info in answer] == list(given)
        else:
            assert answer == sent


@pytest.mark.parametrize(
    ("name", "op", "given"),
    [
        ("fence", FENCE, "text"),
        ("fence", FENCE, 3),
        ("direct_modex", SAMPLES[ops.DirectModex], None),
        ("lookup", LOOKUP, [1]),
        ("spawn", SAMPLES[ops.Spawn], None),
        ("spawn", SAMPLES[ops.Spawn], ""),
        ("spawn", SAMPLES[ops.Spawn], "a\0b"),
        ("spawn", SAMPLES[ops.Spawn], "x" * 256),
        ("connect", SAMPLES[ops.Connect], ""),
        ("connect", SAMPLES[ops.Connect], (ME,)),
        ("query", SAMPLES[ops.QueryInfo], "text"),
        ("get_credential", SAMPLES[ops.GetCredential], "text"),
        ("tool_connected", SAMPLES[ops.ToolConnected], "tool"),
        ("client_connected", SAMPLES[ops.ClientConnected], True),
        ("group", SAMPLES[ops.GroupUpcall], 5),
    ],
)
@pytest.mark.parametrize("form", ["async", "sync"])
def test_what_is_no_answer_is_an_error_for_both_sides(name, op, given, form, caplog):
    with Open() as rm:
        if form == "async":

            @rm.host.on(name)
            async def handler(req):
                return given

        else:

            @rm.host.on(name)
            def blocking(req):
                return given

        assert rm.ask(op).status == statuses.ERROR
    assert name in caplog.text
    assert "is answered with" in caplog.text


def test_a_status_is_an_answer_and_nothing_published_is_not_found():
    with Open() as rm:
        rm.host.on("connect")(lambda req: Status.ERR_OUT_OF_RESOURCE)
        rm.host.on("lookup")(lambda req: [])
        assert rm.ask(SAMPLES[ops.Connect]).status == statuses.ERR_OUT_OF_RESOURCE
        assert rm.ask(LOOKUP).status == statuses.ERR_NOT_FOUND


def test_a_group_is_answered_in_parts():
    with Open() as rm:
        rm.host.job("job", np=2)

        @rm.host.on("group")
        async def group(req):
            return req.reply(members=reversed(req.members), context_id=9)

        infos = rm.ask(ops.GroupUpcall(0, "g", (ALL,), (attrs.GROUP_INFO([attrs.GROUP_LOCAL_CID(1)]),))).wait()
        assert [info.key for info in infos] == [
            attrs.GROUP_MEMBERSHIP.key,
            attrs.GROUP_CONTEXT_ID.key,
            attrs.GROUP_INFO.key,
        ]
        assert infos[0].value.data.items == (Proc("job", 1), Proc("job", 0))
        assert infos[1] == attrs.GROUP_CONTEXT_ID(9)

        @rm.host.on("group")
        async def plain(req):
            return None

        infos = rm.ask(ops.GroupUpcall(0, "g", (ALL,))).wait()
        assert infos[0].value.data.items == (Proc("job", 0), Proc("job", 1))


def test_a_destruct_may_be_answered_as_a_construct():
    with Open() as rm:
        rm.host.job("job", np=2)

        @rm.host.on("group")
        async def group(req):
            return req.reply(members=req.procs | req.added)

        infos = (attrs.GROUP_INFO([attrs.GROUP_LOCAL_CID(1)]),)
        assert rm.ask(ops.GroupUpcall(1, "g", (ALL,), infos)).wait() == ()


# What handlers raise


@pytest.mark.parametrize("form", ["async", "sync"])
def test_an_exception_is_error_for_the_peer_and_a_traceback_for_people(form, caplog):
    class Mine(Host):
        if form == "async":

            async def fence(self, req):
                raise ZeroDivisionError("oops")

        else:

            def fence(self, req):
                raise ZeroDivisionError("oops")

    with Open(Mine) as rm:
        upcall = rm.ask(FENCE)
        assert upcall.status == statuses.ERROR
        # What went wrong is told to people, in the log, and not to a peer.
        assert "oops" not in str(upcall.wait()) and "the host failed" in str(upcall.wait())
    assert "the handler of fence of job:*" in caplog.text
    assert "Traceback" in caplog.text


def test_an_error_that_is_meant_is_the_peers_status_and_nobody_elses_business(caplog):
    caplog.set_level(logging.DEBUG, "pypmix.host")

    class Mine(Host):
        async def fence(self, req):
            raise PMIxError("no room", status=statuses.ERR_OUT_OF_RESOURCE)

    with Open(Mine) as rm:
        assert rm.ask(FENCE).status == statuses.ERR_OUT_OF_RESOURCE
    records = [record for record in caplog.records if record.name == "pypmix.host"]
    assert [record.levelname for record in records] == ["DEBUG"]
    assert records[0].exc_info


def test_a_handler_that_ends_its_thread_harms_nobody():
    class Mine(Host):
        def fence(self, req):
            raise SystemExit(3)

    with Open(Mine) as rm:
        assert rm.ask(FENCE).status == statuses.ERROR
        assert rm.ask(FENCE).status == statuses.ERROR


# Later


@pytest.mark.parametrize("form", ["async", "sync"])
def test_a_stop_iteration_is_an_error_as_any_other_also_where_a_host_sees_everything(form, caplog):
    class Mine(Host):
        def handle(self, req):
            return super().handle(req)

        if form == "async":

            async def fence(self, req):
                return next(iter(()))

        else:

            def fence(self, req):
                return next(iter(()))

    with Open(Mine) as rm:
        assert rm.ask(FENCE).status == statuses.ERROR
    assert "the handler of fence of job:*" in caplog.text
    assert "StopIteration" in caplog.text


def test_a_reply_comes_later_from_any_thread():
    held = []

    class Mine(Host):
        async def fence(self, req):
            held.append(req)
            return LATER

    with Open(Mine) as rm:
        upcall = rm.ask(FENCE)
        rm.ask(SAMPLES[ops.ClientConnected]).wait()
        assert not upcall.answers
        deadline = time.monotonic() + WAIT
        while not held:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        thread = threading.Thread(target=held[0].reply, args=(b"late",))
        thread.start()
        thread.join()
        assert upcall.wait() == b"late"
        assert held[0].is_answered


def test_a_reply_twice_is_reported_by_name_and_the_first_counts(caplog):
    class Mine(Host):
        async def fence(self, req):
            req.reply(b"one")
            req.reply(b"two")
            return b"three"

    with Open(Mine) as rm:
        upcall = rm.ask(FENCE)
        assert upcall.wait() == b"one"
        rm.host.run(asyncio.sleep(0))
        assert upcall.answers == [b"one"]
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["fence of job:* by job:0 was answered twice; the first answer counts"] * 2


def test_a_handler_that_has_replied_may_return_nothing(caplog):
    class Mine(Host):
        async def fence(self, req):
            req.reply(b"one")

    with Open(Mine) as rm:
        assert rm.ask(FENCE).wait() == b"one"
        rm.host.run(asyncio.sleep(0))
    assert not caplog.records


def test_a_bad_reply_leaves_the_request_unanswered():
    problems = []

    class Mine(Host):
        async def fence(self, req):
            try:
                req.reply("text")
            except TypeError as error:
                problems.append(error)
            return b"good"

    with Open(Mine) as rm:
        assert rm.ask(FENCE).wait() == b"good"
    assert problems
    with pytest.raises(ValueError):
        asked(FENCE).fail(Status.SUCCESS)


@pytest.mark.parametrize("bad", [None, "no room", KeyError, True], ids=repr)
def test_what_is_no_error_does_not_fail_a_request_and_leaves_it_unanswered(bad):
    problems = []

    class Mine(Host):
        def fence(self, req):
            with pytest.raises(TypeError, match="fence fails with"):
                req.fail(bad)
            problems.append(req.is_answered)
            return b"good"

    with Open(Mine) as rm:
        assert rm.ask(FENCE).wait() == b"good"
    assert problems == [False]


@pytest.mark.parametrize("form", ["later", "async", "sync"])
def test_no_reply_is_reported_by_name_and_times_out(form, caplog):
    cancelled = threading.Event()
    release = threading.Event()

    class Mine(Host):
        if form == "later":

            def connect(self, req):
                return LATER

        elif form == "async":

            async def connect(self, req):
                try:
                    await asyncio.sleep(WAIT)
                except asyncio.CancelledError:
                    cancelled.set()
                    raise

        else:

            def connect(self, req):
                release.wait(WAIT)

    with Open(Mine, reply_timeout=0.1) as rm:
        first, second = rm.ask(SAMPLES[ops.Connect]), rm.ask(SAMPLES[ops.Connect])
        assert first.status == statuses.ERR_TIMEOUT
        assert second.status == statuses.ERR_TIMEOUT
        if form == "async":
            assert cancelled.wait(WAIT)
        release.set()
        # It goes on with the next one.
        third = rm.ask(SAMPLES[ops.Connect])
        assert third.wait() is None if form == "sync" else third.status == statuses.ERR_TIMEOUT
    assert "connect of job:*" in caplog.text
    assert "was not answered within 0.1 s" in caplog.text


def test_whoever_gives_more_time_gets_it():
    class Mine(Host):
        async def connect(self, req):
            await asyncio.sleep(0.4)

    with Open(Mine, reply_timeout=0.1) as rm:
        assert rm.ask(ops.Connect((ALL,), (attrs.TIMEOUT(5),))).wait() is None
    with Open(Mine, reply_timeout=None) as rm:
        assert rm.ask(SAMPLES[ops.Connect]).wait() is None


def test_a_request_is_not_given_up_later_because_another_has_more_time(caplog):
    class Mine(Host):
        async def connect(self, req):
            return LATER

    with Open(Mine, reply_timeout=0.2) as rm:
        patient = rm.ask(ops.Connect((ALL,), (attrs.TIMEOUT(WAIT),)))
        rm.host.run(asyncio.sleep(0.05))
        assert rm.ask(SAMPLES[ops.Connect]).status == statuses.ERR_TIMEOUT
        assert not patient.answers
        short = rm.ask(ops.Connect((ME,), (attrs.TIMEOUT(1),)))
        assert short.status == statuses.ERR_TIMEOUT
        assert not patient.answers
    assert f"connect of {ME} was not answered within 1 s" in caplog.text


# Threads


def test_handlers_that_all_wait_for_each_other_get_threads(monkeypatch):
    monkeypatch.setattr(workers, "USUAL", 2)
    monkeypatch.setattr(workers, "STALL", 0.05)
    count = 12
    meeting = threading.Barrier(count)

    class Mine(Host):
        def connect(self, req):
            meeting.wait(WAIT)

    with Open(Mine) as rm:
        upcalls = [rm.ask(SAMPLES[ops.Connect]) for _ in range(count)]
        assert [upcall.wait() for upcall in upcalls] == [None] * count


def test_handlers_that_end_share_few_threads(monkeypatch):
    monkeypatch.setattr(workers, "USUAL", 2)
    names = set()

    class Mine(Host):
        def connect(self, req):
            names.add(threading.current_thread().name)

    with Open(Mine) as rm:
        for _ in range(5):
            upcalls = [rm.ask(SAMPLES[ops.Connect]) for _ in range(20)]
            assert [upcall.wait() for upcall in upcalls] == [None] * 20
    assert len(names) <= 2


def test_a_client_has_so_many_requests_in_flight_and_no_more(monkeypatch):
    monkeypatch.setattr(dispatcher, "MAX_UNANSWERED", 3)
    held = []

    class Mine(Host):
        async def connect(self, req):
            held.append(req)
            return LATER

        async def client_lost(self, req):
            return None

    with Open(Mine) as rm:
        upcalls = [rm.ask(SAMPLES[ops.Connect]) for _ in range(3)]
        assert rm.ask(SAMPLES[ops.Connect]).status == statuses.ERR_RESOURCE_BUSY
        other = rm.ask(SAMPLES[ops.Connect], requestor=Proc("job", 1))
        assert rm.ask(SAMPLES[ops.ClientLost]).wait() is None
        rm.host.run(asyncio.sleep(0.01))
        assert not other.answers
        for req in held:
            req.reply()
        assert [upcall.wait() for upcall in upcalls] == [None] * 3
        again = rm.ask(SAMPLES[ops.Connect])
        rm.host.run(asyncio.sleep(0.01))
        assert not again.answers


# Other forms


def test_a_host_has_a_method_for_each_upcall_and_few_names_besides():
    with Open() as rm:
        public = {name for name in dir(rm.host) if not name.startswith("_")}
    assert set(METHODS) <= public
    assert len(public - set(METHODS)) <= 25


def test_the_decorators_of_before_register_functions_with_a_warning():
    assert {f"pypmix.host.Host.on_{name}" for name in METHODS} == {old for old in RENAMES if ".on_" in old}
    with Open() as rm:
        with pytest.warns(DeprecationWarning, match=r'on_fence is now pypmix\.host\.Host\.on\("fence"\)') as caught:

            @rm.host.on_fence
            def fence(req):
                with pytest.warns(DeprecationWarning, match=r"given is now pypmix\.host\.Request\.info\.infos"):
                    assert req.given == req.info.infos
                return b"function"

        assert caught[0].filename == __file__
        assert rm.ask(FENCE).wait() == b"function"
        with pytest.raises(AttributeError, match="'Host' object has no attribute 'on_fance'"):
            rm.host.on_fance  # noqa: B018


def test_functions_are_registered_by_a_decorator():
    with Open() as rm:

        @rm.host.on("fence")
        def fence(req):
            return b"function"

        assert rm.ask(FENCE).wait() == b"function"
        assert fence.__name__ == "fence"
        with pytest.raises(ValueError, match="not an upcall"):
            rm.host.on("fences")
        with pytest.raises(TypeError):
            rm.host.on("fence")(3)


@pytest.mark.parametrize("form", ["async", "sync"])
def test_handle_sees_everything_and_passes_on(form):
    seen = []

    class Mine(Host):
        if form == "async":

            async def handle(self, req):
                match req.op:
                    case ops.FenceUpcall(procs=procs):
                        seen.append(procs)
                        return b"handle"
                return await super().handle(req)

        else:

            def handle(self, req):
                match req.op:
                    case ops.FenceUpcall(procs=procs):
                        seen.append(procs)
                        return b"handle"
                return super().handle(req)

        async def connect(self, req):
            seen.append("connect")

        def disconnect(self, req):
            seen.append(threading.current_thread().name != "pypmix-host")

    with Open(Mine) as rm:
        assert rm.ask(FENCE).wait() == b"handle"
        assert rm.ask(SAMPLES[ops.Connect]).wait() is None
        assert rm.ask(SAMPLES[ops.Disconnect]).wait() is None
        assert rm.ask(SAMPLES[ops.ClientConnected]).wait() is None
        assert rm.ask(LOOKUP).status == statuses.ERR_NOT_FOUND
    assert seen == [(ALL,), "connect", True]


def test_a_method_may_end_with_the_default():
    class Mine(Host):
        async def client_connected(self, req):
            return self.default(req)

        async def fence(self, req):
            return super().fence(req)

    with Open(Mine) as rm:
        assert rm.ask(SAMPLES[ops.ClientConnected]).wait() is None
        assert rm.ask(FENCE).status == statuses.ERR_NOT_SUPPORTED


# Opening and closing


def test_handlers_in_flight_are_cancelled_and_peers_answered_when_the_host_closes(caplog):
    cancelled = threading.Event()

    class Mine(Host):
        async def connect(self, req):
            try:
                await asyncio.sleep(WAIT)
            finally:
                cancelled.set()

        def disconnect(self, req):
            return LATER

    with Open(Mine) as rm:
        upcalls = [rm.ask(SAMPLES[ops.Connect]), rm.ask(SAMPLES[ops.Disconnect])]
        rm.host.run(asyncio.sleep(0.05))
    assert [upcall.status for upcall in upcalls] == [statuses.ERR_LOST_CONNECTION] * 2
    assert cancelled.is_set()
    late = Upcall(SAMPLES[ops.Connect])
    rm.doors[0](late)
    assert late.status == statuses.ERR_LOST_CONNECTION
    assert not caplog.records


def test_what_a_handler_waits_for_in_the_loop_is_cancelled_when_the_host_closes(caplog):
    waits, cancelled = threading.Event(), threading.Event()

    class Mine(Host):
        def connect(self, req):
            waits.set()
            try:
                self.run(asyncio.sleep(100))
            except concurrent.futures.CancelledError:
                cancelled.set()

    with Open(Mine) as rm:
        rm.ask(SAMPLES[ops.Connect])
        assert waits.wait(WAIT)
        rm.host.run(asyncio.sleep(0.05))
    assert cancelled.wait(WAIT)
    gc.collect()
    assert not caplog.records


def test_a_handler_that_does_not_end_when_the_host_closes_is_named(caplog, monkeypatch):
    monkeypatch.setattr(dispatcher, "PATIENCE", 0.1)
    asked = threading.Event()

    class Mine(Host):
        async def connect(self, req):
            asked.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(100)
            await asyncio.sleep(0.3)

    with Open(Mine) as rm:
        rm.ask(SAMPLES[ops.Connect])
        assert asked.wait(WAIT)
    assert f"the handler of connect of job:* by {ME} does not end although it was cancelled" in caplog.text


def test_in_asyncio_handlers_run_in_the_callers_loop():
    seen = []

    class Mine(Host):
        async def fence(self, req):
            await asyncio.sleep(0)
            seen.append(asyncio.get_running_loop())
            return b"x"

    async def main():
        rm = Open(Mine)
        async with rm.host:
            upcall = rm.ask(FENCE)
            while not upcall.answers:
                await asyncio.sleep(0.001)
            with pytest.raises(WouldDeadlock):
                rm.host.run(asyncio.sleep(0))
            with pytest.raises(RuntimeError, match="open already"):
                async with rm.host:
                    pass
        return upcall.wait(), asyncio.get_running_loop()

    answer, loop = asyncio.run(main())
    assert answer == b"x"
    assert seen == [loop]


def test_a_host_can_be_opened_again_and_is_nothing_while_it_is_closed():
    rm = Open()
    with pytest.raises(NotInitialized):
        rm.host.loop  # noqa: B018
    for _ in range(2):
        with rm:
            rm.host.job("again", np=1)
            assert rm.host.server.engine.name == "python"
    with pytest.raises(NotInitialized):
        rm.host.run(asyncio.sleep(0))


def test_bad_arguments_are_errors_at_the_call():
    for bad in ({"reply_timeout": 0}, {"reply_timeout": -1}, {"grace": 0}):
        with pytest.raises(ValueError):
            Host(**bad)
    for bad in ({"reply_timeout": "1"}, {"grace": None}, {"wrap": 5}, {"exchange": "n0"}, {"node": 5}, {"tmpdir": 5}):
        with pytest.raises(TypeError):
            Host(**bad)
    with Open() as rm:
        for bad in (0, None, b"job", ["job"], "", "a\0b", "x" * 256):
            with pytest.raises((TypeError, ValueError)):
                rm.host.job(bad, np=1)
        for bad in (
            {"np": 10**9},
            {"np": 2**31, "nodes": {"n0": [0]}},
            {"np": 1, "argv": 5},
            {"np": 1, "parent": "job"},
            {"apps": "true"},
            {"nodes": 5},
            {"nodes": "n0"},
            {"nodes": {"n0": 5}},
            {"nodes": {"n0": "01"}},
            {"nodes": {5: [0]}},
        ):
            with pytest.raises((TypeError, ValueError, OverflowError)):
                rm.host.job("job", **bad)
        for bad in (5, None, ["job"]):
            with pytest.raises(TypeError):
                rm.host.forget(bad)
        for bad in (-1, 10**9, "TERM", 1.5):
            with pytest.raises(ValueError, match="is not a signal"):
                rm.host.run(rm.host.kill(ME, bad))
        with pytest.raises(TypeError):
            rm.host.run(rm.host.kill(["job"]))
        for bad in ("3", True, 1.5):
            with pytest.raises(TypeError, match="a status"):
                rm.host.run(rm.host.kill(ME, status=bad))
        with pytest.raises(OverflowError, match="a status"):
            rm.host.run(rm.host.kill(ME, status=2**31))
        with pytest.raises(TypeError):
            rm.host.run(rm.host.launch(["true"]))
        for bad in ({"data": 5}, {"data": "x"}, {"nodes": "n0"}, {"timeout": "1"}):
            with pytest.raises(TypeError):
                rm.host.run(rm.host.exchange("s", **bad))
        for bad in ({}, {"np": 0}, {"np": 2, "nodes": {"n0": [0]}}, {"np": 1, "apps": ()}, {"nodes": ["n0"]}):
            with pytest.raises((TypeError, ValueError)):
                rm.host.job("job", **bad)
        job = rm.host.job("job", nodes={"n0": [0], "n1": [1]})
        with pytest.raises(TypeError):
            rm.host.start("job")
        with pytest.raises(TypeError):
            rm.host.start(job, "true")
        with pytest.raises(ValueError, match="to run"):
            rm.host.start(job)
        with pytest.raises(ValueError, match="begins with the program"):
            rm.host.start(job, [])
        with pytest.raises(ValueError):
            rm.host.start(job, ["true"], ranks=[2])
        with pytest.raises(ValueError):
            rm.host.start(job, ["true"], env={"": "x"})
        with pytest.raises(PMIxError):
            rm.host.job("job", np=1)


def test_what_cannot_be_a_handler_is_refused_when_it_is_given():
    async def nothing():
        """Takes no request."""

    async def two(req, more):
        """Takes too much."""

    def parts(req):
        yield req

    async def stream(req):
        yield req

    for bad, text in ((5, "must be callable"), (nothing, "one request"), (two, "one request")):
        with pytest.raises(TypeError, match=text):
            Host().on("fence")(bad)
    for bad in (parts, stream):
        with pytest.raises(TypeError, match="must not be a generator"):
            Host().on("fence")(bad)

    class Mine(Host):
        def fence(self):
            """Takes no request."""

    with pytest.raises(TypeError, match="fence is called with one request"):
        Mine()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_handler_that_would_end_the_process_does_not_end_the_loop_of_the_others(error, caplog):
    class Mine(Host):
        async def connect(self, req):
            raise error

        async def disconnect(self, req):
            return None

    with Open(Mine) as rm:
        assert rm.ask(SAMPLES[ops.Connect]).status == statuses.ERROR
        assert rm.ask(SAMPLES[ops.Disconnect]).wait() is None
    gc.collect()
    assert "the handler of connect" in caplog.text
    assert "never retrieved" not in caplog.text


def test_a_handler_may_close_the_host_on_a_thread_and_is_told_where_it_cannot():
    class Mine(Host):
        def connect(self, req):
            self.__exit__(None, None, None)

        async def disconnect(self, req):
            self.__exit__(None, None, None)

    with Open(Mine) as rm:
        assert isinstance(rm.ask(SAMPLES[ops.Disconnect]).wait(), WouldDeadlock)
        assert rm.ask(SAMPLES[ops.Connect]).status == statuses.ERR_LOST_CONNECTION
    with pytest.raises(NotInitialized):
        rm.host.loop  # noqa: B018


def test_an_error_whose_status_no_peer_can_be_told_is_answered_all_the_same(caplog):
    class Mine(Host):
        async def connect(self, req):
            raise PMIxError("what is this", status=10**12)

    with Open(Mine) as rm:
        assert rm.ask(SAMPLES[ops.Connect]).status == statuses.ERROR
    assert "32 bits" in caplog.text


def test_a_host_that_cannot_open_leaves_no_folder(tmp_path, monkeypatch):
    def broken(*_args):
        raise OSError(24, "Too many open files")

    for name in ("callbacks.jobs.Watching", "machine.Guard"):
        with monkeypatch.context() as patch:
            patch.setattr(f"pypmix.host.{name}", broken)
            with pytest.raises(OSError, match="Too many"), Host(tmpdir=str(tmp_path)):
                pass
        assert not list(tmp_path.iterdir())
    with Host(tmpdir=str(tmp_path)):
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_alone_an_exchange_returns_what_it_was_given():
    with Open() as rm:
        assert rm.host.run(rm.host.exchange("anything", b"mine")) == [b"mine"]
        assert rm.host.next_context_id() != rm.host.next_context_id()


SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("SEEN", default="nothing")


@pytest.mark.parametrize("where", ["engine", "loop", "task"])
def test_a_handler_is_a_task_of_its_own_from_its_first_step(where):
    tasks = []

    class Manager(Host):
        async def fence(self, req):
            task = asyncio.current_task()
            assert task is not None and task not in tasks
            tasks.append(task)
            assert SEEN.get() == "nothing"
            SEEN.set("something")
            async with asyncio.timeout(WAIT):
                await asyncio.sleep(0)
            assert asyncio.current_task() is task and SEEN.get() == "something"
            return b"waited"

        async def direct_modex(self, req):
            assert asyncio.current_task() is not None
            return b"at once"

    with Open(Manager) as opened:
        for op, expected in [(FENCE, b"waited"), (ops.DirectModex(ME), b"at once"), (FENCE, b"waited")]:
            upcall = Upcall(op)
            if where == "engine":
                opened.doors[0](upcall)
            elif where == "loop":
                opened.host.loop.call_soon_threadsafe(opened.doors[0], upcall)
            else:

                async def within(upcall=upcall):
                    own = asyncio.current_task()
                    opened.doors[0](upcall)
                    assert asyncio.current_task() is own

                opened.host.run(within())
            assert upcall.wait() == expected
        assert opened.host.loop.call_soon.__self__ is opened.host.loop


def test_the_end_of_a_job_that_was_forgotten_ends_no_other_of_its_name(monkeypatch):
    monkeypatch.setattr("pypmix.host.manager.LINGER", 0.05)

    async def run(host):
        async with host.start(host.job("demo", np=1), ["true"]) as procs:
            await procs.wait(WAIT)
            host.forget("demo")
            job = host.job("demo", np=2)
        await asyncio.sleep(0.3)
        assert host.jobs == {"demo": job}
        # The server knows it too.
        host.server.register_client(Proc("demo", 1))

    with Open() as rm:
        rm.host.run(run(rm.host))


@pytest.mark.timing
def test_a_rank_that_is_named_twice_is_started_once_and_signals_are_checked_at_the_call(caplog):
    with Host() as rm:
        job = rm.job("twice", np=1)
        started = time.monotonic()
        with rm.start(job, ["sleep", "100"], ranks=[0, 0]) as procs:
            for bad in ("TERM", 999):
                with pytest.raises(ValueError, match="is not a signal"):
                    procs.signal(bad)
            procs.signal(signal.SIGKILL)
            assert procs.wait(WAIT) == {0: -signal.SIGKILL}
        assert time.monotonic() - started < 4
    assert not caplog.records


def test_a_rank_that_has_ended_can_be_started_again_while_others_run():
    async def run(host):
        job = host.job("demo", np=2)
        async with host.start(job, ["sleep", "600"], ranks=[0]), host.start(job, ["true"], ranks=[1]) as first:
            assert await first.wait(WAIT) == {1: 0}
            with pytest.raises(ValueError, match="rank 0 of job demo .* runs already"):
                async with host.start(job, ["true"]):
                    pass
            async with host.start(job, ["false"], ranks=[1]) as second:
                assert await second.wait(WAIT) == {1: 1}
            assert first.codes == {1: 0}
        assert "demo" in host.jobs

    with Open(grace=0.5) as rm:
        rm.host.run(run(rm.host))


def count_descriptors(collect=False):
    """Return how many descriptors this process has; first collect what tests before this one have left, if asked to."""
    if collect:
        gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_bell_calls_as_often_as_it_is_rung_and_an_exception_costs_the_others_nothing():
    """Also of a function that ends the loop, as a handler that exits does."""
    calls = []
    loop = asyncio.new_event_loop()

    def called():
        calls.append(threading.get_ident())
        if len(calls) == 3:
            raise SystemExit(3)
        if len(calls) == 10:
            loop.stop()

    files = count_descriptors(collect=True)
    loop.call_later(30, loop.stop)
    bell = dispatcher.Bell(loop, types.SimpleNamespace(next=called))
    ringers = [threading.Thread(target=bell.ring) for _ in range(10)]
    for ringer in ringers:
        ringer.start()
    for ringer in ringers:
        ringer.join()
    with pytest.raises(SystemExit):
        loop.run_forever()
    assert len(calls) == 3
    loop.run_forever()
    assert calls == [threading.get_ident()] * 10
    bell.close()
    bell.close()
    assert count_descriptors() == files
    with pytest.raises(RuntimeError):
        bell.ring()
    bell = dispatcher.Bell(loop, types.SimpleNamespace(next=called))
    loop.close()
    with pytest.raises(RuntimeError):
        bell.ring()
    bell.close()


def test_a_host_that_cannot_be_opened_leaves_no_descriptor(tmp_path):
    async def attempts():
        for _ in range(3):
            with pytest.raises(PMIxError):
                async with Host(rendezvous_file=str(tmp_path / "none" / "file")):
                    pass
        files = count_descriptors(collect=True)
        with pytest.raises(PMIxError):
            async with Host(rendezvous_file=str(tmp_path / "none" / "file")):
                pass
        assert count_descriptors() == files

    asyncio.run(attempts())


def test_a_server_that_gets_no_thread_leaves_no_descriptor_and_no_socket(tmp_path, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    tmp_path.chmod(0o700)
    with Server(tmpdir=tmp_path):
        pass
    files = count_descriptors(collect=True)
    monkeypatch.setattr(reactor.Reactor, "start", refuse)
    with pytest.raises(RuntimeError), Server(engine="python", tmpdir=tmp_path):
        pass
    assert count_descriptors() == files
    assert not list(tmp_path.iterdir())


def test_a_host_whose_loop_gets_no_descriptor_for_its_server_serves_all_the_same(monkeypatch, caplog):
    def refuse(fd):
        raise OSError(errno.EMFILE, "Too many open files")

    class Mine(Host):
        async def fence(self, req):
            return b"x"

    monkeypatch.setattr(os, "dup", refuse)
    with Open(Mine) as rm:
        rm.host.run(asyncio.sleep(0.05))
        assert rm.ask(FENCE).wait() == b"x"
    assert not caplog.records


def test_a_handler_that_gets_no_thread_is_an_error_for_its_peer_and_is_not_called_later(monkeypatch, caplog):
    called = []

    class Mine(Host):
        async def handle(self, req):
            return await super().handle(req)

        def fence(self, req):
            called.append(req)
            return b"x"

        def publish(self, req):
            return None

    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("pypmix-host-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with Open(Mine) as rm:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for _ in range(workers.USUAL + 1):
            assert rm.ask(FENCE).status == statuses.ERROR
        monkeypatch.undo()
        assert rm.ask(SAMPLES[ops.Publish]).wait() is None
    assert not called
    assert "can't start new thread" in caplog.text


# The loop serves the connections of the Python engine


ASKS = """
import os, pypmix
with pypmix.Client(engine="python") as me:
    me.fence([me.proc], timeout=20)
    for number in range(int(os.environ.get("ASKS", 1))):
        me.publish({f"acme.{me.rank}.{number}": number})
    me.fence([me.proc], timeout=20)
"""


def client(rm, rank, source=ASKS, **env):
    """Start a client of the job `job`, of which two ranks are registered here."""
    server = rm.server
    if not rank:
        server.register_nspace(JobLayout("job", (Application(("true",), 2),), (NodeLayout("here", (0, 1)),)))
    server.register_client(Proc("job", rank))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PMIX_")}
    given = {**inherited, **server.client_env(Proc("job", rank)), **env}
    return subprocess.Popen([sys.executable, "-c", source], env=given)


class Threads(Host):
    """Notes on which threads it is asked, and on which its handlers run."""

    def __init__(self, **options):
        self.asked, self.ran = [], []
        super().__init__(engine="python", node="here", wrap=self.note, **options)

    def note(self, on_upcall):
        def noted(upcall):
            self.asked.append(threading.current_thread())
            on_upcall(upcall)

        return noted

    async def publish(self, req):
        self.ran.append(threading.current_thread())


def test_an_upcall_of_a_host_in_asyncio_changes_no_thread():
    async def main():
        async with Threads() as rm:
            await asyncio.sleep(0)
            first = client(rm, 0, ASKS="20")
            assert await asyncio.to_thread(first.wait, WAIT) == 0
            assert len(rm.ran) == 20
            assert set(rm.ran) == {threading.main_thread()}
            # A loaded machine may have kept the loop from coming for a while.
            assert rm.asked.count(threading.main_thread()) > 10, rm.asked

    asyncio.run(main())


def test_clients_are_served_while_the_loop_is_held_up():
    async def main():
        async with Threads() as rm:
            await asyncio.sleep(0)
            # Without an upcall that needs the loop it comes to its end.
            only = client(rm, 0, ASKS="0")
            assert only.wait(WAIT) == 0
            assert threading.main_thread() not in rm.asked
            # With one, it is answered when the loop is free again.
            second = client(rm, 1)
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(1)
            assert not rm.ran
            assert await asyncio.to_thread(second.wait, WAIT) == 0
            assert rm.ran == [threading.main_thread()]

    asyncio.run(main())


def test_a_client_in_the_loops_own_thread_is_served():
    async def main():
        async with Threads() as rm:
            await asyncio.sleep(0)
            rm.server.register_nspace(JobLayout("job", (Application(("true",), 1),), (NodeLayout("here", (0,)),)))
            rm.server.register_client(Proc("job", 0))
            with Client(env=rm.server.client_env(Proc("job", 0)), engine="python") as me:
                me.put("key", 5)
                me.fence(timeout=WAIT)
                assert me.get("key", me.proc) == 5

    asyncio.run(main())


def test_where_ctrl_c_raises_anywhere_the_server_keeps_its_thread():
    async def main():
        async with Threads() as rm:
            await asyncio.sleep(0)
            assert rm.server.session.fileno() < 0
            assert await asyncio.to_thread(client(rm, 0).wait, WAIT) == 0
            assert threading.main_thread() not in rm.asked
            assert rm.ran == [threading.main_thread()]

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_handler_that_raises_what_ends_a_loop_is_answered_and_others_are_served(error, caplog):
    class Mine(Threads):
        async def publish(self, req):
            if req.requestor.rank == 0:
                raise error
            await asyncio.sleep(0.01)

    source = ASKS.replace("import os, pypmix", "import os, pypmix, sys") + "    sys.exit(3)"
    failing = source.replace("me.publish", "try: me.publish", 1).replace(
        "number})", "number})\n        except pypmix.PMIxError: pass", 1
    )
    with Mine() as rm:
        clients = [client(rm, rank, failing, ASKS="5") for rank in range(2)]
        assert [each.wait(4 * WAIT) for each in clients] == [3, 3]
    assert "the handler of publish" in caplog.text


def test_a_handler_never_runs_inside_of_the_engine():
    inside = []

    class Mine(Threads):
        def note(self, on_upcall):
            def noted(upcall):
                inside.append(upcall)
                on_upcall(upcall)
                inside.pop()

            return noted

        async def publish(self, req):
            assert not inside
            # What it asks of the server is done before this returns.
            assert any(each.operation == "publish" for each in self.server.pending())
            await super().publish(req)
            if len(self.ran) % 2:
                await asyncio.sleep(0)

    with Mine() as rm:
        clients = [client(rm, rank, ASKS="20") for rank in range(2)]
        assert [each.wait(4 * WAIT) for each in clients] == [0, 0]
    assert len(rm.ran) == 40


def test_a_handler_that_is_cancelled_or_given_up_answers_its_client():
    class Mine(Threads):
        async def publish(self, req):
            await asyncio.sleep(100)

    source = ASKS.replace("me.publish(", "try: me.publish(", 1).replace(
        "number})",
        "number})\n        except pypmix.PMIxError as error: print(int(error.code), file=open(os.environ['OUT'], 'w'))",
        1,
    )
    with tempfile.TemporaryDirectory() as folder, Mine(reply_timeout=0.2) as rm:
        out = os.path.join(folder, "out")
        assert client(rm, 0, source, OUT=out).wait(WAIT) == 0
        with open(out) as file:
            assert int(file.read()) == statuses.ERR_TIMEOUT


def test_a_child_that_is_forked_from_the_loop_leaves_the_server_alone():
    async def main():
        async with Threads() as rm:
            await asyncio.sleep(0)
            child = os.fork()
            if not child:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert await asyncio.to_thread(client(rm, 0).wait, WAIT) == 0
            assert rm.ran == [threading.main_thread()]

    asyncio.run(main())


def test_a_handler_on_a_thread_comes_after_the_coroutine_for_an_earlier_request_of_its_client(monkeypatch):
    """Where the loop comes to that late, too: clients of libpmix 4.2 finalize before the first is answered."""
    seen = []

    def start(loop, coroutine):
        task = loop.create_task(coroutine)
        # The workers' moment.
        time.sleep(0.1)
        return task

    monkeypatch.setattr(dispatcher, "_start", start)

    class Mine(Host):
        async def client_connected(self, req):
            seen.append(("connected", req.proc.rank))

        def client_finalized(self, req):
            seen.append(("finalized", req.proc.rank))

    with Open(Mine) as rm:
        rm.host.loop.call_soon_threadsafe(time.sleep, 0.2)
        other = Proc("job", 1)
        asked = [rm.ask(ops.ClientConnected(ME)), rm.ask(ops.ClientFinalized(ME))]
        # Clients have turns.
        asked += [rm.ask(ops.ClientConnected(other), requestor=other) for _ in range(2)]
        for upcall in asked:
            upcall.wait()
    assert seen.index(("connected", 0)) < seen.index(("finalized", 0)), seen
