"""The carrier within one process: servers that run side by side, in fact or in a simulation on virtual time."""

from __future__ import annotations

import threading

from pypmix.engine.alarms import Heap
from pypmix.host.exchange.carrier import MAX_MESSAGE, check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.alarms import Alarm
    from pypmix.host.exchange.carrier import OnChange, OnMessage

    Call = Callable[[], None]
    Post = Callable[[Call], None]
    Delay = Callable[[str, str], float]
    Between = Callable[[str, str, Call], None]


class VirtualTime:
    """A clock that goes on only in `run` and `step`, from one call that is due to the next: always the same way.

    Attributes:
        now: Seconds since the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._calls = Heap()

    def later(self, seconds: float, call: Call) -> Alarm:
        """Have a function called after some seconds; of several that are due at a time, the first comes first."""
        return self.at(self.now + seconds, call)

    def at(self, due: float, call: Call) -> Alarm:
        """Have a function called at a time."""
        return self._calls.at(due, call)

    def time(self) -> float:
        """Return `now`, in the form in which clocks are handed on."""
        return self.now

    def due(self) -> float | None:
        """Return when the next call is due; None if there is none."""
        first = self._calls.first()
        return None if first is None else first.due

    def step(self) -> bool:
        """Make the next call that is due; tell whether there was one."""
        due = self.due()
        call = None if due is None else self._calls.take(due)
        if due is None or call is None:
            return False
        self.now = max(self.now, due)
        call()
        return True

    def run(self, until: float | None = None) -> None:
        """Make all calls that are due, and those that these bring about.

        Args:
            until: Stop at this time; by default when nothing is due any more.
        """
        while (due := self.due()) is not None and (until is None or due <= until):
            self.step()
        if until is not None:
            self.now = max(self.now, until)


class Hub:
    """Where the carriers of one process meet.

    Without arguments it is a simulation: `clock` is its virtual time, and messages arrive while somebody calls
    `hub.run()`. With `post` it runs by itself.

    Args:
        post: Has a function called soon on some thread, in the order of the calls, as the loop of a host does. Each
            carrier may be given its own.
        clock: The virtual time, where there are other things on it.
        delay: How many virtual seconds a message from one server to another takes; those of a pair stay in order.
        between: Is given the names of two servers, and what passes from the first to the second on to it, which it
            calls at once, or later in their order.
    """

    def __init__(
        self,
        post: Post | None = None,
        *,
        clock: VirtualTime | None = None,
        delay: Delay | None = None,
        between: Between | None = None,
    ) -> None:
        self.clock = clock or VirtualTime()
        self._post = post
        self._delay = delay
        self._between = between
        self._lock = threading.RLock()
        self._carriers: dict[str, HubCarrier] = {}
        self._arrivals: dict[tuple[str, str], float] = {}

    def carrier(self, name: str, post: Post | None = None) -> HubCarrier:
        """Return the carrier of a new server.

        Args:
            name: The server's name.
            post: Where it is called; the hub's by default.

        Raises:
            ValueError: There is a server of this name.
        """
        with self._lock:
            if name in self._carriers:
                raise ValueError(f"there is a server {name!r} already")
            carrier = self._carriers[name] = HubCarrier(self, name, post or self._post)
        return carrier

    def run(self, until: float | None = None) -> None:
        """Let virtual time go on; see `VirtualTime.run`."""
        self.clock.run(until)

    def lose(self, name: str) -> None:
        """Have a server die: what it has sent and has not arrived is lost, and the others are told that it has gone."""
        with self._lock:
            carrier = self._carriers.get(name)
            if carrier is not None:
                carrier.lost = True
                self._remove(carrier)

    def part(self, one: str, other: str) -> None:
        """Have the connection of two servers break: what is on its way is lost, and each finds the other gone."""
        with self._lock:
            first, second = self._carriers.get(one), self._carriers.get(other)
            if first is None or second is None or first is second or second in first.apart:
                return
            first.apart.add(second)
            second.apart.add(first)
            # Whatever has held back what they sent: neither is told by the other.
            self._carry(first, second, lambda: second.changed(first, False))
            self._carry(second, first, lambda: first.changed(second, False))

    # What the carriers do.

    def enter(self, carrier: HubCarrier) -> None:
        """A carrier listens: it and those that do already are told of each other."""
        with self._lock:
            for other in list(self._carriers.values()):
                if other is not carrier and other.listening:
                    self._pass(carrier, other, lambda to=other: to.changed(carrier, True))  # type: ignore[misc]
                    self._pass(other, carrier, lambda of=other: carrier.changed(of, True))  # type: ignore[misc]

    def leave(self, carrier: HubCarrier) -> None:
        """A carrier was closed."""
        with self._lock:
            if self._carriers.get(carrier.name) is carrier:
                self._remove(carrier)

    def send(self, carrier: HubCarrier, to: str, message: bytes) -> None:
        """Have a message arrive, if its receiver is still there then."""
        with self._lock:
            receiver = self._carriers.get(to)
            if receiver is not None and not carrier.closed and receiver not in carrier.apart:
                self._pass(carrier, receiver, lambda: receiver.arrived(carrier, message))

    def _remove(self, carrier: HubCarrier) -> None:
        del self._carriers[carrier.name]
        carrier.closed = True
        for other in self._carriers.values():
            if other.listening:
                self._pass(carrier, other, lambda to=other: to.changed(carrier, False))  # type: ignore[misc]

    def _pass(self, sender: HubCarrier, receiver: HubCarrier, call: Call) -> None:
        if self._between is None:
            self._carry(sender, receiver, call)
        else:
            self._between(sender.name, receiver.name, lambda: self._carry(sender, receiver, call))

    def _carry(self, sender: HubCarrier, receiver: HubCarrier, call: Call) -> None:
        if receiver.post is not None:
            receiver.post(call)
            return
        pair = sender.name, receiver.name
        delay = self._delay(*pair) if self._delay is not None else 0.0
        due = max(self._arrivals.get(pair, 0.0), self.clock.now + delay)
        self._arrivals[pair] = due
        self.clock.at(due, call)


class HubCarrier:
    """The `Carrier` of one server at a hub; made by `Hub.carrier`.

    Attributes:
        name: The server's name.
    """

    def __init__(self, hub: Hub, name: str, post: Post | None) -> None:
        self.name = name
        self.post = post
        self.closed = False
        self.lost = False
        self.listening = False
        self.apart: set[HubCarrier] = set()
        """Whom it has no connection with any more."""
        self._hub = hub
        self._present: dict[str, HubCarrier] = {name: self}
        self._on_message: OnMessage | None = None
        self._on_change: OnChange | None = None

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all servers that are there, sorted."""
        return tuple(sorted(self._present.copy()))

    def send(self, to: str, message: bytes) -> None:
        """Send a message.

        Raises:
            OverflowError: It is longer than `MAX_MESSAGE`.
            ValueError: It is empty.
        """
        check(message, MAX_MESSAGE)
        self._hub.send(self, to, message)

    def listen(self, on_message: OnMessage, on_change: OnChange) -> None:
        """Begin to call these."""
        self._on_message, self._on_change = on_message, on_change
        self.listening = True
        self._hub.enter(self)

    def close(self) -> None:
        """Leave the hub."""
        self._hub.leave(self)

    def changed(self, other: HubCarrier, here: bool) -> None:
        """Another server has come or gone."""
        if self.closed or self._on_change is None:
            return
        if here and not other.lost:
            self._present[other.name] = other
        elif not here and self._present.get(other.name) is other:
            del self._present[other.name]
        else:
            # It died before it was known here.
            return
        self._on_change(other.name, here)

    def arrived(self, sender: HubCarrier, message: bytes) -> None:
        """A message has come."""
        known = self._present.get(sender.name) is sender and sender not in self.apart
        if known and not self.closed and not sender.lost and self._on_message is not None:
            self._on_message(sender.name, message)
