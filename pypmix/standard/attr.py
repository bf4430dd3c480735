"""Attributes as typed keys: `attrs.TIMEOUT(5)` makes an info of the right wire type."""

from __future__ import annotations

from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.releases import Release, parse_release
from pypmix.standard.types import Info, Value
from pypmix.standard.values import check, type_name

T = TypeVar("T")


class Attr(Generic[T]):
    """An attribute of the Standard: its key string, the types its value may have, and the releases that know it.

    Calling it makes an `Info`; a value of a wrong type is a `TypeError`, one out of range an `OverflowError`.
    It stands wherever a key is expected, and equals and hashes as its key string.
    """

    __slots__ = ("element", "key", "name", "other", "since", "types", "until")

    def __init__(
        self,
        name: str,
        key: str,
        types: tuple[int, ...],
        since: str = "4.2",
        element: int | None = None,
        until: str | None = None,
        other: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.name = name
        self.key = key
        self.types = types
        self.since = since
        self.element = element
        self.until = until
        self.other = other

    def __call__(self, value: T | Value, *, flags: int = 0) -> Info:
        """Return the info that carries `value` under this key.

        Args:
            value: A Python value of the attribute's type, or an explicit `Value` of one of its types.
            flags: `InfoFlags` to set, such as `InfoFlags.REQUIRED`.
        """
        return Info(self.key, self.value(value), flags)

    def value(self, value: object) -> Value:
        """Return `value` as a typed `Value`, of the first of the attribute's types that holds such an object."""
        if isinstance(value, Value):
            if value.type in self.types:
                return value
            raise TypeError(f"{self.name} takes {self._expected()}, not {type_name(value.type)}")
        problem: Exception | None = None
        for type_ in self.types:
            try:
                return Value(type_, check(type_, value, self.element))
            except OverflowError as error:
                raise OverflowError(f"{self.name}: {error}") from None
            except (TypeError, ValueError) as error:
                problem = problem or error
        raise TypeError(f"{self.name} takes {self._expected()}: {problem}")

    def key_for(self, release: Release) -> str:
        """Return the key string that a library of this release uses."""
        key = self.key
        for since, other in self.other:
            if tuple(release) >= parse_release(since):
                key = other
        return key

    def known_to(self, release: Release) -> bool:
        """Tell whether a library of this release has the attribute in its dictionary.

        Releases are parallel branches, so `since` may name a floor for each of several; the floor of the
        release's own branch decides, and without one the floors of older branches do.
        """
        if self.until:
            numbers = self.until.count(".") + 1
            if release[:numbers] > parse_release(self.until)[:numbers]:
                return False
        branch = tuple(release[:2])
        floors = [parse_release(floor) for floor in self.since.split(",")]
        for floor in floors:
            if floor[:2] == branch:
                return tuple(release) >= floor
        return any(floor[:2] < branch for floor in floors)

    def _expected(self) -> str:
        return " or ".join(type_name(type_) for type_ in self.types)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.key == other
        return self is other or (isinstance(other, Attr) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.key

    def __repr__(self) -> str:
        return f"attrs.{self.name}"
