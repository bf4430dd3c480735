"""The nodes of a host: this machine or, for development and tests, several that are simulated on it."""

from __future__ import annotations

import math
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pypmix.engine.base import OnUpcall
    from pypmix.server import Server

    Wrap = Callable[[OnUpcall, str], OnUpcall]

MAX_NODES = 256

CGROUPS = "/sys/fs/cgroup"


class LocalNode:
    """A node: its name, its folder, its server.

    Args:
        number: Its place among the nodes (PMIX_NODEID).
        hostname: Its name.
        tmpdir: Its temporary folder, which is made with the first job on it.
        server: Makes its server, given the node.

    Attributes:
        server: Its server; to be opened.
        running: How many ranks run on it, of all jobs.
    """

    def __init__(self, number: int, hostname: str, tmpdir: str, server: Callable[[LocalNode], Server]) -> None:
        self.number = number
        self.hostname = hostname
        self.tmpdir = tmpdir
        self.running = 0
        self.server = server(self)

    def folder(self, job: int) -> str:
        """Return the folder here of a job, by the job's number."""
        return self.tmpdir if job == 1 else os.path.join(self.tmpdir, f"job-{job}")

    def __str__(self) -> str:
        return self.hostname


def usable_cpus() -> int:
    """Return how many CPUs this process and its children may use at a time, by affinity and by control groups."""
    found = float(len(os.sched_getaffinity(0)))
    for folder in _control_groups():
        # A limit of each group above holds too; inside a container the path may begin somewhere above its root.
        while folder.startswith(CGROUPS):
            found = min(found, _quota(folder))
            folder = os.path.dirname(folder)
    return max(1, math.ceil(found))


def _control_groups() -> list[str]:
    """Return the folders of this process's control groups that may limit CPU time, of both versions."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    found = [f"{CGROUPS}{path}" for number, _, path in lines if number == "0"]
    found += [f"{CGROUPS}/cpu{path}" for _, kinds, path in lines if "cpu" in kinds.split(",")]
    return [folder.rstrip("/") for folder in found]


def _quota(folder: str) -> float:
    """Return how many CPUs a control group's bandwidth is worth; infinity where it has no limit."""
    words: list[str] = []
    try:
        for name in ("cpu.max",) if os.path.exists(f"{folder}/cpu.max") else ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
            with open(f"{folder}/{name}", encoding="ascii") as file:
                words += file.read().split()
        quota, period = map(int, words)
    except (OSError, ValueError):
        # There is no such file, or it says `max`.
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf


def check_nodes(count: int, engine: str) -> None:
    """Raise `ValueError` if a host cannot have so many nodes with servers on an engine."""
    if type(count) is not int or not 1 <= count <= MAX_NODES:
        raise ValueError(f"a host has 1 to {MAX_NODES} nodes, not {count}")
    if count > 1 and engine != "python":
        raise ValueError(
            f"{count} nodes need a server each, and libpmix has one server in a process: "
            "several nodes are simulated with the python engine's servers only"
        )


def in_blocks(size: int, nodes: Sequence[LocalNode]) -> list[tuple[LocalNode, tuple[int, ...]]]:
    """Place ranks on nodes, a block of consecutive ones on each, and return those that hold any with their ranks.

    Of more nodes than ranks, those are taken that run the fewest.
    """
    if size < len(nodes):
        nodes = sorted(sorted(nodes, key=lambda node: node.running)[:size], key=lambda node: node.number)
    each, more = divmod(size, len(nodes))
    found = []
    first = 0
    for number, node in enumerate(nodes):
        end = first + each + (number < more)
        found.append((node, tuple(range(first, end))))
        first = end
    return found
