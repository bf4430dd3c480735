"""The client's side of publish, lookup and unpublish."""

from __future__ import annotations

import os

from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import SUCCESSES, NotFound
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.types import Info, Value
from pypmix.wire.messages import Command, decode_status, reply_layout, request_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.python.client import Call, Client


_FAILURES = {
    statuses.ERR_DUPLICATE_KEY: "a key is published to this range already",
    statuses.ERR_NO_PERMISSIONS: "only who published a key may take it back",
    statuses.ERR_NOT_FOUND: "the caller has published none of these keys",
}

_LOOKUP_FAILURES = {
    statuses.ERR_TIMEOUT: "it was not published in time",
    statuses.ERR_PARTIAL_SUCCESS: "some of the keys are there, but their values did not come with the answer",
}


def _send(client: Client, call: Call, command: int, **values: Any) -> None:
    if client.server is None:
        client._end(call, error=client._alone(call))
        return
    client._bound(call)
    layout = request_layout(command, client.release)
    client._request(call, layout.encode(client.buffer_type, client.release, uid=os.geteuid(), **values))


def _publish(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, Publish)
    terms = (
        Info.unchecked(keys.RANGE, Value.unchecked(codes.DATA_RANGE, op.range), 0),
        Info.unchecked(keys.PERSISTENCE, Value.unchecked(codes.PERSIST, op.persistence), 0),
    )
    _send(client, call, Command.PUBLISHNB, infos=(*op.infos, *terms, *op.directives))


def _lookup(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, Lookup)
    _send(client, call, Command.LOOKUPNB, keys=op.keys, infos=op.directives)


def _unpublish(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, Unpublish)
    _send(client, call, Command.UNPUBLISHNB, keys=op.keys, infos=op.directives)


def _answered(client: Client, call: Call, payload: bytes) -> None:
    status = decode_status(payload, client.buffer_type)
    error = None if status in SUCCESSES else client._error(call, status, _FAILURES.get(status, ""))
    client._end(call, error=error)


def _found(client: Client, call: Call, payload: bytes) -> None:
    op = call.op
    assert isinstance(op, Lookup)
    reply = reply_layout(Command.LOOKUPNB, client.release).decode(payload, client.buffer_type, client.release)
    status = reply["status"]
    # Some servers answer with a success in which values that nobody published are undefined ones.
    data = tuple([item for item in reply["data"] if item.key in op.keys and item.value.type != codes.UNDEF])
    names = ", ".join(map(repr, op.keys))
    if data and (status in SUCCESSES or status == statuses.ERR_PARTIAL_SUCCESS):
        client._end(call, data)
    elif status in SUCCESSES or status == statuses.ERR_NOT_FOUND:
        error = NotFound(f"nobody has published {names} where this proc may look it up" + call.because)
        client._end(call, error=client._named(error, op))
    else:
        detail = _LOOKUP_FAILURES.get(status, "")
        client._end(call, error=client._error(call, status, detail))


STARTS: dict[type, Callable[[Client, Call], None]] = {
    Publish: _publish,
    Lookup: _lookup,
    Unpublish: _unpublish,
}

REPLIES: dict[type, Callable[[Client, Call, bytes], None]] = {
    Publish: _answered,
    Lookup: _found,
    Unpublish: _answered,
}
