"""The standard streams of a command: they may be closed, or lack characters."""

from __future__ import annotations

import codecs
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO


def occupy() -> None:
    """Make sure that descriptors 0 to 2 are open, so that no pipe or socket of ours gets their numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def prepare() -> None:
    """Make sure that writing never fails: a closed stream discards text, and missing characters are escaped."""
    occupy()
    # A message for a missing standard error would go to the output.
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def styled(out: TextIO) -> bool:
    """Return True if a stream is a terminal that supports control sequences."""
    return out.isatty() and os.environ.get("TERM") != "dumb"


def takes_all() -> bool:
    """Return True if the encoding of standard output has all characters, as UTF-8 does."""
    return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"


def write_json(data: object, target: Path | TextIO) -> None:
    """Write JSON to a file or to a stream."""
    import json

    text = json.dumps(data, indent=1) + "\n"
    if isinstance(target, os.PathLike):
        target.write_text(text, encoding="utf-8")
    else:
        target.write(text)
