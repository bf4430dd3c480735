# Made from pypmix/aio/operations by native/blocking.py: change it there.
# Made from pypmix/standard/ops by native/raw.py: change it there.
"""The functions of the Standard, one method each, with the arguments of C."""

from __future__ import annotations

from pypmix.arguments import ranked, timed, together
from pypmix.standard import ops
from pypmix.standard.types import App, Query
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.arguments import Infos, Procs
    from pypmix.engine.base import Delivery
    from pypmix.standard.ops import Connected, Credential, GroupAnswer, GroupResults, Output
    from pypmix.standard.structures import Cpuset, Topology
    from pypmix.standard.types import DeviceDistance, Info, Pdata, Proc, Value
    from pypmix.waits import Port


class Raw:
    """The functions of the Standard as C has them: `raw` of a client or a tool.

    Each method is one function, without its `PMIx_`, and makes one request. Procs may be a proc, a rank of the caller's
    job, a job, a group, or several of these; none are all of the caller's job. `info` is a mapping, or infos, and
    `timeout` stands for `attrs.TIMEOUT` in it: seconds, None for no limit. Values keep their PMIx types. The other
    methods of a client do more: they find defaults, commit before a fence, and take back a group or a pull if a wait
    for it is cancelled.
    """

    def __init__(self, port: Port) -> None:
        self._port = port

    def _together(self, procs: Procs) -> tuple[Proc, ...]:
        return together(ranked(procs, self._port.session.proc))

    def abort(self, code: int, message: str = "", procs: Procs = None) -> None:
        """`PMIx_Abort`: request the host to end procs, by default all of the caller's nspace."""
        return self._port.run(ops.Abort(code, message, self._together(procs)))

    def allocation_request(self, directive: int, info: Infos = None) -> tuple[Info, ...]:
        """`PMIx_Allocation_request`: new resources, more or fewer of them (`AllocDirective`)."""
        return self._port.run(ops.AllocationRequest(directive, infos(info)))

    def commit(self) -> None:
        """`PMIx_Commit`: send the values since the last commit to the server."""
        return self._port.run(ops.Commit())

    def compute_distances(self, topology: Topology, cpuset: Cpuset, info: Infos = None) -> tuple[DeviceDistance, ...]:
        """`PMIx_Compute_distances`: the distances of a node's devices from a binding."""
        return self._port.run(ops.ComputeDistances(topology, cpuset, infos(info)))

    def connect(self, procs: Procs, info: Infos = None, *, timeout: float | None = None) -> Connected:
        """`PMIx_Connect`: treat procs as one application; all of them call it.

        When it completes, the caller has the job info of the others' nspaces. Understood directives: `attrs.TIMEOUT`, and
        between processes with pypmix the `CONNECT_*` keys of this module. A host that is asked for an nspace
        (`CONNECT_ASSIGN`) replies `Connected`, or None to assign none.
        """
        return self._port.run(ops.Connect(self._together(procs), timed(infos(info), timeout)))

    def deregister_event_handler(self, number: int) -> None:
        """`PMIx_Deregister_event_handler`: stop calling a handler."""
        return self._port.run(ops.DeregisterEventHandler(number))

    def disconnect(self, procs: Procs, info: Infos = None, *, timeout: float | None = None) -> None:
        """`PMIx_Disconnect`: end a connection, by its procs or its nspace; all call it.

        Understood directive: `attrs.TIMEOUT`.
        """
        return self._port.run(ops.Disconnect(self._together(procs), timed(infos(info), timeout)))

    def fabric_register(self, info: Infos = None) -> tuple[Info, ...]:
        """`PMIx_Fabric_register`: request a fabric's information."""
        return self._port.run(ops.FabricRegister(infos(info)))

    def fabric_update(self, index: int) -> tuple[Info, ...]:
        """`PMIx_Fabric_update`: request changes of a registered fabric."""
        return self._port.run(ops.FabricUpdate(index))

    def fence(
        self, procs: Procs = None, collect: bool = False, info: Infos = None, *, timeout: float | None = None
    ) -> frozenset[Proc] | None:
        """`PMIx_Fence`: wait until all procs have called it, and with `collect` exchange their committed data.

        No procs means all of the caller's nspace. With `FENCE_PARTICIPANTS` the result is the set of the procs that took
        part, empty if they are the expected ones; it is None if the server does not report them.

        Understood directive: `attrs.TIMEOUT`.
        """
        return self._port.run(ops.Fence(self._together(procs), collect, timed(infos(info), timeout)))

    def get(self, proc: Proc, key: str, info: Infos = None, *, timeout: float | None = None) -> Value:
        """`PMIx_Get`: the value that a proc put under a key, or its value in the job info.

        Understood directives: `attrs.IMMEDIATE`, `attrs.OPTIONAL`, `attrs.TIMEOUT`, `attrs.DATA_SCOPE`,
        `attrs.GET_REFRESH_CACHE`, `attrs.NODE_INFO`, `attrs.APP_INFO`, `attrs.SESSION_INFO`, with `attrs.HOSTNAME`,
        `attrs.NODEID`, `attrs.APPNUM` and `attrs.SESSION_ID` to select one, and qualifiers.
        """
        return self._port.run(ops.Get(proc, key, timed(infos(info), timeout)))

    def get_credential(self, info: Infos = None, *, timeout: float | None = None) -> Credential:
        """`PMIx_Get_credential`: a credential of the caller.

        Understood directives: `attrs.CRED_TYPE`, `attrs.TIMEOUT`.
        """
        return self._port.run(ops.GetCredential(timed(infos(info), timeout)))

    def group_construct(
        self, group: str, procs: Procs = None, info: Infos = None, *, timeout: float | None = None
    ) -> GroupResults:
        """`PMIx_Group_construct`: make a group of procs; all of them call it.

        Without procs, other callers add the caller (`attrs.GROUP_ADD_MEMBERS`). Understood directives:
        `attrs.GROUP_ASSIGN_CONTEXT_ID`, `GROUP_LEADER`, `GROUP_OPTIONAL`, `GROUP_NOTIFY_TERMINATION`,
        `GROUP_FT_COLLECTIVE`, `GROUP_LOCAL_ONLY`, `GROUP_BOOTSTRAP`, `GROUP_ADD_MEMBERS`, `GROUP_FINAL_MEMBERSHIP_ORDER`,
        `GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.
        """
        return self._port.run(ops.GroupConstruct(group, self._together(procs), timed(infos(info), timeout)))

    def group_destruct(self, group: str, info: Infos = None, *, timeout: float | None = None) -> None:
        """`PMIx_Group_destruct`: destruct a group; all of its members call it.

        Understood directives: `attrs.TIMEOUT`, `attrs.GROUP_FT_COLLECTIVE`.
        """
        return self._port.run(ops.GroupDestruct(group, timed(infos(info), timeout)))

    def group_invite(
        self,
        group: str,
        procs: Procs = None,
        info: Infos = None,
        answers: Callable[[GroupAnswer], None] | None = None,
        *,
        timeout: float | None = None,
    ) -> GroupResults:
        """`PMIx_Group_invite`: invite procs to a group and lead it; completes when the group is open.

        Understood directives: `attrs.GROUP_OPTIONAL`, `GROUP_FT_COLLECTIVE`, `GROUP_NOTIFY_TERMINATION`,
        `GROUP_ASSIGN_CONTEXT_ID`, `GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.

        Args:
            group: The group's name.
            procs: The invited procs; the caller is the first member, whether it is named or not.
            info: The directives.
            answers: Called with each answer, if the caller controls the invitation by `GroupInviteControl`, which then has
                to complete the group. None for the Standard's rules. It must not block.
        """
        self._port.attend()
        return self._port.run(ops.GroupInvite(group, self._together(procs), timed(infos(info), timeout), answers))

    def group_join(
        self,
        group: str,
        leader: Proc,
        accept: bool = True,
        info: Infos = None,
        reason: str = "",
        *,
        timeout: float | None = None,
    ) -> GroupResults:
        """`PMIx_Group_join`: accept or decline an invitation; an acceptance completes when the group is open.

        Understood directives: `attrs.GROUP_INFO`, `GROUP_ENDPT_DATA`, `TIMEOUT`.

        Args:
            group: The group's name.
            leader: The proc that has invited the caller.
            accept: Whether to join.
            info: The directives.
            reason: The reason for a refusal.
        """
        return self._port.run(ops.GroupJoin(group, leader, accept, timed(infos(info), timeout), reason))

    def group_leave(self, group: str, info: Infos = None) -> None:
        """`PMIx_Group_leave`: leave an open group; the others receive `PMIX_GROUP_LEFT`.

        Args:
            group: The group's name.
            info: Infos for the other members.
        """
        return self._port.run(ops.GroupLeave(group, infos(info)))

    def heartbeat(self) -> None:
        """`PMIx_Heartbeat`: send a heartbeat of this process to the server. Also an upcall, without an answer."""
        return self._port.run(ops.Heartbeat())

    def iof_deregister(self, number: int, info: Infos = None) -> None:
        """`PMIx_IOF_deregister`: stop a pull."""
        return self._port.run(ops.IOFDeregister(number, infos(info)))

    def iof_pull(
        self,
        procs: Procs,
        channels: int,
        info: Infos = None,
        handler: Callable[[Output], None] | None = None,
        ended: Callable[[BaseException | None], None] | None = None,
    ) -> int:
        """`PMIx_IOF_pull`: call a function with the output of procs; returns an id.

        The engine calls `handler` in its thread, so it must neither block nor raise. A rank may be `Rank.WILDCARD`. As an
        upcall it has no handler: it requests the host to deliver the output to the server.
        Understood directives: `attrs.IOF_CACHE_SIZE`, `attrs.IOF_DROP_OLDEST`, `attrs.IOF_DROP_NEWEST`,
        `attrs.IOF_TAG_OUTPUT`, `attrs.IOF_TIMESTAMP_OUTPUT`,
        `attrs.IOF_XML_OUTPUT`.

        Args:
            ended: Called once like `handler` when the session has ended, so that no further output can arrive: with None if
                it was closed, with the error if the server was lost. Not called after a deregistration.
        """
        self._port.attend()
        return self._port.run(ops.IOFPull(self._together(procs), channels, infos(info), handler, ended))

    def iof_push(self, procs: Procs, data: bytes = b"", info: Infos = None) -> None:
        """`PMIx_IOF_push`: send bytes to the standard input of procs; empty bytes close it.

        Understood directives: `attrs.IOF_PUSH_STDIN`, `attrs.IOF_COMPLETE`.
        """
        return self._port.run(ops.IOFPush(self._together(procs), data, infos(info)))

    def job_control(self, targets: Procs = None, info: Infos = None) -> tuple[Info, ...]:
        """`PMIx_Job_control`: signal, kill, pause or otherwise control procs; without procs, the caller's nspace.

        Also an upcall. Understood directives: `attrs.JOB_CTRL_SIGNAL`, `attrs.JOB_CTRL_KILL`,
        `attrs.JOB_CTRL_TERMINATE`, `attrs.JOB_CTRL_PAUSE`, `attrs.JOB_CTRL_RESUME`, `attrs.REGISTER_CLEANUP`, ...
        """
        return self._port.run(ops.JobControl(self._together(targets), infos(info)))

    def log(self, data: Infos, info: Infos = None, timestamp: int = 0) -> None:
        """`PMIx_Log`: write data to channels such as `attrs.LOG_STDERR`.

        Understood directives: `attrs.LOG_SOURCE`, `attrs.LOG_TIMESTAMP`, `attrs.LOG_GENERATE_TIMESTAMP`,
        `attrs.LOG_TAG_OUTPUT`, `attrs.LOG_TIMESTAMP_OUTPUT`, `attrs.LOG_XML_OUTPUT`, `attrs.LOG_ONCE`.

        Args:
            timestamp: The time of the request, in seconds since 1970; 0 if unset. Engines set it for a client with the
                directive `attrs.LOG_GENERATE_TIMESTAMP`.
        """
        return self._port.run(ops.Log(infos(data), infos(info), timestamp))

    def lookup(self, keys: tuple[str, ...], info: Infos = None, *, timeout: float | None = None) -> tuple[Pdata, ...]:
        """`PMIx_Lookup`: the data published under keys that the caller may see.

        The result may lack some keys; if no key was found, that is an error.
        Understood directives: `attrs.WAIT`, `attrs.TIMEOUT`, `attrs.RANGE`.
        """
        return self._port.run(ops.Lookup(tuple(keys), timed(infos(info), timeout)))

    def notify_event(self, code: int, data_range: int = 4, data: Infos = None) -> None:
        """`PMIx_Notify_event`: raise an event; the caller's own handlers see it as well.

        Understood infos: `attrs.EVENT_CUSTOM_RANGE` (a proc or an array of them, with `Range.CUSTOM`),
        `attrs.EVENT_NON_DEFAULT`, `attrs.EVENT_DO_NOT_CACHE`, `attrs.EVENT_AFFECTED_PROC`, `attrs.EVENT_AFFECTED_PROCS`;
        all others are sent with the event.
        """
        return self._port.run(ops.NotifyEvent(code, data_range, infos(data)))

    def process_monitor(self, monitor: Info, error: int, info: Infos = None) -> tuple[Info, ...]:
        """`PMIx_Process_monitor`: monitor heartbeats or a file, or cancel that; `error` is its event."""
        return self._port.run(ops.ProcessMonitor(monitor, error, infos(info)))

    def publish(
        self,
        data: Infos,
        data_range: int = 4,
        persistence: int = 3,
        info: Infos = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """`PMIx_Publish`: publish values under keys, independent of put and commit.

        Understood directives: `attrs.TIMEOUT`, `attrs.ACCESS_PERMISSIONS`, and with `Range.CUSTOM` the procs in
        `attrs.EVENT_CUSTOM_RANGE`.
        """
        return self._port.run(ops.Publish(infos(data), data_range, persistence, timed(infos(info), timeout)))

    def put(self, key: str, value: Value, scope: int = 3) -> None:
        """`PMIx_Put`: keep a value, or the deletion of a key, for the next commit.

        Keys that start with `pmix` belong to the Standard, and the library does not commit them.
        """
        return self._port.run(ops.Put(key, value, scope))

    def query_info(self, queries: Query | tuple[Query, ...]) -> tuple[Info, ...]:
        """`PMIx_Query_info`: values for keys such as `attrs.QUERY_NAMESPACES`.

        The result has one info for each key that was found, in the order of the queries; some keys may be missing. If no
        key was found, that is an error.
        """
        return self._port.run(ops.QueryInfo((queries,) if isinstance(queries, Query) else tuple(queries)))

    def register_event_handler(
        self,
        handler: Callable[[Delivery], None],
        codes: tuple[int, ...] = (),
        info: Infos = None,
        ended: Callable[[BaseException | None], None] | None = None,
    ) -> int:
        """`PMIx_Register_event_handler`: register a function for events; returns the handler's id.

        Without codes it is a default handler: called for events of any code, after the other handlers of the process. The
        engine calls `handler` in its thread, so it must neither block nor raise; the chain of handlers continues when the
        delivery is `done`, from any thread.

        Understood directives: `attrs.EVENT_HDLR_NAME`, `attrs.EVENT_HDLR_FIRST`, `attrs.EVENT_HDLR_LAST`,
        `attrs.EVENT_HDLR_FIRST_IN_CATEGORY`, `attrs.EVENT_HDLR_LAST_IN_CATEGORY`, `attrs.EVENT_HDLR_BEFORE`,
        `attrs.EVENT_HDLR_AFTER`, `attrs.EVENT_HDLR_PREPEND`, `attrs.EVENT_HDLR_APPEND`, `attrs.EVENT_CUSTOM_RANGE`,
        `attrs.RANGE`, `attrs.EVENT_AFFECTED_PROC`, `attrs.EVENT_AFFECTED_PROCS`, `attrs.EVENT_ONESHOT`.

        Args:
            ended: Called once like `handler` when the session has ended, so that no further event can arrive: with None if
                it was closed, with the error if the server was lost. Not called after a deregistration.
        """
        self._port.attend()
        return self._port.run(ops.RegisterEventHandler(handler, tuple(codes), infos(info), ended))

    def resolve_nodes(self, nspace: str | None = None) -> tuple[str, ...]:
        """`PMIx_Resolve_nodes`: the nodes on which procs of an nspace run; None means all nspaces."""
        return self._port.run(ops.ResolveNodes(nspace))

    def resolve_peers(self, node: str | None = None, nspace: str | None = None) -> tuple[Proc, ...]:
        """`PMIx_Resolve_peers`: the procs of an nspace (None: of all) that run on a node (None: the caller's)."""
        return self._port.run(ops.ResolvePeers(node, nspace))

    def spawn(self, apps: App | tuple[App, ...], info: Infos = None) -> str:
        """`PMIx_Spawn`: start a job; returns its nspace.

        When it completes, the caller has the job info of the new nspace. Understood directives are the Standard's
        "Spawn-specific constants and attributes", for the job in `directives` and for an application in its infos.
        """
        return self._port.run(ops.Spawn((apps,) if isinstance(apps, App) else tuple(apps), infos(info)))

    def tool_attach_to_server(self, info: Infos, *, timeout: float | None = None) -> Proc:
        """`PMIx_tool_attach_to_server`: connect to a further server; returns its name.

        Understood directives: `attrs.TOOL_ATTACHMENT_FILE`, `attrs.SERVER_URI`, `attrs.TCP_URI`, `attrs.SERVER_PIDINFO`,
        `attrs.SERVER_NSPACE`, `attrs.CONNECT_TO_SYSTEM`, `attrs.CONNECT_SYSTEM_FIRST`, `attrs.CONNECT_TO_SCHEDULER`,
        `attrs.CONNECT_TO_SYS_CONTROLLER`, `attrs.SERVER_HOSTNAME`, `attrs.SERVER_TMPDIR`, `attrs.SYSTEM_TMPDIR`,
        `attrs.CONNECT_MAX_RETRIES`, `attrs.CONNECT_RETRY_DELAY`, `attrs.TIMEOUT`, `attrs.PRIMARY_SERVER`.
        """
        return self._port.run(ops.ToolAttachToServer(timed(infos(info), timeout)))

    def tool_disconnect(self, server: Proc) -> None:
        """`PMIx_tool_disconnect`: leave a server."""
        return self._port.run(ops.ToolDisconnect(server))

    def tool_get_servers(self) -> tuple[Proc, ...]:
        """`PMIx_tool_get_servers`: the servers that the tool is connected to, the primary one first."""
        return self._port.run(ops.ToolGetServers())

    def tool_set_server(self, server: Proc, info: Infos = None, *, timeout: float | None = None) -> None:
        """`PMIx_tool_set_server`: make a connected server the one for all further requests.

        Understood directives: `attrs.WAIT_FOR_CONNECTION`, `attrs.TIMEOUT`.
        """
        return self._port.run(ops.ToolSetServer(server, timed(infos(info), timeout)))

    def unpublish(self, keys: tuple[str, ...] = (), info: Infos = None, *, timeout: float | None = None) -> None:
        """`PMIx_Unpublish`: remove data that the caller published, by default all of it.

        Understood directives: `attrs.RANGE`, `attrs.TIMEOUT`.
        """
        return self._port.run(ops.Unpublish(tuple(keys), timed(infos(info), timeout)))

    def validate_credential(self, credential: bytes, info: Infos = None) -> tuple[Info, ...]:
        """`PMIx_Validate_credential`: the owner of a credential; an error if it is invalid."""
        return self._port.run(ops.ValidateCredential(credential, infos(info)))
