"""What servers give to what a group does together, and how that ends: as records, and as bytes."""

from __future__ import annotations

from pypmix.data import DataBuffer
from pypmix.host.exchange import fields
from pypmix.standard import codes
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.standard.types import Info, Proc

    Key = tuple[str, int]

CONSTRUCT, OFFER, DESTRUCT, FENCE, CONNECT, DISCONNECT = range(6)
"""What a group may do together. An offer is one caller's part of a construct whose others its server does not know."""

OPERATIONS = ("group_construct", "group_construct", "group_destruct", "fence", "connect", "disconnect")

MAX_PARTS = 1 << 20


class Part(Record):
    """What one server gives.

    Attributes:
        number: Its number, which the server gives to nothing else.
        kind: What it is a part of.
        name: The group's name.
        procs: The members as the server sees them; of an offer, the caller, or nobody where that is not known.
        status: How it stands with the members of the server.
        life: The latest life of those.
        infos: What they ask for, and what they tell the others.
        known: Who is known to be absent to all callers of the server.
        leaders: Who has led, as the server was told.
        jobs: Job infos that other servers lack, by nspace.
        data: What else the server gives.
    """

    number: int
    kind: int
    name: str
    procs: tuple[Proc, ...] = ()
    status: int = 0
    life: int = 1
    infos: tuple[Info, ...] = ()
    known: tuple[Proc, ...] = ()
    leaders: tuple[Proc, ...] = ()
    jobs: tuple[tuple[str, bytes], ...] = ()
    data: bytes = b""


class Outcome(Record):
    """How it has ended, the same for all.

    Attributes:
        status: The status.
        detail: What there is to say about that.
        missing: Because of whom.
        infos: What is told to all.
        jobs: Job infos, one after the other.
        data: What the servers have given, one after the other.
        moved: Nothing has ended: somebody else coordinates it.
        roster: Which parts it is the end of: servers, and the numbers that they gave these.
    """

    status: int = 0
    detail: str = ""
    missing: tuple[Proc, ...] = ()
    infos: tuple[Info, ...] = ()
    jobs: bytes = b""
    data: bytes = b""
    moved: bool = False
    roster: tuple[Key, ...] = ()


def pack_part(part: Part) -> bytes:
    """Return a part as bytes."""
    return fields.pack(
        part.kind,
        fields.number(part.number),
        fields.text(part.name),
        _procs(part.procs),
        fields.number(part.status),
        fields.number(part.life),
        _infos(part.infos),
        _procs(part.known),
        _procs(part.leaders),
        fields.pack(0, *[field for nspace, job in part.jobs for field in (fields.text(nspace), job)]),
        part.data,
    )


def unpack_part(data: bytes) -> Part:
    """Return the part.

    Raises:
        RemoteProtocolError: It is none.
    """
    kind, found = fields.unpack(data)
    number, name, procs, status, life, infos, known, leaders, jobs, rest = fields.expect(found, 10)
    if kind >= len(OPERATIONS):
        raise fields.broken(f"there is no operation {kind}")
    told = fields.unpack(jobs)[1]
    if len(told) % 2:
        raise fields.broken("a job info has no nspace")
    return Part(
        fields.to_number(number),
        kind,
        fields.to_text(name),
        _to_procs(procs),
        fields.to_number(status),
        fields.to_number(life),
        _to_infos(infos),
        _to_procs(known),
        _to_procs(leaders),
        tuple(zip(map(fields.to_text, told[::2]), told[1::2], strict=True)),
        rest,
    )


def pack_outcome(outcome: Outcome) -> bytes:
    """Return an outcome as bytes."""
    return fields.pack(
        int(outcome.moved),
        fields.number(outcome.status),
        fields.text(outcome.detail),
        _procs(outcome.missing),
        _infos(outcome.infos),
        outcome.jobs,
        outcome.data,
        fields.pack(0, *[field for key in outcome.roster for field in pack_key(key)]),
    )


def unpack_outcome(data: bytes) -> Outcome:
    """Return the outcome.

    Raises:
        RemoteProtocolError: It is none.
    """
    moved, found = fields.unpack(data)
    status, detail, missing, infos, jobs, rest, roster = fields.expect(found, 7)
    keys = fields.unpack(roster)[1]
    if len(keys) % 2:
        raise fields.broken("a part has no number")
    return Outcome(
        fields.to_number(status),
        fields.to_text(detail),
        _to_procs(missing),
        _to_infos(infos),
        jobs,
        rest,
        bool(moved),
        tuple(zip(map(fields.to_text, keys[::2]), map(fields.to_number, keys[1::2]), strict=True)),
    )


def pack_key(key: Key) -> tuple[bytes, bytes]:
    """Return which part of which server, as fields."""
    return fields.text(key[0]), fields.number(key[1])


def pack_words(*numbers: int, name: str = "") -> bytes:
    """Return some numbers and a name as bytes."""
    return fields.pack(0, fields.text(name), *map(fields.number, numbers))


def unpack_words(data: bytes, count: int) -> tuple[str, list[int]]:
    """Return the name and the numbers.

    Raises:
        RemoteProtocolError: There are not so many.
    """
    name, *numbers = fields.expect(fields.unpack(data)[1], count + 1)
    return fields.to_text(name), [fields.to_number(number) for number in numbers]


_MEMO = 64
_MEMO_PROCS = 4096
_MEMO_BYTES = 64 << 10
"""How many lists of procs are remembered with their bytes, and how long ones.

Those who do something together do it again.
"""

_packed: dict[tuple[Proc, ...], bytes] = {}
_unpacked: dict[bytes, tuple[Proc, ...]] = {}


def _procs(procs: tuple[Proc, ...]) -> bytes:
    found = _packed.get(procs)
    if found is None:
        found = DataBuffer().pack(codes.PROC, *procs).bytes()
        if len(_packed) >= _MEMO:
            _packed.clear()
        if len(procs) <= _MEMO_PROCS:
            _packed[procs] = found
    return found


def _to_procs(data: bytes) -> tuple[Proc, ...]:
    found = _unpacked.get(data)
    if found is None:
        found = tuple(DataBuffer(data).unpack(codes.PROC, MAX_PARTS))
        if len(_unpacked) >= _MEMO:
            _unpacked.clear()
        if len(data) <= _MEMO_BYTES:
            _unpacked[data] = found
    return found


def _infos(infos: Iterable[Info]) -> bytes:
    return DataBuffer().pack(codes.INFO, *infos).bytes()


def _to_infos(data: bytes) -> tuple[Info, ...]:
    found = tuple(DataBuffer(data).unpack(codes.INFO, MAX_PARTS))
    if not all(info.key for info in found):
        raise RemoteProtocolError("an info has no key", operation="unpack")
    return found
