"""Connections with servers that reach nothing but one process, such as workers by the calls of an engine.

Another part passes bytes between that process and each of these servers. Both ends are sockets that carriers use like
any other connection (`TCPCarrier.attach`), and the servers exchange messages through the root (`detours`).
"""

from __future__ import annotations

import contextlib
import socket
import threading

from pypmix.host.addresses import hang_up
from pypmix.host.exchange.errors import log
from pypmix.host.naming import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from pypmix.host.exchange.tcp import TCPCarrier

    class ByteStream(Protocol):
        """The bytes from and to a server; each method is called on one thread."""

        def read(self) -> bytes:
            """Wait for bytes and return them; empty at the end. Raises an exception if the stream breaks."""

        def write(self, data: bytes) -> None:
            """Pass bytes on, and wait until they are taken. Raises an exception if the stream breaks."""

        def close(self) -> None:
            """End it: `read` ends then, too."""


PIECE = 1 << 20
"""The most bytes that are passed on at a time."""


def connect(carrier: TCPCarrier, stream: ByteStream) -> None:
    """Connect a carrier with the server at the other end of a stream; two threads pass the bytes on."""
    ours, theirs = socket.socketpair()
    carrier.attach(theirs)

    def push() -> None:
        try:
            while data := ours.recv(PIECE):
                stream.write(data)
        except Exception as error:
            # Streams have exceptions of many kinds for a loss. The last messages of the server may still arrive.
            log.info("%s: a stream takes no more bytes: %s", shown(carrier.name), error)
            with contextlib.suppress(OSError):
                while ours.recv(PIECE):
                    continue
        with contextlib.suppress(Exception):
            stream.close()

    def pull() -> None:
        pushing = threading.Thread(target=push, name="pypmix-bridge", daemon=True)
        pushing.start()
        try:
            while data := stream.read():
                ours.sendall(data)
        except Exception as error:
            log.info("%s: a stream has ended: %s", shown(carrier.name), error)
        hang_up(ours)
        pushing.join()
        ours.close()

    threading.Thread(target=pull, name="pypmix-bridge", daemon=True).start()
