"""What runs in the processes of the host suite: resource managers, and the clients of their jobs.

`python -m lib.hosted host TOPIC.FUNCTION` runs a program of `foreign/hosts/programs` as a host, `pair` does so in two
processes that are the two nodes of one session, and `client TOPIC.FUNCTION ARGUMENTS` is a rank of a job.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pypmix

WAIT = 20
"""Seconds for what takes a moment; a test ends long before they are over unless something hangs."""

STRICT = ("-X", "dev", "-W", "error")
"""How hosts run: what nobody awaits or closes is an error."""

SETTINGS = "PYPMIX_TEST_HOST"
"""Where the test says which engines: a server and a client, as JSON."""


def find(name):
    """Return a function by topic and name."""
    topic, _, function = name.partition(".")
    return getattr(importlib.import_module(f"foreign.hosts.programs.{topic}"), function)


class Cell:
    """The engines of one test, for a program that is a host.

    Attributes:
        server: `python`, or `native` with its release.
        client: The same of the clients.
        library: The path of the server's library; None for the Python engine.
        node: The name of this node; None where there is one.
        address: The address by which the other node reaches it.
    """

    def __init__(self, node=None, address=None):
        settings = json.loads(os.environ[SETTINGS])
        self.server, self.client = settings["server"], settings["client"]
        self.library = settings["library"]
        self._env = settings["env"]
        self.node = node
        self.address = address
        self._number = 0

    @property
    def native(self):
        """Whether the server is libpmix's."""
        return self.server != "python"

    def host(self, kind=None, **options):
        """Make a host of a class, `Host` by default, on the engine of this test."""
        from pypmix.host import Host

        engine = "native" if self.native else "python"
        return (kind or Host)(engine=engine, library=self.library, **options)

    def command(self, function, *arguments):
        """Return the command line of a rank that calls a function of the same topic with its client."""
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        return [sys.executable, "-m", "lib.hosted", "client", name, json.dumps(arguments)]

    @property
    def env(self):
        """The variables that make clients those of this test."""
        return {**self._env, SETTINGS: os.environ[SETTINGS]}

    def start(self, rm, function, *arguments, job=None, np=1, nodes=None):
        """Start a job whose ranks call a function; the job is `demo` for the first."""
        if job is None:
            self._number += 1
            name = "demo" if self._number == 1 else f"demo{self._number}"
            job = rm.job(name, nodes=nodes) if nodes else rm.job(name, np=np)
        return rm.start(job, self.command(function, *arguments), env=self.env, forward_output=True)

    async def run(self, rm, function, *arguments, **options):
        """Run a job to its end and return what its ranks have returned."""
        async with self.start(rm, function, *arguments, **options) as procs:
            codes = await procs.wait(WAIT)
            assert not any(codes.values()), codes
        return [self.returned(procs.job.proc(rank)) for rank in sorted(codes)]

    @staticmethod
    def returned(proc):
        """Return what a rank has returned."""
        return json.loads(place(proc).read_text())


def place(proc):
    """Return where a rank leaves what it returns."""
    return Path(os.environ["PYPMIX_TEST_RESULTS"]) / f"{proc.nspace.replace('/', '_')}.{proc.rank}"


def status(function, *arguments, **options):
    """Call a function and return the status that it fails with, 0 for a success."""
    try:
        function(*arguments, **options)
    except pypmix.PMIxError as error:
        return int(error.code)
    return 0


async def until(condition, what="it", seconds=WAIT):
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        await asyncio.sleep(0.01)


class Logged(logging.Handler):
    """Keeps what `pypmix.host` logs."""

    def __init__(self):
        super().__init__()
        self.records = []
        logger = logging.getLogger("pypmix.host")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record):
        self.records.append(record)

    def texts(self, level=logging.WARNING):
        """Return the messages of a level and above, with their tracebacks."""
        formatter = logging.Formatter()
        return [formatter.format(record) for record in self.records if record.levelno >= level]


def run_host(name, node=None, address=None):
    logging.basicConfig()
    program = find(name)
    cell = Cell(node, address)
    if inspect.iscoroutinefunction(program):
        asyncio.run(program(cell), debug=False)
    else:
        program(cell)
    deadline = time.monotonic() + 5
    while (left := [t for t in threading.enumerate() if t.name.startswith("pypmix") and not idle(t)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.01)
    assert not left, f"threads are left: {left}"
    print("host passed", flush=True)


def idle(thread):
    """Tell whether a thread may be left: a worker that goes when nobody has work for it."""
    return thread.name.startswith("pypmix-host-")


def run_pair(name, *places):
    """Run the two nodes of a session; the end of one that fails is the end of both.

    Args:
        name: The program.
        places: A network namespace and an address in it for each node; both are here if there are none.
    """
    nodes = []
    for node, place in zip(("n0", "n1"), places or ("=127.0.0.1",) * 2, strict=True):
        namespace, _, address = place.partition("=")
        enter = ["ip", "netns", "exec", namespace] if namespace else []
        command = [*enter, sys.executable, *STRICT, "-m", "lib.hosted", "host", name, node, address]
        nodes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
    codes = []
    try:
        codes = [node.wait(2 * WAIT) for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                node.kill()
    assert codes == [0, 0], codes


def run_client(name, arguments):
    function = find(name)
    with pypmix.Client() as me:
        result = function(me, *json.loads(arguments))
        place(me.proc).write_text(json.dumps(result))


if __name__ == "__main__":
    {"host": run_host, "pair": run_pair, "client": run_client}[sys.argv[1]](*sys.argv[2:])
