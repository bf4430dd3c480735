"""The way by which ranks of a test have its links acted on: they ask the process of the test, beside PMIx."""

from __future__ import annotations

import json
import socket

from pypmix.host.loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pypmix.host.loop import HostLoop

VARIABLE = "PYPMIX_TESTING_ORDERS"
"""The variable that tells ranks where to ask."""

SECONDS = 30.0
"""Seconds in which the process of the test has to answer."""

MOST = 65536


class Orders:
    """A rank's way.

    Args:
        path: The socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Orders | None:
        """Return the way that the environment tells of, None where it tells of none."""
        path = env.get(VARIABLE)
        return cls(path) if path else None

    def send(self, *words: object) -> list[int]:
        """Ask for something, and return the answer when it has happened.

        Raises:
            ValueError: It makes no sense.
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
    """The end in the process of the test; all of it runs on the loop of its host.

    Args:
        loop: The loop.
        path: The socket, which is made.
        act: Carries out what ranks ask for, and returns the answer; a `ValueError` is an answer too.
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
        # What is read and written is shorter than what the socket takes at once.
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
        """Close the sockets, once the loop has ended."""
        self._listener.close()
        for sock, _ in self._open.values():
            sock.close()
