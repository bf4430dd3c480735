"""The search for decisions that a lost coordinator has made: the next one asks all participants before it decides.

All apply the loss at the same place in the order of the session (`statelog`), and no server accepts a decision of a
lost one after that: so a decision that is unknown then stays unknown. A lost server is known by its name and the number
of its process, since another process may have its name by then.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

from functools import partial

from pypmix.host.exchange.codec import BYTES, NUMBER, TEXT, Field, many, message
from pypmix.host.exchange.kinds import CONSTRUCT, OUTCOME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.host.exchange.coordinator import Coordinator
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import Key, OnAnswer, Part
    from pypmix.host.exchange.rounds import PendingContribution
    from pypmix.standard.errors import PMIxError

    Server = tuple[str, bytes]
    """A server, and the number of its process, if carriers know that."""

    Search = tuple[Server, int, str, str]
    """A lost coordinator, and the kind, the name and the procs of a collective."""

    GivenUp = tuple[int, int, str, tuple[str, ...]]
    """The number of a contribution that is given up, the status, its detail, and the servers that are the cause."""

FIND = "pypmix.collective.find"
"""The topic of requests for decisions that are known."""

_FIND: Field[tuple[str, bytes, int, str]] = message(TEXT, BYTES, NUMBER, TEXT)
"""The lost coordinator, the number of its process, and the kind and the name of a collective."""

_ENDS: Field[tuple[bytes, ...]] = many(BYTES)

MAX_SEARCHES = 1024
"""The most searches for ends that are remembered."""


class Searches:
    """The searches of one server for decisions of lost coordinators.

    Args:
        session: The exchange.
        coordinator: The collectives that this server coordinates.

    Attributes:
        unsettled: Answers that wait until no contribution of this server is on its way to a lost coordinator.
    """

    def __init__(self, session: Exchange, coordinator: Coordinator) -> None:
        self.name = session.name
        self.coordinator = coordinator
        self._session = session
        self._searches: dict[Search, list[Callable[[], None]] | None] = {}
        """Calls that wait for decisions that others may know, None for a search that has finished."""
        self._waiting: dict[Key, GivenUp | None] = {}
        """Contributions that wait for a search, and how they were given up since."""
        self.unsettled: list[Callable[[], None]] = []
        self._until_lost: dict[str, list[Callable[[], None]]] = {}
        """Calls that wait until a server is lost here, too."""
        session.handle(FIND, self._answer_find)

    def search_before(self, coordinator: Server, pending: PendingContribution, contribute: Callable[[], None]) -> None:
        """Take a contribution in after a search, and give it up then if that was asked for in the meantime."""
        self._waiting[pending.key] = None
        sender = pending.server, self._session.membership.life_of(pending.server)

        def finish() -> None:
            given_up = self._waiting.pop(pending.key, None)
            if not self.is_present(sender):
                # Its loss has ended the contribution, and a later process of that name does not know of it.
                return
            contribute()
            if given_up is not None:
                self.coordinator.cancel(pending.server, *given_up)

        self._search(coordinator, pending.part, finish)

    def give_up(self, sender: str, given_up: GivenUp) -> bool:
        """Give up a contribution, if it waits for a search. Return True if it does."""
        key = sender, given_up[0]
        if key in self._waiting:
            self._waiting[key] = given_up
        return key in self._waiting

    def is_present(self, server: Server) -> bool:
        """Return True if a process is present: a later one under its name is another one."""
        return self._session.has(server[0]) and self._session.membership.life_of(server[0]) == server[1]

    def _call_after_loss(self, server: Server, call: Callable[[], None]) -> None:
        if self.is_present(server):
            self._until_lost.setdefault(server[0], []).append(call)
        else:
            call()

    def _search(self, coordinator: Server, part: Part, then: Callable[[], None]) -> None:
        """Ask all that take part in a collective for ends that the lost coordinator has decided, and continue."""
        if self.is_present(coordinator):
            self._call_after_loss(coordinator, lambda: self._search(coordinator, part, then))
            return
        search = coordinator, part.kind, part.name, part.party.label
        waiting = self._searches.get(search, [])
        if waiting is None:
            then()
            return
        waiting.append(then)
        if len(waiting) > 1:
            return
        self._searches[search] = waiting
        asked = set(self._session.members)
        if not part.rule.unknown and part.kind != CONSTRUCT:
            # A construct may be decided as an offer, which the servers of added procs know as well.
            asked.intersection_update(part.party.names)
        asked.discard(self.name)

        def take_ends(name: str, data: bytes | None, _error: PMIxError | None) -> None:
            asked.discard(name)
            for end in _ENDS.read(data) if data else ():
                self.coordinator.learn(part.kind, part.name, OUTCOME.read(end))
            if not asked:
                finish()

        def finish() -> None:
            if self._searches.get(search) is waiting:
                self._searches[search] = None
                finished = [each for each, calls in self._searches.items() if calls is None]
                for each in finished[: max(0, len(finished) - MAX_SEARCHES)]:
                    del self._searches[each]
                for call in waiting:
                    call()

        for name in sorted(asked):
            data = _FIND.write((*coordinator, part.kind, part.name))
            self._session.requests.ask(name, FIND, data, partial(take_ends, name))
        if not asked:
            finish()

    def _answer_find(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        """Another server coordinates a collective in place of a lost one: answer with its ends that are known here."""
        server, life, kind, name = _FIND.read(data)

        def find() -> None:
            if any(
                local.to is not None
                and (local.root, local.life, local.part.kind, local.part.name) == (server, life, kind, name)
                for local in self._session.collectives.open()
            ):
                # A server on the way may pass a decision down that it has got before it has lost the coordinator.
                self.unsettled.append(find)
                return
            ends = self.coordinator.decided.list_outcomes(kind, name)
            answer(_ENDS.write(tuple(map(OUTCOME.write, ends))), None)

        self._call_after_loss((server, life), find)

    def settle(self) -> None:
        """Answer again: a contribution has ended, or is taken away from a lost coordinator."""
        calls, self.unsettled = self.unsettled, []
        for call in calls:
            call()

    def change(self, name: str, here: bool) -> None:
        """A server has joined or is lost."""
        if here:
            # Without a number of its process, a later loss of it is a search of its own.
            for search in [each for each, calls in self._searches.items() if calls is None and each[0] == (name, b"")]:
                del self._searches[search]
        else:
            for call in self._until_lost.pop(name, ()):
                call()

    def close(self) -> None:
        """Forget everything."""
        self._searches.clear()
        self._waiting.clear()
        self._until_lost.clear()
        self.unsettled.clear()
