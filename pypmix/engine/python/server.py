"""The server of one node as a state machine: it takes messages and answers of the host, and sends messages and upcalls.

**No I/O.** It reads no socket and no clock, so that it runs over TCP as well as over a simulated network on virtual
time. All of its methods are called on one thread, the reactor's; `ServerSession` posts calls of hosts on other threads
to it.

**Parts.** `Node` (`node.py`) is the interface of a server for its parts: its data (`serverdata.py`), the connections of
its procs, and the collective machine. `Handshakes` admits connections. `Modex` and `Fences` are made at the start,
since every job needs them. A *topic* is made at its first command or the first call of the host that needs it, and only
this module imports topics. The server calls each topic when a connection ends, a proc departs or an nspace is removed.

**A request.** `Peer.received` cuts frames, `Peer.handle` takes them in order, and `request` finds the handler of the
command. A handler answers with `Peer.send` or `Peer.status`, now or when the host has answered; a `PMIxError` that it
raises is answered with its status. Bytes that do not parse are refused and logged. A fault of pypmix is logged with its
traceback and answered with ERROR; neither ends the connection.

**Fairness.** A connection that has sent more than `TURN` messages, or does not read its answers, is held (`busy`): it
has a turn after each of the others. The same holds for each connection of a proc that has used more than `TURN_SECONDS`
in a turn of the loop: its connections share one turn. In between, the others' messages and all timers have their turns.

**The end of a proc.** When its last connection finalizes or is lost, or its nspace is forgotten, `_depart` removes it
from all collectives, gets and topics. Hosts may answer in the middle of that, and such answers are kept for later
(`departing`). A proc that is deregistered while it is connected has `LINGER_SECONDS` for the messages that it has sent.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cached_property

from pypmix.engine.common import NATIVE, Pending, ignore
from pypmix.engine.faults import traced
from pypmix.engine.python.fences import Fences
from pypmix.engine.python.modex import REFRESH_CACHE, Modex
from pypmix.engine.python.node import NAMELESS, TURN, Node, Topic, fields_of, refuse
from pypmix.engine.python.serverside.handshakes import Handshakes
from pypmix.engine.times import CHARGED_SECONDS, LINGER_SECONDS, TURN_SECONDS
from pypmix.standard import statuses
from pypmix.standard._typing import TypeVar
from pypmix.standard.errors import PMIxError, RemoteProtocolError
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.logtext import indented
from pypmix.standard.ops import ClientAborted, ClientFinalized, ClientLost
from pypmix.standard.releases import NEWEST
from pypmix.wire.additions import WITHDRAW, decode_withdrawal
from pypmix.wire.codec import PLAIN
from pypmix.wire.frames import TAG_DYNAMIC, TAG_HEARTBEAT
from pypmix.wire.messages import Command, peek_command
from pypmix.wire.readers import rule_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.collective.machine import Clock, Timer
    from pypmix.engine.python.node import Handler, Host, Link, Peer
    from pypmix.engine.python.processes import Process
    from pypmix.engine.python.serverside.asking import Asking
    from pypmix.engine.python.serverside.connecting import Connecting
    from pypmix.engine.python.serverside.events import Events
    from pypmix.engine.python.serverside.forwarding import Forwarding
    from pypmix.engine.python.serverside.groups import Groups
    from pypmix.engine.python.serverside.psets import Psets
    from pypmix.engine.python.serverside.spawning import Spawning
    from pypmix.engine.python.serverside.tools import Tools
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.limits import Limits
    from pypmix.standard.types import Proc

T = TypeVar("T", bound=Topic)


class Server(Node):
    """The machine.

    Args:
        clock: The clock.
        host: The host, which answers upcalls.
        proc: The server's own name.
        security: The security modules of which clients may use one, of `native` and `munge`; with `unchecked`, a client
            is also trusted if the kernel cannot report its user.
        limits: The limits of one peer.

    Attributes:
        handshakes: The connections that are not admitted yet.
        fences: The fences.
        modex: The values that procs exchange.
        topics: The topics made until now; each is made when it is first needed, which takes as long as a small job.
        departing: The number of procs that are being removed now. Answers of the host are kept for later then.
    """

    def __init__(
        self,
        clock: Clock,
        host: Host,
        proc: Proc = NAMELESS,
        security: tuple[str, ...] = (NATIVE,),
        limits: Limits = DEFAULTS,
    ) -> None:
        super().__init__(clock, host, proc, limits)
        self._users: Counter[int] = Counter()
        self.handshakes = Handshakes(
            self,
            security,
            lambda uid: uid == os.geteuid() or self._users[uid] > 0,
            lambda *hello: self.tools.greeted(*hello),
        )
        self.modex: Modex = Modex(clock, self.store, self.everyone, host, limits)
        self.fences = Fences(self, self.modex)
        self.topics: list[Topic] = []
        self.departing = 0
        self._busy: dict[Peer, None] = {}
        self._charged: list[Process] = []
        """The procs that have taken time in this turn."""
        self._next_turn: Timer | None = None
        self._handlers: dict[int, Handler] = {
            Command.REQ: self._job_info,
            Command.ABORT: self._abort,
            Command.COMMIT: self.modex.commit,
            Command.FENCENB: self.fences.fence,
            Command.GETNB: self.modex.get,
            Command.FINALIZE: self._finalize,
            REFRESH_CACHE: self.modex.refresh_cache,
            WITHDRAW: self._withdraw,
        }

    # Topics

    def _add_topic(self, topic: T) -> T:
        self.topics.append(topic)
        self._handlers.update(topic.handlers)
        return topic

    @cached_property
    def asking(self) -> Asking:
        """The topic of requests that the host answers, and of queries."""
        from pypmix.engine.python.serverside.asking import Asking

        return self._add_topic(Asking(self))

    @cached_property
    def connecting(self) -> Connecting:
        """The topic of connects and disconnects."""
        from pypmix.engine.python.serverside.connecting import Connecting

        return self._add_topic(Connecting(self, lambda: self.groups.records))

    @cached_property
    def events(self) -> Events:
        """The topic of events."""
        from pypmix.engine.python.serverside.events import Events

        return self._add_topic(Events(self))

    @cached_property
    def forwarding(self) -> Forwarding:
        """The topic of output and input."""
        from pypmix.engine.python.serverside.forwarding import Forwarding

        return self._add_topic(Forwarding(self))

    @cached_property
    def groups(self) -> Groups:
        """The topic of groups."""
        from pypmix.engine.python.serverside.groups import Groups

        return self._add_topic(Groups(self))

    @cached_property
    def psets(self) -> Psets:
        """The topic of process sets."""
        from pypmix.engine.python.serverside.psets import Psets

        return self._add_topic(Psets(self))

    @cached_property
    def spawning(self) -> Spawning:
        """The topic of spawns."""
        from pypmix.engine.python.serverside.spawning import Spawning

        return self._add_topic(Spawning(self))

    @cached_property
    def tools(self) -> Tools:
        """The topic of tools."""
        from pypmix.engine.python.serverside.tools import Tools

        return self._add_topic(Tools(self, self.handshakes))

    # Registrations of the host.

    def register_nspace(self, job: JobInfo, local: Iterable[int] | None = None) -> None:
        """See `ServerSession.register_nspace`."""
        namespace = self.store.add(job, local)
        try:
            namespace.pack(1, NEWEST, rule_for(NEWEST))
        except BaseException:
            self.store.remove(job.nspace)
            raise
        self.modex.sharing.registered(namespace)

    def deregister_nspace(self, nspace: str) -> None:
        """See `ServerSession.deregister_nspace`."""
        namespace = self.store.remove(nspace)
        if namespace is None:
            return
        for process in namespace.processes.values():
            if not process.local:
                continue
            if process.registered:
                process.registered = False
                self._users[process.uid] -= 1
            for peer in self._peers.get(process, [])[:]:
                self._disconnect(peer)
            if not process.left:
                self._depart(process, failed=True)
            else:
                self.collectives.stop_expecting(process)
            self.collectives.readmit(process)
        self.modex.forsake(namespace)
        for topic in self.topics[:]:
            topic.deregistered(namespace)

    def register_client(self, proc: Proc, uid: int, gid: int) -> None:
        """See `ServerSession.register_client`."""
        process = self.store.process(proc)
        if not process.local:
            raise PMIxError(f"{proc} is not of this server", status=statuses.ERR_BAD_PARAM, operation="register_client")
        if process.registered:
            self._users[process.uid] -= 1
        self._users[uid] += 1
        process.registered = True
        process.uid = uid
        process.gid = gid
        process.left = False
        self.collectives.readmit(process)

    def deregister_client(self, proc: Proc) -> None:
        """See `ServerSession.deregister_client`."""
        process = self.store.process(proc)
        if not process.local:
            return
        if process.registered:
            self._users[process.uid] -= 1
        process.registered = False
        if process.left:
            self.collectives.stop_expecting(process)
        peers = self._peers.get(process)
        if not peers:
            if not process.left:
                self._depart(process, failed=True)
            return

        # The process has ended, but its earlier messages may still arrive, such as its own finalize.
        def linger() -> None:
            if not process.registered:
                for peer in self._peers.get(process, [])[:]:
                    peer.handle_disconnect()

        self.clock.call_later(LINGER_SECONDS, linger)

    def pending(self) -> list[Pending]:
        """See `ServerSession.pending`."""
        found = self.collectives.pending() + self.modex.pending()
        for topic in self.topics[:]:
            found += topic.pending()
        return sorted(found, key=lambda entry: entry.since)

    def close(self) -> None:
        """Close all connections without further answers."""
        self.modex.sharing.close()
        self.handshakes.close()
        for peer in list(self.everyone()):
            self._disconnect(peer)

    # Connections.

    def opened(self, link: Link) -> None:
        """Add a new connection of a process."""
        self.handshakes.opened(link)

    def charge(self, process: Process, seconds: float) -> None:
        """Count time against the turn of a proc, which all of its connections share."""
        if not process.spent:
            self._charged.append(process)
        process.spent += seconds
        self._have_turns()

    def busy(self, peer: Peer) -> None:
        """Hold a connection that has sent too much at once; it has turns among the others'."""
        self._busy[peer] = None
        peer.link.hold(True)
        self._have_turns()

    def _have_turns(self) -> None:
        if self._next_turn is None:
            self._next_turn = self.clock.call_later(0.0, self._turns)

    def _turns(self) -> None:
        """Give each busy connection a turn, one connection of a proc after the other."""
        self._next_turn = None
        charged, self._charged = self._charged, []
        for process in charged:
            process.spent = 0.0
        now = self.clock.now
        for peer in list(self._busy):
            process = peer.process
            if process.spent > TURN_SECONDS or peer not in self._busy:
                continue
            # Connections of its proc that have waited longer have precedence the next time.
            del self._busy[peer]
            self._busy[peer] = None
            began = now()
            self._turn(peer)
            took = now() - began
            if took > CHARGED_SECONDS:
                self.charge(process, took)
        if self._busy:
            self._have_turns()

    def _turn(self, peer: Peer) -> None:
        backlog = peer.backlog
        if peer.link.full():
            # It stays held until it has read its answers.
            self._busy.pop(peer, None)
            return
        try:
            messages = backlog[:TURN]
            del backlog[:TURN]
            peer.handle(messages)
        except Exception as error:
            # It must not end the turns of the others.
            if peer.open:
                self.drop(peer, f"there is a fault here: {error!r}")
        if not peer.backlog:
            self._busy.pop(peer, None)
            if peer.open:
                peer.link.hold(False)

    def drop(self, peer: Peer, reason: str) -> None:
        """End a connection whose bytes can no longer be parsed, as if it had been lost."""
        peer.link.close()
        self.handle_disconnect(peer, reason)

    def handle_disconnect(self, peer: Peer, reason: str = "") -> None:
        """Handle the end of a connection; `reason` is given if this side has ended it."""
        if reason:
            self.log(peer.process.proc, f"dropped: {reason}")
        self._disconnect(peer)
        process = peer.process
        if peer.finalized:
            return
        if any(not other.finalized for other in self.peers(process)):
            self.collectives.withdraw(process, lambda call: call[0] is peer)
            return
        self._depart(process, failed=True)
        self.host.upcall(ClientLost(process.proc), ignore, process)

    def _disconnect(self, peer: Peer) -> None:
        if not peer.open:
            return
        peer.open = False
        peer.forget()
        self._busy.pop(peer, None)
        peer.link.owner = None
        peer.link.close()
        peers = self._peers[peer.process]
        peers.remove(peer)
        if not peers:
            del self._peers[peer.process]
        self.modex.forget(peer)
        for topic in self.topics[:]:
            topic.disconnected(peer)

    def _withdraw(self, peer: Peer, _tag: int, payload: bytes) -> None:
        """Withdraw a client from a collective that it gives up; the answer goes to the tag of its first request."""
        self.withdraw(peer, decode_withdrawal(payload, peer.buffer_type))

    def withdraw(self, peer: Peer, tag: int) -> bool:
        """Withdraw a client from the collective that a request has called; return False if that is too late."""
        process, call = peer.process, (peer, tag)
        is_withdrawn = self.collectives.retract(process, call)
        for topic in self.topics[:]:
            topic.handle_withdrawal(process, call)
        if is_withdrawn:
            peer.status(tag, statuses.ERR_TIMEOUT)
        return is_withdrawn

    def _depart(self, process: Process, failed: bool) -> None:
        """Remove a proc from everything that it takes part in; it will commit no further data."""
        process.left = True
        self.departing += 1
        try:
            self.collectives.leave(process, failed)
            self.modex.forsake(process)
            for topic in self.topics[:]:
                topic.handle_departure(process, failed)
        finally:
            self.departing -= 1

    # Requests.

    def request(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Carry out a request, or answer it with the status of its refusal."""
        if tag <= TAG_DYNAMIC:
            if tag == TAG_HEARTBEAT and not peer.finalized:
                try:
                    self.asking.heartbeat(peer)
                except Exception as error:
                    self.failed(peer, f"what it sent with tag {tag}", error)
            return
        command = -1
        try:
            if not payload and tag in peer.reader.skipped:
                length = peer.reader.skipped.pop(tag)
                raise self.limits.reached("committed", f"a message of {length} bytes cannot be taken in")
            # Nearly all requests begin like this; a call is saved for each.
            plain = len(payload) > 1 and payload[0] == 2 and peer.buffer_type == PLAIN
            command = payload[1] if plain else peek_command(payload, peer.buffer_type)
            handler = self._handlers.get(command)
            if handler is None:
                topic = TOPIC_OF.get(command)
                if topic is None:
                    raise PMIxError(f"command {command} is not served", status=statuses.ERR_NOT_SUPPORTED)
                handler = topic(self).handlers[command]
            if peer.finalized:
                raise PMIxError("it has finalized already", status=statuses.ERR_INIT)
            handler(peer, tag, payload)
            return
        except RemoteProtocolError as error:
            self.log(peer.process.proc, f"request {command} does not parse: {error.detail}")
            status = error.code
        except PMIxError as error:
            if error.code == statuses.ERR_OUT_OF_RESOURCE:
                self.log(peer.process.proc, f"request {command} is refused: {error.detail}")
            if command == Command.COMMIT or not payload:
                peer.deny(tag, error)
                return
            status = error.code
        except Exception as error:
            self.failed(peer, f"request {command}", error)
            status = statuses.ERROR
        if command != Command.DEREGEVENTS:
            peer.status(tag, status or statuses.ERROR)

    def failed(self, peer: Peer, what: str, error: Exception) -> None:
        """Log that something of a client failed because of a fault of this server; its connection stays."""
        self.log(peer.process.proc, f"{what} failed because of a fault here:", indented(traced(error)))

    def _job_info(self, peer: Peer, tag: int, payload: bytes) -> None:
        peer.send(tag, peer.process.namespace.pack(peer.buffer_type, peer.release, peer.rule).reply)

    def _abort(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.ABORT, payload)
        procs = tuple(self.store.ungrouped(fields["procs"]))
        op = ClientAborted(peer.process.proc, fields["code"], fields["message"] or "", procs)
        self.host.upcall(op, lambda _result, error: refuse(peer, tag, error), peer.process)

    def _finalize(self, peer: Peer, tag: int, payload: bytes) -> None:
        process = peer.process
        peer.finalized = True
        peer.plan = None
        if all(other.finalized for other in self._peers[process]):
            self._depart(process, failed=False)
            if not process.registered:
                self.collectives.stop_expecting(process)
        op = ClientFinalized(process.proc)
        self.host.upcall(op, lambda _result, error: refuse(peer, tag, error), process)


_TOPICS: tuple[tuple[Callable[[Server], Topic], tuple[int, ...]], ...] = (
    (
        lambda server: server.asking,
        (
            Command.PUBLISHNB,
            Command.LOOKUPNB,
            Command.UNPUBLISHNB,
            Command.QUERY,
            Command.LOG,
            Command.ALLOC,
            Command.JOB_CONTROL,
            Command.MONITOR,
            Command.GET_CREDENTIAL,
            Command.VALIDATE_CRED,
            Command.FABRIC_REGISTER,
            Command.FABRIC_UPDATE,
            Command.COMPUTE_DEVICE_DISTANCES,
            Command.RESOLVE_PEERS,
            Command.RESOLVE_NODE,
            Command.SESSION_CTRL,
            Command.RESBLK,
        ),
    ),
    (lambda server: server.connecting, (Command.CONNECTNB, Command.DISCONNECTNB)),
    (lambda server: server.events, (Command.NOTIFY, Command.REGEVENTS, Command.DEREGEVENTS)),
    (lambda server: server.forwarding, (Command.IOF_PULL, Command.IOF_PUSH, Command.IOF_DEREG)),
    (
        lambda server: server.groups,
        (Command.GROUP_CONSTRUCT, Command.GROUP_DESTRUCT, Command.GROUP_INVITE, Command.GROUP_JOIN),
    ),
    (lambda server: server.spawning, (Command.SPAWNNB,)),
)
"""The topics that clients send commands to, and the commands of each."""

TOPIC_OF = {command: topic for topic, commands in _TOPICS for command in commands}
