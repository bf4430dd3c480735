"""Upcalls that a server cannot answer alone, answered together with the other servers."""

from __future__ import annotations

from pypmix.engine.common import Pending
from pypmix.engine.groups.talk import ENDED, GONE, SAYS, WITHOUT, say, text
from pypmix.engine.times import GET_SECONDS, GONE_SECONDS
from pypmix.host.exchange import codec, deciding
from pypmix.host.exchange.codec import EVENT, MODEX
from pypmix.host.exchange.collectives import Collectives, seconds_in
from pypmix.host.exchange.errors import as_error
from pypmix.host.exchange.jobs import BACK, DEPARTED, FINALIZED, Jobs
from pypmix.host.exchange.kinds import KINDS
from pypmix.host.exchange.limits import MAX_OVER
from pypmix.host.exchange.places import Incarnations, Places
from pypmix.host.exchange.psets import Psets
from pypmix.host.exchange.queries import GroupQueries
from pypmix.host.naming import shown
from pypmix.standard import attrs, keys, statuses
from pypmix.standard.errors import NotFound, NotSupported, OperationTimeout, PMIxError
from pypmix.standard.ops import DirectModex, Lookup, Notification, NotifyEvent, Publish, QueryInfo, Unpublish
from pypmix.standard.ops.events import (
    RANGE_LOCAL,
    RANGE_NAMESPACE,
    RANGE_PROC_LOCAL,
    RANGE_RM,
    procs_in,
)
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Protocol

    from pypmix.engine.base import Done, Upcall
    from pypmix.host.exchange.codec import Groups
    from pypmix.host.exchange.collectives import Described
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.jobs import News
    from pypmix.host.exchange.kinds import OnAnswer, Timer
    from pypmix.host.exchange.places import Where
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.ops import Op

    class ServerLike(Protocol):
        """The calls that a crossing makes to a server; `pypmix.Server` and the sessions of both engines have it."""

        @property
        def proc(self) -> Proc: ...

        def register_nspace(self, job: JobInfo, local: tuple[int, ...] | None = None) -> None: ...

        def deregister_nspace(self, nspace: str) -> None: ...

        def notify(self, event: Notification) -> None: ...

        def define_process_set(self, name: str, members: tuple[Proc, ...], *, elsewhere: bool = False) -> None: ...

        def delete_process_set(self, name: str) -> None: ...

        def dmodex_request(self, proc: Proc, done: Done[bytes], *, key: str = "", timeout: float = 0.0) -> None: ...

    Answer = Callable[[Upcall, Any], None]
    Directory = Callable[[Upcall], None]

RAISED = "pypmix.event"
DIRECT_MODEX = "pypmix.modex"
DIRECTORY = "pypmix.directory"
"""The topics of messages between servers."""

REQUIRED_KEY = keys.REQUIRED_KEY

LOST = (statuses.ERR_PROC_ABORTED, statuses.PROC_TERMINATED, statuses.EVENT_PROC_TERMINATED)
"""The codes raised for a proc that was lost with its server; the end of a proc has an older and a newer code."""

STAYS = frozenset((RANGE_LOCAL, RANGE_PROC_LOCAL, RANGE_RM))
"""The ranges of events that do not concern clients of other servers."""


class _Asked:
    """A direct modex that another server waits for."""

    __slots__ = ("answer", "timer")

    def __init__(self, answer: OnAnswer) -> None:
        self.answer = answer
        self.timer: Timer | None = None


class Crossing:
    """Answers the upcalls that a server cannot answer alone: `FenceUpcall`, `DirectModex`, `GroupUpcall`, `Connect`,
    `Disconnect`, `NotifyEvent`, `Publish`, `Lookup`, `Unpublish`, and a `QueryInfo` about groups alone.

    Each server of a job has one. It is made before its exchange is started, belongs to no thread, and never blocks.
    All servers know the servers of all procs: each reports the jobs that it registers here to the others.

    Args:
        server: The server whose upcalls are answered: a `pypmix.Server`, or an engine's session.
        exchange: This server's exchange.
        where: Returns the name of the server that has a proc, or None; called before the reports of servers are used.
        directory: Answers `Publish`, `Lookup` and `Unpublish` of all servers if this one is the first by name; upcalls
            of others arrive with the same requestor, uid and gid. None if nothing is published.
        gone: Called with each proc of any server that has ended or is lost, on whatever thread brings that: remove the
            data that it has published for as long as it lives. It must not block.
        over: Called with the procs of a job when all of them have ended, or no server has the job any longer.
        session: Returns True if a server, given by its name, is of this one's session; all are by default.
        launcher: The name of the launcher's server in a session with one: it describes each job to all servers
            (`place`), and forwards the news of procs. Without it, servers report to each other.
        hop: Passes the server's answers to the thread of the exchange; on the server's thread by default.
    """

    def __init__(
        self,
        server: ServerLike,
        exchange: Exchange,
        where: Where | None = None,
        *,
        directory: Directory | None = None,
        gone: Callable[[Proc], None] | None = None,
        over: Callable[[tuple[Proc, ...]], None] | None = None,
        session: Callable[[str], bool] | None = None,
        launcher: str = "",
        hop: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self.name = exchange.name
        self._server = server
        self._exchange = exchange
        self._directory = directory
        self._gone = gone
        self._over = over
        self._session = session
        self._hop = hop or (lambda call: call())
        self._places = Places(where)
        self._launcher = launcher
        exchange.follow(launcher)
        self._session_jobs = Jobs(exchange, self._places, self._happened, self._late, self._remove)
        self._incarnations = Incarnations()
        self._jobs: dict[str, JobInfo | Described] = {}
        self._ended: dict[str, set[str]] = {}
        """Jobs that had ended here before these servers of theirs knew them."""
        self._borrowed: set[str] = set()
        self._modexes: dict[Proc, dict[_Asked, None]] = {}
        self._collectives = Collectives(
            exchange,
            self._places,
            self._incarnations,
            self._jobs,
            self._borrow,
            self._tell_gone,
            self._lacks,
            self._remove_departed,
            self._without,
        )
        exchange.collectives.expire = self._expire
        self.psets = Psets(server, exchange)
        self._queries = GroupQueries(exchange, self._places, self._listed)
        self._answers: dict[type, Answer] = {
            **self._collectives.answers,
            DirectModex: self._modex,
            NotifyEvent: self._notify,
            QueryInfo: self._query,
        }
        if directory is not None:
            self._answers |= {Publish: self._forward, Lookup: self._forward, Unpublish: self._forward}
        exchange.watch(self._changed)
        exchange.hear(RAISED, self._told_event)
        exchange.handle(DIRECT_MODEX, self._asked_modex)
        exchange.handle(DIRECTORY, self._asked_directory)

    # For a host, from any thread; and `psets` for process sets

    def answer(self, upcall: Upcall) -> bool:
        """Answer an upcall, now or later.

        Returns:
            Whether it is an upcall that is answered here; otherwise nothing was done with it.
        """
        op = upcall.op
        answer = self._answers.get(type(op))
        if answer is None or (type(op) is QueryInfo and not self.answers(op)):
            return False
        self._exchange.soon(self._collectives.attempt, answer, upcall)
        return True

    def answers(self, op: object) -> bool:
        """Return True if an upcall of this operation is answered here."""
        return type(op) in self._answers and (not isinstance(op, QueryInfo) or self._queries.answers(op))

    def register(self, job: JobInfo | Described, places: Mapping[int, str]) -> None:
        """Make a job known; each server that has procs of it, or its job info, does so before it registers the nspace.

        Args:
            job: The job info, which the clients of other servers get when they connect with procs of the job; or an
                object that makes it, once another server asks.
            places: The name of the server of each rank, all ranks.
        """
        self._exchange.soon(self._register, job, dict(places))

    def place(self, job: JobInfo | Described, places: Mapping[int, str], number: int) -> None:
        """Record the launcher's description of a job, before any later message of its server.

        Args:
            job: See `register`, which need not be called as well.
            places: See `register`.
            number: The number of the job in the session: later jobs have greater ones.
        """
        self._exchange.soon.now(self._register, job, dict(places), number)

    def introduce(self, name: str) -> None:
        """Report what has happened to procs to a server that has joined late, and knows all jobs by now."""
        self._exchange.soon(self._exchange.state.introduce, name)

    def deregister(self, nspace: str) -> None:
        """Forget a job; other servers do so when each server with a registration has forgotten it."""
        self._exchange.soon(self._deregister, nspace)

    def connected(self, proc: Proc) -> None:
        """A client of this server has connected (the upcall `ClientConnected`), for the first time or again."""
        self._exchange.soon(self._connected, proc)

    def finalized(self, proc: Proc) -> None:
        """A client of this server has finalized (the upcall `ClientFinalized`).

        Procs on other servers no longer wait for it, unless they have opened again already, as it may, too.
        """
        self._exchange.soon(self._finalized, proc)

    def departed(self, proc: Proc) -> None:
        """A proc of this server has ended, or is lost: it is no longer awaited, unless it connects again.

        A collective continues without a server whose members have all ended, and ends as a collective from which some
        members are missing.
        """
        self._exchange.soon(self._departed, proc)

    def raised(self, event: Notification) -> None:
        """The host has raised an event for the session for this server's clients: send it to the other servers."""
        op = NotifyEvent(event.code, event.range or RANGE_SESSION, event.infos)
        self._exchange.soon(self._spread, op, event.source, set(self._exchange.members))

    def pending(self) -> list[Pending]:
        """Return the collectives of this server that others have not ended yet, oldest first; from any thread.

        Only the server that coordinates one knows which procs are missing, even if its own have not called it yet.
        """
        return self._collectives.pending()

    # Jobs and procs

    def _register(self, job: JobInfo | Described, places: dict[int, str], number: int = 0) -> None:
        self._jobs[job.nspace] = job
        self._ended.pop(job.nspace, None)
        if self._launcher:
            self._session_jobs.place(job.nspace, places, number)
        else:
            self._session_jobs.register(job.nspace, places)

    def _deregister(self, nspace: str) -> None:
        if self._jobs.pop(nspace, None) is not None:
            self._incarnations.forget(nspace)
            if self._launcher:
                # The launcher makes every server forget it.
                self._remove(self._launcher, nspace)
                return
            if late := self._places.unheard(nspace):
                self._ended[nspace] = late
                if len(self._ended) > MAX_OVER:
                    del self._ended[next(iter(self._ended))]
            self._session_jobs.forget(nspace)
            self._remove(self.name, nspace)

    def _late(self, name: str, nspace: str) -> None:
        """A server knows a job only now: report to it the procs that have ended, if the job has ended here."""
        late = self._ended.get(nspace)
        if late is not None and name in late:
            late.remove(name)
            if not late:
                del self._ended[nspace]
            own = [proc for proc in self._places.procs_of(nspace) if self._places.where(proc) == self.name]
            for proc in own:
                self._session_jobs.submit_news(proc, DEPARTED)
            self._depart(tuple(own))

    def _remove(self, teller: str, nspace: str) -> None:
        """Record that a server has forgotten a job, which ends with the last server that knew it."""
        procs = self._places.remove(teller, nspace)
        if procs is not None:
            self._collectives.record.leave(procs)
            self._return(nspace)
            if self._over is not None:
                self._over(procs)

    def _connected(self, proc: Proc) -> None:
        self._incarnations.connected(proc)
        if self._places.back(proc):
            self._session_jobs.submit_news(proc, BACK)

    def _finalized(self, proc: Proc) -> None:
        incarnation = self._incarnations.finalized(proc)
        if incarnation:
            self._places.finalize(proc, incarnation)
            self._session_jobs.submit_news(proc, FINALIZED, incarnation)
            self._review()

    def _departed(self, proc: Proc) -> None:
        self._incarnations.lost(proc)
        # The others are informed before the end of anything that it ends.
        self._session_jobs.submit_news(proc, DEPARTED)
        self._depart((proc,))
        for asked in self._modexes.get(proc, ()):
            self._exchange.later(GONE_SECONDS, lambda asked=asked: self._give_up(proc, asked))  # type: ignore[misc]

    def _depart(self, procs: tuple[Proc, ...]) -> None:
        """Record that procs of any server have ended."""
        found = self._places.depart(procs)
        # Before collectives end by it: members get reports of members that their group's destruct misses.
        self._remove_departed(found)
        self._review()
        if self._gone is not None:
            for proc in found:
                self._gone(proc)
        if self._over is not None:
            for nspace in dict.fromkeys([proc.nspace for proc in found]):
                ended = self._places.has_ended(nspace)
                if ended:
                    self._over(ended)

    def _remove_departed(self, procs: Sequence[Proc], group: str | None = None) -> None:
        """Remove procs of other servers from groups and connections: they have ended, or their server is lost.

        Args:
            procs: The procs.
            group: The only group that they are known to have left; all by default.
        """
        if not procs:
            return
        self._collectives.record.leave(procs, group)
        others = {proc for proc in procs if self._places.where(proc) != self.name}
        if not others:
            return
        told = (*(self._known("groups") or ()), *(self._known("connections") or ()))
        members = {proc for name, those in told if group in (None, name) for proc in others.intersection(those)}
        self._tell_gone([proc for proc in procs if proc in members], group)

    def _without(self, group: str, gone: Sequence[Proc], members: Sequence[Proc]) -> None:
        """Inform the server of members of a group that had ended before it was formed.

        Args:
            group: Its name.
            gone: These members.
            members: The members on this server: a member that got the report of the end before it called the
                construct cannot distinguish it from the end of an earlier process of that name.
        """
        self._remove_departed(gone)
        to = sorted({*members}.difference(gone))
        if to:
            infos = (*say(WITHOUT, group, to, (deciding.named(ENDED, gone),)).infos, attrs.EVENT_DO_NOT_CACHE(True))
            self._server.notify(Notification(statuses.TALK, self._server.proc, RANGE_CUSTOM, infos))

    def _tell_gone(self, procs: Iterable[Proc], group: str | None = None) -> None:
        """Report to the server that procs of others have ended, or have left one group."""
        named = () if group is None else (attrs.GROUP_ID(group),)
        for proc in procs:
            if self._places.where(proc) != self.name:
                infos = (text(SAYS, GONE), *named, attrs.EVENT_AFFECTED_PROC(proc), attrs.EVENT_DO_NOT_CACHE(True))
                self._server.notify(Notification(statuses.TALK, self._server.proc, RANGE_LOCAL, infos))

    def _tell_lost(self, procs: Iterable[Proc]) -> None:
        """Raise the events of a failure for procs that were lost with their server, whose host can no longer do so."""
        for proc in procs:
            affected = (attrs.EVENT_AFFECTED_PROC(proc), attrs.EVENT_NON_DEFAULT(True))
            for code in LOST:
                infos = affected if code == statuses.ERR_PROC_ABORTED else (*affected, attrs.EVENT_DO_NOT_CACHE(True))
                try:
                    self._server.notify(Notification(code, self._server.proc, RANGE_SESSION, infos))
                except PMIxError:
                    # The server has closed: it has no clients to inform.
                    return

    def _known(self, what: str) -> Groups | None:
        """Return the groups, or the connections, that the server knows; None if it does not report them."""
        ask = getattr(self._server, what, None)
        try:
            return None if ask is None else ask()
        except PMIxError:
            return None

    def _listed(self) -> Groups:
        told = self._known("groups")
        return self._collectives.record.listed() if told is None else told

    def _query(self, upcall: Upcall, op: QueryInfo) -> None:
        self._queries.answer(upcall, op, lambda end: self._collectives.attempt(lambda *_: end(), upcall))

    def _expire(self, kind: int, name: str, procs: tuple[Proc, ...], done: Callable[[], None]) -> None:
        """The time of a caller on another server has passed: end its operation for the clients of this server."""
        expire = getattr(getattr(self._server, "session", self._server), "expire", None)
        if expire is None:
            # Servers of libpmix have no such call.
            done()
            return
        group, _, rest = name.partition("\0")
        id = group or rest.partition("\0")[0]
        try:
            expire(KINDS[kind].operation, id, frozenset(procs), lambda: self._hop(done))
        except PMIxError:
            done()

    def _review(self) -> None:
        """Check again which procs are awaited."""
        self._exchange.collectives.coordinator.review()

    def _changed(self, name: str, here: bool) -> None:
        if not here:
            procs = tuple(self._places.procs_on(name))
            lost = [proc for proc in procs if not self._places.is_missing(proc, 1)]
            self._depart(procs)
            for nspace in self._places.known():
                self._remove(name, nspace)
            if self._session is None or self._session(name):
                self._tell_lost(lost)

    def _happened(self, news: News) -> None:
        """Process news of procs of other servers."""
        for what, incarnation, procs in news:
            if what == DEPARTED:
                self._depart(procs)
            elif what == FINALIZED:
                for proc in procs:
                    self._places.finalize(proc, incarnation)
                self._review()
            elif what == BACK:
                for proc in procs:
                    self._places.back(proc)

    def _lacks(self, nspace: str) -> bool:
        return nspace not in self._jobs and nspace not in self._borrowed

    def _borrow(self, job: JobInfo) -> None:
        """Register a job that other servers have, for clients that have connected with its procs."""
        if not self._lacks(job.nspace) or not self._places.known_to(job.nspace, ()):
            # It is known here, or it has ended already.
            return
        try:
            self._server.register_nspace(job, ())
        except PMIxError as error:
            if error.code != statuses.ERR_EXISTS:
                raise
            return
        self._borrowed.add(job.nspace)

    def _return(self, nspace: str) -> None:
        """Remove the registration of a job for connected clients, since no server has the job any longer."""
        if nspace in self._borrowed:
            self._borrowed.discard(nspace)
            self._server.deregister_nspace(nspace)

    # Direct modex

    def _modex(self, upcall: Upcall, op: DirectModex) -> None:
        server = self._places.where(op.proc)
        if server is None:
            raise NotFound("no server is known to have it", procs=(op.proc,))

        def done(data: bytes | None, error: PMIxError | None) -> None:
            if error is None:
                upcall.reply(data)
                return
            error.operation, error.procs = upcall.op.name, (op.proc,)
            if isinstance(error, OperationTimeout):
                error.missing = frozenset(error.procs)
            upcall.fail(error)

        key = next((info.value.data for info in op.directives if info.key == REQUIRED_KEY), "")
        seconds = seconds_in(op.directives)
        # Without a limit it ends with the limit of the other server, however long the way there takes.
        asked = MODEX.write((op.proc, key if isinstance(key, str) else "", seconds or GET_SECONDS))
        self._exchange.request(server, DIRECT_MODEX, asked, done, timeout=seconds)

    def _asked_modex(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        proc, key, seconds = MODEX.read(data)
        asked = _Asked(answer)
        self._modexes.setdefault(proc, {})[asked] = None
        try:
            self._server.dmodex_request(
                proc,
                lambda found, error, /: self._hop(lambda: self._exchange.soon(self._told, proc, asked, found, error)),
                key=key,
                timeout=seconds,
            )
        except Exception as error:
            self._told(proc, asked, None, error)
            return
        if asked in self._modexes.get(proc, ()):
            limit = min(seconds, GONE_SECONDS) if self._places.has_departed(proc) else seconds
            asked.timer = self._exchange.later(limit, lambda: self._give_up(proc, asked))

    def _told(self, proc: Proc, asked: _Asked, data: bytes | None, error: BaseException | None) -> None:
        """A server has answered a direct modex, or its answer is no longer waited for."""
        waiting = self._modexes.get(proc, {})
        if asked not in waiting:
            return
        del waiting[asked]
        if not waiting:
            del self._modexes[proc]
        if asked.timer is not None:
            asked.timer.cancel()
        asked.answer(data, None if error is None else as_error(error))

    def _give_up(self, proc: Proc, asked: _Asked) -> None:
        error: PMIxError
        if self._places.has_departed(proc):
            error = NotFound("it has gone, and has committed nothing", procs=(proc,))
        else:
            error = OperationTimeout("it has not committed it in time", procs=(proc,))
        self._told(proc, asked, None, error)

    # Events

    def _notify(self, upcall: Upcall, op: NotifyEvent) -> None:
        source = upcall.requestor or self._server.proc
        mine = self._places.where(source) in (None, self.name)
        if mine:
            self._collectives.heard(op.code, source, op.infos)
        if mine and op.range not in STAYS:
            # An event of another server is not passed on again.
            reach = self._reach(op, source)
            self._spread(op, source, set(self._exchange.members) if reach is None else reach)
        upcall.reply()

    def _spread(self, op: NotifyEvent, source: Proc, reach: set[str]) -> None:
        data = EVENT.write((op.code, op.range, source, op.infos))
        if (op.range != RANGE_SESSION or self._session is None) and reach.issuperset(self._exchange.members):
            self._exchange.tell_others(RAISED, data)
            return
        for server in sorted(reach - {self.name}):
            if op.range != RANGE_SESSION or self._session is None or self._session(server):
                self._exchange.tell(server, RAISED, data)

    def _reach(self, op: NotifyEvent, source: Proc) -> set[str] | None:
        """Return the servers that an event is for, None for all."""
        if op.range == RANGE_CUSTOM:
            named = procs_in(op.infos, keys.EVENT_CUSTOM_RANGE) or ()
        elif op.range == RANGE_NAMESPACE:
            named = (Proc.unchecked(source.nspace, RANK_WILDCARD),)
        else:
            return None
        try:
            return set(self._places.party(named).servers)
        except PMIxError:
            # Other servers may know them: each server reports its procs.
            return None

    def _told_event(self, _sender: str, data: bytes) -> None:
        code, reach, source, infos = EVENT.read(data)
        self._collectives.heard(code, source, infos)
        self._server.notify(Notification(code, source, reach, infos))

    # Publish, lookup, unpublish

    def _forward(self, upcall: Upcall, op: Publish | Lookup | Unpublish) -> None:
        assert self._directory is not None
        first = self._exchange.members[0]
        if first == self.name:
            self._directory(upcall)
            return
        if upcall.requestor is None or upcall.uid is None or upcall.gid is None:
            raise NotSupported("a server publishes on the node of the directory only")

        def done(data: bytes | None, error: PMIxError | None) -> None:
            if error is not None:
                error.operation = op.name
                upcall.fail(error)
            else:
                found = codec.unpack_found(data or b"")
                upcall.reply(found if isinstance(op, Lookup) else None)

        data = codec.pack_request(op, upcall.requestor, upcall.uid, upcall.gid)
        self._exchange.request(
            first, DIRECTORY, data, lambda data, error: self._collectives.attempt(lambda *_: done(data, error), upcall)
        )

    def _asked_directory(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        if self._directory is None:
            raise NotSupported(f"nothing is published on {shown(self.name)}")
        self._directory(Forwarded(sender, *codec.unpack_request(data), answer))


class Forwarded:
    """An `Upcall` that another server has forwarded; answered once, now or later, from any thread.

    Attributes:
        server: The name of the server that the requestor is a client of.
        op: The operation.
        requestor: The client that asks.
        uid: The user id of the requestor, according to its server.
        gid: Its group id.
    """

    __slots__ = ("_answer", "gid", "op", "requestor", "server", "uid")

    def __init__(
        self, server: str, op: Op[Any], requestor: Proc | None, uid: int | None, gid: int | None, answer: OnAnswer
    ) -> None:
        self.server = server
        self.op: Op[object] = op
        self.requestor = requestor
        self.uid = uid
        self.gid = gid
        self._answer = answer

    def reply(self, result: object = None) -> None:
        """Answer with a result; only the first answer counts."""
        self._answer(codec.pack_found(result), None)

    def fail(self, error: BaseException) -> None:
        """Answer with an error; a `PMIxError` passes its status on."""
        self._answer(None, as_error(error, self.op.name))
