"""The interface of a roster, which a site can implement for a resource manager of its own.

`pypmix run` makes one roster, asks it for the nodes, and has it start a daemon on each. All calls come from one thread,
but for `close`, which comes after the others. A daemon is the command `settings.daemon`. It reads one line from its
standard input, which holds the session's secret, and answers one line on its standard output. The end of its standard
input tells it that the launcher has gone. So a roster gives it both, and keeps the line from command lines, logs, and
files that others can read.

A roster whose nodes come and go while the session runs has the methods of `ElasticRoster`, too.

A class outside of pypmix is named by `--roster module:Class`, or by its name among the entry points `pypmix.rosters`.
"""

from __future__ import annotations

import sys
from typing import Protocol, runtime_checkable

from pypmix.standard.record import Record
from pypmix.standard.types import decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pypmix.host.placing import Node, Obtained, Wanted
    from pypmix.host.rosters.names import Host
    from pypmix.host.session import StartedDaemon

    Lost = Callable[[str, str], None]

GROUP = "pypmix.rosters"
"""The group of entry points whose names `--roster` takes."""

PATIENCE = 30.0
"""Seconds for all nodes to come."""


class RosterError(Exception):
    """The nodes cannot be had; the text says which and what to try."""


def number(env: Mapping[str, str], name: str) -> int:
    """Return the number that a variable holds, 0 where it is not there.

    Raises:
        RosterError: It holds something else.
    """
    text = env.get(name, "0")
    found = decimal(text, 1 << 40)
    if found is None:
        raise RosterError(f"{name} is to be a number, and is {text!r:.80}")
    return found


class Settings(Record):
    """The command line and the environment, as far as rosters are concerned.

    Attributes:
        env: The launcher's environment.
        hosts: The nodes of `--host` and `--hostfile`; empty where none were named.
        others: Further nodes of `--hostfile`, which `--host` has not chosen.
        agent: The template of `--launch-agent`; empty for the roster's own.
        python: The Python that runs the daemons, `--remote-python`.
        symmetric: This process's place among those that were started alike, and their number; None if not given.
        meet: Where these meet, `HOST:PORT`; empty if not given.
        secret_file: The file that holds the secret that they share; empty if not given.
        interface: The interface or network that nodes reach each other by; empty for any.
        patience: Seconds for all nodes to come.
    """

    env: Mapping[str, str]
    hosts: tuple[Host, ...] = ()
    agent: str = ""
    python: str = sys.executable
    symmetric: tuple[int, int] | None = None
    meet: str = ""
    secret_file: str = ""
    interface: str = ""
    patience: float = PATIENCE
    others: tuple[Host, ...] = ()

    @property
    def daemon(self) -> list[str]:
        """The command that runs a daemon."""
        return [self.python, "-m", "pypmix", "node"]


class Roster(Protocol):
    """The nodes of a session.

    It is made with `Settings`.

    Attributes:
        name: What `--roster` calls it.
    """

    name: str

    def __init__(self, settings: Settings) -> None:
        """Take the settings; raises `RosterError` where the roster cannot be used here."""

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return why this roster is the one to take here, in a line for people; empty if it is not."""

    def join(self) -> int | None:
        """Return None in the launcher.

        Where the same command was started on each node, one process is the launcher. Each other one becomes the
        daemon of the node, and returns an exit code when the session is over.

        Raises:
            RosterError: The launcher is not reached.
        """

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, the launcher's own too if it is one of them; may wait for them.

        Raises:
            RosterError: They cannot be had.
        """

    def start(self, node: Node, line: bytes) -> StartedDaemon:
        """Start the daemon of a node; does not wait for it.

        Args:
            node: One of `nodes()`.
            line: The line for its standard input. Only a roster that leaves `stdin` at -1 passes it on; all others
                give the descriptor, and the session writes it.

        Raises:
            OSError: It cannot be started.
        """

    def watch(self, lost: Lost) -> None:
        """Have `lost(name, reason)` called, on any thread, for each node that the resource manager gives up."""

    def close(self) -> None:
        """The session is over: let go of what was taken."""


class Members(Protocol):
    """The nodes of a session that runs, as a roster changes them; from any thread."""

    def join(self, node: Node) -> None:
        """Have one more node join: its daemon is started by `start`."""

    def leave(self, name: str, reason: str = "") -> None:
        """Take a node back: the ranks on it are ended, and its daemon leaves."""

    def lost(self, name: str, reason: str) -> None:
        """The node is lost."""


@runtime_checkable
class ElasticRoster(Protocol):
    """The further methods of a roster whose nodes come and go while the session runs."""

    def attend(self, members: Members) -> None:
        """Take what is told of nodes that join and leave; called once, before any daemon is started."""

    def obtain(self, wanted: Wanted, done: Obtained) -> None:
        """Obtain further nodes; does not wait for them.

        Args:
            wanted: Which, or how many.
            done: Called once, now or later, on any thread: with the nodes, whose daemons are started by `start`; or
                with none and the reason. It is not told of them by `Members.join` as well.
        """

    def release(self, node: Node) -> None:
        """A node has left the session, or could not join it: give it back."""
