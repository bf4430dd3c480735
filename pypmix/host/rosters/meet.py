"""The meeting of processes started alike, one on each node: one is the launcher, the others become its daemons.

The launcher listens. A follower dials until it reaches the launcher, within the patience of both. The connection is TLS
without certificates, so a third process cannot read it. Each side proves to the other (`proof.py`) a statement that
contains the connection's channel binding, which excludes a process in the middle. Over this connection the launcher
sends the line for the daemon, with the session's secret. Then both sides leave TLS: from there on the connection
carries the daemon's answer, and its end shows each side that the other has exited.

Until all followers have joined, any process may exit and be restarted, also with another address. The launcher forgets
a follower that exited. A follower whose launcher exited resolves the address again and dials again. Both sides detect
by keep-alive that the other's machine is lost. A launcher that gives up sends an empty line instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import selectors
import socket
import ssl
import threading
import time

from pypmix._version import __version__
from pypmix.engine.faults import fault
from pypmix.engine.peeruid import UNKNOWN_USER, Owners
from pypmix.host import tls
from pypmix.host.addresses import ANYWHERE, is_loopback, listen, set_keep_alive
from pypmix.host.rosters.base import RosterError
from pypmix.standard.logtext import get_logger, printable
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from pypmix.host.rosters.proof import Proof

    Address = tuple[str, int]
    Broken = Callable[[], str]

MAX_FRAME = 1 << 20
HANDSHAKE = 10.0
"""Seconds for a handshake."""

LEAST = 2.0
"""The minimum timeout in seconds of an attempt to reach the launcher, even if less time is left."""

KEEP_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Processes that wait for the others detect a lost machine within 20 seconds."""

UNPROVED = 256
"""The maximum number of concurrent handshakes; beyond it, the oldest is closed once it is `PROOF` seconds old."""

PROOF = 0.5
"""Seconds for which a connection in its handshake is not closed to make room for others."""

HINT = "does it run, and does no firewall stand between?"

OCCUPIED = "another process has its place"
"""The start of a temporary refusal: it ends when the launcher detects that the other process exited."""

RETRY = 0.2
LOOK = 0.1
"""Seconds between checks whether more followers can join."""


_log = get_logger("pypmix.host")


class _Declined(OSError):
    """The other side refuses this process for now; a later attempt may succeed, such as when another process ends."""


class Refused(RosterError):
    """The other side refuses this process for good."""


def _context(*, dials: bool) -> ssl.SSLContext:
    try:
        return tls.context(dials=dials)
    except OSError as error:
        raise RosterError(str(error)) from None


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(len(data).to_bytes(4, "big") + data)


def _receive(connection: socket.socket, most: int = MAX_FRAME) -> bytes:
    size = int.from_bytes(_exactly(connection, 4), "big")
    if size > most:
        raise Refused(f"a frame of {size} bytes is longer than {most}")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = connection.recv(size - len(found))
        if not data:
            raise Refused("the connection ends")
        found += data
    return found


class Hello(Record):
    """The first message of a follower.

    Attributes:
        place: The follower's place, from 1; the launcher's is 0.
        size: The number of processes that meet.
        name: The name of the follower's node.
        version: The follower's pypmix version.
        cpus: The number of CPUs that the follower may use.
        slots: The number of ranks to run on the node; 0 for the number of CPUs.
    """

    place: int
    size: int
    name: str
    version: str
    cpus: int = 0
    slots: int = 0

    @classmethod
    def read(cls, data: bytes) -> Hello:
        """Decode a hello; raises `Refused` if it is malformed."""
        try:
            fields = json.loads(data)
            found = cls(*[fields[name] for name in ("place", "size", "name", "version", "cpus", "slots")])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Refused("what came is not a follower's hello") from None
        numbers = (found.place, found.size, found.cpus, found.slots)
        if any(type(number) is not int for number in numbers) or not 0 < found.place < found.size:
            raise Refused("what came is not a follower's hello")
        if not isinstance(found.name, str) or not isinstance(found.version, str) or not found.name:
            raise Refused("what came is not a follower's hello")
        return found

    def write(self) -> bytes:
        """Encode this hello."""
        return json.dumps({name: getattr(self, name) for name in self.__annotations__}).encode()


class Follower:
    """A process that joined, as the launcher sees it: a `StartedDaemon`, once its line is sent.

    Attributes:
        hello: The follower's hello.
        address: The follower's address; empty if it is on this machine.
        stdin: Closing it ends the daemon's standard input; data written there is dropped, since the line was sent over
            the encrypted connection. Belongs to the caller.
        stdout: The descriptor to read the daemon's answer from. Belongs to the caller.
    """

    def __init__(self, hello: Hello, connection: ssl.SSLSocket, end_watch: EndWatch) -> None:
        self.hello = hello
        self.stdin = self.stdout = -1
        self._connection: socket.socket = connection
        self._waits = True
        self._end_watch = end_watch
        address = str(connection.getpeername()[0]).removeprefix("::ffff:")
        self.address = "" if is_loopback(address) else address
        set_keep_alive(connection, True, **KEEP_ALIVE)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The known addresses of the follower's node."""
        return (self.address,) if self.address else ()

    def begin(self, line: bytes) -> None:
        """Send the line, upon which the follower becomes a daemon.

        Raises:
            OSError: The follower exited, or does not answer.
        """
        secured = self._connection
        assert isinstance(secured, ssl.SSLSocket)
        self._waits = False
        try:
            secured.settimeout(HANDSHAKE)
            _send(secured, line)
            self._connection = secured.unwrap()
            # A session has its own keep-alive.
            set_keep_alive(self._connection, False)
        except TimeoutError:
            raise OSError(f"the process there has not answered for {HANDSHAKE:g} s") from None
        except (ssl.SSLError, ValueError) as error:
            raise OSError(f"{self.hello.name}: the process there has gone: {error}") from None
        self._connection.settimeout(None)
        self.stdout = os.dup(self._connection.fileno())
        self.stdin = self._end_watch.watch(self.leave)

    def has_exited(self) -> bool:
        """Return True if the follower exited while it waited for its line."""
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def leave(self) -> None:
        """End the daemon's standard input."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def stop(self) -> None:
        """End the connection, and with it the daemon."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def ended(self) -> int | None:
        """Return 0 if the connection has ended, None if not."""
        try:
            return None if self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) else 0
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            return 1

    def trouble(self) -> str:
        """Return an error text: the process ended, or its daemon does not answer."""
        if self.ended() is None:
            return f"{self.hello.name}: its daemon does not answer"
        return f"{self.hello.name}: the process there ended before its daemon was ready; it has said why"

    def close(self) -> None:
        """End the connection; send an empty line first if the follower still waits for its line."""
        if self._waits:
            with contextlib.suppress(OSError, ValueError):
                _send(self._connection, b"")
        self.stop()
        self._connection.close()


class EndWatch:
    """Pipes whose ends one thread watches for; data in them is dropped."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._gate = threading.Lock()
        self._waker, self._wake = os.pipe2(os.O_CLOEXEC)
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None

    def watch(self, callback: Callable[[], None]) -> int:
        """Return a descriptor that belongs to the caller; `callback` is called once it is closed."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        with self._gate:
            self._selector.register(reader, selectors.EVENT_READ, callback)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pypmix-meeting-ends", daemon=True)
                self._thread.start()
        return writer

    def close(self) -> None:
        """Stop watching."""
        os.close(self._wake)
        if self._thread is not None:
            self._thread.join()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if os.read(key.fd, 65536):
                    continue
                if key.fd == self._waker:
                    return
                with self._gate:
                    self._selector.unregister(key.fd)
                os.close(key.fd)
                try:
                    key.data()
                except Exception as error:
                    # The thread must survive to watch the pipes of other nodes.
                    fault("to note that a follower has gone", error)


class Meeting:
    """The launcher's side.

    Args:
        size: The number of processes that meet, including the launcher.
        proof: The authentication between the processes.
        ports: The ports to try in order; the first free port is taken. 0 takes any.

    Attributes:
        port: The port that the launcher listens on.

    Raises:
        RosterError: None of the ports is free.
    """

    def __init__(self, size: int, proof: Proof, ports: Sequence[int] = (0,)) -> None:
        self._size = size
        self._proof = proof
        self._context = _context(dials=False)
        self._gate = threading.Condition()
        self._followers: dict[int, Follower] = {}
        self._refused: dict[str, None] = {}
        self._unproved: dict[ssl.SSLSocket, float] = {}
        self._closed = False
        self._end_watch = EndWatch()
        self._listener = _listener(ports)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="pypmix-meeting", daemon=True).start()

    def wait(self, deadline: float, names: Sequence[str] = (), broken: Broken = lambda: "") -> dict[int, Follower]:
        """Return the followers by their places, once all have joined.

        Args:
            deadline: The end of the wait, by the monotonic clock.
            names: The names of the places in the error; empty to use their numbers.
            broken: Returns the reason why the missing followers cannot join; empty while they can.

        Raises:
            RosterError: Some followers are missing; the text lists them.
        """
        with self._gate:
            while not self._gate.wait_for(self._complete, LOOK):
                reason = broken()
                if reason or time.monotonic() >= deadline:
                    break
            else:
                return dict(self._followers)
            self._forget()
            missing = [
                names[place] if names else str(place) for place in range(1, self._size) if place not in self._followers
            ]
            listed = ", ".join(missing[:20]) + (", ..." if len(missing) > 20 else "")
            refused = "".join([f"; {each}" for each in list(self._refused)[:3]])
            came = f"{len(self._followers)} of the {self._size - 1} other processes have come, without {listed}"
            raise RosterError(f"{came} (port {self.port}){refused}" + (f"; {reason}" if reason else ""))

    def close(self) -> None:
        """Close the connections of all followers and stop listening."""
        with self._gate:
            self._closed = True
            with contextlib.suppress(OSError):
                # This wakes the accepting thread.
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for follower in self._followers.values():
                follower.close()
        self._end_watch.close()

    def _complete(self) -> bool:
        if len(self._followers) == self._size - 1:
            self._forget()
        return len(self._followers) == self._size - 1

    def _forget(self) -> None:
        """Forget followers that exited, so that they can be restarted."""
        for place, follower in list(self._followers.items()):
            if follower.has_exited():
                del self._followers[place]
                follower.close()

    def _accept(self) -> None:
        while True:
            self._make_room()
            try:
                connection, _ = self._listener.accept()
                secured = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            except OSError:
                if self._closed:
                    return
                time.sleep(RETRY)
                continue
            with self._gate:
                self._unproved[secured] = time.monotonic()
            try:
                threading.Thread(target=self._greet, args=(secured,), daemon=True).start()
            except Exception as error:
                # No thread could be started for this connection; other followers still have to be accepted.
                fault("to greet a follower", error)
                self._unproved.pop(secured, None)
                secured.close()

    def _make_room(self) -> None:
        """Wait until another connection may be accepted; close the oldest in its handshake after `PROOF` seconds."""
        with self._gate:
            while len(self._unproved) >= UNPROVED:
                oldest, since = next(iter(self._unproved.items()))
                wait = since + PROOF - time.monotonic()
                if wait > 0:
                    self._gate.wait(wait)
                    continue
                del self._unproved[oldest]
                with contextlib.suppress(OSError):
                    # The connection's own thread reads the end and closes it.
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)

    def _greet(self, secured: ssl.SSLSocket) -> None:
        taken = False
        try:
            secured.settimeout(HANDSHAKE)
            secured.do_handshake()
            taken = self._take(secured)
        except (OSError, ValueError, RosterError) as error:
            with self._gate:
                if len(self._refused) < 8:
                    self._refused[f"one was refused: {printable(error)[:200]}"] = None
        finally:
            with self._gate:
                self._unproved.pop(secured, None)
                self._gate.notify_all()
            if not taken:
                secured.close()

    def _take(self, secured: ssl.SSLSocket) -> bool:
        """Check the other side's proof, send this side's, and add the follower. Return True if it was added."""
        data = _receive(secured, 4096)
        token = _receive(secured, 65536)
        if not self._proof.check(_statement(b"follower", secured, data), token):
            raise Refused("it does not prove that it belongs to this session (another secret, or another user)")
        hello = Hello.read(data)
        with self._gate:
            trouble = self._objection(hello)
        answer = json.dumps({"refused": trouble, "again": trouble.startswith(OCCUPIED)}).encode()
        _send(secured, answer)
        _send(secured, self._proof.make(_statement(b"launcher", secured, answer)))
        if trouble:
            raise Refused(f"{hello.name}: {trouble}")
        with self._gate:
            if self._closed or self._objection(hello):
                return False
            self._followers[hello.place] = Follower(hello, secured, self._end_watch)
            self._gate.notify_all()
        return True

    def _objection(self, hello: Hello) -> str:
        if hello.version != __version__:
            return f"its pypmix is {hello.version}, and the launcher's {__version__}: install the same"
        if hello.size != self._size:
            return f"it counts {hello.size} processes, and the launcher {self._size}"
        self._forget()
        if hello.place in self._followers:
            return f"{OCCUPIED} {hello.place} already"
        return ""


def _listener(ports: Sequence[int]) -> socket.socket:
    reason, taken = "", ""
    for port in ports:
        try:
            found = listen((ANYWHERE, port))
        except OSError as error:
            reason = error.strerror or str(error)
            taken = taken or _port_warning(port)
        else:
            if taken:
                _log.warning("%s; the launcher listens on port %d", taken, port)
            return found
    text = f"the launcher cannot listen on port {', '.join(map(str, ports))}: {reason}"
    raise RosterError(f"{text}; {taken}: --meet HOST:PORT names another place" if taken else text)


def _port_warning(port: int) -> str:
    """Return a warning if another user listens on `port`, since followers may reach that user first; empty if not."""
    owners = Owners()
    try:
        users = {owners.listener(host, port) for host in ("0.0.0.0", "127.0.0.1", "::")}
    finally:
        owners.close()
    others = [user for user in users if user not in (UNKNOWN_USER, 0, os.geteuid())]
    return f"user {others[0]} listens on port {port} of this node, where this session was to meet" if others else ""


def _statement(side: bytes, secured: ssl.SSLSocket, data: bytes) -> bytes:
    found = tls.binding(secured)
    if not found:
        raise Refused("the connection has no channel binding")
    return b"\0".join((side, found, data))


def follow(
    addresses: Sequence[Address], hello: Hello, proof: Proof, deadline: float, hint: str = HINT
) -> tuple[bytes, socket.socket]:
    """Dial the launcher until it answers; return the line for the daemon and the connection to the launcher.

    Args:
        addresses: The addresses where the launcher may listen.
        hello: The hello to send.
        proof: The authentication between follower and launcher.
        deadline: The end of the attempts, by the monotonic clock.
        hint: The remedy in the error if the launcher is not reached.

    Raises:
        RosterError: The launcher is not reached, or refuses this process.
    """
    # The answer of an earlier listener explains more than a later refused connection, such as after its exit.
    declined: dict[Address, str] = {}
    proof.get_ready()
    while True:
        reasons: dict[Address, str] = {}
        for address in addresses:
            try:
                return _wait(_dial(address, hello, proof, deadline))
            except _Declined as error:
                declined[address] = str(error)
            except (OSError, ValueError) as error:
                reasons[address] = getattr(error, "strerror", None) or str(error)
        if time.monotonic() >= deadline:
            if declined:
                raise RosterError(f"the launcher does not let this process in: {_listed(declined)}")
            raise RosterError(f"the launcher is not reached: {_listed(reasons)}; {hint}")
        time.sleep(RETRY)


def _listed(reasons: Mapping[Address, str]) -> str:
    return "; ".join([f"{host} port {port}: {printable(why)}" for (host, port), why in reasons.items()])


def _dial(address: Address, hello: Hello, proof: Proof, deadline: float) -> ssl.SSLSocket:
    connection = _connect(address, deadline)
    try:
        connection.settimeout(HANDSHAKE)
        secured = _context(dials=True).wrap_socket(connection)
        connection = secured
        data = hello.write()
        _send(secured, data)
        _send(secured, proof.make(_statement(b"follower", secured, data)))
        try:
            answer = _receive(secured, 4096)
            token = _receive(secured, 65536)
        except Refused:
            raise _Declined("it does not take this process's proof (another secret, or another user)") from None
        if not proof.check(_statement(b"launcher", secured, answer), token):
            raise _Declined("what listens there does not prove that it is the launcher")
        told = json.loads(answer)
        if told.get("again"):
            raise _Declined(f"it refuses this process: {told['refused']}")
        if told.get("refused"):
            raise Refused(f"the launcher refuses this process: {printable(told['refused'])}")
    except BaseException:
        connection.close()
        raise
    return secured


def _connect(address: Address, deadline: float) -> socket.socket:
    """Resolve an address and connect to it."""
    answers: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def resolve() -> None:
        try:
            answers.put(socket.getaddrinfo(*address, type=socket.SOCK_STREAM))
        except OSError as error:
            answers.put(error)

    # On a thread: the resolver has no timeout parameter, and waits for a silent name server once per search domain.
    threading.Thread(target=resolve, name="pypmix-resolver", daemon=True).start()
    try:
        found = answers.get(timeout=max(LEAST, deadline - time.monotonic()))
    except queue.Empty:
        found = TimeoutError("no name server answers")
    if isinstance(found, OSError):
        raise found
    reason = OSError("its name has no address")
    for family, kind, protocol, _, place in found:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(max(LEAST, min(HANDSHAKE, deadline - time.monotonic())))
            connection.connect(place)
        except OSError as error:
            connection.close()
            reason = error
        else:
            return connection
    raise reason


def _wait(secured: ssl.SSLSocket) -> tuple[bytes, socket.socket]:
    """Wait for the line; return it and the connection without its encryption.

    Raises:
        OSError: The launcher exited without sending a line.
        RosterError: The launcher gave up, and sent an empty line.
    """
    try:
        set_keep_alive(secured, True, **KEEP_ALIVE)
        secured.settimeout(None)
        line = _receive(secured)
        secured.settimeout(HANDSHAKE)
        connection = secured.unwrap() if line else None
    except (OSError, ValueError, Refused):
        secured.close()
        raise ConnectionResetError("it has gone before all had come") from None
    if connection is None:
        secured.close()
        raise RosterError("the launcher has gone before the session began; it has said why")
    connection.settimeout(None)
    set_keep_alive(connection, False)
    return line, connection


def serve(line: bytes, connection: socket.socket) -> int:
    """Become the daemon of this node, and return its exit code.

    The daemon reads the line from its standard input, which ends when the connection ends. Its standard output is the
    connection.

    Args:
        line: The line that the launcher sent.
        connection: The connection to the launcher.
    """
    from pypmix.host.daemon import main

    reader, writer = os.pipe()
    os.dup2(reader, 0)
    os.close(reader)
    os.dup2(connection.fileno(), 1)
    os.set_inheritable(writer, False)

    def feed() -> None:
        with contextlib.suppress(OSError):
            os.write(writer, line)
            while connection.recv(4096):
                pass
        os.close(writer)

    threading.Thread(target=feed, name="pypmix-launcher", daemon=True).start()
    try:
        return main()
    finally:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
