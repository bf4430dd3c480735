"""Every public name has an example of a few lines in its docstring, and it runs.

Methods have their own. Classes have one of their use, which may be shown by that of a method, and properties and other
attributes are shown by the example of their class.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from enum import EnumMeta
from pathlib import Path
from typing import Any

import pytest

import pypmix
from lib.docexamples import MOST, find_examples
from lib.docexamples import read_program as examples
from lib.fake_session import FakeSession
from lib.hardware import Layout, write_files
from pypmix import Client, Event, Group, Handler, Proc, aio, attrs, groups, host, types
from pypmix.operations.control import Credentials, Monitors, ProcControl
from pypmix.operations.fabric import Fabrics
from pypmix.operations.streams import Stream
from pypmix.standard import ops
from pypmix.standard.ops import GroupChange, GroupResults, GroupState, Notification
from pypmix.standard.ops.groups import ACCEPTED, JOINED, GroupAnswer
from pypmix.standard.types import Info, Pdata, Value
from pypmix.standard.values import from_python
from pypmix.topology import bitmaps, distances, kernel, locality, machine, xml
from pypmix.types import uint32

KINDS: tuple[type, ...] = (Client, Group, ProcControl, Monitors, Credentials, Fabrics)
"""Classes whose every member, attributes included, has its own example."""

LACKING = {
    "Their members are constants of the Standard.": {
        name for module in (pypmix, types) for name in module.__all__ if isinstance(getattr(module, name), EnumMeta)
    },
    "Programs catch errors, and make none.": {
        name
        for name in pypmix.__all__
        if isinstance(found := getattr(pypmix, name), type) and issubclass(found, Exception)
    },
    "Makers of typed numbers are one function; the example of `typed` shows them.": {
        *("byte", "cint", "cuint", "double", "float32", "pid", "size", "timestamp"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    },
    "Examples of their members show them.": {"Client", "Group", "Session"},
}
"""Public classes and functions that may lack an example, by the reason."""


SERVERS = {"Server", *[name for name in host.__all__ if inspect.isclass(getattr(host, name))]}
"""The tests of components run their examples."""


def find_public() -> dict[str, Any]:
    """Return the public classes and functions by name; those of `pypmix.aio` have the same names."""
    modules = (pypmix, types, groups, host)
    found = {name: getattr(module, name) for module in modules for name in module.__all__}
    return {name: each for name, each in found.items() if inspect.isclass(each) or inspect.isroutine(each)}


TOPOLOGY = {
    name: each
    for module in (bitmaps, distances, kernel, locality, machine, xml)
    for name, each in vars(module).items()
    if getattr(each, "__module__", "") == module.__name__ and name[0] != "_" and name not in ("allowed", "bitmap_of")
}
"""The classes and functions of `pypmix.topology`, but two for its own modules."""

SHOWN = [Stream, *TOPOLOGY.values()]
SHOWN += [each for name, each in find_public().items() if name not in set().union(*LACKING.values(), SERVERS)]
CLASSES = [each for each in SHOWN if inspect.isclass(each)]
"""Classes that have an example of their own use, and one for each method."""

INTERNAL = {
    "Connection": {"disconnected", "stands_for"},
    "Handler": {"begin", "call", "ready"},
    "Invitation": {"begin"},
    "Limits": {"message", "reached"},
    "Membership": {"require_results"},
    "OutputStream": {"id"},
}
"""Members that only pypmix calls, or, as `ready`, only the awaited form needs."""

UNCHECKED = {"unchecked", "unchecked_ranks"}
"""How pypmix alone makes records and tuples."""


def members(kind: type) -> list[str]:
    """Return the names of the functions and properties of a class that pypmix defines."""
    names = [name for name in dir(kind) if not name.startswith("_") and name not in UNCHECKED]
    ours = [name for name in names if is_own(getattr(kind, name))]
    return [name for name in ours if name not in INTERNAL.get(kind.__name__, ())]


def is_own(member: object) -> bool:
    """Return True for a property, and for a function of pypmix."""
    home = getattr(member, "__module__", None) or ""
    return isinstance(member, property) or inspect.isroutine(member) and home.startswith("pypmix")


def own_members() -> list[tuple[type, str]]:
    """Return the members to look at: each once, at the first class that has it."""
    found: dict[object, tuple[type, str]] = {}
    for kind in (*KINDS, *CLASSES):
        for name in members(kind):
            member = getattr(kind, name)
            if kind in KINDS or not isinstance(member, property):
                found.setdefault(member, (kind, name))
    return list(found.values())


MEMBERS = own_members()
OBJECTS = [(each, "") for each in SHOWN]
ALONE = {"put", "commit", "fence", "get", "bcast", "allgather", "gather", "scatter", "raw", "open", "close"}
"""Their examples run in a real job of one process. Others run with answers that are made up."""

PROCS = (Proc("job", 0), Proc("job", 1))


class Delivered:
    """An event that an engine delivers, and that nobody answers."""

    def __init__(self, code: int, about: Proc = PROCS[1]) -> None:
        infos = (attrs.GROUP_ID("team"), attrs.GROUP_MEMBERSHIP(list(PROCS)), attrs.EVENT_AFFECTED_PROC(about))
        self.notification = Notification(code, PROCS[0], None, infos)
        self.results = ()

    def done(self, status: int = 0, results: tuple[Info, ...] = ()) -> None:
        """Ignore the answer."""


class Answering(FakeSession):
    """Answers each operation with something of its kind; each stream gets one item, and ends.

    Args:
        job_ends: Whether a spawned job has ended when the client looks.
    """

    def __init__(self, job_ends: bool) -> None:
        super().__init__()
        self.connected = True
        self.spawned = Proc("spawned" if job_ends else "another", 0)
        self.answers = {
            ops.Connect: ops.Connected("both", (Proc("job", 1), PROCS[0])),
            ops.Spawn: "spawned",
            ops.Lookup: (Pdata(PROCS[0], "acme.port", uint32(7)), Pdata(PROCS[0], "acme.name", uint32(8))),
            ops.JobControl: (),
            ops.ProcessMonitor: (),
            ops.AllocationRequest: (attrs.ALLOC_ID("a1"),),
            ops.GetCredential: ops.Credential(b"opaque"),
            ops.ValidateCredential: (attrs.USERID(1000),),
            ops.FabricRegister: (attrs.FABRIC_INDEX(1),),
            ops.FabricUpdate: (attrs.FABRIC_INDEX(1),),
            ops.ComputeDistances: (types.DeviceDistance("gpu://n0::card0", "card0", types.DeviceType.GPU, 2, 4),),
            ops.GroupConstruct: GroupResults(PROCS),
            ops.GroupInvite: GroupResults(PROCS),
            ops.RegisterEventHandler: 1,
            ops.IOFPull: 1,
            ops.ToolAttachToServer: Proc("other.server", 0),
            ops.ToolGetServers: (Proc("server", 0), Proc("other.server", 0)),
            ops.GroupJoin: GroupResults(PROCS),
        }

    def _outcome(self, op: Any) -> tuple[Any, BaseException | None]:
        if isinstance(op, ops.Get):
            return uint32(2), None
        if isinstance(op, ops.QueryInfo):
            known = {
                "pmix.qry.ptable": types.array(types.DataType.PROC_INFO, [types.ProcInfo(PROCS[0], "n0", "a", 1, 4)])
            }
            keys = [key for query in op.queries for key in query.keys]
            return tuple([Info(key, known.get(key, from_python("answer"))) for key in keys]), None
        if isinstance(op, ops.RegisterEventHandler) and not isinstance(op.handler.__self__, Handler):  # type: ignore[attr-defined]
            op.handler(Delivered(op.codes[0] if op.codes else -4242, self.spawned))
        elif isinstance(op, ops.GroupInvite) and op.answers is not None:
            op.answers(GroupAnswer(ACCEPTED, PROCS[0]))
        elif isinstance(op, ops.GroupWatch):
            op.changed(GroupChange(JOINED, GroupState("team", PROCS, epoch=2), PROCS[:1]))
        elif isinstance(op, ops.IOFPull) and op.handler is not None:
            op.handler(pypmix.Output(PROCS[0], pypmix.IOFChannel.STDERR, b"text"))
        ended: Callable[[None], None] | None = getattr(op, "ended", None)
        if ended is not None:
            ended(None)
        return super()._outcome(op)

    def fetch_local(self, proc: Proc, key: str) -> Value | None:
        return attrs.HOSTNAME("n0").value if key == "pmix.hname" else uint32(2)

    def group_state(self, name: str) -> GroupState | None:
        return GroupState(name, PROCS) if name == "team" else None


@pytest.fixture
def me(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    if request.param in ALONE:
        with Client(engine="python", env={}) as client:
            client.put("uid", "mine")
            yield client
        return
    for opener in ("pypmix.clientbase.open_client", "pypmix.tool.open_tool"):
        monkeypatch.setattr(opener, lambda *_: Answering("wait(" in request.param))
    with Client() as client:
        yield client


def label(case: tuple[Any, str]) -> str:
    return ".".join(filter(None, (case[0].__name__, case[1])))


@pytest.mark.parametrize(("kind", "name"), MEMBERS + OBJECTS, ids=map(label, MEMBERS + OBJECTS))
def test_a_member_has_an_example_of_a_few_lines(kind: type, name: str) -> None:
    assert 1 <= examples(kind, name).strip().count("\n") + 1 <= MOST
    assert examples(kind, name).strip()
    assert not re.search(r"\b(await|async)\b", examples(kind, name))


@pytest.mark.parametrize("kind", CLASSES)
def test_the_example_of_a_class_shows_its_properties(kind: type) -> None:
    shown = "".join([examples(each, "") for each in kind.__mro__ if each.__module__.startswith("pypmix")])
    lacking = [name for name in members(kind) if isinstance(getattr(kind, name), property) and f".{name}" not in shown]
    assert not [name for name in lacking if not examples(kind, name).strip()]


@pytest.mark.parametrize(
    ("kind", "name", "me"),
    [(kind, name, name if kind is Client else examples(kind, name)) for kind, name in MEMBERS + OBJECTS],
    ids=map(label, MEMBERS + OBJECTS),
    indirect=["me"],
)
def test_an_example_runs(
    kind: type,
    name: str,
    me: Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "read_machine" in examples(kind, name):
        files = write_files(Layout(cores=2, threads=2), tmp_path)
        monkeypatch.setattr(kernel, "Files", lambda: files)
    names = {each: getattr(pypmix, each) for each in pypmix.__all__}
    before = {*vars(me)}
    found = {**names, **{each: getattr(types, each) for each in types.__all__}, **TOPOLOGY, "me": me}
    monkeypatch.setattr(sys, "displayhook", lambda value: None if value is None else print(repr(value)))
    for each in find_examples(kind, name):
        exec(compile(each.source, label((kind, name)), "single"), found)
        shown = capsys.readouterr().out
        assert shown == each.want or not each.want
    assert {*vars(me)} >= before
    for handler in [each for each in found.values() if isinstance(each, Handler)]:
        # A failure of a handler would only be logged on its thread.
        handler(Event(Delivered(-4242).notification))


def test_only_the_listed_public_names_lack_an_example() -> None:
    listed = {name: reason for reason, names in LACKING.items() for name in names}
    public = find_public()
    assert set(listed) <= set(public)
    assert [name for name in listed if examples(public[name], "")] == []


@pytest.mark.parametrize("name", aio.__all__)
def test_the_awaited_form_has_the_same_examples_with_await(name: str) -> None:
    awaited, blocking = getattr(aio, name), find_public()[name]
    both = [(examples(awaited, each), examples(blocking, each)) for each in ("", *members(blocking))]
    assert [re.sub(r"\b(await|async) ", "", text) for text, _ in both] == [text for _, text in both]
    assert "await " in "".join([text for text, _ in both])
