"""A report on a host for a person: the pending operations, and the state of each rank."""

from __future__ import annotations

from pypmix.host.outcome import listed, pending_text
from pypmix.host.rank import CONNECTED, FINALIZED, STARTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pypmix.host.manager import Manager
    from pypmix.standard.types import Proc

STAGES = (
    (STARTED, "running without having initialized"),
    (CONNECTED, "initialized and not finalized"),
    (FINALIZED, "finalized and not ended"),
)


def unfinished(
    host: Manager, who: Callable[[Proc], str], several: Callable[[Sequence[str]], str] = listed
) -> list[str]:
    """Return a line for each pending operation, and a line for each stage in which ranks are.

    Args:
        host: The host.
        who: Returns the name of a proc for a person.
        several: Joins the names of ranks to one text.
    """
    lines = pending_text(host.pending(), who, host.only_job)
    ranks = [rank for job in host.jobs.values() for rank in job.ranks if rank.alive]
    for stage, text in STAGES:
        names = [str(rank) for rank in ranks if rank.stage == stage]
        if names:
            lines.append(f"{text}: {several(names)}")
    lines += [f"{job}: {text}" for job in host.jobs.values() for each in job.launches if (text := each.wait_text())]
    return lines + [line for node in host.nodes for line in node.troubles()]


def report(host: Manager, who: Callable[[Proc], str]) -> str:
    """Return all pending operations and the state of every rank, as text of several lines."""
    jobs = list(host.jobs.values())
    ranks = sum([len(job.ranks) for job in jobs])
    lines = [f"{host.running} of {ranks} rank{'s run' if ranks != 1 else ' runs'}"]
    lines += unfinished(host, who, ", ".join)
    lines += [rank.end() for job in jobs for rank in job.ranks if rank.pid and not rank.alive]
    return "\n  ".join(lines)
