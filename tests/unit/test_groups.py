"""Proves what both engines make up for about groups, and how the Python client speaks of them to each release."""

from __future__ import annotations

from typing import Any

import pytest

from lib.client_wire import ALL, ME, PEER, Wire
from lib.fake_server import NSPACE
from pypmix.engine.groups.addresses import Addresses, check_fence
from pypmix.engine.groups.constructing import results_of, wants_context_id
from pypmix.engine.groups.foreign.rules import answer_form, directives_for, signed
from pypmix.engine.queryanswers import OPEN, completed
from pypmix.standard import attrs, codes
from pypmix.standard.errors import NotFound, OperationTimeout, PMIxError, ResourceBusy, Unreachable
from pypmix.standard.ops import (
    Connect,
    Fence,
    Get,
    GroupConstruct,
    GroupDestruct,
    GroupResults,
    GroupState,
    NotifyEvent,
    QueryInfo,
    Spawn,
)
from pypmix.standard.types import RANK_WILDCARD, App, DataArray, Info, Proc, Query, Value
from pypmix.wire.messages import Command, decode_fence, encode_status, peek_command, reply_layout, request_layout

FOREIGN = Proc("other", 3)
ASKED = (attrs.GROUP_ASSIGN_CONTEXT_ID(True),)
GROUP = Proc("g", RANK_WILDCARD)


def procs(*items: Proc) -> Value:
    return Value(codes.DATA_ARRAY, DataArray(codes.PROC, items))


class Standing:
    """The caller is in one group, `g`, of three members."""

    def state(self, name: str) -> GroupState | None:
        return GroupState("g", (PEER, ME, FOREIGN), 7) if name == "g" else None

    def members(self, name: str) -> tuple[Proc, ...]:
        return (PEER, ME, FOREIGN) if name == "g" else ()

    def names(self) -> tuple[str, ...]:
        return ("g",)


def addresses(**how: bool) -> Addresses:
    return Addresses(ME, Standing(), **how)  # type: ignore[arg-type]


def test_a_group_is_an_address() -> None:
    assert addresses().expand((GROUP,)) == (PEER, ME, FOREIGN)
    assert addresses().expand((Proc("g", 1), FOREIGN, ME)) == (ME, FOREIGN)
    assert addresses().expand((Proc("h", 1),)) == (Proc("h", 1),)
    with pytest.raises(NotFound, match="no rank 3"):
        addresses().expand((Proc("g", 3),))


@pytest.mark.parametrize("kind", [Fence, Connect])
def test_who_takes_part_in_a_collective(kind: Any) -> None:
    op = kind((Proc("g", 2), ALL))
    assert addresses().translated(op).procs == tuple(sorted((FOREIGN, ALL)))
    assert addresses(decides=True).translated(op) is op
    with pytest.raises(NotFound):
        addresses(decides=True).translated(kind((Proc("g", 3),)))
    other = kind((ALL,))
    assert addresses().translated(other) is other


def test_a_fence_of_a_whole_group_is_stamped_with_its_name() -> None:
    told = addresses(decides=True, recorded=True).translated(Fence((GROUP,)))
    assert told == Fence(tuple(sorted((PEER, ME, FOREIGN))), False, (attrs.GROUP_ID("g"),))
    assert addresses(decides=True, recorded=True).translated(Fence((GROUP, ALL))).directives == ()


def test_whose_value_is_wanted() -> None:
    assert addresses().translated(Get(Proc("g", 0), "k")).proc == PEER
    assert addresses(decides=True).translated(Get(Proc("g", 0), "k")).proc == PEER
    with pytest.raises(NotFound):
        addresses().translated(Get(Proc("g", 3), "k"))


def test_who_is_told_of_an_event() -> None:
    one, several, whole = (
        NotifyEvent(-1, 6, (Info("pmix.evrange", value),))
        for value in (Value(codes.PROC, Proc("g", 2)), procs(Proc("g", 0), ALL), Value(codes.PROC, GROUP))
    )
    assert addresses().translated(one).infos == (Info("pmix.evrange", Value(codes.PROC, FOREIGN)),)
    assert addresses().translated(several).infos == (Info("pmix.evrange", procs(PEER, ALL)),)
    assert addresses().translated(whole).infos == (Info("pmix.evrange", procs(PEER, ME, FOREIGN)),)
    other = NotifyEvent(-1, 6, (Info("pmix.evrange", Value(codes.PROC, ALL)), attrs.TIMEOUT(3)))
    assert addresses().translated(other) is other


def test_whom_a_query_is_about() -> None:
    by_proc = QueryInfo((Query(("k",), (Info("pmix.procid", Value(codes.PROC, Proc("g", 2))),)),))
    by_name = QueryInfo(
        (
            Query(
                ("k",),
                (Info("pmix.nspace", Value(codes.STRING, "g")), Info("pmix.rank", Value(codes.PROC_RANK, 2))),
            ),
        )
    )
    for op in by_proc, by_name:
        (query,) = addresses().translated(op).queries
        assert query.qualifiers == (Info("pmix.procid", Value(codes.PROC, FOREIGN)),)


def test_whose_child_a_job_is() -> None:
    parent = Info("pmix.parent", Value(codes.PROC, Proc("g", 2)))
    op = Spawn((App("a", info=(parent,)),), (parent,))
    told = addresses().translated(op)
    assert told.directives == told.apps[0].info == (Info("pmix.parent", Value(codes.PROC, FOREIGN)),)


def test_what_a_group_knows_itself() -> None:
    answer = addresses().answer
    assert answer(Get(ME, "pmix.pgrp.nm")).data.items == ("g",)
    assert answer(Get(PEER, "pmix.pgrp.nm")) is None
    assert answer(Get(GROUP, "pmix.grp.mbrs")) == procs(PEER, ME, FOREIGN)
    assert answer(Get(GROUP, "pmix.job.size")).data == 3
    assert answer(Get(GROUP, "pmix.grp.ctxid")).data == 7
    assert answer(Get(ALL, "pmix.job.size")) is None
    with pytest.raises(NotFound, match="one of its members"):
        answer(Get(GROUP, "k"))
    named_g, named_h = ((Query(("pmix.qry.pgrpmems",), (attrs.GROUP_ID(name),)),) for name in "gh")
    assert answer(QueryInfo(named_g)) == (Info("pmix.qry.pgrpmems", procs(PEER, ME, FOREIGN)),)
    assert answer(QueryInfo(named_g + named_h)) is None


def test_a_fence_of_nobody_is_refused() -> None:
    for fine in (ALL,), (GROUP, ME), (PEER,), (FOREIGN,):
        check_fence(ME, fine, {NSPACE, "other"}.__contains__)
    with pytest.raises(NotFound, match="no group of this name"):
        check_fence(ME, (GROUP,), {NSPACE}.__contains__)


def test_names_of_groups_are_an_array() -> None:
    def names(value: Value) -> Value:
        (found,) = completed((Info("pmix.qry.pgrp", OPEN),), (Info("pmix.qry.pgrp", value),))
        return found.value

    array = Value(codes.DATA_ARRAY, DataArray(codes.STRING, ("a", "b")))
    assert names(Value(codes.STRING, "a,b")) == array == names(array)
    assert names(Value(codes.STRING, None)).data.items == ()


@pytest.mark.parametrize(("given", "told"), [(2**32 - 1, 2**32 - 1), (2**64 - 1, None), (None, None)])
def test_what_is_told_of_a_group(given: int | None, told: int | None) -> None:
    infos = [attrs.GROUP_ID("g"), Info("pmix.grp.mbrs", procs(PEER, ME)), attrs.TIMEOUT(3)]
    if given is not None:
        infos.append(Info("pmix.grp.ctxid", Value(codes.SIZE, given)))
    assert results_of(infos) == GroupResults((PEER, ME), told, (attrs.TIMEOUT(3),))


def test_4_2_and_5_0_are_always_asked_for_a_context_id() -> None:
    never = GroupConstruct("g", (ME,), (attrs.GROUP_ASSIGN_CONTEXT_ID(False), attrs.GROUP_OPTIONAL(True)))
    assert not wants_context_id(never.directives)
    for release in (4, 2, 2), (5, 0, 11):
        assert directives_for(never, release) == (attrs.GROUP_OPTIONAL(True), *ASKED)
    for release in (6, 0, 0), (7, 0, 0):
        assert directives_for(never, release) == never.directives
    asking = GroupConstruct("g", (ME,), ASKED)
    assert directives_for(asking, (5, 0, 11)) == ASKED
    assert directives_for(GroupDestruct("g"), (5, 0, 11)) == ()


@pytest.mark.parametrize(
    "op", [GroupConstruct("g", (ME,), (attrs.TIMEOUT(3),)), GroupDestruct("g", (attrs.TIMEOUT(3),))]
)
def test_servers_that_crash_on_a_timeout_are_told_of_none(op: GroupConstruct | GroupDestruct) -> None:
    for release in (0, 0, 0), (4, 2, 2), (5, 0, 11):
        assert attrs.TIMEOUT(3) not in directives_for(op, release)
    for release in (6, 0, 0), (7, 0, 0):
        assert directives_for(op, release) == (attrs.TIMEOUT(3),)


def test_answers_have_three_forms() -> None:
    releases = [(4, 2, 2), (4, 2, 3), (4, 2, 4), (5, 0, 11), (6, 0, 0), (7, 0, 0)]
    assert [answer_form(release) for release in releases] == [0, 0, 1, 1, 2, 2]


RELEASES = [(4, 2, 2), (5, 0, 11), (7, 0, 0)]


def asked(wire: Wire) -> tuple[int, bytes]:
    """Return the only new request, but for what the server is told of events."""
    events = (Command.REGEVENTS, Command.DEREGEVENTS)
    ((tag, payload),) = [item for item in wire.sent().items() if peek_command(item[1], 1) not in events]
    return tag, payload


def constructed(wire: Wire, op: GroupConstruct, **fields: Any) -> GroupResults:
    """Carry a construct out and return its results."""
    call = wire.start(op)
    tag, _ = asked(wire)
    release = wire.machine.release
    layout = reply_layout(Command.GROUP_CONSTRUCT, release)
    reply = {"status": 0, "members": (ME, PEER), "context_id": None, "group_info": (), "objects": (), **fields}
    wire.reply(tag, layout.encode(1, release, **reply))
    assert call.outcome is not None
    assert call.outcome[1] is None
    results: GroupResults = call.outcome[0]
    return results


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_construct_fence_and_destruct(release: tuple[int, int, int]) -> None:
    wire = Wire(release)
    results = constructed(wire, GroupConstruct("g", (PEER, ME), ASKED), context_id=2**32 - 1)
    assert results == GroupResults((PEER, ME), 2**32 - 1)
    (payload,) = [each for each in wire.requests.values() if peek_command(each, 1) == Command.GROUP_CONSTRUCT]
    told = request_layout(Command.GROUP_CONSTRUCT, release).decode(payload, 1, release)
    assert (told["group"], told["procs"], told["infos"][:1]) == ("g", (ME, PEER), ASKED)
    # Where the server can be told in which order the members are, it is.
    assert [info.key for info in told["infos"][1:]] == (["pmix.grp.finord"] if release >= (6, 1, 0) else [])

    fence = wire.start(Fence((Proc("g", RANK_WILDCARD),)))
    tag, payload = asked(wire)
    assert tuple(decode_fence(payload, 1, release)[0]) == (ME, PEER)
    wire.reply(tag, encode_status(1, 0))
    assert fence.outcome == (None, None)

    destruct = wire.start(GroupDestruct("g"))
    tag, payload = asked(wire)
    told = request_layout(Command.GROUP_DESTRUCT, release).decode(payload, 1, release)
    assert told["members"] == (() if release < (4, 2, 4) else (ME, PEER))
    wire.reply(tag, encode_status(1, 0))
    assert destruct.outcome == (None, None)
    wire.fails(wire.start(GroupDestruct("g")), NotFound, "not in a group 'g'")
    assert not wire.sent()


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_servers_since_6_want_to_know_who_says_it(release: tuple[int, int, int]) -> None:
    word = Info("acme.word", Value(codes.STRING, "hello"))
    group_info = Info("pmix.grp.info", Value(codes.DATA_ARRAY, DataArray(codes.INFO, (word,))))
    wire = Wire(release)
    constructed(wire, GroupConstruct("g", (ME, PEER), (group_info,)))
    (payload,) = [each for each in wire.requests.values() if peek_command(each, 1) == Command.GROUP_CONSTRUCT]
    told = request_layout(Command.GROUP_CONSTRUCT, release).decode(payload, 1, release)
    (said,) = [info.value.data.items for info in told["infos"] if info.key == "pmix.grp.info"]
    whose = (Info("pmix.procid", Value(codes.PROC, ME)),) if release >= (6, 0, 0) else ()
    assert tuple(said) == (*whose, word)
    signed_once = signed(Info("pmix.grp.info", Value(codes.DATA_ARRAY, DataArray(codes.INFO, (*whose, word)))), ME)
    assert signed(signed_once, PEER) == signed_once


def test_what_members_say_of_themselves_comes_with_the_answer_since_6() -> None:
    said = (Info("pmix.grp.info", Value(codes.UINT32, 5)),)
    assert constructed(Wire((7, 0, 0)), GroupConstruct("g", (ME, PEER)), group_info=said).infos == said


def test_a_destruct_that_fails_leaves_the_group() -> None:
    wire = Wire((7, 0, 0))
    constructed(wire, GroupConstruct("g", (ME, PEER)))
    call = wire.start(GroupDestruct("g"))
    tag, _ = asked(wire)
    wire.reply(tag, encode_status(1, -24))
    error = wire.fails(call, OperationTimeout, "not all members of 'g' had come")
    assert error.operation == "group_destruct"
    wire.start(GroupDestruct("g"))
    asked(wire)


def test_the_time_runs_here_as_well() -> None:
    wire = Wire((5, 0, 11))
    call = wire.start(GroupConstruct("g", (ME, PEER), (attrs.TIMEOUT(2),)))
    wire.machine.tick(wire.now + 2)
    assert call.outcome is None
    wire.machine.tick(wire.now + 3)
    wire.fails(call, OperationTimeout)


def test_nobody_is_counted_twice() -> None:
    """A call that was given up stands with the server until that has answered."""
    wire = Wire((5, 0, 11))
    op = GroupConstruct("g", (ME, PEER), (attrs.TIMEOUT(2),))
    call = wire.start(op)
    tag, _ = asked(wire)
    wire.machine.tick(wire.now + 3)
    wire.fails(call, OperationTimeout)
    wire.fails(wire.start(op), ResourceBusy, "still waits")
    assert not wire.sent()
    wire.reply(tag, encode_status(1, -24))
    assert constructed(wire, op).members == (ME, PEER)


def test_what_is_refused_here_is_not_sent() -> None:
    wire = Wire((7, 0, 0))
    error = wire.fails(wire.start(GroupConstruct("g", (PEER,))), PMIxError, "not one of the procs")
    assert (error.operation, error.procs) == ("group_construct", (PEER,))
    constructed(wire, GroupConstruct("g", (ME, PEER)))
    wire.fails(wire.start(Fence((Proc("g", 5),))), NotFound, "no rank 5")
    assert not wire.sent()


def test_a_lone_process_has_no_groups() -> None:
    wire = Wire((7, 0, 0), opened=False)
    wire.machine.server = None
    wire.fails(wire.start(GroupConstruct("g", (ME,))), Unreachable)
