"""The job of a test: its ranks, nodes and links, their faults, and the ranks that the test expects to be missing."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from pypmix.standard.errors import PMIxError
from pypmix.standard.naming import name_ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from pypmix import Client, aio
    from pypmix.testing.links import Link
    from pypmix.testing.orders import Orders

SECONDS = 30.0
"""Seconds until a signalled rank must have changed its state."""

MEETING = 0.001
"""Seconds between two checks whether all ranks have arrived."""

STOPPED = "Tt"
GONE = "ZX"


def format_ranks(ranks: Iterable[int], size: int) -> str:
    """Return ranks of a job of this size as a person reads them: `rank 2 of 4`, `ranks 0 to 3, 5 of 8`."""
    return f"{name_ranks(ranks)} of {size}"


def no_rank(rank: object, size: int) -> ValueError:
    """Return the error for a rank that does not exist."""
    return ValueError(f"there is no rank {rank!r:.80}: the ranks are 0 to {size - 1}")


class Restored:
    """A fault of a link; a `with` block restores the link at its end."""

    def __init__(self, cluster: Cluster, link: Link) -> None:
        self._cluster = cluster
        self._link = link

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cluster.restore(self._link)


class Cluster:
    """The ranks, nodes and links of a test, for one of the ranks.

    A link is named by a rank, for the connection with its server, or by two nodes, `(0, 1)` or `("node0", "node1")`,
    for the connection of their servers. All methods return when their effect has taken place.
    """

    def kill(self, rank: int) -> None:
        """Kill a rank, and wait until it has exited. Its unfinished test does not count as a failure.

        Raises:
            ValueError: The rank does not exist.
        """
        raise NotImplementedError

    def stop(self, rank: int) -> None:
        """Suspend a rank, and wait until it is suspended. For its server it is merely slow.

        Raises:
            ValueError: The rank does not exist.
        """
        raise NotImplementedError

    def resume(self, rank: int) -> None:
        """Resume a suspended rank.

        Raises:
            ValueError: The rank does not exist.
        """
        raise NotImplementedError

    def lose(self, node: int | str) -> None:
        """Lose a node, by number or name: all of its ranks are killed; on virtual time its server is lost too.

        Raises:
            ValueError: The node does not exist.
        """
        raise NotImplementedError

    def now(self) -> float:
        """Return the seconds of the test's clock, real or virtual."""
        raise NotImplementedError

    def _act(self, verb: str, link: Link, seconds: float = 0.0) -> None:
        raise NotImplementedError

    def delay(self, link: Link, seconds: float) -> Restored:
        """Delay the messages of a link, in both directions.

        Only operations whose time limit is too short fail.

        Args:
            link: A rank, or two nodes.
            seconds: The delay of each message; 0 for none.

        Returns:
            A context manager that restores the link; it need not be used.

        Raises:
            ValueError: The link does not exist.
        """
        self._act("delay", link, seconds)
        return Restored(self, link)

    def drop(self, link: Link) -> Restored:
        """Hold back all messages of a link, as if its cable was pulled: neither end notices, and operations wait.

        The messages arrive when the link is restored. An operation with a time limit fails with `OperationTimeout`: the
        server ends it for ranks with working links, and a client without a connection to its server half a second
        later. No rank is lost, however long the fault lasts, as simulated nodes have no `--keep-alive`. `cut` has the
        effect of an expired `--keep-alive`.

        Args:
            link: A rank, or two nodes.

        Returns:
            A context manager that restores the link; it need not be used.

        Raises:
            ValueError: The link does not exist.
        """
        self._act("drop", link)
        return Restored(self, link)

    def restore(self, link: Link) -> None:
        """Restore a delayed or dropped link; messages that were held back arrive now, in their order.

        Raises:
            ValueError: The link does not exist.
        """
        self._act("restore", link)

    def cut(self, link: Link) -> None:
        """Break a link permanently: messages in transit are lost, and both ends notice.

        All operations of a disconnected rank fail with `LostConnection`, and the other ranks treat it as exited.
        Disconnected servers continue without each other's ranks, as real servers do after `--keep-alive` seconds of
        silence. The link may have been dropped before.

        Raises:
            ValueError: The link does not exist.
        """
        self._act("cut", link)

    @contextlib.contextmanager
    def expect_missing(self, *ranks: int) -> Iterator[None]:
        """Expect that an operation fails because these ranks, and no others, are missing.

        Raises:
            AssertionError: The operation does not fail, or other ranks are missing.
        """
        try:
            yield
        except PMIxError as error:
            if error.missing is None:
                raise
            found = sorted(proc.rank for proc in error.missing)
            if found != sorted(ranks):
                raise AssertionError(f"ranks {found} were missing, not {sorted(ranks)}: {error}") from error
        else:
            raise AssertionError(f"no operation failed, although ranks {sorted(ranks)} were expected to be missing")


class RealCluster(Cluster):
    """The ranks of a test, as processes.

    Args:
        folder: A folder that all ranks share, with the pid of each.
        orders: The connection to the process of the test, which owns the links.
    """

    def __init__(self, folder: Path, orders: Orders | None = None) -> None:
        self._folder = folder
        self._orders = orders

    @classmethod
    def enter(cls, rank: int, folder: Path) -> RealCluster:
        """Write the pid of a rank, and return its cluster, which may be used once all ranks have done so."""
        from pypmix.testing.orders import Orders

        (folder / f".pid.{rank}").write_text(str(os.getpid()))
        return cls(folder, Orders.of(os.environ))

    @classmethod
    def meet(cls, me: Client, folder: Path) -> RealCluster:
        """Wait until all ranks have called this, and return the cluster."""
        # Each rank waits until the fence has completed at all ranks: otherwise it could cut a link that still carries
        # another rank's completion of the fence.
        found = cls.enter(me.rank, folder)
        me.fence(timeout=SECONDS)
        for _ in found.arrivals(me.rank, len(me.job)):
            time.sleep(MEETING)
        return found

    @classmethod
    async def meeting(cls, me: aio.Client, folder: Path) -> RealCluster:
        """Like `meet`, in an event loop."""
        import asyncio

        found = cls.enter(me.rank, folder)
        await me.fence(timeout=SECONDS)
        for _ in found.arrivals(me.rank, len(me.job)):
            await asyncio.sleep(MEETING)
        return found

    def arrivals(self, rank: int, size: int) -> Iterator[None]:
        """Record that the first fence has completed at a rank, and yield until it has at all ranks."""
        (self._folder / f".met.{rank}").touch()
        deadline = time.monotonic() + SECONDS
        missing = [other for other in range(size) if other != rank]
        while missing := [other for other in missing if not (self._folder / f".met.{other}").exists()]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{format_ranks(missing, size)} did not begin the test within {SECONDS:g} s")
            yield

    def pid(self, rank: int) -> int:
        """Return the pid of a rank.

        Raises:
            ValueError: The rank does not exist.
        """
        path = self._folder / f".pid.{rank}"
        if not isinstance(rank, int) or not path.exists():
            raise no_rank(rank, len(list(self._folder.glob(".pid.*"))))
        return int(path.read_text())

    def now(self) -> float:
        """Return the time of `time.monotonic`."""
        return time.monotonic()

    def kill(self, rank: int) -> None:
        """Kill a rank, and wait until it has exited. Its unfinished test does not count as a failure."""
        pid = self.pid(rank)
        (self._folder / f".killed.{rank}").touch()
        self._signal(pid, signal.SIGKILL)
        self._until(rank, GONE, "gone")

    def stop(self, rank: int) -> None:
        """Suspend a rank, and wait until it is suspended. For its server it is merely slow."""
        self._signal(self.pid(rank), signal.SIGSTOP)
        self._until(rank, STOPPED + GONE, "stopped")

    def resume(self, rank: int) -> None:
        """Resume a suspended rank."""
        self._signal(self.pid(rank), signal.SIGCONT)

    def lose(self, node: int | str) -> None:
        """Kill all ranks of a node; if this rank is among them, it is the last."""
        own = os.getpid()
        for rank in sorted(self._order("ranks", node), key=lambda rank: self.pid(rank) == own):
            self.kill(rank)

    def _act(self, verb: str, link: Link, seconds: float = 0.0) -> None:
        self._order(verb, link, seconds)

    @staticmethod
    def _signal(pid: int, signum: int) -> None:
        # The rank may have exited already.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)

    def _order(self, verb: str, *words: object) -> list[int]:
        if self._orders is None:
            raise RuntimeError("this test cannot act on links: request the fixture pmix_cluster in the test function")
        return self._orders.send(verb, *words)

    def _until(self, rank: int, states: str, word: str) -> None:
        deadline = time.monotonic() + SECONDS
        while (state := _state(self.pid(rank))) not in states:
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {rank} is not {word} after {SECONDS:g} s, but {state}")
            time.sleep(0.001)


def _state(pid: int) -> str:
    """Return the state of a process in the notation of Linux; `X` if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
