"""An upcall of another server, answered here."""

from __future__ import annotations

from pypmix.host.exchange import packing
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.host.exchange.requests import OnAnswer
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc


class Forwarded:
    """An `Upcall` that another server has forwarded; answered once, now or later, from any thread.

    Attributes:
        server: The name of the server that the requestor is a client of.
        op: What is asked.
        requestor: The client that asks.
        uid: The user that its server knows it to be.
        gid: Its group.
    """

    __slots__ = ("_answer", "gid", "op", "requestor", "server", "uid")

    def __init__(self, server: str, op: Op[Any], requestor: Proc, uid: int, gid: int, answer: OnAnswer) -> None:
        self.server = server
        self.op: Op[object] = op
        self.requestor: Proc | None = requestor
        self.uid: int | None = uid
        self.gid: int | None = gid
        self._answer = answer

    def reply(self, result: object = None) -> None:
        """Answer with a result; only the first answer counts."""
        self._answer(packing.pack_found(result), None)

    def fail(self, error: BaseException) -> None:
        """Answer with an error; a `PMIxError` passes its status on."""
        if not isinstance(error, PMIxError):
            error = PMIxError(f"{type(error).__name__}: {error}", status=statuses.ERROR, operation=self.op.name)
        self._answer(None, error)
