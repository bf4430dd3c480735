"""Requests of ranks to act on the links of their test, sent to the process of the test beside PMIx."""

from __future__ import annotations

import json
import socket

from pypmix.host.loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pypmix.host.loop import HostLoop

VARIABLE = "PYPMIX_TESTING_ORDERS"
"""The variable with the path of the socket."""

SECONDS = 30.0
"""Seconds that the process of the test has to answer."""

MOST = 65536


class Orders:
    """The connection of a rank to the process of its test.

    Args:
        path: The socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Orders | None:
        """Return the connection that an environment names; None if it names none."""
        path = env.get(VARIABLE)
        return cls(path) if path else None

    def send(self, *words: object) -> list[int]:
        """Send a request, and return the answer when it has taken effect.

        Raises:
            ValueError: The request is invalid.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(SECONDS)
            sock.connect(self._path)
            sock.sendall(json.dumps(words).encode() + b"\n")
            data = b""
            while not data.endswith(b"\n"):
                more = sock.recv(MOST)
                if not more:
                    raise ConnectionError("the process of the test does not answer")
                data += more
        error, result = json.loads(data)
        if error:
            raise ValueError(error)
        return list(result)


class Listener:
    """Receives requests in the process of the test, on the loop of its host.

    Args:
        loop: The loop.
        path: The path of the socket to make.
        act: Carries out a request, and returns the answer; a `ValueError` is sent as an answer too.
    """

    def __init__(self, loop: HostLoop, path: str, act: Callable[..., list[int]]) -> None:
        self._loop = loop
        self._act = act
        self._open: dict[int, tuple[socket.socket, bytearray]] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(path)
        self._listener.listen()
        loop.watch(self._listener.fileno(), READ, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        # Requests and answers are so short that the socket takes them at once.
        fd = sock.fileno()
        self._open[fd] = sock, bytearray()
        self._loop.watch(fd, READ, lambda: self._read(fd))

    def _read(self, fd: int) -> None:
        sock, data = self._open[fd]
        more = sock.recv(MOST)
        data += more
        if more and not data.endswith(b"\n"):
            return
        try:
            if more:
                sock.sendall(json.dumps(self._answer(data)).encode() + b"\n")
        except OSError:
            # The rank has been killed meanwhile.
            return
        finally:
            del self._open[fd]
            self._loop.unwatch(fd)
            sock.close()

    def _answer(self, data: bytearray) -> tuple[str, list[int]]:
        try:
            return "", self._act(*json.loads(data))
        except ValueError as error:
            return str(error), []

    def close(self) -> None:
        """Close the sockets, after the end of the loop."""
        self._listener.close()
        for sock, _ in self._open.values():
            sock.close()
