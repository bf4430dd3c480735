"""A process that asks a libpmix and its hwloc about the machine that the environment names.

`python hwloc_driver.py LIBRARY`: a request of JSON on stdin, its answer on stdout. `HWLOC_FSROOT`, `HWLOC_XMLFILE` or
`HWLOC_SYNTHETIC` name the machine.
"""

from __future__ import annotations

import ctypes as c
import json
import sys
from typing import Any


class Pair(c.Structure):
    """A `pmix_topology_t` or a `pmix_cpuset_t`."""

    _fields_ = [("source", c.c_char_p), ("data", c.c_void_p)]


class Distance(c.Structure):
    _fields_ = [
        ("uuid", c.c_char_p),
        ("osname", c.c_char_p),
        ("type", c.c_uint64),
        ("mindist", c.c_uint16),
        ("maxdist", c.c_uint16),
    ]


def main() -> None:
    request = json.load(sys.stdin)
    library = c.CDLL(sys.argv[1])
    answer: dict[str, Any] = {"xml": export(library)}
    module = c.create_string_buffer(512)
    assert library.PMIx_server_init(module, None, c.c_size_t(0)) == 0
    topology = Pair()
    assert library.PMIx_Load_topology(c.byref(topology)) == 0
    answer["cpusets"] = [about(library, topology, text) for text in request["cpusets"]]
    answer["shared"] = [shared(library, *pair) for pair in request["pairs"]]
    print(f"\n{json.dumps(answer)}")


def export(library: Any) -> str:
    """Return what hwloc writes of the machine."""
    topology, text, size = c.c_void_p(), c.c_char_p(), c.c_int()
    library.hwloc_topology_init(c.byref(topology))
    library.hwloc_topology_set_io_types_filter(topology, 3)
    assert library.hwloc_topology_load(topology) == 0
    assert library.hwloc_topology_export_xmlbuffer(topology, c.byref(text), c.byref(size), c.c_ulong(0)) == 0
    return (text.value or b"").decode()


def about(library: Any, topology: Pair, text: str) -> dict[str, Any]:
    cpuset, locality, again = Pair(), c.c_char_p(), c.c_char_p()
    status = library.PMIx_Parse_cpuset_string(text.encode(), c.byref(cpuset))
    if status:
        return {"status": status}
    library.PMIx_server_generate_cpuset_string(c.byref(cpuset), c.byref(again))
    library.PMIx_server_generate_locality_string(c.byref(cpuset), c.byref(locality))
    found, count = c.POINTER(Distance)(), c.c_size_t()
    measured = library.PMIx_Compute_distances(
        c.byref(topology), c.byref(cpuset), None, c.c_size_t(0), c.byref(found), c.byref(count)
    )
    distances = [
        [(each.uuid or b"").decode(), (each.osname or b"").decode(), each.type, each.mindist, each.maxdist]
        for each in (found[place] for place in range(count.value))
    ]
    return {
        "status": 0,
        "again": (again.value or b"").decode(),
        "locality": None if locality.value is None else locality.value.decode(),
        "distances": measured or distances,
    }


def shared(library: Any, one: str, other: str) -> list[int]:
    locality = c.c_uint16()
    status = library.PMIx_Get_relative_locality(one.encode(), other.encode(), c.byref(locality))
    return [status, locality.value]


if __name__ == "__main__":
    main()
