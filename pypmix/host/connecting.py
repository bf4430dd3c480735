"""Connect and disconnect on one node: all who take part have come already, and the host has nothing against it."""

from __future__ import annotations

from pypmix.standard.ops import Connect, Disconnect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Upcall
    from pypmix.host.local import LocalHost


def _agree(_host: LocalHost, upcall: Upcall) -> None:
    upcall.reply()


ANSWERS: dict[type, Callable[[LocalHost, Upcall], None]] = {Connect: _agree, Disconnect: _agree}
