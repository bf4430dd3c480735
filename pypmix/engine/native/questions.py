"""Operations of one request each: publishing, log, job control, monitors, credentials, fabrics."""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.asking import Asking, Row, items, read_results
from pypmix.engine.native.quirks import FABRIC_ERRORS
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PARTIAL_SUCCESSES
from pypmix.standard.ops import (
    AllocationRequest,
    ComputeDistances,
    Credential,
    FabricRegister,
    FabricUpdate,
    GetCredential,
    Heartbeat,
    JobControl,
    Log,
    Lookup,
    ProcessMonitor,
    Publish,
    Unpublish,
    ValidateCredential,
)
from pypmix.standard.types import Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_BEAT = Info.unchecked(keys.SEND_HEARTBEAT, Value.unchecked(codes.BOOL, True), 0)

_PUBLISHING = {
    statuses.ERR_DUPLICATE_KEY: "a key is published to this range already",
    statuses.ERR_NO_PERMISSIONS: "only who published a key may take it back",
    statuses.ERR_NOT_FOUND: "the caller has published none of these keys",
}
_UNOFFERED = {statuses.ERR_NOT_SUPPORTED: "the server's host does not offer it"}


def _named(op: Lookup) -> str:
    return ", ".join(map(repr, op.keys))


def _directive(topic: Asking, op: AllocationRequest, parameters: Any) -> None:
    parameters.number = op.directive


def _monitor(topic: Asking, op: ProcessMonitor, parameters: Any) -> None:
    topic.marshal.fill(parameters.items, codes.INFO, (op.monitor,))
    parameters.number = op.error


def _beat(topic: Asking, op: Heartbeat, parameters: Any) -> None:
    topic.marshal.fill(parameters.items, codes.INFO, (_BEAT,))


def _credential(topic: Asking, op: ValidateCredential, parameters: Any) -> None:
    topic.marshal.fill(parameters.items, codes.BYTE_OBJECT, (op.credential,))


def _issued(topic: Asking, call: Any) -> Credential:
    return Credential(topic.marshal.read(call.value).data if call.value else b"", read_results(topic, call))


def _index(topic: Asking, op: FabricUpdate, parameters: Any) -> None:
    parameters.number = int(ffi.cast("int64_t", op.index))


def _place(topic: Asking, op: ComputeDistances, parameters: Any) -> None:
    if op.topology.xml is not None:
        topic.marshal.fill(parameters.items, codes.TOPO, (op.topology,))
    if op.cpuset.cpus is not None:
        topic.marshal.fill(parameters.more, codes.PROC_CPUSET, (op.cpuset,))


class QuestionsTopic(Asking):
    """The operations of one session that are one request each."""

    rows: Mapping[type, Row] = {
        Publish: Row(lib.PYPMIX_PUBLISH, failures=_PUBLISHING),
        Lookup: Row(
            lib.PYPMIX_LOOKUP,
            items(codes.STRING, "keys"),
            read_results,
            {
                statuses.ERR_NOT_FOUND: "no value of {} is published where this proc may look it up",
                statuses.ERR_TIMEOUT: "{} was not published in time",
                **dict.fromkeys(
                    PARTIAL_SUCCESSES, "some of the keys are there, but their values did not come with the answer"
                ),
            },
            _named,
            partial=True,
        ),
        Unpublish: Row(lib.PYPMIX_UNPUBLISH, items(codes.STRING, "keys"), failures=_PUBLISHING),
        Log: Row(lib.PYPMIX_LOG, items(codes.INFO, "data"), failures=_UNOFFERED),
        JobControl: Row(
            lib.PYPMIX_JOB_CONTROL,
            items(codes.PROC, "targets"),
            read_results,
            {
                **_UNOFFERED,
                statuses.ERR_NOT_FOUND: "the server does not know all of the targets",
                statuses.ERR_PARTIAL_SUCCESS: "it could not be done to all of the targets",
            },
        ),
        AllocationRequest: Row(
            lib.PYPMIX_ALLOCATION_REQUEST,
            _directive,
            read_results,
            {**_UNOFFERED, statuses.ERR_PARTIAL_SUCCESS: "only a part of it was granted"},
        ),
        ProcessMonitor: Row(
            lib.PYPMIX_PROCESS_MONITOR,
            _monitor,
            read_results,
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
            read_results,
            {**_UNOFFERED, statuses.ERR_INVALID_CRED: "the credential is not valid"},
        ),
        FabricRegister: Row(lib.PYPMIX_FABRIC_REGISTER, take=read_results, failures=_UNOFFERED),
        FabricUpdate: Row(
            lib.PYPMIX_FABRIC_UPDATE,
            _index,
            read_results,
            {**_UNOFFERED, statuses.ERR_NOT_FOUND: "no fabric of this index is registered"},
        ),
        ComputeDistances: Row(
            lib.PYPMIX_COMPUTE_DISTANCES,
            _place,
            read_results,
            {**_UNOFFERED, statuses.ERR_NOT_FOUND: "there are no such devices"},
            alone=True,
        ),
    }

    def what(self, op: Any, row: Row) -> int:
        # The library sends a heartbeat and does not call back.
        if type(op) is ProcessMonitor and op.monitor.key == keys.SEND_HEARTBEAT:
            return int(lib.PYPMIX_HEARTBEAT)
        return row.what

    def directives(self, op: Any) -> tuple[Info, ...]:
        parameters: tuple[Info, ...] = super().directives(op)
        if type(op) is not Publish:
            return parameters
        terms = Value(codes.DATA_RANGE, op.range), Value(codes.PERSIST, op.persistence)
        return (*op.infos, Info(keys.RANGE, terms[0]), Info(keys.PERSISTENCE, terms[1]), *parameters)

    def fault(self, op: Any, call: Any) -> int:
        status = super().fault(op, call)
        if type(op) not in (FabricRegister, FabricUpdate):
            return status
        if status == statuses.ERR_UNPACK_READ_PAST_END_OF_BUFFER:
            # A server without results ends its answer early.
            return 0
        if status == 0 and not call.results.size and self.session.release < FABRIC_ERRORS:
            return statuses.ERR_NOT_SUPPORTED
        return status

    def outcome(self, op: Any, call: Any) -> Any:
        result = super().outcome(op, call)
        if type(op) is Lookup and not result:
            raise self.error(op, statuses.ERR_NOT_FOUND)
        return result
