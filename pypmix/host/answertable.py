"""The table of answers to the requests of clients and tools: a function for each operation.

A module that answers some has a table `ANSWERS` of operations and functions, which get the manager and the upcall. It
is imported at the first request, on the thread of the host's loop, where all answers are made: they must not block. An
exception that a function raises is the answer; a function may also answer later. A module keeps its state in an object
that `Manager.part` makes.
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
    "distances": "ComputeDistances",
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
"""The modules in this package, and the operations that they answer."""

_HOME = {name: module for module, names in MODULES.items() for name in names.split()}

functions: dict[type, Answer] = {}
"""The functions of the modules imported so far, by operation."""


def module_of(kind: type) -> str | None:
    """Return the name of the module that answers an operation, None for an unknown operation."""
    return _HOME.get(kind.__name__)


def find(kind: type) -> Answer | None:
    """Return the function that answers an operation, None for an unknown operation."""
    answer = functions.get(kind)
    module = _HOME.get(kind.__name__) if answer is None else None
    if module is not None:
        table: dict[type, Answer] = load(f"pypmix.host.{module}", "ANSWERS")
        functions.update(table)
        answer = functions.get(kind)
    return answer
