"""Groups that all members construct and destruct together, as MPI libraries do to make communicators of sessions."""

from __future__ import annotations

from functools import partial
from operator import itemgetter

from pypmix.engine.collective.machine import ABOVE, CollectiveState, Kind, Membership
from pypmix.engine.collective.rules import CONSTRUCT, DESTRUCT, is_ft
from pypmix.engine.common import Pending
from pypmix.engine.groups.talk import ABSENT, DECLARES, GONE, REACTION, SAYS, VERDICT, flag, found, procs
from pypmix.engine.python.collectives import (
    answer_all,
    answer_failures,
    combine_directives,
    gone_procs,
    report_timeout,
    submit,
    timeout_of,
)
from pypmix.engine.python.serverside.constructs import Construct, construct_kind
from pypmix.engine.python.serverside.forming import Forming, told_as
from pypmix.engine.python.serverside.grouprecords import MAX_GROUPS
from pypmix.engine.python.serverside.plans import Plan, Plans, listed_all
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, OutOfResources, PMIxError
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.hosting import (
    GROUP_DESTRUCT,
    GroupUpcall,
)
from pypmix.standard.types import MAX_NSLEN, RANK_WILDCARD, Info, Proc
from pypmix.wire.messages import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.collective.machine import Collective, Said
    from pypmix.engine.python.collectives import NodeCollective
    from pypmix.engine.python.node import Call, Form, Node, Peer
    from pypmix.engine.python.processes import Namespace, Process
    from pypmix.engine.python.serverside.inviting import Inviting
    from pypmix.standard.ops import Notification

    Read = tuple[bytes, Form, Plan, Collective[Process, Call], Said, Construct | None]
    """A request: its bytes, the client's packing, the plan, the collective, the contribution, and the construct."""


class Groups(Forming):
    """Collective construct and destruct of groups.

    The host is asked about every one; one among procs of this server alone does not need it.
    """

    def __init__(self, server: Node) -> None:
        super().__init__(server)
        self.handlers = {
            Command.GROUP_CONSTRUCT: self._construct,
            Command.GROUP_DESTRUCT: self._destruct,
            Command.GROUP_INVITE: lambda *request: self.inviting.invite(*request),
            Command.GROUP_JOIN: lambda *request: self.inviting.join(*request),
        }
        self._constructs: Kind = construct_kind(self, Construct)
        self._destructs = Kind(
            DESTRUCT,
            self._ask_destruct,
            _take_destruct,
            self._complete_destruct,
            report_timeout=partial(report_timeout, server, self._destruct_op),
        )
        self._inviting: Inviting | None = None
        self._last: Read | None = None
        """The last request, which the others of its group are likely to send in the same bytes."""
        self.plans = Plans(server.store)

    @property
    def inviting(self) -> Inviting:
        """The invitations that clients leave to this server."""
        if self._inviting is None:
            from pypmix.engine.python.serverside.inviting import Inviting

            self._inviting = Inviting(self.server, self)
        return self._inviting

    # Requests

    def _repeats(self, peer: Peer, tag: int) -> bool:
        """Join the collective of the last request, which a request equals byte by byte.

        Returns:
            True if it has joined.
        """
        assert self._last is not None
        _, form, plan, collective, said, construct = self._last
        process, membership = peer.process, collective.membership
        if peer.form is not form or peer.finalized or collective.state != CollectiveState.GATHERING:
            return False
        if process in collective.arrived or process not in membership.members:
            return False
        store = self.server.store
        if construct is None:
            if store.groups.get(membership.group) is not said[0]:
                return False
        elif plan.version != store.version or self.owed:
            return False
        elif plan.given:
            construct.called(process, plan)
            peer.is_own_engine = peer.is_own_engine or plan.reacts
        collective.add_contribution(process, (peer, tag), False, plan.timeout, said)
        if construct is not None and collective.gone and collective.is_running:
            construct.look()
        return True

    def _construct(self, peer: Peer, tag: int, payload: bytes) -> None:
        if self._last is not None and payload == self._last[0] and self._repeats(peer, tag):
            return
        name, said = self.plans.read(peer, Command.GROUP_CONSTRUCT, payload)
        plan = said
        store, process = self.server.store, peer.process
        if not name or len(name) > MAX_NSLEN or "\0" in name:
            raise PMIxError("a group needs a name", status=statuses.ERR_BAD_PARAM)
        if store.get(name) is not None or name in store.connections:
            raise PMIxError(f"there is an nspace {name!r} already", status=statuses.ERR_EXISTS)
        if plan.adds_all:
            plan = Plan(plan.named, self._with_each_added(plan.infos))
        owed = self.owed.get(name, {}).pop(process, statuses.SUCCESS) if self.owed else statuses.SUCCESS
        if owed:
            raise PMIxError(f"there will be no group {name!r}", status=told_as(owed, peer))
        if len(store.groups) >= MAX_GROUPS:
            raise OutOfResources(f"there are {len(store.groups)} groups")
        if store.groups and not store.groups.keys().isdisjoint(plan.nspaces):
            plan = Plan(tuple(store.ungrouped(store.resolve(plan.named, process.proc))), plan.infos)
        peer.is_own_engine = peer.is_own_engine or plan.reacts
        if plan.offers:
            if store.key_of(name, process.proc) is not None:
                raise PMIxError(f"there is a group {name!r} already", status=statuses.ERR_EXISTS)
            # Most servers never need it.
            from pypmix.engine.python.serverside.bootstrapping import offer

            offer(self, name, process, (peer, tag), plan)
            return
        plan.expand(store)
        members, others = plan.members, plan.others
        if process not in members:
            raise PMIxError("it is not one of the procs that it names", status=statuses.ERR_BAD_PARAM)
        taken = name in store.groups or name in store.namesakes
        for key in store.keys_of(name) if taken else ():
            there = store.groups[key]
            if not others.isdisjoint(there) or any(store.find(each) in members for each in there):
                raise PMIxError(f"there is a group {name!r} already", status=statuses.ERR_EXISTS)
        construct = self._meeting(name, process, members, others)
        construct.called(process, plan)
        collective, contribution = construct.collective, (plan.named, plan.infos)
        collective.add_contribution(process, (peer, tag), False, plan.timeout, contribution)
        if collective.gone and collective.is_running:
            construct.look()
        if said is plan:
            self._last = payload, peer.form, plan, collective, contribution, construct

    def _meeting(self, name: str, process: Process, members: frozenset[Process], remote: frozenset[Proc]) -> Construct:
        """Return the construct that a caller joins; begin one if necessary.

        Raises:
            PMIxError: A construct of that name has other procs (`ERR_BAD_PARAM`), or the caller has called already, or
                the construct no longer accepts callers (`ERR_EXISTS`).
        """
        for construct in self.under_way.get(name, ()):
            collective, membership = construct.collective, construct.collective.membership
            if (membership.members is members or membership.members == members) and _alike(membership.others, remote):
                if process in collective.arrived or collective.state != CollectiveState.GATHERING:
                    raise PMIxError(f"{name!r} is constructed already", status=statuses.ERR_EXISTS)
                return construct
            if membership.members.isdisjoint(members):
                continue
            if process in membership.members:
                # The procs that wait for this caller would wait for ever, and so would the procs that it has named.
                self.owe(
                    name, (membership.members | members) - {process} - set(collective.arrived), statuses.ERR_BAD_PARAM
                )
                construct.give_up(statuses.ERR_BAD_PARAM)
            raise PMIxError(f"others construct {name!r} of other procs", status=statuses.ERR_BAD_PARAM)
        collectives = self.server.collectives
        begun = collectives.begin(
            Membership(collectives, self._constructs, f"{CONSTRUCT} {name}", members, remote), process
        ).record
        assert isinstance(begun, Construct)
        self.under_way.setdefault(name, []).append(begun)
        return begun

    def _with_each_added(self, infos: tuple[Info, ...]) -> tuple[Info, ...]:
        """Return infos in which each wildcard of a known job among the added procs is replaced by the job's procs."""
        each = self.flat(tuple(listed_all(infos, keys.GROUP_ADD_MEMBERS)))
        return (*[info for info in infos if info.key != keys.GROUP_ADD_MEMBERS], procs(keys.GROUP_ADD_MEMBERS, each))

    def _destruct(self, peer: Peer, tag: int, payload: bytes) -> None:
        if self._last is not None and payload == self._last[0] and self._repeats(peer, tag):
            return
        name, plan = self.plans.read(peer, Command.GROUP_DESTRUCT, payload)
        collective = self.destruct(peer, tag, name or "", plan.infos, plan.timeout)
        said = collective.said.get(peer.process)
        if said is not None and said[1] is plan.infos:
            self._last = payload, peer.form, plan, collective, said, None

    def destruct(
        self, peer: Peer, tag: int, called: str, infos: tuple[Info, ...], timeout: float | None = None
    ) -> Collective[Process, Call]:
        """Join a client to the destruct of a group; a library that has no such request sends a fence instead."""
        store, process = self.server.store, peer.process
        name: str | None = called
        if called in store.namesakes or process.proc not in store.groups.get(called, ()):
            name = store.key_of(called, process.proc)
        if name is None or name in store.connections:
            if name is not None or not store.keys_of(called):
                raise NotFound(f"there is no group {called!r}")
            raise PMIxError(f"it is not a member of {called!r}", status=statuses.ERR_NOT_A_MEMBER)
        group = self.records.get(name)
        if group.notify and not is_set(infos, keys.GROUP_NOTIFY_TERMINATION):
            infos = (*infos, flag(keys.GROUP_NOTIFY_TERMINATION))
        if group.ft and not is_set(infos, keys.GROUP_FT_COLLECTIVE):
            infos = (*infos, flag(keys.GROUP_FT_COLLECTIVE))
        members, others = store.address(name)
        membership = self.server.collectives.of_group(self._destructs, name, members, others, process)
        if timeout is None:
            timeout = timeout_of(infos)
        said, ft = (store.groups[name], infos), bool(infos) and is_ft(DESTRUCT, infos)
        return self.server.collectives.join(membership, process, (peer, tag), timeout=timeout, contribution=said, ft=ft)

    def _ask_destruct(self, destruct: NodeCollective) -> None:
        """Ask the host, now that all members of this server have joined."""
        if self._missed(destruct):
            destruct.lost = True
        directives: tuple[Info, ...] = ()
        if destruct.lost:
            directives = (*combine_directives(destruct), procs(ABSENT, self._ended_members(destruct)))
        elif any(map(_INFOS, destruct.said.values())):
            directives = combine_directives(destruct)
        submit(self.server, destruct, self._destruct_op(destruct, directives), is_optional=True)

    def _destruct_op(self, destruct: NodeCollective, directives: tuple[Info, ...]) -> GroupUpcall:
        name = destruct.membership.group.partition("\0")[0]
        return GroupUpcall(GROUP_DESTRUCT, name, self.everyone(destruct), directives)

    def _ended_members(self, destruct: NodeCollective) -> tuple[Proc, ...]:
        """Return the members that have ended without a destruct, whenever they ended."""
        return tuple(sorted({*gone_procs(destruct), *self._missed(destruct)}))

    def _missed(self, destruct: NodeCollective) -> list[Proc]:
        """Return the members that had ended before a destruct began."""
        lost = self.records.get(destruct.membership.group).lost
        return [member for member, missed in lost.items() if missed] if lost else []

    def _complete_destruct(self, destruct: NodeCollective, status: int) -> None:
        """Answer the callers; the group no longer exists, unless the destruct has failed."""
        name, records = destruct.membership.group, self.records
        if destruct.ended_in in ABOVE:
            self.cancel(name.partition("\0")[0], self.everyone(destruct), status)
        if status not in (statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS):
            answer_failures(destruct, status)
            return
        if destruct.gone:
            records.report_ended(name)
        if status == statuses.SUCCESS:
            # The callers continue in the meantime.
            answer_all(destruct)
            records.dissolve(name, True)
            return
        gone = self._ended_members(destruct)
        records.dissolve(name, True)
        answer_failures(destruct, status, gone)

    def formed(self, key: str) -> tuple[Proc, ...]:
        """Return the members of a group at the time when it was formed."""
        return self.records.get(key).formed

    def is_ft(self, key: str) -> bool:
        """Return True if a group was formed to continue without members that end."""
        return self.records.get(key).ft

    # Events

    def handle_event(self, event: Notification, process: Process) -> bool:
        """Handle an event that a client sends to this server alone; return True if it was such an event."""
        if event.code != statuses.TALK:
            return False
        says = found(event.infos, SAYS, str)
        if says != REACTION:
            # Only servers report that a member has ended, or leads a construct.
            return says in (GONE, DECLARES)
        failed, verdict = found(event.infos, keys.EVENT_AFFECTED_PROC, Proc), found(event.infos, VERDICT, str)
        for construct in self.under_way.get(found(event.infos, keys.GROUP_ID, str) or "", [])[:]:
            if process in construct.collective.membership.members:
                construct.reacted(process, failed, verdict)
        return True

    def swallowed(self, event: Notification) -> bool:
        """Handle an event that another server sends to this one alone; return True if it was such an event."""
        if event.code == statuses.TALK and found(event.infos, SAYS, str) == DECLARES:
            # It is for the host, which has got it already.
            return True
        return self.records.swallowed(event)

    def happened(self, event: Notification) -> None:
        """Apply an event about groups that was raised and delivered to its range."""
        if event.code == statuses.GROUP_CONSTRUCT_ABORT:
            for construct in self.under_way.get(found(event.infos, keys.GROUP_ID, str) or "", [])[:]:
                membership = construct.collective.membership
                # The server of a participant may have no caller that could give the construct up for all.
                if event.source in membership.others or self.server.store.find(event.source) in membership.members:
                    construct.abort(quiet=True)
        self.records.happened(event)
        if self._inviting is not None:
            self._inviting.happened(event)

    # Departures

    def handle_departure(self, process: Process, failed: bool) -> None:
        for construct in [each for made in self.under_way.values() for each in made]:
            collective = construct.collective
            if not collective.is_running:
                continue
            if construct.is_open or process in collective.membership.members:
                construct.departed(process, failed)
            elif collective.state == CollectiveState.ADDING:
                construct.ask()
        for name, owed in list(self.owed.items()):
            owed.pop(process, None)
            if not owed:
                del self.owed[name]
        if self._inviting is not None:
            self._inviting.departed(process)
        self.records.departed(process)

    def handle_withdrawal(self, process: Process, call: Call) -> None:
        for construct in [each for made in self.under_way.values() for each in made]:
            if construct.collective.arrived.get(process, call) == call:
                construct.dismiss(process)

    def deregistered(self, namespace: Namespace) -> None:
        self._last = None
        self._listed = None, None, ()
        self.records.deregistered(namespace)

    def pending(self) -> list[Pending]:
        waiting = []
        for construct in [each for made in self.under_way.values() for each in made]:
            if construct.due:
                due = {process.proc for processes in construct.due.values() for process in processes}
                collective = construct.collective
                arrived = tuple(sorted({each.proc for each in collective.arrived} - due))
                operation, label = collective.membership.operation, "reactions to a failure"
                waiting.append(Pending(operation, label, arrived, tuple(sorted(due)), collective.since))
        return waiting


_INFOS = itemgetter(1)


def _take_destruct(destruct: NodeCollective, _result: object) -> int:
    """Return the status of a destruct that the host has carried out."""
    # A group that has admitted members may be fault tolerant without this server's knowledge; the host knows.
    return statuses.SUCCESS if destruct.membership.others else destruct.status


def _alike(one: frozenset[Proc], other: frozenset[Proc]) -> bool:
    """Return True if these may be the same procs: a wildcard may name the procs of other servers."""
    if one == other:
        return True
    whole = {each.nspace for each in one | other if each.rank == RANK_WILDCARD}
    rest = [each for each in one ^ other if each.nspace not in whole]
    return not rest and all(any(each.nspace == name for each in side) for name in whole for side in (one, other))
