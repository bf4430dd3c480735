"""Events between the clients of a server, and between these and its host."""

from __future__ import annotations

from collections import OrderedDict
from operator import attrgetter

from pypmix.engine.common import ignore
from pypmix.engine.python.node import Topic, fields_of, label_of_group, made, refuse, status_of
from pypmix.engine.times import EVENT_SECONDS
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.ops import DeregisterEvents, Notification, NotifyEvent, RegisterEvents
from pypmix.standard.ops.events import (
    OWN_CLIENTS,
    RANGE_LOCAL,
    RANGE_NAMESPACE,
    RANGE_PROC_LOCAL,
    RANGE_RM,
    check_event,
    is_set,
    matches_any,
    procs_in,
)
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION
from pypmix.standard.releases import NEWEST
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info
from pypmix.wire.frames import TAG_NOTIFY, frame
from pypmix.wire.messages import EVENT, Command
from pypmix.wire.readers import rule_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pypmix.engine.python.node import Node, Peer
    from pypmix.engine.python.processes import Namespace, Process
    from pypmix.standard.types import Proc

DEFAULT = -(2**31)
"""The code that stands for all codes: natives send it when a default handler is deregistered."""


ABOUT_GROUPS = frozenset((*range(statuses.GROUP_MEMBER_FAILED, statuses.GROUP_INVITED + 1), statuses.TALK))
"""The codes of events of members and servers about groups: a host forwards them, and has nothing to watch for."""

MAX_EVENTS = 512
"""Bound of the events that are kept for late registrations, but for `ENDS`."""

ENDS = frozenset(
    (
        statuses.ERR_PROC_ABORTED,
        statuses.ERR_PROC_ABORTED_BY_SIG,
        statuses.ERR_PROC_TERM_WO_SYNC,
        statuses.PROC_TERMINATED,
    )
)
"""The codes by which the host reports that procs have ended."""

MAX_ENDS = 1 << 14
"""Bound of the events of procs that have ended that are kept."""

KEEPING_OWN = (4, 2, 3)
"""The first release whose clients do not keep events that they raise for others for their own late handlers."""

MUCH = 4 * MAX_EVENTS
"""Number of facts about delivered events after which the facts that can no longer matter are dropped."""


class _Event:
    """An event and its receivers.

    Attributes:
        notification: The event.
        sender: The proc that has sent it; None if it came from the host.
        number: Its place in the order of all events.
        time: When it was raised.
        size: About how many bytes it holds.
        for_own_clients: Whether it is for clients that run pypmix alone.
        nspace: The only nspace that it is for; None if it is for others, too.
        targets: The only procs that it is for; None if it names none.
        labels: What kept events are found by: its code, its group (`label_of_group`), and the names of its sender's
            nspace and of the only one that it is for.
    """

    __slots__ = (
        "_named",
        "_packed",
        "_wholes",
        "for_own_clients",
        "labels",
        "nondefault",
        "notification",
        "nspace",
        "number",
        "sender",
        "size",
        "targets",
        "time",
    )

    def __init__(self, notification: Notification, sender: Process | None) -> None:
        self.notification = notification
        self.sender = sender
        self.number = 0
        self.time = 0.0
        self.nondefault = is_set(notification.infos, keys.EVENT_NON_DEFAULT)
        self.for_own_clients = sender is None and is_set(notification.infos, OWN_CLIENTS)
        self.targets = procs_in(notification.infos, keys.EVENT_CUSTOM_RANGE)
        self._named = frozenset(self.targets or ())
        self._wholes = [target for target in self.targets or () if target[1] == RANK_WILDCARD]
        self.nspace = notification.source[0] if notification.range == RANGE_NAMESPACE else None
        self._packed: dict[tuple[int, int], bytes] = {}
        self.labels = self._labels()
        self.size = len(self.packed(1, rule_for(NEWEST)))

    def _labels(self) -> frozenset[object]:
        labels: set[object] = {self.notification.code, self.nspace}
        for info in self.notification.infos:
            if info.key == keys.GROUP_ID and isinstance(info.value.data, str):
                labels.add(label_of_group(info.value.data))
        if self.sender is not None:
            labels.add(self.sender.namespace.name)
        if self.targets:
            labels.add(self.targets[0][0])
        return frozenset(labels - {None})

    def concerns(self, proc: Proc) -> bool:
        """Return True if a proc is in the event's range."""
        if self.targets is not None:
            # This is called for each client, and there may be as many targets.
            return proc in self._named or matches_any(proc, self._wholes)
        if self.nspace is not None:
            return proc[0] == self.nspace
        return self.notification.range not in (RANGE_RM, RANGE_PROC_LOCAL)

    def only_for(self, nspace: str) -> bool:
        """Return True if the event's range lies in this nspace."""
        if self.targets is not None:
            return all(proc[0] == nspace for proc in self.targets)
        return self.nspace == nspace

    def packed(self, buffer_type: int, rule: int) -> bytes:
        """Return the message that brings it to a client, without the infos that the client cannot decode."""
        form = buffer_type, rule
        found = self._packed.get(form)
        if found is None:
            code, source, range, infos = (getattr(self.notification, field) for field in Notification.__match_args__)
            message = EVENT.encode_fit(
                buffer_type,
                rule,
                code=code,
                source=source,
                infos=infos,
                range=RANGE_SESSION if range is None else range,
            )
            found = self._packed[form] = frame(0, TAG_NOTIFY, message)
        return found


_NUMBER = attrgetter("number")


class _Kept:
    """The events that are kept for late registrations, oldest first.

    A lost node ends hundreds of procs at once, and the other procs raise as many events because of that. A proc that
    joins a group at this moment needs the events of the ends that it has missed, or it waits for the ended procs. So
    the host's events of ends have a separate bound.
    """

    def __init__(self) -> None:
        self._ends: OrderedDict[int, _Event] = OrderedDict()
        self._rest: OrderedDict[int, _Event] = OrderedDict()
        self._by_label: dict[object, dict[int, _Event]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._ends) + len(self._rest)

    def __iter__(self) -> Iterator[_Event]:
        return iter(sorted([*self._ends.values(), *self._rest.values()], key=_NUMBER))

    def labelled(self, *labels: object) -> list[_Event]:
        """Return the events that have one of these labels, oldest first; see `_Event.labels`."""
        found: dict[int, _Event] = {}
        for label in labels:
            found.update(self._by_label.get(label, {}))
        return [found[number] for number in sorted(found)]

    def add(self, event: _Event, most: int) -> None:
        """Keep an event, and drop the oldest events beyond the bounds of number and of size (`most` bytes)."""
        ends = event.sender is None and event.notification.code in ENDS
        (self._ends if ends else self._rest)[event.number] = event
        for label in event.labels:
            self._by_label.setdefault(label, {})[event.number] = event
        self._bytes += event.size
        while len(self._rest) > MAX_EVENTS or (self._rest and self._bytes > most):
            self.drop(next(iter(self._rest.values())))
        while len(self._ends) > MAX_ENDS or self._bytes > most:
            self.drop(next(iter(self._ends.values())))

    def expire(self, oldest: float) -> None:
        """Keep none that was raised before a time."""
        for events in (self._ends, self._rest):
            while events and (first := next(iter(events.values()))).time < oldest:
                self.drop(first)

    def drop(self, event: _Event) -> None:
        """Keep an event no longer."""
        for events in (self._ends, self._rest):
            events.pop(event.number, None)
        for label in event.labels:
            labelled = self._by_label[label]
            del labelled[event.number]
            if not labelled:
                del self._by_label[label]
        self._bytes -= event.size


class _Registration:
    """A registration: the codes whose events a client gets.

    Attributes:
        peer: Its connection.
        tag: The tag of the answer.
        codes: The codes, without codes that were deregistered since.
        infos: Its directives.
        granted: The codes that the host has granted, while it considers others.
    """

    __slots__ = ("codes", "granted", "infos", "peer", "tag")

    def __init__(self, peer: Peer, tag: int, codes: dict[int, None], infos: tuple[Info, ...]) -> None:
        self.peer = peer
        self.tag = tag
        self.codes = codes
        self.infos = infos
        self.granted: set[int] = set()


class Events(Topic):
    """Registrations, notifications, and the recent events for late registrations.

    A proc that registers a code gets all kept events of the code, and each later event. So, to deliver no event
    twice, only the codes that a proc has deregistered have to be remembered, each with the last event that it has got.

    A registration may name the procs that its events must affect. That is left to the client: it sends one message for
    the first handler of a code only, and later handlers may name others.
    """

    def __init__(self, server: Node) -> None:
        super().__init__(server)
        self.handlers = {
            Command.NOTIFY: self._notify,
            Command.REGEVENTS: self._register,
            Command.DEREGEVENTS: self._deregister,
        }
        self._peers: dict[int, dict[Peer, None]] = {}
        """The connections that have registered each code."""
        self._codes: dict[Peer, dict[int, None]] = {}
        self._asking: dict[Peer, list[_Registration]] = {}
        """Registrations that the host considers, or will."""
        self._considered: dict[int, list[_Registration]] = {}
        """The codes that it considers, and which other registrations wait for that."""
        self._delivered: dict[Process, dict[int, int]] = {}
        self._facts = 0
        self._much = MUCH
        self.recent = _Kept()
        self._number = 0

    # Registrations

    def _register(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.REGEVENTS, payload)
        wanted: dict[int, None] = dict.fromkeys(fields["codes"] or (DEFAULT,))
        mine = self._codes.get(peer, {})
        asking = self._asking.get(peer, [])
        if len(mine.keys() | wanted.keys()) + sum([len(other.codes) for other in asking]) > self.server.limits.codes:
            raise self.server.limits.reached("codes", "these are too many event codes")
        registration = _Registration(peer, tag, wanted, fields["infos"])
        if is_set(fields["infos"], OWN_CLIENTS):
            peer.is_own_engine = True
        self._asking.setdefault(peer, []).append(registration)
        self._consider(registration)

    def _consider(self, registration: _Registration) -> None:
        """Complete a registration, or ask the host for codes without a client that it has not granted yet.

        A code that the host considers for another registration is waited for: if it refuses that one, it is asked
        again.
        """
        peer, wanted, granted = registration.peer, registration.codes, registration.granted
        if not peer.open:
            return
        for code in wanted:
            if code in self._considered:
                self._considered[code].append(registration)
                return
        unheard = tuple(
            [code for code in wanted if not (code in self._peers or code in ABOUT_GROUPS or code in granted)]
        )
        if not unheard:
            self._decided(registration, None)
            return
        self._considered.update({code: [] for code in unheard})

        def answer(_result: None, error: BaseException | None) -> None:
            # The host does not raise the events of most codes, so it need not support them.
            refused = error is not None and status_of(error) != statuses.ERR_NOT_SUPPORTED
            waiting = [other for code in unheard for other in self._considered.pop(code)]
            if refused:
                self._decided(registration, error)
            else:
                waiting.insert(0, registration)
            for other in waiting:
                if not refused:
                    other.granted.update(other.codes.keys() & set(unheard))
                self._consider(other)
            if not refused:
                # Their clients may have deregistered them, or disconnected.
                self._abandoned(unheard, peer.process)

        # A registration without codes is for all codes.
        codes = () if DEFAULT in unheard else unheard
        self.server.host.upcall(RegisterEvents(codes, registration.infos), answer, peer.process)

    def _decided(self, registration: _Registration, error: BaseException | None) -> None:
        peer = registration.peer
        if not peer.open:
            return
        asking = self._asking[peer]
        asking.remove(registration)
        if not asking:
            del self._asking[peer]
        refuse(peer, registration.tag, error)
        if error is None:
            self._complete_registration(peer, registration.codes)
        else:
            self._abandoned(registration.granted, peer.process)

    def _complete_registration(self, peer: Peer, codes: Iterable[int]) -> None:
        """Complete a registration: deliver the kept events of its codes."""
        process = peer.process
        others = self._registered(process)
        mine = self._codes.setdefault(peer, {})
        new = {code for code in codes if code not in mine}
        for code in new:
            mine[code] = None
            self._peers.setdefault(code, {})[peer] = None
        delivered = self._delivered.get(process, {})
        self._expire()
        every = DEFAULT in new
        # The last event of any code that the proc has got; the newest, if it has another registration for all codes.
        delivered_all = self._number if DEFAULT in others else delivered.get(DEFAULT, 0)
        for event in self.recent if every else self.recent.labelled(*new):
            code = event.notification.code
            if code not in new and (event.nondefault or not every):
                continue
            if code in others or delivered.get(code, 0) >= event.number:
                continue
            if event.number <= delivered_all and not event.nondefault:
                continue
            if event.sender is process and peer.release < KEEPING_OWN:
                continue
            if event.concerns(process.proc):
                self._send(peer, event)

    def _registered(self, process: Process) -> set[int]:
        """Return the codes that any connection of a proc has registered."""
        return {code for peer in self.server.peers(process) for code in self._codes.get(peer, ())}

    def _deregister(self, peer: Peer, tag: int, payload: bytes) -> None:
        codes = fields_of(peer, Command.DEREGEVENTS, payload)["codes"]
        granted = []
        for registration in self._asking.get(peer, ()):
            for code in codes:
                registration.codes.pop(code, None)
                if code in registration.granted:
                    registration.granted.discard(code)
                    granted.append(code)
        self._forget(peer, codes)
        self._abandoned(granted, peer.process)

    def _forget(self, peer: Peer, codes: Iterable[int]) -> None:
        mine = self._codes.get(peer, {})
        over = []
        for code in codes:
            if code not in mine:
                continue
            del mine[code]
            peers = self._peers[code]
            del peers[peer]
            if not peers:
                del self._peers[code]
                over.append(code)
            if self.recent:
                heard = self._delivered.setdefault(peer.process, {})
                self._facts += code not in heard
                heard[code] = self._number
        if not mine:
            self._codes.pop(peer, None)
        self._trim()
        self._report_uninteresting(over, peer.process)

    def _abandoned(self, granted: Collection[int], process: Process) -> None:
        """Report to the host the granted codes that no client has registered or is registering."""
        if granted:
            awaited = {code for asked in self._asking.values() for other in asked for code in other.granted}
            left = dict.fromkeys(granted)
            self._report_uninteresting(
                [code for code in left if code not in self._peers and code not in awaited], process
            )

    def _report_uninteresting(self, codes: list[int], process: Process) -> None:
        """Report to the host that no client is interested in some codes any longer."""
        if DEFAULT in codes:
            self.server.host.upcall(DeregisterEvents(), ignore, process)
        rest = tuple([code for code in codes if code != DEFAULT and code not in ABOUT_GROUPS])
        if rest:
            self.server.host.upcall(DeregisterEvents(rest), ignore, process)

    def _trim(self) -> None:
        """Drop facts about delivered events that can no longer matter, if there are many facts."""
        self._expire()
        if self._facts <= self._much:
            return
        oldest = next((event.number for event in self.recent), self._number + 1)
        there = {event.notification.code for event in self.recent} | {DEFAULT}
        for process, heard in list(self._delivered.items()):
            kept = {code: number for code, number in heard.items() if number >= oldest and code in there}
            if kept:
                self._delivered[process] = kept
            else:
                del self._delivered[process]
        self._facts = sum(map(len, self._delivered.values()))
        self._much = max(MUCH, 2 * self._facts)

    # Events

    def _notify(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.NOTIFY, payload)
        infos: tuple[Info, ...] = fields["infos"]
        if any(info.key == keys.INTERNAL_NOTIFY for info in infos):
            # It has been here before, and a relay has sent it back.
            peer.status(tag, statuses.SUCCESS)
            return
        infos = self.server.store.native(infos, keys.EVENT_CUSTOM_RANGE)
        if fields["code"] in ABOUT_GROUPS and _has_empty_range(infos):
            # The last member of a group leaves it in this way.
            self.server.groups.happened(Notification(fields["code"], peer.process.proc, RANGE_CUSTOM, infos))
            peer.status(tag, statuses.SUCCESS)
            return
        op = made(NotifyEvent, fields["code"], fields["range"] or RANGE_SESSION, infos)
        event = Notification(op.code, peer.process.proc, op.range, op.infos)
        if op.code in ABOUT_GROUPS and self.server.groups.handle_event(event, peer.process):
            peer.status(tag, statuses.SUCCESS)
            return
        local = op.range in (RANGE_LOCAL, RANGE_PROC_LOCAL) or is_set(infos, keys.EVENT_STAYS_LOCAL)
        leaves = op.code == statuses.GROUP_LEFT and not local

        def answer(_result: None, error: BaseException | None) -> None:
            # The procs of this node have it, whether or not the host can forward it to others.
            if error is None or status_of(error) == statuses.ERR_NOT_SUPPORTED:
                peer.status_now(tag, statuses.SUCCESS)
            else:
                refuse(peer, tag, error)

        if leaves:
            # The host gets the event before clients are woken, and so before their next requests.
            self.server.host.upcall(op, answer, peer.process)
        try:
            self._raise(event, peer)
        except PMIxError as error:
            if not leaves:
                raise
            self.server.host.log(f"{event.source} has left a group, which cannot be told: {error.detail}")
        if op.code in ABOUT_GROUPS:
            self.server.groups.happened(event)
        if local:
            peer.status_now(tag, statuses.SUCCESS)
        elif not leaves:
            self.server.host.upcall(op, answer, peer.process)

    def notify(self, notification: Notification) -> None:
        """Deliver an event of the host to this server's procs in its range; see `ServerSession.notify`."""
        check_event(notification)
        if notification.code == statuses.CONNECT_REQUESTED:
            there = self.server.connecting.requested(notification)
            if there is None:
                return
            notification = there
        elif notification.code == statuses.PROC_HAS_CONNECTED:
            notification = self.server.connecting.reported(notification)
        notification = self._addressed(notification)
        about_groups = notification.code in ABOUT_GROUPS
        if about_groups and self.server.groups.swallowed(notification):
            return
        self._raise(notification, None)
        if about_groups:
            self.server.groups.happened(notification)

    def _addressed(self, notification: Notification) -> Notification:
        """Return an event with the members of the groups that its range names.

        The server of the sender does not know a group of which it has no member.
        """
        try:
            infos = self.server.store.native(notification.infos, keys.EVENT_CUSTOM_RANGE)
        except NotFound:
            # The group has no such rank, so the event has no receiver here.
            return notification
        return notification if infos is notification.infos else notification.replace(infos=infos)

    def forget(self, label: object, condition: Callable[[Notification], bool]) -> None:
        """Drop the kept events of a code or a group (`label_of_group`) for which `condition` returns True."""
        for event in self.recent.labelled(label):
            if condition(event.notification):
                self.recent.drop(event)

    def _raise(self, notification: Notification, sender: Peer | None) -> None:
        try:
            event = _Event(notification, sender.process if sender else None)
        except (TypeError, ValueError, OverflowError) as error:
            raise PMIxError(f"the event cannot be sent: {error}", status=statuses.ERR_BAD_PARAM) from None
        self._number += 1
        event.number = self._number
        event.time = self.server.clock.now()
        peers = dict(self._peers.get(notification.code, {}))
        if not event.nondefault:
            peers |= self._peers.get(DEFAULT, {})
        for peer in peers:
            if peer is not sender and event.concerns(peer.process.proc):
                self._send(peer, event)
        self._expire()
        most = self.server.limits.events
        reachable = notification.range not in (RANGE_RM, RANGE_PROC_LOCAL)
        if reachable and event.size <= most and not is_set(notification.infos, keys.EVENT_DO_NOT_CACHE):
            self.recent.add(event, most)

    def _send(self, peer: Peer, event: _Event) -> None:
        if peer.open and not peer.finalized and (peer.is_own_engine or not event.for_own_clients):
            peer.link.send(event.packed(peer.buffer_type, peer.rule))

    def _expire(self) -> None:
        self.recent.expire(self.server.clock.now() - EVENT_SECONDS)
        if not self.recent:
            self._delivered.clear()
            self._facts = 0

    # Calls of the server

    def disconnected(self, peer: Peer) -> None:
        """See `Topic.disconnected`."""
        asked = self._asking.pop(peer, [])
        self._forget(peer, list(self._codes.get(peer, ())))
        self._abandoned([code for registration in asked for code in registration.granted], peer.process)

    def deregistered(self, namespace: Namespace) -> None:
        """See `Topic.deregistered`."""
        for process in namespace.processes.values():
            self._facts -= len(self._delivered.pop(process, ()))
        for event in self.recent.labelled(namespace.name):
            if event.only_for(namespace.name):
                self.recent.drop(event)
            elif event.sender is not None and event.sender.namespace is namespace:
                # An event that is kept must not keep its sender's job, with all committed data of its procs.
                event.sender = None


def _has_empty_range(infos: tuple[Info, ...]) -> bool:
    """Return True if an empty custom range is given."""
    given = [info.value.data for info in infos if info.key == keys.EVENT_CUSTOM_RANGE]
    return bool(given) and all(isinstance(data, DataArray) and not data.items for data in given)
