"""Fabrics, and the distances of devices."""

from __future__ import annotations

from pypmix.standard.ops.core import Op
from pypmix.standard.structures import Cpuset, Topology
from pypmix.standard.types import DeviceDistance, Info


class FabricRegister(Op[tuple[Info, ...]]):
    """`PMIx_Fabric_register`: request a fabric's information. Also an upcall."""

    directives: tuple[Info, ...] = ()


class FabricUpdate(Op[tuple[Info, ...]]):
    """`PMIx_Fabric_update`: request changes of a registered fabric. Also an upcall."""

    index: int

    def __validate__(self) -> None:
        super().__validate__()
        if not isinstance(self.index, int) or isinstance(self.index, bool):
            raise TypeError(f"a fabric's index is an int, not {type(self.index).__name__}")
        if not 0 <= self.index < 2**64:
            raise OverflowError(f"{self.index} is not the index of a fabric")


class ComputeDistances(Op[tuple[DeviceDistance, ...]]):
    """`PMIx_Compute_distances`: the distances of a node's devices from a binding. Also an upcall."""

    topology: Topology
    cpuset: Cpuset
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not isinstance(self.topology, Topology):
            raise TypeError(f"a topology is a Topology, not a {type(self.topology).__name__}")
        if not isinstance(self.cpuset, Cpuset):
            raise TypeError(f"a binding is a Cpuset, not a {type(self.cpuset).__name__}")
