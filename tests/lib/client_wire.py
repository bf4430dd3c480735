"""The Python engine's client without a socket: what it sends, and what a test answers."""

from __future__ import annotations

from typing import Any

from lib.fake_server import NSPACE, RELEASE, job
from pypmix.engine.python.client import Call, Client, ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.standard.errors import (
    PMIxError,
)
from pypmix.standard.ops import Op
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.wire.frames import FrameReader, frame
from pypmix.wire.handshake import Hello, encode_reply, native_credential
from pypmix.wire.jobinfo import encode_jobinfo
from pypmix.wire.messages import (
    Command,
    peek_command,
)

ME = Proc(NSPACE, 0)


PEER = Proc(NSPACE, 1)


ALL = Proc(NSPACE, RANK_WILDCARD)


class Wire:
    """A machine, what it has sent, and the means to answer."""

    def __init__(
        self, release: tuple[int, int, int] = RELEASE, *, shared_store: bool = False, opened: bool = True
    ) -> None:
        self.now = 100.0
        self.store = DataStore(ME, "n0", release)
        self.machine = Client(ME, self.store, ServerInfo("server.0", release, 1, shared_store))
        self.frames = FrameReader()
        self.requests: dict[int, bytes] = {}
        if opened:
            hello = Hello("native", native_credential(0, 0), 0, None, None, NSPACE, 0, "5.0.11", "v41", 1, "hash")
            self.opening = self.machine.connect(hello, None)
            self.written()
            self.feed(encode_reply(0, 3))
            ((tag, payload),) = self.sent().items()
            assert peek_command(payload, 1) == Command.REQ
            self.feed(frame(0, tag, encode_jobinfo(job(), 1, release)))
            assert self.opening.outcome == (None, None)
            self.requests.clear()

    def written(self) -> bytes:
        data = bytes(self.machine.unsent())
        self.machine.out[1].append(len(data))
        self.machine.sent()
        return data

    def sent(self) -> dict[int, bytes]:
        new = dict(self.frames.feed(self.written()))
        self.requests.update(new)
        return new

    def request(self) -> tuple[int, bytes]:
        """Return the only new request."""
        ((tag, payload),) = self.sent().items()
        return tag, payload

    def feed(self, data: bytes) -> None:
        self.machine.intake.chunks.append(data)
        self.machine.take(self.now)
        self.deliver()

    def reply(self, tag: int, payload: bytes) -> None:
        self.feed(frame(0, tag, payload))

    def deliver(self) -> None:
        while self.machine.finished:
            call = self.machine.finished.pop(0)
            done, call.done = call.done, None
            if done is not None:
                assert call.outcome is not None
                done(*call.outcome)

    def start(self, op: Op[Any]) -> Call:
        return self.machine.start(op, None, self.now)

    def fails(self, call: Call, kind: type[PMIxError], text: str = "") -> PMIxError:
        assert call.outcome is not None
        error = call.outcome[1]
        assert type(error) is kind, error
        assert text in str(error)
        assert error.operation == call.op.name
        assert error.engine.startswith("python")
        assert error.procs
        return error
