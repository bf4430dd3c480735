"""Connecting procs of different jobs."""

from __future__ import annotations

from pypmix.standard.ops.core import Op, instances
from pypmix.standard.types import Info, Proc


class _Together(Op[None]):
    procs: tuple[Proc, ...]
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        instances("procs", self.procs, Proc)
        if not self.procs:
            raise ValueError("there are no procs")
        instances("directives", self.directives, Info)


class Connect(_Together):
    """`PMIx_Connect`: treat procs as one application; all of them call it. Also an upcall.

    When it ends, the caller holds the job info of the others' nspaces. Understood directives: `attrs.TIMEOUT`.
    """


class Disconnect(_Together):
    """`PMIx_Disconnect`: take a connect of the same procs back; all of them call it. Also an upcall."""
