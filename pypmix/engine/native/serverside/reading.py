"""The arrays of an upcall."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pypmix.engine.native.serversession import NativeServer
    from pypmix.standard.types import Info


def infos_of(server: NativeServer, raw: Any) -> tuple[Info, ...]:
    """Return the infos of an upcall."""
    return directives_of(server, raw.infos)


def directives_of(server: NativeServer, array: Any) -> tuple[Info, ...]:
    """Return the infos of an array."""
    return server.marshal.results(array) if array.size else ()


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
