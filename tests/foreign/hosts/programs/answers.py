"""One node, one host that answers: what a handler is given, and what its answer is to the client."""

from __future__ import annotations

import os
import threading

import pypmix
from lib.hosted import WAIT, status, until
from pypmix import (
    AllocDirective,
    IOFChannel,
    NotFound,
    Persist,
    Proc,
    Range,
    Status,
    attrs,
)
from pypmix.types import Pdata, uint32

FIRST = Proc("demo", 0)


def publish(me):
    if me.rank == 0:
        me.publish(
            {"acme.a": uint32(7), "acme.b": ["x", "y"]}, data_range=Range.NAMESPACE, persist=Persist.APP, timeout=9
        )
    me.fence(timeout=WAIT)
    found = me.lookup(["acme.a", "acme.b", "acme.c"], timeout=None)
    missing = status(me.lookup, "acme.c")
    me.fence(timeout=WAIT)
    if me.rank == 0:
        me.unpublish("acme.a", "acme.b", data_range=Range.NAMESPACE)
    me.fence(timeout=WAIT)
    return [sorted([key, each.value] for key, each in found.items()), missing, status(me.lookup, "acme.a")]


async def publishing(cell):
    """Publish, lookup, unpublish, in an `async def` and in a `def`."""
    from pypmix.host import Host

    data, seen = {}, []

    class Mine(Host):
        async def publish(self, req):
            # As a tool would: from anything but the wire's own form.
            seen.append((req.name, req.requestor, req.range, req.persistence, req.uid, bool(req.timeout)))
            for info in req.infos:
                data[info.key] = Pdata(req.requestor, info.key, info.value)

        def lookup(self, req):
            assert threading.current_thread() is not threading.main_thread()
            return [data[key] for key in req.keys if key in data]

        async def unpublish(self, req):
            seen.append((req.name, req.requestor))
            for key in req.keys:
                assert data.pop(key).proc == req.requestor

    async with cell.host(Mine) as rm:
        found = await cell.run(rm, publish, np=2)
    assert found == [[[["acme.a", 7], ["acme.b", ["x", "y"]]], -46, -46]] * 2, found
    first, second = seen
    assert first == ("publish", FIRST, Range.NAMESPACE, Persist.APP, os.getuid(), True), first
    assert second == ("unpublish", FIRST), second
    assert not data


def ask(me):
    answer = me.query("acme.load", info={attrs.NSPACE: "demo"})
    nothing = status(me.query, "acme.unknown")
    me.log("written down", to=attrs.LOG_STDERR, timeout=9)
    refused = status(me.log, {"acme.channel": "no such channel"})
    return [answer, nothing, refused]


async def questions(cell):
    """Queries and logs."""
    from pypmix.host import Host

    seen = []

    class Mine(Host):
        async def query(self, req):
            seen.append((req.keys, req.info.get(attrs.NSPACE)))
            if "acme.unknown" in req.keys:
                raise NotFound("never heard of it")
            return {"acme.load": 0.5, "acme.other": "not asked for"} if "acme.load" in req.keys else {}

        def log(self, req):
            if any(info.key == "acme.channel" for info in req.data):
                raise pypmix.PMIxError("there is no such channel", status=Status.ERR_NOT_SUPPORTED)
            seen.append((req.requestor, [(info.key, info.value.data) for info in req.data]))

    async with cell.host(Mine) as rm:
        ((answer, nothing, refused),) = await cell.run(rm, ask)
    assert answer == 0.5, answer
    assert nothing == -46, nothing
    assert refused == Status.ERR_NOT_SUPPORTED, refused
    assert (("acme.load",), "demo") in seen, seen
    assert (FIRST, [(attrs.LOG_STDERR.key, "written down")]) in seen, seen


def steer(me):
    if me.rank:
        return None
    told = me.control(me.job[1]).request(info={attrs.JOB_CTRL_SIGNAL: 10, attrs.JOB_CTRL_ID: "one"})
    all_of_us = me.control().request(info={attrs.JOB_CTRL_PAUSE: True}, timeout=9)
    granted = me.allocate(nodes=2, request_id="mine", timeout=9)
    refused = status(me.allocate, AllocDirective.RELEASE, id="theirs")
    return [dict(told), dict(all_of_us), granted[attrs.ALLOC_ID], refused]


async def control(cell):
    """Job control and allocations."""
    from pypmix.host import Host

    seen = []

    class Mine(Host):
        async def job_control(self, req):
            seen.append((req.requestor, req.targets, req.info.get(attrs.JOB_CTRL_SIGNAL)))

        async def allocate(self, req):
            seen.append((req.directive, req.info.get(attrs.ALLOC_NUM_NODES)))
            if req.directive != AllocDirective.NEW:
                return Status.ERR_NO_PERMISSIONS
            return {attrs.ALLOC_ID: "4711"}

    async with cell.host(Mine) as rm:
        (told, all_of_us, granted, refused), _ = await cell.run(rm, steer, np=2)
    assert (told, all_of_us) == ({}, {}), (told, all_of_us)
    assert granted == "4711"
    assert refused == Status.ERR_NO_PERMISSIONS, refused
    assert seen[0] == (FIRST, (Proc("demo", 1),), 10), seen
    assert seen[1][0] == FIRST and seen[1][2] is None, seen
    assert seen[2:] == [(AllocDirective.NEW, 2), (AllocDirective.RELEASE, None)], seen


def show(me):
    credential = me.credentials.get(kinds="acme", timeout=9)
    whose = me.credentials.validate(credential, timeout=9)
    forged = status(me.validate_credential, b"forged")
    return [credential.data.decode("latin-1"), whose[attrs.USERID], forged]


async def credentials(cell):
    """Credentials: bytes with a zero in them, and whose they are."""
    from pypmix.host import Host

    seen = []

    class Mine(Host):
        async def get_credential(self, req):
            seen.append((req.requestor, req.uid))
            return b"acme\0\xff credential"

        def validate_credential(self, req):
            if req.credential != b"acme\0\xff credential":
                raise pypmix.PermissionDenied("it is forged")
            return {attrs.USERID: uint32(1234)}

    async with cell.host(Mine) as rm:
        ((data, owner, forged),) = await cell.run(rm, show)
    assert data.encode("latin-1") == b"acme\0\xff credential", data
    assert (owner, forged) == (1234, -23), (owner, forged)
    assert seen == [(FIRST, os.getuid())], seen


def child(me):
    # An answer to the parent, which it has asked for by the environment.
    assert os.environ["ACME_COLOUR"] == "blue"
    assert me.parent == FIRST
    me.fence(timeout=WAIT)
    return [me.rank, me.job.size]


def spawn(me, command, env):
    job = me.spawn([pypmix.app(command, n=2, env={**env, "ACME_COLOUR": "blue"})], notify=False)
    missing = status(me.spawn, [pypmix.app(["acme-no-such-program"])], notify=False)
    return [job.nspace, missing]


async def spawning(cell):
    """A spawn starts a job, whose nspace is the answer."""
    from pypmix.host import Host

    launched = []

    class Mine(Host):
        async def spawn(self, req):
            try:
                procs = await self.launch(req.apps, near=req.requestor)
            except OSError as error:
                raise pypmix.PMIxError(str(error), status=Status.ERR_JOB_FAILED_TO_LAUNCH) from error
            launched.append(procs)
            return procs.nspace

    async with cell.host(Mine) as rm:
        ((nspace, missing),) = await cell.run(rm, spawn, cell.command(child), cell.env)
        (procs,) = launched
        assert nspace == procs.nspace != "demo"
        assert missing == Status.ERR_JOB_FAILED_TO_LAUNCH, missing
        assert await procs.wait(WAIT) == {0: 0, 1: 0}, procs.codes
        assert [cell.returned(Proc(nspace, rank)) for rank in (0, 1)] == [[0, 2], [1, 2]]


def listen(me):
    found = []
    # -231 is a code of the system: hosts of all libraries are asked for it.
    with me.events(-231) as system, me.events(-4242) as own:
        me.fence(timeout=WAIT)
        if me.rank == 0:
            me.publish({"acme.ready": True})
        event = system.get(timeout=WAIT)
        found.append([event.source.nspace, event.info["acme.load"]])
        if me.rank == 0:
            me.notify(-4242, data_range=Range.NAMESPACE, info={"acme.from": uint32(0)})
        found.append(own.get(timeout=WAIT).info["acme.from"])
        me.fence(timeout=WAIT)
    return found


async def events(cell):
    """Events of the host, events that a client raises, and who is interested."""
    from pypmix.host import Host

    seen = []

    class Mine(Host):
        async def register_events(self, req):
            seen.append(req.codes)

        async def deregister_events(self, req):
            return None

        async def notify_event(self, req):
            seen.append((req.code, req.range))

        async def publish(self, req):
            self.notify(-231, data_range=Range.SESSION, info={"acme.load": "high"})

    async with cell.host(Mine) as rm:
        found = await cell.run(rm, listen, np=2)
        server = rm.server.proc.nspace
    assert found == [[[server, "high"], 0]] * 2, found
    assert (-231,) in seen, seen
    assert (-4242, Range.NAMESPACE) in seen, seen


def watch(me):
    if me.rank == 1:
        me.fence(timeout=WAIT)
        os.write(1, b"from rank 1\n")
        me.fence(timeout=WAIT)
        return None
    with me.output(me.job[1], IOFChannel.STDOUT) as output:
        me.fence(timeout=WAIT)
        data = b""
        while not data.endswith(b"\n"):
            data += output.get(timeout=WAIT).data
    me.push_input(me.job[1], b"input\0\xff")
    refused = status(me.push_input, Proc("demo", 7), b"x")
    me.fence(timeout=WAIT)
    return [data.decode(), refused]


async def forwarding(cell):
    """Output that is pulled, and input."""
    from pypmix.host import Host

    seen, stopped = [], []

    class Mine(Host):
        async def iof_pull(self, req):
            if req.stop:
                stopped.append(req.id)
                return None
            seen.append((req.procs, req.channels))
            return 17

        def iof_push(self, req):
            if req.procs == (Proc("demo", 7),):
                raise NotFound("there is no such rank")
            seen.append((req.requestor, req.procs, req.data))

    async with cell.host(Mine) as rm:
        first, _ = await cell.run(rm, watch, np=2)
    assert first == ["from rank 1\n", -46], first
    assert seen[0] == ((Proc("demo", 1),), IOFChannel.STDOUT), seen
    assert (FIRST, (Proc("demo", 1),), b"input\0\xff") in seen, seen
    assert stopped == [17], stopped


def psets(me):
    names = str(me.query(attrs.QUERY_PSET_NAMES))
    me.fence(timeout=WAIT)
    return names


async def process_sets(cell):
    """Process sets of a host, which some servers tell of themselves and others ask for."""
    from pypmix.host import Host

    class Mine(Host):
        async def query(self, req):
            assert req.keys == (attrs.QUERY_PSET_NAMES.key,), req.keys
            return {attrs.QUERY_PSET_NAMES: ",".join(sets)}

    sets = ["acme.set", "acme.other"]
    async with cell.host(Mine) as rm:
        job = rm.job("demo", np=2)
        for name in sets:
            rm.define_process_set(name, [job.proc(0), job.proc(1)])
        found = await cell.run(rm, psets, job=job)
        assert all("acme.set" in names and "acme.other" in names for names in found), found
        rm.delete_process_set(sets.pop())
        found = await cell.run(rm, psets, job=rm.job("next", np=1))
        assert all("acme.set" in names and "acme.other" not in names for names in found), found


def leave(me, code):
    if code:
        me.abort(code, "enough")
    me.fence(timeout=WAIT)


async def coming_and_going(cell):
    """Who connects, who finalizes, who aborts, who is lost: each once, in order."""
    from pypmix.host import Host

    seen = []

    class Mine(Host):
        async def client_connected(self, req):
            seen.append(("connected", req.proc.rank))

        def client_finalized(self, req):
            seen.append(("finalized", req.proc.rank))

        async def client_lost(self, req):
            seen.append(("lost", req.proc.rank))

        async def client_aborted(self, req):
            seen.append(("aborted", req.proc.rank, req.status, req.message, req.targets))
            await self.kill(req.targets, status=req.status)

    async with cell.host(Mine, grace=0.5) as rm:
        await cell.run(rm, leave, 0, np=2)
        assert sorted(seen) == [(what, rank) for what in ("connected", "finalized") for rank in (0, 1)], seen
        for rank in (0, 1):
            assert seen.index(("connected", rank)) < seen.index(("finalized", rank))
        del seen[:]
        async with cell.start(rm, leave, 7, np=1) as procs:
            codes = await procs.wait(WAIT)
            assert set(codes.values()) <= {-15, -9}, codes
            assert procs.status == 7
        await until(lambda: ("lost", 0) in seen, "the loss")
    aborted = [each for each in seen if each[0] == "aborted"]
    assert aborted == [("aborted", 0, 7, "enough", (Proc("demo2", pypmix.Rank.WILDCARD),))], seen
    assert [each[0] for each in seen] == ["connected", "aborted", "lost"], seen
