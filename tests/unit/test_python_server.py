"""Proves what the server machine answers, on a simulated network and virtual time: each request once."""

from __future__ import annotations

import struct
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.server_world import GID, GLOBAL, LOCAL, REMOTE, UID, Client, World, text
from pypmix.engine import times
from pypmix.engine.python import fences, modex
from pypmix.engine.python.serverside import handshakes
from pypmix.standard import attrs, codes, ops
from pypmix.standard.errors import PermissionDenied, PMIxError, RemoteProtocolError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.limits import Limits
from pypmix.standard.statuses import (
    ERR_BAD_PARAM,
    ERR_EXISTS,
    ERR_INIT,
    ERR_INVALID_CRED,
    ERR_NO_PERMISSIONS,
    ERR_NOT_FOUND,
    ERR_NOT_SUPPORTED,
    ERR_OUT_OF_RESOURCE,
    ERR_PARTIAL_SUCCESS,
    ERR_TIMEOUT,
    ERR_UNKNOWN_DATA_TYPE,
    ERR_UNPACK_FAILURE,
    ERROR,
    SUCCESS,
)
from pypmix.standard.structures import Cpuset
from pypmix.standard.types import RANK_UNDEF, RANK_WILDCARD, DataArray, Info, Pdata, Proc, Value
from pypmix.wire.additions import greeting
from pypmix.wire.codec import Packer, Unpacker
from pypmix.wire.frames import TAG_DATA_DELETE, TAG_HEARTBEAT, frame
from pypmix.wire.handshake import Hello, native_credential
from pypmix.wire.jobinfo import decode_jobinfo
from pypmix.wire.messages import (
    Command,
    encode_commit,
    encode_kval,
    reply_layout,
    request_layout,
)

QUALIFIER = 8


@pytest.fixture
def world():
    return World()


@pytest.fixture(params=[1, 2], ids=["plain", "described"])
def three(world, request):
    return world.clients(0, 1, 2, buffer_type=request.param)


# Connections.


def test_a_client_is_welcomed_and_the_host_told(world):
    client = Client(world, 1, version="6.1.0", infos=(attrs.PARENT_ID(Proc("x", 0)),)).connect()
    assert client.welcome[0] == SUCCESS
    (op,) = world.upcalls
    assert isinstance(op, ops.ClientConnected)
    assert (op.proc, op.release, len(op.directives)) == (Proc("job", 1), "6.1.0", 1)


@pytest.mark.parametrize(
    ("hello", "status"),
    [
        ({"rank": 3}, ERR_NOT_FOUND),
        ({"rank": RANK_WILDCARD}, ERR_NOT_FOUND),
        ({"nspace": "other"}, ERR_NOT_FOUND),
        ({"nspace": ""}, ERR_NOT_FOUND),
        ({"credential": native_credential(UID + 1, GID)}, ERR_INVALID_CRED),
        ({"credential": native_credential(UID, GID + 1)}, ERR_INVALID_CRED),
        ({"credential": b"short"}, ERR_INVALID_CRED),
        ({"psec": "none", "credential": b""}, ERR_INVALID_CRED),
        ({"psec": "munge", "credential": b"MUNGE:x"}, ERR_INVALID_CRED),
        ({"bfrops": "v3"}, ERR_NOT_SUPPORTED),
        ({"version": "3.2.4", "bfrops": "v3"}, ERR_NOT_SUPPORTED),
        ({"version": "4.0.1"}, ERR_NOT_SUPPORTED),
        ({"version": "2.0.3"}, ERR_NOT_SUPPORTED),
        ({"version": "new"}, ERR_NOT_SUPPORTED),
        ({"gds": "ds21"}, ERR_NOT_SUPPORTED),
    ],
)
def test_who_is_refused(world, hello, status):
    client = Client(world, **{"rank": 0, **hello}).connect()
    reads_status = hello.get("version", "5.0.11") == "5.0.11"
    assert client.welcome == ((status, 0) if reads_status else None)
    assert client.link.closed
    assert len(world.logged) == 1
    assert not world.upcalls
    assert Client(world, 0).connect().welcome[0] == SUCCESS


def test_a_name_of_a_stranger_does_nothing_to_the_log(world):
    Client(world, 0, nspace="\x1b[31m\x9b \u202e\npypmix run: rank 0 was killed by root").connect()
    (line,) = world.logged
    assert line.isprintable()
    assert line.startswith(r"\x1b[31m\x9b \u202e\npypmix run: rank 0 was killed by root:0 refused: ")


def test_refusals_are_counted_when_they_are_many_and_told_again_later(world):
    for number in range(10_100):
        Client(world, 0, nspace=f"handshake{number}").connect()
    assert len(world.logged) == 20
    Client(world, 0, version="4.0.1").connect()
    assert len(world.logged) == 20
    world.advance(61)
    Client(world, 0, nspace="another").connect()
    # Who was refused so often is heard later.
    world.advance(61)
    assert len(world.logged) == 21
    assert "another:0 refused: " in world.logged[-1]
    assert "… 10,081 more like this in the 6" in world.logged[-1]


@pytest.mark.parametrize(
    ("user", "status"), [(UID, SUCCESS), (0, SUCCESS), (UID + 1, ERR_INVALID_CRED), (-1, ERR_INVALID_CRED)]
)
def test_what_the_kernel_knows_outweighs_the_credential(world, user, status):
    client = Client(world, 0)
    client.link.user = user
    assert client.connect().welcome[0] == status


@pytest.mark.parametrize("claim", [(0, 0), (65534, 65534), (UID, GID + 1), (UID, GID)])
@pytest.mark.parametrize(
    ("user", "admits"), [(UID, "any"), (0, "the right one"), (UID + 1, "none"), (-1, "none")], ids=str
)
def test_a_claim_counts_only_where_the_kernel_says_root(world, user, admits, claim):
    """In a rootless container a process has another number for the same user."""
    client = Client(world, 0, credential=native_credential(*claim))
    client.link.user = user
    taken = admits == "any" or (admits == "the right one" and claim == (UID, GID))
    assert client.connect().welcome[0] == (SUCCESS if taken else ERR_INVALID_CRED)


def test_what_munge_is_to_prove_the_kernel_does_not_replace(world):
    world.server.handshakes.security = world.server.handshakes.admission._security = ("native", "munge")
    world.authenticate = lambda _credential, answer: answer((UID + 1, GID), None)
    client = Client(world, 0, user=UID, psec="munge", credential=b"another's")
    client.link.user = UID
    assert client.connect().welcome[0] == ERR_INVALID_CRED


@pytest.mark.parametrize(
    ("security", "hello", "heard", "status"),
    [
        (("native",), {}, False, None),
        (("native", "unchecked"), {}, True, SUCCESS),
        (("native", "unchecked"), {"nspace": "guessed"}, True, ERR_NOT_FOUND),
        (("native", "unchecked"), {"psec": "unchecked"}, True, ERR_INVALID_CRED),
        (("native", "munge"), {}, True, ERR_INVALID_CRED),
        (("native", "munge"), {"psec": "munge", "credential": b"good"}, True, SUCCESS),
        (("munge",), {"psec": "munge", "credential": b"bad"}, True, None),
    ],
)
def test_where_the_kernel_tells_of_nobody_something_else_proves_the_user(world, security, hello, heard, status):
    world.server.handshakes.security = world.server.handshakes.admission._security = security
    client = Client(world, 0, user=None, **hello)
    assert client.link.closed != heard
    if heard:
        client.connect()
        assert (client.welcome or (None,))[0] == status


def test_what_a_client_adds_is_not_decoded_before_it_is_known(world, monkeypatch):
    """Infos can be made to cost much, and anybody can send them."""
    read = []
    complete = Hello.complete
    monkeypatch.setattr(Hello, "complete", lambda hello: read.append(hello.nspace) or complete(hello))
    infos = (attrs.PARENT_ID(Proc("x", 0)),)
    for changes in ({"nspace": "other"}, {"rank": 7}, {"credential": native_credential(1, 1)}, {"psec": "none"}):
        assert Client(world, **{"rank": 0, **changes}, infos=infos).connect().welcome[0] != SUCCESS
    assert not read
    assert Client(world, 0, infos=infos).connect().welcome[0] == SUCCESS
    assert read == ["job"]


def test_infos_that_are_none_are_refused(world):
    client = Client(world, 0, infos=(attrs.PARENT_ID(Proc("x", 0)),))
    client.hello = client.hello[:-1] + b"\xff"
    assert client.connect().welcome[0] < 0
    assert client.link.closed and len(world.logged) == 1 and not world.upcalls


@pytest.mark.parametrize(
    ("version", "reads_status"),
    [
        ("4.2.9", False),
        ("5.0.8", False),
        ("5.0.9", True),
        ("5.0.11rc1", True),
        ("6.0.0", False),
        ("6.1.0", True),
        ("7.0.0a1", True),
    ],
)
def test_a_status_is_told_to_those_that_read_it(world, version, reads_status):
    client = Client(world, 0, nspace="other", version=version).connect()
    assert client.welcome == ((ERR_NOT_FOUND, 0) if reads_status else None)
    assert client.link.closed


def test_nobody_is_welcome_before_registration(world):
    world.server.register_nspace(JobInfo("late", (attrs.JOB_SIZE(1),)))
    assert Client(world, 0, nspace="late").connect().welcome == (ERR_NOT_FOUND, 0)
    world.server.register_client(Proc("late", 0), UID, GID)
    assert Client(world, 0, nspace="late").connect().welcome[0] == SUCCESS
    with pytest.raises(PMIxError):
        world.server.register_client(Proc("late", 1), UID, GID)


@pytest.mark.parametrize("version", ["4.2.2rc2", "5.0.11rc1", "6.1.0", "7.0.0a1"])
@pytest.mark.parametrize("bfrops", ["v41", "v61"])
def test_all_generations_are_welcome(world, version, bfrops):
    assert Client(world, 0, version=version, bfrops=bfrops).connect().welcome[0] == SUCCESS


def test_the_host_decides():
    answers = []
    world = World(answer=answers)
    yes, no, gone = (Client(world, rank).connect() for rank in range(3))
    assert yes.welcome is None
    gone.die()
    answers[0](None, None)
    answers[1](None, PermissionDenied("not you"))
    answers[2](None, None)
    yes.read()
    no.read()
    assert yes.welcome[0] == SUCCESS
    assert no.welcome == (ERR_NO_PERMISSIONS, 0)
    assert no.link.closed


def test_what_comes_before_the_host_has_decided_is_served_after():
    answers = []
    world = World(answer=answers)
    client = Client(world, 0)
    request = frame(0, 101, request_layout(Command.REQ, (5, 0, 11)).encode(1, (5, 0, 11)))
    client.asked[101] = True
    client.link.owner.received(client.hello + request)
    assert not client.link.out
    answers[0](None, None)
    client.read()
    assert client.replies[101]


def test_a_handshake_may_come_in_pieces(world):
    client = Client(world, 0)
    for position in range(len(client.hello)):
        client.link.owner.received(client.hello[position : position + 1])
    client.read()
    assert client.welcome[0] == SUCCESS


@pytest.mark.parametrize("sent", [0, 1, 16, 30])
def test_a_stalled_handshake_is_dropped(world, sent):
    client = Client(world, 0)
    if sent:
        client.link.owner.received(client.hello[:sent])
    world.advance(times.HANDSHAKE_SECONDS / 2)
    second = Client(world, 1)
    world.advance(times.HANDSHAKE_SECONDS / 2)
    assert client.link.closed
    assert not second.link.closed
    assert second.connect().welcome[0] == SUCCESS
    world.advance(times.HANDSHAKE_SECONDS)
    assert not second.link.closed


@pytest.mark.parametrize("data", [b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 40, b"\0" * 40])
def test_garbage_instead_of_a_handshake(world, data):
    client = Client(world, 0)
    client.link.owner.received(data)
    assert client.link.closed
    assert world.logged


def test_strangers_are_bounded_and_the_oldest_goes(world, monkeypatch):
    monkeypatch.setattr(handshakes, "MAX_HANDSHAKES", 4)
    silent = [Client(world, 0) for _ in range(4)]
    assert Client(world, 1).connect().welcome[0] == SUCCESS
    assert [client.link.closed for client in silent] == [True, False, False, False]
    assert len(world.server.handshakes.incomplete) == 3


def test_a_proc_may_connect_twice(world):
    first, clone, other = world.clients(0, 0, 1)
    clone.die()
    assert not any(isinstance(op, ops.ClientLost) for op in world.upcalls)
    tag = other.fence(Proc("job", 0), Proc("job", 1))
    assert first.status(first.fence(Proc("job", 1), Proc("job", 0))) == SUCCESS
    assert other.status(tag) == SUCCESS
    first.die()
    assert [op.proc for op in world.upcalls if isinstance(op, ops.ClientLost)] == [Proc("job", 0)]


def test_a_clone_takes_only_its_own_contribution_along(world):
    first, clone, other = world.clients(0, 0, 1)
    pair = Proc("job", 0), Proc("job", 1)
    clone.fence(*pair)
    clone.die()
    tag = other.fence(*pair)
    assert other.status(tag) is None
    assert first.status(first.fence(*pair)) == SUCCESS
    assert other.status(tag) == SUCCESS


def test_the_end_of_a_connection_is_taken_in_once(world):
    first, second = (Client(world, 0).connect() for _ in range(2))
    for client in (first, second):
        assert client.status(client.ask(Command.FINALIZE)) == SUCCESS
        owner = client.link.owner
        owner.handle_disconnect()
        owner.handle_disconnect()
    assert not world.logged


def test_an_empty_request_does_not_parse(world):
    (client,) = world.clients(0)
    assert client.status(client.send(b"")) == ERR_UNPACK_FAILURE
    assert "does not parse" in world.logged[0]


def test_a_clone_that_finalizes_does_not_take_its_proc_along(world):
    first, clone, other = world.clients(0, 0, 1)
    tag = other.fence(Proc("job", 0), Proc("job", 1))
    clone.ask(Command.FINALIZE)
    clone.die()
    assert other.status(tag) is None
    first.ask(Command.FINALIZE)
    assert other.status(tag) == ERR_PARTIAL_SUCCESS


def test_a_proc_may_come_back_after_finalize(world):
    first, other = world.clients(0, 1)
    first.ask(Command.FINALIZE)
    first.die()
    again = Client(world, 0).connect()
    tag = other.fence(Proc("job", 0), Proc("job", 1))
    assert other.status(tag) is None
    again.fence(Proc("job", 0), Proc("job", 1))
    assert other.status(tag) == SUCCESS


def test_two_nspaces_of_one_name_cannot_be(world):
    with pytest.raises(PMIxError) as info:
        world.add("job", 1)
    assert info.value.code == ERR_EXISTS


# Requests that are none.


@pytest.mark.parametrize("kind", [1, 2], ids=["plain", "described"])
def test_publish_goes_to_the_host_in_the_name_of_whom_the_server_knows(kind):
    pending = []
    world = World(answer=True)
    (client,) = world.clients(1, buffer_type=kind)
    world.answer = pending
    custom = attrs.ACCESS_USERIDS(DataArray(codes.UINT32, (7,)))
    infos = (Info("port", text("x")), attrs.RANGE(3), Info("n", text("y")), attrs.PERSISTENCE(1), custom)
    tag = client.ask(Command.PUBLISHNB, uid=0, infos=infos)
    assert world.upcalls[-1] == ops.Publish((infos[0], infos[2]), 3, 1, (custom,))
    assert (world.askers[-1].proc, world.askers[-1].uid) == (client.proc, UID)
    assert client.status(tag) is None
    pending.pop()(None, None)
    assert client.status(tag) == SUCCESS
    tag = client.ask(Command.UNPUBLISHNB, uid=0, keys=("port",), infos=())
    assert world.upcalls[-1] == ops.Unpublish(("port",))
    pending.pop()(None, PMIxError("no", status=ERR_NOT_FOUND))
    assert client.status(tag) == ERR_NOT_FOUND
    tag = client.ask(Command.UNPUBLISHNB, uid=0, keys=(), infos=())
    assert world.upcalls[-1] == ops.Unpublish()


@pytest.mark.parametrize(
    ("release", "found", "status"),
    [
        ("5.0.11", ("a", "b"), SUCCESS),
        ("7.0.0", ("a", "b"), SUCCESS),
        ("5.0.11", ("b",), SUCCESS),
        ("7.0.0", ("b",), ERR_PARTIAL_SUCCESS),
        ("7.0.0", (), ERR_NOT_FOUND),
    ],
)
def test_lookup_answers_in_the_way_that_the_client_understands(world, release, found, status):
    pending = []
    (client,) = world.clients(1, version=release)
    world.answer = pending
    tag = client.ask(Command.LOOKUPNB, uid=0, keys=("a", "b", "a"), infos=(attrs.WAIT(0),))
    assert world.upcalls[-1].keys == ("a", "b")
    data = tuple(Pdata(Proc("job", 2), key, text(key)) for key in found)
    pending.pop()(data, None)
    assert client.status(tag) == status
    reply = reply_layout(Command.LOOKUPNB, (5, 0, 11)).decode(client.replies[tag], 1, (5, 0, 11))
    assert reply["data"] == data


def test_the_answer_to_a_lookup_of_a_client_that_has_gone_is_dropped(world):
    pending = []
    (client,) = world.clients(1)
    world.answer = pending
    client.ask(Command.LOOKUPNB, uid=0, keys=("a",), infos=())
    answer = pending.pop()
    client.die()
    answer((Pdata(Proc("job", 2), "a", text("x")),), None)


def test_framing_that_is_lost_ends_the_connection_and_nothing_else(world):
    bad, good, third = world.clients(0, 1, 2)
    tag = good.fence()
    third.fence()
    bad.link.owner.received(b"\0\0\0\0\0\0\0\x65\x80\0\0\0\0\0\0\0")
    assert bad.link.closed
    assert good.status(tag) == ERR_PARTIAL_SUCCESS
    assert [text for text in world.logged if "job:0" in text]


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (b"", ERR_UNPACK_FAILURE),
        (b"\2", ERR_UNPACK_FAILURE),
        (b"\xff\xff\xff", ERR_UNPACK_FAILURE),
        (b"\2\3", ERR_UNPACK_FAILURE),
        (b"\2\3\2\xff\xff\xff\xff\xff\xff\xff\xff\xff", ERR_UNPACK_FAILURE),
        (b"\2\3\2\0\2\0", ERR_BAD_PARAM),
        (b"\2\4\2", ERR_UNPACK_FAILURE),
        (b"\2\2\2", ERR_UNPACK_FAILURE),
        (b"\2\2\2\1\2\1\xff", ERR_UNPACK_FAILURE),
        (b"\2\1\2", ERR_UNPACK_FAILURE),
        (b"\2\x21\2", ERR_UNPACK_FAILURE),
        (b"\2\x63", ERR_NOT_SUPPORTED),
        *((bytes((2, command)), ERR_UNPACK_FAILURE) for command in (*range(6, 14), *range(15, 25), 28, *range(29, 33))),
        *((bytes((2, command)), ERR_UNPACK_FAILURE) for command in (37, 38)),
        (request_layout(7, (5, 0, 11)).encode(1, (5, 0, 11), uid=1, keys=("a" * 600,), infos=()), ERR_BAD_PARAM),
        (request_layout(7, (5, 0, 11)).encode(1, (5, 0, 11), uid=1, keys=("",), infos=()), ERR_BAD_PARAM),
        (request_layout(7, (5, 0, 11)).encode(1, (5, 0, 11), uid=1, keys=(), infos=()), ERR_BAD_PARAM),
        (request_layout(7, (5, 0, 11)).encode(1, (5, 0, 11), uid=1, keys=(None,), infos=()), ERR_BAD_PARAM),
        (request_layout(6, (5, 0, 11)).encode(1, (5, 0, 11), uid=1, infos=()), ERR_BAD_PARAM),
        *((bytes((2, command)), ERR_NOT_SUPPORTED) for command in (25, 26, 27, 34, 39)),
    ],
)
def test_a_bad_request_is_answered(world, payload, status):
    client, other, third = world.clients(0, 1, 2)
    assert client.status(client.send(payload)) == status
    tags = [(each, each.fence()) for each in (client, other, third)]
    assert [each.status(tag) for each, tag in tags] == [SUCCESS] * 3


def test_the_log_names_a_bad_client_once(world):
    (client,) = world.clients(1)
    client.send(b"\2\4\2")
    client.send(b"\2\4\2")
    assert len(world.logged) == 1
    assert "job:1" in world.logged[0]


def test_what_has_no_reply_gets_none(world):
    (client,) = world.clients(0)
    client.ask(Command.REGEVENTS, codes=(-1, -2), infos=())
    assert list(map(client.status, client.replies)) == [SUCCESS]
    layout = request_layout(Command.DEREGEVENTS, (5, 0, 11))
    client.send(layout.encode(1, (5, 0, 11), codes=(-1,)), answered=False)
    client.send(b"\2\x0e\xff", answered=False)
    client.link.owner.received(frame(0, TAG_HEARTBEAT, b""))
    client.read()
    assert not client.asked


def test_nothing_is_served_after_finalize(three):
    client = three[0]
    assert client.status(client.ask(Command.FINALIZE)) == SUCCESS
    assert client.status(client.fence()) == ERR_INIT


# Fence.


def test_fence(three):
    tags = [client.fence() for client in three]
    assert [client.status(tag) for client, tag in zip(three, tags, strict=True)] == [SUCCESS] * 3


def test_fence_again_and_again(three):
    for _ in range(3):
        tags = [client.fence() for client in three[:2]]
        assert [client.status(tag) for client, tag in zip(three, tags, strict=False)] == [None, None]
        tags.append(three[2].fence())
        assert [client.status(tag) for client, tag in zip(three, tags, strict=True)] == [SUCCESS] * 3


def test_fence_of_clients_with_different_buffers(world):
    (a,), (b,), (c,) = world.clients(0), world.clients(1, buffer_type=2), world.clients(2)
    tags = [client.fence() for client in (a, b, c)]
    assert len(set(tags)) == 1
    assert [client.status(tags[0]) for client in (a, b, c)] == [SUCCESS] * 3
    assert len(b.replies[tags[0]]) > len(a.replies[tags[0]])


def test_fence_names_procs_in_any_way(world):
    a, b, c = world.clients(0, 1, 2)
    procs = [Proc("job", rank) for rank in range(3)]
    tag = a.fence()
    b.fence(*reversed(procs))
    assert c.status(c.fence(procs[1], procs[0], procs[2], procs[0])) == SUCCESS
    assert a.status(tag) == SUCCESS


@pytest.mark.parametrize(
    ("procs", "status"),
    [
        ((Proc("job", 1), Proc("job", 2)), ERR_BAD_PARAM),
        ((Proc("job", 0), Proc("job", 3)), ERR_NOT_FOUND),
        ((Proc("job", 0), Proc("other", RANK_WILDCARD)), ERR_NOT_FOUND),
        ((Proc("job", 0), Proc("job", RANK_UNDEF)), ERR_BAD_PARAM),
    ],
)
def test_a_fence_that_cannot_end_is_refused_at_once(three, procs, status):
    assert three[0].status(three[0].fence(*procs)) == status


@pytest.mark.parametrize("timeout", [Value(codes.INT, -1), Value(codes.STRING, "soon"), Value(codes.BOOL, True)])
def test_a_timeout_that_is_none(three, timeout):
    assert three[0].status(three[0].fence(infos=(Info("pmix.timeout", timeout),))) == ERR_BAD_PARAM


def test_fence_timeout(world):
    a, b, c = world.clients(0, 1, 2)
    tag = a.fence(infos=(attrs.TIMEOUT(3),))
    world.advance(2.9)
    assert a.status(tag) is None
    (entry,) = world.server.pending()
    assert (entry.arrived, entry.missing) == ((a.proc,), (b.proc, c.proc))
    world.advance(0.2)
    assert a.status(tag) == ERR_TIMEOUT


def test_fence_across_jobs(world):
    world.add("two", 1)
    procs = Proc("job", 0), Proc("two", 0)
    (a,) = world.clients(0)
    b = Client(world, 0, nspace="two").connect()
    tag = a.fence(*procs)
    assert b.status(b.fence(*procs)) == SUCCESS
    assert a.status(tag) == SUCCESS


def test_who_dies_is_not_waited_for(world):
    a, b, c = world.clients(0, 1, 2)
    tags = [a.fence(), b.fence()]
    c.die()
    assert [a.status(tags[0]), b.status(tags[1])] == [ERR_PARTIAL_SUCCESS] * 2
    assert isinstance(world.upcalls[-1], ops.ClientLost)
    tags = [a.fence(), b.fence()]
    assert [a.status(tags[0]), b.status(tags[1])] == [ERR_PARTIAL_SUCCESS] * 2


def test_a_process_that_never_connected_is_not_waited_for(world):
    a, b = world.clients(0, 1)
    tags = [a.fence(), b.fence()]
    world.server.deregister_client(Proc("job", 2))
    assert [a.status(tags[0]), b.status(tags[1])] == [ERR_PARTIAL_SUCCESS] * 2


def test_a_process_that_has_ended_may_still_deliver_its_finalize(world):
    a, b = world.clients(0, 1)
    pair = Proc("job", 0), Proc("job", 1)
    tag = a.fence(*pair)
    world.server.deregister_client(b.proc)
    assert a.status(tag) is None
    b.ask(Command.FINALIZE)
    b.die()
    assert a.status(tag) == ERR_PARTIAL_SUCCESS
    assert a.status(a.fence(*pair)) == ERR_PARTIAL_SUCCESS
    assert not any(isinstance(op, ops.ClientLost) for op in world.upcalls)


def test_a_connection_that_outlives_its_process_is_dropped(world):
    a, b = world.clients(0, 1)
    tag = a.fence(Proc("job", 0), Proc("job", 1))
    world.server.deregister_client(b.proc)
    world.advance(times.LINGER_SECONDS + 1)
    assert a.status(tag) == ERR_PARTIAL_SUCCESS
    assert b.link.closed


def test_a_job_that_goes_away(world):
    world.add("two", 1)
    (a,) = world.clients(0)
    b = Client(world, 0, nspace="two").connect()
    tag = a.fence(Proc("job", 0), Proc("two", 0))
    wait = a.get(0, "k", nspace="two")
    some = a.get(RANK_UNDEF, "k", nspace="two")
    world.server.deregister_nspace("two")
    assert a.status(tag) == ERR_PARTIAL_SUCCESS
    assert (a.status(wait), a.status(some)) == (ERR_NOT_FOUND, ERR_NOT_FOUND)
    assert b.link.closed
    assert a.status(a.fence(Proc("job", 0), Proc("two", 0))) == ERR_NOT_FOUND
    world.add("two", 1)
    c = Client(world, 0, nspace="two").connect()
    tag = a.fence(Proc("job", 0), Proc("two", 0))
    assert a.status(tag) is None
    assert c.status(c.fence(Proc("job", 0), Proc("two", 0))) == SUCCESS
    assert a.status(tag) == SUCCESS


# Upcalls.


def test_abort_and_finalize_wait_for_the_host():
    answers = []
    world = World(answer=answers)
    client = Client(world, 0).connect()
    answers.pop()(None, None)
    client.read()
    targets = (Proc("job", 1),)
    tag = client.ask(Command.ABORT, code=-7, message="over", procs=targets)
    assert client.status(tag) is None
    assert world.upcalls[-1] == ops.ClientAborted(client.proc, -7, "over", targets)
    answers.pop()(None, PMIxError("no", status=ERR_NOT_SUPPORTED))
    assert client.status(tag) == ERR_NOT_SUPPORTED
    tag = client.ask(Command.FINALIZE)
    assert client.status(tag) is None
    answers.pop()(None, None)
    assert client.status(tag) == SUCCESS
    client.die()
    assert [type(op).__name__ for op in world.upcalls] == ["ClientConnected", "ClientAborted", "ClientFinalized"]


# Job info.


JOB = {
    "job": (attrs.UNIV_SIZE(8), attrs.JOBID("job")),
    "nodes": ((attrs.NODEID(0), attrs.HOSTNAME("here"), attrs.LOCAL_PEERS("0,1,2")),),
    "procs": tuple([(rank, (attrs.RANK(rank), attrs.LOCAL_RANK(rank))) for rank in range(3)]),
}


@pytest.mark.parametrize("version", ["4.2.2", "5.0.11", "6.1.0", "7.0.0"])
@pytest.mark.parametrize("buffer_type", [1, 2])
def test_job_info(version, buffer_type):
    world = World(**JOB)
    (client,) = world.clients(1, version=version, buffer_type=buffer_type)
    tag = client.ask(Command.REQ)
    job = decode_jobinfo(client.replies[tag], buffer_type, (7, 0, 0))
    assert job == world.server.store.get("job").job


def test_get_of_job_info(three):
    client = three[0]
    tag = client.get(RANK_WILDCARD, "pmix.job.size")
    assert client.value(tag, RANK_WILDCARD, "pmix.job.size").data == 3
    assert client.status(client.get(RANK_WILDCARD, "pmix.none")) == ERR_NOT_FOUND
    tag = client.get(RANK_UNDEF, "pmix.job.size")
    assert client.value(tag, RANK_WILDCARD, "pmix.job.size").data == 3


def test_get_of_another_job():
    world = World()
    world.add("two", 3, **JOB)
    (client,) = world.clients(0)
    other = Client(world, 1, nspace="two").connect()
    tag = client.get(RANK_WILDCARD, "pmix.univ.size", nspace="two")
    assert client.value(tag, RANK_WILDCARD, "pmix.job.size", "two").data == 3
    tag = client.get(2, "pmix.lrank", nspace="two")
    assert client.value(tag, 2, "pmix.lrank", "two").data == 2
    other.commit(("k", text("v")))
    tag = client.get(1, "k", nspace="two")
    assert client.value(tag, 1, "k", "two") == text("v")
    assert client.value(tag, 1, "pmix.lrank", "two").data == 1
    assert client.value(tag, RANK_WILDCARD, "pmix.job.size", "two").data == 3


@pytest.mark.parametrize(
    ("rank", "nspace"), [(3, "job"), (0, "other"), (RANK_WILDCARD, "other"), (RANK_UNDEF, "other")]
)
def test_get_of_nobody(three, rank, nspace):
    assert three[0].status(three[0].get(rank, "k", nspace=nspace)) == ERR_NOT_FOUND


# Commit and get.


def test_get_returns_all_of_a_rank(three):
    a, b, _ = three
    assert a.status(a.commit(("k", text("v")), ("n", Value(codes.UINT32, 7)))) == SUCCESS
    tag = b.get(0, "k")
    assert b.status(tag) == SUCCESS
    assert b.objects(tag) == [(a.proc, [("k", text("v")), ("n", Value(codes.UINT32, 7))])]


def test_a_later_commit_replaces(three):
    a, b, _ = three
    a.commit(("k", text("old")), ("other", text("stays")))
    b.get(0, "k")
    a.commit(("k", text("new")))
    tag = b.get(0, "k", attrs.GET_REFRESH_CACHE(True))
    assert (b.value(tag, 0, "k"), b.value(tag, 0, "other")) == (text("new"), text("stays"))


def test_buffer_types_may_differ(world):
    (a,) = world.clients(0)
    (b,) = world.clients(1, buffer_type=2)
    values = [("s", text("v")), ("a", Value(codes.DATA_ARRAY, DataArray(codes.UINT32, (1, 2)))), ("d", Value(17, 0.5))]
    a.commit(*values)
    b.commit(*values)
    tag = b.get(0, "a")
    assert b.objects(tag) == [(a.proc, values)]
    tag = a.get(1, "a")
    assert a.objects(tag) == [(b.proc, values)]


def test_unknown_types_are_relayed(world):
    a, b = world.clients(0, 1)
    kval = encode_kval(1, "k", text("v"))
    strange = kval.replace(b"\3\4v\0", b"\x7fwhatever")
    assert strange != kval
    assert a.status(a.send(encode_commit(1, [(LOCAL, strange)]))) == SUCCESS
    tag = b.get(0, "k")
    assert strange in b.replies[tag]


UNKNOWN = b"\x7fwhatever"
REGEX = b"\x31raw:a,b\0"


def strange(key, value):
    kval = encode_kval(1, key, text("v"))
    return kval.replace(b"\3\4v\0", value)


@pytest.mark.parametrize("value", [UNKNOWN, REGEX, b"\x27\x15\2\1\1" + UNKNOWN], ids=["unknown", "regex", "nested"])
@pytest.mark.parametrize("kind", [1, 2], ids=["plain", "described"])
def test_what_not_everybody_can_read_goes_to_those_who_ask_for_it(world, value, kind):
    a, b = world.clients(0, 1)
    (c,) = world.clients(2, buffer_type=kind, infos=(greeting("1"),))
    bad = strange("bad", value)
    a.send(encode_commit(1, [(scope, encode_kval(1, "good", text("v")) + bad) for scope in (LOCAL, REMOTE)]))
    b.commit(("mine", text("w")))
    tags = [each.fence(infos=(attrs.COLLECT_DATA(True),)) for each in (a, b, c)]
    assert [each.status(tag) for each, tag in zip((a, b, c), tags, strict=True)] == [SUCCESS] * 3
    # Neither beside what another rank has committed nor beside what this one has.
    for rank, key in ((1, "mine"), (0, "good")):
        tag = c.get(rank, key)
        assert c.value(tag, rank, key) is not None
        # Our own readers decode a REGEX, and nobody can read on behind an unknown type.
        assert (value in c.replies[tag]) == (value == REGEX)
        tag = b.get(rank, key)
        assert value not in b.replies[tag]
    tag = c.get(0, "bad")
    if kind == 1 or value == REGEX:
        assert value in c.replies[tag]
        assert c.objects(tag)[0][1][0] == ("good", text("v"))
    else:
        assert c.status(tag) == ERR_UNKNOWN_DATA_TYPE
    # A libpmix that takes in a REGEX crashes.
    tag = b.get(0, "bad")
    assert (b.status(tag) == ERR_UNKNOWN_DATA_TYPE) == (value == REGEX)
    # What replaces it is like any other.
    a.commit(("bad", text("now")))
    assert b.value(b.get(0, "bad"), 0, "bad") == text("now")


def test_a_commit_of_too_many_values_is_refused_by_a_status_and_takes_no_time(world):
    a, b = world.clients(0, 1)
    many = encode_kval(1, "k", Value(codes.BOOL, True)) * 100_000
    assert a.status(a.send(encode_commit(1, [(LOCAL, many)]))) == ERR_OUT_OF_RESOURCE
    numbers = Value(codes.DATA_ARRAY, DataArray(codes.INT64, (1,) * 300_000))
    assert a.status(a.commit(("k", numbers))) == ERR_OUT_OF_RESOURCE
    blocks = encode_commit(1, [(LOCAL, b"")] * 65)
    assert a.status(a.send(blocks)) == ERR_UNPACK_FAILURE
    fewer = Value(codes.DATA_ARRAY, DataArray(codes.INT64, (1,) * 100_000))
    assert a.status(a.commit(("k", fewer))) == SUCCESS
    assert b.value(b.get(0, "k"), 0, "k") == fewer


@pytest.mark.parametrize(
    ("put", "asked", "found"),
    [
        (LOCAL, None, True),
        (GLOBAL, None, True),
        (REMOTE, None, False),
        (LOCAL, LOCAL, True),
        (LOCAL, REMOTE, False),
        (REMOTE, REMOTE, True),
        (GLOBAL, REMOTE, True),
        (REMOTE, GLOBAL, True),
        (LOCAL, GLOBAL, True),
    ],
)
def test_scopes(three, put, asked, found):
    a, b, _ = three
    infos = () if asked is None else (attrs.DATA_SCOPE(asked),)
    wait = b.get(0, "k", *infos)
    a.commit(("k", text("v")), scope=put)
    assert b.status(wait) == (SUCCESS if found else ERR_NOT_FOUND)
    tag = b.get(0, "k", *infos)
    assert b.status(tag) == (SUCCESS if found else ERR_NOT_FOUND)
    if found:
        assert b.value(tag, 0, "k") == text("v")


def test_scopes_side_by_side_in_one_commit(three):
    a, b, _ = three
    kind = a.buffer_type
    both, here, there = (encode_kval(kind, key, text(key)) for key in ("both", "here", "there"))
    a.send(encode_commit(kind, [(LOCAL, both + here), (REMOTE, there + both)]))

    def seen(*infos):
        tag = b.get(0, "both", *infos)
        return {key for key, _ in b.objects(tag)[0][1]}

    assert seen() == {"both", "here"}
    assert seen(attrs.DATA_SCOPE(REMOTE)) == {"both", "there"}
    assert seen(attrs.DATA_SCOPE(GLOBAL)) == {"both", "here", "there"}


def test_the_next_commit_answers_all_gets_of_a_native(world):
    a, b = world.clients(0, 1)
    tag = b.get(0, "k")
    a.commit(("other", text("v")))
    assert b.value(tag, 0, "other") == text("v")
    assert not world.server.pending()


def test_get_of_pypmix_waits_for_the_commit(world):
    (a,) = world.clients(0)
    (b,) = world.clients(1, infos=(greeting("2026.1"),))
    tag = b.get(0, "k")
    a.commit(("other", text("v")))
    assert b.status(tag) is None
    (entry,) = world.server.pending()
    assert (entry.operation, entry.arrived, entry.missing) == ("get", (b.proc,), (a.proc,))
    world.advance(1)
    a.commit(("k", text("v")))
    assert b.value(tag, 0, "k") == text("v")
    world.advance(10)
    assert not world.server.pending()


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 2), (5, 5), (1, 1)])
def test_get_gives_up(world, timeout, seconds):
    a, b = world.clients(0, 1)
    tag = b.get(0, "k", *(() if timeout is None else (attrs.TIMEOUT(timeout),)))
    world.advance(seconds - 0.1)
    assert b.status(tag) is None
    world.advance(0.2)
    assert b.status(tag) == ERR_TIMEOUT
    a.commit(("k", text("v")))


def test_immediate_and_reserved_keys_never_wait(three):
    a, b, _ = three
    assert b.status(b.get(0, "k", attrs.IMMEDIATE(True))) == ERR_NOT_FOUND
    assert b.status(b.get(0, "pmix.hname")) == ERR_NOT_FOUND
    assert b.status(b.get(RANK_UNDEF, "k", attrs.IMMEDIATE(True))) == ERR_NOT_FOUND
    assert b.status(b.get(RANK_WILDCARD, "k")) == ERR_NOT_FOUND
    assert b.status(b.get(0, None)) == ERR_NOT_FOUND
    a.commit(("k", text("v")))
    assert b.status(b.get(0, None)) == SUCCESS


@pytest.mark.parametrize("end", ["finalize", "die"])
def test_nobody_waits_for_who_has_gone(three, end):
    a, b, _ = three
    a.commit(("k", text("v")))
    tag = b.get(0, "never")
    if end == "finalize":
        a.ask(Command.FINALIZE)
    else:
        a.die()
    assert b.status(tag) == ERR_NOT_FOUND
    assert b.status(b.get(0, "never")) == ERR_NOT_FOUND
    tag = b.get(0, "k")
    assert b.value(tag, 0, "k") == text("v")


def test_get_from_anybody(three):
    a, b, c = three
    tag = b.get(RANK_UNDEF, "k")
    a.commit(("other", text("v")))
    assert b.status(tag) is None
    c.commit(("k", text("v")))
    assert b.value(tag, 2, "k") == text("v")
    tag = a.get(RANK_UNDEF, "k")
    assert a.value(tag, 2, "k") == text("v")


def test_waiting_gets_are_bounded():
    world = World(limits=Limits(requests=2))
    a, b = world.clients(0, 1)
    b.get(0, "one")
    b.get(0, "two")
    assert b.status(b.get(0, "three")) == ERR_OUT_OF_RESOURCE
    a.commit(("one", text("v")))
    assert b.status(b.get(0, "three")) is None


def test_who_waits_may_die(world):
    a, b = world.clients(0, 1)
    b.get(0, "k")
    b.get(RANK_UNDEF, "k")
    b.die()
    assert not world.server.pending()
    a.commit(("k", text("v")))


def test_qualified_values(three):
    a, b, _ = three

    def qualified(value, number):
        array = DataArray(codes.INFO, (Info("cid", value), Info("ctx", Value(codes.SIZE, number), QUALIFIER)))
        return "pmix.qual.val", Value(codes.DATA_ARRAY, array)

    a.commit(qualified(text("one"), 1), qualified(text("two"), 2))
    asked = Info("ctx", Value(codes.SIZE, 2), QUALIFIER)
    tag = b.get(0, "cid", asked)
    found = [value.data.items[0].value for key, value in b.objects(tag)[0][1] if key == "pmix.qual.val"]
    assert found == [text("one"), text("two")]
    a.commit(qualified(text("three"), 2))
    tag = b.get(0, "cid", asked)
    found = [value.data.items[0].value for key, value in b.objects(tag)[0][1] if key == "pmix.qual.val"]
    assert found == [text("one"), text("three")]
    assert b.status(b.get(0, "cid", Info("ctx", Value(codes.SIZE, 3), QUALIFIER), attrs.IMMEDIATE(True))) == -46
    assert b.status(b.get(0, "cid", attrs.IMMEDIATE(True))) == ERR_NOT_FOUND


def test_a_reserved_key_with_a_qualifier_is_a_put_value(three):
    a, b, _ = three
    asked = Info("ctx", Value(codes.SIZE, 2), QUALIFIER)
    tag = b.get(0, "pmix.grp.lclid", asked)
    assert b.status(tag) is None
    array = DataArray(codes.INFO, (Info("pmix.grp.lclid", text("v")), asked))
    a.commit(("pmix.qual.val", Value(codes.DATA_ARRAY, array)))
    assert b.status(tag) == SUCCESS
    assert b.status(b.get(0, "pmix.grp.lclid")) == ERR_NOT_FOUND


def test_reserved_keys_in_a_commit_do_not_reach_others(three):
    a, b, _ = three
    a.commit(("pmix.job.size", Value(codes.UINT32, 99)), ("pmix.nonsense", text("x")), ("k", text("v")))
    tag = b.get(0, "k")
    assert b.objects(tag) == [(a.proc, [("k", text("v"))])]


@pytest.mark.parametrize("scope", [0, 4, 8, 255])
def test_a_commit_of_no_scope(three, scope):
    a, b, _ = three
    assert a.status(a.commit(("k", text("v")), scope=scope)) == ERR_BAD_PARAM
    assert b.status(b.get(0, "k", attrs.IMMEDIATE(True))) == ERR_NOT_FOUND


def test_a_commit_is_taken_whole_or_not_at_all(three):
    a, b, _ = three
    kind = a.buffer_type
    good = encode_kval(kind, "k", text("v"))
    long = encode_kval(kind, "x" * 500, text("v"))
    start = long.index(b"x" * 500)
    # The length of 501 with the NUL, zig-zag, becomes one of 601.
    long = long[: start - 2] + bytes((1202 & 127 | 128, 1202 >> 7)) + b"x" * 100 + long[start:]
    status = a.status(a.send(encode_commit(kind, [(LOCAL, good + long)])))
    assert status in (ERR_BAD_PARAM, ERR_UNPACK_FAILURE)
    assert b.status(b.get(0, "k", attrs.IMMEDIATE(True))) == ERR_NOT_FOUND
    assert a.status(a.send(encode_commit(kind, [(LOCAL, good + good[:-2])]))) == ERR_UNPACK_FAILURE
    assert b.status(b.get(0, "k", attrs.IMMEDIATE(True))) == ERR_NOT_FOUND
    assert a.status(a.send(encode_commit(kind, [(LOCAL, good)]))) == SUCCESS
    assert b.status(b.get(0, "k")) == SUCCESS


def test_deletion_reaches_those_who_can_hear_of_it(world):
    a, b = world.clients(0, 1, version="7.0.0")
    (c,) = world.clients(2, version="6.1.0")
    a.commit(("k", text("v")), ("l", text("w")))
    kval = encode_kval(1, "k", Value(codes.UNDEF))
    assert a.status(a.send(encode_commit(1, [(7, kval)]))) == SUCCESS
    for each in (a, b, c):
        each.read()
    ((tag, payload),) = b.pushed
    unpacker = Unpacker(payload)
    assert tag == TAG_DATA_DELETE
    assert [unpacker.one(t) for t in (codes.PROC, codes.SCOPE, codes.STRING)] == [a.proc, 7, "k"]
    assert not a.pushed
    assert not c.pushed
    assert c.status(c.get(0, "k", attrs.IMMEDIATE(True))) == ERR_NOT_FOUND
    assert c.status(c.get(0, "l")) == SUCCESS


def test_refresh_of_a_cache(three):
    a, b, _ = three
    a.commit(("k", text("v")))
    kind = b.buffer_type
    request = Packer(kind).pack(codes.COMMAND, 33).pack(codes.STRING, "job").pack(codes.PROC_RANK, 0).bytes()
    reply = Unpacker(b.replies[b.send(request)], kind)
    assert reply.one(codes.STATUS) == SUCCESS
    kval = reply.one(codes.KVAL)
    assert (kval.key, kval.value) == ("k", text("v"))


# What goes along with the first get after a collecting fence.


COLLECT = (attrs.COLLECT_DATA(True),)


def test_data_of_all_goes_along_after_a_collecting_fence(three):
    _, b, c = three
    for client in three:
        client.commit(("k", text(str(client.proc.rank))))
    for client in three:
        client.fence(infos=COLLECT)
    tag = b.get(2, "k")
    assert b.value(tag, 2, "k") == text("2")
    assert {proc.rank for proc, _ in b.objects(tag)} == {0, 2}, "its own data stays out"
    tag = b.get(2, "k")
    assert {proc.rank for proc, _ in b.objects(tag)} == {2}
    tag = c.get(0, "k")
    assert {proc.rank for proc, _ in c.objects(tag)} == {0, 1}


def test_nothing_goes_along_without_collect(three):
    for client in three:
        client.commit(("k", text("v")))
    for client in three:
        client.fence()
    tag = three[0].get(1, "k")
    assert len(three[0].objects(tag)) == 1


def test_too_much_does_not_go_along(three, monkeypatch):
    monkeypatch.setattr(modex, "MUCH", 100)
    for client in three:
        client.commit(("k", text("v" * 60)))
    for client in three:
        client.fence(infos=COLLECT)
    tag = three[0].get(1, "k")
    assert len(three[0].objects(tag)) == 2
    three[2].commit(("k", text("v" * 101)))
    tag = three[1].get(0, "k")
    assert len(three[1].objects(tag)) == 1


def test_who_has_too_much_is_left_out_and_the_others_go_along(monkeypatch):
    monkeypatch.setattr(modex, "MUCH", 4000)
    monkeypatch.setattr(modex, "SMALL", 100)
    world = World(4)
    everyone = [Client(world, rank, version="7.0.0", infos=(greeting("1"),)).connect() for rank in range(4)]
    for client, size in zip(everyone, (10, 200, 5000, 300), strict=True):
        client.commit(("k", text("v" * size)))
    for client in everyone:
        client.fence(infos=COLLECT)
    for rank, seen in ((0, {1, 3}), (1, {0, 3}), (2, {0, 1, 3}), (3, {0, 1})):
        asked = min(seen)
        tag = everyone[rank].get(asked, "k")
        assert {proc.rank for proc, _ in everyone[rank].objects(tag)} == seen


# Anything in any order.


SIZE = 4
PROCS = st.lists(st.integers(0, SIZE - 1), max_size=SIZE).map(lambda ranks: tuple(sorted(set(ranks))))
RANKS = st.integers(0, SIZE - 1)
STEPS = st.one_of(
    st.tuples(st.just("connect"), RANKS),
    st.tuples(st.just("fence"), RANKS, PROCS, st.sampled_from((0, 0, 3)), st.booleans()),
    st.tuples(st.just("fence"), RANKS, st.just(()), st.just(0), st.booleans()),
    st.tuples(st.just("commit"), RANKS, st.sampled_from("abc")),
    st.tuples(st.just("get"), RANKS, RANKS, st.sampled_from("abc"), st.sampled_from((0, 1, 5))),
    st.tuples(st.just("finalize"), RANKS),
    st.tuples(st.just("die"), RANKS),
    st.tuples(st.just("ended"), RANKS),
    st.tuples(st.just("wait"), st.sampled_from((0.5, 1, 3))),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=60))
def test_every_request_is_answered_once_and_in_time(steps):
    world = World(SIZE)
    live: dict[int, Client] = {}
    fences, gets = [], []
    data: dict[tuple[int, str], str] = {}
    numbers = count()
    gone = set()

    def check():
        for client in live.values():
            client.read()
        for client, tag, members, timeout in fences:
            status = client.status(tag) if client.link.owner else None
            assert status in (None, SUCCESS, ERR_PARTIAL_SUCCESS, ERR_TIMEOUT)
            if status == ERR_PARTIAL_SUCCESS:
                assert gone & members
            if status == ERR_TIMEOUT:
                assert timeout or any(entry[3] for entry in fences if entry[2] == members)
        for client, tag, rank, key in gets:
            if client.status(tag) == SUCCESS and tag in client.replies:
                # A native client's get ends with the proc's next commit, whatever that brings.
                found = client.value(tag, rank, key)
                assert found is None or found.data <= data[rank, key]

    for kind, *args in steps:
        if kind == "wait":
            world.advance(args[0])
            check()
            continue
        rank = args[0]
        client = live.get(rank)
        if kind == "connect":
            if client is None:
                live[rank] = Client(world, rank).connect()
        elif client is None:
            if kind == "ended":
                world.server.deregister_client(Proc("job", rank))
                gone.add(rank)
                world.server.register_client(Proc("job", rank), UID, GID)
        elif kind == "fence":
            members = {*args[1], rank} if args[1] else set(range(SIZE))
            procs = [Proc("job", member) for member in members] if args[1] else ()
            infos = (attrs.COLLECT_DATA(args[3]), *([attrs.TIMEOUT(args[2])] if args[2] else []))
            fences.append((client, client.fence(*procs, infos=infos), frozenset(members), args[2]))
        elif kind == "commit":
            data[rank, args[1]] = value = f"{next(numbers):04}"
            assert client.status(client.commit((args[1], text(value)))) == SUCCESS
        elif kind == "get":
            infos = (attrs.TIMEOUT(args[3]),) if args[3] else ()
            gets.append((client, client.get(args[1], args[2], *infos), args[1], args[2]))
        elif kind == "finalize":
            assert client.status(client.ask(Command.FINALIZE)) == SUCCESS
            gone.add(rank)
            client.read()
            client.die()
            del live[rank]
        elif kind == "die":
            gone.add(rank)
            client.die()
            del live[rank]
        check()

    world.advance(5)
    check()
    for client in live.values():
        assert all(payload[1] == Command.FENCENB for payload in client.asked.values()), "only a fence may wait for ever"
    asked = sum(len(client.asked) for client in live.values())
    arrived = sum(len(entry.arrived) for entry in world.server.pending())
    assert arrived >= asked
    for rank in range(SIZE):
        if rank not in live:
            live[rank] = Client(world, rank).connect()
    for client in live.values():
        tag = client.ask(Command.FINALIZE)
        assert client.status(tag) == SUCCESS
    gone.update(range(SIZE))
    for rank in range(SIZE):
        world.server.deregister_client(Proc("job", rank))
    check()
    assert not any(client.asked for client in live.values())
    assert not world.server.pending()
    for client in live.values():
        client.die()
    assert not [entry for entry in world.timers if entry[2].function and entry[0] > world.time + 10]


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans(), st.integers(0, 300))
def test_no_bytes_of_a_stranger_harm_anybody(pieces, header, length):
    world = World(2)
    (a,) = world.clients(0)
    handshake = Client(world, 1)
    if header:
        pieces = [struct.pack("=iIII", -1, 0xFFFFFFFF, length, 0), *pieces]
    for piece in pieces:
        if handshake.link.owner is not None:
            handshake.link.owner.received(piece)
    world.advance(times.HANDSHAKE_SECONDS)
    assert handshake.link.closed
    assert not world.server.handshakes.incomplete
    assert a.status(a.fence(Proc("job", 0))) == SUCCESS


def test_a_fault_of_the_server_is_logged_with_its_traceback_and_answered(world, monkeypatch):
    (client,) = world.clients(0)
    monkeypatch.setattr(fences, "decode_fence", lambda *arguments: 1 // 0)
    assert client.status(client.fence()) == ERROR
    assert "ZeroDivisionError" in world.logged[0] and "Traceback" in world.logged[0]


@settings(max_examples=300)
@given(st.binary(max_size=80), st.integers(0, 39), st.booleans())
def test_no_bytes_harm_anybody(data, command, described):
    world = World(2)
    a, b = world.clients(0, 1)
    (c,) = world.clients(0, buffer_type=2)
    payload = (b"\x09\2\x22" if described else b"\2") + bytes((command,)) + data
    for client in (a, c):
        understood = described == (client is c)
        client.send(payload, answered=command != Command.DEREGEVENTS or not understood)
    world.advance(100)
    fence = b.fence(Proc("job", 1))
    assert b.status(fence) == SUCCESS
    for client in (a, c):
        client.read()
        waits = sum(client.proc in entry.arrived for entry in world.server.pending())
        assert len(client.asked) <= waits


def test_thousands_of_procs():
    size = 2000
    world = World(size)
    clients = world.clients(*range(size))
    for round_ in range(2):
        tags = [client.fence() for client in clients[:-1]]
        assert clients[0].status(tags[0]) is None
        tags.append(clients[-1].fence())
        statuses = {client.status(tag) for client, tag in zip(clients, tags, strict=True)}
        assert statuses == {SUCCESS}, round_
    for client in clients[::2]:
        client.die()
    rest = clients[1::2]
    tags = [client.fence() for client in rest]
    assert {client.status(tag) for client, tag in zip(rest, tags, strict=True)} == {ERR_PARTIAL_SUCCESS}


def test_protocol_errors_carry_a_status():
    assert RemoteProtocolError("x").code == ERR_UNPACK_FAILURE


NESTED = Value(codes.DATA_ARRAY, DataArray(codes.DATA_ARRAY, (DataArray(codes.INT, (1, 2)),) * 2))
CPUSET = Value(codes.PROC_CPUSET, Cpuset("0-3"))
OLD, NEW = "4.2.2", "7.0.0"


@pytest.mark.parametrize("value", [NESTED, CPUSET], ids=["arrays", "cpuset"])
@pytest.mark.parametrize(("release", "reads"), [(OLD, False), (NEW, True)])
def test_a_reader_lacks_what_its_release_cannot_decode_and_nothing_else(world, value, release, reads):
    (a,) = world.clients(0, infos=(greeting("1"),))
    b, c = world.clients(1, 2, version=release)
    wait = b.get(0, "bad")
    a.commit(("good", text("v")), ("bad", value), ("more", text("w")))
    assert b.status(wait) == (SUCCESS if reads else ERR_UNKNOWN_DATA_TYPE)
    tags = [each.fence(infos=(attrs.COLLECT_DATA(True),)) for each in (a, b, c)]
    assert [each.status(tag) for each, tag in zip((a, b, c), tags, strict=True)] == [SUCCESS] * 3
    for key in "good", "more":
        tag = c.get(0, key)
        found = dict(c.objects(tag)[0][1])
        assert {**found, "bad": None} == {"good": text("v"), "more": text("w"), "bad": None}
        assert found.get("bad") == (value if reads else None)
    tag = c.get(0, "bad")
    assert c.status(tag) == (SUCCESS if reads else ERR_UNKNOWN_DATA_TYPE)
    # One of our own reads all, whatever its release.
    (d,) = world.clients(2, version=release, infos=(greeting("1"),))
    assert d.value(d.get(0, "bad"), 0, "bad") == value


def test_an_array_without_a_type_is_packed_as_its_reader_expects_it(world):
    empty = Value(codes.DATA_ARRAY, DataArray(codes.UNDEF, ()))
    (a,) = world.clients(0, version=OLD)
    (b,) = world.clients(1, version=NEW)
    a.commit(("before", text("v")), ("empty", empty), ("after", text("w")))
    tag = b.get(0, "after")
    assert b.objects(tag) == [(a.proc, [("before", text("v")), ("empty", empty), ("after", text("w"))])]


def test_a_job_that_goes_counts_the_users_of_its_procs_once(world):
    """A user is listened to as long as any process of it is expected, in whatever order they go."""
    server = world.server
    other = UID + 5
    for nspace in ("first", "second"):
        server.register_nspace(JobInfo(nspace, (attrs.JOB_SIZE(1),)))
        server.register_client(Proc(nspace, 0), other, GID)
    welcome = server.handshakes.admission.welcome
    assert welcome(other)
    process = server.store.process(Proc("first", 0))
    server.deregister_nspace("first")
    assert not process.registered
    assert welcome(other)
    server.deregister_nspace("second")
    assert not welcome(other)
