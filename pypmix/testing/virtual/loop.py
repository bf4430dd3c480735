"""The event loop of all ranks of a simulation: asyncio's on a clock that goes on only where all wait."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, TypeVarTuple, Unpack

from pypmix.testing.virtual.refusing import OWNER, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from pypmix.engine.alarms import Alarm
    from pypmix.host.exchange.inprocess import VirtualTime

Ts = TypeVarTuple("Ts")

FIRST_FD = 1 << 30
"""Numbers that stand for descriptors begin here, far beyond real ones."""

SPIN = 100
"""Rounds of tasks that are always ready, in which `SPINNING` seconds pass."""

SPINNING = 0.01

PATIENT = 100
"""That happens so often before the seconds double each time: tasks that look for ever come to their time limit."""


class Timer(asyncio.TimerHandle):
    """A call at a virtual time."""

    due: Alarm | None = None

    def cancel(self) -> None:
        """Have it not happen."""
        super().cancel()
        if self.due is not None:
            self.due.cancel()


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs the tasks of all ranks, and lets the clock go on to what is due next where none of them can go on.

    Args:
        clock: The clock; what is due there by itself belongs to the simulation.
        stuck: Raises an error: nothing is due, so that all would wait for ever.
        late: Raises an error: the clock has come to the limit.

    Attributes:
        limit: The time at which all is to be over.
    """

    def __init__(self, clock: VirtualTime, stuck: Callable[[], None], late: Callable[[], None]) -> None:
        super().__init__()
        self.limit = float("inf")
        self._clock = clock
        self._stuck = stuck
        self._late = late
        self._neutral = contextvars.Context()
        self._sources: list[Callable[[], bool]] = []
        self._readers: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self._rounds = self._spins = 0
        # The base class asks it for what is ready.
        self._selector = self

    def time(self) -> float:
        """Return the virtual time."""
        return self._clock.now

    def step(self) -> None:
        """Let time go on to what is due next, outside of all ranks."""
        self._rounds = self._spins = 0
        if not self._neutral.run(self._clock.step):
            self._stuck()
        if self._clock.now >= self.limit:
            self._late()

    def at(self, when: float, call: Callable[[], None]) -> Alarm:
        """Have a function called at a virtual time, outside of all ranks."""
        return self._clock.at(when, call)

    # What the base class calls

    def select(self, timeout: float | None) -> tuple[()]:
        """Let time go on where nothing is ready."""
        self._rounds += 1
        if timeout is None:
            self.step()
        elif self._rounds > SPIN:
            # Tasks that look again and again take time, but what is due comes at its time.
            self._spins += 1
            later = self._clock.now + SPINNING * 2 ** max(0, self._spins - PATIENT)
            due = self._clock.due()
            if due is not None and due <= later:
                later = due
            self._neutral.run(self._clock.run, later)
            self._rounds = 0
            if self._clock.now >= self.limit:
                self._late()
        return ()

    def _process_events(self, event_list: object) -> None:
        """Nothing comes by `select`."""

    def _write_to_self(self) -> None:
        """Nothing sleeps."""

    # Calls, which belong to the rank in whose context they are

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Have a function called; not in a rank that has ended, and later in one that stands still."""
        context = contextvars.copy_context() if context is None else context
        owner = context.get(OWNER)
        if owner is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(owner.step, context, callback, args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Do the same: there are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> Timer:
        """Have a function called after some virtual seconds."""
        return self.call_at(self._clock.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> Timer:
        """Have a function called at a virtual time."""
        context = contextvars.copy_context() if context is None else context
        timer = Timer(when, callback, args, self, context)

        def fire() -> None:
            if not timer.cancelled():
                callback(*args)

        timer.due = self._clock.at(when, lambda: None if timer.cancelled() else self._now(fire, context))
        return timer

    def _now(self, fire: Callable[[], None], context: Context) -> None:
        self.call_soon(fire, context=context)

    # What looks like a descriptor

    def source(self, ready: Callable[[], bool]) -> int:
        """Return a number that can be waited for like a descriptor.

        Args:
            ready: Tells whether there is something to read.
        """
        self._sources.append(ready)
        return FIRST_FD + len(self._sources) - 1

    def ring(self, fd: int) -> None:
        """Wake what waits for a source: there is something to read."""
        reader = self._readers.get(fd)
        if reader is not None:
            self.call_soon(reader[0], *reader[1], context=self._neutral)

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        """Have a function called when there is something to read from a source."""
        if not isinstance(fd, int) or not 0 <= fd - FIRST_FD < len(self._sources):
            raise refused("a descriptor is watched")
        self._readers[fd] = callback, args
        if self._sources[fd - FIRST_FD]():
            self.ring(fd)

    def remove_reader(self, fd: Any) -> bool:
        """Take that back."""
        return self._readers.pop(fd, None) is not None


_ELSEWHERE = {
    "a thread is started": ("run_in_executor", "getaddrinfo", "getnameinfo"),
    "a process is started": ("subprocess_exec", "subprocess_shell", "add_signal_handler"),
    "a descriptor is watched": ("add_writer", "connect_read_pipe", "connect_write_pipe"),
    "a socket is used": (
        "create_connection",
        "create_datagram_endpoint",
        "create_server",
        "create_unix_connection",
        "create_unix_server",
        "sock_accept",
        "sock_connect",
        "sock_recv",
        "sock_recv_into",
        "sock_recvfrom",
        "sock_sendall",
        "sock_sendto",
    ),
}


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(*_args: object, **_named: object) -> Any:
        __tracebackhide__ = True
        raise refused(what)

    return refuse


for _what, _names in _ELSEWHERE.items():
    for _name in _names:
        setattr(VirtualLoop, _name, _refuse(_what))
