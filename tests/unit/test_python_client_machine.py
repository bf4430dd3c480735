"""Proves that the client's state machine ends each operation exactly once, whatever servers and signals do."""

from __future__ import annotations

import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.client_wire import ALL, ME, PEER, Wire
from lib.fake_server import NSPACE, RELEASE, get_reply, job
from pypmix.engine.python import client as client_module
from pypmix.engine.python.client import CLOSE_PAUSE, FINALIZE_WAIT, PART_WAIT, TIMEOUT_GRACE, Call, Client, ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import (
    LocalProtocolError,
    LostConnection,
    NotFound,
    NotInitialized,
    OperationTimeout,
    OutOfResources,
    PartialSuccess,
    PMIxError,
    RemoteProtocolError,
    Unreachable,
)
from pypmix.standard.ops import Abort, Commit, Connect, Disconnect, Fence, Finalize, Get, Op, Put
from pypmix.standard.ops.core import DEL_GLOBAL, DEL_INTERNAL
from pypmix.standard.types import RANK_UNDEF, RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.standard.values import from_python, uint32
from pypmix.wire.codec import encode_kval
from pypmix.wire.frames import FrameReader, frame
from pypmix.wire.handshake import Hello, HelloReader, encode_reply, native_credential
from pypmix.wire.jobinfo import encode_jobinfo
from pypmix.wire.messages import (
    Command,
    decode_commit,
    decode_fence,
    decode_get,
    encode_get_object,
    encode_status,
    peek_command,
    reply_layout,
    request_layout,
)


def answer(payload: bytes, status: int = 0) -> bytes:
    """Return an honest reply to a request."""
    if peek_command(payload, 1) != Command.GETNB or status:
        return encode_status(1, status)
    nspace, rank, _, _ = decode_get(payload, 1)
    return get_reply(Proc(nspace, rank), encode_kval(1, "a", uint32(1)), encode_kval(1, "b", uint32(2)))


# What goes over the wire


def test_a_commit_sends_local_before_remote_and_nothing_private() -> None:
    wire = Wire()
    for key, scope in (("l", 1), ("r", 2), ("g", 3), ("i", 4), ("pmix.x", 3)):
        assert wire.start(Put(key, uint32(scope), scope)).outcome == (None, None)
    call = wire.start(Commit())
    tag, payload = wire.request()
    (one, local), (two, remote) = decode_commit(payload, 1)
    assert (one, two) == (1, 2)
    assert [key for key, _ in _pairs(local)] == ["l", "g"]
    assert [key for key, _ in _pairs(remote)] == ["r", "g"]
    wire.reply(tag, encode_status(1, 0))
    assert call.outcome == (None, None)
    wire.start(Commit())
    assert decode_commit(wire.request()[1], 1) == ()
    assert wire.store.lookup(ME, "pmix.x") == uint32(3)


def _pairs(data: bytes) -> list[tuple[str, object]]:
    from pypmix.wire.codec import kvals

    return list(kvals(data, 0, 1))


def test_what_a_refused_commit_carried_goes_with_the_next_one() -> None:
    wire = Wire()
    wire.start(Put("a", uint32(1)))
    call = wire.start(Commit())
    tag, first = wire.request()
    wire.reply(tag, encode_status(1, -29))
    wire.fails(call, OutOfResources)
    wire.start(Commit())
    assert wire.request()[1] == first


def test_a_fence_names_the_nspace_and_asks_for_data_once() -> None:
    wire = Wire()
    wire.start(Fence(collect=True, directives=(attrs.TIMEOUT(3),)))
    procs, infos = decode_fence(wire.request()[1], 1)
    assert procs == (ALL,)
    assert {info.key for info in infos} == {"pmix.collect", "pmix.timeout"}
    wire.start(Fence((ME, PEER), collect=True, directives=(attrs.COLLECT_DATA(True),)))
    procs, infos = decode_fence(wire.request()[1], 1)
    assert procs == (ME, PEER)
    assert [info.key for info in infos] == ["pmix.collect"]


def test_a_key_that_stayed_private_is_deleted_without_a_word_to_the_server() -> None:
    wire = Wire(release=(7, 0, 0))
    for scope in (3, 4):
        wire.start(Put("own", uint32(1), scope))
    wire.start(Commit())
    wire.reply(wire.request()[0], encode_status(1, 0))
    wire.start(Put("own", uint32(0), DEL_INTERNAL))
    wire.start(Put("pmix.own", uint32(0), DEL_GLOBAL))
    wire.start(Commit())
    assert decode_commit(wire.request()[1], 1) == ()


def test_nobody_takes_back_a_call_that_was_not_made() -> None:
    wire = Wire()
    wire.start(Fence())
    assert not wire.machine.withdraw_done(lambda result, error: None)


@pytest.mark.parametrize("collect", [False, True])
def test_a_fence_with_all_is_the_same_request_each_time(collect: bool) -> None:
    wire = Wire()
    requests = []
    for op in (Fence(collect=not collect), Fence((ME,), collect=not collect), *[Fence(collect=collect)] * 2):
        wire.start(op)
        requests.append(wire.request()[1])
    *other, first, second = requests
    procs, infos = decode_fence(first, 1)
    assert (procs, [info.key for info in infos]) == ((ALL,), ["pmix.collect"] if collect else [])
    assert first == second and first not in other


def test_an_abort_names_code_message_and_procs() -> None:
    wire = Wire()
    call = wire.start(Abort(5, "sorry", (PEER,)))
    _, payload = wire.request()
    fields = request_layout(Command.ABORT, RELEASE).decode(payload, 1, RELEASE)
    assert (fields["code"], fields["message"], fields["procs"]) == (5, "sorry", (PEER,))
    wire.feed(b"")
    assert call.outcome == (None, None), "the server may end the job before it answers"


# The rules of get that need the server


def test_a_get_asks_once_and_keeps_all_that_comes() -> None:
    wire = Wire()
    calls = [wire.start(Get(PEER, key)) for key in ("a", "b", "c")]
    tag, payload = wire.request()
    assert decode_get(payload, 1) == (NSPACE, 1, (), "a")
    wire.reply(tag, answer(payload))
    assert [call.outcome and call.outcome[0] for call in calls[:2]] == [uint32(1), uint32(2)]
    assert calls[2].outcome is None
    tag, payload = wire.request()
    assert decode_get(payload, 1)[3] == "c"
    wire.reply(tag, encode_status(1, -24))
    wire.fails(calls[2], OperationTimeout, "'c'")
    assert wire.start(Get(PEER, "b")).outcome == (uint32(2), None)
    assert not wire.sent()


def test_failed_gets_are_asked_for_each_on_its_own() -> None:
    wire = Wire()
    calls = [wire.start(Get(PEER, key)) for key in ("x", "y", "z")]
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, -24))
    assert calls[0].outcome is not None
    again = wire.sent()
    assert sorted(decode_get(payload, 1)[3] or "" for payload in again.values()) == ["y", "z"]


@pytest.mark.parametrize("proc", [PEER, ALL, Proc(NSPACE, RANK_UNDEF), Proc("other", 0)])
def test_reserved_keys_are_never_waited_for(proc: Proc) -> None:
    wire = Wire()
    call = wire.start(Get(proc, "pmix.nobody.knows"))
    tag, payload = wire.request()
    nspace, rank, infos, key = decode_get(payload, 1)
    assert (nspace, rank, key) == (*proc, "pmix.nobody.knows")
    assert [info.key for info in infos] == ["pmix.immediate"]
    wire.reply(tag, encode_status(1, -46))
    wire.fails(call, NotFound, "pmix.nobody.knows")


def test_who_forbids_to_wait_for_a_reserved_key_says_so_once() -> None:
    wire = Wire()
    wire.start(Get(PEER, "pmix.later", (attrs.IMMEDIATE(True),)))
    assert [info.key for info in decode_get(wire.request()[1], 1)[2]] == ["pmix.immediate"]


def test_servers_of_4_tell_the_values_of_other_jobs_as_a_whole() -> None:
    wire = Wire((4, 2, 2))
    call = wire.start(Get(Proc("other", 0), "pmix.job.size"))
    tag, payload = wire.request()
    assert decode_get(payload, 1)[:3] == ("other", RANK_WILDCARD, ())
    wire.reply(tag, get_reply(Proc("other", RANK_WILDCARD), encode_kval(1, "pmix.job.size", uint32(9))))
    wire.fails(call, NotFound, "Rank.WILDCARD")
    assert wire.start(Get(Proc("other", RANK_WILDCARD), "pmix.job.size")).outcome == (uint32(9), None)


def test_optional_gets_never_ask() -> None:
    wire = Wire()
    error = wire.fails(wire.start(Get(PEER, "a", (attrs.OPTIONAL(True),))), NotFound, "'a'")
    assert "OPTIONAL" in error.hint
    assert not wire.sent()
    wire.start(Get(PEER, "a", (attrs.OPTIONAL(False),)))
    assert wire.sent()


def test_a_scope_looks_past_what_is_known_of_a_peer() -> None:
    wire = Wire()
    wire.store.add(PEER, [("a", uint32(1))])
    call = wire.start(Get(PEER, "a", (attrs.DATA_SCOPE(2),)))
    tag, payload = wire.request()
    assert decode_get(payload, 1)[2] == (attrs.DATA_SCOPE(2),)
    wire.reply(tag, get_reply(PEER, encode_kval(1, "b", uint32(2))))
    wire.fails(call, NotFound, "scope REMOTE")


def test_own_values_of_another_scope_are_told_apart_from_missing_ones() -> None:
    wire = Wire()
    wire.start(Put("l", uint32(1), 1))
    error = wire.fails(wire.start(Get(ME, "l", (attrs.DATA_SCOPE(2),))), NotFound, "LOCAL")
    assert error.code == -62
    assert not wire.sent()


def test_refresh_asks_again_and_replaces() -> None:
    wire = Wire()
    wire.store.add(PEER, [("a", uint32(7)), ("old", uint32(7))])
    call = wire.start(Get(PEER, "a", (attrs.GET_REFRESH_CACHE(True),)))
    tag, payload = wire.request()
    wire.reply(tag, answer(payload))
    assert call.outcome == (uint32(1), None)
    assert wire.store.lookup(PEER, "old") is None


def test_refresh_of_a_local_peer_is_answered_with_nothing_and_asked_without_it() -> None:
    wire = Wire()
    call = wire.start(Get(PEER, "a", (attrs.GET_REFRESH_CACHE(True),)))
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, -157))
    assert call.outcome is None
    tag, payload = wire.request()
    assert decode_get(payload, 1)[2] == ()
    wire.reply(tag, answer(payload))
    assert call.outcome == (uint32(1), None)


@pytest.mark.parametrize("first", [encode_status(1, -46), encode_status(1, 0)], ids=["refused", "empty"])
def test_peers_with_a_shared_memory_store_are_asked_for_with_scope_remote(first: bytes) -> None:
    wire = Wire((4, 2, 2), shared_store=True)
    call = wire.start(Get(PEER, "a"))
    tag, _ = wire.request()
    wire.reply(tag, first)
    tag, payload = wire.request()
    assert decode_get(payload, 1)[2] == (attrs.DATA_SCOPE(2),)
    wire.reply(tag, answer(payload))
    assert call.outcome == (uint32(1), None)
    missing = wire.start(Get(PEER, "no"))
    for _ in range(2):
        tag, _ = wire.request()
        wire.reply(tag, encode_status(1, -46))
    wire.fails(missing, NotFound)


def test_a_missing_value_says_what_was_asked_and_what_happened_before() -> None:
    wire = Wire()
    call = wire.start(Get(PEER, "nokey", (attrs.IMMEDIATE(True),)))
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, -46))
    error = wire.fails(call, NotFound)
    text = str(error)
    assert "'nokey'" in text
    assert text.startswith("get of rank 1: ")
    assert "scope any" in text
    assert "without a collecting fence" in text
    assert "fence with collect=True" in error.hint
    fence = wire.start(Fence(collect=True))
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, 0))
    assert fence.outcome == (None, None)
    call = wire.start(Get(PEER, "nokey", (attrs.IMMEDIATE(True),)))
    tag, _ = wire.request()
    wire.reply(tag, get_reply(PEER))
    error = wire.fails(call, NotFound)
    assert "after a collecting fence" in str(error)
    assert "collect=True" not in error.hint


def test_a_value_of_the_job_asked_of_a_rank_is_missing_with_a_hint() -> None:
    wire = Wire()
    call = wire.start(Get(ME, "pmix.job.size"))
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, -46))
    assert "Rank.WILDCARD" in wire.fails(call, NotFound).hint


# Time


def test_a_server_that_ignores_the_timeout_is_not_waited_for() -> None:
    wire = Wire()
    fence = wire.start(Fence(directives=(attrs.TIMEOUT(2),)))
    get = wire.start(Get(PEER, "a", (attrs.TIMEOUT(3),)))
    endless = wire.start(Fence(directives=(attrs.TIMEOUT(0),)))
    wire.machine.tick(wire.now + 2)
    assert fence.outcome is None
    wire.machine.tick(wire.now + 2 + TIMEOUT_GRACE)
    wire.fails(fence, OperationTimeout, "2 s")
    assert get.outcome is None
    wire.machine.tick(wire.now + 1000)
    wire.fails(get, OperationTimeout)
    assert endless.outcome is None
    for tag, payload in wire.sent().items():
        wire.reply(tag, answer(payload))
    assert endless.outcome == (None, None)
    wire.fails(fence, OperationTimeout)
    assert wire.start(Get(PEER, "a")).outcome == (uint32(1), None), "the late reply was kept"


def test_finalize_waits_two_seconds_for_the_answer() -> None:
    wire = Wire()
    call = wire.start(Finalize())
    with pytest.raises(NotInitialized):
        wire.start(Fence())
    wire.machine.tick(wire.now + FINALIZE_WAIT - 0.1)
    assert call.outcome is None
    wire.machine.tick(wire.now + FINALIZE_WAIT)
    assert call.outcome == (None, None)
    with pytest.raises(NotInitialized):
        wire.start(Finalize())


@pytest.mark.parametrize("closes", [True, False], ids=["server closes", "server stays"])
def test_finalize_lets_the_server_see_the_end_of_the_connection(closes: bool) -> None:
    wire = Wire()
    call = wire.start(Finalize())
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, 0))
    assert not wire.machine.half_closing, "a server of libpmix may not have noted yet that this client has finalized"
    wire.machine.tick(wire.now + CLOSE_PAUSE)
    assert wire.machine.half_closing
    assert call.outcome is None
    if closes:
        wire.feed(b"")
    else:
        wire.machine.tick(wire.now + CLOSE_PAUSE + PART_WAIT)
    assert call.outcome == (None, None)
    with pytest.raises(NotInitialized):
        wire.start(Finalize())


@pytest.mark.parametrize("op", [Fence(), Connect((ME, PEER)), Disconnect((ME, PEER))])
def test_a_participant_that_the_server_has_lost_is_not_the_server(op: Op[object]) -> None:
    wire = Wire()
    call = wire.start(op)
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, statuses.ERR_LOST_CONNECTION))
    error = wire.fails(call, PartialSuccess, "a participant has lost its connection")
    assert error.code == statuses.ERR_LOST_CONNECTION
    assert wire.start(Fence()).outcome is None


def test_finalize_with_a_barrier_fences_first_and_tells_when_that_failed() -> None:
    wire = Wire()
    call = wire.start(Finalize((attrs.EMBED_BARRIER(True),)))
    tag, payload = wire.request()
    assert peek_command(payload, 1) == Command.FENCENB
    assert not wire.sent()
    wire.reply(tag, encode_status(1, -52))
    tag, payload = wire.request()
    assert peek_command(payload, 1) == Command.FINALIZE
    wire.reply(tag, encode_status(1, 0))
    wire.feed(b"")
    wire.fails(call, PartialSuccess)
    with pytest.raises(NotInitialized):
        wire.start(Commit())


# Loss and nonsense


def test_pending_operations_fail_when_the_server_goes() -> None:
    wire = Wire()
    seen: list[object] = []
    wire.machine.start(Fence(), lambda result, error: seen.append(error), wire.now)
    calls = [wire.start(op) for op in (Commit(), Get(PEER, "a"), Get(PEER, "b"), Fence(directives=(attrs.TIMEOUT(1),)))]
    wire.feed(b"")
    for call in calls:
        wire.fails(call, LostConnection)
    (error,) = seen
    assert isinstance(error, LostConnection)
    with pytest.raises(LostConnection):
        wire.start(Put("a", uint32(1)))
    assert wire.machine.deadline is None


@pytest.mark.parametrize(
    "payload",
    [b"\x02", b"\xff" * 20, encode_status(1, 0) + b"\x02\x04abc", encode_status(1, 0) + b"\x02\x02\x00"],
    ids=["cut", "garbage", "cut object", "object without a proc"],
)
def test_a_reply_that_does_not_parse_ends_the_connection(payload: bytes) -> None:
    wire = Wire()
    get, fence = wire.start(Get(PEER, "a")), wire.start(Fence())
    tag = min(wire.sent())
    wire.reply(tag, payload)
    for call in (get, fence):
        wire.fails(call, RemoteProtocolError)
    with pytest.raises(LostConnection, match="protocol"):
        wire.start(Fence())


def test_what_one_rank_has_committed_keeps_nobody_from_what_others_have() -> None:
    wire = Wire()
    bad = encode_kval(1, "bad", uint32(1)).replace(b"\x0e\1", b"\x7fwhatever")
    mine = encode_get_object(1, PEER, [encode_kval(1, "a", uint32(7))])
    theirs = encode_get_object(1, Proc(NSPACE, 2), [encode_kval(1, "b", uint32(8)), bad])
    call = wire.start(Get(PEER, "a"))
    tag, _ = wire.request()
    layout = reply_layout(Command.GETNB, RELEASE)
    wire.reply(tag, layout.encode(1, RELEASE, status=0, objects=(theirs, mine)))
    assert call.outcome == (uint32(7), None)
    # What stood before it has come too; what stood behind it is asked for.
    assert wire.start(Get(Proc(NSPACE, 2), "b")).outcome == (uint32(8), None)
    call = wire.start(Get(Proc(NSPACE, 2), "bad"))
    tag, _ = wire.request()
    wire.reply(tag, layout.encode(1, RELEASE, status=0, objects=(theirs,)))
    error = wire.fails(call, PMIxError, "'bad' cannot be read: the data type 127 is not known")
    assert error.code == statuses.ERR_UNKNOWN_DATA_TYPE
    assert str(error).startswith("get of rank 2: ")
    assert wire.start(Get(PEER, "a")).outcome == (uint32(7), None)


def test_what_a_peer_has_compressed_is_inflated_for_who_asks_for_it() -> None:
    wire = Wire()
    packed = struct.pack("=I", 5 << 20) + zlib.compress(b"x" * ((5 << 20) - 1) + b"\0")
    kvals = [encode_kval(1, "a", uint32(7)), encode_kval(1, "big", Value(codes.COMPRESSED_STRING, packed))]
    call = wire.start(Get(PEER, "a"))
    tag, _ = wire.request()
    tracemalloc.start()
    try:
        wire.reply(tag, get_reply(PEER, *kvals))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert call.outcome == (uint32(7), None)
    outcome = wire.start(Get(PEER, "big")).outcome
    assert outcome is not None
    assert len(outcome[0].data) == (5 << 20) - 1


def test_a_message_of_two_gibibytes_is_refused_by_its_header() -> None:
    wire = Wire()
    call = wire.start(Fence())
    wire.feed(b"\0\0\0\0" + b"\0\0\0\x65" + b"\x7f\xff\xff\xff" + b"\0\0\0\0")
    wire.fails(call, RemoteProtocolError)


def test_events_output_and_unknown_tags_are_passed_over() -> None:
    wire = Wire()
    call = wire.start(Fence())
    (tag,) = wire.sent()
    for other in (0, 1, 2, 3, 99, tag + 1, 0xFFFFFFFF):
        wire.reply(other, b"\xff\xff\xff")
    wire.reply(tag, encode_status(1, 0))
    assert call.outcome == (None, None)


def test_a_key_that_its_owner_has_deleted_is_forgotten() -> None:
    from pypmix.wire.codec import Packer

    wire = Wire()
    peer = Proc(NSPACE, 1)
    wire.machine.store.add(peer, [("k", uint32(1)), ("other", uint32(2))])
    told = Packer().pack(codes.PROC, peer).pack(codes.SCOPE, 7)
    wire.reply(4, told.pack(codes.STRING, "k").bytes())
    assert wire.machine.store.lookup(peer, "k") is None
    assert wire.machine.store.lookup(peer, "other") == uint32(2)
    call = wire.start(Fence())
    wire.reply(4, b"\xff\xff\xff")
    wire.fails(call, RemoteProtocolError)


def test_an_empty_reply_is_a_failure() -> None:
    wire = Wire()
    call = wire.start(Fence())
    (tag,) = wire.sent()
    wire.reply(tag, b"")
    wire.fails(call, LostConnection)
    assert wire.start(Fence()).outcome is None


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", Unreachable),
        (encode_reply(-25, None), Unreachable),
        (encode_reply(-14, None), Unreachable),
        (encode_reply(0, 1)[:5], None),
    ],
    ids=["closed", "status", "exchange", "half"],
)
def test_a_handshake_that_ends_otherwise(data: bytes, kind: type[PMIxError] | None) -> None:
    wire = Wire(opened=False)
    hello = Hello("native", native_credential(0, 0), 0, None, None, NSPACE, 0, "5.0.11", "v41", 1, "hash")
    call = wire.machine.connect(hello, wire.now + 5)
    wire.feed(data)
    if kind is None:
        assert call.outcome is None
        wire.machine.tick(wire.now + 5)
        kind = Unreachable
    wire.fails(call, kind)


def test_the_handshake_may_come_in_pieces_and_with_what_follows() -> None:
    wire = Wire(opened=False)
    hello = Hello("native", native_credential(0, 0), 0, None, None, NSPACE, 0, "5.0.11", "v41", 1, "hash")
    call = wire.machine.connect(hello, None)
    wire.written()
    for byte in encode_reply(0, 1) + frame(0, 0, b"an event"):
        wire.feed(bytes((byte,)))
    tag, _ = wire.request()
    for byte in frame(0, tag, encode_jobinfo(job(), 1, RELEASE)):
        wire.feed(bytes((byte,)))
    assert call.outcome == (None, None)


@pytest.mark.parametrize("payload", [encode_status(1, -46), b"", b"\x02\xff"], ids=["status", "empty", "garbage"])
def test_no_job_info(payload: bytes) -> None:
    wire = Wire(opened=False)
    hello = Hello("native", native_credential(0, 0), 0, None, None, NSPACE, 0, "5.0.11", "v41", 1, "hash")
    call = wire.machine.connect(hello, None)
    wire.written()
    wire.feed(encode_reply(0, 1))
    tag, _ = wire.request()
    wire.reply(tag, payload)
    assert call.outcome is not None
    assert isinstance(call.outcome[1], PMIxError)


def test_job_info_of_another_store_asks_for_a_new_connection() -> None:
    from pypmix.wire.codec import Packer

    wire = Wire(opened=False)
    hello = Hello("native", native_credential(0, 0), 0, None, None, NSPACE, 0, "5.0.11", "v41", 1, "hash")
    call = wire.machine.connect(hello, None)
    wire.written()
    wire.feed(encode_reply(0, 1))
    tag, _ = wire.request()
    shared = encode_kval(1, "PMIX_GDS_SHMEM2_SEG_BLOB", from_python(b"x"))
    wire.reply(tag, Packer().pack(codes.STRING, NSPACE).bytes() + shared)
    wire.fails(call, RemoteProtocolError, "shared memory")
    assert wire.machine.misdirected


@pytest.mark.parametrize(
    ("value", "stops"),
    [
        (from_python(True), True),
        (from_python(False), False),
        (Value(codes.PROC_RANK, 0), True),
        (Value(codes.PROC_RANK, 1), False),
        (Value(codes.PROC_RANK, RANK_WILDCARD), True),
        (Value(codes.DATA_ARRAY, DataArray(codes.PROC, (Proc(NSPACE, 1), ME))), True),
        (Value(codes.DATA_ARRAY, DataArray(codes.PROC, (Proc(NSPACE, 1),))), False),
    ],
)
def test_a_process_knows_whether_it_is_to_stop_for_a_debugger(value: Value, stops: bool) -> None:
    from pypmix.wire.codec import Packer

    wire = Wire(opened=False)
    hello = Hello("native", native_credential(0, 0), 0, None, None, NSPACE, 0, "5.0.11", "v41", 1, "hash")
    call = wire.machine.connect(hello, None)
    wire.written()
    wire.feed(encode_reply(0, 1))
    tag, _ = wire.request()
    wire.reply(tag, Packer().pack(codes.STRING, NSPACE).bytes() + encode_kval(1, "pmix.dbg.init", value))
    assert call.outcome == (None, None)
    assert wire.machine.is_to_stop() is stops


# A singleton


def test_a_singleton_has_nobody_else() -> None:
    machine = Client(ME, DataStore(ME, "n0", (7, 0, 0)), None)

    def outcome(op: Op[Any]) -> tuple[Any, BaseException | None]:
        ended = machine.start(op, None, 0.0).outcome
        assert ended is not None
        return ended

    for op in (Put("a", uint32(1)), Commit(), Fence(), Fence((ME,)), Fence((ALL,), collect=True)):
        assert outcome(op) == (None, None)
    assert outcome(Get(ME, "a")) == (uint32(1), None)
    assert isinstance(outcome(Get(ME, "b"))[1], NotFound)
    assert isinstance(outcome(Get(PEER, "b"))[1], NotFound)
    alone = outcome(Fence((PEER,)))[1]
    assert isinstance(alone, Unreachable)
    assert alone.hint == "start it with a launcher, such as `pypmix run`"
    assert isinstance(outcome(Abort(1))[1], Unreachable)
    assert outcome(Finalize((attrs.EMBED_BARRIER(True),))) == (None, None)
    with pytest.raises(NotInitialized):
        machine.start(Fence(), None, 0.0)


# Everything at once

OPS = st.sampled_from(
    [
        Put("a", uint32(1)),
        Put("own", from_python("x"), 1),
        Commit(),
        Fence(),
        Fence(collect=True),
        Fence((ME, PEER), directives=(attrs.TIMEOUT(2),)),
        Get(ME, "own"),
        Get(PEER, "a"),
        Get(PEER, "b"),
        Get(PEER, "missing"),
        Get(Proc(NSPACE, 2), "b"),
        Get(PEER, "a", (attrs.DATA_SCOPE(2),)),
        Get(PEER, "b", (attrs.GET_REFRESH_CACHE(True),)),
        Get(PEER, "missing", (attrs.TIMEOUT(1),)),
        Get(ALL, "pmix.job.size"),
        Get(ALL, "pmix.no"),
        Abort(1),
        Finalize(),
    ]
)
STEPS = st.one_of(
    st.tuples(st.just("start"), OPS),
    st.tuples(st.just("reply"), st.integers(0, 7)),
    st.tuples(st.just("again"), st.integers(0, 7)),
    st.tuples(st.just("refuse"), st.integers(0, 7)),
    st.tuples(st.just("stray"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("wait"), st.floats(0, 3)),
    st.tuples(st.just("abandon"), st.integers(0, 7)),
    st.tuples(st.just("split"), st.integers(1, 40)),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=40), st.booleans(), st.booleans())
def test_each_operation_ends_exactly_once(steps: list[tuple[str, Any]], lost: bool, shared_store: bool) -> None:
    wire = Wire(shared_store=shared_store)
    ends: list[list[object]] = []
    calls: list[Call] = []
    abandoned: set[int] = set()
    waiting: list[tuple[int, bytes]] = []
    answered: list[tuple[int, bytes]] = []
    piece = 10**9

    def feed(data: bytes) -> None:
        for start in range(0, len(data), piece):
            wire.feed(data[start : start + piece])

    for action, detail in steps:
        if action == "start":
            mine: list[object] = []
            try:
                call = wire.machine.start(
                    detail, lambda result, error, mine=mine: mine.append((result, error)), wire.now
                )  # type: ignore[misc]
            except (NotInitialized, LostConnection):
                assert wire.machine.closed is not None or any(isinstance(call.op, Finalize) for call in calls)
            else:
                ends.append(mine)
                calls.append(call)
            wire.deliver()
        elif action in ("reply", "refuse") and waiting:
            tag, payload = waiting.pop(detail % len(waiting))
            answered.append((tag, payload))
            feed(frame(0, tag, answer(payload, -46 if action == "refuse" else 0)))
        elif action == "again" and answered:
            tag, payload = answered[detail % len(answered)]
            feed(frame(0, tag, answer(payload)))
        elif action == "stray" and detail not in wire.requests:
            feed(frame(0, detail, b"\xff"))
        elif action == "wait":
            wire.now += detail
            wire.machine.tick(wire.now)
            wire.deliver()
        elif action == "abandon" and calls:
            number = detail % len(calls)
            if not ends[number]:
                abandoned.add(number)
                wire.machine.abandon(calls[number])
        elif action == "split":
            piece = detail
        waiting += wire.sent().items()
        for number, mine in enumerate(ends):
            assert len(mine) <= 1
            if number in abandoned:
                assert not mine
    if lost:
        wire.feed(b"")
    else:
        while waiting and wire.machine.closed is None:
            tag, payload = waiting.pop(0)
            wire.reply(tag, answer(payload))
            waiting += wire.sent().items()
        if wire.machine.closed is None:
            # A finalize that is under way has answered, and pauses.
            wire.machine.tick(wire.now + CLOSE_PAUSE)
        if wire.machine.half_closing:
            wire.feed(b"")
    wire.deliver()
    for number, mine in enumerate(ends):
        assert len(mine) == (0 if number in abandoned else 1), calls[number].op
    assert not wire.machine.waiting()


def raise_at(number: int) -> Callable[[FrameType, str, object], Any]:
    """Return a tracer that acts like a signal handler which raises at one step of the client's code."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != client_module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    return trace


def interrupted(number: int) -> bool:
    """Take in four replies, be interrupted at one step, resume; return whether the step was reached."""
    wire = Wire(shared_store=True)
    ends: dict[str, list[object]] = {name: [] for name in ("fence", "a", "b", "c", "commit")}
    ops: dict[str, Op[Any]] = {
        "fence": Fence(),
        "a": Get(PEER, "a"),
        "b": Get(PEER, "b"),
        "c": Get(PEER, "c"),
        "commit": Commit(),
    }
    wire.start(Put("own", uint32(1)))
    for name, op in ops.items():
        wire.machine.start(op, lambda result, error, name=name: ends[name].append((result, error)), wire.now)  # type: ignore[misc]
    requests = wire.sent()
    stream = b"".join(frame(0, tag, answer(payload)) for tag, payload in requests.items())
    wire.machine.intake.chunks.append(stream[:-3])
    reached = False
    # Python 3.12 looks at this when tracing begins.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(raise_at(number))
    try:
        wire.machine.take(wire.now)
    except KeyboardInterrupt:
        reached = True
    finally:
        sys.settrace(None)
    if reached:
        wire.machine.resume()
    wire.deliver()
    wire.feed(stream[-3:])
    for _ in range(3):
        for tag, payload in wire.sent().items():
            assert decode_get(payload, 1)[3] == "c"
            wire.reply(tag, encode_status(1, -46))
    assert ends["fence"] == ends["commit"] == [(None, None)]
    assert ends["a"] == [(uint32(1), None)]
    assert ends["b"] == [(uint32(2), None)]
    ((result, error),) = ends["c"]  # type: ignore[misc]
    assert result is None
    assert isinstance(error, NotFound)
    assert wire.store.unsent() == []
    later = wire.start(Fence())
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, 0))
    assert later.outcome == (None, None)
    return reached


def test_a_signal_handler_that_raises_while_replies_are_taken_in_loses_nothing() -> None:
    number = 0
    while interrupted(number := number + 1):
        pass
    assert number > 300


def test_an_info_array_of_a_node_in_a_get_reply_is_filed() -> None:
    wire = Wire()
    call = wire.start(Get(Proc("other", RANK_WILDCARD), "pmix.node.size"))
    tag, _ = wire.request()

    node = Value(
        codes.DATA_ARRAY,
        DataArray(codes.INFO, (Info("pmix.hname", from_python("n0")), Info("pmix.node.size", uint32(5)))),
    )
    payload = reply_layout(Command.GETNB, RELEASE).encode(
        1,
        RELEASE,
        status=0,
        objects=(encode_get_object(1, Proc("other", RANK_WILDCARD), [encode_kval(1, "pmix.node.arr", node)]),),
    )
    wire.reply(tag, payload)
    assert call.outcome == (uint32(5), None)


def test_a_message_beyond_the_servers_limit_is_the_callers_mistake() -> None:
    wire = Wire((6, 1, 0))
    for number in range(3):
        wire.start(Put(f"k{number}", from_python(b"x" * (6 << 20))))
    with pytest.raises(LocalProtocolError) as caught:
        wire.start(Commit())
    assert "commit" in caught.value.hint
    assert not wire.sent()
    fence = wire.start(Fence())
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, 0))
    assert fence.outcome == (None, None)


def test_a_server_of_ours_is_asked_for_the_job_info_with_the_hello() -> None:
    hello = Hello("native", native_credential(0, 0), 0, None, None, NSPACE, 0, "5.0.11", "v41", 1, "hash")
    for refused in (False, True):
        wire = Wire(opened=False)
        wire.machine = Client(ME, wire.store, ServerInfo("server.0", RELEASE, 1, adapts=True))
        call = wire.machine.connect(hello, None)
        reader = HelloReader()
        assert reader.feed(wire.written()) == hello
        ((tag, payload),) = FrameReader().feed(reader.rest)
        assert peek_command(payload, 1) == Command.REQ
        if refused:
            wire.feed(encode_reply(statuses.ERR_INVALID_CRED, None))
            wire.fails(call, Unreachable, "refused the handshake")
        else:
            wire.feed(encode_reply(0, 3) + frame(0, tag, encode_jobinfo(job(), 1, RELEASE)))
            assert call.outcome == (None, None)
        assert not wire.written()


def test_damaged_job_info_of_a_proc_fails_the_get_that_needs_it() -> None:
    wire = Wire()
    damaged = Value(codes.BYTE_OBJECT, b"\x02\x05" + b"\x02\x0aabc")
    wire.store.add_job_values(NSPACE, [("pmix.pblob", damaged)], 1, RELEASE)
    seen: list[object] = []
    wire.machine.start(Get(Proc(NSPACE, 5), "a"), lambda result, error: seen.append(error), wire.now)
    wire.deliver()
    (error,) = seen
    assert isinstance(error, RemoteProtocolError)
    assert error.operation == "get"
    assert wire.start(Get(ALL, "pmix.job.size")).outcome == (uint32(4), None)


def test_a_get_that_the_server_gave_up_says_how_long_it_waited() -> None:
    """In words that no other failure has."""
    for directives, words in (((attrs.TIMEOUT(3),), "within 3 s"), ((), "before the server gave up")):
        wire = Wire()
        call = wire.start(Get(PEER, "a", directives))
        tag, _ = wire.request()
        wire.reply(tag, encode_status(1, statuses.ERR_TIMEOUT))
        error = wire.fails(call, OperationTimeout, f"'a' did not come {words}")
        assert "has the proc put and committed it?" in error.hint
    wire = Wire()
    call = wire.start(Get(PEER, "a", (attrs.TIMEOUT(3),)))
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, statuses.ERR_BAD_PARAM))
    assert call.outcome is not None
    assert "the server could not answer for 'a'" in str(call.outcome[1])


def test_who_is_called_is_what_arrivals_are_waited_for() -> None:
    """By a caller outside, or by a step of the machine's own; a call that nobody is told of is asked about."""
    wire = Wire()
    wire.machine.listeners.clear()
    assert not wire.machine.waiting()
    wire.start(Fence())
    assert not wire.machine.waiting()
    for begin in (
        lambda machine, done: machine.start(Fence(), done, 100.0),
        lambda machine, done: machine.begin_inside(Fence(), done),
    ):
        wire = Wire()
        wire.machine.listeners.clear()
        ends: list[object] = []
        begin(wire.machine, lambda *end, ends=ends: ends.append(end))
        assert wire.machine.waiting()
        tag, _ = wire.request()
        wire.reply(tag, encode_status(1, 0))
        assert ends == [(None, None)]
        assert not wire.machine.waiting()


@pytest.mark.parametrize("inside", [False, True])
def test_a_call_that_has_its_outcome_when_a_signal_comes_is_told_of_it_afterwards(inside: bool) -> None:
    wire = Wire()
    ends: list[object] = []
    if inside:
        wire.machine.begin_inside(Fence(), lambda *end: ends.append(end))
    else:
        wire.machine.start(Fence(), lambda *end: ends.append(end), wire.now)
    (call,) = wire.machine._everyone()
    # An exception of a signal handler came right after the first step of `end`.
    call.outcome = None, None
    wire.machine.resume()
    wire.deliver()
    assert ends == [(None, None)]
