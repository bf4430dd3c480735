"""What a server knows: nspaces, their procs, their job info, and what the procs have committed.

Committed values are kept as the bytes that came, so that types nobody here knows reach their reader; only a reader of
the other buffer type makes it necessary to take them apart.
"""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.errors import ERR_BAD_PARAM, ERR_EXISTS, NotFound, PMIxError, RemoteProtocolError
from pypmix.standard.ops import RESERVED_PREFIX, SCOPE_GLOBAL
from pypmix.standard.types import RANK_LOCAL_PEERS, RANK_VALID, RANK_WILDCARD, Proc
from pypmix.wire.codec import Packer, Unpacker
from pypmix.wire.jobinfo import encode_jobinfo
from pypmix.wire.messages import encode_get_object, encode_kval, split_kvals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Info

QUALIFIED = "pmix.qual.val"
FLAG_QUALIFIER = 8

JOB_SIZE = "pmix.job.size"
PROC_BLOB = "pmix.pblob"

DELETES = {5: 1, 6: 2, 7: 3}
"""Scopes that delete what was put with the scope that they map to."""

MAX_RANKS = 1 << 20
MAX_PACKS = 32

Qualifiers = frozenset[tuple[str, object]]
Name = str | tuple[str, Qualifiers]
"""What a value is stored under: its key, and its qualifiers where it has some."""

Stored = tuple[int, bytes, int, "Release"]
"""A committed value: its scope, its KVAL as it came, and the buffer type and the release of who sent it."""


def _packed(stored: Stored, buffer_type: int) -> bytes:
    """Return the KVAL for a reader; empty where a value of unknown type cannot be packed anew."""
    _, raw, kind, release = stored
    if buffer_type == kind:
        return raw
    try:
        kval = Unpacker(raw, kind, release).one(codes.KVAL)
    except RemoteProtocolError:
        return b""
    return encode_kval(buffer_type, kval.key, kval.value)


class Process:
    """A proc of this node: what it may connect as, and what it has committed."""

    __slots__ = ("_objects", "data", "gid", "left", "namespace", "opened", "proc", "registered", "uid")

    def __init__(self, namespace: Namespace, rank: int) -> None:
        self.namespace = namespace
        self.proc = Proc(namespace.name, rank)
        self.registered = False
        self.uid = self.gid = -1
        self.left = False
        self.opened = 0
        self.data: dict[Name, Stored] = {}
        self._objects: dict[tuple[int, int], bytes] = {}

    def find(self, key: str, qualifiers: Qualifiers, scope: int) -> tuple[bool, bool]:
        """Tell whether a value is there that a reader of this scope may see, and whether there is one at all."""
        if not qualifiers:
            stored = self.data.get(key)
            return (stored is not None and bool(stored[0] & scope)), stored is not None
        found = [
            stored[0]
            for name, stored in self.data.items()
            if not isinstance(name, str) and name[0] == key and qualifiers <= name[1]
        ]
        return any(scope & other for other in found), bool(found)

    def object(self, buffer_type: int, scope: int) -> bytes:
        """Return all that a reader of this scope may see, as an object of a reply; empty if there is nothing."""
        found = self._objects.get((buffer_type, scope))
        if found is None:
            kvals = self.kvals(buffer_type, scope)
            found = _object(buffer_type, self.proc, kvals) if kvals else b""
            self._objects[buffer_type, scope] = found
        return found

    def kvals(self, buffer_type: int, scope: int) -> list[bytes]:
        """Return the packed KVALs of `object`."""
        return [_packed(stored, buffer_type) for stored in self.data.values() if stored[0] & scope]

    def commit(self, blocks: Iterable[tuple[int, bytes]], buffer_type: int, release: Release) -> list[tuple[int, str]]:
        """Take in a commit, whole or not at all; return the keys that it deletes, with their scopes.

        A value that comes in several blocks of one commit has all of their scopes; a later commit replaces it.

        Raises:
            RemoteProtocolError: The blocks do not parse.
            PMIxError: A key or a scope is not sound (`ERR_BAD_PARAM`).
        """
        staged: dict[Name, Stored] = {}
        deleted: list[tuple[int, str]] = []
        for scope, block in _merged(blocks):
            if not 0 < scope <= SCOPE_GLOBAL and scope not in DELETES:
                raise PMIxError(f"values cannot be committed with scope {scope}", status=ERR_BAD_PARAM)
            for key, raw in split_kvals(block, buffer_type, release):
                if not key:
                    raise PMIxError("a key is empty", status=ERR_BAD_PARAM)
                if scope in DELETES:
                    deleted.append((scope, key))
                    continue
                name: Name = key
                if key.startswith(RESERVED_PREFIX):
                    # A reserved key that its reader's library does not know makes that library drop all that follows.
                    if key != QUALIFIED:
                        continue
                    name = _qualified(raw, buffer_type, release)
                other = staged.get(name)
                staged[name] = scope if other is None else scope | other[0], raw, buffer_type, release
        for scope, key in deleted:
            self._delete(key, DELETES[scope])
        self.data.update(staged)
        self._objects.clear()
        return deleted

    def _delete(self, key: str, scope: int) -> None:
        stored = self.data.get(key)
        if stored is not None:
            left = stored[0] & ~scope
            if left:
                self.data[key] = left, *stored[1:]
            else:
                del self.data[key]


class JobPack:
    """The job info of one nspace, packed for the clients of one release and buffer type."""

    __slots__ = ("_buffer_type", "_job", "_name", "_ranks", "_release", "reply")

    def __init__(self, job: JobInfo, buffer_type: int, release: Release) -> None:
        self.reply = encode_jobinfo(job, buffer_type, release)
        self._name = job.nspace
        self._buffer_type = buffer_type
        self._release = release
        self._job: list[tuple[str, bytes]] | None = None
        self._ranks: dict[int, list[tuple[str, bytes]]] = {}

    def job(self) -> list[tuple[str, bytes]]:
        """Return key and KVAL of what holds for the job, its nodes, apps and sessions."""
        if self._job is None:
            self._split()
        assert self._job is not None
        return self._job

    def rank(self, rank: int) -> list[tuple[str, bytes]]:
        """Return key and KVAL of what holds for one rank."""
        self.job()
        return self._ranks.get(rank, [])

    def job_object(self, key: str = "") -> bytes:
        """Return the job's values, or those of one key, as an object of a reply; empty if there are none."""
        kvals = [raw for name, raw in self.job() if not key or name == key]
        return _object(self._buffer_type, Proc(self._name, RANK_WILDCARD), kvals) if kvals else b""

    def rank_object(self, proc: Proc, key: str, more: Iterable[bytes] = ()) -> bytes:
        """Return a rank's values, or those of one key, and `more`, as an object of a reply."""
        kvals = [raw for name, raw in self.rank(proc.rank) if not key or name == key]
        kvals += more
        return _object(self._buffer_type, proc, kvals) if kvals else b""

    def _split(self) -> None:
        buffer_type, release = self._buffer_type, self._release
        unpacker = Unpacker(self.reply, buffer_type, release)
        unpacker.skip(codes.STRING)
        self._job = []
        for key, raw in split_kvals(self.reply[unpacker.position :], buffer_type, release):
            if key != PROC_BLOB:
                self._job.append((key, raw))
                continue
            blob = Unpacker(raw, buffer_type, release).one(codes.KVAL).value.data
            inner = Unpacker(blob, buffer_type, release)
            rank = inner.one(codes.PROC_RANK)
            self._ranks.setdefault(rank, []).extend(split_kvals(blob[inner.position :], buffer_type, release))


class Namespace:
    """A job: its info, and its procs."""

    __slots__ = ("_packs", "job", "name", "processes")

    def __init__(self, job: JobInfo) -> None:
        self.name = job.nspace
        self.job = job
        self._packs: dict[tuple[int, Release], JobPack] = {}
        size = next((info.value.data for info in job.job if info.key == JOB_SIZE), 0)
        if not isinstance(size, int) or not 0 <= size <= MAX_RANKS:
            raise ValueError(f"the job size of {job.nspace} lies between 0 and {MAX_RANKS}, not {size!r}")
        ranks = {*range(size), *(rank for rank, _ in job.procs)}
        self.processes = {rank: Process(self, rank) for rank in sorted(ranks)}

    def enlarge(self, rank: int) -> None:
        """Add a proc that nobody has told of; the job info stays as it is."""
        self.processes[rank] = Process(self, rank)

    def pack(self, buffer_type: int, release: Release) -> JobPack:
        """Return the job info for a client."""
        found = self._packs.get((buffer_type, release))
        if found is None:
            if len(self._packs) >= MAX_PACKS:
                self._packs.clear()
            found = self._packs[buffer_type, release] = JobPack(self.job, buffer_type, release)
        return found


class Store:
    """All nspaces of a server."""

    __slots__ = ("_nspaces", "groups")

    def __init__(self) -> None:
        self._nspaces: dict[str, Namespace] = {}
        self.groups: dict[str, tuple[Proc, ...]] = {}
        """The members of groups, by group rank; a group's name stands for an nspace."""

    def __iter__(self) -> Iterator[Namespace]:
        return iter(self._nspaces.values())

    def add(self, job: JobInfo) -> Namespace:
        """Take in an nspace.

        Raises:
            PMIxError: It is there already (`ERR_EXISTS`).
        """
        if job.nspace in self._nspaces:
            raise PMIxError(
                f"the nspace {job.nspace!r} is registered already", status=ERR_EXISTS, operation="register_nspace"
            )
        namespace = self._nspaces[job.nspace] = Namespace(job)
        return namespace

    def remove(self, name: str) -> Namespace | None:
        return self._nspaces.pop(name, None)

    def get(self, name: str | None) -> Namespace | None:
        return None if name is None else self._nspaces.get(name)

    def process(self, proc: Proc) -> Process:
        """Return a proc that is known.

        Raises:
            NotFound: There is no such nspace, or no such rank in it.
        """
        namespace = self._nspaces.get(proc.nspace)
        if namespace is None:
            raise NotFound(f"no nspace {proc.nspace!r} is registered here", procs=(proc,))
        process = namespace.processes.get(proc.rank)
        if process is None:
            raise NotFound(f"the nspace {proc.nspace!r} has no rank {proc.rank}", procs=(proc,))
        return process

    def expand(self, procs: Iterable[Proc]) -> frozenset[Process]:
        """Return the procs that these name, the wildcard being all of an nspace.

        Raises:
            NotFound: One of them is not known.
            PMIxError: None is named, or one by a special rank that means nothing here (`ERR_BAD_PARAM`).
        """
        found: set[Process] = set()
        for proc in self._ungrouped(procs) if self.groups else procs:
            if proc.rank in (RANK_WILDCARD, RANK_LOCAL_PEERS):
                namespace = self._nspaces.get(proc.nspace)
                if namespace is None:
                    raise NotFound(f"no nspace {proc.nspace!r} is registered here", procs=(proc,))
                found.update(namespace.processes.values())
            elif proc.rank > RANK_VALID:
                raise PMIxError("this rank names nobody here", status=ERR_BAD_PARAM, procs=(proc,))
            else:
                found.add(self.process(proc))
        if not found:
            raise PMIxError("no procs are named", status=ERR_BAD_PARAM)
        return frozenset(found)

    def _ungrouped(self, procs: Iterable[Proc]) -> Iterator[Proc]:
        """Yield the procs, with those of groups under their own names."""
        for proc in procs:
            members = self.groups.get(proc.nspace)
            if members is None:
                yield proc
            elif proc.rank in (RANK_WILDCARD, RANK_LOCAL_PEERS):
                yield from members
            elif proc.rank < len(members):
                yield members[proc.rank]
            else:
                raise NotFound(f"the group {proc.nspace!r} has no rank {proc.rank}", procs=(proc,))


def _object(buffer_type: int, proc: Proc, kvals: Iterable[bytes]) -> bytes:
    return Packer(buffer_type).pack(codes.BYTE_OBJECT, encode_get_object(buffer_type, proc, kvals)).bytes()


def _merged(blocks: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Return the blocks of a commit, equal ones as one: where all values are global, the same block comes twice."""
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
        raise PMIxError("a qualified value is an array of infos", status=ERR_BAD_PARAM)
    return array.items[0].key, qualifiers_of(array.items[1:])
