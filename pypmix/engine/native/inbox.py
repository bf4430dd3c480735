"""What comes unasked, events and output: taken from the shim, and brought to whom it concerns.

All steps of that are taken under one lock and call nobody; the calls that they lead to are made afterwards, in their
order, by the thread that reads the session's queue: that of an event loop, or the one that completes operations.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from threading import RLock

from pypmix.engine.faults import fault
from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.marshal import plain
from pypmix.engine.native.structs import get_name
from pypmix.standard import codes, statuses
from pypmix.standard.errors import LostConnection, PMIxError, WouldDeadlock
from pypmix.standard.types import Info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.native.session import NativeSession

NO_LIMIT = -1.0


class Inbox:
    """The inbox of one session.

    Attributes:
        readers: For each kind of letter, what takes one in; under the lock.
        enders: Called under the lock when nothing more comes: with None where the session was closed, with the error
            where its server was lost.
        over: Whether that has been.
    """

    def __init__(self, session: NativeSession) -> None:
        self._session = session
        self._behind = session._behind()
        self._lock = RLock()
        self._due: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._poller = 0
        self._open: set[Any] = set()
        self.readers: dict[int, Callable[[Any], None]] = {}
        self.enders: list[Callable[[BaseException | None], None]] = []
        self.over = False
        self._box = lib.pypmix_inbox_new(session._queue)
        if not self._box:
            raise MemoryError("no memory for events and output")
        self.number = int(lib.pypmix_inbox_number(self._box))
        self._behind.listen(self._poll)
        if not session.singleton:
            self._watch_server()

    def enter(self, step: Callable[[], None]) -> None:
        """Take a step under the lock; from any thread that has it not already."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise WouldDeadlock(
                "this thread is inside of the client: this is a signal handler",
                engine=str(self._session.info),
                hint="set a flag here and act on it later",
            )
        with self._lock:
            step()

    def tell(self, function: Callable[[Any], None], argument: Any) -> None:
        """Have a function called with an argument, after those of earlier requests."""
        self._due.append((function, argument))
        if self._poller != get_ident():
            self._behind.wake()

    def answer(self, letter: Any, status: int = statuses.EVENT_NO_ACTION_TAKEN, results: tuple[Info, ...] = ()) -> None:
        """Give a letter up; the library's chain of an event goes on with that. Once the session has ended, it did."""
        if letter not in self._open:
            return
        self._open.discard(letter)
        infos, count = ffi.NULL, 0
        try:
            infos, count = self._session._marshal.infos(results)
        except (PMIxError, TypeError, ValueError, OverflowError, MemoryError) as error:
            _warn("what event handlers hand on does not go into libpmix: %s", error)
        lib.pypmix_letter_drop(letter, status, infos, count)

    def infos(self, array: Any) -> tuple[Info, ...]:
        """Return the infos of a letter, without those of types that Python has no form of."""
        found = []
        items = ffi.cast("pmix_info_t *", array.array)
        for n in range(array.size):
            try:
                item = items[n]
                value = plain(self._session._marshal.read(item.value))
                found.append(Info.unchecked(get_name(item.key), value, item.flags))
            except PMIxError as error:
                _warn("an info of an event or of output is left out: %s", error)
        return tuple(found)

    def end(self, lost: bool) -> None:
        """Take no more."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            self._end(lost)
        else:
            self.enter(lambda: self._end(lost))

    def _end(self, lost: bool) -> None:
        if self.over:
            return
        self.over = True
        session = self._session
        error = None
        if lost:
            error = LostConnection(session._loss(), procs=(session.proc,), engine=str(session.info))
        for ender in self.enders:
            try:
                ender(error)
            except Exception as problem:
                fault("to end with the connection", problem)
        lib.pypmix_inbox_close(self._box)
        while self._open:
            lib.pypmix_letter_drop(self._open.pop(), statuses.EVENT_NO_ACTION_TAKEN, ffi.NULL, 0)
        lib.pypmix_inbox_free(self._box)

    def _poll(self) -> None:
        """Take in what has come, and make the calls that are due."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            return
        self._poller = get_ident()
        try:
            self.enter(self._take)
            while self._due:
                function, argument = self._due.popleft()
                try:
                    function(argument)
                except Exception as error:
                    # Others wait for what is due behind it.
                    fault("what an event or an answer leads to", error)
        finally:
            self._poller = 0

    def _take(self) -> None:
        lost = False
        while not self.over:
            letter = lib.pypmix_inbox_take(self._box)
            if not letter:
                break
            self._open.add(letter)
            if letter.what == lib.PYPMIX_EVENT and self._tells_loss(letter):
                lost = True
            elif letter.what in self.readers:
                try:
                    self.readers[letter.what](letter)
                    continue
                except Exception as error:
                    fault("an event or a piece of output", error)
            self.answer(letter)
        count = 0 if self.over else lib.pypmix_inbox_lost(self._box)
        if count:
            _warn("%d events or pieces of output came too fast for their handlers and were dropped", count)
        if lost and self._session._open:
            self._session._leave(lost=True)

    def _tells_loss(self, letter: Any) -> bool:
        return (
            letter.code == statuses.ERR_LOST_CONNECTION and not self._session.singleton and not lib.pypmix_connected()
        )

    def _watch_server(self) -> None:
        """Have the library tell when the server is lost, which nobody else need hear of."""
        session = self._session
        call = session._call()
        given = ffi.new("pypmix_given *")
        given.number = -self.number
        session._marshal.fill(given.items, codes.STATUS, (statuses.ERR_LOST_CONNECTION,))
        lib.pypmix_ask(call, session._queue, lib.PYPMIX_REGISTER_EVENT_HANDLER, given, NO_LIMIT)
        session._waited(call, NO_LIMIT)
        lib.pypmix_call_free(call)


def _warn(text: str, *arguments: object) -> None:
    from pypmix.standard.logtext import get_logger

    get_logger("pypmix.native").warning(text, *arguments)
