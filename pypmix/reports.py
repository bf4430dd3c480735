"""Reports of ranks to the command that has started them: marked lines in their standard output."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARK = "PYPMIX-REPORT"
"""Stands before each report with a word that the command has chosen, whatever a launcher puts before the line."""


def report(word: str, data: dict[str, Any]) -> None:
    """Report from a rank, by one line in one write, which no other rank's can come into."""
    os.write(1, f"\n{MARK} {word} {json.dumps(data)}\n".encode())


def read(word: str, text: str) -> list[dict[str, Any]]:
    """Return the reports in what a job has written."""
    mark, decoder = f"{MARK} {word} ", json.JSONDecoder()
    found = []
    for line in text.splitlines():
        _, marked, rest = line.partition(mark)
        if marked:
            try:
                found.append(decoder.raw_decode(rest)[0])
            except ValueError:
                continue
    return found
