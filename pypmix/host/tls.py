"""TLS without certificates, for two processes that share a secret.

The keys are anonymous: safe from peers that only listen. Each end proves over the connection that it knows the secret,
by codes that contain its channel binding. So a third process cannot relay between them either: it would have two
connections, with two bindings. Both sides use the last version of TLS that has anonymous keys and a binding.
"""

from __future__ import annotations

import functools
import socket
import ssl
import threading

CIPHERS = "AECDH-AES256-SHA:@SECLEVEL=0"
CHUNK = 1 << 18


@functools.cache
def context(*, dials: bool) -> ssl.SSLContext:
    """Return the settings of one side.

    Raises:
        OSError: This system's OpenSSL refuses connections without certificates.
    """
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if dials else ssl.PROTOCOL_TLS_SERVER)
    found.check_hostname = False
    found.verify_mode = ssl.CERT_NONE
    found.minimum_version = found.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        found.set_ciphers(CIPHERS)
    except ssl.SSLError as error:
        text = f"{ssl.OPENSSL_VERSION} refuses connections without certificates: {error}; --no-encryption does without"
        raise OSError(text) from None
    return found


def binding(secured: ssl.SSLSocket | ssl.SSLObject) -> bytes:
    """Return a value that only the two ends of a connection share; empty if the connection has none."""
    return secured.get_channel_binding("tls-unique") or b""


class Tunnel:
    """TLS over a non-blocking socket, with `send` and `recv` like the socket's; from any thread.

    Args:
        sock: The socket.
        dials: Whether this side begins the handshake.

    Attributes:
        ready: Whether the connection is encrypted: nothing can be sent before.
    """

    def __init__(self, sock: socket.socket, *, dials: bool) -> None:
        self.ready = False
        self._sock = sock
        self._lock = threading.Lock()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context(dials=dials).wrap_bio(self._in, self._out, server_side=not dials)
        self._rest = memoryview(b"")

    @property
    def waiting(self) -> bool:
        """Whether encrypted bytes wait for room in the socket."""
        return bool(self._rest)

    def binding(self) -> bytes:
        """Return the connection's channel binding."""
        return binding(self._tls)

    def send(self, data: memoryview | bytes) -> int:
        """Send some of the data; return the number of bytes sent.

        Raises:
            BlockingIOError: Nothing can be sent now.
            OSError: The connection has ended.
        """
        with self._lock:
            if not self.ready:
                self._shake()
            self._push()
            if self._rest or not self.ready:
                raise BlockingIOError
            count = self._tls.write(data[:CHUNK])
            self._push()
            return count

    def flush(self) -> None:
        """Send encrypted data that waits, as far as there is room.

        Raises:
            OSError: The connection has ended.
        """
        with self._lock:
            self._push()

    def recv(self, most: int) -> bytes:
        """Return received data, about `most` bytes at most; empty at the end of the connection.

        Raises:
            BlockingIOError: No complete record has arrived.
            OSError: The connection has ended, or the received data is not TLS.
        """
        with self._lock:
            while data := self._sock.recv(most):
                self._in.write(data)
                if not self.ready:
                    self._shake()
                if found := self._read(most):
                    return found
            return b""

    def _read(self, most: int) -> bytes:
        pieces = []
        try:
            # Read all: the socket does not report data again that it has given.
            while self.ready and (piece := self._tls.read(most)):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        return b"".join(pieces)

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
            self.ready = True
        except ssl.SSLWantReadError:
            pass
        finally:
            self._push()

    def _push(self) -> None:
        if self._out.pending:
            new = self._out.read()
            self._rest = memoryview(bytes(self._rest) + new if self._rest else new)
        while self._rest:
            try:
                self._rest = self._rest[self._sock.send(self._rest) :]
            except (BlockingIOError, InterruptedError):
                return
