"""Cores, the relative locality of two procs, fabrics, and the distances of devices."""

from __future__ import annotations

import os

from pypmix.compat import asking
from pypmix.compat.asking import INFOS, Shape
from pypmix.compat.running import Methods, attempt, callback
from pypmix.compat.scalars import refused, to_text
from pypmix.compat.structures import HWLOC, cpus_of, from_cpuset, from_record, to_cpuset
from pypmix.compat.values import to_infos
from pypmix.standard import keys, statuses
from pypmix.standard.enums import BindEnvelope, Locality
from pypmix.standard.ops import ComputeDistances, FabricUpdate
from pypmix.standard.structures import Topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LEVELS = {
    "HT": Locality.SHARE_HWTHREAD,
    "CR": Locality.SHARE_CORE,
    "L1": Locality.SHARE_L1CACHE,
    "L2": Locality.SHARE_L2CACHE,
    "L3": Locality.SHARE_L3CACHE,
    "SK": Locality.SHARE_PACKAGE,
    "NM": Locality.SHARE_NUMA,
}
"""The hardware that the words of a locality string name, in the order of the binding."""


def _places(cpus: object) -> dict[str, set[int]]:
    text = to_text(cpus)
    source, _, words = text.partition(":")
    if source[:2] in LEVELS:
        # As `generate_locality_string` makes it.
        words = text
    elif source != HWLOC:
        raise refused(f"a locality is told as hwloc's, not as {source!r:.40}", statuses.ERR_NOT_SUPPORTED)
    return {word[:2]: set(cpus_of(word[2:])) for word in words.split(":") if word}


def _shared(first: object, second: object) -> list[int]:
    mine, theirs = _places(first), _places(second)
    shared = [int(flag) for level, flag in LEVELS.items() if mine.get(level, set()) & theirs.get(level, set())]
    return [*shared, int(Locality.SHARE_NODE)]


def _parsed(cpus: object) -> dict[str, Any]:
    source, colon, ranges = to_text("" if cpus is None else cpus).partition(":")
    if not colon:
        raise refused(f"a cpuset is written as hwloc:0-3, not as {cpus!r:.40}")
    return from_cpuset(to_cpuset({"source": source, "cpus": ranges}))


def _binding(ref: int) -> dict[str, Any]:
    if ref not in (BindEnvelope.PROCESS, BindEnvelope.THREAD):
        raise refused(f"{ref!r:.40} says neither process nor thread")
    # The binding of a process is the binding of its first thread.
    task = os.getpid() if ref == BindEnvelope.PROCESS else 0
    return {"source": HWLOC, "cpus": sorted(os.sched_getaffinity(task))}


class Hardware:
    """The methods for cores."""

    def load_topology(self) -> int:
        """`PMIx_Load_topology`: do nothing, since `compute_distances` needs no topology from the caller."""
        return statuses.SUCCESS

    def get_relative_locality(self, loc1: object, loc2: object) -> tuple[int, list[int]]:
        """`PMIx_Get_relative_locality`: the hardware that two procs of a node share, from their locality strings."""
        status, shared = attempt(_shared, loc1, loc2)
        return status, shared or []

    def parse_cpuset_string(self, csetstr: object) -> tuple[int, dict[str, Any]]:
        """`PMIx_Parse_cpuset_string`: the cores of a string such as `hwloc:0-3,8`."""
        status, found = attempt(_parsed, csetstr)
        return status, found or {}

    def get_cpuset(self, ref: int) -> tuple[int, dict[str, Any]]:
        """`PMIx_Get_cpuset`: the cores that this process, or this thread, may run on."""
        status, found = attempt(_binding, ref)
        return status, found or {}


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
