"""Notices servers that no longer answer although nothing ends their connections: stopped processes, dead cables.

Theory of operation. Each server watches all that it is connected with. Time is counted in turns, each an eighth of the
time limit. A server is silent in a turn if no byte has arrived from it and it has read nothing of the bytes that wait
for it. A silent server is pinged; the thread of its carrier answers, whatever its host does in the meantime. A server
that is silent for seven turns is lost: so all that are connected with it lose it by their own observation, within the
time limit. If only one of them hears nothing, the connection of the two is broken, and the exchange decides what both
ends of it do.

    answers --a silent turn--> pinged --7 silent turns--> lost
    pinged --any message of it--> answers

A server counts turns and not seconds: a server that has been stopped itself finds others silent for one turn when it
continues. It gets a report at the end of a connection (`OUT`) that it was lost for its silence. If its clock shows that
it was stopped, it ends its other connections as well, so that all agree that it is the lost one.

A server that will be stopped for long may report that before (`AWAY`): it is not lost until it is back.

No I/O: the carrier sends the frames and ends the streams.
"""

from __future__ import annotations

import time

from pypmix.host.exchange import codec
from pypmix.host.exchange.errors import log
from pypmix.host.naming import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.host.exchange.stream import Stream
    from pypmix.host.exchange.tcp import Peers

TURNS, SUSPECTED, LOST = 8, 4, 7
"""The turns in the time limit, and the numbers of silent turns after which a server is suspected and lost.

One more turn than `LOST` may pass after the last sign: the turn in which it arrived.
"""

PING, ANSWER, OUT, AWAY = range(1, 5)
_PING, _ANSWER, _OUT = codec.pack(PING), codec.pack(ANSWER), codec.pack(OUT)


class KeepAlive:
    """The keep-alive of one server: it watches the others, and answers those that watch it.

    Args:
        peers: The other servers.
        seconds: The time after which a server that does not answer is lost to all.

    Attributes:
        every: The seconds of a turn.
    """

    def __init__(self, peers: Peers, seconds: float) -> None:
        self.every = seconds / TURNS
        self._peers = peers
        self._seconds = seconds
        self._turned = time.monotonic()
        self._stopped = float("-inf")
        self._away = False

    def turn(self) -> None:
        """End a turn; to be called each `every` seconds."""
        now = time.monotonic()
        if self._was_stopped(now):
            self._stopped = now
        self._turned = now
        for stream in list(self._peers.streams.values()):
            if stream.number:
                self._watch(stream)

    def _watch(self, stream: Stream) -> None:
        """End the turn of one server."""
        signs = stream.signs
        if stream.seen != signs or stream.away:
            stream.seen, stream.silent = signs, 0
            return
        stream.silent += 1
        if stream.silent >= LOST:
            self._peers.send_control(stream, _OUT)
            self._peers.lose(stream, f"it has not answered for {stream.silent * self.every:.3g} s")
            return
        if stream.silent == SUSPECTED:
            log.info("%s: %s is silent", shown(self._peers.name), shown(stream.name))
        self._peers.send_control(stream, _PING)

    def take(self, stream: Stream, data: bytes) -> None:
        """Process a frame of another server's keep-alive.

        Raises:
            RemoteProtocolError: It does not parse.
        """
        kind, parts = codec.unpack(data)
        if kind == PING:
            self._peers.send_control(stream, _ANSWER)
        elif kind == AWAY:
            stream.away = codec.expect(parts, 1)[0] == b"\1"
        elif kind == OUT and self._was_stopped(time.monotonic()):
            reason = f"this server was stopped, and {stream.name} counts it as lost"
            for each in list(self._peers.streams.values()):
                self._peers.lose(each, reason)

    def set_away(self, away: bool) -> bytes:
        """Record that this server will be silent, or is back. Return the frame that reports it."""
        self._away = away
        return self.report_away()

    def report_away(self) -> bytes:
        """Return the frame that reports if this server will be silent: after a reset the last one may be lost."""
        return codec.pack(AWAY, b"\1" if self._away else b"\0")

    def _was_stopped(self, now: float) -> bool:
        return now - self._turned > SUSPECTED * self.every or now - self._stopped < self._seconds
