"""The groups of one session: the parts, the operations that each part carries out, and their shared data.

Each part is a state machine for one concern: `standing` keeps the groups of this process; `constructing`, `inviting`,
`joining` and `entering` lead to one, which `entering` also leaves; `admitting` admits others; `election` finds a new
leader. A part is made when it is first needed. All of them run where `port.enter` leads, one step at a time: an
operation of the caller, an event, an answer of the server, or a timer. They do no I/O: requests are sent by
`port.submit`, and functions of the user's side are called by `port.tell`.

Processes send each other events (`talk`). For each event the parts' screens are called first, and drop repeated
events; then watchers are called, then the handlers of the program, and at last the parts' conclusions get their answer
(`port.handlers`).
"""

from __future__ import annotations

from functools import cached_property

from pypmix.engine.groups.talk import SAYS, found
from pypmix.lazy import load
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import (
    GroupAdmit,
    GroupConstruct,
    GroupDestruct,
    GroupEnter,
    GroupInvite,
    GroupInviteControl,
    GroupJoin,
    GroupLeave,
    GroupUnwatch,
    GroupWatch,
)
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from pypmix.engine.base import Cancellable, Done
    from pypmix.engine.chain import Handlers
    from pypmix.engine.groups.foreign import Support
    from pypmix.engine.groups.standing import Attempt
    from pypmix.standard.ops import Notification, Op
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Value

    Timer = Cancellable

    class Port(Protocol):
        """An engine's session, as its groups see it.

        All methods are called where `enter` leads, and all functions that are passed to them are called there, unless
        they say otherwise: the groups of a session never run on two threads at a time.
        """

        proc: Proc
        server_release: Release
        """The release of the server; zeros if it does not report one."""

        support: Support
        """The services of the server for groups."""

        recorded: bool
        """Whether a libpmix in this process has a record of groups, which ends by a destruct of all members alone."""

        @property
        def handlers(self) -> Handlers:
            """The session's event handlers: `screen` and `conclude` events, and `raised` for those raised here."""

        def enter(self, step: Callable[[], None]) -> None:
            """Run a function while nothing else of the session runs; from any thread that is not there already."""

        def tell(self, function: Callable[[Any], None], argument: object) -> None:
            """Call a function of the user's side outside of there, in the order of these requests."""

        def watch(self, code: int, watcher: Callable[[Notification], None]) -> None:
            """Make the server send events of a code, and call the watcher with each before any handler."""

        def submit(self, op: Op[Any], done: Done[Any]) -> None:
            """Start an operation of the engine itself: an event, a fence, a construct, a query, a get.

            A server that does not know group names never gets one: the caller has replaced it by the procs. `done` is
            called there, later or before this returns; errors are passed to it.
            """

        def give_up(self, op: Op[Any]) -> None:
            """No longer wait for a fence that `submit` has started: its `done` is not called.

            A foreign server still counts this process in it, so the next fence of the same procs continues it.
            """

        def later(self, seconds: float, call: Callable[[], None]) -> Timer:
            """Call a function after some seconds."""

        def fetch(self, proc: Proc, key: str) -> Value | None:
            """Return the value that this process holds of a proc under a key."""


CLASSES = {
    "admitting": "Admitting",
    "election": "Elections",
    "entering": "Entering",
    "inviting": "Inviting",
    "joining": "Joining",
    "standing": "Standing",
}
"""The class of each part by its module; that of `constructing` depends on the server, see `Support`."""

PARTS = {
    GroupConstruct: ("constructing", "construct"),
    GroupDestruct: ("constructing", "destruct"),
    GroupInvite: ("inviting", "invite"),
    GroupInviteControl: ("inviting", "control"),
    GroupJoin: ("joining", "join"),
    GroupLeave: ("entering", "leave"),
    GroupWatch: ("standing", "watch"),
    GroupUnwatch: ("standing", "unwatch"),
    GroupAdmit: ("admitting", "admit"),
    GroupEnter: ("entering", "enter"),
}
"""The part and the method that carry out an operation."""

HEARERS = {"admit": "admitting", "election": "election", "enter": "entering"}
"""The part for a message, by the first word of its kind: it is made when the first such message arrives."""


class Agent:
    """The groups of one session; a session makes one for its first group operation.

    All methods are called where `port.enter` leads.

    Args:
        port: The session.

    Attributes:
        standing: The groups of this process.
        addresses: The procs behind the names of groups and connections.
    """

    def __init__(self, port: Port) -> None:
        self.port = port
        # The modules import this one, and imports run one way.
        self._parts: dict[str, Any] = {}
        self.standing: Any = self.part("standing")
        self.addresses: Any = load("pypmix.engine.groups.addresses", "Addresses")(
            port.proc, self.standing, port.support.decides, port.recorded
        )
        self._listening = False
        self._heard: dict[str, Callable[[Notification], None]] = {}

    def start(self, op: Op[Any], done: Done[Any]) -> None:
        """Carry out an operation of `PARTS`; errors are passed to `done`, which is called where `port.enter` leads."""
        module, method = PARTS[type(op)]
        try:
            getattr(self.part(module), method)(op, done)
        except PMIxError as error:
            done(None, error)

    @cached_property
    def constructing(self) -> Any:
        """The constructs and destructs."""
        return self.part("constructing")

    def expect(self, codes: Iterable[int]) -> None:
        """Process these events from now on; called before a handler for some of `TAKEN_IN` is registered.

        The invited procs are needed if the leader fails, and the program then says only that it joins. The end of an
        invitation may arrive before it. A leader that is reported to a handler is not reported again when this process
        calls the construct.
        """
        if statuses.GROUP_INVITED in codes or statuses.GROUP_CONSTRUCT_ABORT in codes:
            self.part("joining")
        if statuses.GROUP_LEADER_SELECTED in codes:
            self.constructing.expects_leaders()

    def name_conflict(self, name: str, but: Attempt | None = None) -> str:
        """Return in words why no group of this name can be formed here; an empty string if it can.

        Args:
            name: The name.
            but: The attempt to form it, which uses the name itself.
        """
        if self.is_job(name):
            return f"there is a nspace {name!r} already"
        use: str = self.standing.use_of(name, but)
        return use

    def is_job(self, name: str) -> bool:
        """Return True if this process knows a job of a name."""
        whole = Proc.unchecked(name, RANK_WILDCARD)
        return name == self.port.proc.nspace or self.port.fetch(whole, keys.JOB_SIZE) is not None

    def made(self, module: str) -> Any | None:
        """Return a part, or None if it has not been needed yet."""
        return self._parts.get(module)

    def part(self, module: str) -> Any:
        """Return a part, which is imported and made when it is first needed."""
        found = self._parts.get(module)
        if found is None:
            place, kind = self.port.support.constructing if module == "constructing" else (module, CLASSES[module])
            found = self._parts[module] = load(f"pypmix.engine.groups.{place}", kind)(self)
        return found

    # Events that several parts listen to

    def hear(self, says: str, listener: Callable[[Notification], None]) -> None:
        """Call a part with each `TALK` of one kind from another process; each kind has one listener."""
        self.listen()
        self._heard[says] = listener

    def listen(self) -> None:
        """Listen for messages of other processes, even for parts that are not made yet."""
        if not self._listening:
            self._listening = True
            self.port.watch(statuses.TALK, self.talk)

    def talk(self, event: Notification) -> None:
        """Process a message of another process."""
        says = found(event.infos, SAYS, str) or ""
        part = HEARERS.get(says.partition(" ")[0])
        if part is not None:
            self.part(part)
        listener = self._heard.get(says)
        if listener is not None and event.source != self.port.proc:
            listener(event)

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended: end the operations of all parts."""
        for part in list(self._parts.values()):
            part.handle_disconnect(error)
