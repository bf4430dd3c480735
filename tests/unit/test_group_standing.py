"""Proves what a member knows of a group that stands: who leaves, who fails, who leads, each told once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.group_world import ATTEMPT, NSPACE, SERVER, Ticket, World, is_idle
from pypmix.engine.groups import standing, talk
from pypmix.engine.groups.standing import MAX_DEPARTED, AdmissionRecord, MemberList
from pypmix.standard import attrs, keys, statuses
from pypmix.standard.errors import LostConnection, PMIxError
from pypmix.standard.ops import GroupChange, GroupLeave, GroupUnwatch, GroupWatch, Notification, NotifyEvent
from pypmix.standard.ops.groups import DESTRUCTED, JOINED, LEADER_FAILED, LEADER_SELECTED, LEFT, MEMBER_FAILED
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION
from pypmix.standard.types import Info, Proc, Value

G = "team"
P = [Proc(NSPACE, rank) for rank in range(6)]
NOTIFY = (talk.flag(keys.GROUP_NOTIFY_TERMINATION),)


class Team:
    """A group of the first ranks of a world, each of which watches it."""

    def __init__(self, size: int = 4, *, leader: int | None = None, directives: tuple[Info, ...] = (), **world: Any):
        self.world = World(6, **world)
        self.members = tuple(P[:size])
        self.changes: list[list[GroupChange]] = [[] for _ in P]
        self.ends: list[list[BaseException | None]] = [[] for _ in P]
        self.leader = None if leader is None else P[leader]
        self.directives = directives
        for rank in range(size):
            self.world[rank].agent.standing.expected(G, ATTEMPT)
            self.form(rank)

    def form(self, rank: int, **more: Any) -> None:
        agent = self.world[rank].agent
        agent.standing.formed(G, self.members, leader=self.leader, directives=self.directives, **more)
        self.world[rank].start(GroupWatch(G, self.changes[rank].append, self.ends[rank].append))

    def kinds(self, rank: int) -> list[tuple[str, tuple[int, ...]]]:
        return [(change.kind, tuple(each.rank for each in change.procs)) for change in self.changes[rank]]

    def ranks(self, rank: int) -> list[int] | None:
        state = self.world[rank].state(G)
        return None if state is None else [each.rank for each in state.members]

    def leave(self, rank: int, *directives: Info) -> Ticket:
        return self.world[rank].start(GroupLeave(G, directives))

    def arrives(self, rank: int, code: int, source: Proc, *infos: Info) -> None:
        """An event comes to one of them alone."""
        event = Notification(code, source, RANGE_CUSTOM, (talk.text(keys.GROUP_ID, G), *infos))
        self.world[rank].arrives(event)


def about(rank: int) -> Info:
    return talk.proc(keys.EVENT_AFFECTED_PROC, P[rank])


# Leaving


def test_who_leaves_is_gone_and_the_others_move_up() -> None:
    team = Team()
    for rank in range(4):
        team.world[rank].on(statuses.GROUP_LEFT)
    ticket = team.leave(1)
    team.world.run()
    assert ticket.status == 0
    assert team.ranks(1) is None
    assert [team.ranks(rank) for rank in (0, 2, 3)] == [[0, 2, 3]] * 3
    assert team.kinds(3) == [(LEFT, (1,))]
    assert team.changes[3][0].state.epoch == 2
    assert [len(team.world[rank].events(statuses.GROUP_LEFT)) for rank in range(4)] == [1, 0, 1, 1]
    event = team.world[3].events(statuses.GROUP_LEFT)[0]
    assert (event.source, talk.found(event.infos, keys.EVENT_AFFECTED_PROC, Proc)) == (P[1], P[1])


def test_the_watches_of_who_leaves_end_with_its_own_departure() -> None:
    team = Team()
    team.leave(1)
    team.world.run()
    assert team.kinds(1) == [(LEFT, (1,))]
    assert P[1] not in team.changes[1][0].state.members
    assert team.ends[1] == [None]
    assert is_idle("standing", team.world[1].agent.standing)


def test_nobody_leaves_what_is_under_way_nor_what_it_is_not_in() -> None:
    team = Team()
    standing_of = team.world[5].agent.standing
    standing_of.expected("other", ATTEMPT)
    early = team.world[5].start(GroupLeave("other"))
    assert early.status == statuses.ERR_NOT_AVAILABLE
    standing_of.abandoned("other", ATTEMPT)
    assert team.world[5].start(GroupLeave("other")).status == statuses.ERR_NOT_FOUND
    assert team.world[5].start(GroupWatch(G, print)).status == statuses.ERR_NOT_FOUND


def test_nobody_leaves_twice_at_once() -> None:
    team = Team()
    first, second = team.leave(1), team.leave(1)
    team.world.run()
    assert (first.status, second.status) == (0, statuses.ERR_RESOURCE_BUSY)
    assert team.leave(1).status == statuses.ERR_NOT_FOUND


def test_who_cannot_tell_the_others_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    team = Team()
    lost = LostConnection("gone")
    monkeypatch.setattr(team.world[1], "submit", lambda op, done: done(None, lost))
    assert team.leave(1).error is lost
    assert team.ranks(1) == [0, 1, 2, 3]
    monkeypatch.undo()
    again = team.leave(1)
    team.world.run()
    assert again.status == 0


@pytest.mark.parametrize("adapts", [False, True])
def test_the_last_one_tells_only_a_server_that_keeps_a_record(adapts: bool) -> None:
    team = Team(1, adapts=adapts)
    ticket = team.leave(0)
    team.world.run()
    assert ticket.status == 0
    assert team.ranks(0) is None
    assert any("> -160" in line for line in team.world.log) is adapts


def test_a_departure_carries_what_the_caller_says() -> None:
    team = Team()
    team.world[2].on(statuses.GROUP_LEFT)
    said = Info("user.key", Value(3, "bye"))
    team.leave(0, said, attrs.TIMEOUT(3))
    team.world.run()
    infos = team.world[2].events(statuses.GROUP_LEFT)[0].infos
    assert said in infos
    assert not any(info.key == keys.TIMEOUT for info in infos)


def test_a_late_departure_from_a_group_that_had_the_name_before_counts_for_nothing() -> None:
    team = Team()
    team.form(0, context_id=7)
    team.arrives(0, statuses.GROUP_LEFT, P[1], about(1), talk.size(keys.GROUP_CONTEXT_ID, 6))
    assert team.ranks(0) == [0, 1, 2, 3]
    team.arrives(0, statuses.GROUP_LEFT, P[1], about(1), talk.size(keys.GROUP_CONTEXT_ID, 7))
    assert team.ranks(0) == [0, 2, 3]


# Failures


def failures(team: Team, rank: int) -> list[Proc]:
    events = team.world[rank].events(statuses.GROUP_MEMBER_FAILED)
    return [each for event in events for each in talk.listed(event.infos, keys.EVENT_AFFECTED_PROC)]


@pytest.mark.parametrize("notifies", [False, True])
def test_a_member_that_ends_is_none(notifies: bool) -> None:
    team = Team(directives=NOTIFY if notifies else ())
    team.world[2].on(statuses.GROUP_MEMBER_FAILED)
    team.world.kill(1)
    team.world.run()
    assert team.kinds(2) == [(MEMBER_FAILED, (1,))]
    assert team.ranks(2) == [0, 2, 3]
    assert failures(team, 2) == ([P[1]] if notifies else [])


@pytest.mark.parametrize("server_first", [False, True])
def test_a_failure_that_the_server_tells_as_well_is_told_once(server_first: bool) -> None:
    team = Team(directives=NOTIFY, adapts=True)
    team.world[2].on(statuses.GROUP_MEMBER_FAILED)
    if server_first:
        team.arrives(2, statuses.GROUP_MEMBER_FAILED, SERVER, about(1))
    team.world.kill(1)
    team.world.run()
    team.arrives(2, statuses.GROUP_MEMBER_FAILED, SERVER, about(1))
    team.world.run()
    assert failures(team, 2) == [P[1]]
    assert team.kinds(2) == [(MEMBER_FAILED, (1,))]


def test_a_member_that_left_before_it_ended_has_not_failed() -> None:
    team = Team(directives=NOTIFY)
    team.world[2].on(statuses.GROUP_MEMBER_FAILED)
    team.leave(1)
    team.world.run()
    team.world.kill(1)
    team.world.run()
    assert team.kinds(2) == [(LEFT, (1,))]
    assert failures(team, 2) == []


def test_the_failure_of_a_leader_brings_a_new_one() -> None:
    team = Team(leader=0)
    for rank in range(4):
        answer = (0, (attrs.GROUP_LEADER(True),)) if rank == 2 else None
        team.world[rank].on(statuses.GROUP_LEADER_FAILED, lambda event, answer=answer: answer)
    team.world.kill(0)
    team.world.run()
    for rank in (1, 2, 3):
        assert team.kinds(rank) == [(LEADER_FAILED, (0,)), (LEADER_SELECTED, (2,))]
        failed, selected = team.changes[rank]
        assert (failed.state.leader, failed.state.epoch, failed.state.term) == (None, 2, 1)
        assert (selected.state.leader, selected.state.epoch, selected.state.term) == (P[2], 2, 2)
        assert len(team.world[rank].events(statuses.GROUP_LEADER_FAILED)) == 1


def lead_failures(team: Team, rank: int) -> int:
    return len(team.world[rank].events(statuses.GROUP_LEADER_FAILED))


@pytest.mark.parametrize("server_first", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_the_failure_of_a_leader_is_told_once_by_whom_it_may(server_first: bool, known: bool) -> None:
    team = Team(leader=0 if known else None, directives=NOTIFY, adapts=True)
    for rank in (1, 2, 3):
        team.world[rank].on((statuses.GROUP_LEADER_FAILED, statuses.GROUP_MEMBER_FAILED))
    told = Notification(statuses.GROUP_LEADER_FAILED, SERVER, RANGE_CUSTOM, (talk.text(keys.GROUP_ID, G), about(0)))
    for rank in (1, 2, 3) if server_first else ():
        team.world[rank].arrives(told)
    team.world.kill(0)
    team.world.run()
    for rank in () if server_first else (1, 2, 3):
        team.world[rank].arrives(told)
    team.world.run()
    assert [lead_failures(team, rank) for rank in (1, 2, 3)] == [1, 1, 1]
    assert team.world[1].state(G).term == 2
    assert failures(team, 1) == ([] if known or server_first else [P[0]])


def test_a_leader_tells_those_whom_the_server_has_not_told() -> None:
    team = Team()
    late = team.world[3].agent.standing
    late.dissolve(G)
    late.expected(G, ATTEMPT)
    team.form(0)
    team.world[0].agent.standing.led(G, P[0], 1)
    team.world[0].agent.standing.tell_leader(G)
    team.world.run()
    team.form(3)
    states = [team.world[rank].state(G) for rank in range(4)]
    assert {(state.leader, state.term) for state in states} == {(P[0], 1)}
    assert team.kinds(1) == []
    team.world[2].agent.standing.tell_leader(G)
    team.world.run()
    assert team.world[1].state(G).leader == P[0]


def test_who_has_come_back_may_lead() -> None:
    team = Team()
    team.leave(2)
    team.world.run()
    group = team.world[0].agent.standing.group(G)
    team.world[0].agent.standing.admit(group, P[2], AdmissionRecord(1, 1))
    team.world[0].agent.standing.led(G, P[2], 1)
    assert group.leader == P[2]
    team.world[0].agent.standing.led(G, P[5], 1)
    assert group.leader == P[2]


def test_where_nobody_wants_to_lead_nobody_does() -> None:
    team = Team(leader=0, adapts=True)
    team.world.kill(0)
    team.world.run()
    assert team.kinds(1) == [(LEADER_FAILED, (0,)), (LEADER_SELECTED, ())]
    assert team.world[1].state(G).leader is None


def test_a_leader_that_leaves_has_not_failed() -> None:
    team = Team(leader=0)
    team.world[1].on(statuses.GROUP_LEADER_FAILED)
    team.leave(0)
    team.world.run()
    assert team.kinds(1) == [(LEFT, (0,))]
    assert team.world[1].state(G).leader is None
    assert not team.world[1].seen


def test_where_members_want_it_a_leader_that_leaves_is_followed_by_another_one() -> None:
    for delays in ((0, 0, 0), (0.2, 0, 0.4)):
        team = Team(leader=0)
        for rank in (1, 3):
            team.world[rank].start(GroupWatch(G, lambda change: None, None, elects=True))
            lead = rank == 3
            answer = (0, (attrs.GROUP_LEADER(True),)) if lead else (0, ())
            team.world[rank].on(
                statuses.GROUP_LEADER_FAILED, lambda event, answer=answer: answer, within=delays[rank - 1]
            )
        # One that does not is not waited for, although it has heard of the departure before the others ask, or later.
        team.world[2].on(statuses.GROUP_LEADER_FAILED)
        team.leave(0)
        team.world.run(until=2.0)
        for rank in (1, 3):
            assert team.kinds(rank) == [(LEFT, (0,)), (LEADER_SELECTED, (3,))]
            assert [each.infos[1].value.data for each in team.world[rank].seen] == [P[0]]
        assert not team.world[2].seen
        assert not [what for what in team.world.idle() if "standing" not in what]


def test_a_new_leader_that_has_ended_already_is_replaced() -> None:
    team = Team(leader=0)
    for rank in (1, 2, 3):
        team.world[rank].on(statuses.GROUP_LEADER_FAILED, lambda event: (0, (attrs.GROUP_LEADER(True),)))
    team.world.kill(0)
    team.world.after(0.015, lambda: team.world.kill(1))
    team.world.run()
    assert {team.world[rank].state(G).leader for rank in (2, 3)} <= {P[2], P[3]}
    assert len({team.world[rank].state(G).leader for rank in (2, 3)}) == 1


# Before this process knows that the group stands


def test_what_happens_while_a_group_is_under_way_is_not_lost() -> None:
    team = Team()
    late = team.world[4].agent.standing
    late.expected(G, ATTEMPT)
    team.members = tuple(P[:5])
    team.arrives(4, statuses.GROUP_LEFT, P[0], about(0))
    team.world.kill(1)
    team.world.run()
    results = late.formed(G, team.members)
    assert results.members == team.members
    assert team.ranks(4) == [2, 3, 4]
    assert late.state(G).epoch == 3


def test_who_had_ended_before_a_group_was_under_way_is_not_meant() -> None:
    team = Team()
    late = team.world[4].agent.standing
    late.expected("another", ATTEMPT)
    team.world.kill(1)
    team.world.run()
    late.expected(G, ATTEMPT)
    late.formed(G, P[:5])
    assert team.ranks(4) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("formed", [False, True])
def test_the_host_tells_which_members_had_ended_before_a_group_stood(formed: bool) -> None:
    """And nobody else may."""
    team = Team()
    late = team.world[4].agent.standing
    late.expected("another", ATTEMPT)
    team.world.kill(1)
    team.world.run()
    late.expected(G, ATTEMPT)
    if formed:
        late.formed(G, P[:5])
    without = talk.text(talk.SAYS, talk.WITHOUT)
    team.arrives(4, statuses.TALK, P[2], without, talk.procs(talk.ENDED, P[:1]))
    team.arrives(4, statuses.TALK, SERVER, without, talk.procs(talk.ENDED, P[1:2]))
    team.world.run()
    if not formed:
        assert late.formed(G, P[:5]).members == tuple(P[:5])
    assert team.ranks(4) == [0, 2, 3, 4]


def test_a_group_that_nothing_came_of_leaves_nothing() -> None:
    team = Team()
    late = team.world[4].agent.standing
    late.expected(G, ATTEMPT)
    team.arrives(4, statuses.GROUP_LEFT, P[0], about(0))
    late.abandoned(G, ATTEMPT)
    assert is_idle("standing", late)
    late.formed(G, P[:5])
    assert team.ranks(4) == [0, 1, 2, 3, 4]


def test_what_is_remembered_has_a_bound() -> None:
    team = Team()
    late = team.world[4].agent.standing
    late.expected(G, ATTEMPT)
    for rank in range(standing.MAX_KEPT + 10):
        team.arrives(4, statuses.GROUP_LEFT, Proc("others", rank))
        late.record_end(Proc("others", rank))
    assert len(late._expected[G].kept) == standing.MAX_KEPT
    assert len(late._ended) == standing.MAX_ENDED
    membership = MemberList(P, {})
    for rank in range(MAX_DEPARTED + 10):
        membership.remove(Proc("others", rank), 0)
    assert len(membership.departed) == MAX_DEPARTED


def test_of_two_that_admit_the_same_life_the_earlier_place_counts() -> None:
    membership = MemberList(P[:2], {})
    assert membership.add(P[3], AdmissionRecord(3, 1))
    assert membership.add(P[4], AdmissionRecord(4, 1))
    assert not membership.add(P[4], AdmissionRecord(2, 1))
    assert membership.members == (P[0], P[1], P[4], P[3])
    assert not membership.add(P[4], AdmissionRecord(5, 1))
    assert membership.members == (P[0], P[1], P[4], P[3])


# Strangers


@pytest.mark.parametrize(
    ("code", "infos"),
    [
        (statuses.GROUP_LEFT, (about(1),)),
        (statuses.GROUP_LEFT, ()),
        (statuses.GROUP_MEMBER_FAILED, (about(1),)),
        (statuses.GROUP_LEADER_FAILED, (about(0),)),
        (statuses.GROUP_MEMBERSHIP_UPDATE, (talk.procs(keys.GROUP_MEMBERSHIP, P[:3]),)),
        (
            statuses.GROUP_MEMBERSHIP_UPDATE,
            (talk.proc(talk.ADDED, P[5]), talk.size(talk.PLACE, 1), talk.size(talk.LIFE, 1)),
        ),
        (statuses.TALK, (talk.text(talk.SAYS, "admit news"), talk.procs(talk.ENDED, P[:2]))),
    ],
)
def test_a_stranger_changes_nothing_and_no_handler_hears_of_it(code: int, infos: tuple[Info, ...]) -> None:
    team = Team(leader=0, directives=NOTIFY, adapts=True)
    team.world[2].on(code)
    team.arrives(2, code, P[5], *infos)
    team.world.run()
    assert team.ranks(2) == [0, 1, 2, 3]
    assert team.world[2].state(G).leader == P[0]
    assert not team.changes[2]
    assert code == statuses.TALK or not team.world[2].seen


def test_words_that_nobody_here_knows_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    team = Team()
    team.arrives(2, statuses.TALK, P[1], talk.text(talk.SAYS, "a word of a later release"))
    team.world.run()
    assert team.ranks(2) == [0, 1, 2, 3]
    assert not caplog.records


def test_only_hosts_tell_of_the_ends_of_others() -> None:
    team = Team()
    for source, members in ((P[5], [0, 1, 2, 3]), (P[2], [0, 1, 2, 3]), (P[1], [0, 2, 3]), (SERVER, [0, 2])):
        ended = about(3) if source == SERVER else about(1)
        team.world[0].arrives(Notification(statuses.PROC_TERMINATED, source, RANGE_SESSION, (ended,)))
        assert team.ranks(0) == members


@pytest.mark.parametrize(
    "code",
    [statuses.GROUP_LEFT, statuses.GROUP_MEMBERSHIP_UPDATE, statuses.GROUP_MEMBER_FAILED, statuses.GROUP_LEADER_FAILED],
)
def test_nonsense_of_a_member_harms_nobody(code: int) -> None:
    team = Team(leader=1, adapts=True)
    number = talk.size
    nonsense = (
        (talk.text(keys.EVENT_AFFECTED_PROC, "me"),),
        (talk.procs(keys.EVENT_AFFECTED_PROC, []),),
        (number(talk.ADDED, 3), number(talk.PLACE, 1), number(talk.LIFE, 1)),
        (talk.procs(talk.ADDED, P[4:6]), number(talk.PLACE, 1), number(talk.LIFE, 1)),
        (talk.proc(talk.ADDED, P[4]), talk.text(talk.PLACE, "1")),
        (talk.text(talk.LIFE, "x"), talk.proc(keys.EVENT_AFFECTED_PROC, P[3])),
    )
    for infos in nonsense:
        team.arrives(2, code, P[0], *infos)
    team.world[2].arrives(Notification(code, P[0], RANGE_CUSTOM, (number(keys.GROUP_ID, 1),)))
    assert set(team.ranks(2) or ()) <= {0, 1, 2, 3}


def test_a_member_on_another_library_tells_who_is_in_the_group() -> None:
    team = Team()
    team.arrives(2, statuses.GROUP_MEMBERSHIP_UPDATE, P[0], talk.procs(keys.GROUP_MEMBERSHIP, (P[0], P[2], P[4])))
    team.world.run()
    assert team.ranks(2) == [0, 2, 4]
    assert sorted(team.kinds(2)) == [(JOINED, (4,)), (LEFT, (1,)), (LEFT, (3,))]
    team.arrives(2, statuses.GROUP_MEMBERSHIP_UPDATE, P[0], talk.procs(keys.GROUP_MEMBERSHIP, (P[0], P[4])))
    team.world.run()
    assert team.ranks(2) is None
    assert team.ends[2] == [None]


# The end


def test_a_group_that_is_destructed_ends_its_watches() -> None:
    team = Team()
    team.world[0].agent.standing.dissolve(G)
    team.world[0].agent.standing.dissolve(G)
    team.world.run()
    assert team.kinds(0) == [(DESTRUCTED, ())]
    assert team.ends[0] == [None]
    assert is_idle("standing", team.world[0].agent.standing)
    assert team.world[0].agent.standing.names() == ()


def test_the_end_of_the_session_ends_the_watches_with_its_error() -> None:
    team = Team()
    lost = PMIxError("gone")
    team.world[0].agent.handle_disconnect(lost)
    team.world.run()
    assert team.ends[0] == [lost]
    assert is_idle("standing", team.world[0].agent.standing)


def test_a_watch_that_is_taken_back_hears_no_more() -> None:
    team = Team()
    heard: list[GroupChange] = []
    watch = team.world[0].start(GroupWatch(G, heard.append))
    team.leave(1)
    team.world.run()
    for _ in range(2):
        assert team.world[0].start(GroupUnwatch(watch.result)).status == 0
    team.leave(2)
    team.world.run()
    assert [change.procs for change in heard] == [(P[1],)]
    assert team.kinds(0) == [(LEFT, (1,)), (LEFT, (2,))]


def test_who_watches_late_may_hear_what_was_before() -> None:
    team = Team()
    team.leave(1)
    team.world.run()
    heard: list[GroupChange] = []
    team.world[0].start(GroupWatch(G, heard.append, None, True))
    team.leave(2)
    team.world.run()
    assert [change.procs for change in heard] == [(P[1],), (P[2],)]
    group = team.world[0].agent.standing.group(G)
    for life in range(1, standing.MAX_PAST + 10):
        team.world[0].agent.standing.admit(group, P[5], AdmissionRecord(life, life))
    assert len(group.past) == standing.MAX_PAST


def test_a_group_that_is_formed_anew_is_another_one() -> None:
    team = Team()
    team.arrives(0, statuses.GROUP_LEFT, P[1], about(1))
    team.form(0)
    team.world.run()
    assert team.kinds(0) == [(LEFT, (1,)), (DESTRUCTED, ())]
    assert team.world[0].state(G).epoch == 1


# The order of members

STEPS = [
    ("add", 4, AdmissionRecord(1, 10)),
    ("add", 5, AdmissionRecord(2, 11)),
    ("add", 3, AdmissionRecord(2, 12)),
    ("add", 5, AdmissionRecord(4, 11)),
    ("remove", 1, 0),
    ("remove", 4, 10),
]


@given(st.permutations(STEPS))
def test_members_come_to_the_same_order_however_they_hear(steps: list[tuple[str, int, Any]]) -> None:
    membership = MemberList(P[:3], {})
    for what, rank, how in steps:
        getattr(membership, what)(P[rank], how)
    assert [each.rank for each in membership.members] == [0, 2, 3, 5]


def test_events_of_other_groups_go_their_way() -> None:
    team = Team()
    team.world[0].on(statuses.GROUP_LEFT)
    event = NotifyEvent(
        statuses.GROUP_LEFT, RANGE_CUSTOM, (talk.procs(keys.EVENT_CUSTOM_RANGE, P[:1]), talk.text(keys.GROUP_ID, "x"))
    )
    team.world[5].notify(event)
    team.world.run()
    assert len(team.world[0].seen) == 1
    assert team.ranks(0) == [0, 1, 2, 3]


def test_a_failure_that_a_server_tells_again_after_the_destruct_is_told_once():
    team = Team(directives=NOTIFY)
    team.world[0].on(statuses.GROUP_MEMBER_FAILED)
    failed = talk.proc(keys.EVENT_AFFECTED_PROC, P[3])
    team.arrives(0, statuses.GROUP_MEMBER_FAILED, SERVER, failed)
    team.world.run()
    team.world[0].agent.standing.dissolve(G)
    team.arrives(0, statuses.GROUP_MEMBER_FAILED, SERVER, failed)
    team.world.run()
    assert len(team.world[0].events(statuses.GROUP_MEMBER_FAILED)) == 1
    team.world[0].agent.standing.expected(G, ATTEMPT)
    team.arrives(0, statuses.GROUP_MEMBER_FAILED, SERVER, failed)
    team.world.run()
    assert len(team.world[0].events(statuses.GROUP_MEMBER_FAILED)) == 2


def test_a_choice_ends_for_a_member_that_hears_first_who_leads() -> None:
    """An admitted member may hear it from the registrar, while its own part in the choice goes on."""
    team = Team(leader=0, directives=NOTIFY)
    team.world.kill(0)
    member = team.world[1]
    group = member.agent.standing.group(G)
    assert group is not None
    while group.electing is None:
        team.world.step()
    assert "election" in member.under_way()
    member.agent.standing.led(G, P[2], group.term + 1)
    assert "election" not in member.under_way()
    assert member.state(G).leader == P[2]
    team.world.run()
    assert {team.world[rank].state(G).term for rank in (1, 2, 3)} == {2}
