"""The methods of the official binding for fabrics and the distances of devices."""

from __future__ import annotations

from pypmix.compat import asking
from pypmix.compat.asking import INFOS, Shape
from pypmix.compat.port import Methods
from pypmix.compat.running import callback
from pypmix.compat.structures import from_record, to_cpuset
from pypmix.compat.values import to_infos
from pypmix.standard import keys, statuses
from pypmix.standard.ops import ComputeDistances, FabricUpdate
from pypmix.standard.structures import Topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DISTANCES = Shape(lambda op, found: (statuses.SUCCESS, [from_record(each) for each in found]), list)


def _index(infos: list[dict[str, Any]]) -> int:
    return next((int(info["value"]) for info in infos if info["key"] == keys.FABRIC_INDEX), 0)


class Fabrics(Methods):
    """The methods for fabrics and devices; an object has one fabric, as in the official binding.

    So the index argument of the Standard's appendix has no effect.
    """

    def fabric_register(self, dicts: object = None) -> tuple[int, list[dict[str, Any]] | None]:
        """`PMIx_Fabric_register`: returns the status and the fabric's infos."""
        if self._fabric is not None:
            return statuses.ERR_RESOURCE_BUSY, None
        status, found = self._answer(INFOS, asking.fabric_register, dicts)
        if status == statuses.SUCCESS:
            self._fabric = _index(found)
        return status, found

    def fabric_register_nb(self, dicts: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Fabric_register_nb`: `cbfunc(status, cbdata)`."""
        if not callable(cbfunc):
            return statuses.ERR_BAD_PARAM
        if self._fabric is not None:
            return statuses.ERR_RESOURCE_BUSY

        def registered(status: int, infos: list[dict[str, Any]], data: object) -> None:
            if status == statuses.SUCCESS:
                self._fabric = _index(infos)
            cbfunc(status, data)

        return self._begin(INFOS, registered, cbdata, asking.fabric_register, dicts)

    def fabric_update(self, idx: object = None) -> tuple[int, list[dict[str, Any]] | None]:
        """`PMIx_Fabric_update`: returns the status and the fabric's current infos."""
        index = self._fabric
        if index is None:
            return statuses.ERR_INIT, None
        return self._answer(INFOS, lambda: FabricUpdate(index))

    def fabric_update_nb(self, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Fabric_update_nb`: `cbfunc(status, cbdata)`."""
        if not callable(cbfunc):
            return statuses.ERR_BAD_PARAM
        index = self._fabric
        if index is None:
            return statuses.ERR_INIT
        return self._begin(
            INFOS, lambda status, _infos, data: cbfunc(status, data), cbdata, lambda: FabricUpdate(index)
        )

    def fabric_deregister(self, idx: object = None) -> int:
        """`PMIx_Fabric_deregister`: forget the fabric, without a request to the server."""
        if self._fabric is None:
            return statuses.ERR_INIT
        self._fabric = None
        return statuses.SUCCESS

    def fabric_deregister_nb(self, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Fabric_deregister_nb`: `cbfunc(status, cbdata)`."""
        if not callable(cbfunc):
            return statuses.ERR_BAD_PARAM
        status = self.fabric_deregister()
        if status == statuses.SUCCESS:
            callback(cbfunc, statuses.SUCCESS, cbdata)
        return status

    def compute_distances(self, pycpus: object, dicts: object = None) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_Compute_distances`: returns the status and the distances of this node's devices from some cores."""
        return self._answer(DISTANCES, _distances, pycpus, dicts)

    def compute_distances_nb(self, pycpus: object, dicts: object, cbfunc: object, cbdata: object = None) -> int:
        """`PMIx_Compute_distances_nb`: `cbfunc(status, distances, cbdata)`."""
        return self._begin(DISTANCES, cbfunc, cbdata, _distances, pycpus, dicts)


def _distances(cpus: object, dicts: object) -> ComputeDistances:
    return ComputeDistances(Topology(None), to_cpuset(cpus), to_infos(dicts))
