"""The server: what a resource manager runs on each node for the processes of its jobs."""

from __future__ import annotations

import os

from pypmix.engine.select import open_server
from pypmix.standard.errors import NotInitialized, NotSupported
from pypmix.standard.ops import ClientConnected, ClientFinalized, ClientLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pypmix.engine.base import EngineInfo, OnUpcall, Pending, ServerSession, Upcall
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.ops import Notification, Output
    from pypmix.standard.types import Proc

_ACCEPTED = (ClientConnected, ClientFinalized, ClientLost)


def accept(upcall: Upcall) -> None:
    """Let every registered client come and go; answer all else with `NotSupported`."""
    if isinstance(upcall.op, _ACCEPTED):
        upcall.reply()
    else:
        upcall.fail(NotSupported("this host does not offer it", operation=upcall.op.name))


class Server:
    """`PMIx_server_init` to `PMIx_server_finalize`: a server of this node, for local processes.

    Use it in a `with` block, or call `open` and `close`.

    Args:
        on_upcall: Called with each request to the host as an `Upcall`, on the engine's thread: it must not
            block, and answers now or later, from any thread. By default clients are accepted and nothing else
            is offered.
        engine: The engine to run on; only `python` so far.
        nspace: The server's own nspace; made from the pid if None.
        tmpdir: The folder that clients are told for temporary files; the system's by default.
        system_tmpdir: The folder for what is not of one job; that of the system by default.
        tool_support: Let tools of this user find the server (`PMIX_SERVER_TOOL_SUPPORT`): write its rendezvous
            files into `tmpdir`. `on_upcall` admits each tool, or not, by its answer to `ToolConnected`.
        system_server: Be the one system server of this node (`PMIX_SERVER_SYSTEM_SUPPORT`), and write that rendezvous
            file into `system_tmpdir`.
        rendezvous_file: A further rendezvous file to write (`PMIX_LAUNCHER_RENDEZVOUS_FILE`).
    """

    def __init__(
        self,
        on_upcall: OnUpcall = accept,
        *,
        engine: str = "python",
        nspace: str | None = None,
        tmpdir: str | None = None,
        system_tmpdir: str | None = None,
        tool_support: bool = False,
        system_server: bool = False,
        rendezvous_file: str | None = None,
    ) -> None:
        self._on_upcall = on_upcall
        self._engine = engine
        self._nspace = nspace
        self._tmpdir = tmpdir
        self._system_tmpdir = system_tmpdir
        self._tool_support = tool_support
        self._system_server = system_server
        self._rendezvous_file = rendezvous_file
        self._session: ServerSession | None = None

    def open(self) -> Self:
        """`PMIx_server_init`: start to serve.

        Returns:
            The server itself.

        Raises:
            EngineUnavailable: The engine cannot serve here.
            PMIxError: A rendezvous file cannot be written, or is that of another server that runs (`ERR_EXISTS`).
        """
        if self._session is None:
            self._session = open_server(
                self._on_upcall,
                engine=self._engine,
                nspace=self._nspace,
                tmpdir=self._tmpdir,
                system_tmpdir=self._system_tmpdir,
                tool_support=self._tool_support,
                system_server=self._system_server,
                rendezvous_file=self._rendezvous_file,
            )
        return self

    def close(self) -> None:
        """`PMIx_server_finalize`: drop all clients and remove the server's files; may be called twice."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def session(self) -> ServerSession:
        """The engine's session.

        Raises:
            NotInitialized: The server is not open.
        """
        if self._session is None:
            raise NotInitialized("the server is not open", operation="server", hint="use `with Server() as server:`")
        return self._session

    @property
    def proc(self) -> Proc:
        """The server's own proc."""
        return self.session.proc

    @property
    def engine(self) -> EngineInfo:
        """The engine that serves."""
        return self.session.info

    def register_nspace(self, job: JobInfo) -> None:
        """`PMIx_server_register_nspace`: take in a job's info, so that its clients can connect.

        Args:
            job: The job info, level by level.

        Raises:
            PMIxError: The nspace is registered already (`ERR_EXISTS`).
        """
        self.session.register_nspace(job)

    def deregister_nspace(self, nspace: str) -> None:
        """`PMIx_server_deregister_nspace`: forget a job and all data of its procs.

        Args:
            nspace: The job's namespace; clients of it that are still connected lose their connection.
        """
        self.session.deregister_nspace(nspace)

    def register_client(self, proc: Proc, uid: int | None = None, gid: int | None = None) -> None:
        """`PMIx_server_register_client`: expect a process of this node under the name of `proc`.

        Args:
            proc: The proc; its nspace must be registered.
            uid: The user that the process runs as; this process's own by default.
            gid: Its group.
        """
        self.session.register_client(proc, os.geteuid() if uid is None else uid, os.getegid() if gid is None else gid)

    def deregister_client(self, proc: Proc) -> None:
        """`PMIx_server_deregister_client`: a process has ended; what waits for it goes on without it.

        Args:
            proc: The proc.
        """
        self.session.deregister_client(proc)

    def client_env(self, proc: Proc) -> dict[str, str]:
        """`PMIx_server_setup_fork`: the environment variables that make a process the client `proc`.

        Args:
            proc: A registered proc.

        Returns:
            Names and values. `PMIX_*` variables of an outer job in the child's environment must be dropped
            first.
        """
        return self.session.client_env(proc)

    def notify(self, event: Notification) -> None:
        """`PMIx_Notify_event`: raise an event.

        Args:
            event: The event; its range says which clients and tools of this server hear of it.
        """
        self.session.notify(event)

    def deliver_output(self, output: Output) -> None:
        """`PMIx_server_IOF_deliver`: pass on what a proc wrote to all who have asked for it.

        Args:
            output: A piece of output; one without data ends its channel.
        """
        self.session.deliver_output(output)

    def pending(self) -> list[Pending]:
        """Return what is under way, oldest first, with who has arrived and who is missing in each."""
        return self.session.pending()
