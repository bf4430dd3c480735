"""The launcher of `pypmix run` on several nodes."""

from __future__ import annotations

from pypmix.host.local import LocalHost
from pypmix.host.mapping import Room, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pypmix.host import mapping
    from pypmix.host.nodes import HostNode


class Launcher(LocalHost):
    """A launcher whose ranks are placed as the command line says.

    Args:
        mapping: How.
        terms: Those of `LocalHost`.
    """

    def __init__(self, mapping: mapping.Mapping, *terms: Any, **more: Any) -> None:
        self._mapping = mapping
        super().__init__(*terms, **more)

    def place(self, sizes: Sequence[int], nodes: Sequence[HostNode]) -> list[tuple[HostNode, tuple[int, ...]]]:
        """Place the ranks of a job.

        Raises:
            OverflowError: There is no room for them.
        """
        usable = [node for node in nodes or self.nodes if node.slots]
        rooms = [Room(node.hostname, node.slots or 0, node.most, node.running) for node in usable]
        try:
            placed = place(rooms, sizes, self._mapping)
        except ValueError as error:
            raise OverflowError(str(error)) from None
        return [(node, ranks) for node, ranks in zip(usable, placed, strict=True) if ranks]
