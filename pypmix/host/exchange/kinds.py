"""The records of a collective between servers: the contribution of a server, the decision, and the table of kinds."""

from __future__ import annotations

import struct

from pypmix.engine.collective import rules
from pypmix.host.exchange.codec import (
    BYTES,
    INFOS,
    LENGTH,
    NUMBER,
    PROCS,
    STATUS,
    TEXT,
    TEXTS,
    Field,
    broken,
    compressed,
    counted,
    expect,
    framed,
    framed_text,
    many,
    message,
    pack,
    record,
    unpack,
)
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterator

    from pypmix.engine.base import Cancellable
    from pypmix.host.exchange.places import Party, Places
    from pypmix.standard.errors import PMIxError
    from pypmix.standard.types import Info, Proc

    Key = tuple[str, int]
    """A contribution: the server that gives it, and the number that this server assigns to it and to nothing else."""

    Parts = tuple[tuple[str, "Part"], ...]
    """Contributions, each with its server."""

    _Procs = tuple[Proc, ...]
    _Rest = tuple[tuple[str, ...], tuple[Info, ...], _Procs, _Procs, Collection[Key], tuple[int, ...]]
    _More = tuple[tuple[Proc, ...], tuple[str, ...], tuple[Info, ...], Collection[Key]]

    OnAnswer = Callable[[bytes | None, PMIxError | None], None]
    OnOutcome = Callable[["Outcome"], None]

    Timer = Cancellable


class Kind(Record):
    """The rule of one kind of collective.

    Args:
        operation: The operation.
        loss_ends: A server that takes part and is lost ends it for all at once. Otherwise it continues without the
            procs of that server, and if the coordinator is lost, at the next one.
        needs_callers: It is void once all procs that have called it have ended.
        unknown: The participants are not known beforehand: contributions meet at the root of the session.
        remembered: Servers that contribute too late get its end.
        names_alike: It fails if servers name different members; otherwise the procs that all name take part.
        spreads: Large data does not pass through the coordinator.
    """

    operation: str
    loss_ends: bool = False
    needs_callers: bool = False
    unknown: bool = False
    remembered: bool = False
    names_alike: bool = False
    spreads: bool = False


GATHER, CONSTRUCT, OFFER, DESTRUCT, FENCE, CONNECT, DISCONNECT, GROUP_FENCE, GROUP_DISCONNECT = range(9)
"""The kinds. An offer is one caller's part of a construct whose other callers its server does not know. The last two
are for all members of a group, under its name.
"""

KINDS = {
    GATHER: Kind("allgather", loss_ends=True),
    CONSTRUCT: Kind(rules.CONSTRUCT, remembered=True, names_alike=True),
    OFFER: Kind(rules.CONSTRUCT, unknown=True),
    DESTRUCT: Kind(rules.DESTRUCT, needs_callers=True),
    FENCE: Kind(rules.FENCE, loss_ends=True, spreads=True),
    CONNECT: Kind(rules.CONNECT, needs_callers=True),
    DISCONNECT: Kind(rules.DISCONNECT, loss_ends=True),
    GROUP_FENCE: Kind(rules.FENCE, needs_callers=True),
    GROUP_DISCONNECT: Kind(rules.DISCONNECT, needs_callers=True),
}


class Part(Record):
    """The contribution of one server.

    Attributes:
        number: Its number, which the server assigns to nothing else.
        kind: The kind of the collective.
        name: The group's name, or another name that all callers of the same operation know.
        party: The members as the server names them; of an offer, the caller, or none if that is not known.
        servers: The servers that take part in an allgather, sorted.
        status: The status of the members of the server.
        incarnation: The latest incarnation of these.
        infos: The directives of these, and their infos for the others.
        losses: The procs that all callers of the server know to be lost.
        leaders: The former leaders that the server knows.
        data: The data that the server contributes.
        covers: The servers that it represents, this one first, if neighbours have contributed the same.
        numbers: The numbers that these have assigned to it, in the same order.
        sizes: How much data each represented server keeps, to send it itself; empty if none does.
    """

    number: int
    kind: int
    name: str
    party: Party
    servers: tuple[str, ...] = ()
    status: int = 0
    incarnation: int = 1
    infos: tuple[Info, ...] = ()
    losses: tuple[Proc, ...] = ()
    leaders: tuple[Proc, ...] = ()
    data: bytes = b""
    covers: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    if not TYPE_CHECKING:
        # There is one for each contribution: a generic constructor takes ten times as long.
        __setattr__, __delattr__ = object.__setattr__, object.__delattr__

        def __init__(
            self,
            number,
            kind,
            name,
            party,
            servers=(),
            status=0,
            incarnation=1,
            infos=(),
            losses=(),
            leaders=(),
            data=b"",
            covers=(),
            numbers=(),
            sizes=(),
        ):
            self.number = number
            self.kind = kind
            self.name = name
            self.party = party
            self.servers = servers
            self.status = status
            self.incarnation = incarnation
            self.infos = infos
            self.losses = losses
            self.leaders = leaders
            self.data = data
            self.covers = covers
            self.numbers = numbers
            self.sizes = sizes

    def keys(self, server: str) -> tuple[Key, ...]:
        """Return the contributions that it represents as a contribution of a server."""
        return tuple(zip(self.covers, self.numbers, strict=True)) if self.covers else ((server, self.number),)

    def kept(self, server: str) -> tuple[Key, ...]:
        """Return the servers that it represents as a contribution of a server, with how much data each keeps."""
        names = self.covers or (server,)
        return tuple(zip(names, self.sizes or (0,) * len(names), strict=True))

    def without(self, names: Container[str]) -> tuple[tuple[str, Part], ...]:
        """Return the rest of a contribution of several servers without some of them."""
        left = [key for key in zip(self.covers, self.numbers, strict=True) if key[0] not in names]
        if not left:
            return ()
        names, numbers = zip(*left, strict=True)
        sizes = tuple([size for name, size in self.kept("") if name not in names]) if self.sizes else ()
        return ((names[0], self.replace(number=numbers[0], covers=names, numbers=numbers, sizes=sizes)),)

    @property
    def procs(self) -> tuple[Proc, ...]:
        """The members as the server names them."""
        return self.party.procs

    @property
    def rule(self) -> Kind:
        """The rule of its kind."""
        return KINDS[self.kind]


class Keys:
    """The contributions that another server names, perhaps thousands: they are read only when they are used.

    Args:
        numbers: Their numbers, of eight bytes each.
        joined: The names of their servers, with a NUL between each two.
    """

    __slots__ = ("_joined", "_keys", "_numbers")

    def __init__(self, numbers: bytes, joined: bytes) -> None:
        if len(numbers) != 8 * (joined.count(0) + 1):
            raise broken(f"{joined.count(0) + 1} contributions have {len(numbers)} bytes of numbers")
        self._numbers = numbers
        self._joined = joined
        self._keys: tuple[Key, ...] | None = None

    def __len__(self) -> int:
        return len(self._numbers) // 8

    def __iter__(self) -> Iterator[Key]:
        if self._keys is None:
            numbers = struct.unpack(f"!{len(self)}q", self._numbers)
            self._keys = tuple(zip(_JOINED.read(self._joined), numbers, strict=True))
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return any(key == each for each in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys | tuple) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class Spread(Record):
    """The data that the servers of a collective have kept, and send each other (`spreading`).

    Attributes:
        root: The server that has decided it.
        number: A number that this server assigns to nothing else.
        sizes: The servers that take part, in the order of their names, each with the size of its data.
    """

    root: str
    number: int
    sizes: Collection[Key]


class Outcome(Record):
    """The decision, the same for all.

    Attributes:
        status: The status.
        detail: The text for the status.
        missing: The procs because of which it has failed.
        servers: The servers because of which it has failed.
        infos: The infos for all.
        data: The data of the servers, one after the other.
        apart: Nothing is decided: each server has to contribute once more, directly, and not to `servers`.
        parts: The contributions that it ends.
        spread: Data that servers have kept and that belongs to it, if any has.
    """

    status: int = 0
    detail: str = ""
    missing: tuple[Proc, ...] = ()
    servers: tuple[str, ...] = ()
    infos: tuple[Info, ...] = ()
    data: bytes = b""
    parts: Collection[Key] = ()
    apart: bool = False
    spread: Spread | None = None

    if not TYPE_CHECKING:
        __setattr__, __delattr__ = object.__setattr__, object.__delattr__

        def __init__(
            self, status=0, detail="", missing=(), servers=(), infos=(), data=b"", parts=(), apart=False, spread=None
        ):
            self.status = status
            self.detail = detail
            self.missing = missing
            self.servers = servers
            self.infos = infos
            self.data = data
            self.parts = parts
            self.apart = apart
            self.spread = spread


class Gathered(Record):
    """The result of an allgather.

    Attributes:
        blobs: The data of each participant, by its name; in the order of names.
        statuses: The status that each has contributed.
        absent: Participants that no longer take part; their data is missing.
    """

    blobs: dict[str, bytes]
    statuses: dict[str, int]
    absent: tuple[str, ...] = ()


_JOINED: Field[tuple[str, ...]] = Field(
    lambda names: TEXT.write("\0".join(names)), lambda data: tuple(TEXT.read(data).split("\0")) if data else ()
)
"""Names of servers, which contain no NUL: there may be thousands."""


def _write_keys(keys: Collection[Key]) -> bytes:
    if not keys:
        return b""
    names, numbers = zip(*keys, strict=True)
    return pack(0, struct.pack(f"!{len(numbers)}q", *numbers), _JOINED.write(names))


def _read_keys(data: bytes) -> Collection[Key]:
    if not data:
        return ()
    numbers, joined = expect(unpack(data)[1], 2)
    return Keys(numbers, joined)


_KEYS: Field[Collection[Key]] = Field(_write_keys, _read_keys)
"""Contributions, of which there may be thousands."""


def _read_sizes(data: bytes) -> tuple[int, ...]:
    if len(data) % 8:
        raise broken(f"sizes have {len(data)} bytes, which is not a multiple of 8")
    return struct.unpack(f"!{len(data) // 8}Q", data)


_SIZES: Field[tuple[int, ...]] = Field(lambda sizes: struct.pack(f"!{len(sizes)}Q", *sizes), _read_sizes)
_SPREAD: Field[Spread] = record(Spread, TEXT, NUMBER, _KEYS)

_HEAD = struct.Struct("!qqIB")
_pack_length, _unpack_length, _read_text = LENGTH.pack, LENGTH.unpack_from, TEXT.read
_HEAD_SIZE = _HEAD.size
_HEAD_LENGTH = _pack_length(_HEAD_SIZE)
_FIRST = struct.Struct("!BI")
_SECOND = struct.Struct("!IqqIBI")
_SECOND_SIZE = _SECOND.size
_NOTHING = bytes(4)
_REST: Field[_Rest] = message(TEXTS, INFOS, PROCS, PROCS, _KEYS, _SIZES)


def write_parts(parts: Parts) -> bytes:
    """Return contributions, each with its server, as bytes. Most are fences, which use only the first few fields."""
    fields: list[bytes] = [b"\0"]
    for server, part in parts:
        head = _HEAD.pack(part.number, part.status, part.incarnation, part.kind)
        keys = part.keys(server) if part.covers else ()
        rest = part.servers, part.infos, part.losses, part.leaders, keys, part.sizes
        more = _REST.write(rest) if any(rest) else b""
        data = part.data
        fields += (framed_text(server), _HEAD_LENGTH, head, framed_text(part.name), part.party.framed)
        fields += (_pack_length(len(data)), data, _pack_length(len(more)), more)
    return b"".join(fields)


def read_parts(places: Places, data: bytes) -> Parts:
    """Return the contributions in a message.

    The same servers contribute to the same collectives again: the name and the procs of one contribution that uses
    only the first few fields are found by their bytes.

    Args:
        places: Knows sets of procs that were named before.
        data: The message.

    Raises:
        RemoteProtocolError: It does not parse.
    """
    try:
        start = 5 + _FIRST.unpack_from(data)[1]
        length, number, status, incarnation, kind, named = _SECOND.unpack_from(data, start)
        middle = start + _SECOND_SIZE - 4
        after = middle + 4 + named
        after += 4 + _unpack_length(data, after)[0]
        end = after + 4 + _unpack_length(data, after)[0]
    except struct.error:
        return _read_all(places, data)
    known = places.plain.get(data[middle:after])
    if known is None or length != _HEAD_SIZE or kind not in KINDS or data[end:] != _NOTHING or not _is_status(status):
        return _read_all(places, data)
    label, party = known
    said = (), status, incarnation, (), (), (), data[after + 4 : end], (), (), ()
    return ((_read_text(data[5:start]), Part(number, kind, label, party, *said)),)


def _read_all(places: Places, data: bytes) -> Parts:
    fields = unpack(data)[1]
    if len(fields) % 6:
        raise broken(f"contributions have {len(fields)} fields, which is not a multiple of 6")
    read = counted(lambda _: tuple([_part(places, *fields[at : at + 6]) for at in range(0, len(fields), 6)]))
    return read(data)


def _is_status(number: int) -> bool:
    return -(1 << 31) <= number < 1 << 31


def _part(
    places: Places, server: bytes, head: bytes, name: bytes, party: bytes, data: bytes, more: bytes
) -> tuple[str, Part]:
    if len(head) != _HEAD_SIZE:
        raise broken(f"a contribution begins with {len(head)} bytes instead of {_HEAD_SIZE}")
    number, status, incarnation, kind = _HEAD.unpack(head)
    if kind not in KINDS or not _is_status(status):
        raise broken(f"a contribution has the kind {kind} and the status {status}, one of which does not exist")
    servers, infos, known, leaders, keys, sizes = _REST.read(more) if more else ((), (), (), (), (), ())
    if len(sizes) not in (0, len(keys) or 1):
        raise broken(f"{len(keys) or 1} contributions have {len(sizes)} sizes")
    covers, numbers = zip(*keys, strict=True) if keys else ((), ())
    label, named = TEXT.read(name), places.read(party)
    if not more:
        places.keep(framed(name) + framed(party), label, named)
    said = servers, status, incarnation, infos, known, leaders, data, covers, numbers, sizes
    return TEXT.read(server), Part(number, kind, label, named, *said)


def _write_outcome(outcome: Outcome) -> bytes:
    rest = outcome.missing, outcome.servers, outcome.infos, outcome.parts
    more: tuple[bytes, ...] = (_MORE.write(rest),) if any(rest) else ()
    if outcome.spread is not None:
        more = (*(more or (b"",)), _SPREAD.write(outcome.spread))
    if not (more or outcome.apart or outcome.status or outcome.detail):
        return b"".join((_GOOD, _pack_length(len(outcome.data)), outcome.data))
    return pack(int(outcome.apart), NUMBER.write(outcome.status), TEXT.write(outcome.detail), outcome.data, *more)


_GOOD = pack(0, NUMBER.write(0), b"")
"""The beginning of a success that has nothing but data."""

_PLAIN = _GOOD + _NOTHING
_SUCCESS = Outcome()


def _read_outcome(data: bytes) -> Outcome:
    if data == _PLAIN:
        return _SUCCESS
    if data.startswith(_GOOD) and data[len(_GOOD) : len(_PLAIN)] == _pack_length(max(0, len(data) - len(_PLAIN))):
        return Outcome(0, "", (), (), (), data[len(_PLAIN) :], (), False, None)
    return _read_failure(data)


@counted
def _read_failure(data: bytes) -> Outcome:
    apart, fields = unpack(data)
    spread = _SPREAD.read(fields.pop()) if len(fields) == 5 else None
    more = fields.pop() if len(fields) == 4 else b""
    missing, servers, infos, parts = _MORE.read(more) if more else ((), (), (), ())
    status, detail, given = expect(fields, 3)
    said = STATUS.read(status), TEXT.read(detail), missing, servers, infos, given
    return Outcome(*said, parts, bool(apart), spread)


_MORE: Field[_More] = compressed(message(PROCS, TEXTS, INFOS, _KEYS))
OUTCOME = Field(_write_outcome, _read_outcome)
CANCEL: Field[tuple[int, int, str, tuple[str, ...]]] = message(NUMBER, STATUS, TEXT, TEXTS)
"""The number of a contribution that is given up, the status, its detail, and the servers that are the cause."""

_GATHERED: Field[tuple[tuple[tuple[str, int, bytes], ...], tuple[str, ...]]] = message(
    many(message(TEXT, NUMBER, BYTES)), TEXTS
)


def pack_gathered(parts: list[tuple[str, Part]], absent: tuple[str, ...]) -> bytes:
    """Return the result of an allgather."""
    return _GATHERED.write((tuple([(name, part.status, part.data) for name, part in parts]), absent))


def unpack_gathered(data: bytes, participants: tuple[str, ...]) -> Gathered:
    """Return the result of an allgather of these servers.

    Raises:
        RemoteProtocolError: It does not parse, or is a result of other servers.
    """
    parts, absent = _GATHERED.read(data)
    gathered = Gathered({part[0]: part[2] for part in parts}, {part[0]: part[1] for part in parts}, absent)
    if sorted((*gathered.blobs, *absent)) != list(participants):
        raise broken("the result of an allgather is of other servers than its participants")
    return gathered
