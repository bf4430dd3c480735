"""The signals that this process is sent while it runs a job.

A resource manager may send a signal to the launcher or daemon alone, or to all processes of a step: then ranks have it
already. `pypmix.host.guard.Guard.was_sent` distinguishes these cases.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signal
    from collections.abc import Callable
    from types import FrameType
else:
    # `signal` has the same functions, and makes enums of their numbers: a tenth of what a small job costs.
    import _signal as signal

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end the jobs."""

_OTHERS = (
    "KILL", "STOP", "TSTP", "TTIN", "TTOU", "CONT",
    "CHLD", "URG", "WINCH", "PIPE", "XFSZ",
    "ILL", "TRAP", "ABRT", "BUS", "FPE", "SEGV", "SYS",
)  # fmt: skip
"""Signals that stop and continue processes, end none by default or in Python, or report a fault of the process."""

PASSED_ON = tuple(sorted(signal.valid_signals() - set(ENDING) - {getattr(signal, f"SIG{name}") for name in _OTHERS}))
"""Signals that are meant for the ranks: SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, the real-time signals, and the like.

Their default action ends a process.
"""

BLOCKED = signal.valid_signals() - {signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP}
"""Signals that helpers block, which must not end with the ranks; they wait for their own children by SIGCHLD."""

LOOK = 0.05
"""Seconds that a resource manager has to send a signal to all processes of a step, one after the other."""


def outlive() -> None:
    """Keep signals that are meant for ranks from ending this process, which has no ranks yet.

    This sets handlers, since children would inherit an ignored signal.
    """
    for signum in PASSED_ON:
        if signal.getsignal(signum) is signal.SIG_DFL:
            signal.signal(signum, lambda *_: None)


class Signals:
    """This process's signals, passed to a host; for the main thread only.

    A signal that was ignored from the start, as nohup does with SIGHUP, stays ignored.

    Args:
        wake_fd: A descriptor that ends the wait of the host's thread when a byte is written to it.
    """

    def __init__(self, wake_fd: int) -> None:
        self._wake_fd = wake_fd
        self._former: dict[int, object] = {}
        self._wakeup: int | None = None

    def handle(self, handler: Callable[[int], None]) -> None:
        """Call a handler with the number of each signal from now on."""

        def handle(signum: int, _frame: FrameType | None) -> None:
            handler(signum)

        # The kernel may deliver the signal on the engine's thread; only a byte in this descriptor then ends the wait
        # of this one, on which Python runs the handler.
        self._wakeup = signal.set_wakeup_fd(self._wake_fd, warn_on_full_buffer=False)
        for signum in (*ENDING, *PASSED_ON, signal.SIGTSTP, signal.SIGCONT):
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._former[signum] = signal.signal(signum, handle)

    def restore(self) -> None:
        """Restore the former handlers."""
        for signum, handler in self._former.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        if self._wakeup is not None:
            signal.set_wakeup_fd(self._wakeup)
