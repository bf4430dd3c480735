"""Proves that the end of a disconnect between servers names the members that had ended before."""

from __future__ import annotations

import pytest

from lib.exchange_world import World
from pypmix.standard import attrs
from pypmix.standard.ops import Disconnect
from pypmix.standard.ops.events import procs_in
from pypmix.standard.ops.hosting import GROUP_ABSENT
from pypmix.standard.types import Proc

P = [Proc("job", rank) for rank in range(4)]
"""Ranks 0, 1 and 2, and 3 are those of the servers a, b and c."""


def disconnect(*ranks):
    return Disconnect(tuple([P[rank] for rank in ranks]), (attrs.GROUP_ID("connection"),))


def ended(asked):
    return [procs_in(each.end or (), GROUP_ABSENT) for each in asked]


@pytest.mark.parametrize("called", [True, False])
def test_servers_that_wait_learn_which_member_ended(called):
    """Rank 1 ends on b, where rank 2 waits with it or calls later, without naming it then."""
    world = World()
    asked = [world.ask(name, disconnect(0, 1, 2, 3)) for name in ("ab" if called else "a")]
    world.hub.run()
    world.crossings["b"].departed(P[1])
    world.hub.run()
    if not called:
        asked.append(world.ask("b", disconnect(0, 2, 3)))
    asked.append(world.ask("c", disconnect(0, 2, 3)))
    world.hub.run()
    assert ended(asked) == [(P[1],)] * 3


def test_servers_that_wait_learn_of_a_lost_server():
    world = World()
    asked = [world.ask(name, disconnect(0, 1, 2, 3)) for name in "ab"]
    world.hub.run()
    world.hub.lose("c")
    world.hub.run()
    assert ended(asked) == [(P[3],)] * 2


def test_members_that_end_afterwards_are_not_named():
    world = World()
    asked = [world.ask(name, disconnect(0, 1, 2, 3)) for name in "abc"]
    world.hub.run()
    world.crossings["b"].departed(P[1])
    world.hub.run()
    assert [each.end for each in asked] == [None] * 3
