"""The carrier over TCP: loopback, network namespaces, or a network that is trusted as far as its wires."""

from __future__ import annotations

import contextlib
import errno
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
    RETRY_SECONDS,
    STALL_SECONDS,
    UNREACHED_SECONDS,
)
from pypmix.host import addresses
from pypmix.host.exchange import rendezvous
from pypmix.host.exchange.carrier import MAX_MESSAGE
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.handshake import NEW, Handshake, HandshakeError, Progress, refusal
from pypmix.host.exchange.keepalive import KeepAlive
from pypmix.host.exchange.link import CONTROL, Broken, Ended, Link
from pypmix.host.loop import READ, WRITE, Loop
from pypmix.host.naming import check_name
from pypmix.standard.errors import NotInitialized, RemoteProtocolError
from pypmix.standard.logtext import WINDOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Self

    from pypmix.engine.base import Guest
    from pypmix.host.exchange.carrier import OnChange, OnMessage
    from pypmix.host.exchange.rendezvous import Address
    from pypmix.host.loop import Cancellable as Timer

MAX_BACKLOG = 2 * MAX_MESSAGE
"""The most bytes that may wait for a server that does not read."""

MAX_UNPROVED = 512
"""The most accepted connections that may be in their handshake at a time, if a quarter of the descriptors is enough.

The oldest one makes room, once it has had `PROOF_SECONDS`; until then, those that come wait in the system's queue. So a
server that proves within that time who it is gets in however many others come, and these cost a bounded share of time.
"""

ACCEPTS = 16
"""The connections that are taken in one turn, so that those that are there have theirs as well."""

GOODBYE = b""
"""The frame that says that its sender leaves; no message is empty."""


class _Peer:
    """Another server, as far as it is known where it listens, and is to be dialed.

    Attributes:
        broken: The connection that is to be made again; None for a first one.
        met: Whether it has been connected: it is not dialed any more.
        tries: How often it was dialed without success.
        since: When it was to be dialed first.
        link: The connection by which it is being dialed.
        timer: When it is dialed.
    """

    __slots__ = ("addresses", "broken", "link", "met", "name", "reason", "since", "timer", "told", "tries")

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
        self.reason = ""

    @property
    def address(self) -> Address:
        """Where it is dialed the next time: at one of its addresses after the other."""
        return self.addresses[self.tries % len(self.addresses)]

    def rest(self) -> None:
        """Have it not dialed any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class TCPCarrier:
    """A `Carrier` with a TCP connection to each of the other servers, and a thread of its own.

    A peer that knows the secret is taken for a server of the session; the secret itself is not sent. Connections that
    leave the machine are encrypted, unless `encrypt` says otherwise. A server that is known and was never connected is
    dialed again and again, at intervals that grow to some seconds. A connection that is reset is made again, and
    nothing is lost (`journal` has the theory). One that its server closes is the end of that: it is not made again.

    Args:
        name: This server's name.
        secret: Known to all servers of the session alone: at least 16 bytes.
        peers: Where the other servers listen, by name. Each server dials all that it knows, so of any two it is enough
            that one knows the other. They need not listen yet, nor have an address yet where they are given by name.
        listen: The host and port to listen on; port 0 takes a free one.
        max_message: The longest message, in bytes.
        max_backlog: How many bytes may wait for a server before it is dropped.
        keep_alive: Seconds after which a server is lost that does not answer, as one whose process was stopped or whose
            cable was pulled out, or with which a connection that was reset cannot be made again. The carrier's thread
            answers: a host that is busy, or blocks elsewhere, is not lost.
        encrypt: Whether connections are encrypted; by default those to addresses that are not loopback's. Of two
            servers the one that dials decides, unless the other one insists on it by True.

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
        keep_alive: float = KEEP_ALIVE_SECONDS,
        encrypt: bool | None = None,
    ) -> None:
        self.name = check_name(name)
        _check(secret, peers or {}, listen, max_message, max_backlog, keep_alive)
        self._secret = bytes(secret)
        self._known = dict(peers or {})
        self._folder = ""
        self._max_message = max_message
        self._max_backlog = max_backlog
        self._keep_alive = keep_alive
        self._encrypt = encrypt
        self._links: dict[str, Link] = {}
        self._reasons: dict[str, str] = {}
        self._pulse = KeepAlive(name, keep_alive, self._links, self._put_control, self._drop)
        self._all: dict[Link, None] = {}
        self._unproved: dict[Link, None] = {}
        self._peers: dict[str, _Peer] = {}
        self._again: dict[str, _Peer] = {}
        """Those with which a connection was reset and is not there again yet."""
        self._folder_read = (0, False, 0.0)
        self._announced = False
        self._paused: Timer | None = None
        self._on_message: OnMessage | None = None
        self._on_change: OnChange | None = None
        self._closing = 0.0
        self._gate = threading.Lock()
        self._leaving = False
        self._ended = False
        self._thread: threading.Thread | None = None
        self._listener = addresses.listen(listen)
        self._listener.setblocking(False)
        self._own = Loop()
        self._loop: Loop | Guest = self._own
        self._begun = False
        """Whether it lives on a loop that is not its own."""
        self._here: int | None = None
        self._left = threading.Event()
        self.address: Address = self._listener.getsockname()[:2]
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
            folder: The folder, of this user alone; made where it is not there. The first server makes the secret in it.
            host: The address to listen on, by which the others reach it.
            keep_alive: See `TCPCarrier`.

        Raises:
            PermissionDenied: The folder is another user's, or others may write to it.
        """
        path = os.fspath(folder)
        carrier = cls(name, rendezvous.enter(path), listen=(host, 0), keep_alive=keep_alive)
        carrier._folder = path
        return carrier

    # What users call, from any thread

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all servers that are there, sorted."""
        return tuple(sorted((self.name, *self._links.copy())))

    def live_on(self, loop: Guest) -> None:
        """Have no thread of its own: all happens on that of a loop, which answers for its life; before `listen`."""
        self._loop = loop

    def listen(self, on_message: OnMessage, on_change: OnChange) -> None:
        """Begin to call these, on a thread of the carrier, and to dial the servers that are known."""
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
        if not message:
            raise ValueError("a message is not empty")
        if len(message) > self._max_message:
            raise OverflowError(f"a message of {len(message)} bytes is longer than {self._max_message}")
        link = self._links.get(to)
        if link is not None and not self._closing:
            self._put(link, message)

    def meet(self, name: str, addresses: Iterable[Address]) -> None:
        """Have a server dialed, at one of its addresses after the other until it is reached; after `listen`."""
        found = check_name(name), tuple(addresses)
        if found[1]:
            self._post(lambda: self._meet(*found, 0))

    def away(self, going: bool) -> None:
        """Tell the others that this process will be stopped for an unknown time, or that it is back."""
        self._pulse.away(going)

    def reason(self, name: str) -> str:
        """Return why the last connection with a server has ended; empty if it has left, or is there."""
        return self._reasons.get(name, "")

    def close(self) -> None:
        """Send what was given, for a second at most, and leave; waits for it, unless the carrier itself calls."""
        if not self._closing:
            self._closing = time.monotonic() + LINK_LINGER_SECONDS
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
                self._left.wait(2 * LINK_LINGER_SECONDS)

    # The carrier's thread

    def _run(self) -> None:
        try:
            self._begin()
            self._own.run(self._over)
        except BaseException as error:
            # Nothing goes to the other servers any more, nor comes from them: that is as if they were gone.
            fault(f"the carrier of {self.name}", error)
            for link in list(self._links.values()):
                self._drop(link, "this carrier has failed")
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
        self._all.clear()
        self._unproved.clear()
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
        self._loop.later(self._pulse.every, self._turn)

    def _post(self, call: Callable[[], None]) -> None:
        """Have something done on the carrier's thread, while there is one; from any thread."""
        with self._gate:
            if not self._ended:
                with contextlib.suppress(NotInitialized):
                    self._loop.post(call)

    def _over(self) -> bool:
        if not self._closing:
            return False
        return time.monotonic() >= self._closing or (self._leaving and not self._links)

    def _leave(self) -> None:
        self._leaving = True
        for peer in self._peers.values():
            peer.rest()
        for link in list(self._all):
            if link.open:
                # It is read until the other side has closed as well: a socket with unread data would be reset, and with
                # it go what the other one has not read. One that is reset all the same may be there again in time.
                self._put(link, GOODBYE)
                link.finish()
            elif link.peer not in self._again:
                # One that takes the place of a connection that was reset may count on the other side already.
                self._drop(link, "")
        # Which is when the loop looks again whether it is over.
        self._loop.later(LINK_LINGER_SECONDS, self._rest)
        self._rest()

    def _rest(self) -> None:
        """It lives on a loop that goes on: see whether it is over."""
        if self._begun and self._over():
            self._finish()

    # Those that dial

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            if not self._make_room(len(self._unproved) >= _most_unproved()):
                return
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    log.error("%s: no connection can be taken: %s", self.name, error)
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
        """Close the connection that has been longest in its handshake if room is needed; tell whether there is room."""
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
        """Leave those that dial in the system's queue for a while."""
        if self._paused is None:
            self._loop.unwatch(self._listener.fileno())
            self._paused = self._loop.later(seconds, self._go_on)

    def _go_on(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
            self._loop.watch(self._listener.fileno(), READ, self._accept)

    def _admit(self, name: str, theirs: Progress) -> Progress:
        """Let a server in that has dialed; of two that dial each other, the connection of the first by name counts."""
        if name == self.name:
            raise HandshakeError(f"its name is {name} as well")
        link = self._links.get(name)
        journal = link.journal if link is not None and theirs.link else None
        if journal is not None and not journal.is_of(theirs):
            journal = None
        peer = (self._again if theirs.link else self._peers).get(name)
        dialed = self.name < name and peer is not None and peer.link is not None and peer.link.handshake.proved
        if dialed or (journal is not None and journal.is_old(theirs)):
            raise HandshakeError("it is being dialed itself, or was", again=True)
        if journal is not None and link is not None and not link.closed:
            # It was reset, and that has not shown here yet.
            self._end(link, Ended("it is made again by the other side", reset=True))
        if journal is not None and self._links.get(name) is link:
            return journal.progress()
        if theirs.link or link is not None or self._closing:
            # If the one that is there has died, that is about to show.
            text = f"its connection with {name} is over" if theirs.link else f"there is a {name} already"
            raise HandshakeError(text, again=not theirs.link)
        return NEW

    # Those that are dialed

    def _look(self, delay: float) -> None:
        """Look who listens where, and have those dialed that are new; again and again."""
        try:
            if not self._announced:
                # Said before it is looked who else is there: of two that come at a time, at least one sees the other.
                rendezvous.announce(self._folder, self.name, self.address)
                self._announced = True
            before, settled, moment = self._folder_read
            now = os.stat(self._folder).st_mtime_ns
            if now != before or not settled or time.monotonic() - moment > READ_SECONDS:
                found = rendezvous.find(self._folder)
                # What changed while the clock of the file system stood still shows the next time.
                self._folder_read = now, now == before, time.monotonic()
                for name in [name for name in self._peers if name not in found]:
                    self._forget(name)
                for name, address in found.items():
                    self._meet(name, (address,), delay)
        except OSError as error:
            log.warning("%s: %s cannot be used: %s", self.name, self._folder, error.strerror or error)
        if not self._closing:
            # A new server dials those that are there, and gets the time for it.
            self._loop.later(_about(LOOK_SECONDS), lambda: self._look(LOOK_SECONDS))

    def _meet(self, name: str, addresses: tuple[Address, ...], delay: float) -> None:
        """Take in where a server listens, and have it dialed unless it is there."""
        peer = self._peers.get(name)
        if name == self.name or (peer is not None and peer.addresses == addresses):
            return
        self._forget(name)
        peer = self._peers[name] = _Peer(name, addresses)
        peer.met = name in self._links
        self._dial_later(peer, delay)

    def _forget(self, name: str) -> None:
        peer = self._peers.pop(name, None)
        if peer is not None:
            peer.rest()
            if peer.link is not None:
                self._drop(peer.link, "")

    def _wants(self, peer: _Peer) -> bool:
        """Tell whether a server is to be dialed."""
        if peer.broken is not None:
            return self._again.get(peer.name) is peer
        return self._peers.get(peer.name) is peer and not peer.met and not self._closing

    def _dial_later(self, peer: _Peer, delay: float) -> None:
        peer.rest()
        if self._wants(peer):
            peer.timer = self._loop.later(delay, lambda: self._dial(peer))

    def _dial(self, peer: _Peer) -> None:
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

        try:
            find(socket.AI_NUMERICHOST)
        except (OSError, ValueError):
            # Names may take long to be found.
            threading.Thread(target=resolve, name=f"pypmix-resolve-{peer.name}", daemon=True).start()

    def _connect(self, peer: _Peer, found: list[tuple[Any, ...]]) -> None:
        if peer.link is not None or not self._wants(peer):
            return
        info = found[peer.tries // len(peer.addresses) % len(found)]
        encrypt = self._encrypt if self._encrypt is not None else not addresses.is_loopback(info[4][0])
        progress = NEW
        if peer.broken is not None and peer.broken.journal is not None:
            peer.broken.journal.dialed += 1
            progress = peer.broken.journal.progress()
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
            self._missed(peer, os.strerror(code), final=code == errno.ECONNREFUSED)
            return
        peer.link = link
        self._start(link, READ | WRITE, min(LINK_HANDSHAKE_SECONDS, DIAL_SECONDS * 2 ** min(peer.tries, 8)))
        handshake.listens = self._reached(sock)
        self._put(link, handshake.begin())

    def _reached(self, sock: socket.socket) -> Address:
        """Return where the other side of a connection may dial this one: at the same address, if it listens there."""
        own, here = self.address[0], _plain(sock.getsockname()[0])
        return (here, self.address[1]) if own in (addresses.ANYWHERE, "0.0.0.0", here) else ("", 0)

    def _missed(self, peer: _Peer, reason: str, *, grave: bool = False, final: bool = False) -> None:
        """A server was not reached: dial it again in a while, unless a connection that was reset is over by that."""
        if not self._wants(peer):
            return
        if peer.broken is not None and final:
            self._drop(peer.broken, f"{peer.reason}, and {reason}")
            return
        peer.tries += 1
        now = time.monotonic()
        level = log.info
        if (grave or now - peer.since >= UNREACHED_SECONDS) and (reason != peer.reason or now - peer.told >= WINDOW):
            peer.told, peer.reason = now, reason
            level = log.error if grave else log.warning
        level("%s: %s is not reached at %s, and is dialed again: %s", self.name, peer.name, peer.address, reason)
        delay = min(MAX_RETRY_SECONDS, RETRY_SECONDS * 2 ** min(peer.tries - 1, 8))
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
            fault(f"the connection of {self.name} with {link.peer or 'an unknown peer'}", error)
            self._drop(link, "a fault here")
        if self._leaving:
            self._rest()

    def _end(self, link: Link, error: Ended) -> None:
        """A connection has ended: take in what had arrived, which may say that its server has left."""
        if link.closed:
            return
        try:
            # One that has dialed does not get in by what it has said: it would not know of it.
            while link in self._all and (link.open or link.dials) and link.receive():
                self._take_all(link)
        except (Broken, RemoteProtocolError, HandshakeError):
            # It has ended in any case.
            pass
        if link in self._all and link.open and error.reset:
            self._suspend(link, str(error))
        else:
            self._drop(link, str(error), quiet=True, final=error.refused)

    def _suspend(self, link: Link, reason: str) -> None:
        """A connection was reset: have it made again, within the time of the keep-alive."""
        log.info("%s: the connection with %s is made again: %s", self.name, link.peer, reason)
        self._unwatch(link)
        link.suspend()
        peer = self._again[link.peer] = _Peer(link.peer, (link.address,), link)
        peer.reason = reason
        self._give_up(link, f"{reason}, and it is not reached in {self._keep_alive:g} s")
        if link.address[1]:
            self._dial_later(peer, 0)

    def _give_up(self, link: Link, reason: str) -> None:
        """End a connection that was reset when its time is over; one that has said that it is stopped is waited for."""

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
        """Wait for room to send only while something waits to be sent."""
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
                self._drop(link, "")
            else:
                self._hand_on(link, frame)
            return
        answer = link.handshake.take(frame)
        if link.handshake.done:
            self._open(link, answer)
        elif answer:
            self._put(link, answer)
            if link.handshake.proved:
                # The other one may take this one for a member from here on: to hang up would be its end there.
                self._limit(link, self._keep_alive)

    def _open(self, link: Link, answer: bytes) -> None:
        name = link.peer
        before = self._links.get(name)
        theirs = link.handshake.theirs
        if before is not None and before.closed and before.journal is not None and before.journal.is_of(theirs):
            self._resume(before, link, answer)
            return
        if before is not None or theirs.link or self._closing:
            raise HandshakeError(f"{name} is connected already", again=True)
        if self._folder and not link.dials:
            # Where it was found is where it is not looked for after its end.
            address = rendezvous.find(self._folder, name).get(name)
            if address is not None:
                self._meet(name, (address,), 0)
        peer = self._peers.get(name)
        if peer is not None:
            peer.met = True
            peer.rest()
            rival, peer.link = peer.link, None
            if rival is not None and rival is not link:
                self._drop(rival, "")
        self._reasons.pop(name, None)
        self._settle(link, answer)
        link.begin()
        self._links[name] = link
        if self._on_change is not None:
            self._call(self._on_change, name, True)

    def _settle(self, link: Link, answer: bytes) -> None:
        """Both sides of a connection have proved who they are; say so before anything else is sent."""
        if not link.dials:
            host, (told, port) = link.address[0], link.handshake.listens
            # Another address is seen where those of one side are translated: it cannot be dialed there.
            link.address = host, port if told == _plain(host) else 0
        link.control = lambda data: self._pulse.take(link.peer, link, data)
        self._proven(link)
        if link.timer is not None:
            link.timer.cancel()
        if answer:
            self._put(link, answer)

    def _resume(self, before: Link, link: Link, answer: bytes) -> None:
        """A connection takes the place of one that was reset."""
        self._settle(link, answer)
        try:
            link.replace(before)
        except RemoteProtocolError as error:
            self._drop(before, str(error))
            raise
        peer = self._again.pop(link.peer)
        peer.rest()
        rival, peer.link = peer.link, None
        if rival is not None and rival is not link:
            self._drop(rival, "")
        self._drop(before, "")
        self._links[link.peer] = link
        self._pulse.resumed(link)
        log.info("%s: the connection with %s is there again", self.name, link.peer)
        self._watch(link, True)

    def _proven(self, link: Link) -> None:
        """A connection has passed its handshake, or has ended: another one may be accepted."""
        if link in self._unproved:
            del self._unproved[link]
            self._go_on()

    def _refuse(self, link: Link, error: HandshakeError) -> None:
        if not link.dials:
            self._put(link, refusal(error))
        self._drop(link, str(error), quiet=error.again, grave=not error.again, final=not error.again)

    def _drop(self, link: Link, reason: str, *, quiet: bool = False, grave: bool = False, final: bool = False) -> None:
        """End a connection.

        Args:
            link: The connection.
            reason: Why, for a person; empty where it is in order.
            quiet: It is common among unknown peers.
            grave: It is likely to happen again.
            final: A connection that was reset cannot be made again.
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
            self._missed(dialed[0], reason, grave=grave, final=final)
        elif link.heir is not None:
            # It has gone on.
            return
        elif self._links.get(name) is link:
            del self._links[name]
            again = self._again.pop(name, None)
            if again is not None:
                again.rest()
                if again.link is not None:
                    self._drop(again.link, "")
            self._reasons[name] = reason
            if reason and not self._closing:
                log.warning("%s: the connection with %s ends: %s", self.name, name, reason)
            if self._on_change is not None and not self._closing:
                self._call(self._on_change, name, False)
        elif reason and not self._closing:
            level = log.info if quiet else log.warning
            level("%s: the connection with an unknown peer (%s) ends: %s", self.name, name or "without a name", reason)

    def _call(self, function: OnChange, name: str, here: bool) -> None:
        try:
            function(name, here)
        except Exception:
            self._failed()

    def _failed(self) -> None:
        log.exception("%s: a callback failed", self.name)


def _about(seconds: float) -> float:
    """Return half to all of a time, by chance, so that servers do not dial each other at once again and again."""
    return seconds * (256 + os.urandom(1)[0]) / 511


def _plain(host: str) -> str:
    """Return an IPv4 address as such, where it is written as one of IPv6."""
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
    keep_alive: float,
) -> None:
    """Raise where an argument of a carrier cannot be one."""
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
    if not 0 < keep_alive < float("inf"):
        raise ValueError(f"keep_alive is a number of seconds above 0, not {keep_alive!r:.80}")
    if len(secret) < 16:
        raise ValueError(f"a secret of {len(secret)} bytes can be guessed: 16 at least")
