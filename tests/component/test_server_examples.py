"""The examples in the docstrings of servers and hosts run, with real servers and processes."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pypmix
from lib.docexamples import MOST, find_examples, read_program
from pypmix import Proc, host
from pypmix.host import Application, Host, JobLayout, NodeLayout
from pypmix.host.callbacks.upcalls import Upcalls


def find_members(kind: type) -> list[str]:
    """Return the names of the public methods of a class."""
    return [name for name in dir(kind) if not name.startswith("_") and inspect.isroutine(getattr(kind, name))]


UPCALLS = {*vars(Upcalls)} - {"default"}
"""Methods to override, which the example of `Request` shows."""

CLASSES = [getattr(host, name) for name in host.__all__ if inspect.isclass(getattr(host, name))]
CASES: list[tuple[Any, str]] = [
    *[(pypmix.Server, name) for name in ("", *find_members(pypmix.Server))],
    *[(Host, name) for name in find_members(Host) if name not in UPCALLS],
    *[(host.Request, name) for name in ("fail", "reply")],
    *[(each, name) for each in (host.Processes, host.BlockingProcesses) for name in ("signal", "wait")],
    (host.LocalHost, "run"),
    # The examples of a session's methods show its use; they need daemons.
    *[(each, "") for each in CLASSES if each is not host.Session],
]


@pytest.fixture
def scope(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The public names, with an open server or host that has registered a job of two ranks."""
    monkeypatch.setenv("PYPMIX_ENGINE", "python")
    found = {name: getattr(module, name) for module in (pypmix, host) for name in module.__all__}
    if request.param is pypmix.Server:
        job = JobLayout("job1", (Application(("true",), np=2),), (NodeLayout("node1", (0, 1)),))
        with pypmix.Server(tmpdir=tmp_path) as server:
            server.register_nspace(job)
            server.register_client(Proc("job1", 0))
            yield {**found, "server": server}
    elif "host" in read_program(*request.node.callspec.params["case"]):
        with Host(tmpdir=str(tmp_path)) as manager:
            manager.job("job1", np=2)
            yield {**found, "host": manager}
    else:
        yield found


@pytest.mark.parametrize(
    ("case", "scope"),
    [(case, case[0]) for case in CASES],
    ids=[".".join(filter(None, (kind.__name__, name))) for kind, name in CASES],
    indirect=["scope"],
)
def test_an_example_runs(
    case: tuple[Any, str],
    scope: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "displayhook", lambda value: None if value is None else print(repr(value)))
    assert 1 <= read_program(*case).count("\n") <= MOST
    for each in find_examples(*case):
        code = compile(each.source, "example", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, scope))
        else:
            exec(code, scope)
        shown = capsys.readouterr().out
        assert shown == each.want or not each.want
