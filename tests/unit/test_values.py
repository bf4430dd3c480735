"""Python values become PMIx values of the right type, come back unaltered, and what does not fit is refused."""

from __future__ import annotations

import pickle
import re
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pypmix
from pypmix import Info, Proc, Scope, Status, Value, attrs
from pypmix.standard import codes, values
from pypmix.types import DataArray, DataType, array, info, typed

pytestmark = pytest.mark.timeout(60)

INFERRED = [
    (True, DataType.BOOL),
    (7, DataType.INT64),
    (-(2**63), DataType.INT64),
    (0.5, DataType.DOUBLE),
    ("héllo \udcff", DataType.STRING),
    ("", DataType.STRING),
    (b"\0\xff", DataType.BYTE_OBJECT),
    (bytearray(b"x"), DataType.BYTE_OBJECT),
    (memoryview(b"x"), DataType.BYTE_OBJECT),
    (Proc("a", 1), DataType.PROC),
    (Scope.LOCAL, DataType.SCOPE),
    (Status.ERR_TIMEOUT, DataType.STATUS),
    (pypmix.EventCode.PROC_TERMINATED, DataType.STATUS),
    ([1, 2], DataType.DATA_ARRAY),
    (("a",), DataType.DATA_ARRAY),
    ({"acme.load": 1.5}, DataType.DATA_ARRAY),
    (pypmix.types.Timeval(1, 2), DataType.TIMEVAL),
    (pypmix.types.Cpuset("0-3"), DataType.PROC_CPUSET),
]


@pytest.mark.parametrize(("data", "type"), INFERRED)
def test_types_are_inferred(data: object, type: int) -> None:
    assert values.from_python(data).type == type


@pytest.mark.parametrize("data", [None, object(), 1j, {1, 2}, range(3), lambda: None])
def test_what_has_no_pmix_type_is_refused_with_the_alternatives(data: object) -> None:
    with pytest.raises(TypeError, match="bool, int, float, str"):
        values.from_python(data)


def test_an_int_beyond_int64_asks_for_an_explicit_type() -> None:
    with pytest.raises(OverflowError, match=r"use uint64"):
        values.from_python(2**63)
    with pytest.raises(OverflowError):
        values.from_python(-(2**63) - 1)
    assert values.from_python(pypmix.types.uint64(2**64 - 1)).data == 2**64 - 1


@pytest.mark.parametrize("type", sorted(values.RANGES))
def test_every_integer_type_takes_its_range_and_nothing_beyond(type: int) -> None:
    low, high = values.RANGES[type]
    for number in (low, high):
        assert Value(type, number).data == number
    for number in (low - 1, high + 1):
        with pytest.raises(OverflowError, match=values.type_name(type)):
            Value(type, number)
    for wrong in ("1", 1.0, True, None, b"1"):
        with pytest.raises(TypeError):
            Value(type, wrong)


def test_the_ranges_are_those_of_the_c_types() -> None:
    for type, letter in [
        (codes.INT8, "b"), (codes.UINT8, "B"), (codes.INT16, "h"), (codes.UINT16, "H"), (codes.INT32, "i"),
        (codes.UINT32, "I"), (codes.INT64, "q"), (codes.UINT64, "Q"), (codes.INT, "i"), (codes.UINT, "I"),
        (codes.SIZE, "N"), (codes.PID, "i"), (codes.STATUS, "i"), (codes.PROC_RANK, "I"), (codes.SCOPE, "B"),
    ]:  # fmt: skip
        for number in values.RANGES[type]:
            struct.pack(letter, number)
        for number in (values.RANGES[type][0] - 1, values.RANGES[type][1] + 1):
            with pytest.raises(struct.error):
                struct.pack(letter, number)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_text_is_kept(text: str) -> None:
    assert values.to_python(values.from_python(text)) == text


def test_a_string_with_nul_or_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        values.from_python("a\0b")
    with pytest.raises(ValueError, match="surrogate"):
        values.from_python("\ud800")


def test_arrays_hold_one_type() -> None:
    assert values.from_python([1, 2]).data == DataArray(codes.INT64, (1, 2))
    assert array(DataType.UINT32, [1]).data == DataArray(codes.UINT32, (1,))
    assert array(DataType.STRING, []).data == DataArray(codes.STRING, ())
    assert values.from_python([pypmix.types.uint32(1), pypmix.types.uint32(2)]).data == DataArray(codes.UINT32, (1, 2))
    assert values.from_python([]) == array(DataType.INT64, [])
    for mixed in ([1, "a"], [1, True], [1, 2.5], [pypmix.types.uint32(1), pypmix.types.uint16(2)]):
        with pytest.raises(TypeError):
            values.from_python(mixed)
    with pytest.raises(OverflowError):
        array(DataType.UINT8, [256])


def test_plain_python_comes_out() -> None:
    assert values.to_python(typed(DataType.UINT32, 7)) == 7
    assert values.to_python(typed(DataType.SCOPE, 2)) is Scope.REMOTE
    assert values.to_python(typed(DataType.STATUS, -24)) is Status.ERR_TIMEOUT
    assert values.to_python(array(DataType.SCOPE, [1])) == [Scope.LOCAL]
    assert values.to_python(values.from_python([[1], [2, 3]])) == [[1], [2, 3]]
    assert values.to_python(typed(DataType.PROC_STATE, 250)) == 250


def test_an_unknown_number_of_an_enum_still_comes_out() -> None:
    assert int(values.to_python(typed(DataType.STATUS, -99999))) == -99999


def test_compressed_values_are_inflated_within_bounds() -> None:
    def packed(data: bytes, size: int | None = None) -> bytes:
        return struct.pack("=I", len(data) if size is None else size) + zlib.compress(data)

    assert values.to_python(Value(codes.COMPRESSED_STRING, packed(b"text" * 2000))) == "text" * 2000
    assert values.to_python(Value(codes.COMPRESSED_STRING, packed(b"text\0"))) == "text"
    assert values.to_python(Value(codes.COMPRESSED_BYTE_OBJECT, packed(b"\0" * 100))) == b"\0" * 100
    for damaged in (b"", b"\1\0", packed(b"abc", 2), packed(b"abc", 4), packed(b"abc")[:-3], b"\3\0\0\0abc",
                    packed(b"", 2**32 - 1)):  # fmt: skip
        with pytest.raises(ValueError, match="compressed"):
            values.inflate(damaged)


def test_infos_take_the_type_of_their_attribute() -> None:
    assert attrs.TIMEOUT(5) == Info("pmix.timeout", Value(codes.INT, 5))
    assert info("pmix.timeout", 5) == attrs.TIMEOUT(5)
    assert info(attrs.TIMEOUT, 5) == attrs.TIMEOUT(5)
    assert info("acme.load", 0.5).value.type == codes.DOUBLE
    assert attrs.TIMEOUT(5, flags=1).flags == 1
    assert values.infos({"acme.a": 1, attrs.TIMEOUT: 2}) == (info("acme.a", 1), attrs.TIMEOUT(2))
    assert values.infos([attrs.TIMEOUT(2)]) == (attrs.TIMEOUT(2),)


def test_a_wrong_type_is_an_error_at_the_call() -> None:
    with pytest.raises(TypeError, match="TIMEOUT takes INT"):
        attrs.TIMEOUT("5")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        attrs.TIMEOUT(True)
    with pytest.raises(TypeError):
        attrs.COLLECT_DATA(1)  # type: ignore[arg-type]
    with pytest.raises(OverflowError, match="TIMEOUT"):
        attrs.TIMEOUT(2**31)
    with pytest.raises(TypeError):
        values.infos(["pmix.timeout"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        info(5, 5)


def test_keys_are_bounded() -> None:
    assert info("k" * 511, 1).key == "k" * 511
    for key in ("k" * 512, "ü" * 256, "a\0b"):
        with pytest.raises(ValueError, match="key"):
            info(key, 1)


def test_procs_are_checked_ordered_and_hashable() -> None:
    assert Proc("a", 2) < Proc("a", 10) < Proc("b", 0)
    assert {Proc("a", 1): 1}[Proc("a", 1)] == 1
    assert str(Proc("a", pypmix.Rank.WILDCARD)) == "a:*"
    for nspace, rank, kind in [("n" * 256, 0, ValueError), ("a\0", 0, ValueError), ("a", -1, OverflowError),
                               ("a", 2**32, OverflowError), ("a", True, TypeError), (b"a", 0, TypeError)]:  # fmt: skip
        with pytest.raises(kind):
            Proc(nspace, rank)  # type: ignore[arg-type]


def test_every_name_that_the_package_exports_is_there() -> None:
    assert len(pypmix.__all__) < 60
    for module in (pypmix, pypmix.types, pypmix.groups):
        for name in module.__all__:
            assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        pypmix.no_such_name  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(("data", "type"), INFERRED)
def test_values_survive_pickling(data: object, type: int) -> None:
    if not isinstance(data, memoryview):
        value = values.from_python(data)
        assert pickle.loads(pickle.dumps(value)) == value


def test_the_shim_numbers_types_as_the_package_does() -> None:
    text = (Path(__file__).parents[2] / "native" / "shim" / "types.h").read_text()
    numbers = {name: int(number) for name, number in re.findall(r"\b([A-Z]\w*) = (\d+)", text)}
    ours = {name: number for name, number in vars(codes).items() if name.isupper()}
    end = numbers.pop("END")
    assert numbers == {name: ours[name] for name in numbers}
    assert end == max(ours.values()) + 1
    assert {name for name, number in ours.items() if number not in numbers.values()} == {
        "BUFFER",
        "KVAL",
        "DATA_BUFFER",
    }


def test_the_plain_numbers_are_those_of_the_enum() -> None:
    ours = {name: number for name, number in vars(codes).items() if name.isupper()}
    public = {member.name: int(member) for member in DataType}
    assert {name: number for name, number in ours.items() if name in public} == {
        name: public[name] for name in ours if name in public
    }
    assert set(ours) - set(public) <= {"BUFFER"}
    assert set(public) - set(ours) <= {"DATA_TYPE_MAX"}


def test_a_dict_comes_back_as_a_dict() -> None:
    given = {"rate": 0.5, "names": ["a", "b"], "inner": {"deep": {"one": 1}}, "rows": [{"a": 1}, {"a": 2}], "none": {}}
    assert values.to_python(values.from_python(given)) == given
    assert values.to_python(values.from_python({})) == {}


def test_infos_that_no_dict_can_hold_come_back_as_infos() -> None:
    twice = [info("key", 1), info("key", 2)]
    assert values.to_python(values.from_python(twice)) == twice
    reserved = {attrs.TIMEOUT: 5, "other": 1}
    assert values.to_python(values.from_python(reserved)) == [attrs.TIMEOUT(5), info("other", 1)]


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("bool", DataType.BOOL), ("int8", DataType.INT8), ("uint8", DataType.UINT8), ("int16", DataType.INT16),
        ("uint16", DataType.UINT16), ("int32", DataType.INT32), ("uint32", DataType.UINT32), ("int64", DataType.INT64),
        ("uint64", DataType.UINT64), ("float32", DataType.FLOAT), ("float64", DataType.DOUBLE),
    ],
)  # fmt: skip
def test_scalars_and_arrays_of_numpy_keep_their_type(name: str, type: int) -> None:
    numpy = pytest.importorskip("numpy")
    one = values.from_python(numpy.ones((), name)[()])
    assert one == values.from_python(numpy.ones((), name)) == Value(type, one.data) and one.data == 1
    assert one.data.__class__ in (bool, int, float)
    found = values.from_python(numpy.array([0, 1], name))
    assert found.data == DataArray(type, (Value(type, one.data - one.data if type != DataType.BOOL else False).data, 1))
    assert values.from_python(numpy.array([], name)).data == DataArray(type, ())
    assert values.to_python(values.from_python(numpy.eye(2, dtype=name))) == [[1, 0], [0, 1]]


def test_numpy_stands_where_python_numbers_do() -> None:
    numpy = pytest.importorskip("numpy")
    assert attrs.TIMEOUT(numpy.int64(5)) == attrs.TIMEOUT(5)
    assert attrs.COLLECT_DATA(numpy.bool_(True)) == attrs.COLLECT_DATA(True)
    assert pypmix.types.double(numpy.float32(0.5)) == pypmix.types.double(0.5)
    assert pypmix.types.array(DataType.INT32, numpy.array([1, 2])).data == DataArray(codes.INT32, (1, 2))
    assert Proc("a", numpy.int64(1)) == Proc("a", 1)
    with pytest.raises(TypeError, match=r"ndarray of complex128 has no PMIx type: put its bytes"):
        values.from_python(numpy.zeros(3, complex))
    with pytest.raises(TypeError, match="no PMIx type"):
        values.from_python(numpy.datetime64("2026-01-01"))
    with pytest.raises(TypeError, match="BOOL cannot hold an int"):
        attrs.COLLECT_DATA(numpy.int64(1))


def test_errors_have_the_right_article() -> None:
    with pytest.raises(TypeError, match="^an object has no PMIx type"):
        values.from_python(object())
    with pytest.raises(TypeError, match="INT8 cannot hold a str"):
        pypmix.types.int8("a")
