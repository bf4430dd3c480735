"""The server in `async` and `await`; the sync one documents each function in full."""

from __future__ import annotations

import os
from functools import partial

import anyio
import anyio.to_thread

from pypmix.requests import limit
from pypmix.server import Answer, accept
from pypmix.server import Server as Blocking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import ParamSpec, Self, TypeVar

    from pypmix.engine.base import EngineInfo, OnUpcall, Pending, ServerSession
    from pypmix.requests import Infos, Key, Procs
    from pypmix.server import Described
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.limits import Limits
    from pypmix.standard.ops import Notification, Output
    from pypmix.standard.types import Info, Proc

    P = ParamSpec("P")
    R = TypeVar("R")


async def _call(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run what waits for the engine on a thread; the wait itself can be cancelled, what was asked for cannot."""
    return await anyio.to_thread.run_sync(partial(function, *args, **kwargs), abandon_on_cancel=True)


class Server:
    """A server of this node, for local processes; see `pypmix.Server` for the arguments.

    `on_upcall` is called on the engine's thread as there. `pypmix.host.Host` has methods for upcalls instead.
    """

    def __init__(
        self,
        on_upcall: OnUpcall = accept,
        *,
        engine: str | None = None,
        nspace: str | None = None,
        tmpdir: str | os.PathLike[str] | None = None,
        system_tmpdir: str | os.PathLike[str] | None = None,
        tool_support: bool = False,
        system_server: bool = False,
        rendezvous_file: str | os.PathLike[str] | None = None,
        hostname: str | None = None,
        rank: int = 0,
        library: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._server = Blocking(
            on_upcall,
            engine=engine,
            nspace=nspace,
            tmpdir=tmpdir,
            system_tmpdir=system_tmpdir,
            tool_support=tool_support,
            system_server=system_server,
            rendezvous_file=rendezvous_file,
            hostname=hostname,
            rank=rank,
            library=library,
            limits=limits,
        )

    async def open(self) -> Self:
        """`PMIx_server_init`: start to serve; returns the server itself."""
        # Not to be abandoned: nobody would close what has opened meanwhile.
        with anyio.CancelScope(shield=True):
            await _call(self._server.open)
        return self

    async def close(self) -> None:
        """`PMIx_server_finalize`: drop all clients and remove the server's files; may be called twice."""
        with anyio.CancelScope(shield=True):
            await _call(self._server.close)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def session(self) -> ServerSession:
        """The engine's session."""
        return self._server.session

    @property
    def proc(self) -> Proc:
        """The server's own proc."""
        return self._server.proc

    @property
    def engine(self) -> EngineInfo:
        """The engine that serves."""
        return self._server.engine

    async def register_nspace(self, job: JobInfo | Described, local: Iterable[int] | None = None) -> None:
        """`PMIx_server_register_nspace`: take in a job's info, so that its clients can connect."""
        await _call(self._server.register_nspace, job, local)

    async def deregister_nspace(self, nspace: str) -> None:
        """`PMIx_server_deregister_nspace`: forget a job and all data of its procs."""
        await _call(self._server.deregister_nspace, nspace)

    async def register_client(self, proc: Proc, uid: int | None = None, gid: int | None = None) -> None:
        """`PMIx_server_register_client`: expect a process of this node under the name of `proc`."""
        await _call(self._server.register_client, proc, uid, gid)

    async def deregister_client(self, proc: Proc) -> None:
        """`PMIx_server_deregister_client`: a process has ended; what waits for it goes on without it."""
        await _call(self._server.deregister_client, proc)

    async def client_env(self, proc: Proc) -> dict[str, str]:
        """`PMIx_server_setup_fork`: the environment variables that make a process the client `proc`."""
        return await _call(self._server.client_env, proc)

    async def define_process_set(self, name: str, members: Procs, *, elsewhere: bool = False) -> None:
        """`PMIx_server_define_process_set`: make a process set known to this server's clients."""
        await _call(self._server.define_process_set, name, members, elsewhere=elsewhere)

    async def delete_process_set(self, name: str) -> None:
        """`PMIx_server_delete_process_set`: forget a process set."""
        await _call(self._server.delete_process_set, name)

    async def dmodex_request(self, proc: Proc, *, key: str = "", timeout: float | None = None) -> bytes:
        """`PMIx_server_dmodex_request`: what a proc of this server has committed for others."""
        seconds = limit(timeout)
        answer: Answer[bytes] = Answer()
        await _call(self._server.dmodex_request, proc, answer.done, key=key, timeout=timeout)
        # A thread of its own: any number may wait for data that what waits for a thread would bring.
        wait = partial(answer.wait, seconds, "dmodex_request")
        try:
            return await anyio.to_thread.run_sync(wait, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
        finally:
            answer.done(None, None)

    async def setup_application(self, nspace: str, info: Infos = None) -> tuple[Info, ...]:
        """`PMIx_server_setup_application`: prepare what a job needs on its nodes."""
        return await _call(self._server.setup_application, nspace, info)

    async def setup_local_support(self, nspace: str, info: Infos = None) -> None:
        """`PMIx_server_setup_local_support`: take in what a job needs on this node."""
        await _call(self._server.setup_local_support, nspace, info)

    async def collect_inventory(self, info: Infos = None) -> tuple[Info, ...]:
        """`PMIx_server_collect_inventory`: what this node has."""
        return await _call(self._server.collect_inventory, info)

    async def deliver_inventory(self, inventory: Infos, info: Infos = None) -> None:
        """`PMIx_server_deliver_inventory`: take in what another node has."""
        await _call(self._server.deliver_inventory, inventory, info)

    async def register_resources(self, resources: Infos) -> None:
        """`PMIx_server_register_resources`: take in info that is of no nspace; clients find it with a get."""
        await _call(self._server.register_resources, resources)

    async def deregister_resources(self, resources: Infos) -> None:
        """`PMIx_server_deregister_resources`: forget such info."""
        await _call(self._server.deregister_resources, resources)

    async def store_internal(self, proc: Proc, key: Key, value: object) -> None:
        """`PMIx_Store_internal`: keep a value of a proc for what is asked on this side."""
        await _call(self._server.store_internal, proc, key, value)

    generate_regex = staticmethod(Blocking.generate_regex)
    generate_ppn = staticmethod(Blocking.generate_ppn)
    parse_regex = staticmethod(Blocking.parse_regex)
    parse_ppn = staticmethod(Blocking.parse_ppn)

    async def notify(self, event: Notification) -> None:
        """`PMIx_Notify_event`: raise an event."""
        await _call(self._server.notify, event)

    async def deliver_output(self, output: Output) -> None:
        """`PMIx_server_IOF_deliver`: pass on what a proc wrote to all who have asked for it."""
        await _call(self._server.deliver_output, output)

    async def groups(self) -> tuple[tuple[str, tuple[Proc, ...]], ...]:
        """See `pypmix.Server.groups`."""
        return await _call(self._server.groups)

    async def connections(self) -> tuple[tuple[str, tuple[Proc, ...]], ...]:
        """See `pypmix.Server.connections`."""
        return await _call(self._server.connections)

    async def pending(self) -> list[Pending]:
        """Return what is under way, oldest first, with who has arrived and who is missing in each."""
        return await _call(self._server.pending)
