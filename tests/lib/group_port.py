"""A port of the groups of a client, whose requests a test answers."""

from __future__ import annotations

from typing import Any

from pypmix.engine.chain import Handlers
from pypmix.engine.groups.agent import Agent
from pypmix.engine.groups.foreign import support_of
from pypmix.standard import codes
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import (
    GroupConstruct,
    GroupResults,
    Notification,
    NotifyEvent,
)
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value

A, B, C, D = (Proc("job", rank) for rank in range(4))


class Timer:
    def __init__(self, port: Port, due: float, call: Any) -> None:
        self.port, self.due, self.call = port, due, call
        port.timers.append(self)

    def cancel(self) -> None:
        if self in self.port.timers:
            self.port.timers.remove(self)


class Port:
    """A session of rank 0 of a job of four, whose server answers when the test does."""

    def __init__(self, release: tuple[int, int, int] = (7, 0, 0), adapts: bool = False) -> None:
        self.proc = A
        self.server_release = release
        self.support = support_of(adapts)
        self.recorded = False
        self.now = 0.0
        self.timers: list[Timer] = []
        self.asked: list[tuple[Any, Any]] = []
        self.given_up: list[Any] = []
        self.said: list[NotifyEvent] = []
        self.sizes = {Proc("job", RANK_WILDCARD): Value(codes.UINT32, 4)}
        self.handlers = Handlers(A, "host", self.enter, self.tell, lambda handler: None)
        self.agent = Agent(self)

    def enter(self, step: Any) -> None:
        step()

    def tell(self, function: Any, argument: object) -> None:
        function(argument)

    def watch(self, code: int, watcher: Any) -> None:
        self.handlers.watch(code, watcher)

    def submit(self, op: Any, done: Any) -> None:
        if isinstance(op, NotifyEvent):
            self.said.append(op)
            done(None, None)
        else:
            self.asked.append((op, done))

    def give_up(self, op: Any) -> None:
        self.given_up.append(op)

    def later(self, seconds: float, call: Any) -> Timer:
        return Timer(self, self.now + seconds, call)

    def fetch(self, whose: Proc, key: str) -> Value | None:
        return self.sizes.get(whose) if key == "pmix.job.size" else None

    # What a test does

    def start(self, op: Any) -> list[tuple[Any, BaseException | None]]:
        outcome: list[tuple[Any, BaseException | None]] = []
        self.agent.start(op, lambda result, error: outcome.append((result, error)))
        return outcome

    def answer(self, result: Any = None, error: BaseException | None = None) -> Any:
        """Answer what was asked first; return it."""
        op, done = self.asked.pop(0)
        done(result, error)
        return op

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.due <= self.now]:
            timer.cancel()
            timer.call()

    def hear(self, code: int, source: Proc, *infos: Info) -> None:
        self.handlers.start_chain(Notification(code, source, None, infos), False)

    def built(self, *members: Proc, directives: tuple[Info, ...] = ()) -> None:
        """Construct `g`."""
        outcome = self.start(GroupConstruct("g", members, directives))
        self.answer(GroupResults(members))
        assert outcome[0][1] is None


def failed(outcome: list[tuple[Any, BaseException | None]], kind: type[PMIxError], status: int = 0) -> PMIxError:
    ((_, error),) = outcome
    assert type(error) is kind or (status and isinstance(error, PMIxError))
    assert isinstance(error, PMIxError)
    assert not status or error.code == status
    return error
