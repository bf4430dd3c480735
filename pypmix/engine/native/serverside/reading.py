"""The arrays of an upcall, without what the library has put into them for itself."""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi
from pypmix.engine.native.marshal import plain
from pypmix.standard.errors import SUCCESS
from pypmix.standard.types import Info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pypmix.engine.native.serversession import NativeServer

LOCAL_STATUS = b"pmix.loc.col.st"

INTERNAL = frozenset(
    {
        b"pmix.euid",
        b"pmix.egid",
        b"pmix.sorted.parr",
        b"pmix.srvr.internal.notify",
    }
)
"""What libraries add: who asks, which the upcall says, and notes to themselves."""


def infos_of(server: NativeServer, raw: Any) -> tuple[Info, ...]:
    """Return the infos of an upcall."""
    return directives_of(server, raw.infos)


def directives_of(server: NativeServer, array: Any) -> tuple[Info, ...]:
    """Return the infos of an array.

    How the local part of a collective went is said only where it went wrong, since the others have to know that.
    """
    found = []
    read = server.marshal.read
    items = ffi.cast("pmix_info_t *", array.array)
    for n in range(array.size):
        item = items[n]
        key = ffi.string(item.key)
        if key in INTERNAL or (key == LOCAL_STATUS and item.value.data.status == SUCCESS):
            continue
        name = key.decode("utf-8", "surrogateescape")
        found.append(Info.unchecked(name, plain(read(item.value)), item.flags))
    return tuple(found)


def items_of(server: NativeServer, array: Any) -> tuple[Any, ...]:
    """Return the elements of an array."""
    return server.marshal.results(array) if array.size else ()


def merged(infos: Iterable[Info]) -> tuple[Info, ...]:
    """Return each info once: the library hands over those of all local participants, one after the other."""
    found: list[Info] = []
    for info in infos:
        if info not in found:
            found.append(info)
    return tuple(found)
