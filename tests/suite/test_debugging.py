"""Our servers: jobs stop for a debugger where it asks for it, are released by it, and it gets daemons beside them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.servers("python-server*", "native-server-*")


@pytest.mark.parametrize(
    ("place", "where", "state", "stops"),
    [
        ("DEBUG_STOP_IN_INIT", "pmix-init", "S", False),
        ("DEBUG_STOP_ON_EXEC", "pmix-exec", "T", False),
        ("DEBUG_STOP_IN_APP", "setup", "S", True),
    ],
)
def test_all_ranks_stop(run, place, where, state, stops):
    seen, _ = run("debugging.stopped", ranks=2, place=place)
    assert seen[:4] == [where, [None], True, [0, 1, 2]]
    assert seen[4] == {state}
    assert seen[5:] == [0, [[0, stops], [1, stops], [2, stops]]]


@pytest.mark.parametrize(
    ("place", "where"),
    [("DEBUG_STOP_IN_INIT", "pmix-init"), ("DEBUG_STOP_ON_EXEC", "pmix-exec"), ("DEBUG_STOP_IN_APP", "setup")],
)
def test_one_rank_stops(run, place, where):
    seen, _ = run("debugging.stopped", ranks=2, place=place, only=1)
    assert seen[:4] == [where, [1], True, [0, 1, 2]]
    assert seen[5] == 0


@pytest.mark.parametrize(("beside", "together"), [("", False), ("DEBUG_DAEMONS_PER_PROC", True)])
def test_daemons_beside_each_rank(run, beside, together):
    found, _ = run("debugging.daemons", ranks=2, beside=beside, together=together)
    of_job, of_all, size, (here, whole), code = found
    assert (of_job, of_all, size, whole, code) == (True, True, 3, [0, 1, 2], 0)
    assert 0 in here


def test_daemons_on_each_node(run):
    found, _ = run("debugging.daemons", ranks=2, beside="DEBUG_DAEMONS_PER_NODE", together=True)
    assert found[0] and found[4] == 0


def test_nobody_stops_without_a_debugger(run):
    assert run("debugging.unstopped", ranks=2) == [False, False]
