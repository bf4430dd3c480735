"""Drives the machine of a singleton: it has no socket, and every operation ends at once."""

from __future__ import annotations

import _thread

from pypmix.engine.common import owned
from pypmix.standard.errors import WouldDeadlock
from pypmix.standard.ops import Put

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.python.client import Client
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Value


class Alone:
    """Takes the steps of a machine one at a time, and calls the functions of ended calls between them."""

    def __init__(self, machine: Client) -> None:
        self._machine = machine
        self._lock: Any = _thread.RLock()
        self._inside = owned(self._lock)
        machine.enter = self.enter

    def submit(self, op: Op[Any], done: Done[Any]) -> None:
        """See `ClientSession.submit`."""
        self.enter(lambda: self._machine.start(op, done, 0.0))

    def run(self, op: Op[Any]) -> Any:
        """See `ClientSession.run`."""
        if self._inside():
            raise _deadlock()
        machine = self._machine
        try:
            with self._lock:
                outcome = machine.start(op, None, 0.0).outcome
        finally:
            while machine.finished:
                machine.deliver()
        assert outcome is not None
        result, error = outcome
        if error is not None:
            raise error
        return result

    def put(self, key: str, value: Value, scope: int) -> None:
        """See `ClientSession.put`."""
        if self._inside():
            raise _deadlock()
        with self._lock:
            kept = self._machine.put(key, value, scope)
        if not kept:
            self.run(Put.unchecked(key, value, scope))

    def close(self) -> None:
        """End the client."""
        self.enter(self._machine.close)

    def enter(self, step: Callable[[], object]) -> None:
        """Take a step of the machine, and call the functions of ended calls."""
        if self._inside():
            raise _deadlock()
        try:
            with self._lock:
                step()
        finally:
            while self._machine.finished:
                self._machine.deliver()


def _deadlock() -> WouldDeadlock:
    return WouldDeadlock(
        "this thread is inside of the client: this is a signal handler", hint="set a flag here and act on it later"
    )
