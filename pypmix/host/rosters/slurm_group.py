"""The nodes that Slurm has allocated, and the processes that `srun` starts there to become daemons."""

from __future__ import annotations

from pypmix.host.placing import Node
from pypmix.host.rosters.base import RosterError, number
from pypmix.host.rosters.group import Group, following
from pypmix.host.rosters.names import expand, repeated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pypmix.host.rosters.base import Settings


def allocated(env: Mapping[str, str]) -> list[Node]:
    """Return the nodes of the job, with the number of tasks that Slurm would start there as slots.

    Raises:
        RosterError: Slurm's variables are missing or malformed.
    """
    try:
        names = expand(env["SLURM_JOB_NODELIST"])
        tasks = repeated(env["SLURM_TASKS_PER_NODE"])
    except KeyError as error:
        raise RosterError(f"{error.args[0]} is not set: is this inside of salloc, sbatch or srun?") from None
    except ValueError as error:
        raise RosterError(f"the nodes of the Slurm job cannot be read: {error}") from None
    if len(names) != len(tasks):
        raise RosterError(f"Slurm names {len(names)} nodes, and the numbers of tasks of {len(tasks)}")
    return [Node(name, slots) for name, slots in zip(names, tasks, strict=True)]


def shares(env: Mapping[str, str]) -> bool:
    """Return True if this process belongs to a step of several tasks that does not have one task on each node."""
    return "SLURM_STEP_ID" in env and number(env, "SLURM_STEP_NUM_TASKS") > 1 and not symmetric(env)


def symmetric(env: Mapping[str, str]) -> bool:
    """Return True if this process is a task of a step with one task on each of several nodes."""
    return "SLURM_STEP_ID" in env and number(env, "SLURM_STEP_NUM_TASKS") == number(env, "SLURM_STEP_NUM_NODES") > 1


def here(env: Mapping[str, str]) -> tuple[int, str]:
    """Return the slots of this machine for a run without other nodes, 0 if unknown, and a remark for the user."""
    if shares(env):
        tasks = number(env, "SLURM_STEP_NUM_TASKS")
        remark = (
            f"each of the {tasks} tasks of this Slurm step runs a job of its own; "
            "for one job, start one task on each node (srun --ntasks-per-node=1)"
        )
        # Only the first task shows the remark.
        return 0, "" if number(env, "SLURM_PROCID") else remark
    if "SLURM_STEP_ID" in env or "SLURM_JOB_NODELIST" not in env:
        return 0, ""
    nodes = allocated(env)
    return (nodes[0].slots or 0) if len(nodes) == 1 else 0, ""


def started(settings: Settings, names: Sequence[str], env: Mapping[str, str]) -> Group:
    """Start a process on each of some nodes of an allocation, by `srun`.

    Args:
        settings: The launcher's settings.
        names: The nodes.
        env: The environment of their allocation.

    Raises:
        RosterError: There is no `srun` here.
    """
    return Group(settings, names, "srun", srun(names, following(settings, "SLURM_PROCID")), env)


def srun(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the command line that runs `words` once on each node, with the same standard input."""
    count = len(names)
    return [
        "srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--nodelist={','.join(names)}",
        "--input=all", "--mpi=none", "--cpu-bind=none", "--overlap", "--overcommit", "--kill-on-bad-exit=0",
        "--job-name=pypmix", *words,
    ]  # fmt: skip
