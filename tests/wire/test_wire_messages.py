"""Every message of every release survives encoding and decoding, and the fast ways do what the layouts do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lib import strategies
from pypmix.standard import codes
from pypmix.standard.errors import NotSupported, RemoteProtocolError
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.wire import frequent, messages
from pypmix.wire.codec import Packer, encode_kval
from pypmix.wire.layout import Blocks, Counted, CountedEach, Field, Flagged, Layout, One, Repeated, Rest, Sentinel
from pypmix.wire.messages import (
    COMMAND_NAMES,
    EVENT,
    IOF,
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
    peek_command,
    read_get_object,
    reply_layout,
    request_layout,
)

pytestmark = pytest.mark.timeout(60)

quick = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
RELEASES = [(4, 2, 2), (4, 2, 9), (5, 0, 11), (6, 1, 0), (7, 0, 0)]
KINDS = [1, 2]


def _layouts() -> list[Any]:
    found = [pytest.param(EVENT, (5, 0, 11), id="event"), pytest.param(IOF, (5, 0, 11), id="output")]
    for release in RELEASES:
        for command, name in COMMAND_NAMES.items():
            for find, what in ((request_layout, "request"), (reply_layout, "reply")):
                try:
                    layout = find(command, release)
                except NotSupported:
                    continue
                shown = ".".join(map(str, release))
                found.append(pytest.param(layout, release, id=f"{name}-{what}-{shown}"))
    return found


def field_values(field: Field, kind: int) -> st.SearchStrategy[Any]:
    scopes = strategies.integers(codes.SCOPE)
    if isinstance(field, Blocks):
        return st.lists(st.tuples(scopes, st.binary(max_size=30)), max_size=3).map(tuple)
    if isinstance(field, Rest):
        kval = encode_kval(kind, "a.key", Value(codes.UINT32, 7))
        return st.integers(0, 3).map(lambda count: kval * count)
    if isinstance(field, Sentinel):
        return st.none() | st.integers(0, 2**64 - 2)
    if isinstance(field, Flagged):
        return st.none() | strategies.data(field.type, 1)
    assert isinstance(field, One)
    if isinstance(field, Counted | CountedEach | Repeated):
        inner = strategies.text() if field.type == codes.STRING else strategies.data(field.type, 1)
        return st.lists(inner, max_size=3).map(tuple)
    if field.name == "status":
        return st.sampled_from([0, -157])
    return strategies.data(field.type, 1)


@pytest.mark.parametrize("kind", KINDS, ids=["plain", "described"])
@pytest.mark.parametrize(("layout", "release"), _layouts())
def test_round_trip(layout: Layout, release: tuple[int, int, int], kind: int) -> None:
    @quick
    @given(st.fixed_dictionaries({field.name: field_values(field, kind) for field in layout.fields}))
    def check(values: dict[str, Any]) -> None:
        packed = layout.encode(kind, release, **values)
        if release[0] == 6:
            assume(b"\x27\0" not in packed)
        found = layout.decode(packed, kind, release)
        again = layout.encode(kind, release, **found)
        assert again == packed
        if release[0] < 7:
            assert {name: found[name] for name in values} == values
        if layout.command is not None:
            assert peek_command(packed, kind) == layout.command
        # What a newer release may add is ignored.
        if not any(isinstance(field, Repeated | Blocks | Rest) or field.optional for field in layout.fields):
            assert layout.decode(packed + b"\2\x07\xff", kind, release) == found

    check()


@pytest.mark.parametrize(("layout", "release"), _layouts())
def test_every_cut_parses_or_is_refused(layout: Layout, release: tuple[int, int, int]) -> None:
    @settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow])
    @given(st.fixed_dictionaries({field.name: field_values(field, 1) for field in layout.fields}))
    def check(values: dict[str, Any]) -> None:
        packed = layout.encode(1, release, **values)
        assume(len(packed) < 1000)
        for size in range(len(packed)):
            try:
                found = layout.decode(packed[:size], 1, release)
            except RemoteProtocolError:
                continue
            assert found.keys() >= values.keys()

    check()


@pytest.mark.parametrize("command", [c for c in COMMAND_NAMES if c not in (0, 14, 39)], ids=lambda c: COMMAND_NAMES[c])
@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_status_comes_alone(command: int, kind: int) -> None:
    for release in RELEASES:
        try:
            layout = reply_layout(command, release)
        except NotSupported:
            continue
        data = layout.encode(kind, release, status=-46)
        assert data == encode_status(kind, -46)
        found = layout.decode(data, kind, release)
        assert found["status"] == -46
        assert all(not value for name, value in found.items() if name != "status")
        assert decode_status(data, kind) == -46


def test_partial_success_may_bring_something() -> None:
    layout = reply_layout(Command.QUERY, (5, 0, 11))
    infos = (Info("a", Value(codes.UINT32, 1)),)
    data = layout.encode(1, (5, 0, 11), status=-52, infos=infos)
    assert layout.decode(data, 1, (5, 0, 11)) == {"status": -52, "infos": infos}


def test_group_construct_has_three_replies() -> None:
    members = (Proc("n", 0), Proc("n", 1))
    info = (Info("pmix.grp.info", Value(codes.UINT32, 5)),)
    given = {"status": 0, "members": members, "context_id": 9, "group_info": info, "objects": (b"x",)}
    names = []
    for release in RELEASES:
        layout = reply_layout(Command.GROUP_CONSTRUCT, release)
        names.append([field.name for field in layout.fields])
        found = layout.decode(layout.encode(1, release, **given), 1, release)
        assert found.keys() == given.keys()
        assert found["context_id"] == 9
        assert found["members"] == (members if "members" in names[-1] else ())
        without = layout.encode(1, release, status=0, members=members, context_id=None)
        assert layout.decode(without, 1, release)["context_id"] is None
    old, middle, new = names[0], names[1], names[3]
    assert names == [old, middle, middle, new, new]
    assert old == ["status", "context_id"]
    assert middle == ["status", "members", "context_id", "objects"]
    assert new == ["status", "members", "context_id", "group_info"]


def test_group_construct_without_a_context_id_as_natives_write_it() -> None:
    def reply(release: tuple[int, int, int]) -> str:
        layout = reply_layout(Command.GROUP_CONSTRUCT, release)
        return layout.encode(1, release, status=0, members=(Proc("n", 0),), context_id=None).hex()

    assert reply((4, 2, 3)) == "0200" + "02" + "ff" * 9
    assert reply((4, 2, 4)) == "0200" + "0201" + "02046e0000" + "02" + "ff" * 9
    assert reply((6, 0, 0)) == "0200" + "0201" + "02046e0000" + "0200" + "0200"


def test_group_destruct_has_two_requests() -> None:
    given = {"group": "g", "members": (Proc("n", 0),), "infos": ()}
    old = request_layout(Command.GROUP_DESTRUCT, (4, 2, 3)).encode(1, (4, 2, 3), **given)
    new = request_layout(Command.GROUP_DESTRUCT, (4, 2, 4)).encode(1, (4, 2, 4), **given)
    assert old.hex() == "021c" + "02046700" + "0200"
    assert new.hex() == "021c" + "02046700" + "0201" + "02046e0000" + "0200"


def test_connect_has_trailers_from_6_on() -> None:
    procs = (Proc("n", RANK_WILDCARD),)
    trailer = Info("pmix.pdata", Value(codes.UINT32, 1))
    old = request_layout(Command.CONNECTNB, (5, 0, 11))
    new = request_layout(Command.CONNECTNB, (6, 0, 0))
    plain = old.encode(1, (5, 0, 11), procs=procs, trailers=(trailer,))
    assert new.encode(1, (6, 0, 0), procs=procs) == plain
    assert new.decode(plain, 1, (6, 0, 0))["trailers"] == ()
    both = new.encode(1, (6, 0, 0), procs=procs, trailers=(trailer, trailer))
    assert new.decode(both, 1, (6, 0, 0))["trailers"] == (trailer, trailer)
    assert old.decode(both, 1, (5, 0, 11))["trailers"] == ()


@pytest.mark.parametrize(
    ("command", "release"),
    [
        (Command.RESOLVE_PEERS, (5, 0, 6)),
        (Command.RESOLVE_NODE, (4, 2, 9)),
        (Command.RESBLK, (5, 0, 11)),
        (Command.GDS_FALLBACK, (6, 1, 0)),
        (Command.GROUP_LEAVE, (7, 0, 0)),
        (33, (7, 0, 0)),
        (255, (7, 0, 0)),
    ],
)
def test_commands_that_a_release_lacks(command: int, release: tuple[int, int, int]) -> None:
    for find in (request_layout, reply_layout):
        with pytest.raises(NotSupported, match=COMMAND_NAMES.get(command, f"command {command}")):
            find(command, release)


def test_wrong_values_are_the_callers_mistake() -> None:
    layout = request_layout(Command.ABORT, (5, 0, 11))
    with pytest.raises(TypeError, match="has no messages"):
        layout.encode(1, (5, 0, 11), code=1, messages="x")
    with pytest.raises(TypeError, match="needs code"):
        layout.encode(1, (5, 0, 11), message="x")
    with pytest.raises(OverflowError):
        layout.encode(1, (5, 0, 11), code=2**31, message=None)
    with pytest.raises(TypeError):
        layout.encode(1, (5, 0, 11), code=1, message=None, procs=("n",))


def test_a_message_of_another_command_is_refused() -> None:
    data = encode_fence(1, (Proc("n", 0),))
    with pytest.raises(RemoteProtocolError, match="starts with command 4, not 3"):
        request_layout(Command.GETNB, (5, 0, 11)).decode(data, 1, (5, 0, 11))
    for kind, junk in ((1, b""), (1, b"\2"), (1, b"\3\3"), (2, b"\2\3"), (2, b"\x09\2\x0e\3")):
        with pytest.raises(RemoteProtocolError):
            peek_command(junk, kind)


infos = st.lists(strategies.infos(1), max_size=3).map(tuple)
some_procs = st.lists(strategies.procs, max_size=3).map(tuple)
kinds = st.sampled_from(KINDS)
releases = st.sampled_from(RELEASES[:3])


@quick
@given(kinds, releases, some_procs, infos)
def test_fast_fence(kind: int, release: Any, procs: tuple[Proc, ...], given: tuple[Info, ...]) -> None:
    layout = request_layout(Command.FENCENB, release)
    data = encode_fence(kind, procs, given, release)
    assert data == layout.encode(kind, release, procs=procs, infos=given)
    for _ in range(2):
        assert decode_fence(data, kind, release) == (procs, given)


@quick
@given(kinds, releases, strategies.nspaces, strategies.u32, infos, st.none() | strategies.keys)
def test_fast_get(kind: int, release: Any, nspace: str, rank: int, given: tuple[Info, ...], key: str | None) -> None:
    layout = request_layout(Command.GETNB, release)
    data = encode_get(kind, nspace, rank, given, key, release)
    assert data == layout.encode(kind, release, nspace=nspace, rank=rank, infos=given, key=key)
    assert decode_get(data, kind, release) == (nspace, rank, given, key)


def test_a_get_that_refreshes_ends_after_the_rank() -> None:
    data = Packer().pack(codes.COMMAND, 4).pack(codes.STRING, "n").pack(codes.PROC_RANK, 3).bytes()
    assert decode_get(data, 1) == ("n", 3, (), None)
    assert request_layout(Command.GETNB, (5, 0, 11)).decode(data, 1, (5, 0, 11)) == {
        "nspace": "n",
        "rank": 3,
        "infos": (),
        "key": None,
    }


@quick
@given(kinds, st.lists(st.tuples(strategies.integers(codes.SCOPE), st.binary(max_size=300)), max_size=3))
def test_fast_commit(kind: int, commits: list[tuple[int, bytes]]) -> None:
    layout = request_layout(Command.COMMIT, (5, 0, 11))
    data = encode_commit(kind, commits)
    assert data == layout.encode(kind, (5, 0, 11), commits=tuple(commits))
    assert decode_commit(data, kind) == tuple(commits)


@quick
@given(kinds, strategies.integers(codes.STATUS))
def test_fast_status(kind: int, status: int) -> None:
    assert encode_status(kind, status) == Packer(kind).pack(codes.STATUS, status).bytes()
    assert decode_status(encode_status(kind, status) + b"more", kind) == status


@quick
@given(kinds, releases, strategies.procs, st.lists(st.tuples(strategies.keys, strategies.values(1)), max_size=3))
def test_objects_of_a_get(kind: int, release: Any, proc: Proc, items: list[tuple[str, Value]]) -> None:
    pieces = [encode_kval(kind, key, value, release) for key, value in items]
    data = encode_get_object(kind, proc, pieces)
    assert data == Packer(kind).pack(codes.PROC, proc).bytes() + b"".join(pieces)
    assert read_get_object(data, kind, release) == (proc, items, None)


@settings(max_examples=300)
@given(st.binary(max_size=60), kinds, st.sampled_from([b"", b"\2\4\2", b"\2\2", b"\2\3", b"\2\2\2\1\2\1"]))
def test_fast_ways_accept_what_the_layouts_accept(tail: bytes, kind: int, head: bytes) -> None:
    data = head + tail

    def outcome(parse: Any) -> Any:
        try:
            return parse()
        except RemoteProtocolError:
            return "refused"

    release = (5, 0, 11)
    get = outcome(lambda: request_layout(Command.GETNB, release).decode(data, kind, release))
    if get == "refused" or get["nspace"] is None:
        assert outcome(lambda: decode_get(data, kind, release)) == "refused"
    elif len(get["nspace"]) < 256 and len(get["key"] or "") < 512:
        assert outcome(lambda: decode_get(data, kind, release)) == tuple(get.values())
    commit = outcome(lambda: request_layout(Command.COMMIT, release).decode(data, kind, release)["commits"])
    assert outcome(lambda: decode_commit(data, kind)) == commit
    fence = outcome(lambda: tuple(request_layout(Command.FENCENB, release).decode(data, kind, release).values()))
    assert outcome(lambda: decode_fence(data, kind, release)) == fence


def test_what_is_remembered_is_bounded() -> None:
    for number in range(3000):
        decode_fence(encode_fence(1, (Proc(f"n{number}", 0),)), 1)
        encode_status(1, number)
    assert len(messages._FENCES) <= 64
    assert len(frequent._STATUSES) <= 1024
