"""One node of a resource manager: `daemon.py KIND NAME ADDRESS FOLDER NODES SIZE COMMAND...`.

KIND is `tutorial`, whose manager answers what crosses nodes, or `plain`, which leaves that to its exchange.
NODES are the names of all nodes, with commas; ranks are placed in blocks. FOLDER is shared by all.
"""

from __future__ import annotations

import asyncio
import sys

from own_rm import MyRM

from pypmix.host import Host
from pypmix.host.exchange import Exchange, TCPCarrier


def manager(kind: str, carrier: TCPCarrier) -> Host:
    return MyRM(carrier) if kind == "tutorial" else Host(exchange=Exchange(carrier))


async def main(kind: str, name: str, address: str, folder: str, nodes: str, size: str, *command: str) -> int:
    names = nodes.split(",")
    each = -(-int(size) // len(names))
    places = {node: range(each * place, min(int(size), each * (place + 1))) for place, node in enumerate(names)}
    async with manager(kind, TCPCarrier.in_folder(name, folder, host=address)) as rm:
        job = rm.job("demo", argv=command, nodes=places)
        async with rm.start(job, forward_output=True) as procs:
            codes = await procs.wait()
        # The others need this server until their ranks have ended.
        await rm.exchange("over", nodes=names, timeout=60)
    return abs(procs.status or next(filter(None, codes.values()), 0))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
