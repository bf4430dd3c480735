"""Pythonic PMIx: how the processes of a job find each other, exchange data, and learn of failures.

Everything here is imported when it is first used, so that `import pypmix` costs a rank next to nothing.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

_HOME = {
    "pypmix._version": "__version__",
    "pypmix.aio": "aio",
    "pypmix.answers": "Answers Credential Fabric",
    "pypmix.client": "Client",
    "pypmix.clusters": "cluster_nspace split_nspace",
    "pypmix.connection": "ConnectEvent",
    "pypmix.data": "DataBuffer",
    "pypmix.job": "Job Node",
    "pypmix.events": "Answer Event",
    "pypmix.operations.connecting": "Connection",
    "pypmix.operations.events": "EventStream",
    "pypmix.handlers": "Handler",
    "pypmix.operations.forwarding": "InputWriter OutputStream",
    "pypmix.group": "Change Destructed GroupEvent Joined LeaderFailed LeaderSelected Left MemberFailed",
    "pypmix.invitation": "Accepted Declined Failed InviteAnswer",
    "pypmix.operations.groups": "Changes Group",
    "pypmix.operations.invitations": "Invitation InvitationStream Invite",
    "pypmix.operations.psets": "PsetStream",
    "pypmix.operations.spawning": "SpawnedJob",
    "pypmix.psets": "ProcSet ProcSets PsetChange",
    "pypmix.published": "Published PublishedData",
    "pypmix.requests.spawning": "app",
    "pypmix.server": "Server",
    "pypmix.standard.attr": "Attr",
    "pypmix.standard.attrs": "attrs",
    "pypmix.standard.enums": (
        "AllocDirective AllocInheritance BindEnvelope CoordView DataType DeviceType EventCode GroupOperation "
        "GroupOpt InfoFlags IOFChannel JobState LinkState Locality Persist ProcState Range Rank ResBlockDirective "
        "Scope Status StorageAccess StorageAccessType StorageMedium StoragePersistence"
    ),
    "pypmix.standard.errors": (
        "ConstructAborted EngineUnavailable LocalProtocolError LostConnection NotFound NotInitialized NotSupported "
        "OperationTimeout OutOfResources PartialSuccess PermissionDenied PMIxError ProtocolError RemoteProtocolError "
        "ResourceBusy Unreachable WouldDeadlock"
    ),
    "pypmix.standard.limits": "Limits",
    "pypmix.standard.ops.forwarding": "Output",
    "pypmix.standard.ops.groups": "GroupResults",
    "pypmix.standard.types": (
        "App Coord Cpuset DataArray Device DeviceDistance Endpoint Envar Geometry Info NodePid Pdata Proc ProcInfo "
        "Query RegAttr ResourceUnit Timeval Topology Value"
    ),
    "pypmix.standard.values": (
        "array byte cint cuint double float32 info int8 int16 int32 int64 pid size timestamp typed uint8 uint16 uint32 "
        "uint64"
    ),
    "pypmix.tool": "Tool",
}
__getattr__, __dir__ = _names(__name__, _HOME)
