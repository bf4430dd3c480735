"""The directory of a host: published values, with their access rights and persistence.

It belongs to one session. All calls belong to one thread, the thread of the loop of `later`.
"""

from __future__ import annotations

from pypmix.standard import codes, keys
from pypmix.standard.enums import Persist, Range, Status
from pypmix.standard.errors import NotFound, NotSupported, OperationTimeout, PermissionDenied, PMIxError
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.record import Record
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Pdata, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any

    from pypmix.engine.base import Cancellable
    from pypmix.standard.limits import Limits

    Later = Callable[[float, Callable[[], None]], Cancellable]
    Answer = Callable[[tuple[Pdata, ...], PMIxError | None], None]


NARROWEST_FIRST = (
    Range.PROC_LOCAL,
    Range.CUSTOM,
    Range.NAMESPACE,
    Range.LOCAL,
    Range.SESSION,
    Range.GLOBAL,
    Range.RM,
)
"""A lookup of a key published to several ranges of a proc finds the value of the first of these."""

COST = 64
"""Bytes that a published value counts in addition to its size."""


class Caller(Record):
    """A proc, with its user and group as the server knows them, and the number of its node."""

    proc: Proc
    uid: int
    gid: int
    node: int = 0


class Entry(Record):
    """A published value, with its range and access rights."""

    owner: Caller
    info: Info
    range: int
    persistence: int
    procs: frozenset[Proc]
    users: frozenset[int]
    groups: frozenset[int]
    size: int = 0

    def permissions(self) -> tuple[Info, ...]:
        """Return the directive with the users and groups that may look it up besides its owner's user."""
        given = [(keys.ACCESS_USERIDS, self.users), (keys.ACCESS_GRPIDS, self.groups)]
        items = [Info(key, _array(codes.UINT32, sorted(ids))) for key, ids in given if ids]
        return (Info(keys.ACCESS_PERMISSIONS, _array(codes.INFO, items)),) if items else ()

    @property
    def place(self) -> tuple[object, ...]:
        """The key under which a value is unique, within one range of one user."""
        return self.info.key, self.owner.uid, self.range, _extent(self.range, self.owner, self.procs)

    def open_to(self, caller: Caller) -> bool:
        """Return True if a proc may look the value up."""
        if not _within(self.range, self.owner, caller, self.procs):
            return False
        return caller.uid == self.owner.uid or caller.uid in self.users or caller.gid in self.groups


class _Share:
    """All values that a proc has published, by their places, and their bytes."""

    __slots__ = ("bytes", "entries")

    def __init__(self) -> None:
        self.entries: dict[tuple[object, ...], Entry] = {}
        self.bytes = 0


class _Searches:
    """The pending lookups, by their keys and by their callers."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Search, None]] = {}
        self._by_caller: dict[Proc, dict[Search, None]] = {}
        self._last = 0

    def add(self, search: Search) -> None:
        """Add a lookup."""
        self._last += 1
        search.number = self._last
        for found, name in self._places(search):
            found.setdefault(name, {})[search] = None

    def remove(self, search: Search) -> None:
        """Remove a lookup, if it is here."""
        for found, name in self._places(search):
            searches = found.get(name, {})
            searches.pop(search, None)
            if not searches:
                found.pop(name, None)

    def for_keys(self, keys: Iterable[str]) -> list[Search]:
        """Return the lookups of some of these keys, the oldest first."""
        return sorted({search for key in keys for search in self._by_key.get(key, ())}, key=_number_of)

    def of(self, caller: Proc) -> list[Search]:
        """Return the lookups of a proc."""
        return list(self._by_caller.get(caller, ()))

    def _places(self, search: Search) -> Iterator[tuple[dict[Any, dict[Search, None]], object]]:
        for key in search.op.keys:
            yield self._by_key, key
        yield self._by_caller, search.caller.proc


class Search:
    """A pending lookup."""

    def __init__(self, caller: Caller, op: Lookup, answer: Answer) -> None:
        self.caller = caller
        self.op = op
        self.answer = answer
        self.timer: Cancellable | None = None
        self.number = 0
        self.range = int(_data(op.directives, keys.RANGE, Range.GLOBAL))
        self.procs = _procs(op.directives)
        wait = _data(op.directives, keys.WAIT, False)
        self.waits = wait is not False
        count = 0 if wait is True else int(wait)
        self.count = min(count, len(op.keys)) if count > 0 else len(op.keys)

    def admits(self, entry: Entry) -> bool:
        """Return True if the lookup may find this value."""
        return entry.open_to(self.caller) and _within(self.range, self.caller, entry.owner, self.procs)


class Directory:
    """The published values, and the pending lookups.

    Args:
        later: Calls a function after some seconds.
        limits: The amounts that procs may publish.

    Attributes:
        watcher: Called with each value that is published (True) or removed (False).
    """

    def __init__(self, later: Later, limits: Limits = DEFAULTS) -> None:
        self.watcher: Callable[[Entry, bool], None] = lambda _entry, _here: None
        self._later = later
        self._limits = limits
        self._entries: dict[str, dict[tuple[object, ...], Entry]] = {}
        self._size = 0
        self._bytes = 0
        self._shares: dict[Proc, _Share] = {}
        self._searches = _Searches()

    def __len__(self) -> int:
        return self._size

    def publish(self, caller: Caller, op: Publish) -> None:
        """Publish all values or, if that fails, none.

        Raises:
            PMIxError: A key is already published to this range, or the directory is full.
            NotSupported: A directive requests a feature that is not offered.
        """
        procs = _procs(op.directives) if op.range == Range.CUSTOM else frozenset()
        if op.range == Range.CUSTOM and not procs:
            raise PMIxError("a custom range names no procs", status=Status.ERR_BAD_PARAM, operation="publish")
        users, groups = _permissions(op.directives)
        entries = [
            Entry(caller, info, op.range, op.persistence, procs, users, groups, COST + _bytes_of(info))
            for info in op.infos
        ]
        for entry in entries:
            if entry.place in self._entries.get(entry.info.key, {}):
                raise PMIxError(
                    f"{entry.info.key!r} is published to this range already",
                    status=Status.ERR_DUPLICATE_KEY,
                    operation="publish",
                )
        self._check_room(caller.proc, len(entries), sum([entry.size for entry in entries]))
        for entry in entries:
            self._add(entry)
        for search in self._searches.for_keys([entry.info.key for entry in entries]):
            self._try(search)

    def _check_room(self, proc: Proc, number: int, size: int) -> None:
        """Raise a `PMIxError` if a proc cannot publish this much more."""
        share = self._shares.get(proc)
        own, own_bytes = (0, 0) if share is None else (len(share.entries), share.bytes)
        counts = (
            ("published_values", own + number, f"{proc} would have published {own + number} values"),
            ("published", own_bytes + size, f"{proc} would have published {own_bytes + size} bytes"),
            ("directory_values", self._size + number, f"{self._size} values are published"),
            ("directory", self._bytes + size, f"{self._bytes} bytes are published"),
        )
        for name, count, what in counts:
            if count > getattr(self._limits, name):
                raise self._limits.reached(name, what, "publish")

    def lookup(self, caller: Caller, op: Lookup, answer: Answer) -> None:
        """Look keys up; `answer` is called once, now, or when enough values are published or the time has run out."""
        search = Search(caller, op, answer)
        if self._try(search):
            return
        if not search.waits:
            self._end(search)
            return
        self._searches.add(search)
        limit = _data(op.directives, keys.TIMEOUT, 0)
        if limit:
            search.timer = self._later(float(limit), lambda: self._expire(search))

    def unpublish(self, caller: Caller, op: Unpublish) -> None:
        """Remove values of the proc itself: the values of the keys, or all.

        Raises:
            NotFound: It has published none of these.
            PermissionDenied: Another proc has published them.
        """
        range = _data(op.directives, keys.RANGE, None)
        there = self._all(op.keys) if op.keys else self._entries_of((caller.proc,))
        entries = [entry for entry in there if range is None or entry.range == range]
        owned = [entry for entry in entries if entry.owner.proc == caller.proc]
        for entry in owned:
            self._remove(entry)
        if owned or not op.keys:
            return
        if any(entry.open_to(caller) for entry in entries):
            raise PermissionDenied("another proc has published it", operation="unpublish", procs=(caller.proc,))
        raise NotFound("this proc has published none of these keys", operation="unpublish", procs=(caller.proc,))

    def forget(self, procs: Collection[Proc], persistence: int) -> None:
        """Remove the values that these procs have published with this persistence."""
        for entry in self._entries_of(procs):
            if entry.persistence == persistence:
                self._remove(entry)

    def published(self, range: int) -> list[Entry]:
        """Return the values that are published to a range."""
        return [entry for entry in self._all(self._entries) if entry.range == range]

    def remove_all(self, range: int, condition: Callable[[Entry], bool]) -> None:
        """Remove the values of a range for which `condition` returns True."""
        for entry in self.published(range):
            if condition(entry):
                self._remove(entry)

    def remove_keys(self, range: int, proc: Proc, keys: Collection[str]) -> None:
        """Remove the values of a range that a proc has published under these keys."""
        for entry in [entry for entry in self._all(keys) if entry.range == range and entry.owner.proc == proc]:
            self._remove(entry)

    def leave(self, proc: Proc) -> None:
        """Remove the values of an ended proc that last as long as the proc, and end its lookups."""
        self.forget((proc,), Persist.PROC)
        for search in self._searches.of(proc):
            self._drop(search)

    def _all(self, keys: Collection[str]) -> Iterator[Entry]:
        for key in keys:
            yield from self._entries.get(key, {}).values()

    def _entries_of(self, procs: Collection[Proc]) -> list[Entry]:
        """Return the values of procs; without a search of all values, since this is called for each proc that ends."""
        if len(procs) > len(self._shares):
            procs = [proc for proc in self._shares if proc in procs]
        shares = [self._shares[proc] for proc in procs if proc in self._shares]
        return [entry for share in shares for entry in share.entries.values()]

    def _add(self, entry: Entry) -> None:
        place = entry.place
        self._entries.setdefault(entry.info.key, {})[place] = entry
        share = self._shares.setdefault(entry.owner.proc, _Share())
        share.entries[place] = entry
        share.bytes += entry.size
        self._size += 1
        self._bytes += entry.size
        self.watcher(entry, True)

    def _remove(self, entry: Entry) -> None:
        place = entry.place
        places, share = self._entries[entry.info.key], self._shares[entry.owner.proc]
        del places[place], share.entries[place]
        share.bytes -= entry.size
        self._size -= 1
        self._bytes -= entry.size
        if not places:
            del self._entries[entry.info.key]
        if not share.entries:
            del self._shares[entry.owner.proc]
        self.watcher(entry, False)

    def _find_entries(self, search: Search) -> list[Entry]:
        matches = []
        for key in search.op.keys:
            entries = [entry for entry in self._all((key,)) if search.admits(entry)]
            if entries:
                matches.append(min(entries, key=lambda entry: NARROWEST_FIRST.index(Range(entry.range))))
        return matches

    def _try(self, search: Search) -> bool:
        """Answer a lookup if enough of its values are published."""
        found = self._find_entries(search)
        if len(found) < search.count:
            return False
        self._deliver(search, found)
        return True

    def _deliver(self, search: Search, entries: list[Entry]) -> None:
        self._drop(search)
        for entry in entries:
            if entry.persistence == Persist.FIRST_READ:
                self._remove(entry)
        search.answer(tuple([Pdata(entry.owner.proc, entry.info.key, entry.info.value) for entry in entries]), None)

    def _expire(self, search: Search) -> None:
        self._end(search, OperationTimeout("it was not published in time", operation="lookup"))

    def _end(self, search: Search, error: PMIxError | None = None) -> None:
        """End a lookup with the values found so far."""
        found = self._find_entries(search)
        if found:
            self._deliver(search, found)
            return
        self._drop(search)
        search.answer((), error or NotFound("no such value is published", operation="lookup"))

    def _drop(self, search: Search) -> None:
        self._searches.remove(search)
        if search.timer is not None:
            search.timer.cancel()


def _number_of(search: Search) -> int:
    return search.number


def _within(range: int, center: Caller, other: Caller, procs: frozenset[Proc]) -> bool:
    """Return True if `other` is in the range of `center`; in one session, some ranges contain all procs."""
    if range == Range.PROC_LOCAL:
        return center.proc == other.proc
    if range == Range.NAMESPACE:
        return center.proc.nspace == other.proc.nspace
    if range == Range.CUSTOM:
        name = other.proc
        return any(proc.nspace == name.nspace and proc.rank in (name.rank, RANK_WILDCARD) for proc in procs)
    if range == Range.LOCAL:
        return center.node == other.node
    return range in (Range.SESSION, Range.GLOBAL)


def _extent(range: int, owner: Caller, procs: frozenset[Proc]) -> object:
    """Return the key that distinguishes two ranges of the same kind."""
    if range == Range.PROC_LOCAL:
        return owner.proc
    if range == Range.NAMESPACE:
        return owner.proc.nspace
    return owner.node if range == Range.LOCAL else procs


def _bytes_of(value: object) -> int:
    """Return the approximate size of a value in bytes."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, DataArray):
        value = value.items
    elif isinstance(value, Record):
        value = value.__reduce__()[1]
    return 8 + (sum([_bytes_of(item) for item in value]) if isinstance(value, tuple) else 0)


def _array(type: int, items: Iterable[Any]) -> Value:
    return Value(codes.DATA_ARRAY, DataArray(type, tuple(items)))


def _data(infos: Iterable[Info], key: str, default: Any) -> Any:
    for info in infos:
        if info.key == key:
            if not isinstance(info.value.data, int):
                raise PMIxError(f"{key} is a number", status=Status.ERR_BAD_PARAM)
            return info.value.data
    return default


def _items(value: Value, kind: int) -> tuple[Any, ...]:
    """Return one value, or the elements of an array of them."""
    data = value.data
    if value.type == kind:
        return (data,)
    if isinstance(data, DataArray) and data.type == kind:
        return data.items
    raise PMIxError("a directive is of another type than the Standard says", status=Status.ERR_BAD_PARAM)


def _procs(infos: Iterable[Info]) -> frozenset[Proc]:
    return frozenset(
        [proc for info in infos if info.key == keys.EVENT_CUSTOM_RANGE for proc in _items(info.value, codes.PROC)]
    )


def _permissions(infos: Iterable[Info]) -> tuple[frozenset[int], frozenset[int]]:
    """Return the users and the groups that may look a value up besides its owner's user."""
    found: dict[str, set[int]] = {keys.ACCESS_USERIDS: set(), keys.ACCESS_GRPIDS: set()}
    for info in infos:
        if info.key == keys.ACCESS_PERMISSIONS:
            for item in _items(info.value, codes.INFO):
                if item.key not in found:
                    raise NotSupported(f"access by {item.key!r} is not offered", operation="publish")
                found[item.key].update(_items(item.value, codes.UINT32))
    return frozenset(found[keys.ACCESS_USERIDS]), frozenset(found[keys.ACCESS_GRPIDS])
