"""`PMIxClient`: the methods of the official binding, over a `pypmix.Client`."""

from __future__ import annotations

import threading

from pypmix._version import __version__
from pypmix.client import Client
from pypmix.compat import asking
from pypmix.compat.asking import ANSWERS, CREDENTIAL, GROUP, INFOS, NODES, NSPACE, PDATA, PROCS, VALUE
from pypmix.compat.events import Events
from pypmix.compat.hardware import Fabrics, Hardware
from pypmix.compat.packing import Packing
from pypmix.compat.printing import Printing
from pypmix.compat.running import attempt, callback, named_after, status_of
from pypmix.compat.scalars import from_proc, to_key, to_proc
from pypmix.compat.values import from_infos, from_value, to_infos, to_value
from pypmix.standard import keys, statuses
from pypmix.standard.attrs import EVENT_NON_DEFAULT
from pypmix.standard.errors import NotInitialized, NotSupported
from pypmix.standard.ops import Commit, Get, Heartbeat, NotifyEvent, QueryInfo
from pypmix.standard.ops.events import RANGE_PROC_LOCAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.compat.asking import Shape
    from pypmix.compat.serverhost import Hosting
    from pypmix.engine.base import Done
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Info, Proc, Value


MODELS = frozenset({keys.PROGRAMMING_MODEL, keys.MODEL_LIBRARY_NAME, keys.MODEL_LIBRARY_VERSION, keys.THREADING_MODEL})
"""The directives of `init` that describe the process's programming model."""


def _declare(facade: Peer, directives: tuple[Info, ...]) -> None:
    """Raise `PMIX_MODEL_DECLARED` in only this process, as libpmix does; the native engine has already done so."""
    told = tuple([info for info in directives if info.key in MODELS])
    if told and facade.engine.name != "native":
        facade.carry_out(NotifyEvent(statuses.MODEL_DECLARED, RANGE_PROC_LOCAL, (*told, EVENT_NON_DEFAULT(True))))


class Peer(Client):
    """A client that carries out any operation."""

    def carry_out(self, op: Op[Any]) -> Any:
        """Carry out an operation, and return its result."""
        if isinstance(op, Get):
            # It handles keys whose value changes while libpmix caches the first value.
            return self._get_value(op.key, op.proc, info=op.directives)
        return self._run(op)

    def begin(self, op: Op[Any], done: Done[Any]) -> None:
        """Begin an operation; `done` is called once, on any thread, and must not block."""
        self._attend()
        self._session.submit(op, done)


class Shared:
    """The connection that all `PMIxClient` objects of a process share, as in the official binding.

    `init` may be called several times, on the same or another object; the last matching `finalize` disconnects.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self.facade: Peer | None = None
        self.own: dict[tuple[Proc, str], Value] = {}
        """The values of `store_internal`."""

    def enter(self, directives: tuple[Info, ...]) -> Peer:
        """Add a user; return the client, which is opened for the first user."""
        with self._lock:
            if self.facade is None:
                self.facade = Peer(info=directives).open()
                # An error is ignored: `init` has succeeded even if this event cannot be raised.
                attempt(_declare, self.facade, directives)
            self._users += 1
            return self.facade

    def leave(self, directives: tuple[Info, ...]) -> None:
        """Remove a user; disconnect after the last user."""
        with self._lock:
            if self.facade is None:
                raise NotInitialized("PMIx is not initialized", operation="finalize")
            self._users -= 1
            if self._users == 0:
                facade, self.facade = self.facade, None
                self.own.clear()
                facade.close(info=directives)


_shared = Shared()


class PMIxClient(Events, Fabrics, Hardware, Packing, Printing):
    """A process of a job, with the methods, dicts and status ints of the Standard's Python bindings.

    Lists of procs and of infos may be None; an empty list of procs stands for the caller's whole job. The `_nb` methods
    return at once. If and only if they return `PMIX_SUCCESS`, they call `cbfunc` with the status, the further values of
    the blocking form, and `cbdata`. All callbacks run on one thread.
    """

    def __init__(self) -> None:
        self._facade: Peer | None = None
        self._own = _shared.own
        self._fabric: int | None = None

    # How the methods reach pypmix.

    def _peer(self) -> Peer:
        facade = self._facade or _shared.facade
        if facade is None:
            raise NotInitialized("PMIx is not initialized", operation="compat", hint="call init first")
        return facade

    def _port(self) -> Peer | Hosting:
        """Return the object that carries out operations: the client, or for a server its host."""
        return self._peer()

    def _me(self) -> Proc:
        return self._port().proc

    def _run(self, op: Op[Any]) -> Any:
        return self._port().carry_out(op)

    # How the methods run.

    def _do(self, make: Callable[..., Op[Any]], *args: object) -> int:
        """Carry out an operation without a result; return its status."""
        return attempt(lambda: self._run(self._made(make, *args)))[0]

    def _made(self, make: Callable[..., Op[Any]], *args: object) -> Op[Any]:
        """Make an operation; if that fails, an error for a missing `init` takes precedence."""
        try:
            return make(*args)
        except (TypeError, ValueError, OverflowError):
            self._me()
            raise

    def _answer(self, shape: Shape, make: Callable[..., Op[Any]], *args: object) -> tuple[int, Any]:
        """Carry out an operation; return its status and value."""

        def ask() -> tuple[int, Any]:
            op = self._made(make, *args)
            return shape.told(op, self._run(op))

        status, found = attempt(ask)
        return found if found is not None else (status, shape.nothing())

    def _begin(
        self, shape: Shape | None, cbfunc: object, cbdata: object, make: Callable[..., Op[Any]], *args: object
    ) -> int:
        """Start an operation, and schedule `cbfunc` at its end; return the status of the start."""
        if not callable(cbfunc):
            return statuses.ERR_BAD_PARAM

        def finish(op: Op[Any], result: object, error: BaseException | None) -> None:
            status = statuses.SUCCESS if error is None else status_of(error)
            if shape is None:
                cbfunc(status, cbdata)
                return
            found: Any = shape.nothing()
            if error is None:
                status, told = attempt(shape.told, op, result)
                if told is not None:
                    status, found = told
            # A credential comes with infos.
            parts = found if isinstance(found, tuple) else (found,)
            cbfunc(status, *parts, cbdata)

        def begin() -> None:
            op = self._made(make, *args)
            self._port().begin(op, lambda result, error: callback(named_after(cbfunc, finish), op, result, error))

        return attempt(begin)[0]

    def initialized(self) -> int:
        """`PMIx_Initialized`: 1 between `init` and `finalize`, else 0."""
        return int((self._facade or _shared.facade) is not None)

    def get_version(self) -> str:
        """`PMIx_Get_version`: return the release of pypmix, and after `init` also the engine."""
        facade = self._facade or _shared.facade
        return f"pypmix {__version__} (PMIx" + (")" if facade is None else f", {facade.engine})")

    def init(self, dicts: object = None) -> tuple[int, dict[str, Any]]:
        """`PMIx_Init`: connect; returns the status and the caller's name.

        A process without a launcher is a job of one, with `PMIX_SUCCESS` and a name.
        """
        status, facade = attempt(lambda: _shared.enter(to_infos(dicts)))
        return status, {} if facade is None else from_proc(facade.proc)

    def finalize(self, dicts: object = None) -> int:
        """`PMIx_Finalize`."""
        return attempt(lambda: _shared.leave(to_infos(dicts)))[0]

    def abort(self, status: object, msg: object = "", peers: object = None) -> int:
        """`PMIx_Abort`: ask the host to end procs."""
        return self._do(asking.abort, status, msg, peers)

    def progress(self) -> None:
        """`PMIx_Progress`: do nothing, since both engines have a progress thread."""

    def progress_thread_stop(self, dicts: object = None) -> int:
        """`PMIx_Progress_thread_stop`: not supported, since nothing would make progress then."""
        return statuses.ERR_NOT_SUPPORTED if self.initialized() else statuses.SUCCESS

    def store_internal(self, pyproc: object, pykey: object, pyval: object) -> int:
        """`PMIx_Store_internal`: keep a value of a proc for the gets of this process."""

        def store() -> None:
            proc = self._me() if pyproc is None else to_proc(pyproc)
            self._own[proc, to_key(pykey)] = to_value(pyval)

        return attempt(store)[0]

    def put(self, scope: object, ky: object, val: object) -> int:
        """`PMIx_Put`."""
        return self._do(asking.put, scope, ky, val)

    def commit(self) -> int:
        """`PMIx_Commit`."""
        return self._do(Commit)

    def fence(self, peers: object, dicts: object = None) -> int:
        """`PMIx_Fence`."""
        return self._do(lambda: asking.fence(self._me(), peers, dicts))

    def fence_nb(self, peers: object, dicts: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Fence_nb`: `cbfunc(status, cbdata)`."""
        return self._begin(None, cbfunc, cbdata, lambda: asking.fence(self._me(), peers, dicts))

    def get(self, proc: object, ky: object, dicts: object = None) -> tuple[int, dict[str, Any] | None]:
        """`PMIx_Get`."""
        status, op = attempt(lambda: asking.get(self._me(), proc, ky, dicts))
        if op is None:
            return status, None
        kept = self._own.get((op.proc, op.key))
        if kept is not None:
            return statuses.SUCCESS, from_value(kept)
        return self._answer(VALUE, lambda: op)

    def get_nb(self, proc: object, ky: object, dicts: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Get_nb`: `cbfunc(status, value, cbdata)`."""
        if not callable(cbfunc):
            return statuses.ERR_BAD_PARAM
        status, op = attempt(lambda: asking.get(self._me(), proc, ky, dicts))
        if op is None:
            return status
        kept = self._own.get((op.proc, op.key))
        if kept is not None:
            callback(cbfunc, statuses.SUCCESS, from_value(kept), cbdata)
            return statuses.SUCCESS
        return self._begin(VALUE, cbfunc, cbdata, lambda: op)

    def publish(self, dicts: object) -> int:
        """`PMIx_Publish`."""
        return self._do(asking.publish, dicts)

    def publish_nb(self, dicts: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Publish_nb`: `cbfunc(status, cbdata)`."""
        return self._begin(None, cbfunc, cbdata, asking.publish, dicts)

    def unpublish(self, pykeys: object, dicts: object = None) -> int:
        """`PMIx_Unpublish`."""
        return self._do(asking.unpublish, pykeys, dicts)

    def unpublish_nb(self, pykeys: object, dicts: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Unpublish_nb`: `cbfunc(status, cbdata)`."""
        return self._begin(None, cbfunc, cbdata, asking.unpublish, pykeys, dicts)

    def lookup(self, data: object, dicts: object = None) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Lookup`: return the found values; the status is `PMIX_ERR_PARTIAL_SUCCESS` if some are missing."""
        return self._answer(PDATA, asking.lookup, data, dicts)

    def lookup_nb(self, pykeys: object, dicts: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Lookup_nb`: `cbfunc(status, pdata, cbdata)`; takes keys, while `lookup` takes dicts with keys."""
        return self._begin(PDATA, cbfunc, cbdata, asking.lookup, pykeys, dicts)

    def spawn(self, jobInfo: object, pyapps: object) -> tuple[int, str | None]:
        """`PMIx_Spawn`: returns the status and the new job's nspace."""
        return self._answer(NSPACE, asking.spawn, jobInfo, pyapps)

    def spawn_nb(self, jobInfo: object, pyapps: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Spawn_nb`: `cbfunc(status, nspace, cbdata)`."""
        return self._begin(NSPACE, cbfunc, cbdata, asking.spawn, jobInfo, pyapps)

    def connect(self, peers: object, pyinfo: object = None) -> int:
        """`PMIx_Connect`."""
        return self._do(lambda: asking.connect(self._me(), peers, pyinfo))

    def connect_nb(self, peers: object, pyinfo: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Connect_nb`: `cbfunc(status, cbdata)`."""
        return self._begin(None, cbfunc, cbdata, lambda: asking.connect(self._me(), peers, pyinfo))

    def disconnect(self, peers: object, pyinfo: object = None) -> int:
        """`PMIx_Disconnect`."""
        return self._do(lambda: asking.disconnect(self._me(), peers, pyinfo))

    def disconnect_nb(self, peers: object, pyinfo: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Disconnect_nb`: `cbfunc(status, cbdata)`."""
        return self._begin(None, cbfunc, cbdata, lambda: asking.disconnect(self._me(), peers, pyinfo))

    def resolve_peers(self, pynode: object, pyns: object) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Resolve_peers`: the procs of an nspace on a node; None is the caller's node, and all nspaces."""
        return self._answer(PROCS, asking.resolve_peers, pynode, pyns)

    def resolve_nodes(self, pyns: object) -> tuple[int, str | None]:
        """`PMIx_Resolve_nodes`: the nodes of an nspace, with commas between them."""
        return self._answer(NODES, asking.resolve_nodes, pyns)

    def query(self, pyq: object) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Query_info`: return the found infos; the status is `PMIX_QUERY_PARTIAL_SUCCESS` if some are missing."""
        status, parts = attempt(asking.query, pyq)
        if parts is None:
            return status, []
        own, rest = from_infos(parts[0]), parts[1]
        if own and not rest:
            return statuses.SUCCESS, own
        status, found = self._answer(ANSWERS, QueryInfo, rest)
        return (statuses.QUERY_PARTIAL_SUCCESS if own and not found else status), own + found

    def query_nb(self, pyq: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Query_info_nb`: `cbfunc(status, results, cbdata)`."""
        if not callable(cbfunc):
            return statuses.ERR_BAD_PARAM
        status, parts = attempt(asking.query, pyq)
        if parts is None:
            return status
        own, rest = from_infos(parts[0]), parts[1]
        if own and not rest:
            callback(cbfunc, statuses.SUCCESS, own, cbdata)
            return statuses.SUCCESS

        def report(status: int, infos: list[dict[str, Any]], data: object) -> None:
            cbfunc(statuses.QUERY_PARTIAL_SUCCESS if own and not infos else status, own + infos, data)

        return self._begin(ANSWERS, report, cbdata, QueryInfo, rest)

    def log(self, pydata: object, pydirs: object = None) -> int:
        """`PMIx_Log`."""
        return self._do(asking.log, pydata, pydirs)

    def log_nb(self, pydata: object, pydirs: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Log_nb`: `cbfunc(status, cbdata)`."""
        return self._begin(None, cbfunc, cbdata, asking.log, pydata, pydirs)

    def allocation_request(self, directive: object, pyinfo: object = None) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Allocation_request`."""
        return self._answer(INFOS, asking.allocation_request, directive, pyinfo)

    def allocation_request_nb(self, directive: object, pyinfo: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Allocation_request_nb`: `cbfunc(status, results, cbdata)`."""
        return self._begin(INFOS, cbfunc, cbdata, asking.allocation_request, directive, pyinfo)

    def resource_block(self, directive: object, block: object, pyunits: object, pyinfo: object = None) -> int:
        """`PMIx_Resource_block`: not supported, no client of pypmix asks for such blocks."""
        return attempt(self._block, directive, block, pyunits, pyinfo)[0]

    def _block(self, directive: object, block: object, units: object, infos: object) -> None:
        asking.resource_block(directive, block, units, infos)
        self._me()
        raise NotSupported("no client of pypmix asks for blocks of resources", operation="resource_block")

    def resource_block_nb(
        self, directive: object, block: object, pyunits: object, pyinfo: object, cbfunc: object, cbdata: object = None
    ) -> int:
        """`PMIx_Resource_block_nb`: not supported."""
        return (
            attempt(self._block, directive, block, pyunits, pyinfo)[0] if callable(cbfunc) else statuses.ERR_BAD_PARAM
        )

    def job_control(self, pytargets: object, pydirs: object = None) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Job_control`."""
        return self._answer(INFOS, lambda: asking.job_control(self._me(), pytargets, pydirs))

    def job_control_nb(self, pytargets: object, pydirs: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Job_control_nb`: `cbfunc(status, results, cbdata)`."""
        return self._begin(INFOS, cbfunc, cbdata, lambda: asking.job_control(self._me(), pytargets, pydirs))

    def job_ctrl(self, targets: object, directives: object = None) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Job_control`, by its name in the Standard's appendix."""
        return self.job_control(targets, directives)

    def monitor(self, pymonitor_info: object, code: object, pydirs: object = None) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Process_monitor`."""
        return self._answer(INFOS, asking.monitor, pymonitor_info, code, pydirs)

    def monitor_nb(
        self, pymonitor_info: object, code: object, pydirs: object, cbfunc: object, cbdata: object = None
    ) -> int:
        """`PMIx_Process_monitor_nb`: `cbfunc(status, results, cbdata)`."""
        return self._begin(INFOS, cbfunc, cbdata, asking.monitor, pymonitor_info, code, pydirs)

    def heartbeat(self, dicts: object = None) -> int:
        """`PMIx_Heartbeat`; before `init` it does nothing, with success."""
        return self._do(Heartbeat) if self.initialized() else statuses.SUCCESS

    def get_credential(self, pyinfo: object = None) -> tuple[int, dict[str, Any]]:
        """`PMIx_Get_credential`: returns the status and the credential as a byte object."""
        status, (credential, _infos) = self._answer(CREDENTIAL, asking.get_credential, pyinfo)
        return status, credential

    def get_credential_nb(self, pyinfo: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Get_credential_nb`: `cbfunc(status, credential, infos, cbdata)`."""
        return self._begin(CREDENTIAL, cbfunc, cbdata, asking.get_credential, pyinfo)

    def validate_credential(self, pycred: object, pyinfo: object = None) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Validate_credential`."""
        return self._answer(INFOS, asking.validate_credential, pycred, pyinfo)

    def validate_credential_nb(self, pycred: object, pyinfo: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Validate_credential_nb`: `cbfunc(status, results, cbdata)`."""
        return self._begin(INFOS, cbfunc, cbdata, asking.validate_credential, pycred, pyinfo)

    def group_construct(self, group: object, peers: object, pyinfo: object = None) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Group_construct`: returns the status, and the membership, the context id and further infos.

        With an empty list of peers, other members add the caller (`PMIX_GROUP_ADD_MEMBERS`). None means the whole job.
        """
        return self._answer(GROUP, lambda: asking.group_construct(self._me(), group, peers, pyinfo))

    def construct_group(
        self, grp: object, members: object, directives: object = None
    ) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Group_construct`, by its name in the Standard's appendix."""
        return self.group_construct(grp, members, directives)

    def group_construct_nb(
        self, group: object, peers: object, pyinfo: object, cbfunc: object, cbdata: object = None
    ) -> int:
        """`PMIx_Group_construct_nb`: `cbfunc(status, results, cbdata)`."""
        return self._begin(GROUP, cbfunc, cbdata, lambda: asking.group_construct(self._me(), group, peers, pyinfo))

    def group_invite(self, group: object, peers: object, pyinfo: object = None) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Group_invite`."""
        return self._answer(GROUP, lambda: asking.group_invite(self._me(), group, peers, pyinfo))

    def group_invite_nb(
        self, group: object, peers: object, pyinfo: object, cbfunc: object, cbdata: object = None
    ) -> int:
        """`PMIx_Group_invite_nb`: `cbfunc(status, results, cbdata)`."""
        return self._begin(GROUP, cbfunc, cbdata, lambda: asking.group_invite(self._me(), group, peers, pyinfo))

    def group_join(
        self, group: object, leader: object, opt: object, pyinfo: object = None
    ) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Group_join`: accept (`PMIX_GROUP_ACCEPT`) or decline an invitation."""
        status, found = self._answer(GROUP, lambda: asking.group_join(self._me(), group, leader, opt, pyinfo))
        return status, found

    def group_join_nb(
        self, group: object, leader: object, opt: object, pyinfo: object, cbfunc: object, cbdata: object = None
    ) -> int:
        """`PMIx_Group_join_nb`: `cbfunc(status, results, cbdata)`."""
        return self._begin(GROUP, cbfunc, cbdata, lambda: asking.group_join(self._me(), group, leader, opt, pyinfo))

    def group_leave(self, group: object, pyinfo: object = None) -> int:
        """`PMIx_Group_leave`."""
        return self._do(asking.group_leave, group, pyinfo)

    def group_leave_nb(self, group: object, pyinfo: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Group_leave_nb`: `cbfunc(status, cbdata)`."""
        return self._begin(None, cbfunc, cbdata, asking.group_leave, group, pyinfo)

    def group_destruct(self, group: object, pyinfo: object = None) -> int:
        """`PMIx_Group_destruct`."""
        return self._do(asking.group_destruct, group, pyinfo)

    def group_destruct_nb(self, group: object, pyinfo: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Group_destruct_nb`: `cbfunc(status, cbdata)`."""
        return self._begin(None, cbfunc, cbdata, asking.group_destruct, group, pyinfo)
