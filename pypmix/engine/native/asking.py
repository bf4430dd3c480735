"""Operations as rows of a table: the common base of topics whose operations are requests with one answer.

A row converts an operation's arguments to C structures, and the library's answer to its result. The rest is the same
for all rows: blocking and submitted calls, the wait, the errors, and the ownership of memory.

Theory of operation. `steps` is an operation as a generator: it yields each call of the library, is sent the ended call
(which it frees), and returns the result. `run` drives it on the caller's thread and waits in C for each call; `submit`
drives it from one completion to the next, on the thread that completes operations.
"""

from __future__ import annotations

from pypmix.engine.faults import fault
from pypmix.engine.native._ffi import lib
from pypmix.engine.native.connection import arguments
from pypmix.engine.native.quirks import check_types, deadline
from pypmix.engine.native.structs import string
from pypmix.standard import statuses
from pypmix.standard.errors import PARTIAL_SUCCESSES, PMIxError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.native.connection import Connection

    Ask = tuple[int, Any, float]
    """The shim's name of an operation, its arguments, and the seconds that it may last."""

    Steps = Generator[Ask, Any, Any]


def _nothing(topic: Any, call: Any) -> None:
    """Return None: the operation has no result."""


def read_results(topic: Asking, call: Any) -> tuple[Any, ...]:
    """Return the results of an operation whose answer has several elements."""
    return topic.marshal.results(call.results)


def text_of(topic: Any, call: Any) -> str | None:
    """Return the string in the answer to an operation; None if the answer has no value."""
    return string(call.value.data.string) if call.value else None


def no_arguments(topic: Asking, op: Any, parameters: Any) -> None:
    """Do nothing: the operation has only directives."""


def items(kind: int, field: str) -> Callable[[Asking, Any, Any], None]:
    """Return a function that fills in a field of an operation, as elements of a type."""
    return lambda topic, op, parameters: topic.marshal.fill(parameters.items, kind, getattr(op, field))


class Row(Record):
    """One operation.

    Attributes:
        what: The shim's number of the operation.
        give: Puts the operation's arguments, all but the directives, into a `pypmix_given`.
        take: Returns the result of a call that has succeeded.
        failures: The error text of each status; `{}` is replaced by the result of `about`.
        about: Returns the subject of the operation, for its errors.
        partial: True if a partial success with a result is a success.
        alone: True if the library may answer the operation for a singleton, which has no server.
        collective: True if the operation ends when all of its participants called it, or are lost.
    """

    what: int
    give: Callable[[Any, Any, Any], None] = no_arguments
    take: Callable[[Any, Any], Any] = _nothing
    failures: Mapping[int, str] = {}
    about: Callable[[Any], str] = str
    partial: bool = False
    alone: bool = False
    collective: bool = False


class Asking:
    """A topic whose operations are the rows of a table, for one session."""

    rows: Mapping[type, Row]

    def __init__(self, session: Connection) -> None:
        self.session = session
        self.marshal = session.marshal

    def run(self, op: Any) -> Any:
        """Carry out an operation, wait for its end, and return its result."""
        steps = self.steps(op)
        try:
            ask = next(steps)
            while True:
                try:
                    call = self.session.ask(*ask)
                except BaseException as error:
                    ask = steps.throw(error)
                else:
                    ask = steps.send(call)
        except StopIteration as end:
            return end.value
        except PMIxError as error:
            if not error.operation:
                self.session.named(error, op.name)
            raise

    def submit(self, op: Any, done: Done[Any]) -> None:
        """Start an operation; `done` is called with its end."""
        self.drive(op, self.steps(op), done)

    def drive(self, op: Any, steps: Steps, done: Done[Any], call: Any = None) -> None:
        """Drive steps from one completion to the next; `done` is called with their end."""
        result: Any = None
        problem: BaseException | None = None
        try:
            what, parameters, limit = steps.send(call)
        except StopIteration as end:
            result = end.value
        except PMIxError as error:
            problem = error if error.operation else self.session.named(error, op.name)
        except Exception as error:
            # An error before the first call is a mistake in the arguments.
            problem = error if call is None else fault(f"the answer to {op.name}", error)
        else:

            def begin(queue: Any, token: int) -> int:
                return int(lib.pypmix_ask_submit(queue, token, what, parameters))

            def continue_steps(call: Any, error: BaseException | None) -> None:
                if error is None:
                    self.drive(op, steps, done, call)
                else:
                    steps.close()
                    done(None, error)

            self.session.background.start(op, continue_steps, begin, _itself, limit)
            return
        done(result, problem)

    def steps(self, op: Any) -> Steps:
        """Yield the library calls of an operation, and return its result; the generator is sent each ended call."""
        row, limit = self.row(op), self.limit(op)
        call = yield self.what(op, row), self.encode_arguments(row, op), limit
        try:
            return self.outcome(op, call)
        finally:
            lib.pypmix_call_free(call)

    def what(self, op: Any, row: Row) -> int:
        """Return the shim's number of an operation."""
        return row.what

    def directives(self, op: Any) -> tuple[Any, ...]:
        """Return the infos of an operation."""
        return getattr(op, "directives", ())

    def limit(self, op: Any) -> float:
        """Return the seconds after which the engine ends an operation itself; -1 for never."""
        return deadline(getattr(op, "directives", ()))

    def fault(self, op: Any, call: Any) -> int:
        """Return the status with which an operation has failed; 0 if it succeeded."""
        return int(call.status)

    def row(self, op: Any) -> Row:
        """Return the row of an operation.

        Raises:
            NotSupported: The session does not have the operation.
            Unreachable: This process is a singleton, and the operation needs a server.
        """
        row = self.rows.get(type(op))
        if row is None:
            raise self.session.not_offered(op)
        if self.session.singleton and not row.alone:
            raise self.session.alone(op.name, _procs(op))
        return row

    def encode_arguments(self, row: Row, op: Any) -> Any:
        """Return the arguments of an operation; the call owns their memory."""

        def fill(parameters: Any) -> None:
            directives = self.directives(op)
            check_types(directives)
            parameters.infos, parameters.ninfos = self.marshal.infos(directives)
            row.give(self, op, parameters)

        return arguments(fill)

    def outcome(self, op: Any, call: Any) -> Any:
        """Return the result of an operation that has ended, or raise its error."""
        row = self.rows[type(op)]
        status = self.fault(op, call)
        if status and not (row.partial and status in PARTIAL_SUCCESSES):
            raise self.error(op, status)
        result = row.take(self, call)
        if status and not result:
            raise self.error(op, status)
        return result

    def error(self, op: Any, status: int) -> PMIxError:
        """Return the error of an operation that has failed."""
        session, row = self.session, self.rows[type(op)]
        if session.singleton and status == statuses.ERR_UNREACH:
            return session.alone(op.name, _procs(op))
        detail = row.failures.get(status, "")
        detail = detail.format(row.about(op)) if detail else ""
        return session.failed(op.name, status, detail, _procs(op), collective=row.collective)


def _itself(_op: object, call: Any) -> Any:
    return call


def _procs(op: Any) -> tuple[Any, ...]:
    return getattr(op, "procs", ()) or getattr(op, "targets", ())
