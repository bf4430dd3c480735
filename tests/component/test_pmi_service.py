"""The service for ranks that speak PMI-1: whom it admits, and that it closes whatever its connections do."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable

import pytest

from pypmix import Proc
from pypmix.engine.peeruid import UNKNOWN_USER
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


OTHER = 65531


@pytest.mark.parametrize(
    ("security", "uid", "reason"),
    [
        ("", os.geteuid(), ""),
        ("munge,native", os.geteuid(), ""),
        ("munge", os.geteuid(), "set_PYPMIX_SECURITY=native,munge"),
        ("unchecked", OTHER, "belongs_to_user_65531"),
        ("native,munge,unchecked", OTHER, "belongs_to_user_65531"),
        ("unchecked", UNKNOWN_USER, "does_not_know_its_socket"),
        ("munge,native", None, "nothing_proves_its_user"),
        ("", None, "PYPMIX_SECURITY=unchecked_admits"),
        ("unchecked", None, ""),
    ],
)
def test_users_are_admitted_as_the_server_admits_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, security: str, uid: int | None, reason: str
) -> None:
    monkeypatch.setenv("PYPMIX_SECURITY", security)
    monkeypatch.setattr(module.Owners, "find", lambda _owners, _connection: uid)
    service, loop = PmiService(), Loop()
    _registration, variables = service.register(loop, Proc("job", 0), 1, {})  # type: ignore[arg-type]
    host, _, port = variables["PMI_PORT"].rpartition(":")
    answers = []
    for _ in range(2):
        with socket.create_connection((host, int(port)), 30) as connection:
            loop.notice()
            loop.notice = lambda: None
            if not reason:
                # It is refused for its command then, and gets no answer.
                connection.sendall(b"cmd=barrier_in\n")
            with connection.makefile("rb") as lines:
                answers.append(lines.read().decode())
    service.close()
    if reason:
        assert all(answer.startswith("cmd=initack rc=-1 msg=refused:_") and reason in answer for answer in answers)
        assert caplog.text.count("processes that speak PMI-1 are refused") == 1, caplog.text
    else:
        assert answers == ["", ""]
        assert caplog.text.count("begins with initack") == 2


def test_the_id_of_a_rank_cannot_be_guessed() -> None:
    """Where the kernel reports no users, it is what proves a rank."""
    service, loop = PmiService(), Loop()
    made = [service.register(loop, Proc("job", rank), 64, {}) for rank in range(64)]  # type: ignore[arg-type]
    numbers = sorted(int(variables["PMI_ID"]) for _, variables in made)
    assert len(set(numbers)) == 64 and numbers[-1] < 1_000_000_000
    assert numbers[-1] - numbers[0] > 1_000_000
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
    assert f"no rank has the PMI id {variables['PMI_ID']}" in caplog.text
