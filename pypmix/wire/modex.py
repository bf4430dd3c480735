"""The committed values that the servers of a job exchange, in the format of pypmix.

libpmix has a different format, which its stores define and which depends on the release; the servers of a job are all
pypmix's, or all libpmix's. A host passes the bytes on without decoding them.

A blob is `pypmix` and NUL, the version of the format (2), the length of the rest, and

    the contribution to a collective, which is 0 outside of one: its number (8 bytes), the identity of the last result
        that its server has stored (8 bytes), and the number of participants that it is of
    the senders: their number, and of each its type of buffer and the three numbers of its release
    for each proc: its nspace (length, UTF-8), its rank, the stamp of its last commit, the base, the number of its
        values, and of each value its scope, the place of its sender in the list, and its KVAL as the client packed it
        (length, bytes)

All numbers are base-128 varints, except for version, buffer type and scope, which are a byte each. A value is passed on
as its committer has packed it, so that types which a server does not know still reach their reader. Blobs of several
servers are concatenated, and an empty blob has no procs. Blobs may overtake each other: the one with the higher stamp
is newer. With the base 0, a blob has all values that a proc has committed for others. Otherwise it has the values that
the proc has committed since the stamp that is the base, for servers that have all values until then, and the proc has
removed none of these.

The identity of a result is the sum of the numbers of its contributions, which are random.
"""

from __future__ import annotations

from struct import Struct

from pypmix.standard.types import MAX_NSLEN, RANK_VALID, Proc
from pypmix.wire import decode
from pypmix.wire.codec import DESCRIBED, PLAIN, split_kval
from pypmix.wire.decode import broken
from pypmix.wire.encode import BYTES, flex, keep
from pypmix.wire.readers import MARKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from pypmix.standard.errors import RemoteProtocolError
    from pypmix.standard.releases import Release

    Senders = list[tuple[int, Release]]
    Stored = tuple[int, bytes, int, Release]
    Ranks = list[tuple[Proc, list[tuple[str, Stored]]]]

MAGIC = b"pypmix\0"
VERSION = 2

_NONE: Mapping[Proc, int] = {}

Contribution = tuple[int, int, int]
"""A server's part in a collective: its number, the identity of the last result stored, and how many procs it is of."""

ALONE: Contribution = (0, 0, 0)
"""The contribution of data that is not part of a collective."""

IDENTITIES = 1 << 64
"""Numbers and identities are below this."""

_HEAD = Struct(">QQ")

_BEGINNING = MAGIC + BYTES[VERSION]

_SENDER_SIZE = 5
"""The size of a list of one sender whose numbers are below 128."""

_MAX_ALONE = 64
_ALONE: dict[bytes, Senders] = {}
"""Such lists, by their bytes."""

_REMOTE = 2
"""The bit of a scope that makes a value visible to other nodes."""


def encode_modex(
    data: Iterable[tuple[Proc, Iterable[Stored]]],
    stamps: Mapping[Proc, int] = _NONE,
    bases: Mapping[Proc, int] = _NONE,
    contribution: Contribution = ALONE,
) -> bytes:
    """Encode the blob of a server.

    Args:
        data: Procs, and the values that each has committed for others: the scope, the packed KVAL, and the buffer type
            and the release of the packing client.
        stamps: The stamps of their last commits; by default 0.
        bases: The stamps since which the values were committed; by default 0, for all values.
        contribution: The server's part in a collective.
    """
    senders: dict[tuple[int, Release], int] = {}
    parts = []
    for proc, values in data:
        nspace = proc.nspace.encode()
        packed = []
        for scope, raw, buffer_type, release in values:
            sender = senders.setdefault((buffer_type, release), len(senders))
            packed += [BYTES[scope & ~MARKS], flex(sender), flex(len(raw)), raw]
        parts += [flex(len(nspace)), nspace, flex(proc.rank), flex(stamps.get(proc, 0))]
        parts += [flex(bases.get(proc, 0)), flex(len(packed) // 4), *packed]
    head = [_HEAD.pack(*contribution[:2]), flex(contribution[2]), flex(len(senders))]
    for buffer_type, release in senders:
        head += [BYTES[buffer_type], *[flex(number) for number in release]]
    head += parts
    return b"".join((_BEGINNING, flex(sum(map(len, head))), *head))


def decode_modex(
    data: bytes,
    stamps: dict[Proc, int] | None = None,
    bases: dict[Proc, int] | None = None,
    contributions: list[Contribution] | None = None,
    own: Container[int] = (),
) -> Ranks:
    """Decode concatenated blobs of servers into procs and the values that each has committed, with their keys.

    Args:
        data: The blobs.
        stamps: Receives the stamps of the procs' last commits.
        bases: Receives the stamps since which the values were committed, other than 0.
        contributions: Receives the part of each server in a collective.
        own: The numbers of contributions of this server, whose data is left out.

    Raises:
        RemoteProtocolError: The data is malformed.
    """
    found: Ranks = []
    stamps, bases = {} if stamps is None else stamps, {} if bases is None else bases
    for body in _bodies(data):
        try:
            contribution = _take(body, found, stamps, bases, own)
        except IndexError:
            raise broken("the data of a server ends too early") from None
        if contributions is not None:
            contributions.append(contribution)
    return found


def _bodies(data: bytes) -> Iterator[bytes]:
    """Yield the blobs of servers without their beginnings."""
    pos = 0
    while pos < len(data):
        if not data.startswith(_BEGINNING, pos):
            raise _wrong_beginning(data, pos)
        try:
            body, pos = decode.raw(data, pos + len(_BEGINNING), 0)
        except IndexError:
            raise broken("the data of a server ends too early") from None
        yield body


def _wrong_beginning(data: bytes, pos: int) -> RemoteProtocolError:
    version = data[pos + len(MAGIC) : pos + len(_BEGINNING)]
    if not data.startswith(MAGIC, pos):
        return broken("the data is not of a pypmix server: all servers of a job must be of one engine")
    if not version:
        return broken("the data of a server ends too early")
    return broken(f"the data has the format {version[0]}; this pypmix reads the format {VERSION}")


def _senders(body: bytes, pos: int) -> tuple[Senders, int]:
    """Decode the senders of a blob; return them and the next position."""
    flex = decode.flex
    count, pos = _count(body, pos)
    senders: Senders = []
    for _ in range(count):
        buffer_type = body[pos]
        if buffer_type not in (PLAIN, DESCRIBED):
            raise broken(f"a buffer type is {PLAIN} or {DESCRIBED}, not {buffer_type}")
        major, pos = flex(body, pos + 1)
        minor, pos = flex(body, pos)
        patch, pos = flex(body, pos)
        senders.append((buffer_type, (major, minor, patch)))
    return senders, pos


def _take(
    body: bytes, ranks: Ranks, stamps: dict[Proc, int], bases: dict[Proc, int], own: Container[int] = ()
) -> Contribution:
    """Decode a blob without its beginning; return the contribution that it is."""
    pos = _HEAD.size
    procs = body[pos]
    number, stored = _HEAD.unpack_from(body)
    pos += 1
    if procs > 127:
        procs, pos = decode.flex(body, pos - 1)
    if number in own:
        return number, stored, procs
    # Nearly all blobs have one sender of the same release, or no values.
    alone = body[pos : pos + _SENDER_SIZE]
    senders = _ALONE.get(alone)
    if not body[pos]:
        senders = []
        pos += 1
    elif senders is None:
        start = pos
        senders, pos = _senders(body, pos)
        if pos == start + _SENDER_SIZE:
            keep(_ALONE, _MAX_ALONE, alone, senders)
    else:
        pos += _SENDER_SIZE
    _take_procs(body, pos, senders, ranks, stamps, bases)
    return number, stored, procs


def _take_procs(
    body: bytes, pos: int, senders: Senders, ranks: Ranks, stamps: dict[Proc, int], bases: dict[Proc, int]
) -> None:
    # Each server reads the data of all others after a collecting fence: numbers below 128, nearly all, cost no call.
    flex = decode.flex
    size = len(body)
    while pos < size:
        length = body[pos]
        pos += 1
        if length > 127:
            length, pos = flex(body, pos - 1)
        name = body[pos : pos + length]
        pos += length
        rank = body[pos]
        pos += 1
        if rank > 127:
            rank, pos = flex(body, pos - 1)
        if not 0 < length <= MAX_NSLEN or rank > RANK_VALID:
            raise broken("the data of a server names an invalid proc")
        try:
            nspace = name.decode()
        except UnicodeDecodeError:
            raise broken("the data of a server names an invalid proc") from None
        stamp = body[pos]
        pos += 1
        if stamp > 127:
            stamp, pos = flex(body, pos - 1)
        base = body[pos]
        pos += 1
        if base > 127:
            base, pos = flex(body, pos - 1)
        count = body[pos]
        pos += 1
        if count > 127 or count > size - pos:
            count, pos = _count(body, pos - 1)
        values: list[tuple[str, Stored]] = []
        if count:
            pos = _take_values(body, pos, count, senders, values)
        proc = Proc.unchecked(nspace, rank)
        ranks.append((proc, values))
        stamps[proc] = stamp
        if base:
            bases[proc] = base


def _take_values(body: bytes, pos: int, count: int, senders: Senders, values: list[tuple[str, Stored]]) -> int:
    """Decode the values of a proc; return the next position."""
    size = len(body)
    for _ in range(count):
        scope = body[pos]
        sender = body[pos + 1]
        length = body[pos + 2]
        pos += 3
        if sender > 127 or length > 127:
            sender, pos = decode.flex(body, pos - 2)
            length, pos = decode.flex(body, pos)
        if not scope & _REMOTE or scope > 3:
            raise broken(f"values of scope {scope} are not for other servers")
        if sender >= len(senders):
            raise broken("the data of a server has a value without a proc")
        start, pos = pos, pos + length
        if pos > size:
            raise broken(f"{length} bytes are announced where {size - start} follow")
        raw = body[start:pos]
        buffer_type, release = senders[sender]
        key, marks = split_kval(raw, buffer_type, release)
        if not key:
            raise broken("the data of a server has an invalid value")
        values.append((key, (scope | marks, raw, buffer_type, release)))
    return pos


def rename_modex(data: bytes, name: Callable[[str], str]) -> bytes:
    """Replace the nspaces of the procs in blobs; the values are unchanged.

    Args:
        data: The blobs.
        name: Returns the new name of an nspace.

    Raises:
        RemoteProtocolError: The data is malformed.
    """
    return b"".join([_rename(body, name) for body in _bodies(data)])


def _rename(body: bytes, name: Callable[[str], str]) -> bytes:
    stamps: dict[Proc, int] = {}
    bases: dict[Proc, int] = {}
    found: Ranks = []
    try:
        contribution = _take(body, found, stamps, bases)
    except IndexError:
        raise broken("the data of a server ends too early") from None
    renamed = {proc: Proc.unchecked(name(proc.nspace), proc.rank) for proc, _ in found}
    values = [(renamed[proc], [stored for _, stored in items]) for proc, items in found]
    named, since = ({renamed[proc]: stamp for proc, stamp in each.items()} for each in (stamps, bases))
    return encode_modex(values, named, since, contribution)


def _count(body: bytes, pos: int) -> tuple[int, int]:
    """Decode the number of elements that follow; each takes at least one byte."""
    number, pos = decode.flex(body, pos)
    if number > len(body) - pos:
        raise broken(f"{number} values are announced in {len(body) - pos} bytes")
    return number, pos
