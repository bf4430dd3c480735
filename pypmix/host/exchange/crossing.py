"""Upcalls that a server cannot answer alone, answered together with the other servers.

Theory of operation
-------------------
A `Crossing` stands between one server and its exchange. Upcalls of the server come in (`answer`), as do reports of its
host: jobs, and clients that connect, finalize and end. Each kind of upcall has one owner:

* Fences, groups and connections: `collectives`, which makes contributions of them for `participant`.
* A direct modex: `localserver.DirectModexes`, which asks the server of the proc.
* Events: they go to the servers in their range (`_notify`).
* Queries about groups: `queries`. Process sets: `psets`.
* Publish, lookup and unpublish: the server with the directory, the first by name.

`places` knows the server of each proc, and if the proc has ended; `jobs` keeps that in step with the other servers
by the order of the session (`statelog`). A lost server counts as the end of all of its procs (`_changed`), and the
launcher may start these again elsewhere (`move`).

Upcalls arrive on the server's thread and are answered from turns of the exchange.
"""

from __future__ import annotations

from pypmix.engine.common import Pending
from pypmix.host.exchange import codec
from pypmix.host.exchange.codec import EVENT
from pypmix.host.exchange.collectives import Collectives
from pypmix.host.exchange.errors import as_error
from pypmix.host.exchange.jobs import BACK, DEPARTED, FINALIZED, Jobs
from pypmix.host.exchange.limits import MAX_OVER
from pypmix.host.exchange.localserver import DirectModexes, LocalServer
from pypmix.host.exchange.places import Incarnations, Places
from pypmix.host.exchange.psets import Psets
from pypmix.host.exchange.queries import GroupQueries
from pypmix.host.naming import shown
from pypmix.standard import keys
from pypmix.standard.errors import NotSupported, PMIxError
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
    from collections.abc import Callable, Mapping
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.jobs import News
    from pypmix.host.exchange.kinds import OnAnswer
    from pypmix.host.exchange.localserver import Hop, ServerLike
    from pypmix.host.exchange.places import Where
    from pypmix.standard.jobinfo import JobDescription, JobInfo
    from pypmix.standard.ops import Op

    Answer = Callable[[Upcall, Any], None]
    Directory = Callable[[Upcall], None]

RAISED = "pypmix.event"
DIRECTORY = "pypmix.directory"
"""The topics of messages between servers."""

STAYS = frozenset((RANGE_LOCAL, RANGE_PROC_LOCAL, RANGE_RM))
"""The ranges of events that do not concern clients of other servers."""


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
        hop: Hop | None = None,
    ) -> None:
        self.name = exchange.name
        self._exchange = exchange
        self._directory = directory
        self._gone = gone
        self._over = over
        self._session = session
        self._places = Places(where)
        hop = hop or (lambda call: call())
        self._local = LocalServer(server, self.name, self._places, hop)
        self._launcher = launcher
        exchange.follow(launcher)
        self._authority = exchange.authority
        self._authority.places = self._places
        self._session_jobs = Jobs(exchange, self._places, self)
        self._incarnations = Incarnations()
        self._ended: dict[str, set[str]] = {}
        """Jobs that had ended here before these servers of theirs knew them."""
        self._moves: list[tuple[JobInfo | JobDescription, dict[int, str], Callable[[], None]]] = []
        """Moves of procs from servers that are not lost here yet."""
        self._modexes = DirectModexes(server, exchange, self._places, hop)
        self._collectives = Collectives(exchange, self._places, self._incarnations, self._local)
        exchange.collectives.expire = self._local.expire
        self.psets = Psets(server, exchange)
        self._queries = GroupQueries(exchange, self._places, self._local)
        self._answers: dict[type, Answer] = {
            **self._collectives.answers,
            DirectModex: self._modexes.request,
            NotifyEvent: self._notify,
            QueryInfo: self._query,
        }
        if directory is not None:
            self._answers |= {Publish: self._forward, Lookup: self._forward, Unpublish: self._forward}
        exchange.watch(self._changed)
        exchange.hear(RAISED, self._told_event)
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

    def register(self, job: JobInfo | JobDescription, places: Mapping[int, str]) -> None:
        """Make a job known; each server that has procs of it, or its job info, does so before it registers the nspace.

        Args:
            job: The job info, which the clients of other servers get when they connect with procs of the job; or an
                object that makes it, once another server asks.
            places: The name of the server of each rank, all ranks.
        """
        self._exchange.soon(self._register, job, dict(places))

    def place(self, job: JobInfo | JobDescription, places: Mapping[int, str], number: int) -> None:
        """Record the launcher's description of a job, before any later message of its server.

        Args:
            job: See `register`, which need not be called as well.
            places: See `register`.
            number: The number of the job in the session: later jobs have greater ones.
        """
        self._exchange.soon.now(self._register, job, dict(places), number)

    def move(self, job: JobInfo | JobDescription, places: Mapping[int, str], done: Callable[[], None]) -> None:
        """Record new servers of procs, which are started again there because their former server was lost.

        Args:
            job: See `register`: the new description of a job that is known here.
            places: See `register`.
            done: Called on the exchange's thread once this server has lost the former servers, and knows the new ones.
        """
        self._exchange.soon.now(self._move, job, dict(places), done)

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

    def _register(self, job: JobInfo | JobDescription, places: dict[int, str], number: int = 0) -> None:
        self._local.jobs[job.nspace] = job
        self._ended.pop(job.nspace, None)
        if self._launcher:
            self._session_jobs.place(job.nspace, places, number)
        else:
            self._session_jobs.register(job.nspace, places)

    def _move(self, job: JobInfo | JobDescription, places: dict[int, str], done: Callable[[], None]) -> None:
        if any(self._exchange.has(server) for server in self._session_jobs.find_lost(job.nspace, places)):
            # Its loss would count for the new processes of these procs too.
            self._moves.append((job, places, done))
            return
        if job.nspace in self._local.jobs:
            self._local.jobs[job.nspace] = job
            self._places.move(job.nspace, places)
        done()

    def _deregister(self, nspace: str) -> None:
        if self._local.jobs.pop(nspace, None) is not None:
            self._incarnations.forget(nspace)
            if self._launcher:
                # The launcher makes every server forget it.
                self.remove_server(self._launcher, nspace)
                return
            if late := self._places.unheard(nspace):
                self._ended[nspace] = late
                if len(self._ended) > MAX_OVER:
                    del self._ended[next(iter(self._ended))]
            self._session_jobs.forget(nspace)
            self.remove_server(self.name, nspace)

    def add_server(self, name: str, nspace: str) -> None:
        """A server knows a job only now: report to it the procs that have ended, if the job has ended here."""
        late = self._ended.get(nspace)
        if late is not None and name in late:
            late.remove(name)
            if not late:
                del self._ended[nspace]
            own = [proc for proc in self._places.procs_of(nspace) if self._places.server_of(proc) == self.name]
            for proc in own:
                self._session_jobs.submit_news(proc, DEPARTED)
            self._depart(tuple(own))

    def remove_server(self, teller: str, nspace: str) -> None:
        """Record that a server has forgotten a job, which ends with the last server that knew it."""
        procs = self._places.remove(teller, nspace)
        if procs is not None:
            self._local.record.leave(procs)
            self._local.return_job(nspace)
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
        self._incarnations.disconnect(proc)
        # The others are informed before the end of anything that it ends.
        self._session_jobs.submit_news(proc, DEPARTED)
        self._depart((proc,))
        self._modexes.end(proc)

    def _depart(self, procs: tuple[Proc, ...]) -> None:
        """Record that procs of any server have ended."""
        found = self._places.depart(procs)
        # Before collectives end by it: members get reports of members that their group's destruct misses.
        self._local.remove_departed(found)
        self._review()
        if self._gone is not None:
            for proc in found:
                self._gone(proc)
        if self._over is not None:
            for nspace in dict.fromkeys([proc.nspace for proc in found]):
                ended = self._places.list_if_ended(nspace)
                if ended:
                    self._over(ended)

    def _query(self, upcall: Upcall, op: QueryInfo) -> None:
        self._queries.answer(upcall, op, lambda end: self._collectives.attempt(lambda *_: end(), upcall))

    def _review(self) -> None:
        """Check again which procs are awaited."""
        self._exchange.collectives.coordinator.review()

    def _changed(self, name: str, here: bool) -> None:
        if not here:
            procs = tuple(self._places.procs_on(name))
            lost = [proc for proc in procs if not self._places.is_missing(proc, 1)]
            self._depart(procs)
            for nspace in self._places.jobs_of(name):
                self.remove_server(name, nspace)
            if self._session is None or self._session(name):
                self._local.report_lost(lost)
            moves, self._moves = self._moves, []
            for move in moves:
                self._move(*move)

    def apply_news(self, news: News) -> None:
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

    # Events

    def _notify(self, upcall: Upcall, op: NotifyEvent) -> None:
        source = upcall.requestor or self._local.proc
        mine = self._places.server_of(source) in (None, self.name)
        if mine:
            self._collectives.observe_event(op.code, source, op.infos)
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

    def _told_event(self, sender: str, data: bytes) -> None:
        code, reach, source, infos = EVENT.read(data)
        if sender != self._launcher:
            self._authority.check_procs(sender, (source,))
        self._collectives.observe_event(code, source, infos)
        self._local.notify(Notification(code, source, reach, infos))

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
        op, requestor, uid, gid = codec.unpack_request(data)
        self._authority.check_procs(sender, (requestor,))
        self._directory(Forwarded(sender, op, requestor, uid, gid, answer))


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
