"""The client's side of log, job control, allocations, monitors, heartbeats and credentials."""

from __future__ import annotations

from pypmix.engine.python.clientside.exchanges import Exchange, infos, tables
from pypmix.engine.python.datastore import is_true
from pypmix.standard import keys, statuses
from pypmix.standard.ops import (
    AllocationRequest,
    Credential,
    GetCredential,
    Heartbeat,
    JobControl,
    Log,
    ProcessMonitor,
    ValidateCredential,
)
from pypmix.wire.frames import TAG_HEARTBEAT, frame
from pypmix.wire.messages import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.python.client import Call, Client


def _log_fields(op: Log) -> dict[str, Any]:
    timestamp = op.timestamp
    if not timestamp and any(info.key == keys.LOG_GENERATE_TIMESTAMP and is_true(info.value) for info in op.directives):
        from time import time

        timestamp = int(time())
    return {"timestamp": timestamp, "data": op.data, "directives": op.directives}


def _heartbeat(client: Client, call: Call, result: object = None) -> None:
    if client.server is None:
        client._end(call, error=client._alone(call))
        return
    # An empty message to which nobody answers.
    client._push(frame(client._pindex, TAG_HEARTBEAT, b""))
    client._end(call, result)


STARTS, REPLIES = tables(
    {
        Log: Exchange(Command.LOG, _log_fields),
        JobControl: Exchange(
            Command.JOB_CONTROL,
            lambda op: {"procs": op.targets, "infos": op.directives},
            infos,
            {
                statuses.ERR_NOT_FOUND: "the server does not know all of the targets",
                statuses.ERR_PARTIAL_SUCCESS: "it could not be done to all of the targets",
            },
        ),
        AllocationRequest: Exchange(
            Command.ALLOC,
            lambda op: {"directive": op.directive, "infos": op.directives},
            infos,
            {statuses.ERR_PARTIAL_SUCCESS: "only a part of it was granted"},
        ),
        ProcessMonitor: Exchange(
            Command.MONITOR,
            lambda op: {"monitor": op.monitor, "error": op.error, "infos": op.directives},
            infos,
            {
                statuses.ERR_BAD_PARAM: "the server does not take these directives: is there a time to check after?",
                statuses.ERR_NOT_FOUND: "there is nothing like that to monitor, or no monitor of this id",
            },
        ),
        GetCredential: Exchange(
            Command.GET_CREDENTIAL,
            lambda op: {"infos": op.directives},
            lambda reply: Credential(reply["credential"] or b"", reply["infos"]),
        ),
        ValidateCredential: Exchange(
            Command.VALIDATE_CRED,
            lambda op: {"credential": op.credential, "infos": op.directives},
            infos,
            {statuses.ERR_INVALID_CRED: "the credential is not valid"},
        ),
    }
)
_monitor = STARTS[ProcessMonitor]


def _process_monitor(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, ProcessMonitor)
    if op.monitor.key == keys.SEND_HEARTBEAT:
        _heartbeat(client, call, ())
    else:
        _monitor(client, call)


STARTS[Heartbeat] = _heartbeat
STARTS[ProcessMonitor] = _process_monitor
