"""The calls of asyncio that checks make; our suite, which runs them in blocking form too, has a twin of this module."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

sleep = asyncio.sleep


async def together(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Make calls at the same time, and return what each returned or raised."""
    return await asyncio.gather(*[call() for call in calls], return_exceptions=True)
