"""Where the requests of clients and tools are answered: by operation, by a function.

A module that answers some has a table `ANSWERS` of operations and functions, which get the manager and the upcall. It
is imported when the first of them is asked, on the thread of the host's loop, where all answers are made: they must not
block. What a function raises is the answer; what it does not answer at once it answers later. A module keeps its state
in an object that `Manager.part` makes.
"""

from __future__ import annotations

from pypmix.lazy import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager

    Answer = Callable[[Manager, Upcall], None]

MODULES = {
    "connecting": "Connect Disconnect DirectModex FenceUpcall",
    "control": "JobControl FabricRegister FabricUpdate ClientAborted",
    "credentials": "GetCredential ValidateCredential",
    "elastic": "AllocationRequest",
    "forwarding": "IOFPull IOFDeregister IOFPush",
    "groups": "GroupUpcall",
    "logs": "Log",
    "monitors": "ProcessMonitor Heartbeat",
    "notices": "NotifyEvent RegisterEvents DeregisterEvents",
    "publishing": "Publish Lookup Unpublish",
    "queries": "QueryInfo",
    "spawning": "Spawn",
    "tools": "ToolConnected",
}
"""The modules beside this one, and the operations that they answer."""

_HOME = {name: module for module, names in MODULES.items() for name in names.split()}

found: dict[type, Answer] = {}
"""The functions for the operations that have been asked for."""


def module_of(kind: type) -> str | None:
    """Return the name of the module that answers an operation, None where there is none."""
    return _HOME.get(kind.__name__)


def find(kind: type) -> Answer | None:
    """Return what answers an operation, None where nothing does."""
    answer = found.get(kind)
    module = _HOME.get(kind.__name__) if answer is None else None
    if module is not None:
        table: dict[type, Answer] = load(f"pypmix.host.{module}", "ANSWERS")
        found.update(table)
        answer = found.get(kind)
    return answer
