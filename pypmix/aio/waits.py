"""What waiting needs in an event loop; `pypmix.waits` is the same where calls block."""

from __future__ import annotations

import anyio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = 10.0
"""Seconds for what is to be done although the task that does it is being cancelled."""


def shielded() -> anyio.CancelScope:
    """Return a context manager whose block is carried out in a task that is being cancelled too, for a while."""
    return anyio.move_on_after(LIMIT, shield=True)


async def settled(value: Any) -> Any:
    """Return a value, which may be one to be awaited."""
    return await value if hasattr(value, "__await__") else value
