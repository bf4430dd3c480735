"""pypmix with `async` and `await`: the same names, on asyncio or trio."""

from __future__ import annotations

from pypmix.aio.client import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.aio.tool import Tool as Tool

__all__ = ["Client", "Tool"]


def __getattr__(name: str) -> object:
    if name != "Tool":
        raise AttributeError(f"module 'pypmix.aio' has no attribute {name!r}")
    from pypmix.aio.tool import Tool

    globals()[name] = Tool
    return Tool
