# Made from native/vocabulary/upcalls.tsv and pypmix/standard/ops by native/upcalls.py: change it there.
"""The requests of a host's methods: the fields of the operations of `pypmix.standard.ops`, as attributes."""

from __future__ import annotations

from pypmix.host.callbacks import base
from pypmix.host.callbacks.base import Request as Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard import ops
    from pypmix.standard.structures import Cpuset, ResourceUnit, Topology
    from pypmix.standard.types import App, Info, Proc, Query


class ClientRequest(base.Request[None]):
    """The request of `client_connected`, `client_finalized`, `client_lost`."""

    __slots__ = ()

    op: ops.ClientConnected | ops.ClientFinalized | ops.ClientLost
    proc: Proc


class AbortRequest(base.AbortBase):
    """`client_aborted`: a client asks the host to end procs."""

    __slots__ = ()

    op: ops.ClientAborted
    proc: Proc
    code: int
    message: str


class FenceRequest(base.FenceBase):
    """`fence`: all procs of this server have called it; answered with the data of all servers, one after the other.

    Attributes:
        procs: The procs of the fence as named by its callers: a wildcard means all ranks of an nspace.
        directives: The callers' directives (`attrs.COLLECT_DATA`, `attrs.TIMEOUT`).
        data: The data that the procs of this server have committed for others; empty for a fence without an exchange.
    """

    __slots__ = ()

    op: ops.FenceUpcall
    procs: tuple[Proc, ...]
    directives: tuple[Info, ...]
    data: bytes


class DirectModexRequest(base.DirectModexBase):
    """`direct_modex`: a client requests the data that a proc of another server has committed.

    Attributes:
        proc: The owner of the data.
        directives: The client's directives (`attrs.TIMEOUT`, `attrs.REQUIRED_KEY`).
    """

    __slots__ = ()

    op: ops.DirectModex
    proc: Proc
    directives: tuple[Info, ...]


class PublishRequest(base.Request[None]):
    """`publish`: a client publishes values."""

    __slots__ = ()

    op: ops.Publish
    infos: tuple[Info, ...]
    range: int
    persistence: int
    directives: tuple[Info, ...]


class LookupRequest(base.LookupBase):
    """`lookup`: answered with the `Pdata` that was found, or with `NotFound` if nothing was found."""

    __slots__ = ()

    op: ops.Lookup
    keys: tuple[str, ...]
    directives: tuple[Info, ...]


class UnpublishRequest(base.Request[None]):
    """`unpublish`: a client unpublishes values that it has published."""

    __slots__ = ()

    op: ops.Unpublish
    keys: tuple[str, ...]
    directives: tuple[Info, ...]


class SpawnRequest(base.SpawnBase):
    """`spawn`: answered with the nspace of the new job, which is registered by then."""

    __slots__ = ()

    op: ops.Spawn
    apps: tuple[App, ...]
    directives: tuple[Info, ...]


class ConnectRequest(base.ConnectBase):
    """`connect`: all procs of this server have called it.

    Answered with an nspace for the connection, which must not be the nspace of a job and must be the same on all
    servers: its members are the procs that have joined, in the order of their names. Or with a
    `pypmix.standard.ops.Connected`, in which the host lists the members in the order of the new ranks. Or with None:
    the procs are then connected under their own names.
    """

    __slots__ = ()

    op: ops.Connect
    procs: tuple[Proc, ...]
    directives: tuple[Info, ...]


class DisconnectRequest(base.Request[None]):
    """`disconnect`: all procs of this server have called a disconnect."""

    __slots__ = ()

    op: ops.Disconnect
    procs: tuple[Proc, ...]
    directives: tuple[Info, ...]


class EventsRequest(base.Request[None]):
    """The request of `register_events`, `deregister_events`."""

    __slots__ = ()

    op: ops.RegisterEvents | ops.DeregisterEvents
    codes: tuple[int, ...]


class NotifyRequest(base.Request[None]):
    """`notify_event`: a client raises an event for other servers, too; the clients of this server have received it."""

    __slots__ = ()

    op: ops.NotifyEvent
    code: int
    range: int
    infos: tuple[Info, ...]


class ToolRequest(base.ToolBase):
    """`tool_connected`: answered with the tool's name; None lets the server generate a name.

    Attributes:
        proc: Its name; None if it requests one.
        pid: Its process id, if it sends one, unverified.
        launcher: Whether it launches jobs.
        release: The release of its library.
        directives: The infos of its handshake.
    """

    __slots__ = ()

    op: ops.ToolConnected
    proc: Proc | None
    pid: int | None
    launcher: bool
    release: str
    directives: tuple[Info, ...]


class QueryRequest(base.QueryBase):
    """`query`: answered with values by key, which may be fewer than the requested keys."""

    __slots__ = ()

    op: ops.QueryInfo
    queries: tuple[Query, ...]


class LogRequest(base.Request[None]):
    """`log`: a client logs data to channels.

    Attributes:
        timestamp: The time of the request, in seconds since 1970; 0 if unset. Engines set it for a client with the
            directive `attrs.LOG_GENERATE_TIMESTAMP`.
    """

    __slots__ = ()

    op: ops.Log
    data: tuple[Info, ...]
    directives: tuple[Info, ...]
    timestamp: int


class AllocateRequest(base.InfoRequest):
    """`allocate`: a client asks for resources."""

    __slots__ = ()

    op: ops.AllocationRequest
    directive: int
    directives: tuple[Info, ...]


class JobControlRequest(base.InfoRequest):
    """`job_control`: a client controls procs."""

    __slots__ = ()

    op: ops.JobControl
    targets: tuple[Proc, ...]
    directives: tuple[Info, ...]


class MonitorRequest(base.InfoRequest):
    """`monitor`: a client asks to be monitored."""

    __slots__ = ()

    op: ops.ProcessMonitor
    monitor: Info
    error: int
    directives: tuple[Info, ...]


class HeartbeatRequest(base.Request[None]):
    """`heartbeat`: a client sends a heartbeat. The answer is ignored."""

    __slots__ = ()

    op: ops.Heartbeat


class GetCredentialRequest(base.CredentialBase):
    """`get_credential`: answered with bytes or a `Credential`."""

    __slots__ = ()

    op: ops.GetCredential
    directives: tuple[Info, ...]


class ValidateCredentialRequest(base.InfoRequest):
    """`validate_credential`: a client validates a credential; return infos about its owner, or raise an error."""

    __slots__ = ()

    op: ops.ValidateCredential
    credential: bytes
    directives: tuple[Info, ...]


class IOFPullRequest(base.IOFPullBase):
    """`iof_pull`: deliver the output of procs to the server from now on; answered with an id for its end, or None.

    The same handler gets the end of a pull: then `stop` is true, and `id` is the id of the pull.
    """

    __slots__ = ()

    op: ops.IOFPull | ops.IOFDeregister
    directives: tuple[Info, ...]


class IOFPushRequest(base.Request[None]):
    """`iof_push`: a client sends input to procs."""

    __slots__ = ()

    op: ops.IOFPush
    procs: tuple[Proc, ...]
    data: bytes
    directives: tuple[Info, ...]


class GroupRequest(base.GroupBase):
    """`group`: all procs of this server that construct or destruct a group have called it.

    A construct is answered with the membership (`reply(members=...)`), a `GroupResults` or infos; other operations with
    None. An answer without members means `members`.

    Attributes:
        operation: 0 for a construct, 1 for a destruct, 3 to cancel a construct that the server has begun.
        group: The group's name.
        directives: The callers' directives, and their data for the others: `attrs.GROUP_INFO` is an array of infos for
            each caller, first its `attrs.PROCID` and last its `attrs.GROUP_ENDPT_DATA`, if any.
    """

    __slots__ = ()

    op: ops.GroupUpcall
    operation: int
    group: str
    directives: tuple[Info, ...]


class FabricRequest(base.FabricBase):
    """`fabric`: answered with infos about a fabric."""

    __slots__ = ()

    op: ops.FabricRegister | ops.FabricUpdate


class ComputeDistancesRequest(base.DistancesBase):
    """`compute_distances`: answered with the `DeviceDistance` of each device."""

    __slots__ = ()

    op: ops.ComputeDistances
    topology: Topology
    cpuset: Cpuset
    directives: tuple[Info, ...]


class SessionControlRequest(base.InfoRequest):
    """`session_control`: a client, or a tool, acts on a session."""

    __slots__ = ()

    op: ops.SessionControl
    session: int
    directives: tuple[Info, ...]


class ResourceBlockRequest(base.Request[None]):
    """`resource_block`: a client, or a tool, defines or changes a block of resources.

    Attributes:
        directive: The action (`ResBlockDirective`).
        block: The block's name.
        units: The resources.
        infos: Further infos.
    """

    __slots__ = ()

    op: ops.ResourceBlock
    directive: int
    block: str
    units: tuple[ResourceUnit, ...]
    infos: tuple[Info, ...]
