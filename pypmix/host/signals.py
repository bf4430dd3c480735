"""The signals that this process is sent while it runs a job."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

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
        wake_fd: A descriptor that ends the wait of the host's thread when a byte is written to it.
        interrupt: Called with each signal.
    """

    def __init__(self, wake_fd: int, interrupt: Callable[[int], None]) -> None:
        self._wake_fd = wake_fd
        self._interrupt = interrupt
        self._former: dict[int, object] = {}
        self._wakeup: int | None = None

    def take(self) -> None:
        """Have the host told of signals from now on."""
        # The kernel may hand the signal to the engine's thread; only a byte in this descriptor then ends the wait
        # of this one, where Python runs the handler.
        self._wakeup = signal.set_wakeup_fd(self._wake_fd, warn_on_full_buffer=False)
        for signum in TAKEN:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._former[signum] = signal.signal(signum, self._take)

    def _take(self, signum: int, _frame: FrameType | None) -> None:
        self._interrupt(signum)

    def restore(self) -> None:
        """Give the signals back."""
        for signum, handler in self._former.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        if self._wakeup is not None:
            signal.set_wakeup_fd(self._wakeup)
