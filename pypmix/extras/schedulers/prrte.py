"""The nodes of a DVM of PRRTE, which starts one process on each node that becomes the node's daemon.

The launcher is a tool of the DVM: it queries the nodes of the DVM's daemons, and spawns the processes. The processes
receive the meeting's addresses and a secret in an environment variable, since PRRTE passes standard input only to the
first process. Then they dial the launcher.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from pypmix.apps import app
from pypmix.host.placing import Node
from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.follow import TOLD, line_for
from pypmix.host.rosters.group import following
from pypmix.host.rosters.meet import Meeting
from pypmix.host.rosters.proof import Secret
from pypmix.standard import attrs
from pypmix.standard.errors import PMIxError
from pypmix.tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pypmix.host.placing import NodeRequest, Obtained
    from pypmix.host.rosters.base import Lost, Members, Settings, StartedDaemon
    from pypmix.host.rosters.meet import Follower

COME = 5.0
"""Seconds to wait for a DVM that was started just before."""

LEAVE = 5.0
"""Seconds that the processes have to end after the session."""


class Group:
    """Processes that the DVM starts, one on each of some nodes, to become their daemons.

    Args:
        tool: The launcher, as a tool of the DVM.
        settings: The launcher's settings.
        names: The nodes.
        chosen: Whether the nodes were chosen by name, and are not just all nodes of the DVM.

    Attributes:
        followers: The processes, by the names of their nodes.

    Raises:
        PMIxError: The DVM does not start the processes.
    """

    def __init__(self, tool: Tool, settings: Settings, names: Sequence[str], chosen: bool) -> None:
        self.followers: dict[str, Follower] = {}
        self._tool = tool
        self._settings = settings
        try:
            self._meet(names, chosen)
        except PMIxError:
            if chosen or len(names) < 2:
                raise
            # The DVM's first daemon may be on a node that does not run processes, such as a login node.
            self._meet(names[1:], chosen)

    def _meet(self, names: Sequence[str], chosen: bool) -> None:
        """Start a process on each node, and listen for them."""
        settings, count = self._settings, len(names)
        common = os.urandom(32)
        self._meeting = Meeting(count + 1, Secret(common))
        line = line_for(names[-1], self._meeting.port, common, count, settings.patience)
        info = {attrs.MAPBY: "ppr:1:node", attrs.BINDTO: "none", attrs.FWD_STDERR: True}
        # PRRTE accepts PMIX_HOST as info of an application, not of a job.
        hosts = {attrs.HOST: ",".join(names)} if chosen else None
        env = {**settings.env, TOLD: line}
        try:
            apps = (app(following(settings, "PMIX_RANK"), n=count, env=env, info=hosts),)
            self._job = self._tool.spawn(apps, timeout=settings.patience, info=info)
        except PMIxError:
            self._meeting.close()
            raise

    def wait(self, deadline: float) -> None:
        """Wait until a process of each node has joined.

        Raises:
            RosterError: Some processes are missing, or two are on one node.
        """
        came = self._meeting.wait(deadline, (), self._broken)
        self.followers = {follower.hello.name: follower for _, follower in sorted(came.items())}
        if len(self.followers) < len(came):
            raise RosterError(f"the DVM has started two processes on one node ({', '.join(self.followers):.200})")

    def nodes(self, slots: Mapping[str, int]) -> list[Node]:
        """Return the nodes, with the given slots by name, or as many slots as CPUs."""
        return [
            Node(name, slots.get(name) or found.hello.cpus, found.addresses, found.hello.cpus)
            for name, found in self.followers.items()
        ]

    def watch(self, report_lost: Lost) -> None:
        """Report all remaining nodes as lost when the DVM reports the end of the job, or is lost."""

        def wait() -> None:
            try:
                reason = f"the DVM says that its processes have ended with exit code {self._job.wait()}"
            except PMIxError as error:
                reason = f"the DVM is lost: {error.detail}"
            for name in list(self.followers):
                report_lost(name, reason)

        threading.Thread(target=wait, name="pypmix-prrte", daemon=True).start()

    def close(self) -> None:
        """End the processes.

        Raises:
            PMIxError: The DVM has ended, and its processes with it.
        """
        self._meeting.close()
        try:
            self._job.wait(LEAVE)
        except PMIxError:
            self._job.kill()

    def _broken(self) -> str:
        return "" if self._tool.is_connected else "the DVM has gone"


class PRRTERoster:
    """The nodes of a DVM, or the nodes among them that the command line names; further nodes are others of the DVM.

    Args:
        settings: The launcher's settings.
    """

    name = "prrte"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tool: Tool | None = None
        self._groups: list[Group] = []
        self._gate = threading.Lock()
        self._coming: set[str] = set()
        """The nodes of requests in progress."""
        self._report_lost: Lost = lambda _name, _reason: None

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return a description; the roster is used only if it was named."""
        # A running DVM does not mean that every run is to use it.
        return "the nodes of a DVM of PRRTE"

    def join(self) -> int | None:
        """Return None: this process is the launcher."""
        return None

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, once a process of each has joined."""
        settings = self._settings
        deadline = time.monotonic() + settings.patience
        given = {host.name: host.slots for host in settings.hosts}
        try:
            tool = self._tool = Tool(env=settings.env, engine="python", timeout=min(COME, settings.patience)).open()
            known = self._names(tool)
        except PMIxError as error:
            raise RosterError(
                f"no DVM of PRRTE is found: {error.detail}; start one on this machine (prte --daemonize --host n1,n2), "
                "or name it (PMIX_LAUNCHER_RNDZ_FILE)"
            ) from None
        try:
            group = Group(tool, settings, list(given) or known, bool(given))
        except PMIxError as error:
            raise RosterError(
                f"the DVM of PRRTE on {', '.join(known):.200} does not start {settings.python} on "
                f"{', '.join(given or known):.200}: {error.detail}"
            ) from None
        self._groups.append(group)
        group.wait(deadline)
        return group.nodes(given)

    def start(self, node: Node, line: bytes) -> StartedDaemon:
        """Turn the process on a node into its daemon."""
        with self._gate:
            follower = next(group.followers[node.name] for group in self._groups if node.name in group.followers)
        follower.begin(line)
        return follower

    def watch(self, report_lost: Lost) -> None:
        """Report nodes as lost when the DVM reports the end of their processes."""
        self._report_lost = report_lost
        for group in self._groups:
            group.watch(report_lost)

    def attend(self, members: Members) -> None:
        """Do nothing: the DVM adds no node unless requested."""

    def obtain(self, request: NodeRequest, done: Obtained) -> None:
        """Obtain further nodes of the DVM, on a thread: the DVM starts processes there."""

        def obtain() -> None:
            try:
                nodes = self._more(request)
            except Exception as error:
                # An error of any type: the request waits for an answer.
                done((), f"the DVM of PRRTE has no such nodes: {getattr(error, 'detail', error) or repr(error)}")
            else:
                done(nodes, "")

        threading.Thread(target=obtain, name="pypmix-obtain", daemon=True).start()

    def _more(self, request: NodeRequest) -> list[Node]:
        deadline = time.monotonic() + self._settings.patience
        tool = self._tool
        assert tool is not None
        slots = dict(request.hosts)
        dvm_names = self._names(tool)
        with self._gate:
            if not slots:
                taken = self._coming.union(*[group.followers for group in self._groups])
                free = [name for name in dvm_names if name not in taken]
                if request.cpus or len(free) < request.nodes:
                    raise RosterError(f"{len(free)} of its nodes are not of this run yet, and it counts no CPUs")
                slots = dict.fromkeys(free[: request.nodes], 0)
            self._coming.update(slots)
        try:
            return self._take(tool, slots, dvm_names, deadline)
        finally:
            with self._gate:
                self._coming.difference_update(slots)

    def _take(self, tool: Tool, slots: Mapping[str, int], dvm_names: Sequence[str], deadline: float) -> list[Node]:
        """Start processes on nodes of the DVM, and wait for them."""
        # PRRTE 3.0 does not answer a spawn that adds hosts, and may crash at the next spawn.
        unknown = [name for name in slots if name not in dvm_names]
        if unknown:
            raise RosterError(
                f"{', '.join(unknown):.200}: it has {', '.join(dvm_names):.200}, and is started with all of them"
            )
        group = Group(tool, self._settings, list(slots), True)
        with self._gate:
            self._groups.append(group)
        try:
            group.wait(deadline)
        except BaseException:
            self._end([group])
            raise
        group.watch(self._report_lost)
        return group.nodes(slots)

    def release(self, node: Node) -> None:
        """Remove a node, which stays in the DVM; end its group after the group's last node."""
        with self._gate:
            # A group that still waits for its processes also has no followers, but must not be ended.
            left = [group for group in self._groups if group.followers.pop(node.name, None) is not None]
        over = [group for group in left if not group.followers]
        if over:
            threading.Thread(target=self._end, args=(over,), name="pypmix-release", daemon=True).start()

    def _end(self, groups: Sequence[Group]) -> None:
        """End groups without a process in the session, which stops their listening."""
        with self._gate:
            self._groups = [group for group in self._groups if group not in groups]
        for group in groups:
            # The DVM may have ended.
            with contextlib.suppress(PMIxError):
                group.close()

    def close(self) -> None:
        """End the processes, and leave the DVM."""
        try:
            for group in self._groups:
                group.close()
            if self._tool is not None:
                self._tool.close()
        except PMIxError:
            # The DVM has ended, and its processes with it.
            return

    @staticmethod
    def _names(tool: Tool) -> list[str]:
        """Return the names of the nodes on which the DVM has daemons."""
        (server, *_) = tool.get_servers()
        return [info.hostname or "" for info in tool.query(attrs.QUERY_PROC_TABLE, nspace=server.nspace)]
