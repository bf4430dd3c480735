"""Proves that the two forms of the server hand everything to the engine, and refuse what makes no sense at the call."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import time
from functools import partial

import anyio
import pytest

import pypmix
from pypmix import NotFound, OperationTimeout, PMIxError, Proc, aio, attrs, server
from pypmix.host import Application, JobLayout, NodeLayout
from pypmix.standard import statuses
from pypmix.standard.errors import NotInitialized
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Notification, Output
from pypmix.types import uint32

pytestmark = pytest.mark.timeout(60)

PACKAGE = os.path.dirname(pypmix.__file__) + os.sep
ME = Proc("job", 0)
JOB = JobLayout("job", (Application(("true",), 2),), (NodeLayout("n0", (0, 1)),))
INFO = (attrs.TIMEOUT(1),)
EVENT = Notification(-1, ME)
OUTPUT = Output(ME, 2, b"text")


class Session:
    """A session of an engine that notes what it is asked."""

    info, proc = "engine", Proc("server", 0)

    def __init__(self):
        self.calls = []
        self.modex = lambda done: threading.Thread(target=done, args=(b"data", None)).start()

    def dmodex_request(self, proc, done, **more):
        self.calls.append(("dmodex_request", proc))
        self.more = more
        self.modex(done)

    def __getattr__(self, name):
        def note(*args):
            self.calls.append((name, *args))
            return {
                "client_env": {"PMIX_RANK": "0"},
                "pending": [],
                "setup_application": INFO,
                "collect_inventory": INFO,
                "groups": (("acme", (ME,)),),
                "connections": (("acme@1", (ME,)),),
            }.get(name)

        return note


@pytest.fixture
def session(monkeypatch):
    made = Session()
    made.opened = []

    def open_server(on_upcall, engine, options):
        made.opened.append(engine)
        return made

    monkeypatch.setattr(server, "open_server", open_server)
    monkeypatch.setattr("pypmix.aio.server.open_server", open_server)
    return made


CALLS = [
    (("register_nspace", JOB), ("register_nspace", JOB.info(), None), None),
    (("register_nspace", JOB.info(), [1]), ("register_nspace", JOB.info(), (1,)), None),
    (("register_nspace", JOB, ()), ("register_nspace", JOB.info(), ()), None),
    (("deregister_nspace", "job"), ("deregister_nspace", "job"), None),
    (("register_client", ME, 5, 6), ("register_client", ME, 5, 6), None),
    (("deregister_client", ME), ("deregister_client", ME), None),
    (("client_env", ME), ("client_env", ME), {"PMIX_RANK": "0"}),
    (("define_process_set", "set", [ME]), ("define_process_set", "set", (ME,), False), None),
    (("define_process_set", "set", ME), ("define_process_set", "set", (ME,), False), None),
    (("delete_process_set", "set"), ("delete_process_set", "set"), None),
    (("dmodex_request", ME), ("dmodex_request", ME), b"data"),
    (("setup_application", "job", INFO), ("setup_application", "job", INFO), INFO),
    (("setup_local_support", "job", INFO), ("setup_local_support", "job", INFO), None),
    (("collect_inventory",), ("collect_inventory", ()), INFO),
    (("deliver_inventory", INFO), ("deliver_inventory", INFO, ()), None),
    (("register_resources", {attrs.TIMEOUT: 1}), ("register_resources", INFO), None),
    (("deregister_resources", INFO), ("deregister_resources", INFO), None),
    (("store_internal", ME, "acme.a", uint32(5)), ("store_internal", ME, "acme.a", uint32(5)), None),
    (("store_internal", ME, attrs.TIMEOUT, 1), ("store_internal", ME, "pmix.timeout", INFO[0].value), None),
    (("notify", EVENT), ("notify", EVENT), None),
    (("deliver_output", OUTPUT), ("deliver_output", OUTPUT), None),
    (("pending",), ("pending",), []),
    (("groups",), ("groups",), (("acme", (ME,)),)),
    (("connections",), ("connections",), (("acme@1", (ME,)),)),
]

BAD = [
    ("register_nspace", "job"),
    ("register_nspace", JobInfo("")),
    ("register_nspace", JOB, [-1]),
    ("register_nspace", JOB, [True]),
    ("register_nspace", JOB, ["0"]),
    ("deregister_nspace", ""),
    ("deregister_nspace", 5),
    ("deregister_nspace", "x" * 256),
    ("register_client", ("job", 0)),
    ("register_client", ME, "root"),
    ("register_client", ME, 0, -1),
    ("deregister_client", "job"),
    ("client_env", None),
    ("define_process_set", "", [ME]),
    ("define_process_set", "set", []),
    ("define_process_set", "set", None),
    ("define_process_set", "set", ["job:0"]),
    ("define_process_set", "set\0", [ME]),
    ("delete_process_set", None),
    ("dmodex_request", "job"),
    ("setup_application", "", INFO),
    ("setup_application", "job", [5]),
    ("setup_local_support", 5),
    ("deliver_inventory", ["x"]),
    ("register_resources", ["x"]),
    ("store_internal", ME, 5, 5),
    ("store_internal", ME, "", 5),
    ("store_internal", ME, attrs.TIMEOUT, "x"),
    ("store_internal", "me", "acme.a", 5),
    ("notify", -1),
    ("notify", Notification("x", ME)),
    ("notify", Notification(-1, "me")),
    ("notify", Notification(-1, ME, None, [1])),
    ("deliver_output", b"text"),
    ("deliver_output", Output(ME, 3, b"x")),
    ("deliver_output", Output(ME, 2, "x")),
    ("deliver_output", Output("me", 2, b"x")),
]


def call(form, asked, function=lambda server, name, args: getattr(server, name)(*args)):
    name, *args = asked
    if form == "sync":
        with pypmix.Server() as opened:
            return function(opened, name, args)

    async def main():
        async with aio.Server() as opened:
            return await function(opened, name, args)

    return anyio.run(main, backend=form)


FORMS = ["sync", "asyncio", "trio"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("asked", "told", "result"), CALLS, ids=[asked[0] for asked, _, _ in CALLS])
def test_each_function_reaches_the_engine(session, form, asked, told, result):
    assert call(form, asked) == result
    assert session.calls == [told, ("close",)]


@pytest.mark.parametrize("form", ["sync", "asyncio"])
@pytest.mark.parametrize("asked", BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_an_error_at_the_call(session, form, asked):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        call(form, asked)
    assert session.calls == [("close",)]


class Answering:
    async def __call__(self, upcall):
        upcall.reply()


@pytest.mark.parametrize("server", [pypmix.Server, aio.Server])
@pytest.mark.parametrize(
    "bad",
    [5, Answering().__call__, Answering(), partial(Answering().__call__, None)],
    ids=["int", "function", "object", "partial"],
)
def test_what_cannot_answer_upcalls_is_refused_at_once(server, bad):
    with pytest.raises(TypeError, match="on_upcall"):
        server(bad)


def test_there_is_a_call_for_each_function_and_both_forms_are_alike():
    functions = {name for name, value in vars(pypmix.Server).items() if inspect.isfunction(value) and name[0] != "_"}
    assert functions - {"open", "close"} == {asked[0] for asked, _, _ in CALLS}
    public = {name for name in vars(pypmix.Server) if name[0] != "_"}
    assert public == {name for name in vars(aio.Server) if name[0] != "_"}
    for name in functions:
        one, other = (inspect.signature(getattr(cls, name)) for cls in (pypmix.Server, aio.Server))
        assert one == other, name
    assert inspect.signature(pypmix.Server) == inspect.signature(aio.Server)


@pytest.mark.parametrize("form", FORMS)
def test_a_direct_modex_says_what_is_waited_for(session, form):
    call(form, ("dmodex_request", ME), lambda opened, name, args: opened.dmodex_request(ME, key="k", timeout=5))
    assert session.more == {"key": "k", "timeout": 5}
    call(form, ("dmodex_request", ME), lambda opened, name, args: opened.dmodex_request(ME))
    assert session.more == {"key": "", "timeout": 0}
    with pytest.raises(ValueError, match="key"):
        call(form, ("dmodex_request", ME), lambda opened, name, args: opened.dmodex_request(ME, key="k" * 600))


def test_a_callback_is_told_of_a_direct_modex_at_once(session):
    told = []
    session.modex = lambda done: done(None, NotFound("none"))
    with pypmix.Server() as opened:
        assert opened.dmodex_request(ME, lambda *args: told.append(args)) is None
    ((data, error),) = told
    assert data is None
    assert isinstance(error, NotFound)


@pytest.mark.parametrize("form", FORMS)
def test_a_direct_modex_fails_or_ends_after_its_time(session, form):
    session.modex = lambda done: done(None, PMIxError("exists", status=statuses.ERR_EXISTS))
    with pytest.raises(PMIxError, match="exists"):
        call(form, ("dmodex_request", ME))
    session.modex = lambda done: None
    with pytest.raises(OperationTimeout, match=r"within 0\.05 s"):
        call(form, ("dmodex_request", ME), lambda opened, name, args: opened.dmodex_request(ME, timeout=0.05))


def inside():
    """Return the threads that are in code of the package."""
    found = set()
    for ident, frame in sys._current_frames().items():
        while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        if frame is not None:
            found.add(ident)
    return found


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_direct_modex_leaves_no_thread_and_many_may_wait(session, backend):
    waiting = []
    session.modex = waiting.append

    async def main():
        async with aio.Server() as opened, anyio.create_task_group() as group:
            for _ in range(60):
                group.start_soon(opened.dmodex_request, ME)
            with anyio.fail_after(20):
                while len(waiting) < 60:
                    await anyio.sleep(0.001)
                # What they wait for is not kept waiting.
                await opened.register_client(ME)
            group.cancel_scope.cancel()

    before = inside()
    anyio.run(main, backend=backend)
    # The backend may keep a thread for further work; none of them waits in here.
    deadline = time.monotonic() + 20
    while inside() - before:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    for done in waiting:
        done(b"late", None)


def test_the_engine_is_that_of_the_argument_or_of_the_environment(session, monkeypatch):
    monkeypatch.delenv("PYPMIX_ENGINE", raising=False)
    for engine, environment, taken in (
        (None, None, "python"),
        (None, "auto", "python"),
        (None, "native", "native"),
        ("python", "native", "python"),
        ("native", None, "native"),
    ):
        if environment:
            monkeypatch.setenv("PYPMIX_ENGINE", environment)
        pypmix.Server(engine=engine).open()
        assert session.opened[-1] == taken
    monkeypatch.undo()
    with pytest.raises(ValueError, match="cython"):
        pypmix.Server(engine="cython").open()


def test_nothing_works_on_a_server_that_is_not_open(session):
    closed = pypmix.Server()
    with pytest.raises(NotInitialized):
        closed.pending()
    closed.close()
    with pypmix.Server() as opened:
        opened.close()
        opened.close()


def test_lists_of_nodes_and_ranks_are_read_back():
    nodes, ranks = ["n0", "n1.example"], [[0, 2], [1], []]
    assert pypmix.Server.parse_regex(pypmix.Server.generate_regex(nodes)) == nodes
    assert aio.Server.parse_ppn(aio.Server.generate_ppn(ranks)) == ranks
    assert pypmix.Server.parse_regex("pmix[n[2:8-10],m]") == ["n08", "n09", "n10", "m"]
    assert pypmix.Server.parse_ppn("raw:0-2;3") == [[0, 1, 2], [3]]
    assert attrs.NODE_MAP(pypmix.Server.generate_regex(nodes))
    for bad in ([], [""], ["a,b"], ["a;b"], [5]):
        with pytest.raises((TypeError, ValueError)):
            pypmix.Server.generate_regex(bad)
    for bad in ([], [["0"]], [[-1]], [[2**32]], [[True]]):
        with pytest.raises((TypeError, ValueError)):
            pypmix.Server.generate_ppn(bad)
    for bad in (5, None, "pmix[n[2:8-", "pmix[n[2:9-8]]"):
        with pytest.raises((TypeError, ValueError)):
            pypmix.Server.parse_regex(bad)
