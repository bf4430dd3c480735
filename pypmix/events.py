"""Events as programs see them."""

from __future__ import annotations

from pypmix.arguments import number_of
from pypmix.standard import codes, keys, statuses
from pypmix.standard.enums import EventCode, Range
from pypmix.standard.errors import PMIxError
from pypmix.standard.record import Record
from pypmix.standard.types import DataArray, Info, Proc, Value
from pypmix.standard.values import infos, to_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from pypmix.engine.base import Delivery
    from pypmix.standard.ops import Notification
    from pypmix.standard.values import Infos

GROUP_REASON = "pypmix.grp.reason"


class Answer(Record):
    """The result of a handler, returned by `Event.done` and its like."""

    status: int
    results: tuple[Info, ...] = ()


class Event:
    """An event, as a stream yields it and a handler is called with.

    Attributes:
        code: The kind of the event, an `EventCode`.
        source: The proc that raised it.
        range: The `Range` that it was raised for; None if the server does not send it.
        infos: The infos of the event, unchanged.

    Example:
        >>> @me.on(EventCode.PROC_TERMINATED)
        ... def ended(event):
        ...     print(event.code.name, "from", event.source, "about", event.affected)
        ...     print(event.info.get(attrs.EXIT_CODE), "after the handlers that gave", event.results)
    """

    __slots__ = ("_info", "_passed", "code", "infos", "range", "source")

    def __init__(self, notification: Notification, passed: tuple[Info, ...] = ()) -> None:
        self.code = EventCode(notification.code)
        self.source: Proc = notification.source
        self.range = None if notification.range is None else Range(notification.range)
        self.infos = notification.infos
        self._info: dict[str, Any] | None = None
        self._passed = passed

    @property
    def info(self) -> Mapping[str, Any]:
        """The event's infos, as plain Python values by their keys."""
        if self._info is None:
            self._info = {info.key: to_python(info.value) for info in self.infos}
        return self._info

    @property
    def affected(self) -> tuple[Proc, ...]:
        """The procs that it is about (`PMIX_EVENT_AFFECTED_PROC` and `_PROCS`); empty if it names none."""
        found: list[Proc] = []
        for info in self.infos:
            data = info.value.data
            if info.key == keys.EVENT_AFFECTED_PROC and isinstance(data, Proc):
                found.append(data)
            elif info.key == keys.EVENT_AFFECTED_PROCS and isinstance(data, DataArray):
                found += [proc for proc in data if isinstance(proc, Proc)]
        return tuple(dict.fromkeys(found))

    @property
    def results(self) -> Mapping[str, Any]:
        """The results of the handlers that ran before this one."""
        return {info.key: to_python(info.value) for info in self._passed}

    def done(self, results: Infos = None) -> Answer:
        """Return the answer: handled, no further handler needs to be called (`PMIX_EVENT_ACTION_COMPLETE`).

        Args:
            results: Infos or a mapping for the handlers that follow.

        Example:
            >>> @me.on(EventCode.PROC_TERMINATED, order="first")
            ... def ended(event):
            ...     return event.done({"acme.seen": True})
        """
        return Answer(statuses.EVENT_ACTION_COMPLETE, infos(results))

    def pass_on(self, results: Infos = None) -> Answer:
        """Return the answer: seen, and nothing done (`PMIX_EVENT_NO_ACTION_TAKEN`); also what returning None means.

        Example:
            >>> @me.on(EventCode.PROC_TERMINATED)
            ... def ended(event):
            ...     return event.done() if Proc(me.nspace, 0) in event.affected else event.pass_on()
        """
        return Answer(statuses.EVENT_NO_ACTION_TAKEN, infos(results))

    def partial(self, results: Infos = None) -> Answer:
        """Return the answer: partly handled, further handlers continue (`PMIX_EVENT_PARTIAL_ACTION_TAKEN`).

        Example:
            >>> @me.on(EventCode.PROC_TERMINATED, order="first")
            ... def ended(event):
            ...     return event.partial({"acme.restarted": len(event.affected)})
        """
        return Answer(statuses.EVENT_PARTIAL_ACTION_TAKEN, infos(results))

    def defer(self, results: Infos = None) -> Answer:
        """Return the answer: to be handled later (`PMIX_EVENT_ACTION_DEFERRED`).

        Example:
            >>> later = []
            >>> @me.on(EventCode.PROC_TERMINATED)
            ... def ended(event):
            ...     later.append(event)
            ...     return event.defer()
        """
        return Answer(statuses.EVENT_ACTION_DEFERRED, infos(results))

    def lead(self, results: Infos = None) -> Answer:
        """Return the answer to `GROUP_LEADER_FAILED`: the caller wants to be the leader (`PMIX_GROUP_LEADER`).

        One of the candidates becomes the leader, which `GROUP_LEADER_SELECTED` reports to all members.

        Args:
            results: Further infos or a mapping.

        Example:
            >>> @me.on(EventCode.GROUP_LEADER_FAILED)
            ... def candidate(event):
            ...     return event.lead()
        """
        claim = Info(keys.GROUP_LEADER, Value(codes.BOOL, True))
        return Answer(statuses.EVENT_ACTION_COMPLETE, (claim, *infos(results)))

    def abort(self, results: Infos = None) -> Answer:
        """Return the answer to the failure of a member or leader, or to an invitation declined: give the group up.

        All participants of the construction then get `ConstructAborted` (`PMIX_GROUP_CONSTRUCT_ABORT`).

        Args:
            results: Further infos or a mapping.

        Example:
            >>> @me.on(EventCode.GROUP_INVITE_DECLINED)
            ... def declined(event):
            ...     return event.abort()
        """
        return Answer(statuses.GROUP_CONSTRUCT_ABORT, infos(results))

    def refuse(self, reason: str = "") -> Answer:
        """Return the answer of a member's `recipes.admission.Admission` to a request: the source is not to be a member.

        Args:
            reason: Why, in words, for the source.

        Example:
            >>> @me.on(groups.GroupEvent.JOIN_REQUEST)
            ... def requested(event):
            ...     return event.refuse("the group is full")
        """
        return Answer(statuses.ERR_NO_PERMISSIONS, (Info(GROUP_REASON, Value(codes.STRING, reason)),))

    def __repr__(self) -> str:
        about = f" about {', '.join(map(str, self.affected))}" if self.affected else ""
        return f"<Event {self.code.name} from {self.source}{about}>"


def event_code(code: object) -> int:
    """Return an event code as a plain int."""
    return number_of(code, "EventCode", "PROC_TERMINATED")


def event_of(delivery: Delivery) -> Event:
    """Return the event of a delivery."""
    return Event(delivery.notification, delivery.results)


def send_answer(delivery: Delivery, returned: object) -> None:
    """Answer with the result of a handler."""
    if returned is None:
        delivery.done(statuses.EVENT_NO_ACTION_TAKEN)
    elif isinstance(returned, Answer):
        delivery.done(returned.status, returned.results)
    else:
        raise TypeError(f"an event handler returns what ev.done() and its like make, or None, not {returned!r:.100}")


def report_failure(delivery: Delivery, function: Callable[..., Any], error: BaseException) -> None:
    """Log that a handler has raised an exception, and answer with an error."""
    import logging

    name = getattr(function, "__qualname__", repr(function))
    logging.getLogger("pypmix.events").error("the handler %s failed in %r", name, event_of(delivery), exc_info=error)
    delivery.done((error.code if isinstance(error, PMIxError) else statuses.ERROR) or statuses.ERROR)
