"""Who may speak to a server at all, and how much of its time those take whom it refuses.

Any user of the machine can reach a port of the loopback interface. Nobody but the users whose processes are expected is
listened to, and a user who was refused often lately is listened to at leisure only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.python.collectives import Clock

BURST = 128
"""Refusals of one user that cost nobody any waiting."""

PER_SECOND = 32
"""Refusals per second and user after that."""

MAX_DELAY = 2.0
"""The longest that a new connection is left unread, in seconds; less than what a handshake may take."""

MAX_USERS = 1024


class Admission:
    """What a server knows of the users who have tried to connect.

    Args:
        clock: Where time comes from.
        expected: Tells whether processes of a user are expected.
    """

    def __init__(self, clock: Clock, expected: Callable[[int], bool]) -> None:
        self._clock = clock
        self._expected = expected
        self._refused: dict[int | None, tuple[float, float]] = {}

    def welcome(self, uid: int | None) -> bool:
        """Tell whether a connection of this user is to be read; None where the kernel does not tell whose it is."""
        return uid is None or uid == 0 or self._expected(uid)

    def refused(self, uid: int | None) -> None:
        """Note that a connection of this user was refused."""
        debt = self._debt(uid)
        if uid not in self._refused and len(self._refused) >= MAX_USERS:
            self._refused.pop(next(iter(self._refused)))
        self._refused[uid] = debt + 1, self._clock.now()

    def delay(self, uid: int | None) -> float:
        """Return the seconds for which a new connection of this user is to be left unread."""
        if uid not in self._refused:
            return 0.0
        debt = self._debt(uid)
        if not debt:
            del self._refused[uid]
        return min(max(debt - BURST, 0.0) / PER_SECOND, MAX_DELAY)

    def _debt(self, uid: int | None) -> float:
        """Return the refusals that are not forgiven yet."""
        debt, since = self._refused.get(uid, (0.0, 0.0))
        return max(debt - (self._clock.now() - since) * PER_SECOND, 0.0)
