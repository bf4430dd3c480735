"""What a crossing tells others, as bytes: procs, job infos, places, events, and what one server answers for all."""

from __future__ import annotations

from pypmix.data import DataBuffer
from pypmix.standard import codes
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Lookup, NotifyEvent, Publish, Unpublish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from pypmix.host.callbacks.ends import End
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Info, Proc

MAX_SECONDS = 2.0**31
MAX_PARTS = 1 << 20
"""How many parts of one kind a job info, or a list, may have."""


def pack_procs(procs: Iterable[Proc]) -> bytes:
    """Return procs as bytes."""
    return DataBuffer().pack(codes.PROC, *procs).bytes()


def unpack_procs(data: bytes) -> tuple[Proc, ...]:
    """Return the procs.

    Raises:
        RemoteProtocolError: These are none.
    """
    return tuple(DataBuffer(data).unpack(codes.PROC, MAX_PARTS))


def pack_pset(name: str, marks: Iterable[str], members: Iterable[Proc] = ()) -> bytes:
    """Return what a process set is known by, and its members."""
    procs = tuple(members)
    buffer = DataBuffer().pack(codes.STRING, name).pack(codes.STRING, *sorted(marks)).pack(codes.UINT32, len(procs))
    return (buffer.pack(codes.PROC, *procs) if procs else buffer).bytes()


def unpack_pset(data: bytes) -> tuple[str, tuple[str, ...], tuple[Proc, ...]]:
    """Return the name, the marks and the members of a process set.

    Raises:
        RemoteProtocolError: These are none.
    """
    buffer = DataBuffer(data)
    name, marks, count = buffer.one(codes.STRING), buffer.unpack(codes.STRING, MAX_PARTS), buffer.one(codes.UINT32)
    procs = buffer.unpack(codes.PROC, MAX_PARTS) if count else []
    if not name or not all(marks) or len(procs) != count:
        raise RemoteProtocolError("this is no process set", operation="unpack")
    return name, tuple(marks), tuple(procs)


def pack_finalized(proc: Proc, life: int) -> bytes:
    """Return that a proc has finalized in one of its lives."""
    return DataBuffer().pack(codes.PROC, proc).pack(codes.UINT32, life).bytes()


def unpack_finalized(data: bytes) -> tuple[Proc, int]:
    """Return the proc and its life.

    Raises:
        RemoteProtocolError: These are none.
    """
    buffer = DataBuffer(data)
    return buffer.one(codes.PROC), buffer.one(codes.UINT32)


def pack_codes(codes_: Iterable[int]) -> bytes:
    """Return codes of events."""
    return DataBuffer().pack(codes.STATUS, *codes_).bytes()


def unpack_codes(data: bytes) -> tuple[int, ...]:
    """Return codes of events.

    Raises:
        RemoteProtocolError: These are none.
    """
    return tuple(DataBuffer(data).unpack(codes.STATUS, MAX_PARTS))


def pack_end(end: End) -> bytes:
    """Return how a host's part of a job has ended."""
    buffer = DataBuffer().pack(codes.STRING, end.nspace, *end.nodes).pack(codes.BOOL, end.launched, end.told)
    return buffer.pack(codes.STATUS, end.code, end.status).pack(codes.DOUBLE, end.when).bytes()


def unpack_end(data: bytes) -> End:
    """Return how another host's part of a job has ended.

    Raises:
        RemoteProtocolError: It does not say.
    """
    from pypmix.host.callbacks.ends import End

    buffer = DataBuffer(data)
    names, flags, numbers = (
        buffer.unpack(codes.STRING, MAX_PARTS),
        buffer.unpack(codes.BOOL),
        buffer.unpack(codes.STATUS),
    )
    if len(names) < 2 or not all(names) or len(flags) != 2 or len(numbers) != 2:
        raise RemoteProtocolError("a part of a job has a name, nodes and an end", operation="unpack")
    when: float = buffer.one(codes.DOUBLE)
    return End(names[0], tuple(names[1:]), flags[0], flags[1], numbers[0], numbers[1], when)


def pack_modex(proc: Proc, key: str, seconds: float) -> bytes:
    """Return a request for what a proc has committed, once a key is there, and how long that may take."""
    return DataBuffer().pack(codes.PROC, proc).pack(codes.STRING, key).pack(codes.DOUBLE, seconds).bytes()


def unpack_modex(data: bytes) -> tuple[Proc, str, float]:
    """Return the proc, the key and the seconds of such a request.

    Raises:
        RemoteProtocolError: It is none.
    """
    buffer = DataBuffer(data)
    proc, key, seconds = buffer.one(codes.PROC), buffer.one(codes.STRING), buffer.one(codes.DOUBLE)
    if not 0 < seconds < MAX_SECONDS:
        raise RemoteProtocolError(f"{seconds} s are no time limit", operation="unpack")
    return proc, key or "", seconds


# Who takes part in something: the whole of it is what its servers know it by.


def pack_signature(operation: str, label: str, members: Mapping[str, Sequence[int]]) -> bytes:
    """Return what tells an operation from others: its name, its label, and its members in whatever order.

    Args:
        operation: The operation.
        label: What it is about, such as the name of a group.
        members: The ranks by nspace, sorted, each once.
    """
    buffer = DataBuffer().pack(codes.STRING, operation, label)
    for nspace in sorted(members):
        buffer.pack(codes.STRING, nspace).pack(codes.PROC_RANK, *_spans(members[nspace]))
    return buffer.bytes()


def unpack_signature(signature: bytes) -> tuple[str, str, dict[str, list[range]]]:
    """Return the name of an operation, its label, and its members: spans of ranks by nspace.

    Raises:
        RemoteProtocolError: It is no signature.
    """
    buffer = DataBuffer(signature)
    names = buffer.unpack(codes.STRING, 2)
    if len(names) != 2 or None in names:
        raise RemoteProtocolError("an operation has a name and a label", operation="unpack")
    members = {}
    while buffer.more():
        nspace = buffer.one(codes.STRING)
        bounds = buffer.unpack(codes.PROC_RANK)
        if not isinstance(nspace, str) or len(bounds) % 2 or sorted(set(bounds)) != bounds:
            raise RemoteProtocolError("the members of an operation are spans of ranks", operation="unpack")
        members[nspace] = [range(low, high) for low, high in zip(bounds[::2], bounds[1::2], strict=True)]
    return names[0], names[1], members


def _spans(ranks: Sequence[int]) -> list[int]:
    """Return where each run of consecutive ranks begins, and what follows it."""
    bounds: list[int] = []
    for rank in ranks:
        if bounds and bounds[-1] == rank:
            bounds[-1] = rank + 1
        else:
            bounds += (rank, rank + 1)
    return bounds


# Jobs


def pack_job(buffer: DataBuffer, job: JobInfo) -> None:
    """Append a job info."""
    buffer.pack(codes.STRING, job.nspace).pack(codes.INFO, *job.job)
    for groups in (job.nodes, job.apps, job.sessions):
        buffer.pack(codes.SIZE, len(groups))
        for infos in groups:
            buffer.pack(codes.INFO, *infos)
    buffer.pack(codes.SIZE, len(job.procs))
    for rank, infos in job.procs:
        buffer.pack(codes.PROC_RANK, rank).pack(codes.INFO, *infos)


def unpack_job(buffer: DataBuffer) -> JobInfo:
    """Take the next job info.

    Raises:
        RemoteProtocolError: None comes next.
    """
    nspace = _name(buffer)
    job = tuple(buffer.unpack(codes.INFO))
    nodes, apps, sessions = [tuple([tuple(buffer.unpack(codes.INFO)) for _ in range(_count(buffer))]) for _ in range(3)]
    procs = tuple([(int(buffer.one(codes.PROC_RANK)), tuple(buffer.unpack(codes.INFO))) for _ in range(_count(buffer))])
    return JobInfo(nspace, job, nodes, apps, sessions, procs)


def pack_places(nspace: str, places: Mapping[int, str]) -> bytes:
    """Return on which servers the procs of a job are."""
    by_server: dict[str, list[int]] = {}
    for rank in sorted(places):
        by_server.setdefault(places[rank], []).append(rank)
    buffer = DataBuffer().pack(codes.STRING, nspace)
    for server in sorted(by_server):
        buffer.pack(codes.STRING, server).pack(codes.PROC_RANK, *_spans(by_server[server]))
    return buffer.bytes()


def unpack_places(data: bytes) -> tuple[str, dict[int, str]]:
    """Return a job's nspace, and the server of each of its ranks.

    Raises:
        RemoteProtocolError: These are no places.
    """
    buffer = DataBuffer(data)
    nspace = _name(buffer)
    places: dict[int, str] = {}
    while buffer.more():
        server = _name(buffer)
        bounds = buffer.unpack(codes.PROC_RANK)
        spans = [range(low, high) for low, high in zip(bounds[::2], bounds[1::2], strict=False)]
        if len(bounds) % 2 or len(places) + sum(map(len, spans)) > MAX_PARTS:
            raise RemoteProtocolError("the places of a job are spans of ranks", operation="unpack")
        places.update([(rank, server) for span in spans for rank in span])
    return nspace, places


# Operations that one server answers for all


def pack_request(op: Op[Any], requestor: Proc, uid: int, gid: int) -> bytes:
    """Return a request to the directory."""
    buffer = DataBuffer().pack(codes.STRING, op.name).pack(codes.PROC, requestor).pack(codes.UINT32, uid, gid)
    if isinstance(op, Publish):
        buffer.pack(codes.INFO, *op.infos).pack(codes.DATA_RANGE, op.range).pack(codes.PERSIST, op.persistence)
        buffer.pack(codes.INFO, *op.directives)
    elif isinstance(op, Lookup | Unpublish):
        buffer.pack(codes.STRING, *op.keys).pack(codes.INFO, *op.directives)
    else:
        raise TypeError(f"no {op.name} is forwarded")
    return buffer.bytes()


def unpack_request(data: bytes) -> tuple[Op[Any], Proc, int, int]:
    """Return a request to the directory, and who makes it.

    Raises:
        RemoteProtocolError: It is none.
    """
    buffer = DataBuffer(data)
    name = _name(buffer)
    requestor = buffer.one(codes.PROC)
    ids = buffer.unpack(codes.UINT32, 2)
    read = _REQUESTS.get(name)
    if read is None or len(ids) != 2:
        raise RemoteProtocolError(f"no {name!r} is forwarded", operation="unpack")
    try:
        return read(buffer), requestor, ids[0], ids[1]
    except (TypeError, ValueError) as error:
        raise RemoteProtocolError(str(error), operation="unpack") from None


def _read_publish(buffer: DataBuffer) -> Publish:
    infos = tuple(buffer.unpack(codes.INFO))
    reach = buffer.one(codes.DATA_RANGE)
    return Publish(infos, reach, buffer.one(codes.PERSIST), tuple(buffer.unpack(codes.INFO)))


_REQUESTS: dict[str, Callable[[DataBuffer], Op[Any]]] = {
    "publish": _read_publish,
    "lookup": lambda buffer: Lookup(tuple(buffer.unpack(codes.STRING)), tuple(buffer.unpack(codes.INFO))),
    "unpublish": lambda buffer: Unpublish(tuple(buffer.unpack(codes.STRING)), tuple(buffer.unpack(codes.INFO))),
}


def pack_found(result: object) -> bytes:
    """Return what the directory has answered: the data of a lookup, or nothing."""
    return DataBuffer().pack(codes.PDATA, *(result if isinstance(result, tuple) else ())).bytes()


def unpack_found(data: bytes) -> tuple[Any, ...]:
    """Return the data of a lookup.

    Raises:
        RemoteProtocolError: It is none.
    """
    return tuple(DataBuffer(data).unpack(codes.PDATA, MAX_PARTS))


def pack_event(op: NotifyEvent, source: Proc) -> bytes:
    """Return an event as bytes."""
    buffer = DataBuffer().pack(codes.STATUS, op.code).pack(codes.DATA_RANGE, op.range).pack(codes.PROC, source)
    return buffer.pack(codes.INFO, *op.infos).bytes()


def unpack_event(data: bytes) -> tuple[int, int, Proc, tuple[Info, ...]]:
    """Return the code of an event, its range, its source and its infos.

    Raises:
        RemoteProtocolError: It is none.
    """
    buffer = DataBuffer(data)
    return (
        buffer.one(codes.STATUS),
        buffer.one(codes.DATA_RANGE),
        buffer.one(codes.PROC),
        tuple(buffer.unpack(codes.INFO)),
    )


def _name(buffer: DataBuffer) -> str:
    name = buffer.one(codes.STRING)
    if not name:
        raise RemoteProtocolError("a name is missing", operation="unpack")
    return str(name)


def _count(buffer: DataBuffer) -> int:
    count = int(buffer.one(codes.SIZE))
    if count > MAX_PARTS:
        raise RemoteProtocolError(f"{count} parts are announced", operation="unpack")
    return count
