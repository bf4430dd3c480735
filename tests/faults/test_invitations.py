"""Proves that invitations end for all in the same way, whoever dies, declines or is slow, and leave nothing.

On virtual time: what is said takes any time, and comes in any order that keeps what one says to another in order. What
must hold is `Life.check`. A run that fails is shrunk, and told as a story: who did, said and heard what, and when.
`PYPMIX_FAULT_ROUNDS=20000 pytest tests/faults/test_invitations.py` runs longer.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lib.invitations import Life, Plan

EXAMPLES = max(600, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))


"""When whoever has not answered does, and when callers that decide by themselves complete their groups."""

PACES = st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]), min_size=1, max_size=24)
TIMES = st.sampled_from([0.0, 0.003, 0.011, 0.02, 0.021, 0.03, 0.04, 0.05, 0.1, 0.5, 1.0, 2.0, 6.0])
ANSWERS = st.sampled_from(["accept"] * 5 + ["decline", "late", "late decline", "short"])
REACTIONS = st.sampled_from(["", "", "claim", "claim", "abort", "slow claim", "slow abort"])
DECISIONS = st.sampled_from(["", "", "abort", "without", "replace"])
DEATHS = st.lists(st.tuples(TIMES, st.integers(0, 5), st.booleans()), max_size=4)
CONTROLS = st.lists(
    st.tuples(TIMES, st.sampled_from(["drop", "invite", "abort", "complete"]), st.integers(1, 6)), max_size=4
)
PEOPLE = st.lists(st.tuples(ANSWERS, REACTIONS, DECISIONS), min_size=6, max_size=6)


PLANS = st.builds(
    Plan,
    leader=st.just(0),
    name=st.just("team"),
    size=st.integers(2, 5),
    optional=st.booleans(),
    timeout=st.booleans(),
    context=st.booleans(),
    decides=st.sampled_from([False, False, True]),
)
OTHERS = st.one_of(
    st.none(),
    st.builds(
        Plan,
        leader=st.sampled_from([1, 4]),
        name=st.sampled_from(["team", "other"]),
        size=st.integers(2, 5),
        optional=st.booleans(),
        timeout=st.just(False),
        context=st.just(False),
        decides=st.just(False),
        at=TIMES,
    ),
)


# Somebody whom only the leader before has known of accepts, and the new leader has heard of nobody new.
@example(
    plan=Plan(0, "team", 4, False, False, False, False),
    other=None,
    people=[
        ("accept", "", "replace"),
        ("accept", "claim", ""),
        ("late", "", ""),
        ("late", "", ""),
        ("accept", "", ""),
        ("accept", "", ""),
    ],
    paces=[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0],
    deaths=[(0.003, 2, False), (0.011, 0, False)],
    controls=[],
    adapts=False,
    in_order=False,
)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    plan=PLANS,
    other=OTHERS,
    people=PEOPLE,
    paces=PACES,
    deaths=DEATHS,
    controls=CONTROLS,
    adapts=st.booleans(),
    in_order=st.booleans(),
)
def test_invitations_end_for_all_in_the_same_way(plan, other, people, paces, deaths, controls, adapts, in_order):
    plans = [plan] if other is None else [plan, other]
    Life(plans, people, paces, deaths, controls, adapts, in_order).run()
