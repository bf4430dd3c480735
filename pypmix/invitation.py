"""An invitation as the inviting and the invited processes see it."""

from __future__ import annotations

from pypmix.standard import keys
from pypmix.standard.ops.groups import ACCEPTED, DECLINED, FAILED
from pypmix.standard.record import Record
from pypmix.standard.types import DataArray, Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.events import Event
    from pypmix.standard.ops import GroupAnswer, Notification


_CARRIED = frozenset({keys.GROUP_ID, keys.EVENT_CUSTOM_RANGE, keys.EVENT_NON_DEFAULT, keys.EVENT_DO_NOT_CACHE})
_OWN = "pypmix.grp."
_FOR_ALL = frozenset(
    {
        keys.GROUP_MEMBERSHIP,
        keys.GROUP_NOTIFY_TERMINATION,
        keys.GROUP_OPTIONAL,
        keys.GROUP_FT_COLLECTIVE,
        keys.GROUP_ASSIGN_CONTEXT_ID,
    }
)


class InviteAnswer(Record):
    """The answer of an invited proc, or its failure; each kind is a class, which `match` distinguishes.

    Args:
        proc: The invited proc.
        reason: The reason in words; empty if it gives none.
        infos: Further infos of the answer, such as the proc's `attrs.GROUP_INFO`.

    Example:
        >>> with me.invite("team", me.job, optional=True) as invite:
        ...     for answer in invite.answers():
        ...         if isinstance(answer, groups.Declined):
        ...             print(answer.proc, "declined:", answer.reason)
        ...     team = invite.complete()
    """

    proc: Proc
    reason: str = ""
    infos: tuple[Info, ...] = ()


class Accepted(InviteAnswer):
    """`PMIX_GROUP_INVITE_ACCEPTED`: the proc joins."""


class Declined(InviteAnswer):
    """`PMIX_GROUP_INVITE_DECLINED`: the proc does not join."""


class Failed(InviteAnswer):
    """`PMIX_GROUP_INVITE_FAILED`: the proc has ended, or did not answer in time."""


_KINDS: dict[str, type[InviteAnswer]] = {ACCEPTED: Accepted, DECLINED: Declined, FAILED: Failed}


def answer_of(report: GroupAnswer) -> InviteAnswer:
    """Convert an engine's report of an answer to the class of its kind."""
    return _KINDS[report.kind](report.proc, report.reason, report.infos)


class InvitationView:
    """An invitation as its receiver reads it.

    Attributes:
        group: The group's name.
        leader: The proc that has invited the caller, and leads the group.
        members: The future members that the invitation names: the leader first, then all invited procs.
        infos: Further infos of the invitation.
    """

    def __init__(self, group: str, leader: Proc, members: tuple[Proc, ...], infos: tuple[Info, ...]) -> None:
        self.group = group
        self.leader = leader
        self.members = members
        self.infos = tuple(
            [info for info in infos if info.key != keys.GROUP_MEMBERSHIP and not info.key.startswith(_OWN)]
        )
        # An engine that knows no group before the answer has not seen the invitation either.
        self._told = tuple([info for info in infos if info.key in _FOR_ALL or info.key.startswith(_OWN)])

    def __repr__(self) -> str:
        return f"<Invitation to {self.group} from {self.leader}>"


def read_invitation(
    event: Notification | Event,
) -> tuple[str, Proc, tuple[Proc, ...], tuple[Info, ...]] | None:
    """Return group, leader, members and all other infos of an invitation; None for an event that is not a valid one."""
    name = ""
    members: tuple[Proc, ...] = ()
    for info in event.infos:
        data = info.value.data
        if info.key == keys.GROUP_ID and isinstance(data, str):
            name = data
        elif info.key == keys.GROUP_MEMBERSHIP and isinstance(data, DataArray):
            members = tuple([item for item in data if isinstance(item, Proc)])
    if not name:
        return None
    return name, event.source, members, tuple([info for info in event.infos if info.key not in _CARRIED])
