"""The interface of traces, which an extension implements: the launcher's `Trace`, and the `NodeTrace` of each node."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Protocol

    from pypmix.engine.base import OnUpcall
    from pypmix.host.loop import HostLoop
    from pypmix.host.nodes import HostNode
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.server import Server

    class NodeTrace(Protocol):
        """The part of a trace on one node.

        Attributes:
            period: The seconds between two collections of the entries.
        """

        period: float

        def wrap(self, on_upcall: OnUpcall) -> OnUpcall:
            """Return a function that traces upcalls and calls `on_upcall`."""

        def attend(self, server: Server) -> None:
            """Trace the requests of an open server's clients, if its engine supports that."""

        def take_messages(self) -> Iterator[bytes]:
            """Remove the finished entries, and return them as messages for the launcher's trace."""

    class Trace(Protocol):
        """The trace of a run."""

        def wrap(self, on_upcall: OnUpcall, node: str) -> OnUpcall:
            """Return a function for the server of a node that traces upcalls and calls `on_upcall`."""

        def attend(self, nodes: Sequence[HostNode], jobs: Mapping[str, RunningJob], loop: HostLoop) -> None:
            """Collect the entries of the open nodes here from time to time, on a loop."""

        def add_message(self, node: str, data: bytes) -> None:
            """Add the entries of another node's message.

            Raises:
                RemoteProtocolError: It is malformed.
            """

        def rank_ended(self, job: RunningJob, rank: Rank) -> None:
            """Add the end of a rank."""

        def close(self) -> None:
            """Write the rest of the trace."""
