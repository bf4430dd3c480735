"""The text protocol of PMI-1: the bytes of a process in, commands out, and answers back.

A command is a line, `cmd=put kvsname=job key=a value=b`. A spawn is several lines for each program, which begin with
`mcmd=spawn` and end with `endcmd`. Values stay as they were sent: the process that escapes a value reads it again.
"""

from __future__ import annotations

from pypmix.standard.errors import RemoteProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_COMMAND = 1 << 20
"""The most bytes of a command."""

MAX_LINE = 1 << 16
"""The most bytes of a line of PMI-1."""

_SPAWN = b"mcmd=spawn"
_END = "endcmd"


class Command:
    """A command of a process.

    Args:
        name: Such as `put`.
        fields: Its fields by their keys.
        parts: The fields of each program of a spawn.
    """

    __slots__ = ("fields", "name", "parts")

    def __init__(self, name: str, fields: dict[str, str], parts: tuple[dict[str, str], ...] = ()) -> None:
        self.name = name
        self.fields = fields
        self.parts = parts

    def text(self, key: str) -> str:
        """Return a field.

        Raises:
            RemoteProtocolError: The command lacks it.
        """
        try:
            return self.fields[key]
        except KeyError:
            raise RemoteProtocolError(f"the PMI command {self.name!r:.40} has no field {key!r}") from None

    def number(self, key: str, default: int | None = None) -> int:
        """Return a field that is a number.

        Raises:
            RemoteProtocolError: The command lacks it, or it is not a number.
        """
        if default is not None and key not in self.fields:
            return default
        return number(self.text(key), key)


class Decoder:
    """Cuts the bytes of a connection into commands."""

    def __init__(self) -> None:
        self._buffer = b""
        self._spawns: list[dict[str, str]] = []
        self._block: dict[str, str] | None = None
        self._size = 0

    def feed(self, data: bytes) -> Iterator[Command]:
        """Return the commands that some further bytes complete.

        Raises:
            RemoteProtocolError: The bytes are not PMI, or a command is too long.
        """
        self._buffer += data
        while (command := self._next_line()) is not None:
            if command.name:
                yield command

    def _next_line(self) -> Command | None:
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            if len(line) > MAX_LINE:
                raise RemoteProtocolError(f"a PMI command is longer than {MAX_LINE} bytes")
            return None
        self._buffer = rest
        if self._block is not None or line.startswith(_SPAWN):
            return self._add_to_spawn(line)
        return _command(line)

    def _add_to_spawn(self, line: bytes) -> Command:
        """Add a line to a spawn; return the spawn if it is complete, else a command without a name."""
        self._size += len(line)
        if self._size > MAX_COMMAND:
            raise RemoteProtocolError(f"a PMI spawn is longer than {MAX_COMMAND} bytes")
        text = _text(line)
        if self._block is None:
            self._block = {}
        elif text == _END:
            block, self._block = self._block, None
            self._spawns.append(block)
            if number(block.get("spawnssofar", "1"), "spawnssofar") >= number(block.get("totspawns", "1"), "totspawns"):
                parts, self._spawns, self._size = tuple(self._spawns), [], 0
                return Command("spawn", dict(parts[0]), parts)
        elif "=" in text:
            key, _, value = text.partition("=")
            self._block[key] = value
        return Command("", {})


def encode(name: str, fields: Mapping[str, object]) -> bytes:
    """Return the bytes of an answer."""
    return " ".join([f"cmd={name}", *[f"{key}={value}" for key, value in fields.items()]]).encode() + b"\n"


def number(text: str, what: str) -> int:
    """Return the number in a field.

    Raises:
        RemoteProtocolError: It is not a number of at most nine digits.
    """
    digits = text[1:] if text.startswith("-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise RemoteProtocolError(f"the PMI field {what!r} is {text!r:.40}, which is not a number")
    return int(text)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError(f"a PMI command is not text: {data!r:.60}") from None


def _command(line: bytes) -> Command:
    pairs = [word.partition("=") for word in _text(line.rstrip(b"\0\r")).split(" ") if word]
    if not pairs or pairs[0][0] != "cmd" or not pairs[0][2]:
        raise RemoteProtocolError(f"a PMI command begins with {line[:40]!r}, and not with 'cmd=' and a name")
    return Command(pairs[0][2], {key: value for key, _, value in pairs[1:]})
