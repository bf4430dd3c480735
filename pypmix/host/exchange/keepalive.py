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

A server that will be stopped for long may report that before (`AWAY`): it is not suspected until it is back.

No I/O: the carrier sends the frames in `KeepAlive.outbox` and ends the streams in `KeepAlive.losses` after each call.
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
    from collections.abc import Mapping, Sequence

    from pypmix.host.exchange.stream import Stream

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
        streams: The streams with the others, by their names.

    Attributes:
        every: The seconds of a turn.
        outbox: Frames to send, each with its stream.
        losses: Streams to end, each with the reason, and whether its server has ended for all.
    """

    def __init__(self, name: str, seconds: float, streams: Mapping[str, Stream]) -> None:
        self.every = seconds / TURNS
        self.outbox: list[tuple[Stream, bytes]] = []
        self.losses: list[tuple[Stream, str, bool]] = []
        self._name = name
        self._seconds = seconds
        self._streams = streams
        self._turned = time.monotonic()
        self._stopped = float("-inf")
        self._away = False
        self._vouched: dict[str, bool] = {}
        """Whether another server vouches for a server that this one does not reach, by its name."""

    def turn(self, ring: Sequence[str]) -> None:
        """End a turn; to be called each `every` seconds.

        Args:
            ring: The names of all servers, sorted.
        """
        now = time.monotonic()
        if self._was_stopped(now):
            self._stopped = now
        self._turned = now
        watched = followers(ring, self._name)
        for name, stream in list(self._streams.items()):
            if not stream.asleep:
                self._watch(stream, name in watched)

    def _watch(self, stream: Stream, watched: bool) -> None:
        """End the turn of one server."""
        pulse, signs = stream.pulse, stream.signs
        if pulse.seen != signs:
            self._answer_inquirers(stream)
        if pulse.seen != signs or pulse.away or not (watched or pulse.silent >= SUSPECTED):
            pulse.seen = signs
            pulse.silent = 0
            pulse.vouched = False
            return
        pulse.silent += 1
        if pulse.silent >= LOST:
            if watched:
                self._send_others(LOSE, stream.name)
            self._lose(stream)
            return
        if pulse.silent == SUSPECTED:
            log.info("%s: %s is silent", shown(self._name), shown(stream.name))
            self._send_others(SUSPECT, stream.name)
        self.outbox.append((stream, _PING))

    def take(self, stream: Stream, data: bytes) -> None:
        """Process a frame of another server's keep-alive.

        Raises:
            RemoteProtocolError: It does not parse.
        """
        kind, parts = codec.unpack(data)
        if kind == PING:
            self.outbox.append((stream, _ANSWER))
        elif kind in (SUSPECT, LOSE):
            other = self._streams.get(TEXT.read(codec.expect(parts, 1)[0]))
            if other is not None:
                if kind == SUSPECT:
                    other.pulse.inquirers.add(stream.name)
                self._doubt(other, kind == LOSE)
        elif kind == THERE:
            name = TEXT.read(codec.expect(parts, 1)[0])
            other = self._streams.get(name)
            if other is not None:
                other.pulse.vouched = True
            if name in self._vouched:
                self._vouched[name] = True
        elif kind == AWAY:
            stream.pulse.away = codec.expect(parts, 1)[0] == b"\1"
        elif kind == OUT and self._was_stopped(time.monotonic()):
            reason = f"this server was stopped, and {stream.name} counts it as lost"
            self.losses += [(each, reason, False) for each in list(self._streams.values())]

    def suspect(self, name: str) -> None:
        """Ask the others if they vouch for a server with which no connection can be made."""
        self._vouched[name] = False
        self._send_others(SUSPECT, name)

    def is_vouched(self, name: str) -> bool:
        """Return True if any server that was asked vouches for one, and forget that."""
        return self._vouched.pop(name, True)

    def set_away(self, away: bool) -> bytes:
        """Record that this server will be silent, or is back. Return the frame that reports it."""
        self._away = away
        return self.report_away()

    def report_away(self) -> bytes:
        """Return the frame that reports if this server will be silent: after a reset the last one may be lost."""
        return codec.pack(AWAY, b"\1" if self._away else b"\0")

    def _answer_inquirers(self, stream: Stream) -> None:
        """Report a sign of life of a server to the servers that suspect it."""
        for each in stream.pulse.inquirers:
            inquirer = self._streams.get(each)
            if inquirer is not None:
                self.outbox.append((inquirer, codec.pack(THERE, TEXT.write(stream.name))))
        stream.pulse.inquirers.clear()

    def _doubt(self, stream: Stream, is_loss: bool) -> None:
        """Another server suspects or has lost the server at the end of a stream."""
        pulse = stream.pulse
        if pulse.away:
            return
        if pulse.silent < SUSPECTED:
            pulse.seen, pulse.silent = stream.signs, SUSPECTED
            self.outbox.append((stream, _PING))
        elif is_loss and pulse.seen == stream.signs:
            self._lose(stream)

    def _lose(self, stream: Stream) -> None:
        self.outbox.append((stream, _OUT))
        reason = f"it has not answered for {stream.pulse.silent * self.every:.3g} s"
        self.losses.append((stream, reason, not stream.pulse.vouched))

    def _send_others(self, kind: int, name: str) -> None:
        data = codec.pack(kind, TEXT.write(name))
        self.outbox += [(stream, data) for other, stream in list(self._streams.items()) if other != name]

    def _was_stopped(self, now: float) -> bool:
        return now - self._turned > SUSPECTED * self.every or now - self._stopped < self._seconds
