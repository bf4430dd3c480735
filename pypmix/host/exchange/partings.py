"""Servers that have lost each other while both are there: one of them leaves, so that all who are left have all others.

A connection that breaks is, for the two servers at its ends, the end of the other one. Those who still have both would
go on with the two of them, while each of these goes on without the other: no operation of all three could come to one
end. So whoever loses a server tells the others. One who has both tells the lost one, and if that is there, the later
of the two by name leaves: it tells all whom it still has, and goes on alone. The first server by name, where the
session keeps what it has only once, stays.

A server that has ended does not answer, and each of the others is told of its end by its own carrier, after its last
message: what somebody else has heard before ends nothing.
"""

from __future__ import annotations

from pypmix.host.exchange import fields
from pypmix.host.exchange.turns import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LOST = "pypmix.lost"
"""The sender has lost the server of this name."""

PARTED = "pypmix.parted"
"""The server of this name has lost the receiver."""

OUT = "pypmix.out"
"""The sender leaves."""


class Partings:
    """One server's part in it; used in the turns of its exchange.

    Args:
        name: This server's name.
        here: The servers that are there, this one included, as they are at any time.
        tell: Tells one of them something about a topic.
        lose: Goes on without one of them, as if it had gone.

    Attributes:
        listeners: Who hears what others tell, by topic.
        out: Whether this server has left the others.
    """

    def __init__(
        self, name: str, here: set[str], tell: Callable[[str, str, bytes], None], lose: Callable[[str], None]
    ) -> None:
        self._name = name
        self._here = here
        self._tell = tell
        self._lose = lose
        self.out = False
        self.listeners = {LOST: self._told_lost, PARTED: self._told_parted, OUT: self._told_out}

    def lost(self, name: str) -> None:
        """This server has lost another one."""
        for other in self._others():
            self._tell(other, LOST, fields.text(name))

    def _others(self) -> list[str]:
        return sorted(self._here - {self._name})

    def _told_lost(self, sender: str, data: bytes) -> None:
        name = fields.to_text(data)
        if name in self._here and name not in (sender, self._name):
            self._tell(name, PARTED, fields.text(sender))

    def _told_parted(self, sender: str, data: bytes) -> None:
        other = fields.to_text(data)
        if other < self._name:
            self._leave(other)
        elif other > self._name:
            self._tell(sender, LOST, fields.text(other))
            self._lose(other)

    def _leave(self, because: str) -> None:
        if not self.out:
            self.out = True
            log.warning("%s: leaves the session, since it has no connection with %s", self._name, because)
            rest = self._others()
            for other in rest:
                self._tell(other, OUT, b"")
            for other in rest:
                self._lose(other)

    def _told_out(self, sender: str, _data: bytes) -> None:
        self._lose(sender)
