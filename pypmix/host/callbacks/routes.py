"""The method of a host for each upcall, and the class of its request."""

from __future__ import annotations

from pypmix.host.callbacks import requests
from pypmix.host.callbacks.requests import Request
from pypmix.standard import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ROUTES: dict[type[ops.Op[Any]], tuple[str, type[Request[Any]]]] = {
    ops.ClientConnected: ("client_connected", requests.ClientRequest),
    ops.ClientFinalized: ("client_finalized", requests.ClientRequest),
    ops.ClientAborted: ("client_aborted", requests.AbortRequest),
    ops.ClientLost: ("client_lost", requests.ClientRequest),
    ops.FenceUpcall: ("fence", requests.FenceRequest),
    ops.DirectModex: ("direct_modex", requests.DirectModexRequest),
    ops.Publish: ("publish", requests.PublishRequest),
    ops.Lookup: ("lookup", requests.LookupRequest),
    ops.Unpublish: ("unpublish", requests.UnpublishRequest),
    ops.Spawn: ("spawn", requests.SpawnRequest),
    ops.Connect: ("connect", requests.ConnectRequest),
    ops.Disconnect: ("disconnect", requests.DisconnectRequest),
    ops.RegisterEvents: ("register_events", requests.EventsRequest),
    ops.DeregisterEvents: ("deregister_events", requests.EventsRequest),
    ops.NotifyEvent: ("notify_event", requests.NotifyRequest),
    ops.ToolConnected: ("tool_connected", requests.ToolRequest),
    ops.QueryInfo: ("query", requests.QueryRequest),
    ops.Log: ("log", requests.LogRequest),
    ops.AllocationRequest: ("allocate", requests.AllocateRequest),
    ops.JobControl: ("job_control", requests.JobControlRequest),
    ops.ProcessMonitor: ("monitor", requests.MonitorRequest),
    ops.Heartbeat: ("heartbeat", requests.HeartbeatRequest),
    ops.GetCredential: ("get_credential", requests.GetCredentialRequest),
    ops.ValidateCredential: ("validate_credential", requests.ValidateCredentialRequest),
    ops.IOFPull: ("iof_pull", requests.IOFPullRequest),
    ops.IOFDeregister: ("iof_pull", requests.IOFPullRequest),
    ops.IOFPush: ("iof_push", requests.IOFPushRequest),
    ops.GroupUpcall: ("group", requests.GroupRequest),
    ops.FabricRegister: ("fabric", requests.FabricRequest),
    ops.FabricUpdate: ("fabric", requests.FabricRequest),
    ops.ComputeDistances: ("compute_distances", requests.ComputeDistancesRequest),
    ops.SessionControl: ("session_control", requests.SessionControlRequest),
    ops.ResourceBlock: ("resource_block", requests.ResourceBlockRequest),
}

METHODS = tuple(dict.fromkeys([name for name, _ in ROUTES.values()]))
"""The names of the methods."""


def route(op: ops.Op[Any]) -> tuple[str, type[Request[Any]]]:
    """Return the method for an operation and the class of its request; an empty name if the operation is unknown."""
    found = ROUTES.get(type(op))
    return ("", Request) if found is None else found
