"""The requests of a trace, and which of them were one collective."""

from __future__ import annotations

from typing import NamedTuple

from pypmix.standard.record import Record
from pypmix.standard.types import RANK_WILDCARD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pypmix.standard.types import Proc

COLLECTIVES = frozenset(("fence", "connect", "disconnect", "group_construct", "group_destruct"))
"""The operations that procs call together."""

UNANSWERED = "unanswered"
"""The status of a request whose caller was lost, or whose job ended, before there was an answer."""


class Call(NamedTuple):
    """A request of a proc.

    Attributes:
        proc: The proc, `nspace:rank`.
        node: The node of its server.
        name: The operation.
        procs: The procs that it concerns as `text_of` has them.
        more: The key of a get, or the group.
        status: The name of its status; empty for a success.
        begin: When it came to the server, in microseconds since the trace began.
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
    """The requests of several procs that were one collective.

    Attributes:
        calls: The requests in the order in which they came; at least one.
        missing: The procs that did not call it, where it failed or came about without them.
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
        """When the first one came."""
        return self.calls[0].begin

    @property
    def end(self) -> float:
        """When the last one was answered."""
        return max([call.end for call in self.calls])

    @property
    def last(self) -> Call:
        """The request that came last."""
        return self.calls[-1]

    @property
    def late(self) -> float:
        """The microseconds from the request before the last one to that."""
        *before, last = self.calls
        return last.begin - before[-1].begin if before else 0.0

    @property
    def spread(self) -> float:
        """The microseconds from the first request to the last one."""
        return self.last.begin - self.begin

    @property
    def status(self) -> str:
        """The status that it failed with; empty where it did not."""
        failed = [call.status for call in self.calls if call.status]
        return next((status for status in failed if status != UNANSWERED), failed[0] if failed else "")


class _Part:
    """The requests of a collective that one server has."""

    def __init__(self, call: Call) -> None:
        self.calls = [call]
        self.procs = {call.proc}
        self.released = call.end

    def add(self, call: Call) -> None:
        self.calls.append(call)
        self.procs.add(call.proc)
        self.released = min(self.released, call.end)

    def takes(self, call: Call) -> bool:
        return call.begin <= self.released and call.proc not in self.procs


def collectives(calls: Iterable[Call], jobs: Mapping[str, int] | None = None) -> list[Collective]:
    """Return the collectives of requests, in the order in which they began.

    On one server those of the same procs belong together of which none came after another was answered. Of several
    servers whose clocks may differ the first ones belong together, then the second ones, and so on; only where one of
    them has seen fewer than another, those that overlap.

    Args:
        calls: All requests.
        jobs: How many ranks the jobs have, by nspace: where it is known, `missing` is.
    """
    by_subject: dict[tuple[str, str], dict[str, list[Call]]] = {}
    for call in calls:
        if call.name in COLLECTIVES:
            by_node = by_subject.setdefault((call.name, call.more or call.procs), {})
            by_node.setdefault(call.node, []).append(call)
    found: list[Collective] = []
    for by_node in by_subject.values():
        parts = [_parts(sorted(each, key=_began)) for each in by_node.values()]
        for those in zip(*parts, strict=True) if len(set(map(len, parts))) == 1 else _overlapping(parts):
            together = sorted([call for part in those for call in part.calls], key=_began)
            made = Collective(tuple(together))
            if made.status:
                come = {call.proc for call in together}
                named = expanded(together[0].procs, jobs or {})
                made = made.replace(missing=tuple([proc for proc in named if proc not in come]))
            found.append(made)
    return sorted(found, key=lambda each: each.begin)


def _began(call: Call) -> float:
    return call.begin


def _parts(calls: Iterable[Call]) -> list[_Part]:
    found: list[_Part] = []
    for call in calls:
        if found and found[-1].takes(call):
            found[-1].add(call)
        else:
            found.append(_Part(call))
    return found


def _overlapping(parts: Iterable[list[_Part]]) -> list[list[_Part]]:
    """Return what overlaps together, with one part of each server at most."""
    found: list[list[_Part]] = []
    servers: list[set[int]] = []
    flat = [(part, number) for number, each in enumerate(parts) for part in each]
    for part, number in sorted(flat, key=lambda item: item[0].calls[0].begin):
        begin = part.calls[0].begin
        for those, whose in zip(reversed(found), reversed(servers), strict=True):
            if number not in whose and begin <= max([each.released for each in those]):
                those.append(part)
                whose.add(number)
                break
        else:
            found.append([part])
            servers.append({number})
    return found


def text_of(procs: Iterable[Proc]) -> str:
    """Return procs as a text: `job:*`, `job:0-3,7`, several nspaces with spaces between them."""
    by_nspace: dict[str, list[int]] = {}
    for nspace, rank in procs:
        by_nspace.setdefault(nspace, []).append(rank)
    return " ".join([f"{nspace}:{_ranks(ranks)}" for nspace, ranks in sorted(by_nspace.items())])


def _ranks(ranks: list[int]) -> str:
    if RANK_WILDCARD in ranks:
        return "*"
    from pypmix.host.cascades import spans

    return ",".join(spans(set(ranks)))


def expanded(procs: str, jobs: Mapping[str, int]) -> list[str]:
    """Return the procs of a text; of a job whose size is not known, none.

    Args:
        procs: What `text_of` has returned.
        jobs: The sizes of jobs.
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
