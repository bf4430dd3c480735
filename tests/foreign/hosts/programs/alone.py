"""One host whose job has ranks on a second node that is not there: it makes up what that would answer."""

from __future__ import annotations

import asyncio

from lib.hosted import WAIT, status
from pypmix import NotFound, Proc, Status

NODES = {"n0": [0, 1], "n1": [2, 3]}


def fence(me):
    me.put("acme.a", f"of {me.rank}")
    me.fence(me.job.procs, collect=True, timeout=WAIT, info={"acme.hint": "x"})
    got = me.get("acme.a", proc=me.job[1 - me.rank])
    me.fence(timeout=WAIT)
    # Procs of this node alone: the host is not asked.
    me.fence(me.job.procs[:2], collect=True, timeout=WAIT)
    # A refused fence is refused for all.
    refused = status(me.fence, [me.job[0], me.job[1], me.job[3]], timeout=WAIT)
    return [got, refused, me.node.hostname]


async def fences(cell):
    from pypmix.host import Host

    seen = []

    class Mine(Host):
        async def fence(self, req):
            assert req.requestor is None
            seen.append((req.op.name, req.collect, [proc.rank for proc in self.expand(req.procs)], bool(req.timeout)))
            if len(req.procs) == 3:
                return Status.ERR_OUT_OF_RESOURCE
            # As slowly as another node.
            await asyncio.sleep(0.05)
            return req.data

    async with cell.host(Mine, node="n0") as rm:
        found = await cell.run(rm, fence, nodes=NODES)
        assert [each[0] for each in found] == ["of 1", "of 0"]
        assert [each[2] for each in found] == ["n0", "n0"]
        # A server of libpmix 5.0 tells one of its waiting clients of the failure and the others of a success.
        refusals = {each[1] for each in found}
        assert -29 in refusals and refusals <= ({-29, 0} if cell.server.startswith("native-5.0") else {-29}), found
    assert [each[:3] for each in seen] == [
        ("fence", True, [0, 1, 2, 3]),
        ("fence", False, [0, 1, 2, 3]),
        ("fence", False, [0, 1, 3]),
    ], seen


def get(me):
    me.put("acme.a", "of the others")
    me.commit()
    me.fence(me.job.procs[:2], timeout=WAIT)
    found = [me.get("acme.a", proc=me.job[2], timeout=WAIT)] if me.rank == 0 else []
    me.fence(me.job.procs[:2], timeout=WAIT)
    missing = status(me.get, "acme.b", proc=me.job[3], timeout=WAIT)
    me.fence(me.job.procs[:2], timeout=WAIT)
    return [found, missing]


def relabelled(data, proc):
    """Return the data of another server of pypmix's as that of a proc; libpmix's names none."""
    from pypmix.wire.modex import decode_modex, encode_modex

    ((_, values),) = decode_modex(data)
    return encode_modex([(proc, [stored for _, stored in values])])


async def modex(cell):
    from pypmix.host import Host

    seen = []

    class Mine(Host):
        async def direct_modex(self, req):
            seen.append(req.proc.rank)
            if req.proc.rank == 3:
                raise NotFound("it has nothing")
            # What a rank that is here has put stands for the other one's.
            data = await self.dmodex_request(Proc(req.proc.nspace, 1), timeout=WAIT)
            assert b"acme.a" in data
            return data if cell.native else relabelled(data, req.proc)

    async with cell.host(Mine, node="n0") as rm:
        first, second = await cell.run(rm, get, nodes=NODES)
    assert first == [["of the others"], -46], first
    assert second == [[], -46], second
    assert set(seen) == {2, 3}, seen


def group(me):
    made = me.group("acme.g", me.job.procs, context_id=True, timeout=WAIT).construct()
    found = [[proc.rank for proc in made.members], made.context_id]
    me.raw.group_destruct("acme.g", timeout=WAIT)
    refused = status(me.group_construct, "acme.no", me.job.procs, context_id=True, timeout=WAIT)
    return [*found, refused]


async def groups(cell):
    from pypmix.host import Host

    seen = []

    class Mine(Host):
        async def group(self, req):
            seen.append((req.group, req.operation, req.wants_context_id if req.construct else None))
            if req.group == "acme.no":
                raise NotFound("there will be no such group")
            if req.construct:
                assert [proc.rank for proc in req.members] == [0, 1, 2, 3]
                return req.reply(members=req.members, context_id=77)
            return None

        async def fence(self, req):
            return req.data

    async with cell.host(Mine, node="n0") as rm:
        found = await cell.run(rm, group, nodes=NODES)
    assert [each[1:] for each in found] == [[77, -46]] * 2, found
    # A server of 4.2 does not tell its clients who is in it.
    assert all(each[0] in ([], [0, 1, 2, 3]) for each in found), found
    assert seen[:2] == [("acme.g", 0, True), ("acme.g", 1, None)], seen
    assert ("acme.no", 0, True) in seen


def connect(me):
    connection = me.connect(me.job.procs, timeout=WAIT)
    wanted = ("acme.both", me.rank) if me.supports("connect.nspace") else (None, None)
    assert (connection.nspace, connection.rank) == wanted
    connection.disconnect(timeout=WAIT)
    return status(me.connect, [me.job[0], me.job[1], me.job[3]], timeout=WAIT)


async def connects(cell):
    from pypmix.host import Host

    seen = []

    class Mine(Host):
        async def connect(self, req):
            seen.append((req.name, len(self.expand(req.procs))))
            if len(req.procs) == 3:
                return Status.ERR_NOT_FOUND
            return "acme.both" if req.assigns else None

        def disconnect(self, req):
            seen.append((req.name, len(self.expand(req.procs))))

    async with cell.host(Mine, node="n0") as rm:
        assert await cell.run(rm, connect, nodes=NODES) == [-46, -46]
    assert seen == [("connect", 4), ("disconnect", 4), ("connect", 3)], seen
