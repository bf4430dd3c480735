"""Proves that what `faults.invariants` lists holds of whole sessions on virtual time, small and large, in any schedule.

`tox -e faults` goes through many more schedules than CI, which has the same ones each time: `PYPMIX_FAULT_ROUNDS` of
small sessions, and a hundredth of that of large ones. Where something does not hold, the shortest schedule that shows
it is printed.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from faults import invariants
from faults.cluster import SHORT, Cluster, Process
from faults.found import FOUND
from faults.schedules import (
    ADDED,
    BOOT,
    CLIENT,
    DESTRUCT,
    FENCE,
    FLAGS,
    INVITED,
    JOB,
    LEADER,
    LEAVE,
    LINK,
    NAMED,
    PART,
    PROCESS,
    PSET,
    REQUEST,
    SERVER,
    WHOLE,
    Job,
    Loss,
    Plan,
    Play,
    Schedule,
)
from pypmix.standard import attrs
from pypmix.standard.ops import GroupConstruct
from pypmix.standard.types import Info

ROUNDS = int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0"))
SMALL = max(400, ROUNDS)
LARGE = max(4, ROUNDS // 100)

THEN = (
    (),
    (FENCE, FENCE, DESTRUCT),
    (FENCE, LEAVE, FENCE),
    (LEAVE, DESTRUCT),
    (REQUEST,),
    (REQUEST, LEAVE),
    (PART,),
    (PART, FENCE),
    (FENCE, REQUEST, PART),
    (DESTRUCT,),
)

PACES = st.lists(st.sampled_from((1.0, 0.0, 0.1, 0.5, 3.0)), min_size=1, max_size=9).map(tuple)

TOTAL: Counter[str] = Counter()


def plans(most: int, procs: int, ticks: int) -> st.SearchStrategy[Plan]:
    return st.builds(
        Plan,
        st.sampled_from((NAMED, NAMED, NAMED, INVITED, INVITED, BOOT, ADDED, WHOLE, JOB, PSET)),
        st.integers(0, procs - 1),
        st.integers(1, max(1, procs // 3)),
        st.integers(1, most),
        st.integers(0, ticks),
        st.integers(0, 7),
        st.one_of(st.none(), st.integers(0, most - 1)),
        st.sampled_from((0, 0, 1, 4)),
        st.sampled_from(THEN),
        st.integers(0, 15),
    )


def losses(servers: int, procs: int, ticks: int) -> st.SearchStrategy[Loss]:
    kinds = (PROCESS, PROCESS, LEADER, LEADER, CLIENT, SERVER, LINK)
    return st.builds(
        Loss, st.integers(0, ticks), st.sampled_from(kinds), st.integers(0, procs - 1), st.integers(0, servers - 1)
    )


@st.composite
def schedules(
    draw: st.DrawFn,
    servers: tuple[int, int],
    jobs: tuple[int, int],
    ranks: tuple[int, int],
    groups: tuple[int, int],
    size: int,
    lost: int,
    ticks: int,
) -> Schedule:
    number = draw(st.integers(*servers))
    job = st.builds(Job, st.integers(0, number - 1), st.integers(1, number), st.integers(*ranks))
    made = tuple(draw(st.lists(job, min_size=jobs[0], max_size=jobs[1])))
    procs = sum(min(each.servers, number) * each.ranks for each in made)
    return Schedule(
        number,
        made,
        draw(PACES),
        tuple(draw(st.lists(plans(size, procs, ticks), min_size=groups[0], max_size=groups[1]))),
        tuple(draw(st.lists(losses(number, procs, ticks), max_size=lost))),
    )


def play(schedule: Schedule) -> None:
    """Carry a schedule out; where something does not hold, tell what has happened."""
    run = Play(schedule)
    began = time.process_time()
    try:
        run.run()
        invariants.hold(run)
    except AssertionError:
        again = Play(schedule, logs=True)
        again.run()
        note("\n".join((again.world.log or ())[-400:]))
        raise
    finally:
        TOTAL["schedules"] += 1
        TOTAL["servers"] += len(run.world.nodes)
        TOTAL["processes"] += len(run.world.procs)
        TOTAL["groups"] += sum(any(t.over and t.error is None for t in each.values()) for each in run.made.values())
        TOTAL["operations"] += sum(len(process.tickets) for process in run.world.processes.values())
        TOTAL["seconds"] += round(time.process_time() - began)
        TOTAL.update({f"lost {kind}": number for kind, number in run.world.losses.items()})


@pytest.fixture(scope="module", autouse=True)
def totals() -> object:
    """Tell at the end of a longer run how much it was."""
    yield
    if ROUNDS:
        print("\n" + ", ".join(f"{what}: {number}" for what, number in TOTAL.items()))


@pytest.mark.parametrize("schedule", FOUND.values(), ids=FOUND)
def test_sessions_that_have_shown_a_fault(schedule: Schedule) -> None:
    play(schedule)


@pytest.mark.parametrize("directives", [(), FLAGS[:1], FLAGS[1:2]], ids=["plain", "optional", "tolerant"])
@pytest.mark.parametrize("kind", [NAMED, BOOT, ADDED])
def test_one_that_ends_during_a_construct_is_no_member_for_those_who_heard_of_it_before_they_called(
    kind: str, directives: tuple[Info, ...]
) -> None:
    """The server that decides hears of the end last: by then the dead one's contribution has counted."""
    world = Cluster(4, {"job": [1, 1, 0, 2, 3]}, (1.0,))
    everybody = [world[number] for number in range(5)]
    dead, late = everybody[0], everybody[3]

    def construct(process: Process) -> None:
        procs = tuple([each.proc for each in everybody])
        infos = directives
        if kind == BOOT:
            procs, infos = (process.proc,), (attrs.GROUP_BOOTSTRAP(5), *infos)
        elif kind == ADDED:
            added = (late.proc,)
            procs = tuple([proc for proc in procs if proc not in added]) if process is not late else ()
            infos = (attrs.GROUP_ADD_MEMBERS(added), *infos) if process is everybody[1] else infos
        process.start(GroupConstruct("g", procs, infos))

    # Only a member of some group hears of ends.
    others = tuple([each.proc for each in everybody[2:4]])
    for process in everybody[2:4]:
        process.start(GroupConstruct("other", others))
    world.run(1)
    for process in everybody:
        if process is not late:
            construct(process)
    world.run(1)
    first, second, third, _ = world.nodes
    world.hub._delay = lambda one, other: 2.0 if one == second.name and other != third.name else SHORT
    assert first.exchange.name < second.exchange.name, "another one decides"
    world.kill(dead)
    world.run(1)
    construct(late)
    world.run(9)
    found = [{*process.state("g").members} for process in everybody[1:]]
    assert found == [{process.proc for process in everybody[1:]}] * 4


@pytest.mark.timeout(300 + SMALL)
@settings(max_examples=SMALL, suppress_health_check=list(HealthCheck), print_blob=True)
@given(schedules((1, 4), (1, 2), (1, 3), (1, 4), 6, 6, 120))
def test_small_sessions(schedule: Schedule) -> None:
    play(schedule)


@pytest.mark.timeout(300 + SMALL)
@settings(max_examples=SMALL // 4, suppress_health_check=list(HealthCheck), print_blob=True)
@given(schedules((5, 8), (1, 1), (1, 2), (1, 2), 3, 2, 120))
def test_small_groups_over_many_servers(schedule: Schedule) -> None:
    """Where most servers have one member of a group, none hears by chance what only the others are told."""
    play(schedule)


@st.composite
def large_schedules(draw: st.DrawFn) -> Schedule:
    """Dozens of servers, some two to five thousand processes, and groups of all sizes at once."""
    random = draw(st.randoms(use_true_random=False))
    number = random.randint(24, 48)
    jobs = [Job(random.randrange(number), random.randint(6, 12), random.randint(20, 50)) for _ in range(9)]
    # One job has ranks everywhere.
    jobs.append(Job(0, number, 2))
    procs = sum(job.servers * job.ranks for job in jobs)
    kinds = (NAMED,) * 8 + (INVITED,) * 4 + (BOOT, BOOT, ADDED, ADDED, PSET)
    made = [Plan(WHOLE, len(jobs) - 1, 1, 1, random.randint(0, 400), random.randint(0, 7), None, 0, THEN[1], 5)]
    made += [Plan(JOB, job, 1, 1, random.randint(0, 400), 0, None, 0, (), 0) for job in range(len(jobs) - 1)]
    for _ in range(60):
        size = int(2 ** random.uniform(1, 6.5))
        stride = random.choice((1, 1, 7, procs // (size + 1)))
        leader = random.choice((None, random.randrange(size)))
        when, flags, limit = random.randint(0, 400), random.randint(0, 7), random.choice((0, 0, 1, 4))
        who = random.choice(kinds), random.randrange(procs), stride, size
        made.append(Plan(*who, when, flags, leader, limit, random.choice(THEN), random.randint(0, 15)))
    lost = [Loss(random.randint(0, 500), PROCESS, random.randrange(procs)) for _ in range(random.randint(0, 8))]
    lost += [Loss(random.randint(0, 500), LEADER, random.randrange(70)) for _ in range(random.randint(0, 8))]
    lost += [Loss(random.randint(0, 500), CLIENT, random.randrange(procs)) for _ in range(random.randint(0, 4))]
    lost += [Loss(random.randint(0, 500), SERVER, random.randrange(number)) for _ in range(random.randint(0, 2))]
    lost += [
        Loss(random.randint(0, 500), LINK, random.randrange(number), random.randrange(number))
        for _ in range(random.randint(0, 2))
    ]
    paces = tuple([random.choice((0.0, 0.1, 0.5, 1.0, 1.0, 3.0)) * random.random() for _ in range(251)])
    return Schedule(number, tuple(jobs), paces, tuple(made), tuple(lost))


@pytest.mark.timeout(600 + 120 * LARGE)
@settings(
    max_examples=LARGE,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(large_schedules())
def test_large_sessions(schedule: Schedule) -> None:
    play(schedule)
