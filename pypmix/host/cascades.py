"""Cascades: of ranks that fail since another one has failed, one line is shown instead of a traceback of each.

When a rank raises, and leaves its client, a fence of the others ends with `PartialSuccess` in each of them. Their
tracebacks tell nothing that the first one does not, and there may be thousands.

A `Reader` looks at the standard error of one rank:

1. What is not a traceback passes through at once.
2. From the head of a traceback on it holds what comes, until the line that names the error.
3. An error that does not follow from the end of another rank is passed on then, whole. So is what has grown to `MOST`
   bytes.
4. One that does stays held, as long as nothing but exceptions that were raised because of it comes. `Stream` lets it go
   after `HOLD` seconds, and the rank's launch where the rank has not failed.

The order in which ranks are seen to end is chance. Their errors are not: a rank whose error follows from another's end
is not blamed while one that it may have missed has yet to end (`RunningJob`). When the job is over, `summary` tells of
what is still held: by then also of tracebacks that the end of the job has cut off.
"""

from __future__ import annotations

import re

from pypmix.host.outcome import listed
from pypmix.standard.errors import ConstructAborted, PartialSuccess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOLD = 5.0
"""Seconds for which a traceback is held while its rank has not ended."""

MOST = 1 << 14
"""Bytes of a traceback that are held; one that follows from another rank's end has some 2,000."""

CAUSE = 10.0
"""Seconds for which the end of a rank is waited for, which others that have failed had missed."""

HEAD = b"Traceback (most recent call last):\n"

CHAINS = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)

LINE = re.compile(rb"[^\n]*\n|[^\n]+")
COLOUR = rb"\x1b\[[\d;]*m"

SEEN = 200
"""Bytes at the end of what is passed on that tell whether a traceback belongs to it."""

COLLECTIVES = "fence|allgather|gather|bcast|scatter|barrier|connect|disconnect|group_"
"""The starts of the operations that end partly only where a participant has gone; lookups have other reasons."""

MISSED = (
    rf"{PartialSuccess.__module__}\.({PartialSuccess.__name__}: ({COLLECTIVES})|"
    rf"({PartialSuccess.__name__}|{ConstructAborted.__name__}): .*; still missing: )"
).encode()


class Reader:
    """Holds the traceback by which a rank may end, and tells whether it follows from the end of another rank.

    Attributes:
        held: What is held.
        follows: Whether the last that was read is a traceback that follows from another rank's end.
    """

    def __init__(self) -> None:
        self.held = bytearray()
        self.follows = False
        self._inside = False
        """Whether a traceback has begun whose error has not come."""
        self._chained = False
        """Whether the next traceback belongs to one that was passed on."""
        self._linked = False
        """Whether the next traceback belongs to one that is held."""

    def take(self, data: bytearray) -> bytearray:
        """Take in lines, the last of which may be unfinished; return what can be passed on."""
        if not self.held and HEAD not in data:
            self._pass(data)
            return data
        shown = bytearray()
        for line in LINE.findall(data):
            if line == HEAD and not (self._inside or self._linked):
                shown += self.let_go()
            if not self._keeps(line):
                shown += self.let_go() + line
                self._pass(line)
            elif len(self.held) > MOST or self._is_elsewhere(line):
                shown += self.let_go()
        return shown

    def let_go(self) -> bytearray:
        """Return what is held, and hold it no more."""
        held, self.held = self.held, bytearray()
        self._inside = self._linked = False
        return held

    def _pass(self, data: bytes | bytearray) -> None:
        """Note what is passed on that is not a traceback to hold."""
        text = data[-SEEN:].rstrip()
        if text:
            self.follows = False
            self._chained = text.endswith(CHAINS)

    def _keeps(self, line: bytes) -> bool:
        """Hold a line that belongs to what is held, or begins a traceback."""
        text = line.rstrip()
        if line == HEAD and not (self._inside or self._chained):
            self._inside = True
            self._linked = False
            self.follows = self.follows and bool(self.held)
        elif self.held and not self._inside and text in CHAINS:
            self._linked = True
        elif not self._inside and not (self.held and not text):
            return False
        self.held += line
        return True

    def _is_elsewhere(self, line: bytes) -> bool:
        """Tell whether a line names the error of a traceback that does not follow from another rank's end."""
        if not self._inside or line == HEAD or line[:1].isspace() or not line.endswith(b"\n"):
            return False
        self._inside = False
        # What was raised because of such an error follows from it.
        self.follows = self.follows or re.match(MISSED, re.sub(COLOUR, b"", line)) is not None
        return not self.follows


def summary(ranks: Sequence[int], first: int, *, caused: bool) -> str:
    """Return the line about ranks whose tracebacks are not shown.

    Args:
        ranks: Which.
        first: The rank whose failure is shown.
        caused: Whether that one has not failed for the same reason.
    """
    plural = "s" if len(ranks) > 1 else ""
    how = "failed after rank" if caused else "failed like rank"
    found = f"{len(ranks)} other rank{plural} {how} {first} (rank{plural} {listed(spans(ranks))})"
    return f"{found}; --all-tracebacks shows theirs"


def spans(numbers: Iterable[int]) -> list[str]:
    """Return numbers in ascending order, with those that follow each other as one span such as `6-63`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ["-".join(map(str, span)) for span in found]
