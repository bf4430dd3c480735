"""A stream is cut into the same messages however it arrives, and a length beyond the limit ends it at once."""

from __future__ import annotations

import tracemalloc
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypmix.standard.errors import LocalProtocolError, RemoteProtocolError
from pypmix.wire.frames import HEADER, MAX_MESSAGE, FrameReader, frame, tags

pytestmark = pytest.mark.timeout(60)

messages = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=200)), max_size=8)


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[a:b] for a, b in zip(edges, edges[1:], strict=False)]


@settings(max_examples=200)
@given(messages, st.lists(st.integers(0, 5000), max_size=10), st.binary(max_size=15))
def test_pieces_do_not_matter(sent: list[tuple[int, bytes]], cuts: list[int], tail: bytes) -> None:
    stream = b"".join(frame(0, tag, payload) for tag, payload in sent) + tail
    for pieces in ([stream], split(stream, cuts), [stream[i : i + 1] for i in range(len(stream))]):
        reader = FrameReader()
        found = [message for piece in pieces for message in reader.feed(piece)]
        assert found == sent
        assert reader.pending == len(tail)


def test_header_is_in_network_order() -> None:
    assert frame(-1, 101, b"ab").hex() == "ffffffff" + "00000065" + "00000002" + "00000000" + "6162"
    assert HEADER.size == 16


def test_payloads_are_bytes_of_their_own() -> None:
    piece = bytearray(frame(0, 1, b"abc") + frame(0, 2, b"def"))
    found = FrameReader().feed(bytes(piece))
    assert [type(payload) for _, payload in found] == [bytes, bytes]


@pytest.mark.parametrize("step", [1, 7, 16, 1000])
@pytest.mark.parametrize("size", [MAX_MESSAGE + 1, 2**31, 2**32 - 1])
def test_a_length_beyond_the_limit(size: int, step: int) -> None:
    stream = HEADER.pack(0, 7, size, 0) + b"x" * 100
    reader = FrameReader()
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match=f"{size} bytes is announced"):
            for start in range(0, len(stream), step):
                assert reader.feed(stream[start : start + step]) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert reader.pending == 0
    for piece in (b"", b"x", frame(0, 1, b"good")):
        with pytest.raises(RemoteProtocolError, match=f"{size} bytes is announced"):
            reader.feed(piece)


def test_the_limit_itself_is_accepted() -> None:
    reader = FrameReader(limit=10)
    assert reader.feed(frame(0, 1, b"x" * 10)) == [(1, b"x" * 10)]
    with pytest.raises(RemoteProtocolError, match="11 bytes"):
        reader.feed(frame(0, 1, b"x" * 11))


def test_a_large_message_in_small_pieces_costs_linear_time() -> None:
    payload = bytes(8 << 20)
    stream = frame(0, 5, payload)
    reader = FrameReader()
    found = []
    for start in range(0, len(stream), 4096):
        found += reader.feed(stream[start : start + 4096])
    assert found == [(5, payload)]


def test_a_payload_beyond_four_gigabytes_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 32

    with pytest.raises(LocalProtocolError):
        frame(0, 1, Huge())


def test_tags_go_round() -> None:
    assert [*islice(tags(), 3)] == [101, 102, 103]
    assert [*islice(tags(2**32 - 2), 3)] == [2**32 - 1, 101, 102]
    assert next(tags(2**32 - 1)) == 101
