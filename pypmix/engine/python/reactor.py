"""The sockets, the clock and the one thread of a server: an epoll loop; no thread per client, no polling.

Theory of operation
-------------------
The whole server runs in turns of this loop, one at a time, so its state machines need no locks. Other threads reach it
by `post` (run a function soon) and `call` (run it and wait), which wake the loop by an eventfd.

The turns are made on the loop's own thread until another thread has called `attach`: the thread of an event loop that
watches `fileno` and calls `poll`. Then they are made there, since passing work between two threads costs more than most
of the work. The own thread makes the turns for timers then. If that event loop is blocked for `ATTACHED_SECONDS`, the
own thread makes all turns until the event loop calls again. The thread that makes turns holds `_turns`.

One turn of `_loop`, in this order:

1. Connections that are ready: connections of clients, then at most `MAX_UNNAMED` connections in their handshake, so
   that many of these do not delay clients. The bytes go to the connection's `owner`. Then the descriptors of a `Guest`.
2. The calls that other threads have posted by then.
3. Output: all data for a connection in this turn is sent in one piece, unless `send_now` has sent it already.
4. Timers that are due.

A peer that does not read: with more than `FULL` bytes waiting for it, nothing more is read from it; with more than
`limits.unread`, its connection is dropped at the end of the turn, since its owner must not be called in the middle.

States: made; running after `start`; ending after `stop`; ended, when `post` raises `NotInitialized`. Calls posted
before that still run, and then all descriptors are closed. A forked child does not have the thread: `forked` closes the
child's copies.

A fault in a connection's owner, in a posted call or in a timer is logged. It ends that connection at most, and the
loop continues. Another `BaseException` ends the connection, too. It ends the own thread, and is raised on a thread
that has attached.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import math
import os
import select
import threading
import time
from collections import deque
from threading import get_ident

from pypmix.engine.alarms import Alarm, Heap
from pypmix.engine.common import LONGEST_SLEEP
from pypmix.engine.faults import fault, traced
from pypmix.engine.peeruid import UNKNOWN_USER, Owners, has_closed
from pypmix.engine.times import ACCEPT_PAUSE, ATTACHED_SECONDS
from pypmix.standard.errors import NotInitialized
from pypmix.standard.limits import DEFAULTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from pypmix.engine.peeruid import Listener
    from pypmix.engine.python.node import Owner
    from pypmix.standard.limits import Limits

    T = TypeVar("T")

RECEIVE = 65536
"""Bytes taken from a socket at a time. Buffers of 128 KiB and more make every call a pair of mmap and munmap."""

BACKLOG = 4096
ACCEPTS = 16
"""Connections accepted in one turn, so that a burst of them does not delay the others."""

MAX_UNNAMED = 32
"""The most connections without a name that are read in one turn, after the clients' connections."""

FULL = 1 << 20
"""Bytes that may wait for a reader; with more, nothing is read from it until it has read its answers."""

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT
_ENDED = select.EPOLLERR | select.EPOLLHUP
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Link:
    """One connection. All data of a turn of the loop is sent at the end of the turn, in one piece.

    Attributes:
        is_client: Whether it belongs to a client; the loop serves such connections before the others in each turn.
        watched: The epoll events that the loop watches it for; 0 for none.
    """

    __slots__ = (
        "_backlog",
        "_closing",
        "_lazy",
        "_out",
        "_paused",
        "_queued",
        "_reactor",
        "_watching",
        "is_client",
        "owner",
        "socket",
        "watched",
    )

    def __init__(self, reactor: Reactor, connection: _socket.socket) -> None:
        self._reactor = reactor
        self._closing = False
        self._out: list[bytes] = []
        self._backlog: deque[memoryview] | None = None
        self._queued = 0
        self._paused = self._watching = self._lazy = False
        self.is_client = False
        self.watched = 0
        self.owner: Owner | None = None
        self.socket: _socket.socket | None = connection

    def send(self, data: bytes) -> None:
        """Send without blocking; a peer that leaves too much unread is dropped."""
        if not self._out and not self._closing:
            self._reactor.dirty.append(self)
        if self._queued > self._reactor.limits.unread:
            # The end of the turn ends it: the machine must not be called in the middle of one.
            self._lazy = True
            return
        self._out.append(data)
        self._queued += len(data)

    def send_now(self, data: bytes) -> None:
        """Send at once, unless other data is queued, so that the receiver continues before the end of the turn."""
        connection = self.socket
        if self._out or self._closing or self._backlog is not None or connection is None:
            self.send(data)
            return
        try:
            sent = connection.send(data)
        except OSError:
            # The end of the turn finds out what is wrong: the machine must not be called in the middle of one.
            self.send(data)
            return
        if sent < len(data):
            self._queued += len(data) - sent
            self._keep(memoryview(data)[sent:])

    def uid(self) -> int | None:
        """See `pypmix.engine.python.node.Link`."""
        if self.socket is None:
            return UNKNOWN_USER
        return self._reactor.owners.find(self.socket)

    def is_closed(self) -> bool:
        """See `pypmix.engine.python.node.Link`."""
        return self.socket is None or has_closed(self.socket)

    def close(self) -> None:
        """Close after the queued data is sent, as far as the socket accepts it at once. May be called twice."""
        if not self._closing:
            self._closing = True
            if not self._out:
                self._reactor.dirty.append(self)

    def hold(self, paused: bool) -> None:
        """Stop or continue to read from it."""
        self._paused = paused
        self._watch()

    def full(self) -> bool:
        """Return True if too much data waits for its reader; the owner's `drained` is called when that is over."""
        self._watching = self._queued > FULL
        return self._watching

    def _watch(self) -> None:
        events = (0 if self._paused or self._queued > FULL else _READ) | (0 if self._backlog is None else _WRITE)
        if events != self.watched:
            self._reactor.watch(self, events)

    def flush(self) -> None:
        """End a turn: send as much as the socket accepts, and keep the rest."""
        connection = self.socket
        if connection is None:
            return
        out = self._out
        if self._lazy:
            out.clear()
            most = self._reactor.limits.unread
            text = f"it does not read: {self._queued} bytes wait for it; the limit 'unread' is {most}"
            self._reactor.broken(self, text)
            return
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            sent = 0
            if self._backlog is None:
                try:
                    sent = connection.send(data)
                except BlockingIOError:
                    pass
                except OSError:
                    self._reactor.broken(self)
                    return
                self._queued -= sent
            if sent < len(data) and not self._closing:
                self._keep(memoryview(data)[sent:])
        if self._closing:
            self._reactor.discard(self)
        elif self._watching or not self.watched:
            # Much data was sent in this turn, and all of it was accepted at once.
            self._watch()
            self._sent()

    def _keep(self, data: memoryview) -> None:
        if self._backlog is None:
            self._backlog = deque()
        self._backlog.append(data)
        self._watch()

    def writable(self) -> None:
        """Send queued data, now that the socket accepts more."""
        connection, backlog = self.socket, self._backlog
        if connection is None or backlog is None:
            return
        try:
            while backlog:
                data = backlog[0]
                sent = connection.send(data)
                self._queued -= sent
                if sent < len(data):
                    backlog[0] = data[sent:]
                    break
                backlog.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._reactor.broken(self)
            return
        if not backlog:
            self._backlog = None
        self._watch()
        self._sent()

    def _sent(self) -> None:
        if self._watching and self._queued <= FULL:
            self._watching = False
            if self.owner is not None:
                self.owner.drained()


class Guest:
    """The event loop of a host that runs on a server's thread; see `pypmix.host.loop.HostLoop`.

    Passing work between two threads would cost more than most of the work.
    """

    __slots__ = ("_reactor",)

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    def post(self, callback: Callable[[], None]) -> None:
        """Call `callback` soon; from any thread."""
        self._reactor.post(callback)

    def later(self, delay: float, callback: Callable[[], None]) -> Alarm:
        """Call `callback` after `delay` seconds; from any thread, and never if the server has been closed."""
        return self._reactor.call_later_from(delay, callback)

    def watch(self, fd: int, events: int, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `fd` is ready."""
        self._reactor.watch_guest(fd, events, callback)

    def unwatch(self, fd: int) -> None:
        """Forget `fd`; to be called before it is closed."""
        self._reactor.unwatch_guest(fd)


class Reactor:
    """The loop, and everything that runs in its thread.

    Args:
        name: The name of the thread.
        log: Called with faults that cannot be reported to a caller.
        limits: The bounds of the data that may wait for peers that do not read.
    """

    def __init__(self, name: str, log: Callable[[str], None], limits: Limits = DEFAULTS) -> None:
        self._write_log = log
        self.limits = limits
        self.dirty: list[Link] = []
        self.owners = Owners()
        self.owners.probe()
        self._links: dict[int, Link] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._timers = Heap()
        self._listeners: dict[int, Listener] = {}
        self._guests: dict[int, tuple[int, Callable[[], None]]] = {}
        self._opened: Callable[[Link], None] | None = None
        self._ending = self._stopping = False
        self._ident: int | None = None
        """The thread that makes a turn."""
        self._watcher: int | None = None
        """The thread that has attached."""
        self._visits = 0
        self._due = -math.inf
        """The time at which the own thread runs timers, if another thread makes the turns."""
        # A signal handler may interrupt a thread that is just taking it or giving it back.
        self._turns = threading.RLock()
        self._nudge = -1
        """The eventfd that wakes the own thread, if another thread makes the turns."""
        self._lock = threading.Lock()
        self._epoll = select.epoll()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Each time that it is written to the loop wakes up, so that it need not be read.
        self._epoll.register(self._wakeup, _READ | select.EPOLLET)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # From any thread.

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the loop's thread, and return or raise what it does.

        Raises:
            NotInitialized: The loop has ended.
        """
        ident = get_ident()
        if ident == self._ident:
            return function()
        if ident == self._watcher:
            return self.in_turn(function)
        ended = threading.Lock()
        ended.acquire()
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append((function(), None))
            except BaseException as error:
                outcome.append((None, error))
            ended.release()

        self.post(run)
        ended.acquire()
        result, error = outcome[0]
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    @property
    def ident(self) -> int | None:
        """The loop's thread, None before it has one."""
        return self._thread.ident

    def post(self, function: Callable[[], None]) -> None:
        """Run a function in the loop's thread, soon.

        Raises:
            NotInitialized: The loop has ended.
        """
        # The loop runs what it finds after it has said that it stops, so nothing that gets past here is left lying.
        self._calls.append(function)
        if get_ident() != self._ident:
            self._wake()
        elif self._stopping:
            raise NotInitialized("the server is closed")

    def _wake(self) -> None:
        with self._lock:
            if self._stopping:
                raise NotInitialized("the server is closed")
            os.eventfd_write(self._wakeup, 1)

    def stop(self) -> None:
        """End the loop and wait for its thread; close everything. May be called twice."""
        if self._thread.ident is None:
            if not self._stopping:
                self._stopping = True
                self._dispose()
        elif get_ident() == self._ident:
            self._ending = True
            if self._nudge >= 0:
                os.eventfd_write(self._nudge, 1)
        else:
            with contextlib.suppress(NotInitialized):
                self.post(self.stop)
            self._thread.join()

    def fileno(self) -> int:
        """Return a descriptor that is readable when a turn has something to do, but for timers."""
        return self._epoll.fileno()

    def attach(self) -> None:
        """The caller's thread calls `poll` from now on whenever `fileno` is readable.

        Raises:
            NotInitialized: The loop has ended.
        """
        ident = get_ident()

        def attached() -> None:
            if self._nudge < 0:
                self._nudge = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._watcher = ident

        self.call(attached)

    def poll(self) -> None:
        """Make a turn, without blocking, on the thread that has attached."""
        self._visits += 1
        if self._ident != self._watcher:
            self._turn()

    def forked(self) -> None:
        """Close the descriptors of a child, which has no such thread; the epoll set is the parent's as well."""
        self._lock = threading.Lock()
        self._turns = threading.RLock()
        self._watcher = None
        if self._stopping:
            return
        self._stopping = True
        for link in self._links.values():
            if link.socket is not None:
                link.socket.close()
        for listener in self._listeners.values():
            listener.close()
        self.owners.close()
        self._epoll.close()
        os.close(self._wakeup)
        if self._nudge >= 0:
            os.close(self._nudge)

    # In the loop's thread.

    now = staticmethod(time.monotonic)
    """Return seconds on a clock that never goes back."""

    def call_later(self, delay: float, function: Callable[[], None]) -> Alarm:
        """Call `function` after `delay` seconds."""
        return self._timers.add(delay, function)

    def call_later_from(self, delay: float, function: Callable[[], None]) -> Alarm:
        """Call `function` after `delay` seconds; from any thread."""
        if get_ident() == self._ident:
            return self._timers.add(delay, function)
        alarm = Alarm(self.now() + delay, function)
        with contextlib.suppress(NotInitialized):
            self.post(lambda: self._add(alarm))
        return alarm

    def _add(self, alarm: Alarm) -> None:
        if alarm.call is not None:
            self._timers.put(alarm)

    def listen(self, listener: Listener, opened: Callable[[Link], None]) -> None:
        """Accept connections; `opened` is called with each, of all listeners."""
        listener.setblocking(False)
        self._listeners[listener.fileno()] = listener
        self._opened = opened
        self._epoll.register(listener, _READ)

    def watch(self, link: Link, events: int) -> None:
        """Set the events that a connection is watched for.

        A connection that is watched for nothing is not in the epoll set, which would report its end again and again.
        """
        if link.socket is None:
            return
        if not events:
            self._epoll.unregister(link.socket)
        elif link.watched:
            self._epoll.modify(link.socket, events)
        else:
            self._epoll.register(link.socket, events)
        link.watched = events

    def watch_guest(self, fd: int, events: int, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `fd` is ready; `fd` is not a client's connection."""
        self._epoll.register(fd, events)
        self._guests[fd] = events, callback

    def unwatch_guest(self, fd: int) -> None:
        """Forget a descriptor."""
        del self._guests[fd]
        with contextlib.suppress(OSError, ValueError):
            # The descriptor or the loop may have been closed; then it is no longer watched.
            self._epoll.unregister(fd)

    def discard(self, link: Link) -> None:
        """Close a connection and forget it."""
        connection, link.socket = link.socket, None
        if connection is not None:
            del self._links[connection.fileno()]
            # A child that was forked may hold the socket too, so closing alone would neither end the connection nor
            # take it out of the epoll set.
            if link.watched:
                self._epoll.unregister(connection)
                link.watched = 0
            with contextlib.suppress(OSError):
                connection.shutdown(_socket.SHUT_RDWR)
            connection.close()

    def broken(self, link: Link, reason: str = "") -> None:
        """Close a connection that the other side has closed, or that has to end, and call its owner."""
        owner, link.owner = link.owner, None
        self.discard(link)
        if owner is not None:
            owner.handle_disconnect(reason)

    def _run(self) -> None:
        try:
            with self._turns:
                self._ident = get_ident()
                self._loop(-1.0)
                self._ident = None
            if not self._ending:
                self._stand_by()
        except BaseException as error:
            self._log(f"the progress thread ends: {traced(error)}")
            raise
        finally:
            with self._turns:
                self._ident = get_ident()
                self._watcher = None
                with self._lock:
                    self._stopping = True
                try:
                    while self._calls:
                        self._run_calls()
                finally:
                    self._dispose()
                    self._ident = None

    def _stand_by(self) -> None:
        """Make the turns in which timers are due, and the turns that the attached thread does not make in time."""
        nudged, waiting = select.poll(), select.poll()
        nudged.register(self._nudge, select.POLLIN)
        waiting.register(self._nudge, select.POLLIN)
        waiting.register(self._epoll.fileno(), select.POLLIN)
        alone = False
        while not self._ending:
            with self._turns:
                self._due = self._timers.due[0][0] if self._timers.due else math.inf
            left = self._due - time.monotonic()
            came = waiting.poll(max(0.0, min(left, LONGEST_SLEEP)) * 1000)
            self._due = -math.inf
            visits = self._visits
            if came and nudged.poll(0 if alone else ATTACHED_SECONDS * 1000):
                os.eventfd_read(self._nudge)
                continue
            if came and not alone:
                alone = visits == self._visits and bool(waiting.poll(0))
                if not alone:
                    continue
            self._turn()
            alone = alone and visits == self._visits

    def in_turn(self, function: Callable[[], T]) -> T:
        """Run a function in a turn on the attached thread, after the functions posted before.

        Raises:
            NotInitialized: The loop has ended.
        """
        if self._ident == get_ident():
            return function()
        with self._turns:
            if self._watcher is None:
                raise NotInitialized("the server is closed")
            self._ident = get_ident()
            try:
                if self._calls:
                    self._run_calls()
                try:
                    return function()
                finally:
                    self._rest()
            finally:
                self._turned()

    def _turn(self) -> None:
        """Make one turn, on any thread, while another one than the own has attached."""
        with self._turns:
            if self._watcher is not None:
                self._ident = get_ident()
                try:
                    self._loop(0.0)
                finally:
                    self._turned()

    def _turned(self) -> None:
        """End a turn: wake the loop if calls wait, and the own thread if a timer is due before its next look."""
        self._ident = None
        if self._calls:
            os.eventfd_write(self._wakeup, 1)
        timers = self._timers.due
        if timers and timers[0][0] < self._due:
            os.eventfd_write(self._nudge, 1)

    def _loop(self, timeout: float) -> None:
        """Make turns, or one if that is another thread's business."""
        links = self._links
        guests = self._guests
        poll = self._epoll.poll
        while not self._ending:
            unnamed: list[tuple[Link, int]] = []
            ready: list[tuple[int, tuple[int, Callable[[], None]]]] = []
            for fd, event in poll(timeout if timeout < LONGEST_SLEEP else LONGEST_SLEEP):
                link = links.get(fd)
                if link is None:
                    if fd in guests:
                        ready.append((fd, guests[fd]))
                    else:
                        self._service(fd)
                elif link.is_client:
                    self._happened(link, event)
                else:
                    unnamed.append((link, event))
            if unnamed:
                # The rest is ready again in the next turn, before the connections that were served in this turn.
                for link, event in unnamed[:MAX_UNNAMED]:
                    self._happened(link, event)
            for fd, guest in ready:
                # One of this turn may have forgotten it, or watch another one of the same number.
                if guests.get(fd) is guest:
                    try:
                        guest[1]()
                    except Exception as error:
                        self._served_badly(fd, guest, error)
            timeout = self._rest()
            if self._watcher is not None:
                return

    def _rest(self) -> float:
        """End a turn; return the seconds until the next one, less than 0 if no timer is set."""
        if self._calls:
            self._run_calls()
        if self.dirty:
            self._flush()
        timers = self._timers
        timeout = -1.0
        if timers.due:
            # A cancelled timer may end a sleep once without an effect.
            timeout = timers.due[0][0] - time.monotonic()
            if timeout <= 0:
                self._run_timers()
                self._flush()
                timeout = max(0.0, timers.due[0][0] - time.monotonic()) if timers.due else -1.0
        # The thread that makes the turns does not wake itself.
        return 0.0 if self._calls else timeout

    def _flush(self) -> None:
        while self.dirty:
            dirty, self.dirty = self.dirty, []
            for link in dirty:
                try:
                    link.flush()
                except Exception as error:
                    self._failed(link, error)

    def _happened(self, link: Link, event: int) -> None:
        """Read from a connection or write to it, as it is ready."""
        try:
            if event & _WRITE:
                link.writable()
            if event & ~_WRITE and link.socket is not None:
                if not link.watched & _READ:
                    if event & _ENDED:
                        self.broken(link)
                    return
                try:
                    data = link.socket.recv(RECEIVE)
                except BlockingIOError:
                    return
                except OSError:
                    data = b""
                if not data:
                    self.broken(link)
                elif link.owner is not None:
                    link.owner.received(data)
        except BaseException as error:
            self._failed(link, error)
            if not isinstance(error, Exception):
                raise

    def _service(self, fd: int) -> None:
        try:
            if fd in self._listeners:
                self._accept(self._listeners[fd])
        except Exception as error:
            self._failed(None, error)

    def _served_badly(self, fd: int, guest: tuple[int, Callable[[], None]], error: Exception) -> None:
        self._failed(None, error)
        if self._guests.get(fd) is guest:
            # It may be ready again at once, and fail again.
            self._epoll.unregister(fd)
            self.call_later(ACCEPT_PAUSE, lambda: self._go_on(fd, guest))

    def _go_on(self, fd: int, guest: tuple[int, Callable[[], None]]) -> None:
        if self._guests.get(fd) is guest:
            self._epoll.register(fd, guest[0])

    def _accept(self, listener: Listener) -> None:
        for _ in range(ACCEPTS):
            try:
                connection, _address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _SHORT:
                    self._log(f"no connection can be accepted: {error}; trying again every {ACCEPT_PAUSE:g} s")
                    self._epoll.modify(listener, 0)
                    self.call_later(ACCEPT_PAUSE, lambda: self._epoll.modify(listener, _READ))
                    return
                continue
            connection.setblocking(False)
            if connection.family != _socket.AF_UNIX:
                connection.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            link = Link(self, connection)
            self._links[connection.fileno()] = link
            self.watch(link, _READ)
            assert self._opened is not None
            try:
                self._opened(link)
            except Exception as error:
                self._failed(link, error)

    def _failed(self, link: Link | None, error: BaseException) -> None:
        """Log a fault, and end the connection that caused it, but no other connection."""
        if link is None:
            self._log(f"the loop goes on after a fault here: {traced(error)}")
            return
        self._log(f"a connection is dropped because of a fault here: {traced(error)}")
        try:
            self.broken(link)
        except Exception as another:
            self._log(f"the end of a connection failed because of a fault here: {traced(another)}")

    def _log(self, text: str) -> None:
        try:
            self._write_log(text)
        except Exception as error:
            # The host's own code, which is not to end the loop of all.
            fault("to log what a server does", error)

    def _run_calls(self) -> None:
        """Run the calls that wait now; calls that they post run in the next turn, after its connections."""
        calls = self._calls
        for _ in range(len(calls)):
            function = calls.popleft()
            try:
                function()
            except Exception as error:
                self._log(f"a call failed: {traced(error)}")

    def _run_timers(self) -> None:
        """Run the timers that are due now; timers that they set run in another turn."""
        now = time.monotonic()
        while function := self._timers.take(now):
            try:
                function()
            except Exception as error:
                self._log(f"a timer failed: {traced(error)}")

    def _dispose(self) -> None:
        for link in list(self._links.values()):
            link.owner = None
            self.discard(link)
        for listener in self._listeners.values():
            with contextlib.suppress(OSError):
                listener.shutdown(_socket.SHUT_RDWR)
            listener.close()
        self._listeners.clear()
        self._timers.clear()
        self.owners.close()
        self._epoll.close()
        with self._lock:
            os.close(self._wakeup)
            if self._nudge >= 0:
                os.close(self._nudge)
