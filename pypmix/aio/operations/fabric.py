"""Fabrics, and how far devices are."""

from __future__ import annotations

from pypmix import answers
from pypmix.aio.operations.base import Asks
from pypmix.arguments import number_of
from pypmix.standard import attrs
from pypmix.standard.ops import ComputeDistances, FabricRegister, FabricUpdate
from pypmix.standard.types import Cpuset, Topology
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.aio.waits import Port
    from pypmix.arguments import Infos
    from pypmix.standard.enums import DeviceType
    from pypmix.standard.types import DeviceDistance


class Fabrics:
    """Fabrics, and how far devices are: `fabric` of a client."""

    def __init__(self, port: Port) -> None:
        self._port = port

    async def register(self, *, info: Infos = None) -> answers.Fabric:
        """`PMIx_Fabric_register`: ask for the information of a fabric.

        Args:
            info: Which one, as infos or a mapping, such as `{attrs.FABRIC_PLANE: "blue"}`; the host's own choice
                by default.

        Returns:
            The fabric, with its `index`, and its `info`.

        Raises:
            NotSupported: The host knows of no fabrics.
            Unreachable: The caller is a singleton.

        Example:
            >>> fabric = await me.fabric.register(info={attrs.FABRIC_PLANE: "blue"})

        PMIx Standard: Fabric Support Definitions, "Fabric Support Functions".
        """
        return answers.read_fabric(await self._port.run(FabricRegister(infos(info))))

    async def update(self, fabric: answers.Fabric | int) -> answers.Fabric:
        """`PMIx_Fabric_update`: ask for the information of a fabric again.

        Args:
            fabric: The fabric that was registered, or its index.

        Returns:
            The fabric as it is now.

        Raises:
            NotFound: No such fabric is registered.
            NotSupported: The host knows of no fabrics.
            Unreachable: The caller is a singleton.

        Example:
            >>> fabric = await me.fabric.update(await me.fabric.register())

        PMIx Standard: Fabric Support Definitions, "Fabric Support Functions".
        """
        index = fabric.index if isinstance(fabric, answers.Fabric) else fabric
        return answers.read_fabric(await self._port.run(FabricUpdate(index)), index)

    async def compute_distances(
        self,
        cpuset: Cpuset | str | None = None,
        *,
        topology: Topology | None = None,
        devices: DeviceType | None = None,
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

        Example:
            >>> for device in await me.fabric.compute_distances(devices=DeviceType.GPU):
            ...     print(device.osname, device.mindist)

        PMIx Standard: Process-Related Reserved Keys, "Device Distances".
        """
        cores = _own_binding() if cpuset is None else cpuset
        directives = infos(info)
        if devices is not None:
            directives += (attrs.DEVICE_TYPE(number_of(devices, "DeviceType", "GPU")),)
        whole = Topology(None) if topology is None else topology
        return await self._port.run(
            ComputeDistances(whole, Cpuset(cores) if isinstance(cores, str) else cores, directives)
        )


class Fabric(Asks):
    """Fabrics, and how far devices are."""

    @property
    def fabric(self) -> Fabrics:
        """The fabrics that the host knows, and the distances of devices.

        Example:
            >>> fabric = await me.fabric.register()
            >>> print(fabric.info)
        """
        return Fabrics(self._port)


def _own_binding() -> str:
    """Return the cores on which this process may run, as hwloc writes lists."""
    from os import sched_getaffinity

    cores = sorted(sched_getaffinity(0))
    parts: list[list[int]] = []
    for core in cores:
        if parts and parts[-1][1] == core - 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join([f"{first}-{last}" if last > first else f"{first}" for first, last in parts])
