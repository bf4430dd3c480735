"""The procs of a server's nspaces: their job info, and the values that they have committed.

Committed values are kept as the received bytes, so that values of types that are unknown here reach their reader. The
server unpacks them only for a reader of the other buffer type.
"""

from __future__ import annotations

from itertools import islice

from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PMIxError, RemoteProtocolError
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.ops import DELETES, RESERVED_PREFIX, SCOPE_GLOBAL, SCOPE_REMOTE
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.wire.codec import Packer, Unpacker
from pypmix.wire.decode import context_of
from pypmix.wire.jobinfo import encode_jobinfo
from pypmix.wire.messages import encode_get_object, encode_kval, split_kvals
from pypmix.wire.readers import HAS_TYPELESS, IS_UNKNOWN, MARKS, TYPELESS, mark_of, marks_of, rule_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.limits import Limits
    from pypmix.standard.releases import Release

FLAG_QUALIFIER = 8


MUCH = 256 << 10
"""Bytes that an answer brings at most without being asked, and of one proc that are packed once and kept."""

SMALL = 4 << 10
"""Bytes of one proc that each answer brings whole. Of a proc that has committed more, an answer to a client of pypmix
brings what the reader has not been sent yet; for a value that was sent before, the values committed next to it."""

_NEAR = 128
"""The largest number of values that `near` looks at on each side."""

MAX_RANKS = 1 << 20
MAX_PACKS = 32

Qualifiers = frozenset[tuple[str, object]]
Name = str | tuple[str, Qualifiers]
"""The name of a stored value: its key, with its qualifiers if it has some."""

Stored = tuple[int, bytes, int, "Release"]
"""A committed value: its scope with its marks, its KVAL as received, and the sender's buffer type and release."""


def _packed(stored: Stored, buffer_type: int, rule: int) -> bytes:
    """Return the KVAL for a reader that can decode it; empty if a value of unknown type cannot be packed again."""
    marks, raw, kind, release = stored
    if buffer_type == kind and not (marks & HAS_TYPELESS and rule & TYPELESS != rule_for(release)):
        return raw
    try:
        kval = Unpacker(raw, kind, release).one(codes.KVAL)
    except RemoteProtocolError:
        return b""
    return encode_kval(buffer_type, kval.key, kval.value, rule)


_NOTHING: dict[str, Value] = {}
"""The values that the host stores of most procs: none."""


class Process:
    """A proc: its user and group, and its committed data, here or on another server.

    Attributes:
        local: Whether it is a proc of this server; gets do not wait here for other procs.
        committed: Whether it has called commit, even without data.
        stamp: The number of its last commit, on its own server.
        size: The size of its committed data in bytes.
        unfinished: The bytes of unfinished messages that its connections hold.
        spent: The seconds of the server that its connections have used in this turn.
        internal: The values that the host has stored for it, for the clients of this server.
        data: Its committed values, in the order of the commits: a value that is committed again moves to the end.
        written: The number of values that it has committed; a value that is committed again counts again.
        removed: `written` after the last `note_removal`.
        whole: Of a proc of another server: whether `data` is all that it had committed at `stamp`.
    """

    __slots__ = (
        "_arranged",
        "_objects",
        "committed",
        "data",
        "gid",
        "internal",
        "left",
        "local",
        "namespace",
        "opened",
        "proc",
        "registered",
        "removed",
        "size",
        "spent",
        "stamp",
        "uid",
        "unfinished",
        "whole",
        "written",
    )

    def __init__(self, namespace: Namespace, rank: int, local: bool = True) -> None:
        self.namespace = namespace
        self.proc = Proc(namespace.name, rank)
        self.local = local
        self.committed = False
        self.stamp = 0
        self.registered = False
        self.uid = self.gid = -1
        self.left = False
        self.opened = 0
        self.unfinished = 0
        self.spent = 0.0
        self.size = 0
        self.written = self.removed = 0
        self.whole = False
        self.data: dict[Name, Stored] = {}
        self.internal: dict[str, Value] = _NOTHING
        self._objects: dict[tuple[int, int, int], bytes] = {}
        self._arranged: tuple[list[Name], dict[Name, int], int] | None = None
        """See `_arrange`; the last is what `written` was then."""

    def find(self, key: str, qualifiers: Qualifiers, scope: int) -> tuple[bool, bool]:
        """Return whether a reader of this scope may see a value of the key, and whether any value of it exists."""
        if not qualifiers:
            stored = self.data.get(key)
            if key in self.internal:
                return True, True
            return (stored is not None and bool(stored[0] & scope)), stored is not None
        found = [
            stored[0]
            for name, stored in self.data.items()
            if not isinstance(name, str) and name[0] == key and qualifiers <= name[1]
        ]
        return any(scope & other for other in found), bool(found)

    def object(self, buffer_type: int, scope: int, rule: int) -> bytes:
        """Return all values that a reader of this scope may see, as an object of a reply; empty without values."""
        found = self._objects.get((buffer_type, scope, rule))
        if found is None:
            kvals = self.kvals(buffer_type, scope, rule)
            found = object_of(buffer_type, self.proc, kvals) if kvals else b""
            if len(found) <= MUCH:
                self._objects[buffer_type, scope, rule] = found
        return found

    def part(self, buffer_type: int, scope: int, rule: int, key: str, qualifiers: Qualifiers) -> list[bytes]:
        """Return the packed KVALs of the values that `find` finds."""
        if not qualifiers:
            value = self.internal.get(key)
            if value is not None:
                return [encode_kval(buffer_type, key, value, rule)]
            return [_packed(self.data[key], buffer_type, rule)]
        return [
            _packed(stored, buffer_type, rule)
            for name, stored in self.data.items()
            if not isinstance(name, str)
            and name[0] == key
            and qualifiers <= name[1]
            and stored[0] & scope
            and not stored[0] & (mark_of(rule) | IS_UNKNOWN)
        ]

    def since(self, mark: int) -> list[Name]:
        """Return the names of the values that were committed after `written` was `mark`, the newest first."""
        return list(islice(reversed(self.data), max(0, self.written - mark)))

    def near(self, key: str) -> list[Name]:
        """Return a key and the names of the values committed next to it, at most `SMALL` bytes on each side."""
        order, places = self._arrange()
        data = self.data
        place = places[key]
        found: list[Name] = [key]
        for side in range(place + 1, len(order)), range(place - 1, -1, -1):
            left, most = SMALL, len(found) + _NEAR
            for index in side:
                name = order[index]
                if places[name] != index or name not in data:
                    continue
                left -= len(data[name][1])
                if left < 0 or len(found) == most:
                    break
                found.append(name)
        return found

    def _arrange(self) -> tuple[list[Name], dict[Name, int]]:
        """Return the names of the values in the order of the commits, among earlier places of some, and the places."""
        order, places, mark = self._arranged or ([], {}, 0)
        if len(order) > 2 * len(self.data) + _NEAR:
            order, places, mark = [], {}, 0
        for name in reversed(self.since(mark)):
            places[name] = len(order)
            order.append(name)
        self._arranged = order, places, self.written
        return order, places

    def size_of(self, names: Iterable[Name]) -> int:
        """Return how many bytes some of the committed values have."""
        return sum([len(self.data[name][1]) for name in names])

    def pack_values(self, names: Iterable[Name], buffer_type: int, scope: int, rule: int) -> list[bytes]:
        """Return the packed KVALs of the given committed values that a reader of this scope may see."""
        left_out = mark_of(rule) | IS_UNKNOWN
        data = self.data
        return [
            _packed(stored, buffer_type, rule)
            for stored in [data[name] for name in names]
            if scope & stored[0] and not stored[0] & left_out
        ]

    def kvals(self, buffer_type: int, scope: int, rule: int, key: str = "") -> list[bytes]:
        """Return the packed KVALs of `object`, and last that of `key` if it is of an unknown type."""
        left_out = mark_of(rule) | IS_UNKNOWN
        found = self.pack_values(self.data, buffer_type, scope, rule)
        for name, value in self.internal.items():
            if not name.startswith(RESERVED_PREFIX) and not marks_of(*value) & left_out:
                found.append(encode_kval(buffer_type, name, value, rule))
        asked = self.unknown(key)
        if asked is not None and asked[0] & scope:
            found.append(_packed(asked, buffer_type, rule))
        return found

    def unknown(self, key: str) -> Stored | None:
        """Return the value of a key if its type is unknown, None otherwise; such a value is sent only on request."""
        stored = self.data.get(key)
        return stored if stored is not None and stored[0] & IS_UNKNOWN else None

    def marks(self, key: str) -> int:
        """Return the marks of the value of a key; 0 without a value."""
        value = self.internal.get(key)
        if value is not None:
            return marks_of(*value)
        return self.data[key][0] & MARKS if key in self.data else 0

    def keep(self, key: str, value: Value) -> None:
        """Store a value of a proc that the host gives."""
        self.internal = {**self.internal, key: value}
        self._objects.clear()

    def commit(
        self,
        blocks: Iterable[tuple[int, bytes]],
        buffer_type: int,
        release: Release,
        limits: Limits = DEFAULTS,
        *,
        repeats: bool = False,
    ) -> list[tuple[int, str]]:
        """Store a commit, whole or not at all; return the keys that it deletes, with their scopes.

        A value in several blocks of one commit has all of their scopes; a later commit replaces it.

        Args:
            blocks: The committed values and deletions, packed, by scope.
            buffer_type: The kind of buffer in which they are packed.
            release: The release that has packed them.
            limits: The limits of a proc's values.
            repeats: Whether the client commits all of its values each time, as natives do: the same ones are not new.

        Raises:
            RemoteProtocolError: The blocks do not parse.
            PMIxError: A key or a scope is not valid (`ERR_BAD_PARAM`).
            OutOfResources: It would be too much.
        """
        staged, deleted = _stage(blocks, buffer_type, release)
        size = self._size_with(staged, deleted, limits)
        removes = bool(deleted)
        for scope, key in deleted:
            self._delete(key, DELETES[scope])
        if repeats:
            staged = {name: stored for name, stored in staged.items() if self.data.get(name) != stored}
        for name, stored in staged.items():
            old = self.data.pop(name, None)
            removes = removes or (old is not None and bool(old[0] & SCOPE_REMOTE & ~stored[0]))
        self.data.update(staged)
        self.written += len(staged)
        if removes:
            self.note_removal()
        self.size = size
        self.committed = True
        self._objects.clear()
        return deleted

    def _size_with(self, staged: dict[Name, Stored], deleted: Iterable[tuple[int, str]], limits: Limits) -> int:
        """Return the size that a commit makes.

        Raises:
            OutOfResources: It is too large.
        """
        data = self.data
        size, number = self.size, len(data)
        cleared: dict[Name, int] = {}
        for scope, key in deleted:
            cleared[key] = cleared.get(key, 0) | DELETES[scope]
        for name in cleared.keys() | staged.keys() if cleared else staged:
            old = data.get(name)
            if old is not None and (name in staged or not old[0] & ~cleared[name]):
                size -= len(old[1])
                number -= 1
        for _, raw, _, _ in staged.values():
            size += len(raw)
        number += len(staged)
        if size > limits.committed and size > self.size:
            what = f"{self.proc} would have committed {size} bytes, each value counted once"
            raise limits.reached("committed", what, "commit")
        if number > limits.committed_values and number > len(data):
            raise limits.reached("committed_values", f"{self.proc} would have committed {number} values", "commit")
        return size

    def discard(self, name: Name) -> None:
        """Forget a committed value."""
        stored = self.data.pop(name, None)
        if stored is not None:
            self.size -= len(stored[1])
            self.note_removal()
        self._objects.clear()

    def shared(self) -> list[Stored]:
        """Return the values that readers on other servers may see."""
        return [stored for stored in self.data.values() if stored[0] & SCOPE_REMOTE]

    def shared_since(self, mark: int) -> list[Stored] | None:
        """Return the values of `shared` that were committed after `written` was `mark`; None if one was removed."""
        if mark < self.removed:
            return None
        return [stored for name in reversed(self.since(mark)) if (stored := self.data[name])[0] & SCOPE_REMOTE]

    def note_removal(self) -> None:
        """Record that other servers may have values that are no longer there, or lack some: they are to get all."""
        # A number of its own, which is higher than that of any value before.
        self.written += 1
        self.removed = self.written

    def replace(self, data: dict[Name, Stored], stamp: int) -> set[Name]:
        """Store all committed data of a proc of another server, unless the known data is newer.

        Returns:
            The names that it has deleted since the known data.
        """
        if stamp < self.stamp:
            return set()
        gone = self.data.keys() - data.keys()
        old = self.data
        self.written += sum([old.get(name) != stored for name, stored in data.items()])
        self.stamp = stamp
        self.data = data
        self._arranged = None
        # Data that was too much to be sent with a collective is missing here: readers ask for it when they need it.
        self.committed = self.whole = bool(data)
        self.size = _size(data)
        self._objects.clear()
        return gone

    def extend(self, data: dict[Name, Stored], stamp: int, base: int) -> bool:
        """Store the data that a proc of another server has committed after its commit `base`.

        If the data until then is not known here, all is forgotten: readers ask for it when they need it.

        Returns:
            False if all is forgotten.
        """
        if stamp < self.stamp:
            return True
        if base > self.stamp or not self.whole:
            self.replace({}, stamp)
            return False
        for name, stored in data.items():
            old = self.data.pop(name, None)
            self.size += len(stored[1]) - (0 if old is None else len(old[1]))
        self.data.update(data)
        self.written += len(data)
        self.stamp = stamp
        self._objects.clear()
        return True

    def _delete(self, key: str, scope: int) -> None:
        stored = self.data.get(key)
        if stored is not None:
            left = stored[0] & ~scope
            if left & ~MARKS:
                self.data[key] = left, *stored[1:]
            else:
                del self.data[key]


def _stage(
    blocks: Iterable[tuple[int, bytes]], buffer_type: int, release: Release
) -> tuple[dict[Name, Stored], list[tuple[int, str]]]:
    """Return the values of a commit, and the keys that it deletes, with their scopes."""
    staged: dict[Name, Stored] = {}
    deleted: list[tuple[int, str]] = []
    merged = _merged(blocks)
    context = context_of(release, sum([len(block) for _, block in merged]))
    for scope, block in merged:
        if not 0 < DELETES.get(scope, scope) <= SCOPE_GLOBAL:
            raise PMIxError(f"values cannot be committed with scope {scope}", status=statuses.ERR_BAD_PARAM)
        marks: list[int] = []
        for (key, raw), mark in zip(split_kvals(block, buffer_type, release, context, marks), marks, strict=True):
            if not key:
                raise PMIxError("a key is empty", status=statuses.ERR_BAD_PARAM)
            if scope in DELETES:
                deleted.append((scope, key))
                continue
            name: Name = key
            if key.startswith(RESERVED_PREFIX):
                # If a library does not know a reserved key, it drops the key and all later values.
                if key != keys.QUALIFIED_VALUE:
                    continue
                name = _qualified(raw, buffer_type, release)
            other = staged.get(name)
            seen = scope if other is None else scope | other[0]
            staged[name] = seen | mark, raw, buffer_type, release
    return staged, deleted


def _size(data: Mapping[Name, Stored]) -> int:
    return sum([len(raw) for _, raw, _, _ in data.values()])


class JobPack:
    """The job info of one nspace, packed for the clients of one release and buffer type."""

    __slots__ = ("_buffer_type", "_job", "_name", "_ranks", "_release", "reply")

    def __init__(self, job: JobInfo, buffer_type: int, release: Release, rule: int) -> None:
        self.reply = encode_jobinfo(job, buffer_type, release, rule)
        self._name = job.nspace
        self._buffer_type = buffer_type
        self._release = release
        self._job: list[tuple[str, bytes]] | None = None
        self._ranks: dict[int, list[tuple[str, bytes]]] = {}

    def job(self) -> list[tuple[str, bytes]]:
        """Return key and KVAL of the values of the job, its nodes, apps and sessions."""
        if self._job is None:
            self._split()
        assert self._job is not None
        return self._job

    def rank(self, rank: int) -> list[tuple[str, bytes]]:
        """Return key and KVAL of the values of one rank."""
        self.job()
        return self._ranks.get(rank, [])

    def job_object(self, key: str = "", name: str = "") -> bytes:
        """Return the job's values, or only the values of one key, as an object of a reply; empty without values.

        The object has the name of the job, or another one if it is given.
        """
        kvals = [raw for found, raw in self.job() if not key or found == key]
        return object_of(self._buffer_type, Proc(name or self._name, RANK_WILDCARD), kvals) if kvals else b""

    def rank_object(self, proc: Proc, key: str, more: Iterable[bytes] = (), name: Proc | None = None) -> bytes:
        """Return a rank's values, or only one key's, and `more`, as an object of a reply, under `name` if given."""
        kvals = [raw for name, raw in self.rank(proc.rank) if not key or name == key]
        kvals += more
        return object_of(self._buffer_type, name or proc, kvals) if kvals else b""

    def _split(self) -> None:
        buffer_type, release = self._buffer_type, self._release
        unpacker = Unpacker(self.reply, buffer_type, release)
        unpacker.skip(codes.STRING)
        self._job = []
        for key, raw in split_kvals(self.reply[unpacker.position :], buffer_type, release):
            if key != keys.PROC_BLOB:
                self._job.append((key, raw))
                continue
            blob = Unpacker(raw, buffer_type, release).one(codes.KVAL).value.data
            inner = Unpacker(blob, buffer_type, release)
            rank = inner.one(codes.PROC_RANK)
            self._ranks.setdefault(rank, []).extend(split_kvals(blob[inner.position :], buffer_type, release))


class Namespace:
    """A job: its info, and its procs.

    Args:
        job: The job info.
        local: The ranks of this server; None for all.
        resources: Information that belongs to no nspace, and that all clients get.

    Attributes:
        internal: The values that the host has stored besides the job info.
    """

    __slots__ = ("_packs", "_resources", "internal", "job", "name", "processes")

    def __init__(
        self, job: JobInfo, local: Iterable[int] | None = None, resources: dict[str, Info] | None = None
    ) -> None:
        self.name = job.nspace
        self.job = job
        self.internal: dict[str, Info] = {}
        self._resources = {} if resources is None else resources
        self._packs: dict[tuple[int, Release, int], JobPack] = {}
        size = next((info.value.data for info in job.job if info.key == keys.JOB_SIZE), 0)
        if not isinstance(size, int) or not 0 <= size <= MAX_RANKS:
            raise ValueError(f"the job size of {job.nspace} lies between 0 and {MAX_RANKS}, not {size!r}")
        ranks = {*range(size), *(rank for rank, _ in job.procs)}
        here = ranks if local is None else frozenset(local)
        if not here <= ranks:
            raise ValueError(f"{job.nspace} has no rank {min(here - ranks)} that could be local")
        self.processes = {rank: Process(self, rank, rank in here) for rank in sorted(ranks)}

    def enlarge(self, rank: int) -> None:
        """Add an unregistered proc; the job info stays as it is."""
        self.processes[rank] = Process(self, rank)

    def pack(self, buffer_type: int, release: Release, rule: int) -> JobPack:
        """Return the job info for a client."""
        found = self._packs.get((buffer_type, release, rule))
        if found is None:
            if len(self._packs) >= MAX_PACKS:
                self._packs.clear()
            job = self.job
            if self.internal or self._resources:
                said = {info.key for info in job.job}
                more = [info for key, info in {**self._resources, **self.internal}.items() if key not in said]
                job = job.replace(job=(*job.job, *more))
            found = self._packs[buffer_type, release, rule] = JobPack(job, buffer_type, release, rule)
        return found

    def changed(self) -> None:
        """Drop the packed job info, because the job info has changed."""
        self._packs.clear()

    def keep(self, info: Info) -> None:
        """Store a value of the job that the host gives."""
        self.internal[info.key] = info
        self.changed()


def named(values: Iterable[tuple[str, Stored]]) -> dict[Name, Stored]:
    """Return the values of another server under the names under which they are stored.

    Raises:
        RemoteProtocolError: A qualified value is not valid.
    """
    found: dict[Name, Stored] = {}
    for key, stored in values:
        if not key.startswith(RESERVED_PREFIX):
            found[key] = stored
        elif key == keys.QUALIFIED_VALUE:
            try:
                found[_qualified(*stored[1:])] = stored
            except PMIxError as error:
                raise RemoteProtocolError(error.detail, operation="unpack") from None
    return found


def object_of(buffer_type: int, proc: Proc, kvals: Iterable[bytes]) -> bytes:
    """Return values of a proc as an object of a reply."""
    return Packer(buffer_type).pack(codes.BYTE_OBJECT, encode_get_object(buffer_type, proc, kvals)).bytes()


def _merged(blocks: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Return the blocks of a commit, equal blocks as one: if all values are global, the same block is sent twice."""
    found: list[tuple[int, bytes]] = []
    for scope, block in blocks:
        if found and found[-1][1] == block and 0 < scope <= SCOPE_GLOBAL and 0 < found[-1][0] <= SCOPE_GLOBAL:
            found[-1] = found[-1][0] | scope, block
        else:
            found.append((scope, block))
    return found


def qualifiers_of(infos: Iterable[Info]) -> Qualifiers:
    """Return the infos that are flagged as qualifiers, in a form that compares."""
    return frozenset([(info.key, _frozen(info.value.data)) for info in infos if info.flags & FLAG_QUALIFIER])


def _frozen(data: Any) -> object:
    try:
        hash(data)
    except TypeError:
        return repr(data)
    return data


def _qualified(raw: bytes, buffer_type: int, release: Release) -> Name:
    """Return the name of a value that is stored under qualifiers: its own key, and these."""
    value = Unpacker(raw, buffer_type, release).one(codes.KVAL).value
    array = value.data
    if value.type != codes.DATA_ARRAY or array is None or array.type != codes.INFO or not array.items:
        raise PMIxError("a qualified value is an array of infos", status=statuses.ERR_BAD_PARAM)
    return array.items[0].key, qualifiers_of(array.items[1:])
