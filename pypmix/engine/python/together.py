"""How procs join what they carry out together, and what all of them say in one: the same for every such operation."""

from __future__ import annotations

from pypmix.engine.python.modex import TIMEOUT, is_true, seconds
from pypmix.standard import codes
from pypmix.standard.errors import ERR_BAD_PARAM, ERR_TIMEOUT, SUCCESS, PMIxError
from pypmix.standard.types import RANK_WILDCARD, Info, Value
from pypmix.wire.additions import encode_late

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.engine.python.collectives import Collective
    from pypmix.engine.python.server import Peer, Server, Ticket
    from pypmix.engine.python.serverdata import Process
    from pypmix.standard.types import Proc

COLLECT = "pmix.collect"
DESTRUCTS = "pypmix.grp.destruct"
FT_COLLECTIVE = "pmix.grp.ftcoll"
GROUP_ID = "pmix.grp.id"
LOCAL_STATUS = "pmix.loc.col.st"


def timeout_of(infos: Iterable[Info]) -> float:
    """Return the timeout in seconds that directives give, the largest if there are several; 0 for none.

    Raises:
        PMIxError: It is no number of seconds (`ERR_BAD_PARAM`).
    """
    return max([seconds(info) for info in infos if info.key == TIMEOUT], default=0.0)


def address_of(server: Server, procs: tuple[Proc, ...]) -> str:
    """Return the group that procs are the address of, all of it and nothing else; empty where they are none's."""
    named = set(procs)
    if len(named) != 1:
        return ""
    nspace, rank = procs[0]
    return nspace if rank == RANK_WILDCARD and nspace in server.store.groups else ""


def join(
    server: Server,
    operation: str,
    procs: tuple[Proc, ...],
    infos: tuple[Info, ...],
    ticket: Ticket,
    tolerant: bool = False,
) -> None:
    """Let a client join an operation in which the host has a say.

    Args:
        server: The machine.
        operation: Its name among `Server.endings`, and after a space what distinguishes it.
        procs: Who takes part, as the caller names them; nspaces that are not known here are other servers'.
        infos: Its directives.
        ticket: The connection and the tag of the request.
        tolerant: Whether it goes on without those who end or leave, even if the directives do not say so.

    Raises:
        PMIxError: The caller is not among the procs, or one of these means nothing.
    """
    process = ticket[0].process
    procs = server.store.own(procs, process.proc)
    members, others = server.store.expand(procs, strangers=True)
    if process not in members:
        raise PMIxError("it is not one of the procs that it names", status=ERR_BAD_PARAM)
    timeout = timeout_of(infos)
    roster = server.collectives.roster(operation, members, others, asks=True)
    group = address_of(server, procs)
    roster = server.collectives.meeting(roster, group, process)
    tolerant = tolerant or any(is_true(info) for info in infos if info.key == FT_COLLECTIVE)
    # Each member of a group names all of it: no copy for each.
    said = server.store.groups[group] if group else tuple(server.store.ungrouped(procs)), infos
    server.collectives.join(roster, process, ticket, timeout=timeout, said=said, tolerant=tolerant)


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
    for _, infos in collective.said.values():
        mine: dict[str, list[Info]] = {}
        for info in infos:
            if info.key not in without:
                mine.setdefault(info.key, []).append(info)
        for key, items in mine.items():
            known = found.setdefault(key, items)
            if known is not items and _is_off(known) and not _is_off(items):
                found[key] = items
    if collective.roster.group and not collective.roster.operation.startswith("group_"):
        found[GROUP_ID] = [Info(GROUP_ID, Value(codes.STRING, collective.roster.group.partition("\0")[0]))]
    if collective.status != SUCCESS:
        found[LOCAL_STATUS] = [Info(LOCAL_STATUS, Value(codes.STATUS, collective.status))]
    return tuple([info for items in found.values() for info in items])


def _is_off(infos: list[Info]) -> bool:
    return infos[0].value.type == codes.BOOL and not is_true(infos[0])


def absent_of(error: BaseException | None) -> tuple[Proc, ...] | None:
    """Return whom an error of the host names as those that an operation failed for; None if it names nobody."""
    if not isinstance(error, PMIxError):
        return None
    return tuple(sorted(error.missing)) if error.missing else None


def fail(collective: Collective[Process, Ticket], status: int) -> None:
    """Answer those who have arrived that an operation has failed, and because of whom, if that is known."""
    absent = collective.absent
    if absent is None and status == ERR_TIMEOUT and collective.awaited:
        absent = tuple(sorted([process.proc for process in collective.missing()]))
    for peer, tag in collective.arrived.values():
        answer_failure(peer, tag, status, absent)


def answer_failure(peer: Peer, tag: int, status: int, absent: tuple[Proc, ...] | None) -> None:
    """Answer a client that an operation has failed; only pypmix's own understand because of whom."""
    if absent is not None and peer.pypmix:
        peer.send(tag, encode_late(peer.buffer_type, status, absent))
    else:
        peer.status(tag, status)
