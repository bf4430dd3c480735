"""The differences of two recordings of one scenario, without the parts that vary from run to run (`Normal`)."""

from __future__ import annotations

from difflib import SequenceMatcher

from pypmix.standard import codes, keys
from pypmix.standard.asjson import fields
from pypmix.standard.ops import (
    ClientConnected,
    Connect,
    DeregisterEvents,
    Disconnect,
    FenceUpcall,
    GroupUpcall,
    Log,
    RegisterEvents,
    ToolConnected,
)
from pypmix.standard.record import Record
from pypmix.standard.types import DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from pypmix.recording.record import Entry, Recording
    from pypmix.standard.ops import Op


COLLECTIVES = (FenceUpcall, GroupUpcall, Connect, Disconnect, RegisterEvents, DeregisterEvents)
"""Operations that a server requests for several clients: collectives, and registrations for their first or last client.

Any of the clients may be the requestor.
"""

VOLATILE = frozenset(
    {
        keys.PROC_PID,
        keys.LOG_TIMESTAMP,
        keys.SERVER_TMPDIR,
        keys.SERVER_URI,
        keys.TIME_REMAINING,
    }
)
"""Keys whose values vary from run to run: only their types are compared."""

_FIELDS: dict[type, dict[str, object]] = {
    ClientConnected: {"pid": None, "release": ""},
    ToolConnected: {"pid": None, "release": ""},
    Log: {"timestamp": 0},
}


class Normal:
    """Replaces the parts of operations that vary from run to run.

    Args:
        names: Nspaces and their replacements; a name that ends with `*` is a prefix.
        volatile: Keys whose values are removed.
    """

    def __init__(self, names: Mapping[str, str] | None = None, volatile: frozenset[str] = VOLATILE) -> None:
        self._names = {name: other for name, other in (names or {}).items() if not name.endswith("*")}
        self._prefixes = {name[:-1]: other for name, other in (names or {}).items() if name.endswith("*")}
        self._volatile = volatile

    def __call__(self, op: Op[object]) -> Op[object]:
        """Return the operation without its varying parts."""
        found = op.replace(**{name: self.part(getattr(op, name)) for name in fields(op)})
        if isinstance(found, FenceUpcall):
            # Servers may pack the committed data in any order.
            return found.replace(data=b"data" if found.data else b"")
        return found.replace(**_FIELDS.get(type(op), {}))

    def part(self, data: Any) -> Any:
        """Return a part of an operation without its varying parts."""
        if isinstance(data, Info):
            value = self._blank(data.value) if data.key in self._volatile else self.part(data.value)
            return Info.unchecked(data.key, value, data.flags)
        if isinstance(data, Value):
            if data.type == codes.PROC_NSPACE and isinstance(data.data, str):
                return Value.unchecked(data.type, self._rename(data.data))
            return Value.unchecked(data.type, self.part(data.data))
        if isinstance(data, Proc):
            return Proc.unchecked(self._rename(data.nspace), data.rank)
        if isinstance(data, tuple):
            return tuple([self.part(item) for item in data])
        if isinstance(data, DataArray):
            return DataArray(data.type, self.part(data.items))
        if isinstance(data, Record):
            return data.replace(**{name: self.part(getattr(data, name)) for name in fields(data)})
        return data

    def _rename(self, nspace: str) -> str:
        if nspace in self._names:
            return self._names[nspace]
        return next((other for prefix, other in self._prefixes.items() if nspace.startswith(prefix)), nspace)

    @staticmethod
    def _blank(value: Value) -> Value:
        return Value.unchecked(value.type, None)


UPCALL = "upcall"
ORDER = "order"
REQUESTOR = "requestor"

WATCHES = (RegisterEvents, DeregisterEvents)


class Difference(Record):
    """A difference of two recordings.

    Attributes:
        op: The name of the operation.
        where: The kind of difference: `upcall` if only one recording has the upcall, `order` if it is elsewhere among
            the requests of its client, `requestor`, a field, or a field and the key of an info in it
            (`directives pmix.timeout`).
        first: The text for the first recording; empty if it has no such upcall or info.
        second: The text for the second recording.
    """

    op: str
    where: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.op}, {self.where}: {self.first or 'nothing'} | {self.second or 'nothing'}"


def compare(first: Recording, second: Recording, normal: Normal | None = None) -> tuple[Difference, ...]:
    """Return the differences of the upcalls of two recordings, in content and order.

    The upcalls of one client are compared in their order. The upcalls of different clients are concurrent, so that
    their order does not matter. Collectives are compared in their order, like the upcalls of one further client.

    Args:
        first: A recording.
        second: Another recording of the same scenario.
        normal: Removes the parts that vary from run to run.
    """
    normal = normal or Normal()
    ours, theirs = _by_client(first.entries, normal), _by_client(second.entries, normal)
    found: list[Difference] = []
    only_first: list[_Request] = []
    only_second: list[_Request] = []
    for client in dict.fromkeys([*ours, *theirs]):
        unmatched = _Unmatched()
        found += _compare_client(ours.get(client, []), theirs.get(client, []), unmatched)
        only_first += unmatched.first
        only_second += unmatched.second
    # It is the same upcall if one server names a requestor and the other does not.
    for one in only_first:
        other = next((other for other in only_second if (other.op, other.server) == (one.op, one.server)), None)
        if other is None:
            found.append(Difference(one.op.name, UPCALL, _short(one.op), ""))
        else:
            only_second.remove(other)
            found.append(Difference(one.op.name, REQUESTOR, one.requestor, other.requestor))
    found += [Difference(other.op.name, UPCALL, "", _short(other.op)) for other in only_second]
    return tuple(found)


class _Request:
    """An upcall without the parts that vary from run to run."""

    __slots__ = ("op", "requestor", "server")

    def __init__(self, op: Op[object], requestor: str, server: str) -> None:
        self.op = op
        self.requestor = requestor
        self.server = server

    @property
    def name(self) -> tuple[object, ...]:
        """The operation with its group or event codes: requests of equal names in two recordings correspond."""
        op = self.op
        if isinstance(op, GroupUpcall):
            return op.name, op.group, op.operation
        return (op.name, op.codes) if isinstance(op, WATCHES) else (op.name,)


class _Unmatched:
    """The requests of a client that only one of two recordings has."""

    __slots__ = ("first", "second")

    def __init__(self) -> None:
        self.first: list[_Request] = []
        self.second: list[_Request] = []


def _by_client(entries: Iterable[Entry], normal: Normal) -> dict[tuple[str, object], list[_Request]]:
    found: dict[tuple[str, object], list[_Request]] = {}
    for entry in entries:
        together = isinstance(entry.op, COLLECTIVES)
        client = None if together else normal.part(entry.requestor)
        # The requestor of a collective depends on which client called last; only its presence is compared.
        requestor = ("a participant" if together else str(client)) if entry.requestor else ""
        found.setdefault((entry.server, client), []).append(_Request(normal(entry.op), requestor, entry.server))
    return found


def _compare_client(first: list[_Request], second: list[_Request], unmatched: _Unmatched) -> Iterator[Difference]:
    """Yield the differences of one client's requests; add requests without a counterpart to `unmatched`."""
    names = [request.name for request in first], [request.name for request in second]
    for kind, a, b, c, d in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if kind == "equal":
            for one, other in zip(first[a:b], second[c:d], strict=True):
                yield from _compare_contents(one, other)
        else:
            unmatched.first += first[a:b]
            unmatched.second += second[c:d]
    for one in list(unmatched.first):
        # Clients register concurrently, so that the order of their registrations does not matter.
        watched = isinstance(one.op, WATCHES)
        same = next((other for other in unmatched.second if watched and other.name == one.name), None)
        if same is not None:
            unmatched.first.remove(one)
            unmatched.second.remove(same)
            yield from _compare_contents(one, same)
    for one in list(unmatched.first):
        moved = next((other for other in unmatched.second if other.name == one.name), None)
        if moved is not None:
            unmatched.first.remove(one)
            unmatched.second.remove(moved)
            yield Difference(one.op.name, ORDER, _short(one.op), _short(moved.op))
            yield from _compare_contents(one, moved)


def _compare_contents(first: _Request, second: _Request) -> Iterator[Difference]:
    name = first.op.name
    if first.requestor != second.requestor:
        yield Difference(name, REQUESTOR, first.requestor, second.requestor)
    if type(first.op) is not type(second.op):
        yield Difference(name, UPCALL, _short(first.op), _short(second.op))
        return
    for field in fields(first.op):
        one, other = getattr(first.op, field), getattr(second.op, field)
        if one == other:
            continue
        if _infos(one) and _infos(other):
            yield from _by_key(name, field, one, other)
        else:
            yield Difference(name, field, _short(one), _short(other))


def _by_key(name: str, field: str, first: tuple[Info, ...], second: tuple[Info, ...]) -> Iterator[Difference]:
    equal = True
    for key in dict.fromkeys([info.key for info in (*first, *second)]):
        one, other = [tuple([info for info in infos if info.key == key]) for infos in (first, second)]
        if one != other:
            equal = False
            yield Difference(name, f"{field} {key}", _values(one), _values(other))
    if equal:
        keys = [", ".join([info.key for info in infos]) for infos in (first, second)]
        yield Difference(name, f"{field}, {ORDER}", *keys)


def _infos(data: Any) -> bool:
    return isinstance(data, tuple) and all(isinstance(item, Info) for item in data)


def _values(infos: tuple[Info, ...]) -> str:
    return ", ".join([_short(info.value) + (f" flags {info.flags:#x}" if info.flags else "") for info in infos])


def _short(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 200 else text[:200] + "..."
