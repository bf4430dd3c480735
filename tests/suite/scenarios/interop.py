"""The Python half of jobs in which some ranks are programs of C."""

from __future__ import annotations

from pypmix import Info, Persist, PMIxError, Proc, Range, Scope, Status, Value
from pypmix.types import DataType, Envar, ProcState, Timeval, array

VALUES = {
    "byte": Value(DataType.BYTE, 255),
    "size": Value(DataType.SIZE, 2**64 - 1),
    "pid": Value(DataType.PID, 2**31 - 1),
    "int": Value(DataType.INT, -(2**31)),
    "int8": Value(DataType.INT8, -128),
    "int16": Value(DataType.INT16, -(2**15)),
    "int32": Value(DataType.INT32, -(2**31)),
    "int64": Value(DataType.INT64, -(2**63)),
    "uint": Value(DataType.UINT, 2**32 - 1),
    "uint8": Value(DataType.UINT8, 255),
    "uint16": Value(DataType.UINT16, 2**16 - 1),
    "uint32": Value(DataType.UINT32, 2**32 - 1),
    "uint64": Value(DataType.UINT64, 2**64 - 1),
    "time": Value(DataType.TIME, 1234567890),
    "status": Value(DataType.STATUS, Status.ERR_TIMEOUT),
    "rank": Value(DataType.PROC_RANK, 3),
    "persist": Value(DataType.PERSIST, Persist.APP),
    "scope": Value(DataType.SCOPE, Scope.REMOTE),
    "range": Value(DataType.DATA_RANGE, Range.SESSION),
    "state": Value(DataType.PROC_STATE, ProcState.CONNECTED),
    "bool": Value(DataType.BOOL, True),
    "string": Value(DataType.STRING, "plain"),
    "string.empty": Value(DataType.STRING, ""),
    "string.long": Value(DataType.STRING, "x" * 20000),
    "string.unicode": Value(DataType.STRING, "h\N{LATIN SMALL LETTER E WITH ACUTE}llo"),
    "float": Value(DataType.FLOAT, 1.5),
    "double": Value(DataType.DOUBLE, -2.25),
    "bytes": Value(DataType.BYTE_OBJECT, b"\x00\x01\xff"),
    "timeval": Value(DataType.TIMEVAL, Timeval(5, 999_999)),
    "proc": Value(DataType.PROC, Proc("somewhere", 7)),
    "envar": Value(DataType.ENVAR, Envar("PATH", "/opt/bin", ":")),
    "array.string": array(DataType.STRING, ["a", "", "b"]),
    "array.uint32": array(DataType.UINT32, [0, 1, 2**32 - 1]),
    "array.proc": array(DataType.PROC, [Proc("a", 0), Proc("b", 1)]),
    "array.info": array(
        DataType.INFO, [Info("one", Value(DataType.INT, 1)), Info("two", Value(DataType.STRING, "zwei"))]
    ),
}
"""What the program `types.c` puts too."""


async def types(me, rank, prefix):
    """Put a value of every type under `py.NAME`, and read `PREFIX.NAME` of another rank."""
    for name, value in VALUES.items():
        await me.put(f"py.{name}", value)
    await me.fence(collect=True, timeout=20)
    seen = {}
    for name in VALUES:
        try:
            seen[name] = await me.raw.get(me.job[rank], f"{prefix}.{name}")
        except PMIxError as error:
            seen[name] = error
    await me.fence(timeout=20)
    return seen


async def modex(me):
    """The part of `modex.c`, from Python."""
    for scope in "global", "local", "remote", "internal":
        await me.put(scope, f"of {me.rank}", getattr(Scope, scope.upper()))
    await me.fence(collect=True, timeout=20)
    seen = {
        f"{scope}-{proc.rank}": await me.get(scope, proc, default=None, timeout=0)
        for proc in me.job
        for scope in ("global", "local", "remote", "internal")
    }
    await me.fence(timeout=20)
    return seen
