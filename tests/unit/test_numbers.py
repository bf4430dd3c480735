"""Integers and numbers of seconds as arguments: one rule for all of them, and errors that name the call."""

from __future__ import annotations

import decimal
import fractions

import numpy
import pytest

from lib.samples import Index, Seconds
from pypmix import app
from pypmix.arguments import limit, number_of, ranked, seconds, target
from pypmix.standard import codes
from pypmix.standard.enums import EventCode, Scope
from pypmix.standard.types import App, Info, Proc, Value, check_integer, check_number, from_python, read_integer

CALLER = Proc("job", 1)

INTEGERS = [3, Index(3), numpy.int64(3), numpy.uint8(3), numpy.array(3), EventCode(3)]
OTHERS = [True, numpy.True_, 3.0, numpy.float64(3), "3", b"3", None, [3], numpy.array([3]), numpy.array(3.0), object]
NUMBERS = [*INTEGERS, 3.0, Seconds(3.0), numpy.float32(3), decimal.Decimal(3), fractions.Fraction(3), numpy.array(3.0)]
NO_NUMBERS = [True, numpy.True_, "3", b"3", None, [3], numpy.array([3.0]), 3j, object]


@pytest.mark.parametrize("number", INTEGERS, ids=repr)
def test_integers(number):
    found = check_integer(number, "it")
    assert (found, read_integer(number)) == (3, 3) and type(found) is int
    assert Proc("job", number) == Proc("job", 3)
    assert ranked(number, CALLER) == target(number, CALLER) == Proc("job", 3)
    assert ranked([number, 0], CALLER) == (Proc("job", 3), Proc("job", 0))
    assert Value(codes.UINT16, number).data == 3
    assert app(["true"], n=number).maxprocs == 3


@pytest.mark.parametrize("number", OTHERS, ids=repr)
def test_what_is_not_an_integer(number):
    assert read_integer(number) is None
    with pytest.raises(TypeError, match=r"^it is an int, not "):
        check_integer(number, "it")
    with pytest.raises(TypeError):
        Proc("job", number)
    with pytest.raises(TypeError):
        Value(codes.UINT16, number)
    with pytest.raises(TypeError):
        app(["true"], n=number)


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_numbers_of_seconds(number):
    assert check_number(number, "it") == limit(number) == 3
    assert type(check_number(number, "it")) in (int, float)
    assert seconds(number) == Info("pmix.timeout", Value(codes.INT, 3))


@pytest.mark.parametrize("number", NO_NUMBERS, ids=repr)
def test_what_is_not_a_number(number):
    for check in (lambda: check_number(number, "a timeout is"), lambda: seconds(number)):
        with pytest.raises(TypeError, match=r"^a timeout is"):
            check()


def test_members_of_enums():
    assert [number_of(each, "Scope", "LOCAL") for each in (Scope.LOCAL, 1, Index(1), numpy.int8(1))] == [1, 1, 1, 1]
    for other in (EventCode(1), True, 1.0, "1"):
        with pytest.raises(TypeError, match="a Scope is expected"):
            number_of(other, "Scope", "LOCAL")


def test_values_without_a_type_of_their_own():
    assert from_python(Index(7)) == from_python(7)
    with pytest.raises(TypeError, match="has no PMIx type"):
        from_python(Seconds(1.0))


def test_an_application_of_a_program():
    from pypmix.apps import app_tuple

    (found,) = app_tuple(App("true", ("true",), maxprocs=Index(2)), None, None, None)
    assert found.maxprocs == 2 and type(found.maxprocs) is int
    with pytest.raises(TypeError, match="a number of procs is an int, not str"):
        app_tuple(App("true", ("true",), maxprocs="2"), None, None, None)
