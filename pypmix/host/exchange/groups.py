"""Groups that are constructed and destructed on several servers, and what they do by their names, as one of these does.

The server gives its part to the one that coordinates (see `coordinator`), and answers its own clients with what that
has made of it.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from hashlib import blake2b

from pypmix.data import DataBuffer
from pypmix.engine.base import Pending
from pypmix.host.exchange import deciding, packing
from pypmix.host.exchange.coordinator import Coordinator
from pypmix.host.exchange.errors import ExchangeTimeout, ServerLost, listed
from pypmix.host.exchange.parts import (
    CONNECT,
    CONSTRUCT,
    DESTRUCT,
    DISCONNECT,
    FENCE,
    OFFER,
    OPERATIONS,
    Outcome,
    Part,
    pack_outcome,
    pack_part,
    pack_words,
    unpack_outcome,
    unpack_words,
)
from pypmix.host.exchange.standing import Record
from pypmix.standard import attrs, statuses
from pypmix.standard.errors import NotSupported, PMIxError, Unreachable, error_for
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
    from pypmix.host.exchange.lives import Lives
    from pypmix.host.exchange.places import Places
    from pypmix.host.exchange.requests import OnAnswer, Timer
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.types import Proc

    Answer = Callable[[Upcall, Any], None]
    OnOutcome = Callable[[Outcome], None]
    Borrow = Callable[[JobInfo], None]

PART = "pypmix.group"
CANCEL = "pypmix.group.cancel"
JOB = "pypmix.group.job"
ENDED = "pypmix.group.ended"
NEWS = "pypmix.group.news"

GROUP_ID = attrs.GROUP_ID.key
TIMEOUT = attrs.TIMEOUT.key
LOCAL_STATUS = attrs.LOCAL_COLLECTIVE_STATUS.key

ADDRESSED = {FenceUpcall: FENCE, Disconnect: DISCONNECT}
"""What procs do together that may name all of a group."""

MAX_MISSING = 4096
"""How many procs an error names as missing."""

MAX_ROUNDS = 1024
"""Of how many constructs that go on it is remembered who was told to be absent."""

GRACE = 5.0
"""Seconds that a coordinator is given to say how something has ended whose time is over."""

PATIENCE = 2.0
"""Seconds after which a server answers how something has ended whose coordinator it has not seen go."""

AGAIN = 0.05
"""Seconds until a part is given once more to a server that does not coordinate it yet."""

TRIES = 100
"""How often that is done."""


class _Own:
    """A part of this server that has not ended."""

    __slots__ = ("cancelled", "done", "part", "servers", "since", "skip", "timer", "to", "tries")

    def __init__(self, part: Part, servers: dict[str, list[Proc]], done: OnOutcome, since: float) -> None:
        self.part = part
        self.servers = servers
        self.done = done
        self.since = since
        self.to: str | None = None
        self.skip: set[str] = set()
        self.tries = 0
        self.cancelled = statuses.SUCCESS
        self.timer: Timer | None = None


class Groups:
    """What groups do together as one server takes part in it; used in the turns of its exchange.

    Args:
        exchange: This server's exchange.
        places: Which server has which proc.
        lives: How often the procs of this server have opened.
        jobs: The jobs that this server has registered.
        borrow: Registers a job of other servers with this one.
        attempt: Carries an answer out; what that raises is the answer.
        tell_gone: Tells the server of procs of other servers that have gone.
        lacks: Tells whether the server knows nothing of a job.

    Attributes:
        coordinator: What this server coordinates.
        record: The groups that members on this server are in, as far as this is seen here.
        bury: Tells the server of procs of others that have gone, if it knows a group with them.
    """

    def __init__(
        self,
        exchange: Exchange,
        places: Places,
        lives: Lives,
        jobs: dict[str, JobInfo],
        borrow: Borrow,
        attempt: Callable[[Answer, Upcall], None],
        tell_gone: Callable[[Iterable[Proc]], None],
        lacks: Callable[[str], bool],
    ) -> None:
        self.name = exchange.name
        self.coordinator = Coordinator(exchange, places, self._forward)
        self._exchange = exchange
        self._places = places
        self._lives = lives
        self._jobs = jobs
        self._borrow = borrow
        self._attempt = attempt
        self._tell_gone = tell_gone
        self._lacks = lacks
        self.record = Record()
        self.bury: Callable[[list[Proc]], None] = lambda procs: None
        self._open: dict[int, _Own] = {}
        self._found: tuple[object, int, tuple[tuple[Proc, ...], dict[str, list[Proc]]] | None] = (), 0, None
        self._rounds: OrderedDict[str, tuple[tuple[Proc, ...], tuple[Proc, ...]]] = OrderedDict()
        self._asked: list[tuple[str, str, int, OnAnswer]] = []
        exchange.handle(PART, self.coordinator.come)
        exchange.hear(CANCEL, self._told_cancel)
        exchange.handle(ENDED, self._asked_ended)
        exchange.handle(JOB, self._asked_job)
        exchange.hear(NEWS, lambda _, data: self._heard_of(data))
        exchange.watch(self._changed)

    def __len__(self) -> int:
        return len(self._open) + len(self.coordinator) + len(self._asked)

    def pending(self) -> list[Pending]:
        """Return what is under way, oldest first; from any thread."""
        found = []
        for own in list(self._open.values()):
            part = own.part
            missing = self.coordinator.missing(self.name, part.number) if own.to == self.name else ()
            arrived = tuple([proc for proc in part.procs if proc not in missing])
            found.append(Pending(*_shown(part), arrived, missing, own.since))
        return found

    # Upcalls

    def answer(self, upcall: Upcall, op: GroupUpcall) -> None:
        """Answer the upcall `group`."""
        if op.operation == GROUP_CANCEL:
            self._cancel(op)
            upcall.reply(())
        elif op.operation == GROUP_CONSTRUCT:
            self._construct(upcall, op)
        elif op.operation == GROUP_DESTRUCT:
            self._begin(upcall, DESTRUCT, op.group, op.procs, op.directives)
        else:
            raise NotSupported(f"a group has no operation {op.operation}")

    def connect(self, upcall: Upcall, op: Connect) -> None:
        """Answer the upcall `connect`, of a group by its name or of any procs."""
        found = {info.key: info.value.data for info in op.directives if info.key in (GROUP_ID, CONNECT_ID)}
        name, id = found.get(GROUP_ID), found.get(CONNECT_ID)
        if isinstance(name, str):
            name = f"{name}\0{id}" if id else name
        else:
            # What has no name is known by who takes part in it.
            members = sorted(set(self._places.expand(op.procs)))
            name = f"\0{id or ''}\0{blake2b(packing.pack_procs(members), digest_size=16).hexdigest()}"
        self._begin(upcall, CONNECT, name, op.procs, op.directives)

    def takes(self, upcall: Upcall, op: FenceUpcall | Disconnect, data: bytes = b"") -> bool:
        """Carry out what all of a group does by its name; return False where the procs have other names."""
        name = next((info.value.data for info in op.directives if info.key == GROUP_ID), None)
        if not isinstance(name, str):
            return False
        self._begin(upcall, ADDRESSED[type(op)], name, op.procs, op.directives, data)
        return True

    def _construct(self, upcall: Upcall, op: GroupUpcall) -> None:
        infos = op.directives
        guest = procs_in(infos, GROUP_GUEST)
        if guest is None and op.procs and not any(info.key == attrs.GROUP_BOOTSTRAP.key for info in infos):
            self._begin(upcall, CONSTRUCT, op.group, op.procs, infos)
        else:
            self._begin(upcall, OFFER, op.group, op.procs or guest or (), infos)

    def _begin(
        self,
        upcall: Upcall,
        kind: int,
        name: str,
        procs: Iterable[Proc],
        directives: tuple[Info, ...],
        data: bytes = b"",
    ) -> None:
        """Carry something out with the servers of its members, and answer its upcall."""
        members, servers = self._where(procs)
        if kind not in (OFFER, CONSTRUCT) and self.name not in servers:
            raise PMIxError(f"none of its procs are on {self.name}", status=statuses.ERR_BAD_PARAM, procs=members)
        mine = servers.get(self.name, [])
        life = self._lives.latest(mine)
        if kind != OFFER and mine and all(self._places.is_missing(proc, life) for proc in mine):
            # Those who have not gone do not wait for this server any more, and it has nobody left to tell.
            self._unattended(upcall, kind, members, directives)
            return
        known, leaders = self._known(kind, name, directives)
        part = Part(
            self._exchange.number(),
            kind,
            name,
            members,
            _status_of(kind, directives),
            life,
            tuple([self._expanded(info) for info in directives if info.key in deciding.CARRIED]),
            known,
            leaders,
            self._jobs_for(kind, servers),
            data,
        )
        own = _Own(part, servers, lambda outcome: self._attempt(lambda up, _: self._end(up, own, outcome), upcall), 0.0)
        self._start(own, seconds_in(directives))

    def _where(self, procs: Iterable[Proc]) -> tuple[tuple[Proc, ...], dict[str, list[Proc]]]:
        """Return whom procs stand for, and those of them by their servers; who comes again is found once."""
        asked, version, found = self._found
        if found is None or asked is not procs or version != self._places.version:
            members = tuple(self._places.expand(procs))
            # Others may not know yet that a job is over: what it has part in ends the same way for all.
            servers = self._places.servers([proc for proc in members if not self._places.is_over(proc.nspace)])
            found = members, servers
            if self._places.steady and isinstance(procs, tuple):
                self._found = procs, self._places.version, found
        return found

    def _unattended(self, upcall: Upcall, kind: int, members: tuple[Proc, ...], directives: Iterable[Info]) -> None:
        """Answer what all members of this server have gone from before it began."""
        gone = [proc for proc in members if self._places.where(proc) == self.name]
        if kind == DISCONNECT or (kind == DESTRUCT and is_set(directives, deciding.NOTIFY_TERMINATION)):
            upcall.reply(None if kind == DISCONNECT else ())
            return
        status = statuses.GROUP_CONSTRUCT_ABORT if kind == CONSTRUCT else statuses.ERR_PARTIAL_SUCCESS
        error = error_for(status)("all members here have gone", status=status, operation=OPERATIONS[kind])
        error.missing = frozenset(gone)
        upcall.fail(error)

    def _known(self, kind: int, name: str, directives: tuple[Info, ...]) -> tuple[tuple[Proc, ...], tuple[Proc, ...]]:
        """Return who this server was told to be absent, and to lead, if it comes to a construct once more."""
        found = self._rounds.pop(name, ((), ())) if kind == CONSTRUCT else ((), ())
        return found if (number_in(directives, GROUP_ROUND) or 1) > 1 else ((), ())

    def _expanded(self, info: Info) -> Info:
        """Return an info with the procs that a wildcard stands for."""
        if info.key not in deciding.ARRAYS:
            return info
        named = procs_in((info,), info.key) or ()
        procs = tuple(self._places.expand(named))
        return info if procs == named else deciding.named(info.key, procs)

    def _jobs_for(self, kind: int, servers: dict[str, list[Proc]]) -> tuple[tuple[str, bytes], ...]:
        """Return the job infos that this server has to tell: of its own procs, where a server does not know them."""
        if kind not in (CONSTRUCT, OFFER, CONNECT):
            return ()
        others = self._exchange.members if kind == OFFER else tuple(servers)
        told = []
        for nspace in sorted({proc.nspace for proc in servers.get(self.name, ())}):
            first = min([name for name, procs in servers.items() if any(proc.nspace == nspace for proc in procs)])
            if first == self.name and nspace in self._jobs and not self._places.known_to(nspace, others):
                buffer = DataBuffer()
                packing.pack_job(buffer, self._jobs[nspace])
                told.append((nspace, buffer.bytes()))
        return tuple(told)

    def _end(self, upcall: Upcall, own: _Own, outcome: Outcome) -> None:
        part = own.part
        if outcome.status != statuses.SUCCESS:
            error: PMIxError
            if outcome.status == statuses.ERR_TIMEOUT:
                error = ExchangeTimeout(outcome.detail, servers=self._servers_of(outcome.missing))
            else:
                error = error_for(outcome.status)(outcome.detail, status=outcome.status)
            error.operation = OPERATIONS[part.kind]
            error.missing = frozenset(outcome.missing[:MAX_MISSING])
            upcall.fail(error)
            return
        buffer = DataBuffer(outcome.jobs)
        while buffer.more():
            self._borrow(packing.unpack_job(buffer))
        if part.kind == FENCE:
            upcall.reply(outcome.data)
        elif part.kind == CONNECT:
            self._bring_jobs(part, lambda: self._reply_connected(upcall, outcome))
        elif part.kind == DISCONNECT:
            upcall.reply(None)
        elif part.kind == DESTRUCT:
            self.record.remove(part.name, part.procs)
            upcall.reply(outcome.infos)
        else:
            upcall.reply(self._constructed(part, outcome))

    def _bring_jobs(self, part: Part, then: Callable[[], None]) -> None:
        """Ask for job infos that nobody has told, because the server that was to do so has no proc left there."""
        nspaces = {proc.nspace for proc in part.procs if not self._has_gone(proc)}
        asked = []
        for nspace in sorted(filter(self._lacks, nspaces)):
            told = [name for name in self._places.tellers_of(nspace) if name in self._exchange.members]
            asked += [(nspace, name) for name in told[:1]]
        waiting = len(asked)

        def came(data: bytes | None, _error: PMIxError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if data:
                self._borrow(packing.unpack_job(DataBuffer(data)))
            if not waiting:
                then()

        for nspace, name in asked:
            self._exchange.request(name, JOB, nspace.encode(), came, timeout=GRACE)
        if not asked:
            then()

    def _asked_job(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        job = self._jobs.get(data.decode("utf-8", "replace"))
        buffer = DataBuffer()
        if job is not None:
            packing.pack_job(buffer, job)
        answer(buffer.bytes(), None)

    def _reply_connected(self, upcall: Upcall, outcome: Outcome) -> None:
        made = deciding.connection_in(outcome.infos)
        upcall.reply(made)
        gone = [] if made is None else [proc for proc in made.procs if self._has_gone(proc)]
        if gone:
            # The news of them was here before the connection, which the server knows in a moment.
            self._exchange.later(0, lambda: self._tell_gone(gone))

    def _has_gone(self, proc: Proc) -> bool:
        where = self._places.where(proc)
        return where is None or where in self._exchange.gone or self._places.has_departed(proc)

    def _servers_of(self, procs: Iterable[Proc]) -> list[str]:
        return sorted({server for proc in procs if (server := self._places.where(proc)) is not None})

    def _constructed(self, part: Part, outcome: Outcome) -> tuple[Info, ...]:
        infos = outcome.infos
        members = procs_in(infos, attrs.GROUP_MEMBERSHIP.key)
        if members is None:
            absent, leader = procs_in(infos, GROUP_ABSENT) or (), procs_in(infos, GROUP_LEADER_PROC) or ()
            self._rounds[part.name] = absent, leader
            while len(self._rounds) > MAX_ROUNDS:
                self._rounds.popitem(last=False)
        else:
            self._formed(part.name, members)
        if deciding.understands(part) or any(info.key == GROUP_GUEST for info in part.infos):
            return infos
        native = (attrs.GROUP_MEMBERSHIP.key, attrs.GROUP_CONTEXT_ID.key, *deciding.TOLD)
        return tuple([info for info in infos if info.key in native])

    # Parts on their way

    def _forward(self, part: Part, done: OnOutcome) -> Callable[[int], None]:
        """Give a part to the server where offers meet."""
        own = _Own(part.replace(number=self._exchange.number()), {}, done, 0.0)
        self._start(own, 0.0)
        return lambda status: self._give_up(own, status)

    def _start(self, own: _Own, seconds: float) -> None:
        own.since = self._exchange.now()
        self._open[own.part.number] = own
        if seconds:
            own.timer = self._exchange.later(seconds, lambda: self._overdue(own))
        self._send(own)

    def _coordinator_of(self, own: _Own) -> str | None:
        """Return the server that coordinates it: the first that is not lost; None where there is none."""
        if own.part.kind == OFFER:
            return self._exchange.members[0]
        gone = self._exchange.gone
        return min([name for name in own.servers if name not in gone and name not in own.skip], default=None)

    def _send(self, own: _Own) -> None:
        if own.part.number not in self._open:
            return
        if own.cancelled != statuses.SUCCESS:
            self._finish(own, deciding.failure(own.cancelled, f"{self.name} has given it up"))
            return
        to = self._coordinator_of(own)
        mine = own.servers.get(self.name, ()) if own.skip else ()
        if to is None or (mine and self.coordinator.are_out(own.part, mine)):
            # Those who have not gone do not wait for this server any more.
            status = statuses.GROUP_CONSTRUCT_ABORT if own.part.kind == CONSTRUCT else statuses.ERR_PARTIAL_SUCCESS
            self._finish(own, deciding.failure(status, "all of its members here have gone", own.part.procs))
        elif to in self._exchange.members:
            own.to = to
            self._exchange.request(to, PART, pack_part(own.part), lambda data, error: self._told(own, to, data, error))
        else:
            # It has not begun yet.
            own.to = None
            self._exchange.when_present((to,), lambda _, error: self._present(own, error))

    def _present(self, own: _Own, error: PMIxError | None) -> None:
        if error is not None:
            self._finish(own, deciding.failure(error.code, error.detail))
        elif own.to is None:
            self._send(own)

    def _told(self, own: _Own, to: str, data: bytes | None, error: PMIxError | None) -> None:
        """A coordinator has answered."""
        if own.part.number not in self._open or own.to != to:
            return
        if isinstance(error, ServerLost | Unreachable):
            own.to = None
            own.skip.add(to)
            self._inquire(own, to)
        elif error is not None:
            self._finish(own, deciding.failure(error.code, error.detail))
        else:
            outcome = unpack_outcome(data or b"")
            if outcome.moved:
                self._move(own, to)
            else:
                self.coordinator.ended.add(outcome)
                self.coordinator.known(outcome)
                self._finish(own, outcome)
                if procs_in(outcome.infos, attrs.GROUP_MEMBERSHIP.key) or outcome.status != statuses.SUCCESS:
                    self.coordinator.elsewhere(own.part)

    def _move(self, own: _Own, to: str) -> None:
        """Somebody else coordinates it."""
        own.to = None
        own.tries += 1
        if own.part.kind != OFFER:
            own.skip.add(to)
        if own.tries > TRIES:
            self._finish(
                own, deciding.failure(statuses.GROUP_CONSTRUCT_ABORT, "the servers do not agree where they meet")
            )
        elif self._coordinator_of(own) == to:
            # This server has not heard yet of the one that does.
            self._exchange.later(AGAIN, lambda: self._send(own))
        else:
            self._send(own)

    def _finish(self, own: _Own, outcome: Outcome) -> None:
        if self._open.pop(own.part.number, None) is not None:
            if own.timer is not None:
                own.timer.cancel()
            own.done(outcome)

    def _inquire(self, own: _Own, lost: str) -> None:
        """The coordinator is lost: look whether another server has heard of it how it has ended, else go on."""
        others = [name for name in self._exchange.members if name != self.name]
        waiting = set(others)
        asked = pack_words(own.part.number, name=lost)

        def told(name: str, data: bytes | None, _error: PMIxError | None) -> None:
            if own.part.number not in self._open or own.to is not None or not waiting:
                return
            waiting.discard(name)
            if data:
                self._heard_of(data)
            elif not waiting:
                self._send(own)

        if not others:
            self._send(own)
        for name in others:
            self._exchange.request(name, ENDED, asked, partial(told, name), timeout=GRACE)

    def _asked_ended(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        lost, (number,) = unpack_words(data, 1)
        asked = lost, sender, number, answer
        self._asked.append(asked)
        if lost in self._exchange.members:
            # What it has told this server may be on its way still.
            self._exchange.later(PATIENCE, lambda: self._answer_ended(asked))
        else:
            # In a turn of its own: what came before it has been dealt with by then.
            self._exchange.turns(self._answer_ended, asked)

    def _answer_ended(self, asked: tuple[str, str, int, OnAnswer]) -> None:
        if asked in self._asked:
            self._asked.remove(asked)
            outcome = self.coordinator.ended.find(asked[1], asked[2])
            asked[3](b"" if outcome is None else pack_outcome(outcome), None)

    def _heard_of(self, data: bytes) -> None:
        """Another server knows how something has ended whose coordinator is lost: so do all now that it concerns."""
        outcome = unpack_outcome(data)
        mine = [own for server, number in outcome.roster if server == self.name and (own := self._open.get(number))]
        self.coordinator.ended.add(outcome)
        self.coordinator.known(outcome)
        for own in mine:
            self._finish(own, outcome)
        if mine:
            # Whoever has told this may be lost before the others hear of it.
            for name in sorted({server for server, _ in outcome.roster} - {self.name}):
                self._exchange.tell(name, NEWS, data)

    # What is given up

    def _cancel(self, op: GroupUpcall) -> None:
        """The server gives up what it has begun under a name: all of it, or the offers of some callers."""
        given = number_in(op.directives, LOCAL_STATUS)
        status = statuses.GROUP_CONSTRUCT_ABORT if given is None else given
        for own in list(self._open.values()):
            part = own.part
            meant = not op.procs or (part.kind == OFFER and not set(op.procs).isdisjoint(part.procs))
            if meant and part.name == op.group and part.kind in (CONSTRUCT, DESTRUCT, OFFER):
                self._give_up(own, status)

    def _give_up(self, own: _Own, status: int) -> None:
        if own.part.number not in self._open:
            return
        own.cancelled = status
        if own.to is not None:
            self._exchange.tell(own.to, CANCEL, pack_words(own.part.number, status))

    def _told_cancel(self, sender: str, data: bytes) -> None:
        _, (number, status) = unpack_words(data, 2)
        self.coordinator.cancel(sender, number, status)

    def _overdue(self, own: _Own) -> None:
        if own.part.number not in self._open:
            return
        own.timer = self._exchange.later(GRACE, lambda: self._forsake(own))
        if own.to is None and own.part.kind != OFFER:
            late = sorted(set(own.servers) - {*self._exchange.members})
            procs = [proc for name in late for proc in own.servers[name]]
            self._finish(own, deciding.overdue(late, procs))
        else:
            self._give_up(own, statuses.ERR_TIMEOUT)

    def _forsake(self, own: _Own) -> None:
        """The coordinator does not even say who is missing."""
        where = f"{listed((own.to,))} does not answer" if own.to else "no server says how it has ended"
        self._finish(own, deciding.failure(statuses.ERR_TIMEOUT, where))

    # Who comes and goes

    def _changed(self, name: str, here: bool) -> None:
        if here:
            self.coordinator.meet()
            return
        self.coordinator.lose(name)
        for asked in [asked for asked in self._asked if asked[0] == name]:
            self._exchange.turns(self._answer_ended, asked)

    def heard(self, code: int, source: Proc, infos: Iterable[Info]) -> None:
        """An event passes this server, from one of its own procs or from another server."""
        if code not in (statuses.GROUP_LEFT, statuses.GROUP_CONSTRUCT_COMPLETE, statuses.GROUP_MEMBERSHIP_UPDATE):
            return
        name = next((info.value.data for info in infos if info.key == GROUP_ID), None)
        if not isinstance(name, str):
            return
        if code == statuses.GROUP_LEFT:
            for proc in procs_in(infos, attrs.EVENT_AFFECTED_PROC.key) or (source,):
                self.record.leave((proc,), name)
                self.coordinator.leave(name, proc)
        else:
            self._formed(name, procs_in(infos, attrs.GROUP_MEMBERSHIP.key) or ())

    def _formed(self, name: str, members: tuple[Proc, ...]) -> None:
        """A group stands, or has other members than before."""
        self.coordinator.joined(name, members)
        where = {proc: self._places.where(proc) for proc in members}
        if self.name in where.values():
            gone = {None, *self._exchange.gone}
            self.record.add(name, [proc for proc in members if where[proc] not in gone])
            # When their end was heard of the server did not know the group yet; in a turn of its own it does.
            ended = [proc for proc in members if where[proc] in gone or self._places.has_departed(proc)]
            if ended:
                self._exchange.turns(self.bury, ended)


def _shown(part: Part) -> tuple[str, str]:
    """Return the operation of a part, with the id of a connect, and the group that it is one of."""
    group, _, rest = part.name.partition("\0")
    id = rest.partition("\0")[0]
    return f"{OPERATIONS[part.kind]} {id}".rstrip(), group


def _status_of(kind: int, directives: Iterable[Info]) -> int:
    """Return how it stands with the members of a server, as that says."""
    status = number_in(directives, LOCAL_STATUS) or statuses.SUCCESS
    # Native servers from 7.0 on say so of a construct that goes on without members that have ended.
    return statuses.ERR_PARTIAL_SUCCESS if status == statuses.ERR_LOST_CONNECTION and kind == CONSTRUCT else status


def seconds_in(directives: Iterable[Info]) -> float:
    """Return the shortest time limit among directives, 0 if they give none."""
    found = [info.value.data for info in directives if info.key == TIMEOUT]
    return float(min([limit for limit in found if isinstance(limit, int) and limit > 0], default=0))
