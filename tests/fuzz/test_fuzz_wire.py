"""Any bytes parse or raise RemoteProtocolError, whole or one at a time, in bounded time and memory.

PYPMIX_FUZZ_EXAMPLES sets how many inputs each target gets.
"""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lib import strategies
from lib.recorded import messages as recorded_messages
from lib.recorded import sessions
from pypmix.standard import codes
from pypmix.standard.errors import NotFound, NotSupported, RemoteProtocolError
from pypmix.standard.types import Proc, Value
from pypmix.wire import handshake, jobinfo, messages, modex, regex
from pypmix.wire.additions import decode_connected, decode_late, encode_connected, encode_late, split_reason
from pypmix.wire.codec import Unpacker, encode_kval, kvals, split_kval, split_kvals
from pypmix.wire.frames import FrameReader

EXAMPLES = int(os.environ.get("PYPMIX_FUZZ_EXAMPLES", "60"))
pytestmark = pytest.mark.timeout(60 + EXAMPLES // 2)

fuzz = settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
RELEASES = [(4, 2, 2), (5, 0, 11), (6, 1, 0), (7, 0, 0)]
LIMIT = 8192

kinds = st.sampled_from([1, 2])
releases = st.sampled_from(RELEASES)


def seeds() -> list[bytes]:
    """Return recorded messages, those that are neither long nor repeated."""
    return sorted({m.data for m in recorded_messages() if len(m.data) <= LIMIT}, key=lambda data: (len(data), data))


def described(data: bytes) -> bytes:
    """Return something that looks like a described buffer more often than random bytes do."""
    return b"\x09\2\x22" + data[1:]


SEEDS = seeds()
STREAMS = [s[:600] for session in sessions() for s in (session.up, session.down)]
NUMBERS = [b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\xff" * 9, b"\xfe\xff\xff\xff\x0f"]
NUMBERS += [struct.pack("!I", 2**31), struct.pack("!I", 2**32 - 1), b"\x27", b"\x15", b"\x18", b"\xe8\x07"]


@st.composite
def mutated(draw: Any, among: list[bytes]) -> bytes:
    data = bytearray(draw(st.sampled_from(among)))
    for _ in range(draw(st.integers(1, 6))):
        where = draw(st.integers(0, max(len(data) - 1, 0)))
        what = draw(st.sampled_from(["flip", "put", "insert", "cut", "drop", "repeat", "splice"]))
        if what == "flip" and data:
            data[where] ^= 1 << draw(st.integers(0, 7))
        elif what == "put":
            piece = draw(st.sampled_from(NUMBERS))
            data[where : where + len(piece)] = piece
        elif what == "insert":
            data[where:where] = draw(st.sampled_from(NUMBERS) | st.binary(min_size=1, max_size=8))
        elif what == "cut":
            del data[where:]
        elif what == "drop":
            del data[where : where + draw(st.integers(1, 8))]
        elif what == "repeat":
            data[where:where] = data[where : where + draw(st.integers(1, 32))] * draw(st.integers(1, 8))
        else:
            data[where:] = draw(st.sampled_from(among))[draw(st.integers(0, 64)) :]
    return bytes(data[: 2 * LIMIT])


def inputs(among: list[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(mutated(among), mutated(among).map(described), st.binary(max_size=300))


def outcome(parse: Callable[[], Any], *expected: type[Exception]) -> Any:
    """Return what a parse returned, or the class of the error that it may raise; anything else fails the test."""
    start = time.thread_time()
    try:
        return parse()
    except (RemoteProtocolError, *expected) as error:
        return type(error)
    finally:
        assert time.thread_time() - start < 2


def layouts() -> list[messages.Layout]:
    found: dict[str, messages.Layout] = {"event": messages.EVENT, "output": messages.IOF}
    for release in RELEASES:
        for command in messages.COMMAND_NAMES:
            for find in (messages.request_layout, messages.reply_layout):
                try:
                    layout = find(command, release)
                except NotSupported:
                    continue
                found[repr(layout)] = layout
    return list(found.values())


LAYOUTS = layouts()


def feed(make: Callable[[], Any], data: bytes, step: int) -> list[Any]:
    """Feed a reader in pieces; return what it gave, and at the end the error that stopped it."""
    reader = make()
    found: list[Any] = []
    for start in range(0, len(data), step):
        try:
            given = reader.feed(data[start : start + step])
        except RemoteProtocolError:
            found.append("refused")
            break
        if isinstance(given, list):
            found += given
        elif given is not None:
            found.append(given)
            break
    return found


@fuzz
@given(inputs(STREAMS), st.sampled_from([1000, 1 << 25]))
def test_frames(data: bytes, limit: int) -> None:
    whole = feed(lambda: FrameReader(limit), data, len(data) or 1)
    single = feed(lambda: FrameReader(limit), data, 1)
    # Where a bad length follows good messages in one piece, those are lost with it.
    assert single == whole or (whole == ["refused"] and single[-1] == "refused")


VALUES = [encode_kval(kind, f"key{kind}", Value(1, True), (5, 0, 11)) for kind in (1, 2)]
BLOBS = [
    modex.encode_modex([]),
    modex.encode_modex([(Proc("job", 7), [(3, VALUES[0], 1, (5, 0, 11)), (2, VALUES[1], 2, (7, 0, 0))])]),
    modex.encode_modex([(Proc("job", rank), [(2, VALUES[1], 2, (4, 2, 2))]) for rank in range(3)]),
]


@fuzz
@given(inputs(BLOBS))
def test_data_of_other_servers(data: bytes) -> None:
    for candidate in (data, modex.MAGIC + b"\x02" + data, BLOBS[1] + data):
        found = outcome(partial(modex.decode_modex, candidate))
        if found is not RemoteProtocolError:
            told = [(proc, [stored for _, stored in values]) for proc, values in found]
            assert modex.decode_modex(modex.encode_modex(told)) == found


@fuzz
@given(inputs([encode_connected(kind, "job@1", [Proc("job", rank) for rank in range(5)]) for kind in (1, 2)]), kinds)
def test_connections(data: bytes, kind: int) -> None:
    def parse() -> object:
        unpacker = Unpacker(data, kind)
        unpacker.skip(codes.STRING)
        return decode_connected(unpacker)

    outcome(parse)


@fuzz
@given(inputs([encode_late(kind, -29, [Proc("job", 1)], "no room") for kind in (1, 2)]), kinds)
def test_failures(data: bytes, kind: int) -> None:
    outcome(lambda: split_reason(data, kind))
    outcome(lambda: decode_late(data, kind))


@fuzz
@given(inputs(STREAMS))
def test_hellos(data: bytes) -> None:
    assert feed(handshake.HelloReader, data, 1) == feed(handshake.HelloReader, data, len(data) or 1)


@fuzz
@given(inputs(STREAMS))
def test_replies_of_the_handshake(data: bytes) -> None:
    assert feed(handshake.ReplyReader, data, 1) == feed(handshake.ReplyReader, data, len(data) or 1)
    outcome(lambda: handshake.parse_native_credential(data))


@pytest.mark.parametrize("number", range(8))
@fuzz
@given(data=inputs(SEEDS), kind=kinds, release=releases)
def test_layouts(number: int, data: bytes, kind: int, release: tuple[int, int, int]) -> None:
    for layout in LAYOUTS[number::8]:
        found = outcome(lambda layout=layout: layout.decode(data, kind, release))
        if isinstance(found, dict):
            # What parsed can be written again, and then reads the same.
            try:
                again = layout.encode(kind, release, **found)
            except (TypeError, ValueError):
                continue
            if release[0] != 6:
                assert repr(layout.decode(again, kind, release)) == repr(found)
        # The right start lets more of the input through to the fields.
        if layout.command is not None:
            head = b"\2" if kind == 1 else b"\x09\2\x22"
            outcome(
                lambda layout=layout, head=head: layout.decode(head + bytes((layout.command,)) + data, kind, release)
            )


@fuzz
@given(st.sampled_from(strategies.ALL_TYPES), inputs(SEEDS), kinds, releases)
def test_types(type: int, data: bytes, kind: int, release: tuple[int, int, int]) -> None:
    outcome(lambda: Unpacker(data, kind, release).unpack(type))
    outcome(lambda: Unpacker(data, kind, release).one(type))
    outcome(lambda: Unpacker(data, kind, release).raw(type))
    # One value of that type, from the first byte on.
    head = b"\2" if kind == 1 else b"\x09\2" + bytes((type,))
    outcome(lambda: Unpacker(head + data, kind, release).one(type))


@fuzz
@given(inputs(SEEDS), kinds, releases)
def test_fast_ways_and_parts(data: bytes, kind: int, release: tuple[int, int, int]) -> None:
    outcome(lambda: messages.peek_command(data, kind))
    outcome(lambda: messages.decode_status(data, kind))
    outcome(lambda: messages.decode_fence(data, kind, release))
    outcome(lambda: messages.decode_get(data, kind, release))
    outcome(lambda: messages.decode_commit(data, kind))
    outcome(lambda: messages.read_get_object(data, kind, release)[:2])
    outcome(lambda: kvals(data, 0, kind, release))
    pieces = outcome(lambda: split_kvals(data, kind, release))
    if isinstance(pieces, list):
        assert b"".join(piece for _, piece in pieces) == data
    alone = outcome(lambda: split_kval(data, kind, release))
    assert isinstance(alone, tuple) == (isinstance(pieces, list) and len(pieces) == 1)
    assert not isinstance(alone, tuple) or alone[0] == pieces[0][0]


@fuzz
@given(
    inputs([m.data for m in recorded_messages() if m.command == 0 and m.layout.reply][:2] + SEEDS),
    kinds,
    releases,
)
def test_job_info(data: bytes, kind: int, release: tuple[int, int, int]) -> None:
    outcome(lambda: jobinfo.decode_jobinfo(data, kind, release), NotFound)


@fuzz
@given(
    inputs(
        [
            b"raw:a,b\0",
            b"pmix[n[3:8-11,20]-ib,m]\0",
            b"pmix[0-3;4-7]\0",
            b"blob:\0component=zlib:\0size=9:\0123456789",
        ]
    )
)
def test_regexes(data: bytes) -> None:
    outcome(lambda: regex.expand_nodes(data))
    outcome(lambda: regex.expand_ppn(data))
    outcome(lambda: regex.extent(data, 0))


@settings(fuzz, max_examples=max(EXAMPLES // 2, 20))
@given(inputs(SEEDS), kinds, releases, st.integers(0, 200))
def test_memory_is_bounded(data: bytes, kind: int, release: tuple[int, int, int], repeated: int) -> None:
    data += data[-2:] * repeated
    tracemalloc.start()
    try:
        for layout in LAYOUTS[:: max(len(LAYOUTS) // 12, 1)]:
            outcome(lambda layout=layout: layout.decode(data, kind, release))
        outcome(lambda: jobinfo.decode_jobinfo(data, kind, release), NotFound)
        assert tracemalloc.get_traced_memory()[1] < (1 << 20) + 300 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("body", "type"),
    [
        (b"\x27\x15" + b"\xff\xff\x03" + b"\0" * 65535, "values that hold nothing"),
        (b"\x27\x27" + b"\xff\xff\x01" + b"\x0e\0" * 32767, "empty arrays"),
        (b"\x27\x29" + b"\xff\xff\x01" + b"\0\0" * 32767, "empty queries"),
        (b"\x27\x16" + b"\xff\xff\x01" + b"\2\0\0" * 32767, "procs"),
        (b"\x27\x02" + b"\xff\xff\x03" + b"\0" * 65535, "bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_many_small_values_cost_linear_memory(body: bytes, type: str) -> None:
    tracemalloc.start()
    try:
        Unpacker(b"\2" + body).one(21)
        assert tracemalloc.get_traced_memory()[1] < 200 * len(body)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("parse", "data"),
    [
        # A key or an nspace that is NULL was taken for an empty one.
        (lambda data: Unpacker(data).one(24), b"\2\0\0\x03\0"),
        (lambda data: Unpacker(data).one(22), b"\2\0\0"),
        (lambda data: split_kvals(data, 1), b"\2\0\x03\0"),
    ],
)
def test_what_fuzzing_found(parse: Callable[[bytes], Any], data: bytes) -> None:
    assert outcome(lambda: parse(data)) is RemoteProtocolError
