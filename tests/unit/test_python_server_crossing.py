"""Proves what servers of one job do together through their hosts: fences, values, groups and connections."""

from __future__ import annotations

import pytest

from lib.server_cluster import Cluster
from lib.server_world import GID, LOCAL, REMOTE, UID, text
from pypmix.engine.groups import talk
from pypmix.engine.python import modex, modexrequests
from pypmix.engine.python.modex import DEL_REMOTE
from pypmix.engine.times import HOST_GRACE, UNKNOWN_SECONDS
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import NotFound, NotSupported, OperationTimeout, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops.hosting import DirectModex, FenceUpcall
from pypmix.standard.types import RANK_UNDEF, RANK_WILDCARD, KeyValue, Proc, Value
from pypmix.wire.additions import decode_late, greeting
from pypmix.wire.codec import Packer, Unpacker, one_of
from pypmix.wire.encode import BYTES, key_bytes
from pypmix.wire.frames import TAG_DATA_DELETE
from pypmix.wire.messages import Command, encode_commit
from pypmix.wire.modex import decode_modex, encode_modex

ALL = Proc("job", RANK_WILDCARD)
COLLECT = attrs.COLLECT_DATA(True)
PYPMIX = {"infos": (greeting("1"),)}


@pytest.fixture
def cluster():
    return Cluster((0, 1), (2, 3))


def held(*layout, **more):
    return Cluster(*layout, hold=True, **more)


# Who is whose


def test_a_fence_of_one_server_alone_reaches_no_host(cluster):
    zero, one, *_ = cluster.everyone()
    tags = [client.fence(Proc("job", 0), Proc("job", 1)) for client in (zero, one)]
    assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    assert not cluster.nodes[0].asked(FenceUpcall)


def test_procs_of_other_servers_are_not_expected(cluster):
    for node in cluster.nodes:
        theirs = 2 if node.number == 0 else 0
        with pytest.raises(PMIxError) as caught:
            node.server.register_client(Proc("job", theirs), UID, GID)
        assert caught.value.code == statuses.ERR_BAD_PARAM


@pytest.mark.parametrize("local", [(4,), (-1, 0)])
def test_local_ranks_are_ranks_of_the_job(cluster, local):
    server = cluster.nodes[0].server
    with pytest.raises(ValueError, match="no rank"):
        server.register_nspace(JobInfo("other", (attrs.JOB_SIZE(4),)), local)
    server.register_nspace(JobInfo("other", (attrs.JOB_SIZE(4),)), (3,))


# Fence


def test_a_fence_of_all_ends_when_all_servers_agree():
    cluster = held((0, 1), (2, 3))
    clients = cluster.everyone()
    tags = [client.fence(infos=(attrs.TIMEOUT(9),) if client is clients[1] else ()) for client in clients[:3]]
    assert len(cluster.nodes[0].asked(FenceUpcall)) == 1
    assert not cluster.nodes[1].asked(FenceUpcall)
    tags.append(clients[3].fence())
    assert [client.status(tag) for client, tag in zip(clients, tags, strict=True)] == [None] * 4
    assert [pending.label for pending in cluster.nodes[0].server.pending()] == ["4 procs of job, with the host"]
    cluster.release()
    assert [client.status(tag) for client, tag in zip(clients, tags, strict=True)] == [statuses.SUCCESS] * 4
    (op,) = cluster.nodes[0].asked(FenceUpcall)
    assert op == FenceUpcall((ALL,), (attrs.TIMEOUT(9),), b"")
    assert not any(node.server.pending() for node in cluster.nodes)


def test_a_collecting_fence_brings_what_is_for_others(cluster):
    zero, one, two, three = cluster.everyone()
    zero.commit(("a", text("all")))
    zero.commit(("b", text("far")), scope=REMOTE)
    zero.commit(("c", text("near")), scope=LOCAL)
    tags = [zero.fence(infos=(COLLECT,)), *[client.fence() for client in (one, two, three)]]
    assert zero.status(tags[0]) == statuses.SUCCESS
    (op,) = cluster.nodes[0].asked(FenceUpcall)
    assert op.directives == (COLLECT,)
    assert [proc for proc, _ in decode_modex(op.data)] == [Proc("job", 0)]
    assert two.value(two.get(0, "a"), 0, "a") == text("all")
    assert two.value(two.get(0, "b"), 0, "b") == text("far")
    assert two.status(two.get(0, "c", attrs.IMMEDIATE(True))) == statuses.ERR_NOT_FOUND
    assert one.status(one.get(0, "b")) == statuses.ERR_NOT_FOUND
    assert one.value(one.get(0, "c"), 0, "c") == text("near")
    assert two.status(two.get(0, "b", attrs.DATA_SCOPE(LOCAL))) == statuses.ERR_NOT_FOUND
    assert not cluster.nodes[1].asked(DirectModex)


def test_a_later_fence_brings_what_is_newer_and_takes_what_is_gone(cluster):
    clients = cluster.everyone()
    zero, two = clients[0], clients[2]
    for value in ("old", "new"):
        zero.commit(("a", text(value)))
        for client in clients:
            client.fence(infos=(COLLECT,))
        assert two.value(two.get(0, "a"), 0, "a") == text(value)
    seven = cluster.client(1, version="7.0.0")
    assert seven.commit(("a", text("x")), scope=7)
    zero.commit(("a", text("")), scope=7)
    for client in clients:
        client.fence(infos=(COLLECT,))
    assert two.status(two.get(0, "a", attrs.IMMEDIATE(True))) == statuses.ERR_NOT_FOUND


def test_the_first_get_after_a_fence_brings_the_others_along(cluster):
    clients = cluster.everyone()
    for rank, client in enumerate(clients):
        client.commit(("k", text(str(rank))))
    for client in clients:
        client.fence(infos=(COLLECT,))
    two = clients[2]
    tag = two.get(0, "k")
    assert {proc.rank: dict(kvals)["k"].data for proc, kvals in two.objects(tag)} == {0: "0", 1: "1", 3: "3"}


def test_types_that_nobody_knows_cross_servers(cluster):
    zero, two = cluster.client(0), cluster.client(2, buffer_type=1)
    raw = one_of(codes.KVAL, 1) + key_bytes("odd") + BYTES[110] + b"whatever that is"
    zero.send(encode_commit(1, [(REMOTE, raw)]))
    tag = two.get(0, "odd")
    two.read()
    assert raw in two.replies[tag]


def test_buffer_types_and_releases_may_differ_between_servers(cluster):
    zero = cluster.client(0, buffer_type=2, version="4.2.9")
    two = cluster.client(2, buffer_type=1, version="7.0.0")
    array = Value(codes.DATA_ARRAY, attrs.GROUP_MEMBERSHIP(()).value.data)
    zero.commit(("a", text("x")), ("b", array))
    assert two.value(two.get(0, "a"), 0, "a") == text("x")
    assert two.value(two.get(0, "b"), 0, "b") == array


@pytest.mark.parametrize("names", [(ALL,), tuple(Proc("job", rank) for rank in (3, 1, 0, 2)), (ALL, Proc("job", 1))])
def test_the_host_gets_procs_as_named_in_one_order(names):
    cluster = held((0,), (1, 2, 3))
    cluster.client(0).fence(*names)
    assert cluster.nodes[0].asked(FenceUpcall)[0].procs == tuple(sorted(set(names)))


class Patient(Cluster):
    """Keeps the answers of upcalls for the test to give."""

    def upcall(self, node, op, answer):
        if isinstance(op, FenceUpcall | DirectModex):
            self.held.append((op, answer))
        else:
            super().upcall(node, op, answer)


def test_an_error_of_the_host_is_everybodys():
    cluster = Patient((0, 1), (2,))
    zero, one = cluster.client(0), cluster.client(1)
    tags = zero.fence(), one.fence()
    cluster.held[0][1](None, NotSupported("no"))
    assert (zero.status(tags[0]), one.status(tags[1])) == (statuses.ERR_NOT_SUPPORTED, statuses.ERR_NOT_SUPPORTED)


def test_fences_of_the_same_procs_come_one_after_the_other():
    cluster = Patient((0, 1), (2,))
    zero, one = cluster.client(0), cluster.client(1)
    first = [client.fence(infos=(COLLECT,)) for client in (zero, one)]
    zero.commit(("a", text("x")))
    second = [client.fence(infos=(COLLECT,)) for client in (zero, one)]
    assert len(cluster.held) == 1
    assert decode_modex(cluster.held[0][0].data) == []
    cluster.held[0][1](None, NotSupported("no"))
    assert [zero.status(first[0]), one.status(first[1])] == [statuses.ERR_NOT_SUPPORTED] * 2
    assert [zero.status(second[0]), one.status(second[1])] == [None] * 2
    assert [proc.rank for proc, _ in decode_modex(cluster.held[1][0].data)] == [0]
    cluster.held[1][1](b"", None)
    assert [zero.status(second[0]), one.status(second[1])] == [statuses.SUCCESS] * 2


@pytest.mark.parametrize("own", [False, True])
def test_the_own_data_may_be_in_the_answer_or_not(own):
    cluster = Patient((0, 1), (2,))
    zero, one = cluster.client(0), cluster.client(1)
    zero.commit(("a", text("x")))
    tags = [client.fence(infos=(COLLECT,)) for client in (zero, one)]
    ((op, answer),) = cluster.held
    theirs = encode_modex([(Proc("job", 2), [(2, encode(("z", text("far"))), 1, (5, 0, 0))])])
    stale = encode_modex([(Proc("job", 0), [(2, encode(("a", text("old"))), 1, (5, 0, 0))])])
    answer((op.data + stale if own else b"") + theirs, None)
    assert zero.status(tags[0]) == statuses.SUCCESS
    assert one.value(one.get(0, "a"), 0, "a") == text("x")
    assert one.value(one.get(2, "z"), 2, "z") == text("far")


def encode(*values):
    return b"".join(Packer().pack(codes.KVAL, KeyValue(*pair)).bytes() for pair in values)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense", statuses.ERR_UNPACK_FAILURE),
        (7, statuses.ERR_UNPACK_FAILURE),
        (b"pypmix\0\2\0", statuses.ERR_UNPACK_FAILURE),
    ],
)
def test_what_is_no_data_fails_the_fence_and_is_logged(data, status):
    cluster = Patient((0,), (1,))
    zero = cluster.client(0)
    tag = zero.fence(infos=(COLLECT,))
    cluster.held[0][1](data, None)
    assert zero.status(tag) == status
    assert len(cluster.nodes[0].logged) == 1
    tag = zero.fence()
    cluster.held[1][1](None, None)
    assert zero.status(tag) == statuses.SUCCESS


# Fence: who is lost, and who is late


def test_the_others_learn_that_a_proc_is_lost_before_the_fence(cluster):
    clients = cluster.everyone()
    tags = [client.fence() for client in clients[1:]]
    clients[0].die()
    assert [client.status(tag) for client, tag in zip(clients[1:], tags, strict=True)] == [
        statuses.ERR_PARTIAL_SUCCESS
    ] * 3
    (op,) = cluster.nodes[0].asked(FenceUpcall)
    assert op.directives == (
        attrs.LOCAL_COLLECTIVE_STATUS(statuses.ERR_PARTIAL_SUCCESS),
        talk.procs(talk.ABSENT, (Proc("job", 0),)),
    )


def test_a_host_that_does_not_mind_cannot_hide_a_loss():
    cluster = Patient((0, 1), (2,))
    zero, one = cluster.client(0), cluster.client(1)
    tag = zero.fence()
    one.die()
    cluster.held[0][1](b"", None)
    assert zero.status(tag) == statuses.ERR_PARTIAL_SUCCESS


def test_who_is_lost_while_the_host_is_at_it_changes_nothing():
    cluster = Patient((0, 1), (2,))
    zero, one = cluster.client(0), cluster.client(1)
    tags = zero.fence(), one.fence()
    one.die()
    cluster.held[0][1](b"", None)
    assert zero.status(tags[0]) == statuses.SUCCESS
    assert not cluster.nodes[0].server.pending()


def test_nothing_is_asked_for_nobody():
    cluster = Patient((0, 1), (2,))
    zero, one = cluster.client(0), cluster.client(1)
    zero.fence()
    zero.die()
    one.die()
    assert not cluster.held
    assert not cluster.nodes[0].server.pending()


def test_an_answer_to_nobody_is_dropped():
    cluster = Patient((0,), (1,))
    zero = cluster.client(0)
    zero.fence(infos=(COLLECT,))
    zero.die()
    assert not cluster.nodes[0].server.pending()
    cluster.held[0][1](b"", None)
    again = cluster.client(0)
    tag = again.fence()
    cluster.held[1][1](b"", None)
    assert again.status(tag) == statuses.SUCCESS


def test_the_timeout_covers_the_host_and_a_late_answer_is_dropped():
    cluster = Patient((0, 1), (2,))
    zero, one = cluster.client(0, **PYPMIX), cluster.client(1)
    tags = zero.fence(infos=(attrs.TIMEOUT(5),)), one.fence()
    cluster.advance(4.9)
    assert zero.status(tags[0]) is None
    cluster.advance(0.1 + HOST_GRACE)
    assert (zero.status(tags[0]), one.status(tags[1])) == (statuses.ERR_TIMEOUT, statuses.ERR_TIMEOUT)
    assert decode_late(zero.replies[tags[0]], 1) is None
    cluster.held[0][1](encode_modex([(Proc("job", 2), [(2, encode(("z", text("late"))), 1, (5, 0, 0))])]), None)
    assert zero.status(zero.get(2, "z", attrs.IMMEDIATE(True))) == statuses.ERR_NOT_FOUND
    tags = zero.fence(), one.fence()
    cluster.held[1][1](b"", None)
    assert (zero.status(tags[0]), one.status(tags[1])) == (statuses.SUCCESS, statuses.SUCCESS)


def test_a_timeout_names_who_is_missing_here_or_whom_the_host_names():
    cluster = Patient((0, 1), (2,))
    zero = cluster.client(0, **PYPMIX)
    tag = zero.fence(infos=(attrs.TIMEOUT(5),))
    cluster.advance(6)
    zero.read()
    assert decode_late(zero.replies[tag], 1) == (Proc("job", 1),)
    # The procs of other servers may wait for it: the host is told.
    ((told, _),) = cluster.held
    assert told == FenceUpcall(told.procs, (attrs.LOCAL_COLLECTIVE_STATUS(statuses.ERR_TIMEOUT),), b"")
    one = cluster.client(1)
    tag = zero.fence()
    one.fence()
    cluster.held[1][1](None, OperationTimeout("too late", missing=(Proc("job", 2),)))
    zero.read()
    assert zero.status(tag) == statuses.ERR_TIMEOUT
    assert decode_late(zero.replies[tag], 1) == (Proc("job", 2),)
    tag = zero.fence()
    one.fence()
    # Whom an error is about need not be those who are missing.
    cluster.held[2][1](None, OperationTimeout("too late", procs=(Proc("job", RANK_WILDCARD),)))
    zero.read()
    assert zero.status(tag) == statuses.ERR_TIMEOUT
    assert decode_late(zero.replies[tag], 1) is None


# Gets


def test_a_value_of_another_server_is_fetched_once_for_all_who_wait():
    cluster = Patient((0, 1), (2,))
    zero, one = cluster.client(0, **PYPMIX), cluster.client(1)
    tags = zero.get(2, "a", attrs.TIMEOUT(9)), one.get(2, "a")
    ((op, answer),) = cluster.held
    assert op == DirectModex(Proc("job", 2), (attrs.TIMEOUT(9), attrs.REQUIRED_KEY("a")))
    answer(encode_modex([(Proc("job", 2), [(3, encode(("a", text("x"))), 1, (5, 0, 0))])]), None)
    assert zero.value(tags[0], 2, "a") == text("x")
    assert one.value(tags[1], 2, "a") == text("x")
    assert zero.value(zero.get(2, "a"), 2, "a") == text("x")
    assert len(cluster.held) == 1
    # What is not there is asked for, with the key.
    zero.get(2, "b")
    assert [op.directives for op, _ in cluster.held[1:]] == [(attrs.REQUIRED_KEY("b"),)]


def test_immediate_asks_nobody(cluster):
    cluster.client(2).commit(("a", text("x")))
    zero = cluster.client(0)
    assert zero.status(zero.get(2, "a", attrs.IMMEDIATE(True))) == statuses.ERR_NOT_FOUND
    assert not cluster.nodes[0].asked(DirectModex)
    assert zero.value(zero.get(2, "a"), 2, "a") == text("x")
    assert zero.value(zero.get(2, "a", attrs.IMMEDIATE(True)), 2, "a") == text("x")


def test_reserved_keys_are_not_fetched(cluster):
    zero = cluster.client(0)
    assert zero.status(zero.get(2, "pmix.hname")) == statuses.ERR_NOT_FOUND
    assert zero.status(zero.get(RANK_WILDCARD, "pmix.hname")) == statuses.ERR_NOT_FOUND
    assert not cluster.nodes[0].asked(DirectModex)


def test_a_fetch_waits_for_the_commit(cluster):
    zero, two = cluster.client(0), cluster.client(2)
    tag, later, never = zero.get(2, "a"), zero.get(2, "b", attrs.TIMEOUT(5)), zero.get(2, "never")
    cluster.advance(modex.GET_SECONDS - 0.1)
    assert zero.status(tag) is None
    two.commit(("a", text("x")))
    assert zero.value(tag, 2, "a") == text("x")
    cluster.advance(1)
    assert zero.status(later) is None
    # It is the same as for a proc of the reader's own node.
    assert zero.status(never) == statuses.ERR_TIMEOUT
    two.commit(("b", text("y")))
    assert zero.value(later, 2, "b") == text("y")


def test_a_fetch_may_time_out(cluster):
    zero, two = cluster.client(0), cluster.client(2)
    tag = zero.get(2, "a", attrs.TIMEOUT(3))
    cluster.advance(3)
    assert zero.status(tag) == statuses.ERR_TIMEOUT
    two.commit(("a", text("x")))
    assert zero.value(zero.get(2, "a"), 2, "a") == text("x")


@pytest.mark.parametrize("end", ["die", "finalize", "deregister"])
def test_a_fetch_from_who_goes_without_a_commit_ends(cluster, end):
    zero, two = cluster.client(0), cluster.client(2)
    tag = zero.get(2, "a")
    if end == "die":
        two.die()
    elif end == "finalize":
        two.ask(Command.FINALIZE)
    else:
        cluster.nodes[1].server.deregister_nspace("job")
    assert zero.status(tag) == statuses.ERR_NOT_FOUND
    assert not any(node.server.pending() for node in cluster.nodes)


def test_who_has_gone_leaves_what_it_has_committed(cluster):
    zero, two = cluster.client(0), cluster.client(2)
    two.commit(("a", text("x")))
    two.ask(Command.FINALIZE)
    two.die()
    assert zero.value(zero.get(2, "a"), 2, "a") == text("x")


def test_errors_of_a_fetch_reach_the_readers():
    cluster = Patient((0,), (1,))
    zero = cluster.client(0)
    for error, status in ((NotSupported("no"), statuses.ERR_NOT_SUPPORTED), (RuntimeError("bug"), statuses.ERROR)):
        tag = zero.get(1, "a")
        cluster.held.pop()[1](None, error)
        assert zero.status(tag) == status
    for data in (b"", None, encode_modex([])):
        tag = zero.get(1, "a")
        cluster.held.pop()[1](data, None)
        assert zero.status(tag) == statuses.ERR_NOT_FOUND
    tag = zero.get(1, "a")
    cluster.held.pop()[1](b"junk", None)
    assert zero.status(tag) == statuses.ERR_UNPACK_FAILURE
    assert not cluster.nodes[0].server.pending()


def test_each_key_is_fetched_once():
    cluster = Patient((0, 2), (1,))
    zero, two = cluster.client(0), cluster.client(2)
    tags = [zero.get(1, "a"), two.get(1, "a"), zero.get(1, "b")]
    keys = [[info.value.data for info in op.directives] for op, _ in cluster.held]
    assert keys == [["a"], ["b"]]
    value = [(3, encode(("b", text("x"))), 1, (5, 0, 0))]
    cluster.held[1][1](encode_modex([(Proc("job", 1), value)]), None)
    assert zero.value(tags[2], 1, "b") == text("x")
    assert tags[0] not in zero.replies
    cluster.held[0][1](None, OperationTimeout("late"))
    assert [zero.status(tags[0]), two.status(tags[1])] == [statuses.ERR_TIMEOUT] * 2


def test_who_may_wait_for_longer_has_it_asked_again():
    cluster = Patient((0, 2), (1,))
    zero, two = cluster.client(0), cluster.client(2)
    short = zero.get(1, "a", attrs.TIMEOUT(1))
    long, usual = two.get(1, "a", attrs.TIMEOUT(9)), two.get(1, "a")
    assert len(cluster.held) == 1
    cluster.advance(0.9)
    cluster.held[0][1](None, OperationTimeout("late"))
    assert zero.status(short) == statuses.ERR_TIMEOUT
    assert long not in two.replies and usual not in two.replies
    assert len(cluster.held) == 2
    cluster.held[1][1](None, OperationTimeout("late"))
    assert two.status(long) == statuses.ERR_TIMEOUT
    assert usual not in two.replies
    cluster.held[2][1](None, OperationTimeout("late"))
    assert two.status(usual) == statuses.ERR_TIMEOUT
    assert not cluster.nodes[0].server.pending()
    assert not cluster.nodes[0].server.modex._fetching


def test_what_comes_late_does_not_replace_what_is_newer():
    cluster = Patient((0,), (1,))
    zero = cluster.client(0, **PYPMIX)
    waiting = zero.get(1, "late")
    tag = zero.fence(infos=(COLLECT,))
    (_, fetched), (_, fenced) = cluster.held

    def blob(stamp, *pairs):
        values = [(3, encode(pair), 1, (5, 0, 0)) for pair in pairs]
        return encode_modex([(Proc("job", 1), values)], {Proc("job", 1): stamp})

    fenced(blob(5, ("a", text("new"))), None)
    assert zero.status(tag) == statuses.SUCCESS
    fetched(blob(4, ("a", text("old"))), None)
    assert zero.status(waiting) == statuses.ERR_NOT_FOUND
    assert zero.value(zero.get(1, "a", attrs.IMMEDIATE(True)), 1, "a") == text("new")


def test_a_fetch_brings_nothing_of_others():
    cluster = Patient((0,), (1, 2))
    zero = cluster.client(0)
    tag = zero.get(1, "a")
    value = [(3, encode(("a", text("x"))), 1, (5, 0, 0))]
    cluster.held.pop()[1](encode_modex([(Proc("job", 2), value), (Proc("job", 1), value)]), None)
    assert zero.value(tag, 1, "a") == text("x")
    assert zero.status(zero.get(2, "a", attrs.IMMEDIATE(True))) == statuses.ERR_NOT_FOUND


def test_a_refresh_asks_anew(cluster):
    zero, two = cluster.client(0), cluster.client(2)
    two.commit(("a", text("old")))
    assert zero.value(zero.get(2, "a"), 2, "a") == text("old")
    two.commit(("a", text("new")))
    assert zero.value(zero.get(2, "a"), 2, "a") == text("old")
    assert zero.value(zero.get(2, "a", attrs.GET_REFRESH_CACHE(True)), 2, "a") == text("new")
    two.commit(("a", text("newest")))
    request = Packer().pack(codes.COMMAND, 33).pack(codes.STRING, "job").pack(codes.PROC_RANK, 2).bytes()
    tag = zero.send(request)
    assert zero.status(tag) == statuses.SUCCESS
    assert b"newest" in zero.replies[tag]


def test_a_get_from_anybody_sees_what_has_come(cluster):
    clients = cluster.everyone()
    clients[3].commit(("rare", text("x")))
    for client in clients:
        client.fence(infos=(COLLECT,))
    assert clients[0].value(clients[0].get(RANK_UNDEF, "rare"), 3, "rare") == text("x")


def test_a_job_that_goes_takes_its_readers_fetches_along():
    cluster = Patient((0,), (1,))
    zero = cluster.client(0)
    cluster.add_job("other", (0,), (1,))
    tag = zero.get(1, "a", nspace="other")
    cluster.nodes[0].server.deregister_nspace("other")
    assert zero.status(tag) == statuses.ERR_NOT_FOUND
    cluster.held[0][1](encode_modex([]), None)
    assert not cluster.nodes[0].server.pending()


# What other servers ask


def request(cluster, proc, number=1, key="", timeout=0.0):
    found = []
    ask = cluster.nodes[number].server.modex.sharing.request
    ask(proc, lambda data, error: found.append((data, error)), key, timeout)
    return found


def test_a_request_is_answered_at_once_or_after_the_commit(cluster):
    two = cluster.client(2)
    waiting = request(cluster, Proc("job", 2))
    assert not waiting
    two.commit(("a", text("x")), scope=LOCAL)
    ((data, error),) = waiting
    assert error is None
    assert decode_modex(data) == [(Proc("job", 2), [])]
    two.commit(("b", text("y")))
    ((data, error),) = request(cluster, Proc("job", 2))
    ((_, values),) = decode_modex(data)
    assert [key for key, _ in values] == ["b"]


def test_a_request_for_a_key_waits_through_other_commits(cluster):
    two = cluster.client(2)
    two.commit(("a", text("x")))
    waiting, never = (request(cluster, Proc("job", 2), key=key) for key in ("late", "never"))
    hidden = request(cluster, Proc("job", 2), key="hidden")
    reserved = request(cluster, Proc("job", 2), key="pmix.hname")
    two.commit(("b", text("y")))
    assert not waiting and not hidden
    assert reserved[0][1] is None
    two.commit(("late", text("z")))
    ((_, values),) = decode_modex(waiting[0][0])
    assert [key for key, _ in values] == ["a", "b", "late"]
    # What is not for other servers does not come by waiting.
    two.commit(("hidden", text("h")), scope=LOCAL)
    assert "hidden" not in [key for key, _ in decode_modex(hidden[0][0])[0][1]]
    assert not never
    two.die()
    assert [key for key, _ in decode_modex(never[0][0])[0][1]] == ["a", "b", "late"]
    assert decode_modex(request(cluster, Proc("job", 2), key="never")[0][0])


@pytest.mark.parametrize("proc", [Proc("job", 2), Proc("unknown", 0)])
def test_a_request_ends_in_time(cluster, proc):
    found, other = request(cluster, proc, timeout=3), request(cluster, proc, timeout=100)
    cluster.advance(2.9)
    assert not found
    cluster.advance(0.2)
    ((_, error),) = found
    assert isinstance(error, OperationTimeout)
    assert error.missing == {proc}
    assert not other
    cluster.advance(100)
    assert other
    assert not cluster.nodes[1].server.pending()


@pytest.mark.parametrize("proc", [Proc("job", 0), Proc("job", 9), Proc("job", RANK_WILDCARD)])
def test_a_request_for_who_is_not_here_is_refused(cluster, proc):
    ((_, error),) = request(cluster, proc)
    assert isinstance(error, NotFound)
    assert error.procs == (proc,)


def test_a_request_may_come_before_its_job(cluster):
    waiting = request(cluster, Proc("new", 0))
    given_up = request(cluster, Proc("never", 0))
    cluster.nodes[1].server.register_nspace(JobInfo("new", (attrs.JOB_SIZE(2),)), (0,))
    cluster.nodes[1].server.register_client(Proc("new", 0), UID, GID)
    cluster.advance(UNKNOWN_SECONDS)
    assert not waiting
    assert isinstance(given_up[0][1], NotFound)
    cluster.client(0, "new").commit(("a", text("x")))
    assert waiting[0][1] is None


def test_requests_are_bounded_and_end_with_the_server(cluster, monkeypatch):
    monkeypatch.setattr(modexrequests, "MAX_REQUESTS", 2)
    waiting = [request(cluster, Proc("job", 2)) for _ in range(3)]
    assert [len(found) for found in waiting] == [0, 0, 1]
    cluster.nodes[1].server.close()
    assert all(isinstance(found[0][1], PMIxError) for found in waiting)


def test_who_has_read_a_key_on_another_node_is_told_that_it_is_deleted():
    cluster = Cluster((0, 1), (2, 3))
    clients = cluster.everyone(version="7.0.0")
    zero, _, two, three = clients
    old = cluster.client(3, version="6.1.0")
    zero.commit(("a", text("x")), ("b", text("y")))
    for client in clients:
        client.fence(infos=(COLLECT,))
    assert two.value(two.get(0, "a"), 0, "a") == text("x")
    zero.commit(("a", Value(codes.UNDEF)), scope=7)
    for client in clients:
        client.fence(infos=(COLLECT,))
    for client in (two, three):
        client.read()
        ((tag, payload),) = client.pushed
        unpacker = Unpacker(payload)
        assert tag == TAG_DATA_DELETE
        assert [unpacker.one(kind) for kind in (codes.PROC, codes.SCOPE, codes.STRING)] == [zero.proc, DEL_REMOTE, "a"]
    old.read()
    assert not old.pushed
