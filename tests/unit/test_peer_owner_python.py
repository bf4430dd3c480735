"""A Python without netlink sockets, as one that is built without Linux's headers."""

from __future__ import annotations

import _socket

import pytest

from pypmix.engine.peeruid import Owners


def test_a_python_without_netlink_sockets_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_socket, "AF_NETLINK")
    owners = Owners()
    assert owners.trouble == "this Python was built without netlink sockets"
