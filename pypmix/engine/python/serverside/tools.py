"""Tools at a server: which may connect, under which name, and which data is removed when they disconnect."""

from __future__ import annotations

import os

from pypmix.engine.python.node import Applicant, Topic
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, OutOfResources, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import ToolConnected
from pypmix.standard.releases import release_text
from pypmix.standard.types import RANK_VALID, Proc
from pypmix.wire.handshake import (
    FLAG_LAUNCHER_CLIENT,
    FLAG_LAUNCHER_GIVEN_ID,
    FLAG_LAUNCHER_NEEDS_ID,
    FLAG_LEGACY_LAUNCHER,
    FLAG_LEGACY_TOOL,
    FLAG_SINGLETON,
    FLAG_TOOL_CLIENT,
)
from pypmix.wire.toolreply import NEEDS_ID, ToolReply, encode_tool_reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.python.node import Node, Peer
    from pypmix.engine.python.processes import Namespace, Process
    from pypmix.engine.python.serverside.handshakes import Handshake, Handshakes
    from pypmix.standard.releases import Release
    from pypmix.wire.handshake import Hello

LEGACY = frozenset({FLAG_LEGACY_TOOL, FLAG_LEGACY_LAUNCHER})
"""The kinds of tools of releases before 4.0."""

LAUNCHED = frozenset({FLAG_TOOL_CLIENT, FLAG_LAUNCHER_CLIENT})
"""The kinds of tools that a server, maybe another one, has launched as its clients."""

LAUNCHERS = frozenset({FLAG_LAUNCHER_NEEDS_ID, FLAG_LAUNCHER_GIVEN_ID, FLAG_LAUNCHER_CLIENT})

SINGLETON_AS_CLIENT = (((5, 0, 10), (6, 0, 0)), ((6, 1, 0), (1 << 16, 0, 0)))
"""Releases, from and before, whose singletons expect the answer that clients get; others expect a tool's answer."""

MAX_TOOLS = 4096
"""Bound of the names of tools that are known at a time."""


class Tools(Topic):
    """Admits tools, launchers, schedulers and singletons, and forgets them when they have disconnected.

    A tool is a separate, unregistered job; a tool that was launched as a client is the proc that it was launched as.

    Attributes:
        owner: The user whose tools are admitted, besides root's tools.
    """

    def __init__(self, server: Node, handshakes: Handshakes) -> None:
        super().__init__(server)
        self._handshakes = handshakes
        self.owner = os.geteuid()
        self._names: dict[str, Namespace] = {}
        self._known = 0
        self._assigned = 0

    def greeted(self, handshake: Handshake, hello: Hello, release: Release) -> None:
        """Handle the hello of a connection that is not a simple client."""
        who = f"a tool (kind {hello.flag})" if hello.nspace is None else f"{hello.nspace}:{hello.rank}"[:300]
        try:
            uid, gid = self._user(hello, release, handshake.link.uid())
            proc = self._brought(hello)
            process = None if proc is None else self._process(proc, hello, uid)
            self._handshakes.admission.check(handshake.link.uid(), hello.psec, uid, process is not None)
            if process is None:
                self._check_owner(uid)
            hello = hello.complete()
        except PMIxError as error:
            self._handshakes.refuse_because(handshake, error, who, release)
            return

        def answer(assigned: Proc | None, error: BaseException | None) -> None:
            if handshake.link.owner is not handshake:
                return
            if error is not None:
                self._handshakes.refuse_because(handshake, error, f"{who} refused by the host", release)
                return
            name = proc or assigned or self._assign()
            try:
                if not isinstance(name, Proc) or not name.nspace or name.rank > RANK_VALID:
                    raise PMIxError(f"the host names it {name!r}: not a name", status=statuses.ERR_BAD_PARAM)
                if process is None:
                    tool = self._adopt(name, uid, gid)
                else:
                    tool = process
                    if not tool.registered or self.server.store.get(name.nspace) is not tool.namespace:
                        raise NotFound("it is not expected any more")
            except PMIxError as failure:
                self._handshakes.refuse_because(handshake, failure, who, release)
                return
            reply = None
            if not _answered_as_client(hello, release):
                given = name if hello.flag in NEEDS_ID else None
                reply = encode_tool_reply(ToolReply(given, self.server.proc))
            self._handshakes.admit(handshake, tool, release, hello, reply)

        pid = next((info.value.data for info in hello.infos if info.key == keys.PROC_PID), None)
        op = ToolConnected(
            proc,
            pid if isinstance(pid, int) else None,
            hello.flag in LAUNCHERS,
            release_text(release),
            hello.infos,
        )
        self.server.host.upcall(op, answer, Applicant(proc, uid, gid))

    def is_one(self, peer: Peer) -> bool:
        """Return True if a connection belongs to a tool."""
        return peer.process.namespace.name in self._names

    def disconnected(self, peer: Peer) -> None:
        name = peer.process.namespace.name
        if name in self._names:
            # The caller is not done with this connection's proc yet.
            self.server.clock.call_later(0, lambda: self._forget(name))

    def deregistered(self, namespace: Namespace) -> None:
        if self._names.get(namespace.name) is namespace:
            del self._names[namespace.name]
            self._known -= len(namespace.processes)

    def _user(self, hello: Hello, release: Release, owner: int | None) -> tuple[int, int]:
        """Return the user and group of a tool, if it can be served."""
        if hello.flag in LEGACY:
            raise PMIxError("it is of a release before 4.0", status=statuses.ERR_NOT_SUPPORTED)
        uid, gid = self._handshakes.credential(hello, release)
        if hello.uid != uid:
            raise PMIxError(f"it calls itself user {hello.uid} and user {uid}", status=statuses.ERR_INVALID_CRED)
        if uid != self.owner and self._handshakes.admission.is_vouched(owner, hello.psec, self.owner):
            # In a user namespace in which users have other numbers, groups have other numbers too.
            return self.owner, os.getegid()
        return uid, gid

    def _brought(self, hello: Hello) -> Proc | None:
        """Return the name that a tool brings, None if it asks for one."""
        if hello.flag in NEEDS_ID:
            return None
        rank = hello.rank or 0
        if not hello.nspace or rank > RANK_VALID:
            raise PMIxError("the name that it brings is none", status=statuses.ERR_BAD_PARAM)
        if hello.nspace == self.server.proc.nspace:
            raise PMIxError("it brings the name of this server", status=statuses.ERR_EXISTS)
        return Proc.unchecked(hello.nspace, rank)

    def _process(self, proc: Proc, hello: Hello, uid: int) -> Process | None:
        """Return the proc of a job that a tool claims to be, None if it is not of a job.

        It is checked that the tool may have its name.
        """
        namespace = self.server.store.get(proc.nspace)
        if namespace is None:
            return None
        if proc.nspace in self._names:
            _check_mates(namespace, uid)
            return None
        if hello.flag not in LAUNCHED:
            raise PMIxError("the name that it brings is that of a job", status=statuses.ERR_EXISTS)
        process = namespace.processes.get(proc.rank)
        if process is None or not process.registered:
            raise NotFound("no such process is expected")
        if uid != process.uid:
            raise PMIxError(f"it is of user {uid}, expected is {process.uid}", status=statuses.ERR_INVALID_CRED)
        return process

    def _check_owner(self, uid: int) -> None:
        if uid not in (0, self.owner):
            raise PMIxError(
                f"it is of user {uid}, and this server of user {self.owner}", status=statuses.ERR_INVALID_CRED
            )

    def _assign(self) -> Proc:
        while True:
            self._assigned += 1
            # Servers of a session have one nspace, and their tools meet.
            own = self.server.proc
            name = f"{own.nspace[:230]}-tool{f'{own.rank}-' if own.rank else ''}{self._assigned}"
            if self.server.store.get(name) is None:
                return Proc(name, 0)

    def _adopt(self, proc: Proc, uid: int, gid: int) -> Process:
        """Register a tool that the host has not registered."""
        if self._known >= MAX_TOOLS:
            raise OutOfResources("there are too many tools")
        namespace = self._names.get(proc.nspace)
        if namespace is None:
            namespace = self.server.store.add(JobInfo(proc.nspace, procs=((proc.rank, ()),)))
            self._names[proc.nspace] = namespace
            self._known += 1
        else:
            _check_mates(namespace, uid)
            if proc.rank not in namespace.processes:
                namespace.enlarge(proc.rank)
                self._known += 1
        process = namespace.processes[proc.rank]
        process.registered = True
        process.uid, process.gid = uid, gid
        process.left = False
        return process

    def _forget(self, name: str) -> None:
        namespace = self._names.get(name)
        if namespace is None or any(self.server.peers(process) for process in namespace.processes.values()):
            return
        self.server.deregister_nspace(name)


def _check_mates(namespace: Namespace, uid: int) -> None:
    if any(other.uid != uid for other in namespace.processes.values()):
        raise PMIxError("its name is that of another user's tool", status=statuses.ERR_INVALID_CRED)


def _answered_as_client(hello: Hello, release: Release) -> bool:
    return hello.flag == FLAG_SINGLETON and any(floor <= release < end for floor, end in SINGLETON_AS_CLIENT)
