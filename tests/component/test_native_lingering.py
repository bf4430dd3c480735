"""Clients that have ended are told to the library a while later, each once, in their order, and none after the end."""

from __future__ import annotations

import time

import pytest

lingering = pytest.importorskip("pypmix.engine.native.serverside.lingering")

from pypmix import Proc  # noqa: E402
from pypmix.engine.alarms import Alarms  # noqa: E402

A, B, C = Proc("job", 0), Proc("job", 1), Proc("other", 0)


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(lingering, "CLOSED_SECONDS", 0.1)
    return []


@pytest.fixture
def alarms():
    found = Alarms()
    yield found
    found.close()


def until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_later_and_in_order(told, alarms):
    waits = lingering.Lingering(told.append, alarms, pytest.fail)
    begin = time.monotonic()
    waits.add(A)
    waits.add(B)
    assert told == []
    until(lambda: told == [A, B])
    assert time.monotonic() - begin >= 0.1
    waits.add(C)
    until(lambda: told == [A, B, C])


def test_what_is_taken_out_or_forgotten_is_not_told(told, alarms):
    waits = lingering.Lingering(told.append, alarms, pytest.fail)
    for proc in (A, B, C):
        waits.add(proc)
    assert waits.take(C)
    assert not waits.take(C)
    waits.drop("job")
    time.sleep(0.3)
    assert told == []


def test_nothing_is_told_after_the_end(told, alarms):
    waits = lingering.Lingering(told.append, alarms, pytest.fail)
    waits.add(A)
    thread = alarms._thread
    assert thread is not None
    alarms.close()
    alarms.close()
    waits.add(B)
    time.sleep(0.3)
    assert told == []
    until(lambda: not thread.is_alive())
    assert alarms._thread is thread


def test_a_failure_is_logged_and_the_next_one_is_told(told, alarms):
    logged = []

    def forget(proc):
        if proc == A:
            raise ValueError("no")
        told.append(proc)

    waits = lingering.Lingering(forget, alarms, logged.append)
    waits.add(A)
    waits.add(B)
    until(lambda: told == [B])
    assert logged == ["job:0 cannot be deregistered: no"]
