# Made from pypmix/aio/recipes by native/blocking.py: change it there.
"""Requests to join an existing group, which all of its members approve: the early draft of RFC 0033."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic

from pypmix.arguments import limit, timed
from pypmix.group import group_members_op
from pypmix.handlers import Handler
from pypmix.mailbox import EndOfStream, Mailbox
from pypmix.operations.groups import Group, admit, enter
from pypmix.psets import members_in
from pypmix.recipes.joinrequests import NEVER, Asking, Requests, refusal, verdict_of
from pypmix.standard import statuses
from pypmix.standard.errors import LostConnection, NotFound, NotInitialized, PMIxError
from pypmix.standard.ops import (
    DeregisterEventHandler,
    GroupChange,
    GroupEnter,
    GroupResults,
    GroupUnwatch,
    GroupWatch,
    Notification,
    NotifyEvent,
)
from pypmix.standard.values import infos
from pypmix.waits import BackgroundCall, Port, settled, shielded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from pypmix.arguments import Infos
    from pypmix.client import Client
    from pypmix.events import Event

__all__ = ["Admission", "admit", "enter", "request"]

MAX_EVENTS = 4096
"""The most events that are kept for a process that is busy; of more the oldest are dropped."""

OVER = NotInitialized, LostConnection, NotFound
"""The errors of a group or a session that has ended; its registrations have ended with it."""


def request(
    client: Client, name: str, *, timeout: float | None = None, info: Infos = None, patience: float = 5.0
) -> Group:
    """Ask to join an existing group; all of its members have to approve it (`Admission`).

    Args:
        client: The caller's client.
        name: The group's name.
        timeout: Seconds to wait for the members; no limit by default.
        info: Further infos or a mapping, such as `attrs.GROUP_INFO`.
        patience: Seconds to wait for the first word of a member.

    Raises:
        NotFound: There is no such group.
        NotSupported: Its members take no requests.
        PermissionDenied: A member refuses.
        OperationTimeout: Not all members have answered in time.
    """
    port: Port = client.group(name).membership.port
    told = infos(info)
    asking = Asking(port.session.proc, name, told, limit(patience) or 0.0)
    op = GroupEnter(name, asking.trusts, timed(told, timeout))
    box: Mailbox[Notification | BaseException | None] = Mailbox(port, MAX_EVENTS)
    joined = False
    handler = port.run(asking.listening(box.put), DeregisterEventHandler)
    try:
        port.session.submit(op, asking.entering(box.put))
        results = _ask(port, name, asking, box)
        joined = True
    finally:
        with shielded(), suppress(*OVER):
            port.run(DeregisterEventHandler(handler))
            for withdrawal in () if joined else asking.withdrawals():
                port.run(withdrawal)
    return Group(client, port, name, None, None, results, op.directives)


def _ask(port: Port, name: str, asking: Asking, box: Mailbox[Notification | BaseException | None]) -> GroupResults:
    """Ask one member after the other until one has admitted the caller."""
    try:
        (answer,) = port.run(group_members_op(name))
        members = tuple(members_in(answer.value))
    except PMIxError:
        members = ()  # some servers refuse to answer about a group that they do not know
    message: NotifyEvent | None = asking.begin(members)
    while asking.results is None:
        if message is not None and asking.waits:
            port.run(message)
        try:
            item = box.get(None if asking.until == NEVER else max(0.0, asking.until - monotonic()))
        except TimeoutError:
            message = asking.silent()
            continue
        if isinstance(item, BaseException):
            raise asking.explain(item)
        message = None if item is None else asking.take(item)
    return asking.results


class Admission:
    """Decide on requests to join a group, by `request`, together with its other members.

    It is a context manager, which all members enter; who joins enters its own. The first member asks all of them, and
    admits the proc when all have approved.

    Args:
        group: An existing group.
        approve: Called, as event handlers are, with the event (`GroupEvent.JOIN_REQUEST`) of each proc that asks to
            join; `ev.refuse("why")` is the answer that keeps it out, as raising does. None approves all.
        patience: Seconds to wait for a member that sends nothing at all, since it has not entered its `Admission` or
            uses another library; then it counts as approving.
    """

    def __init__(self, group: Group, approve: Callable[[Event], Any] | None = None, *, patience: float = 5.0) -> None:
        self._group = group
        self._port: Port = group.membership.port
        self._approve = approve
        self._patience = limit(patience) or 0.0
        self._requests = Requests(group, self._patience)
        self._handler = Handler(self._port, self._decide)
        self._box: Mailbox[Notification | GroupChange] = Mailbox(self._port, MAX_EVENTS)
        self._watch = -1
        self._serving: BackgroundCall | None = None

    def __enter__(self) -> Self:
        name = self._group.membership.state().name
        self._port.attend()
        self._watch = self._port.run(GroupWatch(name, self._box.put, self._box.end), GroupUnwatch)
        self._handler.begin(lambda deliver, ended: self._requests.listening(self._box.put, deliver, ended))
        self._handler.ready()
        self._serving = BackgroundCall(self._serve)
        return self

    def __exit__(self, *_error: object) -> None:
        with shielded(), suppress(*OVER):
            self._port.run(GroupUnwatch(self._watch))
        with shielded(), suppress(*OVER):
            self._handler.remove()
        self._box.end()
        if self._serving is not None:
            with shielded():
                self._serving.wait()

    def _decide(self, event: Event) -> None:
        verdict = refusal(statuses.ERROR, "a member's function has failed")
        try:
            answer = None if self._approve is None else self._approve(self._requests.request(event))
            verdict = verdict_of(settled(answer))
        finally:
            self._requests.decided(event, verdict)

    def _serve(self) -> None:
        requests = self._requests
        with suppress(EndOfStream, *OVER):
            while True:
                try:
                    until = requests.until
                    requests.take(self._box.get(None if until == NEVER else max(0.0, until - monotonic())))
                except TimeoutError:
                    requests.take(None)
                while (approved := requests.approved) is not None:
                    error: PMIxError | None = None
                    try:
                        admit(self._group, approved, timeout=self._patience)
                    except PMIxError as failed:
                        error = failed
                    requests.done(error)
        with suppress(*OVER):
            requests.end()
