"""Proves what becomes of invitations: every answer, failure and decision, on the leader's side and on the others'."""

from __future__ import annotations

from typing import Any

import pytest

from lib.group_world import ATTEMPT, NSPACE, Process, Ticket, World
from pypmix.engine.groups import talk
from pypmix.engine.groups.inviting import INVITATION
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import OperationTimeout, PMIxError
from pypmix.standard.keys import (
    EVENT_AFFECTED_PROC,
    EVENT_CUSTOM_RANGE,
    EVENT_NON_DEFAULT,
    GROUP_ADD_MEMBERS,
    GROUP_CONTEXT_ID,
    GROUP_ENDPT_DATA,
    GROUP_ID,
    GROUP_INFO,
    GROUP_MEMBERSHIP,
)
from pypmix.standard.ops import (
    GroupAnswer,
    GroupInvite,
    GroupInviteControl,
    GroupJoin,
    GroupLeave,
    Notification,
    NotifyEvent,
)
from pypmix.standard.ops.groups import ACCEPTED, DECLINED, FAILED
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value

G = "team"
P = [Proc(NSPACE, rank) for rank in range(8)]


def asks(process: Process, procs: Any, *directives: Info, answers: Any = None, name: str = G) -> Ticket:
    """Invite."""
    return process.start(GroupInvite(name, tuple(procs), directives, answers))


def answering(process: Process, accept: bool = True, *directives: Info, reason: str = "") -> list[Ticket]:
    """Have a process answer invitations as they come."""
    tickets: list[Ticket] = []

    def invited(event: Notification) -> None:
        name = talk.found(event.infos, GROUP_ID, str)
        assert name is not None
        tickets.append(process.start(GroupJoin(name, event.source, accept, directives, reason)))

    process.on(statuses.GROUP_INVITED, invited)
    return tickets


def at_rest(world: World) -> None:
    assert world.idle() == [] or {what.partition(": ")[2] for what in world.idle()} <= {"standing"}


def names(ticket: Ticket) -> list[int]:
    return [member.rank for member in ticket.result.members]


def test_who_accepts_is_a_member_and_nobody_has_the_group_before_all_have_answered() -> None:
    world = World(4)
    joins = [answering(world[rank]) for rank in (1, 2)]
    invite = asks(world[0], P[1:4])
    world.run(until=5)
    assert not invite.over
    assert not joins[0][0].over
    late = answering(world[3])
    world.run()
    tickets = [invite, joins[0][0], joins[1][0], late[0]]
    assert [names(ticket) for ticket in tickets] == [[0, 1, 2, 3]] * 4
    assert not any(ticket.result.partial for ticket in tickets)
    for rank in range(4):
        state = world[rank].state(G)
        assert (state.members, state.leader, state.term) == (tuple(P[:4]), P[0], 1)
    at_rest(world)


def test_the_leader_comes_first_and_the_others_as_they_were_named() -> None:
    world = World(4)
    joins = [answering(world[rank]) for rank in range(3)]
    invite = asks(world[3], (P[2], P[0], P[3], P[1]))
    world.run()
    assert names(invite) == [3, 2, 0, 1]
    assert names(joins[0][0]) == [3, 2, 0, 1]


def test_a_whole_namespace_is_invited_by_its_wildcard() -> None:
    world = World(3)
    for rank in (1, 2):
        answering(world[rank])
    invite = asks(world[0], (Proc(NSPACE, RANK_WILDCARD),))
    world.run()
    assert names(invite) == [0, 1, 2]


def test_members_of_a_group_are_invited_by_its_name() -> None:
    world = World(3)
    for rank in (1, 2):
        answering(world[rank])
    asks(world[0], P[1:3])
    world.run()
    second = asks(world[0], (Proc(G, 2),), name="second")
    world.run()
    assert names(second) == [0, 2]
    with pytest.raises(PMIxError, match="no rank 3"):
        raise asks(world[0], (Proc(G, 3),), name="third").error or AssertionError


@pytest.mark.parametrize(
    ("procs", "status"),
    [((), statuses.ERR_BAD_PARAM), ((Proc("nobody", RANK_WILDCARD),), statuses.ERR_NOT_FOUND)],
)
def test_an_invitation_of_nobody_is_refused(procs: tuple[Proc, ...], status: int) -> None:
    world = World(2)
    invite = asks(world[0], procs)
    assert invite.status == status
    at_rest(world)


def test_who_invites_itself_alone_has_a_group_alone() -> None:
    world = World(2)
    invite = asks(world[0], (P[0],))
    world.run()
    assert names(invite) == [0]
    assert not invite.result.partial


def test_nothing_is_expected_when_an_invitation_that_replaces_another_one_ends() -> None:
    """A server may lose the event that the first one has ended."""
    world = World(2)
    world[1].on(statuses.GROUP_INVITED)
    for token in "first", "second":
        about = talk.text(GROUP_ID, G), talk.text(INVITATION, token)
        world[0].notify(_told(P[1], *about, code=statuses.GROUP_INVITED))
        world.run()
    assert world[1].agent.standing.expects(G)
    world[0].notify(_told(P[1], *about, code=statuses.GROUP_CONSTRUCT_ABORT))
    world.run()
    assert not world[1].agent.standing.expects(G)


def test_an_invitation_waits_for_a_handler_that_comes_late() -> None:
    world = World(2)
    world[1].agent.expect((statuses.GROUP_INVITED,))
    invite = asks(world[0], (P[1],))
    world.run(until=3)
    joins = answering(world[1])
    world.run()
    assert names(invite) == names(joins[0]) == [0, 1]
    assert len(world[1].events(statuses.GROUP_INVITED)) == 1


def test_the_handlers_hear_of_each_thing_once() -> None:
    world = World(2)
    codes_of_all = (
        statuses.GROUP_INVITE_ACCEPTED,
        statuses.GROUP_INVITE_DECLINED,
        statuses.GROUP_INVITE_FAILED,
        statuses.GROUP_CONSTRUCT_COMPLETE,
        statuses.GROUP_CONSTRUCT_ABORT,
        statuses.GROUP_LEADER_FAILED,
    )
    for rank in (0, 1):
        world[rank].on(codes_of_all)
    answering(world[1])
    asks(world[0], (P[1],))
    world.run()
    assert [event.code for event in world[0].seen] == [
        statuses.GROUP_INVITE_ACCEPTED,
        statuses.GROUP_CONSTRUCT_COMPLETE,
    ]
    assert [event.code for event in world[1].seen] == [statuses.GROUP_INVITED, statuses.GROUP_CONSTRUCT_COMPLETE]
    complete = world[1].events(statuses.GROUP_CONSTRUCT_COMPLETE)[0]
    assert complete.source == P[0]
    assert talk.listed(complete.infos, GROUP_MEMBERSHIP) == (P[0], P[1])


# Declining, failing


def test_a_decline_ends_the_invitation_for_all_and_says_why() -> None:
    world = World(3)
    joins = answering(world[1])
    declines = answering(world[2], False, reason="busy today")
    world[0].on(statuses.GROUP_INVITE_DECLINED)
    invite = asks(world[0], P[1:3])
    world.run()
    assert invite.status == joins[0].status == statuses.GROUP_CONSTRUCT_ABORT
    assert str(P[2]) in str(invite.error)
    assert declines[0].status == 0
    assert declines[0].result is None
    assert talk.found(world[0].events(statuses.GROUP_INVITE_DECLINED)[0].infos, talk.REASON, str) == "busy today"
    assert world[1].state(G) is None
    at_rest(world)


def test_with_optional_the_group_is_made_of_those_who_accept() -> None:
    world = World(4)
    joins = answering(world[1])
    answering(world[2], False)
    world[3].on(statuses.GROUP_INVITED)
    world[3].on(statuses.GROUP_CONSTRUCT_ABORT)
    invite = asks(world[0], P[1:4], attrs.GROUP_OPTIONAL(True), attrs.TIMEOUT(4))
    world.run()
    assert names(invite) == names(joins[0]) == [0, 1]
    assert invite.result.partial
    assert joins[0].result.partial
    # Who had not answered by then hears that it is too late, and can say nothing any more.
    assert len(world[3].events(statuses.GROUP_CONSTRUCT_ABORT)) == 1
    late = world[3].start(GroupJoin(G, P[0]))
    world.run()
    assert late.status == statuses.GROUP_CONSTRUCT_ABORT
    at_rest(world)


def test_an_invitation_that_is_not_answered_in_time_is_given_up() -> None:
    world = World(3)
    joins = answering(world[1])
    world[2].on(statuses.GROUP_INVITED)
    world[0].on(statuses.GROUP_INVITE_FAILED)
    invite = asks(world[0], P[1:3], attrs.TIMEOUT(4))
    world.run()
    assert invite.status == joins[0].status == statuses.GROUP_CONSTRUCT_ABORT
    assert invite.at == pytest.approx(4, abs=0.2)
    failed = world[0].events(statuses.GROUP_INVITE_FAILED)
    assert [talk.found(event.infos, EVENT_AFFECTED_PROC, Proc) for event in failed] == [P[2]]
    at_rest(world)


@pytest.mark.parametrize("accepts", [False, True])
@pytest.mark.parametrize("optional", [False, True])
def test_an_invited_process_that_ends_has_failed(accepts: bool, optional: bool) -> None:
    world = World(4)
    joins = answering(world[1])
    if accepts:
        answering(world[2])
    world[0].on(statuses.GROUP_INVITE_FAILED)
    invite = asks(world[0], P[1:4], attrs.GROUP_OPTIONAL(optional))
    world.run(until=1)
    world.kill(2)
    world.run(until=2)
    answering(world[3])
    world.run()
    assert len(world[0].events(statuses.GROUP_INVITE_FAILED)) == 1
    if optional:
        assert names(invite) == names(joins[0]) == [0, 1, 3]
    else:
        assert invite.status == joins[0].status == statuses.GROUP_CONSTRUCT_ABORT
    at_rest(world)


def test_who_has_ended_before_has_failed_at_once() -> None:
    world = World(3)
    world[0].agent.standing.expected("something", ATTEMPT)
    world.kill(2)
    world.run()
    answering(world[1])
    invite = asks(world[0], P[1:3], attrs.GROUP_OPTIONAL(True))
    world.run()
    assert names(invite) == [0, 1]


# The handlers of the leader decide


@pytest.mark.parametrize("code", [statuses.GROUP_INVITE_ACCEPTED, statuses.GROUP_INVITE_DECLINED])
def test_a_handler_gives_up_by_its_status(code: int) -> None:
    world = World(3)
    joins = answering(world[1])
    answering(world[2], False)
    world[0].on(code, lambda event: statuses.GROUP_CONSTRUCT_ABORT)
    invite = asks(world[0], P[1:3], attrs.GROUP_OPTIONAL(True))
    world.run()
    assert invite.status == joins[0].status == statuses.GROUP_CONSTRUCT_ABORT


def test_a_handler_gives_up_when_the_last_has_accepted_even_if_it_takes_its_time() -> None:
    world = World(2)
    joins = answering(world[1])
    world[0].on(statuses.GROUP_INVITE_ACCEPTED, lambda event: statuses.GROUP_CONSTRUCT_ABORT, within=20)
    invite = asks(world[0], (P[1],))
    world.run()
    assert invite.status == joins[0].status == statuses.GROUP_CONSTRUCT_ABORT


def test_a_handler_names_a_replacement_for_who_declines_and_another_for_who_dies() -> None:
    world = World(5)
    answering(world[1], False)
    joins = [answering(world[rank]) for rank in (3, 4)]
    world[2].on(statuses.GROUP_INVITED, lambda event: world.kill(2))
    world[0].on(statuses.GROUP_INVITE_DECLINED, lambda event: (0, (talk.procs(GROUP_ADD_MEMBERS, (P[3],)),)))
    world[0].on(statuses.GROUP_INVITE_FAILED, lambda event: (0, (talk.proc(GROUP_ADD_MEMBERS, P[4]),)))
    invite = asks(world[0], P[1:3])
    world.run()
    assert set(names(invite)) == {0, 3, 4}
    assert invite.result.members == joins[0][0].result.members == joins[1][0].result.members
    at_rest(world)


def test_a_handler_goes_on_without_who_declines() -> None:
    world = World(3)
    joins = answering(world[1])
    answering(world[2], False)
    world[0].on(statuses.GROUP_INVITE_DECLINED, lambda event: (0, (attrs.GROUP_OPTIONAL(True),)))
    invite = asks(world[0], P[1:3])
    world.run()
    assert names(invite) == names(joins[0]) == [0, 1]


# The caller decides


class Caller:
    """A caller that decides by itself."""

    def __init__(self, world: World, procs: Any, *directives: Info) -> None:
        self.process = world[0]
        self.answers: list[GroupAnswer] = []
        self.ticket = asks(self.process, procs, *directives, answers=self.answers.append)

    def control(self, **what: Any) -> Ticket:
        return self.process.start(GroupInviteControl(G, **what))


def test_the_caller_is_told_of_answers_and_the_group_waits_for_it() -> None:
    world = World(5)
    joins = answering(world[1], True, attrs.GROUP_INFO((attrs.HOSTNAME("a"),)))
    answering(world[2], False, reason="no")
    world[3].on(statuses.GROUP_INVITED)
    caller = Caller(world, P[1:4], attrs.TIMEOUT(3))
    world.run()
    assert [(answer.kind, answer.proc.rank) for answer in caller.answers] == [(ACCEPTED, 1), (DECLINED, 2), (FAILED, 3)]
    assert caller.answers[1].reason == "no"
    assert caller.answers[0].infos[0].key == GROUP_INFO
    assert "3" in caller.answers[2].reason
    assert not caller.ticket.over
    new = answering(world[4])
    assert caller.control(drop=(P[2], P[3]), invite=(P[4],)).status == 0
    world.run()
    assert not caller.ticket.over
    assert caller.control(complete=True).status == 0
    world.run()
    assert names(caller.ticket) == [0, 1, 4]
    assert caller.ticket.result == joins[0].result == new[0].result
    assert caller.ticket.result.partial
    assert caller.control(complete=True).status == statuses.ERR_NOT_FOUND
    at_rest(world)


def test_complete_waits_for_who_has_not_answered_and_goes_on_without_who_declines() -> None:
    world = World(3)
    joins = answering(world[1])
    world[2].on(statuses.GROUP_INVITED)
    caller = Caller(world, P[1:3])
    world.run()
    caller.control(complete=True)
    world.run()
    assert not caller.ticket.over
    world[2].start(GroupJoin(G, P[0], False))
    world.run()
    assert names(caller.ticket) == names(joins[0]) == [0, 1]


def test_a_member_that_is_dropped_hears_so_and_one_that_was_dropped_may_be_invited_again() -> None:
    world = World(3)
    joins = [answering(world[rank]) for rank in (1, 2)]
    world[2].on(statuses.GROUP_CONSTRUCT_ABORT)
    caller = Caller(world, P[1:3])
    world.run()
    caller.control(drop=(P[2],))
    world.run()
    assert joins[1][0].status == statuses.GROUP_CONSTRUCT_ABORT
    assert len(world[2].events(statuses.GROUP_CONSTRUCT_ABORT)) == 1
    caller.control(invite=(P[2],))
    world.run()
    caller.control(complete=True)
    world.run()
    assert names(caller.ticket) == names(joins[0][0]) == names(joins[1][1]) == [0, 1, 2]


def test_the_caller_gives_up() -> None:
    world = World(3)
    joins = answering(world[1])
    for rank in range(3):
        world[rank].on(statuses.GROUP_CONSTRUCT_ABORT)
    world[2].on(statuses.GROUP_INVITED)
    caller = Caller(world, P[1:3])
    world.run()
    caller.control(abort=True)
    world.run()
    assert caller.ticket.status == joins[0].status == statuses.GROUP_CONSTRUCT_ABORT
    assert [len(world[rank].events(statuses.GROUP_CONSTRUCT_ABORT)) for rank in range(3)] == [1, 1, 1]
    late = world[2].start(GroupJoin(G, P[0]))
    assert late.status == statuses.GROUP_CONSTRUCT_ABORT
    assert "given it up" in str(late.error)
    at_rest(world)


def test_what_the_caller_may_not_do_is_refused_and_harms_nothing() -> None:
    world = World(4)
    answering(world[1])
    caller = Caller(world, (P[1],))
    world.run()
    assert caller.control(drop=(P[3],)).status == statuses.ERR_NOT_FOUND
    assert caller.control(invite=(P[1],)).status == statuses.ERR_EXISTS
    assert caller.control(invite=(P[0],)).status == statuses.ERR_EXISTS
    caller.control(complete=True)
    world.run()
    assert names(caller.ticket) == [0, 1]


@pytest.mark.parametrize("raises", [0, 1])
@pytest.mark.parametrize("to", [(1, 2), (0, 1, 2), (0,)])
def test_the_event_gives_up_whoever_takes_part_raises_it(raises: int, to: tuple[int, ...]) -> None:
    world = World(3)
    if raises not in (0, *to) and 0 not in to:
        pytest.skip("the leader hears nothing")
    if raises and 0 not in to:
        to = (0, *to)
    joins = answering(world[1])
    for rank in range(3):
        world[rank].on(statuses.GROUP_CONSTRUCT_ABORT)
    world[2].on(statuses.GROUP_INVITED)
    invite = asks(world[0], P[1:3])
    world.run()
    world[raises].notify(talk.event(statuses.GROUP_CONSTRUCT_ABORT, G, [P[rank] for rank in to]))
    world.run()
    if raises == 0 and 0 not in to:
        assert not invite.over or invite.status == statuses.GROUP_CONSTRUCT_ABORT
        return
    assert invite.status == joins[0].status == statuses.GROUP_CONSTRUCT_ABORT
    for rank in range(3):
        sources = [event.source for event in world[rank].events(statuses.GROUP_CONSTRUCT_ABORT)]
        assert len(sources) == len(set(sources))
    at_rest(world)


# Names


def test_a_name_that_is_taken_is_refused() -> None:
    world = World(2)
    answering(world[1])
    asks(world[0], (P[1],))
    again = asks(world[0], (P[1],))
    assert again.status == statuses.ERR_EXISTS
    world.run()
    assert asks(world[0], (P[1],)).status == statuses.ERR_EXISTS
    assert asks(world[0], (P[1],), name=NSPACE).status == statuses.ERR_EXISTS


def test_who_is_in_a_group_of_that_name_declines() -> None:
    world = World(3)
    joins = answering(world[1])
    asks(world[0], (P[1],))
    world.run()
    other = asks(world[2], (P[1],))
    world.run()
    assert joins[1].status == statuses.ERR_EXISTS
    assert other.status == statuses.GROUP_CONSTRUCT_ABORT
    assert world[1].state(G).members == (P[0], P[1])


def test_of_two_invitations_under_one_name_one_can_be_accepted() -> None:
    world = World(4)
    world[2].on(statuses.GROUP_INVITED)
    answering(world[3])
    first = asks(world[0], P[2:4])
    second = asks(world[1], (P[2],))
    world.run()
    joins = world[2].start(GroupJoin(G, P[0])), world[2].start(GroupJoin(G, P[1]))
    world.run()
    assert names(first) == names(joins[0]) == [0, 2, 3]
    assert joins[1].status == statuses.ERR_EXISTS
    assert second.status == statuses.GROUP_CONSTRUCT_ABORT
    at_rest(world)


def test_two_that_invite_each_other_under_one_name_both_end() -> None:
    world = World(2)
    joins = [answering(world[rank]) for rank in (0, 1)]
    invites = asks(world[0], (P[1],)), asks(world[1], (P[0],))
    world.run()
    assert [ticket.status for ticket in invites] == [statuses.GROUP_CONSTRUCT_ABORT] * 2
    assert joins[0][0].status == joins[1][0].status == statuses.ERR_EXISTS
    at_rest(world)


def test_two_invitations_at_once_are_two_groups() -> None:
    world = World(3)
    joins = [answering(world[rank]) for rank in (1, 2)]
    first, second = asks(world[0], P[1:3]), asks(world[0], (P[2],), name="second")
    world.run()
    assert names(first) == [0, 1, 2]
    assert names(second) == names(joins[1][1]) == [0, 2]


def test_a_name_is_free_again_after_it_was_given_up() -> None:
    world = World(2)
    world[1].on(statuses.GROUP_INVITED)
    invite = asks(world[0], (P[1],))
    world.run()
    world[1].start(GroupJoin(G, P[0], False))
    world.run()
    assert invite.status == statuses.GROUP_CONSTRUCT_ABORT
    again = asks(world[0], (P[1],))
    world.run()
    join = world[1].start(GroupJoin(G, P[0]))
    world.run()
    assert names(again) == names(join) == [0, 1]


# Joining


def test_nobody_joins_its_own_invitation_nor_twice() -> None:
    world = World(3)
    world[1].on(statuses.GROUP_INVITED)
    asks(world[0], P[1:3])
    world.run()
    assert world[0].start(GroupJoin(G, P[0])).status == statuses.ERR_BAD_PARAM
    first = world[1].start(GroupJoin(G, P[0]))
    assert world[1].start(GroupJoin(G, P[0])).status == statuses.ERR_EXISTS
    assert not first.over


def test_who_joins_what_it_was_not_invited_to_is_told() -> None:
    world = World(3)
    asks(world[0], (P[1],))
    join = world[2].start(GroupJoin(G, P[0]))
    other = world[2].start(GroupJoin("other", P[0]))
    world.run()
    assert join.status == other.status == statuses.GROUP_CONSTRUCT_ABORT


def test_a_program_that_learned_of_the_invitation_in_another_way_can_join() -> None:
    world = World(2)
    invite = asks(world[0], (P[1],))
    join = world[1].start(GroupJoin(G, P[0]))
    world.run()
    assert names(invite) == names(join) == [0, 1]
    at_rest(world)


def test_a_join_gives_up_in_time_and_the_group_goes_on_without_it() -> None:
    world = World(3)
    joins = answering(world[1], True, attrs.TIMEOUT(2))
    world[2].on(statuses.GROUP_INVITED)
    invite = asks(world[0], P[1:3], attrs.GROUP_OPTIONAL(True))
    world.run(until=5)
    assert joins[0].status == statuses.ERR_TIMEOUT
    assert isinstance(joins[0].error, OperationTimeout)
    last = world[2].start(GroupJoin(G, P[0]))
    world.run()
    assert names(invite) == names(last) == [0, 2]
    at_rest(world)


def test_a_member_whose_time_runs_out_as_the_group_is_made_leaves_it() -> None:
    world = World(3)
    joins = answering(world[1], True, attrs.TIMEOUT(1))
    asked = world.carry
    world.carry = lambda source, to, call, most=0.01: asked(source, to, call, 0.8)  # type: ignore[method-assign]
    invite = asks(world[0], (P[1],))
    world.run()
    assert joins[0].status == statuses.ERR_TIMEOUT
    assert names(invite) == [0, 1]
    assert world[0].state(G).members == (P[0],)
    assert world[1].state(G) is None
    at_rest(world)


def test_nobody_leaves_before_the_group_stands() -> None:
    world = World(3)
    answering(world[1])
    invite = asks(world[0], P[1:3])
    world.run()
    left = world[1].start(GroupLeave(G))
    assert left.error is not None
    assert not invite.over


def test_the_end_of_the_session_ends_all() -> None:
    world = World(3)
    joins = answering(world[1])
    invite = asks(world[0], P[1:3])
    world.run()
    gone = RuntimeError("gone")
    for rank in (0, 1):
        world[rank].agent.handle_disconnect(gone)
    assert invite.error is joins[0].error is gone


# What comes with the group


@pytest.mark.parametrize("constructs", [True, False])
@pytest.mark.parametrize(("adapts", "release"), [(True, (0, 0, 0)), (False, (7, 0, 0)), (False, (5, 0, 8))])
def test_all_get_the_context_id(adapts: bool, release: tuple[int, int, int], constructs: bool) -> None:
    world = World(2, adapts=adapts, release=release)
    world.constructs = constructs
    joins = answering(world[1])
    invite = asks(world[0], (P[1],), attrs.GROUP_ASSIGN_CONTEXT_ID(True))
    world.run()
    assert invite.result.context_id == joins[0].result.context_id == 1
    assert world[1].state(G).context_id == 1
    # Nothing is left of a construct.
    assert len(world.destructed) == constructs


def test_none_asked_for_is_none_given() -> None:
    world = World(2)
    joins = answering(world[1])
    invite = asks(world[0], (P[1],), attrs.GROUP_ASSIGN_CONTEXT_ID(False))
    world.run()
    assert invite.result.context_id is joins[0].result.context_id is None


def test_all_get_what_each_has_to_say() -> None:
    world = World(3)
    info = [attrs.GROUP_INFO((attrs.HOSTNAME(f"node{rank}"),)) for rank in range(3)]
    joins = answering(world[1], True, info[1], attrs.GROUP_ENDPT_DATA(b"port 7"))
    answering(world[2], False, info[2])
    invite = asks(world[0], P[1:3], info[0], attrs.GROUP_OPTIONAL(True))
    world.run()
    assert invite.result.infos == joins[0].result.infos == world[1].state(G).infos
    told = [(each.key, each.value.data.items) for each in invite.result.infos]
    assert [(key, items[0].value.data.rank, items[1].value.data) for key, items in told] == [
        (GROUP_INFO, 0, "node0"),
        (GROUP_INFO, 1, "node1"),
        (GROUP_ENDPT_DATA, 1, b"port 7"),
    ]


def test_nobody_speaks_for_another() -> None:
    world = World(2)
    forged = Info(
        GROUP_INFO,
        Value(
            codes.DATA_ARRAY,
            DataArray(codes.INFO, (talk.proc("pmix.procid", P[0]), attrs.HOSTNAME("elsewhere"))),
        ),
    )
    answering(world[1], True, forged)
    invite = asks(world[0], (P[1],))
    world.run()
    assert invite.result.infos == ()


# Programs on libpmix 7


def _told(to: Proc, *infos: Info, code: int) -> NotifyEvent:
    return NotifyEvent(code, RANGE_CUSTOM, (talk.proc(EVENT_CUSTOM_RANGE, to), *infos))


def test_an_outcome_that_names_no_group_completes_none() -> None:
    world = World(2)
    joins = answering(world[1])
    world[0].notify(_told(P[1], talk.text(GROUP_ID, G), code=statuses.GROUP_INVITED))
    world.run()
    world[0].notify(_told(P[1], talk.procs(GROUP_MEMBERSHIP, P[:2]), code=statuses.GROUP_CONSTRUCT_COMPLETE))
    world.run()
    assert joins[0].result is joins[0].error is None
    assert world[1].state(G) is None


def test_its_answers_name_no_group_and_its_data_is_passed_on() -> None:
    world = World(4)
    for rank in (1, 2):
        world[rank].on(statuses.GROUP_INVITED)
        world[rank].on(statuses.GROUP_CONSTRUCT_COMPLETE)
    joins = answering(world[3])
    invite = asks(world[0], P[1:4], attrs.GROUP_OPTIONAL(True), attrs.GROUP_ASSIGN_CONTEXT_ID(True))
    world.run()
    items = talk.proc("pmix.procid", P[1]), attrs.DATA_SCOPE(2), Info("mine", Value(codes.STRING, "x"))
    data = Info("pmix.pdata", Value(codes.DATA_ARRAY, DataArray(codes.INFO, items)))
    world[1].notify(_told(P[0], data, code=statuses.GROUP_INVITE_ACCEPTED))
    world[2].notify(_told(P[0], code=statuses.GROUP_INVITE_DECLINED))
    world.run()
    assert names(invite) == names(joins[0]) == [0, 1, 3]
    assert data in invite.result.infos
    complete = world[1].events(statuses.GROUP_CONSTRUCT_COMPLETE)[0]
    assert data in complete.infos
    keys = {info.key: info.value.type for info in complete.infos}
    assert keys[GROUP_ID] == codes.STRING
    assert keys[GROUP_MEMBERSHIP] == codes.DATA_ARRAY
    assert keys[GROUP_CONTEXT_ID] == codes.SIZE
    assert world[2].events(statuses.GROUP_CONSTRUCT_COMPLETE) == []


def test_a_leader_of_another_library_leads_what_it_completes() -> None:
    """Its events have no more than the Standard asks for."""
    world = World(2)
    joins = answering(world[1])
    infos = talk.text(GROUP_ID, G), talk.procs(GROUP_MEMBERSHIP, P[:2])
    for code in (statuses.GROUP_INVITED, statuses.GROUP_CONSTRUCT_COMPLETE):
        world[1].arrives(Notification(code, P[0], RANGE_CUSTOM, infos))
        world.run()
    assert names(joins[0]) == [0, 1]
    assert world[1].state(G).leader == P[0]


def test_one_that_was_invited_twice_answers_in_that_order() -> None:
    world = World(2)
    world[1].on(statuses.GROUP_INVITED)
    first, second = asks(world[0], (P[1],)), asks(world[0], (P[1],), name="second")
    world.run()
    world[1].notify(_told(P[0], code=statuses.GROUP_INVITE_ACCEPTED))
    world[1].notify(_told(P[0], code=statuses.GROUP_INVITE_DECLINED))
    world.run()
    assert names(first) == [0, 1]
    assert second.status == statuses.GROUP_CONSTRUCT_ABORT


@pytest.mark.parametrize("completes", [True, False])
def test_it_invites_and_is_no_member_unless_it_says_so(completes: bool) -> None:
    world = World(3)
    joins = [answering(world[rank]) for rank in (1, 2)]
    range_ = talk.procs(EVENT_CUSTOM_RANGE, P[1:3])
    name = talk.text(GROUP_ID, G)
    world[0].notify(NotifyEvent(statuses.GROUP_INVITED, RANGE_CUSTOM, (range_, talk.flag(EVENT_NON_DEFAULT), name)))
    world.run()
    assert not joins[0][0].over
    infos = range_, talk.procs(GROUP_MEMBERSHIP, P[1:3]), talk.flag(EVENT_NON_DEFAULT), name
    if completes:
        infos = (*infos, talk.size(GROUP_CONTEXT_ID, 9))
    code = statuses.GROUP_CONSTRUCT_COMPLETE if completes else statuses.GROUP_CONSTRUCT_ABORT
    world[0].notify(NotifyEvent(code, RANGE_CUSTOM, infos))
    world.run()
    for ticket in (joins[0][0], joins[1][0]):
        if completes:
            assert names(ticket) == [1, 2]
            assert ticket.result.context_id == 9
        else:
            assert ticket.status == statuses.GROUP_CONSTRUCT_ABORT
    if completes:
        assert world[1].state(G).leader is None
    at_rest(world)


def test_what_strangers_say_changes_nothing() -> None:
    world = World(4)
    joins = answering(world[1])
    invite = asks(world[0], P[1:3])
    world.run()
    everybody = tuple(P[:3])
    for code in (
        statuses.GROUP_CONSTRUCT_ABORT,
        statuses.GROUP_CONSTRUCT_COMPLETE,
        statuses.GROUP_INVITE_ACCEPTED,
        statuses.GROUP_INVITE_DECLINED,
    ):
        infos = talk.procs(GROUP_MEMBERSHIP, everybody), talk.size(INVITATION, 7)
        world[3].notify(talk.event(code, G, everybody, infos))
    world.run()
    assert not invite.over
    assert not joins[0].over


@pytest.mark.parametrize("again", [False, True])
def test_an_invitation_that_the_server_loses_is_told_once_more_and_shown_once(again: bool) -> None:
    world = World(3)
    joins = [answering(world[rank]) for rank in (1, 2)]
    relay, held = world.relay, []

    def losing(source: Proc, op: NotifyEvent) -> None:
        if op.code == statuses.GROUP_INVITED:
            held.append((source, op))
        else:
            relay(source, op)

    world.relay = losing  # type: ignore[method-assign]
    invite = asks(world[0], P[1:3])
    world.run(until=10)
    assert invite.over and [len(each) for each in joins] == [1, 1]
    if again:
        # It was not lost, but late.
        relay(*held[0])
        world.run()
    assert [len(each) for each in joins] == [1, 1]
    assert names(invite) == names(joins[0][0]) == [0, 1, 2]


def test_a_server_of_ours_loses_nothing() -> None:
    world = World(2, adapts=True)
    asks(world[0], P[1:2])
    world.run(until=30)
    assert not any("invitation reminds" in line for line in world.log)


def test_an_invitation_that_names_its_receiver_as_its_source_is_none() -> None:
    world = World(2)
    joins = answering(world[1])
    infos = (talk.text(GROUP_ID, G), talk.text(INVITATION, "elsewhere:1"))
    world[1].arrives(Notification(statuses.GROUP_INVITED, P[1], RANGE_CUSTOM, infos))
    world.run()
    assert joins == []
