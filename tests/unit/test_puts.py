"""A put takes few steps, keeps the same as its operation, and fails as that does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

import pytest

from lib.client_wire import ME, Wire
from pypmix import Client, NotInitialized, NotSupported, Proc, Scope, aio, attrs
from pypmix.engine.python.alone import Alone
from pypmix.standard import codes
from pypmix.standard.ops import Commit, Finalize, Put
from pypmix.standard.types import Value
from pypmix.standard.values import from_python
from pypmix.types import uint32

MOST_CALLS = 6
"""The Python functions on the way of a put of bytes: the client's, the value's, and four of the engine."""


@pytest.fixture
def me() -> Iterator[Client]:
    with Client(engine="python", env={}) as client:
        yield client


def test_a_put_makes_few_calls(me: Client) -> None:
    calls: list[str] = []

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    me.put("key", b"first")
    sys.setprofile(count)
    try:
        me.put("key", b"second")
    finally:
        sys.setprofile(None)
    assert len(calls) <= MOST_CALLS, calls
    assert me.get("key") == b"second"


@pytest.mark.parametrize("scope", list(Scope)[1:5])
@pytest.mark.parametrize("key", ["k", "pmix.x"])
def test_a_put_keeps_what_its_operation_keeps(scope: Scope, key: str) -> None:
    one, other = Wire(), Wire()
    assert one.machine.put(key, uint32(7), int(scope))
    other.start(Put(key, uint32(7), int(scope)))
    assert one.store.lookup(ME, key) == other.store.lookup(ME, key) == uint32(7)
    for wire in (one, other):
        wire.start(Commit())
    assert one.request()[1] == other.request()[1]


def test_a_put_that_fails_or_deletes_is_left_to_its_operation() -> None:
    wire = Wire()
    assert not wire.machine.put("k", Value.unchecked(codes.UNDEF, None), Scope.DEL_INTERNAL)
    assert wire.store.unsent() == []
    wire.start(Finalize())
    assert not wire.machine.put("k", uint32(7), Scope.GLOBAL)
    assert wire.store.lookup(ME, "k") is None


def test_the_error_of_a_put_names_the_operation_and_the_proc() -> None:
    wire = Wire(release=(4, 2, 2))
    alone = Alone(wire.machine)
    value = from_python(attrs.DEVICE_TYPE(4).value)
    refused = Value.unchecked(codes.RESBLOCK_DIRECTIVE, 1)
    alone.put("k", value, Scope.GLOBAL)
    with pytest.raises(NotSupported) as failure:
        alone.put("k", refused, Scope.GLOBAL)
    assert failure.value.operation == "put"


def test_a_closed_client_takes_no_put(me: Client) -> None:
    me.close()
    with pytest.raises(NotInitialized):
        me.put("key", b"late")


@pytest.mark.anyio
async def test_an_awaited_put_is_the_same() -> None:
    async with aio.Client(engine="python", env={}) as me:
        await me.put("key", [1, 2], Scope.INTERNAL)
        assert await me.get("key") == [1, 2]
        assert me.proc == Proc(me.nspace, 0)
