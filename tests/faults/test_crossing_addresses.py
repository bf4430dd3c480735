"""What a group does by its name ends the same way for all, though servers differ in who they think is a member."""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.crossing_groups import FLAGS, PARTIAL, World
from pypmix.standard import attrs
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import FenceUpcall, GroupUpcall, NotifyEvent
from pypmix.standard.ops.hosting import GROUP_DESTRUCT
from pypmix.standard.types import Proc

pytestmark = pytest.mark.timeout(600)

ROUNDS = max(200, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))
NAME = "group"
GROUP_LEFT = -160
GONE = -3707100
CUSTOM = 6
FENCES = 3


class Group:
    """A group that fences some times and is destructed then, as its servers carry it out one after the other."""

    def __init__(self, world, members, tolerant):
        self.world = world
        self.tolerant = tolerant
        self.gone = set()
        self.views = {}
        self.doing = {}
        self.ends = {}
        for node in dict.fromkeys([world.where[proc] for proc in members]):
            self.views[node] = list(members)
            node.notify = lambda event, node=node: self.heard(node, event)
            world.later(1, lambda node=node: self.next(node, 0))

    def local(self, node):
        return [proc for proc in self.views[node] if self.world.where[proc] is node and proc not in self.gone]

    def heard(self, node, event):
        (proc,) = [info.value.data for info in event.infos if info.key == attrs.EVENT_AFFECTED_PROC.key]
        self.remove(node, proc)

    def remove(self, node, proc):
        if proc in self.views[node]:
            self.views[node].remove(proc)

    def next(self, node, number):
        """All members of a server have called the next one."""
        if not self.local(node) or not node.alive:
            return
        self.doing[node] = number
        infos = (attrs.GROUP_ID(NAME), *((FLAGS["tolerant"],) if self.tolerant else ()))
        view = tuple(sorted(self.views[node]))
        if number < FENCES:
            op = FenceUpcall(view, infos, f"<{number} {node.name}>".encode())
        else:
            op = GroupUpcall(GROUP_DESTRUCT, NAME, view, infos[1:])

        def done(result, error):
            assert (node, number) not in self.ends
            self.ends[node, number] = error or result
            if number < FENCES:
                self.world.later(1, lambda: self.next(node, number + 1))

        node.ask(op, done)

    def leave(self, proc, dies):
        """A member leaves, or ends: its server knows first."""
        node = self.world.where[proc]
        if proc in self.gone or not node.alive or self.doing.get(node, 0) >= FENCES:
            return
        self.gone.add(proc)
        others = [other for other in self.views[node] if self.world.where[other] is not node]
        self.remove(node, proc)
        infos = (attrs.EVENT_CUSTOM_RANGE(others), attrs.GROUP_ID(NAME), attrs.EVENT_AFFECTED_PROC(proc))
        if dies:
            node.crossing.departed(proc)
        if others:
            node.ask(NotifyEvent(GONE if dies else GROUP_LEFT, CUSTOM, infos), requestor=None if dies else proc)

    def check(self):
        for number in range(FENCES + 1):
            ends = {}
            for node in self.views:
                if node.alive and self.local(node):
                    end = self.ends.get((node, number))
                    assert end is not None, (node.name, number)
                    ends[node] = end.code if isinstance(end, PMIxError) else end
            assert len(set(ends.values())) <= 1, (number, ends)
            for end in ends.values():
                if not isinstance(end, bytes):
                    assert end == PARTIAL or number == FENCES, end
                    assert not self.tolerant or number == FENCES
                else:
                    present = {node.name for node in ends}
                    assert present <= {part.split(" ")[1] for part in end.decode().split(">")[:-1]}


@settings(max_examples=ROUNDS)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 6), st.booleans())
def test_fences_of_a_group_that_loses_members(seed, servers, leavers, tolerant):
    random = Random(seed)
    world = World(random, servers)
    members = random.sample(sorted(world.where), random.randint(1, len(world.where)))
    group = Group(world, members, tolerant)
    for proc in random.sample(members, min(leavers, len(members))):
        dies = random.random() < 0.5
        world.later(6, lambda proc=proc, dies=dies: group.leave(proc, dies))
    world.clock.run()
    group.check()
    world.finish()


def test_a_group_without_departures_gathers_all():
    world = World(Random(1), 3)
    group = Group(world, [Proc("job", rank) for rank in range(6)], False)
    world.clock.run()
    group.check()
    assert {group.ends[node, 0] for node in world.nodes} == {b"<0 n0><0 n1><0 n2>"}
    assert {group.ends[node, FENCES] for node in world.nodes} == {()}
    world.finish()
