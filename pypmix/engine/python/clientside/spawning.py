"""The client's side of spawn."""

from __future__ import annotations

from pypmix.engine.apps import complete, refusal
from pypmix.engine.python.client import TIMEOUT_GRACE
from pypmix.engine.python.clientside.forwarding import show_output
from pypmix.engine.python.datastore import is_true, seconds
from pypmix.standard import keys, statuses
from pypmix.standard.errors import SUCCESSES
from pypmix.standard.ops import Spawn
from pypmix.wire.codec import kvals
from pypmix.wire.messages import Command, reply_layout, request_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.python.client import Call, Client


FORWARDED = frozenset({keys.FWD_STDOUT, keys.FWD_STDERR, keys.FWD_STDDIAG})
"""Directives that make the server send the output of the new procs to a tool without being asked again."""


def _spawn(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, Spawn)
    if client.server is None:
        client._end(call, error=client._alone(call))
        return
    apps = tuple([complete(app) for app in op.apps])
    layout = request_layout(Command.SPAWNNB, client.release)
    message = layout.encode(client.buffer_type, client.release, infos=op.directives, apps=apps)
    # PMIX_TIMEOUT is no limit of this request: some hosts take it for that of the job.
    for info in op.directives:
        if info.key == keys.SPAWN_TIMEOUT and seconds(info.value):
            client._set_deadline(call, client._now + seconds(info.value) + TIMEOUT_GRACE)
        elif info.key in FORWARDED and is_true(info.value) and client.server.tool:
            # What launches ranks shows such output itself, for whoever asked for it.
            show_output(client)
    client._request(call, message)


def _spawned(client: Client, call: Call, payload: bytes) -> None:
    reply = reply_layout(Command.SPAWNNB, client.release).decode(payload, client.buffer_type, client.release)
    status, nspace = reply["status"], reply["nspace"]
    if status not in SUCCESSES:
        assert isinstance(call.op, Spawn)
        client._end(call, error=client._error(call, status, *refusal(call.op, status)))
    elif not nspace:
        client._end(call, error=client._error(call, statuses.ERROR, "the server does not say which nspace the job has"))
    else:
        pairs = kvals(reply["kvals"], 0, client.buffer_type, client.release)
        client.store.add_job_values(nspace, pairs, client.buffer_type, client.release)
        client._end(call, nspace)


STARTS: dict[type, Callable[[Client, Call], None]] = {Spawn: _spawn}

REPLIES: dict[type, Callable[[Client, Call, bytes], None]] = {Spawn: _spawned}
