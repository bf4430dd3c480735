"""Jobs of warm ranks: forked from one process for all tests, under a host in this one.

`import asyncio` costs as much as all else that a rank does, and the start of `pypmix run` as much as a rank. Jobs in
the asyncio form that need no launcher are spared both; those in the blocking form run under `pypmix run`.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from lib import machine
from lib.job import Job
from pypmix.extras.forking.servers import ForkServers
from pypmix.host import LocalHost, launch
from pypmix.host.job import Application
from pypmix.host.machine import Machine
from pypmix.host.outcome import TIMED_OUT
from pypmix.host.terms import Terms

MODULES = ("asyncio", "anyio._backends._asyncio", "pypmix.aio", "lib.blocking", "pickle", "marshal")


class WarmMachine(Machine):
    """Forks the ranks of the first job; those that these spawn it starts, as a fork server of theirs would be left."""

    host: WarmHost

    def start_process(
        self,
        app: Application,
        program: str,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        files: tuple[int, int, int],
        cpus: str = "",
    ) -> tuple[Any, int]:
        if env["PMIX_NAMESPACE"] != self.host.job.nspace:
            with launch.Bound(0, cpus):
                return None, launch.spawn(program, argv, env, files, app.wdir)
        return super().start_process(app, program, argv, env, files, cpus)


class WarmHost(LocalHost):
    """A host of warm ranks."""

    machine_class = WarmMachine
    machine: WarmMachine


@functools.cache
def _forks(folder: str) -> ForkServers:
    """Return the fork servers of this session; the first one has the environment of no job."""
    found = ForkServers(MODULES)
    atexit.register(found.close)
    paths = [str(machine.TESTS), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    env = {**machine.clean_environment(), "PYTHONPATH": os.pathsep.join(paths), "PYTHONFAULTHANDLER": "1"}
    env.pop("PYPMIX_TEST_OWNER", None)
    # The path that a host finds for a job's command: for another one it would start a second fork server.
    python = os.path.abspath(sys.executable)
    found.prepare(Application((python, f"{folder}/rank.py")), python, env, "/", "/")
    return found


def run(job: Job, command: Sequence[str], ranks: int, nodes: int) -> Job:
    """Run a job to its end.

    Args:
        job: The job, which is not started; it has the environment, the time limit and the folder of the results.
        command: The command line of each rank.
        ranks: How many there are.
        nodes: How many nodes are simulated.
    """
    began = time.monotonic()
    app = Application(tuple(command), ranks)
    host = WarmHost(
        [app],
        terms=Terms(tagged=True, stdin=None),
        nodes=nodes,
        env=job.environment,
        timeout=job.limit,
        warm=_forks(os.path.dirname(command[1])),
    )
    host.machine.host = host
    outcome = host.run()
    job.seconds = time.monotonic() - began
    job.exit_code = outcome.code
    job.hung = outcome.reason if outcome.code == TIMED_OUT else ""
    job.say(outcome.reason)
    return job
