"""What an error says of a value that PMIx cannot hold: the key, and the place in the value."""

from __future__ import annotations

import pytest

from pypmix import attrs
from pypmix.requests import put_op
from pypmix.requests.publishing import publish_op
from pypmix.standard.enums import Persist, Range, Scope
from pypmix.standard.errors import PMIxError
from pypmix.standard.values import array, from_python

GLOBAL = Scope.GLOBAL


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, "a"], r"^put of 'k': value\[1\]: INT64 cannot hold a str: 'a'$"),
        ([], r"^put of 'k': value: the element type of an empty array cannot be inferred"),
        ({"b": []}, r"^put of 'k': value\['b'\]: the element type of an empty array cannot be inferred"),
        ({"a": {"b": [1, "x"]}}, r"^put of 'k': value\['a'\]\['b'\]\[1\]: INT64 cannot hold a str: 'x'$"),
        ([None], r"^put of 'k': value\[0\]: a NoneType has no PMIx type"),
        ([[1], [1, 2.5]], r"^put of 'k': value\[1\]\[1\]: INT64 cannot hold a float: 2.5$"),
        ((object(),), r"^put of 'k': value\[0\]: an object has no PMIx type"),
        ({"a": {1}}, r"^put of 'k': value\['a'\]: a set has no PMIx type"),
        ({1: 2}, r"^put of 'k': value\['1'\]: a key must be an attribute or a str, not int$"),
    ],
)
def test_the_key_and_the_place_of_a_value_are_named(value: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        put_op("k", value, GLOBAL)


def test_errors_keep_their_kind() -> None:
    with pytest.raises(OverflowError, match=r"^put of 'k': value\[1\]: 9223372036854775808 is out of range for INT64"):
        put_op("k", [1, 2**63], GLOBAL)
    with pytest.raises(ValueError, match=r"^put of 'k': value\[1\]: STRING cannot hold a NUL character"):
        put_op("k", ["a", "\0"], GLOBAL)
    with pytest.raises(TypeError, match=r"^put of 'pmix.timeout': value: TIMEOUT takes INT"):
        put_op(attrs.TIMEOUT, "soon", GLOBAL)


def test_a_published_value_is_named_by_its_key() -> None:
    with pytest.raises(TypeError, match=r"^\['k'\]\['b'\]\[1\]: INT64 cannot hold a str"):
        publish_op({"k": {"b": [1, "a"]}}, Range.SESSION, Persist.SESSION, None, None)


def test_an_array_with_a_type_names_the_place_too() -> None:
    with pytest.raises(TypeError, match=r"^\[2\]: STRING cannot hold an int: 3$"):
        array(from_python("a").type, ["a", "b", 3])


def test_keys_are_checked_as_before() -> None:
    assert put_op("k", [1, 2], GLOBAL).value == from_python([1, 2])
    with pytest.raises((TypeError, ValueError, PMIxError), match="key must be"):
        put_op(7, 1, GLOBAL)  # type: ignore[arg-type]
