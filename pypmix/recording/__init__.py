"""Recordings of the upcalls of servers: written, read, replayed and compared.

`Recorder` sits between a server and any host, and writes every upcall and every answer as a line of JSON; `read` reads
the file; `replay` makes a host that gives the recorded answers, so that a recording becomes a test; `compare` returns
the differences of two recordings of one scenario.
"""

from __future__ import annotations

from pypmix.recording.compare import Difference, Normal, compare
from pypmix.recording.record import Entry, RecordedAnswer, Recorder, Recording, read
from pypmix.recording.replay import Replay, replay

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
