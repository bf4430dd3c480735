"""The fixtures of tests on several machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from lib import cluster as clusters
from lib import machine, pairings, slurm_nodes
from lib.cluster import Cluster, Node
from lib.job import TIME_LIMIT, Job, scenario_command
from lib.node_runs import (
    launcher_command,
    over,  # noqa: F401
)

cluster = clusters.cluster
three_nodes = clusters.three_nodes
slurm_on_nodes = slurm_nodes.slurm_on_nodes
nodes_with_slurm = slurm_nodes.nodes_with_slurm


@pytest.fixture
def cluster_of_ipv6(cluster: Cluster) -> Iterator[Cluster]:
    """Machines that have only IPv6 addresses on their network."""
    if not clusters.ipv6():
        machine.lacking("IPv6 in this kernel")
    for node in cluster:
        node.run("ip", "-4", "addr", "flush", "dev", "eth0")
    yield cluster
    for node in cluster:
        node.run("ip", "addr", "add", f"{node.address}/24", "dev", "eth0")


SLOTS = 8
"""Of each node, so that there is room for what is spawned."""


class Launched:
    """Runs jobs over the nodes of a cluster, from its first node, by one of the launchers that are not pypmix's.

    Attributes:
        name: The launcher.
        client: The client of the jobs, by its name in `pairings`.
        cluster: The nodes.
    """

    def __init__(self, name: str, client: str, cluster: Cluster, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.client = client
        self.cluster = cluster
        self._folder = folder
        self._environment = environment
        self._jobs: list[Job] = []

    @property
    def first(self) -> Node:
        return self.cluster["n1"]

    def line(self, ranks: int, nodes: Sequence[str], command: Sequence[str]) -> list[str]:
        """Return the command that runs another one as ranks on some nodes, as many on each, in blocks."""
        each = -(-ranks // len(nodes))
        if self.name == "srun":
            wide = [f"--nodelist={','.join(nodes)}", f"-N{len(nodes)}", f"--ntasks-per-node={each}"]
            start = ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", *wide]
        else:
            hosts = ",".join(f"{node}:{SLOTS}" for node in nodes)
            start = [*launcher_command(self.name), "--host", hosts, "--map-by", f"ppr:{each}:node"]
        return [*start, "-n", str(ranks), *command]

    def begin(
        self,
        command: Sequence[str],
        ranks: int,
        nodes: Sequence[str] = ("n1", "n2"),
        *,
        environment: Mapping[str, str] | None = None,
        limit: float = TIME_LIMIT,
    ) -> Job:
        """Start a command as ranks."""
        folder = self._folder / str(len(self._jobs))
        folder.mkdir()
        variables = {**self._environment, "TMPDIR": "/tmp", "LC_ALL": "C", **(environment or {})}
        job = Job([], folder, environment=variables, limit=limit, popen=self.first.popen)
        # Not every launcher hands the environment on.
        client = pairings.client_environment(self.client)
        own = {name: text for name, text in job.environment.items() if name.startswith("PYPMIX_TEST_")}
        own["PYTHONPATH"] = job.environment["PYTHONPATH"]
        settings = [f"{name}={text}" for name, text in {**own, **client, **(environment or {})}.items()]
        job.command = self.line(ranks, nodes, ["env", *settings, *command])
        self._jobs.append(job)
        return job.start()

    def __call__(self, scenario: str, ranks: int, nodes: Sequence[str] = ("n1", "n2"), **arguments: object) -> list:
        """Run a scenario of the shared suite and return what every rank has returned."""
        job = self.begin(scenario_command(scenario, "sync", arguments), ranks, nodes).wait()
        returned = job.returned()
        assert len(returned) == ranks, job.report()
        return returned


@pytest.fixture
def launched(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], Launched]:
    """Return what runs jobs by a launcher with a client."""

    def make(name: str, client: str) -> Launched:
        pairings.require_client(client)
        environment = {}
        if name == "srun":
            environment = request.getfixturevalue("nodes_with_slurm").environment
        folder = tmp_path / "jobs"
        folder.mkdir()
        return Launched(name, client, request.getfixturevalue("cluster"), folder, environment)

    return make
