"""Results of decoding and encoding that are kept, because the same bytes or values come again and again."""

from __future__ import annotations

from pypmix.standard._typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """Results of a pure function by its arguments: they never go stale, so that all sessions share them.

    It begins anew when it is full, so that a peer cannot fill the memory. Its methods are a dict's, which threads may
    use at the same time; at worst a result is made twice.

    Args:
        most: The most results that are kept.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> None:
        """Keep a result."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
