"""A client has few public members, and old names still work, say what to write, and can be rewritten."""

from __future__ import annotations

import builtins
import enum
import importlib
import inspect
import linecache
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

import pypmix
from lib.fake_session import FakeSession
from pypmix import (
    Client,
    Connection,
    Group,
    PMIxError,
    Proc,
    Rank,
    Tool,
    Value,
    aio,
    attrs,
)
from pypmix.oldnames import ALIASES, CLIENT, RENAMES, find_member, follow, is_member, show, split_path
from pypmix.operations.control import Credentials, Monitors, ProcControl
from pypmix.operations.fabric import Fabrics
from pypmix.operations.raw import Raw
from pypmix.renames import Rewriter, main
from pypmix.standard import ops
from pypmix.standard.types import Query
from pypmix.types import DataType, uint32

ROOT = Path(__file__).parents[2]
OTHER = Proc("job", 2)
MOST = {Client: 46, aio.Client: 46, Tool: 51, Group: 15, aio.Group: 15, Connection: 16, aio.Connection: 16}
"""The most public members that a class may have."""


OBJECTS = [old for old in RENAMES if not is_member(old) and not old.endswith(")")]
"""The old names of objects of modules."""

ARGUMENTS = [old for old in RENAMES if old.endswith(")")]
"""The old names of parameters."""

PUBLIC = [f"pypmix{part}" for part in ("", ".aio", ".types", ".groups", ".events", ".host", ".recording")]
"""The modules of public names."""


def resolve(path: str) -> Any:
    """The object of the whole name of a module's object."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


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
    assert not {*CLIENT} & {*members(Client)}
    assert [*CLIENT] == sorted(CLIENT)
    for old in OBJECTS:
        module, _, name = old.rpartition(".")
        assert name not in dir(importlib.import_module(module))


@pytest.mark.parametrize(
    ("form", "old"),
    [
        (form, old)
        for form in ("pypmix", "pypmix.aio")
        for old in RENAMES
        if is_member(old) and old.startswith(("pypmix.Client", "pypmix.Connection", "pypmix.Group"))
    ],
)
def test_each_former_name_leads_to_something_that_exists(form: str, old: str) -> None:
    owner, _, name = old.removeprefix("pypmix.").partition(".")
    kind = resolve(f"{form}.{owner}")
    assert name not in members(kind)
    assert hasattr(kind, split_path(ALIASES.get(old, RENAMES[old]))[0][0])
    assert ("`" in RENAMES[old]) <= (old in ALIASES)
    shown = show(old)
    assert shown.startswith(("me.", "both.", "team.")) or shown.count("`") >= 2
    assert "@" not in shown


def test_the_former_members_of_a_group_work_and_warn(
    me: Any, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.answers[ops.GroupConstruct] = ops.GroupResults((me.proc, OTHER), 7)
    session.data[OTHER, "k"] = uint32(5)
    monkeypatch.setattr(
        session, "group_state", lambda name: ops.GroupState(name, (me.proc, OTHER), leader=OTHER), raising=False
    )
    group: Any = me.group("team", [0, OTHER])
    with pytest.warns(DeprecationWarning, match="Group.form is now `construct`, which returns the group: the old"):
        assert group.form().context_id == 7
    olds = {
        "address": Proc("team", Rank.WILDCARD),
        "epoch": 1,
        "infos": (),
        "is_open": True,
        "leader": OTHER,
        "partial": False,
        "proc": Proc("team", Rank.WILDCARD),
        "procs": (me.proc, OTHER),
    }
    for old, value in olds.items():
        with pytest.warns(DeprecationWarning, match=f"pypmix.Group.{old} is now ") as seen:
            assert getattr(group, old) == value
        assert seen[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=r"Group.get is now `me.get\(key, team\[rank\]\)`: the old") as seen:
        assert group.get("k", 1) == 5
    assert seen[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="is now"):
        group.barrier(timeout=5)
    assert session.ops[-1] == ops.Fence((Proc("team", Rank.WILDCARD),), False, (attrs.TIMEOUT(5),))
    with pytest.warns(DeprecationWarning, match="is now"):
        group.notify(-5000)
    with pytest.warns(DeprecationWarning, match="is now"):
        assert group.state().members == (me.proc, OTHER)
    with pytest.raises(AttributeError, match="'Group' object has no attribute 'leaves'"):
        _ = group.leaves
    with pytest.raises(AttributeError, match="'Group' object has no attribute '_leaves'"):
        _ = group._leaves
    group.leave()
    assert not group.membership.is_open


PROGRAM_OF_GROUPS = """\
from pypmix import Client

with Client() as me, me.group("g", me.job) as g:
    print(g.leader, g.epoch, g.procs, g.is_open)
    g.barrier(timeout=5)
    g.get("key", 0)
    with me.invite("h", me.job) as invite:
        team = invite.complete()
    print(team.partial)
    both = me.connect([0, 1])
    both.barrier()
    print(found.leader, found.get("a"), found.procs)
"""


def test_groups_and_connections_are_rewritten() -> None:
    found = Rewriter(PROGRAM_OF_GROUPS)
    expected = PROGRAM_OF_GROUPS.replace("g.leader, g.epoch", "g.membership.leader, g.membership.epoch")
    expected = expected.replace("g.procs, g.is_open", "g.members, g.membership.is_open").replace("barrier", "fence")
    assert found.result() == expected.replace("team.partial", "team.membership.is_partial")
    assert left(found) == [(6, "Group.get")]
    assert notes(found) == [(12, "Group.leader")]


@pytest.mark.parametrize("old", OBJECTS)
def test_the_old_name_of_an_object_works_and_names_the_new_one(old: str) -> None:
    with pytest.warns(DeprecationWarning, match="is now") as caught:
        found = resolve(old)
    assert [str(each.message).partition(":")[0] for each in caught] == [f"{old} is now {RENAMES[old]}"]
    assert caught[0].filename == __file__
    assert found is resolve(RENAMES[old])


def test_an_import_of_an_old_name_warns_at_the_program() -> None:
    with pytest.warns(DeprecationWarning, match=r"pypmix\.Left is now pypmix\.groups\.Left") as caught:
        from pypmix import Left
    assert caught[0].filename == __file__
    assert Left is pypmix.groups.Left


@pytest.mark.parametrize("module", ["pypmix", "pypmix.aio", "pypmix.host", "pypmix.types"])
def test_a_name_that_never_was_is_an_attribute_error_of_its_module(module: str) -> None:
    with pytest.raises(AttributeError, match=rf"^module '{module}' has no attribute 'Lift'$"):
        resolve(f"{module}.Lift")


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
        ("group_enter", ("g",), {"by": OTHER}, call.group("g")._enter(by=OTHER)),
        ("group_construct", ("g", OTHER), {"ft": True}, call.group("g", OTHER, ft=True)._form()),
        ("heartbeat", (), {}, call.monitors.send_heartbeat()),
    ],
)
def test_a_path_takes_the_arguments_of_the_former_method(
    old: str, given: tuple[Any, ...], options: dict[str, Any], expected: Any
) -> None:
    client = Mock()
    follow(client, ALIASES.get(f"pypmix.Client.{old}", CLIENT[old]), given, options)
    assert client.mock_calls[-1] == expected


def test_a_former_method_works_and_warns(me: Any, session: FakeSession) -> None:
    session.answers[ops.JobControl] = ()
    with pytest.warns(DeprecationWarning, match=r"Client.kill is now me.control\(procs\).kill\(...\): the") as seen:
        me.kill(OTHER)
    assert seen[0].filename == __file__
    assert linecache.getline(__file__, seen[0].lineno).strip() == "me.kill(OTHER)"
    assert session.ops[-1] == ops.JobControl((OTHER,), (attrs.JOB_CTRL_KILL(True),))
    session.data[OTHER, "k"] = uint32(5)
    with pytest.warns(DeprecationWarning, match=r"Client.get_value is now `me.raw.get`"):
        assert me.get_value("k", OTHER, wait=False) == uint32(5)
    session.answers[ops.Get] = PMIxError("nothing")
    with pytest.warns(DeprecationWarning, match=r"Client.spawned is now `me.parent is not None`") as seen:
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
        find_member(me, "pypmix.Client", "put")


def test_a_former_argument_works_and_warns(me: Any, session: FakeSession) -> None:
    session.answers[ops.ProcessMonitor] = ()
    with pytest.warns(DeprecationWarning, match=r"pypmix.Client.monitors.watch_heartbeat\(id\) is now name") as seen:
        assert me.monitors.watch_heartbeat(5, id="mine") == "mine"
    assert seen[0].filename == __file__
    with pytest.raises(TypeError, match="both 'name' and its former name 'id'"):
        me.monitors.watch_heartbeat(5, id="mine", name="mine")


@pytest.mark.parametrize("old", [old for old in ARGUMENTS if not old.startswith("pypmix.Value.")])
@pytest.mark.parametrize("form", ["pypmix", "pypmix.aio"])
def test_each_former_argument_has_its_method(form: str, old: str) -> None:
    topics = {"Client.monitors": "operations.control.Monitors", "Client.credentials": "operations.control.Credentials"}
    owner, _, method = old.partition("(")[0].removeprefix("pypmix.").rpartition(".")
    kind = resolve(f"{'pypmix' if owner.startswith(('types.', 'host.')) else form}.{topics.get(owner, owner)}")
    function = inspect.unwrap(getattr(kind, method))
    name = old.partition("(")[2].rstrip(")")
    assert RENAMES[old] in inspect.signature(function).parameters
    is_taken = getattr(getattr(kind, method), "__wrapped__", None) is function
    assert is_taken == (name not in inspect.signature(function).parameters)
    assert is_taken or old == "pypmix.Client.get(wait)"


@pytest.mark.parametrize("module", PUBLIC)
def test_no_parameter_shadows_a_builtin(module: str) -> None:
    found = importlib.import_module(module)
    for public in getattr(found, "__all__", dir(found)):
        thing = getattr(found, public)
        names = dir(thing) if inspect.isclass(thing) and not issubclass(thing, enum.Enum) else []
        methods = [getattr(thing, name) for name in names if name[0] != "_" or name in ("__init__", "__new__")]
        for function in (thing, *methods):
            function = inspect.unwrap(getattr(function, "__func__", function))
            if inspect.isfunction(function) and function.__module__.startswith("pypmix"):
                assert not {*inspect.signature(function).parameters} & {*dir(builtins)}, f"{public}: {function}"


@pytest.mark.parametrize("kind", [Monitors, Credentials, ProcControl, Fabrics, Raw], ids=lambda kind: kind.__name__)
def test_no_parameter_of_a_part_of_a_client_shadows_a_builtin(kind: Any) -> None:
    for name in members(kind):
        function = getattr(kind, name)
        if callable(function):
            assert not {*inspect.signature(inspect.unwrap(function)).parameters} & {*dir(builtins)}, name


def test_the_former_argument_of_a_value_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"pypmix.Value.__init__\(type\) is now data_type") as seen:
        assert Value(type=DataType.UINT32, data=7) == uint32(7)  # type: ignore[call-arg]
    assert seen[0].filename == __file__
    assert Value(data_type=DataType.UINT32, data=7) == Value(DataType.UINT32, 7) == uint32(7)
    for wrong in ({}, {"kind": 3}, {"data_type": 3, "type": 3}):
        with pytest.raises(TypeError, match=r"Value\(\) takes a data_type and the data"):
            Value(**wrong)
    assert "Value(data_type=3)" in Rewriter("from pypmix import Value\nValue(type=3)\n").result()


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


def left(program: Rewriter) -> list[tuple[int, str]]:
    return sorted((line, old.removeprefix("pypmix.")) for line, old in program.left)


def notes(program: Rewriter) -> list[tuple[int, str]]:
    return sorted((line, old.removeprefix("pypmix.")) for line, old in program.notes)


def test_a_program_is_rewritten() -> None:
    found = Rewriter(PROGRAM)
    assert found.result() == REWRITTEN
    assert left(found) == [(11, "Client.get_value"), (18, "Client.group_destruct")]
    assert notes(found) == [(7, "Client.kill")]
    again = Rewriter(REWRITTEN)
    assert (again.result(), again.changes, left(again), notes(again)) == (REWRITTEN, [], left(found), notes(found))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from pypmix import Left\n", "from pypmix.groups import Left\n"),
        ("from pypmix import Client, uint32 as u\n",
         "from pypmix import Client\nfrom pypmix.types import uint32 as u\n"),
        ("def f():\n    from pypmix import (\n        size,\n        Proc,\n    )\n    return size, Proc\n",
         "def f():\n    from pypmix import Proc\n    from pypmix.types import size\n    return size, Proc\n"),
        ("import pypmix\n\nx = pypmix.uint32(1) + size + me.size\n",
         "import pypmix\n\nx = pypmix.types.uint32(1) + size + me.size\n"),
        ("import pypmix as px\nx = 'é', px.info('a', px.byte(1))\n",
         "import pypmix as px\nx = 'é', px.types.info('a', px.types.byte(1))\n"),
        ("from pypmix import aio\nx = aio.Failed\n",
         "import pypmix\nfrom pypmix import aio\nx = pypmix.groups.Failed\n"),
        ("def f():\n    from pypmix import aio\n    return aio.Failed\n",
         "def f():\n    import pypmix\n    from pypmix import aio\n    return pypmix.groups.Failed\n"),
        ("import pypmix\nfrom pypmix import aio\nmatch a:\n    case aio.Left(): pass\n",
         "import pypmix\nfrom pypmix import aio\nmatch a:\n    case pypmix.groups.Left(): pass\n"),
        ("from other import Left\nx = other.size\n", "from other import Left\nx = other.size\n"),
        ("from pypmix import Client\nwith Client() as me:\n    me.kill(me.lookup_all(uint32), info=me.query_all(1))\n",
         "from pypmix import Client\nwith Client() as me:\n    me.control(me.lookup(uint32)).kill(info=me.query(1))\n"),
        (("from pypmix import Tool\nclass A:\n    def __init__(self):\n        self.me = Tool(wait=True)\n"
         "    def stop(self):\n        self.me.monitors.cancel(id=1); self.me.finalize()\n"),
         ('from pypmix import Tool\nclass A:\n    def __init__(self):\n        self.me = Tool(timeout=float("inf"))\n'
         "    def stop(self):\n        self.me.monitors.cancel(name=1); self.me.close()\n")),
        ("from pypmix import Client\nclass Mine(Client):\n    def stop(self):\n        self.kill(1)\n",
         "from pypmix import Client\nclass Mine(Client):\n    def stop(self):\n        self.control(1).kill()\n"),
        (("from pypmix.host import Host\nclass Mine(Host): pass\nwith Mine() as rm:\n    @rm.on_fence\n"
         "    def f(req): pass\n    print(rm.proc, rm.ended)\n"),
         ('from pypmix.host import Host\nclass Mine(Host): pass\nwith Mine() as rm:\n    @rm.on("fence")\n'
         "    def f(req): pass\n    print(rm.server.proc, rm.report_end)\n")),
        ("from pypmix.types import DataBuffer\nb = DataBuffer()\nb.pack(type=1)\n",
         "from pypmix.types import DataBuffer\nb = DataBuffer()\nb.pack(data_type=1)\n"),
    ],
)  # fmt: skip
def test_nothing_else_of_a_program_changes(before: str, after: str) -> None:
    found = Rewriter(before)
    assert found.result() == after
    assert (left(found), notes(found)) == ([], [])
    assert Rewriter(after).changes == []


HOST = """\
from pypmix import Client, Tool
from pypmix.host import Host

class Mine(Host):
    def stop(self, procs):
        self.kill(procs)
        self.query_info(procs)

with Mine() as me:
    me.kill(1); me.signal(2, 3)

def stop(me: Tool):
    me.pause(1)
"""
OTHERS = """\
import os, pypmix, signal
from subprocess import Popen
from dask.distributed import Client
from paho import mqtt

class Mine:
    def kill(self, procs):
        self.signal(procs)

os.kill(1, 2); signal.signal(1, 2); Popen(["a"]).kill(); Mine().kill(1)
mqtt.on_publish = print
with Client() as me:
    me.signal(1)

from pypmix.compat import Tool
Tool().allocation_request(1)
"""
DOUBTFUL = """\
import pypmix, random
from pypmix import Client

me = Client() if random.random() else None
me.kill(1); me.send(range=1)
me.publish({}, range=2)
him = Client()
him = find()
him.kill(1)
"""
BY_HAND = """\
from pypmix import Client
from pypmix.host import Host

with Client() as me, Host() as rm:
    me.kill(*procs); me.kill(1, **options)
    me.kill(
        1,  # the first
    )
    stop = me.kill
    rm.on_fence = stop
    Client.barrier(me)
class Mine(Client):
    def kill(self, procs): pass
    def stop(self): self.kill(1)
"""


@pytest.mark.parametrize(
    ("program", "by_hand", "possible"),
    [
        (HOST.replace("me.pause(1)", "pass"), [], []),
        (OTHERS, [], [(13, "Client.signal")]),
        (DOUBTFUL, [], [(5, "Client.kill"), (6, "Client.publish(range)"), (9, "Client.kill")]),
        (BY_HAND.partition("class")[0],
         [(5, "Client.kill")] * 2 + [(6, "Client.kill"), (9, "Client.kill"), (10, "host.Host.on_fence"),
          (11, "Client.barrier")], []),
        ("from pypmix import Client\n" + BY_HAND[BY_HAND.index("class"):], [], [(4, "Client.kill")]),
    ],
    ids=["host", "others", "doubtful", "by hand", "overridden"],
)  # fmt: skip
def test_what_is_not_a_clients_is_left_and_reported_in_doubt(
    program: str, by_hand: list[tuple[int, str]], possible: list[tuple[int, str]]
) -> None:
    found = Rewriter(program)
    assert found.result() == program
    assert (found.changes, left(found), notes(found)) == ([], by_hand, possible)


def test_a_name_is_a_client_or_a_host_by_its_function() -> None:
    found = Rewriter(HOST)
    assert found.result() == HOST.replace("me.pause(1)", "me.control(1).pause()")
    assert (left(found), notes(found)) == ([], [])


def test_long_imports_are_broken_into_lines() -> None:
    names = "Accepted, Change, Declined, Failed, InviteAnswer, Joined, LeaderFailed, LeaderSelected"
    found = Rewriter(f"from pypmix import {names}\n").result()
    lines = "".join(f"    {name},\n" for name in names.split(", "))
    assert found == f"from pypmix.groups import (\n{lines})\n"


def test_the_script_writes_files_or_only_checks_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, good, bad = tmp_path / "old.py", tmp_path / "good.py", tmp_path / "bad.py"
    old.write_text("import pypmix\nx = pypmix.size(1)\n")
    good.write_text("import pypmix\n")
    bad.write_text("import (\n")
    assert main(["--check", str(old), str(good)]) == 1
    assert capsys.readouterr().out == f"{old}:2: pypmix.size -> pypmix.types.size\n"
    assert old.read_text() == "import pypmix\nx = pypmix.size(1)\n"
    assert main([str(bad), str(old), str(good)]) == 2
    assert "bad.py: cannot be rewritten: " in capsys.readouterr().err
    assert old.read_text() == "import pypmix\nx = pypmix.types.size(1)\n"
    assert main(["--check", str(old), str(good)]) == 0
    assert main([]) == 2
    old.write_text(PROGRAM)
    capsys.readouterr()
    assert main([str(old)]) == 1
    assert old.read_text() == REWRITTEN
    out = capsys.readouterr().out
    assert f"{old}:11: pypmix.Client.get_value is now `me.raw.get`, which takes the proc first: change it" in out
    assert f"{old}:7: this may be pypmix.Client.kill, which is now me.control(procs).kill(...): look at it\n" in out


def test_the_script_is_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["renames"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(ROOT / "pypmix" / "renames.py"), run_name="__main__")
    assert caught.value.code == 2


def test_the_page_has_the_table() -> None:
    assert ".. renames::" in (ROOT / "docs" / "reference" / "names.md").read_text()
    assert "(reference/names.md)" in (ROOT / "docs" / "index.md").read_text()


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
