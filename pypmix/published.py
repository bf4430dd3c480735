"""The values that lookups return."""

from __future__ import annotations

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pypmix.standard.types import Proc

    Base = dict[str, "Published"]
else:
    Base = dict


class Published(Record):
    """A published value and its publisher, as a lookup of several keys returns it.

    Attributes:
        value: The value as a plain Python object.
        by: The proc that published it.

    Example:
        >>> found = me.lookup(["acme.port", "acme.name"])
        >>> print(found["acme.port"].value, "by", found["acme.port"].by)
    """

    value: Any
    by: Proc


class LookupResults(Base):
    """The results of a lookup of several keys: a dict of keys and `Published` values, in the order asked for.

    Attributes:
        missing: The keys that are not published where the caller may look them up.

    Example:
        >>> found = me.lookup(["acme.port", "acme.name"])
        >>> print({key: each.value for key, each in found.items()}, "unpublished:", found.missing)
    """

    def __init__(self, values: Mapping[str, Published], keys: Iterable[str] = ()) -> None:
        super().__init__(values)
        self.missing: frozenset[str] = frozenset(keys) - values.keys()
