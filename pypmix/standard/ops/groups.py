"""Groups: constructed and destructed together, by invitation, left, joined, and watched."""

from __future__ import annotations

from pypmix.standard.ops.core import Op, R
from pypmix.standard.record import Record
from pypmix.standard.types import MAX_NSLEN, Info, Proc, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ACCEPTED = "accepted"
DECLINED = "declined"
FAILED = "failed"
"""The answers of an invited proc; `FAILED` if it has exited or has not answered in time."""

JOINED = "joined"
LEFT = "left"
MEMBER_FAILED = "member failed"
LEADER_FAILED = "leader failed"
LEADER_SELECTED = "leader selected"
DESTRUCTED = "destructed"
"""The changes of an open group."""


class GroupResults(Record):
    """The result of a construct.

    Args:
        members: The final membership, in group-rank order; empty if the library does not return it.
        context_id: The context id; None if none was assigned.
        infos: Further infos of the library, such as the members' group info.

    Example:
        >>> results = me.raw.group_construct("team", me.job, {attrs.GROUP_ASSIGN_CONTEXT_ID: True})
        >>> print(results.members, results.context_id, results.infos)
    """

    members: tuple[Proc, ...] = ()
    context_id: int | None = None
    infos: tuple[Info, ...] = ()
    partial: bool = False
    """Whether a named proc is not a member, in an operation that allows it."""


class GroupState(Record):
    """The present state of a group of the caller.

    Args:
        name: The group's name.
        members: The present members, in group-rank order.
        context_id: The context id; None if none was assigned.
        leader: Its leader; None without a leader.
        epoch: The number of the membership, from 1; it grows with each change.
        term: The number of its leaders so far.
        infos: Further infos of its construct.
    """

    name: str
    members: tuple[Proc, ...] = ()
    context_id: int | None = None
    leader: Proc | None = None
    epoch: int = 1
    term: int = 0
    infos: tuple[Info, ...] = ()


class GroupChange(Record):
    """A change of a group.

    Args:
        kind: `JOINED`, `LEFT`, `MEMBER_FAILED`, `LEADER_FAILED`, `LEADER_SELECTED` or `DESTRUCTED`.
        state: The group afterwards.
        procs: The procs that have joined, left or failed, or the new leader; none if no member wanted to lead.
    """

    kind: str
    state: GroupState
    procs: tuple[Proc, ...] = ()


class GroupAnswer(Record):
    """The outcome of an invitation.

    Args:
        kind: `ACCEPTED`, `DECLINED` or `FAILED`.
        proc: The invited proc.
        reason: The reason, if the proc sends one.
        infos: Further infos of the answer.
    """

    kind: str
    proc: Proc
    reason: str = ""
    infos: tuple[Info, ...] = ()


class _GroupOp(Op[R]):
    """Base of the operations on a group with a name."""

    group: str

    def __validate__(self) -> None:
        super().__validate__()
        if not check_name(self.group, MAX_NSLEN, "a group's name"):
            raise ValueError("a group's name must not be empty")


class GroupConstruct(_GroupOp[GroupResults]):
    """`PMIx_Group_construct`: make a group of procs; all of them call it.

    Without procs, other callers add the caller (`attrs.GROUP_ADD_MEMBERS`). Understood directives:
    `attrs.GROUP_ASSIGN_CONTEXT_ID`, `GROUP_LEADER`, `GROUP_OPTIONAL`, `GROUP_NOTIFY_TERMINATION`,
    `GROUP_FT_COLLECTIVE`, `GROUP_LOCAL_ONLY`, `GROUP_BOOTSTRAP`, `GROUP_ADD_MEMBERS`, `GROUP_FINAL_MEMBERSHIP_ORDER`,
    `GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.
    """

    procs: tuple[Proc, ...] = ()
    directives: tuple[Info, ...] = ()


class GroupDestruct(_GroupOp[None]):
    """`PMIx_Group_destruct`: destruct a group; all of its members call it.

    Understood directives: `attrs.TIMEOUT`, `attrs.GROUP_FT_COLLECTIVE`.
    """

    directives: tuple[Info, ...] = ()


class GroupInvite(_GroupOp[GroupResults]):
    """`PMIx_Group_invite`: invite procs to a group and lead it; completes when the group is open.

    Understood directives: `attrs.GROUP_OPTIONAL`, `GROUP_FT_COLLECTIVE`, `GROUP_NOTIFY_TERMINATION`,
    `GROUP_ASSIGN_CONTEXT_ID`, `GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.

    Args:
        group: The group's name.
        procs: The invited procs; the caller is the first member, whether it is named or not.
        directives: The directives.
        answers: Called with each answer, if the caller controls the invitation by `GroupInviteControl`, which then has
            to complete the group. None for the Standard's rules. It must not block.
    """

    procs: tuple[Proc, ...] = ()
    directives: tuple[Info, ...] = ()
    answers: Callable[[GroupAnswer], None] | None = None


class GroupInviteControl(_GroupOp[None]):
    """Control an invitation of the caller in progress.

    Args:
        group: The group's name.
        drop: Invited procs that are no longer to be members.
        invite: Further procs to invite.
        complete: Complete it: procs that have accepted become members, and the group opens when the others have
            answered.
        abort: Abort it, for all invited procs (`PMIX_GROUP_CONSTRUCT_ABORT`).
    """

    drop: tuple[Proc, ...] = ()
    invite: tuple[Proc, ...] = ()
    complete: bool = False
    abort: bool = False


class GroupJoin(_GroupOp[GroupResults]):
    """`PMIx_Group_join`: accept or decline an invitation; an acceptance completes when the group is open.

    Understood directives: `attrs.GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.

    Args:
        group: The group's name.
        leader: The proc that has invited the caller.
        accept: Whether to join.
        directives: The directives.
        reason: The reason for a refusal.
    """

    leader: Proc
    accept: bool = True
    directives: tuple[Info, ...] = ()
    reason: str = ""

    def __validate__(self) -> None:
        super().__validate__()
        if not isinstance(self.leader, Proc):
            raise TypeError(f"leader must be a Proc, not {type(self.leader).__name__}")


class GroupLeave(_GroupOp[None]):
    """`PMIx_Group_leave`: leave an open group; the others receive `PMIX_GROUP_LEFT`.

    Args:
        group: The group's name.
        directives: Infos for the other members.
    """

    directives: tuple[Info, ...] = ()


class GroupAdmit(_GroupOp[None]):
    """Admit a proc to an open group (no C function).

    The first member does it. The proc must call `GroupEnter`, before or after. It completes when all members have the
    new membership.

    Args:
        group: The group's name.
        proc: The proc.
        directives: `attrs.TIMEOUT` limits the wait for the proc.
    """

    proc: Proc
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not isinstance(self.proc, Proc):
            raise TypeError(f"proc must be a Proc, not {type(self.proc).__name__}")


class GroupEnter(_GroupOp[GroupResults]):
    """Wait until a member of an open group admits the caller by `GroupAdmit`; `GroupLeave` ends the wait.

    Understood directives: `attrs.GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.

    Args:
        group: The group's name.
        by: Returns True if a proc, which claims to be a member, may admit the caller. It must not block.
        directives: The directives.
    """

    by: Callable[[Proc], bool]
    directives: tuple[Info, ...] = ()


class GroupWatch(_GroupOp[int]):
    """Call a function with each change of a group of the caller; returns a number.

    Args:
        group: The group's name.
        changed: Called with each `GroupChange`, in order; it must not block.
        ended: Called once when no further change can happen, with an error or None.
        past: Whether to report the kept changes since the construct first, so that none is missed between it and the
            watch.
        elects: Whether a departed leader is to be replaced as if it had failed: handlers of
            `PMIX_GROUP_LEADER_FAILED` are then called at the caller and the other members that request it.
    """

    changed: Callable[[GroupChange], None]
    ended: Callable[[BaseException | None], None] | None = None
    past: bool = False
    elects: bool = False


class GroupUnwatch(Op[None]):
    """End a `GroupWatch`."""

    id: int
