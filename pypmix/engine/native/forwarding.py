"""Output of procs and input for them, as calls of the library."""

from __future__ import annotations

from itertools import count

from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.asking import Asking, Row
from pypmix.engine.native.connection import NO_LIMIT, arguments
from pypmix.engine.native.structs import get_proc
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, NotSupported
from pypmix.standard.ops import IOFDeregister, IOFPull, IOFPush, Output
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.forwarding import names_proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.native.asking import Steps
    from pypmix.engine.native.connection import Connection


_FAILURES = {statuses.ERR_NOT_SUPPORTED: "the server's host forwards no output or input"}

_LOST = (statuses.ERR_UNREACH, statuses.ERR_LOST_CONNECTION)

_INBOX_SHIFT = 8
_NUMBER_SHIFT = 32

_numbers = count(1)


class ForwardingTopic(Asking):
    """The output and input of one session."""

    def __init__(self, session: Connection) -> None:
        super().__init__(session)
        self._pulls: dict[int, IOFPull] = {}
        self._standing: set[int] = set()
        self._inbox = inbox = session.inbox
        inbox.readers[lib.PYPMIX_OUTPUT] = self._arrived
        inbox.enders.append(self._end_pulls)

    def steps(self, op: Any) -> Steps:
        if type(op) is IOFPull:
            return self._pull(op)
        if type(op) is IOFDeregister:
            if op.id not in self._standing:
                raise self.session.named(NotFound(f"there is no pull with the id {op.id}"), op.name)
            self._standing.discard(op.id)
            self._pulls.pop(op.id, None)
        elif type(op) is IOFPush and is_set(op.directives, keys.IOF_PUSH_STDIN):
            detail = "this engine does not read the process's own input; push its bytes"
            raise self.session.named(NotSupported(detail), op.name)
        return super().steps(op)

    def has(self, id: int) -> bool:
        """Return True if a pull with an id is registered."""
        return id in self._standing

    def fault(self, op: Any, call: Any) -> int:
        status = super().fault(op, call)
        if type(op) is IOFDeregister:
            # The pull has ended whatever the server's status is; servers up to 5.0.11 send uninitialised memory.
            return status if status in _LOST else 0
        return 0 if status == statuses.ERR_IOF_XOFF else status

    def _pull(self, op: IOFPull) -> Steps:
        self.row(op)
        number = next(_numbers)

        def fill(parameters: Any) -> None:
            parameters.number = op.channels | self._inbox.number << _INBOX_SHIFT | number << _NUMBER_SHIFT
            self.marshal.fill(parameters.items, codes.PROC, op.procs)
            parameters.infos, parameters.ninfos = self.marshal.infos(op.directives)

        parameters = arguments(fill)
        self._pulls[number] = op
        try:
            call = yield lib.PYPMIX_IOF_PULL, parameters, NO_LIMIT
            status = call.status
            lib.pypmix_call_free(call)
            if status:
                raise self.error(op, status)
        except BaseException:
            self._pulls.pop(number, None)
            raise
        self._standing.add(number)
        return number

    def _arrived(self, message: Any) -> None:
        pull = self._pulls.get(message.id)
        if pull is not None and pull.handler is not None:
            source = get_proc(message.source)
            data = bytes(ffi.buffer(message.bytes, message.size)) if message.size else b""
            output = Output(source, message.channel, data, self._inbox.infos(message.infos))
            if pull.channels & output.channel and names_proc(pull.procs, source):
                self._inbox.tell(pull.handler, output)
        self._inbox.answer(message)

    def _end_pulls(self, error: BaseException | None) -> None:
        pulls, self._pulls = self._pulls, {}
        for number, pull in pulls.items():
            if pull.ended is not None and number in self._standing:
                self._inbox.tell(pull.ended, error)
        self._standing.clear()


def _deregistration(topic: Asking, op: IOFDeregister, parameters: Any) -> None:
    parameters.number = op.id


def _input(topic: Asking, op: IOFPush, parameters: Any) -> None:
    topic.marshal.fill(parameters.items, codes.PROC, op.procs)
    topic.marshal.fill(parameters.more, codes.BYTE_OBJECT, (op.data,))


ForwardingTopic.rows = {
    IOFPull: Row(lib.PYPMIX_IOF_PULL, failures=_FAILURES),
    IOFDeregister: Row(lib.PYPMIX_IOF_DEREGISTER, _deregistration, failures=_FAILURES),
    IOFPush: Row(lib.PYPMIX_IOF_PUSH, _input, failures=_FAILURES),
}
