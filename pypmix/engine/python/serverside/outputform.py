"""The form that a reader wants output in: each line with a tag or a time before it, or as XML."""

from __future__ import annotations

import time

from pypmix.engine.python.modex import is_true
from pypmix.standard.keys import (
    IOF_RANK_OUTPUT,
    IOF_TAG_FULLNAME_OUTPUT,
    IOF_TAG_OUTPUT,
    IOF_TIMESTAMP_OUTPUT,
    IOF_XML_OUTPUT,
    TAG_OUTPUT,
    TIMESTAMP_OUTPUT,
)
from pypmix.standard.logtext import printable
from pypmix.standard.ops.forwarding import DIAG, STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.standard.ops import Output
    from pypmix.standard.types import Info, Proc

NAMES = {STDOUT: "stdout", STDERR: "stderr", DIAG: "stddiag"}

TAGS = {
    IOF_TAG_OUTPUT: "[{job},{rank}]<{channel}>: ",
    TAG_OUTPUT: "[{job},{rank}]<{channel}>: ",
    IOF_TAG_FULLNAME_OUTPUT: "[{nspace},{rank}]<{channel}>: ",
    IOF_RANK_OUTPUT: "[{rank}]<{channel}>: ",
}
"""The text before each line, by directive, as libpmix has it."""

TIMESTAMPS = frozenset({IOF_TIMESTAMP_OUTPUT, TIMESTAMP_OUTPUT})

MAX_HELD = 64 << 10
"""The longest line that is kept until its end arrives."""


class OutputForm:
    """One reader's form, and the position of each source in its line.

    Args:
        tag: The format of the text before each line; empty for none.
        timestamp: Whether to put the time there too.
        xml: Whether each line is an element.
    """

    def __init__(self, tag: str, timestamp: bool, xml: bool) -> None:
        self._tag = tag
        self._timestamp = timestamp
        self._xml = xml
        self._inside: set[tuple[Proc, int]] = set()
        self._unfinished: dict[tuple[Proc, int], bytes] = {}

    @classmethod
    def from_directives(cls, directives: Iterable[Info]) -> OutputForm | None:
        """Return the form that directives ask for, None if they ask for none."""
        keys = {info.key for info in directives if is_true(info)}
        tag = next((tag for key, tag in TAGS.items() if key in keys), "")
        timestamp, xml = not keys.isdisjoint(TIMESTAMPS), IOF_XML_OUTPUT in keys
        return cls(tag, timestamp, xml) if tag or timestamp or xml else None

    def apply(self, output: Output) -> bytes:
        """Return a piece in this form; empty if no part of it can be shown yet."""
        return self._elements(output) if self._xml else self._lines(output)

    def _lines(self, output: Output) -> bytes:
        key = output.source, output.channel
        before = self._before(output).encode("utf-8", "surrogateescape")
        done = bytearray()
        for line in _split(output.data):
            if key not in self._inside:
                done += before
            done += line
            if line.endswith(b"\n"):
                self._inside.discard(key)
            else:
                self._inside.add(key)
        return bytes(done)

    def _elements(self, output: Output) -> bytes:
        key = output.source, output.channel
        lines = _split(self._unfinished.pop(key, b"") + output.data)
        if lines and output.data and not lines[-1].endswith(b"\n") and len(lines[-1]) < MAX_HELD:
            self._unfinished[key] = lines.pop()
        return b"".join([self._element(output, line) for line in lines])

    def _before(self, output: Output) -> str:
        nspace, rank = printable(output.source.nspace), output.source.rank
        channel = NAMES.get(output.channel, "output")
        tag = self._tag.format(job=nspace.rpartition("@")[2], nspace=nspace, rank=rank, channel=channel)
        if not self._timestamp:
            return tag
        return f"[{time.ctime()}]{tag}" if tag else f"[{time.ctime()}]<{channel}>: "

    def _element(self, output: Output, line: bytes) -> bytes:
        name = NAMES.get(output.channel, "output")
        nspace, rank = output.source
        nspace = "".join(map(_escaped, nspace.encode("utf-8", "surrogateescape"))).replace('"', "&quot;")
        stamp = f' timestamp="{time.ctime()}"' if self._timestamp else ""
        body = "".join(map(_escaped, line))
        return f'<{name} nspace="{nspace}" rank="{rank}"{stamp}>{body}</{name}>\n'.encode("ascii")


def _split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


_NAMED = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}


def _escaped(byte: int) -> str:
    return _NAMED.get(byte) or (chr(byte) if 32 <= byte < 127 else f"&#{byte:03};")
