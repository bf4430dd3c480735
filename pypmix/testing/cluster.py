"""The job of a test, as the test acts on it: ranks, nodes and links, and which ranks it expects to be missing."""

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
"""Seconds in which a rank that was signalled has to change."""

MEETING = 0.001
"""Seconds between two looks whether all have met."""

STOPPED = "Tt"
GONE = "ZX"


def named(ranks: Iterable[int], size: int) -> str:
    """Return ranks of a job of this size as a person reads them: `rank 2 of 4`, `ranks 0 to 3, 5 of 8`."""
    return f"{name_ranks(ranks)} of {size}"


def no_rank(rank: object, size: int) -> ValueError:
    """Return the error for a rank that is not there."""
    return ValueError(f"there is no rank {rank!r:.80}: the ranks are 0 to {size - 1}")


class Restored:
    """A fault of a link; in a `with` block it ends with the block."""

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

    A link is named by a rank, for its connection with its server, or by two nodes, `(0, 1)` or `("node0", "node1")`,
    for what their servers exchange. All methods return at once, or when what they do has happened.
    """

    def kill(self, rank: int) -> None:
        """Kill a rank; returns when it is gone. That it does not end its test is not a failure.

        Raises:
            ValueError: There is no such rank.
        """
        raise NotImplementedError

    def stop(self, rank: int) -> None:
        """Stop a rank; returns when it stands still. It does not hang in the eyes of its server: it is slow.

        Raises:
            ValueError: There is no such rank.
        """
        raise NotImplementedError

    def resume(self, rank: int) -> None:
        """Have a rank go on that was stopped.

        Raises:
            ValueError: There is no such rank.
        """
        raise NotImplementedError

    def lose(self, node: int | str) -> None:
        """Lose a node, by number or name: all of its ranks are killed; on virtual time its server is lost too.

        Raises:
            ValueError: There is no such node.
        """
        raise NotImplementedError

    def now(self) -> float:
        """Return seconds on the clock that the test runs on, real or virtual."""
        raise NotImplementedError

    def _act(self, verb: str, link: Link, seconds: float = 0.0) -> None:
        raise NotImplementedError

    def delay(self, link: Link, seconds: float) -> Restored:
        """Make a link slower: each message takes so many seconds longer, in either direction.

        Nothing fails by it but what has a time limit that is too short.

        Args:
            link: A rank, or two nodes.
            seconds: How much slower; 0 for not at all.

        Returns:
            What restores the link at the end of a `with` block; it need not be used.

        Raises:
            ValueError: There is no such link.
        """
        self._act("delay", link, seconds)
        return Restored(self, link)

    def drop(self, link: Link) -> Restored:
        """Let nothing through a link, like a cable that is pulled: neither end is told, and operations wait.

        What is sent meanwhile arrives when the link is restored. An operation with a time limit ends with
        `OperationTimeout`: by the server for those whose links are well, half a second later by the client itself for
        one that does not reach its server. No rank is lost by it, however long it lasts: simulated nodes have no
        `--keep-alive`. What servers do when that is over is `cut`.

        Args:
            link: A rank, or two nodes.

        Returns:
            What restores the link at the end of a `with` block; it need not be used.

        Raises:
            ValueError: There is no such link.
        """
        self._act("drop", link)
        return Restored(self, link)

    def restore(self, link: Link) -> None:
        """Have a link work again that was slow or dropped: what was held back arrives now, in its order.

        Raises:
            ValueError: There is no such link.
        """
        self._act("restore", link)

    def cut(self, link: Link) -> None:
        """Break a link for good: what is on its way is lost, and both ends are told.

        All operations of a rank that is cut off end with `LostConnection`, and it is missing for the others as if it
        had ended. Servers that are cut off go on without each other's ranks, as real ones do after
        `--keep-alive` seconds of silence. The link may have been dropped before.

        Raises:
            ValueError: There is no such link.
        """
        self._act("cut", link)

    @contextlib.contextmanager
    def expect_missing(self, *ranks: int) -> Iterator[None]:
        """Expect that an operation fails because these ranks, and no others, are missing.

        Raises:
            AssertionError: It does not fail, or others are missing.
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
            raise AssertionError(f"nothing failed, although ranks {sorted(ranks)} were to be missing")


class RealCluster(Cluster):
    """The ranks of a test that are processes.

    Args:
        folder: A folder that all ranks have in common; all of them have entered their pids.
        orders: The way to the process of the test, which has the links.
    """

    def __init__(self, folder: Path, orders: Orders | None = None) -> None:
        self._folder = folder
        self._orders = orders

    @classmethod
    def enter(cls, rank: int, folder: Path) -> RealCluster:
        """Return the cluster for a rank, which enters its pid; it is there once all ranks have done so."""
        from pypmix.testing.orders import Orders

        (folder / f".pid.{rank}").write_text(str(os.getpid()))
        return cls(folder, Orders.of(os.environ))

    @classmethod
    def meet(cls, me: Client, folder: Path) -> RealCluster:
        """Return the cluster once all ranks are there; each of them calls this.

        Each rank knows that the fence has ended for all. One that went on by its own end of it could cut a link on
        which the release of another rank is still on its way.
        """
        found = cls.enter(me.rank, folder)
        me.fence(timeout=SECONDS)
        for _ in found.arrivals(me.rank, len(me.job)):
            time.sleep(MEETING)
        return found

    @classmethod
    async def meeting(cls, me: aio.Client, folder: Path) -> RealCluster:
        """Do the same in an event loop."""
        import asyncio

        found = cls.enter(me.rank, folder)
        await me.fence(timeout=SECONDS)
        for _ in found.arrivals(me.rank, len(me.job)):
            await asyncio.sleep(MEETING)
        return found

    def arrivals(self, rank: int, size: int) -> Iterator[None]:
        """Say that the fence of the meeting has ended for a rank, and yield until it has for all."""
        (self._folder / f".met.{rank}").touch()
        deadline = time.monotonic() + SECONDS
        missing = [other for other in range(size) if other != rank]
        while missing := [other for other in missing if not (self._folder / f".met.{other}").exists()]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{named(missing, size)} did not come to the beginning of the test in {SECONDS:g} s")
            yield

    def pid(self, rank: int) -> int:
        """Return the pid of a rank.

        Raises:
            ValueError: There is no such rank.
        """
        path = self._folder / f".pid.{rank}"
        if not isinstance(rank, int) or not path.exists():
            raise no_rank(rank, len(list(self._folder.glob(".pid.*"))))
        return int(path.read_text())

    def now(self) -> float:
        """Return the time of `time.monotonic`."""
        return time.monotonic()

    def kill(self, rank: int) -> None:
        """Kill a rank; returns when it is gone. That it does not end its test is not a failure."""
        pid = self.pid(rank)
        (self._folder / f".killed.{rank}").touch()
        self._signal(pid, signal.SIGKILL)
        self._until(rank, GONE, "gone")

    def stop(self, rank: int) -> None:
        """Stop a rank; returns when it stands still. It does not hang in the eyes of its server: it is slow."""
        self._signal(self.pid(rank), signal.SIGSTOP)
        self._until(rank, STOPPED + GONE, "stopped")

    def resume(self, rank: int) -> None:
        """Have a rank go on that was stopped."""
        self._signal(self.pid(rank), signal.SIGCONT)

    def lose(self, node: int | str) -> None:
        """Kill all ranks of a node, at last this one where it is among them."""
        own = os.getpid()
        for rank in sorted(self._order("ranks", node), key=lambda rank: self.pid(rank) == own):
            self.kill(rank)

    def _act(self, verb: str, link: Link, seconds: float = 0.0) -> None:
        self._order(verb, link, seconds)

    @staticmethod
    def _signal(pid: int, signum: int) -> None:
        # A rank that has ended is one that has gone.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)

    def _order(self, verb: str, *words: object) -> list[int]:
        if self._orders is None:
            raise RuntimeError("this test has no links to act on: ask for the fixture pmix_cluster in the test itself")
        return self._orders.send(verb, *words)

    def _until(self, rank: int, states: str, word: str) -> None:
        deadline = time.monotonic() + SECONDS
        while (state := _state(self.pid(rank))) not in states:
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {rank} is not {word} after {SECONDS:g} s, but {state}")
            time.sleep(0.001)


def _state(pid: int) -> str:
    """Return the state of a process as Linux names it; `X` where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
