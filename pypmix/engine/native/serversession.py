"""The native engine's server: one node's `PMIx_server_*` of the library, and its upcalls.

Theory of operation. Four kinds of threads meet here:

- libpmix's progress thread makes the upcalls. It leaves each in a list of the shim's (`upcalls.c`), touches no Python,
  and never waits. It leaves the loss of a client, which the library reports as an event, in the server's inbox.
- The thread "pypmix-upcalls" sleeps in C in `pypmix_upcall_next` until there is an upcall, or something in the server's
  queue or inbox. In each turn it reads one upcall and calls the host, or else handles losses and ended calls.
- An event loop that watches `fileno` (`attach`) may call the host instead, by `poll`. This saves each upcall the
  switch to the thread. The thread then handles upcalls only if `poll` is not called for some time (`STALL` in
  `upcalls.c`); two threads may call the host at a time then.
- Any thread may call the library for the host (`register_nspace`, ...), and answer upcalls. The shim passes answers to
  the progress thread, except for the answers that every release accepts on any thread.

Order: the host is called in the order of the upcalls. The loss of a client is reported after all upcalls that the
client caused before: a turn handles losses only if no upcall is waiting. Marks (`catch_up`) follow the same rule.

A fault on the thread of the upcalls is logged, its upcall is answered with an error, and the thread continues, since
all clients of the node need it. Each wait for a call of the library has a limit: `LIBRARY_SECONDS`, and
`STUCK_SECONDS` after a call that did not return. A process has one libpmix, and so one server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import deque

from pypmix._version import __version__
from pypmix.engine.alarms import Alarms
from pypmix.engine.common import MUNGE, UNCHECKED, EngineInfo, configured_security
from pypmix.engine.faults import traced
from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.connection import arguments
from pypmix.engine.native.library import open_library, usage
from pypmix.engine.native.quirks import ONE_STORE, RAISED_ANYWHERE, SHIFTED
from pypmix.engine.native.serverside.jobinfo import infos_of, size_of
from pypmix.engine.native.serverside.lingering import HASTY, Lingering
from pypmix.engine.native.serverside.modexrequests import RepeatedRequests
from pypmix.engine.native.serverside.node import STATE_CONNECTED, STATE_PREPPED, STATE_TERMINATED, Node, Registered
from pypmix.engine.native.serverside.pendingupcall import PendingUpcall, UpcallNotice, answer, status_of
from pypmix.engine.native.serverside.slots import slots
from pypmix.engine.native.serverside.upcalls import ROWS
from pypmix.engine.native.structs import get_proc, get_strings, put_proc
from pypmix.engine.psets import missing, new_pset
from pypmix.engine.serving import Notes
from pypmix.engine.times import FINALIZE_SECONDS, LIBRARY_SECONDS, STUCK_SECONDS
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.errors import EngineUnavailable, NotFound, NotInitialized, OperationTimeout, PMIxError, error_for
from pypmix.standard.ops import ClientLost
from pypmix.standard.ops.core import instances
from pypmix.standard.ops.events import check_code, check_range
from pypmix.standard.ops.publishing import RANGE_SESSION, RANGES
from pypmix.standard.record import Record
from pypmix.standard.releases import release_text
from pypmix.standard.types import RANK_WILDCARD, Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pypmix.engine.base import Done, OnUpcall, ServerSession, Upcall
    from pypmix.engine.common import Pending
    from pypmix.engine.native.library import Library
    from pypmix.engine.serving import ServerOptions
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.ops import Notification, Output
    from pypmix.standard.types import Value

NULL = ffi.NULL
PENDING = lib.PYPMIX_PENDING

AT_ONCE = "PMIX_MCA_pmix_event_caching_window"
"""The seconds for which the library delays the report of a lost client, to merge several reports; 1 by default."""

SECURITY = "PMIX_MCA_psec"
"""The security modules that the library may use."""

STORES = "PMIX_MCA_gds"
"""The data stores that the library may use; its clients choose among them."""

RENDEZVOUS = "PMIX_LAUNCHER_RNDZ_FILE"
"""The file to which a server writes its address, besides the files that tools look for."""

MOST_AT_ONCE = 64
"""The maximum number of upcalls that one `poll` handles."""

NO_PROC = Proc.unchecked("pypmix.nothing", 0)
"""A proc that does not exist: the library answers a call about it once its thread has worked through its queue."""


class NativeServer:
    """A running server of this node; see `pypmix.engine.base.ServerSession`."""

    def __init__(
        self,
        library: Library,
        on_upcall: OnUpcall,
        proc: Proc,
        hostname: str,
        infos: Sequence[Info],
        settings: dict[str, str],
        on_log: Callable[[str], None] | None,
    ) -> None:
        self.info = EngineInfo("native", release_text(library.release), library.path)
        self.release = library.release
        self.proc = proc
        self.hostname = hostname
        security = configured_security()
        self.node = node = Node(proc, library.release, os.geteuid(), security, self._listened_on)
        self.marshal = node.marshal
        self._ports: frozenset[int] = frozenset()
        self._on_upcall = on_upcall
        self.log = Notes(self.proc, on_log).add
        self._lock = threading.Lock()
        # Reading an upcall changes the node's state, and `poll` may run on another thread than the engine's.
        self._reading = threading.Lock()
        self._attached = False
        self._marks: deque[threading.Event] = deque()
        self._departed: deque[Proc] = deque()
        self._closed = False
        self._modex_requests: dict[int, Done[bytes]] = {}
        self._limit = LIBRARY_SECONDS
        self._alarms = Alarms()
        self._modex = RepeatedRequests(self._ask_modex, self._alarms, self.log)
        self._lingering = Lingering(self._lingered, self._alarms, self.log)
        self._last_token = 0
        if os.environ.get("PYPMIX_SECURITY"):
            # By default the library offers clients all of its modules. It treats each name given here as available.
            settings = {**settings, SECURITY: ",".join([name for name in security if name != UNCHECKED])}
        self._queue = lib.pypmix_queue_new(False)
        if not self._queue:
            raise MemoryError("no memory or no descriptor for a server")
        status = self._init(infos, settings)
        if status:
            lib.pypmix_queue_free(self._queue)
            usage.spent = "it could not be initialised as a server"
            lacking = f"has this libpmix {MUNGE}, and does munged run?" if MUNGE in security else ""
            raise error_for(status)(
                "PMIx_server_init failed", status=status, operation="open", engine=str(self.info), hint=lacking
            )
        usage.spent = "this process is a PMIx server"
        self._box = lib.pypmix_inbox_new(self._queue)
        self._thread = threading.Thread(target=self._serve, name="pypmix-upcalls", daemon=True)
        self._thread.start()
        self._watch_clients()

    def _init(self, infos: Sequence[Info], settings: dict[str, str]) -> int:
        """Initialise the library, with some settings in the environment meanwhile: it reads them only there."""
        before = {name: os.environ.get(name) for name in settings}
        array, count = self.marshal.infos(infos)
        os.environ.update(settings)
        try:
            return int(lib.pypmix_server_init(self._queue, slots(self.release), lib.PYPMIX_UPS, array, count))
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
            lib.pypmix_infos_free(array, count)

    # Upcalls of the library, on the engine's thread

    def _serve(self) -> None:
        while not self._closed:
            try:
                self._turn()
            except BaseException as error:
                # All clients of the node need this thread.
                self.log(f"the thread of the upcalls goes on after a fault here: {traced(error)}")
        self._completions()

    def _turn(self) -> None:
        if raw := lib.pypmix_upcall_next():
            self._upcall(raw)
            return
        # The loss of a client is reported after all its earlier upcalls; a mark is passed after all earlier upcalls.
        marks = len(self._marks)
        try:
            self._departed.extend(self._losses())
            lost = len(self._departed)
            if self._attached:
                if lost:
                    lib.pypmix_queue_signal(self._queue)
            else:
                while raw := lib.pypmix_upcall_take():
                    self._upcall(raw)
                self._tell_lost(lost)
        finally:
            for _ in range(marks):
                self._marks.popleft().set()
        self._completions()
        refused = lib.pypmix_upcalls_lost()
        if refused:
            self.log(f"{refused} upcalls were refused, because too many wait for the host")

    def fileno(self) -> int:
        """Return a descriptor that is readable when upcalls wait, once `attach` was called."""
        return int(lib.pypmix_queue_fd(self._queue))

    def attach(self) -> None:
        """See `ServerSession.attach`: it saves each upcall the switch to the engine's thread."""
        self._attached = True
        lib.pypmix_upcalls_watch(self._queue)

    def poll(self) -> None:
        """Call the host with the upcalls that wait."""
        lib.pypmix_queue_drain(self._queue)
        lost = len(self._departed)
        for _ in range(MOST_AT_ONCE):
            raw = lib.pypmix_upcall_take()
            if not raw:
                break
            self._upcall(raw)
        else:
            lib.pypmix_queue_signal(self._queue)
            return
        self._tell_lost(lost)

    def catch_up(self) -> None:
        """See `ServerSession.catch_up`."""
        # Most releases cannot take the host's answer to a pull of output, and are answered before the host is called.
        if not lib.pypmix_upcalls_ahead():
            return
        mark = threading.Event()
        self._marks.append(mark)
        lib.pypmix_queue_wake(self._queue)
        if not self._closed:
            mark.wait(LIBRARY_SECONDS)

    def trace(self) -> None:
        """See `ServerSession.trace`: the library reports requests only by upcalls."""

    def loop(self) -> None:
        """Do nothing: libpmix runs its threads itself."""

    def settle(self) -> bool:
        """See `ServerSession.settle`: after two losses at once, the library may use a collective after freeing it."""
        # The first loss ends a collective that all other procs of this node have joined. The second loss ends it again
        # unless the library's thread ran in between (openpmix #4112), which corrupts the heap and kills the process.
        for _ in range(4):
            # The first call may be answered in a turn of the library's loop that began before, and so may the second
            # if the thread lost its CPU between the answer and the end of that turn.
            with contextlib.suppress(PMIxError):
                self._call(lib.PYPMIX_DEREGISTER_CLIENT, "deregister_client", Parts(_proc(NO_PROC)), STUCK_SECONDS)
        return True

    def _completions(self) -> None:
        while call := lib.pypmix_queue_pop(self._queue):
            try:
                self._finish_modex(call)
            except Exception as error:
                self.log(f"the end of a call failed because of a fault here: {traced(error)}")

    def _upcall(self, raw: Any) -> None:
        row, node = ROWS[raw.what], self.node
        upcall = PendingUpcall(node, raw, row, self.log)
        try:
            with self._reading:
                node.applicant = None, None
                op = row.read(node, raw)
                applicant = node.applicant
            if op is None:
                upcall.reply()
                return
            upcall.op = op
            if row.asks and raw.sourced:
                upcall.requestor = requestor = get_proc(raw.source)
                upcall.uid, upcall.gid = node.users.get(requestor, applicant)
            elif row.asks:
                upcall.requestor = getattr(op, "proc", None)
                upcall.uid, upcall.gid = applicant
        except Exception as error:
            self.log(f"an upcall of the library could not be read: {traced(error)}")
            answer(raw, status_of(error))
            return
        self._ask(upcall)

    def _ask(self, upcall: Upcall) -> None:
        try:
            self._on_upcall(upcall)
        except BaseException as error:
            self.log(f"the host failed in the upcall {upcall.op!r}: {traced(error)}")
            upcall.fail(error)
            if not isinstance(error, Exception):
                raise

    # Lost clients: the library reports them by an event that only this process gets

    def _watch_clients(self) -> None:
        number = int(lib.pypmix_inbox_number(self._box))
        self._call(
            lib.PYPMIX_REGISTER_EVENT_HANDLER, "open", Parts((codes.STATUS, (statuses.ERR_LOST_CONNECTION,)), number)
        )

    def _losses(self) -> list[Proc]:
        """Empty the inbox, and return the lost clients that its messages name."""
        found = []
        while message := lib.pypmix_inbox_take(self._box):
            try:
                if message.code == statuses.ERR_LOST_CONNECTION:
                    found.append(get_proc(message.source))
                    # One event reports several clients that were lost at the same time.
                    infos = self.marshal.results(message.infos)
                    found += [info.value.data for info in infos if info.key == keys.PROCID]
            except Exception as error:
                self.log(f"the loss of a client cannot be read: {traced(error)}")
            finally:
                lib.pypmix_message_drop(message, statuses.EVENT_NO_ACTION_TAKEN, NULL, 0)
        return found

    def _tell_lost(self, count: int) -> None:
        """Report the first lost clients to the host, on the thread of the engine or of an attached loop."""
        for _ in range(count):
            try:
                proc = self._departed.popleft()
            except IndexError:
                # Another thread has reported the rest.
                return
            self._report_lost_client(proc)

    def _report_lost_client(self, proc: Proc) -> None:
        node = self.node
        if proc in node.users and node.states.get(proc) != STATE_TERMINATED:
            node.states[proc] = STATE_TERMINATED
            self._ask(UpcallNotice(ClientLost(proc), proc, *node.users[proc]))
            self._hasten(proc)

    # Calls of the host, from any thread

    def register_nspace(self, job: JobInfo, local: tuple[int, ...] | None = None) -> None:
        """`PMIx_server_register_nspace`: store the job info of an nspace; see `ServerSession`."""
        size, jobs = size_of(job), self.node.jobs
        here = frozenset(range(size) if local is None else local)
        strange = here.difference(range(size), [rank for rank, _ in job.procs])
        if strange:
            raise ValueError(f"{job.nspace} has no rank {min(strange)} that could be local")
        with self._lock:
            self._check("register_nspace")
            if job.nspace in jobs:
                raise PMIxError(
                    f"the nspace {job.nspace!r} is registered already",
                    status=statuses.ERR_EXISTS,
                    operation="register_nspace",
                )
            jobs[job.nspace] = Registered(job, size, here)
        try:
            parts = Parts(_proc(Proc.unchecked(job.nspace, 0)), len(here), infos_of(job, self.release))
            self._call(lib.PYPMIX_REGISTER_NSPACE, "register_nspace", parts)
        except BaseException:
            del jobs[job.nspace]
            raise

    def deregister_nspace(self, nspace: str) -> None:
        """`PMIx_server_deregister_nspace`: forget an nspace."""
        self.node.forget(nspace)
        self._lingering.drop(nspace)
        if any(proc.nspace == nspace for proc in list(self.node.refused)):
            return
        self._tell(lib.PYPMIX_DEREGISTER_NSPACE, "deregister_nspace", Parts(_proc(Proc.unchecked(nspace, 0))))

    def register_later(self, nspace: str, register: Callable[[ServerSession], None]) -> None:
        """See `ServerSession.register_later`: at once, since the library serves clients without asking."""
        register(self)

    def prepare(self) -> None:
        """See `ServerSession.prepare`: nothing is left to do."""

    def register_client(self, proc: Proc, uid: int, gid: int) -> None:
        """`PMIx_server_register_client`: expect a process of this node, of this user and group."""
        node = self.node
        self._check_known(proc, "register_client")
        if self._lingering.take(proc):
            self._deregister(proc)
        node.users[proc] = uid, gid
        node.states[proc] = STATE_PREPPED
        self._call(lib.PYPMIX_REGISTER_CLIENT, "register_client", Parts(_proc(proc), uid | gid << 32))

    def register_clients(self, procs: Sequence[Proc], uid: int, gid: int) -> None:
        """Expect processes of this node, all of one user and group."""
        for proc in procs:
            self.register_client(proc, uid, gid)

    def deregister_client(self, proc: Proc) -> None:
        """`PMIx_server_deregister_client`: forget a process that has ended; collectives continue without it."""
        self._check("deregister_client")
        states = self.node.states
        state = states.get(proc)
        if state == STATE_PREPPED:
            states[proc] = STATE_TERMINATED
        if state != STATE_CONNECTED:
            if state == STATE_TERMINATED and self.release < HASTY:
                self.settle()
            self._deregister(proc)
            return
        self._lingering.add(proc)
        if states.get(proc) == STATE_TERMINATED:
            # It was reported as lost in between.
            self._hasten(proc)

    def _hasten(self, proc: Proc) -> None:
        """Forget a lingering client, once the library has read its end; collectives wait for it until then."""
        if self._lingering.take(proc):
            self._deregister(proc)

    def _lingered(self, proc: Proc) -> None:
        self._deregister(proc)
        if self.node.states.get(proc) == STATE_CONNECTED:
            # Another process holds its connection open.
            self._departed.append(proc)
            lib.pypmix_queue_wake(self._queue)

    def _deregister(self, proc: Proc) -> None:
        if proc in self.node.refused:
            # See `CLOSING_TWICE`.
            return
        self._tell(lib.PYPMIX_DEREGISTER_CLIENT, "deregister_client", Parts(_proc(proc)))

    def client_env(self, proc: Proc) -> dict[str, str]:
        """`PMIx_server_setup_fork`: return the environment variables that make a process the client `proc`."""
        self._check("client_env")
        name, found = ffi.new("pmix_proc_t *"), ffi.new("char ***")
        put_proc(name[0], proc)
        status = lib.pypmix_server_setup_fork(name, found)
        try:
            self._raise_for(status, "client_env", (proc,))
            env = dict(text.partition("=")[::2] for text in get_strings(found[0]))
        finally:
            lib.pypmix_strings_free(found[0])
        # The nspace is included because a process passes the variable on to clients of another server that it starts.
        return {**env, "PYPMIX_SERVER": f"{self.proc.nspace} {__version__}", "PYPMIX_SERVER_ENGINE": "native"}

    def _listened_on(self) -> frozenset[int]:
        """Return the ports that the library listens on, from the environment that it sets for clients."""
        if not self._ports:
            env = self.client_env(self.proc)
            ports = [text.rpartition(":")[2] for name, text in env.items() if name.startswith("PMIX_SERVER_URI")]
            self._ports = frozenset([int(port) for port in ports if port.isdecimal()])
        return self._ports

    def notify(self, event: Notification) -> None:
        """`PMIx_Notify_event`: deliver an event to the clients of this server that are in its range."""
        check_code(event.code)
        if event.range not in (None, *RANGES):
            raise ValueError(f"{event.range!r} is not a range to notify")
        instances("infos", event.infos, Info)
        span = event.range or RANGE_SESSION
        check_range(span, event.infos)

        flag = RAISED_ANYWHERE if self.release < SHIFTED else 0
        number = span << 32 | event.code & 0xFFFFFFFF | flag
        self._tell(lib.PYPMIX_NOTIFY_EVENT, "notify", Parts(_proc(event.source), number, event.infos))

    def deliver_output(self, output: Output) -> None:
        """`PMIx_server_IOF_deliver`: deliver the output of a proc."""
        data = codes.BYTE_OBJECT, (output.data,)
        parts = Parts(_proc(output.source), output.channel, output.infos, data)
        self._call(lib.PYPMIX_IOF_DELIVER, "deliver_output", parts)

    def dmodex_request(self, proc: Proc, done: Done[bytes], *, key: str = "", timeout: float = 0.0) -> None:
        """`PMIx_server_dmodex_request`: request the data that a proc of this server has committed for others."""
        # The library takes neither a key nor a time limit here: `RepeatedRequests` repeats the request while the key is
        # missing.
        if key or timeout:
            self._modex.request(proc, done, key, timeout)
        else:
            self._ask_modex(proc, done)

    def _ask_modex(self, proc: Proc, done: Done[bytes]) -> None:
        parameters = self._encode_arguments("dmodex_request", Parts(_proc(proc)))
        with self._lock:
            self._last_token += 1
            token = self._last_token
            self._modex_requests[token] = done
        if lib.pypmix_ask_submit(self._queue, token, lib.PYPMIX_DMODEX_REQUEST, parameters):
            del self._modex_requests[token]
            raise MemoryError("no memory for an operation")

    def _finish_modex(self, call: Any) -> None:
        done = self._modex_requests.pop(call.token, None)
        status, data = call.status, b""
        try:
            if not status and call.value:
                data = self.marshal.read(call.value).data or b""
        finally:
            lib.pypmix_call_free(call)
        if done is None:
            return
        try:
            if status:
                done(None, self._error(status, "dmodex_request"))
            else:
                done(data, None)
        except Exception as error:
            self.log(f"the host failed over the answer to dmodex_request: {error!r}")

    def define_process_set(self, name: str, members: tuple[Proc, ...], elsewhere: bool = False) -> None:
        """`PMIx_server_define_process_set`: define a process set for clients."""
        # The library accepts any set, even with a name in use, so `new_pset` checks it first.
        psets = self.node.psets
        with self._lock:
            self._check("define_process_set")
            made = psets[name] = new_pset(name, members, psets, self.node.ranks_of, elsewhere)
        try:
            parts = Parts((codes.PROC, tuple(made)), more=(codes.STRING, (name,)))
            self._call(lib.PYPMIX_DEFINE_PROCESS_SET, "define_process_set", parts)
        except BaseException:
            psets.pop(name, None)
            raise

    def delete_process_set(self, name: str) -> None:
        """`PMIx_server_delete_process_set`: forget a process set."""
        # The library does not report unknown sets.
        with self._lock:
            self._check("delete_process_set")
            if self.node.psets.pop(name, None) is None:
                raise missing(name)
        self._call(lib.PYPMIX_DELETE_PROCESS_SET, "delete_process_set", Parts(more=(codes.STRING, (name,))))

    def setup_application(self, nspace: str, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        """`PMIx_server_setup_application`: prepare the resources that a job needs on its nodes."""
        parts = Parts(_proc(Proc.unchecked(nspace, 0)), infos=directives)
        return self._call(lib.PYPMIX_SETUP_APPLICATION, "setup_application", parts)

    def setup_local_support(self, nspace: str, infos: tuple[Info, ...]) -> None:
        """`PMIx_server_setup_local_support`: set up the resources that a job needs on this node."""
        parts = Parts(_proc(Proc.unchecked(nspace, 0)), infos=infos)
        self._call(lib.PYPMIX_SETUP_LOCAL_SUPPORT, "setup_local_support", parts)

    def collect_inventory(self, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        """`PMIx_server_collect_inventory`: return the inventory of this node."""
        return self._call(lib.PYPMIX_COLLECT_INVENTORY, "collect_inventory", Parts(infos=directives))

    def deliver_inventory(self, infos: tuple[Info, ...], directives: tuple[Info, ...]) -> None:
        """`PMIx_server_deliver_inventory`: store the inventory of other nodes."""
        parts = Parts((codes.INFO, infos), infos=directives)
        self._call(lib.PYPMIX_DELIVER_INVENTORY, "deliver_inventory", parts)

    def register_resources(self, infos: tuple[Info, ...]) -> None:
        """`PMIx_server_register_resources`: store infos that do not belong to an nspace."""
        self._call(lib.PYPMIX_REGISTER_RESOURCES, "register_resources", Parts(infos=infos))

    def deregister_resources(self, infos: tuple[Info, ...]) -> None:
        """`PMIx_server_deregister_resources`: forget infos that do not belong to an nspace."""
        self._call(lib.PYPMIX_DEREGISTER_RESOURCES, "deregister_resources", Parts(infos=infos))

    def store_internal(self, proc: Proc, key: str, value: Value) -> None:
        """`PMIx_Store_internal`: store a value of a proc for gets in this process."""
        self._check("store_internal")
        if proc.rank != RANK_WILDCARD or proc.nspace not in self.node.jobs:
            self._check_known(proc, "store_internal")
        self._call(lib.PYPMIX_STORE_INTERNAL, "store_internal", Parts(_proc(proc), infos=(Info(key, value),)))

    def pending(self) -> list[Pending]:
        """Return an empty list: the library does not report pending operations."""
        return []

    def close(self) -> None:
        """`PMIx_server_finalize`: stop serving. May be called twice.

        Upcalls that the host has not answered are dropped. If the library does not return, its thread is abandoned.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._modex.close()
        self._alarms.close()
        lib.pypmix_queue_fail(self._queue, statuses.ERR_LOST_CONNECTION)
        lib.pypmix_inbox_close(self._box)
        finalizer = threading.Thread(target=lib.pypmix_server_finalize, name="pypmix-finalize", daemon=True)
        finalizer.start()
        finalizer.join(FINALIZE_SECONDS)
        lib.pypmix_queue_wake(self._queue)
        if self._thread is not threading.current_thread():
            self._thread.join(FINALIZE_SECONDS)
        while self._marks:
            self._marks.popleft().set()
        # No release can start a second time: it aborts, or answers its clients with errors.
        usage.spent = "it has been a server before, and that was finalized"
        if finalizer.is_alive():
            self.log("PMIx_server_finalize does not come back")

    def forked(self) -> None:
        """See `ServerSession.forked`: the library, its threads and its sockets belong to the parent."""
        self._lock = threading.Lock()
        self._closed = True

    # Calls of the library

    def _tell(self, what: int, operation: str, parts: Parts) -> None:
        """Queue a call of the library that always succeeds, and do not wait for its end."""
        # Hosts make these calls from their loops when processes end. Some releases hang then, or do not report that an
        # event was delivered to all.
        if lib.pypmix_ask_submit(self._queue, 0, what, self._encode_arguments(operation, parts)):
            raise MemoryError("no memory for an operation")

    def _call(self, what: int, operation: str, parts: Parts, most: float = LIBRARY_SECONDS) -> tuple[Info, ...]:
        """Call the library, wait at most `most` seconds for the end of the call, and return the infos of its answer."""
        parameters = self._encode_arguments(operation, parts)
        call = lib.pypmix_call_new()
        if not call:
            lib.pypmix_given_free(parameters)
            raise MemoryError("no memory for an operation")
        try:
            limit = min(self._limit, most)
            end = time.monotonic() + limit
            lib.pypmix_ask(call, self._queue, what, parameters, limit)
            while call.status == PENDING:
                # A signal has ended the wait, and its handler has returned.
                lib.pypmix_wait(call, max(end - time.monotonic(), 0.0))
            if call.status == statuses.ERR_TIMEOUT and end <= time.monotonic():
                if limit == LIBRARY_SECONDS:
                    self.log(f"{self.info} does not come back from {operation}: it hangs, and so do its clients")
                if limit == self._limit:
                    # A caller with several calls must not wait as long for each later call.
                    self._limit = STUCK_SECONDS
                raise OperationTimeout("the library does not come back", operation=operation, engine=str(self.info))
            self._limit = LIBRARY_SECONDS
            self._raise_for(call.status, operation)
            return self.marshal.results(call.results)
        finally:
            lib.pypmix_call_free(call)

    def _encode_arguments(self, operation: str, parts: Parts) -> Any:
        """Return the arguments of a call; the call frees them."""

        def fill(parameters: Any) -> None:
            self._check(operation)
            for array, (kind, items) in ((parameters.items, parts.items), (parameters.more, parts.more)):
                if kind:
                    self.marshal.fill(array, kind, items)
            parameters.number = parts.number
            parameters.infos, parameters.ninfos = self.marshal.infos(parts.infos)

        try:
            return arguments(fill)
        except PMIxError as error:
            error.operation, error.engine = operation, str(self.info)
            raise

    def _check(self, operation: str) -> None:
        if self._closed:
            raise NotInitialized("the server is closed", operation=operation, engine=str(self.info))

    def _check_known(self, proc: Proc, operation: str) -> None:
        """Raise `NotFound` if a proc is not in a registered job; the library accepts any proc."""
        job = self.node.jobs.get(proc.nspace)
        detail = ""
        if job is None:
            detail = f"no nspace {proc.nspace!r} is registered here"
        elif proc.rank >= job.size and all(rank != proc.rank for rank, _ in job.info.procs):
            detail = f"the nspace {proc.nspace!r} has no rank {proc.rank}"
        if detail:
            raise NotFound(detail, procs=(proc,), operation=operation)

    def _raise_for(self, status: int, operation: str, procs: Sequence[Proc] = ()) -> None:
        if status:
            raise self._error(status, operation, procs)

    def _error(self, status: int, operation: str, procs: Sequence[Proc] = ()) -> PMIxError:
        detail = "the server was closed meanwhile" if self._closed else "the library refused it"
        return error_for(status)(detail, status=status, operation=operation, procs=procs, engine=str(self.info))


class Parts(Record):
    """The arguments of a call: elements of a type, a number, infos, and more elements."""

    items: tuple[int, Sequence[Any]] = (0, ())
    number: int = 0
    infos: Sequence[Info] = ()
    more: tuple[int, Sequence[Any]] = (0, ())


def _proc(proc: Proc) -> tuple[int, tuple[Proc]]:
    return codes.PROC, (proc,)


def open_server(
    on_upcall: OnUpcall,
    options: ServerOptions,
    library: Library,
    on_log: Callable[[str], None] | None = None,
) -> NativeServer:
    """Start a server of this node (`PMIx_server_init`).

    Args:
        on_upcall: Called with each `Upcall`, on the server's own thread; it must not block, and may answer later from
            any thread.
        options: Its options.
        library: The result of `find_library`.
        on_log: Called with each message for the person who runs the server; by default messages go to the logger
            `pypmix.server`. The library itself writes to standard error.

    Raises:
        EngineUnavailable: The library cannot be loaded, or this process uses it already: as a server, a client or a
            tool.
        PMIxError: The library does not start.
    """
    open_library(library)
    reason = usage.spent
    if usage.opened or usage.tool:
        reason = f"this process is a PMIx {'tool' if usage.tool else 'client'}"
    if reason:
        raise EngineUnavailable(
            f"libpmix {release_text(library.release)} cannot serve in this process: {reason}",
            operation="open",
            engine=f"native {release_text(library.release)}",
            hint="start one server per process, or use PYPMIX_ENGINE=python",
        )
    proc, hostname = options.proc, options.hostname or socket.gethostname()
    infos = [
        attrs.SERVER_NSPACE(proc.nspace),
        attrs.SERVER_RANK(proc.rank),
        attrs.HOSTNAME(hostname),
        attrs.SERVER_TMPDIR(options.folder),
        # Output goes to the procs that request it; by default, the library also writes it to this process's stdout.
        attrs.IOF_LOCAL_OUTPUT(False),
    ]
    if options.system_tmpdir:
        infos.append(attrs.SYSTEM_TMPDIR(options.system_tmpdir))
    if options.tool_support:
        infos.append(attrs.SERVER_TOOL_SUPPORT(True))
    if options.system_server:
        infos.append(attrs.SERVER_SYSTEM_SUPPORT(True))
    settings = {AT_ONCE: "0", **({RENDEZVOUS: options.rendezvous_file} if options.rendezvous_file else {})}
    settings.update({STORES: "hash"} if library.release < ONE_STORE and STORES not in os.environ else {})
    return NativeServer(library, on_upcall, proc, hostname, infos, settings, on_log)
