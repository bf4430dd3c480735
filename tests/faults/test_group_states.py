"""Proves that groups under way go through the states of the tables that the documentation draws, and through all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from lib.group_changes import FOUNDERS, NAME, OTHERS, Groups
from lib.group_world import NSPACE, Ticket, World, is_idle
from lib.invitations import Life, Plan
from lib.virtual import Programs
from pypmix.engine.groups import election, talk
from pypmix.engine.groups.states import MACHINES
from pypmix.engine.states import Machine
from pypmix.standard import attrs, keys, statuses
from pypmix.standard.ops import (
    GroupInvite,
    GroupInviteControl,
    GroupJoin,
    GroupWatch,
    Notification,
    NotifyEvent,
)
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import Info, Proc

EXAMPLES = max(100, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))

G = "team"
P = [Proc(NSPACE, rank) for rank in range(8)]

TIMES = (0.0, 0.003, 0.011, 0.02, 0.021, 0.03, 0.04, 0.05, 0.1, 0.5, 1.0, 2.0, 6.0)
PACES = (0.0, 0.01, 0.1, 0.5, 1.0)
ANSWERS = (*["accept"] * 5, "decline", "late", "late decline", "short")
REACTIONS = ("", "", "claim", "claim", "abort", "slow claim", "slow abort")
DECISIONS = ("", "", "abort", "without", "replace")


def lose(world: World, rank: int) -> None:
    """The session of a process ends while it lives, and then the process."""
    process = world[rank]
    if not process.dead:
        process.agent.handle_disconnect(None)
    world.kill(rank)


def invitations(random: Random) -> None:
    """Play invitations, with deaths and sessions that end."""
    choice, many = random.choice, random.randint
    plans = [Plan(0, "team", many(2, 5), many(0, 1), many(0, 1), many(0, 1), choice([False, False, True]))]
    if many(0, 1):
        plans.append(Plan(choice([1, 4]), choice(["team", "other"]), many(2, 5), many(0, 1), 0, 0, 0, choice(TIMES)))
    life = Life(
        plans,
        [(choice(ANSWERS), choice(REACTIONS), choice(DECISIONS)) for _ in range(6)],
        [choice(PACES) for _ in range(many(1, 24))],
        [(choice(TIMES), many(0, 5), many(0, 1)) for _ in range(many(0, 4))],
        [(choice(TIMES), choice(["drop", "invite", "abort", "complete"]), many(1, 6)) for _ in range(many(0, 4))],
        many(0, 1),
        many(0, 1),
    )
    world = life.world

    def invite_again(rank: int) -> None:
        if not world[0].dead:
            world[0].start(GroupInviteControl("team", invite=(Proc(NSPACE, rank),)))

    odd = many(0, 3)
    if odd == 0:
        world.after(choice(TIMES), lambda: lose(world, many(0, 5)))
    elif odd == 1:
        world.after(choice(TIMES), lambda: invite_again(many(1, 5)))
    world.run()
    if odd > 1:
        life.check()


def standing(random: Random) -> None:
    """Play a group that stands, which some leave and others ask to join."""
    choice, many = random.choice, random.randint
    paces = [choice((1.0, 0.1, 0.5, 0.0, 3.0)) for _ in range(many(1, 12))]
    numbers = iter(range(1 << 40))
    world = Groups(
        knows=bool(many(0, 1)),
        notifies=bool(many(0, 1)),
        leader=choice((None, *range(FOUNDERS))),
        delay=lambda most: most * paces[next(numbers) % len(paces)],
        adapts=bool(many(0, 1)),
        deaths_in_order=bool(many(0, 1)),
    )
    programs = world.programs = Programs(world)
    for rank in range(FOUNDERS + OTHERS):
        if many(0, 9) == 0:
            world.refuses.append(rank)
        claim = (talk.flag(keys.GROUP_LEADER),) if many(0, 1) else ()
        world[rank].on(statuses.GROUP_LEADER_FAILED, lambda event, claim=claim: (0, claim), within=choice((0.01, 8.0)))
    for _ in range(many(0, 12)):
        at, what, rank = many(0, 40) * 0.005, choice(("leaves", "kill", "asks", "asks", "lost")), many(0, 7)
        timeout = choice((0, 1))
        call = {
            "leaves": lambda rank=rank: world.leaves(rank),
            "kill": lambda rank=rank: world.kill(rank),
            "asks": lambda rank=rank, timeout=timeout: world.asks(rank, timeout),
            "lost": lambda rank=rank: lose(world, rank),
        }[what]
        world.after(at, call)
    if many(0, 3) == 0:
        at, rank = choice(TIMES), many(0, 7)
        world.after(at, lambda: lose(world, rank))
    programs.run()
    programs.close()


# What chance seldom brings about


def cast(size: int, late: tuple[int, ...] = (), *directives: Info, slow: bool = True) -> World:
    """Return a world where 0 has invited all others, who accept at once or late; all claim, and are slow in that."""
    world = World(size)
    claims = 0, (attrs.GROUP_LEADER(True),)

    def joins(rank: int) -> None:
        if rank not in late:
            join(world, rank, *directives)

    for rank in range(1, size):
        process = world[rank]
        process.on(statuses.GROUP_INVITED, lambda event, rank=rank: joins(rank))
        process.on(statuses.GROUP_LEADER_FAILED, lambda event: claims, within=8 if slow else 0.01)
    return world


def join(world: World, rank: int, *directives: Info, accept: bool = True) -> Ticket:
    return world[rank].start(GroupJoin(G, P[0], accept, directives))


def void(result: object) -> None:
    """A handler that answers nothing."""


def invite(world: World, *directives: Info, answers: Any = None) -> None:
    world[0].start(GroupInvite(G, tuple(P[1 : len(world.processes)]), directives, answers))


def arrives(world: World, source: int, to: int, op: NotifyEvent) -> None:
    """Something arrives, whether its source has sent it or not."""
    world[to].arrives(Notification(int(op.code), P[source], int(op.range), op.infos))


ABOUT = talk.size(talk.TERM, 2), talk.proc(election.FAILED, P[0])
CHOSEN = talk.event(statuses.GROUP_LEADER_SELECTED, G, (P[2],), (talk.proc(keys.GROUP_LEADER, P[1]), *ABOUT))


def coordinators() -> None:
    """One takes part, or coordinates since the one before has said that it takes no part; then all kinds of things."""
    actions: tuple[Callable[[World], object], ...] = (
        lambda world: arrives(world, 1, 2, talk.say(election.ASK, G, (P[2],), ABOUT)),
        lambda world: arrives(world, 1, 2, CHOSEN),
        lambda world: join(world, 2, accept=False),
        lambda world: lose(world, 2),
    )
    for size, head in ((3, 1), (3, 2), (4, 2)):
        for action in actions:
            world = cast(size, late=(2,))
            invite(world)
            world.run(1.0)
            world.kill(0)
            world.run(1.02)
            if head == 2:
                arrives(world, 1, 2, talk.say(election.OUT, G, (P[2],), ABOUT))
            action(world)
            world.run()


def choices() -> None:
    """A choice is heard of before the failure; a result that one has not heard of is found by the choice."""
    world = cast(4, late=(3,))
    invite(world)
    world.run(1.0)
    assert is_idle("election", world[2].agent.part("election"))
    arrives(world, 1, 2, CHOSEN)
    world.kill(0)
    world.run()

    world = cast(3)
    invite(world)
    heard = world[2].arrives
    world[2].arrives = lambda event: None if event.code == statuses.GROUP_CONSTRUCT_COMPLETE else heard(event)  # type: ignore[method-assign]
    world.run(1.0)
    world.kill(0)
    world.run()
    assert world[2].state(G) is not None

    for rank, when in ((1, 0.2), (1, 1.0), (3, 0.2)):
        stands = Groups(knows=False, notifies=True, leader=0)
        stands.run(0.1)
        stands[2].arrives = lambda event: None  # type: ignore[method-assign]
        stands.kill(0)
        stands.run(when)
        lose(stands, rank)
        stands.run()


def leaders() -> None:
    """One leads before its program has answered; a time to join runs out while there is no leader."""
    ends: tuple[Callable[[World], object], ...] = (
        lambda world: None,
        lambda world: join(world, 1),
        lambda world: join(world, 1, accept=False),
        lambda world: join(world, 2, accept=False),
    )
    for action in ends:
        world = cast(3, late=(1, 2), slow=False)
        invite(world)
        world.run(1.0)
        world.kill(0)
        world.run(3.0)
        action(world)
        world.run(5.0)
        join(world, 2)
        world.run()
    world = cast(3, (2,), attrs.TIMEOUT(1))
    invite(world)
    world.run(0.5)
    world.kill(0)
    world.run(1.0)
    join(world, 2)
    world.run()


def answers() -> None:
    """Some are invited again, and some answer when their time has run out."""
    for again in (True, False):
        world = cast(5, late=(1, 2, 3, 4))
        invite(world, attrs.TIMEOUT(2), answers=lambda answer: None)
        world.run(1.0)
        join(world, 1, accept=False)
        world.run(3.0)
        if again:
            world[0].start(GroupInviteControl(G, invite=(P[1], P[2])))
            world.run(4.0)
        else:
            join(world, 2)
            join(world, 3, accept=False)
            world.run(4.0)
            world[0].start(GroupInviteControl(G, drop=tuple(P[1:5])))
            world.run(5.0)
        world[0].start(GroupInviteControl(G, abort=True))
        world.run()
    world = cast(3, late=(1, 2))
    invite(world, answers=lambda answer: None)
    world.run(1.0)
    world[0].start(GroupInviteControl(G, drop=(P[1],)))
    lose(world, 0)
    world.run()


def groups() -> None:
    """Groups that are destructed, or hear who leads, in each of their states."""

    def stands(leader: int | None) -> Groups:
        world = Groups(knows=False, notifies=False, leader=leader)
        world.run(0.1)
        return world

    for leader in (0, None):
        stands(leader)[2].agent.standing.dissolve(NAME)
    world = stands(0)
    world[1].on(statuses.GROUP_LEADER_FAILED, lambda event: 0, never=True)
    world.kill(0)
    world.run(0.15)
    world[2].agent.standing.dissolve(NAME)
    # A member that has declared itself says so late.
    arrives(stands(None), 1, 2, talk.say("standing leads", NAME, (P[2],)))
    # The registrar tells one that it has taken in of choices, of which that one hears nothing else.
    for chosen in (P[1], None):
        for leader in (0, None):
            stands(leader)[2].agent.standing.led(NAME, chosen, 2)
    # One hears that the leader has left, and the others only that it has ended.
    world = stands(0)
    about = (
        talk.procs(keys.EVENT_CUSTOM_RANGE, (P[2],)),
        talk.text(keys.GROUP_ID, NAME),
        talk.proc(keys.EVENT_AFFECTED_PROC, P[0]),
    )
    arrives(world, 0, 2, NotifyEvent(statuses.GROUP_LEFT, RANGE_CUSTOM, about))
    assert world[2].state(NAME).leader is None
    for rank in range(1, FOUNDERS):
        world[rank].on(statuses.GROUP_LEADER_FAILED, lambda event: (0, (talk.flag(keys.GROUP_LEADER),)))
    world.kill(0)
    world.run()
    assert {(world[rank].state(NAME).leader, world[rank].state(NAME).term) for rank in range(1, FOUNDERS)} == {
        (P[1], 2)
    }
    assert not world[2].events(statuses.GROUP_LEADER_FAILED)
    # A leader that leaves is followed by another one where members want that.
    world = stands(0)
    for rank in range(FOUNDERS):
        world[rank].start(GroupWatch(NAME, lambda change: None, elects=True))
    world.leaves(0)
    world.run()


SCENES = (coordinators, choices, leaders, answers, groups)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[type[Machine], str, str, str]]:
    """All changes of states from now on: the machine, a state, what has happened, and the state after that."""
    seen: Counter[tuple[type[Machine], str, str, str]] = Counter()
    step = Machine.__dict__["step"].__func__

    def watched(cls: type[Machine], state: str, what: str) -> str:
        after: str = step(cls, state, what)
        seen[cls, state, what, after] += 1
        return after

    monkeypatch.setattr(Machine, "step", classmethod(watched))
    return seen


def test_a_join_ends_with_the_session_of_one_who_leads_by_now() -> None:
    world = cast(3, late=(1, 2), slow=False)
    invite(world)
    world.run(1.0)
    accepted = join(world, 1)
    world.kill(0)
    world.run(3.0)
    assert not accepted.over
    lose(world, 1)
    assert accepted.error is not None


def test_a_handler_may_name_one_to_invite_instead_twice() -> None:
    world = World(4)
    world[0].on(statuses.GROUP_INVITE_DECLINED, lambda event: (0, (talk.procs(keys.GROUP_ADD_MEMBERS, (P[3], P[3])),)))
    for rank in (1, 2, 3):
        world[rank].on(statuses.GROUP_INVITED, lambda event, rank=rank: void(join(world, rank, accept=rank != 1)))
    made = world[0].start(GroupInvite(G, (P[1], P[2])))
    world.run()
    assert made.result.members == (P[0], P[2], P[3])


def test_an_invitation_that_comes_after_its_leader_has_failed_is_that_of_a_join_before() -> None:
    world = World(3)
    joined = world[2].start(GroupJoin(G, P[0], True, (talk.procs(keys.GROUP_MEMBERSHIP, P[:3]),)))
    world.run(0.5)
    world.kill(0)
    world.run(1.0)
    arrives(
        world,
        0,
        2,
        talk.event(
            statuses.GROUP_INVITED,
            G,
            (P[2],),
            (talk.procs(keys.GROUP_MEMBERSHIP, P[:3]), talk.text("pypmix.grp.invitation", "1")),
        ),
    )
    world.run()
    assert joined.status == statuses.GROUP_LEADER_FAILED
    assert "2: joining" not in world.idle() and "2: election" not in world.idle()


@pytest.mark.timeout(90 + EXAMPLES // 10)
def test_every_change_of_state_is_in_the_tables_and_each_of_them_comes_about(
    seen: Counter[tuple[type[Machine], str, str, str]],
) -> None:
    for seed in range(EXAMPLES):
        invitations(Random(seed))
        standing(Random(seed))
    for scene in SCENES:
        scene()
    rows = {(machine, row.state, row.what, row.next) for machine in MACHINES.values() for row in machine.ROWS}
    assert set(seen) - rows == set()
    assert {(machine.__name__, *what) for machine, *what in rows - set(seen)} == set()
