"""The description of a job of many ranks is short, told once to each server, and shared in memory."""

from __future__ import annotations

import sys

import pytest
from bench import jobinfo, scale
from hypothesis import given
from hypothesis import strategies as st

from pypmix.data import DataBuffer
from pypmix.host import orders
from pypmix.host.exchange.codec import INFOS, PLACES, PROCS, RANKS, pack
from pypmix.host.exchange.kinds import FENCE, OUTCOME, Outcome
from pypmix.host.exchange.limits import DEFLATE_BYTES, MAX_MESH
from pypmix.host.exchange.places import Places
from pypmix.host.job import Application, Job, Node
from pypmix.standard import attrs, codes, keys
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.types import RANK_UNDEF, RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.jobinfo import encode_jobinfo
from unit.test_exchange_announcing import Session

pytestmark = pytest.mark.timeout(60)


def job(ranks, nodes=100, *, dealt):
    def here(number):
        per = ranks // nodes
        return tuple(range(number, ranks, nodes) if dealt else range(number * per, (number + 1) * per))

    placed = tuple([Node(f"node{number:04}", here(number), number) for number in range(nodes)])
    return Job("job-1@1", (Application(("./app",), ranks),), placed)


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


def test_registering_a_job_takes_as_many_messages_as_pairs_of_servers_and_all_are_alike():
    """Those between more than `MAX_MESH` servers are answered, since they are passed on."""
    laws = {}
    for count in (5, 10, MAX_MESH, MAX_MESH + 1, 80):
        session = Session(count, ranks=10)
        session.register(*session.names)
        session.hub.run()
        pairs = count * (count - 1)
        passed = count > MAX_MESH
        assert sum(session.hub.messages.values()) == (2 * pairs if passed else pairs)
        assert len(set(session.hub.messages.values())) == 1
        laws.setdefault(passed, set()).add(sum(session.hub.bytes.values()) / pairs)
    assert len(laws[False]) == 1 and max(laws[False]) < 100
    assert max(laws[True]) < 200


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
        places = session.exchanges[0].collectives.coordinator.places
        # One proc of any job that has ended makes a coordinator look at members.
        places.add(session.names[0], "over", b"d" * 16, {0: session.names[0]})
        places.depart([Proc("over", 0)])
        session.party = places.party(session.party.procs)
        assert places.read(session.party.packed) is session.party
        looks = 0
        session.collective(FENCE)
        counts[ranks] = looks
    assert 0 < counts[10] == counts[100] < 100


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
