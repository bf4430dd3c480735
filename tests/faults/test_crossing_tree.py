"""What crosses by way of servers in the middle ends as it does without, whichever server or link is lost meanwhile."""

from __future__ import annotations

from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from faults import test_crossing_groups as groups
from lib.crossing_world import SUCCESS, World, finish, play
from pypmix.host.exchange import tree

pytestmark = pytest.mark.timeout(300)

RADIX = st.integers(1, 3)
SERVERS = st.integers(3, 10)


@contextmanager
def of_radix(number):
    """Servers in the middle pass contributions on."""
    before = tree.RADIX, tree.FLAT
    tree.RADIX, tree.FLAT = number, 1
    try:
        yield
    finally:
        tree.RADIX, tree.FLAT = before


@settings(max_examples=30)
@given(st.integers(0, 2**32), SERVERS, RADIX)
def test_without_trouble_everything_succeeds(seed, servers, radix):
    with of_radix(radix):
        world = World(Random(seed), servers)
        operations = play(world, 12)
        finish(world, operations)
    for kind, names, asked, _ in operations:
        assert sorted(asked) == names
        for each in asked.values():
            status, result = each.results[0]
            assert status == SUCCESS, (kind, result)
            if kind == "fence":
                # In the order of the servers' names.
                assert [part.split()[-1] for part in result.decode().split(">")[:-1]] == names


@settings(max_examples=60)
@given(st.integers(0, 2**32), SERVERS, RADIX, st.integers(0, 8))
# The news of a proc that has gone overtake the contribution of its server.
@example(49788, 3, 1, 1)
# Two connects of the same procs, which servers name in different orders, and call in different orders.
@example(3289616, 6, 2, 2)
def test_departures_cross_with_everything(seed, servers, radix, departures):
    with of_radix(radix):
        world = World(Random(seed), servers)
        operations = play(world, 10)
        for proc in world.random.sample(sorted(world.where), min(departures, len(world.where))):
            world.later(2, lambda proc=proc: world.depart(proc))
        finish(world, operations)
    for kind, _names, asked, signature in operations:
        statuses = {each.results[0][0] for each in asked.values()}
        if [other[3] for other in operations].count(signature) == 1:
            assert len(statuses) <= 1, (kind, asked)


@settings(max_examples=100)
@given(st.integers(0, 2**32), SERVERS, RADIX, st.integers(0, 4), st.integers(0, 5))
# The coordinator, or a server in the middle, has forgotten the jobs of the lost server when a contribution comes.
@example(0, 4, 1, 1, 1)
@example(0, 4, 1, 2, 1)
def test_servers_are_lost_and_stay_silent(seed, servers, radix, departures, losses):
    with of_radix(radix):
        world = World(Random(seed), servers)
        operations = play(world, 10, silent=True)
        for proc in world.random.sample(sorted(world.where), min(departures, len(world.where))):
            world.later(2, lambda proc=proc: world.depart(proc))
        for name in world.random.sample(sorted(world.nodes), min(losses, servers - 1)):
            world.later(3, lambda name=name: world.lose(name))
        finish(world, operations)


@settings(max_examples=60)
@given(st.integers(0, 2**32), SERVERS, RADIX, st.integers(1, 3))
def test_links_break_at_any_moment(seed, servers, radix, broken):
    with of_radix(radix):
        world = World(Random(seed), servers)
        play(world, 10, silent=True)
        for _ in range(broken):
            one, other = world.random.sample(sorted(world.nodes), 2)
            world.later(3, lambda one=one, other=other: world.hub.part(one, other))
        world.clock.run()
    assert world.clock.now < 1000
    for node in world.nodes.values():
        for asked in node.asked:
            assert len(asked.results) == 1, (node.name, asked.op, asked.results)
        assert not node.exchange.open(), (node.name, node.exchange.underway())
    sides = {}
    for node in world.nodes.values():
        sides.setdefault(node.exchange.members, []).append(node)
    for nodes in sides.values():
        fences = {}
        for node in nodes:
            for asked in node.asked:
                status, result = asked.results[0]
                for part in result.split(b">")[:-1] if status == SUCCESS and isinstance(result, bytes) else ():
                    assert part[:1] != b"<" or fences.setdefault(part, result) == result


@settings(max_examples=100)
@given(st.integers(0, 2**32), SERVERS, RADIX, st.integers(0, 5), st.integers(1, 3))
# What was given once more arrives before what had been on its way through the lost server.
@example(104, 9, 1, 1, 3)
@example(72, 9, 1, 4, 3)
# The procs of the next coordinator end while its own contribution waits for decisions of the lost one.
@example(3491587602, 5, 2, 1, 1)
# A server that nobody answers any more looks for a decision that cannot come, and ends that.
@example(1948942435, 8, 3, 3, 2)
def test_groups_go_on_whichever_server_in_the_middle_is_lost(seed, servers, radix, departures, losses):
    with of_radix(radix):
        lost = groups.test_lost_servers_end_constructs_the_same_way_for_all
        lost.hypothesis.inner_test(seed, servers, departures, losses)


@settings(max_examples=60)
@given(st.integers(0, 2**32), SERVERS, RADIX, st.integers(0, 8))
def test_groups_end_the_same_way_whoever_departs(seed, servers, radix, departures):
    with of_radix(radix):
        gone = groups.test_departures_end_constructs_the_same_way_for_all
        gone.hypothesis.inner_test(seed, servers, departures)


@settings(max_examples=60)
# In a chain, a lost server, which goes on alone here, waits for each of the others in turn.
@given(st.integers(0, 2**32), SERVERS, st.integers(2, 3), st.integers(0, 3), st.integers(0, 2))
# The root is lost while entries of its successor are forwarded.
@example(0, 9, 2, 3, 1)
def test_groups_end_in_time_whoever_stays_silent(seed, servers, radix, silent, losses):
    with of_radix(radix):
        groups.test_who_stays_silent_ends_constructs_in_time.hypothesis.inner_test(seed, servers, silent, losses)


@settings(max_examples=60)
@given(st.integers(0, 2**32), SERVERS, RADIX, st.integers(0, 5), st.integers(0, 1))
# Only the server of an added proc has the decision of the lost root, which coordinated the construct as well.
@example(3219739711, 4, 1, 0, 1)
def test_groups_of_those_who_do_not_know_each_other_end_the_same_way(seed, servers, radix, departures, losses):
    with of_radix(radix):
        groups.test_those_who_meet_agree_whoever_goes.hypothesis.inner_test(seed, servers, departures, losses)
