"""Proves the early draft's way into a group that stands, on virtual time: the members are asked, and all approve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from lib.group_world import ATTEMPT, NSPACE, SERVER, Process, Ticket, World, is_idle
from lib.virtual import Programs
from pypmix import aio, attrs
from pypmix.aio.operations.groups import Group
from pypmix.aio.recipes.admission import Admission, request
from pypmix.engine.groups import talk
from pypmix.events import Answer, Event
from pypmix.recipes.joinrequests import MAX_TURNS, NUMBER, OUT, SAYS, Asking
from pypmix.standard import codes, statuses
from pypmix.standard.errors import LostConnection, NotFound, OperationTimeout, PMIxError
from pypmix.standard.keys import (
    EVENT_AFFECTED_PROC,
    EVENT_CUSTOM_RANGE,
    GROUP_ID,
    GROUP_INFO,
    GROUP_MEMBERSHIP,
    TIMEOUT,
)
from pypmix.standard.ops import GroupLeave, Notification, NotifyEvent, QueryInfo
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value

G = "team"
P = [Proc(NSPACE, rank) for rank in range(8)]
SILENCE = 5.0


class Server(World):
    """A world whose server may know the members of groups."""

    known: tuple[Proc, ...] = ()
    number = 0
    """That of the last request."""

    def relay(self, source: Proc, op: NotifyEvent) -> None:
        if talk.found(op.infos, SAYS, str) == "ask":
            self.number = talk.number(op.infos, NUMBER) or 0
        super().relay(source, op)

    def asked(self, process: Process, op: Any, done: Any) -> None:
        if isinstance(op, QueryInfo) and self.known:
            answer = (talk.procs("pmix.qry.pgrpmems", self.known),)
            self.carry(SERVER, process.proc, lambda: None if process.dead else done(answer, None))
        else:
            super().asked(process, op, done)


class Team:
    """A group of the first ranks of a world, which take requests; the server knows of it, unless it is told not to."""

    def __init__(self, size: int = 4, *, knows: bool = True, speaks: bool = True, **about: Any) -> None:
        self.world = Server(8)
        self.programs = Programs(self.world)
        self.members = tuple(P[:size])
        self.world.known = self.members if knows else ()
        self.asked: dict[int, list[Event]] = {rank: [] for rank in range(8)}
        self.decides: dict[int, Callable[[Event], Any]] = {}
        for rank in range(size if speaks else 0):
            self.forms(rank, self.members, **about)

    def forms(self, rank: int, members: tuple[Proc, ...], **about: Any) -> None:
        """A construct has ended at one of its members, which takes requests from then on."""
        results = self.world[rank].agent.standing.formed(G, members, **about)

        async def serve(client: aio.Client) -> None:
            await self.serve(rank, Group(client, client._port, G, None, None, results))

        self.programs.start(self.world[rank], serve)

    async def serve(self, rank: int, group: Group) -> None:
        def approve(event: Event) -> Any:
            self.asked[rank].append(event)
            return self.decides[rank](event) if rank in self.decides else None

        async with Admission(group, approve):
            await anyio.Event().wait()

    def ask(self, rank: int, *directives: Info, timeout: float | None = None) -> Ticket:
        """Have a process ask to join; once it is a member it takes requests as well."""
        ticket = Ticket(self.ask)

        async def join(client: aio.Client) -> None:
            try:
                ticket.result = group = await request(client, G, timeout=timeout, info=directives)
            except Exception as error:
                ticket.error = error
            ticket.over, ticket.at = True, self.world.now
            self.world.log.append(f"{self.world.now:.3f} {rank} = {ticket}")
            if ticket.error is None:
                await self.serve(rank, group)

        self.programs.start(self.world[rank], join)
        return ticket

    def at(self, time: float, call: Any) -> None:
        self.world.after(time, call)

    def run(self, until: float = float("inf")) -> None:
        self.programs.run(until)

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


Make = Callable[..., Team]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Team] = []

    def build(*args: Any, **about: Any) -> Team:
        made.append(Team(*args, **about))
        return made[-1]

    yield build
    for each in made:
        each.programs.close()


async def slowly(event: Event) -> None:
    await anyio.sleep(0.01)


async def never(event: Event) -> None:
    await anyio.Event().wait()


def refuses(reason: str = "") -> Callable[[Event], Answer]:
    return lambda event: event.refuse(reason)


def asks(says: str, to: Proc, *infos: Info) -> NotifyEvent:
    """Return a message of the recipe."""
    return talk.event(statuses.JOIN_TALK, G, (to,), (talk.text(SAYS, says), *infos))


def test_a_proc_that_all_approve_of_is_a_member(make: Make) -> None:
    said = Info(GROUP_INFO, Value(codes.STRING, "founders"))
    team = make(leader=P[1], context_id=9, infos=(said,), directives=(attrs.GROUP_NOTIFY_TERMINATION(True),))
    for rank in range(4):
        team.world[rank].on(statuses.GROUP_MEMBERSHIP_UPDATE)
    mine = Info(GROUP_INFO, Value(codes.STRING, "newcomer"))
    ticket = team.ask(6, mine, timeout=30)
    team.run()
    assert ticket.result.members == (*P[:4], P[6])
    assert ticket.result.context_id == 9
    assert ticket.result.membership.infos == (said, mine)
    assert team.agree() == [0, 1, 2, 3, 6]
    for rank in range(4):
        (request,), (update,) = team.asked[rank], team.world[rank].seen
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


def test_the_servers_know_a_member_before_the_registrar_does(make: Make) -> None:
    """Else a fence of the group that the registrar calls at once leaves the new member out."""
    team = make()
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
    team.run()
    assert seen == [[0, 1, 2, 3]]
    assert team.agree() == [0, 1, 2, 3, 6]


@pytest.mark.parametrize("rank", [0, 2])
def test_one_member_that_refuses_is_enough(make: Make, rank: int) -> None:
    team = make()
    team.decides = {3: never, rank: refuses("we are full")}
    ticket = team.ask(5)
    team.run()
    assert ticket.status == statuses.ERR_NO_PERMISSIONS
    assert "we are full" in str(ticket.error)
    assert team.agree() == [0, 1, 2, 3]


def test_a_handler_may_refuse_in_its_results(make: Make) -> None:
    team = make()
    refused = Info(talk.ERROR_STATUS, Value(codes.STATUS, statuses.ERR_NO_PERMISSIONS))
    team.decides[1] = lambda event: event.done([refused])
    ticket = team.ask(5)
    team.run()
    assert ticket.status == statuses.ERR_NO_PERMISSIONS


def test_a_handler_that_fails_refuses(make: Make) -> None:
    def fails(event: Event) -> None:
        raise RuntimeError("on purpose")

    team = make()
    team.decides[1] = fails
    ticket = team.ask(5)
    team.run()
    assert ticket.status == -1
    assert team.agree() == [0, 1, 2, 3]


def test_members_without_handlers_approve_at_once(make: Make) -> None:
    team = make()
    ticket = team.ask(5)
    team.run()
    assert ticket.status == 0
    assert ticket.at is not None and ticket.at < 1


def test_a_handler_may_take_its_time(make: Make) -> None:
    team = make()
    team.decides[2] = lambda event: anyio.sleep(100)
    ticket = team.ask(5)
    team.run()
    assert ticket.status == 0
    assert ticket.at is not None and ticket.at > 100


def test_a_group_that_the_server_knows_nothing_of_is_found(make: Make) -> None:
    team = make(knows=False)
    ticket = team.ask(5)
    team.run()
    assert ticket.status == 0
    assert team.agree() == [0, 1, 2, 3, 5]


def test_an_old_list_of_the_server_does_no_harm(make: Make) -> None:
    team = make()
    team.world.known = (P[7], P[6], P[3], P[2])
    team.world.kill(7)
    team.run()
    ticket = team.ask(5)
    team.run()
    assert ticket.status == 0
    assert team.agree() == [0, 1, 2, 3, 5]


def test_there_may_be_no_such_group(make: Make) -> None:
    team = make(knows=False, speaks=False)
    ticket = team.ask(5)
    team.run()
    assert isinstance(ticket.error, NotFound)
    assert ticket.at is not None and ticket.at < 2 * SILENCE
    assert is_idle("standing", team.world[5].agent.standing)


def test_a_group_that_nobody_knows_is_not_found_within_a_short_limit_either(make: Make) -> None:
    team = make(knows=False, speaks=False)
    ticket = team.ask(5, timeout=1)
    team.run()
    assert isinstance(ticket.error, NotFound)
    assert ticket.at is not None and 1 <= ticket.at < 1.1
    assert is_idle("standing", team.world[5].agent.standing)


def test_programs_on_other_libraries_do_not_answer(make: Make) -> None:
    team = make(speaks=False)
    ticket = team.ask(5)
    team.run()
    assert ticket.status == statuses.ERR_NOT_SUPPORTED
    assert ticket.at is not None and ticket.at < 3 * SILENCE


def test_a_member_on_another_library_is_not_waited_for_long(make: Make) -> None:
    team = make(3)
    members = (*P[:3], P[7])
    for rank in range(3):
        team.world[rank].agent.standing.formed(G, members)
    ticket = team.ask(5)
    team.run()
    assert ticket.status == 0
    assert ticket.at is not None and SILENCE <= ticket.at < 2 * SILENCE


def test_a_member_does_not_ask_to_join(make: Make) -> None:
    team = make()
    tickets = [team.ask(rank) for rank in (1, 5, 5)]
    team.run()
    assert [ticket.status for ticket in tickets] == [statuses.ERR_EXISTS, 0, statuses.ERR_EXISTS]
    assert team.agree() == [0, 1, 2, 3, 5]


def test_nobody_asks_for_what_it_is_making(make: Make) -> None:
    team = make()
    team.world[5].agent.standing.expected(G, ATTEMPT)
    ticket = team.ask(5)
    team.run()
    assert ticket.status == statuses.ERR_EXISTS


@pytest.mark.parametrize("millis", range(0, 110, 5))
def test_another_registrar_takes_over_when_one_ends(make: Make, millis: int) -> None:
    team = make()
    for rank in range(4):
        team.decides[rank] = slowly
    ticket = team.ask(6)
    team.at(millis / 1000, lambda: team.world.kill(0))
    team.run()
    assert ticket.status == 0
    assert team.agree() == [1, 2, 3, 6]
    assert {len(team.asked[rank]) for rank in (1, 2, 3)} <= {1}, "handlers decide once"


@pytest.mark.parametrize("millis", range(0, 110, 5))
def test_another_registrar_takes_over_when_one_leaves(make: Make, millis: int) -> None:
    team = make()
    ticket = team.ask(6)
    team.at(millis / 1000, lambda: team.world[0].start(GroupLeave(G)))
    team.run()
    assert ticket.status == 0
    assert team.agree() == [1, 2, 3, 6]


@pytest.mark.parametrize("millis", range(0, 110, 5))
def test_who_asks_may_end_at_any_moment(make: Make, millis: int) -> None:
    team = make()
    for rank in range(4):
        team.decides[rank] = slowly
    team.ask(6)
    team.at(millis / 1000, lambda: team.world.kill(6))
    team.run()
    assert team.agree() == [0, 1, 2, 3]


@pytest.mark.parametrize("millis", range(0, 110, 5))
def test_a_member_may_leave_while_another_one_comes(make: Make, millis: int) -> None:
    team = make()
    ticket = team.ask(6)
    team.at(millis / 1000, lambda: team.world[2].start(GroupLeave(G)))
    team.run()
    assert ticket.status == 0
    assert team.agree() == [0, 1, 3, 6]


@pytest.mark.parametrize("millis", range(0, 110, 5))
def test_a_group_may_go_while_somebody_asks(make: Make, millis: int) -> None:
    team = make()

    def destruct() -> None:
        team.world.known = ()
        for rank in range(4):
            team.world[rank].agent.standing.dissolve(G)

    ticket = team.ask(6)
    team.at(millis / 1000, destruct)
    team.run()
    assert ticket.status in (0, statuses.ERR_NOT_FOUND)
    assert set(team.ranks()) <= {6}
    assert (ticket.status == 0) is (6 in team.ranks())


def test_several_may_ask_at_once(make: Make) -> None:
    team = make()
    tickets = [team.ask(rank) for rank in (7, 5, 6, 4)]
    team.run()
    assert [ticket.status for ticket in tickets] == [0] * 4
    assert team.agree() == [0, 1, 2, 3, 7, 5, 6, 4]


def test_who_has_come_later_may_be_the_registrar(make: Make) -> None:
    team = make(1)
    for rank in (4, 5, 6):
        team.ask(rank)
        team.run()
        team.world.known = team.world[rank].state(G).members
        first = team.world.known[0]
        if rank == 5:
            team.world[first].start(GroupLeave(G))
            team.run()
    assert team.agree() == [4, 5, 6]


def test_a_request_in_vain_ends_in_time(make: Make) -> None:
    team = make()
    team.decides[1] = never
    ticket = team.ask(5, timeout=3)
    later = team.ask(6, timeout=8)
    team.run()
    assert isinstance(ticket.error, OperationTimeout)
    assert ticket.at is not None and 3 <= ticket.at < 3.1
    assert later.status == statuses.ERR_TIMEOUT
    assert later.at is not None and 8 <= later.at < 8.1
    assert team.agree() == [0, 1, 2, 3]


def test_a_request_that_is_withdrawn_keeps_no_other_one_waiting(make: Make) -> None:
    team = make()
    team.decides[1] = lambda event: never(event) if event.source == P[5] else None
    ticket = team.ask(5, timeout=3)
    later = team.ask(6)
    team.run()
    assert (ticket.status, later.status) == (statuses.ERR_TIMEOUT, 0)
    assert later.at is not None and 3 <= later.at < 3.5
    assert team.agree() == [0, 1, 2, 3, 6]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_member_that_goes_before_it_has_decided_is_not_waited_for(make: Make, leaves: bool) -> None:
    team = make()
    team.decides[2] = never
    ticket = team.ask(5)
    team.at(8, lambda: team.world[2].start(GroupLeave(G)) if leaves else team.world.kill(2))
    team.run()
    assert ticket.status == 0
    assert ticket.at is not None and 8 <= ticket.at < 8.5
    assert team.agree() == [0, 1, 3, 5]


def test_no_other_member_acts_while_the_first_one_lives(make: Make) -> None:
    """Whatever one that asks says of it."""
    team = make()
    team.at(1, lambda: team.world[7].notify(asks("ask", P[1], talk.size(NUMBER, 1), talk.procs(OUT, [P[0]]))))
    team.run()
    assert not any(team.asked.values())
    team.world.kill(0)
    team.run()
    assert [len(team.asked[rank]) for rank in (1, 2, 3)] == [1, 1, 1]


def test_who_is_taken_in_too_late_leaves_again(make: Make) -> None:
    team = make()
    team.world.delay = lambda most: 0.7 if most == 0.01 else most
    ticket = team.ask(5, timeout=4)
    team.run()
    assert ticket.status == statuses.ERR_TIMEOUT
    assert any("-164" in line for line in team.world.log), "it was taken in"
    assert team.agree() == [0, 1, 2, 3]


def test_who_has_left_may_come_back(make: Make) -> None:
    team = make()
    team.world[1].start(GroupLeave(G))
    team.run()
    ticket = team.ask(1)
    team.run()
    assert ticket.status == 0
    assert team.agree() == [0, 2, 3, 1]
    team.world[1].start(GroupLeave(G))
    team.run()
    assert team.agree() == [0, 2, 3]


def test_a_registrar_that_cannot_tell_the_others_refuses(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    team = make()
    real = team.world[0].submit
    lost = LostConnection("gone")

    def submit(op: Any, done: Any) -> None:
        if isinstance(op, NotifyEvent) and op.code == statuses.GROUP_MEMBERSHIP_UPDATE:
            done(None, lost)
        else:
            real(op, done)

    monkeypatch.setattr(team.world[0], "submit", submit)
    ticket = team.ask(5)
    team.run()
    assert ticket.status == lost.code
    assert team.agree() == [0, 1, 2, 3]


def test_an_answer_of_a_stranger_makes_nobody_a_member(make: Make) -> None:
    team = make()
    team.decides[0] = lambda event: anyio.sleep(10)
    ticket = team.ask(5)

    def lie() -> None:
        liar, number = team.world[7], talk.size(NUMBER, team.world.number)
        for says, infos in (
            ("refused", (Info(talk.ERROR_STATUS, Value(codes.STATUS, -1)),)),
            ("turn", (talk.procs(GROUP_MEMBERSHIP, (P[7],)),)),
            ("here", (talk.procs(GROUP_MEMBERSHIP, (P[7],)),)),
            ("taken", ()),
        ):
            liar.notify(asks(says, P[5], number, *infos))
        life = talk.size(talk.LIFE, team.world[5].agent.part("entering")._entries[G].life)
        liar.notify(talk.say("enter offer", G, (P[5],)))
        liar.notify(talk.say("enter welcome", G, (P[5],), (life, talk.procs(GROUP_MEMBERSHIP, (P[5], P[7])))))
        liar.notify(talk.say("admit comes", G, (P[0],), (life,)))
        about = talk.proc(EVENT_AFFECTED_PROC, P[5]), number
        liar.notify(asks("at it", P[0], *about))
        liar.notify(asks("verdict", P[0], *about, Info(talk.ERROR_STATUS, Value(codes.STATUS, -1))))
        liar.notify(talk.event(statuses.JOIN_REQUEST, G, (P[1],), (talk.proc(EVENT_AFFECTED_PROC, P[7]), number)))

    team.at(1, lie)
    team.run()
    assert ticket.status == 0
    assert ticket.at is not None and ticket.at > 10
    assert team.agree() == [0, 1, 2, 3, 5]


@pytest.mark.parametrize(
    "says",
    [
        "ask",
        "seek",
        "withdraw",
        "taken",
        "turn",
        "here",
        "refused",
        "at it",
        "verdict",
        "",
        "comes",
        "known",
        "news",
        "offer",
        "welcome",
    ],
)
@pytest.mark.parametrize("number", [-1, 2**64, 2**64 - 1, True, "x", None])
def test_nonsense_harms_nobody(make: Make, says: str, number: object) -> None:
    team = make()
    anything = [
        Info(key, Value.unchecked(codes.SIZE, number)) for key in (talk.LIFE, talk.PLACE, talk.ERROR_STATUS, NUMBER)
    ]
    array = Info(talk.ADDED, Value(codes.DATA_ARRAY, DataArray(codes.SIZE, (1, 2))))
    whom = Info(EVENT_AFFECTED_PROC, Value(codes.SIZE, 1))
    ticket = team.ask(5)
    for infos in ((), anything, (array,), (whom,), (*anything, talk.procs(talk.ADDED, [P[7]]), talk.flag(talk.INFOS))):
        # A member that asks to join has only itself to blame.
        for source in (7,) if says == "ask" else (1, 7):
            for code, word in (
                (statuses.JOIN_REQUEST if not says else statuses.JOIN_TALK, talk.text(SAYS, says)),
                (statuses.TALK, talk.text(talk.SAYS, f"admit {says}")),
                (statuses.TALK, talk.text(talk.SAYS, f"enter {says}")),
            ):
                event = Notification(code, P[source], RANGE_CUSTOM, (word, talk.text(GROUP_ID, G), *infos))
                for rank in (0, 2, 5):
                    team.world.carry(P[source], P[rank], lambda rank=rank, event=event: team.world[rank].arrives(event))
    team.run()
    assert ticket.status == 0
    assert set(team.agree()) - {7} == {0, 1, 2, 3, 5}


def test_the_end_of_the_session_ends_requests(make: Make) -> None:
    team = make()
    team.decides[0] = never
    ticket = team.ask(5)
    lost = LostConnection("gone")
    team.at(1, lambda: team.world[5].agent.handle_disconnect(lost))
    team.run()
    assert ticket.error is lost


def test_a_registrar_that_is_about_to_leave_takes_nobody_in_and_goes_on_if_it_stays(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = make()
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
    team.run()
    assert isinstance(left.error, LostConnection)
    assert ticket.status == 0
    assert ticket.at is not None and ticket.at >= 3
    assert team.agree() == [0, 1, 2, 3, 5]


# Which member is asked next


class Asker:
    """A request, and what the members say to it."""

    def __init__(self, *members: int, patience: float = 5.0) -> None:
        self.asking = Asking(P[6], G, (), patience)
        first = self.asking.begin(tuple(P[rank] for rank in members))
        self.number = talk.number(first.infos, NUMBER) or 0
        self.said = [self.read(first)]

    @staticmethod
    def read(op: NotifyEvent | None) -> object:
        """Return which member is asked, or what else is said."""
        if op is None:
            return None
        says = talk.found(op.infos, SAYS, str)
        return talk.listed(op.infos, EVENT_CUSTOM_RANGE)[0].rank if says == "ask" else says

    def hears(self, source: int, says: str, members: tuple[int, ...] = (), *infos: Info) -> object:
        named = talk.procs(GROUP_MEMBERSHIP, [P[rank] for rank in members])
        infos = talk.text(SAYS, says), talk.text(GROUP_ID, G), talk.size(NUMBER, self.number), named, *infos
        op = self.asking.take(Notification(statuses.JOIN_TALK, P[source], RANGE_CUSTOM, infos))
        if op is not None:
            self.number = talk.number(op.infos, NUMBER) or self.number
        return self.read(op)

    def ends(self, rank: int) -> object:
        ended = talk.proc(EVENT_AFFECTED_PROC, P[rank])
        return self.read(self.asking.take(Notification(statuses.PROC_TERMINATED, SERVER, RANGE_CUSTOM, (ended,))))

    def silence(self) -> object:
        return self.read(self.asking.silent())


def test_members_turn_a_request_to_others() -> None:
    asker = Asker(0, 1)
    assert asker.said == [0]
    assert asker.hears(1, "turn", (1, 2)) is None, "it was not asked"
    assert asker.hears(0, "turn", (1, 2)) == 1
    assert asker.hears(1, "turn", (2, 1)) == 2
    assert asker.hears(2, "turn") == 1
    assert asker.ends(2) is None
    assert asker.ends(1) == "seek"
    assert asker.hears(4, "here", (3, 5)) is None, "it is not one of those that it names"
    assert asker.hears(4, "here", (3, 4)) == 3
    assert [rank for rank in range(8) if asker.asking.trusts(P[rank])] == [0, 1, 2, 3, 4]
    with pytest.raises(NotFound):
        asker.ends(3), asker.hears(4, "turn")


def test_a_member_that_is_silent_may_be_found_again() -> None:
    asker = Asker(0)
    assert asker.silence() == "seek"
    assert asker.hears(0, "here", (0, 1)) == 0
    assert asker.hears(1, "here", (0, 1)) is None
    assert asker.hears(0, "taken") is None and asker.asking.until == float("inf")
    with pytest.raises(PMIxError, match="do not answer") as caught:
        Asker(0).silence(), asker.silence()
    assert caught.value.code == statuses.ERR_NOT_SUPPORTED


def test_a_request_is_not_turned_for_ever() -> None:
    asker = Asker(0, 1)
    turns = 0
    at: object = 0
    while at in (0, 1):
        at = asker.hears(int(str(at)), "turn", (1, 0) if at == 0 else (0, 1))
        turns += 1
    assert at == "seek" and turns == MAX_TURNS


def test_a_refusal_without_a_reason_is_one() -> None:
    asker = Asker(0)
    with pytest.raises(PMIxError, match="refused") as caught:
        asker.hears(0, "refused")
    assert caught.value.code == statuses.ERROR
    assert [type(op) for op in asker.asking.withdrawals()] == [GroupLeave], "the member has nothing of it any more"


def test_nobody_asks_itself_or_a_whole_job() -> None:
    assert Asker(6).said == ["seek"]
    whole = Asking(P[6], G, (), 5.0).begin((Proc(NSPACE, RANK_WILDCARD), P[2]))
    assert Asker.read(whole) == 2


def test_a_request_to_a_member_that_does_not_register_is_not_kept(make: Make) -> None:
    """Not even until that member is the first one."""
    team = make()
    team.at(1, lambda: team.world[7].notify(asks("ask", P[2], talk.size(NUMBER, 1))))
    team.run()
    for rank in (0, 1):
        team.world.kill(rank)
        team.run()
    assert not any(team.asked.values())
    assert team.agree() == [2, 3]
