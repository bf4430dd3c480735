"""Run the calls of the official binding over pypmix: errors become status ints, callbacks run on a separate thread."""

from __future__ import annotations

import functools
import logging
import os
import threading
from queue import SimpleQueue

from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

    from pypmix.client import Client
    from pypmix.compat.asking import Shape
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc

log = logging.getLogger("pypmix.compat")


def status_of(error: BaseException) -> int:
    """Return the status int of an error, and write its text to the log `pypmix.compat`."""
    if isinstance(error, PMIxError):
        log.info("%s", error)
        return error.code or statuses.ERROR
    if isinstance(error, RecursionError):
        log.info("refused: it is nested too deep, or contains itself")
        return statuses.ERR_BAD_PARAM
    if isinstance(error, TypeError | ValueError | OverflowError):
        log.info("refused: %s", error, exc_info=error)
        return statuses.ERR_TYPE_MISMATCH if isinstance(error, TypeError) else statuses.ERR_BAD_PARAM
    log.error("an error that no status stands for", exc_info=error)
    return statuses.ERROR


def attempt(function: Callable[P, R], *args: P.args, **named: P.kwargs) -> tuple[int, R | None]:
    """Call a function; return `PMIX_SUCCESS` and its result, or the status of its error and None."""
    try:
        return statuses.SUCCESS, function(*args, **named)
    except Exception as error:
        return status_of(error), None


class Callbacks:
    """The thread that calls the callbacks of a program, one after the other, in the order in which they were added.

    Here callbacks may block, and an exception is logged with its traceback. The official binding calls them on the
    library's progress thread, and a blocking call there hangs the process.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop the thread and its queue."""
        self._work: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...], Callable[[Exception], object] | None]] = (
            SimpleQueue()
        )
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(
        self, function: Callable[..., object], args: tuple[Any, ...], failed: Callable[[Exception], object] | None
    ) -> None:
        """Schedule a call; if it raises, the exception is logged, and then `failed` is called with it."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="pypmix-compat-callbacks", daemon=True)
                    self._thread.start()
        self._work.put((function, args, failed))

    def is_current(self) -> bool:
        """Return True if the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        work = self._work
        while True:
            function, args, failed = work.get()
            try:
                try:
                    function(*args)
                except Exception:
                    raise
                except BaseException as error:
                    # As on any thread, SystemExit and the like end only the call. The log and `failed` report them.
                    what = "called sys.exit" if isinstance(error, SystemExit) else f"raised {type(error).__name__}"
                    raise RuntimeError(f"a callback {what}") from error
            except Exception as error:
                log.error("the callback %s failed", _name(function), exc_info=error)
                if failed is not None:
                    try:
                        failed(error)
                    except Exception as another:
                        log.error("the failure of %s could not be told", _name(function), exc_info=another)
            # Free the arguments, which may be large, before the wait for the next callback.
            del function, args, failed


def named_after(function: object, call: Callable[..., object]) -> Callable[..., object]:
    """Give `call` the name of the program's function that it calls, for the log."""
    return functools.update_wrapper(call, function, ("__qualname__",), ())  # type: ignore[arg-type]


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


_callbacks = Callbacks()
# A forked child does not inherit threads.
os.register_at_fork(after_in_child=_callbacks.forget)


def callback(function: Callable[..., object], *args: object) -> None:
    """Schedule a callback of the program on the thread for callbacks."""
    _callbacks.put(function, args, None)


def schedule_answer(
    function: Callable[..., object], args: tuple[Any, ...], failed: Callable[[Exception], object]
) -> None:
    """Schedule a callback that must answer a request; if it raises, `failed` answers in its place."""
    _callbacks.put(function, args, failed)


def in_callback() -> bool:
    """Return True if the caller runs in a callback."""
    return _callbacks.is_current()


class Methods:
    """The base of the classes that `PMIxClient` consists of; declares the members of it that they use."""

    if TYPE_CHECKING:
        _fabric: int | None

        def _peer(self) -> Client:
            """Return the client or tool of pypmix that carries out operations."""

        def _me(self) -> Proc:
            """Return the caller's name."""

        def _run(self, op: Op[Any]) -> Any:
            """Carry out an operation and return its result, or raise its error."""

        def _do(self, make: Callable[..., Op[Any]], *args: object) -> int:
            """Carry out an operation without a result; return its status."""

        def _answer(self, shape: Shape, make: Callable[..., Op[Any]], *args: object) -> tuple[int, Any]:
            """Carry out an operation; return its status and value."""

        def _begin(
            self, shape: Shape | None, cbfunc: object, cbdata: object, make: Callable[..., Op[Any]], *args: object
        ) -> int:
            """Start an operation, and schedule `cbfunc` at its end; return the status of the start."""
