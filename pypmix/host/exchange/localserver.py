"""A server as the crossing uses it: what it gets to know of the jobs, procs and groups of other servers."""

from __future__ import annotations

from pypmix.engine.groups.talk import ENDED, GONE, SAYS, WITHOUT, say, text
from pypmix.engine.times import GET_SECONDS, GONE_SECONDS
from pypmix.host.exchange import deciding
from pypmix.host.exchange.codec import MODEX
from pypmix.host.exchange.errors import as_error
from pypmix.host.exchange.grouprecord import GroupRecord
from pypmix.host.exchange.kinds import KINDS
from pypmix.standard import attrs, keys, statuses
from pypmix.standard.errors import NotFound, OperationTimeout, PMIxError
from pypmix.standard.ops import Notification
from pypmix.standard.ops.events import RANGE_LOCAL
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol

    from pypmix.engine.base import Done, Upcall
    from pypmix.host.exchange.codec import Groups
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import OnAnswer, Timer
    from pypmix.host.exchange.places import Places
    from pypmix.standard.jobinfo import JobDescription, JobInfo
    from pypmix.standard.ops import DirectModex
    from pypmix.standard.types import Info, Proc

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

    Hop = Callable[[Callable[[], None]], None]
    """Passes a call of the server to the thread of the exchange."""

DIRECT_MODEX = "pypmix.modex"
"""The topic of requests for committed data."""

LOST = (statuses.ERR_PROC_ABORTED, statuses.PROC_TERMINATED, statuses.EVENT_PROC_TERMINATED)
"""The codes raised for a proc that was lost with its server; the end of a proc has an older and a newer code."""


class LocalServer:
    """The server of this node; used in the turns of its exchange.

    Args:
        server: The server.
        name: Its name in the exchange.
        places: The server of each proc.
        hop: Passes its answers to the thread of the exchange.

    Attributes:
        jobs: The jobs that it has registered.
        record: The groups of members on it, as observed.
    """

    def __init__(self, server: ServerLike, name: str, places: Places, hop: Hop) -> None:
        self.jobs: dict[str, JobInfo | JobDescription] = {}
        self.record = GroupRecord()
        self.name = name
        self._server = server
        self._places = places
        self._hop = hop
        self._borrowed: set[str] = set()

    @property
    def proc(self) -> Proc:
        """The identifier of the server."""
        return self._server.proc

    def notify(self, event: Notification) -> None:
        """Deliver an event to the clients that it is for."""
        self._server.notify(event)

    def lacks_job(self, nspace: str) -> bool:
        """Return True if the server does not know a job."""
        return nspace not in self.jobs and nspace not in self._borrowed

    def borrow_job(self, job: JobInfo) -> None:
        """Register a job that other servers have, for clients that have connected with its procs."""
        if not self.lacks_job(job.nspace) or not self._places.is_described_by(job.nspace, ()):
            # It is known here, or it has ended already.
            return
        try:
            self._server.register_nspace(job, ())
        except PMIxError as error:
            if error.code != statuses.ERR_EXISTS:
                raise
            return
        self._borrowed.add(job.nspace)

    def return_job(self, nspace: str) -> None:
        """Remove the registration of a job for connected clients, since no server has the job any longer."""
        if nspace in self._borrowed:
            self._borrowed.discard(nspace)
            self._server.deregister_nspace(nspace)

    def list_groups(self) -> Groups:
        """Return the groups that have members here."""
        groups = self._ask("groups")
        return self.record.listed() if groups is None else groups

    def _ask(self, what: str) -> Groups | None:
        """Return the groups, or the connections, that the server knows; None if it does not report them."""
        ask = getattr(self._server, what, None)
        try:
            return None if ask is None else ask()
        except PMIxError:
            return None

    def remove_departed(self, procs: Sequence[Proc], group: str | None = None) -> None:
        """Remove procs of other servers from groups and connections: they have ended, or their server is lost.

        Args:
            procs: The procs.
            group: The only group that they are known to have left; all by default.
        """
        if not procs:
            return
        self.record.leave(procs, group)
        others = {proc for proc in procs if self._places.server_of(proc) != self.name}
        if not others:
            return
        groups = (*(self._ask("groups") or ()), *(self._ask("connections") or ()))
        remaining = {proc for name, members in groups if group in (None, name) for proc in others.intersection(members)}
        self.report_departed([proc for proc in procs if proc in remaining], group)

    def report_absent(self, group: str, departed: Sequence[Proc], members: Sequence[Proc]) -> None:
        """Inform the server of members of a group that had ended before it was formed.

        Args:
            group: Its name.
            departed: These members.
            members: The members on this server: a member that got the report of the end before it called the
                construct cannot distinguish it from the end of an earlier process of that name.
        """
        self.remove_departed(departed)
        to = sorted({*members}.difference(departed))
        if to:
            infos = (*say(WITHOUT, group, to, (deciding.named(ENDED, departed),)).infos, attrs.EVENT_DO_NOT_CACHE(True))
            self._server.notify(Notification(statuses.TALK, self._server.proc, RANGE_CUSTOM, infos))

    def report_departed(self, procs: Iterable[Proc], group: str | None = None) -> None:
        """Report to the server that procs of others have ended, or have left one group."""
        named = () if group is None else (attrs.GROUP_ID(group),)
        for proc in procs:
            if self._places.server_of(proc) != self.name:
                infos = (text(SAYS, GONE), *named, attrs.EVENT_AFFECTED_PROC(proc), attrs.EVENT_DO_NOT_CACHE(True))
                self._server.notify(Notification(statuses.TALK, self._server.proc, RANGE_LOCAL, infos))

    def report_lost(self, procs: Iterable[Proc]) -> None:
        """Raise the events of a failure for procs that were lost with their server, whose host can no longer do so."""
        passing = attrs.EVENT_DO_NOT_CACHE(True)
        for proc in procs:
            affected = (attrs.EVENT_AFFECTED_PROC(proc), attrs.EVENT_NON_DEFAULT(True))
            # A process that is started in its place would take it for a later failure.
            is_kept = not getattr(self.jobs.get(proc.nspace), "restarts", 0)
            for code in LOST:
                kept = is_kept and code == statuses.ERR_PROC_ABORTED
                infos = affected if kept else (*affected, passing)
                try:
                    self._server.notify(Notification(code, self._server.proc, RANGE_SESSION, infos))
                except PMIxError:
                    # The server has closed: it has no clients to inform.
                    return

    def expire(self, kind: int, name: str, procs: tuple[Proc, ...], done: Callable[[], None]) -> None:
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


class _ModexRequest:
    """A direct modex that another server waits for."""

    __slots__ = ("answer", "timer")

    def __init__(self, answer: OnAnswer) -> None:
        self.answer = answer
        self.timer: Timer | None = None


class DirectModexes:
    """The requests for committed data to and from other servers; used in the turns of the exchange.

    Args:
        server: The server.
        exchange: Its exchange.
        places: The server of each proc.
        hop: Passes its answers to the thread of the exchange.
    """

    def __init__(self, server: ServerLike, exchange: Exchange, places: Places, hop: Hop) -> None:
        self._server = server
        self._exchange = exchange
        self._places = places
        self._hop = hop
        self._requests: dict[Proc, dict[_ModexRequest, None]] = {}
        exchange.handle(DIRECT_MODEX, self._take_request)

    def __len__(self) -> int:
        return len(self._requests)

    def request(self, upcall: Upcall, op: DirectModex) -> None:
        """Answer an upcall for the data of a proc of another server."""
        server = self._places.server_of(op.proc)
        if server is None:
            raise NotFound("its server is not known here", procs=(op.proc,))

        def take_answer(data: bytes | None, error: PMIxError | None) -> None:
            if error is None:
                upcall.reply(data)
                return
            error.operation, error.procs = upcall.op.name, (op.proc,)
            if isinstance(error, OperationTimeout):
                error.missing = frozenset(error.procs)
            upcall.fail(error)

        key = next((info.value.data for info in op.directives if info.key == keys.REQUIRED_KEY), "")
        seconds = seconds_in(op.directives)
        # Without a limit it ends with the limit of the other server, however long the way there takes.
        data = MODEX.write((op.proc, key if isinstance(key, str) else "", seconds or GET_SECONDS))
        self._exchange.request(server, DIRECT_MODEX, data, take_answer, timeout=seconds)

    def end(self, proc: Proc) -> None:
        """Give up the requests for the data of a proc that has ended, in a moment."""
        for request in self._requests.get(proc, ()):
            self._exchange.later(GONE_SECONDS, lambda request=request: self._give_up(proc, request))  # type: ignore[misc]

    def _take_request(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        proc, key, seconds = MODEX.read(data)
        request = _ModexRequest(answer)
        self._requests.setdefault(proc, {})[request] = None
        try:
            self._server.dmodex_request(
                proc,
                lambda found, error, /: self._hop(
                    lambda: self._exchange.soon(self._answer, proc, request, found, error)
                ),
                key=key,
                timeout=seconds,
            )
        except Exception as error:
            self._answer(proc, request, None, error)
            return
        if request in self._requests.get(proc, ()):
            limit = min(seconds, GONE_SECONDS) if self._places.has_departed(proc) else seconds
            request.timer = self._exchange.later(limit, lambda: self._give_up(proc, request))

    def _answer(self, proc: Proc, request: _ModexRequest, data: bytes | None, error: BaseException | None) -> None:
        """A server has answered a direct modex, or its answer is no longer waited for."""
        waiting = self._requests.get(proc, {})
        if request not in waiting:
            return
        del waiting[request]
        if not waiting:
            del self._requests[proc]
        if request.timer is not None:
            request.timer.cancel()
        request.answer(data, None if error is None else as_error(error))

    def _give_up(self, proc: Proc, request: _ModexRequest) -> None:
        error: PMIxError
        if self._places.has_departed(proc):
            error = NotFound("it has exited, and has committed nothing", procs=(proc,))
        else:
            error = OperationTimeout("it has not committed it in time", procs=(proc,))
        self._answer(proc, request, None, error)


def seconds_in(directives: Iterable[Info]) -> float:
    """Return the shortest time limit among directives, 0 if they give none."""
    found = [info.value.data for info in directives if info.key == keys.TIMEOUT]
    return float(min([limit for limit in found if isinstance(limit, int) and limit > 0], default=0))
