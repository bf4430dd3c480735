"""Requests to join an existing group: the messages, and the decisions of the asking proc and of the members.

The first member, the registrar, handles one request at a time. It asks all members, whose programs approve or refuse,
and admits the proc when all have approved. A member that sends nothing within the patience, since it has not entered
its `Admission` or uses another library, counts as approving. If the registrar leaves or ends, the asking proc asks the
next member; members remember their verdicts, so that their programs decide once.
"""

from __future__ import annotations

from itertools import count
from time import monotonic

from pypmix.engine.common import ignore
from pypmix.engine.groups.foreign import ENDS, FURTHER_ENDS
from pypmix.engine.groups.standing import said_in
from pypmix.engine.groups.talk import (
    ERROR_STATUS,
    REASON,
    event,
    flag,
    found,
    listed,
    named,
    number,
    proc,
    procs,
    size,
    status_in,
    text,
)
from pypmix.events import Answer, Event
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, NotSupported, OperationTimeout, PMIxError, error_for
from pypmix.standard.ops import GroupChange, GroupLeave, Notification, NotifyEvent, RegisterEventHandler
from pypmix.standard.ops.groups import DESTRUCTED
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION
from pypmix.standard.types import RANK_VALID, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.engine.base import Delivery, Done
    from pypmix.group import GroupView
    from pypmix.standard.ops import GroupResults, GroupState, Op

SAYS = "pypmix.grp.request"
"""The kind of a message, one of these."""

ASK = "ask"
"""To the registrar: the sender wants to join; it knows that the procs under `OUT` are not members."""

SEEK = "seek"
"""To all of the session: which procs are the members?"""

WITHDRAW = "withdraw"
"""To the registrar: the sender no longer wants to join."""

TAKEN = "taken"
"""To the asking proc: the sender will answer."""

TURN = "turn"
"""To the asking proc: ask another of these members. The list is empty if the sender is not a member itself."""

HERE = "here"
"""To the seeking proc: the sender is a member, and these are all members."""

REFUSED = "refused"
"""To the asking proc: it is not admitted, for the `ERROR_STATUS`."""

AT_IT = "at it"
"""To the registrar: the sender's program is considering the request."""

VERDICT = "verdict"
"""To the registrar: the sender's program approves, or not for the `ERROR_STATUS`."""

NUMBER = "pypmix.grp.request.number"
"""The number of the asking proc's request."""

OUT = "pypmix.grp.request.out"

NEVER = float("inf")

MAX_REQUESTS = 1024
"""The most requests that one registrar keeps waiting."""

MAX_OPINIONS = 256
"""The most verdicts that are remembered, for the case that another registrar asks for them again."""

MAX_TURNS = 256
"""The most times that a request is passed on to another member."""

_numbers = count(1)

_TOLD = (statuses.JOIN_TALK, *ENDS, *FURTHER_ENDS)

Key = tuple[Proc, int]


def tell(says: str, group: str, to: Proc, infos: Iterable[Info] = ()) -> NotifyEvent:
    """Return a message to one proc."""
    return event(statuses.JOIN_TALK, group, (to,), (text(SAYS, says), flag(keys.EVENT_DO_NOT_CACHE), *infos))


class Asking:
    """A request of this process: which member to ask next.

    Args:
        own: This process.
        name: The group's name.
        infos: The infos of the request, in which the program describes itself.
        patience: Seconds after which a silent proc is assumed not to know these messages.
    """

    def __init__(self, caller: Proc, name: str, infos: tuple[Info, ...], patience: float) -> None:
        self._own = caller
        self._name = name
        self._infos = said_in(infos)
        self._patience = patience
        self._number = next(_numbers)
        self._candidates: tuple[Proc, ...] = ()
        """The supposed members, the registrar first."""
        self._trusted: set[Proc] = set()
        self._out: set[Proc] = set()
        """Procs that are not members by their own word, or have ended."""
        self._mute: set[Proc] = set()
        """Members that do not answer."""
        self._asked: Proc | None = None
        self._sought = False
        self._turns = 0
        self.until = NEVER
        """When it has waited long enough for a word of the asked proc."""
        self.waits = True
        """Whether this process still waits to be admitted."""
        self.results: GroupResults | None = None
        """The results of the wait, once this process was admitted."""

    def trusts(self, proc: Proc) -> bool:
        """Return True if a proc may admit this one: the server, or a member, has named it as a member."""
        return proc in self._trusted

    def entering(self, put: Callable[[BaseException | None], None]) -> Done[GroupResults]:
        """Return the callback for the end of the wait to be admitted; it passes the error, or None, to `put`."""

        def finish(results: GroupResults | None, error: BaseException | None) -> None:
            self.waits, self.results = False, results
            put(error)

        return finish

    def begin(self, members: tuple[Proc, ...]) -> NotifyEvent:
        """Return the first message.

        Args:
            members: The members that the server has named.
        """
        self._note_members(members)
        return self._next()

    def silent(self) -> NotifyEvent:
        """Return the next message, as no answer has arrived in time."""
        if self._asked is not None:
            self._mute.add(self._asked)
            return self._seek()
        return self._next()

    def take(self, event: Notification) -> NotifyEvent | None:
        """Handle an event, and return the next message; None if no message follows.

        Raises:
            PMIxError: The request is refused, or no member is left to ask.
        """
        if event.code != statuses.JOIN_TALK:
            ended = _exited_procs(event)
            self._out.update(ended)
            return self._next() if self._asked in ended else None
        says, members = found(event.infos, SAYS, str), listed(event.infos, keys.GROUP_MEMBERSHIP)
        if named(event) != self._name:
            return None
        if says == HERE:
            return self._here(event.source, members)
        if event.source != self._asked or number(event.infos, NUMBER) != self._number:
            return None
        if says == TAKEN:
            self.until = NEVER
        elif says == TURN:
            if members:
                self._note_members(members)
            if event.source not in members:
                self._out.add(event.source)
            return self._next()
        elif says == REFUSED:
            status = status_in(event.infos) or statuses.ERROR
            reason = found(event.infos, REASON, str) or "the members have refused it"
            self._asked = None
            raise error_for(status)(
                reason, operation="group_request", status=status, procs=(event.source,), job=self._own.nspace
            )
        return None

    def explain(self, error: BaseException) -> BaseException:
        """Return the error of a request whose wait to be admitted has failed."""
        unknown = self._sought and self._asked is None and not self._mute
        if isinstance(error, OperationTimeout) and unknown:
            # Neither the server nor any process has named a member.
            return NotFound(f"no process is in a group {self._name!r}", operation="group_request")
        return error

    def withdrawals(self) -> list[Op[None]]:
        """Return the operations that withdraw the request."""
        ops: list[Op[None]] = []
        if self._asked is not None:
            ops.append(tell(WITHDRAW, self._name, self._asked, (size(NUMBER, self._number),)))
        if self.waits or self.results is not None:
            ops.append(GroupLeave(self._name))
        return ops

    def _note_members(self, members: tuple[Proc, ...]) -> None:
        self._candidates = members
        self._trusted.update(members)

    def _here(self, source: Proc, members: tuple[Proc, ...]) -> NotifyEvent | None:
        if not self._sought or source not in members:
            return None
        self._out.discard(source)
        self._mute.discard(source)
        if self._asked is not None:
            return None
        self._note_members(members)
        return self._next()

    def _next(self) -> NotifyEvent:
        left = (each for each in self._candidates if each not in self._out and each.rank <= RANK_VALID)
        to = next((each for each in left if each != self._own), None)
        self._turns += 1
        if to is None or to in self._mute or self._turns > MAX_TURNS:
            # If the first one does not answer, the others would wait for it.
            return self._seek()
        self._asked, self.until = to, monotonic() + self._patience
        infos = size(NUMBER, self._number), procs(OUT, self._out), *self._infos
        return event(statuses.JOIN_TALK, self._name, (to,), (text(SAYS, ASK), *infos))

    def _seek(self) -> NotifyEvent:
        self._asked = None
        if self._sought:
            error: PMIxError = NotFound(f"no process is in a group {self._name!r}", operation="group_request")
            if self._mute:
                error = NotSupported(
                    f"the members of {self._name!r} do not answer requests to join",
                    operation="group_request",
                    hint="they have to enter an `Admission` of pypmix.recipes.admission, or can invite you",
                )
            raise error
        self._sought, self._candidates, self._turns = True, (), 0
        self.until = monotonic() + self._patience
        infos = text(SAYS, SEEK), text(keys.GROUP_ID, self._name), flag(keys.EVENT_NON_DEFAULT)
        return NotifyEvent(statuses.JOIN_TALK, RANGE_SESSION, infos)

    @staticmethod
    def listening(receive: Callable[[Notification], None]) -> RegisterEventHandler:
        """Return the registration of a handler for the members' messages and for the ends of procs."""

        def handler(delivery: Delivery) -> None:
            receive(delivery.notification)
            delivery.done()

        return RegisterEventHandler(handler, _TOLD)


class _Candidate:
    """A proc that wants to join.

    Attributes:
        waiting: The deadline of each member that has not approved yet.
    """

    def __init__(self, proc: Proc, number: int, infos: tuple[Info, ...]) -> None:
        self.proc = proc
        self.number = number
        self.infos = infos
        self.waiting: dict[Proc, float] = {}

    @property
    def about(self) -> tuple[Info, ...]:
        """The infos that identify the request in messages between members."""
        return _request(self.proc, self.number)


class Requests:
    """The requests for one group at one of its members.

    Args:
        group: The group.
        patience: Seconds after which a silent member counts as approving.
    """

    def __init__(self, group: GroupView, patience: float) -> None:
        self._group = group
        self._name = group.name
        self._own: Proc = group.membership.port.session.proc
        self._patience = patience
        self._queue: dict[Proc, _Candidate] = {}
        self._active: _Candidate | None = None
        self._opinions: dict[Key, tuple[dict[Proc, None], list[tuple[Info, ...]]]] = {}
        """The members that have asked about a request, and the verdict once the program has decided."""

    # On any thread

    def listening(
        self, receive: Callable[[Notification], None], deliver: Callable[[Delivery], None], at_end: Any
    ) -> RegisterEventHandler:
        """Return the registration of a handler for messages, and for requests that this process's program decides.

        Args:
            receive: Called with each event for `take`.
            deliver: Called with each request that the program has to decide.
            at_end: Called once when no further event can arrive.
        """

        def handler(delivery: Delivery) -> None:
            event = delivery.notification
            if event.code == statuses.JOIN_REQUEST and named(event) == self._name and self._is_to_decide(event):
                deliver(delivery)
                return
            if event.code not in (statuses.JOIN_TALK, statuses.JOIN_REQUEST):
                receive(event)
            elif named(event) == self._name and event.code == statuses.JOIN_TALK:
                # At once, however long an admission takes.
                reply = self._reply(event)
                if reply is not None:
                    self._send(reply)
                receive(event)
            delivery.done()

        return RegisterEventHandler(handler, (statuses.JOIN_REQUEST, *_TOLD), (), at_end)

    def _state(self) -> GroupState | None:
        state: GroupState | None = self._group.membership.port.session.group_state(self._name)
        return state

    def _send(self, op: NotifyEvent) -> None:
        self._group.membership.port.session.submit(op, ignore)

    def _reply(self, event: Notification) -> NotifyEvent | None:
        says, state = found(event.infos, SAYS, str), self._state()
        members = () if state is None else state.members
        if says == SEEK and self._own in members[:3]:
            # The registrar may be about to end, so that the next ones answer as well.
            return tell(HERE, self._name, event.source, (procs(keys.GROUP_MEMBERSHIP, members),))
        if says != ASK:
            return None
        about = size(NUMBER, number(event.infos, NUMBER) or 0)
        if self._is_for_us(event, members):
            return tell(TAKEN, self._name, event.source, (about,))
        return tell(TURN, self._name, event.source, (about, procs(keys.GROUP_MEMBERSHIP, members)))

    def _is_for_us(self, event: Notification, members: tuple[Proc, ...]) -> bool:
        """Return True if this process is the registrar: the first member that the asking proc does not know as lost."""
        out = listed(event.infos, OUT)
        return next((member for member in members if member not in out), None) == self._own

    def _is_to_decide(self, event: Notification) -> bool:
        """Return True if the program has to decide on a request; answer the registrar if it decided or is deciding."""
        state, asker, number_ = (
            self._state(),
            listed(event.infos, keys.EVENT_AFFECTED_PROC),
            number(event.infos, NUMBER),
        )
        if state is None or event.source not in state.members or len(asker) != 1 or number_ is None:
            return False
        key = asker[0], number_
        new = key not in self._opinions
        registrars, verdict = self._opinions.setdefault(key, ({}, []))
        if len(self._opinions) > MAX_OPINIONS:
            del self._opinions[next(iter(self._opinions))]
        registrars[event.source] = None
        about = _request(*key)
        says, more = (VERDICT, verdict[0]) if verdict else (AT_IT, ())
        self._send(tell(says, self._name, event.source, (*about, *more)))
        return new

    def request(self, event: Event) -> Event:
        """Return a request as the program gets it: an event of the asking proc."""
        return Event(Notification(statuses.JOIN_REQUEST, event.affected[0], RANGE_CUSTOM, event.infos))

    def decided(self, event: Event, verdict: tuple[Info, ...]) -> None:
        """Send the program's verdict to all registrars that have asked for it."""
        key = event.affected[0], number(event.infos, NUMBER) or 0
        registrars, verdicts = self._opinions.get(key, ({}, []))
        verdicts.append(verdict)
        about = _request(*key)
        for each in list(registrars):
            self._send(tell(VERDICT, self._name, each, (*about, *verdict)))

    # One after the other

    @property
    def until(self) -> float:
        """The deadline of the next silent member."""
        return NEVER if self._active is None else min(self._active.waiting.values(), default=NEVER)

    @property
    def approved(self) -> Proc | None:
        """The proc that all members have approved."""
        active = self._active
        return active.proc if active is not None and not active.waiting and self._state() is not None else None

    def take(self, item: Notification | GroupChange | None) -> None:
        """Handle an event, a change of the group, or, for None, the passing of a deadline."""
        if isinstance(item, GroupChange):
            self._changed(item)
        elif item is None:
            if self._active is not None:
                now, waiting = monotonic(), self._active.waiting
                self._active.waiting = {each: waiting[each] for each in waiting if waiting[each] > now}
        elif item.code != statuses.JOIN_TALK:
            for each in _exited_procs(item):
                self._forget(each)
        else:
            self._handle_message(item, found(item.infos, SAYS, str), number(item.infos, NUMBER))
        self._go_on()

    def done(self, error: PMIxError | None) -> None:
        """Complete the approved request: the proc was admitted, or could not be."""
        if self._active is not None and self._state() is not None:
            if error is not None:
                self._refuse(self._active, error.code or statuses.ERROR, str(error))
            self._active = None
            self._go_on()

    def end(self) -> None:
        """Refuse all requests, since this process leaves its `Admission`."""
        self._answer_all(lambda each: self._refuse(each, statuses.ERR_NOT_SUPPORTED, "a member takes no requests"))

    def _handle_message(self, event: Notification, says: str | None, number: int | None) -> None:
        state, active = self._state(), self._active
        if says == ASK and state is not None and number is not None:
            if not self._is_for_us(event, state.members) or (active and self._is(active, event.source, number)):
                return
            self._forget(event.source)
            candidate = _Candidate(event.source, number, said_in(event.infos))
            if len(self._queue) < MAX_REQUESTS:
                self._queue[event.source] = candidate
            else:
                self._refuse(candidate, statuses.ERR_RESOURCE_BUSY, "too many others want to join")
        elif says == WITHDRAW:
            self._forget(event.source, number)
        elif active is not None and active.about == _about(event):
            self._verdict(active, event, says)

    def _verdict(self, active: _Candidate, event: Notification, says: str | None) -> None:
        if event.source not in active.waiting:
            return
        if says == AT_IT:
            active.waiting[event.source] = NEVER
        elif says == VERDICT:
            status = status_in(event.infos)
            if status == statuses.SUCCESS:
                del active.waiting[event.source]
            else:
                self._refuse(active, status, found(event.infos, REASON, str) or "")
                self._active = None

    @staticmethod
    def _is(candidate: _Candidate, proc: Proc, number: int) -> bool:
        return (candidate.proc, candidate.number) == (proc, number)

    def _forget(self, asker: Proc, number: int | None = None) -> None:
        """Remove the requests of a proc that no longer wants to join, or the one that it withdraws."""
        queued, active = self._queue.get(asker), self._active
        if queued is not None and number in (None, queued.number):
            del self._queue[asker]
        if active is not None and active.proc == asker and number in (None, active.number):
            self._active = None

    def _go_on(self) -> None:
        """Put the next request to all members, if this process is the first of them."""
        state = self._state()
        if self._active is not None or not self._queue or state is None or state.members[0] != self._own:
            return
        active = self._active = self._queue.pop(next(iter(self._queue)))
        asked = [member for member in state.members if member != active.proc]
        active.waiting = dict.fromkeys(asked, monotonic() + self._patience)
        self._send(event(statuses.JOIN_REQUEST, self._name, asked, (*active.about, *active.infos)))

    def _changed(self, change: GroupChange) -> None:
        members = change.state.members
        if change.kind == DESTRUCTED:
            gone = f"the group {self._name!r} no longer exists"
            self._answer_all(lambda each: self._refuse(each, statuses.ERR_NOT_FOUND, gone))
        elif self._own not in members:
            named = procs(keys.GROUP_MEMBERSHIP, members)
            self._answer_all(
                lambda each: self._send(tell(TURN, self._name, each.proc, (size(NUMBER, each.number), named)))
            )
        elif self._active is not None:
            waiting = self._active.waiting
            self._active.waiting = {each: waiting[each] for each in waiting if each in members}

    def _answer_all(self, answer: Callable[[_Candidate], None]) -> None:
        for each in [*filter(None, (self._active,)), *self._queue.values()]:
            answer(each)
        self._active = None
        self._queue.clear()

    def _refuse(self, candidate: _Candidate, status: int, reason: str) -> None:
        infos = size(NUMBER, candidate.number), *refusal(status, reason)
        self._send(tell(REFUSED, self._name, candidate.proc, infos))


def verdict_of(returned: object) -> tuple[Info, ...]:
    """Return the program's verdict: it refuses by an error, in the status of its answer or as `ERROR_STATUS`."""
    if returned is None:
        return ()
    if not isinstance(returned, Answer):
        raise TypeError(f"a request is answered by ev.done(), ev.refuse() or None, not {returned!r:.100}")
    given = [info.value.data for info in returned.results if info.key == ERROR_STATUS]
    for each in (*given, returned.status):
        if each < 0 and not statuses.EVENT_ACTION_COMPLETE <= each <= statuses.EVENT_NO_ACTION_TAKEN:
            return refusal(each, found(returned.results, REASON, str) or "")
    return ()


def refusal(status: int, reason: str) -> tuple[Info, ...]:
    """Return the verdict that refuses a request."""
    return Info(ERROR_STATUS, Value(codes.STATUS, status)), text(REASON, reason)


def _request(asker: Proc, number: int) -> tuple[Info, ...]:
    """Return the infos that identify a request in messages between members."""
    return proc(keys.EVENT_AFFECTED_PROC, asker), size(NUMBER, number)


def _about(event: Notification) -> tuple[Info, ...]:
    asker, number_ = listed(event.infos, keys.EVENT_AFFECTED_PROC), number(event.infos, NUMBER)
    return _request(asker[0], number_) if len(asker) == 1 and number_ else ()


def _exited_procs(event: Notification) -> tuple[Proc, ...]:
    return (*listed(event.infos, keys.EVENT_AFFECTED_PROC), *listed(event.infos, keys.EVENT_AFFECTED_PROCS))
