"""The carrier over TCP: loopback, network namespaces, or a network that is trusted as far as its wires.

Theory of operation. `stream` has the messages with one other server, `handshake` the proof of who it is, `keepalive`
the signs of its life, and `census` which servers are present. Here is the I/O:

* `Entrance` accepts connections, and bounds the share of peers in their handshake.
* `Dialer` connects with servers whose addresses are known, until it reaches them, and makes and restores streams.
* `Admission` opens connections, `Departure` ends them in order.
* `Peers` has the streams with the other servers: it serves, restores and ends them, and reports the servers that join
  and leave.
* `TCPCarrier` is what a user sees: it has the loop, and calls `Peers` on it.

All of these run on the carrier's thread, but for the methods of `TCPCarrier` and `Peers.send`.
"""

from __future__ import annotations

import errno
import itertools
import os
import resource
import socket
import threading
import time
from functools import partial

from pypmix.engine.faults import fault
from pypmix.engine.times import (
    DIAL_SECONDS,
    KEEP_ALIVE_SECONDS,
    LINK_HANDSHAKE_SECONDS,
    LINK_LINGER_SECONDS,
    LOOK_SECONDS,
    MAX_RETRY_SECONDS,
    PAUSE_SECONDS,
    PROOF_SECONDS,
    READ_SECONDS,
    REFUSED_SECONDS,
    RETRY_SECONDS,
    STALL_SECONDS,
    UNREACHED_LOG_SECONDS,
)
from pypmix.host import addresses
from pypmix.host.exchange import codec, rendezvous
from pypmix.host.exchange.carrier import MAX_MESSAGE, check
from pypmix.host.exchange.census import LIFE, Census
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.handshake import Handshake, HandshakeError, Progress, refusal
from pypmix.host.exchange.keepalive import KeepAlive
from pypmix.host.exchange.limits import MAX_MESH, MAX_RESOLVING
from pypmix.host.exchange.stream import CONTROL, REPORT, Broken, Connection, ConnectionEnd, Stream
from pypmix.host.loop import READ, WRITE, Loop
from pypmix.host.naming import check_name, shown
from pypmix.standard.errors import NotInitialized, RemoteProtocolError
from pypmix.standard.logtext import WINDOW
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Self

    from pypmix.engine.base import Cancellable as Timer
    from pypmix.engine.base import Guest
    from pypmix.host.exchange.carrier import OnChange, OnMessage
    from pypmix.host.exchange.rendezvous import Address

MAX_BACKLOG = 2 * MAX_MESSAGE
"""The most bytes that may wait for a server that does not read."""

MAX_UNPROVED = 512
"""The most accepted connections that may be in their handshake at a time, if a quarter of the descriptors is enough.

The oldest one makes room, once it has had `PROOF_SECONDS`; until then, new ones wait in the system's queue. So a server
that proves its identity within that time gets in however many others dial, and these cost a bounded share of time.
"""

EVERYWHERE = (addresses.ANYWHERE, "0.0.0.0")
"""The addresses that mean all addresses of this machine."""

NOWHERE: Address = ("", 0)
"""The address of a server that does not listen."""

ACCEPTS = 16
"""The connections that are accepted in one turn, so that existing ones have their turn as well."""

HANDSHAKES = 8
"""The connections in their handshake that are processed in one turn, for the same reason: any process can make them."""

GOODBYE = b""
"""The frame that reports that its sender leaves; no message is empty."""

SETTLE = 32
"""The frame of carriers that asks for an acknowledgement."""

_resolvers = threading.BoundedSemaphore(MAX_RESOLVING)

SOON = float("inf")
"""The end of a carrier that was closed a moment ago."""


class Settings(Record):
    """The arguments of a carrier; see `TCPCarrier`."""

    name: str
    secret: bytes
    max_message: int
    max_backlog: int
    introducer: str
    mesh: int
    keep_alive: float
    encrypt: bool | None
    quiet: bool

    def __validate__(self) -> None:
        if not isinstance(self.secret, bytes | bytearray):
            raise TypeError(f"a secret is bytes, not {type(self.secret).__name__}")
        for label, size in (("max_message", self.max_message), ("max_backlog", self.max_backlog)):
            if type(size) is not int or not 0 < size < REPORT:
                raise ValueError(f"{label} is a number of bytes, at least 1 and below {REPORT}, not {size!r:.80}")
        if type(self.mesh) is not int or self.mesh < 1:
            raise ValueError(f"mesh is a number of servers, at least 1, not {self.mesh!r:.80}")
        if not 0 < self.keep_alive < float("inf"):
            raise ValueError(f"keep_alive is a number of seconds above 0, not {self.keep_alive!r:.80}")
        if len(self.secret) < 16:
            raise ValueError(f"a secret of {len(self.secret)} bytes can be guessed: 16 at least")


class Dialing:
    """The attempts to connect with a server, at its addresses in turn, until it is reached.

    Attributes:
        stream: The stream for which a connection is made; None for a server that was never present.
        tries: How often it was dialed without success.
        failure: Why the last attempt failed.
        reason: The failure that was logged last, at `logged`.
        since: When it was to be dialed first.
        connection: The connection by which it is being dialed.
        timer: Dials it.
    """

    __slots__ = ("addresses", "connection", "failure", "logged", "name", "reason", "since", "stream", "timer", "tries")

    def __init__(self, name: str, addresses: tuple[Address, ...], stream: Stream | None = None) -> None:
        self.name = name
        self.addresses = addresses
        self.stream = stream
        self.tries = 0
        self.since = time.monotonic()
        self.connection: Connection | None = None
        self.timer: Timer | None = None
        self.logged = 0.0
        self.reason = self.failure = ""

    @property
    def address(self) -> Address:
        """The address at which it is dialed the next time: its addresses are tried in turn."""
        return self.addresses[self.tries % len(self.addresses)]

    @property
    def proved(self) -> bool:
        """Whether this side has proved on the connection who it is: the other one may count it from then on."""
        return self.connection is not None and self.connection.handshake.proved

    def places(self) -> str:
        """Return its addresses, for a person."""
        return " and ".join([f"{host} port {port}" for host, port in self.addresses])

    def stop(self) -> None:
        """Stop dialing it."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Entrance:
    """Accepts connections, and leaves a bounded share of time and descriptors to peers in their handshake.

    Args:
        peers: The other servers.
        listener: The socket that listens; None if the server does not.
    """

    def __init__(self, peers: Peers, listener: socket.socket | None) -> None:
        self.unproved = dict[Connection, None]()
        """The accepted connections that are in their handshake, the oldest first."""
        self.listener = listener
        self._peers = peers
        self._ready = dict[Connection, None]()
        self._watching = False
        self._paused: Timer | None = None
        """Resumes accepting connections."""

    def open(self) -> None:
        """Begin to accept connections."""
        if self.listener is not None:
            self._watching = True
            self._peers.loop.watch(self.listener.fileno(), READ, self._accept)

    def close(self) -> None:
        """Stop accepting connections."""
        self._stop_watching()
        if self._paused is not None:
            self._paused.cancel()
        self.unproved.clear()
        self._ready.clear()
        if self.listener is not None:
            self.listener.close()

    def _stop_watching(self) -> None:
        if self._watching and self.listener is not None:
            self._watching = False
            self._peers.loop.unwatch(self.listener.fileno())

    def _accept(self) -> None:
        peers = self._peers
        assert self.listener is not None
        for _ in range(ACCEPTS):
            if not self._make_room(len(self.unproved) >= _most_unproved()):
                return
            try:
                sock, address = self.listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    log.error("%s: no connection can be taken: %s", shown(peers.name), error)
                    if not self.unproved:
                        self._pause(PAUSE_SECONDS)
                    else:
                        self._make_room(True)
                return
            settings = peers.settings
            handshake = Handshake(peers.name, settings.secret)
            connection = Connection(sock, handshake, settings.keep_alive, bool(settings.encrypt), address[:2])
            self.unproved[connection] = None
            peers.begin(connection, READ, LINK_HANDSHAKE_SECONDS)

    def _make_room(self, full: bool) -> bool:
        """Close the oldest connection that is in its handshake if all are taken. Return True if there is room."""
        if not full:
            return True
        oldest = next(iter(self.unproved))
        wait = oldest.since + PROOF_SECONDS - time.monotonic()
        if wait > 0:
            self._pause(wait)
            return False
        self._peers.drop(oldest, f"{len(self.unproved)} connections are in their handshake, and it is the oldest")
        return True

    def _pause(self, seconds: float) -> None:
        """Leave dialing servers in the system's queue for a while."""
        if self._paused is None:
            self._stop_watching()
            self._paused = self._peers.loop.later(seconds, self._resume)

    def _resume(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
            self.open()

    def release(self, connection: Connection) -> None:
        """Accept another connection: this one has passed its handshake, or has ended."""
        if connection in self.unproved:
            del self.unproved[connection]
            self._resume()

    def line_up(self, connection: Connection) -> bool:
        """Return True if a connection that is ready has its turn later, after others that have waited longer."""
        if connection not in self.unproved:
            return False
        if not self._ready:
            self._peers.post(self._serve)
        self._ready[connection] = None
        return True

    def _serve(self) -> None:
        """Continue with the connections in their handshake that have waited longest, a few at a time."""
        for connection in list(itertools.islice(self._ready, HANDSHAKES)):
            del self._ready[connection]
            self._peers.serve(connection)
        if self._ready:
            self._peers.post(self._serve)


class Dialer:
    """Connects with servers: each that is known until it has been met, and each with a stream to restore.

    Args:
        peers: The other servers.
    """

    def __init__(self, peers: Peers) -> None:
        self.known: dict[str, tuple[Address, ...]] = {}
        """The addresses of servers, by name."""
        self.attempts: dict[str, Dialing] = {}
        """The servers to which a connection is being made, for the first time or again."""
        self.folder = ""
        """The folder in which the servers find each other, or empty."""
        self._peers = peers
        self._announced = False
        self._folder_state = (0, False, 0.0)

    def look(self, delay: float = 0.0) -> None:
        """Look up the addresses of servers in the folder, and dial new ones; again and again.

        Args:
            delay: The seconds that new servers get to dial first.
        """
        peers = self._peers
        try:
            if not self._announced:
                # Before the look-up: of two servers that start at a time, at least one sees the other.
                rendezvous.announce(self.folder, peers.name, peers.address)
                self._announced = True
            before, settled, moment = self._folder_state
            now = os.stat(self.folder).st_mtime_ns
            if now != before or not settled or time.monotonic() - moment > READ_SECONDS:
                entries = rendezvous.find(self.folder)
                # Changes while the clock of the file system stood still are noticed the next time.
                self._folder_state = now, now == before, time.monotonic()
                for name in [name for name in self.known if name not in entries]:
                    self.forget(name)
                for name, address in entries.items():
                    self.meet(name, (address,), delay)
        except OSError as error:
            log.warning("%s: %s cannot be used: %s", shown(peers.name), self.folder, error.strerror or error)
        if not peers.closing:
            # A new server dials the present ones, and gets the time for it.
            peers.loop.later(_about(LOOK_SECONDS), lambda: self.look(LOOK_SECONDS))

    def record_dialer(self, name: str) -> None:
        """Record the address of a server that has dialed: it is not looked up in the folder after its end."""
        address = rendezvous.find(self.folder, name).get(name) if self.folder else None
        if address is not None:
            self.meet(name, (address,), 0)

    def meet(self, name: str, places: tuple[Address, ...], delay: float) -> None:
        """Record the addresses of a server, and dial it unless it is present."""
        if name == self._peers.name or self.known.get(name) == places:
            return
        self.forget(name)
        self.known[name] = places
        if name not in self._peers.census.present and not self._peers.closing:
            dialing = self.attempts[name] = Dialing(name, places)
            self.start(dialing, delay)

    def unmet(self) -> list[Dialing]:
        """Return the servers that are dialed and were never present."""
        return [dialing for dialing in self.attempts.copy().values() if dialing.stream is None]

    def dials(self, name: str, restores: bool) -> bool:
        """Return True if this side has dialed a server and proved who it is.

        Args:
            name: The server.
            restores: Whether only a connection counts by which a stream is restored.
        """
        dialing = self.attempts.get(name)
        return dialing is not None and dialing.proved and (dialing.stream is not None or not restores)

    def forget(self, name: str) -> None:
        """Forget the addresses of a server, and stop to dial it if it was never present."""
        self.known.pop(name, None)
        dialing = self.attempts.get(name)
        if dialing is not None and dialing.stream is None:
            self.finish(name)

    def finish(self, name: str, connection: Connection | None = None) -> None:
        """Stop to dial a server.

        Args:
            name: The server.
            connection: The connection that it has; others that are being made are dropped.
        """
        dialing = self.attempts.pop(name, None)
        if dialing is not None:
            dialing.stop()
            rival, dialing.connection = dialing.connection, None
            if rival is not None and rival is not connection:
                self._peers.drop(rival, "")

    def note_presence(self, name: str) -> None:
        """A server that may be dialed for the first time is present: what has begun is for its stream."""
        dialing = self.attempts.get(name)
        if dialing is None or dialing.stream is not None:
            return
        dialing.stop()
        if dialing.connection is None:
            del self.attempts[name]
        else:
            with self._peers.streams_lock:
                dialing.stream = self._peers.find_stream(name)
            self._limit(dialing)

    def _wants(self, dialing: Dialing) -> bool:
        """Return True if a server is to be dialed."""
        return self.attempts.get(dialing.name) is dialing and not (dialing.stream is None and self._peers.closing)

    def start(self, dialing: Dialing, delay: float) -> None:
        """Dial a server after some seconds."""
        dialing.stop()
        if self._wants(dialing):
            dialing.timer = self._peers.loop.later(delay, lambda: self._dial(dialing))

    def _dial(self, dialing: Dialing) -> None:
        dialing.timer = None
        if dialing.connection is not None or not self._wants(dialing):
            return
        post = self._peers.post

        def find(flags: int) -> None:
            infos = addresses.resolved(*dialing.address, socket.SOCK_STREAM, flags)
            post(lambda: self._connect(dialing, infos))

        def resolve() -> None:
            try:
                find(0)
            except (OSError, ValueError) as error:
                reason = str(error)
                post(lambda: self.fail(dialing, reason))
            finally:
                _resolvers.release()

        try:
            find(socket.AI_NUMERICHOST)
        except (OSError, ValueError):
            # Host names may take long to resolve.
            if not _resolvers.acquire(blocking=False):
                self.start(dialing, RETRY_SECONDS)
                return
            threading.Thread(target=resolve, name=f"pypmix-resolve-{dialing.name}", daemon=True).start()

    def _connect(self, dialing: Dialing, infos: list[tuple[Any, ...]]) -> None:
        if dialing.connection is not None or not self._wants(dialing):
            return
        peers, stream = self._peers, dialing.stream
        info = infos[dialing.tries // len(dialing.addresses) % len(infos)]
        host, encrypt = info[4][0], peers.settings.encrypt
        if encrypt is None:
            encrypt = not addresses.is_loopback(host)
        if stream is not None and stream.number:
            stream.dialed += 1
            encrypt = stream.encrypted
        progress = peers.admission.progress(stream)
        handshake = Handshake(peers.name, peers.settings.secret, to=dialing.name, progress=progress)
        try:
            sock = socket.socket(info[0], socket.SOCK_STREAM)
            connection = Connection(sock, handshake, peers.settings.keep_alive, encrypt, info[4][:2])
        except OSError as error:
            self.fail(dialing, error.strerror or str(error))
            return
        try:
            code = sock.connect_ex(info[4])
        except (OSError, OverflowError) as error:
            connection.close()
            self.fail(dialing, str(error))
            return
        if code not in (0, errno.EINPROGRESS):
            connection.close()
            refused = code == errno.ECONNREFUSED
            self.fail(dialing, os.strerror(code), refused=refused)
            return
        dialing.connection = connection
        peers.begin(connection, READ | WRITE, min(LINK_HANDSHAKE_SECONDS, DIAL_SECONDS * 2 ** min(dialing.tries, 8)))
        handshake.listens = _listening_address(peers.address, sock)
        peers.send_handshake(connection, handshake.begin())

    def lose(self, connection: Connection, reason: str, *, grave: bool = False, refused: bool = False) -> bool:
        """Return True if a connection that has ended was an attempt to reach a server, which is dialed again."""
        dialing = self.attempts.get(connection.peer)
        if dialing is None or dialing.connection is not connection:
            return False
        dialing.connection = None
        self.fail(dialing, reason, grave=grave, refused=refused)
        return True

    def fail(self, dialing: Dialing, reason: str, *, grave: bool = False, refused: bool = False) -> None:
        """A server was not reached: dial it again in a while, unless that ends its stream."""
        if not self._wants(dialing):
            return
        stream, name = dialing.stream, dialing.name
        now = time.monotonic()
        if stream is not None and (grave or refused):
            if stream.number:
                self._peers.vanish(name, ", and ".join(filter(None, (dialing.reason, reason))))
                return
            if grave or now - dialing.since >= REFUSED_SECONDS:
                self._peers.vanish(name, reason)
                return
        dialing.tries += 1
        dialing.failure = reason
        level = log.info
        late = grave or now - dialing.since >= UNREACHED_LOG_SECONDS
        if late and (reason != dialing.reason or now - dialing.logged >= WINDOW):
            dialing.logged, dialing.reason = now, reason
            level = log.error if grave else self._peers.log_loss
        level(
            "%s: %s is not reached at %s, and is dialed again: %s",
            shown(self._peers.name),
            shown(name),
            dialing.address,
            reason,
        )
        self.start(dialing, _about(min(MAX_RETRY_SECONDS, RETRY_SECONDS * 2 ** min(dialing.tries - 1, 8))))

    def reach(self, name: str) -> None:
        """Make a connection with a present server, unless there is one."""
        peers = self._peers
        with peers.streams_lock:
            stream = peers.find_stream(name)
        if stream is not None and not stream.number and name not in self.attempts:
            self.connect(stream, "")

    def connect(self, stream: Stream, reason: str) -> None:
        """Make a connection, the first one or another one, within the time of the keep-alive.

        Args:
            stream: The stream, which has no connection.
            reason: Why it has none, for a person; empty if it never had one.
        """
        name = stream.name
        if stream.number:
            where: tuple[Address, ...] = (stream.address,)
        else:
            where = self._peers.census.addresses_of(name) or self.known.get(name, ())
        dialing = self.attempts[name] = Dialing(name, where, stream)
        dialing.reason = reason
        self._limit(dialing)
        if where and where[0][1]:
            self.start(dialing, 0)

    def _limit(self, dialing: Dialing) -> None:
        """End a stream after the time of the keep-alive, unless it has a connection then, or its server is away."""
        seconds = self._peers.settings.keep_alive

        def give_up() -> None:
            if self.attempts.get(dialing.name) is not dialing:
                return
            if dialing.stream is not None and dialing.stream.away:
                self._limit(dialing)
            else:
                reason = f"it is not reached in {seconds:g} s"
                self._peers.vanish(dialing.name, ": ".join(filter(None, (reason, dialing.reason))))

        self._peers.loop.later(seconds, give_up)


class Admission:
    """Opens connections: decides which servers get in, and which of several connections counts.

    Args:
        peers: The other servers.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def take(self, connection: Connection, frame: bytes) -> None:
        """Process a frame of the handshake, and open the connection if it is the last one."""
        handshake, peers = connection.handshake, self._peers
        answer = handshake.take(frame)
        if handshake.done:
            stream = self._choose_stream(connection)
            if not connection.dials:
                answer = handshake.welcome(self.progress(stream))
            self._open(connection, stream, answer)
        elif answer:
            peers.send_handshake(connection, answer)
            if handshake.proved:
                # The other side may take this server for a member from here on: to hang up would be its end there.
                peers.limit_handshake(connection, peers.settings.keep_alive)

    def progress(self, stream: Stream | None) -> Progress:
        """Return the progress of this side with a stream; None for a new one."""
        life = self._peers.census.life
        return Progress(life=life) if stream is None else stream.progress(life)

    def _choose_stream(self, connection: Connection) -> Stream | None:
        """Return the stream that a connection continues; None for a new one.

        Raises:
            HandshakeError: Another connection counts, or the other side is lost.
        """
        peers, name, theirs = self._peers, connection.peer, connection.handshake.theirs
        stream = peers.streams.get(name)
        continued = stream is not None and theirs.stream != b"" and theirs.stream == stream.number
        if not connection.dials:
            if name == peers.name:
                raise HandshakeError(f"its name is {shown(name)} as well")
            # If two dial each other, the connection of the first by name counts.
            rival = peers.name < name and peers.dialer.dials(name, bool(theirs.stream))
            if rival or (continued and stream is not None and stream.is_old(theirs)):
                raise HandshakeError("it is being dialed itself, or was", retry=True)
            if continued and stream is not None and stream.connection is not None:
                # It was reset, and that has not been noticed here yet.
                peers.end_connection(stream.connection, ConnectionEnd("it is made again by the other side", reset=True))
            # A server that has dialed, and proved who it is, may be present for the other side.
            if peers.closing and not theirs.stream and not (stream is not None and stream.owes):
                raise HandshakeError(f"{shown(peers.name)} leaves", retry=True)
        if continued and stream is not None and stream.connection is None and not stream.ended:
            return stream
        if peers.census.counts_as_lost(theirs.life):
            raise HandshakeError(f"{shown(name)} counts as lost")
        if theirs.stream:
            raise HandshakeError(f"its connection with {shown(name)} is over", retry=connection.dials)
        if len(theirs.life) != LIFE:
            raise HandshakeError(f"{shown(name)} says nothing of its life")
        if (stream is not None and stream.number) or not peers.census.admits(name, theirs.life):
            # If the present one has died, that is about to be noticed.
            raise HandshakeError(f"there is a {shown(name)} already", retry=True)
        return stream

    def _open(self, connection: Connection, stream: Stream | None, answer: bytes) -> None:
        """Use a connection, both sides of which have proved who they are, for a stream; None for a new one."""
        peers, name, life = self._peers, connection.peer, connection.handshake.theirs.life
        resumed = stream is not None and stream.number != b""
        if not connection.dials and not resumed:
            peers.dialer.record_dialer(name)
        self._settle(connection, answer)
        with peers.streams_lock:
            stream = peers.streams.setdefault(name, stream or Stream(name, life, peers.settings.max_backlog))
        try:
            stream.attach(connection)
        except RemoteProtocolError as error:
            peers.lose(stream, str(error))
            raise
        if resumed:
            peers.send_control(stream, peers.keep_alive.report_away())
            log.info("%s: the connection with %s is there again", shown(peers.name), shown(name))
        else:
            stream.life = life
            new = name not in peers.census.present
            peers.census.add(stream)
            if new:
                peers.appear(name)
        peers.watch(connection, True)
        if peers.departure.final and not resumed:
            peers.departure.send_goodbye(stream)
        elif peers.closing:
            peers.departure.request_acknowledgement(stream)

    def _settle(self, connection: Connection, answer: bytes) -> None:
        """Both sides of a connection have proved who they are; send that before anything else."""
        self._peers.dialer.finish(connection.peer, connection)
        if not connection.dials:
            host, (listens, port) = connection.address[0], connection.handshake.listens
            # Another address is seen if the addresses of one side are translated: it cannot be dialed there.
            connection.address = host, port if listens == _plain(host) else 0
        self._peers.entrance.release(connection)
        if connection.timer is not None:
            connection.timer.cancel()
        if answer:
            self._peers.send_handshake(connection, answer)

    def refuse(self, connection: Connection, error: HandshakeError) -> None:
        if not connection.dials:
            self._peers.send_handshake(connection, refusal(error))
        # A server that leaves may be about to make a connection, and a lost one does not know yet that it is lost.
        theirs = connection.handshake.theirs
        quiet = error.retry or theirs.stream != b"" or self._peers.census.counts_as_lost(theirs.life)
        self._peers.drop(connection, str(error), quiet=quiet, grave=not error.retry)


class Departure:
    """Leaves the other servers: messages arrive, then a report of the departure, then everything is closed.

    Args:
        peers: The other servers.

    Attributes:
        final: Whether the departure is being reported.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self.final = False
        self._late: set[Stream] = set()
        """Streams whose other sides have not acknowledged everything in time."""

    def leave(self) -> None:
        """Begin nothing else, and leave when all has been acknowledged: others may report the departure as well."""
        self._linger()
        for name, dialing in list(self._peers.dialer.attempts.items()):
            if dialing.stream is None or not (dialing.stream.number or dialing.stream.owes):
                dialing.stop()
                del self._peers.dialer.attempts[name]
        for stream in list(self._peers.streams.values()):
            self.request_acknowledgement(stream)
        for connection in list(self._peers.connections):
            if connection.stream is None and not connection.handshake.proved and not self._is_attempt(connection):
                self._peers.drop(connection, "")
        self.finish()

    def _linger(self) -> None:
        self._peers.closing = time.monotonic() + LINK_LINGER_SECONDS
        # The loop checks again then if it has to end.
        self._peers.loop.later(LINK_LINGER_SECONDS, self.finish)

    def _is_attempt(self, connection: Connection) -> bool:
        """Return True if a connection may take the place of one on which the other side counts already."""
        return connection.peer in self._peers.dialer.attempts

    def request_acknowledgement(self, stream: Stream) -> None:
        """Ask for an acknowledgement of all earlier messages."""
        if stream.owes:
            self._peers.send_control(stream, codec.pack(SETTLE))

    def _say_goodbye(self) -> None:
        """Leave: all messages have arrived that had to, or the time for that has passed."""
        self.final = True
        self._linger()
        self._late = {stream for stream in list(self._peers.streams.values()) if stream.connected and stream.owes}
        for stream in list(self._peers.streams.values()):
            if not stream.number:
                stream.discard_messages()
            else:
                self.send_goodbye(stream)
        for connection in list(self._peers.connections):
            if connection.stream is None and not self._is_attempt(connection):
                self._peers.drop(connection, "")

    def send_goodbye(self, stream: Stream) -> None:
        # It is read until the other side has closed as well: a socket with unread data would be reset, and the other
        # side would lose what it has not read. A reset connection may be restored in time.
        self._peers.send_to(stream, GOODBYE)
        if stream.connection is not None:
            stream.connection.shut()

    def is_finished(self) -> bool:
        """Continue with leaving. Return True if it is done."""
        if not self._peers.closing or self._peers.closing == SOON:
            return False
        if not self.final:
            if self._is_unfinished() and time.monotonic() < self._peers.closing:
                return False
            self._say_goodbye()
        late = time.monotonic() >= self._peers.closing
        return late or all(not stream.number or stream in self._late for stream in list(self._peers.streams.values()))

    def _is_unfinished(self) -> bool:
        """Return True if messages have to arrive, or connections to be made, before this server leaves."""
        begun = any(each.handshake.proved and each.stream is None for each in self._peers.connections)
        return begun or any(stream.owes for stream in list(self._peers.streams.values()))

    def finish(self) -> None:
        """End if it is time, for a carrier that runs on the loop of another part."""
        if not isinstance(self._peers.loop, Loop) and not self._peers.has_ended and self.is_finished():
            self._peers.end()


class Peers:
    """The other servers of a carrier, and the streams with them; on the carrier's thread, but for `send`.

    Args:
        settings: The arguments of the carrier.
        listener: The socket that listens; None if the server does not.

    Attributes:
        name: This server's name.
        address: Where this server listens.
        streams: The streams with the others, by name.
        connections: All connections, those in their handshake as well.
        reasons: Why servers were lost, by name.
        closing: When this server has left at the latest; 0 before it begins to leave.
        has_ended: Whether everything is closed.
    """

    def __init__(self, settings: Settings, listener: socket.socket | None) -> None:
        self.settings = settings
        self.name = settings.name
        self.address: Address = NOWHERE if listener is None else listener.getsockname()[:2]
        self.loop: Loop | Guest = Loop()
        self.streams: dict[str, Stream] = {}
        self.connections: dict[Connection, None] = {}
        self.reasons: dict[str, str] = {}
        self.closing = 0.0
        self.log_loss = log.info if settings.quiet else log.warning
        """Logs servers that are lost or not reached."""
        self.has_ended = False
        self.on_message: OnMessage | None = None
        self.on_change: OnChange | None = None
        self.left = threading.Event()
        """Set when everything is closed."""
        self.entrance, self.admission, self.dialer = Entrance(self, listener), Admission(self), Dialer(self)
        self.departure = Departure(self)
        where = () if self.address[0] in EVERYWHERE or listener is None else (self.address,)
        self.census = Census(self, settings.introducer, settings.mesh, where)
        self.keep_alive = KeepAlive(self, settings.keep_alive)
        self.streams_lock = threading.Lock()
        """Held while streams are added and removed."""
        self._gate = threading.Lock()

    def move(self, loop: Guest) -> None:
        """Run on the loop of another part, before anything runs."""
        self._close_loop()
        self.loop = loop

    def _close_loop(self) -> None:
        if isinstance(self.loop, Loop):
            self.loop.close()

    # From any thread

    def post(self, call: Callable[[], None]) -> bool:
        """Call a function on the carrier's thread. Return False if that has ended."""
        with self._gate:
            if self.has_ended:
                return False
            try:
                self.loop.post(call)
            except NotInitialized:
                return False
            return True

    def send(self, to: str, message: bytes) -> None:
        """Send a message to a server, if it is present."""
        stream = self.streams.get(to)
        if stream is None:
            with self.streams_lock:
                stream = self.find_stream(to)
            if stream is None:
                return
        self.send_to(stream, message)

    def find_stream(self, name: str) -> Stream | None:
        """Return the stream with a server that is present; with the lock of the streams."""
        stream = self.streams.get(name)
        life = self.census.present.get(name)
        if stream is None and life is not None:
            stream = self.streams[name] = Stream(name, life, self.settings.max_backlog)
        return stream

    def send_to(self, stream: Stream, message: bytes, control: int = 0) -> None:
        """Send a frame on a stream."""
        try:
            if stream.send(message, control):
                self.post(partial(self.continue_sending, stream))
        except ConnectionEnd as error:
            self.post_end(error)
        except Broken as error:
            self.post(partial(self.lose, stream, str(error)))

    def send_control(self, stream: Stream, data: bytes) -> None:
        """Send a frame of the carriers."""
        self.send_to(stream, data, CONTROL)

    def send_report(self, stream: Stream, data: bytes) -> None:
        """Send a report of the carriers, which arrives as messages do."""
        self.send_to(stream, data, REPORT)

    def post_end(self, error: ConnectionEnd) -> None:
        """End a connection that has ended, soon."""
        if error.connection is not None:
            self.post(partial(self.end_connection, error.connection, error))

    def continue_sending(self, stream: Stream) -> None:
        """Wait for room to send, or make the connection that a message needs."""
        if stream.connection is not None:
            self.watch(stream.connection, True)
        else:
            self.dialer.reach(stream.name)

    def send_handshake(self, connection: Connection, message: bytes) -> None:
        """Send a frame of the handshake."""
        try:
            if connection.send(message):
                self.post(partial(self.watch, connection, True))
        except ConnectionEnd as error:
            self.post_end(error)

    def turn(self) -> None:
        """End a turn of the keep-alive; again and again."""
        if self.has_ended:
            return
        for stream in list(self.streams.values()):
            self._acknowledge(stream)
        self.keep_alive.turn()
        self.loop.later(self.keep_alive.every, self.turn)

    def attach(self, sock: socket.socket, to: str) -> None:
        """Use a connection that was made elsewhere; see `TCPCarrier.attach`."""
        handshake = Handshake(self.name, self.settings.secret, to=to, progress=self.admission.progress(None))
        connection = Connection(sock, handshake)
        self.begin(connection, READ | WRITE, self.settings.keep_alive)
        if to:
            self.send_handshake(connection, handshake.begin())

    def begin(self, connection: Connection, events: int, seconds: float) -> None:
        """Watch a new connection, whose handshake has some seconds."""
        self.connections[connection] = None
        self.limit_handshake(connection, seconds)
        connection.watched = events
        self.loop.watch(connection.fd, events, partial(self._ready, connection))

    def limit_handshake(self, connection: Connection, seconds: float) -> None:
        if connection.timer is not None:
            connection.timer.cancel()
        connection.timer = self.loop.later(seconds, lambda: self.drop(connection, "its handshake takes too long"))

    def _ready(self, connection: Connection) -> None:
        if connection.stream is not None or not self.entrance.line_up(connection):
            self.serve(connection)

    def serve(self, connection: Connection) -> None:
        """Send and receive on a connection that is ready."""
        if connection not in self.connections:
            return
        try:
            if connection.connecting:
                connection.finish_connecting()
            if connection.watched & WRITE:
                self.watch(connection, connection.flush())
            connection.receive()
            if connection.unsent and not connection.watched & WRITE:
                # It may have waited for the encryption.
                self.watch(connection, connection.flush())
            message = connection.message(self.settings.max_message)
            stream = connection.stream
            if message is None:
                self._take_all(connection)
            elif stream is not None:
                if not self.closing:
                    self._hand_on(stream, message)
                if stream.due:
                    self._acknowledge(stream)
            if self.departure.final and connection.stream is not None:
                connection.shut()
        except ConnectionEnd as error:
            self.end_connection(connection, error)
        except (Broken, RemoteProtocolError) as error:
            self.drop(connection, str(error))
        except HandshakeError as error:
            self.admission.refuse(connection, error)
        except Exception as error:
            fault(f"the connection of {shown(self.name)} with {shown(connection.peer or 'an unknown peer')}", error)
            self.drop(connection, "a fault here")
        if self.closing:
            self.departure.finish()

    def _take_all(self, connection: Connection) -> None:
        for kind, frame in connection.frames(self.settings.max_message):
            stream = connection.stream
            if stream is None:
                self.admission.take(connection, frame)
            elif kind == CONTROL:
                self._take_control(stream, frame)
            elif kind == REPORT:
                self.census.take(stream, frame)
            elif frame == GOODBYE:
                self.drop(connection, "")
            elif not self.closing:
                self._hand_on(stream, frame)
        if connection.stream is not None and connection.stream.due:
            self._acknowledge(connection.stream)

    def _hand_on(self, stream: Stream, message: bytes) -> None:
        if self.on_message is not None:
            try:
                self.on_message(stream.name, message)
            except Exception:
                self._log_failure()

    def _take_control(self, stream: Stream, data: bytes) -> None:
        """Process a frame of the carriers."""
        if codec.unpack(data)[0] == SETTLE:
            self._acknowledge(stream)
        else:
            self.keep_alive.take(stream, data)

    def _acknowledge(self, stream: Stream) -> None:
        if stream.connection is not None and (frame := stream.acknowledgement()):
            self.send_control(stream, frame)

    def watch(self, connection: Connection, write: bool) -> None:
        """Wait for room to send only while bytes wait to be sent."""
        events = READ | WRITE if write else READ
        if events != connection.watched and not connection.closed:
            connection.watched = events
            self.loop.unwatch(connection.fd)
            self.loop.watch(connection.fd, events, partial(self._ready, connection))
            if write and connection.stream is not None:
                self.loop.later(STALL_SECONDS, partial(self._check_stall, connection, connection.sent))

    def _check_stall(self, connection: Connection, sent: int) -> None:
        """End a connection if nothing was sent since it had sent so many bytes, although some wait."""
        if connection.closed or not connection.unsent:
            return
        if connection.sent == sent:
            self.drop(connection, f"it has read nothing for {STALL_SECONDS:g} s")
        else:
            self.loop.later(STALL_SECONDS, partial(self._check_stall, connection, connection.sent))

    def end_connection(self, connection: Connection, error: ConnectionEnd) -> None:
        """A connection has ended: process the bytes that had arrived, which may report that its server has left."""
        try:
            # A dialing server does not get in by bytes that arrived before: it would not know of it.
            while not connection.closed and (connection.stream or connection.dials) and connection.receive():
                self._take_all(connection)
        except (Broken, RemoteProtocolError, HandshakeError):
            # It has ended in any case.
            pass
        if connection.closed:
            return
        stream = connection.stream
        if stream is not None and error.reset:
            log.info("%s: the connection with %s is made again: %s", shown(self.name), shown(stream.name), error)
            self.forget(connection)
            stream.detach()
            self.dialer.connect(stream, str(error))
        else:
            self.drop(connection, str(error), quiet=True, refused=error.refused)

    def forget(self, connection: Connection) -> None:
        """Stop to watch a connection that ends."""
        self.connections.pop(connection, None)
        if connection.watched:
            connection.watched = 0
            self.loop.unwatch(connection.fd)
        self.entrance.release(connection)

    def drop(
        self, connection: Connection, reason: str, *, quiet: bool = False, grave: bool = False, refused: bool = False
    ) -> None:
        """End a connection, and the stream on it.

        Args:
            connection: The connection.
            reason: Why, for a person; empty if it is in order.
            quiet: It is common among unknown peers.
            grave: It is likely to happen again: a stream cannot be restored.
            refused: No process listens there, so neither can it be.
        """
        if connection not in self.connections:
            return
        stream = connection.stream
        if stream is not None:
            self.vanish(stream.name, reason)
            return
        self.forget(connection)
        connection.close()
        if self.dialer.lose(connection, reason, grave=grave, refused=refused) or not reason or self.closing:
            return
        level = log.info if quiet else log.warning
        level(
            "%s: the connection with an unknown peer (%s) ends: %s",
            shown(self.name),
            shown(connection.peer) or "without a name",
            reason,
        )

    def lose(self, stream: Stream, reason: str) -> None:
        """End a stream, unless that has happened."""
        if self.streams.get(stream.name) is stream:
            self.vanish(stream.name, reason)

    def vanish(self, name: str, reason: str, quiet: bool = False) -> None:
        """A server is no longer present.

        Args:
            name: Its name.
            reason: Why, for a person; empty if it is in order.
            quiet: Whether that is logged for another server already.
        """
        self.dialer.finish(name)
        with self.streams_lock:
            # Later messages are for another server of this name.
            stream = self.streams.pop(name, None)
            if stream is not None:
                if stream.connection is not None:
                    self.forget(stream.connection)
                stream.end()
        if name not in self.census.present:
            return
        # Before other threads see that it is absent.
        self.reasons[name] = reason
        self.census.remove(name, in_order=not reason)
        with self.streams_lock:
            # It may have been made again in between, by a message on another thread.
            self.streams.pop(name, None)
        if reason and not quiet and not self.closing:
            self.log_loss("%s: the connection with %s ends: %s", shown(self.name), shown(name), reason)
        self._report(name, False)
        self.census.lose_introducer(name)

    def _report(self, name: str, here: bool) -> None:
        if self.on_change is not None and not self.closing:
            try:
                self.on_change(name, here)
            except Exception:
                self._log_failure()

    def _log_failure(self) -> None:
        log.exception("%s: a callback failed", shown(self.name))

    def appear(self, name: str) -> None:
        """A server is present, connected or not."""
        self.dialer.note_presence(name)
        self.reasons.pop(name, None)
        self._report(name, True)

    def end(self) -> None:
        """Close everything."""
        if self.has_ended:
            return
        self.entrance.close()
        for dialing in self.dialer.attempts.values():
            dialing.stop()
        self.dialer.attempts.clear()
        connections = list(self.connections)
        for connection in connections:
            self.forget(connection)
        for stream in list(self.streams.values()):
            stream.end()
        for connection in connections:
            connection.close()
        self.streams.clear()
        self.census.present.clear()
        with self._gate:
            self.has_ended = True
            self._close_loop()
        self.left.set()


class TCPCarrier:
    """A `Carrier` over TCP connections, which runs a thread.

    Each server has a connection with each other one. In a session with an introducer and more servers than `mesh`, each
    is connected with the introducer, and makes other connections when there is a message to send (`census` has the
    theory).

    A peer that knows the secret is taken for a server of the session; the secret itself is not sent. Connections that
    leave the machine are encrypted, unless `encrypt` says otherwise. A known server that was never connected is dialed
    again and again, at intervals that grow to some seconds. A connection that is reset is restored, and nothing is lost
    (`stream` has the theory). A connection that its server closes has ended: it is not restored.

    Args:
        name: This server's name.
        secret: Known to all servers of the session alone: at least 16 bytes.
        peers: The addresses of the other servers, by name. Each server dials all it knows, so of any two it is
            enough that one knows the other. They need not listen yet, and host names need not be resolvable yet.
        listen: The host and port to listen on; port 0 takes a free one. None if the server does not listen.
        max_message: The longest message, in bytes.
        max_backlog: How many bytes may wait for a server before it is dropped.
        introducer: The name of the server that introduces all others to each other, such as a launcher: they all
            dial it. By default there is none, and each server needs the addresses of the others.
        mesh: How many servers at most are all connected with each other, if there is an introducer, which decides it.
        keep_alive: Seconds after which a server is lost that does not answer, such as a server whose process was
            stopped or whose cable was pulled out, or to which a reset connection cannot be restored. The carrier's
            thread answers: a host that is busy, or blocks elsewhere, is not lost.
        quiet: Whether another part reports lost and unreached servers, so this one logs no warning.
        encrypt: Whether connections are encrypted; by default the ones to addresses that are not loopback's. The
            dialing server decides, unless the other one insists on it by True.
    Raises:
        ValueError: The name cannot be one, or the secret is too short.
        OSError: The address cannot be listened on.
    """

    def __init__(
        self,
        name: str,
        secret: bytes,
        *,
        peers: Mapping[str, Address] | None = None,
        listen: Address | None = ("127.0.0.1", 0),
        max_message: int = MAX_MESSAGE,
        max_backlog: int = MAX_BACKLOG,
        introducer: str = "",
        mesh: int = MAX_MESH,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        encrypt: bool | None = None,
        quiet: bool = False,
    ) -> None:
        self.name = check_name(name)
        settings = Settings(name, secret, max_message, max_backlog, introducer, mesh, keep_alive, encrypt, quiet)
        self.keep_alive = keep_alive
        self._known = dict(peers or {})
        _check_addresses(self._known, listen)
        self._max_message = max_message
        self._is_guest = False
        """Whether it runs on the loop of another part."""
        self._thread: threading.Thread | None = None
        self._thread_number: int | None = None
        listener = None
        if listen is not None:
            listener = addresses.listen(listen)
            listener.setblocking(False)
        self._peers = Peers(settings, listener)
        self.address: Address = self._peers.address
        """Where this server listens: host and port."""

    @classmethod
    def in_folder(
        cls,
        name: str,
        folder: str | os.PathLike[str],
        *,
        host: str = "127.0.0.1",
        keep_alive: float = KEEP_ALIVE_SECONDS,
    ) -> Self:
        """Make a carrier that finds the others by a folder that all servers see, on this node or a shared file system.

        Args:
            name: This server's name.
            folder: The folder, of this user alone; made if it does not exist. The first server makes the secret in it.
            host: The address to listen on, by which the others reach it.
            keep_alive: See `TCPCarrier`.

        Raises:
            PermissionDenied: The folder is another user's, or others may write to it.
        """
        path = os.fspath(folder)
        carrier = cls(name, rendezvous.enter(path), listen=(host, 0), keep_alive=keep_alive)
        carrier._peers.dialer.folder = path
        return carrier

    # For users, from any thread

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all servers that are present, sorted."""
        return tuple(sorted((self.name, *self._peers.census.present.copy())))

    @property
    def connected(self) -> tuple[str, ...]:
        """The names of the servers that this one is connected with now, sorted."""
        return tuple(sorted([name for name, stream in self._peers.streams.copy().items() if stream.connected]))

    def live_on(self, loop: Guest) -> None:
        """Run on a loop instead of a thread; the loop is responsible for its life; before `listen`."""
        self._is_guest = True
        self._peers.move(loop)

    def listen(self, on_message: OnMessage, on_change: OnChange) -> None:
        """Begin to call these, on a thread of the carrier, and to dial the known servers."""
        self._peers.on_message, self._peers.on_change = on_message, on_change
        if not self._is_guest:
            self._thread = threading.Thread(target=self._run, name=f"pypmix-carrier-{self.name}", daemon=True)
            self._thread.start()
        else:
            self._peers.loop.post(self._begin)

    def send(self, to: str, message: bytes) -> None:
        """Send a message.

        Raises:
            OverflowError: It is longer than this carrier takes.
            ValueError: It is empty.
        """
        if not 0 < len(message) <= self._max_message:
            check(message, self._max_message)
        if not self._peers.closing:
            self._peers.send(to, message)

    def meet(self, name: str, addresses: Iterable[Address]) -> None:
        """Dial a server, at its addresses in turn until it is reached; after `listen`."""
        places = check_name(name), tuple(addresses)
        if places[1]:
            self._peers.post(lambda: self._peers.dialer.meet(*places, 0))

    def attach(self, sock: socket.socket, to: str = "") -> None:
        """Use a connection that was made elsewhere, such as one of a pair of sockets; after `listen`.

        It is not encrypted, and its end is the loss of its server.

        Args:
            sock: The socket, which belongs to the carrier from here on.
            to: The name of the server at its other end, if this side begins the handshake.
        """
        if not self._peers.post(lambda: self._peers.attach(sock, to)):
            sock.close()

    def drop(self, name: str, reason: str) -> None:
        """End the connection with a server that counts as lost: the others lose it as well, and it leaves."""
        self._peers.post(lambda: self._peers.vanish(name, reason))

    @property
    def unreached(self) -> tuple[tuple[str, str, str, float], ...]:
        """The servers that were dialed and never reached: name, where, why, and for how many seconds."""
        now = time.monotonic()
        unmet = self._peers.dialer.unmet()
        return tuple([(each.name, each.places(), each.failure, now - each.since) for each in unmet])

    def away(self, going: bool) -> None:
        """Report to the others that this process will be stopped for an unknown time, or that it is back."""
        peers = self._peers
        frame = peers.keep_alive.set_away(going)
        for stream in list(peers.streams.values()):
            peers.send_control(stream, frame)

    def reason(self, name: str) -> str:
        """Return why the last connection with a server has ended; empty if it has left in order, or is present."""
        return self._peers.reasons.get(name, "")

    def life(self, name: str) -> bytes:
        """Return the number of a present server's process, empty if it is not present."""
        census = self._peers.census
        return census.life if name == self.name else census.present.get(name, b"")

    def close(self) -> None:
        """Send the given messages, for a second at most, and leave; waits for it, unless the carrier itself calls.

        Messages that arrive within that second, whatever way they take, arrive before this server's departure at all
        servers.
        """
        peers = self._peers
        listening = peers.on_message is not None
        if not peers.closing:
            peers.closing = SOON
            if peers.dialer.folder:
                rendezvous.withdraw(peers.dialer.folder, self.name, self.address)
            if listening:
                peers.post(peers.departure.leave)
            else:
                peers.end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        elif self._is_guest and listening and self._thread_number != threading.get_ident():
            try:
                peers.loop.post(lambda: None)
            except NotInitialized:
                # The loop has ended, and its thread.
                peers.end()
            else:
                peers.left.wait(3 * LINK_LINGER_SECONDS)

    # The carrier's thread

    def _run(self) -> None:
        peers = self._peers
        assert isinstance(peers.loop, Loop)
        try:
            self._begin()
            peers.loop.run(peers.departure.is_finished)
        except BaseException as error:
            # No message is sent or received from here on: for the other servers that is as if they were lost.
            fault(f"the carrier of {shown(self.name)}", error)
            for name in list(peers.census.present):
                peers.vanish(name, "this carrier has failed")
        finally:
            peers.end()

    def _begin(self) -> None:
        peers = self._peers
        peers.entrance.open()
        self._thread_number = threading.get_ident()
        for name, address in sorted(self._known.items()):
            peers.dialer.meet(name, (address,), 0)
        if peers.dialer.folder:
            peers.dialer.look()
        peers.turn()


def _about(seconds: float) -> float:
    """Return half to all of a time, by chance, so that servers do not dial each other at once again and again."""
    return seconds * (256 + os.urandom(1)[0]) / 511


def _plain(host: str) -> str:
    """Return an IPv4 address as such, if it is written as an IPv6 address."""
    return host.removeprefix("::ffff:")


def _most_unproved() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_UNPROVED if soft == resource.RLIM_INFINITY else max(1, min(MAX_UNPROVED, soft // 4))


def _listening_address(address: Address, sock: socket.socket) -> Address:
    """Return where the other side of a connection may dial this one: at the same address, if it listens there."""
    here = _plain(sock.getsockname()[0])
    return (here, address[1]) if address[0] in (*EVERYWHERE, here) else ("", 0)


def _check_addresses(peers: Mapping[str, Address], listen: Address | None) -> None:
    """Raise if an address of a carrier is not one, or the name of a peer cannot be one."""
    for place in peers.values() if listen is None else (listen, *peers.values()):
        if not isinstance(place, tuple | list) or [type(part) for part in place] != [str, int]:
            raise TypeError(f"a server listens at a host and a port, such as ('127.0.0.1', 0), not at {place!r:.80}")
    for other in peers:
        check_name(other)
