"""Records are built by position or name, never change, and compare by value."""

from __future__ import annotations

import pickle

import pytest

from pypmix import Info, Proc
from pypmix.standard.ops import Abort, Fence, Get, Put
from pypmix.types import App, Envar, Timeval, uint32

pytestmark = pytest.mark.timeout(60)


def test_construction_by_position_name_and_default() -> None:
    assert Envar("A", "b") == Envar(name="A", value="b", separator=":")
    assert App("x").maxprocs == 1
    assert App("x", maxprocs=3).replace(cwd="/").maxprocs == 3


@pytest.mark.parametrize("arguments", [((1,), {}), ((1, 2, 3), {}), ((1, 2), {"sec": 1}), ((1, 2), {"x": 1})])
def test_wrong_arguments_are_refused(arguments: tuple[tuple[int, ...], dict[str, int]]) -> None:
    with pytest.raises(TypeError, match="Timeval"):
        Timeval(*arguments[0], **arguments[1])


def test_records_do_not_change() -> None:
    record = Timeval(1, 2)
    with pytest.raises(AttributeError, match="immutable"):
        record.sec = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del record.sec
    with pytest.raises(AttributeError):
        record.other = 1  # type: ignore[attr-defined]


def test_equality_hash_match_and_pickle() -> None:
    assert Timeval(1, 2) == Timeval(1, 2) != Timeval(1, 3)
    assert Timeval(1, 2) != (1, 2)
    assert len({Timeval(1, 2), Timeval(1, 2)}) == 1
    assert pickle.loads(pickle.dumps(Fence((Proc("a", 1),), True))) == Fence((Proc("a", 1),), True)
    match Timeval(1, 2):
        case Timeval(sec, usec):
            assert (sec, usec) == (1, 2)


def test_operations_are_checked_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="longer than 511"):
        Put("k" * 600, uint32(1))
    with pytest.raises(ValueError, match="empty"):
        Get(Proc("a", 1), "")
    with pytest.raises(TypeError, match="Value"):
        Put("k", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scope"):
        Put("k", uint32(1), 9)
    with pytest.raises(TypeError, match="tuple"):
        Fence([Proc("a", 1)])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Proc"):
        Fence(("a",))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Value"):
        Info("k", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="32-bit"):
        Abort(2**31)
