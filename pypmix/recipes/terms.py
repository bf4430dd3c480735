"""Terms of a group's leaders, and who follows them, in programs that block.

It is written by hand: a thread follows while the program does other things, where an event loop calls by itself.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty, SimpleQueue
from time import monotonic

from pypmix.engine.faults import fault
from pypmix.requests import limit
from pypmix.requests.candidacy import TermBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Delivery
    from pypmix.requests.candidacy import Candidacy, Told
    from pypmix.standard.ops import GroupChange
    from pypmix.standard.types import Proc


class Over:
    """Whether a term has ended; call it, or wait for it."""

    __slots__ = ("_ended", "end")

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.end = self._ended.set

    def __call__(self) -> bool:
        """Tell whether the term has ended."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the term has ended, or the time has run out; tell whether it has ended."""
        return self._ended.wait(limit(timeout))

    def __repr__(self) -> str:
        return f"<over: {self()}>"


class Term(TermBase):
    """A time in which one member leads.

    Attributes:
        epoch: Its number, the same at all members, which grows: a fencing token.
        leader: Who leads.
        over: Whether it has ended: `term.over()` tells, `term.over.wait(timeout)` waits for it.
    """

    over: Over

    def __init__(self, epoch: int, leader: Proc) -> None:
        super().__init__(epoch, leader, Over())


class Follower:
    """Tells a candidacy of what happens, on a thread of its own, from `begin` to `stop`.

    Args:
        candidacy: The candidacy.
        told: Is told of a fault of the thread.
        patience: Seconds until an answer that is kept back is given up.
    """

    def __init__(self, candidacy: Candidacy, told: Told, patience: float) -> None:
        self._candidacy = candidacy
        self._told = told
        self._patience = patience
        self._work: SimpleQueue[tuple[Callable[[Any], object], Any] | None] = SimpleQueue()

    def begin(self, name: str) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name=f"pypmix-leadership-{name}", daemon=True).start()

    def stop(self) -> None:
        """Follow no more: the thread ends when it has done what is there."""
        self.ended(None)
        self._work.put(None)

    # The engine calls these, on its threads.

    def failed(self, delivery: Delivery) -> None:
        """Tell that a leader has failed, and wait with the answer where it is kept back."""
        self._work.put((self._candidacy.failed, delivery))

    def changed(self, change: GroupChange) -> None:
        """Tell of a change of the group."""
        self._work.put((self._candidacy.changed, change))

    def ended(self, error: BaseException | None) -> None:
        """Tell that the group is gone."""
        self._work.put((self._candidacy.ended, error))

    def _run(self) -> None:
        kept: deque[tuple[float, Delivery]] = deque()
        while True:
            try:
                work = self._work.get(timeout=max(0.0, kept[0][0] - monotonic()) if kept else None)
            except Empty:
                work = (self._candidacy.give_up, kept.popleft()[1])
            if work is None:
                return
            function, argument = work
            try:
                if function(argument) is True:
                    kept.append((monotonic() + self._patience, argument))
            except BaseException as error:
                # A caller that waits for the next term would wait for ever.
                self._told.over(fault("to follow the leader of a group", error))
