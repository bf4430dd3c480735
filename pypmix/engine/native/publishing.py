"""Publish, lookup and unpublish as calls of the library."""

from __future__ import annotations

from pypmix.engine.native._ffi import lib
from pypmix.engine.native.asking import Asking, Row, found
from pypmix.standard import codes, keys, statuses
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.types import Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_FAILURES = {
    statuses.ERR_DUPLICATE_KEY: "a key is published to this range already",
    statuses.ERR_NO_PERMISSIONS: "only who published a key may take it back",
    statuses.ERR_NOT_FOUND: "the caller has published none of these keys",
}


def _keys(topic: Asking, op: Any, given: Any) -> None:
    topic.marshal.fill(given.items, codes.STRING, op.keys)


def _named(op: Lookup) -> str:
    return ", ".join(map(repr, op.keys))


class Topic(Asking):
    """These operations of one session."""

    rows: Mapping[type, Row] = {
        Publish: Row(lib.PYPMIX_PUBLISH, failures=_FAILURES),
        Lookup: Row(
            lib.PYPMIX_LOOKUP,
            _keys,
            found,
            {
                statuses.ERR_NOT_FOUND: "nobody has published {} where this proc may look it up",
                statuses.ERR_TIMEOUT: "{} was not published in time",
                statuses.ERR_PARTIAL_SUCCESS: (
                    "some of the keys are there, but their values did not come with the answer"
                ),
            },
            _named,
            partial=True,
        ),
        Unpublish: Row(lib.PYPMIX_UNPUBLISH, _keys, failures=_FAILURES),
    }

    def directives(self, op: Any) -> tuple[Info, ...]:
        given: tuple[Info, ...] = op.directives
        if type(op) is not Publish:
            return given
        terms = Value(codes.DATA_RANGE, op.range), Value(codes.PERSIST, op.persistence)
        return (*op.infos, Info(keys.RANGE, terms[0]), Info(keys.PERSISTENCE, terms[1]), *given)

    def _outcome(self, op: Any, call: Any) -> Any:
        result = super()._outcome(op, call)
        if type(op) is Lookup and not result:
            raise self.error(op, statuses.ERR_NOT_FOUND)
        return result
