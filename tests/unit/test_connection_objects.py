"""Connections as objects: what they ask an engine for, and what a participant reads of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from lib.fake_session import FakeSession
from pypmix import (
    Client,
    Connection,
    EventCode,
    NotFound,
    NotInitialized,
    NotSupported,
    Proc,
    Rank,
    aio,
    attrs,
)
from pypmix import clientbase as client_module
from pypmix.standard import codes
from pypmix.standard.ops import Connect, Connected, Disconnect, Fence, Finalize, Get, NotifyEvent
from pypmix.standard.ops import connecting as keys
from pypmix.standard.types import DataArray, Info, Value
from pypmix.types import uint32

ME, PEER, FAR = Proc("job", 1), Proc("job", 0), Proc("far", 3)
ALL = Proc("job", Rank.WILDCARD), Proc("far", Rank.WILDCARD)
WHOLE = Proc("c1", Rank.WILDCARD)
MADE = Connected("c1", (FAR, PEER, ME), ("far",))
NAMELESS = Connected("", ALL, ("far",))


class Session(FakeSession):
    """Connects as it is told, and lets no caller wait."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = {Connect: MADE, Get: Value(codes.UINT32, 7)}

    def asked(self, kind: type) -> list[Any]:
        return [op for op in self.ops if type(op) is kind]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    fake = Session()
    monkeypatch.setattr(client_module, "open_client", lambda *_: fake)
    return fake


@pytest.fixture
def me(session: Session) -> Iterator[Client]:
    with Client() as client:
        yield client


def flags(*names: str) -> list[Info]:
    return [Info(name, Value(codes.BOOL, True)) for name in names]


def test_a_participant_reads_its_identity(me: Client, session: Session) -> None:
    both = me.connect(ALL)
    assert (both.nspace, both.rank, both.proc, both.address) == ("c1", 2, Proc("c1", 2), WHOLE)
    assert [*both] == [*both.procs] == [FAR, PEER, ME]
    assert (both.size, len(both), both[0], FAR in both, Proc("far", 0) in both) == (3, 3, FAR, True, False)
    assert [*both.jobs] == ["far"] and both.jobs["far"].nspace == "far"
    assert repr(both) == "<Connection c1 of 3>" and both.is_open
    for rank in (-1, 3):
        with pytest.raises(IndexError, match="ranks 0 to 2"):
            both[rank]


def test_it_is_an_address(me: Client, session: Session) -> None:
    both = me.connect(ALL)
    both.fence(timeout=3)
    me.fence(both)
    assert [op.procs for op in session.asked(Fence)] == [(WHOLE,)] * 2
    assert me.get("key", both[0]) == me.get("key", FAR) == 7
    assert {op.proc for op in session.asked(Get) if op.key == "key"} == {FAR}
    me.notify(EventCode.custom(-4242), targets=both)
    (event,) = session.asked(NotifyEvent)
    assert "pmix.evrange" in [
        info.key for info in event.infos if info.value.data in (WHOLE, DataArray(codes.PROC, (WHOLE,)))
    ]
    me.connect(both)
    assert session.asked(Connect)[1].procs == (WHOLE,)


@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize("made", [NAMELESS, Connected("", ALL), MADE])
def test_it_has_the_job_info_of_others(me: Client, session: Session, made: Connected, near: bool) -> None:
    """Servers of libpmix send that of jobs with procs on this node alone."""
    session.answers[Connect] = made
    whole = Proc("far", Rank.WILDCARD)
    if near:
        session.data[whole, "pmix.job.size"] = Value(codes.UINT32, 7)
    both = me.connect(ALL)
    assert [op.proc for op in session.asked(Get)] == ([] if near else [whole])
    assert repr(both.jobs) == "{'far': <ChildJob far of 7>}"


def test_what_nobody_describes_is_no_job(me: Client, session: Session) -> None:
    session.answers |= {Connect: Connected("", ALL), Get: NotFound("nobody has it")}
    assert me.connect(ALL).jobs == {}
    assert repr(me.job) == "<Job job>" and repr(me.node) == "<Node>"


@pytest.mark.parametrize("what", ["block", "method", "connection", "nspace", "procs"])
def test_a_disconnect_names_the_connection(me: Client, session: Session, what: str) -> None:
    both = me.connect(ALL)
    if what == "block":
        with both as same:
            assert same is both and not session.asked(Disconnect)
    elif what == "method":
        both.disconnect()
    else:
        me._disconnect({"connection": both, "nspace": "c1", "procs": WHOLE}[what])
    assert [op.procs for op in session.asked(Disconnect)] == [(WHOLE,)]
    if what in ("block", "method", "connection"):
        assert not both.is_open and "closed" in repr(both)
        both.disconnect()
        assert len(session.asked(Disconnect)) == 1
        with pytest.raises(NotInitialized, match="has disconnected"):
            both.fence()


def test_a_disconnect_that_fails_may_be_tried_again(me: Client, session: Session) -> None:
    both = me.connect(ALL)
    session.answers[Disconnect] = NotFound("no such connection")
    with pytest.raises(NotFound):
        both.disconnect(timeout=2)
    assert both.is_open
    del session.answers[Disconnect]
    both.disconnect(notify_each=True)
    last = session.asked(Disconnect)[1]
    assert [*last.directives] == flags(keys.CONNECT_NOTIFY_EACH) and not both.is_open


def test_an_exception_that_leaves_the_block_disconnects_nothing(me: Client, session: Session) -> None:
    with pytest.raises(ZeroDivisionError), me.connect(ALL) as both:
        raise ZeroDivisionError
    assert both.is_open and not session.asked(Disconnect)


def test_without_an_nspace(me: Client, session: Session) -> None:
    session.answers[Connect] = NAMELESS
    both = me.connect(ALL, exchange_only=True)
    assert (both.nspace, both.rank, both.proc, both.address) == (None, None, None, None)
    assert [*both] == [*ALL] and [*both.jobs] == ["far"] and repr(both) == "<Connection without an nspace of 2>"
    with pytest.raises(NotSupported, match="no nspace"):
        both.fence()
    with pytest.warns(DeprecationWarning, match="targets=both"), pytest.raises(NotSupported, match="no nspace"):
        both.notify(-4242)  # type: ignore[attr-defined]
    me.fence(both)
    assert session.asked(Fence)[0].procs == ALL
    both.disconnect()
    assert session.asked(Disconnect)[0].procs == ALL


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, flags(keys.CONNECT_ASSIGN)),
        ({"exchange_only": True}, flags(keys.CONNECT_XCHG_ONLY)),
        (
            {"optional": True, "early_termination": True, "notify_each": True, "notify_request": True},
            flags(
                keys.CONNECT_OPTIONAL,
                keys.CONNECT_EARLY_TERM,
                keys.CONNECT_NOTIFY_EACH,
                keys.CONNECT_NOTIFY_REQ,
                keys.CONNECT_ASSIGN,
            ),
        ),
        (
            {"connect_id": "acme", "timeout": 2.5, "info": {"acme.x": uint32(1)}},
            [
                Info("acme.x", uint32(1)),
                Info(keys.CONNECT_ID, Value(codes.STRING, "acme")),
                *flags(keys.CONNECT_ASSIGN),
                attrs.TIMEOUT(3),
            ],
        ),
    ],
)
def test_directives(me: Client, session: Session, given: dict[str, Any], expected: list[Info]) -> None:
    me.connect(ALL, **given)
    assert [*session.asked(Connect)[0].directives] == expected


@pytest.mark.parametrize(
    ("error", "procs", "given"),
    [
        (ValueError, None, {}),
        (ValueError, [], {}),
        (TypeError, "job", {}),
        (ValueError, ALL, {"connect_id": ""}),
        (ValueError, ALL, {"connect_id": "x" * 256}),
        (ValueError, ALL, {"connect_id": "a\0b"}),
        (TypeError, ALL, {"connect_id": 3}),
        (ValueError, ALL, {"timeout": -1}),
        (ValueError, ALL, {"exchange_only": True, "early_termination": True}),
    ],
)
def test_mistakes_are_errors_at_the_call(
    me: Client, session: Session, error: type[Exception], procs: Any, given: dict[str, Any]
) -> None:
    with pytest.raises(error):
        me.connect(procs, **given)
    assert not session.asked(Connect)


@pytest.mark.parametrize("what", [None, [], "", "x" * 256, 3.5])
def test_nothing_is_disconnected_from_nothing(me: Client, session: Session, what: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        me._disconnect(what)
    assert not session.asked(Disconnect)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_awaited(session: Session) -> None:
    async with aio.Client() as me:
        async with await me.connect(ALL) as both:
            assert both.rank == 2 and not isinstance(both, Connection)
            await both.fence()
        assert not both.is_open
    assert [type(op) for op in session.ops if not isinstance(op, Get)] == [Connect, Fence, Disconnect, Finalize]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize(("exchange", "undone"), [(False, [(WHOLE,)]), (True, [])])
async def test_a_connect_that_is_cancelled_is_undone(session: Session, exchange: bool, undone: list[Any]) -> None:
    async with aio.Client() as me:
        session.hold = True
        with anyio.move_on_after(0.05):
            await me.connect(ALL, exchange_only=exchange)
        # Its late answer is taken in by whoever waits next.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(me.fence)
            await anyio.wait_all_tasks_blocked()
            session.settle(0)
            session.settle(0)
            session.hold = False
    assert [op.procs for op in session.asked(Disconnect)] == undone


def test_a_disconnect_by_name_or_procs_closes_the_connection(me: Client) -> None:
    by_name = me.connect(ALL)
    me._disconnect("c1")
    assert not by_name.is_open
    by_procs = me.connect(ALL)
    me._disconnect(tuple(reversed(ALL)))
    assert not by_procs.is_open


def test_a_disconnect_of_others_closes_nothing(me: Client) -> None:
    both = me.connect(ALL)
    me._disconnect([ME, PEER])
    assert both.is_open
