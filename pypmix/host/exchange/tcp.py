"""The carrier over TCP: loopback, network namespaces, or a network that is trusted as far as its wires."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time

from pypmix.host.exchange import meeting
from pypmix.host.exchange.carrier import MAX_MESSAGE
from pypmix.host.exchange.handshake import Handshake, Stranger, check_name, refusal
from pypmix.host.exchange.link import Broken, Link
from pypmix.host.exchange.turns import log
from pypmix.host.loop import READ, WRITE, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from pypmix.host.exchange.carrier import OnChange, OnMessage
    from pypmix.host.exchange.meeting import Address

MAX_BACKLOG = 2 * MAX_MESSAGE
"""How many bytes may wait for a server that does not read."""

MAX_STRANGERS = 256
"""How many connections may be in their handshake at a time."""

HANDSHAKE_SECONDS = 10.0
STALL_SECONDS = 60.0
"""Seconds after which a server is dropped that reads nothing of what waits for it."""

GOODBYE = b""
"""The frame that says that its sender leaves; no message is empty."""

RETRY_SECONDS = 0.2
RETRIES = 50
LINGER_SECONDS = 1.0
"""How long a carrier that is closed still sends what was given to it."""


class TCPCarrier:
    """A `Carrier` with a TCP connection to each of the other servers, and a thread of its own.

    Whoever knows the secret is taken for a server of the session; the secret itself is not sent. The connections are
    not encrypted. A connection that ends is the end of its server: it is not made again.

    Args:
        name: This server's name.
        secret: What all servers of the session know, and nobody else: at least 16 bytes.
        peers: Where the other servers listen, by name. Each server dials all that it knows when it begins to listen,
            so of any two it is enough that the later one knows the earlier one.
        listen: The host and port to listen on; port 0 takes a free one.
        max_message: The longest message, in bytes.
        max_backlog: How many bytes may wait for a server before it is dropped.

    Raises:
        ValueError: The name cannot be one, or the secret is too short.
        OSError: Nobody can listen there.
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
    ) -> None:
        self.name = check_name(name)
        if not isinstance(secret, bytes | bytearray):
            raise TypeError(f"a secret is bytes, not {type(secret).__name__}")
        for place in (listen, *dict(peers or {}).values()):
            if not isinstance(place, tuple | list) or [type(part) for part in place] != [str, int]:
                raise TypeError(
                    f"a server listens at a host and a port, such as ('127.0.0.1', 0), not at {place!r:.80}"
                )
        for other in peers or {}:
            check_name(other)
        for what, size in (("max_message", max_message), ("max_backlog", max_backlog)):
            if type(size) is not int or size < 1:
                raise ValueError(f"{what} is a number of bytes, at least 1, not {size!r:.80}")
        if len(secret) < 16:
            raise ValueError(f"a secret of {len(secret)} bytes can be guessed: 16 at least")
        self._secret = bytes(secret)
        self._known = dict(peers or {})
        self._folder = ""
        self._max_message = max_message
        self._max_backlog = max_backlog
        self._links: dict[str, Link] = {}
        self._all: dict[Link, None] = {}
        self._tries: dict[str, int] = {}
        self._on_message: OnMessage | None = None
        self._on_change: OnChange | None = None
        self._closing = 0.0
        self._gate = threading.Lock()
        self._leaving = False
        self._ended = False
        self._thread: threading.Thread | None = None
        family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        self._listener = socket.create_server(listen, family=family, backlog=128)
        self._listener.setblocking(False)
        self._loop = Loop()
        self.address: Address = self._listener.getsockname()[:2]
        """Where this server listens: host and port."""

    @classmethod
    def in_folder(cls, name: str, folder: str | os.PathLike[str], *, host: str = "127.0.0.1") -> Self:
        """Make a carrier that finds the others by a folder that all servers see, on this node or a shared file system.

        Args:
            name: This server's name.
            folder: The folder, of this user and nobody else's; made where it is not there. The first server makes the
                secret in it.
            host: The address to listen on, by which the others reach it.

        Raises:
            PermissionDenied: The folder is another user's, or others may write to it.
        """
        path = os.fspath(folder)
        carrier = cls(name, meeting.enter(path), listen=(host, 0))
        carrier._folder = path
        return carrier

    # What users call, from any thread

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all servers that are there, sorted."""
        return tuple(sorted((self.name, *self._links.copy())))

    def listen(self, on_message: OnMessage, on_change: OnChange) -> None:
        """Begin to call these, on a thread of the carrier, and to dial the servers that are known."""
        self._on_message, self._on_change = on_message, on_change
        self._thread = threading.Thread(target=self._run, name=f"pypmix-carrier-{self.name}", daemon=True)
        self._thread.start()

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
        if link is not None:
            self._put(link, message)

    def close(self) -> None:
        """Send what was given, for a second at most, and leave; waits for it, unless the carrier itself calls."""
        if not self._closing:
            self._closing = time.monotonic() + LINGER_SECONDS
            if self._folder:
                meeting.withdraw(self._folder, self.name, self.address)
            if self._thread is None:
                self._ended = True
                self._listener.close()
                self._loop.close()
            else:
                self._post(self._leave)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # The carrier's thread

    def _run(self) -> None:
        self._loop.watch(self._listener.fileno(), READ, self._accept)
        if self._folder:
            # Said before it is looked who else is there: of two that come at a time, at least one sees the other.
            meeting.announce(self._folder, self.name, self.address)
            self._known = meeting.find(self._folder)
        for name in sorted(self._known):
            self._dial(name)
        self._loop.run(self._over)
        for link in list(self._all):
            self._loop.unwatch(link.fd)
            link.close()
        self._links.clear()
        self._all.clear()
        self._listener.close()
        with self._gate:
            self._ended = True
            self._loop.close()

    def _post(self, call: Callable[[], None]) -> None:
        """Have something done on the carrier's thread, while there is one; from any thread."""
        with self._gate:
            if not self._ended:
                self._loop.post(call)

    def _over(self) -> bool:
        if not self._closing:
            return False
        if time.monotonic() >= self._closing:
            return True
        return self._leaving and not any(link.unsent for link in self._links.values())

    def _leave(self) -> None:
        self._leaving = True
        for link in self._links.values():
            self._put(link, GOODBYE)
        # Which is when the loop looks again whether it is over.
        self._loop.later(LINGER_SECONDS, lambda: None)

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                log.error("%s: no connection can be taken: %s", self.name, error)
                self._loop.unwatch(self._listener.fileno())
                self._loop.later(1.0, self._accept_again)
            return
        if self._closing:
            sock.close()
            return
        if len(self._all) - len(self._links) >= MAX_STRANGERS:
            log.warning(
                "%s: %d connections are in their handshake, that of %s is closed", self.name, MAX_STRANGERS, address
            )
            sock.close()
            return
        self._start(Link(sock, Handshake(self.name, self._secret, admit=self._admit), dials=False), READ)

    def _accept_again(self) -> None:
        if not self._closing:
            self._loop.watch(self._listener.fileno(), READ, self._accept)

    def _dial(self, name: str) -> None:
        if name == self.name or name in self._links or self._closing or self._dialing(name) is not None:
            return
        address = self._known[name]
        try:
            info = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
            sock = socket.socket(info[0], info[1])
        except OSError as error:
            log.error("%s: %s cannot be dialed at %s: %s", self.name, name, address, error)
            return
        link = Link(sock, Handshake(self.name, self._secret, to=name), dials=True)
        code = sock.connect_ex(info[4])
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            log.info("%s: %s does not listen at %s: %s", self.name, name, address, os.strerror(code))
            return
        self._start(link, READ | WRITE)
        self._put(link, link.handshake.begin())

    def _dialing(self, name: str) -> Link | None:
        return next((link for link in self._all if link.dials and not link.open and link.peer == name), None)

    def _start(self, link: Link, events: int) -> None:
        self._all[link] = None
        link.timer = self._loop.later(HANDSHAKE_SECONDS, lambda: self._drop(link, "its handshake takes too long"))
        link.watched = events
        self._loop.watch(link.fd, events, lambda: self._ready(link))

    def _ready(self, link: Link) -> None:
        try:
            if link.connecting:
                code = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise Broken(os.strerror(code))
                link.connecting = False
            if link.watched & WRITE:
                self._watch(link, link.flush())
            link.receive()
            for frame in link.frames(self._max_message):
                self._take(link, frame)
        except Broken as error:
            self._drop(link, str(error))
        except Stranger as error:
            self._refuse(link, error)

    def _watch(self, link: Link, write: bool) -> None:
        """Wait for room to send only while something waits to be sent."""
        events = READ | WRITE if write else READ
        if events != link.watched and not link.closed:
            link.watched = events
            self._loop.unwatch(link.fd)
            self._loop.watch(link.fd, events, lambda: self._ready(link))
            if write and link.open:
                self._loop.later(STALL_SECONDS, lambda: self._check(link, link.sent))

    def _check(self, link: Link, sent: int) -> None:
        if link.closed or not link.unsent:
            return
        if link.sent == sent:
            self._drop(link, f"it has read nothing for {STALL_SECONDS:g} s")
        else:
            self._loop.later(STALL_SECONDS, lambda: self._check(link, link.sent))

    def _put(self, link: Link, message: bytes) -> None:
        """Send a frame; from any thread."""
        try:
            if link.send(message, self._max_backlog):
                self._post(lambda: self._watch(link, True))
        except Broken as error:
            reason = str(error)
            self._post(lambda: self._drop(link, reason))

    def _take(self, link: Link, frame: bytes) -> None:
        if link.open:
            if frame == GOODBYE:
                self._drop(link, "")
            elif not self._closing and self._on_message is not None:
                self._call(self._on_message, link.peer, frame)
            return
        answer = link.handshake.take(frame)
        if link.handshake.done:
            self._open(link, answer)
        elif answer:
            self._put(link, answer)

    def _open(self, link: Link, answer: bytes) -> None:
        name = link.peer
        if name in self._links or self._closing:
            raise Stranger(f"{name} is connected already", again=True)
        rival = self._dialing(name)
        if rival is not None and rival is not link:
            self._drop(rival, "")
        link.open = True
        if link.timer is not None:
            link.timer.cancel()
        self._tries.pop(name, None)
        if answer:
            # Before anything that others send: they find the link only afterwards.
            self._put(link, answer)
        self._links[name] = link
        if self._on_change is not None:
            self._call(self._on_change, name, True)

    def _admit(self, name: str) -> None:
        """Let a server in that has dialed; of two that dial each other, the connection of the first by name counts."""
        if name == self.name:
            raise Stranger(f"its name is {name} as well")
        if name in self._links or self._closing:
            # If the one that is there has died, that is about to show.
            raise Stranger(f"there is a {name} already", again=True)
        if self.name < name and self._dialing(name) is not None:
            raise Stranger("it is being dialed itself", again=True)

    def _refuse(self, link: Link, error: Stranger) -> None:
        name = link.peer
        if not link.dials:
            self._put(link, refusal(error))
        elif not error.again:
            log.error("%s: %s cannot be talked to: %s", self.name, name, error)
        self._drop(link, "" if link.dials or error.again else str(error))
        if link.dials and error.again:
            tries = self._tries[name] = self._tries.get(name, 0) + 1
            if tries < RETRIES:
                self._loop.later(RETRY_SECONDS, lambda: self._dial(name))
            else:
                log.error("%s: %s", self.name, error)

    def _drop(self, link: Link, reason: str) -> None:
        if link not in self._all:
            return
        del self._all[link]
        if link.fd >= 0:
            self._loop.unwatch(link.fd)
        link.close()
        name = link.peer
        if reason:
            level = log.warning if link.open or not link.dials else log.info
            level("%s: the connection with %s ends: %s", self.name, name or "a stranger", reason)
        if self._links.get(name) is link:
            del self._links[name]
            if self._on_change is not None and not self._closing:
                self._call(self._on_change, name, False)

    def _call(self, function: OnMessage | OnChange, *args: object) -> None:
        try:
            function(*args)  # type: ignore[arg-type]
        except Exception:
            log.exception("%s: a callback failed", self.name)
