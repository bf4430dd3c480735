"""Hosts: the resource manager's side of PMIx, either a user's host or the embedded one behind `pypmix run`.

Neither imports the modules that only the other needs.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

_HOME = {
    ".callbacks.host": "Host",
    ".callbacks.processes": "BlockingProcesses Processes",
    ".callbacks.base": "LATER Request",
    ".callbacks.requests": "requests",
    ".job": "Application JobLayout NodeLayout",
    ".local": "LocalHost",
    ".outcome": "Outcome",
    ".sessions": "Session",
}
__getattr__, __dir__ = _names(__name__, _HOME)
