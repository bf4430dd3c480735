"""Nodes on which the same command was started: `pypmix run --symmetric 0/2 --meet n1:7777` and its like.

The process with the first place is the launcher. The others become the daemons of their nodes, and end with the
session. The launcher's own node gets a daemon as well, as a child of it.
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

    from pypmix.host.rosters.base import Lost, Settings
    from pypmix.host.rosters.meet import Address
    from pypmix.host.rosters.proof import Proof
    from pypmix.host.session import StartedDaemon

SECRET_FILE = "PYPMIX_SECRET_FILE"

FIRST_PORT = 20000
PORTS = 8
SEEDS = 1500
"""Where processes meet that were told no port: one of 8 from 20000 + 8 * (what all of them know, modulo 1500)."""


class Place(Record):
    """This process among those that were started alike.

    Attributes:
        number: Its place; 0 is the launcher's.
        size: How many there are.
        proof: What they prove to each other by.
        addresses: Where the launcher may listen; its ports are tried in this order.
        name: The name of this node; this machine's host name if empty.
        slots: How many ranks this node is meant to run; 0 for as many as it has CPUs.
        names: The names of all nodes, where they are known, for errors.
        hint: What to try where the launcher is not reached.
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
        """Return what a process of this place says to the launcher."""
        return Hello(self.number, self.size, self.name or socket.gethostname(), __version__, usable_cpus(), self.slots)


class SymmetricRoster:
    """Nodes on which the same command was started by hand.

    Args:
        settings: What the command line says.
    """

    name = "symmetric"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._place = self.place(settings)
        self._deadline = time.monotonic() + settings.patience
        self._followers: dict[str, Follower] = {}
        self._meeting: Meeting | None = None
        self._errors: Errors | None = None
        self._own: Started | None = None

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return this process's place."""
        if settings.symmetric is None:
            return ""
        place, size = settings.symmetric
        return f"process {place} of {size}, which meet at {settings.meet}"

    @classmethod
    def place(cls, settings: Settings) -> Place:
        """Return the place of this process.

        Raises:
            RosterError: It is not known, or the processes cannot prove to each other that they belong together.
        """
        if settings.symmetric is None:
            raise RosterError("the symmetric roster needs a place and a meeting point: --symmetric 0/2 --meet n1:7777")
        host, port = meeting_point(settings.meet)
        number, size = settings.symmetric
        return Place(number, size, secret(settings), ((host, port),))

    def join(self) -> int | None:
        """Become the daemon of this node until the session is over, and return an exit code; None for the launcher."""
        place = self._place
        if place.number == 0:
            return None
        return serve(*follow(place.addresses, place.hello(), place.proof, self._deadline, place.hint))

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, once a process of each has come."""
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
        """Have the process that has come from a node become its daemon."""
        follower = self._followers.get(node.name)
        if follower is not None:
            follower.begin(line)
            return follower
        self._errors = Errors()
        words = [sys.executable, *self._settings.daemon[1:]]
        self._own = Started(node.name, words, self._errors, _own_trouble)
        return self._own

    def watch(self, lost: Lost) -> None:
        """The ends of the connections tell of the nodes."""

    def close(self) -> None:
        """Let the others go."""
        if self._meeting is not None:
            self._meeting.close()
        if self._own is not None and self._errors is not None:
            self._own.close()
            self._errors.close()


def _own_trouble(node: str, code: int | None, errors: str) -> str:
    lines = errors.strip().splitlines()
    how = "does not answer" if code is None else f"ended with exit code {code}"
    return f"{node}: the daemon of this node {how}" + (f": {lines[-1][:300]}" if lines else "")


def secret(settings: Settings) -> Secret:
    """Return the secret of the file that the command line or the environment names."""
    path = settings.secret_file or settings.env.get(SECRET_FILE, "")
    if not path:
        raise RosterError(
            "the processes need a secret that they share: --secret-file FILE, or PYPMIX_SECRET_FILE "
            "(`umask 077; head -c 32 /dev/urandom | base64 > FILE`)"
        )
    return Secret.in_file(path)


def meeting_point(text: str) -> Address:
    """Read `HOST:PORT`, where the launcher listens."""
    host, _, port = text.rpartition(":")
    number = decimal(port, 0xFFFF)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not number:
        raise RosterError(f"processes meet at HOST:PORT of the launcher (--meet n1:7777), not at {text!r:.80}")
    return host, number


def ports(seed: int) -> range:
    """Return where the launcher listens, by a number that all processes know."""
    first = FIRST_PORT + PORTS * (seed % SEEDS)
    return range(first, first + PORTS)
