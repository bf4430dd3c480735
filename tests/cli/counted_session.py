"""A session in the foreground whose description says what it costs: `counted_session.py NAME OPTION...`.

`memory` are the bytes that Python objects of the process take, and `calls` the functions that its loop has called.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from typing import Any

tracemalloc.start(1)

from pypmix.cli.session import session  # noqa: E402
from pypmix.host.standing import SessionHost  # noqa: E402

calls = 0


def count(_frame: object, event: str, _argument: object) -> None:
    global calls
    if event == "call":
        calls += 1


class CountedHost(SessionHost):
    def describe(self) -> dict[str, Any]:
        gc.collect()
        return {**super().describe(), "memory": tracemalloc.get_traced_memory()[0], "calls": calls}


sys.modules["pypmix.host.standing"].SessionHost = CountedHost  # type: ignore[attr-defined]
sys.setprofile(count)
sys.exit(session(["start", sys.argv[1], "--foreground", *sys.argv[2:]]))
