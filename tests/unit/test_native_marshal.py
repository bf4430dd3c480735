"""Every value survives the way through C memory, or is refused by name before libpmix sees it."""

from __future__ import annotations

import struct
import warnings
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypmix.standard import codes, structures, types
from pypmix.standard.errors import NotSupported
from pypmix.standard.types import NAMES, RANGES, DataArray, Info, Proc, Value

pytest.importorskip(
    "pypmix.engine.native._ffi", reason="this machine lacks the native engine's extension", exc_type=ImportError
)

from pypmix.engine.native.marshal import INTEGERS, Marshal, PrecisionWarning, precision
from pypmix.wire import readers

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore::pypmix.engine.native.marshal.PrecisionWarning"),
]

RELEASES = ((4, 2, 2), (5, 0, 11), (6, 1, 0), (7, 0, 0))

marshal = Marshal((7, 0, 0))
marshal.refused = marshal._no_element = frozenset()

names = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
surrogates = st.just("caf\udce9")
strings = names | surrogates
texts = st.none() | strings
keys = names.filter(bool)
data = st.binary(max_size=40)


def floats32() -> st.SearchStrategy[float]:
    return st.floats(width=32, allow_nan=False)


def integers(kind: int) -> st.SearchStrategy[int]:
    low, high = RANGES[kind]
    return st.integers(low, high)


u8, u16, u32, u64 = (integers(kind) for kind in (codes.UINT8, codes.UINT16, codes.UINT32, codes.UINT64))
i32 = integers(codes.INT32)
procs = st.builds(Proc, names, u32)
times = st.builds(structures.Timeval, integers(codes.TIME), st.integers(0, 999999))
disks = st.builds(structures.DiskStats, texts, *[u64] * 11)
nets = st.builds(structures.NetStats, texts, *[u64] * 6)
coords = st.builds(structures.Coord, u8, st.lists(u32, max_size=3).map(tuple))

PLAIN: dict[int, st.SearchStrategy[object]] = {
    **{kind: integers(kind) for kind in INTEGERS},
    codes.BOOL: st.booleans(),
    codes.STRING: strings,
    codes.FLOAT: floats32(),
    codes.DOUBLE: st.floats(allow_nan=False),
    codes.TIMEVAL: times,
    codes.PROC: procs,
    codes.PROC_NSPACE: names,
    codes.BYTE_OBJECT: data,
    codes.COMPRESSED_STRING: data.map(lambda found: struct.pack("=I", len(found)) + zlib.compress(found)),
    codes.COMPRESSED_BYTE_OBJECT: data,
    codes.REGEX: data,
    codes.ENVAR: st.builds(types.Envar, texts, texts, st.sampled_from(["", ":", ";", "\xff"])),
    codes.PROC_INFO: st.builds(types.ProcInfo, procs, texts, texts, i32, u8, i32),
    codes.COORD: coords,
    codes.REGATTR: st.builds(types.RegAttr, texts, names, u16, st.lists(names, max_size=3).map(tuple)),
    codes.GEOMETRY: st.builds(structures.Geometry, u64, texts, texts, st.lists(coords, max_size=3).map(tuple)),
    codes.DEVICE_DIST: st.builds(types.DeviceDistance, texts, texts, u64, u16, u16),
    codes.ENDPOINT: st.builds(structures.Endpoint, texts, texts, data),
    codes.DEVICE: st.builds(structures.Device, texts, texts, u64),
    codes.RESOURCE_UNIT: st.builds(structures.ResourceUnit, u64, u64),
    codes.NODE_PID: st.builds(structures.NodePid, texts, u32, i32),
    codes.REGEX2: st.builds(structures.Regex2, texts, data),
    codes.DISK_STATS: disks,
    codes.NET_STATS: nets,
    codes.PROC_STATS: st.builds(
        structures.ProcStats,
        texts, procs, i32, texts, u8, times, floats32(), i32, u16, floats32(), floats32(), floats32(), floats32(), u16,
        times,
    ),
    codes.NODE_STATS: st.builds(
        structures.NodeStats,
        texts, *[floats32()] * 11, times, st.lists(disks, max_size=2).map(tuple), st.lists(nets, max_size=2).map(tuple),
    ),
}  # fmt: skip
"""What values of each type may hold, for all types that have a structure of their own and hold no other values."""

WITHOUT_FORM = readers.PRIVATE | {codes.PROC_CPUSET, codes.UNDEF}
ONLY_ELEMENTS = {codes.VALUE, codes.INFO, codes.PDATA, codes.APP, codes.QUERY, codes.DATA_ARRAY}


def arrays(items: dict[int, st.SearchStrategy[object]], most: int = 4) -> st.SearchStrategy[DataArray]:
    def of(kind: int) -> st.SearchStrategy[DataArray]:
        return st.lists(items[kind], max_size=most).map(lambda found: DataArray(kind, tuple(found)))

    return st.sampled_from(sorted(items)).flatmap(of)


def leaves() -> st.SearchStrategy[Value]:
    def of(kind: int) -> st.SearchStrategy[Value]:
        return PLAIN[kind].map(lambda item: Value.unchecked(kind, item))

    return st.sampled_from(sorted(PLAIN)).flatmap(of) | st.just(Value(codes.STRING, None)) | st.just(Value(codes.UNDEF))


def nested(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    infos = st.builds(Info, keys, inner, st.integers(0, 2**32 - 1))
    several = st.lists(infos, max_size=2).map(tuple)
    words = st.lists(keys, max_size=2).map(tuple)
    items: dict[int, st.SearchStrategy[object]] = {
        codes.VALUE: inner,
        codes.INFO: infos,
        codes.PDATA: st.builds(types.Pdata, procs, keys, inner),
        codes.QUERY: st.builds(types.Query, words, several),
        codes.APP: st.builds(types.App, texts, words, words, texts, i32, several),
        codes.DATA_ARRAY: arrays(PLAIN, 2),
    }
    return arrays(items, 3).map(lambda found: Value.unchecked(codes.DATA_ARRAY, found))


def there_and_back(value: Value) -> Value:
    made = marshal.value(value)
    try:
        return marshal.read(made)
    finally:
        marshal.clear(made)


@pytest.mark.parametrize("kind", sorted(PLAIN), ids=lambda kind: NAMES[kind].lower())
def test_every_type_survives(kind: int) -> None:
    @settings(max_examples=40)
    @given(PLAIN[kind])
    def check(item: object) -> None:
        value = Value.unchecked(kind, item)
        assert there_and_back(value) == value

    check()


@settings(max_examples=300)
@given(arrays(PLAIN))
def test_arrays_of_every_type_survive(array: DataArray) -> None:
    value = Value.unchecked(codes.DATA_ARRAY, array)
    assert there_and_back(value) == value


@settings(max_examples=200)
@given(st.recursive(leaves(), nested, max_leaves=6))
def test_values_within_values_survive(value: Value) -> None:
    assert there_and_back(value) == value


def test_every_type_with_a_structure_is_tried() -> None:
    assert set(PLAIN) | ONLY_ELEMENTS | WITHOUT_FORM == set(NAMES)


def test_empty_things_and_nuls_are_not_mixed_up() -> None:
    for value in (
        Value(codes.STRING, ""),
        Value(codes.STRING, None),
        Value(codes.BYTE_OBJECT, b""),
        Value(codes.BYTE_OBJECT, b"\0\0a\0"),
        Value.unchecked(codes.DATA_ARRAY, DataArray(codes.STRING, ())),
        Value.unchecked(codes.DATA_ARRAY, DataArray(codes.BYTE_OBJECT, (b"", b"\0"))),
    ):
        assert there_and_back(value) == value


def test_what_does_not_fit_a_field_is_refused_at_the_call() -> None:
    for key in ("k" * 512, "ä" * 256):
        with pytest.raises(ValueError, match="longer than 511"):
            marshal.infos([Info.unchecked(key, Value(codes.BOOL, True), 0)])
    with pytest.raises(ValueError, match="longer than 255"):
        marshal.procs([Proc.unchecked("n" * 256, 0)])
    with pytest.raises(ValueError, match="compressed"):
        marshal.value(Value.unchecked(codes.COMPRESSED_STRING, b"\x05\0\0\0nonsense"))
    with pytest.raises(ValueError, match="NUL"):
        marshal.value(Value.unchecked(codes.STRING, "a\0b"))


def test_the_longest_names_fit() -> None:
    value = Value.unchecked(
        codes.DATA_ARRAY, DataArray(codes.INFO, (Info("k" * 511, Value(codes.PROC, Proc("n" * 255, 0))),))
    )
    assert there_and_back(value) == value


@pytest.mark.parametrize("release", RELEASES, ids=str)
@pytest.mark.parametrize("kind", sorted(NAMES), ids=lambda kind: NAMES[kind].lower())
def test_a_type_is_either_taken_or_refused_by_name(release: tuple[int, int, int], kind: int) -> None:
    ours = Marshal(release)
    rule = readers.rule_of_library(release)
    for refused, value in (
        (kind in readers.REFUSED_VALUES[rule], Value.unchecked(kind, None)),
        (kind in readers.REFUSED_ELEMENTS[rule], Value.unchecked(codes.DATA_ARRAY, DataArray(kind, ()))),
    ):
        if refused:
            with pytest.raises(NotSupported, match=NAMES[kind]):
                ours.value(value)
        else:
            assert kind in {*PLAIN, *ONLY_ELEMENTS, codes.UNDEF, codes.PROC_CPUSET}


def test_a_release_does_not_get_types_that_came_later() -> None:
    device = Value.unchecked(codes.DEVICE, structures.Device("u", "o", 2))
    with pytest.raises(NotSupported, match=r"libpmix before 6\.1 does not take a DEVICE"):
        Marshal((5, 0, 11)).value(device)
    newer = Marshal((6, 1, 0))
    made = newer.value(device)
    assert newer.read(made) == device
    newer.clear(made)


def test_a_type_that_nobody_knows_is_refused_when_it_comes_back() -> None:
    made = marshal.value(Value(codes.INT32, 1))
    made.type = 999
    with pytest.raises(NotSupported, match="type 999"):
        marshal.read(made)


def test_what_was_built_before_a_failure_is_freed() -> None:
    def resident() -> int:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * 4096

    bad = (Info("a", Value(codes.BYTE_OBJECT, b"x" * 20000)), Info.unchecked("k" * 600, Value(codes.BOOL, True), 0))

    def fail() -> None:
        with pytest.raises(ValueError, match="longer"):
            marshal.infos(bad)

    for _ in range(50):
        fail()
    before = resident()
    for _ in range(2000):
        fail()
    assert resident() - before < 10_000_000, "each failure leaves its 20 kB behind"


@pytest.mark.parametrize(
    ("kind", "number", "warned"),
    [
        (codes.DOUBLE, 0.5, False),
        (codes.DOUBLE, 0.1, False),
        (codes.DOUBLE, 0.1234567, True),
        (codes.DOUBLE, 1e-9, True),
        (codes.DOUBLE, 1e300, False),
        (codes.DOUBLE, float("inf"), False),
        (codes.DOUBLE, float("nan"), False),
        (codes.FLOAT, 0.1, False),
        (codes.FLOAT, 3e-8, True),
    ],
)
def test_floats_that_libpmix_alters_are_warned_of(kind: int, number: float, warned: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        precision(kind, (number,))
    assert [w.category for w in caught] == [PrecisionWarning] * warned


@pytest.mark.parametrize("kind", sorted(INTEGERS), ids=lambda kind: NAMES[kind].lower())
def test_integers_take_exactly_their_range(kind: int) -> None:
    low, high = RANGES[kind]
    size = struct.calcsize(INTEGERS[kind])
    assert high - low == 2 ** (8 * size) - 1
    for number in (low, high):
        assert there_and_back(Value(kind, number)) == Value(kind, number)


def test_what_there_is_no_memory_for_is_told_and_nothing_is_left_behind(monkeypatch):
    from types import SimpleNamespace

    from pypmix.engine.native import marshal as made
    from pypmix.engine.native import session, structs
    from pypmix.standard.ops import Fence
    from pypmix.standard.structures import Regex2

    monkeypatch.setattr(structs, "lib", SimpleNamespace(pypmix_copy=lambda *_: structs.NULL))
    for put in (
        lambda: made._put_regex2(None, SimpleNamespace(), Regex2("pmix", b"x")),
        lambda: structs.put_object(SimpleNamespace(), b"x"),
        lambda: structs.copy_text("x"),
    ):
        with pytest.raises(MemoryError):
            put()
    freed = []
    monkeypatch.setattr(session, "lib", SimpleNamespace(pypmix_infos_free=lambda *array: freed.append(array)))

    def procs(_given):
        raise ValueError("no proc")

    class Marshal:
        def infos(self, _given):
            return "infos", 1

    marshal = Marshal()
    marshal.procs = procs
    opened = SimpleNamespace(marshal=marshal, proc=("job", 0), slurm=False)
    with pytest.raises(ValueError, match="no proc"):
        session.NativeSession._fence_arguments(opened, Fence(collect=True), ())
    assert freed == [("infos", 1)]
