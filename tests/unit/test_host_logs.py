"""Proves that logs reach the system's log with their priority, and wait, within bounds, for a reader that is slow."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pypmix.host import logs
from pypmix.standard import attrs, codes
from pypmix.standard.enums import Status
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.ops import Log
from pypmix.standard.types import Info, Proc, Value

ME = Proc("job", 3)


class Sink:
    """A reader that can be made to stop reading."""

    def __init__(self) -> None:
        self.written = b""
        self.full = False
        self.paused: list[Any] = []

    def pause(self, resume: Any) -> bool:
        if self.full:
            self.paused.append(resume)
        return self.full

    def write(self, _stream: None, data: bytes) -> None:
        self.written += data

    def read(self) -> None:
        self.full = False
        paused, self.paused = self.paused, []
        for resume in paused:
            resume()


class Host:
    def __init__(self) -> None:
        self.output = {1: Sink(), 2: Sink()}
        self.jobs = {"job": SimpleNamespace(number=1)}
        self.parts: dict[type, Any] = {}

    def sink(self, number: int) -> Sink:
        return self.output[number]

    def sink_of(self, job: Any, number: int) -> Sink:
        assert job is None or job in self.jobs.values()
        return self.output[number]

    def part(self, kind: Any) -> Any:
        if kind not in self.parts:
            self.parts[kind] = kind(self)
        return self.parts[kind]

    def ask(self, *data: Info, directives: tuple[Info, ...] = ()) -> list[PMIxError | None]:
        """Return the list that will hold the answer, None for a good one."""
        answers: list[PMIxError | None] = []
        upcall = SimpleNamespace(
            op=Log(data, directives), requestor=ME, reply=lambda: answers.append(None), fail=answers.append
        )
        logs.ANSWERS[Log](self, upcall)  # type: ignore[arg-type]
        return answers


def statuses(answers: list[PMIxError | None]) -> list[int]:
    return [Status.SUCCESS if answer is None else answer.code for answer in answers]


def test_who_logs_waits_for_a_slow_reader() -> None:
    host = Host()
    sink = host.output[2]
    sink.full = True
    first = host.ask(attrs.LOG_STDERR("one"), attrs.LOG_STDOUT("out"))
    second = host.ask(attrs.LOG_STDERR("two\n"))
    assert (first, second, sink.written) == ([], [], b"")
    assert host.output[1].written == b"out\n"
    sink.read()
    assert (first, second) == ([None], [None])
    assert sink.written == b"one\ntwo\n"


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING", 100)
    host = Host()
    sink = host.output[2]
    sink.full = True
    answers = [host.ask(attrs.LOG_STDERR("x" * 30)) for _ in range(5)]
    assert [statuses(each) for each in answers] == [
        [],
        [],
        [],
        [Status.ERR_OUT_OF_RESOURCE],
        [Status.ERR_OUT_OF_RESOURCE],
    ]
    sink.read()
    assert statuses(host.ask(attrs.LOG_STDERR("x" * 90))) == [Status.SUCCESS]


@pytest.mark.parametrize("channel", [attrs.LOG_SYSLOG, attrs.LOG_LOCAL_SYSLOG, attrs.LOG_GLOBAL_SYSLOG])
def test_the_log_of_the_system(
    channel: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logs, "SYSLOG_SOCKET", str(tmp_path / "log"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon, caplog.at_level(logging.DEBUG, "pypmix.log"):
        daemon.bind(str(tmp_path / "log"))
        answers = Host().ask(channel("disk full\n"), directives=(attrs.LOG_SYSLOG_PRI(2),))
        assert statuses(answers) == [Status.SUCCESS]
        daemon.settimeout(5)
        line = daemon.recv(4096).decode()
    assert line.startswith("<10>pypmix[")
    assert line.endswith("]: job:3: disk full")
    (record,) = caplog.records
    assert (record.levelno, record.source, record.channel) == (logging.CRITICAL, ME, f"PMIX_{channel.name}")  # type: ignore[attr-defined]


def test_a_system_without_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SYSLOG_SOCKET", str(tmp_path / "log"))
    (answer,) = Host().ask(attrs.LOG_SYSLOG("x"))
    assert isinstance(answer, NotSupported)
    host = Host()
    assert statuses(host.ask(attrs.LOG_SYSLOG("x"), attrs.LOG_STDERR("y"))) == [Status.ERR_PARTIAL_SUCCESS]
    host = Host()
    once = (attrs.LOG_ONCE(True),)
    assert statuses(host.ask(attrs.LOG_SYSLOG("x"), attrs.LOG_STDERR("y"), directives=once)) == [Status.SUCCESS]
    assert host.output[2].written == b"y\n"


@pytest.mark.parametrize(
    "info",
    [
        Info(attrs.LOG_STDERR.key, Value(codes.UINT32, 7)),
        Info(attrs.LOG_SYSLOG.key, Value(codes.UINT32, 7)),
    ],
)
def test_what_is_no_text(info: Info) -> None:
    assert statuses(Host().ask(info)) == [Status.ERR_BAD_PARAM]


def test_channels_that_nobody_has() -> None:
    email = Info(attrs.LOG_EMAIL.key, Value(codes.STRING, "x"))
    assert statuses(Host().ask(email)) == [Status.ERR_NOT_SUPPORTED]
    assert statuses(Host().ask(attrs.LOG_MSG("to nowhere"))) == [Status.ERR_NOT_SUPPORTED]
    assert statuses(Host().ask(attrs.LOG_MSG("x"), attrs.LOG_JOB_RECORD(True))) == [Status.SUCCESS]
