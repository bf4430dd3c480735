"""Collective operations of procs of one node: their upcalls to the host, and the answers to their callers.

Fence, connect, disconnect, construct and destruct are subclasses of `NodeMeaning`, which see. Each consists of a topic
that decodes a request and contributes it (`Fences`, `Connecting`, `Groups`), and of the subclass, which combines the
contributions into one upcall and turns the host's decision into replies.
"""

from __future__ import annotations

from operator import attrgetter

from pypmix.engine.collective.machine import ABOVE, CollectiveState, Meaning
from pypmix.engine.collective.rules import CONSTRUCT, DESTRUCT, combined
from pypmix.engine.common import ignore
from pypmix.engine.groups.talk import ABSENT, flag, procs, text
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
    from collections.abc import Container, Iterable
    from typing import Any

    from pypmix.engine.collective.machine import Collective
    from pypmix.engine.python.node import Call, Node
    from pypmix.engine.python.processes import Process
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc

DESTRUCTS = "pypmix.grp.destruct"


_proc_of = attrgetter("proc")

_SUBMITS, _DECIDES = (
    CollectiveState.AFTER[CollectiveState.SUBMITTED],
    CollectiveState.AFTER[CollectiveState.DECISION_RECEIVED],
)


class NodeMeaning(Meaning["Process", "Call"]):
    """The meaning of a collective operation of procs of this server.

    A subclass has `ask`, which gives the host an upcall by `submit`, and may have `take`, which reads its result.

    Args:
        server: The server.
        collective: The operation.
    """

    __slots__ = ("server",)

    host_is_optional = False
    """Whether it succeeds without a host that supports it, as long as all of its procs are of this server."""

    def __init__(self, server: Node, collective: Collective[Process, Call]) -> None:
        self.server = server
        self.collective = collective

    # Upcalls

    def procs(self) -> tuple[Proc, ...]:
        """Return the procs as the first caller names them, in an order that all servers agree on.

        Members of groups have their own names: no host knows groups by name.
        """
        membership = self.collective.membership
        if membership.group:
            # Each caller names the procs that were in the group when it called.
            return tuple(sorted([*[process.proc for process in membership.members], *membership.others]))
        procs = next(iter(self.collective.said.values()))[0]
        return procs if len(procs) == 1 else tuple(sorted(set(procs)))

    def directives(self, without: frozenset[str] = frozenset()) -> tuple[Info, ...]:
        """Return the directives of all callers as one list, with the directives about this server's procs."""
        collective, membership = self.collective, self.collective.membership
        given = [infos for _, infos in collective.said.values() if infos]
        infos = combined(given, without) if given else ()
        if membership.group and membership.kind.name not in (CONSTRUCT, DESTRUCT):
            name = text(keys.GROUP_ID, membership.group.partition("\0")[0])
            infos = (*[i for i in infos if i.key != keys.GROUP_ID], name)
        if collective.due is not None and any(info.key == keys.TIMEOUT for info in infos):
            left = max(1, round(collective.due - self.server.clock.now()))
            infos = (*[i for i in infos if i.key != keys.TIMEOUT], Info(keys.TIMEOUT, Value(codes.INT, left)))
        if collective.lost and collective.status != statuses.SUCCESS:
            infos = (*[i for i in infos if i.key != keys.LOCAL_COLLECTIVE_STATUS], status_info(collective.status))
        return infos

    def directives_and_gone(self) -> tuple[Info, ...]:
        """Return the directives of all callers, with the procs of this server that have ended and will not join."""
        return (*self.directives(), procs(ABSENT, self.gone_procs())) if self.collective.lost else self.directives()

    def gone_procs(self) -> tuple[Proc, ...]:
        """Return the procs of this server that have ended and will not join."""
        gone, arrived = self.collective.gone, self.collective.arrived
        return tuple(sorted([process.proc for process in gone if process not in arrived])) if gone else ()

    def committed(self) -> bytes:
        """Return the data that the callers have committed for procs of other servers."""
        membership = self.collective.membership
        callers = sorted([process for process in self.collective.arrived if process.committed], key=_proc_of)
        if not callers:
            return b""
        here, everywhere = len(membership.members), len(membership.members) + len(membership.others)
        # All servers together send as much as one of them may receive.
        return data_of(callers, max(1, self.server.limits.collected * here // (everywhere or 1)))

    def submit(self, op: Op[Any]) -> None:
        """Make the upcall to the host with the callers' joint request."""
        collective = self.collective
        collective.state = _SUBMITS[collective.state]
        self.server.host.upcall(op, self.decided)

    def report_timeout(self) -> None:
        op = self.make_upcall(
            (*[i for i in self.directives() if i.key != keys.TIMEOUT], status_info(statuses.ERR_TIMEOUT))
        )
        if op is not None:
            self.server.host.upcall(op, ignore)

    def make_upcall(self, _directives: tuple[Info, ...]) -> Op[Any] | None:
        """Return the upcall that reports its end here; None if it is reported in another way."""
        return None

    # Results

    def decided(self, result: Any, error: BaseException | None) -> None:
        """The host has decided."""
        collective = self.collective
        if collective.state not in ABOVE:
            return
        collective.state = _DECIDES[collective.state]
        collective.absent, collective.reason = None, ""
        if error is None:
            status = self.take(result)
        elif (
            self.host_is_optional
            and not collective.membership.others
            and status_of(error) == statuses.ERR_NOT_SUPPORTED
        ):
            status = self.take(None)
        else:
            collective.absent, collective.reason = absent_of(error), reason_of(error)
            status = status_of(error)
        if status is not None:
            collective.finish(status)

    def take(self, _result: Any) -> int | None:
        """Read the host's result; return the final status of the collective, None if it continues."""
        return self.collective.status

    def take_committed(self, infos: tuple[Info, ...], procs: Container[Proc]) -> tuple[Info, ...]:
        """Store the committed data of procs of other servers; return the other infos of the host's result."""
        if all(info.key != COMMITTED for info in infos):
            return infos
        what = f"the data of a {self.collective.membership.kind.name}"
        for info in infos:
            if info.key == COMMITTED:
                # If it cannot be read, which is logged, readers ask for each value.
                self.server.modex.take_in(info.value.data, procs, what)
        return tuple([info for info in infos if info.key != COMMITTED])

    def name_gone(self, status: int) -> None:
        """Name the missing procs of this server, if the host names none."""
        if status == statuses.ERR_PARTIAL_SUCCESS and self.collective.absent is None:
            self.collective.absent = self.gone_procs() or None

    def fail(self, status: int) -> None:
        """Answer the callers with a failure, and with the procs that caused it, if they are known."""
        collective = self.collective
        absent = collective.absent
        if absent is None and status == statuses.ERR_TIMEOUT:
            absent = self.missing() or None
        for peer, tag in collective.arrived.values():
            answer_failure(peer, tag, status, absent, collective.reason)

    def succeed(self, status: int = statuses.SUCCESS) -> None:
        """Answer the callers with a status; the same bytes are used for calls with the same tag and packing."""
        kind = last = 0
        data = b""
        for peer, tag in self.collective.calls():
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
