"""Asking to join an existing group, as in the early draft.

The server is asked for the members. If it does not know the group, or its list is outdated, all processes of the
session are asked. The first living member, the registrar, asks the others to approve (`admitting`). Any other member
that is asked names the members instead. If the registrar ends or leaves, the next one is asked. That one recognizes a
proc that was admitted before by the number of its request, so nothing is asked or admitted twice.
"""

from __future__ import annotations

from itertools import count

from pypmix.engine.common import ignore
from pypmix.engine.groups.membership import Admission
from pypmix.engine.groups.standing import said_in
from pypmix.engine.groups.states import Request as States
from pypmix.engine.groups.talk import (
    ADDED,
    DEPARTED,
    EPOCH,
    INFOS,
    LIFE,
    LIVES,
    PLACE,
    REASON,
    SAYS,
    TERM,
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
    status_in,
    text,
)
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, NotSupported, OperationTimeout, PMIxError, error_for
from pypmix.standard.ops import GroupResults, Notification, NotifyEvent, QueryInfo
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION
from pypmix.standard.types import RANK_VALID, DataArray, Info, Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.base import Done
    from pypmix.engine.groups.agent import Agent
    from pypmix.engine.groups.port import Timer
    from pypmix.standard.ops import GroupRequest
    from pypmix.standard.types import Proc


ASK = "admit ask"
"""To the registrar: the sender wants to join, by its request `LIFE`; those of `DEPARTED` it knows not to be members."""

SEEK = "admit seek"
"""To all of the session: which procs are the members?"""

WITHDRAW = "admit withdraw"
"""To the registrar: the sender withdraws its request `LIFE`."""

TAKEN = "request taken"
"""To the asking proc: the sender will answer."""

TURN = "request turn"
"""To the asking proc: ask another of these members. There are none if the sender is not a member itself."""

HERE = "request here"
"""To the seeking proc: the sender is a member, and these are all members."""

ANSWER = "request answer"
"""To the asking proc: it is a member now, or an `ERROR_STATUS` if it was refused."""

SILENCE = 5.0
"""Seconds without any message after which a process is taken for one that does not know these messages."""

MAX_TURNS = 256
"""The most times that a request is passed on to another member."""

_lives = count(1)
"""Numbers for the requests of this process, for all of its sessions."""


class _Request:
    """A request of this process that is under way."""

    def __init__(self, op: GroupRequest, done: Done[GroupResults]) -> None:
        self.op = op
        self.name = op.group
        self.done = done
        self.number = next(_lives)
        self.state = States.START
        self.candidates: tuple[Proc, ...] = ()
        """The supposed members, the registrar first."""
        self.out: dict[Proc, None] = {}
        """Procs that are not members by their own word, or have ended."""
        self.mute: dict[Proc, None] = {}
        """Members that do not answer."""
        self.asked: Proc | None = None
        self.sought = False
        self.turns = 0
        self.timer: Timer | None = None
        self.limit: Timer | None = None

    def step(self, what: str) -> None:
        """Take a step of its state machine."""
        self.state = States.step(self.state, what)


class Requesting:
    """The requests of one session: `agent.part("requesting", "Requesting")`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._me = agent.port.proc
        self._requests: dict[str, _Request] = {}
        for says, listener in (
            (TAKEN, self._taken),
            (TURN, self._turned_away),
            (HERE, self._found),
            (ANSWER, self._answered),
        ):
            agent.hear(says, listener)
        agent.standing.follow(self._ended)

    def asks(self, name: str) -> bool:
        """Tell whether a request for a group of this name is under way."""
        return name in self._requests

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._requests

    def start(self, op: GroupRequest, done: Done[GroupResults]) -> None:
        """Carry out a `GroupRequest`."""
        name = op.group
        taken = self._agent.taken(name)
        if not taken and self._agent.standing.expects(name):
            taken = f"the caller takes part in making a group {name!r}"
        if taken:
            done(None, PMIxError(taken, status=statuses.ERR_EXISTS))
            return
        request = self._requests[name] = _Request(op, done)
        self._agent.standing.expected(name)
        limit = found(op.directives, keys.TIMEOUT, int) or 0
        if limit > 0:
            request.limit = self._port.later(limit, lambda: self._expire(request, limit))

        def told(infos: tuple[Info, ...] | None, error: BaseException | None) -> None:
            if self._is_under_way(request):
                request.candidates = listed(infos or (), keys.QUERY_GROUP_MEMBERSHIP)
                self._ask_next(request)

        self._port.submit(QueryInfo((Query((keys.QUERY_GROUP_MEMBERSHIP,), (text(keys.GROUP_ID, name),)),)), told)

    def lost(self, error: BaseException | None) -> None:
        """The session is over."""
        for request in list(self._requests.values()):
            gone = error or PMIxError("the session was closed while this was under way")
            self._end(request, None, gone, States.FAILS)

    # Whom to ask

    def _ask_next(self, request: _Request) -> None:
        self._quiet(request)
        ended = self._agent.standing.has_ended
        to = next(
            (
                each
                for each in request.candidates
                if each not in request.out and each != self._me and each.rank <= RANK_VALID and not ended(each)
            ),
            None,
        )
        request.asked = to
        request.turns += 1
        if to is None or to in request.mute or request.turns > MAX_TURNS:
            # If the first one does not answer, the others would wait for it.
            self._seek(request)
            return
        request.step(States.TURNS)
        out = [*request.out, *[each for each in request.candidates if ended(each)]]
        infos = (size(LIFE, request.number), *said_in(request.op.directives))
        if out:
            infos = (*infos, procs(DEPARTED, out))
        request.timer = self._port.later(SILENCE, lambda: self._is_silent(request, to))
        self._send(request, say(ASK, request.name, (to,), infos))

    def _seek(self, request: _Request) -> None:
        if request.sought:
            self._give_up(request)
            return
        request.step(States.SEEKS_OTHERS)
        request.sought = True
        request.asked = None
        request.candidates = ()
        request.turns = 0
        infos = text(SAYS, SEEK), text(keys.GROUP_ID, request.name), flag(keys.EVENT_NON_DEFAULT)
        request.timer = self._port.later(SILENCE, lambda: self._ask_next(request))
        self._send(request, NotifyEvent(statuses.TALK, RANGE_SESSION, infos))

    def _send(self, request: _Request, op: NotifyEvent) -> None:
        def sent(_: None, error: BaseException | None) -> None:
            if error is not None and self._is_under_way(request):
                self._end(request, None, error, States.FAILS)

        self._port.submit(op, sent)

    def _give_up(self, request: _Request) -> None:
        name = request.name
        error: PMIxError = NotFound(f"no process is in a group {name!r}")
        if request.mute:
            error = NotSupported(
                f"the members of {name!r} do not answer requests to join",
                hint="only processes that use pypmix do; they can invite you as well",
            )
        self._end(request, None, error, States.FINDS_NONE)

    def _is_silent(self, request: _Request, asked: Proc) -> None:
        request.timer = None
        request.mute[asked] = None
        self._seek(request)

    def _quiet(self, request: _Request) -> None:
        if request.timer is not None:
            request.timer.cancel()
            request.timer = None

    def _ended(self, ended: Proc) -> None:
        for request in list(self._requests.values()):
            if request.asked == ended:
                request.out[ended] = None
                self._ask_next(request)

    # What the members say

    def _request_of(self, event: Notification) -> _Request | None:
        """Return the request that a member's message is about."""
        request = self._requests.get(named(event))
        if request is None or number(event.infos, LIFE) != request.number:
            return None
        return request

    def _taken(self, event: Notification) -> None:
        request = self._request_of(event)
        if request is not None and event.source == request.asked and request.state == States.ASKS:
            request.step(States.ACKNOWLEDGES)
            self._quiet(request)

    def _turned_away(self, event: Notification) -> None:
        request = self._request_of(event)
        if request is None or event.source != request.asked:
            return
        members = listed(event.infos, keys.GROUP_MEMBERSHIP)
        if members:
            request.candidates = members
        if not members or event.source not in members:
            request.out[event.source] = None
        self._ask_next(request)

    def _found(self, event: Notification) -> None:
        request = self._requests.get(named(event))
        members = listed(event.infos, keys.GROUP_MEMBERSHIP)
        if request is None or not request.sought or event.source not in members:
            return
        request.out.pop(event.source, None)
        request.mute.pop(event.source, None)
        if request.state == States.SEEKS:
            request.candidates = members
            self._ask_next(request)

    def _answered(self, event: Notification) -> None:
        name, infos = named(event), event.infos
        status, members = status_in(infos), listed(infos, keys.GROUP_MEMBERSHIP)
        request = self._request_of(event)
        if request is None:
            if status == statuses.SUCCESS and self._me in members:
                self._decline(name, number(infos, LIFE) or 0, members)
        elif event.source in (request.asked, *request.out, *request.candidates):
            if status == statuses.SUCCESS:
                self._joins(request, members, infos)
            elif event.source == request.asked:
                reason = found(infos, REASON, str) or "the members have refused it"
                error = error_for(status)(reason, status=status, procs=(event.source,))
                self._end(request, None, error, States.REFUSES)

    def _joins(self, request: _Request, members: tuple[Proc, ...], infos: tuple[Info, ...]) -> None:
        added, places, lives = listed(infos, ADDED), numbers(infos, PLACE), numbers(infos, LIVES)
        if self._me not in members or not len(added) == len(places) == len(lives):
            return
        others = found(infos, INFOS, DataArray)
        results = self._agent.standing.formed(
            request.name,
            members,
            context_id=number(infos, keys.GROUP_CONTEXT_ID),
            leader=next(iter(listed(infos, keys.GROUP_LEADER)), None),
            infos=() if others is None else tuple([info for info in others.items if isinstance(info, Info)]),
            directives=(flag(keys.GROUP_NOTIFY_TERMINATION, is_set(infos, keys.GROUP_NOTIFY_TERMINATION)),),
            admitted=dict(zip(added, map(Admission, places, lives), strict=True)),
            epoch=number(infos, EPOCH) or 1,
            term=number(infos, TERM) or 0,
        )
        self._end(request, results, None, States.TAKES_IN)

    def _decline(self, name: str, life: int, members: tuple[Proc, ...]) -> None:
        """Leave a group that has admitted this process too late, unless it is in that group by a later request."""
        group = self._agent.standing.group(name)
        others = [member for member in members if member != self._me]
        if others and (group is None or group.membership.life(self._me) != life):
            infos = (
                procs(keys.EVENT_CUSTOM_RANGE, others),
                proc(keys.EVENT_AFFECTED_PROC, self._me),
                text(keys.GROUP_ID, name),
                size(LIFE, life),
            )
            self._port.submit(NotifyEvent(statuses.GROUP_LEFT, RANGE_CUSTOM, infos), ignore)

    # The end

    def _expire(self, request: _Request, limit: int) -> None:
        request.limit = None
        if request.asked is not None:
            said = say(WITHDRAW, request.name, (request.asked,), (size(LIFE, request.number),))
            self._port.submit(said, ignore)
        error = OperationTimeout(f"the members have not decided within {limit} s")
        self._end(request, None, error, States.EXPIRES)

    def _is_under_way(self, request: _Request) -> bool:
        return self._requests.get(request.name) is request

    def _end(self, request: _Request, results: GroupResults | None, error: BaseException | None, what: str) -> None:
        request.step(what)
        del self._requests[request.name]
        self._quiet(request)
        if request.limit is not None:
            request.limit.cancel()
        if error is not None:
            self._agent.standing.abandoned(request.name)
        request.done(results, error)
