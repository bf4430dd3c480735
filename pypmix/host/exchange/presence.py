"""Calls that wait for servers to join."""

from __future__ import annotations

from pypmix.host.exchange.errors import ExchangeTimeout, listed, make_departure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import Timer
    from pypmix.host.exchange.membership import Membership
    from pypmix.standard.errors import PMIxError

    OnPresent = Callable[[None, PMIxError | None], None]


class PresenceWait:
    """A call that waits for servers to join."""

    __slots__ = ("done", "names", "timer")

    def __init__(self, names: frozenset[str], done: OnPresent) -> None:
        self.names = names
        self.done = done
        self.timer: Timer | None = None


class PresenceWaits:
    """The calls of one server that wait for others; used in the turns of the exchange.

    Args:
        exchange: The exchange of this server.
        membership: The servers that are present.
    """

    def __init__(self, exchange: Exchange, membership: Membership) -> None:
        self._exchange = exchange
        self._membership = membership
        self._waiting: list[PresenceWait] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, names: frozenset[str], done: OnPresent, timeout: float) -> None:
        """Wait for servers; see `Exchange.when_present`."""
        if self._exchange.is_closed:
            self._exchange.soon(done, None, make_departure("when_present"))
        elif names <= self._membership.present:
            self._exchange.soon(done, None, None)
        else:
            wait = PresenceWait(names, done)
            self._waiting.append(wait)
            if timeout:
                wait.timer = self._exchange.later(timeout, lambda: self._time_out(wait))

    def _time_out(self, wait: PresenceWait) -> None:
        missing = sorted(wait.names - self._membership.present)
        self._end(wait, ExchangeTimeout(f"{listed(missing)} did not come in time", servers=missing))

    def _end(self, wait: PresenceWait, error: PMIxError | None) -> None:
        if wait in self._waiting:
            self._waiting.remove(wait)
            if wait.timer is not None:
                wait.timer.cancel()
            self._exchange.soon(wait.done, None, error)

    def end_complete(self) -> None:
        """End the waits whose servers are all present."""
        for wait in [wait for wait in self._waiting if wait.names <= self._membership.present]:
            self._end(wait, None)

    def close(self) -> None:
        """End all waits: this server leaves."""
        for wait in list(self._waiting):
            self._end(wait, make_departure("when_present"))
