"""Every public member of clients and groups has an example of a few lines in its docstring, and it runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pypmix
from lib.fake_session import FakeSession
from pypmix import Client, Group, Proc, aio, attrs
from pypmix.operations.control import Credentials, Monitors, ProcControl
from pypmix.operations.exchanging import Exchanging
from pypmix.operations.fabric import Fabrics
from pypmix.standard import ops
from pypmix.standard.ops import GroupResults, GroupState
from pypmix.standard.types import Info, Pdata, Value
from pypmix.standard.values import from_python
from pypmix.types import DeviceType, uint32

KINDS: tuple[type, ...] = (Client, Group, ProcControl, Monitors, Credentials, Fabrics)
MEMBERS = [
    (kind, name)
    for kind in KINDS
    for name in dir(kind)
    # A group has the exchanges of a client.
    if not name.startswith("_") and (kind is Client or name not in vars(Exchanging))
]
ALONE = {"put", "commit", "fence", "get", "bcast", "allgather", "gather", "scatter", "raw", "open", "close"}
"""Their examples run in a real job of one process. Others run with answers that are made up."""

PROCS = (Proc("job", 0), Proc("job", 1))


def examples(kind: type, name: str) -> str:
    """Return the program of the examples of a member."""
    text = inspect.getdoc(getattr(kind, name)) or ""
    found = re.findall(r"^ *(?:>>>|\.\.\.) ?(.*)$", text, re.M)
    return "\n".join(found) + "\n"


class Answering(FakeSession):
    """Answers each operation with something of its kind, and ends each stream at once."""

    def __init__(self) -> None:
        super().__init__()
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
        }

    def _outcome(self, op: Any) -> tuple[Any, BaseException | None]:
        if isinstance(op, ops.Get):
            return uint32(2), None
        if isinstance(op, ops.QueryInfo):
            return tuple([Info(key, from_python("answer")) for query in op.queries for key in query.keys]), None
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
    monkeypatch.setattr("pypmix.clientbase.open_client", lambda *_: Answering())
    with Client() as client:
        yield client


@pytest.mark.parametrize(("kind", "name"), MEMBERS, ids=[f"{kind.__name__}.{name}" for kind, name in MEMBERS])
def test_a_member_has_an_example_of_a_few_lines(kind: type, name: str) -> None:
    assert 1 <= examples(kind, name).strip().count("\n") + 1 <= 5
    assert not re.search(r"\b(await|async)\b", examples(kind, name))


@pytest.mark.parametrize(
    ("kind", "name", "me"),
    [(kind, name, name if kind is Client else "") for kind, name in MEMBERS],
    ids=[f"{kind.__name__}.{name}" for kind, name in MEMBERS],
    indirect=["me"],
)
def test_an_example_runs(kind: type, name: str, me: Client, capsys: pytest.CaptureFixture[str]) -> None:
    names = {each: getattr(pypmix, each) for each in pypmix.__all__}
    before = {*vars(me)}
    exec(examples(kind, name), {**names, "DeviceType": DeviceType, "me": me})
    assert {*vars(me)} >= before
    capsys.readouterr()


def test_the_awaited_form_has_the_same_examples_with_await() -> None:
    for name in ("put", "get", "spawn", "lookup"):
        text = examples(aio.Client, name)
        assert "await " in text
        assert text.replace("await ", "") == examples(Client, name)
