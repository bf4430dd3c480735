"""The event loop of all ranks of a simulation: asyncio on a clock that advances only when all ranks wait."""

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
"""The first number in place of a descriptor, far beyond real descriptors."""

SPIN = 100
"""The rounds of tasks that are always ready, in which `SPINNING` seconds pass."""

SPINNING = 0.01

PATIENT = 100
"""The number of such periods before the seconds double each time, so that tasks that poll reach their time limit."""


class Timer(asyncio.TimerHandle):
    """A call at a virtual time."""

    due: Alarm | None = None

    def cancel(self) -> None:
        """Cancel the call."""
        super().cancel()
        if self.due is not None:
            self.due.cancel()


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs the tasks of all ranks; when all of them wait, it advances the clock to the next call.

    Args:
        clock: The clock, which also has calls of the simulation.
        stuck: Raises an error: no call is due, so that all ranks would wait forever.
        timed_out: Raises an error: the clock has reached the limit.

    Attributes:
        limit: The time at which the simulation must have finished.
    """

    def __init__(self, clock: VirtualTime, stuck: Callable[[], None], timed_out: Callable[[], None]) -> None:
        super().__init__()
        self.limit = float("inf")
        self._clock = clock
        self._stuck = stuck
        self._timed_out = timed_out
        self._neutral = contextvars.Context()
        self._sources: list[Callable[[], bool]] = []
        self._readers: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self._rounds = self._spins = 0
        # The base class calls its `select`.
        self._selector = self

    def time(self) -> float:
        """Return the virtual time."""
        return self._clock.now

    def step(self) -> None:
        """Advance the clock to the next call, outside of all ranks."""
        self._rounds = self._spins = 0
        if not self._neutral.run(self._clock.step):
            self._stuck()
        if self._clock.now >= self.limit:
            self._timed_out()

    def at(self, due: float, call: Callable[[], None]) -> Alarm:
        """Schedule a call at a virtual time, outside of all ranks."""
        return self._clock.at(due, call)

    # Calls by the base class

    def select(self, timeout: float | None) -> tuple[()]:
        """Advance the clock if no task is ready."""
        self._rounds += 1
        if timeout is None:
            self.step()
        elif self._rounds > SPIN:
            # Tasks that poll take virtual time, but do not delay other calls.
            self._spins += 1
            later = self._clock.now + SPINNING * 2 ** max(0, self._spins - PATIENT)
            due = self._clock.due()
            if due is not None and due <= later:
                later = due
            self._neutral.run(self._clock.run, later)
            self._rounds = 0
            if self._clock.now >= self.limit:
                self._timed_out()
        return ()

    def _process_events(self, event_list: object) -> None:
        """Do nothing, as `select` returns no events."""

    def _write_to_self(self) -> None:
        """Do nothing, as the loop never sleeps."""

    # Calls, which belong to the rank of their context

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a call; never made for a rank that has ended, and later for a suspended rank."""
        context = contextvars.copy_context() if context is None else context
        owner = context.get(OWNER)
        if owner is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(owner.step, context, callback, args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Like `call_soon`, as there are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> Timer:
        """Schedule a call after some virtual seconds."""
        return self.call_at(self._clock.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> Timer:
        """Schedule a call at a virtual time."""
        context = contextvars.copy_context() if context is None else context
        timer = Timer(when, callback, args, self, context)

        def fire() -> None:
            if not timer.cancelled():
                callback(*args)

        timer.due = self._clock.at(when, lambda: None if timer.cancelled() else self._now(fire, context))
        return timer

    def _now(self, fire: Callable[[], None], context: Context) -> None:
        self.call_soon(fire, context=context)

    # Numbers in place of descriptors

    def source(self, ready: Callable[[], bool]) -> int:
        """Return a number that can be watched like a descriptor.

        Args:
            ready: Returns True if there is something to read.
        """
        self._sources.append(ready)
        return FIRST_FD + len(self._sources) - 1

    def ring(self, fd: int) -> None:
        """Wake the reader of a source: there is something to read."""
        reader = self._readers.get(fd)
        if reader is not None:
            self.call_soon(reader[0], *reader[1], context=self._neutral)

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        """Call a function whenever there is something to read from a source."""
        if not isinstance(fd, int) or not 0 <= fd - FIRST_FD < len(self._sources):
            raise refused("a descriptor is watched")
        self._readers[fd] = callback, args
        if self._sources[fd - FIRST_FD]():
            self.ring(fd)

    def remove_reader(self, fd: Any) -> bool:
        """Stop calling the function of a source."""
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
