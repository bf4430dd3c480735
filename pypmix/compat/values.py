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


def _to_bool(value: object) -> bool:
    if isinstance(value, str) and value[:1] in ("t", "T", "f", "F") and value[:1]:
        return value[0] in "tT"
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise refused(f"BOOL holds True or False, not {value!r:.80}")


def _to_byte(value: object) -> int:
    if isinstance(value, bytes | bytearray) and len(value) == 1:
        return value[0]
    return to_int(codes.BYTE, value)


def _to_float(type: int, value: object) -> float:
    if not isinstance(value, int | float | str):
        raise mismatch(f"{type_name(type)} holds a float, not {value!r:.80}")
    try:
        return float(check(type, float(value)))
    except OverflowError as error:
        raise refused(str(error)) from error
    except ValueError as error:
        raise mismatch(str(error)) from error


def to_regex(value: object) -> bytes:
    """Return a regular expression of names, as bytes."""
    return to_bytes(value)


def _from_buffer(data: bytes) -> dict[str, Any]:
    return {"bytes": data, "bytes_used": len(data), "bytes_unpacked": 0}


def to_array(value: object) -> DataArray:
    """Return the array of `{'type': ..., 'array': [...]}`."""
    kind = to_int(codes.DATA_TYPE, member(value, "type"))
    items = member(value, "array")
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


def from_array(array: DataArray) -> dict[str, Any]:
    """Return the dict of an array."""
    kind, items = int(array.type), array.items
    return {"type": kind, "array": list(items) if _plain(kind, items) else [from_data(kind, item) for item in items]}


def to_value(value: object) -> Value:
    """Return the value of `{'value': ..., 'val_type': ...}`."""
    kind = to_int(codes.DATA_TYPE, member(value, "val_type"))
    return Value.unchecked(kind, to_data(kind, member(value, "value")))


def from_value(value: Value) -> dict[str, Any]:
    """Return the dict of a value; a compressed value is returned uncompressed, as by libpmix."""
    if value.type in COMPRESSED:
        try:
            value = Value(COMPRESSED[value.type], to_python(value))
        except ValueError as error:
            log.info("a value is shown as it came: %s", error)
    return {"value": from_data(value.type, value.data), "val_type": int(value.type)}


def to_info(value: object) -> Info:
    """Return the info of `{'key', 'flags', 'value', 'val_type'}`; `flags` is optional."""
    flags = value.get("flags") if isinstance(value, dict) else None
    number = 0 if flags is None else to_int(codes.INFO_DIRECTIVES, flags)
    return Info.unchecked(to_key(member(value, "key")), to_value(value), number)


def from_info(info: Info) -> dict[str, Any]:
    """Return the dict of an info."""
    return {"key": str(info.key), "flags": int(info.flags), **from_value(info.value)}


def to_infos(value: object) -> tuple[Info, ...]:
    """Return the infos of a list of dicts; none for None."""
    return tuple([to_info(each) for each in listed(value, "infos")])


def from_infos(infos: Iterable[Info]) -> list[dict[str, Any]]:
    """Return the list of dicts of infos."""
    return [from_info(info) for info in infos]


def to_pdata(value: object) -> types.Pdata:
    """Return the published value of `{'proc', 'key', 'value', 'val_type'}`."""
    return types.Pdata(to_proc(member(value, "proc")), to_key(member(value, "key")), to_value(value))


def from_pdata(pdata: types.Pdata) -> dict[str, Any]:
    """Return the dict of a published value."""
    return {"key": str(pdata.key), "proc": from_proc(pdata.proc), **from_value(pdata.value)}


def to_keys(value: object) -> tuple[str, ...]:
    """Return the keys of a list of strings; none for None."""
    return tuple([to_key(each) for each in listed(value, "keys")])


def to_query(value: object) -> types.Query:
    """Return the query of `{'keys': [...], 'qualifiers': [...]}`."""
    value = {"qualifiers": None} | value if isinstance(value, dict) else value
    return types.Query(to_keys(member(value, "keys")), to_infos(member(value, "qualifiers")))


def from_query(query: types.Query) -> dict[str, Any]:
    """Return the dict of a query."""
    return {"keys": [str(key) for key in query.keys], "qualifiers": from_infos(query.qualifiers)}


def to_queries(value: object) -> tuple[types.Query, ...]:
    """Return the queries of a list of dicts; none for None."""
    return tuple([to_query(each) for each in listed(value, "queries")])


def from_queries(queries: Iterable[types.Query]) -> list[dict[str, Any]]:
    """Return the list of dicts of queries."""
    return [from_query(each) for each in queries]


def to_app(value: object) -> types.App:
    """Return the application of `{'cmd', 'argv', 'env', 'cwd', 'maxprocs', 'info'}`; only `cmd` is needed."""
    value = {"argv": None, "env": None, "cwd": None, "maxprocs": 1, "info": None} | _dict(value, "cmd")
    command = whole(to_text(value["cmd"]))
    words = [whole(to_text(word)) for word in listed(value["argv"], "words")]
    return types.App(
        command,
        tuple(words) or (command,),
        tuple([whole(to_text(word)) for word in listed(value["env"], "words")]),
        optional(value["cwd"]),
        to_int(codes.INT, value["maxprocs"]),
        to_infos(value["info"]),
    )


def _dict(value: object, *names: str) -> dict[str, Any]:
    for name in names:
        member(value, name)
    return dict(value)  # type: ignore[call-overload, no-any-return]


def from_app(app: types.App) -> dict[str, Any]:
    """Return the dict of an application."""
    return {
        "cmd": from_text(app.cmd),
        "argv": [from_text(word) for word in app.argv],
        "env": [from_text(word) for word in app.env],
        "cwd": from_text(app.cwd),
        "maxprocs": app.maxprocs,
        "info": from_infos(app.info),
    }


def to_apps(value: object) -> tuple[types.App, ...]:
    """Return the applications of a list of dicts; none for None."""
    return tuple([to_app(each) for each in listed(value, "applications")])


def from_apps(apps: Iterable[types.App]) -> list[dict[str, Any]]:
    """Return the list of dicts of applications."""
    return [from_app(each) for each in apps]


def _to_string(value: object) -> str | None:
    return None if value is None else whole(to_text(value))


def to_data(type: int, value: object) -> Any:
    """Return the data that a value of a data type holds.

    Raises:
        PMIxError: The type has no such value.
    """
    if type in RANGES and type not in _TO:
        return to_int(type, value)
    convert = _TO.get(type)
    if convert is None:
        raise refused(f"{type_name(type)} has no form in Python", statuses.ERR_NOT_SUPPORTED)
    return convert(value)


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


def _refuse_pointer(value: object) -> int:
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
