"""Proves what both engines make up for about groups, and how the Python client speaks of them to each release."""

from __future__ import annotations

from typing import Any

import pytest

from pypmix.engine.groups.rules import Groups, answer_form, directives_for, wants_context_id
from pypmix.standard import attrs, codes
from pypmix.standard.errors import (
    ERR_BAD_PARAM,
    ERR_EXISTS,
    ERR_RESOURCE_BUSY,
    NotFound,
    OperationTimeout,
    PMIxError,
    Unreachable,
)
from pypmix.standard.ops import Fence, GroupConstruct, GroupDestruct, GroupResults
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.messages import Command, decode_fence, encode_status, reply_layout, request_layout
from unit.fake_server import NSPACE
from unit.test_python_client_machine import ALL, ME, PEER, Wire

FOREIGN = Proc("other", 3)
ASKED = (attrs.GROUP_ASSIGN_CONTEXT_ID(True),)


def fetch(proc: Proc, key: str) -> Value | None:
    """What this process knows: the size of its own job."""
    known = proc == ALL and key == "pmix.job.size"
    return Value(codes.UINT32, 3) if known else None


def infos(members: tuple[Proc, ...] = (), context_id: int | None = None) -> list[Info]:
    found = [Info("pmix.grp.id", Value(codes.STRING, "g"))]
    if members:
        found.append(Info("pmix.grp.mbrs", Value(codes.DATA_ARRAY, DataArray(codes.PROC, members))))
    if context_id is not None:
        found.append(Info("pmix.grp.ctxid", Value(codes.SIZE, context_id)))
    return found


def formed(*procs: Proc) -> Groups:
    groups = Groups(ME)
    groups.formed(GroupConstruct("g", procs), infos(), fetch)
    return groups


@pytest.mark.parametrize("procs", [(PEER, ME), (ME, PEER, ME), (FOREIGN, PEER, ME)])
def test_servers_are_told_of_each_proc_once_in_order(procs: tuple[Proc, ...]) -> None:
    told = Groups(ME).constructed_of(GroupConstruct("g", procs), fetch)
    assert told == tuple(sorted(set(procs)))


def test_servers_are_told_of_ranks_where_the_job_is_known() -> None:
    everywhere = Proc("other", RANK_WILDCARD)
    told = Groups(ME).constructed_of(GroupConstruct("g", (everywhere, ALL)), fetch)
    assert told == (ME, PEER, Proc(NSPACE, 2), everywhere)


def test_members_of_a_group_form_another() -> None:
    groups = formed(PEER, ME)
    assert groups.constructed_of(GroupConstruct("h", (Proc("g", 1), Proc("g", 0))), fetch) == (ME, PEER)


@pytest.mark.parametrize(
    ("name", "procs", "status"),
    [("g", (ME, PEER), ERR_EXISTS), (NSPACE, (ME, PEER), ERR_EXISTS), ("h", (PEER,), ERR_BAD_PARAM)],
)
def test_what_cannot_be_is_refused(name: str, procs: tuple[Proc, ...], status: int) -> None:
    with pytest.raises(PMIxError) as caught:
        formed(ME, PEER).constructed_of(GroupConstruct(name, procs), fetch)
    assert caught.value.code == status


def test_a_group_is_an_address() -> None:
    groups = formed(PEER, ME)
    assert groups.expand((Proc("g", RANK_WILDCARD),)) == (ME, PEER)
    assert groups.expand((Proc("g", 1), FOREIGN, PEER)) == (PEER, FOREIGN)
    with pytest.raises(NotFound, match="no rank 2"):
        groups.expand((Proc("g", 2),))
    groups.gone("g")
    assert groups.expand((Proc("g", 1),)) == (Proc("g", 1),)


@pytest.mark.parametrize(
    ("asked", "given", "told"),
    [
        (True, 2**32 - 1, 2**32 - 1),
        (True, 2**64 - 1, None),
        (True, None, None),
        (False, 7, None),
    ],
)
def test_who_has_asked_is_told_of_a_context_id(asked: bool, given: int | None, told: int | None) -> None:
    op = GroupConstruct("g", (ME, PEER), ASKED if asked else ())
    results = Groups(ME).formed(op, infos((PEER, ME), given), fetch)
    assert results == GroupResults((PEER, ME), told)


def test_members_are_those_who_were_named_where_the_server_tells_of_none() -> None:
    assert Groups(ME).formed(GroupConstruct("g", (ALL,)), infos(), fetch).members == (ME, PEER, Proc(NSPACE, 2))


def test_5_0_is_always_asked_for_a_context_id() -> None:
    never = GroupConstruct("g", (ME,), (attrs.GROUP_ASSIGN_CONTEXT_ID(False), attrs.GROUP_OPTIONAL(True)))
    assert not wants_context_id(never)
    assert directives_for(never, (5, 0, 11)) == (attrs.GROUP_OPTIONAL(True), *ASKED)
    for release in (4, 2, 2), (6, 0, 0), (7, 0, 0):
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


def constructed(wire: Wire, op: GroupConstruct, **fields: Any) -> GroupResults:
    """Carry a construct out and return its results."""
    call = wire.start(op)
    tag, _ = wire.request()
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
    assert results == GroupResults((ME, PEER), 2**32 - 1)
    asked = request_layout(Command.GROUP_CONSTRUCT, release).decode(wire.requests.popitem()[1], 1, release)
    assert (asked["group"], asked["procs"], asked["infos"]) == ("g", (ME, PEER), ASKED)

    fence = wire.start(Fence((Proc("g", RANK_WILDCARD),)))
    tag, payload = wire.request()
    assert tuple(decode_fence(payload, 1, release)[0]) == (ME, PEER)
    wire.reply(tag, encode_status(1, 0))
    assert fence.outcome == (None, None)

    destruct = wire.start(GroupDestruct("g"))
    tag, payload = wire.request()
    told = request_layout(Command.GROUP_DESTRUCT, release).decode(payload, 1, release)
    assert told["members"] == (() if release < (4, 2, 4) else (ME, PEER))
    wire.reply(tag, encode_status(1, 0))
    assert destruct.outcome == (None, None)
    wire.fails(wire.start(GroupDestruct("g")), NotFound, "not in a group 'g'")
    assert not wire.sent()


def test_what_members_say_of_themselves_comes_with_the_answer_since_6() -> None:
    said = (Info("pmix.grp.info", Value(codes.UINT32, 5)),)
    assert constructed(Wire((7, 0, 0)), GroupConstruct("g", (ME, PEER)), group_info=said).infos == said


def test_a_destruct_that_fails_leaves_the_group() -> None:
    wire = Wire((7, 0, 0))
    constructed(wire, GroupConstruct("g", (ME, PEER)))
    call = wire.start(GroupDestruct("g"))
    tag, _ = wire.request()
    wire.reply(tag, encode_status(1, -24))
    error = wire.fails(call, OperationTimeout, "not all members of 'g' had come")
    assert error.operation == "group_destruct"
    wire.start(GroupDestruct("g"))
    assert wire.sent()


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
    tag, _ = wire.request()
    wire.machine.tick(wire.now + 3)
    wire.fails(call, OperationTimeout)
    assert wire.fails(wire.start(op), PMIxError, "still waits").code == ERR_RESOURCE_BUSY
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
