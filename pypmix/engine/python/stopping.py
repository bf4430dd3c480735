"""A client that waits in `PMIx_Init` until a debugger releases it, as clients of libpmix do."""

from __future__ import annotations

import threading

from pypmix.standard import codes, keys, statuses
from pypmix.standard.ops import NotifyEvent, RegisterEventHandler
from pypmix.standard.ops.events import RANGE_RM
from pypmix.standard.types import Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.base import ClientSession, Delivery

IN_INIT = "pmix-init"
"""The breakpoint, as libpmix names it."""


def wait_for_release(session: ClientSession) -> None:
    """Report that this process waits for a debugger, and wait for its release; there is no limit of time.

    Raises:
        LostConnection: The server is lost meanwhile.
    """
    released = threading.Event()
    lost: list[BaseException | None] = []

    def release(delivery: Delivery) -> None:
        delivery.done()
        released.set()

    def end(error: BaseException | None) -> None:
        lost.append(error)
        released.set()

    true = Value.unchecked(codes.BOOL, True)
    name = Info(keys.EVENT_HDLR_NAME, Value.unchecked(codes.STRING, "WAIT-FOR-DEBUGGER"))
    directives = (name, Info(keys.EVENT_ONESHOT, true))
    try:
        session.run(RegisterEventHandler(release, (statuses.DEBUGGER_RELEASE,), directives, end))
        infos = (
            Info(keys.EVENT_NON_DEFAULT, true),
            Info(keys.BREAKPOINT, Value.unchecked(codes.STRING, IN_INIT)),
            Info(keys.EVENT_DO_NOT_CACHE, true),
        )
        session.run(NotifyEvent(statuses.READY_FOR_DEBUG, RANGE_RM, infos))
        # In pieces, so that signal handlers of Python run.
        while not released.wait(1.0):
            pass
    except BaseException:
        session.close()
        raise
    if lost and lost[0] is not None:
        session.close()
        raise lost[0]
