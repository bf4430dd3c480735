"""A report on a host for a person: the pending operations, and the state of each rank."""

from __future__ import annotations

from pypmix.host.outcome import listed, pending_text
from pypmix.host.rank import CONNECTED, FINALIZED, STARTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pypmix.host.manager import Manager
    from pypmix.host.running import RunningJob

STAGES = (
    (STARTED, "running without having initialized"),
    (CONNECTED, "initialized and not finalized"),
    (FINALIZED, "finalized and not ended"),
)


def unfinished(
    host: Manager,
    several: Callable[[Sequence[str]], str] = listed,
    jobs: Mapping[str, RunningJob] | None = None,
) -> list[str]:
    """Return a line for each pending operation, and a line for each stage in which ranks are.

    Args:
        host: The host.
        several: Joins the names of ranks to one text.
        jobs: The jobs to report on, by nspace; all by default.
    """
    pending = host.pending()
    if jobs is None:
        jobs = host.jobs
    else:
        pending = [item for item in pending if any(proc.nspace in jobs for proc in (*item.arrived, *item.missing))]
    lines = pending_text(pending, host.name_for_person, host.only_job)
    ranks = [rank for job in jobs.values() for rank in job.ranks if rank.alive]
    for stage, text in STAGES:
        names = [str(rank) for rank in ranks if rank.stage == stage]
        if names:
            lines.append(f"{text}: {several(names)}")
    lines += [f"{job}: {text}" for job in jobs.values() for each in job.launches if (text := each.wait_text())]
    return lines + [line for node in host.nodes for line in node.troubles()]


def report(host: Manager, jobs: Mapping[str, RunningJob] | None = None) -> str:
    """Return all pending operations and the state of every rank, of all jobs or of some, as text of several lines."""
    chosen = list((host.jobs if jobs is None else jobs).values())
    ranks = sum([len(job.ranks) for job in chosen])
    running = sum([job.running for job in chosen])
    lines = [f"{running} of {ranks} rank{'s run' if ranks != 1 else ' runs'}"]
    lines += unfinished(host, ", ".join, jobs)
    lines += [rank.end() for job in chosen for rank in job.ranks if rank.pid and not rank.alive]
    return "\n  ".join(lines)
