"""The one tracker of operations that a set of procs carries out together.

It knows who takes part, who has arrived, who has gone, and since when; what an operation means and how it is answered
is its owner's business. Nothing here reads a clock or a socket.
"""

from __future__ import annotations

import weakref

from pypmix.engine.base import Pending
from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.errors import ERR_OUT_OF_RESOURCE, ERR_PARTIAL_SUCCESS, ERR_TIMEOUT, SUCCESS, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from pypmix.standard.types import Proc

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

MAX_OPENED = 4096
"""How many unfinished operations one proc may have begun."""


class Roster(Generic[M, T]):
    """The procs of an operation, and the operations of that kind that these procs have under way, oldest first.

    There is one roster to each set of procs and kind of operation, whatever the order in which the procs were named.
    """

    __slots__ = ("__weakref__", "members", "operation", "running")

    def __init__(self, operation: str, members: frozenset[M]) -> None:
        self.operation = operation
        self.members = members
        self.running: list[Collective[M, T]] = []


class Collective(Generic[M, T]):
    """One operation under way.

    Attributes:
        arrived: Who has called it, with what its owner needs for the answer.
        gone: Who will not come any more.
        awaited: How many may still come.
        lost: Whether it goes on without anyone, be it finalized or lost.
        collect: Whether anyone asked for the others' data.
        opener: Who came first.
        since: When that was.
    """

    __slots__ = ("arrived", "awaited", "collect", "gone", "lost", "opener", "roster", "since", "timer")

    def __init__(self, roster: Roster[M, T], opener: M, since: float) -> None:
        self.roster = roster
        self.arrived: dict[M, T] = {}
        self.gone: set[M] = set()
        self.awaited = len(roster.members)
        self.lost = False
        self.collect = False
        self.opener = opener
        self.since = since
        self.timer: Timer | None = None

    def missing(self) -> list[M]:
        """Return who may still come."""
        return [m for m in self.roster.members if m not in self.arrived and m not in self.gone]


class Collectives(Generic[M, T]):
    """All operations under way on a server.

    Args:
        clock: Where time comes from.
        done: Called with an operation that has ended and its status; whoever has arrived is to be answered then.
    """

    __slots__ = ("_clock", "_done", "_gone", "_opened", "_rosters", "_running")

    def __init__(self, clock: Clock, done: Callable[[Collective[M, T], int], None]) -> None:
        self._clock = clock
        self._done = done
        self._rosters: weakref.WeakValueDictionary[tuple[str, frozenset[M]], Roster[M, T]]
        self._rosters = weakref.WeakValueDictionary()
        self._running: dict[Collective[M, T], None] = {}
        self._gone: set[M] = set()
        self._opened: dict[M, int] = {}

    def roster(self, operation: str, members: Iterable[M]) -> Roster[M, T]:
        """Return the roster of these procs for this kind of operation."""
        key = operation, frozenset(members)
        roster = self._rosters.get(key)
        if roster is None:
            roster = self._rosters[key] = Roster(*key)
        return roster

    def join(self, roster: Roster[M, T], member: M, ticket: T, collect: bool = False, timeout: float = 0.0) -> None:
        """A member has called the operation.

        It belongs to the oldest one under way that it has not called yet; a member that calls twice means the next one.

        Args:
            roster: Who takes part; the member is one of them.
            member: The caller.
            ticket: What the owner needs to answer it.
            collect: Whether the member asks for the others' data.
            timeout: Seconds after which to give up; 0 waits for ever. The first that is given counts.

        Raises:
            PMIxError: The member has begun too many operations that nobody joins (`ERR_OUT_OF_RESOURCE`).
        """
        for collective in roster.running:
            if member not in collective.arrived:
                break
        else:
            collective = self._open(roster, member)
        collective.arrived[member] = ticket
        if collective.gone and member in collective.gone:
            collective.gone.discard(member)
        else:
            collective.awaited -= 1
        if collect:
            collective.collect = True
        if not collective.awaited:
            self._end(collective, ERR_PARTIAL_SUCCESS if collective.lost else SUCCESS)
        elif timeout > 0 and collective.timer is None:
            collective.timer = self._clock.call_later(timeout, lambda: self._end(collective, ERR_TIMEOUT))

    def leave(self, member: M, lost: bool) -> None:
        """A member has finalized, or is lost: whatever is under way and waits for it ends without success.

        One that has finalized may come back: later operations wait for that, and so do those that somebody has begun
        who has come back more often already. One that is lost will not.

        Args:
            member: Who.
            lost: It did not finalize: what it has contributed is void.
        """
        if lost:
            self._gone.add(member)
        for collective in list(self._running):
            if member not in collective.roster.members or collective not in self._running:
                continue
            if member in collective.arrived:
                if not lost:
                    continue
                del collective.arrived[member]
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

    def back(self, member: M) -> None:
        """A member that had left is there again, and will be waited for from the next operation on."""
        self._gone.discard(member)

    def withdraw(self, member: M, void: Callable[[T], bool]) -> None:
        """Take back the contributions of a member whose ticket is void; the member itself stays."""
        for collective in list(self._running):
            if member in collective.arrived and void(collective.arrived[member]):
                del collective.arrived[member]
                collective.awaited += 1
                self._settle(collective)

    def pending(self) -> list[Pending]:
        """Return what is under way, oldest first."""
        found = []
        for collective in self._running:
            members = collective.roster.members
            arrived = tuple(sorted(member.proc for member in collective.arrived))
            missing = tuple(sorted(member.proc for member in collective.missing()))
            label = f"{len(members)} procs of {', '.join(sorted({member.proc.nspace for member in members}))}"
            found.append(Pending(collective.roster.operation, label, arrived, missing, collective.since))
        return found

    def _open(self, roster: Roster[M, T], member: M) -> Collective[M, T]:
        opened = self._opened.get(member, 0)
        if opened >= MAX_OPENED:
            raise PMIxError(
                f"{member.proc} has begun {opened} operations that have not ended",
                status=ERR_OUT_OF_RESOURCE,
                operation=roster.operation,
            )
        self._opened[member] = opened + 1
        collective: Collective[M, T] = Collective(roster, member, self._clock.now())
        if self._gone:
            gone = roster.members & self._gone
            collective.gone = set(gone)
            collective.awaited -= len(gone)
            collective.lost = bool(gone)
        roster.running.append(collective)
        self._running[collective] = None
        return collective

    def _settle(self, collective: Collective[M, T]) -> None:
        if not collective.arrived:
            self._close(collective)
        elif not collective.awaited:
            self._end(collective, ERR_PARTIAL_SUCCESS if collective.lost else SUCCESS)

    def _end(self, collective: Collective[M, T], status: int) -> None:
        self._close(collective)
        self._done(collective, status)

    def _close(self, collective: Collective[M, T]) -> None:
        del self._running[collective]
        collective.roster.running.remove(collective)
        opened = self._opened.pop(collective.opener) - 1
        if opened:
            self._opened[collective.opener] = opened
        if collective.timer is not None:
            collective.timer.cancel()
            collective.timer = None
