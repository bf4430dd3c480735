"""Each upcall reaches its handler with the arguments of the official binding, and its answer reaches who asks."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
from compat.serving import ELSEWHERE, HERE, LIMIT, Mailbox, client, hosting, job_infos, one_client, serving, together

import pypmix
from pypmix import attrs
from pypmix.compat import (
    PMIX_ERR_BAD_PARAM,
    PMIX_ERR_NOT_FOUND,
    PMIX_ERR_NOT_SUPPORTED,
    PMIX_ERROR,
    PMIX_INT32,
    PMIX_OPERATION_SUCCEEDED,
    PMIX_STRING,
    PMIX_SUCCESS,
)
from pypmix.compat.server import PMIxServer
from pypmix.compat.serveranswers import PERMITTED, setmodulefn
from pypmix.compat.serverupcalls import ROWS
from pypmix.standard import ops, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.structures import ResourceUnit
from pypmix.standard.types import App, Pdata, Proc, Query, Value
from pypmix.standard.values import info as make_info

ME = Proc("job", 0)
DICT = {"nspace": "job", "rank": 0}
WHAT = attrs.TIMEOUT(5)
TOLD = {"key": "pmix.timeout", "flags": 0, "value": 5, "val_type": 6}
ANSWER = [{"key": "acme.answer", "flags": 0, "value": 42, "val_type": int(PMIX_INT32)}]
ANSWERED = (make_info("acme.answer", pypmix.types.int32(42)),)
USER = [
    {"key": "pmix.euid", "flags": 0, "value": 7, "val_type": 14},
    {"key": "pmix.egid", "flags": 0, "value": 8, "val_type": 14},
]


class Fake:
    """An upcall, as an engine makes it."""

    def __init__(self, op: Any) -> None:
        self.op = op
        self.requestor: Proc | None = ME
        self.uid: int | None = 7
        self.gid: int | None = 8
        self.box = Mailbox()

    def reply(self, result: Any = None) -> None:
        self.box("reply", result)

    def fail(self, error: BaseException) -> None:
        self.box("fail", error)

    def answer(self) -> tuple[str, Any]:
        what, value = self.box.wait()[0]
        return what, value


def _published(infos: list[Any]) -> list[Any]:
    given = [{"key": "pmix.range", "flags": 0, "value": 4, "val_type": 33}]
    return [*infos, *given, {"key": "pmix.persist", "flags": 0, "value": 3, "val_type": 30}, *USER]


CASES: dict[str, tuple[str, Any, Any, tuple[Any, ...], Any]] = {
    "clientfinalized": ("clientfinalized", ops.ClientFinalized(ME), DICT, (), None),
    "clientconnected": ("clientconnected", ops.ClientConnected(ME, 12, "5.0.1"), DICT, (), None),
    "clientconnected2": (
        "clientconnected2",
        ops.ClientConnected(ME, directives=(WHAT,)),
        {"proc": DICT, "directives": [TOLD, *USER]},
        (),
        None,
    ),
    "abort": (
        "abort",
        ops.ClientAborted(ME, 3, "stop", (ME,)),
        {"caller": DICT, "status": 3, "msg": "stop", "targets": [DICT], "proc": DICT, "procs": [DICT]},
        (),
        None,
    ),
    "fencenb": (
        "fencenb",
        ops.FenceUpcall((ME,), (WHAT,), b"a\0b"),
        {"procs": [DICT], "directives": [TOLD], "data": bytearray(b"a\0b")},
        (bytearray(b"c\0d"),),
        b"c\0d",
    ),
    "directmodex": (
        "directmodex",
        ops.DirectModex(ME, (WHAT,)),
        {"proc": DICT, "directives": [TOLD]},
        (b"e\0f",),
        b"e\0f",
    ),
    "publish": (
        "publish",
        ops.Publish((make_info("acme.key", "text"),)),
        {
            "proc": DICT,
            "directives": _published([{"key": "acme.key", "flags": 0, "value": "text", "val_type": int(PMIX_STRING)}]),
        },
        (),
        None,
    ),
    "lookup": (
        "lookup",
        ops.Lookup(("acme.key",)),
        {"proc": DICT, "keys": ["acme.key"], "directives": USER},
        ([{"proc": DICT, "key": b"acme.key", "value": "text", "val_type": PMIX_STRING}],),
        (Pdata(ME, "acme.key", Value(3, "text")),),
    ),
    "unpublish": (
        "unpublish",
        ops.Unpublish(("acme.key",)),
        {"proc": DICT, "keys": ["acme.key"], "directives": USER},
        (),
        None,
    ),
    "spawn": (
        "spawn",
        ops.Spawn((App("true", ("true",), (), "/", 2),), (WHAT,)),
        {
            "proc": DICT,
            "jobinfo": [TOLD],
            "apps": [{"cmd": "true", "argv": ["true"], "env": [], "cwd": "/", "maxprocs": 2, "info": []}],
        },
        ("job2",),
        "job2",
    ),
    "connect": ("connect", ops.Connect((ME,), (WHAT,)), {"procs": [DICT], "directives": [TOLD]}, (), None),
    "disconnect": ("disconnect", ops.Disconnect((ME,)), {"procs": [DICT], "directives": []}, (), None),
    "registerevents": (
        "registerevents",
        ops.RegisterEvents((-61,), (WHAT,)),
        {"codes": [-61], "directives": [TOLD]},
        (),
        None,
    ),
    "deregisterevents": ("deregisterevents", ops.DeregisterEvents((-61,)), {"codes": [-61]}, (), None),
    "notifyevent": (
        "notifyevent",
        ops.NotifyEvent(-61, 4, (WHAT,)),
        {"code": -61, "source": DICT, "range": 4, "directives": [TOLD]},
        (),
        None,
    ),
    "query": (
        "query",
        ops.QueryInfo((Query(("acme.answer",), (WHAT,)),)),
        {"queries": [{"keys": ["acme.answer"], "qualifiers": [TOLD]}], "source": DICT},
        (ANSWER,),
        ANSWERED,
    ),
    "toolconnected": (
        "toolconnected",
        ops.ToolConnected(directives=(WHAT,)),
        {"directives": [TOLD, *USER]},
        ({"nspace": "tool", "rank": 1},),
        Proc("tool", 1),
    ),
    "log": (
        "log",
        ops.Log((make_info("pmix.log.stderr", "text"),), (WHAT,)),
        {
            "source": DICT,
            "data": [{"key": "pmix.log.stderr", "flags": 0, "value": "text", "val_type": int(PMIX_STRING)}],
            "directives": [TOLD],
        },
        (),
        None,
    ),
    "allocate": (
        "allocate",
        ops.AllocationRequest(1, (WHAT,)),
        {"source": DICT, "action": 1, "directives": [TOLD]},
        (ANSWER,),
        ANSWERED,
    ),
    "jobcontrol": (
        "jobcontrol",
        ops.JobControl((ME,), (WHAT,)),
        {"source": DICT, "targets": [DICT], "directives": [TOLD]},
        (ANSWER,),
        ANSWERED,
    ),
    "monitor": (
        "monitor",
        ops.ProcessMonitor(WHAT, -109, ()),
        {"source": DICT, "monitor": TOLD, "error": -109, "directives": []},
        (ANSWER,),
        ANSWERED,
    ),
    "getcredential": (
        "getcredential",
        ops.GetCredential((WHAT,)),
        {"source": DICT, "directives": [TOLD]},
        ({"bytes": b"c\0d", "size": 3}, ANSWER),
        ops.Credential(b"c\0d", ANSWERED),
    ),
    "validatecredential": (
        "validatecredential",
        ops.ValidateCredential(b"c\0d"),
        {"source": DICT, "credential": {"bytes": bytearray(b"c\0d"), "size": 3}, "directives": []},
        (ANSWER,),
        ANSWERED,
    ),
    "iofpull": (
        "iofpull",
        ops.IOFPull((ME,), 6, (WHAT,)),
        {"channels": 6, "sources": [DICT], "directives": [TOLD]},
        (),
        None,
    ),
    "pushstdin": (
        "pushstdin",
        ops.IOFPush((ME,), b"x\0", (WHAT,)),
        {
            "source": DICT,
            "targets": [DICT],
            "directives": [TOLD],
            "payload": {"bytes": bytearray(b"x\0"), "size": 2},
        },
        (),
        None,
    ),
    "group": (
        "group",
        # What a Python server adds for hosts of pypmix is no directive of PMIx.
        ops.GroupUpcall(0, "team", (ME,), (WHAT, make_info("pypmix.grp.round", pypmix.types.uint32(1)))),
        {"op": 0, "group": "team", "procs": [DICT], "directives": [TOLD]},
        (ANSWER,),
        ANSWERED,
    ),
    "fabric": (
        "fabric",
        ops.FabricRegister((WHAT,)),
        {"source": DICT, "op": 0, "directives": [TOLD]},
        (ANSWER,),
        ANSWERED,
    ),
    "sessioncontrol": (
        "sessioncontrol",
        ops.SessionControl(3, (WHAT,)),
        {"requestor": DICT, "sessionID": 3, "directives": [TOLD]},
        (ANSWER,),
        ANSWERED,
    ),
    "resourceblock": (
        "resourceblock",
        ops.ResourceBlock(1, "block", (ResourceUnit(2, 3),), (WHAT,)),
        {
            "requestor": DICT,
            "directive": 1,
            "block": "block",
            "units": [{"type": 2, "count": 3}],
            "info": [TOLD],
        },
        (),
        None,
    ),
}
"""By upcall: its key, an operation, what the handler is given, what it answers with, and what the engine is told."""


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


def ask(server: PMIxServer, key: str, handler: Any, op: Any) -> tuple[str, Any]:
    """Put an operation to a handler, and return what the engine is told."""
    from pypmix.compat.serveranswers import Handler

    host = hosting(server)
    host.module = {key: Handler(key, handler)}
    fake = Fake(op)
    host.upcall(fake)
    return fake.answer()


def test_every_upcall_is_in_the_table():
    keys = {key for row in ROWS.values() for key in row.keys}
    assert keys == {*PERMITTED} - {"listener"}
    assert {case[0] for case in CASES.values()} == keys - {"log2", "toolconnected2", "notify_event"}


@pytest.mark.parametrize("name", CASES)
def test_a_handler_of_master_answers_by_its_completion_function(server, name):
    key, op, expected, answer, result = CASES[name]
    given = []

    def handler(args, cbfunc, cbdata):
        given.append(args)
        cbfunc(PMIX_SUCCESS, *answer, cbdata)
        return PMIX_SUCCESS

    assert ask(server, key, handler, op) == ("reply", result)
    assert given == [expected]


@pytest.mark.parametrize("name", CASES)
def test_a_handler_of_the_appendix_answers_by_what_it_returns(server, name):
    key, op, expected, answer, result = CASES[name]
    given = []

    def handler(args):
        given.append(args)
        return (PMIX_SUCCESS, *answer) if answer else PMIX_SUCCESS

    assert ask(server, key, handler, op) == ("reply", result)
    assert given == [expected["proc"] if name == "clientconnected2" else expected]


@pytest.mark.parametrize("name", ["publish", "fencenb", "group", "lookup"])
def test_a_status_refuses(server, name):
    key, op, *_ = CASES[name]
    told = []

    def later(args, cbfunc, cbdata):
        cbfunc(PMIX_ERR_NOT_FOUND, None, cbdata)
        return PMIX_SUCCESS

    for handler in (lambda args, cbfunc, cbdata: PMIX_ERR_NOT_FOUND, lambda args: PMIX_ERR_NOT_FOUND, later):
        what, error = ask(server, key, handler, op)
        told.append((what, error.code))
    assert told == [("fail", PMIX_ERR_NOT_FOUND)] * 3


def test_operation_succeeded_ends_an_upcall(server):
    key, op, *_ = CASES["group"]
    assert ask(server, key, lambda args, cbfunc, cbdata: PMIX_OPERATION_SUCCEEDED, op) == ("reply", ())
    assert ask(server, "fencenb", lambda args: PMIX_OPERATION_SUCCEEDED, CASES["fencenb"][1]) == ("reply", b"")


@pytest.mark.parametrize("handler", [lambda args, cbfunc, cbdata: 1 / 0, lambda args: {}["key"]])
def test_an_exception_is_logged_and_answered(server, caplog, handler):
    with caplog.at_level(logging.ERROR, "pypmix.compat"):
        what, error = ask(server, "group", handler, CASES["group"][1])
    assert (what, error.code) == ("fail", PMIX_ERROR)
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.exc_info[0] in (ZeroDivisionError, KeyError)


@pytest.mark.parametrize(
    ("name", "answer"), [("fencenb", (17,)), ("lookup", ([{}],)), ("query", ("text",)), ("spawn", (None,))]
)
def test_an_answer_that_makes_no_sense_is_an_error(server, caplog, name, answer):
    def handler(args, cbfunc, cbdata):
        cbfunc(PMIX_SUCCESS, *answer, cbdata)
        return PMIX_SUCCESS

    what, error = ask(server, name, handler, CASES[name][1])
    assert what == "fail" and isinstance(error, PMIxError) and error.code < 0
    assert "not a result of it" in caplog.text


def test_a_handler_without_a_status_is_an_error(server, caplog):
    what, error = ask(server, "publish", lambda args, cbfunc, cbdata: None, CASES["publish"][1])
    assert (what, error.code) == ("fail", PMIX_ERROR) and "not a status" in caplog.text


def test_a_second_answer_is_logged(server, caplog):
    def handler(args, cbfunc, cbdata):
        cbfunc(PMIX_SUCCESS, cbdata)
        cbfunc(PMIX_ERR_NOT_FOUND, cbdata)
        return PMIX_ERR_NOT_FOUND

    assert ask(server, "publish", handler, CASES["publish"][1]) == ("reply", None)
    # The handler goes on while the answer is on its way.
    assert ask(server, "publish", lambda args: PMIX_SUCCESS, CASES["publish"][1]) == ("reply", None)
    assert "one that has its answer" in caplog.text


def test_an_event_ends_when_its_handler_returns(server):
    """OpenPMIx's own example never calls the completion function."""
    for key in ("notifyevent", "notify_event"):
        assert ask(server, key, lambda args, cbfunc, cbdata: PMIX_SUCCESS, CASES["notifyevent"][1]) == ("reply", None)


def test_handlers_of_other_shapes(server):
    """The handlers of the appendix's example and of 4.2 are called as they want it."""
    told = []

    def fence(procs, directives, data):
        told.append((procs, directives, data))
        return PMIX_OPERATION_SUCCEEDED

    assert ask(server, "fencenb", fence, CASES["fencenb"][1]) == ("reply", b"")
    assert told == [([DICT], [TOLD], bytearray(b"a\0b"))]

    def query(args, queries):
        return PMIX_SUCCESS, ANSWER if queries == args["queries"] else []

    assert ask(server, "query", query, CASES["query"][1]) == ("reply", ANSWERED)

    def joined(proc, infos):
        return PMIX_SUCCESS if (proc, infos) == (DICT, [TOLD, *USER]) else PMIX_ERR_BAD_PARAM

    assert ask(server, "clientconnected2", joined, CASES["clientconnected2"][1]) == ("reply", None)


def test_upcalls_without_a_handler(server):
    host = hosting(server)
    host.module = {}
    for name, (_, op, *_) in CASES.items():
        fake = Fake(op)
        host.upcall(fake)
        what, error = fake.answer()
        free = name in ("clientconnected", "clientconnected2", "clientfinalized")
        assert what == ("reply" if free else "fail"), name
        assert free or error.code == PMIX_ERR_NOT_SUPPORTED
    fake = Fake(ops.Heartbeat())
    host.upcall(fake)
    assert fake.answer() == ("reply", None)


def test_what_one_client_can_leave_unanswered_is_bounded(server):
    from pypmix.compat.serveranswers import Handler
    from pypmix.serverbase import MAX_UNANSWERED

    host = hosting(server)
    kept = Mailbox()

    def handler(args, cbfunc, cbdata):
        kept(cbfunc, cbdata)
        return PMIX_SUCCESS

    host.module = {"publish": Handler("publish", handler)}
    fakes = [Fake(CASES["publish"][1]) for _ in range(MAX_UNANSWERED + 1)]
    for fake in fakes:
        host.upcall(fake)
    what, error = fakes[-1].answer()
    assert what == "fail" and error.code == statuses.ERR_RESOURCE_BUSY
    for cbfunc, cbdata in kept.wait(MAX_UNANSWERED):
        cbfunc(PMIX_SUCCESS, cbdata)
    assert [fake.answer() for fake in fakes[:-1]] == [("reply", None)] * MAX_UNANSWERED
    assert not host._busy and not host._pending


def test_setmodulefn():
    from pypmix import compat

    def handler(args, cbfunc, cbdata):
        return PMIX_SUCCESS

    assert setmodulefn("monitor", handler) == PMIX_SUCCESS
    assert compat.pmixservermodule["monitor"] is handler
    assert setmodulefn("nonsense", handler) == PMIX_ERR_BAD_PARAM
    assert setmodulefn("monitor", None) == PMIX_ERR_BAD_PARAM


# With clients, on two servers that are two nodes.


class Pair:
    """Two servers, whose hosts pass on to each other what they are asked."""

    def __init__(self) -> None:
        self.servers: list[PMIxServer] = []
        self._waiting: list[tuple[Any, Any, Any]] = []
        self.threads: list[str] = []

    def module(self) -> dict[str, Any]:
        return {"fencenb": self.fence, "group": self.group, "directmodex": self.modex}

    def _met(self, args: Any, cbfunc: Any, cbdata: Any, answer: Any) -> int:
        self._waiting.append((args, cbfunc, cbdata))
        if len(self._waiting) == 2:
            met, self._waiting = self._waiting, []
            told = answer([each[0] for each in met])
            for _, complete, data in met:
                complete(PMIX_SUCCESS, told, data)
        return int(PMIX_SUCCESS)

    def fence(self, args: Any, cbfunc: Any, cbdata: Any) -> int:
        return self._met(args, cbfunc, cbdata, lambda met: b"".join(bytes(each["data"]) for each in met))

    def group(self, args: Any, cbfunc: Any, cbdata: Any) -> int:
        def answer(met: list[Any]) -> list[dict[str, Any]]:
            members = {"type": 22, "array": met[0]["procs"]}
            context = {"key": "pmix.grp.ctxid", "value": 42, "val_type": 4}
            return [{"key": "pmix.grp.mbrs", "value": members, "val_type": 39}, context]

        return self._met(args, cbfunc, cbdata, answer)

    def modex(self, args: Any, cbfunc: Any, cbdata: Any) -> int:
        rc, (data, _size) = self.servers[args["proc"]["rank"]].dmodex_request(args["proc"])
        cbfunc(rc, data, cbdata)
        return int(PMIX_SUCCESS)


@pytest.fixture
def pair():
    made = Pair()
    nodes = {HERE: "0", ELSEWHERE: "1"}
    with (
        serving(made.module()) as first,
        serving(made.module(), [{"key": "pmix.hname", "value": ELSEWHERE, "val_type": PMIX_STRING}]) as second,
    ):
        made.servers = [first, second]
        for server in made.servers:
            assert server.register_nspace("job", 1, job_infos(server, nodes)) == PMIX_SUCCESS
        with client(first, "job", 0) as zero, client(second, "job", 1) as one:
            yield made, zero, one


def test_fence_and_modex_cross_the_hosts(pair):
    _, zero, one = pair
    zero.put("acme.key", "zero")
    one.put("acme.key", b"o\0e")
    together(lambda: zero.fence(collect=True, timeout=LIMIT), lambda: one.fence(collect=True, timeout=LIMIT))
    assert zero.get("acme.key", one.proc) == b"o\0e"
    assert one.get("acme.key", zero.proc) == "zero"
    # What is committed later is asked for.
    one.put("acme.late", 7)
    one.commit()
    assert zero.get("acme.late", one.proc, timeout=LIMIT) == 7


def test_a_group_crosses_the_hosts(pair):
    _, zero, one = pair
    procs = [zero.proc, one.proc]

    def construct(me: pypmix.Client) -> Any:
        with me.group("acme.team", procs, context_id=True, timeout=LIMIT) as group:
            return tuple(group.members), group.context_id

    found = together(lambda: construct(zero), lambda: construct(one))
    assert found == [((zero.proc, one.proc), 42)] * 2


def test_a_fence_whose_handler_fails_does_not_hang(caplog):
    with one_client({"fencenb": lambda args, cbfunc, cbdata: 1 / 0}, {HERE: "0", ELSEWHERE: "1"}) as (_, me):
        with pytest.raises(pypmix.PMIxError) as caught:
            me.fence(timeout=LIMIT)
        assert caught.value.code == PMIX_ERROR
    assert "ZeroDivisionError" in caplog.text


def test_clients_come_and_go():
    seen = Mailbox()

    def note(what):
        def handler(proc, cbfunc, cbdata):
            seen(what, proc)
            cbfunc(PMIX_SUCCESS, cbdata)
            return PMIX_SUCCESS

        return handler

    with one_client({"clientconnected": note("connected"), "clientfinalized": note("finalized")}):
        assert seen.wait() == [("connected", DICT)]
    assert seen.wait(2)[1] == ("finalized", DICT)


def test_a_client_that_is_refused():
    with serving({"clientconnected": lambda proc: PMIX_ERR_NOT_SUPPORTED}) as server:
        assert server.register_nspace("job", 1, job_infos(server, {HERE: "0"})) == PMIX_SUCCESS
        with pytest.raises(pypmix.PMIxError):
            client(server, "job", 0).open()


def test_published_data_are_the_hosts():
    """The handlers of OpenPMIx's test server for 4.2, which decode the keys."""
    data: list[Any] = []

    def publish(args):
        for each in args["directives"]:
            data.append({"proc": args["proc"], **{name: each[name] for name in ("key", "value", "val_type")}})
        return PMIX_OPERATION_SUCCEEDED

    def lookup(args):
        return PMIX_SUCCESS, [each for key in args["keys"] for each in data if key.decode("ascii") == each["key"]]

    def unpublish(args):
        data[:] = [each for each in data if each["key"] not in args["keys"]]
        return PMIX_OPERATION_SUCCEEDED

    with one_client({"publish": publish, "lookup": lookup, "unpublish": unpublish}) as (_, me):
        me.publish({"acme.port": "here"})
        assert me.lookup("acme.port") == "here"
        me.unpublish("acme.port")
        with pytest.raises(pypmix.NotFound):
            me.lookup("acme.port")


def test_a_tool_is_named_by_the_host(tmp_path):
    infos = [
        {"key": "pmix.srvr.tmpdir", "value": str(tmp_path), "val_type": PMIX_STRING},
        {"key": "pmix.srvr.tool", "value": True, "val_type": 1},
    ]

    def handler(args, cbfunc, cbdata):
        cbfunc(PMIX_SUCCESS, {"nspace": "acme.tools", "rank": 3}, cbdata)

    with (
        serving({"toolconnected": handler}, infos),
        pypmix.Tool(pid=os.getpid(), tmpdir=tmp_path, engine="python") as tool,
    ):
        assert tool.proc == Proc("acme.tools", 3)
