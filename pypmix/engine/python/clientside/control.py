"""The client's side of log, job control, allocations, monitors, heartbeats and credentials."""

from __future__ import annotations

from pypmix.engine.python.client import Operation, exchange
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
from pypmix.wire.frames import TAG_HEARTBEAT
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


def _infos(reply: dict[str, Any]) -> Any:
    return reply["infos"]


_monitored = exchange(
    Command.MONITOR,
    lambda op: {"monitor": op.monitor, "error": op.error, "infos": op.directives},
    _infos,
    {
        statuses.ERR_BAD_PARAM: "the server does not take these directives: is there a time to check after?",
        statuses.ERR_NOT_FOUND: "there is nothing like that to monitor, or no monitor of this id",
    },
)


def _monitor(client: Client, call: Call, op: ProcessMonitor) -> None:
    if op.monitor.key == keys.SEND_HEARTBEAT:
        _heartbeat(client, call, op)
    else:
        _monitored.start(client, call, op)


def _heartbeat(client: Client, call: Call, op: Heartbeat | ProcessMonitor) -> None:
    if client.server is None:
        client.alone(call)
        return
    # An empty message without an answer.
    client.send(b"", TAG_HEARTBEAT)
    client.end(call, () if isinstance(op, ProcessMonitor) else None)


OPERATIONS = {
    Log: exchange(Command.LOG, _log_fields),
    JobControl: exchange(
        Command.JOB_CONTROL,
        lambda op: {"procs": op.targets, "infos": op.directives},
        _infos,
        {
            statuses.ERR_NOT_FOUND: "the server does not know all of the targets",
            statuses.ERR_PARTIAL_SUCCESS: "it could not be done to all of the targets",
        },
    ),
    AllocationRequest: exchange(
        Command.ALLOC,
        lambda op: {"directive": op.directive, "infos": op.directives},
        _infos,
        {statuses.ERR_PARTIAL_SUCCESS: "only a part of it was granted"},
    ),
    ProcessMonitor: Operation(_monitor, _monitored.read, _monitored.act),
    Heartbeat: Operation(_heartbeat),
    GetCredential: exchange(
        Command.GET_CREDENTIAL,
        lambda op: {"infos": op.directives},
        lambda reply: Credential(reply["credential"] or b"", reply["infos"]),
    ),
    ValidateCredential: exchange(
        Command.VALIDATE_CRED,
        lambda op: {"credential": op.credential, "infos": op.directives},
        _infos,
        {statuses.ERR_INVALID_CRED: "the credential is not valid"},
    ),
}
