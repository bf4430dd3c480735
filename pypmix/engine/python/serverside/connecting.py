"""Connect and disconnect: all of the procs come, the host agrees, and all get the job info of the others' nspaces."""

from __future__ import annotations

from weakref import WeakSet

from pypmix.engine.base import ignore
from pypmix.engine.connects import id_of
from pypmix.engine.groups.talk import ABSENT, flag, found, listed, proc, text
from pypmix.engine.groups.talk import procs as listing
from pypmix.engine.python.serverside.connections import Connection
from pypmix.engine.python.serverside.grouprecords import MAX_GROUPS
from pypmix.engine.python.serverside.topic import Topic, fields_of, reason_of, status_of
from pypmix.engine.python.together import (
    absent_of,
    address_of,
    directives_of,
    fail,
    gone_from,
    procs_of,
    spared,
    timeout_of,
)
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, PMIxError
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
from pypmix.standard.ops.events import among, is_set
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import MAX_NSLEN, RANK_VALID, RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.additions import MAX_CONNECTED, encode_connected
from pypmix.wire.codec import Packer
from pypmix.wire.messages import Command, encode_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.engine.python.collectives import Collective, Roster
    from pypmix.engine.python.server import Peer, Server, Ticket
    from pypmix.engine.python.serverdata import Namespace, Process

    Kind = tuple[str, frozenset[Proc]]

CONNECT = "connect"
DISCONNECT = "disconnect"

MAX_TOKENS = 64
"""How many connections of a proc wait for it to ask by what names, because its library returns none."""

MAX_REQUESTED = 1024
"""Of how many connects it is remembered that their procs know of them."""

KEPT_HERE = frozenset((CONNECT_TOKEN,))
"""The directives that no host needs."""


class Connecting(Topic):
    """Connect and disconnect, and the connections that come of it."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.handlers = {Command.CONNECTNB: self._connect, Command.DISCONNECTNB: self._disconnect}
        server.askings[CONNECT] = self._ask_connect
        server.askings[DISCONNECT] = self._ask_disconnect
        server.endings[CONNECT] = self._connected
        server.endings[DISCONNECT] = self._disconnected
        self._outcomes: dict[Collective[Process, Ticket], Connected] = {}
        self._loud: set[Collective[Process, Ticket]] = set()
        """The connects under way of which the procs hear who comes."""
        self._awaited: dict[Kind, None] = {}
        """Those that a caller of another server wants to hear of each from."""
        self._requested: dict[Kind, None] = {}
        """Those of which they have heard that they are to come, from a caller of this server or of another."""
        self._vague: WeakSet[Roster[Process, Ticket]] = WeakSet()
        """Whose callers have named jobs that were not known here then."""
        self._tokens: dict[Process, dict[int, Connected]] = {}

    # Requests

    def _connect(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.CONNECTNB, payload)
        procs, infos = self._addressed(fields["procs"], fields["infos"], peer.process)
        id, timeout = _checked_id(infos), timeout_of(infos)
        if len(self.server.store.groups) >= MAX_GROUPS:
            raise PMIxError(f"{MAX_GROUPS} groups and connections stand", status=statuses.ERR_OUT_OF_RESOURCE)
        group, roster = self._meeting(f"{CONNECT} {id}" if id else CONNECT, procs, peer.process)
        collective = self._next(roster, peer.process)
        arrived = () if collective is None else tuple(collective.arrived)
        loud = collective in self._loud or (bool(self._awaited) and _kind(roster) in self._awaited)
        each, requests = is_set(infos, CONNECT_NOTIFY_EACH), is_set(infos, CONNECT_NOTIFY_REQ)
        titles = (text(CONNECT_ID, id),) if id else ()
        if requests and _kind(roster) not in self._requested:
            self._request(roster, (*arrived, peer.process), peer.process, titles)
        if loud or each:
            # The other servers are to tell of their own procs, too.
            beyond = () if loud or not roster.others else (_everyone(roster),)
            for process in (peer.process,) if loud else (*arrived, peer.process):
                self._tell_of_comer(roster, process, titles, beyond)
                beyond = ()
        collective = self._join(roster, group, procs, infos, (peer, tag), timeout, is_set(infos, CONNECT_OPTIONAL))
        if (each or loud) and self.server.collectives.is_running(collective):
            self._loud.intersection_update([each for each in self._loud if self.server.collectives.is_running(each)])
            self._loud.add(collective)

    def _disconnect(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.DISCONNECTNB, payload)
        procs, infos = self._addressed(fields["procs"], fields["infos"], peer.process)
        store, timeout = self.server.store, timeout_of(infos)
        connection = self._meant(procs, infos, peer.process)
        if connection is not None:
            procs = (Proc.unchecked(connection.nspace, RANK_WILDCARD),)
        group, roster = self._meeting(DISCONNECT, procs, peer.process)
        if connection is not None:
            if any(peer.process in each.arrived for each in (*roster.running, *roster.asking)):
                raise PMIxError("it has called this disconnect already", status=statuses.ERR_EXISTS)
            if connection.each or is_set(infos, CONNECT_NOTIFY_EACH):
                members = store.groups[connection.nspace]
                others = [each for each in members if not self._is_here(each)]
                titles = connection.titles(connection.nspace)
                self._tell_of(statuses.PROC_HAS_DISCONNECTED, peer.process, members, others, titles)
        # Nobody waits for who has ended, on whatever server it was.
        self._join(roster, group, procs, infos, (peer, tag), timeout, True)

    def _addressed(
        self, procs: tuple[Proc, ...], infos: tuple[Info, ...], caller: Process
    ) -> tuple[tuple[Proc, ...], tuple[Info, ...]]:
        """Return the procs and the directives of a request, with the name that stands beside the procs in their place.

        Libraries would look it up themselves.
        """
        name = found(infos, keys.GROUP_ID, str)
        if name is None:
            return procs, infos
        rest = tuple([info for info in infos if info.key != keys.GROUP_ID])
        if self.server.store.key_of(name, caller.proc) is None:
            return procs, rest
        return (Proc.unchecked(name, RANK_WILDCARD),), rest

    def _meeting(self, operation: str, procs: tuple[Proc, ...], caller: Process) -> tuple[str, Roster[Process, Ticket]]:
        """Return whom a request means, and by which name if they have one.

        Raises:
            NotFound: Some of them are not known, and the caller is none of the others.
            PMIxError: The caller is none of them (`ERR_BAD_PARAM`).
        """
        store, collectives = self.server.store, self.server.collectives
        procs = store.own(procs, caller.proc)
        members, others = store.expand(procs, strangers=True)
        if caller not in members:
            for each in procs:
                if each.nspace not in store.groups and store.get(each.nspace) is None:
                    raise NotFound(f"there is no {each.nspace!r}", procs=procs)
            raise PMIxError("it is not one of the procs that it names", status=statuses.ERR_BAD_PARAM)
        group = address_of(self.server, procs)
        roster = collectives.roster(operation, members, others, asks=True)
        if any(each.rank == RANK_WILDCARD for each in others):
            self._vague.add(roster)
        elif others and not group:
            for other in list(self._vague):
                alike = other.operation == operation and other.members == members and other.awaits(caller)
                if alike and store.expand(other.others, strangers=True) == (frozenset(), others):
                    return group, other
        return group, collectives.meeting(roster, group, caller)

    def _meant(self, procs: tuple[Proc, ...], infos: tuple[Info, ...], caller: Process) -> Connection | None:
        """Return the connection that procs are to be disconnected from, None where they have none of their own.

        Programs on other libraries know no more of it than its procs.
        """
        store = self.server.store
        if not store.connections:
            return None
        named = store.connections.get(address_of(self.server, procs))
        if named is not None:
            return named
        members, others = store.expand(store.own(procs, caller.proc), strangers=True)
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

    @staticmethod
    def _next(roster: Roster[Process, Ticket], caller: Process) -> Collective[Process, Ticket] | None:
        """Return the operation under way that a caller is about to join."""
        return next((each for each in roster.running if caller not in each.arrived), None)

    def _join(
        self,
        roster: Roster[Process, Ticket],
        group: str,
        procs: tuple[Proc, ...],
        infos: tuple[Info, ...],
        ticket: Ticket,
        timeout: float,
        tolerant: bool,
    ) -> Collective[Process, Ticket]:
        store = self.server.store
        infos = spared(self.server, group, infos)
        tolerant = tolerant or is_set(infos, keys.GROUP_FT_COLLECTIVE)
        # Each member of a group names all of it: no copy for each.
        own = store.own(procs, ticket[0].process.proc)
        said = store.groups[group] if group else tuple(store.ungrouped(own)), infos
        return self.server.collectives.join(
            roster, ticket[0].process, ticket, timeout=timeout, said=said, tolerant=tolerant
        )

    # Events

    def _request(
        self, roster: Roster[Process, Ticket], came: Iterable[Process], caller: Process, titles: tuple[Info, ...]
    ) -> None:
        """Have all others hear that they are to come."""
        _note(self._requested, _kind(roster))
        away = [each.proc for each in roster.members.difference(came)]
        self._tell(statuses.CONNECT_REQUESTED, caller, away, roster.others, (*titles, _everyone(roster)))

    def reported(self, event: Notification) -> Notification:
        """A caller of another server has come to a connect: return what procs of this one hear of that.

        Where somebody there wants to hear of each one, those who have come here are told of as well, and those who come
        later will be.
        """
        store = self.server.store
        id, procs = id_of(event.infos), listed(event.infos, CONNECT_PROCS)
        if not procs:
            return event
        event = event.replace(infos=tuple([info for info in event.infos if info.key != CONNECT_PROCS]))
        try:
            members, others = store.expand(procs, strangers=True)
        except PMIxError:
            return event
        roster = self.server.collectives.roster(f"{CONNECT} {id}" if id else CONNECT, members, others, asks=True)
        kind = _kind(roster)
        under_way = (*roster.running, *roster.asking)
        # The connection may be there before the news that it was to be: that says nothing of the next one.
        if under_way or not any(each.id == id and kind[1] == set(each.formed) for each in store.connections.values()):
            _note(self._awaited, kind)
        for collective in under_way:
            self._tell_of_all(collective)
            self._loud.add(collective)
        return event

    def requested(self, event: Notification) -> Notification | None:
        """A caller of another server wants procs of this one to come: return what those hear who have not come."""
        store = self.server.store
        id, procs = id_of(event.infos), listed(event.infos, CONNECT_PROCS)
        try:
            members, others = store.expand(procs, strangers=True)
        except PMIxError:
            return event
        roster = self.server.collectives.roster(f"{CONNECT} {id}" if id else CONNECT, members, others, asks=True)
        _note(self._requested, _kind(roster))
        came = {each.proc for collective in (*roster.running, *roster.asking) for each in collective.arrived}
        called = listed(event.infos, keys.EVENT_CUSTOM_RANGE)
        away = [each.proc for each in members if each.proc not in came and among(each.proc, called)]
        if not away:
            return None
        infos = tuple([info for info in event.infos if info.key != keys.EVENT_CUSTOM_RANGE])
        return event.replace(infos=(listing(keys.EVENT_CUSTOM_RANGE, away), *infos))

    def _come(self, collective: Collective[Process, Ticket]) -> None:
        """A connect has ended: nobody is to come any more, not even who has not heard of it yet."""
        kind = _kind(collective.roster)
        del self._requested[kind]

        def over(event: Notification) -> bool:
            if event.code != statuses.CONNECT_REQUESTED or id_of(event.infos) != kind[0]:
                return False
            try:
                members, others = self.server.store.expand(listed(event.infos, CONNECT_PROCS), strangers=True)
            except PMIxError:
                return False
            return {each.proc for each in members} | others == kind[1]

        self.server.events.forget(over)

    def _tell_of_all(self, collective: Collective[Process, Ticket]) -> None:
        """Tell of all who have come to a connect, where nobody has been told of them."""
        id = collective.roster.operation.partition(" ")[2]
        for process in () if collective in self._loud else tuple(collective.arrived):
            self._tell_of_comer(collective.roster, process, (text(CONNECT_ID, id),) if id else ())

    def _tell_of_comer(
        self, roster: Roster[Process, Ticket], about: Process, infos: tuple[Info, ...], beyond: tuple[Info, ...] = ()
    ) -> None:
        """Tell the participants of a connect of one that has come."""
        members = [each.proc for each in roster.members]
        self._tell_of(statuses.PROC_HAS_CONNECTED, about, members, roster.others, infos, beyond)

    def _tell_of(
        self,
        code: int,
        about: Process,
        to: Iterable[Proc],
        others: Iterable[Proc],
        infos: tuple[Info, ...],
        beyond: tuple[Info, ...] = (),
    ) -> None:
        """Tell participants of one of them."""
        rest = [each for each in to if each != about.proc]
        self._tell(code, about, rest, others, (*infos, proc(keys.EVENT_AFFECTED_PROC, about.proc)), beyond)

    def _tell(
        self,
        code: int,
        source: Process,
        to: Iterable[Proc],
        others: Iterable[Proc],
        infos: tuple[Info, ...],
        beyond: tuple[Info, ...] = (),
    ) -> None:
        """Raise an event of a proc for participants here, and for those of other servers, who are told more."""
        here = [each for each in to if self._is_here(each)]
        if here:
            said = (listing(keys.EVENT_CUSTOM_RANGE, here), flag(keys.EVENT_NON_DEFAULT), *infos)
            self.server.events.notify(Notification(code, source.proc, RANGE_CUSTOM, said))
        there = tuple(others)
        if there:
            said = (listing(keys.EVENT_CUSTOM_RANGE, there), flag(keys.EVENT_NON_DEFAULT), *infos, *beyond)
            self.server.host.upcall(NotifyEvent(code, RANGE_CUSTOM, said), ignore, source)

    def _is_here(self, member: Proc) -> bool:
        process = self.server.store.find(member)
        return process is not None and process.local

    # What the host is asked

    def _ask_connect(self, collective: Collective[Process, Ticket]) -> None:
        server = self.server
        if self._lacks(collective):
            return

        def answer(result: object, error: BaseException | None) -> None:
            if not server.collectives.is_running(collective):
                return
            status, here = status_of(error), collective.status
            if error is None and result is not None:
                try:
                    made = self._outcomes[collective] = self._read(result, collective)
                    if made.nspace or is_set(made.directives, CONNECT_OPTIONAL):
                        # Participants elsewhere may have said that it goes on without who has ended.
                        here = statuses.SUCCESS
                except NotFound as problem:
                    status = problem.code
                except (TypeError, ValueError) as problem:
                    server.host.log(f"the host answered a connect with nonsense: {problem}")
                    status = statuses.ERROR
            collective.absent, collective.reason = absent_of(error), reason_of(error)
            server.collectives.finish(collective, status or here)

        server.host.upcall(Connect(procs_of(collective), self._directives(collective)), answer)

    def _ask_disconnect(self, collective: Collective[Process, Ticket]) -> None:
        server = self.server
        if self._lacks(collective):
            return
        for connection in self._of(collective):
            self.server.groups.records.mourn(connection.nspace)
            connection.parting = True

        def answer(_result: object, error: BaseException | None) -> None:
            if server.collectives.is_running(collective):
                collective.absent, collective.reason = absent_of(error), reason_of(error)
                server.collectives.finish(collective, status_of(error) or collective.status)

        server.host.upcall(Disconnect(procs_of(collective), self._directives(collective)), answer)

    def _lacks(self, collective: Collective[Process, Ticket]) -> bool:
        """End an operation that lacks procs of this server, where nobody elsewhere takes part."""
        if collective.status == statuses.SUCCESS or collective.roster.others:
            return False
        collective.absent = gone_from(collective)
        self.server.collectives.finish(collective, collective.status)
        return True

    def _directives(self, collective: Collective[Process, Ticket]) -> tuple[Info, ...]:
        directives = directives_of(collective, KEPT_HERE)
        gone = gone_from(collective)
        return (*directives, listing(ABSENT, gone)) if gone else directives

    def _of(self, collective: Collective[Process, Ticket]) -> list[Connection]:
        """Return the connections that an operation is of."""
        known = self.server.store.connections
        return [known[name] for name in sorted(collective.roster.groups) if name in known]

    def _read(self, result: object, collective: Collective[Process, Ticket]) -> Connected:
        """Return the nspace that the host has assigned, and who has which rank.

        Raises:
            TypeError: It is no such thing.
            ValueError: It makes no sense.
            NotFound: It leaves it to the server whom it is of, who has not been told of all of their jobs.
        """
        if not isinstance(result, Connected):
            raise TypeError(f"a Connected or None is wanted, not {type(result).__name__}")
        nspace, members = result.nspace, result.procs
        if not isinstance(nspace, str) or len(nspace.encode()) > MAX_NSLEN or "\0" in nspace:
            raise ValueError(f"{nspace!r:.300} is no nspace")
        if not nspace:
            return result.replace(procs=())
        store = self.server.store
        if store.get(nspace) is not None or nspace in store.groups:
            raise ValueError(f"there is {nspace!r} already")
        came = [process.proc for process in collective.arrived]
        if not members:
            others = collective.roster.others
            members = tuple(sorted({*came, *(store.expand(others)[1] if others else ())}))
        distinct = set(members)
        if any(type(each) is not Proc or each.rank > RANK_VALID for each in members) or len(distinct) < len(members):
            raise ValueError(f"the ranks of {nspace!r} are one proc each")
        if len(members) > MAX_CONNECTED or not distinct.issuperset(came):
            raise ValueError(f"the connection {nspace!r} has to have all who have come, {MAX_CONNECTED} at the most")
        return result.replace(procs=members)

    # Ends

    def _connected(self, collective: Collective[Process, Ticket], status: int) -> None:
        made = self._outcomes.pop(collective, Connected())
        known = bool(self._awaited) and self._awaited.pop(_kind(collective.roster), self) is None
        known = known or any(is_set(infos, CONNECT_NOTIFY_EACH) for _, infos in collective.said.values())
        if not known and is_set(made.directives, CONNECT_NOTIFY_EACH):
            # That somebody elsewhere wants to hear of each one has come to light with the end alone.
            self._tell_of_all(collective)
        self._loud.discard(collective)
        if self._requested and _kind(collective.roster) in self._requested:
            self._come(collective)
        if status != statuses.SUCCESS:
            if status == statuses.ERR_PARTIAL_SUCCESS and collective.absent is None:
                collective.absent = gone_from(collective) or None
            fail(collective, status)
            return
        roster = collective.roster
        names = {each.nspace for each in made.procs}
        if not names:
            names = {member.namespace.name for member in roster.members} | {proc.nspace for proc in roster.others}
        spaces = {name: self.server.store.get(name) for name in sorted(names)}
        given = [*made.directives, *[info for _, infos in collective.said.values() for info in infos]]
        if None in spaces.values() and not is_set(given, CONNECT_OPTIONAL):
            # The host has agreed to it, and has not told what there is to be known of those jobs.
            fail(collective, statuses.ERR_NOT_FOUND)
            return
        callers, said = dict(collective.arrived), dict(collective.said)
        if made.nspace:
            self._stands(made, collective, given)
        packed: dict[tuple[object, ...], bytes] = {}
        for process, (peer, tag) in callers.items():
            infos = said[process][1]
            told = made.nspace and is_set(infos, CONNECT_ASSIGN)
            if told and not peer.pypmix:
                self._keep(process, infos, made)
                told = False
            form = peer.buffer_type, peer.release, told, process.namespace
            payload = packed.get(form)
            if payload is None:
                packer = Packer(peer.buffer_type)
                if told:
                    packer.pack(codes.BYTE_OBJECT, encode_connected(peer.buffer_type, made.nspace, made.procs))
                for name, namespace in spaces.items():
                    if namespace is not None and name != process.namespace.name:
                        packer.pack(codes.BYTE_OBJECT, namespace.pack(peer.buffer_type, peer.release).reply)
                payload = packed[form] = encode_status(peer.buffer_type, statuses.SUCCESS) + packer.bytes()
            peer.send(tag, payload)
        if made.nspace:
            # Who has ended in the meantime has left a vacant rank.
            records = self.server.groups.records
            for each in made.procs:
                member = self.server.store.find(each)
                if member is not None and member.local and member.left:
                    records.departed(member)
            records.review(made.nspace)

    def _stands(self, made: Connected, collective: Collective[Process, Ticket], given: list[Info]) -> None:
        """Note a connection."""
        id = collective.roster.operation.partition(" ")[2]
        flags = is_set(given, CONNECT_EARLY_TERM), is_set(given, CONNECT_NOTIFY_EACH)
        connection = self.server.store.connections[made.nspace] = Connection(made.nspace, id, *flags)
        self.server.groups.records.form(made.nspace, made.procs, connection)

    def _disconnected(self, collective: Collective[Process, Ticket], status: int) -> None:
        connections = self._of(collective)
        if status not in (statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS) or collective.absent is not None:
            for connection in connections:
                connection.parting = False
            fail(collective, status)
            return
        for connection in connections:
            self.server.groups.records.dissolve(connection.nspace)
        for peer, tag in collective.arrived.values():
            peer.status(tag, status)

    # What a library does not pass on

    def _keep(self, process: Process, infos: tuple[Info, ...], made: Connected) -> None:
        token = found(infos, CONNECT_TOKEN, int)
        if token is not None:
            tokens = self._tokens.setdefault(process, {})
            while len(tokens) >= MAX_TOKENS:
                del tokens[next(iter(tokens))]
            tokens[token] = made

    def made(self, process: Process, qualifiers: Iterable[Info]) -> tuple[Info, ...]:
        """Return what a proc has not been told of a connection, once.

        Raises:
            NotFound: There is no such thing.
        """
        tokens = self._tokens.get(process, {})
        made = tokens.pop(found(qualifiers, CONNECT_TOKEN, int) or 0, None)
        if made is None:
            raise NotFound("no connection has that token")
        if not tokens:
            del self._tokens[process]
        infos = text(CONNECT_NAME, made.nspace), listing(CONNECT_PROCS, made.procs)
        return (Info(CONNECT_MADE, Value(codes.DATA_ARRAY, DataArray(codes.INFO, infos))),)

    def departed(self, process: Process, lost: bool) -> None:
        self._tokens.pop(process, None)

    def deregistered(self, namespace: Namespace) -> None:
        for process in namespace.processes.values():
            self._tokens.pop(process, None)


def _kind(roster: Roster[Process, Ticket]) -> Kind:
    """Return what all servers know a connect by."""
    return roster.operation.partition(" ")[2], frozenset({each.proc for each in roster.members} | roster.others)


def _note(kinds: dict[Kind, None], kind: Kind) -> None:
    """Remember a connect, and forget the oldest where there are too many."""
    while len(kinds) >= MAX_REQUESTED:
        del kinds[next(iter(kinds))]
    kinds[kind] = None


def _everyone(roster: Roster[Process, Ticket]) -> Info:
    """Return all who are to come, as an event names them."""
    return listing(CONNECT_PROCS, sorted([*[each.proc for each in roster.members], *roster.others]))


def _checked_id(infos: tuple[Info, ...]) -> str:
    """Return what a connect is called, empty where it has no name.

    Raises:
        PMIxError: That is no name (`ERR_BAD_PARAM`).
    """
    given = [info.value.data for info in infos if info.key == CONNECT_ID]
    if not given:
        return ""
    id = given[0]
    if not isinstance(id, str) or not id or len(id.encode()) > MAX_NSLEN or "\0" in id:
        raise PMIxError("the id of a connect is a name", status=statuses.ERR_BAD_PARAM)
    return id
