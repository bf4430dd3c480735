"""The one tracker of operations that a set of procs carries out together.

It knows who takes part, who has arrived, who has gone, and since when; what an operation means and how it is answered
is its owner's business. Nothing here reads a clock or a socket.
"""

from __future__ import annotations

import weakref

from pypmix.engine.base import Pending
from pypmix.standard import statuses
from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.limits import DEFAULTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from pypmix.standard.limits import Limits
    from pypmix.standard.types import Info, Proc

    Said = tuple[tuple[Proc, ...], tuple[Info, ...]]

    class Clock(Protocol):
        """Time as the engine sees it; real or simulated."""

        def now(self) -> float:
            """Return seconds on a clock that never goes back."""

        def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
            """Call `function` after `delay` seconds."""

    class Timer(Protocol):
        def cancel(self) -> None: ...

    class Participant(Protocol):
        """A process that may take part; compared and hashed by identity."""

        opened: int
        """How often it has connected anew."""

        @property
        def proc(self) -> Proc: ...


M = TypeVar("M", bound="Participant")
T = TypeVar("T")

HOST_GRACE = 0.5
"""Seconds beyond its time limit for which an operation waits where its host is to say how it has ended."""


class Roster(Generic[M, T]):
    """The procs of an operation, and the operations of that kind that these procs have under way, oldest first.

    There is one roster to each set of procs and kind of operation, whatever the order in which the procs were named;
    and one more for each group by whose name these procs are called.

    Attributes:
        members: Who takes part on this server.
        others: Who takes part elsewhere.
        asks: Whether the host has a say once all members have come.
        group: The group whose name stands for the procs; empty where they are named themselves.
        groups: That one, and those by whose names others have joined who named the procs themselves.
        kind: The kind of operation; `operation` goes on, behind a space, with what distinguishes it.
        owner: What its owner keeps with it, where nobody else finds it.
        running: The operations that members are still waited for in.
        asking: Those in which all have come: the first one is before the host, the rest wait for that.
    """

    __slots__ = (
        "__weakref__",
        "asking",
        "asks",
        "group",
        "groups",
        "kind",
        "members",
        "operation",
        "others",
        "owner",
        "running",
    )

    def __init__(self, operation: str, members: frozenset[M], others: frozenset[Proc], group: str, asks: bool) -> None:
        self.operation = operation
        self.kind = operation.partition(" ")[0]
        self.owner: object = None
        self.members = members
        self.others = others
        self.group = group
        self.groups = {group} if group else set()
        self.asks = asks
        self.running: list[Collective[M, T]] = []
        self.asking: list[Collective[M, T]] = []

    def awaits(self, member: M) -> bool:
        """Tell whether something is under way that a member takes part in and has not called."""
        return member in self.members and any(member not in collective.arrived for collective in self.running)


class Collective(Generic[M, T]):
    """One operation under way.

    Attributes:
        arrived: Who has called it, with what its owner needs for the answer.
        said: What those have said with it, as far as it has a meaning for all: the procs and the directives.
        gone: Who will not come any more.
        awaited: How many may still come.
        lost: Whether it goes on without anyone, be it finalized or lost.
        collect: Whether anyone asked for the others' data.
        tolerant: Whether anyone said that it is to go on without those who end or leave (`GROUP_FT_COLLECTIVE`).
        asked: Whether the host has it before it.
        absent: Because of whom the host says that it failed; None where it names nobody.
        reason: Why, in the host's words.
        opener: Who came first.
        since: When that was.
    """

    __slots__ = (
        "absent",
        "arrived",
        "asked",
        "awaited",
        "collect",
        "gone",
        "lost",
        "opener",
        "reason",
        "roster",
        "said",
        "since",
        "timer",
        "tolerant",
    )

    def __init__(self, roster: Roster[M, T], opener: M, since: float) -> None:
        self.roster = roster
        self.arrived: dict[M, T] = {}
        self.said: dict[M, Said] = {}
        self.gone: set[M] = set()
        self.awaited = len(roster.members)
        self.lost = False
        self.collect = False
        self.tolerant = False
        self.asked = False
        self.absent: tuple[Proc, ...] | None = None
        self.reason = ""
        self.opener = opener
        self.since = since
        self.timer: Timer | None = None

    @property
    def status(self) -> int:
        """How it stands with the members of this server."""
        return statuses.ERR_PARTIAL_SUCCESS if self.lost and not self.tolerant else statuses.SUCCESS

    def tickets(self) -> list[T]:
        """Return what those have given who have called, in the order in which they are best answered.

        Who has called last goes first: its processor is awake. The others have waited, in the order of their calls.
        """
        tickets = [*self.arrived.values()]
        return tickets[-1:] + tickets[:-1]

    def missing(self) -> list[M]:
        """Return who may still come."""
        return [m for m in self.roster.members if m not in self.arrived and m not in self.gone]


class Collectives(Generic[M, T]):
    """All operations under way on a server.

    Args:
        clock: Where time comes from.
        done: Called with an operation that has ended and its status; whoever has arrived is to be answered then.
        ask: Called with an operation that all members have come to and in which the host has a say, so that the host
            is asked; `finish` ends it. One operation of a roster is before the host at a time.

    Attributes:
        asks: What is called in place of `ask`, by the kind of operation.
        ends: What is called in place of `done`, by the kind of operation.
        late: Called with an operation whose time has run out; returns whether it has been seen to.
        dropped: Called with an operation that has ended because nobody is left of those who had called it.
    """

    __slots__ = (
        "_ask",
        "_clock",
        "_done",
        "_finalized",
        "_gone",
        "_limits",
        "_named",
        "_opened",
        "_rosters",
        "_running",
        "asks",
        "dropped",
        "ends",
        "late",
    )

    def __init__(
        self,
        clock: Clock,
        done: Callable[[Collective[M, T], int], None],
        ask: Callable[[Collective[M, T]], None],
        limits: Limits = DEFAULTS,
    ) -> None:
        self._clock = clock
        self._done = done
        self._ask = ask
        self._limits = limits
        self.asks: dict[str, Callable[[Collective[M, T]], None]] = {}
        self.ends: dict[str, Callable[[Collective[M, T], int], None]] = {}
        self.late: Callable[[Collective[M, T]], bool] = lambda _collective: False
        self.dropped: Callable[[Collective[M, T]], None] = lambda _collective: None
        self._rosters: weakref.WeakValueDictionary[tuple[str, frozenset[M], frozenset[Proc], str], Roster[M, T]]
        self._rosters = weakref.WeakValueDictionary()
        self._named: dict[str, list[Roster[M, T]]] = {}
        """The rosters of groups, by their names."""
        self._running: dict[Collective[M, T], None] = {}
        self._gone: set[M] = set()
        self._finalized: set[M] = set()
        self._opened: dict[M, int] = {}

    def roster(
        self, operation: str, members: Iterable[M], others: Iterable[Proc] = (), asks: bool = False
    ) -> Roster[M, T]:
        """Return the roster of these procs for this kind of operation.

        Args:
            operation: The kind.
            members: The procs of this server.
            others: Those of other servers; where there are some, the host is asked.
            asks: Whether the host is asked even if there are none.
        """
        key = operation, frozenset(members), frozenset(others), ""
        return self._roster(key, asks)

    def _roster(self, key: tuple[str, frozenset[M], frozenset[Proc], str], asks: bool) -> Roster[M, T]:
        roster = self._rosters.get(key)
        if roster is None:
            roster = self._rosters[key] = Roster(*key, asks or bool(key[2]))
        return roster

    def own(self, operation: str, members: frozenset[M], others: frozenset[Proc], owner: object) -> Roster[M, T]:
        """Return a roster that nobody else finds: its owner knows who meets there."""
        roster: Roster[M, T] = Roster(operation, members, others, "", True)
        roster.owner = owner
        return roster

    def of_group(
        self, operation: str, group: str, members: frozenset[M], others: frozenset[Proc], member: M
    ) -> Roster[M, T]:
        """Return where a member finds those who mean the same operation, which all call by the group's name."""
        known = self._named.get(group)
        if known is None:
            known = self._named[group] = []
        same = None
        for roster in known:
            if roster.operation == operation:
                if roster.awaits(member):
                    return roster
                if roster.members == members and roster.others == others:
                    same = roster
        if same is None:
            same = Roster(operation, members, others, group, True)
            known.append(same)
        return same

    def meeting(self, roster: Roster[M, T], group: str, member: M) -> Roster[M, T]:
        """Return where a member finds those who mean the same operation, be it that they name the group or its procs.

        What a group has begun stays one operation for all who name it, even if somebody leaves the group before all of
        them have called; and who names the procs meets those who name the group while both mean the same procs.

        Args:
            roster: The roster of the procs as the caller sees them.
            group: The group that it has named; empty if it has named the procs.
            member: The caller.
        """
        operation = roster.operation
        if not group:
            if not self._named or roster.awaits(member):
                return roster
            for others in self._named.values():
                for other in others:
                    alike = (other.operation, other.members, other.others) == (operation, roster.members, roster.others)
                    if alike and other.awaits(member):
                        return other
            return roster
        known = self._named.setdefault(group, [])
        for other in known:
            if other.operation == operation and other.awaits(member):
                return other
        if not roster.awaits(member):
            roster = self._roster((operation, roster.members, roster.others, group), roster.asks)
        if roster not in known:
            known.append(roster)
            roster.groups.add(group)
        return roster

    def named(self) -> bool:
        """Tell whether any group's name has been used for its procs."""
        return bool(self._named)

    def parted(self, group: str, member: M | None) -> None:
        """The membership of a group has changed.

        Args:
            group: Its name.
            member: Who of this server has left it and lives on: whatever the group has under way and waits for it goes
                on without it. None where it is not of this server, or has gone altogether.
        """
        for roster in self._named.get(group, ())[:]:
            for collective in roster.running[:]:
                if member is None or member not in roster.members or collective not in self._running:
                    continue
                if member not in collective.arrived and member not in collective.gone:
                    # Nobody misses it where the group is taken apart.
                    self._without(collective, member, silent=roster.operation.startswith("group_destruct"))
            if not roster.running and not roster.asking:
                self._unname(group, roster)

    def without(self, collective: Collective[M, T], members: Iterable[M], silent: bool = False) -> None:
        """Some members are waited for no more."""
        for member in members:
            if collective in self._running and member not in collective.arrived and member not in collective.gone:
                self._without(collective, member, silent)

    def _without(self, collective: Collective[M, T], member: M, silent: bool) -> None:
        collective.awaited -= 1
        collective.gone.add(member)
        if not silent:
            collective.lost = True
        self._settle(collective)

    def dissolved(self, group: str) -> None:
        """A group is no more."""
        self._named.pop(group, None)

    def _unname(self, group: str, roster: Roster[M, T]) -> None:
        known = self._named.get(group)
        if known is None or roster not in known:
            # What has just ended was the end of the group, or of all that it had under way.
            return
        known.remove(roster)
        if not known:
            del self._named[group]

    def join(
        self,
        roster: Roster[M, T],
        member: M,
        ticket: T,
        collect: bool = False,
        timeout: float = 0.0,
        said: Said | None = None,
        tolerant: bool = False,
    ) -> Collective[M, T]:
        """A member has called the operation; return the one that it has joined.

        It belongs to the oldest one under way that it has not called yet; a member that calls twice means the next one.

        Args:
            roster: Who takes part; the member is one of them.
            member: The caller.
            ticket: What the owner needs to answer it.
            collect: Whether the member asks for the others' data.
            timeout: Seconds after which to give up; 0 waits for ever. The first that is given counts, for all who take
                part, and goes on counting when the one that has given it is lost.
            said: The procs and the directives, where they are needed later.
            tolerant: Whether the member says that it is to go on without those who end or leave.

        Raises:
            PMIxError: The member has begun too many operations that nobody joins (`ERR_OUT_OF_RESOURCE`).
        """
        for collective in roster.running:
            if member not in collective.arrived:
                break
        else:
            collective = self._open(roster, member)
        collective.arrived[member] = ticket
        if said is not None:
            collective.said[member] = said
        if collective.gone and member in collective.gone:
            collective.gone.discard(member)
        else:
            collective.awaited -= 1
        if collect:
            collective.collect = True
        if tolerant:
            collective.tolerant = True
        if timeout > 0 and collective.timer is None and (collective.awaited or roster.asks):
            collective.timer = self._clock.call_later(timeout, lambda: self._overdue(collective))
        if not collective.awaited:
            if roster.asks:
                self._complete(collective)
            else:
                self._end(collective, collective.status)
        return collective

    def _overdue(self, collective: Collective[M, T]) -> None:
        if self.late(collective):
            return
        if collective.asked:
            # The host knows that time too, and who is missing elsewhere: it is given a moment to say so.
            collective.timer = self._clock.call_later(HOST_GRACE, lambda: self._end(collective, statuses.ERR_TIMEOUT))
        else:
            self._end(collective, statuses.ERR_TIMEOUT)

    def finish(self, collective: Collective[M, T], status: int) -> bool:
        """End an operation with what the host says; return False if it has ended already."""
        if collective not in self._running:
            return False
        self._end(collective, status)
        return True

    def is_running(self, collective: Collective[M, T]) -> bool:
        """Tell whether an operation has not ended yet."""
        return collective in self._running

    def leave(self, member: M, lost: bool) -> None:
        """A member has finalized, or is lost: whatever is under way and waits for it ends without success.

        One that has finalized may come back: later operations wait for that, and so do those that somebody has begun
        who has come back more often already. One that is lost will not. Later ones that others elsewhere take part in
        do not wait: those may have begun them before, and nobody here knows.

        Args:
            member: Who.
            lost: It did not finalize: what it has contributed is void.
        """
        if lost:
            self._gone.add(member)
            self._forgo(member, lost=True)
        else:
            self._finalized.add(member)
        for collective in list(self._running):
            if member not in collective.roster.members or not collective.awaited or collective not in self._running:
                continue
            if member in collective.arrived:
                if not lost:
                    continue
                del collective.arrived[member]
                collective.said.pop(member, None)
            elif member in collective.gone or self._returns(member, collective):
                continue
            else:
                collective.awaited -= 1
            collective.gone.add(member)
            collective.lost = True
            self._settle(collective)

    def _returns(self, member: M, collective: Collective[M, T]) -> bool:
        """Tell whether a member is to be waited for, because somebody there has come back more often than it yet."""
        return member not in self._gone and any(other.opened > member.opened for other in collective.arrived)

    def ended(self, member: M) -> None:
        """A member that has finalized will not come back."""
        self._gone.add(member)
        self.leave(member, lost=False)
        self._forgo(member)

    def _forgo(self, member: M, lost: bool = False, void: Callable[[T], bool] | None = None) -> None:
        """Take a member out of what all have come to, which is the host's; that ends where nobody is left.

        The youngest go first, so that the host is asked nothing for nobody.
        """
        for collective in reversed([each for each in self._running if not each.awaited]):
            if collective not in self._running or member not in collective.arrived:
                continue
            if void is not None and not void(collective.arrived[member]):
                continue
            del collective.arrived[member]
            collective.said.pop(member, None)
            collective.gone.add(member)
            if lost and not collective.asked:
                collective.lost = True
            if not collective.arrived:
                self._drop(collective)

    def back(self, member: M) -> None:
        """A member that had left is there again, and will be waited for from the next operation on."""
        self._gone.discard(member)
        self._finalized.discard(member)

    def withdraw(self, member: M, void: Callable[[T], bool]) -> None:
        """Take back the contributions of a member whose ticket is void; the member itself stays."""
        self._forgo(member, void=void)
        for collective in list(self._running):
            if not collective.awaited or collective not in self._running:
                continue
            if member in collective.arrived and void(collective.arrived[member]):
                del collective.arrived[member]
                collective.said.pop(member, None)
                collective.awaited += 1
                self._settle(collective)

    def pending(self) -> list[Pending]:
        """Return what is under way, oldest first."""
        found = []
        for collective in self._running:
            members = collective.roster.members
            arrived = tuple(sorted(member.proc for member in collective.arrived))
            missing = tuple(sorted(member.proc for member in collective.missing()))
            others = collective.roster.others
            nspaces = sorted({member.proc.nspace for member in members} | {proc.nspace for proc in others})
            label = f"{len(members) + len(others)} procs of {', '.join(nspaces)}"
            if collective.roster.group:
                label += f", the group {collective.roster.group}"
            if not collective.awaited:
                label += ", with the host"
            found.append(Pending(collective.roster.operation, label, arrived, missing, collective.since))
        return found

    def _open(self, roster: Roster[M, T], member: M) -> Collective[M, T]:
        opened = self._opened.get(member, 0)
        if opened >= self._limits.collectives:
            what = f"{member.proc} has begun {opened} operations that have not ended"
            raise self._limits.reached("collectives", what, roster.operation)
        self._opened[member] = opened + 1
        collective: Collective[M, T] = Collective(roster, member, self._clock.now())
        if self._gone or (self._finalized and roster.others):
            gone = set(roster.members & self._gone)
            if roster.others:
                gone |= {each for each in roster.members & self._finalized if each.opened >= member.opened}
            collective.gone = gone
            collective.awaited -= len(gone)
            collective.lost = bool(gone)
        roster.running.append(collective)
        self._running[collective] = None
        return collective

    def _settle(self, collective: Collective[M, T]) -> None:
        if not collective.arrived:
            self._drop(collective)
        elif not collective.awaited:
            self._complete(collective)

    def _complete(self, collective: Collective[M, T]) -> None:
        """All members that may come have come."""
        roster = collective.roster
        if not roster.asks:
            self._end(collective, collective.status)
            return
        roster.running.remove(collective)
        roster.asking.append(collective)
        if len(roster.asking) == 1:
            collective.asked = True
            self.asks.get(roster.kind, self._ask)(collective)

    def _ask_next(self, roster: Roster[M, T]) -> None:
        if roster.asking and not roster.asking[0].asked:
            collective = roster.asking[0]
            collective.asked = True
            self.asks.get(roster.kind, self._ask)(collective)

    def _end(self, collective: Collective[M, T], status: int) -> None:
        self._close(collective)
        self.ends.get(collective.roster.kind, self._done)(collective, status)
        if collective.roster.asking:
            self._ask_next(collective.roster)

    def _drop(self, collective: Collective[M, T]) -> None:
        """Nobody is left who would be answered."""
        self._close(collective)
        self.dropped(collective)
        self._ask_next(collective.roster)

    def _close(self, collective: Collective[M, T]) -> None:
        del self._running[collective]
        opened = self._opened.pop(collective.opener) - 1
        if opened:
            self._opened[collective.opener] = opened
        if collective.timer is not None:
            collective.timer.cancel()
            collective.timer = None
        roster = collective.roster
        if collective in roster.running:
            roster.running.remove(collective)
        else:
            roster.asking.remove(collective)
