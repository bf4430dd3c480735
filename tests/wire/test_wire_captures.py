"""Recorded traffic of native clients and servers is decoded without a rest, and encoded again to the same bytes."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest

from lib.recorded import Session, messages, sessions
from pypmix.standard import codes
from pypmix.standard.errors import RemoteProtocolError
from pypmix.wire.codec import Packer, Unpacker, encode_kval, kvals, split_kvals
from pypmix.wire.frames import HEADER, FrameReader, frame
from pypmix.wire.handshake import ReplyReader, encode_hello, encode_reply
from pypmix.wire.jobinfo import decode_jobinfo, encode_jobinfo
from pypmix.wire.layout import Layout
from pypmix.wire.messages import (
    COMMAND_NAMES,
    EVENT,
    Command,
    decode_commit,
    decode_fence,
    decode_get,
    decode_status,
    encode_commit,
    encode_fence,
    encode_get,
    encode_get_object,
    encode_status,
    read_get_object,
)

pytestmark = pytest.mark.timeout(60)

EVERY = sessions()
SETS = [pytest.param(session, id=session.name) for session in EVERY]
ENDS_EARLY = {"JOB_CONTROL reply"}
"""Replies that natives end after the status although fields could follow: the host had nothing to say."""

IN_SHARED_MEMORY = {"prrte5011both_r0-1", "prrte5011both_r1-1", "v610_r0-1", "v610_r1-1"}


def consumed(layout: Layout, data: bytes, release: tuple[int, int, int]) -> int:
    """Return how many bytes the fields of a layout take."""
    unpacker = Unpacker(data, 1, release)
    if layout.command is not None:
        unpacker.one(codes.COMMAND)
    for field in layout.fields:
        if not unpacker.more():
            break
        field.take(unpacker)
    return unpacker.position


def test_the_sets_are_complete() -> None:
    assert len(EVERY) == 10
    seen = Counter(message.command for message in messages() if message.layout is not EVENT)
    expected = set(COMMAND_NAMES) - {
        # No set has these.
        Command.ABORT,
        Command.IOF_PULL,
        Command.IOF_PUSH,
        Command.IOF_DEREG,
        Command.GROUP_JOIN,
        Command.GROUP_INVITE,
        Command.GROUP_LEAVE,
        Command.FABRIC_REGISTER,
        Command.FABRIC_UPDATE,
        Command.COMPUTE_DEVICE_DISTANCES,
        Command.RESBLK,
        Command.SESSION_CTRL,
        Command.REQ_SYSINFO,
        Command.RESOLVE_PEERS,
        Command.RESOLVE_NODE,
        Command.GDS_FALLBACK,
    }
    assert seen.keys() == expected
    assert sum(message.layout is EVENT for message in messages()) == 5


@pytest.mark.parametrize("session", SETS)
def test_messages_both_ways(session: Session) -> None:
    for message in session.messages():
        layout, release, data = message.layout, message.release, message.data
        values = layout.decode(data, 1, release)
        assert consumed(layout, data, release) == len(data), (layout, values)
        again = layout.encode(1, release, **values)
        if layout.name in ENDS_EARLY and len(data) == 2:
            assert values["status"] == 0
            assert again.startswith(data)
            assert layout.decode(again, 1, release) == values
        else:
            assert again == data, (layout, values)


@pytest.mark.parametrize("session", SETS)
def test_frames_both_ways(session: Session) -> None:
    _, rest = session.hello()
    reply = ReplyReader()
    reply.feed(session.down)
    for stream in (rest, reply.rest):
        pindex = HEADER.unpack_from(stream)[0]
        again = b"".join(frame(pindex, tag, data) for tag, data in FrameReader().feed(stream))
        assert again == stream


@pytest.mark.parametrize("session", SETS)
def test_handshake_both_ways(session: Session) -> None:
    hello, rest = session.hello()
    sent = session.up[: len(session.up) - len(rest)]
    again = encode_hello(hello)
    # Clients of 4.2 count a NUL too many.
    spare = b"\0" if hello.version.startswith("4.2") else b""
    assert again[16:] + spare == sent[16:]
    assert len(again) - 16 + len(spare) == int.from_bytes(sent[8:12], sys.byteorder) == len(sent) - 16
    assert hello.flag == 0
    assert hello.psec == "native"
    assert bool(hello.infos) == session.name.startswith("v610")
    reply = ReplyReader()
    found = reply.feed(session.down)
    assert found is not None
    assert encode_reply(*found) + reply.rest == session.down


@pytest.mark.parametrize("session", SETS)
def test_job_info_both_ways(session: Session) -> None:
    (data,) = (m.data for m in session.messages() if m.command == Command.REQ and m.layout.reply)
    if session.name in IN_SHARED_MEMORY:
        with pytest.raises(RemoteProtocolError, match="shared memory"):
            decode_jobinfo(data, 1, session.server)
        return
    job = decode_jobinfo(data, 1, session.server)
    hello, _ = session.hello()
    assert job.nspace == hello.nspace
    assert job.nodes
    if "ds21" not in session.name:
        assert [rank for rank, _ in job.procs] == [0, 1]
        assert {info.key: info.value.data for info in job.job}["pmix.job.size"] == 2
    assert encode_jobinfo(job, 1, session.server) == data


@pytest.mark.parametrize("session", SETS)
def test_every_nested_value_both_ways(session: Session) -> None:
    """Values inside opaque parts: the buffers of commits, the objects of gets, the blobs of job info."""
    release = session.server

    def again(data: bytes) -> None:
        pieces = split_kvals(data, 1, release)
        found = kvals(data, 0, 1, release)
        assert b"".join(piece for _, piece in pieces) == data
        for (key, piece), (name, value) in zip(pieces, found, strict=True):
            assert key == name
            assert encode_kval(1, key, value, release) == piece
            if key == "pmix.pblob":
                unpacker = Unpacker(value.data, 1, release)
                rank = Packer().pack(codes.PROC_RANK, unpacker.one(codes.PROC_RANK)).bytes()
                assert value.data.startswith(rank)
                again(unpacker.rest())

    seen = 0
    for message in session.messages():
        values: dict[str, Any] = message.layout.decode(message.data, 1, message.release)
        again(values.get("kvals", b""))
        for _, block in values.get("commits", ()):
            again(block)
            seen += 1
        if message.command == Command.GETNB:
            for blob in values.get("objects", ()):
                proc, items, _ = read_get_object(blob, 1, release)
                pieces = [encode_kval(1, key, value, release) for key, value in items]
                assert encode_get_object(1, proc, pieces) == blob
                seen += 1
    assert seen >= 2


@pytest.mark.parametrize("session", SETS)
def test_fast_ways_read_and_write_what_the_layouts_do(session: Session) -> None:
    for message in session.messages():
        values = message.layout.decode(message.data, 1, message.release)
        data, release = message.data, message.release
        if message.layout.reply:
            if "status" in values:
                assert decode_status(data, 1) == values["status"]
                assert data.startswith(encode_status(1, values["status"]))
        elif message.command == Command.FENCENB:
            assert decode_fence(data, 1, release) == (values["procs"], values["infos"])
            assert encode_fence(1, values["procs"], values["infos"], release) == data
        elif message.command == Command.GETNB:
            assert decode_get(data, 1, release) == tuple(values.values())
            assert encode_get(1, **values, reader=release) == data
        elif message.command == Command.COMMIT:
            assert decode_commit(data, 1) == values["commits"]
            assert encode_commit(1, values["commits"]) == data
