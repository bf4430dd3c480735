"""The data of a server: its nspaces, groups, connections, process sets and resources.

Results that depend on the existing nspaces are remembered in a `Cache` of the `Store`, which is cleared when an nspace
is added or removed.
"""

from __future__ import annotations

from pypmix.engine.groups.talk import text
from pypmix.engine.python.processes import Namespace, Process
from pypmix.standard import codes, keys, statuses
from pypmix.standard._typing import TypeVar
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.ops.connecting import CONNECT_ID, CONNECT_NAME
from pypmix.standard.types import RANK_LOCAL_PEERS, RANK_VALID, RANK_WILDCARD, DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any

    from pypmix.engine.python.processes import Name
    from pypmix.standard.jobinfo import JobInfo


class Group:
    """One group.

    Attributes:
        leader: Its leader, None if it has none.
        notify: Whether members want events of other members that fail.
        ft: Whether its operations continue without members that end.
        context_id: Its context id.
        formed: Its members when it was formed.
        kept: The values of members that are kept under its context id.
        lost: The members that have ended, and whether a destruct misses them. It does not miss members that had left,
            which may be reported later.
        places: The places of members that were admitted; see `standing.AdmissionRecord`.
    """

    __slots__ = ("context_id", "formed", "ft", "kept", "leader", "lost", "notify", "places")

    def __init__(
        self,
        leader: Proc | None = None,
        flags: Collection[str] = (),
        context_id: int | None = None,
    ) -> None:
        self.leader = leader
        self.notify = keys.GROUP_NOTIFY_TERMINATION in flags
        self.ft = keys.GROUP_FT_COLLECTIVE in flags
        self.context_id = context_id
        self.formed: tuple[Proc, ...] = ()
        self.kept: list[tuple[Process, Name]] = []
        self.lost: dict[Proc, bool] = {}
        self.places: dict[Proc, int] = {}

    def ordered(self, members: Iterable[Proc]) -> tuple[Proc, ...]:
        """Return members by group rank, as clients have them, in whatever order the news of admissions arrives."""
        given = tuple(members)
        admitted = sorted([(self.places[member], member) for member in given if member in self.places])
        return (*[member for member in given if member not in self.places], *[member for _, member in admitted])

    def titles(self, name: str) -> tuple[Info, ...]:
        """Return the infos that name the group in an event."""
        return (text(keys.GROUP_ID, name.partition("\0")[0]),)

    def record_loss(self, member: Proc) -> int | None:
        """Record a member that has ended without leaving; return the event code for the others, None for no event."""
        if member == self.leader:
            self.leader = None
            return statuses.GROUP_LEADER_FAILED
        return statuses.GROUP_MEMBER_FAILED if self.notify else None


class Connection(Group):
    """One connection.

    Attributes:
        id: The id that its callers have given the connect; empty if they gave none.
        notify_each: Whether members want an event of each member that disconnects.
        leaving: Whether all members of this server have called the disconnect.
        withheld: Members that have ended since then: the others get an event if that was before the host's decision.
        lost_members: The members that have ended; their ranks are vacant.
    """

    __slots__ = ("id", "leaving", "lost_members", "notify_each", "nspace", "withheld")

    def __init__(self, nspace: str, id: str, ft: bool, notify_each: bool) -> None:
        super().__init__()
        self.ft = ft
        self.nspace = nspace
        self.id = id
        self.notify_each = notify_each
        self.leaving = False
        self.withheld: set[Proc] = set()
        self.lost_members: set[Proc] = set()

    def member(self, rank: int) -> Proc:
        """Return the proc that has a rank.

        Raises:
            NotFound: No proc has the rank, or the proc has ended.
        """
        if rank < len(self.formed) and self.formed[rank] not in self.lost_members:
            return self.formed[rank]
        named = Proc.unchecked(self.nspace, rank)
        raise NotFound(f"no proc has rank {rank} of the connection {self.nspace!r}", procs=(named,))

    def titles(self, name: str) -> tuple[Info, ...]:
        id = (text(CONNECT_ID, self.id),) if self.id else ()
        return (text(CONNECT_NAME, self.nspace), *id)

    def record_loss(self, member: Proc) -> int | None:
        self.lost_members.add(member)
        if self.leaving:
            self.withheld.add(member)
        return None if self.ft or self.leaving else statuses.ERR_PROC_TERM_WO_SYNC


K = TypeVar("K")
V = TypeVar("V")

MAX_ADDRESSES = 1 << 16
"""Bound of the groups whose members' processes are remembered."""


class Cache(dict[K, V]):
    """Results that hold until an nspace is added or removed; see `Store.cache`.

    Args:
        size: How many entries it has at most; all are forgotten then.
        forgotten: Called with each value that is forgotten.
    """

    __slots__ = ("_forgotten", "_size")

    def __init__(self, size: int, forgotten: Callable[[V], None] | None) -> None:
        super().__init__()
        self._size = size
        self._forgotten = forgotten

    def put(self, key: K, value: V) -> None:
        """Remember something."""
        if len(self) >= self._size:
            self.clear()
        self[key] = value

    def clear(self) -> None:
        """Forget everything."""
        if self._forgotten is not None:
            for value in self.values():
                self._forgotten(value)
        super().clear()


class Store:
    """All nspaces of a server."""

    __slots__ = (
        "_addresses",
        "_caches",
        "_memberships",
        "_nspaces",
        "aliases",
        "connections",
        "groups",
        "namesakes",
        "psets",
        "resources",
        "version",
    )

    def __init__(self) -> None:
        self._nspaces: dict[str, Namespace] = {}
        self.groups: dict[str, tuple[Proc, ...]] = {}
        """The members of groups, by group rank; a group's name stands for an nspace. `put_group` adds to it."""
        self._memberships: dict[Proc, list[str]] | None = None
        """At least the keys of each proc's groups; None since a group was added and until the next search."""
        self.aliases: dict[str, str] = {}
        """The nspaces of this server's own jobs by their names in other clusters."""
        self.connections: dict[str, Connection] = {}
        """The connections among `groups`; queries of groups leave them out."""
        self.namesakes: dict[str, list[str]] = {}
        """Where further groups of a name are that have no member in common, as MPI allows them."""
        self.psets: dict[str, dict[Proc, None]] = {}
        """The members of process sets, in their order."""
        self.resources: dict[str, Info] = {}
        """Information that belongs to no nspace."""
        self.version = 0
        """The number of times that an nspace was added or removed."""
        self._caches: list[Cache[Any, Any]] = []
        self._addresses: Cache[str, tuple[tuple[Proc, ...], tuple[frozenset[Process], frozenset[Proc]]]]
        self._addresses = self.cache(MAX_ADDRESSES)

    def __iter__(self) -> Iterator[Namespace]:
        return iter(self._nspaces.values())

    def cache(self, size: int, forgotten: Callable[[V], None] | None = None) -> Cache[K, V]:
        """Return a new cache that is cleared when an nspace is added or removed."""
        cache: Cache[K, V] = Cache(size, forgotten)
        self._caches.append(cache)
        return cache

    def _changed(self) -> None:
        """Count an added or removed nspace, and clear the caches."""
        self.version += 1
        for cache in self._caches:
            cache.clear()

    def add(self, job: JobInfo, local: Iterable[int] | None = None) -> Namespace:
        """Add an nspace, of which some or all ranks belong to this server.

        Raises:
            PMIxError: It exists already (`ERR_EXISTS`).
            ValueError: It has no such ranks.
        """
        if job.nspace in self._nspaces:
            raise PMIxError(
                f"the nspace {job.nspace!r} is registered already",
                status=statuses.ERR_EXISTS,
                operation="register_nspace",
            )
        namespace = self._nspaces[job.nspace] = Namespace(job, local, self.resources)
        self._changed()
        cluster = next((info.value.data for info in job.job if info.key == keys.CLUSTER_ID), None)
        if isinstance(cluster, str) and cluster and any(process.local for process in namespace.processes.values()):
            self.aliases[f"{cluster}:{job.nspace}"] = job.nspace
        return namespace

    def remove(self, name: str) -> Namespace | None:
        """Forget an nspace; return it, None if it was not known."""
        self._changed()
        if self.aliases:
            self.aliases = {alias: nspace for alias, nspace in self.aliases.items() if nspace != name}
        return self._nspaces.pop(name, None)

    def get(self, name: str | None) -> Namespace | None:
        return None if name is None else self._nspaces.get(name)

    def process(self, proc: Proc) -> Process:
        """Return a proc that is known.

        Raises:
            NotFound: The nspace, or the rank in it, is not known.
        """
        namespace = self._nspaces.get(proc.nspace)
        if namespace is None:
            raise NotFound(f"no nspace {proc.nspace!r} is registered here", procs=(proc,))
        process = namespace.processes.get(proc.rank)
        if process is None:
            raise NotFound(f"the nspace {proc.nspace!r} has no rank {proc.rank}", procs=(proc,))
        return process

    def register_resources(self, infos: Iterable[Info]) -> None:
        """See `ServerSession.register_resources`."""
        self.resources.update({info.key: info for info in infos})
        for namespace in self:
            namespace.changed()

    def deregister_resources(self, infos: Iterable[Info]) -> None:
        """See `ServerSession.deregister_resources`."""
        for info in infos:
            self.resources.pop(info.key, None)
        for namespace in self:
            namespace.changed()

    def store_internal(self, proc: Proc, key: str, value: Value) -> None:
        """See `ServerSession.store_internal`.

        Raises:
            NotFound: The nspace, or the rank in it, is not known.
        """
        namespace = self._nspaces.get(proc.nspace)
        if namespace is not None and proc.rank == RANK_WILDCARD:
            namespace.keep(Info(key, value))
        else:
            self.process(proc).keep(key, value)

    def psets_of(self, proc: Proc) -> list[str]:
        """Return the process sets that a proc is in."""
        from pypmix.engine.psets import names_of

        return names_of(self.psets, proc)

    def keys_of(self, name: str) -> list[str]:
        """Return the keys in `groups` of the groups of a name."""
        return [*((name,) if name in self.groups else ()), *self.namesakes.get(name, ())]

    def key_of(self, name: str, proc: Proc) -> str | None:
        """Return the key of the group of a name that a proc is in, None if it is not in such a group."""
        return next((key for key in self.keys_of(name) if proc in self.groups[key]), None)

    def free_key(self, name: str) -> str:
        """Return a free key for a further group of a name."""
        if name not in self.groups:
            return name
        namesakes = self.namesakes.setdefault(name, [])
        # Among so many numbers one is free, and nearly always the first.
        first = len(namesakes) + 1
        keys = (f"{name}\0{number}" for number in range(first, first + len(namesakes) + 1))
        key = next(key for key in keys if key not in self.groups)
        namesakes.append(key)
        return key

    def put_group(self, key: str, members: tuple[Proc, ...]) -> None:
        """Add a group, or change its members."""
        before = self.groups.get(key)
        if before is None:
            self._memberships = None
        elif self._memberships is not None:
            for proc in set(members).difference(before):
                self._memberships.setdefault(proc, []).append(key)
        self.groups[key] = members

    def keys_with(self, proc: Proc) -> list[str]:
        """Return the keys of the groups and connections that a proc is in.

        A search of all groups for each proc that ends would grow with their product.
        """
        if self._memberships is None:
            self._memberships = {}
            for key, members in self.groups.items():
                for member in members:
                    self._memberships.setdefault(member, []).append(key)
        groups = self.groups
        return [key for key in self._memberships.get(proc, ()) if proc in groups.get(key, ())]

    def forget_group(self, key: str) -> None:
        """Remove a group."""
        self.groups.pop(key, None)
        self.connections.pop(key, None)
        self._addresses.pop(key, None)
        if not self.namesakes:
            return
        name = key.partition("\0")[0]
        keys = self.namesakes.get(name, [])
        if key in keys:
            keys.remove(key)
            if not keys:
                del self.namesakes[name]

    def resolve(self, procs: Iterable[Proc], caller: Proc) -> tuple[Proc, ...]:
        """Return procs as known here: the caller may be in one of several groups of a name, or name its cluster."""
        if self.aliases:
            procs = self.plain(procs)
        if not self.namesakes:
            return tuple(procs)
        return tuple([Proc.unchecked(self.key_of(proc.nspace, caller) or proc.nspace, proc.rank) for proc in procs])

    def plain(self, procs: Iterable[Proc]) -> list[Proc]:
        """Return procs with this cluster's own names for its procs."""
        aliases = self.aliases
        return [Proc.unchecked(aliases[proc.nspace], proc.rank) if proc.nspace in aliases else proc for proc in procs]

    def groups_of(self, proc: Proc) -> list[str]:
        """Return the groups that a proc is in."""
        return [key.partition("\0")[0] for key in self.keys_with(proc) if key not in self.connections]

    def proper_groups(self) -> Iterable[tuple[str, tuple[Proc, ...]]]:
        """Return the groups with their members, without connections."""
        if not self.connections:
            return self.groups.items()
        return [(key, members) for key, members in self.groups.items() if key not in self.connections]

    def find(self, proc: Proc) -> Process | None:
        """Return a proc, None if it is not known."""
        namespace = self._nspaces.get(proc.nspace)
        return None if namespace is None else namespace.processes.get(proc.rank)

    def here(self, proc: Proc) -> Process | None:
        """Return a proc of this server, None if it is not one."""
        process = self.find(proc)
        return process if process is not None and process.local else None

    def expand(self, procs: Iterable[Proc], remote: bool = False) -> tuple[frozenset[Process], frozenset[Proc]]:
        """Return the named procs of this server and of others; the wildcard names all procs of an nspace.

        Args:
            procs: The procs.
            remote: Whether unknown nspaces are assumed to be of other servers.

        Raises:
            NotFound: A proc is not known.
            PMIxError: No proc is named, or a special rank that is not valid here (`ERR_BAD_PARAM`).
        """
        members: set[Process] = set()
        others: set[Proc] = set()
        procs = tuple(procs)
        if len(procs) == 1 and procs[0].rank == RANK_WILDCARD and procs[0].nspace in self.groups:
            return self.address(procs[0].nspace)
        for proc in procs:
            if proc.nspace in self.groups:
                # The members of a group are known, even if nothing else of it is.
                more = self.expand(self.ungrouped((proc,)), remote=True)
                members |= more[0]
                others |= more[1]
                continue
            namespace = self._nspaces.get(proc.nspace)
            if proc.rank > RANK_VALID and proc.rank not in (RANK_WILDCARD, RANK_LOCAL_PEERS):
                raise PMIxError("this rank names no proc here", status=statuses.ERR_BAD_PARAM, procs=(proc,))
            if namespace is None:
                if not remote or not proc.nspace:
                    raise NotFound(f"no nspace {proc.nspace!r} is registered here", procs=(proc,))
                others.add(proc)
                continue
            found = (self.process(proc),) if proc.rank <= RANK_VALID else namespace.processes.values()
            for process in found:
                if process.local:
                    members.add(process)
                elif proc.rank != RANK_LOCAL_PEERS:
                    others.add(process.proc)
        if not members and not others:
            raise PMIxError("no procs are named", status=statuses.ERR_BAD_PARAM)
        return frozenset(members), frozenset(others)

    def address(self, name: str) -> tuple[frozenset[Process], frozenset[Proc]]:
        """Return the members of a group that are of this server, and the other members."""
        members = self.groups[name]
        known = self._addresses.get(name)
        if known is None or known[0] is not members:
            known = members, self.expand(members, remote=True)
            self._addresses.put(name, known)
        return known[1]

    def remember_members(self, name: str, members: frozenset[Process], remote: frozenset[Proc]) -> None:
        """Remember the processes of a group's members, if they have been found already."""
        self._addresses.put(name, (self.groups[name], (members, remote)))

    def ungrouped(self, procs: Iterable[Proc]) -> Iterator[Proc]:
        """Yield the procs, with procs that are named by a group under their own names."""
        if not self.groups:
            yield from procs
            return
        for proc in procs:
            members = self.groups.get(proc.nspace)
            if members is None:
                yield proc
            elif proc.rank in (RANK_WILDCARD, RANK_LOCAL_PEERS):
                yield from members
            elif proc.nspace in self.connections:
                # A proc that has ended leaves its rank vacant there.
                yield self.connections[proc.nspace].member(proc.rank)
            elif proc.rank < len(members):
                yield members[proc.rank]
            else:
                raise NotFound(f"the group {proc.nspace!r} has no rank {proc.rank}", procs=(proc,))

    def native(self, infos: tuple[Info, ...], *keys: str) -> tuple[Info, ...]:
        """Return infos in which procs named by a group are replaced by the members, under some keys.

        Raises:
            NotFound: A group has no such rank.
        """
        if not (self.groups or self.aliases) or not any(info.key in keys for info in infos):
            return infos
        return tuple([self._native(info) if info.key in keys else info for info in infos])

    def _native(self, info: Info) -> Info:
        data = info.value.data
        if isinstance(data, Proc) and data.nspace in self.aliases:
            return Info(info.key, Value(codes.PROC, self.plain((data,))[0]), info.flags)
        if isinstance(data, DataArray) and data.type == codes.PROC and self.aliases:
            info = Info(info.key, _procs(tuple(self.plain(data.items))), info.flags)
            data = info.value.data
        if isinstance(data, Proc) and data.nspace in self.groups:
            found = tuple(self.ungrouped((data,)))
            value = Value(codes.PROC, found[0]) if data.rank <= RANK_VALID else _procs(found)
        elif isinstance(data, DataArray) and data.type == codes.PROC:
            if all(proc.nspace not in self.groups for proc in data.items):
                return info
            value = _procs(tuple(dict.fromkeys(self.ungrouped(data.items))))
        else:
            return info
        return Info(info.key, value, info.flags)


def _procs(procs: tuple[Proc, ...]) -> Value:
    return Value(codes.DATA_ARRAY, DataArray(codes.PROC, procs))
