"""Queries about the groups of all servers: each server knows its own, and they are combined for a client that asks."""

from __future__ import annotations

from pypmix.engine.times import QUERY_SECONDS
from pypmix.host.exchange.codec import GROUPS
from pypmix.standard import codes, keys
from pypmix.standard.errors import NotFound
from pypmix.standard.ops.events import RANGE_LOCAL, RANGE_NAMESPACE, matches_any, procs_in
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.base import Upcall
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import OnAnswer
    from pypmix.host.exchange.localserver import LocalServer
    from pypmix.host.exchange.places import Places
    from pypmix.standard.errors import PMIxError
    from pypmix.standard.ops import QueryInfo

TOPIC = "pypmix.groups"

NUM_GROUPS = keys.QUERY_NUM_GROUPS
GROUP_NAMES = keys.QUERY_GROUP_NAMES
MEMBERSHIP = keys.QUERY_GROUP_MEMBERSHIP
KEYS = frozenset((NUM_GROUPS, GROUP_NAMES, MEMBERSHIP))


class GroupQueries:
    """Answers queries about the groups of all servers; used in the turns of its exchange.

    Each server knows the groups of its procs. Servers report groups only when asked, since groups are formed often and
    queried rarely.

    Args:
        exchange: This server's exchange.
        places: The server of each proc.
        local: The server of this node.
    """

    def __init__(self, exchange: Exchange, places: Places, local: LocalServer) -> None:
        self._exchange = exchange
        self._places = places
        self._local = local
        exchange.handle(TOPIC, self._send_groups)

    def answers(self, op: QueryInfo) -> bool:
        """Return True if a query is about groups, and about nothing else."""
        return all(key in KEYS for query in op.queries for key in query.keys)

    def answer(self, upcall: Upcall, op: QueryInfo, end: Callable[[Callable[[], None]], None]) -> None:
        """Answer a query.

        Args:
            upcall: The upcall.
            op: The query.
            end: Calls a function; its exception is the answer.
        """
        found = [self._local.list_groups()]
        others = [name for name in self._exchange.members if name != self._exchange.name]
        waiting = len(others)

        def take_groups(data: bytes | None, _error: PMIxError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if data:
                found.append(GROUPS.read(data))
            if not waiting:
                finish()

        def finish() -> None:
            groups = list(dict.fromkeys([(name, members) for listed in found for name, members in listed]))
            where, name = self._places.server_of, self._exchange.name
            is_local, is_known = (lambda proc: where(proc) == name), (lambda proc: where(proc) is not None)
            end(lambda: upcall.reply(tuple(find_groups(op, upcall.requestor, groups, is_local, is_known))))

        for name in others:
            self._exchange.request(name, TOPIC, b"", take_groups, timeout=QUERY_SECONDS)
        if not others:
            finish()

    def _send_groups(self, _sender: str, _data: bytes, answer: OnAnswer) -> None:
        answer(GROUPS.write(self._local.list_groups()), None)


def find_groups(
    op: QueryInfo,
    requestor: Proc | None,
    groups: Iterable[tuple[str, tuple[Proc, ...]]],
    is_local: Callable[[Proc], bool],
    is_known: Callable[[Proc], bool],
) -> list[Info]:
    """Return the answer to a query about groups.

    Args:
        op: The query.
        requestor: The client that asks; libpmix names its server in its place.
        groups: The groups with their members.
        is_local: Returns True for a proc of this server.
        is_known: Returns True for a proc of a known job.

    Raises:
        NotFound: The group that it names does not exist.
    """
    groups, infos = tuple(groups), []
    for query in op.queries:
        given = {info.key: info.value.data for info in query.qualifiers}
        reach = given.get(keys.RANGE)
        custom = _custom(query.qualifiers) if reach == RANGE_CUSTOM else ()

        def concerns(members: tuple[Proc, ...], reach: object = reach, custom: tuple[Proc, ...] = custom) -> bool:
            if reach == RANGE_CUSTOM:
                return any(matches_any(proc, custom) for proc in members)
            if reach == RANGE_LOCAL:
                return any(map(is_local, members))
            if reach == RANGE_NAMESPACE and requestor is not None and is_known(requestor):
                return any(proc.nspace == requestor.nspace for proc in members)
            return True

        names = tuple(dict.fromkeys([name for name, members in groups if concerns(members)]))
        for key in query.keys:
            if key == NUM_GROUPS:
                infos.append(Info(key, Value(codes.SIZE, len(names))))
            elif key == GROUP_NAMES:
                infos.append(Info(key, Value(codes.DATA_ARRAY, DataArray(codes.STRING, names))))
            else:
                # Of several groups with that name, prefer a group of the requestor.
                wanted = [members for name, members in groups if name == given.get(keys.GROUP_ID)]
                wanted.sort(key=lambda members: requestor not in members)
                if wanted:
                    infos.append(Info(key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, wanted[0]))))
    if not infos:
        raise NotFound("there is no such group", operation="query")
    return infos


def _custom(qualifiers: tuple[Info, ...]) -> tuple[Proc, ...]:
    try:
        return procs_in(qualifiers, keys.EVENT_CUSTOM_RANGE) or ()
    except TypeError:
        return ()
