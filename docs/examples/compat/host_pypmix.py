import asyncio
import sys

from pypmix.host import Host


class OneNode(Host):
    async def fence(self, req):
        # There is one server, so that its own data are all there are.
        return req.data

    async def query(self, req):
        return {key: "short" for key in req.keys if key == "acme.queue"}


async def main():
    async with OneNode() as host:
        job = host.job("acme.job", np=2)
        async with host.start(job, sys.argv[1:], forward_output=True) as procs:
            codes = await procs.wait()
    print(f"the ranks ended with {list(codes.values())}", flush=True)


asyncio.run(main())
