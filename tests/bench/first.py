"""What the benches of frameworks share: programs that come before what else a machine does, and figures that are kept.

Linux shares the processors out among sessions (`autogroup` in sched(7)). A session of its own, with the least niceness,
gets them nearly for itself, while its processes are scheduled among each other as ever. That fits ranks of Open MPI,
which spin; the workers of `torchrun` are in sessions of their own, and there it has to be `chrt`.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIRST = ["setsid", "sh", "-c", 'echo -20 > /proc/self/autogroup && exec "$@"', "sh"]
"""What a program is started by; for root."""

REALTIME = ["chrt", "--rr", "1"]
"""The same, for programs that start sessions."""


def keep(out: str, name: str, times: Mapping[str, Sequence[float]]) -> None:
    """Add the median and the least milliseconds of some ways to a file of results, if there is to be one."""
    if not out:
        return
    path = Path(out)
    found = json.loads(path.read_text()) if path.exists() else {}
    found["date"] = time.strftime("%Y-%m-%d")
    found.setdefault("milliseconds", {})[name] = {
        way: [round(pick(taken) * 1e3, 1) for pick in (statistics.median, min)] for way, taken in times.items()
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
