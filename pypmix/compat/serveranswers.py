"""A program's answers to the upcalls of its server module: completion functions, and the handlers' return values.

Programs of three generations are supported, by the number of arguments of their handlers. Handlers for the master of
OpenPMIx take `(args, cbfunc, cbdata)`, and return a status that says whether `cbfunc` will be called with the answer.
Handlers for its releases 4.2 and 5.0, and for the Standard's appendix, take only `args`, and return a status or a tuple
of a status and results.
"""

from __future__ import annotations

import inspect
import itertools
import logging

from pypmix.compat.running import schedule_answer
from pypmix.compat.scalars import to_bytes, to_proc, to_text
from pypmix.compat.values import to_infos, to_pdata
from pypmix.standard import statuses
from pypmix.standard.errors import SUCCESSES, PMIxError, error_for
from pypmix.standard.ops import Credential
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Upcall

log = logging.getLogger("pypmix.compat")

APART = 0
"""The arity of a fence handler as in the appendix's example: it takes procs, directives and data instead of a dict."""

PERMITTED = [
    "clientconnected",
    "clientfinalized",
    "abort",
    "fencenb",
    "directmodex",
    "publish",
    "lookup",
    "unpublish",
    "spawn",
    "connect",
    "disconnect",
    "registerevents",
    "deregisterevents",
    "listener",
    "notifyevent",
    "notify_event",
    "query",
    "toolconnected",
    "log",
    "allocate",
    "jobcontrol",
    "monitor",
    "getcredential",
    "validatecredential",
    "iofpull",
    "pushstdin",
    "group",
    "fabric",
    "clientconnected2",
    "toolconnected2",
    "log2",
    "sessioncontrol",
    "resourceblock",
]
"""The keys of a server module; `notify_event` is the name of `notifyevent` in 4.2 and 5.0."""

pmixservermodule: dict[str, Any] = {}
"""The last registered handlers of all servers, as in the official binding."""


def setmodulefn(key: object, function: object) -> int:
    """Register a handler of a server module; returns a status."""
    if key not in PERMITTED or not callable(function):
        return statuses.ERR_BAD_PARAM
    pmixservermodule[str(key)] = function
    return statuses.SUCCESS


class Handler:
    """A program's handler of an upcall.

    Args:
        key: The handler's key in the server module.
        function: The function.

    Attributes:
        arity: The number of arguments to call it with: 3, 2 or 1, or `APART`.
    """

    def __init__(self, key: str, function: Callable[..., Any]) -> None:
        self.key = key
        self.function = function
        self.arity = _arity(key, function)

    def arguments(self, args: dict[str, Any], complete: Callable[..., None], cbdata: object) -> tuple[Any, ...]:
        """Return the arguments to call the function with."""
        first: Any = args
        # In the appendix `clientconnected2` takes the proc and its directives.
        if self.key == "clientconnected" or (self.key == "clientconnected2" and self.arity != 3):
            first = args["proc"]
        if self.arity == 3:
            return first, complete, cbdata
        if self.arity == 2:
            return first, args.get("queries", args.get("directives", []))
        if self.arity == APART:
            return args["procs"], args["directives"], args["data"]
        return (first,)


def _arity(key: str, function: Callable[..., Any]) -> int:
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 3
    named = [each for each in given if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if any(each.kind == each.VAR_POSITIONAL for each in given):
        return 3
    if key == "fencenb" and [each.name for each in named] == ["procs", "directives", "data"]:
        return APART
    needed = len([each for each in named if each.default is each.empty])
    return 3 if needed > 2 or (needed < 1 and len(named) > 2) else max(needed, 1)


class PendingUpcall:
    """An upcall that is passed to a handler, and answered once.

    Args:
        row: The kind of the upcall.
        upcall: The upcall.
        on_end: Called when the upcall is answered.
    """

    __slots__ = ("_ended", "row", "token", "upcall")

    def __init__(self, row: Row, upcall: Upcall, on_end: Callable[[PendingUpcall], None]) -> None:
        self.row = row
        self.upcall = upcall
        self.token = next(_tokens)
        self._ended = on_end
        _open[self.token] = self

    @property
    def open(self) -> bool:
        """Whether the upcall has not been answered or dropped."""
        return self.token in _open

    def drop(self) -> None:
        """Drop the upcall: ignore a later answer."""
        _open.pop(self.token, None)

    def begin(self, handler: Handler) -> None:
        """Schedule the call of the handler, on the thread of the program's callbacks."""

        def call() -> None:
            if self.open:
                cbdata = {"cbdata": self.token, "cbfunc": id(self)}
                args = self.row.args(self.upcall.op, self.upcall)
                self._returned(handler, handler.function(*handler.arguments(args, self.row.complete, cbdata)))

        call.__qualname__ = getattr(handler.function, "__qualname__", handler.key)
        schedule_answer(call, (), lambda _error: self.settle(statuses.ERROR, ()))

    def _returned(self, handler: Handler, value: Any) -> None:
        if isinstance(value, tuple) and value and isinstance(value[0], int):
            self.settle(value[0], value[1:])
        elif isinstance(value, int):
            if value != statuses.SUCCESS or handler.arity != 3 or self.row.done:
                self.settle(value, ())
        elif value is None and (self.row.void or not self.open):
            if handler.arity != 3:
                self.settle(statuses.SUCCESS, ())
        else:
            log.error("the handler %r returned %r, and not a status: it counts as PMIX_ERROR", handler.key, value)
            self.settle(statuses.ERROR, ())

    def settle(self, status: Any, values: tuple[Any, ...]) -> bool:
        """Answer the upcall; return False if it was already answered or dropped."""
        if _open.pop(self.token, None) is None:
            return False
        self._ended(self)
        number = int(status) if isinstance(status, int) else statuses.ERR_BAD_PARAM
        name = self.row.keys[0]
        if number not in SUCCESSES and number != statuses.ERR_PARTIAL_SUCCESS:
            self.upcall.fail(error_for(number)(f"the host's {name!r} refuses", status=number, operation=name))
            return True
        try:
            result = self.row.result(*values) if values else self.row.nothing
        except (PMIxError, TypeError) as error:
            log.error("the host's %r was answered with %r, which is not a result of it: %s", name, values, error)
            status = error.code if isinstance(error, PMIxError) else statuses.ERR_BAD_PARAM
            self.upcall.fail(PMIxError("the host's answer makes no sense", status=status, operation=name))
        else:
            self.upcall.reply(result)
        return True


_open: dict[int, PendingUpcall] = {}
_tokens = itertools.count(1)


def _complete(status: Any, args: tuple[Any, ...]) -> None:
    """Answer an upcall; the last item of `given` is its `cbdata`."""
    cbdata = args[-1] if args else None
    asked = _open.get(cbdata.get("cbdata", 0)) if isinstance(cbdata, dict) else None
    if asked is None or not asked.settle(status, args[:-1]):
        log.warning("an unknown upcall, or one that has its answer, was answered: %r", cbdata, stack_info=True)


def pypmix_op_cbfunc(status: int, *given: Any) -> None:
    """Complete an upcall that has no result: `(status, cbdata)`."""
    _complete(status, given[-1:])


def pypmix_info_cbfunc(status: int, *given: Any) -> None:
    """Complete an upcall with infos: `(status, infos, cbdata)`."""
    _complete(status, given)


def pypmix_modex_cbfunc(status: int, *given: Any) -> None:
    """Complete a fence or a direct modex: `(status, data, cbdata)`."""
    _complete(status, given)


def pypmix_lookup_cbfunc(status: int, *given: Any) -> None:
    """Complete a lookup: `(status, published, cbdata)`."""
    _complete(status, given)


def pypmix_spawn_cbfunc(status: int, *given: Any) -> None:
    """Complete a spawn: `(status, nspace, cbdata)`."""
    _complete(status, given)


def pypmix_tool_connection_cbfunc(status: int, *given: Any) -> None:
    """Complete the connection of a tool: `(status, proc, cbdata)`."""
    _complete(status, given)


def pypmix_credential_cbfunc(status: int, *given: Any) -> None:
    """Complete a request for a credential: `(status, credential, infos, cbdata)`."""
    _complete(status, given)


def pypmix_validation_cbfunc(status: int, *given: Any) -> None:
    """Complete the validation of a credential: `(status, credential, infos, cbdata)`, or without the credential."""
    _complete(status, given)


# Converters of the values before `cbdata` to the result of an operation.


def no_result(*_values: Any) -> None:
    """Return None, for an operation without a result."""


def infos_result(infos: Any, *_more: Any) -> Any:
    """Return infos."""
    return to_infos(infos)


def data_result(data: Any, *_more: Any) -> bytes:
    """Return bytes."""
    return to_bytes(data)


def pdata_result(published: Any, *_more: Any) -> Any:
    """Return published values."""
    return tuple([to_pdata(each) for each in published or ()])


def nspace_result(nspace: Any, *_more: Any) -> str:
    """Return the nspace of a new job."""
    return to_text(nspace)


def proc_result(proc: Any, *_more: Any) -> Any:
    """Return the name of a tool; None lets the server choose it."""
    return None if proc is None else to_proc(proc)


def credential_result(credential: Any, infos: Any = None, *_more: Any) -> Credential:
    """Return a credential."""
    return Credential(to_bytes(credential), to_infos(infos))


def validation_result(*values: Any) -> Any:
    """Return the claims of a credential."""
    return to_infos(values[-1])


class Row(Record):
    """A kind of upcall.

    Attributes:
        keys: The keys of possible handlers; the first that the server module has is called.
        args: Makes the dict for the handler from the operation and the upcall.
        complete: The completion function that is passed to the handler.
        result: Converts the handler's values to the result of the operation.
        nothing: The result if the handler returns no values.
        void: Whether the handler may return None.
        done: Whether the upcall is answered when the handler returns `PMIX_SUCCESS`.
        free: Whether the upcall succeeds without a handler.
    """

    keys: tuple[str, ...]
    args: Callable[[Any, Upcall], dict[str, Any]]
    complete: Callable[..., None] = pypmix_op_cbfunc
    result: Callable[..., Any] = no_result
    nothing: Any = None
    void: bool = False
    done: bool = False
    free: bool = False
