"""Threads beside Dask's event loop."""

from __future__ import annotations

import asyncio
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


async def run_in_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a daemon thread, and return its result.

    Unlike with `asyncio.to_thread`, the thread does not prevent the process from exiting.
    """
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def settle(result: Any, fault: Exception | None) -> None:
        if not future.done():
            if fault is None:
                future.set_result(result)
            else:
                future.set_exception(fault)

    def call() -> None:
        result, fault = None, None
        try:
            result = function()
        except Exception as error:
            fault = error
        try:
            loop.call_soon_threadsafe(settle, result, fault)
        except RuntimeError:
            # The worker has exited and closed its loop.
            return

    threading.Thread(target=call, daemon=True).start()
    return await future
