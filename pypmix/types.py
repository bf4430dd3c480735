"""The types of PMIx that programs rarely name: explicit numbers, records, further enums, and classes of results.

Everything here is imported when it is first used.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

_HOME = {
    "pypmix.answers": "Answers Credential Fabric LookupResults Published",
    "pypmix.data": "DataBuffer",
    "pypmix.operations.psets": "PsetStream",
    "pypmix.psets": "ProcSets PsetChange",
    "pypmix.standard.attr": "Attr",
    "pypmix.standard.enums": (
        "AllocInheritance BindEnvelope CoordView DataType DeviceType GroupOperation GroupOpt InfoFlags JobState "
        "LinkState Locality ProcState ResBlockDirective StorageAccess StorageAccessType StorageMedium "
        "StoragePersistence"
    ),
    "pypmix.standard.structures": "Coord Cpuset Device Endpoint Geometry NodePid ResourceUnit Timeval Topology",
    "pypmix.standard.types": "App DataArray DeviceDistance Envar Pdata ProcInfo RegAttr",
    "pypmix.standard.values": (
        "array byte cint cuint double float32 info int8 int16 int32 int64 pid size timestamp typed uint8 uint16 uint32 "
        "uint64"
    ),
}
__getattr__, __dir__ = _names(__name__, _HOME)
