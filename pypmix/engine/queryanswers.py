"""The answers of servers to queries, in the form that both engines return."""

from __future__ import annotations

from pypmix.standard import codes, keys
from pypmix.standard.types import DataArray, Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


NAMES = frozenset({keys.QUERY_GROUP_NAMES})
"""Arrays of names, which releases from 5.0 on send as one string, joined by commas."""

OPEN = Value.unchecked(codes.UNDEF, None)
"""The value of a key that only the server can answer."""


def completed(answers: Iterable[Info], more: Iterable[Info]) -> tuple[Info, ...]:
    """Return the answers in the order of the queries, with the server's answers in their places."""
    found: dict[str, list[Value]] = {}
    for info in _flat(more):
        if info.value.type != codes.UNDEF:
            value = _listed(info.value) if info.key in NAMES else _evened(info.value)
            found.setdefault(info.key, []).append(value)
    result = []
    for key, value, _ in answers:
        theirs = found.get(key, [])
        if key == keys.QUERY_ATTRIBUTE_SUPPORT:
            # The client and the server each list their attributes.
            items = [item for part in (value, *theirs) for item in _infos(part)]
            value = Value.unchecked(codes.DATA_ARRAY, DataArray(codes.INFO, tuple(items))) if items else OPEN
            theirs.clear()
        elif value is OPEN and theirs:
            value = theirs.pop(0)
        if value is not OPEN:
            result.append(Info.unchecked(key, value, 0))
    return tuple(result)


def _flat(infos: Iterable[Info]) -> list[Info]:
    """Return the answers without the arrays with which some servers group them."""
    found: list[Info] = []
    for info in infos:
        found += _infos(info.value) if info.key == keys.QUERY_RESULTS else [info]
    return found


def _infos(value: Value) -> tuple[Info, ...]:
    data = value.data
    return data.items if isinstance(data, DataArray) and data.type == codes.INFO else ()


def _evened(value: Value) -> Value:
    """Return a table as an array of its entries: some servers wrap each entry in an info without a key."""
    items = _infos(value)
    if not items or any(item.key for item in items) or len({item.value.type for item in items}) != 1:
        return value
    entries = tuple([item.value.data for item in items])
    return Value.unchecked(codes.DATA_ARRAY, DataArray(items[0].value.type, entries))


def _listed(value: Value) -> Value:
    if value.type != codes.STRING:
        return _evened(value)
    names = tuple([name for name in (value.data or "").split(",") if name])
    return Value.unchecked(codes.DATA_ARRAY, DataArray(codes.STRING, names))
