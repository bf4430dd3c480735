"""What pypmix tells pypmix: read back as it was sent, invisible to natives, and bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypmix.standard import codes, statuses
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.types import Info, Proc
from pypmix.standard.values import uint32
from pypmix.wire import additions
from pypmix.wire.codec import Unpacker
from pypmix.wire.messages import Command, decode_status, encode_status, reply_layout

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("buffer_type", [1, 2])
@pytest.mark.parametrize("ranks", [0, 1, 3, additions.MAX_MISSING + 5])
def test_the_missing_come_back(buffer_type: int, ranks: int) -> None:
    missing = [Proc("job", rank) for rank in range(ranks)]
    data = additions.encode_late(buffer_type, statuses.ERR_TIMEOUT, missing)
    assert additions.decode_late(data, buffer_type) == tuple(missing[: additions.MAX_MISSING])


@pytest.mark.parametrize("buffer_type", [1, 2])
def test_a_native_sees_the_status_it_knows(buffer_type: int) -> None:
    data = additions.encode_late(buffer_type, statuses.ERR_TIMEOUT, [Proc("job", 1)])
    assert data.startswith(encode_status(buffer_type, statuses.ERR_TIMEOUT))
    assert decode_status(data, buffer_type) == statuses.ERR_TIMEOUT
    fields = reply_layout(Command.FENCENB, (5, 0, 11)).decode(data, buffer_type, (5, 0, 11))
    assert fields["status"] == statuses.ERR_TIMEOUT


def test_an_answer_of_a_native_names_nobody() -> None:
    assert additions.decode_late(encode_status(1, statuses.ERR_TIMEOUT), 1) is None


def test_a_handshake_of_pypmix_is_told_from_others() -> None:
    assert additions.greeted([additions.greeting("2026.1")])
    assert not additions.greeted([])
    assert not additions.greeted([Info("pmix.ppid", uint32(1)), Info(additions.VERSION, uint32(1))])


@given(st.binary(max_size=60), st.sampled_from([1, 2]))
def test_any_bytes_parse_or_are_refused(data: bytes, buffer_type: int) -> None:
    try:
        additions.decode_late(encode_status(buffer_type, statuses.ERR_TIMEOUT) + data, buffer_type)
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize("buffer_type", [1, 2])
def test_a_connection_comes_back(buffer_type: int) -> None:
    procs = tuple([Proc(nspace, rank) for nspace in ("b", "a") for rank in (1, 0, 2**31)])
    unpacker = Unpacker(additions.encode_connected(buffer_type, "job@1", procs), buffer_type)
    # No job has this name, so that no reader takes it for the job info of one.
    assert unpacker.one(codes.STRING) == ""
    assert additions.decode_connected(unpacker) == ("job@1", procs)
    assert not unpacker.more()


@pytest.mark.parametrize(("nspace", "count"), [("", 1), ("job@1", 0)])
def test_a_connection_has_a_name_and_procs(nspace: str, count: int) -> None:
    unpacker = Unpacker(additions.encode_connected(1, nspace, [Proc("job", 0)] * count), 1)
    unpacker.skip(codes.STRING)
    with pytest.raises(RemoteProtocolError):
        additions.decode_connected(unpacker)


def test_a_connection_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(additions, "MAX_CONNECTED", 2)
    unpacker = Unpacker(additions.encode_connected(1, "job@1", [Proc("job", rank) for rank in range(3)]), 1)
    unpacker.skip(codes.STRING)
    with pytest.raises(RemoteProtocolError):
        additions.decode_connected(unpacker)
