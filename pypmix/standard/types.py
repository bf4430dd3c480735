"""The structured types of the Standard, as immutable Python values."""

from __future__ import annotations

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any
else:
    Any = object

MAX_NSLEN = 255
MAX_KEYLEN = 511

RANK_UNDEF = 0xFFFFFFFF
RANK_WILDCARD = 0xFFFFFFFE
RANK_LOCAL_NODE = 0xFFFFFFFD
RANK_INVALID = 0xFFFFFFFC
RANK_LOCAL_PEERS = 0xFFFFFFFB
RANK_VALID = 0xFFFFFFFF - 50

_RANK_NAMES = {
    RANK_UNDEF: "UNDEF",
    RANK_WILDCARD: "*",
    RANK_LOCAL_NODE: "LOCAL_NODE",
    RANK_INVALID: "INVALID",
    RANK_LOCAL_PEERS: "LOCAL_PEERS",
}


def check_name(text: str, limit: int, what: str) -> str:
    """Return `text` if it can stand in a field of `limit` bytes; raise `TypeError` or `ValueError` otherwise."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {type(text).__name__}")
    if not text.isascii() or len(text) > limit or "\0" in text:
        size = len(text.encode("utf-8", "surrogateescape"))
        if size > limit:
            raise ValueError(f"{what} of {size} bytes is longer than {limit}: {text[:40]!r}...")
        if "\0" in text:
            raise ValueError(f"{what} must not contain a NUL character: {text!r}")
    return text


def decimal(text: str, most: int = RANK_VALID) -> int | None:
    """Return the number that a text from outside is, None where it is none or beyond `most`."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 19 or int(text) > most:
        return None
    return int(text)


class Proc(tuple[str, int]):
    """`pmix_proc_t`: the identifier of a process, its nspace and its rank.

    Args:
        nspace: The namespace, at most 255 bytes; a group or process-set id where the Standard allows one.
        rank: The rank, or one of the special ranks (`Rank.WILDCARD`, ...).
    """

    __slots__ = ()

    def __new__(cls, nspace: str, rank: int) -> Proc:
        check_name(nspace, MAX_NSLEN, "an nspace")
        if not isinstance(rank, int) or isinstance(rank, bool):
            raise TypeError(f"a rank must be an int, not {type(rank).__name__}")
        if not 0 <= rank <= RANK_UNDEF:
            raise OverflowError(f"a rank lies between 0 and {RANK_UNDEF}, not {rank}")
        return tuple.__new__(cls, (nspace, int(rank)))

    @classmethod
    def unchecked(cls, nspace: str, rank: int) -> Proc:
        """Make one from values that are known to be sound, as a parser has them."""
        return tuple.__new__(cls, (nspace, rank))

    @property
    def nspace(self) -> str:
        return self[0]

    @property
    def rank(self) -> int:
        return self[1]

    def __getnewargs__(self) -> tuple[str, int]:
        return self[0], self[1]

    def __str__(self) -> str:
        return f"{self[0]}:{_RANK_NAMES.get(self[1], self[1])}"

    def __repr__(self) -> str:
        return f"Proc({self[0]!r}, {self[1]})"


class Value(tuple[int, Any]):
    """`pmix_value_t`: a value with its PMIx type.

    `Value(DataType.UINT32, 7)` is what `uint32(7)` returns.

    Args:
        type: A `DataType`.
        data: A Python value of that type.

    Raises:
        TypeError: The data is of another kind than the type holds.
        OverflowError: The data is out of the type's range.
    """

    __slots__ = ()

    def __new__(cls, type: int, data: object = None) -> Value:
        from pypmix.standard.values import check

        return tuple.__new__(cls, (int(type), check(type, data)))

    @classmethod
    def unchecked(cls, type: int, data: object) -> Value:
        """Make one from data that is known to be sound, as a parser has it."""
        return tuple.__new__(cls, (type, data))

    @property
    def type(self) -> int:
        return self[0]

    @property
    def data(self) -> Any:
        return self[1]

    def __getnewargs__(self) -> tuple[int, Any]:
        return self[0], self[1]

    def __repr__(self) -> str:
        from pypmix.standard.values import type_name

        return f"{type_name(self[0]).lower()}({self[1]!r})"


class Info(tuple[str, Value, int]):
    """`pmix_info_t`: a key, its value, and the directive flags (`InfoFlags`).

    Args:
        key: At most 511 bytes; an attribute may stand for its key.
        value: A `Value`; use `pypmix.info(key, value)` to have the type found from a Python value.
        flags: A sum of `InfoFlags`.
    """

    __slots__ = ()

    def __new__(cls, key: str, value: Value, flags: int = 0) -> Info:
        if not isinstance(value, Value):
            raise TypeError(f"the value of info {str(key)!r} must be a Value, not {type(value).__name__}")
        return tuple.__new__(cls, (check_name(str(key), MAX_KEYLEN, "a key"), value, int(flags)))

    @classmethod
    def unchecked(cls, key: str, value: Value, flags: int) -> Info:
        """Make one from parts that are known to be sound, as a parser has them."""
        return tuple.__new__(cls, (key, value, flags))

    @property
    def key(self) -> str:
        return self[0]

    @property
    def value(self) -> Value:
        return self[1]

    @property
    def flags(self) -> int:
        return self[2]

    def __getnewargs__(self) -> tuple[str, Value, int]:
        return self[0], self[1], self[2]

    def __repr__(self) -> str:
        return f"Info({self[0]!r}, {self[1]!r}" + (f", flags={self[2]:#x})" if self[2] else ")")


class DataArray(Record):
    """`pmix_data_array_t`: values of one type."""

    type: int
    items: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class KeyValue(Record):
    """`pmix_kval_t`: a key and its value, as data stores keep them."""

    key: str
    value: Value


class Pdata(Record):
    """`pmix_pdata_t`: published data and who published it."""

    proc: Proc
    key: str
    value: Value


class Query(Record):
    """`pmix_query_t`: keys asked for, under qualifiers."""

    keys: tuple[str, ...]
    qualifiers: tuple[Info, ...] = ()


class App(Record):
    """`pmix_app_t`: an application to spawn."""

    cmd: str | None
    argv: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    cwd: str | None = None
    maxprocs: int = 1
    info: tuple[Info, ...] = ()


class Timeval(Record):
    """`struct timeval`: seconds and microseconds."""

    sec: int
    usec: int


class ProcInfo(Record):
    """`pmix_proc_info_t`: where a process runs, what it executes, its pid and `ProcState`."""

    proc: Proc
    hostname: str | None
    executable: str | None
    pid: int
    state: int
    exit_code: int = 0


class Envar(Record):
    """`pmix_envar_t`: a change to an environment variable; the separator is one character for prepend and append."""

    name: str | None
    value: str | None
    separator: str = ":"


class Coord(Record):
    """`pmix_coord_t`: fabric coordinates in a view (`CoordView`)."""

    view: int
    coords: tuple[int, ...]


class RegAttr(Record):
    """`pmix_regattr_t`: an attribute that a library or host supports."""

    name: str | None
    key: str
    type: int
    description: tuple[str, ...] = ()


class Cpuset(Record):
    """`pmix_cpuset_t`: a binding as hwloc writes lists (`0-3`); None where the process is not bound."""

    cpus: str | None


class Geometry(Record):
    """`pmix_geometry_t`: the coordinates of a device on its fabric."""

    fabric: int
    uuid: str | None
    osname: str | None
    coordinates: tuple[Coord, ...] = ()


class DeviceDistance(Record):
    """`pmix_device_distance_t`: how far a device is, least and most."""

    uuid: str | None
    osname: str | None
    type: int
    mindist: int
    maxdist: int


class Endpoint(Record):
    """`pmix_endpoint_t`: an endpoint of a device, opaque bytes."""

    uuid: str | None
    osname: str | None
    endpoint: bytes


class Topology(Record):
    """`pmix_topology_t` as it travels: hwloc's XML, and the support flags that follow it."""

    xml: str | None
    support: bytes = b""


class Device(Record):
    """`pmix_device_t`: a device (`DeviceType`)."""

    uuid: str | None
    osname: str | None
    type: int


class ResourceUnit(Record):
    """`pmix_resource_unit_t`: a number of devices of a type."""

    type: int
    count: int


class NodePid(Record):
    """`pmix_node_pid_t`: a pid and the node that it is on."""

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
    """`pmix_proc_stats_t` (4.2 and 5.0 only): what a process uses; sizes in MBytes."""

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
