"""pypmix with `async` and `await`: the same names, on asyncio or trio."""

from __future__ import annotations

from pypmix.lazy import names as _names

_HOME = {
    "pypmix.aio.client": "Client",
    "pypmix.aio.operations.connecting": "Connection",
    "pypmix.aio.operations.groups": "Changes Group",
    "pypmix.aio.operations.invitations": "Invitation InvitationStream Invite",
    "pypmix.aio.server": "Server",
    "pypmix.aio.tool": "Tool",
}
__getattr__, __dir__ = _names(__name__, _HOME)
