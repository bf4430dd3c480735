"""Endpoints of UCXX between neighbours: each rank sends its number to the next one."""

import asyncio

import numpy as np
import ucxx

from pypmix import aio


async def main() -> None:
    async with aio.Client() as me:
        addresses = await me.allgather(bytes(ucxx.get_worker_address()), timeout=60)
        after = ucxx.get_ucx_address_from_buffer(addresses[(me.rank + 1) % me.job.size])
        endpoint = await ucxx.create_endpoint_from_worker_address(after)

        got = np.empty(1, np.int64)
        await asyncio.gather(endpoint.send(np.array([me.rank]), tag=0, force_tag=True), ucxx.recv(got, tag=0))
        print(f"rank {me.rank} got {got[0]}")

        await me.fence(timeout=60)
        await endpoint.close()


asyncio.run(main())
