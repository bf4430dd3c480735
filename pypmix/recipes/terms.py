"""The terms of a group's leaders in blocking programs.

The file is not generated from `pypmix.aio`: here a thread follows the leadership, there the event loop does.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty, SimpleQueue
from time import monotonic

from pypmix.arguments import limit
from pypmix.engine.faults import fault
from pypmix.recipes.candidacy import TermBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Delivery
    from pypmix.recipes.candidacy import Candidacy, TermListener
    from pypmix.standard.ops import GroupChange
    from pypmix.standard.types import Proc


class TermEnd:
    """The end of a term; call it for its state, or wait for it."""

    __slots__ = ("_ended", "end")

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.end = self._ended.set

    def __call__(self) -> bool:
        """Return True if the term has ended."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the term ends, or the timeout passes; return True if the term has ended."""
        return self._ended.wait(limit(timeout))

    def __repr__(self) -> str:
        return f"<over: {self()}>"


class Term(TermBase):
    """The term of one leader.

    Attributes:
        epoch: Its number, the same at all members, which grows: a fencing token.
        leader: The leader.
        over: The end of the term: `term.over()` is True once it has ended, `term.over.wait(timeout)` waits for it.
    """

    over: TermEnd

    def __init__(self, epoch: int, leader: Proc) -> None:
        super().__init__(epoch, leader, TermEnd())


class Follower:
    """Passes events and changes of the group to a candidacy, in a thread, from `begin` to `stop`.

    Args:
        candidacy: The candidacy.
        observer: Receives an error of the thread.
        patience: Seconds until a delayed answer is given up.
    """

    def __init__(self, candidacy: Candidacy, observer: TermListener, patience: float) -> None:
        self._candidacy = candidacy
        self._observer = observer
        self._patience = patience
        self._work: SimpleQueue[tuple[Callable[[Any], object], Any] | None] = SimpleQueue()

    def begin(self, name: str) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name=f"pypmix-leadership-{name}", daemon=True).start()

    def stop(self) -> None:
        """Stop following: the thread exits after its queued work."""
        self.end(None)
        self._work.put(None)

    # The engine calls these, on its threads.

    def failed(self, delivery: Delivery) -> None:
        """Pass on that a leader has failed; the candidacy may delay the answer."""
        self._work.put((self._candidacy.failed, delivery))

    def changed(self, change: GroupChange) -> None:
        """Pass on a change of the group."""
        self._work.put((self._candidacy.changed, change))

    def end(self, error: BaseException | None) -> None:
        """Pass on that the group no longer exists."""
        self._work.put((self._candidacy.end, error))

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
                # A caller that waits for the next term would wait forever.
                self._observer.end_terms(fault("to follow the leader of a group", error))
