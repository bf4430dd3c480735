"""Attributes as typed keys: `attrs.TIMEOUT(5)` makes an info of the right wire type."""

from __future__ import annotations

from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.releases import Release, parse_release
from pypmix.standard.types import Info, TypedKey, Value

T = TypeVar("T")


class Attr(TypedKey, Generic[T]):
    """An attribute of the Standard: its key string, the types its value may have, and the releases that know it.

    Calling it makes an `Info`; a value of a wrong type is a `TypeError`, one out of range an `OverflowError`.
    It may be used for its key everywhere, and equals and hashes as its key string.

    Example:
        >>> attrs.TIMEOUT(5)
        Info('pmix.timeout', int(5))
        >>> attrs.TIMEOUT == "pmix.timeout"
        True
    """

    __slots__ = ("other", "since", "until")

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
        super().__init__(name, key, types, element)
        self.since = since
        self.until = until
        self.other = other

    def __call__(self, value: T | Value, *, flags: int = 0) -> Info:
        """Return the info that carries `value` under this key.

        Args:
            value: A Python value of the attribute's type, or an explicit `Value` of one of its types.
            flags: `InfoFlags` to set, such as `InfoFlags.REQUIRED`.
        """
        return Info(self.key, self.value(value), flags)

    def key_for(self, release: Release) -> str:
        """Return the key string that a library of this release uses.

        Example:
            >>> attrs.TIMEOUT.key_for((5, 0, 8))
            'pmix.timeout'
        """
        key = self.key
        for since, other in self.other:
            if tuple(release) >= parse_release(since):
                key = other
        return key

    def known_to(self, release: Release) -> bool:
        """Return True if a library of this release has the attribute in its dictionary.

        Releases are parallel branches, so `since` may name the first release of each of several branches; the one of
        the release's branch decides, and without one those of older branches.

        Example:
            >>> attrs.TIMEOUT.known_to((4, 2, 2))
            True
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

    def __repr__(self) -> str:
        return f"attrs.{self.name}"
