"""Leadership of a group in programs that block."""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty, SimpleQueue
from time import monotonic

from pypmix.engine.faults import fault
from pypmix.mailbox import Ended, Mailbox
from pypmix.requests import limit
from pypmix.requests.candidacy import LEADER_FAILED, Candidacy, check
from pypmix.standard.errors import LostConnection, NotFound, NotInitialized, OperationTimeout, PMIxError
from pypmix.standard.ops import DeregisterEventHandler, GroupUnwatch, GroupWatch, RegisterEventHandler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Any, Self

    from pypmix.engine.base import Delivery
    from pypmix.operations.groups import Group
    from pypmix.standard.types import Proc

MAX_TERMS = 1024
"""Terms that are kept for a reader that does not come back; all but the last are over anyway."""


class Over:
    """Whether a term has ended; call it, or wait for it."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> bool:
        """Tell whether the term has ended."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the term has ended, or the time has run out; tell whether it has ended."""
        return self._event.wait(limit(timeout))

    def __repr__(self) -> str:
        return f"<over: {self()}>"


class Term:
    """A time in which one member leads.

    Attributes:
        epoch: Its number, the same at all members, which grows: a fencing token.
        leader: Who leads.
        over: Whether it has ended: `term.over()` tells, `term.over.wait(timeout)` waits for it.
    """

    def __init__(self, epoch: int, leader: Proc) -> None:
        self.epoch = epoch
        self.leader = leader
        self.over = Over()

    def __repr__(self) -> str:
        return f"<Term {self.epoch} of {self.leader}{', over' if self.over() else ''}>"


class Leadership:
    """See `pypmix.recipes.Leadership`. A thread of its own looks after it, from entering to leaving."""

    def __init__(self, group: Group, elect: Callable[[Iterable[Proc]], Proc | None], patience: float) -> None:
        check(group, elect, patience)
        self._group = group
        self._patience = patience
        self._client: Any = group._client
        self._terms: Mailbox[Term] = Mailbox(self._client, MAX_TERMS)
        self._term: Term | None = None
        self._work: SimpleQueue[tuple[Callable[[Any], object], Any] | None] = SimpleQueue()
        self._candidacy = Candidacy(self._client.proc, group.name, elect, self)
        self._ids: list[Any] = []

    @property
    def term(self) -> Term | None:
        """The term that runs; None while there is no leader."""
        term = self._term
        return None if term is None or term.over() else term

    def terms(self) -> Iterator[Term]:
        """Iterate over the terms, from the one that runs on; it ends when the group is gone, or the caller left it.

        Raises:
            PMIxError: The leader has failed and nobody has claimed the lead (`EventCode.GROUP_LEADER_FAILED`).
            LostConnection: The server is gone.
        """
        while True:
            try:
                yield self._terms.get()
            except Ended:
                return

    def get(self, timeout: float | None = None) -> Term:
        """Return the next term; `OperationTimeout` if none has begun within `timeout` seconds."""
        try:
            return self._terms.get(limit(timeout))
        except TimeoutError:
            raise OperationTimeout(f"no term has begun within {timeout:g} s", operation="leadership") from None
        except Ended:
            raise NotInitialized("the group is gone", operation="leadership") from None

    def __enter__(self) -> Self:
        name = self._group.name
        self._ids.append(GroupUnwatch(self._client._run(GroupWatch(name, self._changed, self._over, elects=True))))
        try:
            # What has changed since the watch began is told again, and changes nothing then.
            self._candidacy.begin(self._group._state())
            threading.Thread(target=self._run, name=f"pypmix-leadership-{name}", daemon=True).start()
            handler = RegisterEventHandler(self._failed, (LEADER_FAILED,))
            self._ids.append(DeregisterEventHandler(self._client._run(handler)))
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        ids, self._ids = self._ids, []
        for op in ids:
            try:
                self._client._run(op)
            except (NotInitialized, LostConnection, NotFound):
                pass  # the group is gone, or the session
        self._work.put((self._candidacy.ended, None))
        self._work.put(None)

    # What the engine tells is done by the thread.

    def _failed(self, delivery: Any) -> None:
        self._work.put((self._candidacy.failed, delivery))

    def _changed(self, change: Any) -> None:
        self._work.put((self._candidacy.changed, change))

    def _over(self, error: BaseException | None) -> None:
        self._work.put((self._candidacy.ended, error))

    def _run(self) -> None:
        candidacy = self._candidacy
        kept: deque[tuple[float, Delivery]] = deque()
        while True:
            try:
                work = self._work.get(timeout=max(0.0, kept[0][0] - monotonic()) if kept else None)
            except Empty:
                candidacy.give_up(kept.popleft()[1])
                continue
            if work is None:
                return
            function, argument = work
            try:
                if function(argument) is True:
                    kept.append((monotonic() + self._patience, argument))
            except BaseException as error:
                # Whoever waits for the next term would wait for ever.
                self.over(fault("to follow the leader of a group", error))

    # What the candidacy tells

    def begins(self, epoch: int, leader: Proc) -> None:
        self._term = Term(epoch, leader)
        self._terms.put(self._term)

    def ends(self) -> None:
        if self._term is not None:
            self._term.over._event.set()

    def over(self, error: BaseException | None) -> None:
        self._terms.end(error if isinstance(error, PMIxError) else None)
