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
"""The answers of an invited proc; the last is for one that has ended, or has let its time run out."""

JOINED = "joined"
LEFT = "left"
MEMBER_FAILED = "member failed"
LEADER_FAILED = "leader failed"
LEADER_SELECTED = "leader selected"
DESTRUCTED = "destructed"
"""The changes of a group that stands."""


class GroupResults(Record):
    """The result of a construct.

    Args:
        members: The final membership; the group rank of each is its place. Empty where the library does not tell.
        context_id: The context id, None where none was assigned.
        infos: What else the library tells, such as the members' group info.
    """

    members: tuple[Proc, ...] = ()
    context_id: int | None = None
    infos: tuple[Info, ...] = ()
    partial: bool = False
    """Whether a proc that was named is not a member, in an operation that allows it."""


class GroupState(Record):
    """A group that the caller is a member of, as it is now.

    Args:
        name: The group's name.
        members: The members now; the group rank of each is its place.
        context_id: The context id, None where none was assigned.
        leader: Its leader, None if it has none.
        epoch: How often the membership has changed, counted from 1.
        term: How many leaders it has had.
        infos: What else was told of it when it was formed.
    """

    name: str
    members: tuple[Proc, ...] = ()
    context_id: int | None = None
    leader: Proc | None = None
    epoch: int = 1
    term: int = 0
    infos: tuple[Info, ...] = ()


class GroupChange(Record):
    """Something that has happened to a group.

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
        reason: Why, in words, where it says so.
        infos: What else it says.
    """

    kind: str
    proc: Proc
    reason: str = ""
    infos: tuple[Info, ...] = ()


class _GroupOp(Op[R]):
    """Base of the operations on a group of some name."""

    group: str

    def __validate__(self) -> None:
        super().__validate__()
        if not check_name(self.group, MAX_NSLEN, "a group's name"):
            raise ValueError("a group's name must not be empty")


class GroupConstruct(_GroupOp[GroupResults]):
    """`PMIx_Group_construct`: make a group of procs; all of them call it.

    No procs means that others add the caller (`attrs.GROUP_ADD_MEMBERS`). Understood directives:
    `attrs.GROUP_ASSIGN_CONTEXT_ID`, `GROUP_LEADER`, `GROUP_OPTIONAL`, `GROUP_NOTIFY_TERMINATION`,
    `GROUP_FT_COLLECTIVE`, `GROUP_LOCAL_ONLY`, `GROUP_BOOTSTRAP`, `GROUP_ADD_MEMBERS`, `GROUP_FINAL_MEMBERSHIP_ORDER`,
    `GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.
    """

    procs: tuple[Proc, ...] = ()
    directives: tuple[Info, ...] = ()


class GroupDestruct(_GroupOp[None]):
    """`PMIx_Group_destruct`: take a group apart; all of its members call it.

    Understood directives: `attrs.TIMEOUT`, `attrs.GROUP_FT_COLLECTIVE`.
    """

    directives: tuple[Info, ...] = ()


class GroupInvite(_GroupOp[GroupResults]):
    """`PMIx_Group_invite`: invite procs to a group, whose leader the caller is; it ends when the group stands.

    Understood directives: `attrs.GROUP_OPTIONAL`, `GROUP_FT_COLLECTIVE`, `GROUP_NOTIFY_TERMINATION`,
    `GROUP_ASSIGN_CONTEXT_ID`, `GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.

    Args:
        group: The group's name.
        procs: The invited procs; the caller is the first member, whether it is named or not.
        directives: What is asked for.
        answers: Called with each answer, where the caller decides what follows by `GroupInviteControl`: the group is
            not complete before that says so. None leaves it to the Standard's rules. It must not block.
    """

    procs: tuple[Proc, ...] = ()
    directives: tuple[Info, ...] = ()
    answers: Callable[[GroupAnswer], None] | None = None


class GroupInviteControl(_GroupOp[None]):
    """Go on with an invitation of the caller's own that is under way.

    Args:
        group: The group's name.
        drop: Invited procs that are not to be members any more.
        invite: Further procs to invite.
        complete: End it: the procs that have accepted are members, and the group is complete when the others have
            answered.
        abort: Give it up, for all who were invited (`PMIX_GROUP_CONSTRUCT_ABORT`).
    """

    drop: tuple[Proc, ...] = ()
    invite: tuple[Proc, ...] = ()
    complete: bool = False
    abort: bool = False


class GroupJoin(_GroupOp[GroupResults]):
    """`PMIx_Group_join`: accept or decline an invitation; an accepted one ends when the group stands.

    Understood directives: `attrs.GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.

    Args:
        group: The group's name.
        leader: The proc that has invited the caller.
        accept: Whether to join.
        directives: What is asked for.
        reason: Why not, in words.
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
    """`PMIx_Group_leave`: leave a group that stands; the others are told (`PMIX_GROUP_LEFT`).

    Args:
        group: The group's name.
        directives: What the others are told as well.
    """

    directives: tuple[Info, ...] = ()


class GroupAdmit(_GroupOp[None]):
    """Take a proc in as a member of a group that stands (no C function).

    The first member does it. The proc has to wait for it by `GroupEnter`, before or after. It ends when all members
    know the new one.

    Args:
        group: The group's name.
        proc: The proc.
        directives: Understood is `attrs.TIMEOUT`, for the proc to come.
    """

    proc: Proc
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not isinstance(self.proc, Proc):
            raise TypeError(f"proc must be a Proc, not {type(self.proc).__name__}")


class GroupEnter(_GroupOp[GroupResults]):
    """Wait until a member of a group that stands takes the caller in by `GroupAdmit`; `GroupLeave` ends the wait.

    Understood directives: `attrs.GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.

    Args:
        group: The group's name.
        by: Tells whether a proc, which says that it is a member, may take the caller in. It must not block.
        directives: What is asked for.
    """

    by: Callable[[Proc], bool]
    directives: tuple[Info, ...] = ()


class GroupWatch(_GroupOp[int]):
    """Have a function called with each change of a group that the caller is a member of; returns a number.

    Args:
        group: The group's name.
        changed: Called with each `GroupChange`, in order; it must not block.
        ended: Called once when no further change can come, with an error or None.
        past: Whether to tell first what has happened since the group was formed, as far as it is kept: so nothing is
            missed between that and the watch.
        elects: Whether a leader that leaves is to be followed by another one as if it had failed: the caller's handlers
            of `PMIX_GROUP_LEADER_FAILED` are asked then, too, and the other members that want it.
    """

    changed: Callable[[GroupChange], None]
    ended: Callable[[BaseException | None], None] | None = None
    past: bool = False
    elects: bool = False


class GroupUnwatch(Op[None]):
    """Take a `GroupWatch` back."""

    id: int
