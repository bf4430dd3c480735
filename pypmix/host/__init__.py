"""Hosts: the resource manager's side of PMIx, of one's own or the embedded one behind `pypmix run`.

What one of them needs is not imported for the other.
"""

from __future__ import annotations

from pypmix.lazy import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.host.callbacks import requests as requests
    from pypmix.host.callbacks.host import Host as Host
    from pypmix.host.callbacks.processes import BlockingProcesses as BlockingProcesses
    from pypmix.host.callbacks.processes import Processes as Processes
    from pypmix.host.callbacks.requests import LATER as LATER
    from pypmix.host.callbacks.requests import ProcSet as ProcSet
    from pypmix.host.callbacks.requests import Request as Request
    from pypmix.host.job import Application as Application
    from pypmix.host.job import Job as Job
    from pypmix.host.job import Node as Node
    from pypmix.host.local import LocalHost as LocalHost
    from pypmix.host.outcome import Outcome as Outcome

if not TYPE_CHECKING:
    __getattr__, __dir__, _lazy = names(
        __name__,
        {
            ".callbacks.host": "Host",
            ".callbacks.processes": "BlockingProcesses Processes",
            ".callbacks.requests": "LATER ProcSet Request requests",
            ".job": "Application Job Node",
            ".local": "LocalHost",
            ".outcome": "Outcome",
        },
    )
    __all__ = [*_lazy]  # noqa: PLE0604
