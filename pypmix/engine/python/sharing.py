"""What a server tells other servers of its procs, once these have committed something."""

from __future__ import annotations

from pypmix.engine.base import Pending
from pypmix.standard.errors import ERR_OUT_OF_RESOURCE, NotFound, PMIxError
from pypmix.wire.modex import encode_modex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.base import Done
    from pypmix.engine.python.collectives import Clock, Timer
    from pypmix.engine.python.serverdata import Namespace, Process, Store
    from pypmix.standard.types import Proc

MAX_REQUESTS = 65536
"""How many requests of other servers may wait at a time."""

UNKNOWN_SECONDS = 30.0
"""How long a request waits for an nspace that is still to be registered here."""


class Request:
    """What another server asks of a proc that has not committed anything yet."""

    __slots__ = ("done", "since", "timer")

    def __init__(self, done: Done[bytes], since: float) -> None:
        self.done = done
        self.since = since
        self.timer: Timer | None = None


class Sharing:
    """The requests of other servers.

    Args:
        clock: Where time comes from.
        store: What has been committed.
    """

    def __init__(self, clock: Clock, store: Store) -> None:
        self._clock = clock
        self._store = store
        self._requests: dict[Proc, list[Request]] = {}
        self._number = 0

    def request(self, proc: Proc, done: Done[bytes]) -> None:
        """See `ServerSession.dmodex_request`."""
        namespace = self._store.get(proc.nspace)
        process = None if namespace is None else namespace.processes.get(proc.rank)
        if namespace is not None:
            if process is None or not process.local:
                done(None, NotFound(f"{proc} is not of this server", procs=(proc,)))
                return
            if process.committed:
                done(encode_modex([(proc, process.shared())]), None)
                return
            if process.left:
                done(None, NotFound(f"{proc} has gone without a commit", procs=(proc,)))
                return
        if self._number >= MAX_REQUESTS:
            done(None, PMIxError(f"{self._number} requests wait already", status=ERR_OUT_OF_RESOURCE))
            return
        request = Request(done, self._clock.now())
        self._number += 1
        self._requests.setdefault(proc, []).append(request)
        if namespace is None:
            request.timer = self._clock.call_later(UNKNOWN_SECONDS, lambda: self._refuse(proc, f"{proc} is not known"))

    def pending(self) -> list[Pending]:
        """Return the requests that wait."""
        return [
            Pending("dmodex_request", f"data of {proc}", (), (proc,), request.since)
            for proc, requests in self._requests.items()
            for request in requests
        ]

    def registered(self, namespace: Namespace) -> None:
        """An nspace has come of which other servers may have asked already."""
        for proc in [proc for proc in self._requests if proc.nspace == namespace.name]:
            for request in self._taken(proc):
                self.request(proc, request.done)

    def committed(self, process: Process) -> None:
        """A proc has committed something."""
        if process.proc in self._requests:
            data = encode_modex([(process.proc, process.shared())])
            for request in self._taken(process.proc):
                request.done(data, None)

    def gone(self, process: Process) -> None:
        """A proc commits nothing any more."""
        self._refuse(process.proc, f"{process.proc} has gone without a commit")

    def over(self, namespace: Namespace) -> None:
        """A job is over."""
        for proc in [proc for proc in self._requests if proc.nspace == namespace.name]:
            self._refuse(proc, f"the job {namespace.name} is over")

    def close(self) -> None:
        """Nobody is answered any more; who has asked is told."""
        for proc in list(self._requests):
            self._refuse(proc, "the server is closed")

    def _refuse(self, proc: Proc, why: str) -> None:
        for request in self._taken(proc):
            request.done(None, NotFound(why, procs=(proc,)))

    def _taken(self, proc: Proc) -> list[Request]:
        """Return the requests for a proc, which are answered now."""
        requests = self._requests.pop(proc, [])
        self._number -= len(requests)
        for request in requests:
            if request.timer is not None:
                request.timer.cancel()
        return requests
