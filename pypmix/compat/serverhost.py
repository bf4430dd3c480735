"""The parts behind a server object of the bindings: the `pypmix.Server`, its jobs, and the program's handlers."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import tempfile
import threading

from pypmix.compat.events import ServerEvents
from pypmix.compat.running import in_callback
from pypmix.compat.serveranswers import Handler, PendingUpcall
from pypmix.compat.serverjobs import Job
from pypmix.compat.serverupcalls import ROWS
from pypmix.server import Server, accept
from pypmix.serverbase import MAX_UNANSWERED
from pypmix.standard import attrs, keys, ops, statuses
from pypmix.standard.errors import NotFound, NotSupported, PMIxError, Unreachable, WouldDeadlock
from pypmix.standard.ops.publishing import RANGE_SESSION
from pypmix.standard.types import REQUIRED, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.engine.base import Done, Upcall
    from pypmix.standard.ops import Op

log = logging.getLogger("pypmix.compat")

OPTIONS = {
    attrs.SERVER_NSPACE.key: "nspace",
    attrs.SERVER_RANK.key: "rank",
    attrs.SERVER_TMPDIR.key: "tmpdir",
    attrs.SYSTEM_TMPDIR.key: "system_tmpdir",
    attrs.SERVER_TOOL_SUPPORT.key: "tool_support",
    attrs.SERVER_SYSTEM_SUPPORT.key: "system_server",
    attrs.LAUNCHER_RENDEZVOUS_FILE.key: "rendezvous_file",
    attrs.HOSTNAME.key: "hostname",
}
"""The infos of `init` that are arguments of `pypmix.Server`; other infos are ignored, or refused if required."""

TOOL_OPTIONS = frozenset({*OPTIONS, attrs.SERVER_SCHEDULER.key} - {attrs.SERVER_NSPACE.key, attrs.SERVER_RANK.key})
"""The infos of a tool's `init` that apply to the server inside the tool."""

HOSTED = (
    ops.QueryInfo,
    ops.JobControl,
    ops.AllocationRequest,
    ops.ProcessMonitor,
    ops.GetCredential,
    ops.ValidateCredential,
    ops.Spawn,
    ops.FabricRegister,
    ops.FabricUpdate,
    ops.Log,
    ops.SessionControl,
)
"""The operations that a server passes to its host when the program calls them on the server, as libpmix does."""


class Receiver:
    """The function that the engine calls with upcalls; on the native engine it outlives its `Hosting`."""

    def __init__(self) -> None:
        self.owner: Hosting | None = None

    def __call__(self, upcall: Upcall) -> None:
        owner = self.owner
        if owner is None:
            accept(upcall)
        else:
            owner.upcall(upcall)


_idle: list[tuple[Server, Receiver]] = []
"""Finalized native servers. No release of libpmix can start twice in a process, so the next `Hosting` reuses one."""


def _close_idle() -> None:
    while _idle:
        _idle.pop()[0].close()


class _Request:
    """A server's request to its own host; see `pypmix.engine.base.Upcall`."""

    def __init__(self, op: Op[Any], requestor: Proc, done: Done[Any]) -> None:
        self.op = op
        self.requestor: Proc | None = requestor
        self.uid: int | None = os.geteuid()
        self.gid: int | None = os.getegid()
        self._done = done

    def reply(self, result: object = None) -> None:
        """Answer with a result."""
        self._done(result, None)

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""
        self._done(None, error)


def _options(infos: Iterable[Info]) -> dict[str, Any]:
    """Convert infos to arguments of `pypmix.Server`.

    Raises:
        NotSupported: A required info is not supported.
    """
    options: dict[str, Any] = {}
    scheduler = False
    for info in infos:
        name = OPTIONS.get(info.key)
        if name is not None:
            options[name] = info.value.data
        elif info.key == attrs.SERVER_SCHEDULER.key:
            scheduler = info.value.data is not False
        elif info.flags & REQUIRED:
            raise NotSupported(f"a server does not know {info.key!r}", operation="server_init")
    if scheduler:
        # Tools that are to connect to the scheduler look for this file.
        folder = options.get("system_tmpdir") or tempfile.gettempdir()
        node = options.get("hostname") or socket.gethostname()
        options.setdefault("rendezvous_file", os.path.join(folder, f"{keys.SCHEDULER_FILE}.{node}"))
    if options.get("tmpdir"):
        os.makedirs(options["tmpdir"], mode=0o700, exist_ok=True)
    return options


def open_tool_server(proc: Proc, options: Iterable[Info], module: dict[str, Handler]) -> Hosting:
    """Return the server inside a tool. It runs on the Python engine.

    Args:
        proc: The tool's name, which is also the server's name.
        given: The infos of the tool's `init`.
        module: The handlers of upcalls.
    """
    # A libpmix is either a tool or a server. In the infos of a tool, `PMIX_SERVER_NSPACE` and `PMIX_SERVER_RANK` name
    # the server to connect to.
    infos = [info for info in options if info.key in TOOL_OPTIONS]
    names = [attrs.SERVER_NSPACE(proc.nspace), attrs.SERVER_RANK(proc.rank)]
    return Hosting([*names, *infos], module, "python")


class Hosting:
    """A running server, and the program that is its host.

    Args:
        infos: The infos of `init`.
        module: The handlers of upcalls, by their keys.
        engine: The engine to run on; by default, the environment names it.

    Attributes:
        server: The server.
        module: The handlers.
        hostname: The name of the node.
        jobs: The registered jobs, by nspace.
        psets: The names of the process sets that the program has defined.
        attributes: The supported attributes of the host's functions, by function name.
        values: The values that the program has put or stored for the server's own name, by key.
        events: The program's event handlers.
    """

    def __init__(self, infos: Iterable[Info], module: dict[str, Handler], engine: str | None = None) -> None:
        options = _options(infos)
        self.hostname: str = options.get("hostname") or socket.gethostname()
        self.module = module
        self.jobs: dict[str, Job] = {}
        self.psets: set[str] = set()
        self.attributes: dict[str, tuple[str, ...]] = {}
        self.values: dict[str, Value] = {}
        self._connected: set[Proc] = set()
        self._pending: dict[PendingUpcall, None] = {}
        self._busy: dict[Proc, int] = {}
        self._lock = threading.Lock()
        if _idle and engine is None:
            self.server, self._receiver = _idle.pop()
        else:
            self._receiver = Receiver()
            self.server = Server(self._receiver, engine=engine, **options).open()
        self.events = ServerEvents(self.server.proc)
        self._receiver.owner = self

    def close(self) -> None:
        """Stop serving: drop unanswered upcalls, and fail the program's own requests."""
        with self._lock:
            pending, self._pending = list(self._pending), {}
        for each in pending:
            if isinstance(each.upcall, _Request):
                each.settle(statuses.ERR_INIT, ())  # the program waits for this request
            else:
                each.drop()
        self.events.close()
        self._receiver.owner = None
        server = self.server
        if server.engine.name != "native":
            server.close()
            return
        for nspace in list(self.jobs):
            server.deregister_nspace(nspace)
        for name in list(self.psets):
            server.delete_process_set(name)
        if not _idle:
            atexit.register(_close_idle)
        _idle.append((server, self._receiver))

    # The engine calls this, on the engine's thread.

    def upcall(self, upcall: Upcall) -> None:
        """Process an upcall; never blocks."""
        op = upcall.op
        if isinstance(op, ops.ClientLost):
            self._connected.discard(op.proc)
            self._tell(statuses.ERR_LOST_CONNECTION, op.proc, RANGE_SESSION, (attrs.EVENT_AFFECTED_PROC(op.proc),))
            upcall.reply()
            return
        if isinstance(op, ops.ClientConnected):
            self._connected.add(op.proc)
        elif isinstance(op, ops.ClientFinalized):
            self._connected.discard(op.proc)
        elif isinstance(op, ops.NotifyEvent):
            self._tell(op.code, upcall.requestor or self.server.proc, op.range, op.infos)
        self._hand(upcall)

    def _hand(self, upcall: Upcall) -> None:
        row = ROWS.get(type(upcall.op))
        handler = None if row is None else next((self.module[key] for key in row.keys if key in self.module), None)
        if row is None or handler is None:
            if row is not None and row.free:
                upcall.reply()
            else:
                upcall.fail(NotSupported("the host has no handler for it", operation=upcall.op.name))
            return
        caller = upcall.requestor
        pending = PendingUpcall(row, upcall, self._forget_upcall)
        with self._lock:
            count = 0 if caller is None else self._busy.get(caller, 0)
            self._pending[pending] = None
            if caller is not None:
                self._busy[caller] = count + 1
        if count >= MAX_UNANSWERED and not row.free:
            log.error("%d requests of %s are unanswered: %s is refused", count, caller, row.keys[0])
            pending.settle(statuses.ERR_RESOURCE_BUSY, ())
        else:
            pending.begin(handler)

    def _forget_upcall(self, pending: PendingUpcall) -> None:
        caller = pending.upcall.requestor
        with self._lock:
            if self._pending.pop(pending, 0) is None and caller is not None:
                count = self._busy.pop(caller, 1) - 1
                if count > 0:
                    self._busy[caller] = count

    def _tell(self, code: int, source: Proc, range: int, infos: tuple[Info, ...]) -> None:
        self.events.notify(ops.Notification(code, source, range, infos))

    # Client operations of the program, which the server itself or its host carries out.

    @property
    def proc(self) -> Proc:
        """The server's name."""
        return self.server.proc

    def begin(self, op: Op[Any], done: Done[Any]) -> None:
        """Begin an operation; `done` is called once."""
        own = _OWN.get(type(op))
        if own is None and isinstance(op, ops.Log) and not {"log", "log2"} & set(self.module):
            own = _write
        if own is not None:
            try:
                result = own(self, op)
            except Exception as error:
                done(None, error)
            else:
                done(result, None)
        elif isinstance(op, HOSTED):
            self._hand(_Request(op, self.server.proc, done))
        else:
            done(None, Unreachable("a server has no server that it could ask", operation=op.name))

    def carry_out(self, op: Op[Any]) -> Any:
        """Carry out an operation, and return its result."""
        ended = threading.Event()
        found: list[tuple[Any, BaseException | None]] = []

        def done(result: Any, error: BaseException | None) -> None:
            found.append((result, error))
            ended.set()

        self.begin(op, done)
        if not ended.is_set() and in_callback():
            raise WouldDeadlock("a handler cannot wait for another handler", operation=op.name)
        ended.wait()
        result, error = found[0]
        if error is not None:
            raise error
        return result

    def find(self, op: ops.Get) -> Value:
        """Return the value of a get, from the values and job infos that the program gave to this server.

        Raises:
            NotFound: The server has no such value.
        """
        if op.proc == self.server.proc and op.key in self.values:
            return self.values[op.key]
        job = self.jobs.get(op.proc.nspace)
        found = None if job is None else job.find(op.proc.rank, op.key, op.directives)
        if found is None:
            raise NotFound("the server was told nothing of that key", operation="get", procs=(op.proc,))
        return found

    def named(self, nspace: str | None) -> list[Job]:
        """Return the job of an nspace, or all jobs for None.

        Raises:
            NotFound: The nspace is not registered.
        """
        if nspace is None:
            return list(self.jobs.values())
        if nspace not in self.jobs:
            raise NotFound(f"no nspace {nspace!r} is registered here", operation="resolve")
        return [self.jobs[nspace]]

    # Jobs

    def register_nspace(self, nspace: str, nlocal: int, infos: tuple[Info, ...]) -> None:
        """Register a job, or add infos to a registered job.

        Raises:
            PMIxError: The job is registered, and has connected clients (`ERR_EXISTS`).
        """
        before = self.jobs.get(nspace)
        job = Job(nspace, nlocal, (*(() if before is None else before.given), *infos), self.hostname)
        if before is None:
            self.server.register_nspace(job.info, job.local)
            self.jobs[nspace] = job
            return
        job.stored = before.stored
        for rank, identity in before.clients.items():
            job.admit(rank)
            job.clients[rank] = identity
        self._register_again(job)

    def _register_again(self, job: Job) -> None:
        """Replace the registration of a job whose infos or local ranks have changed.

        Raises:
            PMIxError: The job has connected clients (`ERR_EXISTS`).
        """
        if any(proc.nspace == job.nspace for proc in list(self._connected)):
            detail = f"clients of {job.nspace!r} are connected: nothing can be added to it"
            raise PMIxError(detail, status=statuses.ERR_EXISTS, operation="register_nspace")
        server = self.server
        server.deregister_nspace(job.nspace)
        server.register_nspace(job.info, job.local)
        self.jobs[job.nspace] = job
        for rank, (uid, gid) in job.clients.items():
            server.register_client(job.proc(rank), uid, gid)
        for (rank, key), value in job.stored.items():
            server.store_internal(job.proc(rank), key, value)

    def deregister_nspace(self, nspace: str) -> None:
        """Deregister a job; does nothing if it is not registered."""
        if self.jobs.pop(nspace, None) is not None:
            self.server.deregister_nspace(nspace)
            self._connected.difference_update([proc for proc in list(self._connected) if proc.nspace == nspace])

    def register_client(self, proc: Proc, uid: int, gid: int) -> None:
        """Register a process as a client.

        Raises:
            NotFound: Its nspace is not registered.
        """
        (job,) = self.named(proc.nspace)
        if job.admit(proc.rank):
            self._register_again(job)
        self.server.register_client(proc, uid, gid)
        job.clients[proc.rank] = uid, gid

    def deregister_client(self, proc: Proc) -> None:
        """Deregister a process that has ended; does nothing if it is not registered."""
        job = self.jobs.get(proc.nspace)
        if job is not None and job.clients.pop(proc.rank, None) is not None:
            self.server.deregister_client(proc)
            self._connected.discard(proc)

    def store(self, proc: Proc, key: str, value: Value) -> None:
        """Store a value of a proc."""
        if proc == self.server.proc:
            self.values[key] = value
            return
        self.server.store_internal(proc, key, value)
        job = self.jobs.get(proc.nspace)
        if job is not None:
            job.stored[proc.rank, key] = value


def _put(hosting: Hosting, op: Any) -> None:
    hosting.values[op.key] = op.value


def _peers(hosting: Hosting, op: Any) -> tuple[Proc, ...]:
    node = op.node or hosting.hostname
    return tuple([proc for job in hosting.named(op.nspace) for proc in job.procs_on(node)])


def _nodes(hosting: Hosting, op: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys([name for job in hosting.named(op.nspace) for name in job.nodes()]))


def _write(_hosting: Hosting, op: Any) -> None:
    streams = {attrs.LOG_STDERR.key: sys.stderr, attrs.LOG_STDOUT.key: sys.stdout}
    for info in op.data:
        if info.key in streams:
            print(info.value.data, end="", file=streams[info.key], flush=True)


_OWN: dict[type[Any], Callable[[Hosting, Any], Any]] = {
    ops.Get: Hosting.find,
    ops.Put: _put,
    ops.Commit: lambda _hosting, _op: None,
    ops.ResolvePeers: _peers,
    ops.ResolveNodes: _nodes,
    ops.RegisterEventHandler: lambda hosting, op: hosting.events.register(op),
    ops.DeregisterEventHandler: lambda hosting, op: hosting.events.deregister(op.id),
    ops.Heartbeat: lambda _hosting, _op: None,
}
"""The operations that a server carries out without its host."""
