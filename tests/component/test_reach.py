"""Whether nodes reach each other, with addresses that are there and others that are not."""

from __future__ import annotations

import errno
import socket

import pytest

from lib import leftovers
from pypmix.extras.frameworks import reachability
from pypmix.extras.frameworks.agent import Agent
from pypmix.extras.frameworks.reachability import Probe, apart, unreached

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


def test_many_are_tried_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "AT_A_TIME", 2)
    probe = Probe()
    here = probe.listen("127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = silent.getsockname()[:2]
    assert unreached([[here], [nobody], [nobody], [here], [nobody]], 5) == [1, 2, 4]
    probe.close()


def test_a_node_listens_no_longer_than_it_may_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher that would end it may be lost."""
    monkeypatch.setattr(reachability, "LISTEN_SECONDS", 0.5)
    probe = Probe()
    with leftovers.nothing_left():
        here = probe.listen("127.0.0.1")
        assert unreached([[here]], 5) == []
    assert unreached([[here]], 5) == [0]
    probe.close()


class Calls:
    """Agents in this process, one of which is elsewhere."""

    def __init__(self, **answers):
        self.agents = {name: Agent() for name in ("n1", "n2")}
        self.answers = answers
        self.tried: dict[str, int] = {}

    def __call__(self, name, method, *arguments):
        if method == "reach":
            self.tried[name] = len(arguments[0])
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
    # The launcher, and the other node.
    assert answers or calls.tried == {"n1": 2, "n2": 2}
    for name, agent in calls.agents.items():
        assert agent.idle, name
