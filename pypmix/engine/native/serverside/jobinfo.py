"""A job's info in the form that `PMIx_server_register_nspace` takes."""

from __future__ import annotations

from pypmix.standard import codes, keys
from pypmix.standard.jobinfo import known_infos
from pypmix.standard.types import DataArray, Info, Value
from pypmix.wire.readers import fit_infos, rule_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.releases import Release


def infos_of(job: JobInfo, release: Release) -> list[Info]:
    """Return a job's info for a library of this release.

    Infos with keys that the library does not know are left out, because they make it drop all later infos. So are
    infos that it cannot decode, or cannot send to its older clients, which it would refuse. The maps of nodes and procs
    are not included: the arrays of the nodes and procs contain their data already, and the library would add guesses.
    """
    found = known_infos(job.job, release)
    for key, groups in (
        (keys.SESSION_INFO_ARRAY, job.sessions),
        (keys.NODE_INFO_ARRAY, job.nodes),
        (keys.APP_INFO_ARRAY, job.apps),
    ):
        found += [_array(key, known_infos(group, release)) for group in groups]
    for rank, group in job.procs:
        first = Info.unchecked(keys.RANK, Value.unchecked(codes.PROC_RANK, rank), 0)
        found.append(_array(keys.PROC_INFO_ARRAY, [first, *known_infos(group, release)]))
    return list(fit_infos(found, rule_of(release)))


def size_of(job: JobInfo) -> int:
    """Return the number of a job's procs."""
    for info in job.job:
        if info.key == keys.JOB_SIZE and isinstance(info.value.data, int):
            return info.value.data
    return len(job.procs)


def _array(key: str, infos: list[Info]) -> Info:
    return Info.unchecked(key, Value.unchecked(codes.DATA_ARRAY, DataArray(codes.INFO, tuple(infos))), 0)
