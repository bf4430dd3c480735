"""Lists of node names and of ranks per node, in the form of the Standard's "regular expressions".

Three forms are sent, without a length before them: `raw:` and the list; `pmix[...]` with ranges; `blob:` and a
compressed list. Commas separate node names and ranks, and semicolons separate the ranks of nodes.
"""

from __future__ import annotations

import struct

from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.values import inflate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

MAX_ITEMS = 1 << 20
"""The most nodes, or ranks, that a list may expand to."""

MAX_INFLATED = 64 << 20
"""The most bytes that a compressed list may grow to."""

_MAX_NAME = 255
_BLOB = b"blob:\0component=zlib:\0size="
_RAW = b"raw:"
_RANGES = b"pmix["


def _broken(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(text, operation="regex")


def _blob_parts(data: bytes, pos: int) -> tuple[int, int]:
    """Return the first position and the end of the compressed bytes of the blob at `pos`."""
    start = pos + len(_BLOB)
    colon = data.find(b":\0", start, start + 20)
    size = data[start:colon]
    if not data.startswith(_BLOB, pos) or colon < 0 or not size.isdigit():
        raise _broken("a compressed list has no proper head")
    end = colon + 2 + int(size)
    if end > len(data):
        raise _broken(f"a compressed list reaches {end - len(data)} bytes beyond the message")
    return colon + 2, end


def extent(data: bytes, pos: int) -> int:
    """Return the end of the list at `pos`, with its NUL.

    Raises:
        RemoteProtocolError: The list has none of the three forms.
    """
    if data.startswith(b"blob", pos):
        return _blob_parts(data, pos)[1]
    if data.startswith((b"pmix", _RAW), pos):
        end = data.find(0, pos)
        if end >= 0:
            return end + 1
        raise _broken("a list of nodes or ranks has no end")
    raise _broken("a list of nodes or ranks is in an unknown form")


def packed(data: bytes) -> bytes:
    """Encode a list in one of the three forms; text may have its NUL or not.

    Raises:
        ValueError: It has none of the forms, or more bytes follow it.
    """
    if not data.startswith(b"blob") and not data.endswith(b"\0"):
        data += b"\0"
    try:
        end = extent(data, 0)
    except RemoteProtocolError as error:
        raise ValueError(f"this is not a list for REGEX: {error.detail}") from error
    if end != len(data):
        raise ValueError("more bytes follow the list in REGEX")
    return data


def _content(text: str | bytes) -> tuple[str, bool]:
    """Return the list in a regex without its prefix, and whether it has ranges."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
    if data.startswith(b"blob"):
        start, end = _blob_parts(data, 0)
        if end - start < 4:
            raise _broken("a compressed list lacks its length")
        (size,) = struct.unpack_from("=I", data, start)
        if size > MAX_INFLATED:
            raise _broken(f"a compressed list claims {size} bytes; the limit is {MAX_INFLATED}")
        try:
            content = inflate(data[start:end])
        except ValueError as error:
            raise _broken(str(error)) from error
        return content.rstrip(b"\0").decode("utf-8", "surrogateescape"), False
    data = data.rstrip(b"\0")
    if b"\0" in data:
        raise _broken("a list of nodes or ranks has a NUL inside")
    text = data.decode("utf-8", "surrogateescape")
    if text.startswith("raw:"):
        return text[4:], False
    if data.startswith(_RANGES):
        if not text.endswith("]"):
            raise _broken("a list with ranges has no closing bracket")
        return text[5:-1], True
    return text, False


def expand_nodes(nodes: str | bytes) -> list[str]:
    """Return the names in a node list, `PMIX_NODE_MAP`.

    Args:
        nodes: A list in one of the three forms, or plain names between commas.

    Raises:
        RemoteProtocolError: It is malformed, or expands to more than `MAX_ITEMS` names.
    """
    text, ranged = _content(nodes)
    if not text:
        return []
    if not ranged:
        if text.count(",") >= MAX_ITEMS:
            raise _broken(f"a list has more than {MAX_ITEMS} nodes")
        return text.split(",")
    names: list[str] = []
    for part in _outside_brackets(text):
        prefix, bracket, tail = part.partition("[")
        if not bracket:
            names.append(part)
        else:
            inner, closing, suffix = tail.partition("]")
            digits, colon, ranges = inner.partition(":")
            if not closing or not colon or not digits.isdecimal() or len(digits) > 3:
                raise _broken(f"{part[:80]!r} is not a range of nodes")
            width = int(digits)
            if len(prefix) + len(suffix) + max(width, 20) > _MAX_NAME:
                raise _broken(f"the nodes of {part[:80]!r} have names longer than {_MAX_NAME}")
            names += [f"{prefix}{number:0{width}}{suffix}" for number in _numbers(ranges, MAX_ITEMS - len(names))]
        if len(names) > MAX_ITEMS:
            raise _broken(f"a list has more than {MAX_ITEMS} nodes")
    return names


def expand_ppn(ppn: str | bytes) -> list[list[int]]:
    """Return the ranks on each node, `PMIX_PROC_MAP`.

    Args:
        ppn: A list in one of the three forms, or plain ranks between commas and semicolons.

    Raises:
        RemoteProtocolError: It is malformed, or has more than `MAX_ITEMS` ranks or nodes.
    """
    text, _ = _content(ppn)
    if not text:
        return []
    if text.count(";") >= MAX_ITEMS:
        raise _broken(f"a list has more than {MAX_ITEMS} nodes")
    left = MAX_ITEMS
    nodes: list[list[int]] = []
    for part in text.split(";"):
        ranks = list(_numbers(part, left)) if part else []
        left -= len(ranks)
        nodes.append(ranks)
    return nodes


def _outside_brackets(text: str) -> Iterator[str]:
    """Split a text at commas outside of brackets."""
    start = pos = 0
    while pos < len(text):
        comma = text.find(",", pos)
        bracket = text.find("[", pos)
        if 0 <= bracket < comma:
            pos = text.find("]", bracket)
            if pos < 0:
                raise _broken("a range of nodes has no closing bracket")
            continue
        if comma < 0:
            break
        yield text[start:comma]
        start = pos = comma + 1
    yield text[start:]


def _numbers(text: str, limit: int) -> Iterator[int]:
    """Expand `0-3,7` to at most `limit` numbers."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            last = first
        for end in (first, last):
            if not end.isascii() or not end.isdecimal() or len(end) > 19:
                raise _broken(f"{part[:80]!r} is not a number or a range")
        low, high = int(first), int(last)
        if high < low:
            raise _broken(f"the range {part!r} runs backwards")
        limit -= high - low + 1
        if limit < 0:
            raise _broken(f"a list expands to more than {MAX_ITEMS} items")
        yield from range(low, high + 1)


def make_raw(items: Iterable[str] | Iterable[Iterable[int]]) -> str:
    """Return the form that every release understands, `raw:`.

    Args:
        items: Node names, or for each node the ranks on it.

    Raises:
        ValueError: A node name is empty or contains a comma, a semicolon or a NUL.
    """
    entries: list[Any] = list(items)
    if not all(isinstance(item, str) for item in entries):
        return "raw:" + ";".join([",".join([str(int(rank)) for rank in node]) for node in entries])
    for name in entries:
        if not name or set(name) & {",", ";", "\0"}:
            raise ValueError(f"{name!r} is not the name of a node")
    return "raw:" + ",".join(entries)
