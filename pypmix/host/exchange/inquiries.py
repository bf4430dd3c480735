"""Finds out how collectives have ended whose coordinator is lost, before they go on at the next one.

Theory of operation
-------------------
A coordinator that is lost may have decided before, and some of the servers may have got its decision and told their
clients. So before a server gives a contribution to the next coordinator, it looks whether any server that is left knows
how that contribution has ended. All servers of the session that are left form the tree of `tree`, with the first by
name as its root. Questions about contributions go up, and are gathered on the way; the root asks all, down the tree,
and the answers are gathered on the way back. So N servers that lose their coordinator send about 4 N messages and not
N², and none of them more than some for each server right below it.

    gathers --all below have asked, or time is over--> asks above, or all --there is an answer--> over

A server that knows the decision itself answers at once. It asks about one coordinator once at a time: those that lose
it later, one after the other, cost one more question for all of them, and not each its own.

A server says that it knows nothing only when it has lost the coordinator itself and has dealt with all that had come
from it, and when nothing can come down a tree from it any more. One that still has the coordinator answers after
`DECIDED_SECONDS`.

Where a server in the middle is lost, those below it ask the next one above that is there: all that ask above ask one
with an earlier name, so no question goes in a circle. On the way down the one above asks those right below the lost one
itself, also if that does not answer in `DECISION_SECONDS` for each level below it.

Two servers may be roots at a time, where one of them has not lost the other one yet. Of a decision that only one server
has left, one root may learn and the other one not, if that server is lost between its two answers. So each server that
learns how its own contribution has ended tells others: all that have contributed where there are few; otherwise, in the
circle of those that are there, the ones after 1, 2, 4, ... places, which do the same. Then a server that has gone on at
the next coordinator hears it there or from these.

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
    """Told the decisions that are known, as bytes."""

INQUIRE = "pypmix.collective.inquire"
DECIDED = "pypmix.collective.decided"


class _Inquiry:
    """Questions about one lost server that are gathered, or were passed on together.

    Attributes:
        lost: The server that is lost.
        wanted: The contributions of each question, and what is told of them.
        waiting: The servers from here downwards that have asked nothing.
        timer: Has it passed on, while others may ask.
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
        unknown: Those of them whose end is not known.
        ends: The decisions that are.
        open: How many answers are awaited, with that of this server.
        own: Whether that is there.
        done: Told the decisions; None once it was.
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
        find: Returns how a contribution has ended, as far as this server knows.
        expects: Tells whether a decision of a server may be on its way here.
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
        """Find out how contributions have ended.

        Args:
            lost: Their coordinator, which is lost.
            keys: The contributions.
            done: Told the decisions, of those of which any server knows one.
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
        """Wait for those on so many levels below."""

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
        """Ask for all that have asked, once those before are answered."""
        if inquiry.lost not in self._asking:
            self._asking[inquiry.lost] = self._gathering.pop(inquiry.lost)
            self._ask(inquiry)

    def _ask(self, inquiry: _Inquiry) -> None:
        """Ask the next server above, or all where there is none."""
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
        """Look what this server knows, and others."""
        search = _Search(lost, keys, done)
        self._searches.append(search)
        self._ask_all(search, names)
        if lost in self._session.members:
            # What it has told this server may be on its way still.
            self._session.later(DECIDED_SECONDS, lambda: self._look(search))
        else:
            # In a turn of its own: what came before it has been dealt with by then.
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
        """Add what this server knows itself."""
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
        """An answer is there."""
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
    """Return the decisions in an answer, none if it cannot be read."""
    try:
        ends = ENDS.read(data) if data else ()
        for end in ends:
            OUTCOME.read(end)
    except RemoteProtocolError as error:
        log.error("an answer about a lost coordinator is dropped: %s", error)
        return ()
    return ends
