"""The nodes of a Slurm job.

In an allocation (`salloc`, `sbatch`) the launcher starts a process on each node by one `srun`. It sends the meeting's
addresses and a secret over the standard input of `srun`, which reaches all tasks and is not on any command line. In a
step with one task on each node (`srun -N2 --ntasks-per-node=1 pypmix run ...`) the first task is the launcher, and the
others connect to it. The tasks authenticate each other by munge, or by a secret in a file if Slurm runs without munge.
"""

from __future__ import annotations

import time

from pypmix.host.extensions import load_extension
from pypmix.host.placing import Node
from pypmix.host.rosters.base import RosterError, number
from pypmix.host.rosters.choosing import SLURM_JOB
from pypmix.host.rosters.group import explained
from pypmix.host.rosters.names import expand
from pypmix.host.rosters.proof import Munge
from pypmix.host.rosters.slurm_group import allocated, shares, srun, started, symmetric
from pypmix.host.rosters.symmetric import SECRET_FILE, Place, SymmetricRoster, meeting_point, ports, secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pypmix.host.placing import NodeRequest, Obtained
    from pypmix.host.rosters.base import Lost, Members, Settings, StartedDaemon
    from pypmix.host.rosters.group import Group
    from pypmix.host.rosters.proof import Proof


class Step(SymmetricRoster):
    """The tasks of a step, one on each node."""

    name = "slurm"
    uses_munge = True

    @classmethod
    def place(cls, settings: Settings) -> Place:
        """Return the place that Slurm has given this task."""
        env = settings.env
        job, step = number(env, SLURM_JOB), number(env, "SLURM_STEP_ID")
        names = tuple(expand(env.get("SLURM_STEP_NODELIST", "")))
        if settings.meet:
            addresses = [meeting_point(settings.meet)]
        else:
            addresses = [(names[0], port) for port in ports(job * 64 + step)]
        return Place(
            number(env, "SLURM_PROCID"), number(env, "SLURM_STEP_NUM_NODES"), cls._proof(settings), tuple(addresses),
            env.get("SLURMD_NODENAME", ""), number(env, "SLURM_CPUS_ON_NODE"), names,
        )  # fmt: skip

    @classmethod
    def _proof(cls, settings: Settings) -> Proof:
        if settings.secret_file or settings.env.get(SECRET_FILE):
            return secret(settings)
        try:
            return Munge(settings.env)
        except RosterError as error:
            raise RosterError(f"{error}; or name a secret that the tasks share: --secret-file FILE") from None


class SlurmRoster:
    """The nodes of an allocation, on which `srun` starts the daemons, or of a step, whose tasks become the daemons.

    Further nodes are nodes of further jobs.

    Args:
        settings: The launcher's settings.
    """

    name = "slurm"
    uses_munge = True

    def __init__(self, settings: Settings) -> None:
        if shares(settings.env):
            tasks, nodes = settings.env.get("SLURM_STEP_NUM_TASKS"), settings.env.get("SLURM_STEP_NUM_NODES")
            raise RosterError(
                f"this step has {tasks} tasks on {nodes} nodes, each with a launcher of its own: "
                "start one on each node (srun --ntasks-per-node=1)"
            )
        self._step = Step(settings) if symmetric(settings.env) else None
        self._allocated = [] if self._step is not None else allocated(settings.env)
        self._settings = settings
        self._group: Group | None = None
        self._further_nodes: Any = None
        self._departed: dict[str, Node] = {}
        """Nodes of the first job that have left the session."""
        self._report_lost: Lost = lambda _name, _reason: None

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return a text with the job and its nodes; empty for a job of one node."""
        env = settings.env
        if SLURM_JOB not in env or shares(env):
            return ""
        job = env[SLURM_JOB]
        if symmetric(env):
            place, size = env.get("SLURM_PROCID"), env.get("SLURM_STEP_NUM_NODES")
            return f"task {place} of {size} of Slurm job {job}, step {env['SLURM_STEP_ID']}"
        nodes = allocated(env) if "SLURM_JOB_NODELIST" in env else []
        if len(nodes) < 2:
            return ""
        listed = ", ".join([f"{node.name} ({node.slots})" for node in nodes[:8]])
        more = f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""
        return f"nodes from Slurm job {job}: {listed}{more}"

    def join(self) -> int | None:
        """Become a daemon, if this is a later task of a step, and return its exit code; return None in the launcher."""
        return None if self._step is None else self._step.join()

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, once a process of each has joined."""
        if self._step is not None:
            return self._step.nodes()
        nodes = self._allocated
        self._group = started(self._settings, [node.name for node in nodes], self._settings.env)
        self._group.wait(time.monotonic() + self._settings.patience)
        return [node.replace(cpus=self._group.followers[node.name].hello.cpus) for node in nodes]

    def start(self, node: Node, line: bytes) -> StartedDaemon:
        """Turn the process on a node into its daemon."""
        follower = self._further_nodes.follower(node.name) if self._further_nodes is not None else None
        if follower is None and self._step is not None:
            return self._step.start(node, line)
        if follower is None:
            assert self._group is not None
            follower = self._group.followers[node.name]
        follower.begin(line)
        return follower

    def commands(self, words: Sequence[str]) -> list[tuple[tuple[str, ...], list[str]]]:
        """Return the command lines that run `words` on the allocation's nodes, each with the names of its nodes."""
        names = tuple([node.name for node in self._allocated])
        return [(names, srun(names, words))] if names else []

    def explain(self, node: str, code: int | None, errors: str) -> str:
        """Return an error text for a node's command that ended, or that makes no progress if the code is None."""
        return explained("srun", node, code, errors)

    def watch(self, report_lost: Lost) -> None:
        """Report all nodes of a job as lost when its `srun` ends."""
        self._report_lost = report_lost
        if self._group is not None:
            self._group.watch(report_lost)

    def attend(self, members: Members) -> None:
        """Do nothing: Slurm adds no node unless requested."""

    def obtain(self, request: NodeRequest, done: Obtained) -> None:
        """Obtain further nodes: nodes of the first job that left the session, or nodes of further jobs."""
        if self._further_nodes is None:
            make = load_extension("slurm-nodes")
            self._further_nodes = make(self._settings, self._allocated, self._departed, self._report_lost)
        self._further_nodes.obtain(request, done)

    def release(self, node: Node) -> None:
        """End the job of a further node; a node of the first job stays allocated, and may be obtained again."""
        if self._further_nodes is None or not self._further_nodes.release(node.name):
            if self._group is not None:
                self._group.followers.pop(node.name, None)
            if self._step is None:
                self._departed[node.name] = node

    def close(self) -> None:
        """End the steps, and the further jobs."""
        if self._further_nodes is not None:
            self._further_nodes.close()
        if self._step is not None:
            self._step.close()
        if self._group is not None:
            self._group.close()
