"""The description of a job of many ranks is short, told once to each server, and shared in memory."""

from __future__ import annotations

import sys

import pytest
from bench import jobinfo, scale
from hypothesis import given
from hypothesis import strategies as st

from lib.exchange_session import Session
from lib.exchange_world import Server
from pypmix.data import DataBuffer
from pypmix.host import orders
from pypmix.host.exchange import Crossing, Exchange, Hub, codec
from pypmix.host.exchange import places as places_module
from pypmix.host.exchange.codec import INFOS, PLACES, PROCS, RANKS, pack
from pypmix.host.exchange.grouprecord import GroupRecord
from pypmix.host.exchange.kinds import FENCE, OUTCOME, Outcome
from pypmix.host.exchange.limits import DEFLATE_BYTES
from pypmix.host.exchange.places import Places
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.standard import attrs, codes, keys
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.types import RANK_UNDEF, RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.jobinfo import encode_jobinfo

pytestmark = pytest.mark.timeout(60)


def job(ranks, nodes=100, *, dealt):
    def here(number):
        per = ranks // nodes
        return tuple(range(number, ranks, nodes) if dealt else range(number * per, (number + 1) * per))

    placed = tuple([NodeLayout(f"node{number:04}", here(number), number) for number in range(nodes)])
    return JobLayout("job-1@1", (Application(("./app",), ranks),), placed)


@given(st.lists(st.integers(0, RANK_UNDEF), max_size=12))
def test_any_ranks_arrive_in_their_order(ranks):
    assert list(RANKS.read(RANKS.write(ranks))) == ranks
    procs = tuple([Proc.unchecked("job", rank) for rank in ranks])
    assert PROCS.read(PROCS.write(procs)) == procs


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5), st.integers(1, 6)), max_size=6))
def test_ranks_that_are_dealt_out_arrive_in_their_order(runs):
    ranks = [low + step * index for low, step, count in runs for index in range(count)]
    assert list(RANKS.read(RANKS.write(ranks))) == ranks


def test_ranks_that_are_dealt_out_are_as_short_as_those_that_follow_each_other():
    assert len(RANKS.write(range(5000))) == 16
    assert len(RANKS.write(range(3, 5000, 100))) == 32
    assert len(RANKS.write([1, 3])) == 32


@pytest.mark.parametrize("bounds", [(9, 1), (9, 1, 0, 0), (9, 1, 2, 1), (3, 3), (9, 1, 1 << 63, 0, 5, 4)])
def test_runs_of_ranks_that_are_none_do_not_parse(bounds):
    data = b"".join([bound.to_bytes(8, "big") for bound in bounds])
    with pytest.raises(RemoteProtocolError):
        RANKS.read(data)


@pytest.mark.parametrize("dealt", [False, True])
def test_the_length_of_a_description_does_not_grow_with_the_ranks(dealt):
    lengths = []
    for ranks in (1000, 10_000):
        described = job(ranks, dealt=dealt), 1, False, None, True
        data = orders.DESCRIBE.write(described)
        assert orders.DESCRIBE.read(data) == described
        lengths.append(len(data))
    assert max(lengths) < 3000
    assert lengths[1] < lengths[0] * 1.3


@pytest.mark.parametrize("dealt", [False, True])
def test_where_ranks_are_takes_a_few_bytes_for_each_server(dealt):
    places = {rank: node.hostname for node in job(10_000, dealt=dealt).nodes for rank in node.ranks}
    told = PLACES.write(("job", places))
    assert len(told) < 100 * 50
    assert PLACES.read(told)[1] == places


def read_by_a_rank(ranks, nodes):
    """Return how many bytes of job info a rank reads when it opens, and how many calls that takes it."""
    info = jobinfo.job_of(ranks, nodes).info()
    data = encode_jobinfo(info, jobinfo.DESCRIBED, jobinfo.RELEASE)
    calls = []
    sys.setprofile(lambda _frame, event, _argument: calls.append(event) if event in ("call", "c_call") else None)
    try:
        jobinfo.read(info, data)
    finally:
        sys.setprofile(None)
    return len(data), len(calls)


@pytest.mark.parametrize("each", [1, 10, 100])
def test_the_job_info_that_a_rank_reads_grows_with_ranks_and_nodes_and_no_faster(each):
    """A rank and a node are a few hundred bytes each, and what is said of the other ranks stays packed."""
    found = {}
    for ranks in (1000, 10_000):
        nodes = ranks // each
        size, calls = found[ranks] = read_by_a_rank(ranks, nodes)
        assert size < 400 * (ranks + nodes), f"{size:,} bytes"
        assert calls < 20 * ranks + 200 * nodes, f"{calls:,} calls"
    growth = [large / small for small, large in zip(found[1000], found[10_000], strict=True)]
    assert max(growth) < 11, growth


def test_registering_a_job_takes_a_few_messages_for_each_server():
    """Each describes it to the first server, which passes the first of equal descriptions on."""
    for count in (5, 10, 33, 80):
        session = Session(count, ranks=10)
        session.register(*session.names)
        session.hub.run()
        assert sum(session.hub.messages.values()) == 3 * (count - 1)
        assert set(session.hub.messages.values()) == {1, 2 * (count - 1)}
        assert max(session.hub.bytes.values()) < 110 * count * count


def test_procs_share_what_is_the_same_for_them():
    info = job(1000, 10, dealt=True).info()
    single = {keys.RANK, keys.GLOBAL_RANK, keys.APP_RANK}
    found = {}
    for _, infos in info.procs:
        for each in infos:
            found.setdefault(each.key, {})[id(each)] = each
    assert all(len(found[key]) == 1000 for key in single)
    assert all(len(each) <= 100 for key, each in found.items() if key not in single)


def of_procs(key, procs, flags=0):
    return Info(key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(procs))), flags)


def test_the_members_of_a_large_group_take_a_few_bytes_and_every_info_arrives_as_it_was():
    members = [Proc("job", rank) for rank in range(100_000)]
    named = [Proc("job", RANK_WILDCARD), *members[:20:2], Proc("other", 5)]
    infos = (
        attrs.GROUP_ID("g"),
        of_procs(keys.GROUP_MEMBERSHIP, members),
        of_procs("few", members[:3]),
        of_procs("none", ()),
        of_procs(keys.EVENT_CUSTOM_RANGE, named, flags=1),
    )
    data = INFOS.write(infos)
    assert len(data) < 500
    assert INFOS.read(data) == infos
    assert INFOS.read(INFOS.write(infos[:1])) == infos[:1] and INFOS.read(INFOS.write(())) == ()


@pytest.mark.parametrize("number", [1001, 501], ids=("one array", "two arrays"))
def test_more_procs_than_others_take_in_runs_arrive_all_the_same(number, monkeypatch):
    monkeypatch.setattr(codec, "MAX_PROCS", 1000)
    # A client can send them in an event; its server must not send what makes others end the connection.
    infos = [of_procs(f"k{each}", Proc.unchecked_ranks("j", range(number))) for each in range(2)]
    found = INFOS.read(INFOS.write(infos))
    assert [(info.key, len(info.value.data.items)) for info in found] == [("k0", number), ("k1", number)]
    assert found[1].value.data.items[-1] == Proc("j", number - 1)


def test_procs_that_make_no_runs_take_no_more_bytes_than_in_a_buffer():
    scattered = of_procs("k", [Proc("j", rank * rank) for rank in range(200)])
    mixed = of_procs("k", [Proc("ij"[number % 2], 0) for number in range(200)])
    for info in (scattered, mixed):
        assert INFOS.write([info]) == DataBuffer().pack(codes.INFO, info).bytes()
        assert INFOS.read(INFOS.write([info])) == (info,)


def infos_in_runs(*runs, count=1):
    buffer = DataBuffer().pack(codes.INFO, *[of_procs(f"k{number}", ()) for number in range(count)])
    return b"\xff" + pack(0, buffer.bytes(), *runs)


@pytest.mark.parametrize(
    "data",
    [
        infos_in_runs(b"\0\0\0\0"),
        infos_in_runs(b"\0\0\0\1", PROCS.write([Proc("job", 0)])),
        infos_in_runs(b"\0", PROCS.write([Proc("job", 0)])),
        infos_in_runs(b"\0\0\0\0", PROCS.write([])),
        infos_in_runs(*[b"\0\0\0\0", PROCS.write([Proc("job", 0)])] * 2),
        infos_in_runs(
            b"\0\0\0\0",
            pack(0, b"job", RANKS.write(range(1 << 20))),
            b"\0\0\0\1",
            PROCS.write([Proc("job", 0)]),
            count=2,
        ),
        b"\xff",
        b"\xff\0\0\0",
    ],
    ids=("no procs", "no such info", "no place", "none", "twice", "more than a million", "no buffer", "cut off"),
)
def test_procs_in_runs_that_are_nothing_do_not_parse(data):
    with pytest.raises(RemoteProtocolError):
        INFOS.read(data)


def test_a_coordinator_looks_at_few_procs_until_the_last_contribution(monkeypatch):
    looks = 0

    def is_missing(self, proc, incarnation, real=Places.is_missing):
        nonlocal looks
        looks += 1
        return real(self, proc, incarnation)

    monkeypatch.setattr(Places, "is_missing", is_missing)
    counts = {}
    for ranks in (10, 100):
        session = scale.Session(8, ranks, scale.Paced(1e-5, 1e-4))
        places = session.exchanges[0].collectives.coordinator.attendance.places
        # One proc of any job that has ended makes a coordinator look at members.
        places.add(session.names[0], "over", {0: session.names[0]})
        places.depart([Proc("over", 0)])
        session.party = places.party(session.party.procs)
        assert places.read(session.party.packed) is session.party
        looks = 0
        session.collective(FENCE)
        counts[ranks] = looks
    assert 0 < counts[10] == counts[100] < 100


class Counted(Proc):
    """A proc that counts how often one is looked up or compared."""

    looks = 0

    def __hash__(self):
        Counted.looks += 1
        return tuple.__hash__(self)

    def __eq__(self, other):
        Counted.looks += 1
        return tuple.__eq__(self, other)


def test_a_member_leaves_a_large_group_and_few_others_are_looked_at():
    looks = {}
    for size in (100, 1000):
        members = [Counted("job", rank) for rank in range(size)]
        record = GroupRecord()
        record.add("g", members)
        record.add("h", members[:2])
        Counted.looks = 0
        for proc in members:
            assert record.has("g", proc)
            record.leave((proc,), "g" if proc.rank % 2 else None)
        assert [name for name, _ in record.listed()] == ["h"]
        record.leave(members)
        assert not record
        looks[size] = Counted.looks
    assert looks[1000] < 15 * looks[100], looks


class Knows(Server):
    """A server that tells of its groups, and counts how often it is asked."""

    asked = 0
    known = (("g", tuple([Proc("job", rank) for rank in range(3)])),)

    def groups(self):
        self.asked += 1
        return self.known


def crossings(names, kind=Server):
    hub = Hub(delay=lambda _from, _to: 0.001)
    found = {}
    for name in names:
        exchange = Exchange(hub.carrier(name), later=hub.clock.later, now=hub.clock.time)
        found[name] = Crossing(kind(name), exchange)
        exchange.start()
    hub.run()
    return hub, found


def test_a_server_is_asked_for_its_groups_where_procs_of_others_have_gone_and_not_for_each_of_its_own():
    hub, found = crossings("ab", Knows)
    for crossing in found.values():
        crossing.register(JobInfo("job", ()), {0: "a", 1: "a", 2: "b"})
    hub.run()
    for rank in (0, 1):
        found["a"].departed(Proc("job", rank))
        hub.run()
    servers = {name: crossing._local._server for name, crossing in found.items()}
    assert (servers["a"].asked, servers["b"].asked) == (0, 2)
    assert [event.infos[1].value.data for event in servers["b"].heard] == [Proc("job", 0), Proc("job", 1)]
    assert not servers["a"].heard


def test_a_job_that_is_over_is_listed_once_on_each_server(monkeypatch):
    listed = []
    real = Places.procs_of
    monkeypatch.setattr(Places, "procs_of", lambda self, nspace: (listed.append(nspace), real(self, nspace))[1])
    for count in (2, 8):
        names = [f"n{number}" for number in range(count)]
        hub, found = crossings(names)
        over = []
        for crossing in found.values():
            crossing._over = over.append
            crossing.register(JobInfo("job", ()), dict(enumerate(names)))
        hub.run()
        listed.clear()
        for crossing in found.values():
            crossing.deregister("job")
        hub.run()
        assert over == [tuple([Proc("job", rank) for rank in range(count)])] * count
        assert listed == ["job"] * count


def test_procs_are_not_looked_for_anew_because_another_job_has_come_or_gone():
    places = Places()
    places.add("a", "job", dict.fromkeys(range(6000), "a"))
    named = [(Proc("job", RANK_WILDCARD),), tuple([Proc("job", rank) for rank in range(5000)])]
    parties = [places.party(each) for each in named]
    places.keep(b"told", parties[0].label, parties[0])
    places.add("a", "other", {0: "a"})
    both = places.party((*named[0], Proc("other", RANK_WILDCARD)))
    for _ in range(2):
        assert all(places.party(each) is party for each, party in zip(named, parties, strict=True))
        assert all(map(places.stands, parties)) and list(places.plain) == [b"told"]
        assert places.remove("a", "other") in ((Proc("other", 0),), None)
    assert not places.stands(both)
    places.add("b", "job", {6000: "b"})
    assert not places.plain and not any(map(places.stands, parties))
    assert len(places.party(named[0]).procs) == 6001 and places.party(named[0]).names == ("a", "b")
    assert places.remove("c", "job") is None


def test_the_wildcard_of_a_job_whose_procs_are_not_known_yet_stands_for_them_later():
    places = Places()
    places.add("a", "job", {0: "a"})
    places.add("a", "late", {})
    named = (Proc("job", RANK_WILDCARD), Proc("late", RANK_WILDCARD))
    assert places.party(named).procs == (Proc("job", 0),)
    places.add("a", "late", {0: "a"})
    assert places.party(named).procs == (Proc("job", 0), Proc("late", 0))


def test_what_is_remembered_of_how_procs_were_named_has_a_bound(monkeypatch):
    monkeypatch.setattr(places_module, "MAX_NAMED", 100)
    places = Places()
    places.add("a", "job", dict.fromkeys(range(200), "a"))
    for size in (*range(1, 60), 101, 5):
        assert len(places.party([Proc("job", rank) for rank in range(size)]).procs) == size
        assert sum(map(len, places._named)) <= 100
    assert (*[Proc("job", rank) for rank in range(5)],) in places._named


def test_a_decision_for_thousands_is_compressed_and_read_when_it_is_looked_at():
    parts = tuple([(f"n{number:05}", number % 7) for number in range(4000)])
    outcome = Outcome(infos=(Info("pmix.x", Value(3, "x" * 5000)),), parts=parts)
    data = OUTCOME.write(outcome)
    assert len(data) < 30_000
    read = OUTCOME.read(data)
    assert len(read.parts) == 4000 and read.parts._keys is None
    assert read == outcome
    with pytest.raises(RemoteProtocolError):
        OUTCOME.read(data[:-10] + bytes(10))


def test_what_is_compressed_is_no_longer_than_a_message(monkeypatch):
    from pypmix.host.exchange import codec

    data = orders.DESCRIBE.write((job(1000, dealt=True), 1, False, None, True))
    assert data[0] == 1 and len(data) < DEFLATE_BYTES
    monkeypatch.setattr(codec, "MAX_MESSAGE", 1000)
    with pytest.raises(RemoteProtocolError):
        orders.DESCRIBE.read(data)
    with pytest.raises(RemoteProtocolError):
        orders.DESCRIBE.read(pack(1, b"not compressed"))
