"""Turns the arguments of a client's call into an operation, for the blocking and the async form."""

from __future__ import annotations

from pypmix.standard import codes, keys
from pypmix.standard.errors import NotFound, NotInitialized, NotSupported, OperationTimeout, PMIxError
from pypmix.standard.ops import DELETES, Abort, Fence, Get, Put
from pypmix.standard.ops.core import check_key, check_scope
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, TypedKey, Value, at_place
from pypmix.standard.values import from_python, infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn

    from pypmix.engine.base import ClientSession
    from pypmix.job import Job
    from pypmix.standard.attr import Attr
    from pypmix.standard.values import Infos as Infos

    Procs = Proc | Job | int | Iterable[Proc | int] | None
    Key = str | Attr[Any]
    Target = Proc | Job | int | None

_NOTHING = Value.unchecked(codes.UNDEF, None)
_TRUE = Value.unchecked(codes.BOOL, True)


class Missing:
    """The default of `default`: nothing was given, so a missing key is an error."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


class Closed:
    """Stands where the session was before `open` and after `close`, and says so."""

    def __init__(self, reason: str, hint: str = "use `with Client() as me:` or call open()") -> None:
        self._reason = reason
        self._hint = hint

    def __getattr__(self, name: str) -> NoReturn:
        raise NotInitialized(self._reason, operation="client", hint=self._hint)


class Forked(Closed):
    """Stands where the session was in a child of the process that opened it; it still tells who that process is."""

    def __init__(self, session: ClientSession) -> None:
        super().__init__(
            "this process was forked from the one that opened the client, which stays that one's",
            "open a client of its own in the child",
        )
        self.proc = session.proc
        self.singleton = session.singleton
        self.info = session.info
        self.server = session.server


NOT_OPEN = Closed("the client is not open")
CLOSED = Closed("the client is closed")


def seconds(timeout: float) -> Info:
    """Return PMIX_TIMEOUT, which counts whole seconds in a C int; a fraction is rounded up.

    Raises:
        ValueError: It is 0, negative, infinite, not a number, or 2**31 or more: who wants no limit gives none.
    """
    if isinstance(timeout, bool) or not hasattr(timeout, "__float__"):
        raise TypeError(f"a timeout is a number of seconds, not {type(timeout).__name__}")
    if not 0 < timeout <= 2**31 - 1:
        raise ValueError(f"a timeout must be more than 0 and less than 2**31 seconds, not {timeout}")
    return Info(keys.TIMEOUT, Value.unchecked(codes.INT, -int(-timeout // 1)))


def limit(timeout: float | None) -> float | None:
    """Return a time limit of a wait in this process; an infinite one is none.

    Raises:
        ValueError: It is negative or not a number.
    """
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not hasattr(timeout, "__float__"):
        raise TypeError(f"a timeout is a number of seconds, not {type(timeout).__name__}")
    if not timeout >= 0:
        raise ValueError(f"a timeout is a number of seconds from 0 on, not {timeout}")
    # Threads cannot wait for centuries, which amounts to no limit.
    return timeout if timeout < 2**31 else None


_PLAIN = frozenset((list, tuple, set, frozenset, range))


def ranked(procs: Procs, own: Proc) -> Procs:
    """Return procs in which ranks, ints, have become procs of the caller's job."""
    if procs is None or isinstance(procs, Proc | str):
        return procs
    if _is_rank(procs):
        return Proc(own.nspace, procs)  # type: ignore[arg-type]
    if type(procs) in _PLAIN or not hasattr(procs, "__len__") or hasattr(procs, "dtype"):
        return tuple([Proc(own.nspace, each) if _is_rank(each) else each for each in procs])  # type: ignore[union-attr, arg-type]
    return procs


def _is_rank(given: object) -> bool:
    if isinstance(given, int):
        return not isinstance(given, bool)
    return hasattr(given, "__index__") and not hasattr(given, "__len__")


def proc_tuple(procs: Procs) -> tuple[Proc, ...]:
    """Return one proc, a job, or any iterable of procs as a tuple."""
    if procs is None:
        return ()
    if isinstance(procs, Proc):
        return (procs,)
    if isinstance(procs, str):
        raise TypeError(f"procs are Proc objects, not the string {procs!r}: an nspace is Proc(nspace, Rank.WILDCARD)")
    found: tuple[Proc, ...] = tuple(procs)  # type: ignore[arg-type]
    if not found:
        raise ValueError("an empty collection of procs; leave it out to mean all of your job")
    return found


def together(procs: Procs) -> tuple[Proc, ...]:
    """Return whom a collective is among; a group is named as such, so that all who call it mean the same.

    Groups, connections and sets may stand among procs, too.
    """
    address = getattr(procs, "address", None)
    if isinstance(address, Proc):
        return (address,)
    found = proc_tuple(procs)
    if all(type(each) is Proc for each in found):
        return found
    named: list[Proc] = []
    for each in found:
        # What else there is the operation itself refuses.
        many = not isinstance(each, Proc | str) and hasattr(each, "__iter__")
        named.extend(together(each) if many else (each,))
    return tuple(named)


def target(proc: Target, own: Proc) -> Proc:
    """Return the proc that a get is about: the caller, one of its job by rank, or a job as a whole."""
    if proc is None:
        return own
    if isinstance(proc, Proc):
        return proc
    if _is_rank(proc):
        return Proc(own.nspace, proc)  # type: ignore[arg-type]
    from pypmix.job import Job

    if isinstance(proc, Job):
        return Proc.unchecked(proc.nspace, RANK_WILDCARD)
    raise TypeError(f"a proc is a Proc, a rank of the caller's job, or a Job, not {type(proc).__name__}")


def waited(wait: float | bool | None, timeout: float | None) -> float | bool | None:
    """Return for how long to wait, of which `wait` and `timeout` are two forms."""
    if timeout is None:
        return wait
    if wait is None or wait is True:
        return timeout
    raise TypeError("`timeout` and `wait` are two names of one time limit: give one")


def scope_number(scope: object) -> int:
    """Return a scope as a plain int."""
    if not isinstance(scope, int) or isinstance(scope, bool):
        raise TypeError(f"a scope is a member of Scope, such as Scope.LOCAL, not {scope!r:.100}")
    return int(scope)


def put_op(key: Key, value: object, scope: int) -> Put:
    if scope in DELETES:
        if value is not None:
            raise TypeError(f"a key is deleted with the value None, not {value!r:.100}")
        return Put(str(key), _NOTHING, scope_number(scope))
    number = scope if scope.__class__ is int else scope_number(scope)
    check_scope(number)
    try:
        typed = key.value(value) if isinstance(key, TypedKey) else from_python(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise at_place(error, f"put of {str(key)!r:.80}: value") from None
    name = key.key if isinstance(key, TypedKey) else key
    check_key(name)
    return Put.unchecked(name, typed, number)


_BARRIER = Fence()
_EXCHANGE = Fence(collect=True)


def fence_op(procs: Procs, collect: bool, timeout: float | None, info: Infos) -> Fence:
    if procs is None and timeout is None and not info:
        return _EXCHANGE if collect else _BARRIER
    directives = infos(info)
    if timeout is not None:
        directives += (seconds(timeout),)
    return Fence(together(procs), bool(collect), directives)


def get_op(
    proc: Proc,
    key: Key,
    wait: float | bool | None,
    optional: bool,
    scope: int | None,
    info: Infos,
) -> Get:
    directives = infos(info)
    if wait is False or wait == 0 and wait is not None:
        directives += (Info(keys.IMMEDIATE, _TRUE),)
    elif wait is not None and wait is not True:
        directives += (seconds(wait),)
    if optional:
        directives += (Info(keys.OPTIONAL, _TRUE),)
    if scope is not None:
        directives += (Info(keys.DATA_SCOPE, Value(codes.SCOPE, scope_number(scope))),)
    return Get(proc, str(key) if isinstance(key, TypedKey) else key, directives)


def anew(session: ClientSession, proc: Target, info: Infos) -> tuple[Info, ...]:
    """Return the directives of a get that asks the server again.

    Raises:
        NotSupported: The library keeps what it has read, or the server does not know of the wish.
    """
    whose = target(proc, session.proc)
    if whose != session.proc and not session.supports("get.refresh"):
        raise NotSupported(
            "a value that was read before cannot be asked for anew here",
            operation="get",
            procs=(whose,),
            engine=str(session.info),
            job=session.proc.nspace,
            hint="use a new key for each value, or PYPMIX_ENGINE=python; `supports('get.refresh')` tells",
        )
    return (*infos(info), Info(keys.GET_REFRESH_CACHE, _TRUE))


def not_found(op: Get, wait: float | bool | None, error: PMIxError) -> PMIxError:
    """Return the error of a get: who asked for no waiting is told that the key was not found, not of a timeout."""
    if wait is not None or not isinstance(error, OperationTimeout):
        return error
    if any(item.key == keys.TIMEOUT for item in op.directives):
        return error
    return NotFound(
        f"there is no {op.key!r} (the server gave up waiting for it)",
        operation="get",
        procs=(op.proc,),
        engine=error.engine,
        job=error.job,
        hint=error.hint or "was it put and committed? timeout=SECONDS waits for it",
    )


def abort_op(code: int, message: str, procs: Procs) -> Abort:
    return Abort(code, message, proc_tuple(procs))
