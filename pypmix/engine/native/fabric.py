"""Fabrics and the distances of devices as calls of the library."""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.asking import Asking, Row, found
from pypmix.engine.native.quirks import FABRIC_ERRORS
from pypmix.standard import codes
from pypmix.standard.errors import ERR_NOT_FOUND, ERR_NOT_SUPPORTED
from pypmix.standard.ops import ComputeDistances, FabricRegister, FabricUpdate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

READ_PAST_END = -50
_UNOFFERED = {ERR_NOT_SUPPORTED: "the server's host does not offer it"}


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
            {**_UNOFFERED, ERR_NOT_FOUND: "no fabric of this index is registered"},
        ),
        ComputeDistances: Row(
            lib.PYPMIX_COMPUTE_DISTANCES,
            _place,
            found,
            {**_UNOFFERED, ERR_NOT_FOUND: "there are no such devices"},
            alone=True,
        ),
    }

    def fault(self, op: Any, call: Any) -> int:
        status = super().fault(op, call)
        if type(op) is ComputeDistances:
            return status
        if status == READ_PAST_END:
            # a server that has nothing to tell ends its answer early
            return 0
        if status == 0 and not call.results.size and self.session._release < FABRIC_ERRORS:
            return ERR_NOT_SUPPORTED
        return status
