"""Hypothesis strategies for the data of every PMIx type."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from hypothesis import strategies as st

from pypmix.standard import codes, structures, types
from pypmix.standard.types import NAMES, RANGES, DataArray, Info, Proc, Value

ALL_TYPES = sorted(set(NAMES) - {codes.UNDEF})
"""Every type that can stand at the top level."""

SIMPLE = [*RANGES, codes.BOOL, codes.STRING, codes.DOUBLE, codes.BYTE_OBJECT, codes.TIMEVAL]


def text(most: int = 40) -> st.SearchStrategy[str]:
    return st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=most),
        st.binary(max_size=most).map(lambda raw: raw.replace(b"\0", b"x").decode("utf-8", "surrogateescape")),
        st.sampled_from(["", "a", "x" * 62, "x" * 63, "x" * 64, "x" * 5000]),
    )


def names(most: int) -> st.SearchStrategy[str]:
    short = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
    return st.one_of(short, st.sampled_from(["pmix.job.size", "k" * 62, "k" * 63, "k" * 64, "k" * most]))


keys = names(types.MAX_KEYLEN)
nspaces = names(types.MAX_NSLEN)
maybe_text = st.none() | text()


def integers(type: int) -> st.SearchStrategy[int]:
    if type == codes.POINTER:
        # Its value is never sent.
        return st.just(0)
    low, high = RANGES[type]
    edges = {low, high, 0, 63, 64, 127, 128, 255, 256, 16383, 16384, 2**32, 2**56 - 1, 2**56, 2**63}
    edges |= {-1, -64, -65, -(2**31)}
    return st.one_of(st.integers(low, high), st.sampled_from(sorted(e for e in edges if low <= e <= high)))


def _float32(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


doubles = st.floats(allow_nan=False)
floats = st.floats(allow_nan=False, width=32).map(_float32)
procs = st.builds(Proc, nspaces, integers(codes.PROC_RANK))
u64 = integers(codes.UINT64)
u32 = integers(codes.UINT32)
u16 = integers(codes.UINT16)
i64 = integers(codes.INT64)
timevals = st.builds(structures.Timeval, i64, i64)
coords = st.builds(structures.Coord, integers(codes.UINT8), st.lists(u32, max_size=4).map(tuple))
many_text = st.lists(text(), max_size=3).map(tuple)
disks = st.builds(structures.DiskStats, maybe_text, *([u64] * 11))
nets = st.builds(structures.NetStats, maybe_text, *([u64] * 6))
regexes = st.one_of(
    st.sampled_from([b"raw:", b"raw:a,b", b"pmix[n[3:1-20]]", b"pmix[0-3;4-7]"]),
    st.binary(max_size=30).map(lambda raw: b"blob:\0component=zlib:\0size=%d:\0%s" % (len(raw), raw)),
)
supports = st.lists(st.integers(0, 1), min_size=32, max_size=32).map(bytes)


@cache
def data(type: int, depth: int = 2) -> st.SearchStrategy[Any]:
    """Return a strategy for the data of a type.

    Args:
        type: The type.
        depth: How deep arrays and values may be nested in it.
    """
    if type in RANGES:
        return integers(type)
    simple: dict[int, st.SearchStrategy[Any]] = {
        codes.UNDEF: st.none(),
        codes.BOOL: st.booleans(),
        codes.STRING: maybe_text,
        codes.FLOAT: floats,
        codes.DOUBLE: doubles,
        codes.TIMEVAL: timevals,
        codes.PROC: procs,
        codes.BUFFER: st.builds(structures.Buffer, st.sampled_from([1, 2]), st.binary(max_size=40)),
        codes.PROC_INFO: st.builds(
            types.ProcInfo,
            procs,
            maybe_text,
            maybe_text,
            integers(codes.PID),
            integers(codes.PROC_STATE),
        ),
        codes.ENVAR: st.builds(
            types.Envar, maybe_text, maybe_text, st.integers(0, 255).map(lambda n: chr(n) if n else "")
        ),
        codes.COORD: coords,
        codes.REGATTR: st.builds(types.RegAttr, maybe_text, keys, integers(codes.DATA_TYPE), many_text),
        codes.REGEX: regexes,
        codes.PROC_CPUSET: st.builds(structures.Cpuset, maybe_text),
        codes.GEOMETRY: st.builds(
            structures.Geometry, u64, maybe_text, maybe_text, st.lists(coords, max_size=2).map(tuple)
        ),
        codes.DEVICE_DIST: st.builds(types.DeviceDistance, maybe_text, maybe_text, u64, u16, u16),
        codes.ENDPOINT: st.builds(structures.Endpoint, maybe_text, maybe_text, st.binary(max_size=40)),
        codes.TOPO: st.one_of(st.just(structures.Topology(None)), st.builds(structures.Topology, text(), supports)),
        codes.PROC_NSPACE: nspaces,
        codes.PROC_STATS: st.builds(
            structures.ProcStats,
            node=maybe_text,
            proc=procs,
            pid=integers(codes.PID),
            cmd=maybe_text,
            state=integers(codes.UINT8),
            time=timevals,
            percent_cpu=st.just(0.0),
            priority=integers(codes.INT32),
            num_threads=u16,
            pss=floats,
            vsize=floats,
            rss=floats,
            peak_vsize=st.just(0.0),
            processor=u16,
            sample_time=timevals,
        ),
        codes.DISK_STATS: disks,
        codes.NET_STATS: nets,
        codes.NODE_STATS: st.builds(
            structures.NodeStats,
            maybe_text,
            *([floats] * 11),
            timevals,
            st.lists(disks, max_size=2).map(tuple),
            st.lists(nets, max_size=2).map(tuple),
        ),
        codes.DEVICE: st.builds(structures.Device, maybe_text, maybe_text, u64),
        codes.RESOURCE_UNIT: st.builds(structures.ResourceUnit, u64, u64),
        codes.NODE_PID: st.builds(structures.NodePid, maybe_text, u32, integers(codes.PID)),
        codes.REGEX2: st.builds(structures.Regex2, maybe_text, st.binary(max_size=40)),
    }
    for number in (
        codes.BYTE_OBJECT,
        codes.COMPRESSED_STRING,
        codes.COMPRESSED_BYTE_OBJECT,
        codes.DATA_BUFFER,
    ):
        simple[number] = st.binary(max_size=300)
    if type in simple:
        return simple[type]
    if type == codes.DATA_ARRAY:
        return arrays(depth)
    if type == codes.VALUE:
        return values(depth)
    if type == codes.INFO:
        return infos(depth)
    if type == codes.PDATA:
        return st.builds(types.Pdata, procs, keys, values(depth))
    if type == codes.KVAL:
        return st.builds(types.KeyValue, keys, values(depth))
    if type == codes.QUERY:
        return st.builds(types.Query, many_text, st.lists(infos(depth), max_size=2).map(tuple))
    assert type == codes.APP, type
    some = st.lists(infos(depth), max_size=2).map(tuple)
    return st.builds(types.App, maybe_text, many_text, many_text, maybe_text, integers(codes.INT), some)


@cache
def values(depth: int = 2) -> st.SearchStrategy[Value]:
    among = [codes.UNDEF, *ALL_TYPES] if depth else SIMPLE
    return st.sampled_from(among).flatmap(
        lambda type: data(type, depth - 1).map(lambda held: Value.unchecked(type, held))
    )


@cache
def infos(depth: int = 2) -> st.SearchStrategy[Info]:
    flags = st.one_of(st.just(0), integers(codes.INFO_DIRECTIVES))
    return st.builds(Info, keys, values(depth), flags)


@cache
def arrays(depth: int = 2) -> st.SearchStrategy[DataArray]:
    among = ALL_TYPES if depth else SIMPLE
    made = st.sampled_from(among).flatmap(
        lambda type: st.lists(data(type, depth - 1), max_size=4).map(lambda items: DataArray(type, tuple(items)))
    )
    return st.one_of(made, st.just(DataArray(codes.UNDEF, ())))
