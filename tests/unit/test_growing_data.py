"""What collectives carry between servers does not grow with what procs have committed before."""

from __future__ import annotations

import random
import sys

import pytest

from lib.server_cluster import Cluster
from lib.server_world import LOCAL, text
from pypmix.engine.python.modexrequests import data_of
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import NotSupported
from pypmix.standard.limits import Limits
from pypmix.standard.ops.core import DEL_GLOBAL
from pypmix.standard.ops.hosting import DirectModex, FenceUpcall
from pypmix.standard.types import Proc, Value
from pypmix.wire.additions import greeting
from pypmix.wire.modex import decode_modex, encode_modex, rename_modex

COLLECT = attrs.COLLECT_DATA(True)
IMMEDIATE = attrs.IMMEDIATE(True)
FAR = Proc("job", 0)


@pytest.fixture
def cluster():
    return Cluster((0, 1), (2, 3))


def collect(clients, *procs):
    tags = [client.fence(*procs, infos=(COLLECT,)) for client in clients]
    assert [client.status(tag) for client, tag in zip(clients, tags, strict=True)] == [statuses.SUCCESS] * len(clients)


def carried(cluster, node=0, fence=-1):
    """Return the keys that a fence of a server, by default the last one, has carried, and whether these are all."""
    bases = {}
    found = decode_modex(cluster.nodes[node].asked(FenceUpcall)[fence].data, {}, bases)
    return [key for _, values in found for key, _ in values], not bases


def known(client, *keys):
    """Return what a client finds of the first proc without waiting for it."""
    return [client.value(client.get(0, key, IMMEDIATE), 0, key) for key in keys]


def test_a_round_of_new_keys_costs_no_more_after_many():
    cluster = Cluster((0, 1), (2, 3))
    clients = cluster.everyone(infos=(greeting("1"),))
    calls = []

    def rounds(first, number):
        calls.clear()
        for index in range(first, first + number):
            for client in clients:
                client.commit((f"key.{index:03}", text("x" * 64)))
            sys.setprofile(lambda _frame, event, _argument: calls.append(event))
            collect(clients)
            assert clients[3].value(clients[3].get(0, f"key.{index:03}"), 0, f"key.{index:03}") == text("x" * 64)
            sys.setprofile(None)
        return len(calls), len(cluster.nodes[0].asked(FenceUpcall)[-1].data)

    rounds(0, 100)  # a proc with little data is sent whole to each reader
    early = rounds(100, 10)
    rounds(110, 190)
    late = rounds(300, 10)
    assert late[0] < 1.1 * early[0]
    assert late[1] < 1.1 * early[1]
    assert not cluster.nodes[1].asked(DirectModex)


def test_what_all_servers_have_is_not_sent_again(cluster):
    clients = cluster.everyone()
    clients[0].commit(("a", text("old")), ("b", text("stays")))
    collect(clients)
    assert carried(cluster) == (["a", "b"], True)
    clients[0].commit(("a", text("new")))
    collect(clients)
    # Nobody has said yet that it has stored the first result.
    assert carried(cluster) == (["b", "a"], True)
    assert known(clients[2], "a", "b") == [text("new"), text("stays")]
    clients[0].commit(("c", text("last")))
    collect(clients)
    # What the second one brought is not known to be stored.
    assert carried(cluster) == (["a", "c"], False)
    collect(clients)
    assert carried(cluster) == (["c"], False)
    collect(clients)
    assert carried(cluster) == ([], False)
    assert known(clients[2], "a", "b", "c") == [text("new"), text("stays"), text("last")]


def test_what_a_native_commits_again_is_not_sent_again(cluster):
    clients = cluster.everyone()
    for number in range(4):
        clients[0].commit(*[(f"key.{index}", text("x")) for index in range(number + 1)])
        collect(clients)
    assert carried(cluster) == (["key.2", "key.3"], False)


@pytest.mark.parametrize("how", ["another scope", "deleted"])
def test_all_is_sent_again_after_a_value_was_removed(cluster, how):
    clients = cluster.everyone()
    clients[0].commit(("a", text("1")), ("b", text("2")))
    for _ in range(3):
        collect(clients)
    assert carried(cluster) == ([], False)
    if how == "deleted":
        clients[0].commit(("a", Value(codes.UNDEF)), scope=DEL_GLOBAL)
    else:
        clients[0].commit(("a", text("near")), scope=LOCAL)
    collect(clients)
    assert carried(cluster) == (["b"], True)
    assert clients[2].status(clients[2].get(0, "a", IMMEDIATE)) == statuses.ERR_NOT_FOUND
    assert known(clients[2], "b") == [text("2")]


def test_each_set_of_servers_gets_what_it_lacks():
    cluster = Cluster((0,), (1,), (2,))
    zero, one, two = cluster.everyone()
    pair = FAR, Proc("job", 1)
    zero.commit(("a", text("1")))
    for _ in range(3):
        collect((zero, one), *pair)
    assert carried(cluster) == ([], False)
    zero.commit(("b", text("2")))
    collect((zero, one, two))
    assert carried(cluster) == (["a", "b"], True)
    assert known(one, "a", "b") == known(two, "a", "b") == [text("1"), text("2")]
    zero.commit(("c", text("3")))
    collect((zero, one), *pair)
    assert carried(cluster) == (["b", "c"], False)
    assert known(one, "a", "b", "c") == [text("1"), text("2"), text("3")]


@pytest.mark.parametrize("missed", [1, 2, 3])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_a_server_that_has_missed_results_is_sent_their_data(before, missed):
    cluster = Cluster((0,), (1,), (2,))
    zero, one, two = cluster.everyone()
    modex = cluster.nodes[1].server.modex
    keys = []

    def round(stores=True):
        keys.append(f"key.{len(keys)}")
        zero.commit((keys[-1], text(keys[-1])), ("same", text(keys[-1])))
        take_in = modex.take_in
        if not stores:
            modex.take_in = lambda *_: 0
        collect((zero, one, two))
        modex.take_in = take_in

    for _ in range(before):
        round()
    for _ in range(missed):
        round(stores=False)
    for _ in range(4):
        round()
        assert known(one, *keys) == known(two, *keys) == [text(key) for key in keys]
        assert known(one, "same") == known(two, "same") == [text(keys[-1])]
    assert not cluster.nodes[1].asked(DirectModex)
    sent, is_all = carried(cluster)
    assert not is_all
    assert sent[-3:] == [keys[-2], keys[-1], "same"]
    assert len(sent) <= 5


def test_a_server_that_has_lost_data_asks_for_it_and_is_sent_all_again():
    cluster = Cluster((0,), (1,))
    zero, one = cluster.everyone()
    for number in range(3):
        zero.commit((f"key.{number}", text("x")))
        collect((zero, one))
    lost = cluster.nodes[1].server.store.process(FAR)
    lost.replace({}, lost.stamp)
    zero.commit(("b", text("new")))
    collect((zero, one))
    assert one.value(one.get(0, "key.0"), 0, "key.0") == text("x")
    assert len(cluster.nodes[1].asked(DirectModex)) == 1
    lost.replace({}, lost.stamp)
    collect((zero, one))
    collect((zero, one))
    assert known(one, "key.0", "key.1", "key.2", "b") == [*[text("x")] * 3, text("new")]
    assert len(cluster.nodes[1].asked(DirectModex)) == 1


def test_after_an_operation_without_a_procs_values_a_fence_sends_all(cluster):
    clients = cluster.everyone()
    for number in range(4):
        clients[0].commit((f"key.{number}", text("x")))
        collect(clients)
    assert not carried(cluster)[1]
    process = cluster.nodes[0].server.store.process(FAR)
    # For example a connect, whose data may be too much.
    assert cluster.nodes[1].server.modex.take_in(data_of((process,), 1), {FAR}, "data") == statuses.SUCCESS
    collect(clients)
    assert carried(cluster) == ([f"key.{number}" for number in range(4)], True)
    assert known(clients[2], "key.0", "key.3") == [text("x")] * 2


def test_a_result_with_data_of_unknown_procs_is_not_complete(cluster):
    modex = cluster.nodes[1].server.modex
    known, unknown, part = FAR, Proc("later", 0), (5, 0, 2)
    for data, stored in (([known], [part]), ([known, unknown], []), ([unknown], [])):
        found = []
        blob = encode_modex([(proc, []) for proc in data], contribution=part)
        assert modex.take_in(blob, {known, unknown}, "data", None, found) == statuses.SUCCESS
        assert found == stored
    found = []
    modex.take_in(encode_modex([(unknown, [])], contribution=part), {known}, "data", None, found)
    assert found == [part]


def test_values_that_did_not_fit_are_sent_when_they_fit():
    cluster = Cluster((0,), (1,))
    for node in cluster.nodes:
        node.server.limits = Limits(collected=20_000)
    zero, one = cluster.everyone()
    for number in range(4):
        zero.commit((f"key.{number}", text("x")))
        collect((zero, one))
    assert not carried(cluster)[1]
    zero.commit(("much", text("x" * 15_000)))
    collect((zero, one))
    assert carried(cluster) == ([], True)
    zero.commit(("much", text("less")))
    for _ in range(3):
        collect((zero, one))
        assert known(one, *[f"key.{number}" for number in range(4)], "much") == [*[text("x")] * 4, text("less")]
    assert not cluster.nodes[1].asked(DirectModex)


def test_a_failed_fence_counts_for_nothing():
    cluster = Cluster((0,), (1,))
    zero, one = cluster.everyone()

    def fail():
        answered = []

        def refuse(_node, _op, answer):
            answered.append(answer)
            if len(answered) == 2:
                for each in answered:
                    each(None, NotSupported("no"))

        cluster.upcall, upcall = refuse, cluster.upcall
        tags = zero.fence(infos=(COLLECT,)), one.fence(infos=(COLLECT,))
        assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.ERR_NOT_SUPPORTED] * 2
        cluster.upcall = upcall

    for number in range(6):
        zero.commit((f"key.{number}", text("x")))
        fail()
        collect((zero, one))
        assert known(one, *[f"key.{each}" for each in range(number + 1)]) == [text("x")] * (number + 1)
    assert carried(cluster) == (["key.4", "key.5"], False)


class Schedule:
    """Fences of random procs over some servers, whose results arrive in a random order, some not at all.

    The model is what each proc had committed when its server contributed to a fence that a server has ended: its
    readers see at least these values.
    """

    def __init__(self, servers, seed):
        self.random = random.Random(seed)
        self.cluster = Cluster(*[(2 * server, 2 * server + 1) for server in range(servers)])
        self.clients = self.cluster.everyone()
        self.model = [{} for _ in self.clients]

    def commit(self):
        rank = self.random.randrange(len(self.clients))
        model, client = self.model[rank], self.clients[rank]
        key = f"key.{self.random.randrange(6)}" if self.random.random() < 0.5 else f"key.{rank}.{len(model)}"
        if key in model and self.random.random() < 0.2:
            client.commit((key, Value(codes.UNDEF)), scope=DEL_GLOBAL)
            del model[key]
        else:
            model[key] = text(str(self.random.random()))
            client.commit((key, model[key]))

    def fence(self):
        servers = range(len(self.cluster.nodes))
        chosen = sorted(self.random.sample(servers, self.random.randint(1, len(servers))))
        if self.random.random() < 0.7:
            chosen = list(servers)
        ranks = [rank for server in chosen for rank in (2 * server, 2 * server + 1)]
        # Some servers lose the result, as if it had come too late for them.
        lost = [self.cluster.nodes[each].server.modex for each in chosen if self.random.random() < 0.2]
        for modex in lost:
            modex.take_in = lambda *_: 0
        clients = [self.clients[rank] for rank in ranks]
        collect(clients, *[client.proc for client in clients])
        for modex in lost:
            del modex.take_in
        for reader in ranks:
            if self.cluster.nodes[reader // 2].server.modex not in lost:
                self.check(reader, ranks)

    def fences(self):
        """Return the numbers of all servers with those of their fences."""
        nodes = self.cluster.nodes
        return [(node, fence) for node in range(len(nodes)) for fence in range(len(nodes[node].asked(FenceUpcall)))]

    def check(self, reader, ranks):
        for rank in ranks:
            for key in {*self.model[rank], *[f"key.{number}" for number in range(6)]}:
                client = self.clients[reader]
                value = client.value(client.get(rank, key, IMMEDIATE), rank, key)
                assert value == self.model[rank].get(key), (reader, rank, key)


@pytest.mark.parametrize("servers", [1, 2, 3, 5])
def test_after_a_fence_all_have_what_the_others_had_committed(servers):
    for seed in range(12):
        schedule = Schedule(servers, seed)
        for _ in range(60):
            schedule.commit() if schedule.random.random() < 0.6 else schedule.fence()
        nodes = schedule.cluster.nodes
        assert not any(node.asked(DirectModex) for node in nodes)
        assert servers == 1 or any(not carried(schedule.cluster, node, each)[1] for node, each in schedule.fences())


def test_another_name_of_a_job_changes_nothing_else():
    procs = Proc("job", 1), Proc("job", 2)
    parts = [(7, 8, 2), (9, 8, 1)]
    first = encode_modex([(proc, []) for proc in procs], dict.fromkeys(procs, 7), {procs[0]: 5}, parts[0])
    second = encode_modex([(Proc("job", 3), [])], contribution=parts[1])
    stamps, bases, contributions = {}, {}, []
    decode_modex(rename_modex(first + second, lambda name: f"other.{name}"), stamps, bases, contributions)
    assert stamps == {Proc("other.job", 1): 7, Proc("other.job", 2): 7, Proc("other.job", 3): 0}
    assert bases == {Proc("other.job", 1): 5}
    assert contributions == parts
