"""No operation of a server costs more after a long history, nor beside ranks and groups that it does not concern."""

from __future__ import annotations

import pytest

from lib.group_member import ALL, MIDDLE, Member
from lib.server_world import Client, World, text
from lib.steps import count_calls, count_steps, find_growth
from pypmix.engine.python.serverdata import Store
from pypmix.standard import attrs, statuses
from pypmix.standard.types import Proc
from pypmix.wire.additions import greeting
from pypmix.wire.frames import frame
from pypmix.wire.messages import Command, encode_fence

CODE = -4242
RANGE_SESSION = 4
COLLECT = attrs.COLLECT_DATA(True)
FEW, MANY = 40, 240
MOST = 1.2
"""How many times the steps of a server with a short history one with a long history may take."""


class Ranks(World):
    """A server with two clients."""

    def __init__(self):
        super().__init__(2)
        self.ranks = [
            Member(Client(self, rank, version=MIDDLE, infos=(greeting("1"),)).connect(), MIDDLE) for rank in range(2)
        ]
        self.round = 0

    @property
    def clients(self):
        return [member.client for member in self.ranks]

    def fence(self, *infos):
        tags = [client.fence(infos=infos) for client in self.clients]
        assert [client.status(tag) for client, tag in zip(self.clients, tags, strict=True)] == [statuses.SUCCESS] * 2

    def exchange(self, key=""):
        """A round of put, collecting fence, and get of a key, by default a new one."""
        self.round += 1
        key = key or f"key.{self.round:04}"
        for client in self.clients:
            client.commit((key, text("x" * 64)))
        self.fence(COLLECT)
        zero = self.clients[0]
        assert zero.value(zero.get(1, key), 1, key) == text("x" * 64)

    def construct(self):
        self.round += 1
        name = f"group.{self.round:04}"
        tags = [member.construct(name=name) for member in self.ranks]
        assert [member.status(tag) for member, tag in zip(self.ranks, tags, strict=True)] == [statuses.SUCCESS] * 2
        return name

    def group(self):
        name = self.construct()
        tags = [member.destruct(name=name) for member in self.ranks]
        assert [member.status(tag) for member, tag in zip(self.ranks, tags, strict=True)] == [statuses.SUCCESS] * 2

    def connect(self):
        fields = {"procs": (ALL,), "infos": ()}
        for command in (Command.CONNECTNB, Command.DISCONNECTNB):
            tags = [client.ask(command, **fields) for client in self.clients]
            assert [client.status(tag) for client, tag in zip(self.clients, tags, strict=True)] == [0] * 2

    def listen(self):
        for client in self.clients:
            assert client.status(client.ask(Command.REGEVENTS, codes=(CODE,), infos=())) == statuses.SUCCESS

    def raise_event(self):
        zero, one = self.clients
        fields = {"code": CODE, "range": RANGE_SESSION, "infos": ()}
        assert zero.status(zero.ask(Command.NOTIFY, **fields)) == statuses.SUCCESS
        one.read()
        assert one.pushed.pop()

    def job(self):
        """Another job starts and ends."""
        self.round += 1
        name = f"job.{self.round:04}"
        self.add(name, 2)
        client = Client(self, 0, name).connect()
        client.die()
        for rank in range(2):
            self.server.deregister_client(Proc(name, rank))
        self.server.deregister_nspace(name)
        self.advance(100)


HISTORIES = {
    "rounds": Ranks.exchange,
    "groups": Ranks.group,
    "standing groups": Ranks.construct,
    "connections": Ranks.connect,
    "events": Ranks.raise_event,
    "jobs": Ranks.job,
}

OPERATIONS = {
    "a fence": Ranks.fence,
    "an exchange": lambda ranks: ranks.exchange("same"),
    "an exchange of a new key": Ranks.exchange,
    "a group": Ranks.group,
    "a connection": Ranks.connect,
    "an event": Ranks.raise_event,
    "a job": Ranks.job,
}


@pytest.mark.parametrize("history", HISTORIES)
def test_a_long_history_costs_nothing(history):
    ranks = Ranks()
    ranks.listen()
    assert not find_growth(OPERATIONS, HISTORIES[history], ranks, (FEW, MANY), MOST)


def test_the_end_of_a_proc_costs_no_more_beside_groups_of_others():
    def steps(others):
        world = World(5)
        ranks = [Member(client, MIDDLE) for client in world.clients(*range(5), version=MIDDLE)]
        for index in range(others):
            pair = Proc("job", 0), Proc("job", 1)
            for member in ranks[:2]:
                member.construct(name=f"other.{index}", procs=pair)
        for member in ranks[2:]:
            member.construct(name="own", procs=[Proc("job", rank) for rank in (2, 3, 4)])
        assert len(world.server.store.groups) == others + 1
        ranks[4].client.die()  # the first one looks at the groups once for all
        found = count_steps(ranks[3].client.die)
        assert world.server.store.groups["own"] == (Proc("job", 2),)
        return found

    assert steps(200) <= MOST * steps(2)


@pytest.mark.parametrize("what", ["a reader ends", "a reader's commit", "a job ends", "a job is added"])
def test_waits_and_connections_of_others_cost_nothing(what):
    """Where each of many ranks waits for a value of its own, looks at all would grow with their square."""

    def steps(others):
        world = World(2)
        world.add("others", others)
        world.add("short", 1)
        for rank in range(others):
            reader = Client(world, rank, "others").connect()
            reader.get((rank + 1) % others, f"key.{rank}")
        world.server.modex.sharing.request(Proc("later", 0), lambda *_: None)
        for index in range(others):
            world.server.modex.sharing.request(Proc(f"unknown.{index}", 0), lambda *_: None)
        zero, one = world.clients(0, 1)
        tag = zero.get(1, "own")
        assert len(world.server.modex.pending()) == 2 * others + 2
        if what == "a reader ends":
            return count_steps(zero.die)
        if what == "a reader's commit":
            found = count_steps(lambda: one.commit(("own", text("x"))))
            assert zero.value(tag, 1, "own") == text("x")
            return found
        if what == "a job ends":
            return count_steps(lambda: world.server.deregister_nspace("short"))
        return count_steps(lambda: world.add("later", 1))

    steps(2)  # fills the caches of the process
    assert steps(200) == steps(2)


def test_the_waits_for_one_value_cost_each_reader_the_same():
    def steps(readers):
        world = World(readers + 1)
        clients = world.clients(*range(readers + 1))
        tags = [client.get(readers, "late") for client in clients[:-1]]
        found = count_steps(lambda: clients[-1].commit(("late", text("x"))))
        assert clients[0].value(tags[0], readers, "late") == text("x")
        return found

    steps(2)
    assert steps(200) <= 100 * steps(2)


def test_a_group_of_a_name_costs_no_more_beside_others_of_that_name():
    def steps(others):
        store = Store()
        for index in range(others):
            store.put_group(store.free_key("g"), (Proc("job", index),))
        return count_steps(lambda: store.free_key("g"))

    assert steps(200) == steps(2)


def test_a_get_looks_at_no_values_but_those_committed_next_to_its_own():
    class Watched(dict):
        seen = 0

        def __iter__(self):
            for name in super().__iter__():
                self.seen += 1
                yield name

        def __reversed__(self):
            for name in super().__reversed__():
                self.seen += 1
                yield name

    def seen(number):
        world = World(1)
        process = world.server.store.process(Proc("job", 0))
        process.data = Watched()
        (client,) = world.clients(0)
        for index in range(number):
            client.commit((f"key.{index}", text("x" * 100)))
        process.near("key.0")
        client.commit(("key", text("x" * 100)), ("key.0", text("again")))
        before = process.data.seen
        assert process.near("key")[:2] == ["key", "key.0"]
        assert "key.0" not in process.near("key.1")
        return process.data.seen - before

    assert seen(1000) == seen(100) == 2


def test_a_fence_takes_four_calls_for_each_further_client():
    """A call costs more than what it does, and a server makes them for each of a thousand clients."""

    def calls(number):
        world = World(number)
        clients = world.clients(*range(number))
        message = frame(0, 777, encode_fence(1, (ALL,), ()))

        def fence():
            for client in clients:
                client.link.owner.received(message)

        fence()
        found = count_calls(fence)
        assert not world.server.collectives.running
        assert all(len(client.link.out) == 2 for client in clients)
        return found

    assert calls(40) - calls(20) == 4 * 20
