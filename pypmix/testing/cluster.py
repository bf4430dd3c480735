"""The job of a test, as the test acts on it: kill, stop and resume ranks, and expect which ranks are missing."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pypmix import Client

SECONDS = 30.0
"""Seconds in which a rank that was signalled has to change."""

STOPPED = "Tt"
GONE = "ZX"


class Cluster:
    """The ranks of a test, for one of them.

    Args:
        me: The client of this rank.
        folder: A folder that all ranks have in common; all of them have entered their pids.
    """

    def __init__(self, me: Client, folder: Path) -> None:
        self._me = me
        self._folder = folder

    @classmethod
    def meet(cls, me: Client, folder: Path) -> Cluster:
        """Return the cluster once all ranks are there; each of them calls this."""
        (folder / f".pid.{me.rank}").write_text(str(os.getpid()))
        me.fence(timeout=SECONDS)
        return cls(me, folder)

    def pid(self, rank: int) -> int:
        """Return the pid of a rank."""
        return int((self._folder / f".pid.{rank}").read_text())

    def kill(self, rank: int) -> None:
        """Kill a rank; returns when it is gone. That it does not end its test is not a failure."""
        (self._folder / f".killed.{rank}").touch()
        os.kill(self.pid(rank), signal.SIGKILL)
        self._until(rank, GONE, "gone")

    def stop(self, rank: int) -> None:
        """Stop a rank; returns when it stands still. It does not hang in the eyes of its server: it is slow."""
        os.kill(self.pid(rank), signal.SIGSTOP)
        self._until(rank, STOPPED + GONE, "stopped")

    def resume(self, rank: int) -> None:
        """Have a rank go on that was stopped."""
        os.kill(self.pid(rank), signal.SIGCONT)

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
