"""`PMIxScheduler`, and a tool with a server module: they serve those who connect to them."""

from __future__ import annotations

import os
from typing import Any

import pytest
from compat.serving import info

import pypmix
from pypmix import attrs
from pypmix.compat import (
    PMIX_BOOL,
    PMIX_ERR_BAD_PARAM,
    PMIX_ERR_INIT,
    PMIX_ERR_UNREACH,
    PMIX_PROC_RANK,
    PMIX_STRING,
    PMIX_SUCCESS,
    PMIX_UINT32,
    PMIxScheduler,
    PMIxServer,
    PMIxTool,
)


def allocate(args: Any, cbfunc: Any, cbdata: Any) -> int:
    cbfunc(PMIX_SUCCESS, [info("acme.granted", args["action"], PMIX_UINT32)], cbdata)
    return int(PMIX_SUCCESS)


def admit(args: Any, cbfunc: Any, cbdata: Any) -> None:
    cbfunc(PMIX_SUCCESS, {"nspace": "acme.tool", "rank": 5}, cbdata)


MODULE = {"allocate": allocate, "toolconnected": admit}


@pytest.fixture(autouse=True)
def python_engine(monkeypatch):
    monkeypatch.setenv("PYPMIX_ENGINE", "python")


def places(folder: Any) -> list[dict[str, Any]]:
    return [
        info("pmix.srvr.tmpdir", str(folder), PMIX_STRING),
        info("pmix.sys.tmpdir", str(folder), PMIX_STRING),
        info("pmix.srvr.tool", True, PMIX_BOOL),
    ]


def test_classes():
    assert issubclass(PMIxScheduler, PMIxTool) and issubclass(PMIxTool, PMIxServer)


@pytest.mark.parametrize("before", [True, False], ids=["module before init", "module after init"])
def test_a_scheduler_serves_those_who_connect_to_it(tmp_path, before):
    scheduler = PMIxScheduler()
    assert scheduler.set_server_module({}) == PMIX_ERR_INIT
    if before:
        assert scheduler.set_server_module(MODULE) == PMIX_ERR_INIT
    rc, name = scheduler.init([*places(tmp_path), info("pmix.srv.sched", True, PMIX_BOOL)])
    assert rc == PMIX_SUCCESS
    try:
        if not before:
            assert scheduler.set_server_module(MODULE) == PMIX_SUCCESS
        wanted = [attrs.CONNECT_TO_SCHEDULER(True), attrs.SYSTEM_TMPDIR(str(tmp_path))]
        with pypmix.Tool(info=wanted, engine="python") as tool:
            assert tool.proc == pypmix.Proc("acme.tool", 5)
            (server,) = tool.get_servers()
            assert {"nspace": server.nspace, "rank": server.rank} == name
            found = tool.allocate(pypmix.AllocDirective.NEW)
            assert found["acme.granted"] == pypmix.AllocDirective.NEW
        # There is no handler for it, and nobody else to ask.
        assert scheduler.session_control(1, []) == PMIX_ERR_UNREACH
    finally:
        assert scheduler.finalize() == PMIX_SUCCESS
    assert scheduler.finalize() == PMIX_ERR_INIT


def test_a_tool_with_a_server_module(tmp_path):
    """As dyn_rm begins: a tool of a name of its own, that connects to nobody at first."""
    tool = PMIxTool()
    assert tool.set_server_module(MODULE) == PMIX_ERR_INIT
    names = [info("pmix.tool.nspace", "acme.rm", PMIX_STRING), info("pmix.tool.rank", 0, PMIX_PROC_RANK)]
    rc, name = tool.init([*names, *places(tmp_path), info("pmix.tool.nocon", True, PMIX_BOOL)])
    assert (rc, name) == (PMIX_SUCCESS, {"nspace": "acme.rm", "rank": 0})
    try:
        assert tool.set_server_module({"nonsense": allocate}) == PMIX_ERR_INIT
        assert tool.set_server_module(MODULE) == PMIX_SUCCESS
        with pypmix.Tool(pid=os.getpid(), tmpdir=tmp_path, engine="python") as other:
            assert other.allocate(pypmix.AllocDirective.NEW)["acme.granted"] == 1
        # It serves jobs as a server does.
        assert tool.register_nspace("acme.job", 1, []) == PMIX_SUCCESS
        env: dict[str, str] = {}
        assert tool.register_client({"nspace": "acme.job", "rank": 0}, os.geteuid(), os.getegid()) == PMIX_SUCCESS
        assert tool.setup_fork({"nspace": "acme.job", "rank": 0}, env) == PMIX_SUCCESS
        with pypmix.Client(engine="python", env=env) as me:
            assert me.job.size == 1
        assert tool.register_client({"nspace": "acme.job"}, 0, 0) == PMIX_ERR_BAD_PARAM
    finally:
        assert tool.finalize() == PMIX_SUCCESS
    assert tool.register_nspace("acme.job", 1, []) == PMIX_ERR_INIT
