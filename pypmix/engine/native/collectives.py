"""Fences, connects and disconnects whose callers may give up before the library has answered.

Theory of operation. A libpmix server counts the callers of a collective but does not identify them, so a second call of
the same procs would count as a participant that has not arrived. A `Request` whose caller gives up therefore stays here
until the library has answered it, and the next call of the same kind and procs takes it over. That call waits for the
answer, or gets a success that has arrived already, which the other participants have received, too. A failure that
arrives after its caller has given up is dropped.

A server of the Python engine identifies callers. A query asks it to withdraw the caller that gives up, and the server
answers its request with a timeout. If the next call has taken the request over by then, the request is repeated.

The library's answers arrive on the thread that polls the session, limits on the thread of the alarms, and calls on any
thread; the lock is never held during a callback.
"""

from __future__ import annotations

from _thread import allocate_lock
from functools import partial

from pypmix.engine.common import ignore
from pypmix.engine.groups.talk import flag, procs, text
from pypmix.engine.native.groupport import has_own_server
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import WITHDRAWAL, WITHDRAWAL_KIND, WITHDRAWAL_PROCS, QueryInfo
from pypmix.standard.types import Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from pypmix.engine.alarms import Alarm
    from pypmix.engine.base import Done
    from pypmix.engine.native.connection import Connection
    from pypmix.standard.types import Proc

    Key = tuple[type, frozenset[Proc]]
    Begin = Callable[[Done[Any]], None]

MAX_ANSWERS = 256
"""The maximum number of answers that are kept for the next calls of collectives that were given up."""

_CONTINUES = (
    "this process gave up an earlier call of the same procs, which this server still counts; the call waited for its "
    "answer: name other procs, without the one that does not call"
)


class Request:
    """A request for a collective to the library, and the call that waits for it.

    Attributes:
        key: The kind and the procs of the collective.
        op: The operation of the latest call.
        caller: Identifies the latest call in `withdraw`; None once it was given up.
        done: Called with the end; None once the call was given up.
        begin: Repeats the request to the library, if the call has taken over the request of an earlier call.
        alarm: Ends the call at its limit.
        answer: The success that arrived after the call was given up.
    """

    __slots__ = ("alarm", "answer", "begin", "caller", "done", "key", "op")

    def __init__(self, key: Key, op: Any) -> None:
        self.key = key
        self.op = op
        self.caller: Done[Any] | None = None
        self.done: Done[Any] | None = None
        self.begin: Begin | None = None
        self.alarm: Alarm | None = None
        self.answer: tuple[Any, None] | None = None


class Collectives:
    """The collectives of one session.

    Args:
        connection: The session.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._identifies_callers = has_own_server(connection)
        self._lock = allocate_lock()
        self._waiting: set[Request] = set()
        self.given_up: dict[Key, list[Request]] = {}
        """The requests without a caller, oldest first."""

    def submit(
        self,
        op: Any,
        named: Sequence[Proc],
        done: Done[Any],
        begin: Begin,
        limit: float,
        caller: Done[Any] | None = None,
    ) -> None:
        """Start a collective, or wait for the answer to an earlier call that was given up.

        Args:
            op: The operation.
            named: The procs as the library gets them.
            done: Called with the end.
            begin: Calls the library without a limit; its argument is the function to call with the answer.
            limit: The seconds that the call may last; -1 for no limit.
            caller: Identifies the call in `withdraw`; by default `done`.
        """
        request = Request((type(op), frozenset(named)), op)
        try:
            request, earlier = self._entered(request, done, caller or done, begin)
            if request.answer is not None:
                answer, request.answer = request.answer, None
                done(*answer)
                return
            if limit >= 0:
                alarm = self._connection.background.later(limit, partial(self._expire, request, done))
                with self._lock:
                    if request.done is done:
                        request.alarm = alarm
            if not earlier:
                begin(partial(self._handle_answer, request))
        except BaseException:
            # A signal handler has raised, before or after the call of the library.
            with self._lock:
                if request in self._waiting:
                    if request.begin is not None or self._connection.background.has(op):
                        self._abandon(request)
                    self._waiting.discard(request)
                    self._silence(request)
            raise

    def _entered(self, new: Request, done: Done[Any], caller: Done[Any], begin: Begin) -> tuple[Request, bool]:
        """Return the request of a call, and True if the request is of an earlier call."""
        with self._lock:
            earlier = self._take_given_up(new.key)
            request = earlier or new
            request.op = new.op
            if request.answer is None:
                request.done, request.caller = done, caller
                request.begin = begin if earlier else None
                self._waiting.add(request)
        return request, earlier is not None

    def leave(self, op: Any, named: Sequence[Proc], call: Any, outcome: Callable[[Any, Any], Any]) -> None:
        """Give up a blocking call that the library has not answered.

        Args:
            op: The operation.
            named: The procs as the library got them.
            call: The call, which ends in the session's queue from now on.
            outcome: Called with the operation and the ended call, which it frees; returns the result or raises.
        """
        request = Request((type(op), frozenset(named)), op)
        with self._lock:
            self.given_up.setdefault(request.key, []).append(request)
        self._connection.background.leave(op, partial(self._handle_answer, request), outcome, call)
        self._ask_withdrawal(request)

    def withdraw(self, caller: Done[Any]) -> None:
        """Give up a caller's call, whose `done` is not called then."""
        self._give_up(lambda request: request.caller == caller)

    def give_up(self, op: Any) -> None:
        """Give up the call of an operation, whose `done` is not called then."""
        self._give_up(lambda request: request.op is op)

    def error(self, request: Request, continues: bool) -> PMIxError:
        """Return the error of a call that has reached its limit."""
        op = request.op
        hint = _CONTINUES if continues else ""
        return self._connection.failed(
            op.name, statuses.ERR_TIMEOUT, "not all procs took part in time", getattr(op, "procs", ()), hint
        )

    def _give_up(self, condition: Callable[[Request], bool]) -> None:
        with self._lock:
            requests = [request for request in self._waiting if condition(request)]
            for request in requests:
                self._abandon(request)
        for request in requests:
            self._ask_withdrawal(request)

    def _expire(self, request: Request, done: Done[Any]) -> None:
        with self._lock:
            if request.done is not done:
                return
            continues = request.begin is not None
            self._abandon(request)
        # The thread that polls reports the ends of operations, and checks whether the server is lost.
        self._connection.background.tell(lambda _: done(None, self.error(request, continues)), None)
        self._ask_withdrawal(request)

    def _abandon(self, request: Request) -> None:
        self._waiting.discard(request)
        self._silence(request)
        self.given_up.setdefault(request.key, []).append(request)

    def _silence(self, request: Request) -> None:
        request.done = request.caller = request.begin = None
        if request.alarm is not None:
            request.alarm.cancel()
            request.alarm = None

    def _take_given_up(self, key: Key) -> Request | None:
        requests = self.given_up.get(key)
        if requests is None:
            return None
        request = requests.pop(0)
        if not requests:
            del self.given_up[key]
        return request

    def _handle_answer(self, request: Request, result: Any, error: BaseException | None) -> None:
        repeat: Begin | None = None
        with self._lock:
            done = request.done
            if done is None:
                requests = self.given_up.get(request.key, [])
                if request not in requests:
                    return
                if error is None and sum(map(len, self.given_up.values())) <= MAX_ANSWERS:
                    request.answer = result, None
                else:
                    requests.remove(request)
                    if not requests:
                        del self.given_up[request.key]
                return
            if getattr(error, "code", 0) == statuses.ERR_TIMEOUT:
                # This was the limit of the earlier call, or its withdrawal.
                repeat, request.begin = request.begin, None
            if repeat is None:
                self._waiting.discard(request)
                self._silence(request)
        if repeat is None:
            done(result, error)
            return
        try:
            repeat(partial(self._handle_answer, request))
        except Exception as problem:
            self._handle_answer(request, None, problem)

    def _ask_withdrawal(self, request: Request) -> None:
        self.ask_withdrawal(request.op, request.key[1])

    def ask_withdrawal(self, op: Any, named: Iterable[Proc]) -> None:
        """Ask a server of the Python engine to withdraw the caller; the server answers the request.

        Args:
            op: The operation.
            named: The procs as the library got them.
        """
        if self._identifies_callers and self._connection.open:
            kind, participants = text(WITHDRAWAL_KIND, op.name), procs(WITHDRAWAL_PROCS, sorted(named))
            fresh = flag(keys.QUERY_REFRESH_CACHE)
            self._connection.start(QueryInfo((Query((WITHDRAWAL,), (fresh, kind, participants)),)), ignore)
