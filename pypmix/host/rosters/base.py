"""The interface of a roster, which a site can implement for its resource manager.

`pypmix run` makes one roster, asks it for the nodes, and has it start a daemon on each. All calls are made from one
thread, except `close`, which is called after the others. A daemon is the command `settings.daemon`. It reads one line
from its standard input, which contains the session's secret, and answers one line on its standard output. The end of
its standard input means that the launcher has exited. So a roster provides both streams, and keeps the line out of
command lines, logs, and files that others can read.

A roster whose nodes join and leave while the session runs has the methods of `ElasticRoster`, too.

A class outside of pypmix is named by `--roster module:Class`, or by its name among the entry points `pypmix.rosters`.
"""

from __future__ import annotations

import sys
from typing import Protocol, runtime_checkable

from pypmix.host.terms import PATIENCE
from pypmix.standard.record import Record
from pypmix.standard.types import decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pypmix.host.placing import Node, NodeRequest, Obtained
    from pypmix.host.rosters.names import Host

    Lost = Callable[[str, str], None]

GROUP = "pypmix.rosters"
"""The group of entry points whose names `--roster` takes."""

NOT_OURS = -1
"""The `stdin` of a daemon whose standard input is not the launcher's: the roster has passed its line on."""


class RosterError(Exception):
    """The nodes cannot be used; the text names them and a remedy."""


def number(env: Mapping[str, str], name: str) -> int:
    """Return the number in an environment variable, 0 if the variable is not set.

    Raises:
        RosterError: The variable does not contain a number.
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
        hosts: The nodes of `--host` and `--hostfile`; empty if none were named.
        others: Further nodes of `--hostfile`, which `--host` has not chosen.
        agent: The template of `--launch-agent`; empty for the roster's default.
        python: The Python that runs the daemons, `--remote-python`.
        symmetric: The place of this process among the processes started alike, and their number; None if not given.
        meet: The address where these processes meet, `HOST:PORT`; empty if not given.
        secret_file: The file with the secret that these processes share; empty if not given.
        interface: The interface or network that nodes reach each other by; empty for any.
        patience: Seconds for all nodes to be ready.
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


class StartedDaemon(Protocol):
    """A process that is to become a daemon.

    Attributes:
        stdin: The descriptor that writes to its standard input; `NOT_OURS` if the roster passes the line on.
        stdout: The descriptor that reads its standard output.
    """

    stdin: int
    stdout: int

    def stop(self) -> None:
        """End it by force; may be called twice, and does not block."""

    def ended(self) -> int | None:
        """Return its exit code if it has ended; does not block."""

    def trouble(self) -> str:
        """Return why it has ended before it was ready, and a remedy; empty if that is not known."""


class Roster(Protocol):
    """The nodes of a session.

    It is made with `Settings`.

    Attributes:
        name: The value of `--roster` that chooses this roster.
    """

    name: str

    def __init__(self, settings: Settings) -> None:
        """Take the settings; raises `RosterError` if the roster cannot be used here."""

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return the reason to choose this roster here, as a line for people; empty if it does not apply."""

    def join(self) -> int | None:
        """Return None in the launcher.

        If the same command was started on each node, one process is the launcher. Each other process becomes the
        daemon of its node, and returns an exit code when the session ends.

        Raises:
            RosterError: The launcher is not reached.
        """

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, including the launcher's node if it takes part; may wait for them.

        Raises:
            RosterError: The nodes cannot be used.
        """

    def start(self, node: Node, line: bytes) -> StartedDaemon:
        """Start the daemon of a node; does not wait for it.

        Args:
            node: One of `nodes()`.
            line: The line for its standard input. Only a roster that leaves `stdin` at -1 sends it; any other roster
                returns the descriptor, and the session writes the line.

        Raises:
            OSError: The daemon cannot be started.
        """

    def watch(self, report_lost: Lost) -> None:
        """Call `report_lost(name, reason)`, on any thread, for each node that the resource manager gives up."""

    def close(self) -> None:
        """Release all resources at the end of the session."""


class Members(Protocol):
    """The nodes of a running session, for its roster to change; methods may be called from any thread."""

    def join(self, node: Node) -> None:
        """Add a node: its daemon is started by `start`."""

    def leave(self, name: str, reason: str = "") -> None:
        """Take a node back: the ranks on it are ended, and its daemon leaves."""

    def lost(self, name: str, reason: str) -> None:
        """Report a node as lost."""


@runtime_checkable
class ElasticRoster(Protocol):
    """The further methods of a roster whose nodes join and leave while the session runs."""

    def attend(self, members: Members) -> None:
        """Keep `members`, to report nodes that join and leave; called once, before any daemon is started."""

    def obtain(self, request: NodeRequest, done: Obtained) -> None:
        """Obtain further nodes; does not wait for them.

        Args:
            request: The requested nodes, or their number.
            done: Called once, now or later, on any thread: with the nodes, whose daemons are started by `start`; or
                without nodes and with the reason. Do not report these nodes by `Members.join` as well.
        """

    def release(self, node: Node) -> None:
        """Give back a node that has left the session, or could not join it."""
