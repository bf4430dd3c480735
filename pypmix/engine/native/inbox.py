"""Events and output: read from the shim, and delivered to their handlers.

All steps run under one lock and do not call handlers. The resulting calls are made afterwards, in order, by the thread
that reads the session's queue: the thread of an event loop, or the thread that completes operations.
"""

from __future__ import annotations

from threading import RLock

from pypmix.engine.common import owned
from pypmix.engine.faults import fault
from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.marshal import plain
from pypmix.engine.native.structs import get_name
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError, WouldDeadlock
from pypmix.standard.types import Info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.native.background import Background
    from pypmix.engine.native.connection import Connection
    from pypmix.engine.native.marshal import Marshal


class Inbox:
    """The inbox of one session.

    Attributes:
        number: The number of the inbox in the shim.
        readers: For each kind of message, the function that reads it; called under the lock.
        enders: Called under the lock at the end of the inbox: with None if the session was closed, with the error if
            its server was lost.
        closed: True once the inbox has ended.
    """

    def __init__(self, queue: Any, background: Background, marshal: Marshal, engine: str, owner: Connection) -> None:
        self._background = background
        self._marshal = marshal
        self._engine = engine
        self._owner = owner
        self._lock = RLock()
        self.inside = owned(self._lock)
        """Returns True if this thread holds the lock."""
        self._open: set[Any] = set()
        self.readers: dict[int, Callable[[Any], None]] = {}
        self.enders: list[Callable[[BaseException | None], None]] = []
        self.closed = False
        self._box = lib.pypmix_inbox_new(queue)
        if not self._box:
            raise MemoryError("no memory for events and output")
        self.number = int(lib.pypmix_inbox_number(self._box))
        self.tell = background.tell
        background.listen(self._poll)

    def enter(self, step: Callable[[], object]) -> None:
        """Run a step under the lock, from a thread that does not hold it.

        Raises:
            WouldDeadlock: This thread holds the lock: this is a signal handler.
        """
        if self.inside():
            raise WouldDeadlock(
                "this thread is inside of the client: this is a signal handler",
                engine=self._engine,
                hint="set a flag here and act on it later",
            )
        with self._lock:
            step()

    def within(self, step: Callable[[], None]) -> None:
        """Run a step under the lock, from any thread."""
        with self._lock:
            step()

    def answer(
        self, message: Any, status: int = statuses.EVENT_NO_ACTION_TAKEN, results: tuple[Info, ...] = ()
    ) -> None:
        """Release a message, unless the session has ended; the library's chain of an event then continues."""
        if message not in self._open:
            return
        self._open.discard(message)
        infos, count = ffi.NULL, 0
        try:
            infos, count = self._marshal.infos(results)
        except (PMIxError, TypeError, ValueError, OverflowError, MemoryError) as error:
            _warn("what event handlers hand on does not go into libpmix: %s", error)
        lib.pypmix_message_drop(message, status, infos, count)

    def deregister(self, id: int) -> None:
        """Deregister a handler of the library, once all events of this session are answered."""
        lib.pypmix_deregister_event_handler(self._box, id)

    def infos(self, array: Any) -> tuple[Info, ...]:
        """Return the infos of a message, without infos whose types have no form in Python."""
        found = []
        items = ffi.cast("pmix_info_t *", array.array)
        for n in range(array.size):
            try:
                item = items[n]
                found.append(Info.unchecked(get_name(item.key), plain(self._marshal.read(item.value)), item.flags))
            except PMIxError as error:
                _warn("an info of an event or of output is left out: %s", error)
        return tuple(found)

    def end(self, error: BaseException | None) -> None:
        """End the inbox, because the session was closed or because of an error."""
        self.within(lambda: self._end(error))

    def _end(self, error: BaseException | None) -> None:
        if self.closed:
            return
        self.closed = True
        for ender in self.enders:
            try:
                ender(error)
            except Exception as problem:
                fault("to end with the connection", problem)
        lib.pypmix_inbox_close(self._box)
        while self._open:
            lib.pypmix_message_drop(self._open.pop(), statuses.EVENT_NO_ACTION_TAKEN, ffi.NULL, 0)
        lib.pypmix_inbox_free(self._box)

    def _poll(self) -> bool:
        if self.inside():
            return False
        self.enter(self._take)
        return True

    def _take(self) -> None:
        lost = False
        while not self.closed:
            message = lib.pypmix_inbox_take(self._box)
            if not message:
                break
            self._open.add(message)
            if self._tells_loss(message):
                lost = True
            elif message.what in self.readers:
                try:
                    self.readers[message.what](message)
                    continue
                except Exception as error:
                    fault("an event or a piece of output", error)
            self.answer(message)
        count = 0 if self.closed else lib.pypmix_inbox_lost(self._box)
        if count:
            _warn("%d events or pieces of output came too fast for their handlers and were dropped", count)
        if lost:
            self._owner.lose()

    def _tells_loss(self, message: Any) -> bool:
        lost = message.what == lib.PYPMIX_EVENT and message.code == statuses.ERR_LOST_CONNECTION
        return lost and self._owner.server_is_lost()


def _warn(text: str, *arguments: object) -> None:
    from pypmix.standard.logtext import get_logger

    get_logger("pypmix.native").warning(text, *arguments)
