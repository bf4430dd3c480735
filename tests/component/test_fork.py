"""Children that a process forks leave its client and its server alone, and an end without `close` is an orderly one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lib import machine
from lib.native_programs import environment, finished, launch

pytestmark = pytest.mark.timeout(90)

LIBRARIES = [lib.release for lib in machine.libraries()] or ["none"]
PAIRS = [
    f"{server}-{client}"
    for server in ("python", *(f"native.{release}" for release in LIBRARIES))
    for client in ("python", "native")
]

PRELUDE = """
import gc, os, signal, sys, threading, time
signal.alarm(60)
import pypmix
from pypmix import EngineUnavailable, NotInitialized, PMIxError

class Leave(Exception):
    pass

def waited(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@pytest.fixture(params=PAIRS)
def ranks(request: pytest.FixtureRequest, tmp_path: Path):
    """Run code as two ranks of `pypmix run`, with each server and clients of both engines."""
    server, client = request.param.split("-")
    server, _, release = server.partition(".")
    # A native client beside our own server takes any library.
    lib = machine.library(release or LIBRARIES[-1])
    if lib is None or not machine.extension():
        machine.lacking("a libpmix or the native engine's extension")

    def run(code: str, number: int = 2) -> tuple[int, str]:
        path = tmp_path / "program.py"
        path.write_text(PRELUDE + code)
        command = [sys.executable, "-m", "pypmix", "run", "--server-engine", server, "-n", str(number)]
        env = environment(PYPMIX_LIBPMIX=lib.path, PYPMIX_ENGINE=client, SERVER=server)
        return finished([*command, sys.executable, str(path)], env, 70)

    run.client = client  # type: ignore[attr-defined]
    run.server = server  # type: ignore[attr-defined]
    return run


FORKS = """
def main():
    heard = threading.Semaphore(0)
    try:
        with pypmix.Client() as me:
            @me.on(-3001)
            def handler(event):
                heard.release()

            def parent_works():
                me.fence(timeout=20)
                me.notify(-3001, data_range=pypmix.Range.PROC_LOCAL)
                assert heard.acquire(timeout=20)

            me.put("who", me.rank)
            me.fence(collect=True, timeout=20)
            parent_works()

            # A child that ends itself inside of the block, and one that leaves it.
            pid = os.fork()
            if pid == 0:
                sys.exit(5)
            assert waited(pid) == 5
            pid = os.fork()
            if pid == 0:
                raise Leave
            assert waited(pid) == 6
            parent_works()

            # What the child may do, and what it may not.
            pid = os.fork()
            if pid == 0:
                me.rank, me.nspace, me.proc, str(me.engine), me.server, me.singleton
                for ask in (
                    me.fence, me.commit, lambda: me.psets,
                    lambda: me.get("who"), lambda: me.put("a", 1), lambda: me.abort(1), lambda: me.notify(-3001),
                    lambda: me.job.size, lambda: me.supports("fence"),
                ):
                    try:
                        ask()
                    except NotInitialized as error:
                        assert "forked" in str(error) and "another client in the child" in error.hint
                    else:
                        raise AssertionError(ask)
                me.close()
                me.close()
                me.close()
                os._exit(0)
            assert waited(pid) == 0
            parent_works()

            # The parent's objects are collected in the child.
            pid = os.fork()
            if pid == 0:
                del handler
                me.__dict__.clear()
                gc.collect()
                os._exit(0)
            assert waited(pid) == 0
            parent_works()

            # A client of its own.
            pid = os.fork()
            if pid == 0:
                if os.environ["PYPMIX_ENGINE"] == "native":
                    try:
                        pypmix.Client().open()
                    except EngineUnavailable as error:
                        assert "forked" in str(error)
                    else:
                        raise AssertionError("libpmix has opened again")
                if os.environ["SERVER"] == "python":
                    # A native server takes the end of this one for the end of the rank.
                    with pypmix.Client(engine="python") as own:
                        other = own.job[1 - own.rank]
                        assert own.rank == me.rank and own.get("who", other, timeout=10) == other.rank
                os._exit(0)
            assert waited(pid) == 0
            me.get("who", me.job[1 - me.rank], timeout=10)

            # A fork while another thread is in a call.
            thread = threading.Thread(target=lambda: me.fence(timeout=30))
            if me.rank == 0:
                thread.start()
                time.sleep(0.2)
            pid = os.fork()
            if pid == 0:
                sys.exit(4)
            assert waited(pid) == 4
            me.fence(timeout=30) if me.rank else thread.join()

            # Processes of the standard library.
            import subprocess
            assert subprocess.run(["true"], preexec_fn=lambda: None).returncode == 0
            import multiprocessing
            for method in ("fork", "spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    assert pool.map(abs, [-1, -2]) == [1, 2]
            parent_works()
        print("parent", me, flush=True)
    except Leave:
        sys.exit(6)

if __name__ == "__main__":
    main()
"""


def test_children_of_a_client_leave_it_alone(ranks) -> None:
    code, output = ranks(FORKS)
    assert code == 0 and output.count("parent") == 2 and "Traceback" not in output, output


def test_children_of_an_async_client_leave_it_alone(ranks) -> None:
    code, output = ranks("""
import asyncio
from pypmix import aio

async def main():
    async with aio.Client() as me:
        await me.fence(timeout=20)
        pid = os.fork()
        if pid == 0:
            try:
                await me.fence()
            except NotInitialized as error:
                assert "forked" in str(error)
            else:
                os._exit(1)
            await me.close()
            await me.close()
            os._exit(3)
        assert await asyncio.to_thread(waited, pid) == 3
        await me.fence(timeout=20)
        print("parent", flush=True)

asyncio.run(main())
""")
    assert code == 0 and output.count("parent") == 2, output


NATIVE = [found.name for found in machine.launchers()] or ["none"]


@pytest.mark.parametrize("launcher", NATIVE)
@pytest.mark.parametrize("engine", ["python", "native"])
def test_children_under_a_native_launcher(launcher: str, engine: str, tmp_path: Path) -> None:
    if machine.launcher(launcher) is None or not machine.extension():
        machine.lacking("a native launcher or the native engine's extension")
    path = tmp_path / "program.py"
    path.write_text(
        PRELUDE
        + """
with pypmix.Client() as me:
    me.fence(timeout=20)
    pid = os.fork()
    if pid == 0:
        sys.exit(7)
    assert waited(pid) == 7
    me.fence(timeout=20)
    print("parent", flush=True)
"""
    )
    code, output = launch(launcher, 2, [sys.executable, str(path)], environment(PYPMIX_ENGINE=engine))
    assert code == 0 and output.count("parent") == 2 and "Traceback" not in output, output


# The end of a process with a client that is open


@pytest.mark.parametrize("kind", ["Client", "aio.Client", "Tool"])
def test_a_client_that_is_not_closed_is_finalized_at_exit(ranks, kind: str) -> None:
    opening = {
        "Client": "me = pypmix.Client().open()",
        "aio.Client": "import asyncio; from pypmix import aio; me = asyncio.run(aio.Client().open())",
        "Tool": "me = pypmix.Client().open(); tool = pypmix.Tool(engine='python').open()",
    }[kind]
    code, output = ranks(f"{opening}\nprint('rank', me.rank, flush=True)")
    assert code == 0 and output.count("rank") == 2, output


def test_a_client_is_finalized_even_if_nobody_holds_it(ranks) -> None:
    code, output = ranks("pypmix.Client().open().put('a', 1)\ngc.collect()\nprint('end', flush=True)")
    assert code == 0 and output.splitlines().count("end") == 2, output


def test_an_exit_code_stays_that_of_the_process(ranks) -> None:
    code, output = ranks("me = pypmix.Client().open()\nsys.exit(3)", 1)
    assert code == 3 and "code 3" in output and "without calling finalize" not in output, output


def test_an_uncaught_exception_is_no_orderly_end(ranks) -> None:
    code, output = ranks("""
me = pypmix.Client().open()
if me.rank:
    raise ValueError("mine")
try:
    me.fence(timeout=30)
except PMIxError:
    time.sleep(30)
""")
    assert code == 1 and "ValueError: mine" in output, output
    assert "rank 1" in output and "without calling finalize" in output, output


def test_the_end_waits_for_no_server_that_is_gone(tmp_path: Path) -> None:
    """The server's process is stopped: the end of a client takes the time of a finalize without an answer, no more."""
    program = (
        PRELUDE
        + """
import signal
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix import Proc
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    server = pypmix.Server().open()
    nodes = (NodeLayout("here", (0,)),)
    job = JobLayout("job", (Application(("prog",), 1),), nodes, session=7, wdir="/tmp")
    server.register_nspace(job)
    server.register_client(Proc("job", 0))
    os.write(write, repr(server.client_env(Proc("job", 0))).encode())
    signal.pause()
env = eval(os.read(read, 65536))
me = pypmix.Client(engine="python", env=env).open()
os.kill(pid, signal.SIGSTOP)
print("end", flush=True)
"""
    )
    path = tmp_path / "program.py"
    path.write_text(program)
    code, output = finished([sys.executable, str(path)], environment(), 60)
    assert code == 0 and "end" in output, output


# Servers


SERVERS = """
import subprocess
from pypmix import Proc, Server
from pypmix.host.job import Application, JobLayout, NodeLayout

def start(server, rank):
    proc = Proc("job", rank)
    server.register_client(proc)
    env = {name: text for name, text in os.environ.items() if not name.startswith("PMIX_")}
    env.update(server.client_env(proc), PYPMIX_ENGINE="python")
    code = "import pypmix; me = pypmix.Client().open(); print('in', flush=True); input(); me.fence(timeout=20)"
    child = subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"in\\n"
    return child

try:
    with Server(engine=sys.argv[1], tool_support=True, tmpdir=os.getcwd()) as server:
        nodes = (NodeLayout("here", (0, 1)),)
        server.register_nspace(JobLayout("job", (Application(("prog",), 2),), nodes, session=7, wdir="/tmp"))
        first = start(server, 0)
        files = sorted(os.listdir("."))
        for how in ("exit", "leave", "close"):
            pid = os.fork()
            if pid == 0:
                if how == "exit":
                    sys.exit(5)
                if how == "leave":
                    raise Leave
                for ask in (lambda: server.client_env(Proc("job", 0)), lambda: server.proc):
                    try:
                        ask()
                    except NotInitialized as error:
                        assert "child" in error.hint
                    else:
                        os._exit(1)
                server.close()
                del server
                gc.collect()
                os._exit(7)
            assert waited(pid) == {"exit": 5, "leave": 6, "close": 7}[how]
        assert sorted(os.listdir(".")) == files
        second = start(server, 1)
        for child in (first, second):
            child.stdin.write(b"go\\n")
            child.stdin.flush()
        assert [child.wait(40) for child in (first, second)] == [0, 0]
        print("parent", flush=True)
except Leave:
    sys.exit(6)
"""


@pytest.mark.parametrize("engine", ["python", *(f"native.{release}" for release in LIBRARIES)])
def test_children_of_a_server_leave_it_alone(engine: str, tmp_path: Path) -> None:
    engine, _, release = engine.partition(".")
    lib = machine.library(release or LIBRARIES[-1])
    if engine == "native" and (lib is None or not machine.extension()):
        machine.lacking("a libpmix or the native engine's extension")
    path = tmp_path / "program.py"
    path.write_text(PRELUDE + SERVERS)
    folder = tmp_path / "files"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(path), engine],
        cwd=folder,
        env=environment(**({"PYPMIX_LIBPMIX": lib.path} if lib is not None else {})),
        capture_output=True,
        text=True,
        timeout=80,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0 and "parent" in done.stdout and "Traceback" not in done.stderr, done.stderr


def test_the_clients_of_a_server_that_is_killed_hear_of_it_although_a_child_of_it_lives(tmp_path: Path) -> None:
    """A child that kept the server's sockets would keep its clients waiting."""
    path = tmp_path / "program.py"
    path.write_text(
        PRELUDE
        + """
import signal
from pypmix import Proc, Server, LostConnection
from pypmix.host.job import Application, JobLayout, NodeLayout
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    server = Server().open()
    nodes = (NodeLayout("here", (0, 1)),)
    job = JobLayout("job", (Application(("prog",), 2),), nodes, session=7, wdir="/tmp")
    server.register_nspace(job)
    server.register_client(Proc("job", 0))
    os.write(write, repr(server.client_env(Proc("job", 0))).encode())
    while not os.path.exists("connected"):
        time.sleep(0.05)
    # A worker of the host, which outlives it.
    worker = os.fork()
    if worker == 0:
        open("forked", "w").write(str(os.getpid()))
        time.sleep(50)
        os._exit(0)
    time.sleep(50)
env = eval(os.read(read, 65536))
me = pypmix.Client(engine="python", env=env).open()
open("connected", "w").close()
while not os.path.exists("forked") or not open("forked").read():
    time.sleep(0.05)
worker = int(open("forked").read())
try:
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    try:
        me.fence(timeout=20)
    except LostConnection:
        print("heard", flush=True)
finally:
    os.kill(worker, signal.SIGKILL)
"""
    )
    env = environment()
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert "heard" in done.stdout, done.stderr


def test_the_children_of_a_host_end_none_of_its_jobs(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        PRELUDE
        + """
from pypmix.host import Host
try:
    with Host() as rm:
        pid = os.fork()
        if pid == 0:
            try:
                rm.loop
            except NotInitialized:
                raise Leave
            os._exit(1)
        assert waited(pid) == 6
        assert rm.loop.is_running()
        print("parent", rm.server.proc, flush=True)
except Leave:
    sys.exit(6)
"""
    )
    # Python 3.12 warns of forks of processes with threads.
    env = {**environment(), "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    done = subprocess.run([sys.executable, str(path)], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "parent" in done.stdout and not done.stderr, done.stderr


def test_a_lone_process_may_fork_as_well() -> None:
    code = (
        PRELUDE
        + """
me = pypmix.Client(env={}).open()
pid = os.fork()
if pid == 0:
    try:
        me.put("a", 1)
    except NotInitialized:
        with pypmix.Client(env={}) as own:
            own.put("a", 1)
        sys.exit(8)
assert waited(pid) == 8
me.put("a", 1)
"""
    )
    env = {name: text for name, text in os.environ.items() if not name.startswith("PMIX_")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("launcher", NATIVE)
def test_one_client_after_the_other_with_auto(launcher: str, tmp_path: Path) -> None:
    if machine.launcher(launcher) is None or not machine.extension():
        machine.lacking("a native launcher or the native engine's extension")
    path = tmp_path / "program.py"
    path.write_text(
        PRELUDE
        + """
engines = []
for _ in range(2):
    with pypmix.Client() as me:
        engines.append(me.engine.name)
print("engines", *engines, flush=True)
"""
    )
    code, output = launch(launcher, 1, [sys.executable, str(path)], environment())
    assert code == 0 and output.count("engines") == 1, output
