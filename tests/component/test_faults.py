"""A fault of pypmix, in any callback, timer or thread, ends what it belongs to and is logged; the rest goes on."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from lib import machine
from lib.client_wire import ME, PEER, Wire
from lib.fake_server import get_reply, serving
from lib.native_programs import environment as native_environment
from lib.native_programs import launch, python
from lib.reactor_loop import Loop as Served
from pypmix.engine.alarms import Alarms
from pypmix.engine.collective.machine import Collectives
from pypmix.engine.faults import struck
from pypmix.engine.groups.agent import Agent
from pypmix.engine.python import client as client_module
from pypmix.engine.python import modex, transport
from pypmix.engine.python.client import ClientTimer, Operation
from pypmix.engine.python.reactor import Link
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.python.session import open_client
from pypmix.handlers import _Worker
from pypmix.host import Host
from pypmix.host.callbacks.workers import Workers
from pypmix.host.exchange import TCPCarrier
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.host.loop import READ, Loop
from pypmix.host.manager import Manager
from pypmix.recipes.leadership import Leadership
from pypmix.standard import ops
from pypmix.standard.errors import LostConnection, PMIxError, RemoteProtocolError
from pypmix.standard.ops import Commit, Fence, Get, GroupConstruct, Put
from pypmix.standard.types import Proc, Query
from pypmix.standard.values import uint32
from pypmix.wire.codec import encode_kval
from pypmix.wire.frames import TAG_NOTIFY, frame
from pypmix.wire.messages import Command, encode_status

pytestmark = pytest.mark.timeout(60)

WAIT = 10


class Fault(Exception):
    """What stands for a mistake in pypmix."""


def broken(*_arguments, **_named):
    raise Fault("injected")


@pytest.fixture
def logged(caplog):
    """Tells how often a fault was logged with its traceback, and forgets it."""
    caplog.set_level(logging.ERROR, "pypmix.faults")

    def count():
        found = [each for each in caplog.records if each.name == "pypmix.faults" and each.exc_info]
        assert all(each.exc_info[0] in (Fault, KeyError) for each in found)
        caplog.clear()
        return len(found)

    return count


# The machine of a Python client


def committed(wire):
    """Prove that the client goes on: a commit under way ends."""
    call = wire.start(Commit())
    ((tag, _),) = wire.sent().items()
    wire.reply(tag, encode_status(1, 0))
    assert call.outcome == (None, None)


def is_ours(error, op):
    assert type(error) is PMIxError and "because of a fault in pypmix" in error.detail
    assert error.operation == op.name and error.engine.startswith("python") and error.procs and error.hint


def test_a_fault_over_an_answer_ends_that_operation_and_blames_nobody(monkeypatch, logged):
    wire = Wire()
    fence = wire.start(Fence())
    ((fenced, _),) = wire.sent().items()
    get = wire.start(Get(PEER, "a"))
    ((got, _),) = wire.sent().items()
    follower = wire.start(Get(PEER, "b"))
    assert not wire.sent()
    row = client_module.OPERATIONS[Get]
    monkeypatch.setitem(client_module.OPERATIONS, Get, Operation(row.start, row.read, lambda *_: {}["no such key"]))
    # In one piece with an answer that is in order.
    wire.feed(frame(0, got, encode_status(1, 0)) + frame(0, fenced, encode_status(1, 0)))
    for call in (get, follower):
        is_ours(call.outcome[1], call.op)
        assert isinstance(call.outcome[1].__cause__, KeyError)
    assert fence.outcome == (None, None) and wire.machine.closed is None and logged() == 1
    monkeypatch.undo()
    again = wire.start(Get(PEER, "a"))
    ((tag, _),) = wire.sent().items()
    wire.reply(tag, get_reply(PEER, encode_kval(1, "a", uint32(1))))
    assert again.outcome == (uint32(1), None)


def test_an_answer_that_makes_no_sense_is_the_servers_fault(monkeypatch, logged):
    wire = Wire()
    fence = wire.start(Fence())
    ((tag, _),) = wire.sent().items()
    row = client_module.OPERATIONS[Fence]
    monkeypatch.setitem(client_module.OPERATIONS, Fence, Operation(row.start, lambda *_: int("one"), row.act))
    wire.reply(tag, encode_status(1, 0))
    assert type(fence.outcome[1]) is RemoteProtocolError and "makes no sense" in fence.outcome[1].detail
    assert wire.machine.closed is not None and logged() == 0


@pytest.mark.parametrize("of", ["read", "act"])
def test_a_fault_of_ours_over_an_answer_is_not_the_servers(monkeypatch, logged, of):
    wire = Wire()
    fence = wire.start(Fence())
    ((tag, _),) = wire.sent().items()
    row = client_module.OPERATIONS[Fence]
    faulty = Operation(row.start, row.read, row.act)
    setattr(faulty, of, lambda *_: {}["no such key"])
    monkeypatch.setitem(client_module.OPERATIONS, Fence, faulty)
    wire.reply(tag, encode_status(1, 0))
    is_ours(fence.outcome[1], fence.op)
    assert wire.machine.closed is None and logged() == 1


def test_a_fault_of_what_follows_an_answer_leaves_the_rest_alone(logged):
    wire = Wire()
    wire.machine.begin_inside(Fence(), broken)
    ((tag, _),) = wire.sent().items()
    wire.reply(tag, encode_status(1, 0))
    assert logged() == 1
    committed(wire)


def test_a_fault_over_what_came_unasked_leaves_the_rest_alone(logged):
    wire = Wire()
    wire.machine.listeners[TAG_NOTIFY] = broken
    wire.feed(frame(0, TAG_NOTIFY, b"1") + frame(0, TAG_NOTIFY, b"2"))
    assert logged() == 2
    committed(wire)


def test_a_fault_in_a_timer_and_at_the_end_leaves_the_rest_alone(logged):
    wire = Wire()
    ended = []
    ClientTimer(wire.machine.timers, wire.now + 1, broken)
    ClientTimer(wire.machine.timers, wire.now + 1, lambda: ended.append("timer"))
    wire.machine.tick(wire.now + 2)
    assert ended == ["timer"] and logged() == 1
    committed(wire)
    wire.machine.at_loss += [broken, lambda: ended.append("loss")]
    pending = wire.start(Fence())
    wire.machine.handle_disconnect("gone")
    assert isinstance(pending.outcome[1], LostConnection) and ended == ["timer", "loss"] and logged() == 1


@pytest.mark.parametrize("step", ["start", "an answer", "a timer", "an event"])
def test_a_fault_of_the_groups_ends_an_operation_on_groups(monkeypatch, logged, step):
    wire = Wire()
    held = []

    def start(agent, op, done):
        port = agent.port
        if step == "start":
            broken()
        elif step == "an answer":
            port.submit(Fence(), broken)
        elif step == "a timer":
            port.later(1, broken)
        else:
            port.handlers.watch(-7, broken)
            held.append(port)

    monkeypatch.setattr(Agent, "start", start)
    op = GroupConstruct("g", (ME, PEER))
    call = wire.start(op)
    requests = wire.sent()
    if step == "an answer":
        ((tag, _),) = requests.items()
        wire.reply(tag, encode_status(1, 0))
    elif step == "a timer":
        wire.machine.tick(wire.now + 2)
    elif step == "an event":
        held[0].handlers.start_chain(ops.Notification(-7, PEER, 0, ()), False)
    is_ours(call.outcome[1], op)
    assert logged() == 1
    committed(wire)


def test_the_exception_of_a_signal_handler_is_no_fault_and_reaches_its_caller(logged):
    def handler(_number, _frame):
        raise ValueError("the user's own")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        wire = Wire()
        wire.machine.listeners[TAG_NOTIFY] = lambda _payload: signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(ValueError, match="the user's own") as caught:
            wire.feed(frame(0, TAG_NOTIFY, b"1"))
        assert struck(caught.value) and struck(KeyboardInterrupt()) and not struck(ValueError()) and not logged()
    finally:
        signal.signal(signal.SIGUSR1, before)


# What drives the machine of a Python client


@pytest.fixture
def session():
    with serving() as fake:
        fake.answer = lambda command, payload: None if command == Command.FENCENB else encode_status(1, 0)
        made = open_client(fake.env)
        yield made
        made.close()


def outcome_of(session, op):
    """Submit an operation; return what waits for its outcome."""
    outcomes = []
    ended = threading.Event()

    def done(*outcome):
        outcomes.append(outcome)
        ended.set()

    session.submit(op, done)

    def wait():
        assert ended.wait(WAIT), "nobody was told"
        assert len(outcomes) == 1
        return outcomes[0]

    return wait


def is_given_up(session, error):
    assert isinstance(error, LostConnection) and "fault in pypmix" in error.detail
    with pytest.raises(LostConnection, match="fault in pypmix"):
        session.run(Commit())


def test_a_fault_of_the_helper_thread_fails_who_waits_for_it(monkeypatch, session, logged):
    monkeypatch.setattr(transport.Connection, "helped", broken)
    fence, commit = outcome_of(session, Fence()), outcome_of(session, Commit())
    is_given_up(session, fence()[1])
    for error in (fence()[1], commit()[1]):
        assert isinstance(error, LostConnection) and "the thread that looks after the client" in error.detail
    assert logged() == 1


def test_a_fault_in_poll_fails_all_and_is_not_met_again(monkeypatch, session, logged):
    session.attach()
    fence = outcome_of(session, Fence())
    monkeypatch.setattr(session._machine, "tick", broken)
    session.poll()
    session.poll()
    is_given_up(session, fence()[1])
    assert logged() == 1


def test_a_fault_as_a_call_is_given_up_is_not_swallowed_a_hundred_times(monkeypatch, session, logged):
    times = []

    def settle(*_arguments):
        times.append(1)
        raise Fault("injected")

    # There is a shorter way for a call with nothing else to look after.
    monkeypatch.setattr(client_module.Client, "quiet", lambda _machine, _listens: False)
    monkeypatch.setattr(transport.Connection, "_leave", settle)
    with pytest.raises(Fault):
        session.run(Commit())
    assert len(times) == 2 and logged() == 1
    with pytest.raises(LostConnection, match="fault in pypmix"):
        session.run(Commit())


# The server of the Python engine


@pytest.mark.parametrize("where", ["opened", "received", "lost", "flush", "log"])
def test_a_fault_over_one_connection_costs_no_other(monkeypatch, logged, where):
    loop = Served(echo=True)
    try:
        good, _ = loop.connect()
        if where == "opened":
            loop.opened, before = broken, loop.opened
            loop.reactor._opened = lambda link: loop.opened(link)
            bad = socket.create_connection(loop.address, timeout=WAIT)
        else:
            bad, owner = loop.connect()
            if where == "flush":
                flush = Link.flush
                monkeypatch.setattr(Link, "flush", lambda link: broken() if link is owner.link else flush(link))
            elif where == "lost":
                owner.received = owner.handle_disconnect = broken
            else:
                owner.received = broken
            if where == "log":
                loop.reactor._write_log = broken
            bad.sendall(b"x")
        with bad:
            assert bad.recv(1) == b"", "the connection stands"
        if where == "opened":
            loop.opened = before
        for client in (good, loop.connect()[0]):
            with client:
                client.sendall(b"hello")
                assert client.recv(5) == b"hello"
        texts = "".join(loop.log)
        if where == "log":
            assert logged() == 1
        else:
            assert texts.count("because of a fault here") == (2 if where == "lost" else 1)
            assert "Traceback" in texts and "Fault: injected" in texts
    finally:
        loop.reactor.stop()


def test_a_fault_over_a_request_is_answered_and_the_connection_stays(monkeypatch):
    log = []
    answers = {}

    def host(upcall):
        kind = type(upcall.op).__name__
        if kind in answers:
            upcall.reply(answers[kind])
        else:
            upcall.reply()

    served = ServerSession(host, on_log=log.append)
    try:
        job = JobLayout("job", (Application(("prog",), 1),), (NodeLayout("here", (0,)),), session=7, wdir="/tmp").info()
        served.register_nspace(job)
        proc = Proc("job", 0)
        served.register_client(proc, os.getuid(), os.getgid())
        me = open_client({**served.client_env(proc)})
        me.run(Fence())
        me.run(Fence())
        # The second one has been a repetition: the short way is taken for the next, too.
        monkeypatch.setattr(Collectives, "join", broken)
        with pytest.raises(PMIxError) as caught:
            me.run(Fence())
        assert caught.value.code == -1
        monkeypatch.undo()
        me.run(Fence())
        monkeypatch.setattr(modex, "decode_commit", broken)
        me.run(Put("a", uint32(1), 3))
        with pytest.raises(PMIxError):
            me.run(Commit())
        # What a host answers may make no sense.
        answers["QueryInfo"] = SimpleNamespace()
        with pytest.raises(PMIxError):
            me.run(ops.QueryInfo((Query(("acme.key",)),)))
        monkeypatch.undo()
        me.run(Commit())
        me.run(ops.Finalize())
        assert all("Traceback" in text for text in log if "fault here" in text)
        assert sum("Fault: injected" in text for text in log) == 2, log
    finally:
        served.close()


def test_the_thread_that_asks_munge_survives_a_fault(monkeypatch, logged):
    from pypmix.engine import munge

    monkeypatch.setattr(munge, "decode", broken)
    served = ServerSession(lambda upcall: upcall.reply(), on_log=lambda text: None)
    told = []
    came = threading.Semaphore(0)
    try:
        for _ in range(2):
            served.authenticate(b"x", lambda *outcome: (told.append(outcome), came.release()))
        assert came.acquire(timeout=WAIT) and came.acquire(timeout=WAIT)
        assert [type(error) for _, error in told] == [PMIxError] * 2 and logged() == 2
    finally:
        served.close()


# Threads and loops beside the engines


def test_alarms_go_on(logged):
    alarms = Alarms()
    came = threading.Event()
    alarms.later(0, broken)
    alarms.later(0.01, came.set)
    assert came.wait(WAIT) and logged() == 1
    alarms.close()


def test_a_host_loop_goes_on_and_does_not_spin(logged):
    loop = Loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        reached = []
        # It stays ready: nobody takes the byte.
        loop.watch(ours.fileno(), READ, broken)
        loop.post(broken)
        loop.later(0, broken)
        loop.later(0.35, lambda: reached.append("timer"))
        loop.run(lambda: bool(reached))
        assert 3 <= logged() <= 8
        loop.unwatch(ours.fileno())
        loop.watch(ours.fileno(), READ, lambda: reached.append(ours.recv(1)))
        loop.run(lambda: len(reached) == 2)
        loop.unwatch(ours.fileno())
    loop.close()


def test_a_carrier_drops_one_connection_for_a_fault_and_all_with_its_thread(monkeypatch, logged):
    from lib.exchange_tcp import SECRET, Server

    one = Server(TCPCarrier("one", SECRET)).start()
    try:
        two = Server(TCPCarrier("two", SECRET, peers={"one": one.carrier.address})).start()
        assert one.next() == ("two", True) and two.next() == ("one", True)
        with monkeypatch.context() as patch:
            patch.setattr(one.carrier._peers, "_hand_on", broken)
            two.send("one", b"hello")
            assert one.next() == ("two", False) and two.next() == ("one", False)
        assert logged() == 1
        three = Server(TCPCarrier("three", SECRET, peers={"one": one.carrier.address})).start()
        assert one.next() == ("three", True) and three.next() == ("one", True)
        with monkeypatch.context() as patch:
            patch.setattr(one.carrier._peers.loop, "_wait", broken)
            three.send("one", b"hello")
            while one.next() != ("three", False):
                pass
            assert three.next() == ("one", False)
        one.carrier.close()
        assert not one.carrier._thread.is_alive() and logged() == 1
        two.carrier.close()
        three.carrier.close()
    finally:
        one.carrier.close()


def test_the_threads_of_handlers_go_on(logged):
    worker = _Worker("handlers")
    worker.enter()
    came = threading.Event()
    worker.put((SimpleNamespace(call=broken), None))
    worker.put((SimpleNamespace(call=lambda _delivery: came.set()), None))
    assert came.wait(WAIT) and logged() == 1
    worker.leave()


def test_the_end_of_a_process_of_a_host_is_told_in_spite_of_a_fault(monkeypatch, logged):
    monkeypatch.setattr(Manager, "rank_ended", broken)
    with Host() as rm:

        async def run():
            async with rm.start(rm.job("demo", 1), ["false"]) as processes:
                return await processes.wait(WAIT)

        assert rm.run(run()) == {0: 1}
    assert logged() == 1


def test_the_threads_of_a_host_go_on(logged):
    workers = Workers(SimpleNamespace(call_later=lambda *_: None))
    came = threading.Event()
    workers.submit(lambda: (came.wait(WAIT), broken()))
    workers.submit(came.set)
    assert came.wait(WAIT)
    workers.close()
    end = time.monotonic() + WAIT
    while workers._threads and time.monotonic() < end:
        time.sleep(0.01)
    assert not workers._threads and logged() == 1


def test_who_follows_a_leader_hears_of_a_fault(logged):
    port = SimpleNamespace(session=SimpleNamespace(proc=ME))
    group = SimpleNamespace(
        name="g",
        membership=SimpleNamespace(port=port, state=lambda: ops.GroupState("g", (ME, PEER), 7, leader=ME)),
        members=(ME, PEER),
        leader=ME,
    )
    leadership = Leadership(group, lambda procs: None, 1.0)
    follower = leadership._follower
    follower._work.put((broken, None))
    thread = threading.Thread(target=follower._run, daemon=True)
    thread.start()
    with pytest.raises(PMIxError, match="fault in pypmix"):
        next(leadership.terms())
    follower._work.put(None)
    thread.join(WAIT)
    assert not thread.is_alive() and logged() == 1


def test_a_job_whose_end_cannot_be_dealt_with_ends_the_launcher(tmp_path):
    """A rank's end that nobody takes in would have `pypmix run` wait for ever."""
    program = tmp_path / "program.py"
    program.write_text(
        "from pypmix.host import judgement, local\n"
        "def broken(*_): raise RuntimeError('injected')\n"
        "judgement.Judgement.judge = judgement.vital(broken)\n"
        "import runpy, sys\n"
        "sys.argv = ['pypmix', 'run', '-n', '1', 'false']\n"
        "runpy.run_module('pypmix', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=40)
    assert done.returncode and "injected" in done.stderr


# The native engine, in processes of its own


NATIVE = """
import logging
class Fault(Exception): pass
def broken(*_arguments):
    raise Fault("injected")
class Faults(logging.Handler):
    records = []
    def emit(self, record):
        self.records.append(record)
logging.getLogger("pypmix.faults").addHandler(Faults())
def logged(kind=Fault):
    found = [each for each in Faults.records if each.exc_info and each.exc_info[0] is kind]
    Faults.records.clear()
    return len(found)
def ended(op, seconds=20):
    came = threading.Event()
    outcomes = []
    me.submit(op, lambda *outcome: (outcomes.append(outcome), came.set()))
    assert came.wait(seconds), f"nobody was told of the end of {op}"
    return outcomes[0]
from pypmix.standard.ops import *
"""


@pytest.fixture(params=[found.name for found in machine.launchers()] or ["none"])
def rank(request, tmp_path):
    """Run code as the one rank of a job under each native launcher."""
    if machine.launcher(request.param) is None or not machine.extension():
        machine.lacking("a native launcher or the native engine's extension")

    def run(code):
        returned, output = launch(request.param, 1, python(NATIVE + code, tmp_path), native_environment())
        assert returned == 0, output

    return run


def test_the_completions_of_libpmix_survive_faults(rank):
    rank("""
assert ended(Fence()) == (None, None)
behind = me.background
# Who is told of an end fails.
me.submit(Fence(), broken)
assert ended(Fence()) == (None, None) and logged() == 1
# What reads an answer fails: that operation ends with an error.
me._outcome, before = broken, me._outcome
result, error = ended(Fence())
assert type(error) is PMIxError and "fault in pypmix" in error.detail and logged() == 1
me._outcome = before
# What looks for more fails, and an answer that nobody has asked for.
behind.listen(broken)
assert ended(Fence()) == (None, None) and logged()
behind._listeners.remove(broken)
behind._pending_, behind._pending = behind._pending, {}
lib_token = behind._last_token + 1
came = threading.Event()
class Pending(dict):
    def pop(self, token):
        return super().pop(None if token == lib_token else token)
behind._pending = Pending()
me.submit(Fence(), lambda *_: None)
assert ended(Fence()) == (None, None) and logged(KeyError) == 1
assert behind._completer.is_alive()
# What runs blocking operations is struck by what no operation raises.
def leaves(op):
    raise SystemExit(3)
behind._run, before = leaves, behind._run
result, error = ended(Commit())
assert type(error) is PMIxError and "the thread that runs commit" in error.detail and logged(SystemExit) == 1
behind._run = before
assert ended(Commit()) == (None, None) and behind._caller.is_alive()
# The whole of it fails.
behind.poll, before = broken, behind.poll
me.submit(Fence(), lambda *_: came.set())
end = time.monotonic() + 20
while not logged() and time.monotonic() < end:
    time.sleep(0.01)
behind.poll = before
assert ended(Fence()) == (None, None) and came.wait(20)
me.run(Finalize())
""")


def test_events_and_groups_of_libpmix_survive_faults(rank):
    rank("""
from pypmix.engine.native import groupport
from pypmix.engine.native._ffi import lib
told = []
came = threading.Event()
number = me.run(RegisterEventHandler(lambda delivery: (delivery.done(), told.append(1), came.set()), (-3001,)))
event = NotifyEvent(-3001, 7, ())
me.run(event)
assert came.wait(20)
inbox = me.inbox
came.clear()
inbox.readers[lib.PYPMIX_EVENT], before = broken, inbox.readers[lib.PYPMIX_EVENT]
me.run(NotifyEvent(-3001, 7, (Info("a", Value(BOOL, True)),)))
end = time.monotonic() + 20
while not logged() and time.monotonic() < end:
    time.sleep(0.01)
inbox.readers[lib.PYPMIX_EVENT] = before
inbox.tell(broken, None)
me.run(NotifyEvent(-3001, 7, (Info("b", Value(BOOL, True)),)))
assert came.wait(20) and logged() == 1
from pypmix.engine.groups.agent import Agent
before = Agent.start
steps = {
    "start": lambda agent, op, done: broken(),
    "answer": lambda agent, op, done: agent.port.submit(Fence(), broken),
    "timer": lambda agent, op, done: agent.port.later(0.05, broken),
}
for name, step in steps.items():
    Agent.start = step
    result, error = ended(GroupConstruct("g", (me.proc,)))
    assert type(error) is PMIxError and "fault in pypmix" in error.detail and error.operation, (name, error)
    assert logged() == 1, name
Agent.start = before
assert ended(Fence()) == (None, None)
me.run(Finalize())
""")


SERVED = """
log = []
def on_log(text):
    log.append(text)
    if "quiet" in flags:
        raise RuntimeError("the log fails")
flags = set()
import pypmix.engine.native.serversession as module
from pypmix.engine.select import open_server
lib = module.lib
class Fault(Exception): pass
def broken(*_arguments):
    raise Fault("injected")
def again(upcall):
    host(upcall)
    if isinstance(upcall.op, ClientConnected):
        upcall.reply()
server = open_server(again, engine="native")
server.log.__self__._log = on_log
def client(code="pass", rank=0):
    proc = Proc("job", rank)
    server.register_client(proc, os.getuid(), os.getgid())
    env = {name: text for name, text in os.environ.items() if not name.startswith("PMIX_")}
    env.update(server.client_env(proc), PYPMIX_ENGINE=sys.argv[1])
    done = subprocess.run([sys.executable, "-c", CLIENT + code], env=env, timeout=40).returncode
    server.deregister_client(proc)
    return done
server.register_nspace(job(3))
"""


def test_the_upcalls_of_libpmix_survive_faults(serve):
    serve(
        SERVED
        + """
assert client("me.run(Finalize())") == 0
assert any("replied twice to" in text for text in log), log
# What tells of a lost client cannot be read: others are served, and the letter is given up.
marshal = server.marshal
class Marshal:
    def __getattr__(self, name): return getattr(marshal, name)
    def results(self, source): return broken() if source.size else ()
server.marshal = Marshal()
flags.add("quiet")
client("os._exit(3)", 1)
server.marshal = marshal
flags.clear()
assert server._thread.is_alive()
# A whole turn fails.
turns = []
turn = server._turn
def once():
    turn()
    if not turns:
        turns.append(1)
        broken()
server._turn = once
assert client("me.run(Finalize())", 2) == 0
assert turns and server._thread.is_alive() and any("Traceback" in text and "injected" in text for text in log)
server.close()
"""
    )
