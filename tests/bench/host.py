"""The host of `host.c` in Python: `python host.py inline|asyncio|threads N CLIENT [ARGUMENT...]`.

`inline` answers on the engine's own thread, the others through `pypmix.host.Host`: in its loop, or on its workers.
`PYPMIX_ENGINE` and `PYPMIX_LIBPMIX` say on which engine.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from pypmix import Proc, Server
from pypmix.host import Application, Host, JobLayout, NodeLayout
from pypmix.server import accept
from pypmix.standard.ops import FenceUpcall


class InLoop(Host):
    """Answers fences in the host's loop."""

    async def fence(self, req):  # type: ignore[no-untyped-def]
        return req.data


class OnWorkers(Host):
    """Answers fences on threads."""

    def fence(self, req):  # type: ignore[no-untyped-def]
        return req.data


def inline(n: int, command: list[str]) -> int:
    def upcall(upcall) -> None:  # type: ignore[no-untyped-def]
        if type(upcall.op) is FenceUpcall:
            upcall.reply(upcall.op.data)
        else:
            accept(upcall)

    here = os.uname().nodename
    nodes = (NodeLayout(here, tuple(range(n))), NodeLayout("elsewhere", tuple(range(n, 2 * n))))
    job = JobLayout("bench", (Application(tuple(command), 2 * n),), nodes)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PMIX_")}
    with Server(upcall, engine=os.environ.get("PYPMIX_ENGINE", "python")) as server:
        server.register_nspace(job.info(), tuple(range(n)))
        clients = []
        for rank in range(n):
            proc = Proc("bench", rank)
            server.register_client(proc)
            clients.append(subprocess.Popen(command, env={**inherited, **server.client_env(proc)}))
        codes = [client.wait() for client in clients]
    return any(codes)


async def hosted(kind: type[Host], n: int, command: list[str]) -> int:
    here = os.uname().nodename
    async with kind(node=here) as host:
        job = host.job("bench", 2 * n, nodes={here: range(n), "elsewhere": range(n, 2 * n)})
        async with host.start(job, command, forward_output=True) as procs:
            codes = await procs.wait()
    return any(codes.values())


def main() -> int:
    kind, n, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if kind == "inline":
        return inline(n, command)
    return asyncio.run(hosted(InLoop if kind == "asyncio" else OnWorkers, n, command))


if __name__ == "__main__":
    sys.exit(main())
