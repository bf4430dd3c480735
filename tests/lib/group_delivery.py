"""Groups of a client whose session a test answers for."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from lib.fake_session import FakeSession
from pypmix import Client, ConstructAborted, NotInitialized, Proc, Rank
from pypmix import clientbase as client_module
from pypmix.standard.ops import (
    DeregisterEventHandler,
    GroupAnswer,
    GroupChange,
    GroupConstruct,
    GroupDestruct,
    GroupEnter,
    GroupInvite,
    GroupInviteControl,
    GroupJoin,
    GroupLeave,
    GroupResults,
    GroupState,
    GroupWatch,
    Notification,
    RegisterEventHandler,
)
from pypmix.types import uint32

ME, PEER, THIRD = Proc("job", 1), Proc("job", 0), Proc("job", 2)


class Delivery:
    """An event at a handler."""

    def __init__(self, code: int, source: Proc, *infos: Any) -> None:
        self.notification = Notification(code, source, None, infos)
        self.results: tuple[Any, ...] = ()
        self.answer: tuple[int, tuple[Any, ...]] | None = None

    def done(self, status: int = -331, results: tuple[Any, ...] = ()) -> None:
        self.answer = status, results


class Groups(FakeSession):
    """A session that forms groups at once, but for invitations, which wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, GroupState] = {}
        self.under_way: list[tuple[Any, Callable[..., None]]] = []
        self.handlers: dict[int, RegisterEventHandler] = {}
        self.watches: dict[str, GroupWatch] = {}
        self.refuses: dict[type, BaseException] = {}
        self.answers_with: dict[type, object] = {}
        self.slow: tuple[type, ...] = (GroupInvite, GroupJoin, GroupEnter)
        self.leader: Proc | None = None
        self.data[Proc("job", Rank.WILDCARD), "pmix.job.size"] = uint32(3)

    def group_state(self, name: str) -> GroupState | None:
        return self.states.get(name)

    def form(self, name: str, *members: Proc, term: int = 0) -> GroupResults:
        self.states[name] = GroupState(name, members, 7, self.leader, 1, term or int(self.leader is not None))
        return GroupResults(members, 7)

    def poll(self) -> None:
        os.read(self._pipe[0], 100)

    def wake(self) -> None:
        """Have the loop see what the test has made happen, as it does after a real `poll`."""
        os.write(self._pipe[1], b".")

    def run(self, op: Any) -> Any:
        outcome: list[Any] = []
        arrived = threading.Event()
        self.submit(op, lambda *told: (outcome.extend(told), arrived.set()))
        assert arrived.wait(10)
        if outcome[1] is not None:
            raise outcome[1]
        return outcome[0]

    def submit(self, op: Any, done: Callable[..., None]) -> None:
        if self.closed:
            raise NotInitialized("closed")
        self.ops.append(op)
        kind = type(op)
        if kind in self.refuses:
            done(None, self.refuses[kind])
        elif kind in self.answers_with:
            done(self.answers_with[kind], None)
        elif isinstance(op, self.slow) and getattr(op, "accept", True):
            self.under_way.append((op, done))
        elif kind is GroupConstruct:
            done(self.form(op.group, *(op.procs or (ME,))), None)
        elif kind in (GroupDestruct, GroupLeave):
            self.states.pop(op.group, None)
            done(None, None)
        elif kind is GroupInviteControl and op.abort:
            done(None, None)
            self.end(GroupInvite, error=ConstructAborted("given up"))
        elif kind is RegisterEventHandler:
            self.handlers[len(self.ops)] = op
            done(len(self.ops), None)
        elif kind is DeregisterEventHandler:
            del self.handlers[op.id]
            done(None, None)
        elif kind is GroupWatch:
            self.watches[op.group] = op
            done(len(self.ops), None)
        else:
            done(None, None)

    def end(self, kind: type, result: Any = None, error: BaseException | None = None) -> None:
        """End what is under way of a kind."""
        for each in [each for each in self.under_way if type(each[0]) is kind]:
            self.under_way.remove(each)
            each[1](result, error)
        self.wake()

    def end_once_asked(self, kind: type, *members: Proc) -> None:
        """Form the group that an operation of a kind waits for, on another thread, as soon as it is under way."""

        def end() -> None:
            deadline = time.monotonic() + 10
            while not any(type(op) is kind for op, _ in self.under_way):
                assert time.monotonic() < deadline, f"no {kind.__name__} is under way"
                time.sleep(0.001)
            self.end(kind, self.form("g", *members))

        threading.Thread(target=end, daemon=True).start()

    def answered(self, kind: str, proc: Proc, reason: str = "") -> None:
        """An invited proc answers."""
        for op, _ in self.under_way:
            op.answers(GroupAnswer(kind, proc, reason))
        self.wake()

    def over(self, name: str) -> None:
        """No change of a group can come any more."""
        ended = self.watches[name].ended
        assert ended is not None
        ended(None)
        self.wake()

    def asked(self, kind: type) -> list[Any]:
        return [op for op in self.ops if type(op) is kind]

    def tell(self, kind: str, name: str, *procs: Proc, **changes: Any) -> None:
        """Something happens to a group."""
        state = self.states[name] = self.states[name].replace(**changes)
        self.watches[name].changed(GroupChange(kind, state, procs))
        self.wake()

    def raises(self, delivery: Delivery) -> Delivery:
        """An event comes to the handlers of its code."""
        for handler in list(self.handlers.values()):
            if delivery.notification.code in handler.codes:
                handler.handler(delivery)
        self.wake()
        return delivery


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Groups:
    fake = Groups()
    monkeypatch.setattr(client_module, "open_client", lambda *_: fake)
    return fake


@pytest.fixture
def me(session: Groups) -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def until(true: Callable[[], object]) -> None:
    with anyio.fail_after(5):
        while not true():
            await anyio.sleep(0.001)
