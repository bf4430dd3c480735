"""Answers about jobs that a server has without its host: from the job info that is registered."""

from __future__ import annotations

import os

from pypmix.engine.python.attributes import SERVER, supported
from pypmix.engine.python.datastore import LEVEL_OF
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound
from pypmix.standard.ops.events import RANGE_LOCAL, RANGE_NAMESPACE, RANGE_PROC_LOCAL, matches_any, procs_in
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, ProcInfo, Value, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.python.node import Node
    from pypmix.engine.python.processes import Namespace, Process

    Table = dict[str, Value]

GROUP_ORDER = "pypmix.grp.order"


STATE_UNDEF = 0
STATE_PREPPED = 1
STATE_CONNECTED = 6
STATE_TERMINATED = 20


class _Subject:
    """The subject of a query, as its qualifiers name it."""

    __slots__ = ("appnum", "hostname", "nodeid", "nspace", "process", "qualifiers", "rank", "session")

    def __init__(self, process: Process, qualifiers: tuple[Info, ...]) -> None:
        self.process = process
        self.qualifiers = qualifiers
        values = {info.key: info.value.data for info in qualifiers}
        proc = values.get(keys.PROCID)
        if not isinstance(proc, Proc):
            proc = Proc.unchecked("", RANK_WILDCARD)
        nspace, rank = values.get(keys.NSPACE, proc.nspace), values.get(keys.RANK, proc.rank)
        self.nspace: str | None = nspace if isinstance(nspace, str) and nspace else None
        self.rank: int | None = rank if isinstance(rank, int) and rank != RANK_WILDCARD else None
        self.hostname = values.get(keys.HOSTNAME)
        self.nodeid = values.get(keys.NODEID)
        self.appnum = values.get(keys.APPNUM)
        self.session = values.get(keys.SESSION_ID)


class Knowledge:
    """Answers from the registered job info.

    Args:
        server: The machine.
    """

    def __init__(self, server: Node) -> None:
        self._server = server
        self._answers: dict[str, Callable[[_Subject], Value | None]] = {
            keys.QUERY_NAMESPACES: self._nspaces,
            keys.QUERY_NAMESPACE_INFO: self._nspace_info,
            keys.QUERY_PROC_TABLE: self._table,
            keys.QUERY_LOCAL_PROC_TABLE: self._local_table,
            keys.QUERY_RESOLVE_PEERS: self._resolved_peers,
            keys.QUERY_RESOLVE_NODE: self._resolved_nodes,
            keys.QUERY_NUM_PSETS: self._pset_count,
            keys.QUERY_PSET_NAMES: self._pset_names,
            keys.QUERY_PSET_MEMBERSHIP: self._pset_members,
            keys.QUERY_NUM_GROUPS: self._group_count,
            keys.QUERY_GROUP_NAMES: self._group_names,
            keys.QUERY_GROUP_MEMBERSHIP: self._group_members,
            keys.QUERY_SUPPORTED_KEYS: self._keys,
            keys.SERVER_PIDINFO: lambda subject: Value.unchecked(codes.PID, os.getpid()),
            keys.QUERY_ATTRIBUTE_SUPPORT: self._support,
        }

    def answer(self, process: Process, key: str, qualifiers: tuple[Info, ...]) -> Value | None:
        """Return the server's own answer to a query, None if it has none.

        Args:
            process: The asking proc.
            key: The key of the query.
            qualifiers: The qualifiers of the query; they name the asking proc's own job by default.
        """
        subject = _Subject(process, qualifiers)
        known = self._answers.get(key)
        return known(subject) if known is not None else self._registered(subject, key)

    def combined(self, process: Process, key: str, qualifiers: tuple[Info, ...], theirs: Value) -> Value:
        """Return the host's answer, joined with the server's own for queries of supported keys and attributes."""
        if key not in (keys.QUERY_SUPPORTED_KEYS, keys.QUERY_ATTRIBUTE_SUPPORT):
            return theirs
        own = self.answer(process, key, qualifiers)
        if own is None or own.type != theirs.type:
            return theirs
        if key == keys.QUERY_SUPPORTED_KEYS:
            names = dict.fromkeys([*str(theirs.data).split(","), *str(own.data).split(",")])
            return Value.unchecked(codes.STRING, ",".join([name for name in names if name]))
        return _array(codes.INFO, [*theirs.data.items, *own.data.items]) if theirs.data.type == codes.INFO else theirs

    def peers(self, process: Process, node: str | None, nspace: str | None) -> tuple[Proc, ...]:
        """Return the procs of an nspace, by default of all, on a node, by default the node of the asking proc.

        Raises:
            NotFound: The nspace is not known here.
        """
        node = node or self._home(process)
        found = []
        for space in self._spaces(nspace):
            known = _node(space, node, None)
            names = [node] if known is None else _names(known)
            found += [Proc(space.name, rank) for rank, name in _hosts(space).items() if name in names]
        return tuple(found)

    def nodes(self, nspace: str | None) -> tuple[str, ...]:
        """Return the nodes on which the procs of an nspace, by default of all, run.

        Raises:
            NotFound: The nspace is not known here.
        """
        return tuple(dict.fromkeys([name for space in self._spaces(nspace) for name in _hosts(space).values()]))

    def _home(self, process: Process) -> str | None:
        """Return the node of a proc; the node of a tool is this server's node."""
        name = _hosts(process.namespace).get(process.proc.rank)
        if name is not None:
            return name
        for space in self._jobs():
            for rank, host in _hosts(space).items():
                if space.processes[rank].uid >= 0:
                    return host
        return None

    def _jobs(self) -> list[Namespace]:
        """Return the nspaces of jobs; the nspaces of tools have no job info."""
        return [namespace for namespace in self._server.store if namespace.job.job]

    def _spaces(self, nspace: str | None) -> list[Namespace]:
        if not nspace:
            return self._jobs()
        namespace = self._server.store.get(nspace)
        if namespace is None:
            raise NotFound(f"no nspace {nspace!r} is registered here", status=statuses.ERR_INVALID_NAMESPACE)
        return [namespace]

    def _namespace(self, subject: _Subject) -> Namespace | None:
        return self._server.store.get(subject.nspace) if subject.nspace else subject.process.namespace

    # The answers to keys that need a function each.

    def _nspaces(self, subject: _Subject) -> Value:
        return Value.unchecked(codes.STRING, ",".join([namespace.name for namespace in self._jobs()]))

    def _nspace_info(self, subject: _Subject) -> Value | None:
        spaces = [self._namespace(subject)] if subject.nspace else self._jobs()
        arrays = []
        for namespace in spaces:
            if namespace is None:
                return None
            name = Info(keys.NSPACE, Value.unchecked(codes.STRING, namespace.name))
            values = [info for info in namespace.job.job if info.key != keys.NSPACE]
            arrays.append(Info(keys.JOB_INFO_ARRAY, _array(codes.INFO, [name, *values])))
        return _array(codes.INFO, arrays)

    def _table(self, subject: _Subject) -> Value | None:
        namespace = self._namespace(subject)
        return None if namespace is None else self._rows(namespace, namespace.processes.values())

    def _local_table(self, subject: _Subject) -> Value | None:
        namespace = self._namespace(subject)
        if namespace is None:
            return None
        return self._rows(namespace, [process for process in namespace.processes.values() if process.uid >= 0])

    def _rows(self, namespace: Namespace, processes: Iterable[Process]) -> Value:
        hosts = _hosts(namespace)
        rows = [ProcInfo(each.proc, hosts.get(each.proc.rank), None, 0, self._state(each)) for each in processes]
        return _array(codes.PROC_INFO, rows)

    def _state(self, process: Process) -> int:
        if process.left:
            return STATE_TERMINATED
        if self._server.peers(process):
            return STATE_CONNECTED
        return STATE_PREPPED if process.registered else STATE_UNDEF

    def _resolved_peers(self, subject: _Subject) -> Value | None:
        node = subject.hostname if isinstance(subject.hostname, str) else None
        try:
            return _array(codes.PROC, self.peers(subject.process, node, subject.nspace))
        except NotFound:
            return None

    def _resolved_nodes(self, subject: _Subject) -> Value | None:
        try:
            return Value.unchecked(codes.STRING, ",".join(self.nodes(subject.nspace)))
        except NotFound:
            return None

    def _groups(self, subject: _Subject) -> dict[str, tuple[Proc, ...]]:
        """Return the groups in the range of a query, by default all groups of the session."""
        values = {info.key: info.value.data for info in subject.qualifiers}
        range = values.get(keys.RANGE, RANGE_SESSION)
        own = subject.process.proc
        try:
            custom = procs_in(subject.qualifiers, keys.EVENT_CUSTOM_RANGE) or ()
        except TypeError:
            custom = ()
        groups: dict[str, tuple[Proc, ...]] = {}
        for key, members in self._server.store.proper_groups():
            if range == RANGE_LOCAL:
                there = any((process := self._server.store.find(each)) and process.local for each in members)
            elif range == RANGE_NAMESPACE:
                there = any(each.nspace == own.nspace for each in members)
            elif range == RANGE_PROC_LOCAL:
                there = own in members
            elif range == RANGE_CUSTOM:
                there = any(matches_any(each, custom) for each in members)
            else:
                there = True
            if there:
                # If several groups have one name, the asking proc's own group has precedence.
                name = key.partition("\0")[0]
                groups[name] = members if name not in groups or own in members else groups[name]
        return groups

    def _group_count(self, subject: _Subject) -> Value:
        return Value.unchecked(codes.SIZE, len(self._groups(subject)))

    def _group_names(self, subject: _Subject) -> Value:
        return _array(codes.STRING, self._groups(subject))

    def _group_members(self, subject: _Subject) -> Value | None:
        name = next((info.value.data for info in subject.qualifiers if info.key == keys.GROUP_ID), None)
        members = self._groups(subject).get(name) if isinstance(name, str) else None
        if members is None:
            return None
        if any(info.key == GROUP_ORDER for info in subject.qualifiers):
            # Its library has not returned the members of the construct; some may have left since.
            key = self._server.store.key_of(str(name), subject.process.proc)
            members = (self._server.groups.formed(key) if key is not None else ()) or members
        return _array(codes.PROC, members)

    def _pset_count(self, _subject: _Subject) -> Value:
        return Value.unchecked(codes.SIZE, len(self._server.store.psets))

    def _pset_names(self, _subject: _Subject) -> Value:
        return Value.unchecked(codes.STRING, ",".join(self._server.store.psets))

    def _pset_members(self, subject: _Subject) -> Value | None:
        name = next((info.value.data for info in subject.qualifiers if info.key == keys.PSET_NAME), None)
        members = self._server.store.psets.get(name) if isinstance(name, str) else None
        return None if members is None else _array(codes.PROC, members)

    def _keys(self, subject: _Subject) -> Value:
        return Value.unchecked(codes.STRING, ",".join(self._answers))

    def _support(self, subject: _Subject) -> Value | None:
        attributes = supported(SERVER, subject.qualifiers)
        return _array(codes.INFO, attributes) if attributes else None

    # Values of the job info under the key of a query.

    def _registered(self, subject: _Subject, key: str) -> Value | None:
        namespace = self._namespace(subject)
        if namespace is None:
            return None
        job = namespace.job
        if subject.rank is not None:
            return next((_find(infos, key) for rank, infos in job.procs if rank == subject.rank), None)
        level = LEVEL_OF.get(key, "")
        if level == "node" or subject.hostname is not None or subject.nodeid is not None:
            name = subject.hostname
            if name is None and subject.nodeid is None:
                name = self._home(subject.process)
            node = _node(namespace, name, subject.nodeid)
            return None if node is None else _find(node, key)
        if level == "app" or subject.appnum is not None:
            appnum = subject.appnum or 0
            return next((_find(app, key) for app in job.apps if _data(app, keys.APPNUM) in (None, appnum)), None)
        for session in job.sessions:
            if subject.session in (None, _data(session, keys.SESSION_ID)):
                value = _find(session, key)
                if value is not None:
                    return value
        value = _find(job.job, key)
        if value is None and key in self._server.store.resources:
            value = self._server.store.resources[key].value
        return value


def _array(type: int, items: Iterable[object]) -> Value:
    return Value.unchecked(codes.DATA_ARRAY, DataArray(type, tuple(items)))


def _find(infos: Iterable[Info], key: str) -> Value | None:
    return next((info.value for info in infos if info.key == key), None)


def _data(infos: Iterable[Info], key: str) -> object:
    value = _find(infos, key)
    return None if value is None else value.data


def _names(node: Iterable[Info]) -> list[str]:
    """Return the name of a node, and its aliases."""
    node = tuple(node)
    name, aliases = _data(node, keys.HOSTNAME), _data(node, keys.HOSTNAME_ALIASES)
    return [*([name] if isinstance(name, str) else ()), *(aliases.split(",") if isinstance(aliases, str) else ())]


def _node(namespace: Namespace, name: object, nodeid: object) -> tuple[Info, ...] | None:
    """Return the registered infos of a node, found by its name or its number."""
    for node in namespace.job.nodes:
        if (name is not None and name in _names(node)) or (nodeid is not None and _data(node, keys.NODEID) == nodeid):
            return node
    return None


def _local(node: Iterable[Info]) -> list[int]:
    """Return the registered ranks of a node."""
    text = _data(node, keys.LOCAL_PEERS)
    found = [decimal(rank) for rank in str(text).split(",")] if text else []
    return sorted([rank for rank in found if rank is not None])


def _hosts(namespace: Namespace) -> dict[int, str]:
    """Return the name of the node of each rank of which it is known, by rank."""
    job = namespace.job
    found: dict[int, str] = {}
    named: dict[object, str] = {}
    for node in job.nodes:
        for name in _names(node)[:1]:
            named[_data(node, keys.NODEID)] = name
            found.update(dict.fromkeys(_local(node), name))
    for rank, infos in job.procs:
        host = _data(infos, keys.HOSTNAME) or named.get(_data(infos, keys.NODEID))
        if isinstance(host, str):
            found[rank] = host
    return {rank: found[rank] for rank in sorted(found)}
