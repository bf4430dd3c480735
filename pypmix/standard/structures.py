"""The structured types of the Standard that few programs use; `pypmix.standard.types` has their names, too."""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.record import Record
from pypmix.standard.types import BY_CLASS, RECORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.types import Proc


class Timeval(Record):
    """`struct timeval`: seconds and microseconds.

    Example:
        >>> Timeval(sec=2, usec=500_000).astuple()
        (2, 500000)
    """

    sec: int
    usec: int


class Coord(Record):
    """`pmix_coord_t`: fabric coordinates in a view (`CoordView`).

    Example:
        >>> Coord(CoordView.LOGICAL, (0, 3, 1)).coords
        (0, 3, 1)
    """

    view: int
    coords: tuple[int, ...]


class Cpuset(Record):
    """`pmix_cpuset_t`: a binding in hwloc's list format (`0-3`); None if the process is not bound.

    Example:
        >>> me.put("acme.cpus", Value(DataType.PROC_CPUSET, Cpuset("0-3")))
    """

    cpus: str | None


class Geometry(Record):
    """`pmix_geometry_t`: the coordinates of a device on its fabric.

    Example:
        >>> place = Geometry(0, "fab://1", "hsn0", (Coord(CoordView.LOGICAL, (0, 3, 1)),))
    """

    fabric: int
    uuid: str | None
    osname: str | None
    coordinates: tuple[Coord, ...] = ()


class Endpoint(Record):
    """`pmix_endpoint_t`: an endpoint of a device, opaque bytes.

    Example:
        >>> me.put("acme.endpoint", Value(DataType.ENDPOINT, Endpoint("fab://1", "hsn0", b"abc")))
    """

    uuid: str | None
    osname: str | None
    endpoint: bytes


class Topology(Record):
    """`pmix_topology_t` as it is sent: hwloc's XML, and its support flags.

    Example:
        >>> topology = Topology("<topology/>")
    """

    xml: str | None
    support: bytes = b""


class Device(Record):
    """`pmix_device_t`: a device (`DeviceType`).

    Example:
        >>> gpu = Device("gpu://node1::card0", "card0", DeviceType.GPU)
    """

    uuid: str | None
    osname: str | None
    type: int


class ResourceUnit(Record):
    """`pmix_resource_unit_t`: a number of devices of a type.

    Example:
        >>> ResourceUnit(DeviceType.GPU, 4).count
        4
    """

    type: int
    count: int


class NodePid(Record):
    """`pmix_node_pid_t`: a pid and its node.

    Example:
        >>> NodePid("node1", 0, 4711).pid
        4711
    """

    hostname: str | None
    nodeid: int
    pid: int


class Buffer(Record):
    """A packed buffer inside a message, with its kind (1 plain, 2 described)."""

    kind: int
    data: bytes


class Regex2(Record):
    """`pmix_regex2_t`: an encoded list, with the name of its encoding."""

    encoding: str | None
    data: bytes


class ProcStats(Record):
    """`pmix_proc_stats_t` (4.2 and 5.0 only): the resource usage of a process; sizes in MBytes."""

    node: str | None
    proc: Proc
    pid: int
    cmd: str | None
    state: int
    time: Timeval
    percent_cpu: float
    priority: int
    num_threads: int
    pss: float
    vsize: float
    rss: float
    peak_vsize: float
    processor: int
    sample_time: Timeval


class DiskStats(Record):
    """`pmix_disk_stats_t` (4.2 and 5.0 only): counters of a disk."""

    disk: str | None
    num_reads_completed: int
    num_reads_merged: int
    num_sectors_read: int
    milliseconds_reading: int
    num_writes_completed: int
    num_writes_merged: int
    num_sectors_written: int
    milliseconds_writing: int
    num_ios_in_progress: int
    milliseconds_io: int
    weighted_milliseconds_io: int


class NetStats(Record):
    """`pmix_net_stats_t` (4.2 and 5.0 only): counters of a network interface."""

    net_interface: str | None
    num_bytes_recvd: int
    num_packets_recvd: int
    num_recv_errs: int
    num_bytes_sent: int
    num_packets_sent: int
    num_send_errs: int


class NodeStats(Record):
    """`pmix_node_stats_t` (4.2 and 5.0 only): load and memory of a node; sizes in MBytes."""

    node: str | None
    la: float
    la5: float
    la15: float
    total_mem: float
    free_mem: float
    buffers: float
    cached: float
    swap_cached: float
    swap_total: float
    swap_free: float
    mapped: float
    sample_time: Timeval
    diskstats: tuple[DiskStats, ...] = ()
    netstats: tuple[NetStats, ...] = ()


_RECORDS: dict[int, type] = {
    codes.TIMEVAL: Timeval,
    codes.BUFFER: Buffer,
    codes.COORD: Coord,
    codes.PROC_CPUSET: Cpuset,
    codes.GEOMETRY: Geometry,
    codes.ENDPOINT: Endpoint,
    codes.TOPO: Topology,
    codes.DEVICE: Device,
    codes.RESOURCE_UNIT: ResourceUnit,
    codes.NODE_PID: NodePid,
    codes.REGEX2: Regex2,
    codes.PROC_STATS: ProcStats,
    codes.DISK_STATS: DiskStats,
    codes.NET_STATS: NetStats,
    codes.NODE_STATS: NodeStats,
}
RECORDS.update(_RECORDS)
BY_CLASS.update({cls: number for number, cls in _RECORDS.items()})
