"""The groups of one session: which part carries out which operation, and what the parts share.

Each part is a state machine for one concern: `standing` has the groups that stand; `constructing`, `inviting`,
`joining` and `entering` lead to one, `admitting` takes others in, `leaving` leads out of it; `election` finds a new
leader. A part is made when it is first wanted. All of them run where `port.enter` leads, one step at a time: an
operation of the caller, an event, an answer of the server, or a timer. They do no I/O: requests go out by
`port.submit`, and calls of the user's side by `port.tell`.

Processes talk to each other by events (`talk`). For each event the parts' `screen` is asked first, and drops what is
not news; then watchers are called, then the handlers of the program, and at last `conclude` gets their answer.
"""

from __future__ import annotations

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
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.chain import Conclusion
    from pypmix.engine.groups.port import Port
    from pypmix.standard.ops import Notification, Op
    from pypmix.standard.types import Info

PARTS = {
    GroupConstruct: ("constructing", "Constructing", "construct"),
    GroupDestruct: ("constructing", "Constructing", "destruct"),
    GroupInvite: ("inviting", "Inviting", "invite"),
    GroupInviteControl: ("inviting", "Inviting", "control"),
    GroupJoin: ("joining", "Joining", "join"),
    GroupLeave: ("leaving", "Leaving", "leave"),
    GroupWatch: ("standing", "Standing", "watch"),
    GroupUnwatch: ("standing", "Standing", "unwatch"),
    GroupAdmit: ("admitting", "Admitting", "admit"),
    GroupEnter: ("entering", "Entering", "enter"),
}
"""The module, the class and the method of the part that carries out an operation."""

HEARERS = {
    "admit": ("admitting", "Admitting"),
    "election": ("election", "Elections"),
    "enter": ("entering", "Entering"),
}
"""Which part what is said is for, by its first word: it is made when somebody says the first such thing."""

MAKERS = "inviting", "joining", "constructing", "entering"
"""The parts in which a group may be under way."""


class Agent:
    """The groups of one session; a session makes one when its first group operation comes.

    All methods are called where `port.enter` leads.

    Args:
        port: The session.
        keeps: See `Addresses`.
        stamps: See `Addresses`.

    Attributes:
        standing: The groups that stand.
        addresses: What their names stand for, and those of connections.
    """

    def __init__(self, port: Port, *, keeps: bool = False, stamps: bool = False) -> None:
        self.port = port
        # They know this class, and imports run one way.
        self.standing: Any = load("pypmix.engine.groups.standing", "Standing")(self)
        self.addresses: Any = load("pypmix.engine.groups.addresses", "Addresses")(
            port.proc, self.standing, keeps=keeps, stamps=stamps
        )
        self._parts: dict[str, Any] = {"standing": self.standing}
        self._listening = False
        self._heard: dict[str, Callable[[Notification], None]] = {}
        self._screens: dict[int, list[Callable[[Notification], bool]]] = {}
        self._conclusions: dict[int, list[Conclusion]] = {}

    def start(self, op: Op[Any], done: Done[Any]) -> None:
        """Carry out an operation of `PARTS`; errors go to `done`, which is called there."""
        module, name, method = PARTS[type(op)]
        part = self._parts.get(module) or self.part(module, name)
        try:
            getattr(part, method)(op, done)
        except PMIxError as error:
            done(None, error)

    @property
    def elections(self) -> Any:
        """The choice of new leaders."""
        return self.part("election", "Elections")

    @property
    def admitting(self) -> Any:
        """The admissions to groups that stand."""
        return self.part("admitting", "Admitting")

    @property
    def fencing(self) -> Any:
        """Fences of whole groups, where the server knows of none."""
        return self.part("fencing", "Fencing")

    def expect(self, codes: Iterable[int]) -> None:
        """Take in what these events tell from now on; called before a handler for some of `TAKEN_IN` is registered.

        Whom an invitation names is needed where its leader fails, and the program tells no more than that it joins.
        Its end may be told before it. What a handler is brought of a leader is not told again when this process calls
        the construct that it is about.
        """
        if statuses.GROUP_INVITED in codes or statuses.GROUP_CONSTRUCT_ABORT in codes:
            self.part("joining", "Joining")
        if statuses.GROUP_LEADER_SELECTED in codes:
            self.part("constructing", "Constructing").expects_leaders()

    def taken(self, name: str, *, joins: bool = True) -> str:
        """Tell in words why no group of this name can be made here; nothing where it can.

        Args:
            name: The name.
            joins: Whether it counts that this process joins one of that name by invitation.
        """
        inviting, joining, constructing, entering = map(self._parts.get, MAKERS)
        whole = Proc.unchecked(name, RANK_WILDCARD)
        if name == self.port.proc.nspace or self.port.fetch(whole, keys.JOB_SIZE) is not None:
            return f"there is a nspace {name!r} already"
        if self.standing.group(name) is not None:
            return f"there is a group {name!r} already"
        if inviting is not None and inviting.leads(name):
            return f"an invitation of the caller's to a group {name!r} is under way"
        if joins and joining is not None and joining.joins(name):
            return f"the caller is about to join another group {name!r}"
        if constructing is not None and constructing.calls(name):
            return f"a construct of a group {name!r} is under way"
        if entering is not None and entering.waits(name):
            return f"the caller waits for a group {name!r} to admit it"
        return ""

    def abandoned(self, name: str) -> None:
        """Nothing has come of one thing that was to make a group of this name: unless another one may, it is none."""
        inviting, joining, constructing, _ = map(self._parts.get, MAKERS)
        if inviting is not None and inviting.leads(name):
            return
        if joining is not None and joining.knows(name):
            return
        if constructing is None or not constructing.calls(name):
            self.standing.abandoned(name)

    def made(self, module: str) -> Any | None:
        """Return a part if there has been a need for it."""
        return self._parts.get(module)

    def part(self, module: str, name: str) -> Any:
        """Return a part, which is imported and made when it is wanted first: `Name(agent)`."""
        found = self._parts.get(module)
        if found is None:
            found = self._parts[module] = load(f"pypmix.engine.groups.{module}", name)(self)
        return found

    # Events that several parts listen to

    def hear(self, says: str, listener: Callable[[Notification], None]) -> None:
        """Have a part called with each `TALK` of another process that says something; each word has one listener."""
        self.listen()
        self._heard[says] = listener

    def listen(self) -> None:
        """Hear what other processes say, also what is for a part that is not there yet."""
        if not self._listening:
            self._listening = True
            self.port.watch(statuses.TALK, self.talk)

    def screen(self, code: int, wanted: Callable[[Notification], bool]) -> None:
        """See `Handlers.screen`, of which there is one for each code: an event is news if all parts want it."""
        self._screens.setdefault(code, []).append(wanted)
        self.port.handlers.screen(code, self._wanted)

    def conclude(self, code: int, conclusion: Conclusion) -> None:
        """See `Handlers.conclude`, of which there is one for each code: all parts are told."""
        self._conclusions.setdefault(code, []).append(conclusion)
        self.port.handlers.conclude(code, self._concluded)

    def _wanted(self, event: Notification) -> bool:
        # Each part takes it in, whatever the others say.
        return False not in [wanted(event) for wanted in self._screens[event.code]]

    def _concluded(self, event: Notification, status: int, results: tuple[Info, ...]) -> None:
        for conclusion in list(self._conclusions[event.code]):
            conclusion(event, status, results)

    def talk(self, event: Notification) -> None:
        """Take in what another process says."""
        says = found(event.infos, SAYS, str) or ""
        part = HEARERS.get(says.partition(" ")[0])
        if part is not None:
            self.part(*part)
        listener = self._heard.get(says)
        if listener is not None and event.source != self.port.proc:
            listener(event)

    def lost(self, error: BaseException | None) -> None:
        """The session is over: all parts end what is under way."""
        for part in list(self._parts.values()):
            part.lost(error)
