"""The place of each upcall in a release's server module, and the places that stay empty."""

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
"""The slots after the common slots, from each release on, newest first.

The slot after `client_connected2` is for one upcall in 5.0 and for another from 6 on, under the same soname.
"""

EMPTY = (lib.PYPMIX_UP_LISTENER, lib.PYPMIX_UP_CLIENT_CONNECTED)
"""The slots that pypmix leaves empty: listening for connections, and old upcalls that have newer forms everywhere."""

REPLACED = {
    lib.PYPMIX_UP_TOOL_CONNECTED: lib.PYPMIX_UP_TOOL_CONNECTED2,
    lib.PYPMIX_UP_LOG: lib.PYPMIX_UP_LOG2,
}
"""The upcalls that stay empty if the release has their newer form."""

TOLD: dict[int, tuple[Release, Release]] = {
    lib.PYPMIX_UP_NOTIFY_EVENT: ((4, 2, 0), (5, 0, 5)),
    lib.PYPMIX_UP_GROUP: ((4, 2, 3), (6, 0, 0)),
    lib.PYPMIX_UP_IOF_PULL: ((4, 2, 0), (7, 0, 1)),
}
"""The upcalls whose later answers releases, from the first to before the second, cannot take.

The shim answers them with success at once, since the releases free the object that a later answer needs. Of groups,
this is only for the destruct of a group of this server's clients alone: the releases call a second time if the answer
does not come at once.
"""

UNREFUSED: dict[int, Release] = {lib.PYPMIX_UP_TOOL_CONNECTED: (6, 0, 0)}
"""The upcalls that crash a release before the given one if the host refuses: they get no answer instead."""


def places(release: Release) -> list[int]:
    """Return the place of each upcall in the module, counted in pointers; -1 for upcalls that stay empty.

    Flags mark the upcalls that are answered with success at once, and the upcalls that must not be refused.
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
    """Return `places` as an array for the shim."""
    return ffi.new("int[]", places(release))
