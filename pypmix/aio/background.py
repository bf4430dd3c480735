"""Tasks that belong to a client and not to a task of the program."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

_tasks: set[object] = set()
"""Those of asyncio, which itself holds no reference to its tasks."""


def background(function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Run a coroutine function in the running event loop, beside the program's tasks."""

    async def run() -> None:
        try:
            await function(*arguments)
        except Exception:
            sys.excepthook(*sys.exc_info())

    if _runs_on_trio():
        import trio

        trio.lowlevel.spawn_system_task(run)
        return
    import asyncio

    task = asyncio.get_running_loop().create_task(run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _runs_on_trio() -> bool:
    trio = sys.modules.get("trio")
    return trio is not None and trio.lowlevel.in_trio_run()
