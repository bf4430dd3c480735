"""Text for logs and terminals: text of others is escaped, and repeated lines are counted."""

from __future__ import annotations

import sys
import time
from threading import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from logging import Logger, LogRecord
    from typing import Any

MOST = 4096
"""The most characters of a text that are shown."""

LINES = 20
WINDOW = 60.0
"""The most lines of one cause in a window, in seconds; further lines are counted."""

MAX_CAUSES = 256
"""The number of causes whose lines are counted separately."""


def printable(text: object, most: int = MOST) -> str:
    r"""Return a text in one line that does nothing to a terminal: `\x1b`, `\n`, `\u202e` in place of the characters.

    The result is not changed by a second call.

    Args:
        text: The text, or an object for `str`.
        most: The number of characters to keep.
    """
    shown = str(text)
    if len(shown) > most:
        shown = f"{shown[:most]}… ({len(shown) - most} more characters)"
    if shown.isprintable():
        return shown
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown])


def iso_time(moment: float, *, milliseconds: bool = False) -> str:
    """Return a time in seconds since 1970 as local time in ISO 8601, without a time zone."""
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment))
    return f"{text}.{int(moment % 1 * 1000):03}" if milliseconds else text


def printable_lines(text: object) -> str:
    """Return a text of several lines with `printable` applied to each."""
    return "\n".join([printable(line) for line in str(text).split("\n")])


def indented(text: str) -> str:
    """Indent the lines after a line of a log, such as a traceback, so that they cannot look like separate entries."""
    return "".join([f"\n    {printable(line)}" for line in text.rstrip("\n").split("\n")])


class Limit:
    """Limits repeated lines: only the first lines of each cause in a window are written.

    Args:
        lines: The number of lines of a cause in a window.
        window: The length of a window, in seconds.
        clock: Returns the time.
    """

    def __init__(self, lines: int = LINES, window: float = WINDOW, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._window = window
        self._clock = clock
        self._causes: dict[Hashable, _Cause] = {}
        self._lock = Lock()

    def take(self, cause: Hashable, line: str = "") -> str | None:
        """Count a line.

        Args:
            cause: Its cause; not text of a peer, which could differ each time.
            line: The line, if an immediate repetition is not to be written.

        Returns:
            The text to append to the line, mostly empty; None if the line is not to be written.
        """
        with self._lock:
            now = self._clock()
            found = self._causes.get(cause)
            if found is None:
                found = self._add(cause, now)
            note = ""
            if now - found.begin >= self._window:
                if found.hidden:
                    note = f" [… {found.hidden:,} more like this in the {now - found.begin:.0f} s before]"
                found.restart(now)
            if found.count >= self._lines or (line and line in found.shown):
                found.hidden += 1
                return None
            found.count += 1
            if line:
                found.shown.add(line)
            if found.count == self._lines:
                note += f" [what follows of this kind within {self._window:.0f} s is only counted]"
            return note

    def rest(self) -> list[tuple[Hashable, int]]:
        """Return the causes with unwritten lines and their numbers, and reset the counts."""
        with self._lock:
            found = [(cause, each.hidden) for cause, each in self._causes.items() if each.hidden]
            self._causes.clear()
        return found

    def _add(self, cause: Hashable, now: float) -> _Cause:
        if len(self._causes) >= MAX_CAUSES:
            self._causes = {key: each for key, each in self._causes.items() if now - each.begin < self._window}
        if len(self._causes) >= MAX_CAUSES:
            cause = None
        return self._causes.setdefault(cause, _Cause(now))


class _Cause:
    """The count of lines of one cause, written and not written."""

    __slots__ = ("begin", "count", "hidden", "shown")

    def __init__(self, now: float) -> None:
        self.shown: set[str] = set()
        self.restart(now)

    def restart(self, now: float) -> None:
        """Start a window."""
        self.begin = now
        self.count = 0
        self.hidden = 0
        self.shown.clear()


class _Guard:
    """A filter of a logger: records are escaped, and limited for each of the formats that they are made of."""

    def __init__(self) -> None:
        self.limit = Limit()

    def filter(self, record: LogRecord) -> bool:
        """Return True if a record is to be written."""
        note = self.limit.take((record.levelno, record.msg if isinstance(record.msg, str) else None))
        if note is None:
            return False
        record.msg, record.args = printable(record.getMessage()) + note, None
        if record.exc_info:
            import traceback

            record.exc_text = indented("".join(traceback.format_exception(record.exc_info[1])))[1:]
        return True


_guards: dict[str, _Guard] = {}


_QUIET = ("debug", "info")


class _Log:
    """A logger whose records are escaped and limited, which is made when it is used.

    Importing `logging` takes 3 ms, by which it would delay the start of every daemon.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> object:
        if attribute in _QUIET and "logging" not in sys.modules:
            # A program that wants records below a warning has configured `logging`.
            return _unheard
        return getattr(_logger(self.name), attribute)


def _unheard(*_arguments: object) -> None:
    """Log nothing."""


def _logger(name: str) -> Logger:
    import logging

    logger = logging.getLogger(name)
    if name not in _guards:
        _guards[name] = _Guard()
        logger.addFilter(_guards[name])
    return logger


def get_logger(name: str) -> Logger:
    """Return a logger whose records are escaped and limited."""
    made: Any = _Log(name)
    logger: Logger = made
    return logger


def forget() -> None:
    """Reset all loggers."""
    for guard in _guards.values():
        guard.limit.rest()
