"""A bounded queue between an engine's thread and a caller that blocks; `pypmix.aio.mailbox` is the same to await.

It is written by hand: threads need a lock and a condition, where all of an event loop's runs in one thread.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class EndOfStream(Exception):
    """Nothing more will come."""


class Mailbox(Generic[T]):
    """Items that have arrived and were not read yet.

    Args:
        port: The way to the session of the client whose it is.
        limit: How many items are kept; of more than that the oldest are dropped.

    Attributes:
        dropped: How many items were dropped so far.
    """

    def __init__(self, port: object, limit: int) -> None:
        self.dropped = 0
        self._limit = limit
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._end: BaseException | None = None

    def put(self, item: T) -> None:
        """Add an item; from any thread."""
        with self._changed:
            if self._end is None:
                if len(self._items) >= self._limit:
                    self._items.popleft()
                    self.dropped += 1
                self._items.append(item)
                self._changed.notify()

    def end(self, error: BaseException | None = None) -> None:
        """Let readers have what is there, and then this error; None for a quiet end. The first end counts."""
        with self._changed:
            if self._end is None:
                self._end = error or EndOfStream()
                self._changed.notify_all()

    def get(self, timeout: float | None = None) -> T:
        """Return the oldest item, and wait for one if there is none.

        Raises:
            TimeoutError: None came within `timeout` seconds.
            EndOfStream: There will be none.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._items or self._end is not None, timeout):
                raise TimeoutError
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
