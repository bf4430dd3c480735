"""The answer to a tool's handshake is read the same however it arrives, and is byte for byte that of native servers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import strategies
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.types import Proc
from pypmix.wire.handshake import FLAG_LAUNCHER_NEEDS_ID, FLAG_TOOL_CLIENT, FLAG_TOOL_GIVEN_ID, FLAG_TOOL_NEEDS_ID
from pypmix.wire.toolreply import ToolReply, ToolReplyReader, encode_tool_reply

pytestmark = pytest.mark.timeout(60)

SERVER = Proc("prterun-vm-7@0", 0)
TOOL = Proc("prterun-vm-7@2", 0)

names = st.builds(
    Proc, strategies.nspaces.filter(bool), st.integers(0, 2**32 - 1).filter(lambda rank: rank < 2**32 - 6)
)


def test_the_layout_of_native_servers() -> None:
    # Status, the tool's name where it asks for one, the server's name, the verdict; names have 256 bytes.
    nspace = b"prterun-vm-7@0" + bytes(242)
    tool = b"prterun-vm-7@2" + bytes(242)
    rank = bytes(4)
    assert encode_tool_reply(ToolReply(None, SERVER)) == bytes(4) + nspace + rank + bytes(4)
    assert encode_tool_reply(ToolReply(TOOL, SERVER)) == bytes(4) + tool + rank + nspace + rank + bytes(4)
    assert encode_tool_reply(ToolReply(None, SERVER, -14))[-4:] == b"\xff\xff\xff\xf2"


@settings(max_examples=100)
@given(
    st.sampled_from([FLAG_TOOL_NEEDS_ID, FLAG_TOOL_GIVEN_ID, FLAG_TOOL_CLIENT, FLAG_LAUNCHER_NEEDS_ID]),
    names,
    names,
    st.integers(-200, 0),
    st.binary(max_size=40),
    st.integers(0, 600),
)
def test_pieces_do_not_matter(flag: int, tool: Proc, server: Proc, verdict: int, tail: bytes, cut: int) -> None:
    needs = flag in (FLAG_TOOL_NEEDS_ID, FLAG_LAUNCHER_NEEDS_ID)
    reply = ToolReply(tool if needs else None, server, verdict)
    stream = encode_tool_reply(reply) + tail
    cut %= len(stream)
    reader = ToolReplyReader(flag)
    found = reader.feed(stream[:cut])
    rest = reader.rest if found is not None else b""
    if found is None:
        found = reader.feed(stream[cut:])
        rest = reader.rest
    else:
        rest += stream[cut:]
    assert found == reply
    assert rest == tail


@pytest.mark.parametrize("status", [-47, -12, -25, 5])
def test_a_refusal_is_a_status_alone(status: int) -> None:
    reader = ToolReplyReader(FLAG_TOOL_NEEDS_ID)
    data = status.to_bytes(4, "big", signed=True)
    assert reader.feed(data[:3]) is None
    assert reader.feed(data[3:] + b"more") == status
    assert reader.rest == b"more"


def test_half_an_answer_is_none() -> None:
    stream = encode_tool_reply(ToolReply(TOOL, SERVER))
    reader = ToolReplyReader(FLAG_TOOL_NEEDS_ID)
    for byte in stream[:-1]:
        assert reader.feed(bytes([byte])) is None
    assert reader.feed(stream[-1:]) == ToolReply(TOOL, SERVER)


@pytest.mark.parametrize("name", [bytes(260), b"x" * 256 + bytes(4)], ids=["empty", "too long"])
def test_a_name_that_is_none(name: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ToolReplyReader(FLAG_TOOL_GIVEN_ID).feed(bytes(4) + name + bytes(4))


@settings(max_examples=100)
@given(st.binary(max_size=600), st.sampled_from([3, 4]))
def test_any_bytes_are_an_answer_or_an_error(data: bytes, flag: int) -> None:
    reader = ToolReplyReader(flag)
    try:
        found = reader.feed(data)
    except RemoteProtocolError:
        return
    assert found is None or isinstance(found, int | ToolReply)
