"""What waiting needs where calls block; `pypmix.aio.waits` is the same in an event loop."""

from __future__ import annotations

from contextlib import nullcontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def shielded() -> nullcontext[None]:
    """Return a context manager whose block is carried out whatever happens: nobody cancels a thread."""
    return nullcontext()


def settled(value: Any) -> Any:
    """Return a value."""
    return value
