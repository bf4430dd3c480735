"""A bounded queue between an engine and the tasks of an event loop; `pypmix.mailbox` is the same for threads.

It is written by hand: it runs in one thread without a lock, and its readers wait by the pump, where threads have a
condition.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import anyio

from pypmix.mailbox import EndOfStream as EndOfStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.aio.pump import Waiter
    from pypmix.aio.waits import Port

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Items that have arrived and were not read yet; see `pypmix.mailbox.Mailbox`. It runs in the loop's thread."""

    def __init__(self, port: Port, limit: int) -> None:
        self.dropped = 0
        self._limit = limit
        self._items: deque[T] = deque()
        self._pump = port.runner
        self._readers: deque[Waiter] = deque()
        self._end: BaseException | None = None

    def put(self, item: T) -> None:
        """Add an item."""
        if self._end is None:
            if len(self._items) >= self._limit:
                self._items.popleft()
                self.dropped += 1
            self._items.append(item)
            if self._readers:
                self._pump.settle(self._readers.popleft())

    def end(self, error: BaseException | None = None) -> None:
        """Let readers have what is there, and then this error; None for a quiet end. The first end counts."""
        if self._end is None:
            self._end = error or EndOfStream()
            while self._readers:
                self._pump.settle(self._readers.popleft())

    async def get(self, timeout: float | None = None) -> T:
        """Return the oldest item, and wait for one if there is none.

        Raises:
            TimeoutError: None came within `timeout` seconds.
            EndOfStream: There will be none.
        """
        with anyio.fail_after(timeout):
            while not self._items and self._end is None:
                reader = self._pump.waiter()
                self._readers.append(reader)
                try:
                    await self._pump.wait(reader)
                except BaseException:
                    if reader in self._readers:
                        self._readers.remove(reader)
                    elif self._items and self._readers:
                        # It was woken for an item that another one shall have now.
                        self._pump.settle(self._readers.popleft())
                    raise
        if self._items:
            return self._items.popleft()
        assert self._end is not None
        raise self._end

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""
        return self._end is not None

    def __len__(self) -> int:
        return len(self._items)
