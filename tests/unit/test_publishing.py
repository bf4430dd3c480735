"""Proves what publishing clients ask and understand: the facades, and the machine of the Python engine."""

from __future__ import annotations

import pytest

from lib.fake_session import FakeSession
from pypmix import Client, Persist, Proc, Range, attrs
from pypmix.engine.python.client import Client as Machine
from pypmix.engine.python.client import ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.standard import codes, statuses
from pypmix.standard.errors import NotFound, OperationTimeout, PartialSuccess, PermissionDenied
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.types import Info, Pdata, Value
from pypmix.types import Published
from pypmix.wire.frames import FrameReader, frame
from pypmix.wire.messages import Command, encode_status, reply_layout, request_layout

ME, OTHER = Proc("job", 1), Proc("other", 0)
RELEASE = (5, 0, 11)


def text(value):
    return Value(codes.STRING, value)


@pytest.fixture
def session(monkeypatch):
    fake = FakeSession()
    monkeypatch.setattr("pypmix.clientbase.open_client", lambda *_: fake)
    return fake


@pytest.fixture
def me(session):
    with Client() as client:
        yield client


def test_what_is_published_has_the_standards_defaults(me, session):
    me.publish({"a": 1})
    assert session.ops[-1] == Publish((Info("a", Value(codes.INT64, 1)),), Range.SESSION, Persist.APP)
    me.publish({"a": 1}, data_range=Range.LOCAL, persist=Persist.PROC, timeout=1.5, info={attrs.JOB_SIZE: 1})
    op = session.ops[-1]
    assert (op.range, op.persistence) == (Range.LOCAL, Persist.PROC)
    assert op.directives == (attrs.JOB_SIZE(1), attrs.TIMEOUT(2))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ()),
        ({"timeout": None}, ()),
        ({"timeout": 0}, ()),
        ({"timeout": float("inf")}, (attrs.WAIT(0),)),
        ({"timeout": 2.5}, (attrs.WAIT(0), attrs.TIMEOUT(3))),
        ({"timeout": float("inf"), "count": 1}, (attrs.WAIT(1),)),
        ({"data_range": Range.LOCAL}, (attrs.RANGE(Range.LOCAL),)),
    ],
)
def test_how_a_lookup_says_that_it_waits(me, session, arguments, expected):
    session.answers[Lookup] = (Pdata(OTHER, "b", text("x")),)
    found = me.lookup(["a", "b"], **arguments)
    (op,) = [op for op in session.ops if isinstance(op, Lookup)]
    assert [(item.key, item.value.data) for item in op.directives] == [(i.key, i.value.data) for i in expected]
    assert found == {"b": Published("x", OTHER)}
    assert found.missing == {"a"}


def test_what_is_not_found(me, session):
    session.answers[Lookup] = NotFound("no")
    assert me.lookup("a", default=3) == 3
    with pytest.raises(NotFound):
        me.lookup("a")
    found = me.lookup(iter(["a", "b"]))
    assert (dict(found), found.missing) == ({}, {"a", "b"})


@pytest.mark.parametrize("kind", [PartialSuccess, OperationTimeout])
def test_keys_are_asked_for_one_by_one_where_a_partial_result_got_lost(me, session, monkeypatch, kind):
    asked = []

    def run(op):
        asked.append(op)
        if len(op.keys) > 1:
            raise kind("lost")
        if op.keys[0].startswith("gone"):
            raise NotFound("no")
        return (Pdata(OTHER, op.keys[0], text("x")),)

    monkeypatch.setattr(session, "run", run)
    found = me.lookup(["a", "gone", "b"], timeout=1, data_range=Range.LOCAL)
    assert (list(found), found.missing) == (["a", "b"], {"gone"})
    assert [op.keys for op in asked[1:]] == [("a",), ("gone",), ("b",)]
    assert all(op.directives == (attrs.RANGE(Range.LOCAL),) for op in asked[1:])
    with pytest.raises(kind):
        me.lookup(["gone", "gone.too"])
    monkeypatch.undo()


def test_unpublish_names_keys_or_means_all(me, session):
    me.unpublish()
    me.unpublish("a", "b", data_range=Range.LOCAL)
    assert session.ops[-2:] == [Unpublish(), Unpublish(("a", "b"), (attrs.RANGE(Range.LOCAL),))]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda me: me.lookup(["a", "a"]),
        lambda me: me.lookup(["a"], count=1),
        lambda me: me.lookup(["a"], timeout=float("inf"), count=2),
        lambda me: me.lookup(["a"], timeout=float("inf"), count="1"),
        lambda me: me.lookup("a", count=1),
        lambda me: me.lookup(["a"], default=None),
        lambda me: me.publish({}),
        lambda me: me.publish({"a": 1}, data_range=Range.INVALID),
        lambda me: me.unpublish("pmix.a"),
        lambda me: me.unpublish(""),
    ],
)
def test_mistakes_are_errors_at_the_call_and_nothing_is_asked(me, session, mistake):
    with pytest.raises((TypeError, ValueError)):
        mistake(me)
    assert not session.ops


def machine(buffer_type=1):
    """Return a machine that is connected, as far as operations can tell."""
    return Machine(ME, DataStore(ME, "host", RELEASE), ServerInfo("server.0", RELEASE, buffer_type))


def request(client, command):
    """Return the tag and the fields of what the machine has sent."""
    ((tag, payload),) = FrameReader().feed(bytes(client.unsent()))
    client.out = b"", []
    return tag, request_layout(command, RELEASE).decode(payload, client.buffer_type, RELEASE)


def reply(client, tag, payload):
    client.intake.chunks.append(frame(0, tag, payload))
    client.take(0.0)


@pytest.mark.parametrize("kind", [1, 2], ids=["plain", "described"])
def test_the_machine_sends_range_and_persistence_as_infos(kind):
    client = machine(kind)
    op = Publish((Info("a", text("x")),), Range.LOCAL, Persist.PROC, (attrs.TIMEOUT(4),))
    call = client.start(op, None, 10.0)
    tag, fields = request(client, Command.PUBLISHNB)
    keys = [info.key for info in fields["infos"]]
    assert keys == ["a", "pmix.range", "pmix.persist", "pmix.timeout"]
    assert [info.value.type for info in fields["infos"]][1:3] == [codes.DATA_RANGE, codes.PERSIST]
    assert call.deadline == 14.5
    reply(client, tag, encode_status(kind, 0))
    assert call.outcome == (None, None)


@pytest.mark.parametrize(
    ("status", "data", "result"),
    [
        (0, (Pdata(OTHER, "a", text("x")), Pdata(OTHER, "b", text("y"))), ("a", "b")),
        (0, (Pdata(OTHER, "a", text("x")), Pdata(Proc("", 0), "b", Value(codes.UNDEF, None))), ("a",)),
        (0, (Pdata(OTHER, "unasked", text("x")),), NotFound),
        (0, (), NotFound),
        (statuses.ERR_PARTIAL_SUCCESS, (Pdata(OTHER, "a", text("x")),), ("a",)),
        (statuses.ERR_PARTIAL_SUCCESS, (), PartialSuccess),
        (statuses.QUERY_PARTIAL_SUCCESS, (Pdata(OTHER, "a", text("x")),), ("a",)),
        (statuses.ERR_NOT_FOUND, (), NotFound),
        (-23, (), PermissionDenied),
    ],
)
def test_the_machine_takes_what_was_found(status, data, result):
    client = machine()
    call = client.start(Lookup(("a", "b")), None, 0.0)
    tag, fields = request(client, Command.LOOKUPNB)
    assert fields["keys"] == ("a", "b")
    reply(client, tag, reply_layout(Command.LOOKUPNB, RELEASE).encode(1, RELEASE, status=status, data=data))
    found, error = call.outcome
    if error is None:
        assert tuple(item.key for item in found) == result
    else:
        assert type(error) is result
        assert error.operation == "lookup"


def test_a_server_that_ignores_the_timeout_is_not_waited_for():
    client = machine()
    call = client.start(Lookup(("a",), (attrs.TIMEOUT(1),)), lambda *_: None, 0.0)
    client.tick(1.4)
    assert call.outcome is None
    client.tick(1.6)
    assert isinstance(call.outcome[1], OperationTimeout)


def test_an_answer_that_does_not_parse_ends_the_connection():
    client = machine()
    call = client.start(Lookup(("a",)), None, 0.0)
    tag, _ = request(client, Command.LOOKUPNB)
    reply(client, tag, encode_status(1, 0) + b"\2\5\2\xff")
    assert client.closed is not None
    assert call.outcome[1] is not None
