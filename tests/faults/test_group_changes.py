"""Proves that members of a group that stands agree on it, whatever leaves, deaths and requests there are, and when."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from lib.group_changes import FOUNDERS, OTHERS, Groups
from lib.virtual import Programs
from pypmix.engine.groups.talk import (
    flag,
)
from pypmix.standard import keys, statuses

"""A process that never asks to be a member, and tells all kinds of lies."""

EXAMPLES = max(250, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))


ranks = st.integers(0, FOUNDERS + OTHERS - 1)
happenings = st.one_of(
    st.tuples(st.just("leaves"), ranks, st.none()),
    st.tuples(st.just("kill"), ranks, st.none()),
    st.tuples(st.just("asks"), ranks, st.sampled_from([0, 1])),
    st.tuples(st.just("lies"), st.integers(0, 13), ranks),
)
schedules = st.lists(st.tuples(st.integers(0, 40), happenings), max_size=12)


@pytest.mark.timeout(90 + EXAMPLES // 4)
@example(
    # Who was taken in by a registrar that ended before it could say so, and gives up, is a member no longer.
    schedule=[
        (12, ("lies", 0, 0)),
        (35, ("kill", 0, None)),
        (0, ("kill", 3, None)),
        (23, ("leaves", 4, None)),
        (28, ("lies", 0, 0)),
        (6, ("asks", 7, 1)),
        (24, ("asks", 6, 0)),
    ],
    delays=[1.0, 1.0, 3.0],
    adapts=False,
    knows=False,
    notifies=True,
    in_order=False,
    refuses=[],
    leader=None,
    claims=[],
)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    schedule=schedules,
    delays=st.lists(st.sampled_from([1.0, 0.1, 0.5, 0.0, 3.0]), min_size=1, max_size=12),
    adapts=st.booleans(),
    knows=st.booleans(),
    notifies=st.booleans(),
    in_order=st.booleans(),
    refuses=st.lists(ranks, max_size=1),
    leader=st.one_of(st.none(), st.integers(0, FOUNDERS - 1)),
    claims=st.lists(ranks, max_size=3),
)
def test_members_agree(
    schedule: list[tuple[int, tuple[str, int, Any]]],
    delays: list[float],
    adapts: bool,
    knows: bool,
    notifies: bool,
    in_order: bool,
    refuses: list[int],
    leader: int | None,
    claims: list[int],
) -> None:
    at = [0]

    def delay(most: float) -> float:
        at[0] += 1
        return most * delays[at[0] % len(delays)]

    world = Groups(knows=knows, notifies=notifies, leader=leader, delay=delay, adapts=adapts, deaths_in_order=in_order)
    world.programs = Programs(world)
    world.refuses = refuses
    for rank in range(FOUNDERS + OTHERS):
        world[rank].on((statuses.GROUP_MEMBER_FAILED, statuses.GROUP_LEFT, statuses.GROUP_MEMBERSHIP_UPDATE))
        claim = (flag(keys.GROUP_LEADER),) if rank in claims else ()
        world[rank].on(statuses.GROUP_LEADER_FAILED, lambda event, claim=claim: (statuses.EVENT_ACTION_COMPLETE, claim))
    for when, (what, rank, more) in sorted(schedule, key=lambda each: each[0]):
        call = {
            "leaves": lambda rank=rank: world.leaves(rank),
            "kill": lambda rank=rank: world.kill(rank),
            "asks": lambda rank=rank, more=more: world.asks(rank, more),
            "lies": lambda rank=rank, more=more: world.lies(rank, more),
        }[what]
        world.after(when * 0.005, call)
    try:
        world.programs.run()
        world.check()
    except AssertionError:
        note("\n".join(world.log))
        raise
    finally:
        world.programs.close()
