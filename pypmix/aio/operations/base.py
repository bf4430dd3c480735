"""What the operations of a topic need of the client that they are methods of."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from pypmix.engine.base import ClientSession
    from pypmix.standard.ops import Op

    R = TypeVar("R")


class Asks:
    """A client, as its operations see it."""

    if TYPE_CHECKING:
        _session: ClientSession

        async def _run(self, op: Op[R], undo: Callable[[R], Op[None]] | None = None) -> R:
            """Carry out an operation; `undo` returns what takes it back if the caller gives up waiting for it."""

        def _attend(self) -> None:
            """From now on take in what arrives also while nothing is waited for."""
