"""The port between groups and a native session: all steps of groups run under the lock of the session's inbox.

A server of the Python engine decides constructs and destructs, but a library between it and this process knows only the
groups that it has constructed itself: other groups are destructed by a fence, which the server takes for a destruct.
"""

from __future__ import annotations

import os
from functools import partial

from pypmix.engine.faults import Steps
from pypmix.engine.groups.addresses import check_fence
from pypmix.engine.groups.agent import Agent
from pypmix.engine.groups.constructing import ranks_of
from pypmix.engine.groups.foreign import support_of
from pypmix.engine.groups.talk import DESTRUCTS, keep, text
from pypmix.standard import keys, ops
from pypmix.standard.errors import LostConnection, NotFound, PMIxError
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.alarms import Alarm, Alarms
    from pypmix.engine.base import Done
    from pypmix.engine.chain import Handlers
    from pypmix.engine.groups.addresses import Addresses
    from pypmix.engine.native.connection import Connection
    from pypmix.engine.native.events import EventsTopic
    from pypmix.standard.ops import GroupState, Notification, Op, RegisterEventHandler
    from pypmix.standard.types import Value


MAX_CONSTRUCTED = 4096
"""The most groups that the library is known to have constructed; others are destructed by a fence."""


class Timer:
    """A call that an alarm makes under the lock, unless it was cancelled under the lock before."""

    __slots__ = ("_alarm", "_call")

    def __init__(self, port: GroupPort, alarms: Alarms, seconds: float, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call
        self._alarm: Alarm = alarms.later(seconds, lambda: port.enter(self._run))

    def cancel(self) -> None:
        """Prevent the call."""
        self._call = None
        self._alarm.cancel()

    def _run(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


class GroupPort:
    """The groups of one session, and the session as they see it; see `pypmix.engine.groups.agent.Port`.

    Args:
        session: The session.
        put: Starts a construct or a destruct in the library; called under the inbox's lock.
    """

    def __init__(self, session: Connection, put: Callable[[Any, Done[Any]], None]) -> None:
        self._session = session
        self._put = put
        self._inbox = session.inbox
        self._events: EventsTopic = session.topic("events")
        self._alarms: Alarms | None = None
        self._outside: dict[int, tuple[Op[Any], Done[Any]]] = {}
        self._last = 0
        self.steps = Steps(self._fail)
        self.proc = session.proc
        self.server_release = session.server_release
        self.support = support_of(has_own_server(session))
        self.recorded = True
        self.agent = Agent(self)
        self._constructed: dict[str, tuple[Proc, ...]] = {}
        """The groups that the library has constructed, with their members at that time."""
        self._failed: dict[str, None] = {}
        """The names of groups whose construct has failed: libpmix 5 keeps a record without members, and ends a later
        destruct by it, or crashes when a get names the group."""
        self.addresses: Addresses = self.agent.addresses
        self.handlers.failed = self.steps.failed
        self._inbox.enders.append(self._handle_disconnect)

    # Calls of the session

    def start(self, op: Op[Any], done: Done[Any]) -> None:
        """Start an operation on groups; `done` is called outside of the lock."""
        self._inbox.enter(lambda: self._begin(op, done))

    def _begin(self, op: Op[Any], done: Done[Any]) -> None:
        self._last += 1
        number = self._last
        self._outside[number] = op, done

        def finish(result: Any, error: BaseException | None) -> None:
            self._answer(number, result, error)

        if self._inbox.closed:
            finish(None, LostConnection("the client was closed"))
        else:
            self.steps.begin(number, self._start, op, finish)

    def _start(self, op: Op[Any], done: Done[Any]) -> None:
        group = self.addresses.whole(op)
        if group:
            self.agent.constructing.fence(group, op, done)
        else:
            self.agent.start(op, done)

    def withdraw(self, done: Done[Any]) -> None:
        """Withdraw a caller of `start` that no longer waits for the end of a collective."""

        def step() -> None:
            for op, meant in list(self._outside.values()):
                if meant != done:
                    continue
                self.agent.constructing.give_up(op)
                if self.support.decides and isinstance(op, ops.GroupConstruct | ops.GroupDestruct):
                    self._session.collectives.ask_withdrawal(op, self._participants(op))

        self._inbox.within(step)

    def _participants(self, op: ops.GroupConstruct | ops.GroupDestruct) -> tuple[Proc, ...]:
        """Return the participants of a construct or a destruct."""
        if isinstance(op, ops.GroupConstruct):
            return ranks_of(self, op.procs)
        members: tuple[Proc, ...] = self.agent.standing.members(op.group)
        return members

    def _fail(self, whose: object, error: PMIxError) -> None:
        for number in [each for each in self._outside if whose is None or each == whose]:
            self._answer(number, None, PMIxError(error.detail, hint=error.hint))

    def _answer(self, number: int, result: Any, error: BaseException | None) -> None:
        outside = self._outside.pop(number, None)
        if outside is None:
            return
        op, done = outside
        if isinstance(error, PMIxError):
            self._session.named(error, op.name)
            error.procs = error.procs or getattr(op, "procs", ()) or (self.proc,)
        self._inbox.tell(lambda outcome: done(*outcome), (result, error))

    def translate(self, op: Any) -> tuple[Any, Any]:
        """Return the answer to an operation, if the groups know it, and the operation with members in place of groups.

        Raises:
            PMIxError: A group has no such rank or no such value.
        """
        try:
            return self.addresses.answer(op), self.addresses.translated(op)
        except PMIxError as error:
            raise self._session.named(error, op.name) from None

    def takes(self, op: Any) -> bool:
        """Return True if the groups carry out an operation that is not a group operation by its type."""
        return bool(self.addresses.whole(op))

    def state(self, name: str) -> GroupState | None:
        """Return the state of a group."""
        found: list[GroupState | None] = []
        self._inbox.enter(lambda: found.append(self.agent.standing.state(name)))
        return found[0]

    def expect(self, op: RegisterEventHandler) -> None:
        """Prepare for a handler of events that the groups process, too, before it is registered; under the lock."""
        self.agent.expect(op.codes)

    def leave(self) -> None:
        """End these groups: the session continues with another server."""

        def step() -> None:
            self._inbox.enders.remove(self._handle_disconnect)
            self._handle_disconnect(self._session.loss())

        self._inbox.within(step)

    def _handle_disconnect(self, error: BaseException | None) -> None:
        if self._alarms is not None:
            self._alarms.close()
        self.agent.handle_disconnect(error)
        for number in list(self._outside):
            self._answer(number, None, error or LostConnection("the client was closed meanwhile"))

    # Calls of the groups

    @property
    def handlers(self) -> Handlers:
        return self._events.handlers

    def enter(self, step: Callable[[], None]) -> None:
        self._inbox.enter(step)

    def tell(self, function: Callable[[Any], None], argument: object) -> None:
        self._inbox.tell(function, argument)

    def watch(self, code: int, watcher: Callable[[Notification], None]) -> None:
        self._events.watch(code, watcher)

    def submit(self, op: Op[Any], done: Done[Any]) -> None:
        done = self.steps.make_callback(done)

        def finish(result: Any, error: BaseException | None) -> None:
            self._inbox.within(lambda: done(result, error))

        asked: Any = op
        try:
            if self._inbox.closed:
                raise LostConnection("the client was closed")
            if type(asked) is ops.NotifyEvent:
                self._events.inside(asked, finish)
            elif type(asked) is ops.GroupDestruct and self.support.decides:
                self._destruct(asked, finish)
            elif type(asked) in (ops.GroupConstruct, ops.GroupDestruct):
                self._put(asked, partial(self._note, asked, finish))
            else:
                self._session.start(asked, finish)
        except Exception as error:
            done(None, error)

    def _note(self, op: Any, done: Done[Any], result: Any, error: BaseException | None) -> None:
        """Record the group that the library has constructed."""
        if error is not None and type(op) is ops.GroupConstruct:
            keep(self._failed, op.group, None, MAX_CONSTRUCTED)
        elif type(op) is ops.GroupConstruct and op.group not in self._failed:
            keep(self._constructed, op.group, result.members, MAX_CONSTRUCTED)
        done(result, error)

    def _destruct(self, op: Any, done: Done[Any]) -> None:
        """Destruct a group in the library, or by a fence if the library does not know it."""
        group = self.agent.standing.group(op.group)
        if group is None:
            # A part of the groups has constructed it for itself.
            self._put(op, done)
            return
        members = group.membership.members

        def fence() -> None:
            directives = *op.directives, text(DESTRUCTS, op.group)
            self._session.start(ops.Fence(tuple(sorted(members)), False, directives), done)

        def destructed(result: Any, error: BaseException | None) -> None:
            if isinstance(error, NotFound):
                # The library has forgotten it with a destruct that failed; the server has not.
                self._inbox.within(fence)
            else:
                done(result, error)

        if self._constructed.pop(op.group, None) == members and group.epoch == 1:
            self._put(op, destructed)
        else:
            fence()

    def give_up(self, op: Op[Any]) -> None:
        self._session.collectives.give_up(op)

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        if self._alarms is None:
            from pypmix.engine.alarms import Alarms

            self._alarms = Alarms()
        return Timer(self, self._alarms, seconds, self.steps.later(call))

    def fetch(self, proc: Proc, key: str) -> Value | None:
        if self._inbox.closed or proc.nspace in self._failed:
            return None
        return self._session.fetch_local(proc, key)


def has_own_server(session: Connection) -> bool:
    """Return True if the server is of the Python engine, according to the environment."""
    nspace = session.server.partition(" ")[0].rpartition(".")[0]
    ours = os.environ.get("PYPMIX_SERVER", "").partition(" ")[0] == nspace
    return ours and os.environ.get("PYPMIX_SERVER_ENGINE") == "python"


def own_named(session: Connection, procs: tuple[Proc, ...]) -> tuple[Proc, ...]:
    """Return procs, with the plain nspace of this process's job in place of its name with a cluster."""
    nspace = session.proc.nspace
    if not any(proc.nspace.endswith(f":{nspace}") for proc in procs):
        return procs
    cluster = session.fetch_local(Proc(nspace, RANK_WILDCARD), keys.CLUSTER_ID)
    name = None if cluster is None else f"{cluster.data}:{nspace}"
    return tuple([Proc(nspace, proc.rank) if proc.nspace == name else proc for proc in procs])


def refuse_fence(session: Connection, op: ops.Fence) -> None:
    """Raise an error for a fence that no server can complete; see `check_fence`."""

    def exists(name: str) -> bool:
        return name == session.proc.nspace or session.fetch_local(Proc(name, RANK_WILDCARD), keys.JOB_SIZE) is not None

    try:
        check_fence(session.proc, op.procs, exists)
    except PMIxError as error:
        raise session.named(error, op.name) from None
