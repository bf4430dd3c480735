"""The state machine of collective operations: the same for fence, connect, disconnect, group construct and destruct.

**Parts.** `Collectives` contains all operations in progress at one place: a server, whose participants are its
processes. A `Membership` is a set of participants of the same kind of operation, and a `Collective` is one such
operation. Its `Kind` is three functions: `ask` combines the contributions, `take` reads the decision, and `complete`
reports it to the callers. This module uses neither a clock nor a socket, and all calls come from one thread, the
server's.

**Up and down.** Each participant contributes once (`Collectives.join`). When all expected participants have joined,
`ask` passes the combined contribution to the level above: the host, behind which other servers may be, and so on up a
tree of servers. The level above decides, and `finish` passes the decision down. If no level above takes part
(`Membership.asks`), this level is the root: the operation completes as soon as all have joined. So a single server is
a session of one server, and differs from others only by the missing level above.

**States.** `CollectiveState` is the table, and `Collective.step` is the only way from one state to another; an event
that the table does not contain for a state is an `IllegalStep`. `GATHERING`: participants join. `QUEUED`: all have
joined, but an earlier operation of the same membership is at the level above; the host has at most one request of a
membership, because it could not distinguish the answers. `READY`: it may be forwarded. Only constructs have `REACTING`,
in which callers react to a failure, and `ADDING`, in which added procs have not joined. `FORWARDED`: the level above
has it. `CLOSING`: the level above was notified that this level no longer waits, and has a moment to answer with the
outcome for all servers. `DECIDED`: either it is `DONE`, or a construct begins another round.

**The awaited members.** `awaited` is the number of members that may still join. A lost member's contribution is removed
while the operation is incomplete, and the member is not awaited again; a finalized member's contribution stays. A
finalized member may reconnect (`opened` counts the connections of a process): operations that began after that wait for
it, unless other servers take part, which may have begun them before. `lost` and `ft` together determine the status of
this level: an operation that is not fault tolerant ends with a partial success if members are missing. If a membership
has no members, any process may join (`Collective.admit`), and the kind determines the number that may still join
(`Kind.count_awaited`), for example of leaders that know only their number.

**Order of events.** A call may complete an operation, whose end answers callers, whose next calls begin the next one.
So after any call of a kind's function the operation may have ended: check `is_running`.
"""

from __future__ import annotations

import weakref

from pypmix.engine.collective.rules import DESTRUCT
from pypmix.engine.common import Pending
from pypmix.engine.states import Machine, Row
from pypmix.engine.times import HOST_GRACE
from pypmix.standard import statuses
from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from pypmix.engine.base import Cancellable
    from pypmix.standard.limits import Limits
    from pypmix.standard.types import Info, Proc

    Said = tuple[tuple[Proc, ...], tuple[Info, ...]]

    class Clock(Protocol):
        """The engine's clock, real or simulated."""

        def now(self) -> float:
            """Return the seconds of a monotonic clock."""

        def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
            """Call `function` after `delay` seconds."""

    Timer = Cancellable

    class Participant(Protocol):
        """A process that may take part; compared and hashed by identity."""

        opened: int
        """The number of its reconnections."""

        @property
        def proc(self) -> Proc: ...


M = TypeVar("M", bound="Participant")
T = TypeVar("T")


class CollectiveState(Machine):
    """The states of a collective operation at a server with participants."""

    GATHERING = START = "gathering callers"
    QUEUED = "queued behind another"
    READY = "all have called"
    REACTING = "callers react"
    ADDING = "waiting for added procs"
    FORWARDED = "with the host"
    CLOSING = "host told to end it"
    DECIDED = "the host has decided"
    DONE = "done"

    ALL_JOINED = "all expected participants have called"
    ALL_JOINED_QUEUED = "all have called, and an earlier operation of the same procs is in progress"
    PREDECESSOR_DONE = "the earlier operation is done"
    PARTICIPANT_FAILED = "a participant fails, and callers react to that"
    ALL_REACTED = "all callers that were asked have reacted"
    ADDED_MISSING = "an added proc has not called"
    ADDED_CHANGED = "an added proc calls, or a participant ends"
    SUBMITTED = "the combined contributions are passed to the host"
    DECISION_RECEIVED = "the host answers"
    NEXT_ROUND = "participants on other servers have ended, which the callers do not know"
    GIVEN_UP = "its time runs out, and it is optional; or a participant aborts it"
    ENDED = "it succeeds or fails, its time runs out, or no caller is left"

    ROWS = (
        Row(GATHERING, ALL_JOINED_QUEUED, QUEUED),
        Row(GATHERING, ALL_JOINED, READY),
        Row(GATHERING, ENDED, DONE, "the callers"),
        Row(QUEUED, PREDECESSOR_DONE, READY),
        Row(QUEUED, ENDED, DONE, "the callers"),
        Row(
            READY,
            PARTICIPANT_FAILED,
            REACTING,
            "`GROUP_LEADER_FAILED` to the procs, or `GROUP_MEMBER_FAILED` to the leader",
        ),
        Row(READY, ADDED_MISSING, ADDING),
        Row(READY, SUBMITTED, FORWARDED, "the host"),
        Row(READY, ENDED, DONE, "the callers"),
        Row(REACTING, ALL_REACTED, READY, "`GROUP_LEADER_SELECTED` to the procs, if the leader has failed"),
        Row(REACTING, ENDED, DONE, "the callers"),
        Row(ADDING, ADDED_CHANGED, READY),
        Row(ADDING, ENDED, DONE, "the callers"),
        Row(FORWARDED, DECISION_RECEIVED, DECIDED),
        Row(FORWARDED, GIVEN_UP, CLOSING, "the host; `GROUP_CONSTRUCT_ABORT` to the procs, if a participant aborts it"),
        Row(FORWARDED, ENDED, DONE, "the callers"),
        Row(CLOSING, DECISION_RECEIVED, DECIDED),
        Row(CLOSING, GIVEN_UP, CLOSING, "the host; `GROUP_CONSTRUCT_ABORT` to the procs"),
        Row(CLOSING, ENDED, DONE, "the callers"),
        Row(DECIDED, NEXT_ROUND, READY),
        Row(DECIDED, ENDED, DONE, "the callers"),
    )


_GATHERING, _QUEUED, _DONE = CollectiveState.GATHERING, CollectiveState.QUEUED, CollectiveState.DONE
_ALL_JOINED, _ENDED = CollectiveState.AFTER[CollectiveState.ALL_JOINED], CollectiveState.AFTER[CollectiveState.ENDED]
_NO_MEMBERS: frozenset[Any] = frozenset()
_NO_LIMITS: dict[Any, float] = {}

ABOVE = (CollectiveState.FORWARDED, CollectiveState.CLOSING)
"""The states in which an operation is at the level above."""


class Kind(Record):
    """A kind of operation at one place: three functions, and further ones of kinds that need them.

    All of them get the record of an operation that `begin` makes; without `begin`, they get the operation itself.

    Args:
        name: Its name, a constant of `rules`.
        ask: Passes the combined contributions of all callers to the level above, which decides; `finish` ends it. For
            a construct, this is called again after each event after which it may continue.
        take: Reads the result of the level above; returns the final status, None if the operation continues.
        complete: Answers the callers, as the operation has ended with a status.
        begin: Makes the record of an operation that begins.
        handle_timeout: Handles a timeout; returns True if the operation continues nevertheless.
        report_timeout: Reports to the level above that the limit passed before all members here called, since others
            may wait.
        discard: Cleans up, as the operation has ended because no caller remains.
        remove_contribution: Removes the contribution of a member.
        count_awaited: Returns the number of participants that may still join, if the membership does not determine
            it; raises `PMIxError` if the callers do not agree on it.
        missing: Returns the known procs that may still join, if these are not the missing members.
        label: Describes the participants, if these are not the members.
    """

    name: str
    ask: Callable[[Any], None]
    take: Callable[[Any, Any], int | None]
    complete: Callable[[Any, int], None]
    begin: Callable[[Collective[Any, Any]], object] | None = None
    handle_timeout: Callable[[Any], bool] | None = None
    report_timeout: Callable[[Any], None] | None = None
    discard: Callable[[Any], None] | None = None
    remove_contribution: Callable[[Any, Any], None] | None = None
    count_awaited: Callable[[Any], int] | None = None
    missing: Callable[[Any], tuple[Proc, ...]] | None = None
    label: Callable[[Any], str] | None = None


class Membership(Generic[M, T]):
    """The participants of an operation, and their operations of that kind in progress, oldest first.

    Each set of procs has one membership for each kind of operation, regardless of the order in which the procs were
    named; and one more for each group whose name a caller used for these procs.

    Attributes:
        tracker: The `Collectives` that it belongs to.
        kind: The kind of operation.
        operation: Its name and, after a space, the id of the operation.
        members: The participants at this place; empty if they are not known beforehand (`Collective.admit`).
        others: The participants elsewhere.
        asks: Whether the level above decides once all members have joined.
        group: The group that callers named in place of the procs; empty if they named the procs.
        groups: This group, and the groups that later callers named.
        running: The operations that still wait for members.
        asking: The operations that all members have joined: the first one is at the level above, the others wait.
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
        "running",
        "tracker",
    )

    def __init__(
        self,
        tracker: Collectives[M, T],
        kind: Kind,
        operation: str,
        members: frozenset[M],
        remote: frozenset[Proc],
        group: str = "",
        asks: bool = True,
    ) -> None:
        self.tracker = tracker
        self.kind = kind
        self.operation = operation
        self.members = members
        self.others = remote
        self.group = group
        self.groups = {group} if group else set()
        self.asks = asks or bool(remote)
        self.running: list[Collective[M, T]] = []
        self.asking: list[Collective[M, T]] = []

    @property
    def id(self) -> str:
        """The part of the operation's name that distinguishes it from others of its kind."""
        return self.operation.partition(" ")[2]

    def awaits(self, member: M) -> bool:
        """Return True if an operation waits for a member that has not called it."""
        return member in self.members and any(
            member not in collective.arrived and member not in collective.left for collective in self.running
        )


class Collective(Generic[M, T]):
    """One operation in progress.

    Attributes:
        record: What the functions of its kind get: its own record of this operation, or the operation; deleted when it
            has ended.
        elsewhere: The procs of other places that have taken part, if the level above names them.
        state: A state of `CollectiveState`.
        ended_in: The state in which it has ended.
        arrived: The callers, each with the owner's data for the answer.
        said: The procs and directives of the callers.
        gone: The members that will no longer join.
        left: The members of `gone` that left the group and continue: their next call is another operation.
        awaited: The number of members that may still join.
        lost: Whether it continues without a finalized or lost member.
        collect: Whether a caller requested the data of all.
        ft: Whether it is fault tolerant: it continues without members that exit or leave.
        absent: The procs that the level above names as the cause of a failure; None if it names none.
        reason: The text of the level above for a failure.
        opener: The first caller.
        since: When the first caller joined.
        due: When the first time limit of a caller expires; None if no caller has one.
        limits: When the limit of each caller that has one expires.
    """

    # It must have no subclasses: its methods are the hot path of a server, and the interpreter specialises them for
    # objects of one class.

    __slots__ = (
        "_timer",
        "absent",
        "arrived",
        "awaited",
        "collect",
        "due",
        "elsewhere",
        "ended_in",
        "ft",
        "gone",
        "left",
        "limits",
        "lost",
        "membership",
        "opener",
        "reason",
        "record",
        "said",
        "since",
        "state",
    )

    def __init__(self, membership: Membership[M, T], opener: M, since: float) -> None:
        self.membership = membership
        self.state = self.ended_in = _GATHERING
        self.arrived: dict[M, T] = {}
        self.said: dict[M, Said] = {}
        self.gone: set[M] = set()
        self.left: frozenset[M] = _NO_MEMBERS
        self.awaited = len(membership.members)
        self.lost = False
        self.collect = False
        self.ft = False
        self.absent: tuple[Proc, ...] | None = None
        self.reason = ""
        self.opener = opener
        self.since = since
        self.due: float | None = None
        self.limits: dict[M, float] = _NO_LIMITS
        self._timer: Timer | None = None
        self.elsewhere: frozenset[Proc] | set[Proc] = _NO_MEMBERS
        begin = membership.kind.begin
        self.record: Any = self if begin is None else begin(self)

    def step(self, what: str) -> None:
        """Enter the state that follows an event.

        Raises:
            IllegalStep: The event cannot happen in this state.
        """
        self.state = CollectiveState.step(self.state, what)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.state is not _DONE

    @property
    def is_forwarded(self) -> bool:
        """Whether it is at the level above, or was when it ended."""
        return (self.state if self.state is not _DONE else self.ended_in) in ABOVE

    @property
    def status(self) -> int:
        """The status of this level: a partial success if members are missing and it is not fault tolerant."""
        return statuses.ERR_PARTIAL_SUCCESS if self.lost and not self.ft else statuses.SUCCESS

    def calls(self) -> list[T]:
        """Return the calls in the best order of their answers: the last caller first, then the others in order."""
        # The last caller's processor is awake.
        calls = [*self.arrived.values()]
        return [*calls[-1:], *calls[:-1]]

    def missing(self) -> list[M]:
        """Return the members that may still join."""
        return [m for m in self.membership.members if m not in self.arrived and m not in self.gone]

    def missing_procs(self) -> tuple[Proc, ...]:
        """Return the known procs that may still join, in order."""
        missing = self.membership.kind.missing
        return missing(self.record) if missing is not None else tuple(sorted([m.proc for m in self.missing()]))

    @property
    def label(self) -> str:
        """A description of the participants."""
        membership = self.membership
        if membership.kind.label is not None:
            return membership.kind.label(self.record)
        members, others = membership.members, membership.others
        nspaces = sorted({member.proc.nspace for member in members} | {proc.nspace for proc in others})
        label = f"{len(members) + len(others)} procs of {', '.join(nspaces)}"
        return f"{label}, the group {membership.group}" if membership.group else label

    def add_contribution(
        self,
        member: M,
        call: T,
        collect: bool = False,
        timeout: float = 0.0,
        contribution: Said | None = None,
        ft: bool = False,
    ) -> None:
        """Add the contribution of a member; see `Collectives.join`. The operation may have ended when this returns."""
        self.arrived[member] = call
        if contribution is not None:
            self.said[member] = contribution
        if self.gone and member in self.gone:
            self.gone.discard(member)
        else:
            self.awaited -= 1
        if collect:
            self.collect = True
        if ft:
            self.ft = True
        if timeout > 0 and (self.awaited or self.membership.asks):
            due = self.membership.tracker.clock.now() + timeout
            if not self.limits:
                self.limits = {}
            self.limits[member] = due
            if self.due is None or due < self.due:
                self.due = due
                self.time(timeout, self._overdue)
        if not self.awaited:
            if self.membership.asks:
                self._complete()
            else:
                self.finish(self.status if self.lost else statuses.SUCCESS)

    def remove_limit(self, member: M) -> None:
        """Remove the time limit of a member that gave up waiting, unless the limit has passed: then it is kept."""
        now = self.membership.tracker.clock.now()
        if self.due is not None and self.due <= now:
            self._overdue()
        elif member in self.limits and self.limits.pop(member) == self.due:
            self.due = min(self.limits.values(), default=None)
            if self.due is not None:
                self.time(self.due - now, self._overdue)
            elif self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def time(self, seconds: float, function: Callable[[], None]) -> None:
        """Schedule a call, in place of the one scheduled before; the end of the operation cancels it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.membership.tracker.clock.call_later(seconds, function)

    def expire(self, seconds: float, status: int) -> None:
        """End it with a status unless it ends within some seconds."""

        def finish() -> None:
            self.finish(status)

        self.time(seconds, finish)

    def without(self, members: Iterable[M], silent: bool = False) -> None:
        """Stop waiting for members.

        Args:
            members: The members to drop.
            silent: Do not count them as missing.
        """
        for member in members:
            if self.is_running and member not in self.arrived and member not in self.gone:
                self.awaited -= 1
                self.gone.add(member)
                self.lost = self.lost or not silent
                self.settle()

    def admit(self, member: M, call: T, contribution: Said) -> None:
        """Add the contribution of a participant that the membership does not name; `recount` checks for completion."""
        self.arrived[member] = call
        self.said[member] = contribution
        self.gone.discard(member)

    def recount(self) -> None:
        """Update the number of participants that may still join, if the membership does not determine it.

        Raises:
            PMIxError: The callers do not agree on it.
        """
        count = self.membership.kind.count_awaited
        if count is not None:
            self.awaited = count(self.record)
        self.settle()

    def take_back(self, member: M) -> T:
        """Remove the contribution of a member, and return the owner's data for its answer."""
        call = self.arrived.pop(member)
        self.said.pop(member, None)
        remove = self.membership.kind.remove_contribution
        if remove is not None:
            remove(self.record, member)
        return call

    def settle(self) -> None:
        """Complete the operation if all have joined; end it if no caller remains."""
        if not self.arrived:
            self.finish(None)
        elif not self.awaited:
            self._complete()

    def finish(self, status: int | None) -> bool:
        """End it with the decision of the level above; return False if it has ended already.

        Args:
            status: Its status; None if no caller remains.
        """
        state, membership = self.state, self.membership
        if state is _DONE:
            return False
        (membership.running if state is _GATHERING else membership.asking).remove(self)
        self.ended_in = state
        self.state = _ENDED[state]
        tracker = membership.tracker
        del tracker.running[self]
        opened = tracker.opened.pop(self.opener) - 1
        if opened:
            tracker.opened[self.opener] = opened
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kind = membership.kind
        if status is not None:
            kind.complete(self.record, status)
        elif kind.discard is not None:
            kind.discard(self.record)
        del self.record  # breaks the reference cycle, so that the collector has no work
        if membership.asking:
            self._ask_next()
        return True

    def _complete(self) -> None:
        """Forward the operation, or finish it, as all expected members have joined."""
        membership = self.membership
        if not membership.asks:
            self.finish(self.status)
            return
        membership.running.remove(self)
        membership.asking.append(self)
        if len(membership.asking) > 1:
            self.step(CollectiveState.ALL_JOINED_QUEUED)
        else:
            self.state = _ALL_JOINED[self.state]
            membership.kind.ask(self.record)

    def _ask_next(self) -> None:
        following = self.membership.asking[0]
        if following.state is _QUEUED:
            following.step(CollectiveState.PREDECESSOR_DONE)
            self.membership.kind.ask(following.record)

    def _overdue(self) -> None:
        kind = self.membership.kind
        if kind.handle_timeout is not None and kind.handle_timeout(self.record):
            return
        if self.is_forwarded:
            # The host has the same limit and knows the procs that are missing elsewhere: it gets a moment to answer.
            self.expire(HOST_GRACE, statuses.ERR_TIMEOUT)
        else:
            membership = self.membership
            is_first = membership.others and not membership.asking and membership.running[:1] == [self]
            # Not if one before it has not ended: the others would end that one.
            if is_first and kind.report_timeout is not None:
                kind.report_timeout(self.record)
            self.finish(statuses.ERR_TIMEOUT)


class Collectives(Generic[M, T]):
    """All operations in progress at one place.

    Args:
        clock: The clock.
        limits: The limits for one participant.

    Attributes:
        running: The operations, oldest first.
        opened: The number of operations that each participant has begun.
    """

    __slots__ = ("_finalized", "_gone", "_limits", "_memberships", "_named", "clock", "opened", "running")

    def __init__(self, clock: Clock, limits: Limits = DEFAULTS) -> None:
        self.clock = clock
        self._limits = limits
        self._memberships: weakref.WeakValueDictionary[tuple[str, frozenset[M], frozenset[Proc], str], Membership[M, T]]
        self._memberships = weakref.WeakValueDictionary()
        self._named: dict[str, list[Membership[M, T]]] = {}
        """The memberships of groups, by name."""
        self.running: dict[Collective[M, T], None] = {}
        self._gone: set[M] = set()
        self._finalized: set[M] = set()
        self.opened: dict[M, int] = {}

    def membership(
        self,
        kind: Kind,
        members: Iterable[M],
        remote: Iterable[Proc] = (),
        asks: bool = False,
        id: str = "",
    ) -> Membership[M, T]:
        """Return the membership of procs for a kind of operation.

        Args:
            kind: The kind.
            members: The procs of this server.
            remote: The procs of other servers; if there are any, the host decides.
            asks: Whether the host decides in any case.
            id: The id of the operation among others of its kind.
        """
        return self._membership(kind, _operation(kind, id), frozenset(members), frozenset(remote), "", asks)

    def _membership(
        self,
        kind: Kind,
        operation: str,
        members: frozenset[M],
        remote: frozenset[Proc],
        group: str,
        asks: bool,
    ) -> Membership[M, T]:
        key = operation, members, remote, group
        membership = self._memberships.get(key)
        if membership is None:
            membership = self._memberships[key] = Membership(self, kind, *key, asks)
        return membership

    def of_group(
        self, kind: Kind, group: str, members: frozenset[M], remote: frozenset[Proc], member: M
    ) -> Membership[M, T]:
        """Return the membership of a member's operation that all participants call by the group's name."""
        known = self._named.get(group)
        if known is None:
            known = self._named[group] = []
        same = None
        for membership in known:
            if membership.kind is kind:
                if membership.awaits(member):
                    return membership
                if membership.members == members and membership.others == remote:
                    same = membership
        if same is None:
            same = Membership(self, kind, f"{kind.name} {group}", members, remote, group)
            known.append(same)
        return same

    def find_membership(self, membership: Membership[M, T], group: str, member: M) -> Membership[M, T]:
        """Return the membership of a member's operation, whether callers name the group or its procs.

        An operation that a group has begun stays one operation for all callers that name the group, even if a member
        leaves the group before all have called. Callers that name the procs join it as long as the procs are the same.

        Args:
            membership: The membership of the procs in the caller's view.
            group: The group that it has named; empty if it has named the procs.
            member: The caller.
        """
        operation = membership.operation
        if not group:
            if not self._named or membership.awaits(member):
                return membership
            for others in self._named.values():
                for other in others:
                    alike = (other.operation, other.members, other.others) == (
                        operation,
                        membership.members,
                        membership.others,
                    )
                    if alike and other.awaits(member):
                        return other
            return membership
        known = self._named.setdefault(group, [])
        for other in known:
            if other.operation == operation and other.awaits(member):
                return other
        if not membership.awaits(member):
            membership = self._membership(
                membership.kind, operation, membership.members, membership.others, group, membership.asks
            )
        if membership not in known:
            known.append(membership)
            membership.groups.add(group)
        return membership

    def has_group_names(self) -> bool:
        """Return True if an operation has named a group in place of its procs."""
        return bool(self._named)

    def remove_from_group(self, group: str, member: M | None) -> None:
        """Update the operations of a group whose membership has changed.

        Args:
            group: Its name.
            member: The proc of this server that has left the group but still runs: operations of the group continue
                without it. None if the proc is of another server, or has exited.
        """
        for membership in self._named.get(group, ())[:]:
            if member is not None and member in membership.members:
                for collective in membership.running[:]:
                    if member not in collective.arrived:
                        collective.left |= {member}
                        # A destruct does not count it as missing.
                        collective.without((member,), silent=membership.kind.name == DESTRUCT)
            if not membership.running and not membership.asking:
                self._unname(group, membership)

    def forget_group(self, group: str, for_all: bool = False) -> None:
        """Forget a group that no longer exists, and fail the destructs of it that not all members will call.

        Args:
            group: Its name.
            for_all: Whether it no longer exists elsewhere. If not, the level above decides the destructs that it has.
        """
        for membership in self._named.pop(group, ()):
            if membership.kind.name != DESTRUCT:
                continue
            for collective in membership.running[:]:
                collective.finish(statuses.ERR_NOT_FOUND)
            complete = membership.asking
            over = [collective for collective in complete if for_all or not collective.is_forwarded]
            # The level above is not asked about those that are queued behind the first one.
            membership.asking = [collective for collective in complete if collective not in over]
            for collective in over:
                membership.asking.append(collective)
                collective.finish(statuses.ERR_NOT_FOUND)

    def _unname(self, group: str, membership: Membership[M, T]) -> None:
        known = self._named.get(group)
        if known is None or membership not in known:
            # The end of the last operation may have removed the group.
            return
        known.remove(membership)
        if not known:
            del self._named[group]

    def join(
        self,
        membership: Membership[M, T],
        member: M,
        call: T,
        collect: bool = False,
        timeout: float = 0.0,
        contribution: Said | None = None,
        ft: bool = False,
    ) -> Collective[M, T]:
        """Join a member to the oldest operation in progress that it has not called yet, or begin the next one.

        Args:
            membership: The participants, including the member.
            member: The caller.
            call: The owner's data for the answer.
            collect: Whether the member requests the data of all.
            timeout: Seconds after which to give up; 0 for no limit. The earliest limit applies to all participants,
                and remains if its caller is lost.
            contribution: The procs and the directives, if they are needed later.
            ft: Whether the member requests to continue without members that exit or leave.

        Returns:
            The operation, which may have ended.

        Raises:
            OutOfResources: The member has begun too many operations in progress.
        """
        for collective in membership.running:
            if member not in collective.arrived and member not in collective.left:
                break
        else:
            collective = self.begin(membership, member)
        collective.add_contribution(member, call, collect, timeout, contribution, ft)
        return collective

    def leave(self, member: M, is_failed: bool) -> None:
        """Stop waiting for a member that has finalized or is lost.

        A finalized member may reconnect: later operations wait for it, and so do operations begun by a member that has
        reconnected more often already. Later operations with participants elsewhere do not wait, as another server may
        have begun them before, which is unknown here. A lost member is never awaited again.

        Args:
            member: The member.
            is_failed: Whether it did not finalize: its contributions are removed.
        """
        if is_failed:
            self._gone.add(member)
            self._forgo(member, is_failed=True)
        else:
            self._finalized.add(member)
        for collective in list(self.running):
            if member not in collective.membership.members or not collective.awaited or not collective.is_running:
                continue
            if member in collective.arrived:
                if not is_failed:
                    continue
                collective.take_back(member)
            elif member in collective.gone or self._returns(member, collective):
                continue
            else:
                collective.awaited -= 1
            collective.gone.add(member)
            collective.lost = True
            collective.settle()

    def _returns(self, member: M, collective: Collective[M, T]) -> bool:
        """Return True if a finalized member is expected, as a caller has already reconnected more often."""
        return member not in self._gone and any(other.opened > member.opened for other in collective.arrived)

    def stop_expecting(self, member: M) -> None:
        """Stop expecting a finalized member, which will not reconnect."""
        self._gone.add(member)
        self.leave(member, is_failed=False)
        self._forgo(member)

    def _forgo(self, member: M, is_failed: bool = False, void: Callable[[T], bool] | None = None) -> None:
        """Remove a member from complete operations, which the host decides; they end if no caller remains."""
        # The newest first, so that no operation without callers is forwarded to the host.
        for collective in reversed([each for each in self.running if not each.awaited]):
            if not collective.is_running or member not in collective.arrived:
                continue
            if void is not None and not void(collective.arrived[member]):
                continue
            collective.take_back(member)
            collective.gone.add(member)
            if is_failed and not collective.is_forwarded:
                collective.lost = True
            if not collective.arrived:
                collective.finish(None)

    def readmit(self, member: M) -> None:
        """Expect a reconnected member in all later operations."""
        self._gone.discard(member)
        self._finalized.discard(member)

    def withdraw(self, member: M, void: Callable[[T], bool]) -> None:
        """Remove the contributions of a member whose calls `void` selects; the member itself is still expected."""
        self._forgo(member, void=void)
        for collective in list(self.running):
            if not collective.awaited or not collective.is_running:
                continue
            if member in collective.arrived and void(collective.arrived[member]):
                collective.take_back(member)
                collective.awaited += 1
                collective.settle()

    def retract(self, member: M, call: T) -> bool:
        """Remove the contribution of a member that gives up waiting, and wait for it again.

        Returns:
            False if that is too late: an operation that all members of this place have called is at the level above,
            which decides it with the contribution of the member.
        """
        for collective in list(self.running):
            if collective.awaited and collective.arrived.get(member) == call:
                collective.take_back(member)
                collective.awaited += 1
                collective.settle()
                if collective.is_running:
                    collective.remove_limit(member)
                return True
        return False

    def calls_of(self, member: M, kind: str, members: frozenset[M], remote: frozenset[Proc]) -> list[T]:
        """Return the calls of a member that have not been answered, of one kind and by the same procs."""
        return [
            collective.arrived[member]
            for collective in self.running
            if member in collective.arrived
            and collective.membership.kind.name == kind
            and (collective.membership.members, collective.membership.others) == (members, remote)
        ]

    def expire(self, kind: str, name: str, procs: frozenset[Proc]) -> None:
        """End the operation that not all of some procs have called here, as the limit of a caller elsewhere passed.

        Args:
            kind: The kind of operation.
            name: Its id, or the group that was named; empty for neither.
            procs: The participants; for a group, some of them.
        """
        for collective in list(self.running):
            membership = collective.membership
            if collective.state is not _GATHERING or membership.kind.name != kind or not membership.others:
                continue
            all_procs = {*membership.others, *[member.proc for member in membership.members]}
            groups = {group.partition("\0")[0] for group in membership.groups}
            if (
                all_procs == procs
                if not name
                else (name in groups | {membership.id} and not procs.isdisjoint(all_procs))
            ):
                collective.finish(statuses.ERR_TIMEOUT)
                return

    def pending(self) -> list[Pending]:
        """Return the operations in progress, oldest first."""
        found = []
        for collective in self.running:
            arrived = tuple(sorted(member.proc for member in collective.arrived))
            missing = collective.missing_procs()
            label = collective.label + ("" if missing or collective.awaited else ", with the host")
            found.append(Pending(collective.membership.operation, label, arrived, missing, collective.since))
        return found

    def begin(self, membership: Membership[M, T], member: M) -> Collective[M, T]:
        """Begin an operation for a member that is about to join it.

        Raises:
            OutOfResources: The member has begun too many operations in progress.
        """
        opened = self.opened.get(member, 0)
        if opened >= self._limits.collectives:
            what = f"{member.proc} has begun {opened} operations that have not ended"
            raise self._limits.reached("collectives", what, membership.operation)
        self.opened[member] = opened + 1
        collective = Collective(membership, member, self.clock.now())
        if self._gone or (self._finalized and membership.others):
            gone = set(membership.members & self._gone)
            if membership.others:
                gone |= {each for each in membership.members & self._finalized if each.opened >= member.opened}
            collective.gone = gone
            collective.awaited -= len(gone)
            collective.lost = bool(gone)
        membership.running.append(collective)
        self.running[collective] = None
        return collective


def _operation(kind: Kind, id: str) -> str:
    return f"{kind.name} {id}" if id else kind.name
