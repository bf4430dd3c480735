"""Proves what becomes of operations whose tasks are cancelled, at a session that is made up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from pypmix.aio.pump import Pump
from pypmix.standard.errors import NotInitialized
from pypmix.standard.ops import Connect, Fence
from pypmix.standard.types import Proc

pytestmark = pytest.mark.timeout(30)


class Session:
    """A session whose operations end when the test says so."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0)
        self.closed = False
        self.submitted: list[tuple[Any, Any]] = []

    def fileno(self) -> int:
        return self.fd

    def attach(self) -> None:
        """Nothing has to be told."""

    detach = close = attach

    def poll(self) -> None:
        os.eventfd_read(self.fd)

    def withdraw(self, done: Any) -> bool:
        return False

    def submit(self, op: Any, done: Any) -> None:
        if self.closed:
            raise NotInitialized("the client is finalized")
        self.submitted.append((op, done))


@pytest.mark.parametrize("closed", [False, True])
def test_what_a_cancelled_task_has_begun_is_taken_back_as_long_as_there_is_a_session(closed: bool) -> None:
    async def cancel() -> None:
        session = Session()
        pump: Any = Pump(session)  # type: ignore[arg-type]
        task = asyncio.ensure_future(pump.run("register", lambda number: f"deregister {number}"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        session.closed = closed
        ((_, done),) = session.submitted
        done(7, None)
        assert [op for op, _ in session.submitted[1:]] == ([] if closed else ["deregister 7"])
        os.close(session.fd)

    asyncio.run(cancel())


ALL = (Proc("job", 0), Proc("job", 1))


async def cancel_ended(pump: Any, session: Session, op: Any, *undo: Any) -> None:
    """Cancel the task of an operation that has ended, before the task runs again."""
    task = asyncio.ensure_future(pump.run(op, *undo))
    while not session.submitted:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    _, done = session.submitted.pop()
    done("the result", None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    yield session
    os.close(session.fd)


def test_a_collective_that_ended_before_its_task_was_cancelled_is_the_answer_to_the_next_call(session) -> None:
    async def cancel() -> None:
        pump: Any = Pump(session)  # type: ignore[arg-type]
        # Another task reads, so that the end is here before the task that waits is awake.
        pump.serve()
        await asyncio.sleep(0)
        await cancel_ended(pump, session, Fence(ALL))
        assert await pump.run(Fence(ALL[::-1])) == "the result"
        assert not session.submitted
        # It is the answer to one call, and to no other collective.
        for op in (Fence(ALL), Fence(ALL[:1])):
            task = asyncio.ensure_future(pump.run(op))
            await asyncio.sleep(0)
            assert session.submitted.pop()[0] is op
            task.cancel()
        pump.close()

    asyncio.run(cancel())


def test_what_ended_before_its_task_was_cancelled_is_taken_back(session) -> None:
    async def cancel() -> None:
        pump: Any = Pump(session)  # type: ignore[arg-type]
        pump.serve()
        await asyncio.sleep(0)
        await cancel_ended(pump, session, Connect(ALL), lambda made: f"disconnect {made}")
        assert [op for op, _ in session.submitted] == ["disconnect the result"]
        pump.close()

    asyncio.run(cancel())
