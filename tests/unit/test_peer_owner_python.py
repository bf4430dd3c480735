"""What the kernel says of connections, and what is made of it where it does not say it."""

from __future__ import annotations

import _socket
import os
import socket
from contextlib import closing

import pytest

from lib import machine
from pypmix.engine import peeruid
from pypmix.engine.peeruid import UNKNOWN_USER, Owners


@pytest.fixture
def owners() -> Owners:
    made = Owners()
    made.probe()
    if made.trouble:
        machine.lacking(f"a kernel that tells whose connections are: {made.trouble}")
    return made


def test_a_python_without_netlink_sockets_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_socket, "AF_NETLINK")
    owners = Owners()
    assert owners.trouble == "this Python was built without netlink sockets"


def test_a_socket_that_its_process_has_closed_belongs_to_nobody(owners: Owners) -> None:
    """The kernel keeps it for a while, and says that root has it."""
    with closing(owners), socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
        with there:
            assert owners.uid(there) == os.getuid()
            here.close()
            assert owners.uid(there) == UNKNOWN_USER


def test_a_kernel_that_names_another_user_is_not_believed(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with closing(owners):
        owners.probe()
    assert owners.trouble.startswith("the kernel has no sock_diag for TCP")


def test_a_process_that_cannot_connect_to_itself_says_so(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(backlog: int = 1) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(peeruid, "listen_on_loopback", forbidden)
    with closing(owners):
        owners.probe()
    assert owners.trouble == "this process cannot connect to itself: Operation not permitted"
