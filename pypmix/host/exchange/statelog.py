"""The state of a session in one order: entries that all servers apply, as numbered by the session's root.

Theory of operation
-------------------
A session has one *root* (`membership`): the launcher's server, or the first server by name in a session without a
launcher. A server submits an entry to the root: news of its procs, a job, a process set, a message for many servers,
the loss of a server. The root numbers the entries and sends them to all others; entries that are ready together travel
as one message. So a change costs one message up and one to each server, whatever the number of servers that know it,
and of two changes at once all servers apply the same one first.

The root sends its entries itself, on its own connections: these are in order, lose nothing, and prove whose entries
they are. No server can forge, repeat or reorder entries of the root, and none has to ask for missing ones. The root has
these connections anyway: a launcher gives each daemon its orders, and probes it every few seconds. An entry takes the
root 13 microseconds for each server. So with many servers entries travel together for a longer time (`PACE_SECONDS`),
which bounds the root's share of work: 1,000 servers get at most 20 messages in a second. A direct message of the root
takes the entries along that its receiver has not got, so it never overtakes them, and costs nothing for the others.

A server applies its own changes at once, except where two servers may contradict each other (process sets, losses):
these count in the order of the root alone.

Other messages take the direct way between two servers, which may be faster. So a server adds a *basis* to its next
message to each other server: the number of the last job that it knows, and the number of its last entry. It does so
once after each change. The receiver keeps such a message, and the messages behind it, until it has applied both; for a
bounded time, and up to a bounded size (`Exchange`). A contribution therefore never arrives before the description of
its procs, nor before the news that its sender had submitted. The other way round, news may overtake a contribution that
was sent before: a coordinator asks a server before it continues without it (`coordinator`).

A server that joins gets a *report* on each present server from the root: the jobs, ended procs and process sets that
it answers for. An entry has the number that its origin gave it, so that a server applies no entry twice, in whatever
way it arrives: a later process under the same name begins with a greater number.

Without a launcher the root may be lost, or a server with an earlier name may join. Then each server sends the new root
a report on itself, which the root passes on to all. A report replaces everything that its origin had submitted before;
so nothing depends on how far the old root had come, and no log is kept.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

import time
from collections import deque

from pypmix.engine.times import FORWARD_SECONDS, NEWS_SECONDS, PACE_SECONDS, REPORT_SECONDS
from pypmix.host.exchange.codec import BYTES, NAME, NUMBER, TEXT, Field, many, message
from pypmix.host.exchange.errors import log
from pypmix.host.naming import shown
from pypmix.standard.errors import RemoteProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.membership import Membership

    Entry = tuple[str, int, int, bytes]
    """The origin, its number for the entry, the kind, and the data."""

    Check = Callable[[str, bytes], object]
    """Raises `RemoteProtocolError` if the origin may not submit an entry with this data."""

    Apply = Callable[[str, bytes], bytes | None]
    """Applies the data of an origin; the root passes the returned data on in its place, if any."""

    Report = Callable[[str], Iterable[tuple[int, bytes]]]
    """Returns the kinds and the data by which a server gets to know everything about another one."""

LOSS, NEWS, JOB, FORGET, PROCS, DEFINE, DELETE, SETS, BROADCAST, MARK = range(10)
"""The kinds of entries: `membership` applies the first, `crossing` the next four, `psets` three, `Exchange` the next;
the last one only says that its origin's entries have been applied."""

OWN = frozenset((LOSS, DEFINE, DELETE, SETS))
"""The kinds that their origin, too, applies in the order of the root."""

REPORTS = frozenset((PROCS, SETS))
"""The kinds of reports, which count again when they arrive again."""

SUBMITTED = "pypmix.state.submitted"
ORDERED = "pypmix.state.ordered"
"""The topics of messages to the root, and from it."""

RETURNED = "pypmix.state.returned"
"""The receiver has submitted entries to the sender, which is not the root."""

ENTRIES: Field[tuple[Entry, ...]] = many(message(NAME, NUMBER, NUMBER, BYTES))
ORDER: Field[tuple[int, int, tuple[Entry, ...]]] = message(NUMBER, NUMBER, ENTRIES)
"""The number of the last entry, the number of the last job, and the entries."""

_BASIS: Field[tuple[str, int, int]] = message(TEXT, NUMBER, NUMBER)
"""The root, the number of the last job that the sender knows, and the number of the sender's last entry."""


class StateLog:
    """One server's part in the order of entries.

    Args:
        exchange: This server's exchange.

    Attributes:
        losses: Decides when a declared loss can be applied; set before the exchange starts.
    """

    losses: Membership

    def __init__(self, exchange: Exchange) -> None:
        self.name = exchange.name
        self._exchange = exchange
        self._apply: dict[int, Apply] = {}
        self._checks: dict[int, Check] = {}
        self._reports: list[Report] = []
        self._start = time.time_ns()
        self._count = 0
        self._counts: dict[str, int] = {}
        """The number of the last applied entry of each origin."""
        self._drafts: list[tuple[int, int, bytes | Callable[[], bytes]]] = []
        """The entries of this server that were not sent to the root yet."""
        self._number = 0
        """The number of the last entry that this server has numbered, or applied."""
        self._job = 0
        """The number of the last job."""
        self._root = ""
        """The root whose numbers these are."""
        self._is_reporting = False
        self._numbered: list[Entry] = []
        """The entries that this server, as the root, has not sent to all others yet."""
        self._sent: dict[str, int] = {}
        """The number of these that it has sent to some."""
        self._flushed = float("-inf")
        self._inbox: deque[tuple[str, Entry | None, int, int]] = deque()
        """Entries that wait for a loss before them, and the two numbers after each message."""
        exchange.hear(SUBMITTED, self._submitted)
        exchange.hear(ORDERED, self._take_ordered)
        exchange.hear(RETURNED, self._take_returned)

    def on(self, kind: int, apply: Apply, check: Check | None = None) -> None:
        """Apply entries of a kind with a function; the root checks the entries of others with another one before."""
        self._apply[kind] = apply
        if check is not None:
            self._checks[kind] = check

    def report(self, report: Report) -> None:
        """Add a part to the reports on servers."""
        self._reports.append(report)

    @property
    def _is_root(self) -> bool:
        return self._exchange.root == self.name

    # Entries of this server

    def submit(self, kind: int, data: bytes | Callable[[], bytes]) -> None:
        """Submit an entry of this server; in a callback of the exchange.

        Args:
            kind: Its kind.
            data: The data, or a function that returns the data when the entry is sent.
        """
        self._count += 1
        number = self._start + self._count
        if self._is_root:
            self._add((self.name, number, kind, data if isinstance(data, bytes) else data()))
            return
        self._drafts.append((number, kind, data))
        if len(self._drafts) == 1:
            self._exchange.outbox.buffer(
                self._exchange.root, SUBMITTED, lambda: ENTRIES.write(tuple(self._take_drafts()))
            )
        self._rebase()

    def _take_drafts(self) -> list[Entry]:
        drafts, self._drafts = self._drafts, []
        return [(self.name, number, kind, data if isinstance(data, bytes) else data()) for number, kind, data in drafts]

    # The root

    def add_loss(self, data: bytes) -> None:
        """Number the loss of a server; only the root does so, or the server that takes its place by that."""
        self._add((self.name, 0, LOSS, data))

    def _submitted(self, sender: str, data: bytes) -> None:
        if not self._is_root:
            # It does not know the root yet.
            self._exchange.outbox.aside(sender, RETURNED, b"")
            return
        for entry in ENTRIES.read(data):
            origin, _, kind, content = entry
            try:
                self._exchange.authority.check_entry(sender, origin, kind)
                if kind in self._checks:
                    self._checks[kind](origin, content)
            except RemoteProtocolError as error:
                log.error("%s: an entry of %s is dropped: %s", shown(self.name), shown(sender), error)
            else:
                self._add(entry)

    def _take_returned(self, sender: str, _data: bytes) -> None:
        """A server that has got entries of this one is not the root, which gets a report once it is known here."""
        if sender == self._exchange.root and not self._is_reporting:
            self._is_reporting = True
            self._exchange.later(REPORT_SECONDS, lambda: self._report_again(sender))

    def _report_again(self, root: str) -> None:
        self._is_reporting = False
        if root == self._exchange.root:
            # The other root may be lost by now.
            self.change_root()

    def _add(self, entry: Entry) -> None:
        """Apply an entry, and send it to all others in a moment."""
        origin, number, kind, _ = entry
        if origin != self.name and self._is_old(entry):
            return
        if kind in (JOB, PROCS) and not self._exchange.launcher:
            self._job = self._number + 1
        self._number += 1
        if not self._numbered:
            # The first entries at once; later ones of the same moment are sent together.
            pace = max(FORWARD_SECONDS, PACE_SECONDS * len(self._exchange.membership.present))
            least = 0.0 if kind == LOSS else NEWS_SECONDS
            self._exchange.later(max(least, self._flushed + pace - self._exchange.now()), self.flush)
            self._exchange.outbox.precede(self._take_pending)
        self._numbered.append(entry)
        changed = self._apply_entry(entry)
        if changed is not None and self._numbered and self._numbered[-1] is entry:
            self._numbered[-1] = (origin, number, kind, changed)

    def _take_pending(self, name: str) -> bytes:
        """Return the entries that a server has not got yet; empty if it has all."""
        first = self._sent.get(name, 0)
        self._sent[name] = len(self._numbered)
        return self._write_order(tuple(self._numbered[first:])) if first < len(self._numbered) else b""

    def _write_order(self, entries: tuple[Entry, ...]) -> bytes:
        # A launcher sends the descriptions of jobs itself.
        return ORDER.write((self._number, 0 if self._exchange.launcher else self._job, entries))

    def flush(self) -> None:
        """Send the numbered entries to all others that have not got them; in a callback of the exchange."""
        if not self._numbered or self._exchange.membership.is_closing:
            return
        self._flushed = self._exchange.now()
        outbox, others = self._exchange.outbox, self._exchange.list_others()
        for name in self._sent:
            if entries := self._take_pending(name):
                outbox.aside(name, ORDERED, entries)
        entries = self._write_order(tuple(self._numbered))
        outbox.aside_all([name for name in others if name not in self._sent], ORDERED, entries)
        self._numbered, self._sent = [], {}
        outbox.precede(None)

    def introduce(self, name: str) -> None:
        """Send a server that has joined a report on each present server; only the root does so."""
        entries: list[Entry] = []
        for origin in self._exchange.members:
            count = self._own_count() if origin == self.name else self._counts.get(origin, 0)
            told = [(origin, count, kind, data) for kind, data in self._report_on(origin)] if origin != name else []
            entries += told or ([(origin, count, MARK, b"")] if count and origin != name else [])
        if entries or self._number or self._job:
            self._exchange.outbox.aside(name, ORDERED, ORDER.write((self._number, self._job, tuple(entries))))

    def _own_count(self) -> int:
        return self._start + self._count if self._count else 0

    def _report_on(self, origin: str) -> list[tuple[int, bytes]]:
        return [entry for report in self._reports for entry in report(origin)]

    # All servers

    def change_root(self) -> None:
        """Another server is the root, or the root has joined: it gets a report on this server."""
        # The drafts include news that the reports have by now, and messages for all that they do not have.
        entries = self._take_drafts()
        if self._exchange.list_others():
            # The root before may not have passed on everything that this server had submitted.
            entries += [(self.name, self._own_count(), kind, data) for kind, data in self._report_on(self.name)]
        if self._is_root:
            for entry in entries:
                self._add(entry)
            # This server knows all entries from here on.
            self._exchange.arrivals.release_ready()
        elif entries:
            self._exchange.outbox.aside(self._exchange.root, SUBMITTED, ENTRIES.write(tuple(entries)))
        self._rebase()

    def forget(self, name: str) -> None:
        """A server is lost: a later process under its name begins anew."""
        self._counts.pop(name, None)
        self._sent.pop(name, None)
        if name == self._root:
            # A later process of its name numbers anew.
            self._root = ""

    def know_job(self, number: int) -> None:
        """Record the number that the launcher gave to a job, before any message that may be about it."""
        if number > self._job:
            self._job = number
            self._rebase()
            self._exchange.arrivals.release_ready()

    def _is_old(self, entry: Entry) -> bool:
        origin, number, kind, _ = entry
        count = self._counts.get(origin, 0)
        return 0 < number < count or (0 < number == count and kind not in REPORTS)

    def _apply_entry(self, entry: Entry) -> bytes | None:
        origin, number, kind, data = entry
        self._counts[origin] = max(number, self._counts.get(origin, 0))
        apply = self._apply.get(kind)
        if apply is None or (origin == self.name and kind not in OWN):
            return None
        try:
            return apply(origin, data)
        except RemoteProtocolError as error:
            log.error("%s: an entry of %s is dropped: %s", shown(self.name), shown(origin), error)
        except Exception:
            log.exception("%s: an entry of %s could not be dealt with", shown(self.name), shown(origin))
        return None

    def _take_ordered(self, sender: str, data: bytes) -> None:
        number, job, entries = ORDER.read(data)
        for entry in entries:
            if entry[2] != LOSS or self.losses.expect(sender, entry[3]):
                self._inbox.append((sender, entry, 0, 0))
        self._inbox.append((sender, None, number, job))
        self.advance()

    def advance(self) -> None:
        """Apply the entries whose turn has come."""
        while self._inbox:
            sender, entry, number, job = self._inbox[0]
            if entry is not None and entry[2] == LOSS and not self.losses.may_lose(entry[3]):
                return
            self._inbox.popleft()
            if entry is not None:
                # A server that was the root of others for a moment reports these entries to the root.
                is_of_root = entry[2] == LOSS or sender == self._exchange.root
                if is_of_root and not self._is_old(entry):
                    self._apply_entry(entry)
            elif sender == self._exchange.root:
                if self._exchange.launcher:
                    job = max(job, self._job)
                changed = (sender, job) != (self._root, self._job)
                self._root, self._number, self._job = sender, number, job
                if changed:
                    self._rebase()
        self._exchange.arrivals.release_ready()

    # The basis of messages

    def _rebase(self) -> None:
        """Give the next message to each server the new basis."""
        basis = b""
        if not self._is_root and (self._count or self._job):
            basis = _BASIS.write((self._root, self._job, self._own_count()))
        self._exchange.outbox.rebase(basis, (self._exchange.root,))

    def has_basis(self, sender: str, basis: bytes) -> bool:
        """Return True if messages of a server with this basis can be processed."""
        root, job, count = _BASIS.read(basis)
        if self._is_root:
            return True
        if count > self._counts.get(sender, 0):
            return False
        if self._exchange.launcher:
            return job <= self._job
        # The numbers of different roots cannot be compared: a report is on its way then.
        return root != self._exchange.root or (root == self._root and job <= self._number)
