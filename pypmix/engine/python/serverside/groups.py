"""Groups that all members construct and destruct together, as MPI libraries do to make communicators of sessions."""

from __future__ import annotations

from operator import attrgetter, itemgetter

from pypmix.engine.base import Pending, ignore
from pypmix.engine.collective.machine import Life, Roster
from pypmix.engine.collective.rules import CONSTRUCT, DESTRUCT, is_ft
from pypmix.engine.groups.talk import ABSENT, REACTION, SAYS, VERDICT, flag, found, proc, procs, size
from pypmix.engine.python.collectives import NodeCollective, NodeKind, status_info, timeout_of
from pypmix.engine.python.serverdata import FLAG_QUALIFIER
from pypmix.engine.python.serverside.constructs import Construct, Outcome, told, told_as
from pypmix.engine.python.serverside.grouprecords import GONE, MAX_GROUPS, Group, Records
from pypmix.engine.python.serverside.plans import Plan, Plans, is_infos, listed_all
from pypmix.engine.python.serverside.topic import Topic, status_of
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.ops import SCOPE_GLOBAL
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.hosting import (
    GROUP_CANCEL,
    GROUP_CONSTRUCT,
    GROUP_DESTRUCT,
    GROUP_LEADER_PROC,
    GROUP_ROUND,
    GroupUpcall,
)
from pypmix.standard.types import MAX_NSLEN, RANK_VALID, RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.codec import NEWEST, PLAIN, Packer, encode_kval
from pypmix.wire.frames import frame
from pypmix.wire.messages import Command, reply_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from pypmix.engine.collective.machine import Collective, Said
    from pypmix.engine.python.server import Form, Peer, Server, Ticket
    from pypmix.engine.python.serverdata import Namespace, Process
    from pypmix.engine.python.serverside.bootstrapping import Bootstrapping
    from pypmix.engine.python.serverside.inviting import Inviting
    from pypmix.standard.ops import Notification

    Shared = dict[Proc, tuple[Info, ...]]


OWED_SECONDS = 30.0
"""For how long procs are told that a construct has failed without them, if they call it after that."""

MAX_OWED = 4096
"""Of how many names that is remembered."""


class Repeated:
    """A request that others may repeat byte by byte, because all of a group send it: it is not read again.

    Args:
        payload: Its bytes.
        form: How the client packs that sent it.
        plan: What it says.
        collective: What it is part of.
        said: The procs and directives that it contributes.
    """

    __slots__ = ("_collective", "_form", "_plan", "_said", "payload")

    def __init__(
        self, payload: bytes, form: Form, plan: Plan, collective: Collective[Process, Ticket], said: Said
    ) -> None:
        self.payload = payload
        self._form = form
        self._plan = plan
        self._collective = collective
        self._said = said

    def join(self, peer: Peer, tag: int) -> bool:
        """Take in that a client repeats it; return False where it has to be read like any other."""
        collective, plan, process = self._collective, self._plan, peer.process
        roster = collective.roster
        if peer.form is not self._form or peer.finalized or collective.state != Life.GATHERS:
            return False
        if process in collective.arrived or process not in roster.members:
            return False
        store = peer.server.store
        if not isinstance(collective, Construct):
            if store.groups.get(roster.group) is not self._said[0]:
                return False
        elif plan.version != store.version or peer.server.groups.owed:
            return False
        elif plan.given:
            collective.called(process, plan)
        collective.come(process, (peer, tag), False, plan.timeout, self._said)
        if collective.gone and isinstance(collective, Construct) and collective.is_running:
            collective.look()
        return True


class _Destruct(NodeCollective):
    """One destruct of a group, by its members."""

    __slots__ = ()

    host_is_optional = True

    def ask(self) -> None:
        """All members of this server have come: ask the host."""
        directives: tuple[Info, ...] = ()
        if self.lost or any(map(_INFOS, self.said.values())):
            directives = self.directives()
        if self.lost:
            directives += (procs(ABSENT, self.gone_procs()),)
        members = self.server.groups.everyone(self)
        self.submit(GroupUpcall(GROUP_DESTRUCT, self.roster.group.partition("\0")[0], members, directives))

    def ended(self, status: int) -> None:
        """Answer the callers; the group is no more, unless it has failed."""
        name, records = self.roster.group, self.server.groups.records
        if self.asked:
            self.server.groups.cancel(name.partition("\0")[0], status)
        if status not in (statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS):
            self.fail(status)
            return
        if self.gone:
            records.mourn(name)
        if status == statuses.SUCCESS:
            # Who has the answer goes on in the meantime.
            self.succeed()
            records.dissolve(name)
            return
        self.name_gone(status)
        records.dissolve(name)
        self.fail(status)


class Groups(Topic):
    """Collective construct and destruct of groups.

    The host is asked about every one; one among procs of this server alone does not need it.

    Attributes:
        records: The groups that stand.
        under_way: The constructs, by the group's name: several have one name where they have no proc in common.
        owed: Who is told of a failure when it calls a construct, by the group's name.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.handlers = {
            Command.GROUP_CONSTRUCT: self._construct,
            Command.GROUP_DESTRUCT: self._destruct,
            Command.GROUP_INVITE: lambda *request: self.inviting.invite(*request),
            Command.GROUP_JOIN: lambda *request: self.inviting.join(*request),
        }
        self._constructs = NodeKind(CONSTRUCT, Construct, server)
        self._destructs = NodeKind(DESTRUCT, _Destruct, server)
        self.records = Records(server)
        self.under_way: dict[str, list[Construct]] = {}
        self.owed: dict[str, dict[Process, int]] = {}
        self._last_context_id = 0
        self._listed: tuple[object, object, tuple[Proc, ...]] = None, None, ()
        """The procs of this server and the others of the last destruct, and all of them in order."""
        self._bootstrapping: Bootstrapping | None = None
        self._inviting: Inviting | None = None
        self._numbered = 0
        self.plans = Plans(server.store)

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
                    context_id = self.read(() if result is None else tuple(result), {}, alone)[1]  # type: ignore[arg-type]
                except (TypeError, ValueError, AttributeError) as problem:
                    self.server.host.log(f"the host answered construct of {name!r} with nonsense: {problem}")
            answer((size(keys.GROUP_CONTEXT_ID, self.new_context_id() if context_id is None else context_id),), None)

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
        owed = self.owed.get(name, {}).pop(process, statuses.SUCCESS) if self.owed else statuses.SUCCESS
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
        construct = self._meeting(name, process, members, others)
        construct.called(process, plan)
        contribution = plan.named, plan.infos
        construct.come(process, (peer, tag), False, plan.timeout, contribution)
        if construct.gone and construct.is_running:
            construct.look()
        if said is plan:
            self.server.repeated = Repeated(payload, peer.form, plan, construct, contribution)

    def _meeting(self, name: str, process: Process, members: frozenset[Process], others: frozenset[Proc]) -> Construct:
        """Return the construct that a caller means.

        Raises:
            PMIxError: It names other procs than those with whom it would meet (`ERR_BAD_PARAM`), or it has called
                already, or the others go on without it (`ERR_EXISTS`).
        """
        for construct in self.under_way.get(name, ()):
            roster = construct.roster
            if (roster.members is members or roster.members == members) and _alike(roster.others, others):
                if process in construct.arrived or construct.state != Life.GATHERS:
                    raise PMIxError(f"{name!r} is constructed already", status=statuses.ERR_EXISTS)
                return construct
            if roster.members.isdisjoint(members):
                continue
            if process in roster.members:
                # Those who wait for it would wait for ever; and those whom it has named, for the others.
                self.owe(name, (roster.members | members) - {process} - set(construct.arrived), statuses.ERR_BAD_PARAM)
                construct.give_up(statuses.ERR_BAD_PARAM)
            raise PMIxError(f"others construct {name!r} of other procs", status=statuses.ERR_BAD_PARAM)
        collectives = self.server.collectives
        begun = collectives.begin(
            Roster(collectives, self._constructs, f"{CONSTRUCT} {name}", members, others), process
        )
        assert isinstance(begun, Construct)
        self.under_way.setdefault(name, []).append(begun)
        return begun

    def owe(self, name: str, processes: frozenset[Process] | set[Process], status: int) -> None:
        """Have procs told, when they call a construct, that it has failed without them."""
        due = {process: status for process in processes if process.local and not process.left}
        if not due or len(self.owed) >= MAX_OWED:
            return
        owed = self.owed.setdefault(name, {})
        owed.update(due)

        def over() -> None:
            for process in due:
                owed.pop(process, None)
            if not owed and self.owed.get(name) is owed:
                del self.owed[name]

        self.server.clock.call_later(OWED_SECONDS, over)

    def over(self, construct: Construct, status: int, outcome: Outcome | None) -> None:
        """A construct is over."""
        running = self.under_way[construct.name]
        running.remove(construct)
        if not running:
            del self.under_way[construct.name]
        if self._bootstrapping is not None and not construct.roster.others:
            self._bootstrapping.over(construct.name, status, outcome)

    def cancel(self, name: str, status: int = statuses.SUCCESS) -> None:
        """Tell the host that this server gives up what it is asked, or what other servers wait for."""
        infos = (status_info(status),) if status == statuses.ERR_TIMEOUT else ()
        self.server.host.upcall(GroupUpcall(GROUP_CANCEL, name, (), infos), ignore)

    def new_context_id(self) -> int:
        """Return a context id that no other group of this server has had."""
        self._last_context_id += 1
        return self._last_context_id

    def number_in(self, info: Info) -> int:
        """Return the context id that an info of the host holds.

        Raises:
            ValueError: It is none.
        """
        number = info.value.data
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 64:
            raise ValueError(f"{number!r} is no context id")
        self._last_context_id = max(self._last_context_id, number)
        return number

    def read(
        self, infos: tuple[Info, ...], shared: Shared, members: tuple[Proc, ...]
    ) -> tuple[tuple[Proc, ...], int | None, Shared]:
        """Return the members, the context id and what members say of themselves, as a host tells of them.

        Args:
            infos: What the host tells.
            shared: What the members here have said.
            members: The members as far as it does not tell.

        Raises:
            ValueError: It makes no sense.
        """
        context_id: int | None = None
        shared = dict(shared)
        for info in infos:
            data = info.value.data
            if info.key == keys.GROUP_MEMBERSHIP:
                if not isinstance(data, DataArray) or data.type != codes.PROC:
                    raise ValueError("the membership is no array of procs")
                members = tuple(dict.fromkeys(data.items))
            elif info.key == keys.GROUP_CONTEXT_ID:
                context_id = self.number_in(info)
            elif info.key == keys.GROUP_INFO and is_infos(info.value) and data.items[0].key == keys.PROCID:
                shared[data.items[0].value.data] = tuple(data.items[1:])
        if members and max([each[1] for each in members]) > RANK_VALID:
            raise ValueError("it does not tell which ranks of all are members")
        return members, context_id, shared

    def flat(self, named: tuple[Proc, ...]) -> tuple[Proc, ...]:
        """Return procs in order, each once, with those of a job for its wildcard where it is known."""
        flat: dict[Proc, None] = {}
        for each in named:
            space = self.server.store.get(each.nspace) if each.rank == RANK_WILDCARD else None
            if space is None:
                flat[each] = None
            else:
                flat.update(dict.fromkeys([process.proc for process in space.processes.values()]))
        return tuple(flat)

    def everyone(self, collective: NodeCollective) -> tuple[Proc, ...]:
        """Return all procs of a destruct in order; of those that were destructed last it is known."""
        members, others, everyone = self._listed
        roster = collective.roster
        if members is not roster.members or others is not roster.others:
            everyone = collective.procs()
            self._listed = roster.members, roster.others, everyone
        return everyone

    def _with_each_added(self, infos: tuple[Info, ...]) -> tuple[Info, ...]:
        """Return infos with the procs of a job, where it is known here, in place of its wildcard among those added."""
        each = self.flat(tuple(listed_all(infos, keys.GROUP_ADD_MEMBERS)))
        return (*[info for info in infos if info.key != keys.GROUP_ADD_MEMBERS], procs(keys.GROUP_ADD_MEMBERS, each))

    def _destruct(self, peer: Peer, tag: int, payload: bytes) -> None:
        name, plan = self.plans.read(peer, Command.GROUP_DESTRUCT, payload)
        collective = self.destruct(peer, tag, name or "", plan.infos, plan.timeout)
        said = collective.said.get(peer.process)
        if said is not None and said[1] is plan.infos:
            self.server.repeated = Repeated(payload, peer.form, plan, collective, said)

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
        for key, on in ((keys.GROUP_NOTIFY_TERMINATION, group.notify), (keys.GROUP_FT_COLLECTIVE, group.ft)):
            if on and not is_set(infos, key):
                infos = (*infos, flag(key))
        members, others = store.address(name)
        roster = self.server.collectives.of_group(self._destructs, name, members, others, process)
        if timeout is None:
            timeout = timeout_of(infos)
        said, ft = (store.groups[name], infos), bool(infos) and is_ft(DESTRUCT, infos)
        return self.server.collectives.join(roster, process, (peer, tag), timeout=timeout, said=said, ft=ft)

    def is_made(self, name: str) -> bool:
        """Tell whether a group of this name is under way here."""
        return name in self.under_way or name in self._gathered()

    def made_with(self, other: Proc) -> tuple[str, ...]:
        """Return the names of the groups under way here that a proc of another server may be in."""
        named = [
            name for name, made in self.under_way.items() if any(other in construct.roster.others for construct in made)
        ]
        return tuple(dict.fromkeys([*named, *self._gathered()]))

    def _gathered(self) -> Collection[str]:
        return () if self._bootstrapping is None else self._bootstrapping.names

    def guests(self, name: str, added: tuple[Proc, ...]) -> dict[Proc, tuple[Info, ...]]:
        """Return who of those that a construct adds has come here, and with which infos."""
        return {} if self._bootstrapping is None else self._bootstrapping.guests(name, added)

    # Ends

    def stands_as_asked(self, construct: Construct, plan: Plan, outcome: Outcome, group: Group) -> bool:
        """Answer who has constructed a group that is just what all have asked for, and note it; return whether it is.

        The answers go first: who has them goes on in the meantime.
        """
        store, name = self.server.store, construct.name
        if len(plan.nspaces) > 1 or len(construct.arrived) < len(plan.members):
            return False
        if name in store.groups or name in store.namesakes:
            return False
        if plan.version != store.version or any(map(_HAS_LEFT, plan.members)):
            return False
        packed: dict[Form, bytes] = {}
        form: Form | None = None
        last = 0
        data = b""
        for peer, tag in construct.tickets():
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
            group.notify, group.ft = group.notify or known.notify, group.ft or known.ft
            group.kept += known.kept
        self.records.form(key, members, group)
        group.formed = outcome.members
        if outcome.context_id is not None:
            for each, items in outcome.shared.items():
                self._keep(each, items, outcome.context_id, group)
        if agreed:
            self.reply(callers, outcome, outcome.members)
        self.records.bury(outcome.members)
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
        for construct in self.under_way.get(found(event.infos, keys.GROUP_ID, str) or "", [])[:]:
            if process in construct.roster.members:
                construct.reacted(process, failed, verdict)
        return True

    def swallowed(self, event: Notification) -> bool:
        """Take in what another server says to this one; tell whether it was that."""
        return self.records.swallowed(event)

    def happened(self, event: Notification) -> None:
        """An event about groups has been raised, and those in its range know of it."""
        if event.code == statuses.GROUP_CONSTRUCT_ABORT:
            for construct in self.under_way.get(found(event.infos, keys.GROUP_ID, str) or "", [])[:]:
                if self.server.store.find(event.source) in construct.roster.members:
                    construct.abort(quiet=True)
        self.records.happened(event)
        if self._inviting is not None:
            self._inviting.happened(event)

    # Who goes

    def departed(self, process: Process, lost: bool) -> None:
        for construct in [each for made in self.under_way.values() for each in made]:
            if process in construct.roster.members and construct.is_running:
                construct.departed(process, lost)
        for name, owed in list(self.owed.items()):
            owed.pop(process, None)
            if not owed:
                del self.owed[name]
        if self._bootstrapping is not None:
            self._bootstrapping.departed(process)
        if self._inviting is not None:
            self._inviting.departed(process)
        self.records.departed(process)

    def disconnected(self, peer: Peer) -> None:
        if self._bootstrapping is not None:
            self._bootstrapping.disconnected(peer)

    def deregistered(self, namespace: Namespace) -> None:
        self.server.repeated = None
        self._listed = None, None, ()
        self.records.deregistered(namespace)

    def pending(self) -> list[Pending]:
        waiting = []
        for construct in [each for made in self.under_way.values() for each in made]:
            if construct.due:
                due = {process.proc for processes in construct.due.values() for process in processes}
                arrived = tuple(sorted({each.proc for each in construct.arrived} - due))
                operation, label = construct.roster.operation, "reactions to a failure"
                waiting.append(Pending(operation, label, arrived, tuple(sorted(due)), construct.since))
        return waiting + ([] if self._bootstrapping is None else self._bootstrapping.pending())


_HAS_LEFT = attrgetter("left")
_INFOS = itemgetter(1)


def _alike(some: frozenset[Proc], others: frozenset[Proc]) -> bool:
    """Tell whether these may be the same procs: whoever is on other servers may be named by the wildcard."""
    if some == others:
        return True
    whole = {each.nspace for each in some | others if each.rank == RANK_WILDCARD}
    rest = [each for each in some ^ others if each.nspace not in whole]
    return not rest and all(any(each.nspace == name for each in side) for name in whole for side in (some, others))
