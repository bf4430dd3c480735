"""Becoming a member of an existing group, on the side of the new member, and leaving a group.

The proc waits until a member offers membership (`admitting`), and answers with a number, its life in the group. By that
number members recognize a proc that was admitted before, and tell a late departure from the departure of a later
membership. The welcome that follows contains the state of the group.

The announcement to the members reaches the proc too. A proc that no longer waits by then has to leave, since the member
that has announced it may have ended.
"""

from __future__ import annotations

from itertools import count

from pypmix.engine.collective.rules import CONSTRUCT, FT
from pypmix.engine.common import ignore
from pypmix.engine.groups.standing import Attempt, admissions_in, not_in, said_in
from pypmix.engine.groups.talk import (
    ADDED,
    EPOCH,
    INFOS,
    LIFE,
    LIVES,
    TERM,
    WELCOME,
    found,
    keep,
    listed,
    named,
    number,
    proc,
    procs,
    say,
    size,
    text,
    timeout_in,
)
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, OperationTimeout, PMIxError, ResourceBusy
from pypmix.standard.ops import GroupResults, Notification, NotifyEvent
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import DataArray, Info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.base import Done
    from pypmix.engine.groups.agent import Agent, Timer
    from pypmix.engine.groups.standing import Group
    from pypmix.standard.ops import GroupEnter, GroupLeave
    from pypmix.standard.types import Proc

OFFER = "enter offer"
"""To a proc: the sender, a member, admits it if it answers."""

COMES = "admit comes"
"""To the member that has offered: the sender accepts, in its life `LIFE`."""

_lives = count(1)
"""Numbers for the lives of this process in groups, for all of its sessions."""


class _Entry(Attempt):
    """The wait of this process for a group to admit it."""

    def __init__(self, op: GroupEnter, done: Done[GroupResults]) -> None:
        self.op = op
        self.done = done
        self.life = next(_lives)
        self.members: tuple[Proc, ...] = ()
        """The members, after the announcement of this process to them."""
        self.limit: Timer | None = None

    @property
    def use(self) -> str:
        return f"the caller waits for a group {self.op.group!r} to admit it"


class Entering:
    """The waits of one session to be admitted to groups, and its departures: `agent.part("entering")`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._me = agent.port.proc
        self._standing = agent.standing
        self._entries: dict[str, _Entry] = {}
        self._offers: dict[tuple[str, Proc], None] = {}
        """The last offers for groups that this process did not wait for."""
        self._last_life = 0
        agent.hear(OFFER, self._offered)
        agent.hear(WELCOME, self._welcomed)
        agent.port.handlers.screen(statuses.GROUP_MEMBERSHIP_UPDATE, self._announced)

    def enter(self, op: GroupEnter, done: Done[GroupResults]) -> None:
        """Carry out a `GroupEnter`."""
        name = op.group
        taken = self._agent.name_conflict(name)
        if not taken and self._standing.expects(name):
            taken = f"the caller takes part in making a group {name!r}"
        if taken:
            done(None, PMIxError(taken, status=statuses.ERR_EXISTS))
            return
        entry = self._entries[name] = _Entry(op, done)
        self._last_life = entry.life
        self._standing.expected(name, entry)
        limit = timeout_in(op.directives)
        if limit:
            entry.limit = self._port.later(limit, lambda: self._expire(name, limit))
        for each in [each for group, each in self._offers if group == name]:
            del self._offers[name, each]
            self._accept_offer(entry, each)

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended."""
        for name in list(self._entries):
            self._end(name, None, error or PMIxError("the session was closed while this was under way"))

    # The wait to be admitted

    def _offered(self, event: Notification) -> None:
        name = named(event)
        entry = self._entries.get(name)
        if entry is None:
            keep(self._offers, (name, event.source), None)
        else:
            self._accept_offer(entry, event.source)

    def _accept_offer(self, entry: _Entry, member: Proc) -> None:
        if entry.op.by(member):
            infos = size(LIFE, entry.life), *said_in(entry.op.directives)
            self._port.submit(say(COMES, entry.op.group, (member,), infos), ignore)

    def _announced(self, event: Notification) -> bool:
        name, life, members = named(event), number(event.infos, LIFE), listed(event.infos, keys.GROUP_MEMBERSHIP)
        entry = self._entries.get(name)
        if listed(event.infos, ADDED) == (self._me,) and life is not None:
            if entry is not None and entry.life == life:
                entry.members = members
            else:
                self._decline(name, life, members)
        return True

    def _welcomed(self, event: Notification) -> None:
        name, infos = named(event), event.infos
        entry, life, members = self._entries.get(name), number(infos, LIFE), listed(infos, keys.GROUP_MEMBERSHIP)
        if self._me not in members:
            return
        if entry is None or entry.life != life:
            if life is not None:
                self._decline(name, life, members)
            return
        admitted = admissions_in(infos, LIVES)
        if admitted is None or not entry.op.by(event.source):
            return
        others = found(infos, INFOS, DataArray)
        results = self._standing.formed(
            name,
            members,
            context_id=number(infos, keys.GROUP_CONTEXT_ID),
            leader=next(iter(listed(infos, keys.GROUP_LEADER)), None),
            infos=() if others is None else tuple([info for info in others.items if isinstance(info, Info)]),
            directives=tuple([info for info in infos if info.key in FT[CONSTRUCT]]),
            admitted=admitted,
            epoch=number(infos, EPOCH) or 1,
            term=number(infos, TERM) or 0,
        )
        self._end(name, results, None)

    def _decline(self, name: str, life: int, members: tuple[Proc, ...]) -> None:
        """Leave a group that has admitted this process too late, unless it is in that group in a later life."""
        group = self._standing.group(name)
        others = [member for member in members if member != self._me]
        stays = group is not None and group.membership.life(self._me) == life
        # No other process can make this one leave in a life that it has not begun yet.
        if others and not stays and 0 < life <= self._last_life:
            infos = (
                procs(keys.EVENT_CUSTOM_RANGE, others),
                proc(keys.EVENT_AFFECTED_PROC, self._me),
                text(keys.GROUP_ID, name),
                size(LIFE, life),
            )
            self._port.submit(NotifyEvent(statuses.GROUP_LEFT, RANGE_CUSTOM, infos), ignore)

    def _expire(self, name: str, limit: float) -> None:
        self._end(name, None, OperationTimeout(f"no member has admitted the caller to {name!r} within {limit:g} s"))

    def _end(self, name: str, results: GroupResults | None, error: BaseException | None) -> None:
        entry = self._entries.pop(name)
        if entry.limit is not None:
            entry.limit.cancel()
        if error is not None:
            self._standing.abandoned(name, entry)
            self._decline(name, entry.life, entry.members)
        entry.done(results, error)

    # Leaving

    def leave(self, op: GroupLeave, done: Done[None]) -> None:
        """Carry out a `GroupLeave`."""
        group = self._standing.group(op.group)
        if group is None:
            if op.group in self._entries:
                self._end(op.group, None, NotFound(f"the caller waits no longer for the group {op.group!r}"))
                done(None, None)
                return
            error: PMIxError = not_in(op.group)
            if self._standing.expects(op.group):
                error = PMIxError(
                    f"the group {op.group!r} is not complete yet",
                    status=statuses.ERR_NOT_AVAILABLE,
                    hint="a member can leave when the construct has ended at all of them",
                )
            done(None, error)
        elif group.leaving:
            done(None, ResourceBusy(f"the caller is leaving {op.group!r} already"))
        else:
            self._leave(group, op.directives, done)

    def _leave(self, group: Group, directives: tuple[Info, ...], done: Done[None]) -> None:
        group.leaving = True
        others = tuple([member for member in group.membership.members if member != self._me])
        if not others and not self._port.support.decides:
            self._standing.record_departure(group)
            done(None, None)
            return
        infos = [
            # A server that records groups gets the event even if this process is the only member.
            procs(keys.EVENT_CUSTOM_RANGE, others or (self._me,)),
            proc(keys.EVENT_AFFECTED_PROC, self._me),
            text(keys.GROUP_ID, group.name),
        ]
        if group.context_id is not None:
            infos.append(size(keys.GROUP_CONTEXT_ID, group.context_id))
        if group.membership.life(self._me):
            infos.append(size(LIFE, group.membership.life(self._me)))
        infos += [info for info in directives if info.key != keys.TIMEOUT]

        def sent(_: None, error: BaseException | None) -> None:
            if error is None:
                self._standing.record_departure(group)
            else:
                self._stay(group)
            done(None, error)

        self._port.submit(NotifyEvent(statuses.GROUP_LEFT, RANGE_CUSTOM, tuple(infos)), sent)

    def _stay(self, group: Group) -> None:
        """This process does not leave after all."""
        group.leaving = False
        admitting = self._agent.made("admitting")
        if admitting is not None:
            admitting.resume(group.name)
