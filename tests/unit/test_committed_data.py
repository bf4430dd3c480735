"""Proves that a construct and a connect bring what their members on other servers have committed."""

from __future__ import annotations

from lib.exchange_groups import P, construct
from lib.exchange_world import World
from lib.server_cluster import Cluster
from lib.server_world import text
from pypmix.host.exchange import coordinator
from pypmix.host.exchange.kinds import FENCE, Outcome
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.ops import Connect, Connected
from pypmix.standard.ops.hosting import COMMITTED, GroupUpcall
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.wire.messages import Command
from pypmix.wire.modex import decode_modex

ALL = Proc("job", RANK_WILDCARD)
IMMEDIATE = attrs.IMMEDIATE(True)


def data(content):
    return Info(COMMITTED, Value(codes.BYTE_OBJECT, content))


def given(infos):
    return [info.value.data for info in infos if info.key == COMMITTED]


def calls(cluster, command, *clients, **fields):
    """Return the status of each client that calls the same."""
    tags = [client.ask(command, **fields) for client in clients]
    assert all(client.status(tag) == statuses.SUCCESS for client, tag in zip(clients, tags, strict=True))


class Forwarding(Cluster):
    """A host that returns the data of all servers, and counts who gave some."""

    def group(self, ops_):
        return (*super().group(ops_), *[info for op in ops_ for info in op.directives if info.key == COMMITTED])


def test_a_construct_brings_what_its_members_have_committed():
    cluster = Forwarding((0, 1), (2, 3))
    zero, one, two, three = cluster.everyone()
    zero.commit(("a", text("of 0")))
    two.commit(("a", text("of 2")))
    calls(cluster, Command.GROUP_CONSTRUCT, zero, one, two, three, group="g", procs=(ALL,), infos=())
    (op,) = cluster.nodes[0].asked(GroupUpcall)
    (blob,) = given(op.directives)
    assert [proc for proc, _ in decode_modex(blob)] == [Proc("job", 0)]
    assert two.value(two.get(0, "a", IMMEDIATE), 0, "a") == text("of 0")
    assert one.value(one.get(2, "a", IMMEDIATE), 2, "a") == text("of 2")
    assert one.status(one.get(3, "a", IMMEDIATE)) == statuses.ERR_NOT_FOUND


def test_a_construct_of_one_server_hands_out_nothing():
    cluster = Forwarding((0, 1), (2, 3))
    zero, one, *_ = cluster.everyone()
    zero.commit(("a", text("of 0")))
    calls(cluster, Command.GROUP_CONSTRUCT, zero, one, group="g", procs=(Proc("job", 0), Proc("job", 1)), infos=())
    (op,) = cluster.nodes[0].asked(GroupUpcall)
    assert not given(op.directives)


def test_a_construct_holds_without_data_that_cannot_be_read():
    class Broken(Cluster):
        def group(self, ops_):
            return (*super().group(ops_), data(b"nonsense"))

    cluster = Broken((0, 1), (2, 3))
    calls(cluster, Command.GROUP_CONSTRUCT, *cluster.everyone(), group="g", procs=(ALL,), infos=())
    assert [len(node.logged) for node in cluster.nodes] == [1, 1]
    assert all("g" in node.server.store.groups for node in cluster.nodes)


def test_a_proc_that_is_to_be_added_gives_what_it_has_committed():
    cluster = Forwarding((0, 1), (2, 3))
    two = cluster.client(2)
    two.commit(("a", text("of 2")))
    two.ask(Command.GROUP_CONSTRUCT, group="g", procs=(), infos=(attrs.GROUP_BOOTSTRAP(2),))
    (op,) = cluster.nodes[1].asked(GroupUpcall)
    (blob,) = given(op.directives)
    assert [proc for proc, _ in decode_modex(blob)] == [Proc("job", 2)]


def test_a_connect_brings_what_its_procs_have_committed():
    class Connecting(Cluster):
        def finish(self, batch):
            directives = tuple([info for _, op, _ in batch for info in op.directives if info.key == COMMITTED])
            for _, _, answer in batch:
                answer(Connected(directives=directives), None)

    cluster = Connecting((0, 1), (2, 3))
    zero, one, two, three = cluster.everyone()
    zero.commit(("a", text("of 0")))
    calls(cluster, Command.CONNECTNB, zero, one, two, three, procs=(ALL,), infos=())
    assert [len(given(node.asked(Connect)[0].directives)) for node in cluster.nodes] == [1, 0]
    assert three.value(three.get(0, "a", IMMEDIATE), 0, "a") == text("of 0")


def test_hosts_bring_the_data_of_all_to_all():
    world = World()
    ends = world.all_ask(lambda name: construct(data(name.encode())))
    assert [given(end) for end in ends] == [[b"a", b"b", b"c"]] * 3
    assert all(any(info.key == keys.GROUP_MEMBERSHIP for info in end) for end in ends)
    ends = world.all_ask(lambda name: Connect(tuple(P), (data(name.encode()),)))
    assert [given(end.directives) for end in ends] == [[b"a", b"b", b"c"]] * 3


def test_decisions_are_remembered_up_to_a_size_and_the_last_one_always(monkeypatch):
    monkeypatch.setattr(coordinator, "MAX_DECIDED_BYTES", 100)
    decided = coordinator.Decided()
    for number, size in enumerate((60, 60, 30, 200)):
        decided.add(
            FENCE, "name", Outcome(infos=(data(bytes(size // 2)),), data=bytes(size // 2), parts=(("a", number),))
        )
    assert [decided.find(("a", number)) is not None for number in range(4)] == [False, False, False, True]
