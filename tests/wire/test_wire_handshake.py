"""The handshake is read the same however it arrives; half of one, garbage and excess are told apart."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib import strategies
from pypmix.standard.errors import LocalProtocolError, RemoteProtocolError
from pypmix.standard.types import Info, Value
from pypmix.wire import handshake
from pypmix.wire.handshake import (
    Hello,
    HelloReader,
    ReplyReader,
    encode_hello,
    encode_reply,
    native_credential,
    parse_native_credential,
)

pytestmark = pytest.mark.timeout(60)

NAMED = {0, 4, 5, 7, 8, 9, 10}
some_text = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)
u32 = st.integers(0, 2**32 - 1)


@st.composite
def hellos(draw: Any) -> Hello:
    flag = draw(st.integers(0, 10))
    told, named = flag != 0, flag in NAMED
    return Hello(
        psec=draw(some_text),
        credential=draw(st.binary(max_size=60)),
        flag=flag,
        uid=draw(u32) if told else None,
        gid=draw(u32) if told else None,
        nspace=draw(strategies.nspaces) if named else None,
        rank=draw(u32) if named else None,
        version=draw(st.sampled_from(["4.2.2rc2", "5.0.11", "7.0.0a1", "20.0"])),
        bfrops=draw(some_text),
        buffer_type=draw(st.sampled_from([1, 2])),
        gds=draw(some_text),
        infos=tuple(draw(st.lists(strategies.infos(0), max_size=2))),
    )


CLIENT = Hello("native", native_credential(7, 8), 0, None, None, "job", 3, "4.2.2", "v41", 1, "hash")


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(hellos(), st.binary(max_size=20), st.integers(0, 500))
def test_pieces_do_not_matter(hello: Hello, tail: bytes, cut: int) -> None:
    stream = encode_hello(hello) + tail
    cut %= len(stream)
    for pieces in ([stream], [stream[:cut], stream[cut:]]):
        reader = HelloReader()
        found = reader.feed(pieces.pop(0))
        if found is None:
            found = reader.feed(pieces.pop(0))
        assert found == hello
        # Who has the hello reads what comes later by itself.
        assert reader.rest + b"".join(pieces) == tail
    reader = HelloReader()
    body = stream[: len(stream) - len(tail)]
    found = [reader.feed(body[i : i + 1]) for i in range(len(body))]
    assert found[-1] == hello
    assert set(found[:-1]) == {None}


def test_a_client_as_natives_write_it() -> None:
    body = b"native\0" + struct.pack("!I", 8) + struct.pack("=II", 7, 8) + b"\0" + b"job\0" + struct.pack("!I", 3)
    body += b"4.2.2\0" + b"v41\0" + b"\1" + b"hash\0"
    assert encode_hello(CLIENT) == struct.pack("=iIII", -1, 0xFFFFFFFF, len(body), 0) + body
    spare = struct.pack("=iIII", -1, 0xFFFFFFFF, len(body) + 1, 0) + body + b"\0"
    assert HelloReader().feed(spare) == CLIENT


def test_a_client_of_2_0_ends_after_its_version() -> None:
    old = CLIENT.replace(version="2.0.3")
    data = encode_hello(old)
    assert data.endswith(b"2.0.3\0")
    found = HelloReader().feed(data)
    assert found == old.replace(bfrops="v20", gds="ds12,hash")


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack("=iIII", -1, 0xFFFFFFFF, 2**31, 0),
        struct.pack("=iIII", -1, 0xFFFFFFFF, 131073, 0),
        struct.pack("=iIII", 0, 0xFFFFFFFF, 10, 0),
        struct.pack("=iIII", -1, 101, 10, 0),
        struct.pack("=iIII", -1, 0xFFFFFFFF, 0, 0),
        struct.pack("=iIII", -1, 0xFFFFFFFF, 6, 0) + b"native",
        struct.pack("=iIII", -1, 0xFFFFFFFF, 11, 0) + b"native\0\xff\xff\xff\xff",
        struct.pack("=iIII", -1, 0xFFFFFFFF, 12, 0) + b"native\0\0\0\0\0\x0b",
        struct.pack("=iIII", -1, 0xFFFFFFFF, 300, 0) + b"x" * 299 + b"\0",
        struct.pack("!iIII", -1, 0xFFFFFFFF, 20, 0),
    ],
)
def test_garbage_is_refused_and_stays_refused(stream: bytes) -> None:
    for pieces in ([stream], [stream[i : i + 1] for i in range(len(stream))]):
        reader = HelloReader()
        with pytest.raises(RemoteProtocolError):
            for piece in pieces:
                assert reader.feed(piece) is None
        with pytest.raises(RemoteProtocolError):
            reader.feed(encode_hello(CLIENT))


def test_half_a_handshake_is_nothing_yet() -> None:
    data = encode_hello(CLIENT)
    reader = HelloReader()
    assert reader.feed(data[:15]) is None
    assert reader.feed(data[15:-1]) is None
    assert reader.feed(b"") is None
    assert reader.feed(data[-1:]) == CLIENT


@pytest.mark.parametrize("field", ["flag", "buffer"])
def test_unknown_kinds_are_refused(field: str) -> None:
    data = bytearray(encode_hello(CLIENT))
    where = 16 + len(b"native\0") + 4 + 8 if field == "flag" else len(data) - len(b"\1hash\0")
    data[where] = 11
    with pytest.raises(RemoteProtocolError, match="unknown"):
        HelloReader().feed(bytes(data))


def test_broken_infos_are_refused() -> None:
    hello = CLIENT.replace(infos=(Info("pmix.ppid", Value(5, 77)),))
    data = encode_hello(hello)
    assert HelloReader().feed(data) == hello
    for cut in range(1, 10):
        size = len(data) - 16 - cut
        piece = struct.pack("=iIII", -1, 0xFFFFFFFF, size, 0) + data[16:-cut]
        with pytest.raises(RemoteProtocolError):
            HelloReader().feed(piece)


def test_wrong_hellos_are_the_callers_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="not a kind of process"):
        encode_hello(CLIENT.replace(flag=11))
    with pytest.raises(TypeError, match="needs a uid"):
        encode_hello(CLIENT.replace(flag=4))
    with pytest.raises(TypeError, match="an nspace must be a str"):
        encode_hello(CLIENT.replace(nspace=None))
    with pytest.raises(ValueError, match="longer than 255"):
        encode_hello(CLIENT.replace(nspace="x" * 256))
    with pytest.raises(OverflowError, match="a rank"):
        encode_hello(CLIENT.replace(rank=-1))
    with pytest.raises(ValueError, match="NUL"):
        encode_hello(CLIENT.replace(version="4\0"))
    with pytest.raises(ValueError, match="buffer type"):
        encode_hello(CLIENT.replace(buffer_type=3))
    with pytest.raises(LocalProtocolError, match="longer than servers accept"):
        encode_hello(CLIENT.replace(credential=b"x" * handshake.MAX_HELLO))


@pytest.mark.parametrize(
    ("stream", "found", "rest"),
    [
        (b"\0\0\0\0\0\0\0\5more", (0, 5), b"more"),
        (struct.pack("!i", -46), (-46, 0), b""),
        (struct.pack("!i", -14) + b"x", (-14, 0), b"x"),
    ],
)
def test_replies(stream: bytes, found: tuple[int, int], rest: bytes) -> None:
    reader = ReplyReader()
    assert reader.feed(stream) == found
    assert reader.rest == rest
    reader = ReplyReader()
    size = len(stream) - len(rest)
    pieces = [reader.feed(stream[i : i + 1]) for i in range(size)]
    assert pieces == [None] * (size - 1) + [found]
    assert encode_reply(found[0], found[1] if found[0] == 0 else None) == stream[:size]


def test_native_credentials() -> None:
    assert parse_native_credential(native_credential(1000, 2**32 - 1)) == (1000, 2**32 - 1)
    for wrong in (b"", b"1234567", b"123456789"):
        with pytest.raises(RemoteProtocolError, match="8 bytes"):
            parse_native_credential(wrong)
