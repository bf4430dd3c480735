"""Proves that connections of whole sessions on virtual time keep what they promise, whoever is lost at which moment.

`PYPMIX_FAULT_ROUNDS=1000 pytest tests/faults/test_connections.py` goes through as many schedules.
"""

from __future__ import annotations

import os
from collections import defaultdict
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from faults import cluster, invariants
from pypmix.host.exchange import Exchange
from pypmix.host.exchange.border import Border
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.ops import Connect, Disconnect, Fence, NotifyEvent
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_EARLY_TERM,
    CONNECT_ID,
    CONNECT_NAME,
    CONNECT_NOTIFY_EACH,
    CONNECT_OPTIONAL,
    CONNECT_XCHG_ONLY,
)
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value

pytestmark = pytest.mark.timeout(900)

ROUNDS = int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")) or 100
SUCCESS, PARTIAL, NOT_FOUND = 0, -52, -46
TERMINATED = -200
NEWS = -3000
TICK = 0.02
AFFECTED = attrs.EVENT_AFFECTED_PROC.key
FLAGS = {
    "optional": CONNECT_OPTIONAL,
    "early": CONNECT_EARLY_TERM,
    "each": CONNECT_NOTIFY_EACH,
    "exchange only": CONNECT_XCHG_ONLY,
}
LAYOUTS = (
    (1, {"job": (0, 0, 0)}),
    (2, {"job": (0, 1)}),
    (2, {"job": (0, 0, 1, 1), "other": (1,)}),
    (3, {"job": (0, 1, 2, 0, 1), "other": (1, 2)}),
    (4, {"job": (3, 1, 2), "other": (0, 3), "lone": (2,)}),
)


class Plan(NamedTuple):
    """A connection: who is in it (bits), what is asked for, who asks (all, or the one of a number), and its id."""

    members: int
    flags: frozenset[str] = frozenset()
    asker: int | None = None
    id: str = ""
    whole: bool = False


class Loss(NamedTuple):
    """Something that is lost: in which phase, at which tick, what, and whose."""

    phase: int
    tick: int
    kind: str
    number: int


CONNECTING, FENCING, PARTING = range(3)

PLANS = st.lists(
    st.builds(
        Plan,
        st.integers(1, 127),
        st.frozensets(st.sampled_from(sorted(FLAGS)), max_size=3),
        st.one_of(st.none(), st.integers(0, 6)),
        st.sampled_from(("", "", "x")),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)
LOSSES = st.lists(
    st.builds(
        Loss,
        st.sampled_from((CONNECTING, CONNECTING, FENCING, FENCING, PARTING)),
        st.integers(0, 12),
        st.sampled_from(("process", "process", "client", "server")),
        st.integers(0, 6),
    ),
    max_size=4,
)
PACES = st.lists(st.sampled_from((1.0, 0.0, 0.1, 0.5, 3.0)), min_size=1, max_size=9).map(tuple)
TICKS = st.lists(st.integers(0, 12), min_size=1, max_size=9).map(tuple)


class Answered(cluster.Asked):
    """An upcall whose answer the server comes to a moment later, and before all else that its host calls then."""

    def _done(self, result, error):
        answer, self._answer = self._answer, None
        assert answer is not None, f"{self.op} was answered twice"
        self.node.answers.append((answer, result, error))
        self.node.world.later(0, self.node.calls, self.node.catch_up)


class Node(cluster.Node):
    """A node that tells its crossing of connections."""

    def __init__(self, world, number):
        self.answers = []
        super().__init__(world, number)

    def upcall(self, op, answer, process=None):
        self.world.later(0, self.calls, self._answer, Answered(self, op, answer, process))

    def catch_up(self):
        while self.answers:
            answer, *outcome = self.answers.pop(0)
            answer(*outcome)

    def notify(self, event):
        self.catch_up()
        super().notify(event)

    def groups(self):
        self.catch_up()
        return tuple([(key.partition("\0")[0], members) for key, members in self.server.store.proper_groups()])

    def connections(self):
        self.catch_up()
        store = self.server.store
        return tuple([(nspace, store.groups[nspace]) for nspace in store.connections])


class Inside(Border):
    """A border, and what is behind it."""

    def __getattr__(self, name):
        return getattr(self._crossing, name)


class Beyond(Node):
    """A node of a cluster, whose jobs have other names outside of it."""

    def __init__(self, world, number):
        super().__init__(world, number)
        clock = world.hub.clock
        self.exchange = Exchange(world.hub.carrier(f"A:{self.name}"), later=clock.later, now=clock.time)
        self.name = self.exchange.name
        self.crossing = Inside(self, self.exchange, "A")


def flag(key):
    return Info(key, Value(codes.BOOL, True))


def told(event, key):
    return next((info.value.data for info in event.infos if info.key == key), None)


class Life:
    """One run: connects, then what the connections do by their names, then disconnects; with losses in each phase."""

    def __init__(self, layout, plans, losses, paces, ticks, node=Node, logs=False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster, "Node", node)
            self.world = cluster.Cluster(*layout, paces, logs=logs)
        self.losses = losses
        self.ticks = ticks
        self.tick = 0
        # Of plans that are the same, members could not tell which is meant.
        self.plans = {(frozenset(self.members(plan)), plan.id): plan for plan in plans}
        self.heard = defaultdict(list)
        for proc, process in self.world.processes.items():
            process.reacts = partial(self.hear, proc)
            process.listen(TERMINATED, statuses.PROC_HAS_CONNECTED, statuses.PROC_HAS_DISCONNECTED, NEWS)
        self.world.run(1)

    def hear(self, proc, event):
        self.heard[proc].append(event)
        return 0

    def members(self, plan):
        procs = self.world.procs
        found = [proc for place, proc in enumerate(procs) if plan.members >> place & 1] or procs[:1]
        if plan.whole:
            found += [proc for proc in procs if any(proc.nspace == other.nspace for other in found)]
        return sorted(set(found))

    def flags(self, key, came):
        """Return what has been asked for by those who have come."""
        plan, members = self.plans[key], sorted(key[0])
        return plan.flags if plan.asker is None or members[plan.asker % len(members)] in came else frozenset()

    def op(self, plan, proc):
        members = self.members(plan)
        asks = plan.asker is None or members[plan.asker % len(members)] == proc
        infos = [flag(FLAGS[each]) for each in sorted(plan.flags)] if asks else []
        infos.append(flag(CONNECT_ASSIGN))
        if plan.id:
            infos.append(Info(CONNECT_ID, Value(codes.STRING, plan.id)))
        if plan.whole:
            members = [Proc(nspace, RANK_WILDCARD) for nspace in sorted({each.nspace for each in members})]
        # Each names them in an order of its own.
        number = proc.rank % len(members)
        return Connect((*members[number:], *members[:number]), tuple(infos))

    def start(self, proc, op):
        """Have a process call something some time soon; return where its ticket will be."""
        place = []
        process = self.world.processes[proc]
        self.tick += 1
        ticks = self.ticks[self.tick % len(self.ticks)]

        def call():
            if process.linked:
                place.append(process.start(op))

        self.world.later(TICK * ticks, call)
        return place

    def phase(self, number, ops):
        """Have procs call things, lose what is to be lost, and wait until nothing happens any more."""
        found = {name: self.start(name[0], op) for name, op in ops.items()}
        for loss in self.losses:
            if loss.phase == number:
                self.world.later(TICK * loss.tick, self.lose, loss)
        self.world.run(60)
        for process in self.world.living:
            for ticket in process.tickets:
                assert ticket.over, f"{process.proc} waits for ever: {ticket.op}"
        return {name: place[0] for name, place in found.items() if place and self.world.processes[name[0]].linked}

    def lose(self, loss):
        process = self.world[loss.number]
        if loss.kind == "process":
            self.world.kill(process)
        elif loss.kind == "client":
            self.world.cut(process)
        else:
            self.world.lose(loss.number)

    def alive(self, proc):
        return self.world.processes[proc].linked

    # The phases

    def connect(self):
        """Return the connections: by plan what it is, and those who live that have it."""
        ops = {(proc, key): self.op(plan, proc) for key, plan in self.plans.items() for proc in sorted(key[0])}
        ended = self.phase(CONNECTING, ops)
        made = {}
        for key, plan in self.plans.items():
            tickets = {proc: ticket for (proc, other), ticket in ended.items() if other == key}
            statuses = {ticket.status for ticket in tickets.values()}
            assert len(statuses) <= 1, f"{key} has ended as {tickets}"
            whole = all(map(self.alive, key[0]))
            flags = self.flags(key, tickets)
            assert statuses <= ({SUCCESS} if whole or "optional" in flags else {SUCCESS, PARTIAL}), tickets
            if statuses != {SUCCESS}:
                for ticket in tickets.values():
                    missing = ticket.error.missing
                    assert missing, f"nobody says who is missing: {ticket}"
                    assert not any(map(self.alive, missing)), f"{ticket} names living ones"
                continue
            results = {(ticket.result.nspace, ticket.result.procs) for ticket in tickets.values()}
            if "exchange only" in plan.flags and ("exchange only" in flags or not results.copy().pop()[0]):
                # Who has asked for that may have ended since.
                assert {nspace for nspace, _ in results} == {""}
                continue
            ((nspace, procs),) = results
            assert nspace and set(tickets) <= set(procs) <= key[0] and list(procs) == sorted(procs)
            if "optional" not in plan.flags:
                assert set(procs) == key[0]
            assert nspace not in {other for other, _ in made.values()}
            made[key] = nspace, procs
        return made

    def fence(self, made):
        gone = {key: [proc for proc in procs if not self.alive(proc)] for key, (_, procs) in made.items()}
        ops = {}
        for key, (nspace, procs) in made.items():
            for proc in procs:
                if self.alive(proc):
                    infos = (attrs.EVENT_CUSTOM_RANGE((Proc(nspace, RANK_WILDCARD),)),)
                    ops[proc, key, "fence"] = Fence((Proc(nspace, RANK_WILDCARD),))
                    ops[proc, key, "news"] = NotifyEvent(NEWS, RANGE_CUSTOM, infos)
        ended = self.phase(FENCING, ops)
        for key, (nspace, procs) in made.items():
            fences = {proc: ticket for (proc, *other), ticket in ended.items() if other == [key, "fence"]}
            statuses = {ticket.status for ticket in fences.values()}
            if "early" in self.flags(key, procs):
                assert statuses <= {SUCCESS}, fences
            else:
                assert statuses <= {SUCCESS, PARTIAL} and len(statuses) <= 1, fences
                if gone[key] == [proc for proc in procs if not self.alive(proc)]:
                    # Nobody ends meanwhile, and of those who had all have heard.
                    assert statuses <= {SUCCESS}, fences
            self.check_events(key, nspace, procs)

    def check_events(self, key, nspace, procs):
        """Those who live have heard of those who have ended; once, and of nobody else."""
        expected = [] if "early" in self.flags(key, procs) else [proc for proc in procs if not self.alive(proc)]
        for proc in filter(self.alive, procs):
            heard = [
                told(event, AFFECTED)
                for event in self.heard[proc]
                if event.code == TERMINATED and told(event, CONNECT_NAME) == nspace
            ]
            assert sorted(heard) == sorted(expected), f"{proc} of {nspace} has heard of {heard}, not of {expected}"
            news = {event.source for event in self.heard[proc] if event.code == NEWS}
            assert set(filter(self.alive, procs)) <= news | {proc}

    def part(self, made):
        def ops(what):
            return {
                (proc, key): Disconnect((Proc(nspace, RANK_WILDCARD),), what)
                for key, (nspace, procs) in made.items()
                for proc in procs
                if self.alive(proc)
            }

        ended = self.phase(PARTING, ops((flag(CONNECT_NOTIFY_EACH),)))
        assert {ticket.status for ticket in ended.values()} <= {SUCCESS}, ended
        again = self.phase(None, ops(()))
        assert {ticket.status for ticket in again.values()} <= {NOT_FOUND}, again

    def check_comings(self):
        """Nobody has heard twice that somebody has come or gone."""
        for process in self.world.living:
            heard = defaultdict(list)
            for event in self.heard[process.proc]:
                if event.code == statuses.PROC_HAS_DISCONNECTED:
                    heard[told(event, CONNECT_NAME)].append(told(event, AFFECTED))
            for procs in heard.values():
                assert len(set(procs)) == len(procs) and process.proc not in procs

    def play(self):
        made = self.connect()
        self.fence(made)
        self.part(made)
        self.check_comings()
        invariants.nothing_waits(self)
        self.world.close()
        invariants.nothing_is_left(self)
        for node in self.world.nodes:
            if node.alive:
                assert not node.server.store.connections


def play(*schedule):
    try:
        Life(*schedule).play()
    except AssertionError:
        life = SimpleNamespace(world=None)
        try:
            life = Life(*schedule, logs=True)
            life.play()
        except AssertionError:
            note("\n".join(life.world.log or ()))
        raise


@settings(max_examples=ROUNDS, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(LAYOUTS), PLANS, LOSSES, PACES, TICKS)
@example(LAYOUTS[2], [Plan(31, frozenset({"optional"}), 0)], [Loss(CONNECTING, 0, "server", 1)], (1.0,), (1, 5))
@example(LAYOUTS[2], [Plan(31, frozenset({"early"}), 0)], [Loss(FENCING, 0, "process", 1)], (1.0,), (1, 5))
def test_connections_keep_their_promises(layout, plans, losses, paces, ticks):
    play(layout, plans, losses, paces, ticks)


@settings(max_examples=ROUNDS // 3, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(LAYOUTS), PLANS, LOSSES, PACES, TICKS)
def test_they_do_so_at_the_border_of_a_cluster(layout, plans, losses, paces, ticks):
    play(layout, plans, losses, paces, ticks, Beyond)
