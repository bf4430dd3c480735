"""Job-level information: what a server tells its clients about an nspace when they connect."""

from __future__ import annotations

from pypmix.standard.record import Record
from pypmix.standard.types import Info


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
