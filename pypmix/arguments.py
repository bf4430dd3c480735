"""Checks and conversions that the arguments of several calls have in common, for the blocking and the async form."""

from __future__ import annotations

from pypmix.standard import codes, keys
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value, check_number, name_call, read_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pypmix.job import Job
    from pypmix.standard.attr import Attr
    from pypmix.standard.enums import AllocDirective, IOFChannel, Persist, Range, Scope
    from pypmix.standard.errors import PMIxError
    from pypmix.standard.ops import Op
    from pypmix.standard.values import Infos as Infos

    Procs = Proc | Job | int | Iterable[Proc | int] | None
    Key = str | Attr[Any]
    Target = Proc | Job | int | None

TRUE = Value.unchecked(codes.BOOL, True)


INFINITE = float("inf")
LONGEST = 2**31 - 1
"""The most seconds that PMIX_TIMEOUT can have."""

TIMEOUT = "a timeout is a number of seconds"


class Missing:
    """The default of `default`: none was given, so a missing key is an error."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


class _Member(int):
    """A member of an enum as the default of an argument: a rank need not import `enum` for it."""

    def __new__(cls, number: int, name: str) -> _Member:
        made = int.__new__(cls, number)
        made.name = name
        return made

    name: str

    def __repr__(self) -> str:
        return self.name


if TYPE_CHECKING:
    GLOBAL = Scope.GLOBAL
    SESSION = Range.SESSION
    APP = Persist.APP
    NEW = AllocDirective.NEW
    OUTPUT = IOFChannel.STDOUT | IOFChannel.STDERR
else:
    GLOBAL = _Member(3, "Scope.GLOBAL")
    SESSION = _Member(4, "Range.SESSION")
    APP = _Member(3, "Persist.APP")
    NEW = _Member(1, "AllocDirective.NEW")
    OUTPUT = _Member(6, "IOFChannel.STDOUT | IOFChannel.STDERR")


def number_of(member: object, enum: str, example: str) -> int:
    """Return a member of an enum as a plain int, as which it may be given as well.

    Args:
        member: The argument.
        enum: The name of the enum.
        example: A member of it, for the error.

    Raises:
        TypeError: It is not an int, or a member of another enum.
    """
    kind = member.__class__
    if kind is int or kind is _Member or kind.__name__ == enum:
        return int(member)  # type: ignore[call-overload, no-any-return]
    number = None if hasattr(kind, "__members__") else read_integer(member)
    if number is None:
        article = "an" if enum[0] in "AEIO" else "a"
        raise TypeError(f"{name_call()}{article} {enum} is expected, such as {enum}.{example}, not {member!r:.100}")
    return number


class RoundedSeconds(int):
    """A time limit in whole seconds, with the fraction that the caller asked for, for the texts of errors."""

    asked: float


def whole_seconds(timeout: float) -> int:
    """Return a time limit as PMIx counts it: in whole seconds, rounded up."""
    whole = -int(-timeout // 1)
    if whole != timeout:
        whole = RoundedSeconds(whole)
        whole.asked = timeout
    return whole


def explain_rounding(error: PMIxError, op: Op[Any]) -> None:
    """Add to the error of a call that timed out that its limit was rounded up, if it was."""
    for info in getattr(op, "directives", ()):
        limit = info.value.data
        if isinstance(limit, RoundedSeconds):
            text = f"the limit of {limit.asked:g} s was rounded up to {limit} s: PMIx counts whole seconds"
            error.hint = f"{error.hint}; {text}" if error.hint else text


def seconds(timeout: float) -> Info:
    """Return PMIX_TIMEOUT, which counts whole seconds in a C int; a fraction is rounded up.

    Raises:
        TypeError: It is not a number.
        ValueError: It is 0, negative, infinite, not a number, or 2**31 or more.
    """
    timeout = check_number(timeout, TIMEOUT)
    if not 0 < timeout <= LONGEST:
        raise ValueError(f"{name_call()}a timeout must be more than 0 and less than 2**31 seconds, not {timeout}")
    return Info(keys.TIMEOUT, Value.unchecked(codes.INT, whole_seconds(timeout)))


def timed(directives: tuple[Info, ...], timeout: float | None) -> tuple[Info, ...]:
    """Return directives with the time limit of a call, None for no limit."""
    return directives if timeout is None else (*directives, seconds(timeout))


def limit(timeout: float | None) -> float | None:
    """Return the time limit of a wait in this process; None for no limit, or an infinite one.

    Raises:
        TypeError: It is not a number.
        ValueError: It is negative or not a number.
    """
    if timeout is None:
        return None
    timeout = check_number(timeout, TIMEOUT)
    if not timeout >= 0:
        raise ValueError(f"{name_call()}a timeout is a number of seconds from 0 on, not {timeout}")
    # Threads cannot wait for centuries, which amounts to no limit.
    return timeout if timeout < 2**31 else None


def wait_infos(key: str, value: Value, timeout: float | None) -> tuple[Info, ...]:
    """Return the directives of a call that waits only if it is asked to.

    Args:
        key: The key that makes it wait.
        value: Its value.
        timeout: Seconds; None or 0 not to wait, infinity to wait without a limit.
    """
    limit(timeout)
    if not timeout:
        return ()
    waits = Info(key, value)
    return (waits,) if timeout == INFINITE else (waits, seconds(timeout))


def flag(key: str) -> Info:
    """Return a directive that is true."""
    return Info.unchecked(key, TRUE, 0)


def flags(**given: tuple[object, str]) -> tuple[Info, ...]:
    """Return the directives of switches that are on.

    Args:
        given: For each argument its value and the key that it sets.

    Raises:
        TypeError: A value is neither True nor False.
    """
    found = []
    for name, (value, key) in given.items():
        if value is not True and value is not False:
            raise TypeError(f"{name} is True or False, not {value!r:.100}")
        if value:
            found.append(flag(key))
    return tuple(found)


_PLAIN = frozenset((list, tuple, set, frozenset, range))


def ranked(procs: Procs, caller: Proc) -> Procs:
    """Return procs in which ranks, ints, have become procs of the caller's job."""
    if procs is None or isinstance(procs, Proc | str):
        return procs
    if read_integer(procs) is not None:
        return Proc(caller.nspace, procs)  # type: ignore[arg-type]
    if not hasattr(procs, "__iter__"):
        raise TypeError(f"procs are a Proc, a rank, a job, or several of these, not {procs!r:.80}")
    if type(procs) in _PLAIN or not hasattr(procs, "__len__") or hasattr(procs, "dtype"):
        return tuple([Proc(caller.nspace, each) if read_integer(each) is not None else each for each in procs])  # type: ignore[union-attr, arg-type]
    return procs


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


def proc_info(key: str, procs: Procs, single: str = "") -> Info:
    """Return procs as an info: a proc under the key of a single one, several as an array."""
    found = proc_tuple(procs)
    if len(found) == 1:
        return Info(single or key, Value(codes.PROC, found[0]))
    return Info(key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, found)))


def together(procs: Procs) -> tuple[Proc, ...]:
    """Return the participants of a collective; a group is its address, so that all callers name the same procs.

    Groups, connections and sets may be among the procs, too.
    """
    address = getattr(procs, "_address", None)
    if isinstance(address, Proc):
        return (address,)
    found = proc_tuple(procs)
    if all(type(each) is Proc for each in found):
        return found
    named: list[Proc] = []
    for each in found:
        # Other objects are refused by the operation.
        many = not isinstance(each, Proc | str) and hasattr(each, "__iter__")
        named.extend(together(each) if many else (each,))
    return tuple(named)


def target(proc: Target, caller: Proc) -> Proc:
    """Return the proc that a get is about: the caller, a rank of its job, or a whole job."""
    if proc is None:
        return caller
    if isinstance(proc, Proc):
        return proc
    if read_integer(proc) is not None:
        return Proc(caller.nspace, proc)  # type: ignore[arg-type]
    from pypmix.job import Job

    if isinstance(proc, Job):
        return Proc.unchecked(proc.nspace, RANK_WILDCARD)
    raise TypeError(f"a proc is a Proc, a rank of the caller's job, or a Job, not {type(proc).__name__}")


def scope_number(scope: object) -> int:
    """Return a scope as a plain int."""
    return number_of(scope, "Scope", "LOCAL")
