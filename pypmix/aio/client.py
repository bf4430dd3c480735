"""The client: a process's own view of PMIx.

This module has the operations that nearly every rank uses: open and close, put, commit, fence, get and abort. All
others are in `operations/`, a module for each topic; `late_methods` loads a module when one of its methods is called
first (`TOPICS` in `lazy.py` lists them). A method checks its arguments (`arguments.py`), makes an op of `standard/ops`,
and has the client's port carry it out (`waits.py`). The engine behind the session is chosen by `engine/select.py`.
"""

from __future__ import annotations

from pypmix.aio.waits import Port, later, shielded
from pypmix.arguments import (
    GLOBAL,
    INFINITE,
    LONGEST,
    MISSING,
    flag,
    limit,
    proc_tuple,
    scope_number,
    seconds,
    target,
    timed,
    together,
)
from pypmix.clientbase import ClientBase, Forked
from pypmix.lazy import TOPICS, late_methods
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, NotSupported, OperationTimeout, PMIxError
from pypmix.standard.ops import DELETES, RESERVED_PREFIX, SCOPE_GLOBAL, Abort, Commit, Fence, Finalize, Get
from pypmix.standard.ops.core import check_key, check_scope
from pypmix.standard.types import MAX_KEYLEN, RANK_WILDCARD, Info, Proc, TypedKey, Value, at_place, check_integer
from pypmix.standard.values import from_python, infos, to_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Self, TypeVar, overload

    from pypmix.aio.operations.connecting import Connecting
    from pypmix.aio.operations.control import Control
    from pypmix.aio.operations.events import Events
    from pypmix.aio.operations.exchanging import Exchanging, Participants
    from pypmix.aio.operations.fabric import Fabric
    from pypmix.aio.operations.forwarding import Forwarding
    from pypmix.aio.operations.groups import Groups
    from pypmix.aio.operations.invitations import Invitations
    from pypmix.aio.operations.psets import Psets
    from pypmix.aio.operations.publishing import Publishing
    from pypmix.aio.operations.queries import Queries
    from pypmix.aio.operations.raw import Raw
    from pypmix.aio.operations.spawning import Spawning
    from pypmix.aio.waits import Later
    from pypmix.arguments import Infos, Key, Procs, Target
    from pypmix.psets import ProcSets
    from pypmix.standard.attr import Attr
    from pypmix.standard.enums import Scope
    from pypmix.standard.ops import Op

    D = TypeVar("D")
    R = TypeVar("R")
    T = TypeVar("T")

_NOTHING = Value.unchecked(codes.UNDEF, None)
_BARRIER = Fence()
_EXCHANGE = Fence(collect=True)

CHANGING = frozenset((keys.PSET_NAMES, keys.GROUP_NAMES))
"""The keys whose values change, process sets' and groups' names: each read asks the server."""


def _get_infos(timeout: float | None, optional: bool, scope: Scope | None) -> tuple[Info, ...]:
    found: tuple[Info, ...] = ()
    if limit(timeout) == 0:
        found += (flag(keys.IMMEDIATE),)
    elif timeout is not None:
        found += (seconds(LONGEST if timeout == INFINITE else timeout),)
    if optional:
        found += (flag(keys.OPTIONAL),)
    if scope is not None:
        found += (Info(keys.DATA_SCOPE, Value(codes.SCOPE, scope_number(scope))),)
    return found


if TYPE_CHECKING:

    class Operations(
        Connecting,
        Control,
        Events,
        Exchanging,
        Fabric,
        Forwarding,
        Groups,
        Invitations,
        Psets,
        Publishing,
        Queries,
        Spawning,
    ): ...
else:

    class Operations: ...


@late_methods("pypmix.aio.operations", TOPICS)
class Client(ClientBase, Operations):
    """A process of a job, connected to the server that launched it.

    Use it as a context manager: entering connects (`PMIx_Init`), leaving finalizes (`PMIx_Finalize`). A process that
    was not launched is a job of one, a singleton. A client that is open at the end of the process is finalized then,
    unless an uncaught exception ends it. It is not for the children that the process forks: each opens its own.

    Blocking calls release the GIL, and one client may serve many threads. An `aio.Client` belongs to the event loop
    that opened it; cancelling a call stops the waiting, but the server may still carry the operation out.

    Args:
        engine: `python`, `native` or `auto`; by default what `PYPMIX_ENGINE` says, else `auto`.
        env: The environment that the launcher left; the process's own by default.
        info: Infos or a mapping for `PMIx_Init`.
        singleton: `allow`, `require` or `forbid` a process without a server.
        abort_on_error: Abort the job when an exception leaves the `with` block.
    """

    _port: Port
    _new_port = Port

    async def open(self) -> Self:
        """`PMIx_Init`: connect to the server that launched this process; returns the client itself.

        Raises:
            EngineUnavailable: The requested engine cannot be used here.
            Unreachable: The server cannot be reached or refuses this process.

        Example:
            >>> other = await Client().open()
            >>> await other.close()
        """
        self._open()
        self._port.attach()
        return self

    async def close(self, *, info: Infos = None) -> None:
        """`PMIx_Finalize`: report to the server that this process is done, and disconnect; may be called twice.

        Args:
            info: Infos or a mapping for the server, such as `attrs.EMBED_BARRIER`, a fence of the job before.

        Example:
            >>> other = await Client().open()
            >>> await other.close()
        """
        op = Finalize(infos(info))
        port = self._port
        if not self.is_open or isinstance(port.session, Forked):
            return
        runner = port.runner
        port.end()
        try:
            with shielded(None):
                await runner.run(op)
        finally:
            runner.close()

    if not TYPE_CHECKING:  # async only

        def __enter__(self):  # async only
            raise TypeError("use `async with aio.Client() as me:`, or `with pypmix.Client()`")  # async only

        __exit__ = __enter__  # async only

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
                with shielded(None):
                    await self.abort(statuses.ERROR, f"{type(error).__name__}: {error}")
            await self.close()
        except PMIxError:
            pass  # the exception that is on its way tells more

    async def put(self, key: Key, value: object, scope: Scope = GLOBAL) -> None:
        """`PMIx_Put`: make a value available to other procs, from the next `commit` (or `fence`) on.

        A key that is put again replaces its value at the server at the next commit: a rank that asks then gets the new
        value, while others may have read the old one for the same round. `bcast`, `allgather`, `gather` and `scatter`
        do not have this problem. With `put`, use two keys in turn, `f"uid.{round % 2}"`, and a collecting fence in each
        round. A new key for each round stays with the server for as long as the job runs.

        Args:
            key: At most 511 bytes, or an attribute; keys that start with `pmix` are the Standard's.
            value: bool, int, float, str, bytes, a list or dict of these, a record, or an explicit type (`uint32(7)`).
            scope: `Scope.LOCAL` (this node), `REMOTE` (other nodes), `GLOBAL` (all) or `INTERNAL` (this proc).
                `DEL_LOCAL`, `DEL_REMOTE`, `DEL_GLOBAL` and `DEL_INTERNAL` take the key away again, with the value None;
                procs that have read it drop it when they next hear from their server.

        Raises:
            NotSupported: A key is to be deleted, and the server or the library is older than 7.
            TypeError, OverflowError, ValueError: The key or value is not one of PMIx; nothing was put.

        Example:
            >>> await me.put("endpoint", b"\\x0a\\x00")
            >>> await me.put("node.only", 3, Scope.LOCAL)

        PMIx Standard: Process-Related Non-Reserved Keys, "Posting Key/Value Pairs".
        """
        typed = None if key.__class__ is str or not isinstance(key, TypedKey) else key
        name: Any = key if typed is None else typed.key
        number = SCOPE_GLOBAL
        if scope is not GLOBAL:
            number = scope_number(scope)
            check_scope(number)
        if number in DELETES:
            if value is not None:
                raise TypeError(f"a key is deleted with the value None, not {value!r:.100}")
            made = _NOTHING
        else:
            try:
                made = from_python(value) if typed is None else typed.value(value)
            except (TypeError, ValueError, OverflowError) as error:
                raise at_place(error, f"put of {name!r:.80}: value") from None
        # Most keys are short ASCII text, which needs no call.
        if not (name.__class__ is str and name.isascii() and 0 < len(name) <= MAX_KEYLEN and "\0" not in name):
            check_key(name)
        self._port.session.put(name, made, number)
        self._dirty = object()

    async def commit(self) -> None:
        """`PMIx_Commit`: send the values of earlier `put`s to the server; `fence` includes it.

        Example:
            >>> await me.put("ready", True)
            >>> await me.commit()

        PMIx Standard: Process-Related Non-Reserved Keys, "Posting Key/Value Pairs".
        """
        # A put of another task or thread may come in between; it sets another object, and is committed later.
        put = self._dirty
        await self._port.run(Commit())
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
        """`PMIx_Fence`: wait until all of the procs have called it.

        Args:
            procs: The participants, the caller among them; all of the job by default.
            collect: Exchange what the participants have committed, so that a later `get` finds it near.
            timeout: Seconds to wait; no limit by default. Whole seconds on the wire, a fraction is rounded up.
            commit: Commit pending puts first.
            info: Further infos or a mapping.

        Raises:
            OperationTimeout: Not all arrived in time; `missing` names them if the server reports them.
            PartialSuccess: A participant ended before it called the fence; all others have called it.
            LostConnection: The server has exited.

        Example:
            >>> await me.put("uid", f"uid of {me.rank}")
            >>> await me.fence(collect=True, timeout=60)

        PMIx Standard: Process-Related Non-Reserved Keys, "Synchronization and data exchange".
        """
        if procs is None and timeout is None and not info:
            op = _EXCHANGE if collect else _BARRIER
        else:
            op = Fence(together(self._procs(procs)), bool(collect), timed(infos(info), timeout))
        if commit and self._dirty:
            await self.commit()
        await self._port.run(op)

    async def _get_value(
        self,
        key: Key,
        proc: Target = None,
        *,
        timeout: float | None = None,
        wait: float | bool | None = None,
        optional: bool = False,
        refresh: bool = False,
        scope: Scope | None = None,
        info: Infos = None,
    ) -> Value:
        if wait is not None:
            from pypmix.oldnames import time_limit

            timeout = time_limit("get", wait)
        return await self._request_value(key, proc, timeout, optional, refresh, scope, info)

    async def _request_value(
        self,
        key: Key,
        proc: Target,
        timeout: float | None,
        optional: bool,
        refresh: bool,
        scope: Scope | None,
        info: Infos,
    ) -> Value:
        session = self._session
        whose, directives = target(proc, session.proc), infos(info)
        if refresh:
            if whose != session.proc and not session.supports("get.refresh"):
                raise NotSupported(
                    "this library cannot read a value again",
                    operation="get",
                    procs=(whose,),
                    engine=str(session.info),
                    job=session.proc.nspace,
                    hint="use a new key for each value, or PYPMIX_ENGINE=python; see `supports('get.refresh')`",
                )
            directives += (flag(keys.GET_REFRESH_CACHE),)
        directives += _get_infos(timeout, optional, scope)
        op = Get(whose, key.key if isinstance(key, TypedKey) else key, directives)
        try:
            if op.key in CHANGING:
                return await (self._pset_names(op) if op.key == keys.PSET_NAMES else self._group_names(op))
            return await self._port.run(op)
        except PMIxError as error:
            of_the_job = op.key.startswith(RESERVED_PREFIX) and op.key not in CHANGING
            if proc is None and isinstance(error, NotFound) and of_the_job:
                # Most keys of the Standard are of the job, and few callers know which.
                job = Proc.unchecked(self._session.proc[0], RANK_WILDCARD)
                try:
                    return await self._request_value(key, job, timeout, optional, refresh, scope, info)
                except NotFound:
                    pass
            limited = timeout is not None or any(item.key == keys.TIMEOUT for item in directives)
            if limited or not isinstance(error, OperationTimeout):
                raise
            # The caller has set no time limit: the key was not found, and the server's error adds nothing.
            raise NotFound(
                f"there is no {op.key!r} (the server gave up waiting for it)",
                operation="get",
                procs=(op.proc,),
                engine=error.engine,
                job=error.job,
                hint=error.hint or "was it put and committed? timeout=SECONDS waits for it",
            ) from None

    if TYPE_CHECKING:

        @overload
        async def get(
            self,
            key: Attr[T],
            proc: Target = None,
            *,
            timeout: float | None = None,
            optional: bool = False,
            refresh: bool = False,
            scope: Scope | None = None,
            info: Infos = None,
        ) -> T: ...

        @overload
        async def get(
            self,
            key: Attr[T],
            proc: Target = None,
            *,
            default: D,
            timeout: float | None = None,
            optional: bool = False,
            refresh: bool = False,
            scope: Scope | None = None,
            info: Infos = None,
        ) -> T | D: ...

        @overload
        async def get(
            self,
            key: Key,
            proc: Target = None,
            *,
            default: Any = MISSING,
            timeout: float | None = None,
            optional: bool = False,
            refresh: bool = False,
            scope: Scope | None = None,
            info: Infos = None,
        ) -> Any: ...

    async def get(
        self,
        key: Key,
        proc: Target = None,
        *,
        default: Any = MISSING,
        timeout: float | None = None,
        wait: float | bool | None = None,
        optional: bool = False,
        refresh: bool = False,
        scope: Scope | None = None,
        info: Infos = None,
    ) -> Any:
        """`PMIx_Get`: the value that a proc put under a key, or what the job info says under a reserved one.

        A value that was read answers later gets until the next collecting fence with its owner, or for good where
        `supports("get.refresh")` is false. See `put` for keys that are put again.

        Args:
            key: A key, or an attribute such as `attrs.JOB_SIZE`.
            proc: A proc, a rank of the caller's job, or a job (`Rank.WILDCARD`); by default its own, then its job.
            default: Returned instead of raising `NotFound`.
            timeout: Seconds to wait until the proc commits the key: 0 not to wait at all, `math.inf` without a limit.
                None sets no limit of the caller's; the server then gives up after some 2 s. PMIx counts whole
                seconds: a fraction is rounded up.
            wait: The former name of `timeout`.
            optional: Use only values that this process holds already; never ask the server.
            refresh: Ask the server even for a value read before (`PMIX_GET_REFRESH_CACHE`), or raise `NotSupported`.
            scope: Take only a value that was put with this scope.
            info: Further infos or a mapping.

        Returns:
            The value as a plain Python object; `raw.get` keeps its PMIx type.

        Raises:
            NotFound: There is no such value, and no default was given.
            OperationTimeout: It did not come in time.

        Example:
            >>> size = await me.get(attrs.JOB_SIZE)
            >>> uid = await me.get("uid", 0, timeout=10)
            >>> maybe = await me.get("optional", 0, timeout=0, default=None)

        PMIx Standard: "Retrieval rules" of reserved and non-reserved keys.
        """
        if wait is not None:
            from pypmix.oldnames import take_wait

            timeout = take_wait("get", wait, timeout)
        session = self._port.session
        if timeout is None and scope is None and info is None and not refresh:
            name = key if key.__class__ is str else str(key)
            value = session.fetch_local(proc if proc.__class__ is Proc else target(proc, session.proc), name)
            if value is not None and name not in CHANGING:
                return to_python(value)
        try:
            return to_python(await self._request_value(key, proc, timeout, optional, refresh, scope, info))
        except NotFound:
            if default is MISSING:
                raise
            return default

    @property
    def raw(self) -> Raw:
        """The functions of the Standard as C has them; `me.raw.fence()` is `PMIx_Fence`, and nothing else.

        Example:
            >>> await me.raw.fence(me.job, collect=True, timeout=60)
        """
        from pypmix.aio.operations.raw import Raw

        return Raw(self._port)

    @property
    def psets(self) -> Later[ProcSets]:
        """`PMIx_Query_info`: the process sets that the server knows now, a mapping of each name to a `ProcSet`.

        Each read asks the server for the names, and then for the members of each set; the result is a snapshot.
        `watch_psets` reports later definitions and deletions.

        Raises:
            NotSupported: The server does not tell of process sets.

        Example:
            >>> for name, members in (await me.psets).items():
            ...     print(name, len(members))

        PMIx Standard: "Process Sets".
        """
        return later(self._psets)

    async def abort(self, code: int = statuses.ERROR, message: str = "", procs: Procs = None) -> None:
        """`PMIx_Abort`: ask the host to end procs; returns when the request is accepted.

        Args:
            code: The exit status to report, a 32-bit int. An abort is never a success: `pypmix run` ends with the
                low byte of the status, and with 1 where that is 0.
            message: The text that the host prints.
            procs: The procs to end; all of the job by default.

        Example:
            >>> await me.abort(3, "the input is damaged")

        PMIx Standard: "Process termination and abort".
        """
        await self._port.run(Abort(check_integer(code, "an abort status"), message, proc_tuple(self._procs(procs))))

    def _call_participants(self) -> Participants:
        from pypmix.aio.operations.exchanging import JobParticipants

        return JobParticipants(self)

    async def _run(self, op: Op[R], undo: Callable[[R], Op[None]] | None = None) -> R:
        return await self._port.run(op, undo)

    def _attend(self) -> None:
        self._port.attend()
