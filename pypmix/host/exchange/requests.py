"""Requests to other servers and their answers, and the other way round."""

from __future__ import annotations

from pypmix.host.exchange import fields
from pypmix.host.exchange.errors import ExchangeTimeout, listed, lost
from pypmix.host.exchange.messages import ANSWER, REFUSED, REQUEST, as_error, left, pack_error
from pypmix.host.exchange.turns import log
from pypmix.standard import statuses
from pypmix.standard.errors import NotSupported, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    from pypmix.host.exchange.carrier import Carrier
    from pypmix.host.exchange.turns import Turns

    class Timer(Protocol):
        def cancel(self) -> None: ...

    Later = Callable[[float, Callable[[], None]], Timer]
    OnAnswer = Callable[[bytes | None, PMIxError | None], None]
    Handler = Callable[[str, bytes, OnAnswer], None]

MAX_ASKED = 65536
"""How many requests of this server may be unanswered at a time."""

MAX_ANSWERING = 4096
"""How many requests of one other server may be unanswered at a time."""


class Asked:
    """A request of this server that is not answered yet."""

    __slots__ = ("done", "since", "timer", "to", "topic")

    def __init__(self, to: str, topic: str, done: OnAnswer, since: float) -> None:
        self.to = to
        self.topic = topic
        self.done = done
        self.since = since
        self.timer: Timer | None = None


class Requests:
    """What one server has asked others, and what they have asked it; used in the turns of its exchange.

    Args:
        carrier: What carries the messages.
        turns: Where all that belongs to the exchange happens.
        numbers: Where the numbers of requests come from.
        later: Calls a function after some seconds.
        now: The clock.

    Attributes:
        handlers: What answers, by topic.
    """

    def __init__(
        self, carrier: Carrier, turns: Turns, numbers: Iterator[int], later: Later, now: Callable[[], float]
    ) -> None:
        self.handlers: dict[str, Handler] = {}
        self._name = carrier.name
        self._carrier = carrier
        self._turns = turns
        self._numbers = numbers
        self._later = later
        self._now = now
        self._asked: dict[int, Asked] = {}
        self._answering: dict[object, tuple[str, int]] = {}
        self._load: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._asked) + len(self._answering)

    def __iter__(self) -> Iterator[Asked]:
        return iter(list(self._asked.values()))

    def ask(self, to: str, topic: str, data: bytes, done: OnAnswer, timeout: float) -> None:
        """Ask a server that is there."""
        if len(self._asked) >= MAX_ASKED:
            text = f"{MAX_ASKED} requests are unanswered"
            self._turns(done, None, PMIxError(text, status=statuses.ERR_OUT_OF_RESOURCE, operation=topic))
            return
        number = next(self._numbers)
        asked = self._asked[number] = Asked(to, topic, done, self._now())
        if timeout:
            asked.timer = self._later(timeout, lambda: self._turns(self._unanswered, number))
        if to == self._name:
            self.asked_for(to, number, topic, data)
            return
        try:
            self._carrier.send(to, fields.pack(REQUEST, fields.number(number), fields.text(topic), data))
        except OverflowError as error:
            self.answered(to, number, None, PMIxError(str(error), status=statuses.ERR_OUT_OF_RESOURCE, operation=topic))

    def _unanswered(self, number: int) -> None:
        asked = self._asked.get(number)
        if asked is not None:
            text = f"{listed((asked.to,))} did not answer in time"
            error = ExchangeTimeout(text, servers=(asked.to,), operation=asked.topic)
            self.answered(asked.to, number, None, error)

    def answered(self, sender: str, number: int, data: bytes | None, error: PMIxError | None) -> None:
        """A server has answered one of this server's requests."""
        asked = self._asked.get(number)
        if asked is None or asked.to != sender:
            # It came too late, or from somebody who was not asked.
            return
        del self._asked[number]
        if asked.timer is not None:
            asked.timer.cancel()
        if error is not None:
            error.operation = error.operation or asked.topic
        self._turns(asked.done, data, error)

    def asked_for(self, sender: str, number: int, topic: str, data: bytes) -> None:
        """A server asks."""
        handler = self.handlers.get(topic)
        load = self._load.get(sender, 0)
        error: PMIxError | None = None
        if handler is None:
            error = NotSupported(f"{self._name} answers nothing about {topic!r}", operation=topic)
        elif load >= MAX_ANSWERING:
            text = f"{load} requests of {sender} are unanswered at {self._name}"
            error = PMIxError(text, status=statuses.ERR_OUT_OF_RESOURCE, operation=topic)
        if handler is None or error is not None:
            self._deliver(sender, number, None, error)
            return
        token = object()
        self._answering[token] = sender, number
        self._load[sender] = load + 1
        try:
            handler(sender, data, lambda result, problem: self._turns(self._answer, token, result, problem))
        except Exception as problem:
            if not isinstance(problem, PMIxError):
                log.exception("the handler of %r failed", topic)
            self._answer(token, None, as_error(problem, topic))

    def _answer(self, token: object, data: bytes | None, error: BaseException | None) -> None:
        asker = self._answering.pop(token, None)
        if asker is None:
            # Answered already, or nobody is there any more who waits for it.
            return
        sender, number = asker
        self._load[sender] -= 1
        if not self._load[sender]:
            del self._load[sender]
        if error is None and not isinstance(data, bytes | None):
            error = TypeError(f"an answer is bytes, not {type(data).__name__}")
        self._deliver(sender, number, data or b"", None if error is None else as_error(error, ""))

    def _deliver(self, to: str, number: int, data: bytes | None, error: PMIxError | None) -> None:
        if to == self._name:
            self.answered(to, number, None if error is not None else data, error)
            return
        if error is None:
            try:
                self._carrier.send(to, fields.pack(ANSWER, fields.number(number), data or b""))
            except OverflowError as problem:
                error = PMIxError(str(problem), status=statuses.ERR_OUT_OF_RESOURCE)
        if error is not None:
            self._carrier.send(to, pack_error(REFUSED, number, error))

    def lose(self, name: str) -> None:
        """A server has gone: it answers nothing any more, and waits for nothing."""
        for number, asked in [item for item in self._asked.items() if item[1].to == name]:
            self.answered(name, number, None, lost((name,), asked.topic))
        for token in [token for token, asker in self._answering.items() if asker[0] == name]:
            del self._answering[token]
        self._load.pop(name, None)

    def close(self) -> None:
        """This server leaves."""
        for number, asked in list(self._asked.items()):
            self.answered(asked.to, number, None, left(asked.topic))
        self._answering.clear()
        self._load.clear()
