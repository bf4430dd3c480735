"""Process sets of a session with several servers: a set that one host defines is known to the servers of all hosts."""

from __future__ import annotations

import os

from pypmix.host.exchange.codec import PSET
from pypmix.host.exchange.errors import log
from pypmix.host.naming import shown
from pypmix.standard import statuses
from pypmix.standard.errors import NotFound, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.standard.types import Proc

    class Defining(Protocol):
        """The calls that this makes to a server."""

        def define_process_set(self, name: str, members: tuple[Proc, ...], *, elsewhere: bool = False) -> None: ...

        def delete_process_set(self, name: str) -> None: ...


DEFINE = "pypmix.pset"
DELETE = "pypmix.pset.over"


class Psets:
    """The process sets of one host with an exchange.

    Each definition has a mark. All hosts know all definitions, and of the definitions of one name the least mark
    counts, which is from the first host by name: hosts may define the same set, or two sets of the same name at once. A
    deletion contains its marks, so that it does not delete later definitions. The messages of one server arrive in
    order, but not the messages of several: so the server that has sent a mark also sends its end. While the definer of
    a mark is a member, only its own reports of the set count: another host, which may have lost the definer before the
    set ended, is believed only when the definer has left.

    Args:
        server: This host's server.
        exchange: Its exchange.
    """

    def __init__(self, server: Defining, exchange: Exchange) -> None:
        self._server = server
        self._exchange = exchange
        self._sets: dict[str, dict[str, tuple[Proc, ...]]] = {}
        """By name, the members by mark."""
        self._applied: dict[str, tuple[Proc, ...]] = {}
        """The sets that the server knows."""
        self._mine: dict[str, str] = {}
        """The marks of this host, by name."""
        self._hearsay: dict[str, tuple[str, tuple[Proc, ...]]] = {}
        """By mark, the sets of present definers that only other hosts have reported."""
        self._told: set[str] = set()
        """The marks that this host has sent to others."""
        exchange.hear(DEFINE, self._told_define)
        exchange.hear(DELETE, self._told_delete)
        exchange.watch(self._changed)

    def define(self, name: str, members: tuple[Proc, ...]) -> None:
        """Define a set, from any thread; each host may do so once, and all have to name the same members.

        Raises:
            NotFound, PMIxError: As `pypmix.Server.define_process_set`.
        """
        new = True
        try:
            self._server.define_process_set(name, members)
        except PMIxError as error:
            # A definition of another host is recorded before the server knows it.
            told = list(self._sets.get(name, {}).values())
            if error.code != statuses.ERR_EXISTS or name in self._mine or members not in told:
                raise
            new = False
        mark = self._mine[name] = f"{self._exchange.name} {os.urandom(8).hex()}"
        self._exchange.soon(self._defined, name, mark, members, new)

    def delete(self, name: str) -> None:
        """Delete a set everywhere, from any thread.

        Raises:
            NotFound: There is not a set of that name.
        """
        self._server.delete_process_set(name)
        self._exchange.soon(self._deleted, name)

    # In turns

    def _defined(self, name: str, mark: str, members: tuple[Proc, ...], new: bool) -> None:
        if new:
            self._applied[name] = members
        self._sets.setdefault(name, {})[mark] = members
        self._told.add(mark)
        self._exchange.broadcast(DEFINE, PSET.write((name, (mark,), members)))
        self._review(name)

    def _deleted(self, name: str) -> None:
        # Definitions that have arrived since the server forgot the set are of the same set.
        self._end(name, list(self._sets.get(name, ())), (), whole=True)

    def _told_define(self, sender: str, data: bytes) -> None:
        name, marks, members = PSET.read(data)
        if members:
            for mark in marks:
                self._take(sender, name, mark, members)
            self._review(name)

    def _take(self, sender: str, name: str, mark: str, members: tuple[Proc, ...]) -> None:
        definer = _definer(mark)
        if definer == sender:
            self._hearsay.pop(mark, None)
        elif definer in self._exchange.members and mark not in self._sets.get(name, {}):
            self._hearsay[mark] = name, members
            return
        else:
            # The definer has not sent this definition, so it may not send its end either.
            self._told.add(mark)
        self._sets.setdefault(name, {})[mark] = members

    def _told_delete(self, _sender: str, data: bytes) -> None:
        name, marks, _ = PSET.read(data)
        unheard = tuple([mark for mark in marks if self._hearsay.pop(mark, None) is not None])
        if unheard:
            self._exchange.broadcast(DELETE, PSET.write((name, unheard, ())))
        known = self._sets.get(name, {})
        gone = {known[mark] for mark in marks if mark in known}
        # A definer of the same set with another mark, which was on its way, sees it deleted, too.
        self._end(name, [mark for mark, members in known.items() if members in gone], marks)

    def _end(self, name: str, gone: Iterable[str], heard: Iterable[str], whole: bool = False) -> None:
        """End definitions; report each that the sender did not know, or that was known here first."""
        known = self._sets.get(name, {})
        news = []
        for mark in gone:
            del known[mark]
            if mark not in heard or mark in self._told:
                news.append(mark)
            self._told.discard(mark)
            if self._mine.get(name) == mark:
                del self._mine[name]
        if not known:
            self._sets.pop(name, None)
        if news:
            self._exchange.broadcast(DELETE, PSET.write((name, tuple(sorted(news)), ())))
        if whole:
            self._applied.pop(name, None)
            self._apply(lambda: self._server.delete_process_set(name))
        self._review(name)

    def _review(self, name: str) -> None:
        """Make the server know the definition that counts."""
        known = self._sets.get(name, {})
        wanted = known[min(known)] if known else None
        mine = self._mine.get(name)
        if mine in known and known[mine] != wanted:
            log.error(
                "the process set %r was defined here and by %s at once, whose it is", name, shown(min(known).split()[0])
            )
            self._end(name, [mine], ())
            return
        there = self._applied.get(name)
        if wanted == there:
            return
        if there is not None:
            del self._applied[name]
            self._apply(lambda: self._server.delete_process_set(name))
        if wanted is not None and self._apply(lambda: self._server.define_process_set(name, wanted, elsewhere=True)):
            self._applied[name] = wanted

    def _changed(self, name: str, here: bool) -> None:
        if not here:
            self._inherit(name)
        # If the definer has left, the first of the servers that were present already sends the definition.
        first = next((member for member in self._exchange.members if member != name), "")
        for each, known in self._sets.items() if here else ():
            for mark, members in known.items():
                if mark == self._mine.get(each) or first == self._exchange.name:
                    self._told.add(mark)
                    self._exchange.tell(name, DEFINE, PSET.write((each, (mark,), members)))

    def _inherit(self, definer: str) -> None:
        """A host has left, perhaps while it sent its sets, or their end: hosts that know one send it to the rest."""
        for mark in [mark for mark in self._hearsay if _definer(mark) == definer]:
            name, members = self._hearsay.pop(mark)
            self._sets.setdefault(name, {})[mark] = members
            self._review(name)
        for name, known in self._sets.items():
            for mark, members in known.items():
                if _definer(mark) == definer:
                    self._told.add(mark)
                    self._exchange.broadcast(DEFINE, PSET.write((name, (mark,), members)))

    def _apply(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except NotFound:
            # Another thread of this host was faster, and its turn comes.
            return False
        except PMIxError as error:
            if error.code != statuses.ERR_EXISTS:
                log.error("a process set of another server could not be taken in: %s", error)
            return False
        return True


def _definer(mark: str) -> str:
    """Return the name of the host that made a mark."""
    return mark.rpartition(" ")[0]
