"""A resource manager with two nodes: `own_rm.py N COMMAND...` runs N ranks of a command on them.

Both nodes are on this machine: this process is the first one, n0, and starts the other one, n1.
"""

import asyncio
import json
import os
import sys
import tempfile

from pypmix import NotFound
from pypmix.host import Host
from pypmix.host.exchange import Exchange, TCPCarrier
from pypmix.standard.asjson import from_json, to_json
from pypmix.types import Pdata


class MyRM(Host):
    """One node of it: a server, the ranks that it serves, and the network to the other node."""

    def __init__(self, carrier):
        self.network = Exchange(carrier)
        super().__init__(exchange=self.network)
        self.published = {}
        self.news = asyncio.Event()
        self.network.hear("publish", lambda _node, data: self.loop.call_soon_threadsafe(self.keep, data))
        self.network.hear("kill", lambda _node, data: self.loop.call_soon_threadsafe(self.end, data))

    # Procs of both nodes do something together: ask, tell and wait for the other node's half.

    async def fence(self, req):
        blobs = await self.exchange(req.signature, req.data, timeout=req.timeout)
        return b"".join(blobs)

    async def group(self, req):
        mine = str(self.next_context_id()).encode()
        ids = await self.exchange((*req.signature, *req.members), mine, timeout=req.timeout)
        number = int(ids[0]) if req.wants_context_id else None
        return req.reply(members=req.members, context_id=number) if req.construct else None

    # What is published is known on both nodes.

    async def publish(self, req):
        found = [Pdata(req.requestor, info.key, info.value) for info in req.infos]
        data = json.dumps(to_json(found)).encode()
        self.network.broadcast("publish", data)
        self.keep(data)

    def keep(self, data):
        self.published.update({item.key: item for item in from_json(json.loads(data))})
        self.news.set()
        self.news = asyncio.Event()

    async def lookup(self, req):
        while req.wait is not None and not set(req.keys) <= self.published.keys():
            await asyncio.wait_for(self.news.wait(), req.timeout)
        found = [self.published[key] for key in req.keys if key in self.published]
        if not found:
            raise NotFound(f"not published: {', '.join(req.keys)}", operation="lookup")
        return found

    # Jobs begin and end.

    async def spawn(self, req):
        job = await self.launch(req.apps, near=req.requestor, forward_output=True)
        return job.nspace

    async def client_aborted(self, req):
        data = json.dumps([to_json(req.targets), req.status]).encode()
        self.network.broadcast("kill", data)
        self.end(data)

    def end(self, data):
        targets, status = json.loads(data)
        self.killing = asyncio.ensure_future(self.kill(from_json(targets), status=status))


async def main(size, command):
    name = os.environ.pop("OWN_RM_NODE", "n0")
    half = (size + 1) // 2
    with tempfile.TemporaryDirectory() as made:
        folder = os.environ.pop("OWN_RM_FOLDER", made)
        other = None
        async with MyRM(TCPCarrier.in_folder(name, folder)) as rm:
            if name == "n0":
                env = {**os.environ, "OWN_RM_NODE": "n1", "OWN_RM_FOLDER": folder}
                other = await asyncio.create_subprocess_exec(sys.executable, *sys.argv, env=env)
            job = rm.job("demo", argv=command, nodes={"n0": range(half), "n1": range(half, size)})
            try:
                async with rm.start(job, forward_output=True) as procs:
                    codes = await procs.wait()
            finally:
                # The other node needs this one until its own ranks have ended.
                there = await other.wait() if other else 0
    return abs(procs.status or next(filter(None, codes.values()), there))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]), sys.argv[2:])))
