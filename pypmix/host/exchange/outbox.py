"""The way of a server's messages to its carrier: deferred and buffered ones, their basis, and detours."""

from __future__ import annotations

from pypmix.engine import times
from pypmix.host.exchange import codec
from pypmix.host.exchange.codec import TEXT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.host.exchange.carrier import Carrier
    from pypmix.host.exchange.detours import Detours
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.membership import Membership

MAX_JOINED = 1 << 16
"""The longest message, in bytes, that buffered messages are joined with."""


class Outbox:
    """The messages that one server sends; used in the turns of the exchange.

    Args:
        exchange: The exchange of this server.
        carrier: Its carrier.
        membership: The servers that are present.
        detours: The servers that are reached through the root alone.
    """

    def __init__(self, exchange: Exchange, carrier: Carrier, membership: Membership, detours: Detours) -> None:
        self.name = exchange.name
        self._exchange = exchange
        self._carrier = carrier
        self._membership = membership
        self._detours = detours
        self._deferred: Callable[[], None] | None = None
        self._buffered: dict[str, list[Callable[[], bytes]]] = {}
        """Messages, by their receiver, that are sent with the next one to it."""
        self._basis = b""
        self._based: set[str] = set()
        """The servers that need no basis: they have got the current one, or never need one."""

    def aside(self, to: str, topic: str, data: bytes) -> None:
        """Send a message that another server processes even while it holds this one."""
        if not self._exchange.is_closed:
            self._carry(to, codec.pack(codec.ASIDE, TEXT.write(topic), data))

    def aside_all(self, topic: str, data: bytes) -> None:
        """Send all others a message that they process even while they hold this one."""
        if not self._exchange.is_closed:
            text = codec.pack(codec.ASIDE, TEXT.write(topic), data)
            for name in self._exchange.list_others():
                self._carry(name, text)

    def defer(self, call: Callable[[], None], seconds: float) -> None:
        """Call a function after some seconds, or before the next message of this server, whichever is first.

        There is one such call at a time; in a callback of the exchange.
        """
        self._deferred = call
        self._exchange.later(seconds, self.catch_up)

    def buffer(self, to: str, topic: str, write: Callable[[], bytes]) -> None:
        """Send a message with the next one to its receiver, or alone after `NEWS_SECONDS`; in a callback.

        Args:
            to: The receiver.
            topic: The topic.
            write: Returns the data when the message is sent.
        """
        if not self._exchange.has(to) or self._exchange.is_closed:
            return
        if not self._buffered:
            self._exchange.later(times.NEWS_SECONDS, self.send_buffered)
        self._buffered.setdefault(to, []).append(lambda: codec.pack(codec.TELL, TEXT.write(topic), write()))

    def rebase(self, basis: bytes, exempt: Iterable[str]) -> None:
        """Send a basis with the next message to each server, and buffered messages before that; in a callback.

        Args:
            basis: The data that receivers need before they process this server's messages.
            exempt: The servers that never need it.
        """
        self._basis = basis
        self._based = {self.name, *exempt}

    def send(self, to: str, message: bytes) -> None:
        """Send a message, after buffered ones to the same server."""
        if self._deferred is not None:
            self.catch_up()
        if self._basis and to not in self._based:
            self.send_buffered()
            self._based.add(to)
            message = codec.pack(codec.BASED, self._basis, message)
        if self._buffered:
            message = self._joined(to, message)
        self._carry(to, message)

    def _carry(self, to: str, message: bytes) -> None:
        if to in self._membership.detoured:
            to, topic, data = self._detours.wrap(to, message)
            message = codec.pack(codec.TELL, TEXT.write(topic), data)
        # A later process under the name of a doubted server does not get its messages.
        if to not in self._membership.doubted:
            self._carrier.send(to, message)

    def _joined(self, to: str, message: bytes) -> bytes:
        """Return a message joined with the buffered ones to its receiver, which go first."""
        buffered = self._buffered.pop(to, None)
        if buffered is None:
            return message
        before = [write() for write in buffered]
        if len(message) > MAX_JOINED:
            # The carrier may not take it, or not both together.
            self._carry(to, codec.pack(codec.SEVERAL, *before))
            return message
        return codec.pack(codec.SEVERAL, *before, message)

    def send_buffered(self) -> None:
        """Send the buffered messages now; in a callback."""
        buffered, self._buffered = self._buffered, {}
        for to, written in buffered.items():
            if self._exchange.has(to) and not self._exchange.is_closed:
                texts = [write() for write in written]
                self._carry(to, texts[0] if len(texts) == 1 else codec.pack(codec.SEVERAL, *texts))

    def catch_up(self) -> None:
        """Make the deferred call now."""
        call, self._deferred = self._deferred, None
        if call is not None:
            call()

    def forget(self, name: str) -> None:
        """A server is lost: a later process of its name needs the basis."""
        self._based.discard(name)
        self._buffered.pop(name, None)
