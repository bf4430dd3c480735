"""Reports jobs and procs to the other servers: the servers of a job's procs, and the procs that have ended or returned.

The servers of procs
--------------------
All servers of a job know the servers of its procs, and mostly describe it alike: so each sends the others a digest of
its description. A server with the same description, or that gets it in a moment by registering the job itself, asks for
nothing. Any other server asks one of the servers that have sent the digest, and the next one if that is lost or silent.

The messages of a server after its report of a job may be about the job's procs. So as long as a server here lacks a
description it keeps the sender's messages for later (`Exchange.hold`), and asks at once when there is a message. Its
upcalls wait as well, since a client may know of a job from others (`when_settled`). The question and its answer pass
the kept messages (`Exchange.aside`), so that two servers which ask each other do not wait for each other.

The news of procs
-----------------
News of procs are combined, in one message for `NEWS_SECONDS`, or sooner: before any other message of this server, which
may depend on them. If a proc has two news in one message, the later one counts, which includes the earlier one: the
news that a proc has ended and returned are sent in two messages.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

from hashlib import blake2b

from pypmix.engine.times import CLAIM_SECONDS, DECISION_SECONDS, NEWS_SECONDS
from pypmix.host.exchange.codec import BYTES, NAME, NUMBER, PLACES, PROCS, Field, broken, many, message
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.limits import MAX_NEWS
from pypmix.host.naming import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import Timer
    from pypmix.host.exchange.places import Places
    from pypmix.standard.types import Proc

    News = tuple[tuple[int, int, tuple[Proc, ...]], ...]

REGISTERED = "pypmix.places"
WANTED = "pypmix.places.wanted"
DESCRIBED = "pypmix.places.described"
PROC_NEWS = "pypmix.procs"
"""The topics of messages between servers."""

FINALIZED, DEPARTED, BACK = range(3)
"""The news of a proc."""

DIGEST = 16

_REGISTERED: Field[tuple[str, bytes]] = message(NAME, BYTES)
"""A job, and the digest of the servers of its procs."""

_DESCRIBED: Field[tuple[str, bytes, bytes]] = message(NAME, BYTES, BYTES)
"""A job, the digest that was asked about, and the servers of the procs; nothing if the job has ended."""

NEWS: Field[News] = many(message(NUMBER, NUMBER, PROCS))
"""News: their kind, the incarnation, and the procs."""


def grouped(news: dict[Proc, tuple[int, int]]) -> News:
    """Return news of procs with the procs that share them together."""
    found: dict[tuple[int, int], list[Proc]] = {}
    for proc, what in news.items():
        found.setdefault(what, []).append(proc)
    return tuple([(*what, tuple(sorted(procs))) for what, procs in found.items()])


class _Claim:
    """A description that this server lacks.

    Attributes:
        tellers: The servers that have sent its digest and have not been asked.
        told: All servers that have sent it.
        asked: The server that is asked.
        timer: Asks the first server, or the next one.
    """

    __slots__ = ("asked", "tellers", "timer", "told")

    def __init__(self) -> None:
        self.tellers: list[str] = []
        self.told: list[str] = []
        self.asked = ""
        self.timer: Timer | None = None


class Announcements:
    """One server's part in the reports of jobs and procs.

    Args:
        exchange: This server's exchange.
        places: The server of each proc.
        happened: Called with news of procs of other servers: kind, incarnation, and procs.
        registered: Called when another server has reported a job, with both names.
    """

    def __init__(
        self,
        exchange: Exchange,
        places: Places,
        happened: Callable[[News], None],
        registered: Callable[[str, str], None],
    ) -> None:
        self._exchange = exchange
        self._places = places
        self._happened = happened
        self._registered = registered
        self._claims: dict[tuple[str, bytes], _Claim] = {}
        self._settled: list[Callable[[], None]] = []
        self._news: dict[Proc, tuple[int, int]] = {}
        exchange.hear(REGISTERED, self._told)
        exchange.hear(WANTED, self._wanted)
        exchange.hear(DESCRIBED, self._described)
        exchange.hear(PROC_NEWS, lambda _, data: happened(NEWS.read(data)))

    # Jobs

    def register(self, nspace: str, places: dict[int, str]) -> None:
        """Register a job of this server."""
        digest = blake2b(PLACES.write((nspace, places)), digest_size=DIGEST).digest()
        self._places.add(self._exchange.name, nspace, digest, places)
        self._exchange.tell_others(REGISTERED, _REGISTERED.write((nspace, digest)))
        self._settle((nspace, digest))

    def meet(self, name: str) -> None:
        """Send the state to a server that has joined, at once, so that no news reach it before."""
        news: list[tuple[int, int, tuple[Proc, ...]]] = []
        # No other server reports procs whose server is lost, or that were on a former server of the new one's name.
        for nspace, digest, departed, finalized in self._places.told_by(self._exchange.name, self._is_elsewhere(name)):
            self._exchange.tell_others(REGISTERED, _REGISTERED.write((nspace, digest)), name)
            news += [(FINALIZED, incarnation, (proc,)) for proc, incarnation in finalized]
            if departed:
                news.append((DEPARTED, 0, tuple(departed)))
        if news:
            self._exchange.tell_others(PROC_NEWS, NEWS.write(tuple(news)), name)

    def _is_elsewhere(self, newcomer: str) -> Callable[[str], bool]:
        return lambda server: server != newcomer and self._exchange.has(server) and server != self._exchange.name

    def lose(self, name: str) -> None:
        """Another server is lost: ask others for the descriptions that it has reported."""
        for key, claim in list(self._claims.items()):
            if name in claim.told:
                claim.told.remove(name)
                claim.tellers = [each for each in claim.tellers if each != name]
                if not claim.told:
                    self._settle(key)
                elif claim.asked == name:
                    self._ask(key, claim)

    def has_to_ask(self) -> bool:
        """Return True if a description is lacking."""
        return bool(self._claims)

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call a function as soon as no description is lacking."""
        self._settled.append(call)
        self._ask_all()

    def _ask_all(self) -> None:
        for key, claim in list(self._claims.items()):
            if not claim.asked:
                self._ask(key, claim)

    def _told(self, sender: str, data: bytes) -> None:
        nspace, digest = key = _REGISTERED.read(data)
        if len(digest) != DIGEST:
            raise broken(f"a digest has {len(digest)} bytes")
        if self._places.knows(nspace, digest):
            self._add(sender, nspace, digest)
            return
        claim = self._claims.get(key)
        if claim is None:
            claim = self._claims[key] = _Claim()
            claim.timer = self._exchange.later(CLAIM_SECONDS, lambda: self._ask(key, claim))
        if sender not in claim.told:
            claim.tellers.append(sender)
            claim.told.append(sender)
        self._exchange.hold(sender, self._ask_all)

    def _add(self, sender: str, nspace: str, digest: bytes) -> None:
        self._places.add(sender, nspace, digest)
        self._registered(sender, nspace)

    def _ask(self, key: tuple[str, bytes], claim: _Claim) -> None:
        """Ask the next server that has sent a digest."""
        if self._claims.get(key) is not claim:
            return
        if claim.timer is not None:
            claim.timer.cancel()
        if not claim.tellers:
            log.error("%s: %s do not say where the procs of %r are", shown(self._exchange.name), claim.told, key[0])
            self._settle(key)
            return
        claim.asked = claim.tellers.pop(0)
        claim.timer = self._exchange.later(DECISION_SECONDS, lambda: self._ask(key, claim))
        self._exchange.aside(claim.asked, WANTED, _REGISTERED.write(key))

    def _wanted(self, sender: str, data: bytes) -> None:
        nspace, digest = _REGISTERED.read(data)
        places = self._places.of(nspace)
        described = b"" if places is None else PLACES.write((nspace, places))
        self._exchange.aside(sender, DESCRIBED, _DESCRIBED.write((nspace, digest, described)))

    def _described(self, sender: str, data: bytes) -> None:
        nspace, digest, described = _DESCRIBED.read(data)
        claim = self._claims.get((nspace, digest))
        if claim is None or claim.asked != sender:
            # Others were faster.
            return
        if described:
            self._places.describe(nspace, digest, PLACES.read(described)[1])
            self._settle((nspace, digest))
        elif claim.tellers:
            self._ask((nspace, digest), claim)
        else:
            # Its tellers have forgotten it since, and report that.
            self._settle((nspace, digest))

    def _settle(self, key: tuple[str, bytes]) -> None:
        """Continue with the messages that were kept for a description, which has arrived or cannot be got."""
        claim = self._claims.pop(key, None)
        if claim is None:
            return
        if claim.timer is not None:
            claim.timer.cancel()
        for name in claim.told:
            if self._places.knows(*key):
                self._add(name, *key)
        for name in claim.told:
            if not any(name in other.told for other in self._claims.values()):
                self._exchange.release(name)
        if not self._claims:
            settled, self._settled = self._settled, []
            for call in settled:
                call()

    # Procs

    def proc(self, proc: Proc, what: int, incarnation: int = 0) -> None:
        """Report news of a proc of this server."""
        before = self._news.get(proc)
        if len(self._news) >= MAX_NEWS or (before is not None and before[0] != FINALIZED):
            self._flush()
        if not self._news:
            self._exchange.defer(self._flush, NEWS_SECONDS)
        self._news[proc] = what, incarnation

    def _flush(self) -> None:
        """Send the pending news."""
        news, self._news = self._news, {}
        if not news:
            return
        self._exchange.tell_others(PROC_NEWS, NEWS.write(grouped(news)))
