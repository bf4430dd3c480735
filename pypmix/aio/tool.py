"""The tool in `async` and `await`; the sync one documents each operation in full."""

from __future__ import annotations

import anyio
import anyio.to_thread

from pypmix.aio.client import Client
from pypmix.aio.operations.servers import Servers
from pypmix.aio.pump import Pump
from pypmix.tool import ToolBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class Tool(ToolBase, Servers, Client):
    """A tool: a process that no server needs to have launched; see `pypmix.Tool` for the arguments.

    It belongs to the event loop that opened it. Cancelling a call stops the waiting; the server may still carry the
    operation out.
    """

    async def open(self) -> Self:
        """`PMIx_tool_init`: find the server and connect to it; returns the tool itself."""
        # To look for a server and to wait for one takes its time, and a thread of its own.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._open)
        self._pump = Pump(self._session)
        return self
