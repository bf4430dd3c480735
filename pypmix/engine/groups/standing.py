"""The groups of this process: their members, the members that have left or failed, and the watches.

Each process keeps its own record, from the events of members and servers. Events arrive at different processes in
different orders, and some arrive twice: from a server, and as a conclusion of this process. `MemberList` yields the
same members for any order of events; repeated events are screened.

**Group ranks after a loss.** A group rank is a place among the present members: if a member leaves or fails, those
behind it move up. This record is the owner of the ranks that its program sees and names: `group.rank`, a get, a query,
a custom range, a spawn (`addresses`). The members themselves decide admissions and departures, so no server could know
them earlier. A server of the Python engine keeps its own record of the same events (`serverside.grouprecords`), which
decides who takes part in a collective that names the whole group. Its answer carries the participants, and operations
that depend on these use that answer instead of this record. Foreign servers have no such record: there the members'
records decide the participants, too (`foreign.constructing`).
"""

from __future__ import annotations

from collections import deque

from pypmix.engine.common import ignore
from pypmix.engine.groups.states import GroupStates as States
from pypmix.engine.groups.talk import (
    ADDED,
    ENDED,
    LIFE,
    PLACE,
    WITHOUT,
    flag,
    keep,
    listed,
    named,
    number,
    numbers,
    only_hear,
    proc,
    procs,
    say,
    size,
    sizes,
    text,
)
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound
from pypmix.standard.ops import (
    GroupChange,
    GroupResults,
    GroupState,
    GroupUnwatch,
    GroupWatch,
    Notification,
)
from pypmix.standard.ops.events import RANGE_PROC_LOCAL, is_set
from pypmix.standard.ops.groups import DESTRUCTED, JOINED, LEADER_SELECTED
from pypmix.standard.ops.groups import LEADER_FAILED as LEADER_HAS_FAILED
from pypmix.standard.ops.groups import LEFT as HAS_LEFT
from pypmix.standard.ops.groups import MEMBER_FAILED as HAS_FAILED
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.groups.agent import Agent
    from pypmix.standard.types import Info, Proc

LEADS = "standing leads"
"""The sender has declared itself the leader in the construct."""

MAX_ENDED = 4096
"""The most ended procs that are remembered, for groups that are being formed."""

MAX_PAST = 64
"""The most changes of a group that are kept for watches that begin later."""

MAX_KEPT = 4096
"""The most events that are kept of a group that is being formed."""


MAX_PLACE = 2**63
"""Places are below this, so that there is always room for later ones."""

MAX_DEPARTED = 4096
"""The most departures that are remembered, for late events about them."""


class AdmissionRecord(Record):
    """The admission of a proc to an existing group.

    Args:
        place: Its place among the admitted procs, counted from 1; two procs that got the same place from different
            members are in the order of procs.
        life: The proc's own number for its admission, which grows: each begins a separate membership, which ends when
            the proc leaves or fails. The founding members have life 0.
    """

    place: int
    life: int


class MemberList:
    """The members of one group, by group rank.

    Events in another order lead to the same members: a departure is remembered in case the event of the admission
    arrives later, and the order of the members does not depend on the order of the events.

    Args:
        members: The members by group rank.
        admitted: The members that the group did not begin with.

    Attributes:
        admitted: The admitted members at present.
        departed: The last life of each proc that has ended.
        last_place: The last place that was assigned by an admission.
    """

    def __init__(self, members: Iterable[Proc], admitted: Mapping[Proc, AdmissionRecord]) -> None:
        self.admitted = dict(admitted)
        self.departed: dict[Proc, int] = {}
        self._founders = dict.fromkeys(members)
        self.last_place = 0
        for member, admission in self.admitted.items():
            self._founders.pop(member, None)
            self.last_place = max(self.last_place, admission.place)
        self._cached: tuple[Proc, ...] | None = None

    def __contains__(self, proc: Proc) -> bool:
        return proc in self._founders or proc in self.admitted

    def __len__(self) -> int:
        return len(self._founders) + len(self.admitted)

    @property
    def members(self) -> tuple[Proc, ...]:
        """The members by group rank."""
        if self._cached is None:
            self._cached = tuple(self._founders)
            if self.admitted:
                later = sorted((admission.place, member) for member, admission in self.admitted.items())
                self._cached = (*self._cached, *[member for _, member in later])
        return self._cached

    def life(self, proc: Proc) -> int:
        """Return the life of a member; 0 for founding members."""
        admission = self.admitted.get(proc)
        return 0 if admission is None else admission.life

    def has_departed(self, proc: Proc, life: int) -> bool:
        """Return True if a life of a proc is known to have ended."""
        return life <= self.departed.get(proc, -1)

    def add(self, proc: Proc, admission: AdmissionRecord) -> bool:
        """Add a proc. Return True if it was not a member. A former life of it must have been removed."""
        if admission.place >= MAX_PLACE:
            return False
        self.last_place = max(self.last_place, admission.place)
        known = self.admitted.get(proc)
        if known is not None and known.life == admission.life:
            # Two members have admitted it, the second one in place of the first one, which had failed.
            if admission.place < known.place:
                self.admitted[proc] = admission
                self._cached = None
            return False
        if proc in self or self.has_departed(proc, admission.life):
            return False
        self.admitted[proc] = admission
        self._cached = None
        return True

    def remove(self, proc: Proc, life: int) -> bool:
        """Remove a proc whose life has ended. Return True if it was a member in that life."""
        departed = self.departed
        departed[proc] = max(life, departed.pop(proc, -1))
        if len(departed) > MAX_DEPARTED:
            del departed[next(iter(departed))]
        if proc not in self or life < self.life(proc):
            return False
        self._founders.pop(proc, None)
        self.admitted.pop(proc, None)
        self._cached = None
        return True


class Group:
    """A group that this process is a member of.

    Attributes:
        name: Its name.
        membership: Its members.
        context_id: Its context id.
        leader: Its leader.
        term: How many leaders it has had.
        electing: The former leader that is being replaced.
        epoch: The number of its memberships so far: 1 more with each change.
        infos: The infos that came with the result of the construct.
        said: The infos of each member that was admitted later.
        notifies: Whether its members have asked for events of failures.
        ft: Whether its operations continue without members that leave or end.
        leaving: Whether this process is about to leave.
        stage: The state of its state machine.
    """

    def __init__(self, name: str, membership: MemberList) -> None:
        self.name = name
        self.membership = membership
        self.context_id: int | None = None
        self.leader: Proc | None = None
        self.term = 0
        self.electing: Proc | None = None
        self.epoch = 1
        self.infos: tuple[Info, ...] = ()
        self.said: dict[Proc, tuple[Info, ...]] = {}
        self.notifies = False
        self.ft = False
        self.leaving = False
        self.stage = States.START
        self.told: dict[Proc, None] = {}
        """The members whose failure was reported to the handlers."""
        self.lost: dict[Proc, None] = {}
        """The members that have ended without leaving."""
        self.watches: dict[int, GroupWatch] = {}
        self.past: deque[GroupChange] = deque(maxlen=MAX_PAST)
        """Its last changes, for watches that begin later."""
        self._state: GroupState | None = None
        """The state when it was last asked for."""

    def step(self, what: str) -> None:
        """Take a step of its state machine."""
        self.stage = States.step(self.stage, what)

    @property
    def state(self) -> GroupState:
        """The group as it is now."""
        last, members, leader = self._state, self.membership.members, self.leader
        if (
            last is None
            or last.members is not members
            or last.leader != leader
            or (last.epoch, last.term) != (self.epoch, self.term)
        ):
            infos = (*self.infos, *[info for said in self.said.values() for info in said]) if self.said else self.infos
            last = GroupState(self.name, members, self.context_id, leader, self.epoch, self.term, infos)
            self._state = last
        return last


class Attempt:
    """A construct, an invitation, or a wait of this process to be admitted, which may form a group.

    Attributes:
        use: How it uses the group's name, in words; empty if it leaves the name free.
    """

    __slots__ = ()

    @property
    def use(self) -> str:
        return ""


class _Expected:
    """A group that is being formed: the number of ended procs at its start, and the events about it so far."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.attempts: dict[Attempt, None] = {}
        self.kept: list[Notification] = []


class Standing:
    """The groups of one session that this process is in: `agent.standing`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._me = agent.port.proc
        self._groups: dict[str, Group] = {}
        self._expected: dict[str, _Expected] = {}
        self._departed: dict[str, frozenset[Proc]] = {}
        """The departed members of groups that have ended here: some servers report them once more after a destruct."""
        self._ended: dict[Proc, int] = {}
        """The procs that have ended, numbered in that order."""
        self._ends = 0
        self._followers: list[Callable[[Proc], None]] = []
        self._observers: list[Callable[[GroupChange], None]] = []
        self._watching: dict[int, str] = {}
        self._last_watch = 0
        self._listening = False

    # Reports of the other parts

    def expected(self, name: str, attempt: Attempt) -> None:
        """A group is being formed.

        Until it is `formed`, or all attempts are `abandoned`, this process cannot leave it, and events about it are
        kept: a member may leave, or end, before this process knows that the group is complete.

        Must be called before anything is sent that may lead others to form the group, so that none of their events is
        missed. May be called more than once.
        """
        if not self._listening:
            self.listen()
        self._departed.pop(name, None)
        self._expected.setdefault(name, _Expected(self._ends)).attempts[attempt] = None

    def abandoned(self, name: str, attempt: Attempt) -> None:
        """An attempt has failed: forget its group unless another attempt may form it; does nothing if it exists."""
        expected = self._expected.get(name)
        if expected is None:
            return
        expected.attempts.pop(attempt, None)
        if expected.attempts:
            return
        del self._expected[name]
        States.step(States.START, States.NOTHING)
        for event in expected.kept:
            if event.code == statuses.TALK:
                self._agent.talk(event)

    def formed(
        self,
        name: str,
        members: Iterable[Proc],
        *,
        context_id: int | None = None,
        leader: Proc | None = None,
        infos: tuple[Info, ...] = (),
        directives: tuple[Info, ...] = (),
        admitted: Mapping[Proc, AdmissionRecord] | None = None,
        epoch: int = 1,
        term: int | None = None,
    ) -> GroupResults:
        """Add a group that was formed, and apply the events that were kept for it.

        Args:
            name: Its name; a group of this name is replaced.
            members: The members by group rank.
            context_id: The context id.
            leader: Its leader.
            infos: Further infos of the group.
            directives: The directives of the construct or invitation, such as `NOTIFY_TERMINATION`.
            admitted: The members that were admitted after the construct.
            epoch: How often the membership had changed.
            term: The term of `leader`; by default 1 if there is a leader, else 0.

        Returns:
            The results of the operation that formed the group: the members as given, even if some have left since.
        """
        if not self._listening:
            self.listen()
        if name in self._groups:
            self.dissolve(name)
        members = tuple(members)
        group = Group(name, MemberList(members, admitted or {}))
        group.context_id, group.leader = context_id, leader
        group.step(States.STANDS if leader is None else States.STANDS_LED)
        group.term = int(leader is not None) if term is None else term
        group.epoch, group.infos = epoch, infos
        if directives:
            group.notifies = is_set(directives, keys.GROUP_NOTIFY_TERMINATION)
            group.ft = is_set(directives, keys.GROUP_FT_COLLECTIVE)
        self._groups[name] = group
        if group.membership.admitted:
            self._agent.part("admitting")
        expected = self._expected.pop(name, None)
        if expected is None or expected.kept or self._ends > expected.since:
            self._catch_up(group, expected)
        return GroupResults(members, context_id, infos, False)

    def _catch_up(self, group: Group, expected: _Expected | None) -> None:
        """Apply the events about a group and the ends of procs since it was expected."""
        since = 0
        if expected is not None:
            since = expected.since
            for event in expected.kept:
                self._take(event)
        if self._ends > since:
            for ended in [ended for ended, place in self._ended.items() if place > since]:
                self.fail(group, ended)

    def dissolve(self, name: str) -> None:
        """A group was destructed: end its watches. Does nothing if no group has this name."""
        group = self._groups.get(name)
        if group is not None:
            self._close(group, DESTRUCTED)

    def led(self, name: str, leader: Proc | None, term: int) -> None:
        """A group has a new leader, or none in spite of a choice. Ignored if a later term is known."""
        group = self._groups.get(name)
        if group is None or term <= group.term:
            return
        electing, group.electing, group.term = group.electing, None, term
        if electing is not None:
            # An admitted member may get the choice from the registrar first, or from it alone.
            self._agent.part("election").drop(name, electing)
        failed = leader is not None and self.has_exited(leader)
        # It may have left or ended before this process gets the news that it leads.
        membership = group.membership
        gone = leader is not None and leader not in membership and leader in membership.departed
        group.leader = None if failed or gone else leader
        group.step(States.NOT_LED if group.leader is None else States.IS_LED)
        self._change(group, LEADER_SELECTED, () if leader is None else (leader,))
        if failed and leader is not None and self._groups.get(name) is group:
            self._leader_has_failed(group, leader, announced=False)

    def tell_leader(self, name: str) -> None:
        """Report to the other members that this process leads: few servers pass on its declaration in a construct."""
        others = [member for member in self.members(name) if member != self._me]
        if others:
            self._port.submit(say(LEADS, name, others), ignore)

    def admit(self, group: Group, member: Proc, admission: AdmissionRecord, infos: tuple[Info, ...] = ()) -> bool:
        """Add a proc as a member. Return True if it was not known as one."""
        membership = group.membership
        if member in membership and membership.life(member) < admission.life:
            # It has left, and the event of that has not arrived yet.
            self._depart(group, member, membership.life(member))
        if self.has_exited(member) or not membership.add(member, admission):
            return False
        # From now on the registrar has changes to forward.
        self._agent.part("admitting")
        group.lost.pop(member, None)
        group.said[member] = infos
        group.step(States.JOINS)
        group.epoch += 1
        self._change(group, JOINED, (member,))
        return True

    def record_departure(self, group: Group) -> None:
        """This process has left."""
        if self._groups.get(group.name) is group:
            self._close(group, HAS_LEFT)

    def dismiss(self, group: Group, member: Proc, life: int) -> None:
        """Another member reports that a proc has left; the handlers get the event as if the proc had raised it."""
        if member in group.membership and life >= group.membership.life(member):
            infos = text(keys.GROUP_ID, group.name), proc(keys.EVENT_AFFECTED_PROC, member), size(LIFE, life)
            self._port.handlers.start_chain(Notification(statuses.GROUP_LEFT, member, RANGE_PROC_LOCAL, infos), False)
        else:
            group.membership.remove(member, life)

    def record_end(self, proc: Proc) -> None:
        """A proc has ended; repeated calls are ignored."""
        if proc == self._me or proc in self._ended:
            return
        self._ends += 1
        keep(self._ended, proc, self._ends, MAX_ENDED)
        for group in list(self._groups.values()):
            self.fail(group, proc)
        for follower in list(self._followers):
            follower(proc)

    # Questions of the other parts

    def state(self, name: str) -> GroupState | None:
        """Return the state of a group; None if this process is not in a group of this name."""
        group = self._groups.get(name)
        return None if group is None else group.state

    def members(self, name: str) -> tuple[Proc, ...]:
        """Return the members of a group by group rank; empty if this process is not in a group of this name."""
        group = self._groups.get(name)
        return () if group is None else group.membership.members

    def names(self) -> tuple[str, ...]:
        """Return the names of the groups that this process is in."""
        return tuple(self._groups)

    def use_of(self, name: str, but: Attempt | None = None) -> str:
        """Return in words for which group this process uses a name; empty if for none, or only for one attempt."""
        if name in self._groups:
            return f"there is a group {name!r} already"
        expected = self._expected.get(name)
        attempts = () if expected is None else expected.attempts
        return next((each.use for each in attempts if each is not but and each.use), "")

    def expects(self, name: str) -> bool:
        """Return True if a group of this name is being formed."""
        return name in self._expected

    def group(self, name: str) -> Group | None:
        """Return a group of this process, or None if no group has this name."""
        return self._groups.get(name)

    def may_tell(self, group: Group, source: Proc) -> bool:
        """Return True if a proc may change a group: a member, or a former member whose end overtook its messages."""
        return source in group.membership or (source in group.membership.departed and self.has_exited(source))

    def has_departed(self, name: str, proc: Proc) -> bool:
        """Return True if a proc is known to have left or lost its group, or the group has ended here."""
        group = self._groups.get(name)
        if group is None:
            # Members that leave later do not report that to this process.
            return name in self._departed
        return proc in group.membership.departed and proc not in group.membership

    def has_exited(self, proc: Proc) -> bool:
        """Return True if a proc is known to have ended; ends are followed while groups are expected or exist."""
        return proc in self._ended

    def follow(self, listener: Callable[[Proc], None]) -> None:
        """Call a part with each proc that ends, once each, as long as a group is expected or exists."""
        self._followers.append(listener)

    def observe(self, changed: Callable[[GroupChange], None]) -> None:
        """Call a part with each change of a group; the last one is `DESTRUCTED`, or this process has `LEFT`."""
        self._observers.append(changed)

    # Operations

    def unwatch(self, op: GroupUnwatch, done: Done[None]) -> None:
        """Carry out a `GroupUnwatch`."""
        group = self._groups.get(self._watching.pop(op.id, ""))
        if group is not None:
            group.watches.pop(op.id, None)
        done(None, None)

    def watch(self, op: GroupWatch, done: Done[int]) -> None:
        """Carry out a `GroupWatch`."""
        group = self._groups.get(op.group)
        if group is None:
            done(None, not_in(op.group))
            return
        self._last_watch += 1
        self._watching[self._last_watch] = op.group
        group.watches[self._last_watch] = op
        for change in group.past if op.past else ():
            self._port.tell(op.changed, change)
        done(self._last_watch, None)

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended: end all watches."""
        groups = list(self._groups.values())
        self._groups.clear()
        self._expected.clear()
        for group in groups:
            group.step(States.LOST)
            self._end_watches(group, error)

    # Events

    def listen(self) -> None:
        """Watch for procs that end, and for changes of groups.

        This is never undone: late events may be about a former group that had the name of a present one.
        """
        if self._listening:
            return
        self._listening = True
        agent, port = self._agent, self._port
        for code in port.support.ends:
            port.watch(code, self._hears_of_end)
        for code, screen in (
            (statuses.GROUP_LEFT, self._takes_left),
            (statuses.GROUP_MEMBERSHIP_UPDATE, self._takes_update),
        ):
            port.watch(code, only_hear)
            agent.port.handlers.screen(code, screen)
        if port.support.reports_failures:
            port.watch(statuses.GROUP_LEADER_FAILED, self._leader_failed)
        agent.hear(LEADS, self._leads)
        agent.hear(WITHOUT, self._stands_without)
        agent.port.handlers.screen(statuses.GROUP_MEMBER_FAILED, self._takes_member_failed)
        agent.port.handlers.screen(statuses.GROUP_LEADER_FAILED, self._may_be_leader_failed)

    def keep(self, event: Notification) -> bool:
        """Keep an event until its group is formed. Return False if no group of its name is being formed."""
        expected = self._expected.get(named(event))
        if expected is None or len(expected.kept) >= MAX_KEPT:
            return False
        expected.kept.append(event)
        return True

    def _take(self, event: Notification) -> None:
        """Apply an event that was kept; the handlers have seen it."""
        takers: dict[int, Callable[[Notification], object]] = {
            statuses.GROUP_LEFT: self._takes_left,
            statuses.GROUP_MEMBERSHIP_UPDATE: self._takes_update,
            statuses.GROUP_MEMBER_FAILED: self._takes_member_failed,
        }
        takers.get(event.code, self._agent.talk)(event)

    def _about(self, event: Notification) -> Group | None:
        return self._groups.get(named(event))

    def _hears_of_end(self, event: Notification) -> None:
        told = (*listed(event.infos, keys.EVENT_AFFECTED_PROC), *listed(event.infos, keys.EVENT_AFFECTED_PROCS))
        for ended in told:
            if event.source == ended or self._port.handlers.is_host(event.source):
                self.record_end(ended)

    def _leads(self, event: Notification) -> None:
        group, leader = self._about(event), event.source
        if group is None:
            self.keep(event)
        elif group.term == 0 and group.electing is None and self.may_tell(group, leader):
            group.term = 1
            if leader in group.membership:
                group.leader = leader
                group.step(States.DECLARES)
            elif self.has_exited(leader):
                self._leader_has_failed(group, leader, announced=False)

    def _stands_without(self, event: Notification) -> None:
        """The host reports members that had contributed, and ended before the group was formed.

        A proc whose end was reported before this process expected the group counts as a later process of that name.
        """
        group = self._about(event)
        if group is None:
            self.keep(event)
        elif self._port.handlers.is_host(event.source):
            for ended in listed(event.infos, ENDED):
                self.record_end(ended)
                self.fail(group, ended)

    def _takes_left(self, event: Notification) -> bool:
        group, leaver = self._about(event), event.source
        if group is None:
            self.keep(event)
            return True
        affected = listed(event.infos, keys.EVENT_AFFECTED_PROC)
        context_id = number(event.infos, keys.GROUP_CONTEXT_ID)
        if affected not in ((), (leaver,)) or leaver == self._me:
            return False
        if None not in (context_id, group.context_id) and context_id != group.context_id:
            # It is late, about an earlier group of this name.
            return False
        life = number(event.infos, LIFE)
        return self._depart(group, leaver, group.membership.life(leaver) if life is None else life)

    def _takes_update(self, event: Notification) -> bool:
        group = self._about(event)
        if group is None:
            self.keep(event)
            return True
        if event.source == self._me:
            return True
        if not self.may_tell(group, event.source):
            return False
        added, place, life = listed(event.infos, ADDED), number(event.infos, PLACE), number(event.infos, LIFE)
        if not added:
            return self._takes_list(group, listed(event.infos, keys.GROUP_MEMBERSHIP))
        if len(added) != 1 or place is None or life is None:
            return False
        news = self.admit(group, added[0], AdmissionRecord(place, life), said_in(event.infos))
        self._agent.part("admitting").confirm(group, event.source, added[0], life)
        return news

    def _takes_list(self, group: Group, members: tuple[Proc, ...]) -> bool:
        """Apply the list of members that a member on another library sends."""
        if not members:
            return False
        membership = group.membership
        before = group.epoch
        for member in [member for member in membership.members if member not in members]:
            if member == self._me:
                self._close(group, HAS_LEFT)
                return True
            self._depart(group, member, membership.life(member))
        for member in members:
            if member not in membership:
                self.admit(group, member, AdmissionRecord(membership.last_place + 1, 0))
        return group.epoch != before

    def _takes_member_failed(self, event: Notification) -> bool:
        group, failed = self._about(event), listed(event.infos, keys.EVENT_AFFECTED_PROC)
        if group is None:
            self.keep(event)
            past = self._departed.get(named(event), frozenset())
            return not failed or not past.issuperset(failed)
        if len(failed) != 1 or not self._may_tell(group, event.source, failed[0]):
            return False
        member = failed[0]
        if member in group.membership:
            # The handlers get this event, and no other one for the same failure.
            group.told[member] = None
            self.record_end(member)
            self.fail(group, member)
            return True
        return event.source == self._me

    def _may_be_leader_failed(self, event: Notification) -> bool:
        group, failed = self._about(event), listed(event.infos, keys.EVENT_AFFECTED_PROC)
        return group is None or (len(failed) == 1 and self._may_tell(group, event.source, failed[0]))

    def _leader_failed(self, event: Notification) -> None:
        """The server reports the failure of a leader, whether or not this process knows that it led."""
        group, failed = self._about(event), listed(event.infos, keys.EVENT_AFFECTED_PROC)
        if group is None or len(failed) != 1 or not self._port.handlers.is_host(event.source):
            return
        known = group.leader == failed[0]
        if not known and (group.leader is not None or group.electing is not None or group.term):
            return
        group.term = max(group.term, 1)
        if failed[0] in group.membership:
            if not known:
                group.leader = failed[0]
                group.step(States.DECLARES)
            self.fail(group, failed[0], announced=True)
        else:
            self._leader_has_failed(group, failed[0], announced=True)
        self.record_end(failed[0])

    def _may_tell(self, group: Group, source: Proc, failed: Proc) -> bool:
        known = source == self._me or source == failed or source in group.membership
        return known or self._port.handlers.is_host(source)

    # Changes

    def _depart(self, group: Group, leaver: Proc, life: int) -> bool:
        # It may have left before it ended.
        group.lost.pop(leaver, None)
        if not group.membership.remove(leaver, life):
            return False
        group.said.pop(leaver, None)
        group.epoch += 1
        led = group.leader == leaver
        group.step(States.LEADER_LEAVES if led else States.LEAVES)
        if led:
            group.leader = None
        self._change(group, HAS_LEFT, (leaver,))
        if led and any(watch.elects for watch in group.watches.values()):
            self._leader_has_failed(group, leaver, announced=False)
        elif led:
            elections = self._agent.made("election")
            if elections is not None and not elections.called(group.name, leaver):
                elections.drop(group.name, leaver)
        return True

    def fail(self, group: Group, failed: Proc, *, announced: bool = False) -> None:
        """Mark a member as ended without having left.

        Args:
            group: The group.
            failed: The member; nothing happens if it is not one.
            announced: Whether the server has reported the failure of a leader.
        """
        if failed not in group.membership:
            return
        led = group.leader == failed
        group.membership.remove(failed, group.membership.life(failed))
        group.lost[failed] = None
        group.said.pop(failed, None)
        group.epoch += 1
        group.step(States.NEEDS_LEADER if led else States.FAILS)
        if led:
            group.leader = None
            group.electing = failed
        self._change(group, LEADER_HAS_FAILED if led else HAS_FAILED, (failed,))
        if group.notifies and not led and failed not in group.told:
            group.told[failed] = None
            infos = (
                text(keys.GROUP_ID, group.name),
                proc(keys.EVENT_AFFECTED_PROC, failed),
                flag(keys.EVENT_NON_DEFAULT),
            )
            self._port.handlers.start_chain(
                Notification(statuses.GROUP_MEMBER_FAILED, self._me, RANGE_PROC_LOCAL, infos), True
            )
        if led and self._groups.get(group.name) is group:
            self._choose(group, failed, group.term + 1, announced=announced)

    def lacks_leader(self, name: str, failed: Proc, term: int, source: Proc) -> bool:
        """Return True if a member may choose a leader in place of a proc that is no longer a member here.

        This process may have seen a departure, which leads to no choice, while others have seen a failure.
        """
        group = self._groups.get(name)
        if group is None or group.leader is not None or group.electing is not None or term <= group.term:
            return False
        return self.may_tell(group, source) and failed not in group.membership

    def follow_choice(self, name: str, failed: Proc, term: int) -> None:
        """Take part in a choice that others have begun, without asking the handlers of this process."""
        group = self._groups[name]
        group.step(States.IS_CALLED)
        self._choose(group, failed, term, announced=True, wishes=False)

    def _leader_has_failed(self, group: Group, failed: Proc, *, announced: bool) -> None:
        group.step(States.NEEDS_LEADER)
        self._choose(group, failed, group.term + 1, announced=announced)

    def _choose(self, group: Group, failed: Proc, term: int, *, announced: bool, wishes: bool = True) -> None:
        group.leader = None
        group.electing = failed

        def decided(outcome: Any) -> None:
            group.electing = None
            if self._groups.get(group.name) is group:
                self.led(group.name, outcome.leader, term)

        members = group.membership.members
        self._agent.part("election").begin(
            group.name, members, failed, term=term, decided=decided, announced=announced, wishes=wishes
        )

    def _change(self, group: Group, kind: str, whose: tuple[Proc, ...]) -> None:
        change = GroupChange(kind, group.state, whose)
        group.past.append(change)
        for watch in group.watches.values():
            self._port.tell(watch.changed, change)
        for observer in list(self._observers):
            observer(change)

    def _close(self, group: Group, kind: str) -> None:
        """End a group here: this process has left it, or it is destructed."""
        leaves = kind == HAS_LEFT
        group.step(States.GOES if leaves else States.DESTRUCTED)
        del self._groups[group.name]
        keep(self._departed, group.name, frozenset(group.membership.departed), MAX_KEPT)
        if leaves:
            group.membership.remove(self._me, group.membership.life(self._me))
            group.epoch += 1
            if group.leader == self._me:
                group.leader = None
        elections = self._agent.made("election")
        if elections is not None:
            elections.forget(group.name)
        if group.watches or self._observers:
            self._change(group, kind, (self._me,) if leaves else ())
            self._end_watches(group, None)

    def _end_watches(self, group: Group, error: BaseException | None) -> None:
        for id, watch in group.watches.items():
            self._watching.pop(id, None)
            if watch.ended is not None:
                self._port.tell(watch.ended, error)
        group.watches.clear()


def said_in(infos: Iterable[Info]) -> tuple[Info, ...]:
    """Return the infos that a proc contributes for the other members."""
    return tuple([info for info in infos if info.key in (keys.GROUP_INFO, keys.GROUP_ENDPT_DATA)])


def admission_infos(admitted: Mapping[Proc, AdmissionRecord], lives: str) -> tuple[Info, ...]:
    """Return the infos of a message that lists admitted members; `lives` is the key of their lives."""
    admissions = admitted.values()
    return (
        procs(ADDED, admitted),
        sizes(PLACE, [each.place for each in admissions]),
        sizes(lives, [each.life for each in admissions]),
    )


def admissions_in(infos: Iterable[Info], lives: str) -> dict[Proc, AdmissionRecord] | None:
    """Return the admitted members that a message lists by `admission_infos`; None if it is not valid."""
    added, places, numbered = listed(infos, ADDED), numbers(infos, PLACE), numbers(infos, lives)
    if not len(added) == len(places) == len(numbered):
        return None
    return dict(zip(added, map(AdmissionRecord, places, numbered), strict=True))


def not_in(name: str) -> NotFound:
    """Return the error for an operation on a group of which this process is not a member."""
    return NotFound(f"the caller is not in a group {name!r}")
