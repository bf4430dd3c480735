"""Operations that are one request and one reply, as tables: what is asked, and what the answer means."""

from __future__ import annotations

from pypmix.standard import statuses
from pypmix.standard.errors import SUCCESSES, NotSupported
from pypmix.wire.messages import reply_layout, request_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from pypmix.engine.python.client import Call, Client

    Start = Callable[[Client, Call], None]
    Take = Callable[[Client, Call, bytes], None]

UNOFFERED = "the server's host does not offer it"


class Exchange:
    """How an operation is carried out.

    Args:
        command: The command of the request.
        fields: Returns the request's fields.
        result: Returns the operation's result from the fields of the reply.
        failures: What statuses mean, in words.
    """

    __slots__ = ("command", "failures", "fields", "result")

    def __init__(
        self,
        command: int,
        fields: Callable[[Any], dict[str, Any]],
        result: Callable[[dict[str, Any]], Any] = lambda reply: None,
        failures: Mapping[int, str] | None = None,
    ) -> None:
        self.command = command
        self.fields = fields
        self.result = result
        self.failures = {statuses.ERR_NOT_SUPPORTED: UNOFFERED, **(failures or {})}


def infos(reply: dict[str, Any]) -> Any:
    """Return what most replies carry."""
    return reply["infos"]


def request(client: Client, call: Call, command: int, *, unbound: bool = False, **fields: Any) -> None:
    """Send a request; without a server, or with one that has no such command, the call ends with an error.

    Args:
        client: The machine.
        call: What asks.
        command: What is asked.
        unbound: Whether somebody else looks after the operation's own timeout.
        fields: The fields of the request.
    """
    if client.server is None:
        client._end(call, error=client._alone(call))
        return
    try:
        layout = request_layout(command, client.release)
    except NotSupported as error:
        client._end(call, error=client._named(error, call.op))
        return
    client._request(call, layout.encode(client.buffer_type, client.release, **fields))
    if not unbound:
        client._bound(call)


def reply(client: Client, command: int, payload: bytes) -> dict[str, Any]:
    """Return the fields of a reply."""
    return reply_layout(command, client.release).decode(payload, client.buffer_type, client.release)


def _start(row: Exchange) -> Start:
    def start(client: Client, call: Call) -> None:
        request(client, call, row.command, **row.fields(call.op))

    return start


def _take(row: Exchange) -> Take:
    def take(client: Client, call: Call, payload: bytes) -> None:
        fields = reply(client, row.command, payload)
        status = fields["status"]
        if status in SUCCESSES:
            client._end(call, row.result(fields))
        else:
            client._end(call, error=client._error(call, status, row.failures.get(status, "")))

    return take


def tables(rows: Mapping[type, Exchange]) -> tuple[dict[type, Start], dict[type, Take]]:
    """Return the `STARTS` and the `REPLIES` of a topic."""
    return {kind: _start(row) for kind, row in rows.items()}, {kind: _take(row) for kind, row in rows.items()}
