"""The users that may connect to a server, and the bound of the time that refused users may take.

Any user of the machine can reach a port of the loopback interface. Only users whose processes are
expected are admitted, and the connections of a user with many recent refusals are read late.

The owner of a connection is the user that the kernel reports: `UNKNOWN_USER` if it does not know the connection, and
None if it does not report the user of any connection, which is known when the server starts.
"""

from __future__ import annotations

from pypmix.engine.common import MUNGE, NATIVE, UNCHECKED
from pypmix.engine.peeruid import UNKNOWN_USER
from pypmix.engine.times import MAX_DELAY, REFUSALS_PER_SECOND
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BURST = 128
"""Refusals of one user that cause no delay."""

MAX_USERS = 1024


class Admission:
    """The users that have tried to connect to a server.

    Args:
        now: Returns the seconds of a monotonic clock.
        expected: Returns True if processes of a user are expected.
        security: The security modules of which clients may use one, and `unchecked`.
    """

    def __init__(
        self, now: Callable[[], float], expected: Callable[[int], bool], security: tuple[str, ...] = (NATIVE,)
    ) -> None:
        self._now = now
        self._expected = expected
        self._security = security
        self._refused: dict[int | None, tuple[float, float]] = {}

    def welcome(self, uid: int | None) -> bool:
        """Return True if a connection of this user may be read."""
        if uid is None:
            return MUNGE in self._security or UNCHECKED in self._security
        return uid != UNKNOWN_USER and (uid == 0 or self._expected(uid))

    @staticmethod
    def is_vouched(owner: int | None, module: str, uid: int) -> bool:
        """Return True if the kernel reports that a connection belongs to a user, whatever its process claims.

        In a user namespace, like the namespace of a rootless container, a process has another number for the same
        user. If munge is required, the kernel's report does not replace it.
        """
        return module != MUNGE and owner == uid

    def check_module(self, module: str) -> None:
        """Check that clients may use a security module.

        Raises:
            PMIxError: They may not (`ERR_INVALID_CRED`).
        """
        if module not in self._security or module == UNCHECKED:
            modules = ", ".join([name for name in self._security if name != UNCHECKED])
            detail = f"it uses the security module {module!r}, only {modules} is taken"
            raise PMIxError(detail, status=statuses.ERR_INVALID_CRED)

    def check(self, owner: int | None, module: str, uid: int, named: bool) -> None:
        """Check that a connection belongs to the expected user.

        Args:
            owner: The user that the kernel reports.
            module: The security module of its credential.
            uid: The expected user.
            named: Whether the connection has named a proc that is expected here.

        Raises:
            PMIxError: It belongs to another user, or nothing proves its user (`ERR_INVALID_CRED`).
        """
        if owner is None:
            # A credential of munge has been checked; a credential of `native` is only the client's claim.
            if module != MUNGE and not (named and UNCHECKED in self._security):
                detail = "nothing proves its user: the kernel does not tell whose its socket is"
                raise PMIxError(detail, status=statuses.ERR_INVALID_CRED)
        elif owner == UNKNOWN_USER:
            raise PMIxError("the kernel does not know its socket any more", status=statuses.ERR_INVALID_CRED)
        elif owner not in (0, uid):
            raise PMIxError(f"its socket belongs to user {owner}, not {uid}", status=statuses.ERR_INVALID_CRED)

    def refused(self, uid: int | None) -> None:
        """Note that a connection of this user was refused."""
        debt = self._debt(uid)
        if uid not in self._refused and len(self._refused) >= MAX_USERS:
            self._refused.pop(next(iter(self._refused)))
        self._refused[uid] = debt + 1, self._now()

    def delay(self, uid: int | None) -> float:
        """Return the seconds for which a new connection of this user is to be left unread."""
        if uid not in self._refused:
            return 0.0
        debt = self._debt(uid)
        if not debt:
            del self._refused[uid]
        return min(max(debt - BURST, 0.0) / REFUSALS_PER_SECOND, MAX_DELAY)

    def _debt(self, uid: int | None) -> float:
        """Return the refusals that are not forgiven yet."""
        debt, since = self._refused.get(uid, (0.0, 0.0))
        return max(debt - (self._now() - since) * REFUSALS_PER_SECOND, 0.0)
