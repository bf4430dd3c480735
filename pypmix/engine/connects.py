"""What of connects works with which server: the same for both engines."""

from __future__ import annotations

from pypmix.standard.errors import NotSupported
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_EARLY_TERM,
    CONNECT_ID,
    CONNECT_NOTIFY_EACH,
    CONNECT_NOTIFY_REQ,
    CONNECT_OPTIONAL,
    CONNECT_XCHG_ONLY,
)

NAMES = {
    CONNECT_ID: "ids of connects",
    CONNECT_NOTIFY_EACH: "events for each one that comes and goes",
    CONNECT_NOTIFY_REQ: "requests to connect",
    CONNECT_OPTIONAL: "optional participants",
    CONNECT_EARLY_TERM: "connections whose members may end early",
}
"""What the directives stand for that only servers of the Python engine know, in words."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.types import Info


def understood(infos: tuple[Info, ...]) -> tuple[Info, ...]:
    """Return the directives of a connect or a disconnect for a server that knows no more than the Standard.

    It assigns no nspace whether or not it is asked for one.

    Raises:
        NotSupported: It would have to know more.
    """
    for info in infos:
        if info.key in NAMES:
            raise NotSupported(
                f"this server knows no {NAMES[info.key]}: only those of pypmix's Python engine do ({info.key})",
                hint="`supports('connect.directives')` tells where it works",
            )
    return tuple([info for info in infos if info.key not in (CONNECT_ASSIGN, CONNECT_XCHG_ONLY)])
