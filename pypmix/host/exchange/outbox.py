"""The way of a server's messages to its carrier: what goes before them, their basis, and detours."""

from __future__ import annotations

from pypmix.engine import times
from pypmix.host.exchange import codec
from pypmix.host.exchange.codec import TEXT
from pypmix.host.exchange.statelog import ORDERED

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
        self._before: Callable[[str], bytes] | None = None
        self._buffered: dict[str, list[Callable[[], bytes]]] = {}
        """Messages, by their receiver, that are sent with the next one to it."""
        self._basis = b""
        self._based: set[str] = set()
        """The servers that need no basis: they have got the current one, or never need one."""

    def aside(self, to: str, topic: str, data: bytes) -> None:
        """Send a message that another server processes even while it holds this one."""
        self.aside_all((to,), topic, data)

    def aside_all(self, names: Iterable[str], topic: str, data: bytes) -> None:
        """Send such a message to several servers."""
        if not self._exchange.is_closed:
            text = codec.pack(codec.ASIDE, TEXT.write(topic), data)
            for name in names:
                self._carry(name, text)

    def precede(self, write: Callable[[str], bytes] | None) -> None:
        """Send entries before the next message to each server; in a callback of the exchange.

        Args:
            write: Returns the entries for a server, empty for none; None if there are no entries for any.
        """
        self._before = write

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
        """Send a message, after entries and buffered messages to the same server."""
        if self._basis and to not in self._based:
            self.send_buffered()
            self._based.add(to)
            message = codec.pack(codec.BASED, self._basis, message)
        if self._buffered or self._before is not None:
            message = self._joined(to, message)
        if to in self._membership.detoured or to in self._membership.doubted:
            self._carry(to, message)
        else:
            # Without another call for nearly all messages.
            self._carrier.send(to, message)

    def _carry(self, to: str, message: bytes) -> None:
        if to in self._membership.detoured:
            to, topic, data = self._detours.wrap(to, message)
            message = codec.pack(codec.TELL, TEXT.write(topic), data)
        # A later process under the name of a doubted server does not get its messages.
        if to not in self._membership.doubted:
            self._carrier.send(to, message)

    def _joined(self, to: str, message: bytes) -> bytes:
        """Return a message joined with the entries and the buffered messages to its receiver, which go first."""
        entries = b"" if self._before is None else self._before(to)
        before = [codec.pack(codec.ASIDE, TEXT.write(ORDERED), entries)] if entries else []
        before += [write() for write in self._buffered.pop(to, ())]
        if sum(map(len, before)) + len(message) <= MAX_JOINED:
            return codec.pack(codec.SEVERAL, *before, message) if before else message
        # The carrier may not take them together.
        for each in before:
            self._carry(to, each)
        return message

    def send_buffered(self) -> None:
        """Send the buffered messages now; in a callback."""
        buffered, self._buffered = self._buffered, {}
        for to, written in buffered.items():
            if self._exchange.has(to) and not self._exchange.is_closed:
                texts = [write() for write in written]
                self._carry(to, texts[0] if len(texts) == 1 else codec.pack(codec.SEVERAL, *texts))

    def forget(self, name: str) -> None:
        """A server is lost: a later process of its name needs the basis."""
        self._based.discard(name)
        self._buffered.pop(name, None)
