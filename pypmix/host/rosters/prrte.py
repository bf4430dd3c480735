"""The nodes of a DVM of PRRTE, on each of which it starts one process that becomes the node's daemon.

The launcher is a tool of the DVM: it asks for its daemons' nodes, and spawns the processes. PRRTE passes standard input
to the first one alone, which tells the others by a fence where to meet, and a secret. They dial the launcher.
"""

from __future__ import annotations

import json
import os
import threading
import time

from pypmix.host.addresses import own_addresses
from pypmix.host.placing import Node
from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.meet import Meeting
from pypmix.host.rosters.proof import Secret
from pypmix.requests.spawning import app
from pypmix.standard import attrs
from pypmix.standard.errors import PMIxError
from pypmix.tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pypmix.host.rosters.base import Lost, Settings
    from pypmix.host.rosters.meet import Follower
    from pypmix.host.session import StartedDaemon
    from pypmix.operations.spawning import SpawnedJob

FOLLOW = ("-m", "pypmix.host.rosters.follow", "PMIX_RANK")

COME = 5.0
"""Seconds that a DVM has to come up which was started just before."""

LEAVE = 5.0
"""Seconds that the processes have to end with the session."""


class PRRTERoster:
    """The nodes of a DVM, or those of them that the command line names.

    Args:
        settings: What the command line and the environment say.
    """

    name = "prrte"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._followers: dict[str, Follower] = {}
        self._meeting: Meeting | None = None
        self._tool: Tool | None = None
        self._job: SpawnedJob | None = None

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return what it is; it is taken only where it was named: a DVM that runs here is not meant by each run."""
        return "the nodes of a DVM of PRRTE"

    def join(self) -> int | None:
        """Return None: this process is the launcher."""
        return None

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, once a process has come from each."""
        settings = self._settings
        deadline = time.monotonic() + settings.patience
        given = {host.name: host.slots for host in settings.hosts}
        try:
            self._tool = Tool(env=settings.env, engine="python", timeout=min(COME, settings.patience)).open()
            names = list(given) or self._names(self._tool)
            self._job = self._spawn(self._tool, names)
            common = os.urandom(32)
            self._meeting = Meeting(self._job.size + 1, Secret(common))
            told = {
                "meet": [[host, self._meeting.port] for host in own_addresses(names[-1])],
                "secret": common.hex(),
                "size": self._job.size + 1,
                "patience": settings.patience,
            }
            with self._tool.input(self._job) as stdin:
                stdin.write(json.dumps(told).encode() + b"\n")
        except PMIxError as error:
            raise RosterError(
                f"no DVM of PRRTE starts processes for this run: {error.detail}; start one on this machine "
                "(prte --daemonize --host n1,n2), or name it (PMIX_LAUNCHER_RNDZ_FILE)"
            ) from None
        came = self._meeting.wait(deadline, (), self._broken)
        self._followers = {follower.hello.name: follower for _, follower in sorted(came.items())}
        if len(self._followers) < len(came):
            raise RosterError(f"the DVM has started two processes on one node ({', '.join(self._followers):.200})")
        return [
            Node(name, given.get(name) or found.hello.cpus, found.addresses, found.hello.cpus)
            for name, found in self._followers.items()
        ]

    def start(self, node: Node, line: bytes) -> StartedDaemon:
        """Have the process on a node become its daemon."""
        follower = self._followers[node.name]
        follower.begin(line)
        return follower

    def watch(self, lost: Lost) -> None:
        """Tell of all nodes when the DVM says that the job has ended."""
        job = self._job
        if job is None:
            return

        def wait() -> None:
            try:
                reason = f"the DVM says that its processes have ended with exit code {job.wait()}"
            except PMIxError as error:
                reason = f"the DVM is lost: {error.detail}"
            for name in self._followers:
                lost(name, reason)

        threading.Thread(target=wait, name="pypmix-prrte", daemon=True).start()

    def close(self) -> None:
        """End the processes, and leave the DVM."""
        if self._meeting is not None:
            self._meeting.close()
        if self._tool is None:
            return
        try:
            if self._job is not None:
                self._end(self._job)
            self._tool.close()
        except PMIxError:
            # The DVM has gone, and with it what it has started.
            return

    @staticmethod
    def _end(job: SpawnedJob) -> None:
        try:
            job.wait(LEAVE)
        except PMIxError:
            job.kill()

    @staticmethod
    def _names(tool: Tool) -> list[str]:
        """Return the nodes of the DVM, by its daemons."""
        (server, *_) = tool.get_servers()
        return [info.hostname or "" for info in tool.query(attrs.QUERY_PROC_TABLE, nspace=server.nspace)]

    def _spawn(self, tool: Tool, names: Sequence[str]) -> SpawnedJob:
        """Start a process on each node."""
        settings = self._settings
        info = {attrs.MAPBY: "ppr:1:node", attrs.BINDTO: "none", attrs.FWD_STDERR: True}
        # PRRTE takes it of an application, not of a job.
        hosts = {attrs.HOST: ",".join(names)} if settings.hosts else None
        words = [settings.python, *FOLLOW]

        def spawn(count: int) -> SpawnedJob:
            apps = (app(words, n=count, env=settings.env, info=hosts),)
            return tool.spawn(apps, timeout=settings.patience, stdin=True, info=info)

        try:
            return spawn(len(names))
        except PMIxError:
            if settings.hosts or len(names) < 2:
                raise
            # The DVM's first daemon may be on a node that is not for processes.
            return spawn(len(names) - 1)

    def _broken(self) -> str:
        if self._job is not None and self._tool is not None and not self._tool.is_connected:
            return "the DVM has gone"
        return ""
