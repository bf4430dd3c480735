"""Clients that have ended but stay registered with the library for a short time."""

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
"""The first release in which a client that has finalized can be deregistered as soon as it has ended.

Earlier releases close the client's socket at the deregistration, and continue to watch the number of its descriptor. If
they have not read the end of the connection yet, the next client whose connection gets that number is never served: its
request for the job info stays unread. So their thread must work through its queue before (`settle`): the end of the
connection is readable once the process has ended.

In no release can a client that has not finalized be deregistered at once: the library has not read the end of its
connection yet, and would forget the client without reporting it as lost. It is deregistered when the library has
reported the loss. Until then, collectives of other procs wait for the client. Release 4.2 waits for ever in collectives
that are called in between.
"""


class Lingering:
    """Deregisters clients that have ended after some time; used from any thread.

    Args:
        forget: Deregisters a client.
        alarms: The alarms that run the delayed calls.
        log: Called with the text of each failure.
    """

    def __init__(self, forget: Callable[[Proc], None], alarms: Alarms, log: Callable[[str], None]) -> None:
        self._forget = forget
        self._alarms = alarms
        self._log = log
        self._lock = threading.Lock()
        self._due: dict[Proc, Alarm] = {}

    def add(self, proc: Proc) -> None:
        """Add a client that has ended."""
        with self._lock:
            if proc not in self._due:
                self._due[proc] = self._alarms.later(CLOSED_SECONDS, partial(self._deregister, proc))

    def take(self, proc: Proc) -> bool:
        """Remove a client; return True if it was there."""
        with self._lock:
            alarm = self._due.pop(proc, None)
        if alarm is not None:
            alarm.cancel()
        return alarm is not None

    def drop(self, nspace: str) -> None:
        """Remove all clients of an nspace."""
        for proc in [proc for proc in list(self._due) if proc.nspace == nspace]:
            self.take(proc)

    def _deregister(self, proc: Proc) -> None:
        if not self.take(proc):
            return
        try:
            self._forget(proc)
        except Exception as error:
            self._log(f"{proc} cannot be deregistered: {error}")
