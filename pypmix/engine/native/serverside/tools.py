"""Tools that connect: the check of their users, their names, and the host's answers."""

from __future__ import annotations

import os
import time
from _socket import MSG_DONTWAIT, SHUT_RDWR

from pypmix.engine.common import MUNGE
from pypmix.engine.native.serverside.node import STATE_CONNECTED
from pypmix.engine.peeruid import UNKNOWN_USER, connections_of_others
from pypmix.engine.times import OWNER_PAUSE
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import ToolConnected
from pypmix.standard.types import RANK_VALID, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.engine.native.serverside.node import Node

TRIES = 20
"""The number of attempts to find the owner of a connection that has no owner yet."""

SAID: dict[str, Any] = {
    keys.NSPACE: "",
    keys.RANK: 0,
    keys.VERSION_INFO: "",
    keys.PROC_PID: None,
    keys.LAUNCHER: False,
    keys.USERID: None,
    keys.GRPID: None,
}
"""The upcall's infos about a tool, with the values to use if the library does not give them."""


def connected(node: Node, raw: Any) -> ToolConnected:
    """Return a tool's request to connect, if the tool runs as this server's user or as root.

    Raises:
        PMIxError: The tool runs as another user (`statuses.ERR_INVALID_CRED`).
    """
    said = dict(SAID)
    rest = []
    for info in node.infos(raw):
        if info.key in said:
            said[info.key] = info.value.data
        else:
            rest.append(info)
    nspace, rank, release, pid, launcher, uid, gid = said.values()
    if uid not in (0, node.uid):
        raise PMIxError(
            f"a tool of user {uid}, and this server is of user {node.uid}", status=statuses.ERR_INVALID_CRED
        )
    if node.security != (MUNGE,):
        _check_connections(node)
    node.applicant = uid, gid
    proc = Proc(nspace, rank) if nspace else None
    return ToolConnected(proc, pid, launcher is True, release or "", tuple(rest))


def _check_connections(node: Node) -> None:
    """Check that no other user is connected: the library trusts a tool, and does not report which connection it has.

    Raises:
        PMIxError: Another user is connected (`statuses.ERR_INVALID_CRED`).
    """
    for trial in range(TRIES):
        if trial:
            # The connection of a client that has just exited has no owner until the library handles its end.
            time.sleep(OWNER_PAUSE)
        whose: set[int] = set()
        present: set[int] = set()
        for owner, connection in connections_of_others(node.ports(), (0, node.uid)):
            # The library never closes the connections of refused tools.
            number = os.fstat(connection.fileno()).st_ino
            present.add(number)
            if number not in node.cut:
                whose.add(owner)
                if trial == TRIES - 1 or owner != UNKNOWN_USER:
                    _cut(node, owner, connection)
            connection.close()
        # The number of a closed connection may be reused for another connection.
        node.cut &= present
        if not whose:
            return
        if whose != {UNKNOWN_USER}:
            break
    names = ["a user that the kernel does not know" if uid == UNKNOWN_USER else f"user {uid}" for uid in sorted(whose)]
    detail = f"a tool, while a connection of {' and '.join(names)} is open that may be its own"
    raise PMIxError(detail, status=statuses.ERR_INVALID_CRED)


def _cut(node: Node, owner: int, connection: socket) -> None:
    """End a connection, and discard its unread data, unless its user is the user of expected clients."""
    if any(owner == uid for uid, _gid in node.users.values()):
        return
    node.cut.add(os.fstat(connection.fileno()).st_ino)
    try:
        connection.shutdown(SHUT_RDWR)
    except OSError:
        # It has ended already, but its unread data is left.
        pass
    try:
        while connection.recv(1 << 16, MSG_DONTWAIT):
            pass
    except OSError:
        return


def write_tool_name(node: Node, upcall: Upcall, result: object, outputs: Any) -> int:
    """Assign a name to a tool: the name that it gave, the host's name for it, or a generated name."""
    op: Any = upcall.op
    name = op.proc or result
    if name is None:
        node.last_tool += 1
        name = Proc(f"{node.proc.nspace[:230]}-tool{node.last_tool}", 0)
    if not isinstance(name, Proc) or not name.nspace or name.rank > RANK_VALID:
        raise PMIxError(f"the host names a tool {name!r}, which is not a name", status=statuses.ERR_BAD_PARAM)
    node.users[name] = upcall.uid, upcall.gid
    node.states[name] = STATE_CONNECTED
    node.marshal.fill(outputs.items, codes.PROC, (name,))
    return statuses.SUCCESS
