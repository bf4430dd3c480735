"""Proves what becomes of a collective that a client of the Python engine gives up, and of its next call of the same."""

from __future__ import annotations

import pytest

from lib.client_wire import ALL, ME, PEER, Wire
from lib.fake_server import RELEASE
from lib.group_port import A, B, C, Port, failed
from pypmix.engine.groups.foreign.constructing import LOSS_GRACE
from pypmix.engine.groups.talk import proc
from pypmix.engine.python.client import TIMEOUT_GRACE, Client, ServerInfo
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.errors import OperationTimeout, PartialSuccess
from pypmix.standard.ops import FENCE_PARTICIPANTS, Connect, Disconnect, Fence
from pypmix.standard.types import Info, Proc, Value
from pypmix.wire.additions import encode_withdrawal
from pypmix.wire.messages import encode_status

BOTH = (ME, PEER)
WELL = encode_status(1, statuses.SUCCESS)


class Foreign(Wire):
    """A machine whose server is of another engine."""

    def __init__(self):
        super().__init__(opened=False)
        self.machine = Client(ME, self.store, ServerInfo("server.0", RELEASE, 1))

    def give_up(self, op):
        """Start a call that is given up; return the tag of its request."""
        call = self.start(op)
        tag, _ = self.request()
        self.machine.abandon(call)
        return tag

    def asks_nothing(self):
        return not self.sent()


class Own(Foreign):
    """A machine whose server is of this engine, and withdraws callers."""

    def __init__(self):
        super().__init__()
        self.machine = Client(ME, self.store, ServerInfo("server.0", RELEASE, 1, adapts=True))

    def give_up(self, op):
        tag = super().give_up(op)
        ((_, payload),) = self.sent().items()
        assert payload == encode_withdrawal(1, tag)
        return tag


@pytest.fixture
def wire():
    return Foreign()


@pytest.fixture
def own():
    return Own()


@pytest.mark.parametrize("make", [Fence, Disconnect])
def test_an_answer_that_comes_before_the_withdrawal_is_for_the_next_call(own, make):
    tag = own.give_up(make(BOTH))
    own.reply(tag, WELL)
    call = own.start(make(BOTH))
    assert own.asks_nothing()
    assert call.outcome[1] is None
    own.start(make(BOTH))
    own.request()


@pytest.mark.parametrize("make", [Fence, Disconnect])
def test_the_next_call_waits_for_the_answer_to_the_withdrawal(own, make):
    tag = own.give_up(make(BOTH))
    call = own.start(make(BOTH))
    assert own.asks_nothing()
    own.reply(tag, encode_status(1, statuses.ERR_TIMEOUT))
    tag, _ = own.request()
    assert call.outcome is None
    own.reply(tag, WELL)
    assert call.outcome[1] is None


def test_the_next_call_is_sent_at_once_after_the_answer_to_the_withdrawal(own):
    own.reply(own.give_up(Fence(BOTH)), encode_status(1, statuses.ERR_TIMEOUT))
    own.start(Fence(BOTH))
    own.request()


def test_a_call_that_needs_the_participants_does_not_continue_one_without_them(own):
    own.give_up(Fence(BOTH))
    own.start(Fence(BOTH, directives=(Info(FENCE_PARTICIPANTS, Value(codes.UINT32, 1)),)))
    own.request()


def test_a_next_call_whose_time_is_over_is_not_made(own):
    tag = own.give_up(Fence(BOTH))
    call = own.start(Fence(BOTH, directives=(attrs.TIMEOUT(1),)))
    own.machine.tick(own.now + 1 + TIMEOUT_GRACE)
    ((_, payload),) = own.sent().items()
    assert payload == encode_withdrawal(1, tag)
    own.reply(tag, encode_status(1, statuses.ERR_TIMEOUT))
    assert own.asks_nothing()
    assert isinstance(call.outcome[1], OperationTimeout)


@pytest.mark.parametrize("make", [Fence, Connect, Disconnect])
def test_the_next_call_gets_the_answer_to_the_one_before(wire, make):
    tag = wire.give_up(make(BOTH))
    call = wire.start(make(BOTH[::-1]))
    assert wire.asks_nothing()
    assert call.outcome is None
    wire.reply(tag, WELL)
    assert call.outcome[1] is None
    wire.start(make(BOTH))
    wire.request()


def test_it_ends_at_once_if_the_answer_is_here(wire):
    tag = wire.give_up(Fence())
    wire.reply(tag, WELL)
    call = wire.start(Fence())
    assert wire.asks_nothing()
    assert call.outcome == (None, None)
    wire.start(Fence())
    wire.request()


@pytest.mark.parametrize("other", [Fence((ALL,)), Connect(BOTH), Fence((ME,))])
def test_other_procs_and_other_kinds_are_other_collectives(wire, other):
    wire.give_up(Fence(BOTH))
    wire.start(other)
    wire.request()


def test_a_call_that_nobody_gave_up_is_not_taken_over(wire):
    first = wire.start(Fence(BOTH))
    wire.request()
    second = wire.start(Fence(BOTH))
    wire.request()
    assert first.outcome is None
    assert second.outcome is None


def test_a_failure_that_arrives_for_nobody_is_dropped(wire):
    tag = wire.give_up(Fence(BOTH))
    wire.reply(tag, encode_status(1, statuses.ERR_PARTIAL_SUCCESS))
    wire.start(Fence(BOTH))
    wire.request()


def test_a_call_is_made_anew_when_the_time_of_the_one_before_is_over(wire):
    tag = wire.give_up(Fence(BOTH))
    call = wire.start(Fence(BOTH, directives=(attrs.TIMEOUT(9),)))
    wire.reply(tag, encode_status(1, statuses.ERR_TIMEOUT))
    assert call.outcome is None
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, statuses.ERR_TIMEOUT))
    assert isinstance(call.outcome[1], OperationTimeout)


def test_the_call_whose_own_time_is_over_says_why_and_is_continued_too(wire):
    limited = Fence(BOTH, directives=(attrs.TIMEOUT(1),))
    call = wire.start(limited)
    tag, _ = wire.request()
    wire.machine.tick(wire.now + 1 + TIMEOUT_GRACE)
    assert "an earlier call" not in str(call.outcome[1])
    call = wire.start(limited)
    wire.machine.tick(wire.now + 2 * (1 + TIMEOUT_GRACE))
    assert isinstance(call.outcome[1], OperationTimeout)
    assert "an earlier call" in str(call.outcome[1])
    call = wire.start(Fence(BOTH))
    assert wire.asks_nothing()
    wire.reply(tag, WELL)
    assert call.outcome == (None, None)


def test_a_fence_of_a_group_that_ends_here_is_given_up():
    port = Port((5, 0, 11))
    port.built(A, B, C)
    outcome = []
    port.agent.constructing.fence("g", Fence(), lambda result, error: outcome.append((result, error)))
    port.hear(statuses.PROC_TERMINATED, Proc("host", 0), proc(keys.EVENT_AFFECTED_PROC, C))
    port.pass_time(LOSS_GRACE)
    failed(outcome, PartialSuccess)
    assert [op.procs for op in port.given_up] == [(A, B, C)]


def test_so_is_the_fence_of_all_when_that_of_the_survivors_ends():
    port = Port((5, 0, 11))
    port.built(A, B, C)
    outcome = []
    ft = attrs.GROUP_FT_COLLECTIVE(True)
    port.agent.constructing.fence("g", Fence(directives=(ft,)), lambda result, error: outcome.append((result, error)))
    port.hear(statuses.PROC_TERMINATED, Proc("host", 0), proc(keys.EVENT_AFFECTED_PROC, C))
    port.asked.reverse()
    assert port.answer().procs == (A, B)
    assert outcome == [(None, None)]
    assert [op.procs for op in port.given_up] == [(A, B, C)]
