"""Fences of whole groups on servers that do not know groups, for members that may leave before they call."""

from __future__ import annotations

from pypmix.engine.common import TIMEOUT_GRACE
from pypmix.engine.groups.talk import found
from pypmix.standard import keys, statuses
from pypmix.standard.errors import LostConnection, NotFound, OperationTimeout, PartialSuccess, PMIxError
from pypmix.standard.naming import name_proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Done
    from pypmix.engine.groups.agent import Agent, Timer
    from pypmix.standard.ops import Fence, Notification
    from pypmix.standard.types import Proc

LOSS_GRACE = 2.0
"""Seconds in which a fence may still end after a member has left or ended: the member may have called before."""


class _Fence:
    """A fence that has not ended.

    Attributes:
        named: The members that are waited for.
        asked: The fences of the engine for it that have not ended.
        ft: Whether it continues without members that leave or end.
    """

    def __init__(self, group: str, op: Fence, done: Done[None], named: tuple[Proc, ...], ft: bool) -> None:
        self.group = group
        self.op = op
        self.done: Done[None] | None = done
        self.named = named
        self.timers: list[Timer] = []
        self.asked: list[Fence] = []
        self.ft = ft


class Fencing:
    """The fences of one session that name one group and nothing else."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._fences: list[_Fence] = []
        self._port.watch(statuses.GROUP_LEFT, self._handle_departure)
        agent.standing.follow(self._handle_exit)

    def fence(self, group: str, op: Fence, done: Done[None]) -> None:
        """Carry out a fence of all members of a group.

        With `FT_COLLECTIVE`, of the fence or of the group, a member that leaves or ends before it has called is not
        waited for; otherwise the fence fails.
        """
        standing = self._agent.standing
        given = found(op.directives, keys.GROUP_FT_COLLECTIVE, bool)
        known = standing.group(group)
        ft = (known is not None and known.ft) if given is None else given
        fence = _Fence(group, op, done, tuple(sorted(standing.members(group))), ft)
        self._fences.append(fence)
        limit = found(op.directives, keys.TIMEOUT, int) or 0
        if limit > 0:
            fence.timers.append(self._port.later(limit + TIMEOUT_GRACE, lambda: self._expire(fence, limit)))
        self._ask(fence)

    def give_up(self, op: Fence) -> None:
        """The caller of a fence no longer waits for it."""
        for fence in self._fences[:]:
            if fence.op is op:
                self._end(fence, PMIxError("the caller no longer waits for this fence"))

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended."""
        for fence in self._fences[:]:
            self._end(fence, error or LostConnection("the session was closed while this was under way"))

    def _ask(self, fence: _Fence) -> None:
        named = fence.named
        op = fence.op.replace(procs=named)

        def finish(_result: object, error: BaseException | None) -> None:
            if fence.done is None:
                return
            fence.asked.remove(op)
            if fence.ft and isinstance(error, PartialSuccess):
                # All others have called: a server completes the fences of a participant that ends.
                error = None
            if error is not None and fence.asked:
                return
            if fence.ft and isinstance(error, NotFound | LostConnection) and fence.named == named:
                # The server knows already that a participant has ended, and the event of it is on its way.
                fence.timers.append(self._port.later(LOSS_GRACE, lambda: self._end(fence, error)))
            else:
                self._end(fence, error)

        fence.asked.append(op)
        self._port.submit(op, finish)

    def _end(self, fence: _Fence, error: BaseException | None) -> None:
        if fence.done is None:
            return
        self._fences.remove(fence)
        for timer in fence.timers:
            timer.cancel()
        done, fence.done = fence.done, None
        for op in fence.asked:
            self._port.give_up(op)
        done(None, error)

    def _expire(self, fence: _Fence, limit: int) -> None:
        text = f"no answer of the server within {limit} s"
        self._end(fence, OperationTimeout(text, status=statuses.ERR_TIMEOUT, procs=fence.named))

    # Departures

    def _handle_departure(self, event: Notification) -> None:
        name = found(event.infos, keys.GROUP_ID, str)
        self._without(event.source, [fence for fence in self._fences if fence.group == name])

    def _handle_exit(self, proc: Proc) -> None:
        self._without(proc, self._fences[:])

    def _without(self, member: Proc, fences: list[_Fence]) -> None:
        for fence in fences:
            if member not in fence.named:
                continue
            fence.named = tuple([each for each in fence.named if each != member])
            if fence.ft:
                # It may have called before, and the others may call later: the fence that the others call ends.
                self._ask(fence)
            else:
                fence.timers.append(self._port.later(LOSS_GRACE, self._give_up(fence, member)))

    def _give_up(self, fence: _Fence, member: Proc) -> Callable[[], None]:
        text = f"{name_proc(member, self._port.proc.nspace)} has left {fence.group!r}, or has ended, without coming"
        error = PartialSuccess(text, status=statuses.ERR_PARTIAL_SUCCESS, procs=fence.op.procs)
        error.missing = frozenset((member,))
        return lambda: self._end(fence, error)
