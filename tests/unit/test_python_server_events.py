"""Proves to whom a server brings an event, on a simulated network and virtual time: to each whom it concerns, once."""

from __future__ import annotations

import os
import threading
from collections import deque
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.server_world import Client, World
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.python.serverside import events
from pypmix.engine.python.session import open_client
from pypmix.engine.times import EVENT_SECONDS
from pypmix.standard import attrs, codes, ops, statuses
from pypmix.standard.enums import Range
from pypmix.standard.errors import NotInitialized, NotSupported, PermissionDenied, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.limits import Limits
from pypmix.standard.ops import Notification
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc
from pypmix.standard.values import from_python
from pypmix.wire.frames import TAG_NOTIFY
from pypmix.wire.messages import EVENT, Command, request_layout

RELEASE = (5, 0, 11)
WILD = -(2**31)
HOST = Proc("host", 0)


class Heard(Client):
    """A client that registers, raises and hears events."""

    def register(self, *wanted: int, infos=()) -> int | None:
        return self.status(self.ask(Command.REGEVENTS, codes=wanted, infos=infos))

    def deregister(self, *gone: int) -> None:
        layout = request_layout(Command.DEREGEVENTS, RELEASE)
        self.send(layout.encode(self.buffer_type, RELEASE, codes=gone), answered=False)

    def notify(self, code: int, *infos: Info, range: int = Range.SESSION) -> int | None:
        return self.status(self.ask(Command.NOTIFY, code=code, range=range, infos=infos))

    def events(self) -> list[dict]:
        self.read()
        found = []
        for tag, payload in self.pushed:
            assert tag == TAG_NOTIFY
            found.append(EVENT.decode(payload, self.buffer_type, RELEASE))
        self.pushed.clear()
        return found

    def heard(self) -> list[int]:
        return [event["code"] for event in self.events()]


def heard(*clients: Heard) -> list[list[int]]:
    return [client.heard() for client in clients]


def procs(*items: Proc) -> Info:
    return attrs.EVENT_CUSTOM_RANGE(DataArray(codes.PROC, items))


@pytest.fixture
def world():
    made = World()
    made.add("other", 2)
    made.upcalls.clear()
    return made


@pytest.fixture
def clients(world):
    made = [Heard(world, rank).connect() for rank in range(3)] + [Heard(world, 0, "other").connect()]
    world.upcalls.clear()
    world.askers.clear()
    return made


# To whom


def test_an_event_goes_to_those_who_registered_it(clients):
    a, b, c, d = clients
    assert b.register(-1, -2) == statuses.SUCCESS
    assert c.register(-2) == statuses.SUCCESS
    assert a.notify(-1, attrs.EVENT_TEXT_MESSAGE("hi"), range=Range.GLOBAL) == statuses.SUCCESS
    (event,) = b.events()
    assert (event["code"], event["source"], event["range"]) == (-1, Proc("job", 0), Range.GLOBAL)
    assert event["infos"] == (attrs.EVENT_TEXT_MESSAGE("hi"),)
    assert heard(a, c, d) == [[], [], []]


@pytest.mark.parametrize("form", [(), (WILD,)], ids=["no codes", "the code of all"])
def test_all_codes(clients, form):
    a, b, _, _ = clients
    b.register(*form)
    a.notify(-1)
    a.notify(-2, attrs.EVENT_NON_DEFAULT(True))
    a.notify(-3, attrs.EVENT_NON_DEFAULT(False))
    assert b.heard() == [-1, -3]
    b.deregister(WILD)
    a.notify(-1)
    assert b.heard() == []


def test_nobody_hears_twice_or_of_himself(clients):
    a, b, _, _ = clients
    for client in a, b:
        client.register(-1)
        client.register()
        client.register(-1, -2)
    a.notify(-1)
    assert heard(a, b) == [[], [-1]]


def test_other_connections_of_the_sender_hear_it(world, clients):
    a = clients[0]
    child = Heard(world, 0).connect()
    for client in a, child:
        client.register(-1)
    a.notify(-1)
    assert heard(a, child) == [[], [-1]]


@pytest.mark.parametrize(
    ("range", "infos", "hearers"),
    [
        (Range.RM, (), []),
        (Range.LOCAL, (), [1, 2, 3]),
        (Range.NAMESPACE, (), [1, 2]),
        (Range.SESSION, (), [1, 2, 3]),
        (Range.GLOBAL, (), [1, 2, 3]),
        (0, (), [1, 2, 3]),
        (Range.PROC_LOCAL, (), []),
        (Range.CUSTOM, (attrs.EVENT_CUSTOM_RANGE(Proc("job", 2)),), [2]),
        (Range.CUSTOM, (attrs.EVENT_CUSTOM_RANGE(Proc("job", 0)),), []),
        (Range.CUSTOM, (attrs.EVENT_CUSTOM_RANGE(Proc("nowhere", 0)),), []),
        (Range.CUSTOM, (attrs.EVENT_CUSTOM_RANGE(Proc("job", RANK_WILDCARD)),), [1, 2]),
        (Range.CUSTOM, (procs(Proc("job", 1), Proc("other", 0)),), [1, 3]),
        (Range.CUSTOM, (procs(Proc("job", 1), Proc("job", 1)),), [1]),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_ranges(clients, range, infos, hearers, late):
    for client in clients:
        if not late:
            client.register(-1)
    assert clients[0].notify(-1, *infos, range=range) == statuses.SUCCESS
    if late:
        for client in clients[1:]:
            client.register(-1)
    assert [number for number, client in enumerate(clients) if client.heard()] == hearers


@pytest.mark.parametrize(
    ("range", "infos"),
    [
        (Range.CUSTOM, ()),
        (Range.CUSTOM, (procs(),)),
        (Range.CUSTOM, (Info("pmix.evrange", from_python("job")),)),
        (Range.SESSION, (attrs.EVENT_CUSTOM_RANGE(Proc("job", 1)),)),
        (Range.SESSION, (Info("pmix.evproc", from_python(1)),)),
        (77, ()),
    ],
)
def test_a_senseless_event_is_refused(world, clients, range, infos):
    a, b, _, _ = clients
    b.register(-1)
    world.upcalls.clear()
    assert a.notify(-1, *infos, range=range) == statuses.ERR_BAD_PARAM
    assert b.heard() == []
    assert not world.upcalls


def test_clients_of_all_kinds_hear(world, clients):
    described = Heard(world, 1, buffer_type=2).connect()
    old = Heard(world, 2, version="4.2.2").connect()
    for client in described, old:
        client.register(-1)
    clients[0].notify(-1, attrs.EVENT_AFFECTED_PROC(Proc("job", 0)))
    for client in described, old:
        (event,) = client.events()
        assert event["infos"] == (attrs.EVENT_AFFECTED_PROC(Proc("job", 0)),)


def test_affected_procs_are_the_clients_own_business(clients):
    """A client says nothing of its second handler for a code, which may want to hear of other procs."""
    a, b, _, _ = clients
    b.register(-1, infos=(attrs.EVENT_AFFECTED_PROC(Proc("job", 2)),))
    a.notify(-1, attrs.EVENT_AFFECTED_PROC(Proc("job", 0)))
    assert b.heard() == [-1]


def test_what_a_relay_sends_back_goes_no_further(world, clients):
    a, b, _, _ = clients
    b.register(-1)
    world.upcalls.clear()
    assert a.notify(-1, Info("pmix.srvr.internal.notify", from_python(True))) == statuses.SUCCESS
    assert b.heard() == []
    assert not world.upcalls


def test_who_has_gone_hears_nothing(world, clients):
    a, b, c, _ = clients
    for client in b, c:
        client.register(-1)
    b.ask(Command.FINALIZE)
    c.die()
    assert a.notify(-1) == statuses.SUCCESS
    assert b.heard() == []


# Those who come late


def test_who_comes_late_hears_after_the_answer_what_was(clients):
    a, b, _, _ = clients
    for code in -1, -2, -3, -1:
        a.notify(code)
    b.register(-1, -3)
    first = next(iter(b.replies))
    assert b.heard() == [-1, -3, -1]
    assert first in b.replies
    b.register(-1)
    b.register()
    assert b.heard() == [-2]


def test_the_answer_comes_before_the_events(clients):
    a, b, _, _ = clients
    a.notify(-1)
    order = []
    b.link.send = lambda data: order.append(len(data))
    b.ask(Command.REGEVENTS, codes=(-1,), infos=())
    assert order == sorted(order)
    assert len(order) == 2


def test_what_was_heard_once_is_not_heard_again(clients):
    a, b, _, _ = clients
    b.register(-1)
    a.notify(-1)
    b.deregister(-1)
    a.notify(-1)
    assert b.heard() == [-1]
    b.register(-1, -2)
    assert b.heard() == [-1]
    b.deregister(-1)
    b.register()
    assert b.heard() == []
    a.notify(-1)
    b.register(-1)
    assert b.heard() == [-1]


def test_a_proc_that_opens_again_does_not_hear_again(world, clients):
    a, b, _, _ = clients
    b.register(-1)
    a.notify(-1)
    b.ask(Command.FINALIZE)
    b.die()
    a.notify(-1)
    again = Heard(world, 1).connect()
    again.register(-1)
    assert again.heard() == [-1]


def test_the_sender_hears_late_what_it_could_not_hear_itself(clients):
    a = clients[0]
    a.notify(-1)
    a.register(-1)
    assert a.heard() == [-1]
    a.notify(-1)
    a.deregister(-1)
    a.register(-1)
    assert a.heard() == []


def test_what_is_not_to_be_kept(clients):
    a, b, _, _ = clients
    a.notify(-1, attrs.EVENT_DO_NOT_CACHE(True))
    a.notify(-1, attrs.EVENT_DO_NOT_CACHE(False))
    b.register(-1)
    assert b.heard() == [-1]


def test_no_more_than_so_many_events_are_kept(clients, monkeypatch):
    monkeypatch.setattr(events, "MAX_EVENTS", 3)
    a, b, _, _ = clients
    for code in range(-5, 0):
        a.notify(code)
    b.register()
    assert b.heard() == [-3, -2, -1]


def test_ends_that_the_host_tells_are_kept_beside_many_other_events(world, clients, monkeypatch):
    monkeypatch.setattr(events, "MAX_EVENTS", 3)
    monkeypatch.setattr(events, "MAX_ENDS", 2)
    a, b, _, _ = clients
    end = statuses.ERR_PROC_ABORTED
    a.notify(end)  # a client's word has no place of its own
    for _ in range(3):
        world.server.events.notify(Notification(end, Proc("other", 0), Range.SESSION))
    for code in range(-5, 0):
        a.notify(code)
    b.register()
    assert b.heard() == [end, end, -3, -2, -1]


def test_no_more_than_so_many_bytes_are_kept(clients):
    a, b, _, _ = clients
    a.world.server.limits = Limits(events=3000)
    for code in range(-5, 0):
        a.notify(code, attrs.EVENT_TEXT_MESSAGE("x" * 1000))
    a.notify(-6, attrs.EVENT_TEXT_MESSAGE("x" * 4000))
    b.register()
    assert b.heard() == [-2, -1]


def test_no_event_is_kept_longer_than_so(world, clients):
    a, b, _, _ = clients
    a.notify(-1)
    world.advance(EVENT_SECONDS / 2)
    a.notify(-2)
    world.advance(EVENT_SECONDS / 2 + 1)
    b.register()
    assert b.heard() == [-2]


def test_what_is_for_an_nspace_goes_with_it(world, clients):
    a, b, _, _ = clients
    world.server.events.notify(Notification(-1, Proc("other", 0), Range.NAMESPACE))
    a.notify(-2, attrs.EVENT_CUSTOM_RANGE(Proc("other", RANK_WILDCARD)), range=Range.CUSTOM)
    a.notify(-3, procs(Proc("other", 0), Proc("job", 1)), range=Range.CUSTOM)
    world.server.events.notify(Notification(-4, Proc("other", 0), Range.SESSION))
    world.server.deregister_nspace("other")
    world.add("other", 1)
    again = Heard(world, 0, "other").connect()
    again.register()
    b.register()
    assert heard(again, b) == [[-3, -4], [-3, -4]]


def test_what_is_remembered_of_procs_is_bounded(clients, monkeypatch):
    monkeypatch.setattr(events, "MUCH", 4)
    a, b, _, _ = clients
    b.world.server.events._much = 4
    a.notify(-1)
    b.register(-1)
    for code in range(100, 300):
        b.register(code)
        b.deregister(code)
    b.deregister(-1)
    assert b.world.server.events._facts < 20
    b.register(-1)
    assert b.heard() == [-1]


def test_codes_are_bounded(clients):
    a, b, _, _ = clients
    a.world.server.limits = Limits(codes=3)
    assert b.register(-1, -2) == statuses.SUCCESS
    assert b.register(-2, -3, -4) == statuses.ERR_OUT_OF_RESOURCE
    assert b.register(-2, -3) == statuses.SUCCESS
    assert b.register() == statuses.ERR_OUT_OF_RESOURCE
    a.notify(-4)
    a.notify(-3)
    assert b.heard() == [-3]


# The host


def test_the_host_is_told_of_the_first_and_the_last_interest(world, clients):
    a, b, c, _ = clients
    a.register(-1, -2, infos=(attrs.TIMEOUT(3),))
    b.register(-2, -3)
    b.register(-1, -2)
    c.register()
    b.register()
    assert list(world.upcalls) == [
        ops.RegisterEvents((-1, -2), (attrs.TIMEOUT(3),)),
        ops.RegisterEvents((-3,)),
        ops.RegisterEvents(()),
    ]
    assert [process.proc.rank for process in world.askers] == [0, 1, 2]
    world.upcalls.clear()
    a.deregister(-1, -2, -3)
    b.deregister(-2)
    b.die()
    c.deregister(WILD)
    told = [op for op in world.upcalls if not isinstance(op, ops.ClientLost)]
    assert told == [ops.DeregisterEvents((-2,)), ops.DeregisterEvents((-3, -1)), ops.DeregisterEvents(())]


def test_a_registration_waits_for_the_host_and_misses_nothing(world, clients):
    b = clients[1]
    world.answer = []
    assert b.register(-1, -2) is None
    world.server.events.notify(Notification(-1, HOST))
    assert b.heard() == []
    b.deregister(-2)
    world.server.events.notify(Notification(-2, HOST))
    world.answer.pop()(None, None)
    b.read()
    assert not b.asked
    assert b.heard() == [-1]
    world.server.events.notify(Notification(-2, HOST))
    assert b.heard() == []


def test_a_registration_that_the_host_refuses(world, clients):
    _, b, c, _ = clients
    world.answer = []
    tag = b.ask(Command.REGEVENTS, codes=(-1,), infos=())
    world.answer.pop()(None, PermissionDenied("no"))
    assert b.status(tag) == statuses.ERR_NO_PERMISSIONS
    tag = c.ask(Command.REGEVENTS, codes=(-1,), infos=())
    world.answer.pop()(None, NotSupported("this host raises none"))
    assert c.status(tag) == statuses.SUCCESS
    world.server.events.notify(Notification(-1, HOST))
    assert heard(b, c) == [[], [-1]]


def test_a_client_that_goes_while_the_host_considers(world, clients):
    world.answer = []
    clients[1].register(-1)
    clients[1].die()
    world.upcalls.clear()
    answer = world.answer[0]
    world.answer = True
    answer(None, None)
    assert world.upcalls == [ops.DeregisterEvents((-1,))]
    assert clients[0].notify(-1) == statuses.SUCCESS
    clients[2].register(-1)
    assert clients[2].heard() == [-1]


def test_the_host_is_asked_once_at_a_time(world, clients):
    _, b, c, _ = clients
    world.answer = []
    tags = {
        client: client.ask(Command.REGEVENTS, codes=wanted, infos=()) for client, wanted in ((b, (-1, -2)), (c, (-1,)))
    }
    assert [client.status(tag) for client, tag in tags.items()] == [None, None]
    assert world.upcalls == [ops.RegisterEvents((-1, -2))]
    world.upcalls.clear()
    b.deregister(-1, -2)
    answer = world.answer.pop()
    world.answer = True
    answer(None, None)
    assert [client.status(tag) for client, tag in tags.items()] == [statuses.SUCCESS, statuses.SUCCESS]
    assert world.upcalls == [ops.DeregisterEvents((-2,))]
    assert clients[0].notify(-1) == statuses.SUCCESS
    assert heard(b, c) == [[], [-1]]


def test_a_refusal_is_of_one_registration_whoever_waits_for_it(world, clients):
    _, b, c, d = clients
    world.answer = []
    tags = {client: client.ask(Command.REGEVENTS, codes=(-1, -2), infos=()) for client in (b, c, d)}
    d.die()
    assert world.upcalls.pop() == ops.ClientLost(d.proc)
    world.answer.pop()(None, None)
    for _ in range(2):
        assert world.upcalls == [ops.RegisterEvents((-1, -2))]
        world.upcalls.clear()
        world.answer.pop()(None, PermissionDenied("no"))
    assert [client.status(tags[client]) for client in (b, c)] == [statuses.ERR_NO_PERMISSIONS] * 2
    assert not world.upcalls


@pytest.mark.parametrize(
    ("range", "infos", "told"),
    [
        (Range.LOCAL, (), False),
        (Range.PROC_LOCAL, (), False),
        (Range.SESSION, (Info("pmix.evlocal", from_python(True)),), False),
        (Range.RM, (), True),
        (Range.NAMESPACE, (), True),
        (Range.SESSION, (), True),
        (Range.GLOBAL, (), True),
        (Range.CUSTOM, (attrs.EVENT_CUSTOM_RANGE(Proc("job", 1)),), True),
    ],
)
def test_what_the_host_is_told_of(world, clients, range, infos, told):
    assert clients[0].notify(-1, *infos, range=range) == statuses.SUCCESS
    assert world.upcalls == ([ops.NotifyEvent(-1, range, infos)] if told else [])
    assert [process.proc for process in world.askers] == ([Proc("job", 0)] if told else [])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, statuses.SUCCESS),
        (NotSupported("no"), statuses.SUCCESS),
        (PMIxError("x", status=statuses.ERR_BAD_PARAM), statuses.ERR_BAD_PARAM),
    ],
)
def test_the_hosts_answer_is_the_senders(world, clients, error, status):
    a, b, _, _ = clients
    b.register(-1)
    world.answer = []
    tag = a.ask(Command.NOTIFY, code=-1, range=Range.SESSION, infos=())
    assert a.status(tag) is None
    assert b.heard() == [-1]
    world.answer.pop()(None, error)
    assert a.status(tag) == status


def test_events_of_the_host(world, clients):
    a, b, _, d = clients
    for client in a, b, d:
        client.register(-1)
    world.upcalls.clear()
    infos = (attrs.EXIT_CODE(3),)
    world.server.events.notify(Notification(-1, HOST, None, infos))
    world.server.events.notify(Notification(-1, Proc("job", RANK_WILDCARD), Range.NAMESPACE))
    world.server.events.notify(Notification(-1, Proc("job", 0), Range.CUSTOM, (procs(Proc("job", 0)),)))
    world.server.events.notify(Notification(-1, HOST, Range.RM))
    assert [(e["source"], e["infos"][:1]) for e in a.events()] == [
        (HOST, infos),
        (Proc("job", RANK_WILDCARD), ()),
        (Proc("job", 0), (procs(Proc("job", 0)),)),
    ]
    assert heard(b, d) == [[-1, -1], [-1]]
    assert not world.upcalls


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Notification("x", HOST), TypeError),
        (Notification(2**31, HOST), OverflowError),
        (Notification(-1, HOST, 9), ValueError),
        (Notification(-1, HOST, Range.CUSTOM), ValueError),
        (Notification(-1, HOST, None, ("x",)), TypeError),
        (Notification(-1, ("host",)), PMIxError),
    ],
)
def test_a_senseless_event_of_the_host(world, clients, event, error):
    clients[0].register(-1)
    with pytest.raises(error):
        world.server.events.notify(event)
    assert clients[0].heard() == []


def test_a_host_without_events_does_not_fail_a_local_one(world, clients):
    a, b, _, _ = clients

    def upcall(op, answer, process=None):
        answer(None, NotSupported("nothing here"))

    world.server.host.upcall = upcall
    assert b.register(-1) == statuses.SUCCESS
    assert a.notify(-1) == statuses.SUCCESS
    assert b.heard() == [-1]
    b.deregister(-1)
    assert a.notify(-1) == statuses.SUCCESS
    assert b.heard() == []


# Against a model

_PROCS = [Proc("job", 0), Proc("job", 1), Proc("other", 0)]
_WHO = st.integers(0, 2)
_SOME_CODES = st.lists(st.sampled_from([-1, -2, -3, WILD]), max_size=3, unique=True)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), _WHO, _SOME_CODES),
        st.tuples(st.just("deregister"), _WHO, _SOME_CODES),
        st.tuples(
            st.just("event"),
            st.integers(-1, 2),
            st.sampled_from([-1, -2, -3, -4]),
            st.sampled_from([Range.SESSION, Range.NAMESPACE, Range.CUSTOM]),
            st.lists(st.sampled_from([*_PROCS, Proc("job", RANK_WILDCARD)]), min_size=1, max_size=2),
            st.booleans(),
            st.booleans(),
        ),
        st.tuples(st.just("reopen"), _WHO),
        st.tuples(st.just("wait"), st.integers(1, 80)),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(_STEPS)
def test_against_a_model(steps):
    """Every proc hears what the naive book-keeping of each event and each proc says, in that order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "MAX_EVENTS", 6)
        patch.setattr(events, "MUCH", 5)
        world = World(size=2)
        world.add("other", 1)
        clients = [Heard(world, proc.rank, proc.nspace).connect() for proc in _PROCS]
        registered = [set() for _ in _PROCS]
        known = [set() for _ in _PROCS]
        recent = deque(maxlen=6)
        numbers = count()

        def wants(who, event):
            _, code, _, nondefault, targets, _ = event
            if not any(
                proc.nspace == _PROCS[who].nspace and proc.rank in (_PROCS[who].rank, RANK_WILDCARD) for proc in targets
            ):
                return False
            return code in registered[who] or (WILD in registered[who] and not nondefault)

        for kind, *details in steps:
            expected = [[] for _ in _PROCS]
            if kind == "register":
                who, wanted = details
                assert clients[who].register(*wanted) == statuses.SUCCESS
                new = (set(wanted) or {WILD}) - registered[who]
                registered[who] |= set(wanted) or {WILD}
                for event in recent:
                    fresh = event[1] in new or (WILD in new and not event[3])
                    there = event[5] >= world.time - EVENT_SECONDS
                    if fresh and there and wants(who, event) and event[0] not in known[who]:
                        expected[who].append(event[0])
                        known[who].add(event[0])
            elif kind == "deregister":
                who, gone = details
                clients[who].deregister(*gone)
                registered[who] -= set(gone)
            elif kind == "event":
                sender, code, range, targets, nondefault, uncached = details
                number = next(numbers)
                source = HOST if sender < 0 else _PROCS[sender]
                infos = [Info("acme.number", from_python(number)), attrs.EVENT_NON_DEFAULT(nondefault)]
                if uncached:
                    infos.append(attrs.EVENT_DO_NOT_CACHE(True))
                scope = [*_PROCS]
                if range == Range.CUSTOM:
                    infos.append(procs(*targets))
                    scope = targets
                elif range == Range.NAMESPACE:
                    scope = [Proc(source.nspace, RANK_WILDCARD)]
                event = number, code, source, nondefault, scope, world.time
                if sender < 0:
                    world.server.events.notify(Notification(code, source, range, tuple(infos)))
                else:
                    assert clients[sender].notify(code, *infos, range=range) == statuses.SUCCESS
                for who in (0, 1, 2):
                    if wants(who, event):
                        known[who].add(number)
                        if who != sender:
                            expected[who].append(number)
                if not uncached:
                    recent.append(event)
            elif kind == "reopen":
                (who,) = details
                clients[who].ask(Command.FINALIZE)
                clients[who].die()
                clients[who] = Heard(world, _PROCS[who].rank, _PROCS[who].nspace).connect()
                registered[who].clear()
            else:
                world.advance(details[0])
            for who, client in enumerate(clients):
                numbers_heard = [
                    info.value.data for event in client.events() for info in event["infos"] if info.key == "acme.number"
                ]
                assert numbers_heard == expected[who]


# Over sockets


class Ear:
    """A handler that notes the codes that it hears, in order, and by whom."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Proc]] = []
        self.changed = threading.Condition()

    def __call__(self, delivery) -> None:
        with self.changed:
            self.seen.append((delivery.notification.code, delivery.notification.source))
            self.changed.notify_all()
        delivery.done()

    def wait(self, number: int) -> list[tuple[int, Proc]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.seen) >= number, 20), self.seen
            return self.seen[:]


@pytest.fixture
def serve():
    """Start a server with some clients of this process; the host's answers are the test's."""
    opened = []

    def start(size, on_upcall=lambda upcall: upcall.reply()):
        server = ServerSession(on_upcall)
        opened.append(server)
        server.register_nspace(JobInfo("job", (attrs.JOB_SIZE(size),)))
        sessions = []
        for rank in range(size):
            server.register_client(Proc("job", rank), os.getuid(), os.getgid())
            sessions.append(open_client(server.client_env(Proc("job", rank))))
        opened.extend(sessions)
        return server, sessions

    yield start
    for each in reversed(opened):
        each.close()


def test_a_host_raises_events_from_any_thread(serve):
    def on_upcall(upcall):
        if isinstance(upcall.op, ops.NotifyEvent):
            # On the server's own thread.
            server.notify(Notification(-2, HOST, Range.SESSION))
        upcall.reply()

    server, (a, b) = serve(2, on_upcall)
    ear = Ear()
    b.run(ops.RegisterEventHandler(ear, (-1, -2)))
    server.notify(Notification(-1, HOST))
    ear.wait(1)
    a.run(ops.NotifyEvent(-1))
    assert ear.wait(3) == [(-1, HOST), (-1, Proc("job", 0)), (-2, HOST)]
    with pytest.raises(ValueError, match="range"):
        server.notify(Notification(-1, HOST, Range.CUSTOM))
    server.close()
    with pytest.raises(NotInitialized):
        server.notify(Notification(-1, HOST))


def test_everybody_raises_and_hears_at_once(serve):
    size, number = 6, 60
    _, sessions = serve(size)
    ears = [Ear() for _ in sessions]
    for session, ear in zip(sessions, ears, strict=True):
        session.run(ops.RegisterEventHandler(ear))

    def work(session):
        for code in range(1, number + 1):
            session.run(ops.NotifyEvent(code))

    threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for ear in ears:
        seen = ear.wait(size * number)
        assert len(seen) == size * number
        for rank in range(size):
            assert [code for code, source in seen if source.rank == rank] == list(range(1, number + 1))
    for thread in threads:
        thread.join(20)
