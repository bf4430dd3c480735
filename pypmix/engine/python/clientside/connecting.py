"""The client's side of connect and disconnect."""

from __future__ import annotations

from pypmix.engine.connects import id_of, refuse_strangers, understood
from pypmix.engine.python.clientside.exchanges import UNOFFERED, reply, request
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import SUCCESSES, PMIxError, RemoteProtocolError
from pypmix.standard.ops import Connect, Connected, Disconnect
from pypmix.wire.additions import decode_connected, decode_late
from pypmix.wire.codec import Unpacker, kvals
from pypmix.wire.messages import Command, decode_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.python.client import Call, Client

TIMEOUT_KEPT = (4, 2, 0), (6, 0, 0)
"""Releases, from and before, of servers that are not told of a timeout.

Each caller's timeout starts the same timer anew, which ruins their list of timers: they spin for ever after that, or
hang in their own finalize. The time runs here as well, so the caller sees no difference.
"""

_COMMANDS = {Connect: Command.CONNECTNB, Disconnect: Command.DISCONNECTNB}

_FAILURES = {
    statuses.ERR_NOT_SUPPORTED: UNOFFERED,
    statuses.ERR_TIMEOUT: "not everybody had come when the time ran out",
    statuses.ERR_PARTIAL_SUCCESS: "it ended without some of the procs",
    statuses.ERR_BAD_PARAM: "the server does not take these procs: is the caller one of them?",
    statuses.ERR_NOT_FOUND: "the server knows no such connection, or not all of the procs",
}


def _start(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, Connect | Disconnect)
    infos = op.directives
    if client.server is not None and not client.server.adapts:
        try:
            infos = understood(infos)
            refuse_strangers(client.proc, op)
        except PMIxError as error:
            client._end(call, error=client._named(error, op))
            return
    floor, end = TIMEOUT_KEPT
    if floor <= client.release < end:
        infos = tuple([info for info in infos if info.key != keys.TIMEOUT])
    request(client, call, _COMMANDS[type(op)], procs=op.procs, infos=infos)


def _taken(client: Client, call: Call, payload: bytes) -> None:
    op = call.op
    status = decode_status(payload, client.buffer_type)
    if status not in SUCCESSES:
        error = client._error(call, status, _FAILURES.get(status, ""))
        missing = decode_late(payload, client.buffer_type)
        error.missing = None if missing is None else frozenset(missing)
        client._end(call, error=error)
        return
    if isinstance(op, Disconnect):
        if client.groups is not None:
            client.groups.addresses.disconnected(op.procs, id_of(op.directives))
        client._end(call)
        return
    assert isinstance(op, Connect)
    made = Connected("", op.procs)
    foreign = []
    for item in reply(client, Command.CONNECTNB, payload)["objects"]:
        unpacker = Unpacker(item, client.buffer_type, client.release)
        nspace = unpacker.one(codes.STRING)
        if not nspace and _adapts(client):
            made = Connected(*decode_connected(unpacker))
            if client.proc not in made.procs:
                raise RemoteProtocolError("a connection has the one that has asked for it", operation="unpack")
        # A server may send what the caller holds already along with the rest.
        elif nspace and nspace != client.proc.nspace:
            pairs = kvals(item, unpacker.position, client.buffer_type, client.release)
            client.store.add_job_values(nspace, pairs, client.buffer_type, client.release)
            foreign.append(nspace)
    if made.nspace:
        from pypmix.engine.python.clientside.groups import groups_of

        groups_of(client).addresses.connected(made.nspace, made.procs, id_of(op.directives))
    client._end(call, made.replace(foreign=tuple(foreign)))


def _adapts(client: Client) -> bool:
    return client.server is not None and client.server.adapts


STARTS: dict[type, Callable[[Client, Call], None]] = {Connect: _start, Disconnect: _start}

REPLIES: dict[type, Callable[[Client, Call, bytes], None]] = {Connect: _taken, Disconnect: _taken}
