"""Where each upcall stands in a release's server module, and which of them stay empty."""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.standard.releases import Release

COMMON = 28
"""The upcalls that every release has, in the same places: up to `client_connected2`."""

LATER: tuple[tuple[Release, tuple[int, ...]], ...] = (
    (
        (6, 0, 0),
        (
            lib.PYPMIX_UP_TOOL_CONNECTED2,
            lib.PYPMIX_UP_LOG2,
            lib.PYPMIX_UP_SESSION_CONTROL,
            lib.PYPMIX_UP_RESOURCE_BLOCK,
        ),
    ),
    ((5, 0, 0), (lib.PYPMIX_UP_SESSION_CONTROL,)),
)
"""The slots after these, from each release on, newest first.

The place behind `client_connected2` belongs to another upcall in 5.0 than from 6 on, under one soname.
"""

EMPTY = (lib.PYPMIX_UP_LISTENER, lib.PYPMIX_UP_CLIENT_CONNECTED)
"""Slots that our hosts leave empty: listening for connections, and old forms of upcalls that all have a newer one."""

REPLACED = {
    lib.PYPMIX_UP_TOOL_CONNECTED: lib.PYPMIX_UP_TOOL_CONNECTED2,
    lib.PYPMIX_UP_LOG: lib.PYPMIX_UP_LOG2,
}
"""Upcalls that stay empty where their newer form is there."""

TOLD: dict[int, tuple[Release, Release]] = {
    lib.PYPMIX_UP_NOTIFY_EVENT: ((4, 2, 0), (5, 0, 5)),
    lib.PYPMIX_UP_GROUP: ((4, 2, 3), (6, 0, 0)),
    lib.PYPMIX_UP_IOF_PULL: ((4, 2, 0), (7, 0, 1)),
}
"""Upcalls whose answers releases, from the first to before the second, cannot take, and are told success at once.

They have freed by then what an answer would go to; or, for the destruct of a group of this server's clients alone, ask
a second time where it does not come at once.
"""

UNREFUSED: dict[int, Release] = {lib.PYPMIX_UP_TOOL_CONNECTED: (6, 0, 0)}
"""Upcalls that releases before these crash over when the host refuses: they are left without an answer instead."""


def places(release: Release) -> list[int]:
    """Return the place of each upcall in the module, counted in pointers; -1 for those that stay empty.

    Those whose answers the release does not take are marked by a flag.
    """
    later: tuple[int, ...] = next((upcalls for first, upcalls in LATER if release >= first), ())
    found = [-1] * int(lib.PYPMIX_UPS)
    found[:COMMON] = range(COMMON)
    for place, upcall in enumerate(later, COMMON):
        found[upcall] = place
    for upcall in EMPTY:
        found[upcall] = -1
    for old, new in REPLACED.items():
        if found[new] >= 0:
            found[old] = -1
    for upcall, (first, fixed) in TOLD.items():
        if first <= release < fixed:
            found[upcall] |= int(lib.PYPMIX_UP_TOLD)
    for upcall, fixed in UNREFUSED.items():
        if release < fixed:
            found[upcall] |= int(lib.PYPMIX_UP_UNREFUSED)
    return found


def slots(release: Release) -> Any:
    """Return `places` as the shim takes them."""
    return ffi.new("int[]", places(release))
