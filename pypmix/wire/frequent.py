"""The messages of most clients: bare requests, commits, fences and gets, and the answers to them.

They are made without the layouts of `pypmix.wire.messages`, which such a client does not import.
"""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.releases import NEWEST
from pypmix.standard.types import RANK_UNDEF
from pypmix.wire import decode, encode
from pypmix.wire.codec import PLAIN, Packer, Unpacker, kvals, one_of
from pypmix.wire.decode import RULE_SHIFT, broken
from pypmix.wire.encode import BYTES, flex, keep, zigzag
from pypmix.wire.readers import rule_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pypmix.standard.releases import Release
    from pypmix.standard.types import Info, Proc, Value
    from pypmix.wire.readers import Reader


class Command:
    """The command of a request: the number that it starts with."""

    REQ = 0
    ABORT = 1
    COMMIT = 2
    FENCENB = 3
    GETNB = 4
    FINALIZE = 5
    PUBLISHNB = 6
    LOOKUPNB = 7
    UNPUBLISHNB = 8
    SPAWNNB = 9
    CONNECTNB = 10
    DISCONNECTNB = 11
    NOTIFY = 12
    REGEVENTS = 13
    DEREGEVENTS = 14
    QUERY = 15
    LOG = 16
    ALLOC = 17
    JOB_CONTROL = 18
    MONITOR = 19
    GET_CREDENTIAL = 20
    VALIDATE_CRED = 21
    IOF_PULL = 22
    IOF_PUSH = 23
    GROUP_CONSTRUCT = 24
    GROUP_JOIN = 25
    GROUP_INVITE = 26
    GROUP_LEAVE = 27
    GROUP_DESTRUCT = 28
    IOF_DEREG = 29
    FABRIC_REGISTER = 30
    FABRIC_UPDATE = 31
    COMPUTE_DEVICE_DISTANCES = 32
    RESBLK = 34
    SESSION_CTRL = 35
    REQ_SYSINFO = 36
    RESOLVE_PEERS = 37
    RESOLVE_NODE = 38
    GDS_FALLBACK = 39


_STATUSES: dict[tuple[int, int], bytes] = {}

PLAIN_SUCCESS = b"\2\0"
"""The first bytes of an answer in a plain buffer that is a success."""


def encode_status(buffer_type: int, status: int) -> bytes:
    """Encode a reply that consists of a status."""
    found = _STATUSES.get((buffer_type, status))
    if found is None:
        found = Packer(buffer_type).pack(codes.STATUS, status).bytes()
        keep(_STATUSES, 1024, (buffer_type, status), found)
    return found


def decode_status(data: bytes, buffer_type: int) -> int:
    """Return the status that a reply starts with.

    Raises:
        RemoteProtocolError: It does not start with one.
    """
    if buffer_type == PLAIN and data[:2] == PLAIN_SUCCESS:
        return 0
    status: int = Unpacker(data, buffer_type).one(codes.STATUS)
    return status


def encode_bare(command: int, buffer_type: int) -> bytes:
    """Encode a request that has only its command."""
    return one_of(codes.COMMAND, buffer_type) + BYTES[command]


_HEADS = {
    (command, kind): encode_bare(command, kind)
    for command in (Command.COMMIT, Command.FENCENB, Command.GETNB)
    for kind in (1, 2)
}
_SIZES = {kind: one_of(codes.SIZE, kind) for kind in (1, 2)}


def _counted(
    parts: list[bytes], buffer_type: int, type: int, items: Sequence[Proc] | Sequence[Info], rule: int
) -> None:
    """Append a SIZE and, unless it is 0, so many procs or infos in one pack."""
    count = len(items)
    parts.append(_SIZES[buffer_type])
    if not count:
        parts.append(b"\0")
        return
    parts.append(flex(count))
    parts.append(one_of(type, buffer_type) if count == 1 else _pack_head(type, buffer_type, count))
    encode.many(parts.append, type, items, rule)


def _pack_head(type: int, buffer_type: int, count: int) -> bytes:
    if buffer_type == PLAIN:
        return zigzag(count)
    return BYTES[codes.INT32] + zigzag(count) + BYTES[type]


def encode_fence(buffer_type: int, procs: Sequence[Proc], infos: Sequence[Info] = (), reader: Reader = NEWEST) -> bytes:
    """Encode the request of a fence, in the FENCENB layout.

    Args:
        buffer_type: 1 for a plain buffer, 2 for a described one.
        procs: The participants.
        infos: Directives, such as `PMIX_COLLECT_DATA`.
        reader: The server's release, or its rule.
    """
    rule = rule_for(reader)
    parts = [_HEADS[Command.FENCENB, buffer_type]]
    _counted(parts, buffer_type, codes.PROC, procs, rule)
    _counted(parts, buffer_type, codes.INFO, infos, rule)
    return b"".join(parts)


def encode_get(
    buffer_type: int,
    nspace: str,
    rank: int,
    infos: Sequence[Info] = (),
    key: str | None = None,
    reader: Reader = NEWEST,
) -> bytes:
    """Encode the request of a get, in the GETNB layout.

    Args:
        buffer_type: 1 for a plain buffer, 2 for a described one.
        nspace: The nspace of the data.
        rank: The rank, or `Rank.WILDCARD` for the job's.
        infos: Directives, such as `PMIX_IMMEDIATE`.
        key: The key; None for all data.
        reader: The server's release, or its rule.
    """
    if not 0 <= rank <= RANK_UNDEF:
        raise OverflowError(f"a rank lies between 0 and {RANK_UNDEF}, not {rank}")
    string = one_of(codes.STRING, buffer_type)
    parts = [
        _HEADS[Command.GETNB, buffer_type],
        string,
        encode.key_bytes(nspace),
        one_of(codes.PROC_RANK, buffer_type),
        flex(rank),
    ]
    _counted(parts, buffer_type, codes.INFO, infos, rule_for(reader))
    if key is not None:
        parts.append(string)
        parts.append(encode.key_bytes(key))
    return b"".join(parts)


def encode_commit(buffer_type: int, commits: Iterable[tuple[int, bytes]]) -> bytes:
    """Encode the request of a commit, in the COMMIT layout.

    Args:
        buffer_type: 1 for a plain buffer, 2 for a described one.
        commits: Pairs of a scope and packs of KVAL; see `encode_kval`.
    """
    scope_head = one_of(codes.SCOPE, buffer_type)
    buffer_head = one_of(codes.BUFFER, buffer_type) + BYTES[buffer_type]
    parts = [_HEADS[Command.COMMIT, buffer_type]]
    for scope, data in commits:
        if not 0 <= scope <= 255:
            raise OverflowError(f"a scope lies between 0 and 255, not {scope}")
        parts += (scope_head, BYTES[scope], buffer_head, flex(len(data)), data)
    return b"".join(parts)


def read_get_object(
    data: bytes, buffer_type: int, release: Release = NEWEST
) -> tuple[Proc, list[tuple[str, Value]], RemoteProtocolError | None]:
    """Decode an object of a get's reply: its proc, the data, and the error if the rest of it cannot be read.

    Args:
        data: An object of the reply.
        buffer_type: 1 for a plain buffer, 2 for a described one.
        release: The server's.

    Raises:
        RemoteProtocolError: The object is malformed.
    """
    head = one_of(codes.PROC, buffer_type)
    if not data.startswith(head):
        raise broken("an object of a get's reply does not start with a proc")
    try:
        procs, pos = decode.procs(data, len(head), 1, rule_for(release) << RULE_SHIFT)
    except IndexError:
        raise broken("an object of a get's reply ends in the middle of its proc") from None
    found: list[tuple[str, Value]] = []
    try:
        kvals(data, pos, buffer_type, release, found)
    except RemoteProtocolError as error:
        return procs[0], found, error
    return procs[0], found, None
