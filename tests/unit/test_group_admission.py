"""Proves admissions to groups that stand: a member takes a proc in, which waits for that."""

from __future__ import annotations

from typing import Any

import pytest

from lib.group_world import NSPACE, Ticket, World
from pypmix.engine.groups import talk
from pypmix.engine.groups.entering import _lives
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.errors import LostConnection, NotFound, OperationTimeout
from pypmix.standard.ops import GroupAdmit, GroupConstruct, GroupEnter, GroupLeave, NotifyEvent
from pypmix.standard.types import Info, Proc, Value

G = "team"
P = [Proc(NSPACE, rank) for rank in range(8)]


class Team(World):
    """A group of the first four of eight processes."""

    def __init__(self, size: int = 4, **about: Any) -> None:
        super().__init__(8)
        for rank in range(size):
            self[rank].agent.standing.formed(G, tuple(P[:size]), **about)

    def admit(self, member: int, rank: int, *directives: Any) -> Ticket:
        return self[member].start(GroupAdmit(G, P[rank], directives))

    def enter(self, rank: int, *directives: Any, by: tuple[int, ...] = tuple(range(8))) -> Ticket:
        return self[rank].start(GroupEnter(G, lambda proc: proc.rank in by, directives))

    def ranks(self) -> list[int]:
        """Return the members, of whom all agree, with nothing under way."""
        states = {process.proc: process.state(G) for process in self.living}
        found = {each: state for each, state in states.items() if state is not None}
        (members,) = {state.members for state in found.values()}
        assert {*members} == {*found}
        assert [each for each in self.idle() if not each.endswith("standing")] == []
        return [member.rank for member in members]


@pytest.mark.parametrize("first", ["admit", "enter"])
def test_each_may_come_first(first: str) -> None:
    team = Team(leader=P[1], context_id=9)
    team.after(0 if first == "admit" else 5, lambda: tickets.append(team.admit(0, 6)))
    team.after(0 if first == "enter" else 5, lambda: tickets.append(team.enter(6)))
    tickets: list[Ticket] = []
    team.run()
    assert [ticket.status for ticket in tickets] == [0, 0]
    assert max(ticket.at or 0 for ticket in tickets) < 5.2
    assert team.ranks() == [0, 1, 2, 3, 6]
    assert (team[6].state(G).context_id, team[6].state(G).leader, team[6].state(G).epoch) == (9, P[1], 2)


def test_members_know_before_the_new_one_does() -> None:
    team = Team()
    known: list[list[int]] = []
    ticket = team.enter(6)
    team[6].agent.standing.observe(lambda change: None)
    done = ticket

    def look() -> None:
        if not done.over:
            known.append([rank for rank in range(4) if P[6] in team[rank].state(G).members])
            team.after(0.001, look)

    look()
    team.admit(0, 6)
    team.run()
    assert known[-1] == [0, 1, 2, 3]


def test_several_may_be_taken_in_at_once() -> None:
    team = Team()
    tickets = [team.enter(rank) for rank in (4, 5, 6, 7)]
    tickets += [team.admit(0, rank) for rank in (7, 5, 6, 4)]
    team.run()
    assert [ticket.status for ticket in tickets] == [0] * 8
    assert sorted(team.ranks()) == [*range(8)]


def test_one_member_takes_in_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first of two is welcomed without the second, which was announced without the first."""
    team = Team()
    real = team[0].submit

    def submit(op: Any, done: Any) -> None:
        slow = isinstance(op, NotifyEvent) and talk.listed(op.infos, talk.ADDED) == (P[7],)
        real(op, (lambda result, error: team.after(5, lambda: done(result, error))) if slow else done)

    monkeypatch.setattr(team[0], "submit", submit)
    tickets = [team.enter(6), team.enter(7), team.admit(0, 6), team.admit(0, 7)]
    team.run()
    assert [ticket.status for ticket in tickets] == [0] * 4
    assert team.ranks() == [0, 1, 2, 3, 6, 7]


def test_no_other_member_takes_procs_in() -> None:
    """Servers put new members behind the others in the order in which they are told of them."""
    team = Team()
    for rank in (1, 3):
        assert team.admit(rank, 6).status == statuses.ERR_BAD_PARAM
    team.kill(0)
    team.run()
    tickets = [team.enter(6), team.admit(1, 6)]
    team.run()
    assert [ticket.status for ticket in tickets] == [0, 0]
    assert team.ranks() == [1, 2, 3, 6]


def test_one_that_is_taken_in_takes_others_in() -> None:
    team = Team(1)
    for member, rank in ((0, 4), (4, 5), (5, 6)):
        tickets = [team.enter(rank), team.admit(member, rank)]
        team.run()
        assert [ticket.status for ticket in tickets] == [0, 0]
        team[member].start(GroupLeave(G))
        team.run()
    assert team.ranks() == [6]


@pytest.mark.parametrize("millis", range(0, 80, 5))
def test_another_member_takes_in_one_whose_member_has_ended(millis: int) -> None:
    team = Team()
    ticket = team.enter(6)
    team.admit(0, 6)
    team.after(millis / 1000, lambda: team.kill(0))
    team.after(1, lambda: team.admit(1, 6) if not ticket.over else None)
    team.run()
    assert ticket.status == 0
    assert team.ranks() == [1, 2, 3, 6]


@pytest.mark.parametrize("millis", range(0, 80, 5))
@pytest.mark.parametrize("end", ["kill", "leave", "member leaves", "member ends"])
def test_who_waits_may_go_at_any_moment(millis: int, end: str) -> None:
    team = Team()
    team.enter(6)
    admitted = team.admit(0, 6, attrs.TIMEOUT(3))
    go = {
        "kill": lambda: team.kill(6),
        "leave": lambda: team[6].start(GroupLeave(G)),
        "member ends": lambda: (team.kill(0), team[6].start(GroupLeave(G))),
        "member leaves": lambda: (team[0].start(GroupLeave(G)), team[6].start(GroupLeave(G))),
    }[end]
    team.after(millis / 1000, go)
    team.run()
    assert end == "member ends" or admitted.over
    assert end != "kill" or (admitted.at or 0) < 0.1, "the end of the proc ends it"
    assert team.ranks() == ([1, 2, 3] if end.startswith("member") else [0, 1, 2, 3])


def test_the_time_may_run_out_for_each() -> None:
    team = Team()
    admitted, entered = team.admit(0, 6, attrs.TIMEOUT(2)), team.enter(7, attrs.TIMEOUT(3))
    team.run()
    assert isinstance(admitted.error, OperationTimeout) and admitted.at == 2
    assert isinstance(entered.error, OperationTimeout) and entered.at == 3
    assert team.ranks() == [0, 1, 2, 3]
    assert team.enter(7, attrs.TIMEOUT(3)).over is False


def test_only_those_whom_it_names_take_a_proc_in() -> None:
    team = Team()
    entered, admitted = team.enter(6, attrs.TIMEOUT(2), by=(1,)), team.admit(0, 6, attrs.TIMEOUT(1))
    team.run()
    assert (entered.status, admitted.status) == (statuses.ERR_TIMEOUT,) * 2
    assert team.ranks() == [0, 1, 2, 3]


def test_what_cannot_be() -> None:
    team = Team()
    assert isinstance(team[5].start(GroupAdmit(G, P[6])).error, NotFound)
    assert team.enter(1).status == statuses.ERR_EXISTS
    waits = team.admit(0, 6, attrs.TIMEOUT(1))
    assert team.admit(0, 6).status == statuses.ERR_RESOURCE_BUSY
    entered = team.enter(7)
    assert team.enter(7).status == statuses.ERR_EXISTS
    assert team[7].start(GroupConstruct(G, (P[7], P[6]))).status == statuses.ERR_EXISTS
    team.kill(5)
    team.run()
    assert isinstance(team.admit(0, 5).error, NotFound)
    assert waits.over
    assert team[7].start(GroupLeave(G)).status == 0
    assert isinstance(entered.error, NotFound)
    assert isinstance(team[7].start(GroupLeave(G)).error, NotFound)


def test_the_end_of_the_session_ends_both() -> None:
    team, lost = Team(), LostConnection("gone")
    admitted, entered = team.admit(0, 6), team.enter(7)
    team[0].agent.handle_disconnect(lost)
    team[7].agent.handle_disconnect(lost)
    assert (admitted.error, entered.error) == (lost, lost)


def test_a_group_that_goes_takes_nobody_in() -> None:
    team = Team()
    admitted = team.admit(0, 6)
    team.after(1, lambda: team[0].agent.standing.dissolve(G))
    team.run()
    assert isinstance(admitted.error, NotFound)


def test_nobody_else_has_a_proc_leave_in_a_life_to_come() -> None:
    """Else a stranger could keep it out of the group for good."""
    team = Team()
    early = team.enter(6, attrs.TIMEOUT(1))
    team.run()
    assert early.status == statuses.ERR_TIMEOUT
    count = next(_lives)
    lies = talk.procs(keys.GROUP_MEMBERSHIP, (*P[:4], P[6])), talk.proc(talk.ADDED, P[6]), talk.size(talk.PLACE, 1)
    for life in (count, count + 1, count + 2, 2**64 - 1):
        infos = (*lies, talk.size(talk.LIFE, life))
        team[7].notify(talk.event(statuses.GROUP_MEMBERSHIP_UPDATE, G, (P[6],), infos))
        team[7].notify(talk.say("enter welcome", G, (P[6],), infos))
    team.run()
    entered, admitted = team.enter(6), team.admit(0, 6)
    team.run()
    assert (entered.status, admitted.status) == (0, 0)
    assert team.ranks() == [0, 1, 2, 3, 6]


def test_an_announcement_that_cannot_be_sent_ends_the_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    team, lost = Team(), LostConnection("gone")
    real = team[0].submit

    def submit(op: Any, done: Any) -> None:
        if isinstance(op, NotifyEvent) and op.code == statuses.GROUP_MEMBERSHIP_UPDATE:
            done(None, lost)
        else:
            real(op, done)

    monkeypatch.setattr(team[0], "submit", submit)
    admitted = team.admit(0, 6)
    team.enter(6, attrs.TIMEOUT(1))
    team.run()
    assert admitted.error is lost
    assert team.ranks() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("value", "status"),
    [(Value(codes.STATUS, -5), -5), (Value(codes.STRING, "fine"), -1), (Value(codes.INT64, 1 << 40), -1)],
)
def test_a_verdict_that_cannot_be_read_is_no_approval(value: Value, status: int) -> None:
    assert talk.status_in((Info(talk.ERROR_STATUS, value),)) == status
    assert talk.status_in(()) == 0
