"""Daemons that their launcher dismisses, or does not know any longer, leave; others report why they leave."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from pypmix.host import daemon as module
from pypmix.host import orders, session
from pypmix.host.rosters.base import NOT_OURS

LAUNCHER_ENDED = ("the launcher has ended the session",)
STARTER_ENDED = ("the launcher has gone", "what had started it has ended")


@pytest.mark.parametrize(
    ("data", "relayed", "met", "left"),
    [
        (b"\n", False, True, [LAUNCHER_ENDED]),
        (b"\n", True, True, [LAUNCHER_ENDED]),
        (b"", False, True, [STARTER_ENDED]),
        (b"", True, False, [STARTER_ENDED]),
        (b"", True, True, []),
    ],
)
def test_a_line_on_its_input_dismisses_a_daemon(
    data: bytes, relayed: bool, met: bool, left: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[Any] = []
    monkeypatch.setattr(module.os, "read", lambda _descriptor, _size: data)
    daemon: Any = SimpleNamespace(
        _relayed=relayed, _has_met=met, _unheard=lambda: None, leave=lambda *reason: reasons.append(reason)
    )
    module.Daemon._input(daemon)
    assert reasons == left


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_launcher_writes_that_line_before_it_closes_the_input(has_ended: bool) -> None:
    reads, writes = os.pipe()
    if has_ended:
        os.close(reads)
    started: Any = SimpleNamespace(stdin=writes, stdout=-1)
    daemon = session._Daemon(SimpleNamespace(), started, None)  # type: ignore[arg-type]
    daemon.dismiss()
    daemon.dismiss()
    assert started.stdin == NOT_OURS
    if not has_ended:
        assert os.read(reads, 100) == b"\n"
        assert os.read(reads, 100) == b""
        os.close(reads)


def test_a_daemon_that_the_launcher_has_given_up_is_to_leave_when_it_is_there() -> None:
    told: list[Any] = []
    settled: list[Any] = []
    known = SimpleNamespace(present=False, has_joined=False)
    fleet: Any = SimpleNamespace(
        _daemons={"n1": known},
        _exchange=SimpleNamespace(tell=lambda *message: told.append(message)),
        _settle=settled.append,
    )
    session.Fleet._join(fleet, "n1")
    assert settled == [known] and known.present and known.has_joined and not told
    session.Fleet._join(fleet, "n2")
    assert told == [("n2", orders.LEAVE, b"")] and settled == [known]
