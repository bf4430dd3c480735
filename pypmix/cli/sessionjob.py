"""`pypmix run --session`: a job in a standing session."""

from __future__ import annotations

import os
import signal

from pypmix.host.processes import readable_here
from pypmix.host.sessions import Wish, run_job
from pypmix.host.signals import ENDING, PASSED_ON

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from pypmix.cli.options import Request
    from pypmix.host.outcome import Outcome
    from pypmix.host.sessions import Link


def run_in_session(request: Request, env: Mapping[str, str]) -> Outcome:
    """Run the job of a command line in its session, and return the end of the job.

    Raises:
        ValueError: The name cannot be that of a session.
        PMIxError: There is no such session, it refuses the job, or it ends before the job.
    """
    terms, where = request.terms, request.selection
    apps = request.apps
    if request.engine:
        apps = tuple([app.replace(env=(("PYPMIX_ENGINE", request.engine), *app.env)) for app in apps])
    wish = Wish(
        apps,
        terms,
        request.timeout or 0.0,
        where.patience,
        request.fill,
        tuple([(host.name, host.slots) for host in where.hosts]),
        None if where.mapping == type(where.mapping)() else where.mapping,
        request.faults,
        tuple(env.items()),
        os.getcwd(),
    )
    reads = terms.stdin is not None and not terms.pushed and readable_here(0)
    return run_job(request.session, wish, (0 if reads else -1, 1, 2), env, _pass_signals_on)


def _pass_signals_on(link: Link) -> None:
    """Send the session the signals of this process from now on, for the ranks."""

    def send(signum: int, _frame: FrameType | None) -> None:
        try:
            link.send({"signal": signum})
            if signum == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)
                link.send({"signal": signal.SIGCONT})
        except OSError:
            # The session has ended, which reading shows.
            return

    for signum in (*ENDING, *PASSED_ON, signal.SIGTSTP):
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, send)
