"""Connect and disconnect: all procs join, the host agrees, and all get the job info of the others' nspaces."""

from __future__ import annotations

from functools import partial
from weakref import WeakSet

from pypmix.engine.collective.machine import Kind
from pypmix.engine.collective.rules import CONNECT, DISCONNECT, is_ft, placed
from pypmix.engine.common import ignore
from pypmix.engine.connects import id_of
from pypmix.engine.groups.talk import ABSENT, flag, found, listed, proc, text
from pypmix.engine.groups.talk import procs as listing
from pypmix.engine.python.collectives import (
    address_of,
    answer_failures,
    combine_directives,
    committed_data,
    committed_infos,
    gone_procs,
    procs_of,
    report_timeout,
    submit,
    take_committed,
    timeout_of,
    with_ft,
)
from pypmix.engine.python.node import Topic, fields_of
from pypmix.engine.python.serverdata import Connection
from pypmix.engine.python.serverside.grouprecords import MAX_GROUPS
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, OutOfResources, PMIxError
from pypmix.standard.ops import Connect, Connected, Disconnect, Notification, NotifyEvent
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_EARLY_TERM,
    CONNECT_ID,
    CONNECT_MADE,
    CONNECT_NAME,
    CONNECT_NOTIFY_EACH,
    CONNECT_NOTIFY_REQ,
    CONNECT_OPTIONAL,
    CONNECT_PROCS,
    CONNECT_TOKEN,
)
from pypmix.standard.ops.core import returned
from pypmix.standard.ops.events import is_set, matches_any
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import MAX_NSLEN, RANK_VALID, RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.additions import MAX_CONNECTED, encode_connected
from pypmix.wire.codec import Packer
from pypmix.wire.messages import Command, encode_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.collective.machine import Collective, Membership, Said
    from pypmix.engine.python.collectives import NodeCollective
    from pypmix.engine.python.node import Call, Node, Peer
    from pypmix.engine.python.processes import Namespace, Process
    from pypmix.engine.python.serverdata import Store
    from pypmix.engine.python.serverside.grouprecords import Records

    Title = tuple[str, frozenset[Proc]]

MAX_TOKENS = 64
"""Bound of the connections of one proc whose names it still has to query, because its library returns no names."""

MAX_REQUESTED = 1024
"""Bound of the connects that are remembered because their participants were asked to join."""

KEPT_HERE = frozenset((CONNECT_TOKEN,))
"""The directives that no host needs."""


class Connecting(Topic):
    """Connect and disconnect, and the connections that they make.

    Attributes:
        records: Returns the records of the existing groups and connections.
    """

    def __init__(self, server: Node, records: Callable[[], Records]) -> None:
        super().__init__(server)
        self.records = records
        self.handlers = {Command.CONNECTNB: self._connect, Command.DISCONNECTNB: self._disconnect}
        self._connects = Kind(
            CONNECT,
            self._ask_connect,
            self._take_connect,
            self._complete_connect,
            begin=_Connect,
            report_timeout=lambda connect: report_timeout(server, _report_connect, connect.collective),
        )
        self._disconnects = Kind(
            DISCONNECT,
            self._ask_disconnect,
            self._take_disconnect,
            self._complete_disconnect,
            report_timeout=partial(report_timeout, server, _report_disconnect),
        )
        self._notified_elsewhere: dict[Title, None] = {}
        """Connects for which a caller of another server wants an event of each participant."""
        self._requested: dict[Title, None] = {}
        """Connects whose participants were asked to join, by a caller of this server or of another."""
        self._vague: WeakSet[Membership[Process, Call]] = WeakSet()
        """Memberships whose callers named jobs that were not known here at that time."""
        self._tokens: dict[Process, dict[int, Connected]] = {}

    # Requests

    def _connect(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.CONNECTNB, payload)
        procs, infos = self._addressed(fields["procs"], fields["infos"], peer.process)
        id, timeout = _checked_id(infos), timeout_of(infos)
        if len(self.server.store.groups) >= MAX_GROUPS:
            raise OutOfResources(f"{MAX_GROUPS} groups and connections stand")
        group, membership = self._meeting(self._connects, procs, peer.process, id)
        under_way = next((each for each in membership.running if peer.process not in each.arrived), None)
        arrived = () if under_way is None else tuple(under_way.arrived)
        loud = (under_way is not None and under_way.record.is_loud) or (
            bool(self._notified_elsewhere) and _title(membership) in self._notified_elsewhere
        )
        each, requests = is_set(infos, CONNECT_NOTIFY_EACH), is_set(infos, CONNECT_NOTIFY_REQ)
        titles = (text(CONNECT_ID, id),) if id else ()
        if requests and _title(membership) not in self._requested:
            self._request(membership, (*arrived, peer.process), peer.process, titles)
        if loud or each:
            # The other servers have to report their procs, too.
            beyond = () if loud or not membership.others else (_everyone(membership),)
            for process in (peer.process,) if loud else (*arrived, peer.process):
                self.tell_of_comer(membership, process, titles, beyond)
                beyond = ()
        connect = self._join(membership, group, procs, infos, (peer, tag), timeout)
        if connect.is_running:
            connect.record.is_loud |= loud or each

    def _disconnect(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.DISCONNECTNB, payload)
        procs, infos = self._addressed(fields["procs"], fields["infos"], peer.process)
        store, timeout = self.server.store, timeout_of(infos)
        connection = self._find_connection(procs, infos, peer.process)
        if connection is not None:
            procs = (Proc.unchecked(connection.nspace, RANK_WILDCARD),)
        group, membership = self._meeting(self._disconnects, procs, peer.process)
        if connection is not None:
            if any(peer.process in each.arrived for each in (*membership.running, *membership.asking)):
                raise PMIxError("it has called this disconnect already", status=statuses.ERR_EXISTS)
            if connection.notify_each or is_set(infos, CONNECT_NOTIFY_EACH):
                members = store.groups[connection.nspace]
                others = [each for each in members if not self.server.store.here(each)]
                titles = connection.titles(connection.nspace)
                self._report_proc(statuses.PROC_HAS_DISCONNECTED, peer.process, members, others, titles)
        self._join(membership, group, procs, infos, (peer, tag), timeout)

    def _addressed(
        self, procs: tuple[Proc, ...], infos: tuple[Info, ...], caller: Process
    ) -> tuple[tuple[Proc, ...], tuple[Info, ...]]:
        """Return the procs and the directives of a request.

        If the directives name a group of the caller (`GROUP_ID`), the group's name replaces the procs.
        """
        name = found(infos, keys.GROUP_ID, str)
        if name is None:
            return procs, infos
        rest = tuple([info for info in infos if info.key != keys.GROUP_ID])
        if self.server.store.key_of(name, caller.proc) is None:
            return procs, rest
        return (Proc.unchecked(name, RANK_WILDCARD),), rest

    def _meeting(
        self, kind: Kind, procs: tuple[Proc, ...], caller: Process, id: str = ""
    ) -> tuple[str, Membership[Process, Call]]:
        """Return the group's name, empty if the procs are not a group, and the membership that a request names.

        Raises:
            NotFound: A proc is not known, and the caller is not among the known ones.
            PMIxError: The caller is not among the procs (`ERR_BAD_PARAM`).
        """
        store, collectives = self.server.store, self.server.collectives
        procs = store.resolve(procs, caller.proc)
        members, others = store.expand(procs, remote=True)
        if caller not in members:
            for each in procs:
                if each.nspace not in store.groups and store.get(each.nspace) is None:
                    raise NotFound(f"there is no {each.nspace!r}", procs=procs)
            raise PMIxError("it is not one of the procs that it names", status=statuses.ERR_BAD_PARAM)
        group = address_of(self.server, procs)
        membership = collectives.membership(kind, members, others, True, id)
        if any(each.rank == RANK_WILDCARD for each in others):
            self._vague.add(membership)
        elif others and not group:
            for other in list(self._vague):
                alike = other.operation == membership.operation and other.members == members and other.awaits(caller)
                if alike and store.expand(other.others, remote=True) == (frozenset(), others):
                    return group, other
        return group, collectives.find_membership(membership, group, caller)

    def _find_connection(self, procs: tuple[Proc, ...], infos: tuple[Info, ...], caller: Process) -> Connection | None:
        """Return the connection that a disconnect ends, None if its procs have no connection.

        Other libraries do not know the name of a connection, so it is also found by its procs and its id.
        """
        store = self.server.store
        if not store.connections:
            return None
        named = store.connections.get(address_of(self.server, procs))
        if named is not None:
            return named
        members, others = store.expand(store.resolve(procs, caller.proc), remote=True)
        everyone = {process.proc for process in members} | others
        id = id_of(infos)
        alike = [
            connection
            for nspace, connection in sorted(store.connections.items())
            if connection.id == id
            and everyone.issuperset(store.groups[nspace])
            and everyone.issubset(connection.formed)
        ]
        return alike[0] if alike else None

    def _join(
        self,
        membership: Membership[Process, Call],
        group: str,
        procs: tuple[Proc, ...],
        infos: tuple[Info, ...],
        call: Call,
        timeout: float,
    ) -> Collective[Process, Call]:
        store, process = self.server.store, call[0].process
        infos = with_ft(self.server, group, infos)
        # Each member of a group names all of it: no copy for each.
        said = store.groups[group] if group else tuple(store.ungrouped(store.resolve(procs, process.proc))), infos
        ft = is_ft(membership.kind.name, infos)
        return self.server.collectives.join(membership, process, call, timeout=timeout, contribution=said, ft=ft)

    # Events

    def _request(
        self,
        membership: Membership[Process, Call],
        arrived: Iterable[Process],
        caller: Process,
        titles: tuple[Info, ...],
    ) -> None:
        """Raise `CONNECT_REQUESTED` for all participants that have not joined."""
        _note(self._requested, _title(membership))
        away = [each.proc for each in membership.members.difference(arrived)]
        self._raise_event(statuses.CONNECT_REQUESTED, caller, away, membership.others, (*titles, _everyone(membership)))

    def reported(self, event: Notification) -> Notification:
        """Handle the event that a caller elsewhere has joined a connect; return the event for procs of this server.

        If that caller wants an event of each participant, the callers of this server are reported as well: now, or
        when they join.
        """
        membership = self._membership_in(event)
        event = event.replace(infos=tuple([info for info in event.infos if info.key != CONNECT_PROCS]))
        if membership is None:
            return event
        title, connections = _title(membership), self.server.store.connections.values()
        under_way = (*membership.running, *membership.asking)
        # The event may arrive after the connection was made; then it does not concern the next connect.
        if under_way or title not in [(each.id, frozenset(each.formed)) for each in connections]:
            _note(self._notified_elsewhere, title)
        for connect in under_way:
            self._tell_of_all(connect.record)
            connect.record.is_loud = True
        return event

    def requested(self, event: Notification) -> Notification | None:
        """Handle a request from elsewhere that procs join a connect; return the event for the missing procs, if any."""
        membership = self._membership_in(event)
        if membership is None:
            return event
        _note(self._requested, _title(membership))
        came = {each.proc for collective in (*membership.running, *membership.asking) for each in collective.arrived}
        called = listed(event.infos, keys.EVENT_CUSTOM_RANGE)
        away = [each.proc for each in membership.members if each.proc not in came and matches_any(each.proc, called)]
        if not away:
            return None
        infos = tuple([info for info in event.infos if info.key != keys.EVENT_CUSTOM_RANGE])
        return event.replace(infos=(listing(keys.EVENT_CUSTOM_RANGE, away), *infos))

    def forget_requests(self, membership: Membership[Process, Call]) -> bool:
        """Forget the requests for a connect that has ended, and their kept events.

        Returns:
            True if procs elsewhere wanted an event of each participant.
        """
        if not self._requested and not self._notified_elsewhere:
            return False
        title = _title(membership)

        def is_obsolete(event: Notification) -> bool:
            requested = self._membership_in(event)
            return requested is not None and _title(requested) == title

        if self._requested.pop(title, self) is None:
            self.server.events.forget(statuses.CONNECT_REQUESTED, is_obsolete)
        return self._notified_elsewhere.pop(title, self) is None

    def _membership_in(self, event: Notification) -> Membership[Process, Call] | None:
        """Return the participants of the connect that an event is about, None if it does not name them."""
        try:
            members, others = self.server.store.expand(listed(event.infos, CONNECT_PROCS), remote=True)
        except PMIxError:
            return None
        return self.server.collectives.membership(self._connects, members, others, True, id_of(event.infos))

    def tell_of_comer(
        self,
        membership: Membership[Process, Call],
        about: Process,
        infos: tuple[Info, ...],
        beyond: tuple[Info, ...] = (),
    ) -> None:
        """Report to the participants of a connect that a proc has joined it."""
        members = [each.proc for each in membership.members]
        self._report_proc(statuses.PROC_HAS_CONNECTED, about, members, membership.others, infos, beyond)

    def _report_proc(
        self,
        code: int,
        about: Process,
        to: Iterable[Proc],
        remote: Iterable[Proc],
        infos: tuple[Info, ...],
        beyond: tuple[Info, ...] = (),
    ) -> None:
        """Report a proc to participants."""
        rest = [each for each in to if each != about.proc]
        self._raise_event(code, about, rest, remote, (*infos, proc(keys.EVENT_AFFECTED_PROC, about.proc)), beyond)

    def _raise_event(
        self,
        code: int,
        source: Process,
        to: Iterable[Proc],
        remote: Iterable[Proc],
        infos: tuple[Info, ...],
        beyond: tuple[Info, ...] = (),
    ) -> None:
        """Raise an event of a proc for participants of this server, and of others; `beyond` is added for the others."""
        here = [each for each in to if self.server.store.here(each)]
        if here:
            details = (listing(keys.EVENT_CUSTOM_RANGE, here), flag(keys.EVENT_NON_DEFAULT), *infos)
            self.server.events.notify(Notification(code, source.proc, RANGE_CUSTOM, details))
        there = tuple(remote)
        if there:
            details = (listing(keys.EVENT_CUSTOM_RANGE, there), flag(keys.EVENT_NON_DEFAULT), *infos, *beyond)
            self.server.host.upcall(NotifyEvent(code, RANGE_CUSTOM, details), ignore, source)

    # Names of connections that a client's library does not return

    def keep(self, process: Process, infos: tuple[Info, ...], made: Connected) -> None:
        """Keep the name and the procs of a connection, which a library does not return, for a query of its program."""
        token = found(infos, CONNECT_TOKEN, int)
        if token is not None:
            tokens = self._tokens.setdefault(process, {})
            while len(tokens) >= MAX_TOKENS:
                del tokens[next(iter(tokens))]
            tokens[token] = made

    def made(self, process: Process, qualifiers: Iterable[Info]) -> tuple[Info, ...]:
        """Return the name and the procs of a connection that were kept for a proc, and forget them.

        Raises:
            NotFound: No connection was kept with this token.
        """
        tokens = self._tokens.get(process, {})
        made = tokens.pop(found(qualifiers, CONNECT_TOKEN, int) or 0, None)
        if made is None:
            raise NotFound("no connection has that token")
        if not tokens:
            del self._tokens[process]
        infos = text(CONNECT_NAME, made.nspace), listing(CONNECT_PROCS, made.procs)
        return (Info(CONNECT_MADE, Value(codes.DATA_ARRAY, DataArray(codes.INFO, infos))),)

    def handle_departure(self, process: Process, failed: bool) -> None:
        self._tokens.pop(process, None)

    def deregistered(self, namespace: Namespace) -> None:
        for process in namespace.processes.values():
            self._tokens.pop(process, None)

    # The kinds of operation

    def _finish_incomplete(self, collective: NodeCollective) -> bool:
        """End an operation of this server alone if procs are missing; return True if it was ended."""
        if collective.status == statuses.SUCCESS or collective.membership.others:
            return False
        collective.absent = gone_procs(collective)
        collective.finish(collective.status)
        return True

    def _ask_connect(self, connect: _Connect) -> None:
        """Ask the host, now that all procs have joined."""
        collective = connect.collective
        if not self._finish_incomplete(collective):
            data = committed_data(self.server, collective) if collective.membership.others else b""
            procs, directives = _joint_request(collective)
            submit(self.server, collective, Connect(procs, (*directives, *committed_infos(data))))

    def _tell_of_all(self, connect: _Connect) -> None:
        """Report all procs that have joined a connect, if none was reported before."""
        membership = connect.collective.membership
        infos = (text(CONNECT_ID, membership.id),) if membership.id else ()
        for process in () if connect.is_loud else tuple(connect.collective.arrived):
            self.tell_of_comer(membership, process, infos)

    def _take_connect(self, connect: _Connect, result: object) -> int:
        """Read the host's result."""
        collective = connect.collective
        if result is None:
            return collective.status
        try:
            made = _read(collective, self.server.store, result)
            others = collective.membership.others
            beyond = self.server.store.expand(others, remote=True)[1] if others else frozenset()
            rest = take_committed(self.server, collective, made.directives, beyond)
            connect.made = made.replace(directives=rest)
        except NotFound as problem:
            return problem.code
        except (TypeError, ValueError) as problem:
            self.server.host.log(f"the host answered a connect with nonsense: {problem}")
            return statuses.ERROR
        # Participants elsewhere may have asked that it continues without ended procs.
        collective.ft = collective.ft or bool(connect.made.nspace) or is_set(connect.made.directives, CONNECT_OPTIONAL)
        return collective.status

    def _complete_connect(self, connect: _Connect, status: int) -> None:
        """Answer the callers, with the job info of the others' nspaces and the host's directives."""
        made, store, collective = connect.made, self.server.store, connect.collective
        membership = collective.membership
        given = [*made.directives, *[info for _, infos in collective.said.values() for info in infos]]
        known = self.forget_requests(membership)
        known = known or any(is_set(infos, CONNECT_NOTIFY_EACH) for _, infos in collective.said.values())
        if not known and is_set(made.directives, CONNECT_NOTIFY_EACH):
            # Only the end has shown that a caller elsewhere wants an event of each participant.
            self._tell_of_all(connect)
        if status != statuses.SUCCESS:
            answer_failures(collective, status, gone_procs(collective))
            return
        names = {each.nspace for each in made.procs}
        if not names:
            names = {member.namespace.name for member in membership.members} | {
                proc.nspace for proc in membership.others
            }
        spaces = {name: store.get(name) for name in sorted(names)}
        if None in spaces.values() and not is_set(given, CONNECT_OPTIONAL):
            # The host has agreed to the connect, and has not registered these jobs here.
            answer_failures(collective, statuses.ERR_NOT_FOUND)
            return
        records = self.records() if made.nspace else None
        callers, said = dict(collective.arrived), dict(collective.said)
        if records is not None:
            flags = is_set(given, CONNECT_EARLY_TERM), is_set(given, CONNECT_NOTIFY_EACH)
            connection = store.connections[made.nspace] = Connection(made.nspace, membership.id, *flags)
            records.form(made.nspace, made.procs, connection)
        self._answer(made, callers, said, spaces)
        if records is not None:
            # A proc that has ended in the meantime leaves its rank vacant.
            records.remove_ended(made.procs)
            records.review(made.nspace)

    def _answer(
        self,
        made: Connected,
        callers: dict[Process, Call],
        contributions: dict[Process, Said],
        spaces: dict[str, Namespace | None],
    ) -> None:
        """Send each caller the job info of the others' nspaces, and the names that it has asked for."""
        packed: dict[tuple[object, ...], bytes] = {}
        for process, (peer, tag) in callers.items():
            infos = contributions[process][1]
            named = made.nspace and is_set(infos, CONNECT_ASSIGN)
            if named and not peer.pypmix:
                self.keep(process, infos, made)
                named = False
            form = peer.buffer_type, peer.release, peer.rule, named, process.namespace
            payload = packed.get(form)
            if payload is None:
                packer = Packer(peer.buffer_type)
                if named:
                    packer.pack(codes.BYTE_OBJECT, encode_connected(peer.buffer_type, made.nspace, made.procs))
                for name, namespace in spaces.items():
                    if namespace is not None and name != process.namespace.name:
                        packer.pack(codes.BYTE_OBJECT, namespace.pack(peer.buffer_type, peer.release, peer.rule).reply)
                payload = packed[form] = encode_status(peer.buffer_type, statuses.SUCCESS) + packer.bytes()
            peer.send(tag, payload)

    def _ask_disconnect(self, disconnect: NodeCollective) -> None:
        """Ask the host, now that all procs have joined."""
        if self._finish_incomplete(disconnect):
            return
        for connection in self._connections(disconnect):
            self.records().report_ended(connection.nspace)
            connection.leaving = True
        submit(self.server, disconnect, Disconnect(*_joint_request(disconnect)))

    def _take_disconnect(self, disconnect: NodeCollective, result: object) -> int:
        """Report the procs that had ended when the host decided, while the members are still connected."""
        try:
            ended = listed(returned(result, Info), ABSENT)
        except TypeError as problem:
            self.server.host.log(f"the host answered a disconnect with nonsense: {problem}")
            ended = ()
        for connection in self._connections(disconnect):
            self.records().report_withheld(connection, ended)
        return disconnect.status

    def _complete_disconnect(self, disconnect: NodeCollective, status: int) -> None:
        """Answer the callers; remove the connections that they have named, unless the disconnect has failed."""
        connections = self._connections(disconnect)
        if status not in (statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS) or disconnect.absent is not None:
            for connection in connections:
                self.records().report_withheld(connection)
            answer_failures(disconnect, status)
            return
        for connection in connections:
            self.records().dissolve(connection.nspace)
        for peer, tag in disconnect.arrived.values():
            peer.status(tag, status)

    def _connections(self, disconnect: NodeCollective) -> list[Connection]:
        """Return the connections that a disconnect ends."""
        known = self.server.store.connections
        return [known[name] for name in sorted(disconnect.membership.groups) if name in known]


class _Connect:
    """The record of a connect.

    Attributes:
        collective: The operation.
        is_loud: Whether participants get an event of each proc that joins.
        made: The connection as the host has returned it.
    """

    __slots__ = ("collective", "is_loud", "made")

    def __init__(self, collective: NodeCollective) -> None:
        self.collective = collective
        self.is_loud = False
        self.made = Connected()


def _joint_request(collective: NodeCollective) -> tuple[tuple[Proc, ...], tuple[Info, ...]]:
    """Return the procs and the directives of a connect or disconnect for the host."""
    gone, directives = gone_procs(collective), combine_directives(collective, KEPT_HERE)
    return procs_of(collective), (*directives, listing(ABSENT, gone)) if gone else directives


def _read(collective: NodeCollective, store: Store, result: object) -> Connected:
    """Return the nspace that the host has assigned, and its procs by rank.

    Raises:
        TypeError: The host's answer is not a `Connected`.
        ValueError: It is not valid.
        NotFound: It leaves the procs to the server, which does not know all of their jobs.
    """
    if not isinstance(result, Connected):
        raise TypeError(f"a Connected or None is wanted, not {type(result).__name__}")
    nspace, members = result.nspace, result.procs
    if not isinstance(nspace, str) or len(nspace.encode()) > MAX_NSLEN or "\0" in nspace:
        raise ValueError(f"{nspace!r:.300} is not a valid nspace")
    if not nspace:
        return result.replace(procs=())
    if store.get(nspace) is not None or nspace in store.groups:
        raise ValueError(f"there is {nspace!r} already")
    came = [process.proc for process in collective.arrived]
    if not members:
        others = collective.membership.others
        members = placed((), (*came, *(store.expand(others)[1] if others else ())))
    distinct = set(members)
    if any(type(each) is not Proc or each.rank > RANK_VALID for each in members) or len(distinct) < len(members):
        raise ValueError(f"the ranks of {nspace!r} are one proc each")
    if len(members) > MAX_CONNECTED or not distinct.issuperset(came):
        raise ValueError(f"the connection {nspace!r} has to have all who have come, {MAX_CONNECTED} at the most")
    return result.replace(procs=members)


def _report_connect(collective: NodeCollective, directives: tuple[Info, ...]) -> Connect:
    return Connect(procs_of(collective), directives)


def _report_disconnect(collective: NodeCollective, directives: tuple[Info, ...]) -> Disconnect:
    return Disconnect(procs_of(collective), directives)


def _title(membership: Membership[Process, Call]) -> Title:
    """Return the id and the procs of a connect, which identify it on all servers."""
    return membership.id, frozenset({each.proc for each in membership.members} | membership.others)


def _note(titles: dict[Title, None], title: Title) -> None:
    """Remember a connect, and forget the oldest if there are too many."""
    while len(titles) >= MAX_REQUESTED:
        del titles[next(iter(titles))]
    titles[title] = None


def _everyone(membership: Membership[Process, Call]) -> Info:
    """Return all expected participants, as an event names them."""
    return listing(CONNECT_PROCS, sorted([*[each.proc for each in membership.members], *membership.others]))


def _checked_id(infos: tuple[Info, ...]) -> str:
    """Return the id of a connect, empty if it has none.

    Raises:
        PMIxError: The id is not valid (`ERR_BAD_PARAM`).
    """
    given = [info.value.data for info in infos if info.key == CONNECT_ID]
    if not given:
        return ""
    id = given[0]
    if not isinstance(id, str) or not id or len(id.encode()) > MAX_NSLEN or "\0" in id:
        raise PMIxError("the id of a connect is a name", status=statuses.ERR_BAD_PARAM)
    return id
