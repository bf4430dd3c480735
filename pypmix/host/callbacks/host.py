"""Host: a custom resource manager, whose upcalls are methods."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import threading

from pypmix.arguments import limit
from pypmix.host.answertable import MODULES
from pypmix.host.callbacks.base import LATER, Request
from pypmix.host.callbacks.dispatcher import PATIENCE, Dispatcher, is_async, settling
from pypmix.host.callbacks.jobs import Jobs
from pypmix.host.callbacks.processes import running_loop, to_the_end
from pypmix.host.callbacks.upcalls import METHODS, Upcalls, find_route
from pypmix.host.serving import LIVES, is_debug_event
from pypmix.lazy import renamed
from pypmix.server import Server
from pypmix.standard.errors import (
    LostConnection,
    NotInitialized,
    NotSupported,
    OperationTimeout,
    PartialSuccess,
    PMIxError,
    WouldDeadlock,
)
from pypmix.standard.ops import DeregisterEvents, Notification, RegisterEvents, Spawn
from pypmix.standard.ops.publishing import RANGE_SESSION
from pypmix.standard.types import Proc, check_number
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from pypmix.arguments import Infos, Procs
    from pypmix.engine.base import OnUpcall, Upcall
    from pypmix.host.callbacks.base import Handler, Later
    from pypmix.host.exchange import Exchange, Gathered
    from pypmix.standard.limits import Limits
    from pypmix.standard.types import App, Info

    T = TypeVar("T")
    H = TypeVar("H", bound=Callable[[Any], Any])

_NOTED = frozenset((*LIVES, RegisterEvents, DeregisterEvents))
"""Operations that the host notes before they are answered, by a method or not."""


class Host(Upcalls, Jobs):
    """A resource manager for one node: a server whose upcalls are methods.

    Subclass it and override the methods of the operations to offer. Each method is named as the slot of the server
    module, without `_nb`, and takes one request (`pypmix.host.requests`). `async def` methods run in the host's loop,
    others on a worker's thread; none runs on the engine's thread. The result of a method is the answer; `LATER` means
    that `reply` or `fail` of the request is called later. If the method raises a `PMIxError`, the peer gets its status;
    any other exception is logged, and the peer gets `ERROR`. Upcalls without a method are answered as by `pypmix run`,
    if `answers` includes them.

    Use it in `async with`, under asyncio: handlers run in that loop. Or use it in `with`: the host then runs a separate
    loop on a separate thread.

    Args:
        engine: The engine of the server: `python` or `native`; by default the value of `PYPMIX_ENGINE`, or `python`.
        node: The name of this node: the ranks of jobs on that node are here. None means that all ranks of all jobs are
            here; with an exchange, the default is the name of the exchange.
        exchange: The connection with the hosts of the other nodes; the host starts and closes it. Fences, direct
            modexes, groups, connects, events and published data then cross nodes, unless a method is overridden.
        nspace: The nspace of the server; made from the pid if None.
        tmpdir: The folder in which the host creates a folder for the temporary files of its jobs; the system's
            temporary folder by default.
        system_tmpdir: The folder for files that are not of one job; the system's temporary folder by default.
        tool_support: Let tools of this user find the server; `tool_connected` admits each.
        system_server: Be the one system server of this node.
        rendezvous_file: A further rendezvous file to write.
        rank: The rank of the server in its nspace.
        library: The libpmix of the native engine; by default the library that is found.
        reply_timeout: Seconds after which an unanswered request is reported by name and answered with `ERR_TIMEOUT`;
            a longer timeout of the clients counts instead. None for never.
        grace: Seconds that processes have between SIGTERM and SIGKILL.
        wrap: Called with the function that the server calls with upcalls; returns the function to call instead, such as
            `Recorder.wrap` of a recorder.
        limits: The limits of one peer; by default the limits in `PYPMIX_LIMITS`.
        answers: The upcalls to answer without a method, by the names of the modules of answers: `connecting`,
            `control`, `credentials`, `forwarding`, `groups`, `logs`, `monitors`, `notices`, `publishing`, `queries`,
            `spawning`, `tools`. All modules by default. Other upcalls get `NotSupported`, but clients can always
            connect, finalize and exit.

    Example:
        >>> with Host() as host:
        ...     job = host.job("job1", np=2, argv=["true"])
        ...     with host.start(job) as processes:
        ...         print(sorted(processes.wait(timeout=60).items()))
        [(0, 0), (1, 0)]
    """

    def __init__(
        self,
        *,
        engine: str | None = None,
        node: str | None = None,
        exchange: Exchange | None = None,
        nspace: str | None = None,
        tmpdir: str | None = None,
        system_tmpdir: str | None = None,
        tool_support: bool = False,
        system_server: bool = False,
        rendezvous_file: str | None = None,
        rank: int = 0,
        library: str | None = None,
        reply_timeout: float | None = 60.0,
        grace: float = 2.0,
        wrap: Callable[[OnUpcall], OnUpcall] | None = None,
        limits: Limits | None = None,
        answers: Iterable[str] | None = None,
    ) -> None:
        if reply_timeout is not None:
            _check_seconds("reply_timeout", reply_timeout)
        _check_seconds("grace", grace)
        _check_parts(wrap, exchange)
        offered = None if answers is None else _offered(answers)
        super().__init__(
            exchange.name if node is None and exchange is not None else node, tmpdir, grace, offered, engine
        )
        self._exchange = exchange
        self._reply_timeout = reply_timeout
        self.server = Server(
            self._upcall if wrap is None else wrap(self._upcall),
            engine=engine,
            nspace=nspace,
            tmpdir=self.tmpdir,
            system_tmpdir=system_tmpdir,
            tool_support=tool_support,
            system_server=system_server,
            rendezvous_file=rendezvous_file,
            hostname=self.node,
            rank=rank,
            library=library,
            limits=limits,
        )
        self._handlers: dict[str, tuple[Handler, bool]] = {}
        for name in METHODS:
            if getattr(type(self), name) is not getattr(Host, name):
                self._enlist(name, getattr(self, name))
        self._all: tuple[Handler, bool] | None = None
        if type(self).handle is not Host.handle:
            self._all = self.handle, is_async(self.handle)
        self._dispatcher: Dispatcher | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._thread: threading.Thread | None = None
        self._closing = threading.Lock()
        self._watched: int | None = None

    # Methods to override

    def handle(self, req: Request[Any]) -> Any:
        """Handle a request of any kind: call the method or the function for it.

        Override it to see all upcalls in one place, with `match req.op:`; call `super().handle(req)` for the default.

        Example:
            >>> class Manager(Host):
            ...     def handle(self, request):
            ...         print(request.name, "of", request.requestor)
            ...         return super().handle(request)
        """
        return self._dispatch(req)

    async def _dispatch(self, req: Request[Any]) -> Any:
        found = self._handlers.get(req.name)
        if found is None:
            return self.default(req)
        function, asynchronous = found
        if asynchronous:
            return await function(req)
        assert self._dispatcher is not None
        return await self._dispatcher.in_worker(function, req)

    def default(self, req: Request[Any]) -> Later:
        """Answer a request as a host without a method for it; an overridden method may end with this call.

        Raises:
            NotSupported: The request is not among the host's `answers`.

        Example:
            >>> class Manager(Host):
            ...     def query(self, request):
            ...         print(request.requestor, "asks for", request.queries)
            ...         return self.default(request)
        """
        manager = self._managed()
        if not manager.offers(req.op):
            raise self._missing(req.name or req.op.name)
        upcall = req.take_upcall()
        if upcall is not None:
            manager.upcall(manager.node, upcall)
        return LATER

    def on(self, name: str) -> Callable[[H], H]:
        """Decorator: register a function that handles an upcall instead of the method; its argument is the request.

        Args:
            name: The name of the method, such as `fence`.

        Raises:
            ValueError: An upcall of that name does not exist.

        Example:
            >>> @host.on("allocate")
            ... async def allocate(request):
            ...     return {attrs.ALLOC_ID: "a7"}
        """
        if name not in METHODS:
            raise ValueError(f"{name!r} is not an upcall of a host: it is one of {', '.join(METHODS)}")

        def register(function: H) -> H:
            self._enlist(name, function)
            return function

        return register

    def _enlist(self, name: str, function: Handler) -> None:
        if not callable(function):
            raise TypeError(f"what handles {name} must be callable, not {type(function).__name__}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"what handles {name} returns its answer: it must not be a generator")
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            # Some callables have no signature.
            signature = None
        if signature is not None:
            try:
                signature.bind(None)
            except TypeError as error:
                raise TypeError(f"what handles {name} is called with one request: {error}") from None
        self._handlers[name] = function, is_async(function)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            # An old name, or an error.
            from pypmix.oldnames import find_member

            return find_member(self, "pypmix.host.Host", name)

    # From upcalls to handlers

    def _upcall(self, upcall: Upcall) -> None:
        # On the engine's thread. A client's operation is noted before its answer, hence before the client can exit.
        op, manager = upcall.op, self._manager
        if manager is None:
            upcall.fail(LostConnection("the host has closed", operation=op.name))
            return
        if type(op) in _NOTED:
            manager.note(manager.node, op)
        elif is_debug_event(op):
            # Ranks of `launch` may wait for it, even if the host has a method for events.
            manager.note_debug_event(upcall)
        name, kind = find_route(op)
        found = self._all or self._handlers.get(name)
        if found is not None:
            assert self._dispatcher is not None
            self._dispatcher.take(kind(upcall, name, self._dispatcher.requests), *found)
        elif isinstance(op, LIVES):
            upcall.reply()
        elif manager.offers(op):
            manager.upcall(manager.node, upcall)
        else:
            upcall.fail(self._missing(name or op.name))

    def _directives_of(self, apps: Sequence[App]) -> tuple[Info, ...]:
        ours = {id(app) for app in apps}
        for request in self._dispatcher.requests.get_all() if self._dispatcher is not None else ():
            op = request.op
            if isinstance(op, Spawn) and any(id(app) in ours for app in op.apps):
                return op.directives
        return ()

    def _missing(self, name: str) -> NotSupported:
        return NotSupported("this host does not offer it", operation=name)

    # Opening and closing

    async def __aenter__(self) -> Self:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError("`async with` of a Host needs asyncio; elsewhere, use `with` on a thread") from None
        self._open(loop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pid != os.getpid():
            return
        await to_the_end(asyncio.ensure_future(self._close()))

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("the host is open already")
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._live, args=(loop,), name="pypmix-host", daemon=True)
        thread.start()
        try:
            self._open(loop)
        except BaseException:
            self._stop(loop, thread)
            raise
        self._thread = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pid != os.getpid():
            # A child that was forked: the jobs are its parent's, and so is the thread.
            return
        if self._loop is not None and running_loop() is self._loop:
            raise WouldDeadlock("this would block the host's own loop", operation="close")
        # A handler on a worker's thread may call this, too: the second caller waits, and finds the host closed.
        with self._closing:
            loop, thread = self._loop, self._thread
            if loop is None:
                return
            if thread is None:
                raise RuntimeError("the host was opened with `async with`, and is closed by its end")
            try:
                self._wait(loop, self._close())
            finally:
                self._thread = None
                self._stop(loop, thread)

    @staticmethod
    def _live(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while True:
                try:
                    loop.run_forever()
                    break
                except (KeyboardInterrupt, SystemExit):
                    # A handler raised it, which is logged; other handlers need the loop.
                    continue
            # A handler on a worker's thread may wait for one of the tasks.
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    @staticmethod
    def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None:
            raise RuntimeError("the host is open already")
        try:
            self._open_jobs(loop)
            self._dispatcher = Dispatcher(loop, self._reply_timeout, self.expand)
            self._loop, self._pid = loop, os.getpid()
            self.server.open()
            loop.call_soon_threadsafe(self._watch, loop)
            self._managed().open(self._exchange, self.server.engine.name == "native")
        except BaseException:
            self._loop = None
            self.server.close()
            if self._dispatcher is not None:
                self._dispatcher.bell.close()
            self._close_jobs()
            raise

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        # If the engine's descriptor is watched in the loop, upcalls need not switch threads.
        if self._loop is loop:
            assert self._dispatcher is not None
            session = self.server.session
            descriptor = session.fileno()
            if descriptor >= 0:
                try:
                    # Watch a copy: the server may close its descriptor while it is watched.
                    watched = os.dup(descriptor)
                except OSError:
                    # The process has used all descriptors; the engine's thread serves as well.
                    return
                try:
                    self._dispatcher.answering = session.attach()
                except OSError:
                    os.close(watched)
                    return
                self._watched = watched
                loop.add_reader(watched, self._dispatcher.serve, session.poll)

    async def _close(self) -> None:
        assert self._dispatcher is not None and self._loop is not None
        try:
            await self._end_jobs()
            await self._dispatcher.close()
            if self._exchange is not None:
                self._exchange.close()
        finally:
            try:
                # The server may send upcalls to the host until it is closed.
                await asyncio.to_thread(self.server.close)
            except (OSError, RuntimeError):
                # The system cannot start a thread. The rest must be cleaned up all the same.
                self.server.close()
            if self._watched is not None:
                self._loop.remove_reader(self._watched)
                os.close(self._watched)
                self._watched = None
            self._close_jobs()
            self._loop = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the host's handlers.

        Raises:
            NotInitialized: The host is not open.
        """
        if self._loop is None or self._pid != os.getpid():
            raise NotInitialized("the host is not open", operation="host", hint="use `async with Host() as rm:`")
        return self._loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the host's loop, block until it has ended, and return its result.

        For code that is not in that loop: handlers that are not `async def`, and the body of `with`.

        Raises:
            WouldDeadlock: This is the loop's own thread.

        Example:
            >>> with host.start(host.job("job2", np=2), ["sleep", "60"]) as processes:
            ...     host.run(host.kill(Proc("job2", Rank.WILDCARD)))
        """
        try:
            loop = self.loop
            if running_loop() is loop:
                raise WouldDeadlock("this would block the host's own loop", operation="run", hint="use await")
        except BaseException:
            coroutine.close()
            raise
        return self._wait(loop, coroutine)

    @staticmethod
    def _wait(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    # Calls of the server and of other hosts

    @renamed("pypmix.host.Host")
    def notify(
        self, code: int, *, source: Proc | None = None, data_range: int = RANGE_SESSION, info: Infos = None
    ) -> None:
        """`PMIx_Notify_event`: raise an event for the clients and tools of this server.

        Args:
            code: An `EventCode`, a `Status` or a number.
            source: The proc to report as the source of the event; this server by default.
            data_range: A `Range`.
            info: The infos of the event, such as `attrs.EVENT_AFFECTED_PROC`.

        Example:
            >>> host.notify(EventCode.custom(-4242), data_range=Range.LOCAL, info={"acme.load": 0.9})
        """
        self.server.notify(Notification(code, self.server.proc if source is None else source, data_range, infos(info)))

    async def dmodex_request(self, proc: Proc, *, key: str = "", timeout: float | None = None) -> bytes:
        """`PMIx_server_dmodex_request`: return the data that a proc of this server has committed for others.

        The host of another node answers `direct_modex` with it.

        Args:
            proc: A proc of a job that is registered.
            key: The key that the reader waits for (`attrs.REQUIRED_KEY` of the upcall); any data by default.
            timeout: Seconds to wait for the data; None waits for ever.

        Raises:
            NotFound: The proc will not commit the data.
            OperationTimeout: The proc did not commit the data in time.

        Example:
            >>> class Node(Host):
            ...     async def direct_modex(self, request):
            ...         print("asked for the data of", request.proc)
            ...         return await self.dmodex_request(request.proc, timeout=request.timeout)
        """
        timeout, loop = limit(timeout), asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        self.server.dmodex_request(proc, settling(loop, future), key=key, timeout=timeout)
        try:
            return await asyncio.wait_for(future, timeout)
        except TimeoutError as error:
            if isinstance(error, PMIxError):
                raise
            text = f"there was no answer within {timeout:g} s"
            raise OperationTimeout(text, operation="dmodex_request", procs=(proc,)) from None

    def define_process_set(self, name: str, members: Procs) -> None:
        """`PMIx_server_define_process_set`: define a process set for the clients of this session.

        With an exchange, it is defined on the servers of all hosts; each host may define it, with the same members.

        Args:
            name: The name of the set.
            members: The procs of the set, of jobs that are registered here.

        Raises:
            TypeError, ValueError, NotFound, PMIxError: As `pypmix.Server.define_process_set`.

        Example:
            >>> host.define_process_set("readers", [Proc("job1", 0), Proc("job1", 1)])
        """
        self._managed().psets.define(name, members)

    def delete_process_set(self, name: str) -> None:
        """`PMIx_server_delete_process_set`: forget a process set, on all hosts of the exchange.

        Raises:
            NotFound: A set of that name is not defined, or another host has deleted it.

        Example:
            >>> host.define_process_set("writers", Proc("job1", 0))
            >>> host.delete_process_set("writers")
        """
        self._managed().psets.delete(name)

    def next_context_id(self) -> int:
        """Return a context id for a group that is unique among all hosts of the exchange.

        Example:
            >>> first, second = host.next_context_id(), host.next_context_id()
            >>> second > first
            True
        """
        return self._managed().next_context_id()

    async def exchange(
        self,
        signature: Hashable,
        data: bytes = b"",
        *,
        timeout: float | None = None,
        nodes: Iterable[str] | None = None,
    ) -> list[bytes]:
        """Gather data: each participating host calls this with the same signature, and gets the data of all hosts.

        Args:
            signature: The identity of the collective, such as `req.signature`; the n-th calls with it belong together.
            data: The data that this host contributes.
            timeout: Seconds after which to give up, on all hosts; None waits for ever.
            nodes: The participating nodes; by default the nodes of the procs in the signature or, without procs, all.

        Returns:
            The data of all hosts, in the same order everywhere. Without an exchange, or alone, only `data`.

        Raises:
            PartialSuccess: All procs of the signature on a node have exited.
            PMIxError: A host is lost or has given up, or the time limit has passed.

        Example:
            >>> class Node(Host):
            ...     async def fence(self, request):
            ...         found = await self.exchange(request.signature, request.data, timeout=request.timeout)
            ...         return b"".join(found)
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data is bytes, not {type(data).__name__}")
        if isinstance(nodes, str):
            raise TypeError(f"nodes are names in a list, not the string {nodes!r:.80}")
        timeout = limit(timeout)
        exchange = self._exchange
        if exchange is None:
            return [bytes(data)]
        from pypmix.host.exchange.collectives import own_signature

        parts = signature if isinstance(signature, tuple) else ()
        procs = self.expand([part for part in parts if isinstance(part, Proc)])
        names = sorted(self._nodes_of(procs) if nodes is None else set(nodes)) or list(exchange.members)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Gathered] = loop.create_future()
        # The procs are part of the text, so that the exchange need not wait for a node whose procs have all exited.
        text = own_signature(repr(signature), procs if nodes is None else ())
        gathering = exchange.allgather(text, names, bytes(data), settling(loop, future), timeout=timeout or 0.0)
        try:
            gathered = await future
        except asyncio.CancelledError:
            gathering.cancel(PMIxError(f"{exchange.name} has given up", operation="exchange"))
            raise
        if gathered.absent:
            where = [proc for proc in procs if self._nodes_of((proc,)) & set(gathered.absent)]
            gone = f"all procs on {', '.join(gathered.absent)} have gone"
            raise PartialSuccess(gone, operation="exchange", missing=frozenset(where))
        return [gathered.blobs[name] for name in sorted(gathered.blobs)]

    def _nodes_of(self, procs: Iterable[Proc]) -> set[str]:
        named = set(procs)
        return {
            node.hostname
            for job in self.jobs.values()
            for node in job.nodes
            if any(job.proc(rank) in named for rank in node.ranks)
        }


def _check_seconds(name: str, seconds: object) -> None:
    if not 0 < check_number(seconds, f"{name} is a number of seconds") < math.inf:
        raise ValueError(f"{name} must be more than 0 seconds, not {seconds}")


def _check_parts(wrap: object, exchange: object) -> None:
    if wrap is not None and not callable(wrap):
        raise TypeError(f"wrap is a function, such as Recorder.wrap, not {type(wrap).__name__}")
    if exchange is not None and not hasattr(exchange, "allgather"):
        hint = "pypmix.host.exchange.Exchange(carrier) makes one"
        raise TypeError(f"exchange is an Exchange, not {type(exchange).__name__}; {hint}")


def _offered(answers: Iterable[str]) -> frozenset[str]:
    if isinstance(answers, str) or not hasattr(answers, "__iter__"):
        raise TypeError(f"answers are names in a list, not {answers!r:.80}")
    found = frozenset(answers)
    for name in found:
        if name not in MODULES:
            raise ValueError(f"there are no answers {name!r}: they are {', '.join(MODULES)}")
    return found
