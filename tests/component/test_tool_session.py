"""A tool finds its servers, speaks to several, switches between them, and says what is wrong where it cannot."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lib.leftovers import nothing_left
from pypmix import (
    EventCode,
    Info,
    LostConnection,
    NotInitialized,
    OperationTimeout,
    PMIxError,
    Proc,
    Range,
    Tool,
    Unreachable,
    aio,
    attrs,
)
from pypmix.engine.base import Upcall
from pypmix.engine.python.rendezvous import host_names
from pypmix.engine.python.toolsession import open_tool
from pypmix.engine.select import open_tool as open_tool_of_any_engine
from pypmix.server import Server
from pypmix.standard.errors import NotSupported
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import (
    ClientConnected,
    Lookup,
    Publish,
    ToolAttachToServer,
    ToolConnected,
    ToolGetServers,
)
from pypmix.standard.types import Pdata
from pypmix.standard.values import from_python

pytestmark = pytest.mark.timeout(60)


class Host:
    """A server that admits tools and keeps what it is asked."""

    def __init__(self, nspace: str, folder: Path, **options: Any) -> None:
        self.asked: list[Any] = []
        self.server = Server(self._upcall, nspace=nspace, tmpdir=str(folder), **{"tool_support": True, **options})
        self.refuses = False
        self.answers = threading.Event()
        self.answers.set()

    def _upcall(self, upcall: Upcall) -> None:
        op = upcall.op
        self.asked.append(op)
        if isinstance(op, ToolConnected) and self.refuses:
            upcall.fail(NotSupported("no tools here"))
        elif isinstance(op, Lookup):
            answer = (Pdata(self.server.proc, op.keys[0], from_python(self.server.proc.nspace)),)
            threading.Thread(target=lambda: (self.answers.wait(20), upcall.reply(answer))).start()
        else:
            upcall.reply()

    def seen(self, kind: type) -> list[Any]:
        return [op for op in self.asked if isinstance(op, kind)]

    @property
    def uri(self) -> str:
        return self.server.client_env(Proc("x", 0))["PMIX_SERVER_URI41"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files; nothing else in the environment tells of a server."""
    for name in [name for name in os.environ if name.startswith(("PMIX_", "PYPMIX_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def begin(nspace: str, **options: Any) -> Host:
        place = folder / nspace
        place.mkdir(exist_ok=True)
        host = Host(nspace, place, **options)
        host.server.open()
        hosts.append(host)
        return host

    yield begin
    for host in hosts:
        host.server.close()


# Which server


def targets(host: Host, folder: Path) -> dict[str, dict[str, Any]]:
    file = folder / "one" / f"pmix.{host_names()[-1]}.tool.one"
    # Elsewhere are servers of other tests.
    env = {"TMPDIR": str(folder / "empty")}
    return {
        "pid": {"pid": os.getpid()},
        "nspace": {"nspace": "one"},
        "uri": {"uri": host.uri},
        "uri of a file": {"uri": f"file:{file}"},
        "file": {"file": file},
        "search": {},
        "folder": {"tmpdir": folder / "one", "env": {}},
        "server folder": {"env": {**env, "PMIX_SERVER_TMPDIR": str(folder / "one")}},
        "system folder": {"env": {**env, "PMIX_SYSTEM_TMPDIR": str(folder)}},
        "launcher's URI": {"env": {"TMPDIR": str(folder), "PMIX_LAUNCHER_RNDZ_URI": host.uri}},
        "launcher's file": {"env": {**env, "PMIX_LAUNCHER_RNDZ_FILE": str(file)}},
        "infos": {"info": [attrs.SERVER_PIDINFO(os.getpid())]},
        "legacy URI": {"info": {attrs.TCP_URI: host.uri}},
    }


WAYS = (
    "pid",
    "nspace",
    "uri",
    "uri of a file",
    "file",
    "search",
    "folder",
    "server folder",
    "system folder",
    "launcher's URI",
    "launcher's file",
    "infos",
    "legacy URI",
)


@pytest.mark.parametrize("how", WAYS)
def test_ways_to_say_which_server(start: Callable[..., Host], folder: Path, how: str) -> None:
    host = start("one")
    with Tool(**targets(host, folder)[how]) as tool:
        assert tool.get_servers() == [Proc("one", 0)]
        assert tool.is_connected
        assert not tool.singleton
        assert tool.get(attrs.SERVER_URI) == host.uri
        assert tool.get(attrs.SERVER_NSPACE) == "one"
        assert tool.lookup("key") == "one"
    (op,) = host.seen(ToolConnected)
    assert op.pid == os.getpid()
    assert op.release == "7.0.0"


def test_a_system_server(start: Callable[..., Host], folder: Path) -> None:
    start("one")
    with pytest.raises(Unreachable, match="no system server"):
        Tool(system=True).open()
    with Tool(system="first") as tool:
        assert tool.get_servers() == [Proc("one", 0)]
    start("sys", system_server=True, tool_support=False)
    assert (folder / f"pmix.sys.{host_names()[-1]}").stat().st_mode & 0o777 == 0o600
    for system in (True, "first"):
        with Tool(system=system) as tool:
            assert tool.get_servers() == [Proc("sys", 0)]
    with pytest.raises(PMIxError, match="belongs to a server that runs"):
        start("other", system_server=True)


def test_a_file_that_somebody_asked_for(start: Callable[..., Host], folder: Path) -> None:
    path = folder / "mine"
    host = start("one", tool_support=False, rendezvous_file=str(path))
    with Tool(file=path) as tool:
        assert tool.get_servers() == [Proc("one", 0)]
    host.server.close()
    assert not path.exists()


def test_without_tool_support_there_are_no_files(start: Callable[..., Host], folder: Path) -> None:
    start("one", tool_support=False)
    assert not os.listdir(folder / "one")


def test_the_newest_server_that_lets_the_tool_in(start: Callable[..., Host], folder: Path) -> None:
    hosts = [start(name) for name in ("one", "two", "three")]
    for number, host in enumerate(hosts):
        for path in (folder / host.server.proc.nspace).iterdir():
            os.utime(path, (number, number))
    hosts[2].refuses = True
    with Tool() as tool:
        assert tool.get_servers() == [Proc("two", 0)]
    for host in hosts:
        host.refuses = True
    with pytest.raises(Unreachable, match="none of the servers found lets this tool in") as caught:
        Tool().open()
    assert all(host.server.proc.nspace in str(caught.value) for host in hosts)


def test_stale_files_are_passed_over(start: Callable[..., Host], folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    stale = folder / f"pmix.{host_names()[-1]}.tool.stale"
    stale.write_text(f"stale.0;tcp4://127.0.0.1:{port}\n5.0.11\n{os.getpid()}\n0:0\ndate\n")
    start("one")
    with Tool() as tool:
        assert tool.get_servers() == [Proc("one", 0)]
    with pytest.raises(Unreachable, match="no server at"):
        Tool(nspace="stale").open()


def test_a_port_that_is_another_servers_by_now(start: Callable[..., Host], folder: Path) -> None:
    host = start("one")
    path = folder / f"pmix.{host_names()[-1]}.tool.gone"
    path.write_text(f"gone.0;{host.uri.partition(';')[2]}\n7.0.0\n{os.getpid()}\n0:0\ndate\n")
    with pytest.raises(Unreachable, match="gone .*has its port now"):
        Tool(nspace="gone").open()


def test_what_there_is_instead(start: Callable[..., Host], folder: Path) -> None:
    start("one")
    with pytest.raises(Unreachable, match=f"no server of pid 1 on this node, but there are one .pid {os.getpid()}"):
        Tool(pid=1).open()
    with pytest.raises(Unreachable, match="no server of nspace 'two'"):
        Tool(nspace="two").open()
    with pytest.raises(Unreachable, match="cannot be read: No such file"):
        Tool(file=folder / "none").open()
    (folder / "text").write_text("text")
    with pytest.raises(Unreachable, match="is not a rendezvous file"):
        Tool(file=folder / "text").open()
    with pytest.raises(Unreachable, match="is not the URI of a server"):
        Tool(uri="tcp4://127.0.0.1:7").open()


def test_waiting_for_a_server(start: Callable[..., Host], folder: Path) -> None:
    timer = threading.Timer(0.5, start, ["one"])
    timer.start()
    began = time.monotonic()
    with Tool(nspace="one", timeout=60) as tool:
        assert tool.is_connected
    assert time.monotonic() - began > 0.4
    timer.join()
    with pytest.raises(Unreachable):
        Tool(nspace="two", timeout=0).open()
    with pytest.raises(Unreachable):
        Tool(nspace="two", timeout=0).open()


@pytest.mark.parametrize("answer", [b"", b"\xff\xff\xff\xd1", bytes(4) + b"\0" * 520 + bytes(4), None])
def test_what_answers_is_no_server(folder: Path, answer: bytes | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            end, _ = listener.accept()
            with end:
                end.recv(65536)
                if answer is None:
                    end.recv(1)
                else:
                    end.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        uri = f"fake.0;tcp4://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(PMIxError) as caught:
            Tool(uri=uri, info=[attrs.TIMEOUT(1)]).open()
        assert caught.value.operation in ("open", "handshake")
        thread.join()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"pid": 1, "uri": "x"}, ValueError),
        ({"system": True, "nspace": "x"}, ValueError),
        ({"system": "maybe"}, ValueError),
        ({"pid": "1"}, TypeError),
        ({"pid": 2**31}, ValueError),
        ({"nspace": "x" * 256}, ValueError),
        ({"nspace": 3}, TypeError),
        ({"file": ""}, ValueError),
        ({"timeout": True}, TypeError),
        ({"timeout": -1}, ValueError),
        ({"proc": "x"}, TypeError),
        ({"connect": "maybe"}, ValueError),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Tool(**options)


@pytest.mark.parametrize(
    "infos",
    [
        [attrs.SERVER_URI("a.0;tcp4://b:1"), attrs.TCP_URI("a.0;tcp4://b:2")],
        [attrs.TOOL_RANK(3)],
        [Info("pmix.srvr.pidinfo", from_python("7"))],
        [Info("pmix.srv.nspace", from_python(7))],
    ],
)
def test_directives_that_make_no_sense(start: Callable[..., Host], infos: list[Info]) -> None:
    with pytest.raises((TypeError, ValueError)):
        open_tool({}, tuple(infos))
    start("one")
    with Tool() as tool, pytest.raises(PMIxError) as caught:
        tool.attach_to_server(info=infos)
    assert caught.value.code == -27


# Who it is


def test_the_name_that_a_tool_brings(start: Callable[..., Host]) -> None:
    start("one")
    with Tool(proc=Proc("console", 3)) as tool:
        assert tool.proc == Proc("console", 3)
        assert tool.get(attrs.RANK) == 3
    with Tool(proc=Proc("console", 3)) as tool:
        assert tool.supports("tool.reconnect")


def test_a_process_of_a_job_is_that_proc_to_its_own_server_only(start: Callable[..., Host]) -> None:
    own, other = start("own"), start("other")
    own.server.register_nspace(JobInfo("job", (attrs.JOB_SIZE(4),)))
    own.server.register_client(Proc("job", 2))
    env = own.server.client_env(Proc("job", 2))
    with Tool(env=env) as tool:
        assert tool.proc == Proc("job", 2)
        assert tool.job.size == 4
        assert tool.get_servers() == [Proc("own", 0)]
        assert own.seen(ToolConnected)[0].proc == Proc("job", 2)
        assert not own.seen(ClientConnected)
    with Tool(env=env, uri=other.uri) as tool:
        assert tool.proc.nspace.startswith("other-tool")
        assert tool.job.size == 1


def test_a_launcher_says_so(start: Callable[..., Host]) -> None:
    host = start("one")
    with Tool(launcher=True):
        pass
    assert host.seen(ToolConnected)[0].launcher


# Several servers


def test_several_servers(start: Callable[..., Host]) -> None:
    one, two = start("one"), start("two")
    with Tool(nspace="one") as tool:
        me = tool.proc
        assert tool.attach_to_server(nspace="two") == Proc("two", 0)
        assert tool.proc == me
        assert two.seen(ToolConnected)[0].proc == me
        assert tool.get_servers() == [Proc("one", 0), Proc("two", 0)]
        assert tool.lookup("key") == "one"
        tool.set_server(Proc("two", 0))
        assert tool.get_servers() == [Proc("two", 0), Proc("one", 0)]
        assert tool.lookup("key") == "two"
        assert tool.server == "two.0 7.0.0"
        tool.disconnect_from_server(Proc("two", 0))
        assert tool.get_servers() == [Proc("one", 0)]
        assert not tool.is_connected
        assert tool.proc == me
        with pytest.raises(Unreachable):
            tool.lookup("key")
        tool.set_server(Proc("one", 0))
        assert tool.lookup("key") == "one"
        tool.set_server(me)
        assert not tool.is_connected
        assert tool.attach_to_server(nspace="two") == Proc("two", 0)
        assert tool.lookup("key") == "two"
    assert not one.server.pending()


def test_attaching_as_the_primary_one_and_again(start: Callable[..., Host]) -> None:
    start("one"), start("two")
    with Tool(nspace="one") as tool:
        assert tool.attach_to_server(nspace="two", primary=True) == Proc("two", 0)
        assert tool.lookup("key") == "two"
        # A server that is there already is found again by its name, and not by a search.
        assert tool.attach_to_server(nspace="one", primary=True) == Proc("one", 0)
        assert tool.lookup("key") == "one"
        assert len(tool.get_servers()) == 2
        with pytest.raises(Unreachable) as caught:
            tool.attach_to_server()
        assert caught.value.operation == "tool_attach_to_server"
        with pytest.raises(Unreachable):
            tool.set_server(Proc("three", 0))
        with pytest.raises(Unreachable):
            tool.disconnect_from_server(Proc("three", 0))
        with pytest.raises(TypeError):
            tool.set_server("one")  # type: ignore[arg-type]


def test_waiting_for_a_connection(start: Callable[..., Host]) -> None:
    start("one"), start("two")
    with Tool(nspace="one") as tool:
        with pytest.raises(OperationTimeout):
            tool.set_server(Proc("two", 0), timeout=1)
        timer = threading.Timer(0.3, lambda: tool.attach_to_server(nspace="two"))
        timer.start()
        tool.set_server(Proc("two", 0), timeout=float("inf"))
        assert tool.lookup("key") == "two"
        timer.join()


def test_the_former_time_limit_is_still_taken(start: Callable[..., Host]) -> None:
    twice = "both 'timeout' and its former name 'wait'"
    with pytest.raises(TypeError, match=twice):
        Tool(timeout=1, wait=2)  # type: ignore[call-arg]
    start("one")
    with Tool() as tool:
        former: Any = tool
        with pytest.raises(TypeError, match=twice):
            former.attach_to_server(nspace="two", timeout=1, wait=2)
        with pytest.raises(TypeError, match=twice):
            former.set_server(Proc("two", 0), timeout=1, wait=2)
        with pytest.warns(DeprecationWarning, match=r"\(wait\) is now timeout"):
            former.set_server(Proc("one", 0), wait=1)
        tool.set_server(Proc("one", 0), timeout=1)


def test_closing_ends_the_wait_for_a_connection(start: Callable[..., Host]) -> None:
    start("one")
    failures: list[BaseException] = []
    tool = Tool().open()

    def wait() -> None:
        try:
            tool.set_server(Proc("two", 0), timeout=float("inf"))
        except PMIxError as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    tool.close()
    thread.join(30)
    assert isinstance(failures[0], NotInitialized)


def test_a_lost_server_is_none_any_more(start: Callable[..., Host]) -> None:
    one = start("one")
    start("two")
    with Tool(nspace="one") as tool:
        tool.attach_to_server(nspace="two")
        one.server.close()
        with pytest.raises(LostConnection):
            tool.lookup("key", timeout=float("inf"))
        assert not tool.is_connected
        assert tool.get_servers() == [Proc("two", 0)]
        tool.set_server(Proc("two", 0))
        assert tool.lookup("key") == "two"


def test_without_a_server(folder: Path) -> None:
    for connect in (False, "optional"):
        with Tool(connect=connect) as tool:
            assert not tool.is_connected
            assert tool.get_servers() == []
            assert tool.singleton
            assert tool.job.size == 1
            with pytest.raises(Unreachable):
                tool.publish({"a": 1})
    with Tool(connect=False, proc=Proc("console", 3)) as tool:
        assert tool.proc == Proc("console", 3)


def test_handlers_stay_with_the_server_that_they_were_registered_with(start: Callable[..., Host]) -> None:
    start("one"), start("two")
    code = EventCode(-5001)
    with Tool(nspace="one") as tool, Tool(nspace="one") as first, Tool(nspace="two") as second:
        tool.attach_to_server(nspace="two")
        with tool.events(code) as at_one:
            tool.set_server(Proc("two", 0))
            with tool.events(code) as at_two:
                first.notify(code, data_range=Range.GLOBAL, info={"acme.from": "one"})
                second.notify(code, data_range=Range.GLOBAL, info={"acme.from": "two"})
                assert at_one.get(30).info["acme.from"] == "one"
                assert at_two.get(30).info["acme.from"] == "two"
                tool.set_server(Proc("one", 0))
            # The stream of the second server was deregistered there, although the first one is the primary now.
            first.notify(code, data_range=Range.GLOBAL, info={"acme.from": "one again"})
            assert at_one.get(30).info["acme.from"] == "one again"


def test_a_closed_tool(start: Callable[..., Host]) -> None:
    start("one")
    tool = Tool().open()
    session = tool._session
    tool.close()
    tool.close()
    with pytest.raises(NotInitialized):
        tool.get_servers()
    for op in (ToolGetServers(), ToolAttachToServer(()), Publish((Info("k", from_python(1)),))):
        with pytest.raises(NotInitialized):
            session.run(op)


# In an event loop


def test_several_servers_in_an_event_loop(start: Callable[..., Host]) -> None:
    one, _two = start("one"), start("two")
    one.answers.clear()

    async def main() -> None:
        async with aio.Tool(nspace="one") as tool:
            slow = asyncio.ensure_future(tool.lookup("key"))
            while not one.seen(Lookup):
                await asyncio.sleep(0.001)
            assert await tool.attach_to_server(nspace="two", primary=True) == Proc("two", 0)
            assert await tool.lookup("key") == "two"
            assert not slow.done()
            one.answers.set()
            assert await slow == "one"
            assert await tool.get_servers() == [Proc("two", 0), Proc("one", 0)]
            with pytest.raises(OperationTimeout):
                await tool.set_server(Proc("three", 0), timeout=1)
            await tool.disconnect_from_server(Proc("two", 0))
            assert not tool.is_connected
            await tool.set_server(Proc("one", 0))
            async with tool.events(EventCode(-5002)) as events:
                await tool.notify(EventCode(-5002))
                assert (await events.get(30)).source == tool.proc

    asyncio.run(main())


def test_the_loop_goes_on_while_a_server_is_waited_for(start: Callable[..., Host]) -> None:
    async def main() -> float:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        with pytest.raises(Unreachable):
            await aio.Tool(nspace="nobody", timeout=1).open()
        ticking.cancel()
        return ticks

    assert asyncio.run(main()) > 3


# What is left


def test_an_open_that_was_given_up_leaves_nothing(start: Callable[..., Host], monkeypatch: pytest.MonkeyPatch) -> None:
    start("one")
    opened: list[Any] = []

    def late(*arguments: Any) -> Any:
        time.sleep(0.2)
        opened.append(open_tool_of_any_engine(*arguments))
        return opened[0]

    monkeypatch.setattr("pypmix.aio.tool.open_tool", late)

    async def main() -> None:
        tool = aio.Tool(nspace="one")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await tool.open()
        while not opened or tool.is_open:
            await asyncio.sleep(0.01)

    with nothing_left():
        asyncio.run(asyncio.wait_for(main(), 10))


def test_nothing_is_left(start: Callable[..., Host]) -> None:
    start("one"), start("two")

    def use() -> None:
        with Tool(nspace="one") as tool:
            tool.attach_to_server(nspace="two")
            tool.lookup("key")
            tool.disconnect_from_server(Proc("two", 0))
        for options in ({"nspace": "three"}, {"uri": "a.0;tcp4://127.0.0.1:1"}):
            with pytest.raises(Unreachable):
                Tool(**options).open()  # type: ignore[arg-type]

        async def main() -> None:
            async with aio.Tool(nspace="one") as tool:
                await tool.attach_to_server(nspace="two")

        asyncio.run(main())

    use()
    with nothing_left():
        for _ in range(5):
            use()
