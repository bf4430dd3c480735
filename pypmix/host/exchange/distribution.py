"""The way of the ordered entries from the root of a session to all other servers: direct, or through some of them.

Theory of operation
-------------------
The root sends its entries to each other server itself as long as these are at most `fan_out`. Of more servers it sends
a message to the first server of each of `fan_out` runs, with the names of the others in that run, which the receiver
forwards in the same way. So the root sends at most `fan_out` messages, whatever the size of the session, and each
server gets one. The receivers are in the message: no server has to know a tree, and the next message has another one
if a server has joined or is lost.

Each message has the number of the entry before it and of its last entry. A server begins at 0, or at the number that
the root sends to it as it joins, and applies messages in the order of numbers. After `GAP_SECONDS` with a gap it asks
the root, which sends what is missing itself, from its log of the last `LOG_SECONDS`. A gap is a message whose
predecessor has not arrived, or a message of another server that waits for an entry (`arrivals`). A forwarder that does
not know a receiver asks in its place. A lost forwarder needs nothing else: its loss is an entry, and shows the gap.
If a forwarder is silent, its receivers might not know that there is an entry. So after `QUIET_SECONDS` without an entry
the root sends the last number once more, with other forwarders.

If the log no longer has an entry, the root sends a report on all servers in its place (`statelog`).

As entries may arrive after direct messages of the root now, the root adds a basis to these, as all servers do.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

from collections import deque

from pypmix.engine.times import GAP_SECONDS, LOG_SECONDS, QUIET_SECONDS
from pypmix.host.exchange.codec import BYTES, NAME, NAMES, NUMBER, Field, broken, many, message
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.limits import LOG_BYTES
from pypmix.host.exchange.tree import runs
from pypmix.host.naming import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pypmix.host.exchange.exchange import Exchange

    Entry = tuple[str, int, int, bytes]
    """The origin, its number for the entry, the kind, and the data."""

    Deliver = Callable[[str, int, int, tuple[Entry, ...]], None]
    """Applies the entries of a root; called with it, the number of the last one, the last job's, and the entries."""

ORDERED = "pypmix.state.ordered"
FORWARDED = "pypmix.state.forwarded"
MISSED = "pypmix.state.missed"
"""The topics of entries that come from the root, or by other servers, and of servers that have missed some."""

POSITION = -1
REPORT = POSITION - 1
"""In place of the number before a message: the receiver begins after its number, or a report outside the order."""

ENTRIES: Field[tuple[Entry, ...]] = many(message(NAME, NUMBER, NUMBER, BYTES))
ORDER: Field[tuple[int, int, int, int, tuple[Entry, ...]]] = message(NUMBER, NUMBER, NUMBER, NUMBER, ENTRIES)
"""The root's epoch, the number of the entry before, that of the last entry, that of the last job, and the entries."""

_FORWARDED: Field[tuple[str, tuple[str, ...], bytes]] = message(NAME, NAMES, BYTES)
"""The root, the servers to forward to, and the entries."""

_MISSED: Field[tuple[tuple[str, ...], int, int]] = message(NAMES, NUMBER, NUMBER)
"""Servers that have missed entries of the root, its epoch, and the number of the last entry that they have."""


class Feed:
    """The entries of one root, as far as they have arrived.

    Attributes:
        epoch: The root's epoch.
        number: The number of the last entry that has arrived in order.
        early: Messages that have arrived before others, by the number before them.
        pause: The seconds until the root is asked once more; 0 if it is not asked.
    """

    __slots__ = ("early", "epoch", "number", "pause")

    def __init__(self) -> None:
        self.epoch = 0
        self.number = 0
        self.early: dict[int, tuple[int, int, tuple[Entry, ...]]] = {}
        self.pause = 0.0


class Distribution:
    """One server's part in the distribution of entries.

    Args:
        exchange: This server's exchange.
        deliver: Applies entries in order.
        introduce: Sends a server a report on all; only called on the root.
        epoch: The number of this server's entries when it is the root, greater than that of an earlier process.

    Attributes:
        fan_out: The most servers that one server sends an entry to; 0 if the root sends it to all itself.
        forwarded: The number of the last entry that this server has sent through others.
    """

    def __init__(self, exchange: Exchange, deliver: Deliver, introduce: Callable[[str], None], epoch: int) -> None:
        self.name = exchange.name
        self.fan_out = 0
        self.forwarded = 0
        self._exchange = exchange
        self._deliver = deliver
        self._introduce = introduce
        self._epoch = epoch
        self._number = 0
        """The number of the last entry that this server has sent as the root."""
        self._log: deque[tuple[float, int, bytes]] = deque()
        """When each message was sent, the number of its last entry, and the message."""
        self._size = 0
        self._dropped = 0
        """The number of the last entry that the log does not have."""
        self._is_quiet = True
        self._feeds: dict[str, Feed] = {}
        exchange.hear(ORDERED, self._take_direct)
        exchange.hear(FORWARDED, self._forward)
        exchange.hear(MISSED, self._send_missed)

    # The root

    def begin(self) -> None:
        """This server becomes the root: its entries are numbered anew, and all present servers begin at 0."""
        self._epoch += 1
        self._number = self._dropped = self.forwarded = self._size = 0
        self._log.clear()

    def add(self, name: str) -> None:
        """Send a server that joins the number that it begins at; only the root does so."""
        if self._number:
            self._send(name, POSITION, self._number)

    def report(self, name: str, job: int, entries: tuple[Entry, ...]) -> None:
        """Send a server entries outside the order; only the root does so."""
        self._send(name, REPORT, 0, job, entries)

    def send(self, number: int, job: int, entries: tuple[Entry, ...]) -> None:
        """Send entries to all others.

        Args:
            number: The number of the last one.
            job: The number of the last job.
            entries: The entries.
        """
        before, self._number = self._number, number
        data = ORDER.write((self._epoch, before, number, job, entries))
        others = self._exchange.list_reached()
        is_direct = not 0 < self.fan_out < len(others)
        self._trim()
        if self._log or not is_direct:
            if not self._log:
                self._dropped = before
            self._log.append((self._exchange.now(), number, data))
            self._size += len(data)
        if is_direct:
            self._exchange.outbox.aside_all(ORDERED, data)
            return
        self.forwarded = number
        self._pass_on(self.name, others, data)
        if self._is_quiet:
            self._is_quiet = False
            self._exchange.later(QUIET_SECONDS, lambda: self._repeat(self._epoch))

    def _send(self, name: str, before: int, number: int, job: int = 0, entries: tuple[Entry, ...] = ()) -> None:
        self._exchange.outbox.aside(name, ORDERED, ORDER.write((self._epoch, before, number, job, entries)))

    def _trim(self) -> None:
        limit = self._exchange.now() - LOG_SECONDS
        while self._log and (self._log[0][0] < limit or self._size > LOG_BYTES):
            _, self._dropped, data = self._log.popleft()
            self._size -= len(data)

    def _repeat(self, epoch: int) -> None:
        """Send the last number through other servers than before, once there are no further entries."""
        if epoch != self._epoch or not self._log:
            self._is_quiet = True
            return
        rest = self._log[-1][0] + QUIET_SECONDS - self._exchange.now()
        if rest > 0:
            self._exchange.later(rest, lambda: self._repeat(epoch))
            return
        self._is_quiet = True
        others = self._exchange.list_reached()
        if self.name == self._exchange.root and 0 < self.fan_out < len(others):
            data = ORDER.write((self._epoch, self._number, self._number, 0, ()))
            self._pass_on(self.name, [*others[1:], others[0]], data)

    def _send_missed(self, _sender: str, data: bytes) -> None:
        names, epoch, number = _MISSED.read(data)
        if self._exchange.root != self.name:
            return
        self._trim()
        for name in names:
            # A server that has missed the beginning of this root begins at 0, or later if the root has sent that.
            last = number if epoch == self._epoch else 0
            if last < self._dropped:
                log.info("%s: %s gets a report, as it has missed changes", shown(self.name), shown(name))
                self._send(name, POSITION, self._dropped)
                self._introduce(name)
            for _, each, entries in self._log:
                if each > last:
                    self._exchange.outbox.aside(name, ORDERED, entries)

    # All servers

    def _pass_on(self, root: str, names: Sequence[str], data: bytes) -> list[str]:
        """Send a message to the first server of each run; return the servers that this one does not reach."""
        reached = set(self._exchange.list_reached())
        missed: list[str] = []
        for run in runs(names, self.fan_out or len(names)):
            first = next(filter(reached.__contains__, run), None)
            if first is None:
                missed += run
            else:
                rest = tuple([name for name in run if name != first])
                self._exchange.outbox.aside(first, FORWARDED, _FORWARDED.write((root, rest, data)))
        return missed

    def _forward(self, sender: str, data: bytes) -> None:
        root, names, order = _FORWARDED.read(data)
        if self._exchange.launcher not in ("", root):
            raise broken(f"{shown(sender)} forwards entries of {shown(root)}, which is not the launcher")
        if names and (missed := self._pass_on(root, names, order)) and self._exchange.has(root):
            epoch, before, *_ = ORDER.read(order)
            self._exchange.outbox.aside(root, MISSED, _MISSED.write((tuple(missed), epoch, before)))
        # Entries of a lost root, or of one that is not known yet: this server gets them when it asks.
        if self._exchange.has(root) and root != self.name:
            self._take(root, order)

    def _take_direct(self, sender: str, data: bytes) -> None:
        if self._exchange.launcher not in ("", sender):
            raise broken(f"{shown(sender)} orders entries and is not the launcher")
        self._take(sender, data)

    def _take(self, root: str, data: bytes) -> None:
        epoch, before, number, job, entries = ORDER.read(data)
        feed = self._feeds.setdefault(root, Feed())
        if epoch < feed.epoch:
            return
        if epoch > feed.epoch:
            feed.epoch, feed.number = epoch, 0
            feed.early.clear()
            self._deliver(root, 0, 0, ())
        if before == REPORT:
            self._deliver(root, feed.number, job, entries)
        elif before == POSITION:
            if number > feed.number:
                feed.number = number
                self._deliver(root, number, job, entries)
        elif number > feed.number or before > feed.number:
            feed.early[before] = number, job, entries
        self._release(root, feed)

    def _release(self, root: str, feed: Feed) -> None:
        """Apply the messages whose turn has come."""
        while feed.early:
            before = min(feed.early)
            if before > feed.number:
                break
            number, job, entries = feed.early.pop(before)
            if number > feed.number:
                known, feed.number = feed.number - before, number
                self._deliver(root, number, job, entries[known:])
        if feed.early:
            self._expect(root, feed)

    def expect_entries(self) -> None:
        """A message waits for entries: ask the root unless they arrive in a moment."""
        root = self._exchange.root
        if 0 < self.fan_out < len(self._exchange.list_reached()) and root != self.name:
            self._expect(root, self._feeds.setdefault(root, Feed()))

    def _expect(self, root: str, feed: Feed) -> None:
        if not feed.pause:
            feed.pause = GAP_SECONDS
            self._exchange.later(feed.pause, lambda: self._ask(root, feed))

    def _ask(self, root: str, feed: Feed) -> None:
        """Ask the root for entries, after longer and longer times while there is a gap."""
        is_current = self._feeds.get(root) is feed and self._exchange.has(root) and feed.pause < LOG_SECONDS
        if not is_current or not (feed.early or self._exchange.arrivals.is_holding):
            feed.pause = 0.0
            return
        self._exchange.outbox.aside(root, MISSED, _MISSED.write(((self.name,), feed.epoch, feed.number)))
        feed.pause *= 2
        self._exchange.later(feed.pause, lambda: self._ask(root, feed))

    def forget(self, name: str) -> None:
        """A server is lost: a later process of its name begins anew."""
        self._feeds.pop(name, None)
