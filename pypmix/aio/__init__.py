"""pypmix with `async` and `await`: the same names, on asyncio or trio."""

from __future__ import annotations

from pypmix.aio.client import Client

__all__ = ["Client"]
