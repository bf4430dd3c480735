"""Groups that all members construct and destruct together, as MPI libraries do to make communicators of sessions."""

from __future__ import annotations

from pypmix.engine.python.modex import is_true
from pypmix.engine.python.serverdata import FLAG_QUALIFIER, QUALIFIED
from pypmix.engine.python.serverside.topic import Topic, fields_of, status_of
from pypmix.engine.python.together import absent_of, answer_failure, directives_of, fail, join, procs_of
from pypmix.standard import codes
from pypmix.standard.errors import (
    ERR_BAD_PARAM,
    ERR_EXISTS,
    ERR_NOT_SUPPORTED,
    ERR_OUT_OF_RESOURCE,
    ERR_PARTIAL_SUCCESS,
    ERROR,
    SUCCESS,
    NotFound,
    PMIxError,
)
from pypmix.standard.ops import SCOPE_GLOBAL
from pypmix.standard.ops.core import instances
from pypmix.standard.ops.hosting import GROUP_CANCEL, GROUP_CONSTRUCT, GROUP_DESTRUCT, GroupUpcall
from pypmix.standard.types import MAX_NSLEN, RANK_VALID, DataArray, Info, Proc, Value
from pypmix.wire.codec import NEWEST, PLAIN, Packer, encode_kval
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
MEMBERSHIP = "pmix.grp.mbrs"
ENDPOINT = "pmix.grp.endpt"
PROCID = "pmix.procid"
OWN = frozenset({GROUP_INFO, ENDPOINT, "pmix.pdata"})
"""Directives that each member gives for itself. The last is what it has committed, which others get when they ask."""

NOT_YET = frozenset({"pmix.grp.btstrp", "pmix.grp.add"})
"""Directives of other ways to construct."""

MAX_GROUPS = 65536

GROUP_CONSTRUCT_ABORT = -165

INFO_IN_REPLY = (6, 0, 0)
"""The first release whose clients get the others' group info with the reply.

Earlier ones ask the server for it, by the context id as a qualifier.
"""


class _Outcome:
    """What a construct has made: the members by group rank, the context id, and what each member says of itself."""

    __slots__ = ("context_id", "members", "shared")

    def __init__(self, members: tuple[Proc, ...], context_id: int | None, shared: dict[Proc, tuple[Info, ...]]) -> None:
        self.members = members
        self.context_id = context_id
        self.shared = shared


class Groups(Topic):
    """Collective construct and destruct of groups.

    The host is asked about every one; one among procs of this server alone does not need it.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.handlers = {Command.GROUP_CONSTRUCT: self._construct, Command.GROUP_DESTRUCT: self._destruct}
        server.askings[CONSTRUCT] = self._ask_construct
        server.askings[DESTRUCT] = self._ask_destruct
        server.endings[CONSTRUCT] = self._constructed
        server.endings[DESTRUCT] = self._destructed
        self._asked: dict[Collective[Process, Ticket], None] = {}
        """What the host has before it."""
        self._outcomes: dict[Collective[Process, Ticket], _Outcome] = {}
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
        join(self.server, f"{CONSTRUCT} {name}", fields["procs"], infos, (peer, tag))

    def _destruct(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.GROUP_DESTRUCT, payload)
        members = self.server.store.groups.get(fields["group"])
        if members is None:
            raise NotFound(f"there is no group {fields['group']!r}")
        present = tuple([proc for proc in members if not self._gone(proc)])
        join(self.server, f"{DESTRUCT} {fields['group']}", present or members, fields["infos"], (peer, tag))

    # What the host is asked

    def _ask_construct(self, collective: Collective[Process, Ticket]) -> None:
        server = self.server
        if collective.status != SUCCESS:
            if collective.roster.others:
                self._cancel(collective)
            server.collectives.finish(collective, collective.status)
            return
        shared = {process.proc: _group_info(infos) for process, (_, infos) in collective.said.items()}
        told = [_told(proc, items) for proc, items in sorted(shared.items()) if items]
        own = [info for _, infos in collective.said.values() for info in infos if info.key == ENDPOINT]
        directives = (*directives_of(collective, OWN), *told, *own)
        self._asked[collective] = None

        def answer(result: object, error: BaseException | None) -> None:
            self._asked.pop(collective, None)
            if not server.collectives.is_running(collective):
                return
            status = status_of(error)
            if status == ERR_NOT_SUPPORTED and not collective.roster.others:
                status, result = SUCCESS, None
            if status == SUCCESS:
                try:
                    self._outcomes[collective] = self._outcome(collective, result, shared)
                except (TypeError, ValueError) as problem:
                    server.host.log(f"the host answered construct of {_name(collective)!r} with nonsense: {problem}")
                    status = ERROR
            collective.absent = absent_of(error) if status != SUCCESS else None
            server.collectives.finish(collective, status)

        op = GroupUpcall(GROUP_CONSTRUCT, _name(collective), procs_of(server, collective), directives)
        server.host.upcall(op, answer)

    def _ask_destruct(self, collective: Collective[Process, Ticket]) -> None:
        server = self.server
        self._asked[collective] = None

        def answer(_result: object, error: BaseException | None) -> None:
            self._asked.pop(collective, None)
            status = status_of(error)
            if status == ERR_NOT_SUPPORTED and not collective.roster.others:
                status = SUCCESS
            collective.absent = absent_of(error) if status != SUCCESS else None
            server.collectives.finish(collective, status)

        op = GroupUpcall(GROUP_DESTRUCT, _name(collective), procs_of(server, collective), directives_of(collective))
        server.host.upcall(op, answer)

    def _given_up(self, collective: Collective[Process, Ticket]) -> None:
        """What the host may have before it has ended without its answer."""
        if collective in self._asked:
            del self._asked[collective]
            self._cancel(collective)

    def _cancel(self, collective: Collective[Process, Ticket]) -> None:
        """Tell the host that this server gives up what it is asked, or what other servers wait for."""
        self.server.host.upcall(GroupUpcall(GROUP_CANCEL, _name(collective)), _ignore)

    def _outcome(
        self, collective: Collective[Process, Ticket], result: object, shared: dict[Proc, tuple[Info, ...]]
    ) -> _Outcome:
        """Return what a host has made of a construct; what it does not tell is known here if all members are.

        Raises:
            TypeError: It is nothing that a host returns.
            ValueError: It makes no sense.
        """
        infos: tuple[Info, ...] = () if result is None else tuple(result)  # type: ignore[arg-type]
        instances("the answer", infos, Info)
        roster = collective.roster
        members: tuple[Proc, ...] = tuple(sorted([*[process.proc for process in roster.members], *roster.others]))
        context_id: int | None = None
        shared = dict(shared)
        for info in infos:
            data = info.value.data
            if info.key == MEMBERSHIP:
                if not isinstance(data, DataArray) or data.type != codes.PROC:
                    raise ValueError("the membership is no array of procs")
                members = tuple(dict.fromkeys(data.items))
            elif info.key == CONTEXT_ID:
                if isinstance(data, bool) or not isinstance(data, int) or not 0 <= data < 1 << 64:
                    raise ValueError(f"{data!r} is no context id")
                context_id = data
                self._last_context_id = max(self._last_context_id, data)
            elif info.key == GROUP_INFO and _is_infos(info.value) and data.items[0].key == PROCID:
                shared[data.items[0].value.data] = tuple(data.items[1:])
        if any(proc.rank > RANK_VALID for proc in members):
            raise ValueError("it does not tell which ranks of all are members")
        missing = [process.proc for process in collective.arrived if process.proc not in members]
        if missing:
            raise ValueError(f"{missing[0]} is not among the members")
        if context_id is None and not roster.others and self._wants_context_id(collective):
            self._last_context_id += 1
            context_id = self._last_context_id
        return _Outcome(members, context_id, shared)

    @staticmethod
    def _wants_context_id(collective: Collective[Process, Ticket]) -> bool:
        return any(
            info.key == ASSIGN_CONTEXT_ID and is_true(info) for _, infos in collective.said.values() for info in infos
        )

    # Ends

    def _constructed(self, collective: Collective[Process, Ticket], status: int) -> None:
        outcome = self._outcomes.pop(collective, None)
        if status != SUCCESS or outcome is None:
            self._given_up(collective)
            if status == ERR_PARTIAL_SUCCESS:
                for peer, tag in collective.arrived.values():
                    aborted = GROUP_CONSTRUCT_ABORT if peer.release >= INFO_IN_REPLY else ERR_PARTIAL_SUCCESS
                    answer_failure(peer, tag, aborted, collective.absent)
            else:
                fail(collective, status or ERROR)
            return
        members, context_id = outcome.members, outcome.context_id
        self.server.store.groups[_name(collective)] = members
        if context_id is not None:
            for proc, items in outcome.shared.items():
                self._keep(proc, items, context_id)
        told = tuple([_told(proc, outcome.shared[proc]) for proc in members if outcome.shared.get(proc)])
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

    def _keep(self, proc: Proc, items: tuple[Info, ...], context_id: int) -> None:
        """Keep what a member has said of itself in a group for those who ask by the context id."""
        process = self.server.store.find(proc)
        if process is None or not items:
            return
        qualifier = Info(CONTEXT_ID, Value(codes.SIZE, context_id), FLAG_QUALIFIER)
        packer = Packer()
        for item in items:
            pair = DataArray(codes.INFO, (item, qualifier))
            packer.pack_raw(encode_kval(PLAIN, QUALIFIED, Value(codes.DATA_ARRAY, pair)))
        committed = process.committed
        process.commit([(SCOPE_GLOBAL, packer.bytes())], PLAIN, NEWEST)
        # What it commits itself is still to come.
        process.committed = committed

    def _destructed(self, collective: Collective[Process, Ticket], status: int) -> None:
        if status not in (SUCCESS, ERR_PARTIAL_SUCCESS):
            self._given_up(collective)
            fail(collective, status)
            return
        self.server.store.groups.pop(_name(collective), None)
        for peer, tag in collective.arrived.values():
            peer.status(tag, SUCCESS)

    # Who goes

    def departed(self, process: Process, lost: bool) -> None:
        if lost:
            for collective in [each for each in self._asked if process in each.roster.members]:
                if not self.server.collectives.is_running(collective):
                    # Nobody is left of those who had called it.
                    self._given_up(collective)
                elif collective.roster.operation.startswith(CONSTRUCT):
                    self.server.collectives.finish(collective, ERR_PARTIAL_SUCCESS)
        groups = self.server.store.groups
        for name, members in list(groups.items()):
            if process.proc in members and all(self._gone(proc, elsewhere=True) for proc in members):
                del groups[name]

    def _gone(self, proc: Proc, elsewhere: bool = False) -> bool:
        """Tell whether a member has gone; those of other servers are somewhere."""
        process = self.server.store.find(proc)
        if process is None:
            return elsewhere or self.server.store.get(proc.nspace) is not None
        return process.left if process.local else elsewhere


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


def _name(collective: Collective[Process, Ticket]) -> str:
    return collective.roster.operation.partition(" ")[2]


def _ignore(_result: object, _error: BaseException | None) -> None:
    """What answers an upcall that nobody waits for."""
