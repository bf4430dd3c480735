"""Operations as rows of a table: what all topics share whose operations are questions with one answer.

A row says how an operation's arguments become C structures, and how what the library answered becomes its result. The
rest is the same for all: both ways to ask, the wait, the errors, and whose memory is whose.
"""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.quirks import check_types, deadline
from pypmix.engine.native.structs import string
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.native.session import NativeSession


def _nothing(topic: Any, call: Any) -> None:
    """The result of an operation that only ends."""


def found(topic: Asking, call: Any) -> tuple[Any, ...]:
    """Return the results of an operation that has several things to tell."""
    return topic.marshal.results(call.results)


def text_of(topic: Any, call: Any) -> str | None:
    """Return the string that an operation had to tell."""
    return string(call.value.data.string) if call.value else None


def no_arguments(topic: Asking, op: Any, given: Any) -> None:
    """Give what an operation has beside its directives: nothing."""


class Row(Record):
    """One operation.

    Attributes:
        what: What the shim calls it.
        give: Puts the operation's arguments, all but the directives, into a `pypmix_given`.
        take: Returns the result of a call that has succeeded.
        failures: What a status means here, in words; `{}` in them stands for what `about` returns.
        about: Returns what the operation is about, for its errors.
        partial: Whether a partial success that brought something is a success.
        alone: Whether the library may answer it for a singleton, which has no server.
    """

    what: int
    give: Callable[[Any, Any, Any], None] = no_arguments
    take: Callable[[Any, Any], Any] = _nothing
    failures: Mapping[int, str] = {}
    about: Callable[[Any], str] = str
    partial: bool = False
    alone: bool = False


class Asking:
    """A topic whose operations are the rows of a table, for one session."""

    rows: Mapping[type, Row]

    def __init__(self, session: NativeSession) -> None:
        self.session = session
        self.marshal = session._marshal

    def run(self, op: Any) -> Any:
        """Carry out an operation, wait for its end, and return its result."""
        row = self._row(op)
        given, limit = self._given(row, op)
        session = self.session
        try:
            call = session._call()
        except MemoryError:
            lib.pypmix_given_free(given)
            raise
        lib.pypmix_ask(call, session._queue, self.what(op, row), given, limit)
        session._waited(call, limit)
        return self._outcome(op, call)

    def submit(self, op: Any, done: Done[Any]) -> None:
        """Start an operation, whose end `done` hears of."""
        row = self._row(op)
        given, limit = self._given(row, op)
        what = self.what(op, row)

        def begin(queue: Any, token: int) -> int:
            return int(lib.pypmix_ask_submit(queue, token, what, given))

        self.session._behind().start(op, done, begin, self._outcome, limit)

    def what(self, op: Any, row: Row) -> int:
        """Return what the shim calls an operation."""
        return row.what

    def directives(self, op: Any) -> tuple[Any, ...]:
        """Return the infos that go with an operation."""
        return getattr(op, "directives", ())

    def limit(self, op: Any) -> float:
        """Return the seconds after which the engine ends an operation itself; -1 for never."""
        return deadline(getattr(op, "directives", ()))

    def fault(self, op: Any, call: Any) -> int:
        """Return the status with which an operation has failed, 0 if it has not."""
        return int(call.status)

    def _row(self, op: Any) -> Row:
        row = self.rows.get(type(op))
        if row is None:
            raise self.session._not_offered(op)
        if self.session.singleton and not row.alone:
            raise self.session._alone_error(op.name, _procs(op))
        return row

    def _given(self, row: Row, op: Any) -> tuple[Any, float]:
        """Return an operation's arguments in memory that the call takes over, and the seconds it may last."""
        given = ffi.new("pypmix_given *")
        try:
            directives = self.directives(op)
            check_types(directives)
            given.infos, given.ninfos = self.marshal.infos(directives)
            row.give(self, op, given)
        except PMIxError as error:
            lib.pypmix_given_free(given)
            raise self.session._with_context(error, op.name) from None
        except BaseException:
            lib.pypmix_given_free(given)
            raise
        return given, self.limit(op)

    def _outcome(self, op: Any, call: Any) -> Any:
        """Return the result of an operation that has ended, or raise its error."""
        session, row = self.session, self.rows[type(op)]
        try:
            status = self.fault(op, call)
            if status and not (row.partial and status == statuses.ERR_PARTIAL_SUCCESS):
                raise self.error(op, status)
            try:
                result = row.take(self, call)
            except PMIxError as error:
                raise session._with_context(error, op.name) from None
            if status and not result:
                raise self.error(op, status)
            return result
        finally:
            lib.pypmix_call_free(call)

    def error(self, op: Any, status: int) -> PMIxError:
        """Return the error of an operation that has failed."""
        session, row = self.session, self.rows[type(op)]
        if session.singleton and status == statuses.ERR_UNREACH:
            return session._alone_error(op.name, _procs(op))
        detail = row.failures.get(status, "")
        return session._error(op.name, status, detail.format(row.about(op)) if detail else "", _procs(op))


def _procs(op: Any) -> tuple[Any, ...]:
    return getattr(op, "procs", ()) or getattr(op, "targets", ())
