"""Dask and Ray clusters that tests start, and the drivers of their jobs."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from lib import cluster as clusters
from lib import machine, provision
from lib.cluster import Cluster, Node
from lib.processes import Process, tree

FRAMEWORKS = provision.FOLDER / "frameworks" / "bin"


DRIVER = str(Path(__file__).parents[1] / "frameworks" / "driver.py")


OURS = re.compile(r"-m pypmix node|pypmix-guard|frameworks\.calling|import Client|_Actor")


EPHEMERAL = 32768


PORTS = (
    "node-manager", "object-manager", "metrics-export", "runtime-env-agent", "dashboard-agent-grpc",
    "dashboard-agent-listen",
)  # fmt: skip


UP = 120.0


SECONDS = 200.0


T = TypeVar("T", bound="Framework")


class Framework:
    """A cluster of Dask or Ray over three machines, which is there for the tests of a module.

    Args:
        cluster: The machines.
        folder: Where logs are written.
    """

    kind = ""
    walled = False

    def wall(self) -> None:
        """Have a firewall on each machine that lets only ports below `EPHEMERAL` be dialed on others, as the engine's.

        What is sent to other ports is dropped without a word, or refused on the last machine.
        """
        self.walled = True
        for node in self.cluster:
            network = f"{clusters.NETWORK}.0/24"
            nowhere = f"{clusters.NETWORK}.250"
            node.run("ip", "neigh", "add", nowhere, "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
            node.run("ip", "route", "add", "default", "via", nowhere, "dev", "eth0", "table", "99")
            refuse = ["prohibit"] if node.name == "n3" else ["lookup", "99"]
            for place, words in enumerate(
                (
                    ["sport", f"1-{EPHEMERAL - 1}", "lookup", "main"],
                    ["dport", f"{EPHEMERAL}-65534", *refuse],
                )
            ):
                node.run("ip", "rule", "add", "pref", str(100 + place), "to", network, "ipproto", "tcp", *words)

    def _unwall(self) -> None:
        for node in self.cluster:
            for place in (100, 101):
                node.run("ip", "rule", "del", "pref", str(place))
            node.run("ip", "route", "flush", "table", "99")
            node.run("ip", "neigh", "del", f"{clusters.NETWORK}.250", "dev", "eth0")

    def open(self) -> None:
        raise NotImplementedError

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.address = ""
        self._started: list[subprocess.Popen[str]] = []

    def serve(self, node: Node, name: str, *words: str) -> subprocess.Popen[str]:
        with (self.folder / f"{node.name}-{name}.log").open("w") as log:
            # Not one of the test that happens to start it.
            env = {**self.environment, "PYPMIX_TEST_OWNER": ""}
            started = node.start(str(FRAMEWORKS / words[0]), *words[1:], env=env, stdout=log, stderr=log)
        self._started.append(started)
        return started

    @property
    def environment(self) -> dict[str, str]:
        pypmix = {"PYTHONPATH": str(machine.ROOT), "PATH": f"{FRAMEWORKS}:{os.environ['PATH']}"}
        # Ray would have its workers give way to all else on a busy machine.
        ray = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
        return {**pypmix, **ray, "HOME": str(self.folder)}

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a program of the frameworks' Python on the first machine."""
        pipe = subprocess.PIPE
        # Its lines are whole, as it flushes them itself: unbuffered, `print` writes word by word, and Ray has threads
        # that print.
        return self.cluster["n1"].start(FRAMEWORKS / "python", *words, env=self.environment, stdout=pipe, stderr=pipe)

    def run(self, *words: str) -> str:
        """Run a program to its end, after which nothing of it may be left; return what it has printed."""
        process = self.begin(*words)
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            report = self.cluster.report()
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"no end in {SECONDS:g} s\n{report}\n{out}\n{err}") from None
        assert process.returncode == 0, f"{out}\n{err}\n{self.logs()}"
        self.gone(60.0)
        return str(out)

    def waiting(self, node: str) -> subprocess.Popen[str]:
        """Start the driver, and return it once its ranks on all machines wait for those of one."""
        process = self.begin(DRIVER, self.kind, self.address, "waits", node)
        assert process.stdout is not None
        count = 0
        deadline = time.monotonic() + SECONDS
        while count < 6:
            line = process.stdout.readline()
            assert line and time.monotonic() < deadline, f"the ranks do not come\n{self.logs()}"
            count += line.startswith("ready")
        return process

    def ours(self) -> list[Process]:
        """Return the processes of sessions."""
        return [each for node in self.cluster for each in node.processes() if OURS.search(each.command)]

    def gone(self, seconds: float) -> None:
        """Nothing of a session is left in time."""
        deadline = time.monotonic() + seconds
        while left := self.ours():
            assert time.monotonic() < deadline, f"left behind:\n{tree(left)}\n{self.logs()}"
            time.sleep(0.05)
        left_folders = [str(path) for node in self.cluster for path in node.tmp.glob("pypmix-*")]
        assert not left_folders

    def find(self, node: str, pattern: str) -> Process:
        """Return the process of a machine whose command line matches."""
        return next(each for each in self.cluster[node].processes() if re.search(pattern, each.command))

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log"))

    def close(self) -> None:
        if self.walled:
            self._unwall()
        for process in self._started:
            process.kill()
        for node in self.cluster:
            for each in node.processes():
                # Some end by themselves when what they belong to is gone.
                with contextlib.suppress(ProcessLookupError):
                    self.cluster.kill(each)
        for process in self._started:
            process.wait()


class Dask(Framework):
    kind = "dask"

    def open(self) -> None:
        first = self.cluster["n1"]
        self.address = f"tcp://{first.address}:8786"
        self.serve(first, "scheduler", "dask", "scheduler", "--host", first.address, "--no-dashboard")
        for node in self.cluster:
            self.add(node)
        self.complete()

    def complete(self, workers: int = 3) -> None:
        """Wait until the scheduler has so many workers: one that was started is no node before that."""
        code = "import sys; from distributed import Client\n"
        code += "Client(sys.argv[1], timeout=100).wait_for_workers(int(sys.argv[2]), 100)"
        self.run("-c", code, self.address, str(workers))

    def add(self, node: Node, more: str = "", port: int = 0) -> None:
        """Start a worker, at any port of its machine by default."""
        name = f"w-{node.name}{more}"
        words = ["--host", node.address, "--nthreads", "2", "--no-nanny", "--no-dashboard", "--name", name]
        if port or self.walled:
            words += ["--worker-port", str(port or 9000)]
        self.serve(node, name, "dask", "worker", self.address, *words)


class Ray(Framework):
    kind = "ray"

    def open(self) -> None:
        first = self.cluster["n1"]
        self.address = f"{first.address}:6379"
        for node in self.cluster:
            more = [
                "--node-ip-address",
                node.address,
                "--num-cpus",
                "2",
                "--object-store-memory",
                "80000000",
                "--block",
            ]
            if self.walled:
                more += [f"--{name}-port={6400 + place}" for place, name in enumerate(PORTS)]
                more += ["--min-worker-port=10002", "--max-worker-port=10100"]
            if node is first:
                self._start(node, 1, "--head", "--port=6379", "--include-dashboard=false", *more)
            else:
                # Ray gives up on a machine that is busy for 30 s.
                self._start(node, 2, f"--address={self.address}", *more)
        code = "import ray, sys, time; ray.init(address=sys.argv[1])\n"
        code += "while len([n for n in ray.nodes() if n['Alive']]) < 3: time.sleep(0.2)"
        self.run("-c", code, self.address)

    def _start(self, node: Node, tries: int, *words: str) -> None:
        """Start Ray on a machine, and wait until it says that it has: what asks it before may wait in vain."""
        log = self.folder / f"{node.name}-ray.log"
        started = self.serve(node, "ray", "ray", "start", *words)

        def runs() -> bool:
            nonlocal started, tries
            if started.poll() is not None and tries > 1:
                tries -= 1
                started = self.serve(node, "ray", "ray", "start", *words)
            assert started.poll() is None, self.logs()
            return "Ray runtime started" in log.read_text()

        self.cluster.until(f"Ray on {node.name}", runs, UP)


def opened(framework: T) -> Iterator[T]:
    try:
        framework.open()
        yield framework
    finally:
        framework.close()
