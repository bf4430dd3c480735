"""Values of every data type, as dicts of the official binding: what round-trips, and what is refused how."""

from __future__ import annotations

from pypmix.compat.names import table
from pypmix.standard import statuses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES = table()


def _value(name: str, value: object) -> dict[str, Any]:
    return {"value": value, "val_type": NAMES[f"PMIX_{name}"]}


def _array(name: str, items: list[Any]) -> dict[str, Any]:
    return _value("DATA_ARRAY", {"type": NAMES[f"PMIX_{name}"], "array": items})


def _info(key: str, name: str, value: object, flags: int = 0) -> dict[str, Any]:
    return {"key": key, "flags": flags, **_value(name, value)}


PROC = {"nspace": "acme.1", "rank": 7}
COORD = {"view": 1, "coord": b"\x01\0\0\0\x02\0\0\0", "dims": 2}
PROC_INFO = {"proc": PROC, "hostname": "n0", "executable": "./a", "pid": 4711, "exitcode": 0, "state": 4}
ENVAR = {"envar": "PATH", "value": "/bin", "separator": ":"}

KEPT: dict[str, dict[str, Any]] = {
    "bool": _value("BOOL", True),
    "bool false": _value("BOOL", False),
    "byte": _value("BYTE", 255),
    "string": _value("STRING", "plain"),
    "string of no length": _value("STRING", ""),
    "string that is not ASCII": _value("STRING", "héllo"),
    "string that is no UTF-8": _value("STRING", b"\xff\xfe"),
    "size": _value("SIZE", 2**64 - 1),
    "pid": _value("PID", 4711),
    **{
        f"int{bits} {'least' if low else 'most'}": _value(
            f"INT{bits}", -(2 ** (bits - 1)) if low else 2 ** (bits - 1) - 1
        )
        for bits in (8, 16, 32, 64)
        for low in (False, True)
    },
    **{f"uint{bits}": _value(f"UINT{bits}", 2**bits - 1) for bits in (8, 16, 32, 64)},
    "int": _value("INT", -(2**31)),
    "uint": _value("UINT", 2**32 - 1),
    "int64 beyond 2**62": _value("INT64", 2**62),
    "float": _value("FLOAT", 1.5),
    "double": _value("DOUBLE", -2.25),
    "timeval": _value("TIMEVAL", {"sec": 12, "usec": 345678}),
    "time": _value("TIME", 1_700_000_000),
    "status": _value("STATUS", -24),
    "proc": _value("PROC", PROC),
    "proc nspace": _value("PROC_NSPACE", "acme.1"),
    "rank": _value("PROC_RANK", 2**32 - 2),
    "bytes": _value("BYTE_OBJECT", {"bytes": b"a\0b\xff", "size": 4}),
    "no bytes": _value("BYTE_OBJECT", {"bytes": b"", "size": 0}),
    "persistence": _value("PERSIST", 3),
    "scope": _value("SCOPE", 2),
    "range": _value("DATA_RANGE", 4),
    "proc state": _value("PROC_STATE", 20),
    "proc info": _value("PROC_INFO", PROC_INFO),
    "job state": _value("JOB_STATE", 3),
    "link state": _value("LINK_STATE", 2),
    "alloc directive": _value("ALLOC_DIRECTIVE", 1),
    "device type": _value("DEVTYPE", 4),
    "locality": _value("LOCTYPE", 0x4001),
    "iof channel": _value("IOF_CHANNEL", 6),
    "envar": _value("ENVAR", ENVAR),
    "coord": _value("COORD", COORD),
    "geometry": _value("GEOMETRY", {"fabric": 3, "uuid": "u", "osname": "os", "ncoords": 1, "coords": [COORD]}),
    "distance": _value("DEVICE_DIST", {"uuid": "u", "osname": "os", "type": 4, "mindist": 1, "maxdist": 9}),
    "endpoint": _value("ENDPOINT", {"uuid": "u", "osname": "os", "endpt": {"bytes": b"\0\1", "size": 2}}),
    "regattr": _value("REGATTR", {"name": "A", "key": "acme.a", "type": 3, "info": [], "description": ["One."]}),
    "cpuset": _value("PROC_CPUSET", {"source": "hwloc", "cpus": [0, 1, 2, 8]}),
    "topology": _value("TOPO", {"source": "hwloc", "topology": "<topology/>", "support": b""}),
    "regex": _value("REGEX", b"pmix[n:1-3]"),
    "strings": _array("STRING", ["a", "é", ""]),
    "doubles": _array("DOUBLE", [0.5, -1.5]),
    "bools": _array("BOOL", [True, False]),
    "uint64s": _array("UINT64", [0, 2**64 - 1]),
    "procs": _array("PROC", [PROC, {"nspace": "other", "rank": 0}]),
    "infos": _array("INFO", [_info("acme.a", "STRING", "x"), _info("acme.b", "PROC", PROC, 1)]),
    "infos in infos": _array("INFO", [_info("acme.c", "DATA_ARRAY", _array("INFO", [_info("d", "INT", 1)])["value"])]),
    "proc infos": _array("PROC_INFO", [PROC_INFO]),
    "envars": _array("ENVAR", [ENVAR]),
    "byte objects": _array("BYTE_OBJECT", [{"bytes": b"\0", "size": 1}, {"bytes": b"", "size": 0}]),
    "an empty array": _array("STRING", []),
}
"""What comes back as it was put."""

REFUSED: dict[str, tuple[Any, int]] = {
    "no dict": ("seven", statuses.ERR_BAD_PARAM),
    "None": (None, statuses.ERR_BAD_PARAM),
    "no type": ({"value": 1}, statuses.ERR_BAD_PARAM),
    "no value": ({"val_type": NAMES["PMIX_INT"]}, statuses.ERR_BAD_PARAM),
    "a type that is none": ({"value": 1, "val_type": "PMIX_INT"}, statuses.ERR_TYPE_MISMATCH),
    "an unknown type": ({"value": 1, "val_type": 4444}, statuses.ERR_NOT_SUPPORTED),
    "undefined": (_value("UNDEF", None), statuses.ERR_NOT_SUPPORTED),
    "pointer": (_value("POINTER", 4096), statuses.ERR_NOT_SUPPORTED),
    "bool of a word": (_value("BOOL", "perhaps"), statuses.ERR_BAD_PARAM),
    "bool of seven": (_value("BOOL", 7), statuses.ERR_BAD_PARAM),
    "string of an int": (_value("STRING", 5), statuses.ERR_TYPE_MISMATCH),
    "string with a NUL": (_value("STRING", "a\0b"), statuses.ERR_BAD_PARAM),
    "int of a float": (_value("INT32", 1.5), statuses.ERR_TYPE_MISMATCH),
    "uint16 too great": (_value("UINT16", 65536), statuses.ERR_BAD_PARAM),
    "int64 too great": (_value("INT64", 2**63), statuses.ERR_BAD_PARAM),
    "uint64 too small": (_value("UINT64", -1), statuses.ERR_BAD_PARAM),
    "byte too great": (_value("BYTE", 256), statuses.ERR_BAD_PARAM),
    "float too great": (_value("FLOAT", 1e300), statuses.ERR_BAD_PARAM),
    "float of a word": (_value("FLOAT", "pi"), statuses.ERR_TYPE_MISMATCH),
    "rank too great": (_value("PROC_RANK", 2**32), statuses.ERR_BAD_PARAM),
    "proc without a rank": (_value("PROC", {"nspace": "a"}), statuses.ERR_BAD_PARAM),
    "proc of a long nspace": (_value("PROC", {"nspace": "a" * 256, "rank": 0}), statuses.ERR_BAD_PARAM),
    "timeval without usec": (_value("TIMEVAL", {"sec": 1}), statuses.ERR_BAD_PARAM),
    "geometry without a name": (_value("GEOMETRY", {"fabric": 1}), statuses.ERR_BAD_PARAM),
    "distance without distances": (_value("DEVICE_DIST", {"uuid": "u", "osname": "o"}), statuses.ERR_BAD_PARAM),
    "coord of half a number": (_value("COORD", {"view": 1, "coord": b"\0\0"}), statuses.ERR_BAD_PARAM),
    "separator of two": (_value("ENVAR", {**ENVAR, "separator": "::"}), statuses.ERR_BAD_PARAM),
    "cpuset of another source": (_value("PROC_CPUSET", {"source": "cray", "cpus": [1]}), statuses.ERR_NOT_SUPPORTED),
    "cpuset without end": (_value("PROC_CPUSET", {"source": "hwloc", "cpus": "0-99999999999"}), statuses.ERR_BAD_PARAM),
    "array of no list": (_value("DATA_ARRAY", {"type": 3, "array": "abc"}), statuses.ERR_TYPE_MISMATCH),
    "array of a wrong item": (_array("UINT8", [1, 256]), statuses.ERR_BAD_PARAM),
    "info with a long key": (_array("INFO", [_info("k" * 512, "INT", 1)]), statuses.ERR_BAD_PARAM),
}
"""What is not taken, and the status that says so."""

CONVERTED: dict[str, tuple[dict[str, Any], object]] = {
    "bytes for a string": (_value("STRING", b"plain"), "plain"),
    "a word for a bool": (_value("BOOL", "True"), True),
    "a number for a separator": (_value("ENVAR", {**ENVAR, "separator": 58}), ENVAR),
    "one byte for a byte": (_value("BYTE", b"\x07"), 7),
    "flags for a locality": (_value("LOCTYPE", [1, 0x4000]), 0x4001),
    "numbers for a coord": (_value("COORD", {"view": 1, "coord": [1, 2]}), COORD),
    "ranges for a cpuset": (_value("PROC_CPUSET", {"cpus": ["0-2", 8]}), KEPT["cpuset"]["value"]),
    "bytes for a byte object": (_value("BYTE_OBJECT", b"ab"), {"bytes": b"ab", "size": 2}),
}
"""Forms of the appendix, or of one release of the binding, that come back in the form that the newest one gives."""
