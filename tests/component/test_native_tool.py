"""Native tools, on each libpmix, at PRRTE and at our own server: they find, switch, lose and leave their servers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lib import machine, processes
from lib.native_programs import EVENTS, LEAKED, PRELUDE, environment, finished

pytestmark = pytest.mark.timeout(120)

SERVERS = [*[found.name for found in machine.launchers() if found.name.startswith("prterun")], "pypmix"]
LIBRARIES = [lib.release for lib in machine.libraries()] or ["none"]

OPENING = """
from pypmix.engine.native.tool import open_tool
PIDS = [int(pid) for pid in sys.argv[1:]]
def opening(*infos):
    return open_tool(os.environ, find_library(os.environ).library, infos)
def at(pid, *more):
    return (Info("pmix.srvr.pidinfo", Value(PID, pid)), *more)
def query():
    (info,) = me.run(QueryInfo((Query(("pmix.qry.ns",)),)))
    return info.value.data
YES = Value(BOOL, True)
"""


@pytest.fixture(params=[(server, lib) for server in SERVERS for lib in LIBRARIES], ids="-".join)
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """Run code as a tool, with the pids of servers as its arguments."""
    server, release = request.param
    lib = machine.library(release)
    if lib is None or not machine.extension():
        machine.lacking("a libpmix or the native engine's extension")
    env = {**environment(PYPMIX_LIBPMIX=lib.path), "TMPDIR": str(tmp_path)}
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    started: list[subprocess.Popen[bytes]] = []

    def serve() -> int:
        launcher = machine.launcher(server)
        command = (
            [sys.executable, "-m", "pypmix", "run"] if launcher is None else [launcher.path, *machine.PRTERUN_OPTIONS]
        )
        shell = 'for n in 1 2 3 4 5 6; do echo "up $n"; sleep 1; done; sleep 60'
        process = subprocess.Popen(
            [*command, "-n", "1", "sh", "-c", shell], env={**env, processes.MARK: mark}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up 1\n"
        return process.pid

    def run(code: str, servers: int = 1) -> str:
        path = tmp_path / "tool.py"
        opened = PRELUDE.partition("me = opened()")[0]
        path.write_text(opened + EVENTS + OPENING + code)
        pids = [str(serve()) for _ in range(servers)]
        status, output = finished([sys.executable, str(path), *pids], env)
        assert status == 0, output
        return output

    yield run
    processes.kill(mark)
    for process in started:
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def test_a_tool_asks_its_server(tool) -> None:
    tool("""
me = opening(*at(PIDS[0]))
assert me.connected and not me.singleton and me.info.name == "native" and me.proc.nspace
(server,) = me.run(ToolGetServers())
assert me.server == f"{server.nspace}.{server.rank}" and submitted(me, ToolGetServers()) == ((server,), None)
assert server.nspace.rpartition("@")[0] in query()
heard = Heard()
on(heard, LOAD)
notify(1)
for n in range(2, 20):
    assert submitted(me, NotifyEvent(LOAD, 2, (Info("acme.n", Value(UINT32, n)),))) == (None, None)
until(lambda: len(heard) >= 19)
time.sleep(0.3)
assert heard.numbers == list(range(1, 20)), heard.numbers
error = caught(Unreachable, me.run, ToolSetServer(Proc("nobody", 0)))
assert error.operation == "tool_set_server"
assert isinstance(submitted(me, ToolDisconnect(Proc("nobody", 0)))[1], Unreachable)
caught(Unreachable, me.run, ToolAttachToServer(at(2**31 - 1)))
caught(NotSupported, me.run, ToolSetServer(me.proc))
caught(OperationTimeout, me.run, ToolSetServer(Proc("nobody", 0), (Info("pmix.wait.conn", YES), LIMIT)))
assert caught(PMIxError, me.run, ToolAttachToServer(())).code == -27
caught(EngineUnavailable, opened)
caught(EngineUnavailable, opening)
assert me.connected
me.run(Finalize())
assert heard.ends == [] or heard.ends == [None]
me.close()
assert heard.ends == [None] and not me.connected
caught(NotInitialized, me.run, ToolGetServers())
assert threading.enumerate() == [threading.main_thread()]
""")


def test_a_tool_has_several_servers_and_switches_between_them(tool) -> None:
    tool(
        """
me = opening(*at(PIDS[0]))
(one,) = me.run(ToolGetServers())
first_jobs = query()
heard, second = Heard(), Heard()
old = on(heard, LOAD)
two = submitted(me, ToolAttachToServer(at(PIDS[1])))[0]
assert two != one and me.run(ToolGetServers()) == (one, two) and query() == first_jobs
me.run(ToolSetServer(two))
assert me.run(ToolGetServers()) == (two, one) and query() != first_jobs
assert me.server == f"{two.nspace}.{two.rank}" and me.connected
new = on(second, LOAD)
assert new != old
notify(1)
until(lambda: heard.numbers == second.numbers == [1])
time.sleep(0.3)
assert heard.numbers == second.numbers == [1]
me.run(DeregisterEventHandler(old))
caught(NotFound, me.run, DeregisterEventHandler(old))
me.run(ToolDisconnect(two))
assert me.run(ToolGetServers()) == (one,) and not me.connected and me.singleton
until(lambda: second.ends == [None])
caught(Unreachable, me.run, QueryInfo((Query(("pmix.qry.ns",)),))) if me.info.release < "1" else None
assert submitted(me, ToolSetServer(one)) == (None, None)
assert me.connected and not me.singleton and query() == first_jobs
assert me.run(ToolAttachToServer(at(PIDS[1], Info("pmix.pri.srvr", YES)))) == two
assert me.run(ToolGetServers())[0] == two and query() != first_jobs
me.run(Finalize())
me.close()
""",
        2,
    )


def test_a_tool_without_a_server_finds_one_later(tool) -> None:
    tool("""
me = opening(Info("pmix.tool.nocon", YES))
assert me.singleton and not me.connected and me.server == ""
assert me.run(ToolGetServers()) == ()
heard = Heard()
on(heard, LOAD)
notify(1)
until(lambda: heard.numbers == [1])
caught(Unreachable, me.run, Publish((Info("k", Value(UINT32, 1)),)))
who = me.proc
server = me.run(ToolAttachToServer(at(PIDS[0])))
assert me.run(ToolGetServers()) == (server,) and me.connected and not me.singleton
assert server.nspace.rpartition("@")[0] in query()
me.run(Finalize())
me.close()
""")


def test_the_loss_of_a_server(tool) -> None:
    tool(
        """
me = opening(*at(PIDS[0]))
heard, lost = Heard(), Heard()
on(heard, LOAD)
on(lost, -61)
two = me.run(ToolAttachToServer(at(PIDS[1])))
outcomes = []
os.killpg(PIDS[0], signal.SIGKILL)
until(lambda: heard.ends and lost.ends)
assert [type(end) for end in (*heard.ends, *lost.ends)] == [LostConnection] * 2
assert [delivery.notification.code for delivery in lost] == [-61]
assert not me.connected and not me.singleton
caught(LostConnection, me.run, QueryInfo((Query(("pmix.qry.ns",)),)))
# it is still a tool, with another server
me.run(ToolSetServer(two))
assert me.connected and two.nspace.rpartition("@")[0] in query()
again = Heard()
on(again, LOAD)
notify(3)
until(lambda: again.numbers == [3])
me.run(Finalize())
me.close()
assert again.ends == [None] and len(heard.ends) == 1
""",
        2,
    )


def test_a_server_that_is_not_there(tool) -> None:
    tool("""
error = caught(Unreachable, opening, *at(2**31 - 1))
assert error.operation == "open" and "native" in error.engine
caught(EngineUnavailable, opening, *at(PIDS[0]))
""")


def test_nothing_leaks(tool) -> None:
    tool(
        LEAKED
        + """
me = opening(*at(PIDS[0]))
(one,) = me.run(ToolGetServers())
def work():
    me.run(ToolGetServers())
    submitted(me, ToolGetServers())
    me.run(ToolSetServer(one))
    submitted(me, ToolSetServer(Proc("nobody", 0)))
grown = leaked(work, 100)
assert grown < 2000, grown
me.run(Finalize())
"""
    )


def test_a_tool_leaves_the_server_that_it_began_with(tool) -> None:
    tool("""
me = opening(*at(PIDS[0]))
heard = Heard()
on(heard, LOAD)
me.run(ToolDisconnect(me.run(ToolGetServers())[0]))
assert me.run(ToolGetServers()) == () and not me.connected and me.singleton
until(lambda: heard.ends == [None])
error = caught(Unreachable, me.run, Publish((Info("k", Value(UINT32, 1)),)))
me.run(Finalize())
me.close()
""")


def test_the_facade(tool) -> None:
    tool(
        """
from pypmix import Tool, attrs
with Tool(pid=PIDS[0], engine="native") as me:
    assert me.is_connected and me.engine.name == "native"
    (server,) = me.get_servers()
    assert server.nspace.rpartition("@")[0] in me.query(attrs.QUERY_NAMESPACES)
    other = me.attach_to_server(pid=PIDS[1])
    me.set_server(other)
    assert me.get_servers() == [other, server]
    with me.events(LOAD) as events:
        me.notify(LOAD, data_range=PROC_LOCAL)
        assert events.get(timeout=30).code == LOAD
    me.disconnect_from_server(other)
    assert me.get_servers() == [server] and not me.is_connected
""",
        2,
    )
