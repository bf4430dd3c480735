"""Fences with procs of other nodes and direct modexes, which fail on a host of one node."""

from __future__ import annotations

from pypmix.standard.errors import NotFound
from pypmix.standard.ops import DirectModex, FenceUpcall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager


def _fail(_host: Manager, upcall: Upcall) -> NoReturn:
    op = upcall.op
    assert isinstance(op, (DirectModex, FenceUpcall))
    procs = (op.proc,) if isinstance(op, DirectModex) else op.procs
    raise NotFound("there is no other node that could have it", operation=op.name, procs=procs)


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {DirectModex: _fail, FenceUpcall: _fail}
