"""Handlers and streams of programs that block: what user code does in them, and the thread that they run on."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import pypmix
from pypmix import EventCode, Range

LOAD = EventCode.custom(-4242)


@pytest.fixture
def me():
    with pypmix.Client(engine="python", env={}) as client:
        yield client


def raise_event(me):
    me.notify(LOAD, data_range=Range.PROC_LOCAL)


def workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("pypmix-handlers")]


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_handler_that_exits_keeps_nobody_from_hearing(me, error, caplog):
    calls = []

    @me.on(LOAD, order="append")
    def leaves(event):
        calls.append("leaves")
        raise error

    @me.on(LOAD, order="append")
    def stays(event):
        calls.append("stays")

    for _ in range(2):
        raise_event(me)
    wait_until(lambda: len(calls) == 4)
    assert sorted(calls) == ["leaves", "leaves", "stays", "stays"]
    assert "leaves" in caplog.text


def test_a_cancelled_coroutine_keeps_nobody_from_hearing():
    async def main():
        calls = []
        async with pypmix.aio.Client(engine="python", env={}) as me:

            @me.on(LOAD, order="append")
            async def cancelled(event):
                asyncio.current_task().cancel()
                await asyncio.sleep(10)

            @me.on(LOAD, order="append")
            async def called(event):
                calls.append(event)

            await called.ready()
            await me.notify(LOAD, data_range=Range.PROC_LOCAL)
            async with asyncio.timeout(30):
                while not calls:
                    await asyncio.sleep(0.01)
        return True

    assert asyncio.run(main())


def test_the_thread_ends_with_a_handler_that_has_had_its_one_event(me):
    @me.on(LOAD, once=True)
    def single(event):
        pass

    assert workers()
    raise_event(me)
    wait_until(lambda: not workers())


def test_what_is_no_code_or_no_function_is_told_at_once(me):
    with pytest.raises(TypeError, match=r"EventCode\.PROC_TERMINATED, not 'PROC_TERMINATED'"):
        me.events("PROC_TERMINATED")
    with pytest.raises(TypeError, match=r"not 1\.5"):
        me.notify(1.5)
    with pytest.raises(TypeError, match=r"@me\.on\(\)"):
        me.on(print)
    with pytest.raises(TypeError, match="is a function, not 5"):
        me.on(LOAD)(5)


def test_limits_of_a_wait(me):
    with me.events(LOAD) as events:
        with pytest.raises(ValueError, match="not nan"):
            events.get(timeout=float("nan"))
        with pytest.raises(TypeError, match="not str"):
            events.get(timeout="1")
        raise_event(me)
        assert events.get(timeout=float("inf")).code == LOAD


def test_a_stream_whose_client_is_closed_meanwhile_is_left_quietly(me):
    events = me.events(LOAD).open()
    end, events._box.end = events._box.end, lambda error=None: (me.close(), end(error))
    events.close()
    assert list(events) == []


def test_no_call_begins_after_remove_has_returned(me):
    """Not for the events that waited meanwhile either, which go to the next handler."""
    entered, go_on, heard = threading.Event(), threading.Event(), threading.Event()
    calls, others = [], []

    @me.on(LOAD, order="prepend")
    def removed(event):
        calls.append(event)
        entered.set()
        assert go_on.wait(30)

    @me.on(LOAD, order="append")
    def other(event):
        others.append(event)
        if len(others) == 20:
            heard.set()

    for _ in range(20):
        raise_event(me)
    assert entered.wait(30)
    removed.remove()
    go_on.set()
    assert heard.wait(30)
    assert len(calls) == 1


def test_no_call_begins_after_the_client_is_closed(me):
    """Not for the events that waited meanwhile either."""
    entered, go_on = threading.Event(), threading.Event()
    calls = []

    @me.on(LOAD)
    def slow(event):
        calls.append(event)
        entered.set()
        assert go_on.wait(30)

    for _ in range(20):
        raise_event(me)
    assert entered.wait(30)
    threads = workers()
    me.close()
    go_on.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert len(calls) == 1


def test_a_handler_of_a_client_without_a_server_is_called_and_nothing_else_is_said(capfd):
    async def main():
        calls = []
        async with pypmix.aio.Client(engine="python", env={}) as me:

            @me.on(LOAD)
            def called(event):
                calls.append(event)

            await called.ready()
            await me.notify(LOAD, data_range=Range.PROC_LOCAL)
            async with asyncio.timeout(30):
                while not calls:
                    await asyncio.sleep(0.01)
        return len(calls)

    assert asyncio.run(main()) == 1
    assert capfd.readouterr() == ("", "")
