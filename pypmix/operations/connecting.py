# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Connect and disconnect."""

from __future__ import annotations

from pypmix.operations.base import Asks
from pypmix.requests.connecting import connecting_op
from pypmix.standard.ops import Connect, Disconnect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.requests import Infos, Procs


class Connecting(Asks):
    """Connect and disconnect."""

    def connect(self, procs: Procs, *, timeout: float | None = None, info: Infos = None) -> None:
        """`PMIx_Connect`: treat procs, of whatever jobs, as one application; all of them have to call it.

        When it returns, the caller holds the job info of the others' namespaces, so that it can `get` from their procs.

        Args:
            procs: All who take part, the caller among them; `Proc(nspace, Rank.WILDCARD)` is a whole job.
            timeout: Seconds to wait for all to come; no limit by default. Whole seconds, a fraction is rounded up.
            info: Further infos or a mapping.

        Raises:
            OperationTimeout: Not all had come in time; `missing` names them if the server tells.
            PartialSuccess: A participant ended without coming.
            NotFound: The server does not know one of the procs.
            NotSupported: The server's host cannot connect jobs.

        PMIx Standard: "Process Management", "Connecting and Disconnecting Processes".
        """
        self._run(connecting_op(Connect, procs, timeout, info))

    def disconnect(self, procs: Procs, *, timeout: float | None = None, info: Infos = None) -> None:
        """`PMIx_Disconnect`: take a `connect` of the same procs back; all of them have to call it.

        Args:
            procs: The procs that were connected.
            timeout: Seconds to wait for all to come; no limit by default.
            info: Further infos or a mapping.

        Raises:
            OperationTimeout: Not all had come in time.
            PartialSuccess: A participant ended without coming.

        PMIx Standard: "Process Management", "Connecting and Disconnecting Processes".
        """
        self._run(connecting_op(Disconnect, procs, timeout, info))
