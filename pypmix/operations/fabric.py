# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Fabrics, and how far devices are."""

from __future__ import annotations

from pypmix import answers
from pypmix.operations.base import Asks
from pypmix.requests.fabric import distances_op, fabric_of, update_op
from pypmix.standard.ops import FabricRegister
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.requests import Infos
    from pypmix.standard.types import Cpuset, DeviceDistance, Topology


class Fabric(Asks):
    """Fabrics, and how far devices are."""

    def fabric_register(self, *, info: Infos = None) -> answers.Fabric:
        """`PMIx_Fabric_register`: ask for the information of a fabric.

        Args:
            info: Which one, as infos or a mapping, such as `{attrs.FABRIC_PLANE: "blue"}`; the host's own choice
                by default.

        Returns:
            The fabric, with its `index`, and its `info`.

        Raises:
            NotSupported: The host knows of no fabrics.
            Unreachable: The caller is a singleton.

        PMIx Standard: Fabric Support Definitions, "Fabric Support Functions".
        """
        return fabric_of(self._run(FabricRegister(infos(info))))

    def fabric_update(self, fabric: answers.Fabric | int) -> answers.Fabric:
        """`PMIx_Fabric_update`: ask for the information of a fabric again.

        Args:
            fabric: The fabric that was registered, or its index.

        Returns:
            The fabric as it is now.

        Raises:
            NotFound: No such fabric is registered.
            NotSupported: The host knows of no fabrics.
            Unreachable: The caller is a singleton.

        PMIx Standard: Fabric Support Definitions, "Fabric Support Functions".
        """
        op = update_op(fabric)
        return fabric_of(self._run(op), op.index)

    def compute_distances(
        self,
        cpuset: Cpuset | str | None = None,
        *,
        topology: Topology | None = None,
        devices: int | None = None,
        info: Infos = None,
    ) -> tuple[DeviceDistance, ...]:
        """`PMIx_Compute_distances`: how far the devices of a node are from some of its cores.

        Args:
            cpuset: The cores as hwloc writes lists (`0-3,8`); those of the calling process by default.
            topology: The node; the server's own by default.
            devices: Only devices of these kinds (`DeviceType`); all by default.
            info: Further directives as infos or a mapping.

        Returns:
            The devices with their least and greatest distances.

        Raises:
            NotFound: There are no such devices.
            NotSupported: The server does not know the topology.
            Unreachable: The caller is a singleton.

        PMIx Standard: Process-Related Reserved Keys, "Device Distances".
        """
        return self._run(distances_op(cpuset, topology, devices, info))
