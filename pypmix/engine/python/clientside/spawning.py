"""The client's side of spawn."""

from __future__ import annotations

from pypmix.engine.apps import complete, refusal
from pypmix.engine.python.client import Operation
from pypmix.engine.python.datastore import is_true, seconds
from pypmix.standard import keys, statuses
from pypmix.standard.errors import SUCCESSES
from pypmix.standard.ops import Spawn
from pypmix.wire.messages import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.python.client import Call, Client, JobValues

    Reply = tuple[int, JobValues]


FORWARDED = frozenset({keys.FWD_STDOUT, keys.FWD_STDERR, keys.FWD_STDDIAG})
"""Directives that make the server send the output of the new procs to a tool without being asked again."""


def _spawn(client: Client, call: Call, op: Spawn) -> None:
    if client.server is None:
        client.alone(call)
        return
    message = client.encode(Command.SPAWNNB, infos=op.directives, apps=tuple([complete(app) for app in op.apps]))
    # PMIX_TIMEOUT is not a limit of this request: some hosts take it for that of the job.
    for info in op.directives:
        if info.key == keys.SPAWN_TIMEOUT:
            client.limit(call, seconds(info.value))
        elif info.key in FORWARDED and is_true(info.value) and client.server.tool:
            # A launcher of ranks shows such output itself to its user.
            from pypmix.engine.python.clientside.forwarding import show_output

            show_output(client)
    client.request(call, message)


def _read(client: Client, call: Call, payload: bytes) -> Reply:
    reply = client.decode(Command.SPAWNNB, payload)
    named = reply["status"] in SUCCESSES and reply["nspace"]
    data = reply["kvals"] if named else b""
    return reply["status"], client.job_values(reply["nspace"], data)


def _spawned(client: Client, call: Call, op: Spawn, reply: Reply) -> None:
    status, job = reply
    nspace = job[0]
    if status not in SUCCESSES:
        client.refuse(call, status, *refusal(op, status))
    elif not nspace:
        client.refuse(call, statuses.ERROR, "the server does not say which nspace the job has")
    else:
        client.learn([job])
        client.end(call, nspace)


OPERATIONS = {Spawn: Operation(_spawn, _read, _spawned)}
