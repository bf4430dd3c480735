"""What the groups of a client need of its machine, and the operations that go by way of them."""

from __future__ import annotations

from pypmix.engine.faults import Steps
from pypmix.engine.groups.addresses import Addresses
from pypmix.engine.groups.agent import Agent
from pypmix.engine.python.clientside.events import events_of
from pypmix.standard.errors import LostConnection, NotFound, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.chain import Handlers
    from pypmix.engine.python.client import Call, Client
    from pypmix.standard.ops import GroupState, Notification, Op
    from pypmix.standard.types import Proc, Value

    Starts = Mapping[type, Callable[[Client, Call], None]]


class Timer:
    """A call that is due at a time of the machine's clock."""

    __slots__ = ("_client", "call", "due")

    def __init__(self, client: Client, due: float, call: Callable[[], None]) -> None:
        self._client = client
        self.due = due
        self.call = call
        client.timers.append(self)

    def run(self) -> None:
        """Make the call, once."""
        if self in self._client.timers:
            self._client.timers.remove(self)
            self.call()

    def cancel(self) -> None:
        """Have the call not happen."""
        if self in self._client.timers:
            self._client.timers.remove(self)


class GroupPort:
    """The groups of one client, and its machine as they see it; see `pypmix.engine.groups.port.Port`.

    Args:
        client: The machine.
        starts: How the machine itself begins a construct and a destruct.
    """

    def __init__(self, client: Client, starts: Starts) -> None:
        self._client = client
        self._starts = starts
        self._outside: set[Call] = set()
        self._steps = Steps(self._fail)
        self.proc = client.proc
        self.server_release = client.release
        self.adapts = client.server is not None and client.server.adapts
        self.agent = Agent(self)
        self.addresses = Addresses(self.proc, self.agent.standing, keeps=self.adapts)
        self.handlers.failed = self._steps.failed
        client.at_loss.append(self._lost)

    # What the machine asks

    def begin(self, call: Call) -> None:
        """Begin an operation on groups."""
        client, op = self._client, call.op

        def ended(result: Any, error: BaseException | None) -> None:
            self._outside.discard(call)
            if isinstance(error, PMIxError):
                client._named(error, op)
            client._end(call, result, error)

        call.guided = True
        self._outside.add(call)

        def start() -> None:
            group = self.addresses.whole(op)
            if group:
                self.agent.fencing.fence(group, op, ended)
            else:
                self.agent.start(op, ended)

        self._steps.begin(call, start)

    def _fail(self, whose: object, error: PMIxError) -> None:
        client = self._client
        for call in [each for each in self._outside if whose is None or each is whose]:
            self._outside.discard(call)
            client._end(call, error=client._named(PMIxError(error.detail, hint=error.hint), call.op))

    def translate(self, call: Call) -> bool:
        """Put procs in the places of groups' names in an operation; tell whether there is anything left to do."""
        client, op = self._client, call.op
        if not self.adapts and self.addresses.whole(op):
            self.begin(call)
            return False
        try:
            answer = self.addresses.answer(op)
            if answer is None:
                call.op = self.addresses.translated(op)
                return True
        except NotFound as error:
            client._end(call, error=client._named(error, op))
            return False
        client._end(call, answer)
        return False

    def state(self, name: str) -> GroupState | None:
        """Return how a group stands."""
        return self.agent.state(name)

    def knows(self, name: str) -> bool:
        """Tell whether the caller is in a group or a connection of this name."""
        return bool(self.addresses.members(name))

    def _lost(self) -> None:
        client = self._client
        closed = None if client.closed is None else client.closed()
        client.timers.clear()
        self.agent.lost(closed)
        for call in list(self._outside):
            client._end(call, error=client._named(LostConnection("the client was closed meanwhile"), call.op))

    # What the groups ask

    @property
    def handlers(self) -> Handlers:
        return events_of(self._client).handlers

    def enter(self, step: Callable[[], None]) -> None:
        self._client.enter(step)

    def tell(self, function: Callable[[Any], None], argument: object) -> None:
        self._client.tell(function, argument)

    def watch(self, code: int, watcher: Callable[[Notification], None]) -> None:
        events_of(self._client).watch(code, watcher)

    def unwatch(self, code: int, watcher: Callable[[Notification], None]) -> None:
        events_of(self._client).unwatch(code, watcher)

    def submit(self, op: Op[Any], done: Done[Any]) -> None:
        self._client.begin_inside(op, self._steps.ended(done), self._starts)

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        return Timer(self._client, self._client._now + seconds, self._steps.later(call))

    def fetch(self, proc: Proc, key: str) -> Value | None:
        return self._client.store.lookup(proc, key)
