"""Ready-made protocols on top of the operations, for groups of `pypmix` and of `pypmix.aio`."""

from __future__ import annotations

from typing import overload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix import aio
    from pypmix.aio.recipes.leadership import Leadership as AsyncLeadership
    from pypmix.operations.groups import Group
    from pypmix.recipes.leadership import Leadership as BlockingLeadership
    from pypmix.standard.types import Proc

    Elect = Callable[[Iterable[Proc]], Proc | None]

__all__ = ["Leadership"]


@overload
def Leadership(group: aio.Group, elect: Elect = ..., *, patience: float = ...) -> AsyncLeadership: ...
@overload
def Leadership(group: Group, elect: Elect = ..., *, patience: float = ...) -> BlockingLeadership: ...
def Leadership(
    group: aio.Group | Group, elect: Elect = min, *, patience: float = 30.0
) -> AsyncLeadership | BlockingLeadership:
    """Follow the leadership of a group, and elect a new leader when the leader fails or leaves.

    All members must use it, with the same `elect`. When the leader fails, the member that `elect` names among the
    living members claims the lead, as its answer to `GROUP_LEADER_FAILED`, and all members wait until it is selected
    (`GROUP_LEADER_SELECTED`). If that member fails as well, `elect` is called again. A leader that leaves the group is
    replaced in the same way, although the Standard does so for failures only: handlers of members that use this
    receive `GROUP_LEADER_FAILED` for a departed leader, too.

    Args:
        group: An open group of `pypmix` or `pypmix.aio`, formed with `leader` or by invitation.
        elect: Chooses the leader from the living members, in group-rank order. It is called as event handlers are, so
            it must not block in an event loop. It must choose the same proc at all members, so it must depend on
            nothing but the procs. By default the least proc.
        patience: Seconds to wait for the member that `elect` names; then the others choose without the caller.

    Returns:
        A context manager for `with` or `async with`.
    """
    from pypmix.operations.groups import Group

    if isinstance(group, Group):
        from pypmix.recipes import leadership as blocking

        return blocking.Leadership(group, elect, patience)
    from pypmix.aio.recipes import leadership

    return leadership.Leadership(group, elect, patience)
