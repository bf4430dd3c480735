"""What goes wrong in a handler: errors that it raises, answers that are late, double, missing, or make no sense."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import threading
import time

import pypmix
from lib.hosted import WAIT, Logged, status
from pypmix import IOFChannel, Proc, Range, Status, attrs
from pypmix.types import Credential

REFUSED = Status.ERR_NO_PERMISSIONS
OWN = Status.ERR_OUT_OF_RESOURCE


def everything(me):
    """Call all that asks a host, and return the status of each."""
    spawn = [pypmix.types.App("prog", ("prog",), (), "/")]
    found = {
        "publish": status(me.publish, {"acme.a": 1}),
        "lookup": status(me.lookup, "acme.a"),
        "unpublish": status(me.unpublish, "acme.a"),
        "spawn": status(me.spawn, spawn, notify=False),
        "query": status(me.query, "acme.a"),
        "log": status(me.log, {"acme.channel": "x"}),
        "allocate": status(me.allocate, nodes=1),
        "job_control": status(me.job_control, info={attrs.JOB_CTRL_KILL: True}),
        "get_credential": status(me.get_credential),
        "validate_credential": status(me.validate_credential, Credential(b"x")),
        "iof_pull": status(lambda: me.output(me.proc, IOFChannel.STDOUT).open()),
        "iof_push": status(me.push_input, me.proc, b"x"),
        "connect": status(me.connect, me.job.procs, timeout=WAIT),
        "group": status(me.group_construct, f"acme.{me.nspace}", me.job.procs, context_id=True, timeout=WAIT),
        "fence": status(me.fence, timeout=WAIT),
        "direct_modex": status(me.get, "acme.a", proc=me.job[1], timeout=WAIT),
        "notify_event": status(me.notify, -4242, range=Range.GLOBAL),
    }
    # The server is as well as before.
    me.put("acme.a", 1)
    me.commit()
    assert me.get("acme.a") == 1
    return found


async def raised(cell):
    """Each way to fail, of each handler."""
    from pypmix.host.callbacks.upcalls import METHODS

    log, wrong = Logged(), {}
    ways = {
        "raises a PMIxError": (REFUSED, pypmix.PermissionDenied("not you")),
        "returns a Status": (OWN, OWN),
        "raises another error": (Status.ERROR, ZeroDivisionError("acme")),
    }
    async with cell.host(node="n0") as rm:
        for way, (expected, fault) in ways.items():
            for number, name in enumerate(METHODS):
                if not name.startswith("client_"):
                    rm.on(name)(failing(fault, number % 2))
            (found,) = await cell.run(rm, everything, nodes={"n0": [0], "n1": [1]})
            wrong |= {name: code for name, code in found.items() if code != expected}
            texts = log.texts(logging.ERROR)
            log.records.clear()
            if way == "raises another error":
                silent = [name for name in found if not any(f"the handler of {name}" in text for text in texts)]
                assert not silent, silent
                assert all("ZeroDivisionError: acme" in text and "Traceback" in text for text in texts)
            else:
                assert not texts, texts
    print("wrong", json.dumps(wrong), flush=True)


def failing(fault, asynchronous):
    def blocking(req):
        if isinstance(fault, Exception):
            raise fault
        return fault

    async def waiting(req):
        return blocking(req)

    return waiting if asynchronous else blocking


def nonsense(me):
    return [
        status(me.lookup, "acme.a"),
        status(me.query, "acme.a"),
        status(me.get_credential),
        status(me.spawn, [pypmix.types.App("prog", ("prog",), (), "/")], notify=False),
        status(me.publish, {"acme.a": 1}),
    ]


async def senseless(cell):
    """Answers of the wrong type are the host's error, and logged by the name of the operation."""
    from pypmix.host import Host

    class Mine(Host):
        async def lookup(self, req):
            return ["no Pdata"]

        def query(self, req):
            return 7

        async def get_credential(self, req):
            return "no bytes"

        def spawn(self, req):
            return None

        async def publish(self, req):
            return "published"

    log = Logged()
    async with cell.host(Mine) as rm:
        assert await cell.run(rm, nonsense) == [[int(Status.ERROR)] * 5]
    texts = log.texts(logging.ERROR)
    for name in ("lookup", "query", "get_credential", "spawn", "publish"):
        assert any(f"{name} is answered with" in text for text in texts), (name, texts)


def several(me):
    first = me.query("acme.thread")
    me.publish({"acme.a": 1})
    found = me.lookup("acme.a")
    return [first, found, status(me.query, "acme.other")]


async def elsewhere(cell):
    """Answers come from other threads and tasks, after the handler has returned, and in another order."""
    from pypmix.host import LATER, Host
    from pypmix.types import Pdata

    class Mine(Host):
        def query(self, req):
            def answer():
                time.sleep(0.05)
                if "acme.other" in req.keys:
                    req.fail(REFUSED)
                else:
                    req.reply({"acme.thread": threading.current_thread().name})

            threading.Thread(target=answer, name="mine").start()
            return LATER

        async def publish(self, req):
            # From the event loop, but from another task than the handler's.
            asyncio.get_running_loop().call_later(0.05, req.reply)
            return LATER

        async def lookup(self, req):
            held.append(req)
            if len(held) == 2:
                for each in reversed(held):
                    each.reply([Pdata(each.requestor, each.keys[0], pypmix.types.uint32(each.requestor.rank))])
            return LATER

    held = []
    async with cell.host(Mine) as rm:
        found = await cell.run(rm, several, np=2)
    assert found == [["mine", rank, REFUSED] for rank in (0, 1)], found


def impatient(me):
    # The host never answers the first, and answers the second after its end.
    return [status(me.query, "acme.never"), status(me.publish, {"acme.a": 1}), me.query("acme.fine")]


async def missing(cell):
    """What is never answered is reported by name and is a timeout to the client; so is what is answered twice."""
    from pypmix.host import LATER, Host

    class Mine(Host):
        async def query(self, req):
            if "acme.never" in req.keys:
                return LATER
            req.reply({"acme.fine": "first"})
            req.reply({"acme.fine": "second"})
            return LATER

        def publish(self, req):
            late.append(req)
            return LATER

    log, late = Logged(), []
    async with cell.host(Mine, reply_timeout=0.4) as rm:
        ((never, published, fine),) = await cell.run(rm, impatient)
        assert (never, published, fine) == (Status.ERR_TIMEOUT, Status.ERR_TIMEOUT, "first"), (never, published, fine)
        for req in late:
            assert req.is_answered
            req.reply()
        server = rm.server.proc
    texts = log.texts()
    client = "demo:0"
    # libpmix's server asks in its own name.
    asker = server if cell.native else client
    assert any(f"query by {asker} was not answered within 0.4 s" in text for text in texts), texts
    assert any(f"publish by {client} was not answered within 0.4 s" in text for text in texts), texts
    twice = [text for text in texts if "was answered twice" in text]
    assert len(twice) == 1 and "query" in twice[0] and "errors.py" in twice[0], texts
    assert any(f"publish by {client} was answered too late" in text for text in texts), texts


def patient(me):
    return [me.query("acme.slow"), status(me.lookup, "acme.slow", timeout=WAIT)]


async def late(cell):
    """A host may take its time where its clients have it: longer than is usual, if they say so."""
    from pypmix.host import Host
    from pypmix.types import Pdata

    class Mine(Host):
        async def query(self, req):
            await asyncio.sleep(0.8)
            return {"acme.slow": "at last"}

        async def lookup(self, req):
            # The caller's own time limit is longer than the host's.
            await asyncio.sleep(1.5)
            return [Pdata(req.requestor, "acme.slow", pypmix.types.uint32(1))]

    async with cell.host(Mine, reply_timeout=1.2) as rm:
        assert await cell.run(rm, patient) == [["at last", 0]]


def explained(me):
    """Return the words of each error, of all that asks a host."""
    found = {}
    whole = me.job.procs
    for name, call in {
        "publish": lambda: me.publish({"acme.a": 1}),
        "lookup": lambda: me.lookup("acme.a"),
        "unpublish": lambda: me.unpublish("acme.a"),
        "spawn": lambda: me.spawn(["prog"], notify=False),
        "query": lambda: me.query("acme.a"),
        "log": lambda: me.log({"acme.channel": "x"}),
        "allocate": lambda: me.allocate(nodes=1),
        "job_control": lambda: me.control().request(info={attrs.JOB_CTRL_KILL: True}),
        "get_credential": me.get_credential,
        "validate_credential": lambda: me.credentials.validate(Credential(b"x")),
        "iof_pull": lambda: me.output(me.proc, IOFChannel.STDOUT).open(),
        "iof_push": lambda: me.push_input(me.proc, b"x"),
        "connect": lambda: me.connect(whole, timeout=WAIT),
        "disconnect": lambda: me.disconnect(whole, timeout=WAIT),
        "group": lambda: me.group("acme.g", whole, timeout=WAIT).construct(),
        "fence": lambda: me.fence(timeout=WAIT),
        "direct_modex": lambda: me.get("acme.a", proc=me.job[1], timeout=WAIT),
        "notify_event": lambda: me.notify(-4242, data_range=Range.GLOBAL),
        "register_events": lambda: me.events(-4243).open(),
        "client_aborted": lambda: me.abort(3, "enough"),
    }.items():
        try:
            call()
            found[name] = ""
        except pypmix.PMIxError as error:
            found[name] = f"{error.detail} {int(error.code)}"
    return found


async def words(cell):
    """The words of a handler's error reach a client of pypmix, those of a mistake do not."""
    from pypmix.host import Host

    class Mine(Host):
        async def handle(self, req):
            if req.name.startswith("client_") and req.name != "client_aborted":
                return await super().handle(req)
            if req.name == "log":
                raise ZeroDivisionError("acme secret")
            raise pypmix.PMIxError(f"2 slots wanted, 0 free\x1b[31m, for {req.name}", status=OWN)

    Logged()
    async with cell.host(Mine, node="n0") as rm:
        (found,) = await cell.run(rm, explained, nodes={"n0": [0], "n1": [1]})
        expected = {name: f"2 slots wanted, 0 free\ufffd[31m, for {name} {int(OWN)}" for name in found}
        assert found == {**expected, "log": "the host failed -1"}, found


def undisturbed(me):
    found = []
    if me.rank == 0:
        found = [status(me.publish, {f"acme.{way}": 1}) for way in FAULTS]
        found += [status(me.lookup, f"acme.{number}") for number in range(len(NO_ERRORS))]
        found += [status(me.spawn, [pypmix.types.App("prog", ("prog",), (), "/")], notify=False) for _ in NO_NSPACES]
    me.fence(timeout=WAIT)
    return found


FAULTS = {"error": ZeroDivisionError("acme"), "exit": SystemExit(3), "interrupt": KeyboardInterrupt()}
NO_ERRORS = (None, "no room", KeyError)
NO_NSPACES = (None, 7, "", "a\0b", "x" * 256)


def thrown(cell):
    """What the function of a `Server` does wrong ends one request, and neither the server nor another client."""
    from pypmix.host import Application, JobLayout, NodeLayout

    texts = []
    logging.getLogger("pypmix.server").addHandler(keeping(texts))
    nspaces = list(NO_NSPACES)

    def answer(upcall):
        match upcall.op.name:
            case "publish":
                raise FAULTS[upcall.op.infos[0].key.removeprefix("acme.")]
            case "lookup":
                upcall.fail(NO_ERRORS[int(upcall.op.keys[0].removeprefix("acme."))])
            case "spawn":
                upcall.reply(nspaces.pop(0))
            case _:
                pypmix.server.accept(upcall)

    engine = "native" if cell.native else "python"
    with pypmix.Server(answer, engine=engine, library=cell.library) as server:
        server.register_nspace(
            JobLayout("demo", (Application(("prog",), 2),), (NodeLayout(socket.gethostname(), (0, 1)),))
        )
        procs = []
        for proc in (Proc("demo", 0), Proc("demo", 1)):
            server.register_client(proc)
            env = {**os.environ, **server.client_env(proc), **cell.env}
            procs.append(subprocess.Popen(cell.command(undisturbed), env=env))
        # A proc of a job that is not known here any more, which is no news.
        server.deregister_client(Proc("gone", 0))
        assert [proc.wait(WAIT) for proc in procs] == [0, 0]
    wanted = len(FAULTS) + len(NO_ERRORS) + len(NO_NSPACES)
    assert cell.returned(Proc("demo", 0)) == [int(Status.ERROR)] * wanted
    assert len([text for text in texts if "which is not an error" in text]) == len(NO_ERRORS), texts
    assert len([text for text in texts if "with nonsense" in text]) == len(NO_NSPACES), texts
    assert not [text for text in texts if "a call failed" in text or "a connection is dropped" in text], texts


def keeping(texts):
    """Return a logging handler that keeps messages."""
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())
    return handler


def registering(cell):
    """What makes no sense of a job's ranks is refused by both engines alike."""
    from pypmix.host import Application, JobLayout, NodeLayout

    engine = "native" if cell.native else "python"
    with pypmix.Server(engine=engine, library=cell.library) as server:
        node = NodeLayout(socket.gethostname(), (0, 1))
        with raises(ValueError):
            server.register_nspace(JobLayout("demo", (Application(("prog",), 2),), (node,)), [0, 5])
        server.register_nspace(JobLayout("demo", (Application(("prog",), 2),), (node,)))
        for proc in (Proc("demo", 2), Proc("demo", pypmix.Rank.WILDCARD), Proc("other", 0)):
            with raises(pypmix.NotFound):
                server.register_client(proc)
        for proc in (Proc("demo", 2), Proc("other", 0), Proc("other", pypmix.Rank.WILDCARD)):
            with raises(pypmix.NotFound):
                server.store_internal(proc, "acme.a", 1)
        server.register_client(Proc("demo", 1))
        server.store_internal(Proc("demo", 1), "acme.a", 1)
        server.store_internal(Proc("demo", pypmix.Rank.WILDCARD), "acme.b", 1)


@contextlib.contextmanager
def raises(kind):
    try:
        yield
    except kind:
        return
    raise AssertionError(f"no {kind.__name__} was raised")


def otherwise(me):
    return [status(me.lookup, "acme.a"), me.lookup("acme.a", default=7)]


async def another_key(cell):
    """A lookup that is answered with another key has not found its own."""
    from pypmix.host import Host
    from pypmix.types import Pdata

    class Mine(Host):
        async def lookup(self, req):
            return Pdata(req.requestor, "acme.b", pypmix.types.uint32(1))

    async with cell.host(Mine) as rm:
        assert await cell.run(rm, otherwise) == [[int(Status.ERR_NOT_FOUND), 7]]
