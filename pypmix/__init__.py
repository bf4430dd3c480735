"""Pythonic PMIx: how the processes of a job find each other, exchange data, and learn of failures.

Everything here is imported when it is first used, so that `import pypmix` costs a rank next to nothing. Names that few
programs need are in `pypmix.types`, `pypmix.groups` and `pypmix.events`.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

_HOME = {
    "pypmix._version": "__version__",
    "pypmix.aio": "aio",
    "pypmix.apps": "app",
    "pypmix.client": "Client",
    "pypmix.clusters": "cluster_nspace split_nspace",
    "pypmix.connection": "ConnectEvent",
    "pypmix.events": "Event events",
    "pypmix.groups": "groups",
    "pypmix.handlers": "Handler",
    "pypmix.host": "host",
    "pypmix.job": "Job Node",
    "pypmix.operations.connecting": "Connection",
    "pypmix.operations.events": "EventStream",
    "pypmix.operations.forwarding": "InputWriter OutputStream",
    "pypmix.operations.groups": "Group",
    "pypmix.operations.spawning": "SpawnedJob",
    "pypmix.psets": "ProcSet",
    "pypmix.server": "Server",
    "pypmix.standard.attrs": "attrs",
    "pypmix.standard.enums": "AllocDirective EventCode IOFChannel Persist Range Rank Scope Status",
    "pypmix.standard.errors": (
        "ConstructAborted EngineUnavailable LocalProtocolError LostConnection NotFound NotInitialized NotSupported "
        "OperationTimeout OutOfResources PartialSuccess PermissionDenied PMIxError ProtocolError RemoteProtocolError "
        "ResourceBusy Unreachable WouldDeadlock"
    ),
    "pypmix.standard.limits": "Limits",
    "pypmix.standard.ops.forwarding": "Output",
    "pypmix.standard.types": "Info Proc Query Value",
    "pypmix.tool": "Tool",
    "pypmix.types": "types",
}
__getattr__, __dir__ = _names(__name__, _HOME)
