"""Cascades: one line is shown instead of the tracebacks of ranks that fail because another one has failed.

When a rank raises, and leaves its client, a fence of the others ends with `PartialSuccess` in each of them. Their
tracebacks contain nothing that the first one does not, and there may be thousands.

A `Reader` looks at the standard error of one rank:

1. Output without a traceback passes through at once.
2. From the head of a traceback it holds the output, so that the tracebacks of several ranks stay whole, with all
   tracebacks chained to them. It passes them on when the rank ends, or `LIVE` seconds later if the rank continues, or
   when they have grown to `MOST` bytes, or when another traceback begins that is not chained.
3. If the first error of the chain follows from the end of another rank, it is held for `HOLD` seconds; if its rank has
   failed, until the job is finished.

The order in which ranks are seen to end is chance. Their errors are not: a rank whose error follows from another's end
is not blamed while a rank that it may have missed has yet to end (`RunningJob`). When the job is finished, `summary`
describes the tracebacks that are still held, including tracebacks that the end of the job has cut off.
"""

from __future__ import annotations

import re

from pypmix.standard.errors import ConstructAborted, PartialSuccess
from pypmix.standard.naming import name_ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LIVE = 1.0
"""Seconds for which output from a traceback on is held while its rank continues."""

HOLD = 5.0
"""Seconds for which a traceback that follows from another rank's end is held while its rank has not ended."""

MOST = 1 << 16
"""Bytes that are held; a traceback that follows from another rank's end has some 2,000."""

CAUSE = 10.0
"""Seconds to wait for the end of a rank that failed ranks had missed."""

HEAD = b"Traceback (most recent call last):\n"

CHAINS = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)

COLOUR = rb"\x1b\[[\d;]*m"

COLLECTIVES = "fence|allgather|gather|bcast|scatter|barrier|connect|disconnect|group_"
"""The beginnings of operations that end partly only if a participant has left; lookups have other reasons."""

MISSED = (
    rf"{PartialSuccess.__module__}\.({PartialSuccess.__name__}: ({COLLECTIVES})|"
    rf"({PartialSuccess.__name__}|{ConstructAborted.__name__}): .*; still missing: )"
).encode()


BEGIN = re.compile(rb"(?m)^(?=" + re.escape(HEAD) + rb")")
FIRST_MISSED = re.compile(rb"(?m)^(?:" + MISSED + rb").*\n?")


class Reader:
    """Holds the traceback by which a rank may end.

    Attributes:
        held: The output that is held.
        follows: Whether the last output was a traceback that follows from the end of another rank.
    """

    def __init__(self) -> None:
        self.held = bytearray()
        self.follows = False

    def take(self, data: bytearray) -> bytearray:
        """Process lines, the last of which may be unfinished; return the output that can be passed on."""
        shown = bytearray()
        for part in BEGIN.split(data):
            if part.startswith(HEAD):
                if self.held and not self.held.rstrip().endswith(CHAINS):
                    shown += self.let_go()
                self.held += part
            elif self.held:
                self.held += part
            else:
                shown += part
        if self.held:
            self.follows = _follows(self.held)
        elif data.strip():
            self.follows = False
        if len(self.held) > MOST:
            shown += self.let_go()
        return shown

    def let_go(self) -> bytearray:
        """Return the output that is held, and stop holding it."""
        held, self.held = self.held, bytearray()
        return held


def _follows(held: bytearray) -> bool:
    """Return True if a traceback, the first of a chain, follows from the end of another rank."""
    text = re.sub(COLOUR, b"", held)
    found = FIRST_MISSED.search(text)
    if found is None or text.count(HEAD, 0, found.start()) > 1:
        return False
    rest = text[found.end() :].strip()
    return not rest or rest.startswith(CHAINS)


def summary(ranks: Sequence[int], first: int, *, caused: bool) -> str:
    """Return the line about ranks whose tracebacks are not shown.

    Args:
        ranks: The ranks.
        first: The rank whose failure is shown.
        caused: Whether `first` has failed for another reason.
    """
    plural = "s" if len(ranks) > 1 else ""
    how = "failed after rank" if caused else "failed like rank"
    found = f"{len(ranks)} other rank{plural} {how} {first} ({name_ranks(ranks)})"
    return f"{found}; --all-tracebacks shows theirs"
