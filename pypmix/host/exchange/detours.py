"""Messages between two servers that reach only the root: it passes them on.

Theory of operation
-------------------
A direct connection between two servers is an optimization. If a server has to send something to another one that its
carrier has not reported for `DETOUR_SECONDS`, it asks the root for it. If the other one is present there, the two
become present for each other, and all messages between them go through the root from then on, in order. If no two
servers reach each other (`bridge`), the root introduces all that join, so that none has to ask. A connection
that is made later is not used by the side that has begun the detour, so that no message overtakes an earlier one. As
long as the detour lasts, only the root declares one of them lost to the other.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

from pypmix.engine.times import DECISION_SECONDS, DETOUR_SECONDS
from pypmix.host.exchange.codec import BYTES, NAME, Field, many, message
from pypmix.host.exchange.errors import log
from pypmix.host.naming import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import OnAnswer
    from pypmix.host.exchange.membership import Membership
    from pypmix.standard.errors import PMIxError

REACH = "pypmix.reach"
"""A request to the root for a server that the sender does not reach."""

MEET = "pypmix.meet"
"""The root's report that other servers reach the receiver through it alone."""

PASS_ON, PASSED_ON = "pypmix.pass", "pypmix.passed"
"""A message for another server, and from another server."""

_SERVER: Field[tuple[str, bytes]] = message(NAME, BYTES)
"""A server, and the number of its process; or a server and a message."""

_SERVERS: Field[tuple[tuple[str, bytes], ...]] = many(_SERVER)


class Detours:
    """The servers that one server reaches through the root.

    Args:
        exchange: This server's exchange.
        membership: The servers that are present.
    """

    def __init__(self, exchange: Exchange, membership: Membership) -> None:
        self._membership = membership
        self._exchange = exchange
        self._waiting: dict[str, list[Callable[[bool], None]]] = {}
        """Calls that wait for servers that are not present yet; called with whether they are."""
        self._pursued: set[str] = set()
        """The servers that collectives wait for."""
        exchange.handle(REACH, self._answer)
        exchange.hear(MEET, self._meet)
        exchange.hear(PASS_ON, self._pass_on)
        exchange.hear(PASSED_ON, self._receive)

    def introduce_all(self) -> None:
        """Introduce the servers that join to each other: they reach only this one, the root; before `start`."""
        self._exchange.watch(self._introduce)

    def _introduce(self, name: str, is_present: bool) -> None:
        others = [each for each in self._exchange.list_others() if each != name]
        if is_present and self._exchange.has(name):
            self._report(name, others)
            for other in others:
                self._report(other, (name,))

    def _report(self, to: str, names: Iterable[str]) -> None:
        # The declared losses first: a server may have joined under the name of a lost one.
        self._exchange.state.flush()
        servers = tuple([(name, self._membership.life_of(name)) for name in names])
        self._exchange.outbox.aside(to, MEET, _SERVERS.write(servers))

    def reach(self, name: str, call: Callable[[bool], None]) -> None:
        """Call a function once a server is present, directly or through the root, or once the root does not know it."""
        waiting = self._waiting.setdefault(name, [])
        waiting.append(call)
        if len(waiting) == 1:
            self._exchange.later(DETOUR_SECONDS, lambda: self._ask(name, waiting))

    def pursue(self, name: str) -> None:
        """Reach a server through the root unless it joins in a moment; again and again where there is a launcher."""

        def look_again(is_present: bool) -> None:
            self._pursued.discard(name)
            # A launcher gets to know all servers.
            if not is_present and self._exchange.launcher and name not in self._exchange.gone:
                self._exchange.later(DECISION_SECONDS, lambda: self.pursue(name))

        if not self._exchange.has(name) and name not in self._pursued:
            self._pursued.add(name)
            self.reach(name, look_again)

    def settle(self, name: str, is_present: bool) -> None:
        """Make the calls that wait for a server."""
        for call in self._waiting.pop(name, ()):
            call(is_present)

    def wrap(self, to: str, text: bytes) -> tuple[str, str, bytes]:
        """Return the receiver, the topic and the data by which a message for another server takes the detour."""
        return self._exchange.root, PASS_ON, _SERVER.write((to, text))

    def _ask(self, name: str, waiting: list[Callable[[bool], None]]) -> None:
        if self._waiting.get(name) is not waiting:
            return
        root = self._exchange.root

        def take_answer(data: bytes | None, error: PMIxError | None) -> None:
            if self._waiting.get(name) is waiting:
                if error is None and data:
                    self._begin(*_SERVER.read(data))
                else:
                    self.settle(name, False)

        if root == self._exchange.name or not self._exchange.has(root):
            self.settle(name, False)
        else:
            self._exchange.requests.ask(root, REACH, NAME.write(name), take_answer)

    def _begin(self, name: str, life: bytes) -> None:
        if not self._exchange.has(name):
            log.info("%s: %s is reached through %s", *map(shown, (self._exchange.name, name, self._exchange.root)))
            self._membership.detoured.add(name)
            self._exchange.join(name, life)

    def _answer(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        name = NAME.read(data)
        membership = self._membership
        if self._exchange.root != self._exchange.name or name not in membership.present - membership.doubted:
            answer(b"", None)
            return
        self._report(name, (sender,))
        answer(_SERVER.write((name, membership.life_of(name))), None)

    def _meet(self, sender: str, data: bytes) -> None:
        if sender == self._exchange.root:
            for server in _SERVERS.read(data):
                self._begin(*server)

    def _pass_on(self, sender: str, data: bytes) -> None:
        to, text = _SERVER.read(data)
        if self._exchange.has(to):
            self._exchange.outbox.aside(to, PASSED_ON, _SERVER.write((sender, text)))

    def _receive(self, sender: str, data: bytes) -> None:
        if sender == self._exchange.root:
            self._exchange.arrivals.take(*_SERVER.read(data))
