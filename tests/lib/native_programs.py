"""Programs for the native engine, each run in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from lib import machine, processes

PRELUDE = """
import os, signal, sys, threading, time, warnings
from pypmix.engine.native.library import find_library
from pypmix.engine.native.session import open_client
from pypmix.standard.codes import *
from pypmix.standard.errors import *
from pypmix.standard.statuses import *
from pypmix.standard.ops import *
from pypmix.standard.structures import *
from pypmix.standard.types import *
from pypmix.standard.values import *

def opened():
    return open_client(os.environ, find_library(os.environ).library)

def caught(kind, call, *args):
    try:
        result = call(*args)
    except kind as error:
        return error
    raise AssertionError(f"{result!r} instead of {kind.__name__}")

def wait_for_key(session, proc, key):
    while True:
        try:
            return session.run(Get(proc, key))
        except (NotFound, OperationTimeout):
            pass

def submitted(session, op, seconds=10):
    ended, outcome = threading.Event(), []
    def done(result, error):
        outcome.append((result, error))
        ended.set()
    session.submit(op, done)
    assert ended.wait(seconds), f"{op} did not end"
    assert len(outcome) == 1
    return outcome[0]

OPTIONAL = Info("pmix.optional", Value(BOOL, True))
IMMEDIATE = Info("pmix.immediate", Value(BOOL, True))
LIMIT = Info("pmix.timeout", Value(INT, 1))
me = opened()
job = Proc(me.proc.nspace, RANK_WILDCARD)
other = Proc(me.proc.nspace, 1 - me.proc.rank) if me.proc.rank < 2 else None
"""


def python(code: str, folder: Path) -> list[str]:
    path = folder / "program.py"
    path.write_text(PRELUDE + code)
    return [sys.executable, str(path)]


def environment(**more: str) -> dict[str, str]:
    """Return an environment for programs that use this checkout, with what is given."""
    paths = [str(machine.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**machine.clean_environment(), "PYTHONPATH": os.pathsep.join(paths), **more}


def finished(command: list[str], env: dict[str, str], limit: float = 40) -> tuple[int, str]:
    """Run a command and everything that it starts to its end; return its exit code and output."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    env = {**env, processes.MARK: mark}
    try:
        done = subprocess.run(
            command, env=env, timeout=limit, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    finally:
        processes.kill(mark)
    return done.returncode, done.stdout.decode(errors="replace")


@pytest.fixture(params=[lib.release for lib in machine.libraries()] or ["none"])
def lone(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """Run code as a process that nobody launched, on each libpmix."""
    lib = machine.library(request.param)
    if lib is None or not machine.extension():
        machine.lacking("a libpmix or the native engine's extension")
    path = lib.path

    def run(code: str, **env: str) -> str:
        code_, output = finished(python(code, tmp_path), environment(PYPMIX_LIBPMIX=path, **env))
        assert code_ == 0, output
        return output

    return run


def launch(name: str, ranks: int, command: list[str], env: dict[str, str], limit: float = 40) -> tuple[int, str]:
    """Run a command by a launcher, with a TMPDIR of its own; return its exit code and output.

    PRRTE names its files by its pid and does not begin where they are there already, and one that was killed leaves its
    own behind (`listener-thread-start`).
    """
    launcher = machine.launcher(name)
    assert launcher is not None
    options = machine.PRTERUN_OPTIONS if name.startswith("prterun") else machine.MPIRUN_OPTIONS
    line = [launcher.path, *options, "-n", str(ranks), *command]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return finished(line, {**env, "TMPDIR": folder}, limit)


@pytest.fixture(params=[found.name for found in machine.launchers()] or ["none"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """Run code as the two ranks of a job under each native launcher, with the launcher's own libpmix."""
    if machine.launcher(request.param) is None or not machine.extension():
        machine.lacking("a native launcher or the native engine's extension")

    def run(code: str, code_expected: int | None = 0) -> str:
        code_, output = launch(request.param, 2, python(code, tmp_path), environment())
        if code_expected is not None:
            assert code_ == code_expected, output
        return output

    run.launcher = request.param  # type: ignore[attr-defined]
    return run


def orphans(launcher_name: str, code: str, folder: Path, *prefix: str) -> list[str]:
    """Run code as two ranks of which rank 0 kills the launcher; return what each leaves in its `report`.

    Nobody forwards the output of such ranks. `prefix` is put before the command of each. In the code, `both_here()`
    waits for the other rank without the server: a fence that has ended for one rank may be under way for the other.
    """
    body = "\n    ".join(code.strip().splitlines())
    path = folder / "program.py"
    path.write_text(f"""{PRELUDE}
import traceback
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
folder = {str(folder)!r}
report = open(f"{{folder}}/rank{{me.proc.rank}}", "w", buffering=1)
def both_here():
    open(f"{{folder}}/here{{me.proc.rank}}", "w").close()
    end = time.monotonic() + 15
    while not all([os.path.exists(f"{{folder}}/here{{rank}}") for rank in (0, 1)]):
        assert time.monotonic() < end, "the other rank does not come"
        time.sleep(0.005)
try:
    {body}
    report.write("fine\\n")
except BaseException:
    traceback.print_exc(file=report)
""")
    launcher = machine.launcher(launcher_name)
    assert launcher is not None
    options = machine.PRTERUN_OPTIONS if launcher.name.startswith("prterun") else machine.MPIRUN_OPTIONS
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    command = [launcher.path, *options, "-n", "2", *prefix, sys.executable, str(path)]
    started = subprocess.Popen(
        command, env={**environment(TMPDIR=str(folder)), processes.MARK: mark}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert started.wait(30) == -signal.SIGKILL
        hung = processes.wait_gone(mark, 15)
    finally:
        processes.kill(mark)
    reports = [(folder / f"rank{rank}").read_text() for rank in (0, 1)]
    assert not hung, "\n".join(reports)
    return reports


EVENTS = """
LOAD, OTHER = -4242, -4243
PROC_LOCAL, LOCAL = 7, 2
COMPLETE = -334

def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)

class Heard(list):
    # a handler that notes what it gets, and answers at once
    def __init__(self, answer=-331, results=()):
        self.answer, self.results, self.ends = answer, results, []
    def __call__(self, delivery):
        self.append(delivery)
        delivery.done(self.answer, self.results)
    @property
    def numbers(self):
        return [info.value.data for delivery in self for info in delivery.notification.infos if info.key == "acme.n"]

def on(function, *codes, run=True, **directives):
    infos = tuple(Info(key.replace("_", "."), value) for key, value in directives.items())
    op = RegisterEventHandler(function, codes, infos, getattr(function, "ends", []).append)
    return me.run(op) if run else submitted(me, op)[0]

def notify(n, code=LOAD, range=PROC_LOCAL, more=()):
    me.run(NotifyEvent(code, range, (Info("acme.n", Value(UINT32, n)), *more)))

def name(text):
    return Value(STRING, text)

YES = Value(BOOL, True)
"""


LEAKED = """
def leaked(work, times):
    # bytes by which the heap has grown per round, once it has settled
    import ctypes, gc
    class Mallinfo(ctypes.Structure):
        names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
        _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Mallinfo
    def used():
        gc.collect()
        info = libc.mallinfo2()
        return info.uordblks + info.hblkhd
    for _ in range(times // 4):
        work()
    before = used()
    for _ in range(times):
        work()
    return (used() - before) / times
"""


# what the client asks and what the host answers, for both processes
TALK = """
FLAG = Info("acme.flag", Value(BOOL, True))
KINDS = (
    Value(BOOL, True), Value(BYTE, 255), Value(INT8, -1), Value(INT16, -300), Value(INT32, -70000),
    Value(INT64, -2**40), Value(UINT8, 255), Value(UINT16, 65535), Value(UINT32, 2**32 - 1), Value(UINT64, 2**64 - 1),
    Value(SIZE, 2**40),
    Value(PID, 17), Value(STATUS, -25), Value(DOUBLE, 0.25), Value(FLOAT, 0.5), Value(STRING, "grüße"),
    Value(STRING, "long " * 2000), Value(BYTE_OBJECT, bytes(range(256))), Value(TIMEVAL, Timeval(3, 4)),
    Value(TIME, 1700000000), Value(PROC, Proc("job", 0)), Value(PROC_RANK, 5), Value(PERSIST, 2), Value(DATA_RANGE, 4),
    Value(PROC_STATE, 6), Value(ENVAR, Envar("A", "b", ":")), Value(COORD, Coord(1, (1, 2, 3))),
    Value(PROC_INFO, ProcInfo(Proc("job", 1), "here", "a.out", 42, 6, 0)),
    Value(DEVICE_DIST, DeviceDistance("u", "eth0", 4, 1, 2)), Value(ENDPOINT, Endpoint("u", "eth0", b"e")),
    Value(PROC_NSPACE, "elsewhere"), array(STRING, ["a", "b"]), array(PROC, [Proc("job", 0), Proc("job", 1)]),
    array(PROC_INFO, [ProcInfo(Proc("job", 1), "there", "b.out", 42, 6, 0)]),
    from_python({"inner": {"deeper": [1, 2]}, "text": "x"}),
)
ALL = tuple(Info(f"acme.{n}", value) for n, value in enumerate(KINDS))
TALKS = [
    (JobControl((Proc("job", 0),), ALL), ALL),
    (JobControl(), ()),
    (AllocationRequest(3, ALL), ALL),
    (ProcessMonitor(Info("acme.watch", Value(UINT32, 3)), -110, ALL), ALL),
    (GetCredential(ALL), Credential(bytes(range(256)), ALL)),
    (GetCredential(), Credential(b"short")),
    (ValidateCredential(b"\\0some\\0thing", ALL), ALL),
    (FabricRegister(ALL), ALL),
    (FabricUpdate(2**40), ALL),
    (FabricUpdate(2**64 - 1), ALL[:1]),
]
"""
