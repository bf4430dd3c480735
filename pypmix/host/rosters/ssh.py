"""The nodes of `--host` and `--hostfile`, on which ssh, or another agent that runs a command there, starts daemons.

The ssh is the system's, with the user's configuration, keys and agent. All nodes are started concurrently; if there are
many, some of them start the others (`tree`). The secret of the session is sent over standard input, so that no command
line on any machine contains it. The launcher's own node needs no ssh, unless the command line names an agent.
"""

from __future__ import annotations

import os
import shlex
import socket

from pypmix.host.addresses import is_loopback
from pypmix.host.launch import has_program
from pypmix.host.placing import Node
from pypmix.host.rosters import process
from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.names import Host
from pypmix.host.rosters.tree import FLAT, RADIX, Relays
from pypmix.standard.logtext import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pypmix.host.placing import NodeRequest, Obtained
    from pypmix.host.rosters.base import Lost, Members, Settings, StartedDaemon

AGENT = "ssh -T -x -o BatchMode=yes -- {host}"
"""The command that runs a command on a node: without a terminal, and with an error instead of a password prompt."""

SHELLS = ("ssh", "rsh", "remsh")
"""Agents that join their words into one line for a shell on the remote side."""


def command(agent: str, host: str, words: Sequence[str]) -> list[str]:
    """Return the command line that runs `words` on a host.

    Args:
        agent: A command line in which `{host}` stands for the host and `{command}` for the words, quoted for a shell.
            Without `{host}` the host is added at the end. Without `{command}` the words follow, unchanged, or quoted if
            the agent is in `SHELLS`.
        host: The host.
        words: The command to run.

    Raises:
        RosterError: The agent's quotes do not match, or it is empty.
    """
    try:
        template = shlex.split(agent)
    except ValueError as error:
        raise RosterError(f"--launch-agent {agent!r:.200} cannot be read: {error}") from None
    if not template:
        raise RosterError("--launch-agent is empty: name a command such as 'ssh {host} --'")
    if not any("{host}" in word for word in template):
        template.append("{host}")
    line = [word.replace("{host}", host).replace("{command}", shlex.join(words)) for word in template]
    if any("{command}" in word for word in template):
        return line
    quoted = os.path.basename(template[0]) in SHELLS
    return [*line, *([shlex.quote(word) for word in words] if quoted else words)]


class SSHRoster:
    """The nodes that the command line names.

    Args:
        settings: The launcher's settings.

    Attributes:
        flat: The maximum number of nodes that are all started from here.
        radix: The maximum number of blocks of more nodes; each block is started by its first node.
    """

    name = "ssh"
    flat = FLAT
    radix = RADIX

    def __init__(self, settings: Settings) -> None:
        if not settings.hosts:
            raise RosterError("the ssh roster needs nodes: --host n1,n2:4 or --hostfile FILE")
        self._settings = settings
        self._agent = settings.agent or AGENT
        self._hosts: dict[str, Host] = {}
        for host in settings.hosts:
            name = host.name.rpartition("@")[2]
            if name in self._hosts:
                raise RosterError(f"{name} is named twice, as {self._hosts[name].name} and as {host.name}")
            self._hosts[name] = host
        first = command(self._agent, "", [])[0]
        is_needed = bool(settings.agent) or not all(is_here(host.name) for host in settings.hosts)
        if is_needed and not has_program(first, settings.env):
            raise RosterError(f"there is no program {first!r:.80} here to start daemons with (--launch-agent)")
        self._spare = {host.name.rpartition("@")[2]: host for host in settings.others}
        """Nodes of the hostfile that were not chosen, and nodes that have left the session."""
        self._errors = process.Errors()
        self._waiting: dict[str, process.Started | OSError] = {}
        """Daemons, or errors of their starts, that the session has not yet taken by `start`."""
        self._started: list[process.Started] = []
        self._pending = set(self._hosts)
        self._relays: Relays | None = None
        if len(self._hosts) > self.flat:
            self._relays = Relays(self._agent, self._command, settings.daemon, self.radix, self.explain, self._errors)

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return a text with the nodes of the command line; empty if it names none."""
        if not settings.hosts:
            return ""
        here = [] if settings.agent else [host for host in settings.hosts if is_here(host.name)]
        others = [host for host in settings.hosts if host not in here]
        agent = "ssh" if not settings.agent else settings.agent.split()[0]
        parts = [f"{listed(here)} on this machine"] * bool(here) + [f"{listed(others)} by {agent}"] * bool(others)
        return ", and ".join(parts)

    def join(self) -> int | None:
        """Return None: this process is the launcher."""
        return None

    def nodes(self) -> Sequence[Node]:
        """Start the daemons, unless relays do it later, and return the nodes; daemons report missing slots."""
        for name in self._hosts if self._relays is None else ():
            if name not in self._waiting and not self._started:
                self._waiting[name] = self._begin(name)
        return [self._node(host) for host in self._hosts.values()]

    @staticmethod
    def _node(host: Host) -> Node:
        name = host.name.rpartition("@")[2]
        return Node(name, host.slots or None, (host.name,) if host.name != name else (), most=host.most)

    def start(self, node: Node, line: bytes) -> StartedDaemon:
        """Return the daemon of a node; many nodes are started with the last of them."""
        if self._relays is not None and node.name in self._pending:
            relayed = self._relays.add(node.name, self._hosts[node.name].name, line)
            self._pending.discard(node.name)
            if not self._pending:
                self._relays.begin()
            return relayed
        started = self._waiting.pop(node.name, None) or self._begin(node.name)
        if isinstance(started, OSError):
            raise started
        self._started.append(started)
        return started

    def _begin(self, name: str) -> process.Started | OSError:
        """Start the daemon of a node, which waits for its first line."""
        words = self._command(self._hosts[name].name, self._settings.daemon)
        try:
            return process.Started(name, words, self._errors, self.explain)
        except OSError as error:
            return error

    def attend(self, members: Members) -> None:
        """Do nothing: this roster does not add or remove nodes unless requested."""

    def obtain(self, request: NodeRequest, done: Obtained) -> None:
        """Obtain the nodes that the request names, or spare nodes."""
        hosts = [self._host(name, slots) for name, slots in request.hosts] or list(self._spare.values())
        if request.nodes:
            hosts = hosts[: request.nodes]
        nodes = [self._node(host) for host in hosts]
        if not nodes or len(nodes) < request.nodes or sum([node.slots or 1 for node in nodes]) < request.cpus:
            done((), f"{len(self._spare)} further nodes are known: others have to be named, such as n3:4")
            return
        for host, node in zip(hosts, nodes, strict=True):
            self._hosts[node.name] = host
            self._spare.pop(node.name, None)
        done(nodes, "")

    def _host(self, name: str, slots: int) -> Host:
        """Return the host of a requested name; the hostfile may give another user for it."""
        known = self._spare.get(name)
        if known is None:
            return Host(name, slots)
        return known.replace(slots=slots, most=known.most and max(known.most, slots))

    def release(self, node: Node) -> None:
        """Keep a node as a spare for later requests."""
        self._spare[node.name] = self._hosts.pop(node.name)

    def watch(self, report_lost: Lost) -> None:
        """Do nothing: a node is known to be lost only by the end of its agent, which the session detects."""

    def close(self) -> None:
        """End the agents."""
        if self._relays is not None:
            self._relays.close()
        for waiting in self._waiting.values():
            if isinstance(waiting, process.Started):
                os.close(waiting.stdin)
                os.close(waiting.stdout)
                self._started.append(waiting)
        for started in self._started:
            started.close()
        self._errors.close()

    def commands(self, words: Sequence[str]) -> list[tuple[tuple[str, ...], list[str]]]:
        """Return the command lines that run `words` on the nodes, each with the names of its nodes."""
        return [((name,), self._command(host.name, words)) for name, host in self._hosts.items()]

    def explain(self, node: str, code: int | None, errors: str) -> str:
        """Return an error text for a node's command that ended, or that makes no progress if the code is None."""
        host = self._hosts[node].name
        return explain(node, code, errors, self._settings.python, self._command(host, []))

    def _command(self, host: str, words: Sequence[str]) -> list[str]:
        if not self._settings.agent and is_here(host):
            return list(words)
        return command(self._agent, host, words)


def is_here(name: str) -> bool:
    """Return True if a node's name is this machine's: `localhost`, its address, or the host name, short or full."""
    own = socket.gethostname()
    return is_loopback(name) or name in ("localhost", own, own.partition(".")[0])


def listed(hosts: Sequence[Host], most: int = 8) -> str:
    """Return a text with the nodes: `nodes n1 (4), n2`, with the slots if they were given."""
    words = [f"{host.name} ({host.slots})" if host.slots else host.name for host in hosts[:most]]
    more = len(hosts) - len(words)
    kind = "node" if len(hosts) == 1 else "nodes"
    return f"{kind} {', '.join(words)}" + (f" and {more} more" if more else "")


TROUBLES = (
    ("could not resolve hostname", "its name does not resolve here: see DNS, /etc/hosts, or Host in ~/.ssh/config"),
    ("name or service not known", "its name does not resolve here: see DNS, /etc/hosts, or Host in ~/.ssh/config"),
    ("connection refused", "nothing listens for ssh there: does sshd run, and on which port (~/.ssh/config)?"),
    ("connection timed out", "it does not answer: is it up, and does a firewall let ssh through?"),
    ("no route to host", "there is no route to it: is it up, and is this the right network?"),
    ("network is unreachable", "there is no route to it: is it up, and is this the right network?"),
    ("host key verification failed", "its host key is not known or has changed: see `{agent}` and ssh-keyscan"),
    ("permission denied (", "ssh is refused without a password: see ssh-copy-id and ssh-agent"),
    ("too many authentication failures", "ssh is refused after too many keys: name one with IdentityFile"),
    ("no module named pypmix", "{python} has no pypmix there: install it, or name another with --remote-python"),
    ("invalid choice: 'node'", "the pypmix of {python} there is too old to run daemons: install this one's release"),
    ("no module named 'pypmix", "{python} has no pypmix there: install it, or name another with --remote-python"),
)
"""Messages of ssh and Python, and the error texts for them."""


def explain(node: str, code: int | None, errors: str, python: str, agent: Sequence[str]) -> str:
    """Return an error text for a command that failed to start a daemon, or makes no progress if the code is None.

    Args:
        node: The node's name.
        code: The command's exit code.
        errors: The command's standard error.
        python: The Python that runs the daemon.
        agent: The agent's words.
    """
    known = errors.lower()
    terms = {"python": python, "agent": shlex.join(agent)}
    for words, text in TROUBLES:
        if words in known:
            return f"{node}: {text.format(**terms)}"
    if code in (126, 127):
        return f"{node}: there is no {python} that can be run there: name another with --remote-python"
    lines = errors.strip().splitlines()
    said = f": {printable(lines[-1])[:300]}" if lines else f"; try `{shlex.join([*agent, python])} -m pypmix doctor`"
    if code is None:
        return f"{node}: its daemon does not answer{said}"
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{node}: the command that starts its daemon ended with {how}{said}"
