"""The pieces of collective calls, byte by byte, and what is refused of them."""

from __future__ import annotations

import json
import marshal
import pickle

import pytest

from pypmix import PMIxError, Proc, RemoteProtocolError
from pypmix.steps import (
    PIECE,
    Collective,
    Piece,
    Steps,
    Values,
    decode_piece,
    decode_value,
    encode_value,
    forget_steps,
    steps_of,
)
from pypmix.types import uint32

ME, PEER, OTHER = Proc("job", 0), Proc("job", 1), Proc("job", 2)
SENT = Piece("scatter", 258, 1, 3, "job:1", b"data", coded=True)
BYTES = (
    b"\x01\x03\x01" + b"\x02\x01" + bytes(6) + b"\x01\0\0\0" + b"\x03\0\0\0" + b"\x05\0" + b"job:1" + b"data"
)  # version, call, flags, step, index, pieces, length of the root


def test_a_piece_byte_by_byte() -> None:
    assert SENT.encode() == BYTES
    assert decode_piece(BYTES) == SENT
    assert decode_piece(Piece("bcast", 0, 0, 1, "", b"").encode()) == Piece("bcast", 0, 0, 1, "", b"")


@pytest.mark.parametrize(
    "data",
    [
        "text",
        7,
        b"",
        BYTES[:22],
        BYTES[:25],
        b"\x02" + BYTES[1:],
        b"\x01\x04" + BYTES[2:],
        b"\x01\x03\x04" + BYTES[3:],
        BYTES[:11] + b"\x03" + BYTES[12:],
        BYTES[:21] + b"\xff\xff" + BYTES[23:],
        BYTES[:23] + b"\xff" + BYTES[24:],
    ],
)
def test_what_does_not_parse(data: object) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_piece(data)


@pytest.mark.parametrize("cut", range(len(BYTES) - len(b"data")))
def test_a_piece_that_ends_too_early(cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_piece(BYTES[:cut])


def test_values_with_their_types() -> None:
    for value in (b"\0\xff", "text", 0.1, True, [1, 2], PEER):
        assert decode_value(encode_value(value, None), None) == value
    assert encode_value(uint32(7), None) != encode_value(7, None)
    with pytest.raises(TypeError, match="no PMIx type"):
        encode_value(object(), None)
    with pytest.raises(RemoteProtocolError, match="more than one"):
        decode_value(encode_value(1, None) * 2, None)
    with pytest.raises(RemoteProtocolError):
        decode_value(b"\x07", None)


def test_values_by_codecs() -> None:
    for codec in (json, pickle, marshal):
        assert decode_value(encode_value({"a": [1, None]}, codec), codec) == {"a": [1, None]}
    with pytest.raises(TypeError, match="dumps"):
        Collective("bcast", ME, ME, "json")  # type: ignore[arg-type]


def test_pieces_of_a_value() -> None:
    call = Collective("allgather", ME, None, None)
    call.give(bytes(2 * PIECE))
    assert call.pieces() == 3
    parts = [decode_piece(call.piece(5, index, call.given[0])) for index in range(3)]
    assert [part.pieces for part in parts] == [3] * 3
    assert call.value(b"".join(part.data for part in parts)) == bytes(2 * PIECE)


def test_keys_take_turns() -> None:
    steps = Steps("")
    assert [steps.key(step, True) for step in range(3)] == ["pypmix.values..0", "pypmix.values..1", "pypmix.values..0"]
    assert [steps.key(step, False) for step in range(3)] == [f"pypmix.values..{step}" for step in range(3)]
    assert steps.key(3, True, PEER, ME) == "pypmix.values..1.1"
    other = steps.key(3, True, Proc("x" * 255, 1), ME)
    assert other.startswith("pypmix.values..1.") and other.endswith(".1") and len(other) < 64
    assert other != steps.key(3, True, Proc("y" * 255, 1), ME)
    assert [steps.follow([f"{step}"]) for step in range(4)] == [[], [], ["0"], ["1"]]


def test_counts_belong_to_the_members() -> None:
    first = steps_of(ME, "team", [ME, PEER])
    assert steps_of(ME, "team", [PEER, ME]) is first
    other = steps_of(ME, "team", [ME, PEER, Proc("job", 2)])
    assert other is not first and other.base != first.base
    assert steps_of(PEER, "team", [ME, PEER]).base == first.base
    forget_steps(ME, "team")
    assert first.over and other.over and steps_of(ME, "team", [ME, PEER]) is not first


def read(call: Collective, piece: Piece, step: int = 4, index: int = 0) -> str:
    with pytest.raises(PMIxError) as caught:
        call.read(PEER, piece.encode(), step, index)
    assert caught.value.operation == call.call
    assert caught.value.procs == (PEER,)
    return str(caught.value)


def test_ranks_that_disagree_are_told() -> None:
    call = Collective("gather", ME, ME, json)
    right = Piece("gather", 4, 0, 1, "job:0", b"1", coded=True)
    assert call.read(PEER, right.encode(), 4, 0) == right
    assert "has called gather(root=rank 1), and the caller gather(root=rank 0)" in read(
        call, right.replace(root="job:1")
    )
    assert "has called allgather, and the caller" in read(call, right.replace(call="allgather", root=""))
    assert "used no codec, and the caller a codec" in read(call, right.replace(coded=False))
    assert "is at step 4 of these calls, and the caller at step 5" in read(call, right.replace(step=3))
    assert "gave piece 0, where piece 1 was expected" in read(call, right, index=1)
    assert "had no value to give: TypeError: why" in read(call, right.replace(failed=True, data=b"TypeError: why"))


def test_a_rank_without_a_value_takes_part() -> None:
    call = Collective("bcast", ME, ME, None)
    call.give(object())
    assert isinstance(call.problem, TypeError)
    sent = decode_piece(call.piece(0, 0, call.given[0]))
    assert sent.failed and sent.pieces == 1 and b"TypeError" in sent.data
    for values in ([1], "ab", 7):
        call = Collective("scatter", ME, ME, None)
        call.give_each(values, (ME, PEER, OTHER))  # type: ignore[arg-type]
        assert isinstance(call.problem, TypeError | ValueError)


def test_parts_by_proc() -> None:
    call = Collective("scatter", ME, ME, None)
    call.give_each({PEER: 1, ME: 0}, (ME, PEER))
    assert [call.value(data) for data in call.given] == [0, 1]
    call.give_each({PEER: 1}, (ME, PEER))
    assert isinstance(call.problem, ValueError) and "rank 0 has none" in str(call.problem)


def test_values_name_their_ranks() -> None:
    values = Values([1, 2], [ME, OTHER])
    assert values == [1, 2] and values.procs == (ME, OTHER)
    assert pickle.loads(pickle.dumps(values)).procs == (ME, OTHER)
