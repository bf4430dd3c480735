"""Proves the early draft's way into a group that stands: asking to join it."""

from __future__ import annotations

from typing import Any

import pytest

from harness.group_world import NSPACE, SERVER, Process, Ticket, World
from pypmix.engine.groups import talk
from pypmix.engine.groups.requesting import SILENCE
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import LostConnection, NotFound, OperationTimeout
from pypmix.standard.keys import EVENT_AFFECTED_PROC, GROUP_ID, GROUP_INFO, GROUP_MEMBERSHIP, TIMEOUT
from pypmix.standard.ops import GroupLeave, GroupRequest, Notification, NotifyEvent, QueryInfo
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import DataArray, Info, Proc, Value

G = "team"
P = [Proc(NSPACE, rank) for rank in range(8)]


class Server(World):
    """A world whose server may know the members of groups."""

    known: tuple[Proc, ...] = ()

    def asked(self, process: Process, op: Any, done: Any) -> None:
        if isinstance(op, QueryInfo) and self.known:
            answer = (talk.procs("pmix.qry.pgrpmems", self.known),)
            self.carry(SERVER, process.proc, lambda: None if process.dead else done(answer, None))
        else:
            super().asked(process, op, done)


class Team:
    """A group of the first ranks of a world; the server knows of it, unless it is told not to."""

    def __init__(self, size: int = 4, *, knows: bool = True, speaks: bool = True, **about: Any) -> None:
        self.world = Server(8)
        self.members = tuple(P[:size])
        self.world.known = self.members if knows else ()
        for rank in range(size if speaks else 0):
            self.world[rank].agent.standing.formed(G, self.members, **about)

    def ask(self, rank: int, *directives: Info) -> Ticket:
        return self.world[rank].start(GroupRequest(G, directives))

    def at(self, time: float, call: Any) -> None:
        self.world.after(time, call)

    def ranks(self) -> dict[int, list[int]]:
        """What those who are in the group think who is."""
        states = {process.proc.rank: process.state(G) for process in self.world.living}
        return {rank: [each.rank for each in state.members] for rank, state in states.items() if state is not None}

    def agree(self) -> list[int]:
        """Return who is in the group, where all who are agree."""
        found = self.ranks()
        first = next(iter(found.values()))
        assert all(members == first for members in found.values()), found
        assert sorted(first) == sorted(found), found
        assert [what for process in self.world.living for what in process.under_way() if what != "standing"] == []
        assert not [timer for timer in self.world.timers if not timer.process.dead]
        return first


def test_a_proc_that_all_approve_of_is_a_member() -> None:
    said = Info(GROUP_INFO, Value(codes.STRING, "founders"))
    team = Team(leader=P[1], context_id=9, infos=(said,), directives=(attrs.GROUP_NOTIFY_TERMINATION(True),))
    for rank in range(4):
        team.world[rank].on((statuses.JOIN_REQUEST, statuses.GROUP_MEMBERSHIP_UPDATE))
    mine = Info(GROUP_INFO, Value(codes.STRING, "newcomer"))
    ticket = team.ask(6, mine, attrs.TIMEOUT(30))
    team.world.run()
    assert ticket.result.members == (*P[:4], P[6])
    assert ticket.result.context_id == 9
    assert ticket.result.infos == (said, mine)
    assert team.agree() == [0, 1, 2, 3, 6]
    for rank in range(4):
        request, update = team.world[rank].seen
        assert (request.code, request.source) == (statuses.JOIN_REQUEST, P[6])
        assert mine in request.infos
        assert not any(info.key == TIMEOUT for info in request.infos)
        assert update.code == statuses.GROUP_MEMBERSHIP_UPDATE
        assert talk.listed(update.infos, GROUP_MEMBERSHIP) == (*P[:4], P[6])
        assert team.world[rank].state(G).infos == (said, mine)
    states = {team.world[rank].state(G) for rank in (0, 2, 6)}
    assert len(states) == 1
    assert team.world[6].agent.standing.group(G).notifies
    assert ticket.at is not None and ticket.at < 1, "nobody waits where all have handlers or none"


def test_the_servers_know_a_member_before_the_registrar_does() -> None:
    """Else a fence of the group that the registrar calls at once leaves the new member out."""
    team = Team()
    seen: list[list[int]] = []

    class Slow(Server):
        def asked(self, process: Process, op: Any, done: Any) -> None:
            def told(result: object, error: BaseException | None) -> None:
                seen.extend([[each.rank for each in state.members]] if (state := process.state(G)) is not None else [])
                done(result, error)

            update = isinstance(op, NotifyEvent) and op.code == statuses.GROUP_MEMBERSHIP_UPDATE
            super().asked(process, op, told if update else done)

    team.world.__class__ = Slow
    team.ask(6)
    team.world.run()
    assert seen == [[0, 1, 2, 3]]
    assert team.agree() == [0, 1, 2, 3, 6]


@pytest.mark.parametrize("rank", [0, 2])
def test_one_member_that_refuses_is_enough(rank: int) -> None:
    team = Team()
    reason = talk.text(talk.REASON, "we are full")
    team.world[rank].on(statuses.JOIN_REQUEST, lambda event: (statuses.ERR_NO_PERMISSIONS, (reason,)))
    team.world[3].on(statuses.JOIN_REQUEST, never=True)
    ticket = team.ask(5)
    team.world.run()
    assert ticket.status == statuses.ERR_NO_PERMISSIONS
    assert "we are full" in str(ticket.error)
    assert team.agree() == [0, 1, 2, 3]


def test_a_handler_may_refuse_in_its_results() -> None:
    team = Team()
    refused = Info(talk.ERROR_STATUS, Value(codes.STATUS, statuses.ERR_NO_PERMISSIONS))
    team.world[1].on(statuses.JOIN_REQUEST, lambda event: (statuses.EVENT_ACTION_COMPLETE, (refused,)))
    ticket = team.ask(5)
    team.world.run()
    assert ticket.status == statuses.ERR_NO_PERMISSIONS


def test_a_handler_that_fails_refuses() -> None:
    def fails(event: Notification) -> None:
        raise RuntimeError("on purpose")

    team = Team()
    team.world[1].on(statuses.JOIN_REQUEST, fails)
    ticket = team.ask(5)
    team.world.run()
    assert ticket.status == -1
    assert team.agree() == [0, 1, 2, 3]


def test_members_without_handlers_approve_at_once() -> None:
    team = Team()
    ticket = team.ask(5)
    team.world.run()
    assert ticket.status == 0
    assert ticket.at is not None and ticket.at < 1


def test_a_handler_may_take_its_time() -> None:
    team = Team()
    team.world[2].on(statuses.JOIN_REQUEST, within=100)
    ticket = team.ask(5)
    team.world.run()
    assert ticket.status == 0
    assert ticket.at is not None and ticket.at > 100


def test_a_group_that_the_server_knows_nothing_of_is_found() -> None:
    team = Team(knows=False)
    ticket = team.ask(5)
    team.world.run()
    assert ticket.status == 0
    assert team.agree() == [0, 1, 2, 3, 5]


def test_an_old_list_of_the_server_does_no_harm() -> None:
    team = Team()
    team.world.known = (P[7], P[6], P[3], P[2])
    team.world.kill(7)
    team.world.run()
    ticket = team.ask(5)
    team.world.run()
    assert ticket.status == 0
    assert team.agree() == [0, 1, 2, 3, 5]


def test_there_may_be_no_such_group() -> None:
    team = Team(knows=False, speaks=False)
    ticket = team.ask(5)
    team.world.run()
    assert isinstance(ticket.error, NotFound)
    assert ticket.at is not None and ticket.at < 2 * SILENCE
    assert team.world[5].agent.standing.idle


def test_programs_on_other_libraries_do_not_answer() -> None:
    team = Team(speaks=False)
    ticket = team.ask(5)
    team.world.run()
    assert ticket.status == statuses.ERR_NOT_SUPPORTED
    assert ticket.at is not None and ticket.at < 3 * SILENCE


def test_a_member_on_another_library_is_not_waited_for_long() -> None:
    team = Team(3)
    members = (*P[:3], P[7])
    for rank in range(3):
        team.world[rank].agent.standing.formed(G, members)
    ticket = team.ask(5)
    team.world.run()
    assert ticket.status == 0
    assert ticket.at is not None and SILENCE <= ticket.at < 2 * SILENCE


def test_a_member_does_not_ask_to_join() -> None:
    team = Team()
    assert team.ask(1).status == statuses.ERR_EXISTS
    ticket = team.ask(5)
    assert team.ask(5).status == statuses.ERR_EXISTS
    team.world.run()
    assert ticket.status == 0


def test_nobody_asks_for_what_it_is_making() -> None:
    team = Team()
    team.world[5].agent.standing.expected(G)
    assert team.ask(5).status == statuses.ERR_EXISTS


@pytest.mark.parametrize("millis", range(0, 110, 5))
def test_another_registrar_takes_over_when_one_ends(millis: int) -> None:
    team = Team()
    for rank in range(4):
        team.world[rank].on(statuses.JOIN_REQUEST)
    ticket = team.ask(6)
    team.at(millis / 1000, lambda: team.world.kill(0))
    team.world.run()
    assert ticket.status == 0
    assert team.agree() == [1, 2, 3, 6]
    assert {len(team.world[rank].seen) for rank in (1, 2, 3)} <= {1}, "handlers decide once"


@pytest.mark.parametrize("millis", range(0, 110, 5))
def test_another_registrar_takes_over_when_one_leaves(millis: int) -> None:
    team = Team()
    ticket = team.ask(6)
    team.at(millis / 1000, lambda: team.world[0].start(GroupLeave(G)))
    team.world.run()
    assert ticket.status == 0
    assert team.agree() == [1, 2, 3, 6]


@pytest.mark.parametrize("millis", range(0, 110, 5))
def test_who_asks_may_end_at_any_moment(millis: int) -> None:
    team = Team()
    for rank in range(4):
        team.world[rank].on(statuses.JOIN_REQUEST)
    team.ask(6)
    team.at(millis / 1000, lambda: team.world.kill(6))
    team.world.run()
    assert team.agree() == [0, 1, 2, 3]


@pytest.mark.parametrize("millis", range(0, 110, 5))
def test_a_member_may_leave_while_another_one_comes(millis: int) -> None:
    team = Team()
    ticket = team.ask(6)
    team.at(millis / 1000, lambda: team.world[2].start(GroupLeave(G)))
    team.world.run()
    assert ticket.status == 0
    assert team.agree() == [0, 1, 3, 6]


@pytest.mark.parametrize("millis", range(0, 110, 5))
def test_a_group_may_go_while_somebody_asks(millis: int) -> None:
    team = Team()

    def destruct() -> None:
        team.world.known = ()
        for rank in range(4):
            team.world[rank].agent.standing.gone(G)

    ticket = team.ask(6)
    team.at(millis / 1000, destruct)
    team.world.run()
    assert ticket.status in (0, statuses.ERR_NOT_FOUND)
    assert set(team.ranks()) <= {6}
    assert (ticket.status == 0) is (6 in team.ranks())


def test_several_may_ask_at_once() -> None:
    team = Team()
    tickets = [team.ask(rank) for rank in (7, 5, 6, 4)]
    team.world.run()
    assert [ticket.status for ticket in tickets] == [0] * 4
    assert team.agree() == [0, 1, 2, 3, 7, 5, 6, 4]


def test_who_has_come_later_may_be_the_registrar() -> None:
    team = Team(1)
    for rank in (4, 5, 6):
        team.ask(rank)
        team.world.run()
        team.world.known = team.world[rank].state(G).members
        first = team.world.known[0]
        if rank == 5:
            team.world[first].start(GroupLeave(G))
            team.world.run()
    assert team.agree() == [4, 5, 6]


def test_a_request_in_vain_ends_in_time() -> None:
    team = Team()
    team.world[1].on(statuses.JOIN_REQUEST, never=True)
    ticket = team.ask(5, attrs.TIMEOUT(3))
    later = team.ask(6, attrs.TIMEOUT(8))
    team.world.run()
    assert (ticket.status, ticket.at) == (statuses.ERR_TIMEOUT, 3)
    assert isinstance(ticket.error, OperationTimeout)
    assert (later.status, later.at) == (statuses.ERR_TIMEOUT, 8)
    assert team.agree() == [0, 1, 2, 3]


def test_who_is_taken_in_too_late_leaves_again() -> None:
    team = Team()
    team.world.delay = lambda most: 0.7 if most == 0.01 else most
    ticket = team.ask(5, attrs.TIMEOUT(4))
    team.world.run()
    assert ticket.status == statuses.ERR_TIMEOUT
    assert any("-164" in line for line in team.world.log), "it was taken in"
    assert team.agree() == [0, 1, 2, 3]


def test_who_has_left_may_come_back() -> None:
    team = Team()
    team.world[1].start(GroupLeave(G))
    team.world.run()
    ticket = team.ask(1)
    team.world.run()
    assert ticket.status == 0
    assert team.agree() == [0, 2, 3, 1]
    team.world[1].start(GroupLeave(G))
    team.world.run()
    assert team.agree() == [0, 2, 3]


def test_a_registrar_that_cannot_tell_the_others_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    team = Team()
    real = team.world[0].submit
    lost = LostConnection("gone")

    def submit(op: Any, done: Any) -> None:
        if isinstance(op, NotifyEvent) and op.code == statuses.GROUP_MEMBERSHIP_UPDATE:
            done(None, lost)
        else:
            real(op, done)

    monkeypatch.setattr(team.world[0], "submit", submit)
    ticket = team.ask(5)
    team.world.run()
    assert ticket.status == lost.code
    assert team.agree() == [0, 1, 2, 3]


def test_an_answer_of_a_stranger_makes_nobody_a_member() -> None:
    team = Team()
    team.world[0].on(statuses.JOIN_REQUEST, within=10)
    ticket = team.ask(5)
    number = talk.size(talk.LIFE, 1)

    def lie() -> None:
        for says, infos in (
            ("request answer", (talk.procs(GROUP_MEMBERSHIP, (P[5], P[7])),)),
            ("request answer", (Info(talk.ERROR_STATUS, Value(codes.STATUS, -1)),)),
            ("request turn", ()),
            ("request taken", ()),
        ):
            life = team.world[5].agent.requesting._requests[G].number
            team.world[7].notify(talk.say(says, G, (P[5],), (talk.size(talk.LIFE, life), *infos)))
        team.world[7].notify(talk.say("admit verdict", G, (P[0],), (talk.proc(EVENT_AFFECTED_PROC, P[5]), number)))

    team.at(1, lie)
    team.world.run()
    assert ticket.status == 0
    assert ticket.at is not None and ticket.at > 10
    assert team.agree() == [0, 1, 2, 3, 5]


@pytest.mark.parametrize("says", ["ask", "seek", "withdraw", "may join", "at it", "verdict", "news", "answer"])
@pytest.mark.parametrize("number", [-1, 2**64, 2**64 - 1, True, "x", None])
def test_nonsense_harms_nobody(says: str, number: object) -> None:
    team = Team()
    anything = [Info(key, Value.unchecked(codes.SIZE, number)) for key in (talk.LIFE, talk.PLACE, talk.ERROR_STATUS)]
    array = Info(talk.ADDED, Value(codes.DATA_ARRAY, DataArray(codes.SIZE, (1, 2))))
    whom = Info(EVENT_AFFECTED_PROC, Value(codes.SIZE, 1))
    team.world[7].agent.requesting.asks(G)
    ticket = team.ask(5)
    for infos in ((), anything, (array,), (whom,), (*anything, talk.procs(talk.ADDED, [P[7]]), talk.flag(talk.INFOS))):
        # A member that asks to join has only itself to blame.
        for source in (7,) if says == "ask" else (1, 7):
            for part in ("admit", "request"):
                said = talk.text(talk.SAYS, f"{part} {says}"), talk.text(GROUP_ID, G)
                event = Notification(statuses.TALK, P[source], RANGE_CUSTOM, (*said, *infos))
                for rank in (0, 2, 5):
                    team.world.carry(P[source], P[rank], lambda rank=rank, event=event: team.world[rank].arrives(event))
    team.world.run()
    assert ticket.status == 0
    assert set(team.agree()) - {7} == {0, 1, 2, 3, 5}


def test_the_end_of_the_session_ends_requests() -> None:
    team = Team()
    team.world[0].on(statuses.JOIN_REQUEST, never=True)
    ticket = team.ask(5)
    team.world.run(until=1)
    lost = LostConnection("gone")
    team.world[5].agent.lost(lost)
    assert ticket.error is lost


def test_a_registrar_that_is_about_to_leave_takes_nobody_in_and_goes_on_if_it_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = Team()
    real = team.world[0].submit

    def submit(op: Any, done: Any) -> None:
        if isinstance(op, NotifyEvent) and op.code == statuses.GROUP_LEFT:
            team.at(3, lambda: done(None, LostConnection("gone")))
        else:
            real(op, done)

    monkeypatch.setattr(team.world[0], "submit", submit)
    left = team.world[0].start(GroupLeave(G))
    assert team.world[0].start(GroupLeave(G)).status == statuses.ERR_RESOURCE_BUSY
    ticket = team.ask(5)
    team.world.run()
    assert isinstance(left.error, LostConnection)
    assert ticket.status == 0
    assert ticket.at is not None and ticket.at >= 3
    assert team.agree() == [0, 1, 2, 3, 5]
