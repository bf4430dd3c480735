"""Groups that all members construct and destruct together, as MPI libraries do to make communicators of sessions."""

from __future__ import annotations

from operator import attrgetter, itemgetter

from pypmix.engine.base import Pending, ignore
from pypmix.engine.groups.states import Construction
from pypmix.engine.groups.talk import ABSENT, REACTION, SAYS, VERDICT, flag, found, proc, procs, size
from pypmix.engine.python.serverdata import FLAG_QUALIFIER
from pypmix.engine.python.serverside.constructs import (
    CONSTRUCT,
    Constructs,
    Outcome,
    name_of,
    told,
)
from pypmix.engine.python.serverside.grouprecords import GONE, MAX_GROUPS, Group, Records
from pypmix.engine.python.serverside.plans import Plan, Plans, listed_all
from pypmix.engine.python.serverside.topic import Topic, reason_of, status_of
from pypmix.engine.python.together import absent_of, answer_failure, directives_of, fail, procs_of, succeed, timeout_of
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.ops import SCOPE_GLOBAL
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.hosting import (
    GROUP_CONSTRUCT,
    GROUP_DESTRUCT,
    GROUP_LEADER_PROC,
    GROUP_ROUND,
    GroupUpcall,
)
from pypmix.standard.types import MAX_NSLEN, DataArray, Info, Proc, Value
from pypmix.wire.codec import NEWEST, PLAIN, Packer, encode_kval
from pypmix.wire.frames import frame
from pypmix.wire.messages import Command, reply_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from pypmix.engine.python.collectives import Collective, Said
    from pypmix.engine.python.server import Form, Peer, Server, Ticket
    from pypmix.engine.python.serverdata import Namespace, Process
    from pypmix.engine.python.serverside.bootstrapping import Bootstrapping
    from pypmix.engine.python.serverside.inviting import Inviting
    from pypmix.engine.python.serverside.reactions import Construct
    from pypmix.standard.ops import Notification

    Shared = dict[Proc, tuple[Info, ...]]

DESTRUCT = "group_destruct"

INFO_IN_REPLY = (6, 0, 0)
"""The first release whose clients get the others' group info with the reply.

Earlier ones ask the server for it, by the context id as a qualifier.
"""


ABORTED = (statuses.ERR_PARTIAL_SUCCESS, statuses.GROUP_CONSTRUCT_ABORT)
"""How a construct ends that lacks a member, or is aborted; each client is told what its release knows."""


class Groups(Topic):
    """Collective construct and destruct of groups.

    The host is asked about every one; one among procs of this server alone does not need it.

    Attributes:
        records: The groups that stand.
        constructs: Those under way.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.handlers = {
            Command.GROUP_CONSTRUCT: self._construct,
            Command.GROUP_DESTRUCT: self._destruct,
            Command.GROUP_INVITE: lambda *request: self.inviting.invite(*request),
            Command.GROUP_JOIN: lambda *request: self.inviting.join(*request),
        }
        server.askings[DESTRUCT] = self._ask_destruct
        server.endings[CONSTRUCT] = self._constructed
        server.endings[DESTRUCT] = self._destructed
        self.records = Records(server)
        self.constructs = constructs = Constructs(server, self)
        server.askings[CONSTRUCT] = constructs.all_here
        server.collectives.late = constructs.late
        server.collectives.dropped = self._dropped
        self._listed: tuple[object, object, tuple[Proc, ...]] = None, None, ()
        """The procs of this server and the others of the last destruct, and all of them in order."""
        self._destructing: dict[Collective[Process, Ticket], None] = {}
        """The destructs that the host has before it."""
        self._bootstrapping: Bootstrapping | None = None
        self._inviting: Inviting | None = None
        self._numbered = 0
        self.plans = Plans()
        self._last: tuple[Form, Plan, Collective[Process, Ticket], Said, Construct | None] | None = None
        """The request that others may repeat: who sends it alike, what it says, and what it is part of."""

    @property
    def bootstrapping(self) -> Bootstrapping:
        """The constructs of which nobody knows beforehand who takes part."""
        if self._bootstrapping is None:
            from pypmix.engine.python.serverside.bootstrapping import Bootstrapping

            self._bootstrapping = Bootstrapping(self.server, self)
        return self._bootstrapping

    @property
    def inviting(self) -> Inviting:
        """The invitations that clients leave to this server."""
        if self._inviting is None:
            from pypmix.engine.python.serverside.inviting import Inviting

            self._inviting = Inviting(self.server, self)
        return self._inviting

    def number(self, peer: Peer, answer: Callable[[Any, BaseException | None], None]) -> None:
        """Give a group of an invitation its context id, as inviters ask for it by a job control."""
        self._numbered += 1
        # A group of its leader alone, which nobody hears of: so every host has one number for each.
        name = f"pypmix.number.{peer.process.proc}.{self._numbered}"[-MAX_NSLEN:]
        alone = (peer.process.proc,)

        def done(result: object, error: BaseException | None) -> None:
            if not peer.open:
                return
            context_id: int | None = None
            if status_of(error) not in (statuses.SUCCESS, statuses.ERR_NOT_SUPPORTED):
                answer(None, error)
                return
            if error is None:
                self.server.host.upcall(GroupUpcall(GROUP_DESTRUCT, name, alone), ignore)
                try:
                    context_id = self.constructs.read(() if result is None else tuple(result), {}, alone)[1]  # type: ignore[arg-type]
                except (TypeError, ValueError, AttributeError) as problem:
                    self.server.host.log(f"the host answered construct of {name!r} with nonsense: {problem}")
            answer(
                (size(keys.GROUP_CONTEXT_ID, self.constructs.new_context_id() if context_id is None else context_id),),
                None,
            )

        infos = (flag(keys.GROUP_ASSIGN_CONTEXT_ID), size(GROUP_ROUND, 1))
        self.server.host.upcall(GroupUpcall(GROUP_CONSTRUCT, name, alone, infos), done, peer.process)

    # Requests

    def _construct(self, peer: Peer, tag: int, payload: bytes) -> None:
        name, said = self.plans.read(peer, Command.GROUP_CONSTRUCT, payload)
        plan = said
        store, process = self.server.store, peer.process
        if not name or len(name) > MAX_NSLEN or "\0" in name:
            raise PMIxError("a group needs a name", status=statuses.ERR_BAD_PARAM)
        if store.get(name) is not None or name in store.connections:
            raise PMIxError(f"there is an nspace {name!r} already", status=statuses.ERR_EXISTS)
        if plan.adds_all:
            plan = Plan(plan.named, self._with_each_added(plan.infos))
        if self.constructs.owed:
            owed = self.constructs.owed.get(name, {}).pop(process, statuses.SUCCESS)
            if owed:
                raise PMIxError(f"there will be no group {name!r}", status=told_as(owed, peer))
        if len(store.groups) >= MAX_GROUPS:
            raise PMIxError(f"there are {len(store.groups)} groups", status=statuses.ERR_OUT_OF_RESOURCE)
        if store.groups and not store.groups.keys().isdisjoint(plan.nspaces):
            plan = Plan(tuple(store.ungrouped(store.own(plan.named, process.proc))), plan.infos)
        if plan.offers:
            if store.key_of(name, process.proc) is not None:
                raise PMIxError(f"there is a group {name!r} already", status=statuses.ERR_EXISTS)
            self.bootstrapping.offer(name, peer, tag, plan.named, plan.infos, plan.timeout)
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
        construct = self.constructs.meeting(name, process, members, others)
        collective = construct.collective
        if collective is not None and (process in collective.arrived or collective.asked):
            # It has called already, or the others go on without it.
            raise PMIxError(f"{name!r} is constructed already", status=statuses.ERR_EXISTS)
        under_way = self.constructs.under_way.setdefault(name, [])
        if construct not in under_way:
            under_way.append(construct)
        self._call(construct, plan, peer, tag)
        collective = construct.collective
        if said is plan and collective is not None:
            self._last = peer.form, plan, collective, (plan.named, plan.infos), construct
            self.server.repeated, self.server.again = payload, self._again

    def _call(self, construct: Construct, plan: Plan, peer: Peer, tag: int) -> None:
        """Take in that a client calls a construct."""
        process = peer.process
        construct.called(process, plan)
        ticket, said = (peer, tag), (plan.named, plan.infos)
        tolerant = bool(construct.flags) or construct.rescued
        try:
            # It may be over when this returns.
            collective = construct.collective = self.server.collectives.join(
                construct.roster, process, ticket, False, plan.timeout, said, tolerant
            )
        except PMIxError:
            if construct.collective is None:
                self.constructs.end(construct)
            raise
        if collective.gone and self.constructs.is_running(construct):
            self.constructs.reactions.look(construct)

    def _again(self, peer: Peer, tag: int) -> bool:
        """Take in that a client repeats what another one has asked for; tell whether it is clear what that means."""
        assert self._last is not None
        form, plan, collective, said, construct = self._last
        process, roster = peer.process, collective.roster
        if peer.form is not form or peer.finalized or process not in roster.members or process in collective.arrived:
            return False
        if collective not in roster.running:
            return False
        if construct is None:
            if self.server.store.groups.get(roster.group) is not said[0]:
                return False
        elif self.constructs.owed or plan.version != self.server.store.version:
            return False
        elif plan.given:
            construct.called(process, plan)
        self.server.collectives.join(roster, process, (peer, tag), False, plan.timeout, said)
        if construct is not None and collective.gone and self.constructs.is_running(construct):
            self.constructs.reactions.look(construct)
        return True

    def _with_each_added(self, infos: tuple[Info, ...]) -> tuple[Info, ...]:
        """Return infos with the procs of a job, where it is known here, in place of its wildcard among those added."""
        each = self.constructs.flat(tuple(listed_all(infos, keys.GROUP_ADD_MEMBERS)))
        return (*[info for info in infos if info.key != keys.GROUP_ADD_MEMBERS], procs(keys.GROUP_ADD_MEMBERS, each))

    def _destruct(self, peer: Peer, tag: int, payload: bytes) -> None:
        name, plan = self.plans.read(peer, Command.GROUP_DESTRUCT, payload)
        collective = self.destruct(peer, tag, name or "", plan.infos, plan.timeout)
        said = collective.said.get(peer.process)
        if said is not None and said[1] is plan.infos:
            self._last = peer.form, plan, collective, said, None
            self.server.repeated, self.server.again = payload, self._again

    def destruct(
        self, peer: Peer, tag: int, called: str, infos: tuple[Info, ...], timeout: float | None = None
    ) -> Collective[Process, Ticket]:
        """Take in that a client destructs a group; those whose library knows of none say so by a fence."""
        store, process = self.server.store, peer.process
        name: str | None = called
        if called in store.namesakes or process.proc not in store.groups.get(called, ()):
            name = store.key_of(called, process.proc)
        if name is None or name in store.connections:
            if name is not None or not store.keys_of(called):
                raise NotFound(f"there is no group {called!r}")
            raise PMIxError(f"it is no member of {called!r}", status=statuses.ERR_NOT_A_MEMBER)
        group = self.records.get(name)
        tolerant = group.notify or group.tolerant
        if tolerant:
            for key, on in ((keys.GROUP_NOTIFY_TERMINATION, group.notify), (keys.GROUP_FT_COLLECTIVE, group.tolerant)):
                if on and not is_set(infos, key):
                    infos = (*infos, flag(key))
        elif infos:
            tolerant = is_set(infos, keys.GROUP_FT_COLLECTIVE)
        members, others = store.address(name)
        roster = self.server.collectives.of_group(f"{DESTRUCT} {name}", name, members, others, process)
        if timeout is None:
            timeout = timeout_of(infos)
        said = store.groups[name], infos
        return self.server.collectives.join(roster, process, (peer, tag), timeout=timeout, said=said, tolerant=tolerant)

    def is_made(self, name: str) -> bool:
        """Tell whether a group of this name is under way here."""
        return name in self.constructs.under_way or name in self._gathered()

    def made_with(self, other: Proc) -> tuple[str, ...]:
        """Return the names of the groups under way here that a proc of another server may be in."""
        under_way = self.constructs.under_way.items()
        named = [name for name, made in under_way if any(other in construct.roster.others for construct in made)]
        return tuple(dict.fromkeys([*named, *self._gathered()]))

    def _gathered(self) -> Collection[str]:
        return () if self._bootstrapping is None else self._bootstrapping.names

    def guests(self, name: str, added: tuple[Proc, ...]) -> dict[Proc, tuple[Info, ...]]:
        """Return who of those that a construct adds has come here, and with which infos."""
        return {} if self._bootstrapping is None else self._bootstrapping.guests(name, added)

    # What the host is asked

    def _ask_destruct(self, collective: Collective[Process, Ticket]) -> None:
        server = self.server
        self._destructing[collective] = None
        roster = collective.roster
        name = roster.group.partition("\0")[0]
        gone: tuple[Proc, ...] = ()
        members, others, everyone = self._listed
        if members is not roster.members or others is not roster.others:
            everyone = procs_of(collective)
            self._listed = roster.members, roster.others, everyone
        directives: tuple[Info, ...] = ()
        if collective.lost or any(map(_INFOS, collective.said.values())):
            directives = directives_of(collective)
        if collective.lost:
            gone = tuple(sorted([process.proc for process in collective.gone]))
            directives += (procs(ABSENT, gone),)

        def answer(_result: object, error: BaseException | None) -> None:
            self._destructing.pop(collective, None)
            status = statuses.SUCCESS if error is None else status_of(error)
            if status == statuses.ERR_NOT_SUPPORTED and not roster.others:
                status = statuses.SUCCESS
            collective.absent = absent_of(error) if status != statuses.SUCCESS else gone or None
            collective.reason = reason_of(error)
            if status == statuses.SUCCESS and collective.lost:
                status = collective.status
            server.collectives.finish(collective, status)

        server.host.upcall(GroupUpcall(GROUP_DESTRUCT, name, everyone, directives), answer)

    # Ends

    def _constructed(self, collective: Collective[Process, Ticket], status: int) -> None:
        construct = self.constructs.of(collective)
        self.constructs.end(construct)
        outcome = self.constructs.outcomes.pop(collective, None)
        if self._bootstrapping is not None and not construct.roster.others:
            self._bootstrapping.over(construct.name, status, outcome)
        if status != statuses.SUCCESS or outcome is None:
            if construct.asked:
                timed = status == statuses.ERR_TIMEOUT
                self.constructs.cancel(
                    construct.name, (Info(keys.LOCAL_COLLECTIVE_STATUS, Value(codes.STATUS, status)),) if timed else ()
                )
            if construct.state != Construction.OVER:
                if (
                    status == statuses.ERR_TIMEOUT
                    and construct.round > 1
                    and not (construct.asked or construct.cancelled)
                ):
                    # Its callers have not said in time what they make of a failure.
                    self.constructs.withdraw(construct, collective, status)
                construct.step(Construction.ENDS)
            if construct.roster.others and construct.leader in construct.told and not construct.aborted:
                self.constructs.reactions.selected(construct, None)
            if status in ABORTED:
                for peer, tag in collective.arrived.values():
                    answer_failure(peer, tag, told_as(status, peer), collective.absent, collective.reason)
            else:
                fail(collective, status or statuses.ERROR)
            return
        flags = keys.GROUP_NOTIFY_TERMINATION in construct.flags, keys.GROUP_FT_COLLECTIVE in construct.flags
        group = Group(outcome.leader, *flags, outcome.context_id)
        plan = outcome.plan
        if plan is not None and self._stands_as_asked(construct.name, collective, outcome, plan, group):
            return
        callers = dict(collective.arrived)
        self.stands(construct.name, outcome, group, callers, agreed=not construct.alone)

    def _stands_as_asked(
        self, name: str, collective: Collective[Process, Ticket], outcome: Outcome, plan: Plan, group: Group
    ) -> bool:
        """Answer who has constructed a group that is just what all have asked for, and note it; return whether it is.

        The answers go first: who has them goes on in the meantime.
        """
        store = self.server.store
        if len(plan.nspaces) > 1 or len(collective.arrived) < len(plan.members):
            return False
        if name in store.groups or name in store.namesakes:
            return False
        if plan.version != store.version or any(map(_HAS_LEFT, plan.members)):
            return False
        packed: dict[Form, bytes] = {}
        form: Form | None = None
        last = 0
        data = b""
        for peer, tag in collective.tickets():
            if peer.form is not form or tag != last:
                form, last = peer.form, tag
                payload = packed.get(form)
                if payload is None:
                    payload = packed[form] = plan.reply(form, outcome.members, outcome.context_id)
                data = frame(0, tag, payload)
            if peer.open:
                peer.link.send_now(data)
        self.records.form(name, outcome.members, group)
        store.knows(name, plan.members, plan.others)
        if plan.question is not None and len(plan.question[0]) == len(outcome.members):
            # It will be taken apart by the same procs.
            self._listed = plan.members, plan.others, plan.question[0]
        return True

    def stands(
        self, name: str, outcome: Outcome, group: Group, callers: dict[Process, Ticket], agreed: bool = False
    ) -> None:
        """A group stands: note it and answer those who have constructed it.

        Args:
            name: Its name.
            outcome: What it is.
            group: What is noted of it.
            callers: Who is to be answered.
            agreed: Whether other servers know of these very members.
        """
        store = self.server.store
        key = next((key for key in store.keys_of(name) if self.records.get(key).formed == outcome.members), None)
        members = outcome.members
        if key is None:
            key = store.free_key(name)
        else:
            # Callers of this server have come to it in both ways: by naming the others, and as those whom they add.
            known, members = self.records.get(key), store.groups[key]
            group.leader = known.leader
            group.notify, group.tolerant = group.notify or known.notify, group.tolerant or known.tolerant
            group.kept += known.kept
        self.records.form(key, members, group)
        group.formed = outcome.members
        if outcome.context_id is not None:
            for each, items in outcome.shared.items():
                self._keep(each, items, outcome.context_id, group)
        if agreed:
            self.reply(callers, outcome, outcome.members)
        self._bury(outcome.members)
        self.records.catch_up(key)
        self.records.review(key)
        if not agreed:
            self.reply(callers, outcome, store.groups.get(key, ()))

    def reply(self, callers: dict[Process, Ticket], outcome: Outcome, members: tuple[Proc, ...]) -> None:
        """Answer procs that have constructed a group."""
        shared = [told(each, outcome.shared[each]) for each in members if outcome.shared.get(each)]
        leader = () if outcome.leader is None else (proc(GROUP_LEADER_PROC, outcome.leader),)
        packed: dict[tuple[object, ...], bytes] = {}
        inside = frozenset(members)
        for process, (peer, tag) in callers.items():
            if process.proc not in inside:
                # It has finalized in the meantime.
                peer.status(tag, told_as(statuses.GROUP_CONSTRUCT_ABORT, peer))
                continue
            form = peer.buffer_type, peer.release, peer.pypmix, process.namespace
            payload = packed.get(form)
            if payload is None:
                payload = packed[form] = reply_layout(Command.GROUP_CONSTRUCT, peer.release).encode(
                    peer.buffer_type,
                    peer.release,
                    # Others than ours drop the membership with any status but success.
                    status=statuses.ERR_PARTIAL_SUCCESS if outcome.partial and peer.pypmix else statuses.SUCCESS,
                    members=members,
                    context_id=outcome.context_id,
                    group_info=(*shared, *(leader if peer.pypmix else ())),
                    objects=self._foreign(peer, process, members),
                )
            peer.send(tag, payload)

    def _bury(self, members: tuple[Proc, ...]) -> None:
        """Take those out of the group that have ended while it was being made."""
        for each in members:
            process = self.server.store.find(each)
            if process is not None and process.local and process.left:
                self.records.departed(process)

    def _foreign(self, peer: Peer, process: Process, members: tuple[Proc, ...]) -> tuple[bytes, ...]:
        """Return the job info of the nspaces that a member may not know."""
        names = dict.fromkeys([each.nspace for each in members if each.nspace != process.namespace.name])
        spaces = [self.server.store.get(name) for name in names]
        return tuple([space.pack(peer.buffer_type, peer.release).reply for space in spaces if space is not None])

    def _keep(self, member: Proc, items: tuple[Info, ...], context_id: int, group: Group) -> None:
        """Keep what a member has said of itself in a group for those who ask by the context id."""
        process = self.server.store.find(member)
        if process is None or not items:
            return
        qualifier = Info(keys.GROUP_CONTEXT_ID, Value(codes.SIZE, context_id), FLAG_QUALIFIER)
        packer = Packer()
        for item in items:
            pair = DataArray(codes.INFO, (item, qualifier))
            packer.pack_raw(encode_kval(PLAIN, keys.QUALIFIED_VALUE, Value(codes.DATA_ARRAY, pair)))
        committed, before = process.committed, set(process.data)
        process.commit([(SCOPE_GLOBAL, packer.bytes())], PLAIN, NEWEST)
        group.kept += [(process, key) for key in process.data if key not in before]
        # What it commits itself is still to come.
        process.committed = committed

    def _destructed(self, collective: Collective[Process, Ticket], status: int) -> None:
        name = collective.roster.group
        if collective in self._destructing:
            del self._destructing[collective]
            timed = (
                (Info(keys.LOCAL_COLLECTIVE_STATUS, Value(codes.STATUS, status)),)
                if status == statuses.ERR_TIMEOUT
                else ()
            )
            self.constructs.cancel(name.partition("\0")[0], timed)
        if status not in (statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS):
            fail(collective, status)
            return
        if collective.gone:
            self.records.mourn(name)
        if status == statuses.SUCCESS:
            # Who has the answer goes on in the meantime.
            succeed(collective)
            self.records.dissolve(name)
            return
        self.records.dissolve(name)
        for peer, tag in collective.arrived.values():
            answer_failure(peer, tag, status, collective.absent, collective.reason)

    def _dropped(self, collective: Collective[Process, Ticket]) -> None:
        """Nobody is left of those who had called an operation."""
        self._destructing.pop(collective, None)
        if collective.roster.operation.startswith(CONSTRUCT):
            self.constructs.dropped(collective)
            if self._bootstrapping is not None and not collective.roster.others:
                self._bootstrapping.over(name_of(collective), statuses.GROUP_CONSTRUCT_ABORT, None)

    # Events

    def heard(self, event: Notification, process: Process) -> bool:
        """Take in what a client says to this server alone; tell whether it was that."""
        if event.code != statuses.TALK:
            return False
        says = found(event.infos, SAYS, str)
        if says != REACTION:
            # Only servers say that somebody has gone.
            return says == GONE
        failed, verdict = found(event.infos, keys.EVENT_AFFECTED_PROC, Proc), found(event.infos, VERDICT, str)
        for construct in self.constructs.under_way.get(found(event.infos, keys.GROUP_ID, str) or "", [])[:]:
            if process in construct.roster.members:
                self.constructs.reactions.reacted(construct, process, failed, verdict)
        return True

    def swallowed(self, event: Notification) -> bool:
        """Take in what another server says to this one; tell whether it was that."""
        return self.records.swallowed(event)

    def happened(self, event: Notification) -> None:
        """An event about groups has been raised, and those in its range know of it."""
        if event.code == statuses.GROUP_CONSTRUCT_ABORT:
            for construct in self.constructs.under_way.get(found(event.infos, keys.GROUP_ID, str) or "", [])[:]:
                process = self.server.store.find(event.source)
                if process in construct.roster.members:
                    self.constructs.abort(construct, quiet=True)
        self.records.happened(event)
        if self._inviting is not None:
            self._inviting.happened(event)

    # Who goes

    def departed(self, process: Process, lost: bool) -> None:
        for constructs in list(self.constructs.under_way.values()):
            for construct in constructs[:]:
                if process not in construct.roster.members:
                    continue
                collective = construct.collective
                if collective is None or not self.server.collectives.is_running(collective):
                    continue
                if construct.asked:
                    if lost and process in collective.gone and not construct.roster.others and not construct.sparing:
                        if construct.alone:
                            self.server.collectives.finish(collective, statuses.ERR_PARTIAL_SUCCESS)
                        else:
                            self.constructs.abort(construct, quiet=True)
                    continue
                self.constructs.reactions.departed(construct, process)
                if self.constructs.is_running(construct):
                    self.constructs.reactions.look(construct)
                    self.constructs.settle(construct)
        for name, owed in list(self.constructs.owed.items()):
            owed.pop(process, None)
            if not owed:
                del self.constructs.owed[name]
        if self._bootstrapping is not None:
            self._bootstrapping.departed(process)
        if self._inviting is not None:
            self._inviting.departed(process)
        self.records.departed(process)

    def disconnected(self, peer: Peer) -> None:
        if self._bootstrapping is not None:
            self._bootstrapping.disconnected(peer)

    def deregistered(self, namespace: Namespace) -> None:
        self.plans.forget()
        self._last = self.server.repeated = None
        self._listed = None, None, ()
        self.records.deregistered(namespace)

    def pending(self) -> list[Pending]:
        waiting = []
        for constructs in self.constructs.under_way.values():
            for construct in constructs:
                if construct.due and construct.collective is not None:
                    due = {process.proc for processes in construct.due.values() for process in processes}
                    came = {each.proc for each in construct.collective.arrived}
                    arrived = tuple(sorted(came - due))
                    label = "reactions to a failure"
                    operation = f"{CONSTRUCT} {construct.name}"
                    waiting.append(Pending(operation, label, arrived, tuple(sorted(due)), construct.collective.since))
        return waiting + ([] if self._bootstrapping is None else self._bootstrapping.pending())


_HAS_LEFT = attrgetter("left")
_INFOS = itemgetter(1)


def told_as(status: int, peer: Peer) -> int:
    """Return how a client is told that a construct has ended with some status."""
    if status not in ABORTED:
        return status
    return statuses.GROUP_CONSTRUCT_ABORT if peer.release >= INFO_IN_REPLY else statuses.ERR_PARTIAL_SUCCESS
