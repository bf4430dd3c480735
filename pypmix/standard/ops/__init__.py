"""Every operation of PMIx as data: the requests of clients, and of servers to their hosts.

They are passed to an engine's session (`Session.submit`, `Session.run`), and to a host (`Upcall`); a request of clients
that hosts answer is one class. They are checked when they are made, so that a mistake raises an error at the call and
never reaches an engine. A rank imports only the modules that it uses: all ranks need only `core`.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

_HOME = {
    ".connecting": "Connect Connected Disconnect",
    ".control": (
        "AllocationRequest Credential GetCredential Heartbeat JobControl Log ProcessMonitor ValidateCredential"
    ),
    ".core": (
        "DEL_INTERNAL DEL_LOCAL DEL_REMOTE DELETES FENCE_PARTICIPANTS "
        "RESERVED_PREFIX SCOPE_GLOBAL SCOPE_INTERNAL SCOPE_LOCAL SCOPE_REMOTE WITHDRAWAL WITHDRAWAL_KIND "
        "WITHDRAWAL_PROCS Abort Commit Fence Finalize Get Op Put"
    ),
    ".events": ("DeregisterEventHandler DeregisterEvents Notification NotifyEvent RegisterEventHandler RegisterEvents"),
    ".fabric": "ComputeDistances FabricRegister FabricUpdate",
    ".forwarding": "IOFDeregister IOFPull IOFPush Output",
    ".groups": (
        "GroupAdmit GroupAnswer GroupChange GroupConstruct GroupDestruct GroupEnter GroupInvite "
        "GroupInviteControl GroupJoin GroupLeave GroupResults GroupState GroupUnwatch GroupWatch"
    ),
    ".hosting": (
        "ClientAborted ClientConnected ClientFinalized ClientLost DirectModex FenceUpcall GroupUpcall ResourceBlock "
        "SessionControl"
    ),
    ".publishing": ("PERSIST_APP PERSIST_FIRST_READ PERSIST_PROC RANGE_CUSTOM RANGE_SESSION Lookup Publish Unpublish"),
    ".queries": "QueryInfo ResolveNodes ResolvePeers",
    ".spawning": "Spawn",
    ".tools": "ToolAttachToServer ToolConnected ToolDisconnect ToolGetServers ToolSetServer",
}
__getattr__, __dir__ = _names(__name__, _HOME)
