"""Groups as addresses: the procs behind `{name, WILDCARD}` and `{name, group rank}` in the operations of a process."""

from __future__ import annotations

from pypmix.standard import codes, keys
from pypmix.standard.errors import NotFound
from pypmix.standard.ops import Connect, Disconnect, Fence, Get, NotifyEvent, QueryInfo, Spawn
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Query, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from pypmix.engine.groups.standing import Standing


class Addresses:
    """The names of the groups and connections that a session is in, as it uses them in its operations.

    Args:
        proc: The proc of the session.
        standing: The groups.
        decides: Whether the server knows groups. Then names stay as they are in collectives, and it puts the procs in
            their place: it knows of a departure before it has all of a collective's callers, or after, but not in
            between. Otherwise the members carry out fences of whole groups.
        recorded: Whether a library is between, which would look up a name itself. It gets the procs, and a fence or a
            connect of one whole group carries the name beside them.
    """

    def __init__(self, proc: Proc, standing: Standing, decides: bool = False, recorded: bool = False) -> None:
        self._proc = proc
        self._standing = standing
        self._decides = decides
        self._recorded = recorded
        self._connections: dict[str, tuple[Proc, ...]] = {}
        """The procs of connections, by the rank in them that they keep."""
        self._ids: dict[str, str] = {}
        """The ids that the callers gave to the connects that made them."""
        self.rules: dict[type, Callable[[Any], Any]] = {
            Fence: self._together,
            Connect: self._together,
            Disconnect: self._together,
            Get: self._get,
            NotifyEvent: self._event,
            QueryInfo: self._query,
            Spawn: self._spawn,
        }

    def connected(self, nspace: str, procs: tuple[Proc, ...], id: str = "") -> None:
        """Add a connection of this process, whose nspace is an address from now on."""
        self._connections[nspace] = procs
        self._ids[nspace] = id

    def disconnected(self, procs: Sequence[Proc], id: str = "") -> None:
        """Procs have been disconnected: forget their connection, which is named by its nspace or by its procs.

        If several have the same procs and the same id, the server has taken the first by name.
        """
        name = procs[0][0]
        if len(procs) > 1 or procs[0][1] != RANK_WILDCARD or name not in self._connections:
            named = set(self.expand(procs))
            jobs = {nspace for nspace, rank in named if rank == RANK_WILDCARD}
            single = {proc for proc in named if proc[0] not in jobs}
            for nspace, members in sorted(self._connections.items()):
                others = [member for member in members if member[0] not in jobs]
                if self._ids[nspace] == id and single == set(others) and jobs <= {each[0] for each in members}:
                    name = nspace
                    break
        self._connections.pop(name, None)
        self._ids.pop(name, None)

    def members(self, name: str) -> tuple[Proc, ...]:
        """Return the members of a group or a connection by rank; empty if this process is not in one of this name."""
        members: tuple[Proc, ...] = self._standing.members(name)
        return members or self._connections.get(name, ())

    def expand(self, procs: Iterable[Proc]) -> tuple[Proc, ...]:
        """Return the procs, each once, and the members of groups under their own names.

        Raises:
            NotFound: A group has no such rank.
        """
        found: dict[Proc, None] = {}
        for proc in procs:
            found.update(dict.fromkeys(self._one(proc)))
        return tuple(found)

    def translated(self, op: Any) -> Any:
        """Return an operation with procs in the places of groups' names.

        Raises:
            NotFound: A group has no such rank.
        """
        rule = self.rules.get(type(op))
        return op if rule is None else rule(op)

    def answer(self, op: Any) -> Any:
        """Return the result of an operation that the groups can answer themselves, None for any other.

        Raises:
            NotFound: The group has no such value.
        """
        if type(op) is Get:
            return self._of_group(op)
        return self._of_queries(op) if type(op) is QueryInfo else None

    def proc(self, proc: Proc) -> Proc:
        """Return the proc that a group's name and a rank in it stand for; any other as it is.

        Raises:
            NotFound: The group has no such rank.
        """
        return proc if proc[1] == RANK_WILDCARD else self._one(proc)[0]

    def whole(self, op: Any) -> str:
        """Return the name of the group whose members have to carry out a fence, since it names that group alone.

        Returns:
            The name; an empty string if it names anything else, or if the server knows groups.
        """
        if self._decides or type(op) is not Fence or len(op.procs) != 1 or op.procs[0][1] != RANK_WILDCARD:
            return ""
        name: str = op.procs[0][0]
        return name if self.members(name) else ""

    # Procs

    def _one(self, proc: Proc) -> Sequence[Proc]:
        members = self.members(proc[0])
        if not members:
            return (proc,)
        if proc[1] == RANK_WILDCARD:
            return members
        if proc[1] < len(members):
            return (members[proc[1]],)
        what = "connection" if proc[0] in self._connections else "group"
        raise NotFound(f"the {what} {proc[0]!r} has no rank {proc[1]}", procs=(proc,))

    def _participants(self, procs: Iterable[Proc]) -> tuple[Proc, ...]:
        """Return the participants of a collective, in the one order in which all of its callers name them."""
        return tuple(sorted(self.expand(procs)))

    def _names_group(self, procs: Iterable[Proc]) -> bool:
        return any(self.members(proc[0]) for proc in procs)

    def _together(self, op: Any) -> Any:
        if not self._names_group(op.procs):
            return op
        procs = self._participants(op.procs)
        if self._decides and not self._recorded:
            return op
        if self._decides and len(op.procs) == 1 and op.procs[0][1] == RANK_WILDCARD:
            stamp = Info(keys.GROUP_ID, Value(codes.STRING, op.procs[0][0]))
            return op.replace(procs=procs, directives=(*op.directives, stamp))
        return op.replace(procs=procs)

    def _get(self, op: Get) -> Get:
        proc = self.proc(op.proc)
        return op if proc is op.proc else op.replace(proc=proc)

    # Infos

    def _event(self, op: NotifyEvent) -> NotifyEvent:
        infos = self._infos(op.infos)
        return op if infos is op.infos else op.replace(infos=infos)

    def _query(self, op: QueryInfo) -> QueryInfo:
        queries = tuple([Query(query.keys, self._whose(query.qualifiers)) for query in op.queries])
        return op if queries == op.queries else op.replace(queries=queries)

    def _spawn(self, op: Spawn) -> Spawn:
        apps = tuple([self._app(app) for app in op.apps])
        return op.replace(directives=self._infos(op.directives), apps=apps)

    def _app(self, app: Any) -> Any:
        infos = self._infos(app.info)
        return app if infos is app.info else app.replace(info=infos)

    def _infos(self, infos: tuple[Info, ...]) -> tuple[Info, ...]:
        """Return infos with the procs of groups in their values, if a value has room for them."""
        found = [self._info(info) for info in infos]
        return infos if all(new is old for new, old in zip(found, infos, strict=True)) else tuple(found)

    def _info(self, info: Info) -> Info:
        kind, data = info.value
        if kind == codes.PROC and isinstance(data, Proc):
            procs = self._one(data)
            if procs == (data,) or (len(procs) > 1 and info.key != keys.EVENT_CUSTOM_RANGE):
                return info
            if len(procs) == 1:
                return Info(info.key, Value(codes.PROC, procs[0]), info[2])
        elif kind == codes.DATA_ARRAY and isinstance(data, DataArray) and data.type == codes.PROC:
            if not self._names_group(data.items):
                return info
            procs = self.expand(data.items)
        else:
            return info
        return Info(info.key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(procs))), info[2])

    def _whose(self, qualifiers: tuple[Info, ...]) -> tuple[Info, ...]:
        """Return qualifiers with the proc itself if they name it by a group and a rank in it."""
        names = [info for info in qualifiers if info.key == keys.NSPACE and self.members(str(info.value.data))]
        ranks = [info for info in qualifiers if info.key == keys.RANK and info.value.data != RANK_WILDCARD]
        if len(names) != 1 or len(ranks) != 1:
            return self._infos(qualifiers)
        (proc,) = self._one(Proc(names[0].value.data, ranks[0].value.data))
        others = [info for info in qualifiers if info is not names[0] and info is not ranks[0]]
        return (*self._infos(tuple(others)), Info(keys.PROCID, Value(codes.PROC, proc)))

    # Answers of the groups themselves

    def _of_group(self, op: Get) -> Value | None:
        name, rank = op.proc
        if op.key == keys.GROUP_NAMES and (op.proc == self._proc or (not name and rank == self._proc[1])):
            names = self._standing.names()
            return Value(codes.DATA_ARRAY, DataArray(codes.STRING, names)) if names else None
        if rank != RANK_WILDCARD:
            return None
        state = self._standing.state(name)
        if state is None:
            connected = self._connections.get(name)
            if connected is None:
                return None
            if op.key == keys.JOB_SIZE:
                return Value(codes.UINT32, len(connected))
            raise NotFound(f"a connection has no {op.key!r}: ask for that of one of its procs", procs=(op.proc,))
        if op.key == keys.GROUP_MEMBERSHIP:
            return Value(codes.DATA_ARRAY, DataArray(codes.PROC, state.members))
        if op.key == keys.JOB_SIZE:
            return Value(codes.UINT32, len(state.members))
        if op.key == keys.GROUP_CONTEXT_ID and state.context_id is not None:
            return Value(codes.SIZE, state.context_id)
        raise NotFound(f"a group has no {op.key!r}: ask for that of one of its members", procs=(op.proc,))

    def _of_queries(self, op: QueryInfo) -> tuple[Info, ...] | None:
        """Return the membership of a group of the caller, whose own record is the most recent one."""
        found = []
        for query in op.queries:
            groups = [info.value.data for info in query.qualifiers if info.key == keys.GROUP_ID]
            members = self._standing.members(groups[0]) if len(groups) == len(query.qualifiers) == 1 else ()
            if query.keys != (keys.QUERY_GROUP_MEMBERSHIP,) or not members:
                return None
            found.append(Info(keys.QUERY_GROUP_MEMBERSHIP, Value(codes.DATA_ARRAY, DataArray(codes.PROC, members))))
        return tuple(found)


def check_fence(proc: Proc, procs: Iterable[Proc], exists: Callable[[str], bool]) -> None:
    """Refuse a fence that no server can end: it names neither the caller nor a job that is known.

    Args:
        proc: The caller.
        procs: The procs that it names.
        exists: Returns True if there is a job of a name, or a group of that name that the caller is in.

    Raises:
        NotFound: The fence names neither the caller nor a known job or group.
    """
    procs = tuple(procs)
    if any(each == proc or (each[0] == proc[0] and each[1] == RANK_WILDCARD) for each in procs):
        return
    for each in procs:
        # It may be the own job, under the name that other clusters use.
        if not exists(each[0]) and not each[0].endswith(f":{proc[0]}"):
            raise NotFound(
                f"there is no job {each[0]!r}, and the caller is in no group of this name",
                procs=procs,
                hint="was the group destructed, or has the caller left it?",
            )
