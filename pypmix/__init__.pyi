# Made from pypmix/__init__.py by native/blocking.py: change it there.
from pypmix import aio as aio
from pypmix import events as events
from pypmix import groups as groups
from pypmix import host as host
from pypmix import types as types
from pypmix._version import __version__ as __version__
from pypmix.answers import Answers as Answers  # deprecated
from pypmix.answers import Credential as Credential  # deprecated
from pypmix.answers import Fabric as Fabric  # deprecated
from pypmix.answers import Published as Published  # deprecated
from pypmix.apps import app as app
from pypmix.client import Client as Client
from pypmix.clusters import cluster_nspace as cluster_nspace
from pypmix.clusters import split_nspace as split_nspace
from pypmix.connection import ConnectEvent as ConnectEvent
from pypmix.data import DataBuffer as DataBuffer  # deprecated
from pypmix.events import Answer as Answer  # deprecated
from pypmix.events import Event as Event
from pypmix.group import Change as Change  # deprecated
from pypmix.group import Destructed as Destructed  # deprecated
from pypmix.group import GroupEvent as GroupEvent  # deprecated
from pypmix.group import Joined as Joined  # deprecated
from pypmix.group import LeaderFailed as LeaderFailed  # deprecated
from pypmix.group import LeaderSelected as LeaderSelected  # deprecated
from pypmix.group import Left as Left  # deprecated
from pypmix.group import MemberFailed as MemberFailed  # deprecated
from pypmix.handlers import Handler as Handler
from pypmix.invitation import Accepted as Accepted  # deprecated
from pypmix.invitation import Declined as Declined  # deprecated
from pypmix.invitation import Failed as Failed  # deprecated
from pypmix.invitation import InviteAnswer as InviteAnswer  # deprecated
from pypmix.job import Job as Job
from pypmix.job import Node as Node
from pypmix.operations.connecting import Connection as Connection
from pypmix.operations.events import EventStream as EventStream
from pypmix.operations.forwarding import InputWriter as InputWriter
from pypmix.operations.forwarding import OutputStream as OutputStream
from pypmix.operations.groups import Changes as Changes  # deprecated
from pypmix.operations.groups import Group as Group
from pypmix.operations.invitations import Invitation as Invitation  # deprecated
from pypmix.operations.invitations import InvitationStream as InvitationStream  # deprecated
from pypmix.operations.invitations import Invite as Invite  # deprecated
from pypmix.operations.psets import PsetStream as PsetStream  # deprecated
from pypmix.operations.spawning import SpawnedJob as SpawnedJob
from pypmix.psets import ProcSet as ProcSet
from pypmix.psets import ProcSets as ProcSets  # deprecated
from pypmix.psets import PsetChange as PsetChange  # deprecated
from pypmix.server import Server as Server
from pypmix.standard import attrs as attrs
from pypmix.standard.attr import Attr as Attr  # deprecated
from pypmix.standard.enums import AllocDirective as AllocDirective
from pypmix.standard.enums import AllocInheritance as AllocInheritance  # deprecated
from pypmix.standard.enums import BindEnvelope as BindEnvelope  # deprecated
from pypmix.standard.enums import CoordView as CoordView  # deprecated
from pypmix.standard.enums import DataType as DataType  # deprecated
from pypmix.standard.enums import DeviceType as DeviceType  # deprecated
from pypmix.standard.enums import EventCode as EventCode
from pypmix.standard.enums import GroupOperation as GroupOperation  # deprecated
from pypmix.standard.enums import GroupOpt as GroupOpt  # deprecated
from pypmix.standard.enums import InfoFlags as InfoFlags  # deprecated
from pypmix.standard.enums import IOFChannel as IOFChannel
from pypmix.standard.enums import JobState as JobState  # deprecated
from pypmix.standard.enums import LinkState as LinkState  # deprecated
from pypmix.standard.enums import Locality as Locality  # deprecated
from pypmix.standard.enums import Persist as Persist
from pypmix.standard.enums import ProcState as ProcState  # deprecated
from pypmix.standard.enums import Range as Range
from pypmix.standard.enums import Rank as Rank
from pypmix.standard.enums import ResBlockDirective as ResBlockDirective  # deprecated
from pypmix.standard.enums import Scope as Scope
from pypmix.standard.enums import Status as Status
from pypmix.standard.enums import StorageAccess as StorageAccess  # deprecated
from pypmix.standard.enums import StorageAccessType as StorageAccessType  # deprecated
from pypmix.standard.enums import StorageMedium as StorageMedium  # deprecated
from pypmix.standard.enums import StoragePersistence as StoragePersistence  # deprecated
from pypmix.standard.errors import ConstructAborted as ConstructAborted
from pypmix.standard.errors import EngineUnavailable as EngineUnavailable
from pypmix.standard.errors import LocalProtocolError as LocalProtocolError
from pypmix.standard.errors import LostConnection as LostConnection
from pypmix.standard.errors import NotFound as NotFound
from pypmix.standard.errors import NotInitialized as NotInitialized
from pypmix.standard.errors import NotSupported as NotSupported
from pypmix.standard.errors import OperationTimeout as OperationTimeout
from pypmix.standard.errors import OutOfResources as OutOfResources
from pypmix.standard.errors import PartialSuccess as PartialSuccess
from pypmix.standard.errors import PermissionDenied as PermissionDenied
from pypmix.standard.errors import PMIxError as PMIxError
from pypmix.standard.errors import ProtocolError as ProtocolError
from pypmix.standard.errors import RemoteProtocolError as RemoteProtocolError
from pypmix.standard.errors import ResourceBusy as ResourceBusy
from pypmix.standard.errors import Unreachable as Unreachable
from pypmix.standard.errors import WouldDeadlock as WouldDeadlock
from pypmix.standard.limits import Limits as Limits
from pypmix.standard.ops.forwarding import Output as Output
from pypmix.standard.ops.groups import GroupResults as GroupResults  # deprecated
from pypmix.standard.structures import Coord as Coord  # deprecated
from pypmix.standard.structures import Cpuset as Cpuset  # deprecated
from pypmix.standard.structures import Device as Device  # deprecated
from pypmix.standard.structures import Endpoint as Endpoint  # deprecated
from pypmix.standard.structures import Geometry as Geometry  # deprecated
from pypmix.standard.structures import NodePid as NodePid  # deprecated
from pypmix.standard.structures import ResourceUnit as ResourceUnit  # deprecated
from pypmix.standard.structures import Timeval as Timeval  # deprecated
from pypmix.standard.structures import Topology as Topology  # deprecated
from pypmix.standard.types import App as App  # deprecated
from pypmix.standard.types import DataArray as DataArray  # deprecated
from pypmix.standard.types import DeviceDistance as DeviceDistance  # deprecated
from pypmix.standard.types import Envar as Envar  # deprecated
from pypmix.standard.types import Info as Info
from pypmix.standard.types import Pdata as Pdata  # deprecated
from pypmix.standard.types import Proc as Proc
from pypmix.standard.types import ProcInfo as ProcInfo  # deprecated
from pypmix.standard.types import Query as Query
from pypmix.standard.types import RegAttr as RegAttr  # deprecated
from pypmix.standard.types import Value as Value
from pypmix.standard.values import array as array  # deprecated
from pypmix.standard.values import byte as byte  # deprecated
from pypmix.standard.values import cint as cint  # deprecated
from pypmix.standard.values import cuint as cuint  # deprecated
from pypmix.standard.values import double as double  # deprecated
from pypmix.standard.values import float32 as float32  # deprecated
from pypmix.standard.values import info as info  # deprecated
from pypmix.standard.values import int8 as int8  # deprecated
from pypmix.standard.values import int16 as int16  # deprecated
from pypmix.standard.values import int32 as int32  # deprecated
from pypmix.standard.values import int64 as int64  # deprecated
from pypmix.standard.values import pid as pid  # deprecated
from pypmix.standard.values import size as size  # deprecated
from pypmix.standard.values import timestamp as timestamp  # deprecated
from pypmix.standard.values import typed as typed  # deprecated
from pypmix.standard.values import uint8 as uint8  # deprecated
from pypmix.standard.values import uint16 as uint16  # deprecated
from pypmix.standard.values import uint32 as uint32  # deprecated
from pypmix.standard.values import uint64 as uint64  # deprecated
from pypmix.tool import Tool as Tool
