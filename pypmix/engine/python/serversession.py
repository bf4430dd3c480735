"""A running server: the machine of `server`, its reactor, and the interface for hosts and children."""

from __future__ import annotations

import _socket
import contextlib
import os
import threading
import time
from collections import deque
from functools import cached_property, partial
from threading import get_ident

from pypmix._version import __version__
from pypmix.engine.common import MUNGE, SOCKET_VARIABLE, UNCHECKED, EngineInfo, configured_security, security_modules
from pypmix.engine.faults import fault, traced
from pypmix.engine.peeruid import Listener, is_current_user, listen_on_loopback
from pypmix.engine.python.provision import Provision, harvested
from pypmix.engine.python.reactor import BACKLOG, Guest, Reactor
from pypmix.engine.python.rendezvous import Contact, Post, host_names, temporary_folder
from pypmix.engine.serving import Notes, ServerOptions
from pypmix.engine.times import EVENT_SECONDS
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, NotInitialized, PMIxError
from pypmix.standard.ops.core import check_key
from pypmix.standard.ops.events import check_event, is_set
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from queue import SimpleQueue
    from typing import Any, Protocol, TypeVar

    from pypmix.engine.base import Done, OnUpcall, R, Traced
    from pypmix.engine.collective.machine import Clock
    from pypmix.engine.common import Pending
    from pypmix.engine.python.node import Applicant, Link
    from pypmix.engine.python.processes import Process
    from pypmix.engine.python.server import Server
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.limits import Limits
    from pypmix.standard.ops import Notification, Op, Output
    from pypmix.standard.types import Info, Value

    T = TypeVar("T")

    class Thread(Clock, Protocol):
        """Where all of a server happens: its reactor, or the clock of a simulation."""

        def call(self, function: Callable[[], T], /) -> T: ...

        def post(self, function: Callable[[], None], /) -> None: ...

        def stop(self) -> None: ...

        def forked(self) -> None: ...


ANNOUNCED = "7.0.0"
"""The release that the server reports to clients.

Clients do not distinguish servers from 3.1.100 on, except that clients of 7.0 refuse to delete their values if the
server is older; this server supports deletions.
"""


MAX_EARLY = 1 << 12
"""The most events that are kept before the first client."""

MAX_DEPTH = 8
"""Depth of answers of the host within answers; answers beyond it are posted."""


def _modules(names: Sequence[str]) -> tuple[str, ...]:
    """Return the security modules of a server, by default those of `PYPMIX_SECURITY`."""
    found = security_modules(names) if names else configured_security()
    if MUNGE in found:
        from pypmix.engine import munge

        # A server that cannot make a credential cannot check one, and would refuse everybody.
        munge.encode()
    return found


def _open_local_listener(folder: str, port: int) -> tuple[Listener | None, str]:
    """Return a Unix-domain socket for clients of this engine, and its path; None and "" if it cannot be made.

    A folder that only this user can enter keeps other users away, and the kernel reports the user of a connection.
    """
    path = os.path.join(folder, f"pypmix-{os.getpid()}-{port}")
    try:
        listener = Listener(_socket.AF_UNIX, _socket.SOCK_STREAM)
    except OSError:
        # A sandbox may allow no such sockets.
        return None, ""
    try:
        status = os.stat(folder)
        if is_current_user(status.st_uid) and not status.st_mode & 0o077:
            # The path may be too long.
            listener.bind(path)
            listener.listen(BACKLOG)
            return listener, path
    except OSError:
        pass
    listener.close()
    return None, ""


class HostUpcall:
    """One upcall to the host.

    It is made on the reactor's thread.

    Attributes:
        asking: The thread that is calling the host now, 0 after the call; later answers are posted to the reactor.
        outcome: The host's answer, if it arrived during the call.
    """

    __slots__ = ("_answers", "_log", "_reactor", "asking", "gid", "op", "outcome", "requestor", "uid")

    def __init__(
        self,
        reactor: Thread,
        op: Op[Any],
        answer: Done[Any],
        process: Process | Applicant | None,
        log: Callable[[str], None],
    ) -> None:
        self.op: Op[object] = op
        if process is None:
            self.requestor: Proc | None = None
            self.uid: int | None = None
            self.gid: int | None = None
        else:
            self.requestor = process.proc
            self.uid = process.uid
            self.gid = process.gid
        self.asking = get_ident()
        self.outcome: tuple[object, BaseException | None] | None = None
        self._reactor = reactor
        self._answers: list[Done[Any]] = [answer]
        self._log = log

    def reply(self, result: object = None, error: BaseException | None = None) -> None:
        """Answer with a result. Only the first answer counts; a second one is a fault of the host, and logged."""
        try:
            # Of several threads, one has it.
            answer = self._answers.pop()
        except IndexError:
            self._log_repeated_reply()
            return
        if self.asking == get_ident():
            # The host's function has not returned yet, and must not run the consequences of its answer.
            self.outcome = result, error
            return
        try:
            self._reactor.post(partial(self.conclude, answer, result, error))
        except NotInitialized:
            return

    def fail(self, error: BaseException) -> None:
        """Answer with an error; a `PMIxError` passes its status on to the client."""
        if not isinstance(error, BaseException):
            self._log(f"the host failed {self.op.name} with a {type(error).__name__}, which is not an error")
            error = PMIxError("the host failed", operation=self.op.name)
        self.reply(None, error)

    def conclude(self, answer: Done[Any], result: object, error: BaseException | None) -> None:
        """Hand an answer on; an unusable one becomes an error for the caller."""
        try:
            answer(result, error)
        except Exception as problem:
            # It must not affect other requests of this turn.
            self._log(f"an answer to {self.op.name} failed: {traced(problem)}")
            if error is None:
                self.conclude(answer, None, PMIxError("the answer of the host failed", operation=self.op.name))

    def _log_repeated_reply(self) -> None:
        whose = f" of {self.requestor}" if self.requestor else ""
        self._log(f"the host replied twice to {self.op.name}{whose}: only the first reply counts")


class ServerSession:
    """A running server of this node (`PMIx_server_init`); see `pypmix.engine.base.ServerSession`.

    Args:
        on_upcall: Called with each `Upcall`, on the server's own thread; it must not block, and may answer later from
            any thread. The operations are `ClientConnected` (an error refuses the client), `ClientFinalized`,
            `ClientAborted`, `ClientLost`, the operations of publishing, `QueryInfo`, all of
            `pypmix.standard.ops.control`, `pypmix.standard.ops.fabric` and `pypmix.standard.ops.hosting`, and the
            operations of connecting, spawning, forwarding and tools.
        options: Its options; the defaults if None.
        on_log: Called with messages for the operator of the server, such as a refused client and the reason; by
            default they go to the logger `pypmix.server`.
        reactor: The reactor of a simulation, whose clients connect by `opened`; by default a separate reactor.

    Raises:
        PMIxError: There is no such security module (`ERR_BAD_PARAM`), or a rendezvous file cannot be written, or it
            belongs to another running server (`ERR_EXISTS`).
        NotSupported: munge is wanted, and its daemon does not answer.
        OSError: No socket can be opened on the loopback interface.
    """

    def __init__(
        self,
        on_upcall: OnUpcall,
        options: ServerOptions | None = None,
        on_log: Callable[[str], None] | None = None,
        reactor: Thread | None = None,
    ) -> None:
        options = options or ServerOptions()
        self.security = _modules(options.security)
        self.proc = options.proc
        self.info = EngineInfo("python", ANNOUNCED)
        self.hostname = options.hostname or _socket.gethostname()
        self.tmpdir = options.folder
        self.system_tmpdir = options.system_tmpdir or temporary_folder(os.environ)
        self._on_upcall = on_upcall
        self.log = Notes(self.proc, on_log).add
        self._depth = 0
        self._limits = options.limits
        self._put_off: dict[str, list[Callable[[], None]]] | None = {}
        """The registrations of each job whose registration may wait for the first client; None once there was one."""
        self._early: deque[tuple[float, Notification]] = deque(maxlen=MAX_EARLY)
        """The events before the first client, each with its time."""
        self._putting_off = threading.Lock()
        self._provision = Provision(self.hostname)
        self._checker: SimpleQueue[tuple[bytes, Done[tuple[int, int]]] | None] | None = None
        self._post: Post | None = None
        self.port = 0
        self._address = "tcp4://127.0.0.1:0"
        self._path = ""
        if reactor is None:
            self._listen(options.limits)
            self._announce(options)
        else:
            self._reactor: Thread = reactor

    def _listen(self, limits: Limits) -> None:
        with contextlib.ExitStack() as undo:
            listener = listen_on_loopback(BACKLOG)
            undo.callback(listener.close)
            host, self.port = listener.getsockname()[:2]
            self._address = f"tcp6://[{host}]:{self.port}" if ":" in host else f"tcp4://{host}:{self.port}"
            self._reactor = own = Reactor(f"pypmix-server-{self.port}", self.log, limits)
            undo.callback(own.stop)
            own.listen(listener, self.opened)
            beside, self._path = _open_local_listener(self.tmpdir, self.port)
            if beside is not None:
                undo.callback(beside.close)
                undo.callback(os.unlink, self._path)
                own.listen(beside, self.opened)
            self._warn(own.owners.trouble)
            own.start()
            undo.pop_all()

    @cached_property
    def _server(self) -> Server:
        """The machine, made on the reactor's thread when it is needed: many jobs have no client that connects."""
        from pypmix.engine.python.server import Server

        # Registrations that were put off use it.
        self._server = machine = Server(self._reactor, self, self.proc, self.security, self._limits)
        with self._putting_off:
            put_off, self._put_off = self._put_off or {}, None
            early, self._early = self._early, deque()
        for functions in put_off.values():
            for function in functions:
                try:
                    function()
                except Exception as error:
                    self.log(f"a job cannot be registered: {traced(error)}")
        oldest = time.monotonic() - EVENT_SECONDS
        for raised, event in early:
            if raised > oldest:
                machine.events.notify(event)
        return machine

    @property
    def _has_clients(self) -> bool:
        """Whether there was a client, or another use of the machine."""
        return self._put_off is None

    def _announce(self, options: ServerOptions) -> None:
        nspace, rank = self.proc
        contact = Contact(nspace, rank, self._address, ANNOUNCED, os.getpid(), os.geteuid(), __version__, self._path)
        # A simulated node has a different name, but tools look for the machine's name.
        self._post = Post(contact, dict.fromkeys((*host_names(self.hostname), *host_names())))
        try:
            if options.tool_support:
                self._post.session(self.tmpdir)
            if options.system_server:
                self._post.system(self.system_tmpdir)
            if options.rendezvous_file:
                self._post.file(options.rendezvous_file)
        except BaseException:
            self.close()
            raise

    def _warn(self, trouble: str) -> None:
        """Log the consequences of a kernel that does not report the user of a connection."""
        if not trouble or self.security == (MUNGE,):
            return
        if UNCHECKED in self.security:
            self.log(
                f"any process of this machine that knows a job's nspace can connect as one of its procs: {trouble}"
            )
            return
        taken = ["credentials of munge"] if MUNGE in self.security else []
        taken += [f"pypmix clients over {self._path}"] if self._path else []
        self.log(
            f"connections over TCP are refused: {trouble}. Taken are {' and '.join(taken) or 'none'}. "
            f"Set PYPMIX_SECURITY={MUNGE} where munged runs, or PYPMIX_SECURITY={UNCHECKED} to admit any "
            "process of this machine that knows a job's nspace"
        )

    # Upcalls of the machine to its host, in the reactor's thread.

    def upcall(self, op: Op[R], answer: Done[R], process: Process | Applicant | None = None) -> None:
        """Pass an upcall on; see `server.Host`."""
        upcall = HostUpcall(self._reactor, op, answer, process, self.log)
        try:
            self._on_upcall(upcall)
        except BaseException as error:
            self.log(f"the host failed in the upcall {op!r}: {traced(error)}")
            upcall.fail(error)
            own = isinstance(self._reactor, Reactor) and self._reactor.ident == get_ident()
            if not own and not isinstance(error, Exception):
                # The thread belongs to another loop, which is responsible for this.
                raise
        upcall.asking = 0
        outcome = upcall.outcome
        if outcome is None:
            return
        if self._depth < MAX_DEPTH and not self._server.departing:
            self._depth += 1
            try:
                upcall.conclude(answer, *outcome)
            finally:
                self._depth -= 1
        else:
            # The consequence of an answer may be another upcall, as often as a queue has operations.
            self._reactor.post(lambda: upcall.conclude(answer, *outcome))

    def authenticate(self, credential: bytes, answer: Done[tuple[int, int]]) -> None:
        """Ask the munge daemon, on a thread, so that a slow one delays no other client; see `server.Host`."""
        if self._checker is None:
            from queue import SimpleQueue

            self._checker = SimpleQueue()
            name = f"pypmix-munge-{self.port}"
            threading.Thread(target=self._check, args=(self._checker,), name=name, daemon=True).start()
        self._checker.put((credential, answer))

    def _check(self, work: SimpleQueue[tuple[bytes, Done[tuple[int, int]]] | None]) -> None:
        from pypmix.engine import munge

        while (item := work.get()) is not None:
            credential, answer = item
            try:
                outcome: tuple[tuple[int, int] | None, PMIxError | None] = munge.decode(credential), None
            except PMIxError as error:
                outcome = None, error
            except Exception as error:
                outcome = None, fault("to ask the munge daemon", error)
            try:
                self._reactor.post(partial(answer, *outcome))
            except NotInitialized:
                return

    def opened(self, link: Link) -> None:
        """Add a client that has connected by a link of the caller; on the reactor's thread."""
        self._server.opened(link)

    # Calls of hosts, from any thread.

    def register_later(self, nspace: str, register: Callable[[ServerSession], None]) -> None:
        """See `pypmix.engine.base.ServerSession.register_later`."""
        with self._putting_off:
            if self._put_off is not None:
                if nspace in self._put_off:
                    raise PMIxError(
                        f"the nspace {nspace!r} is registered already",
                        status=statuses.ERR_EXISTS,
                        operation="register_nspace",
                    )
                self._put_off[nspace] = [partial(register, self)]
                return
        register(self)

    def _can_wait(self, nspace: str, function: Callable[[], None]) -> bool:
        """Return True if a call for a job whose registration waits waits with it."""
        with self._putting_off:
            waiting = self._put_off.get(nspace) if self._put_off else None
            if waiting is None:
                return False
            waiting.append(function)
            return True

    def prepare(self) -> None:
        """See `pypmix.engine.base.ServerSession.prepare`."""
        if "_server" in self.__dict__:
            return

        def make() -> None:
            _ = self._server

        with contextlib.suppress(NotInitialized):
            self._reactor.post(make)

    def loop(self) -> Guest | None:
        """Return a loop on the server's thread; see `pypmix.engine.base.ServerSession`."""
        return Guest(self._reactor) if isinstance(self._reactor, Reactor) else None

    def register_nspace(self, job: JobInfo, local: tuple[int, ...] | None = None) -> None:
        """`PMIx_server_register_nspace`: register the job info of an nspace, so that its clients can connect."""
        ranks = None if local is None else tuple(local)
        self._reactor.call(lambda: self._server.register_nspace(job, ranks))

    def deregister_nspace(self, nspace: str) -> None:
        """`PMIx_server_deregister_nspace`: forget an nspace; its clients lose their connections."""
        self._provision.forget(nspace)
        with self._putting_off:
            if self._put_off and self._put_off.pop(nspace, None) is not None:
                return
        self._reactor.call(lambda: self._server.deregister_nspace(nspace))

    def register_client(self, proc: Proc, uid: int, gid: int) -> None:
        """`PMIx_server_register_client`: expect a process of this node, of this user and group."""
        self.register_clients((proc,), uid, gid)

    def register_clients(self, procs: Sequence[Proc], uid: int, gid: int) -> None:
        """Expect processes of this node, in one turn of the server's thread."""

        def register() -> None:
            for proc in procs:
                self._server.register_client(proc, uid, gid)

        if not procs or not self._can_wait(procs[0].nspace, register):
            self._reactor.call(register)

    def deregister_client(self, proc: Proc) -> None:
        """`PMIx_server_deregister_client`: a process has ended; operations that wait for it continue without it."""

        def deregister() -> None:
            # Its nspace may have been deregistered before it has ended.
            with contextlib.suppress(NotFound):
                self._server.deregister_client(proc)

        if self._can_wait(proc.nspace, deregister):
            return
        # There is no need to wait: later calls from this thread, such as a registration, are carried out after it.
        self._reactor.post(deregister)

    def client_env(self, proc: Proc) -> dict[str, str]:
        """`PMIx_server_setup_fork`: return the environment variables that make a process the client `proc`.

        The changes of variables from `setup_local_support` for its nspace are applied. An `UNSET_ENVAR` cannot be
        expressed in this form if the process inherits the variable.
        """
        uri = f"{self.proc.nspace}.{self.proc.rank};{self._address}"
        env = {
            "PMIX_NAMESPACE": proc.nspace,
            "PMIX_RANK": str(proc.rank),
            # Clients of all releases take this name first, so that they speak the same encoding.
            "PMIX_SERVER_URI41": uri,
            # Flux looks for this name to see whether it was started by a PMIx launcher.
            "PMIX_SERVER_URI2": uri,
            "PMIX_VERSION": ANNOUNCED,
            "PMIX_SECURITY_MODE": ",".join([name for name in self.security if name != UNCHECKED]),
            "PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_NON_DESC",
            "PMIX_GDS_MODULE": "hash",
            "PMIX_HOSTNAME": self.hostname,
            "PMIX_SERVER_TMPDIR": self.tmpdir,
            "PMIX_SYSTEM_TMPDIR": self.system_tmpdir,
            # With the nspace, because a process passes it on to the clients of another server that it starts.
            "PYPMIX_SERVER": f"{self.proc.nspace} {__version__}",
            "PYPMIX_SERVER_ENGINE": "python",
        }
        if self._path:
            # With the URI, for the same reason.
            env[SOCKET_VARIABLE] = f"{uri} {self._path}"
        self._provision.change(proc.nspace, env)
        return env

    def notify(self, event: Notification) -> None:
        """`PMIx_Notify_event`: deliver an event to this server's clients in its range that have registered for it.

        It is kept for a while for late registrations. The host gets no upcall for it. The host must not raise events
        here that it got by the upcall `NotifyEvent`: this server's own clients have got them already.
        """
        with self._putting_off:
            if not self._has_clients:
                check_event(event)
                if not is_set(event.infos, keys.EVENT_DO_NOT_CACHE):
                    self._early.append((time.monotonic(), event))
                return
        self._reactor.call(lambda: self._server.events.notify(event))

    def expire(self, kind: str, name: str, procs: frozenset[Proc], done: Callable[[], None]) -> None:
        """End a collective of some procs, since the time limit of a proc has passed elsewhere; then call `done`.

        Args:
            kind: The kind of operation.
            name: Its id, or the named group; empty for none.
            procs: The participants.
            done: Called on the thread of the server.
        """

        def end() -> None:
            try:
                self._server.collectives.expire(kind, name, procs)
            finally:
                done()

        self._reactor.call(end)

    def deliver_output(self, output: Output) -> None:
        """`PMIx_server_IOF_deliver`: forward the output of a proc; without a reader it is kept for a while."""
        self._reactor.call(lambda: self._server.forwarding.deliver(output))

    def forked(self) -> None:
        """See `ServerSession.forked`."""
        self._reactor.forked()

    def catch_up(self) -> None:
        """Do nothing: this engine sends no answer before the host's."""

    def trace(self) -> Callable[[], Traced]:
        """See `ServerSession.trace`."""
        from pypmix.engine.python.tracing import Tracer

        tracer = Tracer()
        self._reactor.call(lambda: self._server.handshakes.trace(tracer.peer))
        return tracer.drain

    def settle(self) -> bool:
        """See `ServerSession.settle`: several losses may be processed at once."""
        return False

    def dmodex_request(self, proc: Proc, done: Done[bytes], *, key: str = "", timeout: float = 0.0) -> None:
        """`PMIx_server_dmodex_request`: get the data that a proc of this server has committed for others.

        The request waits until the proc has committed data or, with a key, until it has committed the key; if the proc
        departs without the key, the result is the data that there is. `done` is called once, here or on the server's
        thread, and must not block. It gets `NotFound` if the proc is not of this server, departs without a commit, or
        its nspace is not registered in time; and `OperationTimeout` after the timeout.
        """

        def answer(data: bytes | None, error: BaseException | None) -> None:
            try:
                done(data, error)
            except Exception as failure:
                self.log(f"the host failed when it was told the data of {proc}: {failure!r}")

        try:
            self._reactor.post(lambda: self._server.modex.sharing.request(proc, answer, key, timeout))
        except NotInitialized as error:
            answer(None, error)

    def define_process_set(self, name: str, members: tuple[Proc, ...], elsewhere: bool = False) -> None:
        """`PMIx_server_define_process_set`: make a process set known; clients get an event.

        Raises:
            NotFound: A member is not known.
            PMIxError: There is one of that name (`ERR_EXISTS`), or the name is invalid (`ERR_BAD_PARAM`).
        """
        self._reactor.call(lambda: self._server.psets.define(name, tuple(members), elsewhere))

    def delete_process_set(self, name: str) -> None:
        """`PMIx_server_delete_process_set`: forget a process set; clients get an event.

        Raises:
            NotFound: There is no process set of that name.
        """
        self._reactor.call(lambda: self._server.psets.delete(name))

    def setup_application(self, nspace: str, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        """`PMIx_server_setup_application`: return the infos for `setup_local_support` of each node's server.

        These are the host's own directives and, with `SETUP_APP_ENVARS` or `SETUP_APP_ALL`, the variables of this
        process that set up PMIx, PRRTE and Open MPI.
        """
        return harvested(directives)

    def setup_local_support(self, nspace: str, infos: tuple[Info, ...]) -> None:
        """`PMIx_server_setup_local_support`: keep a job's changes of variables for `client_env`.

        They are `SET_ENVAR`, `ADD_ENVAR`, `UNSET_ENVAR`, `PREPEND_ENVAR`, `APPEND_ENVAR` and `FIRST_ENVAR`.
        """
        self._provision.support(nspace, infos)

    def collect_inventory(self, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        """`PMIx_server_collect_inventory`: return the node's name, this process's pid, the CPUs and the memory.

        The result is one array of infos (`NODE_INFO_ARRAY`). With the `HOSTNAME` of another node it is that node's
        inventory from `deliver_inventory`.

        Raises:
            NotFound: That node is not known.
        """
        return self._provision.inventory(directives)

    def deliver_inventory(self, infos: tuple[Info, ...], directives: tuple[Info, ...]) -> None:
        """`PMIx_server_deliver_inventory`: store the inventories of other nodes, an array (`NODE_INFO_ARRAY`) each."""
        self._provision.deliver(infos)

    def register_resources(self, infos: tuple[Info, ...]) -> None:
        """`PMIx_server_register_resources`: add info for all nspaces; all clients get it with their job info."""
        self._reactor.call(lambda: self._server.store.register_resources(infos))

    def deregister_resources(self, infos: tuple[Info, ...]) -> None:
        """`PMIx_server_deregister_resources`: forget the info of these keys; clients that have it keep it."""
        self._reactor.call(lambda: self._server.store.deregister_resources(infos))

    def store_internal(self, proc: Proc, key: str, value: Value) -> None:
        """`PMIx_Store_internal`: keep a value of a proc, or of a job (`Rank.WILDCARD`), for the clients of this server.

        Raises:
            NotFound: The nspace, or the rank in it, is not known.
        """
        check_key(key)

        def store() -> None:
            self._server.store.store_internal(proc, key, value)

        if not self._can_wait(proc.nspace, store):
            self._reactor.call(store)

    def fileno(self) -> int:
        """Return the reactor's descriptor.

        It is -1 for a thread in which Ctrl-C may raise at any point, and so might lose half a message.
        """
        import signal

        raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if raises and threading.current_thread() is threading.main_thread():
            return -1
        return self._reactor.fileno() if isinstance(self._reactor, Reactor) else -1

    def attach(self) -> Callable[[Callable[[], None]], object] | None:
        """See `ServerSession.attach`: it saves the way to another thread and back."""
        if not isinstance(self._reactor, Reactor):
            return None
        self._reactor.attach()
        return self._reactor.in_turn

    def poll(self) -> None:
        """Serve the connections, and call the host with their requests."""
        if isinstance(self._reactor, Reactor):
            self._reactor.poll()

    def groups(self) -> tuple[tuple[str, tuple[Proc, ...]], ...]:
        """Return the groups that have members of this server, with all of their members by group rank."""

        def listed() -> tuple[tuple[str, tuple[Proc, ...]], ...]:
            groups = self._server.store.proper_groups()
            return tuple([(key.partition("\0")[0], members) for key, members in groups])

        return self._reactor.call(listed) if self._has_clients else ()

    def connections(self) -> tuple[tuple[str, tuple[Proc, ...]], ...]:
        """Return the connections that have members of this server: the nspace of each, and its remaining members."""

        def listed() -> tuple[tuple[str, tuple[Proc, ...]], ...]:
            store = self._server.store
            return tuple([(nspace, store.groups[nspace]) for nspace in store.connections])

        return self._reactor.call(listed) if self._has_clients else ()

    def pending(self) -> list[Pending]:
        """Return the running collectives and gets, oldest first."""
        return self._reactor.call(self._server.pending) if self._has_clients else []

    def close(self) -> None:
        """`PMIx_server_finalize`: close all connections and end the thread. May be called twice."""
        if self._post is not None:
            self._post.remove()
        if self._path:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        if self._checker is not None:
            self._checker.put(None)
        try:
            self._reactor.call(self._close)
        except PMIxError:
            pass
        self._reactor.stop()

    def _close(self) -> None:
        if "_server" in self.__dict__:
            self._server.close()
