"""Proves that requests refuse arguments that could never work, and what they ask for with the others."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from lib.fake_session import FakeSession
from pypmix import Client, EventCode, Info, Persist, Proc, Range, Scope, Status, Tool, attrs, psets
from pypmix.recipes import candidacy
from pypmix.serverbase import check_upcall
from pypmix.standard import keys
from pypmix.standard.errors import NotFound, OperationTimeout
from pypmix.standard.ops import Get, Lookup, Publish, Put, RegisterEventHandler
from pypmix.standard.types import Pdata
from pypmix.standard.values import from_python, uint32

PROC = Proc("job", 1)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    fake = FakeSession()
    monkeypatch.setattr("pypmix.clientbase.open_client", lambda *_: fake)
    monkeypatch.setattr("pypmix.tool.open_tool", lambda engine, env, directives: fake.opened(directives))
    return fake


@pytest.fixture
def me(session: FakeSession) -> Iterator[Client]:
    with Client() as client:
        yield client


def target(session: FakeSession, **given: Any) -> list[tuple[str, object]]:
    """Return the directives of a tool that is opened."""
    with Tool(**given):
        return [(info.key, info.value.data) for info in session.directives]


@pytest.mark.parametrize(
    ("timeout", "get", "lookup"),
    [
        (None, (), ()),
        (0, (attrs.IMMEDIATE(True),), ()),
        (1.5, (attrs.TIMEOUT(2),), (attrs.WAIT(0), attrs.TIMEOUT(2))),
        (math.inf, (attrs.TIMEOUT(2**31 - 1),), (attrs.WAIT(0),)),
    ],
)
def test_a_time_limit_alone_says_how_long_to_wait(
    me: Client, session: FakeSession, timeout: float | None, get: tuple[Info, ...], lookup: tuple[Info, ...]
) -> None:
    session.answers[Get], session.answers[Lookup] = uint32(1), (Pdata(PROC, "k", uint32(2)),)
    assert (me.get("k", 0, timeout=timeout), me.lookup("k", timeout=timeout)) == (1, 2)
    assert [op.directives for op in session.ops] == [get, lookup]


@pytest.mark.parametrize("timeout", [-1, math.nan, "1", True])
def test_a_time_limit_is_a_number_of_seconds(me: Any, session: FakeSession, timeout: object) -> None:
    for call in (me.get, me.lookup):
        with pytest.raises((TypeError, ValueError), match="a timeout is a number of seconds"):
            call("k", timeout=timeout)
    assert session.ops == []


@pytest.mark.parametrize(("wait", "get", "lookup"), [(True, None, math.inf), (False, 0, None), (3, 3, 3)])
def test_the_former_time_limit_means_the_same(
    me: Any, session: FakeSession, wait: float, get: float | None, lookup: float | None
) -> None:
    session.answers[Get], session.answers[Lookup] = uint32(1), (Pdata(PROC, "k", uint32(2)),)
    for call, timeout in ((me.get, get), (me.lookup, lookup)):
        with pytest.warns(DeprecationWarning, match=r"\(wait\) is now timeout"):
            call("k", wait=wait)
        call("k", timeout=timeout)
        former, present = session.ops[-2:]
        assert former == present


def test_a_handler_has_one_place(me: Client, session: FakeSession) -> None:
    for places in ({"order": "first", "before": "a"}, {"before": "a", "after": "b"}, {"order": "last", "after": "b"}):
        with pytest.raises(ValueError, match="only one can be given"):
            me.on(**places)  # type: ignore[arg-type]
    session.answers[RegisterEventHandler] = 1
    handler = me.on(before="a")(print)
    directives = session.ops[-1].directives
    handler.remove()
    assert [(info.key, info.value.data) for info in directives] == [(keys.EVENT_HDLR_BEFORE, "a")]


def test_a_server_is_named_in_one_way(session: FakeSession) -> None:
    assert target(session, uri="s.0;tcp4://127.0.0.1:1") == [(keys.SERVER_URI, "s.0;tcp4://127.0.0.1:1")]
    assert target(session, pid=7, timeout=2.5) == [
        (keys.SERVER_PIDINFO, 7),
        (keys.CONNECT_MAX_RETRIES, 3),
        (keys.CONNECT_RETRY_DELAY, 1),
    ]
    assert target(session) == []
    assert target(session, connect=False) == [(keys.TOOL_DO_NOT_CONNECT, True)]
    assert target(session, connect="optional", launcher=True) == [
        (keys.LAUNCHER, True),
        (keys.TOOL_CONNECT_OPTIONAL, True),
    ]
    with pytest.raises(ValueError, match="not by pid and uri"):
        Tool(pid=7, uri="s")
    for timeout in ("1", True):
        with pytest.raises(TypeError, match="a timeout is a number of seconds"):
            Tool(timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 0"):
        Tool(timeout=-1)


def test_a_tool_has_the_name_that_it_was_given(session: FakeSession) -> None:
    assert target(session, proc=PROC) == [(keys.TOOL_NSPACE, "job"), (keys.TOOL_RANK, 1)]
    with pytest.raises(TypeError, match="is a Proc, not a str"):
        Tool(proc="job:1")  # type: ignore[arg-type]


def test_a_host_is_a_plain_function() -> None:
    async def awaits(upcall: object) -> None:
        pass

    check_upcall(print)
    check_upcall(partial(print, "upcall"))
    with pytest.raises(TypeError, match="not a int"):
        check_upcall(3)
    for function in (awaits, partial(awaits)):
        with pytest.raises(TypeError, match="awaits nothing"):
            check_upcall(function)


@pytest.mark.parametrize(("leader", "term", "stands"), [(PROC, 1, True), (None, 2, True), (None, 0, False)])
def test_a_leader_follows_another_one_in_a_group_that_has_had_one(leader: Proc | None, term: int, stands: bool) -> None:
    group: Any = SimpleNamespace(
        name="g", membership=SimpleNamespace(state=lambda: SimpleNamespace(leader=leader, term=term))
    )
    with nullcontext() if stands else pytest.raises(ValueError, match="'g' has no leader to be followed"):
        candidacy.check(group, print, 1.0)
    with pytest.raises(TypeError, match="elect is a function"):
        candidacy.check(group, "me", 1.0)
    for patience, kind in ((0, ValueError), (True, TypeError), ("1", TypeError)):
        with pytest.raises(kind, match="patience is a number of seconds"):
            candidacy.check(group, print, patience)  # type: ignore[arg-type]


@pytest.mark.parametrize(("directives", "optional"), [((), False), ((False,), False), ((True,), True)])
def test_a_get_is_optional_if_it_says_so(directives: tuple[bool, ...], optional: bool) -> None:
    assert psets.optional(Get(PROC, "k", tuple(attrs.OPTIONAL(each) for each in directives))) is optional


def test_a_server_that_gives_up_means_not_found_unless_a_limit_was_given(me: Client, session: FakeSession) -> None:
    session.answers[Get] = OperationTimeout("the server gave up")
    with pytest.raises(NotFound, match="there is no 'k'") as failure:
        me.get("k", 0)
    assert (failure.value.operation, failure.value.procs) == ("get", (Proc("job", 0),))
    for given in ({"timeout": 3}, {"timeout": 0}, {"info": {attrs.TIMEOUT: 2}}):
        with pytest.raises(OperationTimeout):
            me.get("k", 0, **given)  # type: ignore[call-overload]
    with pytest.raises(NotFound):
        me.get("k", 0, info={attrs.IMMEDIATE: True})
    session.answers[Get] = NotFound("another one")
    with pytest.raises(NotFound, match="another one"):
        me.get("k", 0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda me: me.put("k", 1, EventCode.PROC_TERMINATED), "a Scope is expected, such as Scope.LOCAL, not <Event"),
        (lambda me: me.put("k", 1, "local"), "a Scope is expected, .*not 'local'"),
        (lambda me: me.get("k", scope=Range.LOCAL), "a Scope is expected"),
        (lambda me: me.publish({"k": 1}, data_range=Scope.LOCAL), "a Range is expected, such as Range.SESSION"),
        (lambda me: me.publish({"k": 1}, persist=Range.LOCAL), "a Persist is expected"),
        (lambda me: me.lookup("k", data_range=True), "a Range is expected"),
        (lambda me: me.unpublish(data_range=Persist.APP), "a Range is expected"),
        (lambda me: me.notify(Range.LOCAL), "an EventCode is expected, such as EventCode.PROC_TERMINATED"),
        (lambda me: me.notify(EventCode.PROC_TERMINATED, data_range=Scope.LOCAL), "a Range is expected"),
        (lambda me: me.on(Status.ERR_TIMEOUT), "an EventCode is expected"),
        (lambda me: me.events(Range.LOCAL), "an EventCode is expected"),
        (lambda me: me.output(0, Scope.LOCAL), "an IOFChannel is expected, such as IOFChannel.STDOUT"),
        (lambda me: me.allocate(Scope.LOCAL), "an AllocDirective is expected"),
        (lambda me: me.monitors.watch_heartbeat(5, error=Range.LOCAL), "an EventCode is expected"),
        (lambda me: me.fabric.compute_distances(devices=Range.LOCAL), "a DeviceType is expected"),
    ],
)
def test_a_member_of_another_enum_is_an_error_at_the_call(me: Any, session: FakeSession, call: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        call(me)
    assert session.ops == []


def test_the_defaults_show_the_members_of_enums(me: Any, session: FakeSession) -> None:
    assert "scope: 'Scope' = Scope.GLOBAL" in str(inspect.signature(me.put))
    assert "data_range: 'Range' = Range.SESSION, persist: 'Persist' = Persist.APP" in str(inspect.signature(me.publish))
    assert "IOFChannel.STDOUT | IOFChannel.STDERR" in str(inspect.signature(me.output))
    me.put("k", 1)
    me.publish({"k": 1})
    assert session.ops == [
        Put("k", from_python(1), Scope.GLOBAL),
        Publish((Info("k", from_python(1)),), Range.SESSION, Persist.APP),
    ]
    # As plain numbers they are taken, too, and members of two enums that are equal are not the same.
    me.put("k", 1, 1)
    assert session.ops[-1].scope == Scope.LOCAL
