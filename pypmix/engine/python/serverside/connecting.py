"""Connect and disconnect: all of the procs come, the host agrees, and all get the job info of the others' nspaces."""

from __future__ import annotations

from pypmix.engine.python.serverside.topic import Topic, fields_of, status_of
from pypmix.engine.python.together import absent_of, directives_of, fail, join, procs_of
from pypmix.standard import codes
from pypmix.standard.errors import ERR_NOT_FOUND, ERR_PARTIAL_SUCCESS, SUCCESS
from pypmix.standard.ops import Connect, Disconnect
from pypmix.wire.codec import Packer
from pypmix.wire.messages import Command, encode_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.python.collectives import Collective
    from pypmix.engine.python.server import Peer, Server, Ticket
    from pypmix.engine.python.serverdata import Process

_OPERATIONS: dict[str, type[Connect | Disconnect]] = {"connect": Connect, "disconnect": Disconnect}


class Connecting(Topic):
    """Connect and disconnect."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.handlers = {
            Command.CONNECTNB: self._joining("connect", Command.CONNECTNB),
            Command.DISCONNECTNB: self._joining("disconnect", Command.DISCONNECTNB),
        }
        for operation in _OPERATIONS:
            server.askings[operation] = self._ask
            server.endings[operation] = self._ended

    def _joining(self, operation: str, command: int) -> Callable[[Peer, int, bytes], None]:
        def handle(peer: Peer, tag: int, payload: bytes) -> None:
            fields = fields_of(peer, command, payload)
            join(self.server, operation, fields["procs"], fields["infos"], (peer, tag))

        return handle

    def _ask(self, collective: Collective[Process, Ticket]) -> None:
        server = self.server
        if collective.status != SUCCESS and not collective.roster.others:
            server.collectives.finish(collective, collective.status)
            return
        here = collective.status

        def answer(_result: None, error: BaseException | None) -> None:
            collective.absent = absent_of(error)
            server.collectives.finish(collective, status_of(error) or here)

        op = _OPERATIONS[collective.roster.operation](procs_of(collective), directives_of(collective))
        server.host.upcall(op, answer)

    def _ended(self, collective: Collective[Process, Ticket], status: int) -> None:
        if status not in (SUCCESS, ERR_PARTIAL_SUCCESS) or collective.absent is not None:
            fail(collective, status)
            return
        roster = collective.roster
        names = {member.namespace.name for member in roster.members} | {proc.nspace for proc in roster.others}
        connected = status == SUCCESS and roster.operation == "connect"
        spaces = {name: self.server.store.get(name) for name in names} if connected else {}
        if None in spaces.values():
            # The host has agreed to it, and has not told what there is to be known of those jobs.
            fail(collective, ERR_NOT_FOUND)
            return
        for process, (peer, tag) in collective.arrived.items():
            payload = encode_status(peer.buffer_type, status)
            if connected:
                packer = Packer(peer.buffer_type)
                for name, namespace in spaces.items():
                    if namespace is not None and name != process.namespace.name:
                        packer.pack(codes.BYTE_OBJECT, namespace.pack(peer.buffer_type, peer.release).reply)
                payload += packer.bytes()
            peer.send(tag, payload)
