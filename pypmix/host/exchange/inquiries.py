"""Finds the ends of collectives whose coordinator is lost, before they continue at the next one.

Theory of operation
-------------------
A coordinator that is lost may have decided before, and some of the servers may have got its decision and answered their
clients. So before a server gives a contribution to the next coordinator, it asks if any remaining server knows the end
of that contribution. All remaining servers of the session form the tree of `tree`, with the first by name as its root.
Questions about contributions are passed up, and collected on the way; the root asks all, down the tree, and the answers
are collected on the way back. So N servers that lose their coordinator send about 4 N messages and not N², and none of
them more than some for each server right below it.

    gathers --all below have asked, or time is over--> asks above, or all --there is an answer--> over

A server that knows the decision itself answers at once. It asks about one coordinator once at a time: servers that lose
it later, one after the other, cost one more question for all of them together.

A server answers that it knows nothing only when it has lost the coordinator itself and has processed all its messages,
and when no further one can come down a tree. A server that is still connected with the coordinator answers after
`DECIDED_SECONDS`.

If a server in the middle is lost, the servers below it ask the next present one above: each question goes to a server
with an earlier name, so no question runs in a circle. On the way down the server above asks the servers right below the
lost one itself, also if that does not answer in `DECISION_SECONDS` for each level below it.

Two servers may be roots at a time, if one of them has not lost the other one yet. If only one remaining server knows a
decision, one root may get it and the other one not, if that server is lost between its two answers. So each server that
finds the end of its contribution passes it on: to all contributors if they are few; otherwise, in the
circle of the present ones, to the servers after 1, 2, 4, ... places, which do the same. Then a server that has
continued at the next coordinator gets it there or from these.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

from functools import partial

from pypmix.engine.times import AGAIN_SECONDS, DECIDED_SECONDS, DECISION_SECONDS, INQUIRY_SECONDS
from pypmix.host.exchange import tree
from pypmix.host.exchange.errors import ServerLost, log
from pypmix.host.exchange.kinds import ENDS, OUTCOME, QUESTION, SEARCH
from pypmix.standard.errors import RemoteProtocolError, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pypmix.host.exchange.kinds import Key, OnAnswer, Outcome, Session, Timer
    from pypmix.standard.errors import PMIxError

    Find = Callable[[Key], Outcome | None]
    OnEnds = Callable[[tuple[bytes, ...]], None]
    """Called with the known decisions, as bytes."""

INQUIRE = "pypmix.collective.inquire"
DECIDED = "pypmix.collective.decided"


class _Inquiry:
    """Questions about one lost server that are collected, or were passed on together.

    Attributes:
        lost: The server that is lost.
        wanted: The contributions of each question, and the function to call with the decisions.
        waiting: The servers from here downwards that have not asked.
        timer: Passes it on, while others may ask.
    """

    __slots__ = ("lost", "timer", "waiting", "wanted")

    def __init__(self, lost: str, servers: Iterable[str]) -> None:
        self.lost = lost
        self.wanted: list[tuple[Collection[Key], OnEnds]] = []
        self.waiting = set(servers)
        self.timer: Timer | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        """The contributions of all questions."""
        return tuple([key for keys, _ in self.wanted for key in keys])


class _Search:
    """A question about contributions to a lost coordinator, and the answers of this server and those below it.

    Attributes:
        lost: The coordinator.
        keys: The contributions.
        unknown: The contributions whose end is not known.
        ends: The decisions that are known.
        open: How many answers are awaited, with the answer of this server.
        own: Whether the answer of this server has been added.
        done: Called with the decisions; None after that.
    """

    __slots__ = ("done", "ends", "keys", "lost", "open", "own", "unknown")

    def __init__(self, lost: str, keys: Collection[Key], done: OnEnds) -> None:
        self.lost = lost
        self.keys = keys
        self.unknown = set(keys)
        self.ends: dict[bytes, None] = {}
        self.open = 1
        self.own = False
        self.done: OnEnds | None = done


class Inquiries:
    """The questions of one server about lost coordinators, and its answers; used in the turns of its exchange.

    Args:
        session: The exchange.
        find: Returns the end of a contribution, if this server knows it.
        expects: Returns True if a decision of a server may be on its way here.
    """

    def __init__(self, session: Session, find: Find, expects: Callable[[str], bool]) -> None:
        self._session = session
        self._find = find
        self._expects = expects
        self._gathering: dict[str, _Inquiry] = {}
        self._asking: dict[str, _Inquiry] = {}
        self._searches: list[_Search] = []
        session.handle(INQUIRE, self._asked_above)
        session.handle(DECIDED, self._asked)

    def __len__(self) -> int:
        return len(self._gathering) + len(self._asking) + len(self._searches)

    # Up the tree

    def ask(self, lost: str, keys: Collection[Key], done: OnEnds) -> None:
        """Find the ends of contributions.

        Args:
            lost: Their coordinator, which is lost.
            keys: The contributions.
            done: Called with the decisions that any server knows.
        """
        known = self._known(keys)
        if known is not None:
            done(known)
            return
        inquiry = self._gathering.get(lost)
        if inquiry is None:
            names = self._left(lost)
            place = names.index(self._session.name)
            here = names[place : tree.spans(len(names), place)[1]]
            inquiry = self._gathering[lost] = _Inquiry(lost, here)
            self._gather(inquiry, tree.depth(len(here) - 1))
        inquiry.wanted.append((keys, done))
        inquiry.waiting.difference_update([server for server, _ in keys])
        if not inquiry.waiting:
            self._stop(inquiry)
            self._pass_on(inquiry)

    def _known(self, keys: Collection[Key]) -> tuple[bytes, ...] | None:
        """Return the decisions of contributions if this server knows all of them."""
        ends: dict[int, Outcome] = {}
        for key in keys:
            end = self._find(key)
            if end is None:
                return None
            ends[id(end)] = end
        return tuple(map(OUTCOME.write, ends.values()))

    def _left(self, lost: str) -> Sequence[str]:
        """Return the servers of the tree, sorted."""
        return [name for name in self._session.members if name != lost]

    def _gather(self, inquiry: _Inquiry, levels: int) -> None:
        """Wait for the servers on so many levels below."""

        def late() -> None:
            if inquiry.timer is not None:
                inquiry.timer = None
                self._pass_on(inquiry)

        inquiry.timer = self._session.later(INQUIRY_SECONDS * levels, late)

    @staticmethod
    def _stop(inquiry: _Inquiry) -> None:
        if inquiry.timer is not None:
            inquiry.timer.cancel()
            inquiry.timer = None

    def _pass_on(self, inquiry: _Inquiry) -> None:
        """Ask for all servers that have asked, once the earlier question is answered."""
        if inquiry.lost not in self._asking:
            self._asking[inquiry.lost] = self._gathering.pop(inquiry.lost)
            self._ask(inquiry)

    def _ask(self, inquiry: _Inquiry) -> None:
        """Ask the next server above, or all if this one is the root."""
        names = self._left(inquiry.lost)
        place = names.index(self._session.name)
        if not place:
            self._search(inquiry.lost, inquiry.keys, names[1:], partial(self._over, inquiry))
            return
        above = names[tree.spans(len(names), place)[0][-1]]

        def told(data: bytes | None, error: PMIxError | None) -> None:
            if isinstance(error, ServerLost | Unreachable) and not self._session.has(above):
                self._ask(inquiry)
            else:
                self._over(inquiry, _ends_in(data))

        self._session.ask(above, INQUIRE, QUESTION.write((inquiry.lost, inquiry.keys)), told)

    def _over(self, inquiry: _Inquiry, ends: tuple[bytes, ...]) -> None:
        if self._asking.get(inquiry.lost) is not inquiry:
            return
        del self._asking[inquiry.lost]
        for _, done in inquiry.wanted:
            done(ends)
        following = self._gathering.get(inquiry.lost)
        if following is not None and following.timer is None:
            self._pass_on(following)

    def _asked_above(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        """A server below asks."""
        lost, keys = QUESTION.read(data)
        self.ask(lost, keys, lambda ends: answer(ENDS.write(ends), None))

    # Down the tree

    def _asked(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        """A server above asks this one, and those below it."""
        lost, keys, names = SEARCH.read(data)
        self._search(lost, keys, names, lambda ends: answer(ENDS.write(ends), None))

    def _search(self, lost: str, keys: Collection[Key], names: Sequence[str], done: OnEnds) -> None:
        """Look up the decisions that this server knows, and ask others."""
        search = _Search(lost, keys, done)
        self._searches.append(search)
        self._ask_all(search, names)
        if lost in self._session.members:
            # Its last messages to this server may still be on their way.
            self._session.later(DECIDED_SECONDS, lambda: self._look(search))
        else:
            # In a later turn: earlier messages have been processed by then.
            self._session.soon(self._look, search)

    def _ask_all(self, search: _Search, names: Sequence[str]) -> None:
        for head, *rest in tree.runs(names):
            search.open += 1
            question = SEARCH.write((search.lost, search.keys, tuple(rest)))
            told = partial(self._told, search, rest)
            self._session.request(head, DECIDED, question, told, timeout=DECISION_SECONDS * (1 + tree.depth(len(rest))))

    def _told(self, search: _Search, rest: list[str], data: bytes | None, error: PMIxError | None) -> None:
        if search.done is None:
            return
        if error is not None:
            self._ask_all(search, rest)
        self._add(search, _ends_in(data))

    def _look(self, search: _Search, patience: float = DECISION_SECONDS) -> None:
        """Add the decisions that this server knows itself."""
        if search.done is None or search.own:
            return
        if patience > 0 and self._expects(search.lost) and not self._session.has(search.lost):
            # The decision may be on its way here, from a server between the lost coordinator and this one.
            self._session.later(AGAIN_SECONDS, lambda: self._look(search, patience - AGAIN_SECONDS))
            return
        search.own = True
        ends = {id(end): end for key in search.keys if (end := self._find(key)) is not None}
        self._add(search, map(OUTCOME.write, ends.values()))

    def _add(self, search: _Search, ends: Iterable[bytes]) -> None:
        """Add an answer that has arrived."""
        for end in ends:
            if end not in search.ends:
                search.ends[end] = None
                search.unknown.difference_update(OUTCOME.read(end).parts)
        search.open -= 1
        if search.done is not None and (not search.open or not search.unknown):
            done, search.done = search.done, None
            self._searches.remove(search)
            done(tuple(search.ends))

    def lose(self, name: str) -> None:
        """A server is lost."""
        for search in [each for each in self._searches if each.lost == name]:
            self._session.soon(self._look, search)

    def close(self) -> None:
        """This server leaves the exchange."""
        for inquiry in self._gathering.values():
            self._stop(inquiry)
        self._gathering.clear()
        self._asking.clear()
        for search in self._searches:
            search.done = None
        self._searches.clear()


def _ends_in(data: bytes | None) -> tuple[bytes, ...]:
    """Return the decisions in an answer, empty if it cannot be read."""
    try:
        ends = ENDS.read(data) if data else ()
        for end in ends:
            OUTCOME.read(end)
    except RemoteProtocolError as error:
        log.error("an answer about a lost coordinator is dropped: %s", error)
        return ()
    return ends
