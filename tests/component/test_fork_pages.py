"""The pages that forked processes write to: learnt from one of them, and copied for the others by one call."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
from collections.abc import Callable

import pytest

from pypmix.host.forking import pages

COUNT = 300


class Memory:
    """Pages that a process has, of which its children write to every other one."""

    def __init__(self, count: int = COUNT) -> None:
        self._map = mmap.mmap(-1, 2 * count * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # A large page would be copied as one.
        self._map.madvise(mmap.MADV_NOHUGEPAGE)
        self._map[:] = b"x" * len(self._map)

    def write(self, first: int = 0) -> None:
        for place in range(first * mmap.PAGESIZE, len(self._map), 2 * mmap.PAGESIZE):
            self._map[place] = 0


def supported() -> bool:
    """Tell whether this system copies pages of the calling process by one call."""
    with mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        held = ctypes.c_char.from_buffer(page)
        area = (ctypes.c_size_t * 2)(ctypes.addressof(held), mmap.PAGESIZE)
        call = ctypes.CDLL(None).syscall
        call.restype = ctypes.c_long
        done = call(*map(ctypes.c_long, (440, -10000)), area, *map(ctypes.c_long, (1, 23, 0)))
        del held
    return int(done) == mmap.PAGESIZE


def in_child(act: Callable[[], int]) -> int:
    """Return what a function returns in a child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writer, str(act()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        found = int(file.read())
    os.waitpid(pid, 0)
    return found


def faults(memory: Memory, copy: Callable[[], int], first: int = 0) -> int:
    """Return how many pages are copied one by one when the memory is written to, after another function has run."""
    copy()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    memory.write(first)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_what_one_child_has_written_to_is_copied_for_the_others() -> None:
    memory = Memory()
    copy = pages.learn(memory.write)
    assert (copy is not None) is supported()
    if copy is None:
        return
    assert in_child(lambda: faults(memory, lambda: 0)) >= COUNT
    assert in_child(lambda: faults(memory, copy)) < COUNT // 4
    assert in_child(lambda: faults(memory, copy, 1)) >= COUNT, "the pages between are not copied"


def test_of_more_ranges_than_a_call_takes_those_are_copied_that_it_takes() -> None:
    assert (pages.learn(Memory(2000).write) is not None) is supported()


def _fails() -> None:
    raise OSError("it cannot be done")


@pytest.mark.parametrize("act", [_fails, lambda: os._exit(1)], ids=["raises", "exits"])
def test_nothing_is_copied_where_the_child_fails(act: Callable[[], None], capfd: pytest.CaptureFixture[str]) -> None:
    files = os.listdir("/proc/self/fd")
    assert pages.learn(act) is None
    assert os.listdir("/proc/self/fd") == files
    assert capfd.readouterr() == ("", "")


def test_nothing_is_copied_where_the_system_does_not_tell_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_areas: object) -> bytes:
        raise PermissionError("/proc/self/pagemap")

    monkeypatch.setattr(pages, "_own", refused)
    assert pages.learn(Memory().write) is None


def test_nothing_is_copied_where_the_system_has_no_such_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the many places that a system can lack it, this one."""
    monkeypatch.setattr(pages, "_MADVISE", 1 << 20)
    assert pages.learn(Memory().write) is None
