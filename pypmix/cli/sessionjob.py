"""`pypmix run --session`: a job in a standing session."""

from __future__ import annotations

import os
import signal

from pypmix.host.outcome import Outcome, signal_text
from pypmix.host.processes import readable_here
from pypmix.host.sessions import ANSWER_SECONDS, Wish, run_job
from pypmix.host.signals import ENDING, PASSED_ON

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from pypmix.cli.options import Request
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
    try:
        return run_job(request.session, wish, (0 if reads else -1, 1, 2), env, _pass_signals_on)
    except _UnansweredSignal as error:
        text = f"session {request.session} does not answer, and ends the job when it continues"
        return Outcome(128 + error.signum, f"ended by {signal_text(error.signum)}; {text}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _UnansweredSignal(Exception):
    """The session has not answered a signal that is to end the job."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def _pass_signals_on(link: Link) -> None:
    """Send the session the signals of this process from now on, for the ranks.

    The end of this process does not depend on the session: it may be stopped, and its machine too.
    """
    unanswered: list[int] = []

    def send(signum: int, _frame: FrameType | None) -> None:
        if signum == signal.SIGALRM and unanswered:
            raise _UnansweredSignal(unanswered[0])
        if signum in ENDING:
            unanswered.append(signum)
            signal.setitimer(signal.ITIMER_REAL, ANSWER_SECONDS)
        try:
            link.send({"signal": signum})
            if signum == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)
                link.send({"signal": signal.SIGCONT})
        except OSError:
            # The session has ended, which reading shows.
            return

    def forget_signal() -> None:
        unanswered.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)

    link.note_answer = forget_signal
    for signum in (*ENDING, *PASSED_ON, signal.SIGTSTP):
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, send)
