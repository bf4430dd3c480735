"""The values that a client has without a request: its own puts, fetched values, and the job info of each nspace.

Theory of operation
-------------------
The store answers `PMIx_Get` as natives' `hash` store does, level by level. The values of a proc are in a table under
the proc, the values of the job under `Rank.WILDCARD`; the committed values of peers, nodes, applications and sessions
have separate tables. `LEVEL_OF` says which keys belong to nodes, applications and sessions unless a directive says
otherwise; a value that a server sends at another level is found there too.

- `lookup` is the short way for a get without directives: a look into the tables of its proc, which have nearly all
  values. `find` does the rest, with the directives of the get (`GetDirectives`). Both return None for a missing value,
  and the state machine asks the server then. Its answer is stored by `fetched`. A collecting fence drops the values
  that the participants had committed before (`renew`), since they may have committed other values under the same keys.
- Own values are kept twice: in the own table, for gets, and by scope, for the next commit (`unsent`) and for gets of
  one scope. A commit that has arrived removes its values from `unsent` (`delivered`), but not values put since then.
- The info of each proc of a big job stays packed until the first get for that proc (`_unpack`), and compressed values
  until they are read (`_inflated`): both may be much larger than the received bytes.

Nothing here waits, and the state machine's lock serialises all but `lookup` and `find`. These may run beside a change
on another thread: each table is changed by one assignment at a time.
"""

from __future__ import annotations

from pypmix.standard import codes, keys, types
from pypmix.standard.errors import NotSupported, RemoteProtocolError
from pypmix.standard.ops import (
    DEL_LOCAL,
    DEL_REMOTE,
    DELETES,
    RESERVED_PREFIX,
    SCOPE_GLOBAL,
    SCOPE_INTERNAL,
    SCOPE_LOCAL,
    SCOPE_REMOTE,
)
from pypmix.standard.types import DataArray, Proc, Value
from pypmix.standard.values import to_python
from pypmix.wire.codec import Unpacker, kvals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Info

    Table = dict[str, Value]
    KeyedValues = Iterable[tuple[str, Value]]

# Importing `attrs` costs more than the rest of a client's start: the few keys that the rules need are listed here.

CHANGING = frozenset((keys.PSET_NAMES, keys.GROUP_NAMES))
"""Keys of procs whose values change."""

NODE_KEYS = frozenset(
    {
        keys.HOSTNAME,
        keys.HOSTNAME_ALIASES,
        keys.NODEID,
        keys.AVAIL_PHYS_MEMORY,
        keys.LOCAL_PEERS,
        keys.LOCAL_PROCS,
        keys.LOCAL_CPUSETS,
        keys.LOCAL_SIZE,
        keys.NODE_SIZE,
        keys.LOCALLDR,
        keys.NODE_OVERSUBSCRIBED,
        keys.FABRIC_DEVICES,
        keys.FABRIC_COORDINATES,
        keys.FABRIC_DEVICE_COORDINATES_7_0,
        keys.FABRIC_DEVICE,
        keys.FABRIC_DEVICE_INDEX,
        keys.FABRIC_DEVICE_NAME,
        keys.FABRIC_DEVICE_VENDOR,
        keys.FABRIC_DEVICE_BUS_TYPE,
        keys.FABRIC_DEVICE_VENDORID,
        keys.FABRIC_DEVICE_DRIVER,
        keys.FABRIC_DEVICE_FIRMWARE,
        keys.FABRIC_DEVICE_ADDRESS,
        keys.FABRIC_DEVICE_MTU,
        keys.FABRIC_DEVICE_SPEED,
        keys.FABRIC_DEVICE_STATE,
        keys.FABRIC_DEVICE_TYPE,
        keys.FABRIC_DEVICE_PCI_DEVID,
    }
)
"""Keys that are about a node unless a directive says otherwise."""

APP_KEYS = frozenset(
    {
        keys.APP_SIZE,
        keys.APPLDR,
        keys.APP_ARGV,
        keys.WDIR,
        keys.PSET_NAME,
        keys.PSET_MEMBERS,
        keys.APP_MAP_TYPE,
        keys.APP_MAP_REGEX,
    }
)
"""Keys that are about an application."""

SESSION_KEYS = frozenset(
    {
        keys.SESSION_ID,
        keys.CLUSTER_ID,
        keys.UNIV_SIZE,
        keys.TMPDIR,
        keys.TDIR_RMCLEAN,
        keys.HOSTNAME_KEEP_FQDN,
        keys.RM_NAME,
        keys.RM_VERSION,
    }
)
"""Keys that are about a session."""

LEVEL_OF = dict.fromkeys(NODE_KEYS, "node") | dict.fromkeys(APP_KEYS, "app") | dict.fromkeys(SESSION_KEYS, "session")
LEVEL_BY_DIRECTIVE = {keys.NODE_INFO: "node", keys.APP_INFO: "app", keys.SESSION_INFO: "session", keys.JOB_INFO: "job"}

_NESTED = frozenset(
    {
        keys.NODE_INFO_ARRAY,
        keys.APP_INFO_ARRAY,
        keys.SESSION_INFO_ARRAY,
        keys.PROC_INFO_ARRAY,
        keys.QUALIFIED_VALUE,
    }
)
"""Keys whose values hold others."""

QUALIFIER_FLAG = 8

_VALID = types.RANK_VALID
_WILDCARD = types.RANK_WILDCARD
_UNDEF = types.RANK_UNDEF


class GetDirectives:
    """The directives of a get, read once."""

    __slots__ = (
        "appnum",
        "hostname",
        "immediate",
        "level",
        "nodeid",
        "optional",
        "qualifiers",
        "refresh",
        "scope",
        "session",
        "timeout",
    )

    def __init__(self, directives: tuple[Info, ...] = ()) -> None:
        self.optional = self.immediate = self.refresh = False
        self.timeout = 0
        self.scope = 0
        self.level = ""
        self.hostname: str | None = None
        self.nodeid: int | None = None
        self.appnum: int | None = None
        self.session: int | None = None
        self.qualifiers: frozenset[tuple[str, object]] = frozenset()
        for info in directives:
            self._read(info)

    def _read(self, info: Info) -> None:
        key, value, flags = info
        if flags & QUALIFIER_FLAG:
            self.qualifiers |= {(key, value.data)}
        elif key == keys.OPTIONAL:
            self.optional = is_true(value)
        elif key == keys.IMMEDIATE:
            self.immediate = is_true(value)
        elif key == keys.GET_REFRESH_CACHE:
            self.refresh = is_true(value)
        elif key == keys.TIMEOUT:
            self.timeout = seconds(value)
        elif key == keys.DATA_SCOPE:
            self.scope = int(value.data)
        elif key in LEVEL_BY_DIRECTIVE:
            if is_true(value):
                self.level = LEVEL_BY_DIRECTIVE[key]
        elif key == keys.HOSTNAME:
            self.hostname = value.data
        elif key == keys.NODEID:
            self.nodeid = int(value.data)
        elif key == keys.APPNUM:
            self.appnum = int(value.data)
        elif key == keys.SESSION_ID:
            self.session = int(value.data)

    @property
    def scoped(self) -> bool:
        """Whether only a part of a peer's data is asked for, so that values fetched before cannot answer it."""
        return self.scope in (SCOPE_LOCAL, SCOPE_REMOTE)


PLAIN = GetDirectives()
_EMPTY: Table = {}
_NOTHING: dict[int, bytes] = {}


def is_true(value: Value) -> bool:
    """Read a flag: natives take an info without a value as true, and the strings that C programs use."""
    if value.type == codes.UNDEF:
        return True
    if isinstance(value.data, str):
        return value.data.strip().lower() not in ("", "0", "f", "false", "n", "no")
    return bool(value.data)


def seconds(value: Value) -> int:
    """Read a timeout; 0 means none."""
    return max(0, int(value.data))


class DataStore:
    """All that one client knows.

    Args:
        proc: The client itself.
        hostname: The name of its node.
        release: The server's, for `VERSION_NUMERIC`.
    """

    def __init__(self, proc: Proc, hostname: str, release: Release) -> None:
        self.proc = proc
        self.hostname = hostname
        self._procs: dict[Proc, Table] = {proc: {}}
        self._own_values = self._procs[proc]
        self._scoped: dict[int, Table] = {SCOPE_LOCAL: {}, SCOPE_REMOTE: {}}
        # Deletions first: a key that is deleted and put again is there.
        self._unsent: dict[int, dict[str, bytes]] = {DEL_LOCAL: {}, DEL_REMOTE: {}, SCOPE_LOCAL: {}, SCOPE_REMOTE: {}}
        self._qualified: dict[tuple[Proc, str], dict[frozenset[tuple[str, object]], Value]] = {}
        self._nodes: dict[str, list[Table]] = {}
        self._apps: dict[str, list[Table]] = {}
        self._sessions: dict[str, list[Table]] = {}
        # The tables of nodes, apps and sessions by their names or numbers: a big job has many nodes.
        self._named: dict[tuple[str, str, object], Table] = {}
        self._packed: dict[str, dict[int, bytes]] = {}
        self._form: tuple[int, Release] = (1, release)
        self._fetched: dict[Proc, Table] = {}
        major, minor, patch = release
        self._version = Value.unchecked(codes.UINT32, major << 16 | minor << 8 | patch)

    def put(self, key: str, value: Value, scope: int, packed: bytes) -> None:
        """Keep an own value; `packed` is its form in a commit, empty if it stays private."""
        if packed:
            for block in (SCOPE_LOCAL, SCOPE_REMOTE):
                if scope in (block, SCOPE_GLOBAL):
                    self._scoped[block][key] = value
                    self._unsent[block][key] = packed
        self._own_values[key] = value

    def delete(self, key: str, scope: int, packed: bytes) -> None:
        """Drop an own value; `packed` is the form of its deletion in a commit, empty if it stays private."""
        for deletion, block in ((DEL_LOCAL, SCOPE_LOCAL), (DEL_REMOTE, SCOPE_REMOTE)):
            if DELETES[scope] in (block, SCOPE_GLOBAL):
                self._scoped[block].pop(key, None)
                self._unsent[block].pop(key, None)
                if packed:
                    self._unsent[deletion][key] = packed
        if not any(key in table for table in self._scoped.values()):
            self._own_values.pop(key, None)

    def drop(self, proc: Proc, key: str) -> None:
        """Forget a value that its proc has deleted."""
        if proc != self.proc:
            self._table(proc).pop(key, None)
            self._fetched.get(proc, _EMPTY).pop(key, None)

    def keep(self, key: str, value: Value) -> None:
        """Keep a value of this process that is not committed."""
        self._own_values[key] = value

    def unsent(self) -> list[tuple[int, dict[str, bytes]]]:
        """Return copies of the values that no commit has delivered yet, by block, in the order of the wire."""
        return [(scope, dict(values)) for scope, values in self._unsent.items() if values]

    def delivered(self, blocks: Iterable[tuple[int, dict[str, bytes]]]) -> None:
        """Forget the values that a commit has delivered, except for values that were put again in the meantime."""
        for scope, sent in blocks:
            values = self._unsent[scope]
            for key, packed in sent.items():
                if values.get(key) is packed:
                    del values[key]

    def add_job(self, job: JobInfo) -> None:
        """Store the job info of an nspace."""
        self.add(Proc.unchecked(job.nspace, _WILDCARD), [(key, value) for key, value, _ in job.job])
        for tables, arrays in ((self._nodes, job.nodes), (self._apps, job.apps), (self._sessions, job.sessions)):
            for infos in arrays:
                self._add_array(tables, job.nspace, infos)
        for rank, infos in job.procs:
            self.add(Proc.unchecked(job.nspace, rank), [(key, value) for key, value, _ in infos])

    def add_job_values(
        self,
        nspace: str,
        values: KeyedValues,
        buffer_type: int,
        release: Release,
        procs: Mapping[int, bytes] | None = None,
    ) -> None:
        """Store the job info of a server.

        The values of each proc stay packed until the first get for that proc: a big job has many procs.

        Args:
            nspace: The job.
            values: The job's values.
            buffer_type: The server's packing, the same each time.
            release: The server's release.
            procs: The packed values of procs, by rank, as `kvals` returns them; `values` may have more of them.
        """
        self._form = buffer_type, release
        if procs:
            self._pack(nspace, procs)
        rest = []
        for key, value in values:
            if key == keys.PROC_BLOB:
                if value.type != codes.BYTE_OBJECT:
                    raise RemoteProtocolError(f"{key} is not a byte object")
                unpacker = Unpacker(value.data, buffer_type, release)
                self._pack(nspace, {unpacker.one(codes.PROC_RANK): unpacker.rest()})
            elif key == keys.MAP_BLOB:
                from pypmix.wire.jobinfo import collect

                self.add_job(collect(nspace, [(key, value)], buffer_type, release))
            else:
                rest.append((key, value))
        self.add(Proc.unchecked(nspace, _WILDCARD), rest)

    def add(self, proc: Proc, values: KeyedValues) -> None:
        """Store the server's values of a proc, or of its job if the rank is WILDCARD."""
        if proc[1] == _UNDEF:
            proc = Proc.unchecked(proc[0], self.proc[1])
        table = self._procs.get(proc)
        if table is None:
            table = self._procs[proc] = {}
        own = table is self._own_values
        for key, value in values:
            if key in _NESTED:
                self._add_nested(proc, key, _items(value))
            elif own:
                # A value that this process has put since then is newer than the server's value.
                table.setdefault(key, value)
            else:
                table[key] = value

    def fetched(self, proc: Proc, values: KeyedValues) -> None:
        """Store the values of a proc from a get, committed values of a peer apart, so that `renew` can drop them."""
        if proc == self.proc or proc[1] > _VALID:
            self.add(proc, values)
            return
        table = self._fetched.setdefault(proc, {})
        reserved = []
        for key, value in values:
            if key.startswith(RESERVED_PREFIX):
                reserved.append((key, value))
            else:
                table[key] = value
        self.add(proc, reserved)

    def renew(self, procs: tuple[Proc, ...]) -> None:
        """Drop the fetched values of procs that have exchanged their data, so that they are asked for again.

        Args:
            procs: The participants, whole jobs by their wildcards; none means all of the own job. Names of groups and
                connections stand for anybody.
        """
        if not self._fetched:
            return
        named = frozenset(procs) or (Proc.unchecked(self.proc[0], _WILDCARD),)
        jobs = {self.proc[0], *[proc[0] for proc in self._fetched]}
        anybody = any(proc[0] not in jobs for proc in procs)
        for proc in [*self._fetched]:
            if anybody or proc in named or (proc[0], _WILDCARD) in named:
                del self._fetched[proc]

    def forget(self, proc: Proc) -> None:
        """Drop the fetched values of a peer, so that they are asked for again."""
        if proc != self.proc and proc[1] != _WILDCARD:
            self._fetched.pop(proc, None)
            table = self._procs.get(proc, {})
            for key in [key for key in table if not key.startswith(RESERVED_PREFIX)]:
                del table[key]

    def lookup(self, proc: Proc, key: str) -> Value | None:
        """Return the value for a get without directives, None if it is not here."""
        table = self._fetched.get(proc)
        if table is None or key not in table:
            table = self._procs.get(proc, _EMPTY)
        value = table.get(key)
        if value is None:
            return self.find(proc, key, PLAIN)
        if value[0] in _COMPRESSED:
            # Inflate only values that are read: a peer's few bytes may inflate to very many.
            value = table[key] = _inflated(value)
        return value

    def find(self, proc: Proc, key: str, directives: GetDirectives) -> Value | None:
        """Return the value for a get with directives, None if it is not here."""
        if not proc[0]:
            proc = Proc.unchecked(self.proc[0], proc[1])
        if directives.qualifiers:
            return self._qualified.get((proc, key), {}).get(directives.qualifiers)
        if proc == self.proc and directives.scoped:
            return self._scoped[directives.scope].get(key)
        if key == keys.VERSION_NUMERIC:
            return self._version
        if key == keys.RANK and proc[1] == types.RANK_INVALID and proc[0] == self.proc[0]:
            return Value.unchecked(codes.PROC_RANK, self.proc[1])
        level = directives.level or LEVEL_OF.get(key, "")
        value = None
        if level == "node":
            value = self._node_value(proc, key, directives)
        elif level == "app":
            value = self._app_value(proc, key, directives)
        elif level == "session":
            value = self._session_value(proc, key, directives)
        elif level == "job":
            proc = Proc.unchecked(proc[0], _WILDCARD)
        if value is None and (not level or level == "job" or not directives.level):
            value = self._plain(proc, key, level)
        return _inflated(value) if value is not None and value[0] in _COMPRESSED else value

    def keys_of(self, proc: Proc) -> list[str]:
        """Return the keys of which values of a proc, or of this process, are here."""
        return [*self._fetched.get(proc, _EMPTY), *self._table(proc), *self._own_values]

    def nspaces(self) -> list[str]:
        """Return the nspaces whose job info is here, the own one first."""
        known = {*self._nodes, *[proc[0] for proc in self._procs if proc[1] == _WILDCARD]}
        return [self.proc[0], *sorted(known - {self.proc[0]})]

    def nodes(self, nspace: str) -> list[str]:
        """Return the names of the nodes on which procs of an nspace run."""
        tables = self._nodes.get(nspace, [])
        used = [
            node for node in tables if node.get(keys.LOCAL_PEERS) or self._count_peers(nspace, node, keys.LOCAL_PEERS)
        ]
        if not used:
            used = [self._table(proc) for proc in self._procs_of(nspace) if proc[1] <= _VALID]
        names = [node[keys.HOSTNAME].data for node in used if keys.HOSTNAME in node]
        return [name for name in dict.fromkeys(names) if isinstance(name, str)]

    def outside_scope(self, key: str, scope: int) -> str:
        """Return the scope under which this process put a key that is not in `scope`, or an empty string."""
        for other, name in ((SCOPE_LOCAL, "LOCAL"), (SCOPE_REMOTE, "REMOTE")):
            if other != scope and key in self._scoped[other]:
                return name
        return "INTERNAL" if key in self._own_values and scope != SCOPE_INTERNAL else ""

    def _plain(self, proc: Proc, key: str, level: str) -> Value | None:
        if proc[1] == _UNDEF:
            return self._anybody(proc[0], key)
        value = self._of(proc, key)
        if value is None and level:
            # Servers may send values of the own node, app or session among the values of the job.
            value = self._of(Proc.unchecked(proc[0], _WILDCARD), key)
        return value

    def _anybody(self, nspace: str, key: str) -> Value | None:
        """Rank UNDEF: the key is unique in the nspace, so the first proc that has it."""
        for proc in self._procs_of(nspace):
            value = self._of(proc, key)
            if value is not None:
                return value
        return None

    def _pack(self, nspace: str, procs: Mapping[int, bytes]) -> None:
        packed = self._packed.setdefault(nspace, {})
        for rank in packed.keys() & procs.keys():
            self._unpack(Proc.unchecked(nspace, rank))
        packed.update(procs)

    def _unpack(self, proc: Proc) -> None:
        packed = self._packed.get(proc[0], _NOTHING)
        data = packed.get(proc[1])
        if data is not None:
            self.add(proc, kvals(data, 0, *self._form))
            packed.pop(proc[1], None)

    def _table(self, proc: Proc) -> Table:
        if self._packed:
            self._unpack(proc)
        return self._procs.get(proc, _EMPTY)

    def _procs_of(self, nspace: str) -> list[Proc]:
        """Return the procs of an nspace with known values, all of them unpacked."""
        for rank in list(self._packed.get(nspace, ())):
            self._unpack(Proc.unchecked(nspace, rank))
        return sorted({proc for proc in (*self._procs, *self._fetched) if proc[0] == nspace})

    def _add_nested(self, proc: Proc, key: str, infos: tuple[Info, ...]) -> None:
        if key == keys.NODE_INFO_ARRAY:
            self._add_array(self._nodes, proc[0], infos)
        elif key == keys.APP_INFO_ARRAY:
            self._add_array(self._apps, proc[0], infos)
        elif key == keys.SESSION_INFO_ARRAY:
            self._add_array(self._sessions, proc[0], infos)
        elif key == keys.PROC_INFO_ARRAY:
            self._add_proc_data(proc[0], infos)
        else:
            self._add_qualified(proc, infos)

    def _add_array(self, tables: dict[str, list[Table]], nspace: str, infos: Iterable[Info]) -> None:
        new = {key: value for key, value, _ in infos}
        name = keys.NODEID if tables is self._nodes else keys.APPNUM if tables is self._apps else keys.SESSION_ID
        names = (name, keys.HOSTNAME) if tables is self._nodes else (name,)
        places = [
            (nspace, name, new[name].data) for name in names if name in new and isinstance(new[name].data, int | str)
        ]
        table = next((self._named[place] for place in places if place in self._named), None)
        if table is None:
            tables.setdefault(nspace, []).append(new)
            table = new
        else:
            table.update(new)
        for place in places:
            self._named[place] = table

    def _add_proc_data(self, nspace: str, infos: tuple[Info, ...]) -> None:
        if infos and infos[0].key == keys.RANK:
            self.add(Proc.unchecked(nspace, infos[0].value.data), [(key, value) for key, value, _ in infos[1:]])

    def _add_qualified(self, proc: Proc, infos: tuple[Info, ...]) -> None:
        if infos:
            key, value, _ = infos[0]
            qualifiers = frozenset([(name, given.data) for name, given, _ in infos[1:]])
            self._qualified.setdefault((proc, key), {})[qualifiers] = value

    def _of(self, proc: Proc, key: str) -> Value | None:
        return self._fetched.get(proc, _EMPTY).get(key) or self._table(proc).get(key)

    def _node_value(self, proc: Proc, key: str, directives: GetDirectives) -> Value | None:
        nspace, rank = proc
        host, nodeid = directives.hostname, directives.nodeid
        if host is None and nodeid is None:
            if rank > _VALID:
                proc = Proc.unchecked(self.proc[0], self.proc[1])
            known = self._of(proc, keys.HOSTNAME)
            host = known.data if known is not None else self.hostname if proc == self.proc else None
            known = self._of(proc, keys.NODEID)
            nodeid = known.data if known is not None else None
        node = self._node(nspace, host, nodeid)
        if node is not None:
            value = node.get(key)
            if value is None and key in (keys.LOCAL_PEERS, keys.LOCAL_SIZE):
                value = self._count_peers(nspace, node, key)
            if value is not None:
                return value
        if key == keys.HOSTNAME and host is not None:
            return Value.unchecked(codes.STRING, host)
        if key == keys.NODEID and nodeid is not None:
            return Value.unchecked(codes.UINT32, nodeid)
        return None

    def _node(self, nspace: str, host: str | None, nodeid: int | None) -> Table | None:
        place = (nspace, keys.NODEID, nodeid) if nodeid is not None else (nspace, keys.HOSTNAME, host)
        if place in self._named:
            return self._named[place]
        for node in self._nodes.get(nspace, ()):
            number = node.get(keys.NODEID)
            if nodeid is not None and number is not None:
                if number.data == nodeid:
                    return node
            elif host is not None:
                name, aliases = node.get(keys.HOSTNAME), node.get(keys.HOSTNAME_ALIASES)
                if name is not None and name.data == host:
                    return node
                if aliases is not None and host in str(aliases.data).split(","):
                    return node
        return None

    def _count_peers(self, nspace: str, node: Table, key: str) -> Value | None:
        """Return the ranks of a node or their number from each proc's node, for servers that give only that."""
        ranks = []
        for proc in self._procs_of(nspace):
            if proc[1] <= _VALID:
                table = self._table(proc)
                name = keys.NODEID if keys.NODEID in node and keys.NODEID in table else keys.HOSTNAME
                if _same(table, node, name):
                    ranks.append(proc[1])
        if not ranks:
            return None
        if key == keys.LOCAL_SIZE:
            return Value.unchecked(codes.UINT32, len(ranks))
        return Value.unchecked(codes.STRING, ",".join(map(str, sorted(ranks))))

    def _app_value(self, proc: Proc, key: str, directives: GetDirectives) -> Value | None:
        nspace, rank = proc
        appnum = directives.appnum
        if appnum is None:
            known = self._of(proc if rank <= _VALID else self.proc, keys.APPNUM)
            if known is None and rank <= _VALID and proc != self.proc:
                return None
            appnum = 0 if known is None else known.data
        if key == keys.APPNUM:
            return Value.unchecked(codes.UINT32, appnum)
        for app in self._apps.get(nspace, ()):
            number = app.get(keys.APPNUM)
            if (0 if number is None else number.data) == appnum:
                return app.get(key)
        return None

    def _session_value(self, proc: Proc, key: str, directives: GetDirectives) -> Value | None:
        number = directives.session
        if number is None:
            known = self._of(Proc.unchecked(proc[0], _WILDCARD), keys.SESSION_ID)
            number = None if known is None else known.data
        for session in self._sessions.get(proc[0], ()):
            own = session.get(keys.SESSION_ID)
            if number is None or own is None or own.data == number:
                return session.get(key)
        if directives.session is None and key != keys.SESSION_ID:
            return self._of(Proc.unchecked(proc[0], _WILDCARD), key)
        return None


_COMPRESSED = {codes.COMPRESSED_STRING: codes.STRING, codes.COMPRESSED_BYTE_OBJECT: codes.BYTE_OBJECT}


def _inflated(value: Value) -> Value:
    """Return a value as it was before a native library compressed it; a value that cannot be read is not changed."""
    try:
        return Value.unchecked(_COMPRESSED[value[0]], to_python(value))
    except (ValueError, NotSupported):
        return value


def _items(value: Value) -> tuple[Info, ...]:
    data = value.data
    return data.items if isinstance(data, DataArray) and data.type == codes.INFO else ()


def _same(one: Table, other: Table, key: str) -> bool:
    mine, theirs = one.get(key), other.get(key)
    return mine is not None and theirs is not None and mine.data == theirs.data
