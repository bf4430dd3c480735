"""Groups that all members construct and destruct together, as MPI libraries do to make communicators of sessions."""

from __future__ import annotations

from pypmix.engine.python.modex import TIMEOUT, is_true, seconds
from pypmix.engine.python.serverdata import FLAG_QUALIFIER, QUALIFIED
from pypmix.engine.python.serverside.topic import Topic, fields_of
from pypmix.standard import codes
from pypmix.standard.errors import (
    ERR_BAD_PARAM,
    ERR_EXISTS,
    ERR_NOT_SUPPORTED,
    ERR_OUT_OF_RESOURCE,
    ERR_PARTIAL_SUCCESS,
    ERR_TIMEOUT,
    SUCCESS,
    NotFound,
    PMIxError,
)
from pypmix.standard.ops import SCOPE_GLOBAL
from pypmix.standard.types import MAX_NSLEN, DataArray, Info, Proc, Value
from pypmix.wire.codec import Packer, encode_kval
from pypmix.wire.messages import Command, reply_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.python.collectives import Collective
    from pypmix.engine.python.server import Peer, Server, Ticket
    from pypmix.engine.python.serverdata import Process

CONSTRUCT = "group_construct"
DESTRUCT = "group_destruct"

ASSIGN_CONTEXT_ID = "pmix.grp.actxid"
CONTEXT_ID = "pmix.grp.ctxid"
GROUP_INFO = "pmix.grp.info"
PROCID = "pmix.procid"

NOT_YET = frozenset({"pmix.grp.btstrp", "pmix.grp.add"})
"""Directives of other ways to construct."""

MAX_GROUPS = 65536

GROUP_CONSTRUCT_ABORT = -165

INFO_IN_REPLY = (6, 0, 0)
"""The first release whose clients get the others' group info with the reply.

Earlier ones ask the server for it, by the context id as a qualifier.
"""


class Groups(Topic):
    """Collective construct and destruct of groups among the procs of this server."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.handlers = {Command.GROUP_CONSTRUCT: self._construct, Command.GROUP_DESTRUCT: self._destruct}
        server.endings[CONSTRUCT] = self._constructed
        server.endings[DESTRUCT] = self._destructed
        self._said: dict[Ticket, tuple[Info, ...]] = {}
        self._last_context_id = 0

    # Requests

    def _construct(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.GROUP_CONSTRUCT, payload)
        name, infos = fields["group"], fields["infos"]
        groups = self.server.store.groups
        if not name or len(name) > MAX_NSLEN:
            raise PMIxError("a group needs a name", status=ERR_BAD_PARAM)
        if not fields["procs"] or any(info.key in NOT_YET for info in infos):
            raise PMIxError("groups are constructed by all of their members", status=ERR_NOT_SUPPORTED)
        if name in groups or self.server.store.get(name) is not None:
            raise PMIxError(f"there is a group or an nspace {name!r} already", status=ERR_EXISTS)
        if len(groups) >= MAX_GROUPS:
            raise PMIxError(f"there are {len(groups)} groups", status=ERR_OUT_OF_RESOURCE)
        for info in infos:
            if info.key == GROUP_INFO and not _is_infos(info.value):
                raise PMIxError("group info is an array of infos", status=ERR_BAD_PARAM)
        self._join(f"{CONSTRUCT} {name}", fields["procs"], infos, peer, tag)

    def _destruct(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.GROUP_DESTRUCT, payload)
        members = self.server.store.groups.get(fields["group"])
        if members is None:
            raise NotFound(f"there is no group {fields['group']!r}")
        present = [proc for proc in members if not self.server.store.process(proc).left]
        self._join(f"{DESTRUCT} {fields['group']}", present or members, fields["infos"], peer, tag)

    def _join(
        self, name: str, procs: tuple[Proc, ...] | list[Proc], infos: tuple[Info, ...], peer: Peer, tag: int
    ) -> None:
        members = self.server.store.expand(procs)
        if peer.process not in members:
            raise PMIxError("it is not one of the members", status=ERR_BAD_PARAM)
        timeout = max([seconds(info) for info in infos if info.key == TIMEOUT], default=0.0)
        collectives = self.server.collectives
        self._said[peer, tag] = infos
        try:
            collectives.join(collectives.roster(name, members), peer.process, (peer, tag), timeout=timeout)
        except PMIxError:
            self._said.pop((peer, tag), None)
            raise

    # Ends

    def _constructed(self, collective: Collective[Process, Ticket], status: int) -> None:
        said = {process: self._said.pop(ticket, ()) for process, ticket in collective.arrived.items()}
        if status == ERR_TIMEOUT:
            self.server.tell_missing(collective)
            return
        if status != SUCCESS:
            for peer, tag in collective.arrived.values():
                peer.status(tag, GROUP_CONSTRUCT_ABORT if peer.release >= INFO_IN_REPLY else ERR_PARTIAL_SUCCESS)
            return
        members = tuple(sorted([process.proc for process in said]))
        context_id = None
        if any(info.key == ASSIGN_CONTEXT_ID and is_true(info) for infos in said.values() for info in infos):
            self._last_context_id += 1
            context_id = self._last_context_id
        self.server.store.groups[collective.roster.operation.partition(" ")[2]] = members
        shared = {process: _group_info(infos) for process, infos in said.items()}
        if context_id is not None:
            for process, items in shared.items():
                self._keep(process, items, context_id, *collective.arrived[process])
        told = tuple([_told(process.proc, items) for process, items in sorted(shared.items(), key=_by_proc) if items])
        for process, (peer, tag) in collective.arrived.items():
            layout = reply_layout(Command.GROUP_CONSTRUCT, peer.release)
            peer.send(
                tag,
                layout.encode(
                    peer.buffer_type,
                    peer.release,
                    status=SUCCESS,
                    members=members,
                    context_id=context_id,
                    group_info=told,
                    objects=self._foreign(peer, process, members),
                ),
            )

    def _foreign(self, peer: Peer, process: Process, members: tuple[Proc, ...]) -> tuple[bytes, ...]:
        """Return the job info of the nspaces that a member may not know."""
        names = dict.fromkeys([proc.nspace for proc in members if proc.nspace != process.namespace.name])
        spaces = [self.server.store.get(name) for name in names]
        return tuple([space.pack(peer.buffer_type, peer.release).reply for space in spaces if space is not None])

    def _keep(self, process: Process, items: tuple[Info, ...], context_id: int, peer: Peer, _tag: int) -> None:
        """Keep what a member has said of itself in a group for those who ask by the context id."""
        qualifier = Info(CONTEXT_ID, Value(codes.SIZE, context_id), FLAG_QUALIFIER)
        packer = Packer(peer.buffer_type)
        for item in items:
            pair = DataArray(codes.INFO, (item, qualifier))
            packer.pack_raw(encode_kval(peer.buffer_type, QUALIFIED, Value(codes.DATA_ARRAY, pair), peer.release))
        if items:
            process.commit([(SCOPE_GLOBAL, packer.bytes())], peer.buffer_type, peer.release)

    def _destructed(self, collective: Collective[Process, Ticket], status: int) -> None:
        for ticket in collective.arrived.values():
            self._said.pop(ticket, None)
        if status == ERR_TIMEOUT:
            self.server.tell_missing(collective)
            return
        self.server.store.groups.pop(collective.roster.operation.partition(" ")[2], None)
        for peer, tag in collective.arrived.values():
            peer.status(tag, SUCCESS)

    # Who goes

    def disconnected(self, peer: Peer) -> None:
        for ticket in [ticket for ticket in self._said if ticket[0] is peer]:
            del self._said[ticket]

    def departed(self, process: Process, lost: bool) -> None:
        groups = self.server.store.groups
        for name, members in list(groups.items()):
            if process.proc in members and all(self._gone(proc) for proc in members):
                del groups[name]

    def _gone(self, proc: Proc) -> bool:
        try:
            return self.server.store.process(proc).left
        except NotFound:
            return True


def _is_infos(value: Value) -> bool:
    data = value.data
    return isinstance(data, DataArray) and data.type == codes.INFO and bool(data.items)


def _group_info(infos: tuple[Info, ...]) -> tuple[Info, ...]:
    found: list[Info] = []
    for info in infos:
        if info.key == GROUP_INFO:
            found += [item for item in info.value.data if item.key != PROCID]
    return tuple(found)


def _told(proc: Proc, items: tuple[Info, ...]) -> Info:
    first = Info(PROCID, Value(codes.PROC, proc))
    return Info(GROUP_INFO, Value(codes.DATA_ARRAY, DataArray(codes.INFO, (first, *items))))


def _by_proc(entry: tuple[Process, tuple[Info, ...]]) -> Proc:
    return entry[0].proc
