"""Proves when monitors raise their events: after as many silent periods as may be, once for each silence."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pypmix.engine.alarms import MANY
from pypmix.host import monitors
from pypmix.host.loop import Loop
from pypmix.standard import attrs, codes
from pypmix.standard.enums import EventCode, InfoFlags, Range, Status
from pypmix.standard.errors import NotFound, NotSupported, PMIxError
from pypmix.standard.ops import Heartbeat, Notification, ProcessMonitor
from pypmix.standard.types import Info, Proc, Value

ME = Proc("job", 1)


class Timer:
    def __init__(self, due: float, callback: Any) -> None:
        self.due, self.callback = due, callback

    def cancel(self) -> None:
        self.callback = None


class Host:
    """A host whose clock stands still until it is moved on."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.raised: list[Notification] = []
        self.at_rank_end: list[Any] = []
        self.at_departure: list[Any] = []
        self.loop = self
        self.parts: dict[type, Any] = {}
        app = SimpleNamespace(wdir="")
        job = SimpleNamespace(wdir=str(folder), apps=[app], slots=lambda: [SimpleNamespace(app=0)] * 2)
        self.rank = SimpleNamespace(alive=True, proc=ME)
        self.job = SimpleNamespace(job=job)

    def later(self, delay: float, callback: Any) -> Timer:
        timer = Timer(self.now + delay, callback)
        self.timers.append(timer)
        return timer

    def part(self, kind: Any) -> Any:
        if kind not in self.parts:
            self.parts[kind] = kind(self)
        return self.parts[kind]

    def find(self, proc: Proc) -> Any:
        return (self.job, self.rank) if proc == ME else None

    def notify(self, event: Notification) -> None:
        self.raised.append(event)

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.callback and timer.due <= end]:
            timer = min(due, key=lambda each: each.due)
            self.now = timer.due
            callback, timer.callback = timer.callback, None
            callback()
        self.now = end

    def ask(self, op: Any, proc: Proc = ME) -> Any:
        answers: list[Any] = []
        upcall = SimpleNamespace(op=op, requestor=proc, uid=0, gid=0, reply=lambda result=None: answers.append(result))
        monitors.ANSWERS[type(op)](self, upcall)  # type: ignore[arg-type]
        (answer,) = answers
        return answer


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path)
    monkeypatch.setattr(monitors, "time", SimpleNamespace(monotonic=lambda: host.now))
    return host


def heart(*infos: Info, error: int = EventCode.MONITOR_HEARTBEAT_ALERT) -> ProcessMonitor:
    return ProcessMonitor(attrs.MONITOR_HEARTBEAT(True), error, infos)


def test_a_heart_that_stops_is_told_once(host: Host) -> None:
    host.ask(heart(attrs.MONITOR_ID("mine"), attrs.MONITOR_HEARTBEAT_TIME(2)))
    for _ in range(5):
        host.wait(1.5)
        host.ask(Heartbeat())
    assert host.raised == []
    host.wait(20)
    (event,) = host.raised
    assert (event.code, event.source, event.range) == (EventCode.MONITOR_HEARTBEAT_ALERT, ME, Range.NAMESPACE)
    assert attrs.MONITOR_ID("mine") in event.infos
    assert attrs.EVENT_AFFECTED_PROC(ME) in event.infos
    host.ask(Heartbeat())
    host.wait(20)
    assert len(host.raised) == 2


@pytest.mark.parametrize(("drops", "seconds"), [(0, 2), (1, 4), (3, 8)])
def test_as_many_may_be_missed_as_it_says(host: Host, drops: int, seconds: int) -> None:
    host.ask(heart(attrs.MONITOR_HEARTBEAT_TIME(2), attrs.MONITOR_HEARTBEAT_DROPS(drops)))
    host.wait(seconds - 0.1)
    assert not host.raised
    host.wait(0.2)
    assert len(host.raised) == 1


def test_the_range_that_was_asked_for(host: Host) -> None:
    host.ask(heart(attrs.MONITOR_HEARTBEAT_TIME(1), attrs.RANGE(Range.GLOBAL), error=-3000))
    host.wait(1)
    assert (host.raised[0].code, host.raised[0].range) == (-3000, Range.GLOBAL)


@pytest.mark.parametrize("what", [attrs.MONITOR_FILE_SIZE, attrs.MONITOR_FILE_MODIFY, attrs.MONITOR_FILE_ACCESS])
def test_a_file_lives_while_it_changes(host: Host, tmp_path: Path, what: Any) -> None:
    path = tmp_path / "file"
    path.write_text("")
    terms = attrs.MONITOR_FILE_CHECK_TIME(1), what(True), attrs.MONITOR_FILE_DROPS(1)
    # A relative path is one in the folder in which the proc was started.
    host.ask(ProcessMonitor(attrs.MONITOR_FILE("file"), EventCode.MONITOR_FILE_ALERT, terms))
    for number in range(5):
        path.write_text("x" * (number + 1))
        os.utime(path, (number + 1, number + 1))
        host.wait(1)
    assert not host.raised
    host.wait(2.1)
    assert [event.code for event in host.raised] == [EventCode.MONITOR_FILE_ALERT]
    assert attrs.MONITOR_FILE("file") in host.raised[0].infos
    path.unlink()
    host.wait(10)
    assert len(host.raised) == 1


def test_a_file_that_never_comes(host: Host) -> None:
    terms = attrs.MONITOR_FILE_CHECK_TIME(1), attrs.MONITOR_FILE_SIZE(True)
    host.ask(ProcessMonitor(attrs.MONITOR_FILE("gone"), EventCode.MONITOR_FILE_ALERT, terms))
    host.wait(10)
    assert len(host.raised) == 1


def test_cancelling(host: Host) -> None:
    for name in ("a", "b", "c"):
        host.ask(heart(attrs.MONITOR_ID(name), attrs.MONITOR_HEARTBEAT_TIME(1)))
    host.ask(ProcessMonitor(attrs.MONITOR_CANCEL("b"), 0))
    host.wait(5)
    assert len(host.raised) == 2
    with pytest.raises(NotFound):
        host.ask(ProcessMonitor(attrs.MONITOR_CANCEL("b"), 0))
    host.ask(Heartbeat())
    host.ask(ProcessMonitor(Info(attrs.MONITOR_CANCEL.key, Value.unchecked(codes.STRING, None)), 0))
    host.wait(5)
    assert len(host.raised) == 2


def test_they_end_with_their_proc(host: Host) -> None:
    other = Proc("job", 0)
    host.ask(heart(attrs.MONITOR_HEARTBEAT_TIME(1)))
    host.ask(heart(attrs.MONITOR_HEARTBEAT_TIME(1)), other)
    host.at_rank_end[0](None, host.rank)
    host.at_departure[0](other)
    host.wait(5)
    assert not host.raised
    host.rank.alive = False
    with pytest.raises(NotFound):
        host.ask(heart(attrs.MONITOR_HEARTBEAT_TIME(1)))


def test_a_proc_has_only_so_many(host: Host) -> None:
    for _ in range(monitors.MAX_MONITORS):
        host.ask(heart(attrs.MONITOR_HEARTBEAT_TIME(1)))
    with pytest.raises(PMIxError) as caught:
        host.ask(heart(attrs.MONITOR_HEARTBEAT_TIME(1)))
    assert caught.value.code == Status.ERR_OUT_OF_RESOURCE
    host.ask(heart(attrs.MONITOR_HEARTBEAT_TIME(1)), Proc("job", 0))


def test_names_are_unique(host: Host) -> None:
    host.ask(heart(attrs.MONITOR_ID("a"), attrs.MONITOR_HEARTBEAT_TIME(1)))
    with pytest.raises(PMIxError) as caught:
        host.ask(heart(attrs.MONITOR_ID("a"), attrs.MONITOR_HEARTBEAT_TIME(1)))
    assert caught.value.code == Status.ERR_EXISTS


@pytest.mark.parametrize(
    "op",
    [
        heart(),
        heart(attrs.MONITOR_HEARTBEAT_TIME(0)),
        heart(Info(attrs.MONITOR_HEARTBEAT_TIME.key, Value(codes.STRING, "x"))),
        ProcessMonitor(attrs.MONITOR_FILE("x"), 0, (attrs.MONITOR_FILE_CHECK_TIME(1),)),
        ProcessMonitor(attrs.MONITOR_FILE("x"), 0, (attrs.MONITOR_FILE_SIZE(True),)),
        ProcessMonitor(Info(attrs.MONITOR_FILE.key, Value(codes.UINT32, 3)), 0, ()),
        heart(attrs.MONITOR_HEARTBEAT_TIME(1), attrs.RANGE(Range.CUSTOM)),
        heart(attrs.MONITOR_HEARTBEAT_TIME(1), Info(attrs.RANGE.key, Value(codes.UINT8, 77))),
        heart(attrs.MONITOR_HEARTBEAT_TIME(1), attrs.MONITOR_ID("x" * 600)),
        ProcessMonitor(
            attrs.MONITOR_FILE("x" * 5000), 0, (attrs.MONITOR_FILE_CHECK_TIME(1), attrs.MONITOR_FILE_SIZE(True))
        ),
    ],
)
def test_what_makes_no_sense(host: Host, op: ProcessMonitor) -> None:
    with pytest.raises(PMIxError) as caught:
        host.ask(op)
    assert caught.value.code == Status.ERR_BAD_PARAM
    host.wait(10)
    assert not host.raised


def test_an_event_that_cannot_be_raised_ends_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.ask(heart(attrs.MONITOR_HEARTBEAT_TIME(1)))
    monkeypatch.setattr(host, "notify", lambda event: 1 / 0)
    host.wait(3)
    monkeypatch.undo()
    host.ask(Heartbeat())
    host.wait(3)
    assert len(host.raised) == 1


def test_what_is_not_offered(host: Host) -> None:
    with pytest.raises(NotSupported, match="PMIX_MONITOR_RESOURCE_RATE"):
        host.ask(heart(attrs.MONITOR_HEARTBEAT_TIME(1), attrs.MONITOR_RESOURCE_RATE(3, flags=InfoFlags.REQUIRED)))
    with pytest.raises(NotSupported, match=r"acme\.pulse"):
        host.ask(ProcessMonitor(Info("acme.pulse", Value(codes.BOOL, True)), 0, ()))


def test_cancelled_timers_do_not_pile_up() -> None:
    loop = Loop()
    try:
        for _ in range(50 * MANY):
            loop.later(1e9, lambda: None).cancel()
        assert len(loop._timers.due) <= 2 * MANY
        kept = [loop.later(1e9, lambda: None) for _ in range(3 * MANY)]
        assert sum([timer in kept for _, _, timer in loop._timers.due]) == len(kept)
    finally:
        loop.close()
