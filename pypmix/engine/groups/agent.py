"""The groups of one session: which part takes which operation, and what the parts know of each other."""

from __future__ import annotations

from pypmix.standard.ops import (
    GroupConstruct,
    GroupDestruct,
    GroupInvite,
    GroupInviteControl,
    GroupJoin,
    GroupLeave,
    GroupRequest,
    GroupUnwatch,
    GroupWatch,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.groups.port import Port
    from pypmix.standard.ops import GroupState, Op

PARTS = {
    GroupConstruct: ("constructing", "Constructing"),
    GroupDestruct: ("constructing", "Constructing"),
    GroupInvite: ("inviting", "Inviting"),
    GroupInviteControl: ("inviting", "Inviting"),
    GroupJoin: ("joining", "Joining"),
    GroupLeave: ("standing", "Standing"),
    GroupWatch: ("standing", "Standing"),
    GroupUnwatch: ("standing", "Standing"),
    GroupRequest: ("requesting", "Requesting"),
}
"""The module and the class of the part that carries out an operation."""


class Agent:
    """The groups of one session; a session makes one when its first group operation comes.

    All methods are called where `port.enter` leads.

    Args:
        port: The session.
    """

    def __init__(self, port: Port) -> None:
        self.port = port
        self._parts: dict[str, Any] = {}

    def start(self, op: Op[Any], done: Done[Any]) -> None:
        """Carry out an operation of `PARTS`; errors go to `done`, which is called there."""
        self.part(*PARTS[type(op)]).start(op, done)

    def state(self, name: str) -> GroupState | None:
        """Return how a group stands that this process is a member of."""
        found: GroupState | None = self.standing.state(name)
        return found

    @property
    def standing(self) -> Any:
        """The groups that stand."""
        return self.part("standing", "Standing")

    @property
    def elections(self) -> Any:
        """The choice of new leaders."""
        return self.part("election", "Elections")

    def part(self, module: str, name: str) -> Any:
        """Return a part, which is imported and made when it is wanted first: `Name(agent)`."""
        found = self._parts.get(module)
        if found is None:
            from sys import modules

            full = f"pypmix.engine.groups.{module}"
            __import__(full)
            found = self._parts[module] = getattr(modules[full], name)(self)
        return found

    def lost(self, error: BaseException | None) -> None:
        """The session is over: all parts end what is under way."""
        for part in self._parts.values():
            part.lost(error)
