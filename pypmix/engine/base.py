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
Rc = TypeVar("Rc", contravariant=True)


class Done(Protocol[Rc]):
    """The function that `submit` calls when an operation has ended: with its result, or with its error."""

    def __call__(self, result: Rc | None, error: BaseException | None, /) -> None: ...


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
        """The caller of `submit` no longer waits for `done`: in a collective it is no longer to be counted in.

        Returns:
            True if the server was asked for that, and `done` is about to be called. Otherwise it may never be. A
            foreign server still counts the caller, and the next call of the same procs continues this one.
        """

    def run(self, op: Op[R]) -> R:
        """Carry out an operation, block the calling thread until it has ended, and return its result.

        Raises:
            PMIxError: The operation failed.
        """

    def fetch_local(self, proc: Proc, key: str) -> Value | None:
        """Return a value that is in this process already, without any wait or message; None if it is not."""

    def group_state(self, name: str) -> GroupState | None:
        """Return how a group stands that this process is a member of, without any wait or message; None without one."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `poll` has work.

        An event loop that watches it may use `submit` without any further thread. It is -1 for a session whose
        operations all end inside `submit`.
        """

    def attach(self) -> None:
        """Promise that somebody watches `fileno` and calls `poll`; the engine starts no thread of its own then."""

    def detach(self) -> None:
        """Take the promise of `attach` back."""

    def poll(self) -> None:
        """Take in what has arrived, without blocking, and complete the operations that it ends."""

    def supports(self, feature: str) -> bool:
        """Tell whether a feature (`fence.timeout`, ...) works with this engine and server."""

    def close(self) -> None:
        """Drop the connection without `Finalize`; what is pending fails with `LostConnection`. May be called twice."""

    def forked(self) -> None:
        """This is a forked child of the process that opened it: close its descriptors, and leave the parent's alone."""


class ToolSession(ClientSession, Protocol):
    """An open tool: a client that need not have been launched, with any number of servers.

    It carries out the operations of `pypmix.standard.ops.tools` too; all others go to its primary server. `proc` stays
    the same once there has been a server; `info`, `server` and `singleton` are those of the primary server now.
    """

    @property
    def connected(self) -> bool:
        """Whether there is a primary server, and the connection to it stands."""


class Upcall(Protocol):
    """A request of a server to its host; answered once, now or later, from any thread.

    Attributes:
        op: What is asked.
        requestor: The client that asks, None where no client does.
        uid: The user that the server knows this client to be, whatever it says itself; None without a client.
        gid: Its group.
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
    """A loop on the thread of a server; only `post` may be called on other threads."""

    def post(self, callback: Callable[[], None], /) -> None:
        """Call `callback` soon; from any thread. Raises `NotInitialized` where the server has ended."""

    def later(self, delay: float, callback: Callable[[], None], /) -> Cancellable:
        """Call `callback` after `delay` seconds."""

    def watch(self, fd: int, events: int, callback: Callable[[], None], /) -> None:
        """Call `callback` whenever `fd` is ready."""

    def unwatch(self, fd: int, /) -> None:
        """Forget `fd`; to be called before it is closed."""


class ServerSession(Protocol):
    """A running server of one node."""

    info: EngineInfo
    proc: Proc

    def loop(self) -> Guest | None:
        """Return a loop on the server's thread, for what talks to other servers; None where it takes no guest.

        Nothing on it may block. It ends with the server.
        """

    def register_nspace(self, job: JobInfo, local: tuple[int, ...] | None = None) -> None:
        """Take in the job info of an nspace, so that its clients can connect (`PMIx_server_register_nspace`).

        Args:
            job: The job info.
            local: The ranks that are this server's, none where it only has to know of the job; all by default. What
                concerns other ranks too is put to the host: `FenceUpcall`, `DirectModex`, `GroupUpcall`, `Connect`.

        Raises:
            PMIxError: The nspace is registered already (`ERR_EXISTS`).
        """

    def deregister_nspace(self, nspace: str) -> None:
        """Forget an nspace and all data of its procs; connected clients lose their connection."""

    def register_client(self, proc: Proc, uid: int, gid: int) -> None:
        """Expect a process of this node (`PMIx_server_register_client`); no other one may connect under that name."""

    def register_clients(self, procs: Sequence[Proc], uid: int, gid: int) -> None:
        """Expect processes of this node, all of one user and group."""

    def deregister_client(self, proc: Proc) -> None:
        """A process has ended (`PMIx_server_deregister_client`): what still waits for it goes on without it."""

    def client_env(self, proc: Proc) -> dict[str, str]:
        """Return the environment variables that make a process the client `proc` (`PMIx_server_setup_fork`).

        Variables of an outer job (`PMIX_*`) in the child's inherited environment must be dropped first.
        """

    def notify(self, event: Notification) -> None:
        """Raise an event (`PMIx_Notify_event`); its range says which clients and tools of this server get it."""

    def deliver_output(self, output: Output) -> None:
        """Pass on what a proc wrote to all who have asked for it (`PMIx_server_IOF_deliver`)."""

    def catch_up(self) -> None:
        """Return when the host has been called with all upcalls whose clients were answered before the host was asked.

        A host that keeps no output calls this before it drops some: a client whose pull was answered so counts on it.
        Not from an upcall, nor where somebody has attached.
        """

    def trace(self) -> Callable[[], Traced] | None:
        """Note what clients that connect from now on ask, with its times.

        Returns:
            What returns, on any one thread, the requests that have ended since the last time. First the kinds of
            requests that are new since then: the caller; the name of the operation, the procs that it concerns, and a
            key or a group; and the status, None without an answer. Then, one after the other, three numbers for each
            request: that of its kind, counted from 0 since the first time; and in nanoseconds of `time.monotonic_ns`
            when it came, and when its answer was sent or its caller was lost. None for an engine that cannot see
            requests.
        """

    def settle(self) -> bool:
        """Take in the losses of clients up to now; tell whether they have to come one at a time."""

    def dmodex_request(self, proc: Proc, done: Done[bytes], *, key: str = "", timeout: float = 0.0) -> None:
        """Ask what a proc of this server has committed for others (`PMIx_server_dmodex_request`).

        Args:
            proc: A proc that was registered as a client, or will be.
            done: Called once, on any thread: with the data, when there is some, or with an error. It must not block.
            key: What has to be there before it is answered, as long as the proc may still commit it; anything by
                default.
            timeout: Seconds after which it ends with `OperationTimeout`; 0 waits for ever.
        """

    def define_process_set(self, name: str, members: tuple[Proc, ...], elsewhere: bool = False) -> None:
        """Make a process set known to this server's clients (`PMIx_server_define_process_set`).

        `pypmix.engine.psets` says what makes one; `elsewhere` allows members of nspaces that are not registered here.
        """

    def delete_process_set(self, name: str) -> None:
        """Forget a process set (`PMIx_server_delete_process_set`)."""

    def setup_application(self, nspace: str, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        """Prepare what a job needs on its nodes (`PMIx_server_setup_application`).

        Returns:
            What each node's server is to be given by `setup_local_support`.
        """

    def setup_local_support(self, nspace: str, infos: tuple[Info, ...]) -> None:
        """Take in what a job needs on this node (`PMIx_server_setup_local_support`)."""

    def collect_inventory(self, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        """Return what this node has (`PMIx_server_collect_inventory`)."""

    def deliver_inventory(self, infos: tuple[Info, ...], directives: tuple[Info, ...]) -> None:
        """Take in what other nodes have (`PMIx_server_deliver_inventory`)."""

    def register_resources(self, infos: tuple[Info, ...]) -> None:
        """Take in info that is of no nspace (`PMIx_server_register_resources`); clients get it with a get of their own.

        Raises:
            NotSupported: The library has no such function (before 5.0).
        """

    def deregister_resources(self, infos: tuple[Info, ...]) -> None:
        """Forget such info (`PMIx_server_deregister_resources`)."""

    def store_internal(self, proc: Proc, key: str, value: Value) -> None:
        """Keep a value of a proc for what is asked on this side (`PMIx_Store_internal`)."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when upcalls wait; -1 for an engine that has none."""

    def attach(self) -> Callable[[Callable[[], None]], object] | None:
        """Promise that this thread watches `fileno` from now on and calls `poll`, which calls the host then.

        Where it does not call for a while (half a second with libpmix, 20 ms with the Python engine), the engine's
        thread calls the host until it does again: with libpmix, two threads may call the host at a time.

        Returns:
            What calls a function on this thread so that the answers which it gives go out at once, not with the next
            `poll`; it raises `NotInitialized` where the server has ended. None where answers need nothing.
        """

    def poll(self) -> None:
        """Call the host with what waits, without blocking."""

    def pending(self) -> list[Pending]:
        """Return what is under way, oldest first; a library that does not tell has nothing."""

    def close(self) -> None:
        """Stop serving, close all connections and remove the server's files. May be called twice."""

    def forked(self) -> None:
        """This is a forked child of the process that opened it: close its descriptors, and leave the parent's alone."""


if TYPE_CHECKING:
    OnUpcall = Callable[[Upcall], None]
