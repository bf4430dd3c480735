"""The options of a server, which facades pass to either engine."""

from __future__ import annotations

import os

from pypmix.engine.faults import fault
from pypmix.standard.limits import DEFAULTS, Limits
from pypmix.standard.logtext import Limit, printable_lines
from pypmix.standard.record import Record
from pypmix.standard.types import MAX_NSLEN, Proc, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Notes:
    """The log messages of a server.

    Args:
        proc: The server.
        log: Receives the messages; by default the logger `pypmix.server`.
    """

    def __init__(self, proc: Proc, log: Callable[[str], None] | None) -> None:
        self._proc = proc
        self._log = log
        self._lines = Limit()

    def add(self, text: str) -> None:
        """Add a message."""
        # The beginning of a message identifies its subject, for the limit of repeated messages.
        note = self._lines.take(text[:24])
        if note is None:
            return
        text = printable_lines(text) + note
        if self._log is None:
            import logging

            logging.getLogger("pypmix.server").warning("%s: %s", self._proc, text)
            return
        try:
            self._log(text)
        except Exception as error:
            # An error in the host's code must not end the server's thread.
            fault("to log what a server does", error)


class ServerOptions(Record):
    """The options of a server of this node.

    Args:
        nspace: The server's nspace; None for `pypmix-` and the pid.
        hostname: The name of this node; by default the system's.
        tmpdir: The folder for temporary files, also of clients; by default the system's.
        system_tmpdir: The folder for files that do not belong to one job; by default the system's.
        tool_support: Write the rendezvous files with which tools find this server, into `tmpdir`.
        system_server: Be the system server of this node: write its rendezvous file, into `system_tmpdir`.
        rendezvous_file: A further rendezvous file to write.
        rank: The server's rank in its nspace, if a session has several servers.
        library: The path of the native engine's libpmix; by default that of `PYPMIX_LIBPMIX`, or the library found.
        limits: The limits for one peer of a server of the Python engine; libpmix has its own.
        security: The security modules for clients of the Python engine; by default those of `PYPMIX_SECURITY`, or only
            `native`. With `unchecked`, `native` is accepted even if the kernel does not report the user of a
            connection.
    """

    nspace: str | None = None
    hostname: str | None = None
    tmpdir: str | None = None
    system_tmpdir: str | None = None
    tool_support: bool = False
    system_server: bool = False
    rendezvous_file: str | None = None
    rank: int = 0
    library: str | None = None
    limits: Limits = DEFAULTS
    security: tuple[str, ...] = ()

    @property
    def proc(self) -> Proc:
        """The server's name."""
        return Proc(check_name(self.nspace or f"pypmix-{os.getpid()}", MAX_NSLEN, "the server's nspace"), self.rank)

    @property
    def folder(self) -> str:
        """The folder for temporary files."""
        return self.tmpdir or os.environ.get("TMPDIR") or "/tmp"
