"""Results of decoding and encoding that are kept, because the same bytes or values come again and again.

They are results of pure functions by their arguments: they never go stale, so that all sessions share them. Each is a
plain dict, whose `get` CPython calls faster than that of a subclass. Threads may use one at the same time; at worst a
result is made twice.
"""

from __future__ import annotations

from pypmix.standard._typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def keep(memo: dict[K, V], most: int, key: K, value: V) -> None:
    """Keep a result in a memo, which begins anew when it is full: a peer cannot fill the memory.

    Args:
        memo: The results that are kept.
        most: The most of them.
        key: The arguments of the function.
        value: The result.
    """
    if len(memo) >= most:
        memo.clear()
    memo[key] = value
