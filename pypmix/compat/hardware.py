"""Cores, and the relative locality of two procs, computed from their locality strings."""

from __future__ import annotations

import os

from pypmix.compat.running import attempt
from pypmix.compat.scalars import refused, to_text
from pypmix.compat.structures import HWLOC, cpus_of, from_cpuset, to_cpuset
from pypmix.standard import statuses
from pypmix.standard.enums import BindEnvelope, Locality

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
