"""The requests between servers: those of this server without an answer yet, and those of others that it answers."""

from __future__ import annotations

from functools import partial

from pypmix.host.exchange import codec, limits
from pypmix.host.exchange.errors import (
    ExchangeTimeout,
    as_error,
    listed,
    log,
    make_departure,
    make_loss,
    pack_error,
)
from pypmix.host.exchange.strand import log_failure
from pypmix.host.naming import shown
from pypmix.standard.errors import NotSupported, OutOfResources, PMIxError, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import OnAnswer, Timer

    Handler = Callable[[str, bytes, OnAnswer], None]


class PendingRequest:
    """A request of this server that is not answered yet."""

    __slots__ = ("done", "since", "timer", "to", "topic")

    def __init__(self, to: str, topic: str, done: OnAnswer, since: float) -> None:
        self.to = to
        self.topic = topic
        self.done = done
        self.since = since
        self.timer: Timer | None = None


class Requests:
    """The requests of one server; used in the turns of the exchange.

    Args:
        exchange: The exchange of this server.

    Attributes:
        load: How many requests of each other server this one has to answer.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.name = exchange.name
        self.load: dict[str, int] = {}
        self._exchange = exchange
        self._asked: dict[int, PendingRequest] = {}
        self._answering: dict[object, tuple[str, int]] = {}
        self._handlers: dict[str, Handler] = {}
        self._prompt: set[str] = set()
        """The topics whose handlers answer in a turn of their own."""

    def __len__(self) -> int:
        return len(self._asked) + len(self._answering)

    def list_pending(self) -> list[PendingRequest]:
        """Return the requests of this server that are not answered yet; from any thread."""
        return list(self._asked.values())

    def handle(self, topic: str, handler: Handler, *, is_prompt: bool = False) -> None:
        """Answer requests of a topic; see `Exchange.handle`.

        Args:
            topic: The topic.
            handler: The handler.
            is_prompt: Whether it answers in turns of the exchange alone, and in a later one than a change that its
                answer depends on: then the answer is sent at once.
        """
        self._handlers[topic] = handler
        if is_prompt:
            self._prompt.add(topic)

    def ask(
        self, to: str, topic: str, data: bytes, done: OnAnswer, timeout: float = 0.0, is_absent: bool = False
    ) -> None:
        """Send a request as `request` does, in a callback of the exchange; `is_absent` if no server knows it."""
        error: PMIxError | None = None
        if self._exchange.is_closed:
            error = make_departure(topic)
        elif to not in self._exchange.membership.present:
            if to in self._exchange.gone:
                error = make_loss((to,), topic)
            elif is_absent or self._exchange.root == self.name:
                error = Unreachable(f"{listed((to,))} is not present", operation=topic)
            else:
                self._exchange.detours.reach(to, lambda here: self.ask(to, topic, data, done, timeout, not here))
                return
        elif len(self._asked) >= limits.MAX_ASKED:
            text = f"{limits.MAX_ASKED} requests are unanswered"
            error = OutOfResources(text, operation=topic)
        if error is not None:
            self._exchange.soon(done, None, error)
            return
        number = self._exchange.take_number()
        request = self._asked[number] = PendingRequest(to, topic, done, self._exchange.now())
        if timeout:
            request.timer = self._exchange.later(timeout, lambda: self._time_out(number))
        if to == self.name:
            self.take_request(to, number, topic, data)
            return
        try:
            self._exchange.outbox.send(to, codec.pack_request_message(number, topic, data))
        except OverflowError as problem:
            self.take_answer(to, number, None, OutOfResources(str(problem), operation=topic))

    def _time_out(self, number: int) -> None:
        request = self._asked.get(number)
        if request is not None:
            text = f"{listed((request.to,))} did not answer in time"
            error = ExchangeTimeout(text, servers=(request.to,), operation=request.topic)
            self.take_answer(request.to, number, None, error)

    def take_answer(
        self, sender: str, number: int, data: bytes | None, error: PMIxError | None, *, arrived: bool = False
    ) -> None:
        """A server has answered a request of this one, or the request ends here; `arrived` in the turn of a message."""
        request = self._asked.get(number)
        if request is None or request.to != sender:
            # It arrived too late, or from a server that was not asked.
            return
        del self._asked[number]
        if request.timer is not None:
            request.timer.cancel()
        if error is not None:
            error.operation = error.operation or request.topic
        if not arrived:
            self._exchange.soon(request.done, data, error)
            return
        # The arrived answer counts before the report, which may wait for its turn already, that its sender has left.
        try:
            request.done(data, error)
        except Exception:
            log_failure(request.done)

    # Requests of others

    def take_request(self, sender: str, number: int, topic: str, data: bytes) -> None:
        """Answer a request of another server, or of this one."""
        handler = self._handlers.get(topic)
        load = self.load.get(sender, 0)
        if handler is None:
            error: PMIxError = NotSupported(
                f"{shown(self.name)} does not answer requests of the topic {topic!r:.80}", operation=topic
            )
            self._refuse(sender, number, error)
            return
        if load >= limits.MAX_ANSWERING:
            text = f"{load} requests of {shown(sender)} are unanswered at {shown(self.name)}"
            self._refuse(sender, number, OutOfResources(text, operation=topic))
            return
        token = object()
        self._answering[token] = sender, number
        self.load[sender] = load + 1
        try:
            answer = partial(self._answer, token)
            handler(sender, data, answer if topic in self._prompt else partial(self._exchange.soon, answer))
        except Exception as problem:
            if not isinstance(problem, PMIxError):
                log.exception("the handler of %r failed", topic)
            self._answer(token, None, as_error(problem, topic))

    def _answer(self, token: object, data: bytes | None, error: BaseException | None) -> None:
        asker = self._answering.pop(token, None)
        if asker is None:
            # Answered already, or the asking server is lost.
            return
        sender, number = asker
        self.load[sender] -= 1
        if not self.load[sender]:
            del self.load[sender]
        if error is None and not (data is None or isinstance(data, bytes)):
            error = TypeError(f"an answer is bytes, not {type(data).__name__}")
        if error is None and sender == self.name:
            self.take_answer(sender, number, data or b"", None)
        elif error is None:
            try:
                self._exchange.outbox.send(sender, codec.pack_answer(number, data or b""))
            except OverflowError as problem:
                error = OutOfResources(str(problem))
        if error is not None:
            self._refuse(sender, number, as_error(error))

    def _refuse(self, to: str, number: int, error: PMIxError) -> None:
        if to == self.name:
            self.take_answer(to, number, None, error)
        else:
            self._exchange.outbox.send(to, codec.pack(codec.REFUSED, pack_error(number, error)))

    def lose(self, name: str) -> None:
        """End the requests to a server that is lost, and forget its requests."""
        for number, request in [item for item in self._asked.items() if item[1].to == name]:
            self.take_answer(name, number, None, make_loss((name,), request.topic))
        for token in [token for token, asker in self._answering.items() if asker[0] == name]:
            del self._answering[token]
        self.load.pop(name, None)

    def close(self) -> None:
        """End all requests: this server leaves."""
        for number, request in list(self._asked.items()):
            self.take_answer(request.to, number, None, make_departure(request.topic))
        self._answering.clear()
        self.load.clear()
