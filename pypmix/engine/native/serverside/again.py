"""Direct modex requests for a key, or with a time limit: the library has neither, so that it is asked again."""

from __future__ import annotations

import threading
from functools import partial

from pypmix.standard.errors import LostConnection, OperationTimeout
from pypmix.standard.ops import RESERVED_PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.alarms import Alarms
    from pypmix.engine.base import Done
    from pypmix.standard.types import Proc

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
"""Seconds between two questions: the library tells nobody when a proc that has committed something commits more."""


class Demand:
    """What another server waits for."""

    __slots__ = ("done", "key", "pause", "proc")

    def __init__(self, proc: Proc, done: Done[bytes], key: str) -> None:
        self.proc = proc
        self.done: Done[bytes] | None = done
        self.key = key
        self.pause = FIRST_PAUSE


class Again:
    """The direct modex requests of a server that wait for a key or have a time limit; used from any thread.

    Args:
        ask: Asks the library what a proc has committed: it answers when there is anything.
        alarms: What wakes it.
        log: Told of a host that fails over an answer.
    """

    def __init__(self, ask: Callable[[Proc, Done[bytes]], None], alarms: Alarms, log: Callable[[str], None]) -> None:
        self._ask = ask
        self._alarms = alarms
        self._log = log
        self._lock = threading.Lock()
        self._timed: set[Demand] = set()
        self._closed = False

    def request(self, proc: Proc, done: Done[bytes], key: str, timeout: float) -> None:
        """See `ServerSession.dmodex_request`."""
        demand = Demand(proc, done, "" if key.startswith(RESERVED_PREFIX) else key)
        self._put(demand)
        if timeout:
            self._later(timeout, self._expire, demand)

    def close(self) -> None:
        """Ask nothing any more; who waits is told. May be called twice."""
        with self._lock:
            self._closed = True
            left = list(self._timed)
        for demand in left:
            self._end(demand, None, LostConnection("the server is closed", operation="dmodex_request"))

    def _put(self, demand: Demand) -> None:
        self._ask(demand.proc, lambda data, error: self._answered(demand, data, error))

    def _answered(self, demand: Demand, data: bytes | None, error: BaseException | None) -> None:
        # The data is the library's own, but the keys stand in it as they are.
        if error is None and demand.key and demand.key.encode() + b"\0" not in (data or b""):
            if demand.done is not None:
                self._later(demand.pause, self._repeat, demand)
                demand.pause = min(2 * demand.pause, LONGEST_PAUSE)
            return
        self._end(demand, data, error)

    def _repeat(self, demand: Demand) -> None:
        if demand.done is not None:
            try:
                self._put(demand)
            except Exception as error:
                self._end(demand, None, error)

    def _expire(self, demand: Demand) -> None:
        what = demand.key or "anything"
        text = f"{demand.proc} has not committed {what} in time"
        self._end(demand, None, OperationTimeout(text, procs=(demand.proc,), missing=(demand.proc,)))

    def _end(self, demand: Demand, data: bytes | None, error: BaseException | None) -> None:
        with self._lock:
            done, demand.done = demand.done, None
            self._timed.discard(demand)
        if done is None:
            return
        try:
            done(data, error)
        except Exception as failure:
            self._log(f"the host failed over the answer to dmodex_request: {failure!r}")

    def _later(self, seconds: float, call: Callable[[Demand], None], demand: Demand) -> None:
        with self._lock:
            closed = self._closed
            if not closed and demand.done is not None:
                self._timed.add(demand)
                self._alarms.later(seconds, partial(call, demand))
        if closed:
            self._end(demand, None, LostConnection("the server is closed", operation="dmodex_request"))
