"""Strings, numbers, bytes and procs of the official binding, and the members of its dicts; errors have its statuses."""

from __future__ import annotations

from pypmix.standard import codes, statuses, types
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import MAX_KEYLEN, RANGES, RANK_WILDCARD, Proc, check_name, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

FLAGS = frozenset({codes.INFO_DIRECTIVES, codes.IOF_CHANNEL, codes.LOCTYPE, codes.DEVTYPE})
"""The types of flags: a value is a list of flags, as in the Standard's appendix, or their sum, as in the binding."""


def refused(what: str, status: int = statuses.ERR_BAD_PARAM) -> PMIxError:
    """Return the error of an argument that cannot be converted."""
    return PMIxError(what, status=status, operation="compat")


def mismatch(what: str) -> PMIxError:
    """Return the error of a value of another kind than its type requires."""
    return refused(what, statuses.ERR_TYPE_MISMATCH)


def to_text(given: object) -> str:
    """Return a string that was given as str or bytes."""
    if isinstance(given, str):
        return str(given)
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given).decode("utf-8", "surrogateescape")
    raise mismatch(f"a string is wanted, not {given!r:.80}")


def from_text(text: str | None) -> str | bytes | None:
    """Return a string in the binding's form: bytes if it is not UTF-8."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def to_key(given: object) -> str:
    """Return a key; refuse a key that is too long, which the official binding would truncate."""
    return _name(given, MAX_KEYLEN, "a key")


def to_nspace(given: object) -> str:
    """Return an nspace."""
    return _name(given, types.MAX_NSLEN, "an nspace")


def _name(given: object, limit: int, what: str) -> str:
    text = to_text(given)
    try:
        return check_name(text, limit, what)
    except (TypeError, ValueError) as error:
        raise refused(str(error)) from error


def optional(given: object) -> str | None:
    """Return a string that may be None."""
    return None if given is None else whole(to_text(given))


def whole(text: str) -> str:
    """Return a string; refuse a string with a NUL, which C would truncate."""
    if "\0" in text:
        raise refused(f"a string ends at its first NUL: {text!r:.80}")
    return text


def member(given: object, *names: str) -> Any:
    """Return the member of a dict under the first of some names that the dict has."""
    if not isinstance(given, dict):
        raise refused(f"a dict with {names[0]!r} is wanted, not {given!r:.80}")
    for name in names:
        if name in given:
            return given[name]
    raise refused(f"{names[0]!r} is missing in {given!r:.80}")


def listed(given: object, what: str) -> Sequence[Any]:
    """Return the items of a list; empty for None."""
    if given is None:
        return ()
    if isinstance(given, list | tuple):
        return given
    raise refused(f"a list of {what} is wanted, not {given!r:.80}")


def to_int(type: int, given: object) -> int:
    """Return a number in the range of a data type."""
    if type in FLAGS and isinstance(given, list | tuple):
        total = 0
        for flag in given:
            total |= to_int(type, flag)
        given = total
    if not isinstance(given, int):
        raise mismatch(f"{type_name(type)} holds an int, not {given!r:.80}")
    low, high = RANGES[type]
    number = int(given)
    if not low <= number <= high:
        raise refused(f"{number} is out of range for {type_name(type)}")
    return number


def to_proc(given: object) -> Proc:
    """Return the proc of `{'nspace': ..., 'rank': ...}`."""
    return Proc.unchecked(to_nspace(member(given, "nspace")), to_int(codes.PROC_RANK, member(given, "rank")))


def from_proc(proc: Proc) -> dict[str, Any]:
    """Return the dict of a proc."""
    return {"nspace": proc.nspace, "rank": int(proc.rank)}


def to_procs(given: object) -> tuple[Proc, ...]:
    """Return the procs of a list of dicts; empty for None."""
    return tuple([to_proc(each) for each in listed(given, "procs")])


def to_whom(given: object, nspace: str) -> tuple[Proc, ...]:
    """Return the procs of a list of dicts; an empty list or None stands for the whole nspace."""
    return to_procs(given) or (Proc.unchecked(nspace, RANK_WILDCARD),)


def from_procs(procs: Iterable[Proc]) -> list[dict[str, Any]]:
    """Return the list of dicts of procs."""
    return [from_proc(proc) for proc in procs]


def to_bytes(given: object) -> bytes:
    """Return the bytes of `{'bytes': ..., 'size': ...}`, of bytes or of a string; empty for None.

    A `size` below the number of bytes takes the first bytes; any other `size` has no effect.
    """
    size: object = None
    if isinstance(given, dict):
        size = given.get("size")
        given = given.get("bytes")
    if given is None:
        return b""
    if isinstance(given, str):
        data = given.encode("utf-8", "surrogateescape")
    elif isinstance(given, bytes | bytearray | memoryview):
        data = bytes(given)
    else:
        raise mismatch(f"bytes are wanted, not {given!r:.80}")
    return data[:size] if isinstance(size, int) and 0 <= size < len(data) else data


def from_bytes(data: bytes) -> dict[str, Any]:
    """Return the dict of a byte object."""
    return {"bytes": data, "size": len(data)}
