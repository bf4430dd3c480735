"""Every data type survives packing and unpacking, in both kinds of buffer; what is out of bounds is refused."""

from __future__ import annotations

import math
import struct
import time

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from lib import strategies
from pypmix.standard import codes
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.structures import Topology
from pypmix.standard.types import NAMES, RANGES, DataArray, Envar, Info, KeyValue, Proc, Value
from pypmix.wire import decode, encode
from pypmix.wire.codec import Packer, Unpacker, encode_kval, kvals, split_kvals
from pypmix.wire.messages import decode_get, encode_get

pytestmark = pytest.mark.timeout(60)

quick = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
RELEASES = [(4, 2, 2), (4, 2, 9), (5, 0, 11), (6, 1, 0), (7, 0, 0)]
KINDS = [1, 2]


def rounded(type: int, items: list[object], kind: int, release: tuple[int, int, int]) -> list[object]:
    packed = Packer(kind, release).pack(type, *items).bytes()
    unpacker = Unpacker(packed, kind, release)
    found = unpacker.unpack(type)
    assert not unpacker.more()
    assert unpacker.position == len(packed)
    again = Packer(kind, release).pack(type, *found).bytes()
    assert again == packed
    return found


@pytest.mark.parametrize("kind", KINDS, ids=["plain", "described"])
def test_a_separator_is_one_character_or_none(kind: int) -> None:
    for separator, same in ((":", ":"), ("", "")):
        assert rounded(codes.ENVAR, [Envar("A", "b", separator)], kind, (5, 0, 11)) == [Envar("A", "b", same)]
    with pytest.raises(ValueError, match="a separator is one character, not '::'"):
        Packer(kind).pack(codes.ENVAR, Envar("A", "b", "::"))


@pytest.mark.parametrize("kind", KINDS, ids=["plain", "described"])
@pytest.mark.parametrize("type", strategies.ALL_TYPES, ids=lambda type: NAMES[type])
def test_round_trip(type: int, kind: int) -> None:
    @quick
    @given(st.lists(strategies.data(type), max_size=3), st.sampled_from(RELEASES[:3]))
    def check(items: list[object], release: tuple[int, int, int]) -> None:
        assert rounded(type, items, kind, release) == items

    check()


@pytest.mark.parametrize("release", RELEASES, ids=str)
@quick
@given(item=strategies.values())
def test_round_trip_of_values_in_every_release(release: tuple[int, int, int], item: Value) -> None:
    packed = Packer(1, release).pack(codes.VALUE, item).bytes()
    if release[0] == 6:
        # A missing array and an empty one look alike to a reader that does not know what follows.
        assume(b"\x27\0" not in packed)
    found = Unpacker(packed, 1, release).one(codes.VALUE)
    assert Packer(1, release).pack(codes.VALUE, found).bytes() == packed
    if release[0] < 7:
        assert found == item


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type", strategies.ALL_TYPES, ids=lambda type: NAMES[type])
def test_every_cut_is_refused(type: int, kind: int) -> None:
    @settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
    @given(strategies.data(type))
    def check(item: object) -> None:
        # Before 7, a topology ends in flags without a length: fewer of them are those of an older hwloc.
        packed = Packer(kind, (7, 0, 0)).pack(type, item).bytes()
        assume(len(packed) < 2000)
        for size in range(len(packed)):
            unpacker = Unpacker(packed[:size], kind, (7, 0, 0))
            with pytest.raises(RemoteProtocolError):
                unpacker.one(type)
            assert unpacker.position == 0

    check()


@quick
@given(st.integers(0, 2**64 - 1))
@example(2**64 - 1)
@example(2**56 - 1)
@example(2**56)
def test_flex(number: int) -> None:
    packed = encode.flex(number)
    assert len(packed) <= 9
    assert decode.flex(packed + b"\xff", 0) == (number, len(packed))


def test_flex_as_natives_write_it() -> None:
    assert encode.flex(2**64 - 1) == b"\xff" * 9
    assert encode.flex(300).hex() == "ac02"
    assert encode.zigzag(-46).hex() == "5b"
    assert encode.zigzag(-(2**63)) == b"\xff" * 9
    assert Packer().pack(codes.STATUS, -46).bytes().hex() == "025b"
    assert Packer(2).pack(codes.UINT32, 300).bytes().hex() == "09020eac02"


@pytest.mark.parametrize("type", sorted(RANGES.keys() - {codes.POINTER}), ids=lambda type: NAMES[type])
def test_out_of_range_is_refused(type: int) -> None:
    low, high = RANGES[type]
    packer = Packer()
    for number in (low - 1, high + 1, 2**80, -(2**80)):
        with pytest.raises(OverflowError):
            packer.pack(type, number)
    for wrong in ("1", None, 1.5, b"\1", [1]):
        with pytest.raises(TypeError):
            packer.pack(type, wrong)
    assert packer.bytes() == b""


@pytest.mark.parametrize(
    "type", sorted(set(strategies.ALL_TYPES) - {codes.BOOL, codes.POINTER}), ids=lambda t: NAMES[t]
)
def test_data_of_another_kind_is_refused(type: int) -> None:
    packer = Packer()
    with pytest.raises((TypeError, ValueError)):
        packer.pack(type, object())
    assert packer.bytes() == b""


@pytest.mark.parametrize("type", [29, 44, 104, 70000])
def test_unknown_types(type: int) -> None:
    with pytest.raises(TypeError):
        Packer().pack(codes.VALUE, Value.unchecked(type, b""))
    with pytest.raises(RemoteProtocolError):
        Unpacker(b"\2" + encode.flex(type) + b"\0\0").one(codes.VALUE)


@pytest.mark.parametrize(
    ("type", "body"),
    [
        (codes.UINT16, encode.flex(65536)),
        (codes.UINT32, encode.flex(2**32)),
        (codes.INT16, encode.zigzag(32768)),
        (codes.INT32, encode.zigzag(-(2**31) - 1)),
        (codes.PID, b"\x0f" + encode.flex(2**40)),
        (codes.PID, b"\x03\x04a\0"),
        (codes.STRING, b"\x04ab"),
        (codes.STRING, b"\x06a\0\0"),
        (codes.STRING, b"\x03a\0"),
        (codes.STRING, encode.zigzag(2**31 - 1) + b"a\0"),
        (codes.STRING, encode.zigzag(2**62) + b"a\0"),
        (codes.DOUBLE, encode.text("one")),
        (codes.DOUBLE, encode.text("1_0")),
        (codes.DOUBLE, encode.text("1" * 500)),
        (codes.DOUBLE, encode.text("١")),
        (codes.BYTE_OBJECT, encode.flex(2**63) + b"abc"),
        (codes.BUFFER, b"\x03\x00"),
        (codes.PROC, encode.text("n" * 256) + b"\0"),
        (codes.PROC, b"\0\0"),
        (codes.PROC, encode.text("n") + encode.flex(2**32)),
        (codes.INFO, encode.text("k" * 512) + b"\0\x03\0"),
        (codes.INFO, b"\0\0\x03\0"),
        (codes.INFO, encode.text("k") + encode.flex(2**32) + b"\x03\0"),
        (codes.DATA_ARRAY, b"\x0e" + encode.flex(2**40)),
        (codes.DATA_ARRAY, b"\x1f" + encode.flex(2**40) + b"\1"),
        (codes.DATA_ARRAY, b"\x18\x05"),
        (codes.QUERY, b"\xfe\xff\xff\x07"),
        (codes.COORD, b"\0" + encode.flex(2**60)),
        (codes.REGEX, b"raw:abc"),
        (codes.REGEX, b"what\0"),
        (codes.REGEX, b"blob:\0component=zlib:\0size=99999999999999999999:\0"),
        (codes.REGEX, b"blob:\0component=zlib:\0size=10:\0abc"),
        (codes.TOPO, encode.text("<x/>") + b"\2" * 40),
    ],
    ids=lambda value: NAMES.get(value, "") if isinstance(value, int) else value[:12].hex(),
)
def test_broken_bodies_are_refused(type: int, body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Unpacker(b"\2" + body, 1, (5, 0, 11)).one(type)


@pytest.mark.parametrize("count", [encode.zigzag(-1), encode.zigzag(2**31 - 1), encode.zigzag(2**62), b"\xff" * 9])
def test_counts_are_bounded(count: bytes) -> None:
    for type in (codes.UINT32, codes.INFO, codes.PROC, codes.BYTE, codes.STRING, codes.POINTER):
        with pytest.raises(RemoteProtocolError):
            Unpacker(count + b"\0\0\0\0").unpack(type)


def test_limit_of_a_pack() -> None:
    packed = Packer().pack(codes.UINT32, 1, 2, 3).bytes()
    assert Unpacker(packed).unpack(codes.UINT32, 3) == [1, 2, 3]
    with pytest.raises(RemoteProtocolError, match="3 values of UINT32 came where 2 may"):
        Unpacker(packed).unpack(codes.UINT32, 2)
    with pytest.raises(RemoteProtocolError, match="where one is expected"):
        Unpacker(packed).one(codes.UINT32)


def test_described_buffers_say_what_they_hold() -> None:
    packed = Packer(2).pack(codes.UINT32, 7).bytes()
    with pytest.raises(RemoteProtocolError, match="SIZE is expected, UINT32 came"):
        Unpacker(packed, 2).one(codes.SIZE)
    with pytest.raises(RemoteProtocolError, match="INT32"):
        Unpacker(b"\2" + packed, 2).one(codes.UINT32)


@pytest.mark.parametrize(
    "shell",
    [
        lambda inner: b"\x27\x01" + inner,
        lambda inner: b"\x15" + inner,
        lambda inner: b"\x18" + encode.text("k") + b"\0" + inner,
        lambda inner: b"\x27\x18\x01" + encode.text("k") + b"\0" + inner,
        lambda inner: b"\x29\0\x01" + encode.text("k") + b"\0" + inner,
        lambda inner: b"\x1c" + encode.text("k") + inner,
        lambda inner: b"\x19" + encode.text("n") + b"\0" + encode.text("k") + inner,
    ],
    ids=["array", "value", "info", "array of infos", "query", "kval", "pdata"],
)
def test_nesting_is_bounded(shell: object) -> None:
    def nested(depth: int) -> bytes:
        body = b"\x03\0"
        for _ in range(depth):
            body = shell(body)  # type: ignore[operator]
        return b"\2" + body

    if shell(b"") == b"\x27\x01":  # type: ignore[operator]
        # An array's body is untyped elements: b"\x27\x01" starts an array of arrays.
        deep = b"\2\x27" + b"\x27\x01" * 200 + b"\x03\0"
        with pytest.raises(RemoteProtocolError, match="nested"):
            Unpacker(deep).one(codes.VALUE)
        return
    Unpacker(nested(20)).one(codes.VALUE)
    for depth in (100, 5000):
        with pytest.raises(RemoteProtocolError, match="nested"):
            Unpacker(nested(depth)).one(codes.VALUE)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (3.25, "3.250000"),
        (-0.0, "-0.000000"),
        (1e9, "1000000000.000000"),
        (0.1, "0.100000"),
        (1e-9, "1e-09"),
        (math.pi, repr(math.pi)),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (1.7976931348623157e308, f"{1.7976931348623157e308:f}"),
        (5e-324, "5e-324"),
    ],
)
def test_doubles_travel_as_text_and_lose_nothing(number: float, shown: str) -> None:
    packed = Packer().pack(codes.DOUBLE, number).bytes()
    assert packed == b"\2" + encode.text(shown)
    found = Unpacker(packed).one(codes.DOUBLE)
    assert struct.pack("d", found) == struct.pack("d", number)


@pytest.mark.parametrize("bits", [0x3DCCCCCD, 0x00000001, 0x7F7FFFFF, 0x3F9D70A4, 0x4B800001])
def test_floats_travel_as_text_and_lose_nothing(bits: int) -> None:
    (number,) = struct.unpack("f", struct.pack("I", bits))
    found = Unpacker(Packer().pack(codes.FLOAT, number).bytes()).one(codes.FLOAT)
    assert struct.pack("f", found) == struct.pack("I", bits)


def test_a_float_is_the_nearest_that_the_type_holds() -> None:
    assert Packer().pack(codes.FLOAT, 0.1).bytes() == b"\2" + encode.text("0.100000")
    assert Packer().pack(codes.FLOAT, 1.23).bytes() == b"\2" + encode.text("1.230000")


@pytest.mark.parametrize(
    ("release", "packed"),
    [((4, 2, 2), "2700 00"), ((5, 0, 11), "2700 00"), ((6, 1, 0), "2700"), ((7, 0, 0), "2700")],
    ids=str,
)
def test_array_without_a_type(release: tuple[int, int, int], packed: str) -> None:
    value = Value.unchecked(codes.DATA_ARRAY, DataArray(codes.UNDEF, ()))
    infos = [Info("a", value), Info("b", Value(codes.UINT32, 5))]
    data = Packer(1, release).pack(codes.INFO, *infos).bytes()
    assert data.hex() == "04" + "046100" + "00" + packed.replace(" ", "") + "046200" + "00" + "0e05"
    assert Unpacker(data, 1, release).unpack(codes.INFO) == infos


def test_array_without_a_type_but_with_a_size_of_release_6() -> None:
    data = bytes.fromhex("04 046100 00 2700 00 046200 00 0e05")
    found = Unpacker(data, 1, (6, 1, 0)).unpack(codes.INFO)
    assert [info.key for info in found] == ["a", "b"]


def test_topology_per_release() -> None:
    flags = bytes([1, 0] * 16)
    topology = Topology("<topology/>", flags)
    assert Packer(1, (7, 0, 0)).pack(codes.TOPO, topology).bytes() == b"\2" + encode.text("<topology/>")
    data = Packer(1, (5, 0, 11)).pack(codes.TOPO, topology).bytes()
    assert data.endswith(flags)
    with pytest.raises(ValueError, match="support flags"):
        Packer(1, (5, 0, 11)).pack(codes.TOPO, Topology("<topology/>"))
    for size in (32, 31, 29, 27):
        cut = b"\2" + encode.text("<topology/>") + flags[:size]
        unpacker = Unpacker(cut + Packer().pack(codes.UINT32, 9).bytes(), 1, (5, 0, 11))
        assert unpacker.one(codes.TOPO) == Topology("<topology/>", flags[:size])
        assert unpacker.one(codes.UINT32) == 9


def test_pointers_are_one_mark_however_many() -> None:
    array = DataArray(codes.POINTER, (0, 0, 0))
    data = Packer().pack(codes.DATA_ARRAY, array).bytes()
    assert data.hex() == "021f0301"
    assert Unpacker(data).one(codes.DATA_ARRAY) == array


def test_raw_and_skip() -> None:
    first = Packer().pack(codes.KVAL, KeyValue("a", Value(codes.UINT32, 1))).bytes()
    second = Packer().pack(codes.PROC, Proc("n", 1), Proc("n", 2)).bytes()
    unpacker = Unpacker(first + second + first)
    assert unpacker.raw(codes.KVAL) == first
    unpacker.skip(codes.PROC)
    assert unpacker.more()
    assert unpacker.rest() == first
    assert not unpacker.more()
    unknown = b"\2" + encode.text("new") + encode.flex(104) + b"\x07whatever"
    assert Unpacker(unknown).raw(codes.KVAL) == unknown
    assert Packer().pack(codes.UINT32, 1).pack_raw(unknown).bytes() == b"\2\1" + unknown


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(items=st.lists(st.tuples(strategies.keys, strategies.values()), max_size=4))
def test_kvals(kind: int, items: list[tuple[str, Value]]) -> None:
    release = (5, 0, 11)
    pieces = [(key, encode_kval(kind, key, value, release)) for key, value in items]
    for (key, piece), (_, value) in zip(pieces, items, strict=True):
        assert piece == Packer(kind, release).pack(codes.KVAL, KeyValue(key, value)).bytes()
    data = b"".join(piece for _, piece in pieces)
    assert split_kvals(data, kind, release) == pieces
    assert kvals(data, 0, kind, release) == items


def test_values_of_unknown_types_survive_a_relay() -> None:
    known = encode_kval(1, "a", Value(codes.UINT32, 1))
    unknown = b"\2" + encode.text("new") + encode.flex(104) + b"anything"
    inside = b"\2" + encode.text("new") + b"\x27" + encode.flex(200) + b"\x02anything"
    assert split_kvals(known + unknown, 1) == [("a", known), ("new", unknown)]
    assert split_kvals(known + inside, 1) == [("a", known), ("new", inside)]


@pytest.mark.parametrize("data", ["04", "02", "0204", "020461", "0206610a00", "02046100", "0204610003ff", "0400"])
def test_what_is_no_kval_is_refused(data: str) -> None:
    with pytest.raises(RemoteProtocolError):
        split_kvals(bytes.fromhex(data), 1)
    with pytest.raises(RemoteProtocolError):
        kvals(bytes.fromhex(data), 0, 1)


def test_a_failed_pack_leaves_nothing() -> None:
    packer = Packer().pack(codes.UINT32, 1)
    good = Info("a", Value(codes.UINT32, 1))
    bad = Info("b", Value.unchecked(codes.UINT32, 2**40))
    with pytest.raises(OverflowError):
        packer.pack(codes.INFO, good, bad)
    assert packer.pack(codes.UINT32, 2).bytes() == b"\2\1\2\2"


def test_keys_of_any_number_do_not_pile_up() -> None:
    for number in range(10000):
        packed = Packer().pack(codes.INFO, Info(f"key.{number}", Value(codes.UINT32, number % 100))).bytes()
        assert Unpacker(packed).one(codes.INFO).key == f"key.{number}"
    for memo in (encode._KEYS, decode._KEYS, decode._INFOS):
        assert len(memo) <= 4096


def test_wrong_buffer_types_are_the_callers_mistake() -> None:
    for kind in (0, 3, None):
        with pytest.raises(ValueError, match="1 or 2"):
            Packer(kind)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="1 or 2"):
            Unpacker(b"", kind)  # type: ignore[arg-type]


def test_packs_of_no_kval_take_time_by_their_number():
    started = time.process_time()
    assert kvals(b"\0" * 500_000, 0, 1) == []
    assert time.process_time() - started < 5


def test_a_key_that_is_cut_off_is_no_other_key():
    whole = encode_get(1, "job", 1, (), "known")
    assert decode_get(whole, 1)[3] == "known"
    longer = encode_get(1, "job", 1, (), "known123")
    cut = longer[: -len("known123") - 1] + b"known\0"
    with pytest.raises(RemoteProtocolError):
        decode_get(cut, 1)
    nspace = Packer().pack(codes.PROC_NSPACE, "known123").bytes()
    with pytest.raises(RemoteProtocolError):
        Unpacker(nspace[: -len("known123") - 1] + b"known\0").one(codes.PROC_NSPACE)
