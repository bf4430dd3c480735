"""A client has few public members, and former names still work, say what to write, and can be rewritten."""

from __future__ import annotations

import builtins
import importlib
import inspect
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from lib.fake_session import FakeSession
from pypmix import (
    Client,
    Connection,
    Group,
    PMIxError,
    Proc,
    SpawnedJob,
    Tool,
    aio,
    attrs,
    renames,
)
from pypmix.operations.control import Credentials, Monitors, ProcControl
from pypmix.operations.fabric import Fabrics
from pypmix.operations.raw import Raw
from pypmix.renames import ARGUMENTS, CLIENT, Rename, find_alias, follow, rewrite, show
from pypmix.standard import ops
from pypmix.standard.types import Query
from pypmix.types import uint32

ROOT = Path(__file__).parents[2]
OTHER = Proc("job", 2)
MOST = {Client: 45, aio.Client: 45, Tool: 50, Group: 29}
"""The most public members that a class may have."""


def members(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    fake = FakeSession()
    monkeypatch.setattr("pypmix.clientbase.open_client", lambda *_: fake)
    return fake


@pytest.fixture
def me(session: FakeSession) -> Iterator[Any]:
    with Client() as client:
        yield client


@pytest.mark.parametrize("kind", MOST, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_class_has_few_members(kind: type) -> None:
    assert len(members(kind)) <= MOST[kind], members(kind)


def test_both_forms_have_the_same_members() -> None:
    assert members(Client) == members(aio.Client)


def test_no_former_name_is_a_member() -> None:
    assert not {row.old for row in CLIENT} & {*members(Client)}
    assert [row.old for row in CLIENT] == sorted({row.old for row in CLIENT})


@pytest.mark.parametrize("row", CLIENT, ids=lambda row: row.old)
@pytest.mark.parametrize("kind", [Client, aio.Client])
def test_each_former_name_leads_to_something_that_exists(kind: type, row: Rename) -> None:
    first = row.alias or renames.steps(row.new)[0][0]
    assert hasattr(kind, first)
    assert show(row).count("`") >= 2
    assert "@" not in show(row)


@pytest.mark.parametrize(
    ("old", "given", "options", "expected"),
    [
        ("kill", (OTHER,), {"info": ()}, call.control(OTHER).kill(info=())),
        ("kill", (), {"procs": OTHER}, call.control(OTHER).kill()),
        ("signal", (OTHER, 10), {}, call.control(OTHER).signal(10)),
        ("register_cleanup", ("/a",), {"recursive": True}, call.control().register_cleanup("/a", recursive=True)),
        ("register_cleanup", ("/a",), {"procs": OTHER}, call.control(OTHER).register_cleanup("/a")),
        ("barrier", (), {"timeout": 2}, call.fence(timeout=2)),
        ("monitor_file", ("/a", 5), {"size": True}, call.monitors.watch_file("/a", 5, size=True)),
        ("group_enter", ("g",), {"by": OTHER}, call.group("g").enter(by=OTHER)),
        ("group_construct", ("g", OTHER), {"ft": True}, call.group("g", OTHER, ft=True).form()),
        ("heartbeat", (), {}, call.monitors.send_heartbeat()),
    ],
)
def test_a_path_takes_the_arguments_of_the_former_method(
    old: str, given: tuple[Any, ...], options: dict[str, Any], expected: Any
) -> None:
    client = Mock()
    follow(client, renames.TABLE["Client", old].new, given, options)
    assert client.mock_calls[-1] == expected


def test_a_former_method_works_and_warns(me: Any, session: FakeSession) -> None:
    session.answers[ops.JobControl] = ()
    with pytest.warns(DeprecationWarning, match=r"`kill` is `me.control\(procs\).kill\(...\)` now") as seen:
        me.kill(OTHER)
    assert seen[0].filename == __file__
    assert session.ops[-1] == ops.JobControl((OTHER,), (attrs.JOB_CTRL_KILL(True),))
    session.data[OTHER, "k"] = uint32(5)
    with pytest.warns(DeprecationWarning, match="`get_value` is `me.raw.get`"):
        assert me.get_value("k", OTHER, wait=False) == uint32(5)
    session.answers[ops.Get] = PMIxError("nothing")
    with pytest.warns(DeprecationWarning, match="`spawned` is `me.parent is not None`") as seen:
        assert me.spawned is False
    assert seen[0].filename == __file__


@pytest.mark.anyio
async def test_a_former_method_is_awaited_as_before(session: FakeSession) -> None:
    session.answers[ops.QueryInfo] = (attrs.JOB_SIZE(4),)
    async with aio.Client() as me:
        client: Any = me
        with pytest.warns(DeprecationWarning, match="query_all"):
            found = await client.query_all([attrs.JOB_SIZE])
    assert found == {"pmix.job.size": 4}


def test_a_name_that_never_was_is_an_error(me: Any) -> None:
    with pytest.raises(AttributeError, match="'Client' object has no attribute 'sise'"):
        _ = me.sise
    with pytest.raises(AttributeError):
        find_alias("Client", "put", me)


def test_a_former_argument_works_and_warns(me: Any, session: FakeSession) -> None:
    session.answers[ops.ProcessMonitor] = ()
    with pytest.warns(DeprecationWarning, match=r"`id=` is `name=` now"):
        assert me.monitors.watch_heartbeat(5, id="mine") == "mine"
    with pytest.raises(TypeError, match="both 'name' and its former name 'id'"):
        me.monitors.watch_heartbeat(5, id="mine", name="mine")


@pytest.mark.parametrize("row", ARGUMENTS, ids=lambda row: f"{row.methods}-{row.old}")
@pytest.mark.parametrize("form", ["pypmix", "pypmix.aio"])
def test_each_former_argument_has_its_method(form: str, row: Any) -> None:
    topics = ("control", "publishing", "events", "groups", "connecting", "servers")
    homes = [importlib.import_module(f"{form}.{name}") for name in ("client", "tool")]
    homes += [importlib.import_module(f"{form}.operations.{topic}") for topic in topics]
    for method in row.methods.split():
        kind, _, name = method.partition(".")
        (home,) = [each for each in homes if getattr(getattr(each, kind, None), "__module__", "") == each.__name__]
        function = inspect.unwrap(vars(getattr(home, kind))[name])
        assert row.new in inspect.signature(function).parameters
        assert row.old not in inspect.signature(function).parameters or method == "Client.get"


@pytest.mark.parametrize(
    "kind",
    [Client, Tool, Group, Connection, SpawnedJob, Monitors, Credentials, ProcControl, Fabrics, Raw],
    ids=lambda kind: kind.__name__,
)
def test_no_parameter_shadows_a_builtin(kind: Any) -> None:
    for name in members(kind):
        function = getattr(kind, name)
        if callable(function):
            assert not {*inspect.signature(inspect.unwrap(function)).parameters} & {*dir(builtins)}, name


PROGRAM = '''\
"""A program."""
import pypmix
from pypmix import aio

with pypmix.Client() as me:
    me.kill(me.job[1], info={"a": "é"})
    other.kill(9)
    me.signal(procs=me.job, signum=10)
    me.barrier(); me.barrier(timeout=2)
    name = me.monitor_heartbeat(5, id="x")
    me.get_value("key", 0)
    me.get("key", 0, wait=False); me.get("key", wait=3); me.lookup("key", wait=True)
    me.publish({"a": 1}, range=4)

async def use(tool: aio.Client):
    await tool.query_all(["a", "b"])
    await tool.group_destruct("g", timeout=5)
    await tool.group_destruct("g", ft=True)
    with await aio.Client().open() as third:
        print(await third.lookup_all(["a"]), third.unpublish("é"))
'''

REWRITTEN = '''\
"""A program."""
import pypmix
from pypmix import aio

with pypmix.Client() as me:
    me.control(me.job[1]).kill(info={"a": "é"})
    other.kill(9)
    me.control(me.job).signal(signum=10)
    me.fence(); me.fence(timeout=2)
    name = me.monitors.watch_heartbeat(5, name="x")
    me.get_value("key", 0)
    me.get("key", 0, timeout=0); me.get("key", timeout=3); me.lookup("key", timeout=float("inf"))
    me.publish({"a": 1}, data_range=4)

async def use(tool: aio.Client):
    await tool.query(["a", "b"])
    await tool.raw.group_destruct("g", timeout=5)
    await tool.group_destruct("g", ft=True)
    with await aio.Client().open() as third:
        print(await third.lookup(["a"]), third.unpublish("é"))
'''


def test_a_program_is_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, left = rewrite(PROGRAM)
    assert text == REWRITTEN
    assert [each.partition(" is ")[0] for each in left] == ["line 11: get_value", "line 18: group_destruct"]
    assert rewrite(text) == (text, left)
    assert rewrite("other.kill(1)", frozenset({"other"}))[0] == "other.control(1).kill()"
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    assert renames.main([str(path)]) == 1
    assert path.read_text() == REWRITTEN
    assert capsys.readouterr().out.startswith(f"{path}: line 11: get_value is `me.raw.get`")


def test_the_page_has_the_table() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "_ext" / "names.py"))
    assert page["main"](["--check"]) == 0
    assert page["fill"]((ROOT / "docs" / page["PAGE"]).read_text().replace("| `me.kill` |", "| `me.gone` |")).count(
        "| `me.kill` |"
    )


def test_raw_has_each_function_of_the_standard(me: Any, session: FakeSession) -> None:
    raw = runpy.run_path(str(ROOT / "native" / "raw.py"))
    names = [raw["name_function"](op) for op in raw["functions"]()]
    assert names == members(type(me.raw))
    assert {"put", "fence", "group_construct", "iof_push", "query_info", "tool_set_server"} <= {*names}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        me.raw.fence(collect=True)
        me.raw.group_construct("g", [1, OTHER], {attrs.GROUP_LEADER: True}, timeout=1.5)
        me.raw.query_info(Query(("a",)))
        me.raw.iof_push(OTHER, b"x")
    assert session.ops == [
        ops.Fence((), True),
        ops.GroupConstruct("g", (me.proc, OTHER), (attrs.GROUP_LEADER(True), attrs.TIMEOUT(2))),
        ops.QueryInfo((Query(("a",)),)),
        ops.IOFPush((OTHER,), b"x"),
    ]
