"""Collectives that a rank gives up, where the server or the library cannot take its call back: it is counted once."""

from __future__ import annotations

import pytest

KINDS = ["fence", "job fence", "connect", "disconnect"]
FOREIGN = ("native-server-*", "prterun-5.0.11")

foreign = pytest.mark.servers(*FOREIGN)
asynchronous = pytest.mark.forms("asyncio")


@foreign
@asynchronous
@pytest.mark.parametrize("again", ["before", "after", "completed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_after_one_that_was_cancelled_is_the_same_collective(run, kind, again):
    assert run("given_up.cancelled", ranks=3, kind=kind, again=again) == [["ok"] * 3] * 3


@foreign
@asynchronous
@pytest.mark.needs("groups")
def test_so_is_one_after_the_fence_of_a_group(run):
    assert run("given_up.cancelled", ranks=3, kind="group fence", again="before") == [["ok"] * 3] * 3


@pytest.mark.servers("python-server", "python-server-2-nodes")
@asynchronous
@pytest.mark.parametrize("kind", KINDS)
def test_so_it_is_where_the_server_withdraws_the_caller(run, kind):
    assert run("given_up.cancelled", ranks=3, kind=kind, again="before") == [["ok"] * 3] * 3


@pytest.mark.servers("python-server", "python-server-2-nodes")
@asynchronous
@pytest.mark.parametrize("kind", ["fence", "job fence", "disconnect"])
def test_so_it_is_where_it_is_too_late_to_withdraw_the_caller(run, kind):
    assert run("given_up.cancelled", ranks=3, kind=kind, again="completed") == [["ok"] * 3] * 3


@pytest.mark.servers("python-server", "python-server-2-nodes", *FOREIGN)
@asynchronous
@pytest.mark.needs("groups")
@pytest.mark.parametrize("kind", ["construct", "destruct"])
def test_a_group_whose_construct_or_destruct_was_cancelled_is_called_again(run, kind):
    """The server withdraws the earlier call before it gets the next one, or the next one takes the earlier one over."""
    assert run("given_up.cancelled", ranks=3, kind=kind, again="before") == [["ok"] * (3 - (kind == "construct"))] * 3


@pytest.mark.servers("native-server-4.2.2", "native-server-5.0.11", "prterun-5.0.11")
def test_a_call_after_one_whose_time_was_over_waits_for_its_answer(run):
    assert run("given_up.limited", ranks=3) == [["given up", True, "ok", "ok", "ok"], ["ok"] * 3, ["ok"] * 3]


@pytest.mark.servers("python-server", *FOREIGN)
@pytest.mark.forms("sync")
@pytest.mark.parametrize("kind", ["fence", "connect"])
def test_a_call_after_one_that_a_signal_handler_ended(run, kind):
    assert run("given_up.interrupted", ranks=3, kind=kind) == [True] * 3


@pytest.mark.servers("python-server", "prterun-5.0.11")
@asynchronous
def test_concurrent_calls_are_two_collectives(run):
    assert run("given_up.concurrent", ranks=3) == [["ok"] * 4] * 3


@foreign
@asynchronous
@pytest.mark.needs("groups")
def test_a_fence_of_a_group_that_a_member_has_left_is_not_counted_twice(run):
    late = "ERR_PARTIAL_SUCCESS"
    assert run("given_up.departed", ranks=3) == [[late, *["ok"] * 3]] * 2 + [["ok"] * 3]
