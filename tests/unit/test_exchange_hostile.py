"""What a member sends that no server would: it costs memory in proportion to its length, and no other its end."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from typing import Any

import pytest

from pypmix.host import orders
from pypmix.host.exchange import Exchange, Hub, codec, statelog
from pypmix.host.exchange.codec import EVENT, Field
from pypmix.host.exchange.jobs import _NEWS as PROC_NEWS
from pypmix.host.exchange.kinds import _REST, CANCEL
from pypmix.standard.errors import PMIxError, RemoteProtocolError
from pypmix.standard.types import Proc

BYTES_OF_PROC = 150
"""More than a proc of a message takes, with its place in a tuple."""

PROCS = codec.pack(0, b"ns", struct.pack("!4Q", 0, 100_000, 100_001, 200_000))
NONE = codec.pack(0)
PENDING = codec.pack(0, b"op", b"l", PROCS, PROCS, struct.pack("!d", 1.0))
NEWS = codec.pack(0, struct.pack("!q", 0), struct.pack("!q", 0), PROCS)


@pytest.mark.parametrize(
    ("field", "data"),
    [
        (orders.PENDING, codec.pack(0, *[PENDING] * 8)),
        (PROC_NEWS, codec.pack(0, *[NEWS] * 8)),
        (codec.GROUPS, codec.pack(0, *[codec.pack(0, b"g", PROCS)] * 8)),
        (codec.compressed(codec.TEXTS), codec.pack(1, zlib.compress(codec.pack(0, *[b""] * 2_000_000), 9))),
        (codec.many(orders._NODE), codec.pack(0, *[codec.pack(0, b"n", PROCS[11:], NONE, NONE, NONE, b"\0")] * 8)),
    ],
    ids=["pending", "news", "groups", "compressed", "nodes"],
)
def test_the_procs_and_values_of_a_whole_message_are_counted(field: Field[Any], data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            field.read(data)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < codec.MAX_PROCS * BYTES_OF_PROC


def test_a_long_form_of_one_proc_is_refused_and_not_kept() -> None:
    """Procs that were read are kept for later messages: what each of them takes has a bound."""
    longest = Proc("j" * 255, 7)
    data = codec.PROC.write(longest)
    assert len(data) == codec.PROC_BYTES and codec.PROC.read(data) == longest
    padded = codec.pack(0, *[b"j", b""] * 100, *codec.unpack(codec.PROC.write(Proc("j", 7)))[1])
    with pytest.raises(RemoteProtocolError, match="a proc has"):
        codec.PROC.read(padded)


def test_one_message_leaves_nothing_of_its_count_to_the_next() -> None:
    half = codec.PROCS.write([Proc("ns", rank) for rank in range(1000)])
    for _ in range(3):
        assert len(codec.PROCS.read(half)) == 1000
    with pytest.raises(RemoteProtocolError):
        orders.PENDING.read(codec.pack(0, *[PENDING] * 8))
    assert codec._count.left is None
    assert len(orders.PENDING.read(codec.pack(0, PENDING, PENDING))) == 2
    assert _REST.read(_REST.write((("n0",), (), (), (), (), ())))[0] == ("n0",)


@pytest.mark.parametrize(("code", "reach"), [(1 << 40, 0), (-(1 << 31) - 1, 0), (-3000, 256), (-3000, -1)])
def test_numbers_beyond_their_type_are_no_event(code: int, reach: int) -> None:
    infos = b""
    data = codec.pack(0, struct.pack("!q", code), struct.pack("!q", reach), codec.PROC.write(Proc("job", 0)), infos)
    with pytest.raises(RemoteProtocolError):
        EVENT.read(data)
    with pytest.raises(RemoteProtocolError):
        CANCEL.read(codec.pack(0, struct.pack("!q", 1), struct.pack("!q", 1 << 31), b"", NONE))


def test_a_server_is_lost_although_what_it_has_sent_cannot_be_dealt_with() -> None:
    """A message was kept when it died, and its listener fails."""
    hub = Hub()
    a, b, c = [Exchange(hub.carrier(name), later=hub.clock.later, now=hub.clock.time) for name in "abc"]
    heard: list[bytes] = []

    def listener(_sender: str, data: bytes) -> None:
        heard.append(data)
        if data == b"bad":
            raise ValueError("no listener of ours was to raise that")

    c.hear("event", listener)
    for each in (a, b, c):
        each.start()
    hub.run()
    # Its messages wait for an entry that the root never gets.
    b.soon(b.outbox.rebase, statelog._BASIS.write(("a", 0, 1 << 62)), ("a",))
    for data in (b"first", b"bad", b"last"):
        b.tell("c", "event", data)
    hub.run(1.0)
    assert not heard
    hub.lose("b")
    hub.run(2.0)
    assert heard == [b"first", b"bad", b"last"]
    assert a.members == c.members == ("a", "c")
    ended: list[PMIxError | None] = []
    c.request("b", "anything", b"", lambda _data, error: ended.append(error))
    hub.run()
    assert len(ended) == 1 and ended[0] is not None
