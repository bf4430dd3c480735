"""An upcall of libpmix to the host, and the host's answer."""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.native.serverside.node import Node
    from pypmix.engine.native.serverside.upcalls import Row
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc


class PendingUpcall:
    """An upcall that the host answers; see `pypmix.engine.base.Upcall`."""

    __slots__ = ("_log", "_node", "_raw", "_row", "gid", "op", "requestor", "uid")

    def __init__(self, node: Node, raw: Any, row: Row, log: Callable[[str], None]) -> None:
        self._node = node
        self._row = row
        self._raw = [raw]
        self._log = log
        self.op: Op[Any] = None  # type: ignore[assignment]
        self.requestor: Proc | None = None
        self.uid: int | None = None
        self.gid: int | None = None

    def reply(self, result: object = None) -> None:
        """Answer with a result. Only the first answer counts; a second answer is a fault of the host, and is logged."""
        raw = self._take()
        if raw is None:
            return
        row = self._row
        if row.data:
            self._give_data(raw, result)
        elif row.write is None:
            answer(raw, statuses.SUCCESS)
        else:
            self._give(raw, result)

    def fail(self, error: BaseException) -> None:
        """Answer with an error; a `PMIxError` passes its status on to the client."""
        if not isinstance(error, BaseException):
            self._log(f"the host failed {self.op.name} with a {type(error).__name__}, which is not an error")
        raw = self._take()
        if raw is None:
            return
        status = status_of(error)
        if self._row.refused is not None:
            try:
                result = self._row.refused(self._node, self, status)
            except LookupError:
                pass
            else:
                self._give(raw, result)
                return
        answer(raw, status)

    def _take(self) -> Any:
        try:
            return self._raw.pop()
        except IndexError:
            whose = f" of {self.requestor}" if self.requestor else ""
            self._log(f"the host replied twice to {self.op.name}{whose}: only the first reply counts")
            return None

    def _give(self, raw: Any, result: object) -> None:
        write = self._row.write
        outputs = ffi.new("pypmix_given *")
        try:
            status = statuses.SUCCESS if write is None else write(self._node, self, result, outputs)
        except Exception as problem:
            # Hosts are user code, and may return anything.
            lib.pypmix_given_free(outputs)
            self._nonsense(problem)
            status = statuses.ERROR
        answer(raw, status, outputs)

    def _give_data(self, raw: Any, result: object) -> None:
        data = b"" if result is None else result
        if not isinstance(data, bytes):
            self._nonsense(TypeError(f"bytes are wanted, not {type(data).__name__}"))
            answer(raw, statuses.ERROR)
        elif lib.pypmix_upcall_answer_bytes(raw, statuses.SUCCESS, data, len(data)):
            answer(raw, statuses.ERR_NOMEM)

    def _nonsense(self, problem: Exception) -> None:
        self._log(f"the host answered {self.op.name} of {self.requestor} with nonsense: {problem!r}")


class UpcallNotice:
    """An upcall that informs the host and does not need an answer."""

    __slots__ = ("gid", "op", "requestor", "uid")

    def __init__(self, op: Op[Any], requestor: Proc | None, uid: int | None, gid: int | None) -> None:
        self.op = op
        self.requestor = requestor
        self.uid = uid
        self.gid = gid

    def reply(self, result: object = None) -> None:
        """See `pypmix.engine.base.Upcall`."""

    def fail(self, error: BaseException) -> None:
        """See `pypmix.engine.base.Upcall`."""


def answer(raw: Any, status: int, outputs: Any = ffi.NULL) -> None:
    """Answer an upcall with a status and results; the shim owns the upcall from then on."""
    lib.pypmix_upcall_answer(raw, status, outputs)


def status_of(error: BaseException) -> int:
    """Return the status of the answer for an error."""
    return (error.code if isinstance(error, PMIxError) else statuses.ERROR) or statuses.ERROR
