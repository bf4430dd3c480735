"""Fence on a server: among procs of this node alone, and with procs of other nodes through the host.

**The way of a fence.** `Fences.fence` decodes the request and finds the membership of its procs; the call joins the
collective of that membership. The last caller of this node completes it. If all procs are of this node it ends there,
without an upcall. Otherwise `_ask` makes one upcall to the host, with the data that the members have committed, if a
caller collects; `_take` stores the data of the other servers' procs, and `_complete` answers the callers.

**Requests are read once.** The procs of a job send the same bytes again and again. `Plan` is a decoded request. It is
remembered by its bytes, and by each `Peer` as its last one, which `Peer.handle` compares before anything is decoded. A
plan holds until an nspace is added or removed, or a group's name may have other members; then it is not `valid`. A
fence that names a group, or carries directives about one, is never remembered, since the members may change.

**Participants.** A caller that asks for them (`FENCE_PARTICIPANTS`) gets the participants with its answer, if they
differ from the procs that it expects. They are the local callers and the procs of the other servers' data: a server
contributes the data of its callers alone. Clients behind a library ask by a query afterwards (`participants_for`).

**Data between servers.** A collecting fence sends the values that the other servers lack (`Deliveries`), so that its
cost does not grow with the number of earlier ones. If that is not certain, for example after a failed fence, it sends
all values.

**Directives.** `_read` finds what this server needs (`COLLECT_DATA`, the timeout, a group). The directives of all
callers go to the host with the upcall (`combine_directives`). A host of ours passes on to the servers of other nodes
only those in `SHARED_DIRECTIVES` of `host/exchange/deciding.py`, and decides by them. So a new attribute of fence is a
row of `native/vocabulary/attributes.tsv`, a line here if this server acts on it, an entry in `SHARED_DIRECTIVES` if
other servers have to know it, its name in `attributes.py` (what a query for supported attributes returns), and perhaps
a parameter of `Client.fence` in `aio/client.py`.

**Data after a fence.** A reader whose fence has collected gets the data of the others with its first get (`bundle`), so
that it does not ask once for each proc.
"""

from __future__ import annotations

from functools import partial
from weakref import WeakKeyDictionary

from pypmix.engine.collective.machine import Kind
from pypmix.engine.collective.rules import FENCE, checksum, is_ft
from pypmix.engine.groups.talk import ABSENT, KEPT, keep, number
from pypmix.engine.groups.talk import procs as listing
from pypmix.engine.python.collectives import (
    DESTRUCTS,
    address_of,
    answer_all,
    answer_failures,
    combine_directives,
    gone_procs,
    most_committed,
    proc_of,
    procs_of,
    report_timeout,
    submit,
    timeout_of,
    with_ft,
)
from pypmix.engine.python.modex import is_true
from pypmix.engine.python.modexrequests import Deliveries
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

    from pypmix.engine.collective.machine import Membership
    from pypmix.engine.python.collectives import NodeCollective
    from pypmix.engine.python.modex import Modex
    from pypmix.engine.python.node import Call, Node, Peer
    from pypmix.engine.python.processes import Process
    from pypmix.engine.python.serverdata import Cache
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Info
    from pypmix.wire.modex import Contribution


MAX_PLANS = 1024
MAX_PLAN = 64 << 10

_ANSWERED_ALIKE = (statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS)
_OURS = frozenset((FENCE_PARTICIPANTS,))


class Fences:
    """The fences of a server.

    Fences among procs of this server end here, without an upcall.

    Args:
        server: The server.
        modex: Stores the data of other servers.
    """

    def __init__(self, server: Node, modex: Modex) -> None:
        self._server = server
        self._modex = modex
        self._kind = Kind(
            FENCE, self._ask, self._take, self._complete, report_timeout=partial(report_timeout, server, _report_op)
        )
        self._deliveries: WeakKeyDictionary[Membership[Process, Call], Deliveries] = WeakKeyDictionary()
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

    # The kind of operation

    def _ask(self, fence: NodeCollective) -> None:
        """Make the upcall of a fence with other servers, now that all procs of this server have joined."""
        directives = combine_directives(fence, _OURS)
        if fence.lost:
            directives = (*directives, listing(ABSENT, gone_procs(fence)))
        data = self._committed_data(fence) if fence.collect else b""
        submit(self._server, fence, FenceUpcall(procs_of(fence), directives, data))

    def _take(self, fence: NodeCollective, result: Any) -> int:
        """Store the data of the other servers' procs."""
        fence.elsewhere = set()
        membership = fence.membership
        contributions: list[Contribution] = []
        what = "the data of a fence"
        deliveries = self._deliveries.get(membership)
        own = () if deliveries is None else deliveries.contributed
        status = self._modex.take_in(result, membership.others, what, fence.elsewhere, contributions, own)
        if contributions:
            (deliveries or self._deliveries_of(membership)).store(
                contributions, len(membership.members) + len(membership.others)
            )
        return status or fence.status

    def _committed_data(self, fence: NodeCollective) -> bytes:
        """Return the data that the callers have committed and that the servers of the other procs may lack."""
        membership = fence.membership
        callers = sorted(fence.arrived, key=proc_of)
        most = most_committed(self._server, membership)
        return self._deliveries_of(membership).contribute(callers, most, len(membership.members))

    def _deliveries_of(self, membership: Membership[Process, Call]) -> Deliveries:
        deliveries = self._deliveries.get(membership)
        if deliveries is None:
            deliveries = self._deliveries[membership] = Deliveries()
        return deliveries

    def _complete(self, fence: NodeCollective, status: int) -> None:
        """Answer the callers."""
        gone = gone_procs(fence) if status == statuses.ERR_PARTIAL_SUCCESS else ()
        if fence.absent is not None or gone or status not in _ANSWERED_ALIKE:
            answer_failures(fence, status, gone)
            return
        if status == statuses.SUCCESS and fence.membership.group:
            _answer_with_participants(fence)
        else:
            answer_all(fence, status)
        if fence.collect:
            for peer, _ in fence.arrived.values():
                peer.bundle = fence.membership


def _answer_with_participants(fence: NodeCollective) -> None:
    """Answer the callers, and add the participants for callers that ask for them."""
    asking = {each for each, (_, infos) in fence.said.items() if number(infos, FENCE_PARTICIPANTS) is not None}
    if not asking:
        answer_all(fence)
        return
    group = fence.membership.group.partition("\0")[0]
    participants = tuple(sorted([*[process.proc for process in fence.arrived], *fence.elsewhere]))
    mark = checksum(participants)
    for process, (peer, tag) in list(fence.arrived.items()):
        if process not in asking or peer.denied:
            peer.status(tag, peer.denied)
            peer.denied = 0
            continue
        expected = number(fence.said[process][1], FENCE_PARTICIPANTS) == mark
        if peer.pypmix:
            peer.send(tag, encode_participants(peer.buffer_type, () if expected else participants))
        else:
            keep(peer.participants, group, participants, KEPT)
            peer.status(tag, statuses.SUCCESS)


def _report_op(fence: NodeCollective, directives: tuple[Info, ...]) -> FenceUpcall:
    """Return the upcall that reports a fence whose limit passed here."""
    return FenceUpcall(procs_of(fence), tuple([info for info in directives if info.key not in _OURS]), b"")
