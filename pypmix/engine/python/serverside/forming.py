"""The forming of groups: the common part of constructs, bootstraps and invitations on a server.

`Forming` knows the constructs in progress, reads the host's result of a construct, records the group, and answers the
callers. The topic `Groups` is a `Forming` that also handles requests; `Construct`, `Bootstrap` and `Inviting` use only
the interface of `Forming`.
"""

from __future__ import annotations

from operator import attrgetter

from pypmix.engine.collective.machine import CollectiveState
from pypmix.engine.common import ignore
from pypmix.engine.groups.talk import flag, proc, size
from pypmix.engine.python.collectives import procs_of, status_info
from pypmix.engine.python.node import Topic, status_of
from pypmix.engine.python.processes import FLAG_QUALIFIER
from pypmix.engine.python.serverside.grouprecords import Records
from pypmix.engine.python.serverside.plans import is_infos
from pypmix.engine.times import OWED_SECONDS
from pypmix.standard import codes, keys, statuses
from pypmix.standard.ops import SCOPE_GLOBAL
from pypmix.standard.ops.hosting import (
    GROUP_CANCEL,
    GROUP_CONSTRUCT,
    GROUP_DESTRUCT,
    GROUP_LEADER_PROC,
    GROUP_ROUND,
    GroupUpcall,
)
from pypmix.standard.releases import NEWEST
from pypmix.standard.types import MAX_NSLEN, RANK_VALID, RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.codec import PLAIN, Packer, encode_kval
from pypmix.wire.frames import frame
from pypmix.wire.messages import Command, reply_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.collective.machine import Collective
    from pypmix.engine.python.collectives import NodeCollective
    from pypmix.engine.python.node import Call, Form, Node, Peer
    from pypmix.engine.python.processes import Process
    from pypmix.engine.python.serverdata import Group
    from pypmix.engine.python.serverside.constructs import Construct
    from pypmix.engine.python.serverside.plans import Plan

    Shared = dict[Proc, tuple[Info, ...]]

MAX_OWED = 4096
"""The most names for which procs that are owed a failure are remembered."""

INFO_IN_REPLY = (6, 0, 0)
"""The first release whose clients get the others' group info with the reply.

Earlier ones ask the server for it, by the context id as a qualifier.
"""

ABORTED = (statuses.ERR_PARTIAL_SUCCESS, statuses.GROUP_CONSTRUCT_ABORT)
"""The statuses of a construct that lacks a member, or is aborted; `told_as` chooses by the client's release."""


class Outcome:
    """A group that was constructed.

    Attributes:
        members: The members, in group-rank order.
        context_id: Its context id, None for none.
        shared: The group info of each member.
        leader: Its leader, None if it has none.
        partial: Whether the construct allows missing procs and some were left out.
        absent: The named procs that had ended before, as far as this server knows.
    """

    __slots__ = ("absent", "context_id", "leader", "members", "partial", "shared")

    def __init__(
        self,
        members: tuple[Proc, ...],
        context_id: int | None,
        shared: Shared,
        leader: Proc | None = None,
        partial: bool = False,
        absent: tuple[Proc, ...] = (),
    ) -> None:
        self.absent = absent
        self.members = members
        self.context_id = context_id
        self.shared = shared
        self.leader = leader
        self.partial = partial


def member_info(member: Proc, items: tuple[Info, ...]) -> Info:
    """Return the group info of a member, in the form in which the other members get it."""
    first = Info(keys.PROCID, Value(codes.PROC, member))
    return Info(keys.GROUP_INFO, Value(codes.DATA_ARRAY, DataArray(codes.INFO, (first, *items))))


def told_as(status: int, peer: Peer) -> int:
    """Map the final status of a construct to the status that this client's release knows."""
    if status not in ABORTED:
        return status
    return statuses.GROUP_CONSTRUCT_ABORT if peer.release >= INFO_IN_REPLY else statuses.ERR_PARTIAL_SUCCESS


def _takes_partial(peer: Peer) -> bool:
    """Return True if a client keeps the group of a reply with a partial success.

    Libraries from 6.0 on drop the members with any status but success, and then the group does not exist for them.
    pypmix on a library compares the members instead, as it does with other servers.
    """
    return peer.pypmix or (peer.release < INFO_IN_REPLY and not peer.is_own_engine)


_HAS_LEFT = attrgetter("left")
_OPEN = CollectiveState.GATHERING, CollectiveState.ADDING


class Forming(Topic):
    """The groups of a server, as constructs, bootstraps and invitations use them.

    Attributes:
        records: The existing groups.
        owed: The procs whose next call of a construct fails, with the status, by the group's name.
        under_way: The constructs, by the group's name: several may have one name if they have no proc in common.
    """

    def __init__(self, server: Node) -> None:
        super().__init__(server)
        self.records = Records(server, self.is_made, self.made_with)
        self.owed: dict[str, dict[Process, int]] = {}
        self.under_way: dict[str, list[Construct]] = {}
        self._last_context_id = 0
        self._numbered = 0
        self._listed: tuple[object, object, tuple[Proc, ...]] = None, None, ()
        """The procs of this server and the others of the last destruct, and all of them in order."""

    def is_made(self, name: str) -> bool:
        """Return True if a group of this name is being constructed here."""
        return name in self.under_way

    def made_with(self, other: Proc) -> tuple[str, ...]:
        """Return the names of the groups being constructed here that a proc of another server may be in."""
        under_way = [each for made in self.under_way.values() for each in made]
        maybe = [each.name for each in under_way if each.is_open or other in each.collective.membership.others]
        return tuple(dict.fromkeys(maybe))

    def bootstraps(self, name: str) -> list[Construct]:
        """Return the constructs of a group whose callers do not know each other."""
        made = self.under_way.get(name, ())
        return [each for each in made if each.is_open and each.collective.state in _OPEN]

    def adding(self, name: str) -> list[Construct]:
        """Return the constructs of a group that wait for added procs of this server."""
        made = self.under_way.get(name, ())
        return [each for each in made if not each.is_open and each.collective.state == CollectiveState.ADDING]

    def guests(self, name: str, added: tuple[Proc, ...]) -> dict[Proc, tuple[Info, ...]]:
        """Return the added procs of a construct that have called it on this server, each with its infos."""
        wanted = frozenset(added)
        said = [item for each in self.bootstraps(name) for item in each.collective.said.items()]
        return {process.proc: infos for process, (_, infos) in said if process.proc in wanted and not process.left}

    def forget(self, construct: Construct, status: int, outcome: Outcome | None) -> None:
        """Forget a construct that has ended, and inform bootstraps of the name that may have been its guests."""
        running = self.under_way[construct.name]
        running.remove(construct)
        if not running:
            del self.under_way[construct.name]
        elif not construct.is_open and not construct.collective.membership.others:
            for bootstrap in self.bootstraps(construct.name):
                bootstrap.guests_over(status, outcome)

    def owe(self, name: str, processes: frozenset[Process] | set[Process], status: int) -> None:
        """Let the next call of a construct by some procs fail, because it has failed without them."""
        due = {process: status for process in processes if process.local and not process.left}
        if not due or len(self.owed) >= MAX_OWED:
            return
        owed = self.owed.setdefault(name, {})
        owed.update(due)

        def forget_debts() -> None:
            for process in due:
                owed.pop(process, None)
            if not owed and self.owed.get(name) is owed:
                del self.owed[name]

        self.server.clock.call_later(OWED_SECONDS, forget_debts)

    def cancel(self, name: str, procs: tuple[Proc, ...], status: int = statuses.SUCCESS) -> None:
        """Report to the host that this server gives up an operation of some procs that others wait for."""
        infos = (status_info(status),) if status == statuses.ERR_TIMEOUT else ()
        self.server.host.upcall(GroupUpcall(GROUP_CANCEL, name, procs, infos), ignore)

    def number(self, peer: Peer, answer: Callable[[Any, BaseException | None], None]) -> None:
        """Give a group of an invitation its context id, as inviters ask for it by a job control."""
        self._numbered += 1
        # A group of its leader alone, which is announced to no proc: so every host has one number for each.
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

    def new_context_id(self) -> int:
        """Return a context id that no other group of this server has had."""
        self._last_context_id += 1
        return self._last_context_id

    def number_in(self, info: Info) -> int:
        """Return the context id that an info of the host holds.

        Raises:
            ValueError: It does not hold a context id.
        """
        number = info.value.data
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 64:
            raise ValueError(f"{number!r} is not a valid context id")
        self._last_context_id = max(self._last_context_id, number)
        return number

    def read(
        self, infos: tuple[Info, ...], shared: Shared, members: tuple[Proc, ...]
    ) -> tuple[tuple[Proc, ...], int | None, Shared]:
        """Return the members, the context id and the group info of the members, from the result of a host.

        Args:
            infos: The result of the host.
            shared: The group info of the members of this server.
            members: The members, if the result does not name them.

        Raises:
            ValueError: The result is not valid.
        """
        context_id: int | None = None
        shared = dict(shared)
        for info in infos:
            data = info.value.data
            if info.key == keys.GROUP_MEMBERSHIP:
                if not isinstance(data, DataArray) or data.type != codes.PROC:
                    raise ValueError("the membership is not an array of procs")
                members = tuple(dict.fromkeys(data.items))
            elif info.key == keys.GROUP_CONTEXT_ID:
                context_id = self.number_in(info)
            elif info.key == keys.GROUP_INFO and is_infos(info.value) and data.items[0].key == keys.PROCID:
                shared[data.items[0].value.data] = tuple(data.items[1:])
        if members and max([each[1] for each in members]) > RANK_VALID:
            raise ValueError("it does not tell which ranks of all are members")
        return members, context_id, shared

    def flat(self, named: tuple[Proc, ...]) -> tuple[Proc, ...]:
        """Return procs in order, each once, with each wildcard of a known job replaced by the job's procs."""
        flat: dict[Proc, None] = {}
        for each in named:
            space = self.server.store.get(each.nspace) if each.rank == RANK_WILDCARD else None
            if space is None:
                flat[each] = None
            else:
                flat.update(dict.fromkeys([process.proc for process in space.processes.values()]))
        return tuple(flat)

    def everyone(self, destruct: NodeCollective) -> tuple[Proc, ...]:
        """Return all procs of a destruct, in order; the list of the last destruct is kept."""
        members, others, everyone = self._listed
        membership = destruct.membership
        if members is not membership.members or others is not membership.others:
            everyone = procs_of(destruct)
            self._listed = membership.members, membership.others, everyone
        return everyone

    # Ends

    def stands_as_asked(
        self, name: str, collective: Collective[Process, Call], plan: Plan, outcome: Outcome, group: Group
    ) -> bool:
        """Answer the callers of a group that is exactly the group that all asked for, and record it.

        The answers are sent first, so that the callers continue in the meantime.

        Returns:
            False if the group is not such a group; nothing was done then.
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
        for peer, tag in collective.calls():
            if peer.form is not form or tag != last:
                form, last = peer.form, tag
                payload = packed.get(form)
                if payload is None:
                    payload = packed[form] = plan.reply(form, outcome.members, outcome.context_id)
                data = frame(0, tag, payload)
            if peer.open:
                peer.link.send_now(data)
        self.records.form(name, outcome.members, group)
        store.remember_members(name, plan.members, plan.others)
        if plan.question is not None and len(plan.question[0]) == len(outcome.members):
            # It will be taken apart by the same procs.
            self._listed = plan.members, plan.others, plan.question[0]
        if self.records.early:
            self.records.catch_up(name)
        return True

    def stands(
        self, name: str, outcome: Outcome, group: Group, callers: dict[Process, Call], agreed: bool = False
    ) -> None:
        """Record a group and answer the procs that constructed it.

        Args:
            name: Its name.
            outcome: The group as constructed.
            group: The record to keep.
            callers: The calls to answer.
            agreed: Whether other servers know the same members.
        """
        store = self.server.store
        key = next((key for key in store.keys_of(name) if self.records.get(key).formed == outcome.members), None)
        members = outcome.members
        if key is None:
            key = store.free_key(name)
        else:
            # Callers of this server have joined it in both ways: by naming the others, and as added procs.
            known, members = self.records.get(key), store.groups[key]
            group.leader = known.leader
            group.notify, group.ft = group.notify or known.notify, group.ft or known.ft
            group.kept += known.kept
            group.lost.update(known.lost)
        self.records.form(key, members, group)
        group.formed = outcome.members
        if outcome.context_id is not None:
            for each, items in outcome.shared.items():
                self._keep(each, items, outcome.context_id, key)
        if agreed:
            self.reply(callers, outcome, outcome.members)
        self.records.remove_ended(outcome.members)
        self.records.catch_up(key)
        self.records.review(key)
        if not agreed:
            self.reply(callers, outcome, store.groups.get(key, ()))

    def reply(self, callers: dict[Process, Call], outcome: Outcome, members: tuple[Proc, ...]) -> None:
        """Answer procs that have constructed a group."""
        shared = [member_info(each, outcome.shared[each]) for each in members if outcome.shared.get(each)]
        leader = () if outcome.leader is None else (proc(GROUP_LEADER_PROC, outcome.leader),)
        packed: dict[tuple[object, ...], bytes] = {}
        inside = frozenset(members)
        for process, (peer, tag) in callers.items():
            if process.proc not in inside:
                # It has finalized in the meantime.
                peer.status(tag, told_as(statuses.GROUP_CONSTRUCT_ABORT, peer))
                continue
            form = peer.buffer_type, peer.release, peer.pypmix, peer.is_own_engine, process.namespace
            payload = packed.get(form)
            if payload is None:
                payload = packed[form] = reply_layout(Command.GROUP_CONSTRUCT, peer.release).encode_fit(
                    peer.buffer_type,
                    peer.rule,
                    status=statuses.ERR_PARTIAL_SUCCESS
                    if outcome.partial and _takes_partial(peer)
                    else statuses.SUCCESS,
                    members=members,
                    context_id=outcome.context_id,
                    group_info=(*shared, *(leader if peer.pypmix else ())),
                    objects=self._foreign(peer, process, members),
                )
            peer.send(tag, payload)

    def _foreign(self, peer: Peer, process: Process, members: tuple[Proc, ...]) -> tuple[bytes, ...]:
        """Return the job info of the nspaces that a member may not know."""
        names = dict.fromkeys([each.nspace for each in members if each.nspace != process.namespace.name])
        spaces = [space for name in names if (space := self.server.store.get(name)) is not None]
        return tuple([space.pack(peer.buffer_type, peer.release, peer.rule).reply for space in spaces])

    def _keep(self, member: Proc, items: tuple[Info, ...], context_id: int, key: str) -> None:
        """Keep the group info of a member for gets that are qualified by the context id."""
        process = self.server.store.find(member)
        if process is None or not items:
            return
        qualifier = Info(keys.GROUP_CONTEXT_ID, Value(codes.SIZE, context_id), FLAG_QUALIFIER)
        packer = Packer()
        for item in items:
            pair = DataArray(codes.INFO, (item, qualifier))
            packer.pack_raw(encode_kval(PLAIN, keys.QUALIFIED_VALUE, Value(codes.DATA_ARRAY, pair)))
        committed, before = process.committed, process.written
        process.commit([(SCOPE_GLOBAL, packer.bytes())], PLAIN, NEWEST)
        self.records.keep(key, process, process.since(before))
        # The member's commits follow later, and must not count as received.
        process.committed = committed
