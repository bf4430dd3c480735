"""A data buffer gives back what was packed into it, of every type, and refuses anything else."""

from __future__ import annotations

import pytest

from lib.samples import samples
from pypmix import Info, Proc, RemoteProtocolError, Value
from pypmix.standard import codes
from pypmix.types import DataBuffer

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize("name", list(samples()))
def test_values_of_every_type_survive(name):
    value = samples()[name]
    data = DataBuffer().pack(value.type, value.data).pack(codes.INFO, Info("key", value, 3)).bytes()
    buffer = DataBuffer(data)
    assert buffer.one(value.type) == value.data
    assert buffer.unpack(codes.INFO) == [Info("key", value, 3)]
    assert not buffer.more()


@pytest.mark.parametrize("number", [0.1, 1e-300, 1e300, 1 / 3, float("inf")])
def test_floats_keep_every_digit(number):
    assert DataBuffer(DataBuffer().pack(codes.DOUBLE, number).bytes()).one(codes.DOUBLE) == number


def test_packs_come_out_as_they_were_packed():
    buffer = DataBuffer().pack(codes.UINT32, 1, 2, 3).pack(codes.PROC).pack(codes.STRING, "x")
    assert buffer.unpack(codes.UINT32) == [1, 2, 3]
    buffer.pack(codes.PROC, Proc("a", 1))
    assert buffer.unpack(codes.PROC) == []
    assert buffer.more()
    rest = DataBuffer(buffer.bytes())
    assert rest.one(codes.STRING) == "x"
    assert rest.unpack(codes.PROC) == [Proc("a", 1)]
    assert not rest.more()
    assert not DataBuffer().more()


def test_another_type_and_too_many_are_refused():
    data = DataBuffer().pack(codes.UINT32, 1, 2, 3).bytes()
    with pytest.raises(RemoteProtocolError):
        DataBuffer(data).unpack(codes.UINT64)
    with pytest.raises(RemoteProtocolError):
        DataBuffer(data).unpack(codes.UINT32, 2)
    with pytest.raises(RemoteProtocolError):
        DataBuffer(data).one(codes.UINT32)
    for end in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            DataBuffer(data[:end]).unpack(codes.UINT32)


def test_bad_values_are_refused_at_the_call_and_leave_nothing():
    buffer = DataBuffer().pack(codes.UINT8, 1)
    with pytest.raises(OverflowError):
        buffer.pack(codes.UINT8, 256)
    with pytest.raises(TypeError):
        buffer.pack(codes.INFO, Value(codes.UINT8, 1))
    assert buffer.one(codes.UINT8) == 1
    assert not buffer.more()


def test_the_old_name_of_an_argument_still_works() -> None:
    buffer = DataBuffer().pack(codes.UINT32, 1, 2)
    with pytest.warns(DeprecationWarning, match=r"DataBuffer\.unpack\(type\) is now data_type") as caught:
        assert buffer.unpack(type=codes.UINT32) == [1, 2]  # type: ignore[call-arg]
    assert caught[0].filename == __file__
