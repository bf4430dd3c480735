"""The client's side of output forwarding: pulls and their handlers, and input for other procs."""

from __future__ import annotations

import os

from pypmix.engine.python.client import Call
from pypmix.engine.python.datastore import is_true
from pypmix.standard import keys, statuses
from pypmix.standard.errors import SUCCESSES, NotFound, NotInitialized, NotSupported
from pypmix.standard.ops import IOFDeregister, IOFPull, IOFPush, Output
from pypmix.standard.ops.forwarding import STDIN, STDOUT, names_proc
from pypmix.wire.frames import TAG_IOF, TAG_IOF_CONTROL
from pypmix.wire.messages import IOF, IOF_CONTROL, Command, decode_status, reply_layout, request_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.python.client import Client


FLOW_CONTROL_FROM = (7, 0, 0)
"""The first release whose servers tell those who push input to pause."""


FORWARDED = 0
"""The handler that servers name for output which a spawn asked them to send; ids of pulls begin above it."""

_FAILURES = {statuses.ERR_NOT_SUPPORTED: "the server's host forwards no output or input"}


class _Pull:
    """One pull, from its request to its deregistration."""

    __slots__ = ("op", "remote_id")

    def __init__(self, op: IOFPull) -> None:
        self.op = op
        self.remote_id: int | None = None

    def covers(self, output: Output) -> bool:
        return bool(self.op.channels & output.channel) and names_proc(self.op.procs, output.source)


class _Readers:
    """All pulls of a client: what listens to forwarded output."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pulls: dict[int, _Pull] = {}
        self._last = FORWARDED
        self._leaving = 0
        self.showing = False
        client.listeners[TAG_IOF] = self
        client.at_loss.append(self._ended)

    def __call__(self, payload: bytes) -> None:
        if not payload:
            return
        fields = IOF.decode(payload, self._client.buffer_type, self._client.release)
        output = Output(fields["source"], fields["channel"], fields["data"] or b"", fields["infos"])
        number = fields["handler"]
        pull = self._pulls.get(number)
        if pull is not None:
            if pull.op.handler is not None:
                self._client.pass_on(pull.op.handler, output)
        elif not 0 < number <= self._last and not any(pull.covers(output) for pull in self._pulls.values()):
            self._client.pass_on(_show, output)

    def add(self, op: IOFPull) -> int:
        """Take in a pull; return its id."""
        number = self._last + 1
        self._pulls[number] = _Pull(op)
        self._last = number
        return number

    def find(self, number: int) -> _Pull | None:
        """Return a pull."""
        return self._pulls.get(number)

    def leave(self, number: int) -> None:
        """Hand nothing more to a pull; what is still on its way to it is dropped until `left`."""
        if self._pulls.pop(number, None) is not None:
            self._leaving += 1

    def left(self) -> None:
        """The server knows that a pull is over."""
        self._leaving -= 1
        if not self._pulls and not self._leaving and not self.showing:
            self._client.listeners.pop(TAG_IOF, None)
            if self._ended in self._client.at_loss:
                self._client.at_loss.remove(self._ended)

    def _ended(self) -> None:
        assert self._client.closed is not None
        error = self._client.closed()
        pulls, self._pulls = self._pulls, {}
        for pull in pulls.values():
            if pull.op.ended is not None and pull.remote_id is not None:
                self._client.tell(pull.op.ended, None if isinstance(error, NotInitialized) else error)


class _Gate:
    """What the server says about the input that this client pushes: to pause, and to go on."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.shut = False
        self._held: list[tuple[Call, bytes]] = []
        client.listeners[TAG_IOF_CONTROL] = self
        client.at_loss.append(self._lost)

    def __call__(self, payload: bytes) -> None:
        client = self._client
        fields = IOF_CONTROL.decode(payload, client.buffer_type, client.release)
        if not fields["channel"] & STDIN or not names_proc((fields["source"],), client.proc):
            return
        self.shut = fields["xoff"]
        while self._held and not self.shut:
            call, message = self._held[0]
            if call.outcome is None:
                client._request(call, message)
            self._held.pop(0)

    def send(self, call: Call, message: bytes) -> None:
        """Send now, or when the server wants more; in the order of the calls."""
        if self.shut or self._held:
            self._held.append((call, message))
        else:
            self._client._request(call, message)

    def _lost(self) -> None:
        assert self._client.closed is not None
        held, self._held = self._held, []
        for call, _ in held:
            if call.outcome is None:
                self._client._end(call, error=self._client._named(self._client.closed(), call.op))


def show_output(client: Client) -> None:
    """Write what the server forwards unasked to this process's own output, as libpmix does."""
    _readers(client).showing = True


def _readers(client: Client) -> _Readers:
    found = client.listeners.get(TAG_IOF)
    return found if isinstance(found, _Readers) else _Readers(client)


def _gate(client: Client) -> _Gate | None:
    if client.release < FLOW_CONTROL_FROM:
        return None
    found = client.listeners.get(TAG_IOF_CONTROL)
    return found if isinstance(found, _Gate) else _Gate(client)


def _show(output: Output) -> None:
    rest = memoryview(output.data)
    try:
        while rest:
            rest = rest[os.write(1 if output.channel & STDOUT else 2, rest) :]
    except OSError:
        pass  # nobody reads it


def _message(client: Client, command: int, **values: Any) -> bytes:
    return request_layout(command, client.release).encode(client.buffer_type, client.release, **values)


def _failed(client: Client, call: Call, status: int) -> None:
    client._end(call, error=client._error(call, status, _FAILURES.get(status, "")))


def _pull(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, IOFPull)
    if client.server is None:
        client._end(call, error=client._alone(call))
        return
    readers = _readers(client)
    number = readers.add(op)
    call.phase = str(number)
    fields = {"procs": op.procs, "infos": op.directives, "channels": op.channels, "local_id": number}
    try:
        client._request(call, _message(client, Command.IOF_PULL, **fields))
    except BaseException:
        readers.leave(number)
        readers.left()
        raise


def _pulled(client: Client, call: Call, payload: bytes) -> None:
    reply = reply_layout(Command.IOF_PULL, client.release).decode(payload, client.buffer_type, client.release)
    number = int(call.phase)
    readers = _readers(client)
    pull = readers.find(number)
    if reply["status"] not in SUCCESSES or pull is None:
        readers.leave(number)
        readers.left()
        _failed(client, call, reply["status"])
    elif call.outcome is not None:
        # Whoever asked has given up, and nobody else knows of it.
        readers.leave(number)
        stray = Call(IOFDeregister(number), None)
        client._request(stray, _message(client, Command.IOF_DEREG, infos=(), remote_id=reply["remote_id"]))
    else:
        pull.remote_id = reply["remote_id"]
        client._end(call, number)


def _deregister(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, IOFDeregister)
    readers = client.listeners.get(TAG_IOF)
    pull = readers.find(op.id) if isinstance(readers, _Readers) else None
    if pull is None or pull.remote_id is None or not isinstance(readers, _Readers):
        client._end(call, error=client._named(NotFound(f"there is no pull with the id {op.id}"), op))
        return
    message = _message(client, Command.IOF_DEREG, infos=op.directives, remote_id=pull.remote_id)
    readers.leave(op.id)
    client._request(call, message)


def _deregistered(client: Client, call: Call, payload: bytes) -> None:
    readers = client.listeners.get(TAG_IOF)
    if isinstance(readers, _Readers):
        readers.left()
    # It is over in any case, and native servers answer with a status that nobody has set.
    decode_status(payload, client.buffer_type)
    client._end(call)


def _push(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, IOFPush)
    if client.server is None:
        client._end(call, error=client._alone(call))
        return
    if any(info.key == keys.IOF_PUSH_STDIN and is_true(info.value) for info in op.directives):
        raise client._named(NotSupported("this engine does not read the process's own input; push its bytes"), op)
    message = _message(client, Command.IOF_PUSH, procs=op.procs, infos=op.directives, data=op.data)
    gate = _gate(client)
    if gate is None:
        client._request(call, message)
    else:
        gate.send(call, message)


def _pushed(client: Client, call: Call, payload: bytes) -> None:
    status = decode_status(payload, client.buffer_type)
    if status == statuses.ERR_IOF_XOFF:
        gate = _gate(client)
        if gate is not None:
            gate.shut = True
    elif status not in SUCCESSES:
        _failed(client, call, status)
        return
    client._end(call)


STARTS: dict[type, Callable[[Client, Call], None]] = {
    IOFPull: _pull,
    IOFDeregister: _deregister,
    IOFPush: _push,
}

REPLIES: dict[type, Callable[[Client, Call, bytes], None]] = {
    IOFPull: _pulled,
    IOFDeregister: _deregistered,
    IOFPush: _pushed,
}
