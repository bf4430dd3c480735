"""Direct modex: other servers' requests for the values of this server's procs, answered after the commit."""

from __future__ import annotations

from pypmix.engine.common import Pending
from pypmix.engine.times import UNKNOWN_SECONDS
from pypmix.standard.errors import NotFound, OperationTimeout, OutOfResources, PMIxError
from pypmix.standard.ops import RESERVED_PREFIX
from pypmix.wire.modex import encode_modex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.engine.base import Done
    from pypmix.engine.collective.machine import Clock, Timer
    from pypmix.engine.python.processes import Namespace, Process
    from pypmix.engine.python.serverdata import Store
    from pypmix.standard.types import Proc

MAX_REQUESTS = 65536
"""Bound of the requests of other servers that wait."""


class DataRequest:
    """A request of another server for a value that a proc has not committed yet."""

    __slots__ = ("deadline", "done", "key", "since", "timer")

    def __init__(self, done: Done[bytes], key: str, since: float, deadline: float | None) -> None:
        self.done = done
        self.key = key
        self.since = since
        self.deadline = deadline
        self.timer: Timer | None = None


class ModexRequests:
    """The requests of other servers.

    Args:
        clock: The clock.
        store: The committed data.
    """

    def __init__(self, clock: Clock, store: Store) -> None:
        self._clock = clock
        self._store = store
        self._requests: dict[str, dict[Proc, list[DataRequest]]] = {}
        """The requests that wait, by the nspace and the proc."""
        self._number = 0

    def request(self, proc: Proc, done: Done[bytes], key: str = "", timeout: float = 0.0) -> None:
        """See `ServerSession.dmodex_request`."""
        now = self._clock.now()
        self._take(proc, DataRequest(done, key, now, now + timeout if timeout else None))

    def _take(self, proc: Proc, request: DataRequest) -> None:
        """Answer a request, or let it wait."""
        namespace = self._store.get(proc.nspace)
        process = None if namespace is None else namespace.processes.get(proc.rank)
        if namespace is not None:
            if process is None or not process.local:
                request.done(None, NotFound(f"{proc} is not of this server", procs=(proc,)))
                return
            if process.committed and (process.left or _has(process, request.key)):
                request.done(data_of((process,)), None)
                return
            if process.left:
                request.done(None, NotFound(f"{proc} has gone without a commit", procs=(proc,)))
                return
        if self._number >= MAX_REQUESTS:
            request.done(None, OutOfResources(f"{self._number} requests wait already"))
            return
        self._number += 1
        self._requests.setdefault(proc.nspace, {}).setdefault(proc, []).append(request)
        now = self._clock.now()
        if namespace is None and (request.deadline is None or request.deadline > now + UNKNOWN_SECONDS):
            error: PMIxError = NotFound(f"{proc} is not known", procs=(proc,))
            request.timer = self._clock.call_later(UNKNOWN_SECONDS, lambda: self._expire(proc, request, error))
        elif request.deadline is not None:
            what = request.key or "anything"
            late = OperationTimeout(f"{proc} has not committed {what} in time", procs=(proc,), missing=(proc,))
            seconds = max(0.0, request.deadline - now)
            request.timer = self._clock.call_later(seconds, lambda: self._expire(proc, request, late))

    def pending(self) -> list[Pending]:
        """Return the requests that wait."""
        return [
            Pending("dmodex_request", request.key or "data", (), (proc,), request.since)
            for procs in self._requests.values()
            for proc, requests in procs.items()
            for request in requests
        ]

    def registered(self, namespace: Namespace) -> None:
        """Process the requests of other servers that arrived before their nspace was registered."""
        for proc in list(self._requests.get(namespace.name, ())):
            for request in self._take_requests(proc):
                self._take(proc, request)

    def committed(self, process: Process) -> None:
        """Answer the requests that a commit of a proc satisfies."""
        requests = self._requests.get(process.proc.nspace, {}).get(process.proc, ())
        ready = [request for request in requests if _has(process, request.key)]
        if ready:
            data = data_of((process,))
            for request in self._take_requests(process.proc, ready):
                request.done(data, None)

    def answer_departed(self, process: Process) -> None:
        """Answer all requests for a proc that has departed: it will commit no further data."""
        if not process.committed:
            self._refuse(process.proc, f"{process.proc} has gone without a commit")
        elif requests := self._take_requests(process.proc):
            data = data_of((process,))
            for request in requests:
                request.done(data, None)

    def refuse_job(self, namespace: Namespace) -> None:
        """Refuse the requests for procs of a job that has ended."""
        for proc in list(self._requests.get(namespace.name, ())):
            self._refuse(proc, f"the job {namespace.name} is over")

    def close(self) -> None:
        """Refuse all waiting requests."""
        for proc in [proc for procs in self._requests.values() for proc in procs]:
            self._refuse(proc, "the server is closed")

    def _expire(self, proc: Proc, request: DataRequest, error: PMIxError) -> None:
        self._take_requests(proc, [request])
        request.done(None, error)

    def _refuse(self, proc: Proc, why: str) -> None:
        for request in self._take_requests(proc):
            request.done(None, NotFound(why, procs=(proc,)))

    def _take_requests(self, proc: Proc, chosen: list[DataRequest] | None = None) -> list[DataRequest]:
        """Remove the requests for a proc, or some of them, and return them to be answered."""
        procs = self._requests.get(proc.nspace, {})
        requests = procs.pop(proc, [])
        if chosen is None:
            chosen = requests
        elif len(chosen) < len(requests):
            procs[proc] = [request for request in requests if request not in chosen]
        if not procs:
            self._requests.pop(proc.nspace, None)
        self._number -= len(chosen)
        for request in chosen:
            if request.timer is not None:
                request.timer.cancel()
                request.timer = None
        return chosen


def _has(process: Process, key: str) -> bool:
    """Return True if a proc has committed a key or, without a key, any data.

    After a commit, the result is also True for a key that is not committed for other servers, and for reserved keys,
    which are never committed: it is useless to wait for them.
    """
    if not process.committed:
        return False
    if not key or key in process.data or key.startswith(RESERVED_PREFIX):
        return True
    return any(name[0] == key for name in process.data if not isinstance(name, str))


def data_of(processes: Iterable[Process], most: int = 0) -> bytes:
    """Return the committed data of procs for other servers.

    Args:
        processes: The procs.
        most: The bound of the data in bytes; 0 for none. A proc whose values do not fit is sent without values, which
            marks the known values as old; other servers then ask for it when a reader needs it.
    """
    chosen = [process for process in processes if process.committed]
    told = {process: process.shared() for process in chosen}
    if most and sum([process.size for process in chosen]) > most:
        for process in sorted(chosen, key=lambda process: (process.size, process.proc)):
            most -= process.size
            if most < 0:
                told[process] = []
    shared = [(process.proc, values) for process, values in told.items()]
    return encode_modex(shared, {process.proc: process.stamp for process in chosen})
