"""Standard input: data for ranks, written without ever blocking for a rank that does not read."""

from __future__ import annotations

import os
from collections import deque

from pypmix.host.loop import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pypmix.host.loop import HostLoop

READ_SIZE = 1 << 16

HELD_MAX = 16 << 20
"""The limit of bytes that a rank may leave unread. A pusher that waits for each write never reaches it."""


class Input:
    """The standard input of one rank.

    Args:
        loop: The loop to wait in while the rank does not read.
        fd: The write end of a pipe; closed by the input.
    """

    def __init__(self, loop: HostLoop, fd: int) -> None:
        self._loop = loop
        self._fd = fd
        self._rest: deque[tuple[memoryview, Callable[[], None]]] = deque()
        self._watched = False
        self._ending = False
        self.held = 0

    @property
    def closed(self) -> bool:
        """Whether it accepts no further data: its end was written, or its reader has exited."""
        return self._fd < 0 or self._ending

    def write(self, data: bytes, done: Callable[[], None] = lambda: None) -> None:
        """Give data to the rank; empty data ends its input.

        Args:
            data: The data; dropped if the input is closed.
            done: Called once the pipe has accepted it, or its reader has exited.
        """
        if self.closed:
            done()
        elif data:
            self._rest.append((memoryview(data), done))
            self.held += len(data)
            self._flush()
        else:
            self._ending = True
            self._flush()
            done()

    def _flush(self) -> None:
        # Callbacks may write more; all data uses the same queue.
        try:
            while self._rest:
                data, done = self._rest[0]
                size = os.write(self._fd, data)
                self.held -= size
                if size < len(data):
                    self._rest[0] = data[size:], done
                else:
                    self._rest.popleft()
                    done()
        except BlockingIOError:
            if not self._watched:
                self._watched = True
                self._loop.watch(self._fd, WRITE, self._flush)
            return
        except OSError:
            self.close()
            return
        if self._watched:
            self._watched = False
            self._loop.unwatch(self._fd)
        if self._ending:
            self.close()

    def close(self) -> None:
        """End the input at once, and drop unwritten data. May be called twice."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if self._watched:
            self._watched = False
            self._loop.unwatch(fd)
        os.close(fd)
        rest, self._rest = self._rest, deque()
        self.held = 0
        for _, done in rest:
            done()


class Feed:
    """This process's standard input, passed on to several ranks as fast as the slowest of them reads.

    Args:
        loop: The loop to read in.
        fd: The descriptor to read.
        inputs: The inputs that get the data.
    """

    def __init__(self, loop: HostLoop, fd: int, inputs: Sequence[Input]) -> None:
        self._loop = loop
        self._fd = fd
        self._inputs = inputs
        self._busy = 0
        self._watched = False
        self._resume()

    def _resume(self) -> None:
        try:
            self._loop.watch(self._fd, READ, self._ready)
            self._watched = True
        except PermissionError:
            # A file is always ready, and the kernel does not watch it.
            self._loop.later(0, self._ready)

    def _ready(self) -> None:
        self._rest()
        try:
            data = os.read(self._fd, READ_SIZE)
        except OSError:
            data = b""
        if all(each.closed for each in self._inputs):
            return
        self._busy = len(self._inputs) if data else -1
        for each in self._inputs:
            each.write(data, self._count_write)

    def _rest(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.unwatch(self._fd)

    def _count_write(self) -> None:
        self._busy -= 1
        if self._busy == 0:
            self._resume()

    def close(self) -> None:
        """Stop reading; may be called twice."""
        self._busy = -1
        self._rest()
