"""Connect and disconnect: all of the procs come, the host agrees, and all get the job info of the others' nspaces."""

from __future__ import annotations

from pypmix.engine.python.modex import TIMEOUT, seconds
from pypmix.engine.python.serverside.topic import Topic, fields_of, status_of
from pypmix.standard import codes
from pypmix.standard.errors import ERR_BAD_PARAM, ERR_TIMEOUT, SUCCESS, PMIxError
from pypmix.standard.ops import Connect, Disconnect
from pypmix.wire.codec import Packer
from pypmix.wire.messages import Command, encode_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.python.collectives import Collective
    from pypmix.engine.python.server import Peer, Server, Ticket
    from pypmix.engine.python.serverdata import Process
    from pypmix.standard.types import Info, Proc

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
            server.endings[operation] = self._ended
        self._asked: dict[Ticket, tuple[tuple[Proc, ...], tuple[Info, ...]]] = {}

    def _joining(self, operation: str, command: int) -> Callable[[Peer, int, bytes], None]:
        def join(peer: Peer, tag: int, payload: bytes) -> None:
            fields = fields_of(peer, command, payload)
            members = self.server.store.expand(fields["procs"])
            if peer.process not in members:
                raise PMIxError("it is not one of the procs that it names", status=ERR_BAD_PARAM)
            timeout = max([seconds(info) for info in fields["infos"] if info.key == TIMEOUT], default=0.0)
            collectives = self.server.collectives
            self._asked[peer, tag] = fields["procs"], fields["infos"]
            try:
                collectives.join(collectives.roster(operation, members), peer.process, (peer, tag), timeout=timeout)
            except PMIxError:
                self._asked.pop((peer, tag), None)
                raise

        return join

    def disconnected(self, peer: Peer) -> None:
        for ticket in [ticket for ticket in self._asked if ticket[0] is peer]:
            del self._asked[ticket]

    def _ended(self, collective: Collective[Process, Ticket], status: int) -> None:
        procs: tuple[Proc, ...] = ()
        directives: tuple[Info, ...] = ()
        for ticket in collective.arrived.values():
            procs, directives = self._asked.pop(ticket, (procs, directives))
        if status == ERR_TIMEOUT:
            self.server.tell_missing(collective)
            return
        if status != SUCCESS or not procs:
            self._answer(collective, status)
            return
        op = _OPERATIONS[collective.roster.operation](procs, directives)
        process = collective.opener if collective.opener in collective.arrived else next(iter(collective.arrived))
        self.server.host.upcall(op, lambda _result, error: self._answer(collective, status_of(error)), process)

    def _answer(self, collective: Collective[Process, Ticket], status: int) -> None:
        spaces = {member.namespace.name: member.namespace for member in collective.roster.members}
        connected = status == SUCCESS and collective.roster.operation == "connect"
        for process, (peer, tag) in collective.arrived.items():
            payload = encode_status(peer.buffer_type, status)
            if connected:
                packer = Packer(peer.buffer_type)
                for name, namespace in spaces.items():
                    if name != process.namespace.name:
                        packer.pack(codes.BYTE_OBJECT, namespace.pack(peer.buffer_type, peer.release).reply)
                payload += packer.bytes()
            peer.send(tag, payload)
