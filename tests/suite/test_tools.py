"""Every server that admits tools: they attach in each way, see its jobs, publish, hear events, and are clients too."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.clients("python-client"), pytest.mark.needs("tools")]


@pytest.mark.parametrize("how", ["search", "uri", "nspace", "pid"])
def test_a_tool_from_outside_of_the_job(run, how):
    (seen, answer), (_, other) = run("tools.from_outside", ranks=2, how=how)
    assert seen == {
        "own job": True,
        "server": True,
        "connected": True,
        "jobs": True,
        "size": 2,
        "port": "tcp://x",
    }
    assert answer == other == 42


def test_the_procs_of_a_job(run):
    assert run("tools.table", ranks=2) == [[(0, True), (1, True)], None]


def test_a_tool_that_was_launched_as_a_client(run):
    assert run("tools.as_client", ranks=3) == [(True, [0, 1, 2], 1)] * 3


def test_events_between_a_tool_and_a_rank(run):
    assert run("tools.told", ranks=2) == [(True, 7), True]
