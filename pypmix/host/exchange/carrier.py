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
        raise ValueError("a message is empty: it needs at least one byte")
    if len(message) > most:
        raise OverflowError(f"a message of {len(message)} bytes is longer than the {most} bytes that the carrier takes")


class Carrier(Protocol):
    """Messages between the servers of one job: reliable, and in order between any two of them, while both live.

    A carrier calls `on_message` and `on_change` one at a time, on a thread it has made or on the thread that runs it,
    and never while it holds a lock: they may call `send` and `close`. They do not block.

    Attributes:
        name: This server's name; no other server of the job has it.
    """

    name: str

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all present servers, this one included, sorted, as of the last call of `on_change`."""

    def send(self, to: str, message: bytes) -> None:
        """Send a message and return at once; from any thread.

        A message to a server that is not present, or that leaves before it has read the message, is lost without an
        error; `on_change` reports the departure. A server that does not read its messages counts as lost.

        Args:
            to: The server's name.
            message: The message; not empty.

        Raises:
            OverflowError: The message is longer than this carrier takes.
        """

    def listen(self, on_message: OnMessage, on_change: OnChange) -> None:
        """Begin to call these; called once, before the first message is sent.

        `on_change` is called with True for each present server and each that joins later, before its first message, and
        with False when it has left or is lost, after its last one. A server that joins again under the same name is a
        new one: no message of the former one arrives after that.
        """

    def close(self) -> None:
        """Leave: the others receive a report that this server has left, and nothing is called from then on.

        It may be called twice.
        """
