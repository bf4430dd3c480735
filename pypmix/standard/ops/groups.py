"""Groups that all of their members construct and destruct together."""

from __future__ import annotations

from pypmix.standard.ops.core import Op, instances
from pypmix.standard.record import Record
from pypmix.standard.types import MAX_NSLEN, Info, Proc, check_name


class GroupResults(Record):
    """What a construct has made of a group.

    Args:
        members: The final membership; the group rank of each is its place. Empty where the library does not tell.
        context_id: The context id, None where none was assigned.
        infos: What else the library tells, such as the members' group info.
    """

    members: tuple[Proc, ...] = ()
    context_id: int | None = None
    infos: tuple[Info, ...] = ()


def _check_group(name: str) -> None:
    if not check_name(name, MAX_NSLEN, "a group's name"):
        raise ValueError("a group's name must not be empty")


class GroupConstruct(Op[GroupResults]):
    """`PMIx_Group_construct`: make a group of procs; all of them call it.

    Understood directives: `attrs.GROUP_ASSIGN_CONTEXT_ID`, `attrs.GROUP_INFO`, `attrs.TIMEOUT`.
    """

    group: str
    procs: tuple[Proc, ...] = ()
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        _check_group(self.group)
        instances("procs", self.procs, Proc)
        instances("directives", self.directives, Info)


class GroupDestruct(Op[None]):
    """`PMIx_Group_destruct`: take a group apart; all of its members call it.

    Understood directives: `attrs.TIMEOUT`.
    """

    group: str
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        _check_group(self.group)
        instances("directives", self.directives, Info)
