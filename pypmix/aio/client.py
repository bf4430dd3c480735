"""The client in `async` and `await`; the sync one documents each operation in full."""

from __future__ import annotations

import anyio

from pypmix.aio.pump import Pump
from pypmix.client import CHANGING, ClientBase
from pypmix.late import TOPICS, late
from pypmix.requests import (
    MISSING,
    Forked,
    abort_op,
    fence_op,
    get_op,
    not_found,
    put_op,
    target,
)
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.ops import SCOPE_GLOBAL, Commit, Finalize
from pypmix.standard.types import Proc
from pypmix.standard.values import infos, to_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from pypmix.aio.operations.connecting import Connecting
    from pypmix.aio.operations.control import Control
    from pypmix.aio.operations.events import Events
    from pypmix.aio.operations.fabric import Fabric
    from pypmix.aio.operations.forwarding import Forwarding
    from pypmix.aio.operations.groups import Groups
    from pypmix.aio.operations.invitations import Invitations
    from pypmix.aio.operations.psets import Psets
    from pypmix.aio.operations.publishing import Publishing
    from pypmix.aio.operations.queries import Queries
    from pypmix.aio.operations.spawning import Spawning
    from pypmix.psets import ProcSets
    from pypmix.requests import Infos, Key, Procs, Target
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Value

    R = TypeVar("R")


if TYPE_CHECKING:

    class Operations(
        Connecting, Control, Events, Fabric, Forwarding, Groups, Invitations, Psets, Publishing, Queries, Spawning
    ): ...
else:

    class Operations: ...


@late("pypmix.aio.operations", TOPICS)
class Client(ClientBase, Operations):
    """A process of a job, connected to the server that launched it; see `pypmix.Client` for the arguments.

    It belongs to the event loop that opened it. Cancelling a call stops the waiting; the server may still carry the
    operation out.
    """

    _pump: Pump

    async def open(self) -> Self:
        """`PMIx_Init`: connect to the server that launched this process; returns the client itself."""
        self._open()
        self._pump = Pump(self._session)
        return self

    async def close(self) -> None:
        """Finalize if the client is open; calling it again does nothing."""
        if self.is_open:
            await self.finalize()

    async def finalize(self, *, info: Infos = None) -> None:
        """`PMIx_Finalize`: tell the server that this process is done, and disconnect."""
        op = Finalize(infos(info))
        if isinstance(self._session, Forked):
            return
        if not self.is_open:
            self._session.run(op)  # raises NotInitialized
        session = self._forget()
        try:
            with anyio.CancelScope(shield=True):
                await self._pump.run(op)
        finally:
            self._pump.close()
            session.close()

    async def __aenter__(self) -> Self:
        return self if self.is_open else await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.is_open:
            return
        if error is None or isinstance(error, SystemExit) and not error.code:
            await self.close()
            return
        try:
            if self._abort_on_error:
                with anyio.CancelScope(shield=True):
                    await self.abort(statuses.ERROR, f"{type(error).__name__}: {error}")
            await self.close()
        except PMIxError:
            pass  # the exception that is on its way tells more

    async def put(self, key: Key, value: object, scope: int = SCOPE_GLOBAL) -> None:
        """`PMIx_Put`: make a value available to other procs, from the next `commit` (or `fence`) on."""
        self._session.run(put_op(key, value, scope))
        self._dirty = object()

    async def commit(self) -> None:
        """`PMIx_Commit`: hand what was put to the server; `fence` does so by itself."""
        # A put of another task or thread may come in between, and is not forgotten: it leaves an object of its own.
        put = self._dirty
        await self._run(Commit())
        if self._dirty is put:
            self._dirty = None

    async def fence(
        self,
        procs: Procs = None,
        *,
        collect: bool = False,
        timeout: float | None = None,
        commit: bool = True,
        info: Infos = None,
    ) -> None:
        """`PMIx_Fence`: wait until all of the procs have called it."""
        op = fence_op(procs, collect, timeout, info)
        if commit and self._dirty:
            await self.commit()
        await self._run(op)

    async def get_value(
        self,
        key: Key,
        proc: Target = None,
        *,
        wait: float | bool | None = None,
        optional: bool = False,
        scope: int | None = None,
        info: Infos = None,
    ) -> Value:
        """`PMIx_Get`, returning the value with its PMIx type."""
        op = get_op(target(proc, self._session.proc), key, wait, optional, scope, info)
        try:
            if op.key in CHANGING:
                return await (self._pset_names(op) if op.key == keys.PSET_NAMES else self._group_names(op))
            return await self._run(op)
        except PMIxError as error:
            other = not_found(op, wait, error)
            if other is error:
                raise
            raise other from error

    async def get(
        self,
        key: Key,
        proc: Target = None,
        *,
        default: Any = MISSING,
        wait: float | bool | None = None,
        optional: bool = False,
        scope: int | None = None,
        info: Infos = None,
    ) -> Any:
        """`PMIx_Get`: the value that a proc put under a key, or what the job info says under a reserved one."""
        session = self._session
        if wait is None and scope is None and info is None:
            name = key if key.__class__ is str else str(key)
            value = session.fetch_local(proc if proc.__class__ is Proc else target(proc, session.proc), name)
            if value is not None and name not in CHANGING:
                return to_python(value)
        try:
            return to_python(await self.get_value(key, proc, wait=wait, optional=optional, scope=scope, info=info))
        except NotFound:
            if default is MISSING:
                raise
            return default

    async def psets(self) -> ProcSets:
        """`PMIx_Query_info`: the process sets that the server knows now; in the sync client a property."""
        return await self._psets()

    async def abort(self, code: int = statuses.ERROR, message: str = "", procs: Procs = None) -> None:
        """`PMIx_Abort`: ask the host to end procs; returns when the request is accepted."""
        await self._run(abort_op(code, message, procs))

    async def _run(self, op: Op[R], undo: Callable[[R], Op[None]] | None = None) -> R:
        if not self.is_open:
            self._session.run(op)  # raises NotInitialized
        return await self._pump.run(op, undo)

    def _attend(self) -> None:
        if not self.is_open:
            self._session.fileno()  # raises NotInitialized
        self._pump.serve()
