"""Jobs that a resource manager starts with `Host.launch` stop for the debugger that has spawned them."""

from __future__ import annotations

import sys

import pytest

from lib import machine, pairings
from lib.running import Jobs

EXAMPLES = machine.ROOT / "docs" / "examples"

MANAGER = """
import asyncio, sys
from pypmix import attrs
from pypmix.host import Host

class Manager(Host):
    {methods}
    async def spawn(self, request):
        if {default}:
            return self.default(request)
        given = {{"directives": {directives}}} if {given} else {{}}
        job = await self.launch(request.apps, near=request.requestor, forward_output=True, **given)
        return job.nspace

async def main():
    async with Manager() as host:
        async with host.start(host.job("first", np=1, argv=sys.argv[1:]), forward_output=True) as processes:
            codes = await processes.wait(timeout=60)
    return codes[0]

sys.exit(asyncio.run(main()))
"""

DEBUGGER = """
import sys
from pypmix import Client, EventCode, NotSupported, attrs
from pypmix.types import App

app = App(sys.executable, argv=[sys.executable, {hello!r}], maxprocs=2, info=[{of_app}])
with Client() as me, me.events(EventCode.READY_FOR_DEBUG) as ready:
    try:
        job = me.spawn([app], info=[{of_spawn}])
    except NotSupported as error:
        print("refused:", error)
        sys.exit(3)
    event = ready.get(timeout=60)
    print("stopped at", event.info[attrs.BREAKPOINT.key], *[proc.rank for proc in event.affected], flush=True)
    me.notify(EventCode.DEBUGGER_RELEASE, targets=job, non_default=True, cache=False)
    print("exit code", job.wait(timeout=60))
"""

ALL = 4294967294
"""The rank of an event about all ranks of a job."""


@pytest.fixture(params=["python", "native"])
def manage(request, job_folder):
    """Run a command as the one rank of a resource manager of the test, with an engine."""
    client = next(name for name in pairings.clients() if name.startswith(request.param))
    pairings.require_client(client)
    jobs = Jobs(job_folder)

    def run(command, default="False", given=False, directives="None", methods=""):
        code = MANAGER.format(default=default, given=given, directives=directives, methods=methods)
        line = [sys.executable, "-c", code, *command]
        return jobs.begin(line, environment=pairings.client_environment(client)).wait()

    yield run
    jobs.end()


def debugger(of_spawn="", of_app=""):
    hello = str(EXAMPLES / "hello.py")
    return [sys.executable, "-c", DEBUGGER.format(hello=hello, of_spawn=of_spawn, of_app=of_app)]


@pytest.mark.parametrize(
    ("command", "stopped"),
    [
        (debugger("attrs.DEBUG_STOP_IN_INIT(True)"), f"pmix-init {ALL}"),
        (debugger("attrs.DEBUG_STOP_ON_EXEC(True)"), f"pmix-exec {ALL}"),
        (debugger(of_app="attrs.DEBUG_STOP_IN_INIT(True)"), f"pmix-init {ALL}"),
    ],
    ids=["in init", "at the first instruction", "an info of the application"],
)
def test_ranks_of_a_launch_stop(manage, command, stopped):
    job = manage(command)
    assert job.exit_code == 0, job.report()
    assert f"stopped at {stopped}\n" in job.stdout
    assert "exit code 0\n" in job.stdout
    # All ranks were held until the release.
    assert job.stdout.index("stopped at") < job.stdout.index("hello from")


@pytest.mark.parametrize(
    "methods",
    [
        "def notify_event(self, request): print('event', int(request.code), flush=True)",
        "async def notify_event(self, request): return self.default(request)",
    ],
    ids=["answers", "leaves it to the default"],
)
@pytest.mark.parametrize("stop", ["IN_INIT", "ON_EXEC"])
def test_ranks_of_a_launch_stop_where_the_host_has_a_method_for_events(manage, methods, stop):
    job = manage(debugger(f"attrs.DEBUG_STOP_{stop}(True)"), methods=methods)
    assert job.exit_code == 0, job.report()
    point = {"IN_INIT": "pmix-init", "ON_EXEC": "pmix-exec"}[stop]
    assert job.stdout.count(f"stopped at {point} {ALL}\n") == 1
    assert "exit code 0\n" in job.stdout


def test_the_directives_of_a_launch_can_be_given(manage):
    job = manage(debugger("attrs.TIMEOUT(60)"), given=True, directives="[attrs.DEBUG_STOP_IN_INIT(True)]")
    assert job.exit_code == 0 and f"stopped at pmix-init {ALL}\n" in job.stdout, job.report()


def test_a_launch_places_no_debugger_daemons(manage):
    job = manage(debugger("attrs.DEBUGGER_DAEMONS(True)"))
    assert job.exit_code == 3, job.report()
    assert "hello from" not in job.stdout
    # The caller gets the status, and the author of the resource manager the reason.
    assert "self.default(request)" in job.stderr, job.report()


def test_a_debugger_gets_its_daemons_from_the_default(manage):
    command = [sys.executable, str(EXAMPLES / "debugging" / "debugger.py"), "2", sys.executable]
    job = manage([*command, str(EXAMPLES / "hello.py")], default="request.has_flag(attrs.DEBUGGER_DAEMONS)")
    assert job.exit_code == 0, job.report()
    for rank in range(2):
        assert f"daemon {rank}: rank {rank} has " in job.stdout
    assert "exit code 0\n" in job.stdout
