"""Proves that what one peer takes of a server is bounded, that it is told so, and that nobody else waits for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pypmix
from lib.server_cluster import Cluster
from lib.server_world import Client, World, text
from pypmix.cli.options import parse
from pypmix.cli.usage import UsageError
from pypmix.engine.python.node import TURN
from pypmix.host import Application, Host, LocalHost
from pypmix.host.loop import Loop, Turns
from pypmix.host.publisheddata import Caller, Directory
from pypmix.standard import codes, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.limits import DEFAULTS, NAMES, Limits
from pypmix.standard.ops import Publish, Unpublish
from pypmix.standard.ops.hosting import DirectModex, FenceUpcall
from pypmix.standard.types import Info, Proc, Value
from pypmix.wire.additions import greeting, split_reason
from pypmix.wire.frames import MAX_MESSAGE, FrameReader, frame
from pypmix.wire.messages import encode_commit, encode_fence, encode_get, encode_kval
from pypmix.wire.modex import decode_modex

LOCAL, REMOTE = 1, 2
OURS = {"infos": (greeting("1"),)}


def blob(size):
    return Value(codes.BYTE_OBJECT, bytes(size))


# How they are set.


def test_limits_are_read_from_a_text():
    assert Limits.read("") == DEFAULTS
    assert Limits.read(" committed=2M, connections=7,") == Limits(committed=2 << 20, connections=7)
    assert Limits.of({"PYPMIX_LIMITS": "published=3K"}) == Limits(published=3 << 10)


@pytest.mark.parametrize(
    "wrong", ["committed", "committed=", "committed=-1", "committed=0", "committed=1.5M", "nothing=1", "codes=9999999T"]
)
def test_what_makes_no_sense_is_no_limit(wrong):
    with pytest.raises(ValueError, match="limit"):
        Limits.read(wrong)


def test_the_page_has_all_limits_and_their_defaults():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "environment.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert Limits.read(",".join(f"{name}={number}" for name, number in rows.items())) == DEFAULTS
    assert tuple(rows) == NAMES


def test_pypmix_run_takes_them_as_an_option_or_from_its_environment():
    assert parse(["-n", "2", "x"], {}).limits == DEFAULTS
    assert parse(["x"], {"PYPMIX_LIMITS": "codes=7"}).limits == Limits(codes=7)
    assert parse(["--limits", "codes=8", "x"], {"PYPMIX_LIMITS": "codes=7,pulls=1"}).limits == Limits(codes=8)
    for words, env in ((["--limits", "nothing=1", "x"], {}), (["x"], {"PYPMIX_LIMITS": "codes=many"})):
        with pytest.raises(UsageError, match="limit"):
            parse(words, env)


def test_servers_and_hosts_take_them(monkeypatch):
    monkeypatch.setenv("PYPMIX_LIMITS", "published=1K")
    assert pypmix.Server().limits == Host().server.limits == Limits(published=1024)
    assert LocalHost([Application(("true",))]).limits == Limits(published=1024)
    given = Limits(published=2)
    assert pypmix.Server(limits=given).limits == Host(limits=given).server.limits == given
    assert LocalHost([Application(("true",))], limits=given).nodes[0].server.limits == given
    with pytest.raises(TypeError):
        pypmix.Server(limits={"published": 2})


def test_limits_are_numbers():
    with pytest.raises(TypeError):
        Limits(committed=1.0)
    with pytest.raises(TypeError):
        Limits(committed=True)


# Commits.


@pytest.fixture
def small():
    return World(limits=Limits(committed=10_000, committed_values=5))


def test_the_sum_of_commits_is_bounded(small):
    a, b = small.clients(0, 1)
    assert a.status(a.commit(("x", blob(4000)))) == statuses.SUCCESS
    assert a.status(a.commit(("y", blob(4000)))) == statuses.SUCCESS
    assert a.status(a.commit(("z", blob(4000)))) == statuses.ERR_OUT_OF_RESOURCE
    # Whole or not at all, and nobody else is concerned.
    assert a.status(a.commit(("x", blob(10)), ("z", blob(8000)))) == statuses.ERR_OUT_OF_RESOURCE
    assert len(b.value(b.get(0, "x"), 0, "x").data) == 4000
    assert b.status(b.commit(("x", blob(9000)))) == statuses.SUCCESS
    # What is replaced or deleted makes room; and what does not grow is never refused.
    assert a.status(a.commit(("x", blob(10)))) == statuses.SUCCESS
    assert a.status(a.commit(("z", blob(5000)))) == statuses.SUCCESS
    assert a.status(a.commit(("y", blob(0)), scope=7)) == statuses.SUCCESS
    assert a.status(a.commit(("y", blob(4000)))) == statuses.SUCCESS


def test_the_number_of_values_is_bounded(small):
    (a,) = small.clients(0)
    assert a.status(a.commit(*[(f"k{number}", text("")) for number in range(5)])) == statuses.SUCCESS
    assert a.status(a.commit(("one more", text("")))) == statuses.ERR_OUT_OF_RESOURCE
    assert a.status(a.commit(("k3", text("again")))) == statuses.SUCCESS


def test_sizes_are_those_of_what_is_there():
    world = World(limits=Limits(committed=100_000))
    (a,) = world.clients(0)
    process = world.server.store.process(a.proc)
    for scope, keys in ((LOCAL, "ab"), (REMOTE, "bc"), (3, "ad"), (5, "a"), (7, "b"), (3, "aa"), (6, "d"), (5, "d")):
        a.commit(*[(key, text(key * 50)) for key in keys], scope=scope)
        assert process.size == sum(len(stored[1]) for stored in process.data.values())


def test_pypmix_is_told_the_limit_and_how_to_set_it(small):
    (a,) = small.clients(0, **OURS)
    tag = a.commit(("x", blob(20_000)))
    assert a.status(tag) == statuses.ERR_OUT_OF_RESOURCE
    _, reason = split_reason(a.replies[tag], 1)
    assert "job:0" in reason
    assert "'committed' is 10000" in reason
    assert "--limits committed=" in reason
    assert "PYPMIX_LIMITS" in reason


def test_a_native_rank_hears_of_its_refused_commit_by_its_fence(small):
    """libpmix drops the status of a commit."""
    a, b = small.clients(0, 1)
    a.commit(("x", blob(20_000)))
    tags = [client.fence(Proc("job", 0), Proc("job", 1)) for client in (a, b)]
    assert [a.status(tags[0]), b.status(tags[1])] == [statuses.ERR_OUT_OF_RESOURCE, statuses.SUCCESS]
    tags = [client.fence(Proc("job", 0), Proc("job", 1)) for client in (a, b)]
    assert [a.status(tags[0]), b.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    assert any("committed" in line for line in small.logged)


def test_a_message_that_is_too_long_is_refused_and_its_connection_goes_on(small):
    a, b = small.clients(0, 1)
    message = encode_commit(1, [(3, encode_kval(1, "x", blob(small.server.limits.message)))])
    data = frame(0, 9999, message) + frame(0, 10000, encode_commit(1, [(3, encode_kval(1, "y", blob(1)))]))
    a.asked |= {9999: b"", 10000: b""}
    for begin in range(0, len(data), 65536):
        a.link.owner.received(data[begin : begin + 65536])
        assert a.link.owner.reader.pending < 65536
    a.read()
    assert [a.status(9999), a.status(10000)] == [statuses.ERR_OUT_OF_RESOURCE, statuses.SUCCESS]
    assert b.value(b.get(0, "y"), 0, "y") == blob(1)


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 100, 1016, 1017])
def test_what_is_passed_over_does_not_depend_on_how_it_comes(cut):
    data = frame(0, 101, b"a") + frame(0, 102, bytes(1000)) + frame(0, 103, b"b") + frame(0, 104, bytes(999))
    data += frame(0, 105, b"c")
    reader = FrameReader(limit=10, skips=True)
    found = []
    for begin in range(0, len(data), cut):
        found += reader.feed(data[begin : begin + cut])
    assert found == [(101, b"a"), (102, b""), (103, b"b"), (104, b""), (105, b"c")]
    assert reader.skipped == {102: 1000, 104: 999}


# What readers are sent.


@pytest.mark.parametrize("hello", [OURS, {"version": "6.0.1"}, {"version": "4.2.2"}], ids=["pypmix", "6.0", "4.2"])
@pytest.mark.parametrize("other", [False, True], ids=["same nspace", "other nspace"])
def test_no_answer_is_longer_than_its_reader_takes(hello, other):
    """Whatever a rank has committed, with limits beyond what readers take."""
    world = World(limits=Limits(committed=1 << 30))
    nspace = "job"
    if other:
        world.add("other", 2)
        nspace = "other"
    a = Client(world, 0).connect()
    b = Client(world, 1, nspace, **hello).connect()
    for number in range(3):
        assert a.status(a.commit((f"b{number}", blob(15 << 20)), scope=LOCAL)) == statuses.SUCCESS
    a.commit(("small", text("7")), scope=LOCAL)
    b.reader = FrameReader(1 << 30)
    tag = b.get(0, "small", nspace="job")
    unlimited = hello.get("version") == "4.2.2"
    assert len(b.replies[tag]) <= (1 << 30 if unlimited else MAX_MESSAGE)
    if hello is OURS:
        # It has asked for one value, and is sent that.
        assert len(b.replies[tag]) < 10_000
        assert b.value(tag, 0, "small", nspace="job") == text("7")
    else:
        assert b.status(tag) == (statuses.SUCCESS if unlimited else statuses.ERR_OUT_OF_RESOURCE)
    assert b.status(b.get(0, "b1", nspace="job")) is not None
    assert not b.link.closed


def test_by_default_all_that_a_rank_may_commit_fits_into_an_answer():
    world = World()
    a, b = (Client(world, rank, version="6.0.1").connect() for rank in (0, 1))
    a.commit(("big", blob(DEFAULTS.committed - 100)), scope=LOCAL)
    tag = b.get(0, "big")
    assert b.status(tag) == statuses.SUCCESS
    assert len(b.value(tag, 0, "big").data) == DEFAULTS.committed - 100
    assert a.status(a.commit(("more", blob(101)), scope=LOCAL)) == statuses.ERR_OUT_OF_RESOURCE


def test_much_data_is_not_kept_twice():
    world = World()
    a, b = world.clients(0, 1)
    a.commit(("big", blob(1 << 20)))
    b.get(0, "big")
    assert not world.server.store.process(a.proc)._objects


COLLECT = Info("pmix.collect", Value(codes.BOOL, True))


@pytest.mark.parametrize("hello", [OURS, {}], ids=["pypmix", "native"])
def test_a_collecting_fence_sends_along_no_more_than_a_limit_and_loses_nothing(hello):
    cluster = Cluster((0, 1), (2, 3))
    for node in cluster.nodes:
        node.server.limits = Limits(collected=20_000)
    zero, one, two, three = clients = cluster.everyone(**hello)

    def fence():
        tags = [client.fence(infos=(COLLECT,)) for client in clients]
        assert [client.status(tag) for client, tag in zip(clients, tags, strict=True)] == [statuses.SUCCESS] * 4
        data = decode_modex(cluster.nodes[0].asked(FenceUpcall)[-1].data)
        return {proc.rank: [key for key, _ in values] for proc, values in data}

    def sees(rank, key):
        """A value as both servers' other ranks see it."""
        found = [client.value(client.get(rank, key), rank, key) for client in (one, two, three)]
        assert found[1] == found[2]
        return found

    zero.commit(("k", text("old")))
    one.commit(("k", text("of one")))
    assert fence() == {0: ["k"], 1: ["k"]}
    assert sees(0, "k") == [text("old")] * 3
    # Half of the limit is that of the two here, and one fits into it.
    zero.commit(("k", text("new")), ("much", blob(15_000)))
    assert fence() == {0: [], 1: ["k"]}
    # What was sent along before is old, and is not taken for what there is.
    assert sees(0, "k") == [text("new")] * 3
    assert sees(0, "much") == [blob(15_000)] * 3
    assert sees(1, "k")[1:] == [text("of one")] * 2
    assert len(cluster.nodes[1].asked(DirectModex)) == 1
    # And all is as before when it is less again; what the other server has is not sent again.
    zero.commit(("much", blob(10)))
    assert fence() == {0: ["k", "much"], 1: []}


# Publishing.


def publish(directory, rank, *infos):
    directory.publish(Caller(Proc("job", rank), 1, 1), Publish(infos))


@pytest.mark.parametrize(
    ("limit", "values"),
    [
        (Limits(published=1000), [("a", blob(500)), ("b", blob(500))]),
        (Limits(published_values=2), [("a", blob(1)), ("b", blob(1)), ("c", blob(1))]),
    ],
)
def test_what_one_proc_publishes_is_bounded(limit, values):
    directory = Directory(lambda seconds, function: None, limit)
    for key, value in values[:-1]:
        publish(directory, 0, Info(key, value))
    with pytest.raises(PMIxError) as caught:
        publish(directory, 0, Info(*values[-1]))
    assert caught.value.code == statuses.ERR_OUT_OF_RESOURCE
    assert "the limit 'published" in caught.value.detail
    # It is its own limit, and ends with what it takes back.
    publish(directory, 1, Info("of another", values[0][1]))
    directory.unpublish(Caller(Proc("job", 0), 1, 1), Unpublish(("a",)))
    publish(directory, 0, Info(*values[-1]))


def test_what_all_publish_is_bounded_and_nothing_is_left_of_the_count():
    directory = Directory(lambda seconds, function: None, Limits(directory=2000))
    for rank in range(3):
        publish(directory, rank, Info(f"k{rank}", blob(500)))
    with pytest.raises(PMIxError) as caught:
        publish(directory, 3, Info("k3", blob(500)))
    assert "'directory' is 2000" in caught.value.detail
    for rank in range(3):
        directory.leave(Proc("job", rank))
        directory.unpublish(Caller(Proc("job", rank), 1, 1), Unpublish())
    assert (len(directory), directory._bytes, directory._shares) == (0, 0, {})


# Connections.


def test_the_connections_of_a_rank_are_bounded():
    world = World(limits=Limits(connections=3))
    clients = [Client(world, 0).connect() for _ in range(4)]
    assert [client.link.closed for client in clients] == [False] * 3 + [True]
    assert "connections" in "".join(world.logged)
    assert not Client(world, 1).connect().link.closed
    clients[0].die()
    assert not Client(world, 0).connect().link.closed


def test_unfinished_messages_are_bounded_and_what_they_hold_is_given_back():
    world = World(limits=Limits(committed=1 << 20, unfinished=8 << 20))
    clients = [Client(world, 0).connect() for _ in range(30)]
    other = Client(world, 1).connect()
    process = world.server.store.process(clients[0].proc)
    message = frame(0, 101, bytes(2 << 20))[:-1]
    for client in clients:
        for begin in range(0, len(message), 1 << 16):
            if client.link.owner is not None:
                client.link.owner.received(message[begin : begin + (1 << 16)])
        held = sum(len(peer.reader.held) for peer in world.server.peers(process))
        assert held == process.unfinished <= (8 << 20) + (30 << 16)
    assert any("'unfinished' is" in line for line in world.logged)
    assert not other.link.closed
    for client in clients:
        client.die()
    assert process.unfinished == 0


# Turns.


def flood(client, messages):
    """Send requests in one piece; return their tags."""
    tags = [next(client.tags) for _ in messages]
    client.asked |= dict.fromkeys(tags, b"")
    client.link.owner.received(b"".join(map(frame, [0] * len(tags), tags, messages)))
    return tags


def turn(world):
    """Let pass what is due by now, and not what that leads to."""
    due = [entry for entry in world.timers if entry[0] <= world.time]
    for entry in sorted(due):
        world.timers.remove(entry)
        if entry[2].function:
            entry[2].function()


def test_who_sends_a_lot_has_turns_among_the_others():
    world = World()
    greedy, other, honest = world.clients(0, 1, 2)
    first = flood(greedy, [encode_fence(1, [Proc("job", 0)])] * 1000)
    second = flood(other, [encode_fence(1, [Proc("job", 1)])] * 1000)
    served = []
    while greedy.asked or other.asked:
        before = len(greedy.asked), len(other.asked)
        turn(world)
        greedy.read()
        other.read()
        served.append((before[0] - len(greedy.asked), before[1] - len(other.asked)))
        # Whoever comes in between is served at once.
        assert honest.status(honest.fence(Proc("job", 2))) == statuses.SUCCESS
        assert len(served) < 1000
    assert set(served[:-1]) == {(TURN, TURN)}
    assert list(greedy.replies) == first
    assert list(other.replies) == second
    world.advance(0)
    assert not greedy.link.held


def test_who_sends_a_lot_is_not_read_from_meanwhile():
    world = World()
    (greedy,) = world.clients(0)
    flood(greedy, [encode_fence(1, [Proc("job", 0)])] * (TURN + 1))
    assert greedy.link.held
    while greedy.link.held:
        world.advance(0)
    assert len(greedy.link.owner.backlog) == 0


def test_a_burst_that_is_no_flood_is_served_in_its_turn():
    world = World()
    (client,) = world.clients(0)
    flood(client, [encode_fence(1, [Proc("job", 0)])] * TURN)
    client.read()
    assert not client.asked
    assert not client.link.held


def test_who_is_lost_is_owed_no_more_turns():
    """A connection that breaks with requests on its way takes no further time of the others."""
    world = World()
    a, b = world.clients(0, 1)
    flood(a, [encode_commit(1, [(3, encode_kval(1, f"k{number}", text("v")))]) for number in range(5 * TURN)])
    turn(world)
    a.die()
    assert len(world.server.store.process(a.proc).data) == TURN
    world.advance(0)
    assert b.status(b.fence(Proc("job", 1))) == statuses.SUCCESS
    assert not world.server._busy


def test_answers_are_made_only_as_far_as_they_are_taken():
    """64 KiB of requests ask for gigabytes."""
    world = World()
    a, b = world.clients(0, 1)
    a.commit(("big", blob(1 << 20)), scope=LOCAL)
    waiting = []
    b.link.full = lambda: sum(map(len, b.link.out)) > 1 << 20
    flood(b, [encode_get(1, "job", 0, (), "big", (5, 0, 11))] * 200)
    for _ in range(100):
        world.advance(0)
        waiting.append(sum(map(len, b.link.out)))
    assert max(waiting) < 4 << 20
    while b.asked:
        b.read()
        b.link.owner.drained()
        world.advance(0)
    assert len(b.replies) == 200


def test_calls_for_several_take_turns():
    posted, made = [], []
    turns = Turns(posted.append)
    for number in range(5):
        turns.add("greedy", lambda number=number: made.append(("greedy", number)))
    turns.add("honest", lambda: made.append(("honest", 0)))
    while posted:
        posted.pop(0)()
    assert made == [("greedy", 0), ("honest", 0), *[("greedy", number) for number in range(1, 5)]]


def test_posted_calls_do_not_keep_timers_waiting():
    loop = Loop()
    made = []

    def again():
        made.append(len(made))
        loop.post(again)

    def late():
        made.append("late")

    loop.post(again)
    loop.later(0.0, late)
    loop.run(lambda: "late" in made)
    assert made.index("late") < 200
    loop.close()
