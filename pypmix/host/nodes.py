"""The nodes of a host: this machine or, for development and tests, several simulated nodes on it."""

from __future__ import annotations

import math
import os

from pypmix.host.folders import remove_job
from pypmix.standard.errors import NotSupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pypmix.arguments import Procs
    from pypmix.engine.base import OnUpcall, ServerSession
    from pypmix.engine.common import Pending
    from pypmix.host.job import JobLayout
    from pypmix.host.machine import Machine
    from pypmix.host.running import RunningJob
    from pypmix.server import Server
    from pypmix.standard.ops import Notification, Output
    from pypmix.standard.types import Proc
    from pypmix.topology.shape import Shape

    Wrap = Callable[[OnUpcall, str], OnUpcall]

MAX_NODES = 256

CGROUPS = "/sys/fs/cgroup"


class HostNode:
    """A node of a host: its name, its folder, and the operations of its server and its processes.

    Args:
        number: Its place among the nodes (PMIX_NODEID).
        hostname: Its name.
        tmpdir: Its temporary folder, which is made with the first job on it.
        slots: How many ranks are placed on it before it counts as crowded; None if it shares this machine's CPUs.

    Attributes:
        running: The number of ranks that run on it, of all jobs.
        cpus: The number of CPUs that ranks may use there; 0 if it is unknown.
        most: The largest number of ranks that are placed on it if it is crowded; 0 for any number.
        reached: The signals that a resource manager has sent to all processes there, including ranks. After SIGTERM it
            will also kill them.
        loss_is_reported: Whether the launcher printed a line about its loss.
    """

    cpus = 0
    loss_is_reported = False

    def __init__(self, number: int, hostname: str, tmpdir: str, slots: int | None = None) -> None:
        self.number = number
        self.hostname = hostname
        self.tmpdir = tmpdir
        self.slots = slots
        self.names: tuple[str, ...] = (hostname, hostname.partition(".")[0])
        self.running = 0
        self.most = 0
        self.reached: set[int] = set()

    @property
    def server(self) -> Server:
        """Its server, if it is in this process."""
        raise NotSupported(f"the server of {self.hostname} is in another process")

    def find_shape(self, *, devices: bool = False) -> Shape | None:
        """Return its usable hardware, perhaps with its GPUs; None if it is unknown."""
        return None

    @property
    def here(self) -> bool:
        """Whether this process serves it, and starts its ranks."""
        return False

    def folder(self, job: int) -> str:
        """Return the folder here of a job, by the job's number."""
        return self.tmpdir if job == 1 else os.path.join(self.tmpdir, f"job-{job}")

    def __str__(self) -> str:
        return self.hostname

    # Operations that the host requests

    def register(self, job: RunningJob, ranks: Sequence[int]) -> None:
        """Register a job with the server.

        Args:
            job: The job, whose description has its folder on the first of its nodes.
            ranks: The ranks of the job that are on this node.
        """
        raise NotImplementedError

    def deregister(self, nspace: str) -> None:
        """Deregister a job from the server."""
        raise NotImplementedError

    def deregister_client(self, proc: Proc) -> None:
        """Deregister a rank of it that has ended."""
        raise NotImplementedError

    def define_process_set(self, name: str, members: Procs) -> None:
        """Define a process set."""
        raise NotImplementedError

    def delete_process_set(self, name: str) -> None:
        """Delete a process set."""
        raise NotImplementedError

    def notify(self, event: Notification) -> None:
        """Raise an event for the clients of the server."""
        raise NotImplementedError

    def deliver_output(self, output: Output) -> None:
        """Give the server the output of a proc."""
        raise NotImplementedError

    def pending(self) -> list[Pending]:
        """Return the pending operations of the server."""
        raise NotImplementedError

    def troubles(self) -> list[str]:
        """Return its troubles, a line each, for a person."""
        return []


class LocalNode(HostNode):
    """A node whose server and processes belong to this process.

    Args:
        number: Its place among the nodes (PMIX_NODEID).
        hostname: Its name.
        tmpdir: Its temporary folder, which is made with the first job on it.
        machine: The processes of this process on this machine; simulated nodes share it.
        slots: See `HostNode`.
    """

    _server: Server

    def __init__(self, number: int, hostname: str, tmpdir: str, machine: Machine, slots: int | None = None) -> None:
        super().__init__(number, hostname, tmpdir, slots)
        self.machine = machine
        self._has_resources = False

    def attach(self, server: Server) -> None:
        """Take the server of the node, which is opened later."""
        self._server = server

    @property
    def server(self) -> Server:
        """Its server."""
        return self._server

    def find_shape(self, *, devices: bool = False) -> Shape | None:
        """Return its usable hardware; None if it is unknown, or if no ranks run there."""
        if self.slots == 0:
            return None
        from pypmix.host.hardware import this_shape

        return this_shape(devices)

    @property
    def here(self) -> bool:
        """Whether this process serves it: yes."""
        return True

    def register(self, job: RunningJob, ranks: Sequence[int]) -> None:
        """Register a job with the server, at the latest when the first client connects."""
        layout, number = job.job, job.number
        self.server.session.register_later(job.nspace, lambda session: self._register(session, layout, number, ranks))

    def _register(self, session: ServerSession, job: JobLayout, number: int, ranks: Sequence[int]) -> None:
        if not ranks:
            session.register_nspace(job.replace(tmpdir=self.folder(number)).info(), ())
            return
        from pypmix.host.hardware import described, resources

        if not self._has_resources:
            self._has_resources = True
            session.register_resources(resources())
        if len(ranks) == job.size:
            session.register_nspace(described(job.info(), job, self.hostname))
        else:
            job = job.replace(tmpdir=self.folder(number))
            session.register_nspace(described(job.info(), job, self.hostname), tuple(ranks))

    def deregister(self, nspace: str) -> None:
        """Deregister a job from the server."""
        self.server.deregister_nspace(nspace)

    def deregister_client(self, proc: Proc) -> None:
        """Deregister a rank that has ended."""
        self.server.deregister_client(proc)

    def define_process_set(self, name: str, members: Procs) -> None:
        """Define a process set."""
        self.server.define_process_set(name, members)

    def delete_process_set(self, name: str) -> None:
        """Delete a process set."""
        self.server.delete_process_set(name)

    def notify(self, event: Notification) -> None:
        """Raise an event for the clients of the server."""
        self.server.notify(event)

    def deliver_output(self, output: Output) -> None:
        """Give the server the output of a proc."""
        self.server.deliver_output(output)

    def pending(self) -> list[Pending]:
        """Return the pending operations of the server."""
        return self.server.pending()

    def remove_folder(self, job: int) -> None:
        """Remove the folder of a finished job."""
        remove_job(self.folder(job))


def usable_cpus() -> int:
    """Return the number of CPUs that this process and its children may use, by affinity and by control groups."""
    found = float(len(os.sched_getaffinity(0)))
    for folder in _control_groups():
        # The limits of all parent groups apply too; inside a container the path may begin above its root.
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
    """Return the number of CPUs that a control group's bandwidth allows; infinity if it has no limit."""
    words: list[str] = []
    try:
        for name in ("cpu.max",) if os.path.exists(f"{folder}/cpu.max") else ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
            with open(f"{folder}/{name}", encoding="utf-8") as file:
                words += file.read().split()
        quota, period = map(int, words)
    except (OSError, ValueError):
        # The file does not exist, or contains `max`.
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


def in_blocks(size: int, nodes: Sequence[HostNode]) -> list[tuple[HostNode, tuple[int, ...]]]:
    """Place ranks on nodes, a block of consecutive ranks on each, and return the nodes that hold any with their ranks.

    If there are more nodes than ranks, use the nodes with the fewest running ranks.
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
