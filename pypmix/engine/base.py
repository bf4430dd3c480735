"""The protocols of an engine, which facades call and both engines implement."""

from __future__ import annotations

from pypmix.standard._typing import TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from pypmix.engine.common import EngineInfo, Pending
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.ops import GroupState, Notification, Op, Output
    from pypmix.standard.ops.events import Delivery as Delivery
    from pypmix.standard.types import Info, Proc, Value

    Asked = tuple[str, tuple[Proc, ...], str]
    Kind = tuple[Proc | None, Asked, int | None]
    Traced = tuple[list[Kind], list[int]]
else:
    from pypmix.standard._typing import Generic as Protocol

R = TypeVar("R")

if TYPE_CHECKING:
    Done = Callable[[R | None, BaseException | None], None]
    """The function that `submit` calls when an operation has ended: with its result, or with its error."""


class ClientSession(Protocol):
    """An open client: one process's connection to its server, or a singleton without one."""

    info: EngineInfo
    proc: Proc
    singleton: bool
    server: str
    """The server as the environment names it, `nspace.rank release`; empty for a singleton."""

    def submit(self, op: Op[R], done: Done[R]) -> None:
        """Start an operation and return at once.

        `done` is called exactly once, possibly before this returns and possibly on another thread; it must not block.
        Errors of the operation go to `done`; only a closed session raises here.
        """

    def withdraw(self, done: Done[R]) -> bool:
        """Withdraw the contribution to a collective, as the caller of `submit` no longer waits for `done`.

        Returns:
            True if the server was asked for that, and `done` is about to be called. Otherwise it may never be. A
            foreign server still counts the caller, and the next call of the same procs continues this one.
        """

    def run(self, op: Op[R]) -> R:
        """Carry out an operation, block the calling thread until it completes, and return its result.

        Raises:
            PMIxError: The operation failed.
        """

    def put(self, key: str, value: Value, scope: int) -> None:
        """Carry out a `Put` of checked arguments: the operation of which programs make most.

        Raises:
            PMIxError: The operation failed.
        """

    def fetch_local(self, proc: Proc, key: str) -> Value | None:
        """Return a value that this process already has, without any wait or message; None if it has not."""

    def group_state(self, name: str) -> GroupState | None:
        """Return the state of a group of this process, without any wait or message; None if it is not a member."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `poll` has work.

        An event loop that watches it may use `submit` without any further thread. It is -1 for a session whose
        operations all complete inside `submit`.
        """

    def attach(self) -> None:
        """Promise that the caller watches `fileno` and calls `poll`, so that the engine needs no thread."""

    def detach(self) -> None:
        """Withdraw the promise of `attach`."""

    def poll(self) -> None:
        """Process received messages without blocking, and complete their operations."""

    def supports(self, feature: str) -> bool:
        """Return True if a feature (`fence.timeout`, ...) works with this engine and server."""

    def close(self) -> None:
        """Close the connection without `Finalize`; pending operations fail (`LostConnection`). May be called twice."""

    def forked(self) -> None:
        """This is a forked child of the process that opened it: close its descriptors, and leave the parent's alone."""


class ToolSession(ClientSession, Protocol):
    """An open tool: a client that need not have been launched, with any number of servers.

    It carries out the operations of `pypmix.standard.ops.tools` too; all others go to its primary server. `proc` stays
    the same once there has been a server; `info`, `server` and `singleton` are those of the primary server now.
    """

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a primary server."""


class Upcall(Protocol):
    """A request of a server to its host; answered once, now or later, from any thread.

    Attributes:
        op: The requested operation.
        requestor: The client that caused the request; None if no client did.
        uid: The client's user, as verified by the server; None without a client.
        gid: The client's group.
    """

    op: Op[object]
    requestor: Proc | None
    uid: int | None
    gid: int | None

    def reply(self, result: object = None) -> None:
        """Answer with a result."""

    def fail(self, error: BaseException) -> None:
        """Answer with an error; a `PMIxError` passes its status on to the peer."""


class Cancellable(Protocol):
    """A call that is due later."""

    def cancel(self) -> None: ...


class Guest(Protocol):
    """A loop in the thread of a server; only `post` and `later` may be called from other threads."""

    def post(self, callback: Callable[[], None], /) -> None:
        """Call `callback` soon; from any thread. Raises `NotInitialized` if the server has been closed."""

    def later(self, delay: float, callback: Callable[[], None], /) -> Cancellable:
        """Call `callback` after `delay` seconds."""

    def watch(self, fd: int, events: int, callback: Callable[[], None], /) -> None:
        """Call `callback` whenever `fd` is ready."""

    def unwatch(self, fd: int, /) -> None:
        """Stop watching `fd`; to be called before it is closed."""


class ServerSession(Protocol):
    """A running server of one node."""

    info: EngineInfo
    proc: Proc

    def loop(self) -> Guest | None:
        """Return a loop in the server's thread for connections to other servers; None if the engine has none.

        Its calls must not block. It ends with the server.
        """

    def register_nspace(self, job: JobInfo, local: tuple[int, ...] | None = None) -> None:
        """Register the job info of an nspace, so that its clients can connect (`PMIx_server_register_nspace`).

        Args:
            job: The job info.
            local: The ranks of this server, by default all; none if the server only needs the job info. Operations that
                include other ranks go to the host: `FenceUpcall`, `DirectModex`, `GroupUpcall`, `Connect`.

        Raises:
            PMIxError: The nspace is registered already (`ERR_EXISTS`).
        """

    def register_later(self, nspace: str, register: Callable[[ServerSession], None]) -> None:
        """Call `register` with this session to register an nspace, at the latest before the first client is served.

        It may be called on the server's thread, and its errors are logged then. Until then, registrations of procs of
        the nspace wait with it.

        Args:
            nspace: The nspace, which is not registered yet.
            register: Calls `register_nspace` of the session, and may call `register_resources`.
        """

    def prepare(self) -> None:
        """Do soon, on the server's thread, what the first client would otherwise wait for."""

    def deregister_nspace(self, nspace: str) -> None:
        """Forget an nspace and all data of its procs; connected clients lose their connection."""

    def register_client(self, proc: Proc, uid: int, gid: int) -> None:
        """Expect a process of this node (`PMIx_server_register_client`); no other may connect under its name."""

    def register_clients(self, procs: Sequence[Proc], uid: int, gid: int) -> None:
        """Expect processes of this node, all of one user and group."""

    def deregister_client(self, proc: Proc) -> None:
        """Deregister an exited process (`PMIx_server_deregister_client`); pending operations no longer wait for it."""

    def client_env(self, proc: Proc) -> dict[str, str]:
        """Return the environment variables that make a process the client `proc` (`PMIx_server_setup_fork`).

        Variables of an outer job (`PMIX_*`) in the child's inherited environment must be dropped first.
        """

    def notify(self, event: Notification) -> None:
        """Raise an event (`PMIx_Notify_event`); its range determines the clients and tools that receive it."""

    def deliver_output(self, output: Output) -> None:
        """Pass output of a proc to all clients and tools that pull it (`PMIx_server_IOF_deliver`)."""

    def catch_up(self) -> None:
        """Wait until the host has received all upcalls whose clients were answered early.

        A host that keeps no output calls this before it drops output, on which a client may count after the early
        answer to its pull. Must not be called from an upcall, nor while a loop is attached.
        """

    def trace(self) -> Callable[[], Traced] | None:
        """Trace the requests of clients that connect from now on.

        Returns:
            A function that returns, in any one thread, the requests that have ended since its last call; None if the
            engine cannot see requests. It returns first the new kinds of requests: the caller; the name of the
            operation, its procs, and a key or a group; and the status, None without an answer. Then follow three
            numbers for each request: the number of its kind, counted from 0 since the first call; and, in nanoseconds
            of `time.monotonic_ns`, when it was received, and when its answer was sent or its caller was lost.
        """

    def settle(self) -> bool:
        """Process the losses of clients up to now; return True if they must be processed one at a time."""

    def dmodex_request(self, proc: Proc, done: Done[bytes], *, key: str = "", timeout: float = 0.0) -> None:
        """Request the data that a proc of this server has committed for others (`PMIx_server_dmodex_request`).

        Args:
            proc: A proc that was registered as a client, or will be.
            done: Called once, in any thread: with the data, when there is some, or with an error. It must not block.
            key: A key to wait for, as long as the proc may still commit it; by default any data is enough.
            timeout: Seconds after which it fails with `OperationTimeout`; 0 for no limit.
        """

    def define_process_set(self, name: str, members: tuple[Proc, ...], elsewhere: bool = False) -> None:
        """Make a process set known to this server's clients (`PMIx_server_define_process_set`).

        `pypmix.engine.psets` has the rules; `elsewhere` allows members of nspaces that are not registered here.
        """

    def delete_process_set(self, name: str) -> None:
        """Delete a process set (`PMIx_server_delete_process_set`)."""

    def setup_application(self, nspace: str, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        """Prepare the infos that a job needs on its nodes (`PMIx_server_setup_application`).

        Returns:
            The infos for `setup_local_support` of each node's server.
        """

    def setup_local_support(self, nspace: str, infos: tuple[Info, ...]) -> None:
        """Set up the infos that a job needs on this node (`PMIx_server_setup_local_support`)."""

    def collect_inventory(self, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        """Return the inventory of this node (`PMIx_server_collect_inventory`)."""

    def deliver_inventory(self, infos: tuple[Info, ...], directives: tuple[Info, ...]) -> None:
        """Store the inventory of other nodes (`PMIx_server_deliver_inventory`)."""

    def register_resources(self, infos: tuple[Info, ...]) -> None:
        """Register infos without an nspace (`PMIx_server_register_resources`), which clients read with `get`.

        Raises:
            NotSupported: The library is older than 5.0 and has no such function.
        """

    def deregister_resources(self, infos: tuple[Info, ...]) -> None:
        """Remove such infos (`PMIx_server_deregister_resources`)."""

    def store_internal(self, proc: Proc, key: str, value: Value) -> None:
        """Store a value of a proc for requests of this process only (`PMIx_Store_internal`)."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when upcalls wait; -1 for an engine without one."""

    def attach(self) -> Callable[[Callable[[], None]], object] | None:
        """Promise that this thread watches `fileno` from now on and calls `poll`, which then calls the host.

        If it does not call `poll` for a while (half a second with libpmix, 20 ms with the Python engine), the engine's
        thread calls the host until it does again: with libpmix, two threads may call the host at a time.

        Returns:
            A function that calls another function in this thread, and sends its answers at once instead of with the
            next `poll`; it raises `NotInitialized` if the server has been closed. None if answers need no such call.
        """

    def poll(self) -> None:
        """Call the host with the waiting upcalls, without blocking."""

    def pending(self) -> list[Pending]:
        """Return the operations in progress, oldest first; empty with a library that does not report them."""

    def close(self) -> None:
        """Stop serving, close all connections and remove the server's files. May be called twice."""

    def forked(self) -> None:
        """This is a forked child of the process that opened it: close its descriptors, and leave the parent's alone."""


if TYPE_CHECKING:
    OnUpcall = Callable[[Upcall], None]
