"""The differences between releases of libpmix, in tables and functions over the tables.

Each constant is a fact about releases: `ATTRIBUTES`, the first release that does something right, a range of releases
that do it wrong, or a set of keys or features. The code that works around a fact asks it here and nowhere else. Facts
about one place of the server's module are in `serverside/slots.py`, about the types that a release can decode in
`wire/readers.py`, about groups in `engine/groups/foreign/`; `standard/releases.py` lists the places that a new release
of libpmix may change. `docs/how-it-works/libpmix.md` has what the engine relies on without a promise, and the tests of
it.
"""

from __future__ import annotations

from pypmix.engine.common import COMMON, TIMEOUT_GRACE
from pypmix.standard import codes, keys, statuses
from pypmix.standard.releases import OLDEST_LIBRARY
from pypmix.standard.types import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pypmix.standard.releases import Release
    from pypmix.standard.types import Info


FIRST = (keys.SESSION_INFO, keys.GET_REFRESH_CACHE)
"""Directives of a get that releases up to 5.0 see only if they come first."""

_TEXT = (codes.STRING, codes.PROC_NSPACE)
READ_BLINDLY: dict[str, tuple[int, ...]] = {
    keys.RANK: (codes.PROC_RANK,),
    keys.PROCID: (codes.PROC,),
    keys.NSPACE: _TEXT,
    keys.PARENT_ID: (codes.PROC,),
    keys.LOG_SOURCE: (codes.PROC,),
    keys.DEVICE_ID: _TEXT,
    keys.CLIENT_ATTRIBUTES: _TEXT,
    keys.SERVER_ATTRIBUTES: _TEXT,
    keys.TOOL_ATTRIBUTES: _TEXT,
    keys.HOST_ATTRIBUTES: _TEXT,
}
"""The types of infos whose values releases read as pointers without checking the type."""

ATTRIBUTES: Release = (4, 2, 5)
"""The first release that does not crash on a query for supported attributes."""

SINGLE_KEYS: Release = (5, 0, 0)
"""The first release whose queries may have several keys each."""

DENYING: Release = (5, 0, 0)
"""The first release whose server does not deny a value that a proc of its node commits while a get is in progress.

Earlier releases keep values for clients of the node in shared memory, and values for other nodes in a table. A get that
arrives after the commit is looked up in the table, found there, and denied as out of its scope.
"""

ONE_STORE: Release = (7, 0, 0)
"""The first release whose server finds each proc's data, whichever stores its clients have chosen.

An earlier server looks for data in the store of the client that asks. Shared memory is such a store. It does not have
the data of a job whose clients do not use it: a connect of that job with a job that uses it fails (4.2), or the server
reads from a null pointer (5.0 to 6.1). So all clients of such a server use the store that every client has.
"""

RESOLVING: Release = (5, 0, 7)
"""The first release that requests the procs of a node and the nodes of a job from the server without hanging."""

FEATURES: dict[str, Release] = {
    **dict.fromkeys(COMMON, OLDEST_LIBRARY),
    "get.refresh": (5, 0, 11),
    "query.attributes": ATTRIBUTES,
}
"""The features of this engine, and the first release of the library that has each feature."""

NOT_ALONE = frozenset(
    {
        "publish",
        "lookup",
        "lookup.wait",
        "unpublish",
        "log",
        "job_control",
        "allocation_request",
        "process_monitor",
        "heartbeat",
        "get_credential",
        "validate_credential",
        "output",
        "input",
        "fabric_register",
        "fabric_update",
        "spawn",
        "connect",
        "disconnect",
        "group_construct",
        "group_destruct",
        "abort",
    }
)
"""The features that need a server, so that a singleton lacks them."""

FABRIC_ERRORS: Release = (7, 0, 0)
"""The first release that returns a server's error for a fabric's registration, instead of success."""

SERVER_BY_SERVER: Release = (7, 0, 0)
"""The first release that remembers, for each of a tool's servers, the codes that it has registered there."""

RAISED_TWICE: tuple[tuple[Release, Release], ...] = ((OLDEST_LIBRARY, (5, 0, 10)), ((6, 0, 0), (6, 1, 0)))
"""The releases, from each first to before each second, that raise a tool's event a second time, as a server.

The tool's handlers get the event twice, and the library calls back twice for the call.
"""

SHIFTED: Release = (7, 0, 0)
"""The first release that raises events on its progress thread, the only thread that uses its handlers."""

ANSWERED_TWICE = 1 << 40
RAISED_ANYWHERE = 1 << 41
"""The flags of the library that the shim gets with an event: see `events.c`."""

ENDS_ALONE: Release = (7, 0, 0)
"""The first release that can finalize a tool that has left its last server; earlier releases free memory twice."""

EVENTS_OF_THE_LIBRARY = frozenset(range(statuses.GROUP_MEMBER_FAILED, statuses.GROUP_INVITED + 1))
"""The codes of groups, which the library's own invitations need: a handler of ours must not end their chain.

Releases before 7 keep their handlers in one chain with the process's handlers, and an earlier handler can end it.
"""


def check_types(infos: Sequence[Info]) -> None:
    """Raise `TypeError` if a release would read the value of an info as another type."""
    for key, value, _ in infos:
        wanted = READ_BLINDLY.get(key)
        if wanted is not None and (value[0] not in wanted or value[1] is None):
            given = type_name(value[0]) if value[1] is not None else "string without contents"
            raise TypeError(f"the value of {key!r} is a {type_name(wanted[0])}, not a {given}")


def last_start(release: Release, env: Mapping[str, str]) -> str:
    """Return the reason why a library cannot be initialised after it was finalized; empty if it can."""
    if (5, 0, 9) <= release < (7, 0, 0):
        return "it was finalized, and a second start would corrupt its memory"
    if release < (5, 0, 0) and env.get("PMIX_GDS_MODULE", "").startswith("ds"):
        return "it was finalized, and with that the job info in the server's shared memory is gone"
    return ""


def raises_twice(release: Release) -> bool:
    """Return True if a library calls a tool back twice for each event that it raises."""
    return any(first <= release < fixed for first, fixed in RAISED_TWICE)


def ordered(directives: Sequence[Info]) -> list[Info]:
    """Return a get's directives in an order in which every release sees them."""
    return sorted(directives, key=lambda info: info.key not in FIRST)


def deadline(directives: Sequence[Info], key: str = keys.TIMEOUT) -> float:
    """Return the seconds after which the engine ends an operation itself; -1 if no timeout was given."""
    for info in directives:
        if info.key == key and isinstance(info.value.data, int) and info.value.data > 0:
            return min(info.value.data, 1 << 31) + TIMEOUT_GRACE
    return -1.0


def numeric(release: Release) -> int:
    """Return PMIX_VERSION_NUMERIC of a release; libpmix provides it itself from 5.0 on."""
    return release[0] << 16 | release[1] << 8 | release[2]
