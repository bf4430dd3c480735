"""Distances: how far the devices of a node are from some of its CPUs."""

from __future__ import annotations

from pypmix.host.hardware import this_machine
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, NotSupported, PMIxError
from pypmix.standard.ops import ComputeDistances
from pypmix.topology.bitmaps import parse_list
from pypmix.topology.distances import ALL, compute_distances
from pypmix.topology.xml import read_xml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager


def _compute_distances(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, ComputeDistances)
    try:
        machine = read_xml(op.topology.xml) if op.topology.xml else this_machine()
        cpus = parse_list(op.cpuset.cpus or "")
    except ValueError as error:
        raise PMIxError(str(error), status=statuses.ERR_BAD_PARAM, operation=op.name) from None
    types, names = 0, []
    for info in op.directives:
        if info.key == keys.DEVICE_TYPE:
            types |= int(info.value.data)
        elif info.key == keys.DEVICE_ID and isinstance(info.value.data, str):
            names.append(info.value.data)
    if machine is None:
        raise NotSupported("the kernel does not show the hardware of this node", operation=op.name)
    try:
        found = compute_distances(machine, cpus, host.node_of(upcall.requestor).hostname, types or ALL, names)
    except LookupError as error:
        raise NotSupported(str(error), operation=op.name) from None
    if not found:
        raise NotFound("there are no such devices", operation=op.name)
    upcall.reply(found)


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {ComputeDistances: _compute_distances}
