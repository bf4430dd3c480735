"""Output of procs and input for them, as calls of the library."""

from __future__ import annotations

from itertools import count

from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.asking import Asking, Row
from pypmix.engine.native.inbox import NO_LIMIT
from pypmix.engine.native.structs import get_proc
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, NotSupported, PMIxError
from pypmix.standard.ops import IOFDeregister, IOFPull, IOFPush, Output
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.forwarding import names_proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.native.session import NativeSession


_FAILURES = {statuses.ERR_NOT_SUPPORTED: "the server's host forwards no output or input"}

_LOST = (statuses.ERR_UNREACH, statuses.ERR_LOST_CONNECTION)

_INBOX_SHIFT = 8
_NUMBER_SHIFT = 32

_numbers = count(1)


class Topic(Asking):
    """The output and input of one session."""

    def __init__(self, session: NativeSession) -> None:
        super().__init__(session)
        self._pulls: dict[int, IOFPull] = {}
        self._standing: set[int] = set()
        self._inbox = inbox = session._letters()
        inbox.readers[lib.PYPMIX_OUTPUT] = self._arrived
        inbox.enders.append(self._ended)

    def run(self, op: Any) -> Any:
        if type(op) is not IOFPull:
            self._check(op)
            return super().run(op)
        number, given = self._begun(op)
        try:
            call = self.session._call()
        except MemoryError:
            lib.pypmix_given_free(given)
            raise
        lib.pypmix_ask(call, self.session._queue, lib.PYPMIX_IOF_PULL, given, NO_LIMIT)
        try:
            self.session._waited(call, NO_LIMIT)
        except BaseException:
            self._pulls.pop(number, None)
            raise
        return self._pulled(op, number, call)

    def submit(self, op: Any, done: Done[Any]) -> None:
        if type(op) is not IOFPull:
            self._check(op)
            super().submit(op, done)
            return
        number, given = self._begun(op)

        def begin(queue: Any, token: int) -> int:
            return int(lib.pypmix_ask_submit(queue, token, lib.PYPMIX_IOF_PULL, given))

        self.session._behind().start(op, done, begin, lambda op, call: self._pulled(op, number, call), NO_LIMIT)

    def has(self, id: int) -> bool:
        """Tell whether a pull of that number stands."""
        return id in self._standing

    def fault(self, op: Any, call: Any) -> int:
        status = super().fault(op, call)
        if type(op) is IOFDeregister:
            # the pull is over whatever the server says, and servers up to 5.0.11 say what they find in their memory
            return status if status in _LOST else 0
        return 0 if status == statuses.ERR_IOF_XOFF else status

    def _begun(self, op: IOFPull) -> tuple[int, Any]:
        """Give a pull its number; return that and its arguments."""
        self._row(op)
        number = next(_numbers)
        given = ffi.new("pypmix_given *")
        given.number = op.channels | self._inbox.number << _INBOX_SHIFT | number << _NUMBER_SHIFT
        try:
            self.marshal.fill(given.items, codes.PROC, op.procs)
            given.infos, given.ninfos = self.marshal.infos(op.directives)
        except PMIxError as error:
            lib.pypmix_given_free(given)
            raise self.session._with_context(error, op.name) from None
        except BaseException:
            lib.pypmix_given_free(given)
            raise
        self._pulls[number] = op
        return number, given

    def _pulled(self, op: IOFPull, number: int, call: Any) -> int:
        status = call.status
        lib.pypmix_call_free(call)
        if status:
            self._pulls.pop(number, None)
            raise self.error(op, status)
        self._standing.add(number)
        return number

    def _check(self, op: Any) -> None:
        session = self.session
        if type(op) is IOFDeregister:
            if op.id not in self._standing:
                raise session._with_context(NotFound(f"there is no pull with the id {op.id}"), op.name)
            self._standing.discard(op.id)
            self._pulls.pop(op.id, None)
        elif type(op) is IOFPush and is_set(op.directives, keys.IOF_PUSH_STDIN):
            raise session._with_context(
                NotSupported("this engine does not read the process's own input; push its bytes"), op.name
            )

    def _arrived(self, letter: Any) -> None:
        pull = self._pulls.get(letter.id)
        if pull is not None and pull.handler is not None:
            source = get_proc(letter.source)
            data = bytes(ffi.buffer(letter.bytes, letter.size)) if letter.size else b""
            output = Output(source, letter.channel, data, self._inbox.infos(letter.infos))
            if pull.channels & output.channel and names_proc(pull.procs, source):
                self._inbox.tell(pull.handler, output)
        self._inbox.answer(letter)

    def _ended(self, error: BaseException | None) -> None:
        pulls, self._pulls = self._pulls, {}
        for number, pull in pulls.items():
            if pull.ended is not None and number in self._standing:
                self._inbox.tell(pull.ended, error)
        self._standing.clear()


def _deregistration(topic: Asking, op: IOFDeregister, given: Any) -> None:
    given.number = op.id


def _input(topic: Asking, op: IOFPush, given: Any) -> None:
    topic.marshal.fill(given.items, codes.PROC, op.procs)
    topic.marshal.fill(given.more, codes.BYTE_OBJECT, (op.data,))


Topic.rows = {
    IOFPull: Row(lib.PYPMIX_IOF_PULL, failures=_FAILURES),
    IOFDeregister: Row(lib.PYPMIX_IOF_DEREGISTER, _deregistration, failures=_FAILURES),
    IOFPush: Row(lib.PYPMIX_IOF_PUSH, _input, failures=_FAILURES),
}
