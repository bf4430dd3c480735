"""Direct modex requests for a key, or with a time limit: the library supports neither, so requests are repeated."""

from __future__ import annotations

import threading

from pypmix.engine.times import MAX_MODEX_PAUSE, MODEX_PAUSE
from pypmix.standard.errors import LostConnection, OperationTimeout
from pypmix.standard.ops import RESERVED_PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.alarms import Alarms
    from pypmix.engine.base import Done
    from pypmix.standard.types import Proc


class RepeatedRequests:
    """The direct modex requests of a server that wait for a key or have a time limit; used from any thread.

    Args:
        ask: Requests a proc's committed data from the library, which answers once there is any.
        alarms: The alarms that run the delayed calls.
        log: Called with a text if the host fails over an answer.
    """

    def __init__(self, ask: Callable[[Proc, Done[bytes]], None], alarms: Alarms, log: Callable[[str], None]) -> None:
        self._ask = ask
        self._alarms = alarms
        self._log = log
        self._lock = threading.Lock()
        self._waiting: dict[object, Done[bytes]] = {}
        self._closed = False

    def request(self, proc: Proc, done: Done[bytes], key: str, timeout: float) -> None:
        """See `ServerSession.dmodex_request`."""
        demand = object()
        # The data has the library's encoding, which contains the keys unchanged.
        wanted = b"" if key.startswith(RESERVED_PREFIX) or not key else key.encode() + b"\0"

        def ask(pause: float) -> None:
            self._ask(proc, lambda data, error: handle_answer(data, error, pause))

        def handle_answer(data: bytes | None, error: BaseException | None, pause: float) -> None:
            if error is not None or wanted in (data or b""):
                self._end(demand, data, error)
            elif demand in self._waiting:
                self._alarms.later(pause, lambda: repeat(pause))

        def repeat(pause: float) -> None:
            if demand in self._waiting:
                try:
                    ask(min(2 * pause, MAX_MODEX_PAUSE))
                except Exception as error:
                    self._end(demand, None, error)

        def expire() -> None:
            text = f"{proc} has not committed {key or 'anything'} in time"
            self._end(demand, None, OperationTimeout(text, procs=(proc,), missing=(proc,)))

        with self._lock:
            self._waiting[demand] = done
        try:
            ask(MODEX_PAUSE)
        except BaseException:
            self._waiting.pop(demand, None)
            raise
        if self._closed:
            # `close` was called meanwhile, and ended the requests that were waiting before.
            self._end(demand, None, _closed())
        if timeout:
            self._alarms.later(timeout, expire)

    def close(self) -> None:
        """Stop repeating requests, and end the waiting ones with an error. May be called twice."""
        with self._lock:
            self._closed = True
        for demand in list(self._waiting):
            self._end(demand, None, _closed())

    def _end(self, demand: object, data: bytes | None, error: BaseException | None) -> None:
        with self._lock:
            done = self._waiting.pop(demand, None)
        if done is None:
            return
        try:
            done(data, error)
        except Exception as failure:
            self._log(f"the host failed over the answer to dmodex_request: {failure!r}")


def _closed() -> LostConnection:
    return LostConnection("the server is closed", operation="dmodex_request")
