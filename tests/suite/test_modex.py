"""Every pairing: what a rank puts is what the others get, under all the rules of get."""

from __future__ import annotations

import pytest

from harness.samples import samples
from pypmix import NotFound, NotSupported, OperationTimeout, PMIxError

TWO_SECONDS = (1.5, 6.0)
"""What a server waits for a local proc's key when no timeout is given, with room for a busy machine."""


@pytest.mark.parametrize("collect", [True, False], ids=["collect", "on-demand"])
def test_exchange(run, collect):
    expected = None
    for seen in run("modex.exchange", ranks=3, collect=collect):
        expected = expected or seen
        assert seen == expected
        assert [number for _, number in seen.values()] == [0, 11, 22]
        assert [endpoint.rpartition(":")[2] for endpoint, _ in seen.values()] == ["5000", "5001", "5002"]


def test_every_type(run):
    expected = samples()
    for seen in run("modex.every_type", ranks=2):
        different = {name: (seen[name], value) for name, value in expected.items() if seen[name] != value}
        assert not different
        assert seen.keys() == expected.keys()


def test_plain_python_values(run):
    values = {
        "int": -(2**40),
        "bool": True,
        "float": 0.5,
        "str": "\N{SNOWMAN}",
        "bytes": b"\0\xff",
        "list": [1, 2, 3],
        "strings": ["a", "b"],
        "empty": "",
    }
    assert run("modex.inferred", ranks=2, values=values) == [values] * 2


@pytest.mark.needs("exact floats")
def test_floats_keep_every_digit(run):
    values = {"tenth": 0.1, "tiny": 1e-9, "huge": 1.7976931348623157e308, "third": 1 / 3}
    assert run("modex.inferred", ranks=2, values=values) == [values] * 2


@pytest.mark.needs("one node")
def test_scopes(run):
    """On one node: LOCAL and GLOBAL reach a peer, INTERNAL nobody; the own values are all there."""
    for rank, (own, theirs) in enumerate(run("modex.scopes", ranks=2)):
        assert own == {name: f"{name} of {rank}" for name in ("LOCAL", "REMOTE", "GLOBAL", "INTERNAL")}
        del theirs["REMOTE"]
        assert theirs == {"LOCAL": f"LOCAL of {1 - rank}", "GLOBAL": f"GLOBAL of {1 - rank}", "INTERNAL": None}


@pytest.mark.needs("REMOTE stays off the own node", "one node")
def test_remote_scope_is_for_other_nodes(run):
    assert [theirs["REMOTE"] for _, theirs in run("modex.scopes", ranks=2)] == [None, None]


def test_a_second_commit_adds(run):
    for seen in run("modex.two_commits", ranks=2):
        assert seen == {"before": ("before", 1), "second": 2, "own": "after"}


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
    expected = [(number, number * 2) for number in range(4)]
    assert run("modex.renewed", ranks=3, rounds=4) == [expected] * 3


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
    for rank, seen in enumerate(run("modex.own_data", ranks=2)):
        assert seen["own"] == (f"of {rank}",) * 3
        assert seen["early"] == "not yet"
        assert seen["late"] == f"of {1 - rank}"


def test_a_missing_key(run):
    for seen in run("modex.missing", ranks=2):
        for name in ("immediate", "optional", "own"):
            error, seconds = seen[name]
            assert isinstance(error, NotFound), name
            assert "no.such.key" in str(error)
            assert isinstance(error, LookupError)
            assert seconds < 1, name
        assert seen["default"][0] == "fallback"


def test_a_missing_reserved_key_is_missing_at_once(run):
    for seen in run("modex.missing_reserved", ranks=2):
        for name, (error, seconds) in seen.items():
            assert isinstance(error, NotFound), name
            assert seconds < 1, name


@pytest.mark.needs("a get without a time limit ends")
def test_a_missing_key_without_a_timeout(run):
    """The server gives a local proc two seconds; then the key is simply not found."""
    for error, seconds in run("modex.missing_in_time", ranks=2, wait=None):
        assert isinstance(error, NotFound)
        assert TWO_SECONDS[0] < seconds < TWO_SECONDS[1]


def test_a_missing_key_with_a_timeout(run):
    for error, seconds in run("modex.missing_in_time", ranks=2, wait=1):
        assert isinstance(error, OperationTimeout)
        assert isinstance(error, TimeoutError)
        assert 0.8 < seconds < 5


def test_strangers(run):
    for seen in run("modex.strangers", ranks=2):
        for name, (error, seconds) in seen.items():
            assert isinstance(error, PMIxError), name
            assert isinstance(error, NotFound), name
            assert seconds < 2, name


def test_a_value_that_comes_late(run):
    first, second = run("modex.awaited", ranks=2)
    value, seconds = first
    assert value == "there"
    assert 0.2 < seconds < 5
    assert second is None


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
    assert (kind, status) == ("PMIxError", -29)
    assert "--limits committed" in text
    assert "PYPMIX_LIMITS" in text
    assert refused["afterwards"] is None
    for seen in readers:
        # What was committed before is there, and so is what others have committed.
        assert seen == {"first": 20 << 20, "small": 1, "of another": 77, "fence": None}
