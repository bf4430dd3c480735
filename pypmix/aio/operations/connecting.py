"""Connect and disconnect."""

from __future__ import annotations

from contextlib import suppress
from weakref import WeakSet

from pypmix.aio.operations.base import Asks
from pypmix.aio.operations.exchanging import Addressed, Exchanging, Participants
from pypmix.arguments import flag, flags, timed, together
from pypmix.connection import ConnectionView
from pypmix.engine.common import ignore
from pypmix.standard import codes, keys
from pypmix.standard.errors import LostConnection, NotInitialized, PMIxError
from pypmix.standard.ops import Connect, Connected, Disconnect, Get
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_EARLY_TERM,
    CONNECT_ID,
    CONNECT_NOTIFY_EACH,
    CONNECT_NOTIFY_REQ,
    CONNECT_OPTIONAL,
    CONNECT_XCHG_ONLY,
)
from pypmix.standard.types import MAX_NSLEN, RANK_WILDCARD, Info, Proc, Value, check_name
from pypmix.standard.values import infos
from pypmix.steps import Steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from pypmix.aio.waits import Port
    from pypmix.arguments import Infos, Key, Procs
    from pypmix.standard.enums import EventCode


class _ConnectionParticipants(Addressed):
    # Those that connect with `early_termination` continue without the ones that end; others get an error before.
    ft = True

    def members(self) -> tuple[Proc, ...]:
        # A rank in a connection is never given to another one.
        return tuple(self.steps.order)


class Connection(ConnectionView, Exchanging):
    """A connection that the caller takes part in; `connect` of a client returns one.

    As a context manager it ends with a disconnect, which waits for all participants. An exception that leaves the
    block disconnects nothing, since the others may not be about to disconnect: they get an event if the caller ends.

    Example:
        >>> async with await me.connect([*me.job, Proc("other", 0)], timeout=60) as both:
        ...     print(both.rank, "of", both.size, "in", both.nspace, both.procs)
        ...     print("jobs:", both.jobs, "is open:", both.is_open)
        ...     await me.notify(EventCode.custom(-4242), targets=both.address, info={"acme.from": both.proc})
    """

    _port: Port

    def __init__(self, client: Asks, port: Port, named: tuple[Proc, ...], made: Connected) -> None:
        super().__init__(port, named, made)
        self._client = client
        self._steps = Steps(made.nspace, made.procs)

    async def disconnect(self, *, notify_each: bool = False, timeout: float | None = None, info: Infos = None) -> None:
        """`PMIx_Disconnect`: end the connection; all participants have to call it, and leave together.

        It does nothing if the caller has disconnected already. `raw.disconnect` of a client takes procs or an nspace.

        Args:
            notify_each: The others receive `ConnectEvent.HAS_DISCONNECTED`.
            timeout: Seconds to wait for all participants; no limit by default.
            info: Further infos or a mapping.

        Raises:
            OperationTimeout: Not all called it in time.
            PartialSuccess: A participant ended before it called; servers of the Python engine do not wait for procs
                that have ended, and never raise it.

        Example:
            >>> both = await me.connect([0, Proc("other", 0)])
            >>> await both.disconnect(timeout=60)

        PMIx Standard: "Process Management", "Connecting and Disconnecting Processes"; RFC 0003.
        """
        address = self.address
        op = _disconnect_op(self._asked if address is None else address, notify_each, timeout, info)
        if not self.is_open:
            return
        await self._port.run(op)
        self.disconnected()

    async def fence(
        self, *, collect: bool = False, timeout: float | None = None, commit: bool = True, info: Infos = None
    ) -> None:
        """`PMIx_Fence`: wait until all participants have called it.

        Args:
            collect: Exchange what they have committed, so that a later `get` finds it near.
            timeout: Seconds to wait; no limit by default.
            commit: Commit pending puts first.
            info: Further infos or a mapping.

        Raises:
            NotInitialized: The caller has disconnected.
            NotSupported: The connection has no nspace: name the procs in a fence of the client.
            OperationTimeout: Not all arrived in time; `missing` names them if the server reports them.
            PartialSuccess: A participant has ended, and `early_termination` was not given.

        Example:
            >>> async with await me.connect([*me.job, Proc("other", 0)]) as both:
            ...     me.put("endpoint", b"abc")
            ...     await both.fence(collect=True, timeout=60)
        """
        whole = self._whole("fence")
        await self._client.fence(whole, collect=collect, timeout=timeout, commit=commit, info=info)

    def _call_participants(self) -> Participants:
        return _ConnectionParticipants(self._client, self._port, self._steps, self._whole("collective"))

    async def _get(self, key: Key, member: int | Proc, **options: Any) -> Any:
        return await self._client.get(key, member if isinstance(member, Proc) else self[member], **options)

    async def _notify(self, code: EventCode, **options: Any) -> None:
        await self._client.notify(code, targets=self._whole("notify"), **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.disconnect()


class Connections(WeakSet[Connection]):
    """The connections of a client that somebody still holds."""


class Connecting(Asks):
    """Connect and disconnect."""

    async def connect(
        self,
        procs: Procs,
        *,
        connect_id: str | None = None,
        optional: bool = False,
        early_termination: bool = False,
        notify_each: bool = False,
        notify_request: bool = False,
        exchange_only: bool = False,
        timeout: float | None = None,
        info: Infos = None,
    ) -> Connection:
        """`PMIx_Connect`: treat procs, of whatever jobs, as one application; all of them have to call it.

        When it returns, the caller holds the job info of the others' namespaces, so that it can `get` from their procs.
        A server with pypmix assigns the connection an nspace, and the caller a rank in it.

        Args:
            procs: All who take part, the caller among them, in any order; `Proc(nspace, Rank.WILDCARD)` is a whole job.
            connect_id: Tells this connect from others of the same procs at the same time; all give the same one.
            optional: Who ends without having come is left out.
            early_termination: Participants may end without a disconnect: the others get no event, and collectives of
                the connection continue without them.
            notify_each: The participants get `ConnectEvent.HAS_CONNECTED` for each proc that connects, and
                `ConnectEvent.HAS_DISCONNECTED` for each that disconnects.
            notify_request: The others get `ConnectEvent.REQUESTED`.
            exchange_only: Exchange job info, and assign nothing.
            timeout: Seconds to wait for all to come; no limit by default. Whole seconds, a fraction is rounded up.
            info: Further infos or a mapping.

        Returns:
            The connection, a collection of the participants and a context manager.

        Raises:
            OperationTimeout: Not all arrived in time; `missing` names them if the server reports them.
            PartialSuccess: A participant ended before it called connect.
            NotFound: The server does not know one of the procs.
            NotSupported: The server's host cannot connect jobs, or the server does not know what was asked for
                (`supports("connect.directives")`).

        Example:
            >>> both = await me.connect([*me.job, Proc("other", 0)], timeout=60)
            >>> await both.disconnect()

        PMIx Standard: "Process Management", "Connecting and Disconnecting Processes"; RFC 0003.
        """
        if procs is None:
            raise ValueError("there are no procs: name all participants, the caller among them")
        if exchange_only and early_termination:
            raise ValueError("exchange_only makes no connection that could end early: leave one of the two out")
        directives = infos(info)
        if connect_id is not None:
            if not check_name(connect_id, MAX_NSLEN, "a connect id"):
                raise ValueError("a connect id must not be empty")
            directives += (Info(CONNECT_ID, Value(codes.STRING, connect_id)),)
        directives += flags(
            optional=(optional, CONNECT_OPTIONAL),
            early_termination=(early_termination, CONNECT_EARLY_TERM),
            notify_each=(notify_each, CONNECT_NOTIFY_EACH),
            notify_request=(notify_request, CONNECT_NOTIFY_REQ),
            exchange_only=(exchange_only, CONNECT_XCHG_ONLY),
        )
        if not exchange_only:
            directives += (flag(CONNECT_ASSIGN),)
        op = Connect(together(self._procs(procs)), timed(directives, timeout))

        def undo(made: Connected) -> Disconnect:
            return _disconnect_op(made.nspace or op.procs, False, None, None)

        made = await self._run(op, None if exchange_only else undo)
        try:
            made = await _introduced(self._port, made)
        except BaseException:
            with suppress(PMIxError):
                if not exchange_only:
                    self._port.session.submit(undo(made), ignore)
            raise
        connection = Connection(self, self._port, op.procs, made)
        self._port.keep(Connections()).add(connection)
        return connection

    async def _disconnect(
        self,
        connection: Connection | str | Procs,
        *,
        notify_each: bool = False,
        timeout: float | None = None,
        info: Infos = None,
    ) -> None:
        if isinstance(connection, Connection):
            await connection.disconnect(notify_each=notify_each, timeout=timeout, info=info)
            return
        what = connection if isinstance(connection, str) else self._procs(connection)
        op = _disconnect_op(what, notify_each, timeout, info)
        await self._run(op)
        held = self._port.keep(Connections())
        known = [each for each in held if each.is_open and each.stands_for(op.procs)]
        if len(known) == 1:
            known[0].disconnected()


def _disconnect_op(what: Any, notify_each: bool, timeout: float | None, info: Infos) -> Disconnect:
    if what is None or what == "":
        raise ValueError("there is nothing to disconnect from: name the connection, its nspace, or its procs")
    procs = (Proc(what, RANK_WILDCARD),) if isinstance(what, str) else together(what)
    directives = infos(info) + flags(notify_each=(notify_each, CONNECT_NOTIFY_EACH))
    return Disconnect(procs, timed(directives, timeout))


async def _introduced(port: Port, made: Connected) -> Connected:
    """Have the job info of the others here: servers of libpmix send that of jobs with procs on this node alone."""
    found = []
    for nspace in dict.fromkeys([*made.foreign, *[proc.nspace for proc in made.procs]]):
        whole = Proc(nspace, RANK_WILDCARD)
        if nspace == port.session.proc.nspace:
            continue
        if port.session.fetch_local(whole, keys.JOB_SIZE) is None:
            try:
                await port.run(Get(whole, keys.JOB_SIZE))
            except (LostConnection, NotInitialized):
                raise
            except PMIxError:
                # It is not the name of a job, or there is no information on it.
                continue
        found.append(nspace)
    return made.replace(foreign=tuple(found))
