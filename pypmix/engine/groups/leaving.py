"""Leaving an existing group, and giving up the wait to be admitted to a group."""

from __future__ import annotations

from pypmix.engine.groups.standing import not_in
from pypmix.engine.groups.talk import LIFE, proc, procs, size, text
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError, ResourceBusy
from pypmix.standard.ops import NotifyEvent
from pypmix.standard.ops.publishing import RANGE_CUSTOM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.base import Done
    from pypmix.engine.groups.agent import Agent
    from pypmix.engine.groups.standing import Group
    from pypmix.standard.ops import GroupLeave
    from pypmix.standard.types import Info


class Leaving:
    """The departures of one session from its groups: `agent.part("leaving", "Leaving")`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._me = agent.port.proc
        self._standing = agent.standing

    def leave(self, op: GroupLeave, done: Done[None]) -> None:
        """Carry out a `GroupLeave`."""
        group, entering = self._standing.group(op.group), self._agent.made("entering")
        if group is None:
            if entering is not None and entering.give_up(op.group):
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

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended; operations of its engine end with it."""
