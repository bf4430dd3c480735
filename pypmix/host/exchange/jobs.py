"""The jobs of a session and the news of their procs, as entries of the one order (`statelog`).

In a session with a launcher, the launcher's server describes each job to every other server itself, with the places of
all procs (`Crossing.place`). Without one, each server that has procs of a job, or its job info, submits the places, and
the root passes on only places that are new.

News of a proc (it has finalized, it has ended, it has connected again) come from its server. News that are ready
together travel as one entry. If a proc has two news in one entry, the later one counts, which includes the earlier one:
the news that a proc has ended and has connected again are two entries.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

from pypmix.host.exchange import statelog
from pypmix.host.exchange.codec import FORGOTTEN, NUMBER, PLACES, PROCS, Field, many, message
from pypmix.host.exchange.limits import MAX_NEWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pypmix.host.exchange.crossing import Crossing
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.places import Places
    from pypmix.standard.types import Proc

    News = tuple[tuple[int, int, tuple[Proc, ...]], ...]
    Described = tuple[str, dict[int, str]]

FINALIZED, DEPARTED, BACK = range(3)
"""The news of a proc."""

_NEWS: Field[News] = many(message(NUMBER, NUMBER, PROCS))
"""News: their kind, the incarnation, and the procs."""

_REPORT: Field[tuple[tuple[Described, ...], News]] = message(many(PLACES), _NEWS)


def grouped(news: dict[Proc, tuple[int, int]]) -> News:
    """Return news of procs with the procs that share them together."""
    found: dict[tuple[int, int], list[Proc]] = {}
    for proc, what in news.items():
        found.setdefault(what, []).append(proc)
    return tuple([(*what, tuple(sorted(procs))) for what, procs in found.items()])


class Jobs:
    """One server's part in the descriptions of jobs and the news of procs.

    Args:
        exchange: This server's exchange.
        places: The server of each proc.
        crossing: Applies the news and the descriptions of other servers.
    """

    def __init__(
        self,
        exchange: Exchange,
        places: Places,
        crossing: Crossing,
    ) -> None:
        self._exchange = exchange
        self._state = exchange.state
        self._places = places
        self._crossing = crossing
        self._news: dict[Proc, tuple[int, int]] = {}
        self._state.on(statelog.NEWS, lambda _origin, data: crossing.apply_news(_NEWS.read(data)), self._check_news)
        self._state.on(statelog.JOB, lambda origin, data: self._apply_job(origin, *PLACES.read(data)), self._check_job)
        self._state.on(statelog.FORGET, lambda origin, data: crossing.remove_server(origin, *FORGOTTEN.read(data)))
        self._state.on(statelog.PROCS, self._apply_report, self._check_report)
        self._state.report(self._report)

    # Entries of this server

    def register(self, nspace: str, places: dict[int, str]) -> None:
        """Submit the description of a job."""
        self._places.add(self._exchange.name, nspace, places)
        self._state.submit(statelog.JOB, PLACES.write((nspace, places)))

    def place(self, nspace: str, places: dict[int, str], number: int) -> None:
        """Record the launcher's description of a job; `number` is its number, greater than those of earlier jobs."""
        self._places.add(self._exchange.launcher, nspace, places)
        self._state.know_job(number)

    def find_lost(self, nspace: str, places: dict[int, str]) -> list[str]:
        """Return the servers that a description of a known job moves procs from."""
        former = self._places.of(nspace) or {}
        return sorted({server for rank, server in former.items() if places.get(rank, server) != server})

    def forget(self, nspace: str) -> None:
        """Submit that this server has forgotten a job."""
        self._state.submit(statelog.FORGET, FORGOTTEN.write((nspace,)))

    def submit_news(self, proc: Proc, what: int, incarnation: int = 0) -> None:
        """Submit news of a proc of this server."""
        if self._exchange.root == self._exchange.name:
            self._state.submit(statelog.NEWS, _NEWS.write(((what, incarnation, (proc,)),)))
            return
        before = self._news.get(proc)
        if len(self._news) >= MAX_NEWS or (before is not None and before[0] != FINALIZED):
            # Of two news in one entry only the later one would count.
            self._news = {}
        news = self._news
        if not news:
            self._state.submit(statelog.NEWS, lambda: self._write_news(news))
        news[proc] = what, incarnation

    def _write_news(self, news: dict[Proc, tuple[int, int]]) -> bytes:
        if self._news is news:
            self._news = {}
        return _NEWS.write(grouped(news))

    # Entries of others

    def _check_news(self, origin: str, data: bytes) -> None:
        for _, _, procs in _NEWS.read(data):
            self._exchange.authority.check_procs(origin, procs)

    def _check_job(self, origin: str, data: bytes) -> None:
        self._exchange.authority.check_places(origin, *PLACES.read(data))

    def _check_report(self, origin: str, data: bytes) -> None:
        jobs, news = _REPORT.read(data)
        for job in jobs:
            self._exchange.authority.check_places(origin, *job)
        for _, _, procs in news:
            self._exchange.authority.check_procs(origin, procs, is_report=True)

    def _apply_job(self, origin: str, nspace: str, places: dict[int, str]) -> bytes | None:
        """Record a job that a server knows. Return the entry without the places if the others know them, too."""
        known = self._places.add(origin, nspace, places)
        self._crossing.add_server(origin, nspace)
        return PLACES.write((nspace, {})) if known and places else None

    def _report(self, origin: str) -> Iterator[tuple[int, bytes]]:
        """Yield the jobs that a server knows, and the procs that have ended or finalized there.

        The servers that are lost do not report their procs, so this server does so.
        """
        mine = origin == self._exchange.name
        jobs: list[Described] = []
        news: list[tuple[int, int, tuple[Proc, ...]]] = []
        if self._exchange.launcher:
            # The launcher's report to a server that has joined late.
            for departed, finalized in self._places.missing() if origin == self._exchange.launcher else ():
                news += [(FINALIZED, incarnation, (proc,)) for proc, incarnation in finalized]
                news += [(DEPARTED, 0, departed)] if departed else []
        else:

            def is_elsewhere(server: str) -> bool:
                return server != origin and not (mine and not self._exchange.has(server))

            for nspace, places, procs, finalized in self._places.list_reports(origin, is_elsewhere):
                jobs.append((nspace, places))
                news += [(FINALIZED, incarnation, (proc,)) for proc, incarnation in finalized]
                news += [(DEPARTED, 0, tuple(procs))] if procs else []
        if jobs or news:
            yield statelog.PROCS, _REPORT.write((tuple(jobs), tuple(news)))

    def _apply_report(self, origin: str, data: bytes) -> None:
        jobs, news = _REPORT.read(data)
        if not self._exchange.launcher:
            for nspace in set(self._places.jobs_of(origin)).difference([job[0] for job in jobs]):
                self._crossing.remove_server(origin, nspace)
        for job in jobs:
            self._apply_job(origin, *job)
        self._crossing.apply_news(news)
