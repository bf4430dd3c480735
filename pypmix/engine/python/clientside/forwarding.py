"""The client's side of output forwarding: pulls and their handlers, and input for other procs."""

from __future__ import annotations

import os

from pypmix.engine.python.client import Call, Operation
from pypmix.engine.python.datastore import is_true
from pypmix.standard import keys, statuses
from pypmix.standard.errors import SUCCESSES, NotFound, NotInitialized, NotSupported
from pypmix.standard.ops import IOFDeregister, IOFPull, IOFPush, Output
from pypmix.standard.ops.forwarding import STDIN, STDOUT, names_proc
from pypmix.wire.frames import TAG_IOF, TAG_IOF_CONTROL
from pypmix.wire.messages import IOF, IOF_CONTROL, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.python.client import Client


FLOW_CONTROL_FROM = (7, 0, 0)
"""The first release whose servers can ask a client that pushes input to pause."""


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
    """All pulls of a client; it is the listener for forwarded output."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pulls: dict[int, _Pull] = {}
        self._last = FORWARDED
        self._leaving = 0
        self.showing = False
        client.listeners[TAG_IOF] = self
        client.at_loss.append(self._end_pulls)

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
        """Add a pull; return its id."""
        number = self._last + 1
        self._pulls[number] = _Pull(op)
        self._last = number
        return number

    def find(self, number: int) -> _Pull | None:
        """Return a pull."""
        return self._pulls.get(number)

    def leave(self, number: int) -> None:
        """Deliver no further output to a pull; output that still arrives for it is dropped until `record_pull_end`."""
        if self._pulls.pop(number, None) is not None:
            self._leaving += 1

    def record_pull_end(self) -> None:
        """Note that the server has ended a pull."""
        self._leaving -= 1
        if not self._pulls and not self._leaving and not self.showing:
            self._client.listeners.pop(TAG_IOF, None)
            if self._end_pulls in self._client.at_loss:
                self._client.at_loss.remove(self._end_pulls)

    def _end_pulls(self) -> None:
        assert self._client.closed is not None
        error = self._client.closed()
        pulls, self._pulls = self._pulls, {}
        for pull in pulls.values():
            if pull.op.ended is not None and pull.remote_id is not None:
                self._client.tell(pull.op.ended, None if isinstance(error, NotInitialized) else error)


class _Gate:
    """Pause or continue the input that this client pushes, as the server asks."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.shut = False
        self._calls: list[tuple[Call, bytes]] = []
        client.listeners[TAG_IOF_CONTROL] = self
        client.at_loss.append(self._fail_held_calls)

    def __call__(self, payload: bytes) -> None:
        client = self._client
        fields = IOF_CONTROL.decode(payload, client.buffer_type, client.release)
        if not fields["channel"] & STDIN or not names_proc((fields["source"],), client.proc):
            return
        self.shut = fields["xoff"]
        while self._calls and not self.shut:
            call, message = self._calls[0]
            if call.outcome is None:
                client.request(call, message)
            self._calls.pop(0)

    def send(self, call: Call, message: bytes) -> None:
        """Send now, or when the server wants more; in the order of the calls."""
        if self.shut or self._calls:
            self._calls.append((call, message))
        else:
            self._client.request(call, message)

    def _fail_held_calls(self) -> None:
        assert self._client.closed is not None
        calls, self._calls = self._calls, []
        for call, _ in calls:
            if call.outcome is None:
                self._client.fail(call, self._client.closed())


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
        pass  # the output has no reader


def _pull(client: Client, call: Call, op: IOFPull) -> None:
    if client.server is None:
        client.alone(call)
        return
    readers = _readers(client)
    number = readers.add(op)
    call.phase = str(number)
    fields = {"procs": op.procs, "infos": op.directives, "channels": op.channels, "local_id": number}
    try:
        client.request(call, client.encode(Command.IOF_PULL, **fields))
    except BaseException:
        readers.leave(number)
        readers.record_pull_end()
        raise


def _read_pulled(client: Client, call: Call, payload: bytes) -> dict[str, Any]:
    return client.decode(Command.IOF_PULL, payload)


def _pulled(client: Client, call: Call, op: IOFPull, reply: dict[str, Any]) -> None:
    number = int(call.phase)
    readers = _readers(client)
    pull = readers.find(number)
    if reply["status"] not in SUCCESSES or pull is None:
        readers.leave(number)
        readers.record_pull_end()
        client.refuse(call, reply["status"], _FAILURES.get(reply["status"], ""))
    elif call.outcome is not None:
        # The caller has given up, and only it knew the id.
        readers.leave(number)
        stray = Call(IOFDeregister(number), None)
        client.request(stray, client.encode(Command.IOF_DEREG, infos=(), remote_id=reply["remote_id"]))
    else:
        pull.remote_id = reply["remote_id"]
        client.end(call, number)


def _deregister(client: Client, call: Call, op: IOFDeregister) -> None:
    readers = client.listeners.get(TAG_IOF)
    pull = readers.find(op.id) if isinstance(readers, _Readers) else None
    if pull is None or pull.remote_id is None or not isinstance(readers, _Readers):
        client.fail(call, NotFound(f"there is no pull with the id {op.id}"))
        return
    message = client.encode(Command.IOF_DEREG, infos=op.directives, remote_id=pull.remote_id)
    readers.leave(op.id)
    client.request(call, message)


def _deregistered(client: Client, call: Call, op: IOFDeregister, status: int) -> None:
    readers = client.listeners.get(TAG_IOF)
    if isinstance(readers, _Readers):
        readers.record_pull_end()
    # It has ended in any case, and native servers answer with an uninitialized status.
    client.end(call)


def _push(client: Client, call: Call, op: IOFPush) -> None:
    if client.server is None:
        client.alone(call)
        return
    if any(info.key == keys.IOF_PUSH_STDIN and is_true(info.value) for info in op.directives):
        raise client.named(NotSupported("this engine does not read the process's own input; push its bytes"), op)
    message = client.encode(Command.IOF_PUSH, procs=op.procs, infos=op.directives, data=op.data)
    gate = _gate(client)
    if gate is None:
        client.request(call, message)
    else:
        gate.send(call, message)


def _pushed(client: Client, call: Call, op: IOFPush, status: int) -> None:
    if status == statuses.ERR_IOF_XOFF:
        gate = _gate(client)
        if gate is not None:
            gate.shut = True
        client.end(call)
    else:
        client.settle(call, status, failures=_FAILURES)


OPERATIONS = {
    IOFPull: Operation(_pull, _read_pulled, _pulled),
    IOFDeregister: Operation(_deregister, act=_deregistered),
    IOFPush: Operation(_push, act=_pushed),
}
