"""Threads beside Dask's event loop."""

from __future__ import annotations

import asyncio
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


async def elsewhere(function: Callable[[], Any]) -> Any:
    """Call a function on a thread that does not keep the worker from ending, as those of `asyncio.to_thread` do."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def settle(result: Any, fault: Exception | None) -> None:
        if not future.done():
            if fault is None:
                future.set_result(result)
            else:
                future.set_exception(fault)

    def carry_out() -> None:
        result, fault = None, None
        try:
            result = function()
        except Exception as error:
            fault = error
        try:
            loop.call_soon_threadsafe(settle, result, fault)
        except RuntimeError:
            # The worker has ended, and its loop with it.
            return

    threading.Thread(target=carry_out, daemon=True).start()
    return await future
