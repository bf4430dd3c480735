"""Operations, values and records as JSON, without loss.

Strings, bools, ints, finite floats and None have their JSON form, tuples are arrays, and other data are objects that
name their type:

- a proc: `{"nspace": "demo", "rank": 0}`
- a value: `{"type": "UINT32", "data": 7}`
- an info: `{"key": "pmix.timeout", "type": "INT", "data": 5}`, with `flags` unless they are 0
- bytes: `{"hex": "00ff"}`
- an array: `{"array": "PROC", "items": [...]}`
- an infinite float: `{"float": "inf"}`
- any other record, an operation among them: `{"is": "App", "cmd": "a.out", ...}` with all of its fields
"""

from __future__ import annotations

import math

from pypmix.standard import codes, ops, structures, types
from pypmix.standard.record import Record
from pypmix.standard.types import NAMES, DataArray, Info, Proc, Value, check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NUMBERS = {name: number for number, name in NAMES.items()}
_WANTED = {bool: "a bool", int: "an int", str: "a string"}


def to_json(data: object) -> Any:
    """Convert data for `json.dumps`; `from_json` converts it back.

    Args:
        data: An operation, its result, or any part of one.

    Raises:
        TypeError: It contains an object without a type of the Standard, such as a function.
    """
    # The most frequent types come first; Proc, Value and Info are tuples, and must precede these.
    if data is None or data.__class__ in (str, int, bool):
        return data
    if isinstance(data, Info):
        found = {"key": data[0], **_value(data[1])}
        return {**found, "flags": int(data[2])} if data[2] else found
    if isinstance(data, Proc):
        return {"nspace": data[0], "rank": int(data[1])}
    if isinstance(data, Value):
        return _value(data)
    if isinstance(data, tuple | list):
        return [to_json(item) for item in data]
    if isinstance(data, bytes | bytearray | memoryview):
        return {"hex": bytes(data).hex()}
    if isinstance(data, DataArray):
        return {"array": _type(data.type), "items": [to_json(item) for item in data.items]}
    if isinstance(data, Record):
        cls = type(data)
        if _class(cls.__name__) is cls:
            return {"is": cls.__name__, **{name: to_json(getattr(data, name)) for name in fields(data)}}
    if isinstance(data, float):
        return float(data) if math.isfinite(data) else {"float": repr(float(data))}
    if isinstance(data, str):
        return str(data)
    if isinstance(data, int):
        return int(data)
    raise TypeError(f"a {type(data).__name__} is not a type of the Standard: {data!r:.80}")


def from_json(data: Any) -> Any:
    """Return the data of `to_json`, with tuples for lists and plain ints for members of enums.

    Args:
        data: The result of `json.loads`.

    Raises:
        ValueError: It is not a result of `to_json`.
    """
    try:
        return _read(data)
    except (KeyError, TypeError, OverflowError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a value of the Standard as JSON: {data!r:.120} ({error})") from error


def fields(record: Record) -> tuple[str, ...]:
    """Return the names of a record's fields."""
    return tuple(type(record).__match_args__)


def _type(number: int) -> str | int:
    return NAMES.get(number, int(number))


def _number(type: Any) -> int:
    number = _NUMBERS[type] if isinstance(type, str) else type
    return int(_is(number, int))


def _is(data: Any, kind: type) -> Any:
    if type(data) is not kind:
        raise TypeError(f"{data!r:.40} is not {_WANTED[kind]}")
    return data


def _value(value: Value) -> dict[str, Any]:
    return {"type": _type(value[0]), "data": to_json(value[1])}


def _check_data(type: int, data: Any) -> Any:
    """Check the data of a value of a type; data of an unknown type are returned unchanged."""
    return check(type, data) if type in NAMES else data


def _class(name: str) -> type[Record] | None:
    cls = (
        getattr(types, name, None)
        or getattr(structures, name, None)
        or (getattr(ops, name) if name in dir(ops) else None)
    )
    return cls if isinstance(cls, type) and issubclass(cls, Record) and cls.__name__ == name else None


def _read(data: Any) -> Any:
    if isinstance(data, list):
        return tuple([_read(item) for item in data])
    if not isinstance(data, dict):
        return data
    if "is" in data:
        cls = _class(_is(data["is"], str))
        if cls is None:
            raise KeyError(data["is"])
        return cls(**{name: _read(field) for name, field in data.items() if name != "is"})
    if "nspace" in data:
        return Proc(data["nspace"], data["rank"])
    if "type" in data:
        number = _number(data["type"])
        value = Value.unchecked(number, _check_data(number, _read(data["data"])))
        return Info(_is(data["key"], str), value, _is(data.get("flags", 0), int)) if "key" in data else value
    if "hex" in data:
        return bytes.fromhex(data["hex"])
    if "array" in data:
        number = _number(data["array"])
        if number == codes.UNDEF and not data["items"]:
            return DataArray(number, ())
        return DataArray(number, tuple([_check_data(number, _read(item)) for item in data["items"]]))
    if "float" in data:
        return float(data["float"])
    raise KeyError("is")
