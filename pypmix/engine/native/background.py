"""Operations that nobody waits for in C: how their outcomes reach `done`, and what runs on threads.

Threads are started by the first operation that needs one and are daemons that sleep in C without the GIL, so a
process that forgets to finalize ends all the same.
"""

from __future__ import annotations

import threading
from collections import deque
from heapq import heappop, heappush
from queue import SimpleQueue
from time import monotonic

from pypmix.engine.base import sleep_for
from pypmix.engine.faults import fault
from pypmix.engine.native._ffi import lib
from pypmix.engine.native.quirks import deadline, ordered
from pypmix.engine.native.structs import text
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.native.session import NativeSession
    from pypmix.standard.ops import Op

    Report = Callable[[Any, BaseException | None], None]
    Outcome = Callable[[Any, Any], Any]


JOIN = 2.0
"""Seconds that a thread has to end; one that a call of the library holds is left behind, as a daemon."""


def _thread(name: str, target: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread


class Background:
    """The submitted operations of one session."""

    def __init__(self, session: NativeSession) -> None:
        self._session = session
        self._queue = session._queue
        self._lock = threading.Lock()
        self._pending: dict[int, tuple[Op[Any], Report, Outcome]] = {}
        self._last_token = 0
        self._finished: deque[tuple[Report, Any, BaseException | None]] = deque()
        self._ended: deque[tuple[Report | None, Any, BaseException | None]] = deque()
        self._attached = False
        self._closed = False
        self._completer: threading.Thread | None = None
        self._caller: threading.Thread | None = None
        self._work: SimpleQueue[tuple[Op[Any], Report] | None] | None = None
        self._limits: _Limits | None = None
        self._listeners: list[Callable[[], None]] = []

    def get(self, op: Any, done: Report) -> None:
        """Start a get."""
        proc, directives = op.proc, op.directives
        nspace, key, limit = text(proc[0]), text(op.key), deadline(directives)
        infos, count = self._session._marshal.infos(ordered(directives))
        token = self._enter(op, done, self._session._outcome)
        status = lib.pypmix_get_submit(self._queue, token, nspace, proc[1], key, infos, count)
        self._entered(token, status, limit)

    def fence(self, op: Any, done: Report) -> None:
        """Start a fence."""
        procs, count, infos, ninfos, limit = self._session._fence_arguments(op)
        token = self._enter(op, done, self._session._outcome)
        status = lib.pypmix_fence_submit(self._queue, token, procs, count, infos, ninfos)
        self._entered(token, status, limit)

    def start(self, op: Any, done: Report, begin: Callable[[Any, int], int], outcome: Outcome, limit: float) -> None:
        """Start any other operation.

        Args:
            op: The operation.
            done: What hears of its end.
            begin: Puts it to the library, for a queue and under a token, and returns 0 or that there is no memory.
            outcome: Returns the result of the operation and its ended call, which it frees, or raises the error.
            limit: The seconds that it may last; -1 for no limit.
        """
        token = self._enter(op, done, outcome)
        self._entered(token, begin(self._queue, token), limit)

    def call(self, op: Op[Any], done: Report) -> None:
        """Run an operation that the library only has in a blocking form, on a thread that does these in order."""
        with self._lock:
            if self._work is None:
                self._work = SimpleQueue()
                self._caller = _thread("pypmix-calls", self._run_calls, self._work)
        self._completions()
        self._work.put((op, done))

    def poll(self) -> None:
        """Report everything that has ended.

        What came unasked before an operation ended is handed on before that end is told. It may also come before the
        end of what was over earlier, which its readers allow for: they know a registration by the time it is asked for.
        """
        lib.pypmix_queue_drain(self._queue)
        ended = self._ended
        while call := lib.pypmix_queue_pop(self._queue):
            ended.append((None, call, None))
        while self._finished:
            ended.append(self._finished.popleft())
        for listener in self._listeners:
            try:
                listener()
            except Exception as error:
                fault("to take in what has come", error)
        while ended:
            self._end(*ended.popleft())

    def _end(self, done: Report | None, result: Any, problem: BaseException | None) -> None:
        try:
            if done is None:
                call = result
                op, done, outcome = self._pending.pop(call.token)
                try:
                    result = outcome(op, call)
                except PMIxError as error:
                    problem, result = error, None
                except Exception as error:
                    problem, result = fault(f"the answer to {op.name}", error), None
            done(result, problem)
        except Exception as error:
            # Others wait for what has ended behind it.
            fault("to tell of the end of an operation", error)

    def listen(self, listener: Callable[[], None]) -> None:
        """Have somebody called who looks for more, with each `poll`; from now on there is always one to call it."""
        self._listeners.append(listener)
        self._completions()

    def wake(self) -> None:
        """Have `poll` called soon."""
        with self._lock:
            if not self._closed:
                lib.pypmix_queue_wake(self._queue)

    def attach(self) -> None:
        self._attached = True
        lib.pypmix_queue_wake(self._queue)

    def detach(self) -> None:
        self._attached = False
        if self._pending or self._finished or self._listeners:
            self._completions()

    def close(self) -> None:
        """Report what is left, and end the threads."""
        with self._lock:
            self._closed = True
            lib.pypmix_queue_wake(self._queue)
        if self._work is not None:
            self._work.put(None)
        if self._limits is not None:
            self._limits.stop()
        threads = [self._completer, self._caller, None if self._limits is None else self._limits.thread]
        for thread in threads:
            if thread is not None and thread is not threading.current_thread():
                thread.join(JOIN)
        self.poll()

    def _enter(self, op: Op[Any], done: Report, outcome: Outcome) -> int:
        with self._lock:
            self._last_token += 1
            token = self._last_token
        self._pending[token] = (op, done, outcome)
        self._completions()
        return token

    def _entered(self, token: int, status: int, limit: float) -> None:
        if status:
            _op, done, _outcome = self._pending.pop(token)
            done(None, MemoryError("no memory for an operation"))
        elif limit >= 0:
            with self._lock:
                if self._limits is None:
                    self._limits = _Limits(self._queue)
            self._limits.add(limit, token)

    def _completions(self) -> None:
        """See to it that somebody completes operations."""
        if self._attached or self._completer is not None:
            return
        with self._lock:
            if self._completer is None:
                self._completer = _thread("pypmix-completions", self._complete)

    def _complete(self) -> None:
        while not self._closed:
            lib.pypmix_queue_wait(self._queue)
            with self._lock:
                if self._attached:
                    self._completer = None
                    lib.pypmix_queue_wake(self._queue)
                    return
            try:
                self.poll()
            except BaseException as error:
                # Whoever waits for this thread would wait for ever.
                fault("the thread that completes operations", error)

    def _run_calls(self, work: SimpleQueue[tuple[Op[Any], Report] | None]) -> None:
        while True:
            item = work.get()
            if item is None:
                return
            op, done = item
            try:
                result, problem = self._session.run(op), None
            except Exception as error:
                result, problem = None, error
            self._finished.append((done, result, problem))
            with self._lock:
                if not self._closed:
                    lib.pypmix_queue_wake(self._queue)


class _Limits:
    """Ends operations whose time is over, where the library does not."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._due: list[tuple[float, int]] = []
        self._changed = threading.Condition()
        self._stopped = False
        self.thread = _thread("pypmix-timeouts", self._run)

    def add(self, seconds: float, token: int) -> None:
        with self._changed:
            heappush(self._due, (monotonic() + seconds, token))
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._stopped:
                left = self._due[0][0] - monotonic() if self._due else None
                if left is None or left > 0:
                    self._changed.wait(None if left is None else sleep_for(left))
                    continue
                lib.pypmix_queue_expire(self._queue, heappop(self._due)[1])
