"""A world: ranks that stay, and carry out one function after the other, in an MPI communicator or a group of PMIx.

Ranks are separate processes beside the engine's workers, since Open MPI can be initialized only once in a process (5.0
crashes in a second `MPI_Session_init`), and since a thread that waits in MPI for a lost process cannot be ended.

Two kinds of threads take part. One runs the job (`pypmix.host.local.LocalHost`) until all its processes have ended. It
is the first to detect that a rank or a node is lost, which ends the job. Each `run` starts a thread for each node that
requests the results of the node's ranks, and waits for these answers or the end of the job, whichever is first. So a
`run` never waits for a lost rank or node. An exception in a function ends its rank with code 1, and so the job, since
the other ranks may wait for that rank in MPI. The reason of a world's end is the reason for which this process ended
it, or else the job's.
"""

from __future__ import annotations

import pickle
import signal
import threading
import time
from queue import Empty, SimpleQueue

from pypmix.extras.frameworks.calling import Result, within
from pypmix.host.session import LEAVING
from pypmix.standard.errors import OperationTimeout, PartialSuccess, PMIxError
from pypmix.standard.naming import name_ranks
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Any, Self

    from pypmix.host.local import LocalHost
    from pypmix.host.outcome import Outcome

BEGINNING = 300.0
"""Seconds that ranks have to make their communicator: MPI itself has no timeout."""

CLOSING = 20.0
"""Seconds that ranks have to finalize MPI, before they are ended."""

ANSWERING = 15.0
"""Seconds to wait for results after the job has ended."""

ENDING = 60.0
"""Seconds that a job has to end, and to report the reason, after it lost a rank or a node."""


class World:
    """Ranks that stay, and carry out one function after the other. A context manager, at whose end they end.

    Args:
        shares: The number of ranks on each node, by node name.
        job: Runs the ranks, and returns when all have ended; calls its argument with the launcher.
        ask: Calls a method of the agent of a node (`pypmix.extras.frameworks.agent.Agent`); raises if the node is lost.
        mpi: Pass an MPI communicator to functions if true, otherwise a group of PMIx.
        release: Called at the end.

    Attributes:
        size: The number of ranks.
    """

    def __init__(
        self,
        shares: Mapping[str, int],
        job: Callable[[Callable[[LocalHost], None]], Outcome],
        ask: Callable[..., Any],
        *,
        mpi: bool = True,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self.size = sum(shares.values())
        self._shares = dict(shares)
        self._job = job
        self._ask = ask
        self._mpi = mpi
        self._release = release
        self._host: LocalHost | None = None
        self._fault: Exception | None = None
        self._reason = ""
        self._turn = threading.Lock()
        self._ended_event = threading.Event()
        self._answers: SimpleQueue[dict[int, bytes] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run_job, name="pypmix-world", daemon=True)
        self._thread.start()
        try:
            # A rank that fails to make its communicator raises here.
            self.run(_nothing, timeout=BEGINNING)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"ended: {self._reason}" if self._ended_event.is_set() else f"{self.size} ranks"
        return f"<world of {', '.join(self._shares)}: {state}>"

    def run(
        self, function: Callable[..., Any], *arguments: Any, timeout: float | None = None, **keywords: Any
    ) -> list[Any]:
        """Call a function in all ranks, and return their results, in rank order.

        It is called with the communicator (`mpi4py.MPI.Intracomm`), or the group (`pypmix.Group`), and the arguments.
        The function, its arguments and its results are sent by cloudpickle. The state of modules stays with the ranks.

        Args:
            function: The function.
            arguments: Its further positional arguments, the same in all ranks.
            timeout: Seconds after which the world is ended.
            keywords: Its keyword arguments.

        Raises:
            Exception: The exception of the first rank that failed, with its rank and traceback in a note; the world has
                ended.
            OperationTimeout: Not all ranks returned in time; the world has ended.
            PMIxError: A worker or a rank was lost, and the world has ended; the text has the reason.
        """
        import cloudpickle

        # Two steps: ranks make their communicator before they load a function that may import MPI.
        call = cloudpickle.dumps((function, arguments, keywords))
        data = cloudpickle.dumps((within, (self._mpi, self.size, call), {}))
        with self._turn:
            try:
                return self._gather(data, timeout)
            except (KeyboardInterrupt, SystemExit):
                # The ranks still run the function.
                self._end("its caller was interrupted")
                raise

    def _gather(self, data: bytes, timeout: float | None) -> list[Any]:
        """Call a function in all ranks, and return their results."""
        answers = self._answers = SimpleQueue()
        if self._ended_event.is_set():
            raise self._fault or PMIxError(f"the world has ended: {self._reason}")
        for name, share in self._shares.items():
            threading.Thread(target=self._ask_node, args=(answers, name, data, share), daemon=True).start()
        deadline = None if timeout is None else time.monotonic() + timeout
        left = len(self._shares)
        found: dict[int, Result] = {}
        while left:
            try:
                answer = answers.get(timeout=None if deadline is None else max(deadline - time.monotonic(), 0.0))
            except Empty:
                if self._ended_event.is_set():
                    break
                raise self._time_out(found, timeout) from None
            if answer is None:
                # The job has ended; results of nodes that still exist may be in transit.
                deadline = time.monotonic() + ANSWERING
            else:
                left -= 1
                found.update(decode_results(answer))
        if len(found) < self.size or not all(result.fine for result in found.values()):
            # The lost or failed rank ends the job.
            if not self._ended_event.wait(ENDING):
                self._end("a rank was lost")
            if self._fault is not None:
                raise self._fault
        reason = self._reason
        failed = _failed(found)
        if failed and not _lost_results(found, self.size, reason):
            # The job's reason may name another rank, which failed as a consequence of the first.
            self._reason = f"rank {failed[0]} of {self.size} failed: {found[failed[0]].told.splitlines()[-1]}"
        return returned(found, self.size, reason)

    def _time_out(self, results: Mapping[int, Result], timeout: float | None) -> OperationTimeout:
        missing = [rank for rank in range(self.size) if rank not in results]
        procs = [Proc(self._host.job.nspace, rank) for rank in missing] if self._host is not None else []
        text = f"{name_ranks(missing)} of {self.size} did not return within {timeout:g} s"
        self._end(text)
        self._ended_event.wait(ENDING)
        return OperationTimeout(f"{text}; the world was ended", operation="run", procs=procs, missing=procs)

    def _ask_node(self, answers: SimpleQueue[dict[int, bytes] | None], name: str, data: bytes, share: int) -> None:
        """Put the results of a node's ranks into a queue; run on a separate thread."""
        found: dict[int, bytes] = {}
        try:
            found = self._ask(name, "call_in_ranks", data, share)
        except Exception as error:
            # The exceptions of engines are of many types. Mostly the node is lost, which ends the job.
            if not self._ended_event.wait(LEAVING):
                lines = str(error).strip().splitlines()
                self._end(f"node {name}: {type(error).__name__}: {lines[0] if lines else ''}"[:300])
        answers.put(found)

    def _run_job(self) -> None:
        """Run the job; run on a separate thread."""
        try:
            outcome = self._job(self._set_host)
            self._reason = self._reason or outcome.reason
        except Exception as error:
            self._fault, self._reason = error, str(error)
        finally:
            self._ended_event.set()
            self._answers.put(None)

    def _set_host(self, host: LocalHost) -> None:
        self._host = host
        if self._reason:
            # The world was closed before the job began.
            self._end(self._reason)

    def _end(self, reason: str) -> None:
        """End the job by force."""
        self._reason = self._reason or reason
        if self._host is not None:
            try:
                self._host.interrupt(signal.SIGTERM)
            except RuntimeError:
                # The job has ended.
                return

    def close(self) -> None:
        """End the ranks, and release the nodes."""
        if self._turn.acquire(blocking=False):
            try:
                if not self._ended_event.is_set():
                    self._reason = "it was closed"
                    for name in self._shares:
                        threading.Thread(target=self._dismiss, args=(name,), daemon=True).start()
                    self._ended_event.wait(CLOSING)
            finally:
                self._turn.release()
        if not self._ended_event.is_set():
            self._end("it was closed")
        self._thread.join(CLOSING)
        self._release()

    def _dismiss(self, name: str) -> None:
        try:
            self._ask(name, "dismiss")
        except Exception:
            # The node is lost, and its ranks with it.
            return


def _nothing(_comm: object) -> None:
    """Return at once: a call of this function shows that the rank has its communicator."""


def _failed(results: Mapping[int, Result]) -> list[int]:
    """Return the failed ranks, in the order of their failures."""
    return [rank for _, rank in sorted([(result.when, rank) for rank, result in results.items() if not result.fine])]


def _lost_results(results: Mapping[int, Result], size: int, reason: str) -> bool:
    """Return True if results are missing and the job ended for a reason other than a rank with a result."""
    return len(results) < size and bool(reason) and not any(reason.startswith(f"rank {each} ") for each in results)


def decode_results(data: Mapping[int, bytes]) -> dict[int, Result]:
    """Decode the results that ranks sent, by their numbers."""
    return {rank: Result(*pickle.loads(each)) for rank, each in data.items()}


def returned(results: Mapping[int, Result], size: int, reason: str) -> list[Any]:
    """Return the functions' return values, in rank order.

    Args:
        results: The results of the ranks, by their numbers.
        size: The number of ranks.
        reason: The reason if the job was ended early; empty if it was not.

    Raises:
        Exception: The exception of the first rank that failed, or the error from unpickling a value.
        PMIxError: The job was ended otherwise, or the exception cannot be unpickled here.
    """
    missing = [rank for rank in range(size) if rank not in results]
    failed = _failed(results)
    if failed:
        rank = failed[0]
        told = results[rank].told
        error = _raised(results[rank].data)
        text = f"rank {rank} of {size} failed"
        if error is None:
            raise PMIxError(f"{text}: {told}")
        error.add_note(f"{text}:\n{told}")
        if isinstance(error, PartialSuccess) and _lost_results(results, size, reason):
            # The exception names the procs missing then: the lost one, or others that were ended because of it.
            raise PMIxError(reason) from error
        raise error
    if missing:
        raise PMIxError(reason or f"no result has come of {name_ranks(missing)}")
    return [_loaded(rank, results[rank].data) for rank in range(size)]


def _raised(data: bytes) -> Exception | None:
    """Unpickle a rank's exception; None if that fails here, such as if the exception's module is missing."""
    import cloudpickle

    try:
        error = cloudpickle.loads(data)
    except Exception:
        return None
    return error if isinstance(error, Exception) else None


def _loaded(rank: int, data: bytes) -> Any:
    import cloudpickle

    try:
        return cloudpickle.loads(data)
    except Exception as error:
        error.add_note(f"rank {rank} has returned what cannot be loaded here")
        raise
