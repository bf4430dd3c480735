"""What a Host's directory keeps goes with the proc or the job that it was published for, on whatever node that was."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from pypmix.host.callbacks.watching import Watching
from pypmix.host.manager import Manager
from pypmix.host.publishing import Publications
from pypmix.standard.errors import LostConnection, NotFound
from pypmix.standard.limits import DEFAULTS
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


def publications(loop):
    """Those of a host whose procs are each on a node of its own."""
    host = SimpleNamespace(
        loop=Watching(loop),
        limits=DEFAULTS,
        at_rank_end=[],
        node_number=lambda proc: proc.rank,
        find=lambda proc: None,
    )
    host.soon = partial(Manager.soon, host)
    return Publications(host)


async def ask(published, op, proc):
    asked = Asked(op, proc)
    published.post(asked)
    for _ in range(3):
        await asyncio.sleep(0)
    return asked.end


def publish(key, persistence):
    return Publish((Info(key, Value(3, "x")),), SESSION, persistence)


def test_it_goes_with_the_proc_and_with_the_job():
    async def main():
        published = publications(asyncio.get_running_loop())
        for proc in (ONE, TWO):
            assert await ask(published, publish(f"proc.{proc.rank}", PERSIST_PROC), proc) is None
            assert await ask(published, publish(f"app.{proc.rank}", PERSIST_APP), proc) is None
        # From another thread, as a crossing tells it.
        await asyncio.to_thread(published.remove_proc, ONE)
        keys = ("proc.1", "app.1", "proc.2", "app.2")
        found = await ask(published, Lookup(keys), TWO)
        assert sorted(item.key for item in found) == ["app.1", "app.2", "proc.2"]
        published.job_over((ONE, TWO))
        found = await ask(published, Lookup(keys), TWO)
        assert [item.key for item in found] == ["proc.2"]
        published.remove_proc(TWO)
        assert isinstance(await ask(published, Lookup(keys), TWO), NotFound)

    asyncio.run(main())


def test_after_the_host_has_closed_nobody_is_kept_waiting():
    loop = asyncio.new_event_loop()
    published = publications(loop)
    loop.close()
    published.remove_proc(ONE)
    asked = Asked(Lookup(("key",)), ONE)
    published.post(asked)
    assert isinstance(asked.end, LostConnection)
