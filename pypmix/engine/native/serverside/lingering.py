"""Clients that have ended and that the library is to know a little longer."""

from __future__ import annotations

import threading
from functools import partial

from pypmix.engine.times import CLOSED_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.alarms import Alarm, Alarms
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Proc

HASTY: Release = (5, 0, 2)
"""The first release that may be told at once that a client which has finalized has ended.

Earlier ones close its socket then, and continue to watch its descriptor's number. If they have not read its end yet,
the next client whose connection gets that number is never served: its request for the job info stays unread. So their
thread has to go through its queue before (`settle`): the end is there to be read once the process has ended.

No release may be told at once of a client that has not finalized: it has not read the end of the connection yet, and
forgets the client without reporting it as lost. It is told when it has reported the loss: until then it waits for the
client in what others call. What is called in between, 4.2 waits in for ever.
"""


class Lingering:
    """Tells the library of clients that have ended, a while later; used from any thread.

    Args:
        forget: Tells it of one.
        alarms: What wakes it.
        log: Told of what goes wrong.
    """

    def __init__(self, forget: Callable[[Proc], None], alarms: Alarms, log: Callable[[str], None]) -> None:
        self._forget = forget
        self._alarms = alarms
        self._log = log
        self._lock = threading.Lock()
        self._due: dict[Proc, Alarm] = {}

    def add(self, proc: Proc) -> None:
        """A client has ended."""
        with self._lock:
            if proc not in self._due:
                self._due[proc] = self._alarms.later(CLOSED_SECONDS, partial(self._over, proc))

    def take(self, proc: Proc) -> bool:
        """Take a client out; return whether it was there."""
        with self._lock:
            alarm = self._due.pop(proc, None)
        if alarm is not None:
            alarm.cancel()
        return alarm is not None

    def drop(self, nspace: str) -> None:
        """An nspace is forgotten as a whole."""
        for proc in [proc for proc in list(self._due) if proc.nspace == nspace]:
            self.take(proc)

    def _over(self, proc: Proc) -> None:
        if not self.take(proc):
            return
        try:
            self._forget(proc)
        except Exception as error:
            self._log(f"{proc} cannot be deregistered: {error}")
