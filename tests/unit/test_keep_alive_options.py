"""The system's keep-alive of a connection is set in one place, for sessions and for processes that wait."""

from __future__ import annotations

from pypmix.host.addresses import set_keep_alive


class Options:
    """A connection that notes its options."""

    def __init__(self):
        self.values = []

    def setsockopt(self, _level, option, value):
        self.values.append((option, value))


def test_options_are_whole_and_bounded():
    import socket

    sock = Options()
    set_keep_alive(sock, TCP_KEEPIDLE=0.1, TCP_KEEPINTVL=1e9, TCP_USER_TIMEOUT=90e3, TCP_NOBODY_HAS_THIS=1)
    assert sock.values == [
        (socket.SO_KEEPALIVE, True),
        (socket.TCP_KEEPIDLE, 1),
        (socket.TCP_KEEPINTVL, 32767),
        (socket.TCP_USER_TIMEOUT, 90000),
    ]
    off = Options()
    set_keep_alive(off, False)
    assert off.values == [(socket.SO_KEEPALIVE, False)]
