"""What procs of all nodes have published, as a host keeps it that answers for them by default."""

from __future__ import annotations

from pypmix.host.directory import Directory, Who
from pypmix.standard.errors import LostConnection, NotSupported, PMIxError
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.ops import PERSIST_APP, Lookup, Publish, Unpublish

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pypmix.engine.base import Upcall
    from pypmix.standard.limits import Limits
    from pypmix.standard.types import Pdata, Proc


class Publications:
    """Answers `Publish`, `Lookup` and `Unpublish`, in a loop.

    Args:
        loop: The loop.
        node_of: Returns the number of the node that a proc is on.
        limits: How much procs may publish.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, node_of: Callable[[Proc], int], limits: Limits = DEFAULTS
    ) -> None:
        self._loop = loop
        self._node_of = node_of
        self._directory = Directory(loop.call_later, limits)

    def __call__(self, upcall: Upcall) -> None:
        """Answer an upcall, later; from any thread."""
        if not self._soon(self._answer, upcall):
            upcall.fail(LostConnection("the host has closed", operation=upcall.op.name))

    def ended(self, proc: Proc) -> None:
        """Remove what was published for as long as a proc lives, later; from any thread."""
        self._soon(self._directory.leave, proc)

    def job_over(self, procs: tuple[Proc, ...]) -> None:
        """Remove what was published for as long as the application lives, later; from any thread."""
        self._soon(self._directory.forget, frozenset(procs), PERSIST_APP)

    def _soon(self, function: Callable[..., None], *args: object) -> bool:
        """Have something done in the loop, in the order in which it comes; tell whether there still is one."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return False
        return True

    def _answer(self, upcall: Upcall) -> None:
        try:
            self._do(upcall)
        except Exception as error:
            upcall.fail(error)

    def _do(self, upcall: Upcall) -> None:
        op = upcall.op
        if upcall.requestor is None or upcall.uid is None or upcall.gid is None:
            raise NotSupported("nobody has asked", operation=op.name)
        who = Who(upcall.requestor, upcall.uid, upcall.gid, self._node_of(upcall.requestor))
        if isinstance(op, Lookup):

            def found(data: tuple[Pdata, ...], error: PMIxError | None) -> None:
                if error is None:
                    upcall.reply(data)
                else:
                    upcall.fail(error)

            self._directory.lookup(who, op, found)
            return
        if isinstance(op, Publish):
            self._directory.publish(who, op)
        elif isinstance(op, Unpublish):
            self._directory.unpublish(who, op)
        upcall.reply()
