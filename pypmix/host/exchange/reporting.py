"""Jobs and procs in a session with a launcher: it places the procs, and forwards the news of them.

Theory of operation. The launcher's server describes each job to every other server once, with the places of all procs
(`Crossing.place`). News of a proc (it has finalized, it has exited, it has connected again) go from its server to the
launcher's, which forwards them to all others: one message up, one to each server. News that are ready together travel
as one message, so a job of N nodes costs a few messages for each node, and not one for each pair.

Messages between two other servers may be faster than those by way of the launcher. So a server sends with a message
the basis of its messages from then on: the number of the last job that it knows, and how many news it has sent.
It does so once to each server after each change. The receiver keeps such a message, and those behind it, until it has
both from the launcher. In this way a contribution never arrives before the description of its procs, nor before the
news that its sender had reported. The other way round, news say how many messages their sender had sent to which
server, and wait there until these have arrived: a proc contributes before it exits.

A server that joins later gets the descriptions of all jobs, and then what has happened to their procs (`introduce`).

Servers without a launcher report to each other instead (`announcing`). All of this happens in turns of the exchange.
"""

from __future__ import annotations

import struct
import time
from collections import deque

from pypmix.engine.times import DECISION_SECONDS, FORWARD_SECONDS, NEWS_SECONDS
from pypmix.host.exchange.announcing import DEPARTED, FINALIZED, NEWS, PROC_NEWS, grouped
from pypmix.host.exchange.codec import NAME, NUMBER, Field, broken, many, message
from pypmix.host.exchange.limits import MAX_NEWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.host.exchange.announcing import News
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.places import Places
    from pypmix.standard.types import Proc

    Happened = Callable[[News], None]

FORWARDED = "pypmix.procs.forwarded"
INTRODUCTION = "pypmix.procs.introduction"
"""The topics of the launcher's messages; servers report to it as they do to each other (`announcing.PROC_NEWS`)."""

_BASIS = struct.Struct("!qq")
"""The number of the last job, and the number of the last news of the sender, 0 for none."""

_COUNTS: Field[tuple[tuple[str, int], ...]] = many(message(NAME, NUMBER))

_REPORT: Field[tuple[int, News, tuple[tuple[str, int], ...]]] = message(NUMBER, NEWS, _COUNTS)
"""The number of the last of these news, the news, and the counts of messages that their sender has sent lately."""

_FORWARDED: Field[tuple[tuple[str, int, News, tuple[tuple[str, int], ...]], ...]] = many(
    message(NAME, NUMBER, NEWS, _COUNTS)
)
"""Reports, each with the server that it comes from."""

_INTRODUCTION: Field[tuple[int, tuple[tuple[str, int], ...], News]] = message(NUMBER, _COUNTS, NEWS)
"""The number of the last job, the number of the last news of each server, and the news of procs."""


class Reports:
    """One server's part in the news of procs, in a session with a launcher.

    Args:
        exchange: This server's exchange.
        places: The server of each proc.
        happened: Called with news of procs of other servers.
        launcher: The name of the launcher's server, which may be this one.
    """

    def __init__(self, exchange: Exchange, places: Places, happened: Happened, launcher: str) -> None:
        self._exchange = exchange
        self._places = places
        self._happened = happened
        self._launcher = launcher
        self._forwards = launcher == exchange.name
        self._job = 0
        # A later process under the same name has greater numbers.
        self._before = time.time_ns()
        self._count = 0
        self._known: dict[str, int] = {}
        """The number of the last news of each server that came from the launcher."""
        self._waiting: set[str] = set()
        """The servers whose messages wait for their basis."""
        self._news: dict[Proc, tuple[int, int]] = {}
        self._reports: list[tuple[str, int, News, tuple[tuple[str, int], ...]]] = []
        self._flushed = float("-inf")
        self._early: dict[str, deque[tuple[int, News, int]]] = {}
        """News that wait for messages of their senders, and how many messages."""
        if self._forwards:
            exchange.hear(PROC_NEWS, self._reported)
        else:
            exchange.hear(FORWARDED, self._forwarded)
            exchange.hear(INTRODUCTION, self._introduced)
            exchange.needs_basis(self._has_basis)

    # For a crossing, as in `Announcements`

    def has_to_ask(self) -> bool:
        """Return False: the launcher describes each job before any proc can name it."""
        return False

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call a function."""
        call()

    def register(self, nspace: str, places: dict[int, str], number: int = 0) -> None:
        """Record the places of a job's procs.

        Args:
            nspace: The job.
            places: The server of each rank.
            number: The number of the job in the session; 0 if its description has been recorded before.
        """
        self._places.add(self._launcher, nspace, b"", places)
        if number > self._job:
            self._job = number
            self._changed()

    def meet(self, name: str) -> None:
        """Another server has joined: the launcher introduces it once it knows the jobs."""

    def lose(self, name: str) -> None:
        """Another server is lost."""
        self._take_early(name, whatever=True)
        self._known.pop(name, None)
        self._waiting.discard(name)

    def proc(self, proc: Proc, what: int, incarnation: int = 0) -> None:
        """Report news of a proc of this server."""
        before = self._news.get(proc)
        if len(self._news) >= MAX_NEWS or (before is not None and before[0] != FINALIZED):
            # Of two news in one report only the later one would count.
            self._exchange.send_buffered()
        if self._forwards:
            self._forward(self._exchange.name, 0, ((what, incarnation, (proc,)),), ())
            return
        if not self._news:
            self._exchange.buffer(self._launcher, PROC_NEWS, self._report)
        self._news[proc] = what, incarnation
        self._count += 1
        self._changed()

    def _report(self) -> bytes:
        news, self._news = self._news, {}
        return _REPORT.write((self._before + self._count, grouped(news), self._exchange.sent_lately()))

    # The launcher's server

    def introduce(self, name: str) -> None:
        """Report the departed and finalized procs to a server that has joined, and knows their jobs."""
        news: list[tuple[int, int, tuple[Proc, ...]]] = []
        for departed, finalized in self._places.missing():
            news += [(FINALIZED, incarnation, (proc,)) for proc, incarnation in finalized]
            news.append((DEPARTED, 0, departed))
        data = _INTRODUCTION.write((self._job, tuple(self._known.items()), tuple(news)))
        self._exchange.tell(name, INTRODUCTION, data)

    def _reported(self, sender: str, data: bytes) -> None:
        number, news, sent = _REPORT.read(data)
        self._known[sender] = number
        self._happened(news)
        self._forward(sender, number, news, sent)

    def _forward(self, sender: str, number: int, news: News, sent: tuple[tuple[str, int], ...]) -> None:
        if not self._reports:
            # The first reports at once; later ones of the same moment are sent together.
            since = self._exchange.now() - self._flushed
            self._exchange.defer(self._flush, max(NEWS_SECONDS, FORWARD_SECONDS - since))
        self._reports.append((sender, number, news, sent))

    def _flush(self) -> None:
        reports, self._reports = self._reports, []
        if reports:
            self._flushed = self._exchange.now()
            self._exchange.tell_others(FORWARDED, _FORWARDED.write(tuple(reports)))

    # The others

    def _forwarded(self, sender: str, data: bytes) -> None:
        if sender != self._launcher:
            raise broken(f"{sender} forwards news and is not the launcher")
        for origin, number, news, sent in _FORWARDED.read(data):
            if origin != self._exchange.name:
                needed = next((count for name, count in sent if name == self._exchange.name), 0)
                if origin in self._early or self._exchange.received(origin) < needed:
                    self._delay(origin, (number, news, needed))
                else:
                    self._take(origin, number, news)

    def _take(self, origin: str, number: int, news: News) -> None:
        if number:
            self._known[origin] = number
        # The procs of a server that is lost have departed, whatever it had reported before.
        gone = origin in self._exchange.gone
        self._happened(tuple([each for each in news if each[0] == DEPARTED]) if gone else news)
        self._release()

    def _delay(self, origin: str, report: tuple[int, News, int]) -> None:
        """Keep news until messages have arrived that their sender had sent before."""
        if not self._exchange.has(origin):
            self._take(origin, *report[:2])
            return
        early = self._early.setdefault(origin, deque())
        early.append(report)
        self._exchange.after_messages(origin, lambda: self._take_early(origin))
        # They never arrive if they were sent to an earlier process of this name.
        self._exchange.later(DECISION_SECONDS, lambda: self._take_late(origin, early, report))

    def _take_late(self, origin: str, early: deque[tuple[int, News, int]], report: tuple[int, News, int]) -> None:
        if report in early and self._early.get(origin) is early:
            self._take_early(origin, whatever=True)

    def _take_early(self, origin: str, whatever: bool = False) -> None:
        """Process the news of a server that need not wait for messages, or all of them."""
        early = self._early.get(origin)
        while early and (whatever or self._exchange.received(origin) >= early[0][2]):
            number, news, _ = early.popleft()
            self._take(origin, number, news)
        if not early and self._early.pop(origin, None) is not None:
            self._exchange.after_messages(origin, None)

    def _introduced(self, sender: str, data: bytes) -> None:
        if sender != self._launcher:
            raise broken(f"{sender} introduces this server and is not the launcher")
        self._job, known, news = _INTRODUCTION.read(data)
        self._known.update(known)
        self._happened(news)
        self._changed()

    def _changed(self) -> None:
        """Give the next message to each server the new basis, as the knowledge of this server has changed."""
        if not self._forwards:
            count = self._before + self._count if self._count else 0
            self._exchange.rebase(_BASIS.pack(self._job, count), (self._launcher,))
            self._release()

    def _has_basis(self, sender: str, basis: bytes) -> bool:
        if len(basis) != _BASIS.size:
            raise broken(f"a basis has {len(basis)} bytes")
        job, number = _BASIS.unpack(basis)
        if job <= self._job and number <= self._known.get(sender, 0):
            return True
        self._waiting.add(sender)
        return False

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for name in sorted(waiting):
            self._exchange.release(name)
