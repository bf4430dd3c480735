"""The native engine's server: one node's `PMIx_server_*` of the library, and its upcalls.

Upcalls come on libpmix's progress thread, which leaves them in a list of the shim's and touches no Python. One thread
of the engine sleeps in C until there are some, reads them, and calls the host; or somebody else does who watches a
descriptor (`attach`), and the thread looks after him. The host's answer goes to the library from whatever thread it
comes on. libpmix is one per process: so is the server.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque

from pypmix._version import __version__
from pypmix.engine.alarms import Alarms
from pypmix.engine.base import MUNGE, UNCHECKED, EngineInfo, security_modules
from pypmix.engine.faults import fault, traced
from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.events import RAISED_ANYWHERE
from pypmix.engine.native.library import open_library
from pypmix.engine.native.marshal import Marshal
from pypmix.engine.native.quirks import SHIFTED
from pypmix.engine.native.serverside.again import Again
from pypmix.engine.native.serverside.jobinfo import infos_of, size_of
from pypmix.engine.native.serverside.knowledge import STATE_PREPPED, STATE_TERMINATED
from pypmix.engine.native.serverside.lingering import HASTY, Lingering
from pypmix.engine.native.serverside.slots import slots
from pypmix.engine.native.serverside.upcalls import ROWS
from pypmix.engine.native.session import _library
from pypmix.engine.native.structs import get_proc, get_strings, put_proc
from pypmix.engine.psets import missing, new_pset
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.errors import EngineUnavailable, NotFound, NotInitialized, OperationTimeout, PMIxError, error_for
from pypmix.standard.logtext import Limit, printable_lines
from pypmix.standard.ops import ClientLost
from pypmix.standard.ops.core import instances
from pypmix.standard.ops.events import check_code, check_range
from pypmix.standard.ops.publishing import RANGE_SESSION, RANGES
from pypmix.standard.record import Record
from pypmix.standard.releases import release_text
from pypmix.standard.types import MAX_NSLEN, RANK_LOCAL_PEERS, RANK_WILDCARD, Info, Proc, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from pypmix.engine.base import Done, OnUpcall, Pending
    from pypmix.engine.native.library import Library
    from pypmix.engine.native.serverside.upcalls import Row
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.ops import FenceUpcall, Notification, Op, Output
    from pypmix.standard.types import Value

NULL = ffi.NULL
PENDING = lib.PYPMIX_PENDING

LIMIT = 30.0
"""Seconds that a call of the library may take which has nobody to wait for."""

STUCK = 0.2
"""The same once one has taken longer, until another one comes back: the library's progress thread hangs, it seems."""


AT_ONCE = "PMIX_MCA_pmix_event_caching_window"
"""The seconds for which the library keeps the news that a client was lost, in case there are more; 1 by default."""

SECURITY = "PMIX_MCA_psec"
"""The security modules that the library may use."""

RENDEZVOUS = "PMIX_LAUNCHER_RNDZ_FILE"
"""Where a server writes how to reach it, beside the places that tools look at."""

MOST_AT_ONCE = 64
"""How many upcalls one `poll` takes."""

FINALIZE = 10.0
"""Seconds that the library has to finalize; one that does not come back is left behind."""


class Upcall:
    """One question to the host; see `pypmix.engine.base.Upcall`."""

    __slots__ = ("_raw", "_row", "_server", "gid", "op", "requestor", "uid")

    def __init__(self, server: NativeServer, raw: Any, row: Row) -> None:
        self._server = server
        self._row = row
        self._raw = [raw]
        self.op: Op[Any]
        self.requestor: Proc | None = None
        self.uid: int | None = None
        self.gid: int | None = None

    def reply(self, result: object = None) -> None:
        """Answer with a result. Only the first answer counts; a second one is a fault of the host, and logged."""
        try:
            raw = self._raw.pop()
        except IndexError:
            self._again()
            return
        row = self._row
        if row.data:
            self._give_data(raw, result)
        elif row.write is None:
            self._server._answer(raw, statuses.SUCCESS, NULL)
        else:
            self._give(raw, result)

    def fail(self, error: BaseException) -> None:
        """Answer with an error; a `PMIxError` passes its status on to the client."""
        try:
            raw = self._raw.pop()
        except IndexError:
            self._again()
            return
        status = (error.code if isinstance(error, PMIxError) else statuses.ERROR) or statuses.ERROR
        if self._row.refused is not None:
            try:
                result = self._row.refused(self._server, self, status)
            except LookupError:
                pass
            else:
                self._give(raw, result)
                return
        self._server._answer(raw, status, NULL)

    def _again(self) -> None:
        whose = f" of {self.requestor}" if self.requestor else ""
        self._server.log(f"the host replied twice to {self.op.name}{whose}: only the first reply counts")

    def _give(self, raw: Any, result: object) -> None:
        server, write = self._server, self._row.write
        given = ffi.new("pypmix_given *")
        try:
            status = statuses.SUCCESS if write is None else write(server, self, result, given)
        except Exception as problem:
            # Hosts are other people's code: what they return may be anything.
            lib.pypmix_given_free(given)
            self._nonsense(problem)
            status = statuses.ERROR
        server._answer(raw, status, given)

    def _give_data(self, raw: Any, result: object) -> None:
        data = b"" if result is None else result
        if not isinstance(data, bytes):
            self._nonsense(TypeError(f"bytes are wanted, not {type(data).__name__}"))
            self._server._answer(raw, statuses.ERROR, NULL)
        elif lib.pypmix_upcall_answer_bytes(raw, statuses.SUCCESS, data, len(data)):
            self._server._answer(raw, statuses.ERR_NOMEM, NULL)

    def _nonsense(self, problem: Exception) -> None:
        self._server.log(f"the host answered {self.op.name} of {self.requestor} with nonsense: {problem!r}")


class _Told(Upcall):
    """What a host is only told."""

    __slots__ = ()

    def _again(self) -> None:
        """There is nothing to answer."""

    def __init__(self, op: Op[Any], requestor: Proc | None, uid: int | None, gid: int | None) -> None:
        self._raw = []
        self.op = op
        self.requestor = requestor
        self.uid = uid
        self.gid = gid


class Registered(Record):
    """A job that this server knows: its info, how many procs it has, and which of them are here."""

    info: JobInfo
    size: int
    local: frozenset[int]


class NativeServer:
    """A running server of this node; see `pypmix.engine.base.ServerSession`.

    Attributes:
        marshal: What reads and makes the library's structures.
        release: The library's.
        uid: The user whose tools are admitted, besides those of root.
        security: The security modules of which clients may use one.
        cut: The numbers of connections of others that were ended, and that the library has not closed.
        users: The user and the group of each proc that is expected, and of each tool.
        applicant: The user and the group of the tool whose upcall is being read.
        states: How far each proc is that was registered: PMIx's process states.
        jobs: What was registered, by nspace.
        psets: The members of process sets, in their order.
        feeds: What the host delivers, and the ids that it gave it, one for each pull.
        pulling: The pulls that the host has not answered yet.
        fences: Fences that exchange nothing, by their procs as the library writes them.
        last_tool: How many names of tools were made up.
        last_context_id: How many context ids were made up.
    """

    def __init__(
        self,
        library: Library,
        on_upcall: OnUpcall,
        nspace: str | None,
        host: str | None,
        tmpdir: str | None,
        on_log: Callable[[str], None] | None,
        system_tmpdir: str | None,
        tool_support: bool,
        system_server: bool,
        rendezvous_file: str | None,
        rank: int,
    ) -> None:
        self.info = EngineInfo("native", release_text(library.release), library.path)
        self.release = library.release
        self.marshal = Marshal(library.release)
        self.proc = Proc(check_name(nspace or f"pypmix-{os.getpid()}", MAX_NSLEN, "the server's nspace"), rank)
        self.hostname = host or socket.gethostname()
        self.uid = os.geteuid()
        self.security = security_modules(os.environ.get("PYPMIX_SECURITY", "").split(","))
        self.cut: set[int] = set()
        self._ports: frozenset[int] = frozenset()
        self.users: dict[Proc, tuple[int | None, int | None]] = {}
        self.applicant: tuple[int | None, int | None] = None, None
        self.states: dict[Proc, int] = {}
        self.jobs: dict[str, Registered] = {}
        self.psets: dict[str, dict[Proc, None]] = {}
        self.feeds: dict[tuple[frozenset[Proc], int], list[int | None]] = {}
        self.pulling: list[Op[Any]] = []
        self.fences: dict[bytes, FenceUpcall] = {}
        self.last_tool = 0
        self.last_context_id = 0
        self._on_upcall = on_upcall
        self._on_log = on_log
        self._lines = Limit()
        self._lock = threading.Lock()
        # Reading an upcall leaves traces in this object, and `poll` may be on another thread than the engine's.
        self._reading = threading.Lock()
        self._attached = False
        self._marks: deque[threading.Event] = deque()
        self._departed: deque[Proc] = deque()
        self._closed = False
        self._asked: dict[int, Done[bytes]] = {}
        self._limit = LIMIT
        self._alarms = Alarms()
        self._again = Again(self._ask_modex, self._alarms, self.log)
        self._lingering = Lingering(self._deregister, self._alarms, self.log)
        self._last_token = 0
        infos = [attrs.SERVER_NSPACE(self.proc.nspace), attrs.SERVER_RANK(rank), attrs.HOSTNAME(self.hostname)]
        infos.append(attrs.SERVER_TMPDIR(tmpdir or os.environ.get("TMPDIR") or "/tmp"))
        # Output goes to those who ask for it; by default releases write it to this process's own stdout, too.
        infos.append(attrs.IOF_LOCAL_OUTPUT(False))
        if system_tmpdir:
            infos.append(attrs.SYSTEM_TMPDIR(system_tmpdir))
        if tool_support:
            infos.append(attrs.SERVER_TOOL_SUPPORT(True))
        if system_server:
            infos.append(attrs.SERVER_SYSTEM_SUPPORT(True))
        settings = {AT_ONCE: "0", **({RENDEZVOUS: rendezvous_file} if rendezvous_file else {})}
        if os.environ.get("PYPMIX_SECURITY"):
            # The library offers to clients what it has, and takes a module's name for what is to be had.
            settings[SECURITY] = ",".join([name for name in self.security if name != UNCHECKED])
        self._queue = lib.pypmix_queue_new(False)
        if not self._queue:
            raise MemoryError("no memory or no descriptor for a server")
        status = self._init(infos, settings)
        if status:
            lib.pypmix_queue_free(self._queue)
            _library.spent = "it could not be initialised as a server"
            lacking = f"has this libpmix {MUNGE}, and does munged run?" if MUNGE in self.security else ""
            raise error_for(status)(
                "PMIx_server_init failed", status=status, operation="open", engine=str(self.info), hint=lacking
            )
        _library.spent = "this process is a PMIx server"
        self._box = lib.pypmix_inbox_new(self._queue)
        self._thread = threading.Thread(target=self._serve, name="pypmix-upcalls", daemon=True)
        self._thread.start()
        self._watch_clients()

    def _init(self, infos: Sequence[Info], settings: dict[str, str]) -> int:
        """Initialise the library; what it takes from the environment alone is there for that long."""
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

    # What the library asks, on the engine's thread.

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
        # The loss of a client comes after all that it was asked for before, and so does a mark.
        marks = len(self._marks)
        try:
            lost = self._letters()
            if self._attached:
                self._departed.extend(lost)
                if lost:
                    lib.pypmix_queue_signal(self._queue)
            else:
                while raw := lib.pypmix_upcall_take():
                    self._upcall(raw)
                for proc in lost:
                    self._lost(proc)
        finally:
            for _ in range(marks):
                self._marks.popleft().set()
        self._completions()
        refused = lib.pypmix_upcalls_lost()
        if refused:
            self.log(f"{refused} upcalls were refused, because too many wait for the host")

    def fileno(self) -> int:
        """Return a descriptor that is readable when upcalls wait, once somebody has attached."""
        return int(lib.pypmix_queue_fd(self._queue))

    def attach(self) -> None:
        """See `ServerSession.attach`: it saves each upcall the way over the engine's thread."""
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
        for _ in range(lost):
            self._lost(self._departed.popleft())

    def catch_up(self) -> None:
        """See `ServerSession.catch_up`: most releases cannot take a host's answer to a pull, and get one at once."""
        if not lib.pypmix_upcalls_ahead():
            return
        mark = threading.Event()
        self._marks.append(mark)
        lib.pypmix_queue_wake(self._queue)
        if not self._closed:
            mark.wait(LIMIT)

    def _completions(self) -> None:
        while call := lib.pypmix_queue_pop(self._queue):
            try:
                self._ended(call)
            except Exception as error:
                self.log(f"the end of a call failed because of a fault here: {traced(error)}")

    def _upcall(self, raw: Any) -> None:
        row = ROWS[raw.what]
        upcall = Upcall(self, raw, row)
        try:
            with self._reading:
                self.applicant = None, None
                op = row.read(self, raw)
                applicant = self.applicant
            if op is None:
                upcall.op = None  # type: ignore[assignment]
                upcall.reply()
                return
            upcall.op = op
            if row.asks and raw.sourced:
                upcall.requestor = requestor = get_proc(raw.source)
                upcall.uid, upcall.gid = self.users.get(requestor, applicant)
            elif row.asks:
                upcall.requestor = getattr(op, "proc", None)
                upcall.uid, upcall.gid = applicant
        except Exception as error:
            self.log(f"an upcall of the library could not be read: {traced(error)}")
            status = (error.code if isinstance(error, PMIxError) else statuses.ERROR) or statuses.ERROR
            upcall._raw.clear()
            self._answer(raw, status, NULL)
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

    def _answer(self, raw: Any, status: int, given: Any) -> None:
        lib.pypmix_upcall_answer(raw, status, given)

    # Clients that are lost: the library tells by an event of this process alone.

    def _watch_clients(self) -> None:
        def give(given: Any) -> None:
            given.number = int(lib.pypmix_inbox_number(self._box))
            self.marshal.fill(given.items, codes.STATUS, (statuses.ERR_LOST_CONNECTION,))

        self._call(lib.PYPMIX_REGISTER_EVENT_HANDLER, "open", give)

    def _letters(self) -> list[Proc]:
        found = []
        while letter := lib.pypmix_inbox_take(self._box):
            try:
                if letter.code == statuses.ERR_LOST_CONNECTION:
                    found.append(get_proc(letter.source))
                    # One event tells of several that were lost at once.
                    infos = self.marshal.results(letter.infos) if letter.infos.size else ()
                    found += [info.value.data for info in infos if info.key == keys.PROCID]
            except Exception as error:
                self.log(f"the loss of a client cannot be read: {traced(error)}")
            finally:
                lib.pypmix_letter_drop(letter, statuses.EVENT_NO_ACTION_TAKEN, NULL, 0)
        return found

    def _lost(self, proc: Proc) -> None:
        if proc in self.users and self.states.get(proc) != STATE_TERMINATED:
            self.states[proc] = STATE_TERMINATED
            self._ask(_Told(ClientLost(proc), proc, *self.users[proc]))

    def log(self, text: str) -> None:
        """Note something for a person."""
        # Who says it, or how it begins, is what it is about.
        note = self._lines.take(text[:24])
        if note is None:
            return
        text = printable_lines(text) + note
        if self._on_log is not None:
            try:
                self._on_log(text)
            except Exception as error:
                # The host's own code, which is not to end the thread that all need.
                fault("to log what a server does", error)
            return
        import logging

        logging.getLogger("pypmix.server").warning("%s: %s", self.proc, text)

    # Who is where.

    def expand(self, procs: Iterable[Proc]) -> Iterator[Proc]:
        """Yield the procs that these name, with a wildcard as all of its nspace where that is known."""
        for proc in procs:
            if proc.rank in (RANK_WILDCARD, RANK_LOCAL_PEERS) and proc.nspace in self.jobs:
                for rank in range(self.jobs[proc.nspace].size):
                    yield Proc.unchecked(proc.nspace, rank)
            else:
                yield proc

    def all_local(self, procs: Iterable[Proc]) -> bool:
        """Tell whether procs are all of this server."""
        return all(
            proc.nspace in self.jobs and proc.rank in self.jobs[proc.nspace].local for proc in self.expand(procs)
        )

    # What hosts call, from any thread.

    def register_nspace(self, job: JobInfo, local: tuple[int, ...] | None = None) -> None:
        """`PMIx_server_register_nspace`: take in the job info of an nspace; see `ServerSession`."""
        size = size_of(job)
        here = frozenset(range(size) if local is None else local)
        with self._lock:
            self._check("register_nspace")
            if job.nspace in self.jobs:
                raise PMIxError(
                    f"the nspace {job.nspace!r} is registered already",
                    status=statuses.ERR_EXISTS,
                    operation="register_nspace",
                )
            self.jobs[job.nspace] = Registered(job, size, here)

        def give(given: Any) -> None:
            self._proc(given, Proc.unchecked(job.nspace, 0))
            given.number = len(here)
            given.infos, given.ninfos = self.marshal.infos(infos_of(job, self.release))

        try:
            self._call(lib.PYPMIX_REGISTER_NSPACE, "register_nspace", give)
        except BaseException:
            del self.jobs[job.nspace]
            raise

    def deregister_nspace(self, nspace: str) -> None:
        """`PMIx_server_deregister_nspace`: forget an nspace."""
        self.jobs.pop(nspace, None)
        for proc in [proc for proc in list(self.users) if proc.nspace == nspace]:
            self.users.pop(proc, None)
            self.states.pop(proc, None)
        self._lingering.drop(nspace)
        self._tell(
            lib.PYPMIX_DEREGISTER_NSPACE,
            "deregister_nspace",
            lambda given: self._proc(given, Proc.unchecked(nspace, 0)),
        )

    def register_client(self, proc: Proc, uid: int, gid: int) -> None:
        """`PMIx_server_register_client`: expect a process of this node, of this user and group."""
        if proc.nspace not in self.jobs:
            raise NotFound(f"no nspace {proc.nspace!r} is registered here", procs=(proc,), operation="register_client")

        def give(given: Any) -> None:
            self._proc(given, proc)
            given.number = uid | gid << 32

        if self._lingering.take(proc):
            self._deregister(proc)
        self.users[proc] = uid, gid
        self.states[proc] = STATE_PREPPED
        self._call(lib.PYPMIX_REGISTER_CLIENT, "register_client", give)

    def deregister_client(self, proc: Proc) -> None:
        """`PMIx_server_deregister_client`: a process has ended; what waits for it goes on without it."""
        self._check("deregister_client")
        connected = self.states.get(proc) not in (None, STATE_PREPPED)
        if self.states.get(proc) == STATE_PREPPED:
            self.states[proc] = STATE_TERMINATED
        if connected and self.release < HASTY:
            self._lingering.add(proc)
        else:
            self._deregister(proc)

    def _deregister(self, proc: Proc) -> None:
        self._tell(lib.PYPMIX_DEREGISTER_CLIENT, "deregister_client", lambda given: self._proc(given, proc))

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
        # With the nspace, because a process passes it on to the clients of another server that it starts.
        return {**env, "PYPMIX_SERVER": f"{self.proc.nspace} {__version__}", "PYPMIX_SERVER_ENGINE": "native"}

    @property
    def ports(self) -> frozenset[int]:
        """The ports that the library listens on, as it tells its clients."""
        if not self._ports:
            env = self.client_env(self.proc)
            ports = [text.rpartition(":")[2] for name, text in env.items() if name.startswith("PMIX_SERVER_URI")]
            self._ports = frozenset([int(port) for port in ports if port.isdecimal()])
        return self._ports

    def notify(self, event: Notification) -> None:
        """`PMIx_Notify_event`: bring an event to those of this server who are in its range."""
        check_code(event.code)
        if event.range not in (None, *RANGES):
            raise ValueError(f"{event.range!r} is no range to notify")
        instances("infos", event.infos, Info)
        span = event.range or RANGE_SESSION
        check_range(span, event.infos)

        def give(given: Any) -> None:
            self._proc(given, event.source)
            flag = RAISED_ANYWHERE if self.release < SHIFTED else 0
            given.number = span << 32 | event.code & 0xFFFFFFFF | flag
            given.infos, given.ninfos = self.marshal.infos(event.infos)

        self._tell(lib.PYPMIX_NOTIFY_EVENT, "notify", give)

    def deliver_output(self, output: Output) -> None:
        """`PMIx_server_IOF_deliver`: pass on what a proc wrote."""

        def give(given: Any) -> None:
            self._proc(given, output.source)
            given.number = output.channel
            self.marshal.fill(given.more, codes.BYTE_OBJECT, (output.data,))
            given.infos, given.ninfos = self.marshal.infos(output.infos)

        self._call(lib.PYPMIX_IOF_DELIVER, "deliver_output", give)

    def dmodex_request(self, proc: Proc, done: Done[bytes], *, key: str = "", timeout: float = 0.0) -> None:
        """`PMIx_server_dmodex_request`: ask what a proc of this server has committed for others.

        The library knows neither a key nor a time limit here: it is asked again while the key is missing.
        """
        if key or timeout:
            self._again.request(proc, done, key, timeout)
        else:
            self._ask_modex(proc, done)

    def _ask_modex(self, proc: Proc, done: Done[bytes]) -> None:
        given = ffi.new("pypmix_given *")
        self._proc(given, proc)
        with self._lock:
            self._check("dmodex_request")
            self._last_token += 1
            token = self._last_token
            self._asked[token] = done
        if lib.pypmix_ask_submit(self._queue, token, lib.PYPMIX_DMODEX_REQUEST, given):
            del self._asked[token]
            raise MemoryError("no memory for an operation")

    def _ended(self, call: Any) -> None:
        done = self._asked.pop(call.token, None)
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
        """`PMIx_server_define_process_set`: make a process set known to clients.

        The library takes any, even one that there is already, so that it is looked at before.
        """
        with self._lock:
            self._check("define_process_set")
            made = new_pset(name, members, self.psets, self._ranks_of, elsewhere)
            self.psets[name] = made

        def give(given: Any) -> None:
            self.marshal.fill(given.items, codes.PROC, tuple(made))
            self.marshal.fill(given.more, codes.STRING, (name,))

        try:
            self._call(lib.PYPMIX_DEFINE_PROCESS_SET, "define_process_set", give)
        except BaseException:
            self.psets.pop(name, None)
            raise

    def _ranks_of(self, nspace: str) -> range | None:
        job = self.jobs.get(nspace)
        return None if job is None else range(job.size)

    def delete_process_set(self, name: str) -> None:
        """`PMIx_server_delete_process_set`: forget a process set; the library has nothing to say of unknown ones."""
        with self._lock:
            self._check("delete_process_set")
            if self.psets.pop(name, None) is None:
                raise missing(name)
        self._call(
            lib.PYPMIX_DELETE_PROCESS_SET,
            "delete_process_set",
            lambda given: self.marshal.fill(given.more, codes.STRING, (name,)),
        )

    def setup_application(self, nspace: str, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        """`PMIx_server_setup_application`: prepare what a job needs on its nodes."""
        return self._infos(lib.PYPMIX_SETUP_APPLICATION, "setup_application", directives, Proc.unchecked(nspace, 0))

    def setup_local_support(self, nspace: str, infos: tuple[Info, ...]) -> None:
        """`PMIx_server_setup_local_support`: take in what a job needs on this node."""
        self._infos(lib.PYPMIX_SETUP_LOCAL_SUPPORT, "setup_local_support", infos, Proc.unchecked(nspace, 0))

    def collect_inventory(self, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        """`PMIx_server_collect_inventory`: return what this node has."""
        return self._infos(lib.PYPMIX_COLLECT_INVENTORY, "collect_inventory", directives)

    def deliver_inventory(self, infos: tuple[Info, ...], directives: tuple[Info, ...]) -> None:
        """`PMIx_server_deliver_inventory`: take in what other nodes have."""

        def give(given: Any) -> None:
            self.marshal.fill(given.items, codes.INFO, infos)
            given.infos, given.ninfos = self.marshal.infos(directives)

        self._call(lib.PYPMIX_DELIVER_INVENTORY, "deliver_inventory", give)

    def register_resources(self, infos: tuple[Info, ...]) -> None:
        """`PMIx_server_register_resources`: take in info that is of no nspace."""
        self._infos(lib.PYPMIX_REGISTER_RESOURCES, "register_resources", infos)

    def deregister_resources(self, infos: tuple[Info, ...]) -> None:
        """`PMIx_server_deregister_resources`: forget such info."""
        self._infos(lib.PYPMIX_DEREGISTER_RESOURCES, "deregister_resources", infos)

    def store_internal(self, proc: Proc, key: str, value: Value) -> None:
        """`PMIx_Store_internal`: keep a value of a proc for what is asked on this side."""

        def give(given: Any) -> None:
            self._proc(given, proc)
            given.infos, given.ninfos = self.marshal.infos((Info(key, value),))

        self._call(lib.PYPMIX_STORE_INTERNAL, "store_internal", give)

    def pending(self) -> list[Pending]:
        """Return nothing: the library does not tell what is under way."""
        return []

    def close(self) -> None:
        """`PMIx_server_finalize`: stop serving. May be called twice.

        What the host has not answered is dropped. A library that does not come back is left behind, on its thread.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._again.close()
        self._alarms.close()
        lib.pypmix_queue_fail(self._queue, statuses.ERR_LOST_CONNECTION)
        lib.pypmix_inbox_close(self._box)
        finalizer = threading.Thread(target=lib.pypmix_server_finalize, name="pypmix-finalize", daemon=True)
        finalizer.start()
        finalizer.join(FINALIZE)
        lib.pypmix_queue_wake(self._queue)
        if self._thread is not threading.current_thread():
            self._thread.join(FINALIZE)
        while self._marks:
            self._marks.popleft().set()
        # No release starts a second time after that: they abort, or answer their clients with errors.
        _library.spent = "it has been a server before, and that was finalized"
        if finalizer.is_alive():
            self.log("PMIx_server_finalize does not come back")

    def forked(self) -> None:
        """See `ServerSession.forked`: the library, its threads and its sockets are the parent's."""
        self._lock = threading.Lock()
        self._closed = True

    # How the library is called.

    def _tell(self, what: int, operation: str, give: Callable[[Any], None]) -> None:
        """Put a call that only ever succeeds to the library, behind those before it, and do not wait for its end.

        It is what hosts call from their loops when processes end, which is when some releases get stuck, or forget to
        say that an event has been told to all.
        """
        given = self._given(operation, give)
        if lib.pypmix_ask_submit(self._queue, 0, what, given):
            raise MemoryError("no memory for an operation")

    def _call(self, what: int, operation: str, give: Callable[[Any], None]) -> None:
        """Put a call to the library, and wait for its end."""
        call = self._asked_call(what, operation, give)
        lib.pypmix_call_free(call)

    def _infos(self, what: int, operation: str, infos: Sequence[Info], proc: Proc | None = None) -> tuple[Info, ...]:
        """Put a call with infos to the library, and return the infos that it has for an answer."""

        def give(given: Any) -> None:
            if proc is not None:
                self._proc(given, proc)
            given.infos, given.ninfos = self.marshal.infos(infos)

        call = self._asked_call(what, operation, give)
        try:
            return self.marshal.results(call.results)
        finally:
            lib.pypmix_call_free(call)

    def _given(self, operation: str, give: Callable[[Any], None]) -> Any:
        """Return what a call is given, which is freed by it."""
        given = ffi.new("pypmix_given *")
        try:
            self._check(operation)
            give(given)
        except PMIxError as error:
            lib.pypmix_given_free(given)
            raise type(error)(
                error.detail, status=error.code, operation=operation, engine=str(self.info)
            ) from error.__cause__
        except BaseException:
            lib.pypmix_given_free(given)
            raise
        return given

    def _asked_call(self, what: int, operation: str, give: Callable[[Any], None]) -> Any:
        given = self._given(operation, give)
        call = lib.pypmix_call_new()
        if not call:
            lib.pypmix_given_free(given)
            raise MemoryError("no memory for an operation")
        limit = self._limit
        end = time.monotonic() + limit
        lib.pypmix_ask(call, self._queue, what, given, limit)
        status = self._waited(call, end)
        if status == statuses.ERR_TIMEOUT and end <= time.monotonic():
            lib.pypmix_call_free(call)
            if limit == LIMIT:
                self.log(f"{self.info} does not come back from {operation}: it hangs, and so do its clients")
            # Whoever calls it from a loop is not to wait as long for each of the calls that follow.
            self._limit = STUCK
            raise OperationTimeout("the library does not come back", operation=operation, engine=str(self.info))
        self._limit = LIMIT
        if status:
            lib.pypmix_call_free(call)
            self._raise_for(status, operation)
        return call

    def _waited(self, call: Any, end: float) -> int:
        """Return the status of a call; the wait goes on after a signal whose handler returned."""
        try:
            while call.status == PENDING:
                lib.pypmix_wait(call, max(end - time.monotonic(), 0.0))
        except BaseException:
            lib.pypmix_call_free(call)
            raise
        return int(call.status)

    def _proc(self, given: Any, proc: Proc) -> None:
        self.marshal.fill(given.items, codes.PROC, (proc,))

    def _check(self, operation: str) -> None:
        if self._closed:
            raise NotInitialized("the server is closed", operation=operation, engine=str(self.info))

    def _raise_for(self, status: int, operation: str, procs: Sequence[Proc] = ()) -> None:
        if status:
            raise self._error(status, operation, procs)

    def _error(self, status: int, operation: str, procs: Sequence[Proc] = ()) -> PMIxError:
        detail = "the server was closed meanwhile" if self._closed else "the library refused it"
        return error_for(status)(detail, status=status, operation=operation, procs=procs, engine=str(self.info))


def open_server(
    on_upcall: OnUpcall,
    nspace: str | None = None,
    host: str | None = None,
    tmpdir: str | None = None,
    on_log: Callable[[str], None] | None = None,
    system_tmpdir: str | None = None,
    tool_support: bool = False,
    system_server: bool = False,
    rendezvous_file: str | None = None,
    rank: int = 0,
    library: Library | None = None,
) -> NativeServer:
    """Start a server of this node (`PMIx_server_init`).

    Args:
        on_upcall: Called with each `Upcall`, on the server's own thread; it must not block, and may answer later from
            any thread.
        nspace: The server's own name; `pypmix-` and the pid by default.
        host: The name of this node; the system's host name by default.
        tmpdir: The folder that clients are told for temporary files; the system's by default.
        on_log: Told what a person who runs the server should know; by default that goes to the logger
            `pypmix.server`. The library itself writes to standard error.
        system_tmpdir: The folder for what is not of one job; that of the system by default.
        tool_support: Write the rendezvous files by which tools find this server, into `tmpdir`.
        system_server: Be the system server of this node: write that rendezvous file, into `system_tmpdir`.
        rendezvous_file: A further rendezvous file to write.
        rank: The server's own rank in its nspace, where a session has several servers.
        library: What `find_library` found.

    Raises:
        EngineUnavailable: The library cannot be loaded, or this process uses it already: as a server, a client or a
            tool.
        PMIxError: The library does not start.
    """
    assert library is not None
    open_library(library)
    reason = _library.spent
    if _library.opened or _library.tool:
        reason = f"this process is a PMIx {'tool' if _library.tool else 'client'}"
    if reason:
        raise EngineUnavailable(
            f"libpmix {release_text(library.release)} cannot serve in this process: {reason}",
            operation="open",
            engine=f"native {release_text(library.release)}",
            hint="start one server per process, or use PYPMIX_ENGINE=python",
        )
    return NativeServer(
        library,
        on_upcall,
        nspace,
        host,
        tmpdir,
        on_log,
        system_tmpdir,
        tool_support,
        system_server,
        rendezvous_file,
        rank,
    )
