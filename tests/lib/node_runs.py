"""Jobs over nodes of namespaces."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lib import machine, pairings
from lib.cluster import Cluster, Node
from lib.job import Job, scenario_command
from lib.processes import Process

WAYS = ("ssh", "salloc", "srun", "symmetric")


NODES = ("n1", "n2")


RUN = (sys.executable, "-m", "pypmix", "run")


RANK = f"{sys.executable} -c"


SLOTS = 4


LIMIT = 60.0


class Started(NamedTuple):
    """A run: the process on each machine that was started by the test; the first one is the launcher."""

    launcher: Job
    others: list[subprocess.Popen[str]]

    def end(self) -> None:
        for process in self.others:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate()


class Runner:
    """Starts `pypmix run` over two machines, or as many as there are, in one of the ways."""

    def __init__(self, way: str, cluster: Cluster, environment: dict[str, str], folder: Path) -> None:
        self.way = way
        self.cluster = cluster
        self._environment = environment
        self._folder = folder
        self._runs: list[Started] = []

    def line(self, options: Sequence[str], command: Sequence[str], nodes: Sequence[str]) -> list[str]:
        words = [*options, *command]
        slots = ["--nodelist", ",".join(nodes), f"-N{len(nodes)}"]
        if self.way == "ssh":
            return [*RUN, "--host", ",".join(f"{node}:{SLOTS}" for node in nodes), *words]
        if self.way == "salloc":
            return ["salloc", "--quiet", *slots, f"--ntasks-per-node={SLOTS}", *RUN, *words]
        if self.way == "srun":
            return ["srun", *slots, "--ntasks-per-node=1", f"--cpus-per-task={SLOTS}", *RUN, *words]
        if self.way == "prrte":
            slots = ",".join(f"{node}:{SLOTS}" for node in nodes)
            return [*RUN, "--roster", "prrte", "--host", slots, "--node-timeout", "60", *words]
        return [*RUN, *self._symmetric(0, nodes), *words]

    def _symmetric(self, place: int, nodes: Sequence[str]) -> list[str]:
        secret = self._folder / "secret"
        if not secret.exists():
            secret.touch(0o600)
            secret.write_text(secrets.token_hex(32))
        return ["--symmetric", f"{place}/{len(nodes)}", "--meet", f"{nodes[0]}:7777", "--secret-file", str(secret)]

    def begin(
        self,
        ranks: int,
        *command: str,
        options: Sequence[str] = (),
        nodes: Sequence[str] = NODES,
        client: str = "python-client",
        stdin: str = "",
        limit: float = LIMIT,
        first: str = "",
    ) -> Started:
        """Start a command as ranks; `first` is the launcher's machine, the first of the nodes by default."""
        folder = self._folder / str(len(self._runs))
        folder.mkdir()
        environment = {**self._environment, "TMPDIR": "/tmp"}
        popen = self.cluster[first or nodes[0]].popen
        job = Job([], folder, environment=environment, limit=limit, stdin=stdin, popen=popen)
        own = {name: text for name, text in job.environment.items() if name.startswith("PYPMIX_TEST_")}
        own["PYTHONPATH"] = job.environment["PYTHONPATH"]
        settings = [f"{name}={text}" for name, text in {**own, **pairings.client_environment(client)}.items()]
        # What is started by hand has as many slots as it has CPUs.
        crowded = ["--oversubscribe"] if self.way == "symmetric" and "--oversubscribe" not in options else []
        options = ["-n", str(ranks), *crowded, *options]
        command = ("env", *settings, *command)
        job.command = self.line(options, command, nodes)
        others = []
        if self.way == "symmetric":
            for place, node in list(enumerate(nodes))[1:]:
                words = [*RUN, *self._symmetric(place, nodes), *options, *command]
                others.append(self.cluster[node].start(*words, stdout=-1, stderr=subprocess.STDOUT))
        self._runs.append(Started(job.start(), others))
        return self._runs[-1]

    def __call__(self, ranks: int, *command: str, **options: Any) -> Job:
        """Run a command as ranks to the end."""
        started = self.begin(ranks, *command, **options)
        job = started.launcher.wait()
        for process in started.others:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"no end on another machine\n{self.cluster.report()}\n{job.report()}") from None
        return job

    def scenario(self, name: str, ranks: int, *, options: Sequence[str] = (), **arguments: object) -> list[Any]:
        """Run a scenario of the shared suite and return what every rank has returned."""
        returned = self(ranks, *scenario_command(name, "sync", arguments), options=options).returned()
        assert len(returned) == ranks
        return returned

    def until_said(self, started: Started, text: str, times: int = 1, seconds: float = 40) -> list[str]:
        """Wait until a pattern has been written so many times, and return what was found."""
        job = started.launcher

        def there() -> bool:
            assert len(re.findall(text, job.stdout)) >= times or os.path.exists(f"/proc/{job.pid}/exe"), ended()
            return len(re.findall(text, job.stdout)) >= times

        def ended() -> str:
            return f"it ended before it said {text!r}\n{job.wait().report()}"

        try:
            self.cluster.until(text, there, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{job.stdout}\n{job.stderr}") from None
        return re.findall(text, job.stdout)

    def daemon(self, node: Node) -> Process:
        """Return the process that serves the ranks of a machine: their parent."""
        found = {process.pid: process for process in node.processes()}
        (parent,) = {process.parent for process in found.values() if process.command.startswith(RANK)} & found.keys()
        return found[parent]

    def close(self) -> None:
        for started in self._runs:
            started.end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.launcher.kill()


@pytest.fixture
def over(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runner]:
    """Start runs in a way."""
    environment: dict[str, str] = {}
    if request.param in ("salloc", "srun"):
        environment = request.getfixturevalue("nodes_with_slurm").environment
    folder = tmp_path / "runs"
    folder.mkdir()
    found = Runner(request.param, request.getfixturevalue("cluster"), environment, folder)
    yield found
    found.close()


def ways(*names: str) -> pytest.MarkDecorator:
    """Repeat a test for ways to start on several machines."""
    return pytest.mark.parametrize("over", names or WAYS, indirect=True)


def succeeded(job: Job) -> Job:
    assert job.exit_code == 0 and not job.hung, job.report()
    return job


def launcher_command(name: str) -> list[str]:
    """Return the beginning of a launcher's command line.

    The wheel's programs look for each other where they were built, unless they are told.
    """
    for launcher in machine.launchers():
        if launcher.name.startswith(name):
            if name == "mpirun":
                return [launcher.path, "--allow-run-as-root"]
            return [launcher.path, "--allow-run-as-root", "--prefix", str(Path(launcher.path).parent.parent)]
    machine.lacking(f"the launcher {name}")
    raise AssertionError
