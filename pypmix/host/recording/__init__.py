"""Recordings of the upcalls of servers: written, read, replayed and compared.

`Recorder` sits between a server and any host, and writes every upcall and every answer as a line of JSON; `read` reads
the file; `replay` makes a host that gives the recorded answers, so that a recording becomes a test; `compare` returns
the differences of two recordings of one scenario.
"""

from __future__ import annotations

from pypmix.host.recording.compare import Difference, compare
from pypmix.host.recording.normal import Normal
from pypmix.host.recording.read import Entry, RecordedAnswer, Recording, read
from pypmix.host.recording.record import Recorder
from pypmix.host.recording.replay import Replay, replay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "Difference",
    "Entry",
    "Normal",
    "RecordedAnswer",
    "Recorder",
    "Recording",
    "Replay",
    "compare",
    "read",
    "replay",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # An old name, or an error.
        from pypmix.oldnames import find

        return find(f"{__name__}.{name}")
