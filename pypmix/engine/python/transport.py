"""A client's socket, and which thread reads it.

Theory of operation
-------------------
The state machine (`pypmix.engine.python.client`) has no thread. Three kinds of threads drive it, each under
`Connection.lock`, which is never held in a system call that may block nor while a function of a caller runs:

- A thread in a blocking call (`run`) starts its operation and sends as much as possible. Then it is the reader, which
  waits for bytes and gives them to the machine, for all (`_lead`), or it waits until the reader wakes it (`_follow`).
  A reader whose own call has ended passes its role to another waiter, or to the helper (`_elect`). So a blocking call
  in a program of one thread uses no other thread: one send and one wake-up.
- An event loop that has promised to watch `fileno` (`attach`) calls `poll`. Other threads ring for it (`Front`).
- The helper, a daemon thread that is started when it is first needed, looks after submitted operations, events,
  and time limits. `_arrange` decides after each step whether it is needed.

After each step `_settle` wakes the waiters whose calls have ended, and `_deliver` calls the functions of ended calls,
one at a time and without the lock, since they may call back.

Once the helper listens, it and the readers sleep in epoll sets that have the socket exclusively, the readers' first
(`_share`). So the kernel wakes the helper only if no reader sleeps, and a blocking call changes no set: it takes as
many steps beside the helper as without it. If bytes arrive just before a reader sleeps, the helper leaves them to the
reader (`leave_to_reader`) and sleeps again: its set is edge-triggered. Both read until nothing is left, since the end
of the stream may come with the last bytes. The reader looks once more before it leaves, unless it has read since. On
kernels without exclusive sets, that happens each time.

An exception of a signal handler (Ctrl-C, a test's time limit) may interrupt a blocking call anywhere. `_withdraw`
repeats the interrupted step and gives the call up. Any other exception that arrives here is a fault of pypmix:
`give_up` logs it and ends all running calls with an error that names the failed part, so that no caller waits for a
thread that has ended. After `fork` the connection is the parent's (`_not_ours`, `forked`); see docs/use/processes.md.
"""

from __future__ import annotations

# The C modules below `socket`, `threading` and `selectors`: these take 7, 3.4 and 2.5 ms to import, which every rank of
# a job pays, and the modules here together take half a millisecond.
import _socket
import _thread
import os
import select
from errno import EAGAIN, ECONNABORTED, ECONNREFUSED, EINTR, EINVAL, ETIMEDOUT
from time import monotonic, sleep

from pypmix.engine.common import has_libpmix, owned, sleep_for
from pypmix.engine.faults import struck
from pypmix.engine.peeruid import check_server
from pypmix.engine.python.client import ENGINE
from pypmix.standard._typing import TypeVar
from pypmix.standard.errors import NotInitialized, Unreachable, WouldDeadlock
from pypmix.standard.ops import Put
from pypmix.standard.types import decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.python.client import Call, Client
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Value

A = TypeVar("A")
R = TypeVar("R")

CHUNK = 65536

_SIZES = (CHUNK,)
_SIZES_NOW = ((CHUNK, CHUNK), (_socket.MSG_DONTWAIT, _socket.MSG_DONTWAIT))
"""Two reads: an edge-triggered set reports the end of the stream together with the bytes before it."""
_DONTWAIT = (_socket.MSG_DONTWAIT,)

MOST_KEPT = 64
"""The most finalized connections that a process leaves open until it ends; see `Connection._part`."""

_KEPT: list[int] = []
"""Their descriptors."""

CONNECT_WAIT = 20.0
"""Seconds that one attempt may take."""

_TRY_AGAIN = {EAGAIN: 10, EINTR: 10, ECONNABORTED: 10, ETIMEDOUT: 2, ECONNREFUSED: 3}
"""The number of failures before one counts: a full backlog passes, a port without a listener stays so."""


def connect(
    uri: str, local: str = "", owners: Collection[int] = (), allowed: str = "", retry: bool = True
) -> _socket.socket:
    """Connect to a server, and check which user it belongs to.

    Args:
        uri: Its address, `tcp4://address:port` or `tcp6://[address]:port`.
        local: Its Unix-domain socket, which has precedence if it can be reached.
        owners: Users whose server it may be, besides this one and root.
        allowed: More such users, in the form of `PYPMIX_SERVER_OWNER`.
        retry: Whether to try a few times if a connection is refused, for a server that is likely to exist.

    Raises:
        Unreachable: The server does not answer, the address is not valid, or the server belongs to another user.
    """
    sock = connect_local(local) if local else None
    where = local
    if sock is None:
        sock, where = _connect_tcp(uri, retry), uri
    try:
        check_server(sock, where, owners, allowed)
    except BaseException:
        sock.close()
        raise
    return sock


def connect_local(path: str) -> _socket.socket | None:
    """Return a connection to a Unix-domain socket, None if this process cannot reach it, such as in a container."""
    try:
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    except OSError:
        # A sandbox may allow no such sockets.
        return None
    try:
        sock.settimeout(CONNECT_WAIT)
        sock.connect(path)
        sock.settimeout(None)
    except (OSError, ValueError):
        sock.close()
        return None
    except BaseException:
        sock.close()
        raise
    return sock


def _connect_tcp(uri: str, retry: bool) -> _socket.socket:
    family, host, port = parse_address(uri)
    tries = 0
    while True:
        sock = _socket.socket(family, _socket.SOCK_STREAM)
        try:
            sock.settimeout(CONNECT_WAIT)
            sock.connect((host, port))
            sock.settimeout(None)
            # Natives lack this and lose 40 ms on a message behind another one.
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            sock.close()
            tries += 1
            if tries >= (1 if error.errno == ECONNREFUSED and not retry else _TRY_AGAIN.get(error.errno or 0, 1)):
                raise Unreachable(
                    f"no server at {uri}: {error.strerror or error}",
                    operation="open",
                    engine=ENGINE,
                    hint="has the launcher ended, or is this process on another node or in another network?",
                ) from None
            sleep(0.005 * tries)
        except BaseException:
            sock.close()
            raise


def parse_address(uri: str) -> tuple[int, str, int]:
    """Return the address family, the host and the port of a `tcp4://` or `tcp6://` address."""
    scheme, _, address = uri.partition("://")
    host, _, port = address.rpartition(":")
    number = decimal(port, 65535)
    if scheme not in ("tcp4", "tcp6") or not host or number is None:
        raise Unreachable(
            f"{uri!r:.200} is not the address of a server (tcp4://address:port)",
            operation="open",
            engine=ENGINE,
            hint="see PMIX_SERVER_URI* in the environment",
        )
    return (_socket.AF_INET6 if scheme == "tcp6" else _socket.AF_INET), host.strip("[]"), number


def _deadlock(op: Op[Any]) -> WouldDeadlock:
    return WouldDeadlock(
        "a call of this thread is under way already: this is a signal handler or a callback inside it",
        operation=op.name,
        hint="set a flag here and act on it later",
    )


class Front:
    """An epoll set of some descriptors and of a bell, by which other threads wake the thread that watches it."""

    def __init__(self, *fds: int) -> None:
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.epoll = select.epoll()
        self.epoll.register(self._bell, select.EPOLLIN)
        for fd in fds:
            self.add(fd)

    def add(self, fd: int) -> None:
        """Watch a further descriptor."""
        self.epoll.register(fd, select.EPOLLIN)

    def ring(self) -> None:
        """Wake the thread that watches."""
        os.eventfd_write(self._bell, 1)

    def silence(self) -> None:
        """Reset the bell."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close the descriptors; may be called twice."""
        if not self.epoll.closed:
            self.epoll.close()
            os.close(self._bell)


def register_exclusively(epoll: select.epoll, fd: int, events: int) -> None:
    """Add a descriptor to one of several sets, of which an event wakes one; to all of them on kernels without that."""
    try:
        epoll.register(fd, events | select.EPOLLEXCLUSIVE)
    except OSError as error:
        if error.errno != EINVAL:
            raise
        epoll.register(fd, events)


class _Waiter:
    """A thread that is blocked in `run`."""

    __slots__ = ("call", "ident", "lock")

    def __init__(self) -> None:
        self.call: Call | None = None
        self.ident = _thread.get_ident()
        self.lock: Any = None

    def wake(self) -> None:
        """Wake the thread to look again; it has a lock after it has found another reader."""
        if self.lock.locked():
            self.lock.release()


class Connection:
    """Drives the state machine of a client over a connected socket.

    Args:
        sock: The socket; owned by the connection from now on.
        machine: The state machine.
    """

    def __init__(self, sock: _socket.socket, machine: Client) -> None:
        self._sock = sock
        self._recv = sock.recv
        self._send = sock.send
        self._machine = machine
        machine.enter = self.enter
        machine.read = self.read
        # Reentrant, so that a signal handler that runs inside gets an error instead of a deadlock.
        self.lock: Any = _thread.RLock()
        self._inside = owned(self.lock)
        self._order: Any = _thread.RLock()
        self._reader: _Waiter | None = None
        self._waiters: list[_Waiter] = []
        self._attached = False
        self._pid = os.getpid()
        self._fd = sock.fileno()
        readable = select.poll()
        readable.register(self._fd, select.POLLIN)
        # A thread that sleeps in a read of a Unix-domain socket is also woken when the server reads sent data.
        self._readable: Callable[[], object] = readable.poll
        self._shared: tuple[select.epoll, select.epoll] | None = None
        """The sets of readers beside a helper: the socket, and the socket and the nudge; see `_share`."""
        self._helper: _Helper | None = None
        self._listens = False
        """Whether bytes that arrive while no reader sleeps wake the helper."""
        self._unread = False
        """Whether the helper has left bytes to the reader, which may have read them."""
        self._stuck = False
        """Whether there is something to send that neither the reader nor a sender waits for."""
        self._keeps = False
        """Whether the connection lasts until the process ends."""
        self._front: Front | None = None
        """Watched by an event loop: the socket, and the bell by which other threads call for `poll`."""
        self._nudge = -1
        """Wakes a reader whose call has ended without bytes to read."""

    # Calls of the session

    def open(self, call: Call) -> None:
        """Carry out the handshake that the machine has begun."""
        waiter = _Waiter()
        waiter.call = call
        with self.lock:
            self._waiters.append(waiter)
            self._flush()
            leading = self._place(waiter)
        self._wait(waiter, call, leading)

    def run(self, op: Op[Any]) -> Any:
        """See `ClientSession.run`."""
        self._check(op)
        waiter = _Waiter()
        machine = self._machine
        try:
            with self.lock:
                call = waiter.call = machine.start(op, None, monotonic())
                waits = call.outcome is None
                if waits:
                    if call.guided and self._nudge < 0:
                        nudge = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                        if self._shared is not None:
                            # In this order: a nudge that is known is listened to, whenever a signal handler raises.
                            self._shared[1].register(nudge, select.EPOLLIN)
                        self._nudge = nudge
                    self._waiters.append(waiter)
                    self._flush()
                    leading = self._place(waiter)
                elif machine.out[0]:
                    # A message without an answer.
                    self._flush()
                    self._stuck = bool(machine.out[0])
                    self._arrange()
            if waits:
                self._wait(waiter, call, leading)
        except BaseException:
            self._withdraw(waiter)
            raise
        assert call.outcome is not None
        result, error = call.outcome
        if machine.finished:
            self._deliver()
        if machine.closed is not None:
            self._hang_up()
        if error is not None:
            raise error
        return result

    def put(self, key: str, value: Value, scope: int) -> None:
        """See `ClientSession.put`."""
        if os.getpid() != self._pid or self._reader is not None or self._inside():
            # `run` finds out whether this is allowed.
            self.run(Put.unchecked(key, value, scope))
            return
        with self.lock:
            kept = self._machine.put(key, value, scope)
        if not kept:
            self.run(Put.unchecked(key, value, scope))

    def submit(self, op: Op[Any], done: Done[Any]) -> None:
        """See `ClientSession.submit`."""
        if os.getpid() != self._pid:
            raise self._not_ours(op)
        if self._inside():
            raise _deadlock(op)
        with self.lock:
            self._machine.start(op, done, monotonic())
            self._flush()
            self._stuck = bool(self._machine.out[0])
            self._arrange()
        self._deliver(True)

    def withdraw(self, done: Done[Any]) -> bool:
        """See `ClientSession.withdraw`."""
        withdrawn: list[bool] = []
        if os.getpid() == self._pid and not self._inside():
            self.enter(lambda: withdrawn.append(self._machine.withdraw_done(done)))
        return withdrawn == [True]

    def enter(self, step: Callable[[], None]) -> None:
        """Take a step of the machine; for functions that the machine has called and that react to that."""
        if os.getpid() != self._pid:
            raise self._not_ours()
        if self._inside():
            raise WouldDeadlock(
                "this thread is inside of the client: this is a signal handler",
                hint="set a flag here and act on it later",
            )
        with self.lock:
            self._machine.look(monotonic())
            step()
            self._flush()
            self._stuck = bool(self._machine.out[0])
            self._settle()
            self._arrange()
        self._deliver()

    def read(self, function: Callable[[A], R], argument: A) -> R:
        """Call a function that reads the machine and has no effect."""
        if os.getpid() != self._pid:
            raise self._not_ours()
        with self.lock:
            return function(argument)

    def poll(self) -> None:
        """See `ClientSession.poll`."""
        if os.getpid() != self._pid:
            return
        try:
            with self.lock:
                if self._front is not None:
                    self._front.silence()
                if self._reader is None:
                    self._take_now()
                self._flush()
                self._machine.tick(monotonic())
                self._settle()
        except BaseException as error:
            if struck(error):
                self._repair()
                raise
            # The next call would meet the same fault, and an event loop makes it at once.
            self.give_up("the client's call from the event loop", error)
        self._deliver(True)

    def fileno(self) -> int:
        with self.lock:
            if self._front is None:
                if self._fd < 0:
                    return -1
                self._front = Front(self._fd)
            return self._front.epoll.fileno()

    def attach(self) -> None:
        with self.lock:
            self.fileno()
            self._attached = True
            self._arrange()

    def detach(self) -> None:
        with self.lock:
            self._attached = False
            self._arrange()
        self._deliver()

    def close(self) -> None:
        """Drop the connection."""
        if os.getpid() != self._pid:
            # The connection belongs to the parent: only this process's descriptor goes.
            self._sock.close()
            return
        with self.lock:
            self._machine.close()
            self._settle()
            self._attached = False
            if self._front is not None:
                self._front.close()
                self._front = None
        self._deliver()

    def forked(self) -> None:
        """See `ClientSession.forked`: nothing is unregistered, since the parent has the same epoll sets."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.forked()
        if self._front is not None:
            self._front.close()
            self._front = None
        if self._nudge >= 0:
            os.close(self._nudge)
        self._fd = self._nudge = -1
        self._close_shared()
        self._sock.close()

    # A blocking call

    def _check(self, op: Op[Any]) -> None:
        if os.getpid() != self._pid:
            raise self._not_ours(op)
        reader = self._reader
        if (reader is not None and reader.ident == _thread.get_ident()) or self._inside():
            raise _deadlock(op)

    def _not_ours(self, op: Op[Any] | None = None) -> NotInitialized:
        return NotInitialized(
            f"this process was forked from the one that opened the client, {self._pid}, which stays that one's",
            operation=op.name if op is not None else "",
            hint="open a client of its own in the child",
        )

    def _wait(self, waiter: _Waiter, call: Call, leading: bool) -> None:
        """Block until the call has ended, as the reader or behind another one."""
        while call.outcome is None:
            if not leading:
                self._follow(waiter, call)
            elif self._lead(waiter, call):
                return
            with self.lock:
                leading = call.outcome is None and self._place(waiter)
        with self.lock:
            self._leave(waiter)

    def _place(self, waiter: _Waiter) -> bool:
        """Return True if a waiting thread is the reader; it becomes the reader if no other thread is."""
        if self._reader is None:
            self._reader = waiter
            if self._stuck or self._machine.deadline is not None:
                self._arrange()
            return True
        if self._reader is waiter:
            return True
        if waiter.lock is None:
            waiter.lock = _thread.allocate_lock()
            waiter.lock.acquire()
        if self._machine.out[0]:
            # The reader may be asleep and not know that data waits to be sent.
            self._stuck = True
            self._arrange()
        return False

    def _lead(self, waiter: _Waiter, call: Call) -> bool:
        """Read once, and process the bytes; return True if the call has ended and another thread leads."""
        machine = self._machine
        unsent = machine.out[0]
        chunks = machine.intake.chunks
        ready = True
        if unsent or call.deadline is not None or call.guided:
            events = select.POLLIN | (select.POLLOUT if unsent else 0)
            ready = bool(self._watch(events, call.deadline, call.guided) & ~select.POLLOUT)
        else:
            self._readable()
        if ready and self._unread:
            with self.lock:
                self._unread = False
                self._read_now()
        elif ready:
            try:
                # One call of C functions: no exception of a signal handler can lose received bytes.
                chunks.extend(map(self._recv, _SIZES))
            except OSError as error:
                self._fail(error)
        with self.lock:
            if unsent:
                self._flush()
            if ready:
                machine.take(monotonic())
            if call.deadline is not None:
                machine.tick(monotonic())
            done = call.outcome is not None and not machine.finished
            if ready and self._listens and chunks and len(chunks[-1]) == CHUNK:
                # There may be more, and the kernel has woken this thread alone.
                self._listens = False
            if done and len(self._waiters) == 1 and not self._unread and machine.quiet(self._listens):
                # Nearly always: no other thread is to be woken, and nothing is to be looked after.
                self._waiters.clear()
                self._reader = None
                return True
            self._settle()
            if call.outcome is not None and not machine.finished:
                self._leave(waiter)
                return True
        self._deliver()
        return False

    def _follow(self, waiter: _Waiter, call: Call) -> None:
        """Wait until the reader has the reply, or hands on its role."""
        if call.deadline is None:
            waiter.lock.acquire()
            return
        if not waiter.lock.acquire(True, sleep_for(call.deadline - monotonic())):
            with self.lock:
                self._machine.tick(monotonic())
                self._settle()

    def _watch(self, events: int, deadline: float | None, guided: bool) -> int:
        timeout = None if deadline is None else sleep_for(deadline - monotonic())
        if self._shared is not None and events == select.POLLIN:
            found = dict(self._shared[guided].poll(timeout))
        else:
            poll = select.poll()
            poll.register(self._fd, events)
            if guided:
                poll.register(self._nudge, select.POLLIN)
            found = dict(poll.poll(None if timeout is None else timeout * 1000))
        if found.pop(self._nudge, 0):
            try:
                os.eventfd_read(self._nudge)
            except BlockingIOError:
                pass
        return found.get(self._fd, 0)

    def _leave(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if self._reader is waiter:
            if self._unread and self._machine.closed is None:
                self._take_now()
                self._unread = False
                self._settle()
            self._reader = None
            if self._waiters or not self._machine.quiet(self._listens):
                self._elect()

    def _elect(self) -> None:
        """Find the next reader: a thread that is blocked anyway, or the helper."""
        for waiter in self._waiters:
            if waiter.call is not None and waiter.call.outcome is None:
                self._reader = waiter
                if waiter.lock is not None:
                    waiter.wake()
                return
        self._arrange()

    def _withdraw(self, waiter: _Waiter) -> None:
        """Give up a call because of an exception, without the loss of anything else."""
        for _ in range(100):
            try:
                with self.lock:
                    if self._reader is waiter:
                        self._machine.resume()
                    if waiter.call is not None:
                        self._machine.abandon(waiter.call)
                    # Bytes may have woken this thread alone, which does not read them.
                    self._listens = False
                    self._settle()
                    self._leave(waiter)
            except BaseException as error:
                if not struck(error):
                    self.give_up("a blocking call of the client", error)
                    return
                continue  # another signal, while this one is handled
            self._deliver()
            return
        self.close()

    def give_up(self, what: str, error: BaseException) -> None:
        """Fail all running calls, because `what`, which should have ended them, has failed by a fault of pypmix."""
        with self.lock:
            if self._reader is not None and self._reader.ident == _thread.get_ident():
                self._reader = None
            self._machine.give_up(what, error)
            self._settle()
        self._deliver()

    def _repair(self) -> None:
        with self.lock:
            if self._reader is None:
                self._machine.resume()
            self._settle()

    # Bytes

    def _flush(self) -> None:
        """Send as much as possible without waiting."""
        machine = self._machine
        while machine.out[0]:
            data, sent = machine.out
            try:
                sent.extend(map(self._send, (machine.unsent() if sent else data,), _DONTWAIT))
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(error)
                return
            machine.sent()
        self._stuck = False

    def _take_now(self) -> None:
        """Process the bytes that have arrived, without blocking."""
        self._read_now()
        self._machine.take(monotonic())

    def _read_now(self) -> None:
        """Read the bytes that the helper has seen, without blocking; if there may be more, it starts anew."""
        chunks = self._machine.intake.chunks
        try:
            chunks.extend(map(self._recv, *_SIZES_NOW))
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
        self._listens = False

    def _fail(self, error: OSError) -> None:
        with self.lock:
            self._machine.handle_disconnect(f"the connection to the server broke: {error.strerror or error}")
            self._settle()

    def _settle(self) -> None:
        """Wake the threads whose calls have ended, and arrange the threads that are needed now."""
        if self._machine.half_closing and self._fd >= 0:
            self._machine.half_closing = False
            self._part()
        for waiter in self._waiters:
            if waiter.call is not None and waiter.call.outcome is not None:
                if waiter.lock is not None:
                    waiter.wake()
                if waiter is self._reader and self._nudge >= 0 and waiter.ident != _thread.get_ident():
                    os.eventfd_write(self._nudge, 1)
        if self._machine.closed is not None:
            self._hang_up()
        elif self._helper is not None:
            self._arrange()

    def _deliver(self, here: bool = False) -> None:
        """Call the functions of ended calls; without the lock, since they may call back.

        An event loop needs this in its own thread: other threads ring for it.
        """
        finished = self._machine.finished
        if finished and self._attached and not here:
            with self.lock:
                if self._front is not None:
                    self._front.ring()
            return
        while finished:
            # One at a time: two threads that deliver would change the order of the calls.
            with self._order:
                self._machine.deliver()

    def _part(self) -> None:
        """End our side of the connection of a client that the server has finalized, or leave it to the process's end.

        A server on a libpmix, up to 6.1 at least, takes a proc for lost when any of its connections ends, and completes
        the fences of the others without it (openpmix #4113). If this process has a libpmix as well, such as an MPI's,
        its proc may still call fences: `MPI_Finalize` does.
        """
        if len(_KEPT) < MOST_KEPT and not self._machine.adapts and has_libpmix():
            self._keeps = True
            self._machine.handle_disconnect("the client was finalized")
        else:
            self._shut(_socket.SHUT_WR)

    def _hang_up(self) -> None:
        """Close the socket; if another thread reads from it, only shut it down, and that thread closes it."""
        with self.lock:
            if self._fd < 0:
                return
            if self._helper is not None:
                self._helper.stop()
            if self._reader is not None and self._reader.ident != _thread.get_ident():
                # The server does not notice that we end reading.
                self._shut(_socket.SHUT_RD if self._keeps else _socket.SHUT_RDWR)
                return
            self._fd = -1
            if self._keeps:
                if self._front is not None:
                    self._front.epoll.unregister(self._sock)
                # No object, which would end before MPI does: the kernel closes it.
                _KEPT.append(self._sock.detach())
            else:
                self._shut()
                self._sock.close()
            if self._nudge >= 0:
                os.close(self._nudge)
                self._nudge = -1
            self._close_shared()

    def _shut(self, how: int = _socket.SHUT_RDWR) -> None:
        try:
            self._sock.shutdown(how)
        except OSError:
            pass

    # The thread that looks after submitted operations

    def _arrange(self) -> None:
        """Arrange that a thread waits for received bytes, for space to send, and for time limits."""
        machine = self._machine
        helper = self._helper
        if machine.closed is not None:
            return
        events = 0
        if (self._reader is None or self._listens) and not self._attached and machine.waiting():
            events = select.EPOLLIN
            if self._shared is None:
                self._share()
        if machine.out[0] and (self._stuck or not self._waiters):
            events |= select.EPOLLOUT
        deadline = machine.deadline
        if helper is None:
            if not events and deadline is None:
                return
            helper = self._helper = _Helper(self, self._fd)
        listens = bool(events & select.EPOLLIN)
        # To enter a set again finds the bytes that are there already.
        helper.watch(events, deadline, listens and not self._listens)
        self._listens = listens

    def _share(self) -> None:
        """Make the sets that readers sleep in from now on; called before the helper's set has the socket.

        Of exclusive sets the kernel wakes the first whose owner sleeps.
        """
        shared = select.epoll(), select.epoll()
        for each in shared:
            register_exclusively(each, self._fd, select.EPOLLIN)
        if self._nudge >= 0:
            shared[1].register(self._nudge, select.EPOLLIN)
        self._shared = shared
        self._readable = shared[0].poll

    def _close_shared(self) -> None:
        for each in self._shared or ():
            each.close()

    def leave_to_reader(self) -> bool:
        """Return True if the bytes that the helper has seen are the reader's, False if there is none."""
        with self.lock:
            self._unread = self._reader is not None
            return self._unread

    def helped(self, readable: bool) -> None:
        """The helper has seen something."""
        with self.lock:
            if self._machine.closed is None:
                if readable and self._reader is not None:
                    self._unread = True
                elif readable:
                    self._take_now()
                self._flush()
                self._machine.tick(monotonic())
                self._settle()
        self._deliver()


_UNKNOWN = -1


class _Helper:
    """The daemon thread that looks after submitted operations."""

    def __init__(self, connection: Connection, fd: int) -> None:
        self._connection = connection
        self._fd = fd
        self._front = Front()
        self._epoll = self._front.epoll
        self._events = 0
        self._deadline: float | None = None
        self._sleeps_until: float | None = None
        self._stopped = False
        self._idents: list[int] = []

    def watch(self, events: int, deadline: float | None, anew: bool = False) -> None:
        """Look out for these events and this moment from now on.

        Args:
            events: The events of the socket.
            deadline: The moment.
            anew: Whether to look at what has happened before, too.
        """
        if anew or events != self._events:
            self._register(events)
        self._deadline = deadline
        if not self._idents:
            # One call of C functions, which no signal handler can cut in two.
            self._idents.extend(map(_thread.start_new_thread, (self._work,), ((),)))
        if deadline is not None and (self._sleeps_until is None or deadline < self._sleeps_until):
            self._front.ring()

    def _register(self, events: int) -> None:
        """Change what the epoll set has of the socket; the change before may have been cut short by a signal."""
        self._events = _UNKNOWN
        # Errors and hang-ups are reported whatever one asks for: to watch nothing is not to be there. And the kernel
        # changes no entry that is exclusive.
        try:
            self._epoll.unregister(self._fd)
        except FileNotFoundError:
            pass
        if events & select.EPOLLIN:
            register_exclusively(self._epoll, self._fd, events | select.EPOLLET)
        elif events:
            self._epoll.register(self._fd, events)
        self._events = events

    def stop(self) -> None:
        """End the thread; its descriptors go with it."""
        if not self._stopped:
            self.watch(0, None)
            self._stopped = True
            self._front.ring()

    def forked(self) -> None:
        """Close the descriptors of a child, which has no such thread, unless the thread has closed them itself."""
        self._stopped = True
        self._front.close()

    def _work(self) -> None:
        try:
            while not self._stopped:
                self._wait()
        except BaseException as error:
            # Callers that wait for this thread would wait for ever.
            self._connection.give_up("the thread that looks after the client", error)
        finally:
            with self._connection.lock:
                # Under the lock, because `stop` writes to the descriptor that is closed here.
                self._stopped = True
                self._front.close()

    def _wait(self) -> None:
        with self._connection.lock:
            deadline = self._sleeps_until = self._deadline
        found = self._epoll.poll(None if deadline is None else sleep_for(deadline - monotonic()))
        if found == [(self._fd, select.EPOLLIN)] and self._connection.leave_to_reader():
            return
        self._front.silence()
        if not self._stopped:
            self._connection.helped(any(fd == self._fd and events & ~select.EPOLLOUT for fd, events in found))
