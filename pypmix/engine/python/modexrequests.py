"""Direct modex: other servers' requests for the values of this server's procs, answered after the commit."""

from __future__ import annotations

import os

from pypmix.engine.common import Pending
from pypmix.engine.times import UNKNOWN_SECONDS
from pypmix.standard.errors import NotFound, OperationTimeout, OutOfResources, PMIxError
from pypmix.standard.ops import RESERVED_PREFIX
from pypmix.wire.modex import ALONE, IDENTITIES, encode_modex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.engine.base import Done
    from pypmix.engine.collective.machine import Clock, Timer
    from pypmix.engine.python.processes import Namespace, Process, Stored
    from pypmix.engine.python.serverdata import Store
    from pypmix.standard.types import Proc
    from pypmix.wire.modex import Contribution

    Marks = dict[Process, tuple[int, int]]
    """Of procs of this server, `stamp` and `written` when their data was sent."""

MAX_REQUESTS = 65536
"""Bound of the requests of other servers that wait."""

MAX_RESULTS = 4
"""Bound of the contributions and results of the same participants that are remembered: few are under way at a time."""

_NOTHING = (0, 0)


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


class Deliveries:
    """The data that the other servers of a fence's procs have stored already, so that it is not sent again.

    Each contribution to a fence has a random number. The sum of the numbers in a result identifies the result on all
    servers, and a contribution carries the identity of the last result that its server has stored. Once the
    contributions of all servers to a fence carry the same identity, all have stored that result with the data that this
    server contributed to it, and the next contribution needs only newer values.
    """

    __slots__ = ("_known", "_results", "_stored", "contributed")

    def __init__(self) -> None:
        self.contributed: dict[int, Marks] = {}
        """The data that other servers have with each of the last contributions, by their numbers."""
        self._results: dict[int, Marks] = {}
        """The data that they have with each of the last results, by their identities."""
        self._stored = 0
        self._known: Marks = {}

    def contribute(self, processes: Iterable[Process], most: int, procs: int) -> bytes:
        """Return the data of procs that the other servers need; empty if there is none and has been none.

        Args:
            processes: The callers on this server.
            most: The bound of the data in bytes; see `data_of`.
            procs: How many of the participants are of this server.
        """
        chosen = [process for process in processes if process.committed]
        if not chosen and not self._stored:
            return b""
        number = int.from_bytes(os.urandom(8), "big")
        marks: Marks = {}
        data = data_of(chosen, most, self._known, marks, (number, self._stored, procs))
        _remember(self.contributed, number, marks)
        return data

    def store(self, contributions: Iterable[Contribution], procs: int) -> None:
        """A result has been stored completely.

        Args:
            contributions: The contributions that it has.
            procs: The number of all participants.
        """
        numbers, stored, counts = [], set(), 0
        for number, identity, count in contributions:
            numbers.append(number)
            stored.add(identity)
            counts += count
        known = self._results.get(stored.pop(), {}) if len(stored) == 1 and counts == procs else {}
        self._stored = sum(numbers) % IDENTITIES
        own = [self.contributed[number] for number in numbers if number in self.contributed]
        _remember(self._results, self._stored, own[0] if len(own) == 1 else {})
        self._known = known


def _remember(found: dict[int, Marks], key: int, marks: Marks) -> None:
    found[key] = marks
    while len(found) > MAX_RESULTS:
        del found[next(iter(found))]


def data_of(
    processes: Iterable[Process],
    most: int = 0,
    known: Marks | None = None,
    marks: Marks | None = None,
    contribution: Contribution = ALONE,
) -> bytes:
    """Return the committed data of procs for other servers.

    Args:
        processes: The procs.
        most: The bound of the data in bytes; 0 for none. A proc whose values do not fit is sent without values, which
            marks the known values as old; other servers then ask for it when a reader needs it.
        known: What the receivers have already: only newer values are sent.
        marks: Receives what the receivers have with this data.
        contribution: This server's part in a collective.
    """
    chosen = [process for process in processes if process.committed]
    sent: dict[Process, list[Stored]] = {}
    sizes: dict[Process, int] = {}
    bases: dict[Proc, int] = {}
    for process in chosen:
        base, written = known.get(process, _NOTHING) if known else _NOTHING
        newer = process.shared_since(written) if base else None
        if newer is None:
            sent[process], sizes[process] = process.shared(), process.size
        else:
            sent[process], sizes[process] = newer, sum([len(stored[1]) for stored in newer])
            bases[process.proc] = base
    if most and sum(sizes.values()) > most:
        for process in sorted(chosen, key=lambda process: (sizes[process], process.proc)):
            most -= sizes[process]
            if most < 0:
                sent[process] = []
                bases.pop(process.proc, None)
                # The receivers forget the values that they have.
                process.note_removal()
    if marks is not None:
        # Without values, a receiver cannot tell whether there are none or too many.
        marks.update(
            (process, (process.stamp, process.written))
            for process, values in sent.items()
            if values or process.proc in bases
        )
    shared = [(process.proc, values) for process, values in sent.items()]
    return encode_modex(shared, {process.proc: process.stamp for process in chosen}, bases, contribution)
