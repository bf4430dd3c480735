"""Tools that connect: whose they are, under which names, and what the host says to them."""

from __future__ import annotations

from pypmix.engine.native.serverside.knowledge import STATE_CONNECTED
from pypmix.standard import codes
from pypmix.standard.errors import ERR_BAD_PARAM, ERR_INVALID_CRED, SUCCESS, PMIxError
from pypmix.standard.ops import ToolConnected
from pypmix.standard.types import RANK_VALID, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.native.serversession import NativeServer, Upcall

UID = "pmix.euid"
GID = "pmix.egid"
SAID: dict[str, Any] = {
    "pmix.nspace": "",
    "pmix.rank": 0,
    "pmix.version": "",
    "pmix.ppid": None,
    "pmix.tool.launcher": False,
    UID: None,
    GID: None,
}
"""What the upcall says elsewhere, and what stands for it where the library does not tell."""


def connected(server: NativeServer, raw: Any) -> ToolConnected:
    """Return a tool's wish to connect, if it is of this server's user or of root.

    Raises:
        PMIxError: It is of somebody else (`ERR_INVALID_CRED`).
    """
    said = dict(SAID)
    rest = []
    for info in server.marshal.results(raw.infos) if raw.infos.size else ():
        if info.key in said:
            said[info.key] = info.value.data
        else:
            rest.append(info)
    nspace, rank, release, pid, launcher, uid, gid = said.values()
    if uid not in (0, server.uid):
        raise PMIxError(f"a tool of user {uid}, and this server is of user {server.uid}", status=ERR_INVALID_CRED)
    server.applicant = uid, gid
    proc = Proc(nspace, rank) if nspace else None
    return ToolConnected(proc, pid, launcher is True, release or "", tuple(rest))


def admitted(server: NativeServer, upcall: Upcall, result: object, given: Any) -> int:
    """Tell a tool its name: its own, the host's, or one that is made up."""
    op: Any = upcall.op
    name = op.proc or result
    if name is None:
        server.last_tool += 1
        name = Proc(f"{server.proc.nspace[:230]}-tool{server.last_tool}", 0)
    if not isinstance(name, Proc) or not name.nspace or name.rank > RANK_VALID:
        raise PMIxError(f"the host names a tool {name!r}, which is no name", status=ERR_BAD_PARAM)
    server.users[name] = upcall.uid, upcall.gid
    server.states[name] = STATE_CONNECTED
    server.marshal.fill(given.items, codes.PROC, (name,))
    return SUCCESS
