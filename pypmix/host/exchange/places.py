"""Which server has which proc, as far as the servers have told each other, and which procs have gone."""

from __future__ import annotations

from pypmix.standard.errors import ERR_BAD_PARAM, ERR_OUT_OF_RESOURCE, NotFound, PMIxError
from pypmix.standard.types import RANK_VALID, RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Where = Callable[[Proc], str | None]

MAX_JOBS = 65536
"""How many jobs are kept."""


class _Job:
    """A job: where its procs are, who has told of it, and which procs have gone."""

    __slots__ = ("departed", "places", "tellers")

    def __init__(self) -> None:
        self.places: dict[int, str] = {}
        self.tellers: set[str] = set()
        self.departed: set[int] = set()


class Places:
    """What one server knows of where procs are.

    Args:
        where: What the host knows itself, asked first; None where it knows nothing beyond what is told here.
    """

    def __init__(self, where: Where | None = None) -> None:
        self._where = where
        self._jobs: dict[str, _Job] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, teller: str, nspace: str, places: Mapping[int, str]) -> None:
        """A server tells where procs of a job are.

        Raises:
            PMIxError: There are too many jobs.
        """
        job = self._jobs.get(nspace)
        if job is None:
            if len(self._jobs) >= MAX_JOBS:
                raise PMIxError(f"there are {MAX_JOBS} jobs already", status=ERR_OUT_OF_RESOURCE)
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
            del self._jobs[nspace]
        return not job.tellers

    def leave(self, teller: str) -> list[str]:
        """A server has gone; return the jobs that nobody knows any more."""
        return [nspace for nspace in list(self._jobs) if self.remove(teller, nspace)]

    def told_by(self, teller: str) -> Iterator[tuple[str, dict[int, str], set[int]]]:
        """Yield what a server has told: jobs, their places, and who has departed of those that are its own."""
        for nspace, job in self._jobs.items():
            if teller in job.tellers:
                yield nspace, job.places, {rank for rank in job.departed if job.places.get(rank) == teller}

    def depart(self, procs: Iterable[Proc]) -> None:
        """Procs have gone; those of jobs that nobody knows are passed over."""
        for nspace, rank in procs:
            job = self._jobs.get(nspace)
            if job is not None and rank < RANK_VALID:
                job.departed.add(rank)

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
                if job is None:
                    raise NotFound(f"no server knows the job {proc.nspace!r}", procs=(proc,))
                found.update([(Proc.unchecked(proc.nspace, rank), None) for rank in sorted(job.places)])
            elif proc.rank >= RANK_VALID:
                raise PMIxError(f"{proc} names no proc that could take part", status=ERR_BAD_PARAM, procs=(proc,))
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

    def absent(self, members: Mapping[str, Iterable[range]], server: str) -> bool:
        """Tell whether all members that are on a server have gone; not so where none are known to be there."""
        some = False
        for nspace, spans in members.items():
            job = self._jobs.get(nspace)
            gone: set[int] = set() if job is None else job.departed
            for span in spans:
                for rank in span:
                    if self.where(Proc.unchecked(nspace, rank)) == server:
                        if rank not in gone:
                            return False
                        some = True
        return some

    def any_departed(self) -> bool:
        """Tell whether anybody has gone."""
        return any(job.departed for job in self._jobs.values())
