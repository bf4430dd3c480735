"""Proves that the client's store answers gets by the Standard's rules: job info, fetches and puts, level by level."""

from __future__ import annotations

import struct
import time
import tracemalloc
import zlib

import pytest

from lib.fake_server import NSPACE, job
from pypmix.engine.python.datastore import APP_KEYS, LEVEL_OF, NODE_KEYS, SESSION_KEYS, DataStore, GetDirectives
from pypmix.standard import attrs, codes, keys
from pypmix.standard.attr import Attr
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.types import RANK_INVALID, RANK_UNDEF, RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.standard.values import from_python, uint32
from pypmix.wire.codec import Packer, encode_kval, kvals
from pypmix.wire.jobinfo import encode_jobinfo

ME = Proc(NSPACE, 0)
ALL = Proc(NSPACE, RANK_WILDCARD)
LOCAL, REMOTE, GLOBAL, INTERNAL = 1, 2, 3, 4


def rank(number: int) -> Proc:
    return Proc(NSPACE, number)


@pytest.fixture(params=["packed", "by rank", "record"])
def store(request: pytest.FixtureRequest) -> DataStore:
    made = DataStore(ME, "n0", (5, 0, 11))
    if request.param == "record":
        made.add_job(job())
    else:
        data = encode_jobinfo(job(), 1, (5, 0, 11))
        procs: dict[int, bytes] | None = {} if request.param == "by rank" else None
        values = kvals(data, len(NSPACE) + 3, 1, procs=procs)
        assert any(key == "pmix.pblob" for key, _ in values) is (procs is None)
        made.add_job_values(NSPACE, values, 1, (5, 0, 11), procs)
    return made


def found(store: DataStore, proc: Proc, key: str, *directives: Info) -> object:
    value = store.find(proc, key, GetDirectives(directives))
    return None if value is None else value.data


def test_levels_are_of_keys_of_the_vocabulary() -> None:
    every = [attr for name in attrs.__all__ if isinstance(attr := getattr(attrs, name), Attr)]
    spellings = {attr.key for attr in every} | {other for attr in every for _, other in attr.other}
    assert spellings >= NODE_KEYS | APP_KEYS | SESSION_KEYS
    assert len(LEVEL_OF) == len(NODE_KEYS) + len(APP_KEYS) + len(SESSION_KEYS)


def test_job_values_stand_under_wildcard_only(store: DataStore) -> None:
    assert found(store, ALL, "pmix.job.size") == 4
    assert found(store, ME, "pmix.job.size") is None
    assert found(store, rank(2), "pmix.job.size") is None
    assert found(store, Proc(NSPACE, RANK_UNDEF), "pmix.job.size") == 4
    assert found(store, ME, "pmix.job.size", attrs.JOB_INFO(True)) == 4
    assert found(store, Proc("", RANK_WILDCARD), "pmix.job.size") == 4


def test_proc_values(store: DataStore) -> None:
    assert [found(store, rank(number), "pmix.nodeid") for number in range(5)] == [0, 0, 0, 1, None]
    assert store.lookup(rank(3), "pmix.hname") == from_python("n1")
    assert found(store, Proc(NSPACE, RANK_INVALID), "pmix.rank") == 0


def test_node_values_default_to_the_own_node_and_follow_a_rank(store: DataStore) -> None:
    for proc in (ALL, ME, rank(1), Proc(NSPACE, RANK_UNDEF)):
        assert found(store, proc, "pmix.lpeers") == "0,1,2"
        assert found(store, proc, "pmix.hname") == "n0"
    assert found(store, rank(3), "pmix.lpeers") == "3"
    assert found(store, rank(3), "pmix.local.size") == 1
    assert found(store, ALL, "pmix.local.size") == 3


def test_node_values_of_a_named_node(store: DataStore) -> None:
    node = attrs.NODE_INFO(True)
    assert found(store, ALL, "pmix.lpeers", node, attrs.NODEID(1)) == "3"
    assert found(store, ALL, "pmix.lpeers", node, attrs.HOSTNAME("n1")) == "3"
    assert found(store, ALL, "pmix.hname", node, attrs.NODEID(1)) == "n1"
    assert found(store, ALL, "pmix.nodeid", node, attrs.HOSTNAME("n1")) == 1
    assert found(store, ALL, "pmix.lpeers", node, attrs.NODEID(9)) is None
    assert found(store, ALL, "pmix.lpeers", node, attrs.HOSTNAME("n9")) is None
    assert found(store, ALL, "pmix.job.size", node) is None
    assert found(store, ALL, "pmix.lpeers", attrs.NODE_INFO(False)) == "0,1,2"


def test_nodes_are_known_by_their_aliases() -> None:
    store = DataStore(ME, "login.n0", (5, 0, 11))
    node = (
        Info("pmix.hname", from_python("n0")),
        Info("pmix.alias", from_python("x,login.n0")),
        Info("pmix.node.size", uint32(9)),
    )
    store.add(ALL, [("pmix.node.arr", Value(codes.DATA_ARRAY, DataArray(codes.INFO, node)))])
    assert found(store, ALL, "pmix.node.size") == 9


def test_values_of_the_own_node_app_and_session_may_come_among_those_of_the_job() -> None:
    store = DataStore(ME, "n0", (4, 2, 2))
    store.add(ALL, [("pmix.local.size", uint32(2)), ("pmix.app.size", uint32(3)), ("pmix.univ.size", uint32(4))])
    for proc in (ALL, ME):
        assert found(store, proc, "pmix.local.size") == 2
        assert found(store, proc, "pmix.app.size") == 3
        assert found(store, proc, "pmix.univ.size") == 4


def test_a_node_without_values_has_the_number_by_which_it_is_asked_for_and_no_other(store: DataStore) -> None:
    assert found(store, ALL, "pmix.nodeid", attrs.NODE_INFO(True), attrs.NODEID(7)) == 7
    assert store.find(ALL, "pmix.nodeid", GetDirectives((attrs.NODE_INFO(True), attrs.HOSTNAME("n7")))) is None
    assert found(store, ALL, "pmix.hname", attrs.NODE_INFO(True), attrs.HOSTNAME("n7")) == "n7"
    assert store.find(ALL, "pmix.hname", GetDirectives((attrs.NODE_INFO(True), attrs.NODEID(7)))) is None


def test_application_values(store: DataStore) -> None:
    for proc in (ALL, ME, rank(3), Proc(NSPACE, RANK_UNDEF)):
        assert found(store, proc, "pmix.app.size") == 4
    app = attrs.APP_INFO(True)
    assert found(store, ALL, "pmix.app.size", app, attrs.APPNUM(0)) == 4
    assert found(store, ALL, "pmix.app.size", app, attrs.APPNUM(1)) is None
    assert found(store, ALL, "pmix.appnum", app) == 0
    assert found(store, ALL, "pmix.job.size", app) is None


def test_session_values(store: DataStore) -> None:
    session = (
        Info("pmix.session.id", uint32(5)),
        Info("pmix.univ.size", uint32(64)),
        Info("pmix.clid", from_python("c")),
    )
    assert found(store, ALL, "pmix.univ.size") == 4
    store.add(ALL, [("pmix.ssn.arr", Value(codes.DATA_ARRAY, DataArray(codes.INFO, session)))])
    assert found(store, ME, "pmix.univ.size") == 64
    assert found(store, ALL, "pmix.clid", attrs.SESSION_INFO(True), attrs.SESSION_ID(5)) == "c"
    assert found(store, ALL, "pmix.clid", attrs.SESSION_INFO(True), attrs.SESSION_ID(6)) is None


def test_own_puts_are_seen_by_scope() -> None:
    store = DataStore(ME, "n0", (5, 0, 11))
    for key, scope in (("l", LOCAL), ("r", REMOTE), ("g", GLOBAL)):
        store.put(key, uint32(scope), scope, key.encode())
    store.put("i", uint32(INTERNAL), INTERNAL, b"")
    assert [found(store, ME, key) for key in "lrgi"] == [1, 2, 3, 4]
    assert [found(store, ME, key, attrs.DATA_SCOPE(LOCAL)) for key in "lrgi"] == [1, None, 3, None]
    assert [found(store, ME, key, attrs.DATA_SCOPE(REMOTE)) for key in "lrgi"] == [None, 2, 3, None]
    assert [found(store, ME, key, attrs.DATA_SCOPE(GLOBAL)) for key in "lrgi"] == [1, 2, 3, 4]
    assert store.outside_scope("l", REMOTE) == "LOCAL"
    assert store.outside_scope("i", LOCAL) == "INTERNAL"
    assert store.outside_scope("nothing", LOCAL) == ""


def test_a_commit_delivers_what_was_put_before_it_and_not_what_came_after() -> None:
    store = DataStore(ME, "n0", (5, 0, 11))
    store.put("a", uint32(1), GLOBAL, b"a1")
    store.put("b", uint32(1), LOCAL, b"b1")
    store.put("i", uint32(1), INTERNAL, b"")
    blocks = store.unsent()
    assert blocks == [(LOCAL, {"a": b"a1", "b": b"b1"}), (REMOTE, {"a": b"a1"})]
    store.put("a", uint32(2), GLOBAL, b"a2")
    assert store.unsent() != blocks
    store.delivered(blocks)
    store.delivered(blocks)
    assert store.unsent() == [(LOCAL, {"a": b"a2"}), (REMOTE, {"a": b"a2"})]


def test_what_the_server_tells_of_me_never_replaces_my_newer_put() -> None:
    store = DataStore(ME, "n0", (5, 0, 11))
    store.put("a", uint32(2), GLOBAL, b"a2")
    store.add(ME, [("a", uint32(1)), ("b", uint32(1))])
    store.add(Proc(NSPACE, RANK_UNDEF), [("c", uint32(3))])
    assert [found(store, ME, key) for key in "abc"] == [2, 1, 3]


def test_rank_undef_finds_whoever_has_the_key(store: DataStore) -> None:
    store.add(rank(2), [("unique", uint32(7))])
    store.add(Proc("other", 0), [("foreign", uint32(8))])
    assert found(store, Proc(NSPACE, RANK_UNDEF), "unique") == 7
    assert found(store, Proc(NSPACE, RANK_UNDEF), "foreign") is None


def test_forgetting_a_peer_keeps_its_job_info(store: DataStore) -> None:
    store.add(rank(1), [("a", uint32(1))])
    store.put("mine", uint32(1), GLOBAL, b"x")
    store.forget(rank(1))
    store.forget(ME)
    store.forget(ALL)
    assert found(store, rank(1), "a") is None
    assert found(store, rank(1), "pmix.nodeid") == 0
    assert found(store, ME, "mine") == 1
    assert found(store, ALL, "pmix.job.size") == 4


def test_qualified_values_need_their_qualifiers() -> None:
    store = DataStore(ME, "n0", (5, 0, 11))
    qualifier = Info("pmix.grp.ctxid", uint32(3), 8)
    array = DataArray(codes.INFO, (Info("cid", uint32(42)), qualifier))
    store.add(rank(1), [("pmix.qual.val", Value(codes.DATA_ARRAY, array))])
    assert found(store, rank(1), "cid") is None
    assert found(store, rank(1), "cid", qualifier) == 42
    assert found(store, rank(1), "cid", Info("pmix.grp.ctxid", uint32(4), 8)) is None


def test_proc_data_of_a_reply_is_filed_under_its_rank() -> None:
    store = DataStore(ME, "n0", (5, 0, 11))
    infos = (Info("pmix.rank", Value(codes.PROC_RANK, 3)), Info("pmix.lrank", Value(codes.UINT16, 1)))
    store.add(Proc("other", RANK_WILDCARD), [("pmix.pdata", Value(codes.DATA_ARRAY, DataArray(codes.INFO, infos)))])
    assert found(store, Proc("other", 3), "pmix.lrank") == 1


def test_a_damaged_description_of_a_proc_is_told_when_somebody_asks_for_it() -> None:
    store = DataStore(ME, "n0", (5, 0, 11))
    broken = Value(codes.BYTE_OBJECT, b"\x02\x05" + b"\x02\x0aabc")
    store.add_job_values(NSPACE, [("pmix.pblob", broken), ("pmix.job.size", uint32(8))], 1, (5, 0, 11))
    assert found(store, ALL, "pmix.job.size") == 8
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            store.lookup(rank(5), "pmix.lrank")
    with pytest.raises(RemoteProtocolError, match="pblob"):
        store.add_job_values(NSPACE, [("pmix.pblob", uint32(1))], 1, (5, 0, 11))


@pytest.mark.parametrize("kind", [1, 2])
def test_what_is_said_twice_of_a_proc_or_is_damaged_is_read_as_a_value(kind: int) -> None:
    def blob(data: bytes) -> bytes:
        return encode_kval(kind, "pmix.pblob", Value(codes.BYTE_OBJECT, data))

    def said(number: int, key: str) -> bytes:
        return Packer(kind).pack(codes.PROC_RANK, number).bytes() + encode_kval(kind, key, uint32(number))

    blobs = [blob(said(number, "pmix.lrank")) for number in (0, 7, 300, 7)]
    data = b"".join(blobs)
    procs: dict[int, bytes] = {}
    values = kvals(data + blob(said(300, "pmix.nrank")), 0, kind, procs=procs)
    assert [*procs] == [0, 7, 300]
    assert [key for key, _ in values] == ["pmix.pblob"] * 2
    store = DataStore(ME, "n0", (5, 0, 11))
    store.add_job_values(NSPACE, values, kind, (5, 0, 11), procs)
    assert [found(store, rank(300), key) for key in ("pmix.lrank", "pmix.nrank")] == [300, 300]
    assert found(store, rank(7), "pmix.lrank") == 7
    ends = {len(b"".join(blobs[:count])) for count in range(len(blobs))}
    for end in set(range(1, len(data))) - ends:
        with pytest.raises(RemoteProtocolError):
            kvals(data[:end], 0, kind, procs={})
    (empty,) = kvals(blob(b""), 0, kind, procs={})
    with pytest.raises(RemoteProtocolError):
        store.add_job_values(NSPACE, [empty], kind, (5, 0, 11))


def time_of_nodes(count: int) -> float:
    store = DataStore(ME, "n0", (5, 0, 11))
    begin = time.process_time()
    for number in range(count):
        infos = (attrs.NODEID(number), attrs.HOSTNAME(f"n{number}"), attrs.LOCAL_SIZE(number))
        store.add(ALL, [("pmix.node.arr", Value(codes.DATA_ARRAY, DataArray(codes.INFO, infos)))])
    for number in range(0, count, 7):
        assert found(store, ALL, "pmix.local.size", attrs.NODEID(number)) == number
        assert found(store, ALL, "pmix.local.size", attrs.HOSTNAME(f"n{number}")) == number
    return time.process_time() - begin


def test_many_nodes_take_no_more_time_each_than_few() -> None:
    few, many = min(time_of_nodes(200) for _ in range(3)), min(time_of_nodes(4000) for _ in range(3))
    # Twenty times as long; to look through all nodes for each of them takes hundreds of times as long.
    assert many < 80 * few


def test_the_list_of_older_servers_becomes_nodes() -> None:
    blob = Packer().pack(codes.SIZE, 1).bytes() + encode_kval(1, "n0", from_python("0,1"))
    store = DataStore(ME, "n0", (4, 2, 2))
    store.add_job_values(NSPACE, [("pmix.mblob", Value(codes.BYTE_OBJECT, blob))], 1, (4, 2, 2))
    assert found(store, ALL, "pmix.lpeers") == "0,1"


@pytest.mark.parametrize(
    ("value", "truth"),
    [
        (Value(codes.UNDEF), True),
        (from_python(True), True),
        (from_python(False), False),
        (from_python("false"), False),
        (from_python("1"), True),
        (uint32(0), False),
    ],
)
def test_flags_are_read_as_natives_read_them(value: Value, truth: bool) -> None:
    assert GetDirectives((Info("pmix.optional", value),)).optional is truth


def test_the_release_as_a_number(store: DataStore) -> None:
    assert found(store, ALL, attrs.VERSION_NUMERIC.key) == 0x05000B


def compressed(content: bytes) -> Value:
    return Value(codes.COMPRESSED_STRING, struct.pack("=I", len(content)) + zlib.compress(content))


def test_compressed_values_are_inflated_when_they_are_read_and_not_before() -> None:
    store = DataStore(Proc("job", 0), "n0", (5, 0, 0))
    peer = Proc("job", 1)
    bomb = bytes(60 << 20)
    tracemalloc.start()
    try:
        store.add(peer, [("text", compressed(b"some text\0")), *[(f"k{n}", compressed(bomb)) for n in range(4)]])
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        assert (
            store.lookup(peer, "text") == store.find(peer, "text", GetDirectives()) == Value(codes.STRING, "some text")
        )
        assert tracemalloc.get_traced_memory()[1] - before < 1 << 20
    finally:
        tracemalloc.stop()


def test_deletions_go_before_the_values_of_the_same_commit() -> None:
    store = DataStore(ME, "n0", (7, 0, 0))
    store.put("k", uint32(1), GLOBAL, b"one")
    store.put("near", uint32(1), LOCAL, b"near")
    store.delivered(store.unsent())
    store.delete("k", 7, b"gone")
    assert store.lookup(ME, "k") is None
    assert store.unsent() == [(5, {"k": b"gone"}), (6, {"k": b"gone"})]
    store.put("k", uint32(2), GLOBAL, b"two")
    assert store.unsent() == [(5, {"k": b"gone"}), (6, {"k": b"gone"}), (LOCAL, {"k": b"two"}), (REMOTE, {"k": b"two"})]
    store.delete("k", 5, b"gone")
    assert store.lookup(ME, "k") == uint32(2)  # other nodes still have it
    assert store.unsent() == [(5, {"k": b"gone"}), (6, {"k": b"gone"}), (REMOTE, {"k": b"two"})]
    store.put("own", uint32(3), INTERNAL, b"")
    store.delete("own", 8, b"")
    assert store.lookup(ME, "own") is None
    assert store.lookup(ME, "near") == uint32(1)


def test_a_collecting_fence_renews_what_was_fetched() -> None:
    store = DataStore(ME, "n0", (7, 0, 0))
    peer, other = Proc(ME.nspace, ME.rank + 1), Proc("elsewhere", 0)
    old, job = Value(codes.STRING, "old"), Value(codes.UINT32, 2)
    store.add(peer, [(keys.APPNUM, job)])
    for proc in (peer, other):
        store.fetched(proc, [("key", old), ("pmix.rank", job)])
    store.fetched(ME, [("key", old)])
    store.renew((peer,))
    assert store.lookup(peer, "key") is None
    assert store.lookup(peer, "pmix.rank") == store.lookup(peer, keys.APPNUM) == job
    assert store.lookup(ME, "key") == store.lookup(other, "key") == old
    store.fetched(peer, [("key", old)])
    store.renew(())
    assert store.lookup(peer, "key") is None
    assert store.lookup(other, "key") == old
    store.renew((Proc("elsewhere", RANK_WILDCARD),))
    assert store.lookup(other, "key") is None
    for proc in (peer, other):
        store.fetched(proc, [("key", old)])
    # The name of a group, of which the store does not know the members.
    store.renew((Proc("acme.team", RANK_WILDCARD),))
    assert store.lookup(peer, "key") is store.lookup(other, "key") is None


@pytest.mark.parametrize(
    "key", [keys.NODE_INFO_ARRAY, keys.APP_INFO_ARRAY, keys.SESSION_INFO_ARRAY, keys.PROC_INFO_ARRAY]
)
@pytest.mark.parametrize(
    "value",
    [
        Value(codes.DATA_ARRAY, DataArray(codes.STRING, ("x", "y"))),
        Value(codes.DATA_ARRAY, DataArray(codes.PROC, (Proc("a", 1),))),
        Value(codes.DATA_ARRAY, DataArray(codes.INFO, ())),
        Value(codes.STRING, "x"),
        Value(codes.UNDEF),
    ],
    ids=["strings", "procs", "nothing", "a string", "undefined"],
)
def test_an_array_of_something_else_than_infos_is_an_empty_one(store: DataStore, key: str, value: Value) -> None:
    """A server may send anything under these keys; the values beside it are taken in all the same."""
    store.add(rank(1), [("before", uint32(1)), (key, value), ("after", uint32(2))])
    assert store.lookup(rank(1), "before") == uint32(1)
    assert store.lookup(rank(1), "after") == uint32(2)
    assert store.lookup(rank(1), key) is None
