"""Hosts: the resource manager's side of PMIx, of one's own or the embedded one behind `pypmix run`.

What one of them needs is not imported for the other.
"""

from __future__ import annotations

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

_HOME = {
    "callbacks.host": "Host",
    "callbacks.processes": "BlockingProcesses Processes",
    "callbacks.requests": "LATER ProcSet Request",
    "job": "Application Job Node",
    "local": "LocalHost",
    "outcome": "Outcome",
}
_NAMES = {name: f"pypmix.host.{module}" for module, names in _HOME.items() for name in names.split()}
_NAMES["requests"] = "pypmix.host.callbacks.requests"

__all__ = [*_NAMES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'pypmix.host' has no attribute {name!r}")
    from sys import modules

    __import__(module)
    found = modules[module]
    value: object = found if module.endswith("." + name) else getattr(found, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
