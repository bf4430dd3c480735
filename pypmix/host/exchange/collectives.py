"""The upcalls that servers answer together: fence, connect, disconnect, group construct and destruct.

An upcall becomes the contribution of this server (`_begin`), and the decision becomes its answer (`_end`). Callers of
the same operation identify it by a name: the name of the group or connection that stands for its members or, if these
are named one by one, a digest of them.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from pypmix.engine.common import Pending
from pypmix.engine.groups.talk import DECLARES, SAYS, found, left_in
from pypmix.engine.times import DECISION_SECONDS
from pypmix.host.exchange import deciding
from pypmix.host.exchange.codec import JOB, SIGNATURE, TEXT, broken
from pypmix.host.exchange.errors import ExchangeTimeout, as_error, log
from pypmix.host.exchange.kinds import (
    CONNECT,
    CONSTRUCT,
    DESTRUCT,
    DISCONNECT,
    FENCE,
    GATHER,
    GROUP_DISCONNECT,
    GROUP_FENCE,
    KINDS,
    OFFER,
    Part,
)
from pypmix.host.exchange.limits import MAX_MISSING, MAX_ROUNDS
from pypmix.host.exchange.localserver import seconds_in
from pypmix.host.exchange.places import LAST
from pypmix.host.naming import shown
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotSupported, PMIxError, RemoteProtocolError, error_for
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Connect, Disconnect, FenceUpcall, GroupUpcall
from pypmix.standard.ops.connecting import CONNECT_ID
from pypmix.standard.ops.events import is_set, number_in, procs_in
from pypmix.standard.ops.hosting import (
    GROUP_ABSENT,
    GROUP_CANCEL,
    GROUP_CONSTRUCT,
    GROUP_DESTRUCT,
    GROUP_GUEST,
    GROUP_LEADER_PROC,
    GROUP_ROUND,
)
from pypmix.standard.types import Info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import OnAnswer, Outcome
    from pypmix.host.exchange.localserver import LocalServer
    from pypmix.host.exchange.places import Incarnations, Party, Places
    from pypmix.standard.types import Proc

    Answer = Callable[[Upcall, Any], None]

JOB_INFO = "pypmix.job"

GROUP_ID = keys.GROUP_ID
MEMBERSHIP = keys.GROUP_MEMBERSHIP
MEMBER_EVENTS = statuses.TALK, statuses.GROUP_LEFT, statuses.GROUP_CONSTRUCT_COMPLETE, statuses.GROUP_MEMBERSHIP_UPDATE

USED = deciding.SHARED_DIRECTIVES | {GROUP_ID, keys.TIMEOUT, keys.LOCAL_COLLECTIVE_STATUS}
"""The directives of a fence that have an effect here; most have none of them."""

OWN = "host"
"""The operation of allgathers of the hosts themselves."""


def own_signature(label: str, procs: Iterable[Proc]) -> bytes:
    """Return the signature of an allgather of hosts, which continues without hosts all of whose procs have ended."""
    return SIGNATURE.write((OWN, label, tuple(sorted(set(procs)))))


class Collectives:
    """The upcalls of one server that are carried out with others; used in the turns of its exchange.

    Args:
        exchange: This server's exchange.
        places: The server of each proc.
        incarnations: How often the procs of this server have opened.
        local: The server of this node.
    """

    def __init__(
        self,
        exchange: Exchange,
        places: Places,
        incarnations: Incarnations,
        local: LocalServer,
    ) -> None:
        self.name = exchange.name
        self.record = local.record
        self._exchange = exchange
        self._participant = exchange.collectives
        self._coordinator = exchange.collectives.coordinator
        self._coordinator.attendance.places = places
        self._places = places
        self._incarnations = incarnations
        self._local = local
        self._rounds: OrderedDict[str, tuple[tuple[Proc, ...], tuple[Proc, ...]]] = OrderedDict()
        self.answers: dict[type, Answer] = {
            FenceUpcall: self._fence,
            Disconnect: lambda upcall, op: self._together(upcall, op, DISCONNECT, GROUP_DISCONNECT),
            Connect: lambda upcall, op: self._together(upcall, op, CONNECT, CONNECT),
            GroupUpcall: self._group,
        }
        exchange.handle(JOB_INFO, self._asked_job)
        exchange.absences(self._absent)

    def pending(self) -> list[Pending]:
        """Return the open operations, oldest first; from any thread."""
        found = []
        mine = [(local.part, self._participant.missing(local)[1], local.since) for local in self._participant.open()]
        for part, missing, since in [*mine, *self._coordinator.unattended()]:
            if part.kind != GATHER:
                arrived = tuple([proc for proc in part.procs if proc not in missing])
                group, _, rest = part.name.partition("\0")
                operation = f"{part.rule.operation} {rest.partition(chr(0))[0]}".rstrip()
                found.append(Pending(operation, group, arrived, tuple(sorted(missing)), since))
        return sorted(found, key=lambda item: item.since)

    def attempt(self, answer: Answer, upcall: Upcall) -> None:
        """Begin an answer, or end one; its exception is the answer."""
        try:
            answer(upcall, upcall.op)
        except Exception as problem:
            self._fail(upcall, problem)

    def _fail(self, upcall: Upcall, problem: Exception) -> None:
        if not isinstance(problem, PMIxError):
            log.exception("%s: the answer to %s failed", shown(self.name), upcall.op.name)
        error = as_error(problem)
        error.operation = error.operation or upcall.op.name
        upcall.fail(error)

    def _absent(self, signature: bytes, server: str, _data: list[bytes]) -> bool:
        """Return True if a host no longer takes part in an allgather of hosts for some procs."""
        if not self._places.any_missing:
            return False
        try:
            operation, _, procs = SIGNATURE.read(signature)
        except RemoteProtocolError:
            # An unrelated allgather, about which nothing is known here.
            return False
        # Hosts report no incarnations: only departed procs are absent there.
        return operation == OWN and self._places.absent(procs, server, LAST)

    # From upcalls to contributions

    def _fence(self, upcall: Upcall, op: FenceUpcall) -> None:
        if op.directives and not USED.isdisjoint([info.key for info in op.directives]):
            self._together(upcall, op, FENCE, GROUP_FENCE, op.data)
        else:
            party = self._places.party(op.procs)
            self._begin(upcall, FENCE, party.label, party, (), op.data)

    def _together(
        self, upcall: Upcall, op: FenceUpcall | Connect | Disconnect, kind: int, named: int, data: bytes = b""
    ) -> None:
        """Answer an upcall of procs that are named one by one (`kind`) or by their group or connection (`named`)."""
        found = {info.key: info.value.data for info in op.directives if info.key in (GROUP_ID, CONNECT_ID)}
        name, id = found.get(GROUP_ID), found.get(CONNECT_ID) if kind == CONNECT else None
        party = self._places.party(op.procs)
        if isinstance(name, str):
            kind, name = named, f"{name}\0{id}" if id else name
        else:
            name = f"\0{id}\0{party.digest}" if id else party.label
        self._begin(upcall, kind, name, party, op.directives, data)

    def _group(self, upcall: Upcall, op: GroupUpcall) -> None:
        infos = op.directives
        guest = procs_in(infos, GROUP_GUEST)
        if op.operation == GROUP_CANCEL:
            self._cancel(op)
            upcall.reply(())
        elif op.operation == GROUP_DESTRUCT:
            self._begin(upcall, DESTRUCT, op.group, self._places.party(op.procs), infos)
        elif op.operation != GROUP_CONSTRUCT:
            raise NotSupported(f"a group has no operation {op.operation}")
        elif guest is None and op.procs and all(info.key != deciding.BOOTSTRAP for info in infos):
            self._begin(upcall, CONSTRUCT, op.group, self._places.party(op.procs), infos)
        else:
            self._begin(upcall, OFFER, op.group, self._places.party(op.procs or guest or ()), infos)

    def _begin(
        self, upcall: Upcall, kind: int, name: str, party: Party, directives: tuple[Info, ...], data: bytes = b""
    ) -> None:
        """Contribute to a collective with the servers of its members, and answer its upcall."""
        mine = party.servers.get(self.name, ())
        if not mine and kind not in (OFFER, CONSTRUCT):
            raise PMIxError(
                f"none of its procs are on {shown(self.name)}", status=statuses.ERR_BAD_PARAM, procs=party.procs
            )
        incarnation = self._incarnations.latest(mine)
        gone = mine and self._places.any_missing and all(self._places.is_missing(proc, incarnation) for proc in mine)
        if kind != OFFER and gone:
            # The others no longer wait for this server, and it has no callers left to inform.
            self._unattended(upcall, kind, party, incarnation, directives)
            return
        given = number_in(directives, keys.LOCAL_COLLECTIVE_STATUS) if directives else None
        status = given or statuses.SUCCESS
        if status == statuses.ERR_LOST_CONNECTION and kind == CONSTRUCT:
            # Native servers from 7.0 on report this for a construct that continues without members that have ended.
            status = statuses.ERR_PARTIAL_SUCCESS
        known, leaders = self._recall_losses(name, directives) if kind == CONSTRUCT else ((), ())
        part = Part(
            self._exchange.take_number(),
            kind,
            name,
            party,
            (),
            status,
            incarnation,
            tuple([self._expanded(info) for info in directives if info.key in deciding.SHARED_DIRECTIVES])
            if directives
            else (),
            known,
            leaders,
            data,
            # All arguments are given: defaults cost more.
            (),
            (),
            (),
        )
        since = self._exchange.now()
        done = partial(self._decided, upcall, part, since)
        self._participant.begin(part, done, seconds_in(directives) if directives else 0.0, since)

    def _decided(self, upcall: Upcall, part: Part, since: float, outcome: Outcome) -> None:
        try:
            self._end(upcall, part, outcome, since)
        except Exception as problem:
            self._fail(upcall, problem)

    def _unattended(
        self, upcall: Upcall, kind: int, party: Party, incarnation: int, directives: Iterable[Info]
    ) -> None:
        """Answer an upcall whose members on this server had all ended before it began."""
        operation = KINDS[kind].operation
        if kind in (DISCONNECT, GROUP_DISCONNECT):
            upcall.reply(None)
        elif kind == DESTRUCT and is_set(directives, deciding.NOTIFY_TERMINATION):
            upcall.reply(())
        else:
            status = deciding.ABORT if kind == CONSTRUCT else statuses.ERR_PARTIAL_SUCCESS
            error = error_for(status)("all members here have gone", status=status, operation=operation)
            error.missing = frozenset([proc for proc in party.procs if self._places.is_missing(proc, incarnation)])
            upcall.fail(error)

    def _recall_losses(self, name: str, directives: tuple[Info, ...]) -> tuple[tuple[Proc, ...], tuple[Proc, ...]]:
        """Return the lost procs and the leaders that this server knows, if it contributes to a construct once more."""
        found = self._rounds.pop(name, ((), ()))
        return found if (number_in(directives, GROUP_ROUND) or 1) > 1 else ((), ())

    def _expanded(self, info: Info) -> Info:
        """Return an info with the procs that a wildcard means."""
        if info.key not in deciding.ARRAYS:
            return info
        named = procs_in((info,), info.key) or ()
        procs = tuple(self._places.expand(named))
        return info if procs == named else deciding.named(info.key, procs)

    def _cancel(self, op: GroupUpcall) -> None:
        """Give up the operations of the server under a name: all of them, or those of some procs."""
        given = number_in(op.directives, keys.LOCAL_COLLECTIVE_STATUS)
        # Groups of disjoint procs may have the same name.
        procs = frozenset(self._places.expand(op.procs))
        for local in self._participant.open():
            part = local.part
            meant = not procs or not procs.isdisjoint(part.party.members)
            if meant and part.name == op.group and part.kind in (CONSTRUCT, DESTRUCT, OFFER):
                self._participant.give_up(local, deciding.ABORT if given is None else given)

    # From decisions to answers

    def _end(self, upcall: Upcall, part: Part, outcome: Outcome, since: float) -> None:
        if part.kind == CONSTRUCT and (outcome.status or procs_in(outcome.infos, MEMBERSHIP)):
            self._coordinator.attendance.forget_leader(part.name)
            if not outcome.status and self._counts_as_lost(part, outcome):
                outcome = deciding.failure(deciding.ABORT, f"the other servers count {shown(self.name)} as lost")
        if outcome.status != statuses.SUCCESS:
            error: PMIxError
            if outcome.status == statuses.ERR_TIMEOUT:
                error = ExchangeTimeout(outcome.detail, servers=outcome.servers)
            else:
                error = error_for(outcome.status)(outcome.detail, status=outcome.status)
            error.operation = part.rule.operation
            error.missing = frozenset(outcome.missing[:MAX_MISSING])
            upcall.fail(error)
            return
        if part.kind in (FENCE, GROUP_FENCE):
            upcall.reply(outcome.data)
        elif part.kind == CONNECT:
            self._bring_jobs(upcall, part.procs, lambda: self._reply_connected(upcall, outcome))
        elif part.kind in (DISCONNECT, GROUP_DISCONNECT):
            upcall.reply(outcome.infos or None)
        elif part.kind == DESTRUCT:
            # The server may miss them before its host reports their end: members are informed while the group exists.
            self._local.remove_departed(procs_in(outcome.infos, GROUP_ABSENT) or (), part.name)
            self.record.remove(part.name, part.procs)
            upcall.reply(outcome.infos)
        else:
            members = procs_in(outcome.infos, keys.GROUP_MEMBERSHIP) or ()
            self._bring_jobs(upcall, members, lambda: upcall.reply(self._constructed(part, outcome, since)))

    def _counts_as_lost(self, part: Part, outcome: Outcome) -> bool:
        """Return True if a group was formed without any member here: the coordinator has lost this server."""
        mine = part.party.servers.get(self.name, ())
        return bool(mine) and set(mine).isdisjoint(procs_in(outcome.infos, MEMBERSHIP) or ())

    def _bring_jobs(self, upcall: Upcall, procs: Iterable[Proc], then: Callable[[], None]) -> None:
        """Register the jobs of procs of other servers that this one lacks, and answer an upcall then."""
        asked = []
        for nspace in sorted(filter(self._local.lacks_job, {proc.nspace for proc in procs})):
            told = [name for name in self._places.tellers_of(nspace) if self._exchange.has(name)]
            asked += [(nspace, name) for name in told[:1]]
        found: list[tuple[str, bytes]] = []
        waiting = len(asked)

        def finish(_upcall: Upcall, _op: object) -> None:
            for nspace, data in found:
                job = JOB.read(data)
                if job.nspace != nspace:
                    raise broken(f"the answer about the job {nspace!r} is about {job.nspace!r}")
                self._local.borrow_job(job)
            then()

        def take_job(nspace: str, data: bytes | None, _error: PMIxError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if data:
                found.append((nspace, data))
            if not waiting:
                self.attempt(finish, upcall)

        for nspace, name in asked:
            request = TEXT.write(nspace)
            self._exchange.request(name, JOB_INFO, request, partial(take_job, nspace), timeout=DECISION_SECONDS)
        if not asked:
            then()

    def _asked_job(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        job = self._local.jobs.get(TEXT.read(data))
        if job is not None and not isinstance(job, JobInfo):
            job = self._local.jobs[job.nspace] = job.info()
        answer(b"" if job is None else JOB.write(job), None)

    def _reply_connected(self, upcall: Upcall, outcome: Outcome) -> None:
        made = deciding.connection_in(outcome.infos)
        upcall.reply(made)
        gone = [] if made is None else [proc for proc in made.procs if self._has_left_session(proc)]
        if gone:
            # The report of their end was here before the connection, which the server knows in a moment.
            self._exchange.later(0, lambda: self._local.report_departed(gone))

    def _has_left_session(self, proc: Proc) -> bool:
        return self._places.server_of(proc) is None or self._coordinator.attendance.has_left_session(proc)

    def _constructed(self, part: Part, outcome: Outcome, since: float) -> tuple[Info, ...]:
        infos = outcome.infos
        members = procs_in(infos, MEMBERSHIP)
        if members is None:
            self._rounds[part.name] = procs_in(infos, GROUP_ABSENT) or (), procs_in(infos, GROUP_LEADER_PROC) or ()
            while len(self._rounds) > MAX_ROUNDS:
                self._rounds.popitem(last=False)
        else:
            self._formed(part.name, members, since)
        if deciding.takes_rounds(part) or any(info.key == GROUP_GUEST for info in part.infos):
            return infos
        native = (MEMBERSHIP, keys.GROUP_CONTEXT_ID, *deciding.TOLD)
        return tuple([info for info in infos if info.key in native])

    # Members of groups

    def observe_event(self, code: int, source: Proc, infos: tuple[Info, ...]) -> None:
        """Process an event that passes this server, from one of its procs or from another server."""
        if code not in MEMBER_EVENTS:
            return
        name = next((info.value.data for info in infos if info.key == GROUP_ID), None)
        if not isinstance(name, str):
            return
        left: Iterable[Proc] = ()
        if code == statuses.TALK:
            if found(infos, SAYS, str) == DECLARES:
                self._coordinator.attendance.declare_leader(name, source)
                return
            left = left_in(infos)
            if left and not self.record.has(name, source):
                # Only a member may report others.
                return
        elif code == statuses.GROUP_LEFT:
            # Every proc reports itself; other procs that it names are ignored.
            left = (source,)
        else:
            members = procs_in(infos, MEMBERSHIP) or ()
            if not self.record.is_foreign(name, members, source):
                self._formed(name, members, self._exchange.now())
        for proc in left:
            self.record.leave((proc,), name)
            self._coordinator.leave(name, proc)

    def _formed(self, name: str, members: tuple[Proc, ...], since: float) -> None:
        """Record a group that was formed, or has other members than before; see `Attendance.record_members`."""
        left = self._coordinator.attendance.record_members(name, members, since)
        where = {proc: self._places.server_of(proc) for proc in members}
        if self.name in where.values():
            gone = {None, *self._exchange.gone}
            self.record.add(name, [proc for proc in members if where[proc] not in gone and proc not in left])
            # The server did not know the group when their end was reported; in a later turn it does.
            ended = [proc for proc in members if where[proc] in gone or self._places.has_departed(proc)]
            if ended:
                self._exchange.soon(
                    self._local.report_absent, name, ended, [proc for proc in members if where[proc] == self.name]
                )
