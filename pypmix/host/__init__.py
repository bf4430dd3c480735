"""Hosts: the resource manager's side of PMIx, and the embedded one behind `pypmix run`."""

from __future__ import annotations

from pypmix.host.job import Application, Job, Node
from pypmix.host.local import LocalHost
from pypmix.host.outcome import Outcome

__all__ = ["Application", "Job", "LocalHost", "Node", "Outcome"]
