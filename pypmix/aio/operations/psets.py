"""Process sets: their names, their members, and their changes."""

from __future__ import annotations

from collections import deque
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from pypmix.aio.operations.base import Asks
from pypmix.aio.operations.streams import Stream
from pypmix.answers import UNANSWERED
from pypmix.arguments import limit
from pypmix.engine.common import ignore
from pypmix.psets import (
    MAX_EARLY,
    ProcSet,
    ProcSets,
    PsetChange,
    begun_with,
    change_in,
    members_in,
    members_op,
    names_in,
    names_op,
    names_value,
    optional,
    size_op,
    spread,
    wild,
)
from pypmix.standard import statuses
from pypmix.standard.errors import NotFound, NotSupported
from pypmix.standard.ops import DeregisterEventHandler, RegisterEventHandler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pypmix.aio.mailbox import Mailbox
    from pypmix.aio.waits import Port
    from pypmix.engine.base import Delivery
    from pypmix.standard.ops import Get
    from pypmix.standard.types import Proc, Value


class PsetStream(Stream[PsetChange]):
    """The process sets that come and go, in their order; `watch_psets` of a client makes one.

    It begins with the sets that exist when it is opened, each as a `define`.

    Example:
        >>> async with me.watch_psets() as changes:
        ...     async for change in changes:
        ...         print(change.kind, change.name, change.members)
    """

    _name = "watch_psets"

    def __init__(self, port: Port, buffer: int, list_sets: Callable[[], Awaitable[ProcSets]]) -> None:
        super().__init__(port, buffer)
        self._ask = list_sets
        self._id = -1
        self._lock = Lock()
        self._early: list[PsetChange] | None = None
        self._first: deque[PsetChange] = deque()
        self._known: dict[str, ProcSet] = {}

    def __len__(self) -> int:
        return len(self._first) + super().__len__()

    async def _begin(self, box: Mailbox[PsetChange]) -> None:
        self._known.clear()
        self._early = []
        events = statuses.PROCESS_SET_DEFINE, statuses.PROCESS_SET_DELETE
        self._id = await self._port.run(RegisterEventHandler(self._put, events, (), box.end), DeregisterEventHandler)
        begun = False
        try:
            # Servers keep events for a while only, so that a set which is older has to be asked for.
            sets = await self._ask()
            begun = True
        except NotSupported:
            sets = ProcSets()
            begun = True
        finally:
            if not begun:
                self._port.session.submit(DeregisterEventHandler(self._id), ignore)
        with self._lock:
            early, self._early = self._early, None
        self._first = deque(begun_with(sets, early))

    async def _finish(self) -> None:
        await self._port.run(DeregisterEventHandler(self._id))

    def _put(self, delivery: Delivery) -> None:
        event = delivery.notification
        name, members = change_in(event)
        if self._box is not None and name:
            change = PsetChange(
                "define" if event.code == statuses.PROCESS_SET_DEFINE else "delete", name, ProcSet(members, name)
            )
            with self._lock:
                if self._early is None:
                    self._box.put(change)
                elif len(self._early) < MAX_EARLY:
                    self._early.append(change)
        delivery.done(statuses.EVENT_NO_ACTION_TAKEN)

    async def get(self, timeout: float | None = None) -> PsetChange:
        """Return the next change; see `Stream.get`.

        Example:
            >>> async with me.watch_psets() as changes:
            ...     change = await changes.get(timeout=60)
        """
        timeout = limit(timeout)
        end = None if timeout is None else monotonic() + timeout
        while True:
            change = self._next_of_first()
            if change is None:
                left = None if end is None else max(0.0, end - monotonic())
                change = self._new(await super().get(left))
            if change is not None:
                return change

    async def __anext__(self) -> PsetChange:
        while True:
            change = self._next_of_first()
            if change is None:
                change = self._new(await super().__anext__())
            if change is not None:
                return change

    def _next_of_first(self) -> PsetChange | None:
        try:
            return self._new(self._first.popleft())
        except IndexError:
            return None

    def _new(self, change: PsetChange) -> PsetChange | None:
        """Return a change as readers get it; None if they know it, since a set of the answer comes as an event, too."""
        if change.kind == "define":
            if change.name in self._known:
                return None
            self._known[change.name] = change.members
            return change
        members = self._known.pop(change.name, None)
        return None if members is None else change.replace(members=members)


class Psets(Asks):
    """Process sets."""

    async def _psets(self) -> ProcSets:
        """Return the process sets that the server knows; see `psets` of the clients."""
        if self._session.singleton:
            return ProcSets()
        found: dict[str, list[Proc]] = {}
        try:
            (answer,) = await self._run(names_op())
        except NotFound:
            return ProcSets()
        for name in names_in(answer.value):
            try:
                # One by one: natives answer several questions after one key with a single one, or not at all.
                (answer,) = await self._run(members_op(name))
            except UNANSWERED:
                # It was deleted in the meantime.
                continue
            found[name] = members_in(answer.value)
        sizes: dict[str, int] = {}
        for nspace in {nspace for members in found.values() for nspace in wild(members)}:
            try:
                (answer,) = await self._run(size_op(nspace))
            except UNANSWERED:
                continue
            sizes[nspace] = answer.value.data
        return ProcSets([ProcSet(spread(members, sizes), name) for name, members in found.items()])

    async def _pset_names(self, op: Get) -> Value:
        """Carry out a get of `PMIX_PSET_NAMES`, whose value changes when sets come and go."""
        session = self._session
        if session.singleton or optional(op) or session.supports("get.pset_names"):
            value = await self._run(op)
            return names_value(names_in(value))
        # This library never updates the names it got first, or the server does not report them.
        try:
            names = (await self._psets()).of(op.proc)
        except NotSupported:
            names = ()
        if not names:
            raise NotFound(
                "the proc is in no process set",
                operation=op.name,
                procs=(op.proc,),
                engine=str(session.info),
                job=session.proc.nspace,
            )
        return names_value(names)

    def watch_psets(self, *, buffer: int = 1024) -> PsetStream:
        """`PMIx_Register_event_handler`: a stream of `PsetChange`, to be used as a context manager and iterated.

        It begins with the existing sets, and continues with `PMIX_PROCESS_SET_DEFINE` and `_DELETE`.

        Args:
            buffer: How many changes are kept for a slow reader; of more than that the oldest are dropped and counted.

        Example:
            >>> async with me.watch_psets() as changes:
            ...     async for change in changes:
            ...         print(change.kind, change.name, len(change.members))

        PMIx Standard: "Process Sets".
        """
        return PsetStream(self._port, buffer, self._psets)
