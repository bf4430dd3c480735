# Made from native/vocabulary/upcalls.tsv and pypmix/standard/ops by native/upcalls.py: change it there.
"""The methods of a host, one for each upcall, with their defaults."""

from __future__ import annotations

from pypmix.host.callbacks import requests
from pypmix.host.callbacks.base import Request
from pypmix.standard import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable
    from typing import Any, TypeAlias, TypeVar

    from pypmix.host.callbacks.base import Given, Later
    from pypmix.standard.enums import Status
    from pypmix.standard.ops import Connected, Credential, GroupResults
    from pypmix.standard.types import DeviceDistance, Pdata, Proc

    T = TypeVar("T")
    Reply: TypeAlias = T | Later | Status | Awaitable[T | Later | Status]
    """The results that a method may return; `async def` methods return them when they are awaited."""

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
"""The method for each operation, and the class of its request."""

METHODS = tuple(dict.fromkeys([name for name, _ in ROUTES.values()]))
"""The names of the methods."""


def find_route(op: ops.Op[Any]) -> tuple[str, type[Request[Any]]]:
    """Return the method for an operation and the class of its request; an empty name if the operation is unknown."""
    return ROUTES.get(type(op), ("", Request))


class Upcalls:
    """The methods for upcalls. Each may be overridden by a `def` or an `async def`."""

    def default(self, req: Request[Any]) -> Later:
        """Reply as a host without a method for the request."""
        raise NotImplementedError

    def client_connected(self, req: requests.ClientRequest) -> Reply[None]:
        """A client has connected; an error refuses it. Accepted by default."""
        return self.default(req)

    def client_finalized(self, req: requests.ClientRequest) -> Reply[None]:
        """A client has called finalize, which returns after the answer. Accepted by default."""
        return self.default(req)

    def client_aborted(self, req: requests.AbortRequest) -> Reply[None]:
        """A client asks the host to end procs (`targets`) with a `status`."""
        return self.default(req)

    def client_lost(self, req: requests.ClientRequest) -> Reply[None]:
        """A client's connection has ended without finalize. The answer is ignored."""
        return self.default(req)

    def fence(self, req: requests.FenceRequest) -> Reply[bytes | None]:
        """All procs of this server have called a fence with other servers' procs; return the data of all servers."""
        return self.default(req)

    def direct_modex(self, req: requests.DirectModexRequest) -> Reply[bytes]:
        """A client requests the data of another server's proc; return the data from `Server.dmodex_request` there."""
        return self.default(req)

    def publish(self, req: requests.PublishRequest) -> Reply[None]:
        """A client publishes values."""
        return self.default(req)

    def lookup(self, req: requests.LookupRequest) -> Reply[Iterable[Pdata]]:
        """A client looks up published values."""
        return self.default(req)

    def unpublish(self, req: requests.UnpublishRequest) -> Reply[None]:
        """A client unpublishes values that it has published."""
        return self.default(req)

    def spawn(self, req: requests.SpawnRequest) -> Reply[str]:
        """A client, or a tool, asks for a job; return the job's nspace, which is registered by then."""
        return self.default(req)

    def connect(self, req: requests.ConnectRequest) -> Reply[Connected | str | None]:
        """All procs of this server have called a connect; return an nspace for them, or None."""
        return self.default(req)

    def disconnect(self, req: requests.DisconnectRequest) -> Reply[None]:
        """All procs of this server have called a disconnect."""
        return self.default(req)

    def register_events(self, req: requests.EventsRequest) -> Reply[None]:
        """A client registers for events that the host may raise."""
        return self.default(req)

    def deregister_events(self, req: requests.EventsRequest) -> Reply[None]:
        """No client is registered for these events from now on."""
        return self.default(req)

    def notify_event(self, req: requests.NotifyRequest) -> Reply[None]:
        """A client raises an event for other servers, too; the clients of this server have received it."""
        return self.default(req)

    def tool_connected(self, req: requests.ToolRequest) -> Reply[Proc | None]:
        """A tool requests to connect; return its name, or None to generate a name. An error refuses it."""
        return self.default(req)

    def query(self, req: requests.QueryRequest) -> Reply[Given]:
        """A client queries values; return the known values. The server adds the values that it knows."""
        return self.default(req)

    def log(self, req: requests.LogRequest) -> Reply[None]:
        """A client logs data to channels."""
        return self.default(req)

    def allocate(self, req: requests.AllocateRequest) -> Reply[Given]:
        """A client asks for resources."""
        return self.default(req)

    def job_control(self, req: requests.JobControlRequest) -> Reply[Given]:
        """A client controls procs."""
        return self.default(req)

    def monitor(self, req: requests.MonitorRequest) -> Reply[Given]:
        """A client asks to be monitored."""
        return self.default(req)

    def heartbeat(self, req: requests.HeartbeatRequest) -> Reply[None]:
        """A client sends a heartbeat. The answer is ignored."""
        return self.default(req)

    def get_credential(self, req: requests.GetCredentialRequest) -> Reply[bytes | Credential]:
        """A client asks for a credential."""
        return self.default(req)

    def validate_credential(self, req: requests.ValidateCredentialRequest) -> Reply[Given]:
        """A client validates a credential; return infos about its owner, or raise an error."""
        return self.default(req)

    def iof_pull(self, req: requests.IOFPullRequest) -> Reply[int | None]:
        """Deliver the output of procs from now on (`Server.deliver_output`); with `req.stop`, stop delivering it."""
        return self.default(req)

    def iof_push(self, req: requests.IOFPushRequest) -> Reply[None]:
        """A client sends input to procs."""
        return self.default(req)

    def group(self, req: requests.GroupRequest) -> Reply[GroupResults | Given]:
        """All procs of this server that construct or destruct a group have called it."""
        return self.default(req)

    def fabric(self, req: requests.FabricRequest) -> Reply[Given]:
        """A client requests the infos of a fabric."""
        return self.default(req)

    def compute_distances(self, req: requests.ComputeDistancesRequest) -> Reply[Iterable[DeviceDistance]]:
        """A client requests the distances of devices."""
        return self.default(req)

    def session_control(self, req: requests.SessionControlRequest) -> Reply[Given]:
        """A client, or a tool, acts on a session."""
        return self.default(req)

    def resource_block(self, req: requests.ResourceBlockRequest) -> Reply[None]:
        """A client, or a tool, defines or changes a block of resources."""
        return self.default(req)
