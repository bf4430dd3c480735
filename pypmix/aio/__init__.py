"""pypmix with `async` and `await`: the same names, on asyncio or trio."""

from __future__ import annotations

from pypmix.aio.client import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.aio.server import Server as Server
    from pypmix.aio.tool import Tool as Tool

__all__ = ["Client", "Server", "Tool"]


def __getattr__(name: str) -> object:
    if name == "Tool":
        from pypmix.aio.tool import Tool as found
    elif name == "Server":
        from pypmix.aio.server import Server as found  # type: ignore[assignment]
    else:
        raise AttributeError(f"module 'pypmix.aio' has no attribute {name!r}")
    globals()[name] = found
    return found
