"""What a Host's directory keeps goes with the proc or the job that it was published for, on whatever node that was."""

from __future__ import annotations

import asyncio

import pytest

from pypmix.host.callbacks.publications import Publications
from pypmix.standard.errors import LostConnection, NotFound
from pypmix.standard.ops import PERSIST_APP, Lookup, Publish
from pypmix.standard.ops.publishing import PERSIST_PROC
from pypmix.standard.types import Info, Proc, Value

pytestmark = pytest.mark.timeout(30)

SESSION = 4
ONE, TWO = Proc("job", 1), Proc("job", 2)


class Asked:
    uid = gid = 1

    def __init__(self, op, requestor):
        self.op = op
        self.requestor = requestor
        self.end = None

    def reply(self, result=None):
        self.end = result

    def fail(self, error):
        self.end = error


async def ask(published, op, proc):
    asked = Asked(op, proc)
    published(asked)
    for _ in range(3):
        await asyncio.sleep(0)
    return asked.end


def publish(key, persistence):
    return Publish((Info(key, Value(3, "x")),), SESSION, persistence)


def test_it_goes_with_the_proc_and_with_the_job():
    async def main():
        published = Publications(asyncio.get_running_loop(), lambda proc: proc.rank)
        for proc in (ONE, TWO):
            assert await ask(published, publish(f"proc.{proc.rank}", PERSIST_PROC), proc) is None
            assert await ask(published, publish(f"app.{proc.rank}", PERSIST_APP), proc) is None
        # From another thread, as a crossing tells it.
        await asyncio.to_thread(published.ended, ONE)
        keys = ("proc.1", "app.1", "proc.2", "app.2")
        found = await ask(published, Lookup(keys), TWO)
        assert sorted(item.key for item in found) == ["app.1", "app.2", "proc.2"]
        published.job_over((ONE, TWO))
        found = await ask(published, Lookup(keys), TWO)
        assert [item.key for item in found] == ["proc.2"]
        published.ended(TWO)
        assert isinstance(await ask(published, Lookup(keys), TWO), NotFound)

    asyncio.run(main())


def test_after_the_host_has_closed_nobody_is_kept_waiting():
    loop = asyncio.new_event_loop()
    published = Publications(loop, lambda proc: 0)
    loop.close()
    published.ended(ONE)
    asked = Asked(Lookup(("key",)), ONE)
    published(asked)
    assert isinstance(asked.end, LostConnection)
