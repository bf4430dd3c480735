"""Layouts: the parts of a message, as data. A layout is a name and a sequence of fields."""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.errors import SUCCESSES
from pypmix.wire.codec import PLAIN, Packer, Unpacker
from pypmix.wire.decode import METERED_FROM, broken, context_of
from pypmix.wire.readers import fit_infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pypmix.standard.releases import Release
    from pypmix.wire.readers import Reader


MAX_BLOCKS = 64
"""The most blocks of a commit; clients send one for each scope."""


class Field:
    """A part of a message, with the name of the value that it carries.

    Attributes:
        name: The name of the value.
        optional: Whether the message may end before it.
    """

    __slots__ = ("name", "optional")

    many = False

    def __init__(self, name: str, optional: bool = False) -> None:
        self.name = name
        self.optional = optional

    @property
    def default(self) -> Any:
        """The value of a missing field."""
        return () if self.many else None

    def put(self, packer: Packer, value: Any) -> None:
        """Append the value."""
        raise NotImplementedError

    def take(self, unpacker: Unpacker) -> Any:
        """Read the value."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class One(Field):
    """One value of a type, in a separate pack."""

    __slots__ = ("type",)

    def __init__(self, name: str, type: int, optional: bool = False) -> None:
        super().__init__(name, optional)
        self.type = type

    def put(self, packer: Packer, value: Any) -> None:
        packer.pack(self.type, value)

    def take(self, unpacker: Unpacker) -> Any:
        return unpacker.one(self.type)


class Counted(One):
    """A SIZE and, unless it is 0, so many values of a type in one pack."""

    __slots__ = ()

    many = True

    def put(self, packer: Packer, value: Any) -> None:
        packer.counted(self.type, value)

    def take(self, unpacker: Unpacker) -> Any:
        return unpacker.counted(self.type)


class CountedEach(One):
    """A SIZE, and so many values of a type, each in a separate pack."""

    __slots__ = ()

    many = True

    def put(self, packer: Packer, value: Any) -> None:
        packer.pack(codes.SIZE, len(value))
        for item in value:
            packer.pack(self.type, item)

    def take(self, unpacker: Unpacker) -> Any:
        found = []
        for _ in range(unpacker.announced()):
            found.append(unpacker.one(self.type))
        return tuple(found)


class Repeated(One):
    """Values of a type, each in a separate pack, until the message ends."""

    __slots__ = ()

    many = True

    def put(self, packer: Packer, value: Any) -> None:
        for item in value:
            packer.pack(self.type, item)

    def take(self, unpacker: Unpacker) -> Any:
        values = []
        while unpacker.more():
            values.append(unpacker.one(self.type))
        return tuple(values)


class Blocks(Field):
    """Pairs of a scope and a buffer of KVALs, until the message ends; the buffers are kept as bytes."""

    __slots__ = ()

    many = True

    def put(self, packer: Packer, value: Any) -> None:
        from pypmix.standard.structures import Buffer

        for scope, data in value:
            packer.pack(codes.SCOPE, scope).pack(codes.BUFFER, Buffer(packer.buffer_type, data))

    def take(self, unpacker: Unpacker) -> Any:
        blocks: list[tuple[int, bytes]] = []
        while unpacker.more():
            if len(blocks) >= MAX_BLOCKS:
                raise broken(f"a commit has more than {MAX_BLOCKS} blocks")
            scope = unpacker.one(codes.SCOPE)
            block = unpacker.one(codes.BUFFER)
            if block.kind != unpacker.buffer_type:
                raise broken(f"a buffer of kind {block.kind} came where {unpacker.buffer_type} was agreed")
            blocks.append((scope, block.data))
        return tuple(blocks)


class Rest(Field):
    """All remaining bytes, undecoded: packs of KVAL."""

    __slots__ = ()

    @property
    def default(self) -> bytes:
        return b""

    def put(self, packer: Packer, value: Any) -> None:
        packer.pack_raw(value)

    def take(self, unpacker: Unpacker) -> Any:
        return unpacker.rest()


class Sentinel(One):
    """A SIZE whose greatest value means None."""

    # The greatest value of 32 bits is a valid number: PRRTE counts its context ids down from it.

    __slots__ = ()

    nothing = 0xFFFFFFFFFFFFFFFF

    def __init__(self, name: str, optional: bool = False) -> None:
        super().__init__(name, codes.SIZE, optional)

    def put(self, packer: Packer, value: Any) -> None:
        packer.pack(codes.SIZE, self.nothing if value is None else value)

    def take(self, unpacker: Unpacker) -> Any:
        number = unpacker.one(codes.SIZE)
        return None if number == self.nothing else number


class Flagged(One):
    """A BOOL and, if it is true, a value."""

    __slots__ = ()

    def put(self, packer: Packer, value: Any) -> None:
        packer.pack(codes.BOOL, value is not None)
        if value is not None:
            packer.pack(self.type, value)

    def take(self, unpacker: Unpacker) -> Any:
        return unpacker.one(self.type) if unpacker.one(codes.BOOL) else None


class Layout:
    """The parts of a message.

    Args:
        name: The name of the message in errors.
        fields: Its fields, in order.
        command: The number of the command that a request starts with; None for other messages.
        reply: Whether it is a reply, which may end after any field; a reply with an error has only the status.
        foreign: Fields of the same message in other releases, which `encode` accepts and ignores.
    """

    __slots__ = ("_accepted", "_defaults", "_start", "command", "fields", "name", "reply")

    def __init__(
        self,
        name: str,
        fields: Iterable[Field],
        command: int | None = None,
        reply: bool = False,
        foreign: Iterable[Field] = (),
    ) -> None:
        self.name = name
        self.fields = tuple(fields)
        self.command = command
        self._start = None if command is None else bytes((2, command))
        """The first bytes of a plain request: a pack of one value, and the command."""
        self.reply = reply
        defaults = {field.name: field.default for field in foreign}
        self._defaults = defaults | {field.name: field.default for field in self.fields}
        self._accepted = frozenset(self._defaults)

    def encode_fit(self, buffer_type: int, rule: int, **values: Any) -> bytes:
        """Encode the message without the infos that its reader cannot decode; see `encode`."""
        for field in self.fields:
            if isinstance(field, One) and field.many and field.type == codes.INFO and values.get(field.name):
                values[field.name] = fit_infos(values[field.name], rule)
        return self.encode(buffer_type, rule, **values)

    def encode(self, buffer_type: int, reader: Reader, **values: Any) -> bytes:
        """Encode the message.

        Args:
            buffer_type: 1 for a plain buffer, 2 for a described one.
            reader: The reader's release, or its rule.
            values: A value for every field; optional fields, and fields that only other releases have, may be left
                out.

        Raises:
            TypeError: A value is missing, or of another kind than its field holds, or belongs to no field.
            NotSupported: The reader cannot decode a value.
        """
        unknown = values.keys() - self._accepted
        if unknown:
            raise TypeError(f"{self.name} has no {min(unknown)}")
        packer = Packer(buffer_type, reader)
        if self.command is not None:
            packer.pack(codes.COMMAND, self.command)
        fields = self.fields
        if self.reply and values.get("status", 0) not in SUCCESSES:
            defaults = self._defaults
            if all(name == "status" or value in (None, defaults[name]) for name, value in values.items()):
                fields = fields[:1]
        for position, field in enumerate(fields):
            value = values.get(field.name)
            if value is None:
                value = field.default
                if field.optional and not any(values.get(later.name) for later in fields[position + 1 :]):
                    break
                if value is None and not isinstance(field, Sentinel | Flagged) and not _nullable(field):
                    raise TypeError(f"{self.name} needs {field.name}")
            field.put(packer, value)
        return packer.bytes()

    def around(self, name: str, buffer_type: int, reader: Reader, **values: Any) -> tuple[bytes, Field, bytes]:
        """Encode the message except for one field: return the bytes before it, the field, and the bytes after it.

        A sender of many messages that differ only in this field encodes the rest once.

        Args:
            name: The name of the field.
            buffer_type: 1 for a plain buffer, 2 for a described one.
            reader: The reader's release, or its rule.
            values: The values of the other fields; a missing field has no value.
        """
        index = next(index for index, field in enumerate(self.fields) if field.name == name)
        parts: list[bytes] = []
        for fields in (self.fields[:index], self.fields[index + 1 :]):
            packer = Packer(buffer_type, reader)
            if self.command is not None and not parts:
                packer.pack(codes.COMMAND, self.command)
            for field in fields:
                field.put(packer, values.get(field.name, field.default))
            parts.append(packer.bytes())
        return parts[0], self.fields[index], parts[1]

    def decode(self, data: bytes, buffer_type: int, release: Release) -> dict[str, Any]:
        """Decode a message into the values of its fields, by name.

        Missing values are None, or an empty tuple for a field with several values. Bytes after the last field are
        ignored, as newer releases add fields.

        Args:
            data: The message; a request starts with its command.
            buffer_type: 1 for a plain buffer, 2 for a described one.
            release: The writer's release.

        Raises:
            RemoteProtocolError: The message is malformed.
        """
        # A single request must not occupy the server's only thread for long.
        context = context_of(release, len(data)) if len(data) > METERED_FROM and not self.reply else None
        is_known = data[:2] == self._start and buffer_type == PLAIN
        unpacker = Unpacker(data, buffer_type, release, context, 2 if is_known else 0)
        if self.command is not None and not is_known:
            command = unpacker.one(codes.COMMAND)
            if command != self.command:
                raise broken(f"{self.name} starts with command {self.command}, not {command}")
        values = dict(self._defaults)
        tolerant = False
        for field in self.fields:
            if (tolerant or field.optional) and not unpacker.more():
                break
            values[field.name] = field.take(unpacker)
            tolerant = self.reply
        return values

    def __repr__(self) -> str:
        return f"Layout({self.name!r}, {list(self.fields)!r})"


def _nullable(field: Field) -> bool:
    return isinstance(field, One) and field.type == codes.STRING
