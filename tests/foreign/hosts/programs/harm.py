"""Clients and handlers that do harm: deaths in the middle of an upcall, handlers that block, many requests at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time

import pypmix
from lib.hosted import WAIT, Logged, status, until
from pypmix import Proc, Status


def hang(me):
    """All but the last rank are killed in this."""
    ask = [lambda: me.query("acme.a"), lambda: me.lookup("acme.a"), lambda: me.publish({"acme.a": 1})]
    return ask[me.rank]() if me.rank < len(ask) else me.query("acme.a")


def fine(me):
    me.fence(collect=True, timeout=WAIT)
    me.publish({"acme.a": me.rank})
    return me.query("acme.a")


async def dying(cell):
    """Clients are killed while handlers work for them; nobody else notices, and nothing is kept."""
    from pypmix.host import LATER, Host

    asked, lost, release = [], [], asyncio.Event()
    blocked = threading.Event()

    class Mine(Host):
        async def client_lost(self, req):
            lost.append(req.proc.rank)

        async def query(self, req):
            asked.append(req)
            await release.wait()
            return dict.fromkeys(req.keys, "late")

        def lookup(self, req):
            asked.append(req)
            return LATER

        def publish(self, req):
            if not release.is_set():
                asked.append(req)
                blocked.wait(WAIT)

    async with cell.host(Mine) as rm:
        async with cell.start(rm, hang, np=4) as procs:
            await until(lambda: len(asked) == 4, "the requests")
            await rm.kill([Proc("demo", rank) for rank in (0, 1, 2)], signal.SIGKILL)
            await until(lambda: procs.codes == {0: -9, 1: -9, 2: -9}, "their end")
            await until(lambda: sorted(lost) == [0, 1, 2], "the upcalls of their loss")
            # Answers for the dead and for the living one.
            release.set()
            blocked.set()
            for req in asked:
                if req.name == "lookup":
                    req.fail(Status.ERR_NOT_FOUND)
            assert (await procs.wait(WAIT))[3] == 0, procs.codes
        assert cell.returned(Proc("demo", 3)) == "late"
        # Handlers of the dead return on threads of their own.
        await until(lambda: all(req.is_answered for req in asked), "the answers")
        assert await cell.run(rm, fine, np=2) == ["late", "late"]


def quick(me, wait):
    if me.rank == 0:
        started = time.monotonic()
        me.publish({"acme.a": 1})
        return time.monotonic() - started
    longest = 0.0
    end = time.monotonic() + wait
    while time.monotonic() < end:
        started = time.monotonic()
        me.query("acme.a")
        me.fence([me.proc], timeout=WAIT)
        longest = max(longest, time.monotonic() - started)
        time.sleep(0.02)
    return longest


async def blocking(cell):
    """A `def` that blocks stops nobody but who waits for it."""
    from pypmix.host import Host

    class Mine(Host):
        def publish(self, req):
            time.sleep(2)

        async def query(self, req):
            return dict.fromkeys(req.keys, 1)

    async with cell.host(Mine) as rm:
        slow, longest = await cell.run(rm, quick, 1.5, np=2)
    assert slow >= 2, slow
    assert longest < 1, longest


def come(me):
    return None


def stay_long(me):
    """Stay until the server has forgotten what came before."""
    time.sleep(4)
    return me.query("acme.a")


async def refusing(cell):
    """A client that is refused costs no other its connection, and neither does the end of its job."""
    from pypmix.host import Host

    class Mine(Host):
        async def client_connected(self, req):
            if req.proc.nspace == "refused" and req.proc.rank == 1:
                raise pypmix.PermissionDenied("not you")

        async def query(self, req):
            return dict.fromkeys(req.keys, 1)

    async with cell.host(Mine) as rm:
        async with cell.start(rm, come, job=rm.job("refused", np=2)) as procs:
            codes = await procs.wait(WAIT)
        assert codes[0] == 0, codes
        assert codes[1] == 1, codes
        assert await cell.run(rm, stay_long, np=2) == [1, 1]


def flood(me, number):
    """Publish from many threads at once: as many upcalls as there are threads."""
    codes = []

    def publish(n):
        codes.append(status(me.publish, {f"acme.{me.rank}.{n}": n}))

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [codes.count(0), sorted(set(codes))]


async def many(cell):
    """Two hundred requests at once are answered, each once, by handlers that wait for all of them."""
    from pypmix.host import Host

    seen, all_there = set(), asyncio.Event()

    class Mine(Host):
        async def publish(self, req):
            assert len(req.infos) == 1
            seen.add(req.infos[0].key)
            if len(seen) == 200:
                all_there.set()
            await asyncio.wait_for(all_there.wait(), WAIT)

    async with cell.host(Mine) as rm:
        assert await cell.run(rm, flood, 100, np=2) == [[100, [0]]] * 2
    assert len(seen) == 200


async def many_threads(cell):
    """The same where each handler holds a thread."""
    from pypmix.host import Host

    barrier = threading.Barrier(80)

    class Mine(Host):
        def publish(self, req):
            barrier.wait(WAIT)

    async with cell.host(Mine) as rm:
        assert await cell.run(rm, flood, 40, np=2) == [[40, [0]]] * 2


def stay(me):
    codes = []

    def publish():
        codes.append(status(me.publish, {"acme.a": 1}))

    threads = [threading.Thread(target=publish, daemon=True) for _ in range(5)]
    for thread in threads:
        thread.start()
    me.query("acme.a")


async def closing(cell):
    """A host that is closed in the middle of upcalls closes, soon, with handlers that wait, block, and have gone."""
    from pypmix.host import LATER, Host

    asked, waited = [], []
    gate = threading.Event()

    class Mine(Host):
        async def query(self, req):
            asked.append(req)
            await asyncio.Event().wait()

        def publish(self, req):
            asked.append(req)
            if len(asked) % 2:
                gate.wait(WAIT)
                waited.append(req)
            return LATER

    log = Logged()
    rm = cell.host(Mine, grace=0.2)
    async with rm, cell.start(rm, stay, np=2):
        await until(lambda: len(asked) == 12, "the requests")
    assert not waited, "the host's end waited for its methods"
    gate.set()
    # Late answers do no harm.
    for req in asked:
        req.reply()
    assert not log.texts(), log.texts()


def noisy(me, seconds):
    """Have upcalls under way all the time, while the host calls its server."""
    number = 0
    with me.output(me.job[1 - me.rank], pypmix.IOFChannel.STDOUT) as output, me.events(-4242) as events:
        me.fence(timeout=WAIT)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            os.write(1, b"x" * 100 + b"\n")
            me.publish({f"acme.{number}": 1})
            me.query("acme.a")
            number += 1
        me.fence(timeout=WAIT)
        return [number, events.get(timeout=WAIT).code, len(output.get(timeout=WAIT).data) > 0]


async def busy(cell):
    """Calls into the server from the host's own loop, and from handlers, never wait long beside upcalls."""
    from pypmix.host import Host

    class Mine(Host):
        async def iof_pull(self, req):
            return None if req.stop else 1

        async def register_events(self, req):
            return None

        async def publish(self, req):
            rm.notify(-4242, data_range=pypmix.Range.LOCAL)

        def query(self, req):
            return {"acme.a": 1}

    rm = cell.host(Mine)
    longest, number = 0.0, 0
    async with rm, cell.start(rm, noisy, 1.5, np=2) as procs:
        waiting = asyncio.ensure_future(procs.wait(WAIT))
        while not waiting.done():
            started = time.monotonic()
            rm.notify(-4242, data_range=pypmix.Range.LOCAL)
            rm.define_process_set(f"acme.{number % 3}", [Proc("demo", 0)])
            rm.delete_process_set(f"acme.{number % 3}")
            longest = max(longest, time.monotonic() - started)
            number += 1
            await asyncio.sleep(0.01)
        assert await waiting == {0: 0, 1: 0}, procs.codes
        found = [cell.returned(Proc("demo", rank)) for rank in (0, 1)]
    assert all(each[1:] == [-4242, True] for each in found), found
    assert number > 5 and longest < 2, (number, longest)


async def stuck(cell):
    """A library whose progress thread hangs costs a host one wait, and not one for each call."""
    import ctypes

    from pypmix.engine.native import serversession
    from pypmix.standard.ops import Output

    serversession.LIBRARY_SECONDS, serversession.STUCK_SECONDS = 4.0, 1.5
    texts = []
    logging.getLogger("pypmix.server").addHandler(keeping(texts))
    gate = threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p)
    def hang(_status, _id, _data):
        gate.wait(WAIT)

    @ctypes.CFUNCTYPE(None)
    def never():
        raise AssertionError("no such event is raised")

    async with cell.host() as rm:
        rm.job("demo", np=1)
        session = rm.server.session
        session._limit = serversession.LIBRARY_SECONDS
        library = ctypes.CDLL(session.info.library)
        # What libpmix calls when it has registered a handler, it calls on its progress thread.
        library.PMIx_Register_event_handler((ctypes.c_int * 1)(-4343), 1, None, 0, never, hang, None)
        took, errors = [], []
        for _ in range(4):
            started = time.monotonic()
            try:
                rm.server.deliver_output(Output(Proc("demo", 0), 2, b"x"))
            except pypmix.OperationTimeout as error:
                errors.append(str(error))
            took.append(time.monotonic() - started)
        assert [text for text in errors if "does not come back" in text] == errors and len(errors) == 4, errors
        assert took[0] >= 4 and max(took[1:]) < 3.5, took
        # Nobody waits for the end of these.
        started = time.monotonic()
        rm.server.deregister_client(Proc("demo", 0))
        rm.forget("demo")
        assert time.monotonic() - started < 1.4
        gate.set()
        await until(lambda: not refused(rm), "the library's return")
        assert await cell.run(rm, nothing, np=1) == [None]
    assert len([text for text in texts if "does not come back from deliver_output" in text]) == 1, texts


def refused(rm):
    try:
        rm.notify(-4242, data_range=pypmix.Range.LOCAL)
    except pypmix.OperationTimeout:
        return True
    return False


def nothing(me):
    me.fence(timeout=WAIT)


def keeping(texts):
    """Return a logging handler that keeps messages."""
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())
    return handler
