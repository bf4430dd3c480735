"""Proves that all of the Standard's types survive JSON and back, and that nothing else is taken for one of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import strategies
from pypmix.standard import codes, enums, ops, structures, types
from pypmix.standard.asjson import from_json, to_json
from pypmix.standard.types import DataArray, Info, Proc, Value


def there_and_back(data: object) -> object:
    return from_json(json.loads(json.dumps(to_json(data), allow_nan=False)))


@given(strategies.values())
def test_every_value_comes_back_as_it_was(value):
    assert there_and_back(value) == value
    assert there_and_back(value).__class__ is Value


@settings(max_examples=50)
@given(
    st.builds(
        ops.GroupUpcall,
        st.integers(0, 3),
        strategies.nspaces,
        st.lists(strategies.procs, max_size=3).map(tuple),
        st.lists(strategies.infos(), max_size=3).map(tuple),
    )
)
def test_every_operation_comes_back_as_it_was(op):
    assert there_and_back(op) == op


EXAMPLES = [
    (None, None),
    ("text \udcff", "text \udcff"),
    (True, True),
    (Proc("demo", 2**32 - 1), {"nspace": "demo", "rank": 2**32 - 1}),
    (Value(codes.UINT32, 7), {"type": "UINT32", "data": 7}),
    (Info("a", Value(codes.INT, 5)), {"key": "a", "type": "INT", "data": 5}),
    (Info("a", Value(codes.INT, 5), 1), {"key": "a", "type": "INT", "data": 5, "flags": 1}),
    (Value.unchecked(104, 3), {"type": 104, "data": 3}),
    (b"\0\xff", {"hex": "00ff"}),
    (0.1, 0.1),
    (float("-inf"), {"float": "-inf"}),
    (DataArray(codes.PROC, (Proc("a", 1),)), {"array": "PROC", "items": [{"nspace": "a", "rank": 1}]}),
    (structures.Timeval(1, 2), {"is": "Timeval", "sec": 1, "usec": 2}),
    (
        types.RegAttr("n", "k", codes.BOOL, ("d",)),
        {"is": "RegAttr", "name": "n", "key": "k", "type": 1, "description": ["d"]},
    ),
    (ops.Lookup(("k",)), {"is": "Lookup", "keys": ["k"], "directives": []}),
    (ops.ResolvePeers("n0", "demo"), {"is": "ResolvePeers", "node": "n0", "nspace": "demo"}),
    (ops.Credential(b"c"), {"is": "Credential", "data": {"hex": "63"}, "infos": []}),
    (
        ops.Connected("both", (Proc("a", 1),)),
        {"is": "Connected", "nspace": "both", "procs": [{"nspace": "a", "rank": 1}], "foreign": [], "directives": []},
    ),
]


@pytest.mark.parametrize(("data", "written"), EXAMPLES, ids=lambda item: type(item).__name__)
def test_how_it_is_written(data, written):
    assert to_json(data) == written
    assert there_and_back(data) == data


def test_not_a_number_comes_back():
    assert str(there_and_back(float("nan"))) == "nan"


def test_members_of_enums_are_ints_and_lists_tuples():
    assert there_and_back([enums.Status.ERR_TIMEOUT]) == (-24,)
    assert type(to_json(enums.Status.ERR_TIMEOUT)) is int


@pytest.mark.parametrize("data", [object(), {1: 2}, print, 1j, {"a"}], ids=lambda item: type(item).__name__)
def test_what_is_none_of_the_standards_types_is_refused(data):
    with pytest.raises(TypeError, match=type(data).__name__):
        to_json((data,))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"is": "open"}',
        '{"is": "TYPE_CHECKING"}',
        '{"is": "check_name", "text": "x", "limit": 1, "what": ""}',
        '{"is": ["Timeval"]}',
        '{"is": "Timeval", "sec": 1}',
        '{"is": "Timeval", "sec": 1, "usec": 2, "nsec": 3}',
        '{"is": "Lookup", "keys": []}',
        '{"nspace": "a", "rank": -1}',
        '{"nspace": "a"}',
        '{"nspace": 1, "rank": 1}',
        '{"type": "UINT32", "data": -1}',
        '{"type": "UINT32", "data": "1"}',
        '{"type": "NONSENSE", "data": 1}',
        '{"type": "UINT32"}',
        '{"type": [], "data": 1}',
        '{"key": 1, "type": "UINT32", "data": 1}',
        '{"key": "a", "type": "UINT32", "data": 1, "flags": "x"}',
        '{"array": "UINT32", "items": ["a"]}',
        '{"array": "UINT32"}',
        '{"hex": "0"}',
        '{"hex": 1}',
        '{"float": "x"}',
    ],
)
def test_what_to_json_never_writes_is_a_value_error(text):
    with pytest.raises(ValueError):
        from_json(json.loads(text))
