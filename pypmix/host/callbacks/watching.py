"""An asyncio loop in the form that a manager uses (`pypmix.host.loop.HostLoop`)."""

from __future__ import annotations

import asyncio
from collections import deque

from pypmix.host.loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Watching:
    """Watches descriptors in an asyncio loop, and calls functions there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[Callable[[], None]] = deque()
        self._reading: set[int] = set()
        self._writing: set[int] = set()
        self._drained: asyncio.Future[None] | None = None

    def watch(self, fd: int, events: int, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `fd` is ready."""
        if events == READ:
            self._reading.add(fd)
            self._loop.add_reader(fd, callback)
        else:
            self._writing.add(fd)
            self._loop.add_writer(fd, callback)

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`; call this before closing it."""
        if fd in self._reading:
            self._reading.discard(fd)
            self._loop.remove_reader(fd)
        else:
            self._writing.discard(fd)
            self._loop.remove_writer(fd)
            if not self._writing and self._drained is not None and not self._drained.done():
                self._drained.set_result(None)

    def later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `callback` after `delay` seconds."""
        return self._loop.call_later(delay, callback)

    def post(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the loop, soon; from any thread."""
        self._posted.append(callback)
        self._loop.call_soon_threadsafe(self._next)

    def soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` soon, from the loop's thread."""
        self._loop.call_soon(callback)

    def run_posted(self) -> None:
        """Make the calls that have been posted by now."""
        for _ in range(len(self._posted)):
            self._next()

    def _next(self) -> None:
        # `run_posted` may have made the call already.
        if self._posted:
            self._posted.popleft()()

    async def drained(self, patience: float) -> None:
        """Wait until all output is written, or for `patience` seconds."""
        if self._writing:
            self._drained = self._loop.create_future()
            await asyncio.wait([self._drained], timeout=patience)
