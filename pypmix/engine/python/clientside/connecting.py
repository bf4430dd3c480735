"""The client's side of connect and disconnect."""

from __future__ import annotations

from pypmix.engine.common import TIMED_OUT
from pypmix.engine.connects import check_caller, id_of, understood
from pypmix.engine.python.client import UNOFFERED, Client, Operation, timeout_of
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import (
    SUCCESSES,
    PMIxError,
    RemoteProtocolError,
)
from pypmix.standard.ops import Connect, Connected, Disconnect
from pypmix.wire.additions import decode_connected
from pypmix.wire.codec import Unpacker
from pypmix.wire.messages import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.python.client import Call, Ended, JobValues

    Made = tuple[Connected | None, list[JobValues]]

TIMEOUT_KEPT = (4, 2, 0), (6, 0, 0)
"""Releases, from and before, of servers to which a timeout is not sent.

Each caller's timeout starts the same timer again, which corrupts their list of timers: they spin for ever after that,
or hang in their own finalize. The client applies the timeout as well, so the caller sees no difference.
"""

_FAILURES = {
    statuses.ERR_NOT_SUPPORTED: UNOFFERED,
    statuses.ERR_TIMEOUT: TIMED_OUT,
    statuses.ERR_PARTIAL_SUCCESS: "it ended without some of the procs",
    statuses.ERR_LOST_CONNECTION: "a participant has lost its connection to its server",
    statuses.ERR_BAD_PARAM: "the server does not take these procs: is the caller one of them?",
    statuses.ERR_NOT_FOUND: "the server knows no such connection, or not all of the procs",
}


def _start(client: Client, call: Call, op: Connect | Disconnect) -> None:
    infos = op.directives
    if client.server is not None and not client.adapts:
        try:
            infos = understood(infos)
            check_caller(client.proc, op)
        except PMIxError as error:
            client.fail(call, error)
            return
    floor, end = TIMEOUT_KEPT
    if floor <= client.release < end:
        infos = tuple([info for info in infos if info.key != keys.TIMEOUT])
    command = Command.CONNECTNB if isinstance(op, Connect) else Command.DISCONNECTNB
    if client.server is None:
        client.alone(call)
        return
    client.limit(call, timeout_of(op))
    client.contribute(call, op.procs, client.encode(command, procs=op.procs, infos=infos))


def _read_connected(client: Client, call: Call, payload: bytes) -> tuple[Ended, Made]:
    ended = client.read_missing(call, payload)
    if ended[0] not in SUCCESSES:
        return ended, (None, [])
    objects = client.decode(Command.CONNECTNB, payload)["objects"]
    made = None
    for item in objects if client.adapts else ():
        unpacker = Unpacker(item, client.buffer_type, client.release)
        if not unpacker.one(codes.STRING):
            made = Connected(*decode_connected(unpacker))
            if client.proc not in made.procs:
                raise RemoteProtocolError("a connection lacks the proc that asked for it", operation="unpack")
    return ended, (made, client.read_jobs(objects))


def _connected(client: Client, call: Call, op: Connect, reply: tuple[Ended, Made]) -> None:
    ended, (made, jobs) = reply
    if ended[0] not in SUCCESSES:
        client.miss(call, ended, _FAILURES.get(ended[0], ""))
        return
    foreign = client.learn(jobs)
    if made is not None:
        client.grouped().connected(made, id_of(op.directives))
    client.end(call, (made or Connected("", op.procs)).replace(foreign=foreign))


def _finish_disconnect(client: Client, call: Call, op: Disconnect, outcome: Ended) -> None:
    if outcome[0] not in SUCCESSES:
        client.miss(call, outcome, _FAILURES.get(outcome[0], ""))
        return
    if client.groups is not None:
        client.groups.disconnected(op.procs, id_of(op.directives))
    client.end(call)


OPERATIONS = {
    Connect: Operation(_start, _read_connected, _connected),
    Disconnect: Operation(_start, Client.read_missing, _finish_disconnect),
}
