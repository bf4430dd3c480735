"""Log, job control, allocations, monitors, heartbeats and credentials as calls of the library."""

from __future__ import annotations

from pypmix.engine.native._ffi import lib
from pypmix.engine.native.asking import Asking, Row, found
from pypmix.standard import codes, keys, statuses
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
from pypmix.standard.types import Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_BEAT = Info.unchecked(keys.SEND_HEARTBEAT, Value.unchecked(codes.BOOL, True), 0)

_UNOFFERED = {statuses.ERR_NOT_SUPPORTED: "the server's host does not offer it"}


def _data(topic: Asking, op: Log, given: Any) -> None:
    topic.marshal.fill(given.items, codes.INFO, op.data)


def _targets(topic: Asking, op: JobControl, given: Any) -> None:
    topic.marshal.fill(given.items, codes.PROC, op.targets)


def _directive(topic: Asking, op: AllocationRequest, given: Any) -> None:
    given.number = op.directive


def _monitor(topic: Asking, op: ProcessMonitor, given: Any) -> None:
    topic.marshal.fill(given.items, codes.INFO, (op.monitor,))
    given.number = op.error


def _beat(topic: Asking, op: Heartbeat, given: Any) -> None:
    topic.marshal.fill(given.items, codes.INFO, (_BEAT,))


def _credential(topic: Asking, op: ValidateCredential, given: Any) -> None:
    topic.marshal.fill(given.items, codes.BYTE_OBJECT, (op.credential,))


def _issued(topic: Asking, call: Any) -> Credential:
    return Credential(topic.marshal.read(call.value).data if call.value else b"", found(topic, call))


class Topic(Asking):
    """These operations of one session."""

    rows: Mapping[type, Row] = {
        Log: Row(lib.PYPMIX_LOG, _data, failures=_UNOFFERED),
        JobControl: Row(
            lib.PYPMIX_JOB_CONTROL,
            _targets,
            found,
            {
                **_UNOFFERED,
                statuses.ERR_NOT_FOUND: "the server does not know all of the targets",
                statuses.ERR_PARTIAL_SUCCESS: "it could not be done to all of the targets",
            },
        ),
        AllocationRequest: Row(
            lib.PYPMIX_ALLOCATION_REQUEST,
            _directive,
            found,
            {**_UNOFFERED, statuses.ERR_PARTIAL_SUCCESS: "only a part of it was granted"},
        ),
        ProcessMonitor: Row(
            lib.PYPMIX_PROCESS_MONITOR,
            _monitor,
            found,
            {
                **_UNOFFERED,
                statuses.ERR_BAD_PARAM: "the server does not take these directives: is there a time to check after?",
                statuses.ERR_NOT_FOUND: "there is nothing like that to monitor, or no monitor of this id",
            },
        ),
        Heartbeat: Row(lib.PYPMIX_HEARTBEAT, _beat, failures=_UNOFFERED),
        GetCredential: Row(lib.PYPMIX_GET_CREDENTIAL, take=_issued, failures=_UNOFFERED),
        ValidateCredential: Row(
            lib.PYPMIX_VALIDATE_CREDENTIAL,
            _credential,
            found,
            {**_UNOFFERED, statuses.ERR_INVALID_CRED: "the credential is not valid"},
        ),
    }

    def what(self, op: Any, row: Row) -> int:
        # the library sends it and calls nobody back
        if type(op) is ProcessMonitor and op.monitor.key == keys.SEND_HEARTBEAT:
            return int(lib.PYPMIX_HEARTBEAT)
        return row.what
