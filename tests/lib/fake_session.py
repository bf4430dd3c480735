"""A session without an engine, that records operations and answers them as a test says."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pypmix.engine.common import EngineInfo
from pypmix.standard.ops import Get, Put
from pypmix.standard.types import Proc, Value


class FakeSession:
    """Completes operations at once, or when `settle` is called where `hold` is set."""

    def __init__(self) -> None:
        self.info = EngineInfo("fake", "1.0")
        self.proc = Proc("job", 1)
        self.server = "server.0 1.0"
        self.singleton = False
        self.ops: list[Any] = []
        self.answers: dict[type, object] = {}
        self.data: dict[tuple[Proc, str], Value] = {}
        self.hold = False
        self.closed = 0
        self.directives: tuple[Any, ...] = ()
        self.watched = 0
        self._held: list[tuple[Any, Callable[..., None]]] = []
        self._pipe = os.pipe()

    def __del__(self) -> None:
        for descriptor in self._pipe:
            os.close(descriptor)

    def _outcome(self, op: Any) -> tuple[Any, BaseException | None]:
        self.ops.append(op)
        answer = self.answers.get(type(op))
        if isinstance(answer, BaseException):
            return None, answer
        if isinstance(op, Get) and answer is None:
            return self.data[op.proc, op.key], None
        return answer, None

    def opened(self, directives: tuple[Any, ...]) -> FakeSession:
        """Note the directives of a tool; return the session."""
        self.directives = directives
        return self

    def run(self, op: Any) -> Any:
        result, error = self._outcome(op)
        if error is not None:
            raise error
        return result

    def withdraw(self, done: Callable[..., None]) -> bool:
        return False

    def submit(self, op: Any, done: Callable[..., None]) -> None:
        if self.hold:
            self._held.append((op, done))
        else:
            done(*self._outcome(op))

    def settle(self, index: int = 0) -> None:
        """Make one held operation complete by the next `poll`."""
        os.write(self._pipe[1], bytes([index]))

    def put(self, key: str, value: Value, scope: int) -> None:
        self.run(Put(key, value, scope))

    def fetch_local(self, proc: Proc, key: str) -> Value | None:
        return self.data.get((proc, key))

    def fileno(self) -> int:
        return self._pipe[0]

    def poll(self) -> None:
        for index in os.read(self._pipe[0], 100):
            op, done = self._held.pop(index)
            done(*self._outcome(op))

    def attach(self) -> None:
        self.watched += 1

    def detach(self) -> None:
        self.watched -= 1

    def supports(self, feature: str) -> bool:
        return feature == "fence.timeout"

    def close(self) -> None:
        self.closed += 1
