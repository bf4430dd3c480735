"""Whose process is at the other end of a connection on this machine, as the kernel knows it.

The credential of the `native` security module is what a client says of itself, and any user of the machine can reach
the loopback interface. Linux tells the owner of a socket by its addresses, over netlink.
"""

from __future__ import annotations

import contextlib
import socket
import struct

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
REQUEST = 1
ESTABLISHED = 1
NO_COOKIE = 0xFFFFFFFF

NOBODY = -1
"""The other end has closed already, so nobody owns it."""

_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBBI")
_PORTS = struct.Struct("!HH")
_PLACE = struct.Struct("=III")
_REPLY = struct.Struct("=BBBB48xIIIII")


class Owners:
    """Answers who owns the other end of connections over IPv4."""

    __slots__ = ("_netlink",)

    def __init__(self) -> None:
        self._netlink: socket.socket | None = None
        with contextlib.suppress(OSError):
            kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            self._netlink = socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG)

    def uid(self, connection: socket.socket) -> int | None:
        """Return the user who owns the other end, `NOBODY` if that has closed, None where the kernel does not tell."""
        if self._netlink is None:
            return None
        try:
            host, port = connection.getpeername()
            own_host, own_port = connection.getsockname()
        except OSError:
            return NOBODY
        query = b"".join(
            (
                _QUERY.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF),
                _PORTS.pack(port, own_port),
                socket.inet_aton(host).ljust(16, b"\0"),
                socket.inet_aton(own_host).ljust(16, b"\0"),
                _PLACE.pack(0, NO_COOKIE, NO_COOKIE),
            )
        )
        header = _HEADER.pack(_HEADER.size + len(query), SOCK_DIAG_BY_FAMILY, REQUEST, 0, 0)
        try:
            self._netlink.send(header + query)
            data = self._netlink.recv(4096)
        except OSError:
            return None
        if len(data) < _HEADER.size + _REPLY.size or _HEADER.unpack_from(data)[1] != SOCK_DIAG_BY_FAMILY:
            return None
        _, state, _, _, _, _, _, uid, inode = _REPLY.unpack_from(data, _HEADER.size)
        # A socket that its process has closed lives on for a while, without an owner: the kernel then says root.
        return uid if state == ESTABLISHED and inode else NOBODY

    def close(self) -> None:
        """Let go of the kernel's side. May be called twice."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None
