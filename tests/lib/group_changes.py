"""Groups whose members change, on virtual time."""

from __future__ import annotations

from typing import Any

import anyio

from lib.group_world import ATTEMPT, NSPACE, SERVER, Ticket, World, is_idle
from lib.virtual import Programs
from pypmix import Event, aio
from pypmix.aio.operations.groups import Group
from pypmix.aio.recipes.admission import Admission, request
from pypmix.engine.groups import talk
from pypmix.engine.groups.talk import (
    ADDED,
    DEPARTED,
    ERROR_STATUS,
    LIFE,
    LIVES,
    PLACE,
    flag,
    listed,
    proc,
    procs,
    say,
    size,
    sizes,
    text,
)
from pypmix.events import Answer
from pypmix.recipes.joinrequests import NUMBER, SAYS
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotInitialized, PMIxError
from pypmix.standard.ops import (
    GroupChange,
    GroupLeave,
    GroupWatch,
    Notification,
    NotifyEvent,
    QueryInfo,
)
from pypmix.standard.ops.groups import DESTRUCTED, JOINED, LEADER_SELECTED
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION
from pypmix.standard.types import Info, Proc, Value

FOUNDERS = 5


OTHERS = 3


STRANGER = FOUNDERS + OTHERS


NAME = "g"


class Groups(World):
    """A world with one group, whose server may know who is in it.

    Args:
        knows: Whether the server answers queries for the group's members.
        notifies: Whether failures are told.
        leader: The rank of the group's leader, None without one.
    """

    def __init__(self, *, knows: bool, notifies: bool, leader: int | None, **how: Any) -> None:
        super().__init__(FOUNDERS + OTHERS + 1, **how)
        self.knows = knows
        self.notifies = notifies
        self.changes: dict[Proc, list[GroupChange]] = {each: [] for each in self.processes}
        self.ends: dict[Proc, int] = dict.fromkeys(self.processes, 0)
        self.tickets: list[tuple[int, Ticket]] = []
        self.founders = tuple(Proc(NSPACE, rank) for rank in range(FOUNDERS))
        self.leader = None if leader is None else Proc(NSPACE, leader)
        self.programs: Programs | None = None
        self.refuses: list[int] = []
        if self.knows or self.adapts:
            self._groups[NAME] = self.founders, self.leader
        for founder in self.founders:
            self[founder].agent.standing.expected(NAME, ATTEMPT)
            self.carry(SERVER, founder, lambda founder=founder: self.forms(founder), 0.03)

    def forms(self, founder: Proc) -> None:
        """A construct has ended at one of its members."""
        if not self[founder].dead:
            directives = (flag(keys.GROUP_NOTIFY_TERMINATION),) if self.notifies else ()
            formed = self[founder].agent.standing.formed(NAME, self.founders, leader=self.leader, directives=directives)
            self.watch(founder)
            if self.programs is not None:
                self.programs.start(
                    self[founder],
                    lambda client: self.serve(founder, Group(client, client._port, NAME, None, None, formed)),
                )

    async def serve(self, member: Proc, group: Group) -> None:
        """Take requests, as long as there is somebody to do it."""

        async def decide(event: Event) -> Answer | None:
            await anyio.sleep(self.delay(0.01))
            return event.refuse() if member.rank in self.refuses else None

        try:
            async with Admission(group, decide):
                await anyio.Event().wait()
        except NotInitialized:
            pass  # the group is gone already

    def watch(self, member: Proc) -> None:
        def ended(error: BaseException | None) -> None:
            assert error is None
            self.ends[member] += 1

        self[member].agent.start(GroupWatch(NAME, self.changes[member].append, ended), lambda result, error: None)

    def asked(self, process: Any, op: Any, done: Any) -> None:
        """The server answers a query of what it knows; a dead member stays in its list, as some servers do it."""
        members = self._groups.get(NAME, ((), None))[0]
        if isinstance(op, QueryInfo) and self.knows and members:
            answer = (procs("pmix.qry.pgrpmems", members),)
            self.carry(SERVER, process.proc, lambda: None if process.dead else done(answer, None))
            return
        if (
            isinstance(op, NotifyEvent)
            and op.code == statuses.GROUP_MEMBERSHIP_UPDATE
            and members
            and process.proc in members
        ):
            self._groups[NAME] = listed(op.infos, keys.GROUP_MEMBERSHIP), self._groups[NAME][1]
        super().asked(process, op, done)

    def kill(self, rank: int | Proc, *, lose: float = 0.0) -> None:
        """A server of ours tells the members of failures, if they have asked for it."""
        victim = self[rank]
        news = not victim.dead
        super().kill(rank, lose=lose)
        members = self._groups.get(NAME, ((), None))[0]
        if news and self.adapts and self.notifies and victim.proc in members:
            event = Notification(
                statuses.GROUP_MEMBER_FAILED,
                SERVER,
                RANGE_CUSTOM,
                (text(keys.GROUP_ID, NAME), proc(keys.EVENT_AFFECTED_PROC, victim.proc)),
            )
            for member in members:
                self.carry(SERVER, member, lambda process=self[member]: process.arrives(event))

    # What may happen

    def leaves(self, rank: int) -> None:
        if not self[rank].dead:
            self.tickets.append((rank, self[rank].start(GroupLeave(NAME))))

    def asks(self, rank: int, timeout: int) -> None:
        process = self[rank]
        if process.dead:
            return
        ticket = Ticket("ask")
        self.tickets.append((rank, ticket))

        async def joins(client: aio.Client) -> None:
            try:
                group = await request(client, NAME, timeout=timeout or None)
            except PMIxError as error:
                ticket.error = error
            else:
                self.watch(process.proc)
            ticket.over, ticket.at = True, self.now
            self.log.append(f"{self.now:.3f} {rank} = {ticket.error or 'joined'}")
            if ticket.error is None:
                await self.serve(process.proc, group)

        assert self.programs is not None
        self.log.append(f"{self.now:.3f} {rank} . asks")
        self.programs.start(process, joins)

    def lies(self, which: int, about: int) -> None:
        """The stranger tells of what is not so."""
        victim = Proc(NSPACE, about)
        me = Proc(NSPACE, STRANGER)
        to = [each for each in self.processes if each != me]
        named = procs(keys.EVENT_CUSTOM_RANGE, to), text(keys.GROUP_ID, NAME)
        whom = proc(keys.EVENT_AFFECTED_PROC, victim)
        failed = Info(ERROR_STATUS, Value(codes.STATUS, -1))
        lies = [
            NotifyEvent(statuses.GROUP_LEFT, RANGE_CUSTOM, (*named, whom)),
            NotifyEvent(statuses.GROUP_LEFT, RANGE_CUSTOM, named),
            NotifyEvent(
                statuses.GROUP_MEMBERSHIP_UPDATE, RANGE_CUSTOM, (*named, procs(keys.GROUP_MEMBERSHIP, [victim]))
            ),
            NotifyEvent(
                statuses.GROUP_MEMBERSHIP_UPDATE, RANGE_CUSTOM, (*named, proc(ADDED, me), size(PLACE, 1), size(LIFE, 1))
            ),
            NotifyEvent(statuses.GROUP_MEMBER_FAILED, RANGE_CUSTOM, (*named, whom)),
            NotifyEvent(statuses.GROUP_LEADER_FAILED, RANGE_CUSTOM, (*named, whom)),
            NotifyEvent(statuses.PROC_TERMINATED, RANGE_SESSION, (whom,)),
            say("admit news", NAME, to, (procs(DEPARTED, [victim]), sizes(LIVES, [99]))),
            say("enter offer", NAME, to),
            say("enter welcome", NAME, to, (size(LIFE, 1), procs(keys.GROUP_MEMBERSHIP, [me, victim]))),
            talk.event(statuses.JOIN_TALK, NAME, to, (text(SAYS, "verdict"), whom, size(NUMBER, 1))),
            talk.event(statuses.JOIN_TALK, NAME, to, (text(SAYS, "refused"), size(NUMBER, 1), failed)),
            talk.event(statuses.JOIN_REQUEST, NAME, to, (proc(keys.EVENT_AFFECTED_PROC, me), size(NUMBER, 1))),
        ]
        self[STRANGER].notify(lies[which % len(lies)])

    # What has to be so

    def check(self) -> None:
        for rank, ticket in self.tickets:
            assert ticket.over or self[rank].dead, f"{rank} waits for ever: {ticket.op}"
        members = set(self.founders)
        for rank, ticket in sorted(self.tickets, key=lambda each: each[1].at or 0.0):
            if ticket.over and ticket.error is None:
                (members.add if ticket.op == "ask" else members.discard)(Proc(NSPACE, rank))
        members = {member for member in members if not self[member].dead}
        states = {each.proc: each.state(NAME) for each in self.living}
        orders = {state.members for state in states.values() if state is not None}
        assert {each for each, state in states.items() if state is not None} == members
        assert len(orders) <= 1, f"they do not agree: {orders}"
        assert not members or set(orders.pop()) == members
        leaders = {(state.leader, state.term) for state in states.values() if state is not None}
        assert len(leaders) <= 1, f"they do not agree who leads: {leaders}"
        assert {each for each, _ in leaders} <= {None, *members}
        for process in self.living:
            self.check_changes(process.proc, states[process.proc])
            assert is_idle("standing", process.agent.standing) or states[process.proc] is not None
            assert set(process.under_way()) <= {"standing"}
            failed = [
                listed(event.infos, keys.EVENT_AFFECTED_PROC)
                for event in process.events(statuses.GROUP_MEMBER_FAILED)
                if event.source.rank != STRANGER
            ]
            assert len(failed) == len(set(failed)), "an event has come twice"
        assert not [timer for timer in self.timers if not timer.process.dead]

    def check_changes(self, whose: Proc, state: Any) -> None:
        known: set[Proc] | None = None
        epoch = 0
        for change in self.changes[whose]:
            now = set(change.state.members)
            if known is not None and change.kind not in (LEADER_SELECTED, DESTRUCTED):
                assert change.state.epoch == epoch + 1
                joined = set(change.procs) if change.kind == JOINED else set()
                left = set() if joined else set(change.procs)
                assert joined.isdisjoint(known), f"{change} is no news"
                assert left <= known, f"{change} is no news"
                assert now == (known | joined) - left
            known, epoch = now, change.state.epoch
            if whose not in now:
                known = None
        if state is not None and known is not None:
            assert self.changes[whose][-1].state.members == state.members
