"""The job info for a new client: the reply to REQ for a client of the `hash` store."""

from __future__ import annotations

from pypmix.standard import codes, keys
from pypmix.standard.errors import NotFound, RemoteProtocolError
from pypmix.standard.jobinfo import JobInfo, known_infos
from pypmix.standard.releases import NEWEST
from pypmix.standard.types import DataArray, Info, Value
from pypmix.wire.codec import Packer, Unpacker, encode_kval, kvals
from pypmix.wire.decode import broken
from pypmix.wire.readers import fit_infos, rule_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.standard.releases import Release


_SHARED_MEMORY = "PMIX_GDS_SHMEM"

Group = tuple[Info, ...]

__all__ = ["JobInfo", "collect", "decode_jobinfo", "encode_jobinfo", "known_infos"]


def encode_jobinfo(job: JobInfo, buffer_type: int, release: Release, rule: int | None = None) -> bytes:
    """Return the reply to REQ for a client of the `hash` store.

    Args:
        job: The job info. Infos with keys that the client's release does not know, and infos that it cannot decode, are
            left out.
        buffer_type: 1 for a plain buffer, 2 for a described one.
        release: The client's.
        rule: The client's; see `pypmix.wire.readers`. None for a client that decodes everything.
    """
    if rule is None:
        rule = rule_for(release)
    packer = Packer(buffer_type, rule).pack(codes.STRING, job.nspace)

    def add(key: str, value: Value) -> None:
        packer.pack_raw(encode_kval(buffer_type, key, value, rule))

    for info in fit_infos(known_infos(job.job, release), rule):
        add(info.key, info.value)
    for key, groups in (
        (keys.SESSION_INFO_ARRAY, job.sessions),
        (keys.NODE_INFO_ARRAY, job.nodes),
        (keys.APP_INFO_ARRAY, job.apps),
    ):
        for group in groups:
            array = DataArray(codes.INFO, fit_infos(known_infos(group, release), rule))
            add(key, Value.unchecked(codes.DATA_ARRAY, array))
    last: dict[str, tuple[Info, bytes]] = {}
    """The last packed info of each key: neighbouring procs of a big job have mostly equal infos."""
    for rank, group in job.procs:
        inner = Packer(buffer_type, rule).pack(codes.PROC_RANK, rank)
        for info in fit_infos(known_infos(group, release), rule):
            same, raw = last.get(info.key, (None, b""))
            if same is not info:
                raw = encode_kval(buffer_type, info.key, info.value, rule)
                last[info.key] = info, raw
            inner.pack_raw(raw)
        add(keys.PROC_BLOB, Value.unchecked(codes.BYTE_OBJECT, inner.bytes()))
    return packer.bytes()


def decode_jobinfo(data: bytes, buffer_type: int, release: Release = NEWEST) -> JobInfo:
    """Decode the job info of a reply to REQ, or of an object of a connect's reply.

    Unknown keys are kept.

    Args:
        data: An nspace and packs of KVAL.
        buffer_type: 1 for a plain buffer, 2 for a described one.
        release: The server's.

    Raises:
        NotFound: The server does not know the job.
        RemoteProtocolError: The message is malformed, or describes shared memory instead of the job.
    """
    unpacker = Unpacker(data, buffer_type, release)
    try:
        nspace = unpacker.one(codes.STRING)
    except RemoteProtocolError:
        status = _lone_status(data, buffer_type)
        if status is None:
            raise
        raise NotFound("the server has no job info", status=status, operation="init") from None
    if nspace is None:
        raise broken("job info names no nspace")
    return collect(nspace, kvals(data, unpacker.position, buffer_type, release), buffer_type, release)


def _lone_status(data: bytes, buffer_type: int) -> int | None:
    unpacker = Unpacker(data, buffer_type)
    try:
        status: int = unpacker.one(codes.STATUS)
    except RemoteProtocolError:
        return None
    return status if status < 0 and not unpacker.more() else None


def collect(nspace: str, items: Iterable[tuple[str, Value]], buffer_type: int, release: Release = NEWEST) -> JobInfo:
    """Sort the values that belong to a job by realm; see `decode_jobinfo`."""
    job: list[Info] = []
    groups: dict[str, list[Group]] = {keys.NODE_INFO_ARRAY: [], keys.APP_INFO_ARRAY: [], keys.SESSION_INFO_ARRAY: []}
    ranks: dict[int, list[Info]] = {}
    for key, value in items:
        if key in groups:
            groups[key].append(_infos_of(key, value))
        elif key == keys.PROC_BLOB:
            unpacker = Unpacker(_bytes_of(key, value), buffer_type, release)
            infos = ranks.setdefault(unpacker.one(codes.PROC_RANK), [])
            infos += [Info.unchecked(*pair, 0) for pair in kvals(unpacker.rest(), 0, buffer_type, release)]
        elif key == keys.PROC_INFO_ARRAY:
            first, *others = _infos_of(key, value) or (None,)
            if first is None or first.key != keys.RANK or first.value.type != codes.PROC_RANK:
                raise broken(f"{keys.PROC_INFO_ARRAY} does not start with a rank")
            ranks.setdefault(first.value.data, []).extend(others)
        elif key == keys.MAP_BLOB:
            groups[keys.NODE_INFO_ARRAY] += _map_of(_bytes_of(key, value), buffer_type, release)
        elif key.startswith(_SHARED_MEMORY):
            raise broken("the server describes its job info in shared memory; only the store `hash` can be read")
        else:
            job.append(Info.unchecked(key, value, 0))
    procs = tuple([(rank, tuple(infos)) for rank, infos in ranks.items()])
    nodes, apps, sessions = (
        tuple(groups[key]) for key in (keys.NODE_INFO_ARRAY, keys.APP_INFO_ARRAY, keys.SESSION_INFO_ARRAY)
    )
    return JobInfo(nspace, tuple(job), nodes, apps, sessions, procs)


def _infos_of(key: str, value: Value) -> Group:
    if value.type != codes.DATA_ARRAY or value.data.type not in (codes.INFO, codes.UNDEF):
        raise broken(f"{key} is not an array of infos")
    items: Group = value.data.items
    return items


def _bytes_of(key: str, value: Value) -> bytes:
    if value.type != codes.BYTE_OBJECT:
        raise broken(f"{key} is not a byte object")
    data: bytes = value.data
    return data


def _map_of(data: bytes, buffer_type: int, release: Release) -> list[Group]:
    """Decode the form of older servers: node names with the ranks on them."""
    unpacker = Unpacker(data, buffer_type, release)
    count = unpacker.one(codes.SIZE)
    found: list[Group] = []
    while unpacker.more() and len(found) < count:
        for item in unpacker.unpack(codes.KVAL):
            if item.value.type != codes.STRING:
                raise broken(f"{keys.MAP_BLOB} holds no list of ranks for {item.key!r}")
            name = Value.unchecked(codes.STRING, item.key)
            found.append((Info.unchecked(keys.HOSTNAME, name, 0), Info.unchecked(keys.LOCAL_PEERS, item.value, 0)))
    return found
