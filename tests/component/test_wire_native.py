"""Native libraries and pypmix pack the same bytes, and each reads what the other packed."""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import pypmix
from lib import abi, machine, strategies
from lib.site_libpmix import VARIABLE, find_libpmix
from pypmix.standard import codes
from pypmix.standard.releases import Release, parse_release
from pypmix.standard.structures import Cpuset
from pypmix.standard.types import NAMES, DataArray, Value
from pypmix.wire.codec import Packer, Unpacker

pytestmark = pytest.mark.timeout(60)

LIBRARIES = find_libpmix()
NONE = pytest.mark.skipif(
    not LIBRARIES,
    reason=f"there is no libpmix here: the loader finds none, and {VARIABLE} names none",
)
NEWER = {codes.DEVICE, codes.RESBLOCK_DIRECTIVE, codes.RESOURCE_UNIT, codes.NODE_PID, codes.REGEX2}
NEWER |= {codes.ALLOC_INHERIT}
"""Types that no release before 6 has."""

INTERNAL = {codes.BUFFER, codes.KVAL}
"""Types whose structures the library keeps to itself."""

NOT_COPIED = {codes.PROC_CPUSET, codes.TOPO, codes.REGEX}
"""Types with tests of their own."""

NOT_READ = {codes.DATA_TYPE, codes.REGATTR, codes.PROC_STATS}
"""Types that the libraries do not read as they wrote them: a DATA_TYPE is written unsigned and read signed."""

FLAT = sorted(set(strategies.ALL_TYPES) - NEWER - INTERNAL - NOT_COPIED - {codes.POINTER})

STATISTICS = {codes.PROC_STATS, codes.DISK_STATS, codes.NET_STATS, codes.NODE_STATS}

IN_ARRAYS = {
    codes.STRING,
    codes.SIZE,
    codes.PID,
    codes.INT,
    codes.UINT,
    codes.UINT32,
    codes.INT64,
    codes.UINT64,
    codes.DOUBLE,
    codes.FLOAT,
    codes.TIMEVAL,
    codes.TIME,
    codes.BOOL,
    codes.BYTE,
    codes.STATUS,
    codes.PROC,
    codes.PROC_INFO,
    codes.INFO,
    codes.VALUE,
    codes.BYTE_OBJECT,
    codes.ENVAR,
    codes.QUERY,
    codes.APP,
    codes.COORD,
    codes.PROC_RANK,
    codes.DATA_RANGE,
}
"""Element types for which every library can make arrays when it reads them."""

IN_VALUES = (
    set(abi.SCALARS)
    | abi.IN_PLACE
    | {codes.PROC, codes.PROC_INFO, codes.COORD, codes.GEOMETRY, codes.DEVICE_DIST, codes.ENDPOINT}
    | {codes.PROC_NSPACE, codes.DATA_ARRAY}
) - {codes.POINTER, codes.COMMAND, codes.DATA_TYPE, codes.INFO_DIRECTIVES}


class Native:
    """A native library in a process of its own."""

    def __init__(self, path: str, folder: Path, buffer_type: int) -> None:
        root = Path(pypmix.__file__).parent.parent
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PMIX")}
        environment |= {
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "PMIX_MCA_bfrops_base_default_type": str(buffer_type),
            "PYTHONPATH": os.pathsep.join([str(root), str(Path(__file__).parent.parent)]),
        }
        command = [sys.executable, str(Path(__file__).parents[1] / "lib" / "native_driver.py"), path]
        self._process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.buffer_type = buffer_type
        self.release: Release = parse_release(self._answer().split()[1])

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except EOFError:
            pytest.fail(f"the native process ended with {self._process.wait(10)}")

    def call(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        pickle.dump((name, *arguments), self._process.stdin)
        self._process.stdin.flush()
        return self._answer()

    def packed(self, type: int, items: list[Any]) -> bytes:
        found = self.call("pack", type, items)
        assert isinstance(found, bytes), f"the library does not pack {NAMES[type]} {items!r}: {found}"
        return found

    def unpacked(self, type: int, data: bytes, count: int) -> list[Any]:
        found = self.call("unpack", type, data, count)
        assert isinstance(found, tuple), f"the library does not unpack {NAMES[type]} {data!r}: {found}"
        return list(found)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((path, kind), id="-".join([*Path(path).parts[-4:], name]), marks=NONE)
        for path in LIBRARIES or ["libpmix"]
        for kind, name in ((1, "plain"), (2, "described"))
    ],
)
def native(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Native]:
    path, kind = request.param
    # What the variable names need not have been fetched yet; the loader's own is a name without a folder.
    if os.sep in path and not os.path.exists(path):
        machine.lacking(f"{path}, which {VARIABLE} names")
    made = Native(path, tmp_path_factory.mktemp("native"), kind)
    yield made
    made.close()


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and math.isnan(ours):
        return isinstance(theirs, float) and math.isnan(theirs)
    return bool(ours == theirs)


def compare(native: Native, type: int, items: list[Any]) -> None:
    kind, release = native.buffer_type, native.release
    ours = Packer(kind, release).pack(type, *items).bytes()
    assert native.packed(type, items) == ours
    assert Unpacker(ours, kind, release).unpack(type) == items
    if type not in NOT_READ:
        assert native.unpacked(type, ours, len(items)) == items


def test_layouts_of_the_structures() -> None:
    for structure, size in abi.SIZES.items():
        assert ctypes.sizeof(structure) == size, structure


def six_decimals(number: float) -> bool:
    return float(f"{number:f}") == number


some_doubles = st.one_of(
    st.integers(-(2**53), 2**53).map(float), st.integers(-(10**12), 10**12).map(lambda n: n / 1e6)
).filter(six_decimals)
some_floats = st.integers(-(2**20), 2**20).map(lambda n: n / 64)


def expressible(type: int) -> st.SearchStrategy[Any]:
    """Return a strategy for the data that both sides can express."""
    if type == codes.DOUBLE:
        return some_doubles
    if type == codes.FLOAT:
        return some_floats
    if type == codes.DATA_ARRAY:
        return st.sampled_from(sorted(IN_ARRAYS)).flatmap(
            lambda element: st.lists(expressible(element), min_size=1, max_size=4).map(
                lambda items: DataArray(element, tuple(items))
            )
        )
    if type == codes.VALUE:
        return st.sampled_from(sorted(IN_VALUES)).flatmap(
            lambda inner: expressible(inner).map(lambda data: Value.unchecked(inner, data))
        )
    if type == codes.INFO:
        from pypmix.standard.types import Info

        return st.builds(Info, strategies.keys, expressible(codes.VALUE), strategies.u32)
    if type == codes.PDATA:
        from pypmix.standard.types import Pdata

        return st.builds(Pdata, strategies.procs, strategies.keys, expressible(codes.VALUE))
    if type in (codes.QUERY, codes.APP):
        infos = st.lists(expressible(codes.INFO), max_size=2).map(tuple)
        name = "qualifiers" if type == codes.QUERY else "info"
        return st.tuples(strategies.data(type, 0), infos).map(lambda pair: pair[0].replace(**{name: pair[1]}))
    if type in STATISTICS:
        names = ["la", "la5", "la15", "total_mem", "free_mem", "buffers", "cached", "swap_cached"]
        names += ["swap_total", "swap_free", "mapped", "pss", "vsize", "rss"]

        def calm(pair: tuple[Any, float]) -> Any:
            record, number = pair
            changes: dict[str, Any] = {name: number for name in names if name in record.__fields__}
            # The library packs the address of the pointer to these instead of what it points to.
            changes |= {name: () for name in ("diskstats", "netstats") if name in record.__fields__}
            return record.replace(**changes)

        return st.tuples(strategies.data(type), some_floats).map(calm)
    return strategies.data(type)


@pytest.mark.parametrize("type", FLAT, ids=lambda type: NAMES[type])
def test_same_bytes_and_same_values(native: Native, type: int) -> None:
    @settings(max_examples=25, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(expressible(type), min_size=1, max_size=3))
    def check(items: list[Any]) -> None:
        compare(native, type, items)

    check()


@settings(max_examples=50, suppress_health_check=list(HealthCheck), database=None)
@given(number=strategies.doubles)
def test_doubles_that_six_decimals_would_spoil(native: Native, number: float) -> None:
    data = Packer(native.buffer_type, native.release).pack(codes.DOUBLE, number).bytes()
    (found,) = native.unpacked(codes.DOUBLE, data, 1)
    assert same(number, found)


@settings(max_examples=50, suppress_health_check=list(HealthCheck), database=None)
@given(number=strategies.floats)
def test_floats_that_six_decimals_would_spoil(native: Native, number: float) -> None:
    data = Packer(native.buffer_type, native.release).pack(codes.FLOAT, number).bytes()
    (found,) = native.unpacked(codes.FLOAT, data, 1)
    assert same(number, found)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_none(native: Native, number: float) -> None:
    for type in (codes.DOUBLE, codes.FLOAT):
        data = Packer(native.buffer_type).pack(type, number).bytes()
        assert native.packed(type, [number]) == data
        assert same(number, native.unpacked(type, data, 1)[0])


def test_arrays_without_a_type(native: Native) -> None:
    if native.release[0] == 6:
        pytest.skip("6.x writes such arrays in a way that it does not read")
    empty = DataArray(codes.UNDEF, ())
    compare(native, codes.DATA_ARRAY, [empty, empty])
    compare(native, codes.DATA_ARRAY, [DataArray(codes.UINT32, ())])


def test_pointers(native: Native) -> None:
    data = Packer(native.buffer_type, native.release).pack(codes.POINTER, 0, 0, 0).bytes()
    assert native.packed(codes.POINTER, [5, 6, 7]) == data
    assert Unpacker(data, native.buffer_type).unpack(codes.POINTER) == [0, 0, 0]


@pytest.mark.parametrize("text", [b"raw:a,b,c", b"raw:", b"pmix[n[3:1-20]]", b"pmix[0-3;4-7]"])
def test_regexes(native: Native, text: bytes) -> None:
    compare(native, codes.REGEX, [text])


def test_cpusets(native: Native) -> None:
    compare(native, codes.PROC_CPUSET, [Cpuset(None)])
    # Libraries before 7 refuse to pack a process that is bound; they read one.
    data = Packer(native.buffer_type).pack(codes.PROC_CPUSET, Cpuset("0-3,8")).bytes()
    assert native.unpacked(codes.PROC_CPUSET, data, 1) == [Cpuset("0-3,8")]


def test_topologies(native: Native) -> None:
    data = native.call("topology")
    assert isinstance(data, bytes), data
    unpacker = Unpacker(data, native.buffer_type, native.release)
    topology = unpacker.one(codes.TOPO)
    assert not unpacker.more()
    assert topology.xml.startswith("<?xml")
    assert Packer(native.buffer_type, native.release).pack(codes.TOPO, topology).bytes() == data


@settings(max_examples=40, suppress_health_check=list(HealthCheck), database=None)
@given(type=st.sampled_from(sorted(set(FLAT) - STATISTICS)), picked=st.data())
def test_deeper_values(native: Native, type: int, picked: Any) -> None:
    assume(type in IN_VALUES)
    inner = picked.draw(st.lists(expressible(type).map(lambda d: Value.unchecked(type, d)), min_size=1, max_size=3))
    array = Value.unchecked(codes.DATA_ARRAY, DataArray(codes.VALUE, tuple(inner)))
    compare(native, codes.VALUE, [array, Value.unchecked(codes.UNDEF, None)])
