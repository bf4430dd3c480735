"""The messages of every command, per release of the peer, with fast functions for the most frequent ones."""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.errors import NotSupported
from pypmix.standard.releases import NEWEST
from pypmix.standard.types import Info, Proc, check_name
from pypmix.wire import decode, encode
from pypmix.wire.codec import PLAIN, Unpacker, encode_kval, one_of, split_kvals
from pypmix.wire.decode import METERED_FROM, broken
from pypmix.wire.encode import keep
from pypmix.wire.frequent import (
    PLAIN_SUCCESS,
    Command,
    decode_status,
    encode_commit,
    encode_fence,
    encode_get,
    encode_status,
    read_get_object,
)
from pypmix.wire.layout import (
    MAX_BLOCKS,
    Blocks,
    Counted,
    CountedEach,
    Field,
    Flagged,
    Layout,
    One,
    Repeated,
    Rest,
    Sentinel,
)
from pypmix.wire.readers import rule_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.standard.releases import Release

__all__ = [
    "COMMAND_NAMES",
    "EVENT",
    "IOF",
    "IOF_CONTROL",
    "PLAIN_SUCCESS",
    "Command",
    "Layout",
    "decode_commit",
    "decode_fence",
    "decode_get",
    "decode_status",
    "encode_commit",
    "encode_fence",
    "encode_get",
    "encode_get_object",
    "encode_kval",
    "encode_status",
    "peek_command",
    "read_get_object",
    "reply_layout",
    "request_layout",
    "split_kvals",
]


COMMAND_NAMES: dict[int, str] = {number: name for name, number in vars(Command).items() if name.isupper()}

_PROCS = Counted("procs", codes.PROC)
_INFOS = Counted("infos", codes.INFO)
_UID = One("uid", codes.UINT32)
_KEYS = CountedEach("keys", codes.STRING)
_NSPACE = One("nspace", codes.STRING)
_STATUS = One("status", codes.STATUS)
_OBJECTS = Repeated("objects", codes.BYTE_OBJECT)
_ID = One("group", codes.STRING)
_JUST_STATUS: tuple[Field, ...] = (_STATUS,)
_STATUS_INFOS: tuple[Field, ...] = (_STATUS, _INFOS)
_JOB: tuple[Field, ...] = (_NSPACE, Rest("kvals"))

_OLDEST: Release = (0, 0, 0)
_MEMBERS_FROM: Release = (4, 2, 4)
_RESOLVE_FROM: Release = (5, 0, 7)
_SIX: Release = (6, 0, 0)
_SEVEN: Release = (7, 0, 0)

_REQUESTS: tuple[tuple[int, Release, tuple[Field, ...]], ...] = (
    (Command.REQ, _OLDEST, ()),
    (Command.ABORT, _OLDEST, (One("code", codes.STATUS), One("message", codes.STRING), _PROCS)),
    (Command.COMMIT, _OLDEST, (Blocks("commits"),)),
    (Command.FENCENB, _OLDEST, (_PROCS, _INFOS)),
    (
        Command.GETNB,
        _OLDEST,
        # A refresh of the cache asks for everything: it ends after the rank.
        (
            _NSPACE,
            One("rank", codes.PROC_RANK),
            Counted("infos", codes.INFO, optional=True),
            One("key", codes.STRING, optional=True),
        ),
    ),
    (Command.FINALIZE, _OLDEST, ()),
    (Command.PUBLISHNB, _OLDEST, (_UID, _INFOS)),
    (Command.LOOKUPNB, _OLDEST, (_UID, _KEYS, _INFOS)),
    (Command.UNPUBLISHNB, _OLDEST, (_UID, _KEYS, _INFOS)),
    (Command.SPAWNNB, _OLDEST, (_INFOS, Counted("apps", codes.APP))),
    (Command.CONNECTNB, _OLDEST, (_PROCS, _INFOS)),
    # The trailers are a client's committed data and the job info of its nspace, an info each.
    (Command.CONNECTNB, _SIX, (_PROCS, _INFOS, Repeated("trailers", codes.INFO, optional=True))),
    (Command.DISCONNECTNB, _OLDEST, (_PROCS, _INFOS)),
    (Command.NOTIFY, _OLDEST, (One("code", codes.STATUS), One("range", codes.DATA_RANGE), _INFOS)),
    (Command.REGEVENTS, _OLDEST, (Counted("codes", codes.STATUS), _INFOS)),
    (Command.DEREGEVENTS, _OLDEST, (Repeated("codes", codes.STATUS),)),
    (Command.QUERY, _OLDEST, (Counted("queries", codes.QUERY),)),
    (
        Command.LOG,
        _OLDEST,
        (One("timestamp", codes.TIME), Counted("data", codes.INFO), Counted("directives", codes.INFO)),
    ),
    (Command.ALLOC, _OLDEST, (One("directive", codes.ALLOC_DIRECTIVE), _INFOS)),
    (Command.JOB_CONTROL, _OLDEST, (_PROCS, _INFOS)),
    (Command.MONITOR, _OLDEST, (One("monitor", codes.INFO), One("error", codes.STATUS), _INFOS)),
    (Command.GET_CREDENTIAL, _OLDEST, (_INFOS,)),
    (Command.VALIDATE_CRED, _OLDEST, (One("credential", codes.BYTE_OBJECT), _INFOS)),
    (
        Command.IOF_PULL,
        _OLDEST,
        (_PROCS, _INFOS, One("channels", codes.IOF_CHANNEL), One("local_id", codes.SIZE)),
    ),
    (Command.IOF_PUSH, _OLDEST, (_PROCS, _INFOS, One("data", codes.BYTE_OBJECT, optional=True))),
    (Command.GROUP_CONSTRUCT, _OLDEST, (_ID, _PROCS, _INFOS)),
    # Only 7.0.0rc1 has it: all other releases invite and join by events.
    (Command.GROUP_JOIN, _SEVEN, (_ID, _STATUS, Flagged("leader", codes.PROC))),
    (
        Command.GROUP_INVITE,
        _SEVEN,
        (
            _ID,
            _PROCS,
            One("timeout", codes.SIZE),
            One("optional", codes.BOOL),
            One("assign_context_id", codes.BOOL),
        ),
    ),
    (Command.GROUP_DESTRUCT, _OLDEST, (_ID, _INFOS)),
    (Command.GROUP_DESTRUCT, _MEMBERS_FROM, (_ID, Counted("members", codes.PROC), _INFOS)),
    (Command.IOF_DEREG, _OLDEST, (_INFOS, One("remote_id", codes.SIZE))),
    (Command.FABRIC_REGISTER, _OLDEST, (_INFOS,)),
    (Command.FABRIC_UPDATE, _OLDEST, (One("index", codes.SIZE),)),
    (
        Command.COMPUTE_DEVICE_DISTANCES,
        _OLDEST,
        (One("topology", codes.TOPO), One("cpuset", codes.PROC_CPUSET), _INFOS),
    ),
    (
        Command.RESBLK,
        _SIX,
        (
            One("directive", codes.RESBLOCK_DIRECTIVE),
            One("block", codes.STRING),
            Counted("units", codes.RESOURCE_UNIT),
            _INFOS,
        ),
    ),
    (Command.SESSION_CTRL, _SIX, (One("session", codes.UINT32), _INFOS)),
    (Command.RESOLVE_PEERS, _RESOLVE_FROM, (One("node", codes.STRING), _NSPACE)),
    (Command.RESOLVE_NODE, _RESOLVE_FROM, (_NSPACE,)),
    (Command.GDS_FALLBACK, _SEVEN, (One("module", codes.STRING),)),
)
"""The parts after the command, by the first release of the server that has them."""

_REPLIES: tuple[tuple[int, Release, tuple[Field, ...]], ...] = (
    (Command.REQ, _OLDEST, _JOB),
    (Command.ABORT, _OLDEST, _JUST_STATUS),
    (Command.COMMIT, _OLDEST, _JUST_STATUS),
    (Command.FENCENB, _OLDEST, _JUST_STATUS),
    (Command.GETNB, _OLDEST, (_STATUS, _OBJECTS)),
    (Command.FINALIZE, _OLDEST, _JUST_STATUS),
    (Command.PUBLISHNB, _OLDEST, _JUST_STATUS),
    (Command.LOOKUPNB, _OLDEST, (_STATUS, Counted("data", codes.PDATA))),
    (Command.UNPUBLISHNB, _OLDEST, _JUST_STATUS),
    (Command.SPAWNNB, _OLDEST, (_STATUS, *_JOB)),
    (Command.CONNECTNB, _OLDEST, (_STATUS, _OBJECTS)),
    (Command.DISCONNECTNB, _OLDEST, _JUST_STATUS),
    (Command.NOTIFY, _OLDEST, _JUST_STATUS),
    (Command.REGEVENTS, _OLDEST, _JUST_STATUS),
    # This command has no reply.
    (Command.DEREGEVENTS, _OLDEST, ()),
    (Command.QUERY, _OLDEST, _STATUS_INFOS),
    (Command.LOG, _OLDEST, _JUST_STATUS),
    (Command.ALLOC, _OLDEST, _STATUS_INFOS),
    (Command.JOB_CONTROL, _OLDEST, _STATUS_INFOS),
    (Command.MONITOR, _OLDEST, _STATUS_INFOS),
    (Command.GET_CREDENTIAL, _OLDEST, (_STATUS, One("credential", codes.BYTE_OBJECT), _INFOS)),
    (Command.VALIDATE_CRED, _OLDEST, _STATUS_INFOS),
    (Command.IOF_PULL, _OLDEST, (_STATUS, One("remote_id", codes.SIZE))),
    (Command.IOF_PUSH, _OLDEST, _JUST_STATUS),
    (Command.GROUP_CONSTRUCT, _OLDEST, (_STATUS, Sentinel("context_id"))),
    (
        Command.GROUP_CONSTRUCT,
        _MEMBERS_FROM,
        (_STATUS, Counted("members", codes.PROC), Sentinel("context_id"), _OBJECTS),
    ),
    (
        Command.GROUP_CONSTRUCT,
        _SIX,
        (
            _STATUS,
            Counted("members", codes.PROC),
            Flagged("context_id", codes.SIZE),
            CountedEach("group_info", codes.INFO),
        ),
    ),
    (Command.GROUP_JOIN, _SEVEN, _JUST_STATUS),
    (Command.GROUP_INVITE, _SEVEN, _JUST_STATUS),
    (Command.GROUP_DESTRUCT, _OLDEST, _JUST_STATUS),
    (Command.IOF_DEREG, _OLDEST, _JUST_STATUS),
    (Command.FABRIC_REGISTER, _OLDEST, _STATUS_INFOS),
    (Command.FABRIC_UPDATE, _OLDEST, _STATUS_INFOS),
    (Command.COMPUTE_DEVICE_DISTANCES, _OLDEST, (_STATUS, Counted("distances", codes.DEVICE_DIST))),
    (Command.RESBLK, _SIX, _JUST_STATUS),
    (Command.SESSION_CTRL, _SIX, _STATUS_INFOS),
    (Command.RESOLVE_PEERS, _RESOLVE_FROM, (_STATUS, _PROCS)),
    (Command.RESOLVE_NODE, _RESOLVE_FROM, (_STATUS, One("nodes", codes.STRING))),
    (Command.GDS_FALLBACK, _SEVEN, _JOB),
)
"""The parts of the reply, by the first release of the peer that has them."""


_REQUEST_LAYOUTS: dict[int, list[tuple[Release, Layout]]] = {}
_REPLY_LAYOUTS: dict[int, list[tuple[Release, Layout]]] = {}
"""The layouts of the used commands, newest first: a process uses few."""

_REQUESTS_FOUND: dict[tuple[int, Release], Layout] = {}
_REPLIES_FOUND: dict[tuple[int, Release], Layout] = {}
"""The layouts that were found before, by command and the peer's release."""

MAX_FOUND = 256
"""The most layouts that are remembered in each of them."""


def _layouts(
    rows: tuple[tuple[int, Release, tuple[Field, ...]], ...], command: int, reply: bool
) -> list[tuple[Release, Layout]]:
    own = [(floor, fields) for number, floor, fields in rows if number == command]
    name = f"{COMMAND_NAMES.get(command, '')} {'reply' if reply else 'request'}"
    known = [field for _, fields in own for field in fields]
    return [(floor, Layout(name, fields, None if reply else command, reply, known)) for floor, fields in reversed(own)]


def _find(command: int, release: Release, reply: bool) -> Layout:
    layout = _search(command, release, reply)
    found = _REPLIES_FOUND if reply else _REQUESTS_FOUND
    if len(found) >= MAX_FOUND:
        # Peers name their releases: there may be many.
        found.clear()
    found[command, release] = layout
    return layout


def _search(command: int, release: Release, reply: bool) -> Layout:
    made = _REPLY_LAYOUTS if reply else _REQUEST_LAYOUTS
    layouts = made.get(command)
    if layouts is None:
        layouts = _layouts(_REPLIES if reply else _REQUESTS, command, reply)
        if layouts:
            made[command] = layouts
    for floor, layout in layouts:
        if release >= floor:
            return layout
    name = COMMAND_NAMES.get(command, f"command {command}")
    shown = ".".join(map(str, release))
    raise NotSupported(f"PMIx {shown} has no {name}", operation=name.lower())


def request_layout(command: int, release: Release) -> Layout:
    """Return the layout of a request.

    Args:
        command: One of the numbers of `Command`.
        release: The release of the peer.

    Raises:
        NotSupported: The release does not have the command.
    """
    return _REQUESTS_FOUND.get((command, release)) or _find(command, release, reply=False)


def reply_layout(command: int, release: Release) -> Layout:
    """Return the layout of the reply to a command; see `request_layout`."""
    return _REPLIES_FOUND.get((command, release)) or _find(command, release, reply=True)


EVENT = Layout(
    "event",
    (
        One("code", codes.STATUS),
        One("source", codes.PROC),
        _INFOS,
        One("range", codes.DATA_RANGE, optional=True),
    ),
    Command.NOTIFY,
)
"""An event that a server delivers, on `TAG_NOTIFY`; servers before 5.0 and their caches leave the range out."""

IOF = Layout(
    "output",
    (
        One("source", codes.PROC),
        One("channel", codes.IOF_CHANNEL),
        One("handler", codes.SIZE),
        _INFOS,
        One("data", codes.BYTE_OBJECT),
    ),
)
"""Output that a server forwards, on `TAG_IOF`."""

IOF_CONTROL = Layout(
    "flow control",
    (
        One("source", codes.PROC),
        One("channel", codes.IOF_CHANNEL),
        One("xoff", codes.BOOL),
        _INFOS,
    ),
)
"""A message of a server of 7.0 or later on `TAG_IOF_CONTROL`, to pause or resume a client that pushes input."""


def peek_command(data: bytes, buffer_type: int) -> int:
    """Return the command that a request starts with.

    Raises:
        RemoteProtocolError: It does not start with one.
    """
    if buffer_type == PLAIN and len(data) >= 2 and data[0] == 2:
        return data[1]
    command: int = Unpacker(data, buffer_type).one(codes.COMMAND)
    return command


_MAX_MEMO_BYTES = 4096

_FENCES: dict[tuple[bytes, int, int], tuple[tuple[Proc, ...], tuple[Info, ...]]] = {}


def decode_fence(data: bytes, buffer_type: int, release: Release = NEWEST) -> tuple[tuple[Proc, ...], tuple[Info, ...]]:
    """Return the procs and the infos of a fence's request.

    The participants of a fence send equal bytes, so the results of the last requests are kept.

    Raises:
        RemoteProtocolError: The message is malformed.
    """
    key = (data, buffer_type, rule_for(release))
    found = _FENCES.get(key)
    if found is None:
        values = request_layout(Command.FENCENB, release).decode(data, buffer_type, release)
        found = values["procs"], values["infos"]
        if len(data) <= _MAX_MEMO_BYTES:
            keep(_FENCES, 64, key, found)
    return found


def decode_get(
    data: bytes, buffer_type: int, release: Release = NEWEST
) -> tuple[str, int, tuple[Info, ...], str | None]:
    """Return nspace, rank, infos and key of a get's request.

    Raises:
        RemoteProtocolError: The message is malformed.
    """
    if buffer_type != PLAIN or not data.startswith(b"\2\4\2") or len(data) > METERED_FROM:
        values = request_layout(Command.GETNB, release).decode(data, buffer_type, release)
        if values["nspace"] is None:
            raise broken("GETNB request names no nspace")
        return values["nspace"], values["rank"], values["infos"], values["key"]
    size = len(data)
    infos: tuple[Info, ...] = ()
    key = None
    try:
        nspace, pos = decode.key(data, 3)
        if data[pos] != 2:
            raise broken("GETNB request has no single rank")
        rank, pos = decode.DECODERS[codes.PROC_RANK](data, pos + 1, 0)
        if pos < size:
            if data[pos : pos + 2] == b"\2\0":
                pos += 2
            else:
                rest = Unpacker(data[pos:], buffer_type, release)
                infos = _INFOS.take(rest)
                pos += rest.position
            if pos < size:
                if data[pos] != 2:
                    raise broken("GETNB request has no single key")
                key, _ = decode.key(data, pos + 1) if data[pos + 1] else (None, 0)
    except IndexError:
        raise broken("GETNB request ends in the middle of a field") from None
    return nspace, rank, infos, key


def decode_commit(data: bytes, buffer_type: int) -> tuple[tuple[int, bytes], ...]:
    """Return the scopes and the packs of KVAL of a commit's request.

    Raises:
        RemoteProtocolError: The message is malformed.
    """
    if buffer_type != PLAIN or not data.startswith(b"\2\2"):
        values = request_layout(Command.COMMIT, NEWEST).decode(data, buffer_type, NEWEST)
        found: tuple[tuple[int, bytes], ...] = values["commits"]
        return found
    blocks: list[tuple[int, bytes]] = []
    size = len(data)
    pos = 2
    try:
        while pos < size:
            if data[pos] != 2 or data[pos + 2] != 2 or data[pos + 3] != PLAIN:
                raise broken("COMMIT request has no scope with a plain buffer where one should be")
            if len(blocks) >= MAX_BLOCKS:
                raise broken(f"a commit has more than {MAX_BLOCKS} blocks")
            scope = data[pos + 1]
            block, pos = decode.raw(data, pos + 4, 0)
            blocks.append((scope, block))
    except IndexError:
        raise broken("COMMIT request ends in the middle of a block") from None
    return tuple(blocks)


def encode_get_object(buffer_type: int, proc: Proc, kvals: Iterable[bytes]) -> bytes:
    """Return an object of a get's reply.

    Args:
        buffer_type: 1 for a plain buffer, 2 for a described one.
        proc: The owner of the data.
        kvals: Packs of KVAL, made by `encode_kval` or kept from a commit.
    """
    check_name(proc[0], 255, "an nspace")
    parts = [one_of(codes.PROC, buffer_type)]
    encode.many(parts.append, codes.PROC, (proc,), 0)
    parts += kvals
    return b"".join(parts)
