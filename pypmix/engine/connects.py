"""The directives of connects that each kind of server supports, for both engines."""

from __future__ import annotations

from pypmix.engine.groups.talk import found
from pypmix.standard.errors import NotFound, NotSupported
from pypmix.standard.ops import Disconnect
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_EARLY_TERM,
    CONNECT_ID,
    CONNECT_NOTIFY_EACH,
    CONNECT_NOTIFY_REQ,
    CONNECT_OPTIONAL,
    CONNECT_XCHG_ONLY,
)
from pypmix.standard.types import RANK_WILDCARD

NAMES = {
    CONNECT_ID: "ids of connects",
    CONNECT_NOTIFY_EACH: "events for each one that comes and goes",
    CONNECT_NOTIFY_REQ: "requests to connect",
    CONNECT_OPTIONAL: "optional participants",
    CONNECT_EARLY_TERM: "connections whose members may end early",
}
"""The descriptions of the directives that only servers of the Python engine support."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.ops import Connect
    from pypmix.standard.types import Info, Proc


def understood(infos: tuple[Info, ...]) -> tuple[Info, ...]:
    """Return the directives of a connect or a disconnect for a server that supports only those of the Standard.

    Such a server never assigns an nspace.

    Raises:
        NotSupported: Other directives are set.
    """
    for info in infos:
        if info.key in NAMES:
            raise NotSupported(
                f"this server does not support {NAMES[info.key]}: only servers of pypmix's Python engine do "
                f"({info.key})",
                hint="check `supports('connect.directives')` first",
            )
    return tuple([info for info in infos if info.key not in (CONNECT_ASSIGN, CONNECT_XCHG_ONLY)])


def check_caller(proc: Proc, op: Connect | Disconnect) -> None:
    """Refuse a disconnect that does not name its caller: servers without connections would wait forever.

    Raises:
        NotFound: The caller is not named.
    """
    if type(op) is Disconnect and not any(each == proc or each == (proc[0], RANK_WILDCARD) for each in op.procs):
        raise NotFound("there is no such connection: the caller is not one of the procs", procs=op.procs)


def id_of(infos: tuple[Info, ...]) -> str:
    """Return the id of a connect; an empty string if it has none."""
    return found(infos, CONNECT_ID, str) or ""
