# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Groups: constructed and destructed by all of their members, used, left, joined on request, and watched.

A `Group` holds no members. It makes ops, and reads the group from the engine's record each time (`Membership` in
`group.py`, of `ClientSession.group_state`), since other members change it at any moment. `Changes` are the reports that
the engine makes of the same record, in order. Group ranks, `members` and the ranks of values in `bcast` and the like
follow from it; see `engine/groups/standing.py` for the record, and `exchanging.py` for the collectives on values.
"""

from __future__ import annotations

from contextlib import suppress

from pypmix.answers import UNANSWERED
from pypmix.arguments import flag, flags, proc_tuple, ranked, target, timed
from pypmix.engine.common import ignore
from pypmix.group import Change, GroupView, automatic_name, change_of, expand, group_members_op, group_names_op
from pypmix.operations.base import Asks
from pypmix.operations.exchanging import Addressed, Exchanging, Participants
from pypmix.operations.streams import Stream
from pypmix.psets import members_in, names_in, names_value, optional
from pypmix.standard import codes, keys
from pypmix.standard.attrs import GROUP_FT_COLLECTIVE
from pypmix.standard.errors import NotFound, NotInitialized, PMIxError
from pypmix.standard.ops import (
    Get,
    GroupAdmit,
    GroupConstruct,
    GroupDestruct,
    GroupEnter,
    GroupLeave,
    GroupUnwatch,
    GroupWatch,
)
from pypmix.standard.ops.hosting import GROUP_LEADER_PROC
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value, check_integer
from pypmix.standard.values import infos
from pypmix.steps import Steps, forget_steps, steps_of
from pypmix.waits import shielded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from pypmix.arguments import Infos, Key, Procs, Target
    from pypmix.mailbox import Mailbox
    from pypmix.standard import ops
    from pypmix.standard.enums import EventCode
    from pypmix.standard.ops import GroupResults
    from pypmix.waits import Port

_OPTIONAL = flag(keys.OPTIONAL)


class Changes(Stream[Change]):
    """The changes of a group, in order; `changes` of a group makes one.

    It is a context manager, or opened by its first use. Iterating ends when the group is gone.

    Example:
        >>> with me.group("team", me.job) as team:
        ...     with team.changes() as changes:
        ...         for change in changes:
        ...             if isinstance(change, groups.MemberFailed):
        ...                 print(change.proc, "failed")
    """

    _name = "changes"

    def __init__(self, port: Port, group: str, since: int | None, buffer: int) -> None:
        super().__init__(port, buffer)
        self._group = group
        self._since = 0 if since is None else check_integer(since, "an epoch of a group")
        self._id = -1

    def get(self, timeout: float | None = None) -> Change:
        """Return the next change.

        Args:
            timeout: Seconds to wait for it; no limit by default.

        Raises:
            OperationTimeout: Nothing has happened in time.
            NotInitialized: The group is gone, or the stream or its client is closed.
            LostConnection: The server is gone.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     change = team.changes().get(timeout=60)
        """
        if self._box is None:
            self.open()
        return super().get(timeout)

    def next(self, timeout: float | None = None) -> Change:
        """The same as `get`.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     change = team.changes().next(timeout=60)
        """
        return self.get(timeout)

    def __next__(self) -> Change:
        if self._box is None:
            self.open()
        return super().__next__()

    def _begin(self, box: Mailbox[Change]) -> None:
        self._id = self._port.run(GroupWatch(self._group, self._put, box.end, True), GroupUnwatch)

    def _finish(self) -> None:
        self._port.run(GroupUnwatch(self._id))

    def _put(self, report: ops.GroupChange) -> None:
        change = change_of(report)
        known = change.epoch < self._since or change.epoch == self._since and (change.left or change.joined)
        if self._box is not None and not known:
            self._box.put(change)


class _Members(Addressed):
    def __init__(self, client: Asks, steps: Steps, group: Group, ft: bool) -> None:
        address = Proc(group.name, RANK_WILDCARD)
        super().__init__(client, group.membership.port, steps, address, (GROUP_FT_COLLECTIVE(True),) if ft else ())
        self._group = group
        self.ft = ft

    def members(self) -> tuple[Proc, ...]:
        return self._group.membership.state().members


class Group(GroupView, Exchanging):
    """A group that the caller is, or will be, a member of; `group` of a client makes one.

    Entering it as a context manager constructs the group, leaving destructs it; both wait for all members. An
    exception that leaves the block lets the caller leave the group without waiting: the others may not be about to end.
    The end of the block does nothing if the caller has left the group in it, or the group is gone.
    """

    def __init__(
        self,
        client: Asks,
        port: Port,
        name: str,
        op: GroupConstruct | None,
        timeout: float | None = None,
        results: GroupResults | None = None,
        directives: tuple[Info, ...] = (),
    ) -> None:
        super().__init__(port, name, results)
        self._client = client
        self._port = port
        self._op = op
        self._timeout = timeout
        self._ft = any(info.key == keys.GROUP_FT_COLLECTIVE for info in (directives if op is None else op.directives))
        self._steps: Steps | None = None

    def construct(self) -> Self:
        """`PMIx_Group_construct`: construct the group without a `with` block; all of its members call it.

        Returns:
            The group itself.

        Raises:
            PMIxError: As for entering it; see `group` of a client.

        Example:
            >>> team = me.group("team", me.job).construct()
            >>> team.destruct()
        """
        self._form()
        return self

    def _form(self) -> GroupResults:
        if self._op is None:
            raise NotInitialized(
                f"the group {self._name!r} is gone, and an invited group cannot be constructed again",
                operation="group_construct",
                hint="invite its members again",
            )
        results = self._membership.results = self._port.run(self._op, lambda _: GroupLeave(self._name))
        self._steps = None
        return results

    def destruct(self, *, timeout: float | None = None, info: Infos = None) -> None:
        """`PMIx_Group_destruct`: destruct the group; all of its members call it. Does nothing if it is not open.

        Its name is free afterwards.

        Args:
            timeout: Seconds to wait for all members; by default as long as for the construct.
            info: Further infos or a mapping.

        Raises:
            OperationTimeout: Not all called it in time; the group is open as before.

        Example:
            >>> team = me.group("team", me.job).construct()
            >>> team.destruct(timeout=60)
        """
        op = _destruct_op(self._name, self._timeout if timeout is None else timeout, info, self._ft)
        if not self._membership.is_open:
            return
        try:
            self._port.run(op)
        except NotFound:
            if self._membership.is_open:
                raise
        else:
            if self._client.supports("get.refresh"):
                forget_steps(self._client.proc, self._name)
        self._membership.results = None

    def leave(self, *, info: Infos = None) -> None:
        """`PMIx_Group_leave`: leave the group; the others continue without the caller.

        They receive `EventCode.GROUP_LEFT`. The call waits for none of them. Fences of the group in progress end with
        `PartialSuccess` unless they were called with `ft`.

        Args:
            info: Further infos or a mapping, for the others.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     if len(team) > 2:
            ...         team.leave()
        """
        op = GroupLeave(self._name, infos(info))
        self._membership.state()
        self._port.run(op)
        self._membership.results = None

    def _enter(self, by: Procs, *, timeout: float | None = None, info: Infos = None) -> Self:
        client: Any = self._client
        vars(self).update(vars(enter(client, self._name, by, timeout=timeout, info=info)))
        return self

    def _admit(self, proc: Target, *, timeout: float | None = None) -> None:
        admit(self, proc, timeout=timeout)

    def fence(
        self,
        *,
        collect: bool = False,
        timeout: float | None = None,
        ft: bool | None = None,
        commit: bool = True,
        info: Infos = None,
    ) -> None:
        """`PMIx_Fence`: wait until all members have called it.

        Args:
            collect: Exchange what the members have committed, so that a later `get` finds it near.
            timeout: Seconds to wait; no limit by default.
            ft: Go on without members that leave or fail meanwhile (`attrs.GROUP_FT_COLLECTIVE`); by default as the
                group was formed. Without it such a fence ends with `PartialSuccess`.
            commit: Commit pending puts first.
            info: Further infos or a mapping.

        Raises:
            NotInitialized: The group does not exist, or the caller has left it.
            OperationTimeout: Not all arrived in time; `missing` names them if the server reports them.
            PartialSuccess: A member left or ended before it called the fence; all others have called it.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     team.fence(collect=True, timeout=60)
        """
        self._membership.state()
        directives = infos(info)
        if self._ft if ft is None else ft:
            directives += (GROUP_FT_COLLECTIVE(True),)
        elif self._ft:
            # The group itself says otherwise.
            directives += (GROUP_FT_COLLECTIVE(False),)
        self._client.fence(self, collect=collect, timeout=timeout, commit=commit, info=directives)

    def _get(self, key: Key, member: int | Proc, **options: Any) -> Any:
        proc = member if isinstance(member, Proc) else self[member]
        return self._client.get(key, proc, **options)

    def _notify(self, code: EventCode, **options: Any) -> None:
        self._membership.state()
        self._client.notify(code, targets=self, **options)

    def _call_participants(self) -> Participants:
        own, now = self._client.proc, self._membership.state().members
        if self._steps is None or self._steps.over:
            self._steps = steps_of(own, self._name, self._membership.require_results().members or now)
        if not self._steps.members.issuperset(now):
            # New members do not know how often the others have called.
            self._steps = steps_of(own, self._name, now)
        return _Members(self._client, self._steps, self, self._ft)

    def changes(self, since: int | None = None, buffer: int = 1024) -> Changes:
        """Follow what happens to the group: a stream of `Joined`, `Left`, `MemberFailed`, `LeaderFailed`,
        `LeaderSelected` and `Destructed`.

        Args:
            since: The epoch that the caller knows: earlier changes are left out. By default the stream begins with the
                changes since the group was formed, of which the last 64 are kept, so that nothing is
                missed before it is opened.
            buffer: How many changes are kept for a slow reader; of more than that the oldest are dropped and counted.

        Example:
            >>> with me.group("team", me.job) as team:
            ...     with team.changes() as changes:
            ...         for change in changes:
            ...             print(change.joined, change.left)
        """
        return Changes(self._port, self._name, since, buffer)

    def __enter__(self) -> Self:
        return self if self._membership.is_open else self.construct()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._membership.is_open:
            return
        if error is None:
            self.destruct()
            return
        try:
            with shielded():
                self.leave()
        except PMIxError:
            pass  # the exception that is on its way tells more


class Groups(Asks):
    """Groups that all of their members construct and destruct together, and the operations of members."""

    def group(
        self,
        name: str | None = None,
        procs: Procs = None,
        *,
        context_id: bool = False,
        leader: Proc | bool | None = None,
        optional: bool = False,
        ft: bool = False,
        notify_termination: bool = False,
        local_only: bool = False,
        bootstrap: int = 0,
        add: Procs = (),
        timeout: float | None = None,
        info: Infos = None,
    ) -> Group:
        """`PMIx_Group_construct` and `PMIx_Group_destruct`: a group for the length of a `with` block.

        All members make the same call, of whatever jobs they are. In the block, the group goes wherever procs are
        wanted, `Proc(name, Rank.WILDCARD)` is its address, and the group rank of each member is its place in the
        membership.

        Args:
            name: Its name: at most 255 bytes, and neither the name of a job nor of another open group. Without a name,
                all callers with the same procs use the same name: the first group of these procs has number 1, the next
                one 2. So they have to make such groups in the same order, in one thread, and give a name after one has
                failed, since some may not have counted it.
            procs: All members, the caller among them; `Proc(nspace, Rank.WILDCARD)` is a whole job. None if others
                name the caller in `add`.
            context_id: Ask the host for a number that no other group has, such as MPI libraries need.
            leader: The leader of the construction and the group, a proc, which all members name, or True for the caller
                (`attrs.GROUP_LEADER`). It alone gets events of members that fail; if it fails itself, all others
                get `EventCode.GROUP_LEADER_FAILED` and may become the leader by `Event.lead`.
            optional: Make the group of the procs that join, if others end before (`attrs.GROUP_OPTIONAL`); together
                with `timeout`, of the procs that have joined by then. `membership.is_partial` is true
                then.
            ft: Continue without members that fail or leave (`attrs.GROUP_FT_COLLECTIVE`), in the construct, the
                destruct and the group's own fences.
            notify_termination: Notify members of each that ends, by `EventCode.GROUP_MEMBER_FAILED`, now and later
                (`attrs.GROUP_NOTIFY_TERMINATION`).
            local_only: All members are on this node, so that no other node is asked.
            bootstrap: The number of leaders, if leaders do not know each other (`attrs.GROUP_BOOTSTRAP`). They are
                members in the order of their nspaces and ranks; those in `add` follow them.
            add: Further members, which call with the name alone (`attrs.GROUP_ADD_MEMBERS`).
            timeout: Seconds to wait for all members, in the construct and in the destruct; no limit by default. Whole
                seconds, a fraction is rounded up. Use another name after it has run out: some servers still wait for
                the others under this one.
            info: Further infos or a mapping, for the construct, such as `attrs.GROUP_INFO`.

        Returns:
            The group, a collection of its members; it is constructed when it is entered.

        Raises:
            TypeError, ValueError: An argument is invalid; all others come when the group is entered.
            OperationTimeout: Not all joined in time; `missing` names the others if the server reports them.
            ConstructAborted: A member ended before it joined, or somebody has aborted the construction.
            PartialSuccess: A member ended before it joined, as older servers report it.
            PMIxError: There is a group or a job of this name already (`ERR_EXISTS`), or the caller is not one of the
                procs (`ERR_BAD_PARAM`).
            NotSupported: The server's host constructs no groups, or none of this kind; or the library does not
                understand the answer of the server.

        Example:
            >>> with me.group("team", me.job, timeout=60) as team:
            ...     team.fence()

        PMIx Standard: "Process Sets and Groups", `PMIx_Group_construct`.
        """
        session = self._session
        own = session.proc
        procs = self._procs(procs)
        if name is None:
            if bootstrap:
                raise ValueError("a group with bootstrap needs a name: the caller does not know the other members")
            name = automatic_name(session, self.__dict__.setdefault("_group_counts", {}), procs)
        directives = infos(info) + flags(
            context_id=(context_id, keys.GROUP_ASSIGN_CONTEXT_ID),
            optional=(optional, keys.GROUP_OPTIONAL),
            ft=(ft, keys.GROUP_FT_COLLECTIVE),
            notify_termination=(notify_termination, keys.GROUP_NOTIFY_TERMINATION),
            local_only=(local_only, keys.GROUP_LOCAL_ONLY),
        )
        directives = timed(directives, timeout) + _leader(leader, own)
        bootstrap = check_integer(bootstrap, "the number of leaders")
        if bootstrap < 0:
            raise ValueError(f"bootstrap is the number of leaders, not {bootstrap!r:.100}")
        if bootstrap:
            # Leaders do not know each other.
            procs = own if procs is None else procs
            directives += (Info(keys.GROUP_BOOTSTRAP, Value(codes.SIZE, bootstrap)),)
        added = () if add is None or add == () else proc_tuple(self._procs(add))
        if added:
            if procs is None:
                raise ValueError(
                    "a proc that others add to a group cannot add members: name the procs, or the number of leaders"
                )
            directives += (Info(keys.GROUP_ADD_MEMBERS, Value(codes.DATA_ARRAY, DataArray(codes.PROC, added))),)
        return Group(self, self._port, name, GroupConstruct(name, proc_tuple(procs), directives), timeout)

    def _group_destruct(self, name: str, *, ft: bool = False, timeout: float | None = None, info: Infos = None) -> None:
        self._run(_destruct_op(name, timeout, info, ft))

    def _group_leave(self, name: str, *, info: Infos = None) -> None:
        self._run(GroupLeave(name, infos(info)))

    def _group_names(self, op: Get) -> Value:
        """Carry out a get of `PMIX_GROUP_NAMES`, whose value changes when groups come and go."""
        session = self._session
        if session.singleton or optional(op) or session.supports("get.group_names"):
            return self._run(op)
        # This library never updates the names it got first, or the server does not report them.
        own: list[str] = []
        told: list[str] = []
        try:
            own = names_in(self._run(Get(session.proc, op.key, (_OPTIONAL,))))
        except UNANSWERED:
            pass  # the caller is in none
        try:
            (answer,) = self._run(group_names_op())
            told = names_in(answer.value)
        except UNANSWERED:
            pass  # there is none, or the server does not tell
        names = []
        for name in dict.fromkeys(own + told):
            state = session.group_state(name)
            if state is not None:
                members = state.members
            else:
                try:
                    (answer,) = self._run(group_members_op(name))
                except UNANSWERED:
                    # It is gone by now.
                    continue
                members = tuple(members_in(answer.value))
            if op.proc in members:
                names.append(name)
        if not names:
            raise NotFound(
                "the proc is in no group",
                operation=op.name,
                procs=(op.proc,),
                engine=str(session.info),
                job=session.proc.nspace,
            )
        return names_value(names)


def enter(client: Groups, name: str, by: Procs, *, timeout: float | None = None, info: Infos = None) -> Group:
    """Wait until the first member of an open group admits the caller, by `admit`.

    Opt-in behaviour of pypmix, between its own processes; no C function does it. `request` asks the members for it.

    Args:
        client: The caller's client.
        name: The group's name.
        by: The members that may admit the caller: the first one, and the members that may follow it as the first.
        timeout: Seconds to wait; no limit by default.
        info: Further infos or a mapping, such as `attrs.GROUP_INFO`.

    Returns:
        The group, which is open.

    Raises:
        OperationTimeout: No member has admitted the caller in time.
        PMIxError: There is a group or a job of this name that the caller knows already (`ERR_EXISTS`).

    Example:
        >>> team = admission.enter(me, "team", by=0, timeout=60)
    """
    port: Port = client.group(name).membership.port
    session = port.session
    named = frozenset(expand(session, proc_tuple(ranked(by, session.proc))))
    wild = frozenset([proc.nspace for proc in named if proc.rank == RANK_WILDCARD])
    op = GroupEnter(name, lambda proc: proc in named or proc.nspace in wild, timed(infos(info), timeout))
    try:
        results = port.run(op, lambda _: GroupLeave(name))
    except PMIxError:
        raise
    except BaseException:
        with suppress(PMIxError):
            session.submit(GroupLeave(name), ignore)
        raise
    return Group(client, port, name, None, None, results, op.directives)


def admit(group: Group, proc: Target, *, timeout: float | None = None) -> None:
    """Take a proc into an open group as the last member, as the first member; it waits for that by `enter`.

    The others see `Joined`. Opt-in behaviour of pypmix, between its own processes; no C function does it.

    Args:
        group: The group.
        proc: The proc, or a rank of the caller's job; it may call `enter` before or after.
        timeout: Seconds to wait for it; no limit by default.

    Raises:
        NotFound: It has ended, or the group is gone, or the caller has left it.
        OperationTimeout: It has not entered in time.
        PMIxError: The caller is not the first member (`ERR_BAD_PARAM`).

    Example:
        >>> with me.group("team", me.job) as team:
        ...     admission.admit(team, 4, timeout=60)
    """
    group.membership.state()
    port: Port = group.membership.port
    port.run(GroupAdmit(group.name, target(proc, port.session.proc), timed((), timeout)))


def _destruct_op(name: str, timeout: float | None, info: Infos, ft: bool) -> GroupDestruct:
    return GroupDestruct(name, timed(infos(info) + flags(ft=(ft, keys.GROUP_FT_COLLECTIVE)), timeout))


def _leader(leader: Proc | bool | None, caller: Proc) -> tuple[Info, ...]:
    """Return the directives that name the leader of a construct."""
    if leader is None or leader is False:
        return ()
    proc = caller if leader is True else leader
    if not isinstance(proc, Proc):
        raise TypeError(f"the leader is a Proc, or True for the caller, not {leader!r:.100}")
    # By the Standard only the leader itself reports that it leads; the second info is for the others' engines.
    named = Info(GROUP_LEADER_PROC, Value(codes.PROC, proc))
    return (flag(keys.GROUP_LEADER), named) if proc == caller else (named,)
