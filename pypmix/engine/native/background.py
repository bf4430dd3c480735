"""Operations that are not waited for in C: how they end, on which thread, and what else is called there.

Theory of operation. A submitted operation gets a token. Its callback comes on libpmix's progress thread, which puts the
call into the session's queue (`calls.c`) and wakes the queue's descriptor; it touches no Python. `poll` takes ended
calls out, reads their outcome, and calls `done`. An attached event loop calls `poll` when the descriptor is readable;
without one, the thread "pypmix-completions" sleeps on the descriptor and calls it. It starts with the first operation
that needs it, ends when an event loop attaches, and starts again after `detach` if anything is left to complete.

`poll` does these in order: it takes ended calls from the queue, and the wake-up with the last one (all that follows is
looked at after that, so none is lost); has the listeners (the inboxes) take in what came unasked; makes the calls that
were requested by `tell`; tells the ends of operations; and makes the calls that these have led to. So what came unasked
before an operation ended is handed on before that end is told. It may also come before the end of what was over
earlier, which its readers allow for: they know a registration by the time it is asked for.

Two more threads start when they are needed: "pypmix-calls" carries out, one after the other, operations that the
library has in a blocking form only, and the alarms end operations whose time is over where the library does not. All
are daemons, so that a process which forgets to finalize ends all the same. A fault on one of them ends the operation
that it belongs to with an error, is logged, and the thread goes on: its callers would wait for ever otherwise.
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
"""Seconds that a thread has to end; one that a call of the library holds is left behind, as a daemon."""


def _thread(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


class Background:
    """The submitted operations of one session.

    Args:
        queue: The session's queue, which outlives this.
        run: Carries out an operation that the library has in a blocking form only.
    """

    def __init__(self, queue: Any, run: Callable[[Op[Any]], Any]) -> None:
        self._queue = queue
        self._run = run
        self._lock = threading.Lock()
        self._pending: dict[int, tuple[Op[Any], Report, Outcome, Alarm | None]] = {}
        self._last_token = 0
        self._finished: deque[tuple[Report, Any, BaseException | None]] = deque()
        self._ended: deque[tuple[Report | None, Any, BaseException | None]] = deque()
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
            done: Told of its end.
            begin: Puts it to the library, for a queue and under a token, and returns 0 or that there is no memory.
            outcome: Returns the result of the operation and its ended call, which it frees, or raises the error.
            limit: The seconds that it may last; -1 for no limit.
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
            # A signal handler may raise before and after the call of the library.
            if not lib.pypmix_queue_has(self._queue, token):
                self._taken(token)
            raise
        if refused:
            self._taken(token)
            done(None, MemoryError("no memory for an operation"))

    def has(self, op: Op[Any]) -> bool:
        """Return True if the library has been asked for an operation and `poll` has not reported its end."""
        return any(pending[0] is op for pending in list(self._pending.values()))

    def leave(self, op: Op[Any], done: Report, outcome: Outcome, call: Any) -> None:
        """Look after a call that a thread has waited for and given up; for the arguments see `start`."""
        with self._lock:
            self._last_token += 1
            token = self._last_token
        self._pending[token] = (op, done, outcome, None)
        self._completions()
        lib.pypmix_call_leave(call, self._queue, token)

    def later(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """Have a function called after some seconds, on the thread of the alarms."""
        return self._limits.later(seconds, call)

    def call(self, op: Op[Any], done: Report) -> None:
        """Run an operation that the library only has in a blocking form, on a thread that does these in order."""
        with self._lock:
            if self._caller is None:
                self._caller = _thread("pypmix-calls", self._run_calls)
        self._completions()
        self._work.put((op, done))

    def tell(self, function: Callable[[Any], object], argument: Any) -> None:
        """Have a function called with an argument by `poll`, after those of earlier requests."""
        self._due.append((function, argument))
        if self._poller != threading.get_ident():
            self._wake()

    def listen(self, listener: Callable[[], bool]) -> None:
        """Have somebody called with each `poll` who looks for more; from now on there is always one to call it.

        It returns whether calls may be made: not where this thread has been interrupted inside of the session.
        """
        self._listeners.append(listener)
        self._completions()

    def poll(self) -> None:
        """Report everything that has ended."""
        ended = self._ended
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
        """Somebody watches the queue's descriptor and calls `poll`."""
        self._attached = True
        lib.pypmix_queue_wake(self._queue)

    def detach(self) -> None:
        """Stop listening."""
        self._attached = False
        if self._pending or self._finished or self._due or self._listeners:
            self._completions()

    def close(self) -> None:
        """Report what is left, and end the threads."""
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
            # Others wait for what is due behind it.
            fault("what an event or an answer leads to", error)

    def _end(self, done: Report | None, result: Any, problem: BaseException | None) -> None:
        try:
            if done is None:
                call = result
                op, done, outcome = self._taken(call.token)
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

    def _taken(self, token: int) -> tuple[Op[Any], Report, Outcome]:
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
