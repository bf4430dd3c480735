"""How often the procs of one server have opened: each time is a life, in which they may take part in things."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.standard.types import Proc

LAST = 2**32 - 1


class Lives:
    """The lives of the procs of one server; a proc and its own children may have several connections in one."""

    def __init__(self) -> None:
        self._lives: dict[Proc, int] = {}
        self._open: dict[Proc, int] = {}
        self._most = 1

    def connected(self, proc: Proc) -> None:
        """A proc has connected."""
        already = self._open.get(proc, 0)
        self._open[proc] = already + 1
        if not already:
            life = self._lives[proc] = min(self._lives.get(proc, 0) + 1, LAST)
            self._most = max(self._most, life)

    def finalized(self, proc: Proc) -> int:
        """A connection of a proc has finalized; return the life that has ended, 0 if the proc goes on."""
        left = self._open.get(proc, 0) - 1
        if left > 0:
            self._open[proc] = left
            return 0
        self._open.pop(proc, None)
        return self._lives.setdefault(proc, 1)

    def lost(self, proc: Proc) -> None:
        """A proc is not connected any more."""
        self._open.pop(proc, None)

    def forget(self, nspace: str) -> None:
        """A job is over."""
        for proc in [proc for proc in self._lives if proc.nspace == nspace]:
            del self._lives[proc]
            self._open.pop(proc, None)
        self._most = max(self._lives.values(), default=1)

    def latest(self, procs: Iterable[Proc]) -> int:
        """Return the latest life that any of these is in, from 1."""
        if self._most == 1:
            return 1
        return max([self._lives.get(proc, 1) for proc in procs], default=1)
