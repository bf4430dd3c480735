"""Proves what a client of the Python engine asks a server of ours in constructs and destructs, and what it records."""

from __future__ import annotations

import pytest

from lib.client_wire import ME, PEER, Wire
from pypmix.engine.groups.talk import REACTS, flag
from pypmix.engine.python.client import Client, ServerInfo
from pypmix.standard import attrs, statuses
from pypmix.standard.errors import (
    ConstructAborted,
    LocalProtocolError,
    NotFound,
    OperationTimeout,
    PartialSuccess,
    PMIxError,
    ResourceBusy,
)
from pypmix.standard.ops import GroupConstruct, GroupDestruct, GroupResults
from pypmix.wire import layout
from pypmix.wire.additions import decode_withdrawal
from pypmix.wire.messages import Command, encode_status, peek_command, reply_layout, request_layout

RELEASE = (7, 0, 0)
BOTH = (ME, PEER)
CONSTRUCT, DESTRUCT = Command.GROUP_CONSTRUCT, Command.GROUP_DESTRUCT


class Ours(Wire):
    """A machine whose server is of the Python engine."""

    def __init__(self):
        super().__init__(opened=False)
        self.machine = Client(ME, self.store, ServerInfo("server.0", RELEASE, 1, adapts=True))

    def asked(self, command):
        """Return the tag and the fields of the only new request of a command."""
        found = [(tag, data) for tag, data in self.sent().items() if peek_command(data, 1) == command]
        ((tag, payload),) = found
        return tag, request_layout(command, RELEASE).decode(payload, 1, RELEASE)

    def formed(self, tag, members=BOTH, context_id=None, infos=()):
        fields = {"status": 0, "members": members, "context_id": context_id, "group_info": infos}
        self.reply(tag, reply_layout(CONSTRUCT, RELEASE).encode(1, RELEASE, **fields))

    def construct(self, name="g", directives=()):
        call = self.start(GroupConstruct(name, BOTH, directives))
        return call, *self.asked(CONSTRUCT)

    def members(self, name="g"):
        state = self.machine.groups.state(name)
        return None if state is None else state.members


def test_a_construct_and_a_destruct_are_one_request_each():
    wire = Ours()
    call, tag, fields = wire.construct()
    assert (fields["group"], fields["procs"], fields["infos"]) == ("g", BOTH, (flag(REACTS),))
    # The server decides on the order.
    wire.formed(tag, (PEER, ME))
    assert call.outcome == (GroupResults((PEER, ME)), None)
    assert wire.members() == (PEER, ME)
    call = wire.start(GroupDestruct("g"))
    tag, fields = wire.asked(DESTRUCT)
    assert (fields["group"], fields["members"]) == ("g", BOTH)
    wire.reply(tag, encode_status(1, 0))
    assert call.outcome == (None, None) and wire.members() is None


def test_only_the_name_of_the_next_request_is_packed(monkeypatch):
    """The groups differ in nothing else, whatever is asked in between."""
    wire, whole = Ours(), []
    around = layout.Layout.around
    monkeypatch.setattr(
        layout.Layout, "around", lambda self, *given, **more: whole.append(1) or around(self, *given, **more)
    )
    for number in range(4):
        name = f"group {number}"
        call, tag, fields = wire.construct(name, (attrs.GROUP_ASSIGN_CONTEXT_ID(True),))
        assert (fields["group"], fields["procs"]) == (name, BOTH)
        wire.formed(tag, context_id=number)
        assert call.outcome[0].context_id == number
        wire.start(GroupDestruct(name))
        tag, fields = wire.asked(DESTRUCT)
        assert fields["group"] == name
        wire.reply(tag, encode_status(1, 0))
    assert len(whole) == 2
    wire.start(GroupConstruct("other", (ME,)))
    assert wire.asked(CONSTRUCT)[1]["procs"] == (ME,)


def test_a_second_operation_on_a_name_is_refused_until_the_server_has_answered():
    wire = Ours()
    call, tag, _ = wire.construct()
    wire.fails(wire.start(GroupConstruct("g", BOTH)), ResourceBusy)
    wire.reply(tag, encode_status(1, statuses.GROUP_CONSTRUCT_ABORT))
    wire.fails(call, ConstructAborted)
    _, tag, _ = wire.construct()
    wire.formed(tag)
    wire.start(GroupDestruct("g"))
    tag, _ = wire.asked(DESTRUCT)
    wire.fails(wire.start(GroupDestruct("g")), ResourceBusy)
    wire.reply(tag, encode_status(1, 0))
    wire.fails(wire.start(GroupDestruct("g")), NotFound)


@pytest.mark.parametrize(("status", "exists"), [(statuses.ERR_PARTIAL_SUCCESS, False), (statuses.ERR_TIMEOUT, True)])
def test_a_destruct_that_fails_ends_the_group_if_the_server_has_ended_it(status, exists):
    wire = Ours()
    _, tag, _ = wire.construct()
    wire.formed(tag)
    call = wire.start(GroupDestruct("g"))
    tag, _ = wire.asked(DESTRUCT)
    wire.reply(tag, encode_status(1, status))
    wire.fails(call, PartialSuccess if not exists else OperationTimeout)
    assert (wire.members() is not None) is exists


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
def test_a_caller_that_gives_up_is_withdrawn_before_its_next_call_of_the_name(answered):
    wire = Ours()
    call, first, _ = wire.construct()
    wire.machine.abandon(call)
    (payload,) = wire.sent().values()
    assert decode_withdrawal(payload, 1) == first
    if answered:
        wire.reply(first, encode_status(1, statuses.ERR_TIMEOUT))
        assert wire.members() is None
    call, tag, _ = wire.construct()
    if not answered:
        wire.reply(first, encode_status(1, statuses.ERR_TIMEOUT))
        assert call.outcome is None
        wire.fails(wire.start(GroupConstruct("g", BOTH)), ResourceBusy)
    wire.formed(tag)
    assert wire.members() == BOTH


def test_nothing_is_expected_of_a_group_whose_withdrawn_and_next_constructs_fail():
    wire = Ours()
    call, first, _ = wire.construct()
    wire.machine.abandon(call)
    wire.sent()
    call, tag, _ = wire.construct()
    standing = wire.machine.groups.agent.standing
    for each in first, tag:
        assert standing.expects("g")
        wire.reply(each, encode_status(1, statuses.ERR_TIMEOUT))
    wire.fails(call, OperationTimeout)
    assert not standing.expects("g")


def test_a_withdrawal_that_is_too_late_forms_the_group_and_the_next_construct_is_refused():
    wire = Ours()
    call, first, _ = wire.construct()
    wire.machine.abandon(call)
    wire.sent()
    call, tag, _ = wire.construct()
    wire.formed(first)
    wire.reply(tag, encode_status(1, statuses.ERR_EXISTS))
    wire.fails(call, PMIxError)
    assert wire.members() == BOTH
    wire.start(GroupDestruct("g"))
    tag, _ = wire.asked(DESTRUCT)
    wire.reply(tag, encode_status(1, 0))
    assert wire.members() is None


def test_a_destruct_that_was_given_up_leaves_its_next_call_free():
    wire = Ours()
    _, tag, _ = wire.construct()
    wire.formed(tag)
    call = wire.start(GroupDestruct("g"))
    first, _ = wire.asked(DESTRUCT)
    wire.machine.abandon(call)
    assert len(wire.sent()) == 1
    call = wire.start(GroupDestruct("g"))
    tag, _ = wire.asked(DESTRUCT)
    wire.reply(first, encode_status(1, statuses.ERR_TIMEOUT))
    assert call.outcome is None
    wire.reply(tag, encode_status(1, 0))
    assert call.outcome == (None, None)
    assert wire.members() is None


def test_a_request_that_cannot_be_sent_leaves_the_name_free(monkeypatch):
    wire = Ours()

    def refuse(call, payload):
        raise LocalProtocolError("too long")

    with monkeypatch.context() as patched:
        patched.setattr(wire.machine, "request", refuse)
        with pytest.raises(LocalProtocolError):
            wire.start(GroupConstruct("g", BOTH))
    _, tag, _ = wire.construct()
    wire.formed(tag)
    with monkeypatch.context() as patched:
        patched.setattr(wire.machine, "request", refuse)
        with pytest.raises(LocalProtocolError):
            wire.start(GroupDestruct("g"))
    assert wire.members() == BOTH
    wire.start(GroupDestruct("g"))
    wire.asked(DESTRUCT)
