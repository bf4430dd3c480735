"""Whether nodes reach each other, with addresses that are there and others that are not."""

from __future__ import annotations

import errno
import socket

import pytest

from pypmix.host.rosters.agent import Agent
from pypmix.host.rosters.reach import Probe, apart, unreached

pytestmark = pytest.mark.timeout(60)


def test_one_of_several_addresses_is_enough():
    probe = Probe()
    here = probe.listen("127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = silent.getsockname()[:2]
    assert unreached([[here], [nobody], [nobody, here], [], [("no-such-host.invalid", 1)]], 5) == [1, 3, 4]
    probe.close()
    probe.close()
    assert unreached([[here]], 5) == [0]


class Calls:
    """Agents in this process, one of which is elsewhere."""

    def __init__(self, **answers):
        self.agents = {name: Agent() for name in ("n1", "n2")}
        self.answers = answers

    def __call__(self, name, method, *arguments):
        answer = self.answers.get(f"{name}_{method}")
        if isinstance(answer, Exception):
            raise answer
        return getattr(self.agents[name], method)(*arguments) if answer is None else answer


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({}, ""),
        ({"n2_offer": "no route from here"}, "n2: no route from here"),
        ({"n1_offer": ("127.0.0.1", 1)}, "n2 does not reach n1 at 127.0.0.1:1"),
        ({"n1_reach": [0]}, "n1 does not reach this program at 127.0.0.1:"),
        # What fails otherwise is the session's to tell.
        ({"n2_offer": OSError(errno.ENODEV, "no such interface")}, ""),
        ({"n2_reach": ValueError("the worker is lost")}, ""),
    ],
)
def test_who_does_not_reach_whom(answers, text):
    calls = Calls(**answers)
    found = apart(["n1", "n2"], calls, ["127.0.0.1"])
    assert found.startswith(text) and bool(found) == bool(text)
    for name, agent in calls.agents.items():
        assert agent.idle, name
