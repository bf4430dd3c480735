"""`PMIxServer` of the Standard's Python bindings, over `pypmix.Server`: on either engine, by `PYPMIX_ENGINE`."""

from __future__ import annotations

import logging

from pypmix.compat.client import Peer, PMIxClient
from pypmix.compat.running import attempt, callback, status_of
from pypmix.compat.scalars import refused, to_bytes, to_int, to_key, to_nspace, to_proc, to_procs, to_text
from pypmix.compat.serveranswers import Handler, setmodulefn
from pypmix.compat.serverhost import Hosting
from pypmix.compat.structures import HWLOC, cpus_of, from_cpuset, from_regex2, ranges_of, to_cpuset, to_regex2
from pypmix.compat.values import from_infos, to_infos, to_value
from pypmix.data import DataBuffer
from pypmix.server import Server
from pypmix.standard import codes, ops, statuses
from pypmix.standard.errors import NotInitialized, NotSupported, PMIxError, Unreachable
from pypmix.standard.ops.forwarding import STDIN
from pypmix.standard.structures import Regex2
from pypmix.topology.bitmaps import parse_list
from pypmix.topology.kernel import read_machine
from pypmix.topology.locality import format_locality

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


log = logging.getLogger("pypmix.compat")

RAW = "raw"
"""The name of the encoding of a list of names that leaves the list unchanged."""

OUTER = ("PMIX_SERVER_", "PMIX_NAMESPACE", "PMIX_RANK", "PYPMIX_SERVER")
"""The variables that tie a child to the server of the job that its parent is in."""


def handlers(module: object) -> dict[str, Handler] | None:
    """Return the handlers of a server module; log an error and return None if it is not valid."""
    if not isinstance(module, dict) or not module:
        log.error("a server needs at least one handler of an upcall")
        return None
    for key, function in module.items():
        if setmodulefn(key, function) != statuses.SUCCESS:
            log.error("%r is not an upcall, or %r not a function to handle it", key, function)
            return None
    return {key: Handler(key, function) for key, function in module.items()}


class PMIxServer(PMIxClient):
    """A PMIx server whose host is the program, by a map of handlers.

    Methods return a status, or a tuple of a status and a result, and do not raise. Methods with `cbfunc` call it with a
    status and `cbdata` if they have returned `PMIX_SUCCESS`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hosting: Hosting | None = None

    def init(self, dicts: object = None, map: object = None) -> Any:
        """`PMIx_server_init`: start serving; returns the status.

        Args:
            dicts: Infos, such as `PMIX_SERVER_TMPDIR`.
            map: The handlers of upcalls by their keys. Each takes `(args, cbfunc, cbdata)`, or `args` alone.
        """
        module = handlers(map)
        if module is None:
            return statuses.ERR_INIT
        if self._hosting is not None:
            return statuses.SUCCESS
        status, self._hosting = attempt(lambda: Hosting(to_infos(dicts), module))
        return status

    def finalize(self, dicts: object = None) -> int:
        """`PMIx_server_finalize`: stop serving."""
        hosting, self._hosting = self._hosting, None
        return statuses.ERR_INIT if hosting is None else attempt(hosting.close)[0]

    def initialized(self) -> int:
        """`PMIx_Initialized`: 1 between `init` and `finalize`, else 0."""
        return int(self._hosting is not None)

    # Client methods of a server use its `Hosting`.

    def _host(self) -> Hosting:
        if self._hosting is None:
            raise NotInitialized("the server is not initialized", operation="compat", hint="call init first")
        return self._hosting

    def _port(self) -> Peer | Hosting:
        return self._host()

    def notify_event(
        self,
        status: object,
        pysrc: object,
        range: object,
        pyinfo: object = None,
        cbfunc: object = None,
        cbdata: object = None,
    ) -> int:
        """`PMIx_Notify_event`: notify the clients and tools of this server, and its own handlers, of an event."""

        def notify() -> None:
            hosting = self._host()
            source = hosting.server.proc if pysrc is None else to_proc(pysrc)
            code, where = to_int(codes.STATUS, status), to_int(codes.DATA_RANGE, range)
            event = ops.Notification(code, source, where, to_infos(pyinfo))
            hosting.server.notify(event)
            hosting.events.notify(event)

        return self._optional(cbfunc, cbdata, notify)

    # Methods with an optional callback

    def _optional(self, cbfunc: object, cbdata: object, function: Callable[[], object]) -> int:
        if cbfunc is not None and not callable(cbfunc):
            return statuses.ERR_BAD_PARAM
        status = attempt(function)[0]
        if cbfunc is not None and status == statuses.SUCCESS:
            callback(cbfunc, statuses.SUCCESS, cbdata)
        return status

    def register_nspace(
        self, ns: object, nlocalprocs: int, dicts: object, cbfunc: object = None, cbdata: object = None
    ) -> int:
        """`PMIx_server_register_nspace`: register a job.

        Args:
            ns: The job's namespace.
            nlocalprocs: The number of the job's procs on this server.
            dicts: The infos of the job; missing infos are derived from the maps of nodes and procs.
            cbfunc: Called with a status and `cbdata`.
            cbdata: The last argument of `cbfunc`.
        """

        def register() -> None:
            hosting, nspace = self._host(), to_nspace(ns)
            if not nspace:
                raise refused("an nspace must not be empty")
            hosting.register_nspace(nspace, to_int(codes.INT, nlocalprocs), to_infos(dicts))

        return self._optional(cbfunc, cbdata, register)

    def deregister_nspace(self, ns: object, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_server_deregister_nspace`: deregister a job; succeeds if it is not registered."""
        return self._optional(cbfunc, cbdata, lambda: self._host().deregister_nspace(to_nspace(ns)))

    def register_client(self, proc: object, uid: int, gid: int, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_server_register_client`: register a process of this node, with its user and group."""

        def register() -> None:
            self._host().register_client(to_proc(proc), to_int(codes.UINT32, uid), to_int(codes.UINT32, gid))

        return self._optional(cbfunc, cbdata, register)

    def deregister_client(self, proc: object, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_server_deregister_client`: deregister a process that ended; operations no longer wait for it."""
        return self._optional(cbfunc, cbdata, lambda: self._host().deregister_client(to_proc(proc)))

    def register_resources(self, directives: object, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_server_register_resources`: register infos that do not belong to an nspace."""
        return self._optional(cbfunc, cbdata, lambda: self._host().server.register_resources(to_infos(directives)))

    def deregister_resources(self, directives: object, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_server_deregister_resources`: remove infos of `register_resources`."""
        return self._optional(cbfunc, cbdata, lambda: self._host().server.deregister_resources(to_infos(directives)))

    def deliver_inventory(self, pyinfo: object, pydirs: object, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_server_deliver_inventory`: store the inventory of another node."""
        return self._optional(
            cbfunc, cbdata, lambda: self._host().server.deliver_inventory(to_infos(pyinfo), to_infos(pydirs))
        )

    def setup_local_support(self, ns: object, ilist: object, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_server_setup_local_support`: prepare this node for a job, by the infos of `setup_application`."""
        return self._optional(
            cbfunc, cbdata, lambda: self._host().server.setup_local_support(to_nspace(ns), to_infos(ilist))
        )

    def iof_deliver(
        self,
        pysrc: object,
        pychannel: int,
        pydata: object,
        pydirs: object,
        cbfunc: object = None,
        cbdata: object = None,
    ) -> int:
        """`PMIx_server_IOF_deliver`: deliver the output of a proc."""

        def deliver() -> None:
            channel = to_int(codes.IOF_CHANNEL, pychannel)
            output = ops.Output(to_proc(pysrc), channel, to_bytes(pydata), to_infos(pydirs))
            self._host().server.deliver_output(output)

        return self._optional(cbfunc, cbdata, deliver)

    def iof_flow_control(
        self,
        pysrc: object,
        pychannel: int,
        pyxoff: bool,
        pydirs: object,
        cbfunc: object = None,
        cbdata: object = None,
    ) -> int:
        """`PMIx_server_IOF_flow_control`: ask senders of input to pause; checks its arguments, and has no effect."""

        def control() -> None:
            self._host()
            if to_int(codes.IOF_CHANNEL, pychannel) != STDIN:
                raise NotSupported("only standard input is controlled", operation="iof_flow_control")
            to_infos(pydirs)
            if pysrc is not None:
                to_proc(pysrc)

        return self._optional(cbfunc, cbdata, control)

    def session_control(self, sessionID: int, ilist: object, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_Session_control`: control a session, by the server module's handler.

        Without a handler the status is `PMIX_ERR_UNREACH`, for the lack of a scheduler. `cbfunc` is called with a
        status, infos and `cbdata`.
        """
        if cbfunc is not None and not callable(cbfunc):
            return statuses.ERR_BAD_PARAM
        hosting = self._hosting
        if hosting is None:
            return statuses.ERR_NOT_SUPPORTED if self.initialized() else statuses.ERR_INIT
        status, op = attempt(lambda: ops.SessionControl(to_int(codes.UINT32, sessionID), to_infos(ilist)))
        if op is None:
            return status
        known = "sessioncontrol" in hosting.module
        if cbfunc is None:
            return attempt(hosting.carry_out, op)[0] if known else statuses.ERR_UNREACH
        answer = cbfunc

        def done(result: Any, error: BaseException | None) -> None:
            callback(answer, statuses.SUCCESS if error is None else status_of(error), from_infos(result or ()), cbdata)

        if known:
            return attempt(hosting.begin, op, done)[0]
        done(None, Unreachable("there is no scheduler", operation="session_control"))
        return statuses.SUCCESS

    # Methods without a callback

    def setup_fork(self, proc: object, envin: dict[str, str]) -> int:
        """`PMIx_server_setup_fork`: add the environment variables of the client `proc` to a dict."""

        def setup() -> None:
            env = self._host().server.client_env(to_proc(proc))
            if not isinstance(envin, dict):
                raise refused(f"an environment is a dict, not {envin!r:.80}")
            for name in [name for name in envin if name.startswith(OUTER)]:
                del envin[name]
            envin.update(env)

        return attempt(setup)[0]

    def dmodex_request(self, proc: object, dataout: object = None) -> tuple[int, tuple[bytes | None, int]]:
        """`PMIx_server_dmodex_request`: wait for the data that a local proc commits for other procs, and return it."""
        status, data = attempt(lambda: self._host().server.dmodex_request(to_proc(proc)))
        return status, (data, 0 if data is None else len(data))

    def setup_application(self, ns: object, dicts: object) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_server_setup_application`: return the infos for `setup_local_support` on each node of a job."""
        status, found = attempt(lambda: self._host().server.setup_application(to_nspace(ns), to_infos(dicts)))
        return status, from_infos(found or ())

    def collect_inventory(self, pydirs: object) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_server_collect_inventory`: return the inventory of this node."""
        status, found = attempt(lambda: self._host().server.collect_inventory(to_infos(pydirs)))
        return status, from_infos(found or ())

    def register_attributes(self, function: object, attrs: object) -> int:
        """`PMIx_Register_attributes`: register a function's supported attributes; they are not sent to clients."""

        def register() -> None:
            if function is None:
                raise refused("no function is named")
            name = to_text(function)
            if not attrs:
                return
            known = self._host().attributes
            if name in known:
                raise PMIxError(
                    "they are registered already", status=statuses.ERR_EXISTS, operation="register_attributes"
                )
            if not isinstance(attrs, list | tuple):
                raise refused("a list of attributes is wanted")
            known[name] = tuple([to_key(each) for each in attrs])

        return attempt(register)[0]

    def define_process_set(self, members: object, name: object) -> int:
        """`PMIx_server_define_process_set`: define a process set, and notify clients."""

        def define() -> None:
            hosting, text = self._host(), to_text(name)
            if members is None:
                raise refused("a process set needs members")
            hosting.server.define_process_set(text, to_procs(members), elsewhere=True)
            hosting.psets.add(text)

        return attempt(define)[0]

    def delete_process_set(self, name: object) -> int:
        """`PMIx_server_delete_process_set`: delete a process set."""

        def delete() -> None:
            hosting, text = self._host(), to_text(name)
            hosting.server.delete_process_set(text)
            hosting.psets.discard(text)

        return attempt(delete)[0]

    def store_internal(self, pyproc: object, pykey: object, pyval: object) -> int:
        """`PMIx_Store_internal`: store a value of a proc for gets in this server."""

        def store() -> None:
            hosting = self._host()
            proc = hosting.server.proc if pyproc is None else to_proc(pyproc)
            hosting.store(proc, to_key(pykey), to_value(pyval))

        return attempt(store)[0]

    def collect_job_info(self, peers: object) -> tuple[int, dict[str, Any]]:
        """`PMIx_server_collect_job_info`: return the packed job info of the nspaces of some procs."""

        def collect() -> bytes:
            procs = to_procs(peers)
            if not procs:
                raise refused("no procs are named")
            hosting, buffer = self._host(), DataBuffer()
            for nspace in dict.fromkeys([proc.nspace for proc in procs]):
                (job,) = hosting.named(nspace)
                buffer.pack(codes.STRING, nspace)
                buffer.pack(codes.INFO, *job.given)
            return buffer.bytes()

        status, data = attempt(collect)
        found = data or b""
        return status, {"bytes": found, "size": len(found)}

    # Lists of nodes, ranks and cores

    def _words(self, value: object, separator: str) -> list[str]:
        """Return the words of a list of strings, or of one string, as in the example of the Standard's appendix."""
        self._host()
        if isinstance(value, str | bytes | bytearray):
            return to_text(value).split(separator)
        if not isinstance(value, list | tuple):
            raise refused(f"a list of strings is wanted, not {value!r:.80}")
        return [word for each in value for word in to_text(each).split(separator)]

    def generate_regex(self, hosts: object) -> tuple[int, bytearray]:
        """`PMIx_generate_regex`: return the value of `PMIX_NODE_MAP` for the names of nodes."""
        status, found = attempt(lambda: Server.generate_regex(self._words(hosts, ",")))
        return status, bytearray((found or "").encode())

    def generate_ppn(self, procs: object) -> tuple[int, bytearray]:
        """`PMIx_generate_ppn`: return the value of `PMIX_PROC_MAP` for the ranks on each node, such as `0,1,2`."""
        status, found = attempt(lambda: Server.generate_ppn([cpus_of(ranks) for ranks in self._words(procs, ";")]))
        return status, bytearray((found or "").encode())

    def generate_regex2(self, hosts: object, dicts: object = None) -> tuple[int, dict[str, Any] | None]:
        """`PMIx_generate_regex2`: return an encoded list of names, with the name of the encoding."""

        def generate() -> dict[str, Any]:
            if hosts is None:
                raise refused("no names are given")
            to_infos(dicts)
            return from_regex2(Regex2(RAW, ",".join(self._words(hosts, ",")).encode()))

        return attempt(generate)

    def parse_regex2(self, pyregex: object, dicts: object = None) -> tuple[int, list[str]]:
        """`PMIx_parse_regex2`: return the names in a list of `generate_regex2`."""

        def parse() -> list[str]:
            found = to_regex2(pyregex)
            to_infos(dicts)
            self._host()
            if found.encoding != RAW:
                raise NotSupported(f"the encoding {found.encoding!r} is not known", operation="parse_regex2")
            return [name for name in to_text(found.data).rstrip("\0").split(",") if name]

        status, names = attempt(parse)
        return status, names or []

    def generate_cpuset_string(self, pycpus: object) -> tuple[int, str | None]:
        """`PMIx_server_generate_cpuset_string`: return the cores of a dict as a string such as `hwloc:0-3,8`."""

        def generate() -> str:
            if not isinstance(pycpus, dict) or not pycpus.get("source", HWLOC):
                raise refused(f"a binding is a dict with its source and cpus, not {pycpus!r:.80}")
            found = to_cpuset(pycpus)
            self._host()
            return f"{HWLOC}:{ranges_of(cpus_of(found.cpus or ''))}"

        return attempt(generate)

    def generate_cpuset(self, csetstr: object) -> tuple[int, dict[str, Any]]:
        """`PMIx_server_generate_cpuset`: return the cores in a string such as `hwloc:0-3,8`."""

        def generate() -> dict[str, Any]:
            source, colon, ranges = (to_text(csetstr) if csetstr is not None else "").partition(":")
            if not colon:
                raise refused(f"a cpuset is written as hwloc:0-3, not as {csetstr!r:.40}")
            self._host()
            return from_cpuset(to_cpuset({"source": source, "cpus": ranges}))

        status, found = attempt(generate)
        return status, found or {}

    def generate_locality_string(self, pycpus: object) -> tuple[int, str | None]:
        """`PMIx_server_generate_locality_string`: return the hardware of the cores, such as `SK0:L30:CR0:HT0-1:NM0`."""

        def generate() -> str | None:
            self._host()
            found = to_cpuset(pycpus)
            try:
                return format_locality(read_machine(), parse_list(found.cpus or ""))
            except OSError as error:
                raise NotSupported(str(error), operation="generate_locality_string") from None

        return attempt(generate)
