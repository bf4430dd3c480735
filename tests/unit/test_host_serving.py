"""The launcher answers requests of clients in the order in which it deals with them."""

from __future__ import annotations

from pypmix.host import Application, LocalHost
from pypmix.standard.ops import ClientAborted
from pypmix.standard.types import Proc


class Asked:
    """An upcall, and whether it was answered."""

    requestor = None

    def __init__(self, op):
        self.op = op
        self.answered = False

    def reply(self, _result=None):
        self.answered = True


def test_an_abort_is_answered_when_it_was_dealt_with():
    """A caller that was answered before could have ended by then, and its job with the ranks that it named."""
    host = LocalHost([Application(("true",))])
    asked = Asked(ClientAborted(Proc("demo", 1), 9, "just that one", (Proc("demo", 2),)))
    order = []
    host.end_ranks = lambda *_: order.append(asked.answered)
    host.upcall(host.nodes[0], asked)
    assert not asked.answered
    host.loop.run_posted()
    assert order == [False] and asked.answered
