"""Fabrics, and how far devices are."""

from __future__ import annotations

from pypmix import answers
from pypmix.aio.operations.base import Asks
from pypmix.arguments import number_of
from pypmix.standard import attrs, keys
from pypmix.standard.errors import NotSupported
from pypmix.standard.ops import ComputeDistances, FabricRegister, FabricUpdate
from pypmix.standard.structures import Cpuset, Topology
from pypmix.standard.values import infos
from pypmix.topology.bitmaps import bitmap, format_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.aio.waits import Port
    from pypmix.arguments import Infos
    from pypmix.standard.enums import DeviceType
    from pypmix.standard.types import DeviceDistance
    from pypmix.topology.machine import Machine


class Fabrics:
    """Fabrics, and how far devices are: `fabric` of a client."""

    def __init__(self, port: Port, get: Callable[..., Any]) -> None:
        self._port = port
        self._get = get

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
        cores = own_binding() if cpuset is None else cpuset
        directives = infos(info)
        if devices is not None:
            directives += (attrs.DEVICE_TYPE(number_of(devices, "DeviceType", "GPU")),)
        whole = Topology(None) if topology is None else topology
        return await self._port.run(
            ComputeDistances(whole, Cpuset(cores) if isinstance(cores, str) else cores, directives)
        )

    async def load_topology(self) -> Machine:
        """`PMIx_Load_topology`: the hardware of this node.

        It is what the server describes; if it describes none, the kernel's files are read.

        Returns:
            The machine with its `levels`, from packages to hardware threads, its `numa` nodes and its `devices`.

        Raises:
            NotSupported: Neither describes any hardware.

        Example:
            >>> machine = await me.fabric.load_topology()
            >>> print(len(machine.of_type("Core")), "cores")

        PMIx Standard: Process-Related Reserved Keys, "Hardware Locality".
        """
        return read_description(await self._get(keys.HWLOC_XML_V2, default=None, optional=True))


class Fabric(Asks):
    """Fabrics, a node's hardware, and how far devices are."""

    if TYPE_CHECKING:
        get: Callable[..., Any]

    @property
    def fabric(self) -> Fabrics:
        """The fabrics that the host knows, the hardware of this node, and the distances of devices.

        Example:
            >>> fabric = await me.fabric.register()
            >>> print(fabric.info)
        """
        return Fabrics(self._port, self.get)


def read_description(text: object) -> Machine:
    """Return the machine that a server describes in hwloc's XML; without a text, this machine as the kernel shows it.

    Raises:
        NotSupported: The kernel shows no hardware, or the text does not parse.
    """
    from pypmix.topology.kernel import read_machine
    from pypmix.topology.xml import read_xml

    try:
        return read_xml(text) if isinstance(text, str) else read_machine()
    except (OSError, ValueError) as error:
        raise NotSupported(f"this node's hardware is unknown: {error}", operation="load_topology") from None


def own_binding() -> str:
    """Return the cores on which this process may run, as hwloc writes lists."""
    from os import sched_getaffinity

    return format_list(bitmap(sched_getaffinity(0)))
