"""What an error says of a value that PMIx cannot hold: the key, and the place in the value."""

from __future__ import annotations

import enum
from collections.abc import Iterator

import pytest

from lib.fake_session import FakeSession
from pypmix import Client, Info, Value, attrs
from pypmix.standard.enums import Scope
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import MAX_NESTING
from pypmix.standard.values import array, from_python, to_python
from pypmix.types import DataArray, DataBuffer, DataType, info

GLOBAL = Scope.GLOBAL


@pytest.fixture
def me(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr("pypmix.clientbase.open_client", lambda *_: FakeSession())
    with Client() as client:
        yield client


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, "a"], r"^put of 'k': value\[1\]: INT64 cannot hold a str: 'a'$"),
        ({"a": {"b": [1, "x"]}}, r"^put of 'k': value\['a'\]\['b'\]\[1\]: INT64 cannot hold a str: 'x'$"),
        ([None], r"^put of 'k': value\[0\]: a NoneType has no PMIx type"),
        ([[1], [1, 2.5]], r"^put of 'k': value\[1\]\[1\]: INT64 cannot hold a float: 2.5$"),
        ((object(),), r"^put of 'k': value\[0\]: an object has no PMIx type"),
        ({"a": {1}}, r"^put of 'k': value\['a'\]: a set has no PMIx type"),
        ({1: 2}, r"^put of 'k': value\['1'\]: a key must be an attribute or a str, not int$"),
    ],
)
def test_the_key_and_the_place_of_a_value_are_named(me: Client, value: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        me.put("k", value, GLOBAL)


def test_errors_keep_their_kind(me: Client) -> None:
    with pytest.raises(OverflowError, match=r"^put of 'k': value\[1\]: 9223372036854775808 is out of range for INT64"):
        me.put("k", [1, 2**63], GLOBAL)
    with pytest.raises(ValueError, match=r"^put of 'k': value\[1\]: STRING cannot hold a NUL character"):
        me.put("k", ["a", "\0"], GLOBAL)
    with pytest.raises(TypeError, match=r"^put of 'pmix.timeout': value: TIMEOUT takes INT"):
        me.put(attrs.TIMEOUT, "soon", GLOBAL)


def test_a_published_value_is_named_by_its_key(me: Client) -> None:
    with pytest.raises(TypeError, match=r"^publish: values\['k'\]\['b'\]\[1\]: INT64 cannot hold a str"):
        me.publish({"k": {"b": [1, "a"]}})


def test_an_array_with_a_type_names_the_place_too() -> None:
    with pytest.raises(TypeError, match=r"^\[2\]: STRING cannot hold an int: 3$"):
        array(from_python("a").type, ["a", "b", 3])


def test_keys_are_checked_as_before(me: Client) -> None:
    me.put("k", [1, 2], GLOBAL)
    with pytest.raises((TypeError, ValueError, PMIxError), match="key must be"):
        me.put(7, 1, GLOBAL)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [[], {"b": []}, [[], [1]], ()])
def test_an_empty_list_is_one_of_ints(me: Client, value: object) -> None:
    me.put("k", value)
    assert from_python([]) == array(DataType.INT64, [])
    assert to_python(from_python(value)) == (list(value) if isinstance(value, tuple) else value)


def test_a_list_has_one_type() -> None:
    for mixed in ([1, 2.5], ["a", b"b"], [True, 1]):
        with pytest.raises(TypeError, match=r"^\[1\]"):
            from_python(mixed)
    # A float holds an int, and each list in a list has a type of its own.
    assert to_python(from_python([1.5, 2])) == [1.5, 2.0]
    from_python([[1], ["a"]])


class Number:
    """A scalar of an array library, which counts its conversions."""

    dtype = "int64"
    shape = ()

    def __init__(self) -> None:
        self.conversions = 0

    def item(self) -> int:
        self.conversions += 1
        return 7


def test_lists_in_lists_are_converted_once() -> None:
    number = Number()
    value: object = number
    for _ in range(12):
        value = [value]
    from_python(value)
    assert number.conversions == 1


class Color(str, enum.Enum):  # noqa: UP042 - `str()` of its members is not their value
    RED = "red"


def test_a_member_of_an_enum_of_strings_is_its_string() -> None:
    for value, found in ((Color.RED, "red"), (["a", Color.RED], ["a", "red"]), ({"a": Color.RED}, {"a": "red"})):
        assert to_python(from_python(value)) == found
    assert type(to_python(from_python(Color.RED))) is str
    assert info(Color.RED, 1).key.encode() == b"red"


def test_a_float_holds_only_ints_that_it_does_not_round() -> None:
    assert to_python(from_python([0.5, 2**70])) == [0.5, float(2**70)]
    with pytest.raises(OverflowError, match=r"^\[1\]: DOUBLE cannot hold 9007199254740993 exactly"):
        from_python([0.5, 2**53 + 1])
    with pytest.raises(OverflowError, match=r"^\[1\]: DOUBLE cannot hold an int of 1329 bits"):
        from_python([0.5, 10**400])


def test_arguments_that_are_not_keys_or_infos_are_named(me: Client) -> None:
    for refused, call in (
        ("lookup: a key must be a str, or several in a list, not an int", lambda: me.lookup(7)),  # type: ignore[call-overload]
        ("lookup: a key must be a str, or several in a list, not a bytes", lambda: me.lookup(b"k")),
        ("query: a key must be a str, not bytes", lambda: me.query(b"k")),  # type: ignore[call-overload]
        ("publish: values: infos are a mapping of keys to values, or several Info, not an int", lambda: me.publish(7)),  # type: ignore[arg-type]
        ("a key must be a str, not int", lambda: Info(7, from_python(1))),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=f"^{refused}$"):
            call()
    with pytest.raises(ValueError, match="^put: a key must not contain a lone surrogate: '.ud800'$"):
        me.put("\ud800", 1, GLOBAL)


def nested(levels: int, kind: str) -> object:
    value: object = 1
    for level in range(levels):
        value = {"a": value} if kind == "dict" or (kind == "both" and level % 2) else [value]
    return value


@pytest.mark.parametrize("kind", ["list", "dict", "both"])
def test_values_that_no_peer_would_decode_are_refused(me: Client, kind: str) -> None:
    value = nested(MAX_NESTING, kind)
    me.put("k", value, GLOBAL)
    assert to_python(from_python(value)) == value
    # A decoder takes some levels more, which operations need for themselves.
    array_type = DataType.DATA_ARRAY
    packed = DataBuffer().pack(array_type, DataArray(DataType.INFO, (Info("k", from_python(value)),))).bytes()
    assert to_python(Value.unchecked(array_type, DataBuffer(packed).one(array_type))) == {"k": value}
    with pytest.raises(ValueError, match=rf"^put of 'k': value(\['a'\]|\[0\])+: .* more than {MAX_NESTING} deep"):
        me.put("k", nested(MAX_NESTING + 1, kind), GLOBAL)


def test_a_list_or_dict_that_contains_itself_is_refused(me: Client) -> None:
    itself: list[object] = []
    itself.append({"a": itself})
    with pytest.raises(ValueError, match=r"^put of 'k': value\[0\]\['a'\]\[0\].* or one contains itself$"):
        me.put("k", itself, GLOBAL)
