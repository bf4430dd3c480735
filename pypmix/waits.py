"""Waiting where calls block; `pypmix.aio.waits` is the same in an event loop.

It is written by hand: a session blocks by itself, where tasks of an event loop need a `Pump` that reads for them.
"""

from __future__ import annotations

from pypmix.arguments import explain_rounding
from pypmix.clientbase import PortBase
from pypmix.standard.errors import OperationTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from pypmix.engine.base import ClientSession
    from pypmix.standard.ops import Op

    R = TypeVar("R")

LIMIT = 10.0


class _Plain:
    def __enter__(self) -> None: ...

    def __exit__(self, *_error: object) -> None: ...


_plain = _Plain()


def shielded(limit: float | None = LIMIT) -> _Plain:
    """Return a context manager whose block is carried out in any case: threads are not cancelled."""
    return _plain


def pause(seconds: float) -> None:
    """Wait some time."""
    from time import sleep

    sleep(seconds)


def settled(value: Any) -> Any:
    """Return a value."""
    return value


class Port(PortBase):
    """The way of a blocking client to its session."""

    runner: ClientSession

    def attach(self) -> None:
        """Do nothing: the session runs operations."""

    def run(self, op: Op[R], undo: Callable[[R], Op[None]] | None = None) -> R:
        """Carry out an operation; a blocking caller cannot give up waiting, so it is never undone."""
        try:
            return self.session.run(op)
        except OperationTimeout as error:
            explain_rounding(error, op)
            raise

    def attend(self) -> None:
        """Do nothing: the engine processes arriving messages."""


class BackgroundCall:
    """A function that runs beside the program, on a separate thread."""

    def __init__(self, function: Callable[[], None]) -> None:
        # Not at the top: no rank pays for it that has nothing beside it.
        import threading

        self._thread = threading.Thread(target=function, name="pypmix-beside", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for its end."""
        self._thread.join()


def later(function: Callable[[], R]) -> R:
    """Call a function."""
    return function()
