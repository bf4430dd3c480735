"""Proves that what servers give each other comes back as it was, and that any other bytes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.strategies import values
from pypmix.standard import codes
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.types import RANK_VALID, Proc, Value
from pypmix.wire.codec import encode_kval, one_of
from pypmix.wire.encode import BYTES, flex, key_bytes
from pypmix.wire.modex import MAGIC, decode_modex, encode_modex
from pypmix.wire.readers import IS_UNKNOWN, MARKS


def kval(key, data="x", buffer_type=1, release=(7, 0, 0)):
    return encode_kval(buffer_type, key, data if isinstance(data, Value) else Value(codes.STRING, data), release)


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
procs = st.builds(Proc, names, st.integers(0, RANK_VALID))


@st.composite
def stored(draw):
    buffer_type = draw(st.sampled_from((1, 2)))
    release = draw(st.sampled_from(((4, 2, 2), (5, 0, 11), (6, 1, 0), (7, 0, 0))))
    key = draw(names)
    raw = kval(key, draw(values()), buffer_type, release)
    return key, (draw(st.sampled_from((2, 3))), raw, buffer_type, release)


def plain(told):
    """Return what servers tell without the mark of values that only who asks for them gets."""
    return [(proc, [(key, (item[0] & ~MARKS, *item[1:])) for key, item in items]) for proc, items in told]


blobs = st.lists(st.tuples(procs, st.lists(stored(), max_size=4)), max_size=4)


@given(st.lists(blobs, max_size=3))
@settings(max_examples=150)
def test_what_servers_tell_comes_back_one_after_the_other(servers):
    data = b"".join(encode_modex([(proc, [item for _, item in items]) for proc, items in blob]) for blob in servers)
    assert plain(decode_modex(data)) == [entry for blob in servers for entry in blob]


def test_stamps_come_along():
    procs = [Proc("job", 1), Proc("job", 2)]
    stamps = {}
    decode_modex(encode_modex([(proc, []) for proc in procs], {procs[1]: 1 << 40}), stamps)
    assert stamps == {procs[0]: 0, procs[1]: 1 << 40}


def test_contributions_come_along():
    found = []
    contributions = [(1, 2, 3), ((1 << 64) - 1, 0, 1 << 20)]
    decode_modex(b"".join(encode_modex([], contribution=each) for each in contributions), {}, {}, found)
    assert found == contributions


def test_the_data_of_own_contributions_is_left_out():
    first, second = (
        encode_modex([(Proc("job", rank), [(2, kval("key"), 1, (7, 0, 0))])], contribution=(rank, 9, 1))
        for rank in (5, 6)
    )
    found = []
    assert [proc.rank for proc, _ in decode_modex(first + second, contributions=found, own={5: ()})] == [6]
    assert found == [(5, 9, 1), (6, 9, 1)]


def test_a_value_of_unknown_type_is_kept_as_it_came():
    raw = one_of(codes.KVAL, 1) + key_bytes("odd") + BYTES[110] + b"whatever"
    entry = Proc("job", 3), [("odd", (3, raw, 1, (5, 0, 0)))]
    told = decode_modex(encode_modex([(entry[0], [entry[1][0][1]])]))
    assert plain(told) == [entry]
    assert told[0][1][0][1][0] == 3 | IS_UNKNOWN
    assert decode_modex(encode_modex([(told[0][0], [told[0][1][0][1]])])) == told


def test_the_form_of_a_blob():
    raw = kval("a")
    proc = Proc("job", 7)
    data = encode_modex([(proc, [(3, raw, 2, (5, 0, 11))])], {proc: 9}, {proc: 4}, (1 << 40, 258, 3))
    body = b"\0\0\1" + bytes(11) + b"\1\2" + b"\3"
    body += b"\x01\x02\x05\x00\x0b" + b"\x03job\x07\x09\x04\x01" + b"\x03\x00" + flex(len(raw)) + raw
    assert data == MAGIC + b"\x02" + flex(len(body)) + body
    assert decode_modex(b"") == []


def blob(body, version=2):
    body = bytes(17) + body
    return MAGIC + BYTES[version] + flex(len(body)) + body


SENDER = b"\x01\x01\x07\x00\x00"
RAW = kval("a")


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"pypmix",
        MAGIC,
        blob(b"", 1),
        blob(b"", 3),
        blob(b""),
        MAGIC + b"\x02\x0f" + bytes(15),
        MAGIC + b"\x02\x10" + bytes(16),
        MAGIC + b"\x02\x7f\x00",
        blob(b"\x01\x03\x07\x00\x00"),
        blob(b"\x7f"),
        blob(SENDER + b"\x00\x00\x00"),
        blob(SENDER + b"\x02\xff\xff\x00\x09\x00\x00"),
        blob(SENDER + b"\x03job" + flex(RANK_VALID + 1) + b"\x09\x00\x00"),
        blob(SENDER + b"\x03job\x00\x09\x00\x7f"),
        blob(SENDER + b"\x03job\x00\x09\x00\x01\x01\x00" + flex(len(RAW)) + RAW),
        blob(SENDER + b"\x03job\x00\x09\x00\x01\x06\x00" + flex(len(RAW)) + RAW),
        blob(SENDER + b"\x03job\x00\x09\x00\x01\x03\x01" + flex(len(RAW)) + RAW),
        blob(SENDER + b"\x03job\x00\x09\x00\x01\x03\x00" + flex(2 * len(RAW)) + RAW + RAW),
        blob(SENDER + b"\x03job\x00\x09\x00\x01\x03\x00\x00"),
        blob(SENDER + b"\x03job\x00\x09\x00\x01\x03\x00" + flex(len(RAW) - 1) + RAW[:-1]),
        blob(SENDER) + b"junk",
        encode_modex([]) + b"\0",
    ],
)
def test_what_is_no_blob_is_refused(data):
    with pytest.raises(RemoteProtocolError):
        decode_modex(data)


GOOD = encode_modex([(Proc("job", 7), [(3, RAW, 1, (7, 0, 0)), (2, kval("b", "y", 2), 2, (5, 0, 11))])])


@given(st.binary(max_size=60), st.data())
@settings(max_examples=400)
def test_any_bytes_parse_or_are_refused(noise, data):
    start = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(start, len(GOOD)))
    for candidate in (noise, MAGIC + noise, blob(noise), blob(SENDER + noise), GOOD[:start] + noise + GOOD[end:]):
        try:
            decode_modex(candidate)
        except RemoteProtocolError:
            pass
