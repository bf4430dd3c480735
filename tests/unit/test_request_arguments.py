"""Proves that requests refuse arguments that could never work, and what they ask for with the others."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pypmix import Proc, attrs
from pypmix.requests import candidacy, not_found, psets, tools, waited
from pypmix.requests.events import handler_op
from pypmix.requests.serving import check_upcall
from pypmix.standard import keys
from pypmix.standard.errors import NotFound, OperationTimeout
from pypmix.standard.ops import Get

PROC = Proc("job", 1)


def target(**given: Any) -> dict[str, Any]:
    """Return what is asked of a tool's search for a server, by key."""
    names = "pid", "nspace", "uri", "file", "system", "host", "tmpdir", "timeout", "info"
    directives = tools.target(**{**dict.fromkeys(names), "system": False, **given})
    return {info.key: info.value.data for info in directives}


def test_one_limit_may_stand_beside_the_wish_to_wait() -> None:
    for wait in (None, True):
        assert waited(wait, 3) == 3
    assert waited(2, None) == 2
    for wait in (False, 2):
        with pytest.raises(TypeError, match="two names of one time limit"):
            waited(wait, 3)


def test_a_handler_has_one_place() -> None:
    for places in ({"order": "first", "before": "a"}, {"before": "a", "after": "b"}, {"order": "last", "after": "b"}):
        with pytest.raises(ValueError, match="only one can be given"):
            handler_op(print, (), None, **places)  # type: ignore[arg-type]
    directives = handler_op(print, (), None, before="a").directives
    assert [(info.key, info.value.data) for info in directives] == [(keys.EVENT_HDLR_BEFORE, "a")]


def test_a_server_is_named_in_one_way() -> None:
    assert target(uri="s.0;tcp4://127.0.0.1:1") == {keys.SERVER_URI: "s.0;tcp4://127.0.0.1:1"}
    assert target(pid=7, timeout=2.5) == {
        keys.SERVER_PIDINFO: 7,
        keys.CONNECT_MAX_RETRIES: 3,
        keys.CONNECT_RETRY_DELAY: 1,
    }
    assert target() == {}
    with pytest.raises(ValueError, match="not by pid and uri"):
        target(pid=7, uri="s")
    for timeout in ("1", True):
        with pytest.raises(TypeError, match="a timeout is a number of seconds"):
            target(timeout=timeout)
    with pytest.raises(ValueError, match="at least 0"):
        target(timeout=-1)


def test_a_tool_has_the_name_that_it_was_given() -> None:
    assert tools.name(None) == ()
    assert [(info.key, info.value.data) for info in tools.name(PROC)] == [
        (keys.TOOL_NSPACE, "job"),
        (keys.TOOL_RANK, 1),
    ]
    with pytest.raises(TypeError, match="is a Proc, not a str"):
        tools.name("job:1")  # type: ignore[arg-type]


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
    group: Any = SimpleNamespace(name="g", leader=leader, state=lambda: SimpleNamespace(term=term))
    with nullcontext() if stands else pytest.raises(ValueError, match="'g' has no leader to be followed"):
        candidacy.check(group, print, 1.0)
    with pytest.raises(TypeError, match="elect is a function"):
        candidacy.check(group, "me", 1.0)
    for patience in (0, True, "1"):
        with pytest.raises(ValueError, match="patience is a number of seconds"):
            candidacy.check(group, print, patience)  # type: ignore[arg-type]


@pytest.mark.parametrize(("directives", "optional"), [((), False), ((False,), False), ((True,), True)])
def test_a_get_is_optional_if_it_says_so(directives: tuple[bool, ...], optional: bool) -> None:
    assert psets.optional(Get(PROC, "k", tuple(attrs.OPTIONAL(each) for each in directives))) is optional


def test_a_server_that_gives_up_means_not_found_unless_a_limit_was_given() -> None:
    error = OperationTimeout("the server gave up")
    found = not_found(Get(PROC, "k"), None, error)
    assert type(found) is NotFound
    assert (found.operation, found.procs) == ("get", (PROC,))
    assert "'k'" in str(found)
    assert not_found(Get(PROC, "k"), 3, error) is error
    assert not_found(Get(PROC, "k", (attrs.TIMEOUT(2),)), None, error) is error
    assert type(not_found(Get(PROC, "k", (attrs.IMMEDIATE(True),)), None, error)) is NotFound
    other = NotFound("another one")
    assert not_found(Get(PROC, "k"), None, other) is other
