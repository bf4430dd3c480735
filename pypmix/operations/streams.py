# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Streams of items that an engine delivers: bounded, and read by iteration."""

from __future__ import annotations

from typing import Generic, TypeVar

from pypmix.arguments import limit
from pypmix.mailbox import EndOfStream, Mailbox
from pypmix.standard.errors import LostConnection, NotInitialized, OperationTimeout
from pypmix.standard.types import check_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pypmix.waits import Port

T = TypeVar("T")


class Stream(Generic[T]):
    """Items as they come in, oldest first; entered and left as a context manager.

    Iterating waits for the next item, and ends when the client is closed. If items arrive faster than they are read,
    at most `buffer` items are kept, the oldest are dropped, and `dropped` counts them.

    Example:
        >>> with me.events(EventCode.PROC_TERMINATED, buffer=100) as events:
        ...     event = events.get(timeout=60)
        ...     print(event, "and", len(events), "unread,", events.dropped, "lost")
    """

    def __init__(self, port: Port, buffer: int) -> None:
        buffer = check_integer(buffer, "the size of a buffer")
        if buffer < 1:
            raise ValueError(f"a buffer holds at least one item, not {buffer!r}")
        self._port = port
        self._buffer = buffer
        self._box: Mailbox[T] | None = None
        self._closed = False

    @property
    def dropped(self) -> int:
        """The number of items that were lost because they were not read in time."""
        return 0 if self._box is None else self._box.dropped

    def __len__(self) -> int:
        return 0 if self._box is None else len(self._box)

    def open(self) -> Self:
        """Begin to receive items; return the stream itself. A closed stream begins again.

        Example:
            >>> events = me.events(EventCode.PROC_TERMINATED).open()
            >>> events.close()
        """
        if self._box is None or self._closed:
            self._closed = False
            self._box = Mailbox(self._port, self._buffer)
            self._port.attend()
            begun = False
            try:
                self._begin(self._box)
                begun = True
            finally:
                if not begun:
                    # A caller that gives up gets nothing more, whether or not the engine has begun by then.
                    self._box.end()
                    self._box = None
        return self

    def close(self) -> None:
        """Stop receiving; buffered items can still be read. May be called twice.

        Example:
            >>> events = me.events(EventCode.PROC_TERMINATED).open()
            >>> events.close()
            >>> unread = [event for event in events]
        """
        box = self._box
        self._closed = box is not None
        if box is not None and not box.is_closed:
            box.end()
            self._leave()

    def get(self, timeout: float | None = None) -> T:
        """Return the next item.

        Args:
            timeout: Seconds to wait for it; no limit by default.

        Raises:
            OperationTimeout: None came in time.
            NotInitialized: The stream or its client is closed.
            LostConnection: The server is gone.

        Example:
            >>> with me.events(EventCode.PROC_TERMINATED) as events:
            ...     event = events.get(timeout=60)
        """
        timeout = limit(timeout)
        try:
            return self._opened().get(timeout)
        except TimeoutError:
            raise OperationTimeout(f"nothing came within {timeout:g} s", operation=self._name) from None
        except EndOfStream:
            raise NotInitialized("the stream is closed", operation=self._name) from None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self._opened().get()
        except EndOfStream:
            raise StopIteration from None

    def _opened(self) -> Mailbox[T]:
        if self._box is None:
            raise NotInitialized("the stream is not open", operation=self._name, hint="use it in a `with` block")
        return self._box

    def _leave(self) -> None:
        try:
            self._finish()
        except (NotInitialized, LostConnection):
            pass  # the session has ended meanwhile, and with it the registration

    # The parts that each kind of stream implements

    _name = "stream"

    def _begin(self, box: Mailbox[T]) -> None:
        """Have the engine put into the mailbox."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Have the engine put nothing more."""
        raise NotImplementedError
