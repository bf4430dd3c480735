"""What the launcher's server does for a server that is lost: nothing for jobs that have no rank there."""

from __future__ import annotations

import pytest

from lib.exchange_session import LAUNCHER, LaunchedSession
from lib.steps import count_calls
from pypmix.standard.types import Proc

pytestmark = pytest.mark.timeout(60)


def lose_a_server(jobs, count):
    """Return the calls of the launcher's crossing for a lost server that one of several jobs has a rank on."""
    session = LaunchedSession(count)
    for number in range(1, jobs + 1):
        session.describe(number)
        # Only the first job has a rank there.
        session.places = {rank: name for rank, name in session.places.items() if name != "n000"}
    session.hub.run()
    crossing = session.crossings[LAUNCHER]
    assert len(crossing._places) == jobs
    calls = count_calls(lambda: crossing._changed("n000", False))
    assert session.has_departed(LAUNCHER, 0) and not session.has_departed(LAUNCHER, 1)
    events = [event.infos[0].value.data for event in session.servers[LAUNCHER].heard]
    assert set(events) == {Proc("job", 0)}
    return calls


@pytest.fixture(autouse=True, scope="module")
def attributes():
    """Make the attributes of events, which are made once in a process."""
    lose_a_server(1, 2)


@pytest.mark.parametrize("count", [2, 8, 32])
def test_jobs_without_a_rank_on_a_lost_server_add_no_call(count):
    assert lose_a_server(1, count) == lose_a_server(10, count) == lose_a_server(100, count)


def test_other_servers_add_no_call():
    calls = [lose_a_server(1, count) for count in (2, 8, 32)]
    assert calls == calls[:1] * 3
