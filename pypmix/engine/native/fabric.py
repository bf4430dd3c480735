"""Fabrics and the distances of devices as calls of the library."""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.asking import Asking, Row, found
from pypmix.engine.native.quirks import FABRIC_ERRORS
from pypmix.standard import codes, statuses
from pypmix.standard.ops import ComputeDistances, FabricRegister, FabricUpdate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_UNOFFERED = {statuses.ERR_NOT_SUPPORTED: "the server's host does not offer it"}


def _index(topic: Asking, op: FabricUpdate, given: Any) -> None:
    given.number = int(ffi.cast("int64_t", op.index))


def _place(topic: Asking, op: ComputeDistances, given: Any) -> None:
    if op.topology.xml is not None:
        topic.marshal.fill(given.items, codes.TOPO, (op.topology,))
    if op.cpuset.cpus is not None:
        topic.marshal.fill(given.more, codes.PROC_CPUSET, (op.cpuset,))


class Topic(Asking):
    """These operations of one session."""

    rows: Mapping[type, Row] = {
        FabricRegister: Row(lib.PYPMIX_FABRIC_REGISTER, take=found, failures=_UNOFFERED),
        FabricUpdate: Row(
            lib.PYPMIX_FABRIC_UPDATE,
            _index,
            found,
            {**_UNOFFERED, statuses.ERR_NOT_FOUND: "no fabric of this index is registered"},
        ),
        ComputeDistances: Row(
            lib.PYPMIX_COMPUTE_DISTANCES,
            _place,
            found,
            {**_UNOFFERED, statuses.ERR_NOT_FOUND: "there are no such devices"},
            alone=True,
        ),
    }

    def fault(self, op: Any, call: Any) -> int:
        status = super().fault(op, call)
        if type(op) is ComputeDistances:
            return status
        if status == statuses.ERR_UNPACK_READ_PAST_END_OF_BUFFER:
            # a server that has nothing to tell ends its answer early
            return 0
        if status == 0 and not call.results.size and self.session._release < FABRIC_ERRORS:
            return statuses.ERR_NOT_SUPPORTED
        return status
