"""The server, which a resource manager runs on each node for the processes of its jobs."""

from __future__ import annotations

import os

from pypmix.aio.waits import apart, call, shielded
from pypmix.arguments import limit, proc_tuple
from pypmix.engine.select import open_server
from pypmix.engine.serving import ServerOptions
from pypmix.serverbase import (
    MOMENT,
    Answer,
    check_nspace,
    check_proc,
    check_text,
    check_upcall,
    engine_of,
    identity,
    path_of,
)
from pypmix.serverbase import accept as accept
from pypmix.standard.errors import NotInitialized, NotSupported
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.limits import Limits
from pypmix.standard.ops.core import check_key, instances
from pypmix.standard.types import MAX_NSLEN, RANK_VALID, Info, Proc, check_name
from pypmix.standard.values import info as make_info
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self, overload

    from pypmix.arguments import Infos, Key, Procs
    from pypmix.engine.base import Done, OnUpcall, ServerSession
    from pypmix.engine.common import EngineInfo, Pending
    from pypmix.standard.jobinfo import JobDescription
    from pypmix.standard.ops import Notification, Output


_servers: dict[Server, Callable[[], None]] = {}
"""The open servers, each with the function that closes its descriptors in a forked child."""


def _at_fork() -> None:
    left = list(_servers.values())
    _servers.clear()
    for leave in left:
        leave()


os.register_at_fork(after_in_child=_at_fork)


class Server:
    """`PMIx_server_init` to `PMIx_server_finalize`: a server of this node, for local processes.

    Use it in a `with` block, or call `open` and `close`. It belongs to the process that opened it: a child that this
    forks has a server that is not open.

    Args:
        on_upcall: Called with each request to the host as an `Upcall`, on the engine's thread: it must not
            block, cannot be an `async def`, and answers now or later, from any thread. By default clients are accepted
            and nothing else is offered. An exception of it fails that request.
        engine: The engine to run on: `python`, or `native` for the site's libpmix, which has one server in the life
            of a process. None asks `PYPMIX_ENGINE`, and is `python` without it.
        nspace: The server's own nspace; made from the pid if None.
        tmpdir: The folder that clients use for temporary files; the system's by default.
        system_tmpdir: The folder for files that belong to no single job; the system's by default.
        tool_support: Let tools of this user find the server (`PMIX_SERVER_TOOL_SUPPORT`): write its rendezvous
            files into `tmpdir`. `on_upcall` admits each tool, or not, by its answer to `ToolConnected`.
        system_server: Be the one system server of this node (`PMIX_SERVER_SYSTEM_SUPPORT`), and write that rendezvous
            file into `system_tmpdir`.
        rendezvous_file: A further rendezvous file to write (`PMIX_LAUNCHER_RENDEZVOUS_FILE`).
        hostname: The name of this node (`PMIX_HOSTNAME`); the system's by default.
        rank: The server's own rank in its nspace (`PMIX_SERVER_RANK`), for a session with several servers.
        library: The path of the libpmix that the native engine runs on; that of `PYPMIX_LIBPMIX`, or what is found
            as for clients, by default.
        limits: The limits of one peer at a server of the Python engine; those of `PYPMIX_LIMITS` by default.

    Example:
        >>> job = JobLayout("job2", (Application(("./worker",), np=1),), (NodeLayout("node1", (0,)),))
        >>> async with Server() as server:
        ...     await server.register_nspace(job)
        ...     await server.register_client(Proc("job2", 0))
        ...     print(server.proc, server.engine, await server.client_env(Proc("job2", 0)))
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
        check_upcall(on_upcall)
        check_text("engine", engine)
        check_text("hostname", hostname)
        if nspace is not None:
            check_nspace(nspace, MAX_NSLEN, "the server's nspace")
        if type(rank) is not int:
            raise TypeError(f"the server's rank must be an int, not {type(rank).__name__}")
        if not 0 <= rank < RANK_VALID:
            raise OverflowError(f"the server's rank lies between 0 and {RANK_VALID - 1}, not {rank}")
        self._on_upcall = on_upcall
        self._engine = engine_of(engine)
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits are Limits, not {type(limits).__name__}")
        self.limits = Limits.of(os.environ) if limits is None else limits
        self._options = ServerOptions(
            nspace,
            hostname,
            path_of("tmpdir", tmpdir),
            path_of("system_tmpdir", system_tmpdir),
            tool_support,
            system_server,
            path_of("rendezvous_file", rendezvous_file),
            rank,
            path_of("library", library),
            self.limits,
        )
        self._session: ServerSession | None = None

    async def open(self) -> Self:
        """`PMIx_server_init`: start to serve.

        Returns:
            The server itself.

        Raises:
            EngineUnavailable: The engine cannot serve here.
            PMIxError: A rendezvous file cannot be written, or is that of another server that runs (`ERR_EXISTS`).

        Example:
            >>> server = await Server().open()
            >>> await server.close()
        """
        if self._session is None:
            # Not to be abandoned: a server that opens meanwhile would never be closed.
            with shielded(None):
                self._session = await call(open_server, self._on_upcall, self._engine, self._options)
            _servers[self] = self._forked
        return self

    def _forked(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.forked()

    async def close(self) -> None:
        """`PMIx_server_finalize`: drop all clients and remove the server's files; may be called twice.

        Example:
            >>> server = await Server().open()
            >>> await server.close()
        """
        session, self._session = self._session, None
        _servers.pop(self, None)
        if session is not None:
            with shielded(None):
                await call(session.close)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def session(self) -> ServerSession:
        """The engine's session.

        Raises:
            NotInitialized: The server is not open.
        """
        if self._session is None:
            hint = "use `with Server() as server:`; a child that was forked opens its own"
            raise NotInitialized("the server is not open", operation="server", hint=hint)
        return self._session

    @property
    def proc(self) -> Proc:
        """The server's own proc."""
        return self.session.proc

    @property
    def engine(self) -> EngineInfo:
        """The engine that serves."""
        return self.session.info

    # Jobs and their procs

    async def register_nspace(self, job: JobInfo | JobDescription, local: Iterable[int] | None = None) -> None:
        """`PMIx_server_register_nspace`: take in a job's info, so that its clients can connect.

        Args:
            job: A `pypmix.host.JobLayout`, or the job info, level by level.
            local: The ranks that this server serves, none where it only has to know of the job; all by default.
                What concerns others too is put to the host: `FenceUpcall`, `DirectModex`, `GroupUpcall`, `Connect`.

        Raises:
            TypeError, ValueError: The job does not describe one, or a rank is invalid.
            PMIxError: The nspace is registered already (`ERR_EXISTS`).

        Example:
            >>> job = JobLayout("job2", (Application(("./worker",), np=2),), (NodeLayout("node1", (0, 1)),))
            >>> await server.register_nspace(job, local=[0, 1])
        """
        described = job if isinstance(job, JobInfo) else getattr(job, "info", lambda: job)()
        if not isinstance(described, JobInfo):
            raise TypeError(f"an nspace is registered with a JobInfo or a Job, not with a {type(job).__name__}")
        check_nspace(described.nspace)
        ranks = None if local is None else tuple(local)
        for rank in ranks or ():
            if type(rank) is not int or not 0 <= rank < RANK_VALID:
                raise ValueError(f"invalid rank {rank!r}")
        await call(self.session.register_nspace, described, ranks)

    async def deregister_nspace(self, nspace: str) -> None:
        """`PMIx_server_deregister_nspace`: forget a job and all data of its procs.

        Args:
            nspace: The job's namespace; clients of it that are still connected lose their connection.

        Example:
            >>> await server.deregister_nspace("job1")
        """
        check_nspace(nspace)
        await call(self.session.deregister_nspace, nspace)

    async def register_client(self, proc: Proc, uid: int | None = None, gid: int | None = None) -> None:
        """`PMIx_server_register_client`: expect a process of this node under the name of `proc`.

        Args:
            proc: The proc; its nspace must be registered.
            uid: The user that the process runs as; this process's own by default.
            gid: Its group.

        Example:
            >>> await server.register_client(Proc("job1", 1), uid=1000, gid=1000)
        """
        check_proc(proc)
        uid = os.geteuid() if uid is None else identity("uid", uid)
        gid = os.getegid() if gid is None else identity("gid", gid)
        await call(self.session.register_client, proc, uid, gid)

    async def deregister_client(self, proc: Proc) -> None:
        """`PMIx_server_deregister_client`: a process has ended; pending operations continue without it.

        Args:
            proc: The proc.

        Example:
            >>> await server.deregister_client(Proc("job1", 0))
        """
        check_proc(proc)
        await call(self.session.deregister_client, proc)

    async def client_env(self, proc: Proc) -> dict[str, str]:
        """`PMIx_server_setup_fork`: the environment variables that make a process the client `proc`.

        Args:
            proc: A registered proc.

        Returns:
            Names and values. `PMIX_*` variables of an outer job in the child's environment must be dropped
            first.

        Example:
            >>> env = await server.client_env(Proc("job1", 0))
            >>> env["PMIX_NAMESPACE"], env["PMIX_RANK"]
            ('job1', '0')
        """
        check_proc(proc)
        return await call(self.session.client_env, proc)

    async def define_process_set(self, name: str, members: Procs, *, elsewhere: bool = False) -> None:
        """`PMIx_server_define_process_set`: make a process set known to this server's clients.

        They get `PMIX_PROCESS_SET_DEFINE`, even if they register for it later. The set never changes, and keeps its
        members when these end; `delete_process_set` forgets it. In a session with several servers, the host defines
        it on all of them.

        Args:
            name: Its name, at most 255 bytes, without a comma.
            members: Its procs, at least one; `Rank.WILDCARD` stands for all of a job that is registered.
            elsewhere: Let procs of nspaces that are not registered here be members, as those of other servers.

        Raises:
            TypeError, ValueError: The name or a member is invalid.
            NotFound: A member is not known.
            PMIxError: There is a set of that name, or an nspace (`ERR_EXISTS`), or it is not a name (`ERR_BAD_PARAM`).

        Example:
            >>> await server.define_process_set("readers", [Proc("job1", 0), Proc("job1", 1)])
        """
        if not check_name(name, MAX_NSLEN, "a process set's name"):
            raise ValueError("a process set's name must not be empty")
        found = proc_tuple(members)
        instances("members", found, Proc)
        if not found:
            raise ValueError("a process set needs members")
        await call(self.session.define_process_set, name, found, elsewhere)

    async def delete_process_set(self, name: str) -> None:
        """`PMIx_server_delete_process_set`: forget a process set.

        Args:
            name: Its name.

        Raises:
            NotFound: There is no such set.

        Example:
            >>> await server.define_process_set("writers", Proc("job1", 0))
            >>> await server.delete_process_set("writers")
        """
        if not check_name(name, MAX_NSLEN, "a process set's name"):
            raise ValueError("a process set's name must not be empty")
        await call(self.session.delete_process_set, name)

    # Requests of nodes and of other servers

    if TYPE_CHECKING:

        @overload
        async def dmodex_request(
            self, proc: Proc, done: None = None, *, key: str = "", timeout: float | None = None
        ) -> bytes: ...

        @overload
        async def dmodex_request(
            self, proc: Proc, done: Done[bytes], *, key: str = "", timeout: float | None = None
        ) -> None: ...

    async def dmodex_request(
        self, proc: Proc, done: Done[bytes] | None = None, *, key: str = "", timeout: float | None = None
    ) -> bytes | None:
        """`PMIx_server_dmodex_request`: return the data that a proc of this server has committed for others.

        It is the answer to the upcall `DirectModex` of another server, and made to be handed on as it is.

        Args:
            proc: A proc that was registered as a client, or will be.
            done: Called once with the data and None, or with None and the error, on any thread; it must not block. This
                returns None at once then.
            key: The key that a reader waits for (`PMIX_REQUIRED_KEY`): there is no answer before the proc has committed
                it, unless it goes without. Anything by default.
            timeout: Seconds to wait for that; None waits for ever.

        Raises:
            NotFound: There will be none.
            OperationTimeout: There was none in time.

        Example:
            >>> try:
            ...     data = await server.dmodex_request(Proc("job1", 0), key="endpoint", timeout=0.1)
            ... except OperationTimeout:
            ...     print("the process has not committed it yet")
            the process has not committed it yet
        """
        check_proc(proc)
        if key:
            check_key(key)
        seconds = limit(timeout)
        # A caller that does not wait at all must not make the engine wait for ever.
        given = 0.0 if seconds is None else max(seconds, MOMENT)
        if done is not None:
            await call(self.session.dmodex_request, proc, done, key=key, timeout=given)
            return None
        answer: Answer[bytes] = Answer()
        await call(self.session.dmodex_request, proc, answer.done, key=key, timeout=given)
        try:
            return await apart(answer.wait, seconds, "dmodex_request")
        finally:
            answer.done(None, None)  # for a thread whose caller no longer waits

    async def setup_application(self, nspace: str, info: Infos = None) -> tuple[Info, ...]:
        """`PMIx_server_setup_application`: prepare what a job needs on its nodes.

        Args:
            nspace: The job's namespace.
            info: Directives, such as `attrs.SETUP_APP_ENVARS`.

        Returns:
            What the server of each of its nodes is to be given by `setup_local_support`.

        Example:
            >>> found = await server.setup_application("job1", {attrs.SETUP_APP_ENVARS: True})
        """
        check_nspace(nspace)
        return await call(self.session.setup_application, nspace, infos(info))

    async def setup_local_support(self, nspace: str, info: Infos = None) -> None:
        """`PMIx_server_setup_local_support`: set up the resources that a job needs on this node.

        Args:
            nspace: The job's namespace.
            info: What `setup_application` has returned.

        Example:
            >>> found = await server.setup_application("job1", {attrs.SETUP_APP_ENVARS: True})
            >>> await server.setup_local_support("job1", found)
        """
        check_nspace(nspace)
        await call(self.session.setup_local_support, nspace, infos(info))

    async def collect_inventory(self, info: Infos = None) -> tuple[Info, ...]:
        """`PMIx_server_collect_inventory`: return the inventory of this node.

        Args:
            info: Directives.

        Example:
            >>> inventory = await server.collect_inventory()
        """
        return await call(self.session.collect_inventory, infos(info))

    async def deliver_inventory(self, inventory: Infos, info: Infos = None) -> None:
        """`PMIx_server_deliver_inventory`: store the inventory of another node.

        Args:
            inventory: What `collect_inventory` has returned there.
            info: Directives.

        Example:
            >>> await server.deliver_inventory(await server.collect_inventory())
        """
        await call(self.session.deliver_inventory, infos(inventory), infos(info))

    async def register_resources(self, resources: Infos) -> None:
        """`PMIx_server_register_resources`: take in info that is of no nspace; clients find it with a get.

        Args:
            resources: The info.

        Raises:
            NotSupported: The library has no such function (before 5.0).

        Example:
            >>> await server.register_resources({"acme.license": "node7"})
        """
        await call(self.session.register_resources, infos(resources))

    async def deregister_resources(self, resources: Infos) -> None:
        """`PMIx_server_deregister_resources`: forget such info.

        Args:
            resources: Its keys; their values mean nothing.

        Raises:
            NotSupported: The library has no such function (before 5.0).

        Example:
            >>> await server.register_resources({"acme.license": "node7"})
            >>> await server.deregister_resources({"acme.license": ""})
        """
        await call(self.session.deregister_resources, infos(resources))

    async def store_internal(self, proc: Proc, key: Key, value: object) -> None:
        """`PMIx_Store_internal`: store a value of a proc for requests of this process.

        Args:
            proc: Whose value it is to be.
            key: A key or an attribute, which fixes the value's type.
            value: A Python object or an explicit `Value`.

        Example:
            >>> await server.store_internal(Proc("job1", 0), "acme.load", 0.5)
        """
        check_proc(proc)
        made = make_info(key, value)
        check_key(made.key)
        await call(self.session.store_internal, proc, made.key, made.value)

    # Lists of nodes and ranks

    @staticmethod
    def generate_regex(nodes: Iterable[str]) -> str:
        """`PMIx_generate_regex`: the value of `attrs.NODE_MAP`, in a form that all releases read.

        Args:
            nodes: The names of the nodes.

        Raises:
            TypeError, ValueError: A name is invalid.

        Example:
            >>> node_map = Server.generate_regex(["node1", "node2"])
        """
        from pypmix.engine.regex import generate_nodes

        return generate_nodes(nodes)

    @staticmethod
    def generate_ppn(ranks: Iterable[Iterable[int]]) -> str:
        """`PMIx_generate_ppn`: the value of `attrs.PROC_MAP`, in a form that all releases read.

        Args:
            ranks: For each node the ranks on it.

        Raises:
            TypeError, ValueError: A rank is invalid.

        Example:
            >>> proc_map = Server.generate_ppn([[0, 1], [2, 3]])
        """
        from pypmix.engine.regex import generate_ppn

        return generate_ppn(ranks)

    @staticmethod
    def parse_regex(given: str | bytes) -> list[str]:
        """Return the names in a value of `attrs.NODE_MAP`, as a server of any release makes it.

        Raises:
            ValueError: It is not such a list.

        Example:
            >>> Server.parse_regex(Server.generate_regex(["node1", "node2"]))
            ['node1', 'node2']
        """
        from pypmix.engine.regex import parse_nodes

        return parse_nodes(given)

    @staticmethod
    def parse_ppn(given: str | bytes) -> list[list[int]]:
        """Return the ranks on each node in a value of `attrs.PROC_MAP`, as a server of any release makes it.

        Raises:
            ValueError: It is not such a list.

        Example:
            >>> Server.parse_ppn(Server.generate_ppn([[0, 1], [2, 3]]))
            [[0, 1], [2, 3]]
        """
        from pypmix.engine.regex import parse_ppn

        return parse_ppn(given)

    # Events and output

    async def notify(self, event: Notification) -> None:
        """`PMIx_Notify_event`: raise an event.

        Args:
            event: The event; its range says which clients and tools of this server get it.

        Example:
            >>> from pypmix.standard.ops import Notification
            >>> drain = Notification(EventCode.custom(-4242), server.proc, Range.LOCAL, (attrs.HOSTNAME("node1"),))
            >>> await server.notify(drain)
        """
        from pypmix.standard.ops.events import Notification, check_code

        if not isinstance(event, Notification):
            raise TypeError(f"an event is a Notification, not {type(event).__name__}")
        check_code(event.code)
        check_proc(event.source)
        instances("infos", event.infos, Info)
        await call(self.session.notify, event)

    async def deliver_output(self, output: Output) -> None:
        """`PMIx_server_IOF_deliver`: pass on output of a proc to all clients and tools that pull it.

        Args:
            output: A piece of output; one without data ends its channel.

        Example:
            >>> await server.deliver_output(Output(Proc("job1", 0), IOFChannel.STDOUT, b"a line\\n"))
        """
        from pypmix.standard.ops.forwarding import DIAG, STDERR, STDOUT, Output

        if not isinstance(output, Output):
            raise TypeError(f"a piece of output is an Output, not {type(output).__name__}")
        check_proc(output.source)
        if output.channel not in (STDOUT, STDERR, DIAG):
            raise ValueError(f"{output.channel!r} is not a channel that a proc writes to")
        if not isinstance(output.data, bytes):
            raise TypeError(f"output is bytes, not {type(output.data).__name__}")
        instances("infos", output.infos, Info)
        await call(self.session.deliver_output, output)

    async def groups(self) -> tuple[tuple[str, tuple[Proc, ...]], ...]:
        """Return the groups that members on this server are in, each with its members by group rank.

        Several groups may have one name where they have no member in common.

        Raises:
            NotSupported: The native library does not tell of its groups.

        Example:
            >>> for name, members in await server.groups():
            ...     print(name, members)
        """
        listed = getattr(self.session, "groups", None)
        if listed is None:
            raise NotSupported("the library does not tell of its groups", operation="groups")
        found: tuple[tuple[str, tuple[Proc, ...]], ...] = await call(listed)
        return found

    async def connections(self) -> tuple[tuple[str, tuple[Proc, ...]], ...]:
        """Return the connections of this server's procs, each as its nspace and the procs that are still in it.

        Raises:
            NotSupported: The native library knows of no connections.

        Example:
            >>> for nspace, procs in await server.connections():
            ...     print(nspace, procs)
        """
        listed = getattr(self.session, "connections", None)
        if listed is None:
            raise NotSupported("the library knows of no connections", operation="connections")
        found: tuple[tuple[str, tuple[Proc, ...]], ...] = await call(listed)
        return found

    async def pending(self) -> list[Pending]:
        """Return the calls in progress, oldest first, each with the procs that have arrived and the missing ones.

        Example:
            >>> for call in await server.pending():
            ...     print(call)
        """
        return await call(self.session.pending)
