"""Further nodes of a run in a Slurm job: further Slurm jobs, each of which ends when its nodes leave the session.

`salloc` waits for the nodes within the launcher's patience. It runs a command that prints the variables of the job, and
ends with its standard input: so the job ends when the launcher ends in any way. `srun` starts the processes that become
the daemons, as on the first nodes.

A node of the first job that left the session stays allocated to the job. Such nodes are obtained again first.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time

from pypmix.host.placing import Node
from pypmix.host.rosters.base import RosterError, number
from pypmix.host.rosters.choosing import SLURM_JOB
from pypmix.host.rosters.names import expand
from pypmix.host.rosters.slurm_group import allocated, started
from pypmix.standard.logtext import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pypmix.host.placing import NodeRequest, Obtained
    from pypmix.host.rosters.base import Lost, Settings
    from pypmix.host.rosters.group import Group
    from pypmix.host.rosters.meet import Follower

KEEPER = ("sh", "-c", "env -0; printf '\\0'; exec cat >/dev/null")
"""The command that `salloc` runs: it prints its environment, and ends with its standard input."""

KEPT = ("SLURM_CONF", "SLURM_JWT")
"""Variables of Slurm that do not describe the job or the step of this process."""

ALIKE = (
    ("SLURM_JOB_PARTITION", "--partition"),
    ("SLURM_JOB_ACCOUNT", "--account"),
    ("SLURM_JOB_QOS", "--qos"),
    ("SLURM_JOB_RESERVATION", "--reservation"),
    ("SLURM_MEM_PER_NODE", "--mem"),
    ("SLURM_MEM_PER_CPU", "--mem-per-cpu"),
)
"""Variables of this job, and the options that set the same values for further jobs."""

MAX_JOBS = 1024
"""The maximum number of further jobs of a request."""


class Job:
    """A further job of Slurm, with a process on each of its nodes.

    Args:
        settings: The launcher's settings.
        options: The options of `salloc`.

    Attributes:
        nodes: The nodes, once they are allocated and their processes have joined.
    """

    def __init__(self, settings: Settings, options: Sequence[str]) -> None:
        self._settings = settings
        self.nodes: list[Node] = []
        self.group: Group | None = None
        env = {key: value for key, value in settings.env.items() if not key.startswith("SLURM_") or key in KEPT}
        self._salloc = subprocess.Popen(
            ["salloc", *options, *KEEPER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, process_group=0,
        )  # fmt: skip
        self._base = env

    def wait(self, deadline: float) -> None:
        """Wait until Slurm has allocated the job, and a process of each node has joined.

        Raises:
            RosterError: Slurm does not allocate it, or processes are missing, until the deadline.
        """
        pipe, errors = self._salloc.stdout, self._salloc.stderr
        assert pipe is not None and errors is not None
        watch = threading.Timer(max(0.0, deadline - time.monotonic()) + 5.0, self._salloc.terminate)
        watch.daemon = True
        watch.start()
        told = b""
        while not told.endswith(b"\0\0") and (piece := os.read(pipe.fileno(), 1 << 16)):
            told += piece
        watch.cancel()
        if not told.endswith(b"\0\0"):
            said = errors.read(1 << 16).decode(errors="replace").strip().splitlines()
            raise RosterError(f"Slurm allocates no further node: {printable(said[-1]) if said else 'salloc has ended'}")
        # Read the errors until their end: a full pipe would block `salloc`.
        threading.Thread(target=errors.read, name="pypmix-salloc", daemon=True).start()
        pairs = [each.partition(b"=") for each in told.split(b"\0") if each]
        env = {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}
        granted = {key: value for key, value in env.items() if key.startswith("SLURM_")}
        found = allocated(granted)
        self.group = started(self._settings, [node.name for node in found], {**self._base, **granted})
        self.group.wait(deadline)
        self.nodes = [node.replace(cpus=self.group.followers[node.name].hello.cpus) for node in found]

    def watch(self, report_lost: Lost) -> None:
        """Report the job's nodes as lost when Slurm has ended the job."""
        assert self.group is not None
        self.group.watch(report_lost)

    def close(self) -> None:
        """End the job, and give its nodes back."""
        if self.group is not None:
            self.group.close()
        assert self._salloc.stdin is not None
        self._salloc.stdin.close()
        try:
            self._salloc.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._salloc.pid, signal.SIGTERM)
            try:
                self._salloc.wait(5)
            except subprocess.TimeoutExpired:
                self._salloc.kill()
                self._salloc.wait()


class FurtherNodes:
    """The further nodes of a run.

    Args:
        settings: The launcher's settings.
        first: The nodes of the first job.
        departed: The nodes of the first job that have left the session, by name.
        lost: Called with the name of a lost node and the reason.
    """

    def __init__(self, settings: Settings, first: Sequence[Node], departed: dict[str, Node], report_lost: Lost) -> None:
        self._settings = settings
        self._first = first
        self._departed = departed
        self._report_lost = report_lost
        self._gate = threading.Lock()
        self._jobs: list[Job] = []
        self._restarted: list[Group] = []
        self._closed = False

    def obtain(self, request: NodeRequest, done: Obtained) -> None:
        """Obtain nodes, on a thread."""

        def obtain() -> None:
            try:
                nodes = self._obtain(request)
            except Exception as error:
                # An error of any type: the request waits for an answer.
                done((), str(error) or type(error).__name__)
            else:
                done(nodes, "")

        threading.Thread(target=obtain, name="pypmix-obtain", daemon=True).start()

    def follower(self, name: str) -> Follower | None:
        """Return the process on a node obtained here, None for any other node."""
        with self._gate:
            groups = [*self._restarted, *[job.group for job in self._jobs if job.group is not None]]
        for group in groups:
            if name in group.followers:
                return group.followers[name]
        return None

    def release(self, name: str) -> bool:
        """Give a node back; return True if it belonged to a further job."""
        with self._gate:
            jobs = [job for job in self._jobs if name in [node.name for node in job.nodes]]
            for job in jobs:
                assert job.group is not None
                job.group.followers.pop(name, None)
            over = [job for job in jobs if job.group is not None and not job.group.followers]
            self._jobs = [job for job in self._jobs if job not in over]
            left = [group for group in self._restarted if group.followers.pop(name, None) is not None]
            ended = [group for group in left if not group.followers]
            self._restarted = [group for group in self._restarted if group not in ended]
        for close in [*[job.close for job in over], *[group.close for group in ended]]:
            threading.Thread(target=close, name="pypmix-release").start()
        return bool(jobs)

    def close(self) -> None:
        """End all further jobs."""
        with self._gate:
            self._closed = True
            closing = [threading.Thread(target=job.close) for job in self._jobs]
            closing += [threading.Thread(target=group.close) for group in self._restarted]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()

    def _obtain(self, request: NodeRequest) -> list[Node]:
        deadline = time.monotonic() + self._settings.patience
        with self._gate:
            names = [name for name, _ in request.hosts] or list(self._departed)[: request.nodes]
            reuse = names and len(names) >= request.nodes and not request.cpus and self._departed.keys() >= set(names)
            # Remove the nodes under the lock: another request may run concurrently.
            nodes = [self._departed.pop(name) for name in names] if reuse else []
        if nodes:
            return self._take_departed(nodes, dict(request.hosts), deadline)
        if shutil.which("salloc", path=self._settings.env.get("PATH")) is None:
            raise RosterError("there is no salloc here to ask Slurm for further nodes")
        requests = self._requests(request)
        jobs: list[Job] = []
        try:
            for options in requests:
                jobs.append(Job(self._settings, options))
            for job in jobs:
                job.wait(deadline)
        except BaseException:
            for job in jobs:
                job.close()
            raise
        with self._gate:
            closed = self._closed
            self._jobs += [] if closed else jobs
        if closed:
            for job in jobs:
                job.close()
            raise RosterError("the session has ended")
        for job in jobs:
            job.watch(self._report_lost)
        slots = dict(request.hosts)
        return [node.replace(slots=slots.get(node.name) or node.slots) for job in jobs for node in job.nodes]

    def _take_departed(self, nodes: Sequence[Node], slots: Mapping[str, int], deadline: float) -> list[Node]:
        """Obtain again nodes of the first job that have left the session."""
        group: Group | None = None
        try:
            group = started(self._settings, [node.name for node in nodes], self._settings.env)
            group.wait(deadline)
        except BaseException:
            with self._gate:
                self._departed.update({node.name: node for node in nodes})
            if group is not None:
                group.close()
            raise
        with self._gate:
            self._restarted.append(group)
        group.watch(self._report_lost)
        return [node.replace(slots=slots.get(node.name) or node.slots) for node in nodes]

    def _requests(self, request: NodeRequest) -> list[list[str]]:
        """Return the options of `salloc` for each further job."""
        env, settings = self._settings.env, self._settings
        usual = max([node.slots or 1 for node in self._first], default=0) or number(env, "SLURM_CPUS_ON_NODE") or 1
        common = [f"--immediate={max(1, int(settings.patience))}", "--job-name=pypmix", "--wait-all-nodes=1", "--quiet"]
        common += [f"{option}={env[name]}" for name, option in ALIKE if env.get(name)]
        if self._first and (cpus := env.get("SLURM_CPUS_PER_TASK")):
            # Slots are tasks, which may have several CPUs each.
            common.append(f"--cpus-per-task={cpus}")
        if left := self._time_left():
            common.append(f"--time={left}")
        if request.hosts:
            each = [[f"--nodelist={name}", "--nodes=1", f"--ntasks={slots or usual}"] for name, slots in request.hosts]
        elif request.cpus:
            nodes = [f"--nodes={request.nodes}"] if request.nodes else []
            each = [[*nodes, f"--ntasks={max(request.cpus, request.nodes)}"]]
        else:
            each = [["--nodes=1", f"--ntasks={usual}"]] * request.nodes
        if len(each) > MAX_JOBS:
            raise RosterError(f"a request for {len(each)} nodes is for more than {MAX_JOBS}")
        # Without this, Slurm could allocate the free CPUs of nodes that are already in the session.
        there = {node.name for job in self._jobs for node in job.nodes} | set(expand(env.get("SLURM_JOB_NODELIST", "")))
        excluded = [] if request.hosts else [f"--exclude={','.join(sorted(there))}"]
        return [[*common, *excluded, *options] for options in each]

    def _time_left(self) -> str:
        """Return this job's remaining time, in Slurm's format; empty if it is unknown or unlimited."""
        job = self._settings.env.get(SLURM_JOB, "")
        words = ["squeue", "--noheader", f"--jobs={job}", "--format=%L"]
        try:
            done = subprocess.run(
                words, env=dict(self._settings.env), capture_output=True, text=True, timeout=self._settings.patience
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        left = done.stdout.strip()
        return left if left[:1].isdigit() else ""
