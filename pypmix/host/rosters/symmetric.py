"""Nodes on which the same command was started, such as `pypmix run --symmetric 0/2 --meet n1:7777`.

The process with place 0 is the launcher. The others become the daemons of their nodes, and end with the session. The
launcher starts the daemon of this node as a child process.
"""

from __future__ import annotations

import socket
import sys
import time

from pypmix._version import __version__
from pypmix.host.nodes import usable_cpus
from pypmix.host.placing import Node
from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.meet import HINT, Follower, Hello, Meeting, follow, serve
from pypmix.host.rosters.process import Errors, Started
from pypmix.host.rosters.proof import Secret
from pypmix.standard.record import Record
from pypmix.standard.types import decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pypmix.host.rosters.base import Lost, Settings, StartedDaemon
    from pypmix.host.rosters.meet import Address
    from pypmix.host.rosters.proof import Proof

SECRET_FILE = "PYPMIX_SECRET_FILE"

FIRST_PORT = 20000
PORTS = 8
SEEDS = 1500
"""Without a given port, processes meet at one of 8 ports from 20000 + 8 * (a number known to all, modulo 1500)."""


class Place(Record):
    """The place of this process among the processes that were started alike.

    Attributes:
        number: The place; the launcher's is 0.
        size: The number of processes.
        proof: The authentication between the processes.
        addresses: The addresses where the launcher may listen; its ports are tried in this order.
        name: The name of this node; this machine's host name if empty.
        slots: The number of ranks to run on this node; 0 for the number of CPUs.
        names: The names of all nodes, for errors; empty if unknown.
        hint: The remedy in the error if the launcher is not reached.
    """

    number: int
    size: int
    proof: Proof
    addresses: tuple[Address, ...]
    name: str = ""
    slots: int = 0
    names: tuple[str, ...] = ()
    hint: str = HINT

    def hello(self) -> Hello:
        """Return the hello that this process sends to the launcher."""
        return Hello(self.number, self.size, self.name or socket.gethostname(), __version__, usable_cpus(), self.slots)


class SymmetricRoster:
    """Nodes on which the same command was started by hand.

    Args:
        settings: The launcher's settings.
    """

    name = "symmetric"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._place = self.place(settings)
        self._deadline = time.monotonic() + settings.patience
        self._followers: dict[str, Follower] = {}
        self._meeting: Meeting | None = None
        self._errors: Errors | None = None
        self._own_daemon: Started | None = None

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return a text with this process's place; empty if the command line gives none."""
        if settings.symmetric is None:
            return ""
        place, size = settings.symmetric
        return f"process {place} of {size}, which meet at {settings.meet}"

    @classmethod
    def place(cls, settings: Settings) -> Place:
        """Return the place of this process.

        Raises:
            RosterError: The place is not known, or the means of the processes' authentication is missing.
        """
        if settings.symmetric is None:
            raise RosterError("the symmetric roster needs a place and a meeting point: --symmetric 0/2 --meet n1:7777")
        host, port = meeting_point(settings.meet)
        number, size = settings.symmetric
        return Place(number, size, secret(settings), ((host, port),))

    def join(self) -> int | None:
        """Become the daemon of this node until the session ends, and return its exit code; None in the launcher."""
        place = self._place
        if place.number == 0:
            return None
        return serve(*follow(place.addresses, place.hello(), place.proof, self._deadline, place.hint))

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, once a process of each has joined."""
        place = self._place
        own = place.hello()
        found = [own]
        if place.size > 1:
            ports = list(dict.fromkeys([port for _, port in place.addresses]))
            self._meeting = Meeting(place.size, place.proof, ports)
            came = self._meeting.wait(self._deadline, place.names)
            found += [came[number].hello for number in sorted(came)]
            self._followers = {follower.hello.name: follower for follower in came.values()}
        if len({hello.name for hello in found}) < len(found):
            names = ", ".join(sorted([hello.name for hello in found]))
            raise RosterError(f"two nodes have the same name: {names:.300}; start one process on each node")
        addresses = {name: follower.addresses for name, follower in self._followers.items()}
        return [
            Node(hello.name, hello.slots or hello.cpus, addresses.get(hello.name, ()), hello.cpus) for hello in found
        ]

    def start(self, node: Node, line: bytes) -> StartedDaemon:
        """Turn the process of a node into its daemon; start a child process on the launcher's own node."""
        follower = self._followers.get(node.name)
        if follower is not None:
            follower.begin(line)
            return follower
        self._errors = Errors()
        words = [sys.executable, *self._settings.daemon[1:]]
        self._own_daemon = Started(node.name, words, self._errors, _own_trouble)
        return self._own_daemon

    def watch(self, report_lost: Lost) -> None:
        """Do nothing: the session detects lost nodes by the ends of their connections."""

    def close(self) -> None:
        """Close the meeting, and end the daemon of this node."""
        if self._meeting is not None:
            self._meeting.close()
        if self._own_daemon is not None and self._errors is not None:
            self._own_daemon.close()
            self._errors.close()


def _own_trouble(node: str, code: int | None, errors: str) -> str:
    lines = errors.strip().splitlines()
    how = "does not answer" if code is None else f"ended with exit code {code}"
    return f"{node}: the daemon of this node {how}" + (f": {lines[-1][:300]}" if lines else "")


def secret(settings: Settings) -> Secret:
    """Return the secret in the file that the command line or the environment names.

    Raises:
        RosterError: No file is named, or it cannot be used.
    """
    path = settings.secret_file or settings.env.get(SECRET_FILE, "")
    if not path:
        raise RosterError(
            "the processes need a secret that they share: --secret-file FILE, or PYPMIX_SECRET_FILE "
            "(`umask 077; head -c 32 /dev/urandom | base64 > FILE`)"
        )
    return Secret.in_file(path)


def meeting_point(text: str) -> Address:
    """Parse `HOST:PORT`, the address where the launcher listens.

    Raises:
        RosterError: The text has another form.
    """
    host, _, port = text.rpartition(":")
    number = decimal(port, 0xFFFF)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not number:
        raise RosterError(f"processes meet at HOST:PORT of the launcher (--meet n1:7777), not at {text!r:.80}")
    return host, number


def ports(seed: int) -> range:
    """Return the ports where the launcher may listen, derived from a number that all processes know."""
    first = FIRST_PORT + PORTS * (seed % SEEDS)
    return range(first, first + PORTS)
