"""The groups of a host with one node whose server is native: it gathers the callers, and keeps no record of groups.

All members of such a group are on the node, so its construct is decided here at once. Only a construct whose members
are not all named needs more: its leaders call one by one, and procs that they add. Crossings gather those.
"""

from __future__ import annotations

from pypmix.engine.collective import rules
from pypmix.engine.groups.talk import ENDED, WITHOUT, found, keep, left_in, procs, say
from pypmix.host.exchange.grouprecord import GroupRecord
from pypmix.host.exchange.queries import KEYS, find_groups
from pypmix.host.groups import ADDED, ASSIGN_CONTEXT_ID, CONTEXT_ID, EVENTS, TOLD
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.errors import SUCCESSES, NotFound, NotSupported, PMIxError, error_for
from pypmix.standard.ops import GroupUpcall, Notification, NotifyEvent, QueryInfo
from pypmix.standard.ops.events import is_set, number_in, procs_in
from pypmix.standard.ops.hosting import GROUP_CONSTRUCT, GROUP_DESTRUCT, GROUP_ORDER
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import RANK_VALID, RANK_WILDCARD, DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.engine.common import Pending
    from pypmix.host.crossings import Crossings
    from pypmix.host.manager import Manager
    from pypmix.host.nodes import HostNode
    from pypmix.host.running import RunningJob

ABORT = statuses.GROUP_CONSTRUCT_ABORT
MEMBERSHIP = attrs.GROUP_MEMBERSHIP.key
OPEN = frozenset((keys.GROUP_BOOTSTRAP, ADDED))
"""The directives of a construct whose members its callers do not all name."""

SHARED = TOLD | {keys.GROUP_JOB_INFO, keys.PROC_INFO_ARRAY}
"""The keys of the infos that the members share."""

FINAL_ORDER = keys.GROUP_FINAL_MEMBERSHIP_ORDER
ORDERS = frozenset((FINAL_ORDER, GROUP_ORDER))
"""The directives that give the order of the members; without them the order of the callers counts."""

LOST = frozenset((statuses.ERR_LOST_CONNECTION, statuses.ERR_PARTIAL_SUCCESS))
"""The statuses of a server some of whose members ended before they called."""

MAX_FORMER = 1024
"""The most former jobs that are remembered, whose procs have ended."""


class NodeGroups:
    """Decides the groups of a host with one native server, and answers queries about them.

    All methods are called on the host's loop.

    Args:
        host: The host.
    """

    prompt = False

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._record = GroupRecord()
        self._former: dict[str, None] = {}
        self._open: Crossings | None = None
        self._expanded: dict[tuple[Proc, ...], tuple[Proc, ...]] = {}
        """The procs of the last request, as named and by rank: the same ones often form and end the next groups."""
        self._membership: Info = attrs.GROUP_MEMBERSHIP([])
        """The members of the last group."""
        self._gone = {rank.proc for job in host.jobs.values() for rank in job.ranks if rank.lost or rank.over}
        self._answers: dict[type, Callable[[HostNode, Upcall, Any], bool]] = {
            GroupUpcall: self._group,
            NotifyEvent: self._event,
            QueryInfo: self._query,
        }

    # For the manager

    def answer(self, node: HostNode, upcall: Upcall) -> bool:
        """Answer an upcall about groups. Return True if it is one.

        Raises:
            PMIxError: The operation fails.
        """
        answer = self._answers.get(type(upcall.op))
        return answer is not None and answer(node, upcall, upcall.op)

    def register(self, job: RunningJob) -> None:
        """Register a job."""
        self._expanded.clear()
        if self._open is not None:
            self._open.register(job)

    def deregister(self, nspace: str) -> None:
        """Forget a job, whose procs are in no group any longer."""
        keep(self._former, nspace, None, MAX_FORMER)
        self._expanded.clear()
        self._gone = {proc for proc in self._gone if proc.nspace != nspace}
        self._record.leave([proc for _, members in self._record.listed() for proc in members if proc.nspace == nspace])
        if self._open is not None:
            self._open.deregister(nspace)

    def connected(self, node: HostNode, proc: Proc) -> None:
        """Record that a proc has connected, perhaps again."""
        self._gone.discard(proc)
        if self._open is not None:
            self._open.connected(node, proc)

    def finalized(self, node: HostNode, proc: Proc) -> None:
        """Pass the end of a connection on to open constructs, which stop waiting for the proc."""
        if self._open is not None:
            self._open.finalized(node, proc)

    def departed(self, node: HostNode, proc: Proc) -> None:
        """Record that a proc has ended or was lost."""
        if proc.nspace in self._host.jobs:
            self._gone.add(proc)
        self._record.leave((proc,))
        if self._open is not None:
            self._open.departed(node, proc)

    def pending(self) -> list[Pending]:
        """Return the pending operations, oldest first."""
        return self._host.nodes[0].server.pending() if self._open is None else self._open.pending()

    def close(self) -> None:
        """End open constructs."""
        if self._open is not None:
            self._open.close()

    # Constructs and destructs

    def _group(self, node: HostNode, upcall: Upcall, op: GroupUpcall) -> bool:
        if op.operation == GROUP_DESTRUCT:
            self._destruct(op)
            upcall.reply(())
        elif op.operation != GROUP_CONSTRUCT:
            raise NotSupported(f"a group has no operation {op.operation}", operation=op.name)
        else:
            given = {key: value[1] for key, value, _ in op.directives}
            if op.procs and OPEN.isdisjoint(given):
                upcall.reply(self._construct(op, given))
            else:
                self._gather(node, upcall)
        return True

    def _construct(self, op: GroupUpcall, given: dict[str, Any]) -> tuple[Info, ...]:
        """Form a group whose callers have all joined, or have ended.

        Raises:
            PMIxError: The construct fails.
        """
        infos, called = op.directives, self._expanded.get(op.procs) or self._expand(op.procs)
        status = (given.get(keys.LOCAL_COLLECTIVE_STATUS) and number_in(infos, keys.LOCAL_COLLECTIVE_STATUS)) or 0
        overdue = status == statuses.ERR_TIMEOUT and is_set(infos, keys.GROUP_OPTIONAL)
        if status and status not in SUCCESSES and status not in LOST and not overdue:
            raise error_for(status)("the server has ended it", status=status, operation=rules.CONSTRUCT)
        members, absent = called, self._absent(called) if self._gone or self._former else frozenset()
        if (absent or status in LOST) and not rules.is_ft(rules.CONSTRUCT, infos):
            raise _failure(ABORT, rules.CONSTRUCT, absent)
        # The library has put the order of the callers into the upcall; see `collective.rules`.
        order = called if ORDERS.isdisjoint(given) else (procs_in(infos, FINAL_ORDER) or procs_in(infos, GROUP_ORDER))
        if absent or order != called:
            members = rules.placed(self._expand(order or called), [proc for proc in called if proc not in absent])
        if not members:
            raise _failure(ABORT, rules.CONSTRUCT, absent)
        self._record.add(op.group, members)
        if self._membership.value.data.items != members:
            # The procs were read from a request, and are valid.
            array = DataArray(codes.PROC, members)
            self._membership = Info.unchecked(MEMBERSHIP, Value.unchecked(codes.DATA_ARRAY, array), 0)
        result = [self._membership]
        if given.get(ASSIGN_CONTEXT_ID, False) is not False and is_set(infos, ASSIGN_CONTEXT_ID):
            result.append(Info.unchecked(CONTEXT_ID, Value.unchecked(codes.SIZE, self._host.next_context_id()), 0))
        return (*result, *[info for info in infos if info[0] in SHARED])

    def _destruct(self, op: GroupUpcall) -> None:
        """Forget a group.

        Raises:
            PMIxError: The destruct fails.
        """
        members = self._expanded.get(op.procs) or self._expand(op.procs)
        absent = self._absent(members) if self._gone or self._former else frozenset()
        status = number_in(op.directives, keys.LOCAL_COLLECTIVE_STATUS) or 0
        if members and len(absent) == len(members) and not is_set(op.directives, keys.GROUP_NOTIFY_TERMINATION):
            raise _failure(statuses.ERR_PARTIAL_SUCCESS, rules.DESTRUCT, absent)
        if status and status not in SUCCESSES and status != statuses.ERR_PARTIAL_SUCCESS:
            raise error_for(status)("the server has ended it", status=status, operation=rules.DESTRUCT)
        self._record.remove(op.group, members)

    def _gather(self, node: HostNode, upcall: Upcall) -> None:
        """Let a construct wait for further callers, which no call names."""
        if self._open is None:
            from pypmix.host.crossings import Crossings

            self._open = Crossings(self._host)
        asked: Any = OpenConstruct(upcall, self)
        self._open.answer(node, asked)

    def _expand(self, named: Iterable[Proc]) -> tuple[Proc, ...]:
        """Return procs in the order in which they are named, each once, with all of a job for its wildcard.

        Raises:
            NotFound: There is no such job.
            PMIxError: A special rank does not name participants.
        """
        named = tuple(named)
        given = dict.fromkeys(named)
        jobs = self._host.jobs
        if not [proc for proc in given if proc[1] >= RANK_VALID or proc[0] not in jobs]:
            self._expanded = {named: tuple(given)}
            return self._expanded[named]
        if unknown := [proc for proc in given if proc[0] not in jobs and proc[0] not in self._former]:
            raise NotFound("there is no such job on this node", procs=tuple(unknown))
        expanded: dict[Proc, None] = {}
        for proc in given:
            if proc[1] >= RANK_VALID and proc[1] != RANK_WILDCARD:
                text = f"{proc} names no proc that could take part"
                raise PMIxError(text, status=statuses.ERR_BAD_PARAM, procs=(proc,))
            job = jobs.get(proc[0]) if proc[1] == RANK_WILDCARD else None
            expanded.update(dict.fromkeys([proc] if job is None else sorted([rank.proc for rank in job.ranks])))
        return tuple(expanded)

    def _absent(self, members: tuple[Proc, ...]) -> frozenset[Proc]:
        """Return the members that have ended."""
        jobs = self._host.jobs
        return frozenset([proc for proc in members if proc in self._gone or proc[0] not in jobs])

    # Members

    def _event(self, _node: HostNode, upcall: Upcall, op: NotifyEvent) -> bool:
        if op.code not in EVENTS:
            return False
        name, source = found(op.infos, keys.GROUP_ID, str), upcall.requestor
        if name and source is not None:
            if op.code == statuses.GROUP_LEFT:
                # Every proc reports itself; other procs that it names are ignored.
                self._record.leave((source,), name)
            elif op.code == statuses.TALK:
                # Only a member may report others.
                self._record.leave(left_in(op.infos) if self._record.has(name, source) else (), name)
            else:
                members = procs_in(op.infos, MEMBERSHIP) or ()
                if not self._record.is_foreign(name, members, source):
                    self._report_absent(name, members, self.add(name, members))
        upcall.reply()
        return True

    def add(self, name: str, members: tuple[Proc, ...]) -> frozenset[Proc]:
        """Record a group that was formed, or has other members than before. Return its ended members."""
        absent = self._absent(members)
        self._record.add(name, [proc for proc in members if proc not in absent])
        return absent

    def _report_absent(self, name: str, members: tuple[Proc, ...], absent: frozenset[Proc]) -> None:
        """Report ended members to the others, which may have got the events of their ends before the group."""
        to = sorted({*members}.difference(absent))
        if absent and to:
            server = self._host.nodes[0].server
            infos = (*say(WITHOUT, name, to, (procs(ENDED, sorted(absent)),)).infos, attrs.EVENT_DO_NOT_CACHE(True))
            self._host.loop.post(lambda: server.notify(Notification(statuses.TALK, server.proc, RANGE_CUSTOM, infos)))

    def _query(self, _node: HostNode, upcall: Upcall, op: QueryInfo) -> bool:
        if not all(key in KEYS for query in op.queries for key in query.keys):
            return False
        jobs = self._host.jobs

        def is_known(proc: Proc) -> bool:
            return proc.nspace in jobs

        upcall.reply(tuple(find_groups(op, upcall.requestor, self._record.listed(), is_known, is_known)))
        return True


class OpenConstruct:
    """An upcall for a construct whose members its callers do not all name.

    Args:
        upcall: The upcall.
        groups: The groups of the node, which keep the group that is formed.
    """

    def __init__(self, upcall: Upcall, groups: NodeGroups) -> None:
        self.op: Any = upcall.op
        self.requestor = upcall.requestor
        self.fail = upcall.fail
        self._reply = upcall.reply
        self._groups = groups

    def reply(self, result: Any = None) -> None:
        """Record the group, and answer the upcall."""
        self._groups.add(self.op.group, procs_in(result, MEMBERSHIP) or ())
        self._reply(result)


def _failure(status: int, operation: str, absent: frozenset[Proc]) -> PMIxError:
    error = error_for(status)("some of its members have gone", status=status, operation=operation)
    error.missing = absent
    return error
