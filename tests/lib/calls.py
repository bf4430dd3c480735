"""`pypmix.conformance.calls` in the form that blocks, for checks that our suite runs in it."""

from __future__ import annotations

from pathlib import Path

import pypmix
from lib.blocking import translate

_SOURCE = Path(pypmix.__file__).parent / "conformance" / "calls.py"
exec(translate(_SOURCE.read_text(), str(_SOURCE), "sync"))
