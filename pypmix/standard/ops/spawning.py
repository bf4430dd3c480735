"""Starting jobs."""

from __future__ import annotations

from pypmix.standard.ops.core import Op
from pypmix.standard.types import App, Info


class Spawn(Op[str]):
    """`PMIx_Spawn`: start a job; returns its nspace. Also an upcall.

    When it completes, the caller has the job info of the new nspace. Understood directives are the Standard's
    "Spawn-specific constants and attributes", for the job in `directives` and for an application in its infos.
    """

    apps: tuple[App, ...]
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not self.apps:
            raise ValueError("there is no application to spawn")
        for app in self.apps:
            if not app.cmd and not app.argv:
                raise ValueError("an application needs a command")
            if not isinstance(app.maxprocs, int) or app.maxprocs < 1:
                raise ValueError(f"an application has at least one process, not {app.maxprocs!r}")
