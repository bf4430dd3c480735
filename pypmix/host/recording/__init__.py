"""The recording host: what a server asks of its host, written down, answered again from there, and compared.

`Recorder` stands between a server and any host and writes every upcall and every answer as a line of JSON; `read`
reads the file back; `replay` makes a host of it, so that a recording becomes a test; `compare` says where two
recordings of one scenario differ.
"""

from __future__ import annotations

from pypmix.host.recording.compare import Difference, compare
from pypmix.host.recording.normal import Normal
from pypmix.host.recording.read import Answer, Entry, Recording, read
from pypmix.host.recording.record import Recorder
from pypmix.host.recording.replay import Replay, replay

__all__ = ["Answer", "Difference", "Entry", "Normal", "Recorder", "Recording", "Replay", "compare", "read", "replay"]
