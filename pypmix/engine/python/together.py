"""What procs say with what they carry out together: the same for every such operation."""

from __future__ import annotations

from pypmix.engine.python.modex import is_true, seconds
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import RANK_WILDCARD, Info, Value
from pypmix.wire.additions import encode_late
from pypmix.wire.frames import HEADER
from pypmix.wire.messages import encode_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.engine.python.collectives import Collective
    from pypmix.engine.python.server import Peer, Server, Ticket
    from pypmix.engine.python.serverdata import Process
    from pypmix.standard.types import Proc

DESTRUCTS = "pypmix.grp.destruct"


def timeout_of(infos: Iterable[Info]) -> float:
    """Return the timeout in seconds that directives give, the largest if there are several; 0 for none.

    Raises:
        PMIxError: It is no number of seconds (`ERR_BAD_PARAM`).
    """
    return max([seconds(info) for info in infos if info.key == keys.TIMEOUT], default=0.0)


def address_of(server: Server, procs: tuple[Proc, ...]) -> str:
    """Return the group that procs are the address of, all of it and nothing else; empty where they are none's."""
    named = set(procs)
    if len(named) != 1:
        return ""
    nspace, rank = procs[0]
    return nspace if rank == RANK_WILDCARD and nspace in server.store.groups else ""


def spared(server: Server, group: str, infos: tuple[Info, ...]) -> tuple[Info, ...]:
    """Return the directives of what is done by a name: that of a connection may go on without who has ended."""
    connection = server.store.connections.get(group)
    if connection is None or not connection.spares or any(info.key == keys.GROUP_FT_COLLECTIVE for info in infos):
        return infos
    return (*infos, Info(keys.GROUP_FT_COLLECTIVE, Value(codes.BOOL, True)))


def procs_of(collective: Collective[Process, Ticket]) -> tuple[Proc, ...]:
    """Return the procs as the first caller names them, in an order that all servers agree on.

    Those of groups have their own names: no host knows groups by theirs.
    """
    roster = collective.roster
    if roster.group:
        # Each caller means those who were in the group when it called.
        return tuple(sorted([*[process.proc for process in roster.members], *roster.others]))
    return tuple(sorted(set(next(iter(collective.said.values()))[0])))


def directives_of(collective: Collective[Process, Ticket], without: frozenset[str] = frozenset()) -> tuple[Info, ...]:
    """Return the directives of all callers as one list: of each key what the first one says that gives it.

    A directive that any of them sets is set; and the others are told where some of this server do not take part.
    """
    found: dict[str, list[Info]] = {}
    before: tuple[Info, ...] = ()
    for _, infos in collective.said.values():
        if infos is before or not infos:
            # Equal requests are one object here.
            continue
        before = infos
        mine: dict[str, list[Info]] = {}
        for info in infos:
            if info.key not in without:
                mine.setdefault(info.key, []).append(info)
        for key, items in mine.items():
            known = found.setdefault(key, items)
            if known is not items and _is_off(known) and not _is_off(items):
                found[key] = items
    if collective.roster.group and not collective.roster.operation.startswith("group_"):
        found[keys.GROUP_ID] = [Info(keys.GROUP_ID, Value(codes.STRING, collective.roster.group.partition("\0")[0]))]
    if collective.status != statuses.SUCCESS:
        found[keys.LOCAL_COLLECTIVE_STATUS] = [
            Info(keys.LOCAL_COLLECTIVE_STATUS, Value(codes.STATUS, collective.status))
        ]
    return tuple([info for items in found.values() for info in items])


def _is_off(infos: list[Info]) -> bool:
    return infos[0].value.type == codes.BOOL and not is_true(infos[0])


def absent_of(error: BaseException | None) -> tuple[Proc, ...] | None:
    """Return whom an error of the host names as those that an operation failed for; None if it names nobody."""
    if not isinstance(error, PMIxError):
        return None
    return tuple(sorted(error.missing)) if error.missing else None


def gone_from(collective: Collective[Process, Ticket]) -> tuple[Proc, ...]:
    """Return which procs of this server do not come to an operation any more."""
    return tuple(sorted([process.proc for process in collective.gone if process not in collective.arrived]))


def fail(collective: Collective[Process, Ticket], status: int) -> None:
    """Answer those who have arrived that an operation has failed, and because of whom, if that is known."""
    absent = collective.absent
    if absent is None and status == statuses.ERR_TIMEOUT and collective.awaited:
        absent = tuple(sorted([process.proc for process in collective.missing()]))
    for peer, tag in collective.arrived.values():
        answer_failure(peer, tag, status, absent, collective.reason)


def succeed(collective: Collective[Process, Ticket], status: int = statuses.SUCCESS) -> None:
    """Answer those who have arrived with a status: the same bytes for all who wait alike."""
    kind = last = 0
    data = b""
    for peer, tag in collective.tickets():
        if peer.denied:
            peer.status(tag, peer.denied)
            peer.denied = 0
            continue
        if tag != last or peer.buffer_type != kind:
            kind, last = peer.buffer_type, tag
            payload = encode_status(kind, status)
            data = HEADER.pack(0, tag, len(payload), 0) + payload
        if peer.open:
            peer.link.send_now(data)


def answer_failure(peer: Peer, tag: int, status: int, absent: tuple[Proc, ...] | None, reason: str = "") -> None:
    """Answer a client that an operation has failed; only pypmix's own understand because of whom, and why."""
    if (absent is not None or reason) and peer.pypmix:
        peer.send(tag, encode_late(peer.buffer_type, status, absent, reason))
    else:
        peer.status(tag, status)
