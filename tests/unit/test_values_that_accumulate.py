"""Proves that a get costs the same however many values its proc has committed before: bytes, values and round trips."""

from __future__ import annotations

import pytest

from lib.server_world import World
from pypmix.engine.python import processes
from pypmix.engine.python.datastore import DataStore
from pypmix.standard import attrs, codes
from pypmix.standard.statuses import SUCCESS
from pypmix.standard.types import Proc, Value
from pypmix.wire.additions import greeting

COLLECT = (attrs.COLLECT_DATA(True),)
VALUE = Value(codes.BYTE_OBJECT, b"x" * 64)


class Reader:
    """A client of pypmix that files answers away, drops them after a collecting fence, and counts what gets bring."""

    def __init__(self, client):
        self.client = client
        self.renew()
        self.trips = self.bytes = self.values = 0

    def renew(self):
        self.store = DataStore(self.client.proc, "node", self.client.release)

    def get(self, rank, key):
        proc = Proc("job", rank)
        value = self.store.lookup(proc, key)
        if value is None:
            tag = self.client.get(rank, key)
            self.trips += 1
            for source, kvals in self.client.objects(tag):
                self.values += len(kvals)
                self.store.fetched(source, kvals)
            self.bytes += len(self.client.replies[tag])
            value = self.store.lookup(proc, key)
        return value


def clients_of(world, *ranks):
    """Connect clients of the Python engine."""
    return world.clients(*ranks, infos=(greeting("1.0.0"),))


def fence(readers):
    tags = [reader.client.fence(infos=COLLECT) for reader in readers]
    assert [reader.client.status(tag) for reader, tag in zip(readers, tags, strict=True)] == [SUCCESS] * len(readers)
    for reader in readers:
        reader.renew()


@pytest.mark.parametrize("size", [2, 3], ids=["one-owner", "two-owners"])
def test_a_new_key_each_round_costs_the_same_in_round_1000(size):
    readers = [Reader(client) for client in clients_of(World(size), *range(size))]
    costs = {}
    for round in range(1, 1001):
        for reader in readers:
            reader.client.commit((f"uid.{round}", VALUE))
        fence(readers)
        reader = readers[0]
        reader.bytes = reader.values = reader.trips = 0
        for rank in range(1, size):
            assert reader.get(rank, f"uid.{round}") == VALUE
        costs[round] = reader.bytes, reader.values, reader.trips
    assert all(late <= 1.2 * early for early, late in zip(costs[10], costs[1000], strict=True)), costs
    worst = max(bytes for bytes, _, _ in costs.values())
    assert worst <= (size - 1) * (processes.SMALL + 1000), "all values of a proc come while they are few"
    assert max(trips for _, _, trips in costs.values()) <= size - 1


def test_values_read_again_in_each_round_cost_the_same():
    reader, owner = readers = [Reader(client) for client in clients_of(World(2), 0, 1)]
    costs = {}
    for round in range(1, 1001):
        owner.client.commit((f"uid.{round}", VALUE))
        fence(readers)
        reader.bytes = reader.values = reader.trips = 0
        for key in (f"uid.{round}", "uid.1"):
            assert reader.get(1, key) == VALUE
        costs[round] = reader.bytes, reader.trips
    assert costs[1000][1] == 2
    assert costs[1000][0] <= 1.2 * max(bytes for bytes, _ in costs.values() if bytes), costs[1000]
    assert costs[1000][0] <= 2 * processes.SMALL + 1000


@pytest.mark.parametrize(("number", "most"), [(100, 1), (1000, 1)])
@pytest.mark.parametrize("backwards", [False, True], ids=["in-order", "backwards"])
@pytest.mark.parametrize("together", [False, True], ids=["one-by-one", "together"])
def test_many_small_values_need_few_round_trips(number, most, backwards, together):
    """The first time; and after a fence, which makes the reader drop them, one for each run of neighbours."""
    reader, owner = readers = [Reader(client) for client in clients_of(World(2), 0, 1)]
    values = [(f"key.{place}", Value(codes.BYTE_OBJECT, bytes(30))) for place in range(number)]
    for part in [values] if together else [[value] for value in values]:
        owner.client.commit(*part)
    for trips in (most, max(1, number // 50)):
        fence(readers)
        reader.trips = 0
        for key, value in values[::-1] if backwards else values:
            assert reader.get(1, key) == value
        assert reader.trips <= trips


def test_a_value_that_is_put_again_is_sent_as_new():
    reader, owner = readers = [Reader(client) for client in clients_of(World(2), 0, 1)]
    owner.client.commit(*[(f"key.{place}", VALUE) for place in range(500)])
    fence(readers)
    assert reader.get(1, "key.499") == VALUE
    newer = Value(codes.BYTE_OBJECT, b"newer")
    owner.client.commit(("key.3", newer))
    fence(readers)
    reader.values = 0
    assert reader.get(1, "key.3") == newer
    assert reader.values == 1


def test_clients_of_libpmix_are_sent_all():
    """Their library drops what else it waits for, if an answer does not have it."""
    world = World(2)
    reader, owner = world.clients(0, 1)
    owner.commit(*[(f"key.{place}", VALUE) for place in range(500)])
    for _ in range(2):
        ((_, kvals),) = reader.objects(reader.get(1, "key.7"))
        assert len(kvals) == 500
