"""Proves what a process does about a construct or destruct beside asking its server: on each kind of server."""

from __future__ import annotations

from typing import Any

import pytest

from lib.group_port import A, B, C, D, Port, failed
from pypmix.engine.common import TIMEOUT_GRACE
from pypmix.engine.groups.constructing import MAX_SELECTED, SERVER_GRACE, verdict
from pypmix.engine.groups.foreign.constructing import IMMEDIATE, LEAVE_GRACE, LOSS_GRACE
from pypmix.engine.groups.talk import REACTS, SAYS, VERDICT, flag, found, listed, proc, procs, text
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.errors import LostConnection, NotFound, NotSupported, OperationTimeout, PartialSuccess, PMIxError
from pypmix.standard.ops import (
    Fence,
    Get,
    GroupConstruct,
    GroupDestruct,
    GroupResults,
    RegisterEventHandler,
)
from pypmix.standard.ops.hosting import GROUP_LEADER_PROC
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value

SERVER = Proc("host", 0)
CONTEXT_ID = attrs.GROUP_ASSIGN_CONTEXT_ID(True)


# Who is told of whom


def test_natives_are_told_of_each_rank_once_in_order() -> None:
    port = Port((5, 0, 11))
    port.start(GroupConstruct("g", (C, A, C, B)))
    assert port.answer(GroupResults()).procs == (A, B, C)
    port.start(GroupConstruct("h", (Proc("job", RANK_WILDCARD), Proc("other", RANK_WILDCARD))))
    assert port.answer(GroupResults()).procs == (A, B, C, D, Proc("other", RANK_WILDCARD))


def test_a_server_of_ours_is_told_of_the_order() -> None:
    port = Port(adapts=True)
    port.start(GroupConstruct("g", (C, A, C, B)))
    op = port.answer(GroupResults((C, A, B)))
    assert op.procs == (C, A, B)
    assert found(op.directives, REACTS, bool) is True


@pytest.mark.parametrize(
    ("release", "told"), [((5, 0, 11), ()), ((6, 0, 0), ()), ((6, 1, 0), (C, A)), ((7, 0, 0), (C, A))]
)
def test_natives_that_can_order_members_are_told_how(release: tuple[int, int, int], told: tuple[Proc, ...]) -> None:
    port = Port(release)
    port.start(GroupConstruct("g", (C, A)))
    assert listed(port.answer(GroupResults()).directives, keys.GROUP_FINAL_MEMBERSHIP_ORDER) == told
    port.start(GroupConstruct("h", (A, C)))
    assert listed(port.answer(GroupResults()).directives, keys.GROUP_FINAL_MEMBERSHIP_ORDER) == ()


@pytest.mark.parametrize(
    ("answered", "members"),
    [((A, B, C), (C, A, B)), ((), (C, A, B)), ((B, A, C), (B, A, C)), ((A, C), (A, C))],
    ids=["sorted", "not told", "ordered by the server", "fewer"],
)
def test_ranks_are_places_in_what_was_given_unless_the_server_decides(
    answered: tuple[Proc, ...], members: tuple[Proc, ...]
) -> None:
    port = Port((5, 0, 11))
    outcome = port.start(GroupConstruct("g", (C, A, B)))
    port.answer(GroupResults(answered))
    results = outcome[0][0]
    assert (results.members, results.partial) == (members, len(members) == 2)
    state = port.agent.standing.state("g")
    assert state is not None and state.members == members


def test_members_of_a_group_form_another() -> None:
    port = Port((5, 0, 11))
    port.built(C, A)
    port.start(GroupConstruct("h", (Proc("g", 0), Proc("g", 1), B)))
    assert port.answer(GroupResults()).procs == (A, B, C)
    ours = Port(adapts=True)
    ours.built(C, A)
    ours.start(GroupConstruct("h", (Proc("g", RANK_WILDCARD), B)))
    assert ours.answer(GroupResults((C, A, B))).procs == (Proc("g", RANK_WILDCARD), B)


def test_who_has_asked_is_told_of_a_context_id_and_who_leads() -> None:
    port = Port(adapts=True)
    for name, directives, context_id in ("g", (), None), ("h", (CONTEXT_ID,), 7):
        outcome = port.start(GroupConstruct(name, (A, B), directives))
        port.answer(GroupResults((A, B), 7, (proc(GROUP_LEADER_PROC, B),)))
        assert (outcome[0][0].context_id, outcome[0][0].infos) == (context_id, ())
        state = port.agent.standing.state(name)
        assert state is not None and state.leader == B


# What is refused


@pytest.mark.parametrize(
    ("op", "status"),
    [
        (GroupConstruct("g", (A, B)), statuses.ERR_EXISTS),
        (GroupConstruct("job", (A, B)), statuses.ERR_EXISTS),
        (GroupConstruct("h", (B, C)), statuses.ERR_BAD_PARAM),
        (GroupDestruct("h"), -46),
        (GroupConstruct("h", (A, Proc("g", 2))), -46),
    ],
)
def test_what_cannot_be_is_refused(op: Any, status: int) -> None:
    port = Port()
    port.built(A, B)
    assert failed(port.start(op), PMIxError, status)
    assert not port.asked


def test_a_library_gets_no_request_that_a_server_of_ours_would_refuse() -> None:
    """libpmix 5.0 crashes after such an answer."""
    port = Port(adapts=True)
    assert failed(port.start(GroupConstruct("job", (A, B))), PMIxError, statuses.ERR_EXISTS)
    assert failed(port.start(GroupConstruct("h", (B, C))), PMIxError, statuses.ERR_BAD_PARAM)
    assert not port.asked
    port.start(GroupConstruct("h", (B, Proc("job", RANK_WILDCARD))))
    assert port.answer(GroupResults((B, A, C, D))).procs == (B, A, C, D)


@pytest.mark.parametrize(
    ("release", "op", "fine"),
    [
        ((5, 0, 11), GroupConstruct("g", (A,), (attrs.GROUP_BOOTSTRAP(2),)), False),
        ((5, 0, 11), GroupConstruct("g"), False),
        ((6, 1, 0), GroupConstruct("g", (A,), (attrs.GROUP_BOOTSTRAP(2), procs("pmix.grp.add", (B,)))), True),
        ((7, 0, 0), GroupConstruct("g"), True),
        ((7, 0, 0), GroupConstruct("g", (A, B), (procs("pmix.grp.add", (C,)),)), False),
    ],
)
def test_what_a_server_would_never_end_or_do_wrong_is_refused(
    release: tuple[int, int, int], op: GroupConstruct, fine: bool
) -> None:
    port = Port(release)
    outcome = port.start(op)
    assert bool(port.asked) is fine
    if not fine:
        failed(outcome, NotSupported)
    ours = Port(release, adapts=True)
    assert not ours.start(op)
    assert ours.asked


def test_a_gathered_group_has_the_members_that_the_server_tells() -> None:
    port = Port()
    outcome = port.start(GroupConstruct("g", (A,), (attrs.GROUP_BOOTSTRAP(2),)))
    port.answer(GroupResults((A, D, B)))
    assert outcome == [(GroupResults((A, D, B)), None)]


# Time


@pytest.mark.parametrize(("adapts", "grace"), [(False, TIMEOUT_GRACE), (True, SERVER_GRACE)])
def test_a_name_stays_busy_until_the_server_has_answered(adapts: bool, grace: float) -> None:
    port = Port((5, 0, 11), adapts=adapts)
    op = GroupConstruct("g", (A, B), (attrs.TIMEOUT(2),))
    outcome = port.start(op)
    port.pass_time(2)
    assert not outcome
    port.pass_time(grace)
    failed(outcome, OperationTimeout)
    failed(port.start(op), PMIxError, statuses.ERR_RESOURCE_BUSY)
    port.answer(GroupResults((A, B)))
    assert port.agent.standing.state("g") is None
    assert not port.start(op)


def test_a_call_that_was_given_up_is_taken_over_by_the_next_one() -> None:
    port = Port((5, 0, 11))
    construct = GroupConstruct("g", (A, B))
    first = port.start(construct)
    failed(port.start(GroupConstruct("g", (A, B))), PMIxError, statuses.ERR_RESOURCE_BUSY)
    port.agent.constructing.give_up(construct)
    # The server counts these procs, and no others.
    failed(port.start(GroupConstruct("g", (A, B, C))), PMIxError, statuses.ERR_RESOURCE_BUSY)
    second = port.start(GroupConstruct("g", (B, A)))
    port.answer(GroupResults((A, B)))
    assert first == [] and second[0][0].members == (B, A)
    destruct = GroupDestruct("g")
    port.start(destruct)
    port.agent.constructing.give_up(destruct)
    failed(port.start(GroupConstruct("g", (A, B))), PMIxError, statuses.ERR_RESOURCE_BUSY)
    ended = port.start(GroupDestruct("g"))
    port.answer(None)
    assert ended == [(None, None)] and port.agent.standing.state("g") is None
    assert not port.asked


def test_a_destruct_that_was_given_up_leaves_the_group() -> None:
    port = Port()
    port.built(A, B)
    outcome = port.start(GroupDestruct("g", (attrs.TIMEOUT(1),)))
    port.pass_time(1 + TIMEOUT_GRACE)
    failed(outcome, OperationTimeout)
    assert port.agent.standing.state("g") is not None
    failed(port.start(GroupDestruct("g")), PMIxError, statuses.ERR_RESOURCE_BUSY)
    port.answer(None, OperationTimeout("late", status=-24))
    again = port.start(GroupDestruct("g"))
    port.answer()
    assert again == [(None, None)]
    assert port.agent.standing.state("g") is None


# Failures during a construct


@pytest.mark.parametrize(
    ("code", "status", "results", "expected"),
    [
        (statuses.GROUP_MEMBER_FAILED, statuses.GROUP_CONSTRUCT_ABORT, (), "abort"),
        (statuses.GROUP_LEADER_FAILED, 0, (Info("h", Value(codes.STATUS, statuses.GROUP_CONSTRUCT_ABORT)),), "abort"),
        (statuses.GROUP_LEADER_FAILED, -331, (flag(keys.GROUP_LEADER),), "claim"),
        (statuses.GROUP_LEADER_FAILED, -331, (flag(keys.GROUP_LEADER, False),), "go on"),
        (statuses.GROUP_MEMBER_FAILED, -331, (flag(keys.GROUP_LEADER),), "go on"),
    ],
)
def test_what_handlers_want(code: int, status: int, results: tuple[Info, ...], expected: str) -> None:
    assert verdict(code, status, results) == expected


def test_a_server_of_ours_hears_how_handlers_have_dealt_with_a_failure() -> None:
    port = Port(adapts=True)
    port.start(GroupConstruct("g", (A, B, C)))
    deliveries: list[Any] = []
    handler = port.handlers.add(RegisterEventHandler(deliveries.append, (statuses.GROUP_LEADER_FAILED,)))
    port.handlers.activate(handler)
    port.hear(statuses.GROUP_LEADER_FAILED, SERVER, text(keys.GROUP_ID, "g"), proc(keys.EVENT_AFFECTED_PROC, B))
    assert not port.said
    deliveries[0].done(-331, (flag(keys.GROUP_LEADER),))
    (op,) = port.said
    told = [found(op.infos, key, str) for key in (SAYS, keys.GROUP_ID, VERDICT)]
    assert told == ["reaction", "g", "claim"]
    assert found(op.infos, keys.EVENT_AFFECTED_PROC, Proc) == B
    port.hear(statuses.GROUP_MEMBER_FAILED, SERVER, text(keys.GROUP_ID, "g"), proc(keys.EVENT_AFFECTED_PROC, C))
    assert found(port.said[1].infos, VERDICT, str) == "go on"
    port.answer(GroupResults((A,)))
    port.hear(statuses.GROUP_MEMBER_FAILED, SERVER, text(keys.GROUP_ID, "g"), proc(keys.EVENT_AFFECTED_PROC, C))
    assert len(port.said) == 2


def test_anybody_may_abort_where_the_server_cannot() -> None:
    port = Port((5, 0, 11))
    outcome = port.start(GroupConstruct("g", (A, B)))
    port.hear(statuses.GROUP_CONSTRUCT_ABORT, D, text(keys.GROUP_ID, "g"))
    port.hear(statuses.GROUP_CONSTRUCT_ABORT, B, text(keys.GROUP_ID, "other"))
    assert not outcome
    port.hear(statuses.GROUP_CONSTRUCT_ABORT, B, text(keys.GROUP_ID, "g"))
    failed(outcome, PMIxError, statuses.GROUP_CONSTRUCT_ABORT)
    failed(port.start(GroupConstruct("g", (A, B))), PMIxError, statuses.ERR_RESOURCE_BUSY)


def test_who_has_ended_is_not_waited_for_where_the_server_would() -> None:
    port = Port((5, 0, 11))
    outcome = port.start(GroupConstruct("g", (A, B)))
    port.hear(statuses.PROC_TERMINATED, SERVER, proc(keys.EVENT_AFFECTED_PROC, D))
    port.pass_time(2 * LOSS_GRACE)
    assert not outcome
    port.hear(statuses.PROC_TERMINATED, SERVER, proc(keys.EVENT_AFFECTED_PROC, B))
    assert not outcome
    port.pass_time(LOSS_GRACE)
    assert failed(outcome, PMIxError, statuses.GROUP_CONSTRUCT_ABORT).missing == {B}


def test_who_has_called_before_it_ended_is_a_member_first() -> None:
    port = Port((5, 0, 11))
    outcome = port.start(GroupConstruct("g", (A, B)))
    port.hear(statuses.PROC_TERMINATED, SERVER, proc(keys.EVENT_AFFECTED_PROC, B))
    port.answer(GroupResults((A, B)))
    assert outcome[0][0].members == (A, B)
    state = port.agent.standing.state("g")
    assert state is not None and (state.members, state.epoch) == ((A,), 2)
    assert not port.timers


# Destruct


def test_a_group_that_has_changed_is_destructed_by_a_fence_of_those_who_are_left() -> None:
    port = Port((5, 0, 11))
    port.built(C, A, B)
    port.hear(statuses.GROUP_LEFT, B, text(keys.GROUP_ID, "g"))
    outcome = port.start(GroupDestruct("g", (attrs.TIMEOUT(5),)))
    assert port.answer() == Fence((A, C))
    assert outcome == [(None, None)]
    assert port.agent.standing.state("g") is None


def test_a_server_of_ours_destructs_any_group() -> None:
    """It keeps the record: the members that are left are its concern, and how they came together."""
    port = Port(adapts=True)
    port.agent.standing.formed("g", (C, A))
    outcome = port.start(GroupDestruct("g", (attrs.TIMEOUT(5),)))
    failed(port.start(GroupDestruct("g")), PMIxError, statuses.ERR_RESOURCE_BUSY)
    assert port.answer() == GroupDestruct("g", (attrs.TIMEOUT(5),))
    assert outcome == [(None, None)]


@pytest.mark.parametrize(
    ("status", "exists"), [(statuses.ERR_PARTIAL_SUCCESS, False), (statuses.ERR_NOT_FOUND, False), (-24, True)]
)
def test_a_failed_destruct_ends_a_group_that_the_server_has_ended(status: int, exists: bool) -> None:
    port = Port(adapts=True)
    port.built(A, B)
    outcome = port.start(GroupDestruct("g"))
    port.answer(None, PMIxError("it has failed", status=status))
    failed(outcome, PMIxError, status)
    assert (port.agent.standing.state("g") is not None) is exists


def test_who_leaves_during_a_destruct_is_not_waited_for() -> None:
    port = Port((5, 0, 11))
    port.built(A, B, C)
    outcome = port.start(GroupDestruct("g"))
    port.hear(statuses.GROUP_LEFT, C, text(keys.GROUP_ID, "g"))
    assert [op for op, _ in port.asked] == [GroupDestruct("g"), Fence((A, B))]
    port.answer(None, PMIxError("one is gone", status=-52))
    assert not outcome
    port.answer()
    assert outcome == [(None, None)]


@pytest.mark.parametrize("forgiving", [True, False])
def test_who_ends_during_a_destruct(forgiving: bool) -> None:
    port = Port((5, 0, 11))
    port.built(A, B, C, directives=(attrs.GROUP_NOTIFY_TERMINATION(True),) if forgiving else ())
    outcome = port.start(GroupDestruct("g"))
    port.hear(statuses.PROC_TERMINATED, SERVER, proc(keys.EVENT_AFFECTED_PROC, C))
    if forgiving:
        assert port.asked.pop()[0] == Fence((A, B))
        return
    port.pass_time(LOSS_GRACE)
    failed(outcome, PMIxError, -52)


@pytest.mark.parametrize("adapts", [False, True])
@pytest.mark.parametrize("directive", [None, attrs.GROUP_NOTIFY_TERMINATION, attrs.GROUP_FT_COLLECTIVE])
def test_who_has_ended_before_a_destruct(adapts: bool, directive: Any) -> None:
    port = Port(adapts=True) if adapts else Port((5, 0, 11))
    port.built(A, B, C, directives=() if directive is None else (directive(True),))
    port.hear(statuses.PROC_TERMINATED, SERVER, proc(keys.EVENT_AFFECTED_PROC, C))
    outcome = port.start(GroupDestruct("g"))
    if adapts or directive is not None:
        # A server of ours decides; of others, the members that are left fence.
        assert port.asked[-1][0] == GroupDestruct("g") if adapts else port.asked[-1][0].procs == (A, B)
        port.answer()
        assert outcome == [(None, None)]
    else:
        # It may turn out to have left.
        assert not outcome and not port.asked
        port.pass_time(LOSS_GRACE)
        assert failed(outcome, PartialSuccess).missing == {C}
    assert port.agent.standing.state("g") is None


def test_who_has_left_and_ended_before_a_destruct_is_not_missed() -> None:
    port = Port((5, 0, 11))
    port.built(A, B, C)
    port.hear(statuses.PROC_TERMINATED, SERVER, proc(keys.EVENT_AFFECTED_PROC, C))
    outcome = port.start(GroupDestruct("g"))
    failed(port.start(GroupDestruct("g")), PMIxError, statuses.ERR_RESOURCE_BUSY)
    port.hear(statuses.GROUP_LEFT, C, text(keys.GROUP_ID, "g"))
    assert port.answer() == Fence((A, B))
    assert outcome == [(None, None)]


def test_a_library_that_has_not_recorded_a_group_yet_is_asked_again() -> None:
    port = Port((6, 1, 0))
    port.built(A, B)
    outcome = port.start(GroupDestruct("g"))
    port.answer(None, NotFound("no such group"))
    assert not outcome and not port.asked
    port.pass_time(0.1)
    assert port.answer() == GroupDestruct("g")
    assert outcome == [(None, None)]


def test_nobody_is_left_waiting_when_the_session_ends() -> None:
    port = Port()
    construct = port.start(GroupConstruct("g", (A, B), (attrs.TIMEOUT(5),)))
    other = port.start(GroupConstruct("h", (A, B)))
    port.agent.handle_disconnect(None)
    failed(construct, LostConnection)
    failed(other, LostConnection)
    assert not port.timers


# Fences of a whole group where the server knows of none

FT = attrs.GROUP_FT_COLLECTIVE(True)


def fenced(port: Port, *directives: Info) -> list[tuple[Any, BaseException | None]]:
    outcome: list[tuple[Any, BaseException | None]] = []
    op = Fence((Proc("g", RANK_WILDCARD),), True, directives)
    port.agent.constructing.fence("g", op, lambda result, error: outcome.append((result, error)))
    return outcome


def test_a_fence_of_a_group_is_one_of_its_members() -> None:
    port = Port((5, 0, 11))
    port.built(C, A, B)
    outcome = fenced(port)
    assert port.answer() == Fence((A, B, C), True)
    assert outcome == [(None, None)]


def test_who_has_left_is_not_waited_for_with_ft() -> None:
    port = Port((5, 0, 11))
    port.built(A, B, C)
    outcome = fenced(port, FT)
    port.hear(statuses.GROUP_LEFT, B, text(keys.GROUP_ID, "other"))
    assert len(port.asked) == 1
    port.hear(statuses.GROUP_LEFT, B, text(keys.GROUP_ID, "g"))
    assert [op.procs for op, _ in port.asked] == [(A, B, C), (A, C)]
    port.asked.pop(0)
    port.answer()
    assert outcome == [(None, None)]


def test_who_has_left_after_it_has_called_is_counted() -> None:
    for directives in (), (FT,):
        port = Port((5, 0, 11))
        port.built(A, B, C)
        outcome = fenced(port, *directives)
        port.hear(statuses.GROUP_LEFT, B, text(keys.GROUP_ID, "g"))
        port.answer()
        assert outcome == [(None, None)]
        assert not port.timers


def test_a_fence_that_somebody_has_left_fails() -> None:
    port = Port((5, 0, 11))
    port.built(A, B, C)
    outcome = fenced(port)
    port.hear(statuses.PROC_TERMINATED, SERVER, proc(keys.EVENT_AFFECTED_PROC, C))
    port.pass_time(LOSS_GRACE)
    assert failed(outcome, PartialSuccess).missing == {C}
    port.answer()
    assert len(outcome) == 1


def test_the_time_of_a_fence_runs_here_as_well() -> None:
    port = Port((5, 0, 11))
    port.built(A, B)
    outcome = fenced(port, attrs.TIMEOUT(1), FT)
    port.hear(statuses.GROUP_LEFT, B, text(keys.GROUP_ID, "g"))
    port.pass_time(1 + TIMEOUT_GRACE)
    failed(outcome, OperationTimeout)


# What members say of themselves


def test_what_members_say_is_asked_for_by_the_context_id_before_6() -> None:
    port = Port((5, 0, 11))
    said = Info("pmix.grp.info", Value(codes.DATA_ARRAY, DataArray(codes.INFO, (attrs.TIMEOUT(1),))))
    outcome = port.start(GroupConstruct("g", (B, A), (said, attrs.GROUP_ENDPT_DATA(b"port"))))
    op = port.answer(GroupResults((A, B), 7))
    wrapped = next(info.value.data.items for info in op.directives[::-1] if info.key == "pmix.grp.info")
    assert [(item.key, item.value.data) for item in wrapped] == [("pmix.timeout", 1), ("pypmix.grp.endpt", b"port")]
    asked = [op for op, _ in port.asked]
    assert [(op.proc, op.key) for op in asked] == [
        (whose, key) for whose in (A, B) for key in ("pmix.timeout", "pypmix.grp.endpt")
    ]
    assert all(op.directives[0] == Info("pmix.grp.ctxid", Value(codes.SIZE, 7), 8) for op in asked)
    for value in (Value(codes.INT, 1), Value(codes.BYTE_OBJECT, b"a"), None):
        port.answer(value, None if value else NotFound("nobody has it"))
        assert not outcome
    port.answer(Value(codes.BYTE_OBJECT, b"b"))
    results = outcome[0][0]
    told = [[(item.key, item.value.data) for item in info.value.data.items] for info in results.infos]
    assert told == [
        [("pmix.procid", A), ("pmix.timeout", 1), ("pmix.grp.endpt", b"a")],
        [("pmix.procid", B), ("pmix.grp.endpt", b"b")],
    ]
    assert (results.members, results.context_id) == ((B, A), None)


def test_what_the_answer_brings_is_not_asked_for() -> None:
    port = Port()
    said = Info("pmix.grp.info", Value(codes.DATA_ARRAY, DataArray(codes.INFO, (attrs.TIMEOUT(1),))))
    outcome = port.start(GroupConstruct("g", (A, B), (said, CONTEXT_ID)))
    port.answer(GroupResults((A, B), 7, (said,)))
    assert outcome[0][0].infos == (said,)


def test_a_failure_of_a_server_of_ours_has_one_status() -> None:
    port = Port(adapts=True)
    for answered, told in (
        (-52, statuses.GROUP_CONSTRUCT_ABORT),
        (statuses.GROUP_CONSTRUCT_ABORT, statuses.GROUP_CONSTRUCT_ABORT),
        (statuses.ERR_BAD_PARAM, statuses.ERR_BAD_PARAM),
    ):
        outcome = port.start(GroupConstruct("g", (A, B)))
        error = PMIxError("so it is", status=answered)
        error.missing = frozenset((B,))
        port.answer(None, error)
        assert failed(outcome, PMIxError, told).missing == {B}
    native = Port((5, 0, 11))
    outcome = native.start(GroupConstruct("g", (A, B)))
    native.answer(None, PMIxError("one is gone", status=-52))
    failed(outcome, PMIxError, -52)


def test_who_comes_late_knows_who_was_selected_to_lead() -> None:
    port = Port(adapts=True)
    port.agent.expect((statuses.GROUP_LEADER_SELECTED,))
    port.hear(statuses.GROUP_LEADER_SELECTED, SERVER, text(keys.GROUP_ID, "g"), proc(keys.GROUP_LEADER, B))
    port.hear(statuses.GROUP_LEADER_SELECTED, B, text(keys.GROUP_ID, "h"), proc(keys.GROUP_LEADER, B))
    for name, leader in (("g", B), ("h", None)):
        port.start(GroupConstruct(name, (A, B)))
        port.answer(GroupResults((A, B)))
        assert port.agent.standing.state(name).leader == leader  # type: ignore[union-attr]
    port.start(GroupDestruct("g"))
    port.answer()
    port.start(GroupConstruct("g", (A, B)))
    port.answer(GroupResults((A, B)))
    assert port.agent.standing.state("g").leader is None  # type: ignore[union-attr]


def test_what_is_remembered_of_leaders_is_bounded() -> None:
    port = Port(adapts=True)
    port.agent.expect((statuses.GROUP_LEADER_SELECTED,))
    for number in range(MAX_SELECTED + 1):
        port.hear(statuses.GROUP_LEADER_SELECTED, SERVER, text(keys.GROUP_ID, f"g{number}"), proc(keys.GROUP_LEADER, B))
    for name, leader in (("g0", None), ("g1", B)):
        port.start(GroupConstruct(name, (A, B)))
        port.answer(GroupResults((A, B)))
        assert port.agent.standing.state(name).leader == leader  # type: ignore[union-attr]


def test_who_was_selected_tells_those_whose_libraries_do_not() -> None:
    port = Port(adapts=True)
    port.start(GroupConstruct("g", (A, B, C)))
    port.hear(statuses.GROUP_LEADER_SELECTED, SERVER, text(keys.GROUP_ID, "g"), proc(keys.GROUP_LEADER, A))
    port.answer(GroupResults((A, B)))
    assert [found(op.infos, SAYS, str) for op in port.said] == ["standing leads"]
    other = Port(adapts=True)
    other.start(GroupConstruct("g", (A, B), (Info(GROUP_LEADER_PROC, Value(codes.PROC, B)),)))
    other.answer(GroupResults((A, B)))
    assert not other.said


def test_a_job_that_was_not_known_is_spread_into_its_ranks() -> None:
    port = Port()
    others = Proc("other", RANK_WILDCARD)
    outcome = port.start(GroupConstruct("g", (others, Proc("job", RANK_WILDCARD))))
    port.answer(GroupResults((A, B, C, D, others)))
    assert not outcome
    assert port.answer(Value(codes.UINT32, 2)) == Get(others, "pmix.job.size", (IMMEDIATE, attrs.TIMEOUT(5)))
    # In the order in which all members have named them.
    assert outcome[0][0].members == (Proc("other", 0), Proc("other", 1), A, B, C, D)
    outcome = port.start(GroupConstruct("h", (A, Proc("unknown", RANK_WILDCARD))))
    port.answer(GroupResults((A, Proc("unknown", RANK_WILDCARD))))
    port.answer(None, NotFound("no such job"))
    assert outcome[0][0].members == (A, Proc("unknown", RANK_WILDCARD))


def test_a_member_that_a_server_has_lost_may_have_left() -> None:
    port = Port()
    port.built(A, B, C)
    outcome = port.start(GroupDestruct("g"))
    port.answer(None, LostConnection("one is lost"))
    port.pass_time(LEAVE_GRACE / 2)
    assert not outcome
    failed(port.start(GroupDestruct("g")), PMIxError, statuses.ERR_RESOURCE_BUSY)
    port.hear(statuses.PROC_TERMINATED, SERVER, proc(keys.EVENT_AFFECTED_PROC, C))
    port.hear(statuses.GROUP_LEFT, C, text(keys.GROUP_ID, "g"))
    port.pass_time(2 * LOSS_GRACE)
    assert not outcome
    assert port.answer() == Fence((A, B))
    assert outcome == [(None, None)] and not port.timers
    port.built(A, B)
    outcome = port.start(GroupDestruct("g"))
    port.answer(None, LostConnection("one is lost"))
    port.pass_time(LEAVE_GRACE)
    failed(outcome, PartialSuccess)
    failed(port.start(GroupDestruct("g")), NotFound)


@pytest.mark.parametrize("adapts", [False, True])
def test_a_construct_may_name_a_connection(adapts: bool) -> None:
    port = Port(adapts=adapts)
    whole = (Proc("connection", RANK_WILDCARD),)
    port.agent.addresses.connected("connection", (A, B))
    outcome = port.start(GroupConstruct("g", whole))
    # A server that knows connections finds their procs itself.
    assert port.answer(GroupResults((A, B))).procs == (whole if adapts else (A, B))
    assert outcome[0][0].members == (A, B)
