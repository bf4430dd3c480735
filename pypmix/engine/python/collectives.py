"""Collective operations of procs of one node: their upcalls to the host, and the answers to their callers.

Fence, connect, disconnect, construct and destruct are kinds of `pypmix.engine.collective.machine`. A topic (`Fences`,
`Connecting`, `Groups`) decodes a request and contributes it. Its three functions for a kind combine the contributions
into one upcall (`submit`), read the host's decision, and turn it into replies. This module has what they share.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from pypmix.engine.collective.machine import ABOVE, CollectiveState
from pypmix.engine.collective.rules import CONSTRUCT, DESTRUCT, combined
from pypmix.engine.common import ignore
from pypmix.engine.groups.talk import flag, text
from pypmix.engine.python.modex import seconds
from pypmix.engine.python.modexrequests import data_of
from pypmix.engine.python.node import answer_failure, reason_of, status_of
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops.hosting import COMMITTED
from pypmix.standard.types import RANK_WILDCARD, Info, Value
from pypmix.wire.frames import HEADER
from pypmix.wire.messages import encode_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from typing import Any

    from pypmix.engine.collective.machine import Collective, Membership
    from pypmix.engine.python.node import Call, Node
    from pypmix.engine.python.processes import Process
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc

    NodeCollective = Collective[Process, Call]
    """A collective operation of procs of this server."""

DESTRUCTS = "pypmix.grp.destruct"


proc_of = attrgetter("proc")

_SUBMITS, _DECIDES = (
    CollectiveState.AFTER[CollectiveState.SUBMITTED],
    CollectiveState.AFTER[CollectiveState.DECISION_RECEIVED],
)


# Upcalls


def procs_of(collective: NodeCollective) -> tuple[Proc, ...]:
    """Return the procs as the first caller names them, in an order that all servers agree on.

    Members of groups have their own names: no host knows groups by name.
    """
    membership = collective.membership
    if membership.group or not collective.said:
        # Each caller names the procs that were in the group when it called, and callers that have disconnected none.
        return tuple(sorted([*[process.proc for process in membership.members], *membership.others]))
    procs = next(iter(collective.said.values()))[0]
    return procs if len(procs) == 1 else tuple(sorted(set(procs)))


def combine_directives(collective: NodeCollective, without: frozenset[str] = frozenset()) -> tuple[Info, ...]:
    """Return the directives of all callers as one list, with the directives about this server's procs."""
    membership = collective.membership
    given = [infos for _, infos in collective.said.values() if infos]
    infos = combined(given, without) if given else ()
    if membership.group and membership.kind.name not in (CONSTRUCT, DESTRUCT):
        name = text(keys.GROUP_ID, membership.group.partition("\0")[0])
        infos = (*[i for i in infos if i.key != keys.GROUP_ID], name)
    if collective.due is not None and any(info.key == keys.TIMEOUT for info in infos):
        left = max(1, round(collective.due - membership.tracker.clock.now()))
        infos = (*[i for i in infos if i.key != keys.TIMEOUT], Info(keys.TIMEOUT, Value(codes.INT, left)))
    if collective.lost and collective.status != statuses.SUCCESS:
        infos = (*[i for i in infos if i.key != keys.LOCAL_COLLECTIVE_STATUS], status_info(collective.status))
    return infos


def gone_procs(collective: NodeCollective) -> tuple[Proc, ...]:
    """Return the procs of this server that have ended and will not join."""
    gone, arrived = collective.gone, collective.arrived
    return tuple(sorted([process.proc for process in gone if process not in arrived])) if gone else ()


def committed_data(server: Node, collective: NodeCollective) -> bytes:
    """Return the data that the callers have committed for procs of other servers."""
    membership = collective.membership
    callers = sorted([process for process in collective.arrived if process.committed], key=proc_of)
    if not callers:
        return b""
    return data_of(callers, most_committed(server, membership))


def most_committed(server: Node, membership: Membership[Process, Call]) -> int:
    """Return how many bytes this server may send with a collective: all together what one of them may receive."""
    here, everywhere = len(membership.members), len(membership.members) + len(membership.others)
    return max(1, server.limits.collected * here // (everywhere or 1))


def submit(server: Node, collective: NodeCollective, op: Op[Any], is_optional: bool = False) -> None:
    """Make the upcall to the host with the callers' joint request; the host's answer decides.

    Args:
        server: The server.
        collective: The operation.
        op: The upcall.
        is_optional: Whether it succeeds without a host that supports it, if all of its procs are of this server.
    """
    collective.state = _SUBMITS[collective.state]
    server.host.upcall(op, partial(_decide, collective, is_optional))


def report_timeout(
    server: Node,
    make_op: Callable[[NodeCollective, tuple[Info, ...]], Op[Any]],
    collective: NodeCollective,
) -> None:
    """Report to the host that the limit passed before all procs of this server joined."""
    given = [info for info in combine_directives(collective) if info.key != keys.TIMEOUT]
    server.host.upcall(make_op(collective, (*given, status_info(statuses.ERR_TIMEOUT))), ignore)


# Results


def _decide(collective: NodeCollective, is_optional: bool, result: object, error: BaseException | None) -> None:
    """Apply the host's decision."""
    if collective.state not in ABOVE:
        return
    collective.state = _DECIDES[collective.state]
    collective.absent, collective.reason = None, ""
    membership = collective.membership
    is_alone = is_optional and not membership.others
    if error is None or (is_alone and status_of(error) == statuses.ERR_NOT_SUPPORTED):
        status = membership.kind.take(collective.record, result)
    else:
        collective.absent, collective.reason = absent_of(error), reason_of(error)
        status = status_of(error)
    if status is not None:
        collective.finish(status)


def take_committed(
    server: Node, collective: NodeCollective, infos: tuple[Info, ...], procs: Container[Proc]
) -> tuple[Info, ...]:
    """Store the committed data of procs of other servers; return the other infos of the host's result."""
    if all(info.key != COMMITTED for info in infos):
        return infos
    what = f"the data of a {collective.membership.kind.name}"
    for info in infos:
        if info.key == COMMITTED:
            # If it cannot be read, which is logged, readers ask for each value.
            server.modex.take_in(info.value.data, procs, what)
    return tuple([info for info in infos if info.key != COMMITTED])


def answer_all(collective: NodeCollective, status: int = statuses.SUCCESS) -> None:
    """Answer the callers with a status; the same bytes are used for calls with the same tag and packing."""
    kind = last = 0
    data = b""
    for peer, tag in collective.calls():
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


def answer_failures(collective: NodeCollective, status: int, missing: tuple[Proc, ...] | None = None) -> None:
    """Answer the callers with a failure, and with the procs that caused it, if they are known.

    Args:
        collective: The operation.
        status: Its status.
        missing: The missing procs of this server, to name them for a partial success if the host names none.
    """
    absent = collective.absent
    if absent is None and status == statuses.ERR_PARTIAL_SUCCESS:
        absent = missing or None
    if absent is None and status == statuses.ERR_TIMEOUT:
        absent = collective.missing_procs() or None
    for peer, tag in collective.arrived.values():
        answer_failure(peer, tag, status, absent, collective.reason)


# Requests


def timeout_of(infos: Iterable[Info]) -> float:
    """Return the timeout in seconds that directives give, the largest if there are several; 0 for none.

    Raises:
        PMIxError: A timeout is not a number of seconds (`ERR_BAD_PARAM`).
    """
    return max([seconds(info) for info in infos if info.key == keys.TIMEOUT], default=0.0)


def committed_infos(data: bytes) -> tuple[Info, ...]:
    """Return the directive with committed data for other servers, empty without data."""
    return (Info(COMMITTED, Value(codes.BYTE_OBJECT, data)),) if data else ()


def address_of(server: Node, procs: tuple[Proc, ...]) -> str:
    """Return the name of the group that the procs address as a whole; empty if they do not address a group."""
    named = set(procs)
    if len(named) != 1:
        return ""
    nspace, rank = procs[0]
    return nspace if rank == RANK_WILDCARD and nspace in server.store.groups else ""


def with_ft(server: Node, group: str, infos: tuple[Info, ...]) -> tuple[Info, ...]:
    """Return the directives of an operation; it is fault tolerant if it names such a group or connection.

    A caller's own directive has precedence.
    """
    if not group or any(info.key == keys.GROUP_FT_COLLECTIVE for info in infos):
        return infos
    connection = server.store.connections.get(group)
    if not (server.groups.is_ft(group) if connection is None else connection.ft):
        return infos
    return (*infos, flag(keys.GROUP_FT_COLLECTIVE))


def status_info(status: int) -> Info:
    """Return the info that reports the status of this server's procs to hosts."""
    return Info(keys.LOCAL_COLLECTIVE_STATUS, Value(codes.STATUS, status))


def absent_of(error: BaseException | None) -> tuple[Proc, ...] | None:
    """Return the procs that a host's error names as the cause of a failure; None if it names none."""
    if not isinstance(error, PMIxError):
        return None
    return tuple(sorted(error.missing)) if error.missing else None
