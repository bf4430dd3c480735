"""The events of announced constructs and of confirmed leaves, and the members that still have to confirm."""

from __future__ import annotations

from itertools import count

from pypmix.arguments import flag, proc_info, proc_tuple
from pypmix.engine.common import ignore
from pypmix.events import Event
from pypmix.group import expand
from pypmix.standard import keys, statuses
from pypmix.standard.attrs import GROUP_ID, GROUP_MEMBERSHIP
from pypmix.standard.ops import NotifyEvent, RegisterEventHandler
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.arguments import Procs
    from pypmix.engine.base import Delivery
    from pypmix.group import GroupView
    from pypmix.standard.types import Info, Proc

NUMBER = "pypmix.grp.leave"
"""The number of the request to leave, in the order of the leaving proc's requests."""

CONFIRMED = "pypmix.grp.confirmed"
"""In an answer: False while the sender's function runs, True once it has ended."""

NEVER = float("inf")

_numbers = count(1)
"""Each request has a number, so that late answers to a former request confirm no later one."""


def announcement(group: GroupView, procs: Procs, code: int) -> NotifyEvent | None:
    """Return the event for the other procs of a construct; None if the caller is alone."""
    own = group.membership.port.session.proc
    members = expand(group.membership.port.session, proc_tuple(procs))
    others = [proc for proc in members if proc != own]
    about = GROUP_ID(group.name), GROUP_MEMBERSHIP(members)
    return _message(code, others, own, about) if others else None


def answer(event: Event, confirmed: bool) -> NotifyEvent:
    """Return the answer to a request."""
    about = {keys.GROUP_ID: event.info[keys.GROUP_ID], NUMBER: event.info.get(NUMBER, 0), CONFIRMED: confirmed}
    return _message(statuses.LEAVE_ANSWER, event.source, None, infos(about), flag(keys.EVENT_DO_NOT_CACHE))


def _message(code: int, to: Procs, about: Proc | None, content: tuple[Info, ...], *more: Info) -> NotifyEvent:
    """Return an event for some procs, which no default handler gets."""
    affected = () if about is None else (proc_info(keys.EVENT_AFFECTED_PROC, about),)
    addressed = *content, proc_info(keys.EVENT_CUSTOM_RANGE, to), *affected
    return NotifyEvent(code, RANGE_CUSTOM, (*addressed, flag(keys.EVENT_NON_DEFAULT), *more))


class Departures:
    """The requests of members to leave a group: the caller's own request, and the requests that it answers.

    Args:
        group: The group.
        patience: Seconds after which a silent member counts as confirming.
    """

    def __init__(self, group: GroupView, patience: float) -> None:
        self._group = group
        self._patience = patience
        self._number = 0
        self._until: dict[Proc, float] = {}
        """The deadline of each member that was asked; 0 once it has confirmed."""
        self.wake: Callable[[object], None] | None = None
        """Called when a member has answered, on any thread, while the caller wants to leave."""

    def begin(self, wake: Callable[[object], None]) -> None:
        """Begin the caller's request to leave."""
        self.wake = wake
        self._number = next(_numbers)
        self._until.clear()

    def request(self, now: float) -> NotifyEvent | None:
        """Return the request for the members that have not received it; None if all have."""
        new = [proc for proc in self._other_members() if proc not in self._until]
        self._until.update(dict.fromkeys(new, now + self._patience))
        about = infos({keys.GROUP_ID: self._group.name, NUMBER: self._number})
        own = self._group.membership.port.session.proc
        return _message(statuses.LEAVE_REQUEST, new, own, about) if new else None

    def missing(self, now: float) -> dict[Proc, float]:
        """Return the members that have not confirmed, with their deadlines."""
        return {proc: until for proc in self._other_members() if (until := self._until.get(proc, NEVER)) > now}

    def listening(self, deliver: Callable[[Delivery], None], at_end: Any) -> RegisterEventHandler:
        """Return the registration of a handler for answers and requests; it passes requests to `deliver`."""

        def handle(delivery: Delivery) -> None:
            event, group = Event(delivery.notification), self._group
            if (
                event.info.get(keys.GROUP_ID) != group.name
                or not group.membership.is_open
                or event.source not in group.members
            ):
                delivery.done()
            elif event.code == statuses.LEAVE_REQUEST:
                # At once, however long the handlers take that are called before.
                group.membership.port.session.submit(answer(event, False), ignore)
                deliver(delivery)
            else:
                if self.wake is not None and event.info.get(NUMBER) == self._number and self._until.get(event.source):
                    self._until[event.source] = 0.0 if event.info.get(CONFIRMED) is True else NEVER
                    self.wake(None)
                delivery.done()

        return RegisterEventHandler(handle, (statuses.LEAVE_REQUEST, statuses.LEAVE_ANSWER), (), at_end)

    def _other_members(self) -> list[Proc]:
        own = self._group.membership.port.session.proc
        return [proc for proc in self._group.membership.state().members if proc != own]
