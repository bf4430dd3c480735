"""No operation of a client costs more after a long history of it, or of other operations."""

from __future__ import annotations

import pytest

from lib.linked_client import LinkedWorld
from lib.server_world import text
from lib.steps import count_steps, find_growth
from pypmix.standard import attrs
from pypmix.standard.ops import (
    Commit,
    Connect,
    DeregisterEventHandler,
    Disconnect,
    Fence,
    Get,
    GroupConstruct,
    GroupDestruct,
    Lookup,
    NotifyEvent,
    Publish,
    Put,
    RegisterEventHandler,
)
from pypmix.standard.ops.publishing import RANGE_SESSION, Pdata
from pypmix.standard.types import RANK_WILDCARD, Info, Proc

CODE = -4242
ALL = (Proc("job", RANK_WILDCARD),)
BOTH = (Proc("job", 0), Proc("job", 1))
FEW, MANY = 30, 180
MOST = 1.2
"""How many times the steps after a short history an operation may take after a long history."""


class Ranks(LinkedWorld):
    """Two clients with an event handler each, at a server whose host finds every key."""

    def __init__(self, adapts):
        super().__init__(adapts=adapts)
        self.adapts = adapts
        self.round = 0
        self.seen = []
        self.run(self.handler(), self.handler())

    def upcall(self, op, answer, process=None):
        if isinstance(op, Lookup):
            answer(tuple(Pdata(BOTH[1], key, text("value")) for key in op.keys), None)
        else:
            answer(None, None)

    def handler(self, code=CODE):
        def handle(delivery):
            self.seen.append(delivery.notification.code)
            delivery.done()

        return RegisterEventHandler(handle, (code,))

    def name(self, what):
        self.round += 1
        return f"{what}.{self.round:04}"

    def fence(self):
        self.run(Fence(ALL), Fence(ALL))

    def exchange(self, key=""):
        """A round of put, commit, collecting fence and get of a key, by default a new one."""
        key = key or self.name("key")
        for op in Put(key, text("x" * 64)), Commit(), Fence(ALL, (attrs.COLLECT_DATA(True),)):
            self.run(op, op)
        assert self.run(Get(BOTH[1], key)) == [text("x" * 64)]

    def known(self):
        self.run(Get(BOTH[0], "own"))

    def construct(self):
        name = self.name("group")
        self.run(GroupConstruct(name, BOTH), GroupConstruct(name, BOTH))
        return name

    def group(self):
        name = self.construct()
        self.run(GroupDestruct(name), GroupDestruct(name))

    def connect(self):
        self.run(Connect(ALL), Connect(ALL))
        self.run(Disconnect(ALL), Disconnect(ALL))

    def raise_event(self):
        self.seen.clear()
        self.run(NotifyEvent(CODE, RANGE_SESSION))
        assert self.seen == [CODE, CODE]

    def listen(self):
        """Register a handler and remove it."""
        ids = self.run(self.handler(CODE - 1), self.handler(CODE - 1))
        self.run(*map(DeregisterEventHandler, ids))

    def look_up(self):
        key = self.name("published")
        self.run(Publish((Info(key, text("value")),)))
        (found,) = self.run(Lookup((key,)))
        assert found[0].value == text("value")


HISTORIES = {
    "rounds": Ranks.exchange,
    "groups": Ranks.group,
    "standing groups": Ranks.construct,
    "connections": Ranks.connect,
    "events": Ranks.raise_event,
    "handlers": Ranks.listen,
    "lookups": Ranks.look_up,
}

OPERATIONS = {
    "a fence": Ranks.fence,
    "an exchange": lambda ranks: ranks.exchange("same"),
    "an exchange of a new key": Ranks.exchange,
    "a get": Ranks.known,
    "a group": Ranks.group,
    "a connection": Ranks.connect,
    "an event": Ranks.raise_event,
    "a handler": Ranks.listen,
    "a lookup": Ranks.look_up,
}


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("adapts", [True, False], ids=["server of ours", "server of any kind"])
def test_a_long_history_costs_nothing(history, adapts):
    ranks = Ranks(adapts)
    own = Put("own", text("value"))
    ranks.run(own, own)
    for operation in OPERATIONS.values():
        operation(ranks)
    assert not find_growth(OPERATIONS, HISTORIES[history], ranks, (FEW, MANY), MOST)


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("operation", ["a fence", "a get", "an exchange"])
def test_an_operation_costs_no_more_after_others(operation, history):
    """What a client did once, such as its first group, is no cost of what has nothing to do with it."""
    ranks = Ranks(adapts=True)
    own = Put("own", text("value"))
    ranks.run(own, own)

    def steps():
        OPERATIONS[operation](ranks)
        return min(count_steps(lambda: OPERATIONS[operation](ranks)) for _ in range(2))

    before = steps()
    HISTORIES[history](ranks)
    assert steps() <= 1.1 * before
