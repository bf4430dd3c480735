"""Every pairing: what a rank publishes is what others look up, in its range and for as long as it lasts."""

from __future__ import annotations

import pytest

from lib.samples import samples
from pypmix import NotFound, OperationTimeout, PMIxError, Status, Unreachable
from pypmix.standard.values import to_python


@pytest.mark.needs("a lookup of several keys")
def test_every_rank_finds_what_all_have_published(run):
    run.keeps("a lookup of several keys", ranks=3)


@pytest.mark.needs("a lookup of several keys")
def test_every_type(run):
    expected = {name: to_python(value) for name, value in samples().items()}
    for seen in run("publish.every_type", ranks=2):
        assert not {name: (seen.get(name), value) for name, value in expected.items() if seen.get(name) != value}


def test_a_key_that_is_published_late(run):
    (value, seconds), second = run("publish.awaited", ranks=2, key="late")
    assert value == "there"
    assert seconds > 0.2
    assert second is None


def test_a_key_of_the_greatest_length(run):
    key = "k" * 511
    assert run("publish.awaited", ranks=2, key=key)[0][0] == "there"


@pytest.mark.needs("a lookup waits for all of its keys")
def test_keys_that_come_one_after_the_other(run):
    run.keeps("a lookup waits for all of its keys", ranks=2)


@pytest.mark.needs("a lookup waits for all of its keys")
def test_waiting_for_some_of_the_keys(run):
    assert run("publish.awaited_some", ranks=2) == [{"one": 0, "two": 1}, None]


@pytest.mark.timing
def test_what_nobody_has_published(run):
    for seen in run("publish.missing", ranks=2):
        error, seconds = seen["plain"]
        assert isinstance(error, NotFound)
        assert "no.such.key" in str(error)
        assert seconds < 1
        assert seen["default"][0] == "fallback"
        assert seen["several"][0] == {}
        assert seen["several"][0].missing == {"no.such.key", "nor.this"}
        error, seconds = seen["in time"]
        assert isinstance(error, OperationTimeout)
        assert 0.8 < seconds < 3


@pytest.mark.needs("a lookup of several keys")
@pytest.mark.parametrize("wait", [None, 1], ids=["at once", "in time"])
def test_some_of_the_keys(run, wait):
    expected = {"here": 1, "here.too": 2}, frozenset({"gone"})
    assert run("publish.partial", ranks=2, wait=wait) == [expected] * 2


def test_unpublish(run):
    run.keeps("unpublish", ranks=2)


@pytest.mark.needs("unpublish of everything", "a lookup of several keys")
def test_unpublish_of_everything(run):
    assert run("publish.all_taken_back", ranks=2) == [["gone", "gone", 1, 2]] * 2


@pytest.mark.needs("unpublish tells of keys that are not the caller's")
def test_only_the_publisher_takes_back(run):
    (_, first), (error, second) = run("publish.foreign", ranks=2)
    assert isinstance(error, PMIxError)
    assert error.status in (Status.ERR_NO_PERMISSIONS, Status.ERR_NOT_FOUND)
    assert (first, second) == (1, 1)


@pytest.mark.needs("duplicate keys are refused")
def test_a_key_that_is_there_already(run):
    run.keeps("duplicate keys are refused", ranks=2)


@pytest.mark.needs("a range of the proc itself", "one node")
def test_ranges(run):
    run.keeps("a range of the proc itself", ranks=2)


def test_data_that_is_read_once(run):
    run.keeps("publish: first read", ranks=2)


@pytest.mark.needs("data that ends with its publisher")
def test_data_that_ends_with_its_publisher(run):
    assert run("publish.outlived", ranks=2) == [("gone", 2), None]


@pytest.mark.forms("sync")
def test_a_signal_ends_a_wait_for_ever(run):
    assert run("publish.interrupted", ranks=2) == [["interrupted"] * 3 + [1]] * 2


def test_mistakes_are_errors_at_the_call(run):
    kinds = {
        "nothing": "ValueError",
        "long key": "ValueError",
        "empty key": "ValueError",
        "key with NUL": "ValueError",
        "reserved key": "ValueError",
        "unsupported value": "TypeError",
        "no range": "ValueError",
        "no persistence": "ValueError",
        "no keys": "ValueError",
        "empty lookup": "ValueError",
        "None": "TypeError",
        "negative wait": "ValueError",
        "long unpublish": "ValueError",
    }
    assert run("publish.refused", ranks=2) == [(kinds, "kept")] * 2


def test_a_lone_process_has_nobody_to_publish_for(alone):
    errors, supported = alone("publish.lonely")
    assert errors.keys() == {"publish", "lookup", "unpublish"}
    assert {type(error) for error in errors.values()} == {Unreachable}
    assert supported == [False] * 4
