"""Proves what the Python client tells its server of its handlers, and that it loses no event and brings none twice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.client_wire import ME, PEER
from lib.event_client import DEREG, NOTIFY, REG, Client
from lib.fake_server import NSPACE, RELEASE, FakeServer, serving
from pypmix.engine.python.client import Call
from pypmix.engine.python.clientside.events import DEFAULT, events_of
from pypmix.engine.python.session import Session, open_client
from pypmix.standard import attrs, codes
from pypmix.standard.enums import Range
from pypmix.standard.errors import (
    LocalProtocolError,
    LostConnection,
    NotFound,
    NotInitialized,
    NotSupported,
    PermissionDenied,
    PMIxError,
    WouldDeadlock,
)
from pypmix.standard.ops import (
    DeregisterEventHandler,
    Fence,
    Finalize,
    Notification,
    NotifyEvent,
    RegisterEventHandler,
)
from pypmix.standard.ops.events import Delivery
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc
from pypmix.standard.values import from_python
from pypmix.wire.frames import TAG_NOTIFY, frame
from pypmix.wire.messages import EVENT, Command, encode_status, peek_command, request_layout

SERVER = Proc("server", 0)


def result(call: Call) -> Any:
    assert call.outcome is not None
    value, error = call.outcome
    assert error is None
    return value


@pytest.fixture
def client() -> Client:
    return Client()


# What the server is told


def test_the_server_is_told_of_each_code_once(client: Client) -> None:
    call = client.start(client.op("a", -1, -2, -1))
    assert client.messages() == [(REG, {"codes": (-1, -2), "infos": ()})]
    assert call.outcome is None
    client.answer()
    first = result(call)
    call = client.start(client.op("b", -2, -3))
    assert client.messages() == [(REG, {"codes": (-3,), "infos": ()})]
    client.answer()
    second = result(call)
    third = result(client.start(client.op("c", -1)))
    assert client.messages() == []
    assert len({first, second, third}) == 3
    result(client.start(DeregisterEventHandler(first)))
    assert client.messages() == []
    result(client.start(DeregisterEventHandler(third)))
    assert client.messages() == [(DEREG, {"codes": (-1,)})]
    result(client.start(DeregisterEventHandler(second)))
    assert client.messages() == [(DEREG, {"codes": (-2, -3)})]
    client.on("again", -1)
    assert client.machine.listeners


@pytest.mark.parametrize(
    ("release", "told"), [((4, 2, 2), (DEFAULT,)), ((5, 0, 11), (DEFAULT,)), ((6, 1, 0), (DEFAULT,)), ((7, 0, 0), ())]
)
def test_older_servers_are_told_of_all_codes_in_a_way_that_they_take_in(
    release: tuple[int, int, int], told: tuple[int, ...]
) -> None:
    client = Client(release)
    call = client.start(client.op("a"))
    assert client.messages() == [(REG, {"codes": told, "infos": ()})]
    client.answer()
    client.start(DeregisterEventHandler(result(call)))
    assert client.messages() == [(DEREG, {"codes": (DEFAULT,)})]


def test_directives_for_the_library_are_not_sent(client: Client) -> None:
    ours = (
        attrs.EVENT_HDLR_NAME("a"),
        attrs.EVENT_HDLR_FIRST(True),
        attrs.EVENT_AFFECTED_PROC(PEER),
        attrs.EVENT_ONESHOT(True),
        attrs.RANGE(Range.NAMESPACE),
    )
    hosts = (attrs.TIMEOUT(3), Info("acme.key", from_python("x")))
    client.start(client.op("a", -1, directives=(*ours, *hosts)))
    assert client.messages() == [(REG, {"codes": (-1,), "infos": hosts})]


def test_the_server_need_not_know_who_listens_to_the_own_process(client: Client) -> None:
    id = result(client.start(client.op("a", -1, directives=(attrs.RANGE(Range.PROC_LOCAL),))))
    result(client.start(NotifyEvent(-1, Range.PROC_LOCAL)))
    assert client.labels() == [("a", -1)]
    result(client.start(DeregisterEventHandler(id)))
    assert client.messages() == []


def test_who_comes_while_the_server_is_asked_waits_for_its_answer(client: Client) -> None:
    first = client.start(client.op("a", -1))
    client.messages()
    second = client.start(client.op("b", -1))
    third = client.start(client.op("c", -1, -2))
    assert client.messages() == [(REG, {"codes": (-2,), "infos": ()})]
    assert first.outcome is second.outcome is third.outcome is None
    tags = client.outstanding[:]
    client.reply(tags[1], encode_status(1, 0))
    assert third.outcome is None
    client.reply(tags[0], encode_status(1, 0))
    assert len({result(first), result(second), result(third)}) == 3
    client.event(-1)
    assert sorted(client.labels()) == [("a", -1), ("b", -1), ("c", -1)]


def test_a_refusal_is_one_handlers_own(client: Client) -> None:
    first = client.start(client.op("a", -231, directives=(attrs.EVENT_HDLR_FIRST(True),)))
    second = client.start(client.op("b", -231))
    client.messages()
    client.reply(client.outstanding.pop(), encode_status(1, -47))
    client.fails(first, NotSupported, "does not report")
    assert second.outcome is None
    assert client.messages() == [(REG, {"codes": (-231,), "infos": ()})]
    client.answer()
    result(second)
    client.event(-231)
    assert client.labels() == [("b", -231)]
    client.on("c", -231, directives=(attrs.EVENT_HDLR_FIRST(True),))


def test_a_refused_code_is_not_deregistered(client: Client) -> None:
    call = client.start(client.op("a", -1))
    client.messages()
    client.answer(-23)
    client.fails(call, PermissionDenied)
    assert not client.machine.listeners
    assert client.messages() == []


def test_a_registration_that_nobody_waits_for_any_more_leaves_nothing(client: Client) -> None:
    call = client.start(client.op("a", -1))
    client.messages()
    client.machine.abandon(call)
    client.reply(client.outstanding.pop(), encode_status(1, 0))
    assert client.messages() == [(DEREG, {"codes": (-1,)})]
    client.event(-1)
    assert client.labels() == []


def test_a_registration_that_cannot_be_sent_leaves_nothing() -> None:
    client = Client((6, 1, 0))
    huge = Info("acme.key", from_python(b"x" * (33 << 20)))
    with pytest.raises(LocalProtocolError):
        client.start(client.op("a", -1, directives=(huge, attrs.EVENT_HDLR_FIRST(True))))
    client.on("b", -1, directives=(attrs.EVENT_HDLR_FIRST(True),))


@pytest.mark.parametrize(
    ("op", "error", "text"),
    [
        (DeregisterEventHandler(7), NotFound, "no event handler 7"),
        (RegisterEventHandler(print, (-1,), (attrs.EVENT_HDLR_BEFORE("x"),)), NotFound, "'x'"),
    ],
)
def test_errors_of_registration(client: Client, op: Any, error: type[PMIxError], text: str) -> None:
    client.fails(client.start(op), error, text)
    assert client.messages() == []


# What arrives


def test_an_event_as_a_handler_sees_it(client: Client) -> None:
    client.on("a", -1)
    infos = (attrs.EVENT_TEXT_MESSAGE("hi"), Info("acme.key", from_python(3)))
    client.event(-1, *infos, Info("pmix.srvr.internal.notify", from_python(True)), range=Range.NAMESPACE)
    client.event(-1, range=None)
    assert client.seen == [("a", Notification(-1, PEER, 3, infos)), ("a", Notification(-1, PEER, None, ()))]


@pytest.mark.parametrize(
    ("targets", "heard"),
    [
        (ME, True),
        (Proc(NSPACE, RANK_WILDCARD), True),
        (PEER, False),
        (DataArray(codes.PROC, (PEER, ME)), True),
        (DataArray(codes.PROC, (PEER, Proc("other", 0))), False),
    ],
)
def test_an_event_for_others_is_theirs(client: Client, targets: Any, heard: bool) -> None:
    client.on("a", -1)
    client.event(-1, attrs.EVENT_CUSTOM_RANGE(targets), range=Range.CUSTOM)
    assert bool(client.labels()) == heard
    client.start(NotifyEvent(-1, Range.CUSTOM, (attrs.EVENT_CUSTOM_RANGE(targets),)))
    assert bool(client.labels()) == heard


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\2\5",
        EVENT.encode(1, RELEASE, code=-1, source=PEER, infos=(), range=4)[:-9],
        EVENT.encode(1, RELEASE, code=-1, source=PEER, infos=(Info("pmix.evrange", from_python("x")),), range=6),
    ],
)
def test_an_event_that_makes_no_sense_is_dropped_alone(
    client: Client, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client.on("a", -1)
    with caplog.at_level(logging.WARNING, "pypmix.events"):
        client.feed(frame(0, TAG_NOTIFY, payload))
    assert "no sense" in caplog.text
    client.event(-1)
    assert client.labels() == [("a", -1)]


def test_an_event_that_comes_before_the_registration_is_answered_is_not_lost(client: Client) -> None:
    call = client.start(client.op("a", -1))
    client.messages()
    client.event(-1)
    assert client.seen == []
    order: list[str] = []
    call.done = lambda value, error: order.append("registered")
    handler = events_of(client.machine).handlers._known[1]
    function = handler.function
    handler.function = lambda delivery: (order.append("event"), function(delivery))[1]
    client.reply(client.outstanding.pop(), encode_status(1, 0))
    client.event(-1)
    assert order == ["registered", "event", "event"]


def test_an_event_in_the_same_chunk_as_the_answer_comes_after_it(client: Client) -> None:
    order: list[str] = []

    def handler(delivery: Delivery) -> None:
        order.append("event")
        delivery.done()

    op = RegisterEventHandler(handler, (-1,))
    client.machine.start(op, lambda value, error: order.append("registered"), client.now)
    client.messages()
    event = EVENT.encode(1, RELEASE, code=-1, source=PEER, infos=(), range=4)
    client.feed(frame(0, client.outstanding.pop(), encode_status(1, 0)) + frame(0, TAG_NOTIFY, event))
    assert order == ["registered", "event"]


def test_a_handler_that_is_gone_hears_nothing(client: Client) -> None:
    id = client.on("a", -1)
    client.event(-1)
    client.start(DeregisterEventHandler(id))
    client.event(-1)
    assert client.labels() == [("a", -1)]


def test_one_event_is_enough(client: Client) -> None:
    client.on("a", -1, directives=(attrs.EVENT_ONESHOT(True),))
    client.event(-1)
    assert client.messages() == [(DEREG, {"codes": (-1,)})]
    client.event(-1)
    assert client.labels() == [("a", -1)]
    assert not client.machine.listeners


# What this process raises


def test_the_own_handlers_run_without_an_echo(client: Client) -> None:
    client.on("a", -1)
    infos = (attrs.EVENT_TEXT_MESSAGE("hi"),)
    call = client.start(NotifyEvent(-1, Range.NAMESPACE, infos))
    assert client.messages() == [(NOTIFY, {"code": -1, "range": 3, "infos": infos})]
    client.deliver()
    assert client.seen == [("a", Notification(-1, ME, 3, infos))]
    assert call.outcome is None
    client.answer()
    assert result(call) is None


def test_an_event_for_this_process_is_never_sent(client: Client) -> None:
    result(client.start(NotifyEvent(-1, Range.PROC_LOCAL)))
    assert client.messages() == []
    client.on("late", -1)
    assert client.labels() == [("late", -1)]


def test_what_a_server_keeps_is_not_kept_here_as_well(client: Client) -> None:
    client.start(NotifyEvent(-1, Range.SESSION))
    client.messages()
    client.answer()
    client.on("late", -1)
    assert client.labels() == []
    client.event(-1, source=ME)
    assert client.labels() == [("late", -1)]


def test_what_a_server_brings_again_was_heard_already(client: Client) -> None:
    client.on("late", -4242)
    for _ in range(2):
        client.start(NotifyEvent(-4242, Range.SESSION))
        assert client.labels() == [("late", -4242)]
        for _ in range(2):
            client.event(-4242, source=ME)
            assert client.labels() == []
    client.event(-4242)
    assert client.labels() == [("late", -4242)]


def test_a_server_that_refuses_an_event(client: Client) -> None:
    call = client.start(NotifyEvent(-1))
    client.messages()
    client.answer(-23)
    client.fails(call, PermissionDenied)


# The library itself


def test_no_handler_keeps_an_event_from_the_library(client: Client) -> None:
    watched: list[int] = []

    def watcher(notification: Notification) -> None:
        watched.append(notification.code)

    events = events_of(client.machine)
    events.watch(-166, watcher)
    assert client.messages() == [(REG, {"codes": (-166,), "infos": ()})]
    client.answer()

    def swallow(delivery: Delivery) -> None:
        delivery.done(-334)

    client.start(RegisterEventHandler(swallow, (-166,), (attrs.EVENT_HDLR_FIRST(True),)))
    assert client.messages() == []
    client.event(-166, attrs.EVENT_NON_DEFAULT(True))
    assert watched == [-166]


def test_what_the_library_watches_outlives_the_handlers(client: Client) -> None:
    events = events_of(client.machine)
    watched: list[Notification] = []
    id = client.on("a", -166)
    events.watch(-166, watched.append)
    client.start(DeregisterEventHandler(id))
    assert client.messages() == []
    client.event(-166)
    assert len(watched) == 1


# The end


def lose(client: Client) -> None:
    client.feed(b"")


def breach(client: Client) -> None:
    client.feed(b"\0" * 8 + b"\xff" * 8)


@pytest.mark.parametrize("end", [lose, breach])
def test_the_loss_of_the_server_is_an_event(client: Client, end: Callable[[Client], None]) -> None:
    client.on("a", -61, -1)
    client.on("b")
    client.on("c", -1)
    pending = client.start(client.op("d", -5))
    end(client)
    assert client.labels() == [("a", -61), ("b", -61)]
    assert pending.outcome is not None
    assert isinstance(pending.outcome[1], PMIxError)
    assert sorted(label for label, _ in client.ends) == ["a", "b", "c"]
    assert all(isinstance(error, LostConnection) for _, error in client.ends)


def test_the_event_of_the_loss_names_the_server(client: Client) -> None:
    client.on("a", -61)
    lose(client)
    ((_, event),) = client.seen
    assert event == Notification(-61, SERVER, Range.PROC_LOCAL, (attrs.EVENT_AFFECTED_PROC(SERVER),))


def test_a_chain_goes_on_after_the_loss(client: Client) -> None:
    client.on("b", -61)
    client.on("a", -61, late=True)
    lose(client)
    assert client.labels() == [("a", -61)]
    client.open[0].done()
    assert client.labels() == [("b", -61)]


def test_a_close_is_no_loss(client: Client) -> None:
    client.on("a")
    client.start(DeregisterEventHandler(client.on("gone")))
    client.machine.close()
    assert client.labels() == []
    assert client.ends == [("a", None)]


def test_nor_is_a_finalize(client: Client) -> None:
    client.on("a")
    client.start(Finalize())
    client.event(-1)
    assert client.labels() == [("a", -1)]
    lose(client)
    assert client.labels() == []
    assert client.ends == [("a", None)]


def test_an_answer_after_the_close_does_nothing(client: Client) -> None:
    client.on("b", -1)
    client.on("a", -1, late=True, directives=(attrs.EVENT_ONESHOT(True),))
    client.event(-1)
    client.machine.close()
    client.open[0].done()
    client.deliver()
    assert [label for label, _ in client.ends] == ["b"]


# Against a model

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("on"), st.lists(st.sampled_from([-1, -2, -3]), max_size=3)),
        st.tuples(st.just("off"), st.integers(0, 9)),
        st.tuples(st.just("answer"), st.integers(0, 9), st.sampled_from([0, 0, 0, -23])),
        st.tuples(st.just("event"), st.sampled_from([-1, -2, -3])),
    ),
    max_size=30,
)


@settings(max_examples=600)
@given(_STEPS)
def test_the_servers_knowledge_is_what_handlers_need(steps: list[Any]) -> None:
    """A server that answers in any order knows of each code exactly while somebody needs it, and is told once."""
    client = Client()
    needed: list[tuple[Call, tuple[int, ...]]] = []
    told: dict[int, int] = {}  # code -> tag that told it
    open_tags: dict[int, tuple[int, ...]] = {}

    def look() -> None:
        for tag, payload in client.sent().items():
            command = peek_command(payload, 1)
            fields = request_layout(command, RELEASE).decode(payload, 1, RELEASE)
            for code in fields["codes"]:
                assert (command == REG) == (code not in told), (command, code)
                if command == REG:
                    told[code] = tag
                else:
                    del told[code]
            if command == REG:
                open_tags[tag] = fields["codes"]

    for kind, *details in steps:
        if kind == "on":
            needed.append((client.start(client.op("x", *details[0])), tuple(details[0]) or (DEFAULT,)))
        elif kind == "off":
            done = [entry for entry in needed if entry[0].outcome is not None]
            if done:
                entry = done[details[0] % len(done)]
                needed.remove(entry)
                result(client.start(DeregisterEventHandler(result(entry[0]))))
        elif kind == "answer":
            if open_tags:
                tag = list(open_tags)[details[0] % len(open_tags)]
                if details[1]:
                    for code in open_tags[tag]:
                        if told.get(code) == tag:
                            del told[code]
                del open_tags[tag]
                client.reply(tag, encode_status(1, details[1]))
                needed = [entry for entry in needed if entry[0].outcome is None or entry[0].outcome[1] is None]
        else:
            client.event(details[0], attrs.EVENT_DO_NOT_CACHE(True))
            heard = len(client.labels())
            ready = [wanted for call, wanted in needed if call.outcome is not None]
            assert heard == sum(details[0] in wanted or DEFAULT in wanted for wanted in ready)
        look()
        assert set(told) <= {code for _, wanted in needed for code in wanted}
        assert {code for call, wanted in needed if call.outcome is not None for code in wanted} <= set(told)
        for call, wanted in needed:
            waits = any(code in codes_ for codes_ in open_tags.values() for code in wanted)
            assert waits or call.outcome is not None


# Over a socket


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as made:
        yield made


@pytest.fixture
def session(server: FakeServer) -> Iterator[Session]:
    made = open_client(server.env)
    assert isinstance(made, Session)
    yield made
    made.close()


class Ear:
    """A handler for sessions, that others can wait for."""

    def __init__(self, act: Callable[[Delivery], None] = lambda delivery: delivery.done()) -> None:
        self.seen: list[Notification] = []
        self.threads: list[threading.Thread] = []
        self.changed = threading.Condition()
        self.act = act

    def __call__(self, delivery: Delivery) -> None:
        with self.changed:
            self.seen.append(delivery.notification)
            self.threads.append(threading.current_thread())
            self.changed.notify_all()
        self.act(delivery)

    def wait(self, number: int = 1) -> list[Notification]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.seen) >= number, 10)
            return self.seen[:]


def push(server: FakeServer, code: int, *infos: Info) -> None:
    server.reply(TAG_NOTIFY, EVENT.encode(1, RELEASE, code=code, source=PEER, infos=infos, range=4))


def test_events_arrive_while_nobody_calls(server: FakeServer, session: Session) -> None:
    ear = Ear()
    session.run(RegisterEventHandler(ear, (-1,)))
    for _ in range(3):
        push(server, -1)
    assert len(ear.wait(3)) == 3
    assert threading.main_thread() not in ear.threads


def test_events_arrive_while_somebody_blocks_and_are_in_order(server: FakeServer, session: Session) -> None:
    ear = Ear()
    session.run(RegisterEventHandler(ear))
    held = threading.Event()

    def answer(command: int, payload: bytes) -> bytes | None:
        if command == Command.FENCENB:
            for code in range(1, 400):
                push(server, code)
            held.set()
        return encode_status(1, 0)

    server.answer = answer
    threads = [threading.Thread(target=session.run, args=(Fence(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    seen = [event.code for event in ear.wait(4 * 399)]
    assert seen == list(range(1, 400)) * 4


def test_answers_of_other_threads(server: FakeServer, session: Session) -> None:
    deliveries: list[Delivery] = []
    second = Ear()
    session.run(RegisterEventHandler(second, (-1,)))
    first = Ear(deliveries.append)
    session.run(RegisterEventHandler(first, (-1,)))
    push(server, -1)
    first.wait()
    assert not second.seen
    deliveries[0].done(results=(Info("acme.key", from_python(1)),))
    second.wait()


def test_a_handler_that_calls_the_client(server: FakeServer, session: Session) -> None:
    """It must not block; but that a call inside works where it can keeps mistakes from being deadlocks."""
    outcomes: list[Any] = []

    def act(delivery: Delivery) -> None:
        session.submit(NotifyEvent(-2), lambda value, error: outcomes.append((value, error)))
        delivery.done()

    other = Ear()
    session.run(RegisterEventHandler(other, (-2,)))
    session.run(RegisterEventHandler(Ear(act), (-1,)))
    push(server, -1)
    assert other.wait()[0].source == ME
    session.run(Fence())
    assert outcomes == [(None, None)]


def test_a_deregistration_reaches_the_server_at_once(server: FakeServer, session: Session) -> None:
    id = session.run(RegisterEventHandler(Ear(), (-1,)))
    session.run(DeregisterEventHandler(id))
    session.run(Fence())
    assert [command for command, _ in server.requests] == [Command.REQ, REG, DEREG, Command.FENCENB]


def test_the_server_is_lost(server: FakeServer, session: Session) -> None:
    ear = Ear()
    ends: list[BaseException | None] = []
    over = threading.Event()

    def ended(error: BaseException | None) -> None:
        ends.append(error)
        over.set()

    session.run(RegisterEventHandler(ear, (-61,), ended=ended))
    server.drop()
    assert ear.wait()[0].code == -61
    assert over.wait(10)
    assert isinstance(ends[0], LostConnection)


def test_an_attached_loop_gets_events_in_its_own_thread(server: FakeServer, session: Session) -> None:
    import select

    ear = Ear()
    session.attach()
    session.submit(RegisterEventHandler(ear, (-1,)), lambda value, error: None)
    poll = select.poll()
    poll.register(session.fileno(), select.POLLIN)
    pushed = False
    for _ in range(200):
        if poll.poll(1000):
            session.poll()
        if not pushed and any(command == REG for command, _ in server.requests):
            push(server, -1)
            pushed = True
        if ear.seen:
            break
    assert ear.threads == [threading.current_thread()]


# Without a server


@pytest.fixture
def alone() -> Iterator[Session]:
    made = open_client({})
    assert isinstance(made, Session)
    yield made
    made.close()


@pytest.mark.parametrize("range", [Range.PROC_LOCAL, Range.SESSION, Range.GLOBAL])
def test_a_singleton_hears_itself(alone: Session, range: Range) -> None:
    ear = Ear()
    assert alone.supports("events")
    alone.run(NotifyEvent(-1, range))
    id = alone.run(RegisterEventHandler(ear, (-1,)))
    alone.run(NotifyEvent(-1, range, (attrs.EVENT_TEXT_MESSAGE("hi"),)))
    assert [(event.source, event.range) for event in ear.seen] == [(alone.proc, range)] * 2
    alone.run(DeregisterEventHandler(id))
    alone.run(NotifyEvent(-1, range))
    assert len(ear.seen) == 2
    with pytest.raises(NotFound):
        alone.run(DeregisterEventHandler(id))


def test_a_singletons_handler_may_answer_later_and_notify(alone: Session) -> None:
    deliveries: list[Delivery] = []
    second = Ear()
    alone.run(RegisterEventHandler(second, (-1, -2)))
    alone.run(RegisterEventHandler(Ear(deliveries.append), (-1,)))
    alone.run(NotifyEvent(-1))
    assert not second.seen
    thread = threading.Thread(target=deliveries[0].done)
    thread.start()
    thread.join(10)
    assert len(second.seen) == 1

    def act(delivery: Delivery) -> None:
        alone.run(NotifyEvent(-2))
        delivery.done()

    alone.run(RegisterEventHandler(Ear(act), (-3,)))
    alone.run(NotifyEvent(-3))
    assert [event.code for event in second.seen] == [-1, -2]


def test_a_singleton_ends(alone: Session) -> None:
    ends: list[BaseException | None] = []
    alone.run(RegisterEventHandler(Ear(), ended=ends.append))
    alone.close()
    assert ends == [None]
    with pytest.raises(NotInitialized):
        alone.run(NotifyEvent(-1))


def test_threads_of_a_singleton(alone: Session) -> None:
    ear = Ear()
    alone.run(RegisterEventHandler(ear))
    threads = [threading.Thread(target=lambda: [alone.run(NotifyEvent(-1)) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(ear.seen) == 800


def test_a_signal_handler_inside_a_singleton_is_told(alone: Session) -> None:
    outcomes: list[BaseException] = []

    def strike() -> None:
        try:
            alone.run(NotifyEvent(-1))
        except PMIxError as error:
            outcomes.append(error)

    alone._machine.enter(strike)
    assert [type(error) for error in outcomes] == [WouldDeadlock]
    alone.run(NotifyEvent(-1))
