"""Upcalls as requests: passed from the engine's thread to handlers, and watched until they are answered.

A request is open until its upcall is removed from it: by an answer, by the watchdog (`_expire`), or when the host
closes. The removal is atomic, and only the thread that removes the upcall answers the server. So any thread may answer
at any time.

1. `take`, on the engine's thread, counts the request for its client and refuses it if the client has too many.
2. `_begin`, in the loop, sets its deadline and starts its handler: an `async def` as a task, any other function on a
   worker's thread. Clients take turns, so that no client waits for all requests of another.
3. `returned` or `failed`, on the handler's thread, answer; for `LATER`, the handler's author calls `reply` or `fail`.
4. `OpenRequests.remove`, called by the request whose upcall was removed, ends the count.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import sys
import threading
from functools import partial

from pypmix.host.callbacks.base import LATER, OpenRequests, failure
from pypmix.host.callbacks.workers import Workers
from pypmix.host.loop import Turns
from pypmix.serverbase import MAX_UNANSWERED
from pypmix.standard import statuses
from pypmix.standard.enums import Status
from pypmix.standard.errors import SUCCESSES, LostConnection, OperationTimeout, PMIxError, ResourceBusy
from pypmix.standard.logtext import get_logger
from pypmix.standard.ops import ClientAborted, ClientFinalized, ClientLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, TypeVar

    from pypmix.host.callbacks.base import Expand, Handler, Request

    T = TypeVar("T")

log = get_logger("pypmix.host")

ALWAYS = (ClientAborted, ClientFinalized, ClientLost)
"""Operations that are never refused: they report the end of a client."""

PATIENCE = 5.0
"""Seconds that handlers have to end once they are cancelled."""


def is_async(function: object) -> bool:
    """Return True if a handler runs in the loop."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def settling(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]
) -> Callable[[T | None, BaseException | None], None]:
    """Return a function that sets the result or the exception of a loop's future, from any thread."""

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            # A future does not accept a StopIteration.
            failure = RuntimeError("a StopIteration was raised")
            failure.__cause__ = error
            future.set_exception(failure)
        else:
            future.set_exception(error)

    def done(result: T | None, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            # The loop has ended, and its tasks with it.
            return

    return done


def _start(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task; run it at once if Python can (3.12), since most handlers never wait."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


class Bell:
    """Gives turns in an event loop, as many as other threads ring for.

    `call_soon_threadsafe` does so too, but reads its pipe twice for each call. The loop and the server share the
    interpreter, and at each system call the loop may wait for the server, or the server for the loop.

    Args:
        loop: The loop; the bell is created and closed on its thread.
        turns: The calls that wait for their turns.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self._loop = loop
        self._turns = turns
        self._lock = threading.Lock()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._fd, self._give_turns)

    def ring(self, _function: object = None) -> None:
        """Give one more turn in the loop; from any thread.

        Raises:
            RuntimeError: The loop has ended, or the bell was closed.
        """
        with self._lock:
            if self._fd < 0 or self._loop.is_closed():
                raise RuntimeError("the loop has ended")
            os.eventfd_write(self._fd, 1)

    def _give_turns(self) -> None:
        try:
            times = os.eventfd_read(self._fd)
        except BlockingIOError:
            return
        while times:
            times -= 1
            try:
                self._turns.next()
            except BaseException:
                # The exception may end the loop's run, but must not drop the remaining calls.
                if times and self._fd >= 0:
                    os.eventfd_write(self._fd, times)
                raise

    def close(self) -> None:
        """Stop calling the function."""
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(fd)
            os.close(fd)


class Dispatcher:
    """The requests of a host that are in flight.

    Args:
        loop: The loop of the host's handlers.
        reply_timeout: Seconds after which an unanswered request is answered with `ERR_TIMEOUT`; None for never.
        expand: Returns procs with their wildcards replaced.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, reply_timeout: float | None, expand: Expand) -> None:
        self.loop = loop
        self.requests = OpenRequests(expand)
        self._reply_timeout = reply_timeout
        self._workers = Workers(loop)
        self._turns = Turns(self._soon)
        self.bell = Bell(loop, self._turns)
        self.answering: Callable[[Callable[[], None]], object] | None = None
        """Calls a function that answers on the loop's thread; see `pypmix.engine.base.ServerSession.attach`."""
        self._serving = False
        self._due = 0
        self._tasks: dict[asyncio.Task[None], Request[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_expiry = 0.0

    # On any thread.

    def take(self, request: Request[Any], function: Handler, asynchronous: bool) -> None:
        """Schedule a request to be handled; never blocks."""
        requestor = request.requestor
        count = self.requests.add(request)
        if count >= MAX_UNANSWERED and not isinstance(request.op, ALWAYS):
            detail = f"{count} requests of {requestor} are unanswered"
            request.fail(ResourceBusy(detail, operation=request.name))
            return
        try:
            self._turns.add(requestor, partial(self._begin, request, function, asynchronous))
        except RuntimeError:
            self._close(request)

    def returned(self, request: Request[Any], result: object) -> None:
        """Answer a request with the result of its handler."""
        if result is LATER or (result is None and request.is_answered):
            return
        try:
            if not isinstance(result, Status):
                request.reply(result)
            elif result in SUCCESSES:
                request.reply()
            else:
                request.fail(result)
        except Exception as error:
            self.failed(request, error)

    def failed(self, request: Request[Any], error: BaseException) -> None:
        """Log the exception of a handler, and answer the request with it."""
        if isinstance(error, PMIxError):
            log.debug("%s is answered with an error", request, exc_info=error)
        elif not request.is_answered or not self.requests.closed:
            log.error("the handler of %s failed", request, exc_info=error)
        if not request.is_answered:
            request.fail(failure(request, error))

    def _soon(self, next_: Callable[[], None]) -> None:
        if asyncio._get_running_loop() is not self.loop:
            self.bell.ring()
        elif self._serving:
            self._due += 1
        else:
            self.loop.call_soon(next_)

    # On the loop's thread.

    def serve(self, poll: Callable[[], None]) -> None:
        """Let an engine call the host, and start handlers after it: no handler runs inside the engine."""
        self._serving = True
        try:
            poll()
        finally:
            self._serving = False
            due, self._due = self._due, 0
            try:
                while due:
                    due -= 1
                    self._turns.next()
            finally:
                # An exception may end the loop's run, but must not drop the remaining turns.
                for _ in range(due):
                    self.loop.call_soon(self._turns.next)

    def _begin(self, request: Request[Any], function: Handler, asynchronous: bool) -> None:
        if self.requests.closed:
            self._close(request)
            return
        if self._reply_timeout is not None:
            # If the callers have a longer timeout, it applies to the host as well.
            request.deadline = self.loop.time() + max(self._reply_timeout, request.timeout or 0.0)
            if self._timer is None or self._next_expiry > request.deadline:
                self._expire_at(request.deadline)
        try:
            if asynchronous:
                self._run(request, self._serve(request, function))
            elif self.requests.count(request.requestor) > 1:
                # The task of an earlier request may not have started yet; it was put in the loop before this call.
                self.loop.call_soon(self._submit, request, function)
            else:
                self._submit(request, function)
        except Exception as error:
            # Memory is exhausted: the requestor needs an answer.
            self.failed(request, error)

    def _submit(self, request: Request[Any], function: Handler) -> None:
        try:
            self._workers.submit(lambda: self._call(request, function))
        except Exception as error:
            # Memory or threads are exhausted.
            self.failed(request, error)

    def _run(self, request: Request[Any], coroutine: Coroutine[Any, Any, None]) -> None:
        task = _start(self.loop, coroutine)
        if not task.done():
            request.task = task
            self._tasks[task] = request

    async def _serve(self, request: Request[Any], function: Callable[[Any], Any]) -> None:
        try:
            result = await function(request)
        except asyncio.CancelledError:
            if not request.is_answered:
                request.fail(PMIxError("its handler was cancelled", operation=request.name))
            raise
        except Exception as error:
            self.failed(request, error)
        except BaseException as error:
            self.failed(request, error)
            # The exception is logged, and ends the loop's run; asyncio need not log it when the task is collected.
            if (task := asyncio.current_task()) is not None:
                task.add_done_callback(_retrieve)
            raise
        else:
            if self.answering is None:
                self.returned(request, result)
            else:
                self.answering(partial(self.returned, request, result))
        finally:
            # A callback of the task would cost another iteration of the loop.
            if request.task is not None:
                self._tasks.pop(request.task, None)

    def _call(self, request: Request[Any], function: Handler) -> None:
        """Call a handler, on a worker's thread."""
        if request.is_answered:
            return
        try:
            result = function(request)
        except BaseException as error:
            # A thread has no caller that could get the exception, not even a SystemExit.
            self.failed(request, error)
            return
        if result is None or not inspect.isawaitable(result):
            self.returned(request, result)
            return

        async def rest(_request: Request[Any]) -> Any:
            return await result

        try:
            self.loop.call_soon_threadsafe(lambda: self._run(request, self._serve(request, rest)))
        except RuntimeError:
            self._close(request)

    async def in_worker(self, function: Handler, request: Request[Any]) -> Any:
        """Call a handler that blocks, and return its result."""
        future: asyncio.Future[Any] = self.loop.create_future()

        done = settling(self.loop, future)

        def call() -> None:
            try:
                done(function(request), None)
            except Exception as error:
                done(None, error)
            except BaseException as error:
                done(None, failure(request, error))

        self._workers.submit(call)
        result = await future
        return await result if inspect.isawaitable(result) else result

    def _expire(self) -> None:
        self._timer = None
        now = self.loop.time()
        late = [request for request in self.requests.get_all() if request.deadline <= now]
        for request in late:
            request.deadline = -1.0
            limit = max(self._reply_timeout or 0.0, request.timeout or 0.0)
            log.error("%s was not answered within %g s: it is given up", request, limit)
            upcall = request.take_upcall()
            if upcall is not None:
                upcall.fail(OperationTimeout("the host did not answer in time", operation=request.name))
            if request.task is not None:
                # A task that has not started ends without running its `finally`.
                request.task.add_done_callback(self._forget_task)
                request.task.cancel()
        first = min([request.deadline for request in self.requests.get_all()], default=math.inf)
        if first < math.inf:
            self._expire_at(first)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)

    def _expire_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next_expiry = self.loop.call_at(deadline, self._expire), deadline

    def _close(self, request: Request[Any]) -> None:
        upcall = request.take_upcall()
        if upcall is not None:
            upcall.fail(
                LostConnection("the host has closed", status=statuses.ERR_LOST_CONNECTION, operation=request.name)
            )

    async def close(self) -> None:
        """Cancel the running handlers, and answer all unanswered requests."""
        self.requests.closed = True
        self.bell.close()
        if self._timer is not None:
            self._timer.cancel()
        for request in self.requests.get_all():
            self._close(request)
        self._workers.close()
        own = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not own]
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=PATIENCE)
            for task in stuck:
                log.error("the handler of %s does not end although it was cancelled", self._tasks[task])
