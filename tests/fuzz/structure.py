"""Messages that are right in their structure and hostile in what they hold: keys with any type, bombs, unknown types.

They are made as bytes, so that they may hold what no encoder would make. A seed makes the same ones again.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Iterable, Iterator
from random import Random

from pypmix import host
from pypmix.engine import groups
from pypmix.engine.python import serverside
from pypmix.standard import attrs, codes
from pypmix.standard.attr import Attr
from pypmix.standard.errors import NotSupported
from pypmix.wire.encode import flex, zigzag
from pypmix.wire.layout import Blocks, Counted, CountedEach, Field, Flagged, One, Repeated, Rest, Sentinel
from pypmix.wire.messages import COMMAND_NAMES, Layout, reply_layout, request_layout

Release = tuple[int, int, int]

RELEASES: tuple[Release, ...] = ((4, 1, 5), (4, 2, 2), (5, 0, 0), (5, 0, 11), (6, 1, 0), (7, 0, 0))
KNOWN = {each.key: each for name in attrs.__all__ if isinstance(each := getattr(attrs, name), Attr)}
KEYS = sorted(KNOWN)


def _read() -> list[str]:
    """Return the keys that servers and hosts read: the constants of their modules."""
    found: set[str] = set()
    for package in (serverside, groups, host):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            # Not what starts something when it is imported, or needs what may not be there.
            if "__main__" not in module.name:
                found.update(_strings(vars(importlib.import_module(module.name)).values()))
    return sorted(found)


def _strings(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str) and value.startswith(("pmix.", "pypmix.")) and " " not in value:
            yield value
        elif isinstance(value, frozenset | tuple):
            yield from _strings(value)
        elif isinstance(value, dict):
            yield from _strings(value.keys())


READ = _read()
UNKNOWN_TYPES = (52, 71, 100, 127, 128, 300, 65535)
NSPACE = "job"


def text(data: str) -> bytes:
    raw = data.encode("utf-8", "surrogateescape") + b"\0"
    return flex(2 * len(raw)) + raw


OWN = text(NSPACE) + b"\1"
"""The proc that sends requests."""

LEAST: dict[int, bytes] = {
    codes.BOOL: b"\1",
    codes.BYTE: b"\1",
    codes.STRING: b"\0",
    codes.SIZE: b"\1",
    codes.INT: b"\2",
    codes.INT64: b"\xff\xff\xff\xff\x01",
    codes.UINT16: b"\xff\x01",
    codes.FLOAT: b"\x041\0",
    codes.DOUBLE: b"\0",
    codes.TIMEVAL: b"\0\0",
    codes.TIME: b"\0",
    codes.STATUS: b"\0",
    codes.VALUE: b"\0",
    codes.PROC: text(NSPACE) + b"\1",
    codes.APP: b"\0" * 6,
    codes.INFO: text("a") + b"\0\0",
    codes.PDATA: text(NSPACE) + b"\0" + text("a") + b"\0",
    codes.BUFFER: b"\1\0",
    codes.BYTE_OBJECT: b"\0",
    codes.KVAL: text("a") + b"\0",
    codes.PROC_INFO: text(NSPACE) + b"\0\0\0\x0e\0\0",
    codes.DATA_ARRAY: b"\0",
    codes.QUERY: b"\0\0",
    codes.ENVAR: b"\0\0\0",
    codes.COORD: b"\0\0",
    codes.REGATTR: b"\0" + text("a") + b"\0\0",
    codes.REGEX: b"raw:\0",
    codes.GEOMETRY: b"\0" * 4,
    codes.DEVICE_DIST: b"\0" * 5,
    codes.ENDPOINT: b"\0" * 3,
    codes.PROC_NSPACE: text("n"),
    codes.PROC_STATS: b"\0" + text(NSPACE) + b"\0\x0e\0" + b"\0" * 14,
    codes.DISK_STATS: b"\0" * 12,
    codes.NODE_STATS: b"\0" * 16,
    codes.DEVICE: b"\0" * 3,
}
"""The least bytes that make a value of a type: what costs most for each byte."""

BOMBS: tuple[tuple[int, bytes], ...] = (
    *LEAST.items(),
    (codes.DATA_ARRAY, flex(codes.POINTER) + flex(4096) + b"\1"),
    (codes.DATA_ARRAY, flex(codes.POINTER) + flex(255) + b"\1"),
    (codes.DATA_ARRAY, flex(codes.PID) + b"\1\x0e\0"),
    (codes.DATA_ARRAY, b"\x0e\0"),
    (codes.VALUE, b"\1\1"),
    (codes.VALUE, b"\x27\x1f\x04\1"),
    (codes.INFO, text("a") + b"\0\x27\x1f\x04\1"),
    (codes.STRING, text("a")),
    (codes.STRING, text("\udcff")),
)


class Maker:
    """Makes messages.

    Args:
        seed: What decides all of it.
        most: About how long one may be, in bytes.
    """

    def __init__(self, seed: int, most: int) -> None:
        self.random = Random(seed)
        self.most = most

    def number(self) -> int:
        pick = self.random.choice
        return pick(
            (0, 1, 2, 3, 127, 128, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, self.random.getrandbits(16))
        )

    def name(self) -> str:
        return self.random.choice(("", "a", "k", "g", NSPACE, "other", "x" * 300, "\udcff\x1b", "a,b", "0-3", "²"))

    def key(self) -> str:
        choice = self.random.random()
        if choice < 0.9:
            return self.random.choice(READ if choice < 0.7 else KEYS)
        return self.random.choice(("k", "own", "x" * 60))

    def length(self) -> int:
        """Return how many bytes a long array has, from few to as many as may be."""
        return int(math.exp(self.random.uniform(3, math.log(self.most))))

    def bomb(self) -> bytes:
        """Return the data of an array of many equal elements, perhaps in arrays."""
        type, element = self.random.choice(BOMBS)
        for _ in range(self.random.choice((0, 0, 0, 1, 2))):
            many = self.random.choice((1, 2, 16))
            type, element = codes.DATA_ARRAY, flex(type) + flex(many) + element * many
        count = max(1, self.length() // len(element))
        return flex(type) + flex(count) + element * count

    def array(self, depth: int) -> bytes:
        if depth > 4:
            return b"\0"
        if self.random.random() < 0.05:
            return self.bomb()
        type = self.random.choice((codes.PROC, codes.INFO, codes.STRING, codes.UINT32, codes.VALUE, codes.DATA_ARRAY))
        count = self.random.choice((0, 1, 1, 2, 5))
        return flex(type) + flex(count) + b"".join([self.data(type, depth + 1) for _ in range(count)])

    def data(self, type: int, depth: int = 0) -> bytes:
        """Return some data of a type."""
        random, number = self.random, self.number()
        if type == codes.BOOL:
            return random.choice((b"\0", b"\1"))
        if type in (codes.INT, codes.INT32, codes.STATUS):
            return zigzag(random.choice((0, 1, -1, 7, -61, -2147483648, 2147483647)))
        if type in (codes.SIZE, codes.UINT64, codes.INT64):
            return flex(number)
        if type in (codes.UINT32, codes.PROC_RANK, codes.UINT):
            return flex(number & 0x7FFFFFFF if type == codes.UINT else number & 0xFFFFFFFF)
        if type == codes.STRING:
            return text(self.name())
        if type == codes.PROC:
            ranks = (0, 1, 2, 3, 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFB, 70000)
            return text(random.choice((NSPACE, NSPACE, NSPACE, "other", "g"))) + flex(random.choice(ranks))
        if type == codes.INFO:
            return self.info(depth)
        if type == codes.VALUE:
            return self.value(depth)
        if type == codes.KVAL:
            return self.kval(depth)
        if type == codes.DATA_ARRAY:
            return self.array(depth)
        if type == codes.BYTE_OBJECT:
            raw = random.randbytes(random.choice((0, 1, 20)))
            return flex(len(raw)) + raw
        if type == codes.QUERY:
            keys = [text(self.key()) for _ in range(random.choice((0, 1, 2)))]
            infos = [self.info(depth + 1) for _ in range(random.choice((0, 1, 3)))]
            return zigzag(len(keys)) + b"".join(keys) + flex(len(infos)) + b"".join(infos)
        if type == codes.APP:
            infos = [self.info(depth + 1) for _ in range(random.choice((0, 1, 2)))]
            head = text("/bin/true") + zigzag(1) + text("true") + zigzag(1) + text(random.choice(("A=B", "=", "A")))
            return head + b"\0" + zigzag(random.choice((0, 1, -1, 2**31 - 1))) + flex(len(infos)) + b"".join(infos)
        return LEAST.get(type, bytes((random.randrange(4),)))

    def value(self, depth: int = 0, key: str = "") -> bytes:
        """Return a value: of a type that fits a key, or of any."""
        random = self.random
        choice = random.random()
        known = KNOWN.get(key)
        if known is not None and choice < 0.3:
            type = int(known.types[0])
        elif choice < 0.32:
            return flex(random.choice(UNKNOWN_TYPES)) + random.randbytes(4)
        elif choice < 0.35:
            return b"\x1f\1"
        elif choice < 0.5:
            type = codes.DATA_ARRAY
        else:
            type = random.choice(tuple(LEAST))
        return flex(type) + (self.array(depth + 1) if type == codes.DATA_ARRAY else self.data(type, depth + 1))

    def info(self, depth: int = 0) -> bytes:
        key = self.key()
        return text(key) + flex(self.random.choice((0, 0, 0, 1, 8, 9))) + self.value(depth, key)

    def kval(self, depth: int = 0) -> bytes:
        key = self.random.choice(("k", "own", "bad", "pmix.qual.val", self.key()))
        return text(key) + self.value(depth, key)

    def pack(self, type: int, *data: bytes, kind: int = 1) -> bytes:
        head = zigzag(len(data)) if kind == 1 else b"\x09" + zigzag(len(data)) + flex(type)
        return head + b"".join(data)

    def kvals(self, kind: int, many: int = 4) -> bytes:
        found = [self.pack(codes.KVAL, self.kval(), kind=kind) for _ in range(self.random.randrange(many))]
        if self.random.random() < 0.1:
            found += found[-1:] * (self.length() // len(found[-1])) if found else []
        return b"".join(found)

    def _field(self, field: Field, kind: int) -> bytes:
        random = self.random
        pack = self.pack
        if isinstance(field, Blocks):
            parts = []
            for _ in range(random.choice((0, 1, 2, 2, 3))):
                block = self.kvals(kind)
                scope = bytes((random.choice((1, 2, 3, 3, 5, 7, 0, 255)),))
                held = bytes((kind,)) + flex(len(block)) + block
                parts.append(pack(codes.SCOPE, scope, kind=kind) + pack(codes.BUFFER, held, kind=kind))
            return b"".join(parts)
        if isinstance(field, Rest) or not isinstance(field, One):
            return self.kvals(kind)
        if isinstance(field, Sentinel):
            return pack(codes.SIZE, flex(random.choice((0, 7, 2**64 - 1))), kind=kind)
        if isinstance(field, Flagged):
            there = random.random() < 0.5
            return pack(codes.BOOL, b"\1" if there else b"\0", kind=kind) + (
                pack(field.type, self.data(field.type), kind=kind) if there else b""
            )
        if not isinstance(field, Counted | CountedEach | Repeated):
            return pack(field.type, self.data(field.type), kind=kind)
        element = self.data(field.type)
        count = random.choice((0, 1, 1, 2, 3))
        if random.random() < 0.03:
            found = [element] * max(1, self.length() // max(len(element), 1))
        elif field.type == codes.PROC and random.random() < 0.6:
            # Who is alone in a collective gets to its end.
            found = [OWN]
        elif field.type == codes.INFO:
            found = [self.info() for _ in range(random.choice((0, 1, 2, 4, 8)))]
        else:
            found = [self.data(field.type) for _ in range(count)]
        if isinstance(field, Counted):
            told = len(found) if random.random() < 0.98 else self.number()
            return pack(codes.SIZE, flex(told), kind=kind) + (pack(field.type, *found, kind=kind) if found else b"")
        each = b"".join([pack(field.type, item, kind=kind) for item in found])
        return each if isinstance(field, Repeated) else pack(codes.SIZE, flex(len(found)), kind=kind) + each

    def message(self, layout: Layout, kind: int) -> bytes:
        """Return a message of a layout."""
        head = b"" if layout.command is None else self.pack(codes.COMMAND, bytes((layout.command,)), kind=kind)
        fields = list(layout.fields)
        if layout.reply and fields and fields[0].name == "status" and self.random.random() < 0.8:
            head += self.pack(codes.STATUS, b"\0", kind=kind)
            fields = fields[1:]
        data = head + b"".join([self._field(field, kind) for field in fields])
        return self.broken(data) if self.random.random() < 0.2 else data

    def broken(self, data: bytes) -> bytes:
        """Return a message with a mistake in it."""
        if not data:
            return data
        random = self.random
        where = random.randrange(len(data))
        piece = random.choice((b"", b"\xff" * 9, b"\0", random.randbytes(3), data[where : where + 20] * 3))
        return (
            data[:where] if random.random() < 0.2 else data[:where] + piece + data[where + random.choice((0, 1, 4)) :]
        )

    def request(self, release: Release, kind: int) -> tuple[int, bytes]:
        """Return a command and a message with it."""
        layouts = REQUESTS[release]
        command = self.random.choice(tuple(layouts))
        return command, self.message(layouts[command], kind)

    def blob(self, kind: int) -> bytes:
        """Return what servers of another node tell."""
        raw = self.pack(codes.KVAL, self.kval(), kind=kind)
        body = b"\1" + bytes((kind,)) + b"\5\0\x0b" + text(NSPACE)[:1] + b"job" + b"\1\1\1\2\0" + flex(len(raw)) + raw
        return b"pypmix\0\1" + flex(len(body)) + body


def _found(release: Release, reply: bool) -> dict[int, Layout]:
    found: dict[int, Layout] = {}
    for command in COMMAND_NAMES:
        try:
            found[command] = (reply_layout if reply else request_layout)(command, release)
        except NotSupported:
            continue
    return found


REQUESTS = {release: _found(release, False) for release in RELEASES}
REPLIES = {release: _found(release, True) for release in RELEASES}
