"""A rank that times what ranks do often, for `pypmix bench`: `python -m pypmix.timing ENGINE WORD REPEATS`.

With no repeats it opens and closes its client, and nothing else. Our own bench takes its clock and medians from here.
"""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix import Client

WARM = 2
"""Repeats that are not counted, before the others."""

WAIT = 60
"""Seconds after which an operation counts as one that does not end."""

clock = time.perf_counter
"""The same for all processes of a machine."""


def median(times: list[float]) -> float:
    """Return the median of seconds, in microseconds."""
    return sorted(times)[len(times) // 2] * 1e6


def timed(count: int, call: Callable[..., object], *args: object, **kwargs: object) -> float:
    """Return the median of so many calls, in microseconds."""
    times = []
    for _ in range(count):
        begin = clock()
        call(*args, **kwargs)
        times.append(clock() - begin)
    return median(times)


def exchange(me: Client, turn: int) -> None:
    """Put a value, meet in a collecting fence, and get the one of the next rank."""
    me.put(f"bench.{turn % 4}", turn)
    me.fence(collect=True, timeout=WAIT)
    me.get(f"bench.{turn % 4}", me.job[(me.rank + 1) % me.job.size])


def group(me: Client, turn: int) -> None:
    """Construct a group of all with a context id, and destruct it."""
    name = f"bench.{turn}"
    me.group(name, me.job.procs, context_id=True, timeout=WAIT).construct()
    me.raw.group_destruct(name, timeout=WAIT)


def publish(me: Client, turn: int) -> None:
    """Publish a value, and look it up."""
    key = f"bench.{me.rank}.{turn}"
    me.publish({key: turn})
    me.lookup(key)


def fence(me: Client, _: int) -> None:
    """Meet in a fence that collects nothing."""
    me.fence(timeout=WAIT)


OPERATIONS: dict[str, Callable[[Client, int], None]] = {
    "fence": fence,
    "exchange": exchange,
    "group": group,
    "publish": publish,
}
"""The operations that are timed, by name."""


def times(me: Client, repeats: int) -> dict[str, float]:
    """Return the median of each operation in microseconds; one that the server does not offer is left out."""
    from pypmix import NotSupported

    found = {}
    for name, operation in OPERATIONS.items():
        seen = []
        try:
            for turn in range(-WARM, repeats):
                me.fence(timeout=WAIT)
                begin = clock()
                operation(me, turn)
                seen.append(clock() - begin)
        except NotSupported:
            continue
        found[name] = median(seen[WARM:])
    me.fence(timeout=WAIT)
    return found


def main(engine: str, word: str, repeats: str) -> None:
    """Be a rank."""
    from pypmix import Client
    from pypmix.reports import report

    with Client(engine=engine, singleton="forbid") as me:
        found: dict[str, Any] = {"rank": int(me.rank), "size": me.job.size}
        if int(repeats):
            found["microseconds"] = times(me, int(repeats))
    report(word, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
