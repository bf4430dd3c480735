"""A group as a member reads it, and the changes of the group."""

from __future__ import annotations

from pypmix.arguments import proc_tuple
from pypmix.psets import REFRESH, ProcSet
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotInitialized
from pypmix.standard.ops import QueryInfo
from pypmix.standard.ops.groups import (
    DESTRUCTED,
    JOINED,
    LEADER_FAILED,
    LEADER_SELECTED,
    LEFT,
    MEMBER_FAILED,
)
from pypmix.standard.record import Record
from pypmix.standard.types import MAX_NSLEN, RANK_WILDCARD, Info, Proc, Query, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pypmix.arguments import Procs
    from pypmix.engine.base import ClientSession
    from pypmix.job import Port
    from pypmix.standard.enums import EventCode
    from pypmix.standard.ops import GroupChange, GroupResults, GroupState


class GroupEvent:
    """Codes of events of the early draft of RFC 0033, which only processes with pypmix raise and receive.

    They go wherever an `EventCode` goes: `me.on(GroupEvent.JOIN_REQUEST)`, `me.events(GroupEvent.HAS_JOINED)`.

    Example:
        >>> @me.on(groups.GroupEvent.JOIN_REQUEST)
        ... def requested(event):
        ...     print(event.source, "asks to join", event.info.get(attrs.GROUP_ID))
    """

    JOIN_REQUEST: EventCode = statuses.JOIN_REQUEST  # type: ignore[assignment]
    """The source asks by `recipes.admission.request` to join a group of the caller; `Event.refuse` refuses it."""

    REQUESTED: EventCode = statuses.REQUESTED  # type: ignore[assignment]
    """The source begins a construct with the caller, which it announces by `recipes.draft.announce`."""

    LEAVE_REQUEST: EventCode = statuses.LEAVE_REQUEST  # type: ignore[assignment]
    """The source wants to leave by `recipes.draft.Consent`, and waits until all have confirmed it."""

    HAS_JOINED: EventCode = statuses.HAS_JOINED  # type: ignore[assignment]
    """The source has joined a construct in progress, which it announces by `recipes.draft.announce`."""


class Change(Record):
    """A change of a group; each kind is a class, which `match` distinguishes.

    Args:
        procs: The procs that have joined, left or failed, or the new leader.
        state: The group afterwards.

    Example:
        >>> with me.group("team", me.job) as team, team.changes() as changes:
        ...     for change in changes:
        ...         print(change.group, "changed:", change.joined, "joined,", change.left, "left")
        ...         print(change.epoch, "changes, the last by", change.proc)
        ...         print(change.leader, "leads", change.members)
    """

    procs: tuple[Proc, ...]
    state: GroupState

    @property
    def proc(self) -> Proc | None:
        """The first of `procs`, and the only one unless several join or leave together; None if `procs` is empty."""
        return self.procs[0] if self.procs else None

    @property
    def group(self) -> str:
        """The group's name."""
        return self.state.name

    @property
    def epoch(self) -> int:
        """The number of changes of the membership so far, counted from 1."""
        return self.state.epoch

    @property
    def members(self) -> tuple[Proc, ...]:
        """All members now, by group rank."""
        return self.state.members

    @property
    def leader(self) -> Proc | None:
        """The leader now; None if the group has no leader."""
        return self.state.leader

    def __repr__(self) -> str:
        whose = f" {', '.join(map(str, self.procs))}" if self.procs else ""
        leader = f", leader {self.leader}" if self.leader is not None else ""
        return f"<{type(self).__name__}{whose}: {self.group} of {len(self.members)}, epoch {self.epoch}{leader}>"

    @property
    def joined(self) -> frozenset[Proc]:
        """The procs that became members by this change."""
        return frozenset()

    @property
    def left(self) -> frozenset[Proc]:
        """The procs that are no longer members after this change, for whatever reason."""
        return frozenset()


class _Departure(Change):
    @property
    def left(self) -> frozenset[Proc]:
        """The procs that are no longer members after this change."""
        return frozenset(self.procs).difference(self.state.members)


class Joined(Change):
    """`PMIX_GROUP_MEMBERSHIP_UPDATE`: procs have become members of an existing group."""

    @property
    def joined(self) -> frozenset[Proc]:
        """The procs that became members by this change."""
        return frozenset(self.procs)


class Left(_Departure):
    """`PMIX_GROUP_LEFT`: a member has left the group."""


class MemberFailed(_Departure):
    """`PMIX_GROUP_MEMBER_FAILED`: a member has ended without leaving the group."""


class LeaderFailed(_Departure):
    """`PMIX_GROUP_LEADER_FAILED`: the leader has ended without leaving the group."""


class LeaderSelected(Change):
    """`PMIX_GROUP_LEADER_SELECTED`: the group has a new leader, or no member wanted to lead; then `procs` is empty."""


class Destructed(Change):
    """The group no longer exists; nothing follows."""


_KINDS: dict[str, type[Change]] = {
    JOINED: Joined,
    LEFT: Left,
    MEMBER_FAILED: MemberFailed,
    LEADER_FAILED: LeaderFailed,
    LEADER_SELECTED: LeaderSelected,
    DESTRUCTED: Destructed,
}


def change_of(report: GroupChange) -> Change:
    """Convert an engine's report of a group's change to the class of its kind."""
    return _KINDS[report.kind](report.procs, report.state)


class Membership:
    """The leader and the state of a group, as a member knows them; each attribute is up to date whenever it is read.

    Args:
        port: The way to the session of the client, for pypmix's own modules.
        group: The group's name.
        results: What the construct has returned; None before it, and after the end.

    Example:
        >>> with me.group("team", me.job, leader=me.job[0]) as team:
        ...     membership = team.membership
        ...     print(membership.leader, membership.epoch, membership.is_open)
        ...     print(membership.is_partial, membership.infos)
    """

    def __init__(self, port: Any, group: str, results: GroupResults | None = None) -> None:
        self.port: Any = port
        self.group = group
        self.results = results

    @property
    def is_open(self) -> bool:
        """Whether the group exists, and the caller is a member."""
        return self.find_state() is not None

    @property
    def leader(self) -> Proc | None:
        """The leader now; None if the group has no leader."""
        return self.state().leader

    @property
    def epoch(self) -> int:
        """The number of changes of the membership, counted from 1."""
        return self.state().epoch

    @property
    def is_partial(self) -> bool:
        """Whether a proc that was named for the group did not join, which `optional` allows."""
        return self.require_results().partial

    @property
    def infos(self) -> tuple[Info, ...]:
        """Further infos of the group from the server or the library, such as the members' `attrs.GROUP_INFO`."""
        return self.require_results().infos

    def find_state(self) -> GroupState | None:
        """Return the group as the caller knows it now; None if it is not open.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     state = team.membership.find_state()
        """
        if self.results is None or not self.port.is_open:
            return None
        state: GroupState | None = self.port.session.group_state(self.group)
        return state

    def state(self) -> GroupState:
        """Return the members, the leader and the number of changes as they are now, together.

        Raises:
            NotInitialized: The group does not exist, or the caller is no longer a member.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     state = team.membership.state()
            ...     print(state.leader, "leads", state.members, "after", state.epoch, "changes")
        """
        state = self.find_state()
        if state is None:
            raise NotInitialized(
                f"group {self.group!r} is not open here",
                operation="group",
                hint="use it in a `with` block, and not after `leave`",
            )
        return state

    def require_results(self) -> GroupResults:
        """Return what the construct of the open group has returned."""
        self.state()
        assert self.results is not None
        return self.results

    def __repr__(self) -> str:
        state = self.find_state()
        if state is None:
            return f"<Membership of {self.group}, not open>"
        leader = "no leader" if state.leader is None else f"leader {state.leader}"
        return f"<Membership of {self.group}: {len(state.members)} members, epoch {state.epoch}, {leader}>"


class GroupView:
    """An ordered collection of the members, as a job is one of its procs; it may be passed wherever procs are wanted.

    Its attributes show the group as the caller knows it now: if a member leaves or fails, the members after it move up.

    Args:
        port: The way to the session of the client whose view it is.
        name: The group's name.
        results: What the construct has returned, if it is over.
    """

    def __init__(self, port: Port, name: str, results: GroupResults | None = None) -> None:
        self._name = name
        self._membership = Membership(port, name, results)

    @property
    def name(self) -> str:
        """The group's name; `Proc(name, Rank.WILDCARD)` is its address.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     print(Proc(team.name, Rank.WILDCARD))
        """
        return self._name

    @property
    def members(self) -> ProcSet:
        """All members now, by group rank; empty if neither the server nor the library reports them.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     print(team.members, me.proc in team)
        """
        return ProcSet.unchecked(self._membership.state().members)

    @property
    def size(self) -> int:
        """The number of members now.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     print(team.size)
        """
        return len(self.members)

    @property
    def rank(self) -> int:
        """The caller's group rank, which is its place among the members.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     next_member = team[(team.rank + 1) % team.size]
        """
        return self.members.index(self._membership.port.session.proc)

    @property
    def context_id(self) -> int | None:
        """The number that the host has given this group and no other; None if the caller did not ask for one.

        Example:
            >>> with me.group("team", me.job, context_id=True) as team:
            ...     print(team.context_id)
        """
        return self._membership.require_results().context_id

    @property
    def membership(self) -> Membership:
        """The leader, the number of changes, and whether the group is open and complete.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     print(team.membership.leader, team.membership.epoch)
        """
        return self._membership

    @property
    def _address(self) -> Proc:
        return Proc(self._name, RANK_WILDCARD)

    def __getitem__(self, rank: int) -> Proc:
        procs = self.members
        if not 0 <= rank < len(procs):
            raise IndexError(f"group {self._name} has ranks 0 to {len(procs) - 1}, not {rank}")
        return procs[rank]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Proc]:
        return iter(self.members)

    def __contains__(self, proc: object) -> bool:
        return proc in self.members

    def __repr__(self) -> str:
        state = self._membership.find_state()
        if state is not None:
            return f"<Group {self._name} of {len(state.members)}>"
        return f"<Group {self._name}, {'not constructed' if self._membership.results is None else 'gone'}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            """Return what a former name stands for."""
            if name[0] == "_":
                return object.__getattribute__(self, name)
            from pypmix.oldnames import find_member

            return find_member(self, "pypmix.Group", name)


def expand(session: ClientSession, procs: tuple[Proc, ...]) -> tuple[Proc, ...]:
    """Return each proc once; groups and whole jobs are replaced by their procs as far as this process knows them."""
    found: dict[Proc, None] = {}
    for proc in procs:
        state = session.group_state(proc.nspace)
        if state is not None:
            found.update(dict.fromkeys(state.members if proc.rank == RANK_WILDCARD else (state.members[proc.rank],)))
            continue
        size = session.fetch_local(proc, keys.JOB_SIZE) if proc.rank == RANK_WILDCARD else None
        if size is None:
            found[proc] = None
        else:
            found.update(dict.fromkeys([Proc(proc.nspace, rank) for rank in range(int(size.data))]))
    return tuple(found)


def automatic_name(session: ClientSession, counts: dict[str, Any], procs: Procs) -> str:
    """Return a name that each caller with the same procs computes without a message.

    Args:
        session: The caller's session.
        counts: The numbers of names that the caller has made, by the procs; this changes it.
        procs: The members, in any order.
    """
    if procs is None:
        raise ValueError("a group without a name needs the procs: both are left to others where neither is given")
    from hashlib import blake2b
    from itertools import count

    members = sorted(expand(session, proc_tuple(procs)))
    digest = blake2b(repr([(proc.nspace, int(proc.rank)) for proc in members]).encode(), digest_size=8).hexdigest()
    # Threads may ask at the same time: both steps are single operations of the interpreter.
    number = next(counts.setdefault(digest, count(1)))
    tail = f".{digest}.{number}"
    head = f"pypmix.{members[0].nspace}".encode()[: MAX_NSLEN - len(tail)]
    return head.decode(errors="ignore") + tail


def group_names_op() -> QueryInfo:
    """Return the query for the names of all groups that the server knows."""
    return QueryInfo((Query((keys.QUERY_GROUP_NAMES,), (REFRESH,)),))


def group_members_op(name: str) -> QueryInfo:
    """Return the query for the members of a group that the caller is not in."""
    return QueryInfo(
        (Query((keys.QUERY_GROUP_MEMBERSHIP,), (Info(keys.GROUP_ID, Value(codes.STRING, name)), REFRESH)),)
    )
