"""Processes that one command of a resource manager starts, one on each of some nodes, to become their daemons.

The command passes its standard input on to all of them: this contains the address of the meeting and a secret, which is
not on any command line. The processes dial the launcher (`pypmix.host.rosters.follow`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading

from pypmix.host.launch import has_program
from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.follow import line_for
from pypmix.host.rosters.meet import Meeting
from pypmix.host.rosters.proof import Secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pypmix.host.rosters.base import Lost, Settings
    from pypmix.host.rosters.meet import Follower


def following(settings: Settings, variable: str) -> list[str]:
    """Return the command line of one of the processes.

    Args:
        settings: The launcher's settings.
        variable: The environment variable with the process's number, from 0, among the processes of the command.
    """
    return [settings.python, "-m", "pypmix.host.rosters.follow", variable]


def explained(command: str, node: str, code: int | None, errors: str) -> str:
    """Return an error text for a command that failed to reach a node, or that makes no progress.

    Args:
        command: The command's name in messages.
        node: The node.
        code: The command's exit code; None if it makes no progress.
        errors: The command's standard error.
    """
    said = errors.strip().splitlines()[-1:]
    how = "does not get on" if code is None else f"ended with exit code {code}"
    return ": ".join([f"{node}: {command} {how}", *said])


class Group:
    """The processes of one command.

    Args:
        settings: The launcher's settings.
        names: The nodes, by the names that the processes there use.
        command: The command's name in messages.
        words: The command line.
        env: The command's environment.
        signum: The signal that ends the command; sent twice, it also kills the processes.

    Attributes:
        names: The nodes.
        followers: The processes that have joined, by the names of their nodes.

    Raises:
        RosterError: There is no such command here.
    """

    def __init__(
        self,
        settings: Settings,
        names: Sequence[str],
        command: str,
        words: Sequence[str],
        env: Mapping[str, str],
        signum: int = signal.SIGTERM,
    ) -> None:
        if not has_program(words[0], env):
            raise RosterError(
                f"there is no {words[0]} here to start the daemons with; to run on this machine alone, as in a "
                "container that has inherited the variables of a job, add --roster local"
            )
        self.names = tuple(names)
        self.followers: dict[str, Follower] = {}
        self._command = command
        self._signum = signum
        common = os.urandom(32)
        self._meeting = Meeting(len(names) + 1, Secret(common))
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=dict(env), process_group=0
        )
        line = line_for(names[0], self._meeting.port, common, len(names), settings.patience)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.close()
        except BrokenPipeError:
            # The command has already ended, which `wait` reports.
            return

    def wait(self, deadline: float) -> None:
        """Wait until a process of each node has joined.

        Raises:
            RosterError: Some processes are missing.
        """
        came = self._meeting.wait(deadline, ["", *self.names], self._broken)
        self.followers = {follower.hello.name: follower for follower in came.values()}
        missing = [name for name in self.names if name not in self.followers]
        if missing:
            raise RosterError(f"{self._command} has started no process on {', '.join(missing):.200}")

    @property
    def runs(self) -> bool:
        """Whether the command is still running."""
        return self._process.poll() is None

    def _broken(self) -> str:
        code = self._process.poll()
        return "" if code is None else f"{self._command} ended with exit code {code}, and has said why"

    def watch(self, report_lost: Lost) -> None:
        """Report all nodes as lost when the command ends: the resource manager has ended its processes then."""

        def wait() -> None:
            code = self._process.wait()
            for name in list(self.followers):
                report_lost(name, f"{self._command} ended with exit code {code}")

        threading.Thread(target=wait, name="pypmix-group", daemon=True).start()

    def close(self) -> None:
        """End the processes."""
        self._meeting.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            for _ in range(2):
                self._process.send_signal(self._signum)
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
