"""Requests that a server passes on to its host as upcalls, and the host's answers as replies: one table.

Theory of operation. A row of `QUESTIONS` has the command of a message, the operation that its fields make, and the
fields of the reply that a result of the host makes. One handler serves all rows: it decodes the request, replaces
procs that are named by a group, and asks the host (`_ask`); a request counts against `Limits.requests` until it is
answered. The answer is dropped if the caller has disconnected. Hosts are users' code: a result of another type fails
the request (`_send`), and never the server.

Queries are handled apart, since they may be answered here: the host's answers come first, and `knowledge.py` adds those
of the server (`_answers`). Three queries with keys of pypmix are not the user's: about the participants of a fence,
about the connection that a connect has made, and the withdrawal of a call that a client behind a library gives up.
"""

from __future__ import annotations

from pypmix.engine.collective.rules import checksum
from pypmix.engine.common import Pending
from pypmix.engine.groups.talk import flag, found, listed, number, procs
from pypmix.engine.python.node import Topic, fields_of, made, refuse, status_of
from pypmix.engine.python.serverside.knowledge import Knowledge
from pypmix.engine.times import HEARTBEAT_SECONDS
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, OutOfResources
from pypmix.standard.ops import (
    FENCE_PARTICIPANTS,
    WITHDRAWAL,
    WITHDRAWAL_KIND,
    WITHDRAWAL_PROCS,
    AllocationRequest,
    ComputeDistances,
    Credential,
    FabricRegister,
    FabricUpdate,
    GetCredential,
    Heartbeat,
    JobControl,
    Log,
    Lookup,
    ProcessMonitor,
    QueryInfo,
    ResourceBlock,
    SessionControl,
    Unpublish,
    ValidateCredential,
)
from pypmix.standard.ops.connecting import CONNECT_MADE
from pypmix.standard.ops.core import returned
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.publishing import read_publish
from pypmix.standard.releases import PARTIAL_LOOKUP, PARTIAL_QUERY
from pypmix.standard.types import DeviceDistance, Info, Pdata, Value
from pypmix.wire.messages import Command, reply_layout
from pypmix.wire.readers import fit_infos, marks_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.python.node import Node, Peer
    from pypmix.standard.ops import Op

    Fields = dict[str, Any]
    Reply = Callable[[Any, Any, Peer], Fields]


MAX_KEYS = 512
"""After how many keys one request may ask; an answer can be as large as the job."""


# Results of the host, as the fields of a reply. They raise a `TypeError` if a result is not valid.


def _infos(_op: Op[Any], result: object, _peer: Peer) -> Fields:
    return {"infos": returned(result, Info)}


def _lookup_fields(op: Lookup, result: object, peer: Peer) -> Fields:
    published = returned(result, Pdata)
    data = tuple([item for item in published if not marks_of(*item.value) & peer.unfit])
    if not data:
        return {"status": statuses.ERR_UNKNOWN_DATA_TYPE if published else statuses.ERR_NOT_FOUND}
    partial = len(data) < len(op.keys) and peer.release >= PARTIAL_LOOKUP
    return {"status": statuses.ERR_PARTIAL_SUCCESS if partial else statuses.SUCCESS, "data": data}


def _credential(_op: Op[Any], result: object, _peer: Peer) -> Fields:
    if not isinstance(result, Credential) or not isinstance(result.data, bytes):
        raise TypeError(f"a Credential is wanted, not {type(result).__name__}")
    return {"credential": result.data, "infos": returned(result.infos, Info)}


def _distances(_op: Op[Any], result: object, _peer: Peer) -> Fields:
    return {"distances": returned(result, DeviceDistance)}


# Operations for the host, made from requests.


QUESTIONS: tuple[tuple[int, Callable[[Fields], Op[Any]], Reply | None], ...] = (
    # The user that these three name is ignored: the upcall carries the user that the server has admitted.
    (Command.PUBLISHNB, lambda got: read_publish(got["infos"]), None),
    (Command.LOOKUPNB, lambda got: Lookup(tuple(dict.fromkeys(got["keys"])), got["infos"]), _lookup_fields),
    (Command.UNPUBLISHNB, lambda got: Unpublish(tuple(dict.fromkeys(got["keys"])), got["infos"]), None),
    (Command.LOG, lambda got: Log(got["data"], got["directives"], max(0, got["timestamp"])), None),
    (Command.ALLOC, lambda got: AllocationRequest(got["directive"], got["infos"]), _infos),
    (Command.JOB_CONTROL, lambda got: JobControl(got["procs"], got["infos"]), _infos),
    (Command.MONITOR, lambda got: ProcessMonitor(got["monitor"], got["error"], got["infos"]), _infos),
    (Command.GET_CREDENTIAL, lambda got: GetCredential(got["infos"]), _credential),
    (Command.VALIDATE_CRED, lambda got: ValidateCredential(got["credential"], got["infos"]), _infos),
    (Command.FABRIC_REGISTER, lambda got: FabricRegister(got["infos"]), _infos),
    (Command.FABRIC_UPDATE, lambda got: FabricUpdate(got["index"]), _infos),
    (
        Command.COMPUTE_DEVICE_DISTANCES,
        lambda got: ComputeDistances(got["topology"], got["cpuset"], got["infos"]),
        _distances,
    ),
    (Command.SESSION_CTRL, lambda got: SessionControl(got["session"], got["infos"]), _infos),
    (
        Command.RESBLK,
        lambda got: ResourceBlock(got["directive"], got["block"] or "", got["units"], got["infos"]),
        None,
    ),
)
"""Each command, the operation that it asks for, and the fields of its reply for a result of the host, if it has any."""


def _participants(peer: Peer, qualifiers: tuple[Info, ...]) -> tuple[Info, ...]:
    """Return the procs that took part in the last fence of a group, or a flag if the peer expects exactly these procs.

    Raises:
        NotFound: The peer has not fenced this group, or has not asked for the procs.
    """
    group = found(qualifiers, keys.GROUP_ID, str) or ""
    participants = peer.participants.pop(group, None)
    if participants is None:
        raise NotFound(f"no participants of a fence of {group!r} are known")
    if number(qualifiers, FENCE_PARTICIPANTS) == checksum(participants):
        return (flag(FENCE_PARTICIPANTS),)
    return (procs(FENCE_PARTICIPANTS, participants),)


class _PendingRequest:
    """A request that the host has before it."""

    __slots__ = ("op", "since")

    def __init__(self, op: Op[Any], since: float) -> None:
        self.op = op
        self.since = since


class Asking(Topic):
    """Requests that the host answers; queries and resolutions that need no host are answered here."""

    def __init__(self, server: Node) -> None:
        super().__init__(server)
        self.knowledge = Knowledge(server)
        self._pending: dict[Peer, set[_PendingRequest]] = {}
        self._beats: dict[Peer, float] = {}
        """The time until which further heartbeats are not reported to the host."""
        self.handlers = {command: self._handler(command, make, reply) for command, make, reply in QUESTIONS}
        self.handlers[Command.QUERY] = self._query
        self.handlers[Command.RESOLVE_PEERS] = self._resolve_peers
        self.handlers[Command.RESOLVE_NODE] = self._resolve_nodes

    def disconnected(self, peer: Peer) -> None:
        self._pending.pop(peer, None)
        self._beats.pop(peer, None)

    def pending(self) -> list[Pending]:
        return [
            Pending(asked.op.name, "with the host", (peer.process.proc,), (), asked.since)
            for peer, requests in self._pending.items()
            for asked in requests
        ]

    def _handler(
        self, command: int, make: Callable[[Fields], Op[Any]], reply: Reply | None
    ) -> Callable[[Peer, int, bytes], None]:
        def handle(peer: Peer, tag: int, payload: bytes) -> None:
            fields = fields_of(peer, command, payload)
            if self.server.store.groups:
                self._translate(peer, fields)
            op = made(make, fields)

            def answer(result: object, error: BaseException | None) -> None:
                if error is not None:
                    refuse(peer, tag, error)
                elif reply is None:
                    peer.status(tag, statuses.SUCCESS)
                else:
                    self._send(peer, tag, command, op, lambda: reply(op, result, peer))

            if command == Command.JOB_CONTROL and is_set(op.directives, keys.GROUP_ASSIGN_CONTEXT_ID):
                self.server.groups.number(peer, answer)
                return
            self._ask(peer, op, answer)

        return handle

    def _translate(self, peer: Peer, fields: Fields) -> None:
        """Replace procs that are named by a group with the group's members: no host knows groups by name."""
        store = self.server.store
        if "procs" in fields:
            fields["procs"] = tuple(store.ungrouped(store.resolve(fields["procs"], peer.process.proc)))
        if "infos" in fields:
            fields["infos"] = store.native(fields["infos"], keys.EVENT_CUSTOM_RANGE)

    def _ask(self, peer: Peer, op: Op[Any], answer: Callable[[Any, BaseException | None], None]) -> None:
        """Ask the host; its answer is dropped if the caller has disconnected in the meantime."""
        peer.count_request(op.name)
        requests = self._pending.setdefault(peer, set())
        asked = _PendingRequest(op, self.server.clock.now())
        requests.add(asked)

        def done(result: object, error: BaseException | None) -> None:
            peer.waiting -= 1
            requests.discard(asked)
            if peer.open:
                answer(result, error)

        self.server.host.upcall(op, done, peer.process)

    def _send(self, peer: Peer, tag: int, command: int, op: Op[Any], fields: Callable[[], Fields]) -> None:
        """Send the reply with the fields of the host's result."""
        try:
            layout = reply_layout(command, peer.release)
            payload = layout.encode_fit(peer.buffer_type, peer.rule, **{"status": statuses.SUCCESS, **fields()})
        except Exception as problem:
            # Hosts are other people's code, and may return anything.
            self.server.host.log(f"the host answered {op.name} of {peer.process.proc} with nonsense: {problem!r}")
            peer.status(tag, statuses.ERROR)
        else:
            peer.send(tag, payload)

    def heartbeat(self, peer: Peer) -> None:
        """Report to the host that a proc is alive."""
        now = self.server.clock.now()
        if now < self._beats.get(peer, 0.0):
            return
        # A heartbeat before the host has got the last one adds nothing.
        self._beats[peer] = now + HEARTBEAT_SECONDS

        def end_beat(_result: object, _error: BaseException | None) -> None:
            self._beats.pop(peer, None)

        self.server.host.upcall(Heartbeat(), end_beat, peer.process)

    # Queries: the host is asked first, since its values are newer than the values registered here.

    def _query(self, peer: Peer, tag: int, payload: bytes) -> None:
        queries = fields_of(peer, Command.QUERY, payload)["queries"]
        if len(queries) == 1 and queries[0].keys == (CONNECT_MADE,):
            infos = self.server.connecting.made(peer.process, queries[0].qualifiers)
            layout = reply_layout(Command.QUERY, peer.release)
            peer.send(tag, layout.encode_fit(peer.buffer_type, peer.rule, status=statuses.SUCCESS, infos=infos))
            return
        if len(queries) == 1 and queries[0].keys == (FENCE_PARTICIPANTS,):
            infos = _participants(peer, queries[0].qualifiers)
            layout = reply_layout(Command.QUERY, peer.release)
            peer.send(tag, layout.encode(peer.buffer_type, peer.release, status=statuses.SUCCESS, infos=infos))
            return
        if len(queries) == 1 and queries[0].keys == (WITHDRAWAL,):
            infos = (flag(WITHDRAWAL, self._withdraw(peer, queries[0].qualifiers)),)
            layout = reply_layout(Command.QUERY, peer.release)
            peer.send(tag, layout.encode(peer.buffer_type, peer.release, status=statuses.SUCCESS, infos=infos))
            return
        if self.server.store.groups:
            native = self.server.store.native
            queries = tuple([each.replace(qualifiers=native(each.qualifiers, keys.PROCID)) for each in queries])
        op = made(QueryInfo, queries)
        if sum([len(query.keys) for query in op.queries]) > MAX_KEYS:
            raise OutOfResources(f"a query after more than {MAX_KEYS} keys")

        def answer(result: object, error: BaseException | None) -> None:
            fields = None if error is None else self._answers(op, None, error, peer)
            if fields is not None and "infos" not in fields:
                refuse(peer, tag, error)
                return
            self._send(peer, tag, Command.QUERY, op, lambda: fields or self._answers(op, result, None, peer))

        if self._is_of_own_group(op, peer):
            answer(None, None)
        else:
            self._ask(peer, op, answer)

    def _withdraw(self, peer: Peer, qualifiers: tuple[Info, ...]) -> bool:
        """Take back the call of a client behind a library, which gives up waiting; return False if that is too late.

        The answer to the request is a timeout.
        """
        store, process = self.server.store, peer.process
        named = store.resolve(listed(qualifiers, WITHDRAWAL_PROCS), process.proc)
        members, others = store.expand(named)
        kind = found(qualifiers, WITHDRAWAL_KIND, str) or ""
        meant = self.server.collectives.calls_of(process, kind, members, others)
        # Of several calls, the library's requests do not show which one it is.
        return len(meant) == 1 and meant[0][0] is peer and self.server.withdraw(*meant[0])

    def _is_of_own_group(self, op: QueryInfo, peer: Peer) -> bool:
        """Return True if a query asks only for the members of a group of the caller, which no host knows better."""
        if len(op.queries) != 1 or op.queries[0].keys != (keys.QUERY_GROUP_MEMBERSHIP,):
            return False
        named = [info.value.data for info in op.queries[0].qualifiers if info.key == keys.GROUP_ID]
        own = peer.process.proc
        return any(isinstance(name, str) and self.server.store.key_of(name, own) is not None for name in named)

    def _answers(self, op: QueryInfo, result: object, error: BaseException | None, peer: Peer) -> Fields:
        theirs: dict[str, list[Value]] = {}
        for info in () if error else returned(result, Info):
            theirs.setdefault(info.key, []).append(info.value)
        found = []
        slots = 0
        for query in op.queries:
            for key in query.keys:
                slots += 1
                values = theirs.get(key, [])
                told = values.pop(0) if values else None
                # A host that has no answer to one of several questions after the same key holds its place.
                if told is None or told.type == codes.UNDEF:
                    value = self.knowledge.answer(peer.process, key, query.qualifiers)
                else:
                    value = self.knowledge.combined(peer.process, key, query.qualifiers, told)
                if value is not None and value.type != codes.UNDEF:
                    found.append(Info.unchecked(key, value, 0))
        if not found:
            return {"status": status_of(error) if error else statuses.ERR_NOT_FOUND}
        fit = fit_infos(found, peer.rule)
        if not fit:
            return {"status": statuses.ERR_UNKNOWN_DATA_TYPE}
        partial = len(fit) < slots and peer.release >= PARTIAL_QUERY
        return {"status": statuses.ERR_PARTIAL_SUCCESS if partial else statuses.SUCCESS, "infos": fit}

    def _resolve_peers(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.RESOLVE_PEERS, payload)
        procs = self.knowledge.peers(peer.process, fields["node"], fields["nspace"])
        layout = reply_layout(Command.RESOLVE_PEERS, peer.release)
        peer.send(tag, layout.encode(peer.buffer_type, peer.rule, status=statuses.SUCCESS, procs=procs))

    def _resolve_nodes(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.RESOLVE_NODE, payload)
        nodes = ",".join(self.knowledge.nodes(fields["nspace"]))
        layout = reply_layout(Command.RESOLVE_NODE, peer.release)
        peer.send(tag, layout.encode(peer.buffer_type, peer.rule, status=statuses.SUCCESS, nodes=nodes))
