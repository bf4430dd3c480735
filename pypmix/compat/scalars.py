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


def to_text(value: object) -> str:
    """Return a string that was given as str or bytes."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "surrogateescape")
    raise mismatch(f"a string is wanted, not {value!r:.80}")


def from_text(text: str | None) -> str | bytes | None:
    """Return a string in the binding's form: bytes if it is not UTF-8."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def to_key(value: object) -> str:
    """Return a key; refuse a key that is too long, which the official binding would truncate."""
    return _name(value, MAX_KEYLEN, "a key")


def to_nspace(value: object) -> str:
    """Return an nspace."""
    return _name(value, types.MAX_NSLEN, "an nspace")


def _name(value: object, limit: int, what: str) -> str:
    text = to_text(value)
    try:
        return check_name(text, limit, what)
    except (TypeError, ValueError) as error:
        raise refused(str(error)) from error


def optional(value: object) -> str | None:
    """Return a string that may be None."""
    return None if value is None else whole(to_text(value))


def whole(text: str) -> str:
    """Return a string; refuse a string with a NUL, which C would truncate."""
    if "\0" in text:
        raise refused(f"a string ends at its first NUL: {text!r:.80}")
    return text


def member(fields: object, *names: str) -> Any:
    """Return the member of a dict under the first of some names that the dict has."""
    if not isinstance(fields, dict):
        raise refused(f"a dict with {names[0]!r} is wanted, not {fields!r:.80}")
    for name in names:
        if name in fields:
            return fields[name]
    raise refused(f"{names[0]!r} is missing in {fields!r:.80}")


def listed(items: object, what: str) -> Sequence[Any]:
    """Return the items of a list; empty for None."""
    if items is None:
        return ()
    if isinstance(items, list | tuple):
        return items
    raise refused(f"a list of {what} is wanted, not {items!r:.80}")


def to_int(type: int, value: object) -> int:
    """Return a number in the range of a data type."""
    if type in FLAGS and isinstance(value, list | tuple):
        total = 0
        for flag in value:
            total |= to_int(type, flag)
        value = total
    if not isinstance(value, int):
        raise mismatch(f"{type_name(type)} holds an int, not {value!r:.80}")
    low, high = RANGES[type]
    number = int(value)
    if not low <= number <= high:
        raise refused(f"{number} is out of range for {type_name(type)}")
    return number


def to_proc(value: object) -> Proc:
    """Return the proc of `{'nspace': ..., 'rank': ...}`."""
    return Proc.unchecked(to_nspace(member(value, "nspace")), to_int(codes.PROC_RANK, member(value, "rank")))


def from_proc(proc: Proc) -> dict[str, Any]:
    """Return the dict of a proc."""
    return {"nspace": proc.nspace, "rank": int(proc.rank)}


def to_procs(value: object) -> tuple[Proc, ...]:
    """Return the procs of a list of dicts; empty for None."""
    return tuple([to_proc(each) for each in listed(value, "procs")])


def to_whom(value: object, nspace: str) -> tuple[Proc, ...]:
    """Return the procs of a list of dicts; an empty list or None stands for the whole nspace."""
    return to_procs(value) or (Proc.unchecked(nspace, RANK_WILDCARD),)


def from_procs(procs: Iterable[Proc]) -> list[dict[str, Any]]:
    """Return the list of dicts of procs."""
    return [from_proc(proc) for proc in procs]


def to_bytes(value: object) -> bytes:
    """Return the bytes of `{'bytes': ..., 'size': ...}`, of bytes or of a string; empty for None.

    A `size` below the number of bytes takes the first bytes; any other `size` has no effect.
    """
    size: object = None
    if isinstance(value, dict):
        size = value.get("size")
        value = value.get("bytes")
    if value is None:
        return b""
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
    else:
        raise mismatch(f"bytes are wanted, not {value!r:.80}")
    return data[:size] if isinstance(size, int) and 0 <= size < len(data) else data


def from_bytes(data: bytes) -> dict[str, Any]:
    """Return the dict of a byte object."""
    return {"bytes": data, "size": len(data)}
