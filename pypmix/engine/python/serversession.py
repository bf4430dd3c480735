"""A running server: the machine of `server`, its reactor, and what hosts and children see of them."""

from __future__ import annotations

import os
import socket
import threading

from pypmix._version import __version__
from pypmix.engine.base import EngineInfo
from pypmix.engine.python.reactor import BACKLOG, Reactor
from pypmix.engine.python.server import Server
from pypmix.standard.errors import NotInitialized, PMIxError
from pypmix.standard.types import MAX_NSLEN, Proc, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Done, OnUpcall, Pending, R
    from pypmix.engine.python.serverdata import Process
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.ops import Op

ANNOUNCED = "7.0.0"
"""The release that clients are told.

Clients of all releases take every server from 3.1.100 on for the same, but those of 7.0 refuse to delete what they have
put where the server is older, and this one carries deletions out.
"""


class HostUpcall:
    """One question to the host."""

    __slots__ = ("_answer", "_lock", "_reactor", "gid", "op", "requestor", "uid")

    def __init__(self, reactor: Reactor, op: Op[Any], answer: Done[Any], process: Process | None) -> None:
        self.op: Op[object] = op
        self.requestor: Proc | None = process.proc if process else None
        self.uid: int | None = process.uid if process else None
        self.gid: int | None = process.gid if process else None
        self._reactor = reactor
        self._lock = threading.Lock()
        self._answer: Done[Any] | None = answer

    def reply(self, result: object = None) -> None:
        """Answer with a result. Only the first answer counts."""
        self._done(result, None)

    def fail(self, error: BaseException) -> None:
        """Answer with an error; a `PMIxError` passes its status on to the client."""
        self._done(None, error)

    def _done(self, result: object, error: BaseException | None) -> None:
        with self._lock:
            answer, self._answer = self._answer, None
        if answer is None:
            return
        try:
            self._reactor.post(lambda: answer(result, error))
        except NotInitialized:
            return


class ServerSession:
    """A running server of this node; see `pypmix.engine.base.ServerSession`."""

    def __init__(
        self,
        on_upcall: OnUpcall,
        nspace: str | None,
        host: str | None,
        tmpdir: str | None,
        on_log: Callable[[str], None] | None,
    ) -> None:
        name = check_name(nspace or f"pypmix-{os.getpid()}", MAX_NSLEN, "the server's nspace")
        self.proc = Proc(name, 0)
        self.info = EngineInfo("python", ANNOUNCED)
        self.hostname = host or socket.gethostname()
        self.tmpdir = tmpdir or os.environ.get("TMPDIR") or "/tmp"
        self._on_upcall = on_upcall
        self._on_log = on_log
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.port: int = listener.getsockname()[1]
        self._reactor = Reactor(f"pypmix-server-{self.port}", self.log)
        self._server = Server(self._reactor, self)
        self._reactor.listen(listener, self._server.opened)
        self._reactor.start()

    # What the machine asks of its host, in the reactor's thread.

    def upcall(self, op: Op[R], answer: Done[R], process: Process | None = None) -> None:
        """Pass an upcall on; see `server.Host`."""
        upcall = HostUpcall(self._reactor, op, answer, process)
        try:
            self._on_upcall(upcall)
        except Exception as error:
            self.log(f"the host failed in the upcall {op!r}: {error!r}")
            upcall.fail(error)

    def log(self, text: str) -> None:
        """Note something for a person; see `server.Host`."""
        if self._on_log is not None:
            self._on_log(text)
            return
        import logging

        logging.getLogger("pypmix.server").warning("%s: %s", self.proc, text)

    # What hosts call, from any thread.

    def register_nspace(self, job: JobInfo) -> None:
        """`PMIx_server_register_nspace`: take in the job info of an nspace, so that its clients can connect."""
        self._reactor.call(lambda: self._server.register_nspace(job))

    def deregister_nspace(self, nspace: str) -> None:
        """`PMIx_server_deregister_nspace`: forget an nspace; its clients lose their connections."""
        self._reactor.call(lambda: self._server.deregister_nspace(nspace))

    def register_client(self, proc: Proc, uid: int, gid: int) -> None:
        """`PMIx_server_register_client`: expect a process of this node, of this user and group."""
        self._reactor.call(lambda: self._server.register_client(proc, uid, gid))

    def deregister_client(self, proc: Proc) -> None:
        """`PMIx_server_deregister_client`: a process has ended; what waits for it goes on without it."""
        self._reactor.call(lambda: self._server.deregister_client(proc))

    def client_env(self, proc: Proc) -> dict[str, str]:
        """`PMIx_server_setup_fork`: return the environment variables that make a process the client `proc`."""
        return {
            "PMIX_NAMESPACE": proc.nspace,
            "PMIX_RANK": str(proc.rank),
            # Only this name of the variable: it makes clients of all releases speak the same encoding.
            "PMIX_SERVER_URI41": f"{self.proc.nspace}.{self.proc.rank};tcp4://127.0.0.1:{self.port}",
            "PMIX_VERSION": ANNOUNCED,
            "PMIX_SECURITY_MODE": "native",
            "PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_NON_DESC",
            "PMIX_GDS_MODULE": "hash",
            "PMIX_HOSTNAME": self.hostname,
            "PMIX_SERVER_TMPDIR": self.tmpdir,
            "PMIX_SYSTEM_TMPDIR": self.tmpdir,
            # With the nspace, because a process passes it on to the clients of another server that it starts.
            "PYPMIX_SERVER": f"{self.proc.nspace} {__version__}",
        }

    def pending(self) -> list[Pending]:
        """Return the collectives and gets under way, oldest first."""
        return self._reactor.call(self._server.pending)

    def close(self) -> None:
        """`PMIx_server_finalize`: close all connections and end the thread. May be called twice."""
        try:
            self._reactor.call(self._server.close)
        except PMIxError:
            pass
        self._reactor.stop()


def open_server(
    on_upcall: OnUpcall,
    nspace: str | None = None,
    host: str | None = None,
    tmpdir: str | None = None,
    on_log: Callable[[str], None] | None = None,
) -> ServerSession:
    """Start a server of this node (`PMIx_server_init`).

    Args:
        on_upcall: Called with each `Upcall`, on the server's own thread; it must not block, and may answer later from
            any thread. The operations are `ClientConnected` (an error refuses the client), `ClientFinalized`,
            `ClientAborted`, `ClientLost`, `Publish`, `Lookup` and `Unpublish`.
        nspace: The server's own name; `pypmix-` and the pid by default.
        host: The name of this node; the system's host name by default.
        tmpdir: The folder that clients are told for temporary files; the system's by default.
        on_log: Told what a person who runs the server should know, such as a client that was refused and why; by
            default that goes to the logger `pypmix.server`.

    Raises:
        OSError: No socket can be opened on the loopback interface.
    """
    return ServerSession(on_upcall, nspace, host, tmpdir, on_log)
