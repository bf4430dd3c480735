"""The server of a simulated node: the session and the machine of the Python engine, without sockets and threads."""

from __future__ import annotations

from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.serving import ServerOptions
from pypmix.server import Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, TypeVar

    from pypmix.engine.alarms import Alarm
    from pypmix.engine.base import OnUpcall
    from pypmix.host.exchange.inprocess import VirtualTime
    from pypmix.testing.virtual.wires import End

    T = TypeVar("T")


class VirtualThread:
    """The clock in place of a server's reactor."""

    def __init__(self, clock: VirtualTime) -> None:
        self._clock = clock

    def now(self) -> float:
        """Return the virtual time."""
        return self._clock.now

    def call_later(self, delay: float, function: Callable[[], None]) -> Alarm:
        """Schedule a call after some virtual seconds."""
        return self._clock.later(delay, function)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function."""
        return function()

    def post(self, function: Callable[[], None]) -> None:
        """Schedule a call after all calls that are due now."""
        self._clock.later(0.0, function)

    def stop(self) -> None:
        """Do nothing, as there is no thread."""

    def forked(self) -> None:
        """Do nothing, as there are no descriptors."""


class VirtualServer(Server):
    """A server on virtual time.

    Args:
        clock: The clock.
        on_upcall: Called with each request to the host.
        nspace: The server's nspace.
        tmpdir: The folder in the environment of its clients; it need not exist.
        hostname: The name of the node.
        rank: The server's rank.
    """

    def __init__(
        self, clock: VirtualTime, on_upcall: OnUpcall, nspace: str, tmpdir: str, hostname: str, rank: int
    ) -> None:
        super().__init__(on_upcall, engine="python", nspace=nspace, tmpdir=tmpdir, hostname=hostname, rank=rank)
        self._made = ServerSession(
            on_upcall,
            ServerOptions(
                nspace,
                hostname,
                tmpdir,
                system_tmpdir=tmpdir,
                rank=rank,
                limits=self.limits,
                security=("native",),
            ),
            reactor=VirtualThread(clock),
        )

    def open(self) -> Self:
        """Start to serve."""
        self._session = self._made
        return self

    def opened(self, end: End) -> None:
        """Serve a client that has connected."""
        self._made.opened(end)
