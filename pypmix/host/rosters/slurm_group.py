"""The nodes that Slurm has allocated, and the processes that `srun` starts there to become daemons."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading

from pypmix.host.addresses import own_addresses
from pypmix.host.placing import Node
from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.meet import Meeting
from pypmix.host.rosters.names import expand, repeated
from pypmix.host.rosters.proof import Secret
from pypmix.standard.types import decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pypmix.host.rosters.base import Lost, Settings
    from pypmix.host.rosters.meet import Follower

FOLLOW = ("-m", "pypmix.host.rosters.follow", "SLURM_PROCID")


def number(env: Mapping[str, str], name: str) -> int:
    """Return the number that a variable holds, 0 where it is not there.

    Raises:
        RosterError: It holds something else.
    """
    text = env.get(name, "0")
    found = decimal(text, 1 << 40)
    if found is None:
        raise RosterError(f"{name} is to be a number, and is {text!r:.80}")
    return found


def allocated(env: Mapping[str, str]) -> list[Node]:
    """Return the nodes of the job, with as many slots as Slurm would start tasks there.

    Raises:
        RosterError: Slurm's variables cannot be read.
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


class Group:
    """Processes that one `srun` starts, one on each of some nodes, to become their daemons.

    Args:
        settings: What the command line says.
        names: The nodes.
        env: The environment of their allocation.

    Raises:
        RosterError: There is no `srun` here.
    """

    def __init__(self, settings: Settings, names: Sequence[str], env: Mapping[str, str]) -> None:
        if shutil.which("srun", path=env.get("PATH")) is None:
            raise RosterError("there is no srun here to start the daemons with")
        self.names = tuple(names)
        self.followers: dict[str, Follower] = {}
        common = os.urandom(32)
        self._meeting = Meeting(len(names) + 1, Secret(common))
        self._srun = subprocess.Popen(
            srun(names, [settings.python, *FOLLOW]),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=dict(env), process_group=0,
        )  # fmt: skip
        told = {
            "meet": [[host, self._meeting.port] for host in own_addresses(names[0])],
            "secret": common.hex(),
            "size": len(names) + 1,
            "patience": settings.patience,
        }
        assert self._srun.stdin is not None
        try:
            self._srun.stdin.write(json.dumps(told).encode() + b"\n")
            self._srun.stdin.close()
        except BrokenPipeError:
            # It has ended already, which shows.
            return

    def wait(self, deadline: float) -> None:
        """Wait until a process has come from each node.

        Raises:
            RosterError: Some have not come.
        """
        came = self._meeting.wait(deadline, ["", *self.names], self._broken)
        self.followers = {follower.hello.name: follower for follower in came.values()}
        missing = [name for name in self.names if name not in self.followers]
        if missing:
            raise RosterError(f"srun has started no process on {', '.join(missing):.200}")

    def _broken(self) -> str:
        code = self._srun.poll()
        return "" if code is None else f"srun ended with exit code {code}, and has said why"

    def watch(self, lost: Lost) -> None:
        """Tell of all nodes that are left when `srun` ends: Slurm has ended the step then."""

        def wait() -> None:
            code = self._srun.wait()
            for name in list(self.followers):
                lost(name, f"srun ended with exit code {code}")

        threading.Thread(target=wait, name="pypmix-srun", daemon=True).start()

    def close(self) -> None:
        """End the step."""
        self._meeting.close()
        try:
            self._srun.wait(5)
        except subprocess.TimeoutExpired:
            # Upon the second one it ends the step by force.
            self._srun.terminate()
            self._srun.terminate()
            try:
                self._srun.wait(5)
            except subprocess.TimeoutExpired:
                self._srun.kill()
                self._srun.wait()


def srun(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the command line that runs `words` once on each node, with the same standard input."""
    count = len(names)
    return [
        "srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--nodelist={','.join(names)}",
        "--input=all", "--mpi=none", "--cpu-bind=none", "--overlap", "--overcommit", "--kill-on-bad-exit=0",
        "--job-name=pypmix", *words,
    ]  # fmt: skip
