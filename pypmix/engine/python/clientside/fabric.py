"""The client's side of fabrics and of the distances of devices."""

from __future__ import annotations

from pypmix.engine.python.client import exchange
from pypmix.standard import statuses
from pypmix.standard.ops import ComputeDistances, FabricRegister, FabricUpdate
from pypmix.wire.messages import Command

OPERATIONS = {
    FabricRegister: exchange(
        Command.FABRIC_REGISTER, lambda op: {"infos": op.directives}, lambda reply: reply["infos"]
    ),
    FabricUpdate: exchange(
        Command.FABRIC_UPDATE,
        lambda op: {"index": op.index},
        lambda reply: reply["infos"],
        {statuses.ERR_NOT_FOUND: "no fabric of this index is registered"},
    ),
    ComputeDistances: exchange(
        Command.COMPUTE_DEVICE_DISTANCES,
        lambda op: {"topology": op.topology, "cpuset": op.cpuset, "infos": op.directives},
        lambda reply: reply["distances"],
        {statuses.ERR_NOT_FOUND: "there are no such devices"},
    ),
}
