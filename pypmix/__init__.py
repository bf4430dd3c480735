"""Pythonic PMIx: how the processes of a job find each other, exchange data, and hear of failures.

Everything here is imported when it is first used, so that `import pypmix` costs a rank next to nothing.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix import aio as aio
    from pypmix._version import __version__ as __version__
    from pypmix.answers import Answers as Answers
    from pypmix.answers import Credential as Credential
    from pypmix.answers import Fabric as Fabric
    from pypmix.client import Client as Client
    from pypmix.clusters import cluster_nspace as cluster_nspace
    from pypmix.clusters import split_nspace as split_nspace
    from pypmix.connection import ConnectEvent as ConnectEvent
    from pypmix.data import DataBuffer as DataBuffer
    from pypmix.events import Answer as Answer
    from pypmix.events import Event as Event
    from pypmix.group import Change as Change
    from pypmix.group import Destructed as Destructed
    from pypmix.group import GroupEvent as GroupEvent
    from pypmix.group import Joined as Joined
    from pypmix.group import LeaderFailed as LeaderFailed
    from pypmix.group import LeaderSelected as LeaderSelected
    from pypmix.group import Left as Left
    from pypmix.group import MemberFailed as MemberFailed
    from pypmix.handlers import Handler as Handler
    from pypmix.invitation import Accepted as Accepted
    from pypmix.invitation import Declined as Declined
    from pypmix.invitation import Failed as Failed
    from pypmix.invitation import InviteAnswer as InviteAnswer
    from pypmix.job import Job as Job
    from pypmix.job import Node as Node
    from pypmix.operations.connecting import Connection as Connection
    from pypmix.operations.events import EventStream as EventStream
    from pypmix.operations.forwarding import InputWriter as InputWriter
    from pypmix.operations.forwarding import OutputStream as OutputStream
    from pypmix.operations.groups import Changes as Changes
    from pypmix.operations.groups import Group as Group
    from pypmix.operations.invitations import Invitation as Invitation
    from pypmix.operations.invitations import InvitationStream as InvitationStream
    from pypmix.operations.invitations import Invite as Invite
    from pypmix.operations.psets import PsetStream as PsetStream
    from pypmix.operations.spawning import SpawnedJob as SpawnedJob
    from pypmix.psets import ProcSet as ProcSet
    from pypmix.psets import ProcSets as ProcSets
    from pypmix.psets import PsetChange as PsetChange
    from pypmix.published import Published as Published
    from pypmix.published import PublishedData as PublishedData
    from pypmix.requests.spawning import app as app
    from pypmix.server import Server as Server
    from pypmix.standard import attrs as attrs
    from pypmix.standard.attr import Attr as Attr
    from pypmix.standard.enums import AllocDirective as AllocDirective
    from pypmix.standard.enums import AllocInheritance as AllocInheritance
    from pypmix.standard.enums import BindEnvelope as BindEnvelope
    from pypmix.standard.enums import CoordView as CoordView
    from pypmix.standard.enums import DataType as DataType
    from pypmix.standard.enums import DeviceType as DeviceType
    from pypmix.standard.enums import EventCode as EventCode
    from pypmix.standard.enums import GroupOperation as GroupOperation
    from pypmix.standard.enums import GroupOpt as GroupOpt
    from pypmix.standard.enums import InfoFlags as InfoFlags
    from pypmix.standard.enums import IOFChannel as IOFChannel
    from pypmix.standard.enums import JobState as JobState
    from pypmix.standard.enums import LinkState as LinkState
    from pypmix.standard.enums import Locality as Locality
    from pypmix.standard.enums import Persist as Persist
    from pypmix.standard.enums import ProcState as ProcState
    from pypmix.standard.enums import Range as Range
    from pypmix.standard.enums import Rank as Rank
    from pypmix.standard.enums import ResBlockDirective as ResBlockDirective
    from pypmix.standard.enums import Scope as Scope
    from pypmix.standard.enums import Status as Status
    from pypmix.standard.enums import StorageAccess as StorageAccess
    from pypmix.standard.enums import StorageAccessType as StorageAccessType
    from pypmix.standard.enums import StorageMedium as StorageMedium
    from pypmix.standard.enums import StoragePersistence as StoragePersistence
    from pypmix.standard.errors import ConstructAborted as ConstructAborted
    from pypmix.standard.errors import EngineUnavailable as EngineUnavailable
    from pypmix.standard.errors import LocalProtocolError as LocalProtocolError
    from pypmix.standard.errors import LostConnection as LostConnection
    from pypmix.standard.errors import NotFound as NotFound
    from pypmix.standard.errors import NotInitialized as NotInitialized
    from pypmix.standard.errors import NotSupported as NotSupported
    from pypmix.standard.errors import OperationTimeout as OperationTimeout
    from pypmix.standard.errors import PartialSuccess as PartialSuccess
    from pypmix.standard.errors import PermissionDenied as PermissionDenied
    from pypmix.standard.errors import PMIxError as PMIxError
    from pypmix.standard.errors import ProtocolError as ProtocolError
    from pypmix.standard.errors import RemoteProtocolError as RemoteProtocolError
    from pypmix.standard.errors import Unreachable as Unreachable
    from pypmix.standard.errors import WouldDeadlock as WouldDeadlock
    from pypmix.standard.limits import Limits as Limits
    from pypmix.standard.ops.forwarding import Output as Output
    from pypmix.standard.ops.groups import GroupResults as GroupResults
    from pypmix.standard.types import App as App
    from pypmix.standard.types import Coord as Coord
    from pypmix.standard.types import Cpuset as Cpuset
    from pypmix.standard.types import DataArray as DataArray
    from pypmix.standard.types import Device as Device
    from pypmix.standard.types import DeviceDistance as DeviceDistance
    from pypmix.standard.types import Endpoint as Endpoint
    from pypmix.standard.types import Envar as Envar
    from pypmix.standard.types import Geometry as Geometry
    from pypmix.standard.types import Info as Info
    from pypmix.standard.types import NodePid as NodePid
    from pypmix.standard.types import Pdata as Pdata
    from pypmix.standard.types import Proc as Proc
    from pypmix.standard.types import ProcInfo as ProcInfo
    from pypmix.standard.types import Query as Query
    from pypmix.standard.types import RegAttr as RegAttr
    from pypmix.standard.types import ResourceUnit as ResourceUnit
    from pypmix.standard.types import Timeval as Timeval
    from pypmix.standard.types import Topology as Topology
    from pypmix.standard.types import Value as Value
    from pypmix.standard.values import array as array
    from pypmix.standard.values import byte as byte
    from pypmix.standard.values import cint as cint
    from pypmix.standard.values import cuint as cuint
    from pypmix.standard.values import double as double
    from pypmix.standard.values import float32 as float32
    from pypmix.standard.values import info as info
    from pypmix.standard.values import int8 as int8
    from pypmix.standard.values import int16 as int16
    from pypmix.standard.values import int32 as int32
    from pypmix.standard.values import int64 as int64
    from pypmix.standard.values import pid as pid
    from pypmix.standard.values import size as size
    from pypmix.standard.values import timestamp as timestamp
    from pypmix.standard.values import typed as typed
    from pypmix.standard.values import uint8 as uint8
    from pypmix.standard.values import uint16 as uint16
    from pypmix.standard.values import uint32 as uint32
    from pypmix.standard.values import uint64 as uint64
    from pypmix.tool import Tool as Tool

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
        "OperationTimeout PartialSuccess PermissionDenied PMIxError ProtocolError RemoteProtocolError Unreachable "
        "WouldDeadlock"
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
if not TYPE_CHECKING:
    # A type checker is to know the names above and no others.
    __getattr__, __dir__, _lazy = _names(__name__, _HOME)
    __all__ = [*_lazy]  # noqa: PLE0604
