"""The pages of memory that ranks write to, copied for each of them by one call instead of one fault after the other.

A child shares all memory with the process that has forked it, and the system copies a page when one of both first
writes to it. Which pages those are is nearly the same for all ranks, since they begin with the same: so one child does
that for the others, and tells which pages it has then for itself. This only saves time: a page that is not among them
is copied when it is written to, and one that was not needed costs as much as a copy.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY = 8
"""The size of what `/proc/self/pagemap` says of a page."""
_OWN = b"\x81"
"""The highest byte of that: there, of no file, and mapped by this process alone."""
_RANGE = struct.Struct("NN")
"""An address and a size (`struct iovec`)."""
_RANGES = 1024
"""The most ranges that the system takes in one call."""
_MADVISE, _SELF, _POPULATE_WRITE = 440, 10000, 23
"""`process_madvise`, of the process that calls it (`-PIDFD_SELF`), with `MADV_POPULATE_WRITE`: since Linux 6.14."""


def learn(act: Callable[[], object]) -> Callable[[], int] | None:
    """Have a child act as all others will, and return what copies the pages that it has written to.

    Returns:
        A function for each of the other children, which returns the number of bytes; None where this system has none.
    """
    try:
        import ctypes

        call = ctypes.CDLL(None).syscall
        found = _written(act)
    except (ImportError, OSError, AttributeError):
        return None
    long = ctypes.c_long
    call.restype = long
    ranges = ctypes.create_string_buffer(found, len(found))
    # Made once: a child that makes them writes to more pages.
    given = long(_MADVISE), long(-_SELF), ranges, long(len(found) // _RANGE.size), long(_POPULATE_WRITE), long(0)

    def copy() -> int:
        return int(call(*given))

    return copy if copy() > 0 else None


def _written(act: Callable[[], object]) -> bytes:
    """Return the ranges that a child has written to when it has acted, as the system takes them; empty if it failed."""
    areas = _areas()
    reader, writer = os.pipe()
    try:
        pid = os.fork()
        if not pid:
            try:
                act()
                os.write(writer, _own(areas))
            finally:
                os._exit(0)
        os.close(writer)
        writer = -1
        found = b""
        while piece := os.read(reader, 1 << 16):
            found += piece
        os.waitpid(pid, 0)
        return found
    finally:
        for fd in (reader, writer):
            if fd >= 0:
                os.close(fd)


def _areas() -> list[tuple[int, int]]:
    """Return where this process may write to memory of its own: the first page of each area, and its pages."""
    areas = []
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            where, rights = line.split(None, 2)[:2]
            if rights[1:2] + rights[3:] == b"wp":
                begin, end = [int(word, 16) // _PAGE for word in where.split(b"-")]
                areas.append((begin, end - begin))
    return areas


def _own(areas: list[tuple[int, int]]) -> bytes:
    """Return the ranges of pages that no other process has, as the system takes them."""
    fd = os.open("/proc/self/pagemap", os.O_RDONLY)
    # All is read before anything is made of it, which takes memory.
    entries = [os.pread(fd, size * _ENTRY, begin * _ENTRY) for begin, size in areas]
    ranges = []
    for (begin, _), words in zip(areas, entries, strict=True):
        states = words[_ENTRY - 1 :: _ENTRY]
        first = states.find(_OWN)
        while first >= 0:
            rest = states[first:]
            size = len(rest) - len(rest.lstrip(_OWN))
            ranges.append(_RANGE.pack((begin + first) * _PAGE, size * _PAGE))
            first = states.find(_OWN, first + size)
    return b"".join(ranges[:_RANGES])
