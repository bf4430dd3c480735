"""The `PMIX_*` names: constants as ints, attributes as their key strings."""

from __future__ import annotations

from pypmix.standard import attrs
from pypmix.standard.attr import Attr
from pypmix.standard.names import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Key(str):
    """The key string of an attribute, for programs of both generations of the official binding.

    There, it is a `str` from 6.0 on, and `bytes` before; programs for the latter decode it, and compare it with bytes.
    """

    __slots__ = ()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the key itself, as bytes would."""
        return str(self)

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other.decode("utf-8", "replace") if isinstance(other, bytes) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


_values: dict[str, int | Key] = {}


def table() -> dict[str, int | Key]:
    """Return every name with its value."""
    if not _values:
        found: dict[str, int | Key] = {}
        for name, value in constants():
            found[f"PMIX_{name}"] = Key(value) if isinstance(value, str) else value
        for name in attrs.__all__:
            attr: Any = getattr(attrs, name)
            if isinstance(attr, Attr):
                found[f"PMIX_{name}"] = Key(attr.key)
        _values.update(found)  # at once, so that no other thread finds it half full
    return _values


def __getattr__(name: str) -> int | Key:
    try:
        return table()[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
