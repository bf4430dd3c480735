"""The options of a server, which facades hand to either engine."""

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
    """The notes of a server for a person.

    Args:
        proc: The server.
        told: Told of it; the logger `pypmix.server` by default.
    """

    def __init__(self, proc: Proc, told: Callable[[str], None] | None) -> None:
        self._proc = proc
        self._told = told
        self._lines = Limit()

    def add(self, text: str) -> None:
        """Note something."""
        # Who says it, or how it begins, is what it is about.
        note = self._lines.take(text[:24])
        if note is None:
            return
        text = printable_lines(text) + note
        if self._told is None:
            import logging

            logging.getLogger("pypmix.server").warning("%s: %s", self._proc, text)
            return
        try:
            self._told(text)
        except Exception as error:
            # The host's own code, which is not to end the thread that all need.
            fault("to log what a server does", error)


class ServerOptions(Record):
    """The options of a server of this node.

    Args:
        nspace: The server's own nspace; `pypmix-` and the pid if None.
        hostname: The name of this node; the system's by default.
        tmpdir: The folder that clients are told for temporary files; the system's by default.
        system_tmpdir: The folder for what is not of one job; that of the system by default.
        tool_support: Write the rendezvous files by which tools find this server, into `tmpdir`.
        system_server: Be the system server of this node: write that rendezvous file, into `system_tmpdir`.
        rendezvous_file: A further rendezvous file to write.
        rank: The server's own rank in its nspace, where a session has several servers.
        library: The path of the native engine's libpmix; that of `PYPMIX_LIBPMIX`, or what is found, by default.
        limits: What one peer may take of a server of the Python engine; libpmix has its own.
        security: The modules of which clients of the Python engine may use one; by default what `PYPMIX_SECURITY` says,
            else `native` alone. With `unchecked`, `native` is believed even where the kernel cannot tell whose a
            connection is.
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
