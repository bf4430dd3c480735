"""Proves what becomes of operations whose tasks are cancelled, at a session that is made up."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from pypmix.aio.pump import Pump
from pypmix.standard.errors import NotInitialized

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
