"""A launcher whose host answers wrongly, or with --silent does not answer a publish at all.

broken_host.py [--silent] RANKS PROGRAM [ARGUMENT]...
"""

from __future__ import annotations

import asyncio
import sys

from pypmix import attrs
from pypmix.host import Host


class Wrong(Host):
    def lookup(self, req):
        return ()

    def query(self, req):
        return {str(attrs.QUERY_NAMESPACES): "acme.others"}


class Silent(Host):
    async def publish(self, req):
        await asyncio.sleep(1000)


async def main(kind: type[Host], ranks: str, *command: str) -> None:
    async with (
        kind(engine="python") as host,
        host.start(host.job("broken", np=int(ranks)), list(command), forward_output=True) as procs,
    ):
        await procs.wait()


if sys.argv[1] == "--silent":
    asyncio.run(main(Silent, *sys.argv[2:]))
else:
    asyncio.run(main(Wrong, *sys.argv[1:]))
