"""The existing groups: their members and leaders, and how events and ended procs change them.

Theory of operation. A server keeps a record of each group that has a living member of this server, and forgets it with
the last one (`_change`). The members are in the `Store`, in group-rank order; the `Group` has the rest. A record is
changed by three things only:

- **A decision of this server**: `groups.py` calls `form` after a construct or a bootstrap, and `dissolve` after a
  destruct.
- **The end of a proc of this server**: `departed` removes it and informs the servers of other members, which apply it
  by `swallowed`. The members that are left get the event, if their group has such events (`Group.record_loss`).
- **An event about the group**, raised by a client of any server (`happened`): members leave, are admitted, are
  invited, or choose a leader. Groups by invitation are made by such events alone.

Events and decisions of several servers may arrive in any order. An event about a group that is still being made here is
kept (`early`), and applied when the group exists (`catch_up`). Values that members had put for the group stay readable
for a while after its end (`_kept`). All these tables are bounded, and `deregistered` removes what belongs to a job.

The records decide who takes part in a collective that names a group, and which failures are reported to whom. The group
ranks that a program sees are those of its own record: see `engine.groups.standing`.
"""

from __future__ import annotations

from collections import deque

from pypmix.engine.collective.rules import CONSTRUCT, ft_directives
from pypmix.engine.common import ignore
from pypmix.engine.groups.talk import ADDED, GONE, PLACE, SAYS, flag, found, left_in, listed, number, proc, procs, text
from pypmix.engine.python.node import label_of_group
from pypmix.engine.python.serverdata import Group
from pypmix.standard import keys, statuses
from pypmix.standard.ops import Notification, NotifyEvent
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import MAX_NSLEN, RANK_VALID, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.python.node import Node
    from pypmix.engine.python.processes import Name, Namespace, Process
    from pypmix.engine.python.serverdata import Connection
    from pypmix.standard.types import Info

MAX_GROUPS = 65536

MAX_INVITATIONS = 4096
"""Bound of the invitations that have not made a group yet; the oldest is forgotten first."""

MAX_INVITED = 1 << 20
"""Bound of the procs that are invited to one group."""

MAX_KEPT = 65536
"""Bound of the values that are kept of members of destructed groups.

MPI libraries destruct a group at once, and ask for these values when two procs first talk to each other.
"""

MAX_EARLY = 4096
"""Bound of the events that are kept about groups that are being made here and exist elsewhere already."""


class _KnownInvitation:
    """An invitation: its inviter, and the procs whose events about it count."""

    __slots__ = ("infos", "inviter", "procs")

    def __init__(self, inviter: Proc, infos: tuple[Info, ...]) -> None:
        self.inviter = inviter
        self.infos = infos
        self.procs: dict[Proc, None] = {inviter: None}


class Records:
    """The existing groups of a server. Their members are in its store, in group-rank order.

    Args:
        server: The server.
        is_made: Returns True if a group of a name is being constructed here.
        made_with: Returns the names of the groups being constructed here that a proc of another server may be in.
    """

    def __init__(
        self, server: Node, is_made: Callable[[str], bool], made_with: Callable[[Proc], Iterable[str]]
    ) -> None:
        self._server = server
        self._is_made = is_made
        self._made_with = made_with
        self._groups: dict[str, Group] = {}
        self._concerned: dict[str, set[str]] = {}
        """The groups that may have kept values or lost members of an nspace, by its name."""
        self._invitations: dict[str, _KnownInvitation] = {}
        self._kept: deque[tuple[Process, Name]] = deque()
        self.early: deque[tuple[str, Notification]] = deque(maxlen=MAX_EARLY)
        """Events about groups that are being made here, by name: other servers may complete a group earlier."""
        self._actions: dict[int, Callable[[str, Notification], None]] = {
            statuses.GROUP_INVITED: self._invited,
            statuses.GROUP_LEFT: self._handle_left,
            statuses.GROUP_CONSTRUCT_COMPLETE: self._completed,
            statuses.GROUP_CONSTRUCT_ABORT: self._aborted,
            statuses.GROUP_MEMBERSHIP_UPDATE: self._updated,
            statuses.GROUP_LEADER_SELECTED: self._selected,
            statuses.TALK: self._passed_on,
        }

    def get(self, name: str) -> Group:
        """Return the record of an existing group."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group()
        return group

    def form(self, name: str, members: tuple[Proc, ...], group: Group) -> None:
        """Record a group that has been formed."""
        group.formed = members
        self._server.store.put_group(name, members)
        self._groups[name] = group
        if group.kept or group.lost:
            for nspace in _nspaces_of(group):
                self._note(name, nspace)

    def keep(self, name: str, process: Process, names: Iterable[Name]) -> None:
        """Keep values of a proc until a group's end."""
        self.get(name).kept += [(process, each) for each in names]
        self._note(name, process.namespace.name)

    def _note(self, name: str, nspace: str) -> None:
        self._concerned.setdefault(nspace, set()).add(name)

    def dissolve(self, name: str, for_all: bool = False) -> None:
        """Remove a group that no longer exists on this server, or on all servers."""
        store = self._server.store
        store.forget_group(name)
        group = self._groups.pop(name, None)
        self._server.collectives.forget_group(name, for_all)
        if self._server.events.recent:
            id = name.partition("\0")[0]
            if id not in store.groups and id not in store.namesakes:
                self._server.events.forget(label_of_group(id), lambda event: event.code != statuses.GROUP_INVITED)
        if group is None or not (group.kept or group.lost):
            return
        for nspace in _nspaces_of(group):
            names = self._concerned.get(nspace, set())
            names.discard(name)
            if not names:
                self._concerned.pop(nspace, None)
        self._kept += group.kept
        while len(self._kept) > MAX_KEPT:
            process, key = self._kept.popleft()
            process.discard(key)

    def inviter(self, name: str) -> Proc | None:
        """Return the proc that has invited to a group that is not complete yet."""
        invitation = self._invitations.get(name)
        return None if invitation is None else invitation.inviter

    # Departures

    def remove_ended(self, members: Iterable[Proc]) -> None:
        """Remove members that have ended while their group was under construction."""
        for member in members:
            process = self._server.store.here(member)
            if process is not None and process.left:
                self.departed(process)

    def departed(self, process: Process) -> None:
        """Remove a proc of this server that has ended from all groups, and report it to the other servers."""
        home = process.proc
        elsewhere: dict[Proc, None] = {}
        store = self._server.store
        for name in store.keys_with(home):
            rest = [member for member in store.groups[name] if member != home]
            elsewhere.update(dict.fromkeys([member for member in rest if not store.here(member)]))
            self._lose(name, home)
        for name, invitation in list(self._invitations.items()):
            if home in invitation.procs and not any(map(self._lives, invitation.procs)):
                del self._invitations[name]
        if elsewhere:
            infos = (
                procs(keys.EVENT_CUSTOM_RANGE, elsewhere),
                text(SAYS, GONE),
                proc(keys.EVENT_AFFECTED_PROC, home),
                flag(keys.EVENT_DO_NOT_CACHE),
            )
            self._server.host.upcall(NotifyEvent(statuses.TALK, RANGE_CUSTOM, infos), ignore)

    def report_ended(self, name: str) -> None:
        """Report members of this server that have ended and that a group still has."""
        for member in self._server.store.groups.get(name, ()):
            if self._has_exited(member) and member in self._server.store.groups.get(name, ()):
                self._lose(name, member)

    def _lose(self, name: str, failed: Proc) -> None:
        """Remove a member that has ended without leaving."""
        group = self.get(name)
        group.lost[failed] = True
        self._note(name, failed.nspace)
        rest = tuple([member for member in self._server.store.groups[name] if member != failed])
        # Collectives in progress are ended elsewhere, when the process is lost.
        self._change(name, rest)
        self._tell_lost(name, group, failed)

    def _tell_lost(self, name: str, group: Group, failed: Proc) -> None:
        """Raise the event of a member that has ended, if the group's members get such events."""
        code, rest = group.record_loss(failed), self._server.store.groups.get(name, ())
        if code is not None and rest:
            self._raise(code, rest, (*group.titles(name), proc(keys.EVENT_AFFECTED_PROC, failed)))

    def report_withheld(self, connection: Connection, former: Iterable[Proc] | None = None) -> None:
        """Report, after the decision of a disconnect, the ended members that the others do not know of.

        Args:
            connection: The connection.
            former: The members that had ended when the host decided; None, after a failed disconnect, for all
                withheld members.
        """
        name, withheld = connection.nspace, connection.withheld
        connection.leaving = False
        for gone in sorted(withheld if former is None else former):
            if gone in self._server.store.groups.get(name, ()):
                self._lose(name, gone)
            elif gone in withheld:
                self._tell_lost(name, connection, gone)
        withheld.clear()

    def _change(self, name: str, members: tuple[Proc, ...]) -> None:
        """Set the members of a group; forget the group if it has no living member of this server."""
        if not any(map(self._lives, members)):
            self.dissolve(name)
            return
        self._server.store.put_group(name, members)

    def review(self, name: str) -> None:
        """Forget a group that no longer has a member of this server."""
        if name in self._server.store.groups:
            self._change(name, self._server.store.groups[name])

    def _leave(self, name: str, leaver: Proc) -> None:
        group = self.get(name)
        if group.leader == leaver:
            group.leader = None
        self._change(name, tuple([member for member in self._server.store.groups[name] if member != leaver]))
        self._server.collectives.remove_from_group(name, self._server.store.here(leaver))

    def _lives(self, member: Proc) -> bool:
        process = self._server.store.here(member)
        return process is not None and not process.left

    def _has_exited(self, member: Proc) -> bool:
        process = self._server.store.here(member)
        return process is not None and process.left

    def deregistered(self, namespace: Namespace) -> None:
        """Forget the kept values of the procs of an nspace that was deregistered."""
        self._kept = deque([entry for entry in self._kept if entry[0].namespace is not namespace])
        for name in self._concerned.pop(namespace.name, ()):
            group = self._groups.get(name)
            if group is not None:
                group.kept = [entry for entry in group.kept if entry[0].namespace is not namespace]
                group.lost = {lost: missed for lost, missed in group.lost.items() if lost.nspace != namespace.name}

    # Events

    def tell(self, code: int, name: str, to: Iterable[Proc], infos: tuple[Info, ...] = ()) -> None:
        """Raise an event of this server about a group, to the procs of this server among some."""
        self._raise(code, to, (text(keys.GROUP_ID, name.partition("\0")[0]), *infos))

    def _raise(self, code: int, to: Iterable[Proc], infos: tuple[Info, ...]) -> None:
        here = [member for member in to if self._lives(member)]
        if here:
            said = (procs(keys.EVENT_CUSTOM_RANGE, here), flag(keys.EVENT_NON_DEFAULT), *infos)
            self._server.events.notify(Notification(code, self._server.proc, RANGE_CUSTOM, said))

    def happened(self, event: Notification) -> None:
        """Apply an event about groups that was raised here or on another server and delivered to its range."""
        name = found(event.infos, keys.GROUP_ID, str)
        action = self._actions.get(event.code)
        if action is not None and name and len(name) <= MAX_NSLEN and name not in self._server.store.connections:
            action(name, event)

    def swallowed(self, event: Notification) -> bool:
        """Handle an event that another server sends to this one alone; return True if it was such an event."""
        if event.code != statuses.TALK or found(event.infos, SAYS, str) != GONE:
            return False
        gone = found(event.infos, keys.EVENT_AFFECTED_PROC, Proc)
        # Only servers report this; a process does not report the end of another one.
        if self._server.store.get(event.source.nspace) is None and gone is not None:
            group = found(event.infos, keys.GROUP_ID, str)
            store = self._server.store
            for name in store.keys_of(group) if group else store.keys_with(gone):
                if gone in store.groups.get(name, ()) and not store.here(gone):
                    self._lose(name, gone)
            if group:
                return True
            invited = [name for name, invitation in self._invitations.items() if gone in invitation.procs]
            self.early += [(name, event) for name in (*self._made_with(gone), *invited)]
        return True

    def _is_early(self, name: str, event: Notification) -> None:
        """Keep an event until its group is complete, if a group of that name is being made."""
        if self._is_coming(name):
            self.early.append((name, event))

    def _is_coming(self, name: str) -> bool:
        return name in self._invitations or self._is_made(name)

    def catch_up(self, key: str) -> None:
        """Apply the events about a group that arrived before it was complete."""
        if self.early:
            name = key.partition("\0")[0]
            early = [event for other, event in self.early if other == name]
            rest = [each for each in self.early if each[0] != name and self._is_coming(each[0])]
            self.early = deque(rest, MAX_EARLY)
            for event in early:
                if event.code != statuses.TALK:
                    self.happened(event)
                elif key in self._server.store.groups:
                    gone = found(event.infos, keys.EVENT_AFFECTED_PROC, Proc)
                    if gone in self._server.store.groups[key]:
                        self._lose(key, gone)

    def _invited(self, name: str, event: Notification) -> None:
        invitation = self._invitations.get(name)
        if invitation is None or invitation.inviter != event.source:
            while len(self._invitations) >= MAX_INVITATIONS:
                del self._invitations[next(iter(self._invitations))]
            invitation = self._invitations[name] = _KnownInvitation(event.source, event.infos)
        for each in (*listed(event.infos, keys.EVENT_CUSTOM_RANGE), *listed(event.infos, keys.GROUP_MEMBERSHIP)):
            if len(invitation.procs) < MAX_INVITED:
                invitation.procs[each] = None

    def _completed(self, name: str, event: Notification) -> None:
        invitation = self._invitations.get(name)
        store = self._server.store
        # The inviter is a member only if it names itself; libraries before 7.0 name the members by the range alone.
        members = tuple(
            dict.fromkeys(listed(event.infos, keys.GROUP_MEMBERSHIP) or listed(event.infos, keys.EVENT_CUSTOM_RANGE))
        )
        if invitation is None and members == (event.source,):
            # All procs that it wanted to invite had ended before.
            invitation = _KnownInvitation(event.source, ())
        if invitation is None or event.source not in invitation.procs:
            return
        self._invitations.pop(name, None)
        taken = name in store.groups or store.get(name) is not None or len(store.groups) >= MAX_GROUPS
        if taken or any(member.rank > RANK_VALID for member in members) or not any(map(self._lives, members)):
            return
        infos = (*invitation.infos, *event.infos)
        context_id = found(event.infos, keys.GROUP_CONTEXT_ID, int)
        leader = event.source if event.source in members else None
        self.form(name, members, Group(leader, ft_directives(CONSTRUCT, infos), context_id))
        self.remove_ended(members)
        self.catch_up(name)

    def _aborted(self, name: str, event: Notification) -> None:
        invitation = self._invitations.get(name)
        if invitation is None or event.source != invitation.inviter:
            return
        told = listed(event.infos, keys.EVENT_CUSTOM_RANGE)
        rest = {each: None for each in invitation.procs if each not in told}
        if told and len(rest) > 1:
            # The invitation continues without the procs that got this event.
            invitation.procs = rest
        else:
            del self._invitations[name]
            # Handlers that are registered later must not get an invitation that has ended.
            self._server.events.forget(
                label_of_group(name),
                lambda kept: (kept.code, kept.source) == (statuses.GROUP_INVITED, event.source),
            )

    def _handle_left(self, name: str, event: Notification) -> None:
        key = self._server.store.key_of(name, event.source)
        if key is not None:
            self._leave(key, event.source)
            return
        for key in self._server.store.keys_of(name):
            lost = self.get(key).lost
            if event.source in lost:
                lost[event.source] = False
        self._is_early(name, event)

    def _key(self, name: str, source: Proc) -> str | None:
        """Return the key of the group of a name that a proc is in, or was in when it ended: clients accept both."""
        key = self._server.store.key_of(name, source)
        if key is None:
            key = next((each for each in self._server.store.keys_of(name) if source in self.get(each).lost), None)
        return key

    def _updated(self, name: str, event: Notification) -> None:
        key = self._key(name, event.source)
        members = tuple(dict.fromkeys(listed(event.infos, keys.GROUP_MEMBERSHIP)))
        if not members or any(member.rank > RANK_VALID for member in members):
            return
        if key is None:
            self._learn(name, event, members)
            self._is_early(name, event)
            return
        name, known, lost = key, self._server.store.groups[key], self.get(key).lost
        added = listed(event.infos, ADDED)
        if added:
            # Other members may have changed since then: separate events report that.
            new = [member for member in added if member not in known and not self._has_exited(member)]
            group, place = self.get(name), number(event.infos, PLACE)
            for member in new:
                lost.pop(member, None)
                group.places.pop(member, None)
            for member in added:
                # Two members may have admitted it, and then the first place counts.
                if place is not None and (member in new or member in group.places):
                    group.places[member] = min(place, group.places.get(member, place))
            self._change(name, group.ordered((*known, *new)))
            return
        for member in known:
            if member not in members and name in self._server.store.groups:
                self._leave(name, member)
        if name in self._server.store.groups:
            self._change(name, tuple([member for member in members if member not in lost]))

    def _passed_on(self, name: str, event: Notification) -> None:
        """Remove members whose departure a registrar forwards to members that it has admitted.

        The leavers did not know these members.
        """
        for left in left_in(event.infos):
            key = self._server.store.key_of(name, event.source)
            if key is not None and left in self._server.store.groups[key] and not self._server.store.here(left):
                self._leave(key, left)

    def _learn(self, name: str, event: Notification, members: tuple[Proc, ...]) -> None:
        """Record a group without members here that has admitted a proc of this server."""
        added = listed(event.infos, ADDED)
        store = self._server.store
        free = store.get(name) is None and not store.keys_of(name) and len(store.groups) < MAX_GROUPS
        taken_in = added and {*added} <= {*members} and all(map(self._lives, added))
        if free and taken_in and event.source in members and not self._server.store.here(event.source):
            self.form(name, members, Group(context_id=found(event.infos, keys.GROUP_CONTEXT_ID, int)))
            # A proc that was admitted earlier may have ended before this server knew the group.
            self.report_ended(name)

    def _selected(self, name: str, event: Notification) -> None:
        leader = next(iter(listed(event.infos, keys.GROUP_LEADER)), None)
        key = self._key(name, event.source)
        if key is None:
            self._is_early(name, event)
        elif leader in self._server.store.groups[key]:
            self.get(key).leader = leader


def _nspaces_of(group: Group) -> set[str]:
    """Return the names of the nspaces of the kept values and the lost members of a group."""
    return {process.namespace.name for process, _ in group.kept} | {lost.nspace for lost in group.lost}
