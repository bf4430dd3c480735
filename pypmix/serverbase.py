"""Checks of a server's arguments, and the wait for an answer of its engine."""

from __future__ import annotations

import os
import threading
from functools import partial

from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.errors import NotSupported, OperationTimeout
from pypmix.standard.ops import ClientConnected, ClientFinalized, ClientLost
from pypmix.standard.types import MAX_NSLEN, Proc, check_integer, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.base import Upcall

R = TypeVar("R")

MAX_UNANSWERED = 256
"""The limit of unanswered requests of one client to its host; further ones are refused with `ERR_RESOURCE_BUSY`."""

_ACCEPTED = (ClientConnected, ClientFinalized, ClientLost)


def accept(upcall: Upcall) -> None:
    """Let every registered client come and go; answer all else with `NotSupported`."""
    if isinstance(upcall.op, _ACCEPTED):
        upcall.reply()
    else:
        upcall.fail(NotSupported("this host does not offer it", operation=upcall.op.name))


_COROUTINE = 0x80
"""The flag of a coroutine function's code, `inspect.CO_COROUTINE`: `inspect` would cost each `pypmix run` time."""


def check_upcall(function: object) -> None:
    if not callable(function):
        raise TypeError(f"on_upcall is a function that is given each Upcall, not a {type(function).__name__}")
    while isinstance(function, partial):
        function = function.func
    codes = [getattr(each, "__code__", None) for each in (function, getattr(function, "__call__", None))]  # noqa: B004
    if any(code is not None and code.co_flags & _COROUTINE for code in codes):
        raise TypeError("on_upcall is called on the engine's thread, which awaits nothing; pypmix.host.Host does")


def engine_of(engine: str | None) -> str:
    """Return the engine asked for by argument or environment."""
    name = engine or os.environ.get("PYPMIX_ENGINE") or "auto"
    return "python" if name == "auto" else name


def check_text(what: str, text: str | None) -> None:
    if text is None:
        return
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"{what} must not contain a NUL character: {text!r:.80}")


def path_of(what: str, path: str | os.PathLike[str] | None) -> str | None:
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    check_text(what, path)
    return path


def check_proc(proc: object) -> None:
    if not isinstance(proc, Proc):
        raise TypeError(f"a proc is a Proc, not {type(proc).__name__}")


def check_nspace(nspace: str, limit: int = MAX_NSLEN, what: str = "an nspace") -> None:
    """Refuse an nspace of a server or a job that no URI can carry.

    A URI (`nspace.rank;address`) is one line of text and ends its name at a semicolon.
    """
    if not check_name(nspace, limit, what):
        raise ValueError(f"{what} must not be empty")
    if ";" in nspace or not nspace.isprintable():
        raise ValueError(f"{what} cannot be {nspace!r:.80}: it must be printable text without a semicolon")


def identity(what: str, number: int) -> int:
    number = check_integer(number, f"a {what}")
    if not 0 <= number < 2**32:
        raise OverflowError(f"{number} is not a {what}")
    return number


MOMENT = 0.001
"""Seconds; the engine takes 0 for "no limit"."""


class Answer(Generic[R]):
    """The end of a request of the engine, which a thread waits for."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._result: R | None = None
        self._error: BaseException | None = None

    def done(self, result: R | None, error: BaseException | None) -> None:
        self._result, self._error = result, error
        self._ended.set()

    def wait(self, timeout: float | None, operation: str) -> R:
        if not self._ended.wait(timeout):
            raise OperationTimeout(f"there was no answer within {timeout:g} s", operation=operation)
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]
