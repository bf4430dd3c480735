"""The messages that arrive from other servers: in turn, or held until their basis has been applied."""

from __future__ import annotations

from pypmix.engine import times
from pypmix.host.exchange import codec, limits
from pypmix.host.exchange.authority import RESTRICTED
from pypmix.host.exchange.codec import TEXT
from pypmix.host.exchange.errors import log, unpack_error
from pypmix.host.naming import shown
from pypmix.standard.errors import RemoteProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import Timer

    Listener = Callable[[str, bytes], None]

_UNHELD = bytes((codec.ASIDE,)), bytes((codec.SEVERAL,))
"""The kinds of messages that are not kept: of several, each is kept or not."""


class WaitingMessages:
    """Messages of a server that wait for entries: the basis of the first one, and their size."""

    __slots__ = ("basis", "messages", "size", "timer")

    def __init__(self, basis: bytes) -> None:
        self.basis = basis
        self.messages: list[bytes] = []
        self.size = 0
        self.timer: Timer | None = None


class Arrivals:
    """The messages of other servers; used in the turns of the exchange.

    Args:
        exchange: The exchange of this server.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.name = exchange.name
        self._exchange = exchange
        self._listeners: dict[str, Listener] = {}
        self._held: dict[str, WaitingMessages] = {}
        """Messages of servers that wait for entries."""
        self._returning: dict[str, tuple[bytes, list[bytes]]] = {}
        """Servers that have joined while an earlier process of their name is not lost yet: their lives and messages."""
        self._losing = ""
        """The server that is being removed: its messages need no basis."""

    def hear(self, topic: str, listener: Listener) -> None:
        """Receive the messages of a topic; see `Exchange.hear`."""
        self._listeners[topic] = listener

    def call_listener(self, sender: str, topic: str, data: bytes) -> None:
        """Pass a message of a server, which may be this one, to the listener of its topic."""
        if topic in RESTRICTED and sender != self.name:
            self._exchange.authority.check_sender(sender, topic)
        listener = self._listeners.get(topic)
        if listener is None:
            log.warning(
                "%s: %s sends a message of the topic %r, which has no listener", shown(self.name), shown(sender), topic
            )
            return
        listener(sender, data)

    def release_ready(self) -> None:
        """Process the messages of servers whose basis has been applied, and which may have to wait again."""
        for name, waiting in sorted(self._held.items()):
            if self._exchange.state.has_basis(name, waiting.basis):
                self.release(name)

    def release(self, name: str) -> None:
        """Process the held messages of a server."""
        waiting = self._held.pop(name, None)
        if waiting is None:
            return
        if waiting.timer is not None:
            waiting.timer.cancel()
        for kept in waiting.messages:
            # One of them may have to wait for more.
            self._process(name, kept)

    def _hold(self, name: str, message: bytes, basis: bytes = b"") -> None:
        """Keep a message of another server until its basis has been applied, within bounds."""
        waiting = self._held.get(name)
        if waiting is None:
            waiting = self._held[name] = WaitingMessages(basis)
            waiting.timer = self._exchange.later(times.HELD_SECONDS, lambda: self._stop_holding(name, waiting))
        waiting.messages.append(message)
        waiting.size += len(message)
        if waiting.size > limits.HELD_BYTES:
            self._stop_holding(name, waiting)

    def _stop_holding(self, name: str, waiting: WaitingMessages) -> None:
        """Process the messages of a server although their basis has not been applied."""
        if self._held.get(name) is waiting:
            log.warning(
                "%s: messages of %s are processed without the changes that they are based on, which have not arrived",
                shown(self.name),
                shown(name),
            )
            self.release_lost(name)

    def take(self, sender: str, message: bytes) -> None:
        """Process a message of another server, or keep it until its turn."""
        if self._exchange.is_closed:
            return
        if sender in self._returning:
            messages = self._returning[sender][1]
            if sum(map(len, messages)) <= limits.HELD_BYTES:
                messages.append(message)
        elif sender in self._exchange.membership.present:
            self._process(sender, message)

    def _process(self, sender: str, message: bytes) -> None:
        """Process a message of another server, whose turn it is."""
        if sender in self._held and not message.startswith(_UNHELD):
            self._hold(sender, message)
            return
        try:
            kind = message[0] if message else 0
            if kind == codec.REQUEST:
                number, topic, data = codec.read_numbered(message, 2)
                self._exchange.requests.take_request(sender, number, TEXT.read(topic), data)
            elif kind == codec.ANSWER:
                number, data = codec.read_numbered(message, 1)
                self._exchange.requests.take_answer(sender, number, data, None, arrived=True)
            else:
                self._read(sender, message)
        except RemoteProtocolError as error:
            log.error("%s: a message of %s is dropped: %s", shown(self.name), shown(sender), error)
        except Exception:
            # Further work for others, as when the sender is lost, does not end with this message.
            log.exception("%s: a message of %s could not be dealt with", shown(self.name), shown(sender))

    def _read(self, sender: str, message: bytes) -> None:
        """Process a message that is neither a request nor an answer."""
        kind, parts = codec.unpack(message)
        if kind == codec.REFUSED:
            (data,) = codec.expect(parts, 1)
            request, error = unpack_error(data)
            self._exchange.requests.take_answer(sender, request, None, error, arrived=True)
        elif kind in (codec.TELL, codec.ASIDE):
            topic, data = codec.expect(parts, 2)
            self.call_listener(sender, TEXT.read(topic), data)
        elif kind == codec.SEVERAL:
            for each in parts:
                self._process(sender, each)
        elif kind == codec.BASED:
            basis, text = codec.expect(parts, 2)
            if sender == self._losing or self._exchange.state.has_basis(sender, basis):
                self._process(sender, text)
            else:
                self._hold(sender, message, basis)
        else:
            raise codec.broken(f"a message is of the unknown kind {kind}")

    def release_lost(self, name: str) -> None:
        """Process the held messages of a server that is lost, whatever their basis."""
        before, self._losing = self._losing, name
        self.release(name)
        self._losing = before

    def expect_return(self, name: str, life: bytes) -> None:
        """Keep the messages of a server that has joined while an earlier process of its name is not lost yet."""
        self._returning[name] = life, []

    def take_return(self, name: str) -> tuple[bytes, list[bytes]] | None:
        """Return the number of the process of a server that has returned, and its messages; None if it has not."""
        return self._returning.pop(name, None)

    def close(self) -> None:
        """Drop the held messages: this server leaves."""
        self._held.clear()
