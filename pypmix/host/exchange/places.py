"""Which server has which proc, as far as the servers have told each other, and which procs have gone."""

from __future__ import annotations

from pypmix.standard import statuses
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.types import RANK_VALID, RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Where = Callable[[Proc], str | None]

MAX_JOBS = 65536
"""How many jobs are kept."""

MAX_OVER = 4096
"""Of how many jobs it is remembered that they were."""


class _Job:
    """A job: where its procs are, who has told of it, which procs have gone, and in which of their lives others have
    finalized: a proc that opens again begins another.
    """

    __slots__ = ("departed", "finalized", "places", "tellers")

    def __init__(self) -> None:
        self.places: dict[int, str] = {}
        self.tellers: set[str] = set()
        self.departed: set[int] = set()
        self.finalized: dict[int, int] = {}


class Places:
    """What one server knows of where procs are.

    Args:
        where: What the host knows itself, asked first; None where it knows nothing beyond what is told here.

    Attributes:
        version: Another number after each change of where procs are; what the host knows itself may change unseen.
    """

    def __init__(self, where: Where | None = None) -> None:
        self._where = where
        self._jobs: dict[str, _Job] = {}
        self._over: dict[str, Sequence[int]] = {}
        """Jobs that were, and their ranks."""
        self.version = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, teller: str, nspace: str, places: Mapping[int, str]) -> None:
        """A server tells where procs of a job are.

        Raises:
            PMIxError: There are too many jobs.
        """
        self.version += 1
        job = self._jobs.get(nspace)
        if job is None:
            if len(self._jobs) >= MAX_JOBS:
                raise PMIxError(f"there are {MAX_JOBS} jobs already", status=statuses.ERR_OUT_OF_RESOURCE)
            job = self._jobs[nspace] = _Job()
        job.tellers.add(teller)
        job.places.update(places)

    def remove(self, teller: str, nspace: str) -> bool:
        """A server has no more to do with a job; tell whether the job is known to nobody any more."""
        job = self._jobs.get(nspace)
        if job is None:
            return False
        job.tellers.discard(teller)
        if not job.tellers:
            self.version += 1
            del self._jobs[nspace]
            ranks = sorted(job.places)
            self._over[nspace] = range(len(ranks)) if ranks == list(range(len(ranks))) else ranks
            if len(self._over) > MAX_OVER:
                del self._over[next(iter(self._over))]
        return not job.tellers

    def is_over(self, nspace: str) -> bool:
        """Tell whether a job was known that nobody knows any more."""
        return nspace in self._over and nspace not in self._jobs

    def known(self) -> list[str]:
        """Return the jobs that somebody knows."""
        return list(self._jobs)

    def procs_on(self, server: str) -> list[Proc]:
        """Return the procs of all jobs that are on a server."""
        return [
            Proc.unchecked(nspace, rank)
            for nspace, job in self._jobs.items()
            for rank, where in job.places.items()
            if where == server
        ]

    def known_to(self, nspace: str, servers: Iterable[str]) -> bool:
        """Tell whether all of these servers have told of a job."""
        job = self._jobs.get(nspace)
        return job is not None and job.tellers.issuperset(servers)

    def tellers_of(self, nspace: str) -> list[str]:
        """Return the servers that know a job, sorted."""
        job = self._jobs.get(nspace)
        return [] if job is None else sorted(job.tellers)

    def procs_of(self, nspace: str) -> tuple[Proc, ...]:
        """Return the procs of a job."""
        job = self._jobs.get(nspace)
        return () if job is None else tuple([Proc.unchecked(nspace, rank) for rank in job.places])

    def told_by(self, teller: str) -> Iterator[tuple[str, dict[int, str], set[int], dict[int, int]]]:
        """Yield what a server has told: jobs, their places, and of its own procs who has departed, and finalized."""
        for nspace, job in self._jobs.items():
            if teller in job.tellers:
                departed = {rank for rank in job.departed if job.places.get(rank) == teller}
                finalized = {rank: life for rank, life in job.finalized.items() if job.places.get(rank) == teller}
                yield nspace, job.places, departed, finalized

    def depart(self, procs: Iterable[Proc]) -> list[Proc]:
        """Procs have gone; return those of them that are of jobs that somebody knows."""
        found = [proc for proc in procs if proc.nspace in self._jobs and proc.rank < RANK_VALID]
        for nspace, rank in found:
            self._jobs[nspace].departed.add(rank)
        return found

    def has_ended(self, nspace: str) -> tuple[Proc, ...]:
        """Return the procs of a job if all have gone."""
        job = self._jobs.get(nspace)
        if job is None or len(job.departed) < len(job.places):
            return ()
        return self.procs_of(nspace)

    def finalize(self, proc: Proc, life: int) -> None:
        """A proc has finalized, in one of its lives."""
        job = self._jobs.get(proc[0])
        if job is not None and proc[1] < RANK_VALID:
            job.finalized[proc[1]] = life

    def back(self, proc: Proc) -> bool:
        """A proc has opened again; tell whether it had finalized, or gone."""
        job = self._jobs.get(proc[0])
        if job is None or (proc[1] not in job.finalized and proc[1] not in job.departed):
            return False
        job.finalized.pop(proc[1], None)
        job.departed.discard(proc[1])
        return True

    @property
    def steady(self) -> bool:
        """Whether `version` tells of all changes."""
        return self._where is None

    def where(self, proc: Proc) -> str | None:
        """Return the server of a proc, None if it is not known."""
        if self._where is not None:
            found = self._where(proc)
            if found is not None:
                return found
        job = self._jobs.get(proc[0])
        return None if job is None else job.places.get(proc[1])

    def has_departed(self, proc: Proc) -> bool:
        """Tell whether a proc has gone."""
        job = self._jobs.get(proc[0])
        return job is not None and proc[1] in job.departed

    def expand(self, procs: Iterable[Proc]) -> list[Proc]:
        """Return procs in the order in which they are named, each once, with all of a job for its wildcard.

        Raises:
            NotFound: A wildcard is of a job that is not known.
            PMIxError: A special rank is none that procs take part by.
        """
        found: dict[Proc, None] = {}
        for proc in procs:
            if proc.rank == RANK_WILDCARD:
                job = self._jobs.get(proc.nspace)
                # Others may not have heard yet that a job is over: all mean the same procs by its wildcard.
                ranks = self._over.get(proc.nspace) if job is None else sorted(job.places)
                if ranks is None:
                    raise NotFound(f"no server knows the job {proc.nspace!r}", procs=(proc,))
                found.update([(Proc.unchecked(proc.nspace, rank), None) for rank in ranks])
            elif proc.rank >= RANK_VALID:
                raise PMIxError(
                    f"{proc} names no proc that could take part", status=statuses.ERR_BAD_PARAM, procs=(proc,)
                )
            else:
                found[proc] = None
        return list(found)

    def servers(self, procs: Iterable[Proc]) -> dict[str, list[Proc]]:
        """Return procs by their servers.

        Raises:
            NotFound: It is not known where one is.
        """
        found: dict[str, list[Proc]] = {}
        unknown = []
        for proc in procs:
            server = self.where(proc)
            if server is None:
                unknown.append(proc)
            else:
                found.setdefault(server, []).append(proc)
        if unknown:
            raise NotFound("no server is known to have them", procs=unknown)
        return found

    def absent(self, members: Mapping[str, Iterable[range]], server: str, life: int) -> bool:
        """Tell whether nobody comes of the members that are on a server; not so where none are known to be there.

        Args:
            members: The members of what is under way, by nspace.
            server: The server.
            life: The latest life of those who are there: who has finalized in an earlier one is opening again, too.
        """
        some = False
        for nspace, spans in members.items():
            job = self._jobs.get(nspace)
            for span in spans:
                for rank in span:
                    if self.where(Proc.unchecked(nspace, rank)) == server:
                        if job is None or (rank not in job.departed and job.finalized.get(rank, 0) < life):
                            return False
                        some = True
        return some

    def is_missing(self, proc: Proc, life: int) -> bool:
        """Tell whether a proc has gone, or has finalized in this life."""
        job = self._jobs.get(proc[0])
        return job is not None and (proc[1] in job.departed or job.finalized.get(proc[1], 0) >= life)

    def any_missing(self) -> bool:
        """Tell whether anybody has gone or has finalized."""
        return any(job.departed or job.finalized for job in self._jobs.values())
