"""The names of procs for people: in errors, reports and tables.

Within one job a proc is "rank 1", and several are "ranks 1, 3 to 5". If procs of other jobs are involved, all are
written whole, as `NSPACE:1` and `NSPACE:0-3,7`.
"""

from __future__ import annotations

from pypmix.standard.types import RANK_LOCAL_NODE, RANK_LOCAL_PEERS, RANK_VALID, RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN = 16
"""The number of single ranks and spans that a text names; of further ones it gives the number."""

_SPECIAL = {
    RANK_WILDCARD: "all ranks of this job",
    RANK_LOCAL_NODE: "the ranks on this node",
    RANK_LOCAL_PEERS: "the ranks of this job on this node",
}


def find_runs(ranks: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last of the ranks that follow each other, in ascending order."""
    found: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if found and rank == found[-1][1] + 1:
            found[-1] = found[-1][0], rank
        else:
            found.append((rank, rank))
    return found


def name_ranks(ranks: Iterable[int]) -> str:
    """Return ranks of one job as a person reads them: `rank 2`, `ranks 1, 3 to 5`, `no rank`."""
    runs = find_runs(ranks)
    if not runs:
        return "no rank"
    return name_spans([str(first) if first == last else f"{first}-{last}" for first, last in runs])


def name_spans(spans: list[str]) -> str:
    """Return ranks of one job that are given as spans, such as `1` and `3-5`, as a person reads them."""
    plural = "s" if len(spans) > 1 or "-" in spans[0] else ""
    return f"rank{plural} {_join([span.replace('-', ' to ') for span in spans])}"


def name_proc(proc: Proc, job: str = "") -> str:
    """Return a proc as a person reads it: `rank 1`, or `NSPACE:1` if it is not of the reader's job.

    Args:
        proc: The proc; with a special rank it stands for several.
        job: The nspace of the reader's job; empty if it has none.
    """
    return name_procs((proc,), job)


def name_procs(procs: Iterable[Proc], job: str = "") -> str:
    """Return procs as a person reads them: `ranks 1, 3 to 5`, or whole names if other jobs are involved.

    Args:
        procs: The procs, in any order.
        job: The nspace of the reader's job; empty if it has none.
    """
    by_job: dict[str, list[int]] = {}
    for nspace, rank in procs:
        by_job.setdefault(nspace or job, []).append(rank)
    if job and [*by_job] == [job]:
        ranks = by_job[job]
        if RANK_WILDCARD in ranks:
            return _SPECIAL[RANK_WILDCARD]
        special = [_SPECIAL[rank] for rank in dict.fromkeys(ranks) if rank in _SPECIAL]
        numbers = [rank for rank in ranks if rank not in _SPECIAL]
        if all(rank <= RANK_VALID for rank in numbers):
            return _join([*special, *([name_ranks(numbers)] if numbers or not special else [])])
    return _join([_name_whole(nspace, ranks) for nspace, ranks in sorted(by_job.items())])


def common_job(procs: Iterable[Proc]) -> str:
    """Return the nspace that procs share, so that a text for all of them may name ranks; empty if they have several."""
    found = {proc[0] for proc in procs}
    return found.pop() if len(found) == 1 else ""


def _name_whole(nspace: str, ranks: list[int]) -> str:
    special = [str(rank)[1:] for rank in Proc.unchecked_ranks("", dict.fromkeys(ranks)) if rank.rank > RANK_VALID]
    runs = find_runs([rank for rank in ranks if rank <= RANK_VALID])
    return f"{nspace}:{_join([*special, *[str(a) if a == b else f'{a}-{b}' for a, b in runs]], ',')}"


def _join(texts: list[str], separator: str = ", ") -> str:
    more = len(texts) - SHOWN
    return separator.join(texts[:SHOWN]) + (f" and {more} more" if more > 0 else "")
