"""The servers of procs, as far as servers have reported them, and the procs that have ended.

A proc that opens again begins another incarnation: a collective of procs that have opened again waits for procs that
have finalized in an earlier one, since they are about to open again as well.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b

from pypmix.host.exchange.codec import PROCS, framed
from pypmix.host.exchange.limits import MAX_JOBS, MAX_NAMED, MAX_OVER, MAX_PARTIES, MAX_PARTY
from pypmix.standard import statuses
from pypmix.standard.errors import NotFound, OutOfResources, PMIxError
from pypmix.standard.types import RANK_VALID, RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Where = Callable[[Proc], str | None]


class Party:
    """Procs that take part in a collective, in the order in which they are named, and their servers.

    Attributes:
        procs: The procs, each once.
        servers: The procs whose server is known, by their servers.
        unknown: The other procs.
    """

    def __init__(self, procs: tuple[Proc, ...], find_server: Where) -> None:
        self.procs = procs
        self.servers: dict[str, list[Proc]] = {}
        self.unknown: list[Proc] = []
        for proc in procs:
            server = find_server(proc)
            (self.unknown if server is None else self.servers.setdefault(server, [])).append(proc)

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, Party) and other.procs == self.procs)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def members(self) -> frozenset[Proc]:
        """The procs in whatever order."""
        return frozenset(self.procs)

    @cached_property
    def nspaces(self) -> frozenset[str]:
        """The jobs of the procs."""
        return frozenset([proc[0] for proc in self.procs])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The servers, sorted."""
        return tuple(sorted(self.servers))

    @cached_property
    def packed(self) -> bytes:
        """The procs as bytes."""
        return PROCS.write(self.procs)

    @cached_property
    def framed(self) -> bytes:
        """The same as a field of a message."""
        return framed(self.packed)

    @cached_property
    def digest(self) -> str:
        """The identity of these procs, in whatever order they are named."""
        return blake2b(PROCS.write(tuple(sorted(self.procs))), digest_size=16).hexdigest()

    @cached_property
    def label(self) -> str:
        """The name of collectives of these procs that have no other name."""
        return f"\0\0{self.digest}"


class _Job:
    """A job: the places of its procs, the servers that know it, its departed procs, and the incarnations finalized."""

    __slots__ = ("departed", "finalized", "heard", "places", "servers", "tellers")

    def __init__(self) -> None:
        self.places: dict[int, str] = {}
        self.servers: set[str] = set()
        """The servers in `places`, and former ones."""
        self.tellers: set[str] = set()
        """The servers that know it."""
        self.heard: set[str] = set()
        """The servers that have known it at any time."""
        self.departed: set[int] = set()
        self.finalized: dict[int, int] = {}


class Places:
    """The servers of procs, as far as one server knows.

    Args:
        find_server: Returns the server of a proc as the host knows it; called first. None if the host knows nothing
            more.

    Attributes:
        any_missing: Whether any proc has ended or has finalized.
    """

    def __init__(self, find_server: Where | None = None) -> None:
        self._find_server = find_server
        self._jobs: dict[str, _Job] = {}
        self._over: dict[str, Sequence[int]] = {}
        """Former jobs, and their ranks."""
        self._named: dict[tuple[Proc, ...], Party] = {}
        """Sets of procs as they were named, until one of their jobs starts or ends: the same are used again."""
        self._parties: dict[bytes, Party] = {}
        """The same sets by their bytes: a set that other servers name is the same object, without a comparison."""
        self.plain: dict[bytes, tuple[str, Party]] = {}
        """Collectives by the bytes in which another server has named them and their procs: the same are used again."""
        self.any_missing = False

    def __len__(self) -> int:
        return len(self._jobs)

    # Jobs

    def add(self, teller: str, nspace: str, places: Mapping[int, str]) -> bool:
        """Record that a server knows a job. Return True if its places were known.

        Args:
            teller: The server.
            nspace: The job.
            places: The server of each rank, of none if others have reported them.

        Raises:
            PMIxError: There are too many jobs.
        """
        job = self._jobs.get(nspace)
        if job is None:
            if len(self._jobs) >= MAX_JOBS:
                raise OutOfResources(f"there are {MAX_JOBS} jobs already")
            job = self._jobs[nspace] = _Job()
            self._forget_parties(nspace)
        job.tellers.add(teller)
        job.heard.add(teller)
        if places.items() <= job.places.items():
            return True
        self.move(nspace, places)
        return False

    def move(self, nspace: str, places: Mapping[int, str]) -> None:
        """Record the servers of a known job's procs."""
        self._forget_parties(nspace)
        job = self._jobs[nspace]
        job.places.update(places)
        job.servers.update(places.values())

    def remove(self, teller: str, nspace: str) -> tuple[Proc, ...] | None:
        """Record that a server has left a job. Return its procs if no server knows it any longer, else None."""
        job = self._jobs.get(nspace)
        if job is None:
            return None
        job.tellers.discard(teller)
        if job.tellers:
            return None
        self._forget_parties(nspace)
        procs = self.procs_of(nspace)
        del self._jobs[nspace]
        ranks = sorted(job.places)
        self._over[nspace] = range(len(ranks)) if ranks == list(range(len(ranks))) else ranks
        if len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]
        self._count_missing()
        return procs

    def is_ended_job(self, nspace: str) -> bool:
        """Return True if a job was known and no server knows it any longer."""
        return nspace in self._over and nspace not in self._jobs

    def jobs_of(self, teller: str) -> list[str]:
        """Return the jobs that a server knows."""
        return [nspace for nspace, job in self._jobs.items() if teller in job.tellers]

    def procs_on(self, server: str) -> list[Proc]:
        """Return the procs of all jobs that are on a server."""
        return [
            Proc.unchecked(nspace, rank)
            for nspace, job in self._jobs.items()
            if server in job.servers
            for rank, where in job.places.items()
            if where == server
        ]

    def is_described_by(self, nspace: str, servers: Iterable[str]) -> bool:
        """Return True if all of these servers have described a job."""
        job = self._jobs.get(nspace)
        return job is not None and job.tellers.issuperset(servers)

    def unheard(self, nspace: str) -> set[str]:
        """Return the servers of a job's procs that have not described it yet."""
        job = self._jobs.get(nspace)
        return set() if job is None else set(job.places.values()) - job.heard

    def tellers_of(self, nspace: str) -> list[str]:
        """Return the servers that know a job, sorted."""
        job = self._jobs.get(nspace)
        return [] if job is None else sorted(job.tellers)

    def procs_of(self, nspace: str) -> tuple[Proc, ...]:
        """Return the procs of a job."""
        job = self._jobs.get(nspace)
        return () if job is None else tuple(Proc.unchecked_ranks(nspace, job.places))

    def of(self, nspace: str) -> dict[int, str] | None:
        """Return the server of each rank of a job, None if it is not known."""
        job = self._jobs.get(nspace)
        return None if job is None else job.places

    def list_reports(
        self, teller: str, elsewhere: Callable[[str], bool]
    ) -> Iterator[tuple[str, dict[int, str], list[Proc], list[tuple[Proc, int]]]]:
        """Yield the reports of a server: jobs, the servers of their ranks, and their departed and finalized procs.

        Args:
            teller: The server.
            elsewhere: Returns True if another server reports the procs of a server.
        """
        for nspace, job in self._jobs.items():
            if teller in job.tellers:
                departed = [
                    Proc.unchecked(nspace, rank) for rank in job.departed if not elsewhere(job.places.get(rank, teller))
                ]
                finalized = [
                    (Proc.unchecked(nspace, rank), incarnation)
                    for rank, incarnation in job.finalized.items()
                    if job.places.get(rank) == teller
                ]
                yield nspace, job.places, departed, finalized

    def missing(self) -> Iterator[tuple[tuple[Proc, ...], list[tuple[Proc, int]]]]:
        """Yield the departed procs of each job, and the finalized ones with their incarnations."""
        for nspace, job in self._jobs.items():
            departed = tuple(Proc.unchecked_ranks(nspace, sorted(job.departed)))
            yield departed, [(Proc.unchecked(nspace, rank), number) for rank, number in job.finalized.items()]

    # Procs

    def depart(self, procs: Iterable[Proc]) -> list[Proc]:
        """Record that procs have ended. Return the procs of known jobs."""
        found = [proc for proc in procs if proc.nspace in self._jobs and proc.rank < RANK_VALID]
        for nspace, rank in found:
            self._jobs[nspace].departed.add(rank)
            self.any_missing = True
        return found

    def list_if_ended(self, nspace: str) -> tuple[Proc, ...]:
        """Return the procs of a job if all have ended, else none."""
        job = self._jobs.get(nspace)
        return () if job is None or len(job.departed) < len(job.places) else self.procs_of(nspace)

    def finalize(self, proc: Proc, incarnation: int) -> None:
        """Record that a proc has finalized, in one of its incarnations."""
        job = self._jobs.get(proc[0])
        if job is not None and proc[1] < RANK_VALID:
            job.finalized[proc[1]] = incarnation
            self.any_missing = True

    def back(self, proc: Proc) -> bool:
        """Record that a proc has opened again. Return True if it had finalized or ended."""
        job = self._jobs.get(proc[0])
        if job is None or (proc[1] not in job.finalized and proc[1] not in job.departed):
            return False
        job.finalized.pop(proc[1], None)
        job.departed.discard(proc[1])
        self._count_missing()
        return True

    def server_of(self, proc: Proc) -> str | None:
        """Return the server of a proc, None if it is not known."""
        if self._find_server is not None:
            found = self._find_server(proc)
            if found is not None:
                return found
        job = self._jobs.get(proc[0])
        return None if job is None else job.places.get(proc[1])

    def has_departed(self, proc: Proc) -> bool:
        """Return True if a proc has ended."""
        job = self._jobs.get(proc[0])
        return job is not None and proc[1] in job.departed

    def is_missing(self, proc: Proc, incarnation: int) -> bool:
        """Return True if a proc has ended, or has finalized in this incarnation."""
        job = self._jobs.get(proc[0])
        return job is not None and (proc[1] in job.departed or job.finalized.get(proc[1], 0) >= incarnation)

    def _count_missing(self) -> None:
        self.any_missing = any(job.departed or job.finalized for job in self._jobs.values())

    # Sets of procs

    def party(self, procs: Iterable[Proc]) -> Party:
        """Return the procs that these names mean.

        Raises:
            NotFound: A wildcard is of an unknown job, or the server of a proc is not known.
            PMIxError: A special rank does not name participants.
        """
        named = tuple(procs)
        party = self._named.get(named)
        if party is None:
            procs = tuple(self.expand(named))
            data = PROCS.write(procs)
            party = self._parties.get(data) or self._remember(data, procs)
            # A wildcard of a job without procs means others once these are known.
            if self._find_server is None and party.nspaces.issuperset([proc[0] for proc in named]):
                if len(self._named) >= MAX_PARTIES or sum(map(len, self._named)) + len(named) > MAX_NAMED:
                    self._named.clear()
                if len(named) <= MAX_NAMED:
                    self._named[named] = party
        # Others may not know yet that a job has ended: its collectives end in the same way for all.
        unknown = party.unknown and [proc for proc in party.unknown if not self.is_ended_job(proc.nspace)]
        if unknown:
            raise NotFound("their servers are not known here", procs=unknown)
        return party

    def stands(self, party: Party) -> bool:
        """Return True if procs are where they were when they were named: none of their jobs has started or ended."""
        return not party.unknown and self._parties.get(party.packed) is party

    def read(self, data: bytes) -> Party:
        """Return the procs that another server names.

        Raises:
            RemoteProtocolError: It does not parse.
        """
        return self._parties.get(data) or self._remember(data, PROCS.read(data))

    def keep(self, named: bytes, label: str, party: Party) -> None:
        """Remember a collective of procs and its name, by the bytes in which another server has named them."""
        if party.packed in self._parties and len(label) <= MAX_NAME:
            if len(self.plain) >= MAX_PARTIES:
                self.plain.clear()
            self.plain[named] = label, party

    def _forget_parties(self, nspace: str) -> None:
        """Forget sets with procs of a job, which may be on other servers from here on."""
        self._named = {named: party for named, party in self._named.items() if nspace not in party.nspaces}
        self._parties = {data: party for data, party in self._parties.items() if nspace not in party.nspaces}
        self.plain = {named: kept for named, kept in self.plain.items() if nspace not in kept[1].nspaces}

    def _remember(self, data: bytes, procs: tuple[Proc, ...]) -> Party:
        party = Party(procs, self.server_of)
        # The host's own knowledge may change unnoticed.
        if self._find_server is None and len(data) <= MAX_PARTY * 16:
            if len(self._parties) >= MAX_PARTIES:
                self._named.clear()
                self._parties.clear()
                self.plain.clear()
            self._parties[data] = party
        return party

    def expand(self, procs: Iterable[Proc]) -> list[Proc]:
        """Return procs in the order in which they are named, each once, with all of a job for its wildcard.

        Raises:
            NotFound: A wildcard is of an unknown job.
            PMIxError: A special rank does not name participants.
        """
        found: dict[Proc, None] = {}
        for proc in procs:
            if proc.rank == RANK_WILDCARD:
                job = self._jobs.get(proc.nspace)
                # Others may not know yet that a job has ended: all mean the same procs by its wildcard.
                ranks = self._over.get(proc.nspace) if job is None else sorted(job.places)
                if ranks is None:
                    raise NotFound(f"no server knows the job {proc.nspace!r}", procs=(proc,))
                found.update(dict.fromkeys(Proc.unchecked_ranks(proc.nspace, ranks)))
            elif proc.rank >= RANK_VALID:
                raise PMIxError(
                    f"{proc} names no proc that could take part", status=statuses.ERR_BAD_PARAM, procs=(proc,)
                )
            else:
                found[proc] = None
        return list(found)

    def absent(self, procs: Iterable[Proc], server: str, incarnation: int) -> bool:
        """Return True if all of these procs that are on a server are missing; False if none is known there."""
        here = [proc for proc in procs if self.server_of(proc) == server]
        return bool(here) and all(self.is_missing(proc, incarnation) for proc in here)


MAX_NAME = 1024
"""The longest name of a collective that is remembered."""

LAST = 2**32 - 1
"""The last incarnation that is counted."""


class Incarnations:
    """Counts how often procs of one server open; a proc and its children may have several connections at a time."""

    def __init__(self) -> None:
        self._latest: dict[Proc, int] = {}
        self._open: dict[Proc, int] = {}
        self._most = 1

    def __len__(self) -> int:
        return len(self._latest) + len(self._open)

    def connected(self, proc: Proc) -> None:
        """A proc has connected."""
        already = self._open.get(proc, 0)
        self._open[proc] = already + 1
        if not already:
            latest = self._latest[proc] = min(self._latest.get(proc, 0) + 1, LAST)
            self._most = max(self._most, latest)

    def finalized(self, proc: Proc) -> int:
        """Record that a connection of a proc has finalized. Return the ended incarnation, 0 if the proc continues."""
        left = self._open.get(proc, 0) - 1
        if left > 0:
            self._open[proc] = left
            return 0
        self._open.pop(proc, None)
        return self._latest.setdefault(proc, 1)

    def disconnect(self, proc: Proc) -> None:
        """Record that a proc is no longer connected."""
        self._open.pop(proc, None)

    def forget(self, nspace: str) -> None:
        """Forget a job that has ended."""
        for proc in [proc for proc in self._latest if proc.nspace == nspace]:
            del self._latest[proc]
            self._open.pop(proc, None)
        self._most = max(self._latest.values(), default=1)

    def latest(self, procs: Iterable[Proc]) -> int:
        """Return the latest incarnation of any of these, from 1."""
        if self._most == 1:
            return 1
        return max([self._latest.get(proc, 1) for proc in procs], default=1)
