"""Proves what a client of the Python engine asks of which server in a connect, and what it makes of the answer."""

from __future__ import annotations

import pytest

from lib.client_wire import ALL, ME, PEER, Wire
from lib.fake_server import NSPACE, RELEASE, get_reply
from pypmix.engine.python.client import Client, ServerInfo
from pypmix.standard import codes, statuses
from pypmix.standard.errors import LostConnection, NotFound, NotSupported, PartialSuccess
from pypmix.standard.ops import Connect, Connected, Disconnect, Fence, Get
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_EARLY_TERM,
    CONNECT_ID,
    CONNECT_NOTIFY_EACH,
    CONNECT_NOTIFY_REQ,
    CONNECT_OPTIONAL,
    CONNECT_XCHG_ONLY,
)
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.standard.values import uint32
from pypmix.wire.additions import MAX_REASON, encode_connected, encode_late
from pypmix.wire.codec import Packer, encode_kval
from pypmix.wire.messages import Command, decode_fence, decode_get, encode_status, peek_command, request_layout

NAME = "host@1"
WHOLE = Proc(NAME, RANK_WILDCARD)


def flag(key):
    return Info(key, Value(codes.BOOL, True))


class Ours(Wire):
    """A machine whose server is of the Python engine, or is not."""

    def __init__(self, adapts=True):
        super().__init__(opened=False)
        self.machine = Client(ME, self.store, ServerInfo("server.0", RELEASE, 1, adapts=adapts))

    def asked(self, command):
        """Return the tag and the fields of the only new request."""
        tag, payload = self.request()
        assert peek_command(payload, 1) == command
        return tag, request_layout(command, RELEASE).decode(payload, 1, RELEASE)

    def connect(self, *objects, procs=(ALL,), infos=()):
        call = self.start(Connect(procs, (flag(CONNECT_ASSIGN), *infos)))
        tag, fields = self.asked(Command.CONNECTNB)
        packer = Packer()
        for item in objects:
            packer.pack(codes.BYTE_OBJECT, item)
        self.reply(tag, encode_status(1, 0) + packer.bytes())
        return call.outcome, fields


def job_of(nspace):
    return Packer().pack(codes.STRING, nspace).bytes() + encode_kval(1, "pmix.job.size", uint32(7))


def made(*procs):
    return encode_connected(1, NAME, procs)


def test_a_connection_and_the_job_info_of_others_come_with_the_answer():
    wire = Ours()
    far = Proc("far", 3)
    (result, error), fields = wire.connect(made(far, PEER, ME), job_of("far"), job_of(NSPACE), infos=(flag("acme.x"),))
    assert error is None
    assert result == Connected(NAME, (far, PEER, ME), ("far",))
    assert [info.key for info in fields["infos"]] == [CONNECT_ASSIGN, "acme.x"]
    assert wire.start(Get(Proc("far", RANK_WILDCARD), "pmix.job.size")).outcome[0].data == 7


def test_the_nspace_is_an_address_until_the_disconnect():
    wire = Ours()
    wire.connect(made(PEER, ME))
    # A get goes to the proc itself, of whom something may be here already.
    call = wire.start(Get(Proc(NAME, 0), "key"))
    tag, payload = wire.request()
    assert decode_get(payload, 1, RELEASE)[:2] == PEER
    wire.reply(tag, get_reply(PEER, encode_kval(1, "key", uint32(1))))
    assert call.outcome[0].data == 1
    assert wire.start(Get(WHOLE, "pmix.job.size")).outcome[0].data == 2
    for proc, key in ((WHOLE, "acme"), (Proc(NAME, 2), "key")):
        wire.fails(wire.start(Get(proc, key)), NotFound)
    # A fence goes by the name: the server knows best who is left.
    wire.start(Fence((WHOLE,)))
    assert decode_fence(wire.request()[1], 1, RELEASE)[0] == (WHOLE,)
    call = wire.start(Disconnect((WHOLE,)))
    tag, fields = wire.asked(Command.DISCONNECTNB)
    assert fields["procs"] == (WHOLE,)
    wire.reply(tag, encode_status(1, 0))
    assert call.outcome == (None, None)
    wire.fails(wire.start(Fence((WHOLE,))), NotFound)


def test_a_disconnect_of_an_unknown_nspace_says_so():
    wire = Ours()
    call = wire.start(Disconnect((WHOLE,)))
    tag, _ = wire.asked(Command.DISCONNECTNB)
    wire.reply(tag, encode_status(1, statuses.ERR_NOT_FOUND))
    wire.fails(call, NotFound, "no such connection")


def test_a_connect_names_because_of_whom_it_failed():
    wire = Ours()
    call = wire.start(Connect((ALL,)))
    wire.reply(wire.asked(Command.CONNECTNB)[0], encode_late(1, statuses.ERR_PARTIAL_SUCCESS, [PEER]))
    assert wire.fails(call, PartialSuccess).missing == {PEER}


@pytest.mark.parametrize("missing", [None, (), (PEER,)])
def test_a_connect_says_why_it_failed_in_the_words_of_the_host(missing):
    wire = Ours()
    call = wire.start(Connect((ALL,)))
    words = "no room \N{EM DASH}\x1b[31m\0\n2 slots wanted" + "x" * 5000
    wire.reply(wire.asked(Command.CONNECTNB)[0], encode_late(1, statuses.ERR_PARTIAL_SUCCESS, missing, words))
    error = wire.fails(call, PartialSuccess)
    assert error.missing == (None if missing is None else frozenset(missing))
    assert error.detail.startswith("no room \N{EM DASH}\ufffd[31m\ufffd\n2 slots wantedxx")
    assert len(error.detail) == MAX_REASON


def test_words_that_do_not_parse_end_the_connection():
    wire = Ours()
    call = wire.start(Connect((ALL,)))
    whole = encode_late(1, statuses.ERR_PARTIAL_SUCCESS, None, "no room")
    wire.reply(wire.asked(Command.CONNECTNB)[0], whole[:-3])
    assert call.outcome[1] is not None
    with pytest.raises(LostConnection):
        wire.start(Fence())


def test_a_server_may_assign_nothing():
    (result, _), _ = Ours().connect(job_of("far"), procs=(ALL, Proc("far", 0)))
    assert result == Connected("", (ALL, Proc("far", 0)), ("far",))


@pytest.mark.parametrize("item", [b"\2\1\0\2\0", made(ME)[:-1], made(PEER), encode_connected(1, NAME, ())])
def test_an_identity_that_does_not_parse_ends_the_connection(item):
    wire = Ours()
    call = wire.start(Connect((ALL,)))
    tag, _ = wire.asked(Command.CONNECTNB)
    wire.reply(tag, encode_status(1, 0) + Packer().pack(codes.BYTE_OBJECT, item).bytes())
    assert call.outcome[1] is not None
    with pytest.raises(LostConnection):
        wire.start(Fence())


def test_other_servers_hear_nothing_of_it():
    wire = Ours(adapts=False)
    (result, _), fields = wire.connect(made(PEER, ME), job_of("far"), infos=(flag(CONNECT_XCHG_ONLY),))
    assert fields["infos"] == ()
    assert result == Connected("", (ALL,), ("far",))


@pytest.mark.parametrize(
    "key", [CONNECT_EARLY_TERM, CONNECT_ID, CONNECT_NOTIFY_EACH, CONNECT_NOTIFY_REQ, CONNECT_OPTIONAL]
)
def test_what_other_servers_do_not_know_is_refused_at_the_call(key):
    wire = Ours(adapts=False)
    info = Info(key, Value(codes.STRING, "x")) if key == CONNECT_ID else flag(key)
    wire.fails(wire.start(Connect((ALL,), (info,))), NotSupported, key)
    if key == CONNECT_NOTIFY_EACH:
        wire.fails(wire.start(Disconnect((ALL,), (info,))), NotSupported, key)
    assert wire.sent() == {}


def test_a_disconnect_from_other_servers_names_its_caller():
    # They would wait for the others for ever.
    wire = Ours(adapts=False)
    for procs in ((WHOLE,), (PEER,), (Proc("far", ME.rank), Proc("far", RANK_WILDCARD))):
        wire.fails(wire.start(Disconnect(procs)), NotFound, "not one of the procs")
    assert wire.sent() == {}
    wire.start(Disconnect((PEER, ME)))
    assert wire.asked(Command.DISCONNECTNB)[1]["procs"] == (PEER, ME)


@pytest.mark.parametrize(
    ("procs", "id", "gone"),
    [
        ((ALL,), "", "b"),
        ((ME, PEER), "", "b"),
        ((ALL,), "x", "a"),
        ((Proc("c", RANK_WILDCARD),), "", "c"),
        # Some of the procs, others, and an id that none has.
        ((ME,), "", ""),
        ((ALL, Proc("far", RANK_WILDCARD)), "", ""),
        ((ALL,), "y", ""),
    ],
)
def test_a_disconnect_by_the_procs_ends_the_address(procs, id, gone):
    wire = Ours()
    for name, called in (("c", ""), ("b", ""), ("a", "x")):
        infos = (Info(CONNECT_ID, Value(codes.STRING, called)),) if called else ()
        wire.connect(encode_connected(1, name, (PEER, ME)), infos=infos)
    infos = (Info(CONNECT_ID, Value(codes.STRING, id)),) if id else ()
    wire.start(Disconnect(procs, infos))
    wire.reply(wire.asked(Command.DISCONNECTNB)[0], encode_status(1, 0))
    left = {name for name in "abc" if wire.machine.groups.addresses.members(name)}
    assert left == {*"abc"} - {gone}
