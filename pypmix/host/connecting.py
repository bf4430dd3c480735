"""Connect and disconnect on one node: all who take part have come already, and the host knows them."""

from __future__ import annotations

from pypmix.host.tools import Admitted
from pypmix.standard.errors import NotFound
from pypmix.standard.ops import Connect, Disconnect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Upcall
    from pypmix.host.local import LocalHost


def _agree(host: LocalHost, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, (Connect, Disconnect))
    tools = host.part(Admitted)
    unknown = [proc for proc in op.procs if not host.has_run(proc.nspace) and not tools.knows(proc.nspace)]
    if unknown:
        raise NotFound("nobody here has their names", operation=op.name, procs=unknown)
    upcall.reply()


ANSWERS: dict[type, Callable[[LocalHost, Upcall], None]] = {Connect: _agree, Disconnect: _agree}
