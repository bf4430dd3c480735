"""`pypmix grow` and `pypmix shrink`: nodes join and leave the session of a launcher."""

from __future__ import annotations

from pypmix.arguments import timed
from pypmix.cli.reach import Reach, arguments
from pypmix.cli.usage import UsageError
from pypmix.standard import attrs
from pypmix.standard.enums import AllocDirective

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.types import Info


def grow(reach: Reach, hosts: str, nodes: int, cpus: int, timeout: float | None) -> None:
    """Add nodes to the session, and print their names."""
    if not (hosts or nodes or cpus):
        raise UsageError("name nodes, such as n3:4, or say how many with --nodes or --cpus")
    _request(reach, AllocDirective.EXTEND, hosts, nodes, cpus, timeout, ())


def shrink(reach: Reach, hosts: str, nodes: int, force: bool, timeout: float | None) -> None:
    """Remove nodes from the session, and print their names."""
    if bool(hosts) == bool(nodes):
        raise UsageError("name nodes, such as n3,n4, or say how many with --nodes")
    _request(
        reach, AllocDirective.RELEASE, hosts, nodes, 0, timeout, (attrs.JOB_CTRL_TERMINATE(True),) if force else ()
    )


def _request(
    reach: Reach,
    directive: AllocDirective,
    hosts: str,
    nodes: int,
    cpus: int,
    timeout: float | None,
    more: tuple[Info, ...],
) -> None:
    with arguments():
        named = (attrs.ALLOC_NODE_LIST(hosts),) if hosts else ()
        attrs.ALLOC_NUM_NODES(nodes), attrs.ALLOC_NUM_CPUS(cpus), timed((), timeout)
    with reach.failures(), reach.one() as tool:
        answer = tool.allocate(directive, nodes=nodes or None, cpus=cpus or None, timeout=timeout, info=(*named, *more))
        for name in str(answer[attrs.ALLOC_NODE_LIST]).split(","):
            print(name)
