"""What ranks and tools ask of `pypmix run`: who waits for whom, tables, job control, clean-up, logs; with real jobs."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time

import pytest

from lib.command import Command, Ended

RANK = """
import os, signal, sys, time
from pathlib import Path
import pypmix
from pypmix import Info, NotFound, NotSupported, PermissionDenied, PMIxError, Proc, Query, Rank, attrs
from pypmix.types import ProcState, typed
def tell(name):
    Path(f"{name}.{me.rank}").write_text(f"{os.getpid()}\\n")
def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)
def status(call):
    try:
        call()
    except PMIxError as error:
        return error.status.name
me = pypmix.Client(engine="python").open()
rank = me.rank
"""

LATE = """
tell("up")
if rank == 3:
    wait("come")
me.fence()
me.close()
"""


def client(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", RANK + text)


def succeeded(ended: Ended) -> Ended:
    assert ended.code == 0, ended.err.decode()
    return ended


def said(process: subprocess.Popen[bytes], count: int) -> list[str]:
    """Wait for the next lines of a command's stderr."""
    assert process.stderr is not None
    return [process.stderr.readline().decode().rstrip("\n") for _ in range(count)]


class Late:
    """A job of four ranks of which the last does not come to the fence."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.process = command.start("run", "-n", 4, *client(LATE))
        self.pids = [int(text) for text in command.wait_for("up", 4)]

    def pending(self) -> dict[str, object]:
        """Wait until all of the others have come, and return what `pypmix top` says."""
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            found = json.loads(succeeded(self.command("top", "--json")).out)
            (server,) = found["servers"]
            if server["pending"] and len(server["pending"][0]["missing"]) == 1:
                return server
        pytest.fail(f"nothing is pending: {found}")

    def end(self) -> Ended:
        (self.command.folder / "come").touch()
        return succeeded(self.command.end(self.process))


def test_top_tells_who_is_waited_for(command: Command) -> None:
    job = Late(command)
    server = job.pending()
    (shown,) = server["jobs"]
    assert [proc["pid"] for proc in shown["procs"]] == job.pids
    assert {proc["state"] for proc in shown["procs"]} == {"CONNECTED"}
    (pending,) = server["pending"]
    nspace = shown["nspace"]
    assert pending["operation"] == "fence"
    node = socket.gethostname()
    rows = [{"proc": f"{nspace}:{rank}", "pid": job.pids[rank], "node": node} for rank in range(4)]
    assert pending["missing"] == rows[3:]
    assert pending["arrived"] == rows[:3]
    time.sleep(0.3)
    lines = succeeded(command("top", "--once")).lines
    assert [line.split()[:4] for line in lines[1:5]] == [
        [nspace, str(rank), str(pid), "CONNECTED"] for rank, pid in enumerate(job.pids)
    ]
    line = next(line for line in lines if line.startswith("fence"))
    before, _, seconds = line.removesuffix(" s)").rpartition(", ")
    assert before == f"fence 3 of 4 procs — waiting for rank 3 (pid {job.pids[3]}"
    assert float(seconds) > pending["seconds"]
    job.end()
    assert command("top", "--once").code == 1


def test_top_on_a_terminal_ends_with_the_server(command: Command) -> None:
    job = Late(command)
    job.pending()
    reader, writer = pty.openpty()
    top = command.start("top", "--interval", 0.2, stdout=writer, stderr=subprocess.PIPE, env={"TERM": "xterm"})
    os.close(writer)
    seen = b""
    ended = False
    deadline = time.monotonic() + 25
    while time.monotonic() < deadline:
        if select.select([reader], [], [], 0.1)[0]:
            try:
                seen += os.read(reader, 65536)
            except OSError:
                break
        if not ended and seen.count(b"fence 3 of 4") > 1:
            ended = True
            job.end()
    os.close(reader)
    assert ended, seen
    _, errors = top.communicate(timeout=10)
    assert top.returncode == 0
    assert b"the server is gone" in errors


ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
@pytest.mark.parametrize("stopped", [False, True])
def test_top_gives_the_terminal_back(command: Command, number: signal.Signals, code: int, stopped: bool) -> None:
    job = Late(command)
    job.pending()
    reader, writer = pty.openpty()
    top = command.start("top", "--interval", 0.2, stdout=writer, stderr=subprocess.PIPE, env={"TERM": "xterm"})
    os.close(writer)
    seen = b""
    sent = 0
    deadline = time.monotonic() + 25
    while time.monotonic() < deadline:
        if select.select([reader], [], [], 0.1)[0]:
            try:
                seen += os.read(reader, 65536)
            except OSError:
                break
        if seen.count(ENTER) == sent + 1 and seen.rpartition(ENTER)[2].count(b"fence 3 of 4"):
            sent += 1
            # No SIGCONT is needed: a process whose group has no shell does not stop.
            top.send_signal(signal.SIGTSTP if stopped and sent == 1 else number)
    os.close(reader)
    _, errors = top.communicate(timeout=10)
    assert (top.returncode, errors) == (code, b"")
    assert seen.count(ENTER) == seen.count(LEAVE) == 1 + stopped
    job.end()


def test_sigusr1_prints_what_is_pending_and_harms_nobody(command: Command) -> None:
    job = Late(command)
    job.pending()
    job.process.send_signal(signal.SIGUSR1)
    first, second, third = said(job.process, 3)
    assert job.end().err == b""
    assert first == "pypmix run: 4 of 4 ranks run"
    assert second.startswith("  fence 4 ranks: 3 of 4 arrived, ")
    assert second.endswith(f"missing: rank 3 (pid {job.pids[3]})")
    names = ", ".join([f"rank {rank} (pid {pid})" for rank, pid in enumerate(job.pids)])
    assert third == f"  initialized and not finalized: {names}"


def test_sigusr1_tells_of_ranks_that_have_ended(command: Command) -> None:
    text = "echo $$ > up.$PMIX_RANK; [ $PMIX_RANK = 1 ] || while [ ! -e come ]; do sleep 0.05; done"
    process = command.start("run", "-n", 2, "sh", "-c", text)
    first, second = command.wait_for("up", 2)
    process.send_signal(signal.SIGUSR1)
    while said(process, 1) == ["pypmix run: 2 of 2 ranks run"]:
        # The launcher has not heard of the end yet.
        said(process, 1)
        process.send_signal(signal.SIGUSR1)
    assert said(process, 2) == [
        f"  running without having initialized: rank 0 (pid {first})",
        f"  rank 1 (pid {second}) exited with code 0",
    ]
    (command.folder / "come").touch()
    assert succeeded(command.end(process)).err == b""


def test_what_is_asked_about_jobs(command: Command) -> None:
    text = """
me.fence()
if rank == 0:
    table = me.query(attrs.QUERY_PROC_TABLE)
    assert [row.proc for row in table] == list(me.job.procs)
    assert table[0].pid == os.getpid() and table[0].state == ProcState.CONNECTED
    assert table[1].executable == "/bin/sleep" or table[1].executable.endswith("/sleep"), table[1]
    assert table[1].state == ProcState.RUNNING and table[1].hostname == table[0].hostname
    assert me.query(attrs.QUERY_PROC_TABLE, proc=me.job[1]) == [table[1]]
    assert me.query(attrs.QUERY_PROC_TABLE, nspace="gone", default=None) is None
    assert me.query(attrs.QUERY_JOB_STATUS) == 0
    assert me.query(attrs.PROC_PID, proc=me.job[1]) == table[1].pid
    assert me.query(attrs.PROC_STATE_STATUS, proc=me.job[1]) == ProcState.RUNNING
    assert me.query(attrs.PROC_PID, default=None) is None
    assert me.query(attrs.PROC_PID, proc=Proc(me.nspace, 9), default=None) is None
    assert 0 < me.query(attrs.TIME_REMAINING) <= 25
    assert me.query(attrs.QUERY_NUM_PSETS) == 0 and me.query(attrs.QUERY_PSET_NAMES) == ""
    assert me.query(attrs.QUERY_PSET_MEMBERSHIP, default=None) is None
    assert "pmix.wdir" in me.query(attrs.QUERY_SPAWN_SUPPORT).split(",")
    assert me.query(attrs.AVAIL_PHYS_MEMORY) > 1 << 26
    keys = me.query(attrs.QUERY_SUPPORTED_KEYS).split(",")
    assert {"pypmix.pending", "pmix.qry.mem", "pmix.qry.ns"} <= set(keys), keys

    memory = me.query(attrs.QUERY_MEMORY_USAGE)
    arrays = [info.value.data.items for info in memory if info.key == "pypmix.memory"]
    own = [{field.key: field.value.data for field in fields} for fields in arrays]
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    assert [each["pmix.procid"] for each in own] == list(me.job.procs)
    assert abs(own[0]["pypmix.memory"] - resident) < resident / 4
    short = me.query(attrs.QUERY_MEMORY_USAGE, info={attrs.QUERY_REPORT_MINMAX: True})
    values = {info.key: info.value.data for info in short}
    assert values["pypmix.memory.min"] < values["pmix.cl.mem.avg"] < values["pypmix.memory.max"]
    assert "pypmix.memory" not in values
    brief = me.query(attrs.QUERY_MEMORY_USAGE, info={attrs.QUERY_REPORT_AVG: True})
    assert [info.key for info in brief] == ["pmix.hname", "pmix.dmn.mem", "pmix.cl.mem.avg"]

    functions = me.query(attrs.QUERY_ATTRIBUTE_SUPPORT, info={attrs.HOST_FUNCTIONS: "all"})
    names = [name for info in functions if info.key == "pmix.host.fns" for name in info.value.data.split(",")]
    assert "PMIx_Job_control" in names and "PMIx_Spawn" in names, functions
    support = me.query(attrs.QUERY_ATTRIBUTE_SUPPORT, info={attrs.HOST_ATTRIBUTES: "PMIx_Job_control"})
    known = [row.key for info in support if info.key == "PMIx_Job_control" for row in info.value.data.items]
    assert "pmix.jctrl.kill" in known, support

    # The same key in two queries, of which only the second has an answer.
    gone, here = (Query((str(attrs.QUERY_PROC_TABLE),), (attrs.NSPACE(name),)) for name in ("gone", me.nspace))
    (found,) = me.raw.query_info([gone, here])
    assert [row.proc for row in found.value.data.items] == list(me.job.procs)
    os.kill(table[1].pid, signal.SIGTERM)
me.close()
"""
    text = text.replace("me.fence()\n", "", 1)
    ended = command("run", "--keep-going", "--timeout", 25, "-n", 1, *client(text), ":", "-n", 1, "sleep", 30)
    assert ended.code == 143
    assert "Traceback" not in ended.err.decode(), ended.err.decode()


def test_the_states_of_those_who_have_ended(command: Command) -> None:
    text = """
me.close() if rank == 2 else None
if rank == 1:
    os._exit(5)
if rank == 3:
    os.kill(os.getpid(), 9)
if rank == 0:
    def states():
        table = me.query(attrs.QUERY_PROC_TABLE)
        codes = {row.proc.rank: me.query(attrs.EXIT_CODE, proc=row.proc, default=None) for row in table}
        return {row.proc.rank: (ProcState(row.state).name, codes[row.proc.rank]) for row in table}
    wanted = {0: ("CONNECTED", None), 1: ("TERM_NON_ZERO", 5), 2: ("TERMINATED", 0), 3: ("ABORTED_BY_SIG", 137),
              4: ("KILLED_BY_CMD", 137)}
    me.control(me.job[4]).kill()
    deadline = time.monotonic() + 25
    while states() != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    print(states() == wanted, states())
    me.close()
if rank == 4:
    time.sleep(30)
"""
    ended = command("run", "--keep-going", "-n", 5, *client(text))
    assert ended.lines[0].startswith("True"), ended


def test_what_was_killed_is_named_with_who_wanted_it(command: Command) -> None:
    text = 'tell("up")\nme.fence()\nif rank == 0: me.control(me.job[1]).kill()\ntime.sleep(30)\n'
    process = command.start("run", "-n", 3, *client(text))
    pids = command.wait_for("up", 3)
    ended = command.end(process)
    assert ended.code == 137
    assert ended.message == (
        f"pypmix run: rank 1 (pid {pids[1]}) was killed by signal 9 (SIGKILL), as rank 0 (pid {pids[0]}) had asked; "
        "2 other ranks were ended"
    )


@pytest.mark.parametrize(("call", "code", "word"), [("terminate", 143, "terminated"), ("kill", 137, "killed")])
def test_a_whole_job_that_is_ended(command: Command, call: str, code: int, word: str) -> None:
    text = f'tell("up")\nme.fence()\nif rank == 0: me.{call}(me.job)\ntime.sleep(30)\n'
    process = command.start("run", "-n", 2, *client(text))
    pids = command.wait_for("up", 2)
    ended = command.end(process)
    assert ended.code == code
    assert ended.message.startswith(f"pypmix run: rank 0 (pid {pids[0]}) had the job {word} by job control")


def test_who_does_not_end_when_asked_is_killed(command: Command) -> None:
    text = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tell("up")
me.fence()
if rank == 0: me.control(me.job[1]).terminate()
time.sleep(30)
"""
    started = time.monotonic()
    ended = command("run", "-n", 2, *client(text))
    assert ended.code == 137
    assert time.monotonic() - started > 4


def test_job_control_that_is_refused(command: Command) -> None:
    text = """
me.fence()
seen = [
    status(lambda: me.control().request(info={attrs.JOB_CTRL_CHECKPOINT: "x", attrs.JOB_CTRL_KILL: True})),
    status(lambda: me.control().request(info={attrs.JOB_CTRL_PREEMPTIBLE: True})),
    status(lambda: me.control(me.job).request()),
    status(lambda: me.control(me.job).request(info={attrs.JOB_CTRL_KILL: False})),
    status(lambda: me.control(me.job).request(info={attrs.JOB_CTRL_SIGNAL: 0})),
    status(lambda: me.control(me.job).request(info={attrs.JOB_CTRL_SIGNAL: 1000})),
    status(lambda: me.control(Proc(me.nspace, 7)).kill()),
    status(lambda: me.control([me.job[0], Proc("gone", 0)]).kill()),
]
if rank == 0: print(seen)
me.fence()
me.close()
"""
    ended = succeeded(command("run", "-n", 2, *client(text)))
    assert ended.lines == [str(["ERR_NOT_SUPPORTED"] * 4 + ["ERR_BAD_PARAM"] * 2 + ["ERR_NOT_FOUND"] * 2)]


def test_context_ids(command: Command) -> None:
    text = """
ids = [me.control().request(info={attrs.GROUP_ASSIGN_CONTEXT_ID: True})[attrs.GROUP_CONTEXT_ID] for _ in range(3)]
me.put("ids", ids)
me.commit()
me.fence(collect=True)
if rank == 0: print(len({id for proc in me.job.procs for id in me.get("ids", proc=proc)}))
me.close()
"""
    assert succeeded(command("run", "-n", 2, *client(text))).lines == ["6"]


def test_clean_up(command: Command) -> None:
    text = """
if rank == 0:
    for name in ("all", "mine"):
        Path(name).mkdir()
        (Path(name) / "file").touch()
    Path("kept").touch()
    me.control().register_cleanup(os.path.abspath("all"), directory=True, recursive=True)
    me.control(me.proc).register_cleanup(os.path.abspath("mine/file"))
    assert status(lambda: me.control().register_cleanup("/etc", directory=True, recursive=True)) == "ERR_NO_PERMISSIONS"
    assert status(lambda: me.control().register_cleanup(os.getcwd(), directory=True)) == "ERR_NO_PERMISSIONS"
    assert status(lambda: me.control().request(info={attrs.REGISTER_CLEANUP: "kept"})) == "ERR_BAD_PARAM"
me.fence()
me.close()
if rank == 1:
    while os.path.exists("mine/file"):
        time.sleep(0.01)
    print(os.path.exists("all/file"), flush=True)
"""
    assert succeeded(command("run", "-n", 2, *client(text))).lines == ["True"]
    assert not (command.folder / "all").exists()
    assert (command.folder / "mine").exists()
    assert (command.folder / "kept").exists()


def test_clean_up_after_a_job_that_fails(command: Command) -> None:
    text = """
Path("file").touch()
me.control().register_cleanup(os.path.abspath("file"))
os.abort()
"""
    assert command("run", "-n", 1, *client(text)).code == 134
    assert not (command.folder / "file").exists()


def test_logs(command: Command) -> None:
    text = """
me.log("plain", to="stdout")
me.log("one\\ntwo\\n", tag=True)
me.log("<at & once>", to="stdout", info={attrs.LOG_XML_OUTPUT: True})
me.log("then", timestamp=True, info={attrs.LOG_TIMESTAMP: 86400})
print(status(lambda: me.log({attrs.LOG_GLOBAL_DATASTORE: True})))
print(status(lambda: me.log({attrs.LOG_GLOBAL_DATASTORE: True, attrs.LOG_STDERR: "partly"})))
three = {attrs.LOG_GLOBAL_DATASTORE: True, attrs.LOG_STDERR: "first", attrs.LOG_STDOUT: "not this"}
print(status(lambda: me.log(three, once=True)))
print(status(lambda: me.log({attrs.LOG_JOB_RECORD: True, attrs.LOG_MSG: "kept"})))
print(status(lambda: me.log({attrs.LOG_STDERR: "x", attrs.LOG_SYSLOG_PRI: 9})))
me.close()
"""
    ended = succeeded(command("run", "-n", 1, "--tag-output", *client(text)))
    nspace = ended.lines[1].split('"')[1]
    assert ended.lines == [
        "plain",
        f'<stdout nspace="{nspace}" rank="0">&lt;at &amp; once&gt;</stdout>',
        "[0]<stdout>: ERR_NOT_SUPPORTED",
        "[0]<stdout>: ERR_PARTIAL_SUCCESS",
        "[0]<stdout>: None",
        "[0]<stdout>: None",
        "[0]<stdout>: ERR_BAD_PARAM",
    ]
    errors = ended.err.decode().splitlines()
    assert errors[:2] == ["[0]<stderr>: one", "[0]<stderr>: two"]
    assert errors[2].endswith(" then")
    assert errors[3:] == ["partly", "first"]


def test_the_logger_of_a_host(command: Command) -> None:
    """A program that runs jobs by itself gets what is logged as records."""
    text = """
import logging, sys
from pypmix.host.job import Application
from pypmix.host.local import LocalHost
class Keep(logging.Handler):
    def emit(self, record):
        text = record.getMessage().partition(": ")[2]
        print(record.levelname, record.source.rank, record.channel, record.created, text)
logging.getLogger("pypmix.log").addHandler(Keep())
logging.getLogger("pypmix.log").setLevel(logging.DEBUG)
outcome = LocalHost((Application((sys.executable, "-c", sys.argv[1])),)).run()
sys.exit(outcome.code)
"""
    rank = (
        RANK
        + "me.log({attrs.LOG_JOB_RECORD: True, attrs.LOG_MSG: 'kept'}, info={attrs.LOG_TIMESTAMP: 86400})\nme.close()\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", text, rank],
        env=command.environment,
        cwd=command.folder,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, b"INFO 0 PMIX_LOG_JOB_RECORD 86400.0 kept\n"), found.stderr.decode()


def test_a_heart_that_stopped_with_its_rank_is_told_of_by_nobody(command: Command) -> None:
    text = """
me.fence()
if rank == 0:
    me.monitors.watch_heartbeat(1)
    me.fence()
    me.close()
    time.sleep(2.5)
else:
    with me.events(pypmix.EventCode.MONITOR_HEARTBEAT_ALERT) as events:
        me.fence()
        try:
            print(events.get(timeout=2.5))
        except pypmix.OperationTimeout:
            print("quiet")
    me.close()
"""
    assert succeeded(command("run", "-n", 2, *client(text))).lines == ["quiet"]


def test_limits_of_years_end_nothing(command: Command) -> None:
    text = """
far = 2**31 - 1
me.fence()
if rank == 0:
    me.monitors.watch_heartbeat(2**32 - 1)
    child = me.spawn(["sleep", "0.5"], info=[attrs.JOB_TIMEOUT(far)])
    print(me.lookup("late", timeout=far), child.wait(far))
else:
    time.sleep(0.3)
    me.publish({"late": 7})
me.fence(timeout=far)
me.close()
"""
    ended = succeeded(command("run", "-n", 2, "--timeout", "99999999", *client(text)))
    assert ended.lines == ["7 0"]
