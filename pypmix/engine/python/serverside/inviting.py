"""Invitations that clients leave to their server, as libpmix 7.0.0rc1 does; all others send events to each other.

Such a client asks its server to invite, and waits for `CONSTRUCT_COMPLETE` or `CONSTRUCT_ABORT`. On the other side
these answers are requests as well, which become the events that all others know: so either side may be anybody.
"""

from __future__ import annotations

from pypmix.engine.common import ignore
from pypmix.engine.groups.talk import flag, found, listed, proc, procs, size, text
from pypmix.engine.python.node import fields_of
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, OutOfResources, PMIxError
from pypmix.standard.ops import Notification, NotifyEvent
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import MAX_NSLEN, RANK_VALID
from pypmix.wire.messages import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.engine.collective.machine import Timer
    from pypmix.engine.python.node import Node, Peer
    from pypmix.engine.python.processes import Process
    from pypmix.engine.python.serverside.forming import Forming
    from pypmix.standard.types import Info, Proc

MAX_INVITATIONS = 4096


class _ServedInvitation:
    __slots__ = ("context_id", "leader", "name", "optional", "order", "out", "pending", "timer", "waits")

    def __init__(self, name: str, leader: Process, order: tuple[Proc, ...], optional: bool) -> None:
        self.name = name
        self.leader = leader
        self.order = order
        self.pending = {each for each in order if each != leader.proc}
        self.out: set[Proc] = set()
        """The procs that have declined, or have failed."""
        self.optional = optional
        self.context_id: int | None = None
        self.waits = False
        """Whether the context id has been requested and not arrived yet."""
        self.timer: Timer | None = None


class Inviting:
    """The invitations of this server's clients that it carries out.

    Args:
        server: The machine.
        groups: Its groups.
    """

    def __init__(self, server: Node, groups: Forming) -> None:
        self._server = server
        self._groups = groups
        self._under_way: dict[str, _ServedInvitation] = {}

    # Requests

    def invite(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Carry out a GROUP_INVITE."""
        fields = fields_of(peer, Command.GROUP_INVITE, payload)
        name, store, leader = fields["group"], self._server.store, peer.process.proc
        if not name or len(name) > MAX_NSLEN or "\0" in name:
            raise PMIxError("a group needs a name", status=statuses.ERR_BAD_PARAM)
        if store.get(name) is not None or store.keys_of(name) or name in self._under_way:
            raise PMIxError(f"there is a group or an nspace {name!r} already", status=statuses.ERR_EXISTS)
        if len(self._under_way) >= MAX_INVITATIONS:
            raise OutOfResources(f"there are {MAX_INVITATIONS} invitations")
        order = self._groups.flat(tuple(store.ungrouped(store.resolve(fields["procs"], leader))))
        if leader not in order:
            # The members are the named procs. The caller's library refuses this, too.
            raise PMIxError("the inviting proc is not among the invited", status=statuses.ERR_NOT_A_MEMBER)
        if len(order) < 2 or any(each.rank > RANK_VALID for each in order):
            raise PMIxError("the invited are not known by their ranks", status=statuses.ERR_BAD_PARAM)
        invitation = self._under_way[name] = _ServedInvitation(name, peer.process, order, fields["optional"])
        peer.status(tag, statuses.SUCCESS)
        if fields["timeout"]:
            late = self._server.clock.call_later(fields["timeout"], lambda: self._overdue(invitation))
            invitation.timer = late
        if fields["assign_context_id"]:
            invitation.waits = True
            self._groups.number(peer, lambda infos, error: self._numbered(invitation, infos))
        infos = [procs(keys.GROUP_MEMBERSHIP, order)]
        if invitation.optional:
            infos.append(flag(keys.GROUP_OPTIONAL))
        self._tell(statuses.GROUP_INVITED, invitation, order, infos)
        for each in order:
            process = store.find(each)
            if process is not None and process.left:
                self._fail(invitation, each)

    def join(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Carry out a GROUP_JOIN: pass the answer on to the inviting proc."""
        fields = fields_of(peer, Command.GROUP_JOIN, payload)
        name, code, leader = fields["group"], fields["status"], fields["leader"]
        if code not in (statuses.GROUP_INVITE_ACCEPTED, statuses.GROUP_INVITE_DECLINED) or not name:
            raise PMIxError("an invitation is accepted or declined", status=statuses.ERR_BAD_PARAM)
        if leader is None:
            leader = self._groups.records.inviter(name)
            if leader is None:
                raise NotFound(f"there is no invitation to a group {name!r}")
        peer.status(tag, statuses.SUCCESS)
        self._raise(code, peer.process, (leader,), (text(keys.GROUP_ID, name), flag(keys.EVENT_NON_DEFAULT)))

    # Progress of an invitation

    def happened(self, event: Notification) -> None:
        """Apply an event about groups that was raised here or on another server."""
        invitation = self._under_way.get(found(event.infos, keys.GROUP_ID, str) or "")
        if invitation is None:
            return
        answered = event.source in invitation.pending and invitation.leader.proc in listed(
            event.infos, keys.EVENT_CUSTOM_RANGE
        )
        if event.code in (statuses.GROUP_INVITE_ACCEPTED, statuses.GROUP_INVITE_DECLINED) and answered:
            invitation.pending.discard(event.source)
            if event.code == statuses.GROUP_INVITE_DECLINED:
                # The library reports both to its program in the same way.
                self._fail(invitation, event.source)
            else:
                self._advance(invitation)
        elif event.code == statuses.GROUP_CONSTRUCT_ABORT and event.source in invitation.order:
            self._abort(invitation)

    def departed(self, process: Process) -> None:
        """Handle the end of a proc of this server."""
        for invitation in list(self._under_way.values()):
            if invitation.leader is process:
                # The invited procs choose another leader, or give it up.
                self._end(invitation)
            elif process.proc in invitation.order:
                self._fail(invitation, process.proc)

    def _fail(self, invitation: _ServedInvitation, failed: Proc) -> None:
        if self._under_way.get(invitation.name) is not invitation or failed in invitation.out:
            return
        invitation.pending.discard(failed)
        invitation.out.add(failed)
        self._tell(
            statuses.GROUP_INVITE_FAILED,
            invitation,
            (invitation.leader.proc,),
            (proc(keys.EVENT_AFFECTED_PROC, failed),),
        )
        self._advance(invitation)

    def _overdue(self, invitation: _ServedInvitation) -> None:
        invitation.timer = None
        for each in sorted(invitation.pending):
            self._fail(invitation, each)

    def _numbered(self, invitation: _ServedInvitation, infos: Iterable[Info] | None) -> None:
        invitation.context_id = found(infos or (), keys.GROUP_CONTEXT_ID, int)
        invitation.waits = False
        self._advance(invitation)

    def _advance(self, invitation: _ServedInvitation) -> None:
        if self._under_way.get(invitation.name) is not invitation:
            return
        if invitation.out and not invitation.optional:
            self._abort(invitation)
        elif not invitation.pending and not invitation.waits:
            self._end(invitation)
            members = [each for each in invitation.order if each not in invitation.out]
            infos = [procs(keys.GROUP_MEMBERSHIP, members)]
            if invitation.context_id is not None:
                infos.append(size(keys.GROUP_CONTEXT_ID, invitation.context_id))
            self._tell(statuses.GROUP_CONSTRUCT_COMPLETE, invitation, members, infos)

    def _abort(self, invitation: _ServedInvitation) -> None:
        self._end(invitation)
        # Programs on this library wait for it when they have declined, too.
        self._tell(statuses.GROUP_CONSTRUCT_ABORT, invitation, invitation.order)

    def _end(self, invitation: _ServedInvitation) -> None:
        del self._under_way[invitation.name]
        if invitation.timer is not None:
            invitation.timer.cancel()

    # Events

    def _tell(self, code: int, invitation: _ServedInvitation, to: Iterable[Proc], infos: Iterable[Info] = ()) -> None:
        self._raise(
            code, invitation.leader, to, (text(keys.GROUP_ID, invitation.name), flag(keys.EVENT_NON_DEFAULT), *infos)
        )

    def _raise(self, code: int, source: Process, to: Iterable[Proc], infos: tuple[Info, ...]) -> None:
        """Raise an event of a client, which gets it itself if it is in the range."""
        op = NotifyEvent(code, RANGE_CUSTOM, (procs(keys.EVENT_CUSTOM_RANGE, to), *infos))
        self._server.events.notify(Notification(code, source.proc, RANGE_CUSTOM, op.infos))
        self._server.host.upcall(op, ignore, source)
