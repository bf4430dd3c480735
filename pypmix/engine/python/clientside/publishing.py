"""The client's side of publish, lookup and unpublish."""

from __future__ import annotations

import os

from pypmix.engine.python.client import Operation
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PARTIAL_SUCCESSES, SUCCESSES, NotFound
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.types import Info, Value
from pypmix.wire.messages import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.python.client import Call, Client


_FAILURES = {
    statuses.ERR_DUPLICATE_KEY: "a key is published to this range already",
    statuses.ERR_NO_PERMISSIONS: "only who published a key may take it back",
    statuses.ERR_NOT_FOUND: "the caller has published none of these keys",
}

_LOOKUP_FAILURES = {
    statuses.ERR_TIMEOUT: "it was not published in time",
    **dict.fromkeys(PARTIAL_SUCCESSES, "some of the keys are there, but their values did not come with the answer"),
}


def _publish(client: Client, call: Call, op: Publish) -> None:
    terms = (
        Info.unchecked(keys.RANGE, Value.unchecked(codes.DATA_RANGE, op.range), 0),
        Info.unchecked(keys.PERSISTENCE, Value.unchecked(codes.PERSIST, op.persistence), 0),
    )
    client.ask(call, Command.PUBLISHNB, uid=os.geteuid(), infos=(*op.infos, *terms, *op.directives))


def _lookup(client: Client, call: Call, op: Lookup) -> None:
    client.ask(call, Command.LOOKUPNB, uid=os.geteuid(), keys=op.keys, infos=op.directives)


def _unpublish(client: Client, call: Call, op: Unpublish) -> None:
    client.ask(call, Command.UNPUBLISHNB, uid=os.geteuid(), keys=op.keys, infos=op.directives)


def _finish_publish(client: Client, call: Call, op: Publish | Unpublish, status: int) -> None:
    client.settle(call, status, failures=_FAILURES)


def _read(client: Client, call: Call, payload: bytes) -> dict[str, Any]:
    return client.decode(Command.LOOKUPNB, payload)


def _finish_lookup(client: Client, call: Call, op: Lookup, reply: dict[str, Any]) -> None:
    status = reply["status"]
    # Some servers answer success with undefined values for keys that are not published.
    data = tuple([item for item in reply["data"] if item.key in op.keys and item.value.type != codes.UNDEF])
    if data and status in SUCCESSES | PARTIAL_SUCCESSES:
        client.end(call, data)
    elif status in SUCCESSES or status == statuses.ERR_NOT_FOUND:
        names = ", ".join(map(repr, op.keys))
        client.fail(call, NotFound(f"no value of {names} is published where this proc may look it up" + call.because))
    else:
        client.refuse(call, status, _LOOKUP_FAILURES.get(status, ""))


OPERATIONS = {
    Publish: Operation(_publish, act=_finish_publish),
    Lookup: Operation(_lookup, _read, _finish_lookup),
    Unpublish: Operation(_unpublish, act=_finish_publish),
}
