"""The signals that this process is sent while it runs a job."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from pypmix.host.local import LocalHost

TAKEN = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGCONT,
)


class Signals:
    """This process's signals, handed to a host; for the main thread only.

    A signal that this process was told to ignore, as nohup does with SIGHUP, stays ignored.

    Args:
        host: The host.
    """

    def __init__(self, host: LocalHost) -> None:
        self._host = host
        self._former: dict[int, object] = {}
        self._wakeup: int | None = None

    def take(self) -> None:
        """Have the host told of signals from now on."""
        # The kernel may hand the signal to the engine's thread; only a byte in this descriptor then ends the wait
        # of this one, where Python runs the handler.
        self._wakeup = signal.set_wakeup_fd(self._host.wake_fd, warn_on_full_buffer=False)
        for signum in TAKEN:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._former[signum] = signal.signal(signum, self._take)

    def _take(self, signum: int, _frame: FrameType | None) -> None:
        self._host.interrupt(signum)

    def restore(self) -> None:
        """Give the signals back."""
        for signum, handler in self._former.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        if self._wakeup is not None:
            signal.set_wakeup_fd(self._wakeup)
