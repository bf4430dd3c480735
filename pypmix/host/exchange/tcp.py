"""The carrier over TCP: loopback, network namespaces, or a network that is trusted as far as its wires."""

from __future__ import annotations

import contextlib
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
    ENDING_SECONDS,
    FAR_SECONDS,
    KEEP_ALIVE_SECONDS,
    LINK_HANDSHAKE_SECONDS,
    LINK_LINGER_SECONDS,
    LOOK_SECONDS,
    MAX_RETRY_SECONDS,
    MAX_REVIEW_SECONDS,
    PAUSE_SECONDS,
    PROOF_SECONDS,
    READ_SECONDS,
    REFUSED_SECONDS,
    RETRY_SECONDS,
    REVIEW_SECONDS,
    STALL_SECONDS,
    UNREACHED_SECONDS,
)
from pypmix.host import addresses
from pypmix.host.exchange import circle, codec, rendezvous
from pypmix.host.exchange.carrier import MAX_MESSAGE, check
from pypmix.host.exchange.circle import Circle, Port
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.handshake import NEW, Handshake, HandshakeError, Progress, refusal
from pypmix.host.exchange.keepalive import KeepAlive
from pypmix.host.exchange.limits import IDLE_TURNS, MAX_FAR, MAX_MESH, MAX_RESOLVING
from pypmix.host.exchange.link import CONTROL, Broken, Ended, Link
from pypmix.host.exchange.roll import LIFE, Entry
from pypmix.host.loop import READ, WRITE, Loop
from pypmix.host.naming import check_name, shown
from pypmix.standard.errors import NotInitialized, RemoteProtocolError
from pypmix.standard.logtext import WINDOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Self

    from pypmix.engine.base import Guest
    from pypmix.host.exchange.carrier import OnChange, OnMessage
    from pypmix.host.exchange.journal import Journal
    from pypmix.host.exchange.rendezvous import Address
    from pypmix.host.loop import Cancellable as Timer

MAX_BACKLOG = 2 * MAX_MESSAGE
"""The most bytes that may wait for a server that does not read."""

MAX_UNPROVED = 512
"""The most accepted connections that may be in their handshake at a time, if a quarter of the descriptors is enough.

The oldest one makes room, once it has had `PROOF_SECONDS`; until then, new ones wait in the system's queue. So a server
that proves its identity within that time gets in however many others dial, and these cost a bounded share of time.
"""

EVERYWHERE = (addresses.ANYWHERE, "0.0.0.0")
"""The addresses that mean all addresses of this machine."""

ACCEPTS = 16
"""The connections that are accepted in one turn, so that existing ones have their turn as well."""

HANDSHAKES = 8
"""The connections in their handshake that are processed in one turn, for the same reason: any process can make them."""

GOODBYE = b""
"""The frame that reports that its sender leaves; no message is empty."""

REST, RESTS, SETTLE = 30, 31, 32
"""The frames of carriers that ask if a connection may be let go, let it go, and ask for an acknowledgement."""

_resolvers = threading.BoundedSemaphore(MAX_RESOLVING)

SOON = float("inf")
"""The end of a carrier that was closed a moment ago."""


class _Peer:
    """Another server with known addresses, which is to be dialed.

    Attributes:
        broken: The connection that is to be restored, since it was reset or let go; None for a first one.
        met: Whether it has been connected: it is no longer dialed.
        tries: How often it was dialed without success.
        missed: Why the last try failed.
        since: When it was to be dialed first.
        link: The connection by which it is being dialed.
        timer: Dials it.
        far: Whether it is the neighbour of another server, which dials it first.
    """

    __slots__ = (
        "addresses", "broken", "far", "link", "met", "missed", "name", "reason", "since", "timer", "told", "tries",
    )  # fmt: skip

    def __init__(self, name: str, addresses: tuple[Address, ...], broken: Link | None = None) -> None:
        self.name = name
        self.addresses = addresses
        self.broken = broken
        self.met = False
        self.tries = 0
        self.since = time.monotonic()
        self.link: Link | None = None
        self.timer: Timer | None = None
        self.told = 0.0
        self.reason = self.missed = ""
        self.far = False

    @property
    def address(self) -> Address:
        """The address at which it is dialed the next time: its addresses are tried in turn."""
        return self.addresses[self.tries % len(self.addresses)]

    def places(self) -> str:
        """Return its addresses, for a person."""
        return " and ".join([f"{host} port {port}" for host, port in self.addresses])

    def rest(self) -> None:
        """Stop dialing it."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _Waiting(list[bytes]):
    """Messages to a server to which no connection has been made yet.

    Attributes:
        size: The number of their bytes.
    """

    size = 0


class TCPCarrier:
    """A `Carrier` over TCP connections, which runs a thread.

    As long as there are few servers (`mesh`), each has a connection with each other one. Of more, each has connections
    with some neighbours, and makes others when there is a message to send (`circle` has the theory).

    A peer that knows the secret is taken for a server of the session; the secret itself is not sent. Connections that
    leave the machine are encrypted, unless `encrypt` says otherwise. A known server that was never connected is dialed
    again and again, at intervals that grow to some seconds. A connection that is reset is restored, and nothing is lost
    (`journal` has the theory). A connection that its server closes has ended: it is not restored.

    Args:
        name: This server's name.
        secret: Known to all servers of the session alone: at least 16 bytes.
        peers: The addresses of the other servers, by name. Each server dials all it knows, so of any two it is
            enough that one knows the other. They need not listen yet, and host names need not be resolvable yet.
        listen: The host and port to listen on; port 0 takes a free one.
        max_message: The longest message, in bytes.
        max_backlog: How many bytes may wait for a server before it is dropped.
        mesh: How many servers at most, this one included, are all connected with each other; 1 for none. All servers
            of a session should have the same number.
        keep_alive: Seconds after which a server is lost that does not answer, such as a server whose process was
            stopped or whose cable was pulled out, or to which a reset connection cannot be restored. The carrier's
            thread answers: a host that is busy, or blocks elsewhere, is not lost.
        quiet: Whether another part reports the end of connections, so this one logs no warning.
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
        listen: Address = ("127.0.0.1", 0),
        max_message: int = MAX_MESSAGE,
        max_backlog: int = MAX_BACKLOG,
        mesh: int = MAX_MESH,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        encrypt: bool | None = None,
        quiet: bool = False,
    ) -> None:
        self.name = check_name(name)
        _check(secret, peers or {}, listen, max_message, max_backlog, mesh, keep_alive)
        self._secret = bytes(secret)
        self._known = dict(peers or {})
        self._folder = ""
        self._max_message, self._max_backlog = max_message, max_backlog
        self._keep_alive, self._encrypt = keep_alive, encrypt
        self._at_end = log.info if quiet else log.warning
        self._links: dict[str, Link] = {}
        self._all: dict[Link, None] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._reasons: dict[str, str] = {}
        self._unproved, self._greeting = dict[Link, None](), dict[Link, None]()
        self._peers: dict[str, _Peer] = {}
        self._again: dict[str, _Peer] = {}
        """The present servers to which a connection is being made, for the first time or again."""
        self._folder_read = (0, False, 0.0)
        self._on_message: OnMessage | None = None
        self._on_change: OnChange | None = None
        self._gate, self._first = threading.Lock(), threading.Lock()
        """The second is held while messages that waited for a first connection are sent, before any others."""
        self._reviewed: tuple[Timer | None, float] = (None, 0.0)
        self._announced = self._begun = self._leaving = self._ended = False
        """The second: whether it runs on the loop of another part."""
        self._late: set[Link] = set()
        """Connections whose other sides have not acknowledged everything in time."""
        self._thread: threading.Thread | None = None
        self._listener = addresses.listen(listen)
        self._listener.setblocking(False)
        self._own = Loop()
        self._loop: Loop | Guest = self._own
        self._left = threading.Event()
        self.address: Address = self._listener.getsockname()[:2]
        """Where this server listens: host and port."""
        self._circle = self._new_circle(mesh)
        self._pulse = KeepAlive(name, keep_alive, self._links, self._put_control, self._lose, self._circle.ring)

    _here: int | None = None
    _closing = 0.0
    _paused: Timer | None = None
    """Resumes accepting connections."""

    def _new_circle(self, mesh: int) -> Circle:
        own = Entry(self.name, os.urandom(LIFE), 0, () if self.address[0] in EVERYWHERE else (self.address,))
        port = Port(
            self._put_control, self._later, self._appear, self._ended_elsewhere, self._review, self._hear_of,
            self._expelled,
        )  # fmt: skip
        return Circle(own, mesh, self._links, port)

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
        carrier._folder = path
        return carrier

    # For users, from any thread

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all servers that are present, sorted."""
        return tuple(sorted((self.name, *self._circle.present.copy())))

    @property
    def connected(self) -> tuple[str, ...]:
        """The names of the servers that this one is connected with now, sorted."""
        return tuple(sorted([name for name, link in self._links.copy().items() if not link.closed]))

    def live_on(self, loop: Guest) -> None:
        """Run on a loop instead of a thread; the loop is responsible for its life; before `listen`."""
        self._loop = loop

    def listen(self, on_message: OnMessage, on_change: OnChange) -> None:
        """Begin to call these, on a thread of the carrier, and to dial the known servers."""
        self._on_message, self._on_change = on_message, on_change
        if self._loop is self._own:
            self._thread = threading.Thread(target=self._run, name=f"pypmix-carrier-{self.name}", daemon=True)
            self._thread.start()
        else:
            self._begun = True
            self._loop.post(self._begin)

    def send(self, to: str, message: bytes) -> None:
        """Send a message.

        Raises:
            OverflowError: It is longer than this carrier takes.
            ValueError: It is empty.
        """
        if not 0 < len(message) <= self._max_message:
            check(message, self._max_message)
        if self._closing:
            return
        link = self._links.get(to)
        if link is None and to in self._circle.present:
            link = self._wait(to, message)
        if link is not None:
            self._put(link, message)

    def _wait(self, to: str, message: bytes) -> Link | None:
        """Keep a message until there is a connection. Return the connection if there is one by now."""
        with self._first:
            link = self._links.get(to)
            if link is not None or to not in self._circle.present:
                return link
            waiting = self._waiting.setdefault(to, _Waiting())
            if not waiting or waiting.size + len(message) <= self._max_backlog:
                waiting.append(message)
                waiting.size += len(message)
                self._post(lambda: self._reach(to))
            else:
                self._post(lambda: self._vanish(to, "it is not reached, and too much waits for it"))
        return None

    def meet(self, name: str, addresses: Iterable[Address]) -> None:
        """Dial a server, at its addresses in turn until it is reached; after `listen`."""
        found = check_name(name), tuple(addresses)
        if found[1]:
            self._post(lambda: self._meet(*found, 0))

    def drop(self, name: str, reason: str) -> None:
        """End the connection with a server that counts as lost: the others lose it as well, and it leaves."""
        self._post(lambda: self._vanish(name, reason, sure=True))

    @property
    def unreached(self) -> tuple[tuple[str, str, str, float], ...]:
        """The servers that were dialed and never reached: name, where, why, and for how many seconds."""
        now = time.monotonic()
        unmet = [peer for peer in self._peers.copy().values() if not peer.met]
        return tuple([(peer.name, peer.places(), peer.missed, now - peer.since) for peer in unmet])

    def away(self, going: bool) -> None:
        """Report to the others that this process will be stopped for an unknown time, or that it is back."""
        self._pulse.away(going)
        self._post(lambda: self._circle.away(going))

    def reason(self, name: str) -> str:
        """Return why the last connection with a server has ended; empty if it has left in order, or is present."""
        return self._reasons.get(name, "")

    def heard_by_all(self, name: str) -> bool:
        """Return True if the carriers of all others know the end of a server that is no longer present, or will."""
        return name in self._circle.told

    def close(self) -> None:
        """Send the given messages, for a second at most, and leave; waits for it, unless the carrier itself calls.

        Messages that arrive within that second, whatever way they take, arrive before this server's departure at all
        servers.
        """
        if not self._closing:
            self._closing = SOON
            if self._folder:
                rendezvous.withdraw(self._folder, self.name, self.address)
            if self._thread is None and not self._begun:
                self._ended = True
                self._listener.close()
                self._own.close()
            else:
                self._post(self._leave)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        elif self._begun and self._here != threading.get_ident():
            try:
                self._loop.post(lambda: None)
            except NotInitialized:
                # The loop has ended, and its thread.
                self._finish()
            else:
                self._left.wait(3 * LINK_LINGER_SECONDS)

    # The carrier's thread

    def _run(self) -> None:
        try:
            self._begin()
            self._own.run(self._over)
        except BaseException as error:
            # No message is sent or received from here on: for the other servers that is as if they were lost.
            fault(f"the carrier of {shown(self.name)}", error)
            for link in list(self._links.values()):
                self._drop(link, "this carrier has failed")
            for name in list(self._circle.present):
                self._vanish(name, "this carrier has failed")
        finally:
            self._finish()

    def _begin(self) -> None:
        self._loop.watch(self._listener.fileno(), READ, self._accept)
        self._here = threading.get_ident()
        for name, address in sorted(self._known.items()):
            self._meet(name, (address,), 0)
        if self._folder:
            self._look(0)
        self._turn()

    def _finish(self) -> None:
        if self._ended:
            return
        if self._paused is not None:
            self._paused.cancel()
        elif self._here is not None:
            self._loop.unwatch(self._listener.fileno())
        for peer in (*self._peers.values(), *self._again.values()):
            peer.rest()
        self._again.clear()
        for link in list(self._all):
            self._unwatch(link)
            link.close()
        self._links.clear()
        self._circle.present.clear()
        self._all.clear()
        self._unproved.clear()
        self._greeting.clear()
        self._listener.close()
        with self._gate:
            self._ended = True
            self._own.close()
        self._left.set()

    def _turn(self) -> None:
        if self._ended:
            return
        for link in list(self._links.values()):
            self._acknowledge(link)
        self._pulse.turn()
        self._let_go()
        self._loop.later(self._pulse.every, self._turn)

    def _post(self, call: Callable[[], None]) -> None:
        """Call a function on the carrier's thread, while there is one; from any thread."""
        with self._gate:
            if not self._ended:
                with contextlib.suppress(NotInitialized):
                    self._loop.post(call)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.later(seconds, call)

    def _over(self) -> bool:
        """Continue with leaving. Return True if it is done."""
        if not self._closing or self._closing == SOON:
            return False
        if not self._leaving:
            unfinished = self._waiting or any(map(self._is_unfinished, self._all))
            if unfinished and time.monotonic() < self._closing:
                return False
            self._say_goodbye()
        late = time.monotonic() >= self._closing
        return late or all(link.asleep or link in self._late for link in self._links.values())

    def _is_unfinished(self, link: Link) -> bool:
        """Return True if a connection still has to do something before this server leaves."""
        return link.owes or (link.handshake.proved and not link.open)

    def _leave(self) -> None:
        """Begin nothing else, and leave: if others report the departure as well, when all has been acknowledged."""
        self._linger()
        for peer in self._peers.values():
            peer.rest()
        if self._circle.sparse:
            self._have_all_acknowledged()
        else:
            self._say_goodbye()
        self._rest()

    def _have_all_acknowledged(self) -> None:
        for name, peer in list(self._again.items()):
            if name not in self._waiting and (peer.broken is None or not peer.broken.owes):
                peer.rest()
                del self._again[name]
        for link in list(self._all):
            if link.open:
                self._have_acknowledged(link)
            elif not link.handshake.proved and link.peer not in self._again:
                self._drop(link, "")

    def _have_acknowledged(self, link: Link) -> None:
        """Ask for an acknowledgement of all earlier messages on a connection."""
        if not link.closed and link.owes:
            self._put_control(link, codec.pack(SETTLE))

    def _say_goodbye(self) -> None:
        """Leave: all messages have arrived that had to, or the time for that has passed."""
        self._leaving = True
        self._linger()
        if self._circle.sparse:
            self._late = {link for link in self._links.values() if link.owes}
        with self._first:
            self._waiting.clear()
        for link in list(self._all):
            if link.asleep:
                continue
            if link.open:
                # It is read until the other side has closed as well: a socket with unread data would be reset, and the
                # other side would lose what it has not read. A reset connection may be restored in time.
                self._put(link, GOODBYE)
                link.finish()
            elif link.peer not in self._again:
                # A connection that takes the place of a reset one may count on the other side already.
                self._drop(link, "")

    def _linger(self) -> None:
        self._closing = time.monotonic() + LINK_LINGER_SECONDS
        # The loop checks again then if it has to end.
        self._loop.later(LINK_LINGER_SECONDS, self._rest)

    def _rest(self) -> None:
        """End if it is time, for a carrier that runs on the loop of another part."""
        if self._begun and not self._ended and self._over():
            self._finish()

    # Accepting

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            if not self._make_room(len(self._unproved) >= _most_unproved()):
                return
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    log.error("%s: no connection can be taken: %s", shown(self.name), error)
                    if not self._unproved:
                        self._pause(PAUSE_SECONDS)
                    else:
                        self._make_room(True)
                return
            handshake = Handshake(self.name, self._secret, admit=self._admit)
            link = Link(
                sock,
                handshake,
                dials=False,
                keep_alive=self._keep_alive,
                encrypt=bool(self._encrypt),
                address=address[:2],
            )
            self._unproved[link] = None
            self._start(link, READ, LINK_HANDSHAKE_SECONDS)

    def _make_room(self, needed: bool) -> bool:
        """Close the oldest connection that is in its handshake if room is needed. Return True if there is room."""
        if not needed:
            return True
        oldest = next(iter(self._unproved))
        wait = oldest.since + PROOF_SECONDS - time.monotonic()
        if wait > 0:
            self._pause(wait)
            return False
        self._drop(oldest, f"{len(self._unproved)} connections are in their handshake, and it is the oldest")
        return True

    def _pause(self, seconds: float) -> None:
        """Leave dialing servers in the system's queue for a while."""
        if self._paused is None:
            self._loop.unwatch(self._listener.fileno())
            self._paused = self._loop.later(seconds, self._go_on)

    def _go_on(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
            self._loop.watch(self._listener.fileno(), READ, self._accept)

    def _admit(self, name: str, theirs: Progress) -> Progress:
        """Admit a server that has dialed; if two dial each other, the connection of the first by name counts."""
        if name == self.name:
            raise HandshakeError(f"its name is {shown(name)} as well")
        link = self._links.get(name)
        journal = link.journal if link is not None and theirs.link else None
        if journal is not None and not journal.is_of(theirs):
            journal = None
        dialed = self.name < name and any(
            peer is not None and peer.link is not None and peer.link.handshake.proved
            for peer in (self._again.get(name), None if theirs.link else self._peers.get(name))
        )
        if dialed or (journal is not None and journal.is_old(theirs)):
            raise HandshakeError("it is being dialed itself, or was", again=True)
        if journal is not None and link is not None and not link.closed:
            # It was reset, and that has not been noticed here yet.
            self._end(link, Ended("it is made again by the other side", reset=True))
        if journal is not None and self._links.get(name) is link:
            return self._progress(journal)
        if self._closing and not theirs.link and name not in self._waiting:
            raise HandshakeError(f"{shown(self.name)} leaves", again=True)
        if self._circle.is_over(theirs.life):
            raise HandshakeError(f"{shown(name)} counts as lost")
        if theirs.link or link is not None or not self._circle.admits(name, theirs.life):
            # If the present one has died, that is about to be noticed.
            text = f"its connection with {shown(name)} is over" if theirs.link else f"there is a {shown(name)} already"
            raise HandshakeError(text, again=not theirs.link)
        return self._progress(None)

    def _progress(self, journal: Journal | None) -> Progress:
        return (NEW if journal is None else journal.progress()).replace(life=self._circle.life)

    # Dialing

    def _look(self, delay: float) -> None:
        """Look up the addresses of servers, and dial new ones; again and again."""
        try:
            if not self._announced:
                # Before the look-up: of two servers that start at a time, at least one sees the other.
                rendezvous.announce(self._folder, self.name, self.address)
                self._announced = True
            before, settled, moment = self._folder_read
            now = os.stat(self._folder).st_mtime_ns
            if now != before or not settled or time.monotonic() - moment > READ_SECONDS:
                found = rendezvous.find(self._folder)
                # Changes while the clock of the file system stood still are noticed the next time.
                self._folder_read = now, now == before, time.monotonic()
                for name in [name for name in self._peers if name not in found]:
                    self._forget(name)
                for name, address in found.items():
                    self._meet(name, (address,), delay)
        except OSError as error:
            log.warning("%s: %s cannot be used: %s", shown(self.name), self._folder, error.strerror or error)
        if not self._closing:
            # A new server dials the present ones, and gets the time for it.
            self._loop.later(_about(LOOK_SECONDS), lambda: self._look(LOOK_SECONDS))

    def _meet(self, name: str, addresses: tuple[Address, ...], delay: float) -> None:
        """Record the addresses of a server, and dial it unless it is present."""
        peer = self._peers.get(name)
        if name == self.name or (peer is not None and peer.addresses == addresses):
            return
        self._forget(name)
        peer = self._peers[name] = _Peer(name, addresses)
        peer.met = name in self._circle.present
        if not self._circle.sparse:
            self._circle.count(self._unmet())
        if self._circle.sparse:
            self._review()
        else:
            self._dial_later(peer, delay)

    def _unmet(self) -> list[str]:
        """Return the known servers that were never present."""
        return [name for name, peer in self._peers.items() if not peer.met]

    def _forget(self, name: str) -> None:
        peer = self._peers.pop(name, None)
        if peer is not None:
            peer.rest()
            if peer.link is not None:
                self._drop(peer.link, "")

    def _wants(self, peer: _Peer) -> bool:
        """Return True if a server is to be dialed."""
        if self._again.get(peer.name) is peer:
            return True
        return self._peers.get(peer.name) is peer and not peer.met and not self._closing

    def _dial_later(self, peer: _Peer, delay: float) -> None:
        peer.rest()
        if self._wants(peer):
            peer.timer = self._loop.later(delay, lambda: self._dial(peer))

    def _dial(self, peer: _Peer) -> None:
        peer.timer = None
        if peer.link is not None or not self._wants(peer):
            return

        def find(flags: int) -> None:
            found = addresses.resolved(*peer.address, socket.SOCK_STREAM, flags)
            self._post(lambda: self._connect(peer, found))

        def resolve() -> None:
            try:
                find(0)
            except (OSError, ValueError) as error:
                reason = str(error)
                self._post(lambda: self._missed(peer, reason))
            finally:
                _resolvers.release()

        try:
            find(socket.AI_NUMERICHOST)
        except (OSError, ValueError):
            # Host names may take long to resolve.
            if not _resolvers.acquire(blocking=False):
                self._dial_later(peer, RETRY_SECONDS)
                return
            threading.Thread(target=resolve, name=f"pypmix-resolve-{peer.name}", daemon=True).start()

    def _connect(self, peer: _Peer, found: list[tuple[Any, ...]]) -> None:
        if peer.link is not None or not self._wants(peer):
            return
        info = found[peer.tries // len(peer.addresses) % len(found)]
        encrypt = self._encrypt if self._encrypt is not None else not addresses.is_loopback(info[4][0])
        progress = self._progress(None)
        if peer.broken is not None and peer.broken.journal is not None:
            peer.broken.journal.dialed += 1
            progress = self._progress(peer.broken.journal)
            encrypt = peer.broken.tunnel is not None
        handshake = Handshake(self.name, self._secret, to=peer.name, progress=progress)
        try:
            sock = socket.socket(info[0], socket.SOCK_STREAM)
            link = Link(sock, handshake, dials=True, keep_alive=self._keep_alive, encrypt=encrypt, address=info[4][:2])
        except OSError as error:
            self._missed(peer, error.strerror or str(error))
            return
        try:
            code = sock.connect_ex(info[4])
        except (OSError, OverflowError) as error:
            link.close()
            self._missed(peer, str(error))
            return
        if code not in (0, errno.EINPROGRESS):
            link.close()
            refused = code == errno.ECONNREFUSED
            self._missed(peer, os.strerror(code), final=refused, sure=refused)
            return
        peer.link = link
        self._start(link, READ | WRITE, min(LINK_HANDSHAKE_SECONDS, DIAL_SECONDS * 2 ** min(peer.tries, 8)))
        handshake.listens = self._reached(sock)
        self._put(link, handshake.begin())

    def _reached(self, sock: socket.socket) -> Address:
        """Return where the other side of a connection may dial this one: at the same address, if it listens there."""
        own, here = self.address[0], _plain(sock.getsockname()[0])
        return (here, self.address[1]) if own in (*EVERYWHERE, here) else ("", 0)

    def _missed(
        self, peer: _Peer, reason: str, *, grave: bool = False, final: bool = False, sure: bool = False
    ) -> None:
        """A server was not reached: dial it again in a while, unless that ends a connection that was reset."""
        if not self._wants(peer):
            return
        if peer.broken is not None and final:
            self._drop(peer.broken, ", and ".join(filter(None, (peer.reason, reason))), sure=sure)
            return
        peer.tries += 1
        peer.missed = reason
        now = time.monotonic()
        if self._again.get(peer.name) is peer and final and (not sure or now - peer.since >= REFUSED_SECONDS):
            self._vanish(peer.name, reason, sure)
            return
        level = log.info
        if (grave or now - peer.since >= UNREACHED_SECONDS) and (reason != peer.reason or now - peer.told >= WINDOW):
            peer.told, peer.reason = now, reason
            level = log.error if grave else log.warning
        level(
            "%s: %s is not reached at %s, and is dialed again: %s",
            shown(self.name),
            shown(peer.name),
            peer.address,
            reason,
        )
        delay = min(MAX_RETRY_SECONDS, RETRY_SECONDS * 2 ** min(peer.tries - 1, 8))
        if peer.far:
            delay = max(delay, _far_seconds(len(self._unmet())))
        self._dial_later(peer, _about(delay))

    # Connections

    def _start(self, link: Link, events: int, seconds: float) -> None:
        self._all[link] = None
        self._limit(link, seconds)
        link.watched = events
        self._loop.watch(link.fd, events, partial(self._ready, link))

    def _limit(self, link: Link, seconds: float) -> None:
        if link.timer is not None:
            link.timer.cancel()
        link.timer = self._loop.later(seconds, lambda: self._drop(link, "its handshake takes too long"))

    def _ready(self, link: Link) -> None:
        if link not in self._unproved:
            self._go_on_with(link)
            return
        # A connection in its handshake has its turn after others that have waited longer.
        if not self._greeting:
            self._post(self._greet)
        self._greeting[link] = None

    def _greet(self) -> None:
        """Continue with the connections in their handshake that have waited longest, a few at a time."""
        for link in list(itertools.islice(self._greeting, HANDSHAKES)):
            del self._greeting[link]
            if link in self._all:
                self._go_on_with(link)
        if self._greeting:
            self._post(self._greet)

    def _go_on_with(self, link: Link) -> None:
        try:
            if link.connecting:
                code = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise Ended.by(code)
                link.connecting = False
            if link.watched & WRITE:
                self._watch(link, link.flush())
            link.receive()
            if link.unsent and not link.watched & WRITE:
                # It may have waited for the encryption.
                self._watch(link, link.flush())
            message = link.message(self._max_message)
            if message is None:
                self._take_all(link)
            else:
                self._hand_on(link, message)
                self._acknowledge_many(link)
            if self._leaving and link.open:
                link.finish()
        except Ended as error:
            self._end(link, error)
        except (Broken, RemoteProtocolError) as error:
            self._drop(link, str(error))
        except HandshakeError as error:
            self._refuse(link, error)
        except Exception as error:
            fault(f"the connection of {shown(self.name)} with {shown(link.peer or 'an unknown peer')}", error)
            self._drop(link, "a fault here")
        if self._closing:
            self._rest()

    def _end(self, link: Link, error: Ended) -> None:
        """A connection has ended: process the bytes that had arrived, which may report that its server has left."""
        if link.closed:
            return
        closed = error.closed
        try:
            # A dialing server does not get in by bytes that arrived before: it would not know of it.
            while link in self._all and (link.open or link.dials) and link.receive():
                self._take_all(link)
        except Ended as last:
            closed = closed or last.closed
        except (Broken, RemoteProtocolError, HandshakeError):
            # It has ended in any case.
            pass
        if link.asleep:
            # It has reported that last.
            return
        if link in self._all and link.open and error.reset:
            self._suspend(link, str(error))
        else:
            self._drop(link, str(error), quiet=True, final=error.refused, sure=closed or error.refused)

    def _suspend(self, link: Link, reason: str) -> None:
        """Restore a connection that was reset, within the time of the keep-alive."""
        log.info("%s: the connection with %s is made again: %s", shown(self.name), shown(link.peer), reason)
        self._unwatch(link)
        link.suspend()
        self._make_again(link, reason)

    def _make_again(self, link: Link, reason: str) -> None:
        peer = self._again[link.peer] = _Peer(link.peer, (link.address,), link)
        peer.reason = reason
        late = f"it is not reached in {self._keep_alive:g} s"
        self._give_up(link, f"{reason}, and {late}" if reason else late)
        if link.address[1]:
            self._dial_later(peer, 0)

    def _give_up(self, link: Link, reason: str) -> None:
        """End a reset connection when its time has passed; wait for a server that has reported that it is stopped."""

        def late() -> None:
            if link.pulse.away:
                self._give_up(link, reason)
            else:
                self._drop(link, reason)

        link.timer = self._loop.later(self._keep_alive, late)

    def _acknowledge(self, link: Link) -> None:
        if frame := link.acknowledgement():
            self._put_control(link, frame)

    def _unwatch(self, link: Link) -> None:
        if link.watched:
            link.watched = 0
            self._loop.unwatch(link.fd)

    def _watch(self, link: Link, write: bool) -> None:
        """Wait for room to send only while bytes wait to be sent."""
        events = READ | WRITE if write else READ
        if events != link.watched and not link.closed:
            link.watched = events
            self._loop.unwatch(link.fd)
            self._loop.watch(link.fd, events, partial(self._ready, link))
            if write and link.open:
                self._loop.later(STALL_SECONDS, lambda: self._check(link, link.sent))

    def _check(self, link: Link, sent: int) -> None:
        if link.closed or not link.unsent:
            return
        if link.sent == sent:
            self._drop(link, f"it has read nothing for {STALL_SECONDS:g} s")
        else:
            self._loop.later(STALL_SECONDS, lambda: self._check(link, link.sent))

    def _put_control(self, link: Link, data: bytes) -> None:
        self._put(link, data, CONTROL)

    def _put(self, link: Link, message: bytes, control: int = 0) -> None:
        """Send a frame; from any thread."""
        try:
            waits = link.send(message, self._max_backlog, control)
        except Ended as error:
            ended = error
            self._post(lambda: self._end(link, ended))
        except Broken as error:
            reason = str(error)
            self._post(lambda: self._drop(link, reason))
        else:
            if waits:
                self._post(lambda: self._watch(link, True))
            elif link.asleep and not control:
                self._post(lambda: self._reach(link.peer))
            elif waits is None and link.heir is not None:
                self._put(link.heir, message, control)

    def _take_all(self, link: Link) -> None:
        for frame in link.frames(self._max_message):
            self._take(link, frame)
        self._acknowledge_many(link)

    def _acknowledge_many(self, link: Link) -> None:
        if link.journal is not None and link.journal.due():
            self._acknowledge(link)

    def _hand_on(self, link: Link, message: bytes) -> None:
        if not self._closing and self._on_message is not None:
            try:
                self._on_message(link.handshake.peer, message)
            except Exception:
                self._failed()

    def _take(self, link: Link, frame: bytes) -> None:
        if link.open:
            if frame == GOODBYE:
                self._drop(link, "", sure=True)
            else:
                self._hand_on(link, frame)
            return
        answer = link.handshake.take(frame)
        if link.handshake.done:
            self._open(link, answer)
        elif answer:
            self._put(link, answer)
            if link.handshake.proved:
                # The other side may take this server for a member from here on: to hang up would be its end there.
                self._limit(link, self._keep_alive)

    def _open(self, link: Link, answer: bytes) -> None:
        name = link.peer
        before = self._links.get(name)
        theirs = link.handshake.theirs
        if before is not None and before.closed and before.journal is not None and before.journal.is_of(theirs):
            self._resume(before, link, answer)
            return
        if len(theirs.life) != LIFE:
            raise HandshakeError(f"{shown(name)} says nothing of its life")
        if self._circle.is_over(theirs.life):
            raise HandshakeError(f"{shown(name)} counts as lost")
        # A server that has dialed, and proved who it is, may be present for the other side.
        closing = self._closing and not link.dials and name not in self._waiting
        if before is not None or theirs.link or closing or not self._circle.admits(name, theirs.life):
            raise HandshakeError(f"{shown(name)} is connected already", again=True)
        if self._folder and not link.dials:
            # It was found there, and is not looked up there after its end.
            address = rendezvous.find(self._folder, name).get(name)
            if address is not None:
                self._meet(name, (address,), 0)
        self._no_more_dialed(name, link)
        self._settle(link, answer)
        link.begin()
        new = name not in self._circle.present
        with self._first:
            # Messages that wait for it are sent before all later ones.
            for message in self._waiting.pop(name, ()):
                self._put(link, message)
            self._links[name] = link
        peer = self._peers.get(name)
        known = () if peer is None else peer.addresses
        self._circle.met(link, theirs.life, known or ((link.address,) if link.address[1] else ()))
        if new:
            self._appear(name)
        if self._leaving:
            self._put(link, GOODBYE)
            link.finish()
        elif self._closing:
            self._have_acknowledged(link)

    def _no_more_dialed(self, name: str, link: Link) -> None:
        """Stop other attempts to connect with a server, which is connected now."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.met = True
        for each in (peer, self._again.pop(name, None)):
            if each is not None:
                each.rest()
                rival, each.link = each.link, None
                if rival is not None and rival is not link:
                    self._drop(rival, "")

    def _settle(self, link: Link, answer: bytes) -> None:
        """Both sides of a connection have proved who they are; send that before anything else."""
        if not link.dials:
            host, (told, port) = link.address[0], link.handshake.listens
            # Another address is seen if the addresses of one side are translated: it cannot be dialed there.
            link.address = host, port if told == _plain(host) else 0
        link.control = lambda data: self._control(link, data)
        self._proven(link)
        if link.timer is not None:
            link.timer.cancel()
        if answer:
            self._put(link, answer)

    def _resume(self, before: Link, link: Link, answer: bytes) -> None:
        """Put a connection in the place of a reset one."""
        self._settle(link, answer)
        try:
            link.replace(before)
        except RemoteProtocolError as error:
            self._drop(before, str(error))
            raise
        self._no_more_dialed(link.peer, link)
        self._drop(before, "")
        self._links[link.peer] = link
        self._pulse.resumed(link)
        self._circle.resumed(link)
        log.info("%s: the connection with %s is there again", shown(self.name), shown(link.peer))
        if self._closing:
            self._have_acknowledged(link)
        self._watch(link, True)

    def _proven(self, link: Link) -> None:
        """A connection has passed its handshake, or has ended: another one may be accepted."""
        if link in self._unproved:
            del self._unproved[link]
            self._go_on()

    def _refuse(self, link: Link, error: HandshakeError) -> None:
        if not link.dials:
            self._put(link, refusal(error))
        # A server that leaves may be about to make a connection.
        quiet = error.again or self._circle.is_over(link.handshake.theirs.life)
        self._drop(link, str(error), quiet=quiet, grave=not error.again, final=not error.again)

    def _drop(
        self,
        link: Link,
        reason: str,
        *,
        quiet: bool = False,
        grave: bool = False,
        final: bool = False,
        sure: bool = False,
    ) -> None:
        """End a connection.

        Args:
            link: The connection.
            reason: Why, for a person; empty if it is in order.
            quiet: It is common among unknown peers.
            grave: It is likely to happen again.
            final: A connection that was reset cannot be made again.
            sure: Its server has ended, for all.
        """
        if link not in self._all:
            return
        del self._all[link]
        self._unwatch(link)
        link.close()
        self._proven(link)
        name = link.peer
        dialed = [each for each in (self._peers.get(name), self._again.get(name)) if each and each.link is link]
        if dialed:
            dialed[0].link = None
            self._missed(dialed[0], reason, grave=grave, final=final, sure=sure)
        elif link.heir is not None:
            # Another connection has taken its place.
            return
        elif self._links.get(name) is link:
            del self._links[name]
            self._vanish(name, reason, sure)
        elif reason and not self._closing:
            level = log.info if quiet else log.warning
            level(
                "%s: the connection with an unknown peer (%s) ends: %s",
                shown(self.name),
                shown(name) or "without a name",
                reason,
            )

    # Present servers

    def _appear(self, name: str) -> None:
        """A server is present, connected or not."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.met = True
            peer.rest()
        self._reasons.pop(name, None)
        if self._on_change is not None and not self._closing:
            self._call(self._on_change, name, True)

    def _vanish(self, name: str, reason: str, sure: bool = False) -> None:
        """A server is no longer present.

        Args:
            name: Its name.
            reason: Why, for a person; empty if it is in order.
            sure: It has ended, for all.
        """
        if name not in self._circle.present:
            return
        again = self._again.pop(name, None)
        if again is not None:
            again.rest()
            if again.link is not None:
                self._drop(again.link, "")
        link = self._links.get(name)
        self._circle.lost(name, sure, left=not reason)
        with self._first:
            # Later messages are for another server of this name.
            self._waiting.pop(name, None)
        if link is not None:
            # It was let go.
            self._drop(link, "")
        self._reasons[name] = reason
        if reason and not self._closing:
            self._at_end("%s: the connection with %s ends: %s", shown(self.name), shown(name), reason)
        if self._on_change is not None and not self._closing:
            self._call(self._on_change, name, False)
        self._circle.follow(name)

    def _lose(self, link: Link, reason: str, sure: bool) -> None:
        """The keep-alive ends a connection."""
        self._drop(link, reason, sure=sure)

    def _ended_elsewhere(self, name: str, left: bool) -> None:
        """Others have observed the end of a server: its connection here ends too, if it is not silent."""
        link = self._links.get(name)
        reason = "" if left else "others have seen its end"
        if link is None or link.closed:
            self._vanish(name, reason, sure=True)
            return
        self._circle.part(link)
        self._loop.later(ENDING_SECONDS, lambda: self._drop(link, reason, sure=True))

    def _expelled(self) -> None:
        """The others have lost this server, as they lose a server that leaves."""
        if self._closing:
            return
        log.warning("%s: the other servers count this one as lost: it goes on alone", shown(self.name))
        for link in list(self._links.values()):
            self._drop(link, "this server counts as lost")
        for name in list(self._circle.present):
            self._vanish(name, "this server counts as lost")

    def _hear_of(self, name: str, where: tuple[Address, ...]) -> None:
        """Others are connected with a server."""
        if where and name not in self._peers:
            self._meet(name, where, 0)

    def _control(self, link: Link, data: bytes) -> None:
        """Process a frame of the carriers."""
        kind, parts = codec.unpack(data)
        if kind in circle.KINDS:
            self._circle.take(link, kind, parts)
        elif kind == REST:
            self._rest_if_asked(link)
        elif kind == RESTS:
            self._fall_asleep(link)
        elif kind == SETTLE:
            self._acknowledge(link)
        else:
            self._pulse.take(link.peer, link, data)

    # Needed connections

    def _review(self) -> None:
        """Check soon which servers this one has to be connected with."""
        if not self._circle.sparse or self._closing:
            return
        now = time.monotonic()
        timer, since = self._reviewed
        if timer is None:
            since = now
        elif now - since > MAX_REVIEW_SECONDS:
            return
        else:
            timer.cancel()
        self._reviewed = self._loop.later(REVIEW_SECONDS, self._look_around), since

    def _look_around(self) -> None:
        self._reviewed = None, 0.0
        for name in self._circle.needed():
            self._reach(name)
        unmet = self._unmet()
        near = self._circle.near(unmet)
        for name in unmet:
            peer = self._peers[name]
            if peer.link is None and (peer.timer is None or (name in near and peer.far)):
                # Of a present server this one is about to get a record.
                peer.far = name not in near
                self._dial_later(peer, FAR_SECONDS + _about(_far_seconds(len(unmet))) if peer.far else 0)

    def _reach(self, name: str) -> None:
        """Make a connection with a present server, unless there is one."""
        link = self._links.get(name)
        if name not in self._circle.present or name in self._again or (link is not None and not link.asleep):
            return
        if link is not None:
            link.asleep = False
            self._make_again(link, "")
            return
        peer = self._peers.get(name)
        peer = self._again[name] = _Peer(name, (peer.addresses if peer is not None else ()) or self._circle.where(name))
        self._give_up_reaching(peer)
        if peer.addresses:
            self._dial_later(peer, 0)

    def _give_up_reaching(self, peer: _Peer) -> None:
        def doubt() -> None:
            if self._again.get(peer.name) is peer and peer.name in self._circle.needed():
                self._pulse.suspect(peer.name)

        def late() -> None:
            vouched = self._pulse.is_vouched(peer.name)
            if self._again.get(peer.name) is not peer:
                return
            if self._circle.is_away(peer.name):
                self._give_up_reaching(peer)
            else:
                reason = f"it is not reached in {self._keep_alive:g} s"
                self._vanish(peer.name, ": ".join(filter(None, (reason, peer.reason))), sure=not vouched)

        self._loop.later(self._keep_alive / 2, doubt)
        self._loop.later(self._keep_alive, late)

    def _let_go(self) -> None:
        """Close unneeded connections, the longest idle first, as long as there are many."""
        idle = []
        for link in self._links.values():
            if link.closed or link.journal is None:
                continue
            link.idle = link.idle + 1 if link.moved == link.journal.moved else 0
            link.moved = link.journal.moved
            if link.idle >= IDLE_TURNS:
                idle.append(link)
        surplus = len(self.connected) - self._circle.mesh
        if not self._circle.sparse or surplus <= 0 or not idle:
            return
        needed = self._circle.needed()
        idle = [link for link in idle if link.peer not in needed and link.address[1]]
        for link in sorted(idle, key=lambda link: -link.idle)[:surplus]:
            self._put_control(link, codec.pack(REST))

    def _rest_if_asked(self, link: Link) -> None:
        journal = link.journal
        if journal is None or link.peer in self._circle.needed() or not link.address[1] or not link.idle:
            return
        if journal.settled and not link.unsent:
            self._put_control(link, codec.pack(RESTS))
            self._fall_asleep(link)

    def _fall_asleep(self, link: Link) -> None:
        """Let a connection go: it is restored when a message is sent."""
        if link.closed:
            return
        self._unwatch(link)
        link.suspend(asleep=True)
        if link.unsent:
            # These were sent while the other side let it go.
            self._reach(link.peer)

    def _call(self, function: OnChange, name: str, here: bool) -> None:
        try:
            function(name, here)
        except Exception:
            self._failed()

    def _failed(self) -> None:
        log.exception("%s: a callback failed", shown(self.name))


def _about(seconds: float) -> float:
    """Return half to all of a time, by chance, so that servers do not dial each other at once again and again."""
    return seconds * (256 + os.urandom(1)[0]) / 511


def _far_seconds(count: int) -> float:
    """Return the time in which other servers' neighbours are dialed, so that few are dialed at a time."""
    return FAR_SECONDS * (1 + count / MAX_FAR)


def _plain(host: str) -> str:
    """Return an IPv4 address as such, if it is written as an IPv6 address."""
    return host.removeprefix("::ffff:")


def _most_unproved() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_UNPROVED if soft == resource.RLIM_INFINITY else max(1, min(MAX_UNPROVED, soft // 4))


def _check(
    secret: bytes,
    peers: Mapping[str, Address],
    listen: Address,
    max_message: int,
    max_backlog: int,
    mesh: int,
    keep_alive: float,
) -> None:
    """Raise if an argument of a carrier is not possible."""
    if not isinstance(secret, bytes | bytearray):
        raise TypeError(f"a secret is bytes, not {type(secret).__name__}")
    for place in (listen, *dict(peers).values()):
        if not isinstance(place, tuple | list) or [type(part) for part in place] != [str, int]:
            raise TypeError(f"a server listens at a host and a port, such as ('127.0.0.1', 0), not at {place!r:.80}")
    for other in peers:
        check_name(other)
    for what, size in (("max_message", max_message), ("max_backlog", max_backlog)):
        if type(size) is not int or not 0 < size < CONTROL:
            raise ValueError(f"{what} is a number of bytes, at least 1 and below {CONTROL}, not {size!r:.80}")
    if type(mesh) is not int or mesh < 1:
        raise ValueError(f"mesh is a number of servers, at least 1, not {mesh!r:.80}")
    if not 0 < keep_alive < float("inf"):
        raise ValueError(f"keep_alive is a number of seconds above 0, not {keep_alive!r:.80}")
    if len(secret) < 16:
        raise ValueError(f"a secret of {len(secret)} bytes can be guessed: 16 at least")
