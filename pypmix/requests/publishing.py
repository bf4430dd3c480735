"""The arguments and results of publish, lookup and unpublish."""

from __future__ import annotations

from pypmix.published import Published, PublishedData
from pypmix.requests import seconds
from pypmix.standard import codes
from pypmix.standard.errors import NotFound, OperationTimeout, PartialSuccess, PMIxError
from pypmix.standard.keys import RANGE, TIMEOUT, WAIT
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.types import Info, Pdata, Value
from pypmix.standard.values import infos, to_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pypmix.requests import Infos


def publish_op(
    values: Mapping[Any, object] | Iterable[Info], range: int, persist: int, timeout: float | None, info: Infos
) -> Publish:
    directives = infos(info)
    if timeout is not None:
        directives += (seconds(timeout),)
    return Publish(infos(values), int(range), int(persist), directives)


def lookup_op(
    keys: Iterable[str], wait: float | bool | None, count: int | None, range: int | None, info: Infos
) -> Lookup:
    if isinstance(keys, str):
        raise TypeError(f"keys are a collection of strings, not the string {keys!r}: lookup() takes a single key")
    names = tuple(keys)
    directives = infos(info)
    if count is not None:
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"a count is an int, not {type(count).__name__}")
        if not 0 < count <= len(names):
            raise ValueError(f"of {len(names)} keys, {count} cannot be waited for")
        if wait is None or wait is False:
            raise ValueError("a count says how many keys to wait for, so it needs timeout=SECONDS or wait=True")
    if wait is not None and wait is not False and wait != 0:
        directives += (Info(WAIT, Value.unchecked(codes.INT, count or 0)),)
        if wait is not True:
            directives += (seconds(wait),)
    if range is not None:
        directives += (Info(RANGE, Value(codes.DATA_RANGE, int(range))),)
    return Lookup(names, directives)


def unpublish_op(keys: tuple[str, ...], range: int | None, info: Infos) -> Unpublish:
    directives = infos(info)
    if range is not None:
        directives += (Info(RANGE, Value(codes.DATA_RANGE, int(range))),)
    return Unpublish(keys, directives)


def retries(op: Lookup, error: PMIxError) -> list[Lookup]:
    """Return the lookups that tell what a failed one of several keys would have found; none if it is a failure indeed.

    Some servers and libraries keep the data of a partial success to themselves, and some ignore a timeout, so
    that it is the engine which gives up waiting.
    """
    if len(op.keys) == 1 or not isinstance(error, PartialSuccess | OperationTimeout):
        return []
    directives = tuple([item for item in op.directives if item.key not in (WAIT, TIMEOUT)])
    return [Lookup((key,), directives) for key in op.keys]


def looked_up_one(op: Lookup, found: Iterable[Pdata]) -> Any:
    """Return the value of the one key; `NotFound` where the host's answer does not have it."""
    (key,) = op.keys
    published = looked_up(op, found)
    if key not in published:
        raise NotFound(f"the host's answer does not have {key!r}", operation=op.name)
    return published[key].value


def looked_up(op: Lookup, found: Iterable[Pdata]) -> PublishedData:
    values = {item.key: Published(to_python(item.value), item.proc) for item in found}
    return PublishedData({key: values[key] for key in op.keys if key in values}, op.keys)
