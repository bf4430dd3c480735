"""Requests that a server passes on to its host as upcalls, and the host's answers as replies."""

from __future__ import annotations

from pypmix.engine.python.serverside.topic import Topic
from pypmix.standard.errors import (
    ERR_BAD_PARAM,
    ERR_NOT_FOUND,
    ERR_PARTIAL_SUCCESS,
    ERROR,
    SUCCESS,
    PMIxError,
)
from pypmix.standard.ops import (
    PERSIST_APP,
    RANGE_SESSION,
    RESERVED_PREFIX,
    Lookup,
    Publish,
    Unpublish,
)
from pypmix.standard.types import Info, Pdata
from pypmix.wire.messages import Command, reply_layout, request_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.python.server import Peer, Server

RANGE = "pmix.range"
PERSISTENCE = "pmix.persist"

PARTIAL_FROM = (7, 0, 0)
"""The first release whose clients take in the data of a partial success.

Earlier ones drop it; told of a success, they hand the caller what is there, and it sees which keys are not.
"""


def status_of(error: BaseException | None) -> int:
    """Return the status that tells a client how its request ended."""
    if error is None:
        return SUCCESS
    return (error.code if isinstance(error, PMIxError) else ERROR) or ERROR


class Services(Topic):
    """Publish, lookup and unpublish.

    The user that these requests name is ignored: the upcall tells whom the server has admitted.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.handlers = {
            Command.PUBLISHNB: self._publish,
            Command.LOOKUPNB: self._lookup,
            Command.UNPUBLISHNB: self._unpublish,
        }

    def _publish(self, peer: Peer, tag: int, payload: bytes) -> None:
        infos = _fields(peer, Command.PUBLISHNB, payload)["infos"]
        terms = {RANGE: RANGE_SESSION, PERSISTENCE: PERSIST_APP}
        data: list[Info] = []
        directives: list[Info] = []
        for info in infos:
            if info.key in terms:
                terms[info.key] = info.value.data
            elif info.key.startswith(RESERVED_PREFIX):
                directives.append(info)
            else:
                data.append(info)
        op = _made(Publish, tuple(data), terms[RANGE], terms[PERSISTENCE], tuple(directives))
        self.server.host.upcall(op, lambda _result, error: peer.status(tag, status_of(error)), peer.process)

    def _unpublish(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = _fields(peer, Command.UNPUBLISHNB, payload)
        op = _made(Unpublish, tuple(dict.fromkeys(fields["keys"])), fields["infos"])
        self.server.host.upcall(op, lambda _result, error: peer.status(tag, status_of(error)), peer.process)

    def _lookup(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = _fields(peer, Command.LOOKUPNB, payload)
        op = _made(Lookup, tuple(dict.fromkeys(fields["keys"])), fields["infos"])

        def answer(found: tuple[Pdata, ...] | None, error: BaseException | None) -> None:
            if error is not None or not found:
                peer.status(tag, status_of(error) if error else ERR_NOT_FOUND)
                return
            partial = len(found) < len(op.keys) and peer.release >= PARTIAL_FROM
            status = ERR_PARTIAL_SUCCESS if partial else SUCCESS
            layout = reply_layout(Command.LOOKUPNB, peer.release)
            peer.send(tag, layout.encode(peer.buffer_type, peer.release, status=status, data=found))

        self.server.host.upcall(op, answer, peer.process)


def _fields(peer: Peer, command: int, payload: bytes) -> dict[str, Any]:
    return request_layout(command, peer.release).decode(payload, peer.buffer_type, peer.release)


def _made(kind: type[Any], *fields: object) -> Any:
    """Return the operation that a client asks for, if it is a sound one."""
    try:
        return kind(*fields)
    except (TypeError, ValueError) as error:
        raise PMIxError(str(error), status=ERR_BAD_PARAM) from None
