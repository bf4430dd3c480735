"""Injected faults: ranks that are killed or stopped, and nodes that are lost, at a time that the user chooses."""

from __future__ import annotations

import signal

from pypmix.standard.record import Record
from pypmix.standard.types import decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.host.manager import Manager
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob


KILL, STOP, LOSE = "kill", "stop", "lose"


class Fault(Record):
    """A fault of a job.

    Args:
        kind: `kill` (SIGKILL), `stop` (SIGSTOP) or `lose` a node.
        target: The rank, or the name of the node.
        at: Seconds after the job's ranks have been started.
        lasting: Seconds after which a rank that was stopped continues; 0 for never.
    """

    kind: str
    target: str
    at: float
    lasting: float = 0.0

    @classmethod
    def read(cls, kind: str, text: str) -> Fault:
        """Parse a fault such as `3@2s`, `1@1s:0.5s` or `node1@3s`.

        Raises:
            ValueError: It is not a fault.
        """
        target, _, when = text.rpartition("@")
        at, colon, lasting = when.partition(":")
        if not target or (kind != LOSE and decimal(target, 1 << 30) is None) or (colon and kind != STOP):
            raise ValueError(text)
        return cls(kind, target, _seconds(at), _seconds(lasting) if colon else 0.0)

    def __str__(self) -> str:
        lasting = f":{self.lasting:g}s" if self.lasting else ""
        return f"--{self.kind} {self.target}@{self.at:g}s{lasting}"


def _seconds(text: str) -> float:
    found = float(text.removesuffix("s"))
    if not 0 <= found < 1e9:
        raise ValueError(text)
    return found


def check(faults: Iterable[Fault], size: int, nodes: Iterable[str]) -> None:
    """Raise `ValueError` if a job of this many ranks on these nodes cannot have a fault."""
    known = list(nodes)
    for fault in faults:
        if fault.kind == LOSE and fault.target not in known:
            raise ValueError(f"{fault}: there is no node {fault.target}; the nodes are {', '.join(known):.200}")
        if fault.kind != LOSE and int(fault.target) >= size:
            raise ValueError(f"{fault}: the ranks are 0 to {size - 1}")


def arrange(host: Manager, job: RunningJob, faults: Iterable[Fault]) -> None:
    """Schedule faults, with their times counted from now."""
    for fault in faults:
        host.loop.later(fault.at, _fault(host, job, fault))


def _fault(host: Manager, job: RunningJob, fault: Fault) -> Callable[[], None]:
    def happen() -> None:
        if fault.kind == LOSE:
            if host.site.lose(fault.target, f"it was lost, as {fault} had asked"):
                return
            # A simulated node consists of its ranks.
            _kill(job, [rank for rank in job.ranks if rank.node.hostname == fault.target], fault)
            return
        rank = job.rank(int(fault.target))
        if rank is None:
            return
        if fault.kind == KILL:
            _kill(job, [rank], fault)
            return
        job.send(signal.SIGSTOP, [rank])
        if fault.lasting:
            host.loop.later(fault.lasting, lambda: job.send(signal.SIGCONT, [rank]))

    return happen


def _kill(job: RunningJob, ranks: list[Rank], fault: Fault) -> None:
    for rank in ranks:
        if rank.alive:
            rank.killer = str(fault)
    job.send(signal.SIGKILL, ranks)
