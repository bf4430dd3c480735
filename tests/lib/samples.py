"""Values of every kind that ranks exchange, as Python sees them: name, what is put, its PMIx type."""

from __future__ import annotations

import pypmix
from pypmix import Persist, Proc, Range, Scope, Status, Value
from pypmix.types import DataType, Envar, ProcInfo, ProcState, Timeval

LONG = "long \N{LATIN SMALL LETTER E WITH ACUTE} " * 2200
"""Above 20,000 bytes, where natives compress what they are given."""


def samples() -> dict[str, Value]:
    """Return a value of every type that both engines and all servers carry."""
    integers = {
        "byte": (DataType.BYTE, 0, 255),
        "size": (DataType.SIZE, 0, 2**64 - 1),
        "pid": (DataType.PID, 0, 2**31 - 1),
        "int": (DataType.INT, -(2**31), 2**31 - 1),
        "int8": (DataType.INT8, -128, 127),
        "int16": (DataType.INT16, -(2**15), 2**15 - 1),
        "int32": (DataType.INT32, -(2**31), 2**31 - 1),
        "int64": (DataType.INT64, -(2**63), 2**63 - 1),
        "uint": (DataType.UINT, 0, 2**32 - 1),
        "uint8": (DataType.UINT8, 0, 255),
        "uint16": (DataType.UINT16, 0, 2**16 - 1),
        "uint32": (DataType.UINT32, 0, 2**32 - 1),
        "uint64": (DataType.UINT64, 0, 2**64 - 1),
        "time": (DataType.TIME, 0, 2**40),
    }
    found = {}
    for name, (kind, least, most) in integers.items():
        found[f"{name}.least"] = Value(kind, least)
        found[f"{name}.most"] = Value(kind, most)
    return found | {
        "bool.true": Value(DataType.BOOL, True),
        "bool.false": Value(DataType.BOOL, False),
        "string": Value(DataType.STRING, "plain"),
        "string.empty": Value(DataType.STRING, ""),
        "string.unicode": Value(DataType.STRING, "h\u00e9llo \N{SNOWMAN} \N{GRINNING FACE}"),
        "string.long": Value(DataType.STRING, LONG),
        "float": Value(DataType.FLOAT, 1.5),
        "double": Value(DataType.DOUBLE, -2.25),
        "bytes": Value(DataType.BYTE_OBJECT, bytes(range(256))),
        "bytes.long": Value(DataType.BYTE_OBJECT, bytes(range(256)) * 80),
        "timeval": Value(DataType.TIMEVAL, Timeval(5, 999_999)),
        "status": Value(DataType.STATUS, Status.ERR_TIMEOUT),
        "proc": Value(DataType.PROC, Proc("somewhere", 7)),
        "rank": Value(DataType.PROC_RANK, 3),
        "procinfo": Value(
            DataType.PROC_INFO, ProcInfo(Proc("somewhere", 1), "host", "/bin/true", 4711, ProcState.RUNNING)
        ),
        "envar": Value(DataType.ENVAR, Envar("PATH", "/opt/bin", ":")),
        "persist": Value(DataType.PERSIST, Persist.APP),
        "scope": Value(DataType.SCOPE, Scope.REMOTE),
        "range": Value(DataType.DATA_RANGE, Range.SESSION),
        "state": Value(DataType.PROC_STATE, ProcState.CONNECTED),
        "array.string": pypmix.types.array(DataType.STRING, ["a", "", "\N{SNOWMAN}"]),
        "array.uint32": pypmix.types.array(DataType.UINT32, range(100)),
        "array.proc": pypmix.types.array(DataType.PROC, [Proc("a", 0), Proc("b", 1)]),
        "array.info": pypmix.types.array(
            DataType.INFO, [pypmix.types.info("one", 1), pypmix.types.info("two", "zwei")]
        ),
        "array.nested": pypmix.types.array(
            DataType.INFO,
            [
                pypmix.types.info("inner", pypmix.types.array(DataType.INFO, [pypmix.types.info("deep", [1, 2, 3])])),
                pypmix.types.info("bytes", b"\0\1"),
            ],
        ),
    }


class Index:
    """An integer that is not an int, as NumPy's are."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number

    def __repr__(self) -> str:
        return f"Index({self._number})"


class Seconds:
    """A number that is neither an int nor a float."""

    def __init__(self, number: float) -> None:
        self._number = number

    def __float__(self) -> float:
        return self._number

    def __repr__(self) -> str:
        return f"Seconds({self._number})"
