"""Publish, lookup and unpublish as calls of the library."""

from __future__ import annotations

from pypmix.engine.native._ffi import lib
from pypmix.engine.native.quirks import deadline
from pypmix.standard import codes
from pypmix.standard.errors import ERR_NOT_FOUND, ERR_PARTIAL_SUCCESS, ERR_TIMEOUT, PMIxError
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.types import Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.native.session import NativeSession

CALLS: dict[type, tuple[Any, Any]] = {
    Publish: (lib.pypmix_publish, lib.pypmix_publish_submit),
    Lookup: (lib.pypmix_lookup, lib.pypmix_lookup_submit),
    Unpublish: (lib.pypmix_unpublish, lib.pypmix_unpublish_submit),
}
"""The form of each operation that waits, and the one that does not."""

_FAILURES = {
    -53: "a key is published to this range already",
    -23: "only who published a key may take it back",
    ERR_NOT_FOUND: "the caller has published none of these keys",
}


class Publishing:
    """These operations of one session."""

    def __init__(self, session: NativeSession) -> None:
        self._session = session

    def run(self, op: Any) -> Any:
        """Carry out an operation, wait for its end, and return its result."""
        session = self._session
        if session.singleton:
            raise session._alone_error(op.name, ())
        arguments, limit = self.arguments(op)
        call = session._call()
        CALLS[type(op)][0](call, session._queue, *arguments, limit)
        session._waited(call, limit)
        return self.outcome(op, call)

    def arguments(self, op: Any) -> tuple[tuple[Any, Any, int], float]:
        """Return keys, infos and their number in memory that the call takes over, and the seconds it may last."""
        marshal = self._session._marshal
        given = op.directives
        if type(op) is Publish:
            terms = Value(codes.DATA_RANGE, op.range), Value(codes.PERSIST, op.persistence)
            given = (*op.infos, Info("pmix.range", terms[0]), Info("pmix.persist", terms[1]), *given)
        try:
            infos, count = marshal.infos(given)
        except PMIxError as error:
            raise self._session._with_context(error, op.name) from None
        try:
            keys = marshal.keys(() if type(op) is Publish else op.keys)
        except BaseException:
            lib.pypmix_infos_free(infos, count)
            raise
        return (keys, infos, count), deadline(op.directives)

    def outcome(self, op: Any, call: Any) -> Any:
        """Return the result of an operation that has ended, or raise its error."""
        session = self._session
        status = call.status
        try:
            if type(op) is not Lookup:
                if status:
                    raise session._error(op.name, status, _FAILURES.get(status, ""))
                return None
            names = ", ".join(map(repr, op.keys))
            if status not in (0, ERR_PARTIAL_SUCCESS):
                raise session._error(op.name, status, _LOOKUP_FAILURES.get(status, "").format(names))
            try:
                found = session._marshal.published(call.data, call.ndata)
            except PMIxError as error:
                raise session._with_context(error, op.name) from None
            if not found and status:
                detail = "some of the keys are there, but their values did not come with the answer"
                raise session._error(op.name, status, detail)
            if not found:
                raise session._error(op.name, ERR_NOT_FOUND, _LOOKUP_FAILURES[ERR_NOT_FOUND].format(names))
            return found
        finally:
            lib.pypmix_call_free(call)


_LOOKUP_FAILURES = {
    ERR_NOT_FOUND: "nobody has published {} where this proc may look it up",
    ERR_TIMEOUT: "{} was not published in time",
}
