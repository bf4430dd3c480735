"""The client's side of fabrics and of the distances of devices."""

from __future__ import annotations

from pypmix.engine.python.clientside.exchanges import Exchange, infos, tables
from pypmix.standard import statuses
from pypmix.standard.ops import ComputeDistances, FabricRegister, FabricUpdate
from pypmix.wire.messages import Command

STARTS, REPLIES = tables(
    {
        FabricRegister: Exchange(Command.FABRIC_REGISTER, lambda op: {"infos": op.directives}, infos),
        FabricUpdate: Exchange(
            Command.FABRIC_UPDATE,
            lambda op: {"index": op.index},
            infos,
            {statuses.ERR_NOT_FOUND: "no fabric of this index is registered"},
        ),
        ComputeDistances: Exchange(
            Command.COMPUTE_DEVICE_DISTANCES,
            lambda op: {"topology": op.topology, "cpuset": op.cpuset, "infos": op.directives},
            lambda reply: reply["distances"],
            {statuses.ERR_NOT_FOUND: "there are no such devices"},
        ),
    }
)
