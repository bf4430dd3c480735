"""Leaving a group with the consent of the other members, as the RFC's early draft has it.

All are told of the wish (`LEAVE_REQUEST`), and each confirms when its handlers have ended: they finish what they do
with the leaver, and cannot keep it. Who ends or leaves has confirmed.
"""

from __future__ import annotations

from pypmix.engine.common import ignore
from pypmix.engine.groups.talk import LIFE, flag, found, named, number, proc, say, size, text
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, OperationTimeout, PMIxError
from pypmix.standard.ops import Notification
from pypmix.standard.ops.groups import DESTRUCTED, JOINED
from pypmix.standard.ops.publishing import RANGE_CUSTOM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.base import Done
    from pypmix.engine.groups.agent import Agent
    from pypmix.engine.groups.port import Timer
    from pypmix.engine.groups.standing import Group
    from pypmix.standard.ops import GroupChange
    from pypmix.standard.types import Info, Proc

ASK = "consent ask"
"""To all: the sender wants to leave; `LIFE` is its number for that."""

AT_IT = "consent at it"
"""To who wants to leave: the sender's handlers are at it."""

GIVEN = "consent given"
"""To who wants to leave: the sender's handlers have ended."""

SILENCE = 5.0
"""After how many seconds a member that says nothing at all is taken for one that does not speak."""


class _Wish:
    """To leave a group."""

    def __init__(self, number: int, waiting: set[Proc], done: Done[None]) -> None:
        self.number = number
        self.waiting = waiting
        self.at_it: set[Proc] = set()
        self.done = done
        self.timer: Timer | None = None
        self.limit: Timer | None = None


class Consenting:
    """The requests of members to leave with consent: `agent.consenting`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._me = agent.port.proc
        self._wishes: dict[str, _Wish] = {}
        self._last = 0
        agent.hear(ASK, self._asked)
        agent.hear(AT_IT, self._is_at_it)
        agent.hear(GIVEN, self._gives)
        agent.standing.observe(self._changed)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._wishes

    def ask(self, group: Group, directives: tuple[Info, ...], done: Done[None]) -> None:
        """Ask all other members; `done` is called when they have confirmed, or with an error."""
        others = [member for member in group.membership.members if member != self._me]
        if not others:
            done(None, None)
            return
        self._last += 1
        wish = self._wishes[group.name] = _Wish(self._last, set(others), done)
        wish.timer = self._port.later(SILENCE, lambda: self._has_waited(group.name, wish))
        limit = found(directives, keys.TIMEOUT, int) or 0
        if limit > 0:
            wish.limit = self._port.later(limit, lambda: self._expire(group.name, wish, limit))

        def sent(_: None, error: BaseException | None) -> None:
            if error is not None and self._wishes.get(group.name) is wish:
                self._end(group.name, wish, error)

        self._port.submit(say(ASK, group.name, others, (size(LIFE, wish.number),)), sent)

    def lost(self, error: BaseException | None) -> None:
        """The session is over."""
        for name, wish in list(self._wishes.items()):
            self._end(name, wish, error or PMIxError("the session was closed while this was under way"))

    # Who wants to leave

    def _wish_of(self, event: Notification) -> tuple[str, _Wish] | None:
        name = named(event)
        wish = self._wishes.get(name)
        return None if wish is None or wish.number != number(event.infos, LIFE) else (name, wish)

    def _is_at_it(self, event: Notification) -> None:
        wish = self._wish_of(event)
        if wish is not None:
            wish[1].at_it.add(event.source)

    def _gives(self, event: Notification) -> None:
        wish = self._wish_of(event)
        if wish is not None:
            self._without(*wish, {event.source})

    def _has_waited(self, name: str, wish: _Wish) -> None:
        wish.timer = None
        self._without(name, wish, wish.waiting - wish.at_it)

    def _without(self, name: str, wish: _Wish, confirmed: set[Proc]) -> None:
        wish.waiting -= confirmed
        if not wish.waiting:
            self._end(name, wish, None)

    def _expire(self, name: str, wish: _Wish, limit: int) -> None:
        wish.limit = None
        error = OperationTimeout(f"not all members have confirmed within {limit} s", missing=wish.waiting)
        self._end(name, wish, error)

    def _changed(self, change: GroupChange) -> None:
        name = change.state.name
        wish = self._wishes.get(name)
        if wish is None or change.kind == JOINED:
            return
        if change.kind == DESTRUCTED or self._me in change.procs:
            self._end(name, wish, NotFound(f"the group {name!r} is no more"))
        elif change.procs and change.procs[0] not in change.state.members:
            self._without(name, wish, set(change.procs))

    def _end(self, name: str, wish: _Wish, error: BaseException | None) -> None:
        del self._wishes[name]
        for timer in (wish.timer, wish.limit):
            if timer is not None:
                timer.cancel()
        wish.done(None, error)

    # Who is asked

    def _asked(self, event: Notification) -> None:
        name, leaver, life = named(event), event.source, number(event.infos, LIFE)
        group = self._agent.standing.group(name)
        if life is None:
            return
        if group is None:
            if not self._agent.standing.keep(event):
                self._answer(GIVEN, name, leaver, life)
            return
        if leaver not in group.membership:
            return
        over = []

        def ended(status: int, results: tuple[Info, ...]) -> None:
            over.append(status)
            self._answer(GIVEN, name, leaver, life)

        infos = text(keys.GROUP_ID, name), proc(keys.EVENT_AFFECTED_PROC, leaver), flag(keys.EVENT_NON_DEFAULT)
        wish = Notification(statuses.LEAVE_REQUEST, leaver, RANGE_CUSTOM, infos)
        self._port.handlers.raised(wish, False, over=ended)
        if not over:
            self._answer(AT_IT, name, leaver, life)

    def _answer(self, says: str, name: str, leaver: Proc, life: int) -> None:
        self._port.submit(say(says, name, (leaver,), (size(LIFE, life), flag(keys.EVENT_DO_NOT_CACHE))), ignore)
