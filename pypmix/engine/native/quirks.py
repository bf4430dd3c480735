"""What releases of libpmix do each in their own way, so that sessions need not: tables, and rules over them."""

from __future__ import annotations

from pypmix.engine.native.library import OLDEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pypmix.standard.releases import Release
    from pypmix.standard.types import Info

TIMEOUT = "pmix.timeout"
REFRESH = "pmix.get.refresh"
VERSION_NUMERIC = "pmix.vers.num"
RANK = "pmix.rank"

FIRST = ("pmix.ssn.info", REFRESH)
"""Directives of a get that releases up to 5.0 see only in the first place."""

FEATURES: dict[str, Release] = {
    "put": OLDEST,
    "commit": OLDEST,
    "fence": OLDEST,
    "fence.collect": OLDEST,
    "fence.timeout": OLDEST,
    "get": OLDEST,
    "get.timeout": OLDEST,
    "get.immediate": OLDEST,
    "get.refresh": (5, 0, 0),
    "publish": OLDEST,
    "lookup": OLDEST,
    "lookup.wait": OLDEST,
    "unpublish": OLDEST,
    "abort": OLDEST,
    "finalize": OLDEST,
}
"""What works with this engine, and the first release of a library with which it does."""

NOT_ALONE = frozenset({"publish", "lookup", "lookup.wait", "unpublish", "abort"})
"""What needs a server, so that a singleton does not have it."""

GRACE = 0.5
"""What the library's own answer to a timeout may take, in seconds, before the engine gives its own."""


def last_start(release: Release, env: Mapping[str, str]) -> str:
    """Return why a library cannot be initialised after it was finalized; empty where it can."""
    if (5, 0, 9) <= release < (7, 0, 0):
        return "it was finalized, and a second start would corrupt its memory"
    if release < (5, 0, 0) and env.get("PMIX_GDS_MODULE", "").startswith("ds"):
        return "it was finalized, and with that the job info in the server's shared memory is gone"
    return ""


def ordered(directives: Sequence[Info]) -> list[Info]:
    """Return a get's directives in an order in which every release sees them."""
    return sorted(directives, key=lambda info: info.key not in FIRST)


def deadline(directives: Sequence[Info]) -> float:
    """Return the seconds after which the engine ends an operation itself; -1 where no timeout was given."""
    for info in directives:
        if info.key == TIMEOUT and isinstance(info.value.data, int) and info.value.data > 0:
            return info.value.data + GRACE
    return -1.0


def numeric(release: Release) -> int:
    """Return PMIX_VERSION_NUMERIC of a release, which libpmix from 5.0 on tells of itself."""
    return release[0] << 16 | release[1] << 8 | release[2]
