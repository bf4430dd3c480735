"""The state of a native server's node: jobs, procs, users, process sets, and the readers of output."""

from __future__ import annotations

from pypmix.engine.native.marshal import Marshal
from pypmix.standard.record import Record
from pypmix.standard.types import RANK_LOCAL_PEERS, RANK_WILDCARD, Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.ops import FenceUpcall, Op
    from pypmix.standard.releases import Release

STATE_UNDEF = 0
STATE_PREPPED = 1
STATE_CONNECTED = 6
STATE_TERMINATED = 20


class Registered(Record):
    """A job that this server knows: its info, the number of its procs, and the ranks on this node."""

    info: JobInfo
    size: int
    local: frozenset[int]


class Node:
    """The state of a native server, as the rows of its upcalls see it.

    Attributes:
        proc: The server itself.
        marshal: Reads and creates the library's structures.
        release: The release of the library.
        uid: The user whose tools are admitted, as are the tools of root.
        security: The security modules that clients may use.
        ports: Returns the ports that the library listens on.
        cut: The numbers of other users' connections that were ended here, and that the library has not closed.
        users: The user and the group of each proc that is expected, and of each tool.
        applicant: The user and the group of the tool whose upcall is being read.
        states: The process state of each registered proc, as in PMIx.
        refused: The procs that must not be deregistered with the library; see `CLOSING_TWICE`.
        jobs: The registered jobs, by nspace.
        psets: The members of process sets, in their order.
        feeds: The output that the host delivers, and the host's id of each pull for it.
        pulling: The pulls that the host has not answered yet.
        fences: Fences without data, by their procs in the library's form.
        last_tool: The number of tool names that were generated.
        last_context_id: The number of context ids that were generated.
    """

    def __init__(
        self, proc: Proc, release: Release, uid: int, security: tuple[str, ...], ports: Callable[[], frozenset[int]]
    ) -> None:
        self.proc = proc
        self.marshal = Marshal(release)
        self.release = release
        self.uid = uid
        self.security = security
        self.ports = ports
        self.cut: set[int] = set()
        self.users: dict[Proc, tuple[int | None, int | None]] = {}
        self.applicant: tuple[int | None, int | None] = None, None
        self.states: dict[Proc, int] = {}
        self.refused: set[Proc] = set()
        self.jobs: dict[str, Registered] = {}
        self.psets: dict[str, dict[Proc, None]] = {}
        self.feeds: dict[tuple[frozenset[Proc], int], list[int | None]] = {}
        self.pulling: list[Op[Any]] = []
        self.fences: dict[bytes, FenceUpcall] = {}
        self.last_tool = 0
        self.last_context_id = 0

    def infos(self, raw: Any) -> tuple[Info, ...]:
        """Return the infos of an upcall."""
        return self.marshal.results(raw.infos)

    def items(self, raw: Any) -> tuple[Any, ...]:
        """Return the items of an upcall."""
        return self.marshal.results(raw.items)

    def forget(self, nspace: str) -> None:
        """Forget a deregistered nspace, and the users and states of its procs."""
        self.jobs.pop(nspace, None)
        for proc in [proc for proc in list(self.users) if proc.nspace == nspace]:
            self.users.pop(proc, None)
            self.states.pop(proc, None)

    def ranks_of(self, nspace: str) -> range | None:
        """Return the ranks of a job; None if the job is not registered."""
        job = self.jobs.get(nspace)
        return None if job is None else range(job.size)

    def expand(self, procs: Iterable[Proc]) -> Iterator[Proc]:
        """Yield procs, with all procs of a registered nspace in place of its wildcards."""
        for proc in procs:
            ranks = self.ranks_of(proc.nspace) if proc.rank in (RANK_WILDCARD, RANK_LOCAL_PEERS) else None
            if ranks is None:
                yield proc
            else:
                yield from Proc.unchecked_ranks(proc.nspace, ranks)

    def all_local(self, procs: Iterable[Proc]) -> bool:
        """Return True if all procs belong to this server."""
        return all(
            proc.nspace in self.jobs and proc.rank in self.jobs[proc.nspace].local for proc in self.expand(procs)
        )


def merged(infos: Iterable[Info]) -> tuple[Info, ...]:
    """Return each info once: the library passes the infos of all local participants, one after the other."""
    found: list[Info] = []
    for info in infos:
        if info not in found:
            found.append(info)
    return tuple(found)
