"""Where two recordings of one scenario differ."""

from __future__ import annotations

from difflib import SequenceMatcher

from pypmix.host.recording.normal import COLLECTIVES, Normal
from pypmix.standard.asjson import fields
from pypmix.standard.ops import DeregisterEvents, GroupUpcall, RegisterEvents
from pypmix.standard.record import Record
from pypmix.standard.types import Info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from pypmix.host.recording.read import Entry, Recording
    from pypmix.standard.ops import Op

UPCALL = "upcall"
ORDER = "order"
REQUESTOR = "requestor"

WATCHES = (RegisterEvents, DeregisterEvents)


class Difference(Record):
    """Something that two recordings do not have in common.

    Attributes:
        op: The name of the operation.
        where: What of it: `upcall` where only one has it, `order` where it stands elsewhere in what one client asks,
            `requestor`, a field, or a field and the key of an info in it (`directives pmix.timeout`).
        first: What the first recording has, for a person; empty where it has nothing.
        second: What the second one has.
    """

    op: str
    where: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.op}, {self.where}: {self.first or 'nothing'} | {self.second or 'nothing'}"


def compare(first: Recording, second: Recording, normal: Normal | None = None) -> tuple[Difference, ...]:
    """Return how the upcalls of two recordings differ, in content and order.

    Upcalls of one client are compared in their order. Those of different clients are concurrent, so that their order
    means nothing; what several clients ask together counts as asked by a further one.

    Args:
        first: A recording.
        second: One of the same scenario.
        normal: What differs from run to run, and is not looked at.
    """
    normal = normal or Normal()
    ours, theirs = _by_client(first.entries, normal), _by_client(second.entries, normal)
    found: list[Difference] = []
    only_first: list[_Asked] = []
    only_second: list[_Asked] = []
    for client in dict.fromkeys([*ours, *theirs]):
        left = _Left()
        found += _sequences(ours.get(client, []), theirs.get(client, []), left)
        only_first += left.first
        only_second += left.second
    # One server may name a requestor where the other names none: it is the same upcall.
    for one in only_first:
        other = next((other for other in only_second if (other.op, other.server) == (one.op, one.server)), None)
        if other is None:
            found.append(Difference(one.op.name, UPCALL, _short(one.op), ""))
        else:
            only_second.remove(other)
            found.append(Difference(one.op.name, REQUESTOR, one.requestor, other.requestor))
    found += [Difference(other.op.name, UPCALL, "", _short(other.op)) for other in only_second]
    return tuple(found)


class _Asked:
    __slots__ = ("op", "requestor", "server")

    def __init__(self, op: Op[object], requestor: str, server: str) -> None:
        self.op = op
        self.requestor = requestor
        self.server = server

    @property
    def name(self) -> tuple[object, ...]:
        """The operation, and what tells it from others of its kind: equal names in two recordings belong together."""
        op = self.op
        if isinstance(op, GroupUpcall):
            return op.name, op.group, op.operation
        return (op.name, op.codes) if isinstance(op, WATCHES) else (op.name,)


class _Left:
    """The upcalls of a client that only one of two recordings has."""

    __slots__ = ("first", "second")

    def __init__(self) -> None:
        self.first: list[_Asked] = []
        self.second: list[_Asked] = []


def _by_client(entries: Iterable[Entry], normal: Normal) -> dict[tuple[str, object], list[_Asked]]:
    found: dict[tuple[str, object], list[_Asked]] = {}
    for entry in entries:
        together = isinstance(entry.op, COLLECTIVES)
        client = None if together else normal.part(entry.requestor)
        # Which of several clients it is depends on who came last; whether there is one does not.
        requestor = ("one of them" if together else str(client)) if entry.requestor else ""
        found.setdefault((entry.server, client), []).append(_Asked(normal(entry.op), requestor, entry.server))
    return found


def _sequences(first: list[_Asked], second: list[_Asked], left: _Left) -> Iterator[Difference]:
    """Yield how what one client asks differs; what only one of the two has is left."""
    names = [asked.name for asked in first], [asked.name for asked in second]
    for kind, a, b, c, d in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if kind == "equal":
            for one, other in zip(first[a:b], second[c:d], strict=True):
                yield from _contents(one, other)
        else:
            left.first += first[a:b]
            left.second += second[c:d]
    for one in list(left.first):
        # Clients register side by side: which of several asks first for what means nothing.
        same = next((other for other in left.second if isinstance(one.op, WATCHES) and other.name == one.name), None)
        if same is not None:
            left.first.remove(one)
            left.second.remove(same)
            yield from _contents(one, same)
    for one in list(left.first):
        moved = next((other for other in left.second if other.name == one.name), None)
        if moved is not None:
            left.first.remove(one)
            left.second.remove(moved)
            yield Difference(one.op.name, ORDER, _short(one.op), _short(moved.op))
            yield from _contents(one, moved)


def _contents(first: _Asked, second: _Asked) -> Iterator[Difference]:
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
