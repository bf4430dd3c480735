"""Traffic of native clients and servers, recorded through a proxy: one line per piece of a stream.

Each line is [connection, direction, seconds, hex]. The large sets are compressed.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pypmix.standard.releases import Release, parse_release
from pypmix.wire.frames import FrameReader
from pypmix.wire.handshake import Hello, HelloReader, ReplyReader
from pypmix.wire.messages import EVENT, Layout, peek_command, reply_layout, request_layout

FOLDER = Path(__file__).parents[1] / "wire" / "captures"

SERVERS: dict[str, Release] = {
    "prrte5011": (5, 0, 11),
    "prrte5011both": (5, 0, 11),
    "v422": (4, 2, 2),
    "v610": (6, 1, 0),
}
"""The release of the server in each family of sets."""


class Message(NamedTuple):
    """A message with the layout and the release of its writer."""

    layout: Layout
    command: int
    release: Release
    data: bytes


class Session(NamedTuple):
    """One connection: the bytes of both directions."""

    name: str
    server: Release
    up: bytes
    down: bytes

    def hello(self) -> tuple[Hello, bytes]:
        """Return the client's hello and what follows it."""
        reader = HelloReader()
        hello = reader.feed(self.up)
        assert hello is not None
        return hello, reader.rest

    def messages(self) -> list[Message]:
        """Return every message, requests first."""
        hello, rest = self.hello()
        client = parse_release(hello.version)
        found: list[Message] = []
        commands: dict[int, int] = {}
        reader = FrameReader()
        for tag, data in reader.feed(rest):
            command = commands[tag] = peek_command(data, hello.buffer_type)
            # Natives write requests in the layout of their own release.
            found.append(Message(request_layout(command, client), command, client, data))
        assert not reader.pending
        reply = ReplyReader()
        assert reply.feed(self.down) is not None
        reader = FrameReader()
        for tag, data in reader.feed(reply.rest):
            command = commands.get(tag, -1)
            layout = reply_layout(command, self.server) if tag else EVENT
            found.append(Message(layout, command, self.server, data))
        assert not reader.pending
        return found


@cache
def sessions() -> tuple[Session, ...]:
    """Return every recorded connection."""
    found = []
    for path in sorted(FOLDER.iterdir()):
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        streams: dict[tuple[int, str], bytes] = {}
        for line in text.splitlines():
            connection, direction, _, piece = json.loads(line)
            key = connection, direction
            streams[key] = streams.get(key, b"") + bytes.fromhex(piece)
        name = path.name.partition(".")[0]
        server = SERVERS[name.split("_")[0]]
        for connection in sorted({key[0] for key in streams}):
            up, down = streams[connection, "C>S"], streams[connection, "S>C"]
            found.append(Session(f"{name}-{connection}", server, up, down))
    return tuple(found)


def messages() -> list[Message]:
    """Return every message of every set."""
    return [message for session in sessions() for message in session.messages()]
