"""Where a process may not have what is faster, it takes what there is; unusable names are refused at once."""

from __future__ import annotations

import re
import socket

import pytest

import pypmix
from pypmix.engine.python import serversession, transport
from pypmix.host.local import _check_nspace


@pytest.fixture
def no_unix_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel refuse Unix-domain sockets, as sandboxes do."""
    make = socket.socket

    def refuse(family: int = -1, *arguments: object, **named: object) -> socket.socket:
        if family == socket.AF_UNIX:
            raise PermissionError(1, "Operation not permitted")
        return make(family, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(transport._socket, "socket", refuse)
    monkeypatch.setattr(serversession, "Listener", refuse)


@pytest.mark.usefixtures("no_unix_sockets")
def test_without_unix_sockets_tcp_is_left() -> None:
    assert transport.connect_local("/nowhere") is None
    assert serversession._open_local_listener("/tmp", 1) == (None, "")


@pytest.mark.parametrize("nspace", ["a;b", "a:b", "a/b", "a@b", "a\udce9b", "n" * 200])
def test_an_nspace_that_no_uri_can_carry_is_refused(nspace: str) -> None:
    with pytest.raises(ValueError, match="nspaces of jobs cannot be"):
        _check_nspace(nspace)


def test_the_advice_of_on_can_be_followed() -> None:
    with pypmix.Client(engine="python", env={}) as me, pytest.raises(TypeError) as caught:
        me.on(lambda event: None)
    (name,) = re.findall(r"EventCode\.(\w+)", str(caught.value))
    assert name in pypmix.EventCode.__members__
