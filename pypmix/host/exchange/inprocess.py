"""The carrier within one process: servers that run side by side, in fact or in a simulation on virtual time."""

from __future__ import annotations

import threading
from itertools import count

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
    """A clock that moves only in `run` and `step`, from one call that is due to the next: always the same way.

    Attributes:
        now: Seconds since the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._calls = Heap()

    def later(self, seconds: float, call: Call) -> Alarm:
        """Call a function after some seconds; of several that are due at one time, the first is called first."""
        return self.at(self.now + seconds, call)

    def at(self, due: float, call: Call) -> Alarm:
        """Call a function at a time."""
        return self._calls.at(due, call)

    def time(self) -> float:
        """Return `now`, as a function to use as a clock."""
        return self.now

    def due(self) -> float | None:
        """Return when the next call is due; None if no call is."""
        first = self._calls.first()
        return None if first is None else first.due

    def step(self) -> bool:
        """Make the next call that is due. Return False if no call is."""
        due = self.due()
        call = None if due is None else self._calls.take(due)
        if due is None or call is None:
            return False
        self.now = max(self.now, due)
        call()
        return True

    def run(self, until: float | None = None) -> None:
        """Make all calls that are due, and the calls that these add.

        Args:
            until: Stop at this time; by default when no call is left.
        """
        while (due := self.due()) is not None and (until is None or due <= until):
            self.step()
        if until is not None:
            self.now = max(self.now, until)


class Hub:
    """The meeting place of the carriers of one process.

    Without arguments it is a simulation: `clock` is its virtual time, and messages arrive only during `hub.run()`. With
    `post` it needs no such calls.

    Args:
        post: Calls a function soon on some thread, in the order of the calls, as the loop of a host does. Each
            carrier may have a separate one.
        clock: The virtual time, if it is shared with others.
        delay: How many virtual seconds a message from one server to another takes; messages of a pair stay in order.
        between: Gets the names of two servers and a function that passes a message from the first to the second, which
            it calls at once, or later in their order.
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
            post: Calls its functions; the hub's by default.

        Raises:
            ValueError: There is a server of this name.
        """
        with self._lock:
            if name in self._carriers:
                raise ValueError(f"there is a server {name!r} already")
            carrier = self._carriers[name] = HubCarrier(self, name, post or self._post)
        return carrier

    def run(self, until: float | None = None) -> None:
        """Advance virtual time; see `VirtualTime.run`."""
        self.clock.run(until)

    def lose(self, name: str) -> None:
        """Kill a server: its messages that have not arrived are lost, and the others get a report of its end."""
        with self._lock:
            carrier = self._carriers.get(name)
            if carrier is not None:
                carrier.lost = True
                self._remove(carrier)

    def part(self, one: str, other: str) -> None:
        """Break the connection of two servers: messages on their way are lost, and each loses the other."""
        with self._lock:
            first, second = self._carriers.get(one), self._carriers.get(other)
            if first is None or second is None or first is second or second in first.apart:
                return
            first.apart.add(second)
            second.apart.add(first)
            # Past `between`, which may hold messages back: neither of them reports this to the other.
            self._carry(first, second, lambda: second.changed(first, False))
            self._carry(second, first, lambda: first.changed(second, False))

    # Calls of the carriers

    def enter(self, carrier: HubCarrier) -> None:
        """A carrier listens: it and the listening ones get reports of each other."""
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
        """Deliver a message, if its receiver is still present then."""
        with self._lock:
            # Not a later process of that name, as long as the sender has got no report of the end of the former one.
            receiver = carrier.find(to) or self._carriers.get(to)
            if receiver is not None and not (carrier.closed or receiver.closed or receiver in carrier.apart):
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


_numbers = count(1)
"""The numbers of the carriers of this process."""


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
        self.number = next(_numbers)
        self.apart: set[HubCarrier] = set()
        """The carriers to which its connection is broken."""
        self._hub = hub
        self._present: dict[str, HubCarrier] = {name: self}
        self._on_message: OnMessage | None = None
        self._on_change: OnChange | None = None

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all present servers, sorted."""
        return tuple(sorted(self._present.copy()))

    def life(self, name: str) -> bytes:
        """Return the number of a present server, which no other server of that name has."""
        other = self._present.get(name)
        return b"" if other is None else b"%d" % other.number

    def find(self, name: str) -> HubCarrier | None:
        """Return the carrier of a present server."""
        return self._present.get(name)

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
        """Another server has joined or left."""
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
        """Process a message that has arrived."""
        known = self._present.get(sender.name) is sender and sender not in self.apart
        if known and not self.closed and not sender.lost and self._on_message is not None:
            self._on_message(sender.name, message)
