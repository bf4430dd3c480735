"""Admissions to an existing group, on the members' side.

The first member, the *registrar*, admits procs, one at a time: servers put new members behind the others in the order
of the announcements. It offers membership to the proc, which has to wait for that (`entering`) and answers with the
number of its life. The registrar then announces the new member to the others (`PMIX_GROUP_MEMBERSHIP_UPDATE`), and
sends the state of the group to the new member only when all others know it: an operation that the new member calls next
must not meet members that leave it out. A proc that an earlier registrar had admitted without a welcome gets it at
once.

A member that leaves informs the members that it knows, and so does a registrar that admits one. Members admitted in the
meantime miss these events. The registrar therefore forwards each change to all admitted members, and a new registrar
forwards the whole history."""

from __future__ import annotations

from pypmix.engine.common import ignore
from pypmix.engine.groups.entering import COMES, OFFER
from pypmix.engine.groups.standing import AdmissionRecord, admission_infos, admissions_in, not_in, said_in
from pypmix.engine.groups.talk import (
    ADDED,
    DEPARTED,
    ENDED,
    EPOCH,
    INFOS,
    LIFE,
    LIVES,
    NEWS,
    PLACE,
    TERM,
    WELCOME,
    event,
    flag,
    found,
    listed,
    named,
    number,
    numbers,
    proc,
    procs,
    say,
    size,
    sizes,
    timeout_in,
)
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, OperationTimeout, PMIxError, ResourceBusy
from pypmix.standard.naming import name_proc
from pypmix.standard.ops import Notification
from pypmix.standard.ops.events import RANGE_PROC_LOCAL
from pypmix.standard.ops.groups import DESTRUCTED, JOINED
from pypmix.standard.ops.groups import LEADER_SELECTED as LED
from pypmix.standard.types import DataArray, Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.engine.base import Done
    from pypmix.engine.groups.agent import Agent, Timer
    from pypmix.engine.groups.standing import Group
    from pypmix.standard.ops import GroupAdmit, GroupChange
    from pypmix.standard.types import Proc

KNOWN = "admit known"
"""To the admitting member: the sender knows that `AFFECTED_PROC` is a member, by its life `LIFE`."""

KNOWN_WITHIN = 2.0
"""Seconds after which a member without an answer is taken for a member on another library."""


class _Admission:
    """A proc that this process is to admit.

    Attributes:
        life: The number of its life, 0 before it has answered.
        infos: The infos that it contributes.
        unaware: The members that may not know of it yet, this process among them; None before it is announced.
    """

    def __init__(self, group: str, proc: Proc, done: Done[None]) -> None:
        self.group = group
        self.proc = proc
        self.done = done
        self.life = 0
        self.infos: tuple[Info, ...] = ()
        self.unaware: set[Proc] | None = None
        self.timers: list[Timer] = []


class Admitting:
    """The admissions of one session: `agent.part("admitting")`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._me = agent.port.proc
        self._standing = agent.standing
        self._admissions: dict[tuple[str, Proc], _Admission] = {}
        self._announced: dict[str, _Admission] = {}
        """The announced admission of each group: the next one has to name the new member."""
        self._taking_in: tuple[str, Proc] | None = None
        self._passed_on: set[str] = set()
        """The groups of which this process, as the registrar, has forwarded the whole history."""
        for says, listener in ((COMES, self._comes), (KNOWN, self._handle_known), (NEWS, self._hears_news)):
            agent.hear(says, listener)
        agent.standing.observe(self._changed)
        agent.standing.follow(self._handle_exit)

    def admit(self, op: GroupAdmit, done: Done[None]) -> None:
        """Carry out a `GroupAdmit`."""
        key, group = (op.group, op.proc), self._standing.group(op.group)
        if group is None:
            done(None, not_in(op.group))
        elif not self._is_registrar(group):
            first = group.membership.members[0]
            why = f"the first member of {op.group!r}, which is {self._name(first)}, admits procs, and no other one"
            done(None, PMIxError(why, status=statuses.ERR_BAD_PARAM, procs=(first,)))
        elif key in self._admissions:
            busy = f"the caller is admitting {self._name(op.proc)} already"
            done(None, ResourceBusy(busy))
        elif self._standing.has_exited(op.proc):
            done(None, self._exit_error(op.proc))
        else:
            admission = self._admissions[key] = _Admission(op.group, op.proc, done)
            limit = timeout_in(op.directives)
            if limit:
                admission.timers.append(self._port.later(limit, lambda: self._expire(admission, limit)))
            self._say(OFFER, op.group, (op.proc,), ())

    def resume(self, name: str) -> None:
        """Continue: this process does not leave the group after all."""
        group = self._standing.group(name)
        if group is not None:
            self._go_on(group)

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended."""
        for admission in list(self._admissions.values()):
            self._end(admission, error or PMIxError("the session was closed while this was under way"))

    def _end(self, admission: _Admission, error: BaseException | None) -> None:
        if self._announced.get(admission.group) is admission:
            del self._announced[admission.group]
        del self._admissions[admission.group, admission.proc]
        for timer in admission.timers:
            timer.cancel()
        admission.done(None, error)

    def _expire(self, admission: _Admission, limit: float) -> None:
        if admission.unaware is None:
            self._end(admission, OperationTimeout(f"{self._name(admission.proc)} has not come within {limit:g} s"))

    # One admission after the other

    def _comes(self, event: Notification) -> None:
        admission, life = self._admissions.get((named(event), event.source)), number(event.infos, LIFE)
        group = self._standing.group(named(event))
        if group is not None and admission is not None and admission.unaware is None and life:
            admission.life, admission.infos = life, said_in(event.infos)
            self._go_on(group)

    def _go_on(self, group: Group) -> None:
        """Announce the next proc that has answered, if no announcement is open."""
        for admission in list(self._admissions.values()):
            if group.leaving or group.name in self._announced:
                return
            if admission.group == group.name and admission.life:
                self._announce(group, admission)

    def _announce(self, group: Group, admission: _Admission) -> None:
        """Announce a new member to the servers and the other members before this process records it.

        An operation on the group that this process calls afterwards must find the member at the server.
        """
        who, membership = admission.proc, group.membership
        if self._is_in(group, admission):
            self._welcome(group, admission)
            return
        if membership.has_departed(who, admission.life):
            self._end(admission, NotFound(f"{self._name(who)} has left {group.name!r} again", procs=(who,)))
            return
        place = AdmissionRecord(membership.last_place + 1, admission.life)
        others = [member for member in membership.members if member not in (self._me, who)]
        infos = (
            procs(keys.GROUP_MEMBERSHIP, [*[member for member in membership.members if member != who], who]),
            proc(ADDED, who),
            size(PLACE, place.place),
            size(LIFE, place.life),
            *admission.infos,
        )
        self._announced[group.name] = admission
        admission.unaware = {*others, self._me}

        def published(_: None, error: BaseException | None) -> None:
            if error is not None and self._is_under_way(admission):
                self._end(admission, error)
                self._go_on(group)
            elif self._is_under_way(admission):
                self._published(group, admission, place, infos)

        # This event informs the new member's server of the group, if no other member lives there.
        self._port.submit(event(statuses.GROUP_MEMBERSHIP_UPDATE, group.name, (*others, who), infos), published)

    def _published(self, group: Group, admission: _Admission, place: AdmissionRecord, infos: tuple[Info, ...]) -> None:
        self._taking_in = group.name, admission.proc
        news = self._standing.admit(group, admission.proc, place, admission.infos)
        self._taking_in = None
        if news:
            update = Notification(statuses.GROUP_MEMBERSHIP_UPDATE, self._me, RANGE_PROC_LOCAL, infos)
            self._port.handlers.start_chain(update, False)
        if not self._is_under_way(admission):
            return
        if not self._is_in(group, admission):
            why = f"{self._name(admission.proc)} has left {group.name!r} again, or has ended"
            self._end(admission, NotFound(why, procs=(admission.proc,)))
            self._go_on(group)
            return
        assert admission.unaware is not None
        admission.unaware.discard(self._me)
        admission.timers.append(self._port.later(KNOWN_WITHIN, lambda: self._welcome(group, admission)))
        self._check(group, admission)

    def _handle_known(self, event: Notification) -> None:
        name = named(event)
        group, admission = self._standing.group(name), self._announced.get(name)
        about = listed(event.infos, keys.EVENT_AFFECTED_PROC), number(event.infos, LIFE)
        if group is not None and admission is not None and about == ((admission.proc,), admission.life):
            assert admission.unaware is not None
            admission.unaware.discard(event.source)
            self._check(group, admission)

    def confirm(self, group: Group, teller: Proc, member: Proc, life: int) -> None:
        """Confirm a new member to the member that has announced it."""
        about = proc(keys.EVENT_AFFECTED_PROC, member), size(LIFE, life), flag(keys.EVENT_DO_NOT_CACHE)
        self._say(KNOWN, group.name, (teller,), about)

    def _check(self, group: Group, admission: _Admission) -> None:
        if not admission.unaware:
            self._welcome(group, admission)

    def _welcome(self, group: Group, admission: _Admission) -> None:
        """Send the state of the group to a proc, which thereby becomes a member."""
        state, admitted = group.state, group.membership.admitted
        infos = [
            size(LIFE, admission.life),
            procs(keys.GROUP_MEMBERSHIP, state.members),
            *admission_infos(admitted, LIVES),
            size(EPOCH, state.epoch),
            size(TERM, state.term),
        ]
        if state.infos:
            infos.append(Info(INFOS, Value(codes.DATA_ARRAY, DataArray(codes.INFO, state.infos))))
        if state.context_id is not None:
            infos.append(size(keys.GROUP_CONTEXT_ID, state.context_id))
        if state.leader is not None:
            infos.append(proc(keys.GROUP_LEADER, state.leader))
        if group.notifies:
            infos.append(flag(keys.GROUP_NOTIFY_TERMINATION))
        if group.ft:
            infos.append(flag(keys.GROUP_FT_COLLECTIVE))
        departed = group.membership.departed
        left = [each for each in departed if each not in group.membership and not self._standing.has_exited(each)]
        if left:
            # The new member's server knows the members of the announcement, of which some may have left since.
            infos.append(procs(DEPARTED, left))
        self._say(WELCOME, group.name, (admission.proc,), infos)
        self._end(admission, None)
        self._go_on(group)

    def _is_registrar(self, group: Group) -> bool:
        return group.membership.members[0] == self._me

    @staticmethod
    def _is_in(group: Group, admission: _Admission) -> bool:
        """Return True if a proc is a member in this life already."""
        return admission.proc in group.membership and group.membership.life(admission.proc) == admission.life

    def _is_under_way(self, admission: _Admission) -> bool:
        return self._admissions.get((admission.group, admission.proc)) is admission

    # Changes

    def _changed(self, change: GroupChange) -> None:
        name = change.state.name
        group, admission = self._standing.group(name), self._announced.get(name)
        if group is None:
            self._end_all(name, change.kind == DESTRUCTED)
            return
        if admission is not None and admission.unaware and change.kind not in (JOINED, LED):
            admission.unaware.difference_update(change.procs)
            self._check(group, admission)
        if group.membership.admitted and self._is_registrar(group):
            self._pass_on(group, change)

    def _end_all(self, name: str, destructed: bool) -> None:
        """This process has left the group, or it is destructed."""
        self._passed_on.discard(name)
        why = f"the group {name!r} no longer exists" if destructed else f"the caller has left {name!r}"
        for admission in [each for each in self._admissions.values() if each.group == name]:
            self._end(admission, NotFound(why))

    def _handle_exit(self, proc: Proc) -> None:
        for admission in [each for each in self._admissions.values() if each.proc == proc]:
            self._end(admission, self._exit_error(proc))
            self.resume(admission.group)

    # Forwarding

    def _pass_on(self, group: Group, change: GroupChange) -> None:
        """As the registrar, forward changes that the admitted members may have missed."""
        admitted, name = group.membership.admitted, group.name
        new = name not in self._passed_on
        self._passed_on.add(name)
        to = [member for member in admitted if member != self._me]
        if not to or self._taking_in == (name, *change.procs):
            return
        infos = [size(TERM, group.term)]
        if group.leader is not None:
            infos.append(proc(keys.GROUP_LEADER, group.leader))
        gone: Iterable[Proc] = ()
        if new or change.kind == JOINED:
            infos += admission_infos(admitted, LIFE)
            gone = group.membership.departed
        elif change.kind != LED:
            gone = change.procs
        ended = [each for each in gone if self._standing.has_exited(each)]
        left = [each for each in gone if each not in ended]
        if ended:
            infos.append(procs(ENDED, ended))
        if left:
            infos += [procs(DEPARTED, left), sizes(LIVES, [group.membership.departed[each] for each in left])]
        self._say(NEWS, name, to, infos)

    def _hears_news(self, event: Notification) -> None:
        infos = event.infos
        group = self._standing.group(found(infos, keys.GROUP_ID, str) or "")
        if group is None:
            self._standing.keep(event)
            return
        if not self._standing.may_tell(group, event.source):
            return
        for each, admission in (admissions_in(infos, LIFE) or {}).items():
            if each != self._me:
                self._standing.admit(group, each, admission)
        left, ends = listed(infos, DEPARTED), numbers(infos, LIVES)
        if len(left) == len(ends):
            for each, life in zip(left, ends, strict=True):
                if each != self._me:
                    self._standing.dismiss(group, each, life)
        # A server that reports each end itself is right; members on a disconnected server may report living ones.
        for each in () if self._port.support.reports_failures else listed(infos, ENDED):
            if each != self._me:
                self._standing.fail(group, each)
        self._standing.led(group.name, next(iter(listed(infos, keys.GROUP_LEADER)), None), number(infos, TERM) or 0)

    def _name(self, proc: Proc) -> str:
        return name_proc(proc, self._me.nspace)

    def _exit_error(self, proc: Proc) -> NotFound:
        return NotFound(f"{self._name(proc)} has ended", procs=(proc,))

    def _say(self, says: str, name: str, to: Iterable[Proc], infos: Iterable[Info]) -> None:
        self._port.submit(say(says, name, to, infos), ignore)
