"""Small immutable records, declared as a class with annotations.

The standard library's generators of such classes take more start-up time than all other imports of a rank, so this
module works without generated source.
"""

from __future__ import annotations

from pypmix.standard._typing import dataclass_transform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    def tuple_item(index: int) -> Any:
        """Return a read-only attribute of a subclass of tuple: the item at an index."""

else:
    try:
        # The descriptor of named tuples: no Python call for an attribute.
        from _collections import _tuplegetter
    except ImportError:
        from operator import itemgetter

        def tuple_item(index):
            return property(itemgetter(index))

    else:

        def tuple_item(index):
            return _tuplegetter(index, None)


def _arguments(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return a value for each field, from the arguments and the defaults."""
    name, fields, defaults = cls.__name__, cls.__fields__, cls.__defaults__
    if len(args) > len(fields):
        raise TypeError(f"{name}() takes at most {len(fields)} arguments, {len(args)} were given")
    values = list(args)
    for field in fields[len(args) :]:
        if field in kwargs:
            values.append(kwargs.pop(field))
        elif field in defaults:
            values.append(defaults[field])
        else:
            raise TypeError(f"{name}() lacks the argument {field!r}")
    if kwargs:
        raise TypeError(f"{name}() got an unexpected or repeated argument {next(iter(kwargs))!r}")
    return values


@dataclass_transform(frozen_default=True)
class RecordType(type):
    """The metaclass: annotated names become slots, their assigned values become defaults."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> RecordType:
        declared = namespace["__declared__"] = dict(namespace.get("__annotations__", {}))
        own = [field for field in declared if not field.startswith("__")]
        fields = tuple(own)
        defaults: dict[str, Any] = {}
        for base in bases:
            fields = getattr(base, "__fields__", ()) + fields
            defaults.update(getattr(base, "__defaults__", {}))
        for field in own:
            if field in namespace:
                defaults[field] = namespace.pop(field)
        namespace["__slots__"] = tuple(own)
        namespace["__fields__"] = namespace["__match_args__"] = fields
        namespace["__defaults__"] = defaults
        cls = super().__new__(mcls, name, bases, namespace)
        # The slots' own setters, because __setattr__ refuses and object.__setattr__ is slower.
        cls.__setters__ = tuple([getattr(cls, field).__set__ for field in fields])  # type: ignore[attr-defined]
        cls.__checks__ = cls.__validate__ is not _sound  # type: ignore[attr-defined]
        return cls


_new = object.__new__


def _sound(self: Record) -> None:
    """Check the fields; a subclass raises `TypeError` or `ValueError` here."""


class Record(metaclass=RecordType):
    """Base of all records: positional or keyword construction, value equality, hashing, `replace`."""

    if not TYPE_CHECKING:

        def __init__(self, *args, **kwargs):
            # Of the instance, which the interpreter finds faster than those of the class.
            setters = self.__setters__
            if kwargs or len(args) != len(setters):
                args = _arguments(self.__class__, args, kwargs)
            # There are as many as setters; a zip that makes sure of that takes twice as long.
            for place, value in enumerate(args):
                setters[place](self, value)
            if self.__checks__:
                self.__validate__()

    @classmethod
    def unchecked(cls, *values: Any) -> Self:
        """Make a record from a value for each field, which are known to be sound."""
        made = _new(cls)
        for place, value in zip(cls.__setters__, values, strict=True):  # type: ignore[attr-defined]
            place(made, value)
        return made

    __validate__ = _sound

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def astuple(self) -> tuple[Any, ...]:
        """Return the values of the fields, in their order.

        Example:
            >>> Envar("PATH", "/opt/acme/bin").astuple()
            ('PATH', '/opt/acme/bin', ':')
        """
        return tuple([getattr(self, field) for field in type(self).__fields__])  # type: ignore[attr-defined]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the named fields changed.

        Example:
            >>> Envar("PATH", "/opt/acme/bin").replace(value="/usr/bin").value
            '/usr/bin'
        """
        fields = type(self).__fields__  # type: ignore[attr-defined]
        return type(self)(**{**dict(zip(fields, self.astuple(), strict=True)), **changes})

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self.astuple() == other.astuple()

    def __hash__(self) -> int:
        return hash((type(self), self.astuple()))

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), self.astuple()

    def __repr__(self) -> str:
        fields = type(self).__fields__  # type: ignore[attr-defined]
        shown = ", ".join(f"{f}={v!r}" for f, v in zip(fields, self.astuple(), strict=True))
        return f"{type(self).__name__}({shown})"
