"""Fence on a server: among procs of this node alone, and with those of others through the host."""

from __future__ import annotations

from pypmix.engine.python.modex import is_true
from pypmix.engine.python.serverside.topic import reason_of, status_of
from pypmix.engine.python.sharing import data_of
from pypmix.engine.python.together import (
    DESTRUCTS,
    absent_of,
    address_of,
    directives_of,
    fail,
    gone_from,
    procs_of,
    spared,
    succeed,
    timeout_of,
)
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops.hosting import FenceUpcall
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.wire.messages import decode_fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.python.collectives import Collective, Roster, Said
    from pypmix.engine.python.server import Peer, Server, Ticket
    from pypmix.engine.python.serverdata import Process
    from pypmix.standard.releases import Release

    Plan = tuple[bytes, Roster[Process, Ticket], bool, float]

MAX_PLANS = 1024
MAX_PLAN = 64 << 10


class Fences:
    """The fences of a server.

    Those of procs of this server alone end here, and no host hears of them.

    Args:
        server: The machine.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._plans: dict[tuple[bytes, int, Release], tuple[Plan, Said]] = {}
        self._planned = False
        """Whether anybody's request is remembered with what it means, here or with a connection."""

    def forget(self) -> None:
        """What requests mean may have changed."""
        self._plans.clear()
        self._planned = False

    def fence(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Take in that a client has called a fence."""
        name = payload, peer.buffer_type, peer.release
        found = self._plans.get(name)
        if found is None:
            said = decode_fence(payload, peer.buffer_type, peer.release)
            procs, infos = said
            for info in infos:
                if info.key == DESTRUCTS and isinstance(info.value.data, str):
                    directives = tuple([each for each in infos if each is not info])
                    self._server.groups.destruct(peer, tag, info.value.data, directives)
                    return
                if info.key == keys.GROUP_ID and self._server.store.key_of(str(info.value.data), peer.process.proc):
                    # Behind a library that does not know the group, its name stands beside the procs.
                    procs = (Proc.unchecked(info.value.data, RANK_WILDCARD),)
                    said = procs, infos
            if self._server.store.namesakes or self._server.store.aliases:
                procs = self._server.store.own(procs, peer.process.proc)
                said = procs, infos
            members, others = self._server.store.expand(procs)
            collect = any(is_true(info) for info in infos if info.key == keys.COLLECT_DATA)
            roster = self._server.collectives.roster("fence", members, others)
            found = (payload, roster, collect, timeout_of(infos)), said
            if self._server.collectives.named() or not self._server.store.groups.keys().isdisjoint(
                [proc.nspace for proc in procs]
            ):
                self._grouped(peer, tag, *found)
                return
            if any(info.key in (keys.GROUP_FT_COLLECTIVE, keys.GROUP_ID) for info in infos):
                # A group of that name may yet come, and is meant then.
                self._join(peer, tag, *found)
                return
            if len(payload) <= MAX_PLAN:
                if len(self._plans) >= MAX_PLANS:
                    self._plans.clear()
                self._plans[name] = found
                self._planned = True
        plan, said = found
        interned, roster, collect, timeout = plan
        if peer.process not in roster.members:
            raise PMIxError("it is not one of the procs that it names", status=statuses.ERR_BAD_PARAM)
        if roster.asks:
            self._server.collectives.join(roster, peer.process, (peer, tag), collect, timeout, said)
            return
        if len(payload) <= MAX_PLAN:
            peer.usual, peer.plan = interned, plan
        self._server.collectives.join(roster, peer.process, (peer, tag), collect, timeout)

    def _grouped(self, peer: Peer, tag: int, plan: Plan, said: Said) -> None:
        """Take in a fence where groups are addresses: whom that means, and whom one meets there, may change."""
        _, roster, collect, timeout = plan
        group = address_of(self._server, said[0])
        if group and self._planned:
            # What all others mean by the requests that are known may be the same as what this one means.
            self._server.unplan()
        meeting = self._server.collectives.meeting(roster, group, peer.process)
        said = said[0], spared(self._server, group, said[1])
        self._join(peer, tag, (b"", meeting, collect, timeout), said)

    def _join(self, peer: Peer, tag: int, plan: Plan, said: Said) -> None:
        _, roster, collect, timeout = plan
        if peer.process not in roster.members:
            raise PMIxError("it is not one of the procs that it names", status=statuses.ERR_BAD_PARAM)
        tolerant = any(is_true(info) for info in said[1] if info.key == keys.GROUP_FT_COLLECTIVE)
        said = tuple(self._server.store.ungrouped(said[0])), said[1]
        self._server.collectives.join(roster, peer.process, (peer, tag), collect, timeout, said, tolerant)

    def ask(self, collective: Collective[Process, Ticket]) -> None:
        """All procs of this server have called a fence in which others take part: hand it to the host."""
        server = self._server
        data = b""
        if collective.collect:
            members = sorted(collective.roster.members, key=lambda process: process.proc)
            here, all = len(members), len(members) + len(collective.roster.others)
            # All servers together send what one of them may be sent.
            data = data_of(members, max(1, server.limits.collected * here // all))
        here = collective.status

        def answer(result: object, error: BaseException | None) -> None:
            if not server.collectives.is_running(collective):
                return
            status = status_of(error)
            if error is None:
                status = server.modex.take_in(result, collective.roster.others, "the data of a fence")
            collective.absent, collective.reason = absent_of(error), reason_of(error)
            server.collectives.finish(collective, status or here)

        op = FenceUpcall(procs_of(collective), directives_of(collective), data)
        server.host.upcall(op, answer)

    def end(self, collective: Collective[Process, Ticket], status: int) -> None:
        """A fence has ended: answer all who have called it."""
        if status == statuses.ERR_PARTIAL_SUCCESS and collective.absent is None:
            collective.absent = gone_from(collective) or None
        if status not in (statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS) or collective.absent is not None:
            fail(collective, status)
            return
        succeed(collective, status)
        if collective.collect:
            for peer, _ in collective.arrived.values():
                peer.bundle = collective.roster
