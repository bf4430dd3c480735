"""How many functions the servers of a fence call, and who is answered first."""

from __future__ import annotations

import os

import pytest

from lib.exchange_session import Session
from lib.steps import ROOT, count_calls
from pypmix.standard import attrs
from pypmix.standard.ops import FenceUpcall
from pypmix.standard.types import RANK_WILDCARD, Proc

EXCHANGE = os.path.join(ROOT, "host", "exchange") + os.sep
ALL = (Proc("job", RANK_WILDCARD),)


def made(count: int) -> Session:
    session = Session(count)
    session.register(*session.names)
    session.hub.run()
    return session


def calls_of(count: int, *directives: object) -> int:
    """Return how many functions of the exchange are called for one fence of all servers."""
    session = made(count)

    def fence() -> None:
        asked = [session.ask(name, FenceUpcall(ALL, directives, b"data")) for name in session.names]
        session.hub.run()
        assert {each.end for each in asked} == {b"data" * count}

    fence()
    fence()
    return count_calls(fence, EXCHANGE)


@pytest.mark.parametrize("directives", [(), (attrs.COLLECT_DATA(True),)], ids=["plain", "collecting"])
def test_a_fence_takes_few_calls_for_each_server(directives):
    few, many = calls_of(2, *directives), calls_of(10, *directives)
    assert (many - few) / 8 <= 85, "calls for each server, its own and the coordinator's"
    assert few <= 150


def test_the_coordinator_answers_the_others_before_its_own_caller():
    session = made(4)
    sent = []
    for name in reversed(session.names):
        asked = session.ask(name, FenceUpcall(ALL, (), b""))
    first = session.names[0]
    before = session.hub.messages[first]
    asked.reply = lambda _result: sent.append(session.hub.messages[first] - before)
    session.hub.run()
    assert sent == [3]
