"""An asyncio loop as the streams of output use it."""

from __future__ import annotations

import asyncio

from pypmix.host.loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Watching:
    """Watches descriptors in an asyncio loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
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
        """Forget `fd`; to be called before it is closed."""
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

    async def drained(self, patience: float) -> None:
        """Wait until all that was to be written is, or for `patience` seconds."""
        if self._writing:
            self._drained = self._loop.create_future()
            await asyncio.wait([self._drained], timeout=patience)
