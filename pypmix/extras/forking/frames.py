"""The messages between a host and a fork server: fields without NUL bytes, and descriptors with them."""

from __future__ import annotations

import _socket
import os
import struct

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SIZE = struct.Struct("=I")
_FILES = 3

IMPORT, START, AGAIN, COLLECT, CALL = "import", "start", "again", "collect", "call"
"""The requests of a host.

`import` is the first and names the modules. `start` starts a rank, and `again` a rank like the last one except for some
variables. `collect` collects ranks that ended, and `call` calls a function.
"""


class Start(Record):
    """A request to start a rank.

    Args:
        kind: The kind of target: `file`, `module` or `command`.
        target: A path, the name of a module, or code.
        argv: `sys.argv`.
        command: The whole command line, `sys.orig_argv`.
        env: The whole environment.
        wdir: The working directory; empty for that of the fork server.
        session: Whether it begins a session, instead of a process group only.
    """

    kind: str
    target: str
    argv: tuple[str, ...]
    command: tuple[str, ...]
    env: Mapping[str, str]
    wdir: str = ""
    session: bool = False

    def write(self) -> list[str]:
        """Return the request as words."""
        return [
            self.kind, self.target, self.wdir, "1" if self.session else "", str(len(self.argv)), *self.argv,
            str(len(self.command)), *self.command, *[f"{name}={text}" for name, text in self.env.items()],
        ]  # fmt: skip

    def changes(self, last: Start | None) -> list[str] | None:
        """Return the variables that differ from another rank's, as words; None if anything else differs too."""
        if last is None or self.env.keys() != last.env.keys():
            return None
        if (self.target, self.argv, self.command, self.kind, self.wdir, self.session) != (
            last.target, last.argv, last.command, last.kind, last.wdir, last.session
        ):  # fmt: skip
            return None
        former = last.env
        return [f"{name}={text}" for name, text in self.env.items() if former[name] != text]

    @classmethod
    def read(cls, words: list[str]) -> Start:
        """Decode the words of `write`."""
        kind, target, wdir, session, size = words[:5]
        end = 5 + int(size)
        argv, size = tuple(words[5:end]), words[end]
        begin, end = end + 1, end + 1 + int(size)
        env = dict([word.split("=", 1) for word in words[end:]])
        return cls(kind, target, argv, tuple(words[begin:end]), env, wdir, bool(session))


def send(link: _socket.socket, fields: Sequence[str], files: Sequence[int] = ()) -> None:
    """Send a message.

    Args:
        link: One end of the socket pair.
        fields: Its words, without NUL bytes.
        files: Descriptors to send with it.

    Raises:
        OSError: The other end is closed.
    """
    body = os.fsencode("\0".join(fields))
    rest = memoryview(_SIZE.pack(len(body)) + body)
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"{len(files)}i", *files))] if files else []
    while rest:
        rest = rest[link.sendmsg([rest], rights, _socket.MSG_NOSIGNAL) :]
        rights = []


def receive(link: _socket.socket) -> tuple[list[str], list[int]]:
    """Receive the next message.

    Returns:
        Its fields, empty if the other end is closed, and its descriptors.

    Raises:
        OSError: The connection is broken.
    """
    files: list[int] = []
    header = _receive_exactly(link, _SIZE.size, files)
    if not header:
        return [], files
    (size,) = _SIZE.unpack(header)
    body = _receive_exactly(link, size, files)
    return os.fsdecode(body).split("\0") if body else [], files


def _receive_exactly(link: _socket.socket, size: int, files: list[int]) -> bytes:
    found = b""
    while len(found) < size:
        piece, rights, _, _ = link.recvmsg(
            size - len(found), _socket.CMSG_SPACE(_FILES * struct.calcsize("i")), _socket.MSG_CMSG_CLOEXEC
        )
        for _, _, data in rights:
            files += struct.unpack(f"{len(data) // struct.calcsize('i')}i", data)
        if not piece:
            return b""
        found += piece
    return found
