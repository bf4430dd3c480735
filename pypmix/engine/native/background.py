"""Submitted operations: how they end, the thread that reports their ends, and the other calls on that thread.

Theory of operation. A submitted operation gets a token. Its callback comes on libpmix's progress thread, which puts the
call into the session's queue (`calls.c`) and wakes the queue's descriptor; it touches no Python. `poll` takes ended
calls out, reads their outcome, and calls `done`. An attached event loop calls `poll` when the descriptor is readable.
Without an event loop, the thread "pypmix-completions" sleeps on the descriptor and calls `poll`. It starts with the
first operation that needs it, ends when an event loop attaches, and starts again after `detach` if anything is left to
complete.

`poll` does these steps in order. It takes ended calls from the queue, and with the last call the wake-up; all other
sources are read after that, so no wake-up is lost. It calls the listeners (the inboxes), which read unrequested
messages. It makes the calls that were requested by `tell`, reports the ends of operations, and makes the calls that
these ends have caused. So messages that arrived before an operation ended are delivered before that end is reported.
They may also be delivered before the end of an earlier operation. The readers allow for it: they know a registration
from the time of its request.

Two more threads start on demand: "pypmix-calls" carries out, one after the other, operations that the library has in a
blocking form only, and the alarms end operations at their time limit if the library does not. All are daemons, so that
a process that does not finalize can exit. A fault on one of these threads is logged and ends its operation with an
error, and the thread continues: other callers would wait for ever otherwise.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue

from pypmix.engine.alarms import Alarms
from pypmix.engine.faults import fault
from pypmix.engine.native._ffi import lib
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.alarms import Alarm
    from pypmix.standard.ops import Op

    Report = Callable[[Any, BaseException | None], None]
    Begin = Callable[[Any, int], int]
    Outcome = Callable[[Any, Any], Any]


JOIN = 2.0
"""The seconds to wait for a thread to end; a thread that hangs in a call of the library is left behind, as a daemon."""


def _thread(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


class Background:
    """The submitted operations of one session.

    Args:
        queue: The session's queue, which outlives this object.
        run: Carries out an operation that the library has in a blocking form only.
    """

    def __init__(self, queue: Any, run: Callable[[Op[Any]], Any]) -> None:
        self._queue = queue
        self._run = run
        self._lock = threading.Lock()
        self._pending: dict[int, tuple[Op[Any], Report, Outcome, Alarm | None]] = {}
        self._last_token = 0
        self._finished: deque[tuple[Report, Any, BaseException | None]] = deque()
        self._reports: deque[tuple[Report | None, Any, BaseException | None]] = deque()
        self._due: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._poller = 0
        self._attached = False
        self._closed = False
        self._completer: threading.Thread | None = None
        self._caller: threading.Thread | None = None
        self._work: SimpleQueue[tuple[Op[Any], Report] | None] = SimpleQueue()
        self._limits = Alarms()
        self._listeners: list[Callable[[], bool]] = []

    def start(self, op: Op[Any], done: Report, begin: Begin, outcome: Outcome, limit: float) -> None:
        """Start an operation.

        Args:
            op: The operation.
            done: Called with the result or the error.
            begin: Calls the library with a queue and a token; returns 0, or another number if memory is exhausted.
            outcome: Called with the operation and its ended call, which it frees; returns the result or raises.
            limit: The seconds that the operation may last; -1 for no limit.
        """
        with self._lock:
            self._last_token += 1
            token = self._last_token
        alarm = self._limits.later(limit, lambda: self._expire(token)) if limit >= 0 else None
        self._pending[token] = (op, done, outcome, alarm)
        self._completions()
        try:
            refused = begin(self._queue, token)
        except BaseException:
            # A signal handler may raise before or after the call of the library.
            if not lib.pypmix_queue_has(self._queue, token):
                self._take_pending(token)
            raise
        if refused:
            self._take_pending(token)
            done(None, MemoryError("no memory for an operation"))

    def has(self, op: Op[Any]) -> bool:
        """Return True if the library has been asked for an operation and `poll` has not reported its end."""
        return any(pending[0] is op for pending in list(self._pending.values()))

    def leave(self, op: Op[Any], done: Report, outcome: Outcome, call: Any) -> None:
        """Complete a call that a thread has waited for and given up; for the arguments see `start`."""
        with self._lock:
            self._last_token += 1
            token = self._last_token
        self._pending[token] = (op, done, outcome, None)
        self._completions()
        lib.pypmix_call_leave(call, self._queue, token)

    def later(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """Call a function after some seconds, on the thread of the alarms."""
        return self._limits.later(seconds, call)

    def call(self, op: Op[Any], done: Report) -> None:
        """Run an operation that the library has in a blocking form only; a thread runs these in order."""
        with self._lock:
            if self._caller is None:
                self._caller = _thread("pypmix-calls", self._run_calls)
        self._completions()
        self._work.put((op, done))

    def tell(self, function: Callable[[Any], object], argument: Any) -> None:
        """Let `poll` call a function with an argument, after the functions of earlier requests."""
        self._due.append((function, argument))
        if self._poller != threading.get_ident():
            self._wake()

    def listen(self, listener: Callable[[], bool]) -> None:
        """Let each `poll` call a listener, and keep a thread that polls from now on.

        The listener returns True if `poll` may make calls. It returns False if this `poll` interrupts a step of this
        thread in the session.
        """
        self._listeners.append(listener)
        self._completions()

    def poll(self) -> None:
        """Report the ends of operations, and make the calls that are due."""
        ended = self._reports
        while call := lib.pypmix_queue_pop(self._queue):
            ended.append((None, call, None))
        while self._finished:
            ended.append(self._finished.popleft())
        before, self._poller = self._poller, threading.get_ident()
        try:
            held = [listener for listener in self._listeners if not self._listened(listener)]
            while self._due and not held:
                self._make_call()
            while ended:
                self._end(*ended.popleft())
            while self._due and not held:
                self._make_call()
        finally:
            self._poller = before

    def attach(self) -> None:
        """Stop the thread of completions: the caller watches the queue's descriptor and calls `poll`."""
        self._attached = True
        lib.pypmix_queue_wake(self._queue)

    def detach(self) -> None:
        """Complete operations on a thread again: the caller no longer calls `poll`."""
        self._attached = False
        if self._pending or self._finished or self._due or self._listeners:
            self._completions()

    def close(self) -> None:
        """End the threads, and report the operations that are left."""
        with self._lock:
            self._closed = True
            lib.pypmix_queue_wake(self._queue)
        self._work.put(None)
        self._limits.close()
        for thread in (self._completer, self._caller):
            if thread is not None and thread is not threading.current_thread():
                thread.join(JOIN)
        self.poll()

    def _listened(self, listener: Callable[[], bool]) -> bool:
        try:
            return listener()
        except Exception as error:
            fault("to take in what has come", error)
            return True

    def _make_call(self) -> None:
        function, argument = self._due.popleft()
        try:
            function(argument)
        except Exception as error:
            # Other callers wait for the calls behind it.
            fault("what an event or an answer leads to", error)

    def _end(self, done: Report | None, result: Any, problem: BaseException | None) -> None:
        try:
            if done is None:
                call = result
                op, done, outcome = self._take_pending(call.token)
                try:
                    result = outcome(op, call)
                except PMIxError as error:
                    problem, result = error, None
                except Exception as error:
                    problem, result = fault(f"the answer to {op.name}", error), None
            done(result, problem)
        except Exception as error:
            # Other callers wait for the ends behind it.
            fault("to tell of the end of an operation", error)

    def _take_pending(self, token: int) -> tuple[Op[Any], Report, Outcome]:
        op, done, outcome, alarm = self._pending.pop(token)
        if alarm is not None:
            alarm.cancel()
        return op, done, outcome

    def _wake(self) -> None:
        with self._lock:
            if not self._closed:
                lib.pypmix_queue_wake(self._queue)

    def _expire(self, token: int) -> None:
        with self._lock:
            if not self._closed:
                lib.pypmix_queue_expire(self._queue, token)

    def _completions(self) -> None:
        """Start the thread that completes operations, unless it runs or an event loop is attached."""
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
                fault("the thread that completes operations", error)

    def _run_calls(self) -> None:
        while (item := self._work.get()) is not None:
            op, done = item
            result, problem = None, None
            try:
                result = self._run(op)
            except Exception as error:
                problem = error
            except BaseException as error:
                problem = fault(f"the thread that runs {op.name}", error)
            self._finished.append((done, result, problem))
            self._wake()
