"""Drives the machine of a singleton: it has no socket, and every operation ends at once."""

from __future__ import annotations

import _thread

from pypmix.engine.common import owned
from pypmix.standard.errors import WouldDeadlock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.python.client import Client
    from pypmix.standard.ops import Op


class Alone:
    """Takes the steps of a machine one at a time, and calls the functions of ended calls between them."""

    def __init__(self, machine: Client) -> None:
        self._machine = machine
        self._lock: Any = _thread.RLock()
        self._inside = owned(self._lock)
        machine.enter = self.enter

    def submit(self, op: Op[Any], done: Done[Any]) -> None:
        """See `ClientSession.submit`."""
        self.enter(lambda: self._start(op, done))

    def run(self, op: Op[Any]) -> Any:
        """See `ClientSession.run`."""
        outcome: list[tuple[Any, BaseException | None]] = []
        self.enter(lambda: outcome.append(self._start(op, None)))
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """End the client."""
        self.enter(self._machine.close)

    def enter(self, step: Callable[[], object]) -> None:
        """Take a step of the machine, and call the functions of ended calls."""
        if self._inside():
            raise WouldDeadlock(
                "this thread is inside of the client: this is a signal handler",
                hint="set a flag here and act on it later",
            )
        try:
            with self._lock:
                step()
        finally:
            while self._machine.finished:
                self._machine.deliver()

    def _start(self, op: Op[Any], done: Done[Any] | None) -> tuple[Any, BaseException | None]:
        outcome = self._machine.start(op, done, 0.0).outcome
        assert outcome is not None
        return outcome
