"""The pieces of C structures: strings, procs, bytes, and the objects of hwloc.

Memory is allocated with malloc and starts zeroed; every piece is attached to its parent before it is filled, so that
all pieces can be freed together after a failure.
"""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib
from pypmix.standard import structures
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.types import Proc, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


NULL = ffi.NULL


def text(name: str) -> bytes:
    """Return the bytes of a name or string in libpmix."""
    return name.encode() if name.isascii() else name.encode("utf-8", "surrogateescape")


def string(pointer: Any) -> str | None:
    """Return the Python string of a C string; None for NULL."""
    if not pointer:
        return None
    return str(ffi.string(pointer).decode("utf-8", "surrogateescape"))


def alloc(kind: int, count: int, pointer: str) -> Any:
    memory = lib.pypmix_alloc(count, lib.pypmix_size_of(kind))
    if not memory:
        raise MemoryError(f"no memory for {count} elements of {type_name(kind)}")
    return ffi.cast(pointer, memory)


def copy_text(data: str | None) -> Any:
    if data is None:
        return NULL
    encoded = text(data)
    if b"\0" in encoded:
        raise ValueError(f"a C string cannot hold a NUL character: {data!r:.80}")
    return copy_bytes(encoded)


def fill_strings(target: Any, field: str, items: Sequence[str]) -> None:
    """Create a list of strings with a NULL at the end; without strings, leave the field NULL."""
    # Some releases cannot handle an empty list.
    if not items:
        return
    memory = lib.pypmix_alloc(len(items) + 1, ffi.sizeof("char *"))
    if not memory:
        raise MemoryError(f"no memory for {len(items)} strings")
    strings = ffi.cast("char **", memory)
    setattr(target, field, strings)
    for n, item in enumerate(items):
        strings[n] = copy_text(item)


def get_strings(strings: Any) -> tuple[str, ...]:
    found = []
    if strings:
        n = 0
        while strings[n]:
            found.append(string(strings[n]) or "")
            n += 1
    return tuple(found)


def put_name(target: Any, name: str) -> None:
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) >= len(target):
        raise ValueError(f"a name of {len(encoded)} bytes is longer than {len(target) - 1}: {name[:40]!r}...")
    ffi.memmove(target, encoded, len(encoded))


def get_name(source: Any) -> str:
    return str(ffi.string(source).decode("utf-8", "surrogateescape"))


def put_proc(target: Any, proc: Proc) -> None:
    put_name(target.nspace, proc[0])
    target.rank = proc[1]


def get_proc(source: Any) -> Proc:
    return Proc.unchecked(ffi.string(source.nspace).decode("utf-8", "surrogateescape"), source.rank)


def copy_bytes(data: bytes) -> Any:
    copy = lib.pypmix_copy(data, len(data))
    if not copy:
        raise MemoryError(f"no memory for {len(data)} bytes")
    return copy


def put_object(target: Any, data: bytes) -> None:
    if data:
        target.bytes = copy_bytes(data)
        target.size = len(data)


def get_object(source: Any) -> bytes:
    return bytes(ffi.buffer(source.bytes, source.size)) if source.bytes and source.size else b""


def put_cpuset(target: Any, data: structures.Cpuset) -> None:
    if data.cpus is None:
        raise NotSupported("libpmix has no cpuset without CPUs to put")
    status = lib.pypmix_parse_cpuset(b"hwloc:" + text(data.cpus), ffi.addressof(target))
    if status:
        raise NotSupported(f"the library does not take the cpuset {data.cpus!r}", status=status)
    if data.cpus and get_cpuset(target).cpus == "":
        # The library accepts any text, and the cpuset is empty then.
        raise ValueError(f"{data.cpus!r} is not a list of CPUs such as '0-3,8'")


def get_cpuset(source: Any) -> structures.Cpuset:
    made = lib.pypmix_cpuset_text(ffi.addressof(source))
    found = string(made)
    lib.pypmix_release(made)
    return structures.Cpuset(None if found is None else found.partition(":")[2])


def put_topology(target: Any, data: structures.Topology) -> None:
    if data.xml is None:
        raise NotSupported("libpmix has no topology without contents to put")
    status = lib.pypmix_topology_load(text(data.xml), data.support, len(data.support), ffi.addressof(target))
    if status:
        raise NotSupported("the library does not take this topology: it is not XML of this release of hwloc")


def get_topology(source: Any) -> structures.Topology:
    if not source.topology:
        return structures.Topology(None)
    xml, support = ffi.new("char **"), ffi.new("pmix_byte_object_t *")
    status = lib.pypmix_topology_text(ffi.addressof(source), xml, support)
    if status:
        raise PMIxError("the library cannot tell what a topology holds", status=status)
    found = structures.Topology(string(xml[0]), get_object(support))
    lib.pypmix_release(xml[0])
    lib.pypmix_release(support.bytes)
    return found


def put_separator(target: Any, field: str, separator: str) -> None:
    encoded = separator.encode("latin-1", "replace") or b"\0"
    if len(encoded) != 1:
        raise ValueError(f"the separator of an environment variable is one character, not {separator!r}")
    setattr(target, field, encoded)
