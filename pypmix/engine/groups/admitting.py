"""Requests to join an existing group, on the members' side.

The first member is the *registrar* and handles one request at a time. It asks all members, whose handlers of
`JOIN_REQUEST` approve or refuse. It then announces the new member to the others (`PMIX_GROUP_MEMBERSHIP_UPDATE`), and
tells the new member about the group only when they all know: an operation that it calls next must not meet members that
leave it out.

A member that leaves tells the members that it knows, and so does a registrar that admits one. Members admitted in the
meantime miss these events. The registrar therefore forwards each change to all admitted members, and a new registrar
forwards the whole history.
"""

from __future__ import annotations

from pypmix.engine.common import ignore
from pypmix.engine.groups.membership import Admission
from pypmix.engine.groups.requesting import ANSWER, ASK, HERE, SEEK, SILENCE, TAKEN, TURN, WITHDRAW
from pypmix.engine.groups.standing import said_in
from pypmix.engine.groups.talk import (
    ADDED,
    DEPARTED,
    ENDED,
    EPOCH,
    ERROR_STATUS,
    INFOS,
    LIFE,
    LIVES,
    PLACE,
    REASON,
    TERM,
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
    status_in,
    text,
)
from pypmix.standard import codes, keys
from pypmix.standard.ops import Notification
from pypmix.standard.ops.events import RANGE_PROC_LOCAL
from pypmix.standard.ops.groups import DESTRUCTED, JOINED
from pypmix.standard.ops.groups import LEADER_SELECTED as LED
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.statuses import (
    ERR_NOT_FOUND,
    ERR_RESOURCE_BUSY,
    EVENT_ACTION_COMPLETE,
    EVENT_NO_ACTION_TAKEN,
    GROUP_MEMBERSHIP_UPDATE,
    JOIN_REQUEST,
    SUCCESS,
)
from pypmix.standard.types import DataArray, Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.engine.groups.agent import Agent
    from pypmix.engine.groups.port import Timer
    from pypmix.engine.groups.standing import Group
    from pypmix.standard.ops import GroupChange
    from pypmix.standard.types import Proc

MAY_JOIN = "admit may join"
"""To all members: do the sender's handlers approve that `AFFECTED_PROC` joins, by its request `LIFE`?"""

AT_IT = "admit at it"
"""To the registrar: the sender's handlers are considering the request."""

VERDICT = "admit verdict"
"""To the registrar: the sender's handlers approve, or not for the `ERROR_STATUS`."""

KNOWN = "admit known"
"""To the registrar: the sender knows that `AFFECTED_PROC` is a member, by its request `LIFE`."""

NEWS = "admit news"
"""To the admitted members: the other admitted ones, the members that have left or ended, and the leader."""

MAX_REQUESTS = 1024
"""The most requests that one registrar keeps waiting."""

MAX_OPINIONS = 256
"""The most verdicts that are remembered, for the case that another registrar asks for them again."""


class _Candidate:
    """A proc that wants to join, and the verdicts of the members."""

    def __init__(self, proc: Proc, life: int, infos: tuple[Info, ...]) -> None:
        self.proc = proc
        self.life = life
        self.infos = infos
        self.waiting: set[Proc] = set()
        self.at_it: set[Proc] = set()
        self.approved: set[Proc] = set()
        self.unaware: set[Proc] | None = None
        """The members that have approved and may not know of the new member yet, including the registrar itself.

        None before the proc is a member."""
        self.timer: Timer | None = None


class _Requests:
    """The requests for one group that have reached this process."""

    def __init__(self) -> None:
        self.queue: dict[Proc, _Candidate] = {}
        self.active: _Candidate | None = None
        self.going_on = False
        self.passed_on = False
        """Whether this process, as the registrar, has forwarded the whole history."""


class _Opinion:
    """The verdict of this process's handlers on a request."""

    def __init__(self) -> None:
        self.registrars: dict[Proc, None] = {}
        """The registrars that have asked."""
        self.verdict: tuple[Info, ...] | None = None


class Admitting:
    """The requests to join the groups of one session: `agent.admitting`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._me = agent.port.proc
        self._standing = agent.standing
        self._requests: dict[str, _Requests] = {}
        self._opinions: dict[tuple[str, Proc, int], _Opinion] = {}
        self._taking_in: tuple[str, Proc] | None = None
        for says, listener in (
            (ASK, self._asked),
            (SEEK, self._sought),
            (WITHDRAW, self._withdrawn),
            (MAY_JOIN, self._considers),
            (AT_IT, self._is_at_it),
            (VERDICT, self._decides),
            (KNOWN, self._knows),
            (NEWS, self._hears_news),
        ):
            agent.hear(says, listener)
        agent.standing.observe(self._changed)
        agent.standing.follow(self._ended)

    @property
    def idle(self) -> bool:
        """Whether no request waits for an answer."""
        return not any(requests.queue or requests.active for requests in self._requests.values())

    def resume(self, name: str) -> None:
        """Go on: this process does not leave the group after all."""
        group, requests = self._standing.group(name), self._requests.get(name)
        if group is not None and requests is not None:
            if requests.active is not None:
                self._check(group, requests, requests.active)
            self._go_on(group, requests)

    def lost(self, error: BaseException | None) -> None:
        """The session is over."""
        for requests in self._requests.values():
            self._quiet(requests.active)
        self._requests.clear()
        self._opinions.clear()

    # The registrar

    def _requests_for(self, name: str) -> _Requests:
        return self._requests.setdefault(name, _Requests())

    def _is_registrar(self, group: Group) -> bool:
        return group.membership.members[0] == self._me

    @staticmethod
    def _is_in(group: Group, asker: Proc, life: int) -> bool:
        """Tell whether a proc is a member by this request already."""
        return asker in group.membership and group.membership.life(asker) == life

    def _sought(self, event: Notification) -> None:
        group = self._group_of(event)
        # The registrar may be about to end, so that the next ones answer as well.
        if group is not None and self._me in group.membership.members[:3]:
            self._say(HERE, group.name, (event.source,), (procs(keys.GROUP_MEMBERSHIP, group.membership.members),))

    def _asked(self, event: Notification) -> None:
        name, asker, life = named(event), event.source, number(event.infos, LIFE)
        if life is None or self._standing.has_ended(asker):
            return
        group = self._standing.group(name)
        about = size(LIFE, life)
        if group is None:
            # A participant of the construct answers once that has ended, in success or failure.
            waits = not self._agent.requesting.asks(name) and self._standing.keep(event)
            self._say(TAKEN if waits else TURN, name, (asker,), (about,))
            return
        out = listed(event.infos, DEPARTED)
        living = [member for member in group.membership.members if member not in out]
        if not living or living[0] != self._me:
            self._say(TURN, name, (asker,), (about, procs(keys.GROUP_MEMBERSHIP, group.membership.members)))
            return
        self._say(TAKEN, name, (asker,), (about,))
        requests = self._requests_for(name)
        if requests.active is not None and (requests.active.proc, requests.active.life) == (asker, life):
            return
        if self._is_in(group, asker, life) and self._is_registrar(group) and not group.leaving:
            # An earlier registrar has admitted it without telling it; this need not wait in the queue.
            self._welcome(group, _Candidate(asker, life, ()))
            return
        if len(requests.queue) >= MAX_REQUESTS and asker not in requests.queue:
            self._refuse(name, asker, life, ERR_RESOURCE_BUSY, "too many others want to join")
            return
        self._forget(group, requests, asker)
        requests.queue[asker] = _Candidate(asker, life, said_in(event.infos))
        self._go_on(group, requests)

    def _withdrawn(self, event: Notification) -> None:
        name, life = named(event), number(event.infos, LIFE)
        group = self._standing.group(name)
        if group is None or life is None:
            return
        requests = self._requests_for(name)
        self._forget(group, requests, event.source, life)
        if self._is_in(group, event.source, life) and (requests.active is None or requests.active.proc != event.source):
            # An earlier registrar has admitted it: once told so, it leaves.
            self._welcome(group, _Candidate(event.source, life, ()))

    def _forget(self, group: Group, requests: _Requests, asker: Proc, life: int | None = None) -> None:
        """Drop the request of a proc that does not want to join any more."""
        queued = requests.queue.get(asker)
        if queued is not None and life in (None, queued.life):
            del requests.queue[asker]
        active = requests.active
        if active is not None and active.proc == asker and life in (None, active.life) and active.waiting:
            self._done(group, active)

    def _go_on(self, group: Group, requests: _Requests) -> None:
        """Take the next request, if it is the time and the place for it."""
        if requests.going_on:
            return
        requests.going_on = True
        while requests.queue and requests.active is None and not group.leaving and self._is_registrar(group):
            candidate = requests.queue.pop(next(iter(requests.queue)))
            if self._is_in(group, candidate.proc, candidate.life):
                self._welcome(group, candidate)
            else:
                self._put_to_all(group, requests, candidate)
        requests.going_on = False

    def _put_to_all(self, group: Group, requests: _Requests, candidate: _Candidate) -> None:
        requests.active = candidate
        candidate.waiting = set(group.membership.members)
        others = [member for member in group.membership.members if member != self._me]
        if others:
            candidate.timer = self._port.later(SILENCE, lambda: self._has_waited(group, requests, candidate))
            infos = proc(keys.EVENT_AFFECTED_PROC, candidate.proc), size(LIFE, candidate.life), *candidate.infos
            self._say(MAY_JOIN, group.name, others, infos)
        self._consider(group.name, candidate.proc, candidate.life, candidate.infos, self._me)

    def _has_waited(self, group: Group, requests: _Requests, candidate: _Candidate) -> None:
        """Continue without the members that have sent nothing: their library does not know these messages."""
        candidate.timer = None
        candidate.waiting &= candidate.at_it | {self._me}
        self._check(group, requests, candidate)

    def _case(self, event: Notification) -> tuple[Group, _Requests, _Candidate] | None:
        """Return which request a message of a member is about."""
        group = self._group_of(event)
        requests = self._requests.get(group.name) if group is not None else None
        if group is None or requests is None or requests.active is None:
            return None
        about = listed(event.infos, keys.EVENT_AFFECTED_PROC), number(event.infos, LIFE)
        return (group, requests, requests.active) if about == ((requests.active.proc,), requests.active.life) else None

    def _is_at_it(self, event: Notification) -> None:
        case = self._case(event)
        if case is not None:
            case[2].at_it.add(event.source)

    def _decides(self, event: Notification) -> None:
        case = self._case(event)
        if case is not None:
            self._verdict(*case, event.source, event.infos)

    def _verdict(
        self, group: Group, requests: _Requests, candidate: _Candidate, member: Proc, infos: Iterable[Info]
    ) -> None:
        if member not in candidate.waiting:
            return
        status = status_in(infos)
        if status != SUCCESS:
            self._refuse(group.name, candidate.proc, candidate.life, status, found(infos, REASON, str) or "")
            self._done(group, candidate)
            return
        candidate.waiting.discard(member)
        candidate.approved.add(member)
        self._check(group, requests, candidate)

    def _check(self, group: Group, requests: _Requests, candidate: _Candidate) -> None:
        if requests.active is not candidate or candidate.waiting:
            return
        if candidate.unaware is None:
            if not group.leaving:
                self._quiet(candidate)
                self._admit(group, requests, candidate)
        elif not candidate.unaware:
            self._welcome(group, candidate)
            self._done(group, candidate)

    def _admit(self, group: Group, requests: _Requests, candidate: _Candidate) -> None:
        """Announce a new member to the servers and the other members before this process records it.

        An operation on the group that this process calls afterwards must find the member at the server.
        """
        who, membership = candidate.proc, group.membership
        if self._standing.has_ended(who) or membership.has_departed(who, candidate.life):
            self._done(group, candidate)
            return
        admission = Admission(membership.last_place + 1, candidate.life)
        others = [member for member in membership.members if member not in (self._me, who)]
        infos = (
            procs(keys.GROUP_MEMBERSHIP, [*[member for member in membership.members if member != who], who]),
            proc(ADDED, who),
            size(PLACE, admission.place),
            size(LIFE, admission.life),
            *candidate.infos,
        )
        candidate.unaware = candidate.approved.intersection(others) | {self._me}
        # This event tells the new member's server about the group, if no other member lives there.
        update = event(GROUP_MEMBERSHIP_UPDATE, group.name, (*others, who), infos)

        def published(_: None, error: BaseException | None) -> None:
            if self._standing.group(group.name) is not group:
                # The present registrar knows that it is a member.
                self._say(TURN, group.name, (who,), (size(LIFE, candidate.life), procs(keys.GROUP_MEMBERSHIP, others)))
            elif error is None:
                self._published(group, requests, candidate, admission, infos)
            else:
                self._refuse(group.name, who, candidate.life, getattr(error, "code", -1), str(error))
                self._done(group, candidate)

        self._port.submit(update, published)

    def _published(
        self, group: Group, requests: _Requests, candidate: _Candidate, admission: Admission, infos: tuple[Info, ...]
    ) -> None:
        self._taking_in = group.name, candidate.proc
        news = self._standing.admit(group, candidate.proc, admission, candidate.infos)
        self._taking_in = None
        if news:
            self._port.handlers.raised(Notification(GROUP_MEMBERSHIP_UPDATE, self._me, RANGE_PROC_LOCAL, infos), False)
        if self._is_in(group, candidate.proc, candidate.life):
            self._told(group, requests, candidate)
        else:
            # It has ended, or has left by this request already.
            self._done(group, candidate)

    def _told(self, group: Group, requests: _Requests, candidate: _Candidate) -> None:
        """The new member was announced: wait until the members that answer have acknowledged it."""
        assert candidate.unaware is not None
        candidate.unaware.discard(self._me)
        if candidate.unaware:
            candidate.timer = self._port.later(SILENCE, lambda: self._has_told(group, requests, candidate))
        self._check(group, requests, candidate)

    def _has_told(self, group: Group, requests: _Requests, candidate: _Candidate) -> None:
        candidate.timer = None
        candidate.unaware = set()
        self._check(group, requests, candidate)

    def _knows(self, event: Notification) -> None:
        case = self._case(event)
        if case is not None and case[2].unaware is not None:
            case[2].unaware.discard(event.source)
            self._check(*case)

    def _welcome(self, group: Group, candidate: _Candidate) -> None:
        """Tell a proc that it is a member, and the state of the group."""
        state, admitted = group.state, group.membership.admitted
        infos = [
            size(LIFE, candidate.life),
            procs(keys.GROUP_MEMBERSHIP, state.members),
            procs(ADDED, admitted),
            sizes(PLACE, [admission.place for admission in admitted.values()]),
            sizes(LIVES, [admission.life for admission in admitted.values()]),
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
        self._say(ANSWER, group.name, (candidate.proc,), infos)

    def _refuse(self, name: str, asker: Proc, life: int, status: int, reason: str) -> None:
        infos = size(LIFE, life), Info(ERROR_STATUS, Value(codes.STATUS, status)), text(REASON, reason)
        self._say(ANSWER, name, (asker,), infos)

    def _close(self, requests: _Requests, candidate: _Candidate) -> None:
        self._quiet(candidate)
        if requests.active is candidate:
            requests.active = None

    def _done(self, group: Group, candidate: _Candidate) -> None:
        """Take the next request, since this one is answered or void."""
        requests = self._requests_for(group.name)
        self._close(requests, candidate)
        self._go_on(group, requests)

    def _quiet(self, candidate: _Candidate | None) -> None:
        if candidate is not None and candidate.timer is not None:
            candidate.timer.cancel()
            candidate.timer = None

    # A member

    def _considers(self, event: Notification) -> None:
        group = self._standing.group(named(event))
        asker, life = listed(event.infos, keys.EVENT_AFFECTED_PROC), number(event.infos, LIFE)
        if group is None:
            self._standing.keep(event)
        elif event.source in group.membership and len(asker) == 1 and life is not None:
            self._consider(group.name, asker[0], life, said_in(event.infos), event.source)

    def _consider(self, name: str, asker: Proc, life: int, infos: tuple[Info, ...], registrar: Proc) -> None:
        """Have the handlers of this process decide, once for all registrars that ask."""
        key = name, asker, life
        opinion = self._opinions.get(key)
        if opinion is None:
            opinion = self._opinions[key] = _Opinion()
            if len(self._opinions) > MAX_OPINIONS:
                del self._opinions[next(iter(self._opinions))]
            opinion.registrars[registrar] = None

            def ended(status: int, results: tuple[Info, ...]) -> None:
                opinion.verdict = _verdict(status, results)
                for each in opinion.registrars:
                    self._tell_verdict(key, opinion.verdict, each)

            told = (
                text(keys.GROUP_ID, name),
                proc(keys.EVENT_AFFECTED_PROC, asker),
                flag(keys.EVENT_NON_DEFAULT),
                *infos,
            )
            self._port.handlers.raised(Notification(JOIN_REQUEST, asker, RANGE_CUSTOM, told), False, over=ended)
        else:
            opinion.registrars[registrar] = None
            if opinion.verdict is not None:
                self._tell_verdict(key, opinion.verdict, registrar)
        if opinion.verdict is None and registrar != self._me:
            self._say(
                AT_IT,
                name,
                (registrar,),
                (proc(keys.EVENT_AFFECTED_PROC, asker), size(LIFE, life), flag(keys.EVENT_DO_NOT_CACHE)),
            )

    def _tell_verdict(self, key: tuple[str, Proc, int], verdict: tuple[Info, ...], registrar: Proc) -> None:
        name, asker, life = key
        if registrar != self._me:
            infos = proc(keys.EVENT_AFFECTED_PROC, asker), size(LIFE, life), flag(keys.EVENT_DO_NOT_CACHE), *verdict
            self._say(VERDICT, name, (registrar,), infos)
            return
        group, requests = self._standing.group(name), self._requests.get(name)
        active = requests.active if requests is not None else None
        if group is not None and requests is not None and active is not None and (active.proc, active.life) == key[1:]:
            self._verdict(group, requests, active, self._me, verdict)

    # What changes

    def _changed(self, change: GroupChange) -> None:
        name = change.state.name
        group, requests = self._standing.group(name), self._requests.get(name)
        if group is None:
            self._is_over(change, requests)
            return
        for key in [key for key in self._opinions if change.kind == JOINED and key[:2] == (name, change.procs[0])]:
            asked = [each for each in self._opinions.pop(key).registrars if each != self._me]
            if asked:
                self._say(
                    KNOWN,
                    name,
                    asked,
                    (proc(keys.EVENT_AFFECTED_PROC, key[1]), size(LIFE, key[2]), flag(keys.EVENT_DO_NOT_CACHE)),
                )
        if requests is None:
            if not group.membership.admitted or not self._is_registrar(group):
                return
            requests = self._requests_for(name)
        active = requests.active
        if active is not None and (active.waiting or active.unaware) and change.kind not in (JOINED, LED):
            active.waiting.difference_update(change.procs)
            if active.unaware:
                active.unaware.difference_update(change.procs)
            self._check(group, requests, active)
        if self._standing.group(name) is group and self._is_registrar(group):
            self._pass_on(group, requests, change)
            self._go_on(group, requests)

    def _is_over(self, change: GroupChange, requests: _Requests | None) -> None:
        """This process has left the group, or it is destructed: requests are passed to other members, or refused."""
        name = change.state.name
        for key in [key for key in self._opinions if key[0] == name]:
            del self._opinions[key]
        if requests is None:
            return
        del self._requests[name]
        self._quiet(requests.active)
        waiting = [*requests.queue.values()]
        active = requests.active
        if active is not None and (active.unaware is not None or active.proc not in change.state.members):
            waiting.append(active)
        for candidate in waiting:
            if change.kind == DESTRUCTED:
                self._refuse(
                    name, candidate.proc, candidate.life, ERR_NOT_FOUND, f"the group {name!r} no longer exists"
                )
            else:
                infos = size(LIFE, candidate.life), procs(keys.GROUP_MEMBERSHIP, change.state.members)
                self._say(TURN, name, (candidate.proc,), infos)

    def _ended(self, ended: Proc) -> None:
        for name, requests in list(self._requests.items()):
            group = self._standing.group(name)
            if group is not None:
                self._forget(group, requests, ended)
        for key in [key for key in self._opinions if key[1] == ended]:
            del self._opinions[key]

    # What is passed on

    def _pass_on(self, group: Group, requests: _Requests, change: GroupChange) -> None:
        """As the registrar, tell the admitted members of changes that they may have missed."""
        admitted, name = group.membership.admitted, group.name
        new, requests.passed_on = not requests.passed_on, True
        to = [member for member in admitted if member != self._me]
        if not to or self._taking_in == (name, *change.procs):
            return
        infos = [size(TERM, group.term)]
        if group.leader is not None:
            infos.append(proc(keys.GROUP_LEADER, group.leader))
        gone: Iterable[Proc] = ()
        if new or change.kind == JOINED:
            infos += [
                procs(ADDED, admitted),
                sizes(PLACE, [admission.place for admission in admitted.values()]),
                sizes(LIFE, [admission.life for admission in admitted.values()]),
            ]
            gone = group.membership.departed
        elif change.kind != LED:
            gone = change.procs
        ended = [each for each in gone if self._standing.has_ended(each)]
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
        added, places, lives = listed(infos, ADDED), numbers(infos, PLACE), numbers(infos, LIFE)
        if len(added) == len(places) == len(lives):
            for each, place, life in zip(added, places, lives, strict=True):
                if each != self._me:
                    self._standing.admit(group, each, Admission(place, life))
        left, ends = listed(infos, DEPARTED), numbers(infos, LIVES)
        if len(left) == len(ends):
            for each, life in zip(left, ends, strict=True):
                if each != self._me:
                    self._standing.dismiss(group, each, life)
        # A pypmix server reports each end itself. Members on a disconnected server may report living ones as ended.
        for each in () if self._port.adapts else listed(infos, ENDED):
            if each != self._me:
                self._standing.fail(group, each)
        self._standing.led(group.name, next(iter(listed(infos, keys.GROUP_LEADER)), None), number(infos, TERM) or 0)

    # What all of it needs

    def _group_of(self, event: Notification) -> Group | None:
        group: Group | None = self._standing.group(named(event))
        return group

    def _say(self, says: str, name: str, to: Iterable[Proc], infos: Iterable[Info]) -> None:
        self._port.submit(say(says, name, to, infos), ignore)


def _verdict(status: int, results: tuple[Info, ...]) -> tuple[Info, ...]:
    """Return what handlers have decided: they refuse by an error, in their status or as `ERROR_STATUS`."""
    statuses = [info.value.data for info in results if info.value.type == codes.STATUS or info.key == ERROR_STATUS]
    for each in (*statuses, status):
        if isinstance(each, int) and each < 0 and not EVENT_ACTION_COMPLETE <= each <= EVENT_NO_ACTION_TAKEN:
            reason = found(results, REASON, str) or ""
            return Info(ERROR_STATUS, Value(codes.STATUS, each)), text(REASON, reason)
    return ()
