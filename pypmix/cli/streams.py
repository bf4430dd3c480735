"""The standard streams of a command: they may be closed, or lack characters."""

from __future__ import annotations

import codecs
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


def occupy() -> None:
    """See to it that descriptors 0 to 2 are open, so that no pipe or socket of ours takes their place."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def prepare() -> None:
    """See to it that all can be written: to a stream that is closed without effect, and characters by their escapes."""
    occupy()
    # A message for a standard error that is not there would go to the output.
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def styled(out: TextIO) -> bool:
    """Tell whether a stream is a terminal that carries out sequences."""
    return out.isatty() and os.environ.get("TERM") != "dumb"


def takes_all() -> bool:
    """Tell whether standard output has all characters, as UTF-8 has them."""
    return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
