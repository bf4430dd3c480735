"""The groups of members on one server, as observed: for servers that do not report their groups."""

from __future__ import annotations

from collections import OrderedDict

from pypmix.host.exchange.limits import MAX_GROUPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.host.exchange.codec import Groups
    from pypmix.standard.types import Proc


class GroupRecord:
    """The groups of members on one server, as observed."""

    def __init__(self) -> None:
        self._groups: OrderedDict[tuple[str, Proc], dict[Proc, None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, name: str, members: Iterable[Proc]) -> None:
        """Add a group that was formed."""
        found = dict.fromkeys(members)
        if found:
            self.remove(name, found)
            self._groups[name, next(iter(found))] = found
            if len(self._groups) > MAX_GROUPS:
                self._groups.popitem(last=False)

    def remove(self, name: str, members: Iterable[Proc]) -> None:
        """Remove a group that was destructed."""
        gone = set(members)
        for key in [key for key, found in self._groups.items() if key[0] == name and found.keys() & gone]:
            del self._groups[key]

    def has(self, name: str, proc: Proc) -> bool:
        """Return True if a proc is a member of a group of this name."""
        return any(key[0] == name and proc in members for key, members in self._groups.items())

    def is_foreign(self, name: str, members: Iterable[Proc], proc: Proc) -> bool:
        """Return True if some of these are in a group of this name without the proc, which must not change it then."""
        told = frozenset(members)
        found = [group for key, group in self._groups.items() if key[0] == name and not told.isdisjoint(group)]
        return bool(found) and not any(proc in group for group in found)

    def leave(self, procs: Iterable[Proc], name: str | None = None) -> None:
        """Remove procs that have left one group, or all."""
        gone = set(procs)
        for key, members in list(self._groups.items()):
            # One lookup for each departed proc, however large the group is.
            for proc in members.keys() & gone if name in (None, key[0]) else ():
                del members[proc]
            if not members:
                del self._groups[key]

    def listed(self) -> Groups:
        """Return the groups with their members."""
        return tuple([(key[0], tuple(members)) for key, members in self._groups.items()])
