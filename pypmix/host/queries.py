"""Queries: answers about a host's jobs, procs and node beyond the data that the server was given of them.

A table has one function for each key. None stands for no answer, so that the server may answer instead; a query fails
if neither has an answer for any of its keys. Keys of our own start with `pypmix.`: `pypmix.pending` (see `pending`),
and in the answer to `PMIX_QUERY_MEMORY_USAGE` the memory of single procs, in an array for each.
"""

from __future__ import annotations

import os
import time

from pypmix._version import __version__
from pypmix.host import pending
from pypmix.host.launch import find_program
from pypmix.host.notices import job_status
from pypmix.host.rank import CONNECTED
from pypmix.standard import attrs, codes, keys
from pypmix.standard.enums import ProcState
from pypmix.standard.errors import NotFound
from pypmix.standard.ops import QueryInfo
from pypmix.standard.ops.events import is_set
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, ProcInfo, RegAttr, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.engine.common import Pending
    from pypmix.host.manager import Manager
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob

    Answer = Callable[["Subject"], "Value | None"]

MEMORY = "pypmix.memory"
MEMORY_MIN = "pypmix.memory.min"
MEMORY_MAX = "pypmix.memory.max"
"""Resident memory in megabytes, floats like the Standard's figures."""


class Subject:
    """A key of a query: the jobs and ranks that it is about.

    Args:
        host: The host.
        requestor: The requestor, if there is one.
        qualifiers: The query's qualifiers.
        home: The node of the requestor's server; empty for the first node.

    Attributes:
        nspace: The nspace that it is about; None if the requestor is not in a job and names none.
        rank: The rank that it is about, None for all.
        values: The data of the qualifiers, by key.
    """

    def __init__(self, host: Manager, requestor: Proc | None, qualifiers: tuple[Info, ...], home: str = "") -> None:
        self.host = host
        self.requestor = requestor
        self.qualifiers = qualifiers
        self.home = home
        self.values = values = {info.key: info.value.data for info in qualifiers}
        named = values.get(keys.PROCID)
        proc = named if isinstance(named, Proc) else Proc.unchecked("", RANK_WILDCARD)
        nspace, rank = values.get(keys.NSPACE, proc.nspace), values.get(keys.RANK, proc.rank)
        own = requestor.nspace if requestor is not None and requestor.nspace in host.jobs else None
        self.named = isinstance(nspace, str) and bool(nspace)
        self.nspace: str | None = nspace if isinstance(nspace, str) and nspace else own
        self.rank: int | None = rank if isinstance(rank, int) and rank != RANK_WILDCARD else None

    @property
    def jobs(self) -> list[RunningJob]:
        """The jobs that it is about: all if no nspace was named and the requestor, such as a tool, is not in a job."""
        if self.nspace is None:
            return list(self.host.jobs.values())
        job = self.host.jobs.get(self.nspace)
        return [] if job is None else [job]

    @property
    def ranks(self) -> list[tuple[RunningJob, Rank]]:
        """The ranks that it is about."""
        if self.rank is None:
            return [(job, each) for job in self.jobs for each in job.ranks]
        return [(job, found) for job in self.jobs if (found := job.rank(self.rank)) is not None]


# Values.


def array(type: int, items: Iterable[object]) -> Value:
    return Value.unchecked(codes.DATA_ARRAY, DataArray(type, tuple(items)))


def _string(text: str) -> Value:
    return Value.unchecked(codes.STRING, text)


def _float(key: str, number: float) -> Info:
    return Info(key, Value.unchecked(codes.FLOAT, number))


# Procs and jobs.


def state_of(job: RunningJob, rank: Rank) -> int:
    """Return the `ProcState` of a rank."""
    if rank.alive:
        return ProcState.CONNECTED if rank.stage == CONNECTED else ProcState.RUNNING
    if not rank.over:
        return ProcState.PREPPED if job.unlaunched is None else ProcState.FAILED_TO_START
    if rank.signum:
        return ProcState.KILLED_BY_CMD if rank.killer or rank.excused else ProcState.ABORTED_BY_SIG
    if rank.code:
        return ProcState.TERM_NON_ZERO
    return ProcState.TERM_WO_SYNC if rank.blame else ProcState.TERMINATED


def table(host: Manager, ranks: Iterable[tuple[RunningJob, Rank]]) -> list[ProcInfo]:
    """Return the state of ranks, in the form of the Standard's process tables."""
    programs: dict[str, list[str]] = {}
    found = []
    # By rank within each job, whatever the nodes are.
    for job, rank in sorted(ranks, key=lambda pair: (pair[0].number, pair[1].proc.rank)):
        if job.nspace not in programs:
            names = [_program(host, job, number) for number in range(len(job.job.apps))]
            programs[job.nspace] = [names[slot.app] for slot in job.job.slots()]
        program = programs[job.nspace][rank.proc.rank]
        code = 0 if rank.alive else rank.exit_code
        found.append(ProcInfo(rank.proc, rank.node.hostname, program, rank.pid, state_of(job, rank), code))
    return found


def _program(host: Manager, job: RunningJob, number: int) -> str:
    app = job.job.apps[number]
    name = app.program or app.argv[0]
    try:
        return find_program(name, app.environment(host.machine.env), app.wdir)
    except OSError:
        # It existed when the job was started.
        return name


def _table(subject: Subject) -> Value | None:
    jobs = subject.jobs
    return array(codes.PROC_INFO, table(subject.host, subject.ranks)) if jobs else None


def _local_table(subject: Subject) -> Value | None:
    named = subject.values.get(keys.HOSTNAME) or subject.home
    node = subject.host.node_of(subject.requestor)
    if isinstance(named, str) and named:
        node = next((each for each in subject.host.nodes if named in each.names), node)
    ranks = [(job, rank) for job, rank in subject.ranks if rank.node is node]
    return array(codes.PROC_INFO, table(subject.host, ranks)) if subject.jobs else None


def _one(subject: Subject) -> tuple[RunningJob, Rank] | None:
    """Return the rank of the query; None unless it is exactly one."""
    ranks = subject.ranks
    return ranks[0] if subject.rank is not None and len(ranks) == 1 else None


def _exit_code(subject: Subject) -> Value | None:
    found = _one(subject)
    # The process tables that are sent have no field for it.
    return None if found is None or found[1].alive else Value.unchecked(codes.INT, found[1].exit_code)


def _pid(subject: Subject) -> Value | None:
    found = _one(subject)
    return None if found is None or not found[1].pid else Value.unchecked(codes.PID, found[1].pid)


def _state(subject: Subject) -> Value | None:
    found = _one(subject)
    return None if found is None else Value.unchecked(codes.PROC_STATE, int(state_of(*found)))


def _status(subject: Subject) -> Value | None:
    jobs = subject.jobs
    if subject.nspace is None or not jobs:
        return None
    outcome = jobs[0].final_outcome
    return Value.unchecked(codes.STATUS, int(job_status(jobs[0], outcome.code if outcome is not None else 0)))


def _time_remaining(subject: Subject) -> Value | None:
    dues = [due for due in (subject.host.due, *[job.due for job in subject.jobs]) if due is not None]
    if not dues:
        return None
    return Value.unchecked(codes.UINT32, max(0, int(min(dues) - time.monotonic())))


# Pending operations.


def _mine(subject: Subject, item: Pending) -> bool:
    """Return True if this is the query that is being answered."""
    return item.operation == "query_info" and item.arrived == (subject.requestor,)


def entries(host: Manager) -> list[tuple[Pending, pending.Entry]]:
    """Return the pending operations of the server, with all details that the host has of the procs."""
    now = time.monotonic()
    return [(item, _entry(host, item, now)) for item in host.pending()]


def _entry(host: Manager, item: Pending, now: float) -> pending.Entry:
    seconds = max(0.0, now - item.since)
    return pending.Entry(item.operation, item.label, seconds, _rows(host, item.arrived), _rows(host, item.missing))


def _rows(host: Manager, procs: Iterable[Proc]) -> tuple[ProcInfo, ...]:
    rows = []
    for proc in procs:
        found = host.find(proc)
        if found is None:
            rows.append(ProcInfo(proc, None, None, 0, ProcState.UNDEF))
        else:
            job, rank = found
            rows.append(ProcInfo(proc, rank.node.hostname, None, rank.pid, state_of(job, rank)))
    return tuple(rows)


def _pending(subject: Subject) -> Value:
    found = []
    for item, entry in entries(subject.host):
        procs = (*item.arrived, *item.missing)
        if not _mine(subject, item) and (not subject.named or any(proc.nspace == subject.nspace for proc in procs)):
            found.append(entry)
    return pending.pack(found)


# Memory.


def _resident(pid: int) -> float:
    """Return the resident memory of a process in megabytes, 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _memory(subject: Subject) -> Value | None:
    if subject.named and not subject.jobs:
        return None
    # The pids of ranks on other nodes are those of other processes here.
    sizes = [(rank.proc, _resident(rank.pid)) for _, rank in subject.ranks if rank.alive and rank.node.here]
    numbers = [size for _, size in sizes]
    average = is_set(subject.qualifiers, attrs.QUERY_REPORT_AVG.key)
    bounds = is_set(subject.qualifiers, attrs.QUERY_REPORT_MINMAX.key)
    mean = sum(numbers) / len(numbers) if numbers else 0.0
    found = [
        attrs.HOSTNAME(subject.host.node_of(subject.requestor).hostname),
        _float(attrs.DAEMON_MEMORY.key, _resident(os.getpid())),
        _float(attrs.CLIENT_AVG_MEMORY.key, mean),
    ]
    if bounds and numbers:
        found += [_float(MEMORY_MIN, min(numbers)), _float(MEMORY_MAX, max(numbers))]
    if not average and not bounds:
        for proc, size in sizes:
            found.append(Info(MEMORY, array(codes.INFO, (attrs.PROCID(proc), _float(MEMORY, size)))))
    return array(codes.INFO, found)


# The node, and features that a resource manager of one node lacks.


def _physical(_subject: Subject) -> Value:
    return Value.unchecked(codes.UINT64, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _slots(subject: Subject) -> Value:
    return Value.unchecked(codes.UINT32, subject.host.site.room)


def _spawning(_subject: Subject) -> Value:
    from pypmix.host.directives import MET, READERS

    return _string(",".join(sorted({*READERS, *MET})))


def _debug_support(_subject: Subject) -> Value:
    from pypmix.host.debugging import SUPPORTED

    return _string(",".join(SUPPORTED))


# Supported keys and attributes.

OF_THE_NODE = frozenset((attrs.QUERY_MEMORY_USAGE.key, attrs.AVAIL_PHYS_MEMORY.key))
"""Keys that are answered by the requestor's node."""

SIDES = (
    keys.HOST_ATTRIBUTES,
    keys.HOST_FUNCTIONS,
    *(
        keys.SERVER_ATTRIBUTES,
        keys.SERVER_FUNCTIONS,
        keys.CLIENT_ATTRIBUTES,
        keys.CLIENT_FUNCTIONS,
        keys.TOOL_ATTRIBUTES,
        keys.TOOL_FUNCTIONS,
    ),
)

FUNCTIONS = {
    "PMIx_Connect": "",
    "PMIx_Disconnect": "",
    "PMIx_Abort": "",
    "PMIx_Publish": "RANGE PERSISTENCE ACCESS_PERMISSIONS",
    "PMIx_Lookup": "RANGE WAIT TIMEOUT",
    "PMIx_Unpublish": "RANGE",
    "PMIx_Notify_event": "",
    "PMIx_Log": "LOG_STDERR LOG_STDOUT LOG_SYSLOG LOG_LOCAL_SYSLOG LOG_GLOBAL_SYSLOG LOG_SYSLOG_PRI LOG_JOB_RECORD "
    "LOG_MSG LOG_SOURCE LOG_TIMESTAMP LOG_TAG_OUTPUT LOG_TIMESTAMP_OUTPUT LOG_XML_OUTPUT LOG_ONCE",
    "PMIx_Job_control": "JOB_CTRL_SIGNAL JOB_CTRL_KILL JOB_CTRL_TERMINATE JOB_CTRL_PAUSE JOB_CTRL_RESUME "
    "REGISTER_CLEANUP REGISTER_CLEANUP_DIR CLEANUP_RECURSIVE CLEANUP_EMPTY CLEANUP_IGNORE CLEANUP_LEAVE_TOPDIR",
    "PMIx_Process_monitor": "MONITOR_HEARTBEAT MONITOR_HEARTBEAT_TIME MONITOR_HEARTBEAT_DROPS MONITOR_FILE "
    "MONITOR_FILE_SIZE MONITOR_FILE_ACCESS MONITOR_FILE_MODIFY MONITOR_FILE_CHECK_TIME MONITOR_FILE_DROPS MONITOR_ID "
    "MONITOR_CANCEL RANGE",
    "PMIx_Get_credential": "CRED_TYPE",
    "PMIx_Validate_credential": "CRED_TYPE",
}
"""The functions that a host of this kind carries out, and the attributes that it supports with each."""


def _functions() -> dict[str, list[str]]:
    from pypmix.host.directives import MET, READERS

    found = {name: text.split() for name, text in FUNCTIONS.items()}
    known = [attrs.by_key(key) for key in (*READERS, *MET)]
    found["PMIx_Spawn"] = sorted([attribute.name for attribute in known if attribute is not None])
    found["PMIx_Query_info"] = [each.name for key in KEYS if (each := attrs.by_key(key)) is not None]
    return found


def _support(subject: Subject) -> Value | None:
    given = {info.key: info.value.data for info in subject.qualifiers}
    everything = not any(key in given for key in SIDES)
    functions = _functions()
    found = []
    if everything or keys.HOST_ATTRIBUTES in given:
        text = given.get(keys.HOST_ATTRIBUTES)
        wanted = text.split(",") if isinstance(text, str) and text not in ("", "all") else list(functions)
        for name in wanted:
            rows = [_registered(each) for each in functions.get(name, ())]
            if rows:
                found.append(Info(name, array(codes.REGATTR, rows)))
    if everything or keys.HOST_FUNCTIONS in given:
        found.append(Info(keys.HOST_FUNCTIONS, _string(",".join(sorted(functions)))))
    return array(codes.INFO, found) if found else None


def _registered(name: str) -> RegAttr:
    attribute: Any = getattr(attrs, name)
    return RegAttr("PMIX_" + name, attribute.key, attribute.types[0])


KEYS: dict[str, Answer] = {
    attrs.QUERY_JOB_STATUS.key: _status,
    attrs.QUERY_PROC_TABLE.key: _table,
    attrs.QUERY_LOCAL_PROC_TABLE.key: _local_table,
    attrs.EXIT_CODE.key: _exit_code,
    attrs.PROC_PID.key: _pid,
    attrs.PROC_STATE_STATUS.key: _state,
    attrs.QUERY_MEMORY_USAGE.key: _memory,
    attrs.QUERY_SPAWN_SUPPORT.key: _spawning,
    attrs.QUERY_DEBUG_SUPPORT.key: _debug_support,
    attrs.QUERY_QUEUE_LIST.key: lambda _asked: _string(""),
    attrs.QUERY_QUEUE_STATUS.key: lambda _asked: array(codes.INFO, ()),
    # The server answers for the sets that are registered with it.
    attrs.QUERY_NUM_PSETS.key: lambda _asked: None,
    attrs.QUERY_PSET_NAMES.key: lambda _asked: None,
    attrs.QUERY_PSET_MEMBERSHIP.key: lambda _asked: None,
    attrs.QUERY_AVAILABLE_SLOTS.key: _slots,
    attrs.QUERY_ATTRIBUTE_SUPPORT.key: _support,
    attrs.QUERY_SUPPORTED_KEYS.key: lambda _asked: _string(",".join(KEYS)),
    attrs.TIME_REMAINING.key: _time_remaining,
    attrs.AVAIL_PHYS_MEMORY.key: _physical,
    attrs.RM_NAME.key: lambda _asked: _string("pypmix"),
    attrs.RM_VERSION.key: lambda _asked: _string(__version__),
    pending.KEY: _pending,
}
"""The functions that answer, by key."""


def _query(host: Manager, upcall: Upcall) -> None:
    assert isinstance(upcall.op, QueryInfo)
    if any(pending.KEY in query.keys for query in upcall.op.queries):
        host.site.refresh(lambda: host.answer_with(_answer, upcall))
    else:
        _answer(host, upcall)


def _answer(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, QueryInfo)
    often: dict[str, int] = {}
    for query in op.queries:
        for key in query.keys:
            often[key] = often.get(key, 0) + 1
    found = []
    known = False
    for query in op.queries:
        subject = Subject(host, upcall.requestor, query.qualifiers, getattr(upcall, "server", ""))
        for key in query.keys:
            answer = KEYS.get(key)
            value = answer(subject) if answer is not None else None
            known = known or value is not None
            if value is not None:
                found.append(Info(key, value))
            elif answer is not None and often[key] > 1:
                # A placeholder, so that the answer to another query is not taken as the answer to this one.
                found.append(Info(key, Value.unchecked(codes.UNDEF, None)))
    if not known:
        raise NotFound("this host has no answer", operation=op.name)
    upcall.reply(tuple(found))


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {QueryInfo: _query}
