"""Job-level information, which a server sends to new clients of an nspace."""

from __future__ import annotations

from pypmix.standard.record import Record
from pypmix.standard.types import Info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from pypmix.standard.releases import Release

    class JobDescription(Protocol):
        """A job that makes its job info, as `pypmix.host.JobLayout` does."""

        @property
        def nspace(self) -> str: ...

        def info(self) -> JobInfo: ...


_RESERVED = "pmix"


class JobInfo(Record):
    """The job info of one nspace, level by level.

    Args:
        nspace: The namespace.
        job: The infos of the whole job (`attrs.JOB_SIZE`, `attrs.UNIV_SIZE`, ...).
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


def known_infos(infos: Iterable[Info], release: Release) -> list[Info]:
    """Return the infos whose keys a library of this release knows, under its names of the keys."""
    # A single reserved key that is not in its dictionary makes a native library drop all later infos.
    found = []
    for info in infos:
        key, value, flags = info
        own = _known.get((key, release))
        if own is None:
            own = _key_for(key, release)
        if own == key:
            found.append(info)
        elif own:
            found.append(Info.unchecked(own, value, flags))
    return found


_MOST = 1024

_known: dict[tuple[str, Release], str] = {}
"""The keys in releases, kept because all procs of a job have infos with equal keys."""


def _key_for(key: str, release: Release) -> str:
    """Return a release's name of a key; empty if it does not know the key."""
    own = key
    if key.startswith(_RESERVED):
        from pypmix.standard.attrs import by_key

        attr = by_key(key)
        own = attr.key_for(release) if attr is not None and attr.known_to(release) else ""
    if len(_known) >= _MOST:
        _known.clear()
    _known[key, release] = own
    return own
