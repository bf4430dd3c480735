"""Two nodes whose programs, Slurm 24.11 and Python are those of a Debian trixie root."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import pypmix
from lib import cluster as clusters
from lib import machine, provision_roots
from lib.cluster import Cluster, Node
from lib.slurm_nodes import Slurm

RUN = ("python3", "-m", "pypmix", "run")
LIMIT = 80.0
CGROUP = "CgroupPlugin=disabled\n"

HOLD = 'mkdir -m 755 /run/munge; mount --bind "$0/hosts" /etc/hosts; touch "$0/$1.up"; exec sleep infinity'


class Inside(Node):
    """A node as what runs in the root there sees it.

    Args:
        node: The node.
        pid: A process that is in the root.
        root: The root, as a folder of the node.
    """

    def __init__(self, node: Node, pid: int, root: str) -> None:
        self.__dict__.update(node.__dict__)
        self.pid = pid
        self.permanent.add(node.pid)
        self._root = root

    def enter(self, command: Sequence[str], *, pid: bool = True) -> list[str]:
        return super().enter(["chroot", self._root, *command], pid=pid)


def in_root(cluster: Cluster, root: provision_roots.Root) -> Cluster:
    """Return a cluster as seen from inside of a root on each of its nodes, which can write to the cluster's folder."""
    package = Path(pypmix.__file__).resolve().parent
    enter = [str(machine.TESTS / "lib" / "enter.sh"), root.folder, cluster.folder, package, root.packages]
    found = copy.copy(cluster)
    found.nodes = {}
    for node in cluster:
        hold = [*enter, machine.ROOT, "sh", "-euc", HOLD, cluster.folder, node.name]
        log = cluster.folder / f"{node.name}.root"
        holder = node.serve("unshare", "--mount", "sh", *map(str, hold), log=log)
        up = cluster.folder / f"{node.name}.up"
        try:
            cluster.until(f"the root on {node.name}", up.exists)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text()}") from None
        found.nodes[node.name] = Inside(node, holder.pid, f"{root.folder}/mnt")
    return found


class Ran:
    """Runs commands of Slurm on the first node."""

    def __init__(self, trixie: Cluster, slurm: Slurm) -> None:
        self._first = trixie["n1"]
        self._environment = {
            **slurm.environment,
            "PYTHONPATH": str(machine.ROOT),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            # The checkout cannot be written to, and the Python is another one.
            "PYTHONPYCACHEPREFIX": "/bytecode",
            "PYTHONDONTWRITEBYTECODE": "",
        }

    def __call__(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = self._first.run(
            *words, env=self._environment, timeout=LIMIT, check=check
        )
        return done


@pytest.fixture(scope="session")
def root() -> provision_roots.Root:
    """The root that was built."""
    found = provision_roots.root("trixie")
    if found is None:
        machine.lacking("the Debian trixie root that tests/lib/provision_roots.py builds")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def trixie(root: provision_roots.Root, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes with the root."""
    if clusters.lacking():
        machine.lacking(clusters.lacking())
    found = Cluster(2, tmp_path_factory.mktemp("trixie"))
    try:
        yield in_root(found.open(), root)
    finally:
        found.close()


@pytest.fixture(scope="module")
def slurm(trixie: Cluster) -> Slurm:
    """Slurm on the nodes, as Debian has it."""
    return Slurm(trixie, CGROUP).start()


@pytest.fixture
def ran(trixie: Cluster, slurm: Slurm) -> Ran:
    return Ran(trixie, slurm)
