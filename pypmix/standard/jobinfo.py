"""Job-level information: what a server tells its clients about an nspace when they connect."""

from __future__ import annotations

from pypmix.standard.record import Record
from pypmix.standard.types import Info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.standard.releases import Release

_RESERVED = "pmix"


class JobInfo(Record):
    """The job info of one nspace, level by level.

    Args:
        nspace: The namespace.
        job: What holds for the whole job (`attrs.JOB_SIZE`, `attrs.UNIV_SIZE`, ...).
        nodes: One tuple of infos per node (`attrs.HOSTNAME`, `attrs.LOCAL_PEERS`, ...).
        apps: One tuple per application (`attrs.APPNUM`, `attrs.APP_SIZE`, ...).
        sessions: One tuple per session (`attrs.SESSION_ID`, ...).
        procs: Pairs of a rank and its infos (`attrs.LOCAL_RANK`, `attrs.NODEID`, ...).
    """

    nspace: str
    job: tuple[Info, ...] = ()
    nodes: tuple[tuple[Info, ...], ...] = ()
    apps: tuple[tuple[Info, ...], ...] = ()
    sessions: tuple[tuple[Info, ...], ...] = ()
    procs: tuple[tuple[int, tuple[Info, ...]], ...] = ()


def known_infos(given: Iterable[Info], release: Release) -> list[Info]:
    """Return those infos whose keys a library of this release takes, under the keys that it uses.

    One reserved key that its dictionary lacks makes a native library drop all that follows.
    """
    from pypmix.standard.attrs import by_key

    found = []
    for info in given:
        key, value, flags = info
        if not key.startswith(_RESERVED):
            found.append(info)
            continue
        attr = by_key(key)
        if attr is not None and attr.known_to(release):
            own = attr.key_for(release)
            found.append(info if own == key else Info.unchecked(own, value, flags))
    return found
