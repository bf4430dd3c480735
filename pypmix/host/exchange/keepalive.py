"""Notices servers that no longer answer although nothing ends their connections: stopped processes, dead cables.

Theory of operation. Each server watches a few others: the servers that follow it after 1, 2, 4, 8, ... places in the
order of names, in which the last is followed by the first. So N servers send about N log2(N) pings in a turn, not N².
Each is watched by about log2(N) others, and also when its neighbours are lost with it.

Time is counted in turns, each an eighth of the time limit. A server is silent in a turn if no byte has arrived from it
and it has read nothing of the bytes that wait for it. A silent server is pinged; the thread of its carrier answers,
whatever its host does in the meantime.

    answers --4 silent turns--> suspected --7 silent turns, or another server has lost it--> lost
    suspected --any message of it--> answers

A watcher reports a server that it suspects, or to which it gets no connection, to all servers that it is connected
with. From then on they ping that server too, each on its own connection. So all of these lose it by their own
observation, within the time limit. A server that gets a message of the suspected one reports that to the watcher
(`THERE`): if a watcher loses a server that others vouch for, their connection is broken, and the exchange decides what
both ends of it do. If no server vouches for it, the servers that have no connection with it believe the watcher
(`roll`).

A server counts turns and not seconds: a server that has been stopped itself finds others silent for one turn when it
continues. It gets a report at the end of a connection (`OUT`) that it was lost for its silence. If its clock shows that
it was stopped, it ends its other connections as well, so that all agree that it is the lost one.

A server that will be stopped for long may report that before (`AWAY`): it is not suspected until it is back. All of
this happens on the carrier's thread.
"""

from __future__ import annotations

import time

from pypmix.host.exchange import codec
from pypmix.host.exchange.codec import TEXT
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.roll import followers
from pypmix.host.naming import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pypmix.host.exchange.link import Link, Pulse

TURNS, SUSPECTED, LOST = 8, 4, 7
"""The turns in the time limit, and the numbers of silent turns after which a server is suspected and lost.

One more turn than `LOST` may pass after the last sign: the turn in which it arrived.
"""

PING, ANSWER, SUSPECT, LOSE, OUT, AWAY, THERE = range(1, 8)
_PING, _ANSWER, _OUT = codec.pack(PING), codec.pack(ANSWER), codec.pack(OUT)


class KeepAlive:
    """The keep-alive of one server: which others it watches, and its answers to the servers that watch it.

    Args:
        name: Its name.
        seconds: The time after which a server that does not answer is lost to all.
        links: The connections with the others, by their names.
        tell: Sends a frame on a connection.
        lose: Ends a connection, for a reason; called with whether its server has ended for all.
        ring: Returns the names of all servers, sorted; by default the servers that it is connected with.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        links: Mapping[str, Link],
        tell: Callable[[Link, bytes], None],
        lose: Callable[[Link, str, bool], None],
        ring: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self.every = seconds / TURNS
        self._name = name
        self._seconds = seconds
        self._links = links
        self._tell = tell
        self._lose = lose
        self._ring = ring or (lambda: sorted((name, *links)))
        self._turned = time.monotonic()
        self._stopped = float("-inf")
        self._away = False
        self._vouched: dict[str, bool] = {}
        """Whether another server vouches for a server that this one does not reach, by its name."""

    def turn(self) -> None:
        """End a turn; to be called each `every` seconds."""
        now = time.monotonic()
        if self._was_stopped(now):
            self._stopped = now
        self._turned = now
        watched = followers(self._ring(), self._name)
        for name, link in list(self._links.items()):
            pulse = link.pulse
            if link.asleep:
                continue
            if pulse.seen != link.signs:
                self._vouch(name, pulse)
            if pulse.seen != link.signs or pulse.away or not (name in watched or pulse.silent >= SUSPECTED):
                pulse.seen = link.signs
                pulse.silent = 0
                pulse.vouched = False
                continue
            pulse.silent += 1
            if pulse.silent >= LOST:
                if name in watched:
                    self._tell_others(LOSE, name)
                self._out(link)
                continue
            if pulse.silent == SUSPECTED:
                log.info("%s: %s is silent", shown(self._name), shown(name))
                self._tell_others(SUSPECT, name)
            self._tell(link, _PING)

    def take(self, sender: str, link: Link, data: bytes) -> None:
        """Process a frame of another server's keep-alive.

        Raises:
            RemoteProtocolError: It does not parse.
        """
        kind, parts = codec.unpack(data)
        if kind == PING:
            self._tell(link, _ANSWER)
        elif kind in (SUSPECT, LOSE):
            other = self._links.get(TEXT.read(codec.expect(parts, 1)[0]))
            if other is not None:
                if kind == SUSPECT:
                    other.pulse.asked.add(sender)
                self._doubt(other, kind == LOSE)
        elif kind == THERE:
            name = TEXT.read(codec.expect(parts, 1)[0])
            other = self._links.get(name)
            if other is not None:
                other.pulse.vouched = True
            if name in self._vouched:
                self._vouched[name] = True
        elif kind == AWAY:
            link.pulse.away = codec.expect(parts, 1)[0] == b"\1"
        elif kind == OUT and self._was_stopped(time.monotonic()):
            for each in list(self._links.values()):
                self._lose(each, f"this server was stopped, and {sender} counts it as lost", False)

    def suspect(self, name: str) -> None:
        """Ask the others if they vouch for a server with which no connection can be made."""
        self._vouched[name] = False
        self._tell_others(SUSPECT, name)

    def is_vouched(self, name: str) -> bool:
        """Return True if any server that was asked vouches for one, and forget that."""
        return self._vouched.pop(name, True)

    def away(self, going: bool) -> None:
        """Report to the others that this server will be silent, or is back; from any thread."""
        self._away = going
        for link in list(self._links.values()):
            self._tell(link, codec.pack(AWAY, b"\1" if going else b"\0"))

    def resumed(self, link: Link) -> None:
        """A connection is restored after a reset: frames that were sent in the meantime may be lost."""
        self._tell(link, codec.pack(AWAY, b"\1" if self._away else b"\0"))

    def _vouch(self, name: str, pulse: Pulse) -> None:
        """Report a sign of life of a server to the servers that suspect it."""
        for each in pulse.asked:
            link = self._links.get(each)
            if link is not None:
                self._tell(link, codec.pack(THERE, TEXT.write(name)))
        pulse.asked.clear()

    def _doubt(self, link: Link, lost: bool) -> None:
        """Another server suspects or has lost the server at the end of a connection."""
        pulse = link.pulse
        if pulse.away:
            return
        if pulse.silent < SUSPECTED:
            pulse.seen, pulse.silent = link.signs, SUSPECTED
            self._tell(link, _PING)
        elif lost and pulse.seen == link.signs:
            self._out(link)

    def _out(self, link: Link) -> None:
        self._tell(link, _OUT)
        reason = f"it has not answered for {link.pulse.silent * self.every:.3g} s"
        self._lose(link, reason, not link.pulse.vouched)

    def _tell_others(self, kind: int, name: str) -> None:
        for other, link in list(self._links.items()):
            if other != name:
                self._tell(link, codec.pack(kind, TEXT.write(name)))

    def _was_stopped(self, now: float) -> bool:
        return now - self._turned > SUSPECTED * self.every or now - self._stopped < self._seconds
