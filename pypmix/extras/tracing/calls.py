"""The requests of a trace, and the collectives that they form."""

from __future__ import annotations

from typing import NamedTuple

from pypmix.standard.naming import find_runs
from pypmix.standard.record import Record
from pypmix.standard.types import RANK_WILDCARD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pypmix.standard.types import Proc

COLLECTIVES = frozenset(("fence", "connect", "disconnect", "group_construct", "group_destruct"))
"""The collective operations."""

UNANSWERED = "unanswered"
"""The status of a request whose caller was lost, or whose job ended, before there was an answer."""


class Call(NamedTuple):
    """A request of a proc.

    Attributes:
        proc: The proc, `nspace:rank`.
        node: The node of its server.
        name: The operation.
        procs: The procs that it concerns, as a text of `text_of`.
        more: The key of a get, or the group.
        status: The name of its status; empty for a success.
        begin: When the server received it, in microseconds since the trace began.
        end: When the answer was sent, or when the proc was lost.
        thread: The number of the thread that shows it.
    """

    proc: str
    node: str
    name: str
    procs: str
    more: str
    status: str
    begin: float
    end: float
    thread: int = 0


class Collective(Record):
    """A collective: the requests of its procs.

    Attributes:
        calls: The requests in the order in which they were received; at least one.
        missing: If it failed, the procs that did not call it.
    """

    calls: tuple[Call, ...]
    missing: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The operation."""
        return self.calls[0].name

    @property
    def subject(self) -> str:
        """The group, or the procs."""
        return self.calls[0].more or self.calls[0].procs

    @property
    def begin(self) -> float:
        """When the first request was received."""
        return self.calls[0].begin

    @property
    def end(self) -> float:
        """When the last request was answered."""
        return max([call.end for call in self.calls])

    @property
    def last(self) -> Call:
        """The request that was received last."""
        return self.calls[-1]

    @property
    def lateness(self) -> float:
        """The microseconds between the last two requests."""
        *before, last = self.calls
        return last.begin - before[-1].begin if before else 0.0

    @property
    def spread(self) -> float:
        """The microseconds between the first and the last request."""
        return self.last.begin - self.begin

    @property
    def status(self) -> str:
        """The status with which it failed; empty for a success."""
        failed = [call.status for call in self.calls if call.status]
        return next((status for status in failed if status != UNANSWERED), failed[0] if failed else "")


class _Part:
    """The requests of a collective at one server."""

    def __init__(self, call: Call) -> None:
        self.calls = [call]
        self.procs = {call.proc}
        self.released = call.end

    def add(self, call: Call) -> None:
        self.calls.append(call)
        self.procs.add(call.proc)
        self.released = min(self.released, call.end)

    def includes(self, call: Call) -> bool:
        return call.begin <= self.released and call.proc not in self.procs


def collectives(calls: Iterable[Call], jobs: Mapping[str, int] | None = None) -> list[Collective]:
    """Group requests into collectives, in the order in which these began.

    On one server, requests of the same procs form a collective if each was received before any of them was answered.
    As clocks may differ, the first collectives of all servers are joined, then the second ones, and so on. If servers
    have different numbers of collectives, overlapping ones are joined instead.

    Args:
        calls: All requests.
        jobs: The sizes of the jobs, by nspace; `missing` needs them.
    """
    by_subject: dict[tuple[str, str], dict[str, list[Call]]] = {}
    for call in calls:
        if call.name in COLLECTIVES:
            by_node = by_subject.setdefault((call.name, call.more or call.procs), {})
            by_node.setdefault(call.node, []).append(call)
    found: list[Collective] = []
    for by_node in by_subject.values():
        parts = [_split(sorted(each, key=_get_begin)) for each in by_node.values()]
        for joined in zip(*parts, strict=True) if len(set(map(len, parts))) == 1 else _join_overlapping(parts):
            together = sorted([call for part in joined for call in part.calls], key=_get_begin)
            collective = Collective(tuple(together))
            if collective.status:
                callers = {call.proc for call in together}
                members = expand(together[0].procs, jobs or {})
                missing = tuple([proc for proc in members if proc not in callers])
                collective = collective.replace(missing=missing)
            found.append(collective)
    return sorted(found, key=lambda each: each.begin)


def _get_begin(call: Call) -> float:
    return call.begin


def _split(calls: Iterable[Call]) -> list[_Part]:
    """Split the requests at one server, for the same operation and procs, into collectives."""
    found: list[_Part] = []
    for call in calls:
        if found and found[-1].includes(call):
            found[-1].add(call)
        else:
            found.append(_Part(call))
    return found


def _join_overlapping(parts: Iterable[list[_Part]]) -> list[list[_Part]]:
    """Join parts that overlap in time, at most one of each server."""
    found: list[list[_Part]] = []
    servers: list[set[int]] = []
    flat = [(part, number) for number, each in enumerate(parts) for part in each]
    for part, number in sorted(flat, key=lambda item: item[0].calls[0].begin):
        begin = part.calls[0].begin
        for joined, numbers in zip(reversed(found), reversed(servers), strict=True):
            if number not in numbers and begin <= max([each.released for each in joined]):
                joined.append(part)
                numbers.add(number)
                break
        else:
            found.append([part])
            servers.append({number})
    return found


def text_of(procs: Iterable[Proc]) -> str:
    """Return procs as a text, such as `job:*` or `job:0-3,7`; spaces separate nspaces."""
    by_nspace: dict[str, list[int]] = {}
    for nspace, rank in procs:
        by_nspace.setdefault(nspace, []).append(rank)
    return " ".join([f"{nspace}:{_ranks(ranks)}" for nspace, ranks in sorted(by_nspace.items())])


def _ranks(ranks: list[int]) -> str:
    if RANK_WILDCARD in ranks:
        return "*"
    return ",".join([str(first) if first == last else f"{first}-{last}" for first, last in find_runs(ranks)])


def expand(procs: str, jobs: Mapping[str, int]) -> list[str]:
    """Return the procs of a text.

    Args:
        procs: A text of `text_of`.
        jobs: The sizes of jobs, by nspace; all ranks of another job are left out.
    """
    found: list[str] = []
    for part in procs.split():
        nspace, _, ranks = part.rpartition(":")
        if ranks == "*":
            found += [f"{nspace}:{rank}" for rank in range(jobs.get(nspace, 0))]
            continue
        for span in ranks.split(","):
            first, _, last = span.partition("-")
            if first.isdecimal():
                found += [f"{nspace}:{rank}" for rank in range(int(first), int(last or first) + 1)]
    return found
