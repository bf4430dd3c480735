"""The asyncio calls of checks. Our suite also runs checks in blocking form, with a blocking twin of this module."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

sleep = asyncio.sleep


async def together(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Make calls concurrently, and return the result or exception of each."""
    return await asyncio.gather(*[call() for call in calls], return_exceptions=True)
