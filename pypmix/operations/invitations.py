# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Groups by invitation: one proc invites others and leads, these join or decline, and then the group is formed.

`Invite` is the leader's side: one op that lasts until the group is formed (`Underway`), while answers arrive by the
engine's reports and are queued for the program. `InvitationStream` and `Invitation` are the side of the invited procs;
invitations that arrive while no stream is open are kept for the next one (`_Inbox`). The messages between the procs,
and the decisions about members, are the engine's: `engine/groups/inviting.py` and `joining.py`.
"""

from __future__ import annotations

from _thread import allocate_lock
from sys import maxsize
from typing import Any, Generic, TypeVar

from pypmix.arguments import flags, limit, proc_tuple, timed
from pypmix.engine.common import ignore
from pypmix.group import expand
from pypmix.handlers import Handler
from pypmix.invitation import Accepted, InvitationView, InviteAnswer, answer_of, read_invitation
from pypmix.mailbox import EndOfStream, Mailbox
from pypmix.operations.base import Asks
from pypmix.operations.groups import Group
from pypmix.operations.streams import Stream
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotInitialized, OperationTimeout, PMIxError
from pypmix.standard.naming import name_proc
from pypmix.standard.ops import GroupInvite, GroupInviteControl, GroupJoin, GroupLeave, RegisterEventHandler
from pypmix.standard.types import RANK_WILDCARD
from pypmix.standard.values import infos
from pypmix.waits import settled, shielded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Any, Self

    from pypmix.arguments import Infos, Procs
    from pypmix.engine.base import Delivery
    from pypmix.events import Answer, Event
    from pypmix.standard.ops import GroupAnswer, GroupResults, Op
    from pypmix.standard.types import Info, Proc
    from pypmix.waits import Port

R = TypeVar("R")

MAX_WAITING = 1024
"""Invitations that are kept for a process that does not look at them; of more than that the oldest are dropped."""


def _check_reason(accept: bool, reason: str) -> None:
    if not isinstance(reason, str):
        raise TypeError(f"a reason is a string, not {reason!r:.100}")
    if accept and reason:
        raise ValueError("a reason is for not joining")


class Underway(Generic[R]):
    """An operation that has been started; any number of callers may wait for its end.

    Args:
        port: The client's way to its session.
        op: The operation.
        on_end: Called at its end, with its error or None, on the thread on which the engine completes operations.

    Attributes:
        over: Whether it has ended.
    """

    def __init__(self, port: Port, op: Op[R], on_end: Callable[[BaseException | None], None] | None = None) -> None:
        self.over = False
        self._port = port
        self._on_end = on_end
        self._undo: Op[Any] | None = None
        self._outcome: Mailbox[R] = Mailbox(port, 1)
        port.attend()
        port.session.submit(op, self._done)

    def wait(self, timeout: float | None = None) -> R:
        """Return its result, or raise its error.

        Raises:
            TimeoutError: It has not ended within `timeout` seconds.
        """
        result = self._outcome.get(timeout)
        self._outcome.put(result)
        return result

    def give_up(self, undo: Op[Any]) -> None:
        """Have what it has led to, or still leads to, taken back by an operation."""
        self._undo = undo
        if self.over and len(self._outcome):
            self._take_back()

    def _take_back(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            self._port.session.submit(undo, ignore)

    def _done(self, result: R | None, error: BaseException | None) -> None:
        if error is None:
            self._outcome.put(result)  # type: ignore[arg-type]
        else:
            self._outcome.end(error)
        self.over = True
        if self._on_end is not None:
            self._on_end(error)
        if error is None:
            self._take_back()


class Invite:
    """An invitation of the caller's own; `invite` of a client makes one.

    Entering it as a context manager sends the invitation. In the block `answers` tells what becomes of it, and the
    caller decides: by `drop`, `replace`, and in the end by `complete`. Leaving the block without that gives the group
    up, for all who were invited.

    Example:
        >>> with me.invite("team", me.job, optional=True, timeout=60) as invite:
        ...     for answer in invite.answers():
        ...         print(answer.proc, len(invite.accepted), "of", len(invite.procs), "accepted")
        ...         print(invite.group, "waits for", invite.waiting, invite.missing, "have not joined")
        ...     team = invite.complete()
    """

    def __init__(
        self,
        client: Asks,
        port: Port,
        name: str,
        procs: tuple[Proc, ...],
        directives: tuple[Info, ...],
        timeout: float | None,
    ) -> None:
        self._client = client
        self._port = port
        self._op = GroupInvite(name, procs, directives, self._record_answer)
        self._timeout = timeout
        self._lock = allocate_lock()
        self._invited: dict[Proc, InviteAnswer | None] = {}
        self._silent: set[Proc] = set()
        # Each invited proc answers once, and may fail once after that, which bounds the mailbox.
        self._box: Mailbox[InviteAnswer | None] = Mailbox(port, maxsize)
        self._underway: Underway[GroupResults] | None = None
        self._completed = False
        self._aborted = False
        self._add(self._named(procs))

    @property
    def group(self) -> str:
        """The name that the group will have."""
        return self._op.group

    @property
    def procs(self) -> tuple[Proc, ...]:
        """All who are invited, and were neither dropped nor replaced."""
        return tuple(self._invited)

    @property
    def accepted(self) -> tuple[Proc, ...]:
        """The procs that have accepted so far."""
        return tuple([proc for proc, answer in list(self._invited.items()) if isinstance(answer, Accepted)])

    @property
    def waiting(self) -> tuple[Proc, ...]:
        """The procs that have not answered yet."""
        return tuple([proc for proc, answer in list(self._invited.items()) if answer is None])

    @property
    def missing(self) -> int:
        """The number of invited procs that have not joined.

        They have not answered yet, or have declined or failed and were neither dropped nor replaced.
        """
        return len(self._invited) - len(self.accepted)

    def open(self) -> Self:
        """Send the invitation; returns the object itself.

        Example:
            >>> invite = me.invite("team", me.job).open()
            >>> invite.abort()
        """
        if self._underway is None:
            self._underway = Underway(self._port, self._op, self._close_box)
        return self

    def form(self) -> Group:
        """Send the invitation, and wait until the group is open, by the Standard's own rules.

        A proc that declines or fails aborts the group for all, unless it is `optional`. Handlers of
        `EventCode.GROUP_INVITE_DECLINED` and `EventCode.GROUP_INVITE_FAILED` may decide otherwise in their results:
        `ev.abort()`, `attrs.GROUP_ADD_MEMBERS` to invite others instead, or `attrs.GROUP_OPTIONAL` to continue without.

        Returns:
            The group, with the caller as its leader.

        Raises:
            ConstructAborted: A proc has declined or failed, or somebody has aborted the group.
            NotInitialized: The invitation was sent already.
            PMIxError: There is a group or a job of this name already (`ERR_EXISTS`).

        Example:
            >>> with me.invite("team", me.job, optional=True, timeout=60).form() as team:
            ...     team.fence(timeout=60)
        """
        if self._underway is not None:
            raise NotInitialized("the invitation was sent already", operation="invite", hint="use `complete`")
        op = GroupInvite(self.group, self._op.procs, self._op.directives)
        results = self._port.run(op, lambda _: GroupLeave(self.group))
        return Group(self._client, self._port, self.group, None, self._timeout, results, op.directives)

    def answers(self) -> Iterator[InviteAnswer]:
        """Iterate over the answers: an `Accepted`, `Declined` or `Failed` of each invited proc.

        It ends when no answer is missing, including those of procs that replace others.

        Raises:
            ConstructAborted: The group was given up.
            LostConnection: The server is gone.

        Example:
            >>> with me.invite("team", me.job) as invite:
            ...     for answer in invite.answers():
            ...         if isinstance(answer, groups.Failed):
            ...             invite.drop(answer.proc)
            ...     team = invite.complete()
        """
        self._opened()
        while True:
            with self._lock:
                if not self._silent and not len(self._box):
                    return
            try:
                answer = self._box.get()
            except EndOfStream:
                return
            if answer is not None and answer.proc in self._invited:
                yield answer

    def drop(self, proc: Proc) -> None:
        """Go on without a proc, whatever it has answered or will answer.

        Args:
            proc: An invited proc.

        Raises:
            ValueError: It is not.

        Example:
            >>> with me.invite("team", me.job) as invite:
            ...     invite.drop(me.job[0])
            ...     team = invite.complete()
        """
        self._opened()
        self._remove(proc)
        self._port.session.submit(GroupInviteControl(self.group, drop=(proc,)), ignore)

    def replace(self, proc: Proc, with_: Procs) -> None:
        """Invite others instead of a proc.

        Args:
            proc: An invited proc that should no longer become a member.
            with_: The procs that should become members instead.

        Raises:
            ValueError: It is not invited, or others are already.
            PMIxError: The group was formed meanwhile, or was given up.

        Example:
            >>> with me.invite("team", me.job[0]) as invite:
            ...     invite.replace(me.job[0], with_=Proc("spare", 0))
            ...     team = invite.complete()
        """
        self._opened()
        others = self._named(proc_tuple(with_))
        if not others:
            raise ValueError(f"no proc to replace {self._name(proc)} with")
        for other in others:
            if other in self._invited or other == self._port.session.proc:
                raise ValueError(f"{self._name(other)} is invited already, or invites")
        self._remove(proc)
        self._add(others)
        self._port.run(GroupInviteControl(self.group, drop=(proc,), invite=others))

    def complete(self) -> Group:
        """Complete the group with all procs that accept, when the missing answers are in.

        Returns:
            The group. It outlasts the block; use it as a context manager to have it destructed.

        Raises:
            ConstructAborted: The group was given up.
            OperationTimeout: It took too long.

        Example:
            >>> with me.invite("team", me.job) as invite:
            ...     team = invite.complete()
            >>> team.destruct()
        """
        underway = self._opened()
        try:
            self._port.run(GroupInviteControl(self.group, complete=True))
        except PMIxError:
            # If the invitation has ended already, its error is the one to raise.
            if not underway.over:
                raise
        results = underway.wait()
        self._completed = True
        return Group(self._client, self._port, self.group, None, self._timeout, results, self._op.directives)

    def abort(self) -> None:
        """Give the group up, for all who were invited (`PMIX_GROUP_CONSTRUCT_ABORT`); does nothing at the second time.

        Raises:
            NotInitialized: The group was formed already: destruct it, or leave it.

        Example:
            >>> with me.invite("team", me.job) as invite:
            ...     invite.abort()
        """
        underway = self._opened()
        if self._completed:
            raise NotInitialized(f"the group {self.group!r} was formed already", operation="invite", hint="leave it")
        if self._aborted:
            return
        self._aborted = True
        underway.give_up(GroupLeave(self.group))
        if not underway.over:
            try:
                self._port.run(GroupInviteControl(self.group, abort=True))
            except PMIxError:
                if not underway.over:
                    raise

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._completed or not self._port.is_open:
            return
        try:
            with shielded():
                self.abort()
        except PMIxError:
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"<Invite to {self.group}, {self.missing} of {len(self._invited)} missing>"

    def _named(self, procs: tuple[Proc, ...]) -> tuple[Proc, ...]:
        caller = self._port.session.proc
        found = tuple([proc for proc in expand(self._port.session, procs) if proc != caller])
        for proc in found:
            if proc.rank == RANK_WILDCARD:
                raise ValueError(f"this process does not know the size of {proc.nspace!r}: invite its procs by rank")
        return found

    def _name(self, proc: Proc) -> str:
        return name_proc(proc, self._port.session.proc.nspace)

    def _add(self, procs: tuple[Proc, ...]) -> None:
        with self._lock:
            for proc in procs:
                self._invited[proc] = None
                self._silent.add(proc)

    def _remove(self, proc: Proc) -> None:
        with self._lock:
            if proc not in self._invited:
                raise ValueError(f"{self._name(proc)} is not invited, or was dropped or replaced before")
            del self._invited[proc]
            if proc in self._silent:
                self._silent.discard(proc)
                self._box.put(None)

    def _opened(self) -> Underway[GroupResults]:
        if self._underway is None:
            raise NotInitialized("the invitation was not sent", operation="invite", hint="use it in a `with` block")
        return self._underway

    def _record_answer(self, report: GroupAnswer) -> None:
        answer = answer_of(report)
        with self._lock:
            if answer.proc not in self._invited:
                return
            before = self._invited[answer.proc]
            if before is None or isinstance(before, Accepted) and not isinstance(answer, Accepted):
                self._invited[answer.proc] = answer
                self._silent.discard(answer.proc)
                self._box.put(answer)

    def _close_box(self, error: BaseException | None) -> None:
        self._box.end(error)


class Invitation(InvitationView):
    """An invitation of somebody else's to the caller; `invitations` of a client yields them.

    Example:
        >>> with me.invitations() as invitations:
        ...     invitation = invitations.get(timeout=60)
        >>> print(invitation.leader, "invites", invitation.members, "to", invitation.group)
        >>> team = invitation.accept(timeout=60)
    """

    def __init__(self, client: Asks, port: Port, *told: Any) -> None:
        super().__init__(*told)
        self._client = client
        self._port = port
        self._declined = False
        self._underway: Underway[GroupResults] | None = None

    def accept(self, timeout: float | None = None, info: Infos = None) -> Group:
        """`PMIx_Group_join`: join the group; returns when it is formed, and not before.

        Args:
            timeout: Seconds to wait for that; no limit by default.
            info: Further infos or a mapping, such as `attrs.GROUP_INFO`; too late where `auto` has accepted.

        Returns:
            The group. Use it as a context manager to have it destructed.

        Raises:
            ConstructAborted: The leader, or a participant, has given the group up.
            OperationTimeout: It took too long.
            PMIxError: The leader has failed and no proc has taken its place (`EventCode.GROUP_LEADER_FAILED`), or the
                caller has declined.

        Example:
            >>> invitation = me.invitations().get(timeout=60)
            >>> with invitation.accept(timeout=60, info={attrs.GROUP_INFO: {"acme.port": 7}}) as team:
            ...     team.fence(timeout=60)
        """
        op = self._op(True, timeout, info)
        if self._declined:
            raise PMIxError(f"the invitation to {self.group!r} was declined", operation="group_join")
        begun = self._underway is not None
        if self._underway is None:
            self._underway = Underway(self._port, op)
        try:
            # The engine applies the limit to an operation that was begun here.
            results = self._underway.wait(limit(timeout) if begun else None)
        except TimeoutError as error:
            self._underway.give_up(GroupLeave(self.group))
            if isinstance(error, PMIxError):
                raise
            raise OperationTimeout(
                f"the group {self.group!r} was not complete within {timeout:g} s", operation="group_join"
            ) from None
        except BaseException:
            # Who gives the wait up is not to be a member of a group that it does not know.
            self._underway.give_up(GroupLeave(self.group))
            raise
        return Group(self._client, self._port, self.group, None, timeout, results, op.directives)

    def decline(self, reason: str = "") -> None:
        """`PMIx_Group_join`: do not join.

        Args:
            reason: Why, in words, for the leader.

        Raises:
            PMIxError: The caller has accepted.

        Example:
            >>> invitation = me.invitations().get(timeout=60)
            >>> invitation.decline("this node is to be drained")
        """
        op = self._op(False, None, None, reason)
        if self._underway is not None:
            raise PMIxError(
                f"the invitation to {self.group!r} was accepted", operation="group_join", hint="leave the group"
            )
        self._declined = True
        self._port.run(op)

    def begin(self) -> None:
        """Accept, and leave the waiting to a later `accept`."""
        self._underway = Underway(self._port, self._op(True, None, None))

    def _op(self, accept: bool, timeout: float | None, info: Infos, reason: str = "") -> GroupJoin:
        _check_reason(accept, reason)
        return GroupJoin(self.group, self.leader, accept, timed(infos(info), timeout) + self._told, reason)


class _Inbox:
    """The unread invitations of one client; it lasts as long as the client is open."""

    def __init__(self, client: Asks, port: Port) -> None:
        self._client = client
        self._port = port
        self.box: Mailbox[Invitation] = Mailbox(port, MAX_WAITING)

    def begin(self) -> None:
        self._port.attend()
        self._port.run(RegisterEventHandler(self._put, (statuses.GROUP_INVITED,), (), self.box.end))

    def _put(self, delivery: Delivery) -> None:
        told = read_invitation(delivery.notification)
        if told is not None:
            self.box.put(Invitation(self._client, self._port, *told))
        delivery.done(statuses.EVENT_NO_ACTION_TAKEN)


class InvitationStream(Stream[Invitation]):
    """The invitations to the caller, oldest first; `invitations` of a client makes one.

    It is a context manager, or opened by its first use. All such streams of a client share the invitations: each is
    seen once, and invitations without a stream are kept for the next one. A stream with `auto` gets all of them.

    Example:
        >>> with me.invitations() as invitations:
        ...     for invitation in invitations:
        ...         print(invitation.leader, "invites to", invitation.group)
        ...         invitation.decline("busy")
    """

    _name = "invitations"

    def __init__(self, client: Asks, port: Port, auto: Callable[[Invitation], object] | None) -> None:
        super().__init__(port, MAX_WAITING)
        self._client = client
        if auto is not None and not callable(auto):
            raise TypeError(f"auto is a function, not {auto!r:.100}")
        self._auto = auto
        self._handler: Any = None

    def open(self) -> Self:
        """Begin to take in; returns the stream itself.

        Example:
            >>> invitations = me.invitations().open()
            >>> invitations.close()
        """
        if self._auto is not None:
            return super().open()
        if self._box is None or self._closed:
            self._box = self._shared()
            self._closed = False
        return self

    def close(self) -> None:
        """Take in nothing more; unread invitations are kept for the next stream.

        Example:
            >>> invitations = me.invitations().open()
            >>> invitations.close()
        """
        if self._auto is not None:
            super().close()
        else:
            self._closed = True

    def get(self, timeout: float | None = None) -> Invitation:
        """Return the next invitation.

        Args:
            timeout: Seconds to wait for it; no limit by default.

        Raises:
            OperationTimeout: None came in time.
            NotInitialized: The stream or its client is closed.
            LostConnection: The server is gone.

        Example:
            >>> invitation = me.invitations().get(timeout=60)
        """
        if self._box is None:
            self.open()
        return super().get(timeout)

    def __next__(self) -> Invitation:
        if self._box is None:
            self.open()
        return super().__next__()

    def _opened(self) -> Mailbox[Invitation]:
        if self._closed and self._auto is None:
            raise NotInitialized("the stream is closed", operation=self._name)
        return super()._opened()

    def _shared(self) -> Mailbox[Invitation]:
        inbox = self._port.kept(_Inbox)
        if inbox is None or inbox.box.is_closed:
            inbox = self._port.keep(_Inbox(self._client, self._port), replace=True)
            try:
                inbox.begin()
            except BaseException:
                inbox.box.end()
                raise
        return inbox.box

    def _begin(self, box: Mailbox[Invitation]) -> None:
        auto: Any = self._auto
        client, port = self._client, self._port

        def answer(event: Event) -> Answer:
            told = read_invitation(event)
            if told is None:
                return event.pass_on()
            invitation = Invitation(client, port, *told)
            wanted = settled(auto(invitation))
            if wanted is None:
                box.put(invitation)
                return event.pass_on()
            if wanted:
                invitation.begin()
                box.put(invitation)
            else:
                invitation.decline()
            return event.done()

        port.attend()
        self._handler = Handler(port, answer)
        self._handler.begin(lambda deliver, ended: RegisterEventHandler(deliver, (statuses.GROUP_INVITED,), (), ended))
        self._handler.ready()

    def _finish(self) -> None:
        self._handler.remove()


class Invitations(Asks):
    """Groups by invitation, on both sides."""

    def invite(
        self,
        name: str,
        procs: Procs,
        *,
        context_id: bool = False,
        optional: bool = False,
        ft: bool = False,
        notify_termination: bool = False,
        timeout: float | None = None,
        info: Infos = None,
    ) -> Invite:
        """`PMIx_Group_invite`: invite procs to a group, and decide by their answers; a context manager.

        Args:
            name: The group's name: at most 255 bytes, and neither the name of a job nor of another group.
            procs: The procs to invite. The caller is the first member, and the leader, whether it is named or not.
            context_id: Ask the host for a number that no other group has.
            optional: Continue without procs that fail after the answers are in, instead of giving the group up.
            ft: Continue without members that fail or leave, in the group's own fences and its destruct.
            notify_termination: Notify members of each that ends.
            timeout: Seconds for the answers; later ones count as failed. No limit by default.
            info: Further infos or a mapping, such as `attrs.GROUP_INFO`.

        Returns:
            The invitation; it is sent when it is entered.

        Raises:
            TypeError, ValueError: An argument is none of these.

        Example:
            >>> invite = me.invite("team", me.job, optional=True, timeout=60)
            >>> team = invite.form()

        PMIx Standard: "Process Sets and Groups", `PMIx_Group_invite`.
        """
        caller = self._session.proc
        if procs is None:
            raise ValueError("no procs are given: name the procs to invite")
        invited = proc_tuple(self._procs(procs))
        if all(proc == caller for proc in invited):
            raise ValueError("an invitation must name procs besides the caller, which is a member anyway")
        directives = infos(info) + flags(
            context_id=(context_id, keys.GROUP_ASSIGN_CONTEXT_ID),
            optional=(optional, keys.GROUP_OPTIONAL),
            ft=(ft, keys.GROUP_FT_COLLECTIVE),
            notify_termination=(notify_termination, keys.GROUP_NOTIFY_TERMINATION),
        )
        return Invite(self, self._port, name, invited, timed(directives, timeout), timeout)

    def _group_join(
        self,
        name: str,
        leader: Proc,
        accept: bool = True,
        *,
        timeout: float | None = None,
        info: Infos = None,
        reason: str = "",
    ) -> Group | None:
        _check_reason(accept, reason)
        op = GroupJoin(name, leader, bool(accept), timed(infos(info), timeout), reason)
        if not accept:
            self._run(op)
            return None
        results = self._run(op, lambda _: GroupLeave(name))
        return Group(self, self._port, name, None, timeout, results, op.directives)

    def invitations(self, auto: Callable[[Invitation], object] | None = None) -> InvitationStream:
        """Return a stream of `Invitation` (`PMIX_GROUP_INVITED`), which includes earlier ones.

        Args:
            auto: Called with each invitation: True accepts it at once, False declines it, None leaves it to the
                reader. It runs as a handler does (see `on`); in an event loop it may be a coroutine function.
                The stream yields all but those declined, and their `accept` then waits for the group.

        Example:
            >>> with me.invitations() as invitations:
            ...     for invitation in invitations:
            ...         team = invitation.accept(timeout=60)

        PMIx Standard: "Process Sets and Groups", `PMIx_Group_join`.
        """
        return InvitationStream(self, self._port, auto)
