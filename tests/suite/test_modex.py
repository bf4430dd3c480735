"""Every pairing: what a rank puts is what the others get, under all the rules of get."""

from __future__ import annotations

import pytest

from lib.samples import samples
from pypmix import NotFound, NotSupported, OperationTimeout

TWO_SECONDS = (1.5, 6.0)
"""What a server waits for a local proc's key when no timeout is given, with room for a busy machine."""


@pytest.mark.parametrize("promise", ["exchange", "exchange on demand"])
def test_exchange(run, promise):
    run.keeps(promise, ranks=3)


def test_every_type(run):
    expected = samples()
    for seen in run("modex.every_type", ranks=2):
        different = {name: (seen[name], value) for name, value in expected.items() if seen[name] != value}
        assert not different
        assert seen.keys() == expected.keys()


def test_every_type_arrives_or_is_refused_at_the_call(run):
    """Alone, in arrays, in arrays of arrays, and as empty arrays: no server is harmed by any of them."""
    for takes, seen in run("kinds.every_kind", ranks=2)[1:]:
        assert set(seen.values()) == {True}, seen
        assert seen.keys() == {name for name, taken in takes.items() if taken}


def test_plain_python_values(run):
    run.keeps("values", ranks=2)


@pytest.mark.needs("exact floats")
def test_floats_keep_every_digit(run):
    run.keeps("exact floats", ranks=2)


@pytest.mark.needs("one node")
def test_scopes(run):
    run.keeps("scopes", ranks=2)


@pytest.mark.needs("REMOTE stays off the own node", "one node")
def test_remote_scope_is_for_other_nodes(run):
    run.keeps("REMOTE stays off the own node", ranks=2)


def test_a_second_commit_adds(run):
    run.keeps("a second commit", ranks=2)


@pytest.mark.needs("refreshed get")
def test_a_changed_value_is_seen_on_refresh(run):
    assert run("modex.refreshed", ranks=2) == [("before", "after")] * 2


@pytest.mark.needs("refreshed get")
@pytest.mark.clients("python-client", "native-[5-9]*")
def test_a_refresh_asks_the_server_again(run):
    expected = [("before", ("after", "after"), "after")] * 2
    assert run("modex.refreshed_without_a_fence", ranks=2) == expected


@pytest.mark.promise("fence: new values")
def test_a_collecting_fence_renews_what_was_read(run):
    run.keeps("fence: new values", ranks=3)


@pytest.mark.clients("native-4.2.*")
def test_a_refresh_in_vain_is_refused(run):
    for supported, error, own in run("modex.refused_refresh", ranks=2):
        assert not supported
        assert isinstance(error, NotSupported)
        assert "new key for each value" in str(error)
        assert own == 1


@pytest.mark.needs("key deletion")
def test_a_deleted_key(run):
    expected = [((f"of {1 - rank}", 1 - rank), "gone", "gone", 1 - rank, f"again of {1 - rank}") for rank in range(2)]
    assert run("modex.deleted", ranks=2) == expected


@pytest.mark.servers("prterun-5.0.11", "mpirun*", "native-server-[45]*")
def test_a_key_that_cannot_be_deleted(run):
    assert run("modex.deleted_in_vain", ranks=2) == [("NotSupported", "of mine")] * 2


def test_own_data_and_commit(run):
    run.keeps("commit", ranks=2)


@pytest.mark.timing
def test_a_missing_key(run):
    for seen in run("modex.missing", ranks=2):
        for name in ("immediate", "optional", "own"):
            error, seconds = seen[name]
            assert isinstance(error, NotFound), name
            assert "no.such.key" in str(error)
            assert isinstance(error, LookupError)
            assert seconds < 1, name
        assert seen["default"][0] == "fallback"


@pytest.mark.timing
def test_a_missing_reserved_key_is_missing_at_once(run):
    for seen in run("modex.missing_reserved", ranks=2):
        for name, (error, seconds) in seen.items():
            assert isinstance(error, NotFound), name
            assert seconds < 1, name


@pytest.mark.timing
@pytest.mark.needs("a get without a time limit ends")
def test_a_missing_key_without_a_timeout(run):
    """The server gives a local proc two seconds; then the key is simply not found."""
    for error, seconds in run("modex.missing_in_time", ranks=2, wait=None):
        assert isinstance(error, NotFound)
        assert TWO_SECONDS[0] < seconds < TWO_SECONDS[1]


@pytest.mark.timing
def test_a_missing_key_with_a_timeout(run):
    for error, seconds in run("modex.missing_in_time", ranks=2, wait=1):
        assert isinstance(error, OperationTimeout)
        assert isinstance(error, TimeoutError)
        assert 0.8 < seconds < 5


def test_strangers(run):
    run.keeps("get: an unknown proc", ranks=2)


def test_a_value_that_comes_late(run):
    first, second = run("modex.awaited", ranks=2)
    value, seconds = first
    assert value == "there"
    assert seconds > 0.2
    assert second is None


@pytest.mark.needs("one node")
def test_a_get_that_meets_the_commit(run):
    found, _ = run("modex.met", ranks=2, turns=200)
    assert found == list(range(200))


@pytest.mark.needs("a get waits through other commits")
def test_a_value_that_comes_with_a_later_commit(run):
    first, _ = run("modex.awaited_through_another_commit", ranks=2)
    assert first[0] == "there"


def test_many_keys(run):
    assert run("modex.many_keys", ranks=3, count=200) == [199 * 100 * (0 + 1 + 2)] * 3


def test_bad_puts_are_refused_and_harm_nothing(run):
    for errors, kept in run("modex.refused_puts", ranks=2):
        assert kept == "kept"
        assert errors.pop("x was not put")
        kinds = {name: type(error).__name__ for name, error in errors.items()}
        assert kinds == {
            "long key": "ValueError",
            "empty key": "ValueError",
            "key with NUL": "ValueError",
            "unsupported value": "TypeError",
            "string with NUL": "ValueError",
            "too large": "OverflowError",
        }


@pytest.mark.needs("a limit of what a rank commits")
def test_the_amount_of_one_ranks_data_costs_nobody_else_anything(run):
    refused, *readers = run("modex.too_much", ranks=3)
    kind, status, text = refused["refused"]
    assert (kind, status) == ("OutOfResources", -29)
    assert "--limits committed" in text
    assert "PYPMIX_LIMITS" in text
    assert refused["afterwards"] is None
    for seen in readers:
        # What was committed before is there, and so is what others have committed.
        assert seen == {"first": 20 << 20, "small": 1, "of another": 77, "fence": None}
