"""A connection as one of its participants reads it."""

from __future__ import annotations

from pypmix.psets import ProcSet
from pypmix.spawned import ChildJob
from pypmix.standard import statuses
from pypmix.standard.errors import NotInitialized, NotSupported
from pypmix.standard.ops.connecting import CONNECT_ID, CONNECT_NAME, CONNECT_PROCS
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pypmix.job import Job, Port
    from pypmix.standard.enums import EventCode
    from pypmix.standard.ops import Connected


class ConnectEvent:
    """Codes of events about connections, and the keys of their infos. Only servers with pypmix raise them.

    The codes go wherever an `EventCode` goes: `me.on(ConnectEvent.REQUESTED)`, `me.events(ConnectEvent.TERMINATED)`.
    `event.affected` has the proc that an event is about, and the keys are for `event.info`. Hosts raise the code of
    `TERMINATED` for other ends, too; such an event has no `ConnectEvent.NSPACE`.

    Example:
        >>> @me.on(ConnectEvent.TERMINATED)
        ... def ended(event):
        ...     print(event.affected, "ended in the connection", event.info.get(ConnectEvent.NSPACE))
    """

    HAS_CONNECTED: EventCode = statuses.PROC_HAS_CONNECTED  # type: ignore[assignment]
    """The affected proc has called a connect of the caller's that has `notify_each`."""

    HAS_DISCONNECTED: EventCode = statuses.PROC_HAS_DISCONNECTED  # type: ignore[assignment]
    """The affected proc has called a disconnect that has `notify_each`, or of a connection that has it."""

    REQUESTED: EventCode = statuses.CONNECT_REQUESTED  # type: ignore[assignment]
    """The source has called a connect with `notify_request`, and the caller is one of its procs."""

    TERMINATED: EventCode = statuses.ERR_PROC_TERM_WO_SYNC  # type: ignore[assignment]
    """`PMIX_ERR_PROC_TERM_WO_SYNC`: the affected proc has ended without disconnecting from the caller's connection."""

    NSPACE = CONNECT_NAME
    """The key of the connection's nspace, in `HAS_DISCONNECTED` and `TERMINATED`."""

    ID = CONNECT_ID
    """The key of the `connect_id`, if the connect has one."""

    PROCS = CONNECT_PROCS
    """The key of all expected participants, in `REQUESTED`."""


class ConnectionView:
    """An ordered collection of the participants; it may be passed wherever procs are wanted.

    Args:
        port: The way to the session of the client whose view it is.
        named: The procs as they were named in the connect.
        made: The result of the connect.
    """

    def __init__(self, port: Port, named: tuple[Proc, ...], made: Connected) -> None:
        self._port = port
        self._asked = named
        self._made = made
        self._procs = ProcSet.unchecked(made.procs)
        self._rank = self._procs.index(port.session.proc) if made.nspace else None
        self._open = True

    @property
    def is_open(self) -> bool:
        """Whether the caller has not disconnected yet."""
        return self._open and self._port.is_open

    def disconnected(self) -> None:
        """Note that the caller has disconnected."""
        self._open = False

    @property
    def nspace(self) -> str | None:
        """The nspace that was assigned; None with `exchange_only`, and if the server assigns none."""
        return self._made.nspace or None

    @property
    def rank(self) -> int | None:
        """The caller's rank in that nspace; None without an nspace."""
        return self._rank

    @property
    def proc(self) -> Proc | None:
        """The caller's new name, `Proc(nspace, rank)`; None without an nspace."""
        return None if self._rank is None else Proc(self._made.nspace, self._rank)

    @property
    def address(self) -> Proc | None:
        """The whole connection as an address, `Proc(nspace, Rank.WILDCARD)`; None without an nspace."""
        return Proc(self._made.nspace, RANK_WILDCARD) if self._made.nspace else None

    @property
    def _address(self) -> Proc | None:
        return self.address

    @property
    def procs(self) -> ProcSet:
        """The participants by their own names, in the order of their new ranks.

        If no nspace was assigned, they are as the caller named them, a whole job by its wildcard.
        """
        return self._procs

    @property
    def size(self) -> int:
        """The number of `procs`."""
        return len(self._procs)

    @property
    def jobs(self) -> dict[str, Job]:
        """The jobs of the participants other than the caller's own, by nspace; their job info is in this process."""
        return {nspace: ChildJob(self._port.session, nspace) for nspace in self._made.foreign}

    def stands_for(self, procs: tuple[Proc, ...]) -> bool:
        """Return True if procs mean this connection: its address, or the procs that the connect has named."""
        return procs == (self.address,) or set(procs) == set(self._asked)

    def _whole(self, operation: str) -> Proc:
        address = self.address
        if not self.is_open:
            raise NotInitialized("the caller has disconnected", operation=operation, procs=self._asked)
        if address is None:
            raise NotSupported(
                "the connection has no nspace",
                operation=operation,
                procs=self._asked,
                hint="name the procs themselves; connections have nspaces if `supports('connect.nspace')` is true",
            )
        return address

    def __getitem__(self, rank: int) -> Proc:
        if not 0 <= rank < len(self._procs):
            raise IndexError(f"the connection has ranks 0 to {len(self._procs) - 1}, not {rank}")
        return self._procs[rank]

    def __len__(self) -> int:
        return len(self._procs)

    def __iter__(self) -> Iterator[Proc]:
        return iter(self._procs)

    def __contains__(self, proc: object) -> bool:
        return proc in self._procs

    def __repr__(self) -> str:
        name = self.nspace or "without an nspace"
        return f"<Connection {name} of {len(self)}{'' if self.is_open else ', closed'}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            """Return what a former name stands for."""
            if name[0] == "_":
                return object.__getattribute__(self, name)
            from pypmix.oldnames import find_member

            return find_member(self, "pypmix.Connection", name)
