"""Internal errors of pypmix: each is logged and fails its operation, and all others continue."""

from __future__ import annotations

from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Done


def fault(what: str, error: BaseException) -> PMIxError:
    """Log an internal error with its traceback; return the error for the affected callers.

    Args:
        what: The failed action, such as "the answer to a fence".
        error: The exception.
    """
    from logging import getLogger

    getLogger("pypmix.faults").error("%s failed because of a fault in pypmix", what, exc_info=error)
    failure = PMIxError(
        f"{what} failed because of a fault in pypmix: {type(error).__name__}: {error}",
        hint="the log `pypmix.faults` has the traceback; please report it",
    )
    failure.__cause__ = error
    return failure


def traced(error: BaseException) -> str:
    """Return an exception with its traceback, as text for a log."""
    from traceback import format_exception

    return "".join(format_exception(error)).rstrip()


def struck(error: BaseException) -> bool:
    """Return True if an exception was raised by a signal handler, which may interrupt any code.

    Such an exception belongs to the program: it reaches the caller of the interrupted wait, which can be repeated. Any
    other exception is a fault of pypmix: it is logged and fails one operation, and the connection stays open for the
    operations of other threads and tasks. Ending the connection for both would need no distinction, but then one
    broken call, or the time limit of a test, would end all others of the process.
    """
    # Python calls a handler with the interrupted frame; a handler in C, such as that of Ctrl-C, raises no `Exception`.
    if not isinstance(error, Exception):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        code = trace.tb_next.tb_frame.f_code
        local = trace.tb_next.tb_frame.f_locals
        if any(local.get(name) is trace.tb_frame for name in code.co_varnames[: code.co_argcount]):
            return True
        trace = trace.tb_next
    return False


class Steps:
    """Assigns the steps of a session's groups to operations, so that an internal error fails only its operation.

    Args:
        fail: Fails the operation of a key with an error; all operations in progress if the key is None.
    """

    def __init__(self, fail: Callable[[object, PMIxError], None]) -> None:
        self._fail = fail
        self._whose: object = None

    def begin(self, whose: object, step: Callable[..., None], *arguments: object) -> None:
        """Take a step of an operation."""
        before, self._whose = self._whose, whose
        try:
            step(*arguments)
        except Exception as error:
            if struck(error):
                raise
            self._fail(whose, fault("an operation on groups", error))
        finally:
            self._whose = before

    def failed(self, error: Exception) -> None:
        """Handle an error in a step without an operation, such as the handling of an event."""
        self._fail(None, fault("a step of the groups", error))

    def make_callback(self, done: Done[object]) -> Done[object]:
        """Return a callback for the end of an operation that is a part of the present one."""
        whose = self._whose
        return lambda result, error: self.begin(whose, done, result, error)

    def later(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return a timer's callback that counts as a step of the present operation."""
        whose = self._whose
        return lambda: self.begin(whose, call)
