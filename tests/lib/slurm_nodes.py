"""Slurm on a cluster of the tests: slurmctld on the first node, a slurmd and a munged on each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import machine, slurm
from lib.cluster import Cluster, Node

CPUS = 4
"""CPUs of a node: as many tasks get room on it."""

CONFIGURATION = """
KillWait=10
SlurmctldHost={first.name}({first.address})
TmpFS=/tmp
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
"""

MUNGE = "/run/munge/munge.socket.2"
"""Where clients look for it."""


class Slurm:
    """Slurm on all nodes of a cluster; it ends with the cluster.

    Args:
        cluster: The nodes.
        cgroup: The text of cgroup.conf, which newer releases read in any case; empty for none.
        plugins: The folder of Slurm's plugins, if it is not where the package has it.

    Attributes:
        environment: What commands of Slurm need on a node.
    """

    def __init__(self, cluster: Cluster, cgroup: str = "", plugins: str = "") -> None:
        self._cluster = cluster
        self._cgroup = cgroup
        self._plugins = plugins
        self._folder = cluster.folder / "slurm"
        self.environment = {"SLURM_CONF": str(self._folder / "slurm.conf")}

    def start(self) -> Slurm:
        """Start the daemons, and wait until the nodes take jobs.

        Raises:
            AssertionError: They did not come up.
        """
        folder = self._folder
        for path in (folder, folder / "state", *(folder / node.name for node in self._cluster)):
            path.mkdir(mode=0o755)
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        first, *_ = self._cluster
        text = (slurm.COMMON + CONFIGURATION).format(folder=folder, first=first)
        text += "".join(f"NodeName={node.name} NodeAddr={node.address} CPUs={CPUS}\n" for node in self._cluster)
        text += f"PluginDir={self._plugins}\n" if self._plugins else ""
        Path(self.environment["SLURM_CONF"]).write_text(text)
        if self._cgroup:
            (folder / "cgroup.conf").write_text(self._cgroup)
        for node in self._cluster:
            files = (f"--{name}={folder}/{node.name}/{name}" for name in ("pid-file", "log-file", "seed-file"))
            self._serve(node, "munged", "--foreground", "--force", "--num-threads=2", f"--key-file={key}", *files)
        for node in self._cluster:
            self._until(f"munged on {node.name}", lambda node=node: os.path.exists(f"/proc/{node.pid}/root{MUNGE}"))
        self._serve(first, "slurmctld", "-D")
        for node in self._cluster:
            self._serve(node, "slurmd", "-D", "-N", node.name)
        self._until("the nodes of Slurm", self._idle)
        # slurmctld has a process for its scripts.
        first.settled()
        return self

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until no job is there and all nodes take new ones."""
        self._cluster.until("an idle Slurm", lambda: self._idle() and not self._ask("squeue", "-h"), seconds)

    def cancel(self) -> None:
        """End all jobs."""
        self._ask("scancel", "--user=root", "--full", "--signal=KILL")
        self._ask("scancel", "--user=root")
        self.settle()

    def _idle(self) -> bool:
        return self._ask("sinfo", "-h", "-o", "%t").split() == ["idle"]

    def _ask(self, *command: str) -> str:
        first, *_ = self._cluster
        return first.run(*command, check=False, env=self.environment).stdout

    def _serve(self, node: Node, *command: str) -> subprocess.Popen[bytes]:
        log = self._folder / f"{node.name}.{command[0]}.out"
        return node.serve(*command, log=log, env=self.environment)

    def _until(self, what: str, there: object) -> None:
        try:
            self._cluster.until(what, there, slurm.READY)  # type: ignore[arg-type]
        except AssertionError as error:
            logs = [f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}" for path in self._folder.glob("*.out")]
            raise AssertionError(f"{error}\n" + "\n".join(logs)) from None


@pytest.fixture(scope="session")
def slurm_on_nodes(three_nodes: Cluster) -> Slurm:
    """Slurm on the three nodes for the rest of the session."""
    if slurm.lacking():
        machine.lacking(slurm.lacking())
    return Slurm(three_nodes).start()


@pytest.fixture
def nodes_with_slurm(slurm_on_nodes: Slurm, cluster: Cluster) -> Iterator[Slurm]:
    """Slurm on the nodes, without a job before the test and after it."""
    yield slurm_on_nodes
    try:
        slurm_on_nodes.settle(10)
    except AssertionError:
        slurm_on_nodes.cancel()
        raise
