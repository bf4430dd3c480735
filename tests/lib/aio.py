"""What scenarios use besides pypmix, to be awaited; in a scenario's blocking form `lib.sync` takes its place."""

from __future__ import annotations

import asyncio
import time

from lib.sync import read, write
from pypmix.aio import Client
from pypmix.conformance.awaited import sleep, together

__all__ = ["Client", "hear", "psets", "sleep", "tell", "together"]


async def psets(me):
    return await me.psets


async def tell(name: str, text: str = "") -> None:
    write(name, text)


async def hear(name: str, seconds: float = 10.0) -> str:
    deadline = time.monotonic() + seconds
    while (text := read(name, deadline)) is None:
        await asyncio.sleep(0.002)
    return text
