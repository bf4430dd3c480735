# Made from pypmix/aio/recipes by native/blocking.py: change it there.
"""Announced constructs, and leaves that the others confirm: the early draft of RFC 0033, by events and groups alone."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic

from pypmix.arguments import limit
from pypmix.handlers import Handler
from pypmix.mailbox import EndOfStream, Mailbox
from pypmix.recipes.departures import NEVER, Departures, announcement, answer
from pypmix.standard import statuses
from pypmix.standard.errors import LostConnection, NotInitialized, OperationTimeout, ResourceBusy
from pypmix.standard.ops import GroupUnwatch, GroupWatch
from pypmix.waits import settled, shielded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from pypmix.arguments import Procs
    from pypmix.events import Event
    from pypmix.operations.groups import Group
    from pypmix.waits import Port


OVER = NotInitialized, LostConnection
"""The errors of a session that has ended; its registrations have ended with it."""


def announce(group: Group, procs: Procs, code: int = statuses.REQUESTED) -> None:
    """Tell the others of a group that is to be constructed; to be called before its construct.

    Args:
        group: The group.
        procs: All its procs, which come with the event (`attrs.GROUP_MEMBERSHIP`), as its name does (`attrs.GROUP_ID`).
        code: `GroupEvent.REQUESTED`, that they are wanted, or `GroupEvent.HAS_JOINED`, that the caller takes part.
    """
    op = announcement(group, procs, code)
    if op is not None:
        group.membership.port.run(op)


class Consent:
    """Leave a group when all other members have confirmed it, and confirm it where others want to leave.

    It is a context manager, which all members enter. Others cannot keep the caller: they end what they do with it.

    Args:
        group: An existing group.
        confirm: Called, as event handlers are, with the event (`GroupEvent.LEAVE_REQUEST`) where its source wants to
            leave; the member has confirmed when it has ended, or raised. None confirms at once.
        patience: Seconds to wait for a member that sends nothing at all, since it has not entered its `Consent` or uses
            another library; then it counts as confirming.
    """

    def __init__(self, group: Group, confirm: Callable[[Event], Any] | None = None, *, patience: float = 5.0) -> None:
        self._group = group
        self._port: Port = group.membership.port
        self._confirm = confirm
        self._departures = Departures(group, limit(patience) or 0.0)
        self._handler = Handler(self._port, self._confirm_leave)

    def leave(self, timeout: float | None = None) -> None:
        """Ask all other members, those too who join meanwhile, and leave the group when they have confirmed.

        Args:
            timeout: Seconds to wait for them; no limit by default.

        Raises:
            NotInitialized: The group does not exist, or the caller has left it.
            OperationTimeout: Not all have confirmed in time; `missing` names them, and the caller is still a member.
            ResourceBusy: The caller waits for them already.
        """
        end = NEVER if timeout is None else monotonic() + (limit(timeout) or 0.0)
        name = self._group.membership.state().name
        if self._departures.wake is not None:
            raise ResourceBusy(f"the caller is leaving {name!r} already")
        box: Mailbox[object] = Mailbox(self._port, 1)
        self._departures.begin(box.put)
        try:
            id = self._port.run(GroupWatch(name, box.put, box.end), GroupUnwatch)
            try:
                while (until := self._ask(end)) > 0.0:
                    try:
                        box.get(None if until == NEVER else max(0.0, until - monotonic()))
                    except TimeoutError:
                        pass  # a member sends nothing, or the time is over
            except EndOfStream:
                raise NotInitialized(f"the group {name!r} is gone", operation="leave") from None
            finally:
                with shielded(), suppress(*OVER):
                    self._port.run(GroupUnwatch(id))
        finally:
            self._departures.wake = None
        self._group.leave()

    def _ask(self, end: float) -> float:
        """Ask the members that were not asked yet, and return until when to wait; 0 where all have confirmed."""
        now = monotonic()
        op = self._departures.request(now)
        if op is not None:
            self._port.run(op)
        missing = self._departures.missing(now)
        if missing and now >= end:
            raise OperationTimeout(
                "not all members have confirmed in time",
                operation="leave",
                missing=missing,
                job=self._port.session.proc.nspace,
            )
        return min(end, *missing.values()) if missing else 0.0

    def __enter__(self) -> Self:
        self._group.membership.state()
        self._port.attend()
        self._handler.begin(self._departures.listening)
        self._handler.ready()
        return self

    def __exit__(self, *_error: object) -> None:
        with shielded(), suppress(*OVER):
            self._handler.remove()

    def _confirm_leave(self, event: Event) -> None:
        try:
            if self._confirm is not None:
                settled(self._confirm(event))
        finally:
            with shielded():
                self._port.run(answer(event, True))
