"""A value of every data type, alone, in an array and in an array of arrays, on every way from one rank to another."""

from __future__ import annotations

import struct
import zlib

from pypmix import NotSupported, PMIxError, Range, Scope, Value
from pypmix.standard import codes, structures, types
from pypmix.standard.types import NAMES, RANGES, DataArray, Info, Proc
from pypmix.standard.values import to_python
from pypmix.types import DataType

CODE = -3210
PROC = Proc("somewhere", 7)
INFO = Info("one", Value(DataType.INT, 1))
COORD = structures.Coord(1, (1, 2))
TIME = structures.Timeval(5, 999_999)
PRIVATE = {codes.UNDEF, codes.BUFFER, codes.KVAL, codes.DATA_BUFFER, codes.TOPO, codes.COMPRESSED_STRING}
"""Types that programs do not send: structures of libraries, and what a library makes of a long string."""

DATA: dict[int, object] = {
    **{kind: 0 if kind == codes.POINTER else 1 for kind in RANGES},
    codes.BOOL: True,
    codes.STRING: "text",
    codes.FLOAT: 1.5,
    codes.DOUBLE: -2.25,
    codes.TIMEVAL: TIME,
    codes.PROC: PROC,
    codes.PROC_NSPACE: "somewhere",
    codes.BYTE_OBJECT: b"\0\1\xff",
    codes.COMPRESSED_BYTE_OBJECT: struct.pack("=I", 3) + zlib.compress(b"\0\1\xff"),
    codes.REGEX: b"raw:a,b",
    codes.VALUE: Value(DataType.INT, 3),
    codes.INFO: INFO,
    codes.PDATA: types.Pdata(PROC, "key", Value(DataType.INT, 3)),
    codes.APP: types.App("true", ("true",), ("A=b",), None, 1, (INFO,)),
    codes.QUERY: types.Query(("key",), (INFO,)),
    codes.ENVAR: types.Envar("PATH", "/opt/bin", ":"),
    codes.PROC_INFO: types.ProcInfo(PROC, "host", "/bin/true", 4711, 4),
    codes.COORD: COORD,
    codes.REGATTR: types.RegAttr("NAME", "name", codes.INT, ("what it is",)),
    codes.GEOMETRY: structures.Geometry(1, "uuid", "name", (COORD,)),
    codes.DEVICE_DIST: types.DeviceDistance("uuid", "name", 1, 2, 3),
    codes.ENDPOINT: structures.Endpoint("uuid", "name", b"\1\2"),
    codes.DEVICE: structures.Device("uuid", "name", 1),
    codes.RESOURCE_UNIT: structures.ResourceUnit(1, 2),
    codes.NODE_PID: structures.NodePid("host", 1, 4711),
    codes.REGEX2: structures.Regex2("raw", b"a,b"),
    codes.PROC_CPUSET: structures.Cpuset("0-3"),
    codes.PROC_STATS: structures.ProcStats("host", PROC, 1, "true", 82, TIME, 0.0, 1, 2, 1.5, 1.5, 1.5, 0.0, 1, TIME),
    codes.DISK_STATS: structures.DiskStats("sda", *[1] * 11),
    codes.NET_STATS: structures.NetStats("lo", *[1] * 6),
    codes.NODE_STATS: structures.NodeStats("host", *[1.5] * 11, TIME, (), ()),
}


def values() -> dict[str, Value]:
    """Return the values by name."""

    def array(kind: int, *items: object) -> Value:
        return Value.unchecked(codes.DATA_ARRAY, DataArray(kind, items))

    found = {}
    for kind in sorted(set(NAMES) - PRIVATE):
        name = NAMES[kind].lower()
        if kind != codes.DATA_ARRAY:
            found[name] = Value.unchecked(kind, DATA[kind])
            found[f"{name}.array"] = array(kind, DATA[kind], DATA[kind])
        found[f"{name}.none"] = array(kind)
    numbers = DataArray(codes.INT, (1, 2))
    return found | {
        "arrays": array(codes.DATA_ARRAY, numbers, numbers),
        "arrays.deep": array(codes.DATA_ARRAY, DataArray(codes.DATA_ARRAY, (numbers,))),
        "arrays.empty": array(codes.DATA_ARRAY, DataArray(codes.INT, ()), DataArray(codes.UNDEF, ())),
        "infos.array": array(codes.INFO, Info("inner", array(codes.INFO, Info("deep", array(codes.INT, 1, 2))))),
        "infos.arrays": array(codes.INFO, INFO, Info("inner", array(codes.DATA_ARRAY, numbers))),
        "infos.cpuset": array(codes.INFO, INFO, Info("inner", found["proc_cpuset"])),
        "infos.empty": array(codes.INFO, Info("inner", array(codes.UNDEF)), INFO),
        "typeless": array(codes.UNDEF),
    }


VALUES = values()


async def taken(me, value):
    """Return True if this engine takes a value for its server; an error says so in one way."""
    try:
        await me.put("kinds.own", value, Scope.LOCAL)
    except NotSupported as error:
        return "does not take" not in str(error)
    return True


async def every_kind(me, way="put"):
    """Rank 0 sends all that its engine takes; the others return how each value has arrived.

    Args:
        way: How it is sent: "put", "publish" or "event".

    Returns:
        Whether this engine takes each value; and what has arrived: True or what came instead, by name.
    """
    takes = {name: await taken(me, value) for name, value in VALUES.items()}
    sent = {f"kinds.{name}": value for name, value in VALUES.items() if takes[name]}
    seen = {}
    async with me.events(CODE) as events:
        await me.fence(timeout=30)
        if me.rank == 0:
            await me.put("names", list(sent))
            if way == "put":
                for key, value in sent.items():
                    await me.put(key, value)
            elif way == "publish":
                await me.publish(sent, timeout=20)
            else:
                await me.notify(CODE, data_range=Range.NAMESPACE, info=[Info(*pair) for pair in sent.items()])
        await me.put("kinds.own", 1)
        await me.fence(collect=True, timeout=30)
        if me.rank:
            told = await events.get(timeout=20) if way == "event" else None
            for key in await me.get("names", me.job[0]):
                name = key.removeprefix("kinds.")
                if told is not None:
                    seen[name] = equal(next((each.value for each in told.infos if each.key == key), None), name)
                elif way == "put":
                    seen[name] = await same(me.raw.get(me.job[0], key, timeout=5), name)
                else:
                    seen[name] = await same(me.lookup(key), name)
        await me.fence(timeout=30)
    return takes, seen


async def same(wanted, name):
    try:
        return equal(await wanted, name)
    except PMIxError as error:
        return error


def equal(came, name):
    plain = to_python(came) if isinstance(came, Value) else came
    return (came is not None and plain == to_python(VALUES[name])) or repr(came)
