"""Groups of several servers come to one end for all, with any directives, delays, departures and losses."""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib.crossing_groups import FLAGS, NSPACE, World
from pypmix.standard import attrs, codes
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import GroupUpcall
from pypmix.standard.ops.events import procs_in
from pypmix.standard.ops.hosting import (
    GROUP_ABSENT,
    GROUP_CANCEL,
    GROUP_CLAIMS,
    GROUP_CONSTRUCT,
    GROUP_GUEST,
    GROUP_LEADER_PROC,
    GROUP_ORDER,
    GROUP_ROUND,
    GROUP_VERDICT,
)
from pypmix.standard.types import DataArray, Info, Value

pytestmark = pytest.mark.timeout(600)

ROUNDS = max(150, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))
MEMBERS = attrs.GROUP_MEMBERSHIP.key
CONTEXT_ID = attrs.GROUP_CONTEXT_ID.key
STATUS = attrs.LOCAL_COLLECTIVE_STATUS.key


def procs(key, values):
    return Info(key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(values))))


def status(code):
    return Info(STATUS, Value(codes.STATUS, code))


class Construct:
    """A construct of some procs, as their servers carry it out."""

    def __init__(self, world, name, members, flags, leader=None, wish=None, claims=(), verdicts=(), limit=0):
        self.world = world
        self.name = name
        self.members = members
        self.flags = flags
        self.leader = leader
        self.wish = wish
        self.claims = claims
        self.verdicts = verdicts
        self.limit = limit
        self.called = set()
        self.given = set()
        self.results = {}
        self.rounds = {}
        world.constructs.append(self)

    def call(self, proc):
        if proc not in self.world.gone and self.world.where[proc].alive:
            self.called.add(proc)
            self.look(self.world.where[proc])

    def local(self, node):
        return [proc for proc in self.members if self.world.where[proc] is node]

    def look(self, node):
        """All procs of a server have come, or have gone."""
        local = self.local(node)
        gone = self.world.gone
        if node in self.given or not all(proc in self.called or proc in gone for proc in local):
            return
        if any(proc not in gone for proc in local):
            self.given.add(node)
            self.give(node, 1)

    def give(self, node, number, absent=()):
        local = self.local(node)
        gone = [proc for proc in local if proc in self.world.gone]
        if len(gone) == len(local):
            return
        infos = [Info(GROUP_ROUND, Value(codes.SIZE, number)), attrs.GROUP_ASSIGN_CONTEXT_ID(True)]
        infos += [FLAGS[flag] for flag in self.flags]
        infos.append(attrs.GROUP_INFO((attrs.HOSTNAME(node.name),)))
        if gone:
            infos.append(procs(GROUP_ABSENT, gone))
        if self.wish:
            infos.append(procs(GROUP_ORDER, self.wish))
        if self.leader in local and self.leader in self.called:
            infos.append(Info(GROUP_LEADER_PROC, Value(codes.PROC, self.leader)))
        if number > 1:
            claims = [proc for proc in self.claims if proc in local and proc not in gone]
            if claims and self.leader in absent:
                infos.append(procs(GROUP_CLAIMS, claims))
            if any(proc in self.verdicts and proc not in gone for proc in local):
                infos.append(Info(GROUP_VERDICT, Value(codes.STRING, "abort")))
        if self.limit:
            infos.append(attrs.TIMEOUT(self.limit))
        self.rounds[node] = number
        op = GroupUpcall(GROUP_CONSTRUCT, self.name, tuple(sorted(self.members)), tuple(infos))
        node.ask(op, lambda result, error: self.answered(node, number, result, error))

    def answered(self, node, number, result, error):
        if error is None and procs_in(result, MEMBERS) is None:
            absent = procs_in(result, GROUP_ABSENT)
            assert absent
            assert number < 2 + len(self.members)
            self.world.later(1, lambda: self.give(node, number + 1, absent))
        else:
            assert node not in self.results
            self.results[node] = result if error is None else error

    def ends(self):
        """Return how it has ended on servers with somebody who hears of it."""
        world = self.world
        return {
            node: self.results.get(node)
            for node in self.given
            if node.alive and any(proc not in world.gone for proc in self.local(node))
        }


def check(construct, *, all_same=True):
    """Those that are answered agree."""
    ends = construct.ends()
    groups = [end for end in ends.values() if not isinstance(end, PMIxError)]
    assert None not in groups, f"{construct.name} has not ended everywhere"
    assert len(set(groups)) <= 1
    codes_ = {end.code for end in ends.values() if isinstance(end, PMIxError)}
    if all_same:
        assert len(codes_) + bool(groups) <= 1, ends
    for group in groups[:1]:
        members = procs_in(group, MEMBERS)
        assert set(members) <= set(construct.members)
        assert len(set(members)) == len(members)
        (number,) = [info.value.data for info in group if info.key == CONTEXT_ID]
        if len(members) < len(construct.members):
            # Without a directive only a new leader lets it go on.
            assert construct.flags or construct.claims
            assert set(procs_in(group, GROUP_ABSENT)) == set(construct.members) - set(members)
        order = [proc for proc in construct.wish or sorted(construct.members) if proc in members]
        assert list(members) == order
        led = procs_in(group, GROUP_LEADER_PROC)
        assert led is None or led[0] in members
        for node in ends:
            if not isinstance(ends[node], PMIxError):
                lost = {f"own-{other.name}" for other in node.world.nodes if not other.alive}
                assert {proc.nspace for proc in members} <= {NSPACE, f"own-{node.name}", *node.jobs} | lost
        return number
    return None


def some(random, world, least=2):
    everybody = sorted(world.where)
    return random.sample(everybody, random.randint(min(least, len(everybody)), len(everybody)))


def construct(world, number, *, limit=0):
    random = world.random
    members = some(random, world)
    flags = random.sample(sorted(FLAGS), random.randint(0, 2))
    leader = random.choice(members) if random.random() < 0.5 else None
    wish = tuple(members) if random.random() < 0.5 else None
    claims = random.sample(members, random.randint(0, 2)) if leader else ()
    verdicts = [proc for proc in members if random.random() < 0.05]
    made = Construct(world, f"group {number}", members, flags, leader, wish, claims, verdicts, limit)
    for proc in members:
        world.later(2, lambda proc=proc: made.call(proc))
    return made


@settings(max_examples=ROUNDS)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_without_trouble_all_groups_stand(seed, servers):
    world = World(Random(seed), servers)
    made = [construct(world, number) for number in range(6)]
    world.clock.run()
    numbers = [check(each) for each in made]
    assert None not in numbers
    assert len(set(numbers)) == len(numbers)
    for each in made:
        assert all(set(procs_in(end, MEMBERS)) == set(each.members) for end in each.ends().values())
    world.finish()


@settings(max_examples=2 * ROUNDS)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 8))
def test_departures_end_constructs_the_same_way_for_all(seed, servers, departures):
    world = World(Random(seed), servers)
    made = [construct(world, number) for number in range(6)]
    for proc in world.random.sample(sorted(world.where), min(departures, len(world.where))):
        world.later(4, lambda proc=proc: world.depart(proc))
    world.clock.run()
    for each in made:
        check(each)
    world.finish()


@settings(max_examples=2 * ROUNDS)
@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(0, 5), st.integers(1, 3))
def test_lost_servers_end_constructs_the_same_way_for_all(seed, servers, departures, losses):
    world = World(Random(seed), servers)
    made = [construct(world, number) for number in range(6)]
    for proc in world.random.sample(sorted(world.where), min(departures, len(world.where))):
        world.later(4, lambda proc=proc: world.depart(proc))
    for node in world.random.sample(world.nodes, min(losses, servers - 1)):
        world.later(4, lambda node=node: world.lose(node))
    world.clock.run()
    for each in made:
        check(each)
    world.finish()


@settings(max_examples=ROUNDS)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(0, 3), st.integers(0, 2))
def test_who_stays_silent_ends_constructs_in_time(seed, servers, silent, losses):
    world = World(Random(seed), servers)
    made = []
    for number in range(5):
        each = construct(world, number, limit=world.random.randint(2, 4))
        quiet = world.random.sample(sorted(world.where), min(silent, len(world.where)))
        each.called.clear()
        call = each.call
        each.call = lambda proc, quiet=quiet, call=call: proc in quiet or call(proc)
        made.append(each)
    for node in world.random.sample(world.nodes, min(losses, servers - 1)):
        world.later(4, lambda node=node: world.lose(node))
    world.clock.run()
    assert world.clock.now < 60
    for each in made:
        check(each, all_same=False)
    world.finish()


class Offers:
    """A construct whose callers do not know each other: each is offered by itself."""

    def __init__(self, world, name, leaders, added, flags, collective):
        self.world = world
        self.name = name
        self.leaders = leaders
        self.added = added
        self.flags = flags
        self.results = {}
        self.offered = set()
        self.collective = None
        if collective:
            self.collective = Construct(world, name, leaders, flags)
            self.collective.give = self.give

    def call(self, proc):
        world = self.world
        node = world.where[proc]
        if proc in world.gone or not node.alive:
            return
        if self.collective is not None and proc in self.leaders:
            self.collective.call(proc)
            return
        infos = [Info(GROUP_GUEST, Value(codes.PROC, proc)), attrs.GROUP_ASSIGN_CONTEXT_ID(True)]
        infos.append(attrs.GROUP_INFO((attrs.HOSTNAME(str(proc)),)))
        infos += [FLAGS[flag] for flag in self.flags]
        if proc in self.leaders:
            infos.append(attrs.GROUP_BOOTSTRAP(len(self.leaders)))
            if proc == self.leaders[0]:
                infos.append(attrs.GROUP_ADD_MEMBERS(self.added))
        self.offered.add(proc)
        op = GroupUpcall(GROUP_CONSTRUCT, self.name, (proc,), tuple(infos))
        node.ask(op, lambda result, error: self.results.setdefault(proc, result if error is None else error))

    def give(self, node, number, absent=()):
        """The part of a collective construct that adds others."""
        gone = [proc for proc in self.collective.local(node) if proc in self.world.gone]
        if len(gone) == len(self.collective.local(node)):
            return
        infos = [Info(GROUP_ROUND, Value(codes.SIZE, number)), attrs.GROUP_ASSIGN_CONTEXT_ID(True)]
        infos += [FLAGS[flag] for flag in self.flags]
        if gone:
            infos.append(procs(GROUP_ABSENT, gone))
        infos.append(attrs.GROUP_ADD_MEMBERS(self.added))
        op = GroupUpcall(GROUP_CONSTRUCT, self.name, tuple(sorted(self.leaders)), tuple(infos))
        node.ask(op, lambda result, error: self.collective.answered(node, number, result, error))

    def depart(self, proc):
        """As its server tells of a caller that has gone."""
        world = self.world
        node = world.where[proc]
        world.depart(proc)
        if node.alive and proc in self.offered and proc not in self.results:
            node.ask(GroupUpcall(GROUP_CANCEL, self.name, (proc,), (procs(GROUP_ABSENT, (proc,)),)))

    def ends(self):
        found = {proc: self.results.get(proc) for proc in self.offered if proc not in self.world.gone}
        if self.collective is not None:
            found.update(self.collective.ends())
        return found


def offers(world, number):
    random = world.random
    everybody = sorted(world.where)
    random.shuffle(everybody)
    leaders = everybody[: random.randint(1, len(everybody) - 1)]
    added = everybody[len(leaders) :][: random.randint(0, 4)]
    flags = random.sample(("optional", "tolerant"), random.randint(0, 1))
    made = Offers(world, f"group {number}", leaders, added, flags, bool(added) and random.random() < 0.5)
    for proc in (*leaders, *added):
        world.later(2, lambda proc=proc: made.call(proc))
    return made


def check_offers(made, *, whole):
    ends = made.ends()
    groups = [end for end in ends.values() if not isinstance(end, PMIxError)]
    if whole:
        assert None not in groups, made.name
    groups = [group for group in groups if group is not None]
    assert len(set(groups)) <= 1
    for group in groups[:1]:
        members = procs_in(group, MEMBERS)
        order = [*sorted(made.leaders), *made.added]
        assert list(members) == [proc for proc in order if proc in members]
        if len(members) < len(order):
            assert made.flags
        assert len([info for info in group if info.key == CONTEXT_ID]) == 1
    return groups[0] if groups else None


@settings(max_examples=ROUNDS)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_those_who_do_not_know_each_other_meet(seed, servers):
    world = World(Random(seed), servers)
    made = [offers(world, number) for number in range(4)]
    world.clock.run()
    for each in made:
        group = check_offers(each, whole=True)
        assert set(procs_in(group, MEMBERS)) == {*each.leaders, *each.added}
    world.finish()


@example(8427147, 3, 3, 1)
@settings(max_examples=ROUNDS)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 5), st.integers(0, 1))
def test_those_who_meet_agree_whoever_goes(seed, servers, departures, losses):
    world = World(Random(seed), servers)
    made = [offers(world, number) for number in range(3)]

    def depart(proc):
        for each in made:
            each.depart(proc)

    for proc in world.random.sample(sorted(world.where), min(departures, len(world.where))):
        world.later(4, lambda proc=proc: depart(proc))
    for node in world.random.sample(world.nodes, min(losses, servers - 1)):
        world.later(4, lambda node=node: world.lose(node))
    world.clock.run()
    for each in made:
        # A leader that has gone before it called is not known to be one.
        check_offers(each, whole=False)
    # What waits for ever for such a one is given up.
    for each in made:
        for proc in each.offered:
            if proc not in each.results:
                world.where[proc].ask(GroupUpcall(GROUP_CANCEL, each.name, (proc,)))
    world.clock.run()
    for each in made:
        check_offers(each, whole=True)
    world.finish()
