"""The state machine of collective operations: one text for fence, connect, disconnect, group construct and destruct.

**Rooms.** `Collectives` is all that is under way at one place: a server, whose participants are its processes. A
`Membership` is a set of participants that do the same kind of operation, and a `Collective` is one such operation. It
has a `Meaning`, which says how the contributions are combined (`ask`) and how the decision is told (`ended`). Nothing
here reads a clock or a socket, and all calls come on one thread, that of the server.

**The way up and the way down.** Each participant contributes once (`Collectives.join`). When all who may come have
come, `ask` gives the combined contribution to the level above: the host, behind which other servers may be, and so on
up a tree of servers. The level above decides and `finish` takes the decision down. If no level above has a say
(`Membership.asks`), this level is the root: the operation ends as soon as it is complete. So a lone server is a session
of one, and nothing distinguishes it but the missing level above.

**States.** `Life` is the table, and `Collective.step` is the only way from one state to another; an event that the
table does not have in a state is an `IllegalStep`. `GATHERS`: participants come. `WAITS`: complete, but an earlier
operation of the same membership is above; the host is never asked two at a time, because it could not tell their
answers apart. `READY`: it may go up. `HEARS` and `ADDS` are a construct's alone: callers react to a failure, or procs
that it adds have not come. `ASKS`: the level above has it. `CLOSES`: the level above was told that this one waits no
longer, and has a moment to say how all servers end it. `DECIDED`: either it is `OVER`, or a construct has another
round.

**The awaited members.** `awaited` counts members that may still come. One that is lost takes its contribution along
while the operation is not complete, and is not waited for again; a finalized one leaves its contribution. One that
finalized may come back (`opened` counts how often a process has connected): operations that began after that wait for
it, unless other servers take part, which may have begun them before. `lost` and `ft` together give the status of this
level: an operation that is not fault tolerant ends with a partial success if members are missing. Where a membership
has no members, any process may come (`Collective.admit`), and the meaning has a rule of how many may still do
(`Meaning.awaited`): of leaders who know only their number, say.

**Order of events.** A call may complete an operation, whose end answers callers, whose next calls begin the next one.
So after any call of a meaning's method the operation may be over: `is_running` tells.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

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
        """The number of times that it has connected anew."""

        @property
        def proc(self) -> Proc: ...


M = TypeVar("M", bound="Participant")
T = TypeVar("T")


class Life(Machine):
    """A collective operation at a server that has participants of it."""

    GATHERS = START = "callers come"
    WAITS = "waits for the one before"
    READY = "all have come"
    HEARS = "hears its callers"
    ADDS = "waits for those it adds"
    ASKS = "asks the host"
    CLOSES = "has the host end it"
    DECIDED = "the host has decided"
    OVER = "over"

    COMPLETES = "all have come who may"
    QUEUES = "all have come, and one of the same procs is before it"
    IS_NEXT = "the one before is over"
    FAILS = "somebody fails, and callers react to that"
    HEARD = "all of these have reacted"
    LACKS = "some whom it adds have not come"
    LOOKS = "one of these comes, or somebody ends"
    SUBMITS = "what the callers say together is given to the host"
    DECIDES = "the host answers"
    AGAIN = "some have ended on other servers, which callers do not know"
    GIVES_UP = "its time runs out, and it is optional; or a participant aborts it"
    ENDS = "it succeeds or fails, its time runs out, or no caller is left"

    ROWS = (
        Row(GATHERS, QUEUES, WAITS),
        Row(GATHERS, COMPLETES, READY),
        Row(GATHERS, ENDS, OVER, "the callers"),
        Row(WAITS, IS_NEXT, READY),
        Row(WAITS, ENDS, OVER, "the callers"),
        Row(READY, FAILS, HEARS, "`GROUP_LEADER_FAILED` to the procs, or `GROUP_MEMBER_FAILED` to the leader"),
        Row(READY, LACKS, ADDS),
        Row(READY, SUBMITS, ASKS, "the host"),
        Row(READY, ENDS, OVER, "the callers"),
        Row(HEARS, HEARD, READY, "`GROUP_LEADER_SELECTED` to the procs, if the leader has failed"),
        Row(HEARS, ENDS, OVER, "the callers"),
        Row(ADDS, LOOKS, READY),
        Row(ADDS, ENDS, OVER, "the callers"),
        Row(ASKS, DECIDES, DECIDED),
        Row(ASKS, GIVES_UP, CLOSES, "the host; `GROUP_CONSTRUCT_ABORT` to the procs, if somebody aborts it"),
        Row(ASKS, ENDS, OVER, "the callers"),
        Row(CLOSES, DECIDES, DECIDED),
        Row(CLOSES, GIVES_UP, CLOSES, "the host; `GROUP_CONSTRUCT_ABORT` to the procs"),
        Row(CLOSES, ENDS, OVER, "the callers"),
        Row(DECIDED, AGAIN, READY),
        Row(DECIDED, ENDS, OVER, "the callers"),
    )


_GATHERS, _WAITS, _OVER = Life.GATHERS, Life.WAITS, Life.OVER
_NOBODY: frozenset[Any] = frozenset()
_COMPLETES, _ENDS = Life.AFTER[Life.COMPLETES], Life.AFTER[Life.ENDS]

ABOVE = (Life.ASKS, Life.CLOSES)
"""The states in which the level above has an operation before it."""


class Kind(Generic[M, T]):
    """A kind of operation at one place.

    Args:
        name: Its name, one of those of `rules`.
        means: Gives an operation its meaning when it begins.
    """

    __slots__ = ("means", "name")

    def __init__(self, name: str, means: Callable[[Collective[M, T]], Meaning[M, T]]) -> None:
        self.name = name
        self.means = means


class Meaning(Generic[M, T]):
    """The meaning of one operation, which a subclass gives it.

    Args:
        collective: The operation.
    """

    __slots__ = ("collective",)

    def __init__(self, collective: Collective[M, T]) -> None:
        self.collective = collective

    def ask(self) -> None:
        """All have come: give what they say together to the level above, which decides; `finish` ends it.

        Called again for a construct after everything that may let it go on.
        """
        raise NotImplementedError

    def ended(self, status: int) -> None:
        """It is over: answer those who have come."""
        raise NotImplementedError

    def late(self) -> bool:
        """Its time has run out; return whether it goes on nevertheless."""
        return False

    def dropped(self) -> None:
        """It is over because all of its callers have gone."""

    def taken_back(self, member: M) -> None:
        """The contribution of a member is void."""

    def awaited(self) -> int:
        """Return how many may still come, where the membership does not tell.

        Raises:
            PMIxError: Those who have come do not agree on that.
        """
        return self.collective.awaited

    def missing(self) -> tuple[Proc, ...]:
        """Return which procs may still come, as far as they are known."""
        return tuple(sorted([member.proc for member in self.collective.missing()]))

    @property
    def label(self) -> str:
        """A description of those who take part."""
        membership = self.collective.membership
        members, others = membership.members, membership.others
        nspaces = sorted({member.proc.nspace for member in members} | {proc.nspace for proc in others})
        label = f"{len(members) + len(others)} procs of {', '.join(nspaces)}"
        return f"{label}, the group {membership.group}" if membership.group else label


class Membership(Generic[M, T]):
    """The procs of an operation, and the operations of that kind that these procs have under way, oldest first.

    There is one membership to each set of procs and kind of operation, whatever the order in which the procs were
    named; and one more for each group by whose name these procs are called.

    Attributes:
        tracker: Where it is kept.
        kind: The kind of operation.
        operation: Its name and, behind a space, what distinguishes operations of that kind.
        members: Who takes part at this place; none where that is not known beforehand (`Collective.admit`).
        others: Who takes part elsewhere.
        asks: Whether the level above has a say once all members have come.
        group: The group whose name stands for the procs; empty where they are named themselves.
        groups: That one, and those by whose names others have joined who named the procs themselves.
        running: The operations that members are still waited for in.
        asking: Those in which all have come: the first one is before the level above, the rest wait for that.
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
        kind: Kind[M, T],
        operation: str,
        members: frozenset[M],
        others: frozenset[Proc],
        group: str = "",
        asks: bool = True,
    ) -> None:
        self.tracker = tracker
        self.kind = kind
        self.operation = operation
        self.members = members
        self.others = others
        self.group = group
        self.groups = {group} if group else set()
        self.asks = asks or bool(others)
        self.running: list[Collective[M, T]] = []
        self.asking: list[Collective[M, T]] = []

    @property
    def id(self) -> str:
        """The part of the operation's name that distinguishes it from others of its kind."""
        return self.operation.partition(" ")[2]

    def awaits(self, member: M) -> bool:
        """Return True if an operation is running that a member takes part in and has not called."""
        return member in self.members and any(
            member not in collective.arrived and member not in collective.left for collective in self.running
        )


class Collective(Generic[M, T]):
    """One operation under way.

    Not for subclasses: its methods are the hot path of a server, and the interpreter is quick where all that they see
    is of one class.

    Attributes:
        meaning: What it means; not there any more once it is over.
        state: One of the states of `Life`.
        ended_in: The state in which it has ended.
        arrived: The callers, each with what its owner needs for the answer.
        said: The callers' arguments, as far as they have a meaning for all: the procs and the directives.
        gone: The members that will not come any more.
        left: Those of them that left the group and live on: what they call next is another operation.
        awaited: How many may still come.
        lost: Whether it goes on without anyone, be it finalized or lost.
        collect: Whether anyone asked for the others' data.
        ft: Whether it is fault tolerant: it goes on without those who end or leave.
        absent: The procs that the level above names as the cause of a failure; None if it names none.
        reason: Why, in the words of the level above.
        opener: The first caller.
        since: When that was.
        due: When the first time limit of a caller is over; None as long as no caller has one.
    """

    __slots__ = (
        "_timer",
        "absent",
        "arrived",
        "awaited",
        "collect",
        "due",
        "ended_in",
        "ft",
        "gone",
        "left",
        "lost",
        "meaning",
        "membership",
        "opener",
        "reason",
        "said",
        "since",
        "state",
    )

    def __init__(self, membership: Membership[M, T], opener: M, since: float) -> None:
        self.membership = membership
        self.state = self.ended_in = _GATHERS
        self.arrived: dict[M, T] = {}
        self.said: dict[M, Said] = {}
        self.gone: set[M] = set()
        self.left: frozenset[M] = _NOBODY
        self.awaited = len(membership.members)
        self.lost = False
        self.collect = False
        self.ft = False
        self.absent: tuple[Proc, ...] | None = None
        self.reason = ""
        self.opener = opener
        self.since = since
        self.due: float | None = None
        self._timer: Timer | None = None
        self.meaning: Meaning[M, T] = membership.kind.means(self)

    def step(self, what: str) -> None:
        """Something happens.

        Raises:
            IllegalStep: It cannot happen in this state.
        """
        self.state = Life.step(self.state, what)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.state is not _OVER

    @property
    def asked(self) -> bool:
        """Whether the level above has it before it, or had when it ended."""
        return (self.state if self.state is not _OVER else self.ended_in) in ABOVE

    @property
    def status(self) -> int:
        """The status of this level: a partial success where members are missing and it is not fault tolerant."""
        return statuses.ERR_PARTIAL_SUCCESS if self.lost and not self.ft else statuses.SUCCESS

    def calls(self) -> list[T]:
        """Return the calls in the order in which they are best answered.

        The last caller goes first: its processor is awake. The others follow in the order of their calls.
        """
        calls = [*self.arrived.values()]
        return [*calls[-1:], *calls[:-1]]

    def missing(self) -> list[M]:
        """Return who may still come."""
        return [m for m in self.membership.members if m not in self.arrived and m not in self.gone]

    def come(
        self,
        member: M,
        call: T,
        collect: bool = False,
        timeout: float = 0.0,
        said: Said | None = None,
        ft: bool = False,
    ) -> None:
        """Take in the contribution of a member; see `Collectives.join`. It may be over when this returns."""
        self.arrived[member] = call
        if said is not None:
            self.said[member] = said
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
            if self.due is None or due < self.due:
                self.due = due
                self.time(timeout, self._overdue)
        if not self.awaited:
            if self.membership.asks:
                self._complete()
            else:
                self.finish(self.status if self.lost else statuses.SUCCESS)

    def time(self, seconds: float, function: Callable[[], None]) -> None:
        """Have something called after some time, in place of what was to be, unless it is over before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.membership.tracker.clock.call_later(seconds, function)

    def expire(self, seconds: float, status: int) -> None:
        """End it with a status unless it is over in some seconds."""

        def over() -> None:
            self.finish(status)

        self.time(seconds, over)

    def without(self, members: Iterable[M], silent: bool = False) -> None:
        """Some members are waited for no more.

        Args:
            members: They.
            silent: They are not missed: its status stays.
        """
        for member in members:
            if self.is_running and member not in self.arrived and member not in self.gone:
                self.awaited -= 1
                self.gone.add(member)
                self.lost = self.lost or not silent
                self.settle()

    def admit(self, member: M, call: T, said: Said) -> None:
        """Take in the contribution of one that the membership does not name; `recount` sees whether it was the last."""
        self.arrived[member] = call
        self.said[member] = said
        self.gone.discard(member)

    def recount(self) -> None:
        """See anew how many may still come, where the membership does not tell.

        Raises:
            PMIxError: Those who have come do not agree on that.
        """
        self.awaited = self.meaning.awaited()
        self.settle()

    def take_back(self, member: M) -> T:
        """The contribution of a member is void; return what is needed for its answer."""
        call = self.arrived.pop(member)
        self.said.pop(member, None)
        self.meaning.taken_back(member)
        return call

    def settle(self) -> None:
        """Go on, or end if no caller is left."""
        if not self.arrived:
            self.finish(None)
        elif not self.awaited:
            self._complete()

    def finish(self, status: int | None) -> bool:
        """End it with what the level above says; return False if it has ended already.

        Args:
            status: Its status; None where no caller is left.
        """
        state, membership = self.state, self.membership
        if state is _OVER:
            return False
        meaning = self.meaning
        (membership.running if state is _GATHERS else membership.asking).remove(self)
        self.ended_in = state
        self.state = _ENDS[state]
        tracker = membership.tracker
        del tracker.running[self]
        opened = tracker.opened.pop(self.opener) - 1
        if opened:
            tracker.opened[self.opener] = opened
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        del self.meaning  # which refers to this one: no garbage for the collector
        if status is None:
            meaning.dropped()
        else:
            meaning.ended(status)
        if membership.asking:
            self._ask_next()
        return True

    def _complete(self) -> None:
        """All members that may come have come."""
        membership = self.membership
        if not membership.asks:
            self.finish(self.status)
            return
        membership.running.remove(self)
        membership.asking.append(self)
        if len(membership.asking) > 1:
            self.step(Life.QUEUES)
        else:
            self.state = _COMPLETES[self.state]
            self.meaning.ask()

    def _ask_next(self) -> None:
        following = self.membership.asking[0]
        if following.state is _WAITS:
            following.step(Life.IS_NEXT)
            following.meaning.ask()

    def _overdue(self) -> None:
        if self.meaning.late():
            return
        if self.asked:
            # The host knows that limit, too, and the procs that are missing elsewhere: it gets a moment to say so.
            self.expire(HOST_GRACE, statuses.ERR_TIMEOUT)
        else:
            self.finish(statuses.ERR_TIMEOUT)


class Collectives(Generic[M, T]):
    """All operations under way at one place.

    Args:
        clock: Where time comes from.
        limits: What one participant may take.

    Attributes:
        running: The operations, oldest first.
        opened: How many of these each participant has begun.
    """

    __slots__ = ("_finalized", "_gone", "_limits", "_memberships", "_named", "clock", "opened", "running")

    def __init__(self, clock: Clock, limits: Limits = DEFAULTS) -> None:
        self.clock = clock
        self._limits = limits
        self._memberships: weakref.WeakValueDictionary[tuple[str, frozenset[M], frozenset[Proc], str], Membership[M, T]]
        self._memberships = weakref.WeakValueDictionary()
        self._named: dict[str, list[Membership[M, T]]] = {}
        """The memberships of groups, by their names."""
        self.running: dict[Collective[M, T], None] = {}
        self._gone: set[M] = set()
        self._finalized: set[M] = set()
        self.opened: dict[M, int] = {}

    def membership(
        self,
        kind: Kind[M, T],
        members: Iterable[M],
        others: Iterable[Proc] = (),
        asks: bool = False,
        id: str = "",
    ) -> Membership[M, T]:
        """Return the membership of these procs for this kind of operation.

        Args:
            kind: The kind.
            members: The procs of this server.
            others: Those of other servers; where there are some, the host is asked.
            asks: Whether the host is asked even if there are none.
            id: What distinguishes the operation from others of its kind.
        """
        return self._membership(kind, _operation(kind, id), frozenset(members), frozenset(others), "", asks)

    def _membership(
        self,
        kind: Kind[M, T],
        operation: str,
        members: frozenset[M],
        others: frozenset[Proc],
        group: str,
        asks: bool,
    ) -> Membership[M, T]:
        key = operation, members, others, group
        membership = self._memberships.get(key)
        if membership is None:
            membership = self._memberships[key] = Membership(self, kind, *key, asks)
        return membership

    def of_group(
        self, kind: Kind[M, T], group: str, members: frozenset[M], others: frozenset[Proc], member: M
    ) -> Membership[M, T]:
        """Return where a member finds those who mean the same operation, which all call by the group's name."""
        known = self._named.get(group)
        if known is None:
            known = self._named[group] = []
        same = None
        for membership in known:
            if membership.kind is kind:
                if membership.awaits(member):
                    return membership
                if membership.members == members and membership.others == others:
                    same = membership
        if same is None:
            same = Membership(self, kind, _operation(kind, group), members, others, group)
            known.append(same)
        return same

    def meeting(self, membership: Membership[M, T], group: str, member: M) -> Membership[M, T]:
        """Return where a member finds those who mean the same operation, be it that they name the group or its procs.

        What a group has begun stays one operation for all who name it, even if somebody leaves the group before all of
        them have called; and who names the procs meets those who name the group while both mean the same procs.

        Args:
            membership: The membership of the procs as the caller sees them.
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
        for membership in self._named.get(group, ())[:]:
            if member is not None and member in membership.members:
                for collective in membership.running[:]:
                    if member not in collective.arrived:
                        collective.left |= {member}
                        # It is not missed in a destruct.
                        collective.without((member,), silent=membership.kind.name == DESTRUCT)
            if not membership.running and not membership.asking:
                self._unname(group, membership)

    def dissolved(self, group: str) -> None:
        """A group no longer exists."""
        self._named.pop(group, None)

    def _unname(self, group: str, membership: Membership[M, T]) -> None:
        known = self._named.get(group)
        if known is None or membership not in known:
            # What has just ended was the end of the group, or of all that it had under way.
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
        said: Said | None = None,
        ft: bool = False,
    ) -> Collective[M, T]:
        """A member has called the operation; return the one that it has joined, which may be over.

        It belongs to the oldest one under way that it has not called yet; a member that calls twice means the next one.

        Args:
            membership: Who takes part; the member is one of them.
            member: The caller.
            call: What the owner needs to answer it.
            collect: Whether the member asks for the others' data.
            timeout: Seconds after which to give up; 0 waits for ever. The one that is over first counts, for all who
                take part, and goes on counting when the one that has given it is lost.
            said: The procs and the directives, where they are needed later.
            ft: Whether the member says that it is to go on without those who end or leave.

        Raises:
            OutOfResources: The member has begun too many operations that no other joins.
        """
        for collective in membership.running:
            if member not in collective.arrived and member not in collective.left:
                break
        else:
            collective = self.begin(membership, member)
        collective.come(member, call, collect, timeout, said, ft)
        return collective

    def leave(self, member: M, lost: bool) -> None:
        """A member has finalized, or is lost: whatever is under way and waits for it ends without success.

        One that has finalized may come back: later operations wait for that, and so do those begun by a member that has
        come back more often already. One that is lost will not. Later ones with participants elsewhere do not wait:
        those may have begun them before, which is not known here.

        Args:
            member: Who.
            lost: It did not finalize: what it has contributed is void.
        """
        if lost:
            self._gone.add(member)
            self._forgo(member, lost=True)
        else:
            self._finalized.add(member)
        for collective in list(self.running):
            if member not in collective.membership.members or not collective.awaited or not collective.is_running:
                continue
            if member in collective.arrived:
                if not lost:
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
        """Tell whether a member is to be waited for, because somebody there has come back more often than it yet."""
        return member not in self._gone and any(other.opened > member.opened for other in collective.arrived)

    def ended(self, member: M) -> None:
        """A member that has finalized will not come back."""
        self._gone.add(member)
        self.leave(member, lost=False)
        self._forgo(member)

    def _forgo(self, member: M, lost: bool = False, void: Callable[[T], bool] | None = None) -> None:
        """Take a member out of complete operations, which the host decides; they end if no caller is left.

        The youngest go first, so that the host is not asked about an operation without callers.
        """
        for collective in reversed([each for each in self.running if not each.awaited]):
            if not collective.is_running or member not in collective.arrived:
                continue
            if void is not None and not void(collective.arrived[member]):
                continue
            collective.take_back(member)
            collective.gone.add(member)
            if lost and not collective.asked:
                collective.lost = True
            if not collective.arrived:
                collective.finish(None)

    def back(self, member: M) -> None:
        """A member that had left is there again, and will be waited for from the next operation on."""
        self._gone.discard(member)
        self._finalized.discard(member)

    def withdraw(self, member: M, void: Callable[[T], bool]) -> None:
        """Take back the contributions of a member whose call is void; the member itself stays."""
        self._forgo(member, void=void)
        for collective in list(self.running):
            if not collective.awaited or not collective.is_running:
                continue
            if member in collective.arrived and void(collective.arrived[member]):
                collective.take_back(member)
                collective.awaited += 1
                collective.settle()

    def retract(self, member: M, call: T) -> bool:
        """A member gives up waiting: take its contribution back, and wait for it again.

        Returns:
            False if that is too late. An operation that all members of this place have called is with the level above,
            which decides it for all: the member is counted in.
        """
        for collective in list(self.running):
            if collective.awaited and collective.arrived.get(member) == call:
                collective.take_back(member)
                collective.awaited += 1
                collective.settle()
                return True
        return False

    def pending(self) -> list[Pending]:
        """Return what is under way, oldest first."""
        found = []
        for collective in self.running:
            arrived = tuple(sorted(member.proc for member in collective.arrived))
            missing = collective.meaning.missing()
            label = collective.meaning.label + ("" if missing or collective.awaited else ", with the host")
            found.append(Pending(collective.membership.operation, label, arrived, missing, collective.since))
        return found

    def begin(self, membership: Membership[M, T], member: M) -> Collective[M, T]:
        """Begin an operation for a member that is about to come to it.

        Raises:
            OutOfResources: The member has begun too many operations that no other joins.
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


def _operation(kind: Kind[M, T], id: str) -> str:
    return f"{kind.name} {id}" if id else kind.name
