"""The service for ranks that speak PMI-1 closes, whatever its connections do."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import pytest

from pypmix import Proc
from pypmix.host.pmi import service as module
from pypmix.host.pmi.service import PmiService

pytestmark = pytest.mark.timeout(60)


class Loop:
    """The loop of a host, whose turn the test decides."""

    def watch(self, fd: int, events: int, callback: Callable[[], None]) -> None:
        self.notice = callback

    def unwatch(self, fd: int) -> None:
        pass


def test_a_process_that_stays_connected_does_not_hold_it_up(caplog: pytest.LogCaptureFixture) -> None:
    service, loop = PmiService(), Loop()
    _registration, variables = service.register(loop, Proc("job", 0), 1, {})  # type: ignore[arg-type]
    host, _, port = variables["PMI_PORT"].rpartition(":")
    with (
        socket.create_connection((host, int(port)), 30),
        socket.create_connection((host, int(port)), 30) as later,
        caplog.at_level(logging.ERROR, "asyncio"),
    ):
        loop.notice()
        # Connections are accepted in their order: when the later one is refused, the first one is being read.
        later.sendall(b"garbage\n")
        assert later.recv(1) == b""
        service.close()
        assert service._thread is not None and not service._thread.is_alive()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize("uid", [65531, -1], ids=["of another user", "of an unknown user"])
def test_a_process_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr(module.Owners, "uid", lambda _owners, _connection: uid)
    service, loop = PmiService(), Loop()
    _registration, variables = service.register(loop, Proc("job", 0), 1, {})  # type: ignore[arg-type]
    host, _, port = variables["PMI_PORT"].rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        loop.notice()
        with connection.makefile("rb") as lines:
            answer = lines.read().decode()
    assert answer.startswith("cmd=initack rc=-1 msg=refused:_user_"), answer
    service.close()


def test_a_rank_is_known_for_as_long_as_somebody_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    """What is kept is little: the variables by which a client is the rank."""
    service, loop = PmiService(), Loop()
    env = {"PATH": "/bin", "PMIX_RANK": "0", "PYPMIX_SERVER": "s", "HOME": "/"}
    registration, variables = service.register(loop, Proc("job", 0), 1, env)  # type: ignore[arg-type]
    assert registration.env == {"PMIX_RANK": "0", "PYPMIX_SERVER": "s"}
    del registration
    host, _, port = variables["PMI_PORT"].rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        loop.notice()
        connection.sendall(b"cmd=initack pmiid=%b\n" % variables["PMI_ID"].encode())
        assert connection.recv(1) == b""
    service.close()
    assert "no rank has the PMI id 1" in caplog.text
