"""Servers that come back under the name of a lost one, servers that join later, and connections that are slow."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib.crossing_world import DESCRIBE, Node, World, finish, play

pytestmark = pytest.mark.timeout(300)


def describe_to_newcomers(world):
    """Have the launcher describe all jobs to servers that join late, as the launchers of sessions do."""

    def joined(name, here):
        if here and world.clock.now:
            for number in range(len(world.jobs)):
                world.launcher.exchange.request(name, DESCRIBE, b"%d" % number, lambda *_: None)
            world.launcher.crossing.introduce(name)

    if world.launcher is not None:
        world.launcher.exchange.watch(joined)


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 2), st.integers(0, 2))
# The declared loss of the process before it arrives at a process that has come back: it is not its own.
@example(5, 5, 1, 0)
@example(5, 6, 2, 1)
# The coordinator is lost, and is back before all have looked for a decision of its former process.
@example(9, 5, 1, 0)
@example(12, 5, 1, 0)
# It is lost, and is back, while its contribution waits for the decisions of a lost coordinator.
@example(220, 3, 2, 0)
@example(928, 3, 2, 1)
# What was meant for the former process does not reach the one that has come back.
@example(27, 6, 2, 1)
# With servers in the middle, which pass on what is meant for a former coordinator, or comes from a lost server.
@example(589465546, 40, 3, 1)
def test_servers_come_back_under_the_same_name(seed, servers, losses, newcomers):
    world = World(Random(seed), servers)
    operations = play(world, 8, silent=True)
    describe_to_newcomers(world)
    random = world.random
    fresh = []

    def lose(name):
        world.lose(name)
        world.later(1, lambda: fresh.append(Node(world, name)))

    for name in random.sample(sorted(world.nodes), min(losses, servers - 1)):
        world.later(3, lambda name=name: lose(name))
    for number in range(newcomers):
        # Of an earlier name than the others, which makes it the root without a launcher, or of a later one.
        name = f"{random.choice('mz')}{number}"
        world.later(3, lambda name=name: fresh.append(Node(world, name)))
    world.clock.run()
    assert world.clock.now < 1000
    assert operations
    alive = [node for node in world.nodes.values() if node.alive]
    for node in alive:
        for asked in node.asked:
            assert len(asked.results) == 1, (node.name, asked.op, asked.results)
    everybody = [*alive, *fresh, *([world.launcher] if world.launcher is not None else [])]
    for node in everybody:
        assert not node.exchange.open(), (node.name, node.exchange.underway())
        assert node.exchange.members == tuple(sorted([other.name for other in everybody]))


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(0, 4), st.integers(0, 3), st.integers(1, 6))
def test_slow_connections_change_nothing(seed, servers, departures, losses, stops):
    world = World(Random(seed), servers)
    stopped = {}

    def between(sender, receiver, carry):
        waiting = stopped.get((sender, receiver))
        if waiting is None:
            carry()
        else:
            waiting.append(carry)

    def stop(pair):
        stopped.setdefault(pair, [])
        # Less than the time for which a declared loss waits for the last messages of its server.
        world.later(0.9, lambda: release(pair))

    def release(pair):
        for carry in stopped.pop(pair, ()):
            carry()

    world.hub._between = between
    operations = play(world, 10, silent=True)
    for _ in range(stops):
        pair = tuple(world.random.sample(sorted(world.nodes), 2))
        world.later(3, lambda pair=pair: stop(pair))
    for proc in world.random.sample(sorted(world.where), min(departures, len(world.where))):
        world.later(2, lambda proc=proc: world.depart(proc))
    for name in world.random.sample(sorted(world.nodes), min(losses, servers - 1)):
        world.later(3, lambda name=name: world.lose(name))
    finish(world, operations)
