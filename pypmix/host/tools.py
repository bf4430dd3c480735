"""Tools at a host: they are let in, and what they have published goes with them."""

from __future__ import annotations

import os

from pypmix.host.rank import CONNECTED
from pypmix.standard.ops import ToolConnected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pypmix.engine.base import Upcall
    from pypmix.host.local import LocalHost
    from pypmix.standard.types import Proc

FILES = ("PMIX_LAUNCHER_RNDZ_FILE", "PMIX_LAUNCHER_RENDEZVOUS_FILE")
"""What names the file that a launcher is to write for the tool that has started it."""


def rendezvous_file(env: Mapping[str, str]) -> str | None:
    """Return the rendezvous file that the environment asks for; a file that is there is not meant to be written."""
    return next((env[name] for name in FILES if env.get(name) and not os.path.lexists(env[name])), None)


def gone(host: LocalHost, proc: Proc) -> None:
    """A proc has finalized or lost its connection; if it was a tool, that is its end."""
    for function in host.at_departure:
        function(proc)
    if host.find(proc) is None and not host.has_run(proc.nspace):
        from pypmix.host.publishing import Publications

        host.part(Publications).leave(proc)
        if any(job.job.parent == proc for job in host.jobs.values()):
            from pypmix.host.spawning import Orphanage

            host.part(Orphanage).bereave(proc)


def _admit(host: LocalHost, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, ToolConnected)
    found = None if op.proc is None else host.find(op.proc)
    if found is not None:
        found[1].stage = CONNECTED
    upcall.reply()


ANSWERS: dict[type, Callable[[LocalHost, Upcall], None]] = {ToolConnected: _admit}
