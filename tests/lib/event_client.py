"""The Python engine's client that takes part in events, without a socket."""

from __future__ import annotations

from typing import Any

from lib.client_wire import PEER, Wire
from lib.fake_server import RELEASE
from pypmix.standard.enums import Range
from pypmix.standard.ops import (
    Notification,
    RegisterEventHandler,
)
from pypmix.standard.ops.events import Delivery
from pypmix.standard.types import Info, Proc
from pypmix.wire.frames import TAG_NOTIFY, frame
from pypmix.wire.messages import EVENT, Command, encode_status, peek_command, request_layout

REG, DEREG, NOTIFY = Command.REGEVENTS, Command.DEREGEVENTS, Command.NOTIFY


class Client(Wire):
    """A machine with handlers that note what they hear."""

    def __init__(self, release: tuple[int, int, int] = RELEASE) -> None:
        super().__init__(release)
        self.release = release
        self.seen: list[tuple[str, Notification]] = []
        self.ends: list[tuple[str, BaseException | None]] = []
        self.open: list[Delivery] = []
        self.outstanding: list[int] = []

    def op(self, label: str, *wanted: int, directives: tuple[Info, ...] = (), late: bool = False) -> Any:
        def handler(delivery: Delivery) -> None:
            self.seen.append((label, delivery.notification))
            if late:
                self.open.append(delivery)
            else:
                delivery.done()

        ended = self.ends.append
        return RegisterEventHandler(handler, wanted, directives, lambda error: ended((label, error)))

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the new requests, by command and fields."""
        found = []
        for tag, payload in self.sent().items():
            command = peek_command(payload, 1)
            if command != DEREG:
                self.outstanding.append(tag)
            fields = request_layout(command, self.release).decode(payload, 1, self.release)
            found.append((command, fields))
        return found

    def on(self, label: str, *wanted: int, **kwargs: Any) -> int:
        call = self.start(self.op(label, *wanted, **kwargs))
        self.messages()
        self.answer()
        assert call.outcome is not None
        result, error = call.outcome
        assert error is None
        return result

    def answer(self, status: int = 0) -> None:
        """Answer all that is outstanding, in the order it came."""
        while self.outstanding:
            self.reply(self.outstanding.pop(0), encode_status(1, status))
            self.messages()

    def event(
        self, code: int, *infos: Info, source: Proc = PEER, range: int | None = Range.SESSION, release: Any = None
    ) -> None:
        message = EVENT.encode(1, release or self.release, code=code, source=source, infos=infos, range=range)
        self.feed(frame(0, TAG_NOTIFY, message))

    def labels(self) -> list[tuple[str, int]]:
        self.deliver()
        found = [(label, event.code) for label, event in self.seen]
        self.seen.clear()
        return found
