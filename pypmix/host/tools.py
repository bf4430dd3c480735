"""Tools at a host: they are let in, and what they have published goes with them."""

from __future__ import annotations

import os

from pypmix.host.rank import CONNECTED
from pypmix.standard.ops import ToolConnected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.standard.types import Proc

FILES = ("PMIX_LAUNCHER_RNDZ_FILE", "PMIX_LAUNCHER_RENDEZVOUS_FILE")
"""Variables with the path of the file that a launcher writes for the tool that has started it."""


class Admitted:
    """The tools that are there, by the names that they have brought."""

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._procs: set[Proc] = set()

    def add(self, proc: Proc) -> None:
        """A tool is let in."""
        self._procs.add(proc)

    def remove(self, proc: Proc) -> None:
        """A proc has gone, be it a tool or not."""
        self._procs.discard(proc)

    def knows(self, nspace: str) -> bool:
        """Tell whether a tool has this nspace, or one that its server has made up may have it."""
        made_up = nspace.startswith(f"{self._host.server.proc.nspace[:230]}-tool")
        return made_up or any(proc.nspace == nspace for proc in self._procs)


def rendezvous_file(env: Mapping[str, str]) -> str | None:
    """Return the rendezvous file that the environment asks for; a file that is there is not meant to be written."""
    return next((env[name] for name in FILES if env.get(name) and not os.path.lexists(env[name])), None)


def gone(host: Manager, proc: Proc) -> None:
    """A proc has finalized or lost its connection; if it was a tool, that is its end."""
    for function in host.at_departure:
        function(proc)
    host.part(Admitted).remove(proc)
    if host.find(proc) is None and not host.has_run(proc.nspace):
        from pypmix.host.publishing import Publications

        host.part(Publications).leave(proc)
        if any(job.job.parent == proc for job in host.jobs.values()):
            from pypmix.host.spawning import Orphanage

            host.part(Orphanage).bereave(proc)


def _admit(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, ToolConnected)
    found = None if op.proc is None else host.find(op.proc)
    if found is not None:
        # libpmix does not tell that a tool has finalized, and one that is a rank would seem to have failed.
        if host.server.engine.name == "python":
            found[1].stage = CONNECTED
    elif op.proc is not None:
        host.part(Admitted).add(op.proc)
    upcall.reply()


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {ToolConnected: _admit}
