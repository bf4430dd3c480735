"""A client's use of libpmix: its calls and the waits for them, its errors, and the loss of its server.

Theory of operation. Each module of the native client imports only modules earlier in this list:

1. `library`, `quirks`, `kinds`, `structs`, `marshal`: the library, its releases, and Python values as C structures.
2. `background` (submitted operations, whose callers do not wait in C) and `inbox` (events and output).
3. this module: one client of the process, the base of all modules below.
4. `collectives`: the fences, connects and disconnects that outlive their callers.
5. `asking` and the topics (`events`, `queries`, `connecting`, ...): the operations beyond put, get and fence.
6. `session` and `tool`: the sessions that the API calls.

A blocking operation waits in C without the GIL, on the semaphore of its call, and the library's progress thread posts
it: no other thread takes part. The wait ends early for a signal, so that Python runs its handlers. A submitted
operation ends in the session's queue; `background` describes how it is completed from there. `pypmix_call` in the
shim's `shim.h` describes which side owns a call.

States: open; then lost (the connection to the server has ended: operations fail with `LostConnection`, `Finalize` is
still possible) or closed by `leave`. Both are final. In a forked child the state is forked, and pypmix does not call
the library.
"""

from __future__ import annotations

from _thread import RLock, allocate_lock

from pypmix.engine.common import EngineInfo
from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.marshal import Marshal
from pypmix.lazy import load
from pypmix.standard import codes, statuses
from pypmix.standard.errors import (
    LostConnection,
    NotFound,
    NotInitialized,
    NotSupported,
    PMIxError,
    Unreachable,
    answered_error_for,
    error_for,
)
from pypmix.standard.ops import Put
from pypmix.standard.releases import release_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from pypmix.engine.base import Done
    from pypmix.engine.native.background import Background
    from pypmix.engine.native.collectives import Collectives
    from pypmix.engine.native.groupport import GroupPort
    from pypmix.engine.native.inbox import Inbox
    from pypmix.engine.native.library import Library
    from pypmix.standard.ops import Op
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Proc, Value


PENDING = lib.PYPMIX_PENDING

MAYBE_LOST = frozenset(
    {
        statuses.ERR_UNREACH,
        statuses.ERR_LOST_CONNECTION,
        statuses.ERR_NOT_FOUND,
        statuses.ERR_TIMEOUT,
        statuses.ERROR,
        statuses.ERR_COMM_FAILURE,
        statuses.ERR_UNPACK_READ_PAST_END_OF_BUFFER,
    }
)
"""The statuses of operations that fail because the server is lost; they have other reasons, too."""

NO_LIMIT = -1.0


class Connection:
    """One client of this process, as the topics see it.

    Attributes:
        release: The release of the library.
        queue: The shim's queue of submitted operations; None once the session was closed.
        open: True while the session accepts operations.
        again: True if the library still has event registrations with an earlier server.
        answers_twice: True if the library calls back twice for an event that is raised.
        slurm: True if Slurm's plugin is the server's host; see `pypmix.engine.slurm`.
        last_handler: The last id of an event handler of an earlier server; new ids continue from it.
        groups: The groups; None before the first operation on a group.
    """

    again = False
    answers_twice = False
    slurm = False
    last_handler = 0
    proc: Proc
    singleton: bool
    server: str
    server_release: Release

    @property
    def job(self) -> str:
        """The nspace of this process's job, for error texts; empty if it has none."""
        return self.proc.nspace

    def __init__(self, library: Library) -> None:
        self.info = EngineInfo("native", release_text(library.release), library.path)
        self.release = library.release
        self.marshal = Marshal(library.release)
        self.queue: Any = None
        self.open = False
        self.groups: GroupPort | None = None
        self._server_lost = False
        self._forked = False
        self._topics: dict[str, Any] = {}
        self._spare: list[Any] = []
        self._making: Any = RLock()
        """Held while a part is created that a session has once: several threads may need it at the same time."""
        self._background: Background | None = None
        self._inbox: Inbox | None = None
        self._collectives: Collectives | None = None

    def run(self, op: Op[Any]) -> Any:
        """Carry out an operation; see `ClientSession.run`."""
        raise NotImplementedError

    def start(self, op: Op[Any], done: Done[Any]) -> None:
        """Start an operation of the engine itself; do not translate names of groups in it."""
        raise NotImplementedError

    def put(self, key: str, value: Value, scope: int) -> None:
        self.run(Put.unchecked(key, value, scope))

    def fetch_local(self, proc: Proc, key: str) -> Value | None:
        """Return a value that this process holds; see `ClientSession.fetch_local`."""
        raise NotImplementedError

    # Parts that are created on first use

    def topic(self, name: str) -> Any:
        """Return the topic of a module of this package, `EventsTopic` of `events`; it is imported on first use."""
        topic = self._topics.get(name)
        if topic is None:
            # Import before taking the lock: an import takes another lock.
            make = load(f"pypmix.engine.native.{name}", f"{name.capitalize()}Topic")
            with self._making:
                topic = self._topics.get(name)
                if topic is None:
                    topic = self._topics[name] = make(self)
        return topic

    def with_groups(self) -> GroupPort:
        """Return the groups of this session."""
        if self.groups is None:
            self.topic("groups")
        assert self.groups is not None
        return self.groups

    @property
    def background(self) -> Background:
        """The submitted operations, whose callers do not wait in C."""
        if self._background is None:
            from pypmix.engine.native.background import Background

            with self._making:
                if self._background is None:
                    self._background = Background(self.queue, self.run)
        return self._background

    @property
    def collectives(self) -> Collectives:
        """The fences, connects and disconnects whose callers may give up."""
        if self._collectives is None:
            make = load("pypmix.engine.native.collectives", "Collectives")
            with self._making:
                if self._collectives is None:
                    self._collectives = make(self)
        return self._collectives

    def wait_for(self, op: Any, start: Callable[[Any, Done[Any]], None]) -> Any:
        """Start an operation and block the thread until it has ended; return its result."""
        waiting = allocate_lock()
        waiting.acquire()
        outcome: list[tuple[Any, BaseException | None]] = []

        def done(result: Any, error: BaseException | None) -> None:
            outcome.append((result, error))
            waiting.release()

        try:
            start(op, done)
            waiting.acquire()
        except BaseException:
            self.withdraw(done)
            raise
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    def withdraw(self, done: Done[Any]) -> bool:
        """See `ClientSession.withdraw`; `done` may remain uncalled."""
        if self.groups is not None:
            self.groups.withdraw(done)
        if self._collectives is not None:
            self._collectives.withdraw(done)
        return False

    @property
    def inbox(self) -> Inbox:
        """The inbox in which events and output arrive."""
        if self._inbox is None:
            from pypmix.engine.native.inbox import Inbox

            with self._making:
                if self._inbox is None:
                    made = Inbox(self.queue, self.background, self.marshal, str(self.info), self)
                    if not self.singleton:
                        self._watch_server(made.number)
                    self._inbox = made
        return self._inbox

    def _watch_server(self, inbox: int) -> None:
        """Register an inbox with the library for the loss of the server; the server need not know of it."""

        def fill(parameters: Any) -> None:
            parameters.number = -inbox
            self.marshal.fill(parameters.items, codes.STATUS, (statuses.ERR_LOST_CONNECTION,))

        call = self.ask(lib.PYPMIX_REGISTER_EVENT_HANDLER, arguments(fill), NO_LIMIT)
        lib.pypmix_call_free(call)

    # Calls

    def ask(self, what: int, parameters: Any, limit: float) -> Any:
        """Call the library for an operation of the table `asks.h`, wait for its end, and return the ended call.

        The shim takes ownership of the arguments. The caller frees the call.
        """
        try:
            call = self.call()
        except MemoryError:
            lib.pypmix_given_free(parameters)
            raise
        lib.pypmix_ask(call, self.queue, what, parameters, limit)
        self.waited(call, limit)
        return call

    def call(self) -> Any:
        """Return a call object for an operation; reuse a spare object if there is one."""
        try:
            return self._spare.pop()
        except IndexError:
            call = lib.pypmix_call_new()
            if not call:
                raise MemoryError("no memory for an operation") from None
            return call

    def finish_call(self, call: Any, limit: float) -> int:
        """Wait for a call and return its status; free the call if it failed."""
        status: int = call.status
        if status == 0:
            return 0
        status = self.waited(call, limit)
        if status:
            lib.pypmix_call_free(call)
        return status

    def waited(self, call: Any, limit: float) -> int:
        """Wait for a call and return its status.

        The wait continues after a signal whose handler returned. If the handler raised, the call is freed.
        """
        status: int = call.status
        if status == PENDING:
            import time

            end = time.monotonic() + limit
            try:
                while status == PENDING:
                    lib.pypmix_wait(call, -1.0 if limit < 0 else max(end - time.monotonic(), 0.0))
                    status = call.status
            except BaseException:
                lib.pypmix_call_free(call)
                raise
        return status

    # Errors, and the end

    def failed(
        self,
        operation: str,
        status: int,
        detail: str = "",
        procs: Sequence[Proc] = (),
        hint: str = "",
        *,
        collective: bool = False,
    ) -> PMIxError:
        """Return the error of an operation; end the session if the failure shows the loss of the server.

        A server that ends answers what is open with `ERR_LOST_CONNECTION` before it closes its connections. From a
        collective, the same status means that another participant is lost.
        """
        server_lost = self._server_lost
        if status in MAYBE_LOST and self.open and self.server_is_lost():
            server_lost = True
            self.lose()
        if server_lost:
            return self.loss(operation, procs or (self.proc,))
        # Servers before 6.0 report the end of a participant by another status.
        answered = collective and self.open and self.server_release >= (6,)
        kind = answered_error_for(status) if answered else error_for(status)
        if status == statuses.ERR_LOST_CONNECTION and not self.open:
            detail = "the client was closed while this was under way"
        if status == statuses.ERR_EXISTS_OUTSIDE_SCOPE:
            kind = NotFound
        return kind(
            detail or "the library or its server refused it",
            status=status,
            operation=operation,
            procs=procs or (self.proc,),
            engine=str(self.info),
            job=self.job,
            hint=hint,
        )

    def server_is_lost(self) -> bool:
        """Return True if there was a server and the connection to it has ended."""
        return not self.singleton and not lib.pypmix_connected()

    def loss(self, operation: str = "", procs: Sequence[Proc] = ()) -> LostConnection:
        """Return the error of an operation on a server that is lost."""
        detail = f"the connection to the server {self.server} is gone"
        return LostConnection(detail, operation=operation, procs=procs, engine=str(self.info), job=self.job)

    def named(self, error: PMIxError, operation: str) -> PMIxError:
        """Set the operation, the engine and the job of an error, and return it."""
        error.operation, error.engine, error.job = operation, str(self.info), self.job
        return error

    def alone(self, operation: str, procs: Sequence[Proc]) -> Unreachable:
        """Return the error of an operation that a singleton cannot carry out."""
        return Unreachable(
            "this process is a singleton: no server launched it, so there are no other procs",
            operation=operation,
            procs=procs or (self.proc,),
            engine=str(self.info),
            job=self.job,
            hint="start it with a launcher, such as `pypmix run`",
        )

    def not_offered(self, op: Op[Any]) -> NotSupported:
        """Return the error of an operation that a session of this kind does not have."""
        return NotSupported("a client has no such operation", operation=op.name, engine=str(self.info), job=self.job)

    def closed(self, operation: str) -> NoReturn:
        """Raise the error of an operation on a session that is not open."""
        if self._forked:
            raise NotInitialized(
                "this process was forked from the one that opened the client, which stays that one's",
                operation=operation,
                engine=str(self.info),
                hint="open a client of its own in the child",
            )
        if self._server_lost:
            raise self.loss(operation, (self.proc,))
        raise NotInitialized(
            "the client is finalized", operation=operation, engine=str(self.info), hint="open a new one"
        )

    def lose(self) -> None:
        """Mark the server as lost: fail the pending operations, and accept no further ones."""
        if self.open:
            self.leave(server_lost=True)

    def leave(self, *, server_lost: bool = False) -> None:
        """Accept no further operations, and fail the pending ones."""
        self._server_lost = server_lost
        if self.open:
            self.open = False
            lib.pypmix_queue_fail(self.queue, statuses.ERR_LOST_CONNECTION)
            if self._inbox is not None:
                self._inbox.end(self.loss(procs=(self.proc,)) if server_lost else None)


def arguments(fill: Callable[[Any], None]) -> Any:
    """Return the arguments of a call, filled in by a function; free them if the function raises."""
    parameters = ffi.new("pypmix_given *")
    try:
        fill(parameters)
    except BaseException:
        lib.pypmix_given_free(parameters)
        raise
    return parameters
