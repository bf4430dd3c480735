"""Ready-made protocols on top of the operations, for a group of `pypmix` or of `pypmix.aio`."""

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
    """Follow who leads a group, and take part in the choice of a new leader when the leader fails or leaves.

    All members are to use it, with the same `elect`. When the leader fails, the member that `elect` names among those
    who live claims the lead (`GROUP_LEADER_FAILED` is answered so), and all wait until it is chosen
    (`GROUP_LEADER_SELECTED`). If that one dies as well, `elect` is asked again. A leader that leaves the group is
    followed by another one in the same way, which the Standard has for failures only: so the handlers of members that
    use this hear `GROUP_LEADER_FAILED` of it, too.

    Args:
        group: A group that stands, of `pypmix` or `pypmix.aio`, formed with `leader` or by invitation.
        elect: Returns which of the living members, given by group rank, is to lead. It is called where event handlers
            are, so it must not block in an event loop; it must name the same one at all members, so it goes by the
            procs and nothing else. By default the least proc.
        patience: Seconds to wait for the one whom `elect` names; then the caller lets the others choose without it.

    Returns:
        A context manager, to be entered with `with` or `async with`; see there for what it does.
    """
    from pypmix.operations.groups import Group

    if isinstance(group, Group):
        from pypmix.recipes import leadership as blocking

        return blocking.Leadership(group, elect, patience)
    from pypmix.aio.recipes import leadership

    return leadership.Leadership(group, elect, patience)
