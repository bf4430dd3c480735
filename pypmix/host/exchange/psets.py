"""Process sets of a session with several servers: a set that one host defines is known to the servers of all hosts.

Definitions and deletions count in the one order of the session (`statelog`). A host applies its own at once; if the
order shows that another host had defined another set of that name before, that one counts. Hosts may define the same
set, which is deleted as one: also if a definition was on its way while the set was deleted. Until its own change has
its place in the order, a host applies no other change of that set.
"""

from __future__ import annotations

from collections import OrderedDict

from pypmix.host.exchange import statelog
from pypmix.host.exchange.codec import NAME, NAMES, NUMBER, PROCS, Field, many, message
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.limits import MAX_OVER
from pypmix.host.naming import shown
from pypmix.standard import statuses
from pypmix.standard.errors import NotFound, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.localserver import ServerLike
    from pypmix.standard.types import Proc

    Members = tuple[Proc, ...]
    Sets = tuple[tuple[str, Members, int], ...]


_SET: Field[tuple[str, Members, int]] = message(NAME, PROCS, NUMBER)
"""The name of a set, its members, and how many deletions of that name the definer knew."""

_NUMBERED = many(_SET)
_SETS: Field[tuple[Sets, Sets, Sets, tuple[str, ...]]] = message(_NUMBERED, _NUMBERED, _NUMBERED, NAMES)
"""The sets of a session, those that were deleted last, and the definitions and deletions of a host that have no place
in the order yet."""


class Psets:
    """The process sets of one host with an exchange.

    Args:
        server: This host's server.
        exchange: Its exchange.
    """

    def __init__(self, server: ServerLike, exchange: Exchange) -> None:
        self._server = server
        self._exchange = exchange
        self._sets: dict[str, Members] = {}
        """The sets by the order."""
        self._deleted: OrderedDict[str, tuple[int, Members]] = OrderedDict()
        """The last names whose sets were deleted: how often, and the members of the last one."""
        self._applied: dict[str, Members] = {}
        """The sets that the server knows."""
        self._mine: set[str] = set()
        """The sets that this host has defined."""
        self._defining: dict[str, Members] = {}
        self._deleting: set[str] = set()
        exchange.state.on(statelog.DEFINE, lambda origin, data: self._define(origin, *_SET.read(data)))
        exchange.state.on(statelog.DELETE, lambda origin, data: self._delete(origin, NAME.read(data)))
        exchange.state.on(statelog.SETS, self._merge)
        exchange.state.report(self._report)

    def define(self, name: str, members: Members) -> None:
        """Define a set, from any thread; each host may do so once, and all have to name the same members.

        Raises:
            NotFound, PMIxError: As `pypmix.Server.define_process_set`.
        """
        new = True
        try:
            self._server.define_process_set(name, members)
        except PMIxError as error:
            # A definition of another host is recorded before the server knows it.
            if error.code != statuses.ERR_EXISTS or name in self._mine or self._sets.get(name) != members:
                raise
            new = False
        self._mine.add(name)
        self._exchange.soon(self._submit_definition, name, members, new)

    def delete(self, name: str) -> None:
        """Delete a set everywhere, from any thread.

        Raises:
            NotFound: There is not a set of that name.
        """
        self._server.delete_process_set(name)
        self._exchange.soon(self._submit_deletion, name)

    # In turns

    def _submit_definition(self, name: str, members: Members, new: bool) -> None:
        if new:
            self._applied[name] = members
        self._defining[name] = members
        self._exchange.state.submit(statelog.DEFINE, _SET.write((name, members, self._deletions(name))))

    def _deletions(self, name: str) -> int:
        return self._deleted.get(name, (0, ()))[0]

    def _submit_deletion(self, name: str) -> None:
        self._applied.pop(name, None)
        self._defining.pop(name, None)
        self._deleting.add(name)
        self._exchange.state.submit(statelog.DELETE, NAME.write(name))

    def _define(self, origin: str, name: str, members: Members, deletions: int) -> None:
        count, last = self._deleted.get(name, (0, ()))
        is_deleted = deletions < count and members == last and name not in self._sets
        before = members if is_deleted else self._sets.setdefault(name, members)
        if origin == self._exchange.name:
            self._defining.pop(name, None)
            if is_deleted:
                self._mine.discard(name)
            if before != members:
                self._lose(name)
        self._review(name)

    def _lose(self, name: str) -> None:
        """The definition of another host counts."""
        if name in self._mine:
            self._mine.discard(name)
            log.error("the process set %r was defined here and by another host at once, whose it is", name)

    def _delete(self, origin: str, name: str) -> None:
        if origin == self._exchange.name:
            self._deleting.discard(name)
        if name in self._sets:
            self._deleted[name] = self._deletions(name) + 1, self._sets.pop(name)
            if name not in self._defining:
                self._mine.discard(name)
            if len(self._deleted) > MAX_OVER:
                self._deleted.popitem(last=False)
        self._review(name)

    def _report(self, origin: str) -> Iterator[tuple[int, bytes]]:
        if origin != self._exchange.name:
            return
        if self._exchange.root != origin:
            # Another root may know of other definitions, or deletions: what this host has defined counts again there.
            for name in self._mine.intersection(self._sets):
                self._defining.setdefault(name, self._sets.pop(name))
        if self._sets or self._deleted or self._defining or self._deleting:
            sets, defining = (
                tuple([(name, members, self._deletions(name)) for name, members in each.items()])
                for each in (self._sets, self._defining)
            )
            deleted = tuple([(name, members, count) for name, (count, members) in self._deleted.items()])
            yield statelog.SETS, _SETS.write((sets, deleted, defining, tuple(sorted(self._deleting))))

    def _merge(self, origin: str, data: bytes) -> None:
        """Apply a host's report of all sets: it may know sets that the root does not."""
        sets, deleted, defining, deleting = _SETS.read(data)
        if origin == self._exchange.root != self._exchange.name:
            # What this host knew before it met the root does not count.
            before = {*self._sets, *self._deleted}
            self._deleted = OrderedDict([(name, (count, members)) for name, members, count in deleted])
            self._sets = {name: members for name, members, _ in sets}
            for name in before.union(self._sets):
                if (
                    name in self._mine
                    and name not in self._defining
                    and self._sets.get(name) != self._applied.get(name)
                ):
                    self._lose(name)
                self._review(name)
        for name, members, deletions in sets:
            if name not in self._sets and deletions >= self._deletions(name):
                self._sets[name] = members
                self._review(name)
        for name in deleting:
            self._delete(origin, name)
        for name, members, deletions in defining:
            self._define(origin, name, members, deletions)

    def _review(self, name: str) -> None:
        """Make the server know the definition that counts."""
        if name in self._defining or name in self._deleting:
            return
        wanted, there = self._sets.get(name), self._applied.get(name)
        if wanted == there:
            return
        if there is not None:
            del self._applied[name]
            self._apply(lambda: self._server.delete_process_set(name))
        if wanted is not None and self._apply(lambda: self._server.define_process_set(name, wanted, elsewhere=True)):
            self._applied[name] = wanted

    def _apply(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except NotFound:
            # Another thread of this host was faster, and its turn comes.
            return False
        except PMIxError as error:
            if error.code != statuses.ERR_EXISTS:
                log.error("%s: a process set of another server is refused: %s", shown(self._exchange.name), error)
            return False
        return True
