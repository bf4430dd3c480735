"""Waiting where calls block; `pypmix.aio.waits` is the same in an event loop."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from pypmix.engine.base import ClientSession
    from pypmix.standard.ops import Op

    Port = ClientSession
    R = TypeVar("R")

LIMIT = 10.0


class _Plain:
    def __enter__(self) -> None: ...

    def __exit__(self, *_error: object) -> None: ...


_plain = _Plain()


def shielded(limit: float | None = LIMIT) -> _Plain:
    """Return a context manager whose block is carried out in any case: threads are not cancelled."""
    return _plain


def settled(value: Any) -> Any:
    """Return a value."""
    return value


def port(session: ClientSession) -> Port:
    """Return what carries out the operations of a session: the session."""
    return session


def run(port: Port, op: Op[R], undo: Callable[[R], Op[None]] | None) -> R:
    """Carry out an operation; a blocking caller cannot give up waiting, so it is never undone."""
    return port.run(op)


def attend(port: Port) -> None:
    """Do nothing: the engine takes in by itself what arrives."""


def later(function: Callable[[], R]) -> R:
    """Call a function."""
    return function()
