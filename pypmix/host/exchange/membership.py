"""The servers of a session that are present, its root, and the losses that the root declares.

Theory of operation
-------------------
A server is present when its carrier has reported it, until its loss is *declared*. Only the root declares losses, as
entries of the one order (`statelog`): so all servers lose the same ones, each at the same place among the other
changes, and a server that has lost another one says nothing to the rest. The root is the launcher, or the first present
server by name in a session without a launcher.

If the carrier of another server reports an end, that server is *doubted*: messages to it are lost, and everything that
waits for it waits for the declaration, which is on its way if the server has died. If the declaration does not arrive
in `DOUBT_SECONDS`, the two may have lost only each other: the server reports that to the root. The root asks the other
one; if it answers, the server that has lost more others is declared lost, and of two alike the later by name. If the
root does not answer within the time of the carrier's keep-alive, since its loop is busy, the server removes the doubted
one without it. A server that learns from the root that it was declared lost leaves the session: it continues alone, and
a daemon ends its ranks. The reverse order is bounded, too: a declaration that arrives before the carrier's own report
waits for the last messages of the lost server, for `LOSS_SECONDS`.

If the root of a session without a launcher is doubted, the next one by name takes its place as soon as all that it is
connected with doubt the same servers. So it waits as long as any of them has the old root, which declares the next one
lost in that case. Of two servers without a third one, each continues alone. Without a launcher the root may not reach a
server that it has declared lost, so others inform that server: it doubts them, and leaves if it cannot reach its root.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

from pypmix.engine.times import DOUBT_SECONDS, KEEP_ALIVE_SECONDS, LOSS_SECONDS
from pypmix.host.exchange.codec import BYTES, NAME, NAMES, Field, broken, message
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.statelog import LOSS
from pypmix.host.naming import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import OnAnswer
    from pypmix.host.exchange.statelog import StateLog
    from pypmix.standard.errors import PMIxError

MAX_LOST = 256
"""The most lost servers that the next root declares lost once more."""

LEAVES = "pypmix.leaves"
"""The sender leaves."""

LOST = "pypmix.lost"
"""The receiver was declared lost."""

DOUBT = "pypmix.doubted"
"""A request to the root: the connection of two servers has ended."""

LIVES = "pypmix.lives"
"""A request that a server answers at once."""

AGREE = "pypmix.agree"
AGREED = "pypmix.agreed"
"""A question of the next root, and the answer of a server that doubts the same ones. They pass messages that wait for
entries, which only a root can number."""

_LOSS: Field[tuple[str, bytes]] = message(NAME, BYTES)
"""The name of a lost server, and the number of its process, if carriers know that."""

_DOUBT: Field[tuple[str, str, bytes]] = message(NAME, NAME, BYTES)
"""The server that doubts another one, that one, and the number of its process."""


class Membership:
    """The servers that are present, as one server knows.

    Args:
        exchange: This server's exchange.
        state: The order of entries.

    Attributes:
        launcher: The launcher's server; empty in a session without one.
        present: The names of the servers, this one included.
        gone: The names of servers that were present and no longer are.
        doubted: The present servers whose connection has ended.
        detoured: The present servers that are reached through the root alone.
        reasons: Why servers were declared lost, as far as that is not known from the carrier.
        has_left: Whether this server has left the others.
        is_closing: Whether the session ends: losses are no longer declared.
    """

    def __init__(self, exchange: Exchange, state: StateLog) -> None:
        self.name = exchange.name
        self.launcher = ""
        self.present = {self.name}
        self.gone: frozenset[str] = frozenset()
        self.doubted: set[str] = set()
        self.detoured: set[str] = set()
        self.reasons: dict[str, str] = {}
        self.has_left = False
        self.is_closing = False
        self._exchange = exchange
        self._state = state
        state.losses = self
        self._lives: dict[str, bytes] = {}
        self._lost: dict[str, bytes] = {}
        """The last servers that were lost, with the numbers of their processes."""
        self._root = self.name
        self._patience = KEEP_ALIVE_SECONDS
        self._losses: dict[bytes, float] = {}
        """The declared losses that wait for the last messages of their servers, and until when."""
        self._agreed: dict[str, frozenset[str]] = {}
        """The servers that doubt others, too, as this server has asked them."""
        self._asked: set[tuple[str, frozenset[str]]] = set()
        self._parted: dict[str, set[str]] = {}
        """The servers that have lost their connection with each present server, as the root knows."""
        self._lost_by: set[str] = set()
        """The present servers that have lost this one, and are not the root."""
        self._questions: dict[str, tuple[str, ...]] = {}
        """The last question of each server that waits for doubts of this one."""
        state.on(LOSS, self._apply_loss)
        exchange.handle(DOUBT, self._answer_doubt)
        exchange.handle(LIVES, lambda _sender, _data, answer: answer(b"", None))
        exchange.hear(AGREE, self._ask_for_agreement)
        exchange.hear(AGREED, self._agree)
        exchange.hear(LEAVES, lambda sender, _data: self.doubt(sender))
        exchange.hear(LOST, lambda sender, _data: self._take_lost(sender))

    @property
    def root(self) -> str:
        """The server that numbers the entries; while it is doubted, entries wait."""
        return self.launcher or min(self.present)

    @property
    def _next_root(self) -> str:
        """The server that declares the losses: the root, or the next one if that is doubted."""
        return self.launcher or min(self.present - self.doubted, default=self.name)

    def list_others(self) -> list[str]:
        """Return the names of the other servers that are present, sorted."""
        return sorted(self.present - {self.name})

    def life_of(self, name: str) -> bytes:
        """Return the number of a present server's process, empty if the carrier does not know that."""
        return self._lives.get(name, b"")

    def begin(self, life: bytes, patience: float) -> None:
        """Record the number of this server's process, empty if the carrier does not know that, and its patience.

        Args:
            life: The number.
            patience: The seconds for which it waits for the root to declare a loss that its carrier has reported.
        """
        self._lives[self.name] = life
        self._patience = patience

    # Events of the carrier

    def add(self, name: str, life: bytes) -> None:
        """Another server has joined; `life` is the number of its process, if the carrier knows that."""
        self.gone -= {name}
        self._lost.pop(name, None)
        self.reasons.pop(name, None)
        self.present.add(name)
        self._lives[name] = life

    def follow_root(self, joined: str = "") -> None:
        """Report to a root that is new, or introduce a server that has joined; after `add`, or after a loss."""
        if self.has_left:
            return
        root, before = self.root, self._root
        self._root = root
        if root != before or joined == root:
            self._state.change_root()
        if root == self.name != before:
            # The root before may have been lost while it declared others lost.
            for name, life in self._lost.items():
                if life:
                    self._state.add_loss(_LOSS.write((name, life)))
        if joined and root == self.name and not self.launcher:
            self._state.introduce(joined)

    def doubt(self, name: str) -> None:
        """The connection with another server has ended, or the server leaves."""
        if name not in self.present or name in self.doubted or name == self.name:
            return
        self.doubted.add(name)
        if name == self.launcher:
            # Without a launcher there is no session.
            self._leave(name)
            return
        self._declare()
        self._answer_questions()
        self._state.advance()
        if name in self.doubted:
            life, limit = self.life_of(name), self._exchange.now() + self._patience
            self._exchange.later(min(DOUBT_SECONDS, self._patience), lambda: self._report(name, life, limit))

    # The root

    def _declare(self) -> None:
        """Declare the doubted servers lost, if this server is the root and all others agree."""
        if self._next_root != self.name or self.is_closing or self.has_left:
            return
        before = self._doubted_before
        if before and self._lost_by:
            # The root has declared the loss of this server, which it could not report to it.
            self._leave(min(self._lost_by))
            return
        if before:
            reached = self.present - self.doubted - {self.name}
            missing = [name for name in reached if not before <= self._agreed.get(name, frozenset())]
            for name in sorted(missing):
                self._ask_agreement(name, before)
            if missing:
                return
        for name in sorted(self.doubted):
            self.lose(name)

    @property
    def _doubted_before(self) -> frozenset[str]:
        """The doubted servers in whose place this one would be the root."""
        return frozenset([name for name in self.doubted if name < self.name and not self.launcher])

    def _ask_agreement(self, name: str, before: frozenset[str]) -> None:
        if (name, before) not in self._asked:
            self._asked.add((name, before))
            self._exchange.outbox.aside(name, AGREE, NAMES.write(tuple(sorted(before))))

    def _agree(self, sender: str, data: bytes) -> None:
        """Another server doubts servers, too."""
        names = frozenset(NAMES.read(data))
        self._asked.discard((sender, names))
        self._agreed[sender] = self._agreed.get(sender, frozenset()) | names
        before = self._doubted_before
        if not any(asked == before and name not in self.doubted for name, asked in self._asked):
            # The last one has answered.
            self._declare()

    def _ask_for_agreement(self, sender: str, data: bytes) -> None:
        self._questions[sender] = NAMES.read(data)
        self._answer_questions()

    def _answer_questions(self) -> None:
        for sender, names in list(self._questions.items()):
            if self.present.difference(self.doubted).isdisjoint(names):
                del self._questions[sender]
                self._exchange.outbox.aside(sender, AGREED, NAMES.write(names))

    def lose(self, name: str) -> None:
        """Declare the loss of a server; only the root does so."""
        if name in self.present and name != self.name:
            reached = name not in self.doubted
            self._state.add_loss(_LOSS.write((name, self.life_of(name))))
            if reached:
                self._exchange.outbox.aside(name, LOST, b"")

    def _report(self, name: str, life: bytes, limit: float) -> None:
        """A declaration has not arrived: report to the root that the connection with a server has ended."""
        if name not in self.doubted or self.life_of(name) != life or self.has_left:
            return
        seconds = min(DOUBT_SECONDS * 5, limit - self._exchange.now())
        if seconds <= 0:
            # The root does not answer, and no other server takes its place.
            self._exchange.lose(name)
            return
        root = self._next_root
        if root == self.name:
            self._declare()
        else:

            def take_answer(data: bytes | None, error: PMIxError | None) -> None:
                if error is None and data and name in self.doubted and self.life_of(name) == life:
                    # It is unknown there: it has been lost, or was never in the same session.
                    self._exchange.lose(name)

            self._exchange.requests.ask(root, DOUBT, _DOUBT.write((self.name, name, life)), take_answer)
        self._exchange.later(seconds, lambda: self._report(name, life, limit))

    def _answer_doubt(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        doubter, name, life = _DOUBT.read(data)
        if self.launcher and doubter != sender:
            raise broken(f"{shown(sender)} reports a lost connection of {shown(doubter)}, which reports it itself")
        known = name in self.present and self.life_of(name) == life
        answer(b"" if known else b"\1", None)
        root = self._next_root
        if root != self.name:
            if doubter == sender:
                self._exchange.requests.ask(root, DOUBT, data, lambda _data, _error: None)
            return

        def take_answer(_data: bytes | None, error: PMIxError | None) -> None:
            if error is None and self._next_root == self.name and not self.is_closing:
                # They live, and have lost only each other.
                pair = {name, doubter}
                if not pair - {self.name} <= self.present:
                    return
                for one in pair:
                    self._parted.setdefault(one, set()).update(pair - {one})
                # A server that parts from several others is lost itself, and takes one along at most.
                lost = max(pair - {self.name}, key=lambda one: (len(self._parted[one]), one))
                if pair <= self.present - self.doubted or self.name in pair:
                    self.reasons[lost] = f"it has no connection with {shown(*(pair - {lost}))}"
                    self.lose(lost)

        if known and name == self.name:
            take_answer(b"", None)
        elif known and name not in self.doubted:
            self._exchange.requests.ask(name, LIVES, b"", take_answer)

    # Declared losses

    def expect(self, sender: str, data: bytes) -> bool:
        """Return True if a declaration that has arrived counts, as it is of the root, or of a server that is doubted.

        It waits for the last messages of the lost server, for a bounded time.
        """
        name, _ = _LOSS.read(data)
        if self._is_reached(name) and name != self.name:
            self._losses[data] = self._exchange.now() + LOSS_SECONDS
            self._exchange.later(LOSS_SECONDS, self._state.advance)
        return sender == self._next_root or name in self.doubted

    def may_lose(self, data: bytes) -> bool:
        """Return True if a declared loss can be applied."""
        name, life = _LOSS.read(data)
        waits = self._concerns(name, life) and self._is_reached(name) and name != self.name
        if waits and self._losses.get(data, 0.0) > self._exchange.now():
            return False
        self._losses.pop(data, None)
        return True

    def _is_reached(self, name: str) -> bool:
        """Return True if messages of a server may still arrive, apart from those that come through the root."""
        return name in self.present and name not in self.doubted and name not in self.detoured

    def _concerns(self, name: str, life: bytes) -> bool:
        return name in self.present and life in (b"", self.life_of(name))

    def _apply_loss(self, origin: str, data: bytes) -> None:
        name, life = _LOSS.read(data)
        if name == self.name:
            # It may be an earlier process of this name; a living one also receives `LOST`.
            if life and life == self.life_of(name):
                self._leave(origin)
        elif self._concerns(name, life):
            if name not in self.doubted and origin != self.name:
                if name not in self.detoured and not self.launcher:
                    # The root may not reach it.
                    self._exchange.outbox.aside(name, LOST, b"")
                self.reasons.setdefault(name, f"it has no connection with {shown(origin)}")
            self._exchange.lose(name)

    def remove(self, name: str) -> None:
        """A server is lost."""
        self.present.discard(name)
        self.doubted.discard(name)
        self.detoured.discard(name)
        self.gone |= {name}
        self._lost[name] = self._lives.pop(name, b"")
        if len(self._lost) > MAX_LOST:
            del self._lost[next(iter(self._lost))]
        self._agreed.pop(name, None)
        self._questions.pop(name, None)
        self._lost_by.discard(name)
        self._parted.pop(name, None)
        self._asked = {asked for asked in self._asked if asked[0] != name}
        self._state.forget(name)

    def _take_lost(self, sender: str) -> None:
        """Another server has lost this one, as the root has declared; only the root's word counts for all."""
        if sender == self.root:
            self._leave(sender)
        else:
            self._lost_by.add(sender)
            self.doubt(sender)

    def _leave(self, other: str) -> None:
        """Leave the others: this server was declared lost, or has lost the launcher."""
        if self.has_left:
            return
        self.has_left = True
        if not self.is_closing and other != self.launcher:
            log.warning("%s: leaves the session, since %s has lost it", shown(self.name), shown(other))
        others = self.list_others()
        # If the launcher is lost, all others leave as well.
        for name in others if other != self.launcher else ():
            self._exchange.outbox.aside(name, LEAVES, b"")
        self.launcher = ""
        self.doubted = set(others)
        for name in others:
            self._exchange.lose(name)
