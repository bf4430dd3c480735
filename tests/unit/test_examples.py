"""Every public name has an example of a few lines in its docstring, and it runs.

Methods have their own. Classes have one of their use, which may be shown by that of a method, and properties and other
attributes are shown by the example of their class.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pypmix
from lib.fake_session import FakeSession
from pypmix import Client, Event, Group, Handler, Proc, aio, attrs, groups, types
from pypmix.operations.control import Credentials, Monitors, ProcControl
from pypmix.operations.fabric import Fabrics
from pypmix.operations.streams import Stream
from pypmix.standard import ops
from pypmix.standard.ops import GroupChange, GroupResults, GroupState, Notification
from pypmix.standard.ops.groups import ACCEPTED, JOINED, GroupAnswer
from pypmix.standard.types import Info, Pdata, Value
from pypmix.standard.values import from_python
from pypmix.types import DeviceType, uint32

KINDS: tuple[type, ...] = (Client, Group, ProcControl, Monitors, Credentials, Fabrics)
CLASSES: tuple[type, ...] = (
    pypmix.Connection,
    pypmix.ConnectEvent,
    pypmix.Event,
    pypmix.EventStream,
    pypmix.Handler,
    pypmix.Job,
    pypmix.Node,
    pypmix.ProcSet,
    pypmix.SpawnedJob,
    Stream,
    pypmix.InputWriter,
    pypmix.OutputStream,
    pypmix.Output,
    pypmix.Tool,
    *[getattr(groups, name) for name in groups.__all__],
    types.ProcSets,
    types.PsetChange,
    types.PsetStream,
)
"""Classes that have an example of their own use, and one for each method."""

INTERNAL = {
    "Connection": {"disconnected", "stands_for"},
    "Handler": {"begin", "call", "ready"},
    "Invitation": {"begin"},
    "Membership": {"require_results"},
    "OutputStream": {"id"},
    "SpawnedJob": {"ends"},
}
"""Members that only pypmix calls, or, as `ready`, only the awaited form needs."""

RECORDS = {"astuple", "count", "index", "replace", "unchecked", "unchecked_ranks"}
"""Members of all records and tuples, some for pypmix alone."""


def members(kind: type) -> list[str]:
    """Return the names of the functions and properties of a class."""
    names = [name for name in dir(kind) if not name.startswith("_") and name not in RECORDS]
    found = [
        name for name in names if inspect.isroutine(getattr(kind, name)) or isinstance(getattr(kind, name), property)
    ]
    ours = [name for name in found if getattr(getattr(kind, name), "__module__", "pypmix").startswith("pypmix")]
    return [name for name in ours if name not in INTERNAL.get(kind.__name__, ())]


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
OBJECTS = [(kind, "") for kind in CLASSES]
ALONE = {"put", "commit", "fence", "get", "bcast", "allgather", "gather", "scatter", "raw", "open", "close"}
"""Their examples run in a real job of one process. Others run with answers that are made up."""

PROCS = (Proc("job", 0), Proc("job", 1))


def examples(kind: type, name: str) -> str:
    """Return the program of the examples of a member; without a name, of the class or of the one it extends."""
    if name:
        text = inspect.getdoc(getattr(kind, name))
    else:
        text = next((each.__doc__ for each in kind.__mro__ if ">>>" in (each.__doc__ or "")), "")
    found = re.findall(r"^ *(?:>>>|\.\.\.) ?(.*)$", text or "", re.M)
    return "\n".join(found) + "\n"


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
            ops.ComputeDistances: (),
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
            return tuple([Info(key, from_python("answer")) for query in op.queries for key in query.keys]), None
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


def label(case: tuple[type, str]) -> str:
    return ".".join(filter(None, (case[0].__name__, case[1])))


@pytest.mark.parametrize(("kind", "name"), MEMBERS + OBJECTS, ids=map(label, MEMBERS + OBJECTS))
def test_a_member_has_an_example_of_a_few_lines(kind: type, name: str) -> None:
    assert 1 <= examples(kind, name).strip().count("\n") + 1 <= 5
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
def test_an_example_runs(kind: type, name: str, me: Client, capsys: pytest.CaptureFixture[str]) -> None:
    names = {each: getattr(pypmix, each) for each in pypmix.__all__}
    before = {*vars(me)}
    found = {**names, "DeviceType": DeviceType, "me": me}
    exec(examples(kind, name), found)
    assert {*vars(me)} >= before
    for handler in [each for each in found.values() if isinstance(each, Handler)]:
        # A failure of a handler would only be logged on its thread.
        handler(Event(Delivered(-4242).notification))
    capsys.readouterr()


def test_the_awaited_form_has_the_same_examples_with_await() -> None:
    for name in ("put", "get", "spawn", "lookup"):
        text = examples(aio.Client, name)
        assert "await " in text
        assert text.replace("await ", "") == examples(Client, name)
