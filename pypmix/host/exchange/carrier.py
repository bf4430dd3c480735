"""Messages between the servers of a job: the interface that a site may implement over its own network."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    OnMessage = Callable[[str, bytes], None]
    """Called with the name of the sender and the message."""

    OnChange = Callable[[str, bool], None]
    """Called with the name of a server that has joined (True) or left (False)."""
else:
    from pypmix.standard._typing import Generic as Protocol

MAX_MESSAGE = 256 << 20
"""The longest message, in bytes, that a carrier takes by default."""


def check(message: bytes, most: int) -> None:
    """Check that a message can be sent.

    Args:
        message: The message.
        most: The longest that the carrier takes, in bytes.

    Raises:
        OverflowError: It is longer.
        ValueError: It is empty.
    """
    if not message:
        raise ValueError("a message is not empty")
    if len(message) > most:
        raise OverflowError(f"a message of {len(message)} bytes is longer than {most}")


class Carrier(Protocol):
    """Messages between the servers of one job: reliable, and in order between any two of them, while both live.

    A carrier calls `on_message` and `on_change` one at a time, on a thread of its own or where somebody pumps it, and
    never while it holds a lock: they may call `send` and `close`. They do not block.

    Attributes:
        name: This server's name; no other server of the job has it.
    """

    name: str

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all servers that are there now as far as `on_change` has told, this one included; sorted."""

    def send(self, to: str, message: bytes) -> None:
        """Send a message and return at once; from any thread.

        One to a server that is not there, or that goes before it has read it, is lost without an error; `on_change`
        tells of it. A server that does not read what it is sent is taken for gone.

        Args:
            to: The server's name.
            message: What it is to be told; not empty.

        Raises:
            OverflowError: The message is longer than this carrier takes.
        """

    def listen(self, on_message: OnMessage, on_change: OnChange) -> None:
        """Begin to call these; called once, before the first message is sent.

        `on_change` comes with True for each server that is there or comes later, before its first message, and with
        False when it has gone, after its last one. A server that comes back after that is a new one under the same
        name: nothing of the old one's comes any more.
        """

    def close(self) -> None:
        """Leave: the others are told that this server has gone, and nothing is called any more. May be called twice."""
