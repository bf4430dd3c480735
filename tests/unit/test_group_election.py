"""Proves how a leader that fails is replaced: in an invitation at every moment of it, and in a group that stands."""

from __future__ import annotations

from typing import Any

import pytest

from lib.group_world import NSPACE, Ticket, World
from pypmix.engine.groups import talk
from pypmix.engine.groups.election import GRACE, KNOWN, LeaderChoice
from pypmix.standard import attrs, keys, statuses
from pypmix.standard.ops import GroupInvite, GroupInviteControl, GroupJoin, GroupLeave, Notification, NotifyEvent
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import Info, Proc

G = "team"
P = [Proc(NSPACE, rank) for rank in range(8)]
CLAIMS = (0, (attrs.GROUP_LEADER(True),))
GIVES_UP = statuses.GROUP_CONSTRUCT_ABORT
HEARD = (
    statuses.GROUP_CONSTRUCT_COMPLETE,
    statuses.GROUP_CONSTRUCT_ABORT,
    statuses.GROUP_LEADER_SELECTED,
    statuses.GROUP_INVITE_ACCEPTED,
    statuses.GROUP_INVITE_FAILED,
)


class Cast:
    """One that invites and is to fail, and the others.

    Args:
        size: How many there are.
        reactions: What each of them answers when the leader fails; those who are not named go on.
        directives: Of the invitation.
        accept: Who accepts at once; by default all but the last one, who takes its time.
    """

    def __init__(
        self,
        size: int,
        reactions: dict[int, Any] | None = None,
        *directives: Info,
        accept: Any = None,
        within: float = 0.01,
        **world: Any,
    ) -> None:
        self.world = World(size, **world)
        self.joins: dict[int, Ticket] = {}
        accept = range(1, size - 1) if accept is None else accept
        for rank in range(1, size):
            process = self.world[rank]
            process.on(statuses.GROUP_INVITED, lambda event, rank=rank: self.join(rank) if rank in accept else None)
            answer = (reactions or {}).get(rank)
            process.on(statuses.GROUP_LEADER_FAILED, lambda event, answer=answer: answer, within=within)
            process.on(HEARD)
        self.invite = self.world[0].start(GroupInvite(G, tuple(P[1:size]), directives))

    def join(self, rank: int, accept: bool = True, leader: int = 0) -> None:
        self.joins[rank] = self.world[rank].start(GroupJoin(G, P[leader], accept))

    def lead(self) -> dict[int, tuple[int | None, int]]:
        """Return who leads, as each has heard of it, and in which term."""
        result = {}
        for rank in range(1, len(self.world.processes)):
            for event in self.world[rank].events(statuses.GROUP_LEADER_SELECTED):
                leader = talk.found(event.infos, keys.GROUP_LEADER, Proc)
                result[rank] = None if leader is None else leader.rank, talk.found(event.infos, talk.TERM, int)
        return result

    def heard(self, code: int) -> list[int]:
        """Return how often each of the others has heard of an event."""
        return [len(self.world[rank].events(code)) for rank in range(1, len(self.world.processes))]


def members(ticket: Ticket) -> list[int]:
    return [member.rank for member in ticket.result.members]


def at_rest(world: World) -> None:
    assert {what.partition(": ")[2] for what in world.idle()} <= {"standing"}


def test_all_who_are_invited_hear_of_it_and_the_one_who_claims_completes_the_group() -> None:
    cast = Cast(5, {2: CLAIMS})
    cast.world.run()
    cast.world.kill(0)
    cast.world.run(until=cast.world.now + 1)
    assert cast.heard(statuses.GROUP_LEADER_FAILED) == [1, 1, 1, 1]
    assert cast.heard(statuses.GROUP_LEADER_SELECTED) == [1, 1, 1, 1]
    assert cast.lead() == dict.fromkeys(range(1, 5), (2, 2))
    failed = cast.world[1].events(statuses.GROUP_LEADER_FAILED)[0]
    assert talk.found(failed.infos, keys.EVENT_AFFECTED_PROC, Proc) == P[0]
    assert talk.found(failed.infos, keys.GROUP_ID, str) == G
    # One has not answered yet: that one knows whom it was invited by, and may join by that one's name.
    assert not cast.joins[1].over
    cast.join(4)
    cast.world.run()
    for rank in range(1, 5):
        assert members(cast.joins[rank]) == [1, 2, 3, 4]
        state = cast.world[rank].state(G)
        assert (state.leader, state.term) == (P[2], 2)
    assert cast.heard(statuses.GROUP_CONSTRUCT_COMPLETE) == [1, 1, 1, 1]
    # The new leader's handlers hear who accepts.
    accepted = cast.world[2].events(statuses.GROUP_INVITE_ACCEPTED)
    assert {event.source.rank for event in accepted} == {1, 3, 4}
    # Who has been invited by the first leader alone tells the new one whom it expects.
    assert [talk.listed(event.infos, keys.GROUP_MEMBERSHIP) for event in accepted] == [tuple(P[1:5])] * 3
    at_rest(cast.world)


def test_answers_that_come_before_the_new_leader_knows_that_it_leads_count() -> None:
    cast = Cast(5, {2: CLAIMS}, accept=(1, 2, 3))
    world = cast.world
    world.run()
    carry = world.carry

    def slowly(source: Proc, to: Proc, call: Any, most: float = 0.01) -> None:
        carry(source, to, call, 1.0 if (source, to) == (P[1], P[2]) and chosen() else most)

    def chosen() -> bool:
        return any(f" > {statuses.GROUP_LEADER_SELECTED}," in line for line in world.log)

    world.carry = slowly  # type: ignore[method-assign]
    world.kill(0)
    world.run(until=world.now + 2)
    assert cast.lead() == dict.fromkeys(range(1, 5), (2, 2))
    assert not any(cast.joins[rank].over for rank in (1, 2, 3)), "one has not answered"
    cast.join(4)
    world.run(until=world.now + 1)
    assert [members(cast.joins[rank]) for rank in range(1, 5)] == [[1, 2, 3, 4]] * 4


def test_one_may_join_by_the_name_of_the_new_leader() -> None:
    cast = Cast(3, {1: CLAIMS})
    cast.world.run()
    cast.world.kill(0)
    cast.world.run()
    cast.join(2, leader=1)
    cast.world.run()
    assert members(cast.joins[2]) == members(cast.joins[1]) == [1, 2]


def test_who_leads_without_having_answered_has_its_group_when_it_joins() -> None:
    cast = Cast(4, {3: CLAIMS})
    cast.world.run()
    cast.world.kill(0)
    cast.world.run()
    assert members(cast.joins[1]) == [1, 2, 3]
    cast.join(3)
    assert members(cast.joins[3]) == [1, 2, 3]


def test_nobody_claims() -> None:
    cast = Cast(4)
    cast.world.run()
    cast.world.kill(0)
    cast.world.run()
    assert cast.joins[1].status == cast.joins[2].status == statuses.GROUP_LEADER_FAILED
    assert "no proc wanted to lead" in str(cast.joins[1].error)
    assert cast.lead() == dict.fromkeys(range(1, 4), (None, 2))
    selected = cast.world[1].events(statuses.GROUP_LEADER_SELECTED)[0]
    assert talk.found(selected.infos, talk.ERROR_STATUS, int) == statuses.ERR_NOT_FOUND
    cast.join(3)
    assert cast.joins[3].status == statuses.GROUP_LEADER_FAILED
    at_rest(cast.world)


def test_only_one_of_those_who_claim_wins() -> None:
    cast = Cast(6, dict.fromkeys(range(1, 6), CLAIMS))
    cast.world.run()
    cast.world.kill(0)
    cast.world.run(until=cast.world.now + 2)
    leaders = set(cast.lead().values())
    assert len(leaders) == 1
    cast.join(5)
    cast.world.run()
    assert {tuple(members(ticket)) for ticket in cast.joins.values()} == {(1, 2, 3, 4, 5)}


def test_a_handler_that_gives_up_ends_it_for_all() -> None:
    cast = Cast(5, {2: CLAIMS, 3: GIVES_UP})
    cast.world.run()
    cast.world.kill(0)
    cast.world.run()
    assert [cast.joins[rank].status for rank in (1, 2, 3)] == [statuses.GROUP_CONSTRUCT_ABORT] * 3
    assert cast.heard(statuses.GROUP_CONSTRUCT_ABORT) == [1, 1, 1, 1]
    at_rest(cast.world)


def test_a_handler_that_gives_up_when_there_is_a_new_leader_ends_it_as_well() -> None:
    cast = Cast(4, {1: CLAIMS})
    cast.world[2].on(statuses.GROUP_LEADER_FAILED, lambda event: GIVES_UP, within=30)
    cast.world.run()
    cast.world.kill(0)
    cast.world.run()
    # The slow handler's process has a leader by then, which waits for the last one to answer.
    assert set(cast.lead().values()) == {(1, 2)}
    assert cast.joins[1].status == cast.joins[2].status == statuses.GROUP_CONSTRUCT_ABORT
    assert cast.heard(statuses.GROUP_CONSTRUCT_ABORT) == [1, 1, 1]
    at_rest(cast.world)


def test_the_new_leader_keeps_to_what_was_asked_for() -> None:
    cast = Cast(5, {1: CLAIMS}, attrs.GROUP_OPTIONAL(True), attrs.GROUP_ASSIGN_CONTEXT_ID(True), attrs.TIMEOUT(30))
    cast.world.run(until=10)
    cast.world.kill(0)
    cast.world.run()
    for rank in (1, 2, 3):
        assert members(cast.joins[rank]) == [1, 2, 3]
        assert cast.joins[rank].result.context_id is not None
    assert len({cast.joins[rank].result.context_id for rank in (1, 2, 3)}) == 1
    cast.join(4)
    assert cast.joins[4].status == statuses.GROUP_CONSTRUCT_ABORT
    at_rest(cast.world)


def test_one_that_had_declined_declines_again_by_itself() -> None:
    cast = Cast(5, {1: CLAIMS}, attrs.GROUP_OPTIONAL(True), accept=(1, 2))
    cast.world.run()
    cast.join(3, accept=False)
    cast.world.run()
    cast.world.kill(0)
    cast.world.run(until=1)
    cast.join(4)
    cast.world.run()
    assert members(cast.joins[1]) == members(cast.joins[4]) == [1, 2, 4]
    assert len(cast.world[3].events(statuses.GROUP_INVITED)) == 1
    at_rest(cast.world)


def test_new_leaders_fail_as_well() -> None:
    cast = Cast(6, {1: CLAIMS, 2: CLAIMS, 3: CLAIMS})
    world = cast.world
    world.run()
    for rank in (0, 1, 2):
        world.kill(rank)
        world.run(until=world.now + 1)
    assert cast.lead()[3] == cast.lead()[5] == (3, 4)
    cast.join(5)
    world.run()
    for rank in (3, 4, 5):
        assert members(cast.joins[rank]) == [3, 4, 5]
        assert world[rank].state(G).term == 4
    at_rest(world)


def test_who_has_not_heard_that_the_group_stands_hears_it_from_the_others() -> None:
    cast = Cast(5, {4: CLAIMS}, accept=(1, 2, 3, 4))
    world = cast.world
    while not any(
        statuses.GROUP_CONSTRUCT_COMPLETE in [event.code for event in world[rank].seen] for rank in range(1, 5)
    ):
        world.run(until=world.now + 0.001)
    # Now it has reached somebody: have it reach nobody else.
    reached = [rank for rank in range(1, 5) if world[rank].events(statuses.GROUP_CONSTRUCT_COMPLETE)]
    assert reached
    world.kill(0, lose=1)
    world.run()
    for rank in range(1, 5):
        assert members(cast.joins[rank]) == [0, 1, 2, 3, 4]
        state = world[rank].state(G)
        assert (state.leader, state.term, len(state.members)) == (P[4], 2, 4)
    at_rest(world)


@pytest.mark.parametrize("reached", [1, 2, 3])
def test_one_message_that_arrives_is_enough_for_all(reached: int) -> None:
    cast = Cast(4, {}, accept=(1, 2, 3))
    world = cast.world
    carry = world.carry

    def partly(source: Proc, to: Proc, call: Any, most: float = 0.01) -> None:
        carry(source, to, call, most if to.rank in (0, reached) or source != P[0] or not full else 5.0)

    full: list[bool] = []
    world.carry = partly  # type: ignore[method-assign]
    world[0].on(statuses.GROUP_INVITE_ACCEPTED, lambda event: full.append(True) or None)
    world.run(until=1)
    assert cast.joins[reached].status == 0
    assert not any(ticket.over for rank, ticket in cast.joins.items() if rank != reached)
    world.kill(0, lose=2)
    world.run()
    # It is told by who knew it and by who leads the choice, and by nobody again.
    tellers = {int(line.split()[1]) for line in world.log if f" > {KNOWN}," in line}
    assert tellers <= {1, reached}
    assert {tuple(members(ticket)) for ticket in cast.joins.values()} == {(0, 1, 2, 3)}
    assert {world[rank].state(G).leader for rank in range(1, 4)} == {None}
    at_rest(world)


def test_a_coordinator_that_dies_is_replaced() -> None:
    cast = Cast(6, {4: CLAIMS}, within=3)
    world = cast.world
    world.run()
    world.kill(0)
    world.run(until=world.now + 1)
    world.kill(1)
    world.run(until=world.now + 1)
    world.kill(2)
    world.run(until=world.now + 20)
    assert {rank: cast.lead()[rank] for rank in (3, 4, 5)} == dict.fromkeys((3, 4, 5), (4, 2))
    cast.join(5)
    world.run()
    assert members(cast.joins[3]) == [3, 4, 5]
    at_rest(world)


def test_programs_that_do_not_speak_are_waited_for_a_few_seconds() -> None:
    world = World(4)
    tickets: list[Ticket] = []
    for rank in (2, 3):
        world[rank].on(
            statuses.GROUP_INVITED,
            lambda event, rank=rank: tickets.append(world[rank].start(GroupJoin(G, event.source))),
        )
        world[rank].on(statuses.GROUP_LEADER_FAILED, lambda event, rank=rank: CLAIMS if rank == 3 else None)
    # The first one has another library, and is invited again by the new leader.
    world[1]._know(statuses.GROUP_INVITED)
    invited: list[Notification] = []
    world[1].handlers.watch(statuses.GROUP_INVITED, invited.append)
    world[0].start(GroupInvite(G, tuple(P[1:4])))
    world.run()
    world.kill(0)
    at = world.now
    world.run(until=at + 3 * GRACE)
    assert not any(ticket.over for ticket in tickets)
    assert [event.source.rank for event in invited] == [0, 3]
    world[1].notify(
        NotifyEvent(statuses.GROUP_INVITE_ACCEPTED, RANGE_CUSTOM, (talk.proc(keys.EVENT_CUSTOM_RANGE, P[3]),))
    )
    world.run()
    assert [members(ticket) for ticket in tickets] == [[1, 2, 3]] * 2
    at_rest(world)


def test_a_slow_handler_is_waited_for() -> None:
    cast = Cast(4, {2: CLAIMS}, within=10 * GRACE)
    cast.world.run()
    cast.world.kill(0)
    cast.world.run()
    assert set(cast.lead().values()) == {(2, 2)}


def test_where_it_is_not_known_who_else_is_invited_nobody_can_lead() -> None:
    world = World(3)
    joins: list[Ticket] = []
    for rank in (1, 2):
        world[rank].on(statuses.GROUP_LEADER_FAILED, lambda event: CLAIMS)
        world[rank].agent.expect((statuses.GROUP_INVITED,))
        joins.append(world[rank].start(GroupJoin(G, P[0])))
    world.run()
    world.kill(0)
    world.run()
    assert [ticket.status for ticket in joins] == [statuses.GROUP_LEADER_FAILED] * 2
    assert [len(world[rank].events(statuses.GROUP_LEADER_FAILED)) for rank in (1, 2)] == [1, 1]
    at_rest(world)


def test_a_replacement_takes_part() -> None:
    world = World(4)
    joins: dict[int, Ticket] = {}
    for rank in (1, 2, 3):
        world[rank].on(
            statuses.GROUP_INVITED,
            lambda event, rank=rank: joins.update({rank: world[rank].start(GroupJoin(G, event.source, rank != 2))}),
        )
        world[rank].on(statuses.GROUP_LEADER_FAILED, lambda event, rank=rank: CLAIMS if rank == 3 else None)
    world[0].start(GroupInvite(G, tuple(P[1:3]), (), lambda answer: None))
    world.run()
    world[0].start(GroupInviteControl(G, drop=(P[2],), invite=(P[3],)))
    world.run()
    world.kill(0)
    world.run()
    assert members(joins[1]) == members(joins[3]) == [1, 3]
    assert world[1].state(G).leader == P[3]
    at_rest(world)


def test_one_that_declines_during_the_choice_is_not_waited_for() -> None:
    cast = Cast(4, {2: CLAIMS}, attrs.GROUP_OPTIONAL(True), within=3)
    cast.world.run()
    cast.world.kill(0)
    cast.world.run(until=cast.world.now + 1)
    cast.join(3, accept=False)
    cast.world.run()
    assert members(cast.joins[1]) == members(cast.joins[2]) == [1, 2]
    at_rest(cast.world)


# Groups that stand


@pytest.mark.parametrize("adapts", [True, False])
def test_a_group_that_stands_has_a_new_leader(adapts: bool) -> None:
    cast = Cast(4, {3: CLAIMS}, accept=(1, 2, 3), adapts=adapts)
    world = cast.world
    world.run()
    world.kill(0)
    world.run()
    assert cast.heard(statuses.GROUP_LEADER_FAILED) == cast.heard(statuses.GROUP_LEADER_SELECTED) == [1, 1, 1]
    for rank in range(1, 4):
        state = world[rank].state(G)
        assert (state.leader, state.term, state.members) == (P[3], 2, tuple(P[1:4]))
    world.kill(3)
    world.run()
    assert {world[rank].state(G).leader for rank in (1, 2)} == {None}
    assert {world[rank].state(G).term for rank in (1, 2)} == {3}
    at_rest(world)


def test_the_parts_hear_of_the_choice_however_late_they_ask() -> None:
    world = World(3)
    heard: dict[int, list[LeaderChoice]] = {rank: [] for rank in range(3)}
    world[1].on(statuses.GROUP_LEADER_FAILED, lambda event: CLAIMS)

    def begin(rank: int) -> None:
        elections = world[rank].agent.part("election")
        elections.begin(G, P[0:3], Proc("other", 0), term=2, decided=heard[rank].append)

    for rank in range(3):
        world[rank].agent.standing.formed(G, (*P[0:3], Proc("other", 0)), leader=Proc("other", 0))
    begin(0)
    begin(1)
    world.run(until=2 * GRACE)
    # The third one has said that it knows the group, and is waited for.
    assert heard[0] == []
    begin(2)
    world.run()
    assert heard == {rank: [LeaderChoice(P[1])] for rank in range(3)}
    begin(2)
    assert heard[2] == [LeaderChoice(P[1])] * 2


def test_a_choice_that_is_begun_twice_is_shown_to_the_handlers_once() -> None:
    world = World(2)
    leader = Proc("other", 0)
    heard: list[LeaderChoice] = []
    world[0].on(statuses.GROUP_LEADER_FAILED, lambda event: CLAIMS)
    for rank in range(2):
        world[rank].agent.standing.formed(G, (*P[0:2], leader), leader=leader)
    for _ in range(2):
        world[0].agent.part("election").begin(G, P[0:2], leader, term=2, decided=heard.append)
    world[1].agent.part("election").begin(G, P[0:2], leader, term=2, decided=lambda outcome: None)
    world.run()
    assert len(world[0].events(statuses.GROUP_LEADER_FAILED)) == 1
    assert heard == [LeaderChoice(P[0])]


def test_who_coordinates_and_begins_last_has_heard_the_others() -> None:
    world = World(3)
    leader = Proc("other", 0)
    heard: list[LeaderChoice] = []
    world[1].on(statuses.GROUP_LEADER_FAILED, lambda event: CLAIMS)
    for rank in range(3):
        world[rank].agent.standing.formed(G, (*P[0:3], leader), leader=leader)
    for rank in (1, 2, 0):
        world[rank].agent.part("election").begin(G, P[0:3], leader, term=2, decided=heard.append, wishes=rank > 0)
        world.run(until=world.now + 0.5)
    assert heard == [LeaderChoice(P[1])] * 3


def test_one_that_has_left_the_group_is_not_waited_for() -> None:
    world = World(3)
    leader = Proc("other", 0)
    heard: list[LeaderChoice] = []
    for rank in range(3):
        world[rank].agent.standing.formed(G, (*P[0:3], leader), leader=leader)
    world[2].start(GroupLeave(G))
    world.run()
    assert world[2].state(G) is None
    # They have not heard of that yet, and the one that has left never hears that the leader has left as well.
    for rank in range(2):
        world[rank].agent.part("election").begin(G, P[0:3], leader, term=2, decided=heard.append)
    world.run(until=world.now + 2 * GRACE)
    assert heard == [LeaderChoice(None, statuses.ERR_NOT_FOUND)] * 2
    at_rest(world)
