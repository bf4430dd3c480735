"""Fence on a server: among procs of this node alone, and with procs of other nodes through the host.

**The way of a fence.** `Fences.fence` decodes the request and finds the membership of its procs; the call joins the
collective of that membership, a `Fence`. The last caller of this node completes it. If all procs are of this node it
ends there, without an upcall. Otherwise `ask` makes one upcall to the host, with the data that the members have
committed, if a caller collects; `take` stores the data of the other servers' procs, and `ended` answers the callers.

**Requests are read once.** The procs of a job send the same bytes again and again. `Plan` is a decoded request. It is
remembered by its bytes, and by each `Peer` as its last one, which `Peer.handle` compares before anything is decoded. A
plan holds until an nspace is added or removed, or a group's name may have other members; then it is not `valid`. A
fence that names a group, or carries directives about one, is never remembered, since the members may change.

**Participants.** A caller that asks for them (`FENCE_PARTICIPANTS`) gets the participants with its answer, if they
differ from the procs that it expects. They are the local callers and the procs of the other servers' data: a server
contributes the data of its callers alone. Clients behind a library ask by a query afterwards (`participants_for`).

**Data after a fence.** A reader whose fence has collected gets the data of the others with its first get (`bundle`), so
that it does not ask once for each proc.
"""

from __future__ import annotations

from functools import partial

from pypmix.engine.collective.machine import Kind
from pypmix.engine.collective.rules import FENCE, checksum, is_ft
from pypmix.engine.groups.talk import KEPT, keep, number
from pypmix.engine.python.collectives import DESTRUCTS, NodeMeaning, address_of, timeout_of, with_ft
from pypmix.engine.python.modex import is_true
from pypmix.engine.python.node import Plan
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import FENCE_PARTICIPANTS
from pypmix.standard.ops.hosting import FenceUpcall
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.wire.additions import encode_participants
from pypmix.wire.messages import decode_fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.collective.machine import Collective
    from pypmix.engine.python.modex import Modex
    from pypmix.engine.python.node import Call, Node, Peer
    from pypmix.engine.python.processes import Process
    from pypmix.engine.python.serverdata import Cache
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Info


MAX_PLANS = 1024
MAX_PLAN = 64 << 10


class Fences:
    """The fences of a server.

    Fences among procs of this server end here, without an upcall.

    Args:
        server: The server.
        modex: Stores the data of other servers.
    """

    def __init__(self, server: Node, modex: Modex) -> None:
        self._server = server
        self._kind: Kind[Process, Call] = Kind(FENCE, partial(Fence, server, modex))
        self._plans: Cache[tuple[bytes, int, Release], Plan] = server.store.cache(MAX_PLANS, Plan.forgotten)

    def fence(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Join a client to a fence."""
        name = payload, peer.buffer_type, peer.release
        plan = self._plans.get(name)
        if plan is None:
            plan = self._read(peer, tag, payload)
            if plan is None:
                return
            if len(payload) <= MAX_PLAN:
                self._plans.put(name, plan)
        membership = plan.membership
        if peer.process not in membership.members:
            raise PMIxError("it is not one of the procs that it names", status=statuses.ERR_BAD_PARAM)
        if len(payload) <= MAX_PLAN:
            peer.plan = plan
        self._server.collectives.join(
            membership, peer.process, (peer, tag), plan.collect, plan.timeout, plan.contribution
        )

    def _read(self, peer: Peer, tag: int, payload: bytes) -> Plan | None:
        """Return the plan of a request; None if the request concerns groups and has been carried out here."""
        server, store, process = self._server, self._server.store, peer.process
        procs, infos = decode_fence(payload, peer.buffer_type, peer.release)
        for info in infos:
            if info.key == DESTRUCTS and isinstance(info.value.data, str):
                directives = tuple([each for each in infos if each is not info])
                server.groups.destruct(peer, tag, info.value.data, directives)
                return None
            if info.key == keys.GROUP_ID and store.key_of(str(info.value.data), process.proc):
                # A client behind a library that does not know the group gives its name in addition to the procs.
                procs = (Proc.unchecked(info.value.data, RANK_WILDCARD),)
        if store.namesakes or store.aliases:
            procs = store.resolve(procs, process.proc)
        members, others = store.expand(procs)
        membership = server.collectives.membership(self._kind, members, others)
        collect, timeout = any(is_true(info) for info in infos if info.key == keys.COLLECT_DATA), timeout_of(infos)
        if server.collectives.has_group_names() or not store.groups.keys().isdisjoint([proc.nspace for proc in procs]):
            # Groups are addresses: their members, and so the participants, may change.
            group = address_of(server, procs)
            if group:
                # Remembered requests of other callers may now name the same collective as this request.
                self._plans.clear()
            membership = server.collectives.find_membership(membership, group, process)
            infos = with_ft(server, group, infos)
        elif not any(info.key in (keys.GROUP_FT_COLLECTIVE, keys.GROUP_ID) for info in infos):
            return Plan(payload, membership, collect, timeout, (procs, infos))
        # A group of that name may be made later, and then the request names it: so this is not remembered.
        if process not in membership.members:
            raise PMIxError("it is not one of the procs that it names", status=statuses.ERR_BAD_PARAM)
        said = tuple(store.ungrouped(procs)), infos
        server.collectives.join(membership, process, (peer, tag), collect, timeout, said, is_ft(FENCE, infos))
        return None


_ANSWERED_ALIKE = (statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS)
_OURS = frozenset((FENCE_PARTICIPANTS,))


class Fence(NodeMeaning):
    """One fence."""

    __slots__ = ("_modex", "_remote")

    def __init__(self, server: Node, modex: Modex, collective: Collective[Process, Call]) -> None:
        self.server = server
        self.collective = collective
        self._modex = modex
        self._remote: set[Proc] = set()
        """The procs of other servers that have taken part."""

    def directives(self, without: frozenset[str] = _OURS) -> tuple[Info, ...]:
        return super().directives(without)

    def ask(self) -> None:
        """Make the upcall of a fence with other servers, now that all procs of this server have joined."""
        data = self.committed() if self.collective.collect else b""
        self.submit(FenceUpcall(self.procs(), self.directives_and_gone(), data))

    def make_upcall(self, directives: tuple[Info, ...]) -> FenceUpcall:
        return FenceUpcall(self.procs(), directives, b"")

    def take(self, result: Any) -> int:
        """Store the data of the other servers' procs."""
        collective = self.collective
        others = collective.membership.others
        return self._modex.take_in(result, others, "the data of a fence", self._remote) or collective.status

    def complete(self, status: int) -> None:
        """Answer the callers."""
        collective = self.collective
        if status == statuses.ERR_PARTIAL_SUCCESS:
            self.name_gone(status)
        if collective.absent is not None or status not in _ANSWERED_ALIKE:
            self.fail(status)
            return
        if status == statuses.SUCCESS and collective.membership.group:
            self._succeed_with_participants()
        else:
            self.succeed(status)
        if collective.collect:
            for peer, _ in collective.arrived.values():
                peer.bundle = collective.membership

    def _succeed_with_participants(self) -> None:
        """Answer the callers, and add the participants for callers that ask for them."""
        collective, said = self.collective, self.collective.said
        asking = {each for each, (_, infos) in said.items() if number(infos, FENCE_PARTICIPANTS) is not None}
        if not asking:
            self.succeed()
            return
        group = collective.membership.group.partition("\0")[0]
        participants = tuple(sorted([*[process.proc for process in collective.arrived], *self._remote]))
        mark = checksum(participants)
        for process, (peer, tag) in list(collective.arrived.items()):
            if process not in asking or peer.denied:
                peer.status(tag, peer.denied)
                peer.denied = 0
                continue
            expected = number(said[process][1], FENCE_PARTICIPANTS) == mark
            if peer.pypmix:
                peer.send(tag, encode_participants(peer.buffer_type, () if expected else participants))
            else:
                keep(peer.participants, group, participants, KEPT)
                peer.status(tag, statuses.SUCCESS)
