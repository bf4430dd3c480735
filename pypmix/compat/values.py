"""Conversion of the dicts of the Standard's Python bindings to pypmix's typed values and back, without any alteration.

A failed conversion raises only `PMIxError`, with the status of the official binding: `ERR_TYPE_MISMATCH` for a value of
another kind than its type requires, `ERR_BAD_PARAM` for a value out of range or a dict of another shape,
`ERR_NOT_SUPPORTED` for a type that has no form in Python. All strings may be given as bytes, as in programs for the
binding of 4.2.
"""

from __future__ import annotations

import logging
from functools import partial

from pypmix.compat.scalars import (
    from_bytes,
    from_proc,
    from_text,
    listed,
    member,
    mismatch,
    optional,
    refused,
    to_bytes,
    to_int,
    to_key,
    to_nspace,
    to_proc,
    to_text,
    whole,
)
from pypmix.compat.structures import (
    LAYOUTS,
    from_coord,
    from_cpuset,
    from_geometry,
    from_record,
    from_regattr,
    from_regex2,
    from_topology,
    to_coord,
    to_cpuset,
    to_geometry,
    to_record,
    to_regattr,
    to_regex2,
    to_topology,
)
from pypmix.standard import codes, statuses, types
from pypmix.standard.record import Record
from pypmix.standard.types import RANGES, RECORDS, DataArray, Info, Proc, Value, check, type_name
from pypmix.standard.values import to_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

log = logging.getLogger("pypmix.compat")

COMPRESSED = {codes.COMPRESSED_STRING: codes.STRING, codes.COMPRESSED_BYTE_OBJECT: codes.BYTE_OBJECT}
"""The types to which libraries convert large values, and the original types."""


def _to_bool(given: object) -> bool:
    if isinstance(given, str) and given[:1] in ("t", "T", "f", "F") and given[:1]:
        return given[0] in "tT"
    if isinstance(given, int | float) and given in (0, 1):
        return bool(given)
    raise refused(f"BOOL holds True or False, not {given!r:.80}")


def _to_byte(given: object) -> int:
    if isinstance(given, bytes | bytearray) and len(given) == 1:
        return given[0]
    return to_int(codes.BYTE, given)


def _to_float(type: int, given: object) -> float:
    if not isinstance(given, int | float | str):
        raise mismatch(f"{type_name(type)} holds a float, not {given!r:.80}")
    try:
        return float(check(type, float(given)))
    except OverflowError as error:
        raise refused(str(error)) from error
    except ValueError as error:
        raise mismatch(str(error)) from error


def to_regex(given: object) -> bytes:
    """Return a regular expression of names, as bytes."""
    return to_bytes(given)


def _from_buffer(data: bytes) -> dict[str, Any]:
    return {"bytes": data, "bytes_used": len(data), "bytes_unpacked": 0}


def to_array(given: object) -> DataArray:
    """Return the array of `{'type': ..., 'array': [...]}`."""
    kind = to_int(codes.DATA_TYPE, member(given, "type"))
    items = member(given, "array")
    if not isinstance(items, list | tuple):
        raise mismatch(f"an array is a list, not {items!r:.80}")
    if _plain(kind, items):
        return DataArray(kind, tuple(items))
    return DataArray(kind, tuple([to_data(kind, item) for item in items]))


def _plain(kind: int, items: Sequence[Any]) -> bool:
    """Return True if all items are numbers in the range of their type, which need no conversion."""
    # A fast path, since an array may have many items.
    if kind == codes.DOUBLE:
        return set(map(type, items)) == {float}
    bounds = RANGES.get(kind)
    if bounds is None or kind == codes.POINTER or set(map(type, items)) != {int}:
        return False
    return bool(bounds[0] <= min(items) and max(items) <= bounds[1])


def from_array(found: DataArray) -> dict[str, Any]:
    """Return the dict of an array."""
    kind, items = int(found.type), found.items
    return {"type": kind, "array": list(items) if _plain(kind, items) else [from_data(kind, item) for item in items]}


def to_value(given: object) -> Value:
    """Return the value of `{'value': ..., 'val_type': ...}`."""
    kind = to_int(codes.DATA_TYPE, member(given, "val_type"))
    return Value.unchecked(kind, to_data(kind, member(given, "value")))


def from_value(value: Value) -> dict[str, Any]:
    """Return the dict of a value; a compressed value is returned uncompressed, as by libpmix."""
    if value.type in COMPRESSED:
        try:
            value = Value(COMPRESSED[value.type], to_python(value))
        except ValueError as error:
            log.info("a value is shown as it came: %s", error)
    return {"value": from_data(value.type, value.data), "val_type": int(value.type)}


def to_info(given: object) -> Info:
    """Return the info of `{'key', 'flags', 'value', 'val_type'}`; `flags` is optional."""
    flags = given.get("flags") if isinstance(given, dict) else None
    number = 0 if flags is None else to_int(codes.INFO_DIRECTIVES, flags)
    return Info.unchecked(to_key(member(given, "key")), to_value(given), number)


def from_info(info: Info) -> dict[str, Any]:
    """Return the dict of an info."""
    return {"key": str(info.key), "flags": int(info.flags), **from_value(info.value)}


def to_infos(given: object) -> tuple[Info, ...]:
    """Return the infos of a list of dicts; none for None."""
    return tuple([to_info(each) for each in listed(given, "infos")])


def from_infos(infos: Iterable[Info]) -> list[dict[str, Any]]:
    """Return the list of dicts of infos."""
    return [from_info(info) for info in infos]


def to_pdata(given: object) -> types.Pdata:
    """Return the published value of `{'proc', 'key', 'value', 'val_type'}`."""
    return types.Pdata(to_proc(member(given, "proc")), to_key(member(given, "key")), to_value(given))


def from_pdata(found: types.Pdata) -> dict[str, Any]:
    """Return the dict of a published value."""
    return {"key": str(found.key), "proc": from_proc(found.proc), **from_value(found.value)}


def to_keys(given: object) -> tuple[str, ...]:
    """Return the keys of a list of strings; none for None."""
    return tuple([to_key(each) for each in listed(given, "keys")])


def to_query(given: object) -> types.Query:
    """Return the query of `{'keys': [...], 'qualifiers': [...]}`."""
    given = {"qualifiers": None} | given if isinstance(given, dict) else given
    return types.Query(to_keys(member(given, "keys")), to_infos(member(given, "qualifiers")))


def from_query(found: types.Query) -> dict[str, Any]:
    """Return the dict of a query."""
    return {"keys": [str(key) for key in found.keys], "qualifiers": from_infos(found.qualifiers)}


def to_queries(given: object) -> tuple[types.Query, ...]:
    """Return the queries of a list of dicts; none for None."""
    return tuple([to_query(each) for each in listed(given, "queries")])


def from_queries(found: Iterable[types.Query]) -> list[dict[str, Any]]:
    """Return the list of dicts of queries."""
    return [from_query(each) for each in found]


def to_app(given: object) -> types.App:
    """Return the application of `{'cmd', 'argv', 'env', 'cwd', 'maxprocs', 'info'}`; only `cmd` is needed."""
    given = {"argv": None, "env": None, "cwd": None, "maxprocs": 1, "info": None} | _dict(given, "cmd")
    command = whole(to_text(given["cmd"]))
    words = [whole(to_text(word)) for word in listed(given["argv"], "words")]
    return types.App(
        command,
        tuple(words) or (command,),
        tuple([whole(to_text(word)) for word in listed(given["env"], "words")]),
        optional(given["cwd"]),
        to_int(codes.INT, given["maxprocs"]),
        to_infos(given["info"]),
    )


def _dict(given: object, *names: str) -> dict[str, Any]:
    for name in names:
        member(given, name)
    return dict(given)  # type: ignore[call-overload, no-any-return]


def from_app(found: types.App) -> dict[str, Any]:
    """Return the dict of an application."""
    return {
        "cmd": from_text(found.cmd),
        "argv": [from_text(word) for word in found.argv],
        "env": [from_text(word) for word in found.env],
        "cwd": from_text(found.cwd),
        "maxprocs": found.maxprocs,
        "info": from_infos(found.info),
    }


def to_apps(given: object) -> tuple[types.App, ...]:
    """Return the applications of a list of dicts; none for None."""
    return tuple([to_app(each) for each in listed(given, "applications")])


def from_apps(found: Iterable[types.App]) -> list[dict[str, Any]]:
    """Return the list of dicts of applications."""
    return [from_app(each) for each in found]


def _to_string(given: object) -> str | None:
    return None if given is None else whole(to_text(given))


def to_data(type: int, given: object) -> Any:
    """Return the data that a value of a data type holds.

    Raises:
        PMIxError: The type has no such value.
    """
    if type in RANGES and type not in _TO:
        return to_int(type, given)
    convert = _TO.get(type)
    if convert is None:
        raise refused(f"{type_name(type)} has no form in Python", statuses.ERR_NOT_SUPPORTED)
    return convert(given)


def from_data(type: int, data: Any) -> Any:
    """Return the form that the binding gives to the data of a value."""
    convert = _FROM.get(type)
    if convert is not None:
        return convert(data)
    if isinstance(data, int) and not isinstance(data, bool):
        return int(data)
    if isinstance(data, Record):
        # Statistics, which the binding has no form for: their fields by name.
        return {field: from_data(codes.UNDEF, getattr(data, field)) for field in data.__fields__}  # type: ignore[attr-defined]
    if isinstance(data, Proc):
        return from_proc(data)
    if isinstance(data, tuple):
        return [from_data(codes.UNDEF, item) for item in data]
    return data


def _refuse_pointer(given: object) -> int:
    raise refused("an address means nothing to another process", statuses.ERR_NOT_SUPPORTED)


_TO: dict[int, Callable[[object], Any]] = {
    **{code: partial(to_record, cls) for code, cls in RECORDS.items() if cls in LAYOUTS},
    codes.BOOL: _to_bool,
    codes.BYTE: _to_byte,
    codes.STRING: _to_string,
    codes.FLOAT: lambda given: _to_float(codes.FLOAT, given),
    codes.DOUBLE: lambda given: _to_float(codes.DOUBLE, given),
    codes.VALUE: to_value,
    codes.PROC: to_proc,
    codes.APP: to_app,
    codes.INFO: to_info,
    codes.PDATA: to_pdata,
    codes.BYTE_OBJECT: to_bytes,
    codes.POINTER: _refuse_pointer,
    codes.DATA_ARRAY: to_array,
    codes.QUERY: to_query,
    codes.COORD: to_coord,
    codes.REGATTR: to_regattr,
    codes.REGEX: to_regex,
    codes.PROC_CPUSET: to_cpuset,
    codes.GEOMETRY: to_geometry,
    codes.TOPO: to_topology,
    codes.PROC_NSPACE: to_nspace,
    codes.DATA_BUFFER: to_bytes,
    codes.REGEX2: to_regex2,
}

_FROM: dict[int, Callable[[Any], Any]] = {
    **dict.fromkeys([code for code, cls in RECORDS.items() if cls in LAYOUTS], from_record),
    codes.STRING: from_text,
    codes.VALUE: from_value,
    codes.PROC: from_proc,
    codes.APP: from_app,
    codes.INFO: from_info,
    codes.PDATA: from_pdata,
    codes.BYTE_OBJECT: from_bytes,
    codes.DATA_ARRAY: from_array,
    codes.QUERY: from_query,
    codes.COORD: from_coord,
    codes.REGATTR: from_regattr,
    codes.PROC_CPUSET: from_cpuset,
    codes.GEOMETRY: from_geometry,
    codes.TOPO: from_topology,
    codes.DATA_BUFFER: _from_buffer,
    codes.REGEX2: from_regex2,
}
