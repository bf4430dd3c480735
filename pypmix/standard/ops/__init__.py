"""Every operation of PMIx as data: what a client can ask, and what a server asks of its host.

An engine's session takes these objects (`Session.submit`, `Session.run`), a host is handed them (`Upcall`); what both
a client asks and a host answers is one class. They are checked when they are made, so that a mistake is an error at
the call and no engine sees it. What a rank does not use is not imported: only `core` is needed by all.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.ops.connecting import Connect as Connect
    from pypmix.standard.ops.connecting import Connected as Connected
    from pypmix.standard.ops.connecting import Disconnect as Disconnect
    from pypmix.standard.ops.control import AllocationRequest as AllocationRequest
    from pypmix.standard.ops.control import Credential as Credential
    from pypmix.standard.ops.control import GetCredential as GetCredential
    from pypmix.standard.ops.control import Heartbeat as Heartbeat
    from pypmix.standard.ops.control import JobControl as JobControl
    from pypmix.standard.ops.control import Log as Log
    from pypmix.standard.ops.control import ProcessMonitor as ProcessMonitor
    from pypmix.standard.ops.control import ValidateCredential as ValidateCredential
    from pypmix.standard.ops.core import DEL_INTERNAL as DEL_INTERNAL
    from pypmix.standard.ops.core import DEL_LOCAL as DEL_LOCAL
    from pypmix.standard.ops.core import DEL_REMOTE as DEL_REMOTE
    from pypmix.standard.ops.core import DELETES as DELETES
    from pypmix.standard.ops.core import RESERVED_PREFIX as RESERVED_PREFIX
    from pypmix.standard.ops.core import SCOPE_GLOBAL as SCOPE_GLOBAL
    from pypmix.standard.ops.core import SCOPE_INTERNAL as SCOPE_INTERNAL
    from pypmix.standard.ops.core import SCOPE_LOCAL as SCOPE_LOCAL
    from pypmix.standard.ops.core import SCOPE_REMOTE as SCOPE_REMOTE
    from pypmix.standard.ops.core import Abort as Abort
    from pypmix.standard.ops.core import ClientAborted as ClientAborted
    from pypmix.standard.ops.core import ClientConnected as ClientConnected
    from pypmix.standard.ops.core import ClientFinalized as ClientFinalized
    from pypmix.standard.ops.core import ClientLost as ClientLost
    from pypmix.standard.ops.core import Commit as Commit
    from pypmix.standard.ops.core import Fence as Fence
    from pypmix.standard.ops.core import Finalize as Finalize
    from pypmix.standard.ops.core import Get as Get
    from pypmix.standard.ops.core import Op as Op
    from pypmix.standard.ops.core import Put as Put
    from pypmix.standard.ops.events import DeregisterEventHandler as DeregisterEventHandler
    from pypmix.standard.ops.events import DeregisterEvents as DeregisterEvents
    from pypmix.standard.ops.events import Notification as Notification
    from pypmix.standard.ops.events import NotifyEvent as NotifyEvent
    from pypmix.standard.ops.events import RegisterEventHandler as RegisterEventHandler
    from pypmix.standard.ops.events import RegisterEvents as RegisterEvents
    from pypmix.standard.ops.fabric import ComputeDistances as ComputeDistances
    from pypmix.standard.ops.fabric import FabricRegister as FabricRegister
    from pypmix.standard.ops.fabric import FabricUpdate as FabricUpdate
    from pypmix.standard.ops.forwarding import IOFDeregister as IOFDeregister
    from pypmix.standard.ops.forwarding import IOFPull as IOFPull
    from pypmix.standard.ops.forwarding import IOFPush as IOFPush
    from pypmix.standard.ops.forwarding import Output as Output
    from pypmix.standard.ops.groups import GroupAnswer as GroupAnswer
    from pypmix.standard.ops.groups import GroupChange as GroupChange
    from pypmix.standard.ops.groups import GroupConstruct as GroupConstruct
    from pypmix.standard.ops.groups import GroupDestruct as GroupDestruct
    from pypmix.standard.ops.groups import GroupInvite as GroupInvite
    from pypmix.standard.ops.groups import GroupInviteControl as GroupInviteControl
    from pypmix.standard.ops.groups import GroupJoin as GroupJoin
    from pypmix.standard.ops.groups import GroupLeave as GroupLeave
    from pypmix.standard.ops.groups import GroupRequest as GroupRequest
    from pypmix.standard.ops.groups import GroupResults as GroupResults
    from pypmix.standard.ops.groups import GroupState as GroupState
    from pypmix.standard.ops.groups import GroupUnwatch as GroupUnwatch
    from pypmix.standard.ops.groups import GroupWatch as GroupWatch
    from pypmix.standard.ops.hosting import DirectModex as DirectModex
    from pypmix.standard.ops.hosting import FenceUpcall as FenceUpcall
    from pypmix.standard.ops.hosting import GroupUpcall as GroupUpcall
    from pypmix.standard.ops.hosting import ResourceBlock as ResourceBlock
    from pypmix.standard.ops.hosting import SessionControl as SessionControl
    from pypmix.standard.ops.publishing import PERSIST_APP as PERSIST_APP
    from pypmix.standard.ops.publishing import PERSIST_FIRST_READ as PERSIST_FIRST_READ
    from pypmix.standard.ops.publishing import PERSIST_PROC as PERSIST_PROC
    from pypmix.standard.ops.publishing import RANGE_CUSTOM as RANGE_CUSTOM
    from pypmix.standard.ops.publishing import RANGE_SESSION as RANGE_SESSION
    from pypmix.standard.ops.publishing import Lookup as Lookup
    from pypmix.standard.ops.publishing import Publish as Publish
    from pypmix.standard.ops.publishing import Unpublish as Unpublish
    from pypmix.standard.ops.queries import QueryInfo as QueryInfo
    from pypmix.standard.ops.queries import ResolveNodes as ResolveNodes
    from pypmix.standard.ops.queries import ResolvePeers as ResolvePeers
    from pypmix.standard.ops.spawning import Spawn as Spawn
    from pypmix.standard.ops.tools import ToolAttachToServer as ToolAttachToServer
    from pypmix.standard.ops.tools import ToolConnected as ToolConnected
    from pypmix.standard.ops.tools import ToolDisconnect as ToolDisconnect
    from pypmix.standard.ops.tools import ToolGetServers as ToolGetServers
    from pypmix.standard.ops.tools import ToolSetServer as ToolSetServer

_HOME = {
    ".connecting": "Connect Connected Disconnect",
    ".control": (
        "AllocationRequest Credential GetCredential Heartbeat JobControl Log ProcessMonitor ValidateCredential"
    ),
    ".core": (
        "DEL_INTERNAL DEL_LOCAL DEL_REMOTE DELETES "
        "RESERVED_PREFIX SCOPE_GLOBAL SCOPE_INTERNAL SCOPE_LOCAL SCOPE_REMOTE Abort ClientAborted ClientConnected "
        "ClientFinalized ClientLost Commit Fence Finalize Get Op Put"
    ),
    ".events": ("DeregisterEventHandler DeregisterEvents Notification NotifyEvent RegisterEventHandler RegisterEvents"),
    ".fabric": "ComputeDistances FabricRegister FabricUpdate",
    ".forwarding": "IOFDeregister IOFPull IOFPush Output",
    ".groups": (
        "GroupAnswer GroupChange GroupConstruct GroupDestruct GroupInvite GroupInviteControl GroupJoin GroupLeave "
        "GroupRequest GroupResults GroupState GroupUnwatch GroupWatch"
    ),
    ".hosting": "DirectModex FenceUpcall GroupUpcall ResourceBlock SessionControl",
    ".publishing": ("PERSIST_APP PERSIST_FIRST_READ PERSIST_PROC RANGE_CUSTOM RANGE_SESSION Lookup Publish Unpublish"),
    ".queries": "QueryInfo ResolveNodes ResolvePeers",
    ".spawning": "Spawn",
    ".tools": "ToolAttachToServer ToolConnected ToolDisconnect ToolGetServers ToolSetServer",
}
if not TYPE_CHECKING:
    # A type checker is to know the names above and no others.
    __getattr__, __dir__, _lazy = _names(__name__, _HOME)
    __all__ = [*_lazy]  # noqa: PLE0604
